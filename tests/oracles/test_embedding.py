"""The cross-covariance of z and s by explicit features."""

import numpy as np
import pytest
import torch

from frhsic import HSIC
from frhsic.data import Sensitive
from frhsic.inference import _embedding
from frhsic.inference._embedding import embedding
from frhsic.kernels import Gaussian, Linear


def sample(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n, 2))
    return rng.normal(size=(n, d)) + 0.4 * s[:, :1], s


def found(z, s, measure):
    z, s = torch.tensor(z), Sensitive.of(torch.tensor(s))
    return embedding(z, s, measure, torch.Generator().manual_seed(0))


def test_with_linear_kernels_everything_is_an_explicit_covariance_matrix():
    z, s = sample(40)
    result = found(z, s, HSIC(Linear(), Linear()))
    F, G = z - z.mean(axis=0), s - s.mean(axis=0)
    a = np.einsum("ij,ik->ijk", F, G).reshape(40, -1)
    C = a.mean(axis=0)
    covariance = (a - C).T @ (a - C) / 40
    assert result.length == pytest.approx(np.linalg.norm(C))
    assert result.zs.numpy() == pytest.approx(a @ C)
    assert result.eigenvalues[:6].numpy() == pytest.approx(np.linalg.eigvalsh(covariance)[::-1], abs=1e-12)
    assert result.rest == pytest.approx(0.0, abs=1e-12)


def test_errors_have_the_law_of_multiplier_sums_of_explicit_features():
    """Mean, variance and third moment of |C* - C^|^2 over 20,000 draws of both."""
    z, s = sample(30, seed=1)
    result = found(z, s, HSIC(Linear(), Linear()))
    F, G = z - z.mean(axis=0), s - s.mean(axis=0)
    a = np.einsum("ij,ik->ijk", F, G).reshape(30, -1)
    xi = np.random.default_rng(2).normal(size=(20_000, 30))
    twin = np.square(xi @ (a - a.mean(axis=0)) / 30).sum(axis=1)
    ours = result.errors(20_000, torch.Generator().manual_seed(3)).square().numpy()
    for power in (1, 2, 3):
        assert np.mean(ours**power) == pytest.approx(np.mean(twin**power), rel=0.1 * power)
    assert np.quantile(ours, 0.95) == pytest.approx(np.quantile(twin, 0.95), rel=0.04)


def test_unbiased_values_are_those_of_the_measure():
    z, s = sample(50)
    kernel_z, kernel_s = Gaussian(1.3), Gaussian(0.8)
    result = found(z, s, HSIC(kernel_z, kernel_s))
    z, s = torch.tensor(z), torch.tensor(s)
    pairs = ((kernel_z, kernel_s, z, s), (kernel_z, kernel_z, z, z), (kernel_s, kernel_s, s, s))
    expected = [HSIC(k, m, estimator="unbiased")(x, y).item() for k, m, x, y in pairs]
    assert result.unbiased() == pytest.approx(expected)
    normalized = HSIC(kernel_z, kernel_s, estimator="unbiased", normalized=True)(z, s).item()
    assert result.unbiased()[0] / result.size(True) == pytest.approx(normalized)
    assert result.size(False) == 1.0


@pytest.mark.parametrize("normalized", [False, True])
def test_the_standard_error_is_that_of_the_infinitesimal_jackknife(normalized):
    """Weights moved a little towards each row: the derivative of the (biased) measure, by differences."""
    z, s = sample(200, d=1, seed=4)
    s = s[:, :1]
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), normalized=normalized)
    result = found(z, s, measure)
    z, s = torch.tensor(z), torch.tensor(s)
    n, step = len(z), 1e-5
    influence = []
    for i in range(n):
        values = []
        for sign in (1.0, -1.0):
            w = torch.full((n,), (1.0 - sign * step) / n, dtype=torch.float64)
            w[i] += sign * step
            values.append(measure(z, s, w).item())
        influence.append((values[0] - values[1]) / (2.0 * step))
    # The ratio's influence is taken at the debiased value, so the two agree up to 1/n.
    assert result.standard_error(normalized) == pytest.approx(
        np.std(influence) / np.sqrt(n), rel=0.06 if normalized else 0.01
    )


def test_thin_factors_and_few_eigenvalues_change_nothing_that_matters(monkeypatch):
    z, s = sample(300, d=1)
    s = s[:, :1]
    measure = HSIC(Gaussian(1.0), Gaussian(1.0))
    whole = found(z, s, measure)
    monkeypatch.setattr(_embedding, "_WHOLE", 100)
    thin = found(z, s, measure)
    monkeypatch.setattr(_embedding, "_WHOLE", 1_000)
    monkeypatch.setattr(_embedding, "_ALL_EIGENVALUES", 100)
    few = found(z, s, measure)
    for other in (thin, few):
        assert other.length == pytest.approx(whole.length, rel=1e-9)
        assert other.unbiased() == pytest.approx(whole.unbiased(), rel=1e-8)
        assert other.standard_error(True) == pytest.approx(whole.standard_error(True), rel=1e-8)
        assert other.eigenvalues[:20].numpy() == pytest.approx(whole.eigenvalues[:20].numpy(), rel=1e-3)
        total = float(other.eigenvalues.sum()) + other.rest
        assert total == pytest.approx(float(whole.eigenvalues.sum()), rel=1e-6)


def test_many_rows_without_thin_factors_become_a_subsample_that_is_named(monkeypatch):
    monkeypatch.setattr(_embedding, "_WHOLE", 50)
    monkeypatch.setattr(_embedding, "_MOST_ROWS", 60)
    monkeypatch.setattr(_embedding, "_WIDEST", 4)
    z, s = sample(100)
    result = found(z, s, HSIC(Gaussian(0.3), Gaussian(0.3)))
    assert len(result) == 60
    assert result.notes == ("A random subsample of 60 of 100 rows was used.",)
