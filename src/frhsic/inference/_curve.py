"""The conditional mean along S: its error as a Gaussian multiplier process, and a band for the whole curve.

With weights w of sum one and a smoothing kernel kappa along S, W_ai is w_i kappa(a, s_i) divided by its sum
over i, and the smoothed curve is m(a) = sum_i W_ai f_i. Its error at all points a at once has, for large n,
the law that the rows as they are give to

    e*_a = sum_i xi_i W_ai (f_i - m(a)),        xi_i independent standard normal.

The true error is centred at the *smoothed* curve of the population: a fixed bandwidth has a bias of its own,
which no amount of rows removes and which the process does not hold. Where the smoothing does not reach from
one level of S to the next, the smoothed curve is the true one. f may be a vector, such as the feature map of
a kernel: then m is an embedding of the conditional law.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from scipy.special import ndtr, stdtrit
from torch import Tensor

from frhsic.data import Kind, Sensitive, to_generator, to_sensitive, to_vector, to_weights
from frhsic.dependence import HSICSketch
from frhsic.dependence._smoothing import (
    bandwidths_of,
    check_bandwidth,
    log_kernel,
    row_weights,
    smoothing_weights,
)
from frhsic.dependence.features import Line
from frhsic.inference._results import Curve
from frhsic.inference._sketched import refuse_beside_a_sketch

# Rows with the same or nearly the same s share their smoothing weights: they are gathered in at most so many
# groups, and the process is evaluated at no more points than that.
_GROUPS, _POINTS = 1_024, 128
# A point that fewer rows stand behind has no trustworthy variance of its own. Simulated at n = 200: with ten
# instead of thirty, bands at 95 % cover 0.82 to 0.92. Of a skewed score even fifty rows are few.
_FEW, _SKEWED = 30.0, 100.0
# Numbers of a block of multipliers (32 MB).
_BLOCK = 4_000_000
# Level means instead of smoothing: so many levels at most, of so many rows each on average.
_LEVELS, _LEVEL_ROWS = 100, 20


def conditional_curve(
    scores: object,
    s: object = None,
    *,
    level: float = 0.95,
    bandwidth_s: float = 0.1,
    smooth: bool | None = None,
    n_points: int = 200,
    n_draws: int = 999,
    random_state: object = None,
    sample_weight: object = None,
) -> Curve:
    """Return the mean score along one column of s, with a band that covers the whole curve at once.

    The band is m(a) -/+ c se(a), with c the quantile of the largest |e*_a| / se(a) over the points under
    Gaussian multipliers (sup-t): its confidence is for all points together, not for each one.

    Parameters
    ----------
    scores : array-like of shape (n,), or HSICSketch
        Scores; or a sketch of one column of scores and one of s.
    s : array-like of shape (n,) or (n, 1)
    level : float, default=0.95
        The confidence that the whole curve lies in the band.
    bandwidth_s : float, default=0.1
        Of the smoothing, as a fraction of the range of s.
    smooth : bool or None, default=None
        False takes the mean at each level of s, and the target is the true curve. None does so when s is
        categorical or has at most 100 distinct values of 20 rows on average, and smooths otherwise; then the
        target is the smoothed curve.
    n_points : int, default=200
        Points of equal mass along a smoothed curve.
    n_draws : int, default=999
        Multiplier draws.
    random_state : None, int or generator, default=None
    sample_weight : array-like of shape (n,) or None, default=None

    Returns
    -------
    Curve

    Notes
    -----
    A point behind which stand fewer than a hundred rows takes the larger of its own variance and that of all
    rows around the curve: of a handful of rows the own variance says little, and of a skewed score it is
    small just when the mean is.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 30, 2_000)
    >>> print(conditional_curve(0.1 * (age > 24) + rng.normal(size=2_000) / 10, {"age": age}, random_state=0))
    The 95% simultaneous band of the mean score along age leaves the overall mean 0.0494 at 10 of 10 points,
    between 20 and 29 (n = 2,000). Target: the true curve, level by level.
    """
    check_level(level)
    check_draws(n_draws)
    if n_points < 2:
        raise ValueError(f"'n_points' must be at least 2. Got {n_points}. Leave it out for 200.")
    check_bandwidth(bandwidth_s)
    generator = to_generator(random_state)
    line = w = None
    if isinstance(scores, HSICSketch):
        refuse_beside_a_sketch(s=s, sample_weight=sample_weight)
        line = scores.line()
        sensitive, n = line.s, scores.n_rows
    else:
        f = to_vector(scores, name="scores", min_rows=4)[:, None]
        sensitive, n = to_sensitive(s, name="s", n_rows=len(f), rows_of="scores"), len(f)
        w = to_weights(sample_weight, n_rows=n, rows_of="scores")
    if len(sensitive.names) != 1:
        raise ValueError(
            f"'s' must be one column for a curve. Got {len(sensitive.names)}. Draw one curve for each column."
        )
    if w is not None:
        f, sensitive, w = f[w > 0], sensitive[w > 0], w[w > 0] / w.sum()
        n = len(f)
    values = sensitive.values.unique()
    between = line is not None and line.step > 0.0  # rows are shared by two places
    if smooth is None:
        many = n >= _LEVEL_ROWS * len(values) and len(values) <= _LEVELS and not between
        smooth = not (many or sensitive.kinds == ("categorical",))
    if not smooth and (len(values) > _GROUPS or between):
        raise ValueError(
            f"'smooth' must not be False with more than {_GROUPS:,} distinct values of 's', or more than a "
            f"sketch keeps apart. Got {'such a sketch' if between else format(len(values), ',')}. "
            "Leave 'smooth' out, or round 's'."
        )
    # Without smoothing a level is a category: exact match.
    kinds = sensitive.kinds if smooth else ("categorical",)
    if line is None:
        groups = gathered(
            Sensitive(sensitive.values, sensitive.names, kinds), row_weights(sensitive, w), generator
        )
    else:
        f, groups = line_groups(line, kinds)
    bandwidths = bandwidths_of(sensitive, bandwidth_s, None if line is None else line.span, None)
    curve = Smoothed.of(f, groups, bandwidths)
    if not smooth or len(values) <= min(n_points, _GROUPS):
        points, mass = groups.s, curve.mass
    else:
        points, mass = equal_mass(groups, n_points)
    process = curve.at(points)
    se = process.variance.sqrt().clamp_min(1e-300)  # a constant score has no error
    largest = torch.cat(
        [(errors[..., 0].abs() / se[:, None]).amax(dim=0) for errors, _ in process.draws(n_draws, generator)]
    )
    # A variance of thirty rows is itself uncertain: the same tail of Student's law instead of the normal one.
    # And it falls with the mean when scores are skewed: not below that of all rows, then.
    tail = ndtr(-float(largest.quantile(level)))
    c = -torch.from_numpy(stdtrit(process.rows.clamp_min(_FEW).numpy() - 1.0, tail))
    se = torch.where(process.rows < _SKEWED, torch.maximum(process.variance, process.common).sqrt(), se)
    mean = process.mean[:, 0] + curve.overall
    return Curve(
        points=tuple(points[:, 0].tolist()),
        mean=tuple(mean.tolist()),
        low=tuple((mean - c * se).tolist()),
        high=tuple((mean + c * se).tolist()),
        mass=tuple(mass.tolist()),
        overall=float(curve.overall[0]),
        level=level,
        target=curve.target,
        attributes=sensitive.names,
        n=n,
    )


def line_groups(line: Line, kinds: tuple[Kind, ...]) -> tuple[Tensor, Groups]:
    """Return scores and groups that have the moments of a sketch: two rows at each place, for all there.

    They lie one deviation below and above the mean. Within a place the weights are taken as unrelated to the
    scores.
    """
    if line.mean is None or line.variance is None:
        raise ValueError("'z' must be a sketch of one column of scores here. Got several. Sketch a score.")
    K, reach = len(line.mass), line.variance.sqrt()
    scores = torch.stack((line.mean - reach, line.mean + reach), dim=1).flatten()
    w = (line.squared_mass / line.mass).repeat_interleave(2)
    counts = (0.5 * line.mass.square() / line.squared_mass).repeat_interleave(2)
    widths = torch.full((K,), line.step, dtype=torch.float64) if line.step else None
    rows = torch.arange(2 * K)
    return scores[:, None], Groups(line.s.values, kinds, rows, [2] * K, w, widths, 1.0, counts)


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


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows gathered by s: what the smoothing needs of them."""

    s: Tensor  # (M, q)
    kinds: tuple[Kind, ...]
    rows: Tensor  # (m,), sorted by group
    sizes: list[int]  # of the M groups
    w: Tensor  # (m,), in the order of rows
    widths: Tensor | None  # (M,), of bins; None when each group is one value of s
    scale: float  # sqrt(m / n) when m of n rows were drawn
    counts: Tensor | None = None  # (m,), how many equal rows each one stands for; None: one

    def sums(self, x: Tensor) -> Tensor:
        """Return the sums of x ``(m, ...)``, in the order of rows, over each group."""
        group = torch.repeat_interleave(torch.tensor(self.sizes))
        if self.counts is not None:
            x = x * self.counts.reshape(-1, *(1,) * (x.ndim - 1))
        return x.new_zeros((len(self.sizes), *x.shape[1:])).index_add(0, group, x)

    @property
    def shares(self) -> Tensor:
        """The weight of all rows that each one stands for, shape ``(m,)``."""
        return self.w if self.counts is None else self.counts * self.w


def gathered(s: Sensitive, w: Tensor, generator: torch.Generator) -> Groups:
    """Gather rows on the levels of s, or on bins of equal size along one continuous column.

    With several columns and too many levels, rows are drawn: the error process has the same law up to the
    root of the number of rows.
    """
    if len(s.names) == 1:  # ten times as quick as rows
        values, group = s.values[:, 0].unique(return_inverse=True)
        values = values[:, None]
    else:
        values, group = s.values.unique(dim=0, return_inverse=True)
    if len(values) <= _GROUPS:
        order = group.argsort(stable=True)
        return Groups(values, s.kinds, order, torch.bincount(group).tolist(), w[order], None, 1.0)
    if s.kinds == ("continuous",):
        order = s.values[:, 0].argsort(stable=True)
        parts = torch.tensor_split(s.values[order], _GROUPS)
        sizes = [len(part) for part in parts]
        centres = torch.stack([part.mean(dim=0) for part in parts])
        widths = torch.stack([part[-1, 0] - part[0, 0] for part in parts])
        return Groups(centres, s.kinds, order, sizes, w[order], widths, 1.0)
    drawn = torch.randperm(len(s), generator=generator)[:_GROUPS]
    part = w[drawn] / w[drawn].sum()
    return Groups(s.values[drawn], s.kinds, drawn, [1] * _GROUPS, part, None, (_GROUPS / len(s)) ** 0.5)


def equal_mass(groups: Groups, n_points: int) -> tuple[Tensor, Tensor]:
    """Return groups that stand for equal shares of the rows along the first column, and those shares."""
    order = groups.s[:, 0].argsort(stable=True)
    upto = groups.sums(groups.w)[order].cumsum(0)
    middles = (torch.arange(n_points, dtype=upto.dtype) + 0.5) / n_points
    places = torch.searchsorted(upto, middles).clamp_max(len(order) - 1)
    places, counts = places.unique(return_counts=True)  # a heavy group stands for several shares
    return groups.s[order[places]], counts.to(upto) / n_points


@dataclass(frozen=True, eq=False)
class Smoothed:
    """A curve of features along s, with what its error needs."""

    groups: Groups
    f: Tensor  # (m, r), centred, in the order of groups.rows
    missing: Tensor  # (m,), what the features leave out of the squared norm of a row
    overall: Tensor  # (r,), the mean that was taken off
    bandwidths: Sequence[float]
    mass: Tensor  # (M,)
    sums: Tensor  # (M, r), of w f
    gaps: Tensor  # (M, r), the curve at the groups, less the overall mean
    smoother: Tensor  # (M, M), the curve at the groups from their sums
    pooled: float  # the variance of f around the curve, all rows together
    single: float  # the share of rows at points with fewer than two rows behind them
    levels: bool  # whether the smoothing does not reach from one level of s to the next

    @classmethod
    def of(
        cls, features: Tensor, groups: Groups, bandwidths: Sequence[float], missing: Tensor | None = None
    ) -> Smoothed:
        """Gather features ``(n, r)`` on the groups."""
        f, w = features[groups.rows], groups.w
        overall = groups.shares @ f
        f = f - overall
        left = f.new_zeros(len(f)) if missing is None else missing[groups.rows]
        mass, sums, squares = groups.sums(w), groups.sums(w[:, None] * f), groups.sums(w * w)
        weights = smoothing_weights(log_kernel(groups.s, groups.s, groups.kinds, bandwidths), mass)
        P = weights / mass
        gaps = P @ sums
        behind = P.square() @ squares  # sum_j W_ij^2: one over the number of rows behind a point
        several = (behind < 0.75) & _narrow(groups, bandwidths)
        share = float(mass[several].sum())
        if share < 0.5:
            raise ValueError(
                "'s' must have at least two rows behind most points of the curve, or no variance can be "
                f"estimated. Got {share:.0%} of the rows at such points. Take a larger 'bandwidth_s'."
            )
        # Row i around the curve has the variance of f times 1 - 2 W_ii + sum_j W_ij^2.
        shrunk = 1.0 - 2.0 * P.diagonal() * squares / mass + behind
        around = groups.sums(w * (f.square().sum(dim=1) + left)) - 2.0 * (gaps * sums).sum(dim=1)
        around = (around + mass * gaps.square().sum(dim=1)).clamp_min(0.0) / shrunk.clamp_min(0.25)
        alone = groups.widths is None and bool((weights.diagonal() >= 1.0 - 1e-6).all())
        return cls(
            groups,
            f,
            left,
            overall,
            bandwidths,
            mass,
            sums,
            gaps,
            P,
            float(around[several].sum()) / share,
            1.0 - share,
            alone,
        )

    @property
    def target(self) -> str:
        """What the curve estimates."""
        if self.levels:
            return "the true curve, level by level"
        columns = zip(self.bandwidths, self.groups.kinds, strict=True)
        widths = " and ".join(f"{h:.3g}" for h, kind in columns if kind == "continuous")
        return f"the curve smoothed along s with bandwidth {widths}, not the true one"

    def notes(self) -> tuple[str, ...]:
        """Return what a reader must know about the variance."""
        if self.single < 1e-9:
            return ()
        return (
            f"{self.single:.1%} of the rows stand alone at their value of s: their variance is that of all.",
        )

    def points(self) -> tuple[Tensor, Tensor]:
        """Return where the error is evaluated for a mean over s, and the mass of each point."""
        few = len(self.groups.sizes) <= (2 * _POINTS if self.levels else _POINTS)
        return (self.groups.s, self.mass) if few else equal_mass(self.groups, _POINTS)

    def at(self, points: Tensor) -> Process:
        """Return the curve at some points, and the process of its error there."""
        w = self.groups.w
        weights = smoothing_weights(
            log_kernel(points, self.groups.s, self.groups.kinds, self.bandwidths), self.mass
        )
        P = weights / self.mass  # W_ai = P_ag w_i for the rows i of group g
        mean = P @ self.sums
        square = P.square()
        second = (w * w)[:, None]
        norms = (self.f.square().sum(dim=1) + self.missing)[:, None]
        behind = square @ self.groups.sums(second)
        own = square @ self.groups.sums(second * norms)
        own = own - 2.0 * ((square @ self.groups.sums(second * self.f)) * mean).sum(dim=1, keepdim=True)
        own = (own + mean.square().sum(dim=1, keepdim=True) * behind).clamp_min(0.0)
        # Squared deviations from a mean that the same rows made are too small by 1 - sum W^2 (1 - 1/n at a
        # level).
        stretch = (1.0 - behind).clamp_min(0.5).rsqrt()
        own = own * stretch.square()
        # Rows behind the variance, whose weights are the squares: fewer than behind the mean.
        rows = behind.square() / (square.square() @ self.groups.sums(second.square()))
        lacking = (self.pooled * behind - own).clamp_min(0.0) * (rows < _FEW)
        return Process(
            curve=self,
            P=P,
            mean=mean,
            stretch=stretch[:, 0],
            variance=(own + lacking)[:, 0],
            rows=rows[:, 0],
            common=self.pooled * behind[:, 0],
            lacking=lacking[:, 0],
        )


@dataclass(frozen=True, eq=False)
class Process:
    """The error of a curve at some points, as a Gaussian multiplier process."""

    curve: Smoothed
    P: Tensor  # (a, M)
    mean: Tensor  # (a, r), the curve less its overall mean
    stretch: Tensor  # (a,)
    variance: Tensor  # (a,), of the error, summed over features
    rows: Tensor  # (a,), (sum_i W_ai^2)^2 / sum_i W_ai^4: how many rows stand behind its variance
    common: Tensor  # (a,), what it would be with the variance of all rows around the curve
    lacking: Tensor  # (a,), the part of it that the rows behind the point do not show themselves

    def draws(
        self, n_draws: int, generator: torch.Generator, *, gap: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield e* ``(a, b, r)`` and the multipliers summed over groups, sum_i w_i xi_i ``(M, b)``.

        With ``gap`` the error of the overall mean is taken off: e* is then that of m(a) - mean.
        """
        groups, f = self.curve.groups, self.curve.f
        m, r = f.shape
        M, a = len(groups.sizes), len(self.P)
        X = groups.w[:, None] * torch.cat((torch.ones_like(f[:, :1]), f), dim=1)  # (m, 1 + r)
        if groups.counts is not None:
            X = groups.counts.sqrt()[:, None] * X  # as the sum of so many multipliers
        # sum_i xi_i X_i over the rows of a group is normal with covariance sum_i X_i X_i': many rows need no
        # multipliers of their own.
        gathered = m > M * (1 + r)
        parts = X.split(groups.sizes)
        root_of_group = _roots(torch.stack([rows.mT @ rows for rows in parts])) if gathered else None
        root = _root_of_covariance(groups, f) if bool((self.lacking > 0).any()) else None
        block = max(1, min(n_draws, _BLOCK // max(0 if gathered else m, (M + a) * (1 + r))))
        for start in range(0, n_draws, block):
            b = min(block, n_draws - start)
            if root_of_group is not None:
                xi = torch.randn((M, b, 1 + r), generator=generator, dtype=torch.float64)
                sums = xi @ root_of_group  # (M, b, 1 + r)
            else:
                xi = torch.randn((m, b), generator=generator, dtype=torch.float64)
                if m == M:
                    sums = xi[:, :, None] * X[:, None, :]
                else:
                    pairs = zip(xi.split(groups.sizes), parts, strict=True)
                    sums = torch.stack([multipliers.mT @ rows for multipliers, rows in pairs])
            smooth = (self.P @ sums.reshape(M, -1)).reshape(a, b, 1 + r)
            errors = (smooth[..., 1:] - smooth[..., :1] * self.mean[:, None, :]) * self.stretch[:, None, None]
            if root is not None:
                fresh = torch.randn((a, b, r), generator=generator, dtype=torch.float64) @ root
                errors += self.lacking.sqrt()[:, None, None] * fresh
            if gap:
                errors -= sums[..., 1:].sum(dim=0)
            yield errors, sums[..., 0]


def check_level(level: float) -> None:
    """Refuse a confidence that is none."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"'level' must lie between 0 and 1. Got {level}. Take 0.95.")


def check_draws(n_draws: int) -> None:
    """Refuse too few multiplier draws for a quantile."""
    if n_draws < 19:
        raise ValueError(f"'n_draws' must be at least 19. Got {n_draws}. Take 999.")


def _narrow(groups: Groups, bandwidths: Sequence[float]) -> Tensor:
    """Return which groups are narrow against the bandwidth, so that their rows share smoothing weights."""
    if groups.widths is None:
        return torch.ones(len(groups.sizes), dtype=torch.bool)
    return groups.widths <= bandwidths[0]


def _root_of_covariance(groups: Groups, f: Tensor) -> Tensor:
    """Return R ``(r, r)`` with R'R the covariance of the features, scaled to trace one."""
    covariance = (f * groups.shares[:, None]).mT @ f
    return _roots(covariance / covariance.trace().clamp_min(1e-300))


def _roots(covariance: Tensor) -> Tensor:
    """Return R ``(..., r, r)`` with R'R the covariance."""
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp_min(0.0).sqrt()[..., None] * vectors.mT
