"""Rows of a database by ADBC, as record batches; no error shows a password.

An error of a driver may quote any part of the URL, also one that it took for something else (a slash in a
password makes the first half of it a port). So it is never passed on: our own error is raised outside of the
handler, where no traceback leads to a frame that holds the URL. Errors of the server about a query may quote
the data: only messages about the names and the syntax of the query are passed on.
"""

from __future__ import annotations

import contextlib
import os
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.sources._arrow import import_pyarrow
from frhsic.sources._source import QUERY, Piece, Source, check_count
from frhsic.sources._streams import Stream

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES = 4 << 20  # of a batch as the driver makes it, before it is cut to rows
_BEGIN = "set transaction isolation level repeatable read, read only"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# By the message of libpq, which is never repeated.
_REFUSALS = {
    "password authentication failed": "a refusal of the user or the password",
    "no password supplied": "no password",
    "role ": "a refusal of the user",
    "does not exist": "no database of that name",
    "could not translate host": "no such host",
    "Connection refused": "no answer",
    "No such file or directory": "no answer",
    "timeout": "no answer in time",
    "SSL": "a disagreement about SSL",
}


def open_sql(database: str, query: str, *, batch_rows: int = 65_536, allow_missing: bool = False) -> Source:
    """Open the result of a query on PostgreSQL, to be read as record batches in bounded memory.

    Each pass over the source runs the query again, in a transaction that may only read. All passes see the
    database as it was when the source was opened: a second connection keeps that snapshot until the source is
    dropped. Columns of type numeric become float64.

    Parameters
    ----------
    database : str
        A URL, "postgresql://auditor@host:5432/bank", or the name of an environment variable that holds one.
        Where it has no password, PGPASSWORD and the password file are asked, as by all PostgreSQL programs.
        No part of it but the host is ever shown.
    query : str
        A single SELECT with the columns that are needed, each with its name.
    batch_rows : int, default=65_536
        The most rows of a batch.
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
    ValueError
        If it cannot run the query.

    Examples
    --------
    >>> open_sql("BANK_DATABASE", "select score, age from scores")
    Traceback (most recent call last):
    frhsic._checks.ArgumentError: 'database' must be a PostgreSQL URL, or name an environment
    variable that holds one. Got 'BANK_DATABASE', which is not set. Set it to postgresql://user:password@host/name.
    """
    address = _parse_address(database)
    del database  # from here on no frame of ours holds it in the clear
    if address.problem:
        raise address.problem
    import_pyarrow()
    check_count("batch_rows", batch_rows)
    snapshot = _Snapshot(address)
    try:
        schema = _read_schema(snapshot, query)
    except BaseException:
        snapshot.close()  # a traceback may keep it alive
        raise
    read = Stream(partial(_read_rows, snapshot, query))
    return Source(schema, (Piece(QUERY),), read, batch_rows, allow_missing)


def _read_schema(snapshot: _Snapshot, query: str) -> pa.Schema:
    with _open_cursor(snapshot) as cursor:
        whole = _ask(lambda: cursor.adbc_execute_schema(query))
    if not whole.names:
        raise ArgumentError("query", "return columns", "none", "Write a SELECT.")
    doubled = [name for name in whole.names if whole.names.count(name) > 1]
    if doubled:
        got = f"{list_names(doubled[:1])} twice"
        raise ArgumentError("query", "return columns of distinct names", got, "Write: x AS name.")
    return import_pyarrow().schema([(column.name, _choose_type(column)) for column in whole])


@dataclass(frozen=True, eq=False)
class _Address:
    """A URL that prints as its host, and what is wrong with it."""

    url: str = field(repr=False)
    host: str = "this address"
    problem: ArgumentError | None = None


def _parse_address(database: str) -> _Address:
    """Find the URL. The caller raises the errors, because this frame holds the URL."""
    if "://" not in database:
        # What is no name may be a connection string with a password in it.
        got = f"'{database}', which is not set" if _VARIABLE.fullmatch(database) else "something else"
        database = os.environ.get(database, "") if _VARIABLE.fullmatch(database) else ""
        if not database:
            must = "be a PostgreSQL URL, or name an environment variable that holds one"
            problem = ArgumentError("database", must, got, "Set it to postgresql://user:password@host/name.")
            return _Address("", problem=problem)
    scheme, _, rest = database.partition("://")
    if scheme not in ("postgresql", "postgres"):
        must = "be a URL that begins with postgresql://"
        fix = "For other databases pass 'cursor.fetch_record_batch()' of their ADBC driver to open_source."
        return _Address("", problem=ArgumentError("database", must, "another one", fix))
    try:
        parts = urlsplit(database)
        host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    except ValueError:
        host = ""
    # With a stray sign in it, what looks like the host may be a part of the password.
    plain = rest.count("@") <= 1 and not re.search("[/?#]", rest.partition("@")[0] if "@" in rest else "")
    return _Address(database, f"'{host}'" if plain and host else "this address")


class _Snapshot:
    """A state of the database that several connections see, kept by an open transaction."""

    def __init__(self, address: _Address) -> None:
        self.address = address
        connection = _connect(address)
        self.close = weakref.finalize(self, _close, connection)
        with connection.cursor() as cursor:
            _ask(lambda: cursor.execute(_BEGIN))
            _ask(lambda: cursor.execute("select pg_export_snapshot() as name"))
            self.name: str = _ask(cursor.fetchone)[0]


def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):  # the server may have cut it
        connection.close()


def _connect(address: _Address) -> Any:
    try:
        from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("Databases need an ADBC driver. Install it: pip install 'frhsic[sql]'.") from error
    connection, why = None, ""
    try:
        connection = dbapi.connect(address.url)
    except Exception as error:
        why = _describe_refusal(str(error))
    if connection is None:
        raise ConnectionError(
            f"'database' must be reachable with this user and password. Got {why} from {address.host}. "
            "Check the URL, in which signs such as @ / : in a password are written as %40 %2F %3A."
        )
    return connection


@contextlib.contextmanager
def _open_cursor(snapshot: _Snapshot) -> Iterator[Any]:
    """Connect and begin a read-only transaction on the snapshot."""
    with _connect(snapshot.address) as connection, connection.cursor() as cursor:
        _ask(lambda: cursor.execute(_BEGIN))
        gone = True
        with contextlib.suppress(Exception):
            cursor.execute(f"set transaction snapshot '{snapshot.name}'")
            gone = False
        if gone:
            raise ConnectionError(
                "'database' must keep the snapshot that was taken when the source was opened. Got none: the "
                "server ended the idle connection that holds it. Open the source again, or raise "
                "idle_in_transaction_session_timeout."
            )
        yield cursor


def _describe_refusal(text: str) -> str:
    """Return why a connection failed. The caller's frame, which a traceback shows, must not hold the text."""
    return next((ours for theirs, ours in _REFUSALS.items() if theirs in text), "a refusal")


def _ask(call: Callable[[], Any]) -> Any:
    """Call the database; put its objection into our words."""
    try:
        return call()
    except Exception as error:
        got, fix = _describe_objection(error)
    raise ArgumentError("query", "be a SELECT that runs to its end", got, fix)


def _describe_objection(error: Exception) -> tuple[str, str]:
    """Return what the database objects to, and how to fix it."""
    from adbc_driver_manager import Error

    state = (error.sqlstate or "") if isinstance(error, Error) else ""
    # Class 42 is about syntax, names and rights: it quotes the query. Others quote the data.
    if state.startswith("42"):
        details = dict(error.details)  # type: ignore[attr-defined]
        said = details.get(b"PG_DIAG_MESSAGE_PRIMARY", b"").decode(errors="replace")
        return f"from the server: {said[:200]}", "Correct the query."
    if state == "25006":
        return "one that writes", "Read only."
    got = f"an error while it ran (SQLSTATE {state})" if state else "an error while it ran"
    return got, "The server's own tools show its words, which may quote the data."


def _read_rows(
    snapshot: _Snapshot, query: str, _columns: list[str], _batch_rows: int
) -> Iterator[pa.RecordBatch]:
    with _open_cursor(snapshot) as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
        _ask(lambda: cursor.execute(query))
        with _ask(cursor.fetch_record_batch) as reader:
            while (batch := _ask(lambda: next(reader, None))) is not None:
                yield batch


def _choose_type(column: pa.Field) -> pa.DataType:
    """Return the type that a column of a result is to have."""
    pa = import_pyarrow()
    kind = (column.metadata or {}).get(b"POSTGRESQL:type", b"").decode()
    if kind == "numeric":
        return pa.float64()  # the driver gives its digits as text, which would pass for labels
    if kind == "money" or isinstance(column.type, pa.BaseExtensionType):
        got = f"type {kind or column.type} in column {list_names([column.name])}"
        fix = "Write CAST(x AS numeric) or CAST(x AS text) in the query."
        raise ArgumentError("query", "return numbers, labels or truth values", got, fix)
    return column.type
