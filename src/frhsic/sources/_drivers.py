"""The table of ADBC drivers: how each is opened to read only, and which of its errors may be repeated.

Errors about a query may quote the data. What is repeated is only what a driver says about names and syntax.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from frhsic.sources._arrow import import_pyarrow, is_text

if TYPE_CHECKING:
    import pyarrow as pa

# What the database objects to, and how to fix it; None if its words may quote the data.
_Objection: TypeAlias = "tuple[str, str] | None"

_WRITES = ("one that writes", "Read only.")
_CORRECT = "Correct the query."


def _explain_nothing(_error: Exception) -> _Objection:
    return None


def _find_nothing(_cursor: Any, _query: str, _schema: pa.Schema) -> list[str]:
    return []


@dataclass(frozen=True)
class Driver:
    """One kind of database: where it is, how it is opened, and what it says."""

    title: str
    package: str  # that must be importable; "" where the driver manager looks for the driver itself
    extra: str  # of frhsic that brings it; "" where none does
    connect: Callable[[str], Any]  # from a URL or a path to a connection that may only read
    schemes: tuple[str, ...] = ()  # how its URLs begin
    suffixes: tuple[str, ...] = ()  # how its files end
    statement_options: Mapping[str, str] = field(default_factory=dict)
    first: str = ""  # a statement that fails if the file is no such database
    watched: bool = False  # whether a change of the file is to be looked for
    explain: Callable[[Exception], _Objection] = _explain_nothing
    find_mixed: Callable[[Any, str, pa.Schema], list[str]] = _find_nothing  # columns of several types
    is_filtered: Callable[[Any, str], bool] | None = None  # whether row-level security chooses rows
    tried: bool = True

    def load(self) -> None:
        """Import the packages; the caller holds no address in the clear."""
        try:
            for name in filter(None, (self.package, "adbc_driver_manager.dbapi")):
                importlib.import_module(name)
        except ImportError as error:
            raise self.absent_error() from error

    def absent_error(self) -> ImportError:
        """Return the error of a driver that is not installed, or too old."""
        fix = f"Install it: pip install 'frhsic[{self.extra}]'."
        if not self.tried:
            fix = "Install adbc-driver-manager, and its own package or manifest, where the manager finds it."
        return ImportError(f"{self.title} needs its ADBC driver. {fix}")


def find_driver(name: str) -> Driver:
    """Return the driver of a name; one that is not in the table is untried."""
    if name in DRIVERS:
        return DRIVERS[name]
    own = f"adbc_driver_{name}"
    package = f"{own}.dbapi" if importlib.util.find_spec(own) else ""

    def connect(url: str) -> Any:
        from adbc_driver_manager import dbapi

        if package:
            connection = importlib.import_module(package).connect(url)
        else:
            connection = dbapi.connect(driver=name, db_kwargs={"uri": url})
        with contextlib.suppress(dbapi.Error):  # not all have it
            connection.adbc_connection.set_options(**{"adbc.connection.readonly": "true"})
        return connection

    return Driver(f"Driver '{name}'", package, "", connect, tried=False)


# PostgreSQL

_NO_RIGHT = "42501"  # what the server says without row-level security where a policy applies
_OWN_TOOLS = "The server's own tools show its words, which may quote the data."
_CUT = "See the log of the server, and run it again."
_CAST = "Leave out or mend the rows with other text, for example by WHERE x ~ '^[0-9.]+$'."
# What a state means and how to fix it: the words of the standard, since those of the server may quote data.
_STATES = {
    "08000": ("connection exception", _CUT),
    "08003": ("the connection does not exist", _CUT),
    "08P01": ("a query with a parameter such as $1", "Write its value."),
    "08006": ("the connection failed", _CUT),
    "22003": ("a number is out of range", "Write CAST(x AS double precision), or leave such rows out."),
    "22007": ("text that is no date", _CAST),
    "22008": ("a date is out of range", "Leave such rows out."),
    "22012": ("division by zero", "Write NULLIF(x, 0) for the divisor."),
    "22P02": ("text that cannot be converted, such as letters to a number", _CAST),
    "40001": ("the rows changed while they were read", "Run it again."),
    "53100": ("the disk of the server is full", "Ask whoever runs the server."),
    "53200": ("the server is out of memory", "Read fewer rows or columns, or sort less."),
    "53300": ("too many connections", "Wait, or ask for more: a source of PostgreSQL needs two."),
    "55P03": ("a lock was not available in time", "Run it again, or raise lock_timeout."),
    "57014": ("the query was cancelled, by a time-out or a person", "Raise statement_timeout, or read less."),
    "57P01": ("the server ended the connection", _CUT),
    "57P02": ("the server crashed", _CUT),
    "57P03": ("the server cannot be connected to now", "Wait, and run it again."),
    "57P05": ("the connection was idle for too long", "Raise idle_session_timeout."),
}
_CLASSES = {
    "08": "connection exception",
    "0A": "something that the server does not support",
    "21": "a subquery with more than one row",
    "22": "data exception",
    "25": "invalid state of the transaction",
    "40": "the transaction was rolled back",
    "53": "insufficient resources",
    "54": "a limit of the server is exceeded",
    "55": "an object in another state",
    "57": "an intervention from outside",
    "58": "a system error of the server",
    "P0": "an error raised by a function",
    "XX": "an internal error of the server",
}


def _connect_postgresql(url: str) -> Any:
    from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]

    return dbapi.connect(url)


def _explain_postgresql(error: Exception) -> _Objection:
    from adbc_driver_manager import Error

    state = (error.sqlstate or "") if isinstance(error, Error) else ""
    # Class 42 is about syntax, names and rights: it quotes the query. Others quote the data.
    if state.startswith("42"):
        details = dict(error.details)  # type: ignore[attr-defined]
        said = details.get(b"PG_DIAG_MESSAGE_PRIMARY", b"").decode(errors="replace")
        return f"from the server: {said[:200]}", _CORRECT
    if state == "25006":
        return _WRITES
    meaning, fix = _STATES.get(state, (_CLASSES.get(state[:2], "an error"), _OWN_TOOLS))
    if state:
        return f"SQLSTATE {state}: {meaning}", fix
    if "closed the connection" in str(error) or "no connection to the server" in str(error):
        return "a connection that ended before the last row", _CUT
    return None


def _is_filtered(cursor: Any, query: str) -> bool:
    """Return whether the server refuses to plan a query without row-level security.

    The connection cannot be used again: such a refusal ends its transaction.
    """
    from adbc_driver_manager import Error

    try:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        plan = partial(cursor.execute, f"EXPLAIN {query}")
    except Error:  # an older driver cannot run EXPLAIN; to prepare the query is nearly as good
        plan = partial(cursor.adbc_execute_schema, query)
    plan()
    cursor.execute("set local row_security = off")
    try:
        plan()
    except Error as error:
        if error.sqlstate != _NO_RIGHT:
            raise
        return True
    return False


# DuckDB


def _connect_duckdb(path: str) -> Any:
    from adbc_driver_duckdb import driver_path  # type: ignore[import-untyped]
    from adbc_driver_manager import dbapi

    options = {
        "path": os.path.abspath(path),
        "access_mode": "READ_ONLY",
        "enable_external_access": "false",  # no other files, no extensions, no network
        "lock_configuration": "true",  # a query cannot set these anew
        "threads": "1",  # with several, neither the order of groups nor the last bits of sums are the same
    }
    return dbapi.connect(
        driver=driver_path(), entrypoint="duckdb_adbc_init", db_kwargs=options, autocommit=True
    )


def _explain_duckdb(error: Exception) -> _Objection:
    text = str(error)
    if found := re.search(r"\b(?:Parser|Binder|Catalog) Error: (.*)", text):
        return f"from DuckDB: {found[1][:200].rstrip('.!')}", _CORRECT
    if "Permission Error" in text:
        return "one that asks for another file, or for an extension", "Read tables of this database."
    return _WRITES if "in read-only mode" in text else None


# SQLite


def _connect_sqlite(path: str) -> Any:
    from adbc_driver_sqlite import dbapi

    return dbapi.connect(f"file:{quote(os.path.abspath(path))}?mode=ro")


def _explain_sqlite(error: Exception) -> _Objection:
    text = str(error)
    # A statement is prepared before it reads a row.
    if found := re.search(r"Failed to prepare query: (.*)", text):
        return f"from SQLite: {found[1][:200]}", _CORRECT
    if found := re.search(r"Type mismatch in column (\d+)", text):
        got = f"another type in a later row of column {int(found[1]) + 1}"
        return got, "Write CAST(x AS REAL) or CAST(x AS TEXT) in the query."
    return _WRITES if "readonly database" in text else None


def _find_mixed(cursor: Any, query: str, schema: pa.Schema) -> list[str]:
    """Return columns of text that also hold numbers, which the driver has turned into text."""
    pa = import_pyarrow()
    texts = [column.name for column in schema if is_text(column.type) or pa.types.is_binary(column.type)]
    if not texts:
        return []
    names = ['"' + name.replace('"', '""') + '"' for name in texts]
    tests = ", ".join(f"max(typeof({name}) IN ('integer', 'real'))" for name in names)
    cursor.execute(f"SELECT {tests} FROM ({query}\n)")  # noqa: S608
    return [name for name, mixed in zip(texts, cursor.fetchone(), strict=True) if mixed]


DRIVERS = {
    "postgresql": Driver(
        "PostgreSQL",
        "adbc_driver_postgresql",
        "sql",
        _connect_postgresql,
        schemes=("postgresql", "postgres"),
        # Of a batch as the driver makes it, before it is cut to rows.
        statement_options={"adbc.postgresql.batch_size_hint_bytes": str(4 << 20)},
        explain=_explain_postgresql,
        is_filtered=_is_filtered,
    ),
    "duckdb": Driver(
        "DuckDB",
        "adbc_driver_duckdb",
        "duckdb",
        _connect_duckdb,
        suffixes=(".duckdb", ".ddb"),
        # Other connections of this process may end the lock that keeps writers away.
        watched=True,
        explain=_explain_duckdb,
    ),
    "sqlite": Driver(
        "SQLite",
        "adbc_driver_sqlite",
        "sqlite",
        _connect_sqlite,
        suffixes=(".sqlite", ".sqlite3", ".db", ".db3"),
        # The types of columns are those of the first batch.
        statement_options={"adbc.sqlite.query.batch_rows": "65536"},
        first="SELECT count(*) FROM sqlite_master",
        explain=_explain_sqlite,
        find_mixed=_find_mixed,
    ),
}
