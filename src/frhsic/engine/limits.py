"""Limits in the unit of a number that people read: what is measured, on which rows, and what was reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from scipy.optimize import brentq
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, split_labels
from frhsic.dependence import GDP, HSIC, Dependence, ScoreGap
from frhsic.engine.budget import FEASIBLE, MET
from frhsic.engine.rows import Rows
from frhsic.numerics._cells import Cells
from frhsic.penalty import MIN_ROWS, Penalty, PenaltySum

# Rows whose 2 n^(1/3) ranges are ten: the most that laws of scores are compared in along a column of S.
_UNITS: Final = 125.0
_ROWS: Final = 20_000  # the most that are measured after an epoch
_PAIRS: Final = 4_096  # and for a measure of all pairs
_ORDERS: Final = 4  # random orders of S in which the value under independence is taken


class Key(NamedTuple):
    """What is limited: a measure of the audit, and a cut-off for "gap_at"."""

    measure: str
    cutoff: float | None = None

    def __str__(self) -> str:
        return self.measure if self.cutoff is None else f"{self.measure} {self.cutoff:g}"


Score: TypeAlias = Callable[[Tensor], Tensor]
Scores: TypeAlias = Callable[[Tensor], Tensor]  # of rows of x, (..., n, k) in the unit that people read
_WORDS: Final = {
    "gap": "Gap of the score",
    "gdp": "Mean gap of the score (GDP)",
    "gap_worst": "Gap of decisions at the worst cut-off",
    "normalized_hsic": "Normalised HSIC",
    "gap_at": "Gap of decisions at {}",
}
_SHARES: Final = ("gap_worst", "normalized_hsic", "gap_at")  # from 0 to 1, whatever the unit of the score
MEASURES: Final = ("gap", "gdp", "gap_worst", "normalized_hsic", "gap_at")


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


def make_measure(key: Key, *, weighted: bool) -> Dependence:
    """Return the measure as the audit has it."""
    if key.measure == "normalized_hsic":  # no weighted unbiased estimator is derived
        return HSIC(estimator="biased" if weighted else "unbiased", normalized=True)
    if key.measure == "gdp":
        return GDP()
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


@dataclass(frozen=True, eq=False)
class _Part:
    """Some rows and some columns of S, with the measure calibrated to them, and random orders."""

    rows: Tensor | None
    s: Sensitive
    weights: Tensor | None
    measure: Dependence
    orders: list[Tensor] = field(default_factory=list)

    def value(self, score: Tensor, chance: float | None = None) -> tuple[float, float]:
        """Return the dependence of one column of scores ``(n,)``, less what chance adds, and what that is.

        ``chance`` is that of scores much like these, where it is known.
        """
        z = (score if self.rows is None else score[self.rows])[:, None]
        value = float(self.measure(z, self.s, self.weights))
        if not self.orders:
            return value, 0.0
        if chance is None:
            w = self.weights
            drawn = [float(self.measure(z, self.s[o], None if w is None else w[o])) for o in self.orders]
            chance = sum(drawn) / len(drawn)
        return value - chance if isinstance(self.measure, HSIC) else without_chance(value, chance), chance


def without_chance(value: float, chance: float) -> float:
    """Return the size |d| of differences of which value = E|d + e| is seen; chance = E|e|, e normal.

    Exact where all |d| are equal, and otherwise at least their mean, since E|d + e| is convex in d. It is
    near the value where that is far above chance; value - chance would be half of |d| at 1.5 standard errors.
    """
    if not value > chance:
        return 0.0
    if value > 8.0 * chance:
        return value
    half = math.sqrt(math.pi / 2.0)

    def excess(x: float) -> float:
        return math.exp(-0.5 * x**2) + half * x * math.erf(x / math.sqrt(2.0)) - value / chance

    return half * chance * float(brentq(excess, 0.0, 8.0))


@dataclass(frozen=True)
class Reached:
    """What a model has of something that was limited.

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
        What independent rows of this number would show; it is taken off the values above.
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
        """The value that steered: that on the steering rows, or else on those trained on."""
        value = self.trained if self.steering is None else self.steering
        assert value is not None  # noqa: S101 - one of them is there
        return value

    @property
    def missed(self) -> bool:
        """Whether the value that steered is more than 5 % above the limit."""
        return self.exceeds(self.limit)

    def exceeds(self, limit: float) -> bool:
        """Return whether the value that steered is more than 5 % above a limit."""
        return self.judged > FEASIBLE * limit

    @property
    def measured(self) -> str:
        """The name of the value: "gap_in_ranges" is in at most ten ranges of S, less what chance adds.

        An audit has "gap": value by value, with what chance adds.
        """
        measure, _, cutoff = self.name.partition(" ")
        name = measure if measure == "normalized_hsic" else f"{measure}_in_ranges"
        return f"{name} {cutoff}" if cutoff else name

    def describe_steering(self) -> str:
        """Return the value that steered in words: "gap_in_ranges 0.03 on 1,200 steering rows"."""
        n = self.n_trained if self.steering is None else self.n_steering
        rows = "training rows, which steered" if self.steering is None else "steering rows"
        colon = ":" if " " in self.measured else ""  # behind a cut-off
        return f"{self.measured}{colon} {self.judged:.3g} on {n:,} {rows}"

    def __str__(self) -> str:
        where = self.describe_steering().removeprefix(self.measured).lstrip(": ")
        if self.steering is not None and self.trained is not None:
            where += f", {self.trained:.3g} on {self.n_trained:,} training rows"
        name, _, cutoff = self.name.partition(" ")
        few = ""
        if self.chance > self.limit / 2.0:
            few = f" By chance alone so few rows show {self.chance:.3g}, which is taken off."
        return f"{_WORDS[name].format(cutoff)} ({self.measured}): {where}; limit {self.limit:g}.{few}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(vars(self))


def _count(key: Key, rows: Rows) -> int:
    """Return on how many of these rows something is measured."""
    return min(len(rows), _PAIRS if key.measure == "normalized_hsic" else _ROWS)


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


def scores_of(net: nn.Module, score: Score) -> Scores:
    """Return the scores of rows as a net has them, computed in pieces."""

    @torch.no_grad()
    def evaluate(x: Tensor) -> Tensor:
        net.eval()
        return score(torch.cat([net(part)[1] for part in x.split(65_536)], dim=-2).double().cpu())

    return evaluate


class Meter:
    """Measures all that is limited, always on the same rows, in the same cells of S."""

    def __init__(self, limits: Limits, rows: Rows) -> None:
        generator = torch.Generator().manual_seed(0)
        chosen = torch.randperm(len(rows), generator=generator)[:_ROWS].to(rows.x.device)
        self.limits, self.rows = limits, rows[chosen]
        self._parts = {key: self._make_parts(key, generator) for key in limits.keys}
        self._chances: list[float] = []  # of the last measurement

    def _make_parts(self, key: Key, generator: torch.Generator) -> list[_Part]:
        rows, labels = self.rows, self.limits.labels
        assert rows.s is not None  # noqa: S101
        parts = []
        groups: list[Tensor | None] = [None]
        if labels is not None and rows.labels is not None:
            there = {one.value: one.rows for one in split_labels(rows.labels).kept}
            groups = [there[label] for label in labels if label in there]
        for column in self.limits.columns:
            for group in groups:
                index = group
                if key.measure == "normalized_hsic":
                    index = (torch.arange(len(rows)) if group is None else group)[:_PAIRS]
                s = rows.s.columns((column,))
                s = (s if index is None else s[index]).to(torch.empty(0, dtype=torch.float64))
                if bool((s.values == s.values[:1]).all()) or (group is not None and len(s) < MIN_ROWS):
                    continue
                w = rows.weights if index is None or rows.weights is None else rows.weights[index]
                w = None if w is None else w.double()
                part = _Part(index, s, w, make_measure(key, weighted=w is not None))
                if not part.measure.debiased:
                    orders = [torch.randperm(len(s), generator=generator) for _ in range(_ORDERS)]
                    part = replace(part, orders=orders)
                if isinstance(part.measure, GDP | ScoreGap):
                    share = None if part.weights is None else part.weights / part.weights.sum()
                    part = replace(part, measure=part.measure._with(_cells=Cells.of(s, share, _UNITS)))
                parts.append(part)
        if not parts:
            must = "vary among the rows on which a limit is measured (the steering rows, of each label of y)"
            fix = "Pass more rows, or Training(limit_fraction=0) to measure on the training rows."
            raise ArgumentError("sensitive_features", must, "a single value, or too few rows", fix)
        return parts

    def measure(self, evaluate: Scores, *, fresh: bool = True) -> Tensor:
        """Return the largest value of each key, for each model of a stack: shape ``(models, keys)``.

        Most of the time goes into what chance adds; without ``fresh`` that of the last measurement is taken.
        """
        return self._measure(evaluate, fresh=fresh)[0]

    def _measure(self, evaluate: Scores, *, fresh: bool = True) -> tuple[Tensor, Tensor]:
        """Return the largest values, and the largest that chance adds."""
        scores = evaluate(self.rows.x)
        scores = scores.reshape(-1, *scores.shape[-2:])
        known = iter([] if fresh else self._chances)
        found = [
            [
                [part.value(z, next(known, None)) for part in self._parts[key] for z in one.mT]
                for key in self.limits.keys
            ]
            for one in scores
        ]
        self._chances = [chance for row in found for pairs in row for _, chance in pairs]
        values, chances = (
            [[max((pair[k] for pair in pairs), default=0.0) for pairs in row] for row in found]
            for k in (0, 1)
        )
        return torch.tensor(values, dtype=torch.float64), torch.tensor(chances, dtype=torch.float64)

    def report(self, evaluate: Scores, trained: Rows) -> list[tuple[Reached, ...]]:
        """Return what each model of a stack has of each thing that it is limited in."""
        limits, steering = self.limits, self.limits.watched
        judged, chance = self._measure(evaluate)
        inside = judged if steering is None else Meter(limits, trained).measure(evaluate)
        return [
            tuple(
                Reached(
                    str(key),
                    most[key],
                    float(inside[k, j]),
                    _count(key, trained),
                    None if steering is None else float(judged[k, j]),
                    0 if steering is None else _count(key, steering),
                    float(chance[k, j]),
                )
                for j, key in enumerate(limits.keys)
                if key in most
            )
            for k, most in enumerate(limits.most)
        ]
