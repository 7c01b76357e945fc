"""Files on a disk or in a store that fsspec knows by its URL; redaction of credentials in URLs.

Local files are read by pyarrow itself, without Python in between. A URL may hold a password or a signature:
only ``redact_url`` of it is ever printed.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from frhsic._checks import ArgumentError
from frhsic._files import check_regular
from frhsic.sources._arrow import import_pyarrow, translate_errors

# What stores call the version of a file, the surest first; a size alone would miss an edit in place.
_VERSIONS = ["ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated"]
_VERSIONS += ["created"]


def is_url(path: str) -> bool:
    return "://" in path


def redact_url(path: str) -> str:
    """Return a path as it may be printed: a URL without user, password and query."""
    if not is_url(path):
        return path
    bare, mark, _ = re.sub(r"://[^/@]*@", "://", path).partition("?")
    return f"{bare}?{hashlib.sha256(path.encode()).hexdigest()[:8]}" if mark else bare


def list_files(path: str) -> list[str]:
    """Return the file of a name, all files in a folder and below it, or those of a pattern, unsorted."""
    if is_url(path):
        return _list_store(path)
    if not os.path.isdir(path):
        # First as it is: a file may have a bracket in its name.
        return [path] if os.path.exists(path) else glob.glob(path, recursive=True)
    files, seen = [], set()
    for folder, folders, names in os.walk(path, onerror=_raise, followlinks=True):
        seen.add(os.path.realpath(folder))
        # A link to a folder further up would be walked for ever.
        folders[:] = [
            f for f in folders if _holds_data(f) and os.path.realpath(os.path.join(folder, f)) not in seen
        ]
        files += [os.path.join(folder, name) for name in names if _holds_data(name)]
    return files


def _raise(error: OSError) -> NoReturn:
    raise error  # otherwise a folder without permission would be skipped


def _list_store(path: str) -> list[str]:
    with name_errors(path):
        store, inner = _store(path)
        store.invalidate_cache()
        if store.isfile(inner):
            return [path]
        if store.isdir(inner):
            below = len(inner.rstrip("/").split("/"))
            names = [name for name in store.find(inner) if all(map(_holds_data, name.split("/")[below:]))]
        else:
            names = store.glob(inner)
        return [store.unstrip_protocol(name) for name in names]


def _holds_data(name: str) -> bool:
    """Return whether a file is none of those that engines write beside data ("_SUCCESS", ".part-0.crc")."""
    return not name.startswith(("_", "."))


def fingerprint_file(path: str) -> str:
    """Return what changes when a file does: its size with its time of change or with the tag of its store."""
    if not is_url(path):
        status = os.stat(path)
        check_regular(status)  # opening a pipe would wait for its writer
        return f"{status.st_size}-{status.st_mtime_ns}"
    store, inner = _store(path)
    store.invalidate_cache(store._parent(inner))
    facts = store.info(inner)
    if facts["type"] == "directory":
        raise ArgumentError("path", "be a regular file", "a directory", "Pass the path of a file.")
    version = next((str(facts[key]) for key in _VERSIONS if facts.get(key) is not None), "")
    return f"{facts['size']}-{version}"


def read_start(path: str, count: int) -> bytes:
    if is_url(path):
        store, inner = _store(path)
        return bytes(store.cat_file(inner, start=0, end=count))
    with open(path, "rb") as file:
        return file.read(count)


@contextlib.contextmanager
def open_file(path: str) -> Iterator[Any]:
    pa = import_pyarrow()
    if not is_url(path):
        with pa.OSFile(path) as native:
            yield native
        return
    store, inner = _store(path)
    # No cache in between: it would read ahead into columns that nobody asked for.
    with store.open(inner, "rb", cache_type="none") as file, pa.PythonFile(file, mode="r") as native:
        yield native


@contextlib.contextmanager
def name_errors(path: str) -> Iterator[None]:
    """Make every error about a file name it, and none show the credentials of a URL."""
    name = redact_url(path)
    try:
        with translate_errors():
            yield
    except ImportError as error:
        raise ImportError(f"'{name}' needs a package that is not installed: {error}.") from None
    except ValueError as error:
        if isinstance(error, ArgumentError) and error.argument in ("path", name):
            raise ArgumentError(name, error.must, error.got, error.fix) from None
        text = str(error)
        if not text.startswith(("'path'", f"'{name}'")):
            text = f"'path' must be readable. Got: {_mask(error)}. Check the address."
        raise ValueError(text.replace("'path'", f"'{name}'", 1)) from None
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None
    except OSError as error:
        if error.errno is None:
            raise _unreachable_error(error, name) from None
        raise OSError(error.errno, os.strerror(error.errno), name) from None
    except Exception as error:
        if not is_url(path):
            raise
        raise _unreachable_error(error, name) from None  # stores have exceptions of their own


def _unreachable_error(error: Exception, name: str) -> OSError:
    fix = "Check the address and your rights to it."
    return OSError(f"'{name}' must be readable. Got: {_mask(error)}. {fix}")


def _mask(error: Exception) -> str:
    line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__} {re.sub(r'[^ ]*://[^ ]*', '…', line)[:120]}".strip().rstrip(".")


def _store(path: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("URLs need fsspec. Install it: pip install fsspec") from error
    store, inner = url_to_fs(path)
    return store, inner
