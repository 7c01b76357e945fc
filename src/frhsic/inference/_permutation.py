"""Null distributions: permutations of rows or groups within levels, multipliers, and limits for many rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import special
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.dependence import HSIC, Dependence
from frhsic.inference._gamma import log_gamma_tail
from frhsic.inference._pairings import Pairing, Side
from frhsic.kernels import Gaussian, Linear, OnColumns, default_kernel
from frhsic.kernels._scale import median_bandwidth
from frhsic.numerics._lowrank import FeatureMap, blocks, feature_map, thin_factor

# Bandwidths of z and of s as multiples of their medians, and the weight of each pair. The first is nearly
# linear; along s the others are narrower than along z, because a score is a function of s plus noise.
FAMILY = ((4.0, 4.0, 0.5), (2.0, 0.5, 0.25), (1.0, 0.25, 0.25))
# Features of each side.
RANK_Z, RANK_S = 64, 64
# Above so many rows the wild bootstrap draws from so many of them.
WILD_ROWS = 5_000
# Up to so many groups of rows the multipliers act on their Gram matrix instead of on their features.
_FEW_GROUPS = 512
# Rows whose features are kept, where some of them are permuted one by one (numbers: 160 MB).
_KEPT = 20_000_000
# Permutations are drawn in chunks of about this many row numbers (160 MB).
_CHUNK = 20_000_000
# Rows on which features are evaluated first, to have something near their means.
_SHIFT = 4_096
# A level of `given` with fewer rows is left out.
MIN_LEVEL = 8


@dataclass(frozen=True)
class Stratum:
    """Rows that may be exchanged with one another, and their share of the whole."""

    z: Tensor
    s: Sensitive
    weights: Tensor | None
    share: float
    groups: Tensor | None = None  # (n,), a code for each row; rows of one group may depend on one another

    @property
    def constant(self) -> bool:
        """Whether z or s is: then no pairing differs from another, but by rounding that would be ranked."""
        return bool((self.z == self.z[0]).all()) or bool((self.s.values == self.s.values[0]).all())


def bandwidth_family(z: Tensor, s: Sensitive, generator: torch.Generator) -> tuple[list[HSIC], Tensor]:
    """Return HSIC under several pairs of bandwidths, fixed on the rows of z and on those of s, with weights.

    Neither side sees how the two are paired, so permutations of the pairing stay exchangeable. Several
    columns of z enter as they are and whitened: otherwise a direction of small variance would not be seen.
    """
    medians = [
        median_bandwidth(s.values[:, j : j + 1], generator).item() if kind == "continuous" else 1.0
        for j, kind in enumerate(s.kinds)
    ]
    n, d = z.shape
    bases = [Gaussian("median")] + ([Gaussian("median", whiten=True)] if 1 < d <= n // 4 else [])
    measures, weights = [], []
    for base in bases:
        fixed = base.calibrate(z, generator=generator, freeze=True)
        for wide_z, wide_s, weight in FAMILY:
            kernel_z = replace(fixed, bandwidth=wide_z * float(fixed.bandwidth))
            measures.append(HSIC(kernel_z, default_kernel(s.kinds, [wide_s * sigma for sigma in medians])))
            weights.append(weight / len(bases))
    return measures, torch.tensor(weights, dtype=torch.float64)


def seen_through_features(z: Tensor, measures: Sequence[HSIC]) -> tuple[Tensor, list[HSIC]]:
    """Return features of z under each kernel, side by side, and the measures that look at their own.

    Each kernel on z becomes that of at most 64 features, computed from the rows of z alone: permutations stay
    exchangeable, and cost 64 n instead of n^2 each.
    """
    columns, seen, start = [], [], 0
    for measure in measures:
        G = thin_factor(measure.kernel_z, z, RANK_Z)
        width = G.shape[1]
        columns.append(G)
        seen.append(HSIC(OnColumns(Linear(), tuple(range(start, start + width))), measure.kernel_s))
        start += width
    return torch.cat(columns, dim=1), seen


def permuted_values(
    measures: Sequence[Dependence], strata: Sequence[Stratum], count: int, generator: torch.Generator
) -> Tensor:
    """Return each measure on the rows as they are and under ``count`` permutations: ``(k, count + 1)``.

    Rows are exchanged within strata, or whole groups of rows with others of their size; the value is the mean
    over strata by their shares.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in strata:
        if stratum.constant:
            continue
        n = len(stratum.z)
        for part in torch.arange(count + 1).split(max(1, _CHUNK // n)):
            orders = (
                random_orders(n, len(part), generator, first_as_it_is=int(part[0]) == 0)
                if stratum.groups is None
                else group_orders(stratum.groups, len(part), generator, first_as_it_is=int(part[0]) == 0)
            )
            for k, measure in enumerate(measures):
                values = measure.permuted(stratum.z, stratum.s, orders, stratum.weights)
                total[k, part] += stratum.share * values
    return total


def random_orders(n: int, count: int, generator: torch.Generator, *, first_as_it_is: bool = False) -> Tensor:
    """Return random permutations of n rows, shape ``(count, n)``; the first may be the rows as they are."""
    orders = torch.arange(n).repeat(count, 1)
    for order in orders[int(first_as_it_is) :]:
        torch.randperm(n, generator=generator, out=order)
    return orders


def group_orders(
    groups: Tensor, count: int, generator: torch.Generator, *, first_as_it_is: bool = False
) -> Tensor:
    """Return permutations of rows that exchange whole groups of equal size, shape ``(count, n)``.

    The k-th row of a group gets the place of the k-th row of the other.
    """
    orders = torch.arange(len(groups)).repeat(count, 1)
    for rows in size_classes(groups):
        for order in orders[int(first_as_it_is) :]:
            order[rows.flatten()] = rows[torch.randperm(len(rows), generator=generator)].flatten()
    return orders


def size_classes(groups: Tensor) -> list[Tensor]:
    """Return the rows of the groups of each size, shape ``(groups, size)`` for each size that occurs."""
    _, place, sizes = groups.unique(return_inverse=True, return_counts=True)
    rows = place.argsort(stable=True)
    of_row = sizes[place[rows]]
    return [rows[of_row == size].reshape(-1, size) for size in sizes.unique().tolist()]


def wild_values(
    measures: Sequence[HSIC], strata: Sequence[Stratum], count: int, generator: torch.Generator
) -> Tensor:
    """Return HSIC_w and ``count`` draws of its wild bootstrap, ``(k, count + 1)``.

    HSIC_w = |sum_i w_i phi_i (x) psi_i|^2 with features centred by w; a draw multiplies each term by an
    independent standard normal. Under independence (of the weighted law) both have the same limit. A draw is
    normal with covariance sum_i w_i^2 a_i (x) a_i, which some of many rows estimate, drawn in proportion to a
    bound on w_i^2 |a_i|^2: no row with a large term may be missed.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in strata:
        if stratum.constant:
            continue
        maps = features(measures, stratum)
        seen = moments(maps, stratum)
        z, s, u = stratum.z, stratum.s.values, seen.w
        if len(u) > WILD_ROWS:
            sizes = seen.norms_z * seen.norms_s
            chance = (sizes / sizes.mean(dim=1, keepdim=True).clamp_min(1e-300)).sum(dim=0)
            chance = chance / chance.sum()
            rows = _drawn(chance, WILD_ROWS, generator)
            z, s, u = z[rows], s[rows], u[rows] / (WILD_ROWS * chance[rows]).sqrt()
        parts = torch.arange(1, count + 1).split(max(1, _CHUNK // len(u)))
        noise = [torch.randn((len(u), len(part)), generator=generator, dtype=torch.float64) for part in parts]
        for k, (map_z, map_s) in enumerate(maps):
            total[k, 0] += stratum.share * seen.cross[k].square().sum()
            G, F = u[:, None] * (map_z(z) - seen.mean_z[k]), map_s(s) - seen.mean_s[k]
            for part, xi in zip(parts, noise, strict=True):
                for column in F.T:  # (r_z, draws) at a time
                    values = (G.T @ (column[:, None] * xi)).square().sum(dim=0)
                    total[k, part] += stratum.share * values
    return total


def _drawn(chance: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return numbers drawn with replacement; torch.multinomial takes no more than 2^24 of them."""
    edges = chance.cumsum(dim=0)
    draws = torch.rand(count, generator=generator, dtype=torch.float64) * edges[-1]
    return torch.searchsorted(edges, draws, right=True).clamp_max(len(chance) - 1)


def permuted_means(measures: Sequence[HSIC], strata: Sequence[Stratum]) -> Tensor:
    """Return the mean of HSIC_w over all permutations of rows, shape ``(k,)``; weights travel with s."""
    total = torch.zeros(len(measures), dtype=torch.float64)
    for stratum in strata:
        if stratum.constant:
            continue
        seen = moments(features(measures, stratum), stratum)
        widths = zip(*(cross.shape for cross in seen.cross), strict=True)
        traces = [
            torch.stack([part.sum() for part in gram.diagonal().split(own)])
            for gram, own in zip((seen.gram_z, seen.gram_s), widths, strict=True)
        ]
        total += stratum.share * traces[0] * traces[1] / (len(stratum.z) - 1)
    return total


def cluster_values(
    measures: Sequence[HSIC], strata: Sequence[Stratum], count: int, generator: torch.Generator
) -> Tensor:
    """Return HSIC_w and ``count`` draws of its cluster bootstrap, ``(k, count + 1)``.

    HSIC_w = |sum_g A_g|^2 with A_g = sum_{i in g} w_i phi_i (x) psi_i over the rows of a group, features
    centred by w. A draw gives each A_g a random sign, the same in all strata: rows of one group may depend on
    one another in any way. What the groups add to |.|^2 by themselves is the same in all draws. Features are
    centred by means of the same groups, which makes the A_g smaller by a share q = sum_g share_g^2 of their
    squares: draws are divided by 1 - q. Of many groups 5,000 are drawn, in proportion to a bound on |A_g|^2.
    """
    n_groups = 1 + max(int(own.max()) for own in (stratum.groups for stratum in strata) if own is not None)
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    varied = [stratum for stratum in strata if not stratum.constant]
    parts = [(maps, moments(maps, stratum)) for stratum in varied for maps in [features(measures, stratum)]]
    factor = torch.ones(n_groups, dtype=torch.float64)
    if n_groups > WILD_ROWS:
        bound = torch.zeros(n_groups, dtype=torch.float64)
        for stratum, (_, seen) in zip(varied, parts, strict=True):
            assert stratum.groups is not None  # noqa: S101
            sizes = seen.norms_z.sqrt() * seen.norms_s.sqrt() / len(stratum.z)
            sizes = sizes / sizes.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-300)
            bound.index_add_(0, stratum.groups, stratum.share * sizes.sum(dim=0))
        chance = bound.square() / bound.square().sum()
        drawn = _drawn(chance, WILD_ROWS, generator)
        factor = torch.bincount(drawn, minlength=n_groups) / (WILD_ROWS * chance.clamp_min(1e-300))
        factor = factor.sqrt()
    chosen = factor.nonzero()[:, 0]
    place = torch.full((n_groups,), -1)
    place[chosen] = torch.arange(len(chosen))
    signs = torch.randint(2, (len(chosen), count), generator=generator).double().mul_(2.0).sub_(1.0)
    signs *= factor[chosen, None]
    for stratum, (maps, seen) in zip(varied, parts, strict=True):
        assert stratum.groups is not None  # noqa: S101
        mass = seen.w.new_zeros(n_groups).index_add_(0, stratum.groups, seen.w)
        share = stratum.share / max(1.0 - float(mass.square().sum()), 0.5)
        group = place[stratum.groups]
        rows = (group >= 0).nonzero()[:, 0]
        z, s, u, group = stratum.z[rows], stratum.s.values[rows], seen.w[rows], group[rows]
        for k, (map_z, map_s) in enumerate(maps):
            total[k, 0] += stratum.share * seen.cross[k].square().sum()
            G, F = u[:, None] * (map_z(z) - seen.mean_z[k]), map_s(s) - seen.mean_s[k]
            gram = G.new_zeros((len(chosen), len(chosen)) if len(chosen) <= _FEW_GROUPS else (0, 0))
            for column in F.T:  # (r_z, draws) at a time
                sums = G.new_zeros((len(chosen), G.shape[1])).index_add_(0, group, column[:, None] * G)
                if len(gram):
                    gram.addmm_(sums, sums.mT)
                else:
                    for part in torch.arange(count).split(max(1, _CHUNK // len(chosen))):
                        values = (sums.mT @ signs[:, part]).square().sum(dim=0)
                        total[k, 1 + part] += share * values
            if len(gram):
                total[k, 1:] += share * ((gram @ signs) * signs).sum(dim=0)
    return total


def limit_values(
    measures: Sequence[HSIC],
    strata: Sequence[Stratum],
    count: int,
    generator: torch.Generator,
    *,
    whole: bool = False,
) -> Tensor:
    """Return HSIC and ``count`` draws from the limit of its permutation law, ``(k, count + 1)``.

    With features G of z and F of s, HSIC = |G'F|^2 / n^2. Over permutations G'F has exactly the covariance
    (G'G) (x) (F'F) / (n - 1), and for many rows it is normal: its draws cost no pass over the rows. Rows that
    are too few and too large for that are permuted one by one (:mod:`frhsic.inference._pairings`), and all of
    them if ``whole``. All measures are drawn together, so that what they have in common stays in common.

    Of groups of rows the sums of the features of z are paired with the features of s, which are the same for
    all rows of a group, among groups of the same size.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in strata:
        if stratum.constant:
            continue
        n = len(stratum.z)
        cross, fixed, pairings = _pairings(measures, stratum, whole=whole)
        for k, observed in enumerate(cross):
            total[k, 0] += stratum.share * observed.square().sum()
        step = max(1, _CHUNK // sum(pairing.cost for pairing in pairings))
        for part in torch.arange(1, count + 1).split(step):
            draws = [
                torch.stack(sums).sum(dim=0)
                for sums in zip(*(pairing.draw(len(part), generator) for pairing in pairings), strict=True)
            ]
            for k, draw in enumerate(draws):
                total[k, part] += stratum.share * ((draw + fixed[k]) / n).square().sum(dim=(1, 2))
    return total


def _pairings(
    measures: Sequence[HSIC], stratum: Stratum, *, whole: bool
) -> tuple[tuple[Tensor, ...], list[Tensor], list[Pairing]]:
    """Return G'F / n as observed, what no pairing changes of G'F, and the pairings that make up the rest."""
    maps = features(measures, stratum)
    seen = moments(maps, stratum)
    n, w = len(stratum.z), seen.w
    maps_z, maps_s = zip(*maps, strict=True)
    mean_z, mean_s = torch.cat(seen.mean_z), torch.cat(seen.mean_s)
    widths_z, widths_s = (tuple(one.width for one in side) for side in (maps_z, maps_s))

    def of_z(rows: Tensor | slice) -> Tensor:
        return torch.cat([one(stratum.z[rows]) for one in maps_z], dim=1) - seen.plain_z

    def of_s(rows: Tensor | slice) -> Tensor:
        F = torch.cat([one(stratum.s.values[rows]) for one in maps_s], dim=1) - mean_s
        return F if stratum.weights is None else n * w[rows, None] * F

    if stratum.groups is None:
        sides = [
            Side(n, widths, n * gram, norms, _looked_up(rows_of, n, sum(widths)))
            for widths, gram, norms, rows_of in (
                (widths_z, seen.gram_z, seen.norms_z, of_z),
                (widths_s, seen.gram_s, seen.norms_s, of_s),
            )
        ]
        fixed = [torch.zeros_like(cross) for cross in seen.cross]
        return seen.cross, fixed, [Pairing(*sides, whole=whole)]
    _, place = stratum.groups.unique(return_inverse=True)
    sums = mean_z.new_zeros((int(place.max()) + 1, len(mean_z)))
    for block in blocks(n):
        sums.index_add_(0, place[block], of_z(block))
    fixed, pairings = [torch.zeros_like(cross) for cross in seen.cross], []
    for rows in size_classes(stratum.groups):
        G, F = sums[place[rows[:, 0]]], of_s(rows[:, 0])
        parts = zip(G.split(widths_z, dim=1), F.split(widths_s, dim=1), strict=True)
        for k, (own_z, own_s) in enumerate(parts):
            fixed[k] += torch.outer(own_z.mean(dim=0), own_s.sum(dim=0))
        if len(rows) > 1:
            pairings.append(Pairing(Side.of(G, widths_z), Side.of(F, widths_s), whole=whole))
    return seen.cross, fixed, pairings


def _looked_up(rows_of: Callable[[Tensor | slice], Tensor], n: int, width: int) -> Callable[[Tensor], Tensor]:
    """Return the features of some rows, from those of all rows if these are not too many to keep."""
    kept: list[Tensor] = []

    def look(rows: Tensor) -> Tensor:
        if n * width > _KEPT:
            some, place = rows.unique(return_inverse=True)
            return rows_of(some)[place] if len(rows) else rows_of(some)
        if not kept and len(rows):
            kept.append(torch.cat([rows_of(block) for block in blocks(n)]))
        return kept[0][rows] if kept else rows_of(rows)

    return look


def features(measures: Sequence[HSIC], stratum: Stratum) -> list[tuple[FeatureMap, FeatureMap]]:
    """Return feature maps of both sides under each measure."""
    z, s = stratum.z, stratum.s
    return [
        (
            feature_map(measure.kernel_z, z, RANK_Z),
            feature_map(measure.kernel_s or default_kernel(s.kinds), s.values, RANK_S),
        )
        for measure in measures
    ]


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over the rows of a stratum, with weights w of sum one and means of the features under them."""

    w: Tensor  # (n,)
    mean_z: tuple[Tensor, ...]  # for each measure, (r,)
    mean_s: tuple[Tensor, ...]
    cross: tuple[Tensor, ...]  # sum_i w_i (g_i - mean) (f_i - mean)', for each measure, (r, q)
    gram_z: Tensor  # sum_i (g_i - g) (g_i - g)' / n, all measures together, g the plain mean
    gram_s: Tensor  # sum_i n w_i^2 (f_i - mean) (f_i - mean)'
    plain_z: Tensor  # g, all measures together
    norms_z: Tensor  # (measures, n), bounds on |g_i - g|^2
    norms_s: Tensor  # (measures, n), bounds on |n w_i (f_i - mean)|^2


def moments(maps: Sequence[tuple[FeatureMap, FeatureMap]], stratum: Stratum) -> Moments:
    """Return what the tests need of the features, in one pass over blocks of rows."""
    z, s, n = stratum.z, stratum.s.values, len(stratum.z)
    w = z.new_full((n,), 1.0 / n) if stratum.weights is None else stratum.weights / stratum.weights.sum()
    sides = tuple(zip(*maps, strict=True))
    wide = [sum(one.width for one in side) for side in sides]
    zz, ss, zs = (z.new_zeros((wide[i], wide[j])) for i, j in ((0, 0), (1, 1), (0, 1)))
    plain_z, mean_z, mean_s, second_s = (z.new_zeros(wide[i]) for i in (0, 0, 1, 1))
    norms: tuple[list[Tensor], list[Tensor]] = ([], [])
    # Near the means, so that little cancels below, in whatever order the rows stand.
    some = torch.linspace(0, n - 1, min(n, _SHIFT)).round().long()
    shift = [
        torch.cat([one(x[some]) for one in side], dim=1).mean(dim=0)
        for side, x in zip(sides, (z, s), strict=True)
    ]
    for rows in blocks(n):
        G, F = (
            torch.cat([one(x[rows]) for one in side], dim=1) for side, x in zip(sides, (z, s), strict=True)
        )
        G, F = G.sub_(shift[0]), F.sub_(shift[1])
        for own, x, side in zip(norms, (G, F), sides, strict=True):
            parts = x.split([one.width for one in side], dim=1)
            own.append(torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts]))
        u = w[rows]
        weighted = u[:, None] * F
        zz.addmm_(G.mT, G)
        zs.addmm_(G.mT, weighted)
        ss.addmm_(weighted.mT, weighted)
        plain_z += G.sum(dim=0)
        mean_z += u @ G
        mean_s += weighted.sum(dim=0)
        second_s += u @ weighted
    gram_s = ss - torch.outer(second_s, mean_s) - torch.outer(mean_s, second_s)
    gram_s += w.square().sum() * torch.outer(mean_s, mean_s)
    whole = zs - torch.outer(mean_z, mean_s)
    columns = [[one.width for one in side] for side in sides]
    moved = [
        torch.stack([torch.linalg.vector_norm(part) for part in mean.split(own)])[:, None]
        for mean, own in zip((plain_z / n, mean_s), columns, strict=True)
    ]
    lengths = [torch.cat(own, dim=1) + far for own, far in zip(norms, moved, strict=True)]
    return Moments(
        w=w,
        mean_z=(mean_z + shift[0]).split(columns[0]),
        mean_s=(mean_s + shift[1]).split(columns[1]),
        cross=tuple(
            part.split(columns[1], dim=1)[k] for k, part in enumerate(whole.split(columns[0], dim=0))
        ),
        gram_z=zz / n - torch.outer(plain_z, plain_z) / n**2,
        gram_s=n * gram_s,
        plain_z=plain_z / n + shift[0],
        norms_z=lengths[0].square(),
        norms_s=(lengths[1] * (n * w)).square(),
    )


def tails(values: Tensor) -> Tensor:
    """Return -log P(a gamma law of the mean and variance of the row > value), shape ``(k, B + 1)``.

    It puts statistics of different scale and skewness on one scale, without the ties of ranks. All B + 1
    values of a row share one fit, in which the observed one has no special place: what is computed from them
    symmetrically stays exchangeable, so a p-value by their ranks is exact whatever the fit. The largest value
    of a row is left out of its fit (unless all others are equal), or a strong dependence that one measure
    alone sees would widen the law by which it is judged, the more the stronger it is.
    """
    most = values.sort(dim=1).values[:, :-1]
    mean, variance = most.mean(dim=1, keepdim=True), most.var(dim=1, keepdim=True)
    equal = variance <= 1e-28 * mean.square()
    mean = torch.where(equal, values.mean(dim=1, keepdim=True), mean)
    variance = torch.where(equal, values.var(dim=1, keepdim=True), variance)
    flat = (variance <= 1e-28 * mean.square()) | (mean <= 0)
    mean, variance = torch.where(flat, 1.0, mean), torch.where(flat, 1.0, variance)
    a, x = (mean.square() / variance).expand_as(values).numpy(), (values * mean / variance).numpy()
    logs = log_gamma_tail(x, a)
    # Below the floats: the head of the asymptotic series, log(x^(a-1) e^-x / Gamma(a)) - log(1 - (a-1)/x).
    low = np.isinf(logs)
    a, x = a[low], x[low]
    logs[low] = (a - 1.0) * np.log(x) - x - special.gammaln(a) - np.log1p((1.0 - a) / x)
    return torch.where(flat, 0.0, -torch.from_numpy(logs))


def rank_pvalue(values: Tensor) -> float:
    """Return the share of values that are at least the first, which is one of them."""
    observed = values[0]
    # Equal in exact arithmetic, apart by rounding. (inf - inf is nan, and no share is 0.)
    slack = 1e-9 * observed.abs() if torch.isfinite(observed) else 0.0
    return float((values >= observed - slack).double().mean())
