"""Reading the columns that options name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from frhsic._checks import ArgumentError
from frhsic._text import quote, to_line
from frhsic.cli._output import echo, show_status

if TYPE_CHECKING:
    import pyarrow as pa

# Columns by the option that names them.
Columns: TypeAlias = Mapping[str, str | Sequence[str] | None]


def list_columns(options: Columns) -> list[str]:
    """Return the columns that options name."""
    return [name for names in _group_columns(options).values() for name in names]


def _group_columns(options: Columns) -> dict[str, Sequence[str]]:
    return {flag: [names] if isinstance(names, str) else names or () for flag, names in options.items()}


def read_columns(
    file: Path, options: Columns, placeholders: Sequence[str] = (), *, every: bool = False
) -> pa.Table:
    """Read the columns that options name, or all columns."""
    import frhsic.sources

    if file.is_dir():
        raise ArgumentError("FILE", "be a regular file", "a directory", "Pass the path of a file.")
    check_columns(frhsic.sources.column_names(file), options)
    for name in options.get("--sensitive") or ():
        if name == options.get("--target"):
            fix = "Name another column for one of them."
            got = f"{quote(name)} for both"
            raise ArgumentError("--target and --sensitive", "be different columns", got, fix)
    with show_status(f"Reading {to_line(file.name)}"):
        columns = None if every else list_columns(options)
        return frhsic.sources.read_table(file, columns=columns, missing_values=placeholders)


def check_columns(names: Sequence[str], options: Columns) -> None:
    """Raise ArgumentError if a table does not have a column that an option names."""
    import frhsic.sources

    for flag, wanted in _group_columns(options).items():
        absent = [name for name in wanted if name not in names]
        if absent:
            raise frhsic.sources.absent_error(flag, absent, names)


def drop_empty(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Leave out rows in which one of the columns is empty, and print how many."""
    import frhsic.sources

    kept = frhsic.sources.drop_missing(table, columns)
    gone = table.num_rows - kept.num_rows
    if gone:
        echo(f"Left out {gone:,} of {table.num_rows:,} rows, in which a named column is empty.", error=True)
    return kept


def hash_file(path: Path | None) -> str | None:
    """Return the SHA-256 of a file."""
    if path is None:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sample_rows(source: Any, seed: int, most: int) -> tuple[pa.Table, int]:
    """Return the rows of a source, or about so many of them at random, and how many there are."""
    import numpy as np
    import pyarrow as pa

    rows = source.rows
    if rows is None:
        rows = sum(batch.num_rows for batch in source)
    if rows <= most:
        return pa.Table.from_batches(list(source), source.schema), rows
    rng = np.random.default_rng(seed)
    share = most / rows
    found = [batch.filter(pa.array(rng.random(batch.num_rows) < share)) for batch in source]
    return pa.Table.from_batches(found, source.schema), rows
