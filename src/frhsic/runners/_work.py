"""The work of one process: some pieces of a source become one sketch, as bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from frhsic.sketching import HSICSketch
from frhsic.sources import Piece, Source, drop_missing

if TYPE_CHECKING:
    import pyarrow as pa

Unit: TypeAlias = tuple[Piece, ...]

# As Arrow writes the types of plain numbers. frhsic.data converts others, such as categories of numbers.
_NUMBERS = {
    *(f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)),
    *("halffloat", "float", "double", "bool"),
}


@dataclass(frozen=True)
class SourceColumns:
    """The columns of a source, by their use."""

    z: tuple[str, ...]
    s: tuple[str, ...]
    weights: str | None = None
    given: str | None = None
    ids: str | None = None
    groups: str | None = None

    @property
    def names(self) -> list[str]:
        single = [name for name in (self.weights, self.given, self.ids, self.groups) if name is not None]
        return list(dict.fromkeys((*self.z, *self.s, *single)))


@dataclass(frozen=True, eq=False)
class Job:
    """What every worker needs; it is sent to other processes."""

    source: Source  # with the columns that are needed, and without pieces, which are sent unit by unit
    empty: bytes  # the sketch to begin with
    columns: SourceColumns

    def work(self, unit: Unit) -> Iterator[tuple[int, bytes | None]]:
        """Yield after each batch how many rows were read, and at the end the sketch of them all."""
        sketch = HSICSketch.from_bytes(self.empty)
        rows = 0
        for piece in unit:
            row = piece.first_row
            for batch in self.source.batches(piece):
                stop = row + batch.num_rows
                try:
                    self._add(sketch, batch, _first_id(piece) + row)
                except (TypeError, ValueError) as error:
                    kind = ValueError if isinstance(error, ValueError) else TypeError
                    raise kind(f"{error} (In '{piece.name}', rows {row} to {stop - 1}.)") from None
                rows += batch.num_rows
                row = stop
                yield rows, None
        yield rows, sketch.to_bytes()

    def messages(self, unit: Unit) -> Iterator[tuple[int, bytes | None] | Exception]:
        """Yield the same for another process, with an error as the last message."""
        try:
            yield from self.work(unit)
        except Exception as error:
            # Another process may not have the classes of others.
            plain = type(error).__module__ == "builtins"
            yield error if plain else RuntimeError(f"{type(error).__name__}: {error}")

    def _add(self, sketch: HSICSketch, batch: pa.RecordBatch, first_id: int) -> None:
        columns = self.columns
        if self.source.allow_missing:
            batch = drop_missing(batch)
        if not batch.num_rows:
            return
        consecutive = np.arange(batch.num_rows, dtype=np.uint64) + np.uint64(first_id % 2**64)
        sketch.update(
            _numbers(batch, columns.z),
            batch.select(list(columns.s)),
            None if columns.weights is None else batch.select([columns.weights]),
            given=None if columns.given is None else batch.select([columns.given]),
            ids=consecutive.view(np.int64) if columns.ids is None else _array(batch, columns.ids),
            groups=None if columns.groups is None else _array(batch, columns.groups),
        )


def _array(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    return batch.column(name).to_numpy(zero_copy_only=False)


def _numbers(batch: pa.RecordBatch, names: Sequence[str]) -> Any:
    """Return columns as one array: four times as fast as converting them one by one."""
    if not {str(batch.schema.field(name).type) for name in names} <= _NUMBERS:
        return batch.select(list(names))
    return np.column_stack([_array(batch, name) for name in names])


def _first_id(piece: Piece) -> int:
    """Return an id for row 0 of a file that no other file comes near, however its pieces were cut."""
    file = piece.name.rpartition("[")[0] if piece.row_groups else piece.name
    return int.from_bytes(hashlib.blake2b(file.encode(), digest_size=8).digest())


def lost_error(unit: Unit, got: str) -> RuntimeError:
    """Return the error about a unit over which workers died."""
    more = f" and {len(unit) - 1} more" if len(unit) > 1 else ""
    return RuntimeError(
        f"'{unit[0].name}'{more} must be readable by a worker that lives. Got {got}. Check the memory of its "
        "machine, and the file; with partials= finished parts are kept."
    )
