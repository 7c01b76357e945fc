"""Rows gathered by cells of S, where they share one mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.inference._question import effective_units
from frhsic.numerics._cells import Cells
from frhsic.sketching import SensitiveLine

# More cells than these are an error.
MOST_PLACES = 1_024


@dataclass(frozen=True, eq=False)
class Places:
    """Rows gathered at M places, the cells of s in which there are any."""

    cell: Tensor  # (M,), the code of each cell, in order
    rows: Tensor  # (m,), sorted by place
    sizes: list[int]  # rows at each place
    w: Tensor  # (m,), in the order of rows
    counts: Tensor | None = None  # (m,), how many equal rows each one stands for; None: one
    units: Tensor | None = None  # (m,), codes of the units within which rows may depend on one another

    def by_unit(self, x: Tensor) -> sparse.csr_matrix:
        """Return the sums of x ``(m,)`` over the rows of each place and unit, shape ``(M, units)``."""
        unit = torch.arange(len(x)) if self.units is None else self.units
        place = np.repeat(np.arange(len(self.sizes)), self.sizes)
        shape = len(self.sizes), int(unit.max()) + 1
        return sparse.csr_matrix((x.numpy(), (place, unit.numpy())), shape=shape)

    def covariance(self, f: Tensor) -> Tensor | None:
        """Return sum_u V_u V_u' over units with V the sums of w (1, f): ``(1 + r, M, 1 + r, M)``; or None."""
        if self.units is None:
            return None
        columns = [self.w, *(self.w * column for column in f.mT)]
        V = sparse.vstack([self.by_unit(column) for column in columns])
        size = len(columns), len(self.sizes)
        return torch.from_numpy((V @ V.T).toarray()).reshape(*size, *size)

    def sums(self, x: Tensor) -> Tensor:
        """Return the sums of x ``(m, ...)``, in the order of rows, over each place."""
        place = torch.repeat_interleave(torch.tensor(self.sizes))
        if self.counts is not None:
            x = x * self.counts.reshape(-1, *(1,) * (x.ndim - 1))
        return x.new_zeros((len(self.sizes), *x.shape[1:])).index_add(0, place, x)

    @property
    def effective(self) -> float:
        """The number of equal rows, or units of rows, that would be as precise."""
        if self.units is not None:
            return effective_units(self.w, self.units)
        return 1.0 / float(self.sums(self.w.square()).sum())

    @property
    def shares(self) -> Tensor:
        """The weight of all rows that each one stands for, shape ``(m,)``."""
        return self.w if self.counts is None else self.counts * self.w


def gather_rows(code: Tensor, w: Tensor, units: Tensor | None = None, name: str = "s") -> Places:
    """Return rows with codes of cells ``(n,)`` by cell; raise ArgumentError if there are too many cells."""
    counts = torch.bincount(code)
    cell, place = counts.nonzero()[:, 0], (counts > 0).cumsum(0)[code] - 1
    if len(cell) > MOST_PLACES:
        fix = "Merge labels, such as districts for postcodes."
        raise ArgumentError(
            "s", f"have at most {MOST_PLACES:,} labels in column '{name}'", f"{len(cell):,}", fix
        )
    rows, sizes = place.to(torch.int16).argsort(stable=True), counts[cell].tolist()
    return Places(cell, rows, sizes, w[rows], units=None if units is None else units[rows])


def line_places(line: SensitiveLine, cells: Cells) -> tuple[Tensor, Places]:
    """Return scores and places that have the moments of a sketch: two rows at each knot, for all there.

    They lie one deviation below and above the mean. Within a knot the weights are taken as unrelated to the
    scores.
    """
    if line.mean is None or line.variance is None:
        raise ArgumentError("scores", "be a sketch of one column here", "several", "Sketch a score.")
    reach = line.variance.sqrt()
    scores = torch.stack((line.mean - reach, line.mean + reach), dim=1).flatten()
    w = (line.squared_mass / line.mass).repeat_interleave(2)
    counts = (0.5 * line.mass.square() / line.squared_mass).repeat_interleave(2)
    code = cells.codes(line.s).repeat_interleave(2)
    rows = code.argsort(stable=True)
    cell, sizes = code.unique(return_counts=True)
    return scores[:, None], Places(cell, rows, sizes.tolist(), w[rows], counts[rows])


def roots(covariance: Tensor) -> Tensor:
    """Return R ``(..., r, r)`` with R'R the covariance."""
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp_min(0.0).sqrt()[..., None] * vectors.mT
