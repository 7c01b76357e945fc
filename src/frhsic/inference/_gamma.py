"""The null distribution of the biased HSIC as a gamma law, after Gretton et al. (2007)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy import special
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.dependence import HSIC, Dependence
from frhsic.inference._embedding import biased_hsic
from frhsic.inference._results import TestResult
from frhsic.inference._strata import Design
from frhsic.kernels import Kernel, default_kernel

# Above the first number of rows the Gram matrices are evaluated twice, in strips of the second number: 80 MB
# for each side at n = 20,000.
_WHOLE, _STRIP = 2_048, 500


class NullMoments(NamedTuple):
    """The biased HSIC with its mean and variance under independence."""

    statistic: float
    mean: float
    variance: float


def gamma_test(design: Design, dependence: Dependence | None, generator: torch.Generator) -> TestResult:
    """Test independence with a gamma law of the null moments, averaged over strata by their shares."""
    for passed, argument, got, units in (
        (design.n_groups is not None, "groups", "groups", "independent rows"),
        (design.weighted, "sample_weight", "weights", "equal weights"),
    ):
        if passed:
            must = f"be None for method='gamma': its moments are for {units}"
            raise ArgumentError(argument, must, got, "Use method='permutation'.")
    z, s = design.z, design.s
    measure = HSIC() if dependence is None else dependence
    plain = biased_hsic(measure, s, "method='gamma'", "Use method='permutation', which takes any measure.")
    fixed = plain.calibrate(z, s, generator, freeze=True)
    kernel_s = fixed.kernel_s or default_kernel(s.kinds)
    statistic = mean = variance = 0.0
    for stratum in design.strata:
        moments = null_moments(stratum.z, stratum.s.values, fixed.kernel_z, kernel_s)
        statistic += stratum.share * moments.statistic
        mean += stratum.share * moments.mean
        variance += stratum.share**2 * moments.variance
    return TestResult(
        statistic=statistic,
        pvalue=gamma_tail(statistic, mean, variance) if mean > 0 and variance > 0 else 1.0,
        method="gamma",
        measure=f"{type(measure).__name__} in its biased form",
        attributes=s.names,
        n=len(z),
        exact=False,
        notes=design.notes,
    )


def gamma_tail(x: float, mean: float, variance: float) -> float:
    """Return P(X > x) of the gamma law with this mean and variance."""
    return float(special.gammaincc(mean**2 / variance, max(x, 0.0) / (variance / mean)))


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
