"""A table of counts: rows by outcome, cell of S and level of the score."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic.table._axis import MISSING, NOT_A_NUMBER, OUTSIDE, UNITS, Axis, Floats, Integers
from frhsic.table._scout import Extent, Scout, ceil_log2

# Cells of S and levels of a score; with several columns of S, cells of each.
CELLS, LEVELS, JOINT_CELLS = 512, 512, 32
# Bits of the sums of weights and of their squares: a double holds 53, an integer 63.
_WEIGHT_BITS = 60
_CODES = {MISSING: "missing", NOT_A_NUMBER: "not a number", OUTSIDE: "outside"}


class Labels(NamedTuple):
    """A column of labels: the place of the label of each row among some names."""

    codes: Integers  # (n,)
    names: tuple[object, ...]

    def __len__(self) -> int:
        return len(self.codes)


Column = NDArray[Any] | Labels


class Law(NamedTuple):
    """The joint law of S and a score in a table, as shares of weights of sum one, without empty cells."""

    shares: Floats  # (m, k)
    squares: Floats  # (m, k), sums of squared weights
    rows: Floats  # (m, k)
    s: Floats  # (m, q), the mean of S in each cell
    z: Floats  # (k,), the mean score in each level
    s_inner: Floats  # (m, k, q), sums of weight times (S minus the mean of its cell)
    z_inner: Floats  # (m, k), sums of weight times (score minus the mean of its level)
    cells: Integers  # (m,), which cells of the table these are
    levels: Integers  # (k,)
    numbers: tuple[bool, ...]  # (q,), whether a column of S is a number
    s_widths: Floats  # (m, q), of the cells; 0 of values and labels
    z_widths: Floats  # (k,)
    z_lows: Floats  # (k,), the lower end of each level; values themselves
    s_lows: Floats  # (m, q), the lower end of each cell; values themselves, 0 of labels

    @property
    def p(self) -> Floats:
        """The share of each cell of S."""
        return np.asarray(self.shares.sum(axis=1))

    @property
    def q(self) -> Floats:
        """The share of each level of the score."""
        return np.asarray(self.shares.sum(axis=0))

    @property
    def n(self) -> float:
        """The number of rows."""
        return float(self.rows.sum())

    @property
    def effective_rows(self) -> float:
        """The number of rows of equal weight that say as much about a mean."""
        return 1.0 / float(self.squares.sum())

    @property
    def seed(self) -> int:
        """A number made of the shares: the same for the same law."""
        return int(hashlib.sha256(np.ascontiguousarray(self.shares).tobytes()).hexdigest()[:15], 16)

    def merge(self, groups: Integers) -> Law:
        """Return the law with cells of S merged: ``groups`` (m,) is the new cell of each."""
        size = int(groups.max()) + 1

        def add(x: Floats) -> Floats:
            total = np.zeros((size, *x.shape[1:]))
            np.add.at(total, groups, x)
            return total

        p = self.p
        s = add(p[:, None] * self.s) / add(p)[:, None]
        s_inner = add(self.s_inner + self.shares[:, :, None] * (self.s - s[groups])[:, None, :])
        lows = np.full((size, self.s_lows.shape[1]), np.inf)
        np.minimum.at(lows, groups, self.s_lows)
        return self._replace(
            shares=add(self.shares),
            squares=add(self.squares),
            rows=add(self.rows),
            s=s,
            s_inner=s_inner,
            z_inner=add(self.z_inner),
            cells=np.arange(size),
            s_widths=add(self.s_widths),
            s_lows=lows,
        )


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTable:
    """How many rows fall into each cell of S and each level of a score, by outcome.

    Every number of an audit of a score follows from it. Counts and sums are integers, so that a table is the
    same whatever the order of the rows, the number of threads or the engine that counted.

    Attributes
    ----------
    score : Axis
    s : tuple of Axis
        One, or several columns jointly; cells of the last one vary fastest.
    outcome : Axis or None
        Labels of the outcome.
    counts : array of shape (o, m, k)
        Rows.
    score_sums, s_sums : arrays of shape (o, m, k) and (o, m, k, q)
        Sums of the places of scores and of S within their cells, in units of the axis (times weights).
    weights, squares : arrays of shape (o, m, k), or None
        Sums of weights, and of squared weights, in units of ``weight_unit`` and its square times 2^bits.
    left_out : mapping of str to int
        Rows that no cell holds, by reason.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age, score = rng.integers(18, 90, 1_000), rng.random(1_000)
    >>> monday = ScoreTable.from_rows(score, age, levels=64)
    >>> monday
    ScoreTable(1,000 rows: 72 values of s by 66 ranges of score)
    >>> tuesday = ScoreTable.from_rows(score[::-1], age[::-1], score_axis=monday.score, s_axes=monday.s)
    >>> tuesday.digest == monday.digest, (monday + tuesday).n
    (True, 2000)
    """

    score: Axis
    s: tuple[Axis, ...]
    counts: Integers
    score_sums: Integers
    s_sums: Integers
    outcome: Axis | None = None
    weights: Integers | None = None
    squares: Integers | None = None
    weight_unit: float = 1.0
    square_unit: float = 1.0
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_rows(
        cls,
        scores: NDArray[Any],
        s: Column | Sequence[Column],
        *,
        outcome: Column | None = None,
        sample_weight: NDArray[Any] | None = None,
        score_axis: Axis | None = None,
        s_axes: Sequence[Axis] | None = None,
        outcome_axis: Axis | None = None,
        weight_units: tuple[float, float] | None = None,
        names: Sequence[str] | None = None,
        at_scores: Sequence[float] = (),
        at_s: Sequence[float] = (),
        levels: int = LEVELS,
        cells: int | None = None,
    ) -> ScoreTable:
        """Return the table of rows in memory.

        Parameters
        ----------
        scores : array of shape (n,)
        s : array of shape (n,), or a sequence of them
            Numbers are continuous; text and booleans are labels.
        outcome : array of labels of shape (n,), optional
        sample_weight : array of shape (n,), optional
        score_axis, s_axes, outcome_axis : Axis, sequence of Axis, and Axis, optional
            Given cells, as those of last night's table. None chooses them from the margins of these rows.
        weight_units : tuple of two float, optional
            Given ``weight_unit`` and ``square_unit``, as those of last night's table. None chooses them from
            these weights.
        names : sequence of str, optional
            Names of the columns of S.
        at_scores, at_s : sequences of float
            Asked thresholds of the score, and borders of regions of S (of one column): borders of cells.
        levels, cells : int
            About so many levels of the score and cells of S, where there are more values.
        """
        z = np.asarray(scores, float)
        columns: list[Column] = [s] if isinstance(s, np.ndarray | Labels) else list(s)
        names = names or (["s"] if len(columns) == 1 else [f"s{i}" for i in range(len(columns))])
        if any(len(column) != len(z) for column in columns) or z.ndim != 1:
            fix = "Pass columns of the same rows."
            raise ArgumentError("s", f"have {len(z)} rows like 'scores'", [len(one) for one in columns], fix)
        most = cells or (CELLS if len(columns) == 1 else JOINT_CELLS)
        score_axis = score_axis or _choose(z, levels, "score", at_scores)
        at = at_s if len(columns) == 1 else ()
        pairs = zip(columns, names, strict=True)
        axes = tuple(s_axes) if s_axes else tuple(_choose(x, most, name, at) for x, name in pairs)
        label_axis, label_codes = None, np.zeros(len(z), np.int64)
        if outcome is not None:
            outcome = outcome if isinstance(outcome, Labels) else np.asarray(outcome).astype(str)
            label_axis = outcome_axis or _choose(outcome, 0, "outcome", ())
            label_codes = _find_codes(label_axis, outcome)
        score_codes = score_axis.codes(z)
        s_codes = [_find_codes(axis, x) for axis, x in zip(axes, columns, strict=True)]
        lost = np.minimum.reduce([score_codes, label_codes, *s_codes])
        kept = lost >= 0
        left_out = {word: int((lost == code).sum()) for code, word in _CODES.items()}
        shape = (label_axis.size if label_axis else 1, math.prod(axis.size for axis in axes), score_axis.size)
        flat = np.zeros(int(kept.sum()), np.int64)
        for axis, code in zip(axes, s_codes, strict=True):
            flat = flat * axis.size + code[kept]
        flat = (label_codes[kept] * shape[1] + flat) * shape[2] + score_codes[kept]
        w, unit, bits = None, 1.0, 0
        if sample_weight is not None:
            w, unit, bits = _as_integers(np.asarray(sample_weight, float)[kept], weight_units)

        def add(x: Integers | None) -> Integers:
            size = math.prod(shape)
            if x is None:
                return np.bincount(flat, minlength=size).astype(np.int64).reshape(shape)
            if len(x) * UNITS < 2.0**53:  # whole numbers add up exactly as doubles
                return np.bincount(flat, x, minlength=size).astype(np.int64).reshape(shape)
            total = np.zeros(size, np.int64)
            np.add.at(total, flat, x)
            return total.reshape(shape)

        def add_offsets(axis: Axis, column: Column, codes: Integers) -> Integers:
            if axis.kind != "ranges" or isinstance(column, Labels):
                return np.zeros(shape, np.int64)
            offsets = axis.offsets(column[kept], codes[kept])
            return add(offsets if w is None else np.rint(offsets * (w * 2.0**-bits)).astype(np.int64))

        weights = squares = None
        if w is not None:
            weights, squares = np.zeros((2, math.prod(shape)), np.int64)
            np.add.at(weights, flat, w)
            np.add.at(squares, flat, np.rint(w.astype(float) ** 2 * 2.0**-bits).astype(np.int64))
            weights, squares = weights.reshape(shape), squares.reshape(shape)
        inner = [add_offsets(*one) for one in zip(axes, columns, s_codes, strict=True)]
        return cls(
            score=score_axis,
            s=axes,
            counts=add(None),
            score_sums=add_offsets(score_axis, z, score_codes),
            s_sums=np.stack(inner, axis=-1),
            outcome=label_axis,
            weights=weights,
            squares=squares,
            weight_unit=unit,
            square_unit=unit**2 * 2.0**bits,
            left_out={word: count for word, count in left_out.items() if count},
        )

    def __repr__(self) -> str:
        s = " and ".join(f"{axis.size:,} {axis.kind} of {axis.name}" for axis in self.s)
        return (
            f"ScoreTable({self.n:,} rows: {s} by {self.score.size:,} {self.score.kind} of {self.score.name})"
        )

    @property
    def n(self) -> int:
        """The number of rows in cells."""
        return int(self.counts.sum())

    def law(self, label: int | None = None) -> Law:
        """Return the joint law of S and the score, of all rows or of those of one label of the outcome."""
        return self._law_of_all if label is None else self._make_law(label)

    @cached_property
    def _law_of_all(self) -> Law:
        return self._make_law(None)

    def _make_law(self, label: int | None) -> Law:
        o = slice(None) if label is None else slice(label, label + 1)

        def take(x: Integers, unit: float = 1.0) -> Floats:
            return np.asarray(x[o].sum(axis=0) * unit)

        counts = take(self.counts)
        mass = counts if self.weights is None else take(self.weights, self.weight_unit)
        squares = counts if self.squares is None else take(self.squares, self.square_unit)
        cells, levels = (np.flatnonzero(mass.sum(axis=axis) > 0) for axis in (1, 0))
        grid, total = np.ix_(cells, levels), mass.sum()
        mass, unit = mass[grid] / total, self.square_unit / self.weight_unit / total
        start, width = self.score.places()
        sums = take(self.score_sums, unit)[grid] * width[levels]
        z = start[levels] + sums.sum(axis=0) / mass.sum(axis=0)
        s, s_inner = [], []
        places = np.unravel_index(cells, [axis.size for axis in self.s])
        for j, (axis, index) in enumerate(zip(self.s, places, strict=True)):
            begin, wide = (x[index] for x in axis.places())
            inside = take(self.s_sums[..., j], unit)[grid] * wide[:, None]
            s.append(begin + inside.sum(axis=1) / mass.sum(axis=1))
            s_inner.append(inside - mass * (s[-1] - begin)[:, None])
        return Law(
            shares=mass,
            squares=squares[grid] / total**2,
            rows=counts[grid],
            s=np.stack(s, axis=1),
            z=z,
            s_inner=np.stack(s_inner, axis=-1),
            z_inner=sums - mass * (z - start[levels]),
            cells=cells,
            levels=levels,
            numbers=tuple(axis.kind != "labels" for axis in self.s),
            s_widths=np.stack([axis.widths[i] for axis, i in zip(self.s, places, strict=True)], axis=1),
            z_widths=self.score.widths[levels],
            z_lows=self.score.borders[levels],
            s_lows=np.stack([axis.lows[i] for axis, i in zip(self.s, places, strict=True)], axis=1),
        )

    def places(
        self, scores: NDArray[Any], s: Sequence[Column], label: int | None = None
    ) -> tuple[Integers, Integers]:
        """Return the cell and the level of each row in the law of the table; rows are in cells of it."""
        law, cell = self.law(label), np.zeros(len(scores), np.int64)
        for axis, column in zip(self.s, s, strict=True):
            cell = cell * axis.size + _find_codes(axis, column)
        level = self.score.codes(np.asarray(scores, float))
        return np.searchsorted(law.cells, cell), np.searchsorted(law.levels, level)

    def only(self, label: int) -> ScoreTable:
        """Return the table of the rows of one label of the outcome, without it."""
        one = slice(label, label + 1)
        return replace(
            self,
            counts=self.counts[one],
            score_sums=self.score_sums[one],
            s_sums=self.s_sums[one],
            outcome=None,
            weights=None if self.weights is None else self.weights[one],
            squares=None if self.squares is None else self.squares[one],
        )

    def coarsen(self, score: Axis, s: Sequence[Axis]) -> ScoreTable:
        """Return the table with the cells that these axes and its own have in common."""
        new_score, level = self.score.coarsen(score)
        moved = [mine.coarsen(other) for mine, other in zip(self.s, s, strict=True)]
        axes = tuple(axis for axis, _ in moved)
        place = np.unravel_index(np.arange(self.counts.shape[1]), [axis.size for axis in self.s])
        cell = np.zeros(self.counts.shape[1], np.int64)
        for (axis, to), index in zip(moved, place, strict=True):
            cell = cell * axis.size + to[index]
        if (level < 0).any() or (cell < 0).any():
            fix = "Count both tables with the same ranges."
            raise ArgumentError("table", "have cells within those of the other table", "values outside", fix)
        shape = (len(self.counts), math.prod(axis.size for axis in axes), new_score.size)

        def add(x: Integers) -> Integers:
            total = np.zeros((*shape, *x.shape[3:]), x.dtype)
            np.add.at(total, (slice(None), cell[:, None], level[None, :]), x)  # type: ignore[arg-type]
            return total

        # Sums of offsets count in the unit of weights times 2^bits.
        mass = (
            self.counts if self.weights is None else self.weights * (self.weight_unit**2 / self.square_unit)
        )
        old, new = self.score.places(), [x[level] for x in new_score.places()]
        score_sums = _move(self.score_sums, mass, old, new)
        s_sums = [
            _move(
                self.s_sums[..., j],
                mass,
                [x[index][:, None] for x in axis.places()],
                [x[to[index]][:, None] for x in moved_axis.places()],
            )
            for j, (axis, (moved_axis, to), index) in enumerate(zip(self.s, moved, place, strict=True))
        ]
        return replace(
            self,
            score=new_score,
            s=axes,
            counts=add(self.counts),
            score_sums=add(score_sums),
            s_sums=np.stack([add(x) for x in s_sums], axis=-1),
            weights=None if self.weights is None else add(self.weights),
            squares=None if self.squares is None else add(self.squares),
        )

    def __add__(self, other: ScoreTable) -> ScoreTable:
        """Return the table of the rows of both, which have the same axes."""
        if (self.score, self.s, self.outcome) != (other.score, other.s, other.outcome):
            fix = "Coarsen each by the axes of the other first."
            raise ArgumentError("table", "have the same cells as the other", "other cells", fix)
        if (self.weight_unit, self.square_unit) != (other.weight_unit, other.square_unit):
            fix = "Count both with the same unit of weights."
            raise ArgumentError("table", "have weights in the unit of the other", other.weight_unit, fix)
        words = {*self.left_out, *other.left_out}
        none = self.weights is None or other.weights is None
        return replace(
            self,
            counts=self.counts + other.counts,
            score_sums=self.score_sums + other.score_sums,
            s_sums=self.s_sums + other.s_sums,
            weights=None if none else self.weights + other.weights,  # type: ignore[operator]
            squares=None if none else self.squares + other.squares,  # type: ignore[operator]
            left_out={word: self.left_out.get(word, 0) + other.left_out.get(word, 0) for word in words},
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the axes and all integers: the same for the same rows in any order, from any engine."""
        axes = [axis.document() for axis in (self.score, *self.s)]
        document = {
            "axes": axes,
            "outcome": self.outcome and self.outcome.document(),
            "units": [self.weight_unit.hex(), self.square_unit.hex()],
            "left_out": dict(self.left_out),
            "shape": list(self.counts.shape),
        }
        found = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
        for numbers in (self.counts, self.score_sums, self.s_sums, self.weights, self.squares):
            if numbers is not None:
                found.update(np.ascontiguousarray(numbers, dtype="<i8").tobytes())
        return found.hexdigest()


def _find_codes(axis: Axis, column: Column) -> Integers:
    """Return the cell of each row."""
    if not isinstance(column, Labels):
        return axis.codes(column)
    place = axis.codes(np.array(column.names, dtype=object))
    return place[column.codes]


def _choose(column: Column, size: int, name: str, at: Sequence[float]) -> Axis:
    """Return the axis of a column of rows, from its margin."""
    if isinstance(column, Labels):
        return Axis.of_labels(column.names, name)
    if column.dtype.kind in "OSUb":
        return Axis.of_labels(np.unique(column.astype(str)).tolist(), name)
    extent = Extent.of_rows(column, most=size)
    return Axis.choose(extent.scout or Scout.of_rows(column, extent), size, name, at)


def _move(sums: Integers, mass: NDArray[Any], old: Sequence[Floats], new: Sequence[Floats]) -> Integers:
    """Return sums of offsets from other starts and in other units; all zero where cells are values."""
    (start, width), (new_start, new_width) = old, new
    unit = np.where(new_width > 0, new_width, 1.0)
    moved = np.rint(mass * ((start - new_start) / unit) + sums * (width / unit))
    return np.where(new_width > 0, moved, 0.0).astype(np.int64)


def _as_integers(w: Floats, units: tuple[float, float] | None) -> tuple[Integers, float, int]:
    """Return weights as whole numbers of a unit, the unit, and the bits that their squares leave out."""
    unit, square = units or weight_units(float(w.max()), len(w))
    most = math.ldexp(unit, min(53, 62 - ceil_log2(max(len(w), 2))))  # their sum is a 64-bit integer
    if w.max(initial=0.0) > most:
        fix = "Count both tables with units chosen for the larger weights."
        raise ArgumentError("sample_weight", f"be at most {most:g} in these units", float(w.max()), fix)
    return np.rint(w / unit).astype(np.int64), unit, ceil_log2(square / unit**2)


def weight_units(largest: float, rows: int) -> tuple[float, float]:
    """Return the unit of weights of which the largest is given, and that of their squares."""
    bits = min(52, _WEIGHT_BITS - ceil_log2(max(rows, 2)))
    unit = math.ldexp(1.0, ceil_log2(largest) - bits)
    return unit, unit**2 * 2.0**bits
