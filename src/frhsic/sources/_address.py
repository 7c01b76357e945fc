"""Where a database is: a URL, a file, or an environment variable that holds one of them.

An error of a driver may quote any part of a URL, also one that it took for something else (a slash in a
password makes the first half of it a port). So only the host of a URL is shown, and of the rest what the
caller typed: the name of a variable, or a path.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.sources._drivers import DRIVERS, Driver, find_driver
from frhsic.sources._stores import is_url

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_FORMS = (
    "be a PostgreSQL URL, the path of a DuckDB or SQLite file, or name an environment variable that holds one"
)
_SET = "Set it to postgresql://user:password@host/name, or to a path."
_NAME_IT = "For other databases, and files that end otherwise, name the ADBC driver."


@dataclass(frozen=True, eq=False)
class Address:
    """What a driver connects to, how it may be shown, and what is wrong with it."""

    target: str = field(repr=False)
    driver: Driver | None = None
    shown: str = "this address"
    problem: Exception | None = None


def parse_address(database: str, driver: str | None) -> Address:
    """Find the URL or the path. The caller raises the errors, because this frame holds the URL."""
    if driver is not None and not _NAME.fullmatch(driver):
        must = "be the name of an ADBC driver in small letters"
        fix = f"Known ones are {list_names(list(DRIVERS))}."
        return _wrong(ArgumentError("driver", must, "something else", fix))
    known = None if driver is None else find_driver(driver)
    named = _VARIABLE.fullmatch(database) is not None
    if known and known.suffixes and database not in os.environ:
        named = False  # a path without a dot
    target = os.environ.get(database, "") if named else database
    if not target:
        return _wrong(ArgumentError("database", _FORMS, f"'{database}', which is not set", _SET))
    known = known or _guess_driver(target)
    if known is None:
        # What is no name may be a connection string with a password in it.
        got = "another URL" if is_url(target) else "something else"
        return _wrong(ArgumentError("database", _FORMS, got, _NAME_IT))
    if known.suffixes:
        return _parse_file(target, known, database)
    if known.tried and not target.startswith(tuple(f"{scheme}://" for scheme in known.schemes)):
        must = f"be a URL that begins with {known.schemes[0]}://"
        return _wrong(ArgumentError("database", must, "another one", _SET))
    if not is_url(target) and not named:
        # A report shows the command: a variable hides what has no form that could be redacted.
        must = "be a URL, or name an environment variable that holds what the driver connects to"
        return _wrong(ArgumentError("database", must, "something else", "Set a variable."))
    host = _find_host(target) if is_url(target) else database
    return Address(target, known, f"'{host}'" if host else "this address")


def redact_database(database: str) -> str:
    """Return a database as it may be printed: a URL as its scheme and its host."""
    if not is_url(database):
        return database
    return f"{database.partition('://')[0]}://{_find_host(database) or '…'}"


def _wrong(problem: Exception) -> Address:
    return Address("", problem=problem)


def _guess_driver(target: str) -> Driver | None:
    scheme = target.partition("://")[0] if is_url(target) else None
    suffix = os.path.splitext(target)[1].lower()
    for driver in DRIVERS.values():
        if scheme in driver.schemes or (scheme is None and suffix in driver.suffixes):
            return driver
    return None


def _parse_file(path: str, driver: Driver, typed: str) -> Address:
    """Return the address of a file that exists. Nothing opens it here: closing it would end its locks."""
    must = f"be the path of a {driver.title} file"
    if is_url(path):
        return _wrong(ArgumentError("database", must, "a URL", "Pass its path alone."))
    if not os.path.exists(path):
        return _wrong(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), typed))
    if not os.path.isfile(path):
        got = "a directory" if os.path.isdir(path) else "a pipe or device"
        return _wrong(ArgumentError("database", must, got, "Pass the path of a file."))
    return Address(path, driver, f"'{typed}'")


def _find_host(url: str) -> str:
    """Return the host and the port of a URL; nothing unless it is sure that they are these."""
    user, at, _ = url.partition("://")[2].partition("@")
    # With a stray sign in it, what looks like the host may be a part of the password.
    if url.count("@") > 1 or (at and re.search("[/?#]", user)):
        return ""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return ""
