"""Rows gathered by cells of S, where they share one mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.inference._question import effective_units

# More cells than these are an error.
MOST_PLACES = 1_024


@dataclass(frozen=True, eq=False)
class Places:
    """Rows gathered at M places, the cells of s in which there are any."""

    cell: Tensor  # (M,), the code of each cell, in order
    rows: Tensor  # (m,), sorted by place
    sizes: list[int]  # rows at each place
    w: Tensor  # (m,), in the order of rows
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
        return x.new_zeros((len(self.sizes), *x.shape[1:])).index_add(0, place, x)

    @property
    def effective(self) -> float:
        """The number of equal rows, or units of rows, that would be as precise."""
        if self.units is not None:
            return effective_units(self.w, self.units)
        return 1.0 / float(self.sums(self.w.square()).sum())


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


def roots(covariance: Tensor) -> Tensor:
    """Return R ``(..., r, r)`` with R'R the covariance."""
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp_min(0.0).sqrt()[..., None] * vectors.mT
