"""The test of independence of a table against naive twins: rows, loops, all permutations."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from frhsic.data import to_sensitive
from frhsic.dependence import HSIC
from frhsic.kernels import Delta, Gaussian
from frhsic.kernels.scale import median_bandwidth
from frhsic.table import ScoreTable, _null, independence


def draw_rows(n=80, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 60, n).astype(float)
    return {
        "z": np.round(0.02 * age + rng.normal(size=n), 1),
        "age": age,
        "label": np.array(list("abbcccdd"))[rng.integers(0, 8, n)],
        "of_age": 1.0 + age / 40.0,
        "w": rng.exponential(size=n),
    }


def law_of(z, s, **options):
    return ScoreTable.from_rows(z, s, **options).law()


def stratum_of(law, of_s=True, by_rows=False):
    grid = _null._Grid.of([law], by_rows=by_rows)
    kernels = _null._Kernels(grid)
    return _null._Stratum(grid, kernels, 0, 1.0, of_s=of_s), kernels


def values_of(law, count=1, seed=0, of_s=True, by_rows=False, law_of_draws="permute"):
    """HSIC of each pair, observed and drawn."""
    stratum, kernels = stratum_of(law, of_s, by_rows)
    values = np.zeros((len(kernels.weights), count + 1))
    stratum.add(values, getattr(stratum, law_of_draws)(), np.random.default_rng(seed))
    return values


def hsic_of_rows(z, s, w=None):
    """Today's biased HSIC under each pair of bandwidths."""
    s = to_sensitive(s)
    numbers = s.kinds[0] == "continuous"
    medians = [median_bandwidth(x).item() for x in (torch.from_numpy(z)[:, None], s.values)]
    found = []
    for wide_z, wide_s, _ in _null.FAMILY:
        kernel_s = Gaussian(wide_s * medians[1]) if numbers else Delta()
        measure = HSIC(Gaussian(wide_z * medians[0]), kernel_s, estimator="biased")
        found.append(measure(torch.from_numpy(z), s, None if w is None else torch.from_numpy(w)).item())
    return found


@pytest.mark.parametrize("weights", [None, "of_age", "w"])
@pytest.mark.parametrize("s", ["age", "label"])
def test_statistics_are_hsic_of_the_rows_where_each_value_is_a_cell(s, weights):
    rows = draw_rows()
    w = None if weights is None else rows[weights]
    values = values_of(law_of(rows["z"], rows[s], sample_weight=w), of_s=w is None)
    own = values[:, 0] if s == "age" else values[::2, 0]
    np.testing.assert_allclose(own, hsic_of_rows(rows["z"], rows[s], w), rtol=0, atol=1e-10)


def test_weights_that_are_a_function_of_s_stay_with_s_and_the_statistic_is_that_of_weighted_rows():
    rows = draw_rows()
    law = law_of(rows["z"], rows["age"], sample_weight=rows["of_age"])
    values = values_of(law, count=40, by_rows=True)
    expected = hsic_of_rows(rows["z"], rows["age"], rows["of_age"])
    np.testing.assert_allclose(values[:, 0], expected, rtol=0, atol=1e-10)
    # A draw is a permutation of the scores: the largest of many is found among the rows' own.
    rng = np.random.default_rng(0)
    permuted = [hsic_of_rows(rng.permutation(rows["z"]), rows["age"], rows["of_age"]) for _ in range(40)]
    assert stats.ks_2samp(values[0, 1:], np.array(permuted)[:, 0]).pvalue > 1e-3


def test_the_second_kernel_of_labels_gives_the_sum_of_squares_between_them():
    rows = draw_rows()
    z, label = rows["z"], rows["label"]
    found = values_of(law_of(z, label))[1::2, 0]
    sigma = median_bandwidth(torch.from_numpy(z)[:, None]).item()
    for value, (wide, _, _) in zip(found, _null.FAMILY, strict=True):
        L = np.exp(-0.5 * ((z[:, None] - z) / (wide * sigma)) ** 2)
        between = 0.0
        for one in np.unique(label):
            c = (label == one) / (label == one).sum() - 1.0 / len(z)
            between += np.mean(label == one) * (c @ L @ c)
        assert value == pytest.approx(between, abs=1e-10)


def test_numbers_and_labels_together_have_the_product_of_both_kernels():
    rows = draw_rows()
    # Several columns have at most 32 cells each: of so few values each is one.
    z, age, label, n = rows["z"], rows["age"] // 2, rows["label"], 80
    found = values_of(law_of(z, [age, label]))[:, 0]
    sigma, tau = (median_bandwidth(torch.from_numpy(x)[:, None]).item() for x in (z, age))
    H = np.eye(n) - 1.0 / n
    equal = label[:, None] == label
    for k, (wide_z, wide_s, _) in enumerate(_null.FAMILY):
        L = np.exp(-0.5 * ((z[:, None] - z) / (wide_z * sigma)) ** 2)
        for j, scale in enumerate((1.0, 1.0 / equal.mean(axis=1))):
            K = np.exp(-0.5 * ((age[:, None] - age) / (wide_s * tau)) ** 2) * equal * scale
            assert found[2 * k + j] == pytest.approx(np.sum(H @ K @ H * L) / n**2, abs=1e-10)


def test_draws_have_the_margins_of_the_rows():
    rows = draw_rows()
    stratum, _ = stratum_of(law_of(rows["z"], rows["age"]))
    draws = stratum.permute()(20, np.random.default_rng(0))
    np.testing.assert_array_equal(draws.sum(axis=2), np.tile(stratum.rows.sum(axis=1), (20, 1)))
    np.testing.assert_array_equal(draws.sum(axis=1), np.tile(stratum.rows.sum(axis=0), (20, 1)))
    assert len(np.unique(draws.reshape(20, -1), axis=0)) == 20


def all_permutations(z, s, w=None):
    """HSIC of each pair for the rows as they are and for all permutations of z, (k, n!)."""
    n = len(z)
    w = np.full(n, 1 / n) if w is None else w / w.sum()
    H = np.eye(n) - np.outer(np.ones(n), w)
    orders = np.array(list(itertools.permutations(range(n))))
    numbers = s.dtype.kind != "U"
    sigma, tau = (median_bandwidth(torch.from_numpy(x)[:, None]).item() for x in (z, s if numbers else z))
    found = []
    for wide_z, wide_s, _ in _null.FAMILY:
        L = np.exp(-0.5 * ((z[:, None] - z) / (wide_z * sigma)) ** 2)
        K = np.exp(-0.5 * ((s[:, None] - s) / (wide_s * tau)) ** 2) if numbers else s[:, None] == s
        M = np.outer(w, w) * (H @ K @ H.T)
        found.append([np.sum(M * (H @ L[np.ix_(o, o)] @ H.T)) for o in orders])
    return np.array(found)


@pytest.mark.parametrize("seed", range(2))
def test_pvalues_are_those_of_all_permutations(seed):
    n, count = 6, 3_999
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 4, n).astype(float)
    z = np.round(rng.normal(size=n) + 0.5 * s, 1)
    drawn = values_of(law_of(z, s), count)
    for own, every in zip(drawn, all_permutations(z, s), strict=True):
        exact = _null.rank_pvalue(every)
        assert _null.rank_pvalue(own) == pytest.approx(exact, abs=4 * np.sqrt(exact / count) + 1e-9)
    result = independence(law_of(z, s), 19, rng)
    assert (result.exact, result.n_permutations, len(result.null)) == (True, 19, 19)
    assert result.pvalue == np.mean([result.statistic, *result.null] >= np.float64(result.statistic - 1e-9))


def test_the_order_of_rows_and_the_sums_inside_cells_do_not_matter():
    rng = np.random.default_rng(0)
    s = np.exp(rng.normal(size=900))
    z = 0.1 * s + rng.normal(size=900)
    law = law_of(z, s)
    order = rng.permutation(900)
    shuffled = law_of(z[order], s[order])
    moved = law._replace(
        s_inner=rng.normal(size=law.s_inner.shape), z_inner=rng.normal(size=law.z_inner.shape)
    )
    pvalues = {independence(one, 99, np.random.default_rng(1)).pvalue for one in (law, shuffled, moved)}
    assert len(pvalues) == 1


@pytest.mark.parametrize("weights", [None, "of_age"])
@pytest.mark.parametrize("s", ["age", "income", "both"])
def test_the_grid_is_a_function_of_one_margin_each(s, weights):
    n = 1_500
    rows = draw_rows(n)
    rng = np.random.default_rng(1)
    z, income = rng.normal(size=n), np.exp(rng.normal(size=n))
    columns = {"age": [rows["age"]], "income": [income], "both": [income, rows["label"]]}[s]
    w = None if weights is None else 1.0 + (columns[0] > np.median(columns[0]))
    grids = [
        _null._Grid.of([law_of(scores, columns, sample_weight=w)], by_rows=w is not None)
        for scores in (z, rng.permutation(z))
    ]
    for one, other in zip(grids[0][3:], grids[1][3:], strict=True):
        assert np.array_equal(one, other) or np.allclose(one, other, rtol=1e-12)
    for axis in (1, 2):
        np.testing.assert_array_equal(grids[0].rows.sum(axis=axis), grids[1].rows.sum(axis=axis))
    m, k = grids[0].rows.shape[1:]
    assert m * k <= _null.LARGEST_GRID
    assert k <= _null.LEVELS
    assert m <= (_null.CELLS if s != "both" else _null.JOINT_CELLS)


def test_labels_are_not_merged_and_many_of_them_leave_fewer_levels_which_is_said():
    n = 6_000
    label = np.char.add("r", (np.arange(n) % 2_000).astype(str))
    result = independence(law_of(np.random.default_rng(0).normal(size=n), label), 9, np.random.default_rng(0))
    assert (result.cells, result.levels) == (2_000, 8)
    assert result.notes == (
        "The score is tested in 8 levels of about equally many rows, because S has 2,000 cells.",
    )


def test_many_rare_labels_are_seen_together():
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(150), 12)
    z = 0.35 * rng.normal(size=150)[label] + rng.normal(size=len(label))
    assert stats.f_oneway(*z.reshape(150, 12)).pvalue < 1e-5
    assert independence(law_of(z, np.char.add("r", label.astype(str))), 199, rng).pvalue == 1 / 200


def rejections(test, draws=100, alpha=0.2):
    """Whether p-values of 19 draws are at most alpha no more often than chance explains."""
    count = sum(test(seed) <= alpha + 1e-9 for seed in range(draws))
    assert count <= stats.binom(draws, alpha).ppf(1 - 1e-4)
    return count


def test_rows_that_are_permuted_within_labels_keep_the_level():
    def pvalue(seed):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 40)
        z, s = np.round(rng.normal(size=(2, 40)) + 2 * y, 0)
        table = ScoreTable.from_rows(z, s, outcome=y)
        return independence([table.law(0), table.law(1)], 19, rng).pvalue

    assert rejections(pvalue) > 0


def test_without_given_the_labels_would_be_found():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    z, s = rng.normal(size=(2, 200)) + 2 * y
    assert independence(law_of(z, s), 99, rng).pvalue == 0.01


def test_weights_that_are_a_function_of_s_keep_the_level():
    def pvalue(seed):
        rng = np.random.default_rng(seed)
        s = rng.integers(0, 5, 40).astype(float)
        result = independence(law_of(np.exp(rng.normal(size=40)), s, sample_weight=3.0**s), 19, rng)
        assert (result.method, result.exact) == ("permutation", True)
        return result.pvalue

    assert rejections(pvalue) > 0


def test_other_weights_are_a_wild_bootstrap_and_it_says_so():
    rows = draw_rows()
    law = law_of(rows["z"], rows["age"], sample_weight=rows["w"])
    result = independence(law, 99, np.random.default_rng(0))
    assert (result.method, result.exact) == ("wild bootstrap", False)
    assert any("not a function of S" in note for note in result.notes)
    assert independence(law, 99, np.random.default_rng(0), weights_of_s=True).exact


def test_equal_weights_are_none():
    rows = draw_rows()
    pvalues = [
        independence(law_of(rows["z"], rows["age"], sample_weight=w), 99, np.random.default_rng(0)).pvalue
        for w in (None, np.full(80, 0.3))
    ]
    assert pvalues[0] == pvalues[1]


def test_weights_of_rows_alone_in_their_cells_are_not_taken_for_a_function_of_s():
    rng = np.random.default_rng(0)
    z, s = rng.normal(size=(2, 60))
    assert not independence(law_of(z, s, sample_weight=rng.exponential(size=60)), 19, rng).exact


@pytest.mark.parametrize("s", ["age", "label"])
def test_multipliers_have_the_mean_of_sums_of_squared_weights(s):
    rows = draw_rows()
    law = law_of(rows["z"], rows[s], sample_weight=rows["w"])
    values = values_of(law, 2_000, of_s=False, law_of_draws="multiply")
    z, w = rows["z"], rows["w"] / rows["w"].sum()
    codes = np.unique(rows[s], return_inverse=True)[1].astype(float)
    sigma, tau = (median_bandwidth(torch.from_numpy(x)[:, None]).item() for x in (z, codes))
    tau = median_bandwidth(torch.from_numpy(rows["age"])[:, None]).item() if s == "age" else tau
    H = np.eye(80) - np.outer(np.ones(80), w)
    for k, (wide_z, wide_s, _) in enumerate(_null.FAMILY):
        L = np.exp(-0.5 * ((z[:, None] - z) / (wide_z * sigma)) ** 2)
        if s == "age":
            K = np.exp(-0.5 * ((rows["age"][:, None] - rows["age"]) / (wide_s * tau)) ** 2)
        else:
            K = codes[:, None] == codes
        mean = np.sum(w**2 * np.diag(H @ K @ H.T) * np.diag(H @ L @ H.T))
        assert values[k if s == "age" else 2 * k, 1:].mean() == pytest.approx(mean, rel=0.08)


@pytest.mark.parametrize("s", ["numbers", "labels"])
def test_the_mean_over_exchanged_rows_is_that_of_all_permutations(s):
    rng = np.random.default_rng(0)
    z, w = rng.normal(size=6), rng.exponential(size=6)
    column = np.array([1.0, 2.0, 4.0, 7.0, 11.0, 16.0]) if s == "numbers" else np.array(list("abcdef"))
    stratum, _ = stratum_of(law_of(z, column, sample_weight=w), of_s=False)
    means = all_permutations(z, column, w).mean(axis=1)
    found = stratum.exchanged_means()
    np.testing.assert_allclose(found if s == "numbers" else found[::2], means, rtol=1e-9)


def test_a_rare_score_of_a_rare_label_is_judged_by_permuted_rows_too():
    n = 400
    rng = np.random.default_rng(3)
    z, s = np.zeros(n), np.full(n, "most")
    z[:20], s[20:40] = 1.0, "few"
    result = independence(law_of(z, s, sample_weight=rng.uniform(0.5, 2.0, n)), 99, rng)
    assert any("larger of two" in note for note in result.notes)


def test_columns_that_do_not_vary_are_no_evidence():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=60), np.repeat([0, 1], 30)
    result = independence(law_of(z, np.ones(60)), 19, rng)
    assert (result.statistic, result.pvalue) == (pytest.approx(np.log(0.5)), 1.0)
    # Within one label S varies, within the other it does not.
    table = ScoreTable.from_rows(z, np.where(y == 0, z, 1.0), outcome=y)
    assert independence([table.law(0), table.law(1)], 19, rng).pvalue == 1 / 20
