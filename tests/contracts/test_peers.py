"""The tables of ``python -m benchmarks peers`` are what they are called."""

import math

import numpy as np
import pytest

from benchmarks.statistics.peers import AGES, LAW, TABLES, Table, shapes, summary


def curve(name):
    """Return the mean score at each age, by quadrature over the noise of the logit."""
    mean, spread = shapes(name)
    noise = np.linspace(-8, 8, 4001)
    density = np.exp(-(noise**2) / 2) / np.exp(-(noise**2) / 2).sum()
    return (1 / (1 + np.exp(-mean[:, None] - spread[:, None] * noise))) @ density


def test_u_shape_has_no_linear_part_and_variance_only_no_mean_part():
    u = AGES - LAW @ AGES
    assert LAW @ (shapes("U-shaped")[0] * u) == pytest.approx(0, abs=1e-9)
    assert abs(LAW @ (curve("U-shaped") * u)) < 0.05 * abs(LAW @ (curve("linear") * u))
    assert np.ptp(curve("U-shaped")) > 0.1
    assert curve("variance only") == pytest.approx(np.full(len(AGES), 0.5))
    assert np.ptp(shapes("variance only")[1]) > 0.5


def test_draws_repeat_and_differ():
    first, again, other = (Table("linear", draw, 500) for draw in (0, 0, 1))
    np.testing.assert_array_equal(first.score, again.score)
    assert (first.score != other.score).all()
    assert set(first.group) == set(range(5))


def test_a_number_that_is_nan_tells_nothing_and_infinities_can_be_written():
    found = {name: [1.0 + k, 2.0 + k] for k, name in enumerate(TABLES)}
    row = summary("x", "decisions", "raw", found | {"U-shaped": [math.nan, 1.0], "linear": [math.inf, 0.5]})
    assert row["told apart"] == {"linear": 0.5, "U-shaped": None, "variance only": 1.0}
    assert row["values"]["U-shaped"] is None
    assert row["values"]["linear"]["most"] == "inf"
