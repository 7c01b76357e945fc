"""Tables in files: what a file is, is told by its first bytes, never by its name.

Only the columns that are asked for are held in memory. pyarrow reads and writes; it is imported inside the
functions, so that this room can be imported without it.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from frhsic.sources._whole import PathLike, check_regular, replacing

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE = 65_536  # bytes that are looked at to tell what a file is
_DELIMITERS = ",;\t|"
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
_POINT_NUMBER = re.compile(r"[+-]?\d+\.\d+")


@dataclass(frozen=True)
class Form:
    """What a file is, and for a CSV how it is written."""

    name: Literal["parquet", "arrow", "stream", "csv"]
    compressed: bool = False
    encoding: str = "utf8"
    delimiter: str = ","
    decimal: str = "."


def read_table(path: PathLike, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Columns of a CSV, Parquet or Arrow file as a pyarrow Table, which ``frhsic.data`` takes as it is.

    Delimiter (comma, semicolon, tab, bar), decimal comma, encoding (UTF-8, UTF-16) and gzip of a CSV are told
    by its first lines; these must name the columns. Empty cells, "NA", "NaN" and "null" are missing.

    Parameters
    ----------
    path : str or path
        A regular file; what it is, is told by its content.
    columns : sequence of str, optional
        The columns to read, in this order; by default all.

    Returns
    -------
    pyarrow.Table
        At least one row.

    Raises
    ------
    ValueError
        If the file is no such table, is empty, or lacks a column: one sentence with the cure.
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
    with _understood(path) as form:
        names = _names(path, form)
        wanted = names if columns is None else list(dict.fromkeys(columns))
        absent = [name for name in wanted if name not in names]
        if absent:
            raise ValueError(absent_columns("columns", absent, names))
        doubled = sorted({name for name in wanted if names.count(name) > 1})
        if doubled:
            raise ValueError(
                f"'path' must be a table with distinct column names. Got {show(doubled[:1])} twice. "
                "Rename one of the two."
            )
        table = _read(path, form, wanted)
    if table.num_rows == 0:
        raise ValueError(
            f"'path' must be a table with rows. Got 0 rows under {len(names)} column names. "
            "Check how the file was written."
        )
    return table


def column_names(path: PathLike) -> list[str]:
    """Names of the columns of a CSV, Parquet or Arrow file, without reading its rows.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_table({"age": [31, 45], "score": [0.2, 0.7]}, f"{folder}/t.parquet")
    ...     column_names(f"{folder}/t.parquet")
    ['age', 'score']
    """
    with _understood(path) as form:
        return _names(path, form)


def drop_missing(
    table: pa.Table | pa.RecordBatch, columns: Sequence[str] | None = None
) -> pa.Table | pa.RecordBatch:
    """Rows of a table or record batch in which none of the columns is missing (None or NaN).

    Examples
    --------
    >>> import pyarrow as pa
    >>> drop_missing(pa.table({"age": [31, None, 45], "score": [0.2, 0.3, float("nan")]})).num_rows
    1
    """
    pa = need_pyarrow()
    import pyarrow.compute as pc

    keep = None
    for name in table.schema.names if columns is None else columns:
        column = table.column(name)
        there = pc.invert(pc.is_null(column, nan_is_null=pa.types.is_floating(column.type)))
        keep = there if keep is None else pc.and_(keep, there)
    return table if keep is None else table.filter(keep)


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
    pa = need_pyarrow()
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    suffix = check_suffix(path)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    with replacing(path) as file:
        if suffix == ".parquet":
            # Without a checksum a damaged page that is not compressed reads as other numbers.
            pyarrow.parquet.write_table(table, file, write_page_checksum=True)
        elif suffix == ".csv":
            pyarrow.csv.write_csv(_decoded(table), file)
        else:
            pyarrow.feather.write_feather(table, file)


def check_suffix(path: PathLike) -> str:
    """Return the suffix of a path that ``write_table`` can write to, or refuse it."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".parquet", ".csv", ".arrow", ".feather"):
        raise ValueError(
            "'path' must end in .parquet, .csv, .arrow or .feather. "
            f"Got {show([suffix]) if suffix else 'none of them'}. Choose one of these."
        )
    return suffix


def absent_columns(
    argument: str, absent: Sequence[str], names: Sequence[str], where: str = "the file"
) -> str:
    """Say which columns are not there, and which ones may have been meant."""
    close = difflib.get_close_matches(absent[0], names, n=3, cutoff=0.6)
    lower = {name.lower().strip(): name for name in names}
    if absent[0].lower().strip() in lower:
        close = [lower[absent[0].lower().strip()], *close]
    cure = (
        f"Did you mean {show(list(dict.fromkeys(close)), ' or ')}?"
        if close
        else f"The columns are {show(names)}; the first line of a CSV must name them."
    )
    return f"'{argument}' must name columns of {where}. Got {show(absent[:1])}, which is none. {cure}"


def need_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "Tables in files need pyarrow. Install it with the command line: pip install 'frhsic[cli]'."
        ) from error
    return pyarrow


@contextlib.contextmanager
def _understood(path: PathLike) -> Iterator[Form]:
    """Tell what a file is; inside, turn what pyarrow says about it into our words."""
    check_regular(os.stat(path))  # opening a pipe would wait for its writer
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    with in_our_words():
        with _unpacked(path, packed) as file:
            sample = file.read(SAMPLE)
        yield _form(sample, packed)


def form_of(start: bytes) -> Form:
    """Tell what a file is by its first bytes, packed or not."""
    packed = start.startswith(b"\x1f\x8b")
    # A decompressor that is not asked to finish takes the beginning of a gzip file.
    return _form(zlib.decompressobj(31).decompress(start, SAMPLE) if packed else start, packed)


@contextlib.contextmanager
def in_our_words() -> Iterator[None]:
    """Turn what pyarrow and gzip say about the file 'path' into one sentence with a cure."""
    pa = need_pyarrow()
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise _damaged("a gzip file that ends too early") from None
    except pa.ArrowException as error:
        raise _damaged(_first_line(error)) from None
    except OSError as error:
        # pyarrow says "damaged" with a plain OSError that has no number.
        if type(error) is OSError and error.errno is None:
            raise _damaged(_first_line(error)) from None
        raise


def _unpacked(path: PathLike, packed: bool) -> BinaryIO:
    return gzip.open(path, "rb") if packed else open(path, "rb")  # type: ignore[return-value]


def _native(path: PathLike, form: Form) -> Any:
    """Open a file as pyarrow does: its threads may still hold a file of Python's at exit, and abort then."""
    pa = need_pyarrow()
    if not form.compressed:
        return pa.OSFile(os.fspath(path))
    if form.name == "csv":
        return pa.CompressedInputStream(pa.OSFile(os.fspath(path)), "gzip")
    # Parquet and Arrow are read from their end, which gzip reaches only through everything before.
    with gzip.open(path, "rb") as file:
        return pa.BufferReader(file.read())


def _form(sample: bytes, packed: bool) -> Form:
    if not sample:
        raise ValueError("'path' must be a table with rows. Got an empty file. Check how it was written.")
    if sample.startswith(b"PAR1"):
        return Form("parquet", packed)
    if sample.startswith(b"ARROW1"):
        return Form("arrow", packed)
    if sample.startswith(b"\xff\xff\xff\xff"):
        return Form("stream", packed)
    encoding = "utf16" if sample.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf8"
    if encoding == "utf8" and (b"\x00" in sample or sample.startswith((b"PK\x03\x04", b"FEA1", b"\x28\xb5"))):
        what = "a zip archive or spreadsheet" if sample.startswith(b"PK") else "other binary data"
        raise ValueError(
            f"'path' must be a CSV, Parquet or Arrow file. Got {what}. "
            "Save the table as CSV (UTF-8) or Parquet and pass that file."
        )
    text = sample.decode(encoding, errors="replace").removeprefix("\ufeff")
    lines = text.splitlines()
    # The last line of a sample may be cut.
    lines = [line for line in (lines[:-1] if len(sample) >= SAMPLE and len(lines) > 1 else lines) if line]
    delimiter = _delimiter(lines[:50])
    fields = [field.strip() for row in csv.reader(lines[1:50], delimiter=delimiter) for field in row]
    comma = (
        delimiter != ","
        and any(_COMMA_NUMBER.fullmatch(field) for field in fields)
        and not any(_POINT_NUMBER.fullmatch(field) for field in fields)
    )
    return Form("csv", packed, encoding, delimiter, "," if comma else ".")


def _delimiter(lines: Sequence[str]) -> str:
    """Return the sign that cuts every line into equally many fields, and into most."""

    def width(delimiter: str) -> int:
        try:
            widths = {len(row) for row in csv.reader(lines, delimiter=delimiter)}
        except csv.Error:
            return 0
        return widths.pop() if len(widths) == 1 else 0

    best = max(_DELIMITERS, key=width)
    if width(best) > 1:
        return best
    # Lines of different lengths: the reader will say which; take the sign that the first line has most of.
    return max(_DELIMITERS, key=lines[0].count) if lines else ","


def _names(path: PathLike, form: Form) -> list[str]:
    import pyarrow.parquet

    if form.name == "csv":
        names = _first_row(path, form)
    else:
        with _native(path, form) as source:
            schema = (
                pyarrow.parquet.ParquetFile(source).schema_arrow
                if form.name == "parquet"
                else _ipc(source, form).schema
            )
        names = list(schema.names)
    if not names:
        raise ValueError("'path' must be a table with columns. Got none. Check how the file was written.")
    return names


def _first_row(path: PathLike, form: Form) -> list[str]:
    encoding = "utf-8-sig" if form.encoding == "utf8" else form.encoding
    with _unpacked(path, form.compressed) as file, io.TextIOWrapper(file, encoding, newline="") as text:
        try:
            return next((row for row in csv.reader(text, delimiter=form.delimiter) if row), [])
        except UnicodeDecodeError:
            raise _not_utf8() from None
        except csv.Error:
            raise _damaged("a first line that is no CSV") from None


def _read(path: PathLike, form: Form, columns: list[str]) -> pa.Table:
    pa = need_pyarrow()
    import pyarrow.csv
    import pyarrow.parquet

    with _native(path, form) as source:
        if form.name == "parquet":
            return pyarrow.parquet.ParquetFile(source).read(columns=columns)
        if form.name != "csv":
            reader = _ipc(source, form)
            count = reader.num_record_batches if form.name == "arrow" else None
            batches = reader if count is None else (reader.get_batch(j) for j in range(count))
            parts = [pa.Table.from_batches([batch]).select(columns) for batch in batches]
            return pa.concat_tables(parts) if parts else reader.schema.empty_table().select(columns)
        parse, convert = csv_options(form, columns)
        read = pyarrow.csv.ReadOptions(encoding=form.encoding)
        table = pyarrow.csv.read_csv(source, read_options=read, parse_options=parse, convert_options=convert)
    check_text(table.schema)
    return table


def csv_options(
    form: Form, columns: Sequence[str] | None = None, types: dict[str, Any] | None = None
) -> tuple[Any, Any]:
    """Say how a CSV is cut into cells, and how cells become values (of ``types``, where known)."""
    import pyarrow.csv

    parse = pyarrow.csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(
        include_columns=columns,
        column_types=types,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        decimal_point=form.decimal,
    )
    return parse, convert


def check_text(schema: pa.Schema) -> None:
    """Refuse a CSV in which pyarrow found text that is not UTF-8."""
    for field in schema:
        if need_pyarrow().types.is_binary(field.type):
            raise _not_utf8(f" in column {show([field.name])}")


def _ipc(source: Any, form: Form) -> Any:
    ipc = need_pyarrow().ipc
    return ipc.open_file(source) if form.name == "arrow" else ipc.open_stream(source)


def _decoded(table: pa.Table) -> pa.Table:
    """Return categories as their labels, since a CSV knows no others."""
    pa = need_pyarrow()
    for j, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(j, field.name, table.column(j).cast(field.type.value_type))
    return table


def _damaged(got: str) -> ValueError:
    return ValueError(
        f"'path' must be a whole CSV, Parquet or Arrow file. Got: {got}. Check how the file was written."
    )


def _not_utf8(place: str = "") -> ValueError:
    return ValueError(
        f"'path' must be a CSV in UTF-8, Parquet or Arrow. Got other bytes{place}. "
        "Save the table as CSV (UTF-8) or Parquet and pass that file."
    )


def _first_line(error: Exception) -> str:
    """Return what pyarrow says, up to the point where it quotes the data."""
    row = re.search(r"Expected (\d+) columns, got (\d+)", str(error))
    if row:
        # pyarrow counts columns right and rows only sometimes.
        return f"a row with {row[2]} fields under {row[1]} column names"
    kind = re.search(r"CSV conversion error to ([\w\[\]]+)", str(error))
    if kind:
        return f"an entry that is no {kind[1]}, although the first rows of its column are"
    return re.split(r"[:\n.]|(?<!\w)'", str(error))[0][:120].strip() or type(error).__name__


def show(names: Sequence[str], joint: str = ", ") -> str:
    shown = joint.join(f"'{name if len(name) <= 40 else name[:39] + '…'}'" for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
