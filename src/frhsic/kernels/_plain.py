"""Kernels without a bandwidth: linear, energy (of distance covariance) and delta."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.kernels import scale
from frhsic.kernels._base import Columns, Kernel, Term
from frhsic.kernels.fused import apply_fused
from frhsic.kernels.scale import distances, distances_by_product


@dataclass(frozen=True, eq=False)
class _Anchored(Kernel, ABC):
    whiten: bool | Tensor = False
    origin: Tensor | None = None

    def standard_rows(self, x: Tensor) -> Tensor:
        if self.whiten is True:
            must = "be resolved before the kernel is evaluated"
            raise ArgumentError("whiten", must, "the rule whiten=True", scale.FIX_RULE)
        return scale.move(x, self.origin, self.whiten)

    def bind(self, x: Tensor, weights: Tensor | None = None) -> Self:
        transform = scale.whitening(x, weights) if self.whiten is True else self.whiten
        # Centred Gram matrices do not depend on the origin; at the mean row their entries cancel least.
        origin = scale.weighted_mean(x.detach(), weights) if self.origin is None else self.origin
        return replace(self, whiten=transform, origin=origin)

    bound = float("inf")

    @property
    def fixed(self) -> bool:
        return self.whiten is not True  # the origin does not matter once centred

    @property
    def anchored(self) -> bool:
        return self.origin is not None

    @property
    def row_rule(self) -> str | None:
        return "whiten=True" if self.whiten is True else None


class Linear(_Anchored):
    """The similarity <x, y>: it sees the covariance of x with s and nothing else, so a U-shape is invisible.

    Parameters
    ----------
    whiten : bool, default=False
        Evaluate on whitened rows.
    origin : Tensor of shape (d,) or None, default=None
        The point from which rows are measured; HSIC does not depend on it.

    Examples
    --------
    >>> import torch
    >>> Linear().gram(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])).item()
    11.0
    """

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the inner products of rows, shape ``(..., n, m)``."""
        return self.standard_rows(a) @ self.standard_rows(b).mT

    def diagonal(self, x: Tensor) -> Tensor:
        """Return the squared norms, shape ``(..., n)``."""
        return self.standard_rows(x).square().sum(dim=-1)

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return factor tr(x' M x), shape ``(...)``, without the Gram matrix of x."""
        x = self.standard_rows(x)
        return (x * (M @ x)).sum(dim=(-2, -1)) * factor

    def quadratic(self, x: Tensor, E: Tensor) -> Tensor:
        """Return |x' e|^2 for each row e of E, shape ``(..., a)``."""
        return (E @ self.standard_rows(x)).square().sum(dim=-1)

    has_linear = True

    @property
    def lipschitz(self) -> float:
        """The norm of the whitening, one without it."""
        return scale.stretch(self.whiten) if self.fixed else super().lipschitz

    def terms(self, columns: Columns | None, factor: float, name: str) -> list[Term]:  # noqa: ARG002
        """Return the columns themselves."""
        return [Term(factor, None, ((columns or (), self),))]


class Energy(_Anchored):
    """The similarity (|x| + |y| - |x - y|) / 2, for which squared distance covariance is 4 HSIC.

    Parameters
    ----------
    whiten, origin
        As for :class:`Linear`; norms are measured from the origin.

    Examples
    --------
    >>> import torch
    >>> Energy().gram(torch.tensor([[1.0]]), torch.tensor([[3.0]])).item()
    1.0
    """

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the Gram matrix, shape ``(..., n, m)``."""
        same = a is b
        a = self.standard_rows(a)
        b = a if same else self.standard_rows(b)
        zero = a.new_zeros((*a.shape[:-2], 1, a.shape[-1]))
        return 0.5 * (distances(a, zero) + distances(b, zero).mT - distances(a, b))

    def diagonal(self, x: Tensor) -> Tensor:
        """Return the norms, shape ``(..., n)``."""
        return torch.linalg.vector_norm(self.standard_rows(x), dim=-1)

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return -factor/2 sum_ij M_ij |x_i - x_j|, shape ``(...)``: rows of M sum to zero, so norms drop."""
        x = self.standard_rows(x)
        in_graph = x.requires_grad and torch.is_grad_enabled()
        value = apply_fused(_Distances, x, M, factor) if in_graph else None
        if value is not None:
            return value
        return (distances(x, x) * M).sum(dim=(-2, -1)) * (-0.5 * factor)

    by_distance = True


class _Distances(torch.autograd.Function):
    """The sum -factor/2 sum_ij M_ij |x_i - x_j| for a symmetric M, and its gradient by one matrix product.

    With W_ij = M_ij / |x_i - x_j| (zero for equal rows) the gradient is factor (W x - diag(W 1) x).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, M: Tensor, factor: float) -> Tensor:
        D = distances_by_product(x, x)
        ctx.factor, ctx.distances = factor, D
        ctx.save_for_backward(x, M)
        return (D * M).sum(dim=(-2, -1)) * (-0.5 * factor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, M = ctx.saved_tensors
        D = ctx.distances
        if torch.is_grad_enabled():  # a second derivative is wanted: distances that autograd can follow
            squared = (x.unsqueeze(-2) - x.unsqueeze(-3)).square().sum(dim=-1)
            D = torch.where(squared > 0, torch.where(squared > 0, squared, 1.0).sqrt(), 0.0)
        W = torch.where(D > 0, M / torch.where(D > 0, D, 1.0), 0.0)
        x = x - x.mean(dim=-2, keepdim=True)
        G = W @ x - W.sum(dim=-1, keepdim=True) * x
        return (ctx.factor * grad)[..., None, None] * G, None, None


@dataclass(frozen=True, eq=False)
class Delta(Kernel):
    """The similarity 1 if all columns agree, else 0: the kernel of categories.

    Examples
    --------
    >>> import torch
    >>> codes = torch.tensor([[0.0], [1.0], [1.0]])
    >>> Delta().gram(codes, codes)[1]
    tensor([0., 1., 1.])
    """

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the matrix of agreements, shape ``(..., n, m)``."""
        return (a.unsqueeze(-2) == b.unsqueeze(-3)).all(dim=-1).to(a.dtype)

    def diagonal(self, x: Tensor) -> Tensor:
        """Return ones, shape ``(..., n)``."""
        return torch.ones_like(x[..., 0])

    bound = 1.0

    lipschitz = 2.0**0.5  # codes of categories are at least 1 apart

    is_standard = True

    by_equality = True
