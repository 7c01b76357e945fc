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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import sparse
from scipy.special import ndtr, stdtrit
from torch import Tensor

from frhsic.data import Kind, Sensitive
from frhsic.numerics._cells import Cells
from frhsic.numerics._smoothing import log_kernel, smoothing_weights
from frhsic.sketching import SensitiveLine

# Rows with the same or nearly the same s share their smoothing weights: they are gathered in at most so many
# groups, and the process is evaluated at no more points than that.
GROUPS, POINTS = 1_024, 128
# A point that fewer rows stand behind has no trustworthy variance of its own. Simulated at n = 200: with ten
# instead of thirty, bands at 95 % cover 0.82 to 0.92.
FEW = 30.0
# Of a skewed score even a hundred rows are few, and a cell without any event shows no variance at all: up to
# so many rows its variance is not below that of all rows around the curve, above not below a part of it.
_SKEWED, _PART = 200.0, 1.0 / 16.0
# Numbers of a block of multipliers (32 MB).
_BLOCK = 4_000_000


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
    units: Tensor | None = None  # (m,), codes of the units within which rows may depend on one another

    def by_unit(self, x: Tensor) -> sparse.csr_matrix:
        """Return the sums of x ``(m,)`` over the rows of each group and unit, shape ``(M, units)``."""
        unit = torch.arange(len(x)) if self.units is None else self.units
        group = np.repeat(np.arange(len(self.sizes)), self.sizes)
        shape = len(self.sizes), int(unit.max()) + 1
        return sparse.csr_matrix((x.numpy(), (group, unit.numpy())), shape=shape)

    def covariance(self, f: Tensor) -> Tensor | None:
        """Return sum_u V_u V_u' over units with V the sums of w (1, f): ``(1 + r, M, 1 + r, M)``; or None."""
        if self.units is None:
            return None
        columns = [self.w, *(self.w * column for column in f.mT)]
        V = sparse.vstack([self.by_unit(column) for column in columns])
        size = len(columns), len(self.sizes)
        return torch.from_numpy((V @ V.T).toarray()).reshape(*size, *size)

    def sums(self, x: Tensor) -> Tensor:
        """Return the sums of x ``(m, ...)``, in the order of rows, over each group."""
        group = torch.repeat_interleave(torch.tensor(self.sizes))
        if self.counts is not None:
            x = x * self.counts.reshape(-1, *(1,) * (x.ndim - 1))
        return x.new_zeros((len(self.sizes), *x.shape[1:])).index_add(0, group, x)

    @property
    def effective(self) -> float:
        """The number of equal rows, or units of rows, that would be as precise."""
        if self.units is not None:
            return effective_units(self.w, self.units)
        return 1.0 / float(self.sums(self.w.square()).sum())

    @property
    def shares(self) -> Tensor:
        """The weight of all rows that each one stands for, shape ``(m,)``."""
        return self.w if self.counts is None else self.counts * self.w


def gathered(s: Sensitive, w: Tensor, generator: torch.Generator, units: Tensor | None = None) -> Groups:
    """Gather rows on the distinct values of s, or on bins of equal size along one continuous column.

    With several columns and too many levels, rows are drawn: the error process has the same law up to the
    root of the number of rows.
    """
    groups = _gathered(s, w, generator)
    return groups if units is None else replace(groups, units=units[groups.rows])


def _gathered(s: Sensitive, w: Tensor, generator: torch.Generator) -> Groups:
    if len(s.names) == 1:  # ten times as quick as rows
        values, group = s.values[:, 0].unique(return_inverse=True)
        values = values[:, None]
    else:
        values, group = s.values.unique(dim=0, return_inverse=True)
    if len(values) <= GROUPS:
        order = group.argsort(stable=True)
        return Groups(values, s.kinds, order, torch.bincount(group).tolist(), w[order], None, 1.0)
    if s.kinds == ("continuous",):
        order = s.values[:, 0].argsort(stable=True)
        parts = torch.tensor_split(s.values[order], GROUPS)
        sizes = [len(part) for part in parts]
        centres = torch.stack([part.mean(dim=0) for part in parts])
        widths = torch.stack([part[-1, 0] - part[0, 0] for part in parts])
        return Groups(centres, s.kinds, order, sizes, w[order], widths, 1.0)
    drawn = torch.randperm(len(s), generator=generator)[:GROUPS]
    part = w[drawn] / w[drawn].sum()
    return Groups(s.values[drawn], s.kinds, drawn, [1] * GROUPS, part, None, (GROUPS / len(s)) ** 0.5)


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
    levels: bool  # whether the smoothing does not reach from one value of s to the next
    cells: Cells | None  # of s, where means are taken within cells
    covariance: Tensor | None  # (1 + r, M, 1 + r, M), of the sums over groups of w xi (1, f), by units

    @classmethod
    def of(
        cls,
        features: Tensor,
        groups: Groups,
        bandwidths: Sequence[float],
        missing: Tensor | None = None,
        cells: Cells | None = None,
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
        covariance = groups.covariance(f)
        by_units = None if covariance is None else _unit_variance(covariance, P, gaps)
        if by_units is not None:
            behind = by_units[1]
        several = (behind < 0.75) & _narrow(groups, bandwidths)
        share = float(mass[several].sum())
        if share < 0.5:
            raise ValueError(
                "'s' must have at least two rows (or groups of them) behind most points of the curve, or no "
                f"variance can be estimated. Got {share:.0%} of the rows at such points. Merge values of 's' "
                "or take a larger 'bandwidth_s'."
            )
        # Row i around the curve has the variance of f times 1 - 2 W_ii + sum_j W_ij^2.
        shrunk = 1.0 - 2.0 * P.diagonal() * squares / mass + behind
        around = groups.sums(w * (f.square().sum(dim=1) + left)) - 2.0 * (gaps * sums).sum(dim=1)
        around = (around + mass * gaps.square().sum(dim=1)).clamp_min(0.0) / shrunk.clamp_min(0.25)
        pooled = float(around[several].sum()) / share
        if by_units is not None:
            spread = by_units[0] / (behind * (1.0 - behind)).clamp_min(1e-300)
            pooled = float((mass * spread)[several].sum()) / share
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
            pooled,
            1.0 - share,
            alone,
            cells,
            covariance,
        )

    @property
    def target(self) -> str:
        """What the curve estimates."""
        if self.cells is not None:
            return curve_target(self.cells)
        if self.levels:
            return "the true curve, value by value"
        columns = zip(self.bandwidths, self.groups.kinds, strict=True)
        widths = " and ".join(f"{h:.3g}" for h, kind in columns if kind == "continuous")
        return f"the curve smoothed along s with bandwidth {widths}, not the true one"

    @property
    def target_of_gdp(self) -> str:
        """What the mean over s of the gap of the curve estimates."""
        return f"the GDP of {self.target}" if self.cells is None else gdp_target(self.cells)

    def notes(self) -> tuple[str, ...]:
        """Return what a reader must know about the variance."""
        if self.single < 1e-9:
            return ()
        return (
            f"{self.single:.1%} of the rows stand alone at their value of s: their variance is that of all.",
        )

    def points(self) -> tuple[Tensor, Tensor]:
        """Return where the error is evaluated for a mean over s, and the mass of each point."""
        few = len(self.groups.sizes) <= (2 * POINTS if self.levels else POINTS)
        return (self.groups.s, self.mass) if few else equal_mass(self.groups, POINTS)

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
        rows = square.square() @ self.groups.sums(second.square())
        if self.covariance is not None:
            own, behind = (x[:, None] for x in _unit_variance(self.covariance, P, mean))
            shares = sparse.csr_matrix(P.numpy()) @ self.groups.by_unit(w)
            rows = torch.from_numpy(np.asarray(shares.power(4).sum(axis=1)))
        # Squared deviations from a mean that the same rows made are too small by 1 - sum W^2 (1 - 1/n at a
        # level).
        stretch = (1.0 - behind).clamp_min(0.5).rsqrt()
        own = own * stretch.square()
        # Rows behind the variance, whose weights are the squares: fewer than behind the mean.
        rows = behind.square() / rows
        pooled = self._pooled(own / behind, rows)
        lacking = (pooled * behind - own).clamp_min(0.0) * (rows < FEW)
        return Process(
            curve=self,
            P=P,
            mean=mean,
            stretch=stretch[:, 0],
            variance=(own + lacking)[:, 0],
            rows=rows[:, 0],
            common=(pooled * behind)[:, 0],
            lacking=lacking[:, 0],
        )

    def _pooled(self, variance: Tensor, rows: Tensor) -> Tensor:
        """Return the variance of a row around the curve near each point, and not below that of all rows.

        Near are so many neighbouring cells on both sides as have 200 degrees of freedom together: a score
        may vary more among the oldest, of whom there are few at each age.
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
            few = known < _SKEWED
            known = torch.where(few, upto[0][last] - upto[0][first], known)
            sums = torch.where(few, upto[1][last] - upto[1][first], sums)
            if bool((known >= _SKEWED).all()):
                break
        return torch.maximum(pooled, sums / known.clamp_min(1e-300))


@dataclass(frozen=True, eq=False)
class Process:
    """The error of a curve at some points, as a Gaussian multiplier process."""

    curve: Smoothed
    P: Tensor  # (a, M)
    mean: Tensor  # (a, r), the curve less its overall mean
    stretch: Tensor  # (a,)
    variance: Tensor  # (a,), of the error, summed over features
    rows: Tensor  # (a,), (sum_i W_ai^2)^2 / sum_i W_ai^4: how many rows stand behind its variance
    common: Tensor  # (a,), what it would be with the variance of all rows around the curve, or of those near
    lacking: Tensor  # (a,), the part of it that the rows behind the point do not show themselves

    def limits(self, largest: float, fewest: float = FEW) -> Tensor:
        """Return how far the curve may be off at each point, if errors of deviation one reach ``largest``.

        A variance of thirty rows is itself uncertain: the tail of the normal law beyond ``largest`` is taken
        under Student's law instead, with at least ``fewest`` rows.
        """
        least = self.common * torch.where(self.rows < _SKEWED, 1.0, _PART)
        # Nor has a variance that is pooled over all points more degrees of freedom than there are rows.
        groups = self.curve.groups
        free = max(2.0, groups.effective - len(groups.sizes) + 1.0)
        degrees = self.rows.clamp_min(fewest).clamp_max(free).numpy() - 1.0
        student = -torch.from_numpy(stdtrit(degrees, ndtr(-largest)))
        return student * torch.maximum(self.variance, least).sqrt()

    def standardised(self, errors: Tensor) -> Tensor:
        """Return the largest over points of |e*| ``(a, b)`` over its deviation, shape ``(b,)``."""
        # A point without variance has errors of rounding only.
        deviation = torch.maximum(self.variance, 1e-9 * self.common).sqrt().clamp_min(1e-300)
        return (errors.abs() / deviation[:, None]).amax(dim=0)

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
        joint = (
            None if self.curve.covariance is None else roots(self.curve.covariance.reshape(M * (1 + r), -1))
        )
        root_of_group = roots(torch.stack([rows.mT @ rows for rows in parts])) if gathered else None
        root = _root_of_covariance(groups, f) if bool((self.lacking > 0).any()) else None
        block = max(1, min(n_draws, _BLOCK // max(0 if gathered else m, (M + a) * (1 + r))))
        for start in range(0, n_draws, block):
            b = min(block, n_draws - start)
            if joint is not None:
                xi = torch.randn((b, len(joint)), generator=generator, dtype=torch.float64)
                sums = (xi @ joint).reshape(b, 1 + r, M).permute(2, 0, 1)
            elif root_of_group is not None:
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


def _unit_variance(covariance: Tensor, P: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variance of e*_a, summed over features, and sum_u W_au^2, W_au the share of unit u at a."""
    behind = torch.einsum("ag,gh,ah->a", P, covariance[0, :, 0], P)
    own = behind * mean.square().sum(dim=1)
    for k in range(1, len(covariance)):
        own = own + torch.einsum("ag,gh,ah->a", P, covariance[k, :, k], P)
        own = own - 2.0 * mean[:, k - 1] * torch.einsum("ag,gh,ah->a", P, covariance[0, :, k], P)
    return own.clamp_min(0.0), behind


def _ranges(cells: Cells, several: int = 1) -> tuple[str, str]:
    """Return how many ranges there are, beside single values, and the share of rows in some of them."""
    wide = cells.mass[~cells.single]
    single = cells.size - len(wide)
    name = " and ".join(cells.names)
    count = f"{len(wide)} range{'' if len(wide) == 1 else 's'} of {name}"
    if single:
        count += f" (and at {single} single value{'' if single == 1 else 's'})"
    share = 100.0 * min(1.0, several * float(wide.median()))
    return count, f"about {share:.2g} % of the rows"


def curve_target(cells: Cells) -> str:
    """Return what the means within cells estimate, and under which assumption."""
    if cells.exact:
        return "the true curve, value by value"
    if cells.narrow and len(cells.names) == 1:
        count, share = _ranges(cells, 3)
        return (
            f"the true curve between {count}, with means within the outermost two, if it only rises or only "
            f"falls within any three neighbouring ranges, {share}"
        )
    count, share = _ranges(cells)
    return f"the mean score within {count}, of {share} each"


def gdp_target(cells: Cells) -> str:
    """Return what the GDP of means within cells estimates, and under which assumption."""
    if cells.exact:
        return "the GDP of the true curve"
    if cells.narrow and len(cells.names) == 1:
        return (
            "the GDP of the true curve; the lower end holds for any curve, the upper end if it only rises or "
            f"only falls within any three neighbouring ranges of {cells.names[0]}, {_ranges(cells, 3)[1]}"
        )
    count, share = _ranges(cells)
    return f"the GDP of means within {count}, of {share} each; that of the true curve is at least as large"


def cells_of_line(line: SensitiveLine, rows: float) -> Cells:
    """Return the cells of a sketch of so many rows: its places, or neighbouring ones together."""
    cells = Cells.of(line.s, line.mass, rows)
    return replace(cells, low=cells.low - line.step, high=cells.high + line.step)


def is_coarse(line: SensitiveLine, cells: Cells) -> bool:
    """Return whether places of a grid are too far apart for the cells: a few outliers stretch it."""
    return line.step > 0.0 and float(line.mass.max()) > 1.5 / cells.size


def line_groups(
    line: SensitiveLine, kinds: tuple[Kind, ...], cells: Cells | None = None
) -> tuple[Tensor, Groups]:
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
    if cells is None:
        return scores[:, None], Groups(line.s.values, kinds, rows, [2] * K, w, widths, 1.0, counts)
    code = cells.codes(line.s).repeat_interleave(2)
    rows = code.argsort(stable=True)
    values, sizes = code.unique(return_counts=True)
    groups = Groups(
        values[:, None].double(), ("categorical",), rows, sizes.tolist(), w[rows], None, 1.0, counts[rows]
    )
    return scores[:, None], groups


def cell_curve(
    f: Tensor,
    s: Sensitive,
    cells: Cells,
    w: Tensor,
    generator: torch.Generator,
    units: Tensor | None = None,
) -> Smoothed:
    """Return the means of f within cells."""
    return Smoothed.of(f, gathered(cells.as_sensitive(s), w, generator, units), [1.0], cells=cells)


def effective_units(w: Tensor, units: Tensor | None) -> float:
    """Return the number of equal units that would be as precise: one over the sum of their squared shares."""
    if units is not None:
        w = w.new_zeros(int(units.max()) + 1).index_add(0, units, w)
    return 1.0 / float(w.square().sum())


def _narrow(groups: Groups, bandwidths: Sequence[float]) -> Tensor:
    """Return which groups are narrow against the bandwidth, so that their rows share smoothing weights."""
    if groups.widths is None:
        return torch.ones(len(groups.sizes), dtype=torch.bool)
    return groups.widths <= bandwidths[0]


def _root_of_covariance(groups: Groups, f: Tensor) -> Tensor:
    """Return R ``(r, r)`` with R'R the covariance of the features, scaled to trace one."""
    covariance = (f * groups.shares[:, None]).mT @ f
    return roots(covariance / covariance.trace().clamp_min(1e-300))


def roots(covariance: Tensor) -> Tensor:
    """Return R ``(..., r, r)`` with R'R the covariance."""
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp_min(0.0).sqrt()[..., None] * vectors.mT
