"""Rows of a source in random order, as far as a buffer in memory reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from frhsic._checks import ArgumentError
from frhsic.sources._arrow import import_pyarrow
from frhsic.sources._source import Source, check_count

if TYPE_CHECKING:
    import pyarrow as pa

# Pieces that are read at the same time, so that rows of different files meet in the buffer.
_OPEN = 4


def shuffle(
    source: Source,
    *,
    batch_rows: int = 65_536,
    buffer_rows: int = 524_288,
    random_state: int | np.random.Generator | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read every row of a source once, in random order as far as a buffer reaches.

    Pieces are taken in random order, four at a time. Their rows fill a buffer; whenever it is full it is
    mixed, and half of it is handed out. Rows that lie far apart in a file, or in files that are read at
    different times, may never meet: a table that is sorted by a column, or has its classes one after the
    other, is better mixed once when it is written.

    Parameters
    ----------
    source : Source
        See ``open_source``. A stream has one piece, which is read in its order.
    batch_rows : int, default=65_536
        Rows of a batch: of one call to ``partial_fit``, or one step of a loop. A last one of less than half
        this size joins the one before it.
    buffer_rows : int, default=524_288
        Rows in memory, at least two batches.
    random_state : int, numpy Generator or None, default=None
        A generator moves on, so that every pass has an order of its own.

    Yields
    ------
    pyarrow.RecordBatch

    Examples
    --------
    >>> import pyarrow as pa
    >>> from frhsic.sources import open_source
    >>> source = open_source(pa.table({"age": range(10)}))
    >>> [batch["age"].to_pylist() for batch in shuffle(source, batch_rows=5, random_state=0)]
    [[4, 6, 2, 7, 3], [5, 9, 0, 8, 1]]
    """
    check_count("batch_rows", batch_rows)
    check_count("buffer_rows", buffer_rows)
    if buffer_rows < 2 * batch_rows:
        must, fix = f"be at least two batches, {2 * batch_rows}", "Use a larger buffer or smaller batches."
        raise ArgumentError("buffer_rows", must, buffer_rows, fix)
    return _mix(source, batch_rows, buffer_rows, np.random.default_rng(random_state))


def _mix(
    source: Source, batch_rows: int, buffer_rows: int, rng: np.random.Generator
) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in _interleave(source, rng):
        held.append(batch)
        count += batch.num_rows
        if count < buffer_rows:
            continue
        mixed = _permute(held, rng)
        # Whole batches, about half of the buffer: what stays is at least one, or the end would be short.
        out = max(buffer_rows // 2 // batch_rows, 1) * batch_rows
        for start in range(0, out, batch_rows):
            yield mixed.slice(start, batch_rows)
        held, count = [mixed.slice(out)], count - out
    if count:
        mixed = _permute(held, rng)
        starts = list(range(0, count, batch_rows))
        if len(starts) > 1 and count - starts[-1] < batch_rows / 2:
            starts.pop()
        for start, stop in zip(starts, [*starts[1:], count], strict=True):
            yield mixed.slice(start, stop - start)


def _interleave(source: Source, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
    """Yield the batches of all pieces, of some of them in turn by chance."""
    waiting = [source.pieces[j] for j in rng.permutation(len(source.pieces))][::-1]
    reading: list[Iterator[pa.RecordBatch]] = []
    while waiting or reading:
        while waiting and len(reading) < _OPEN:
            reading.append(source.batches(waiting.pop()))
        j = int(rng.integers(len(reading)))
        batch = next(reading[j], None)
        if batch is None:
            del reading[j]
        else:
            yield batch


def _permute(batches: Sequence[pa.RecordBatch], rng: np.random.Generator) -> pa.RecordBatch:
    arrow = import_pyarrow()
    (whole,) = arrow.Table.from_batches(batches).combine_chunks().to_batches()
    return whole.take(arrow.array(rng.permutation(whole.num_rows)))
