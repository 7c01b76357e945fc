"""HSIC from sums over rows of products of features, or of rows of Gram matrices, and its normalisation.

With features phi of z and psi of s, weights w and the augmented rows a = (1, phi), b = (1, psi), the matrices

    F = sum_i w_i a_i b_i'    and    S = sum_i w_i^2 a_i b_i'

hold all that HSIC of these kernels needs, in its biased and in its debiased form: they can be added up in any
order, over blocks, files and machines. Where k(x, x) is not the same for all x it is one more column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from frhsic.kernels import Kernel
from frhsic.numerics._centering import Estimator

# Rows of a tile of Gram matrices.
_TILE = 256


def debiased(biased: Tensor, product: Tensor, mean_z: Tensor, mean_s: Tensor, rows: Tensor) -> Tensor:
    """Return the debiased HSIC from sum_i w_i^2 d_i e_i, sum_i w_i^2 d_i and sum_i w_i^2 e_i.

    d and e are the diagonals of the centred Gram matrices, w sums to one and ``rows`` is 1 / sum_i w_i^2. For
    equal weights it is the U-statistic; for others what is taken off is the mean at independence, up to terms
    of smaller order.
    """
    n = rows
    off = n / (n - 2.0) * product - n * n / ((n - 1.0) * (n - 2.0)) * mean_z * mean_s
    return n / (n - 3.0) * (biased - off)


class Rows(NamedTuple):
    """What each row adds to HSIC: sum_j w_j K~_ij L~_ij, its like for each side alone, K~_ii and L~_ii."""

    zs: Tensor  # (n,)
    zz: Tensor
    ss: Tensor
    diagonal_z: Tensor
    diagonal_s: Tensor

    def debiased(self, w: Tensor) -> tuple[float, float, float]:
        """Return the debiased HSIC(Z, S), HSIC(Z, Z) and HSIC(S, S)."""
        second = w.square()
        sides = (
            (self.zs, self.diagonal_z, self.diagonal_s),
            (self.zz, self.diagonal_z, self.diagonal_z),
            (self.ss, self.diagonal_s, self.diagonal_s),
        )
        zs, zz, ss = (
            float(debiased(w @ one, second @ (d * e), second @ d, second @ e, 1.0 / second.sum()))
            for one, d, e in sides
        )
        return zs, zz, ss

    def size(self, w: Tensor, normalized: bool, debiased: tuple[float, float, float] | None = None) -> float:
        """Return what HSIC is divided by: the root of HSIC(Z, Z) HSIC(S, S), or one.

        ``debiased`` are other forms of the three than those of :meth:`debiased`.
        """
        if not normalized:
            return 1.0
        _, zz, ss = debiased or self.debiased(w)
        if min(zz, ss) <= 0.0:
            raise ValueError(
                "'z' and 's' must have a positive HSIC with themselves to be normalised by it. "
                f"Got {zz:.3g} and {ss:.3g}. Use more rows, or normalized=False."
            )
        return math.sqrt(zz * ss)

    def value(self, w: Tensor, normalized: bool) -> float:
        """Return the debiased HSIC."""
        return self.debiased(w)[0] / self.size(w, normalized)

    def influence(
        self, w: Tensor, normalized: bool, debiased: tuple[float, float, float] | None = None
    ) -> Tensor:
        """Return the first-order influence of each row on it, shape ``(n,)``, of weighted mean zero."""
        influence = 2.0 * (self.zs - w @ self.zs)
        if not normalized:
            return influence
        zs, zz, ss = debiased or self.debiased(w)
        shrunk = (self.zz - w @ self.zz) / zz + (self.ss - w @ self.ss) / ss
        size = self.size(w, True, debiased)
        return influence / size - zs / size * shrunk


def pair_rows(kernels: Sequence[Kernel], pair: Sequence[Tensor], w: Tensor) -> Rows:
    """Return the rows under bound kernels, from all pairs of them, some rows at a time."""
    n = len(w)
    means, sums = [w.new_zeros(n) for _ in pair], w.new_zeros(3, n)
    starts = range(0, n, _TILE)
    tiles = [
        (slice(i, i + _TILE), slice(j, j + _TILE)) for i in starts for j in starts if i <= j
    ]  # each pair of rows once: the Gram matrices are symmetric
    for I, J in tiles:  # noqa: E741
        for k, x, mean in zip(kernels, pair, means, strict=True):
            _add_products(mean, k.gram(x[I], x[J]), w, I, J)
    for I, J in tiles:  # noqa: E741
        K, L = (
            k.gram(x[I], x[J]).sub_(mean[I, None]).sub_(mean[J] - w @ mean)
            for k, x, mean in zip(kernels, pair, means, strict=True)
        )
        for out, (A, B) in zip(sums, ((K, L), (K, K), (L, L)), strict=True):
            _add_products(out, A * B, w, I, J)
    d, e = (k.diagonal(x) - 2.0 * mean + w @ mean for k, x, mean in zip(kernels, pair, means, strict=True))
    zs, zz, ss = sums
    return Rows(zs, zz, ss, d, e)


def _add_products(out: Tensor, A: Tensor, w: Tensor, I: slice, J: slice) -> None:  # noqa: E741
    """Add to A w what the tile A[I, J] of a symmetric matrix, and its mirror image, contribute."""
    out[I] += A @ w[J]
    if I != J:
        out[J] += w[I] @ A


def feature_rows(phi: Tensor, psi: Tensor, w: Tensor) -> Rows:
    """Return the rows from features: with T = sum_i w_i phi~_i psi~_i', the first is phi~_i' T psi~_i."""
    G, F = (x - w @ x for x in (phi, psi))
    zs, zz, ss = (((a @ ((w[:, None] * a).mT @ b)) * b).sum(dim=1) for a, b in ((G, F), (G, G), (F, F)))
    return Rows(zs, zz, ss, G.square().sum(dim=1), F.square().sum(dim=1))


def hsic_of_sums(
    first: Tensor,
    second: Tensor,
    diagonal_z: float | None,
    diagonal_s: float | None,
    estimator: Estimator,
) -> Tensor:
    """Return HSIC of feature kernels from F and S (see above), shape ``(...)`` for ``(..., A, B)``.

    The rows and columns of both are those of ``augmented``: the constant first, k(x, x) last if it varies.
    """
    a, b = (first.shape[axis] - (diagonal is None) for axis, diagonal in ((-2, diagonal_z), (-1, diagonal_s)))
    total = first[..., :1, :1]
    mean_z, mean_s = first[..., 1:a, :1] / total, first[..., :1, 1:b] / total
    biased = (first[..., 1:a, 1:b] / total - mean_z * mean_s).square().sum(dim=(-2, -1))
    if estimator == "biased":
        return biased
    squared = total.square()
    u, v = _off_centre(mean_z, diagonal_z), _off_centre(mean_s.mT, diagonal_s)
    right = second @ v  # (..., A, 1)
    product = (u * right).sum(dim=-2, keepdim=True) / squared
    spread_z = (u * second[..., :1]).sum(dim=-2, keepdim=True) / squared
    spread_s = right[..., :1, :] / squared
    parts = (product, spread_z, spread_s, squared / second[..., :1, :1])
    return debiased(biased, *(part[..., 0, 0] for part in parts))


def _off_centre(mean: Tensor, diagonal: float | None) -> Tensor:
    """Return u with <u, a_i> = |phi_i - mean|^2 for augmented rows a_i."""
    size = mean.square().sum(dim=-2, keepdim=True)
    if diagonal is None:
        return torch.cat((size, -2.0 * mean, torch.ones_like(size)), dim=-2)
    return torch.cat((diagonal + size, -2.0 * mean), dim=-2)


def normalized_hsic(zs: Tensor, zz: Tensor, ss: Tensor, estimator: Estimator) -> Tensor:
    """Return zs / sqrt(zz ss), with 0 for 0/0; the biased form does not leave [0, 1]."""
    degenerate = (zz <= 0) | (ss <= 0)  # nan is not: it must come out as nan
    ratio = zs / (torch.where(degenerate, 1.0, zz).sqrt() * torch.where(degenerate, 1.0, ss).sqrt())
    if estimator == "biased":
        ratio = ratio.clamp(0.0, 1.0)
    return torch.where(degenerate, 0.0, ratio)
