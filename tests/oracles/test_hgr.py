"""Kernel HGR against explicit covariance matrices and their inverse square roots."""

import math

import numpy as np
import pytest
import torch

from frhsic.data import Sensitive
from frhsic.dependence import HSIC, KernelHGR
from frhsic.kernels import Gaussian, Linear


def features(K):
    """Coordinates of the rows in the span of the kernel functions: their inner products are K."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(values.clip(0))


def inverse_root(C):
    values, vectors = np.linalg.eigh(C)
    return vectors @ np.diag(values**-0.5) @ vectors.T


def khgr(x, y, w, ridge_z, ridge_s):
    x, y = x - w @ x, y - w @ y
    C_zz, C_ss, C_zs = (w[:, None] * x).T @ x, (w[:, None] * y).T @ y, (w[:, None] * x).T @ y
    left = inverse_root(C_zz + ridge_z * np.eye(len(C_zz)))
    right = inverse_root(C_ss + ridge_s * np.eye(len(C_ss)))
    return np.linalg.norm(left @ C_zs @ right, 2)


def gram(x, sigma):
    rows = x.tolist()
    return np.array([[math.exp(-(math.dist(a, b) ** 2) / (2 * sigma**2)) for b in rows] for a in rows])


def sample(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    s = torch.randn(n, 2, dtype=torch.float64, generator=generator)
    z = torch.randn(n, 3, dtype=torch.float64, generator=generator)
    z[:, 0] += s[:, 0] ** 2
    w = 0.1 + torch.rand(n, dtype=torch.float64, generator=generator)
    return z, s, w


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("ridge_z", "ridge_s"), [(0.01, 0.01), (0.1, 0.003)])
def test_khgr_is_the_norm_of_the_regularised_correlation_operator(ridge_z, ridge_s, weighted):
    z, s, w = sample(16)
    p = w.numpy() / w.sum().item() if weighted else np.full(16, 1 / 16)
    expected = khgr(features(gram(z, 1.3)), features(gram(s, 0.9)), p, ridge_z, ridge_s)
    measure = KernelHGR(ridge_z, ridge_s, kernel_z=Gaussian(1.3), kernel_s=Gaussian(0.9))
    assert measure(z, s, w if weighted else None).item() == pytest.approx(expected, rel=1e-10)
    hsic = HSIC(Gaussian(1.3), Gaussian(0.9))(z, s, w if weighted else None).item()
    assert expected**2 <= hsic / (ridge_z * ridge_s)


@pytest.mark.parametrize("weighted", [False, True])
def test_khgr_of_linear_kernels_is_ridge_canonical_correlation(weighted):
    z, s, w = sample(20, seed=1)
    p = w.numpy() / w.sum().item() if weighted else np.full(20, 1 / 20)
    measure = KernelHGR(0.05, 0.02, kernel_z=Linear(), kernel_s=Linear())
    expected = khgr(z.numpy(), s.numpy(), p, 0.05, 0.02)
    assert measure(z, s, w if weighted else None).item() == pytest.approx(expected, rel=1e-10)


def test_khgr_of_categories_uses_their_indicators():
    z, _, _ = sample(18, seed=2)
    codes = (torch.arange(18) % 3).double()
    s = Sensitive(codes[:, None], ("c",), ("categorical",))
    indicators = np.eye(3)[codes.long().numpy()]
    expected = khgr(features(gram(z, 1.0)), indicators, np.full(18, 1 / 18), 0.01, 0.01)
    assert KernelHGR(kernel_z=Gaussian(1.0))(z, s).item() == pytest.approx(expected, rel=1e-10)
