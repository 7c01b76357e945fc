"""A random sample of the rows of record batches, drawn in one pass and in little memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from frhsic.sources._arrow import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


class Reservoir:
    """At most so many rows of all that were added: each set of so many rows is as likely as any other.

    Each row gets a number at random, and the rows with the smallest numbers stay. Numbers are drawn row by
    row, so the sample does not depend on how rows are cut into batches. It does not depend on their values
    either: a hash of values would take all copies of a row, or none.
    """

    def __init__(self, rows: int, random_state: int = 0) -> None:
        self._rows = rows
        self._random = np.random.default_rng(random_state)
        self._bound = 1.0  # above all numbers
        self._numbers: list[np.ndarray] = []
        self._batches: list[pa.RecordBatch] = []
        self._held = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        numbers = self._random.random(batch.num_rows)
        kept = numbers < self._bound
        if not kept.any():
            return
        self._numbers.append(numbers[kept])
        self._batches.append(batch.filter(import_pyarrow().array(kept)))
        self._held += len(self._numbers[-1])
        if self._held > 2 * self._rows:
            self._shrink()

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return the sample, in the order in which its rows came."""
        self._shrink()
        return import_pyarrow().Table.from_batches(self._batches, schema)

    def _shrink(self) -> None:
        """Keep the rows with the smallest numbers."""
        if self._held <= self._rows:
            return
        numbers = np.concatenate(self._numbers)
        chosen = np.argpartition(numbers, self._rows)
        self._bound = float(numbers[chosen[self._rows]])
        places = np.sort(chosen[: self._rows])
        table = import_pyarrow().Table.from_batches(self._batches).take(places)
        self._numbers, self._batches = [numbers[places]], table.combine_chunks().to_batches()
        self._held = self._rows
