"""Tables in files: what a file is, is told by its first bytes, never by its name.

Only the columns that are asked for are held in memory. pyarrow reads and writes; it is imported inside the
functions, so that this room can be imported without it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import difflib
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from frhsic._checks import ArgumentError
from frhsic._files import PathLike, check_regular, replacing

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE = 65_536  # bytes that are looked at to tell what a file is
_DELIMITERS = ",;\t|"
_SPACES = "' \u00a0\u2009\u202f"  # signs between thousands beside comma and point
# Numbers with a decimal sign and, maybe, other signs between thousands.
_WRITTEN = {
    sign: re.compile(rf"[+-]?(\d{{1,3}}([{other}{_SPACES}]\d{{3}})+|\d+)(\{sign}\d+)?")
    for sign, other in ((",", "."), (".", ","))
}
# What may be thousands as well as a number with three decimals.
_AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Form:
    """What a file is, and for a CSV how it is written."""

    name: Literal["parquet", "arrow", "stream", "csv"]
    compressed: bool = False
    encoding: str = "utf8"
    delimiter: str = ","
    decimal: str = "."
    shown: str = ""  # the decimal signs that cells show beyond doubt
    ambiguous: tuple[tuple[str, str], ...] = ()  # columns, each with a cell, that may hold thousands


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
        A regular file; what it is, is told by its content.
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
    placeholders = check_placeholders(missing_values)
    with _understood(path) as form:
        names = _names(path, form)
        wanted = names if columns is None else list(dict.fromkeys(columns))
        absent = [name for name in wanted if name not in names]
        if absent:
            raise absent_columns("columns", absent, names)
        doubled = sorted({name for name in wanted if names.count(name) > 1})
        if doubled:
            raise ArgumentError(
                "path",
                "be a table with distinct column names",
                f"{show(doubled[:1])} twice",
                "Rename one of the two.",
            )
        check_separators(form, wanted)
        table = without_placeholders(_read(path, form, wanted, placeholders), placeholders, convert=True)
        if form.name == "csv":
            table = _without_separators(table, form)
    if table.num_rows == 0:
        raise ArgumentError(
            "path",
            "be a table with rows",
            f"0 rows under {len(names)} column names",
            "Check how the file was written.",
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


def check_placeholders(missing_values: object) -> tuple[str, ...]:
    """Return placeholders as text, or refuse what is none."""
    if isinstance(missing_values, str) or not isinstance(missing_values, Iterable):
        raise TypeError(
            "'missing_values' must be a list of strings or numbers. "
            f"Got '{type(missing_values).__name__}'. Write ['unknown', -999], say."
        )
    found = tuple(str(value).strip() for value in missing_values)
    if "" in found:
        raise ArgumentError(
            "missing_values",
            "be text or numbers",
            "an empty one",
            "Leave it out: empty cells are missing anyway.",
        )
    return found


def without_placeholders(
    table: pa.Table | pa.RecordBatch, placeholders: Sequence[str], *, convert: bool = False
) -> pa.Table | pa.RecordBatch:
    """Return a table with missing values in the place of placeholders.

    With ``convert``, a column of text that has only numbers left then becomes one of numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"age": [31, -999], "job": ["chef", "unknown"]})
    >>> without_placeholders(table, ["unknown", "-999"]).to_pydict()
    {'age': [31, None], 'job': ['chef', None]}
    """
    if not placeholders:
        return table
    pa = need_pyarrow()
    import pyarrow.compute as pc

    numbers = []
    for text in placeholders:
        with contextlib.suppress(ValueError):
            numbers.append(float(text))
    fields, columns = list(table.schema), list(table.columns)
    for j, (field, column) in enumerate(zip(fields, columns, strict=True)):
        kind = field.type
        labels = pa.types.is_dictionary(kind)
        if labels or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            # Of categories only the labels are looked at; their type stays.
            text = column.cast(kind.value_type) if labels else column
            if not (pa.types.is_string(text.type) or pa.types.is_large_string(text.type)):
                continue
            gone = pc.is_in(pc.utf8_trim_whitespace(text), pa.array(placeholders, text.type))
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            gone = pc.is_in(column.cast(pa.float64(), safe=False), pa.array(numbers, pa.float64()))
        else:
            continue
        if not pc.any(gone).as_py():
            continue
        column = pc.if_else(gone, pa.scalar(None, kind), column)
        if convert and not labels and pa.types.is_string(kind):
            with contextlib.suppress(pa.ArrowInvalid):
                column = column.cast(pa.float64())
        fields[j], columns[j] = field.with_type(column.type), column
    return type(table).from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))


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
        got = show([suffix]) if suffix else "none of them"
        raise ArgumentError("path", "end in .parquet, .csv, .arrow or .feather", got, "Choose one of these.")
    return suffix


def absent_columns(
    argument: str, absent: Sequence[str], names: Sequence[str], where: str = "the file"
) -> ArgumentError:
    """Return an error that says which columns are not there, and which ones may have been meant."""
    close = difflib.get_close_matches(absent[0], names, n=3, cutoff=0.6)
    lower = {name.lower().strip(): name for name in names}
    if absent[0].lower().strip() in lower:
        close = [lower[absent[0].lower().strip()], *close]
    cure = (
        f"Did you mean {show(list(dict.fromkeys(close)), ' or ')}?"
        if close
        else f"The columns are {show(names)}; the first line of a CSV must name them."
    )
    got = f"{show(absent[:1])}, which is none"
    return ArgumentError(argument, f"name columns of {where}", got, cure)


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
    except binascii.Error:
        raise _damaged("a Parquet footer that contradicts itself") from None
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
        raise ArgumentError("path", "be a table with rows", "an empty file", "Check how it was written.")
    if sample.startswith(b"PAR1"):
        return Form("parquet", packed)
    if sample.startswith(b"ARROW1"):
        return Form("arrow", packed)
    if sample.startswith(b"\xff\xff\xff\xff"):
        return Form("stream", packed)
    encoding = "utf16" if sample.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf8"
    if sample.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        encoding = "utf32"
    if encoding == "utf8" and (b"\x00" in sample or sample.startswith((b"PK\x03\x04", b"FEA1", b"\x28\xb5"))):
        what = "a zip archive or spreadsheet" if sample.startswith(b"PK") else "other binary data"
        raise ArgumentError(
            "path",
            "be a CSV, Parquet or Arrow file",
            what,
            "Save the table as CSV (UTF-8) or Parquet and pass that file.",
        )
    text = sample.decode(encoding, errors="replace").removeprefix("\ufeff")
    lines = text.splitlines()
    # The last line of a sample may be cut.
    lines = [line for line in (lines[:-1] if len(sample) >= SAMPLE and len(lines) > 1 else lines) if line]
    delimiter = _delimiter(lines[:50])
    try:
        header, *rows = csv.reader(lines, delimiter=delimiter)
    except (csv.Error, ValueError):  # the reader will say what is wrong
        header, rows = [], []
    cells = [[field.strip() for field in column] for column in zip(*rows, strict=False)]
    shown = "".join(sign for sign in ",." if any(_shows(cell, sign) for column in cells for cell in column))
    decimal = "," if shown == "," and delimiter != "," else "."
    ambiguous: list[tuple[str, str]] = []
    if not shown and delimiter != ",":
        some = {cell[-4] for column in cells for cell in column if _AMBIGUOUS.fullmatch(cell)}
        decimal = "," if some == {","} else "."
        for name, column in zip(header, cells, strict=False):
            separated = [cell for cell in column if _AMBIGUOUS.fullmatch(cell)]
            # 1.234 beside 987: as thousands these are 1234 and 987, as decimals they are in another order.
            if separated and any(map(_INTEGER.fullmatch, column)):
                ambiguous.append((name, separated[0]))
    return Form("csv", packed, encoding, delimiter, decimal, shown, tuple(ambiguous))


def _shows(cell: str, sign: str) -> bool:
    """Return whether a number can only be written with this decimal sign."""
    other = "," if sign == "." else "."
    if not _WRITTEN[sign].fullmatch(cell) or _AMBIGUOUS.fullmatch(cell):
        return False
    return sign in cell or cell.count(other) > 1


def check_separators(form: Form, columns: Sequence[str]) -> None:
    """Refuse columns in which a sign may stand between thousands or before decimals."""
    for name, cell in form.ambiguous:
        if name in columns:
            raise ArgumentError(
                "path",
                f"have numbers of one meaning in column {show([name])}",
                f"{show([cell])} beside whole numbers, which may be thousands or have three decimals",
                "Write numbers without signs between thousands.",
            )


def _without_separators(table: pa.Table, form: Form) -> pa.Table:
    """Return a table with numbers in the place of columns of text such as "1.234,56"."""
    pa = need_pyarrow()
    import pyarrow.compute as pc

    for j, field in enumerate(table.schema):
        if not pa.types.is_string(field.type):
            continue
        column = table.column(j)
        cells = [cell.strip() for cell in pc.unique(column).to_pylist() if cell is not None]
        # Where the file shows a decimal sign, the other one is none.
        possible = [sign for sign in ",." if form.shown in ("", sign)]
        possible = [sign for sign in possible if all(map(_WRITTEN[sign].fullmatch, cells))]
        if len(possible) != 1 or not any("," in cell or "." in cell for cell in cells):
            continue
        sign = possible[0]
        plain = pc.replace_substring_regex(column, f"[{'.' if sign == ',' else ','}{_SPACES}]", "")
        numbers = pc.replace_substring(plain, sign, ".").cast(pa.float64())
        table = table.set_column(j, field.with_type(numbers.type), numbers)
    return table


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
    if form.name == "csv":
        names = _first_row(path, form)
    else:
        with _native(path, form) as source:
            schema = (
                open_parquet(source).schema_arrow if form.name == "parquet" else _ipc(source, form).schema
            )
        names = list(schema.names)
    if not names:
        raise ArgumentError("path", "be a table with columns", "none", "Check how the file was written.")
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


def _read(path: PathLike, form: Form, columns: list[str], placeholders: Sequence[str] = ()) -> pa.Table:
    pa = need_pyarrow()
    import pyarrow.csv

    with _native(path, form) as source:
        if form.name == "parquet":
            return open_parquet(source).read(columns=columns)
        if form.name != "csv":
            reader = _ipc(source, form)
            count = reader.num_record_batches if form.name == "arrow" else None
            batches = reader if count is None else (reader.get_batch(j) for j in range(count))
            parts = [pa.Table.from_batches([checked_batch(batch)]).select(columns) for batch in batches]
            return pa.concat_tables(parts) if parts else reader.schema.empty_table().select(columns)
        parse, convert = csv_options(form, columns, placeholders=placeholders)
        read = pyarrow.csv.ReadOptions(encoding=form.encoding)
        table = pyarrow.csv.read_csv(source, read_options=read, parse_options=parse, convert_options=convert)
    check_text(table.schema)
    return table


def csv_options(
    form: Form,
    columns: Sequence[str] | None = None,
    types: dict[str, Any] | None = None,
    placeholders: Sequence[str] = (),
) -> tuple[Any, Any]:
    """Say how a CSV is cut into cells, and how cells become values (of ``types``, where known)."""
    import pyarrow.csv

    parse = pyarrow.csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(
        include_columns=columns,
        column_types=types,
        strings_can_be_null=True,
        quoted_strings_can_be_null=bool(placeholders),  # a placeholder is one in quotes too
        decimal_point=form.decimal,
        null_values=[*pyarrow.csv.ConvertOptions().null_values, *placeholders],
    )
    return parse, convert


def check_text(schema: pa.Schema) -> None:
    """Refuse a CSV in which pyarrow found text that is not UTF-8."""
    for field in schema:
        if need_pyarrow().types.is_binary(field.type):
            raise _not_utf8(f" in column {show([field.name])}")


def open_parquet(source: Any, **options: Any) -> Any:
    """Open a Parquet file so that pages are compared with their checksums, where their writer gave them any.

    The footer has no checksum. What it says twice must agree: a row group that lost rows there would
    otherwise be read without them.
    """
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(source, page_checksum_verification=True, **options)
    facts, stored = file.metadata, (file.metadata.metadata or {}).get(b"ARROW:schema")
    # Not row_group(j).column(k): pyarrow ends the process there if the damage is in the statistics.
    agrees = sum(facts.row_group(j).num_rows for j in range(facts.num_row_groups)) == facts.num_rows
    if stored is not None:
        pa = need_pyarrow()
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
        is_binary = pa.types.is_binary
        agrees &= [(field.name, is_binary(field.type)) for field in schema] == [
            (field.name, is_binary(field.type)) for field in file.schema_arrow
        ]
    if not agrees:
        raise _damaged("a Parquet footer that contradicts itself")
    return file


def checked_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Refuse a batch of an Arrow file whose offsets or text cannot be right. The format has no checksums."""
    batch.validate(full=True)
    return batch


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
    must = "be a whole CSV, Parquet or Arrow file"
    return ArgumentError("path", must, got, "Check how the file was written.")


def _not_utf8(place: str = "") -> ValueError:
    return ArgumentError(
        "path",
        "be a CSV in UTF-8, Parquet or Arrow",
        f"other bytes{place}",
        "Save the table as CSV (UTF-8) or Parquet and pass that file.",
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
