"""The change of a gap between two samples, or between two scores of one sample."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from scipy.special import stdtr, stdtrit
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.dependence import GDP, Dependence, RankGap, ScoreGap
from frhsic.inference._change_results import GapChange
from frhsic.inference._question import IntervalOptions, check_cells
from frhsic.inference._two_samples import Pair
from frhsic.numerics._cells import Cells
from frhsic.numerics._threads import one_thread

# Neighbouring cells are smoothed over this multiple of n^(-1/3) of the rows of a half.
_WINDOW = 2.0
# A gap of so many standard errors is taken by itself; smaller ones are smoothed.
_CLEAR = 3.0
# The least size of a gap, in standard errors.
_SMALLEST = 0.6


@one_thread()
def gap_change(
    scores: object,
    s: object,
    *,
    new: object = None,
    dependence: Dependence | None = None,
    confidence_level: float = 0.95,
    n_splits: int = 8,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> GapChange:
    """Return by how much the gap of a score changed, with an interval and a test of no change.

    Two samples, one below the other, with ``new`` saying which rows are of the second one; or two columns of
    scores, old and new, of the same rows.

    Parameters
    ----------
    scores : array-like of shape (n,) or (n, 2)
        Scores of both samples; or the old and the new score of each row.
    s : array-like of shape (n,) or (n, q)
        The sensitive columns.
    new : array-like of bool of shape (n,), optional
        Which rows are of the new sample. Left out for two columns of scores.
    dependence : ScoreGap, RankGap, GDP or None, default=None
        None is ``ScoreGap()``; ``ScoreGap(cutoff=0.5)`` is the gap of decisions at one cut-off. Of a rank gap
        the ranks are those within each sample, taken as known.
    confidence_level : float, default=0.95
    n_splits : int, default=8
        Random halves over which both limits are averaged.
    random_state : None, int or generator, default=None
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), optional
        Which rows may depend on one another, such as those of one person, within a sample and across both.

    Returns
    -------
    GapChange

    Notes
    -----
    Both gaps are taken within common cells of s: its values, where the smaller sample has 20 rows for each,
    else as many ranges as that sample has. With g the gap of the mean score (or of a part of the score
    between two cut-offs) within a cell of share pi, the gap is G = sum pi |g|. |.| has no derivative at zero:
    an estimate is too large by what chance adds, by an amount that depends on n, on the spread of the score
    and on g itself, and so a difference of two estimates is biased too. Instead, with a sign sigma = +/- 1
    and a size v > 0 for each cell, learned on one half of the rows, and g and its variance of the other half,

        sum pi sigma g  <=  G  <=  sum pi ((g^2 - var g) / v + v) / 2

    holds on average, whatever the law: sigma g <= |g| <= (g^2 / v + v) / 2. Both are equalities if sigma is
    the sign and v the size of g. Halves are exchanged, and all is averaged
    over random splits. The limits of the change G' - G are the left side of one less the right side of the
    other, less (plus) the quantile of Student's law times the standard error of their influence functions,
    which are added up by units that both samples share: for the same rows, or groups in both, the interval
    allows for their dependence.

    Where gaps are small for the rows, the two sides lie apart, and the interval holds more often than its
    confidence says. Permuting the samples tests another hypothesis, that the two *laws* are equal: scores
    that spread less are then a change of the gap.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 60, 4_000)
    >>> new = np.arange(4_000) >= 2_000
    >>> score = rng.uniform(size=4_000) + np.where(new, 0.01, 0.0) * (age - 40)
    >>> found = gap_change(score, {"age": age}, new=new, dependence=GDP(), random_state=0)
    >>> found.shown, found.low < 0.1 < found.high
    (True, True)
    """
    options = IntervalOptions.read(confidence_level, 999, random_state)
    if isinstance(n_splits, bool) or not isinstance(n_splits, int) or n_splits < 1:
        raise ArgumentError("n_splits", "be an integer of at least 1", repr(n_splits), "Take 8.")
    measure = _read_measure(dependence)
    pair = Pair.read(scores, s, new, sample_weight, groups, ranks=isinstance(measure, RankGap))
    features = [_features(z, measure, pair.cuts) for z in pair.scores]
    bounds = [
        _find_bounds(X, code, pair.cells, w, unit, n_splits, options.generator)
        for X, (code, w, unit) in zip(features, pair.samples, strict=True)
    ]
    change = _interval(pair, bounds, measure, options)
    if pair.paired and torch.equal(*features):
        # The same scores, or decisions, row by row: both gaps are one number, whatever it is.
        method = "both scores are the same on every row for this measure"
        return replace(change, new=change.old, change=0.0, low=0.0, high=0.0, pvalue=1.0, method=method)
    return change


def _read_measure(dependence: Dependence | None) -> ScoreGap | RankGap | GDP:
    measure = ScoreGap() if dependence is None else dependence
    if isinstance(measure, RankGap):
        return measure
    if not isinstance(measure, ScoreGap | GDP):
        got = type(measure).__name__
        raise TypeError(f"'dependence' must be ScoreGap, RankGap or GDP. Got {got}. Leave it out.")
    check_cells(measure)
    if isinstance(measure, ScoreGap) and measure.cutoff == "worst":
        fix = "Name a cut-off: ScoreGap(cutoff=0.5)."
        raise ArgumentError("dependence", "be the gap at one cut-off or at all", "'worst'", fix)
    return measure


def _features(z: Tensor, measure: ScoreGap | RankGap | GDP, cuts: Tensor) -> Tensor:
    """Return the columns whose mean gaps add up to the gap, shape ``(n, r)``."""
    column = z[:, None]
    if isinstance(measure, GDP):
        return column
    if isinstance(measure, ScoreGap) and measure.cutoff is not None:
        return (column > float(measure.cutoff)).to(z)
    return column.clamp(cuts[:-1], cuts[1:]) - cuts[:-1] if len(cuts) > 1 else column


# ---- both sides of a gap -----------------------------------------------------------------------------------


class _Sums(NamedTuple):
    """Sums over the units of each cell: what means of rows, and their variances, need."""

    w: Tensor  # (..., C), of weights
    ww: Tensor  # (..., C)
    v: Tensor  # (..., C, r), of weights times features
    vv: Tensor
    vw: Tensor


class _Entries(NamedTuple):
    """Rows of one unit in one cell, added up."""

    w: Tensor  # (k,)
    v: Tensor  # (k, r)
    cell: Tensor
    unit: Tensor
    size: int  # the number of cells

    @classmethod
    def of(cls, X: Tensor, code: Tensor, size: int, w: Tensor, unit: Tensor) -> _Entries:
        """Return the entries of rows, with features about their mean: little cancels then."""
        V = w[:, None] * (X - w @ X)
        key, place = (unit * size + code).unique(return_inverse=True)
        if len(key) == len(w):
            return cls(w, V, code, unit, size)
        mass, sums = w.new_zeros(len(key)), V.new_zeros((len(key), V.shape[1]))
        return cls(mass.index_add(0, place, w), sums.index_add(0, place, V), key % size, key // size, size)

    def sums(self, halves: list[Tensor]) -> tuple[_Sums, _Sums]:
        """Return the sums over all entries, and over some halves and what they leave (2 * halves, ...)."""
        column, v = self.w[:, None], self.v
        both = torch.cat((column, column.square(), v, v.square(), v * column), dim=1)

        def add(values: Tensor, cell: Tensor) -> Tensor:
            return values.new_zeros((self.size, values.shape[1])).index_add(0, cell, values)

        total = add(both, self.cell)
        first = torch.stack([add(both[half], self.cell[half]) for half in halves])

        def split(x: Tensor) -> _Sums:
            return _Sums(x[..., 0], x[..., 1], *x[..., 2:].split(v.shape[1], dim=-1))

        return split(total), split(torch.cat((first, total - first)))

    def halve(self, generator: torch.Generator) -> Tensor:
        """Return a random half of the entries: of each cell, or of the units if these lie in several."""
        units = self.unit.unique()
        if len(units) < len(self.unit):
            kept = units[torch.randperm(len(units), generator=generator)[: len(units) // 2]]
            return torch.isin(self.unit, kept).nonzero()[:, 0]
        key = torch.rand(len(self.w), generator=generator, dtype=torch.float64)
        order = (self.cell + key).argsort()
        return order[int(torch.randint(2, (), generator=generator)) :: 2]


class _Means(NamedTuple):
    """Means within cells, and how uncertain they are."""

    mass: Tensor  # (..., C), of sum one
    mean: Tensor  # (..., C, r)
    overall: Tensor  # (..., 1, r)
    gap: Tensor  # (..., C, r), zero where there is no row
    variance: Tensor  # (..., C, r), of the gap
    error: Tensor  # (..., C, r), its standard error, not below that of the rows of all cells

    @classmethod
    def of(cls, sums: _Sums) -> _Means:
        w, ww = sums.w[..., None], sums.ww[..., None]
        some = w > 1e-12
        w = torch.where(some, w, 0.0)
        total, own_w = w.sum(dim=-2, keepdim=True), torch.where(some, w, 1.0)
        mass, mean = w / total, torch.where(some, sums.v / own_w, 0.0)
        overall = sums.v.sum(dim=-2, keepdim=True) / total
        count = torch.where(some, w.square() / ww.clamp_min(1e-300), 1.0)
        own = (sums.vv - 2.0 * mean * sums.vw + mean.square() * ww).clamp_min(0.0) / own_w.square()
        several = (count >= 1.5) & some
        own = torch.where(several, own * count / (count - 1.0).clamp_min(0.5), 0.0)
        share = torch.where(several, mass, 0.0)
        pooled = (share * own * count).sum(dim=-2, keepdim=True)
        pooled = pooled / share.sum(dim=-2, keepdim=True).clamp_min(1e-300) / count
        own = torch.where(several, own, pooled)
        variance = own * (1.0 - 2.0 * mass) + (mass.square() * own).sum(dim=-2, keepdim=True)
        variance = variance.clamp_min(0.0)
        error = torch.maximum(variance, pooled).sqrt()
        gap = torch.where(some, mean - overall, 0.0)
        return cls(mass[..., 0], mean, overall, gap, variance, error)

    def swap(self) -> _Means:
        """Return the other half of each split."""
        return _Means(*(torch.cat(x.chunk(2)[::-1]) for x in self))


class _Windows(NamedTuple):
    """Neighbouring cells along one continuous column, over which small gaps are smoothed."""

    first: Tensor  # (C,)
    last: Tensor

    @classmethod
    def of(cls, cells: Cells, mass: Tensor, units: int) -> _Windows | None:
        if cells.kinds != ("continuous",):
            return None
        need = min(1.0, _WINDOW * (0.5 * units) ** (-1.0 / 3.0))
        upto = torch.cat((mass.new_zeros(1), mass.cumsum(0)))
        here = torch.arange(len(mass))
        first, last, wide = here.clone(), here + 1, torch.zeros(len(mass), dtype=torch.bool)
        for reach in range(len(mass)):
            start, stop = (here - reach).clamp_min(0), (here + reach + 1).clamp_max(len(mass))
            first, last = torch.where(wide, first, start), torch.where(wide, last, stop)
            wide = upto[last] - upto[first] >= need - 1e-9
            if bool(wide.all()):
                break
        return cls(first, last)

    def smooth(self, gap: Tensor, mass: Tensor) -> Tensor:
        """Return the mean of gaps ``(..., C, r)`` over the window of each cell."""
        column = mass[..., None]
        upto, sums = (
            torch.cat((torch.zeros_like(x[..., :1, :]), x.cumsum(-2)), dim=-2) for x in (column, column * gap)
        )
        held, inside = (x[..., self.last, :] - x[..., self.first, :] for x in (upto, sums))
        return inside / held.clamp_min(1e-300)


class _Influences(NamedTuple):
    """What units add to the error of an estimate."""

    unit: Tensor  # (k,), a unit may be there several times
    value: Tensor  # (k,)


class _Bounds(NamedTuple):
    """Both sides of a gap, and the errors of each."""

    lower: float
    upper: float
    of_lower: _Influences
    of_upper: _Influences


def _find_bounds(
    X: Tensor,
    code: Tensor,
    cells: Cells,
    w: Tensor,
    unit: Tensor,
    n_splits: int,
    generator: torch.Generator,
) -> _Bounds:
    """Return the lower and the upper side of sum pi |g|, averaged over random halves."""
    entries = _Entries.of(X, code, cells.size, w, unit)
    total, parts = entries.sums([entries.halve(generator) for _ in range(n_splits)])
    whole, learned = _Means.of(total), _Means.of(parts)
    sign, size = _learn(learned, _Windows.of(cells, whole.mass, len(unit.unique())))
    other = learned.swap()
    squares = 0.5 * ((other.gap.square() - other.variance) / size + size)
    sides = (
        _Side.of(other, sign * other.gap, sign),
        _Side.of(other, squares, other.gap / size),
    )
    lower, upper = (side.value for side in sides)
    middle = 0.5 * (lower + upper)
    of_lower, of_upper = (side.influences(entries, whole) for side in sides)
    return _Bounds(min(lower, middle), max(upper, middle), of_lower, of_upper)


def _learn(means: _Means, windows: _Windows | None) -> tuple[Tensor, Tensor]:
    """Return the sign of each gap, and its size, not below a part of its standard error."""
    gap = means.gap
    if windows is not None:
        clear = gap.abs() > _CLEAR * means.error
        gap = torch.where(clear, gap, windows.smooth(gap, means.mass))
    return gap.sign(), torch.maximum(gap.abs(), _SMALLEST * means.error).clamp_min(1e-150)


class _Side(NamedTuple):
    """The mean over splits of sum pi phi(g): its value, and phi and its slopes at each cell."""

    value: float
    phi: Tensor  # (C,)
    slope: Tensor  # (C, r)

    @classmethod
    def of(cls, means: _Means, phi: Tensor, slope: Tensor) -> _Side:
        total = phi.sum(dim=-1)
        return cls(float((means.mass * total).sum(dim=-1).mean()), total.mean(dim=0), slope.mean(dim=0))

    def influences(self, entries: _Entries, whole: _Means) -> _Influences:
        """Return what each unit adds to the error.

        Of sum pi phi(m_c - m) a row of weight w in cell c adds w times phi_c - mean phi, slope_c (x - m_c)
        and - (mean slope) (x - m).
        """
        phi, slope, w, cell = self.phi, self.slope, entries.w, entries.cell
        own = w * (phi[cell] - whole.mass @ phi)
        own = own + (slope[cell] * (entries.v - w[:, None] * whole.mean[cell])).sum(dim=1)
        own = own - (entries.v - w[:, None] * whole.overall) @ (whole.mass @ slope)
        return _Influences(entries.unit, own)


def _standard_error(new: _Influences, old: _Influences) -> float:
    """Return the standard error of a difference, by units that may be in both."""
    unit, value = torch.cat((new.unit, old.unit)), torch.cat((new.value, -old.value))
    total = value.new_zeros(int(unit.max()) + 1).index_add(0, unit, value)
    count = min(len(one.unit.unique()) for one in (new, old))
    return float(total.square().sum().sqrt()) * (count / (count - 1.0)) ** 0.5


def _interval(
    pair: Pair, bounds: list[_Bounds], measure: ScoreGap | RankGap | GDP, options: IntervalOptions
) -> GapChange:
    old, new = bounds
    errors = _standard_error(new.of_lower, old.of_upper), _standard_error(new.of_upper, old.of_lower)
    apart = new.lower - old.upper, old.lower - new.upper  # positive: beyond doubt but for the error
    degrees = min(pair.counts) - 1.0
    reach = float(-stdtrit(degrees, 0.5 * (1.0 - options.confidence_level)))
    beyond = max(
        gap / error if error > 0 else (torch.inf if gap > 0 else -torch.inf)
        for gap, error in zip(apart, errors, strict=True)
    )
    values = [0.5 * (one.lower + one.upper) for one in bounds]
    n_old, n_new = pair.counts
    return GapChange(
        old=values[0],
        new=values[1],
        change=values[1] - values[0],
        low=apart[0] - reach * errors[0],
        high=-apart[1] + reach * errors[1],
        pvalue=min(1.0, 2.0 * float(stdtr(degrees, -beyond))),
        confidence_level=options.confidence_level,
        measure="GDP" if isinstance(measure, GDP) else measure.words,
        target=pair.target,
        attributes=pair.s.names,
        n_old=n_old,
        n_new=n_new,
        paired=pair.paired,
        method="both sides of the gap from halves of the rows",
        notes=pair.notes,
    )


# ---- from two intervals ------------------------------------------------------------------------------------


class Ends(NamedTuple):
    """An estimate and its interval."""

    estimate: float
    low: float
    high: float


def difference_of_intervals(old: Ends, new: Ends) -> Ends:
    """Return new minus old with an interval, from the intervals of two independent samples.

    By the method of variance estimates recovery (Zou and Donner, 2008): the two distances from an estimate to
    an end are added as standard errors are,

        new - old - ((new - low')^2 + (high - old)^2)^(1/2)   up to
        new - old + ((high' - new)^2 + (old - low)^2)^(1/2).

    Examples
    --------
    >>> difference_of_intervals(Ends(1.0, 0.6, 1.4), Ends(2.0, 1.7, 2.3))
    Ends(estimate=1.0, low=0.5, high=1.5)
    """
    change = new.estimate - old.estimate
    below = math.hypot(new.estimate - new.low, old.high - old.estimate)
    above = math.hypot(new.high - new.estimate, old.estimate - old.low)
    return Ends(change, change - below, change + above)
