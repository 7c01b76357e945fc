"""Rows from a table of counts, for what counts alone do not answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from frhsic.table._axis import Axis, Floats, Integers
from frhsic.table._table import ScoreTable

# NumPy draws without replacement from fewer rows; from more it makes no difference.
_LARGEST = 10**9


class DrawnRows(NamedTuple):
    """Rows of a table, at the means of their cells."""

    scores: Floats  # (n,)
    s: Floats  # (n, q); of labels their places
    outcome: Integers  # (n,), the place of the label
    weights: Floats | None  # (n,), the mean in the cell


def draw_rows(table: ScoreTable, most: int) -> DrawnRows:
    """Return the rows, or so many at random, at the means of their cells; the same for the same table."""
    place = np.nonzero(table.counts.ravel())[0]
    counts = table.counts.ravel()[place]
    if table.n > most:
        rng = np.random.default_rng(int(table.digest[:15], 16))
        if table.n < _LARGEST:
            counts = rng.multivariate_hypergeometric(counts, most, method="marginals")
        else:
            counts = rng.multinomial(most, counts / table.n)
    mass = (table.counts if table.weights is None else table.weights).ravel()[place]
    # Sums of offsets count in the unit of weights times 2^bits.
    scale = mass if table.weights is None else mass * (table.weight_unit**2 / table.square_unit)
    o, cell, level = np.unravel_index(place, table.counts.shape)

    def at(axis: Axis, index: Integers, sums: Integers) -> Floats:
        start, width = axis.places()
        return np.asarray(start[index] + sums.ravel()[place] / np.maximum(scale, 1) * width[index])

    parts = np.unravel_index(cell, [axis.size for axis in table.s])
    s = [
        at(axis, index, table.s_sums[..., j])
        for j, (axis, index) in enumerate(zip(table.s, parts, strict=True))
    ]
    weights = None if table.weights is None else mass * table.weight_unit / table.counts.ravel()[place]
    return DrawnRows(
        np.repeat(at(table.score, level, table.score_sums), counts),
        np.repeat(np.stack(s, axis=1), counts, axis=0),
        np.repeat(o, counts),
        None if weights is None else np.repeat(weights, counts),
    )
