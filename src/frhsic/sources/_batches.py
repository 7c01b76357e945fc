"""Files as record batches: which files are meant, what they say of themselves, and how each kind is read.

Columns and types of all files are looked at before a row is read, so that the missing column of the 37th file
is an error at the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic.sources._files import (
    SAMPLE,
    Form,
    check_placeholders,
    check_separators,
    check_text,
    checked_batch,
    csv_options,
    form_of,
    need_pyarrow,
    open_parquet,
    show,
)
from frhsic.sources._source import Piece, Source, check_count, selected
from frhsic.sources._stores import fingerprint, first_bytes, found, is_url, naming, opened, shown
from frhsic.sources._streams import stream

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

    Columns and types of all files are looked at before the first row is read.

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
        If there is no such file, if one is damaged, lacks a column or has one of another type: one sentence
        that names the file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from frhsic.sources import write_table
    >>> with TemporaryDirectory() as folder:
    ...     write_table({"age": [31, 45], "score": [0.2, 0.7]}, f"{folder}/a.parquet")
    ...     sum(batch.num_rows for batch in open_source(f"{folder}/*.parquet", columns=["age"]))
    2
    """
    need_pyarrow()
    check_count("batch_rows", batch_rows)
    check_count("piece_rows", piece_rows)
    if isinstance(columns, str) or (columns is not None and not columns):
        raise ArgumentError(
            "columns", "be a list of column names", f"{columns!r}", "Write ['age', 'score'], say."
        )
    wanted = None if columns is None else list(dict.fromkeys(columns))
    placeholders = check_placeholders(missing_values)
    paths = _paths(where)
    if paths is None:
        schema, read, rows = stream(where, wanted)
        return Source(schema, (Piece("stream", rows=rows),), read, batch_rows, allow_missing, placeholders)
    schema, pieces = _pieces(paths, wanted, piece_rows, placeholders)
    read_file = partial(_read_file, placeholders=placeholders)
    return Source(schema, pieces, read_file, batch_rows, allow_missing, placeholders)


def _paths(where: Any) -> list[str] | None:
    """List all files that are meant, sorted; None if no paths came."""
    several = list(where) if isinstance(where, (list, tuple)) else [where]
    if not all(isinstance(each, (str, os.PathLike)) for each in several) or not several:
        return None
    files = []
    for each in several:
        path = os.fspath(each)
        inside = found(path)
        if not inside:
            what = "an empty folder" if not is_url(path) and os.path.isdir(path) else "none"
            raise FileNotFoundError(
                f"'where' must name files that exist. Got {what} for '{shown(path)}'. Check the path."
            )
        files += inside
    files.sort()
    real = [path if is_url(path) else os.path.realpath(path) for path in files]
    seen: set[str] = set()
    for path, target in zip(files, real, strict=True):
        if target in seen:
            raise ArgumentError(
                "where",
                "name each file once",
                f"'{shown(path)}' twice, as it is or through a link",
                "Leave one out.",
            )
        seen.add(target)
    return files


@dataclass(frozen=True)
class _Look:
    """What a file says of itself before its rows are read."""

    path: str
    fingerprint: str
    form: Form
    schema: pa.Schema
    groups: tuple[int, ...] | None  # rows of each row group


def _look(path: str, placeholders: tuple[str, ...] = ()) -> _Look:
    groups = None
    with naming(path):
        mark = fingerprint(path)
        form = form_of(first_bytes(path, SAMPLE))
        if form.compressed and form.name in ("parquet", "arrow"):
            raise ArgumentError(
                "path",
                "be read from its end, which gzip does not allow",
                "a Parquet or Arrow file in gzip",
                "Unpack it; Parquet compresses by itself.",
            )
        with opened(path) as file:
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
    return _Look(path, mark, form, schema, groups)


def _pieces(
    paths: list[str], columns: list[str] | None, piece_rows: int, placeholders: tuple[str, ...]
) -> tuple[pa.Schema, tuple[Piece, ...]]:
    look_at = partial(_look, placeholders=placeholders)
    looks: Iterable[_Look]
    if any(map(is_url, paths)):
        with ThreadPoolExecutor(_REQUESTS) as pool:
            looks = list(pool.map(look_at, paths))
    else:
        looks = map(look_at, paths)
    schema, pieces = None, []
    for look in looks:
        schema = _joined(schema, look, columns, paths[0])
        piece = partial(Piece, fingerprint=look.fingerprint, path=look.path, form=look.form)
        cuts = _cuts(look.groups or (), piece_rows)
        if len(cuts) < 2:
            pieces.append(piece(shown(look.path), rows=None if look.groups is None else sum(look.groups)))
            continue
        first = 0
        for start, stop in cuts:
            rows = sum((look.groups or ())[start:stop])
            name = f"{shown(look.path)}[{start}:{stop}]"
            pieces.append(piece(name, rows=rows, first_row=first, row_groups=(start, stop)))
            first += rows
    if all(piece.rows == 0 for piece in pieces):
        raise ArgumentError(
            "where", "hold rows", f"0 rows, in {len(paths)} files", "Check how they were written."
        )
    return schema, tuple(pieces)


def _joined(schema: pa.Schema | None, look: _Look, columns: list[str] | None, first: str) -> pa.Schema:
    """Take one more file into the types that hold for all."""
    pa = need_pyarrow()
    name = f"'{shown(look.path)}'"
    wanted = columns if columns is not None or schema is None else list(schema.names)
    mine = selected(look.schema, wanted, name)
    if look.form.name == "csv":
        with naming(look.path):
            check_text(mine)
            check_separators(look.form, mine.names)
    if schema is None:
        return mine
    if columns is None and len(mine.names) < len(look.schema.names):
        more = [column for column in look.schema.names if column not in mine.names]
        raise ValueError(
            f"{name} must have the columns of '{shown(first)}'. Got also {show(more)}. "
            "Name the columns to read: columns=[...]."
        )
    fields = []
    for before, now in zip(schema, mine, strict=True):
        try:
            both = pa.unify_schemas([pa.schema([before]), pa.schema([now])], promote_options="permissive")
        except pa.ArrowException:
            raise ValueError(
                f"{name} must have the types of the files before it. Got {now.type} in column "
                f"{show([now.name])}, which was {before.type}. Write the file again with that type."
            ) from None
        fields.append(both.field(0))
    return pa.schema(fields)


def _cuts(groups: Sequence[int], piece_rows: int) -> list[tuple[int, int]]:
    """Cut row groups into runs with at least ``piece_rows`` rows each, but for the last."""
    cuts, start, rows = [], 0, 0
    for j, count in enumerate(groups):
        rows += count
        if rows >= piece_rows or j == len(groups) - 1:
            cuts.append((start, j + 1))
            start, rows = j + 1, 0
    return cuts


def _read_file(
    piece: Piece, schema: pa.Schema, batch_rows: int, *, placeholders: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    form, names = piece.form, list(schema.names)
    assert form is not None  # noqa: S101  (a piece of a file has one)
    with opened(piece.path) as file:
        if form.name == "parquet":
            with _parquet(file) as whole:
                groups = list(range(*(piece.row_groups or (0, whole.num_row_groups))))
                # One thread: pieces are what runs side by side.
                if not is_url(piece.path):
                    yield from whole.iter_batches(batch_rows, groups, names, use_threads=False)
                    return
                for group in groups:
                    reader = _parquet(file, whole.metadata) if _fits(whole, group, names) else whole
                    yield from reader.iter_batches(batch_rows, [group], names, use_threads=False)
        elif form.name == "csv":
            with _csv(file, form, schema, placeholders) as reader:
                yield from reader
        else:
            reader = _ipc(file, form, names)
            many = form.name == "arrow"
            batches = map(reader.get_batch, range(reader.num_record_batches)) if many else reader
            yield from map(checked_batch, batches)


def _parquet(file: Any, at_once: Any = None) -> Any:
    """Read columns through a window, or each row group at once if the metadata of the file are given."""
    window = _WINDOW if at_once is None else 0
    return open_parquet(file, metadata=at_once, buffer_size=window, pre_buffer=at_once is not None)


def _fits(whole: Any, group: int, columns: Sequence[str]) -> bool:
    """Tell whether the columns of a row group are small enough for one request."""
    facts = whole.metadata.row_group(group)
    chunks = [facts.column(j) for j in range(facts.num_columns)]
    wanted = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]
    return sum(chunk.total_compressed_size for chunk in wanted) <= _REQUEST


def _csv(file: Any, form: Form, schema: pa.Schema | None = None, placeholders: tuple[str, ...] = ()) -> Any:
    import pyarrow.csv

    types = None if schema is None else dict(zip(schema.names, schema.types, strict=True))
    parse, convert = csv_options(form, None if types is None else list(types), types, placeholders)
    read = pyarrow.csv.ReadOptions(encoding=form.encoding, block_size=_BLOCK, use_threads=False)
    plain = _unpacked(file, form)
    return pyarrow.csv.open_csv(plain, read_options=read, parse_options=parse, convert_options=convert)


def _ipc(file: Any, form: Form, columns: list[str] | None = None) -> Any:
    ipc = need_pyarrow().ipc
    start = ipc.open_file if form.name == "arrow" else ipc.open_stream
    whole = start(_unpacked(file, form))
    if columns is None:
        return whole
    file.seek(0)
    options = ipc.IpcReadOptions(
        included_fields=list(map(whole.schema.names.index, columns)), use_threads=False
    )
    return start(_unpacked(file, form), options=options)


def _unpacked(file: Any, form: Form) -> Any:
    return need_pyarrow().CompressedInputStream(file, "gzip") if form.compressed else file
