"""How often an audit of independent data reports dependence."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from frhsic.auditing import audit

DRAWS = 200


def test_an_audit_of_independent_data_reports_dependence_no_more_often_than_stated() -> None:
    seen = missed = left = 0
    for draw in range(DRAWS):
        rng = np.random.default_rng([20261115, draw])
        age, score = rng.integers(18, 91, 60), rng.random(60)
        found = audit(score, sensitive_features={"age": age}, random_state=draw)
        one = found.attributes[0]
        seen += "The score depends on age" in str(found)
        missed += one.measures["normalized_hsic"].low > 0.0
        curve = one.curve
        assert curve is not None
        left += any(not low <= curve.overall <= high for low, high in zip(curve.low, curve.high, strict=True))
    # Each at level .05, by limits that a true .05 leaves once in a thousand times.
    most = binom.ppf(0.999, DRAWS, 0.05)
    assert seen <= most
    assert seen >= binom.ppf(0.001, DRAWS, 0.05)
    assert missed <= most
    assert left <= most
