"""Rows of DuckDB, SQLite and an untried driver: what comes, that nothing is changed, what is never told."""

import contextlib
import hashlib
import json
import logging
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.scale import postgres
from frhsic.cli import run
from frhsic.data import to_sensitive
from frhsic.sources import drop_missing, open_sql
from frhsic.sources._drivers import DRIVERS
from frhsic.sources._sql import _regroup

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
adbc_sqlite = pytest.importorskip("adbc_driver_sqlite", reason="adbc-driver-sqlite is not installed")

pytestmark = pytest.mark.xdist_group("database")
FILES = {"duckdb": "bank.duckdb", "sqlite": "bank.db"}
ROWS = 3_000
COLUMNS = ["--score", "score", "--sensitive", "age", "--sensitive", "sex"]
QUERY = "select score, age, sex from scores"


def table(rows=ROWS):
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, rows)
    score = 1.0 / (1.0 + np.exp(-(age - 50.0) / 20.0 - rng.normal(size=rows)))
    sex = rng.choice(["f", "m"], rows)
    return list(zip(score.tolist(), age.tolist(), sex.tolist(), strict=True))


def write(path, rows):
    """Write a table of scores, in the kind of database that the suffix tells."""
    connection = duckdb.connect(path) if path.endswith(".duckdb") else sqlite3.connect(path)
    with contextlib.closing(connection):
        connection.execute("create table scores (score double, age integer, sex text)")
        if path.endswith(".duckdb"):
            score, age, sex = (pa.array(column) for column in zip(*rows, strict=True))
            arrow = pa.table({"score": score, "age": age, "sex": sex})
            connection.register("arrow", arrow)
            connection.execute("insert into scores select * from arrow")
        else:
            connection.executemany("insert into scores values (?, ?, ?)", rows)
            connection.commit()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    for file in FILES.values():
        write(str(folder / file), table())
    return folder


@pytest.fixture
def here(written, tmp_path, monkeypatch):
    """Work in a folder with a copy of both databases."""
    for file in FILES.values():
        shutil.copy(written / file, tmp_path / file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=FILES)
def file(request, here):
    return FILES[request.param]


def rows(source):
    return pa.Table.from_batches(list(source), source.schema)


def make(path, statements):
    """Run statements on a new database; in a process of its own, whose locks are its own."""
    module = "duckdb" if str(path).endswith(".duckdb") else "sqlite3"
    code = f"import {module}\nc = {module}.connect({str(path)!r})\n"
    code += "".join(f"c.execute({one!r})\n" for one in statements) + "c.commit()\nc.close()\n"
    if module == "duckdb":
        code = code.replace("c.commit()\n", "")
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def state(folder):
    """Return every file below a folder with its digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# What comes


def test_a_query_comes_as_batches_of_so_many_rows(file):
    source = open_sql(file, QUERY, batch_rows=1_100)
    assert source.columns == ("score", "age", "sex")
    assert [batch.num_rows for batch in source] == [1_100, 1_100, 800]
    assert [tuple(row.values()) for row in rows(source).to_pylist()] == table()
    s = to_sensitive(next(iter(source)).select(["age", "sex"]))
    assert s.kinds == ("continuous", "categorical")
    assert repr(source) == "Source(one stream, columns 'score', 'age', 'sex')"
    assert rows(open_sql(file, QUERY + " order by score desc;"))["score"].to_pylist() == sorted(
        (score for score, _, _ in table()), reverse=True
    )


@pytest.mark.parametrize("sizes", [[], [0], [5], [3, 3], [1] * 11, [25, 0, 4]])
def test_batches_are_cut_anew_and_no_row_is_lost(sizes):
    batches, start = [], 0
    for size in sizes:
        batches.append(pa.RecordBatch.from_pydict({"x": pa.array(range(start, start + size), pa.int64())}))
        start += size
    found = [batch["x"].to_pylist() for batch in _regroup(batches, 5)]
    everything = list(range(sum(sizes)))
    assert [x for batch in found for x in batch] == everything
    assert [len(batch) for batch in found if batch] == [
        len(everything[i : i + 5]) for i in range(0, len(everything), 5)
    ]


def test_a_query_without_rows_is_an_error_when_it_is_opened(file, capsys):
    with pytest.raises(ValueError, match=r"'query' must return rows\. Got none\. Check its conditions"):
        open_sql(file, f"{QUERY} where age > 1000")
    assert run(["audit", file, "--query", f"{QUERY} where age > 1000", *COLUMNS]) == 2
    assert capsys.readouterr().err.startswith("Error: --query must return rows. Got none.")


def test_nulls_are_errors_unless_they_are_allowed(file):
    query = "select nullif(age, 30) as age from scores"
    with pytest.raises(ValueError, match="'query' must have no missing values in column 'age'"):
        list(open_sql(file, query))
    source = open_sql(file, query, allow_missing=True)
    expected = sum(age != 30 for _, age, _ in table())
    assert 0 < expected < ROWS
    assert sum(drop_missing(batch).num_rows for batch in source) == expected


def test_kinds_of_duckdb(here):
    columns = {
        "money": "(i / 4)::decimal(10, 2)",
        "zone": "(case when i % 2 = 0 then 'north' else 'south' end)::zone",
        "member": "i % 2 = 0",
        "small": "i::utinyint",
        "wide": "i::ubigint",
        "born": "date '2000-01-01' + i::int",
        "huge": "i::hugeint",
        "uhuge": "340282366920938463463374607431768211455::uhugeint",
        "list": "[i]",
        "moment": "timestamp '2000-01-01 00:00:00'",
    }
    every = ", ".join(f"{value} as {name}" for name, value in columns.items())
    done = make(
        "kinds.duckdb",
        [
            "create type zone as enum ('north', 'south')",
            f"create table kinds as select {every} from range(100) as t(i)",
        ],
    )
    assert done.stderr == ""
    found = rows(open_sql("kinds.duckdb", "select money, zone, member, small, wide from kinds"))
    assert [str(kind) for kind in found.schema.types] == ["double", "string", "bool", "uint8", "uint64"]
    assert found["money"].to_pylist() == [round(i / 4, 2) for i in range(100)]
    assert found["zone"].to_pylist() == ["north", "south"] * 50
    assert to_sensitive(found.select(["zone"])).categories[0] == ("north", "south")
    # The driver gives 2^128 - 1 as -1.
    for name in ("huge", "uhuge"):
        with pytest.raises(ValueError, match=f"128 bits in column '{name}'. Write CAST"):
            open_sql("kinds.duckdb", f"select {name} from kinds")
    assert rows(open_sql("kinds.duckdb", "select huge::bigint as n from kinds"))["n"][7].as_py() == 7
    for name in ("born", "list", "moment"):
        (batch,) = open_sql("kinds.duckdb", f"select {name} from kinds")
        with pytest.raises((ValueError, TypeError), match=f"'{name}'"):
            to_sensitive(batch)


MIXED = {
    "text among numbers": ([1, "Lovelace", 3], "text and numbers in column 'x'"),
    "number among text": (["Lovelace", 2], "text and numbers in column 'x'"),
    "number after many texts": (["a"] * 70_000 + [2], "text and numbers in column 'x'"),
    "bytes among numbers": ([1, b"Lovelace"], "text and numbers in column 'x'"),
    "text after many numbers": ([1] * 70_000 + ["Lovelace"], "another type in a later row of column 1"),
    "fraction after many whole numbers": ([1] * 70_000 + [0.5], "another type in a later row of column 1"),
}


@pytest.mark.parametrize("case", MIXED)
def test_several_types_in_a_column_of_sqlite_are_an_error(case, here):
    values, words = MIXED[case]
    with contextlib.closing(sqlite3.connect("mixed.db")) as connection:
        connection.execute("create table t (x)")
        connection.executemany("insert into t values (?)", [(value,) for value in values])
        connection.commit()
    with pytest.raises(ValueError, match=words) as refused:
        list(open_sql("mixed.db", "select x from t"))
    assert "CAST(x AS REAL)" in str(refused.value)
    assert "Lovelace" not in str(refused.value)
    source = open_sql("mixed.db", "select cast(x as real) as x from t")
    assert rows(source).num_rows == len(values)


def test_whole_numbers_among_fractions_of_sqlite_are_numbers(here):
    with contextlib.closing(sqlite3.connect("mixed.db")) as connection:
        connection.execute("create table t (x numeric)")  # 1.0 is stored as 1
        connection.executemany("insert into t values (?)", [(1.0,), (0.5,), (2**53 + 1,)])
        connection.commit()
    assert rows(open_sql("mixed.db", "select x from t"))["x"].to_pylist() == [1.0, 0.5, float(2**53)]


# One state, in one order


def test_all_passes_over_sqlite_see_one_state(here):
    assert make("wal.db", ["pragma journal_mode = wal", "create table t as select 1 as x"]).stderr == ""
    source = open_sql("wal.db", "select x from t")
    assert make("wal.db", ["insert into t values (2)"]).stderr == ""  # which is not kept from writing
    assert rows(source)["x"].to_pylist() == [1]
    assert rows(open_sql("wal.db", "select x from t"))["x"].to_pylist() == [1, 2]
    # Without a write-ahead log a writer waits, here for 5 seconds.
    source = open_sql("bank.db", QUERY)
    assert "locked" in make("bank.db", ["delete from scores"]).stderr
    assert rows(source).num_rows == ROWS
    del source
    assert make("bank.db", ["delete from scores"]).stderr == ""


def test_a_duckdb_file_is_not_written_to_while_it_is_read_or_the_next_pass_is_an_error(here):
    source = open_sql("bank.duckdb", QUERY)
    assert "lock" in make("bank.duckdb", ["delete from scores"]).stderr
    # The system drops the locks of a process when any of its handles is closed.
    list(open_sql("bank.duckdb", "select 1 as x"))
    assert make("bank.duckdb", ["delete from scores", "checkpoint"]).stderr == ""
    with pytest.raises(ValueError, match="'database' must stay as it was when the source was opened"):
        list(source)
    Path("bank.duckdb").unlink()
    with pytest.raises(ValueError, match="'database' must stay as it was"):
        list(source)


def test_groups_of_duckdb_come_in_one_order_with_the_same_bits(here):
    make("groups.duckdb", ["create table t as select random() as x from range(1000000)"])
    query = "select (x * 10000)::int as g, sum(x) as total from t group by g"
    first, second = (rows(open_sql("groups.duckdb", query)) for _ in range(2))
    assert first.equals(second)  # with four threads they differ


def test_two_passes_at_a_time_are_two_passes(file):
    source = open_sql(file, QUERY, batch_rows=500)
    pairs = list(zip(source, source, strict=True))
    assert len(pairs) == 6
    assert all(one.equals(other) for one, other in pairs)


# What is refused, and that nothing is changed

STATEMENTS = {
    "insert": "insert into scores values (1, 2, 'f')",
    "with": "with x as (select 1 as a) insert into scores select a, a, 'f' from x",
    "returning": "delete from scores returning age",
    "drop": "drop table scores",
    "create": "create table more (a integer)",
    "temporary": "create temp table more as select 1 as a",
    "attach": "attach 'other.{suffix}' as other",
    "vacuum": "vacuum into 'other.{suffix}'",
    "copy": "copy scores to 'out.csv'",
    "export": "export database 'out'",
    "pragma": "pragma journal_mode = wal",
    "set": "set threads = 4",
    "install": "install httpfs",
    "load": "load httpfs",
    "begin": "begin",
    "commit": "commit",
    "checkpoint": "checkpoint",
    "explain": "explain select age from scores",
    "two": "select 1 as a; select 2 as a",
    "two, the second attaches": "select 1 as a; attach 'other.{suffix}' as other",
    "out of the brackets": "select 1 as a) as t; attach 'other.{suffix}' as other; select * from (select 1",
    "out of the brackets, comment": "select 1 as a) as t; attach 'other.{suffix}' as other; --",
    "empty": "",
    "comment": "-- nothing",
    "syntax": "selec age from scores",
    "column": "select scroe from scores",
    "table": "select age from nowhere",
    "same name": "select age, age from scores",
    "file function": "select * from read_csv('secret.csv')",
    "file as a table": "select * from 'secret.csv'",
    "text of a file": "select content from read_text('secret.csv')",
    "names of files": "select file from glob('*')",
    "extension": "select load_extension('secret.csv') as a",
    "write a file": "select writefile('out.csv', 'a') as a",
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_what_is_no_select_is_refused_and_changes_nothing(case, file, here):
    (here / "secret.csv").write_text("a\nLovelace\n")
    before = state(here)
    query = STATEMENTS[case].format(suffix=file.partition(".")[2])
    with pytest.raises(ValueError, match="'query' must ") as refused:
        list(open_sql(file, query))
    assert "Lovelace" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert state(here) == before
    assert rows(open_sql(file, "select count(*) as n from scores"))["n"].to_pylist() == [ROWS]


WORDS = {
    "syntax": 'near "selec"',
    "column": "scroe",
    "table": "nowhere",
    "two": "a single SELECT",
    "insert": "a single SELECT",
    "attach": "a single SELECT",
    "same name": "distinct names. Got 'age' twice",
}


@pytest.mark.parametrize("case", WORDS)
def test_a_refused_query_is_told_what_is_wrong_with_it(case, file):
    with pytest.raises(ValueError) as refused:
        open_sql(file, STATEMENTS[case].format(suffix="db"))
    assert WORDS[case] in str(refused.value)
    assert not str(refused.value).count("!.")


@pytest.mark.parametrize("kind", FILES)
def test_the_connection_itself_may_only_read(kind, here):
    """Without the check of the query: what the session does to a statement that writes."""
    with DRIVERS[kind].connect(FILES[kind]) as connection, connection.cursor() as cursor:
        for case in ("insert", "drop", "create", "returning"):
            with pytest.raises(Exception, match=r"read-?only|read-only mode|aborted"):
                cursor.execute(STATEMENTS[case]).fetchall()
        if kind == "duckdb":
            (here / "secret.csv").write_text("a\n1\n")
            for case in ("attach", "copy", "export", "file function", "file as a table", "text of a file"):
                with pytest.raises(Exception, match="disabled by configuration"):
                    cursor.execute(STATEMENTS[case].format(suffix="duckdb")).fetchall()
            for statement in ("set enable_external_access = true", "set threads = 4"):
                with pytest.raises(Exception, match="locked"):
                    cursor.execute(statement)
    assert rows(open_sql(FILES[kind], "select count(*) as n from scores"))["n"].to_pylist() == [ROWS]


def test_an_error_while_a_query_runs_does_not_quote_the_data(file):
    query = "select json_extract(sex || 'Lovelace', '$.a') as x from scores"
    if file.endswith(".duckdb"):
        query = "select (sex || 'Lovelace')::int as x from scores"
    with pytest.raises(ValueError, match=r"runs to its end\. Got an error") as refused:
        list(open_sql(file, query))
    assert "Lovelace" not in str(refused.value)


# What is no database


@pytest.mark.parametrize("suffix", [".db", ".sqlite3", ".duckdb"])
def test_what_is_no_database_is_refused_and_no_file_is_made(suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"none{suffix}"):
        open_sql(f"none{suffix}", "select 1 as x")
    assert list(tmp_path.iterdir()) == []
    Path(f"folder{suffix}").mkdir()
    with pytest.raises(ValueError, match=r"must be the path of a \w+ file. Got a directory"):
        open_sql(f"folder{suffix}", "select 1 as x")
    os.mkfifo(f"pipe{suffix}")
    with pytest.raises(ValueError, match="Got a pipe or device"):
        open_sql(f"pipe{suffix}", "select 1 as x")
    Path(f"text{suffix}").write_text("score,age\n1,2\n" * 500)
    with pytest.raises(ValueError, match=r"file that can be read. Got another file.* name its driver"):
        open_sql(f"text{suffix}", "select 1 as x")
    other = "x.duckdb" if suffix != ".duckdb" else "x.db"
    assert make(other, ["create table t as select 1 as x"]).stderr == ""
    shutil.copy(other, f"other{suffix}")
    with pytest.raises(ValueError, match=r"file that can be read. Got another file"):
        open_sql(f"other{suffix}", "select 1 as x")
    kind = "sqlite" if other == "x.db" else "duckdb"
    assert rows(open_sql(f"other{suffix}", "select x from t", driver=kind))["x"].to_pylist() == [1]
    assert {path.name for path in tmp_path.iterdir()} == {
        f"folder{suffix}", f"pipe{suffix}", f"text{suffix}", f"other{suffix}", other
    }  # fmt: skip


def test_signs_in_a_path_are_no_options(here):
    for name in ("a b?mode=rwc#x%41.db", "file:c.db", "a b#c%41.duckdb"):
        assert make(f"./{name}", ["create table t as select 1 as x"]).stderr == ""
        assert rows(open_sql(name, "select x from t"))["x"].to_pylist() == [1]


def test_a_path_may_be_in_a_variable_or_have_no_suffix(here, monkeypatch):
    monkeypatch.setenv("BANK_DATABASE", "bank.db")
    assert rows(open_sql("BANK_DATABASE", QUERY)).num_rows == ROWS
    shutil.copy("bank.duckdb", "bank")
    assert rows(open_sql("bank", QUERY, driver="duckdb")).num_rows == ROWS
    monkeypatch.setenv("BANK_DATABASE", "/private/sesame.db")
    with pytest.raises(FileNotFoundError, match="BANK_DATABASE") as refused:
        open_sql("BANK_DATABASE", QUERY)
    assert "sesame" not in str(refused.value)  # the caller did not type it


def test_a_lock_of_a_writer_is_said(here):
    code = (
        "import duckdb, sqlite3\na = duckdb.connect('bank.duckdb')\nb = sqlite3.connect('bank.db')\n"
        "b.execute('begin exclusive')\nprint('ready', flush=True)\ninput()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as writer:
        assert writer.stdout.readline() == "ready\n"
        for name in FILES.values():
            with pytest.raises(ValueError, match=f"Got a lock of another process.*'{name}'"):
                open_sql(name, QUERY)
        writer.communicate("\n")
    assert rows(open_sql("bank.db", QUERY)).num_rows == ROWS


@pytest.mark.parametrize("kind", FILES)
def test_a_missing_package_is_named_with_its_extra(kind, here, monkeypatch):
    monkeypatch.setitem(sys.modules, f"adbc_driver_{kind}", None)
    with pytest.raises(ImportError, match=rf"needs its ADBC driver.*frhsic\[{kind}\]"):
        open_sql(FILES[kind], QUERY)


# Any other driver


@pytest.fixture
def manifest(here, monkeypatch):
    """Install SQLite's driver under another name, as its users would: by a manifest."""
    folder = here / "drivers"
    folder.mkdir()
    library = adbc_sqlite._driver_path()
    text = f"""
        manifest_version = 1
        name = "Bank"
        version = "1.0.0"
        [Driver]
        shared = "{library}"
    """
    (folder / "bank.toml").write_text(textwrap.dedent(text))
    monkeypatch.setenv("ADBC_DRIVER_PATH", str(folder))


@pytest.mark.usefixtures("manifest")
def test_a_driver_by_its_name_is_read_and_said_to_be_untried(here, monkeypatch, capsys):
    monkeypatch.setenv("BANK", f"file:{here}/bank.db?key=sesame")
    with pytest.warns(UserWarning, match="Driver 'bank' is untried.*may only read"):
        source = open_sql("BANK", QUERY, driver="bank")
    assert rows(source).num_rows == ROWS
    before = state(here)
    with (
        pytest.warns(UserWarning, match="untried"),
        pytest.raises(ValueError, match="'query' must be a single SELECT"),
    ):
        open_sql("BANK", "delete from scores", driver="bank")
    assert state(here) == before
    line = ["audit", "BANK", "--query", QUERY, "--driver", "bank", *COLUMNS[:4], "--json", "a.json"]
    assert run([*line, "--report", "a.html"]) == 0
    out, err = capsys.readouterr()
    assert "Driver 'bank' is untried" in err
    for text in (out, err, Path("a.json").read_text(), Path("a.html").read_text()):
        assert "sesame" not in text
    assert run(["verify", "a.json", "BANK", "--query", QUERY, "--driver", "bank"]) == 0
    assert " 0 differ" in capsys.readouterr().out


def test_a_driver_that_is_not_there_is_said(here, monkeypatch):
    monkeypatch.setenv("BANK", "me:sesame@bank/scores")
    with pytest.raises(ImportError, match="Driver 'nosuch' needs its ADBC driver") as refused:
        open_sql("BANK", QUERY, driver="nosuch")
    assert "sesame" not in str(refused.value)
    for driver in ("../x", "a b", "", "Bank", "/lib/x.so"):
        with pytest.raises(ValueError, match="'driver' must be the name"):
            open_sql("BANK", QUERY, driver=driver)


# What is never told


@pytest.mark.parametrize(
    ("database", "driver"),
    [
        ("me:sesame@bank/scores", "nosuch"),
        ("me:sesame@bank/scores", None),
        ("host=bank password=sesame", None),
        ("mysql://me:sesame@bank/scores", None),
        ("sqlite:///sesame.db", None),
        ("duckdb:///x.duckdb?key=sesame", "duckdb"),
        ("mysql://me:sesame@bank/scores", "postgresql"),
        ("x://bank/scores?key=sesame", "nosuch"),
        ("x://me:se/sesame@bank/scores", "nosuch"),
    ],
)
def test_an_address_that_cannot_be_used_is_not_repeated(
    database, driver, capfd, caplog, tmp_path, monkeypatch
):
    from tests.contracts.test_sql import assert_silent

    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    with pytest.raises((ValueError, ImportError, ConnectionError)) as refused:
        open_sql(database, QUERY, driver=driver)
    assert_silent(refused.value, ("sesame",))
    named = [] if driver is None else ["--driver", driver]
    assert run(["audit", database, "--query", QUERY, *named, *COLUMNS, "--report", "a.html"]) == 2
    assert "sesame" not in "".join(capfd.readouterr()) + caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_database_is_shown_as_what_was_typed_or_as_its_host():
    from frhsic.sources import redact_database

    for database, shown in {
        "BANK": "BANK",
        "data/bank.db": "data/bank.db",
        "postgresql://me:sesame@db.bank:5432/scores?x=sesame#sesame": "postgresql://db.bank:5432",
        "postgresql://me:se/sesame@db.bank/scores": "postgresql://…",
        "postgresql://me:x@sesame@db.bank/scores": "postgresql://…",
        "x:///scores?key=sesame": "x://…",
    }.items():
        assert redact_database(database) == shown


def test_options_that_belong_to_a_query_need_one(here, capsys):
    assert run(["audit", "bank.db", "--driver", "sqlite", *COLUMNS]) == 2
    assert "--driver must come with --query" in capsys.readouterr().err
    line = ["audit", "bank.db", "--query", QUERY, "--contributions", "phi_", *COLUMNS]
    assert run(line) == 2
    assert "--contributions must" in capsys.readouterr().err


# Records


@pytest.fixture(scope="module")
def server():
    """Start PostgreSQL with the same rows."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(postgres.server("sesame"))
        except FileNotFoundError as error:
            pytest.skip(str(error))
        dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
        url = f"postgresql://auditor:sesame@/postgres?host={folder}"
        score, age, sex = (pa.array(column) for column in zip(*table(), strict=True))
        with dbapi.connect(url) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("scores", pa.table({"score": score, "age": age, "sex": sex}))
            connection.commit()
        yield url


def test_a_record_is_verified_by_its_database_and_by_the_others(here, server, monkeypatch, capsys):
    monkeypatch.setenv("BANK_DATABASE", server)
    databases = [*FILES.values(), "BANK_DATABASE"]
    texts = []
    for database in databases:
        line = ["audit", database, "--query", QUERY, *COLUMNS, "--report", "a.html"]
        assert run([*line, "--json", f"{database}.json"]) == 0
        texts.append(Path(f"{database}.json").read_text())
        for text in (*capsys.readouterr(), texts[-1], Path("a.html").read_text()):
            assert "sesame" not in text
            assert str(here) not in text  # the path was typed without the folder
    assert texts[0] == texts[1] == texts[2]
    assert json.loads(texts[0])["record"]["options"]["query"] == QUERY
    for database in databases:
        assert run(["verify", f"{databases[0]}.json", database, "--query", QUERY]) == 0
        out, _ = capsys.readouterr()
        assert "Columns: 3 of 3" in out
        assert " 0 differ" in out
        assert "within" not in out


def test_a_changed_row_and_another_order_are_other_rows(file, capsys):
    assert run(["audit", file, "--query", QUERY, *COLUMNS, "--json", "a.json"]) == 0
    other = f"{QUERY} order by score"
    plain = json.loads(Path("a.json").read_text())
    capsys.readouterr()
    assert run(["verify", "a.json", file, "--query", other]) == 2
    assert "--query must be the query of the record" in capsys.readouterr().err
    assert plain["record"]["options"]["query"] == QUERY
    score = math.nextafter(table()[0][0], 2.0)
    assert make(file, [f"update scores set score = {score!r} where score = {table()[0][0]!r}"]).stderr == ""
    assert run(["verify", "a.json", file, "--query", QUERY]) == 1
    assert "the column scores score is not the recorded one" in capsys.readouterr().err


def test_postgresql_reads_in_the_order_of_the_table(server):
    names = "synchronize_seqscans", "max_parallel_workers_per_gather"
    query = "select " + ", ".join(f"current_setting('{name}') as {name}" for name in names)
    assert rows(open_sql(server, query)).to_pylist() == [dict(zip(names, ("off", "0"), strict=True))]
