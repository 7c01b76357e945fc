"""How often the intervals of the AUC along S hold the AUC of every window."""

import numpy as np
import pytest
from scipy import special, stats

from frhsic.inference import auc_curve

DRAWS = 150


# A wide sweep is `python -m benchmarks auc`; here two laws whose AUC is the same in every window.
@pytest.mark.parametrize(("gain", "rows"), [(1.0, 1), (1.0, 4), (3.0, 1)])
def test_all_windows_are_covered_at_95_percent(gain, rows):
    truth = special.ndtr(gain / np.sqrt(2.0))
    held = 0
    for draw in range(DRAWS):
        rng = np.random.default_rng([draw, rows])
        group = np.arange(600) // rows
        age = rng.integers(20, 60, 600)[group]
        y = rng.random(600) < 0.3
        common = np.sqrt(0.5) * rng.normal(size=600)[group]
        score = gain * y + (
            rng.normal(size=600) if rows == 1 else common + np.sqrt(0.5) * rng.normal(size=600)
        )
        found = auc_curve(y, score, {"age": age}, groups=None if rows == 1 else group)
        held += all(low <= truth <= high for low, high in zip(found.low, found.high, strict=True))
    assert stats.binom.cdf(held, DRAWS, 0.95) > 1e-4, held
