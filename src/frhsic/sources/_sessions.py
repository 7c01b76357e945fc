"""Connections that may only read, and that see one state of the database in all passes over a query.

What a driver says about a failed connection is never passed on: our own error is raised outside of the
handler, where no traceback leads to a frame that holds the URL.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from frhsic._checks import ArgumentError
from frhsic.sources._address import Address
from frhsic.sources._drivers import DRIVERS, Driver
from frhsic.sources._stores import fingerprint_file

_BEGIN = "set transaction isolation level repeatable read, read only"
# Otherwise a scan may begin where another one is, and workers hand in rows as they find them.
_IN_ORDER = ("set local synchronize_seqscans = off", "set local max_parallel_workers_per_gather = 0")
_NO_DRIVER = "no driver"
# By the message of a driver, which is never repeated.
_REFUSALS = {
    "password authentication failed": "a refusal of the user or the password",
    "no password supplied": "no password",
    "role ": "a refusal of the user",
    "not a database": "another file, or an encrypted one",
    "not a valid DuckDB": "another file",
    "external extensions": "another file",  # one of SQLite, for which DuckDB has an extension
    "version number": "a file of another version",
    "set lock": "a lock of another process, which writes to it",
    "is locked": "a lock of another process, which writes to it",
    "unable to open": "no permission to read it or the files beside it",
    "Could not load": _NO_DRIVER,
    "cannot import name": _NO_DRIVER,
    "does not exist": "no database of that name",
    "could not translate host": "no such host",
    "Connection refused": "no answer",
    "No such file or directory": "no answer",
    "timeout": "no answer in time",
    "SSL": "a disagreement about SSL",
}


def start_session(address: Address) -> Session | Snapshot:
    """Connect; the result keeps one state of the database until it is dropped or closed."""
    return Snapshot(address) if address.driver is DRIVERS["postgresql"] else Session(address)


class Session:
    """One connection for all passes: one transaction, or a file that is locked against writers."""

    def __init__(self, address: Address) -> None:
        self.address, self.driver = address, _driver_of(address)
        self._fingerprint = self._stamp()
        self._connection = _connect(address)
        self.close = weakref.finalize(self, _close, self._connection)

    @contextlib.contextmanager
    def cursor(self) -> Iterator[Any]:
        """Give a cursor, and look before and after whether the file is the same."""
        self._check_unchanged()
        with self._connection.cursor() as cursor:
            yield cursor
        self._check_unchanged()

    def _stamp(self) -> str:
        with contextlib.suppress(OSError):
            return fingerprint_file(self.address.target) if self.driver.watched else ""
        return "gone"

    def _check_unchanged(self) -> None:
        if self._stamp() != self._fingerprint:
            got, fix = "a file that has changed since", "Open the source again once nothing writes to it."
            raise ArgumentError("database", "stay as it was when the source was opened", got, fix)


class Snapshot:
    """A state of PostgreSQL that several connections see, kept by an open transaction."""

    def __init__(self, address: Address) -> None:
        self.address, self.driver = address, _driver_of(address)
        connection = _connect(address)
        self.close = weakref.finalize(self, _close, connection)
        with connection.cursor() as cursor:
            ask(self.driver, lambda: cursor.execute(_BEGIN))
            ask(self.driver, lambda: cursor.execute("select pg_export_snapshot() as name"))
            self.name: str = ask(self.driver, cursor.fetchone)[0]

    @contextlib.contextmanager
    def cursor(self) -> Iterator[Any]:
        """Connect and begin a read-only transaction on the snapshot."""
        with _connect(self.address) as connection, connection.cursor() as cursor:
            ask(self.driver, lambda: cursor.execute(_BEGIN))
            gone = True
            with contextlib.suppress(Exception):
                cursor.execute(f"set transaction snapshot '{self.name}'")
                gone = False
            if gone:
                raise ConnectionError(
                    "'database' must keep the snapshot that was taken when the source was opened. Got none: "
                    "the server ended the idle connection that holds it. Open the source again, or raise "
                    "idle_in_transaction_session_timeout."
                )
            for statement in _IN_ORDER:
                ask(self.driver, partial(cursor.execute, statement))
            yield cursor


def _driver_of(address: Address) -> Driver:
    assert address.driver is not None  # noqa: S101
    return address.driver


def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):  # the server may have cut it
        connection.close()


def _connect(address: Address) -> Any:
    driver = _driver_of(address)
    driver.load()
    connection, why = None, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a driver that has no transactions
            connection = driver.connect(address.target)
        if driver.first:
            with connection.cursor() as cursor:
                cursor.execute(driver.first)
                cursor.fetchone()
        return connection
    except Exception as error:
        why = _describe_refusal(str(error))
    if connection is not None:
        _close(connection)
    if why == _NO_DRIVER:
        raise driver.absent_error()
    if driver.suffixes:
        fix = "If it is another kind of database, name its driver."
        raise ArgumentError(
            "database", f"be a {driver.title} file that can be read", f"{why}: {address.shown}", fix
        )
    raise ConnectionError(
        f"'database' must be reachable with this user and password. Got {why} from {address.shown}. "
        "Check the URL, in which signs such as @ / : in a password are written as %40 %2F %3A."
    )


def _describe_refusal(text: str) -> str:
    """Return why a connection failed. The caller's frame, which a traceback shows, must not hold the text."""
    return next((ours for theirs, ours in _REFUSALS.items() if theirs in text), "a refusal")


def ask(driver: Driver, call: Callable[[], Any]) -> Any:
    """Call the database; put its objection into our words."""
    try:
        return call()
    except Exception as error:
        got, fix = driver.explain(error) or (
            "an error while it ran",
            "The database's own tools show its words, which may quote the data.",
        )
    raise ArgumentError("query", "be a SELECT that runs to its end", got, fix)
