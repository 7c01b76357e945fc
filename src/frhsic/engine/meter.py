"""Values of what is limited: one that steers training, fast, and the audit's, which is reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, split_labels
from frhsic.dependence import GDP, HSIC, Dependence, RankGap, ScoreGap
from frhsic.engine.limits import Key, Limits, Reached, Score, make_measure
from frhsic.engine.rows import Rows
from frhsic.numerics._cells import Cells
from frhsic.penalty import MIN_ROWS
from frhsic.table import GapErrors, Labels, ScoreTable

Scores: TypeAlias = Callable[[Tensor], Tensor]  # of rows of x, (..., n, k) in the unit that people read

_ROWS: Final = 20_000  # the most that steer
_PAIRS: Final = 4_096  # the most of a measure of all pairs
_ORDERS: Final = 4  # random orders of S in which the value under independence is taken
# Laws of scores are compared in n^(1/3) ranges of S, which 2 u^(1/3) with u = n / 8 is, and in ten at least.
_LEAST_UNITS, _UNITS_PER_ROW = 125.0, 0.125
# The audit's value is taken once in so many measurements; the one that steers is raised by at most this.
_EVERY, _MOST = 8, 1.5
_ROOT: Final = math.sqrt(2.0 / math.pi)  # E|N(0, 1)|


class _Rows(NamedTuple):
    """The rows of a label of y, or all, with one column of S."""

    which: Tensor | None
    s: Sensitive
    weights: Tensor | None  # of sum one

    def of(self, score: Tensor) -> Tensor:
        """Return the scores of these rows."""
        return score if self.which is None else score[self.which]


@dataclass(frozen=True, eq=False)
class _Part:
    """Some rows with the measure that steers, in fixed cells, and what chance adds to it.

    With errors e of standard deviation sigma of each difference d of a cell, and all |d| equal, the value is
    E|d + e|, which :func:`without_chance` inverts. Under independence sigma follows from the margins: the
    values of all cells add up to a chance of sqrt(2 / pi) sum_i sqrt(p_i (1 - p_i) sum w^2) times the spread
    of the score. Where that is not known (the worst cut-off, HSIC with weights), S is drawn in random order.
    """

    rows: _Rows
    measure: Dependence
    noise: float | None = None  # chance of a score of spread one
    orders: list[Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, key: Key, rows: _Rows, generator: torch.Generator) -> _Part:
        """Return the part of some rows."""
        s, w = rows.s, rows.weights
        measure = make_measure(key, weighted=w is not None)
        noise, orders = None, []
        if not isinstance(measure, HSIC):
            n = len(s) if w is None else 1.0 / float(w.square().sum())
            cells = Cells.of(s, w, max(_LEAST_UNITS, _UNITS_PER_ROW * n))
            measure = measure._with(_cells=cells)
            noise = _ROOT * float((cells.mass * (1.0 - cells.mass)).sqrt().sum()) / math.sqrt(n)
        if key.measure == "gap_worst" or not (measure.debiased or noise is not None):
            noise, orders = None, [torch.randperm(len(s), generator=generator) for _ in range(_ORDERS)]
        return cls(rows, measure, noise, orders)

    def value(self, score: Tensor, chance: float | None = None) -> tuple[float, float]:
        """Return the dependence of one column of scores ``(n,)``, less what chance adds, and what that is.

        ``chance`` is that of scores much like these, where it is known.
        """
        z, (_, s, w) = self.rows.of(score)[:, None], self.rows
        value = float(self.measure(z, s, w))
        if self.noise is not None:
            chance = self.noise * _spread(self.measure, z[:, 0], w)
        elif not self.orders:
            return value, 0.0
        elif chance is None:
            drawn = [float(self.measure(z, s[o], None if w is None else w[o])) for o in self.orders]
            chance = sum(drawn) / len(drawn)
        return value - chance if isinstance(self.measure, HSIC) else without_chance(value, chance), chance


def _spread(measure: Dependence, z: Tensor, w: Tensor | None) -> float:
    """Return the sum over cut-offs of sqrt(F (1 - F)), weighted as a gap is, or the standard deviation."""
    w = torch.full_like(z, 1.0 / len(z)) if w is None else w
    if isinstance(measure, ScoreGap) and isinstance(measure.cutoff, float):
        z = (z > measure.cutoff).to(z)
    if isinstance(measure, GDP):
        return float(torch.sqrt(w @ (z - w @ z).square()))
    values, index = z.unique(return_inverse=True)
    p = w.new_zeros(len(values)).index_add(0, index, w)
    F = p.cumsum(0)[:-1]
    steps = 0.5 * (p[:-1] + p[1:]) if isinstance(measure, RankGap) else values.diff()
    return float((F * (1.0 - F)).clamp_min(0.0).sqrt() @ steps)


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


def find_gap(key: Key, score: Tensor, s: Sensitive, weights: Tensor | None = None) -> tuple[float, float]:
    """Return a gap of scores ``(n,)`` along one column of S as an audit shows it, and its value by chance."""
    cutoff = key.cutoff
    seen = score if cutoff is None else score > cutoff
    if bool((seen == seen[0]).all()):
        return 0.0, 0.0
    column = s.values[:, 0].double().cpu().numpy()
    labels = None
    if s.kinds[0] == "categorical":
        codes = column.astype(np.int64)
        labels = Labels(codes, tuple(f"{code}" for code in range(int(codes.max()) + 1)))
    table = ScoreTable.from_rows(
        score.double().cpu().numpy(),
        column if labels is None else labels,
        sample_weight=None if weights is None else weights.double().cpu().numpy(),
        names=s.names,
        at_scores=() if cutoff is None else (cutoff,),
    )
    errors = GapErrors.of(table)
    if cutoff is not None:
        limits = errors.decision_gap(int((errors.law.z <= cutoff).sum()) - 1)
    else:
        own = {"gap": errors.score_gap, "rank_gap": errors.rank_gap, "gdp": errors.mean_gap}
        limits = own.get(key.measure, errors.worst)()
    ends = limits.ends()
    return ends.estimate, 0.0 if math.isnan(ends.chance) else ends.chance


def scores_of(net: nn.Module, score: Score) -> Scores:
    """Return the scores of rows as a net has them, computed in pieces."""

    @torch.no_grad()
    def evaluate(x: Tensor) -> Tensor:
        net.eval()
        return score(torch.cat([net(part)[1] for part in x.split(65_536)], dim=-2).double().cpu())

    return evaluate


class Meter:
    """Measures all that is limited, always on the same rows.

    What is shown and judged is the value of an audit of these rows (``frhsic.table.GapErrors``). It takes
    50 to 150 ms, too long for every epoch and round. ``measure`` returns another estimate of the same gap, in
    2 to 10 ms: laws are compared in n^(1/3) ranges of S, ten at least, less what chance adds. ``follow``
    returns what steers training: that, raised wherever the audit's, taken once in eight times, is larger. So
    what is shown keeps a limit, and rows on which the audit's is low by chance do not loosen one: it is below
    the gap on average. Of samples of 400 to 20,000 scores of LightGBM on Adult, with gaps .097, .048 and
    .025, the quick value is off by -.006 to .007 on average, the audit's by -.016 to -.001.
    """

    def __init__(self, limits: Limits, rows: Rows) -> None:
        generator = torch.Generator().manual_seed(0)
        chosen = torch.randperm(len(rows), generator=generator)[:_ROWS].to(rows.x.device)
        self.limits, self.rows, self._all = limits, rows[chosen], rows
        self._parts = {
            key: [_Part.of(key, part, generator) for part in _split(limits, self.rows, key)]
            for key in limits.keys
        }
        self._chances: list[float] = []  # of the last measurement
        self._count = torch.tensor(0)  # of what was followed
        self._factors = torch.ones(len(limits.most), len(limits.keys), dtype=torch.float64)

    def state(self) -> dict[str, Tensor]:
        """Return what changes."""
        return {"count": self._count, "factors": self._factors}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state."""
        self._count, self._factors = state["count"], state["factors"]

    def follow(self, evaluate: Scores, *, fresh: bool = True) -> Tensor:
        """Return what steers: the largest values, raised where those of the audit were larger."""
        values = self.measure(evaluate, fresh=fresh)
        self._count = self._count + 1
        if self._count % _EVERY == 0:
            ratio = self.audit(evaluate)[0] / values.clamp_min(1e-300)
            self._factors = torch.where(values > 0, ratio, 1.0).clamp(1.0, _MOST)
        return values * self._factors

    def measure(self, evaluate: Scores, *, fresh: bool = True) -> Tensor:
        """Return the largest value of each key, for each model of a stack: shape ``(models, keys)``.

        Where what chance adds takes random orders, most of the time goes there; without ``fresh`` that of the
        last measurement is taken.
        """
        return self._measure(evaluate, fresh=fresh)[0]

    def _measure(self, evaluate: Scores, *, fresh: bool = True) -> tuple[Tensor, Tensor]:
        """Return the largest values, and the largest that chance adds."""
        known = iter([] if fresh else self._chances)
        found = [
            [
                [part.value(z, next(known, None)) for part in self._parts[key] for z in one.mT]
                for key in self.limits.keys
            ]
            for one in _as_stack(evaluate(self.rows.x))
        ]
        self._chances = [chance for row in found for pairs in row for _, chance in pairs]
        return _largest(found)

    def audit(self, evaluate: Scores) -> tuple[Tensor, Tensor]:
        """Return the largest values as an audit of all rows has them, and the largest that chance adds."""
        limits = self.limits
        if any(key.measure == "normalized_hsic" for key in limits.keys):
            pairs = [x.tolist() for x in self._measure(evaluate)]
        parts = {key: _split(limits, self._all, key) for key in limits.keys}
        found = [
            [
                [(pairs[0][k][j], pairs[1][k][j])]
                if key.measure == "normalized_hsic"
                else [find_gap(key, one.of(z), one.s, one.weights) for one in parts[key] for z in scores.mT]
                for j, key in enumerate(limits.keys)
            ]
            for k, scores in enumerate(_as_stack(evaluate(self._all.x)))
        ]
        return _largest(found)

    def report(self, evaluate: Scores, trained: Rows) -> list[tuple[Reached, ...]]:
        """Return what each model of a stack has of each thing that it is limited in."""
        limits, steering = self.limits, self.limits.watched
        judged, chance = self.audit(evaluate)
        inside = judged if steering is None else Meter(limits, trained).audit(evaluate)[0]
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


def _split(limits: Limits, rows: Rows, key: Key) -> list[_Rows]:
    """Return the rows of each label of y with each column of S in which a limit is measured."""
    assert rows.s is not None  # noqa: S101
    groups: list[Tensor | None] = [None]
    if limits.labels is not None and rows.labels is not None:
        there = {one.value: one.rows for one in split_labels(rows.labels).kept}
        groups = [there[label] for label in limits.labels if label in there]
    parts = []
    for column in limits.columns:
        for group in groups:
            index = group
            if key.measure == "normalized_hsic":
                index = (torch.arange(len(rows)) if group is None else group)[:_PAIRS]
            s = rows.s.columns((column,))
            s = (s if index is None else s[index]).to(torch.empty(0, dtype=torch.float64))
            if bool((s.values == s.values[:1]).all()) or (group is not None and len(s) < MIN_ROWS):
                continue
            w = rows.weights if index is None or rows.weights is None else rows.weights[index]
            parts.append(_Rows(index, s, None if w is None else (w / w.sum()).double().cpu()))
    if not parts:
        must = "vary among the rows on which a limit is measured (the steering rows, of each label of y)"
        fix = "Pass more rows, or Training(limit_fraction=0) to measure on the training rows."
        raise ArgumentError("sensitive_features", must, "a single value, or too few rows", fix)
    return parts


def _count(key: Key, rows: Rows) -> int:
    """Return on how many of these rows a reported value is measured."""
    return min(len(rows), _PAIRS) if key.measure == "normalized_hsic" else len(rows)


def _as_stack(scores: Tensor) -> Tensor:
    return scores.reshape(-1, *scores.shape[-2:])


def _largest(found: Sequence[Sequence[Sequence[tuple[float, float]]]]) -> tuple[Tensor, Tensor]:
    """Return the largest value, and the largest that chance adds, of each model and key."""
    values, chances = (
        [[max((pair[k] for pair in pairs), default=0.0) for pairs in row] for row in found] for k in (0, 1)
    )
    return torch.tensor(values, dtype=torch.float64), torch.tensor(chances, dtype=torch.float64)
