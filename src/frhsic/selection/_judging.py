"""One trained model on validation rows: performance, dependences with their intervals, tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from torch import Tensor

import frhsic.inference as inference
from frhsic._checks import ArgumentError
from frhsic.auditing.probes import MOST_ROWS, find_shares
from frhsic.boosting import FRHSICBoostingClassifier, FRHSICBoostingRegressor
from frhsic.data import Sensitive, to_generator, to_matrix
from frhsic.dependence import GDP, HSIC, Dependence, RankGap, ScoreGap
from frhsic.engine.budget import FEASIBLE
from frhsic.engine.limits import Key, make_measure, read_limit, write_limit
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor
from frhsic.inference import EquivalenceResult, Interval
from frhsic.kernels import Gaussian
from frhsic.selection._held_out import Rows
from frhsic.selection._point import Point
from frhsic.selection._repaired import RepairedScores

Trees: TypeAlias = FRHSICBoostingClassifier | FRHSICBoostingRegressor
Model: TypeAlias = FRHSICClassifier | FRHSICRegressor | FRHSICEncoder | Trees | RepairedScores
On: TypeAlias = Literal["prediction", "representation"]

LEVEL = 0.95
_WHOLE = HSIC(estimator="unbiased", normalized=True)
# An isotropic kernel does not see directions of small variance; a head does.
_WHITENED = HSIC(Gaussian("median", whiten=True), estimator="unbiased", normalized=True)


@dataclass(frozen=True, eq=False)
class Judge:
    """The measures and tests made of each model, with the same draws for all."""

    on: On
    dependence: Dependence | None
    scoring: Any
    test: bool
    tolerance: float | None
    representation: bool
    seed: int
    limited: Key | None = None  # what the models are limited in first, if they are
    loosest: Mapping[Key, float] = field(default_factory=dict)  # the loosest limit asked

    @property
    def measure(self) -> Dependence:
        """The dependence of the points."""
        if self.dependence is not None:
            return self.dependence
        if self.on == "representation":
            return _WHITENED
        return GDP() if self.limited is None else make_measure(self.limited)

    def rehearse(self, held: Rows) -> None:
        """Judge noise on the validation rows: what has no interval or test raises before training."""
        if held.w is not None and self.tolerance is not None:
            must = "be None with weights: no weighted equivalence test is derived"
            raise ArgumentError("tolerance", must, repr(self.tolerance), "Leave one of them out.")
        width = 1 if self.on == "prediction" else 2
        noise = torch.randn((len(held.s), width), generator=to_generator(self.seed), dtype=torch.float64)
        for part in held.parts.values():
            self._interval(noise, part, self.measure, held.w, n_draws=99)
        if self.tolerance is not None:
            self._test_equivalence(noise, held, n_draws=99)

    def __call__(self, model: Model, held: Rows) -> tuple[Point, dict[str, Any]]:
        """Return a model's point, and the other columns of its row in the table."""
        prediction = _prediction(model, held.x)
        z = None
        asked = self.representation or self.on == "representation"
        if asked and not isinstance(model, Trees | RepairedScores):
            z = torch.from_numpy(model.transform(held.x))
        view = prediction if self.on == "prediction" else z
        assert view is not None  # noqa: S101 - an encoder is judged on its representation
        found: dict[str, Any] = {}
        main: list[Interval] = []
        lower: list[float] = []
        limited: dict[Key, list[Interval]] = {key: [] for key in self.loosest}
        # The greatest of q lower limits is above the greatest dependence as soon as one of them fails.
        strict = 1.0 - (1.0 - LEVEL) / len(held.s.names)
        for name, part in held.parts.items():
            suffix = "" if len(held.s.names) == 1 else f"_{name}"
            intervals = {}
            if prediction is not None:
                for title, measure in (("gap", ScoreGap()), ("gdp", GDP()), ("hsic", _WHOLE)):
                    intervals[title] = one = self._interval(prediction, part, measure, held.w)
                    ends = {"": one.estimate, "_low": one.low, "_high": one.high}
                    found |= {f"{title}{suffix}{end}": value for end, value in ends.items()}
            if z is not None and self.representation:
                values = self._judge_representation(z, part, held.w)
                found |= {f"{title}{suffix}": value for title, value in values.items()}
            own = None
            if self.dependence is None and self.on == "prediction":
                own = intervals.get("gdp" if self.limited is None else self.limited.measure)
            main.append(own or self._interval(view, part, self.measure, held.w))
            for key, judged in limited.items():
                assert prediction is not None  # noqa: S101 - an encoder takes no limit
                known = intervals.get(str(key)) if strict == LEVEL else None
                limit = make_measure(key)
                known = known or self._interval(prediction, part, limit, held.w, confidence_level=strict)
                judged.append(known)
            one = main[-1]
            if strict != LEVEL:
                one = self._interval(view, part, self.measure, held.w, confidence_level=strict)
            lower.append(one.low)
        test = None
        if self.test:  # the smallest p-value after Holm's correction
            tests = inference.independence_test(
                view, held.s, each=True, random_state=self.seed, sample_weight=held.w
            )
            least = min(tests, key=lambda test: test.reported)
            test = replace(least, pvalue=least.reported, adjusted=None)
            found["pvalue"] = test.pvalue
        below = None if self.tolerance is None else self._test_equivalence(view, held)
        if below is not None:
            found["equivalence_pvalue"] = below.pvalue
        weights = {} if held.w is None else {"sample_weight": held.w.numpy()}
        point = Point(
            penalty_weight=_strength(model),
            performance=float(check_scoring(model, self.scoring)(model, held.x, held.y, **weights)),
            dependence=max(interval.estimate for interval in main),
            # Covers the greatest dependence: its own column's limit does, and the greatest is no lower.
            upper=max(interval.high for interval in main),
            test=test,
            equivalence=below,
            lower=max(lower),
            budget=None if model.budget is None else float(model.budget),
            limit=None if model.limit is None else write_limit(read_limit(model.limit)),
            missed=self._misses(model, limited) if self.loosest else None,
        )
        return point, found

    def _misses(self, model: Model, limited: Mapping[Key, list[Interval]]) -> bool:
        """Return whether a model misses the loosest limit, by what steered it and by these rows."""
        steered = {one.name: one.judged for one in model.reached_}
        for key, most in self.loosest.items():
            judged = steered.get(str(key), max(one.estimate for one in limited[key]))
            low = max(one.low for one in limited[key])
            if judged > FEASIBLE * most or (low > most and not _is_given_labels(model)):
                return True
        return False

    def _interval(
        self,
        z: Tensor,
        s: Sensitive,
        measure: Dependence,
        w: Tensor | None,
        *,
        n_draws: int = 999,
        confidence_level: float = LEVEL,
    ) -> Interval:
        """Return the confidence interval; of a constant, which depends on nothing, zero."""
        if _is_constant(z):
            name = type(measure).__name__
            return Interval(0.0, 0.0, 0.0, confidence_level, name, "these rows", "constant", s.names, len(z))
        if isinstance(measure, ScoreGap | RankGap) and z.shape[1] > 1:
            return self._greatest(z, s, measure, w, n_draws, confidence_level)
        return inference.confidence_interval(
            z,
            s,
            dependence=measure,
            confidence_level=confidence_level,
            n_draws=n_draws,
            random_state=self.seed,
            chance=False,
            sample_weight=w,
        )

    def _greatest(
        self, z: Tensor, s: Sensitive, measure: Dependence, w: Tensor | None, n_draws: int, level: float
    ) -> Interval:
        """Return the interval of the greatest gap among the scores of several classes."""
        columns = z.split(1, dim=1)
        options: Any = {"n_draws": n_draws}
        own = [self._interval(one, s, measure, w, **options, confidence_level=level) for one in columns]
        strict = 1.0 - (1.0 - level) / len(columns)  # all lower limits hold at once
        low = max(
            self._interval(one, s, measure, w, **options, confidence_level=strict).low for one in columns
        )
        worst = max(own, key=lambda one: one.estimate)
        return replace(worst, low=min(low, worst.estimate), high=max(one.high for one in own))

    def _judge_representation(self, z: Tensor, s: Sensitive, w: Tensor | None) -> dict[str, float]:
        """Return the dependence of whitened z on s, and how well s is predicted from z."""
        if _is_constant(z):
            return {"hsic_z": 0.0, "r2_ridge": 0.0, "r2_boosted": 0.0}
        rows = torch.randperm(len(z), generator=to_generator(self.seed))[:MOST_ROWS]
        if len(rows) < z.shape[1] + 2:  # whitened, so few are equally far apart
            hsic = float("nan")
        elif w is None:  # the same estimate as the interval's, in a quarter of its time
            hsic = float(_WHITENED(z[rows], s[rows]))
        else:
            hsic = self._interval(z[rows], s[rows], _WHITENED, w[rows]).estimate
        own = None if w is None else w[rows]
        _, shares = find_shares(z[rows], s[rows], own, self.seed, learners=("linear", "boosted"))
        return {"hsic_z": hsic, "r2_ridge": shares["linear"][0], "r2_boosted": shares["boosted"][0]}

    def _test_equivalence(self, view: Tensor, held: Rows, *, n_draws: int = 9_999) -> EquivalenceResult:
        """Return the test of the column that is least shown to be below the tolerance: all must be."""
        assert self.tolerance is not None  # noqa: S101
        tests = [
            inference.equivalence_test(
                view,
                part,
                tolerance=self.tolerance,
                dependence=self.measure,
                alpha=1.0 - LEVEL,
                n_draws=n_draws,
                random_state=self.seed,
            )
            for part in held.parts.values()
        ]
        return max(tests, key=lambda test: test.pvalue)


def _prediction(model: Model, x: Any) -> Tensor | None:
    """Return probabilities (of the second of two classes), or numbers; an encoder predicts nothing."""
    if isinstance(model, FRHSICEncoder):
        return None
    if not is_classifier(model):
        return to_matrix(model.predict(x))
    probabilities = to_matrix(model.predict_proba(x))
    return probabilities[:, 1:] if probabilities.shape[1] == 2 else probabilities


def name_model(model: Model) -> str:
    """Return the kind of a model: "network", or the library of the trees; "repaired" where its scores are."""
    if isinstance(model, RepairedScores):
        return f"{name_model(model.model)} repaired"
    return str(model.backend) if isinstance(model, Trees) else "network"


def _strength(model: Model) -> float:
    """Return the penalty weight, or one over the budget or the smallest limit."""
    if model.limit is not None:
        return 1.0 / min(read_limit(model.limit).values())
    return float(model.lam or 0.0) if model.budget is None else 1.0 / model.budget


def _is_given_labels(model: Model) -> bool:
    """Return whether a limit is one within labels of y, of which the dependence of all rows says nothing."""
    penalty = getattr(model, "penalty_", None)
    return penalty is not None and all(term.given is not None for _, term in penalty.pairs)


def _is_constant(z: Tensor) -> bool:
    return bool((z == z[:1]).all())
