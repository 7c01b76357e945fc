"""The table of counts: the same numbers as from rows, and the same integers however rows are counted."""

import math

import numpy as np
import pytest
import torch

from frhsic.data import to_sensitive
from frhsic.dependence import HSIC
from frhsic.inference import independence_test
from frhsic.inference._embedding import _embed, embedding
from frhsic.inference._table import TableEmbedding
from frhsic.kernels import Gaussian, default_kernel
from frhsic.kernels.scale import median_bandwidth
from frhsic.numerics._permutations import random_orders
from frhsic.table import Axis, Extent, ScoreTable, Scout
from frhsic.table import _kernels as kernels
from frhsic.table import _measures as measures
from frhsic.table._kernel_errors import KernelErrors

N = 300


def make_rows(seed=1, n=N):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 60, n).astype(float)
    return {
        "z": np.round(1 / (1 + np.exp(-(0.5 * (age - 40) / 20 + rng.normal(size=n)))), 2),
        "age": age,
        "x": np.round(rng.normal(size=n), 1),
        "label": np.array(list("abc"))[rng.integers(0, 3, n)],
        "w": rng.exponential(size=n),
        "income": np.round(np.exp(10.6 + 0.9 * rng.normal(size=n)), 2),
        "y": np.where(rng.random(n) < 0.3, "yes", "no"),
    }


COLUMNS = {"numbers": ["age"], "labels": ["label"], "both": ["age", "label"], "two numbers": ["age", "x"]}
each_columns = pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
each_weight = pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weights"])


class Both:
    """The same rows as a law of a table in which every value has its cell, and as tensors."""

    def __init__(self, columns, weighted):
        rows = make_rows()
        w = rows["w"] if weighted else None
        table = ScoreTable.from_rows(
            rows["z"], [rows[name] for name in columns], sample_weight=w, cells=512, levels=512
        )
        self.law, self.bandwidths = table.law(), kernels.Bandwidths.of(table.law())
        self.z = torch.tensor(rows["z"])[:, None]
        self.s = to_sensitive({name: rows[name] for name in columns})
        self.w = None if w is None else torch.tensor(w / w.sum())
        self.kernel_z = Gaussian(self.bandwidths.z)
        self.kernel_s = default_kernel(self.s.kinds, list(self.bandwidths.s))


@pytest.mark.parametrize("n", [5, 6, 40, 301, 2000])
@pytest.mark.parametrize("digits", [0, 1, 8])
def test_the_median_distance_of_cells_is_that_of_rows(n, digits):
    x = np.round(np.random.default_rng(n).normal(size=n), digits)
    values, counts = np.unique(x, return_counts=True)
    rows = median_bandwidth(torch.tensor(x)[:, None]).item()
    assert kernels.median_distance(values, counts.astype(float)) == pytest.approx(rows, rel=1e-12)


def naive_rank_gap(z, s):
    """Of rows: the gap of decisions at the score of a row drawn at random, ties broken at random."""
    total = 0.0
    for one in range(len(z)):
        for above in (z > z[one], z >= z[one]):  # the upper and the lower side of a tie
            rates = [above[s == value].mean() for value in s]
            total += np.abs(np.array(rates) - above.mean()).mean() / 2
    return total / len(z)


def test_the_rank_gap_is_the_gap_of_decisions_at_the_score_of_a_random_row():
    rows = make_rows(n=120)
    s = rows["label"]
    law = ScoreTable.from_rows(rows["z"], s).law()
    assert measures.rank_gap(law) == pytest.approx(naive_rank_gap(rows["z"], s), abs=1e-12)


def test_the_rank_gap_does_not_see_how_a_score_is_scaled():
    rows = make_rows()
    z, s = rows["z"], rows["age"]
    ranked = [
        measures.rank_gap(ScoreTable.from_rows(score, s).law()) for score in (z, z**3, np.exp(9 * z), -z)
    ]
    assert ranked == pytest.approx([ranked[0]] * 4, abs=1e-12)
    yes = ScoreTable.from_rows((z > 0.6).astype(float), s).law()
    assert measures.rank_gap(yes) == pytest.approx(0.5 * measures.decision_gaps(yes)[0], abs=1e-12)
    determined = ScoreTable.from_rows(np.arange(400.0), np.arange(400.0)).law()
    assert measures.rank_gap(determined) == pytest.approx(1 / 3, abs=1e-4)


# Ends of HSIC


@pytest.mark.parametrize("columns", [["age"], ["label"], ["age", "label"]], ids=["numbers", "labels", "both"])
@pytest.mark.parametrize("normalized", [False, True], ids=["plain", "normalised"])
@each_weight
def test_the_law_of_the_error_of_hsic_is_that_of_its_rows(columns, weighted, normalized):
    both = Both(columns, weighted)
    rules = both.kernel_z, both.kernel_s
    rows = _embed(both.z, both.s, rules, torch.Generator(), both.w, None)
    errors = KernelErrors.of_hsic(both.law, both.bandwidths)
    assert errors.value.unbiased == pytest.approx(rows.unbiased(), rel=1e-9)
    assert errors.standard_error(normalized) == pytest.approx(rows.standard_error(normalized), rel=1e-9)
    values, rest = errors.spectrum
    total = float(rows.eigenvalues.sum() + rows.rest) / N
    assert values.sum() + rest == pytest.approx(total, rel=1e-9)
    some = min(len(values), 10)
    assert values[:some] == pytest.approx(rows.eigenvalues[:some].numpy() / N, rel=1e-3)


def test_chance_of_a_table_has_the_law_of_permutations():
    both = Both(["x"], weighted=False)
    measure = HSIC(both.kernel_z, both.kernel_s, estimator="unbiased")
    orders = random_orders(N, 4_000, torch.Generator().manual_seed(0))
    null = measure.permuted(both.z, both.s, orders).numpy()
    errors = KernelErrors.of_hsic(both.law, both.bandwidths)
    draws = errors.by_chance(40_000, np.random.default_rng(0))
    assert abs(draws.mean()) < 4 * null.std() / np.sqrt(40_000)
    for q in (0.5, 0.9, 0.95):
        assert np.quantile(draws, q) == pytest.approx(np.quantile(null, q), abs=0.15 * null.std())


@pytest.mark.parametrize("column", ["age", "label"])
@each_weight
def test_the_interval_of_one_score_and_one_column_is_that_of_the_table(column, weighted):
    both = Both([column], weighted)
    rules = Gaussian(), default_kernel(both.s.kinds)
    seen = embedding(both.z, both.s, HSIC(*rules), torch.Generator(), both.w)
    assert isinstance(seen, TableEmbedding)
    bound = Gaussian(both.bandwidths.z), default_kernel(both.s.kinds, list(both.bandwidths.s))
    rows = _embed(both.z, both.s, bound, torch.Generator(), both.w, None)
    assert seen.length == pytest.approx(rows.length, rel=1e-9)
    assert seen.unbiased() == pytest.approx(rows.unbiased(), rel=1e-9)
    assert seen.standard_error(True) == pytest.approx(rows.standard_error(True), rel=1e-9)


def test_rows_away_from_the_means_of_their_cells_count_to_first_order():
    rng = np.random.default_rng(2)
    x = rng.normal(size=1_500)
    z, s = x + rng.normal(size=1_500), np.exp(0.5 * rng.normal(size=1_500) + 0.2 * x)
    law = ScoreTable.from_rows(z, s, levels=100, cells=100).law()
    bandwidths = kernels.Bandwidths.of(law)
    measure = HSIC(Gaussian(bandwidths.z), Gaussian(bandwidths.s[0]))
    rows = measure(torch.tensor(z)[:, None], to_sensitive(s)).item()
    at_means = law._replace(s_inner=0.0 * law.s_inner, z_inner=0.0 * law.z_inner)
    missed = abs(measures.hsic(at_means, bandwidths).biased[0] - rows)
    left = abs(measures.hsic(law, bandwidths).biased[0] - rows)
    assert left < 0.25 * missed
    assert left < 2e-3 * rows


# Cells


def test_cells_are_dyadic_and_a_value_on_a_border_belongs_below():
    x = make_rows(n=3000)["income"]
    axis = Axis.choose(Scout.of_rows(x, Extent.of_rows(x)), 64)
    scaled = axis.borders / np.diff(axis.borders, append=math.inf)
    assert (scaled[:-1] == np.round(scaled[:-1])).all()
    assert (axis.codes(axis.borders[1:]) == np.arange(axis.size)).all()
    assert (axis.codes(axis.borders[:1]) == -3).all()  # outside
    assert (axis.codes(np.array([np.nan, np.inf, -np.inf])) == [-2, -3, -3]).all()
    rows = np.bincount(axis.codes(x), minlength=axis.size)
    assert rows.sum() == len(x)
    assert rows.max() <= 1.5 * len(x) / 64
    assert Axis.from_document(axis.document()) == axis


def test_asked_thresholds_are_borders():
    z = make_rows(n=3000)["income"]
    table = ScoreTable.from_rows(z, make_rows(n=3000)["age"], at_scores=[40_000.1], levels=64)
    assert 40_000.1 in table.score.borders
    above = int(np.flatnonzero(table.score.borders == 40_000.1)[0])
    assert table.counts[..., above:].sum() == (z > 40_000.1).sum()


def test_tables_of_other_cells_have_a_common_coarsening():
    rows = make_rows(n=4000)
    first, second = (
        ScoreTable.from_rows(rows["income"][at], rows["x"][at] + rows["income"][at], cells=64, levels=64)
        for at in (slice(0, 1500), slice(1500, 4000))
    )
    a = first.coarsen(second.score, second.s)
    b = second.coarsen(first.score, first.s)
    assert (a.score, a.s) == (b.score, b.s)
    whole = ScoreTable.from_rows(rows["income"], rows["x"] + rows["income"], score_axis=a.score, s_axes=a.s)
    assert np.array_equal((a + b).counts, whole.counts)
    assert np.abs((a + b).s_sums - whole.s_sums).max() <= 2 * 64  # each cell is moved to whole units


def test_means_within_cells_are_those_of_the_rows():
    rows = make_rows(n=5000)
    for w in (None, rows["w"]):
        law = ScoreTable.from_rows(rows["z"], rows["income"], sample_weight=w, cells=64).law()
        weights = np.ones(5000) if w is None else w
        mean = np.average(rows["income"], weights=weights)
        assert law.p @ law.s[:, 0] == pytest.approx(mean, rel=1e-6)
        assert 1 / law.effective_rows == pytest.approx((weights**2).sum() / weights.sum() ** 2, rel=1e-9)
        assert np.abs(law.s_inner.sum(axis=1)).max() < 1e-6


def test_rows_that_no_cell_holds_are_counted():
    table = ScoreTable.from_rows(
        np.array([0.5, np.nan, 0.7, np.inf]), np.array([1.0, 2.0, np.nan, 1.0]),
        score_axis=Axis.of_borders([0, 1]), s_axes=[Axis.of_values(np.array([1.0, 2.0]))],
    )  # fmt: skip
    assert table.n == 1
    assert table.left_out == {"not a number": 2, "outside": 1}


def test_many_columns_jointly_are_tested_by_rows():
    rng = np.random.default_rng(0)
    s = {f"c{j}": rng.normal(size=60) for j in range(8)}
    result = independence_test(rng.normal(size=60), s, n_permutations=19, random_state=0)
    assert result.exact
    two = independence_test(rng.normal(size=60), {"a": s["c0"], "b": s["c1"]}, random_state=0)
    assert two.exact
