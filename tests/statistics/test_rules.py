"""What the selection rules guarantee over held-out samples, and what they do not."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from frhsic import HSIC
from frhsic.inference._results import EquivalenceResult, TestResult
from frhsic.kernels import Gaussian
from frhsic.selection import Point, first_not_rejected, last_equivalent

ALPHA, TOLERANCE, DRAWS = 0.1, 1.0, 4000
WEIGHTS = np.geomspace(1.0, 1000.0, 8)

# True dependences by rising weight; those at the tolerance make a test as likely to err as it may be.
MONOTONE = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.2, 0.1, 0.0])
UNEVEN = np.array([1.0, 1.0, 1.0, 0.1, 1.0, 0.2, 1.0, 0.0])
NONE_BELOW = np.full(8, 1.0)


def equal(rng):
    """All tests reject together."""
    return np.repeat(rng.uniform(size=(DRAWS, 1)), 8, axis=1)


def independent(rng):
    return rng.uniform(size=(DRAWS, 8))


def disjoint(rng):
    """No two tests reject together while alpha is below 1/8: the most errors that a union can have."""
    return (rng.uniform(size=(DRAWS, 1)) + np.arange(8) / 8.0) % 1.0


def shared_rows(rng):
    """Estimates on the same rows: normal, correlation 0.8."""
    noise = np.sqrt(0.8) * rng.normal(size=(DRAWS, 1)) + np.sqrt(0.2) * rng.normal(size=(DRAWS, 8))
    return norm.cdf(noise)


def sweep(p):
    return [
        Point(
            penalty_weight,
            0.8,
            0.5,
            equivalence=EquivalenceResult(
                0.5, TOLERANCE, pvalue, 0.9, ALPHA, "HSIC", "fixed kernels", "normal", ("age",), 500
            ),
        )
        for penalty_weight, pvalue in zip(WEIGHTS, p, strict=True)
    ]


def weakest_that_passes(points, *, alpha):
    """The naive rule: no stopping at a failure."""
    passing = [index for index, point in enumerate(points) if point.equivalence.pvalue <= alpha]
    return passing[0] if passing else None


def errors(rule, truth, coupling):
    """How often a model of dependence at or above the tolerance is returned."""
    u = coupling(np.random.default_rng(0))
    p = np.where(truth >= TOLERANCE, u, 1e-6)  # models below the tolerance always pass: the worst case
    chosen = [rule(sweep(row), alpha=ALPHA) for row in p]
    return np.mean([index is not None and truth[index] >= TOLERANCE for index in chosen])


TRUTHS = pytest.mark.parametrize(
    "truth", [MONOTONE, UNEVEN, NONE_BELOW], ids=["monotone", "uneven", "none below"]
)


@pytest.mark.parametrize("coupling", [equal, independent, disjoint, shared_rows])
@TRUTHS
def test_last_equivalent_errs_with_probability_at_most_alpha(truth, coupling):
    """Whatever the joint law of the tests and the course of the dependence; unless uneven, it is used up."""
    noise = 4.0 * np.sqrt(ALPHA * (1.0 - ALPHA) / DRAWS)
    share = errors(last_equivalent, truth, coupling)
    assert share <= ALPHA + noise
    assert share >= ALPHA - noise or truth is UNEVEN


@TRUTHS
def test_the_weakest_that_passes_would_err_more_often(truth):
    """The same simulation with the naive rule: so the test above can fail."""
    assert errors(weakest_that_passes, truth, independent) > 2.0 * ALPHA
    assert errors(weakest_that_passes, truth, disjoint) > 2.5 * ALPHA
    assert errors(weakest_that_passes, truth, shared_rows) > 1.4 * ALPHA


def test_last_equivalent_errs_when_the_order_is_made_from_the_same_rows():
    """The order must be fixed beforehand: sorted by their p-values, the tests' level no longer holds."""
    rng = np.random.default_rng(1)
    chosen = [last_equivalent(sweep(np.sort(row)[::-1]), alpha=ALPHA) for row in independent(rng)]
    assert np.mean([index is not None for index in chosen]) > 4.0 * ALPHA


def test_last_equivalent_finds_the_weakest_good_model_with_enough_rows():
    """Power, on normal estimates that share their rows: with many rows it stops where the truth does."""
    rng = np.random.default_rng(2)
    truth = np.array([3.0, 2.0, 1.5, 0.7, 0.5, 0.3, 0.2, 0.1])
    found = []
    for n in (30, 3000):
        noise = np.sqrt(0.8) * rng.normal(size=(500, 1)) + np.sqrt(0.2) * rng.normal(size=(500, 8))
        p = norm.cdf(np.sqrt(n) * (truth - TOLERANCE) + 3.0 * noise, scale=3.0)
        chosen = [last_equivalent(sweep(row), alpha=ALPHA) for row in p]
        assert np.mean([index is not None and truth[index] >= TOLERANCE for index in chosen]) <= ALPHA
        found.append(np.mean([index == 3 for index in chosen]))
    assert found[0] < 0.5
    assert found[1] > 0.95


def dependent_sweep(rng, n):
    """Scores whose correlation with S falls with the penalty weight, 0.5 to 0.2, on the same n rows."""
    s = torch.from_numpy(rng.normal(size=(n, 1)))
    orders = torch.from_numpy(np.stack([rng.permutation(n) for _ in range(99)]))
    measure = HSIC(Gaussian(1.0), Gaussian(1.0))
    points = []
    for weight, rho in ((1.0, 0.5), (10.0, 0.3), (100.0, 0.2)):
        z = rho * s + np.sqrt(1.0 - rho**2) * torch.from_numpy(rng.normal(size=(n, 1)))
        value = measure(z, s).item()
        p = (1.0 + (measure.permuted(z, s, orders) >= value - 1e-12).sum().item()) / 100.0
        test = TestResult(value, p, "permutation", "HSIC", ("age",), n, True, 99)
        points.append(Point(weight, 0.8, value, test=test))
    return points


def test_first_not_rejected_takes_the_most_dependent_model_when_rows_are_few():
    """The heuristic has no guarantee: with 15 rows a correlation of 0.5 is mostly not rejected."""
    rng = np.random.default_rng(3)
    chosen = [first_not_rejected(dependent_sweep(rng, 15)) for _ in range(50)]
    assert np.mean([index == 0 for index in chosen]) > 0.5


def test_first_not_rejected_falls_back_to_a_rejected_model_when_rows_are_many():
    """Every test rejects at n = 1,500; the practical-significance variant then stops where HSIC is small."""
    rng = np.random.default_rng(4)
    for _ in range(3):
        points = dependent_sweep(rng, 1500)
        assert [point.test.pvalue for point in points] == [0.01] * 3
        assert first_not_rejected(points) == 2
        assert points[2].dependence < points[1].dependence < points[0].dependence
        assert first_not_rejected(points, negligible=0.5 * (points[0].dependence + points[1].dependence)) == 1
