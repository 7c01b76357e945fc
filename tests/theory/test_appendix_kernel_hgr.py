"""Appendix "Regularized empirical kHGR" of the paper."""

import numpy as np
import pytest
import torch

from frhsic import HSIC, KernelHGR
from frhsic.kernels import Gaussian, InverseMultiquadric, Laplace, Linear

RIDGES = [1e-4, 1e-2, 1.0, 100.0]


def sample(seed, d, q, n=50):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n, q))
    z = np.cos(2.0 * s[:, :1]) + s[:, -1:] ** 2 + 0.5 * rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    return torch.tensor(z), torch.tensor(s)


def inverse_root(C, ridge):
    lam, vectors = np.linalg.eigh(C)
    return (vectors / np.sqrt(np.maximum(lam, 0.0) + ridge)) @ vectors.T


def operator_norm(x, y, w, ridge_z, ridge_s):
    """The definition with covariance matrices of feature rows x and y under weights w."""
    x, y = x - w @ x, y - w @ y
    C_zz, C_ss, C_zs = x.T @ (w[:, None] * x), y.T @ (w[:, None] * y), x.T @ (w[:, None] * y)
    return np.linalg.norm(inverse_root(C_zz, ridge_z) @ C_zs @ inverse_root(C_ss, ridge_s), 2)


@pytest.mark.parametrize("kernel", [Gaussian, Laplace, InverseMultiquadric, Linear])
@pytest.mark.parametrize("ridge_z", RIDGES)
@pytest.mark.parametrize("ridge_s", RIDGES)
@pytest.mark.parametrize("d", [1, 3])
def test_regularised_khgr_bound_holds(d, ridge_s, ridge_z, kernel):
    """Proposition "Regularized empirical sandwich bound", which needs no characteristic kernel (Linear)."""
    z, s = sample(d, d, 1)
    kernel_z, kernel_s = (kernel(), kernel()) if kernel is Linear else (kernel(0.9), kernel(0.7))
    hsic = HSIC(kernel_z, kernel_s)(z, s).item()
    khgr = KernelHGR(ridge_z, ridge_s, kernel_z=kernel_z, kernel_s=kernel_s)(z, s).item()
    assert 0.0 < khgr <= 1.0
    assert khgr**2 <= hsic / (ridge_z * ridge_s) * (1.0 + 1e-9)


def test_regularised_khgr_bound_is_attained_by_rank_one_at_large_ridges():
    """Proposition "Regularized empirical sandwich bound": its constant one cannot be lowered."""
    z, s = sample(0, 1, 1)
    hsic = HSIC(Linear(), Linear())(z, s).item()
    ratios = []
    for ridge in (1.0, 100.0, 1e4):
        khgr = KernelHGR(ridge, ridge, kernel_z=Linear(), kernel_s=Linear())(z, s).item()
        ratios.append(khgr**2 * ridge**2 / hsic)
    assert ratios == sorted(ratios)
    assert 0.99 < ratios[-1] < 1.0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("ridge_z", "ridge_s"), [(1e-4, 1e-4), (0.1, 0.01), (5.0, 2.0)])
def test_regularised_khgr_is_the_operator_norm_of_matrices_for_linear_kernels(ridge_z, ridge_s, weighted):
    """Definition of the regularised kHGR with d = 3, q = 2: the covariance operators are matrices."""
    z, s = sample(3, 3, 2)
    w = np.random.default_rng(0).gamma(1.0, size=len(s)) if weighted else np.ones(len(s))
    w /= w.sum()
    measure = KernelHGR(ridge_z, ridge_s, kernel_z=Linear(), kernel_s=Linear())
    value = measure(z, s, torch.tensor(w) if weighted else None).item()
    assert value == pytest.approx(operator_norm(z.numpy(), s.numpy(), w, ridge_z, ridge_s), rel=1e-9)


@pytest.mark.parametrize(("name_z", "name_s"), [("gaussian", "gaussian"), ("laplace", "imq")])
@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_regularised_khgr_of_a_finite_law_is_the_operator_norm_of_matrices(
    law, twin, feature_map, name_z, name_s, ridge
):
    """Definition of the regularised kHGR for a population on finite supports, with explicit features."""
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    A, B = law.p.shape
    x = np.repeat(feature_map(kz.gram(law.z, law.z)), B, axis=0)
    y = np.tile(feature_map(ks.gram(law.s, law.s)), (A, 1))
    measure = KernelHGR(ridge, 2.0 * ridge, kernel_z=kz.kernel, kernel_s=ks.kernel)
    value = law.evaluate(measure)
    assert value == pytest.approx(operator_norm(x, y, law.p.ravel(), ridge, 2.0 * ridge), rel=1e-9)
    assert value**2 <= law.evaluate(HSIC(kz.kernel, ks.kernel)) / (2.0 * ridge**2)


def test_regularised_khgr_vanishes_with_hsic(law, twin):
    """Appendix "Regularized empirical kHGR": zero together with HSIC, at the zero level."""
    kz, ks = twin("gaussian", 0.9), twin("gaussian", 0.7)
    measure = KernelHGR(0.01, 0.01, kernel_z=kz.kernel, kernel_s=ks.kernel)
    assert law.independent.evaluate(measure) < 1e-7
    assert law.evaluate(measure) > 0.1
