"""Tests of groups of rows and of rare cells against loops, enumerations and exact laws."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from frhsic.data import to_sensitive
from frhsic.dependence import GDP, HSIC, DistanceCovariance
from frhsic.inference import confidence_interval, equivalence_test, independence_test
from frhsic.inference._bootstrap import cluster_values, permuted_means
from frhsic.inference._embedding import as_hsic, embedding
from frhsic.inference._pairings import LARGEST, Pairing, PairingSide, large_units
from frhsic.inference._permutation import group_orders, limit_values, permuted_values
from frhsic.inference._strata import Stratum
from frhsic.inference.bounds import TrainedOn, certify
from frhsic.inference.bounds._bounds import grouped_bound, population_bound
from frhsic.kernels import Gaussian
from frhsic.sketching import HSICSketch
from frhsic.sketching._rows import groups_of, row_numbers


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def centred_gram(x, sigma, w):
    K = np.exp(-0.5 * (x[:, None] - x) ** 2 / sigma**2)
    return K - (K @ w)[:, None] - K @ w + w @ K @ w


def strata_of(z, s, groups, given=None):
    z, s = torch.tensor(z)[:, None], to_sensitive(s, name="s")
    given = np.zeros(len(z)) if given is None else given
    parts = [torch.tensor(np.flatnonzero(given == level)) for level in np.unique(given)]
    return [Stratum(z[r], s[r], None, len(r) / len(z), torch.tensor(groups)[r]) for r in parts]


def test_group_orders_exchange_whole_groups_of_equal_size():
    groups = torch.tensor([3, 0, 3, 1, 2, 0, 4, 4, 4, 1])
    orders = group_orders(groups, 200, seeded(), first_as_it_is=True)
    assert orders[0].tolist() == list(range(10))
    sizes = groups.bincount()
    seen = set()
    for order in orders:
        assert sorted(order.tolist()) == list(range(10))
        image = groups[order]
        for group in range(5):
            (to,) = set(image[groups == group].tolist())  # all rows of a group go to one group
            assert sizes[to] == sizes[group]
        seen.add(tuple(image.tolist()))
    assert len(seen) == 6  # groups 0, 1 and 3 have two rows: 3! pairings


def test_cluster_bootstrap_is_the_quadratic_form_of_group_sums():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(15), [1, 2, 3] * 5)
    z, s = rng.normal(size=(2, len(groups)))
    given = rng.integers(0, 2, len(groups))  # groups lie in both strata
    measure = HSIC(Gaussian(0.7), Gaussian(1.3))
    count = 6
    values = cluster_values([measure], strata_of(z, s, groups, given), count, seeded(3))[0].numpy()
    signs = torch.randint(2, (15, count), generator=seeded(3)).numpy() * 2.0 - 1.0
    expected = np.zeros(count + 1)
    for level in (0, 1):
        rows = np.flatnonzero(given == level)
        w = np.full(len(rows), 1 / len(rows))
        product = centred_gram(z[rows], 0.7, w) * centred_gram(s[rows], 1.3, w) / len(rows) ** 2
        shares = np.array([np.mean(groups[rows] == g) for g in range(15)])
        expected[0] += len(rows) / len(z) * product.sum()
        for b in range(count):
            xi = signs[groups[rows], b]
            expected[1 + b] += len(rows) / len(z) * (xi @ product @ xi) / (1 - (shares**2).sum())
    np.testing.assert_allclose(values, expected, rtol=1e-9)


def test_many_groups_are_sampled_without_changing_the_bootstrap(monkeypatch):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(600), 2)
    z, s = rng.standard_cauchy(1_200), rng.lognormal(size=1_200)
    strata, measure = strata_of(z, s, groups), [HSIC(Gaussian(1.0), Gaussian(1.0))]
    whole = cluster_values(measure, strata, 2_000, seeded())[0, 1:]
    monkeypatch.setattr("frhsic.inference._bootstrap.WILD_ROWS", 400)
    some = cluster_values(measure, strata, 2_000, seeded(1))[0, 1:]
    assert float(some.mean()) == pytest.approx(float(whole.mean()), rel=0.1)
    assert float(some.quantile(0.95)) == pytest.approx(float(whole.quantile(0.95)), rel=0.15)


def test_permuted_groups_through_features_have_the_law_of_permuted_rows():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), [1, 2, 2, 4] * 10)
    z = rng.normal(size=40)[groups] + 0.3 * rng.normal(size=len(groups))
    s = rng.normal(size=40)[groups]
    strata, measure = strata_of(z, s, groups), [HSIC(Gaussian(1.0), Gaussian(1.0))]
    rows = permuted_values(measure, strata, 3_000, seeded())[0]
    features = limit_values(measure, strata, 3_000, seeded(1), whole=True)[0]
    assert float(features[0]) == pytest.approx(float(rows[0]), rel=1e-9)
    for q in (0.1, 0.5, 0.9, 0.95):
        expected = float(rows[1:].quantile(q))
        assert float(features[1:].quantile(q)) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("whole", [True, False])
def test_pairings_of_few_units_are_those_of_all_permutations(whole):
    rng = np.random.default_rng(0)
    G, F = torch.tensor(rng.normal(size=(4, 2))), torch.tensor(rng.normal(size=(4, 3)))
    z, s = PairingSide.of(G, (2,)), PairingSide.of(F, (3,))
    G, F = G - G.mean(dim=0), F - F.mean(dim=0)
    possible = torch.stack([G.mT @ F[list(order)] for order in permutations(range(4))])
    (draws,) = Pairing(z, s, whole=whole).draw(400, seeded())
    apart = (draws[:, None] - possible).abs().amax(dim=(2, 3))
    assert float(apart.amin(dim=1).max()) < 1e-12
    assert len(apart.argmin(dim=1).unique()) == 24


@pytest.mark.parametrize("both", [False, True])
def test_pairings_keep_mean_and_covariance_when_large_units_are_taken_out(both):
    rng = np.random.default_rng(0)
    n, count = 1_000, 20_000
    G, F = (torch.tensor(rng.standard_t(2, size=(n, 2))) for _ in range(2))
    if both:  # large ones on either side, of which some meet in most draws
        G, F = (torch.tensor(rng.normal(size=(n, 2))) for _ in range(2))
        G[:30] *= 8.0
        F[-30:] *= 8.0
    pairing = Pairing(PairingSide.of(G, (2,)), PairingSide.of(F, (2,)))
    assert 0 < pairing.n_large < n // 2
    assert min(len(pairing.large_z), len(pairing.large_s)) > 0 or not both
    (draws,) = pairing.draw(count, seeded())
    G, F = G - G.mean(dim=0), F - F.mean(dim=0)
    covariance = torch.kron(G.mT @ G, F.mT @ F) / (n - 1)
    spread = covariance.diagonal().sqrt()
    flat = draws.flatten(1)
    assert float((flat.mean(dim=0) / spread).abs().max()) < 5 / count**0.5
    actual = torch.cov(flat.mT) / torch.outer(spread, spread)
    expected = covariance / torch.outer(spread, spread)
    assert float((actual - expected).abs().max()) < 0.06


@pytest.mark.parametrize("n", [300, 6_000])
def test_what_is_left_of_both_sides_meets_the_condition(n):
    rng = np.random.default_rng(0)
    z, s = torch.tensor(rng.pareto(1.0, n)), torch.tensor(rng.pareto(0.7, n))
    a, b = large_units(z, s, n)
    left_z, left_s = z[z <= a], s[s <= b]
    assert float(left_z.max() * left_s.max()) <= LARGEST * n * (1 + 1e-12)
    even = torch.ones(n, dtype=torch.float64)
    assert large_units(even, even, n) == (float("inf"), float("inf"))


@pytest.mark.parametrize("n", [6_000, 60_000])
def test_what_rounding_leaves_of_a_sum_is_not_drawn(n):
    """PyTorch 2.6 adds up 6,000 equal terms with a relative error of 2.4e-12: ties were broken by it."""
    sides = []
    for start in (0, 17):
        features = torch.zeros((n, 1), dtype=torch.float64)
        features[start : start + 18] = 1.0
        side = PairingSide.of(features, (1,))
        sides.append(replace(side, gram=side.gram * (1.0 + 2.4e-12 * n / 6_000)))
    pairing = Pairing(*sides)
    assert 0 < pairing.n_large < n
    assert 0 in (pairing.root_z.shape[1], pairing.root_s.shape[1])
    (draws,) = pairing.draw(200, seeded())
    assert len((draws * 1e10).round().unique()) == len((draws * 1e3).round().unique())


@pytest.mark.parametrize("n", [6_000, 60_000])
@pytest.mark.parametrize("both", [0, 1])
def test_rare_scores_in_a_rare_group_have_the_exact_pvalue(n, both):
    z, s = np.zeros(n), np.array(["most"] * n)
    z[:18], s[18 - both : 36 - both] = 1.0, "few"
    law = stats.hypergeom(n, 18, 18)
    k, mean = np.arange(19), 18 * 18 / n
    exact = law.pmf(k)[np.abs(k - mean) >= abs(both - mean) - 1e-9].sum()
    result = independence_test(z, s, n_permutations=1_999, random_state=0)
    margin = 4 * (exact * (1 - exact) / 2_000) ** 0.5 + 1 / 2_000
    assert result.pvalue == pytest.approx(exact, abs=margin)
    assert result.exact


def test_two_rare_groups_that_do_not_meet_are_no_dependence_with_weights_or_groups():
    """A bootstrap of these rows has nothing to draw the missing meetings from: it alone gives 0.001."""
    n = 6_000
    z, s = np.zeros(n), np.array(["most"] * n)
    z[:60], s[60:120] = 1.0, "few"  # 0.6 expected in both
    weights = np.random.default_rng(0).uniform(0.5, 1.5, n)
    for arguments in ({"sample_weight": weights}, {"groups": np.arange(n) % 3_000}):
        result = independence_test(z, s, n_permutations=199, random_state=0, **arguments)
        # Equal weights give .67; unequal ones break the ties of the rows that meet nobody.
        assert result.pvalue > (0.3 if "sample_weight" in arguments else 0.5)
        assert "larger of two" in str(result)


def test_the_mean_over_permutations_is_that_of_all_of_them():
    rng = np.random.default_rng(0)
    z, s = rng.normal(size=(2, 6))
    strata, measure = strata_of(z, s, np.arange(6)), [HSIC(Gaussian(1.0), Gaussian(1.0))]
    orders = torch.tensor(list(permutations(range(6))))
    expected = measure[0].permuted(strata[0].z, strata[0].s, orders).mean()
    assert float(permuted_means(measure, strata)[0]) == pytest.approx(float(expected), rel=1e-9)


def people(rng, count, rows, noise=0.5):
    groups = np.repeat(np.arange(count), rows)
    z = rng.normal(size=count)[groups] + noise * rng.normal(size=len(groups))
    return z, rng.normal(size=count)[groups], groups


def embedded(z, s, groups, measure, w=None):
    sensitive = to_sensitive(s, name="s")
    codes = None if groups is None else torch.tensor(groups)
    return embedding(torch.tensor(z)[:, None], sensitive, as_hsic(measure, sensitive), seeded(), w, codes)


def test_each_row_twice_in_groups_is_each_row_once():
    z, s = np.random.default_rng(0).normal(size=(2, 150))
    z = z + s
    twice = np.repeat(np.arange(150), 2)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0))
    once, both = embedded(z, s, None, measure), embedded(z[twice], s[twice], twice, measure)
    assert both.units == len(once) == 150
    assert both.length == pytest.approx(once.length, rel=1e-9)
    assert both.standard_error(False) == pytest.approx(once.standard_error(False), rel=1e-9)
    torch.testing.assert_close(
        both.eigenvalues[:20] / 300, once.eigenvalues[:20] / 150, rtol=1e-6, atol=1e-11
    )
    # Not the U-statistic, but equal to it up to a share of some 2/n.
    assert both.unbiased() == pytest.approx(once.unbiased(), rel=3e-2)


@pytest.mark.parametrize("measure", [HSIC(Gaussian(1.0), Gaussian(1.0)), DistanceCovariance()])
def test_groups_through_features_are_those_of_all_pairs(measure, monkeypatch):
    rng = np.random.default_rng(0)
    z, s, groups = people(rng, 150, rng.integers(1, 6, 150))
    assert len(z) > 400
    w = torch.tensor(rng.uniform(1, 2, len(z)))
    w = w / w.sum()
    thin = embedded(z, s, groups, measure, w)
    monkeypatch.setattr("frhsic.inference._embedding._WHOLE", 10_000)
    whole = embedded(z, s, groups, measure, w)
    assert thin.within == pytest.approx(whole.within, rel=1e-6)
    assert thin.unbiased() == pytest.approx(whole.unbiased(), rel=1e-5, abs=1e-9)
    assert thin.standard_error(True) == pytest.approx(whole.standard_error(True), rel=1e-5)
    total = float(thin.eigenvalues.sum()) + thin.rest
    assert total == pytest.approx(float(whole.eigenvalues.sum()), rel=1e-5)
    assert float(thin.eigenvalues[0]) == pytest.approx(float(whole.eigenvalues[0]), rel=1e-2)


def test_within_groups_is_a_sum_over_pairs():
    rng = np.random.default_rng(0)
    z, s, groups = people(rng, 12, 3)
    found = embedded(z, s, groups, HSIC(Gaussian(0.7), Gaussian(1.3)))
    n = len(z)
    w = np.full(n, 1 / n)
    K, L = centred_gram(z, 0.7, w), centred_gram(s, 1.3, w)
    same = groups[:, None] == groups
    expected = [float((A * B)[same].sum()) / n**2 for A, B in ((K, L), (K, K), (L, L))]
    assert found.within == pytest.approx(expected, rel=1e-9)
    q = 1 / 12
    biased = float((K * L).mean())
    assert found.unbiased()[0] == pytest.approx((biased - expected[0] / (1 - q)) * (1 - q) / (1 - 2 * q))


def test_intervals_of_groups_hold_zero_and_have_no_bias_at_independence():
    rng = np.random.default_rng(0)
    grouped, alone, estimates = 0, [], []
    for seed in range(60):
        z, s, groups = people(rng, 40, 5)
        arguments = {"random_state": seed, "chance": False, "n_draws": 199}
        interval = confidence_interval(z, s, groups=groups, **arguments)
        estimates.append(interval.estimate)
        grouped += interval.low > 0.0
        alone.append(confidence_interval(z, s, **arguments).estimate)
    assert grouped <= 6
    assert abs(np.mean(estimates)) < 4 * np.std(estimates) / 60**0.5
    assert np.mean(alone) > 4 * np.std(alone) / 60**0.5  # rows that are taken as independent


def test_a_tolerance_is_not_shown_by_repeating_rows():
    z, s = np.random.default_rng(1).normal(size=(2, 150))
    once = equivalence_test(z, s, tolerance=0.02, random_state=0)
    rows = np.repeat(np.arange(150), 10)
    both = equivalence_test(z[rows], s[rows], tolerance=0.02, groups=rows, random_state=0)
    assert both.n == 150
    assert both.upper == pytest.approx(once.upper, rel=0.2)
    assert equivalence_test(z[rows], s[rows], tolerance=0.02, random_state=0).upper != pytest.approx(
        once.upper, rel=0.2
    )
    assert "n counts groups, of 1,500 rows." in str(both)


def test_few_groups_have_no_interval():
    z, s, groups = people(np.random.default_rng(0), 19, 5)
    for call in (confidence_interval, lambda *a, **k: equivalence_test(*a, tolerance=1.0, **k)):
        with pytest.raises(ValueError, match=r"'groups' must be at least 20.* Got 19\. Pass more groups"):
            call(z, s, groups=groups)


@pytest.mark.parametrize("levels", [True, False])
def test_terms_of_a_sketch_are_sums_over_whole_units(levels):
    rng = np.random.default_rng(0)
    z, s, units = people(rng, 60, rng.integers(1, 5, 60))
    s = np.round(s) if levels else s
    sketch = HSICSketch(Gaussian(1.0), Gaussian(1.0), n_groups=5, dtype="float64").update(z, s, groups=units)
    terms, shares = sketch.feature_sums().group_terms()
    numbers = torch.from_numpy(row_numbers(np.arange(len(z)), units))
    block = groups_of(numbers, 5).numpy()
    assert all(len(set(block[units == unit])) == 1 for unit in range(60))
    n = len(z)
    product = centred_gram(z, 1.0, np.full(n, 1 / n)) * centred_gram(s, 1.0, np.full(n, 1 / n)) / n**2
    gram = terms.flatten(1) @ terms.flatten(1).mT
    for g in range(5):
        assert float(shares[g]) == pytest.approx(np.mean(block == g))
        for h in range(5):
            expected = product[np.ix_(block == g, block == h)].sum()
            assert float(gram[g, h]) == pytest.approx(expected, rel=1e-5, abs=1e-10)


def test_a_sketch_of_groups_survives_bytes_and_sums_and_refuses_others():
    rng = np.random.default_rng(0)
    z, s, units = people(rng, 100, 4)
    names = np.array([f"customer {unit}" for unit in units])
    empty = HSICSketch(Gaussian(1.0), Gaussian(1.0))
    whole = (empty + empty).update(z, s, groups=names, ids=np.arange(400))
    odd = np.arange(400) % 2 == 1
    parts = [
        (empty + empty).update(z[some], s[some], groups=names[some], ids=np.arange(400)[some])
        for some in (odd, ~odd)
    ]
    both = HSICSketch.from_bytes((parts[0] + parts[1]).to_bytes())
    assert both.grouped
    torch.testing.assert_close(both.group_shares, whole.group_shares)
    one, other = (independence_test(x, random_state=0, n_permutations=99) for x in (whole, both))
    assert one.pvalue == other.pvalue
    assert one.method == "cluster bootstrap"
    assert "random signs of 20 groups, which hold all rows of a unit" in str(one)
    plain = (empty + empty).update(z, s)
    with pytest.raises(ValueError, match="'other' must be a sketch of groups of rows as this one"):
        whole + plain
    with pytest.raises(ValueError, match="'groups' must come with all rows of a sketch or with none"):
        plain.update(z, s, groups=units)
    with pytest.raises(ValueError, match="'groups' must be 400 integers or strings"):
        (empty + empty).update(z, s, groups=units + 0.5)
    with pytest.raises(ValueError, match="'method' must be 'permutation' for a sketch of groups"):
        independence_test(whole, method="gamma")
    with pytest.raises(ValueError, match="'dependence' must be an HSIC without kernels for a sketch"):
        confidence_interval(whole, dependence=GDP())


def test_a_sketch_of_people_holds_its_level_and_one_by_ids_does_not():
    """A person's number as 'ids' makes no test of people: .51 and more at .05."""
    rng = np.random.default_rng(0)
    grouped = alone = 0
    for i in range(40):
        z, s, units = people(rng, 100, 5)
        s = np.round(s, 1)
        sketch = HSICSketch(Gaussian(1.0), Gaussian(1.0), n_features=(16, 16))
        grouped += (
            independence_test(
                (sketch + sketch).update(z, s, groups=units + 100 * i), n_permutations=99, random_state=i
            ).pvalue
            <= 0.05
        )
        alone += (
            independence_test(
                (sketch + sketch).update(z, s, ids=units + 100 * i), n_permutations=99, random_state=i
            ).pvalue
            <= 0.05
        )
    assert grouped <= stats.binom.ppf(0.999, 40, 0.05)
    assert alone > 13


def test_a_tight_interval_of_a_sketch_of_groups_is_that_of_groups_of_rows():
    rng = np.random.default_rng(0)
    z, s, units = people(rng, 1_000, 3)
    z = z + s
    sketch = HSICSketch(Gaussian(1.0), Gaussian(1.0), n_features=(64, 64)).update(z, s, groups=units)
    of_sketch = confidence_interval(sketch, random_state=0)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), normalized=True)
    of_rows = confidence_interval(z, s, dependence=measure, groups=units, random_state=0)
    assert of_sketch.estimate == pytest.approx(of_rows.estimate, rel=0.03)
    assert of_sketch.high - of_sketch.low == pytest.approx(of_rows.high - of_rows.low, rel=0.5)


@pytest.mark.parametrize("n", [6_000, 200_000])
def test_rare_scores_in_a_rare_group_of_a_sketch_have_the_exact_pvalue(n):
    rare = 18 if n == 6_000 else 100
    z, s = np.zeros(n), np.array(["most"] * n)
    z[:rare], s[rare - 1 : 2 * rare - 1] = 1.0, "few"
    exact = stats.hypergeom(n, rare, rare).sf(0)
    result = independence_test(HSICSketch.like(z, s).update(z, s), n_permutations=1_999, random_state=0)
    margin = 4 * (exact * (1 - exact) / 2_000) ** 0.5 + 1 / 2_000
    assert result.pvalue == pytest.approx(exact, abs=margin)
    assert "too few and too far out for the limit are permuted" in str(result)


def test_a_group_replaced_moves_the_cross_covariance_by_no_more_than_its_share_allows():
    """The step of the proof: at most sqrt(6) p, here over random groups of clustered rows."""
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(300):
        m, rest = rng.integers(1, 6), rng.integers(1, 8)
        one = rng.integers(0, 2, (m + rest, 2)) * 40.0 + rng.choice([0.0, 1.0]) * rng.normal(
            size=(m + rest, 2)
        )
        other = one.copy()
        other[:m] = rng.integers(0, 3, (m, 2)) * 40.0
        # |C^ - C^'|^2 by the Gram matrix of both samples, with signs
        x = np.concatenate((one, other))
        w = np.full(m + rest, 1 / (m + rest))
        K, L = (np.exp(-0.5 * (x[:, None, j] - x[:, j]) ** 2) for j in (0, 1))
        centre = np.eye(m + rest) - w
        half = [slice(0, m + rest), slice(m + rest, None)]
        inner = [
            [np.sum((centre @ K[a, b] @ centre.T) * (centre @ L[a, b] @ centre.T)) for b in half]
            for a in half
        ]
        moved = max(inner[0][0] - 2 * inner[0][1] + inner[1][1], 0.0) ** 0.5 / (m + rest)
        largest = max(largest, moved / (m / (m + rest)))
    assert 1.0 < largest <= 6**0.5


def test_certificates_count_groups():
    rng = np.random.default_rng(0)
    z, s, groups = people(rng, 200, rng.integers(1, 5, 200))
    fixed = HSIC(Gaussian(1.0), Gaussian(1.0))
    arguments = {"dependence": fixed, "n_permutations": 19, "random_state": 0}
    found, alone = certify(z, s, groups=groups, **arguments), certify(z, s, **arguments)
    shares = np.bincount(groups) / len(groups)
    q = float((shares**2).sum())
    assert found.n == 200
    root = found.hsic**0.5 + q + (3 * q * np.log(20)) ** 0.5
    assert found.bound("population").value == pytest.approx(root**2)
    for name in ("population", "population_asymptotic"):
        assert found.bound(name).value > alone.bound(name).value
    assert found.bound("head_gap").value == pytest.approx(alone.bound("head_gap").value)
    assert f"n counts groups, of {len(z):,} rows." in str(found)
    # Groups of one row: the theorem for rows, up to terms of order 1/n.
    assert grouped_bound(0.01, 1 / 500, 0.05) == pytest.approx(population_bound(0.01, 500, 0.05), rel=0.03)
    whole = certify(z, s, groups=groups, n_permutations=19, random_state=0)  # a tenth of the groups fixes
    assert 100 < whole.n < 200
    with pytest.raises(ValueError, match="'train' must be None with 'groups'"):
        certify(z, s, groups=groups, train=TrainedOn(100, 0.1, 1.0), **arguments)
    with pytest.raises(ValueError, match="'groups' must leave at least 20 rows"):
        certify(z[:40], s[:40], groups=np.arange(40) < 35, random_state=1)
