"""The interval and the equivalence test of the gap of a score hold what they promise."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from frhsic.dependence import ScoreGap
from frhsic.inference import confidence_interval, equivalence_test

VALUES, SHARES = np.arange(1.0, 6.0), np.array([0.5, 0.25, 0.15, 0.07, 0.03])
PLACE = (VALUES - 1.88) / 1.08
SCORES = {
    "independent": (0.0 * PLACE, 1.0 + 0.0 * PLACE),
    "shifted": (0.2 * PLACE, 1.0 + 0.0 * PLACE),
    "spread": (0.0 * PLACE, np.exp(0.3 * PLACE)),
}


def truth(kind):
    """The gap by its definition, on a fine grid of cut-offs."""
    shift, scale = SCORES[kind]
    x = norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    laws = norm.cdf((x - shift[:, None]) / scale[:, None])
    return float(SHARES @ np.abs(laws - SHARES @ laws).mean(axis=1))


def draw(kind, n, seed):
    rng = np.random.default_rng(seed)
    level = rng.choice(5, n, p=SHARES)
    shift, scale = SCORES[kind]
    return norm.cdf(shift[level] + scale[level] * rng.normal(size=n)), VALUES[level]


@pytest.mark.parametrize("n", [300, 2_000])
@pytest.mark.parametrize("kind", SCORES)
def test_the_interval_covers_the_gap_of_the_population(kind, n):
    draws, target = 100, truth(kind)
    missed = 0
    for seed in range(draws):
        z, s = draw(kind, n, seed)
        found = confidence_interval(z, s, dependence=ScoreGap(), n_draws=299, random_state=seed, chance=False)
        missed += not found.low <= target + 1e-12 <= found.high + 2e-12
    assert missed <= binom.ppf(0.999, draws, 0.05)


def test_an_interval_of_many_rows_is_short_and_away_from_zero():
    z, s = draw("spread", 20_000, 0)
    found = confidence_interval(z, s, dependence=ScoreGap(), random_state=0, chance=False)
    assert 0.5 * truth("spread") < found.low
    assert found.high < 1.5 * truth("spread")


def test_a_gap_of_the_tolerance_is_seldom_called_below_it():
    draws, target = 100, truth("shifted")
    below = 0
    for seed in range(draws):
        z, s = draw("shifted", 1_000, seed)
        result = equivalence_test(
            z, s, tolerance=target, dependence=ScoreGap(), n_draws=299, random_state=seed
        )
        below += result.below
    assert below <= binom.ppf(0.999, draws, 0.05)


def test_a_small_gap_is_shown_to_be_below_a_tolerance_with_enough_rows():
    z, s = draw("independent", 20_000, 0)
    assert equivalence_test(z, s, tolerance=0.03, dependence=ScoreGap(), n_draws=999, random_state=0).below
