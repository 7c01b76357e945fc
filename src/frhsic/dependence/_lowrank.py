"""Gram matrices as thin products."""

from __future__ import annotations

import torch
from torch import Tensor

from frhsic.kernels import Kernel

# What may be left of the trace.
_RESIDUAL = 1e-12


def pivoted_factor(kernel: Kernel, x: Tensor, widest: int = 512, *, cut: bool = False) -> Tensor | None:
    """Return F ``(n, r)``, float64, with F F' the Gram matrix of x up to 1e-12 of its trace, or None.

    Incomplete Cholesky factorisation with pivoting: r columns of the Gram matrix are evaluated and the matrix
    itself is never formed. When the numerical rank is above ``widest`` or a quarter of the rows, None; with
    ``cut`` the columns so far, whose F F' is a kernel matrix below that of x.
    """
    x = x.detach().double()
    n = len(x)
    left = kernel.diagonal(x).clone()
    allowed = _RESIDUAL * float(left.sum())
    F = x.new_zeros((n, 32))
    for r in range(min(widest, n if cut else max(8, n // 4))):
        if float(left.sum()) <= allowed:
            return F[:, :r]
        if r == F.shape[1]:
            F = torch.cat((F, torch.zeros_like(F)), dim=1)
        pivot = int(left.argmax())
        column = kernel.gram(x, x[pivot : pivot + 1]).squeeze(-1) - F[:, :r] @ F[pivot, :r]
        F[:, r] = column / left[pivot].sqrt()
        left = (left - F[:, r].square()).clamp_min_(0.0)
        left[pivot] = 0.0
    return F[:, : r + 1] if cut else None
