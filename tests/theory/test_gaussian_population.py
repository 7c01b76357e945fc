"""Closed forms for a correlated Gaussian pair, the population behind the paper's convergence experiment.

(Z, S) has unit variances and correlation rho; Gaussian kernels of bandwidths a on Z and b on S.
"""

from math import sqrt

import numpy as np
import pytest
import torch

from frhsic import EIPM, HSIC
from frhsic.kernels import Gaussian, Linear


def population_hsic(a, b, rho):
    D = (a**2 + 2.0) * (b**2 + 2.0)
    return a * b * ((D - 4.0 * rho**2) ** -0.5 + D**-0.5 - 2.0 * (D - rho**2) ** -0.5)


def population_squared_mmd(a, rho):
    """E_S MMD^2(P(Z | S), P(Z))."""
    return a / sqrt(a**2 + 2.0 * (1.0 - rho**2)) - a / sqrt(a**2 + 2.0)


def squared_mmd_at(s, a, rho, smoothing=0.0):
    """MMD^2 of P(Z) with P(Z | S = s), or with its average over S near s (Gaussian weights of that width).

    Under the weights S is N(s / (1 + h^2), h^2 / (1 + h^2)), so Z is Gaussian too.
    """
    share = 1.0 / (1.0 + smoothing**2)
    mean, variance = rho * share * s, 1.0 - rho**2 * share
    within, marginal, across = a**2 + 2.0 * variance, a**2 + 2.0, a**2 + 1.0 + variance
    return (
        a / sqrt(within) + a / sqrt(marginal) - 2.0 * a / sqrt(across) * np.exp(-(mean**2) / (2.0 * across))
    )


def normal_nodes(m):
    nodes, weights = np.polynomial.hermite_e.hermegauss(m)
    return nodes, weights / weights.sum()


def population_eipm(a, rho, smoothing=0.0):
    """E_S MMD by the trapezoidal rule; near s = 0 the root is too sharp for Gauss-Hermite nodes."""
    s = np.linspace(-12.0, 12.0, 6001)
    density = np.exp(-0.5 * s**2)
    return np.sqrt(squared_mmd_at(s, a, rho, smoothing)) @ density / density.sum()


def mean_of_product(a, b, correlation):
    """E exp(-U^2/2a^2) exp(-V^2/2b^2) by quadrature, U and V of variance 2 with that correlation."""
    x, w = normal_nodes(120)
    u = sqrt(2.0) * x[:, None]
    v = sqrt(2.0) * (correlation * x[:, None] + sqrt(1.0 - correlation**2) * x)
    return w @ (np.exp(-(u**2) / (2.0 * a**2)) * np.exp(-(v**2) / (2.0 * b**2))) @ w


CASES = [(1.0, 1.0, 0.5), (1.0, 1.0, 0.0), (1.0, 1.0, -0.8), (0.8, 2.0, 0.3), (3.0, 1.2, 0.9)]


@pytest.mark.parametrize(("a", "b", "rho"), CASES)
def test_population_hsic_of_gaussians_matches_quadrature_of_its_three_means(a, b, rho):
    """HSIC = E k(Z,Z') l(S,S') + E k E l - 2 E k(Z,Z') l(S,S''): correlations rho, 0 and rho / 2."""
    expected = (
        mean_of_product(a, b, rho) + mean_of_product(a, b, 0.0) - 2.0 * mean_of_product(a, b, rho / 2.0)
    )
    assert population_hsic(a, b, rho) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("a", "b", "rho"), CASES)
def test_population_hsic_of_gaussians_matches_the_public_measure_on_a_quadrature_grid(a, b, rho):
    """Gauss-Hermite nodes as support and their weights as pmf: the weighted HSIC is the population's."""
    x, w = normal_nodes(36)
    s, e = (grid.ravel() for grid in np.meshgrid(x, x))
    z = rho * s + sqrt(1.0 - rho**2) * e
    weights = np.outer(w, w).ravel()
    keep = weights > 1e-18
    rows = (torch.tensor(values[keep]) for values in (z, s, weights))
    value = HSIC(Gaussian(a), Gaussian(b))(*rows).item()
    assert value == pytest.approx(population_hsic(a, b, rho), abs=1e-9)


@pytest.mark.parametrize(("a", "rho"), [(1.0, 0.5), (2.0, -0.8)])
def test_population_conditional_mmd_integral_of_gaussians_matches_the_public_measure(a, rho):
    """By the coincidence of the discrete lemma: HSIC with k_S = 1{s = s'} / pi on the nodes is E MMD^2."""
    x, w = normal_nodes(28)
    A, B = np.meshgrid(np.arange(28), np.arange(28))
    a_rows, b_rows = A.ravel(), B.ravel()
    weights = w[a_rows] * w[b_rows]
    z = rho * x[b_rows] + sqrt(1.0 - rho**2) * x[a_rows]
    levels = np.eye(28)[b_rows] / np.sqrt(w[b_rows])[:, None]
    value = HSIC(Gaussian(a), Linear())(torch.tensor(z), torch.tensor(levels), torch.tensor(weights)).item()
    assert value == pytest.approx(population_squared_mmd(a, rho), abs=1e-9)
    assert squared_mmd_at(x, a, rho) @ w == pytest.approx(population_squared_mmd(a, rho), abs=1e-9)


def test_protocol_values_of_the_convergence_experiment():
    """The figures at a = b = 1, rho = .5: HSIC .0107633, E MMD^2 .0551053, EIPM (root) .199521."""
    eipm = population_eipm(1.0, 0.5)
    assert population_hsic(1.0, 1.0, 0.5) == pytest.approx(0.0107633, abs=5e-8)
    assert population_squared_mmd(1.0, 0.5) == pytest.approx(0.0551053, abs=5e-8)
    assert eipm == pytest.approx(0.199521, abs=5e-7)
    # The chain of the paper: HSIC <= (E MMD)^2 <= E MMD^2.
    assert population_hsic(1.0, 1.0, 0.5) < eipm**2 < population_squared_mmd(1.0, 0.5)


def estimates(rho, n, replications, seed):
    """Biased and unbiased estimates, shape (replications, 2)."""
    rng = np.random.default_rng(seed)
    measures = [HSIC(Gaussian(1.0), Gaussian(1.0), estimator=kind) for kind in ("biased", "unbiased")]
    values = []
    for _ in range(replications):
        s, e = torch.tensor(rng.normal(size=(2, n)))
        z = rho * s + sqrt(1.0 - rho**2) * e
        values.append([measure(z, s).item() for measure in measures])
    return np.array(values)


@pytest.mark.parametrize("rho", [0.5, 0.0, -0.8])
def test_unbiased_estimator_centres_on_the_population_hsic_of_gaussians(rho):
    """Mean of 300 replications at n = 60 within 4 standard errors of the closed form."""
    values = estimates(rho, 60, 300, seed=11)[:, 1]
    assert abs(values.mean() - population_hsic(1.0, 1.0, rho)) < 4.0 * values.std(ddof=1) / sqrt(300)


def expected_biased_hsic(rho, n):
    """E HSIC_b at a = b = 1: the three sums over 2, 3 and 4 indices by which of the indices coincide."""
    k = 1.0 / sqrt(3.0)  # E k = E l
    joint, crossed = (9.0 - 4.0 * rho**2) ** -0.5, (9.0 - rho**2) ** -0.5
    pairs = (1.0 + (n - 1) * joint) / n
    triples = (1.0 + (n - 1) * (2.0 * k + joint) + (n - 1) * (n - 2) * crossed) / n**2
    two_classes = 1.0 + 2.0 * joint + 4.0 * k
    three_classes = 2.0 * k + 4.0 * crossed
    fours = 1.0 + (n - 1) * (two_classes + (n - 2) * (three_classes + (n - 3) * k * k))
    return pairs - 2.0 * triples + fours / n**3


@pytest.mark.parametrize("rho", [0.5, 0.0, -0.8])
def test_biased_estimator_centres_on_its_own_expectation(rho):
    """E HSIC_b - HSIC = [(1 - E k)(1 - E l) - 3 HSIC + 4 (E k(Z,Z') l(S,S'') - E k E l)] / n + O(1/n^2).

    At independence only the first term is left, times (n - 1) / n; at rho = -.8 it is half too large. Checked
    on the excess over the unbiased estimate, 300 replications at n = 60, within 4 standard errors.
    """
    n, hsic = 60, population_hsic(1.0, 1.0, rho)
    first = (1.0 - 1.0 / sqrt(3.0)) ** 2
    order_n = first - 3.0 * hsic + 4.0 * ((9.0 - rho**2) ** -0.5 - 1.0 / 3.0)
    assert expected_biased_hsic(rho, 10**4) - hsic == pytest.approx(order_n / 1e4, rel=1e-3)
    assert expected_biased_hsic(0.0, n) == pytest.approx(first * (n - 1) / n**2, rel=1e-10)
    excess = np.subtract(*estimates(rho, n, 300, seed=12).T)
    error = excess.std(ddof=1) / sqrt(300)
    assert abs(excess.mean() - (expected_biased_hsic(rho, n) - hsic)) < 4.0 * error
    if rho == -0.8:
        assert abs(excess.mean() - first / n) > 8.0 * error


def test_eipm_estimator_tends_to_its_own_limit_below_the_population_eipm():
    """With a fixed smoothing bandwidth h on S the limit is the EIPM of the smoothed conditional laws.

    One sample of 1,500 rows: within 5 % of that limit, which at h = 0.5 is 17 % below the EIPM itself.
    """
    limit = population_eipm(1.0, 0.5, smoothing=0.5)
    assert limit < 0.84 * population_eipm(1.0, 0.5)
    s, e = torch.tensor(np.random.default_rng(13).normal(size=(2, 1500)))
    value = EIPM(Gaussian(1.0), 0.5, range_s=1.0)(0.5 * s + sqrt(0.75) * e, s).item()
    assert value == pytest.approx(limit, rel=0.05)
