"""Kernels of the distance alone: Gaussian, Laplace, Matern, inverse multiquadric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.kernels import scale
from frhsic.kernels._base import Columns, Kernel, Term, Tiles
from frhsic.kernels._gaussian import gaussian_inner, least_exponent
from frhsic.kernels.scale import Rule, distances, exponent, held
from frhsic.kernels.spectral import GaussianLaw, NormalProductLaw, SpectralLaw, StudentLaw


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
            must = "be a positive number, 'median' or 'scale-free'"
            fix = "Leave it out for the median of the pairwise distances."
            raise ArgumentError("bandwidth", must, repr(sigma), fix)

    @property
    @abstractmethod
    def law(self) -> SpectralLaw:
        """The law of the frequencies at bandwidth one."""

    @abstractmethod
    def _profile(self, a: Tensor, b: Tensor, rate: float) -> Tensor:
        """Return the kernel with bandwidth rate^(-1/2)."""

    def _whitened(self, x: Tensor) -> Tensor:
        return scale.move(x, self._origin, self.whiten)

    def _rate(self) -> float:
        """Return 1 / sigma^2 for a number; bandwidths that are tensors divide the rows instead."""
        if not self.fixed:
            rule = self.bandwidth if isinstance(self.bandwidth, str) else "whiten=True"
            must, fix = "be a number before the kernel is evaluated", scale.FIX_RULE
            raise ArgumentError("bandwidth", must, f"the rule {rule!r}", fix)
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
            must = f"be a number, or one for each model of a stack of {tuple(x.shape[:-2])}"
            fix = "Calibrate on the models that are evaluated."
            raise ArgumentError("bandwidth", must, tuple(sigma.shape), fix)
        return x / sigma[..., None, None]

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        rate = self._rate()
        rows = self._rows(a)
        return self._profile(rows, rows if b is a else self._rows(b), rate)

    def diagonal(self, x: Tensor) -> Tensor:
        return torch.ones_like(x[..., 0])

    def bind(self, x: Tensor, weights: Tensor | None = None) -> Self:
        if self.fixed:
            return self
        transform = scale.whitening(x, weights) if self.whiten is True else self.whiten
        fixed = replace(self, whiten=transform, _origin=scale.weighted_mean(x.detach(), weights))
        if isinstance(self.bandwidth, str):
            if self.bandwidth == "scale-free":
                sigma = scale.scale_free_bandwidth(fixed._whitened(x), weights)
            else:
                sigma = scale.median_bandwidth(fixed._whitened(scale.median_rows(x)))
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
        x = x.detach()
        if self.bandwidth != "median":
            return self.bind(x, weights) if freeze else self
        moved = self
        if self.whiten is True:
            origin = scale.weighted_mean(x, weights)
            moved = replace(self, whiten=scale.whitening(x, weights), _origin=origin)
        sigma = scale.median_bandwidth(moved._whitened(scale.median_rows(x, generator)))
        return replace(moved if freeze else self, bandwidth=sigma.item() if sigma.ndim == 0 else sigma)

    bound = 1.0

    @property
    def fixed(self) -> bool:
        return self.whiten is not True and not isinstance(self.bandwidth, str)

    @property
    def row_rule(self) -> str | None:
        """A median or a whitening; a scale-free bandwidth follows from variances."""
        if self.bandwidth == "median":
            return "bandwidth='median'"
        return "whiten=True" if self.whiten is True else None

    is_standard = True

    @property
    def lipschitz(self) -> float:
        """The standard deviation of a frequency, over the bandwidth."""
        variance = self.law.variance
        if not (self.fixed and variance < float("inf")):
            return super().lipschitz
        return variance**0.5 * scale.stretch(self.whiten) / float(self.bandwidth)

    def standard_rows(self, x: Tensor) -> Tensor:
        rate = self._rate()  # first: it raises for what is still a rule
        return self._rows(x) * rate**0.5

    @property
    def plain_rate(self) -> float | None:
        """One over a bandwidth that is a plain number, for rows that are neither moved nor whitened."""
        plain = self.whiten is False and self._origin is None and not isinstance(self.bandwidth, Tensor)
        return 1.0 / float(self.bandwidth) if plain else None

    def terms(self, columns: Columns | None, factor: float, name: str) -> list[Term]:  # noqa: ARG002
        return [Term(factor, self.law, ((columns or (), self),))]


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

    law = GaussianLaw()

    def _profile(self, a: Tensor, b: Tensor, rate: float) -> Tensor:
        return exponent(a, b, rate, least_exponent(a)).exp_()

    is_exponential = True

    def tiles(self, x: Tensor) -> Tiles:
        """Return blocks that cost one matrix product and one exponential each.

        Rows (x, h, 1) on the left and (x, 1, h) on the right, h = -|x|^2 / 2, have the exponent as product.
        """
        if x.shape[-1] == 1:
            return super().tiles(x)  # subtracted directly
        rate = self._rate()  # first: it raises for what is still a rule
        x = self._rows(x)
        x = (x - x.detach().mean(dim=-2, keepdim=True)) * rate**0.5
        half = -0.5 * (x * x).sum(dim=-1, keepdim=True)
        ones = torch.ones_like(half)
        left, right = torch.cat((x, half, ones), dim=-1), torch.cat((x, ones, half), dim=-1).mT
        floor = least_exponent(x)
        reaches = bool(4.0 * half.detach().amin() < floor)  # |x_i - x_j|^2 / 2 <= |x_i|^2 + |x_j|^2

        def block(rows: slice, columns: slice) -> Tensor:
            E = left[..., rows, :] @ right[..., columns]
            return E.clamp_(floor, 0.0).exp_() if reaches else E.exp_()

        return block

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return factor sum_ij M_ij k(x_i, x_j) by one matrix product forward and one for the gradient."""
        rate = self._rate()  # first: it raises for what is still a rule
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
    bandwidth, whiten
        As for :class:`Gaussian`.

    Examples
    --------
    >>> import torch
    >>> Laplace(2.0).gram(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.6065]])
    """

    law = StudentLaw(1.0)

    def _profile(self, a: Tensor, b: Tensor, rate: float) -> Tensor:
        return held(-(rate**0.5) * distances(a, b), least_exponent(a)).exp_()


@dataclass(frozen=True, eq=False)
class Matern(_Radial):
    """The Matern similarity: between the rough Laplace and the smooth Gaussian.

    With t = sqrt(2 nu) |x - y| / sigma it is (1 + t) exp(-t) for nu = 1.5 and (1 + t + t^2 / 3) exp(-t) for
    nu = 2.5.

    Parameters
    ----------
    bandwidth, whiten
        As for :class:`Gaussian`.
    nu : {1.5, 2.5}, default=1.5
        Smoothness: functions of the RKHS have nu + d / 2 square integrable derivatives.

    Examples
    --------
    >>> import torch
    >>> Matern(1.0, nu=1.5).gram(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.4834]])
    """

    nu: float = field(default=1.5, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (1.5, 2.5):
            raise ArgumentError("nu", "be 1.5 or 2.5", repr(self.nu), "For 0.5 use Laplace.")

    @property
    def law(self) -> SpectralLaw:
        """Student t with 2 nu degrees of freedom."""
        return StudentLaw(2.0 * self.nu)

    def _profile(self, a: Tensor, b: Tensor, rate: float) -> Tensor:
        t = (2.0 * self.nu * rate) ** 0.5 * distances(a, b)
        decay = held(-t, least_exponent(a)).exp_()
        return (1.0 + t if self.nu == 1.5 else 1.0 + t + t * t / 3.0) * decay


class InverseMultiquadric(_Radial):
    """The similarity (1 + |x - y|^2 / sigma^2)^(-1/2): heavy tails, gradients that reach far pairs.

    Parameters
    ----------
    bandwidth, whiten
        As for :class:`Gaussian`.

    Examples
    --------
    >>> import torch
    >>> InverseMultiquadric(1.0).gram(torch.zeros(1, 1), torch.ones(1, 1))
    tensor([[0.7071]])
    """

    law = NormalProductLaw()

    def _profile(self, a: Tensor, b: Tensor, rate: float) -> Tensor:
        return (1.0 - 2.0 * exponent(a, b, rate)).rsqrt()
