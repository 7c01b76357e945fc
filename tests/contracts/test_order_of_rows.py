"""Cut-offs and scales of an audit of many rows, whatever the order of the rows."""

import contextlib
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from frhsic.auditing import audit_source
from frhsic.auditing._audit import check_gaps
from frhsic.auditing._source import plan_sketches
from frhsic.cli._errors import describe
from frhsic.inference import Interval
from frhsic.kernels.scale import median_bandwidth, median_of_all_rows
from frhsic.sources import open_source, open_sql, write_table

ORDERS = {"id": ["id"], "age": ["age"], "age, id": ["age", "id"], "score": ["score"]}


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 78, n)
    score = 1.0 / (1.0 + np.exp(-(age - 48.0) / 15.0 - rng.normal(size=n)))
    return pa.table({"id": np.arange(n), "age": age, "score": score})


def ordered(table, order):
    return table.sort_by([(name, "ascending") for name in ORDERS[order]])


def test_a_sample_does_not_depend_on_how_rows_are_cut_into_batches():
    table = people(30_000)
    first = open_source(table).sample(500)
    for rows in (1_000, 7_001, 30_000):
        assert open_source(table, batch_rows=rows).sample(500).equals(first)
    assert not open_source(table).sample(500, random_state=1).equals(first)


def test_a_sample_is_of_all_rows_in_their_order():
    table = people(5_000)
    assert open_source(table).sample(5_000).equals(table)
    found = open_source(table).sample(300)["id"].to_pylist()
    assert found == sorted(set(found))
    assert len(found) == 300
    with pytest.raises(ValueError, match="'rows' must be a positive whole number"):
        open_source(table).sample(0)


def test_each_row_is_as_likely_in_a_sample_as_any_other():
    source = open_source(people(400), batch_rows=37)
    counts = sum(
        np.bincount(source.sample(40, random_state=seed)["id"], minlength=400) for seed in range(500)
    )
    # 500 draws of a tenth: chi-squared with 399 degrees, of which all but 1e-6 are between 276 and 545.
    assert 276 < ((counts - 50) ** 2 / (50 * 0.9)).sum() < 545


def test_copies_of_a_row_are_drawn_one_by_one():
    table = pa.table({"x": np.repeat(np.arange(5), 2_000)})
    counts = np.bincount(open_source(table).sample(1_000)["x"], minlength=5)
    assert counts.min() > 130  # 200 of each, give or take 13


def test_rows_with_missing_values_are_not_in_a_sample():
    table = people(4_000)
    gaps = pc.if_else(pc.less(table["id"], 2_000), None, table["score"])
    source = open_source(table.set_column(2, "score", gaps), allow_missing=True)
    assert open_source(table.slice(2_000)).sample(100).equals(source.sample(100))


@pytest.mark.parametrize("order", ORDERS)
def test_cutoffs_and_scales_are_those_of_all_rows_in_any_order(order):
    table = people(60_000)
    sample = open_source(ordered(table, order)).sample()
    ((_, found),) = plan_sketches(sample, ["score"], ["age"], {}, ())
    score, age = (torch.tensor(table[name].to_numpy()).double() for name in ("score", "age"))
    shares = torch.searchsorted(score.sort().values, torch.tensor(found.cutoffs)) / len(score)
    assert len(shares) == 255
    # Quantiles of 20,000 rows: 5 standard deviations of a share.
    assert (shares - torch.arange(1, 256) / 256).abs().max() < 0.018
    for kernel, x in ((found.kernel_z, score), (found.kernel_s, age)):
        assert kernel.bandwidth == pytest.approx(median_of_all_rows(x[:, None]), rel=0.015)


def test_the_median_of_all_rows_is_that_of_the_distances():
    x = torch.randn(6_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert median_of_all_rows(x) == pytest.approx(float(torch.pdist(x[:3_000]).median()), rel=0.03)
    assert median_of_all_rows(1e200 * x) == pytest.approx(1e200 * median_of_all_rows(x))
    assert median_of_all_rows(x[:2_000]) == median_bandwidth(x[:2_000]).item()
    # Half of all pairs coincide: the median of the others; all do: 1.
    few = torch.cat((torch.zeros(5_000, 1), torch.ones(500, 1))).double()
    assert median_of_all_rows(few) == 1.0
    assert median_of_all_rows(torch.full((5_000, 1), 3.0, dtype=torch.float64)) == 1.0


def test_the_median_of_ages_does_not_jump_from_year_to_year():
    found = [
        median_of_all_rows(torch.tensor(people(20_000, seed)["age"].to_numpy())[:, None].double())
        for seed in range(4)
    ]
    assert max(found) - min(found) < 0.6
    assert len(set(found)) == 4


@pytest.mark.parametrize("kind", ["duckdb", "sqlite", "parquet", "csv"])
def test_a_sample_is_the_same_from_every_kind_of_source(kind, tmp_path):
    table = people(3_000)
    query = "select id, age, score from scores order by score"
    if kind in ("parquet", "csv"):
        write_table(ordered(table, "score"), tmp_path / f"a.{kind}")
        source = open_source(tmp_path / f"a.{kind}")
    else:
        pytest.importorskip("duckdb" if kind == "duckdb" else "adbc_driver_sqlite")
        write_database(table, str(tmp_path / f"a.{kind}"))
        source = open_sql(str(tmp_path / f"a.{kind}"), query)
    assert source.sample(200).equals(open_source(ordered(table, "score")).sample(200))


def write_database(table, path):
    if path.endswith(".duckdb"):
        duckdb = pytest.importorskip("duckdb")
        with contextlib.closing(duckdb.connect(path)) as connection:
            connection.register("arrow", table)
            connection.execute("create table scores as select * from arrow")
        return
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("create table scores (id integer, age integer, score real)")
        connection.executemany(
            "insert into scores values (?, ?, ?)", zip(*table.to_pydict().values(), strict=True)
        )
        connection.commit()


def test_an_audit_of_sorted_rows_says_which_rows_fixed_its_scales():
    said = []
    found = audit_source(
        open_source(ordered(people(101_000), "score"), batch_rows=100_000),
        scores="score",
        sensitive_features="age",
        random_state=3,
        progress=lambda names, state: said.append((names, state.rows)),
    )
    assert said[:2] == [("a sample", 100_000), ("a sample", 101_000)]
    assert said[-1] == ("age", 101_000)
    assert found.notes[-1] == (
        "Cut-offs of the score and scales of kernels are those of 100,000 random rows of all (seed 0)."
    )
    gap, mean_gap = (found.attribute("age").measures[name] for name in ("gap", "gdp"))
    assert gap.high - gap.low < 0.03  # .48 with cut-offs from the first 5,000 rows
    assert gap.high > mean_gap.low


def interval(low, estimate, high):
    words = {"measure": "a gap", "target": "it", "method": "none", "attributes": ("age",)}
    return Interval(estimate=estimate, low=low, high=high, confidence_level=0.95, n=100, **words)


def test_a_mean_gap_above_the_gap_of_the_score_is_an_error_of_ours():
    below, above = interval(0.1, 0.12, 0.14), interval(0.15, 0.16, 0.17)
    check_gaps({"gap": above, "gdp": below}, "age")
    check_gaps({"gap": below, "gdp": interval(0.13, 0.16, 0.19)}, "age")  # their intervals meet
    check_gaps({"gdp": below}, "age")
    with pytest.raises(RuntimeError, match="a check of frhsic on itself") as refused:
        check_gaps({"gap": below, "gdp": above}, "age")
    said = "The mean gap on age must be at most the gap of the score, which bounds it. Got 0.16"
    assert describe(refused.value).startswith(said)
