"""A whole frontier from one call: models trained, judged on validation rows, and one of them chosen."""

from __future__ import annotations

import copy
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import check_scoring
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from frhsic._checks import ArgumentError
from frhsic._progress import Progress
from frhsic.boosting import fit_trees
from frhsic.data import check_aligned, to_generator
from frhsic.dependence import Dependence
from frhsic.engine.limits import Key, read_limit, write_limit
from frhsic.estimators import FRHSICEncoder, fit_path
from frhsic.inference import frame, load_report
from frhsic.selection._front import pareto_front
from frhsic.selection._held_out import Rows, hold_out
from frhsic.selection._judging import Judge, On, name_model
from frhsic.selection._parameters import GRIDS, TREES, check_parameters, try_rule
from frhsic.selection._pipelines import last_step, route
from frhsic.selection._point import Point
from frhsic.selection._repaired import repair_model
from frhsic.selection._rules import best_within_limit, lowest_dependence_within

Rule: TypeAlias = Callable[[Sequence[Point]], int | None]

# Halvings or so of the dependence; with a few thousand validation rows less than a twentieth is hard to tell
# from chance.
_BUDGETS = (0.5, 0.2, 0.1, 0.05)


@dataclass(frozen=True, eq=False)
class _Trained:
    """A model with the steps before it, what is judged of it, and validation rows as it sees them."""

    member: Any
    before: Pipeline | None
    model: Any
    judged: Any
    rows: Any


def _has(name: str) -> Callable[[FrontierSearch], bool]:
    """Return a check that the estimator has a method; if not, its own AttributeError is raised."""

    def check(search: FrontierSearch) -> bool:
        getattr(search._last, name)
        return True

    return check


class FrontierSearch(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Train a model at each budget in one stacked pass, judge all on validation rows, choose one by a rule.

    Validation rows are held out, the earlier steps of a Pipeline are fitted once on the training rows, all
    models are trained together (:func:`frhsic.estimators.fit_path`), and each becomes a :class:`Point`. The
    chosen model is not trained again on all rows: it is the model that was judged.

    Parameters
    ----------
    estimator : estimator, Pipeline or list of these
        FRHSICClassifier, FRHSICRegressor, FRHSICEncoder, FRHSICBoostingClassifier, FRHSICBoostingRegressor,
        or a Pipeline that ends in one of them. Their ``budget``, ``limit`` and ``lam`` are not read. Those of
        a list make one frontier: all are trained on the same rows and judged on the same rows.
    budgets : sequence of float, optional
        Shares of the dependence of the unconstrained model, which is always trained beside them. With neither
        budgets, limits nor lams: 0.5, 0.2, 0.1 and 0.05.
    limits : sequence of dict, optional
        Limits instead, as an estimator takes them: ``[{"gap": 0.05}, {"gap": 0.02}]``. The unconstrained
        model is trained beside them.
    lams : sequence of float, optional
        Penalty weights instead; pass 0 among them for the unconstrained model.
    rule : callable, optional
        A function of points that returns the index of one: ``functools.partial(lowest_dependence_within,
        tolerance=0.02)``, ``knee``, ``lowest_dependence``, ``first_not_rejected`` (with ``test=True``),
        ``last_equivalent`` (with a ``tolerance``), or your own. It is tried on made-up points before
        anything is trained, so that it does not fail afterwards. None is ``lowest_dependence_within``, and
        with ``limits`` ``best_within_limit``: the best performing model that does not miss the loosest
        limit. Where every model misses that, none is chosen, with a warning: ``results_``, ``plot`` and
        ``report`` are there, and what asks for the chosen model is a ``NotFittedError``.
    validation : float, tuple or Bunch, default=0.2
        The share of rows to judge on, with the same share of each class, or these rows themselves:
        ``(X, y, sensitive_features)``, with weights as a fourth, or a Bunch as datasets return.
    scoring : str or callable, optional
        The performance, as scikit-learn names it; None is the estimator's own score: accuracy, R^2, minus the
        error of what an encoder rebuilds.
    dependence : Dependence, optional
        That of the points: ScoreGap, RankGap, GDP, HSIC or DistanceCovariance, for which there are intervals.
        None is what ``limits`` name first, else GDP of the prediction, or debiased normalised HSIC of the
        whitened representation.
    on : {"prediction", "representation"}, optional
        Whose dependence that is. A classifier's prediction is its probabilities. None is the prediction, and
        the representation of an encoder, which predicts nothing.
    test : bool, default=False
        Also test independence.
    tolerance : float, optional
        Also test whether the dependence is below this, in the units of ``dependence``. Fix it before you look
        at the validation rows.
    representation : bool, default=True
        Also judge the representation. This is most of the time of judging: see Notes.
    repair : bool, default=False
        Also judge the model without penalty with its scores repaired to each budget or limit
        (:class:`frhsic.repair.ScoreRepair`). Such a model needs S at prediction, which law may forbid.
    random_state : None, int or generator, default=None
        Of the validation rows and of the draws behind intervals and tests, which are the same for all models.
        The networks use that of the estimator.

    Attributes
    ----------
    results_ : pandas.DataFrame, or dict of columns where pandas is not installed
        A row for each model. Always: model ("network" or the library of the trees; "repaired" after it where
        scores are), budget, limit, lam, penalty_weight (lam, or one over the budget or the smallest limit),
        relative_dependence (on training rows, over the unconstrained model's, as the budget has it), of_limit
        (the largest value on the steering rows over its limit), performance, dependence, interval, on_front.
        With limits, missed (the loosest of them).
        Then, of a prediction, gap, gdp and (debiased normalised) hsic with intervals; of a representation,
        hsic_z (whitened), r2_ridge and r2_boosted (of S from Z, cross-validated among the validation rows);
        pvalue and equivalence_pvalue. With several sensitive columns one of each, such as gdp_age.
    points_ : list of Point
    models_ : list of fitted estimators
        The last step, one for each budget or penalty weight.
    best_index_ : int
    best_estimator_ : fitted estimator or Pipeline
        A :class:`frhsic.repair.RepairedModel` where repair was chosen: its ``predict`` takes
        ``sensitive_features``, that of the search cannot.

    Notes
    -----
    **Optimism.** The model is chosen on these rows, so its dependence and performance look better than they
    are. Its interval is that of a single model fixed beforehand. Audit it on rows that took no part. Only
    ``last_equivalent`` keeps its level, and only about the tolerance. ``results_`` shows whether a budget was
    kept; there is no warning.

    **Repair** is fitted on the validation rows, since a model's scores of its own training rows are others,
    and judged there by five folds: each row by a map that did not see it. Its budget is a share of normalised
    HSIC of the score on these rows.

    **Several sensitive columns** are judged one by one. A point has the greatest dependence, the greatest
    upper limit (which covers the greatest dependence), the smallest p-value of independence after Holm's
    correction, and the greatest p-value of equivalence (all columns are below the tolerance).

    **Weights** go into training, performance and dependence; equivalence has no weighted form. Earlier steps
    get them only where metadata routing is enabled and they ask for it. The dependence is overall, also where
    the penalty is given labels of y.

    Examples
    --------
    >>> from frhsic import FRHSICClassifier
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(600, random_state=0)
    >>> model = FRHSICClassifier(epochs=5, random_state=0)
    >>> search = FrontierSearch(model, budgets=[0.5, 0.1], representation=False, random_state=0)
    >>> search = search.fit(task.data, task.target, sensitive_features=task.sensitive_features)
    >>> [point.label for point in search.points_]
    ['unconstrained', 'budget 50 %', 'budget 10 %']
    """

    # Pipelines and searches with metadata routing pass these on without being asked.
    __metadata_request__fit: ClassVar = {"sensitive_features": True, "sample_weight": True}
    __metadata_request__score: ClassVar = {"sample_weight": True}

    def __init__(
        self,
        estimator: Any,
        *,
        budgets: Sequence[float] | None = None,
        limits: Sequence[Mapping[str, Any]] | None = None,
        lams: Sequence[float] | None = None,
        rule: Rule | None = None,
        validation: Any = 0.2,
        scoring: Any = None,
        dependence: Dependence | None = None,
        on: On | None = None,
        test: bool = False,
        tolerance: float | None = None,
        representation: bool = True,
        repair: bool = False,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.budgets = budgets
        self.limits = limits
        self.lams = lams
        self.rule = rule
        self.validation = validation
        self.scoring = scoring
        self.dependence = dependence
        self.on = on
        self.test = test
        self.tolerance = tolerance
        self.representation = representation
        self.repair = repair
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train a model at each budget or penalty weight, judge all on validation rows, and choose one.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : array of shape (n,), optional
            Not needed for an encoder.
        sensitive_features : array or frame of shape (n,) or (n, q)
        sample_weight : array of shape (n,), optional
        """
        check_parameters(self)
        try_rule(self)
        if sensitive_features is None:
            fix = "Pass them; inside a Pipeline or a search, first call "
            fix += "sklearn.set_config(enable_metadata_routing=True)."
            raise ArgumentError("sensitive_features", "be passed to fit", None, fix)
        generator = to_generator(self.random_state)
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        check_aligned(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        rows = Rows(X, y, sensitive_features, sample_weight)
        stratify = is_classifier(self._last)
        train, held = hold_out(rows, self.validation, stratify=stratify, seed=seed)
        asked = (self.scoring, self.test, self.tolerance, self.representation)
        limits = [read_limit(limit) for limit in self.limits or ()]
        limited = next(iter(limits[0])) if limits else None
        judge = Judge(self._on, self.dependence, *asked, seed, limited, self._loosest)
        judge.rehearse(held)
        trained = [one for member in self._members for one in self._train(member, train, held, seed)]
        judged = []
        with Progress("judging", len(trained)) as bar:
            for one in trained:
                point, found = judge(one.judged, one.rows)
                if len(self._members) > 1 or self.repair:
                    point = replace(point, model=name_model(one.judged))
                judged.append((point, found))
                bar.advance()
        self._chosen: int | None = None  # not that of an earlier fit
        self.models_: list[Any] = [one.model for one in trained]
        self.points_ = [point for point, _ in judged]
        self._trained = [replace(one, rows=None) for one in trained]
        self._found = [found for _, found in judged]
        if self.rule is None and self._rule(self.points_) is None:
            warnings.warn(self._describe_none(), ConvergenceWarning, stacklevel=2)
            return self
        return self.choose(self._rule)

    def _train(self, member: Any, train: Rows, held: Rows, seed: int) -> list[_Trained]:
        """Return the models of one estimator, the steps before it, and validation rows as it sees them."""
        x, before = train.x, None
        if isinstance(member, Pipeline) and len(member.steps) > 1:
            before = clone(member[:-1])
            metadata = route(before, sensitive_features=train.s, sample_weight=train.w)
            x = before.fit_transform(x, train.y, **metadata)
            held = replace(held, x=before.transform(held.x))
        grids: dict[str, Any] = {name: getattr(self, name) for name in GRIDS}
        if not any(grid is not None for grid in grids.values()):
            grids["budgets"] = _BUDGETS
        fit = fit_trees if isinstance(last_step(member), TREES) else fit_path
        models = fit(
            last_step(member),
            x,
            train.y,
            **grids,
            sensitive_features=train.s,
            sample_weight=train.w,
        )
        found = [_Trained(member, before, model, model, held) for model in models]
        if self.repair:
            repaired = repair_model(models[0], held, grids["budgets"], self.limits, seed)
            found += [_Trained(member, before, model, judged, held) for model, judged in repaired]
        return found

    def choose(self, rule: Rule) -> Self:
        """Choose again among the trained models, by another rule, without training or judging them again.

        Parameters
        ----------
        rule : callable
            As in the constructor.
        """
        check_is_fitted(self, "models_")
        index = rule(self.points_)
        if index is None:
            fix = "The models are kept: look at results_, or call choose(lowest_dependence). Next time hold "
            fix += "out more rows or train with smaller budgets or limits."
            got = f"None from {_name(rule)}: no model meets it"
            raise ArgumentError("rule", "choose a model", got, fix)
        if index not in range(len(self.points_)):
            must, got = f"return an index below {len(self.points_)}", f"{index!r} from {_name(rule)}"
            raise ArgumentError("rule", must, got, "Return the place of a point in the list.")
        self._chosen = int(index)
        return self

    @property
    def best_index_(self) -> int:
        """The place of the chosen model in ``points_`` and ``models_``."""
        check_is_fitted(self, "models_")
        if self._chosen is None:
            raise NotFittedError(self._describe_none())
        return self._chosen

    @property
    def best_estimator_(self) -> Any:
        """The chosen model, in a Pipeline where the estimator is one."""
        check_is_fitted(self, "models_")
        best = self.models_[self.best_index_]
        chosen = self._trained[self.best_index_]
        if isinstance(chosen.member, Pipeline):
            earlier = [] if chosen.before is None else chosen.before.steps
            best = Pipeline([*earlier, (chosen.member.steps[-1][0], best)])
        return best

    def _describe_none(self) -> str:
        """Return that no model is chosen, and what is there instead."""
        why = f"{_name(self._rule)} found none"
        if self._rule is best_within_limit:
            why = f"every model misses the limit {write_limit(self._loosest)}"
        return (
            f"No model is chosen: {why}. The models are kept: look at results_, or call "
            "choose(lowest_dependence). Train for longer, hold out more rows, or allow a larger limit."
        )

    @property
    def _rule(self) -> Rule:
        if self.rule is not None:
            return self.rule
        return lowest_dependence_within if self.limits is None else best_within_limit

    @property
    def _loosest(self) -> dict[Key, float]:
        """The loosest of the limits, of which a model of the smallest penalty weight is trained."""
        limits = [read_limit(limit) for limit in self.limits or ()]
        return max(limits, key=lambda limit: min(limit.values()), default={})

    @property
    def results_(self) -> Any:
        """A row for each model: see the attributes of the class."""
        check_is_fitted(self, "points_")
        front = set(pareto_front(self.points_))
        rows = [
            {
                "model": name_model(model),
                "budget": _or_nan(point.budget),
                "limit": point.limit or "",
                "lam": _or_nan(model.lam),
                "penalty_weight": point.penalty_weight,
                "relative_dependence": _or_nan(model.relative_dependence_),
                "of_limit": max((one.judged / one.limit for one in model.reached_), default=float("nan")),
                "performance": point.performance,
                "dependence": point.dependence,
                "dependence_low": point.lower,
                "dependence_high": point.upper,
                "on_front": index in front,
                **({} if point.missed is None else {"missed": point.missed}),
                **found,
            }
            for index, (point, model, found) in enumerate(
                zip(self.points_, [one.judged for one in self._trained], self._found, strict=True)
            )
        ]
        columns = dict.fromkeys(name for row in rows for name in row)
        rows = [{name: row.get(name, math.nan) for name in columns} for row in rows]  # trees have no Z
        try:
            return frame(rows)
        except ImportError:
            return {name: [row[name] for row in rows] for name in rows[0]}

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the models, performance against dependence: :func:`frhsic.report.plot_frontier`.

        Parameters
        ----------
        ax : Axes, optional
            None makes a figure.

        Returns
        -------
        Axes
        """
        check_is_fitted(self, "points_")
        return load_report().draw_search(self, ax=ax)

    def report(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the search as one HTML file: :func:`frhsic.report.write_frontier`, with its options.

        Parameters
        ----------
        path : str or path
        **options
            ``title``, ``target``, ``reason``, ``source``, ``command``, ``date``.
        """
        check_is_fitted(self, "points_")
        load_report().write_frontier(self, path, **options)

    def _repr_html_inner(self) -> str:
        """Return a card of the models for notebooks; before fitting, or without ``report``, a diagram."""
        if hasattr(self, "points_"):
            try:
                return str(load_report().render_search(self))
            except ImportError:
                pass
        return str(super()._repr_html_inner())

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """Return what a notebook shows."""
        found: dict[str, str] = super()._repr_mimebundle_(**options)
        return {name: self._repr_html_inner() if name == "text/html" else found[name] for name in found}

    @property
    def _members(self) -> list[Any]:
        """The estimators of the frontier."""
        return list(self.estimator) if isinstance(self.estimator, list | tuple) else [self.estimator]

    @property
    def _last(self) -> Any:
        """The (first) estimator, or the last step of the Pipeline."""
        return last_step(self._members[0])

    @property
    def _on(self) -> On:
        if self.on is None:
            return "representation" if isinstance(self._last, FRHSICEncoder) else "prediction"
        return self.on

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self._members[0])
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "transformer_tags", "input_tags"):
            setattr(tags, name, copy.deepcopy(getattr(own, name)))
        return tags

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of a classifier."""
        return self._best.classes_

    @available_if(_has("predict"))  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the prediction of the chosen model."""
        return self._best.predict(X)

    @available_if(_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class under the chosen model, ``(n, k)``."""
        return self._best.predict_proba(X)

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the logits of the chosen model."""
        return self._best.decision_function(X)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the representation Z of the chosen model, ``(n, d)``."""
        return self._best.transform(X)

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> float:
        """Return the performance of the chosen model, by ``scoring``.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : array of shape (n,), optional
            Not needed for an encoder.
        sample_weight : array of shape (n,), optional
        """
        check_aligned(X=X, y=y, sample_weight=sample_weight)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(check_scoring(self._best, self.scoring)(self._best, X, y, **weights))

    @property
    def _best(self) -> Any:
        return self.best_estimator_


def _or_nan(value: float | None) -> float:
    """Return a number, so that columns of a frame hold numbers."""
    return math.nan if value is None else float(value)


def _name(rule: Rule) -> str:
    """Return the name of a rule, also inside a partial."""
    inner = rule.func if isinstance(rule, partial) else rule
    return repr(getattr(inner, "__name__", type(inner).__name__))
