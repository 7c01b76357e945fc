"""Scores as a table of cells of S by levels: what decisions need of any number of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from frhsic.inference._places import Places
from frhsic.inference._process import Smoothed
from frhsic.inference._question import Observations
from frhsic.numerics._cells import Cells
from frhsic.sketching import HSICSketch


@dataclass(frozen=True, eq=False)
class Table:
    """The law of s and of the level of a score: rows of one cell and level decide alike."""

    cells: Cells
    mass: Tensor  # (C, L), of sum one
    squares: Tensor  # (C, L), sums of squared weights of rows, of weights of sum one
    cutoffs: Tensor  # (L - 1,), in order: level l holds the scores above the first l, and not above the next

    @classmethod
    def of_rows(cls, rows: Observations, cells: Cells | None, cutoffs: Tensor) -> Table:
        """Return the table of rows of equal weight."""
        cells = cells or Cells.of(rows.s, rows.weights, rows.effective_units)
        level = torch.searchsorted(cutoffs, rows.z[:, 0].contiguous())  # the number of cut-offs below
        code = cells.codes(rows.s) * (len(cutoffs) + 1) + level
        counts = torch.bincount(code, minlength=cells.size * (len(cutoffs) + 1)).reshape(cells.size, -1)
        share = counts.double() / len(rows)
        return cls(cells, share, share / len(rows), cutoffs)

    @classmethod
    def of_sketch(cls, sketch: HSICSketch) -> Table | None:
        """Return the table of a sketch; None where it has none, or outliers stretch its grid too far."""
        found = sketch.score_table()
        if found is None or sketch.grouped:
            return None
        line = found.line
        cells = Cells.of(line.s, line.mass, sketch.effective_rows)
        if line.step > 0.0 and float(line.mass.max()) > 1.5 / cells.size:
            return None
        code = cells.codes(line.s)
        mass, squares = (
            x.new_zeros((cells.size, x.shape[1])).index_add(0, code, x)
            for x in (found.mass, found.squared_mass)
        )
        cells = replace(cells, low=cells.low - line.step, high=cells.high + line.step)
        return cls(cells, mass, squares, found.cutoffs)

    def rates(self) -> Tensor:
        """Return the share above each cut-off, shape ``(L - 1,)``; exactly zero where there is nobody."""
        return self.mass.sum(dim=0).flip(0).cumsum(0).flip(0)[1:]

    def gaps(self) -> Tensor:
        """Return D at each cut-off, shape ``(L - 1,)``."""
        above = self.mass.flip(1).cumsum(1).flip(1)  # (C, L): at or above each level
        share, above = above[:, :1], above[:, 1:]
        return (above - share * above.sum(dim=0)).abs().sum(dim=0)

    def curve(self, features: Tensor) -> Smoothed:
        """Return the curve along s of features of a level, ``(L, r)``."""
        cell, level = (self.mass > 0).nonzero(as_tuple=True)
        mass, squares = self.mass[cell, level], self.squares[cell, level]
        found, sizes = cell.unique(return_counts=True)
        counts = mass.square() / squares
        places = Places(found, torch.arange(len(cell)), sizes.tolist(), squares / mass, counts)
        return Smoothed(features[level], places, self.cells)

    def decisions(self, chosen: Tensor) -> Smoothed:
        """Return the curves of the decisions at some of the cut-offs, by their index."""
        levels = torch.arange(len(self.cutoffs) + 1)
        return self.curve((levels[:, None] > chosen).to(self.mass))
