"""Features of both sides of a stratum, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from frhsic.dependence import HSIC
from frhsic.inference._strata import Stratum
from frhsic.kernels import default_kernel
from frhsic.numerics._lowrank import FeatureMap, blocks, feature_map

# Features of each side.
RANK_Z, RANK_S = 64, 64
# Rows on which features are evaluated first, to have something near their means.
_SHIFT = 4_096


@dataclass(frozen=True, eq=False)
class FeatureSums:
    """Sums over the rows of a stratum, with weights w of sum one and means of the features under them."""

    maps: Sequence[tuple[FeatureMap, FeatureMap]]  # of both sides, for each measure
    w: Tensor  # (n,)
    mean_z: tuple[Tensor, ...]  # for each measure, (r,)
    mean_s: tuple[Tensor, ...]
    cross: tuple[Tensor, ...]  # sum_i w_i (g_i - mean) (f_i - mean)', for each measure, (r, q)
    gram_z: Tensor  # sum_i (g_i - g) (g_i - g)' / n, all measures together, g the plain mean
    gram_s: Tensor  # sum_i n w_i^2 (f_i - mean) (f_i - mean)'
    plain_z: Tensor  # g, all measures together
    norms_z: Tensor  # (measures, n), bounds on |g_i - g|^2
    norms_s: Tensor  # (measures, n), bounds on |n w_i (f_i - mean)|^2

    def terms(self, k: int, z: Tensor, s: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return u_i (g_i - mean) and f_i - mean of some rows under the k-th measure."""
        map_z, map_s = self.maps[k]
        return u[:, None] * (map_z(z) - self.mean_z[k]), map_s(s) - self.mean_s[k]


def feature_sums(measures: Sequence[HSIC], stratum: Stratum) -> FeatureSums:
    """Return the sums of features of both sides under each measure."""
    z, s = stratum.z, stratum.s
    maps_z = [feature_map(one.kernel_z, z, RANK_Z) for one in measures]
    maps_s = [feature_map(one.kernel_s or default_kernel(s.kinds), s.values, RANK_S) for one in measures]
    return moments(list(zip(maps_z, maps_s, strict=True)), stratum)


def moments(maps: Sequence[tuple[FeatureMap, FeatureMap]], stratum: Stratum) -> FeatureSums:
    """Return what the tests need of the features, in one pass over blocks of rows."""
    z, s, n = stratum.z, stratum.s.values, len(stratum.z)
    w = z.new_full((n,), 1.0 / n) if stratum.weights is None else stratum.weights / stratum.weights.sum()
    sides = tuple(zip(*maps, strict=True))
    columns = [[one.width for one in side] for side in sides]
    wide = list(map(sum, columns))

    def evaluate(rows: Tensor | slice) -> list[Tensor]:
        pairs = zip(sides, (z, s), strict=True)
        return [torch.cat([one(x[rows]) for one in side], dim=1) for side, x in pairs]

    zz, ss, zs = (z.new_zeros((wide[i], wide[j])) for i, j in ((0, 0), (1, 1), (0, 1)))
    plain_z, mean_z, mean_s, second_s = (z.new_zeros(wide[i]) for i in (0, 0, 1, 1))
    norms: tuple[list[Tensor], list[Tensor]] = ([], [])
    # Near the means, so that little cancels below, in whatever order the rows stand.
    some = torch.linspace(0, n - 1, min(n, _SHIFT)).round().long()
    shift = [x.mean(dim=0) for x in evaluate(some)]
    for rows in blocks(n):
        G, F = (x.sub_(near) for x, near in zip(evaluate(rows), shift, strict=True))
        for own, x, widths in zip(norms, (G, F), columns, strict=True):
            parts = x.split(widths, dim=1)
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
    moved = [
        torch.stack([torch.linalg.vector_norm(part) for part in mean.split(own)])[:, None]
        for mean, own in zip((plain_z / n, mean_s), columns, strict=True)
    ]
    lengths = [torch.cat(own, dim=1) + far for own, far in zip(norms, moved, strict=True)]
    return FeatureSums(
        maps=maps,
        w=w,
        mean_z=(mean_z + shift[0]).split(columns[0]),
        mean_s=(mean_s + shift[1]).split(columns[1]),
        cross=tuple(part.split(columns[1], dim=1)[k] for k, part in enumerate(whole.split(columns[0]))),
        gram_z=zz / n - torch.outer(plain_z, plain_z) / n**2,
        gram_s=n * gram_s,
        plain_z=plain_z / n + shift[0],
        norms_z=lengths[0].square(),
        norms_s=(lengths[1] * (n * w)).square(),
    )
