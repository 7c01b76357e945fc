"""Tests of independence against naive twins: loops, explicit permutations, definitions."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from frhsic.data import Sensitive, to_sensitive
from frhsic.dependence import HSIC, DistanceCovariance
from frhsic.inference import _bootstrap, _gamma, _permutation, holm, independence_test
from frhsic.inference._bootstrap import wild_values
from frhsic.inference._gamma import null_moments
from frhsic.inference._permutation import (
    bandwidth_family,
    limit_values,
    permuted_values,
    rank_pvalue,
    use_features,
)
from frhsic.inference._strata import Stratum
from frhsic.kernels import Delta, Energy, Gaussian, Linear
from frhsic.numerics import _lowrank
from frhsic.numerics._lowrank import complete_map, feature_map, pivoted_factor, thin_factor
from frhsic.table import _pvalues
from tests.helpers import median_distance as median


def gaussian(x, sigma):
    x = np.asarray(x, float).reshape(len(x), -1)
    return np.exp(-((x[:, None] - x[None]) ** 2).sum(axis=2) / (2 * sigma**2))


def delta(x):
    x = np.asarray(x).reshape(len(x), -1)
    return (x[:, None] == x[None]).all(axis=2).astype(float)


def energy(x):
    x = np.asarray(x, float).reshape(len(x), -1)
    norm = np.sqrt((x**2).sum(axis=1))
    return 0.5 * (norm[:, None] + norm[None] - np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=2)))


def linear(x):
    x = np.asarray(x, float).reshape(len(x), -1)
    return x @ x.T


def centred(K, w):
    n = len(K)
    out = np.empty((n, n))
    rows = [sum(w[j] * K[i, j] for j in range(n)) for i in range(n)]
    total = sum(w[i] * rows[i] for i in range(n))
    for i in range(n):
        for j in range(n):
            out[i, j] = K[i, j] - rows[i] - rows[j] + total
    return out


def hsic(K, L, w=None):
    n = len(K)
    w = np.full(n, 1 / n) if w is None else w / w.sum()
    H = np.eye(n) - np.outer(np.ones(n), w)
    return float(w @ ((H @ K @ H.T) * (H @ L @ H.T)) @ w)


def sample(n, d=1, seed=0, slope=0.5):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    z = rng.normal(size=(n, d)) * np.arange(1, d + 1) + slope * s[:, None] ** 2
    return z, s


def orders_of(seed, n, count):
    """The row numbers that a test with this random state pairs with the rows of z, those observed first."""
    generator = torch.Generator().manual_seed(seed)
    return [
        np.arange(n),
        *(torch.randperm(n, generator=generator).numpy() for _ in range(count)),
    ]


KERNELS = {
    "unit diagonals": (lambda x: gaussian(x, 0.8), lambda x: gaussian(x, 1.3), Gaussian(0.8), Gaussian(1.3)),
    "energy": (energy, energy, Energy(), Energy()),
    "linear and a multiple": (linear, lambda x: 2.5 * gaussian(x, 1.0), Linear(), 2.5 * Gaussian(1.0)),
}


def naive_moments(K, L):
    n = len(K)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    w = np.full(n, 1 / n)
    Kc, Lc = centred(K, w), centred(L, w)
    spread = [
        sum(M[i, i] for i in range(n)) / n - sum(M[i, j] for i, j in pairs) / len(pairs) for M in (K, L)
    ]
    squares = sum((Kc[i, j] * Lc[i, j]) ** 2 for i, j in pairs) / len(pairs)
    return (
        sum(Kc[i, j] * Lc[i, j] for i in range(n) for j in range(n)) / n**2,
        spread[0] * spread[1] / n,
        2 * (n - 4) * (n - 5) / (n * (n - 1) * (n - 2) * (n - 3)) * squares,
    )


@pytest.mark.parametrize("whole", [500, 7])  # above, strips of 7 rows
@pytest.mark.parametrize("name", KERNELS)
def test_null_moments_are_those_of_gretton_et_al(name, whole, monkeypatch):
    monkeypatch.setattr(_gamma, "_WHOLE", whole)
    monkeypatch.setattr(_gamma, "_STRIP", 7)
    k, ell, kernel_z, kernel_s = KERNELS[name]
    z, s = sample(23, d=2)
    moments = null_moments(torch.tensor(z), torch.tensor(s)[:, None], kernel_z, kernel_s)
    assert moments == pytest.approx(naive_moments(k(z), ell(s)), rel=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_the_null_mean_is_that_over_all_permutations(name):
    # Over permutations the means of both sides are those of the sample, which costs a factor (n - 1) / n.
    k, ell, kernel_z, kernel_s = KERNELS[name]
    n = 6
    z, s = sample(n)
    K, L = k(z), ell(s)
    values = [hsic(K, L[np.ix_(order, order)]) for order in itertools.permutations(range(n))]
    moments = null_moments(torch.tensor(z), torch.tensor(s)[:, None], kernel_z, kernel_s)
    assert moments.mean * (n - 1) / n == pytest.approx(np.mean(values), rel=1e-9)


def test_null_moments_have_the_mean_and_spread_of_permutations():
    # The variance formula is for large n; at n = 300 it is that of the permutations within a few per cent.
    z, s = sample(300, slope=0.0)
    kernel = Gaussian(1.0)
    generator = torch.Generator().manual_seed(0)
    orders = torch.stack([torch.randperm(300, generator=generator) for _ in range(4_000)])
    values = HSIC(kernel, kernel).permuted(torch.tensor(z), torch.tensor(s), orders)
    moments = null_moments(torch.tensor(z), torch.tensor(s)[:, None], kernel, kernel)
    assert moments.mean == pytest.approx(values.mean().item(), rel=0.03)
    assert moments.variance == pytest.approx(values.var().item(), rel=0.15)


@pytest.mark.parametrize("dependence", [None, HSIC(Gaussian(0.8), Gaussian(1.3)), DistanceCovariance()])
def test_the_gamma_pvalue_is_the_tail_at_the_shared_moments_of_the_levels(dependence):
    z, s = sample(42)
    y = np.array(["a"] * 17 + ["b"] * 25)[np.random.default_rng(1).permutation(42)]
    result = independence_test(z, s, dependence=dependence, method="gamma", given=y)
    statistic = mean = variance = 0.0
    for level, rows in ((label, y == label) for label in ("a", "b")):
        assert level in y
        if dependence is None:
            K, L = gaussian(z[rows], median(z)), gaussian(s[rows], median(s))
        elif isinstance(dependence, HSIC):
            K, L = gaussian(z[rows], 0.8), gaussian(s[rows], 1.3)
        else:  # centred, so that the origin from which norms are measured drops out of the statistic
            K, L = 4 * energy(z[rows] - z.mean(axis=0)), energy(s[rows] - s.mean())
        share = rows.mean()
        moments = naive_moments(K, L)
        statistic += share * moments[0]
        mean += share * moments[1]
        variance += share**2 * moments[2]
    assert result.statistic == pytest.approx(statistic, rel=1e-9)
    assert result.pvalue == pytest.approx(
        stats.gamma(mean**2 / variance, scale=variance / mean).sf(statistic), rel=1e-7
    )
    assert 0.0001 < result.pvalue < 0.9999
    assert not result.exact
    assert result.null == ()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_permutation_pvalue_is_the_share_of_pairings_with_at_least_the_observed_value(seed, weighted):
    n, count = 25, 39
    z, s = sample(n, seed=seed, slope=0.3)
    w = np.exp(0.4 * s) if weighted else None
    K, L = gaussian(z, 0.8), gaussian(s, 1.3)
    values = [hsic(K, L[np.ix_(o, o)], None if w is None else w[o]) for o in orders_of(seed, n, count)]
    result = independence_test(
        z,
        s,
        dependence=HSIC(Gaussian(0.8), Gaussian(1.3)),
        n_permutations=count,
        random_state=seed,
        sample_weight=w,
        weights_of_s=True if weighted else None,
    )
    assert result.statistic == pytest.approx(values[0], rel=1e-9)
    assert result.null == pytest.approx(values[1:], rel=1e-9)
    assert result.pvalue == sum(v >= values[0] for v in values) / (count + 1)
    assert 1 / (count + 1) < result.pvalue < 1
    assert (result.method, result.exact, result.n, result.n_permutations) == ("permutation", True, n, count)


@pytest.mark.parametrize("weighted", [False, True])
def test_given_levels_rows_are_exchanged_within_them_and_values_are_averaged_by_their_mass(weighted):
    n, count, seed = 36, 39, 3
    z, s = sample(n, seed=seed)
    y = np.repeat([2.0, 7.0, 5.0], [16, 8, 12])[np.random.default_rng(2).permutation(n)]
    w = np.exp(0.4 * s) if weighted else np.ones(n)
    generator = torch.Generator().manual_seed(seed)
    values = np.zeros(count + 1)
    for level in (2.0, 5.0, 7.0):
        rows = np.flatnonzero(y == level)
        K, L, here = gaussian(z[rows], 0.8), gaussian(s[rows], 1.3), w[rows]
        orders = [
            np.arange(len(rows)),
            *(torch.randperm(len(rows), generator=generator).numpy() for _ in range(count)),
        ]
        values += w[rows].sum() / w.sum() * np.array([hsic(K, L[np.ix_(o, o)], here[o]) for o in orders])
    result = independence_test(
        z,
        s,
        dependence=HSIC(Gaussian(0.8), Gaussian(1.3)),
        given=y,
        n_permutations=count,
        random_state=seed,
        sample_weight=w if weighted else None,
        weights_of_s=True if weighted else None,
    )
    assert result.statistic == pytest.approx(values[0], rel=1e-9)
    assert result.null == pytest.approx(values[1:], rel=1e-9)
    assert result.pvalue == (values >= values[0]).mean()


def test_small_levels_and_rows_of_no_weight_are_as_if_they_were_not_there():
    n = 40
    z, s = sample(n)
    y = np.array(["few"] * 7 + ["a"] * 15 + ["b"] * 18)
    kept = slice(7, None)
    arguments = {"n_permutations": 39, "random_state": 0}
    for options in ({}, {"dependence": HSIC()}, {"method": "gamma"}):
        whole = independence_test(z, s, given=y, **arguments, **options)
        part = independence_test(z[kept], s[kept], given=y[kept], **arguments, **options)
        assert (whole.statistic, whole.pvalue, whole.null) == (part.statistic, part.pvalue, part.null)
        assert whole.n == 33
        assert part.notes == ()
        assert whole.notes == ("7 rows of labels with fewer than 8 rows were left out.",)
    w = np.where(np.arange(n) < 7, 0.0, 1.0)  # no function of s, yet equal where it counts: still exact
    weighted = independence_test(z, s, sample_weight=w, **arguments)
    plain = independence_test(z[kept], s[kept], **arguments)
    assert weighted.null == pytest.approx(plain.null, rel=1e-9)
    assert (weighted.pvalue, weighted.exact, weighted.n) == (plain.pvalue, True, 33)


def table(z, s, orders):
    """n times the entry (1, 1) of the table of two binary columns less its expectation, in whole numbers."""
    return np.array([abs(len(z) * int((z * s[o]).sum()) - int(z.sum()) * int(s.sum())) for o in orders])


@pytest.mark.parametrize("dependence", [HSIC(Delta(), Delta()), HSIC(), DistanceCovariance()])
@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_pairings_that_tie_in_exact_arithmetic_count_as_ties(dependence, seed):
    # With two binary columns every statistic is an increasing function of one whole number.
    n, count = 40, 199
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, n)
    z = np.where(rng.random(n) < 0.1, s, rng.integers(0, 2, n))
    counts = table(z, s, orders_of(seed, n, count))
    assert 5 < (counts == counts[0]).sum() < count  # or it would say nothing about ties
    for labels in (s, np.array(["no", "yes"])[s]):
        result = independence_test(z, labels, dependence=dependence, n_permutations=count, random_state=seed)
        assert result.pvalue == (counts >= counts[0]).mean()


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_tables_that_tie_in_exact_arithmetic_count_as_ties(seed):
    n, count = 40, 3_999
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 2, n)
    z = np.where(rng.random(n) < 0.1, s, rng.integers(0, 2, n))
    law = stats.hypergeom(n, int(s.sum()), int(z.sum()))
    both = np.arange(n + 1)
    away = np.abs(n * both - int(s.sum()) * int(z.sum()))
    exact = min(1.0, law.pmf(both)[away >= away[int((z * s).sum())]].sum())
    for labels in (s, np.array(["no", "yes"])[s]):
        result = independence_test(z, labels, n_permutations=count, random_state=seed)
        assert result.pvalue == pytest.approx(
            exact, abs=4 * np.sqrt(max(exact * (1 - exact), 0.0) / count) + 1 / count
        )


def test_many_permutations_in_several_chunks_give_the_same_values(monkeypatch):
    z, s = sample(30, d=2)
    y = np.arange(30) % 2
    for w in (None, np.exp(s)):
        arguments = {"given": y, "n_permutations": 50, "random_state": 1, "sample_weight": w}
        arguments |= {"weights_of_s": True if w is not None else None}
        whole = independence_test(z, s, **arguments)
        with monkeypatch.context() as patch:
            patch.setattr(_permutation, "_CHUNK", 100)
            assert independence_test(z, s, **arguments).null == pytest.approx(whole.null, rel=1e-9)


@pytest.mark.parametrize("constant", ["z", "s"])
def test_what_is_constant_within_every_level_has_pvalue_one_and_not_that_of_its_rounding(constant):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    moving, still = rng.normal(size=60), np.sqrt(2.0) * y + 0.1
    z, s = (still, moving) if constant == "z" else (moving, still)
    w = rng.random(60) + 0.1
    for options in (
        {},
        {"dependence": HSIC()},
        {"sample_weight": w},
        {"sample_weight": w, "weights_of_s": True},
    ):
        result = independence_test(z, s, given=y, n_permutations=99, random_state=0, **options)
        assert result.pvalue == 1.0
    strata = [Stratum(torch.tensor(z[:20])[:, None], to_sensitive(s, name="s")[torch.arange(20)], None, 1.0)]
    family, _ = bandwidth_family(torch.tensor(z)[:, None], to_sensitive(s), torch.Generator())
    assert not limit_values(family, strata, 5, torch.Generator()).any()
    if constant == "z":
        assert independence_test(np.full(60, 0.1), s, n_permutations=99, random_state=0).pvalue == 1.0


def whitened(z):
    """Rows whose distances are those of Mahalanobis."""
    z = z - z.mean(axis=0)
    values, vectors = np.linalg.eigh(z.T @ z / len(z))
    return z @ vectors / np.sqrt(values)


FAMILY = [(4.0, 4.0, 0.5), (2.0, 0.5, 0.25), (1.0, 0.25, 0.25)]


@pytest.mark.parametrize(("d", "mixed"), [(3, False), (2, True)])
def test_the_aggregated_test_is_the_rank_of_the_largest_weighted_tail(d, mixed):
    n, count, seed = 40, 59, 5
    z, age = sample(n, d=d, seed=seed)
    sex = np.random.default_rng(9).choice(["f", "m"], n)
    L_of = lambda wide: gaussian(age, wide * median(age)) * (delta(sex) if mixed else 1.0)  # noqa: E731
    scales = [z, whitened(z)]
    orders = orders_of(seed, n, count)
    rows = []
    for x in scales:
        for wide_z, wide_s, weight in FAMILY:
            K, L = gaussian(x, wide_z * median(x)), L_of(wide_s)
            values = np.array([hsic(K, L[np.ix_(o, o)]) for o in orders])
            most = np.delete(values, values.argmax())  # the fit is on all but the largest
            mean, variance = most.mean(), most.var(ddof=1)
            tail = stats.gamma(mean**2 / variance, scale=variance / mean).sf(values)
            rows.append(-np.log(tail) + np.log(weight / len(scales)))
    combined = np.max(rows, axis=0)
    assert len(set(np.argmax(rows, axis=0))) > 1
    s = {"age": age, "sex": sex} if mixed else {"age": age}
    result = independence_test(z, s, n_permutations=count, random_state=seed)
    assert result.statistic == pytest.approx(combined[0], rel=1e-6)
    assert result.null == pytest.approx(combined[1:], rel=1e-6)
    assert result.pvalue == (combined >= combined[0]).mean()
    assert result.measure == f"HSIC aggregated over {len(rows)} pairs of bandwidths"
    assert result.attributes == tuple(s)
    assert result.exact


def test_no_more_than_a_quarter_as_many_columns_as_rows_are_whitened():
    for d, members in ((1, 3), (10, 6), (11, 3)):
        z, s = sample(40, d=d)
        measures, weights = bandwidth_family(torch.tensor(z), to_sensitive(s), torch.Generator())
        assert len(measures) == len(weights) == members
        assert weights.sum().item() == pytest.approx(1.0)
        assert all(m.kernel_z.fixed and m.kernel_s.fixed for m in measures)


def tails(values):
    return torch.from_numpy(_pvalues.tails(values.numpy()))


def test_tails_are_those_of_a_gamma_law_with_the_moments_of_all_but_the_largest():
    rng = np.random.default_rng(0)
    values = rng.gamma(2.0, 3.0, size=(2, 30)) * [[1.0], [1e-6]]
    actual = tails(torch.tensor(values)).numpy()
    for row, expected in zip(actual, values, strict=True):
        most = sorted(expected)[:-1]
        m, v = np.mean(most), np.var(most, ddof=1)
        assert row == pytest.approx(-stats.gamma(m * m / v, scale=v / m).logsf(expected), rel=1e-9)
    assert actual[0] != pytest.approx(actual[1])


def test_tails_are_symmetric_in_the_values_of_a_row():
    values = torch.tensor(np.random.default_rng(0).gamma(2.0, 3.0, size=(3, 30)))
    values[1, 4] = 1e5
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(tails(values[:, order]), tails(values)[:, order], rtol=1e-10, atol=0.0)


def test_tails_of_equal_values_are_nothing_and_one_other_value_is_above_them():
    assert tails(torch.zeros(1, 4, dtype=torch.float64)).tolist() == [[0.0] * 4]
    assert tails(torch.full((1, 4), 0.3, dtype=torch.float64)).tolist() == [[0.0] * 4]
    (row,) = tails(torch.tensor([[1.0, 1.0, 5.0, 1.0]], dtype=torch.float64)).tolist()
    assert row[0] == row[1] == row[3] < row[2] < math.inf


def test_tails_below_the_floats_go_on_growing_evenly():
    null = np.random.default_rng(0).gamma(30.0, 1 / 30.0, 2_000)
    found = np.array(
        [tails(torch.tensor(np.append(null, x))[None])[0, -1].item() for x in np.linspace(10, 60, 101)]
    )
    assert found[0] < 300 < 745 < found[-1]  # exp(-745) is the smallest float
    steps = np.diff(found)
    assert (np.diff(steps) > -1e-6).all()  # convex, so without a jump where the series takes over
    assert steps.max() < 1.1 * steps.min()


@pytest.mark.parametrize("member", [0, 2])
@pytest.mark.parametrize("strength", [20.0, 1e3, 1e9])
def test_what_one_member_sees_is_not_outdone_by_chance_in_the_others(member, strength):
    shares = torch.tensor([[0.5], [0.25], [0.25]], dtype=torch.float64)
    for seed in range(20):
        values = torch.tensor(np.random.default_rng(seed).gamma(5.0, 0.2, size=(3, 100)))
        values[member, 0] = strength
        assert rank_pvalue((tails(values) + shares.log()).amax(dim=0)) == 0.01


def test_a_rank_pvalue_counts_ties_and_the_observed_value():
    assert rank_pvalue(torch.tensor([2.0, 1.0, 3.0, 2.0], dtype=torch.float64)) == 0.75
    assert rank_pvalue(torch.tensor([2.0, 2.0 - 1e-12, 1.0, 1.0], dtype=torch.float64)) == 0.5
    assert rank_pvalue(torch.tensor([2.0, 2.0 - 1e-6, 1.0, 1.0], dtype=torch.float64)) == 0.25
    assert rank_pvalue(torch.tensor([-2.0, -2.0 - 1e-12, -1.0, -3.0], dtype=torch.float64)) == 0.75
    assert rank_pvalue(torch.tensor([math.inf, 2.0, 1.0, 1.0], dtype=torch.float64)) == 0.25
    assert rank_pvalue(torch.zeros(4, dtype=torch.float64)) == 1.0


def strata_of(z, s, w, y):
    parts = [np.flatnonzero(y == level) for level in np.unique(y)]
    s = to_sensitive(s)
    return [
        Stratum(
            torch.tensor(z[rows]),
            s[torch.tensor(rows)],
            None if w is None else torch.tensor(w[rows]),
            len(rows) / len(z) if w is None else w[rows].sum() / w.sum(),
        )
        for rows in parts
    ]


def test_a_wild_draw_multiplies_each_centred_term():
    n, count, seed = 44, 5, 7
    z, s = sample(n)
    rng = np.random.default_rng(3)
    w, y = rng.random(n) + 0.1, rng.integers(0, 2, n)
    measures = [HSIC(Gaussian(0.8), Gaussian(1.3)), HSIC(Gaussian(2.0), Gaussian(0.9))]
    actual = wild_values(measures, strata_of(z, s, w, y), count, torch.Generator().manual_seed(seed)).numpy()
    generator = torch.Generator().manual_seed(seed)
    expected = np.zeros((2, count + 1))
    for level in (0, 1):
        rows = np.flatnonzero(y == level)
        u = w[rows] / w[rows].sum()
        xi = torch.randn((len(rows), count), generator=generator, dtype=torch.float64).numpy()
        xi = np.column_stack((np.ones(len(rows)), xi))  # the statistic itself has ones
        for k, (sigma_z, sigma_s) in enumerate(((0.8, 1.3), (2.0, 0.9))):
            A, B = centred(gaussian(z[rows], sigma_z), u), centred(gaussian(s[rows], sigma_s), u)
            for b in range(count + 1):
                e = u * xi[:, b]
                expected[k, b] += w[rows].sum() / w.sum() * (e @ (A * B) @ e)
    assert actual == pytest.approx(expected, rel=1e-6)


def test_the_wild_bootstrap_begins_with_weighted_hsic_and_ranks_it_among_its_draws():
    n = 60
    z, s = sample(n, slope=0.2)
    w = np.random.default_rng(0).random(n) + 0.1
    result = independence_test(
        z,
        s,
        dependence=HSIC(Gaussian(1.0), Gaussian(1.5)),
        sample_weight=w,
        n_permutations=99,
        random_state=0,
    )
    assert (result.method, result.exact) == ("wild bootstrap", False)
    assert result.statistic == pytest.approx(hsic(gaussian(z, 1.0), gaussian(s, 1.5), w), rel=1e-8)
    assert result.pvalue == (1 + sum(v >= result.statistic for v in result.null)) / 100
    # Distance covariance is 4 HSIC on the energy kernel, of rank n: thin factors are the whole of 30 rows.
    few = slice(0, 30)
    distance = independence_test(
        z[few], s[few], dependence=DistanceCovariance(), sample_weight=w[few], random_state=0
    )
    assert distance.statistic == pytest.approx(4 * hsic(energy(z[few]), energy(s[few]), w[few]), rel=1e-8)


def test_wild_draws_in_chunks_have_the_same_mean_and_spread(monkeypatch):
    z, s = sample(50)
    w = np.random.default_rng(0).random(50) + 0.1
    strata, measures = strata_of(z, s, w, np.zeros(50)), [HSIC(Gaussian(1.0), Gaussian(1.0))]
    whole = wild_values(measures, strata, 4_000, torch.Generator().manual_seed(0))[0, 1:]
    monkeypatch.setattr(_bootstrap, "_CHUNK", 50 * 333)
    parts = wild_values(measures, strata, 4_000, torch.Generator().manual_seed(1))[0, 1:]
    assert parts.mean().item() == pytest.approx(whole.mean().item(), rel=0.06)
    assert parts.std().item() == pytest.approx(whole.std().item(), rel=0.1)
    assert len(set(parts.tolist())) == 4_000  # no chunk twice, none left out


@pytest.mark.parametrize(
    ("s", "w", "given", "exact"),
    [
        ("age", "of age", False, True),
        ("age", "random", False, False),
        ("age", "equal", False, True),
        ("line", "of line", False, False),  # nothing shows it: each s has one row
        ("line", "equal", False, True),
        ("mass", "of the rest", False, False),  # sixty of a hundred rows show it, the others do not
        ("age", "of age and y", False, False),
        ("age", "of age and y", True, True),  # within a level of y it is a function of s
        ("line", "of y", True, True),  # within a level of y it is constant
        ("line", "of y", False, False),
        ("age", "masked", False, True),  # rows of weight zero are not there
    ],
)
def test_weights_are_recognised_as_a_function_of_s_where_rows_show_it(s, w, given, exact):
    rng = np.random.default_rng(0)
    n = 200
    age, line, y = rng.integers(20, 30, n), rng.normal(size=n), rng.integers(0, 2, n)
    mass = np.where(rng.random(n) < 0.6, 0.0, line)
    weights = {
        "of age": 1.0 / age,
        "random": rng.random(n) + 0.1,
        "equal": np.full(n, 0.3),
        "of line": np.exp(line),
        "of the rest": np.where(mass == 0.0, 1.0, rng.random(n) + 0.1),
        "of age and y": age + 5.0 * y,
        "of y": 1.0 + y,
        "masked": (rng.random(n) < 0.5) / age,
    }[w]
    result = independence_test(
        rng.normal(size=n),
        {"age": age, "line": line, "mass": mass}[s],
        sample_weight=weights,
        given=y if given else None,
        n_permutations=19,
        random_state=0,
    )
    assert result.exact is exact
    assert result.method == ("permutation" if exact else "wild bootstrap")


def test_equal_weights_of_any_size_are_no_weights():
    z, s = sample(30)
    arguments = {"n_permutations": 39, "random_state": 0}
    for options in ({}, {"dependence": HSIC(normalized=True)}, {"given": np.arange(30) % 2}):
        plain = independence_test(z, s, **arguments, **options)
        weighted = independence_test(z, s, sample_weight=np.full(30, 7.0), **arguments, **options)
        assert weighted.null == pytest.approx(plain.null, rel=1e-9)
        assert weighted.pvalue == plain.pvalue


@pytest.mark.parametrize("weighted", [False, True])
def test_the_limit_observes_hsic_when_its_factors_are_complete(weighted):
    n = 60
    z, s = sample(n, d=2)
    y = np.arange(n) % 2  # thirty rows each: factors of all the rows
    w = np.exp(0.4 * s) if weighted else None
    measures = [HSIC(Gaussian(1.0), Gaussian(0.7)), HSIC(Energy(), Gaussian(0.2))]
    values = limit_values(measures, strata_of(z, s, w, y), 3, torch.Generator())[:, 0].numpy()
    for value, K, L in (
        (values[0], gaussian(z, 1.0), gaussian(s, 0.7)),
        (values[1], energy(z), gaussian(s, 0.2)),
    ):
        u = np.ones(n) if w is None else w
        parts = [np.ix_(rows, rows) for rows in (np.flatnonzero(y == level) for level in (0, 1))]
        expected = sum(
            u[rows[1][0]].sum() / u.sum() * hsic(K[rows], L[rows], u[rows[1][0]]) for rows in parts
        )
        assert value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("case", ["plain", "weighted", "given"])
def test_limit_draws_have_the_moments_of_permutations(case):
    n, count = 300, 5_000
    z, s = sample(n, seed=1)
    w = np.exp(0.5 * s) if case == "weighted" else None
    y = np.arange(n) % 3 == 0 if case == "given" else np.zeros(n)
    strata = strata_of(z, s, w, y)
    generator = torch.Generator().manual_seed(0)
    family, _ = bandwidth_family(torch.tensor(z), to_sensitive(s), generator)
    real = permuted_values(family, strata, count, generator).numpy()
    drawn = limit_values(family, strata, count, generator).numpy()
    assert drawn[:, 0] == pytest.approx(real[:, 0], rel=1e-3)
    real, drawn = real[:, 1:], drawn[:, 1:]
    # Monte Carlo: the mean of 5,000 draws is known within 1 to 2 %, their spread within 3 to 5 %.
    assert drawn.mean(axis=1) == pytest.approx(real.mean(axis=1), rel=0.04)
    assert drawn.std(axis=1) == pytest.approx(real.std(axis=1), rel=0.12)
    assert np.corrcoef(drawn) == pytest.approx(np.corrcoef(real), abs=0.06)
    assert 0.1 < np.corrcoef(real)[0, 1] < 0.95  # members drawn apart would have none, twins one
    for q in (0.5, 0.9, 0.99):
        assert np.quantile(drawn, q, axis=1) == pytest.approx(np.quantile(real, q, axis=1), rel=0.12)


def test_the_mean_of_the_limit_is_exactly_that_over_permutations():
    # E |G'F|^2 / n^2 = tr(K~) tr(L~) / (n^2 (n - 1)); Monte Carlo leaves a third of a per cent.
    n = 40
    z, s = sample(n)
    K, L = (centred(gaussian(x, 1.0), np.full(n, 1 / n)) for x in (z, s))
    measure = [HSIC(Gaussian(1.0), Gaussian(1.0))]
    values = limit_values(
        measure, strata_of(z, s, None, np.zeros(n)), 100_000, torch.Generator().manual_seed(0)
    )
    assert values[0, 1:].mean().item() == pytest.approx(np.trace(K) * np.trace(L) / n**2 / (n - 1), rel=0.01)


def test_limit_draws_in_chunks_have_the_same_mean_and_spread(monkeypatch):
    z, s = sample(40)
    measure = [HSIC(Gaussian(1.0), Gaussian(1.0))]
    strata = strata_of(z, s, None, np.zeros(40))
    whole = limit_values(measure, strata, 4_000, torch.Generator().manual_seed(0))[0, 1:]
    monkeypatch.setattr(_permutation, "_CHUNK", 50_000)
    parts = limit_values(measure, strata, 4_000, torch.Generator().manual_seed(1))[0, 1:]
    assert parts.mean().item() == pytest.approx(whole.mean().item(), rel=0.06)
    assert parts.std().item() == pytest.approx(whole.std().item(), rel=0.1)
    assert len(set(parts.tolist())) == 4_000  # no chunk twice, none left out


def test_above_many_rows_the_default_test_draws_the_limit_and_says_so(monkeypatch):
    z, s = sample(60, d=2)
    below = independence_test(z, s, n_permutations=19, random_state=0)
    assert (below.exact, below.notes) == (True, ())
    monkeypatch.setitem(independence_test.__wrapped__.__globals__, "MANY_ROWS", 59)
    above = independence_test(z, s, n_permutations=19, random_state=0)
    assert (above.exact, above.method) == (False, "permutation")
    assert "limit" in above.notes[0]
    assert "limit" in str(above)
    assert above.null != below.null
    # A measure of one's own is permuted at any size.
    own = independence_test(z, s, dependence=HSIC(), n_permutations=19, random_state=0)
    assert (own.exact, own.notes) == (True, ())


def closed_bonferroni(p):
    """Holm is the closure of Bonferroni: every intersection with j in it must be rejected."""
    m = len(p)
    subsets = [c for k in range(1, m + 1) for c in itertools.combinations(range(m), k)]
    return [max(min(1.0, len(c) * min(p[i] for i in c)) for c in subsets if j in c) for j in range(m)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("m", [1, 2, 3, 6])
def test_holm_is_the_closure_of_bonferroni(m, seed):
    rng = np.random.default_rng(seed)
    p = (rng.random(m) ** 2).tolist()
    if m > 2:
        p[1] = p[0]
    assert holm(p) == pytest.approx(closed_bonferroni(p))


def test_holm_of_nothing_is_nothing_and_the_order_stays():
    assert holm([]) == []
    assert holm([0.5, 0.01, 0.9]) == pytest.approx([1.0, 0.03, 1.0])


def test_a_thin_factor_of_low_rank_is_the_pivoted_one():
    _, s = sample(50, d=3)
    complete = pivoted_factor(Gaussian(6.0), torch.tensor(s)[:, None])
    assert complete.shape[1] < 12
    assert torch.equal(thin_factor(Gaussian(6.0), torch.tensor(s)[:, None], 40), complete)
    assert thin_factor(Delta(), Sensitive.of(torch.arange(3.0)).values, 64).shape == (3, 3)
    assert thin_factor(Linear(), torch.zeros(5, 1), 64).shape == (5, 0)


def test_a_thin_factor_is_the_best_of_its_rank_once_centred():
    n, rank = 70, 20  # up to 4 x 20 rows all of them are looked at
    z, _ = sample(n, d=3)
    G = thin_factor(Gaussian(0.7), torch.tensor(z), rank).numpy()
    assert G.shape == (n, rank)
    G = G - G.mean(axis=0)
    values, vectors = np.linalg.eigh(centred(gaussian(z, 0.7), np.full(n, 1 / n)))
    best = (vectors[:, -rank:] * values[-rank:]) @ vectors[:, -rank:].T
    np.testing.assert_allclose(G @ G.T, best, atol=1e-8)


def test_a_thin_factor_of_many_rows_is_below_the_gram_matrix_and_close_to_it():
    n, rank = 400, 20
    z, _ = sample(n, d=2)
    K = gaussian(z, 2.0)
    G = thin_factor(Gaussian(2.0), torch.tensor(z), rank).numpy()
    assert G.shape == (n, rank)
    assert np.linalg.eigvalsh(K - G @ G.T).min() > -1e-8
    G = G - G.mean(axis=0)
    K = centred(K, np.full(n, 1 / n))
    assert 0 < np.trace(K - G @ G.T) < 0.01 * np.trace(K)
    again = thin_factor(Gaussian(2.0), torch.tensor(z), rank)
    assert torch.equal(again, thin_factor(Gaussian(2.0), torch.tensor(z), rank))


def test_features_of_few_rows_are_the_kernels_themselves():
    n = 60
    z, s = sample(n, d=3)
    z, s = torch.tensor(z), to_sensitive(s)
    family, _ = bandwidth_family(z, s, torch.Generator())
    G, seen = use_features(z, family)
    assert len(G) == n
    orders = torch.stack([torch.arange(n), torch.randperm(n, generator=torch.Generator().manual_seed(0))])
    for plain, other in zip(family, seen, strict=True):
        torch.testing.assert_close(
            other.permuted(G, s, orders), plain.permuted(z, s, orders), rtol=1e-6, atol=0.0
        )


@pytest.mark.parametrize("case", ["plain", "given", "weights of s", "weights", "limit"])
def test_seen_through_features_the_test_is_the_same_and_says_so(case, monkeypatch):
    n = 60
    z, s = sample(n, d=3)
    y = np.arange(n) % 3 == 0
    arguments = {
        "plain": {},
        "given": {"given": y},
        "weights of s": {"given": y, "sample_weight": np.exp(0.3 * s), "weights_of_s": True},
        "weights": {"given": y, "sample_weight": np.random.default_rng(0).random(n) + 0.1},
        "limit": {"given": y},
    }[case]
    if case == "limit":
        monkeypatch.setitem(independence_test.__wrapped__.__globals__, "MANY_ROWS", n - 1)
    arguments |= {"n_permutations": 39, "random_state": 0}
    plain = independence_test(z, s, **arguments)
    monkeypatch.setitem(independence_test.__wrapped__.__globals__, "WIDE_ROWS", n - 1)
    seen = independence_test(z, s, **arguments)
    assert any("features" in note for note in seen.notes)
    assert not any("features" in note for note in plain.notes)
    assert (seen.exact, seen.method, seen.measure) == (plain.exact, plain.method, plain.measure)
    if case != "limit":  # whose draws depend on the number of columns
        assert seen.statistic == pytest.approx(plain.statistic, rel=1e-5, abs=1e-6)
        assert seen.null == pytest.approx(plain.null, rel=1e-5, abs=1e-6)
        assert seen.pvalue == plain.pvalue


@pytest.mark.parametrize("case", ["line", "ages", "outliers", "two columns"])
def test_a_complete_map_of_many_rows_has_the_gram_matrix(case, monkeypatch):
    monkeypatch.setattr(_lowrank, "_POOL", 200)
    monkeypatch.setattr(_lowrank, "_BLOCK", 300)
    rng = np.random.default_rng(0)
    x = {
        "line": rng.normal(size=(1_000, 1)),
        "ages": rng.integers(20, 60, (1_000, 1)) / 10,
        "outliers": np.append(rng.uniform(size=998), [5.0, 9.0])[:, None],
        "two columns": rng.uniform(size=(1_000, 2)),
    }[case]
    found = complete_map(Gaussian(0.8), torch.tensor(x), 128)
    assert found.width <= 128
    G = found(torch.tensor(x)).numpy()
    np.testing.assert_allclose(G @ G.T, gaussian(x, 0.8), atol=2e-5)
    assert np.trace(gaussian(x, 0.8) - G @ G.T) < 4e-12 * len(x)


def test_heavy_tails_have_no_complete_map_and_get_principal_features(monkeypatch):
    x = torch.tensor(np.random.default_rng(0).standard_cauchy(20_000))[:, None]
    kernel = Gaussian(1.0)
    assert complete_map(kernel, x, 128) is None
    assert feature_map(kernel, x, 16)(x).shape == (20_000, 16)


def test_blocks_of_rows_change_nothing(monkeypatch):
    n = 200
    z, s = sample(n)
    w = np.exp(0.4 * s)
    family, _ = bandwidth_family(torch.tensor(z), to_sensitive(s), torch.Generator())
    for draw in (limit_values, wild_values):
        strata = strata_of(z, s, w, np.arange(n) % 2)
        whole = draw(family, strata, 9, torch.Generator().manual_seed(0))
        with monkeypatch.context() as patch:
            patch.setattr(_lowrank, "_BLOCK", 17)
            torch.testing.assert_close(
                draw(family, strata, 9, torch.Generator().manual_seed(0)), whole, rtol=1e-7, atol=0.0
            )


def test_wild_draws_from_some_of_the_rows_have_the_law_of_those_from_all(monkeypatch):
    n, count = 3_000, 3_000
    z, s = sample(n)
    w = np.exp(np.random.default_rng(0).normal(size=n))
    measures = [HSIC(Gaussian(1.0), Gaussian(1.0)), HSIC(Gaussian(2.0), Gaussian(2.0))]
    strata = strata_of(z, s, w, np.zeros(n))
    whole = wild_values(measures, strata, count, torch.Generator().manual_seed(0)).numpy()
    monkeypatch.setattr(_bootstrap, "WILD_ROWS", 1_000)
    some = wild_values(measures, strata, count, torch.Generator().manual_seed(1)).numpy()
    assert some[:, 0] == pytest.approx(whole[:, 0], rel=1e-9)
    assert some[:, 1:].mean(axis=1) == pytest.approx(whole[:, 1:].mean(axis=1), rel=0.1)
    for q in (0.5, 0.9, 0.95):
        a, b = (np.quantile(values[:, 1:], q, axis=1) for values in (some, whole))
        assert a == pytest.approx(b, rel=0.12)


def test_many_rows_in_the_wild_bootstrap_are_said(monkeypatch):
    z, s = sample(60, d=2)
    w = np.random.default_rng(0).random(60) + 0.1
    arguments = {"sample_weight": w, "n_permutations": 19, "random_state": 0}
    assert independence_test(z, s, **arguments).notes == ()
    monkeypatch.setattr(_bootstrap, "WILD_ROWS", 50)
    monkeypatch.setitem(independence_test.__wrapped__.__globals__, "WILD_ROWS", 50)
    assert "in proportion to the squares of their terms" in independence_test(z, s, **arguments).notes[0]
