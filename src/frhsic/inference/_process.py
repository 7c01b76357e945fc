"""The error of a conditional mean along S, as a Gaussian multiplier process.

With weights w of sum one, W_ai is w_i over the weight of cell a for the rows i of that cell, else zero, and
the curve is m(a) = sum_i W_ai f_i. Its error in all cells at once has, for large n, the law that the rows as
they are give to

    e*_a = sum_i xi_i W_ai (f_i - m(a)),        xi_i independent standard normal,

with one xi for all rows of a unit (a person, a household) where rows of one unit may depend on one another.
The true error is centred at the mean of the population within each cell. f may be a vector, such as several
scores or decisions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import torch
from scipy.special import ndtr, stdtrit
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.inference._places import Places, gather_rows, roots
from frhsic.inference._question import Observations
from frhsic.numerics._cells import Cells

# The process of a mean over s is drawn at no more places than this; of more at half as many of equal mass.
_POINTS = 256
# A point that fewer rows stand behind has no trustworthy variance of its own. Simulated at n = 200: with ten
# instead of thirty, bands at 95 % cover 0.82 to 0.92.
FEW = 30.0
# Of a skewed score even a hundred rows are few, and a cell without any event shows no variance at all: up to
# so many rows its variance is not below that of all rows around the curve, above not below a part of it.
_SKEWED, SMALLEST_PART = 200.0, 1.0 / 16.0
# Nor is it below that variance where it may be off by more than one over the root of this number: that of n
# rows has the relative variance (kurtosis - 1) / n, which of rare events is one over their number.
_EVENTS = 40.0
# With so many deviations a limit of a mean of bounded scores is found: the reach of a band at 100 values.
_REACH = 3.5
# Numbers of a block of multipliers (32 MB).
_BLOCK = 4_000_000


class Smoothed:
    """Means of features within cells of s, with what their errors need."""

    def __init__(self, features: Tensor, places: Places, cells: Cells) -> None:
        self.places, self.cells = places, cells
        f, w = features[places.rows], places.w
        self.overall = places.w @ f  # (r,)
        self.f = f = f - self.overall  # (m, r), in the order of places.rows
        self.mass = places.sums(w)  # (M,)
        self.gaps = places.sums(w[:, None] * f) / self.mass[:, None]  # (M, r), means less the overall mean
        self.covariance = places.covariance(f)
        self.pooled, self.single = self._variance_around()

    def _variance_around(self) -> tuple[float, float]:
        """Return the variance of f around the curve, and the share of rows that stand alone in a cell."""
        mass, w = self.mass, self.places.w
        behind = self.places.sums(w * w) / mass.square()  # one over the number of rows in a cell
        by_units = None
        if self.covariance is not None:
            by_units, behind = _unit_variance(self.covariance, mass, self.gaps)
        several = behind < 0.75
        share = float(mass[several].sum())
        if share < 0.5:
            must = "have at least two rows (or groups) behind most points of the curve, for a variance"
            fix = "Merge values of 's', so that more rows share one."
            raise ArgumentError("s", must, f"{share:.0%} of the rows at such points", fix)
        if by_units is not None:
            spread = by_units / (behind * (1.0 - behind)).clamp_min(1e-300)
            return float((mass * spread)[several].sum()) / share, 1.0 - share
        squares = self.places.sums(w * self.f.square().sum(dim=1)) - mass * self.gaps.square().sum(dim=1)
        around = squares.clamp_min(0.0) / (1.0 - behind).clamp_min(0.25)
        return float(around[several].sum()) / share, 1.0 - share

    def column(self, k: int) -> Smoothed:
        """Return the curve of one feature, with the variance of that feature alone."""
        column = copy.copy(self)
        column.f, column.gaps = self.f[:, k : k + 1], self.gaps[:, k : k + 1]
        column.overall = self.overall[k : k + 1]
        if self.covariance is not None:
            features = torch.tensor([0, k + 1])
            column.covariance = self.covariance[features][:, :, features]
        column.pooled, column.single = column._variance_around()
        return column

    @property
    def target(self) -> str:
        """What the curve estimates."""
        return _targets(self.cells)[0]

    @property
    def target_of_gdp(self) -> str:
        """What the mean over s of the gap of the curve estimates."""
        return _targets(self.cells)[1]

    def notes(self) -> tuple[str, ...]:
        """Return a note if some rows have no variance of their own."""
        alone = f"{self.single:.1%} of the rows stand alone at their value of s"
        return () if self.single < 1e-9 else (f"{alone}: their variance is that of all.",)

    def points(self) -> tuple[Tensor, Tensor]:
        """Return the places at which the error is drawn for a mean over s, and the mass that each has."""
        if len(self.mass) <= _POINTS:
            return torch.arange(len(self.mass)), self.mass
        middles = (torch.arange(_POINTS // 2, dtype=self.mass.dtype) + 0.5) / (_POINTS // 2)
        at = torch.searchsorted(self.mass.cumsum(0), middles).clamp_max(len(self.mass) - 1)
        at, counts = at.unique(return_counts=True)  # a heavy place stands for several shares
        return at, counts.to(self.mass) / (_POINTS // 2)

    def variance_near(
        self, variance: Tensor, rows: Tensor, enough: float = _SKEWED, least: int = 0
    ) -> Tensor:
        """Return the variance of a row around the curve near each place, and not below that of all rows.

        Near are so many neighbouring cells on both sides, at least ``least``, as have ``enough`` degrees of
        freedom together: a score may vary more among the oldest, of whom there are few at each age.
        """
        pooled = torch.full_like(variance, self.pooled)
        if self.cells.kinds != ("continuous",):
            return pooled
        free = (rows - 1.0).clamp_min(0.0)
        known, sums = torch.zeros_like(free), torch.zeros_like(free)
        upto = [torch.cat((x.new_zeros(1), x.cumsum(0))) for x in (free, free * variance)]
        here = torch.arange(len(free))
        for reach in range(len(free)):
            first, last = (here - reach).clamp_min(0), (here + reach + 1).clamp_max(len(free))
            few = (known < enough) | (reach <= least)
            known = torch.where(few, upto[0][last] - upto[0][first], known)
            sums = torch.where(few, upto[1][last] - upto[1][first], sums)
            if reach >= least and bool((known >= enough).all()):
                break
        return torch.maximum(pooled, sums / known.clamp_min(1e-300))


class Process:
    """The error of a curve at some points, as a Gaussian multiplier process."""

    def __init__(self, curve: Smoothed, at: Tensor | None = None) -> None:
        self.curve, places, w, mass, gaps = curve, curve.places, curve.places.w, curve.mass, curve.gaps
        self.at = at = torch.arange(len(mass)) if at is None else at  # which of the places, (a,)
        second = w * w
        behind = places.sums(second) / mass.square()
        if curve.covariance is not None:
            own, behind = _unit_variance(curve.covariance, mass, gaps)
            fourth = torch.from_numpy(np.asarray(places.by_unit(w).power(4).sum(axis=1)))[:, 0]
        else:
            own = places.sums(second * curve.f.square().sum(dim=1))
            own = own - 2.0 * (places.sums(second[:, None] * curve.f) * gaps).sum(dim=1)
            own = (own / mass.square() + gaps.square().sum(dim=1) * behind).clamp_min(0.0)
            fourth = places.sums(second.square())
        # Squared deviations from a mean that the same rows made are too small by 1 - sum W^2.
        stretch = (1.0 - behind).clamp_min(0.5).rsqrt()
        own = own * stretch.square()
        # (sum_i W_ai^2)^2 / sum_i W_ai^4 rows stand behind the variance: fewer than behind the mean.
        rows = (1.0 + 1e-12) * behind.square() / (fourth / mass**4)  # thirty rows are not 30 less rounding
        common = curve.variance_near(own / behind, rows) * behind
        lacking = (common - own).clamp_min(0.0) * (rows < FEW)
        self.mean = gaps[at]  # (a, r), the curve less its overall mean
        self.stretch, self.rows, self.behind = stretch[at], rows[at], behind[at]
        self.variance = (own + lacking)[at]  # of the error, summed over features
        self.common = common[at]  # with the variance of all rows around the curve, or of those near
        self.lacking = lacking[at]  # the part of it that the rows behind the point do not show themselves
        # Where the own variance may be far too small, and how large that of other rows may count there.
        self.doubtful = self.rows < _SKEWED
        self.most = torch.full_like(self.common, torch.inf)
        if curve.f.shape[1] == 1:
            kurtosis, share = (x[at] for x in _spread_of_scores(curve))
            self.doubtful |= self.rows < _EVENTS * (kurtosis - 1.0)
            reach = float(curve.f.max() - curve.f.min())
            self.most = reach**2 * _largest_variance(share, self.rows) * self.behind
        self.columns: tuple[Process, ...] = ()

    @classmethod
    def of_columns(cls, curve: Smoothed, at: Tensor) -> Process:
        """Return the process with the variance of each feature by itself, as scores have it.

        Features of a kernel count only together: :attr:`variance` is then summed over them.
        """
        process = cls(curve, at)
        if curve.f.shape[1] > 1:
            process.columns = tuple(cls(curve.column(k), at) for k in range(curve.f.shape[1]))
        return process

    def limits_of_columns(self, largest: float, fewest: float = FEW) -> Tensor:
        """Return how far each feature may be off at each point, shape ``(a, r)``; see :meth:`limits`."""
        return torch.stack([one.limits(largest, fewest) for one in self.columns or (self,)], dim=1)

    def limits(self, largest: float, fewest: float = FEW) -> Tensor:
        """Return how far the curve may be off at each point, if errors of deviation one reach ``largest``.

        A variance of thirty rows is itself uncertain: the tail of the normal law beyond ``largest`` is taken
        under Student's law instead, with at least ``fewest`` rows.
        """
        variance, degrees = self.trusted(fewest)
        return student_quantile(degrees, largest) * variance.sqrt()

    def trusted(self, fewest: float = FEW) -> tuple[Tensor, Tensor]:
        """Return the variance of the error at each point, not below that of other rows, and its degrees."""
        many = torch.where(self.doubtful, torch.minimum(self.common, self.most), SMALLEST_PART * self.common)
        least = torch.where(self.rows < _SKEWED, self.common, many)
        return torch.maximum(self.variance, least), self.degrees(fewest)

    def degrees(self, fewest: float = FEW) -> Tensor:
        """Return the degrees of freedom of the variance at each point, of at least so many rows."""
        # A variance that is pooled over all points has no more of them than there are rows.
        places = self.curve.places
        free = max(2.0, places.effective - len(places.sizes) + 1.0)
        return self.rows.clamp_min(fewest).clamp_max(free) - 1.0

    def largest_deviation(self, errors: Tensor) -> Tensor:
        """Return the largest over points of |e*| ``(a, b)`` over its deviation, shape ``(b,)``."""
        # A point without variance has errors of rounding only.
        deviation = torch.maximum(self.variance, 1e-9 * self.common).sqrt().clamp_min(1e-300)
        return (errors.abs() / deviation[:, None]).amax(dim=0)

    def draws(
        self, n_draws: int, generator: torch.Generator, *, gap: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield e* ``(a, b, r)`` and the multipliers summed over places, sum_i w_i xi_i ``(M, b)``.

        With ``gap`` the error of the overall mean is taken off: e* is then that of m(a) - mean.
        """
        places, f = self.curve.places, self.curve.f
        m, r = f.shape
        M, a = len(places.sizes), len(self.at)
        X = places.w[:, None] * torch.cat((torch.ones_like(f[:, :1]), f), dim=1)  # (m, 1 + r)
        # sum_i xi_i X_i over the rows at a place is normal with covariance sum_i X_i X_i': many rows need no
        # multipliers of their own.
        many = m > M * (1 + r)
        parts = X.split(places.sizes)
        covariance = self.curve.covariance
        joint = None if covariance is None else roots(covariance.reshape(M * (1 + r), -1))
        root_at_place = roots(torch.stack([rows.mT @ rows for rows in parts])) if many else None
        root = None
        lacking = torch.stack([one.lacking for one in self.columns or (self,)], dim=1)  # (a, r) or (a, 1)
        if bool((lacking > 0).any()):
            second = (f * places.w[:, None]).mT @ f
            # The correlation of features with lacks of their own; else their covariance, of trace one.
            size = second.diagonal().sqrt() if self.columns else second.trace().sqrt()[None]
            root = roots(second / (size[:, None] * size).clamp_min(1e-300))
        block = max(1, min(n_draws, _BLOCK // max(0 if many else m, (M + a) * (1 + r))))
        for start in range(0, n_draws, block):
            b = min(block, n_draws - start)
            if joint is not None:
                xi = torch.randn((b, len(joint)), generator=generator, dtype=torch.float64)
                sums = (xi @ joint).reshape(b, 1 + r, M).permute(2, 0, 1)
            elif root_at_place is not None:
                xi = torch.randn((M, b, 1 + r), generator=generator, dtype=torch.float64)
                sums = xi @ root_at_place  # (M, b, 1 + r)
            else:
                xi = torch.randn((m, b), generator=generator, dtype=torch.float64)
                if m == M:
                    sums = xi[:, :, None] * X[:, None, :]
                else:
                    pairs = zip(xi.split(places.sizes), parts, strict=True)
                    sums = torch.stack([multipliers.mT @ rows for multipliers, rows in pairs])
            means = sums[self.at] / self.curve.mass[self.at, None, None]
            errors = (means[..., 1:] - means[..., :1] * self.mean[:, None, :]) * self.stretch[:, None, None]
            if root is not None:
                fresh = torch.randn((a, b, r), generator=generator, dtype=torch.float64) @ root
                errors += lacking.sqrt()[:, None, :] * fresh
            if gap:
                errors -= sums[..., 1:].sum(dim=0)
            yield errors, sums[..., 0]


def _spread_of_scores(curve: Smoothed) -> tuple[Tensor, Tensor]:
    """Return the kurtosis of one score at each place, or of all if that is larger, and where its mean lies.

    The mean is given as a share of the range of the scores.
    """
    places, f, mean = curve.places, curve.f[:, 0], curve.gaps[:, 0]
    reach = (f.max() - f.min()).clamp_min(1e-300)
    share = ((mean - f.min()) / reach).clamp(0.0, 1.0)
    place = torch.repeat_interleave(torch.tensor(places.sizes))
    around = (f - mean[place]) / reach
    second, fourth = (places.sums(places.w * around**k) for k in (2, 4))
    pooled, here = float(second.sum()), second / curve.mass
    own = (fourth / curve.mass) / here.square().clamp_min(1e-300)
    # Without any variance nothing is known of it.
    own = torch.where(here > 1e-12 * pooled, own, torch.inf)
    return own.clamp_min(float(fourth.sum()) / max(pooled**2, 1e-300)), share


def _largest_variance(share: Tensor, rows: Tensor) -> Tensor:
    """Return the largest variance of scores between 0 and 1 that is plausible for a mean of so many.

    Scores with the mean p have at most the variance p (1 - p), and p is taken at the end of the interval of
    Wilson that is nearer to one half.
    """
    p, z = torch.minimum(share, 1.0 - share), _REACH**2 / rows
    end = (p + 0.5 * z + (z * (p * (1.0 - p) + 0.25 * z)).sqrt()) / (1.0 + z)
    end = end.clamp_max(0.5)
    return end * (1.0 - end)


def student_quantile(degrees: Tensor, largest: float) -> Tensor:
    """Return what Student's law exceeds as seldom as the normal law exceeds ``largest``."""
    return -torch.from_numpy(stdtrit(degrees.numpy(), ndtr(-largest)))


def _targets(cells: Cells) -> tuple[str, str]:
    """Return what the means within cells estimate, and what their GDP does, under which assumption."""
    if cells.exact:
        return "the true curve, value by value", "the GDP of the true curve"
    wide, name = cells.mass[~cells.single], " and ".join(cells.names)
    single = cells.size - len(wide)
    ranges = f"{len(wide)} range{'' if len(wide) == 1 else 's'} of {name}"
    if single:
        ranges += f" (and at {single} single value{'' if single == 1 else 's'})"
    narrow = cells.narrow and len(cells.names) == 1
    share = f"about {100.0 * min(1.0, (3 if narrow else 1) * float(wide.median())):.2g} % of the rows"
    if not narrow:
        means = f"within {ranges}, of {share} each"
        return (
            f"the mean score {means}",
            f"the GDP of means {means}; that of the true curve is at least as large",
        )
    monotone = "if it only rises or only falls within any three neighbouring ranges"
    return (
        f"the true curve between {ranges}, with means within the outermost two, {monotone}, {share}",
        "the GDP of the true curve; the lower end holds for any curve, the upper end "
        f"{monotone} of {name}, {share}",
    )


def _unit_variance(covariance: Tensor, mass: Tensor, gaps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variance of e*_a, summed over features, and sum_u W_au^2, W_au the share of unit u at a."""
    own_parts = covariance.diagonal(dim1=1, dim2=3).permute(2, 0, 1) / mass.square()[:, None, None]
    behind = own_parts[:, 0, 0]
    own = behind * gaps.square().sum(dim=1) + own_parts[:, 1:, 1:].diagonal(dim1=1, dim2=2).sum(dim=1)
    own = own - 2.0 * (gaps * own_parts[:, 0, 1:]).sum(dim=1)
    return own.clamp_min(0.0), behind


def smooth_rows(rows: Observations, cells: Cells | None = None) -> Smoothed:
    """Return the means of the scores within cells of s."""
    cells = cells or Cells.of(rows.s, rows.weights, rows.effective_units)
    places = gather_rows(cells.codes(rows.s), rows.weights, rows.groups, " and ".join(rows.s.names))
    return Smoothed(rows.z, places, cells)
