"""Where files lie: on a disk, or in a store that fsspec knows by its URL.

Local files are read by pyarrow itself, without Python in between. A URL may hold a password or a signature:
only ``shown`` of it is ever printed.
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
from frhsic.sources._files import in_our_words, need_pyarrow

# What stores call the version of a file, the surest first; a size alone would miss an edit in place.
_VERSIONS = (
    "ETag",
    "etag",
    "md5Hash",
    "content_md5",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)


def is_url(path: str) -> bool:
    """Tell a URL from a local path."""
    return "://" in path


def shown(path: str) -> str:
    """Return a path as it may be printed: of a URL neither user, password nor query."""
    if not is_url(path):
        return path
    bare, mark, _ = re.sub(r"://[^/@]*@", "://", path).partition("?")
    return f"{bare}?{hashlib.sha256(path.encode()).hexdigest()[:8]}" if mark else bare


def found(path: str) -> list[str]:
    """Files behind the name of a file, of a folder (with all below it) or behind a pattern, unsorted."""
    return _found_in_store(path) if is_url(path) else _found_on_disk(path)


def _found_on_disk(path: str) -> list[str]:
    if not os.path.isdir(path):
        # First as it is: a file may have a bracket in its name.
        return [path] if os.path.exists(path) else glob.glob(path, recursive=True)
    files, seen = [], set()
    for folder, folders, names in os.walk(path, onerror=_refuse, followlinks=True):
        seen.add(os.path.realpath(folder))
        # A link to a folder further up would be walked for ever.
        folders[:] = [
            f for f in folders if _plain(f) and os.path.realpath(os.path.join(folder, f)) not in seen
        ]
        files += [os.path.join(folder, name) for name in names if _plain(name)]
    return files


def _refuse(error: OSError) -> NoReturn:
    raise error  # a folder that may not be entered would be passed over, with its rows


def _found_in_store(path: str) -> list[str]:
    with naming(path):
        store, inner = _store(path)
        store.invalidate_cache()
        if store.isfile(inner):
            return [path]
        if store.isdir(inner):
            below = len(inner.rstrip("/").split("/"))
            names = [name for name in store.find(inner) if all(map(_plain, name.split("/")[below:]))]
        else:
            names = store.glob(inner)
        return [store.unstrip_protocol(name) for name in names]


def _plain(name: str) -> bool:
    """Tell a file with data from those that engines put beside them ("_SUCCESS", ".part-0.crc")."""
    return not name.startswith(("_", "."))


def fingerprint(path: str) -> str:
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


def first_bytes(path: str, count: int) -> bytes:
    """Return the beginning of a file."""
    if is_url(path):
        store, inner = _store(path)
        return bytes(store.cat_file(inner, start=0, end=count))
    with open(path, "rb") as file:
        return file.read(count)


@contextlib.contextmanager
def opened(path: str) -> Iterator[Any]:
    """Open a file for pyarrow."""
    pa = need_pyarrow()
    if not is_url(path):
        with pa.OSFile(path) as native:
            yield native
        return
    store, inner = _store(path)
    # No cache in between: it would read ahead into columns that nobody asked for.
    with store.open(inner, "rb", cache_type="none") as file, pa.PythonFile(file, mode="r") as native:
        yield native


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Make every error about a file name it, and no error tell what of a URL is secret."""
    name = shown(path)
    try:
        with in_our_words():
            yield
    except ImportError as error:
        raise ImportError(f"'{name}' needs a package that is not installed: {error}.") from None
    except ValueError as error:
        if isinstance(error, ArgumentError) and error.argument in ("path", name):
            raise ArgumentError(name, error.must, error.got, error.fix) from None
        text = str(error)
        if not text.startswith(("'path'", f"'{name}'")):
            text = f"'path' must be readable. Got: {_masked(error)}. Check the address."
        raise ValueError(text.replace("'path'", f"'{name}'", 1)) from None
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None
    except OSError as error:
        if error.errno is None:
            raise _unreachable(error, name) from None
        raise OSError(error.errno, os.strerror(error.errno), name) from None
    except Exception as error:
        if not is_url(path):
            raise
        raise _unreachable(error, name) from None  # stores have exceptions of their own


def _unreachable(error: Exception, name: str) -> OSError:
    return OSError(
        f"'{name}' must be readable. Got: {_masked(error)}. Check the address and your rights to it."
    )


def _masked(error: Exception) -> str:
    line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__} {re.sub(r'[^ ]*://[^ ]*', '…', line)[:120]}".strip().rstrip(".")


def _store(path: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("URLs need fsspec. Install it: pip install fsspec") from error
    store, inner = url_to_fs(path)
    return store, inner
