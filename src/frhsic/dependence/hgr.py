"""Kernel HGR: the largest correlation between a function of Z and a function of S."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive
from frhsic.dependence._base import Dependence
from frhsic.kernels import Gaussian, Kernel, check_kernel, default_kernel
from frhsic.numerics._centering import both_centred
from frhsic.numerics._lowrank import pivoted_factor
from frhsic.numerics._numeric import signed_root


class KernelHGR(Dependence):
    """The largest correlation of a function of Z with a function of S, both from a regularised RKHS ball.

    The operator norm of (C_zz + ridge_z)^(-1/2) C_zs (C_ss + ridge_s)^(-1/2), with the empirical covariance
    operators of the paper's appendix "Regularized empirical kHGR"; its square is at most HSIC_b / (ridge_z
    ridge_s) (Proposition "Regularized empirical sandwich bound").

    Parameters
    ----------
    ridge_z, ridge_s : float, default=0.01
        Positive. Smaller ones let wilder functions in; the value grows with n at a fixed small ridge even
        under independence.
    kernel_z : Kernel, default=Gaussian("median")
    kernel_s : Kernel, default=default_kernel(kinds of s)

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(-1, 1, 80, dtype=torch.float64)
    >>> round(KernelHGR()(s**2, s).item(), 1)
    0.9
    """

    kernel_z: Kernel

    def __init__(
        self,
        ridge_z: float = 0.01,
        ridge_s: float = 0.01,
        *,
        kernel_z: Kernel | None = None,
        kernel_s: Kernel | None = None,
    ) -> None:
        super().__init__()
        for name, ridge in (("ridge_z", ridge_z), ("ridge_s", ridge_s)):
            if not 0 < ridge < float("inf"):
                raise ArgumentError(name, "be a positive number", repr(ridge), "Take 0.01 to start with.")
        self.ridge_z = ridge_z
        self.ridge_s = ridge_s
        self.kernel_z = check_kernel(kernel_z, "kernel_z") or Gaussian()
        self.kernel_s = check_kernel(kernel_s, "kernel_s")

    def _kernel_s(self, s: Sensitive) -> Kernel:
        return default_kernel(s.kinds) if self.kernel_s is None else self.kernel_s

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        """Return sqrt of the largest eigenvalue of R_z R_s with R = A (A + ridge)^(-1), A = D^1/2 K~ D^1/2.

        A has the spectrum of the covariance operator. R_s is factored as F F' without gradient, which leaves
        one Cholesky factorisation of A_z + ridge and a small eigenproblem.
        """
        n = len(s)
        with torch.no_grad():
            F = _root(self._kernel_s(s).bind(s.values, w), s.values, w, self.ridge_s)  # (n, r)
        if F.shape[1] == 0:
            return z.sum(dim=(-2, -1)) * 0.0
        A_z = both_centred(self.kernel_z.bind(z, w).gram(z, z), w, "biased")
        eye = torch.eye(n, dtype=z.dtype, device=z.device)
        root = torch.linalg.cholesky(A_z + self.ridge_z * eye)
        solved = torch.cholesky_solve(F.expand(*A_z.shape[:-1], F.shape[1]), root)
        B = F.mT @ F - self.ridge_z * (F.mT @ solved)
        largest = torch.linalg.eigvalsh(0.5 * (B + B.mT))[..., -1]
        return signed_root(largest.clamp(0.0, 1.0))

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        """Factor both sides once: R_z = G G' and R_s = F F', and permute the rows of F."""
        if w is not None:
            return super()._permuted(z, s, permutations, w)
        G = _thin_root(self.kernel_z.bind(z), z, self.ridge_z)
        F = _thin_root(self._kernel_s(s).bind(s.values), s.values, self.ridge_s)
        if min(G.shape[1], F.shape[1]) == 0:
            return z.new_zeros(len(permutations))
        if G.shape[1] < F.shape[1]:  # the thinner side is permuted, and has the eigenvalues
            G, F, permutations = F, G, permutations.argsort(dim=1)
        squares = [M @ M.mT for M in (F[order].mT @ G for order in permutations)]
        return torch.linalg.eigvalsh(torch.stack(squares))[:, -1].clamp(0.0, 1.0).sqrt()

    def _calibrated(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        return self._with(
            kernel_z=self.kernel_z.calibrate(z, weights=w, generator=generator, freeze=freeze),
            kernel_s=self._kernel_s(s).calibrate(s.values, weights=w, generator=generator, freeze=freeze),
        )


def _root(kernel: Kernel, x: Tensor, w: Tensor | None, ridge: float) -> Tensor:
    """Return F ``(n, r)`` with F F' = A (A + ridge)^(-1), A = D^1/2 K~ D^1/2."""
    eigenvalues, vectors = torch.linalg.eigh(both_centred(kernel.gram(x, x), w, "biased"))
    shrunk = eigenvalues.clamp_min(0.0)
    shrunk = shrunk / (shrunk + ridge)
    keep = ~(shrunk <= 16 * len(x) * torch.finfo(x.dtype).eps)  # below is rounding; nan is kept
    return vectors[:, keep] * shrunk[keep].sqrt()


def _thin_root(kernel: Kernel, x: Tensor, ridge: float) -> Tensor:
    """Return the same from a thin factor of the Gram matrix, if there is one: A = B B' and B'B is small."""
    factor = pivoted_factor(kernel, x)
    if factor is None:
        return _root(kernel, x, None, ridge)
    B = (factor - factor.mean(dim=0)).to(x) / len(x) ** 0.5
    eigenvalues, vectors = torch.linalg.eigh(B.mT @ B)
    return B @ (vectors / (eigenvalues.clamp_min(0.0) + ridge).sqrt())
