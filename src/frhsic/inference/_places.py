"""Rows gathered at places along S, where they share their smoothing weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Kind, Sensitive
from frhsic.inference._question import effective_units
from frhsic.numerics._cells import Cells
from frhsic.sketching import SensitiveLine

# Rows with the same or nearly the same s are gathered at no more places than this.
MOST_PLACES = 1_024


@dataclass(frozen=True, eq=False)
class Places:
    """Rows gathered at M places along s: what the smoothing needs of them."""

    s: Tensor  # (M, q)
    kinds: tuple[Kind, ...]
    rows: Tensor  # (m,), sorted by place
    sizes: list[int]  # rows at each place
    w: Tensor  # (m,), in the order of rows
    widths: Tensor | None  # (M,), of bins; None when each place is one value of s
    scale: float  # sqrt(m / n) when m of n rows were drawn
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


def gather_rows(s: Sensitive, w: Tensor, generator: torch.Generator, units: Tensor | None = None) -> Places:
    """Gather rows on the distinct values of s, or on bins of equal size along one continuous column.

    With several columns and too many values, rows are drawn: the error process has the same law up to the
    root of the number of rows.
    """
    if len(s.names) == 1:  # ten times as quick as rows
        values, place = s.values[:, 0].unique(return_inverse=True)
        values = values[:, None]
    else:
        values, place = s.values.unique(dim=0, return_inverse=True)
    widths, scale = None, 1.0
    if s.kinds == ("categorical",) and len(values) > MOST_PLACES:
        name, fix = s.names[0], "Merge labels, such as districts for postcodes."
        raise ArgumentError(
            "s", f"have at most {MOST_PLACES:,} labels in column '{name}'", f"{len(values):,}", fix
        )
    if len(values) <= MOST_PLACES:
        rows, sizes = place.argsort(stable=True), torch.bincount(place).tolist()
    elif s.kinds == ("continuous",):
        rows = s.values[:, 0].argsort(stable=True)
        parts = torch.tensor_split(s.values[rows], MOST_PLACES)
        sizes = [len(part) for part in parts]
        values = torch.stack([part.mean(dim=0) for part in parts])
        widths = torch.stack([part[-1, 0] - part[0, 0] for part in parts])
    else:
        rows, sizes = torch.randperm(len(s), generator=generator)[:MOST_PLACES], [1] * MOST_PLACES
        values, scale, w = s.values[rows], (MOST_PLACES / len(s)) ** 0.5, w / w[rows].sum()
    units = None if units is None else units[rows]
    return Places(values, s.kinds, rows, sizes, w[rows], widths, scale, units=units)


def equal_mass(places: Places, n_points: int) -> tuple[Tensor, Tensor]:
    """Return places that stand for equal shares of the rows along the first column, and those shares."""
    order = places.s[:, 0].argsort(stable=True)
    upto = places.sums(places.w)[order].cumsum(0)
    middles = (torch.arange(n_points, dtype=upto.dtype) + 0.5) / n_points
    at = torch.searchsorted(upto, middles).clamp_max(len(order) - 1)
    at, counts = at.unique(return_counts=True)  # a heavy place stands for several shares
    return places.s[order[at]], counts.to(upto) / n_points


def line_places(line: SensitiveLine, cells: Cells | None = None) -> tuple[Tensor, Places]:
    """Return scores and places that have the moments of a sketch: two rows at each place, for all there.

    They lie one deviation below and above the mean. Within a place the weights are taken as unrelated to the
    scores.
    """
    if line.mean is None or line.variance is None:
        raise ArgumentError("scores", "be a sketch of one column here", "several", "Sketch a score.")
    K, reach = len(line.mass), line.variance.sqrt()
    scores = torch.stack((line.mean - reach, line.mean + reach), dim=1).flatten()
    w = (line.squared_mass / line.mass).repeat_interleave(2)
    counts = (0.5 * line.mass.square() / line.squared_mass).repeat_interleave(2)
    if cells is None:
        widths = torch.full((K,), line.step, dtype=torch.float64) if line.step else None
        rows = torch.arange(2 * K)
        return scores[:, None], Places(line.s.values, line.s.kinds, rows, [2] * K, w, widths, 1.0, counts)
    code = cells.codes(line.s).repeat_interleave(2)
    rows = code.argsort(stable=True)
    values, sizes = code.unique(return_counts=True)
    places = Places(
        values[:, None].double(), ("categorical",), rows, sizes.tolist(), w[rows], None, 1.0, counts[rows]
    )
    return scores[:, None], places


def roots(covariance: Tensor) -> Tensor:
    """Return R ``(..., r, r)`` with R'R the covariance."""
    values, vectors = torch.linalg.eigh(covariance)
    return values.clamp_min(0.0).sqrt()[..., None] * vectors.mT
