"""What we ask of pyarrow: files opened with their checks on, and its errors in our words.

pyarrow is imported inside the functions, so that ``frhsic.sources`` can be imported without it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import importlib
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic._text import list_names

if TYPE_CHECKING:
    import pyarrow as pa

    from frhsic.sources._form import Form

SAVE_AS_CSV = "Save the table as CSV (UTF-8) or Parquet and pass that file."


def import_pyarrow(module: str = "pyarrow") -> Any:
    """Import pyarrow or a module of it, or raise an ImportError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            "Tables in files need pyarrow. Install it with the command line: pip install 'frhsic[cli]'."
        ) from error


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of pyarrow and gzip about the file 'path' into one sentence that says how to fix it."""
    pa = import_pyarrow()
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise damaged_error("a gzip file that ends too early") from None
    except binascii.Error:
        raise damaged_error("a Parquet footer that contradicts itself") from None
    except pa.ArrowException as error:
        raise damaged_error(_summarise(error)) from None
    except OSError as error:
        # pyarrow says "damaged" with a plain OSError that has no number.
        if type(error) is OSError and error.errno is None:
            raise damaged_error(_summarise(error)) from None
        raise


def csv_options(
    form: Form,
    columns: Sequence[str] | None,
    types: dict[str, Any] | None,
    placeholders: Sequence[str],
    **reading: Any,
) -> dict[str, Any]:
    """Return how a CSV is read, cut into cells, and how cells become values (of ``types``, where known)."""
    csv = import_pyarrow("pyarrow.csv")
    convert = csv.ConvertOptions(
        include_columns=columns,
        column_types=types,
        strings_can_be_null=True,
        quoted_strings_can_be_null=bool(placeholders),  # a placeholder is one in quotes too
        decimal_point=form.decimal,
        null_values=[*csv.ConvertOptions().null_values, *placeholders],
    )
    return {
        "read_options": csv.ReadOptions(encoding=form.encoding, **reading),
        "parse_options": csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True),
        "convert_options": convert,
    }


def is_text(kind: Any) -> bool:
    types = import_pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def check_text(schema: pa.Schema) -> None:
    """Raise ArgumentError for a CSV in which pyarrow found text that is not UTF-8."""
    for field in schema:
        if import_pyarrow().types.is_binary(field.type):
            raise encoding_error(f" in column {list_names([field.name])}")


def open_parquet(source: Any, **options: Any) -> Any:
    """Open a Parquet file so that pages are compared with their checksums, where their writer gave them any.

    The footer has no checksum. What it says twice must agree: a row group that lost rows there would
    otherwise be read without them.
    """
    parquet = import_pyarrow("pyarrow.parquet")
    file = parquet.ParquetFile(source, page_checksum_verification=True, **options)
    facts, stored = file.metadata, (file.metadata.metadata or {}).get(b"ARROW:schema")
    # Not row_group(j).column(k): pyarrow ends the process there if the damage is in the statistics.
    agrees = sum(facts.row_group(j).num_rows for j in range(facts.num_row_groups)) == facts.num_rows
    if stored is not None:
        pa = import_pyarrow()
        schemas = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored))), file.schema_arrow
        first, second = ([(f.name, pa.types.is_binary(f.type)) for f in schema] for schema in schemas)
        agrees &= first == second
    if not agrees:
        raise damaged_error("a Parquet footer that contradicts itself")
    return file


def open_ipc(source: Any, form: Form, **options: Any) -> Any:
    ipc = import_pyarrow().ipc
    return (ipc.open_file if form.name == "arrow" else ipc.open_stream)(source, **options)


def read_ipc(reader: Any, form: Form) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow file or stream, checked for offsets and text that cannot be right."""
    many = form.name == "arrow"
    for batch in map(reader.get_batch, range(reader.num_record_batches)) if many else reader:
        batch.validate(full=True)  # the format has no checksums
        yield batch


def damaged_error(got: str) -> ValueError:
    return ValueError(
        f"'path' must be a whole CSV, Parquet or Arrow file. Got: {got}. Check how the file was written."
    )


def encoding_error(place: str = "") -> ArgumentError:
    return ArgumentError("path", "be a CSV in UTF-8, Parquet or Arrow", f"other bytes{place}", SAVE_AS_CSV)


def _summarise(error: Exception) -> str:
    """Return what pyarrow says, up to the point where it quotes the data."""
    row = re.search(r"Expected (\d+) columns, got (\d+)", str(error))
    if row:
        # pyarrow counts columns right and rows only sometimes.
        return f"a row with {row[2]} fields under {row[1]} column names"
    kind = re.search(r"CSV conversion error to ([\w\[\]]+)", str(error))
    if kind:
        return f"an entry that is no {kind[1]}, although the first rows of its column are"
    return re.split(r"[:\n.]|(?<!\w)'", str(error))[0][:120].strip() or type(error).__name__
