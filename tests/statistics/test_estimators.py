"""What the estimators do on average, by simulation; every tolerance is a number of standard errors."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from frhsic.dependence import GDP, HSIC, DistanceCovariance
from frhsic.kernels import Gaussian

# A false alarm once in 16,000 for each comparison.
STANDARD_ERRORS = 4.0


def pairs(n, repeats, rho=0.0, seed=0):
    """Yield pairs of unit-variance Gaussian samples with correlation rho."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(repeats):
        s, noise = torch.randn(2, n, dtype=torch.float64, generator=generator)
        yield rho * s + math.sqrt(1 - rho**2) * noise, s


def mean_and_error(values):
    values = np.array(values)
    return values.mean(), values.std(ddof=1) / math.sqrt(len(values))


def mean_similarity(sigma):
    """E k(X, Y) of independent standard normals under the Gaussian kernel."""
    return sigma / math.sqrt(sigma**2 + 2)


def population_hsic(a, b, rho):
    """The closed form for unit-variance Gaussians and Gaussian kernels of bandwidths a and b."""
    D = (a**2 + 2) * (b**2 + 2)
    return a * b * ((D - 4 * rho**2) ** -0.5 + D**-0.5 - 2 * (D - rho**2) ** -0.5)


def test_population_hsic_is_the_one_of_the_protocol_and_of_quadrature():
    assert population_hsic(1.0, 1.0, 0.5) == pytest.approx(0.0107633, abs=5e-8)
    assert population_hsic(0.7, 1.9, 0.0) == pytest.approx(0, abs=1e-15)
    # E k l - 2 E[E k E l] + E k E l by Gauss-Hermite over (s, e), z = rho s + sqrt(1 - rho^2) e.
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    a, b, rho = 0.8, 1.5, 0.6
    # Differences of two draws are Gaussian with twice the variance and the same correlation.
    u = math.sqrt(2) * nodes[:, None]
    v = rho * u + math.sqrt(2 * (1 - rho**2)) * nodes
    joint = weights @ (np.exp(-(u**2) / (2 * b**2)) * np.exp(-(v**2) / (2 * a**2))) @ weights

    def near(x, sigma):  # E k(x, X)
        return sigma / math.sqrt(sigma**2 + 1) * np.exp(-(x**2) / (2 * (sigma**2 + 1)))

    x = nodes[:, None]
    cross = weights @ (near(x, b) * near(rho * x + math.sqrt(1 - rho**2) * nodes, a)) @ weights
    quadrature = joint - 2 * cross + mean_similarity(a) * mean_similarity(b)
    assert population_hsic(a, b, rho) == pytest.approx(quadrature, rel=1e-8)


@pytest.mark.parametrize(("n", "a", "b"), [(20, 1.0, 1.0), (100, 1.0, 0.5), (100, 3.0, 1.0)])
def test_biased_hsic_under_independence_has_the_documented_floor(n, a, b):
    measure = HSIC(Gaussian(a), Gaussian(b))
    mean, error = mean_and_error([measure(z, s).item() for z, s in pairs(n, 1_000)])
    floor = (1 - mean_similarity(a)) * (1 - mean_similarity(b)) / n
    # Exactly, the centring leaves tr(H) = n - 1 of n directions; the documented floor is the first order.
    assert abs(mean - floor * (n - 1) / n) < STANDARD_ERRORS * error
    assert abs(mean - floor) < STANDARD_ERRORS * error + floor / n
    # The test would see a floor that is a tenth off.
    assert STANDARD_ERRORS * error < 0.1 * floor


@pytest.mark.parametrize("n", [6, 50])
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_unbiased_hsic_has_the_population_value_as_its_mean(n, rho):
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased")
    biased = HSIC(Gaussian(1.0), Gaussian(1.0))
    draws = list(pairs(n, 1_500, rho, seed=1))
    mean, error = mean_and_error([measure(z, s).item() for z, s in draws])
    truth = population_hsic(1.0, 1.0, rho)
    assert abs(mean - truth) < STANDARD_ERRORS * error
    # The biased one is told apart from the truth by the same draws.
    mean, error = mean_and_error([biased(z, s).item() for z, s in draws])
    assert mean - truth > STANDARD_ERRORS * error


def test_unbiased_distance_covariance_has_mean_zero_under_independence():
    measure = DistanceCovariance(estimator="unbiased")
    mean, error = mean_and_error([measure(z, s).item() for z, s in pairs(30, 2_000, seed=2)])
    assert abs(mean) < STANDARD_ERRORS * error


def test_gdp_of_independent_data_falls_like_one_over_the_root_of_n():
    # A fixed smoothing window, so that its number of rows grows with n.
    measure = GDP(0.5, range_s=1.0)
    found = {
        n: mean_and_error([measure(z, s).item() for z, s in pairs(n, 100, seed=n)]) for n in (50, 200, 800)
    }
    for n in (50, 200):
        (more, e), (fewer, f) = found[n], found[4 * n]
        assert more - fewer > STANDARD_ERRORS * math.hypot(e, f)
        # Halved by four times the rows, to within the errors and a tenth for the tails of S.
        ratio_error = STANDARD_ERRORS * math.hypot(e / more, f / fewer)
        assert math.log(more / fewer) == pytest.approx(math.log(2), abs=ratio_error + 0.1)


@pytest.mark.parametrize(
    "measure",
    [
        HSIC(Gaussian(1.0), Gaussian(1.0)),
        HSIC(estimator="unbiased", normalized=True),
        DistanceCovariance(),
    ],
    ids=["biased", "unbiased, normalized, median", "distance covariance"],
)
def test_under_independence_the_observed_value_is_exchangeable_with_permuted_ones(measure):
    n, repeats, others = 24, 600, 9
    generator = torch.Generator().manual_seed(3)
    counts = np.zeros(others + 1)
    for z, s in pairs(n, repeats, seed=4):
        orders = torch.stack([torch.randperm(n, generator=generator) for _ in range(others)])
        counts[int((measure.permuted(z, s, orders) < measure(z, s)).sum())] += 1
    expected = repeats / (others + 1)
    assert ((counts - expected) ** 2 / expected).sum() < chi2.ppf(0.999, others)


def test_under_dependence_the_observed_value_is_above_the_permuted_ones():
    n, others = 60, 19
    generator = torch.Generator().manual_seed(5)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0))
    first = 0
    for z, s in pairs(n, 50, rho=0.8, seed=6):
        orders = torch.stack([torch.randperm(n, generator=generator) for _ in range(others)])
        first += int((measure.permuted(z, s, orders) < measure(z, s)).all())
    # Under independence the count would be binomial(50, 1/20): 12 or more has probability 1e-5.
    assert first >= 45
