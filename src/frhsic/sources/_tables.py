"""Tables in files, read and written as a whole. Only the columns that are asked for are held in memory."""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic._files import PathLike, check_regular, replacing
from frhsic._text import list_names
from frhsic.sources import _arrow
from frhsic.sources._arrow import import_pyarrow, open_ipc, open_parquet
from frhsic.sources._form import GZIP, SAMPLE, Form, check_separators, detect_form, parse_separated
from frhsic.sources._missing import check_placeholders, replace_placeholders

if TYPE_CHECKING:
    import pyarrow as pa

_PART = 1 << 20  # bytes that are looked at together


def read_table(
    path: PathLike, *, columns: Sequence[str] | None = None, missing_values: Sequence[str | float] = ()
) -> pa.Table:
    """Columns of a CSV, Parquet or Arrow file as a pyarrow Table, which ``frhsic.data`` takes as it is.

    Delimiter (comma, semicolon, tab, bar), decimal comma, encoding (UTF-8; UTF-16 and UTF-32 with a byte
    order mark) and gzip of a CSV are told by its first lines; these must name the columns. Empty cells, "NA",
    "NaN" and "null" are missing. Signs between thousands ("1.234,56") are read where cells leave no doubt.

    Parameters
    ----------
    path : str or path
        A regular file; its content tells what it is, not its name.
    columns : sequence of str, optional
        The columns to read, in this order; by default all.
    missing_values : sequence of str or number, optional
        Placeholders such as "unknown" and -999: cells that stand for no value, in every column that is read.

    Returns
    -------
    pyarrow.Table
        At least one row.

    Raises
    ------
    ValueError
        If the file is no such table, is empty, or lacks a column.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_table({"age": [31, 45], "score": [0.2, 0.7]}, f"{folder}/t.csv")
    ...     read_table(f"{folder}/t.csv", columns=["score"]).to_pydict()
    {'score': [0.2, 0.7]}
    """
    placeholders = check_placeholders(missing_values)
    with _open_form(path) as form:
        names = _read_names(path, form)
        wanted = names if columns is None else list(dict.fromkeys(columns))
        absent = [name for name in wanted if name not in names]
        if absent:
            raise absent_error("columns", absent, names)
        doubled = sorted({name for name in wanted if names.count(name) > 1})
        if doubled:
            must, got = "be a table with distinct column names", f"{list_names(doubled[:1])} twice"
            raise ArgumentError("path", must, got, "Rename one of the two.")
        check_separators(form, wanted)
        table = replace_placeholders(_read(path, form, wanted, placeholders), placeholders, convert=True)
        if form.name == "csv":
            table = parse_separated(table, form)
    if table.num_rows == 0:
        got = f"0 rows under {len(names)} column names"
        raise ArgumentError("path", "be a table with rows", got, "Check how the file was written.")
    return table


def has_at_most(path: PathLike, rows: int) -> bool:
    """Return whether a CSV has at most so many lines below its header; reads no further than it must."""
    with open(path, "rb") as file:
        packed = file.read(2) == GZIP
    with gzip.open(path) if packed else open(path, "rb") as file:
        lines = 0
        while part := file.read(_PART):
            # Each sign of UTF-16 and UTF-32 has bytes of its own. A file of an old Mac has no line feeds.
            lines += max(part.count(b"\n"), part.count(b"\r"))
            if lines > rows + 1:
                return False
    return True


def column_names(path: PathLike) -> list[str]:
    """Return the names of the columns of a CSV, Parquet or Arrow file, without reading its rows."""
    with _open_form(path) as form:
        return _read_names(path, form)


def write_table(columns: Any, path: PathLike) -> None:
    """Write columns as Parquet, CSV or Arrow, by the suffix of the path, in one step.

    Parameters
    ----------
    columns : pyarrow Table or dict of columns
    path : str or path
        Ends in ".parquet", ".csv", ".arrow" or ".feather". A file there is replaced once all is written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_table({"age": [31, 45]}, f"{folder}/t.arrow")
    ...     read_table(f"{folder}/t.arrow").num_rows
    2
    """
    pa = import_pyarrow()
    suffix = check_suffix(path)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    with replacing(path) as file:
        if suffix == ".parquet":
            # Without a checksum a damaged page that is not compressed reads as other numbers.
            import_pyarrow("pyarrow.parquet").write_table(table, file, write_page_checksum=True)
        elif suffix == ".csv":
            import_pyarrow("pyarrow.csv").write_csv(_decode(table), file)
        else:
            import_pyarrow("pyarrow.feather").write_feather(table, file)


def write_batches(batches: Iterable[pa.RecordBatch], path: PathLike) -> int:
    """Write record batches as they come, as ``write_table`` writes a table, and return the number of rows."""
    pa = import_pyarrow()
    suffix = check_suffix(path)
    waiting = iter(batches)
    first = next(waiting, None)
    if first is None:
        raise ArgumentError("batches", "hold at least one row", "none", "Pass a table with rows.")
    count = 0
    with replacing(path) as file:
        writer: Any
        if suffix == ".parquet":
            parquet = import_pyarrow("pyarrow.parquet")
            writer = parquet.ParquetWriter(file, first.schema, write_page_checksum=True)
        elif suffix == ".csv":
            schema = _decode(pa.Table.from_batches([first])).schema
            writer = import_pyarrow("pyarrow.csv").CSVWriter(file, schema)
        else:
            writer = pa.ipc.new_file(file, first.schema)
        with writer:
            for batch in itertools.chain([first], waiting):
                table = pa.Table.from_batches([batch])
                writer.write_table(_decode(table) if suffix == ".csv" else table)
                count += batch.num_rows
    return count


def check_suffix(path: PathLike) -> str:
    """Return the suffix of a path if ``write_table`` can write to it."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".parquet", ".csv", ".arrow", ".feather"):
        got = list_names([suffix]) if suffix else "none of them"
        must = "end in .parquet, .csv, .arrow or .feather"
        raise ArgumentError("path", must, got, "Choose one of these.")
    return suffix


def absent_error(
    argument: str, absent: Sequence[str], names: Sequence[str], where: str = "the file", path: str = ""
) -> ArgumentError:
    """Return the error about columns that are not there, with the names that may have been meant.

    ``path`` is that of a file: a folder such as region=north may have the name that is asked for.
    """
    close = difflib.get_close_matches(absent[0], names, n=3, cutoff=0.6)
    lower = {name.lower().strip(): name for name in names}
    if absent[0].lower().strip() in lower:
        close = [lower[absent[0].lower().strip()], *close]
    fix = f"The columns are {list_names(names, 8)}; the first line of a CSV must name them."
    if close:
        fix = f"Did you mean {list_names(list(dict.fromkeys(close)), 8, ' or ')}?"
    if re.search(rf"(^|[/\\]){re.escape(absent[0])}=[^/\\]*[/\\]", path):
        fix = "It is part of the names of folders, which are not read: write it into the files as a column."
    got = f"{list_names(absent[:1])}, which is none"
    return ArgumentError(argument, f"name columns of {where}", got, fix)


@contextlib.contextmanager
def _open_form(path: PathLike) -> Iterator[Form]:
    """Find out what a file is; inside, errors of pyarrow about it are translated."""
    check_regular(os.stat(path))  # opening a pipe would wait for its writer
    with open(path, "rb") as raw:
        packed = raw.read(2) == GZIP
    with _arrow.translate_errors():
        with (gzip.open if packed else open)(path, "rb") as file:
            sample = file.read(SAMPLE)
        yield detect_form(sample, packed)


def _open_native(path: PathLike, form: Form) -> Any:
    """Open a file as pyarrow does: its threads may still hold a file of Python's at exit, and abort then."""
    pa = import_pyarrow()
    if not form.compressed:
        return pa.OSFile(os.fspath(path))
    if form.name == "csv":
        return pa.CompressedInputStream(pa.OSFile(os.fspath(path)), "gzip")
    # Parquet and Arrow are read from their end, which gzip reaches only through everything before.
    with gzip.open(path, "rb") as file:
        return pa.BufferReader(file.read())


def _read_names(path: PathLike, form: Form) -> list[str]:
    if form.name == "csv":
        names = _read_first_row(path, form)
    else:
        with _open_native(path, form) as source:
            parquet = form.name == "parquet"
            schema = open_parquet(source).schema_arrow if parquet else open_ipc(source, form).schema
        names = list(schema.names)
    if not names:
        raise ArgumentError("path", "be a table with columns", "none", "Check how the file was written.")
    return names


def _read_first_row(path: PathLike, form: Form) -> list[str]:
    encoding = "utf-8-sig" if form.encoding == "utf8" else form.encoding
    with (gzip.open if form.compressed else open)(path, "rt", encoding=encoding, newline="") as text:
        try:
            return next((row for row in csv.reader(text, delimiter=form.delimiter) if row), [])
        except UnicodeDecodeError:
            raise _arrow.encoding_error() from None
        except csv.Error:
            raise _arrow.damaged_error("a first line that is no CSV") from None


def _read(path: PathLike, form: Form, columns: list[str], placeholders: Sequence[str]) -> pa.Table:
    pa, csv_reader = import_pyarrow(), import_pyarrow("pyarrow.csv")
    with _open_native(path, form) as source:
        if form.name == "parquet":
            return open_parquet(source).read(columns=columns)
        if form.name != "csv":
            reader = open_ipc(source, form)
            parts = [pa.Table.from_batches([one]).select(columns) for one in _arrow.read_ipc(reader, form)]
            return pa.concat_tables(parts) if parts else reader.schema.empty_table().select(columns)
        table = csv_reader.read_csv(source, **_arrow.csv_options(form, columns, None, placeholders))
    _arrow.check_text(table.schema)
    return table


def _decode(table: pa.Table) -> pa.Table:
    """Return categories as their labels, since a CSV knows no others."""
    pa = import_pyarrow()
    for j, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(j, field.name, table.column(j).cast(field.type.value_type))
    return table
