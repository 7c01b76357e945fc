"""One trained model of a sweep over penalty weights, budgets or limits, as judged on validation rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from frhsic._checks import ArgumentError
from frhsic._text import number
from frhsic.inference import EquivalenceResult, Result, TestResult


@dataclass(frozen=True)
class Point(Result):
    """One trained model of a sweep, as judged on validation rows.

    A selection rule is a function of a sequence of points that returns the index of one of them. Points may
    come in any order: rules sort them by ``penalty_weight``, equal ones in the order given.

    Attributes
    ----------
    penalty_weight : float
        The penalty weight, lambda of the paper's objective, or one over the budget or the smallest limit: the
        larger, the less dependence is expected. 0: the unconstrained model.
    performance : float
        Its score on the task; larger is better.
    dependence : float
        Its dependence on the sensitive attribute.
    upper : float or None
        The upper confidence limit of the dependence, for this model alone.
    test : TestResult or None
        A test whose null hypothesis is independence.
    equivalence : EquivalenceResult or None
        A test whose null hypothesis is a dependence of at least the tolerance.
    lower : float or None
        The lower confidence limit of the dependence. Of several columns the greatest of their limits, each
        at a confidence of 1 - (1 - confidence_level) / columns, so that it is one of the greatest dependence.
    budget : float or None
        The share of the unconstrained model's dependence that it was allowed in training.
    limit : str or None
        What it was limited in, and by how much: "gap 0.02".
    missed : bool or None
        Whether it misses the loosest limit that was asked; None where none was. A limit is missed where the
        value on its steering rows is more than 5 % above, or the lower confidence limit on rows that judge
        it is above. For a model that was not limited in this, its dependence stands for that value.
    model : str or None
        The kind of model, in a sweep over several: "network", "lightgbm", "xgboost", "lightgbm repaired".

    Examples
    --------
    >>> print(Point(10.0, performance=0.81, dependence=0.02, upper=0.03))
    Lam 10: performance 0.81, dependence 0.02, at most 0.03 by its own confidence limit.
    """

    penalty_weight: float
    performance: float
    dependence: float
    upper: float | None = None
    test: TestResult | None = None
    equivalence: EquivalenceResult | None = None
    lower: float | None = None
    budget: float | None = None
    limit: str | None = None
    model: str | None = None
    missed: bool | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.penalty_weight):
            fix = "Rules sort the models by it."
            raise ArgumentError("penalty_weight", "be a finite number", repr(self.penalty_weight), fix)

    @property
    def label(self) -> str:
        """The limit, the budget in percent, the penalty weight, or "unconstrained", of a model if named."""
        return self._own_label if self.model is None else f"{self.model}, {self._own_label}"

    @property
    def _own_label(self) -> str:
        if self.limit is not None:
            return f"limit {self.limit}"
        if self.budget is not None:
            return f"budget {100.0 * self.budget:g} %"
        return "unconstrained" if self.penalty_weight == 0 else f"lam {self.penalty_weight:g}"

    def __str__(self) -> str:
        limit = "" if self.upper is None else f", at most {number(self.upper)} by its own confidence limit"
        return (
            f"{self.label[0].upper()}{self.label[1:]}: performance {number(self.performance)}, "
            f"dependence {number(self.dependence)}{limit}."
        )


def check_points(points: Sequence[Point], *, finite: bool = False) -> None:
    """Raise ArgumentError if the sweep is empty or, with ``finite``, has numbers that are not."""
    if not len(points):
        raise ArgumentError("points", "hold at least one model", "none", "Train one model or more.")
    for index, point in enumerate(points if finite else ()):
        if not (math.isfinite(point.performance) and math.isfinite(point.dependence)):
            got = f"{point.performance!r} and {point.dependence!r} at index {index}"
            must = "have a finite performance and dependence"
            raise ArgumentError("points", must, got, "Leave that model out.")
