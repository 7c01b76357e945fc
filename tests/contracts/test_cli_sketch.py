"""Tables that an audit does not hold in memory: patterns, engines, partials, and what is then said."""

import gzip
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from frhsic.auditing import audit_source
from frhsic.auditing._source import _code_notes
from frhsic.cli import _rows, run
from frhsic.sources import has_at_most, open_source, write_table

COLUMNS = "--score score --sensitive age"
WIDE = f"{COLUMNS} --score weight"  # a representation, which is sketched


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n)
    logit = (age - 45) / 15 + rng.normal(size=n)
    return {
        "age": age,
        "sex": rng.choice(["f", "m"], n),
        "income": np.where(logit + 0.3 * rng.normal(size=n) > 0, "high", "low"),
        "score": 1 / (1 + np.exp(-logit)),
        "weight": rng.uniform(1, 3, n),
    }


def refused(text, capsys):
    assert run(shlex.split(text)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    return err


@pytest.fixture
def scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("scores").mkdir()
    for seed in range(3):
        write_table(people(2_000, seed), f"scores/{seed}.parquet")


@pytest.mark.usefixtures("scores")
def test_a_pattern_is_counted_and_the_report_says_so(capsys):
    assert (
        run(shlex.split(f"audit 'scores/*.parquet' {COLUMNS} --label income --report a.html --json a.json"))
        == 0
    )
    out, err = capsys.readouterr()
    assert "Audit of score 'score' in *.parquet: 6,000 rows." in out
    assert err.startswith("From a table of counts (ScoreTable(6,000 rows")
    found = json.loads(Path("a.json").read_text())
    assert found["n"] == 6_000
    assert "are those of all rows" in Path("a.html").read_text()
    outcome = found["attributes"][0]["outcome"]
    assert {level["label"] for level in outcome["labels"]} == {"high", "low"}
    assert None not in [outcome[name] for name in ("calibration", "curve", "auc")]


@pytest.mark.usefixtures("scores")
def test_every_engine_finds_the_same_numbers(capsys):
    found = []
    for engine in ("local", "pool"):
        assert run(shlex.split(f"audit scores {WIDE} --sensitive sex --engine {engine} --json a.json")) == 0
        found.append(json.loads(Path("a.json").read_text()))
    capsys.readouterr()
    assert found[0] == found[1]
    assert found[0]["joint"] is not None


@pytest.mark.usefixtures("scores")
def test_what_was_done_before_a_stop_is_not_done_again(capsys):
    again = shlex.split(f"audit scores {WIDE} --partials kept --json a.json")
    assert run(again) == 0
    first, files = (
        Path("a.json").read_text(),
        {path: path.stat().st_mtime_ns for path in Path("kept").iterdir()},
    )
    assert files
    assert run(again) == 0
    capsys.readouterr()
    assert Path("a.json").read_text() == first
    assert {path: path.stat().st_mtime_ns for path in Path("kept").iterdir()} == files


@pytest.mark.usefixtures("scores")
def test_what_a_sketch_cannot_do_is_refused_in_one_sentence(capsys):
    for text, words in {
        f"audit scores {COLUMNS} --engine spark": "--engine must be one of auto, local, pool, ray",
        f"audit scores {WIDE} --kind age=categorical": "--kind must be 'continuous' for column 'age'",
        f"audit scores/0.parquet {COLUMNS} --partials kept": "--partials must come with a sketch",
        f"audit scores {COLUMNS} --partials kept": "--partials must come with several columns of scores",
        f"audit scores {COLUMNS} --engine pool": "--engine must come with --group or several --score",
        "audit scores --score score --sensitive aeg": "'aeg'",
        "audit scores --score sex --sensitive age": "--score must hold numbers",
        "audit 'nothing/*.parquet' --score score --sensitive age": "FILE must name files that exist",
        f"audit scores {COLUMNS} --label income --positive maybe": "--positive must be a label",
        f"audit NO_SUCH_VARIABLE --query 'select 1' {COLUMNS}": "FILE must be a PostgreSQL URL",
    }.items():
        assert words in refused(text, capsys)


@pytest.mark.usefixtures("scores")
def test_a_password_in_an_address_is_neither_said_nor_written(capsys):
    text = "audit postgresql://me:sesame@127.0.0.1:1/bank --query 'select 1 as score, 2 as age' "
    assert "sesame" not in refused(text + f"{COLUMNS} --report a.html", capsys)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.arrow", "t.parquet"])
def test_a_file_is_held_in_memory_up_to_the_same_number_of_rows_whatever_its_kind(
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(_rows, "IN_MEMORY", 2_000)
    path = tmp_path / name
    for rows, held in ((2_000, True), (2_010, False)):
        write_table({"score": people(rows)["score"]}, tmp_path / name.removesuffix(".gz"))
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
        assert _rows._has_few_rows(open_source(path), path) is held


def test_the_page_on_scale_says_how_many_rows_are_held_in_memory():
    page = (Path(__file__).parents[2] / "docs" / "howto" / "scale.md").read_text()
    assert f"| up to {_rows.IN_MEMORY:,} |" in page


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_lines_of_a_csv_are_counted_as_they_are_written(end, encoding, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(end.join(["age,score", *["31,0.5"] * 300, ""]).encode(encoding))
    assert has_at_most(path, 300)
    assert not has_at_most(path, 298)


def test_codes_that_may_stand_for_no_value_are_noted_of_sketched_rows_too():
    table = people(3_000)
    sample = pa.table(
        {"age": np.where(np.arange(3_000) % 100 == 0, -1, table["age"]), "score": table["score"]}
    )
    (note,) = _code_notes(sample, ["score"], ["age"])
    assert note.startswith("-1 in 30 rows of column 'age' in a sample of 3,000 rows may stand for no value")
    assert "--missing-values=-1 at the command line" in note
    assert (
        _code_notes(
            pa.table({name: table[name] for name in ("age", "score", "sex")}), ["score"], ["age", "sex"]
        )
        == ()
    )


@pytest.mark.usefixtures("scores")
def test_kinds_of_columns_that_are_counted_may_be_others(capsys):
    assert run(shlex.split(f"audit scores {COLUMNS} --kind age=categorical --json a.json")) == 0
    capsys.readouterr()
    assert json.loads(Path("a.json").read_text())["columns"][0]["kind"] == "categorical"


def test_an_outcome_of_many_numbers_is_left_out_of_a_sketch_and_that_is_said():
    table = people(3_000)
    source = open_source(pa.table({name: table[name] for name in ("score", "age", "weight")}))
    options = {"sensitive_features": "age", "y_true": "weight", "random_state": 0}
    found = audit_source(source, scores=["score", "weight"], **options)
    assert found.attribute("age").outcome is None
    assert re.search("'weight' is a number of many values", found.notes[-1])
    with pytest.raises(ValueError, match="'sensitive_features' must name columns"):
        audit_source(source, scores="score", sensitive_features="aeg")
