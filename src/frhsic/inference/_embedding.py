"""The empirical cross-covariance of z and s as an element of a Hilbert space, and the size of its error.

Write a_i = (k(z_i, .) - mean) (x) (l(s_i, .) - mean) and C^ = mean of a_i, so that HSIC_b = |C^|^2. Up to
terms of order 1/n, C^ - C is an average of independent centred elements: for large n it is normal, with or
without independence, and

    n |C^ - C|^2   has the law of   sum_k lambda_k chi_k^2,

where lambda_k are the eigenvalues of the covariance of a_i, estimated by those of the doubly centred
entrywise product of the centred Gram matrices, divided by n: the law, given the rows, of the Gaussian
multiplier bootstrap | mean of xi_i (a_i - C^) |. The naive bootstrap of rows fails at independence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.dependence import HSIC, DistanceCovariance
from frhsic.dependence._centering import GramSums, both_centred, hsic_from_sums
from frhsic.dependence._lowrank import pivoted_factor
from frhsic.kernels import Kernel

# Thin factors are tried above the first number of rows, up to so many columns; Gram matrices are never formed
# above the second.
_WHOLE, _MOST_ROWS, _WIDEST = 400, 5_000, 128
# Up to so many rows all eigenvalues are computed; above, so many of the largest, and the rest by its mean.
_ALL_EIGENVALUES, _LARGEST = 1_200, 128
# Pairs of principal directions whose products are followed one by one when there are thin factors.
_PAIRS = 256


@dataclass(frozen=True, eq=False)
class Embedding:
    """What inference needs of two centred Gram matrices K~ and L~ of n rows."""

    zs: Tensor  # (n,), the mean over j of K~_ij L~_ij
    zz: Tensor
    ss: Tensor
    diagonal_z: Tensor  # (n,)
    diagonal_s: Tensor
    eigenvalues: Tensor  # of the covariance of a_i, largest first
    rest: float  # the part of its trace that they leave out
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.zs)

    @property
    def length(self) -> float:
        """|C^|, the root of the biased HSIC."""
        return math.sqrt(max(float(self.zs.mean()), 0.0))

    def unbiased(self) -> tuple[float, float, float]:
        """Return the U-statistics of HSIC(Z, S), HSIC(Z, Z) and HSIC(S, S)."""
        n = len(self)
        w, none = self.zs.new_full((n,), 1.0 / n), torch.zeros_like(self.zs)
        # Rows of centred matrices sum to zero, and U-centring does not see that they were centred before.
        z, s = (GramSums(none[0], none, diagonal) for diagonal in (self.diagonal_z, self.diagonal_s))
        parts = ((self.zs, z, s), (self.zz, z, z), (self.ss, s, s))
        zs, zz, ss = (float(hsic_from_sums(rows.mean(), k, m, w, "unbiased")) for rows, k, m in parts)
        return zs, zz, ss

    def size(self, normalized: bool) -> float:
        """Return what HSIC is divided by: the root of HSIC(Z, Z) HSIC(S, S), or one."""
        if not normalized:
            return 1.0
        _, zz, ss = self.unbiased()
        if min(zz, ss) <= 0.0:
            raise ValueError(
                "'z' and 's' must have a positive HSIC with themselves to be normalised by it. "
                f"Got {zz:.3g} and {ss:.3g}. Use more rows, or normalized=False."
            )
        return math.sqrt(zz * ss)

    def standard_error(self, normalized: bool) -> float:
        """Return the first-order standard error of the unbiased form.

        The mean over j of K~_ij L~_ij is half the influence of row i. At independence the true influence
        vanishes, and what is left here is noise of variance (4/n) E[k~^2] E[l~^2]: over n, twice the variance
        of the degenerate U-statistic. So it is never too small there.
        """
        influence = 2.0 * (self.zs - self.zs.mean())
        if normalized:
            zs, zz, ss = self.unbiased()
            size = self.size(True)
            shrunk = (self.zz - self.zz.mean()) / zz + (self.ss - self.ss.mean()) / ss
            influence = influence / size - zs / size * shrunk
        return math.sqrt(float(influence.var()) / len(self))

    def errors(self, n_draws: int, generator: torch.Generator) -> Tensor:
        """Return draws of |C^ - C|, shape ``(n_draws,)``."""
        chi = torch.randn((n_draws, len(self.eigenvalues)), generator=generator, dtype=torch.float64).square()
        return ((chi @ self.eigenvalues + self.rest) / len(self)).sqrt()


def as_hsic(measure: HSIC | DistanceCovariance, s: Sensitive) -> HSIC:
    """Return the measure as an HSIC on its kernels for these columns."""
    return measure._hsic(s.kinds) if isinstance(measure, DistanceCovariance) else measure


def embedding(z: Tensor, s: Sensitive, measure: HSIC, generator: torch.Generator) -> Embedding:
    """Return the embedding under the kernels of a measure, bound on these rows.

    Up to 5,000 rows exactly; above, from thin factors of the Gram matrices in linear time where there are
    such (scores are one column), or else from a random subsample of 5,000 rows, which the notes say.
    """
    if measure.reference != "product":
        raise ValueError(
            "'dependence' must have reference='product': the errors of an estimated density are not "
            f"followed. Got {measure.reference!r}. Use HSIC(reference='product')."
        )
    kernel_z, kernel_s = measure.kernel_z.bind(z), measure._kernel_s(s).bind(s.values)
    n = len(z)
    notes: tuple[str, ...] = ()
    if n > _WHOLE:
        thin = _from_factors(kernel_z, kernel_s, z, s.values)
        if thin is not None:
            return thin
    if n > _MOST_ROWS:
        rows = torch.randperm(n, generator=generator)[:_MOST_ROWS]
        z, s = z[rows], s[rows]
        notes = (f"A random subsample of {_MOST_ROWS:,} of {n:,} rows was used.",)
    return _from_grams(kernel_z, kernel_s, z, s.values, notes)


def _from_grams(
    kernel_z: Kernel, kernel_s: Kernel, z: Tensor, s: Tensor, notes: tuple[str, ...]
) -> Embedding:
    n = len(z)
    K, L = (n * both_centred(k.gram(x, x), None, "biased") for k, x in ((kernel_z, z), (kernel_s, s)))
    product = K * L
    centred = both_centred(product, None, "biased")  # its eigenvalues are those of the covariance of a_i
    if n <= _ALL_EIGENVALUES:
        values = torch.linalg.eigvalsh(centred)
    else:
        start = torch.ones(n, dtype=torch.float64).numpy()  # or it would be random
        values = torch.from_numpy(
            eigsh(centred.numpy(), k=_LARGEST, v0=start, return_eigenvectors=False, tol=1e-6)
        )
    values = values.clamp_min(0.0).sort(descending=True).values
    rest = max(0.0, float(centred.diagonal().sum() - values.sum()))
    zs, zz, ss = product.mean(dim=1), (K * K).mean(dim=1), (L * L).mean(dim=1)
    return Embedding(zs, zz, ss, K.diagonal(), L.diagonal(), values, rest, notes)


def _from_factors(kernel_z: Kernel, kernel_s: Kernel, z: Tensor, s: Tensor) -> Embedding | None:
    """Return the same from thin factors K = G G' and L = F F', in linear time, or None if there are none.

    With T = G'F / n, the mean over j of K~_ij L~_ij is G_i' T F_i.
    """
    F = pivoted_factor(kernel_s, s, _WIDEST)
    G = None if F is None else pivoted_factor(kernel_z, z, _WIDEST)
    if F is None or G is None:
        return None
    n = len(z)
    G, F = principal(G), principal(F)
    zs, zz, ss = (((A @ (A.mT @ B / n)) * B).sum(dim=1) for A, B in ((G, F), (G, G), (F, F)))
    diagonal_z, diagonal_s = G.square().sum(dim=1), F.square().sum(dim=1)
    # The covariance of G_i (x) F_i, on the pairs of directions with the largest products.
    sizes = torch.outer(G.square().mean(dim=0), F.square().mean(dim=0)).flatten()
    kept = sizes.argsort(descending=True)[:_PAIRS]
    a, b = kept // F.shape[1], kept % F.shape[1]
    second, first = G.new_zeros((len(kept), len(kept))), G.new_zeros(len(kept))
    for part_g, part_f in zip(G.split(_MOST_ROWS), F.split(_MOST_ROWS), strict=True):
        products = part_g[:, a] * part_f[:, b]
        second += products.mT @ products / n
        first += products.sum(dim=0) / n
    values = torch.linalg.eigvalsh(second - torch.outer(first, first)).clamp_min(0.0).flip(0)
    rest = max(0.0, float((diagonal_z * diagonal_s).mean() - zs.mean() - values.sum()))
    return Embedding(zs, zz, ss, diagonal_z, diagonal_s, values, rest, ())


def principal(F: Tensor) -> Tensor:
    """Return the centred factor turned to its principal directions."""
    F = F - F.mean(dim=0)
    return F @ torch.linalg.eigh(F.mT @ F).eigenvectors
