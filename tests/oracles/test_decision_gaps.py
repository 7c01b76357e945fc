"""Gaps of decisions and the region question against definitions."""

import numpy as np
import pytest
import torch
from scipy import stats

from frhsic.dependence import GDP, ScoreGap
from frhsic.inference import (
    _gdp_intervals,
    _regions,
    confidence_interval,
    decision_gaps,
    equivalence_test,
    region_test,
)
from frhsic.inference._process import Process
from frhsic.inference._question import Observations


def sample(n=2_000, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 32, n).astype(float)
    return rng.beta(2, 3, n) ** (1.0 + 0.6 * (age > 27)), age, rng.uniform(0.5, 2.0, n)


def gap_of_decision(z, s, w, t):
    w = w / w.sum()
    overall = w @ (z > t)
    return sum(w[s == a].sum() * abs(np.average(z[s == a] > t, weights=w[s == a]) - overall) for a in set(s))


@pytest.mark.parametrize("weighted", [False, True])
def test_gaps_of_decisions_are_those_of_the_definition(weighted):
    z, s, w = sample()
    w = w if weighted else np.ones_like(z)
    found = decision_gaps(z, s, cutoffs=[0.7, 0.2, 0.5], sample_weight=w if weighted else None)
    assert found.cutoffs == (0.7, 0.2, 0.5)
    assert found.plug_in == pytest.approx([gap_of_decision(z, s, w, t) for t in found.cutoffs], abs=1e-12)
    assert found.rates == pytest.approx([np.average(z > t, weights=w) for t in found.cutoffs], abs=1e-12)


def test_the_interval_at_one_cutoff_is_that_of_gdp_of_the_decision():
    z, s, _ = sample(n=6_000)
    one = confidence_interval(z, s, dependence=ScoreGap(cutoff=0.5), random_state=0, n_draws=1_999)
    twin = confidence_interval((z > 0.5).astype(float), s, dependence=GDP(), random_state=0, n_draws=1_999)
    assert one.estimate == pytest.approx(twin.estimate, rel=1e-12)
    assert (one.low, one.high) == pytest.approx((twin.low, twin.high), rel=0.1)
    assert (one.chance, one.chance_high) == pytest.approx((twin.chance, twin.chance_high), rel=0.1)


def test_columns_have_the_variance_of_each_by_itself():
    z, s, _ = sample()

    def curve_of(*cutoffs):
        decisions = (z[:, None] > np.array(cutoffs)).astype(float)
        rows = Observations.read(decisions, s)
        return _gdp_intervals.gdp_curve(rows, GDP())[1]

    points = curve_of(0.3).points()[0]
    both = Process.of_columns(curve_of(0.3, 0.9), points)
    alone = [Process(curve_of(t), points) for t in (0.3, 0.9)]
    for ours, theirs in zip(both.columns, alone, strict=True):
        assert torch.allclose(ours.variance, theirs.variance, rtol=1e-9)
    assert torch.allclose(both.variance, alone[0].variance + alone[1].variance, rtol=1e-9)
    assert both.limits_of_columns(2.0).shape == (len(points), 2)


def test_the_worst_cutoff_is_the_largest_gap_and_lies_in_its_interval():
    z, s, _ = sample()
    found = confidence_interval(z, s, dependence=ScoreGap(cutoff="worst"), random_state=0, n_draws=199)
    every = max(gap_of_decision(z, s, np.ones_like(z), t) for t in z)
    assert found.plug_in == pytest.approx(every, rel=5e-3)  # 512 levels of the score
    assert found.low < found.estimate < found.plug_in < found.high
    assert found.chance < found.chance_high < found.estimate


def test_equivalence_at_every_cutoff_is_harder_than_at_one():
    z, s, _ = sample(n=20_000)
    p = [
        equivalence_test(z, s, tolerance=0.2, dependence=ScoreGap(cutoff=cutoff), n_draws=499, random_state=0)
        for cutoff in (0.5, "worst")
    ]
    assert p[0].upper < p[1].upper
    most = equivalence_test(z, s, tolerance=0.9, dependence=ScoreGap(cutoff="worst"), random_state=0)
    assert most.pvalue == 1e-6  # the least that is said
    assert "worst cut-off" in str(p[1])


def test_groups_of_one_row_are_rows():
    z, s, _ = sample()
    rows = decision_gaps(z, s, cutoffs=[0.5])
    grouped = decision_gaps(z, s, cutoffs=[0.5], groups=np.arange(len(z)))
    assert grouped == rows


@pytest.mark.parametrize("bad", [[], [float("nan")], [float("inf")]])
def test_cutoffs_are_finite_numbers(bad):
    z, s, _ = sample()
    with pytest.raises(ValueError, match="cutoffs"):
        decision_gaps(z, s, cutoffs=bad)


@pytest.mark.parametrize("far", [-1.0, 2.0])
def test_a_cutoff_with_all_scores_on_one_side_is_an_error_in_words(far):
    z, s, _ = sample()
    for call in (
        lambda: decision_gaps(z, s, cutoffs=[0.5, far]),
        lambda: confidence_interval(z, s, dependence=ScoreGap(cutoff=far)),
        lambda: equivalence_test(z, s, tolerance=0.1, dependence=ScoreGap(cutoff=far)),
    ):
        with pytest.raises(ValueError, match="have scores on both sides"):
            call()
    with pytest.raises(ValueError, match="more than one value"):
        decision_gaps(np.ones_like(z), s)


@pytest.mark.parametrize("bad", ["most", float("nan"), True])
def test_a_cutoff_of_the_measure_is_a_number_or_the_worst(bad):
    with pytest.raises(ValueError, match="cutoff"):
        ScoreGap(cutoff=bad)


# ---- the region question -----------------------------------------------------------------------------------


def test_the_error_of_a_region_is_that_of_welch():
    z, s, _ = sample(n=500)
    inside = s > 28
    rows = _regions.Observations.read(z, inside.astype(float), None, None)
    found = _regions._difference(rows, torch.tensor(inside))
    twin = stats.ttest_ind(z[inside], z[~inside], equal_var=False)
    assert found.t == pytest.approx(twin.statistic, rel=1e-9)
    assert found.degrees == pytest.approx(twin.df, rel=1e-9)
    x, y = z[inside], z[~inside]
    third = ((x - x.mean()) ** 3).sum() / len(x) ** 3 - ((y - y.mean()) ** 3).sum() / len(y) ** 3
    assert found.skewness == pytest.approx(third / found.error**3, rel=0.05)


def test_permuted_regions_have_the_t_of_welch():
    z, s, _ = sample(n=200)
    inside = torch.tensor(s > 28)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    found = _regions._studentized(torch.tensor(z), inside, order[None])
    x = z[order.numpy()]
    twin = stats.ttest_ind(x[inside.numpy()], x[~inside.numpy()], equal_var=False)
    assert float(found) == pytest.approx(twin.statistic, rel=1e-9)


def test_halls_transform_and_its_inverse():
    found = _regions._Difference(inside=1.0, outside=0.4, error=0.3, skewness=0.8, degrees=30.0)
    c, t = 0.8, 2.0
    assert found.corrected == pytest.approx(t + c * t**2 / 3 + c**2 * t**3 / 27 + c / 6)
    assert found.shift(found.corrected) == pytest.approx(0.0, abs=1e-12)


def test_a_region_has_two_sides_and_weights_and_groups():
    z, s, w = sample()
    below = region_test(z, s > 27, side="below", random_state=0)
    above = region_test(z, s > 27, side="above", random_state=0)
    assert below.pvalue < 0.01 < 0.99 < above.pvalue
    assert "is below" in str(below)
    assert "is not shown to be above" in str(above)
    assert below.low < below.difference < below.high < 0
    twice = region_test(np.tile(z, 2), np.tile(s > 27, 2), groups=np.tile(np.arange(len(z)), 2))
    assert twice.high - twice.low == pytest.approx(below.high - below.low, rel=0.01)
    heavy = region_test(z, s > 27, sample_weight=w)
    assert heavy.inside == pytest.approx(np.average(z[s > 27], weights=w[s > 27]))


@pytest.mark.parametrize(
    ("region", "message"),
    [(None, "for each row"), (np.arange(2_000.0), "true or false"), (np.arange(2_000) < 3, "at least 5")],
)
def test_regions_are_true_or_false_with_rows_on_both_sides(region, message):
    with pytest.raises(ValueError, match=message):
        region_test(sample()[0], region)


def test_a_region_is_below_or_above():
    z, s, _ = sample()
    with pytest.raises(ValueError, match="'below' or 'above'"):
        region_test(z, s > 27, side="beside")


def test_the_largest_gap_of_all_cutoffs_is_that_of_its_interval():
    z, s, _ = sample()
    found = decision_gaps(z, s)
    assert found.largest == confidence_interval(z, s, dependence=ScoreGap(cutoff="worst"), random_state=0)
    assert decision_gaps(z, s, cutoffs=[0.5]).largest is None
