"""The band of decisions covers all cut-offs, and the region question keeps its level."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from frhsic.inference import decision_gaps, region_test
from tests.statistics.test_score_gap import SCORES, SHARES, draw

SEEDS = 60


def truth(kind, cutoffs):
    shift, scale = SCORES[kind]
    laws = norm.cdf((norm.ppf(cutoffs) - shift[:, None]) / scale[:, None])
    return SHARES @ np.abs(laws - SHARES @ laws)


@pytest.mark.parametrize("kind", SCORES)
def test_the_band_covers_the_gap_at_all_cutoffs(kind):
    missed = 0
    for seed in range(SEEDS):
        z, s = draw(kind, 600, seed)
        found = decision_gaps(z, s)
        true = truth(kind, np.array(found.cutoffs))
        missed += not ((np.array(found.low) <= true) & (true <= np.array(found.high))).all()
    assert missed <= binom.ppf(0.999, SEEDS, 0.05)


@pytest.mark.parametrize("law", ["exponential", "event"])
def test_the_region_question_keeps_its_level(law):
    draws, yes = 400, {"below": 0, "above": 0}
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        z = rng.exponential(size=300) if law == "exponential" else (rng.random(300) < 0.05).astype(float)
        for side in yes:
            p = region_test(z, np.arange(300) < 30, side=side, n_permutations=99, random_state=seed).pvalue
            yes[side] += p <= 0.05
    assert max(yes.values()) <= binom.ppf(0.999, draws, 0.05)
