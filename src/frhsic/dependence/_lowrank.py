"""Gram matrices as thin products."""

from __future__ import annotations

import torch
from torch import Tensor

from frhsic.kernels import Kernel

# What may be left of the trace.
_RESIDUAL = 1e-12


def pivoted_factor(kernel: Kernel, x: Tensor, widest: int = 512) -> Tensor | None:
    """Return F ``(n, r)``, float64, with F F' the Gram matrix of x up to 1e-12 of its trace, or None.

    Incomplete Cholesky factorisation with pivoting: r columns of the Gram matrix are evaluated and the matrix
    itself is never formed. None when the numerical rank is above ``widest`` or a quarter of the rows.
    """
    x = x.detach().double()
    n = len(x)
    left = kernel.diagonal(x).clone()
    allowed = _RESIDUAL * float(left.sum())
    F = x.new_zeros((n, 32))
    for r in range(min(widest, max(8, n // 4))):
        if float(left.sum()) <= allowed:
            return F[:, :r]
        if r == F.shape[1]:
            F = torch.cat((F, torch.zeros_like(F)), dim=1)
        pivot = int(left.argmax())
        column = kernel.gram(x, x[pivot : pivot + 1]).squeeze(-1) - F[:, :r] @ F[pivot, :r]
        F[:, r] = column / left[pivot].sqrt()
        left = (left - F[:, r].square()).clamp_min_(0.0)
        left[pivot] = 0.0
    return None


def thin_factor(kernel: Kernel, x: Tensor, rank: int) -> Tensor:
    """Return G ``(n, r)`` with r <= rank and G G' the Gram matrix of x, or its projection on few directions.

    Where the numerical rank is larger, x is seen through its similarity to 4 rank of its rows (drawn from
    seed 0: the same each time) and the principal directions of that: a kernel matrix below that of x, in
    time linear in n.
    """
    F = pivoted_factor(kernel, x, rank)
    if F is not None:
        return F
    x = x.detach().double()
    seen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[: 4 * rank].to(x.device)
    values, vectors = torch.linalg.eigh(kernel.gram(x[seen], x[seen]))
    kept = values > 1e-10 * values[-1]
    G = kernel.gram(x, x[seen]) @ (vectors[:, kept] / values[kept].sqrt())
    mean = G.mean(dim=0)
    directions = torch.linalg.eigh(G.mT @ G - len(x) * torch.outer(mean, mean)).eigenvectors
    return G @ directions[:, -rank:]
