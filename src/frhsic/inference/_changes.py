"""What changed between two samples, or between two scores of one sample: gaps, and the mean score along S."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from scipy.special import stdtr, stdtrit
from torch import Tensor

import frhsic.data as data
from frhsic._checks import ArgumentError
from frhsic.data import Sensitive
from frhsic.dependence import GDP, Dependence, RankGap, ScoreGap, mid_ranks
from frhsic.inference._curve import cell_medians
from frhsic.inference._places import gather_rows
from frhsic.inference._process import Process, Smoothed, student_quantile
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
    check_cells,
    check_one_column,
    check_positive,
    effective_units,
)
from frhsic.inference._results import CurveChange, GapChange
from frhsic.inference._score_gap_intervals import cut_scores
from frhsic.numerics._cells import Cells
from frhsic.numerics._threads import one_thread

# Rows (or groups) of each sample; rows at a point of the curve.
MIN_SAMPLE, MIN_POINT = 20, 10
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
    pair = _Pair.read(scores, s, new, sample_weight, groups, ranks=isinstance(measure, RankGap))
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


# ---- two samples -------------------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """Two scores, with the cells of s that both share."""

    scores: tuple[Tensor, Tensor]  # (n,) and (n',)
    rows: tuple[Tensor, Tensor]  # which rows they are, among those of ``s``
    s: Sensitive
    w: Tensor  # (rows of s,), of sum one within each sample
    units: Tensor  # (rows of s,)
    cells: Cells
    cuts: Tensor  # between which the score is cut into parts
    paired: bool
    grouped: bool

    @classmethod
    def read(
        cls,
        scores: object,
        s: object,
        new: object,
        sample_weight: object,
        groups: object,
        *,
        ranks: bool = False,
    ) -> _Pair:
        """Validate and convert the arguments of a public function; with ``ranks`` scores become mid-ranks."""
        data.check_aligned(scores=scores, s=s, new=new, sample_weight=sample_weight, groups=groups)
        rows = Observations.read(scores, s, sample_weight, groups)
        mask = None if new is None else _read_new(new, len(rows))
        _check_form(rows.z.shape[1], mask)
        if rows.w is not None:
            present = rows.w > 0
            check_positive(int(present.sum()), 8)
            rows, mask = rows.take(present), None if mask is None else mask[present]
        every = torch.arange(len(rows))
        if mask is None:
            parts, columns = (every, every), (rows.z[:, 0], rows.z[:, 1])
        else:
            parts = every[~mask], every[mask]
            columns = (rows.z[parts[0], 0], rows.z[parts[1], 0])
        w = rows.weights.clone()
        if mask is not None:
            for part in parts:
                w[part] = w[part] / w[part].sum()
        units = every if rows.groups is None else rows.groups
        for part, name in zip(parts, ("old", "new"), strict=True):
            count = len(units[part].unique())
            if count < MIN_SAMPLE:
                must = f"have at least {MIN_SAMPLE} rows (or groups) in each sample"
                raise ArgumentError("scores", must, f"{count} in the {name} one", "Take more rows.")
        size = min(
            effective_units(w[part], units[part] if rows.groups is not None else None) for part in parts
        )
        cells = Cells.of(rows.s, w / w.sum(), size)
        if ranks:
            columns = mid_ranks(columns[0], w[parts[0]]), mid_ranks(columns[1], w[parts[1]])
        u, order = torch.cat(columns).sort()
        upto = torch.cat([w[part] for part in parts])[order].cumsum(0)
        cuts = cut_scores(u, upto / upto[-1])
        return cls(columns, parts, rows.s, w, units, cells, cuts, mask is None, rows.groups is not None)

    @property
    def samples(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Cell, weight and unit of each row of both samples."""
        code = self.cells.codes(self.s)
        return [(code[part], self.w[part], self.units[part]) for part in self.rows]

    @property
    def counts(self) -> tuple[int, int]:
        """The number of independent units of both samples."""
        old, new = (len(self.units[part].unique()) for part in self.rows)
        return old, new

    @property
    def target(self) -> str:
        """What both gaps are about."""
        name = " and ".join(self.s.names)
        if self.cells.exact:
            return f"the gap at each value of {name}"
        return f"the gap within {self.cells.size} ranges of {name} that both samples share"

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a note where groups are in both samples."""
        if self.paired or not self.grouped:
            return ()
        old, new = (self.units[part].unique() for part in self.rows)
        both = int(torch.isin(new, old).sum())
        return (f"{both:,} groups are in both samples, and allowed for.",) if both else ()


def _read_new(new: object, n: int) -> Tensor:
    column = data.to_vector(new, name="new", min_rows=1)
    if len(column) != n:
        raise ArgumentError(
            "new", f"have {n} rows like 'scores'", len(column), "Pass one entry for each row."
        )
    if bool(((column != 0.0) & (column != 1.0)).any()):
        fix = "Pass True where a row is of the new sample."
        raise ArgumentError("new", "be true or false in each row", "other values", fix)
    return column == 1.0


def _check_form(columns: int, mask: Tensor | None) -> None:
    if columns == 1 and mask is None:
        must = "say which rows are of the new sample, for one column of scores"
        raise ArgumentError("new", must, None, "Or pass two columns: the old and the new score of each row.")
    if columns != 1 and mask is not None:
        fix = "Leave 'new' out for two scores of the same rows."
        raise ArgumentError("scores", "be one column beside 'new'", columns, fix)
    if columns > 2:
        raise ArgumentError("scores", "be two columns, old and new", columns, "Take a score of each model.")


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
    pair: _Pair, bounds: list[_Bounds], measure: ScoreGap | RankGap | GDP, options: IntervalOptions
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


# ---- the mean score along s --------------------------------------------------------------------------------


@one_thread()
def curve_change(
    scores: object,
    s: object,
    *,
    new: object = None,
    confidence_level: float = 0.95,
    n_draws: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> CurveChange:
    """Return the change of the mean score along one column of s, with a band for all its values at once.

    Parameters
    ----------
    scores : array-like of shape (n,) or (n, 2)
        Scores of both samples; or the old and the new score of each row.
    s : array-like of shape (n,) or (n, 1)
    new : array-like of bool of shape (n,), optional
        Which rows are of the new sample. Left out for two columns of scores.
    confidence_level : float, default=0.95
        The confidence that the change at all points lies in the band.
    n_draws : int, default=999
        Multiplier draws.
    random_state : None, int or generator, default=None
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), optional
        Which rows may depend on one another, such as those of one person, within a sample and across both.

    Returns
    -------
    CurveChange

    Notes
    -----
    Means are taken within the common cells of :func:`gap_change`. The band is that of
    :func:`conditional_curve`, for the difference of two means: m'(a) - m(a) -/+ c se(a), with c the quantile
    of the largest error over its deviation under Gaussian multipliers. Of two scores of the same rows it is
    the band of their difference. Points of fewer than ten rows in one of the samples are left out.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 30, 4_000)
    >>> old = rng.uniform(size=4_000)
    >>> scores = np.column_stack((old, old + 0.1 * (age > 27) + 0.1 * rng.normal(size=4_000)))
    >>> curve_change(scores, {"age": age}, random_state=0).higher
    (28.0, 29.0)
    """
    options = IntervalOptions.read(confidence_level, n_draws, random_state)
    pair = _Pair.read(scores, s, new, sample_weight, groups)
    check_one_column(pair.s, "curve")
    z, code, size = _stack(pair)
    w = pair.w / pair.w.sum()
    places = gather_rows(code, w, pair.units if pair.grouped else None, pair.s.names[0])
    process = Process(Smoothed(z[:, None], places, pair.cells))
    at = places.cell
    counts = torch.bincount(code, minlength=2 * size)
    few = counts < MIN_POINT
    if not pair.paired:
        few = few[:size] | few[size:]
    kept = (~few[:size]).nonzero()[:, 0]
    if not len(kept):
        must = f"have a value (or range) with {MIN_POINT} rows in both samples"
        raise ArgumentError("s", must, "none", "Take more rows, or samples of the same people.")
    found = torch.full((2 * size,), -1)
    found[at] = torch.arange(len(at))
    here = found[kept] if pair.paired else torch.stack((found[kept], found[kept + size]))
    reach = _reach(process, here, options)
    means = _means_at(pair, kept)
    low, high = means[1] - means[0] - reach, means[1] - means[0] + reach
    medians, (start, stop) = _describe_cells(pair, kept)
    least = counts[kept] if pair.paired else torch.minimum(counts[kept], counts[kept + size])
    n_old, n_new = pair.counts
    lost = len(pair.s) - int(torch.isin(code % size, kept).sum())
    notes = (f"{lost:,} rows at values with fewer than {MIN_POINT} rows in one sample are left out.",)
    return CurveChange(
        points=tuple(medians.tolist()),
        old=tuple(means[0].tolist()),
        new=tuple(means[1].tolist()),
        change=tuple((means[1] - means[0]).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        counts=tuple(least.tolist()),
        start=tuple(start.tolist()),
        stop=tuple(stop.tolist()),
        confidence_level=confidence_level,
        target=_curve_target(pair),
        attributes=pair.s.names,
        n_old=n_old,
        n_new=n_new,
        paired=pair.paired,
        notes=(*pair.notes, *(notes if lost else ())),
    )


def _curve_target(pair: _Pair) -> str:
    if pair.cells.exact:
        return "the change at each value"
    return f"the change of the mean within {pair.cells.size} ranges that both samples share"


def _stack(pair: _Pair) -> tuple[Tensor, Tensor, int]:
    """Return the scores in the order of s with the place of each row: cells of the new sample come second."""
    code, size = pair.cells.codes(pair.s), pair.cells.size
    if pair.paired:
        return pair.scores[1] - pair.scores[0], code, size
    z = torch.zeros(len(pair.s), dtype=torch.float64)
    for part, column in zip(pair.rows, pair.scores, strict=True):
        z[part] = column
    code = code.clone()
    code[pair.rows[1]] += size
    return z, code, size


def _reach(process: Process, here: Tensor, options: IntervalOptions) -> Tensor:
    """Return how far the change may be off at each point."""
    variance, degrees = process.trusted()
    # A point without variance has errors of rounding only.
    rounded = torch.maximum(process.variance, 1e-9 * process.common)
    if here.ndim == 1:  # the difference of two scores of the same rows
        drawn = [errors[here, :, 0] for errors, _ in process.draws(options.n_draws, options.generator)]
        own, trusted, free = rounded[here], variance[here], degrees[here]
    else:
        old, new = here
        drawn = [
            errors[new, :, 0] - errors[old, :, 0]
            for errors, _ in process.draws(options.n_draws, options.generator)
        ]
        own, trusted = (x[old] + x[new] for x in (rounded, variance))
        # Welch and Satterthwaite.
        parts = variance[here].square() / degrees[here]
        free = trusted.square() / parts.sum(dim=0).clamp_min(1e-300)
    errors = torch.cat(drawn, dim=1)  # (a, B)
    if here.ndim == 2 and process.curve.covariance is not None:  # groups may be in both samples
        shared = errors.square().mean(dim=1) / own.clamp_min(1e-300)
        own, trusted = own * shared, trusted * shared
    deviation = own.clamp_min(1e-300).sqrt()
    largest = float((errors.abs() / deviation[:, None]).amax(dim=0).quantile(options.confidence_level))
    return student_quantile(free, largest) * trusted.sqrt()


def _means_at(pair: _Pair, kept: Tensor) -> list[Tensor]:
    """Return the mean of both scores in some cells."""
    found = []
    for z, (code, w, _) in zip(pair.scores, pair.samples, strict=True):
        mass, sums = (z.new_zeros(pair.cells.size).index_add(0, code, x) for x in (w, w * z))
        found.append(sums[kept] / mass[kept])
    return found


def _describe_cells(pair: _Pair, kept: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return the median of s in some cells, and where these begin and end."""
    every = torch.arange(pair.cells.size)
    present = torch.bincount(pair.cells.codes(pair.s), minlength=pair.cells.size) > 0
    medians = torch.full((pair.cells.size,), torch.nan, dtype=torch.float64)
    medians[present] = cell_medians(pair.s, pair.w, pair.cells)
    start, stop = pair.cells.ends(every)
    return medians[kept], (start[kept], stop[kept])


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
