"""A scout of a column of numbers: what is counted before its cells are chosen.

Two steps, each a sum over pieces of the rows in any order. The first finds the ends of the column and, where
they are few, its values. The second counts the rows in at most 1,024 coarse cells between these ends.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Different values that a scout lists.
VALUES = 512
# Coarse cells: at most 2^9 equal steps and, on both sides of zero together, 60 octaves of 2^3 steps.
_STEP_BITS, _OCTAVE_BITS, _OCTAVES = 9, 3, 60
# Borders are exact beside values of 53 bits, and above the smallest numbers of double precision.
_PRECISION, _SMALLEST = 50, -1_050
# The narrowest range beside the values in it, which have 53 bits.
_FINEST = 52
# Rows that tell whether the values are many.
_FIRST_ROWS = 4_096


@dataclass(frozen=True, eq=False)
class Extent:
    """The first step: how many rows of a column are numbers, the ends of these, and their values if few.

    Attributes
    ----------
    finite, missing, not_a_number, infinite : int
        Rows.
    least, largest : float
        Of the finite values; infinite where there are none.
    values, counts : arrays of shape (v,), or None
        The different finite values in order, where they are at most ``most``, and their rows.
    most : int

    Examples
    --------
    >>> monday, tuesday = Extent.of_rows(np.array([3.0, 1.0, np.nan])), Extent.of_rows(np.array([9.0, 1.0]))
    >>> both = monday + tuesday
    >>> both.finite, both.not_a_number, both.values.tolist()
    (4, 1, [1.0, 3.0, 9.0])
    """

    finite: int
    missing: int
    not_a_number: int
    infinite: int
    least: float
    largest: float
    values: Floats | None
    counts: Integers | None
    most: int = VALUES

    @classmethod
    def of_rows(cls, column: NDArray[Any], *, missing: int = 0, most: int = VALUES) -> Extent:
        """Return the extent of some rows; ``missing`` are others that have no entry."""
        x = np.asarray(column, float)
        inside, no_numbers = x[np.isfinite(x)] + 0.0, int(np.isnan(x).sum())
        values, counts = _list_values(inside, most)
        return cls(
            finite=len(inside),
            missing=missing,
            not_a_number=no_numbers,
            infinite=len(x) - len(inside) - no_numbers,
            least=float(inside.min(initial=math.inf)),
            largest=float(inside.max(initial=-math.inf)),
            values=values,
            counts=counts,
            most=most,
        )

    def __add__(self, other: Extent) -> Extent:
        """Return the extent of the rows of both."""
        values = counts = None
        if self.values is not None and other.values is not None:
            values, place = np.unique(np.concatenate((self.values, other.values)), return_inverse=True)
            counts = np.zeros(len(values), np.int64)
            np.add.at(counts, place, np.concatenate((self.counts, other.counts)))  # type: ignore[arg-type]
            if len(values) > self.most:
                values = counts = None
        return Extent(
            finite=self.finite + other.finite,
            missing=self.missing + other.missing,
            not_a_number=self.not_a_number + other.not_a_number,
            infinite=self.infinite + other.infinite,
            least=min(self.least, other.least),
            largest=max(self.largest, other.largest),
            values=values,
            counts=counts,
            most=self.most,
        )

    @property
    def scout(self) -> Scout | None:
        """The second step, where the values are listed and no other pass over the rows is needed."""
        if self.values is None or self.counts is None:
            return None
        one_each = Scout.of_rows(self.values, self)
        cell = np.searchsorted(self.borders, self.values, side="left") - 1
        counts = np.zeros_like(one_each.counts)
        np.add.at(counts, cell, self.counts)
        return replace(one_each, counts=counts)

    @cached_property
    def borders(self) -> Floats:
        """The borders of at most 1,024 dyadic coarse cells, which follow from both ends alone.

        Equal steps of width 2^k, at most 512 between the ends. Near zero, where that is narrower, eight steps
        an octave of |x|; the last cell on each side of zero holds what is nearer to it than all octaves.
        """
        low, high = self.least, self.largest
        if not self.finite:
            return np.zeros(1)
        size = ceil_log2(max(abs(low), abs(high)))
        # Halves: the difference of both ends may be too large for a number.
        range_ = ceil_log2(0.5 * high - 0.5 * low) + 1
        k = max(range_ - _STEP_BITS, size - _PRECISION, _SMALLEST)
        first, last = math.floor(math.ldexp(low, -k)) - 1, math.ceil(math.ldexp(high, -k)) + 1
        steps = np.ldexp(np.arange(first, last + 1, dtype=float), k)
        octaves = _OCTAVES // 2 if low < 0.0 < high else _OCTAVES
        top = k + _OCTAVE_BITS  # below 2^top eight steps an octave are narrower
        exponents = np.arange(max(top - octaves, _SMALLEST), top) - _OCTAVE_BITS
        parts = np.arange(2**_OCTAVE_BITS, 2 ** (_OCTAVE_BITS + 1), dtype=float)
        ladder = np.append(np.ldexp(parts, exponents[:, None]).ravel(), math.ldexp(1.0, top))
        outer = steps[np.abs(steps) > ladder[-1]]
        borders = np.unique(np.concatenate((outer, ladder, [0.0], -ladder)))
        start, stop = np.searchsorted(borders, (low, high), side="left")
        return np.asarray(borders[start - 1 : stop + 1])


@dataclass(frozen=True, eq=False)
class Scout:
    """The second step: rows in coarse cells, and between which values they lie there.

    Attributes
    ----------
    extent : Extent
        Of all rows.
    counts : array of shape (c,)
    least, largest : arrays of shape (c,)
        The ends of the values in each coarse cell; infinite where it is empty.

    Examples
    --------
    >>> x = np.arange(2_000.0) / 1_000
    >>> extent = Extent.of_rows(x[:500]) + Extent.of_rows(x[500:])
    >>> scout = Scout.of_rows(x[:500], extent) + Scout.of_rows(x[500:], extent)
    >>> int(scout.counts.sum()), scout.ranges(4).tolist()
    (2000, [-2.0, 0.0, 0.5, 1.0, 1.5, 2.0])
    """

    extent: Extent
    counts: Integers
    least: Floats
    largest: Floats

    @classmethod
    def of_rows(cls, column: NDArray[Any], extent: Extent) -> Scout:
        """Return the coarse counts of some rows, in the cells between the ends of all."""
        x = np.asarray(column, float)
        x = x[np.isfinite(x)] + 0.0
        cells = len(extent.borders) - 1
        cell = np.searchsorted(extent.borders, x, side="left") - 1
        least, largest = np.full(cells, math.inf), np.full(cells, -math.inf)
        np.minimum.at(least, cell, x)
        np.maximum.at(largest, cell, x)
        return cls(extent, np.bincount(cell, minlength=cells).astype(np.int64), least, largest)

    def __add__(self, other: Scout) -> Scout:
        """Return the counts of the rows of both, in the same coarse cells."""
        return Scout(
            self.extent,
            self.counts + other.counts,
            np.minimum(self.least, other.least),
            np.maximum(self.largest, other.largest),
        )

    @property
    def law(self) -> tuple[Floats, Integers]:
        """Values that stand for the column, with their rows: all of them, or the ends of coarse cells."""
        if self.extent.values is not None and self.extent.counts is not None:
            return self.extent.values, self.extent.counts
        held = self.counts > 0
        ends = np.stack((self.least[held], self.largest[held]), axis=1)
        rows = np.stack((self.counts[held] - self.counts[held] // 2, self.counts[held] // 2), axis=1)
        return ends[rows > 0], rows[rows > 0]

    def values(self, size: int) -> Floats | None:
        """Return the different values, where they are known and at most ``size``."""
        values = self.extent.values
        if values is None and (self.least >= self.largest).all():  # one in each coarse cell, or none
            values = self.least[self.counts > 0]
        return values if values is not None and len(values) <= size else None

    def ranges(self, size: int) -> Floats:
        """Return the borders of about ``size`` dyadic ranges that hold about equally many rows.

        Ranges are halved until the rows in each, without those of its most frequent value, are at most about
        n / size. The rows of a coarse cell count as uniform between its ends; those of one value stay whole.
        """
        most = 1.4 * self.extent.finite / size  # halving leaves cells of .7 of it on average
        low, high = self.extent.least, self.extent.largest
        root = ceil_log2(max(abs(low), abs(high)))
        todo, borders = [(-1.0, root), (0.0, root)], []  # zero is a border
        parts = _Parts(self)
        while todo:
            j, k = todo.pop()
            start, stop = math.ldexp(j, k), math.ldexp(j + 1.0, k)
            others, finest = parts.others(start, stop)
            if others > most and k > finest:
                todo += [(2.0 * j, k - 1), (2.0 * j + 1.0, k - 1)]
            elif start < high and stop >= low:
                borders += [start, stop]
        return np.unique(borders)


class _Parts:
    """Rows of a scout between any two dyadic numbers."""

    def __init__(self, scout: Scout) -> None:
        self.borders = scout.extent.borders.tolist()
        self.least, self.largest = scout.least.tolist(), scout.largest.tolist()
        self.counts = scout.counts
        self.single = np.where(scout.least == scout.largest, scout.counts, 0)
        self.below = np.concatenate(([0], np.cumsum(scout.counts))).tolist()

    def others(self, start: float, stop: float) -> tuple[float, int]:
        """Return the rows in (start, stop] without those of its most frequent value, and the finest width.

        An interval holds whole coarse cells, or is within one.
        """
        first = max(bisect.bisect_right(self.borders, start) - 1, 0)
        last = min(bisect.bisect_left(self.borders, stop), len(self.borders) - 1)
        if last <= first:
            return 0.0, 0
        if last - first > 1:
            rows = self.below[last] - self.below[first]
            return float(rows - self.single[first:last].max()), _SMALLEST
        low, high = self.least[first], self.largest[first]
        if low >= high:
            return 0.0, 0
        inside = min(stop, high) - max(start, low)
        share = max(inside, 0.0) / (high - low)
        return share * float(self.counts[first]), max(
            ceil_log2(max(abs(low), abs(high))) - _FINEST, _SMALLEST
        )


def _list_values(x: Floats, most: int) -> tuple[Floats, Integers] | tuple[None, None]:
    """Return the different values in order and their rows, or None if they are more than ``most``."""
    if len(np.unique(x[:_FIRST_ROWS])) > most:
        return None, None
    values, counts = np.unique(x, return_counts=True)
    return (values, counts.astype(np.int64)) if len(values) <= most else (None, None)


def ceil_log2(x: float) -> int:
    """Return the least whole e with x <= 2^e; exact."""
    if x == 0.0:
        return _SMALLEST
    fraction, exponent = math.frexp(x)
    return exponent - (fraction == 0.5)
