"""Find a data file or download it, check it, keep it.

Nothing unchecked reaches the disk: a download is held in memory until its checksum (or, where no checksum is
known, its structure) is right, then written beside its final name and moved there in one step. Readers
therefore see a whole file or none, whatever other processes do, and a folder that is only read is never
written to.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import requests
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic._files import PathLike, replacing

NEW_FILE = "may have released a new file: compare its documentation before you use it."


@dataclass(frozen=True)
class File:
    """A file known by checksum."""

    # The sha256 of each file name in a data folder: first the content as it is published, then packed (.gz).
    copies: Mapping[str, str]
    # Where the content can be downloaded, tried in turn. An address in .zip holds it as a member.
    urls: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name under which a download is kept."""
        return next(iter(self.copies))


def data_folder(data_home: PathLike | None) -> Path:
    """Return the folder to look in: the argument, else ``FRHSIC_DATA_HOME``, else the user's cache."""
    return Path(data_home or os.environ.get("FRHSIC_DATA_HOME") or pooch.os_cache("frhsic")).expanduser()


def find_file(file: File, folder: Path) -> bytes | None:
    """Return the content of ``file`` if ``folder`` holds a copy, None if not; raise for a changed copy."""
    for name, sha256 in file.copies.items():
        path = folder / name
        if path.is_file():
            content = _check_digest(path.read_bytes(), sha256, name, path)
            return _unpack(content, path) if name.endswith(".gz") else content
    return None


def read_file(file: File, *, data_home: PathLike | None, cache: bool) -> bytes:
    """Return the content of ``file``, from the data folder or else from its source."""
    folder = data_folder(data_home)
    content = find_file(file, folder)
    if content is not None:
        return content
    reasons: list[str] = []
    wrong: ValueError | None = None
    for url in file.urls:
        try:
            content = download(url)
            if url.endswith(".zip"):
                content = zip_member(content, lambda name: name == file.name, url)
            content = _check_digest(content, file.copies[file.name], file.name, url)
        except OSError as error:  # requests' errors are OSErrors, the answers 404 and 500 among them
            reasons.append(f"{url} failed with {type(error).__name__}: {error}")
        except ValueError as error:
            wrong = error
        else:
            if cache:
                _keep(folder / file.name, content)
            return content
    if wrong is not None:
        raise wrong
    raise _missing_error(file.copies, file.urls, folder, reasons)


def read_converted(
    kept: str,
    raw: str,
    url: str,
    convert: Callable[[bytes, PathLike], bytes],
    *,
    instead: Iterable[str] = (),
    data_home: PathLike | None,
    cache: bool,
) -> bytes:
    """Return the small table that ``convert`` makes of a large official file whose checksum is not known.

    ``convert(content, where)`` raises for a file of another structure. ``raw`` names the official file in the
    data folder, ``kept`` the table (in ``.gz``, which has a checksum), ``instead`` other files for the error.
    """
    folder = data_folder(data_home)
    if (folder / kept).is_file():
        return _unpack((folder / kept).read_bytes(), folder / kept)
    if (folder / raw).is_file():
        content = convert((folder / raw).read_bytes(), folder / raw)
    else:
        try:
            arrived = download(url)
        except OSError as error:
            reason = f"{url} failed with {type(error).__name__}: {error}"
            raise _missing_error([raw, *instead], [url], folder, [reason]) from error
        content = convert(arrived, url)
    if cache:
        _keep(folder / kept, gzip.compress(content, mtime=0))
    return content


def download(url: str) -> bytes:
    """Return what the address answers, held in memory."""
    buffer = io.BytesIO()
    try:
        pooch.HTTPDownloader(timeout=60, chunk_size=1 << 20)(url, buffer, None)
    except requests.HTTPError as error:
        if error.response is not None:
            error.response.close()  # pooch leaves the connection of a refused request open
        raise
    return buffer.getvalue()


def zip_member(content: bytes, wanted: Callable[[str], bool], where: PathLike) -> bytes:
    """Return the one member of a zip archive whose file name is wanted."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [name for name in archive.namelist() if wanted(name.rsplit("/", 1)[-1])]
            if len(members) == 1:
                return archive.read(members[0])
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        got = f"{_describe(content)} ({error})"
        raise ArgumentError(str(where), "be a whole zip archive", got, _FIX) from error
    raise ArgumentError(str(where), "hold the data file once", f"{len(members)} such members", _FIX)


def parse_csv(content: bytes, dtype: type = np.float64) -> dict[str, NDArray[Any]]:
    header, *lines = content.decode("ascii").splitlines()
    values: NDArray[Any] = np.loadtxt(lines, delimiter=",", dtype=dtype, ndmin=2)
    return dict(zip(header.split(","), values.T, strict=True))


def _missing_error(
    names: Iterable[str], urls: Iterable[str], folder: Path, reasons: Iterable[str]
) -> FileNotFoundError:
    """Return the error that says what to do when a file is neither here nor to be had from its source."""
    names, urls = list(names), list(urls)
    tried = "; ".join(reasons) or "there is no download of this file"
    save = f"download {urls[0]}, save it as {names[0]}" if urls else f"take a copy of {names[0]}"
    return FileNotFoundError(
        f"'data_home' must hold {' or '.join(names)}, or its source must be reachable. Got no such file in "
        f"{folder}, and {tried}. On a machine with internet, {save} without changing it, bring it into a "
        "folder of this machine, and pass that folder as data_home=... or set the environment variable "
        "FRHSIC_DATA_HOME to it."
    )


_FIX = "Delete the file if it is on this machine and fetch it again; if nothing changes, the source has."


def _check_digest(content: bytes, sha256: str, name: str, where: PathLike) -> bytes:
    got = hashlib.sha256(content).hexdigest()
    if got != sha256:
        got = f"{_describe(content)} with {got} from {where}"
        raise ArgumentError(name, f"have the sha256 {sha256}", got, _FIX)
    return content


def _unpack(content: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        got = f"{_describe(content)} in {path} ({error})"
        raise ArgumentError(path.name, "be a whole gzip file", got, _FIX) from error


def _describe(content: bytes) -> str:
    start = content[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html", b"<?xml")):
        return f"a web page of {len(content):,} bytes"
    return f"{len(content):,} bytes"


def _keep(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        warnings.warn(
            f"'data_home' must be writable to keep {path.name}. Got {type(error).__name__}: {error}. The "
            "data are returned, but the next call fetches them again: pass cache=False or another data_home.",
            stacklevel=4,
        )
