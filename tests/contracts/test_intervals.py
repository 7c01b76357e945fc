"""What holds for every interval and curve: shape, errors, repeatability, and that each argument counts."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from frhsic._text import number
from frhsic.data import to_matrix
from frhsic.dependence import EIPM, GDP, HSIC, BinnedMMD, DistanceCovariance
from frhsic.inference import (
    _embedding,
    _intervals,
    _kernel_intervals,
    conditional_curve,
    confidence_interval,
)
from frhsic.inference.bounds._bounds import population_bound
from frhsic.kernels import Gaussian
from tests.helpers import gaussian_pair as pair

MEASURES = [
    HSIC(),
    HSIC(root=True),
    HSIC(normalized=True),
    DistanceCovariance(normalized=True, root=True),
    GDP(),
]


def interval(z, s, measure=None, **options):
    return confidence_interval(z, s, dependence=measure, **{"random_state": 0, "n_draws": 199} | options)


@pytest.mark.parametrize("rho", [0.0, 0.9])
@pytest.mark.parametrize("measure", MEASURES, ids=repr)
def test_an_interval_holds_its_estimate_and_prints_as_a_sentence(measure, rho):
    for seed in range(2):
        z, s = pair(rho=rho, seed=seed)
        result = interval(z, pd.Series(s, name="age"), measure)
        assert result.low <= result.estimate <= result.high
        assert all(map(math.isfinite, (result.low, result.high, result.chance, result.chance_high)))
        assert result.chance < result.chance_high
        assert " on age is " in str(result)
        assert "Target: " in str(result)
        assert json.loads(json.dumps(result.to_dict()))["n"] == 120
        assert len(result.to_frame()) == 1


@pytest.mark.parametrize("measure", MEASURES, ids=repr)
def test_a_higher_level_is_wider_and_the_same_seed_the_same(measure):
    z, s = pair()
    narrow, wide = (interval(z, s, measure, confidence_level=level) for level in (0.8, 0.99))
    assert wide.low <= narrow.low < narrow.high < wide.high
    assert interval(z, s, measure) == interval(z, s, measure)


@pytest.mark.parametrize("measure", MEASURES, ids=repr)
def test_chance_may_be_left_out_without_changing_the_interval(measure):
    z, s = pair()
    with_chance, without = interval(z, s, measure), interval(z, s, measure, chance=False)
    assert without.chance is None
    assert without.chance_high is None
    assert (with_chance.low, with_chance.high) == (without.low, without.high)


def test_draws_and_seed_count():
    z, s = pair(rho=0.1)
    for scores, measure in ((z, None), (np.column_stack((z, z)), GDP())):
        first, second = (interval(scores, s, measure, random_state=seed).high for seed in (1, 2))
        assert first != second
        fewer, more = (interval(scores, s, measure, n_draws=count).high for count in (150, 199))
        assert fewer != more


def test_the_default_is_normalised_hsic():
    z, s = pair()
    assert interval(z, s) == interval(z, s, HSIC(estimator="unbiased", normalized=True))
    assert interval(z, s).measure == "normalised HSIC"


def test_biased_and_unbiased_hsic_have_one_interval():
    z, s = pair()
    assert interval(z, s, HSIC()) == interval(z, s, HSIC(estimator="unbiased"))


def test_a_negative_estimate_is_inside_and_explained():
    results = [interval(*pair(rho=0.0, seed=seed), chance=False) for seed in range(10)]
    negative = [result for result in results if result.estimate < 0]
    assert negative
    for result in negative:
        assert result.low == result.estimate
        assert "The target is never below zero" in str(result)


def test_a_normalised_interval_ends_at_one():
    _, s = pair()
    assert interval(s, s, HSIC(normalized=True)).high == 1.0


def test_the_bound_at_every_n_is_that_of_the_biased_hsic():
    z, s = pair()
    fixed = HSIC(Gaussian(1.0), Gaussian(1.0))
    most = population_bound(float(fixed(to_matrix(z), to_matrix(s))), len(z), 0.05, 1.0)
    assert f"at most {number(most)} with confidence 0.95" in str(interval(z, s, fixed))


def test_the_bound_at_every_n_is_given_for_kernels_fixed_beforehand_and_within_zero_and_one_only():
    z, s = pair()
    assert "At every n" in str(interval(z, s, HSIC(Gaussian(1.0), Gaussian(1.0))))
    for chosen in (HSIC(), HSIC(Gaussian(1.0)), HSIC(kernel_s=Gaussian(1.0))):
        assert "At every n" not in str(interval(z, s, chosen))  # a bandwidth is a rule on these rows
    assert "At every n" not in str(interval(z, s, DistanceCovariance()))


@pytest.mark.parametrize("measure", [None, DistanceCovariance(), HSIC(Gaussian(3.0))], ids=repr)
def test_representations_of_many_columns_and_several_attributes_are_taken(measure):
    rng = np.random.default_rng(0)
    s = rng.normal(size=(150, 2))
    z = rng.normal(size=(150, 12))
    z[:, 0] += s[:, 0]
    result = interval(z, {"age": s[:, 0], "income": s[:, 1]}, measure)
    assert result.attributes == ("age", "income")
    assert result.low <= result.estimate <= result.high


def test_categories_make_level_means():
    rng = np.random.default_rng(0)
    group = rng.choice(["a", "b", "c"], 300)
    z = (group == "a") + rng.normal(size=300)
    assert "at each of 3 labels of group" in interval(z, {"group": group}, GDP()).target
    assert interval(z, {"group": group}).low > 0


def test_two_columns_of_probabilities_have_the_interval_of_one():
    z, s = pair()
    p = 1 / (1 + np.exp(-z))
    both, one = interval(np.column_stack((p, 1 - p)), s, GDP()), interval(p, s, GDP())
    # Several columns go by rows, whose estimate has what chance adds, and wider limits.
    assert both.estimate == pytest.approx(one.plug_in)
    assert both.low < one.estimate < both.high


def test_thin_factors_and_gram_matrices_agree(monkeypatch):
    z, s = pair(400)
    whole = interval(z, s, n_draws=4_000, chance=False)
    monkeypatch.setattr(_embedding, "_WHOLE", 100)
    thin = interval(z, s, n_draws=4_000, chance=False)
    assert (thin.low, thin.estimate, thin.high) == pytest.approx((whole.low, whole.estimate, whole.high))


def test_a_subsample_is_stated_and_its_rows_are_what_is_counted(monkeypatch):
    z, s = pair(600)
    monkeypatch.setattr(_embedding, "_WHOLE", 200)
    monkeypatch.setattr(_embedding, "_MOST_ROWS", 300)
    wide = np.random.default_rng(1).normal(size=(600, 10))
    assert interval(z, s, DistanceCovariance(normalized=True)).n == 600  # one column needs none
    for x, measure in ((wide, DistanceCovariance(normalized=True)), (wide, HSIC())):
        result = interval(x, s, measure)
        assert result.n == 300
        assert "A random subsample of 300 of 600 rows was used." in result.notes


def test_chance_of_many_rows_shrinks_as_one_over_n(monkeypatch):
    z, s = pair(800)
    whole = interval(z, s).chance_high
    monkeypatch.setattr(_kernel_intervals, "_CHANCE_ROWS", 200)
    assert interval(z, s).chance_high == pytest.approx(whole, rel=0.4)


def test_a_hundred_thousand_rows_take_seconds():
    """Memory too: a Gram matrix of these would be 80 GB."""
    z, s = pair(100_000)
    result = interval(z, s)
    assert result.n == 100_000
    assert result.chance_high < 1e-4
    assert 0.10 < result.low < result.high < 0.20
    assert result.high - result.low < 0.01
    assert 0.39 < interval(z, s, GDP()).low < interval(z, s, GDP()).high < 0.42
    assert 0.44 < interval(z, s, DistanceCovariance(normalized=True, root=True)).estimate < 0.46


@pytest.mark.parametrize("measure", MEASURES, ids=repr)
def test_equal_weights_give_the_interval_without_any_and_others_another(measure):
    z, s = pair()
    plain = interval(z, s, measure)
    assert interval(z, s, measure, sample_weight=np.full(len(z), 0.3)) == plain
    w = np.random.default_rng(1).uniform(0.2, 3.0, len(z))
    weighted = interval(z, s, measure, sample_weight=w)
    assert weighted == interval(z, s, measure, sample_weight=w / w.sum())
    assert weighted.estimate != plain.estimate
    assert weighted.low <= weighted.estimate <= weighted.high
    assert weighted.chance < weighted.chance_high


@pytest.mark.parametrize("measure", MEASURES, ids=repr)
def test_rows_of_no_weight_are_as_if_they_were_not_there(measure):
    z, s = pair()
    w = np.where(np.arange(len(z)) < 20, 0.0, np.random.default_rng(1).uniform(0.2, 3.0, len(z)))
    assert interval(z, s, measure, sample_weight=w) == interval(z[20:], s[20:], measure, sample_weight=w[20:])


# ---- errors


def test_measures_without_an_interval_are_errors_by_name():
    with pytest.raises(TypeError, match=r"must be HSIC, .*, ScoreGap or RankGap.*Got BinnedMMD"):
        interval(*pair(), BinnedMMD())
    with pytest.raises(TypeError, match=r"Got EIPM"):
        interval(*pair(), EIPM())


def test_a_measure_gets_its_interval_by_one_entry(monkeypatch):
    monkeypatch.setitem(
        _intervals._OF_ROWS, BinnedMMD, lambda rows, measure, options: (len(rows), options.n_draws)
    )
    assert interval(*pair(), BinnedMMD()) == (120, 199)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (HSIC(reference="uniform"), "reference='product'.*Got 'uniform'"),
        (GDP(0.1), "have no 'bandwidth_s' here.*Got 0.1. Leave it out"),
        (GDP(0.1, weighting="grid"), "have no 'bandwidth_s' here"),
    ],
)
def test_forms_without_a_target_are_errors(measure, message):
    with pytest.raises(ValueError, match=message):
        interval(*pair(), measure)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence_level": 1.0}, "'confidence_level' must lie between 0 and 1. Got 1.0"),
        ({"n_draws": 3}, "'n_draws' must be at least 19. Got 3"),
        ({"sample_weight": -np.ones(120)}, "'sample_weight' must not be negative. Got 120"),
        ({"sample_weight": np.ones(119)}, "'sample_weight' must have 120 rows like 'scores'. Got 119"),
    ],
)
@pytest.mark.parametrize("function", [confidence_interval, conditional_curve])
def test_wrong_options_are_errors(function, options, message):
    with pytest.raises(ValueError, match=message):
        function(*pair(), **options)


def test_too_few_rows_of_positive_weight_are_errors():
    z, s = pair()
    with pytest.raises(
        ValueError, match=r"^'sample_weight' must be positive in at least 8 rows\. Got 7\. Pass"
    ):
        interval(z, s, sample_weight=np.arange(120) < 7)


def test_a_constant_score_is_an_error():
    with pytest.raises(ValueError, match="'scores' must vary"):
        interval(np.ones(50), np.arange(50))


def test_labels_that_stand_alone_are_errors():
    z, s = pair()
    with pytest.raises(ValueError, match=r"at least two rows .* behind most points.*Got 0%"):
        curve(z, np.char.add("a", np.arange(len(s)).astype(str)))


# ---- the curve


def curve(z, s, **options):
    return conditional_curve(z, s, **{"random_state": 0, "n_draws": 199} | options)


def test_a_curve_lies_in_its_band_and_its_mass_sums_to_one():
    z, s = pair(300)
    for column in (s, np.round(s)):
        result = curve(z, column)
        assert sum(result.mass) == pytest.approx(1.0)
        assert all(a < b < c for a, b, c in zip(result.low, result.mean, result.high, strict=True))
        assert list(result.points) == sorted(result.points)
        assert result.overall == pytest.approx(z.mean())
        assert len(result.to_frame()) == len(result.points)
        assert "simultaneous band" in str(result)


def test_means_are_taken_at_few_values_and_within_ranges_of_many():
    rng = np.random.default_rng(0)
    z = rng.normal(size=1_000)
    few, many = rng.integers(0, 30, 1_000), rng.integers(0, 90, 1_000)
    assert curve(z, few).target == "the true curve, value by value"
    assert curve(z, many).target == "the mean score within 20 ranges of s, of about 5 % of the rows each"
    labels = np.char.add("a", many.astype(str))
    assert curve(z, labels).target == "the true curve, value by value"


def test_every_option_of_the_curve_counts():
    z, s = pair(300)
    plain = curve(z, s)
    pairs = curve(z, s, groups=np.arange(300) // 2)
    assert pairs.high != plain.high
    assert curve(z, s, confidence_level=0.5).high[10] < plain.high[10]
    assert curve(z, s, groups=np.arange(300) // 2, n_draws=99).high != pairs.high
    assert curve(z, s, groups=np.arange(300) // 2, random_state=1).high != pairs.high
    assert curve(z, s, random_state=1) == plain  # the errors of cells need no draws


def test_whole_weights_repeat_rows_in_the_curve():
    rng = np.random.default_rng(0)
    s, z = rng.integers(0, 3, 200), rng.normal(size=200)
    w = rng.integers(0, 4, 200)
    weighted, repeated = curve(z, s, sample_weight=w), curve(np.repeat(z, w), np.repeat(s, w))
    assert weighted.mean == pytest.approx(repeated.mean)
    assert weighted.mass == pytest.approx(repeated.mass)
    assert weighted.overall == pytest.approx(repeated.overall)
    # Repeated rows tell nothing new: the band must not shrink as if they did.
    assert weighted.high[0] - weighted.low[0] > 1.2 * (repeated.high[0] - repeated.low[0])


def test_few_rows_and_few_groups_claim_little():
    """The variance of all rows has no more degrees of freedom than there are rows."""
    wrong = 0
    for seed in range(100):
        z, s = np.random.default_rng(seed).normal(size=(2, 8))
        found = curve(z, s, random_state=seed)
        wrong += any(not low <= 0.0 <= high for low, high in zip(found.low, found.high, strict=True))
    assert wrong <= 14
    with pytest.raises(ValueError, match="'groups' must be at least 20"):
        curve(*pair(300), groups=np.arange(300) % 5)


def test_single_values_beside_ranges_are_counted():
    rng = np.random.default_rng(0)
    s = np.where(rng.random(300) < 0.9, 0.0, rng.exponential(size=300))
    assert curve(rng.normal(size=300), s).target == (
        "the mean score within 2 ranges of s (and at 1 single value), of about 6.3 % of the rows each"
    )


def test_a_constant_score_has_a_band_of_no_width():
    result = curve(np.ones(100), np.arange(100) % 4)
    assert result.low == result.high == (1.0,) * 4


def test_a_curve_along_several_columns_is_an_error():
    z, s = pair(2_000)
    with pytest.raises(ValueError, match="'s' must be one column"):
        curve(z, np.column_stack((s, s)))
