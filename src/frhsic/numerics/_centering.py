"""Centring: the only place where the matrix H of the paper appears.

With weights w that sum to one, H = I - 1 w' and the centred Gram matrix is L~ = H L H'. Both estimators of
HSIC are linear in the Gram matrix of Z, <K, M>, with a matrix M that depends on S alone:

    biased     M_ij = w_i w_j L~_ij                                   (equation hsic_empirical for w = 1/n)
    unbiased   M_ij = U(L)_ij / (n (n - 3))                           (U: U-centring, zero on the diagonal)

because H (and U) are projections for the inner product, so centring one side is enough.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.kernels.scale import sum_dtype

Estimator = Literal["biased", "unbiased"]


def check_estimator(estimator: str) -> None:
    """Raise ArgumentError for an unknown estimator of HSIC."""
    if estimator not in ("biased", "unbiased"):
        raise ArgumentError(
            "estimator",
            "be 'biased' or 'unbiased'",
            repr(estimator),
            "Take 'unbiased' to report a dependence, 'biased' for a non-negative one.",
        )


def check_row_count(estimator: Estimator, n: int) -> None:
    """Raise ArgumentError for fewer rows than the U-statistic needs."""
    if estimator == "unbiased" and n < 4:
        raise ArgumentError(
            "z", "have at least 4 rows for estimator='unbiased'", n, "Use a larger batch or sample."
        )


class Centred(NamedTuple):
    """M as ``matrix * factor``: the factor is kept apart so that no entry becomes denormal in float32."""

    matrix: Tensor
    factor: float


def centred(L: Tensor, w: Tensor | None, estimator: Estimator) -> Centred:
    """Return M with HSIC = <K, M> for the Gram matrix L ``(..., n, n)``."""
    n = L.shape[-1]
    if estimator == "unbiased":
        M = L.clone()  # L is constant here: in place, half the time of the form that autograd can follow
        diagonal = M.diagonal(dim1=-2, dim2=-1)
        diagonal.zero_()
        half = _u_half_rows(M)
        M.sub_(half).sub_(half.mT)
        diagonal.zero_()
        return Centred(M, 1.0 / (n * (n - 3)))
    if w is None:
        # Sums, not means, and the division last: fewer passes over n x n numbers at batch size.
        row = L.sum(dim=-1, keepdim=True, dtype=sum_dtype(L))
        half = torch.sub(row, row.sum(dim=-2, keepdim=True), alpha=0.5 / n).to(L.dtype)
        return Centred(torch.sub(L, half, alpha=1.0 / n).sub_(half.mT, alpha=1.0 / n), 1.0 / (n * n))
    half = _half_rows(L, w)
    u = n * w
    return Centred((L - half).sub_(half.mT) * (u[:, None] * u), 1.0 / (n * n))


def _half_rows(L: Tensor, w: Tensor) -> Tensor:
    """Return h ``(..., n, 1)`` with L~_ij = L_ij - h_i - h_j."""
    row = (L @ w).unsqueeze(-1)
    return row - 0.5 * (w @ row).unsqueeze(-2)


def _u_half_rows(off: Tensor) -> Tensor:
    """Return h ``(..., n, 1)`` with U_ij = L_ij - h_i - h_j off the diagonal; that of L is zero here."""
    n = off.shape[-1]
    row = off.sum(dim=-1, keepdim=True, dtype=sum_dtype(off)) / (n - 2)
    return (row - row.sum(dim=-2, keepdim=True) / (2 * (n - 1))).to(off.dtype)


def _u_centred(L: Tensor) -> Tensor:
    off = L - torch.diag_embed(L.diagonal(dim1=-2, dim2=-1))
    half = _u_half_rows(off)
    U = off - half - half.mT
    return U - torch.diag_embed(U.diagonal(dim1=-2, dim2=-1))


class GramSums(NamedTuple):
    """What a pass over all pairs leaves behind of a Gram matrix K."""

    square: Tensor  # sum_ij w_i w_j K_ij^2
    rows: Tensor  # sum_j w_j K_ij, shape (..., n)
    diagonal: Tensor  # K_ii, shape (..., n)


def hsic_from_sums(product: Tensor, k: GramSums, m: GramSums, w: Tensor, estimator: Estimator) -> Tensor:
    """Return HSIC from product = sum_ij w_i w_j K_ij L_ij and the sums of K and L.

    w sums to one, and is 1/n for the unbiased estimator, which leaves both diagonals out of every sum.
    """
    if estimator == "biased":
        return product - 2.0 * ((k.rows * m.rows) @ w) + (k.rows @ w) * (m.rows @ w)
    n = w.shape[0]
    product = product - (k.diagonal * m.diagonal) @ w / n
    k_rows, m_rows = k.rows - k.diagonal / n, m.rows - m.diagonal / n
    # n^2 product = tr(K L), n^3 cross = 1'K L 1, n^4 total = 1'K1 1'L1 in Song et al.'s formula.
    total, cross = (k_rows @ w) * (m_rows @ w), (k_rows * m_rows) @ w
    return (product + n * n / ((n - 1) * (n - 2)) * total - 2.0 * n / (n - 2) * cross) * n / (n - 3)


def both_centred(K: Tensor, w: Tensor | None, estimator: Estimator) -> Tensor:
    """Return K~ such that HSIC is <K~, L~> up to one factor: D^1/2 H K H' D^1/2 (D = diag(w)), or U(K).

    The biased form has the spectrum of the covariance operator.
    """
    if estimator == "unbiased":
        return _u_centred(K)
    if w is None:
        return centred(K, None, "biased").matrix / K.shape[-1]
    return centred_by(K, w) * (w[:, None] * w).sqrt()


def centred_by(K: Tensor, w: Tensor) -> Tensor:
    """Return H K H' with H = I - 1 w'."""
    half = _half_rows(K, w)
    return K - half - half.mT
