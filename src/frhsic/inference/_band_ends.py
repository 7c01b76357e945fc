"""Ends of a simultaneous band of means along S: exact ones of rates, and others corrected for skewness.

The mean m of rows whose scores have a long tail above is often too low, with a small variance of its own
where none of the rare large scores are seen, and seldom too high, with a large one. So its two ends differ.

- The *light* end (below m here) takes the variance of the rows themselves: an error in that direction comes
  with a large one. Student's quantile is corrected for their skewness (Hall, 1992).
- The *heavy* end (above m) takes at least the variance of all rows around the curve, or of those near. Its
  quantile is that of a gamma law of the same skewness, which is bounded below as such a mean is.

How much of this is done is a number between 0 and 1 for each end: how clear it is that the tail is long. Of
scores without skewness it is zero, and both ends are those of Student's law with the variance of the rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.special import betainc, gammaincinv, ndtr, ndtri
from torch import Tensor

from frhsic.inference._process import SMALLEST_PART, Process, student_quantile
from frhsic.inference._question import IntervalOptions

# A long tail counts from so many squared standard scores on: of all rows, and of those at one point.
_CLEAR_OF_ALL, _CLEAR_HERE = 1.0, 2.0
# Rows among which the variance of skewed scores is taken, of the neighbours on both sides at least.
_NEAR = 2_000.0
# A rate that is missed above has at least so many expected events: fewer are not excluded by none at all.
_MISSABLE = 4.0
_STEPS = 50  # of bisection
_SMALL = 1e-3  # a skewness that changes nothing


def band_ends(process: Process, mass: Tensor, options: IntervalOptions) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper end of the mean at each point, for all points together."""
    curve, level = process.curve, options.confidence_level
    mean, largest = process.mean[:, 0] + curve.overall, _largest_error(process, options)
    scores = curve.f[:, 0] + curve.overall
    least, most = scores.min(), scores.max()
    if bool(((scores == least) | (scores == most)).all() & (least < most)):
        reach = most - least
        low, high = _rate_ends(process, (mean - least) / reach, float(reach), mass, largest, level)
        return least + reach * low, least + reach * high
    below, above = skewed_reach(process, mass, largest)
    return mean - below, mean + above


def _largest_error(process: Process, options: IntervalOptions) -> float:
    """Return what the largest error over its deviation exceeds with the chance that is left."""
    known = bool((process.variance > 1e-9 * process.common).all())
    if not (known and process.curve.covariance is not None):
        # Errors of cells are independent. Where groups are in several cells the limit still holds (Sidak).
        return -float(ndtri(0.5 * (1.0 - options.confidence_level ** (1.0 / len(process.mean)))))
    draws = process.draws(options.n_draws, options.generator)
    largest = torch.cat([process.largest_deviation(errors[..., 0]) for errors, _ in draws])
    return float(largest.quantile(options.confidence_level))


# ---- scores ------------------------------------------------------------------------------------------------


class _Skew(NamedTuple):
    """The third moment of the error at each point, and how clear its sign is."""

    third: Tensor
    middle: Tensor  # the sum of its parts' signed powers 3/2, over its standard error
    below: Tensor  # the weight of parts below zero less that above, over its standard error

    @classmethod
    def of(cls, process: Process) -> tuple[_Skew, _Skew]:
        """Return that of the rows behind each point, and that of all rows around the curve."""
        places = process.curve.places
        w, place = places.w, torch.repeat_interleave(torch.tensor(places.sizes))
        x = w * (process.curve.f[:, 0] - process.curve.gaps[place, 0])
        x = torch.where(x.abs() > 1e-9 * x.abs().max(), x, 0.0)  # errors of rounding have a sign too
        if places.units is None:
            sums = [places.sums(part) for part in _powers(x, w)]
            whole = [part.sum()[None] for part in sums]
        else:
            unit, share = places.by_unit(x), places.by_unit(w)
            sums, whole = _unit_powers(unit, share), _unit_powers(*map(_over_places, (unit, share)))
        mass = process.curve.mass
        powers = zip(sums, (3.0, 1.5, 3.0, 1.0, 2.0), strict=True)
        return cls._of([part / mass**power for part, power in powers]), cls._of(whole)

    @classmethod
    def _of(cls, sums: list[Tensor]) -> _Skew:
        third, middle, cubes, below, squares = sums
        roots = (x.clamp_min(1e-300).sqrt() for x in (cubes, squares))
        return cls(third, middle / next(roots), below / next(roots))

    def clear(self, side: float, least: float) -> Tensor:
        """Return how clear it is that the long tail is on this side, from 0 to 1."""
        counted = torch.where(side * self.third > 0.0, side * self.below, 0.0)
        score = torch.maximum(side * self.middle, counted).clamp_min(1e-9)
        return (1.0 - least / score.square()).clamp_min(0.0)


def _powers(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Return what the sums of :class:`_Skew` are of, for parts of an error and the weights of their rows."""
    size, sign = x.abs(), x.sign()
    return x**3, sign * size**1.5, size**3, -w * sign, w * w


def _unit_powers(unit: sparse.csr_matrix, share: sparse.csr_matrix) -> list[Tensor]:
    """Return the same for the errors and the weights of units, summed over units at each place."""
    size, sign = abs(unit), unit.sign()
    signed = size.power(1.5).multiply(sign), share.multiply(-sign)
    parts = unit.power(3), signed[0], size.power(3), signed[1], share.power(2)
    return [torch.from_numpy(np.asarray(part.sum(axis=1)))[:, 0] for part in parts]


def _over_places(by_unit: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return the sum over all places, one row."""
    return sparse.csr_matrix(by_unit.sum(axis=0))


def skewed_reach(process: Process, mass: Tensor, largest: float) -> tuple[Tensor, Tensor]:
    """Return how far each mean may be above and below the true one, if normal errors reach ``largest``."""
    here, whole = _Skew.of(process)
    behind, curve = process.behind, process.curve
    student = student_quantile(process.degrees(), largest)
    # The skewness of a mean by the rows behind it, and by all rows.
    shown = (process.variance - process.lacking).clamp_min(1e-300) / process.stretch.square()
    own = torch.where(shown > 1e-12 * process.common, here.third / shown**1.5, 0.0)
    third = float(mass @ (here.third / behind.square()) / mass.sum())
    common = third / max(curve.pooled, 1e-200) ** 1.5 * behind.sqrt()
    of_row = (process.variance - process.lacking) / behind
    near = curve.variance_near(of_row, process.rows, _NEAR, 1)
    others = torch.maximum(process.common, near * behind)
    least = torch.where(process.variance > 1e-9 * process.common, SMALLEST_PART, 1.0) * process.common
    variance = torch.maximum(process.variance, least)
    reach = []
    for side in (-1.0, 1.0):  # the lower end is the heavy one of a long tail below
        heavy, light = (sign * side for sign in (1.0, -1.0))
        of_all, of_here = whole.clear(heavy, _CLEAR_OF_ALL), here.clear(heavy, _CLEAR_HERE)
        doubt = torch.maximum(of_all, of_here)
        wide = variance + doubt * (others - variance).clamp_min(0.0)
        agreed = [torch.minimum(sign * own, sign * common).clamp_min(0.0) for sign in (heavy, light)]
        quantile = student * gamma_quantile(largest, of_all * agreed[0]) / largest
        by_own = hall_quantile(student, whole.clear(light, _CLEAR_OF_ALL) * agreed[1])
        quantile = torch.where(by_own < student, by_own, quantile)
        reach.append(quantile * wide.sqrt())
    return reach[0], reach[1]


def gamma_quantile(largest: float, skewness: Tensor) -> Tensor:
    """Return how far below its mean a gamma law of deviation one lies with the chance of a normal law."""
    c = skewness.clamp_min(_SMALL).numpy()
    shape = 4.0 / c**2
    below = (shape - gammaincinv(shape, ndtr(-largest))) / np.sqrt(shape)
    return torch.where(skewness > _SMALL, torch.from_numpy(below), largest)


def hall_quantile(quantile: Tensor, skewness: Tensor) -> Tensor:
    """Return the t that Hall's transform of a positively skewed mean takes to a quantile.

    It is the cube g(t) = t + c t^2 / 3 + c^2 t^3 / 27 + c / 6, turned for the end below the mean.
    """
    c = skewness.clamp_min(_SMALL)
    found = 3.0 / c * ((1.0 + c * (quantile - c / 6.0)) ** (1.0 / 3.0) - 1.0)
    return torch.where(skewness > _SMALL, found, quantile)


# ---- rates -------------------------------------------------------------------------------------------------


def _rate_ends(
    process: Process, rate: Tensor, reach: float, mass: Tensor, largest: float, level: float
) -> tuple[Tensor, Tensor]:
    """Return binomial limits of rates, for as many equal rows as give their variance.

    At the upper end only rates of about four or more expected events can be missed: of fewer, the limit of
    none at all holds them. There are no more such points than a fourth of all events. Likewise below.
    """
    rate = rate.clamp(0.0, 1.0)
    flat = rate * (1.0 - rate) * process.behind  # the variance of equal rows
    shown = (process.variance - process.lacking) / (reach * process.stretch).square()
    known = float(mass @ (flat / process.behind))
    by_all = float(mass @ (shown / process.behind)) / known if known > 0.0 else 1.0
    effect = torch.where(flat > 0.0, shown / flat.clamp_min(1e-300), by_all).clamp_min(by_all)
    places = process.curve.places
    alone = places.sums(places.w.square()) / process.curve.mass.square()  # as if no row depended on another
    rows = 1.0 / torch.maximum(process.behind * effect, alone)
    tail, half = float(ndtr(-largest)), 0.5 * (1.0 - level)
    ends = []
    for share in (1.0 - rate, rate):
        events = float(rows @ share)
        missable = max(1.0, (events + 2.0 * math.sqrt(events) + 1.0) / _MISSABLE)
        ends.append(rate_limit(rows, share, max(tail, half / missable)))
    return 1.0 - ends[0], ends[1]


def rate_limit(rows: Tensor, rate: Tensor, tail: float) -> Tensor:
    """Return the upper mid-p limit of a rate: P(X < x) + P(X = x) / 2 = tail for x events of rows."""
    n, x = rows.numpy(), (rows * rate).numpy()
    low, high = rate.numpy().copy(), np.ones(len(n))
    for _ in range(_STEPS):
        p = 0.5 * (low + high)
        # P(X <= x) is the chance that a beta law of x + 1 and n - x exceeds p.
        upto = np.where(n - x > 1e-9, 1.0 - betainc(x + 1.0, np.maximum(n - x, 1e-9), p), 1.0)
        before = np.where(x > 1e-9, 1.0 - betainc(np.maximum(x, 1e-9), n - x + 1.0, p), 0.0)
        few = 0.5 * (upto + before) < tail
        low, high = np.where(few, low, p), np.where(few, p, high)
    return torch.from_numpy(0.5 * (low + high))
