"""The conditional mean along S, with a band for the whole curve."""

from __future__ import annotations

import torch
from torch import Tensor

from frhsic._checks import ArgumentError, check_confidence_level, check_draws
from frhsic.data import (
    Sensitive,
    check_aligned,
    to_generator,
    to_groups,
    to_sensitive,
    to_vector,
    to_weights,
)
from frhsic.inference._process import (
    GROUPS,
    Smoothed,
    cell_curve,
    cells_of_line,
    effective_units,
    equal_mass,
    gathered,
    is_coarse,
    line_groups,
)
from frhsic.inference._results import Curve
from frhsic.inference._sketched import refuse_beside_a_sketch, refuse_grouped
from frhsic.numerics._cells import Cells
from frhsic.numerics._smoothing import bandwidths_of, check_bandwidth, row_weights
from frhsic.sketching import HSICSketch

# Standard errors and multipliers of fewer groups have no level to speak of.
MIN_GROUPS = 20


def conditional_curve(
    scores: object,
    s: object = None,
    *,
    confidence_level: float = 0.95,
    bandwidth_s: float | None = None,
    n_points: int = 200,
    n_draws: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> Curve:
    """Return the mean score along one column of s, with a band that covers the whole curve at once.

    Means are taken within cells of s: each of its values where they are few for the rows (at most 100, of 20
    rows on average), else about 2 n^(1/3) ranges of equally many rows. The band is m(a) -/+ c se(a), with c
    the quantile of the largest |e*_a| / se(a) over the cells under Gaussian multipliers (sup-t): its
    confidence is for all cells together, not for each one.

    Parameters
    ----------
    scores : array-like of shape (n,), or HSICSketch
        Scores; or a sketch of one column of scores and one of s.
    s : array-like of shape (n,) or (n, 1)
    confidence_level : float, default=0.95
        The confidence that the whole curve lies in the band.
    bandwidth_s : float or None, default=None
        A number smooths along s instead, with a Gaussian kernel of this fraction of the *range* of s. The
        band is then about the smoothed curve, which may be far from the true one.
    n_points : int, default=200
        Points of equal mass along a smoothed curve.
    n_draws : int, default=999
        Multiplier draws.
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

    A cell of fewer than 200 rows takes the larger of its own variance, that of 200 rows nearby and that of
    all rows around the curve: of a handful of rows the own variance says little, and of a skewed score it is
    small just when the mean is. A larger cell takes at least a sixteenth of it: without any event it would
    show none.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 30, 2_000)
    >>> print(conditional_curve(0.1 * (age > 24) + rng.normal(size=2_000) / 10, {"age": age}, random_state=0))
    The 95% simultaneous band of the mean score along age leaves the overall mean 0.0494 at 10 of 10 points,
    between 20 and 29 (n = 2,000). Target: the true curve, value by value.
    """
    check_confidence_level(confidence_level)
    check_draws(n_draws)
    if n_points < 2:
        raise ValueError(f"'n_points' must be at least 2. Got {n_points}. Leave it out for 200.")
    if bandwidth_s is not None:
        check_bandwidth(bandwidth_s)
    generator = to_generator(random_state)
    if isinstance(scores, HSICSketch):
        refuse_beside_a_sketch(s=s, sample_weight=sample_weight, groups=groups)
        return _sketched(scores, confidence_level, bandwidth_s, n_points, n_draws, generator)
    check_aligned(scores=scores, s=s, sample_weight=sample_weight, groups=groups)
    f = to_vector(scores, name="scores", min_rows=4)[:, None]
    sensitive = to_sensitive(s, name="s", n_rows=len(f), rows_of="scores")
    w = to_weights(sample_weight, n_rows=len(f), rows_of="scores")
    units = to_groups(groups, n_rows=len(f), rows_of="scores")
    check_groups(units)
    _refuse_several(sensitive)
    if w is not None:
        present = w > 0
        f, sensitive, w = f[present], sensitive[present], w[present] / w.sum()
        units = None if units is None else units[present]
    return _of_rows(
        f,
        sensitive,
        row_weights(sensitive, w),
        units,
        confidence_level,
        bandwidth_s,
        n_points,
        n_draws,
        generator,
    )


def _of_rows(
    f: Tensor,
    s: Sensitive,
    w: Tensor,
    units: Tensor | None,
    confidence_level: float,
    bandwidth_s: float | None,
    n_points: int,
    n_draws: int,
    generator: torch.Generator,
) -> Curve:
    n = len(f) if units is None else len(units.unique())
    if bandwidth_s is None:
        cells = Cells.of(s, w, effective_units(w, units))
        curve = cell_curve(f, s, cells, w, generator, units)
        return _band(
            curve,
            middles(s.values[:, 0], w, cells.codes(s)),
            confidence_level,
            n_draws,
            generator,
            s.names,
            n,
        )
    curve = Smoothed.of(f, gathered(s, w, generator, units), bandwidths_of(s, bandwidth_s, None, None))
    return _band(curve, n_points, confidence_level, n_draws, generator, s.names, n)


def _sketched(
    sketch: HSICSketch,
    confidence_level: float,
    bandwidth_s: float | None,
    n_points: int,
    n_draws: int,
    generator: torch.Generator,
) -> Curve:
    refuse_grouped(sketch, "a curve")
    line = sketch.line()
    _refuse_several(line.s)
    if bandwidth_s is None:
        cells = cells_of_line(line, sketch.effective_rows)
        if is_coarse(line, cells):
            z, s, w = sketch.stored
            return _of_rows(z, s, w / w.sum(), None, confidence_level, None, n_points, n_draws, generator)
        f, groups = line_groups(line, line.s.kinds, cells)
        places = middles(line.s.values[:, 0], line.mass, cells.codes(line.s))
        curve = Smoothed.of(f, groups, [1.0], cells=cells)
        return _band(curve, places, confidence_level, n_draws, generator, line.s.names, sketch.n_rows)
    f, groups = line_groups(line, line.s.kinds)
    curve = Smoothed.of(f, groups, bandwidths_of(line.s, bandwidth_s, line.span, None))
    return _band(curve, n_points, confidence_level, n_draws, generator, line.s.names, sketch.n_rows)


def _refuse_several(s: Sensitive) -> None:
    if len(s.names) != 1:
        raise ValueError(
            f"'s' must be one column for a curve. Got {len(s.names)}. Draw one curve for each column."
        )


def middles(x: Tensor, w: Tensor, code: Tensor) -> Tensor:
    """Return the weighted median of x within each cell, in the order of the cells."""
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
    places: Tensor | int,
    confidence_level: float,
    n_draws: int,
    generator: torch.Generator,
    names: tuple[str, ...],
    n: int,
) -> Curve:
    """Return the curve and its band: at all cells, which stand at ``places``, or at so many points."""
    groups, cells = curve.groups, curve.cells
    if isinstance(places, Tensor) or len(groups.sizes) <= min(places, GROUPS):
        points, mass = groups.s, curve.mass
    else:
        points, mass = equal_mass(groups, places)
    process = curve.at(points)
    drawn = [process.standardised(errors[..., 0]) for errors, _ in process.draws(n_draws, generator)]
    reach = process.limits(float(torch.cat(drawn).quantile(confidence_level)))
    mean = process.mean[:, 0] + curve.overall
    mean_low, mean_high = mean - reach, mean + reach
    low, high = mean_low, mean_high
    ends: tuple[Tensor, Tensor] | None = None
    if cells is not None:
        cell = points[:, 0].long()
        ends = cells.ends(cell)
        if cells.narrow and not cells.exact:
            low, high = _between_neighbours(mean_low, mean_high, cells.single[cell])
    return Curve(
        points=tuple((places if isinstance(places, Tensor) else points[:, 0]).tolist()),
        mean=tuple(mean.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        mass=tuple(mass.tolist()),
        overall=float(curve.overall[0]),
        confidence_level=confidence_level,
        target=curve.target,
        attributes=names,
        n=n,
        mean_low=tuple(mean_low.tolist()),
        mean_high=tuple(mean_high.tolist()),
        start=() if ends is None else tuple(ends[0].tolist()),
        stop=() if ends is None else tuple(ends[1].tolist()),
    )


def _between_neighbours(low: Tensor, high: Tensor, single: Tensor) -> tuple[Tensor, Tensor]:
    """Return limits of a curve that is monotone over a range and its neighbours; not of single values."""
    lows, highs = (x.clone() for x in (low, high))
    lows[1:-1] = torch.stack((low[:-2], low[1:-1], low[2:])).amin(dim=0)
    highs[1:-1] = torch.stack((high[:-2], high[1:-1], high[2:])).amax(dim=0)
    return torch.where(single, low, lows), torch.where(single, high, highs)


def gdp_from_band(curve: Curve) -> tuple[float, float]:
    """Return the smallest and the largest GDP of any curve inside the band.

    With the mass pi_a of each point and the overall mean of the scores held at its estimate,

        low = sum_a pi_a max(0, distance of the overall mean from [low_a, high_a]),
        high = sum_a pi_a max(|low_a - overall|, |high_a - overall|).

    The band is made for the curve: it holds at every point at once, and so is wide for a mean over points.
    :func:`confidence_interval` takes the mean of |e*| under the same multiplier process instead, which is
    tighter for GDP itself and also holds the errors of the overall mean and of the law of s.

    Examples
    --------
    >>> band = Curve((0.0, 1.0), (0.2, 0.6), (0.1, 0.5), (0.3, 0.7), (0.5, 0.5), 0.4, 0.95, "", ("s",), 9)
    >>> [round(end, 2) for end in gdp_from_band(band)]
    [0.1, 0.3]
    """
    overall = curve.overall
    low = high = 0.0
    for mass, below, above in zip(curve.mass, curve.low, curve.high, strict=True):
        low += mass * max(0.0, below - overall, overall - above)
        high += mass * max(abs(below - overall), abs(above - overall))
    return low, high


def check_groups(groups: Tensor | None) -> None:
    """Raise ValueError if there are fewer than 20 groups."""
    count = MIN_GROUPS if groups is None else int(groups.max()) + 1
    if count < MIN_GROUPS:
        raise ArgumentError(
            "groups",
            f"be at least {MIN_GROUPS}, which are then the independent units",
            count,
            "Pass more groups; independence_test takes fewer.",
        )
