"""Ranges of the values of a column, of about equally many rows each: one rule for rows and for tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Each value is a cell of its own: so many values at most, of so many rows each on average.
_MOST_VALUES, _ROWS_PER_VALUE = 100, 20
_TIE = 1e-9


def are_few(values: int, units: float) -> bool:
    """Return whether so many values are few for so many units: each is then a cell of its own."""
    return values <= _MOST_VALUES and round(units) >= _ROWS_PER_VALUE * values


def range_of_each(mass: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the range 0, 1, ... of each value: of about equal mass, none of less than half of that.

    A value whose middle is a border belongs above, whatever rounding says. Values between two heaps may be
    few: they join the smaller neighbour.
    """
    upto = np.cumsum(mass)
    place = (upto - 0.5 * mass) / upto[-1] * count
    code = np.clip(np.floor(place + _TIE), 0, count - 1).astype(int)
    firsts = np.flatnonzero(np.concatenate(([True], np.diff(code) != 0))).tolist()
    ends = [*firsts[1:], len(mass)]
    total = np.concatenate(([0.0], upto))
    shares = [float(total[b] - total[a]) for a, b in zip(firsts, ends, strict=True)]
    while len(shares) > 1 and min(shares) < 0.5 * upto[-1] / count:
        j = shares.index(min(shares))
        left = j > 0 and (j == len(shares) - 1 or shares[j - 1] <= shares[j + 1])
        shares[j - 1 if left else j + 1] += shares[j]
        del firsts[j if left else j + 1], shares[j]
    return np.searchsorted(firsts[1:], np.arange(len(mass)), side="right")
