"""The null distribution of the biased HSIC as a gamma law, after Gretton et al. (2007)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from frhsic.kernels import Kernel

# Rows of the strips in which the Gram matrices are evaluated: n = 20,000 takes 80 MB for each side.
_STRIP = 500


class NullMoments(NamedTuple):
    """The biased HSIC with its mean and variance under independence."""

    statistic: float
    mean: float
    variance: float


def null_moments(z: Tensor, s: Tensor, kernel_z: Kernel, kernel_s: Kernel) -> NullMoments:
    """Return HSIC_b with the null moments of Gretton et al. (2007), in O(n^2) time and O(n) memory.

        E HSIC_b   = (E k(z, z) - E k(z, z')) (E l(s, s) - E l(s, s')) / n
        Var HSIC_b = 2 (n - 4)(n - 5) / (n (n - 1)(n - 2)(n - 3)) x mean over i != j of (K~_ij L~_ij)^2

    with K~ = HKH. The mean is written for kernels of any diagonal; for k(x, x) = 1 it is theirs.
    """
    n = len(z)
    strips = torch.arange(n, device=z.device).split(_STRIP)
    rows_k = torch.cat([kernel_z.gram(z[part], z).mean(dim=1) for part in strips])
    rows_l = torch.cat([kernel_s.gram(s[part], s).mean(dim=1) for part in strips])
    half_k, half_l = rows_k - 0.5 * rows_k.mean(), rows_l - 0.5 * rows_l.mean()
    total, squares = z.new_zeros(()), z.new_zeros(())
    for part in strips:
        K = kernel_z.gram(z[part], z).sub_(half_k[part, None]).sub_(half_k)
        L = kernel_s.gram(s[part], s).sub_(half_l[part, None]).sub_(half_l)
        product = K.mul_(L)
        total += product.sum()
        product[torch.arange(len(part)), part] = 0.0
        squares += product.square_().sum()
    spread_z, spread_s = (
        float(diagonal.mean()) - (n * float(rows.mean()) - float(diagonal.mean())) / (n - 1)
        for diagonal, rows in ((kernel_z.diagonal(z), rows_k), (kernel_s.diagonal(s), rows_l))
    )
    pairs = n * (n - 1)
    return NullMoments(
        statistic=float(total) / n**2,
        mean=spread_z * spread_s / n,
        variance=2.0 * (n - 4) * (n - 5) / (pairs * (n - 2) * (n - 3)) * float(squares) / pairs,
    )
