"""Audits of the same 200,000 rows in four orders, from files and databases: about a minute for each kind."""

import contextlib
import sqlite3

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.scale import postgres
from frhsic.auditing import audit_source
from frhsic.sources import open_source, open_sql, write_table

ROWS = 200_000
ORDERS = ("id", "age", "age, id", "score")
MEASURES = ("gap", "gdp", "gap_worst", "normalized_hsic", "hsic")
KINDS = ("parquet", "csv", "duckdb", "sqlite", "postgresql")


def people(n):
    """Return scores that rise with age, in no order of either."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 78, n)
    score = 1.0 / (1.0 + np.exp(-(age - 48.0) / 15.0 - rng.normal(size=n)))
    return pa.table({"id": np.arange(n), "age": age, "score": score})


@contextlib.contextmanager
def opened(kind, table, folder):
    """Give a function from an order to a source of the rows in that order."""
    query = "select id, age, score from scores order by {}"
    if kind in ("parquet", "csv"):

        def open_file(order):
            path = folder / f"a.{kind}"
            write_table(table.sort_by([(name, "ascending") for name in order.split(", ")]), path)
            return open_source(path)

        yield open_file
    elif kind == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        with contextlib.closing(duckdb.connect(str(folder / "a.duckdb"))) as connection:
            connection.register("arrow", table)
            connection.execute("create table scores as select * from arrow")
        yield lambda order: open_sql(str(folder / "a.duckdb"), query.format(order))
    elif kind == "sqlite":
        pytest.importorskip("adbc_driver_sqlite")
        with contextlib.closing(sqlite3.connect(folder / "a.sqlite")) as connection:
            connection.execute("create table scores (id integer, age integer, score real)")
            rows = zip(*table.to_pydict().values(), strict=True)
            connection.executemany("insert into scores values (?, ?, ?)", rows)
            connection.commit()
        yield lambda order: open_sql(str(folder / "a.sqlite"), query.format(order))
    else:
        dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
        with contextlib.ExitStack() as stack:
            try:
                host = stack.enter_context(postgres.server("sesame"))
            except FileNotFoundError as error:
                pytest.skip(str(error))
            url = f"postgresql://auditor:sesame@/postgres?host={host}"
            with dbapi.connect(url) as connection, connection.cursor() as cursor:
                cursor.adbc_ingest("scores", table)
                connection.commit()
            yield lambda order: open_sql(url, query.format(order))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_rows_changes_no_number_by_more_than_a_fifth_of_its_interval(kind, tmp_path):
    found = {}
    with opened(kind, people(ROWS), tmp_path) as source_in:
        for order in ORDERS:
            source = source_in(order)
            audit = audit_source(source, scores="score", sensitive_features="age", random_state=0)
            assert audit.n == ROWS
            found[order] = audit.attribute("age").measures
            del source  # of PostgreSQL it holds connections
    for name in MEASURES:
        intervals = [measures[name] for measures in found.values()]
        estimates = [interval.estimate for interval in intervals]
        width = min(interval.high - interval.low for interval in intervals)
        text = f"{kind} {name}: {[f'{one:.5f}' for one in estimates]}, width {width:.5f}"
        assert max(estimates) - min(estimates) < width / 5, text
