"""Gram matrices as thin products."""

from __future__ import annotations

from torch import Tensor

from frhsic.kernels import Kernel

# What may be left of the trace. A factor wider than a quarter of the rows (or 512) saves nothing.
_RESIDUAL = 1e-12
_WIDEST = 512


def pivoted_factor(kernel: Kernel, x: Tensor) -> Tensor | None:
    """Return F ``(n, r)`` with F F' equal to the Gram matrix of x up to 1e-12 of its trace, or None.

    Incomplete Cholesky factorisation with pivoting: r columns of the Gram matrix are evaluated and the matrix
    itself is never formed. None when the numerical rank is too high for the factor to be of use.
    """
    n = len(x)
    left = kernel.diagonal(x).clone()
    allowed = _RESIDUAL * float(left.sum())
    widest = min(_WIDEST, max(8, n // 4))
    F = x.new_zeros((n, widest))
    for r in range(widest):
        if float(left.sum()) <= allowed:
            return F[:, :r]
        pivot = int(left.argmax())
        column = kernel.gram(x, x[pivot : pivot + 1]).squeeze(-1) - F[:, :r] @ F[pivot, :r]
        F[:, r] = column / left[pivot].sqrt()
        left = (left - F[:, r].square()).clamp_min_(0.0)
        left[pivot] = 0.0
    return None
