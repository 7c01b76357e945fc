"""What a second person needs to compute an audit again: digests of the columns, options and versions."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from frhsic.data import read_blocks
from frhsic.inference import Result
from frhsic.sources import Source, drop_missing

_LIBRARIES: Final = ("frhsic", "torch", "numpy", "scipy", "scikit-learn")
_EXACT: Final = 2**53  # integers up to here are float64 without a remainder
ORDER: Final = "as read"


@dataclass(frozen=True)
class ColumnDigest(Result):
    """One column that an audit used.

    Attributes
    ----------
    role : str
        The argument of ``audit`` it was passed as.
    name : str or None
    kind : {"number", "text"}
    sha256 : str
        Of its values as float64 (little-endian), or as UTF-8 with their lengths, in the order of the rows;
        the same whatever the format, the types and the row groups of the file.
    """

    role: str
    name: str | None
    kind: Literal["number", "text"]
    sha256: str


@dataclass(frozen=True)
class Options(Result):
    """The options of an audit, as far as they change its numbers."""

    confidence_level: float
    thresholds: tuple[float, ...]
    regions: dict[str, str]
    kinds: dict[str, str]
    positive_label: str | None
    trained_on: bool | None
    limits: dict[str, float]
    method: Literal["rows", "sketch", "counts"]
    missing_values: tuple[str, ...] = ()
    drop_missing: bool = False
    query: str | None = None
    prefix: str | None = None  # of the columns of contributions
    row_security: bool = False  # whether row-level security of a database chose the rows


@dataclass(frozen=True)
class Record(Result):
    """What re-performance needs beside the numbers.

    Attributes
    ----------
    columns : tuple of ColumnDigest
        Empty where the rows were too many to be read once more, or were not passed (a sketch).
    order : str
        Of the rows in the digests.
    options : Options
    versions : dict of str to str
    platform : str
    layout : str or None
        Of a sketch: SHA-256 of how many rows each piece of the files has. Other pieces of the same rows give
        numbers that are near, not the same.
    """

    columns: tuple[ColumnDigest, ...]
    order: str
    options: Options
    versions: dict[str, str]
    platform: str
    layout: str | None = None


def layout_of(source: Source) -> str:
    """Return the digest of how the rows of a source lie in pieces."""
    rows = [piece.rows for piece in source.pieces]
    return hashlib.sha256(json.dumps([source.batch_rows, rows]).encode()).hexdigest()


def make_record(columns: Sequence[ColumnDigest], options: Options) -> Record:
    """Return the record of an audit made here and now."""
    versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    versions = {"python": platform.python_version(), **versions}
    threads = torch.get_num_threads()
    machine = f"{sys.platform} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    machine += f", {threads} thread{'s' * (threads != 1)}"
    return Record(tuple(columns), ORDER, options, versions, machine)


def digest(plain: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an audit's dictionary without its own digest, as canonical JSON."""
    whole = {name: value for name, value in plain.items() if name != "digest"}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# ---- columns -----------------------------------------------------------------------------------------------


class ColumnHash:
    """The digest of one column, of which rows are added part by part; parts do not change it."""

    def __init__(self) -> None:
        self._numbers = hashlib.sha256()
        self._remainders = hashlib.sha256()
        self._lengths, self._text = hashlib.sha256(), hashlib.sha256()
        self._rows, self._is_text, self._has_remainder = 0, False, False

    def add_numbers(self, values: NDArray[Any]) -> None:
        """Add booleans, integers or floats."""
        as_float = np.ascontiguousarray(values, dtype="<f8")
        if values.dtype.kind in "iu":
            large = np.flatnonzero((values > _EXACT) | (values < -_EXACT))
            for row in large.tolist():  # rare: identifiers
                rest = int(values[row]) - int(as_float[row])
                self._remainders.update(f"{self._rows + row}:{rest};".encode())
                self._has_remainder |= rest != 0
        as_float = as_float + 0.0  # no negative zero
        as_float[np.isnan(as_float)] = np.nan  # of one form
        self._numbers.update(as_float.tobytes())
        self._rows += len(values)

    def add_text(self, values: Iterable[Any]) -> None:
        """Add labels; None is missing."""
        self._is_text = True
        encoded = [None if _is_missing(value) else str(value).encode() for value in values]
        lengths = np.array([-1 if one is None else len(one) for one in encoded], dtype="<i8")
        self._lengths.update(lengths.tobytes())
        self._text.update(b"".join(one for one in encoded if one is not None))
        self._rows += len(encoded)

    def column(self, role: str, name: str | None) -> ColumnDigest:
        """Return the digest of what was added."""
        if self._is_text:
            both = self._lengths.digest() + self._text.digest()
            return ColumnDigest(role, name, "text", hashlib.sha256(both).hexdigest())
        whole = self._numbers
        if self._has_remainder:
            whole = hashlib.sha256(whole.digest() + self._remainders.digest())
        return ColumnDigest(role, name, "number", whole.hexdigest())


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def hash_rows(arguments: Mapping[str, object]) -> list[ColumnDigest]:
    """Return the digest of each column of some arguments, by their names."""
    found = []
    for role, value in arguments.items():
        for block in () if value is None else read_blocks(value, role):
            for part in block.columns():
                hashed = ColumnHash()
                _add(hashed, part.array, labelled=block.labelled)
                found.append(hashed.column(role, block.name))
    return found


class SourceHash:
    """The digests of columns of a source, ``(role, name)``, of which batches are added in their order."""

    def __init__(self, roles: Sequence[tuple[str, str]]) -> None:
        self._roles, self._hashes = roles, {name: ColumnHash() for _, name in roles}

    def add(self, batch: Any) -> None:
        """Add a record batch without missing values."""
        for name, hashed in self._hashes.items():
            for block in read_blocks(batch.column(name), name):
                _add(hashed, block.array, labelled=block.labelled)

    def columns(self) -> list[ColumnDigest]:
        """Return the digests of what was added."""
        return [self._hashes[name].column(role, name) for role, name in self._roles]


def hash_source(source: Source, roles: Sequence[tuple[str, str]]) -> list[ColumnDigest]:
    """Return the digest of columns of a source in one pass over it."""
    hashes = SourceHash(roles)
    for whole in source:
        hashes.add(drop_missing(whole) if source.allow_missing else whole)
    return hashes.columns()


def _add(hashed: ColumnHash, values: NDArray[Any], *, labelled: bool) -> None:
    if values.dtype.kind in "biuf" and not labelled:
        hashed.add_numbers(values)
        return
    entries = values.tolist()
    known = [value for value in entries if not _is_missing(value)]
    if known and not labelled and all(isinstance(value, int | float) for value in known):
        hashed.add_numbers(np.array([math.nan if _is_missing(value) else value for value in entries]))
    else:
        hashed.add_text(entries)
