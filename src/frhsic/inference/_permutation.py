"""Null distributions: permutations within levels, the wild bootstrap, and their limit for many rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.dependence import HSIC, Dependence
from frhsic.dependence._lowrank import FeatureMap, blocks, feature_map, thin_factor
from frhsic.kernels import Gaussian, Linear, OnColumns, default_kernel
from frhsic.kernels._scale import median_bandwidth

# Bandwidths of z and of s as multiples of their medians, and the weight of each pair. The first is nearly
# linear; along s the others are narrower than along z, because a score is a function of s plus noise.
FAMILY = ((4.0, 4.0, 0.5), (2.0, 0.5, 0.25), (1.0, 0.25, 0.25))
# Features of each side.
RANK_Z, RANK_S = 64, 64
# Above so many rows the wild bootstrap draws from so many of them.
WILD_ROWS = 5_000
# Permutations are drawn in chunks of about this many row numbers (160 MB).
_CHUNK = 20_000_000
# A level of `given` with fewer rows is left out.
MIN_LEVEL = 8


@dataclass(frozen=True)
class Stratum:
    """Rows that may be exchanged with one another, and their share of the whole."""

    z: Tensor
    s: Sensitive
    weights: Tensor | None
    share: float

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

    Rows are exchanged within strata; the value is the mean over strata by their shares.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in strata:
        if stratum.constant:
            continue
        n = len(stratum.z)
        for part in torch.arange(count + 1).split(max(1, _CHUNK // n)):
            orders = random_orders(n, len(part), generator, first_as_it_is=int(part[0]) == 0)
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


def wild_values(
    measures: Sequence[HSIC], strata: Sequence[Stratum], count: int, generator: torch.Generator
) -> Tensor:
    """Return HSIC_w and ``count`` draws of its wild bootstrap, ``(k, count + 1)``.

    HSIC_w = |sum_i w_i phi_i (x) psi_i|^2 with features centred by w; a draw multiplies each term by an
    independent standard normal. Under independence (of the weighted law) both have the same limit. A draw is
    normal with covariance sum_i w_i^2 a_i (x) a_i, which many rows, drawn in proportion to w_i^2, estimate.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in strata:
        if stratum.constant:
            continue
        maps = features(measures, stratum)
        seen = moments(maps, stratum)
        z, s, u = stratum.z, stratum.s.values, seen.w
        if len(u) > WILD_ROWS:
            rows = torch.multinomial(u.square(), WILD_ROWS, replacement=True, generator=generator)
            z, s, u = z[rows], s[rows], (u.square().sum() / WILD_ROWS).sqrt().expand(WILD_ROWS)
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


def limit_values(
    measures: Sequence[HSIC], strata: Sequence[Stratum], count: int, generator: torch.Generator
) -> Tensor:
    """Return HSIC and ``count`` draws from the limit of its permutation law, ``(k, count + 1)``.

    With features G of z and F of s, HSIC = |G'F|^2 / n^2. Over permutations G'F has exactly the covariance
    (G'G) (x) (F'F) / (n - 1), and for many rows it is normal: its draws cost no pass over the rows. All
    measures are drawn together, so that what they have in common stays in common.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in strata:
        if stratum.constant:
            continue
        n = len(stratum.z)
        seen = moments(features(measures, stratum), stratum)
        root_z, root_s = _root(seen.gram_z), _root(seen.gram_s)
        rows_z = root_z.split([len(cross) for cross in seen.cross])
        rows_s = root_s.split([cross.shape[1] for cross in seen.cross])
        for k, cross in enumerate(seen.cross):
            total[k, 0] += stratum.share * cross.square().sum()
        size = root_z.shape[1], root_s.shape[1]
        for part in torch.arange(1, count + 1).split(max(1, _CHUNK // (size[0] * size[1]))):
            noise = torch.randn((len(part), *size), generator=generator, dtype=torch.float64)
            for k in range(len(measures)):
                draws = (rows_z[k] @ noise @ rows_s[k].T).square().sum(dim=(1, 2)) / (n - 1)
                total[k, part] += stratum.share * draws
    return total


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


def moments(maps: Sequence[tuple[FeatureMap, FeatureMap]], stratum: Stratum) -> Moments:
    """Return what the tests need of the features, in one pass over blocks of rows."""
    z, s, n = stratum.z, stratum.s.values, len(stratum.z)
    w = z.new_full((n,), 1.0 / n) if stratum.weights is None else stratum.weights / stratum.weights.sum()
    sides = tuple(zip(*maps, strict=True))
    wide = [sum(one.width for one in side) for side in sides]
    zz, ss, zs = (z.new_zeros((wide[i], wide[j])) for i, j in ((0, 0), (1, 1), (0, 1)))
    plain_z, mean_z, mean_s, second_s = (z.new_zeros(wide[i]) for i in (0, 0, 1, 1))
    shift: list[Tensor] = []
    for rows in blocks(n):
        G, F = (
            torch.cat([one(x[rows]) for one in side], dim=1) for side, x in zip(sides, (z, s), strict=True)
        )
        shift = shift or [G.mean(dim=0), F.mean(dim=0)]  # near the means, so that little cancels below
        G, F = G.sub_(shift[0]), F.sub_(shift[1])
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
    return Moments(
        w=w,
        mean_z=(mean_z + shift[0]).split(columns[0]),
        mean_s=(mean_s + shift[1]).split(columns[1]),
        cross=tuple(
            part.split(columns[1], dim=1)[k] for k, part in enumerate(whole.split(columns[0], dim=0))
        ),
        gram_z=zz / n - torch.outer(plain_z, plain_z) / n**2,
        gram_s=n * gram_s,
    )


def _root(gram: Tensor) -> Tensor:
    """Return R with R R' the matrix and no more columns than it has rank."""
    eigenvalues, vectors = torch.linalg.eigh(gram)
    keep = eigenvalues > 1e-12 * eigenvalues[-1]
    return vectors[:, keep] * eigenvalues[keep].sqrt()


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
    logs = stats.gamma.logsf(x, a)
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
