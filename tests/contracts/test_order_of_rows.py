"""Audits of many rows are the same whatever the order of the rows, and the pieces."""

import contextlib
import json
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from frhsic.auditing import _counting, audit, audit_source
from frhsic.auditing._audit import check_gaps
from frhsic.auditing._counting import Roles, count_source
from frhsic.auditing._source import plan_sketches
from frhsic.cli._errors import describe
from frhsic.inference import Interval
from frhsic.kernels.scale import median_bandwidth, median_of_all_rows
from frhsic.sources import open_source, open_sql, write_table
from frhsic.table import ScoreTable

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
def test_scales_of_a_sketch_are_those_of_all_rows_in_any_order(order):
    table = people(60_000)
    sample = open_source(ordered(table, order)).sample()
    ((_, found),) = plan_sketches(sample, ["score"], ["age"], {})
    score, age = (torch.tensor(table[name].to_numpy()).double() for name in ("score", "age"))
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


def everyone(n=3_000):
    rng = np.random.default_rng(1)
    table = people(n)
    more = {
        "income": np.round(np.exp(10.6 + 0.9 * rng.normal(size=n)), 2),
        "region": rng.choice(["north", "south", "west"], n),
        "weight": rng.uniform(0.5, 2.0, n),
        "paid": rng.random(n) < table["score"].to_numpy(),
        "days": np.round(30 * table["score"].to_numpy() + rng.normal(size=n), 3),
    }
    return pa.table({**{name: table[name] for name in table.column_names}, **more})


OUTCOMES = {"no outcome": None, "labels": "paid", "numbers": "days"}


@pytest.mark.parametrize("weight", [None, "weight"], ids=["equal", "weights"])
@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_rows_in_pieces_in_any_order_have_the_tables_of_rows_in_memory(outcome, weight, monkeypatch):
    names, found = ("age", "income", "region"), set()
    table = everyone()
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    for order, rows, held in (("id", 3_000, True), ("score", 700, True), ("age", 97, False)):
        monkeypatch.setattr(_counting, "_HELD_BYTES", 2**20 if held else 0)
        monkeypatch.setattr(_counting, "_BLOCK", 500)
        source = open_source(ordered(table, order), batch_rows=rows)
        counts = count_source(
            source,
            Roles("score", names, outcome, weight),
            kinds={},
            thresholds=(0.5,),
            regions={"income": (40_000.0,)},
        )
        assert counts.drawn is None
        found.add(tuple(one.digest for one in (*counts.tables, *sum(counts.beside, ()))))
    options = {"sample_weight": None if weight is None else columns[weight]}
    labels = columns["paid"] if outcome == "paid" else None
    s = {name: [columns[name]] for name in names} | {"all": [columns[name] for name in names]}

    def count(z, name, **more):
        own = names if name == "all" else [name]
        at = {"at_s": (40_000.0,)} if name == "income" else {}
        return ScoreTable.from_rows(z, s[name], names=own, **options, **at, **more).digest

    score, days = columns["score"], columns["days"]
    expected = [count(score, name, outcome=labels, at_scores=(0.5,)) for name in s]
    if outcome == "days":
        expected += [count(z, name) for name in s for z in (days, days - score, np.abs(days - score))]
    assert found == {tuple(expected)}


def printed(found):
    """What an audit prints and writes, without digests of columns in their order."""
    plain = found.to_dict()
    del plain["digest"], plain["record"]
    return str(found), json.dumps(plain)


@pytest.mark.parametrize("outcome", ["paid", "days"])
def test_the_audit_of_pieces_in_any_order_is_the_same_to_the_last_digit(outcome, tmp_path):
    table, said, results = everyone(1_200), [], set()
    write_table(ordered(table, "age"), tmp_path / "a.csv")
    sources = [
        open_source(table),
        open_source(ordered(table, "score"), batch_rows=100),
        open_source(tmp_path / "a.csv"),
    ]
    options = {"thresholds": 0.5, "regions": {"age >= 62": "above"}, "random_state": 3}
    for source in sources:
        found = audit_source(
            source,
            scores="score",
            sensitive_features=["age", "region"],
            y_true=outcome,
            progress=lambda what, state: said.append((what, state.rows)),
            **options,
        )
        results.add(printed(found))
    assert len(results) == 1
    assert said[:2] == [("ends", 1_200), ("ends", 100)]
    assert found.attribute("age").outcome.calibration is not None
    assert (found.attribute("age").outcome.auc is not None) == (outcome == "paid")
    assert (found.attribute("age").outcome.absolute_error is not None) == (outcome == "days")


def test_the_audit_of_pieces_says_what_that_of_rows_says():
    table = everyone(2_000)
    columns = {name: table[name].to_numpy() for name in ("age", "score", "days")}
    found = audit_source(
        open_source(table), scores="score", sensitive_features="age", y_true="days", random_state=0
    ).attribute("age")
    rows = audit(
        columns["score"], sensitive_features={"age": columns["age"]}, y_true=columns["days"], random_state=0
    ).attribute("age")
    assert found.test.pvalue == rows.test.pvalue
    for name in ("gap", "gdp", "rank_gap", "gap_worst", "normalized_hsic"):
        ours, theirs = ((x.low, x.estimate, x.high) for x in (one.measures[name] for one in (found, rows)))
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9), name
    for name in ("calibration", "curve", "absolute_error"):
        ours, theirs = (getattr(one.outcome, name) for one in (found, rows))
        assert ours.points == theirs.points
        assert ours.mean == pytest.approx(theirs.mean, abs=1e-4)
        assert ours.low == pytest.approx(theirs.low, abs=2e-3)


def test_many_columns_jointly_are_rows_drawn_at_random():
    rng = np.random.default_rng(0)
    s = {f"s{j}": rng.normal(size=1_500) for j in range(3)}
    score = s["s0"] + rng.normal(size=1_500)
    source = open_source(pa.table({"score": score, "paid": score > 0, "w": rng.random(1_500), **s}))
    roles = Roles("score", tuple(s), "paid", "w")
    counts = count_source(source, roles, kinds={}, thresholds=(), regions={})
    assert [len(table.s) for table in counts.tables] == [1, 1, 1]
    assert counts.drawn.s.names == tuple(s)
    found = audit_source(source, scores="score", sensitive_features=list(s), y_true="paid", random_state=0)
    assert (found.n, found.joint.test.n) == (1_500, 1_500)
    assert any("All columns jointly have too many cells for a table" in note for note in found.notes)


def test_rows_of_weight_zero_and_codes_for_no_value():
    rng = np.random.default_rng(0)
    age = np.where(np.arange(3_000) % 100 == 0, -1, rng.integers(18, 78, 3_000))
    weight = np.where(np.arange(3_000) % 2 == 0, 2.0, 0.0)
    source = open_source(pa.table({"age": age, "score": rng.random(3_000), "w": weight}))
    found = audit_source(source, scores="score", sensitive_features="age", sample_weight="w", random_state=0)
    assert (found.n, found.weighted) == (1_500, False)  # equal weights are none
    assert any(
        note.startswith("-1 in 30 rows of column 'age' may stand for no value") for note in found.notes
    )


WRONG = {
    "one value": ({"score": [0.5] * 60, "age": range(60)}, {}, "'scores' must have more than one value"),
    "one age": ({"score": range(60), "age": [3] * 60}, {}, "'sensitive_features' must vary in column 'age'"),
    "text": (
        {"score": range(60), "age": ["1", "2", "x"] * 20},
        {},
        "'sensitive_features' must hold numbers or labels in column 'age', not text that is mostly numbers",
    ),
    "few": ({"score": range(40), "age": range(40)}, {}, "'scores' must have at least 50 rows"),
    "labels": (
        {"score": range(60), "age": range(60), "y": list("abcdefghijkl") * 5},
        {"y_true": "y"},
        "'y_true' must have at most 10 labels, or hold numbers",
    ),
    "weights": (
        {"score": range(60), "age": range(60), "w": [-1.0] * 60},
        {"sample_weight": "w"},
        "'sample_weight' must not be negative",
    ),
    "positive": (
        {"score": range(60), "age": range(60)},
        {"positive_label": 1},
        "must be None without 'y_true'",
    ),
    "partials": (
        {"score": range(60), "age": range(60)},
        {"partials": "kept"},
        "'partials' must come with several",
    ),
}


@pytest.mark.parametrize(("columns", "options", "words"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_counted_is_an_error_in_words(columns, options, words):
    source = open_source(pa.table({name: list(column) for name, column in columns.items()}))
    with pytest.raises(ValueError, match=words):
        audit_source(source, scores="score", sensitive_features="age", **options)


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
