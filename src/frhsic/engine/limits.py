"""Limits in the unit of a number that people read: what is measured, on which rows, and what was reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, NamedTuple, TypeAlias

from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.dependence import GDP, HSIC, Dependence, RankGap, ScoreGap
from frhsic.engine.budget import FEASIBLE, MET
from frhsic.engine.rows import Rows
from frhsic.penalty import Penalty, PenaltySum


class Key(NamedTuple):
    """What is limited: a measure of the audit, and a cut-off for "gap_at"."""

    measure: str
    cutoff: float | None = None

    def __str__(self) -> str:
        return self.measure if self.cutoff is None else f"{self.measure} {self.cutoff:g}"


Score: TypeAlias = Callable[[Tensor], Tensor]
_WORDS: Final = {
    "gap": "Gap of the score",
    "rank_gap": "Rank gap of the score",
    "gdp": "Mean gap of the score (GDP)",
    "gap_worst": "Gap of decisions at the worst cut-off",
    "normalized_hsic": "Normalised HSIC",
    "gap_at": "Gap of decisions at {}",
}
# From 0 to 1, whatever the unit of the score.
_SHARES: Final = ("rank_gap", "gap_worst", "normalized_hsic", "gap_at")
MEASURES: Final = ("gap", "rank_gap", "gdp", "gap_worst", "normalized_hsic", "gap_at")


def read_limit(limit: Any, *, probability: bool = False) -> dict[Key, float]:
    """Return what is limited and by how much; of probabilities every gap is below 1."""
    fix = "Write limit={'gap': 0.02} or {'gap_at': {0.5: 0.03}}."
    if not isinstance(limit, Mapping) or not limit:
        raise ArgumentError("limit", "be a dict that names a measure", repr(limit), fix)
    found: dict[Key, float] = {}
    for name, most in limit.items():
        if name not in MEASURES:
            raise ArgumentError("limit", f"name one of {', '.join(MEASURES)}", repr(name), fix)
        if (name == "gap_at") != isinstance(most, Mapping):
            raise ArgumentError("limit", "have cut-offs for 'gap_at' and for nothing else", repr(most), fix)
        pairs = most.items() if isinstance(most, Mapping) else [(None, most)]
        found |= {Key(name, cutoff): value for cutoff, value in pairs}
    for key, value in found.items():
        pair: tuple[Any, ...] = (value, 0.0 if key.cutoff is None else key.cutoff)
        if not all(isinstance(one, Real) and math.isfinite(one) for one in pair) or not value > 0:
            raise ArgumentError("limit", "hold positive numbers", repr(limit), fix)
        if value >= 1.0 and (probability or key.measure in _SHARES):
            why = "which is a share" if key.measure in _SHARES else "of a probability"
            fix = f"{value:g} percentage points are {value / 100.0:g}."
            raise ArgumentError("limit", f"be below 1 for '{key.measure}', {why}", f"{value:g}", fix)
    return {Key(*key): float(value) for key, value in found.items()}


def write_limit(limit: Mapping[Key, float]) -> str:
    """Return "gap 0.02, gap_at 0.5: 0.03"."""
    return ", ".join(f"{key}{'' if key.cutoff is None else ':'} {most:g}" for key, most in limit.items())


def make_measure(key: Key, *, weighted: bool = False) -> Dependence:
    """Return the measure as the audit has it."""
    if key.measure == "normalized_hsic":  # no weighted unbiased estimator is derived
        return HSIC(estimator="biased" if weighted else "unbiased", normalized=True)
    if key.measure == "gdp":
        return GDP()
    if key.measure == "rank_gap":
        return RankGap()
    return ScoreGap(cutoff="worst" if key.measure == "gap_worst" else key.cutoff)


@dataclass(frozen=True, eq=False)
class Limits:
    """What each model of a stack may have at most, in the unit of the score.

    Attributes
    ----------
    most : sequence of mapping
        A number for each key, of each net; an empty one leaves a net unconstrained.
    score : callable
        Makes scores ``(..., n, k)`` of what the head returns: probabilities, or predictions in the unit of y.
    columns : sequence of str
        Columns of S; the largest value among them counts, as among labels and columns of the score.
    labels : sequence of float, optional
        Codes of y within which it is measured; None is all rows together.
    watched : Rows, optional
        The steering rows, on which it is measured; None measures on those trained on.
    """

    most: Sequence[Mapping[Key, float]]
    score: Score
    columns: Sequence[str]
    labels: Sequence[float] | None = None
    watched: Rows | None = None

    @property
    def keys(self) -> list[Key]:
        """All that is limited for some net."""
        return list(dict.fromkeys(key for net in self.most for key in net))

    @property
    def constrained(self) -> list[bool]:
        """Whether each net has a limit."""
        return [bool(net) for net in self.most]

    def divide(self, values: Tensor) -> Tensor:
        """Return the largest value over its limit of each net; 0 for one without a limit."""
        most = [[net.get(key, math.inf) for key in self.keys] for net in self.most]
        return (values / values.new_tensor(most)).amax(dim=1)


@dataclass(frozen=True)
class Reached:
    """What a model has of something that was limited: the number that an audit of the same rows shows.

    Attributes
    ----------
    name : str
        As it was asked for, with the cut-off of a "gap_at".
    limit : float
    trained : float or None
        On the rows trained on; None for a repair, which is measured by folds and trains on none.
    n_trained : int
    steering : float or None
        On the steering rows: those not trained on, by which training kept the limit; None where there were
        too few rows for that, and the training rows steered.
    n_steering : int
    chance : float
        What so many rows show by chance alone. It is taken off the values above.
    """

    name: str
    limit: float
    trained: float | None
    n_trained: int
    steering: float | None = None
    n_steering: int = 0
    chance: float = 0.0

    @property
    def judged(self) -> float:
        """The value by which a limit is missed or not: on the steering rows, or else on those trained on."""
        value = self.trained if self.steering is None else self.steering
        assert value is not None  # noqa: S101 - one of them is there
        return value

    @property
    def missed(self) -> bool:
        """Whether the value on the rows that steered is more than 5 % above the limit."""
        return self.exceeds(self.limit)

    def exceeds(self, limit: float) -> bool:
        """Return whether the value on the rows that steered is more than 5 % above a limit."""
        return self.judged > FEASIBLE * limit

    def describe_judged(self) -> str:
        """Return the value on the rows that steered in words: "gap 0.03 on 1,200 steering rows"."""
        colon = ":" if " " in self.name else ""  # behind a cut-off
        return f"{self.name}{colon} {self._describe_rows()}"

    def _describe_rows(self) -> str:
        n = self.n_trained if self.steering is None else self.n_steering
        rows = "training rows, which steered" if self.steering is None else "steering rows"
        return f"{self.judged:.3g} on {n:,} {rows}"

    def __str__(self) -> str:
        where = self._describe_rows()
        if self.steering is not None and self.trained is not None:
            where += f", {self.trained:.3g} on {self.n_trained:,} training rows"
        name, _, cutoff = self.name.partition(" ")
        few = ""
        if self.chance > self.limit / 2.0:
            few = f" By chance alone so few rows show {self.chance:.3g}, which is taken off."
        return f"{_WORDS[name].format(cutoff)}: {where}; limit {self.limit:g}.{few}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(vars(self))


def describe_missed(reached: Sequence[Reached], kept: float, constant: float, fix: str) -> list[str]:
    """Return what a model has above its limits, or its loss above that of a constant prediction."""
    above = [f"{one} {fix}" for one in reached if one.judged > MET * one.limit]
    if kept > constant:
        found = f"The loss ended at {kept:.3g}, above the {constant:.3g} of a constant prediction"
        why = "the limit leaves nothing to learn from these rows, or the training was too short"
        above.append(f"{found}: {why}. {fix}")
    return above


def find_labels(penalty: Penalty | PenaltySum, labels: Tensor | None) -> list[float] | None:
    """Return the codes of y within which a penalty is taken; None for all rows together."""
    given = [term.given for _, term in penalty.pairs]
    if labels is None or None in given:
        return None
    known = labels.unique().tolist()
    named = {code for one in given for code in (one["y"] if isinstance(one, Mapping) else known)}
    return sorted(map(float, named))
