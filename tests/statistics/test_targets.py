"""GDP and the curve are about what their sentence names, on laws of S that are no Gaussians."""

import numpy as np
import pytest
from scipy import stats

from frhsic import audit
from frhsic.dependence import GDP
from frhsic.inference import conditional_curve, confidence_interval, equivalence_test
from frhsic.table import ScoreTable


def least(draws, rate=0.95, alpha=1e-3):
    """Return the successes that a rate falls below with probability alpha only."""
    return int(stats.binom.ppf(alpha, draws, rate))


@pytest.mark.parametrize("n", [1_000, 20_000])
def test_gdp_of_the_rank_of_income_is_a_quarter(n):
    """It was 7.0 points at n = 1,000 and 2.7 at 20,000, where the truth is 25."""
    income = np.random.default_rng(0).lognormal(size=n)
    rank = np.argsort(np.argsort(income)) / n
    found = confidence_interval(rank, {"income": income}, dependence=GDP(), random_state=0, chance=False)
    assert found.low < 0.25 < found.high
    assert found.high - found.low < 1.5 / np.sqrt(n)
    table = ScoreTable.from_rows(rank, income)
    counted = confidence_interval(table, dependence=GDP(), random_state=0, chance=False)
    assert counted.low < 0.25 < counted.high
    if n == 1_000:
        found = audit(rank, sensitive_features={"income": income}, random_state=0)
        assert "by 25.0 percentage points on average" in str(found)


def test_a_step_at_65_has_the_right_signs_and_lies_in_the_band():
    """Some sign was wrong in 40 of 40 samples, and the band never held the curve."""
    draws, held, wrong = 40, 0, 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        age = rng.integers(18, 91, 5_000)
        score = 0.3 + 0.2 * (age >= 65) + 0.2 * rng.normal(size=5_000)
        found = conditional_curve(score, {"age": age}, n_draws=299, random_state=seed)
        assert found.target == "the true curve, value by value"
        points, low, high = (np.array(x) for x in (found.points, found.low, found.high))
        truth = 0.3 + 0.2 * (points >= 65)
        held += bool(((low <= truth) & (truth <= high)).all())
        overall = 0.3 + 0.2 * 26 / 73
        above, below = low > found.overall, high < found.overall
        wrong += bool(((above & (truth < overall)) | (below & (truth > overall))).any())
    assert held >= least(draws)
    assert wrong <= draws - least(draws)


@pytest.mark.parametrize("law", ["uniform", "lognormal"])
def test_a_step_along_a_continuous_s_lies_in_the_band_from_5000_rows_on(law):
    draws, held = 20, 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        s = rng.random(5_000) if law == "uniform" else rng.lognormal(size=5_000)
        step = 0.7 if law == "uniform" else 2.0
        score = 0.3 + 0.2 * (s > step) + 0.2 * rng.normal(size=5_000)
        found = conditional_curve(score, {"s": s}, n_draws=299, random_state=seed)
        assert found.target.startswith("the true curve between 34 ranges of s")
        inner = np.sort(s)[200:-200]
        cell = np.searchsorted(found.stop[:-1], inner)
        truth = 0.3 + 0.2 * (inner > step)
        held += bool(((np.array(found.low)[cell] <= truth) & (truth <= np.array(found.high)[cell])).all())
    assert held >= least(draws)


def test_one_income_of_a_billion_changes_nothing_for_the_rest():
    rng = np.random.default_rng(0)
    income = rng.lognormal(size=3_000)
    score = 1.0 / (1.0 + income) + 0.1 * rng.normal(size=3_000)
    far = np.where(income == income.max(), 1e9, income)
    one, two = (confidence_interval(score, s, dependence=GDP(), random_state=0) for s in (income, far))
    # Borders of the ranges of a table are others: some rows of neighbouring incomes change places.
    assert (one.low, one.estimate, one.high) == pytest.approx((two.low, two.estimate, two.high), rel=5e-3)
    curves = [conditional_curve(score, s, random_state=0) for s in (income, far)]
    assert curves[0].mean == curves[1].mean
    assert curves[0].points == curves[1].points


def score_and_truth(law, rng, age):
    """Return scores of a law, and their mean at each of fifteen ages."""
    n, same = len(age), np.ones(15)
    if law == "log-normal scores":
        return rng.lognormal(sigma=1.5, size=n), np.exp(1.125) * same
    if law == "normal but for one log-normal age":
        skewed = (rng.lognormal(size=n) - np.exp(0.5)) / np.sqrt(np.exp(2) - np.exp(1))
        return np.where(age == 7, skewed, rng.normal(size=n)), 0.0 * same
    if law == "outcomes less their chances":
        chance = 1.0 / (1.0 + np.exp(4.5 - 1.5 * rng.normal(size=n)))
        return (rng.random(n) < chance) - chance, 0.0 * same
    rate = np.where(np.arange(15) % 3, 0.003, 0.1) if law == "events of .003 and .1" else 0.01 * same
    rare = rng.random(n) < rate[age]
    return (~rare, 1.0 - rate) if law == "rows without an event of .01" else (rare, rate)


@pytest.mark.parametrize(
    "law",
    [
        "events of .01",
        "rows without an event of .01",
        "events of .003 and .1",
        "log-normal scores",
        "normal but for one log-normal age",
        "outcomes less their chances",
    ],
)
@pytest.mark.parametrize("n", [500, 6_000])
def test_the_band_of_rare_or_skewed_scores_holds(law, n):
    """Of bands from the variance at each age alone 18 to 27 of 40 held at n = 6,000, none at 500."""
    draws, held = 40, 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        age = rng.integers(0, 15, n)
        score, truth = score_and_truth(law, rng, age)
        found = conditional_curve(score.astype(float), age)
        held += bool(((found.low <= truth) & (truth <= found.high)).all())
    assert held >= least(draws)


@pytest.mark.parametrize(("n", "longest"), [(500, 0.9), (6_000, 0.85)])
def test_the_band_of_skewed_scores_is_shorter_than_one_of_the_pooled_variance(n, longest):
    ratios = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        age, score = rng.integers(0, 15, n), rng.lognormal(sigma=1.5, size=n)
        found = conditional_curve(score, age)
        pooled = stats.norm.isf(0.5 * (1.0 - 0.95 ** (1 / 15))) * score.std() / np.sqrt(np.bincount(age))
        ratios.append(np.mean(np.subtract(found.high, found.low)) / (2.0 * pooled.mean()))
    assert np.mean(ratios) < longest


def test_the_mean_gap_of_rare_independent_events_is_not_shown_to_be_above_zero():
    """It was in 18 of 40."""
    draws, above = 40, 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        age = rng.integers(0, 15, 6_000)
        score = (rng.random(6_000) < 0.01).astype(float)
        options = {"n_draws": 199, "random_state": seed, "chance": False}
        above += confidence_interval(score, age, dependence=GDP(), **options).low > 0.0
    assert above <= draws - least(draws)


def test_the_band_of_scores_that_are_neither_rare_nor_skewed_is_that_of_their_own_variance():
    rng = np.random.default_rng(0)
    age = rng.integers(0, 15, 6_000)
    for score in (rng.normal(size=6_000) * np.exp(age / 7.0), (rng.random(6_000) < 0.3).astype(float)):
        found = conditional_curve(score, age, random_state=0)
        own = [score[age == a].std(ddof=1) / np.sqrt((age == a).sum()) for a in range(15)]
        reach = 0.5 * np.subtract(found.high, found.low) / own
        assert np.median(reach) / reach.min() < 1.005
        assert reach.max() / reach.min() < 1.1  # of one age of 15 the skewness is not small by chance
        assert 2.8 < reach.min() < 3.1


def test_what_the_target_is_depends_on_s_and_n_only():
    rng = np.random.default_rng(0)
    for n in (1_000, 6_000):
        s = rng.lognormal(size=n)
        targets = {
            conditional_curve(f, s, n_draws=19, random_state=0).target
            for f in (rng.normal(size=n), (s > 2.0).astype(float), s)
        }
        assert len(targets) == 1


def clustered(seed, people, rows, size=0.0):
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), rows)
    s = rng.random(people)[person]
    return (
        size * (s - 0.5) + (0.3 * rng.normal(size=people))[person] + 0.05 * rng.normal(size=len(s)),
        s,
        person,
    )


@pytest.mark.parametrize("size", [0.0, 0.5])
def test_rows_of_one_person_do_not_count_as_many(size):
    """Each of 200 people has five rows: without groups bands and intervals are far too short."""
    draws = 60
    held = {"grouped": 0, "alone": 0}
    low = 0
    for seed in range(draws):
        score, s, person = clustered(seed, 200, 5, size)
        for name, groups in (("grouped", person), ("alone", None)):
            found = conditional_curve(score, s, n_draws=199, random_state=seed, groups=groups)
            # The mean of a range of a uniform s is that of its middle.
            start, stop = np.array(found.start), np.array(found.stop)
            start[0], stop[-1] = 0.0, 1.0
            truth = size * (0.5 * (start + stop) - 0.5)
            inside = (np.array(found.mean_low) <= truth) & (truth <= np.array(found.mean_high))
            held[name] += bool(inside.all())
        options = {"n_draws": 199, "random_state": seed, "groups": person}
        interval = confidence_interval(score, s, dependence=GDP(), **options)
        assert interval.n == 200
        assert interval.chance is not None
        low += interval.low <= 0.25 * size <= interval.high
    assert held["grouped"] >= least(draws)
    assert held["alone"] < least(draws)
    assert low >= least(draws)


def test_groups_count_in_equivalence_tests_of_gdp():
    score, s, person = clustered(0, 300, 10)
    options = {"dependence": GDP(), "random_state": 0, "n_draws": 999, "groups": person}
    found = equivalence_test(score, s, tolerance=0.06, **options)
    assert found.n == 300
    assert found.upper == confidence_interval(score, s, confidence_level=0.9, **options).high
