"""Data that only this process can read: Arrow data in memory, datasets, lazy frames, iterators of batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import narwhals as nw

from frhsic._checks import ArgumentError
from frhsic.sources._arrow import import_pyarrow
from frhsic.sources._source import Piece, select_columns

if TYPE_CHECKING:
    import pyarrow as pa

# Columns and the most rows of a batch go in; batches with at least these columns come out.
_Start: TypeAlias = "Callable[[list[str], int], Iterable[pa.RecordBatch]]"


@dataclass(frozen=True, eq=False)
class Stream:
    """The reader of a source of one piece."""

    start: _Start = field(repr=False)

    def __call__(self, _piece: Piece, schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.start(list(schema.names), batch_rows)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "'source' must consist of files to be read by other processes. Got a stream. "
            "Read it in this process, or write it as Parquet files first."
        )


def open_stream(where: Any, columns: Sequence[str] | None) -> tuple[pa.Schema, Stream, int | None]:
    """Return the columns of anything but paths, its reader, and its number of rows if that is known."""
    pa, dataset = import_pyarrow(), import_pyarrow("pyarrow.dataset")
    start: _Start
    rows = None
    if isinstance(where, pa.RecordBatch):
        where = [where]
    if isinstance(where, (list, tuple)) and where and all(isinstance(b, pa.RecordBatch) for b in where):
        schema, start, rows = where[0].schema, lambda *_: where, sum(b.num_rows for b in where)
    elif isinstance(where, pa.Table):
        schema, start, rows = where.schema, lambda *_: where.to_batches(), where.num_rows
    elif isinstance(where, dataset.Dataset):
        schema, start = where.schema, _scan_dataset(where)
    elif nw.dependencies.is_polars_lazyframe(where):
        empty = nw.dependencies.get_polars().DataFrame(schema=where.collect_schema())
        schema, start = empty.to_arrow().schema, _collect_lazy(where)
    elif isinstance(where, (pa.RecordBatchReader, Iterator)):
        schema, start = _read_once(where)
    else:
        read = pa.RecordBatchReader.from_stream
        try:
            schema, start = read(where).schema, lambda *_: read(where)
        except TypeError:
            raise TypeError(
                "'where' must be paths, Arrow data or a lazy frame. "
                f"Got a '{type(where).__name__}' of something else. Pass a path, a pattern such as "
                "'scores/*.parquet', a pyarrow Dataset, Table or reader, or a Polars LazyFrame."
            ) from None
    return select_columns(schema, columns, "'where'"), Stream(start), rows


def _scan_dataset(dataset: Any) -> _Start:
    arrow, options = import_pyarrow("pyarrow.dataset"), None
    if isinstance(dataset, arrow.FileSystemDataset) and isinstance(dataset.format, arrow.ParquetFileFormat):
        # Options that the caller set (keys of encrypted files, say) stay as they are.
        plain = dataset.format.default_fragment_scan_options == arrow.ParquetFragmentScanOptions()
        options = arrow.ParquetFragmentScanOptions(page_checksum_verification=True) if plain else None
    # pyarrow decodes whole row groups of a dataset, whatever is asked of it; at least one after the other.
    return lambda columns, batch_rows: dataset.scanner(
        columns=columns,
        batch_size=batch_rows,
        batch_readahead=1,
        fragment_readahead=1,
        fragment_scan_options=options,
        use_threads=False,
    ).to_batches()


def _collect_lazy(frame: Any) -> _Start:
    def start(columns: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        for part in frame.select(columns).collect_batches(chunk_size=batch_rows, lazy=True):
            yield from part.to_arrow().to_batches()

    return start


def _read_once(batches: Iterator[pa.RecordBatch]) -> tuple[pa.Schema, _Start]:
    """Read the schema off the first batch of an iterator; all batches can be read once."""
    arrow = import_pyarrow()
    if isinstance(batches, arrow.RecordBatchReader):
        schema, left = batches.schema, [batches]
    else:
        first = next(batches, None)
        if not isinstance(first, arrow.RecordBatch):
            raise TypeError(
                "'where' must be an iterator of pyarrow record batches. "
                f"Got {'none' if first is None else repr(type(first).__name__)}. Check what it yields."
            )
        schema, left = first.schema, [itertools.chain([first], batches)]

    def start(_columns: list[str], _batch_rows: int) -> Iterator[pa.RecordBatch]:
        if not left:
            # A reader would simply have no more rows.
            got = "one that was read before"
            fix = "Make it anew for each pass, or pass files or a Dataset."
            raise ArgumentError("where", "be a stream that is still to be read", got, fix)
        return left.pop()

    return schema, start
