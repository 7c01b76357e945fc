"""The Gaussian kernel's sum of products with a constant matrix, with its gradient, in one step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from frhsic.kernels.fused import apply_fused
from frhsic.kernels.scale import exponent, self_exponent, sum_dtype


def least_exponent(x: Tensor) -> float:
    """Return the exponent below which exp is as good as zero, chosen so that no product becomes denormal.

    exp of -87 and below takes some hundred times as long as exp of -60 in float32, and a denormal factor
    slows down the matrix products that follow; 1e-26 and 1e-260 are zero to any sum of kernel values.
    """
    return -60.0 if x.dtype == torch.float32 else -600.0


def gaussian_inner(x: Tensor, M: Tensor, rate: float | None = 1.0, factor: float = 1.0) -> Tensor:
    """Return factor sum_ij M_ij exp(-rate |x_i - x_j|^2 / 2), shape ``(...)``, for a constant M.

    M is symmetric with rows that sum to zero. With W = M * K the gradient is G = 2 rate factor (W - diag(W
    1)) x, so value and gradient together cost two matrix products and one exponential. A rate of None is
    scale-free, one over the mean squared distance 2 sum_i |x_i|^2 / n of centred rows; since the value
    depends on rate |x|^2 only, the gradient is then G_i - (2 rate / n) (sum_j G_j . x_j) x_i.
    """
    value = apply_fused(_Fused, x, M, rate, factor)
    if value is None:
        value = _Composable.apply(x, M, rate, factor)  # type: ignore[no-untyped-call]
    return value


def _value_and_gradient(
    x: Tensor, M: Tensor, rate: float | None, factor: float, need_gradient: bool
) -> tuple[Tensor, Tensor]:
    x = x - x.mean(dim=-2, keepdim=True)
    sigma = None
    if rate is None:
        sigma, rate = _mean_distance(x), 1.0
        x.div_(sigma)
    elif rate != 1.0:
        x.mul_(rate**0.5)
    E, half = (exponent(x, x), 0.5 * x[..., 0].square()) if x.shape[-1] == 1 else self_exponent(x)
    # The largest |x|^2 / 2 of each model tells at once whether a guard is needed.
    largest = half.amax(dim=-1)
    least, most = (float(largest.min()), float(largest.max())) if largest.ndim else (float(largest),) * 2
    if not 4.0 * most < -least_exponent(x):  # |x_i - x_j|^2 / 2 <= |x_i|^2 + |x_j|^2; above zero is rounding
        E.clamp_(least_exponent(x), 0.0)
    W = E.exp_().mul_(M)
    wide = sum_dtype(M)
    mass = W.sum(dim=-1, keepdim=True, dtype=wide)
    value = mass.sum(dim=(-2, -1))
    if not least > 0.1:
        # M sums to zero but for its rounding error, which would swamp the value when x has all but collapsed.
        value = value - M.sum(dim=(-2, -1), dtype=wide)
    if wide is not None:
        value, mass = value.to(x.dtype), mass.to(x.dtype)
    value = value.mul_(factor)
    if not need_gradient:
        return value, value
    scale = 2.0 * rate**0.5 * factor
    if x.ndim == 2:
        G = torch.addmm(mass * x, W, x, beta=-scale, alpha=scale)
    else:
        G = (W @ x).addcmul_(mass, x, value=-1.0).mul_(scale)
    if sigma is not None:
        radial = (G * x).sum(dim=(-2, -1), keepdim=True)
        G = G.addcmul_(radial, x, value=-2.0 / x.shape[-2]).div_(sigma)
    return value, G


def _mean_distance(x: Tensor) -> Tensor:
    """Return sigma with sigma^2 = 2 sum |x_i|^2 / n for centred rows, shape ``(..., 1, 1)``, floored."""
    norm = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    return (norm * (2.0 / x.shape[-2]) ** 0.5).clamp_min(torch.finfo(x.dtype).tiny ** 0.25)


def _differentiable_gradient(x: Tensor, M: Tensor, rate: float | None, factor: float) -> Tensor:
    """Return the same gradient as a function of x that can be differentiated once more."""
    x = x - x.mean(dim=-2, keepdim=True)
    sigma: Tensor | float = _mean_distance(x) if rate is None else rate**-0.5
    x = x / sigma
    W = M * exponent(x, x, least=least_exponent(x)).exp()
    G = (2.0 * factor) * (W @ x - W.sum(dim=-1, keepdim=True) * x)
    if rate is None:
        G = G - (G * x).sum(dim=(-2, -1), keepdim=True) * x * (2.0 / x.shape[-2])
    return G / sigma


def _spread(grad: Tensor) -> Tensor:
    return grad if grad.ndim == 0 else grad[..., None, None]


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, M: Tensor, rate: float | None, factor: float) -> Tensor:
        value, gradient = _value_and_gradient(x, M, rate, factor, ctx.needs_input_grad[0])
        ctx.scales = rate, factor
        ctx.save_for_backward(x, M, gradient)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        x, M, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():
            gradient = _differentiable_gradient(x, M, *ctx.scales)
        return _spread(grad) * gradient, None, None, None


class _Composable(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, M: Tensor, rate: float | None, factor: float) -> Tensor:
        return _value_and_gradient(x, M, rate, factor, need_gradient=False)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float | None, float], output: Tensor) -> None:  # noqa: ARG004
        x, M, *ctx.scales = inputs
        ctx.save_for_backward(x, M)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        x, M = ctx.saved_tensors
        return _spread(grad) * _differentiable_gradient(x, M, *ctx.scales), None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, M: Tensor, rate: float | None, factor: float
    ) -> tuple[Tensor, int]:
        # A stack of models is what the function takes anyway.
        x = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
        if in_dims[1] is not None:
            M = M.movedim(in_dims[1], 0)
            M = M.reshape(len(M), *(1,) * (x.ndim - M.ndim), *M.shape[1:])
        value: Tensor = _Composable.apply(x, M, rate, factor)  # type: ignore[no-untyped-call]
        return value, 0
