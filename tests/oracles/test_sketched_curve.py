"""Curves and GDP from a sketch against those from the rows themselves."""

import numpy as np
import pytest

from frhsic.dependence import GDP
from frhsic.inference import conditional_curve, confidence_interval
from frhsic.sketching import HSICSketch

N = 4_000


def rows(kind, weighted):
    rng = np.random.default_rng(0)
    s = rng.integers(18, 90, N).astype(float) if kind == "ages" else rng.normal(50.0, 10.0, N)
    score = 1.0 / (1.0 + np.exp(-(((s - 54.0) / 30.0) ** 2) + rng.normal(size=N)))
    return score, s, rng.uniform(0.5, 2.0, N) if weighted else None


@pytest.fixture(params=[False, True], ids=["equal weights", "weights"])
def weighted(request):
    return request.param


def test_at_levels_of_s_the_curve_is_that_of_the_rows(weighted):
    score, s, w = rows("ages", weighted)
    ours = conditional_curve(HSICSketch.like(score, s).update(score, s, w), random_state=0)
    theirs = conditional_curve(score, s, sample_weight=w, random_state=0)
    assert ours.target == theirs.target == "the true curve, value by value"
    assert ours.points == theirs.points
    assert ours.n == N
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.mass, theirs.mass, rtol=1e-12)
    # A sketch does not know the skewness at a place, nor whether weights are related to its scores.
    width = np.subtract(theirs.high, theirs.low)
    assert np.abs(np.subtract(ours.high, theirs.high) / width).max() < (0.05 if weighted else 0.03)


def test_along_a_continuous_s_the_curve_is_that_of_the_rows_on_a_fine_grid(weighted):
    score, s, w = rows("continuous", weighted)
    ours = conditional_curve(HSICSketch.like(score, s).update(score, s, w), random_state=0)
    theirs = conditional_curve(score, s, sample_weight=w, random_state=0)
    assert ours.target == theirs.target
    for name in ("mean", "low", "high"):
        again = np.interp(theirs.points, ours.points, getattr(ours, name))
        width = np.subtract(theirs.high, theirs.low)
        middle = slice(10, -10)  # points of equal mass: the outermost are elsewhere
        assert np.abs((again - getattr(theirs, name)) / width)[middle].max() < 0.1


@pytest.mark.parametrize("kind", ["ages", "continuous"])
def test_gdp_and_its_interval_are_those_of_the_rows(kind, weighted):
    score, s, w = rows(kind, weighted)
    sketch = HSICSketch.like(score, s).update(score, s, w)
    ours = confidence_interval(sketch, dependence=GDP(), random_state=0)
    theirs = confidence_interval(score, s, dependence=GDP(), sample_weight=w, random_state=0)
    # Without counts of decisions the limits are those along s, and the estimate has what chance adds.
    assert ours.estimate == pytest.approx(theirs.plug_in, rel=1e-3 if kind == "ages" else 0.03)
    assert ours.estimate == pytest.approx(sketch.gdp(), rel=1e-12)
    assert ours.low < theirs.estimate < ours.high
    assert ours.chance == pytest.approx(theirs.chance, rel=0.15)


def test_where_outliers_stretch_the_grid_the_stored_rows_speak():
    """One income of 10^9 leaves all others between two places of the grid."""
    score, s, _ = rows("continuous", weighted=False)
    s[0] = 1e9
    sketch = HSICSketch.like(score, s).update(score, s)
    found = confidence_interval(sketch, dependence=GDP(), random_state=0)
    theirs = confidence_interval(score, s, dependence=GDP(), random_state=0)
    assert found.estimate == pytest.approx(theirs.estimate, rel=1e-9)
    assert "4,000 stored rows were used" in str(found)
    curve = conditional_curve(sketch, random_state=0)
    np.testing.assert_allclose(sorted(curve.mean), sorted(conditional_curve(score, s).mean))


def test_a_representation_and_rows_beside_a_sketch_are_refused():
    score, s, w = rows("ages", weighted=True)
    wide = np.column_stack((score, score**2))
    with pytest.raises(ValueError, match="'scores' must be a sketch of one column"):
        conditional_curve(HSICSketch.like(wide, s).update(wide, s))
    with pytest.raises(ValueError, match="'s' must be left out beside a sketch"):
        conditional_curve(HSICSketch.like(score, s).update(score, s), s)
    with pytest.raises(ValueError, match="'sample_weight' must be left out beside a sketch"):
        confidence_interval(HSICSketch.like(score, s).update(score, s), dependence=GDP(), sample_weight=w)
