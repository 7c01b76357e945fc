"""HSIC: the discrepancy between the joint law of (Z, S) and the product of its marginals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Kind, Sensitive
from frhsic.dependence._base import Dependence
from frhsic.kernels import Gaussian, Kernel, check_kernel, default_kernel
from frhsic.kernels.fused import apply_fused
from frhsic.kernels.scale import sum_dtype
from frhsic.numerics._centering import Estimator, both_centred, centred, check_estimator, check_row_count
from frhsic.numerics._density import Density, effective_rows
from frhsic.numerics._numeric import signed_root
from frhsic.numerics._permutations import permuted_hsic
from frhsic.numerics._products import normalized_hsic
from frhsic.numerics._tiles import TILE, WHOLE, factored_hsic, tiled_hsic


class HSIC(Dependence):
    """The squared distance, in a product RKHS, between the law of (Z, S) and the product of its marginals.

    With Gram matrices K, L and centring H = I - 1 w' (Definition "Mean embeddings and HSIC" of the paper,
    equation ``hsic_empirical`` for equal weights),

        HSIC_w = sum_ij w_i w_j (H K H')_ij (H L H')_ij.

    It is zero, in the population and for characteristic kernels, exactly when Z and S are independent.

    Parameters
    ----------
    kernel_z : Kernel, default=Gaussian("median")
    kernel_s : Kernel, default=default_kernel(kinds of s)
        A product over the columns of s: a Gaussian for each continuous, a Delta for each categorical one.
    estimator : {"biased", "unbiased"}, default="biased"
        The V-statistic above, non-negative, whose expectation near independence is HSIC + (1 - E k)(1 - E l)
        / n for kernels with k(x, x) = 1; or the U-statistic, which may be negative and takes no weights.
    normalized : bool, default=False
        Divide by the geometric mean of HSIC(Z, Z) and HSIC(S, S), all by the same estimator. The biased form
        lies in [0, 1]; the unbiased ("debiased") one may leave it. 0/0 is 0.
    root : bool, default=False
        Return the signed square root, with a finite gradient at zero.
    reference : {"product", "uniform"}, default="product"
        The law of S under which the dependence is measured. "uniform" is the paper's minority-protection
        target: rows are weighted by one over the density of S (clipped), so that the comparison is between
        P(z | s) U(ds) and the product of its own marginals. :meth:`effective_rows` says what that costs.
    block_size : int or None, default=None
        Rows of a tile. Value and gradient stay the same, the memory is n + block_size^2 instead of n^2; tiles
        need plain autograd, not ``torch.func``. None tiles above 4,096 rows.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(-1, 1, 100, dtype=torch.float64)
    >>> round(HSIC(normalized=True)(s**2, s).item(), 2)
    0.32
    """

    kernel_z: Kernel

    def __init__(
        self,
        kernel_z: Kernel | None = None,
        kernel_s: Kernel | None = None,
        *,
        estimator: Estimator = "biased",
        normalized: bool = False,
        root: bool = False,
        reference: Literal["product", "uniform"] = "product",
        block_size: int | None = None,
    ) -> None:
        super().__init__()
        check_estimator(estimator)
        if reference not in ("product", "uniform"):
            raise ArgumentError(
                "reference", "be 'product' or 'uniform'", repr(reference), "Leave it out for 'product'."
            )
        if reference == "uniform" and estimator == "unbiased":
            raise ArgumentError(
                "reference",
                "be 'product' for estimator='unbiased': the uniform reference is a weighting and "
                "no weighted unbiased estimator is derived",
                "'uniform'",
                "Use estimator='biased'.",
            )
        if block_size is not None and block_size < 1:
            raise ArgumentError(
                "block_size", "be a positive number of rows", block_size, "Leave it out to choose."
            )
        self.kernel_z = check_kernel(kernel_z, "kernel_z") or Gaussian()
        self.kernel_s = check_kernel(kernel_s, "kernel_s")
        self.estimator = estimator
        self.normalized = normalized
        self.root = root
        self.reference = reference
        self.block_size = block_size
        self._density: Density | None = None

    def cheap_rows(self, width: int, kinds: Sequence[Kind]) -> int:
        """Return many for one column each, whose factors are thin; all pairs of rows are formed otherwise."""
        thin = width == 1 and len(kinds) == 1 and not self.kernel_z.fixed
        return 65_536 if thin else 1_024

    @property
    def debiased(self) -> bool:
        """Whether the estimator is the U-statistic."""
        return self.estimator == "unbiased"

    @property
    def bounded_below(self) -> bool:
        """Whether no z makes the value arbitrarily negative.

        The unbiased form leaves the diagonal out: <K, M> with a matrix M of trace zero. With a kernel that is
        not bounded it falls without end as z grows in the directions that M does not like.
        """
        return self.estimator == "biased" or self.normalized or self.kernel_z.bound < float("inf")

    def effective_rows(self, s: Tensor | Sensitive, weights: Tensor | None = None) -> float:
        """Return 1 / sum w^2, the number of equally weighted rows that would be as precise."""
        values = s.values if isinstance(s, Sensitive) else s
        _, s, w = self._checked(values.reshape(len(values), -1), s, weights)
        w = self._reference_weights(s, w)
        return float(len(s)) if w is None else effective_rows(w)

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        self._refuse_weights(w)
        check_row_count(self.estimator, len(s))
        w = self._reference_weights(s, w)
        kernel_s = self._kernel_s(s).bind(s.values, w)
        n = len(s)
        # Without gradients factors and tiles are quicker from few rows on. A factor is complete up to a share
        # of the trace, which rows of large norm and small weight would dominate: for bounded kernels only.
        quick = not (torch.is_grad_enabled() and z.requires_grad) and kernel_s.bound < float("inf")
        value = None
        if quick and self.block_size is None and n > TILE and z.shape[-1] == 1:
            value = self._thin(z, s.values, w, kernel_s)
        block = self.block_size or (n if n <= (TILE if quick else WHOLE) else TILE)
        if value is None and block >= n:
            value = self._whole(z, s.values, w, kernel_s)
        elif value is None:
            kernel_z = self.kernel_z.bind(z, w)
            zs, zz, ss = tiled_hsic(
                z, s.values, w, kernel_z, kernel_s, block, self.estimator, self.normalized
            )
            value = (normalized_hsic(zs, zz, ss, self.estimator) if self.normalized else zs).to(z.dtype)
        return signed_root(value) if self.root else value

    def beyond_chance(
        self, z: Tensor, s: Tensor | Sensitive, order: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return the U-statistic where there is one, else see :class:`Dependence`; a root has none."""
        if weights is not None or self.root or self.reference == "uniform":
            return super().beyond_chance(z, s, order, weights)
        return self._with(estimator="unbiased")(z, s)

    def _thin(self, z: Tensor, s: Tensor, w: Tensor | None, kernel_s: Kernel) -> Tensor | None:
        """Return the value for one column of z in time linear in n, or None if a kernel has no thin factor.

        Without gradients only. A kernel that was calibrated on a stack belongs to all models of it.
        """
        if (z.ndim > 2 and self.kernel_z.fixed) or not self.kernel_z.bound < float("inf"):
            return None
        models = z.reshape(-1, *z.shape[-2:])
        kernels = [self.kernel_z.bind(model, w) for model in models]
        found = factored_hsic(models, s, w, kernels, kernel_s, self.estimator)
        if found is None:
            return None
        values = [normalized_hsic(*three, self.estimator) if self.normalized else three[0] for three in found]
        return torch.stack(values).reshape(z.shape[:-2]).to(z.dtype)

    def _kernel_s(self, s: Sensitive) -> Kernel:
        return default_kernel(s.kinds) if self.kernel_s is None else self.kernel_s

    def _refuse_weights(self, w: Tensor | None) -> None:
        if w is not None and self.estimator == "unbiased":
            raise ArgumentError(
                "weights",
                "be None for estimator='unbiased': no weighted U-statistic is derived",
                "weights",
                "Use HSIC(estimator='biased').",
            )

    def _reference_weights(self, s: Sensitive, w: Tensor | None) -> Tensor | None:
        if self.reference == "product":
            return w
        density = self._density or Density.fit(s, w)
        return density.uniform_weights(s, w)

    def _whole(self, z: Tensor, s: Tensor, w: Tensor | None, kernel_s: Kernel) -> Tensor:
        L = kernel_s.gram(s, s)
        if not self.normalized:
            M, factor = centred(L, w, self.estimator)
            return self.kernel_z.bind_inner(z, M, factor, w)
        value = None
        if w is None and z.requires_grad and torch.is_grad_enabled():
            value = apply_fused(_Fused, z, L, self)
        return self._ratio(z, L, w) if value is None else value

    def _ratio(self, z: Tensor, L: Tensor, w: Tensor | None) -> Tensor:
        # Both sides centred: small entries do not cancel, and Cauchy-Schwarz holds for what is computed.
        K = self.kernel_z.bind(z, w).gram(z, z)
        A, B = (both_centred(gram, w, self.estimator) for gram in (K, L))
        return normalized_hsic(
            (A * B).sum(dim=(-2, -1)), (A * A).sum(dim=(-2, -1)), (B * B).sum(), self.estimator
        )

    def _calibrated(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        density = Density.fit(s, w) if self.reference == "uniform" else None
        return self._with(
            kernel_z=self.kernel_z.calibrate(z, weights=w, generator=generator, freeze=freeze),
            kernel_s=self._kernel_s(s).calibrate(s.values, weights=w, generator=generator, freeze=freeze),
            _density=density,
        )

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        self._refuse_weights(w)
        moving = w is not None and (self.normalized or not self.kernel_z.fixed)
        if self.reference == "uniform" or moving:  # then the side of z, too, changes with the pairing
            return super()._permuted(z, s, permutations, w)
        check_row_count(self.estimator, len(s))
        kernel_z = self.kernel_z.bind(z)
        kernel_s = self._kernel_s(s).bind(s.values, w)
        values = permuted_hsic(z, s.values, w, kernel_z, kernel_s, permutations, self.estimator)
        if self.normalized:
            zz = HSIC(kernel_z, kernel_z, estimator=self.estimator)(z, z)
            ss = HSIC(kernel_s, kernel_s, estimator=self.estimator)(s.values, s.values)
            values = normalized_hsic(values, zz, ss, self.estimator)
        return signed_root(values) if self.root else values


def _square(A: Tensor) -> Tensor:
    return torch.linalg.vector_norm(A, dim=(-2, -1)).square()


class _Fused(torch.autograd.Function):
    """Normalised HSIC of z with a constant L, and its gradient at twice the price of the value.

    With A, B the centred Gram matrices the value is r = <A, B> / sqrt(<A, A> <B, B>), and its derivative in
    K is M = (B - (<A, B> / <A, A>) A) / sqrt(<A, A> <B, B>), because centring is a projection: the gradient
    in z is that of <K, M> with M held, which kernels know how to take.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, L: Tensor, measure: HSIC) -> Tensor:
        ctx.save_for_backward(z, L)
        ctx.measure = measure
        estimator = measure.estimator
        A, B = (
            centred(gram, None, estimator).matrix for gram in (measure.kernel_z.bind(z, None).gram(z, z), L)
        )
        if sum_dtype(B) is None:  # at batch size without an array of products
            zs, zz, ss = A.flatten(-2) @ B.flatten(), _square(A), _square(B)
        else:
            zs, zz = ((A * side).sum(dim=(-2, -1), dtype=torch.float64) for side in (B, A))
            ss = (B * B).sum(dtype=torch.float64)
        value = normalized_hsic(zs, zz, ss, estimator).to(z.dtype)
        counts = (zz > 0) & (ss > 0)
        if estimator == "biased":
            counts = counts & (zs >= 0) & (zs.square() <= zz * ss)
        size = torch.where(counts, 1.0 / torch.where(counts, (zz * ss).sqrt(), 1.0), 0.0)
        share = torch.where(counts, zs / torch.where(counts, zz, 1.0), 0.0)
        size, share = (x.to(z.dtype)[..., None, None] for x in (size, share))
        M = A.mul_(-share).add_(B).mul_(size)
        with torch.enable_grad():
            seen = z.detach().requires_grad_()
            inner = measure.kernel_z.bind_inner(seen, M, 1.0, None)
            (ctx.gradient,) = torch.autograd.grad(inner.sum(), seen)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if not torch.is_grad_enabled():
            return grad[..., None, None] * ctx.gradient, None, None
        z, L = ctx.saved_tensors  # a second derivative is wanted: by the plain way
        (gradient,) = torch.autograd.grad(ctx.measure._ratio(z, L, None), z, grad, create_graph=True)
        return gradient, None, None
