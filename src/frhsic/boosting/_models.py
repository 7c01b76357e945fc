"""Boosted trees as scikit-learn estimators, trained within a budget or a limit."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from frhsic._checks import ArgumentError, is_number
from frhsic.boosting._backends import Data, Floats, Name, Settings, find_backend
from frhsic.boosting._training import Boosted, Parts, boost, boost_plain, read_penalty
from frhsic.data import check_aligned, take_rows, to_generator, to_vector, to_weights
from frhsic.engine.budget import describe_share
from frhsic.engine.limits import describe_missed
from frhsic.engine.options import check_whole
from frhsic.engine.rows import MIN_BATCH, Rows
from frhsic.estimators.inputs import (
    ENOUGH,
    HELD_OUT,
    Constraint,
    Inputs,
    check_constraint,
    hold_out,
    make_rows,
    read_class_weights,
    read_classes,
    read_target,
    warn_constant,
)
from frhsic.penalty import Penalty, PenaltySum


@dataclass(frozen=True, eq=False)
class _Target:
    y: Tensor
    labels: Tensor | None = None
    classes: NDArray[Any] | None = None
    class_weights: Tensor | None = None

    @property
    def count(self) -> int:
        return 0 if self.classes is None else len(self.classes)


class BaseBooster(BaseEstimator):  # type: ignore[misc]
    """What the two estimators share; subclasses say what is predicted."""

    # Pipelines and searches with metadata routing pass these on without being asked.
    __metadata_request__fit: ClassVar = {"sensitive_features": True, "sample_weight": True}
    __metadata_request__score: ClassVar = {"sample_weight": True}

    def __init__(
        self,
        *,
        backend: Name = "lightgbm",
        budget: float | None = None,
        lam: float | None = None,
        limit: Mapping[str, float | Mapping[float, float]] | None = None,
        penalty: Penalty | PenaltySum | None = None,
        n_estimators: int = 200,
        learning_rate: float = 0.1,
        early_stopping: bool = False,
        validation_fraction: float | Literal["auto"] = "auto",
        backend_params: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.backend = backend
        self.budget = budget
        self.lam = lam
        self.limit = limit
        self.penalty = penalty
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.backend_params = backend_params
        self.random_state = random_state

    @abstractmethod
    def _target(self, n: int, inputs: Inputs) -> _Target:
        """Return y in numbers, with its classes."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _constraint(self) -> Constraint:
        return Constraint.of(self.lam, self.budget, self.limit)

    def _fit(self, inputs: Inputs, init_model: Any) -> Self:
        self._check_parameters()
        library, constraint = find_backend(self.backend), self._constraint
        x = _read_features(inputs.X)
        # The names of columns are read apart: a fit that fails must leave what an earlier one learned.
        columns = BaseEstimator()
        validate_data(columns, x, skip_check_array=True, reset=True)
        n = x.shape[0]
        target = self._target(n, inputs)
        check_aligned(**inputs.columns)
        if target.labels is None:
            warn_constant(target.y)
        index = torch.arange(n, dtype=torch.float64)[:, None]
        rows = make_rows(
            index, target.y, inputs, constraint, labels=target.labels, class_weights=target.class_weights
        )
        generator = to_generator(self.random_state)
        parts, data = self._split(x, rows, generator)
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        extra = dict(self.backend_params or {})
        settings = Settings(target.count, int(self.n_estimators), float(self.learning_rate), seed, extra)
        engine = library(data, settings, init_model)
        if constraint.penalised:
            penalty = read_penalty(self.penalty, target.classes, constraint)
            done = boost(engine, parts, penalty, constraint, early_stopping=bool(self.early_stopping))
            self._warn(done)
        else:
            done = boost_plain(engine, parts, early_stopping=bool(self.early_stopping))
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(columns.__dict__)
        self._keep(done, rows, target)
        return self

    def _split(self, x: Any, rows: Rows, generator: torch.Generator) -> tuple[Parts, Data]:
        """Hold out rows for a limit and for early stopping."""
        n, share = len(rows), self.validation_fraction
        needed = self._constraint.limit is not None or bool(self.early_stopping)
        if share == "auto":
            share = HELD_OUT if needed and (n >= ENOUGH or self.early_stopping) else 0.0
        held = None
        if needed and share > 0:
            least = MIN_BATCH if self._constraint.penalised else 2
            rows, held = hold_out(rows, float(share), least, generator)
        whole = held is None and n == x.shape[0]
        train_x = x if whole else take_rows(x, _numbers(rows))
        held_x = None if held is None else take_rows(x, _numbers(held))
        count = torch.arange(n, dtype=torch.float64)[:, None]
        rows = replace(rows, x=count[: len(rows)])
        if held is not None:
            held = replace(held, x=count[len(rows) : len(rows) + len(held)])
        weights = rows.loss_weighting
        w = np.ones(len(rows)) if weights is None else weights.double().numpy()
        return Parts(rows, held), Data(train_x, rows.y.double().numpy(), w, held_x)

    def _keep(self, done: Boosted, rows: Rows, target: _Target) -> None:
        self.booster_ = done.booster
        self.n_iter_ = done.rounds
        self.history_ = [dict(vars(record)) for record in done.history]
        self.relative_dependence_ = done.relative
        self.reached_ = done.reached
        self.penalty_ = done.penalty
        self.sensitive_names_ = None if rows.s is None else rows.s.names
        self.sensitive_kinds_ = None if rows.s is None else rows.s.kinds
        if target.classes is not None:
            self.classes_ = target.classes

    def _warn(self, done: Boosted) -> None:
        first, kept = done.losses
        missed: list[str] = []
        if done.reached:
            fix = "Grow more trees, or allow a larger limit."
            missed = describe_missed(done.reached, kept, first, fix)
        elif self.lam is None:
            fix = "Grow more trees, or allow a larger budget."
            missed = describe_share(done.relative, self._constraint.share, done.losses, fix)
        for message in missed:
            warnings.warn(message, ConvergenceWarning, stacklevel=4)

    def _check_parameters(self) -> None:
        check_constraint(self.lam, self.budget, self.limit, probability=is_classifier(self))
        given: dict[str, Any] = self.get_params(deep=False)
        for name, kinds, fix in (
            ("penalty", (Penalty, PenaltySum), "Wrap a measure: Penalty(HSIC(...), on='probability')."),
            ("backend_params", (Mapping,), "Write backend_params={'num_leaves': 15}."),
        ):
            if given[name] is not None and not isinstance(given[name], kinds):
                kind = "a Penalty" if name == "penalty" else "a dict"
                raise TypeError(f"'{name}' must be {kind} or None. Got {type(given[name]).__name__}. {fix}")
        check_whole("n_estimators", self.n_estimators, 200)
        rate, share = given["learning_rate"], given["validation_fraction"]
        if not is_number(rate) or not 0 < rate <= 1:
            raise ArgumentError("learning_rate", "lie above 0 and be at most 1", repr(rate), "Try 0.1.")
        if not isinstance(given["early_stopping"], (bool, np.bool_)):
            got = repr(self.early_stopping)
            raise ArgumentError("early_stopping", "be True or False", got, "Pass a boolean.")
        if share != "auto" and not (is_number(share) and 0 <= share < 1):
            must = "be 'auto' or a share from 0 to below 1"
            raise ArgumentError("validation_fraction", must, repr(share), "Try 0.2.")
        if self.early_stopping and share == 0:
            must = "be above 0 for early stopping"
            raise ArgumentError("validation_fraction", must, "0", "Try 0.2, or early_stopping=False.")

    def _raw(self, X: Any) -> Floats:
        check_is_fitted(self, "booster_")
        x = _read_features(X)
        validate_data(self, x, skip_check_array=True, reset=False)
        return find_backend(self.backend).predict_raw(self.booster_, x)


def _numbers(rows: Rows) -> NDArray[np.int64]:
    return rows.x[:, 0].long().numpy()


def _read_features(X: Any) -> Any:
    """Return X as the libraries take it: frames as they are, all else as numbers; missing values stay."""
    if isinstance(X, Tensor):
        X = X.numpy(force=True)
    if isinstance(X, Mapping) and not issparse(X):
        raise TypeError("'X' must be an array or a frame. Got a dict. Pass a frame of these columns.")
    if nw.dependencies.is_into_dataframe(X):
        return X
    return check_array(X, accept_sparse=("csr", "csc"), ensure_all_finite=False, input_name="X")


class FRHSICBoostingClassifier(ClassifierMixin, BaseBooster):  # type: ignore[misc]
    """Boosted trees whose score depends less on continuous sensitive attributes.

    LightGBM or XGBoost descends the log loss plus a multiple of HSIC of the probability and S over all rows,
    of equation ``frhsic_objective`` of the paper, until a budget or a limit is kept. ``booster_`` is an
    ordinary model of its library: it is saved by its own format and predicts without this package, and
    without S.

    Parameters
    ----------
    backend : {"lightgbm", "xgboost"}, default="lightgbm"
        Of the extras ``trees`` and ``xgboost``.
    budget : float, optional
        The dependence that may be left, as a share of that of a booster without a penalty, which is trained
        first. 0.1 where neither a budget, a limit nor ``lam`` is given.
    limit : dict, optional
        Instead of a budget: what may be left, in the unit of the score: ``{"gap": 0.02}`` and others; see
        :class:`frhsic.FRHSICClassifier`. It is measured on steering rows (``validation_fraction``).
    lam : float, optional
        Instead of a budget: the penalty weight. Only at 0 may ``fit`` go without ``sensitive_features``, and
        the booster is a plain one.
    penalty : Penalty, optional
        HSIC on the probability (or, for logits, the prediction), not normalised, of any kernels, joint or for
        each column of S, perhaps given labels of y; of more than two classes the score of each by itself.
        Anything else is an error: a table of scores by S cannot hold it. None is HSIC with a Gaussian kernel
        on the score and on ranks of S, and with a limit what :class:`frhsic.FRHSICClassifier` takes.
    n_estimators : int, default=200
        Rounds of boosting.
    learning_rate : float, default=0.1
        A round whose penalty is too steep for it takes a smaller one.
    early_stopping : bool, default=False
        Keep the round with the least loss on held-out rows among those within the budget or the limit (with
        ``lam``, the least loss plus lam times the penalty), and end 30 rounds after it.
    validation_fraction : float or "auto", default="auto"
        The share of rows held out for early stopping, or as steering rows of a limit; "auto" is a fifth, but
        for a limit of fewer than 2,000 rows none.
    class_weight : None, "balanced" or dict, default=None
        Weights of the classes in the loss, not in the penalty.
    backend_params : dict, optional
        Other parameters of the library: ``{"num_leaves": 15}``, ``{"max_depth": 4}``.
    random_state : None, int or generator, default=None
        An integer gives the same trees in every fit.

    Attributes
    ----------
    booster_ : lightgbm.Booster or xgboost.Booster
    classes_ : ndarray
    relative_dependence_ : float or None
        With a budget: the dependence over that of the plain booster, on the rows trained on.
    reached_ : tuple of Reached
        With a limit: each limited number on the steering rows and on those trained on.
    history_ : list of dict
        One record for each round, of what was found before it.
    n_iter_ : int
        The rounds that were kept.
    penalty_ : Penalty or None
        As it was used, classes as codes.

    Notes
    -----
    Missing values and categories are taken as the library takes them (pandas categories in both).
    Training cannot be interrupted and resumed. See ``frhsic.boosting.lightgbm_objective`` for the objective
    alone.

    Examples
    --------
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(500, random_state=0)
    >>> model = FRHSICBoostingClassifier(budget=0.1, n_estimators=50, random_state=0)
    >>> model = model.fit(task.data, task.target, sensitive_features=task.sensitive_features)
    >>> model.relative_dependence_ < 0.15
    True
    """

    def __init__(
        self,
        *,
        backend: Name = "lightgbm",
        budget: float | None = None,
        lam: float | None = None,
        limit: Mapping[str, float | Mapping[float, float]] | None = None,
        penalty: Penalty | PenaltySum | None = None,
        n_estimators: int = 200,
        learning_rate: float = 0.1,
        early_stopping: bool = False,
        validation_fraction: float | Literal["auto"] = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        backend_params: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            backend=backend,
            budget=budget,
            lam=lam,
            limit=limit,
            penalty=penalty,
            n_estimators=n_estimators,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            backend_params=backend_params,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        init_model: Any = None,
    ) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X : array, scipy sparse matrix or frame of shape (n, p)
            As the library takes it.
        y : array of shape (n,)
            Classes: numbers, strings or booleans.
        sensitive_features : array or frame of shape (n,) or (n, q), optional
            As for :meth:`frhsic.FRHSICClassifier.fit`.
        sample_weight : array of shape (n,), optional
            In the loss and in the penalty. Rows of weight zero are left out.
        init_model : Booster or estimator of the library, optional
            A booster to continue, of the same columns and classes: its trees stay, and ``n_estimators``
            rounds are added.
        """
        return self._fit(Inputs(X, y, sensitive_features, sample_weight), init_model)

    def _target(self, n: int, inputs: Inputs) -> _Target:
        classes, codes = read_classes(self, inputs.y, n, None)
        if len(classes) < 2:
            raise ArgumentError(
                "y", "have at least two classes", "only 1 class", "Pass rows of another class."
            )
        labels = torch.from_numpy(codes)
        weights = to_weights(inputs.sample_weight, n_rows=n)
        own = read_class_weights(self.class_weight, classes, codes, weights)
        return _Target(labels.double(), labels, classes, own)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the raw scores: ``(n,)`` of the second class, or ``(n, k)`` for k > 2 classes."""
        raw = self._raw(X)
        return raw[:, 0] if len(self.classes_) == 2 else raw

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, ``(n, k)``."""
        raw = self._raw(X)
        if len(self.classes_) == 2:
            raw = np.column_stack([np.zeros(len(raw)), raw[:, 0]])
        found: NDArray[np.float64] = softmax(raw, axis=1)
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row."""
        most = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of ``predict(X)``.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
        """
        check_aligned(X=X, y=y, sample_weight=sample_weight)
        return float(super().score(X, y, sample_weight))


class FRHSICBoostingRegressor(RegressorMixin, BaseBooster):  # type: ignore[misc]
    """Boosted trees for a number, whose prediction depends less on continuous sensitive attributes.

    The squared error is minimised within a budget or a limit; all else is as for
    :class:`FRHSICBoostingClassifier`. The penalty is taken of predictions over the spread of y.

    Parameters
    ----------
    backend, budget, limit, lam, penalty, n_estimators, learning_rate, early_stopping, \
validation_fraction, backend_params, random_state
        See :class:`FRHSICBoostingClassifier`. The penalty is on the prediction and may not be given labels of
        y; limits are in the unit of y.

    Examples
    --------
    >>> import numpy as np
    >>> s = np.linspace(-1, 1, 300)
    >>> X = np.column_stack([s, np.sin(9 * s)])
    >>> model = FRHSICBoostingRegressor(lam=0, n_estimators=50, random_state=0).fit(X, X[:, 0])
    >>> model.score(X, X[:, 0]) > 0.9
    True
    """

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        init_model: Any = None,
    ) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight, init_model
            As for :meth:`FRHSICBoostingClassifier.fit`, but y holds numbers.
        """
        return self._fit(Inputs(X, y, sensitive_features, sample_weight), init_model)

    def _target(self, n: int, inputs: Inputs) -> _Target:
        return _Target(to_vector(read_target(self, inputs.y), n_rows=n))

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the prediction of each row, ``(n,)``."""
        return self._raw(X)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of ``predict(X)``.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
        """
        check_aligned(X=X, y=y, sample_weight=sample_weight)
        return float(super().score(X, y, sample_weight))
