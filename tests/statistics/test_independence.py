"""Tests of independence hold their level and have power where they should, by simulation."""

import numpy as np
import pytest
import torch
from scipy import stats

from frhsic.data import to_sensitive
from frhsic.dependence import HSIC, DistanceCovariance
from frhsic.inference import independence_test
from frhsic.inference._permutation import bandwidth_family, combine, limit_values, rank_pvalue
from frhsic.inference._strata import Stratum
from frhsic.kernels import Gaussian, Linear

ALPHA = 0.1


def rejections(draw, runs, alpha=ALPHA, n_permutations=39, **arguments):
    """How often independence is rejected on samples ``draw(rng)`` of z, s and further arguments."""
    count = 0
    for seed in range(runs):
        z, s, more = draw(np.random.default_rng(1000 + seed))
        result = independence_test(
            z, s, n_permutations=n_permutations, random_state=seed, **(arguments | more)
        )
        count += result.pvalue <= alpha
    return count


def assert_level(count, runs, alpha=ALPHA, slack=0.0):
    """The count is one that level alpha gives, up to ``slack``, but for one sample of rows in 2,000."""
    low, high = (
        stats.binom(runs, max(alpha - slack, 0.0)).ppf(5e-4),
        stats.binom(runs, alpha + slack).ppf(1 - 5e-4),
    )
    assert low <= count <= high, f"{count} of {runs}, expected {low:.0f} to {high:.0f}"


def heavy(rng, n, d=1):
    """Skewed and heavy-tailed columns: exactness is for every law."""
    return rng.standard_t(2, size=(n, d)) + rng.exponential(size=(n, d))


def apart(n, d=1):
    return lambda rng: (heavy(rng, n, d), rng.exponential(size=n), {})


@pytest.mark.parametrize(
    "dependence", [None, HSIC(), DistanceCovariance(normalized=True)], ids=["default", "HSIC", "dCor"]
)
def test_permutation_tests_hold_their_level_at_any_n(dependence):
    assert_level(rejections(apart(25), 200, dependence=dependence), 200)


def test_the_aggregated_test_of_several_columns_holds_its_level():
    draw = lambda rng: (  # noqa: E731
        heavy(rng, 24, 3),
        {"age": rng.exponential(size=24), "sex": rng.choice(["f", "m"], 24)},
        {},
    )
    assert_level(rejections(draw, 100), 100)


def through_y(rng, n=60):
    """Z and s depend on each other only through y."""
    y = rng.integers(0, 2, n)
    return rng.normal(size=n) + 2.5 * y, rng.normal(size=n) + 2.5 * y, {"given": y}


@pytest.mark.parametrize("method", ["permutation", "gamma"])
def test_given_y_the_level_holds_when_z_and_s_depend_through_y_only(method):
    runs = 150
    assert_level(rejections(through_y, runs, method=method), runs, slack=0.02 if method == "gamma" else 0.0)
    # Without y the same samples are told apart from independence nearly always.
    marginal = lambda rng: (*through_y(rng)[:2], {})  # noqa: E731
    assert rejections(marginal, 30, method=method) >= 27


def test_given_y_a_dependence_that_cancels_over_levels_is_found():
    def opposite(rng, n=80):
        y = rng.integers(0, 2, n)
        s = rng.uniform(-1, 1, size=n)
        return (2 * y - 1) * s + 0.5 * rng.normal(size=n), s, {"given": y}

    # Linear kernels see covariance alone, which is zero overall and plus or minus one within levels.
    linear = {"dependence": HSIC(Linear(), Linear())}
    marginal = lambda rng: (*opposite(rng)[:2], {})  # noqa: E731
    assert rejections(opposite, 40, **linear) >= 38
    assert rejections(marginal, 40, **linear) <= 16


def chosen_by_s(rng, n=40):
    """z and s are independent in the weighted law; the weights are a function of s."""
    s = rng.normal(size=n)
    return rng.normal(size=n), s, {"sample_weight": np.exp(s), "weights_of_s": True}


@pytest.mark.parametrize("dependence", [None, HSIC(normalized=True)], ids=["default", "nHSIC"])
def test_with_weights_of_s_the_permutation_test_holds_its_level(dependence):
    assert_level(rejections(chosen_by_s, 150, dependence=dependence), 150)


def thinned(rng, n=200):
    """Rows that depend, and weights that undo it: independent in the weighted law.

    Of independent pairs those far out in both are seldom kept; one over the chance is the weight. Weights
    that are large where both features are make the statistic more variable than any pairing by chance.
    """
    z, s = rng.uniform(-1, 1, size=(2, 4 * n))
    chance = np.where((np.abs(z) > 0.5) & (np.abs(s) > 0.5), 0.06, 1.0)
    kept = np.flatnonzero(rng.random(4 * n) < chance)[:n]
    return z[kept], s[kept], {"sample_weight": 1 / chance[kept]}


def test_the_wild_bootstrap_holds_its_level_at_200_rows():
    runs = 150
    assert_level(rejections(thinned, runs), runs, slack=0.03)
    # Without the weights the rows depend; if the weights travelled with s, the level would be lost.
    unweighted = lambda rng: (*thinned(rng)[:2], {})  # noqa: E731
    assert rejections(unweighted, 20) >= 10
    travelling = rejections(thinned, 60, weights_of_s=True)
    # In a table a row has the mean weight of its cell, so less of the level is lost than with its own.
    assert travelling > stats.binom(60, ALPHA).ppf(0.98)


def test_the_wild_bootstrap_finds_a_dependence_of_the_weighted_law_alone():
    # Independent rows; the weighted law favours z s > 0.
    def weighted(rng, n=200):
        z, s = rng.uniform(-1, 1, size=(2, n))
        return z, s, {"sample_weight": 0.5 + 0.4 * np.sign(z * s)}

    unweighted = lambda rng: (*weighted(rng)[:2], {})  # noqa: E731
    assert rejections(weighted, 20) == 20
    assert rejections(unweighted, 60) <= stats.binom(60, ALPHA).ppf(1 - 5e-4)


def test_the_gamma_law_holds_its_level_at_200_rows():
    runs = 500
    pvalues = []
    for seed in range(runs):
        z, s = np.random.default_rng(seed).normal(size=(2, 200))
        pvalues.append(independence_test(z, s, method="gamma").pvalue)
    for alpha, slack in ((0.3, 0.02), (0.1, 0.02), (0.05, 0.01), (0.01, 0.005)):
        assert_level((np.array(pvalues) <= alpha).sum(), runs, alpha, slack)


def test_the_limit_of_the_permutation_law_holds_its_level_at_400_rows():
    runs, n, count = 120, 400, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        z, s = torch.tensor(heavy(rng, n)), to_sensitive(rng.exponential(size=n))
        generator = torch.Generator().manual_seed(seed)
        family, shares = bandwidth_family(z, s, generator)
        values = limit_values(family, [Stratum(z, s, None, 1.0)], 39, generator)
        count += rank_pvalue(combine(values, shares)) <= ALPHA
    assert_level(count, runs, slack=0.02)


def test_the_limit_agrees_with_permutations_on_the_same_rows(monkeypatch):
    gaps = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        s = rng.normal(size=400)
        # One column would be tested from a table, which needs no limit.
        z = np.stack([0.08 * s + rng.normal(size=400), rng.normal(size=400)], axis=1)
        real = independence_test(z, s, n_permutations=999, random_state=0)
        with monkeypatch.context() as patch:
            patch.setattr("frhsic.inference._tests.MANY_ROWS", 399)
            limit = independence_test(z, s, n_permutations=999, random_state=0)
        assert (real.exact, limit.exact) == (True, False)
        gaps.append(limit.pvalue - real.pvalue)
    # Two p-values of 999 draws differ by 0.022 at most in standard deviation.
    assert np.abs(gaps).max() < 0.09
    assert abs(np.mean(gaps)) < 0.025


def test_a_u_shape_is_found_where_correlation_sees_nothing():
    def u_shape(rng, n=150):
        s = rng.uniform(-1, 1, n)
        return s**2 + 0.25 * rng.normal(size=n), s, {}

    assert rejections(u_shape, 20) == 20
    assert rejections(u_shape, 20, method="gamma") == 20
    linear = rejections(u_shape, 100, dependence=HSIC(Linear(), Linear()))
    assert linear <= stats.binom(100, ALPHA).ppf(1 - 5e-4)


def test_a_direction_of_small_variance_is_found_because_z_is_also_whitened():
    def hidden(rng, n=100):
        s = rng.normal(size=n)
        z = 10.0 * rng.normal(size=(n, 5))
        z[:, 4] = 0.05 * (s + 0.5 * rng.normal(size=n))
        return z, s, {}

    assert rejections(hidden, 10) == 10
    # As they are, the columns hide it.
    assert rejections(hidden, 30, dependence=HSIC(Gaussian("median"))) <= 10


def test_a_narrow_effect_along_s_is_found_by_the_family_and_not_by_its_widest_member():
    def wave(rng, n=250):
        s = rng.uniform(0, 1, n)
        return np.cos(6 * np.pi * s) + 0.7 * rng.normal(size=n), s, {}

    assert rejections(wave, 20) == 20
    assert rejections(wave, 40, dependence=HSIC(Gaussian(4.0), Gaussian(4.0))) <= 16
