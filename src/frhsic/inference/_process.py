"""The error of a conditional mean along S, as a Gaussian multiplier process.

With weights w of sum one and a smoothing kernel kappa along S (exact match within cells), W_ai is w_i
kappa(a, s_i) divided by its sum over i, and the curve is m(a) = sum_i W_ai f_i. Its error at all points a at
once has, for large n, the law that the rows as they are give to

    e*_a = sum_i xi_i W_ai (f_i - m(a)),        xi_i independent standard normal,

with one xi for all rows of a unit (a person, a household) where rows of one unit may depend on one another.
The true error is centred at the curve of the population *under the same kernel*: the mean within each cell,
or the smoothed curve. f may be a vector, such as the feature map of a kernel: then m is an embedding of the
conditional law.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy import sparse
from scipy.special import ndtr, stdtrit
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.inference._places import Places, equal_mass, gather_rows, line_places, roots
from frhsic.inference._question import Observations
from frhsic.numerics._cells import Cells
from frhsic.numerics._smoothing import bandwidths_of, log_kernel, smoothing_weights
from frhsic.sketching import HSICSketch, SensitiveLine

# The process of a mean over s is evaluated at no more points than this.
_POINTS = 128
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
    """A curve of features along s, with what its error needs."""

    def __init__(
        self,
        features: Tensor,
        places: Places,
        bandwidths: Sequence[float],
        missing: Tensor | None = None,
        cells: Cells | None = None,
        stored: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.places, self.bandwidths, self.cells = places, bandwidths, cells
        # Scores around the curve and their weights, where a place has only their mean and variance.
        self.stored = stored
        f, w = features[places.rows], places.w
        self.overall = places.shares @ f  # (r,)
        self.f = f = f - self.overall  # (m, r), in the order of places.rows
        # What the features leave out of the squared norm of a row, (m,).
        self.missing = f.new_zeros(len(f)) if missing is None else missing[places.rows]
        self.mass, self.sums = places.sums(w), places.sums(w[:, None] * f)  # (M,), (M, r)
        weights = smoothing_weights(log_kernel(places.s, places.s, places.kinds, bandwidths), self.mass)
        self.smoother = weights / self.mass  # (M, M), the curve at the places from their sums
        self.gaps = self.smoother @ self.sums  # (M, r), the curve at the places, less the overall mean
        self.covariance = places.covariance(f)
        # Whether the smoothing does not reach from one value of s to the next.
        self.by_value = places.widths is None and bool((weights.diagonal() >= 1.0 - 1e-6).all())
        self.pooled, self.single = self._variance_around()

    def _variance_around(self) -> tuple[float, float]:
        """Return the variance of f around the curve, and the share of rows that stand alone at a point."""
        places, mass, gaps, w = self.places, self.mass, self.gaps, self.places.w
        squares = places.sums(w * w)
        behind = self.smoother.square() @ squares  # sum_j W_ij^2: one over the number of rows behind a point
        by_units = None
        if self.covariance is not None:
            by_units, behind = _unit_variance(self.covariance, self.smoother, gaps)
        several = behind < 0.75
        if places.widths is not None:  # rows of a bin share their weights if it is narrow
            several &= places.widths <= self.bandwidths[0]
        share = float(mass[several].sum())
        if share < 0.5:
            must = "have at least two rows (or groups) behind most points of the curve, for a variance"
            fix = "Merge values of 's', so that more rows share one."
            raise ArgumentError("s", must, f"{share:.0%} of the rows at such points", fix)
        if by_units is not None:
            spread = by_units / (behind * (1.0 - behind)).clamp_min(1e-300)
            return float((mass * spread)[several].sum()) / share, 1.0 - share
        # Row i around the curve has the variance of f times 1 - 2 W_ii + sum_j W_ij^2.
        shrunk = 1.0 - 2.0 * self.smoother.diagonal() * squares / mass + behind
        norms = self.f.square().sum(dim=1) + self.missing
        around = places.sums(w * norms) - 2.0 * (gaps * self.sums).sum(dim=1)
        around = (around + mass * gaps.square().sum(dim=1)).clamp_min(0.0) / shrunk.clamp_min(0.25)
        return float(around[several].sum()) / share, 1.0 - share

    def column(self, k: int) -> Smoothed:
        """Return the curve of one feature, with the variance of that feature alone."""
        one = copy.copy(self)
        one.f, one.sums, one.gaps = (x[:, k : k + 1] for x in (self.f, self.sums, self.gaps))
        one.overall, one.missing = self.overall[k : k + 1], torch.zeros_like(self.missing)
        if self.covariance is not None:
            kept = torch.tensor([0, k + 1])
            one.covariance = self.covariance[kept][:, :, kept]
        one.pooled, one.single = one._variance_around()
        return one

    @property
    def target(self) -> str:
        """What the curve estimates."""
        if self.cells is not None:
            return _targets(self.cells)[0]
        if self.by_value:
            return "the true curve, value by value"
        columns = zip(self.bandwidths, self.places.kinds, strict=True)
        widths = " and ".join(f"{h:.3g}" for h, kind in columns if kind == "continuous")
        return f"the curve smoothed along s with bandwidth {widths}, not the true one"

    @property
    def target_of_gdp(self) -> str:
        """What the mean over s of the gap of the curve estimates."""
        return f"the GDP of {self.target}" if self.cells is None else _targets(self.cells)[1]

    def notes(self) -> tuple[str, ...]:
        """Return a note if some rows have no variance of their own."""
        alone = f"{self.single:.1%} of the rows stand alone at their value of s"
        return () if self.single < 1e-9 else (f"{alone}: their variance is that of all.",)

    def points(self) -> tuple[Tensor, Tensor]:
        """Return where the error is evaluated for a mean over s, and the mass of each point."""
        few = len(self.places.sizes) <= (2 * _POINTS if self.by_value else _POINTS)
        return (self.places.s, self.mass) if few else equal_mass(self.places, _POINTS)

    def variance_near(
        self, variance: Tensor, rows: Tensor, enough: float = _SKEWED, least: int = 0
    ) -> Tensor:
        """Return the variance of a row around the curve near each point, and not below that of all rows.

        Near are so many neighbouring cells on both sides, at least ``least``, as have ``enough`` degrees of
        freedom together: a score may vary more among the oldest, of whom there are few at each age.
        """
        pooled = torch.full_like(variance, self.pooled)
        if self.cells is None or self.cells.kinds != ("continuous",):
            return pooled
        free = (rows - 1.0).clamp_min(0.0)
        known, sums = torch.zeros_like(free), torch.zeros_like(free)
        upto = [torch.cat((x.new_zeros((1, 1)), x.cumsum(0))) for x in (free, free * variance)]
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

    def __init__(self, curve: Smoothed, points: Tensor) -> None:
        self.curve, places, w = curve, curve.places, curve.places.w
        log = log_kernel(points, places.s, places.kinds, curve.bandwidths)
        self.P = P = smoothing_weights(log, curve.mass) / curve.mass  # (a, M): W_ai = P_ag w_i at place g
        self.mean = mean = P @ curve.sums  # (a, r), the curve less its overall mean
        square, second = P.square(), (w * w)[:, None]
        norms = (curve.f.square().sum(dim=1) + curve.missing)[:, None]
        behind = square @ places.sums(second)
        own = square @ places.sums(second * norms)
        own = own - 2.0 * ((square @ places.sums(second * curve.f)) * mean).sum(dim=1, keepdim=True)
        own = (own + mean.square().sum(dim=1, keepdim=True) * behind).clamp_min(0.0)
        rows = square.square() @ places.sums(second.square())
        if curve.covariance is not None:
            own, behind = (x[:, None] for x in _unit_variance(curve.covariance, P, mean))
            shares = sparse.csr_matrix(P.numpy()) @ places.by_unit(w)
            rows = torch.from_numpy(np.asarray(shares.power(4).sum(axis=1)))
        # Squared deviations from a mean that the same rows made are too small by 1 - sum W^2.
        stretch = (1.0 - behind).clamp_min(0.5).rsqrt()
        own = own * stretch.square()
        # (sum_i W_ai^2)^2 / sum_i W_ai^4 rows stand behind the variance: fewer than behind the mean.
        rows = behind.square() / rows
        common = curve.variance_near(own / behind, rows) * behind
        lacking = (common - own).clamp_min(0.0) * (rows < FEW)
        self.stretch, self.rows, self.behind = stretch[:, 0], rows[:, 0], behind[:, 0]
        self.variance = (own + lacking)[:, 0]  # of the error, summed over features
        self.common = common[:, 0]  # with the variance of all rows around the curve, or of those near
        self.lacking = lacking[:, 0]  # the part of it that the rows behind the point do not show themselves
        # Where the own variance may be far too small, and how large that of other rows may count there.
        self.doubtful = self.rows < _SKEWED
        self.most = torch.full_like(self.common, torch.inf)
        if curve.f.shape[1] == 1:
            kurtosis, share = _spread_of_scores(curve, P, mean[:, 0])
            self.doubtful |= self.rows < _EVENTS * (kurtosis - 1.0)
            if curve.stored is None:
                reach = float(curve.f.max() - curve.f.min())
                self.most = reach**2 * _largest_variance(share, self.rows) * behind[:, 0]
        self.columns: tuple[Process, ...] = ()

    @classmethod
    def of_columns(cls, curve: Smoothed, points: Tensor) -> Process:
        """Return the process with the variance of each feature by itself, as scores have it.

        Features of a kernel count only together: :attr:`variance` is then summed over them.
        """
        found = cls(curve, points)
        if curve.f.shape[1] > 1:
            found.columns = tuple(cls(curve.column(k), points) for k in range(curve.f.shape[1]))
        return found

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
        M, a = len(places.sizes), len(self.P)
        X = places.w[:, None] * torch.cat((torch.ones_like(f[:, :1]), f), dim=1)  # (m, 1 + r)
        if places.counts is not None:
            X = places.counts.sqrt()[:, None] * X  # as the sum of so many multipliers
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
            second = (f * places.shares[:, None]).mT @ f
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
            smooth = (self.P @ sums.reshape(M, -1)).reshape(a, b, 1 + r)
            errors = (smooth[..., 1:] - smooth[..., :1] * self.mean[:, None, :]) * self.stretch[:, None, None]
            if root is not None:
                fresh = torch.randn((a, b, r), generator=generator, dtype=torch.float64) @ root
                errors += lacking.sqrt()[:, None, :] * fresh
            if gap:
                errors -= sums[..., 1:].sum(dim=0)
            yield errors, sums[..., 0]


def _spread_of_scores(curve: Smoothed, P: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return the kurtosis of one score at each point, or of all if that is larger, and where its mean lies.

    The mean is given as a share of the range of the scores.
    """
    places, f = curve.places, curve.f[:, 0]
    reach = (f.max() - f.min()).clamp_min(1e-300)
    share = ((mean - f.min()) / reach).clamp(0.0, 1.0)
    if curve.stored is not None:
        x, w = curve.stored
        return torch.full_like(mean, float(w @ x**4) / max(float(w @ x**2) ** 2, 1e-300)), share
    place = torch.repeat_interleave(torch.tensor(places.sizes))
    around = (f - curve.gaps[place, 0]) / reach
    second, fourth = (places.sums(places.w * around**k) for k in (2, 4))
    pooled, here = float(second.sum()), P @ second
    own = (P @ fourth) / here.square().clamp_min(1e-300)
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


def _unit_variance(covariance: Tensor, P: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variance of e*_a, summed over features, and sum_u W_au^2, W_au the share of unit u at a."""
    behind = torch.einsum("ag,gh,ah->a", P, covariance[0, :, 0], P)
    own = behind * mean.square().sum(dim=1)
    for k in range(1, len(covariance)):
        own = own + torch.einsum("ag,gh,ah->a", P, covariance[k, :, k], P)
        own = own - 2.0 * mean[:, k - 1] * torch.einsum("ag,gh,ah->a", P, covariance[0, :, k], P)
    return own.clamp_min(0.0), behind


def smooth_rows(
    rows: Observations,
    generator: torch.Generator,
    bandwidths: Sequence[float] | None = None,
    cells: Cells | None = None,
) -> Smoothed:
    """Return the curve of the scores along s: means within cells of s, or smoothed with bandwidths."""
    s, w = rows.s, rows.weights
    if bandwidths is not None:
        return Smoothed(rows.z, gather_rows(s, w, generator, rows.groups), bandwidths)
    cells = cells or Cells.of(s, w, rows.effective_units)
    places = gather_rows(cells.as_sensitive(s), w, generator, rows.groups)
    return Smoothed(rows.z, places, [1.0], cells=cells)


def smooth_sketch(
    sketch: HSICSketch, line: SensitiveLine, bandwidth_s: float | None, span: float
) -> Smoothed | None:
    """Return the curve of a sketch, or None if a few outliers stretch its grid too far for the cells."""
    stored = _stored_around(sketch)
    if bandwidth_s is not None:
        f, places = line_places(line)
        return Smoothed(f, places, bandwidths_of(line.s, bandwidth_s, span, None), stored=stored)
    cells = Cells.of(line.s, line.mass, sketch.effective_rows)
    if line.step > 0.0 and float(line.mass.max()) > 1.5 / cells.size:
        return None
    cells = replace(cells, low=cells.low - line.step, high=cells.high + line.step)
    f, places = line_places(line, cells)
    return Smoothed(f, places, [1.0], cells=cells, stored=stored)


def _stored_around(sketch: HSICSketch) -> tuple[Tensor, Tensor]:
    """Return the scores of the stored rows of a sketch around their means within cells, and their weights."""
    z, s, w = sketch.stored
    w = w / w.sum()
    code = Cells.of(s, w).codes(s)
    mass, sums = (w.new_zeros(int(code.max()) + 1).index_add(0, code, x) for x in (w, w * z[:, 0]))
    return z[:, 0] - (sums / mass.clamp_min(1e-300))[code], w
