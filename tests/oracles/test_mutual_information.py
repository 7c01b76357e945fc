"""The nearest-neighbour estimate of mutual information against loops over pairs, and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy.special import digamma

from frhsic.data import Sensitive
from frhsic.dependence import MutualInformation


def kraskov(x, y, k, categorical=False):
    """Algorithm 1 of Kraskov et al. (2004) by loops."""
    n = len(x)

    def gap(u, i, j):
        return max(abs(a - b) for a, b in zip(u[i], u[j], strict=True))

    def gap_y(i, j):
        return (0.0 if y[i] == y[j] else math.inf) if categorical else gap(y, i, j)

    terms = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        joint = sorted(max(gap(x, i, j), gap_y(i, j)) for j in others)
        reach = joint[k - 1]
        n_x = sum(gap(x, i, j) < reach for j in others)
        n_y = sum(gap_y(i, j) < reach for j in others)
        terms.append(digamma(k) - digamma(n_x + 1) - digamma(n_y + 1))
    return digamma(n) + float(np.mean(terms))


def unit(x):
    return ((x - x.mean(axis=0)) / x.std(axis=0)).tolist()


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize(("d", "q"), [(1, 1), (3, 2)])
def test_mutual_information_is_the_count_of_neighbours_in_both_margins(d, q, k):
    rng = np.random.default_rng(0)
    s = rng.normal(size=(40, q))
    z = rng.normal(size=(40, d)) * [100.0, 0.01, 1.0][:d]
    z[:, :1] += 100 * s[:, :1] ** 2
    actual = MutualInformation(k)(torch.tensor(z), torch.tensor(s)).item()
    assert actual == pytest.approx(kraskov(unit(z), unit(s), k), rel=1e-10)
    actual = MutualInformation(k, standardize=False)(torch.tensor(z), torch.tensor(s)).item()
    assert actual == pytest.approx(kraskov(z.tolist(), s.tolist(), k), rel=1e-10)


@pytest.mark.parametrize("n", [500, 2_000])
def test_independent_integers_have_almost_no_information(n):
    rng = np.random.default_rng(1)
    age = torch.tensor(rng.integers(18, 80, n), dtype=torch.float64)
    hours = torch.tensor(np.where(rng.random(n) < 0.5, 40, rng.integers(1, 80, n)), dtype=torch.float64)
    assert abs(MutualInformation()(hours, age).item()) < 0.06
    assert abs(MutualInformation()(age.roll(1), age).item()) < 0.06


@pytest.mark.parametrize("n", [500, 2_000])
def test_rounding_to_integers_keeps_the_information(n):
    rng = np.random.default_rng(2)
    s = rng.normal(size=n)
    z = 0.6 * s + 0.8 * rng.normal(size=n)
    rounded = MutualInformation()(torch.tensor((15 * z).round()), torch.tensor((15 * s).round())).item()
    assert rounded == pytest.approx(-0.5 * math.log(1 - 0.36), abs=0.08)


def test_a_decision_tells_as_much_about_s_as_its_cells_do():
    rng = np.random.default_rng(3)
    group = rng.integers(0, 2, 4_000)
    decision = np.where(rng.random(4_000) < 0.8, group, 1 - group)
    table = np.array([[np.mean((group == a) & (decision == b)) for a in (0, 1)] for b in (0, 1)])
    expected = (table * np.log(table / table.sum(0) / table.sum(1, keepdims=True))).sum()
    s = Sensitive(torch.tensor(group[:, None], dtype=torch.float64), ("g",), ("categorical",))
    assert MutualInformation()(torch.tensor(decision), s).item() == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("counts", [(14, 14, 14), (20, 3, 19), (18, 1, 23)])
def test_categories_are_far_from_each_other_all_equally(counts):
    rng = np.random.default_rng(2)
    codes = np.repeat([0, 1, 2], counts)
    z = rng.normal(size=(42, 2)) + codes[:, None]
    s = Sensitive(torch.tensor(codes[:, None], dtype=torch.float64), ("c",), ("categorical",))
    expected = kraskov(unit(z), codes.tolist(), 4, categorical=True)
    assert MutualInformation(4)(torch.tensor(z), s).item() == pytest.approx(expected, rel=1e-10)


def test_the_numbering_of_rare_categories_does_not_matter():
    rng = np.random.default_rng(4)
    codes = torch.tensor([0] * 20 + [1] * 3 + [2] * 20 + [3] * 2 + [4] * 20, dtype=torch.float64)
    z = torch.tensor(rng.normal(size=65)) + codes
    renamed = torch.tensor([3.0, 0.0, 4.0, 1.0, 2.0], dtype=torch.float64)[codes.long()]
    first, second = (
        MutualInformation()(z, Sensitive(c[:, None], ("c",), ("categorical",))).item()
        for c in (codes, renamed)
    )
    assert first == pytest.approx(second, rel=1e-10)


@pytest.mark.parametrize(("slope", "intercept"), [(3.0, 0.1), (0.1, 7.0), (7.3, -1000.0)])
def test_the_unit_and_the_origin_of_integers_do_not_matter(slope, intercept):
    rng = np.random.default_rng(5)
    s = torch.tensor(rng.integers(18, 60, 200), dtype=torch.float64)
    z = torch.tensor(rng.integers(0, 9, 200), dtype=torch.float64)
    expected = MutualInformation()(z, s).item()
    assert MutualInformation()(z, slope * s + intercept).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_mutual_information_of_gaussians_is_near_the_closed_form(rho):
    n, repeats = 1_000, 8
    rng = np.random.default_rng(3)
    values = []
    for _ in range(repeats):
        s = rng.normal(size=n)
        z = rho * s + math.sqrt(1 - rho**2) * rng.normal(size=n)
        values.append(MutualInformation()(torch.tensor(z), torch.tensor(s)).item())
    error = np.std(values, ddof=1) / math.sqrt(repeats)
    # Four standard errors, and an allowance of 0.01 nats for the bias of the estimator at this size.
    assert np.mean(values) == pytest.approx(-0.5 * math.log(1 - rho**2), abs=4 * error + 0.01)
