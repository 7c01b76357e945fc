"""The equivalence test: seldom a positive answer at the tolerance, often one at independence."""

import numpy as np
import pytest
from scipy.stats import binom

from frhsic import GDP, HSIC, DistanceCovariance
from frhsic.inference import confidence_interval, equivalence_test
from frhsic.kernels import Delta, Gaussian

FIXED = HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased", normalized=True)
N, ALPHA = 200, 0.05


def population(rho):
    """Normalised HSIC of unit Gaussians with correlation rho, both bandwidths 1."""

    def hsic(r):
        return (9.0 - 4.0 * r * r) ** -0.5 + 1.0 / 3.0 - 2.0 * (9.0 - r * r) ** -0.5

    return hsic(rho) / hsic(1.0)


def rate(rho, tolerance, draws, seed, dependence=FIXED):
    rng = np.random.default_rng(seed)
    passed = 0
    for _ in range(draws):
        s, e = rng.normal(size=(2, N))
        z = rho * s + np.sqrt(1.0 - rho**2) * e
        result = equivalence_test(
            z, s, tolerance=tolerance, dependence=dependence, n_draws=999, random_state=0
        )
        passed += result.pvalue <= ALPHA
    return passed / draws


@pytest.mark.parametrize("rho", [0.1, 0.3, 0.5])
def test_at_the_tolerance_hsic_is_seldom_called_below_it(rho):
    """At most alpha, within three standard errors of 200 draws; the plain normal law gives .1 here."""
    assert rate(rho, population(rho), 200, seed=int(10 * rho)) <= ALPHA + 3.0 * np.sqrt(
        ALPHA * (1 - ALPHA) / 200
    )


def test_a_dependence_in_a_small_group_is_seldom_called_below_what_it_is():
    """Nine rows of 300 shifted by two: .09 of samples before the variance was taken at the tolerance."""
    share, draws = 0.03, 400
    tolerance = 2 * (share * (1 - share)) ** 2 * 2 / np.sqrt(3) * (1 - np.exp(-(2.0**2) / 6))
    measure = HSIC(Gaussian(1.0), Delta(), estimator="unbiased")
    rng, passed = np.random.default_rng(22), 0
    for _ in range(draws):
        few = rng.random(300) < share
        z, s = rng.normal(size=300) + 2.0 * few, np.where(few, "few", "many")
        result = equivalence_test(z, s, tolerance=tolerance, dependence=measure, n_draws=499, random_state=0)
        passed += result.below
    assert passed <= binom.ppf(0.999, draws, ALPHA)


def test_at_independence_a_tolerance_of_005_is_shown_to_hold_more_often_than_not():
    assert rate(0.0, 0.05, 100, seed=1) >= 0.7


def test_gdp_at_the_tolerance_is_seldom_called_below_it_and_often_at_independence():
    """z = rho s + e for a standard normal s, so GDP is rho E|S|, and that of ranges nearly."""
    measure, rho = GDP(), 0.3
    truth = rho * np.sqrt(2.0 / np.pi)
    assert rate(rho, truth, 150, seed=2, dependence=measure) <= ALPHA + 3.0 * np.sqrt(
        ALPHA * (1 - ALPHA) / 150
    )
    assert rate(0.0, 0.35, 60, seed=3, dependence=measure) > 0.8


@pytest.mark.parametrize(
    "dependence",
    [None, GDP(), DistanceCovariance(normalized=True), HSIC(root=True), HSIC(normalized=True, root=True)],
)
def test_upper_is_below_the_tolerance_exactly_when_p_is_below_alpha(dependence):
    rng = np.random.default_rng(0)
    z, s = rng.normal(size=(2, 300))
    first = equivalence_test(z, s, tolerance=1.0, dependence=dependence, random_state=0)
    for factor, below in ((0.97, False), (1.03, True)):
        result = equivalence_test(z, s, tolerance=factor * first.upper, dependence=dependence, random_state=0)
        assert result.upper == pytest.approx(first.upper)
        assert result.below is below
        assert (result.pvalue <= ALPHA) is below
        assert ("is below" in str(result)) is below
    assert first.estimate <= first.upper


def test_the_gdp_limit_is_the_upper_end_of_its_interval():
    rng = np.random.default_rng(4)
    s = rng.normal(size=400)
    z = 0.5 * s + rng.normal(size=400)
    limit = equivalence_test(z, s, tolerance=1.0, dependence=GDP(), n_draws=9_999, random_state=0).upper
    options = {
        "confidence_level": 0.9,
        "n_draws": 9_999,
        "random_state": 0,
        "chance": False,
    }  # five percent on each side
    interval = confidence_interval(z, s, dependence=GDP(), **options)
    assert limit == pytest.approx(interval.high, rel=0.02)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, float("nan"), float("inf")])
def test_a_tolerance_that_no_data_can_reach_is_refused(tolerance):
    with pytest.raises(ValueError, match=r"'tolerance' must be a positive number.*too little to matter"):
        equivalence_test(np.arange(20.0), np.arange(20.0), tolerance=tolerance)
