"""The bound of a Gaussian channel, against laws whose best predictors are known."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from frhsic.inference.bounds import channel_bound

RATIOS = [0.1, 0.5, 1.0, 2.0, 4.0]


def two_points(ratio):
    """R^2 of the side of S from Z = +/- ratio + N(0, 1): E tanh(ratio Z)^2."""

    def integrand(x):
        return math.tanh(ratio * x) ** 2 * 0.5 * (stats.norm.pdf(x, ratio) + stats.norm.pdf(x, -ratio))

    return integrate.quad(integrand, -12 - ratio, 12 + ratio, points=[0.0], limit=200)[0]


def uniform(ratio):
    """R^2 of U from Z = ratio (2 U - 1) + N(0, 1), by sums over a grid."""
    u = (np.arange(2_000) + 0.5) / 2_000
    z = np.linspace(-ratio - 8, ratio + 8, 4_000)
    density = stats.norm.pdf(z[:, None], ratio * (2 * u - 1))
    mass = density.sum(axis=1)
    mean = (density @ u) / np.maximum(mass, 1e-300)
    weight = mass / mass.sum()
    information = float(
        (
            weight[:, None]
            * (density / mass[:, None])
            * np.log(np.maximum(density / mass[:, None] * 2_000, 1e-300))
        ).sum()
    )
    return 12.0 * float(weight @ (mean - 0.5) ** 2), information


@pytest.mark.parametrize("ratio", RATIOS)
def test_no_known_predictor_exceeds_it(ratio):
    bound = channel_bound(ratio, 1.0, 1)
    r2, information = uniform(ratio)
    assert two_points(ratio) <= bound.any_function
    assert r2 <= min(bound.ranks, 2.0 * information + 1e-9)
    assert information <= bound.information + 1e-9
    # How tight: within a factor of four where it says something, for the side of S.
    assert bound.any_function < 4.0 * two_points(ratio) or ratio < 0.5


def test_the_total_variation_is_that_of_two_normal_laws():
    for ratio in RATIOS:
        apart = integrate.quad(
            lambda x, r=ratio: 0.5 * abs(stats.norm.pdf(x, r) - stats.norm.pdf(x, -r)), -20, 20, points=[0.0]
        )[0]
        assert channel_bound(ratio, 1.0, 3).any_function == pytest.approx(apart, rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_on_finite_laws_the_variance_shrinks_by_the_largest_distance_at_least(seed):
    # Any channel from 5 inputs to 6 outputs, any g: Var E[g | Z] <= max TV x Var g.
    rng = np.random.default_rng(seed)
    p, W, g = rng.dirichlet(np.ones(5)), rng.dirichlet(np.full(6, 0.5), size=5), rng.normal(size=5)
    joint = p[:, None] * W
    seen = joint.sum(axis=0)
    mean = (g @ joint) / seen
    explained = seen @ (mean - p @ g) ** 2
    delta = max(0.5 * np.abs(a - b).sum() for a in W for b in W)
    assert explained <= delta * (p @ (g - p @ g) ** 2) + 1e-12


def test_scale_width_and_words():
    bound = channel_bound(0.5, 0.25, 8)
    assert bound.any_function == channel_bound(2.0, 1.0, 8).any_function
    assert channel_bound(1.0, 1.0, 50).information < 0.5 < channel_bound(20.0, 1.0, 50).information
    assert "This says nothing" in str(channel_bound(5.0, 1.0, 8))
    assert "The same holds for labels." in str(bound)
    assert channel_bound(5.0, 1.0, 8).vacuous
    assert not bound.vacuous


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.0, 1.0, 1), "radius"),
        ((1.0, -1.0, 1), "noise"),
        ((1.0, math.inf, 1), "noise"),
        ((1.0, 1.0, 0), "width"),
    ],
)
def test_refused(arguments, name):
    with pytest.raises(ValueError, match=f"^'{name}' must be"):
        channel_bound(*arguments)


@pytest.mark.parametrize("wrong", ["0.5", None, True, -1.0, float("nan"), float("inf")])
def test_a_length_that_is_no_positive_number_is_an_error_that_names_it(wrong):
    for arguments, name in (((wrong, 1.0, 8), "radius"), ((1.0, wrong, 8), "noise")):
        with pytest.raises(ValueError, match=f"^'{name}' must be a positive number"):
            channel_bound(*arguments)
