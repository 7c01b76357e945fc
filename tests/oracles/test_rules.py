"""The selection rules against their algorithms written out, and what they refuse."""

import dataclasses
import math

import numpy as np
import pytest

from frhsic.inference._results import EquivalenceResult, TestResult
from frhsic.selection import (
    Point,
    best_within_limit,
    first_not_rejected,
    knee,
    last_equivalent,
    lowest_dependence,
    lowest_dependence_within,
    matched_point,
    pareto_front,
)


def point(penalty_weight, p, dependence=0.01, tolerance=0.05, performance=0.8):
    return Point(
        penalty_weight,
        performance,
        dependence,
        test=TestResult(dependence, p, "permutation", "HSIC", ("age",), 500, True),
        equivalence=EquivalenceResult(
            dependence, tolerance, p, 0.04, 0.05, "HSIC", "fixed kernels", "normal", ("age",), 500
        ),
    )


def sweeps(seed, count=300):
    """Random sweeps of 1 to 7 models in random order, with p-values and dependences about the thresholds."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = rng.integers(1, 8)
        weights = rng.permutation(np.geomspace(0.01, 100.0, size))
        p = rng.choice([0.001, 0.04, 0.05, 0.06, 0.3], size=size)
        dependences = rng.choice([0.0005, 0.001, 0.002, 0.05], size=size)
        yield [point(*values) for values in zip(weights, p, dependences, strict=True)]


def published_rule(points, alpha, negligible):
    """The paper's algorithm "HSIC-test-based lambda selection", line by line."""
    grid = sorted(point.penalty_weight for point in points)
    for lam in grid:
        for index, point in enumerate(points):
            if point.penalty_weight == lam:
                rejected = point.test.pvalue <= alpha
                if not rejected or (negligible is not None and point.dependence < negligible):
                    return index
    return [point.penalty_weight for point in points].index(grid[-1])


def fixed_sequence(points, alpha):
    """The length of the run of passes from the strongest on, then its last member."""
    ranked = sorted(enumerate(points), key=lambda pair: pair[1].penalty_weight)
    passes = [point.equivalence.pvalue <= alpha for _, point in ranked][::-1]
    run = passes.index(False) if False in passes else len(passes)
    return ranked[::-1][run - 1][0] if run else None


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("negligible", [None, 0.001, 0.01])
def test_first_not_rejected_is_the_published_algorithm(alpha, negligible):
    seen = set()
    for points in sweeps(0):
        chosen = first_not_rejected(points, alpha=alpha, negligible=negligible)
        assert chosen == published_rule(points, alpha, negligible)
        seen.add(sorted(p.penalty_weight for p in points).index(points[chosen].penalty_weight))
    assert len(seen) > 2


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_last_equivalent_is_the_fixed_sequence(alpha):
    seen = set()
    for points in sweeps(1):
        chosen = last_equivalent(points, alpha=alpha)
        assert chosen == fixed_sequence(points, alpha)
        seen.add(
            None if chosen is None else sum(p.penalty_weight > points[chosen].penalty_weight for p in points)
        )
    assert None in seen
    assert len(seen) > 3


def test_the_order_of_the_points_does_not_matter():
    rng = np.random.default_rng(2)
    for points in sweeps(3, count=100):
        shuffled = [points[i] for i in rng.permutation(len(points))]
        assert points[first_not_rejected(points)] is shuffled[first_not_rejected(shuffled)]
        one, other = last_equivalent(points), last_equivalent(shuffled)
        assert (one is None) == (other is None)
        assert one is None or points[one] is shuffled[other]


def test_equal_weights_are_taken_as_given():
    """Both rules stop at the first of two models of one penalty weight, whatever their p-values."""
    twins = [point(1.0, 0.9), point(1.0, 0.01)]
    assert first_not_rejected(twins) == 0
    assert first_not_rejected(twins[::-1]) == 1
    assert last_equivalent(twins) is None
    assert last_equivalent(twins[::-1]) == 0


def test_rules_agree_on_no_more_than_their_names():
    """A sweep where independence is never rejected and no equivalence is shown, and the reverse."""
    silent = [point(lam, 0.5) for lam in (1.0, 10.0)]
    assert (first_not_rejected(silent), last_equivalent(silent)) == (0, None)
    loud = [point(lam, 0.001) for lam in (1.0, 10.0)]
    assert (first_not_rejected(loud), last_equivalent(loud)) == (1, 0)


def test_thresholds_are_those_of_the_text():
    """A p-value equal to alpha rejects; a dependence equal to 'negligible' is not below it."""
    at = [point(1.0, 0.05, dependence=0.001), point(2.0, 0.001)]
    assert first_not_rejected(at, alpha=0.05) == 1
    assert first_not_rejected(at, alpha=0.05, negligible=0.001) == 1
    assert first_not_rejected(at, alpha=0.05, negligible=0.0011) == 0
    assert last_equivalent([point(1.0, 0.05)], alpha=0.05) == 0


def test_a_missing_p_value_never_passes():
    points = [point(1.0, math.nan), point(2.0, 0.9)]
    assert first_not_rejected(points) == 1
    assert last_equivalent(points[:1]) is None


@pytest.mark.parametrize("rule", [first_not_rejected, last_equivalent])
def test_rules_refuse_an_empty_sweep_and_strange_levels(rule):
    with pytest.raises(ValueError, match=r"'points' must hold at least one model\. Got none\. Train"):
        rule([])
    for alpha in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=r"'alpha' must be between 0 and 1\. Got .*\. The usual"):
            rule([point(1.0, 0.5)], alpha=alpha)


def test_rules_refuse_points_without_the_result_they_need():
    """The first model would decide alone; the lack in a later one is still an error, not a matter of luck."""
    points = [point(2.0, 0.9), point(1.0, 0.9), point(3.0, 0.9)]
    points[2] = dataclasses.replace(points[2], test=None, equivalence=None)
    with pytest.raises(ValueError, match=r"'points' must all have their 'test'\. Got None at index 2\. Make"):
        first_not_rejected(points)
    with pytest.raises(
        ValueError, match=r"their 'equivalence'\. Got None at index 2\. Make a test of equival"
    ):
        last_equivalent(points)


def test_last_equivalent_refuses_several_tolerances():
    points = [point(1.0, 0.01, tolerance=0.05), point(2.0, 0.01, tolerance=0.1)]
    with pytest.raises(ValueError, match=r"'points' must have one tolerance\. Got 0\.05, 0\.1\. Test every"):
        last_equivalent(points)


@pytest.mark.parametrize("negligible", [0.0, -1e-3, math.nan])
def test_first_not_rejected_refuses_a_threshold_that_is_not_positive(negligible):
    with pytest.raises(ValueError, match=r"'negligible' must be a positive number or None\. Got .*\. Leave"):
        first_not_rejected([point(1.0, 0.5)], negligible=negligible)


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_a_penalty_weight_that_cannot_be_sorted_is_an_error(weight):
    with pytest.raises(ValueError, match=r"'penalty_weight' must be a finite number\. Got .*\. Rules sort"):
        point(weight, 0.5)


def test_point_is_frozen_and_goes_to_a_dictionary():
    p = point(1.0, 0.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.penalty_weight = 2.0
    document = p.to_dict()
    assert document["penalty_weight"] == 1.0
    assert document["test"]["pvalue"] == 0.5
    assert "dependence 0.01." in str(p)


def test_points_print_their_budget_or_penalty_weight():
    assert str(Point(0.0, 0.8, 0.1)).startswith("Unconstrained: performance 0.8")
    assert str(Point(3.0, 0.8, 0.1)).startswith("Lam 3: performance 0.8")
    assert str(Point(20.0, 0.8, 0.1, budget=0.05)).startswith("Budget 5 %: performance 0.8")


# ---- rules that look at performance and dependence -------------------------------------------------------


def lattice(seed, count=300):
    """Random sweeps on a coarse lattice, with ties in everything but the penalty weight."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = rng.integers(1, 8)
        values = zip(
            rng.permutation(size).astype(float),
            0.7 + 0.01 * rng.integers(0, 12, size),
            0.01 * rng.integers(0, 9, size),
            strict=True,
        )
        yield [Point(*value) for value in values]


def test_lowest_dependence_is_the_lowest_and_the_better_of_equals():
    for points in lattice(0):
        chosen = points[lowest_dependence(points)]
        assert chosen.dependence == min(p.dependence for p in points)
        assert chosen.performance == max(p.performance for p in points if p.dependence == chosen.dependence)


@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.1])
def test_lowest_dependence_within_is_matched_to_the_weakest_penalty(tolerance):
    moved = 0
    for points in lattice(1):
        weakest = min(points, key=lambda p: p.penalty_weight)
        chosen = lowest_dependence_within(points, tolerance=tolerance)
        assert chosen == matched_point(points, weakest, tolerance=tolerance)
        assert points[chosen].performance >= weakest.performance * (1.0 - tolerance)
        moved += points[chosen] is not weakest
    assert moved > 100


def test_lowest_dependence_within_takes_the_weakest_where_all_others_lose_too_much():
    points = [Point(10.0, 0.7, 0.0), Point(1.0, 0.8, 0.05), Point(0.0, 0.85, 0.1)]
    assert lowest_dependence_within(points) == 2
    assert lowest_dependence_within(points[:2]) == 1
    errors = [Point(0.0, -2.0, 0.1), Point(1.0, -2.02, 0.05), Point(9.0, -2.03, 0.0)]
    assert lowest_dependence_within(errors) == 1


def test_a_knee_by_hand():
    """Scaled: (0, 0), (.2, .5), (.5, .75), (1, 1); .3 above the chord, then .25."""
    points = [Point(0.0, 0.9, 0.10), Point(1.0, 0.85, 0.05), Point(2.0, 0.8, 0.02), Point(3.0, 0.7, 0.0)]
    assert knee(points) == 2
    beaten = Point(4.0, 0.7, 0.2)
    assert knee([beaten, *points]) == 3


def test_the_knee_is_furthest_from_the_chord_in_the_plane():
    """Scaled, what is left of each point after its projection on the chord, negative below it."""
    inner = 0
    for points in lattice(2):
        front = pareto_front(points)
        z = np.array([[points[i].dependence, points[i].performance] for i in front])
        if len(front) > 2:
            z = (z - z[0]) / (z[-1] - z[0])
            chord = np.array([1.0, 1.0]) / np.sqrt(2.0)
            left = z - np.outer(z @ chord, chord)
            height = np.sign(left[:, 1]) * np.linalg.norm(left, axis=1)
            assert height[front.index(knee(points))] == pytest.approx(height.max())
            inner += knee(points) not in (front[0], front[-1])
    assert inner > 20


def test_without_a_knee_the_lower_dependence_is_taken():
    low, middle, high = Point(9.0, 0.70, 0.0), Point(1.0, 0.72, 0.05), Point(0.0, 0.80, 0.1)
    assert knee([high]) == 0
    assert knee([high, low]) == 1
    assert knee([high, middle, low]) == 2  # the middle is below the chord


def test_the_scale_of_either_axis_moves_no_knee():
    for points in lattice(3, count=100):
        scaled = [Point(p.penalty_weight, 64.0 * p.performance - 8.0, 0.25 * p.dependence) for p in points]
        assert knee(scaled) == knee(points)


@pytest.mark.parametrize("rule", [knee, lowest_dependence, lowest_dependence_within])
def test_rules_of_the_front_refuse_what_cannot_be_compared(rule):
    with pytest.raises(ValueError, match=r"'points' must hold at least one model\. Got none\. Train"):
        rule([])
    with pytest.raises(ValueError, match=r"'points' must have a finite .* Got nan and 0\.1 at index 1\."):
        rule([Point(0.0, 0.8, 0.1), Point(1.0, math.nan, 0.1)])


def test_the_best_within_the_limit_is_the_best_of_those_that_do_not_miss_it():
    rng = np.random.default_rng(0)
    for _ in range(200):
        size = rng.integers(1, 7)
        performance, dependence = rng.choice([0.7, 0.8, 0.9], size), rng.choice([0.01, 0.02], size)
        missed = rng.random(size) < 0.4
        sweep = [
            Point(float(i), p, d, missed=bool(m))
            for i, (p, d, m) in enumerate(zip(performance, dependence, missed, strict=True))
        ]
        found = best_within_limit(sweep)
        if missed.all():
            assert found is None
            continue
        assert not missed[found]
        better = [
            (p, -d) > (performance[found], -dependence[found])
            for p, d in zip(performance, dependence, strict=True)
        ]
        assert not any(np.array(better) & ~missed)


def test_the_best_within_the_limit_needs_points_that_were_judged_by_one():
    with pytest.raises(ValueError, match=r"'points' must all have their 'missed'\. Got None at index 1"):
        best_within_limit([Point(0.0, 0.8, 0.1, missed=True), Point(1.0, 0.8, 0.1)])
