"""What a file is, told by its first bytes and never by its name; for a CSV, how its numbers are written."""

from __future__ import annotations

import csv
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.sources._arrow import SAVE_AS_CSV, import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE = 65_536  # bytes that tell what a file is
GZIP = b"\x1f\x8b"  # how a packed file begins
_Name: TypeAlias = Literal["parquet", "arrow", "stream", "csv"]
_MAGIC: dict[bytes, _Name] = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "stream"}
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

    name: _Name
    compressed: bool = False
    encoding: str = "utf8"
    delimiter: str = ","
    decimal: str = "."
    decimal_signs: str = ""  # those that cells show beyond doubt
    ambiguous: tuple[tuple[str, str], ...] = ()  # columns, each with a cell, that may hold thousands


def unpack_start(start: bytes) -> tuple[bytes, bool]:
    """Return the first bytes of a file without gzip, and whether it was packed."""
    packed = start.startswith(GZIP)
    # A decompressor that is not asked to finish takes the beginning of a gzip file.
    return zlib.decompressobj(31).decompress(start, SAMPLE) if packed else start, packed


def detect_form(sample: bytes, packed: bool) -> Form:
    """Return what a file is by its first ``SAMPLE`` bytes, unpacked."""
    if not sample:
        raise ArgumentError("path", "be a table with rows", "an empty file", "Check how it was written.")
    for start, name in _MAGIC.items():
        if sample.startswith(start):
            return Form(name, packed)
    encoding = "utf16" if sample.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf8"
    if sample.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        encoding = "utf32"
    if encoding == "utf8" and (b"\x00" in sample or sample.startswith((b"PK\x03\x04", b"FEA1", b"\x28\xb5"))):
        what = "a zip archive or spreadsheet" if sample.startswith(b"PK") else "other binary data"
        raise ArgumentError("path", "be a CSV, Parquet or Arrow file", what, SAVE_AS_CSV)
    return _detect_csv(sample, packed, encoding)


def _detect_csv(sample: bytes, packed: bool, encoding: str) -> Form:
    text = sample.decode(encoding, errors="replace").removeprefix("\ufeff")
    lines = text.splitlines()
    # The last line of a sample may be cut.
    lines = [line for line in (lines[:-1] if len(sample) >= SAMPLE and len(lines) > 1 else lines) if line]
    delimiter = _detect_delimiter(lines[:50])
    try:
        header, *rows = csv.reader(lines, delimiter=delimiter)
    except (csv.Error, ValueError):  # the reader will say what is wrong
        header, rows = [], []
    cells = [[field.strip() for field in column] for column in zip(*rows, strict=False)]
    signs = "".join(sign for sign in ",." if any(_shows(cell, sign) for column in cells for cell in column))
    decimal = "," if signs == "," and delimiter != "," else "."
    ambiguous: list[tuple[str, str]] = []
    if not signs and delimiter != ",":
        some = {cell[-4] for column in cells for cell in column if _AMBIGUOUS.fullmatch(cell)}
        decimal = "," if some == {","} else "."
        for name, column in zip(header, cells, strict=False):
            separated = [cell for cell in column if _AMBIGUOUS.fullmatch(cell)]
            # 1.234 beside 987: as thousands these are 1234 and 987, as decimals they are in another order.
            if separated and any(map(_INTEGER.fullmatch, column)):
                ambiguous.append((name, separated[0]))
    return Form("csv", packed, encoding, delimiter, decimal, signs, tuple(ambiguous))


def _shows(cell: str, sign: str) -> bool:
    """Return whether a number can only be written with this decimal sign."""
    other = "," if sign == "." else "."
    if not _WRITTEN[sign].fullmatch(cell) or _AMBIGUOUS.fullmatch(cell):
        return False
    return sign in cell or cell.count(other) > 1


def _detect_delimiter(lines: Sequence[str]) -> str:
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


def check_separators(form: Form, columns: Sequence[str]) -> None:
    """Raise ArgumentError for columns in which a sign may mean thousands or decimals."""
    for name, cell in form.ambiguous:
        if name in columns:
            must = f"have numbers of one meaning in column {list_names([name])}"
            got = f"{list_names([cell])} beside whole numbers, which may be thousands or have three decimals"
            raise ArgumentError("path", must, got, "Write numbers without signs between thousands.")


def parse_separated(table: pa.Table, form: Form) -> pa.Table:
    """Return a table with numbers in the place of columns of text such as "1.234,56"."""
    pa, pc = import_pyarrow(), import_pyarrow("pyarrow.compute")
    for j, field in enumerate(table.schema):
        if not pa.types.is_string(field.type):
            continue
        column = table.column(j)
        cells = [cell.strip() for cell in pc.unique(column).to_pylist() if cell is not None]
        # A file has one decimal sign.
        possible = [sign for sign in ",." if form.decimal_signs in ("", sign)]
        possible = [sign for sign in possible if all(map(_WRITTEN[sign].fullmatch, cells))]
        if len(possible) != 1 or not any("," in cell or "." in cell for cell in cells):
            continue
        sign = possible[0]
        plain = pc.replace_substring_regex(column, f"[{'.' if sign == ',' else ','}{_SPACES}]", "")
        numbers = pc.replace_substring(plain, sign, ".").cast(pa.float64())
        table = table.set_column(j, field.with_type(numbers.type), numbers)
    return table
