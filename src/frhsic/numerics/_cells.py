"""Cells of S: each value by itself where they are few for the rows, else ranges of neighbouring values.

A mean within a cell needs no smoothness and no bandwidth: it is a mean of rows. Cells hold about equal shares
of the rows, so that neither a skewed law of S nor a single outlier changes what is seen elsewhere, and a
monotone transform of S (income or its logarithm) changes nothing at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Kind, Sensitive
from frhsic.numerics._ranges import are_few, range_of_each

# From so many rows on ranges are narrow enough (3 % of the rows) to speak of the curve itself between them.
NARROW_ROWS = 5_000
_MOST_CELLS: Final = 1_024  # of several columns


@dataclass(frozen=True, eq=False)
class Cells:
    """A partition of the values of S.

    Attributes
    ----------
    names : tuple of str
    kinds : tuple of {"continuous", "categorical"}
    size : int
        The number of cells.
    low, high : Tensor of shape (size,)
        The smallest and the largest value in each cell, along the continuous column if there is one only.
    mass : Tensor of shape (size,)
        The share of the rows in each cell.
    narrow : bool
        Whether ranges are narrow enough to speak of the curve itself.
    tree : tuple
        How rows find their cell: inner edges (or categories) of the first column, then a tree for each part.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    size: int
    low: Tensor
    high: Tensor
    mass: Tensor
    narrow: bool
    tree: _Split | None

    @classmethod
    def of(cls, s: Sensitive, w: Tensor | None = None, units: float | None = None) -> Cells:
        """Return the cells of a sample.

        The number of ranges is 2 n^(1/3) (the rule of Rice University) for n rows of equal weight; with
        several continuous columns it is that of their products.

        Parameters
        ----------
        s : Sensitive
        w : Tensor of shape (n,), optional
            Weights of rows, of sum one.
        units : float, optional
            The number of independent units among the rows; None takes one over the sum of squared weights.
        """
        w = s.values.new_full((len(s),), 1.0 / len(s)) if w is None else w
        units = 1.0 / float(w.square().sum()) if units is None else units
        tree, size = _split(s.values, w, s.kinds, units, 0)
        line = [j for j, kind in enumerate(s.kinds) if kind == "continuous"]
        column = s.values[:, line[0] if len(line) == 1 else 0]
        code = _assign(s.values, tree)
        low = column.new_full((size,), torch.inf).scatter_reduce(0, code, column, "amin")
        high = column.new_full((size,), -torch.inf).scatter_reduce(0, code, column, "amax")
        mass = w.new_zeros(size).index_add(0, code, w)
        return cls(s.names, s.kinds, size, low, high, mass, round(units) >= NARROW_ROWS, tree)

    def codes(self, s: Sensitive) -> Tensor:
        """Return the cell 0, ..., size - 1 of each row; a value that no cell holds belongs to the nearest."""
        return _assign(s.values, self.tree)

    def as_sensitive(self, s: Sensitive) -> Sensitive:
        """Return one categorical column: the cell of each row."""
        codes = self.codes(s)[:, None].to(torch.float64)
        return Sensitive(codes, (" and ".join(self.names),), ("categorical",))

    @property
    def single(self) -> Tensor:
        """Which cells are one value."""
        return self.low == self.high

    def ends(self, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return where some neighbouring cells of one column begin and end; infinite at the outermost ranges.

        Ranges end halfway to the next one: the extremes of a column belong to single rows.
        """
        low, high, single = self.low[cell], self.high[cell], self.single[cell]
        between = 0.5 * (high[:-1] + low[1:])
        start = torch.cat((low.new_tensor([-torch.inf]), between))
        stop = torch.cat((between, high.new_tensor([torch.inf])))
        return torch.where(single, low, start), torch.where(single, high, stop)

    @property
    def exact(self) -> bool:
        """Whether every cell is one value (or label), so that means within cells are the curve itself."""
        if self.kinds.count("continuous") > 1:
            return False
        return bool(self.single.all()) or "continuous" not in self.kinds


class MeanCells(NamedTuple):
    """The cell of each row, the share of the rows in each, and a row of S that stands for it."""

    cells: Cells
    code: Tensor
    mass: Tensor
    middle: Sensitive

    @classmethod
    def of(cls, s: Sensitive, w: Tensor, ranges: int = 64) -> MeanCells:
        """Return the cells of rows whose weights sum to one, with so many ranges of a continuous column.

        Up to a hundred values of one have a cell each.
        """
        cells = Cells.of(s, w, units=(0.5 * ranges) ** 3)
        while cells.size > _MOST_CELLS and ranges > 4:  # each category has its own ranges
            ranges //= 2
            cells = Cells.of(s, w, units=(0.5 * ranges) ** 3)
        if cells.size > _MOST_CELLS:
            must = f"have at most {_MOST_CELLS} combinations of values"
            fix = "Take columns one by one: Penalty(..., columns=[...]), or merge labels."
            raise ArgumentError("sensitive_features", must, f"{cells.size:,}", fix)
        code = cells.codes(s)
        mass = w.new_zeros(cells.size).index_add(0, code, w)
        sums = w.new_zeros((cells.size, len(s.names))).index_add(0, code, w[:, None] * s.values)
        middle = sums / mass[:, None]
        for j, kind in enumerate(s.kinds):
            if kind == "categorical":  # a kernel of equality would see rounding
                middle[:, j] = middle[:, j].round()
        line = [j for j, kind in enumerate(s.kinds) if kind == "continuous"]
        if len(line) == 1:
            middle[:, line[0]] = torch.where(cells.single, cells.low, middle[:, line[0]])
        return cls(cells, code, mass, Sensitive(middle, s.names, s.kinds, s.categories))


@dataclass(frozen=True, eq=False)
class _Split:
    """One column split between ranges, values or categories, then each part by the other columns."""

    column: int
    edges: Tensor  # inner edges; a value on an edge belongs below
    parts: tuple[tuple[_Split | None, int], ...]  # how each part goes on, and the code of its first cell


def _split(
    values: Tensor, w: Tensor, kinds: Sequence[Kind], units: float, column: int, ranges: float | None = None
) -> tuple[_Split | None, int]:
    """Return the tree of the columns from this one on, and its number of cells.

    ``ranges`` is the number of ranges of each continuous column; None until the first of several is split.
    """
    if column == len(kinds):
        return None, 1
    x = values[:, column]
    places, index = x.unique(return_inverse=True)
    if kinds[column] == "categorical":
        edges = _halfway(places)
    else:
        columns = kinds.count("continuous")
        ranges = (2.0 * units ** (1.0 / 3.0)) ** (1.0 / columns) if ranges is None else ranges
        few = are_few(len(places), units)
        edges = _halfway(places) if few and columns == 1 else _edges(places, index, w, max(1, round(ranges)))
    part, count = torch.bucketize(x.contiguous(), edges), len(edges) + 1
    if column == len(kinds) - 1:
        return _Split(column, edges, tuple((None, j) for j in range(count))), count
    parts, first = [], 0
    for j in range(count):
        rows = part == j
        share = float(w[rows].sum())
        tree, size = _split(values[rows], w[rows] / share, kinds, units * share, column + 1, ranges)
        parts.append((tree, first))
        first += size
    return _Split(column, edges, tuple(parts)), first


def _halfway(places: Tensor) -> Tensor:
    """Return what lies between neighbouring values; the lower one where they are neighbours as floats."""
    below, above = places[:-1], places[1:]
    middle = below + 0.5 * (above - below)
    return torch.where(middle < above, middle, below)


def _edges(places: Tensor, index: Tensor, w: Tensor, count: int) -> Tensor:
    """Return the edges between the ranges of one column, halfway between neighbouring values."""
    mass = w.new_zeros(len(places)).index_add(0, index, w)
    code = torch.from_numpy(range_of_each(mass.double().cpu().numpy(), count))
    return _halfway(places)[(code.diff() != 0).nonzero().squeeze(1).to(places.device)]


def _assign(values: Tensor, tree: _Split | None) -> Tensor:
    """Return the cell of each row."""
    code = torch.zeros(len(values), dtype=torch.long)
    if tree is None:
        return code
    x = values[:, tree.column].contiguous()
    part = torch.bucketize(x, tree.edges.to(x))
    if all(below is None for below, _ in tree.parts):
        return part
    for j, (below, first) in enumerate(tree.parts):
        rows = part == j
        code[rows] = first + _assign(values[rows], below)
    return code
