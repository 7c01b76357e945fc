"""The cells of one column: each value, dyadic ranges, or labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic.table._scout import Floats as Floats
from frhsic.table._scout import Integers as Integers
from frhsic.table._scout import Scout

# Codes of rows that no cell holds.
MISSING, NOT_A_NUMBER, OUTSIDE = -1, -2, -3
# A value lies within its cell in 2^-20 of the cell's dyadic width: sums of 10^12 rows are 64-bit integers.
UNITS = 2.0**20


@dataclass(frozen=True, eq=False)
class Axis:
    """The cells of one column.

    Attributes
    ----------
    kind : {"values", "ranges", "labels"}
    name : str
    borders : array of shape (size + 1,)
        Of ranges: cell i holds what is above ``borders[i]`` and not above ``borders[i + 1]``. They are dyadic
        numbers, (j 2^k, (j + 1) 2^k], or were asked for. Of values: the values themselves, (size,).
    labels : tuple of str
        Of labels: the label of each cell.

    Notes
    -----
    Dyadic intervals nest, whatever the data they were chosen for: tables of any resolution, night or engine
    have a common coarsening. A value on a border belongs below.

    Examples
    --------
    >>> axis = Axis.of_borders([0.0, 0.25, 0.5, 1.0])
    >>> axis.codes(np.array([0.1, 0.25, 0.26, 1.0, 1.1])).tolist()
    [0, 0, 1, 2, -3]
    """

    kind: Literal["values", "ranges", "labels"]
    name: str
    borders: Floats
    labels: tuple[str, ...] = ()

    @classmethod
    def of_values(cls, values: Floats, name: str = "s") -> Axis:
        """Return an axis with a cell for each value."""
        return cls("values", name, np.unique(np.asarray(values, float)) + 0.0)

    @classmethod
    def of_labels(cls, labels: Sequence[object], name: str = "s") -> Axis:
        """Return an axis with a cell for each label."""
        return cls("labels", name, np.empty(0), tuple(map(str, labels)))

    @classmethod
    def of_borders(cls, borders: Sequence[float] | Floats, name: str = "s", at: Sequence[float] = ()) -> Axis:
        """Return an axis of ranges between given borders, and further borders ``at`` asked values inside."""
        given = np.unique(np.asarray(borders, float))
        inside = [float(t) for t in at if given[0] < t < given[-1]]
        return cls("ranges", name, np.unique(np.concatenate((given, inside))) + 0.0)

    @classmethod
    def choose(cls, scout: Scout, size: int, name: str = "s", at: Sequence[float] = ()) -> Axis:
        """Return an axis for a column of numbers of which only a scout is known: a function of that alone.

        Up to ``size`` values have a cell each. More lie in dyadic ranges of about equally many rows.

        Parameters
        ----------
        scout : Scout
            Of all rows of the column.
        size : int
            About so many cells.
        at : sequence of float
            Asked thresholds and borders of regions.
        """
        if not scout.extent.finite:
            raise ArgumentError(name, "have finite values", "none", "Leave the column out.")
        values = scout.values(size)
        return cls.of_borders(scout.ranges(size), name, at) if values is None else cls.of_values(values, name)

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.labels) if self.kind == "labels" else len(self.borders) - (self.kind == "ranges")

    def codes(self, column: NDArray[Any]) -> Integers:
        """Return the cell of each row, or a negative code."""
        if self.kind == "labels":
            place = {label: i for i, label in enumerate(self.labels)}
            known, index = np.unique(np.asarray(column).astype(str), return_inverse=True)
            return np.array([place.get(one, OUTSIDE) for one in known], dtype=np.int64)[index]
        x = np.asarray(column, float)
        codes = np.searchsorted(self.borders, x, side="left")
        if self.kind == "ranges":
            codes = codes - 1
            codes[(codes < 0) | (codes >= self.size)] = OUTSIDE
        else:
            codes[self.borders[np.minimum(codes, self.size - 1)] != x] = OUTSIDE
        codes[np.isnan(x)] = NOT_A_NUMBER
        return codes.astype(np.int64)

    def offsets(self, column: NDArray[Any], codes: Integers) -> Integers:
        """Return where each row lies in its cell, from its lower end, in units of the cell's dyadic width."""
        start, width = self._dyadic()
        x = np.asarray(column, float)
        return np.floor((x - start[codes]) / width[codes] * UNITS + 0.5).astype(np.int64)

    def places(self) -> tuple[Floats, Floats]:
        """Return where each cell begins, and the width of a unit of the offsets in it."""
        if self.kind == "ranges":
            start, width = self._dyadic()
            return start, width / UNITS
        return (self.borders if self.kind == "values" else np.arange(float(self.size))), np.zeros(self.size)

    @property
    def widths(self) -> Floats:
        """The width of each cell; 0 of values and labels."""
        return np.diff(self.borders) if self.kind == "ranges" else np.zeros(self.size)

    @property
    def lows(self) -> Floats:
        """The lower end of each cell: of values themselves, of labels 0."""
        return self.borders[: self.size] if self.kind != "labels" else np.zeros(self.size)

    def _dyadic(self) -> tuple[Floats, Floats]:
        """Return start and width of the smallest dyadic interval that holds each cell."""
        low, high = self.borders[:-1], self.borders[1:]
        fraction, exponent = np.frexp(high - low)
        width = np.ldexp(1.0, exponent - (fraction == 0.5))  # the least power of two that is not below
        for _ in range(60):
            start = (np.ceil(high / width) - 1.0) * width
            cut = start > low
            if not cut.any():
                break
            width = np.where(cut, 2.0 * width, width)
        return start, width

    def coarsen(self, other: Axis) -> tuple[Axis, Integers]:
        """Return the finest axis that both share, and the cell of it that holds each cell of this one.

        An error where the axes have no common cells: other labels, or values outside the other's ranges.
        """
        if self.kind == "labels" or other.kind == "labels":
            if self.kind != other.kind:
                raise ValueError(
                    f"The cells of '{self.name}' are labels in one table and numbers in the other."
                )
            known = Axis.of_labels(sorted({*self.labels, *other.labels}), self.name)
            return known, known.codes(np.array(self.labels))
        if self.kind == other.kind == "values":
            known = Axis.of_values(np.union1d(self.borders, other.borders), self.name)
            return known, known.codes(self.borders)
        ranges = [axis for axis in (self, other) if axis.kind == "ranges"]
        borders = ranges[0].borders if len(ranges) == 1 else _share(ranges[0].borders, ranges[1].borders)
        shared = Axis("ranges", self.name, borders)
        inner = self.borders if self.kind == "values" else self.borders[1:]
        place = shared.codes(inner)
        return shared, place

    def document(self) -> dict[str, Any]:
        """Return the axis as JSON can hold it, exactly."""
        if self.kind == "labels":
            return {"kind": self.kind, "name": self.name, "labels": list(self.labels)}
        return {"kind": self.kind, "name": self.name, "borders": [float(x).hex() for x in self.borders]}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Axis:
        """Return the axis of a document."""
        kind, name = document["kind"], str(document["name"])
        if kind == "labels":
            return cls.of_labels(document["labels"], name)
        borders = np.array([float.fromhex(x) for x in document["borders"]])
        if (
            kind not in ("values", "ranges")
            or not np.isfinite(borders).all()
            or (np.diff(borders) <= 0).any()
        ):
            raise ValueError(f"The borders of '{name}' must be finite numbers in order.")
        return cls(kind, name, borders)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Axis) and self.document() == other.document()

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.borders.tobytes(), self.labels))


def _share(a: Floats, b: Floats) -> Floats:
    """Return the borders that both have; beyond the reach of one, those of the other."""
    low, high = max(a[0], b[0]), min(a[-1], b[-1])
    both = np.intersect1d(a, b)
    outer = np.concatenate([x[(x <= low) | (x >= high)] for x in (a, b)])
    return np.union1d(both, outer)
