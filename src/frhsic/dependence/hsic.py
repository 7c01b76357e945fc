"""HSIC: the discrepancy between the joint law of (Z, S) and the product of its marginals."""

from __future__ import annotations

from typing import Literal, Self

import torch
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.dependence._base import Dependence, checked_kernel
from frhsic.dependence._centering import Estimator, both_centred, centred
from frhsic.dependence._density import Density, effective_rows
from frhsic.dependence._numeric import signed_root
from frhsic.dependence._permutations import permuted_hsic
from frhsic.dependence._tiles import TILE, WHOLE, tiled_hsic
from frhsic.kernels import Gaussian, Kernel, default_kernel


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
        if estimator not in ("biased", "unbiased"):
            raise ValueError(
                f"'estimator' must be 'biased' or 'unbiased'. Got {estimator!r}. "
                "Take 'unbiased' to report a dependence, 'biased' for a non-negative one."
            )
        if reference not in ("product", "uniform"):
            raise ValueError(
                f"'reference' must be 'product' or 'uniform'. Got {reference!r}. Leave it out for 'product'."
            )
        if reference == "uniform" and estimator == "unbiased":
            raise ValueError(
                "'reference' must be 'product' for estimator='unbiased': the uniform reference is a "
                "weighting and no weighted unbiased estimator is derived. Got 'uniform'. "
                "Use estimator='biased'."
            )
        if block_size is not None and block_size < 1:
            raise ValueError(
                f"'block_size' must be a positive number of rows. Got {block_size}. Leave it out to choose."
            )
        self.kernel_z = checked_kernel(kernel_z, "kernel_z") or Gaussian()
        self.kernel_s = checked_kernel(kernel_s, "kernel_s")
        self.estimator = estimator
        self.normalized = normalized
        self.root = root
        self.reference = reference
        self.block_size = block_size
        self._density: Density | None = None

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
        self._refuse_few_rows(len(s))
        w = self._reference_weights(s, w)
        kernel_s = self._kernel_s(s).bind(s.values, w)
        n = len(s)
        block = self.block_size or (n if n <= WHOLE else TILE)
        if block >= n:
            value = self._whole(z, s.values, w, kernel_s)
        else:
            kernel_z = self.kernel_z.bind(z, w)
            zs, zz, ss = tiled_hsic(
                z, s.values, w, kernel_z, kernel_s, block, self.estimator, self.normalized
            )
            value = (self._normalized(zs, zz, ss) if self.normalized else zs).to(z.dtype)
        return signed_root(value) if self.root else value

    def _kernel_s(self, s: Sensitive) -> Kernel:
        return default_kernel(s.kinds) if self.kernel_s is None else self.kernel_s

    def _refuse_weights(self, w: Tensor | None) -> None:
        if w is not None and self.estimator == "unbiased":
            raise ValueError(
                "'weights' must be None for estimator='unbiased': no weighted U-statistic is derived. "
                "Got weights. Use HSIC(estimator='biased')."
            )

    def _refuse_few_rows(self, n: int) -> None:
        if self.estimator == "unbiased" and n < 4:
            raise ValueError(
                f"'z' must have at least 4 rows for estimator='unbiased'. Got {n}. "
                "Use a larger batch or sample."
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
        # Both sides centred: small entries do not cancel, and Cauchy-Schwarz holds for what is computed.
        K = self.kernel_z.bind(z, w).gram(z, z)
        A, B = (both_centred(gram, w, self.estimator) for gram in (K, L))
        return self._normalized((A * B).sum(dim=(-2, -1)), (A * A).sum(dim=(-2, -1)), (B * B).sum())

    def _normalized(self, zs: Tensor, zz: Tensor, ss: Tensor) -> Tensor:
        """Return zs / sqrt(zz ss); factors common to all three cancel, and 0/0 is 0."""
        degenerate = (zz <= 0) | (ss <= 0)  # nan is not: it must come out as nan
        ratio = zs / (torch.where(degenerate, 1.0, zz).sqrt() * torch.where(degenerate, 1.0, ss).sqrt())
        if self.estimator == "biased":
            ratio = ratio.clamp(0.0, 1.0)  # beyond is rounding
        return torch.where(degenerate, 0.0, ratio)

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
        self._refuse_few_rows(len(s))
        kernel_z = self.kernel_z.bind(z)
        kernel_s = self._kernel_s(s).bind(s.values, w)
        values = permuted_hsic(z, s.values, w, kernel_z, kernel_s, permutations, self.estimator)
        if self.normalized:
            zz = HSIC(kernel_z, kernel_z, estimator=self.estimator)(z, z)
            ss = HSIC(kernel_s, kernel_s, estimator=self.estimator)(s.values, s.values)
            values = self._normalized(values, zz, ss)
        return signed_root(values) if self.root else values
