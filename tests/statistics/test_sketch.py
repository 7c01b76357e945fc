"""How close a sketch comes to HSIC of its kernels, and whether it knows; its stored rows and its groups."""

import numpy as np
import pytest
import torch
from scipy import stats

from frhsic.dependence import HSIC
from frhsic.inference import confidence_interval, independence_test
from frhsic.inference._sketch_intervals import jackknife_error
from frhsic.kernels import Gaussian
from frhsic.sketching import HSICSketch
from frhsic.sketching import _rows as stored_rows
from frhsic.sketching._rows import groups_of, row_numbers

D = torch.float64


def law(name, n, d, seed):
    g = torch.Generator().manual_seed(seed)
    s = torch.randn(n, dtype=D, generator=g)
    z = torch.randn(n, d, dtype=D, generator=g)
    if name == "linear":
        z[:, 0] = 0.7 * s + 0.7 * z[:, 0]
    elif name == "u-shaped":
        z[:, 0] = s.square() + 0.5 * z[:, 0]
    else:
        z = z * (1.0 + 0.8 * torch.tanh(s))[:, None]
    return z, s


def relative_errors(name, d, draws=12, n=1_000):
    errors = []
    for seed in range(draws):
        z, s = law(name, n, d, seed)
        exact = HSIC(estimator="unbiased").calibrate(z, s)
        sketch = HSICSketch(exact.kernel_z, exact.kernel_s, random_state=seed).update(z, s)
        errors.append(sketch.value() / exact(z, s).item() - 1.0)
    return np.array(errors)


@pytest.mark.parametrize("name", ["linear", "u-shaped", "heteroscedastic"])
def test_eight_columns_err_by_less_than_four_percent(name):
    errors = relative_errors(name, 8)
    assert np.sqrt((errors**2).mean()) < 0.025
    assert np.abs(errors).max() > 1e-4  # and they do err


@pytest.mark.parametrize("name", ["linear", "u-shaped", "heteroscedastic"])
def test_one_column_errs_by_less_than_a_millionth(name):
    assert np.abs(relative_errors(name, 1, draws=4)).max() < 1e-6


def test_the_estimated_error_of_features_covers_the_true_one(monkeypatch):
    monkeypatch.setattr(stored_rows, "STORED", 400)
    covered, halved = [], []
    for seed in range(40):
        z, s = law(("linear", "u-shaped")[seed % 2], 1_600, 4, seed)
        measure = HSIC(Gaussian(2.0), Gaussian(1.0), estimator="unbiased")
        sketch = HSICSketch(measure.kernel_z, measure.kernel_s, n_features=(32, 32), random_state=seed)
        error = sketch.update(z, s).error()
        true = sketch.value() - measure(z, s).item()
        low, high = error.interval(0.95)
        covered.append(low <= true <= high)
        halved.append((abs(true - error.error), abs(true)))
    assert np.mean(covered) >= stats.binom.ppf(0.001, 40, 0.95) / 40
    left, was = np.sqrt((np.array(halved) ** 2).mean(axis=0))
    assert left < 0.6 * was  # what is left once it is taken off


def test_rows_of_equal_content_are_stored_one_by_one():
    # Two scores and three ages: six distinct rows, of which a choice by content would take some whole.
    g = torch.Generator().manual_seed(0)
    z = (torch.rand(60_000, generator=g) < 0.3).double()
    s = torch.randint(0, 3, (60_000,), generator=g).double()
    sketch = HSICSketch(Gaussian(1.0), Gaussian(1.0)).update(z, s)
    stored = sketch.stored
    assert len(stored.z) == 5_000
    cell = 3 * stored.z[:, 0] + stored.s.values[:, 0]
    counts = torch.bincount(cell.long(), minlength=6).numpy()
    expected = torch.bincount((3 * z + s).long(), minlength=6).numpy() / 12.0
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    by_group = torch.zeros((20, 6), dtype=torch.int64)
    group = groups_of(torch.from_numpy(row_numbers(np.arange(60_000))), 20)
    by_group.view(-1).index_add_(0, group * 6 + (3 * z + s).long(), torch.ones(60_000, dtype=torch.int64))
    assert stats.chi2_contingency(by_group.numpy()).pvalue > 1e-3


def test_numbers_of_rows_look_uniform():
    for ids in (np.arange(40_000), np.arange(40_000) * 4_096, -np.arange(40_000) * 977):
        numbers = row_numbers(ids)
        assert numbers.min() >= 0
        assert stats.kstest(numbers / 2.0**63, "uniform").pvalue > 1e-4
        groups = groups_of(torch.from_numpy(numbers), 20)
        assert stats.chisquare(torch.bincount(groups).numpy()).pvalue > 1e-4
        # The stored rows have small numbers and yet come from all groups.
        small = groups[torch.from_numpy(numbers).argsort()[:5_000]]
        assert stats.chisquare(torch.bincount(small, minlength=20).numpy()).pvalue > 1e-4


def hsic(rho):
    """HSIC of normal pairs of unit variance, both kernels of bandwidth one."""
    return (9 - 4 * rho**2) ** -0.5 + 9**-0.5 - 2 * (9 - rho**2) ** -0.5


def pair(rho, n, seed, d=1):
    """Normal z and s of unit variance, the first of d columns correlated with s."""
    rng = np.random.default_rng([seed, int(1_000 * rho), n, d])
    s, z = rng.normal(size=n), rng.normal(size=(n, d))
    z[:, 0] = rho * s + np.sqrt(1 - rho**2) * z[:, 0]
    return z, s, 0.2 + rng.random(n)


# Columns of z, stored rows, and whether rows have weights. Of 300 stored rows half are drawn.
NULL = {
    "score": (1, 5_000, False),
    "wide, from stored rows": (4, 150, False),
    "weighted, from stored rows": (1, 150, True),
}


@pytest.mark.parametrize("name", NULL)
def test_the_test_of_a_sketch_has_its_level_and_power(name, monkeypatch):
    d, stored, weighted = NULL[name]
    monkeypatch.setattr(stored_rows, "STORED", stored)
    rejected = {0.0: [], 0.5: []}
    for rho, seed in [(0.0, seed) for seed in range(300)] + [(0.5, seed) for seed in range(10)]:
        z, s, w = pair(rho, 300, seed, d)
        sketch = HSICSketch(Gaussian(d**0.5), Gaussian(1.0), n_features=(64, 32))
        sketch.update(z, s, w if weighted else None)
        result = independence_test(sketch, n_permutations=199, random_state=seed)
        tests = [result] if weighted else [result, independence_test(sketch, method="gamma")]
        rejected[rho].append([test.pvalue <= 0.05 for test in tests])
    low, high = stats.binom.ppf([1e-3, 1 - 1e-3], 300, 0.05) / 300
    for share in np.mean(rejected[0.0], axis=0):
        assert low <= share <= high
    assert np.mean(rejected[0.5]) == 1


# Correlation, columns of z, stored rows, features; seen with 120 samples: 0.94 to 1.
COVERED = {
    "independence": (0.0, 1, 5_000, (64, 64)),
    "near": (0.2, 1, 5_000, (64, 64)),
    "away": (0.6, 1, 5_000, (64, 64)),
    "away, with coarse features": (0.6, 3, 200, (24, 24)),
}


@pytest.mark.parametrize("name", COVERED)
def test_intervals_of_a_sketch_cover_the_value_of_its_kernels(name, monkeypatch):
    rho, d, stored, n_features = COVERED[name]
    monkeypatch.setattr(stored_rows, "STORED", stored)
    own = 5.0 ** (-d / 2) + 9.0 ** (-d / 2) - 2 * 8.0 ** (-d / 2)  # HSIC of z with itself
    truth = {False: hsic(rho) * 3.0 ** ((1 - d) / 2)}
    truth[True] = truth[False] / np.sqrt(own * hsic(1.0))
    covered, off = [], []
    for seed in range(40):
        z, s, _ = pair(rho, 400, seed, d)
        sketch = HSICSketch(Gaussian(1.0), Gaussian(1.0), n_features=n_features, random_state=seed)
        sketch.update(z, s)
        for normalized, value in truth.items():
            interval = confidence_interval(
                sketch, dependence=HSIC(normalized=normalized), n_draws=199, random_state=seed, chance=False
            )
            covered.append(interval.low <= value <= interval.high)
            off.append((interval.high - interval.low) / max(value, 1e-9))
    # The two forms stand or fall together: as many samples as there are pairs.
    assert np.mean(covered) >= stats.binom.ppf(1e-3, 40, 0.95) / 40
    if rho == 0.6:
        assert np.mean(off) < 1.2  # and they say something


def test_the_jackknife_over_groups_has_the_variance_of_the_value():
    values, errors = [], []
    for seed in range(60):
        z, s = law("linear", 800, 1, seed)
        sketch = HSICSketch(Gaussian(1.0), Gaussian(1.0)).update(z, s)
        values.append(sketch.value())
        without = [sketch.without(group).value() for group in range(20)]
        errors.append(jackknife_error(values[-1], without, sketch.group_shares))
    ratio = np.mean(np.square(errors)) / np.var(values, ddof=1)
    assert 0.6 < ratio < 1.7  # a variance of sixty values has a standard error of 18 %
