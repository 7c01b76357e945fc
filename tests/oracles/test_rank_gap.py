"""The rank gap against its definition, and what leaves it as it is."""

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from frhsic.dependence import GDP, RankGap, ScoreGap
from frhsic.inference import gap_change
from tests.oracles.test_score_gap import call, distance_to_all, gap_of_decision, groups, sample

each_sample = pytest.mark.parametrize("ties", [False, True])
each_weight = pytest.mark.parametrize("weights", [False, True])


def sum_over_cutoffs(z, code, w):
    """The definition: gaps of decisions, weighted by the mean share of the two scores beside a cut-off."""
    places = np.unique(z)
    p = [w[z == place].sum() for place in places]
    return sum(
        0.5 * (p[j] + p[j + 1]) * gap_of_decision(z, code, w, places[j]) for j in range(len(places) - 1)
    )


@each_sample
@each_weight
def test_the_rank_gap_is_the_weighted_sum_of_gaps_of_decisions(ties, weights):
    z, code, w = sample(n=80, ties=ties, weights=weights)
    assert call(RankGap(), z, code, w) == pytest.approx(sum_over_cutoffs(z, code, w), rel=1e-10)


@each_sample
def test_the_rank_gap_is_the_score_gap_of_mid_ranks(ties):
    z, code, w = sample(ties=ties)
    ranks = (rankdata(z) - 0.5) / len(z)
    assert call(RankGap(), z, code) == pytest.approx(distance_to_all(ranks, code, w), rel=1e-10)


@each_sample
@each_weight
def test_no_increasing_transformation_and_no_turn_changes_it(ties, weights):
    z, code, w = sample(ties=ties, weights=weights)
    value = call(RankGap(), z, code, w)
    for moved in (z / 3.0, np.exp(z), z**3 - 1e4, -z):
        assert call(RankGap(), moved, code, w) == pytest.approx(value, rel=1e-10)
    assert call(ScoreGap(), z / 3.0, code, w) == pytest.approx(call(ScoreGap(), z, code, w) / 3.0)


@each_weight
def test_for_yes_and_no_it_is_half_the_gap_of_the_decision(weights):
    _, code, w = sample(weights=weights)
    z = np.random.default_rng(1).binomial(1, 0.1 + 0.15 * code).astype(float)
    decision = call(ScoreGap(cutoff=0.5), z, code, w)
    assert call(RankGap(), z, code, w) == pytest.approx(decision / 2.0, rel=1e-10)
    assert decision == pytest.approx(call(GDP(), z, code, w), rel=1e-10)


def test_it_is_at_most_a_third_which_a_score_that_is_s_comes_near():
    code = np.repeat(np.arange(60), 20)
    values = [call(RankGap(), one, code) for one in (code, np.arange(1_200), code % 7, code // 30)]
    assert max(values) <= 1.0 / 3.0
    assert values[0] == pytest.approx(1.0 / 3.0, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_at_most_a_third_for_any_score(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    z, code = rng.integers(0, rng.integers(2, 30), n), rng.integers(0, n, n)
    assert 0.0 <= call(RankGap(), z, code, rng.exponential(size=n)) <= 1.0 / 3.0 + 1e-12


def test_two_rows_beyond_both_ends_hardly_move_it():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 40, 20_000)
    z = rng.normal(size=20_000) + 0.02 * code
    far = z.copy()
    far[:2] = -1e6, 1e6
    assert abs(call(RankGap(), far, code) - call(RankGap(), z, code)) < 0.001
    assert call(ScoreGap(), far, code) > 100.0


def test_weights_count_in_the_ranks():
    z, code, _ = sample(n=60, ties=True)
    counts = np.random.default_rng(0).integers(1, 5, 60)
    repeated = call(RankGap(), np.repeat(z, counts), np.repeat(code, counts))
    assert call(RankGap(), z, code, counts / counts.sum()) == pytest.approx(repeated, rel=1e-10)
    assert call(RankGap(), z, code) != pytest.approx(repeated, rel=1e-3)


def test_several_columns_are_averaged():
    z, code, _ = sample(n=80)
    other = np.random.default_rng(1).normal(size=80)
    both = torch.tensor(np.stack((z, other), axis=1))
    each = [call(RankGap(), column, code) for column in (z, other)]
    assert float(RankGap()(both, groups(code))) == pytest.approx(np.mean(each), rel=1e-12)


def test_it_has_no_gradient_and_a_score_that_is_not_finite_has_no_value():
    z = torch.arange(40, dtype=torch.float64).requires_grad_()
    assert not RankGap()(z, groups(np.arange(40) % 3)).requires_grad
    for bad in (torch.nan, torch.inf):
        assert RankGap()(torch.tensor([0.0, 1.0, bad]), groups(np.array([0, 1, 1]))).isnan()


def test_the_change_of_a_rank_gap_is_that_of_the_score_gap_of_ranks_on_any_scale():
    rng = np.random.default_rng(0)
    age, new = rng.integers(20, 60, 3_000), np.arange(3_000) >= 1_500
    score = rng.uniform(size=3_000) + np.where(new, 0.01, 0.0) * (age - 40)
    found = gap_change(score, {"age": age}, new=new, dependence=RankGap(), random_state=0)
    ranks = np.empty(3_000)
    for part in (new, ~new):
        ranks[part] = (rankdata(score[part]) - 0.5) / part.sum()
    twin = gap_change(ranks, {"age": age}, new=new, random_state=0)
    assert (found.low, found.change, found.high) == pytest.approx((twin.low, twin.change, twin.high))
    assert found.measure == "rank gap of the score"
    again = gap_change(np.exp(score), {"age": age}, new=new, dependence=RankGap(), random_state=0)
    assert again.change == found.change
