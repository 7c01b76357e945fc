"""How often assert_gap_below passes where the gap of the population is the limit."""

import numpy as np
import pytest
from scipy.stats import binom

from frhsic.testing import assert_gap_below

REPEATS = 100
ALPHA = 0.05
# Ages of equal shares and the chance of a score of one at each: the gap is the mean of |p - mean p|.
RATES = np.array([0.2, 0.3, 0.5, 0.6])
GAP = float(np.abs(RATES - RATES.mean()).mean())


def draw(n, seed):
    """Scores of zero and one, for which the gap of the score is that of their means."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 4, n)
    return (rng.random(n) < RATES[age]).astype(float), 20.0 + 10.0 * age


def count_passed(limit, n, on, repeats=REPEATS):
    passed = 0
    for seed in range(repeats):
        scores, age = draw(n, seed)
        try:
            assert_gap_below(scores, {"age": age}, limit, on=on, random_state=seed)
        except AssertionError:
            continue
        passed += 1
    return passed


@pytest.mark.parametrize("n", [300, 1_500])
def test_with_the_gap_at_the_limit_the_upper_end_passes_seldom(n):
    assert pytest.approx(0.15) == GAP
    assert count_passed(GAP, n, "upper") <= binom.ppf(0.999, REPEATS, ALPHA)


def test_with_the_gap_at_the_limit_the_lower_end_fails_seldom():
    assert REPEATS - count_passed(GAP, 300, "lower") <= binom.ppf(0.999, REPEATS, ALPHA)


def test_the_estimate_decides_by_chance_and_a_wide_limit_is_shown_to_be_kept():
    # What the two tests above would not see: an assertion that always fails, or never.
    assert 10 <= count_passed(GAP, 300, "estimate", repeats=40) <= 30
    assert count_passed(GAP + 0.1, 1_500, "upper", repeats=40) >= 36
    assert count_passed(GAP - 0.1, 1_500, "lower", repeats=40) <= 4
