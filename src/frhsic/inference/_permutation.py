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
from frhsic.dependence._lowrank import thin_factor
from frhsic.kernels import Gaussian, Linear, OnColumns, default_kernel
from frhsic.kernels._scale import median_bandwidth

# Bandwidths of z and of s as multiples of their medians, and the weight of each pair. The first is nearly
# linear; along s the others are narrower than along z, because a score is a function of s plus noise.
FAMILY = ((4.0, 4.0, 0.5), (2.0, 0.5, 0.25), (1.0, 0.25, 0.25))
# Columns of a thin factor of each side: 1,000,000 rows take 1 GB for each pair of bandwidths.
RANK_Z, RANK_S = 64, 64
# Permutations are drawn in chunks of about this many row numbers (160 MB).
_CHUNK = 20_000_000


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
            as_they_are = torch.arange(n)[None] if int(part[0]) == 0 else torch.empty((0, n)).long()
            drawn = random_orders(n, len(part) - len(as_they_are), generator)
            orders = torch.cat((as_they_are, drawn))
            for k, measure in enumerate(measures):
                values = measure.permuted(stratum.z, stratum.s, orders, stratum.weights)
                total[k, part] += stratum.share * values
    return total


def random_orders(n: int, count: int, generator: torch.Generator) -> Tensor:
    """Return random permutations of n rows, shape ``(count, n)``."""
    orders = torch.empty((count, n), dtype=torch.int64)
    for order in orders:
        torch.randperm(n, generator=generator, out=order)
    return orders


def wild_values(
    measures: Sequence[HSIC], strata: Sequence[Stratum], count: int, generator: torch.Generator
) -> Tensor:
    """Return HSIC_w and ``count`` draws of its wild bootstrap, ``(k, count + 1)``.

    HSIC_w = |sum_i w_i phi_i (x) psi_i|^2 with features centred by w; a draw multiplies each term by an
    independent standard normal. Under independence (of the weighted law) both have the same limit.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in strata:
        w = stratum.weights
        if stratum.constant:
            continue
        assert w is not None  # noqa: S101
        w = w / w.sum()
        sides: list[tuple[Tensor, Tensor]] = []
        for k, measure in enumerate(measures):
            G, F = features(measure, stratum)
            sides.append((w[:, None] * (G - w @ G), F - w @ F))
            total[k, 0] += stratum.share * sides[k][0].T.matmul(sides[k][1]).square().sum()
        for part in torch.arange(1, count + 1).split(max(1, _CHUNK // len(w))):
            xi = torch.randn((len(w), len(part)), generator=generator, dtype=torch.float64)
            for k, (G, F) in enumerate(sides):
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
        n, w = len(stratum.z), stratum.weights
        sides: list[tuple[Tensor, Tensor]] = []
        for measure in measures:
            G, F = features(measure, stratum)
            G = G - G.mean(dim=0)
            F = F - F.mean(dim=0) if w is None else n * (w / w.sum())[:, None] * (F - (w / w.sum()) @ F)
            sides.append((G, F))
        root_z, root_s = (_gram_root(torch.cat(side, dim=1)) for side in zip(*sides, strict=True))
        for k, (G, F) in enumerate(sides):
            total[k, 0] += stratum.share * float((G.T @ F).square().sum()) / n**2
        rows_z, rows_s = (
            root.split([X.shape[1] for X in side])
            for root, side in zip((root_z, root_s), zip(*sides, strict=True), strict=True)
        )
        size = root_z.shape[1], root_s.shape[1]
        for part in torch.arange(1, count + 1).split(max(1, _CHUNK // (size[0] * size[1]))):
            noise = torch.randn((len(part), *size), generator=generator, dtype=torch.float64)
            for k in range(len(sides)):
                draws = (rows_z[k] @ noise @ rows_s[k].T).square().sum(dim=(1, 2)) / (n - 1) / n**2
                total[k, part] += stratum.share * draws
    return total


def features(measure: HSIC, stratum: Stratum) -> tuple[Tensor, Tensor]:
    """Return G (n, r) and F (n, q) with G G' and F F' the Gram matrices, or the best of so few columns."""
    kernel_s = measure.kernel_s or default_kernel(stratum.s.kinds)
    return (
        thin_factor(measure.kernel_z, stratum.z, RANK_Z),
        thin_factor(kernel_s, stratum.s.values, RANK_S),
    )


def _gram_root(X: Tensor) -> Tensor:
    """Return R with R R' = X'X and no more columns than it has rank."""
    eigenvalues, vectors = torch.linalg.eigh(X.T @ X)
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
