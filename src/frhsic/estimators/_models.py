"""The three estimators: classifier, regressor, encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.data import check_aligned, to_vector, to_weights
from frhsic.engine.nets import binary_cross_entropy, cross_entropy, squared_error
from frhsic.engine.options import Training
from frhsic.estimators._base import BaseModel
from frhsic.estimators._task import Problem
from frhsic.estimators.inputs import Inputs, read_class_weights, read_classes, read_target, settle_classes
from frhsic.penalty import Penalty, PenaltySum


class FRHSICClassifier(ClassifierMixin, BaseModel):  # type: ignore[misc]
    """A classifier whose representation is trained to depend less on continuous sensitive attributes.

    A network z = h(x), f(z) minimises the cross-entropy subject to a budget or a limit for the dependence of
    its score (or of z) on S, or the cross-entropy plus ``lam`` times that dependence: equation
    ``frhsic_objective`` of the paper. ``predict`` and ``transform`` never need S.

    Parameters
    ----------
    budget : float, optional
        The dependence that may be left, as a share of that of an unconstrained model, which is trained along.
        0.1 where neither a budget, a limit nor ``lam`` is given.
    limit : dict, optional
        Instead of a budget: what may be left, in the unit of the score: ``{"gap": 0.02}``, ``{"gdp": 0.02}``,
        ``{"gap_at": {0.5: 0.03}}``, ``{"gap_worst": 0.05}``, ``{"rank_gap": 0.05}``,
        ``{"normalized_hsic": 0.01}``, or several. It is measured as in an audit, on steering rows, a fifth of
        2,000 or more that is not trained on (``Training(limit_fraction=...)``). Of several columns, classes
        or labels the largest value counts.
    lam : float, optional
        Instead of a budget: the penalty weight, which is not comparable between penalties or data.
        Only at 0 may ``fit`` go without ``sensitive_features``.
    penalty : Penalty, optional
        The dependence to lower, with the fairness notion. ``fit`` copies it into ``penalty_``. Labels in
        ``given={"y": label}`` are classes as they stand in y. None is, with a budget, normalised HSIC of the
        probabilities (of the prediction of a regression); with a limit, HSIC of them with the energy kernel
        plus 8 times that with a linear one, and a Gaussian kernel on ranks of S; with ``lam``, HSIC of the
        prediction under a linear kernel plus HSIC of Z under a scale-free Gaussian one.
    encoder : sequence of int or torch.nn.Module, default=(50, 50)
        Widths of the layers, the last one that of Z, or a module from ``(n, p)`` to ``(n, d)``.
    epochs : int, default=200
    batch_size : int, default=256
    learning_rate : float, default=1e-3
        Of Adam.
    early_stopping : bool, default=False
        Hold out rows and keep the weights of the epoch with the least loss + lam * penalty on them, or, with
        a budget or a limit, of the one with the least loss within it; see ``Training`` for how many rows and
        how long to wait.
    class_weight : None, "balanced" or dict, default=None
        Weights of the classes in the loss, not in the penalty.
    random_state : None, int or generator, default=None
    device : str or torch.device, default="cpu"
        Where to train. Predictions are computed in float64 on the CPU.
    warm_start : bool, default=False
        Continue from the weights of the last fit.
    training : Training, optional
        Schedule, clipping, scaling of X and S, checkpoints.

    Attributes
    ----------
    classes_ : ndarray
    encoder_, head_ : torch.nn.Module
    penalty_ : PenaltySum
        The copy that was trained with: scales of S fixed (for S as ``scaling_s_`` scales it), those of Z as
        ``Training(every=...)`` left them at the last epoch, classes as codes.
    history_ : list of dict
        One record for each epoch; ``skipped`` counts the batches in which a label of y had too few rows.
    relative_dependence_ : float or None
        With a budget: the dependence over that of the unconstrained model, on the rows trained on. A budget
        missed by more than 15 % is a ConvergenceWarning.
    reached_ : tuple of Reached
        With a limit: for each number that is limited its value on the steering rows and on those trained on;
        ``print`` shows it as a sentence.
    best_epoch_, n_iter_ : int
    scaling_x_, scaling_s_ : Scaling

    Notes
    -----
    With ``sklearn.set_config(enable_metadata_routing=True)`` a Pipeline, ``cross_validate`` and
    ``GridSearchCV`` pass ``sensitive_features`` and ``sample_weight`` on to ``fit`` without being asked.
    Without routing a Pipeline takes ``frhsicclassifier__sensitive_features=...``, and a search hands on what
    is given to its ``fit``, but scorers get nothing.

    Examples
    --------
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(500, random_state=0)
    >>> model = FRHSICClassifier(lam=5.0, epochs=5, random_state=0)
    >>> model = model.fit(task.data, task.target, sensitive_features=task.sensitive_features)
    >>> model.predict_proba(task.data).shape
    (500, 2)
    """

    def __init__(
        self,
        *,
        budget: float | None = None,
        lam: float | None = None,
        limit: Mapping[str, float | Mapping[float, float]] | None = None,
        penalty: Penalty | PenaltySum | None = None,
        encoder: Sequence[int] | nn.Module = (50, 50),
        epochs: int = 200,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        early_stopping: bool = False,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        random_state: Any = None,
        device: str | torch.device = "cpu",
        warm_start: bool = False,
        training: Training | None = None,
    ) -> None:
        super().__init__(
            budget=budget,
            lam=lam,
            limit=limit,
            penalty=penalty,
            encoder=encoder,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            random_state=random_state,
            device=device,
            warm_start=warm_start,
            training=training,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X : array, scipy sparse matrix or frame of shape (n, p)
            Numbers; TableEncoder makes them from tables with categories and missing values. A sparse matrix
            is densified, up to 8 GB.
        y : array of shape (n,)
            Classes: numbers, strings or booleans.
        sensitive_features : array or frame of shape (n,) or (n, q), optional
            Numbers are continuous, strings, booleans and categories categorical; pass
            ``frhsic.data.to_sensitive(s, kinds={"zone": "categorical"})`` for codes that are no numbers.
        sample_weight : array of shape (n,), optional
            In the loss and in the penalty. Rows of weight zero are left out.
        """
        return self._fit(Inputs(X, y, sensitive_features, sample_weight))

    def partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        classes: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Continue training with other rows: one pass over them, in minibatches.

        Scales of X and S are those of the first call, so that its rows should be like all others, thousands
        of them, and those of any call in random order (:func:`frhsic.sources.shuffle`). Needs ``lam``;
        ``epochs`` is not read. ``history_`` has a record for each call.

        Parameters
        ----------
        X, y, sensitive_features
            As for ``fit``.
        classes : array of shape (k,), optional
            All classes that y will ever have. Must be passed to the first call.
        sample_weight : array of shape (n,), optional
            Compared between rows of one call.

        Examples
        --------
        >>> from frhsic.datasets import make_u_shaped
        >>> task, model = make_u_shaped(500, random_state=0), FRHSICClassifier(lam=5.0, random_state=0)
        >>> for rows in np.split(np.arange(500), 2):
        ...     model = model.partial_fit(task.data[rows], task.target[rows], classes=[0, 1],
        ...                               sensitive_features=task.sensitive_features[rows])
        >>> model.n_iter_
        2
        """
        if isinstance(self.class_weight, str):
            must = "be None or a dict for partial_fit: shares of classes are known once all rows are"
            raise ArgumentError("class_weight", must, repr(self.class_weight), "Pass the weights.")
        known = settle_classes(classes, vars(self).get("classes_"))
        return self._partial_fit(Inputs(X, y, sensitive_features, sample_weight, known))

    def _problem(self, x: Tensor, inputs: Inputs) -> Problem:
        classes, codes = read_classes(self, inputs.y, len(x), inputs.classes)
        if len(classes) < 2:
            fix = "Pass rows of another class."
            raise ArgumentError("y", "have at least two classes", "only 1 class", fix)
        binary = len(classes) == 2
        labels = torch.from_numpy(codes)
        weights = to_weights(inputs.sample_weight, n_rows=len(x))
        return Problem(
            y=labels.double() if binary else labels,
            loss=binary_cross_entropy if binary else cross_entropy,
            outputs=1 if binary else len(classes),
            labels=labels,
            classes=classes,
            class_weights=read_class_weights(self.class_weight, classes, codes, weights),
        )

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the logits: ``(n,)`` of the second class, or ``(n, k)`` for k > 2 classes."""
        logits = self._forward(X).numpy()
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, ``(n, k)``."""
        logits = self._forward(X)
        if len(self.classes_) == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return logits.softmax(dim=1).numpy()

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

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row."""
        most = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most]


class FRHSICRegressor(RegressorMixin, BaseModel):  # type: ignore[misc]
    """A regression whose representation is trained to depend less on continuous sensitive attributes.

    The squared error of the scaled target is minimised within a budget, or plus ``lam`` times the penalty;
    all else is as for :class:`FRHSICClassifier`. ``Training(scaling=...)`` says how the target is scaled
    (and with it what ``lam`` means); predictions come in the units of y.

    Parameters
    ----------
    budget, limit, lam, penalty, encoder, epochs, batch_size, learning_rate, early_stopping, \
random_state, device, warm_start, training
        See :class:`FRHSICClassifier`. The penalty may not be given labels of y.

    Examples
    --------
    >>> import numpy as np
    >>> s = np.linspace(-1, 1, 300)
    >>> X = np.column_stack([s, np.sin(9 * s)])
    >>> model = FRHSICRegressor(lam=0, epochs=50, random_state=0).fit(X, X[:, 0])
    >>> model.score(X, X[:, 0]) > 0.9
    True
    """

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As for :meth:`FRHSICClassifier.fit`, but y holds numbers.
        """
        return self._fit(Inputs(X, y, sensitive_features, sample_weight))

    def partial_fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Continue training with other rows, as :meth:`FRHSICClassifier.partial_fit` does.

        The scale of y, too, is that of the first call.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As for ``fit``.
        """
        return self._partial_fit(Inputs(X, y, sensitive_features, sample_weight))

    def _problem(self, x: Tensor, inputs: Inputs) -> Problem:
        return Problem(to_vector(read_target(self, inputs.y), n_rows=len(x)), squared_error, 1)

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

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the prediction of each row, ``(n,)``."""
        prediction = self._forward(X)
        assert self.scaling_y_ is not None  # noqa: S101
        return self.scaling_y_.invert(prediction).squeeze(-1).numpy()


class FRHSICEncoder(BaseModel):
    """A representation from which X can be rebuilt and that depends less on sensitive attributes.

    The mean squared error of the rebuilt, scaled columns is minimised within a budget, or plus ``lam`` times
    the penalty; no target is needed. For a representation that serves a known target use
    ``FRHSICClassifier(...).transform``.

    Parameters
    ----------
    budget, limit, lam, penalty, encoder, epochs, batch_size, learning_rate, early_stopping, \
random_state, device, warm_start, training
        See :class:`FRHSICClassifier`. The decoder has the layers of the encoder in reverse (one linear layer
        for an encoder that is a module). ``on="prediction"`` is what is rebuilt. The default penalty is
        ``RecoveredVariance`` of Z, which the decoder cannot evade by a linear map, where a batch has rows for
        it: four for each column of Z and for each of at least 64 features. Else it is HSIC with a scale-free
        Gaussian kernel on Z, whitened where a batch has twice as many rows as Z has columns.

    Examples
    --------
    >>> import numpy as np
    >>> s = np.linspace(-1, 1, 300)
    >>> X = np.column_stack([s, np.sin(9 * s)])
    >>> FRHSICEncoder(lam=1.0, encoder=(8, 2), epochs=2).fit_transform(X, sensitive_features=s).shape
    (300, 2)
    """

    def __init__(
        self,
        *,
        budget: float | None = None,
        lam: float | None = None,
        limit: Mapping[str, float | Mapping[float, float]] | None = None,
        penalty: Penalty | PenaltySum | None = None,
        encoder: Sequence[int] | nn.Module = (50, 50),
        epochs: int = 200,
        batch_size: int = 2_048,
        learning_rate: float = 3e-3,
        early_stopping: bool = False,
        random_state: Any = None,
        device: str | torch.device = "cpu",
        warm_start: bool = False,
        training: Training | None = None,
    ) -> None:
        super().__init__(
            budget=budget,
            lam=lam,
            limit=limit,
            penalty=penalty,
            encoder=encoder,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            random_state=random_state,
            device=device,
            warm_start=warm_start,
            training=training,
        )

    def fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on the rows of X.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As for :meth:`FRHSICClassifier.fit`, but y is read only where the penalty is given labels of y.
        """
        return self._fit(Inputs(X, y, sensitive_features, sample_weight))

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        classes: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Continue training with other rows, as :meth:`FRHSICClassifier.partial_fit` does.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As for ``fit``.
        classes : array of shape (k,), optional
            All classes that y will ever have, where the penalty is given labels of y.
        """
        known = None
        if self.penalty is not None and self.penalty.needs_y:
            stream = vars(self).get("_stream")
            known = settle_classes(classes, None if stream is None else stream.task.problem.classes)
        return self._partial_fit(Inputs(X, y, sensitive_features, sample_weight, known))

    def _problem(self, x: Tensor, inputs: Inputs) -> Problem:
        labels, classes = None, inputs.classes
        if self.penalty is not None and self.penalty.needs_y:
            classes, codes = read_classes(self, inputs.y, len(x), classes)
            labels = torch.from_numpy(codes)
        widths = () if isinstance(self.encoder, nn.Module) else tuple(self.encoder)
        return Problem(None, squared_error, x.shape[1], widths[-2::-1], labels, classes)

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> float:  # noqa: ARG002
        """Return minus the mean squared error of the rebuilt, scaled columns.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : ignored
            For searches, which pass it.
        sample_weight : array of shape (n,), optional
        """
        check_aligned(X=X, sample_weight=sample_weight)
        errors = torch.cat([(self.head_(z) - x).square().mean(dim=1) for x, z in self._encode(X)])
        weights = to_weights(sample_weight, n_rows=len(errors))
        return -float(errors.mean() if weights is None else weights @ errors / weights.sum())
