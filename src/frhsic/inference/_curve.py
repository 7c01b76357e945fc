"""The conditional mean along S, with a band for the whole curve."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.inference._band_ends import band_ends
from frhsic.inference._process import Process, Smoothed, smooth_rows
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
    check_one_column,
)
from frhsic.inference._results import Curve
from frhsic.numerics._cells import Cells
from frhsic.numerics._threads import one_thread


@one_thread()
def conditional_curve(
    scores: object,
    s: object,
    *,
    confidence_level: float = 0.95,
    cutoff: float | None = None,
    n_draws: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> Curve:
    """Return the mean score along one column of s, with a band that covers the whole curve at once.

    Means are taken within cells of s: each of its values where they are few for the rows (at most 100, of 20
    rows on average), else about 2 n^(1/3) ranges of equally many rows. The band has one quantile for the
    errors of all cells, which are independent: its confidence is for all cells together, not for each one.
    Errors of groups are not independent: their quantile is that of the largest |e*_a| / se(a) under Gaussian
    multipliers (sup-t).

    Parameters
    ----------
    scores : array-like of shape (n,)
    s : array-like of shape (n,) or (n, 1)
        The sensitive column.
    confidence_level : float, default=0.95
        The confidence that the whole curve lies in the band.
    cutoff : float, optional
        Follow the share of scores above this one instead of the mean score.
    n_draws : int, default=999
        Multiplier draws, of groups.
    random_state : None, int or generator, default=None
    sample_weight : array-like of shape (n,) or None, default=None
    groups : array-like of shape (n,) or None, default=None
        Which rows may depend on one another, such as those of one person; groups are independent.

    Returns
    -------
    Curve

    Notes
    -----
    *What the band is about* depends on s and n, never on the scores, and ``target`` says it. With single
    values it is the true curve. Of ranges it is the mean within each, for any curve: ``mean_low`` and
    ``mean_high``, and the sign of a difference seen there is that of the mean within the range. From 5,000
    rows on (ranges of 3 % of them) ``low`` and ``high`` are about the true curve at every value between the
    outermost two ranges: they are the smallest and largest limits over a range and its two neighbours. If the
    curve only rises or only falls within these three, its values within the middle one lie between the means
    of the other two. A step does so; a peak narrower than two ranges does not, and no band for every curve
    could be short.

    *Rates* (scores of two values, or a ``cutoff``) have mid-p binomial limits at the simultaneous level. With
    weights or groups they count as many equal rows as give the variance that is seen.

    *Other scores* have two different ends where they are skewed. Towards the long tail of the scores the
    mean is seldom wrong without a large variance: that end takes the variance of the cell, and Student's
    quantile corrected for its skewness (Hall, 1992). The other end takes the larger of the variances of the
    cell, of its neighbours along s and of all rows around the curve, with the quantile of a gamma law of the
    same skewness. How much of this is done depends on how clear the skewness is, of all rows or at the cell,
    and not on the number of rows. Without it both ends are Student's, with the variance of the cell. Cells of
    fewer than 30 rows take at least that of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 30, 2_000)
    >>> print(conditional_curve(0.1 * (age > 24) + rng.normal(size=2_000) / 10, {"age": age}, random_state=0))
    The 95% simultaneous band of the mean score along age excludes the overall mean 0.0494 at 10 of 10 points,
    between 20 and 29 (n = 2,000). Target: the true curve, value by value.
    """
    options = IntervalOptions.read(confidence_level, n_draws, random_state)
    rows = Observations.read(scores, s, sample_weight, groups, min_rows=4, one_column=True)
    rows = rows.drop_zero_weights(4)
    check_one_column(rows.s, "curve")
    if cutoff is not None:
        rows = replace(rows, z=(rows.z > cutoff).to(rows.z))
    return _band(smooth_rows(rows), rows.s, rows.weights, options, rows.n_units)


def cell_medians(s: Sensitive, w: Tensor, cells: Cells) -> Tensor:
    """Return the weighted median of one column within each cell, in the order of the cells."""
    x, code = s.values[:, 0], cells.codes(s)
    order = x.argsort(stable=True)
    order = order[code[order].argsort(stable=True)]
    upto = w[order].cumsum(0)
    ends = torch.bincount(code).cumsum(0)
    ends = ends[torch.bincount(code) > 0]
    before = torch.cat((upto.new_zeros(1), upto[ends[:-1] - 1]))
    halves = before + 0.5 * (upto[ends - 1] - before)
    return x[order[torch.searchsorted(upto, halves).clamp_max(len(order) - 1)]]


def _band(
    curve: Smoothed,
    s: Sensitive,
    w: Tensor,
    options: IntervalOptions,
    n: int,
) -> Curve:
    """Return the curve and its band in all cells."""
    cells, mass, cell = curve.cells, curve.mass, curve.places.cell
    process = Process(curve)
    mean = process.mean[:, 0] + curve.overall
    mean_low, mean_high = band_ends(process, mass, options)
    low, high = mean_low, mean_high
    start, stop = cells.ends(cell)
    counts = cells.codes(s).bincount(minlength=cells.size)[cell]
    if cells.narrow and not cells.exact:
        low, high = _between_neighbours(mean_low, mean_high, cells.single[cell])
    return Curve(
        points=tuple(cell_medians(s, w, cells).tolist()),
        mean=tuple(mean.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        mass=tuple(mass.tolist()),
        overall=float(curve.overall[0]),
        confidence_level=options.confidence_level,
        target=curve.target,
        attributes=s.names,
        n=n,
        mean_low=tuple(mean_low.tolist()),
        mean_high=tuple(mean_high.tolist()),
        start=tuple(start.tolist()),
        stop=tuple(stop.tolist()),
        counts=tuple(counts.tolist()),
    )


def _between_neighbours(low: Tensor, high: Tensor, single: Tensor) -> tuple[Tensor, Tensor]:
    """Return limits of a curve that is monotone over a range and its neighbours; not of single values."""
    lows, highs = (x.clone() for x in (low, high))
    lows[1:-1] = torch.stack((low[:-2], low[1:-1], low[2:])).amin(dim=0)
    highs[1:-1] = torch.stack((high[:-2], high[1:-1], high[2:])).amax(dim=0)
    return torch.where(single, low, lows), torch.where(single, high, highs)
