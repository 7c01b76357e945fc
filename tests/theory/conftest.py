"""Finite laws: joint pmfs on a few points, where every population quantity of the paper is a finite sum.

Nothing here calls the package but `FiniteLaw.evaluate`, which hands all pairs of support points to a measure
with the pmf as weights: the weighted measure then IS the population quantity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from frhsic.kernels import Delta, Gaussian, InverseMultiquadric, Kernel, Laplace, Linear, Matern


@dataclass(frozen=True)
class FiniteLaw:
    """The law P(Z = z_a, S = s_b) = p_ab on supports z ``(A, d)`` and s ``(B,)``."""

    z: np.ndarray
    s: np.ndarray
    p: np.ndarray

    @classmethod
    def random(cls, rng: np.random.Generator, d: int = 1, sizes: tuple[int, int] = (5, 6)) -> FiniteLaw:
        p = rng.gamma(0.7, size=sizes)
        return cls(rng.normal(size=(sizes[0], d)), np.sort(rng.normal(size=sizes[1])), p / p.sum())

    @classmethod
    def mean_independent(cls, d: int) -> FiniteLaw:
        """Z = S times a fair sign times a fixed vector: E[Z | S] = 0 for every S, yet S is |Z|."""
        v = np.array([1.0, -2.0, 0.5])[:d]
        z = np.outer([-2.0, -1.0, 0.0, 1.0, 2.0], v)
        p = np.zeros((5, 3))
        p[2, 0], p[[1, 3], 1], p[[0, 4], 2] = 0.5, 0.15, 0.1
        return cls(z, np.array([0.0, 1.0, 2.0]), p)

    @classmethod
    def binary(cls, rng: np.random.Generator, d: int = 1, share: float = 0.5) -> FiniteLaw:
        """S = -1 with probability 1 - share and +1 with probability share."""
        conditional = rng.dirichlet(np.ones(4), size=2).T
        return cls(rng.normal(size=(4, d)), np.array([-1.0, 1.0]), conditional * [1.0 - share, share])

    @classmethod
    def two_points(cls, rng: np.random.Generator, d: int = 1, levels: int = 6) -> FiniteLaw:
        """Z has two values, so all conditional deviations of its law lie on one line."""
        p = rng.gamma(1.0, size=(2, levels))
        return cls(rng.normal(size=(2, d)), np.sort(rng.normal(size=levels)), p / p.sum())

    @classmethod
    def along_eigenfunction(
        cls, rng: np.random.Generator, gram_s: Callable[[np.ndarray, np.ndarray], np.ndarray], m: int, d: int
    ) -> FiniteLaw:
        """Delta(s) = u psi_m(s) for one eigenfunction of T_S (m counts from one).

        S is symmetric, so for kernels of s - s' the even m give odd functions, which have mean zero as a
        conditional deviation must.
        """
        s = np.array([-2.0, -1.1, -0.3, 0.3, 1.1, 2.0])
        ps = np.array([1.0, 2.0, 3.0, 3.0, 2.0, 1.0]) / 12.0
        z = rng.normal(size=(5, d))
        pz = rng.dirichlet(10.0 * np.ones(5))
        blank = cls(z, s, np.outer(pz, ps))
        psi = blank.spectrum(gram_s(s, s))[1][:, m - 1]
        q = rng.normal(size=5)
        q -= q.mean()
        t = 0.9 * (pz[:, None] / np.abs(np.outer(q, psi))).min()
        return cls(z, s, (pz[:, None] + t * np.outer(q, psi)) * ps)

    @property
    def pz(self) -> np.ndarray:
        return self.p.sum(axis=1)

    @property
    def ps(self) -> np.ndarray:
        return self.p.sum(axis=0)

    @property
    def conditional(self) -> np.ndarray:
        """Column b is P(Z | S = s_b)."""
        return self.p / self.ps

    @property
    def contrast(self) -> np.ndarray:
        """Column b is the signed measure P(Z | S = s_b) - P(Z); its embedding is Delta(s_b)."""
        return self.conditional - self.pz[:, None]

    @property
    def independent(self) -> FiniteLaw:
        """The product of the marginals."""
        return replace(self, p=np.outer(self.pz, self.ps))

    def mixed_with_product(self, t: float) -> FiniteLaw:
        """The law with the same marginals whose contrast is t times this one's."""
        return replace(self, p=t * self.p + (1.0 - t) * np.outer(self.pz, self.ps))

    def squared_mmds(self, K: np.ndarray) -> np.ndarray:
        """MMD^2(P(Z | S = s_b), P(Z)) for each b, shape ``(B,)``."""
        return np.maximum(np.einsum("ab,ac,cb->b", self.contrast, K, self.contrast), 0.0)

    def hsic(self, K: np.ndarray, L: np.ndarray) -> float:
        """The definition: |mu_ZS - mu_Z x mu_S|^2, by explicit features of both kernels."""
        tensor = features(K).T @ (self.p - np.outer(self.pz, self.ps)) @ features(L)
        return float((tensor**2).sum())

    def spectrum(self, L: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of T_S in L2(P_S), largest first, and the values of its eigenfunctions ``(B, B)``."""
        root = np.sqrt(self.ps)
        lam, vectors = np.linalg.eigh(root[:, None] * L * root)
        return lam[::-1], vectors[:, ::-1] / root[:, None]

    def centred(self, L: np.ndarray) -> np.ndarray:
        """The kernel of S centred under P_S."""
        H = np.eye(len(self.s)) - self.ps
        return H @ L @ H.T

    def evaluate(
        self, measure: Callable[..., torch.Tensor], z: np.ndarray | None = None, s: np.ndarray | None = None
    ) -> float:
        """The measure on all pairs (z_a, s_b) with weights p_ab; z and s may be functions of the support."""
        z = self.z if z is None else z
        s = self.s if s is None else s
        A, B = self.p.shape
        rows = np.repeat(z, B, axis=0), np.concatenate([s] * A), self.p.reshape(-1)
        return measure(*(torch.tensor(x, dtype=torch.float64) for x in rows)).item()


def features(K: np.ndarray) -> np.ndarray:
    """Rows with inner products K, for a positive semi-definite K."""
    lam, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(lam, 0.0))


@dataclass(frozen=True)
class Twin:
    """A kernel of the package and the same kernel in plain numpy."""

    kernel: Kernel
    profile: Callable[[np.ndarray], np.ndarray] | None

    def gram(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = (x[:, None] if x.ndim == 1 else x for x in (a, b))
        if self.profile is None:
            return a @ b.T
        return self.profile(((a[:, None] - b[None]) ** 2).sum(axis=-1))


def _twin(name: str, sigma: float = 1.0) -> Twin:
    return {
        "gaussian": Twin(Gaussian(sigma), lambda r2: np.exp(-r2 / (2.0 * sigma**2))),
        "laplace": Twin(Laplace(sigma), lambda r2: np.exp(-np.sqrt(r2) / sigma)),
        "imq": Twin(InverseMultiquadric(sigma), lambda r2: 1.0 / np.sqrt(1.0 + r2 / sigma**2)),
        "matern": Twin(
            Matern(sigma),
            lambda r2: (1.0 + np.sqrt(3.0 * r2) / sigma) * np.exp(-np.sqrt(3.0 * r2) / sigma),
        ),
        "linear": Twin(Linear(), None),
        "delta": Twin(Delta(), lambda r2: (r2 == 0.0).astype(float)),
    }[name]


@pytest.fixture
def finite_law() -> type[FiniteLaw]:
    return FiniteLaw


@pytest.fixture
def twin() -> Callable[..., Twin]:
    return _twin


@pytest.fixture
def feature_map() -> Callable[[np.ndarray], np.ndarray]:
    return features


@pytest.fixture(params=[(1, 0), (1, 1), (3, 2), (3, 3)], ids=lambda c: f"d{c[0]}-seed{c[1]}")
def law(request: pytest.FixtureRequest) -> FiniteLaw:
    """A random dependent law with Z in R^1 or R^3."""
    d, seed = request.param
    return FiniteLaw.random(np.random.default_rng(seed), d)
