"""Kernels of the distance alone: Gaussian, Laplace, inverse multiquadric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from frhsic.kernels._base import Kernel, Tiles, applied
from frhsic.kernels._scale import (
    Rule,
    distances,
    exponent,
    held,
    median_bandwidth,
    scale_free_bandwidth,
    self_exponent,
    sum_dtype,
    weighted_mean,
    whitening,
)


@dataclass(frozen=True, eq=False)
class _Radial(Kernel, ABC):
    bandwidth: float | Rule | Tensor = "median"
    whiten: bool | Tensor = False
    # Subtracted before rows are divided or whitened, or else float32 rounds away what is far from zero.
    _origin: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        sigma = self.bandwidth
        if isinstance(sigma, Tensor) or sigma in ("median", "scale-free"):
            return
        if isinstance(sigma, str) or not 0 < sigma < float("inf"):
            raise ValueError(
                f"'bandwidth' must be a positive number, 'median' or 'scale-free'. Got {sigma!r}. "
                "Leave it out for the median of the pairwise distances."
            )

    @abstractmethod
    def _profile(self, a: Tensor, b: Tensor, rate: float) -> Tensor:
        """Return the kernel with bandwidth rate^(-1/2)."""

    def _whitened(self, x: Tensor) -> Tensor:
        if self._origin is not None:
            x = x - self._origin.to(x)
        return x @ self.whiten.to(x) if isinstance(self.whiten, Tensor) else x

    def _rate(self) -> float:
        """Return 1 / sigma^2 for a number; bandwidths that are tensors divide the rows instead."""
        if not self.fixed:
            rule = self.bandwidth if isinstance(self.bandwidth, str) else "whiten=True"
            raise ValueError(
                f"'bandwidth' must be a number before the kernel is evaluated. Got the rule {rule!r}. "
                "Fix it on data first: kernel.calibrate(x, freeze=True)."
            )
        return 1.0 if self._divides else float(self.bandwidth) ** -2

    @property
    def _divides(self) -> bool:
        """Whether rows are divided by the bandwidth: it is a tensor, or its square leaves the floats."""
        return isinstance(self.bandwidth, Tensor) or not 1e-15 < float(self.bandwidth) < 1e15

    def _rows(self, x: Tensor) -> Tensor:
        x = self._whitened(x)
        if not self._divides:
            return x
        if not isinstance(self.bandwidth, Tensor):
            return x / float(self.bandwidth)
        sigma = self.bandwidth.to(x)
        if sigma.ndim and sigma.shape != x.shape[:-2]:
            raise ValueError(
                f"'bandwidth' must be a number, or one for each model of a stack of {tuple(x.shape[:-2])}. "
                f"Got {tuple(sigma.shape)}. Calibrate on the models that are evaluated."
            )
        return x / sigma[..., None, None]

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the Gram matrix, shape ``(..., n, m)``; the bandwidth must be a number by now."""
        rate = self._rate()
        rows = self._rows(a)
        return self._profile(rows, rows if b is a else self._rows(b), rate)

    def diagonal(self, x: Tensor) -> Tensor:
        """Return ones, shape ``(..., n)``."""
        return torch.ones_like(x[..., 0])

    def bind(self, x: Tensor, weights: Tensor | None = None) -> Self:
        """Resolve whitening, then the bandwidth, on the rows of x."""
        if self.fixed:
            return self
        transform = whitening(x, weights) if self.whiten is True else self.whiten
        fixed = replace(self, whiten=transform, _origin=weighted_mean(x.detach(), weights))
        if isinstance(self.bandwidth, str):
            x = fixed._whitened(x)
            free = self.bandwidth == "scale-free"
            sigma = scale_free_bandwidth(x, weights) if free else median_bandwidth(x)
            fixed = replace(fixed, bandwidth=sigma)
        return fixed

    def calibrate(
        self,
        x: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
        freeze: bool = False,
    ) -> Self:
        """Fix ``"median"`` on the rows of x; with ``freeze`` also ``"scale-free"`` and the whitening."""
        x = x.detach()
        fixed = self
        if self.bandwidth == "median":
            centred = x - weighted_mean(x, weights)
            seen = centred @ whitening(x, weights) if self.whiten is True else self._whitened(x)
            sigma = median_bandwidth(seen, generator)
            fixed = replace(self, bandwidth=sigma.item() if sigma.ndim == 0 else sigma)
        return fixed.bind(x, weights) if freeze else fixed

    @property
    def bound(self) -> float:
        """One: k(x, x) = 1 for every x."""
        return 1.0

    @property
    def fixed(self) -> bool:
        """Whether bandwidth and whitening are numbers."""
        return self.whiten is not True and not isinstance(self.bandwidth, str)


class Gaussian(_Radial):
    """The similarity exp(-|x - y|^2 / (2 sigma^2)), the paper's kernel on Z and on S.

    Parameters
    ----------
    bandwidth : float, "median" or "scale-free", default="median"
        sigma. ``"median"`` is the median pairwise distance (of 2,000 random rows at most). ``"scale-free"``
        is sigma^2 = 2 tr Cov(x), computed at each evaluation inside the graph, so that multiplying x by a
        constant changes nothing. It is then not one fixed kernel: the results that compare a sample with its
        population or a test with a training sample (uniform concentration, certificates) do not apply until
        it is frozen with ``calibrate(x, freeze=True)``; the identities and bounds that hold for each sample
        by itself do.
    whiten : bool, default=False
        Evaluate on whitened rows: blind to the scale of each direction of x.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> Gaussian(1.0).gram(x, x)
    tensor([[1.0000, 0.6065],
            [0.6065, 1.0000]])
    """

    def _profile(self, a: Tensor, b: Tensor, rate: float) -> Tensor:
        return exponent(a, b, rate, _floor(a)).exp_()

    def tiles(self, x: Tensor) -> Tiles:
        """Return blocks that cost one matrix product and one exponential each.

        Rows (x, h, 1) on the left and (x, 1, h) on the right, h = -|x|^2 / 2, have the exponent as product.
        """
        if x.shape[-1] == 1:
            return super().tiles(x)  # subtracted directly
        rate = self._rate()  # first: it refuses what is still a rule
        x = self._rows(x)
        x = (x - x.detach().mean(dim=-2, keepdim=True)) * rate**0.5
        half = -0.5 * (x * x).sum(dim=-1, keepdim=True)
        ones = torch.ones_like(half)
        left, right = torch.cat((x, half, ones), dim=-1), torch.cat((x, ones, half), dim=-1).mT
        floor = _floor(x)
        reaches = bool(4.0 * half.detach().amin() < floor)  # |x_i - x_j|^2 / 2 <= |x_i|^2 + |x_j|^2

        def block(rows: slice, columns: slice) -> Tensor:
            E = left[..., rows, :] @ right[..., columns]
            return E.clamp_(floor, 0.0).exp_() if reaches else E.exp_()

        return block

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return factor sum_ij M_ij k(x_i, x_j) by one matrix product forward and one for the gradient."""
        rate = self._rate()  # first: it refuses what is still a rule
        return gaussian_inner(self._rows(x), M, rate, factor)

    def bind_inner(self, x: Tensor, M: Tensor, factor: float = 1.0, weights: Tensor | None = None) -> Tensor:
        """Return the same for rules; ``"scale-free"`` costs three passes over x more than a number."""
        if weights is None and self.bandwidth == "scale-free" and self.whiten is False:
            return gaussian_inner(x, M, None, factor)
        return super().bind_inner(x, M, factor, weights)


class Laplace(_Radial):
    """The similarity exp(-|x - y| / sigma), with the Euclidean norm.

    Parameters
    ----------
    bandwidth : float, "median" or "scale-free", default="median"
        sigma, by the rules of :class:`Gaussian`.
    whiten : bool, default=False
        Evaluate on whitened rows.

    Examples
    --------
    >>> import torch
    >>> Laplace(2.0).gram(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.6065]])
    """

    def _profile(self, a: Tensor, b: Tensor, rate: float) -> Tensor:
        return held(-(rate**0.5) * distances(a, b), _floor(a)).exp_()


class InverseMultiquadric(_Radial):
    """The similarity (1 + |x - y|^2 / sigma^2)^(-1/2): heavy tails, gradients that reach far pairs.

    Parameters
    ----------
    bandwidth : float, "median" or "scale-free", default="median"
        sigma, by the rules of :class:`Gaussian`.
    whiten : bool, default=False
        Evaluate on whitened rows.

    Examples
    --------
    >>> import torch
    >>> InverseMultiquadric(1.0).gram(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.7071]])
    """

    def _profile(self, a: Tensor, b: Tensor, rate: float) -> Tensor:
        return (1.0 - 2.0 * exponent(a, b, rate)).rsqrt()


def _floor(x: Tensor) -> float:
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
    value = applied(_Fused, x, M, rate, factor)
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
    if not 4.0 * most < -_floor(x):  # |x_i - x_j|^2 / 2 <= |x_i|^2 + |x_j|^2; above zero is rounding
        E.clamp_(_floor(x), 0.0)
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
    W = M * exponent(x, x, least=_floor(x)).exp()
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
        x = (
            x.unsqueeze(0).expand(info.batch_size, *x.shape)
            if in_dims[0] is None
            else x.movedim(in_dims[0], 0)
        )
        if in_dims[1] is not None:
            M = M.movedim(in_dims[1], 0)
            M = M.reshape(len(M), *(1,) * (x.ndim - M.ndim), *M.shape[1:])
        value: Tensor = _Composable.apply(x, M, rate, factor)  # type: ignore[no-untyped-call]
        return value, 0
