"""A source: a table of any size, its independent pieces, and the record batches of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.sources._arrow import import_pyarrow, is_text
from frhsic.sources._form import Form
from frhsic.sources._missing import drop_missing, is_missing, replace_placeholders
from frhsic.sources._reservoir import Reservoir
from frhsic.sources._stores import fingerprint_file, name_errors, redact_url
from frhsic.sources._tables import absent_error

if TYPE_CHECKING:
    import pyarrow as pa


QUERY = "query"  # the name of the piece of a database
_OR_ALLOW = "or open it with allow_missing=True and leave them out of each batch by drop_missing."


@dataclass(frozen=True)
class Piece:
    """A part of a source that can be read on its own: a file, a run of row groups of one, or a stream.

    A partial result belongs to a name and a fingerprint, which changes when the file does.
    """

    name: str  # once in a source and the same in the next run: a path, "path[3:7]" for row groups 3 to 6
    fingerprint: str = ""  # size with time of change, or the tag of an object store; "" for a stream
    rows: int | None = None  # None where only reading would tell
    first_row: int = 0  # its number in the file
    path: str = field(default="", repr=False)
    form: Form | None = field(default=None, repr=False)
    row_groups: tuple[int, int] | None = field(default=None, repr=False)


_Read: TypeAlias = "Callable[[Piece, pa.Schema, int], Iterator[pa.RecordBatch]]"


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """Rows as Arrow record batches, in independent pieces; made by ``open_source`` or ``open_sql``.

    Iterating over it gives the batches of all pieces in order. A source of files can be pickled, that is sent
    to other processes; a stream cannot.

    Attributes
    ----------
    schema : pyarrow.Schema
        Columns and their types, the same in all batches. Files may differ in the size of their numbers.
    pieces : tuple of Piece
        Sorted by the names of the files.
    batch_rows : int
        The most rows of a batch.
    allow_missing : bool
        Whether batches may hold missing values; if not, reading one is an error.
    missing_values : tuple of str
        Placeholders that are read as missing values.
    row_security : bool
        Whether row-level security of a database chose the rows: another user would get others.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from frhsic.sources import open_source
    >>> source = open_source(pa.table({"age": [31, 45, 62], "score": [0.2, 0.7, 0.4]}), batch_rows=2)
    >>> source
    Source(one stream, 3 rows, columns 'age', 'score')
    >>> [batch.num_rows for batch in source]
    [2, 1]
    """

    schema: pa.Schema
    pieces: tuple[Piece, ...]
    _read: _Read
    batch_rows: int
    allow_missing: bool
    missing_values: tuple[str, ...] = ()
    row_security: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.schema.names)

    @property
    def rows(self) -> int | None:
        """How many rows all pieces have; None where only reading would tell."""
        counts = [piece.rows for piece in self.pieces]
        return None if None in counts else sum(counts)  # type: ignore[arg-type]

    def batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Yield record batches of one of ``pieces``, each of at most ``batch_rows`` rows, in their order.

        A piece that is damaged, has changed since the source was opened, or has missing values is a
        ValueError, one that cannot be opened an OSError. Both name the file.
        """
        name = redact_url(piece.path) or piece.name
        # Errors of the caller's own iterator are left as they are.
        with name_errors(piece.path) if piece.path else contextlib.nullcontext():
            _check_unchanged(piece)
            count = 0
            for large in self._read(piece, self.schema, self.batch_rows):
                whole = replace_placeholders(_as_schema(large, self.schema, name), self.missing_values)
                for start in range(0, whole.num_rows, self.batch_rows):
                    batch = whole.slice(start, self.batch_rows)  # no copy
                    if not self.allow_missing:
                        _check_missing(batch, name, piece.first_row + count)
                    count += batch.num_rows
                    yield batch
            if piece.rows is not None and count != piece.rows:
                must = f"have the {piece.rows} rows that it announces"
                raise ArgumentError(name, must, count, "Check how the file was written.")
            _check_unchanged(piece)

    def sample(self, rows: int = 20_000, *, random_state: int = 0) -> pa.Table:
        """Return a random sample of so many rows, or all rows where there are fewer; this reads all of them.

        Rows with missing values are left out if these are allowed. The same rows in the same order have the
        same sample, however they are cut into batches.
        """
        check_count("rows", rows)
        reservoir = Reservoir(rows, random_state)
        for batch in self:
            reservoir.add(drop_missing(batch) if self.allow_missing else batch)
        return reservoir.table(self.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for piece in self.pieces:
            yield from self.batches(piece)

    def __repr__(self) -> str:
        files = len({piece.path for piece in self.pieces if piece.path})
        parts = [f"{files} {'file' if files == 1 else 'files'}" if files else "one stream"]
        if len(self.pieces) > max(files, 1):
            parts[0] += f" in {len(self.pieces)} pieces"
        if self.rows is not None:
            parts.append(f"{self.rows:,} rows")
        return f"Source({', '.join(parts)}, columns {list_names(self.columns, 8)})"


def check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(name, "be a positive whole number", repr(value), "Try the default.")


def cut_runs(sizes: Sequence[int], least: int) -> list[tuple[int, int]]:
    """Cut a row of sizes into runs (start, stop) that each add up to ``least`` or more, but for the last."""
    cuts, start, size = [], 0, 0
    for stop, more in enumerate(sizes, 1):
        size += more
        if size >= least or stop == len(sizes):
            cuts.append((start, stop))
            start, size = stop, 0
    return cuts


def _check_unchanged(piece: Piece) -> None:
    if piece.path and fingerprint_file(piece.path) != piece.fingerprint:
        got = "a file that has changed since"
        fix = "Open the source again once nothing writes to it."
        raise ArgumentError("path", "stay as it was when the source was opened", got, fix)


def _as_schema(batch: pa.RecordBatch, schema: pa.Schema, source: str) -> pa.RecordBatch:
    """Take the columns of a schema, in its order, each as its type."""
    if batch.schema.equals(schema):
        return batch
    pa = import_pyarrow()
    arrays = []
    for wanted in schema:
        try:
            arrays.append(batch.column(wanted.name).cast(wanted.type))
        except (KeyError, pa.ArrowException):  # which quotes the data
            must = f"have column {list_names([wanted.name])} as {wanted.type} in all its rows"
            raise ArgumentError(source, must, "none or others", "Check how it was written.") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_missing(batch: pa.RecordBatch, source: str, before: int) -> None:
    pa, pc = import_pyarrow(), import_pyarrow("pyarrow.compute")
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count == 0 and not pa.types.is_floating(column.type):
            continue
        # A sum is the fastest way to see that nothing is NaN; there is none of float16.
        if column.null_count == 0 and not pa.types.is_float16(column.type):
            total = pc.sum(column).as_py()
            if total is None or total == total:
                continue
        gaps = is_missing(column)
        count = pc.sum(gaps).as_py()
        if count:
            first = before + pc.index(gaps, True).as_py()
            query = f"Add 'WHERE {name[:60]} IS NOT NULL' to the query, "
            fix = query if source == QUERY else "Fill or drop these rows, "
            must = f"have no missing values in column {list_names([name])}"
            rows = f"in its first {before + batch.num_rows} rows, the first in row {first}"
            raise ArgumentError(source, must, f"{count} (null or NaN) {rows}", fix + _OR_ALLOW)


def select_columns(schema: pa.Schema, columns: Sequence[str] | None, where: str, path: str = "") -> pa.Schema:
    """Choose columns of a table by name; each must be there, once."""
    names = list(schema.names)
    wanted = names if columns is None else columns
    absent = [column for column in wanted if column not in names]
    if absent:
        raise absent_error("columns", absent, names, where, path)
    doubled = [column for column in wanted if names.count(column) > 1]
    if doubled:
        raise ValueError(
            f"names of columns must be distinct in {where}. Got {list_names(doubled[:1])} twice. "
            "Rename one of the two."
        )
    return import_pyarrow().schema([(column, plain_type(schema.field(column).type)) for column in wanted])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Take categories of text as text: another file may have text, which is also faster to convert."""
    text = import_pyarrow().types.is_dictionary(kind) and is_text(kind.value_type)
    return kind.value_type if text else kind
