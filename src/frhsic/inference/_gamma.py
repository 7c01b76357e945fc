"""The null distribution of the biased HSIC as a gamma law, after Gretton et al. (2007)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammaincinv
from torch import Tensor

from frhsic.kernels import Kernel

# Above the first number of rows the Gram matrices are evaluated twice, in strips of the second number: 80 MB
# for each side at n = 20,000.
_WHOLE, _STRIP = 2_048, 500


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
    strips = torch.arange(n, device=z.device).split(_STRIP if n > _WHOLE else n)
    whole = (kernel_z.gram(z, z), kernel_s.gram(s, s)) if len(strips) == 1 else None

    def grams(part: Tensor) -> tuple[Tensor, Tensor]:
        return (kernel_z.gram(z[part], z), kernel_s.gram(s[part], s)) if whole is None else whole

    means = [[gram.mean(dim=1) for gram in grams(part)] for part in strips]
    rows_k, rows_l = (torch.cat(rows) for rows in zip(*means, strict=True))
    half_k, half_l = rows_k - 0.5 * rows_k.mean(), rows_l - 0.5 * rows_l.mean()
    total, squares = z.new_zeros(()), z.new_zeros(())
    for part in strips:
        K, L = grams(part)
        product = K.sub_(half_k[part, None]).sub_(half_k).mul_(L.sub_(half_l[part, None]).sub_(half_l))
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


def gamma_tail(x: float, mean: float, variance: float) -> float:
    """Return P(a gamma law of this mean and variance > x)."""
    # Not scipy.stats: importing it takes longer than a test.
    return float(gammaincc(mean**2 / variance, max(x, 0.0) / (variance / mean)))


def log_gamma_tail(x: NDArray[np.float64], a: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log P(a gamma law of shape a > x), from the smaller one of both tails."""
    x = np.maximum(x, 0.0)
    with np.errstate(divide="ignore"):
        logs = np.where(x > gammaincinv(a, 0.5), np.log(gammaincc(a, x)), np.log1p(-gammainc(a, x)))
    return logs + 0.0  # no negative zero
