"""Sharp estimates and confidence limits of gaps, from one table and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

from frhsic.table._axis import Floats, Integers
from frhsic.table._errors import (
    WIDTHS,
    Folded,
    FoldedEach,
    Noise,
    Witness,
    choose_blindly,
    invert_folded_mean,
    part_beyond_chance,
)
from frhsic.table._measures import coarse_cells, decision_gaps, mean_gap, rank_gap, score_gap
from frhsic.table._persons import BLOCKS, Persons
from frhsic.table._quantiles import (
    largest_gap,
    largest_quantile,
    lower_share,
    squared_correlations,
    upper_share,
)
from frhsic.table._rows import Rows, Steps, Values, merge_levels, variances
from frhsic.table._table import Law, ScoreTable

# Errors are taken of so many levels of the score.
LEVELS = 128
# With fewer rows of the rarer decision normal limits miss too often: exact binomial ones.
FEW = 30.0
# With fewer persons than these the worst cut-off is not chosen by deviations.
FEW_PERSONS = 100.0
_ROOT = math.sqrt(2.0 / math.pi)
_NORMAL = "signs learned from earlier rows and valued on later ones; normal errors of the plug-in"
_EXACT = "exact binomial limits"
_FEW_ROWS = "Fewer than 30 rows of the rarer decision: the interval is exact, and too wide to tell much."
_FEW_GROUPS = "Fewer than 30 groups with the rarer decision: the interval is binomial, too wide to tell much."


class Ends(NamedTuple):
    """A gap and its two-sided confidence interval."""

    estimate: float  # nearly without what chance adds; a lower bound on average
    low: float
    high: float
    plug_in: float  # the gap of the rows themselves
    chance: float  # its mean under independence
    chance_high: float  # which plug-ins under independence do not exceed, with this confidence
    method: str
    notes: tuple[str, ...] = ()


class GapLimits(NamedTuple):
    """Limits of a gap as functions of the chance that each fails."""

    plug_in: float
    estimate: float
    lower: Callable[[float], float]
    upper: Callable[[float], float]
    chance: float
    chance_above: Callable[[float], float]  # what the plug-in exceeds under independence so seldom
    method: str = _NORMAL
    notes: tuple[str, ...] = ()

    def ends(self, confidence: float = 0.95) -> Ends:
        """Return the interval each end of which fails with half of 1 - confidence."""
        tail = 0.5 * (1.0 - confidence)
        low, high = self.lower(tail), self.upper(tail)
        estimate = min(max(min(self.estimate, self.plug_in), low), high)
        most = self.chance_above(1.0 - confidence)
        return Ends(estimate, low, high, self.plug_in, self.chance, most, self.method, self.notes)

    def times(self, factor: float) -> GapLimits:
        """Return the limits of a multiple."""
        return self._replace(
            plug_in=factor * self.plug_in,
            estimate=factor * self.estimate,
            lower=lambda tail: factor * self.lower(tail),
            upper=lambda tail: factor * self.upper(tail),
            chance=factor * self.chance,
            chance_above=lambda tail: factor * self.chance_above(tail),
        )

    def pvalue(self, limit: float) -> float:
        """Return the smallest tail at which the upper limit is below a limit: that the gap keeps it."""
        low, high = 1e-6, 1.0 - 1e-6
        if self.upper(high) >= limit:
            return 1.0
        if self.upper(low) < limit:
            return low
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.upper(middle) < limit else (middle, high)
        return high


class Band(NamedTuple):
    """The gap of decisions at many cut-offs, and a band that holds at all of them together."""

    levels: Integers  # (r,), the last level that is not above
    rates: Floats  # (r,), the share above
    estimate: Floats
    low: Floats
    high: Floats
    plug_in: Floats
    chance: Floats


class GapErrors:
    """The limits of all gaps of one law: its rows are split, and its noise drawn, once.

    Gaps are those of the cells of ``coarse_cells``; finer cells have a larger gap. With C_ir the covariance
    of 1{cell i} and 1{score up to cut-off r}, each gap is a sum of w_r |C_ir|.

    *Lower limit.* For any signs g the sum of w_r g_ir C_ir is at most the gap. V is its mean over all random
    orders of the rows, of signs that are learned from the rows so far and valued on the next one, in closed
    form (:class:`frhsic.table._errors.Witness`). V - z sd is the limit, and max(V, 0) the estimate.

    *Upper limit.* With normal errors of deviation sigma_ir, E|C^_ir| = sigma_ir h(|C_ir| / sigma_ir) with
    h(k) = E|k + N(0, 1)|, which is convex. So the mean of the plug-in is at least A h(gap / A) with
    A = sum w_r sigma_ir, and the limit is A h^-1((plug-in n / (n - 1) + z sd) / A). sd is that of the plug-in
    where C / sigma has the mean square that a gap of the limit's size has if it is the same everywhere. A
    plug-in below A h(0), its mean without a gap, counts as that: less is luck, or rows that were made alike,
    as those of a repair are by rows of other folds, and luck must not show a limit that n cannot.

    Parameters
    ----------
    law : Law
    seed : int
        Of the noise. :meth:`of` takes that of the law: one table gives one answer, whatever its names.
    cutoffs : array of int, optional
        The levels in order behind each of which there is an asked cut-off. None takes up to 127.
    persons : Persons, optional
        Which rows of the law are of one person. Rows are independent without. With them variances are those
        of sums over blocks of whole persons, n counts persons, and quantiles are Student's.
    blocks : int
        So many blocks of persons at most.
    """

    def __init__(
        self,
        law: Law,
        seed: int,
        levels: int = LEVELS,
        cutoffs: Integers | None = None,
        persons: Persons | None = None,
        blocks: int = BLOCKS,
    ) -> None:
        code = coarse_cells(law, None if persons is None else 1.0 / persons.unit_square)
        self.law = law.merge(code)
        self.persons = None if persons is None else persons.merge(code)
        self.seed, self._most_blocks = seed, blocks
        if cutoffs is None:
            self.firsts = merge_levels(self.law.shares, self.law.z, levels)
        else:
            self.firsts = np.append(0, cutoffs + 1)
        self.rows = self._rows(self.firsts)
        self.n = 1.0 / (float(self.law.squares.sum()) if persons is None else persons.unit_square)
        # Labels have no neighbours.
        self.widths = WIDTHS if any(law.numbers) else WIDTHS[:1]

    @classmethod
    def of(
        cls,
        table: ScoreTable,
        label: int | None = None,
        cutoffs: Integers | None = None,
        persons: Persons | None = None,
    ) -> GapErrors:
        """Return the limits of a table, or of one label of its outcome: the same for the same table."""
        law = table.law(label)
        return cls(law, law.seed, cutoffs=cutoffs, persons=persons)

    def _rows(self, firsts: Integers) -> Rows:
        if self.persons is None:
            return Rows.of(self.law, firsts)
        blocks = self.persons.blocks(firsts, len(self.law.p), self.seed, self._most_blocks)
        return Rows.of(self.law, firsts, blocks)

    def quantile(self, tail: float) -> float:
        """Return the standard error's multiple that an estimate exceeds so seldom: Student's with blocks."""
        blocks = self.rows.blocks
        return -float(ndtri(tail) if blocks is None else stdtrit(blocks.degrees, tail))

    def score_gap(self) -> GapLimits:
        """Return the limits of the integral of D: w_r is the distance of neighbouring levels.

        It is at least the mean gap, and so is its estimate.
        """
        if self._two_levels:
            return self._only_cutoff.times(float(np.diff(self.law.z)[0]))
        found = self._limits(score_gap(self.law), np.diff(self.rows.z))
        return found._replace(estimate=max(found.estimate, self.mean_gap().estimate))

    def rank_gap(self) -> GapLimits:
        """Return the limits of the gap of mid-ranks: w_r = (q_r + q_r+1) / 2, of the margin q of the score.

        The error of the weights counts: a row of level l adds half the sum of D at both cut-offs beside it.
        """
        if self._two_levels:
            return self._only_cutoff.times(0.5)
        q = self.rows.shares.sum(axis=0)
        r = np.arange(len(q) - 1)
        own = np.zeros((len(r), len(q)))
        own[r, r] = own[r, r + 1] = 0.5
        found = self._limits(rank_gap(self.law), 0.5 * (q[:-1] + q[1:]), own)
        return _at_most(found, 1.0 / 3.0)

    def mean_gap(self) -> GapLimits:
        """Return the limits of E_S |E[f | S] - E[f]|: signs are of cells alone."""
        return self._mean_gap

    @cached_property
    def _mean_gap(self) -> GapLimits:
        if self._two_levels:
            return self._only_cutoff.times(float(np.diff(self.law.z)[0]))
        rows = self._rows(np.arange(len(self.law.z)))._replace(z=self.law.z)
        return self._of(mean_gap(self.law), rows, Values(self.law.z), np.ones(1))

    def decision_gap(self, cutoff: int) -> GapLimits:
        """Return the limits of D between levels ``cutoff`` and ``cutoff + 1``."""
        firsts = np.array([0, cutoff + 1])
        rows = self._rows(firsts)
        plug_in = float(decision_gaps(self.law)[cutoff])
        few = float(self._sides[0][cutoff]), float(self._sides[1][cutoff])
        if min(few) < FEW:
            return self._exact(plug_in, rows, few, np.add.reduceat(self.law.rows, firsts, axis=1))
        return _at_most(self._of(plug_in, rows, Steps(), np.ones(1)), 0.5)

    def worst(self) -> GapLimits:
        """Return the limits of the largest D.

        The cut-off at which signs are valued is learned with them, and an upper limit at every cut-off holds
        at the one at which the gap is largest.
        """
        each, plug_in = self._each, float(decision_gaps(self.law).max())
        allowed = self._many
        draws = np.abs(self._noise.draws).sum(axis=1)
        draws = draws[:, allowed if allowed.any() else ...].max(axis=1) * self._chance_ratio

        def chance_above(tail: float) -> float:
            return float(np.quantile(draws, 1.0 - tail))

        chance = float(draws.mean())
        if not allowed.any():
            few = self._upper_of_few
            note = self._few_note
            return GapLimits(plug_in, 0.0, lambda _: 0.0, few, chance, chance_above, _EXACT, (note,))
        F = np.cumsum(self.rows.shares.sum(axis=0))[:-1][allowed]
        values, deviations = (x[allowed] for x in self._value_each)
        agreement = self._witness.agreement(self.rank_weights)[np.ix_(allowed, allowed)]
        spread = deviations[:, None] * np.sqrt(squared_correlations(F)) * agreement * deviations
        value, deviation = (float(x[0]) for x in choose_blindly(values[None], spread[None]))
        part = part_beyond_chance(value, deviation)

        def lower(tail: float) -> float:
            limit = value - self.quantile(tail) * deviation
            if self.n < FEW_PERSONS and self.persons is not None:
                # Deviations of few persons vary too much for a choice by them: a limit at all cut-offs.
                limit = min(limit, float((values - self._largest(F, tail) * deviations).max()))
            return max(limit, 0.0)

        missed = max(0.0, plug_in - float(each.plug_in.max()))

        def upper(tail: float) -> float:
            return min(
                0.5,
                max(
                    float(self._upper_each(self.quantile(tail))[allowed].max()) + missed,
                    self._upper_of_few(tail),
                ),
            )

        return GapLimits(
            plug_in=plug_in,
            estimate=max((1.0 - part) * value + part * float(values.max()), 0.0),
            lower=lower,
            upper=upper,
            chance=chance,
            chance_above=chance_above,
        )

    def at_all_cutoffs(self, confidence: float = 0.95) -> Band:
        """Return D at up to 127 cut-offs with a band: both limits hold at all of them together.

        The quantile is that of the largest of normal errors at the cut-offs with the squares of the
        correlations that shares below two cut-offs have.
        """
        tail = 0.5 * (1.0 - confidence)
        allowed, each = self._many, self._each
        F = np.cumsum(self.rows.shares.sum(axis=0))[:-1]
        q = self._largest(F[allowed], 0.9 * tail) if allowed.any() else 0.0
        value, deviation = self._value_each
        few = self._upper_of_few(0.05 * tail)
        low = np.where(allowed, np.maximum(value - q * deviation, 0.0), 0.0)
        high = np.where(allowed, np.minimum(self._upper_each(q), 0.5), few)
        last = np.concatenate((self.firsts[1:], [len(self.law.z)])) - 1
        chance = _ROOT * np.sqrt(variances(self.rows.independent, Steps())).sum(axis=0)
        return Band(last[:-1], 1.0 - F, np.clip(value, low, high), low, high, each.plug_in, chance)

    def _largest(self, F: Floats, tail: float) -> float:
        """Return a quantile of the largest error at some cut-offs, over its deviation."""
        q = largest_quantile(F, tail)
        return q if self.rows.blocks is None else self.quantile(float(ndtr(-q)))

    @cached_property
    def _witness(self) -> Witness:
        return Witness(self._noise, self.n, self.widths)

    @cached_property
    def _value_each(self) -> tuple[Floats, Floats]:
        return self._witness.value_each()

    @cached_property
    def _noise(self) -> Noise:
        return Noise(self.rows, Steps(), self._generator)

    @property
    def _generator(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, 1])

    @cached_property
    def _each(self) -> FoldedEach:
        return FoldedEach(self._noise)

    @property
    def rank_weights(self) -> Floats:
        """The weights of the rank gap of merged levels."""
        q = self.rows.shares.sum(axis=0)
        return np.asarray(0.5 * (q[:-1] + q[1:]))

    @property
    def _two_levels(self) -> bool:
        return len(self.law.z) == 2

    @cached_property
    def _only_cutoff(self) -> GapLimits:
        return self.decision_gap(0)

    @cached_property
    def _sides(self) -> tuple[Floats, Floats]:
        """The effective rows, or persons with a row, up to each level but the last, and above it."""
        if self.persons is not None:
            return self.persons.sides()
        q, squares = self.law.q, self.law.squares.sum(axis=0)
        below = np.cumsum(q)[:-1] ** 2 / np.cumsum(squares)[:-1]
        above = np.cumsum(q[::-1])[:-1] ** 2 / np.cumsum(squares[::-1])[:-1]
        return below, above[::-1]

    @cached_property
    def _events(self) -> Floats:
        """The effective rows (persons) of the rarer decision at each cut-off of the merged levels."""
        return np.asarray(np.minimum(*self._sides)[self.firsts[1:] - 1])

    @property
    def _many(self) -> NDArray[np.bool_]:
        """Whether a cut-off has enough rows on both sides."""
        return np.asarray(self._events >= FEW)

    def _upper_of_few(self, tail: float) -> float:
        """Return a limit of D at all cut-offs with few rows on one side, 2 r (1 - r) for a share r."""
        if self._many.all():
            return 0.0
        F = np.cumsum(self.rows.shares.sum(axis=0))[:-1][~self._many]
        few = self._events[~self._many]
        largest = int(np.minimum(F, 1.0 - F).argmax()) if self.persons is not None else int(few.argmax())
        return largest_gap(self._upper_rate(float(few[largest]), min(F[largest], 1.0 - F[largest]), tail))

    def _upper_rate(self, events: float, share: float, tail: float) -> float:
        """Return a limit of the share of a decision: of persons with such a row, of whom each has a share."""
        if self.persons is None:
            return upper_share(events, self.n, tail)
        # Of persons with equally many rows the share of persons is at least that of rows.
        most = upper_share(min(events, self.n), self.n, tail)
        return min(most * max(1.0, share * self.n / events), 1.0)

    def _upper_each(self, q: float) -> Floats:
        return _invert_each(self._each, q, self.n)

    @cached_property
    def _chance_ratio(self) -> float:
        first = np.sqrt(variances(self.rows.independent, Steps())).sum()
        return float(first / self._noise.sigma.sum())

    def _limits(self, plug_in: float, weights: Floats, own: Floats | None = None) -> GapLimits:
        return self._join(plug_in, self._witness, Folded(self._noise, weights, own))

    def _of(self, plug_in: float, rows: Rows, features: Steps | Values, weights: Floats) -> GapLimits:
        noise = Noise(rows, features, self._generator)
        return self._join(plug_in, Witness(noise, self.n, self.widths), Folded(noise, weights))

    def _exact(self, plug_in: float, rows: Rows, few: tuple[float, float], counts: Floats) -> GapLimits:
        """Return limits of D at a cut-off with few rows on one side, from binomial laws alone.

        With r the rarer share, D = r sum_i |pi_i - p_i| for the law pi of S among these rows. It is at most
        2 r (1 - r), and at least 2 r (pi(A) - p(A)) for any cells A: those with too many of the rarer rows in
        a random half of the rows, valued on the other. With weights or persons the lower limit is zero.
        """
        rare = int(few[1] < few[0])
        first = np.random.default_rng([self.seed, 2]).binomial(counts.astype(np.int64), 0.5)
        second = counts - first
        share = first / np.maximum(first.sum(axis=0), 1)
        more = share[:, rare] > share[:, 1 - rare]
        rows_in, rows_all = float(second[more].sum()), float(second.sum())
        events_in, events_all = float(second[more, rare].sum()), float(second[:, rare].sum())
        alike = self.persons is None and np.allclose(rows.squares * counts.sum(), rows.shares)
        least = float(rows.shares.sum(axis=0)[rare])

        def lower(tail: float) -> float:
            if not alike or events_in == 0:
                return 0.0
            r = lower_share(min(few), self.n, tail / 3.0)
            pi = lower_share(events_in, events_all, tail / 3.0)
            return 2.0 * r * max(0.0, pi - upper_share(rows_in, rows_all, tail / 3.0))

        def upper(tail: float) -> float:
            return largest_gap(self._upper_rate(min(few), least, tail))

        variance = variances(rows.independent, Steps())
        chance, spread = _ROOT * float(np.sqrt(variance).sum()), math.sqrt((1.0 - _ROOT**2) * variance.sum())
        share_in = events_in / max(events_all, 1.0) - rows_in / max(rows_all, 1.0)
        value = max(0.0, 2.0 * min(few) / self.n * share_in) if alike else 0.0

        def chance_above(tail: float) -> float:
            return chance - float(ndtri(tail)) * spread

        return GapLimits(plug_in, value, lower, upper, chance, chance_above, _EXACT, (self._few_note,))

    @property
    def _few_note(self) -> str:
        return _FEW_ROWS if self.persons is None else _FEW_GROUPS

    def _join(self, plug_in: float, witness: Witness, folded: Folded) -> GapLimits:
        value, deviation = witness.value(folded.weights, own=folded.own)
        missed = max(0.0, plug_in - folded.plug_in)
        independent = variances(witness.rows.independent, witness.features)
        scale = float((np.sqrt(independent) @ folded.weights).sum())
        chance, spread = _ROOT * scale, folded.deviation(0.0) * scale / folded.scale

        def upper(tail: float) -> float:
            return max(_invert(folded, self.quantile(tail), self.n) + missed, 0.0)

        return GapLimits(
            plug_in=plug_in,
            estimate=witness.estimate(folded.weights, value, deviation),
            lower=lambda tail: max(value - self.quantile(tail) * deviation, 0.0),
            upper=upper,
            chance=chance,
            chance_above=lambda tail: chance + self.quantile(tail) * spread,
        )


# Rounds in which a limit and the deviation of the plug-in at a gap of its size are found together.
_ROUNDS = 6


def _invert(folded: Folded, q: float, n: float) -> float:
    """Return A h^-1((plug-in n / (n - 1) + q sd) / A), with sd at C / sigma of the size of this gap."""
    A = folded.scale
    plug_in = max(folded.plug_in * n / (n - 1.0), _ROOT * A)
    k = math.sqrt(folded.square)
    for _ in range(_ROUNDS):
        k = float(invert_folded_mean((plug_in + q * folded.deviation(k * k)) / A))
    return A * k


def _invert_each(each: FoldedEach, q: float, n: float) -> Floats:
    """Return the same for each cut-off by itself."""
    A = each.scale
    plug_in = np.maximum(each.plug_in * n / (n - 1.0), _ROOT * A)
    k = np.sqrt(each.square)
    for _ in range(_ROUNDS):
        k = invert_folded_mean((plug_in + q * each.deviation(k * k)) / A)
    return np.asarray(A * k)


def _at_most(limits: GapLimits, most: float) -> GapLimits:
    lower, upper = limits.lower, limits.upper
    return limits._replace(
        lower=lambda tail: min(lower(tail), most), upper=lambda tail: min(upper(tail), most)
    )
