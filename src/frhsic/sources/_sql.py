"""Rows of a database by ADBC, as record batches; no error shows a password."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.sources._address import parse_address
from frhsic.sources._arrow import import_pyarrow
from frhsic.sources._drivers import DRIVERS
from frhsic.sources._sessions import Session, Snapshot, ask, start_session
from frhsic.sources._source import QUERY, Piece, Source, check_count, plain_type
from frhsic.sources._streams import Stream

if TYPE_CHECKING:
    import pyarrow as pa

# A part of a query: a comment (the group), text and names in quotes, or any other sign.
_PART = re.compile(
    r"""(--[^\n]*|/\*.*?\*/)|(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\2\$|.""",
    re.DOTALL,
)


def open_sql(
    database: str,
    query: str,
    *,
    driver: str | None = None,
    batch_rows: int = 65_536,
    allow_missing: bool = False,
) -> Source:
    """Open the result of a query, to be read as record batches in bounded memory.

    PostgreSQL, DuckDB and SQLite are known; any other ADBC driver is untried. Each pass over the source runs
    the query again, in a session that may only read, and sees the database as it was when the source was
    opened. Without ORDER BY the order of the rows is the database's. Decimal numbers become float64.

    Parameters
    ----------
    database : str
        A URL, "postgresql://auditor@host:5432/bank", the path of a DuckDB or SQLite file, or the name of an
        environment variable that holds one of them. Where a URL has no password, PGPASSWORD and the password
        file are asked, as by all PostgreSQL programs. No part of a URL but the host is ever shown.
    query : str
        A single SELECT with the columns that are needed, each with its name.
    driver : str, optional
        The name of the ADBC driver: "postgresql", "duckdb", "sqlite" or another one. Needed if neither the
        URL nor the suffix of the file tells it.
    batch_rows : int, default=65_536
        The rows of a batch.
    allow_missing : bool, default=False
        As in ``open_source``.

    Returns
    -------
    Source
        One piece, which only this process can read.

    Raises
    ------
    ConnectionError
        If the database does not answer, or rejects the user or the password.
    FileNotFoundError
        If there is no file of this path.
    ValueError
        If it cannot run the query, or the file is no such database.

    Warns
    -----
    UserWarning
        If the driver is untried.

    Examples
    --------
    >>> open_sql("BANK_DATABASE", "select score, age from scores")
    Traceback (most recent call last):
    frhsic._checks.ArgumentError: 'database' must be a PostgreSQL URL, the path of a DuckDB or SQLite file,
    or name an environment variable that holds one. Got 'BANK_DATABASE', which is not set. Set it to
    postgresql://user:password@host/name, or to a path.
    """
    address = parse_address(database, driver)
    del database  # from here on no frame of ours holds it in the clear
    if address.problem:
        raise address.problem
    import_pyarrow()
    check_count("batch_rows", batch_rows)
    session = start_session(address)
    if not session.driver.tried:
        warnings.warn(
            f"{session.driver.title} is untried. Whether its session may only read, and whether all passes "
            "see the same rows, is not known. Use an account that may only read.",
            stacklevel=2,
        )
    query = _without_end(query)
    try:
        schema = _read_schema(session, query)
        filtered = _is_filtered(session, query)
        _check_rows(session, query)
    except BaseException:
        session.close()  # a traceback may keep it alive
        raise
    read = Stream(partial(_read_rows, session, query))
    return Source(schema, (Piece(QUERY),), read, batch_rows, allow_missing, row_security=filtered)


def _read_schema(session: Session | Snapshot, query: str) -> pa.Schema:
    """Return the columns of a query that is checked to be one SELECT."""
    driver = session.driver
    with session.cursor() as cursor:
        cursor.adbc_statement.set_options(**driver.statement_options)
        if driver is not DRIVERS["postgresql"]:  # which runs one statement, within a transaction of its own
            _check_select(cursor, query, session)
        whole = ask(driver, lambda: _ask_schema(cursor, query))
        if not whole.names:
            raise ArgumentError("query", "return columns", "none", "Write a SELECT.")
        doubled = [name for name in whole.names if whole.names.count(name) > 1]
        if doubled:
            got = f"{list_names(doubled[:1])} twice"
            raise ArgumentError("query", "return columns of distinct names", got, "Write: x AS name.")
        mixed = ask(driver, lambda: driver.find_mixed(cursor, query, whole))
    if mixed:
        got = f"text and numbers in column {list_names(mixed[:1])}"
        fix = "Write CAST(x AS REAL) or CAST(x AS TEXT), or leave rows out by typeof(x)."
        raise ArgumentError("query", "return one type in each column", got, fix)
    return import_pyarrow().schema([(column.name, _choose_type(column)) for column in whole])


def _check_select(cursor: Any, query: str, session: Session | Snapshot) -> None:
    """Raise ArgumentError unless the query can stand inside another one: SQLite would attach new files."""
    fine = False
    with contextlib.suppress(Exception):
        cursor.execute(f"SELECT * FROM ({query}) AS q WHERE 1 = 0")  # noqa: S608
        fine = True
    if fine:
        return
    if session.driver.tried:
        ask(session.driver, lambda: cursor.adbc_prepare(query))  # which may say what is wrong
    got, fix = "something else", "Write one SELECT, and nothing after it."
    raise ArgumentError("query", "be a single SELECT", got, fix)


def _is_filtered(session: Session | Snapshot, query: str) -> bool:
    """Return whether row-level security of the database chooses among the rows of a query."""
    is_filtered = session.driver.is_filtered
    if is_filtered is None:
        return False
    with session.cursor() as cursor:
        return ask(session.driver, lambda: is_filtered(cursor, query))


def _check_rows(session: Session | Snapshot, query: str) -> None:
    """Raise ArgumentError if a query has no rows."""
    with contextlib.suppress(Exception), session.cursor() as cursor:
        cursor.execute(f"SELECT 1 AS one FROM ({query}) AS q LIMIT 1")  # noqa: S608
        if cursor.fetchone() is not None:
            return
    # It has none, or cannot stand inside another one: its own error says why.
    with contextlib.closing(_run(session, query)) as batches:  # type: ignore[type-var]
        if any(batch.num_rows for batch in batches):
            return
    fix = "Check its conditions, and which rows this user may see."
    raise ArgumentError("query", "return rows", "none", fix)


def _without_end(query: str) -> str:
    """Return a query without the semicolon that ends it and the comments after that.

    The last line has an end: drivers write more behind a query, which a comment would swallow.
    """
    parts = [part for part in _PART.finditer(query) if not part[0].isspace() and part[1] is None]
    if parts and parts[-1][0] == ";":
        query = query[: parts[-1].start()]
    return f"{query.strip()}\n"


def _ask_schema(cursor: Any, query: str) -> pa.Schema:
    from adbc_driver_manager import NotSupportedError

    with contextlib.suppress(NotSupportedError):
        return cursor.adbc_execute_schema(query)
    cursor.execute(query)
    with cursor.fetch_record_batch() as reader:
        return reader.schema


def _read_rows(
    session: Session | Snapshot, query: str, _columns: list[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    yield from _regroup(_run(session, query), batch_rows)


def _run(session: Session | Snapshot, query: str) -> Iterator[pa.RecordBatch]:
    driver = session.driver
    with session.cursor() as cursor:
        cursor.adbc_statement.set_options(**driver.statement_options)
        ask(driver, lambda: cursor.execute(query))
        with ask(driver, lambda: _reader_of(cursor)) as reader:
            while (batch := ask(driver, lambda: next(reader, None))) is not None:
                yield batch


def _reader_of(cursor: Any) -> Any:
    """Return the reader of a result whose errors have an SQLSTATE; that of pyarrow has none."""
    with contextlib.suppress(AttributeError):
        return cursor._results.reader
    return cursor.fetch_record_batch()


def _regroup(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Cut batches anew into so many rows each, so that a sketch does not depend on the driver."""
    pa = import_pyarrow()
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= rows:
            whole = pa.Table.from_batches(held)
            while whole.num_rows >= rows:
                yield from whole.slice(0, rows).combine_chunks().to_batches()
                whole = whole.slice(rows)
            held = whole.to_batches()
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _choose_type(column: pa.Field) -> pa.DataType:
    """Return the type that a column of a result is to have."""
    pa = import_pyarrow()
    kind = (column.metadata or {}).get(b"POSTGRESQL:type", b"").decode()
    if kind == "numeric":
        return pa.float64()  # the driver gives its digits as text, which would pass for labels
    must = "return numbers, labels or truth values"
    if kind == "money" or isinstance(column.type, pa.BaseExtensionType):
        got = f"type {kind or column.type} in column {list_names([column.name])}"
        raise ArgumentError("query", must, got, "Write CAST(x AS numeric) or CAST(x AS text) in the query.")
    if not pa.types.is_decimal(column.type):
        return plain_type(column.type)
    if column.type.scale == 0 and column.type.precision == 38:
        # As DuckDB gives hugeint and uhugeint, of which large ones arrive as negative numbers.
        got = f"whole numbers of 128 bits in column {list_names([column.name])}"
        raise ArgumentError("query", must, got, "Write CAST(x AS bigint) or CAST(x AS double) in the query.")
    return pa.float64()
