"""The gap of a score against definitions, and its relations to GDP."""

import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance

from frhsic.data import Sensitive
from frhsic.dependence import GDP, ScoreGap


def sample(n=300, seed=0, ties=False, weights=False):
    rng = np.random.default_rng(seed)
    code = rng.integers(0, 5, n)
    z = rng.normal(size=n) * (1 + 0.5 * code) + 0.2 * code
    z = np.round(z, 1) if ties else z
    w = rng.exponential(size=n) if weights else np.ones(n)
    return z, code, w / w.sum()


def groups(code):
    return Sensitive(torch.tensor(code, dtype=torch.float64)[:, None], ("group",), ("categorical",))


def call(measure, z, code, w=None):
    w = None if w is None else torch.tensor(w)
    return float(measure(torch.tensor(z)[:, None], groups(code), w))


def distance_to_all(z, code, w):
    """The definition: the mean over cells of the Wasserstein-1 distance, by scipy."""
    return sum(
        w[code == c].sum() * wasserstein_distance(z[code == c], z, w[code == c], w) for c in np.unique(code)
    )


def gap_of_decision(z, code, w, t):
    overall = w[z > t].sum()
    return sum(
        w[code == c].sum() * abs(w[(code == c) & (z > t)].sum() / w[code == c].sum() - overall)
        for c in np.unique(code)
    )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_the_gap_is_the_mean_wasserstein_distance(ties, weights):
    z, code, w = sample(ties=ties, weights=weights)
    assert call(ScoreGap(), z, code, w) == pytest.approx(distance_to_all(z, code, w), rel=1e-10)


@pytest.mark.parametrize("ties", [False, True])
def test_the_gap_is_the_integral_of_the_gap_of_decisions(ties):
    z, code, w = sample(n=60, ties=ties, weights=True)
    places = np.unique(z)
    cutoffs = torch.tensor(places[:-1])  # D is constant from one score to the next
    found = ScoreGap().at(torch.tensor(z)[:, None], groups(code), cutoffs, torch.tensor(w))[:, 0]
    twin = [gap_of_decision(z, code, w, t) for t in places[:-1]]
    assert found.numpy() == pytest.approx(np.array(twin), abs=1e-12)
    integral = float(found @ torch.tensor(np.diff(places)))
    assert call(ScoreGap(), z, code, w) == pytest.approx(integral, rel=1e-10)
    order = torch.tensor([3, 0, 2])
    some = ScoreGap().at(torch.tensor(z)[:, None], groups(code), cutoffs[order], torch.tensor(w))[:, 0]
    assert some.numpy() == pytest.approx(found[order].numpy(), abs=1e-15)
    cut, gap = ScoreGap().worst(torch.tensor(z)[:, None], groups(code), torch.tensor(w))
    assert float(gap) == pytest.approx(max(twin))
    assert gap_of_decision(z, code, w, float(cut)) == pytest.approx(max(twin))


@pytest.mark.parametrize("seed", range(20))
def test_the_gap_is_at_least_gdp_and_at_most_the_mean_difference(seed):
    z, code, w = sample(seed=seed, weights=True)
    gap = call(ScoreGap(), z, code, w)
    assert call(GDP(), z, code, w) <= gap + 1e-12
    assert gap <= w @ np.abs(z[:, None] - z) @ w + 1e-12


def test_the_gap_of_two_values_is_gdp():
    _, code, w = sample(weights=True)
    z = np.random.default_rng(1).binomial(1, 0.1 + 0.15 * code).astype(float)
    assert call(ScoreGap(), z, code, w) == pytest.approx(call(GDP(), z, code, w), rel=1e-10)


def test_the_gap_of_a_shift_between_two_groups_is_gdp():
    x = np.random.default_rng(0).normal(size=200)
    z, code = np.concatenate((x, x + 0.7)), np.repeat([0, 1], 200)
    assert call(ScoreGap(), z, code) == pytest.approx(call(GDP(), z, code), rel=1e-10)
    assert call(GDP(), z, code) == pytest.approx(0.35)


def test_a_score_that_only_spreads_has_a_gap_and_no_gdp():
    z, code = np.array([0.0, 3.0, 1.0, 2.0]), np.array([0, 0, 1, 1])
    assert call(GDP(), z, code) == pytest.approx(0.0, abs=1e-15)
    # F - F_0 = -1/4 up to 1, 0 up to 2, 1/4 up to 3, and F - F_1 the opposite.
    assert call(ScoreGap(), z, code) == pytest.approx(0.5)


def test_half_the_range_is_reached_where_the_score_is_one_of_two_values_by_s():
    code = np.repeat([0, 1], 50)
    assert call(ScoreGap(), 3.0 * code, code) == pytest.approx(1.5)


def test_a_constant_has_no_gap_and_no_gradient():
    z = torch.ones(40, 1, dtype=torch.float64, requires_grad=True)
    value = ScoreGap()(z, groups(np.arange(40) % 3))
    value.backward()
    assert float(value.detach()) == 0.0
    assert bool(z.grad.isfinite().all())


def test_the_gradient_is_that_of_finite_differences():
    z, code, w = sample(n=40, weights=True)
    x = torch.tensor(z, requires_grad=True)
    ScoreGap()(x[:, None], groups(code), torch.tensor(w)).backward()
    for i in (0, 7, 23):
        up, down = z.copy(), z.copy()
        up[i] += 1e-6
        down[i] -= 1e-6
        slope = (call(ScoreGap(), up, code, w) - call(ScoreGap(), down, code, w)) / 2e-6
        assert float(x.grad[i]) == pytest.approx(slope, abs=1e-6)


def test_several_columns_are_averaged_and_stacks_are_models():
    z, code, w = sample(n=80)
    both = torch.tensor(np.stack((z, z**2), axis=1))
    each = [call(ScoreGap(), one, code, w) for one in (z, z**2)]
    assert float(ScoreGap()(both, groups(code))) == pytest.approx(np.mean(each))
    stack = torch.stack((both, 2.0 * both))
    assert ScoreGap()(stack, groups(code)).numpy() == pytest.approx(np.mean(each) * np.array([1.0, 2.0]))


def test_a_score_may_be_a_vector():
    z, code, _ = sample(n=50)
    by_row = ScoreGap().worst(torch.tensor(z), groups(code))
    assert by_row == ScoreGap().worst(torch.tensor(z)[:, None], groups(code))
