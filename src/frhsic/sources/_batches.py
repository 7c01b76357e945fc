"""Files as record batches: the list of files, their columns and types, and the reader of each kind.

Columns and types of all files are read before the first row, so that a missing column of the 37th file is an
error at the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.sources import _stores
from frhsic.sources._arrow import check_text, csv_options, import_pyarrow, open_ipc, open_parquet, read_ipc
from frhsic.sources._form import SAMPLE, Form, check_separators, detect_form, unpack_start
from frhsic.sources._missing import check_placeholders
from frhsic.sources._source import Piece, Source, check_count, cut_runs, select_columns
from frhsic.sources._streams import open_stream

if TYPE_CHECKING:
    import pyarrow as pa

# A column of a Parquet file is read through a window of this size, so that a row group may be of any size.
_WINDOW = 1 << 20
# But a request to a store costs tens of milliseconds, whatever its size: row groups up to this size in one.
_REQUEST = 64 << 20
_BLOCK = 4 << 20  # bytes of a CSV at a time; the types of its columns are those of the first block
_REQUESTS = 16  # footers of files in a store that are read at the same time


def open_source(
    where: Any,
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int = 65_536,
    piece_rows: int = 1_000_000,
    allow_missing: bool = False,
    missing_values: Sequence[str | float] = (),
) -> Source:
    """Open tables of any size, to be read as record batches in bounded memory.

    Columns and types of all files are read before the first row.

    Parameters
    ----------
    where : path, list of paths, Arrow data, lazy frame
        Paths of CSV, Parquet and Arrow files (told by their content), of folders, patterns such as
        'scores/*.parquet' and URLs that fsspec knows ('s3://bank/scores/*.parquet'; it takes credentials from
        the environment); a pyarrow Dataset, Table, RecordBatchReader or iterable of record batches; a Polars
        LazyFrame; any frame with an Arrow stream.
    columns : sequence of str, optional
        The columns to read, in this order; by default all. Others are not read.
    batch_rows : int, default=65_536
        The most rows of a batch.
    piece_rows : int, default=1_000_000
        A Parquet file with more rows is cut between row groups into pieces of at least this many rows.
    allow_missing : bool, default=False
        Whether null and NaN may occur; ``drop_missing`` leaves out such rows of a batch. By default they are
        an error that names file, column and row.
    missing_values : sequence of str or number, optional
        Placeholders such as "unknown" and -999: cells that stand for no value, in every column that is read.

    Returns
    -------
    Source
        Nothing of it is in memory but names and types.

    Raises
    ------
    ValueError, OSError
        If there is no such file, if one is damaged, lacks a column or has one of another type. The message
        names the file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from frhsic.sources import write_table
    >>> with TemporaryDirectory() as folder:
    ...     write_table({"age": [31, 45], "score": [0.2, 0.7]}, f"{folder}/a.parquet")
    ...     sum(batch.num_rows for batch in open_source(f"{folder}/*.parquet", columns=["age"]))
    2
    """
    import_pyarrow()
    check_count("batch_rows", batch_rows)
    check_count("piece_rows", piece_rows)
    if isinstance(columns, str) or (columns is not None and not columns):
        fix = "Write ['age', 'score'], say."
        raise ArgumentError("columns", "be a list of column names", repr(columns), fix)
    wanted = None if columns is None else list(dict.fromkeys(columns))
    placeholders = check_placeholders(missing_values)
    paths = _list_paths(where)
    if paths is None:
        schema, read, rows = open_stream(where, wanted)
        return Source(schema, (Piece("stream", rows=rows),), read, batch_rows, allow_missing, placeholders)
    schema, pieces = _cut_pieces(paths, wanted, piece_rows, placeholders)
    read_file = partial(_read_file, placeholders=placeholders)
    return Source(schema, pieces, read_file, batch_rows, allow_missing, placeholders)


def _list_paths(where: Any) -> list[str] | None:
    """List all files, sorted; None if ``where`` is no path."""
    several = list(where) if isinstance(where, (list, tuple)) else [where]
    if not all(isinstance(each, (str, os.PathLike)) for each in several) or not several:
        return None
    files = []
    for each in several:
        path = os.fspath(each)
        inside = _stores.list_files(path)
        if not inside:
            what = "an empty folder" if not _stores.is_url(path) and os.path.isdir(path) else "none"
            got = f"Got {what} for '{_stores.redact_url(path)}'. Check the path."
            raise FileNotFoundError(f"'where' must name files that exist. {got}")
        files += inside
    files.sort()
    seen: set[str] = set()
    for path in files:
        target = path if _stores.is_url(path) else os.path.realpath(path)
        if target in seen:
            got = f"'{_stores.redact_url(path)}' twice, as it is or through a link"
            raise ArgumentError("where", "name each file once", got, "Leave one out.")
        seen.add(target)
    return files


@dataclass(frozen=True)
class _Header:
    """The columns and types of a file, read before its rows."""

    path: str
    fingerprint: str
    form: Form
    schema: pa.Schema
    groups: tuple[int, ...] | None  # rows of each row group


def _read_header(path: str, placeholders: tuple[str, ...] = ()) -> _Header:
    groups = None
    with _stores.name_errors(path):
        mark = _stores.fingerprint_file(path)
        form = detect_form(*unpack_start(_stores.read_start(path, SAMPLE)))
        if form.compressed and form.name in ("parquet", "arrow"):
            got = "a Parquet or Arrow file in gzip"
            fix = "Unpack it; Parquet compresses by itself."
            raise ArgumentError("path", "be read from its end, which gzip does not allow", got, fix)
        with _stores.open_file(path) as file:
            if form.name == "parquet":
                with _parquet(file) as whole:
                    schema, facts = whole.schema_arrow, whole.metadata
                    groups = tuple(facts.row_group(j).num_rows for j in range(facts.num_row_groups))
            elif form.name == "csv":
                with _csv(file, form, placeholders=placeholders) as reader:
                    schema = reader.schema
            else:
                schema = _ipc(file, form).schema
        if not schema.names:
            raise ArgumentError("path", "be a table with columns", "none", "Check how the file was written.")
    return _Header(path, mark, form, schema, groups)


def _cut_pieces(
    paths: list[str], columns: list[str] | None, piece_rows: int, placeholders: tuple[str, ...]
) -> tuple[pa.Schema, tuple[Piece, ...]]:
    read = partial(_read_header, placeholders=placeholders)
    headers: Iterable[_Header]
    if any(map(_stores.is_url, paths)):
        with ThreadPoolExecutor(_REQUESTS) as pool:
            headers = list(pool.map(read, paths))
    else:
        headers = map(read, paths)
    schema, pieces = None, []
    for header in headers:
        schema = _join_schema(schema, header, columns, paths[0])
        name, groups = _stores.redact_url(header.path), header.groups or ()
        piece = partial(Piece, fingerprint=header.fingerprint, path=header.path, form=header.form)
        cuts = cut_runs(groups, piece_rows)
        if len(cuts) < 2:
            pieces.append(piece(name, rows=None if header.groups is None else sum(groups)))
            continue
        first = 0
        for start, stop in cuts:
            rows, cut = sum(groups[start:stop]), f"{name}[{start}:{stop}]"
            pieces.append(piece(cut, rows=rows, first_row=first, row_groups=(start, stop)))
            first += rows
    if all(piece.rows == 0 for piece in pieces):
        got = f"0 rows, in {len(paths)} files"
        raise ArgumentError("where", "hold rows", got, "Check how they were written.")
    return schema, tuple(pieces)


def _join_schema(
    schema: pa.Schema | None, header: _Header, columns: list[str] | None, first: str
) -> pa.Schema:
    """Join the types of one more file with those of the files before it."""
    pa = import_pyarrow()
    name = _stores.redact_url(header.path)
    wanted = columns if columns is not None or schema is None else list(schema.names)
    mine = select_columns(header.schema, wanted, f"'{name}'", header.path)
    if header.form.name == "csv":
        with _stores.name_errors(header.path):
            check_text(mine)
            check_separators(header.form, mine.names)
    if schema is None:
        return mine
    if columns is None and len(mine.names) < len(header.schema.names):
        more = [column for column in header.schema.names if column not in mine.names]
        got = f"also {list_names(more, 8)}"
        fix = "Name the columns to read: columns=[...]."
        raise ArgumentError(name, f"have the columns of '{_stores.redact_url(first)}'", got, fix)
    fields = []
    for before, now in zip(schema, mine, strict=True):
        try:
            both = pa.unify_schemas([pa.schema([before]), pa.schema([now])], promote_options="permissive")
        except pa.ArrowException:
            got = f"{now.type} in column {list_names([now.name])}, which was {before.type}"
            fix = "Write the file again with that type."
            raise ArgumentError(name, "have the types of the files before it", got, fix) from None
        fields.append(both.field(0))
    return pa.schema(fields)


def _read_file(
    piece: Piece, schema: pa.Schema, batch_rows: int, *, placeholders: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    form, names = piece.form, list(schema.names)
    assert form is not None  # noqa: S101  (a piece of a file has one)
    with _stores.open_file(piece.path) as file:
        if form.name == "parquet":
            with _parquet(file) as whole:
                groups = list(range(*(piece.row_groups or (0, whole.num_row_groups))))
                # One thread: pieces are what runs side by side.
                if not _stores.is_url(piece.path):
                    yield from whole.iter_batches(batch_rows, groups, names, use_threads=False)
                    return
                for group in groups:
                    reader = _parquet(file, whole.metadata) if _fits(whole, group, names) else whole
                    yield from reader.iter_batches(batch_rows, [group], names, use_threads=False)
        elif form.name == "csv":
            with _csv(file, form, schema, placeholders) as reader:
                yield from reader
        else:
            yield from read_ipc(_ipc(file, form, names), form)


def _parquet(file: Any, at_once: Any = None) -> Any:
    """Read columns through a window, or each row group at once if the metadata of the file are given."""
    window = _WINDOW if at_once is None else 0
    return open_parquet(file, metadata=at_once, buffer_size=window, pre_buffer=at_once is not None)


def _fits(whole: Any, group: int, columns: Sequence[str]) -> bool:
    """Return whether the columns of a row group are small enough for one request."""
    facts = whole.metadata.row_group(group)
    chunks = [facts.column(j) for j in range(facts.num_columns)]
    wanted = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]
    return sum(chunk.total_compressed_size for chunk in wanted) <= _REQUEST


def _csv(file: Any, form: Form, schema: pa.Schema | None = None, placeholders: tuple[str, ...] = ()) -> Any:
    types = None if schema is None else dict(zip(schema.names, schema.types, strict=True))
    columns = None if types is None else list(types)
    options = csv_options(form, columns, types, placeholders, block_size=_BLOCK, use_threads=False)
    return import_pyarrow("pyarrow.csv").open_csv(_unpack(file, form), **options)


def _ipc(file: Any, form: Form, columns: list[str] | None = None) -> Any:
    whole = open_ipc(_unpack(file, form), form)
    if columns is None:
        return whole
    file.seek(0)
    fields = list(map(whole.schema.names.index, columns))
    options = import_pyarrow().ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    return open_ipc(_unpack(file, form), form, options=options)


def _unpack(file: Any, form: Form) -> Any:
    return import_pyarrow().CompressedInputStream(file, "gzip") if form.compressed else file
