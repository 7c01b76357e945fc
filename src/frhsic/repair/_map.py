"""The map of a score to the barycentre of its laws along S, from a table of score levels by cells of S.

With F(. | s) the distribution function of the score at s and Q(. | s) its inverse, the score x at s becomes

    B(F(x | s)),    B(u) = E Q(u | S):

the quantile function B is that of the law with the least mean squared transport from all F(. | s). At each s
it is monotone in x, so that ranks among people of one s are kept, and its law is the same for all s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.numerics._cells import Cells, MeanCells

_LEVELS: Final = 512  # quantiles of the score between which it is taken to be spread evenly
_RANGES: Final = 128  # of a continuous column of S
_GRID: Final = 4_097  # points at which quantile functions are averaged
_PRIOR: Final = 1.0  # rows of the law of all scores that each law begins with: no law is of no rows


class Counted(NamedTuple):
    """Shares of rows by cells of S and parts of the line of scores: points, and intervals between them."""

    edges: Tensor
    table: Tensor
    cells: MeanCells
    n: float


@dataclass(frozen=True, eq=False)
class RepairMap:
    """A fitted map.

    Attributes
    ----------
    cells : Cells
        Of S.
    edges : Tensor of shape (m,)
        Points of the line of scores, smallest and largest score at the ends.
    upto : Tensor of shape (cells, 2 m)
        The smoothed distribution function at the ends of the parts: a point, an interval, a point, ...
    target, total : Tensor of shape (grid,)
        B at evenly spread levels, and its integral up to them.
    """

    cells: Cells
    edges: Tensor
    upto: Tensor
    target: Tensor
    total: Tensor

    def ranks(self, x: Tensor, s: Sensitive) -> tuple[Tensor, Tensor]:
        """Return the levels F(x - | s) and F(x | s): an interval where many have the score x."""
        place = torch.searchsorted(self.edges, x).clamp_(max=len(self.edges) - 1)
        edge = self.edges[place]
        before = self.edges[(place - 1).clamp_(min=0)]
        exact = x >= edge  # beyond the last edge, too
        inside = exact | (x <= self.edges[0])
        part = torch.where(inside, 2 * place, 2 * place - 1)
        rows = self.cells.codes(s) * self.upto.shape[1] + part
        flat = self.upto.flatten()
        low, high = flat[rows], flat[rows + 1]
        between = ((x - before) / (edge - before).clamp(min=torch.finfo(x.dtype).tiny)).clamp_(0.0, 1.0)
        middle = low + between * (high - low)
        return torch.where(inside, low, middle), torch.where(inside, high, middle)

    def __call__(self, x: Tensor, s: Sensitive) -> Tensor:
        """Return the repaired scores, shape ``(n,)``."""
        low, high = self.ranks(x, s)
        width = high - low
        spread = width > 1e-9
        point = _interpolate(self.target, 0.5 * (low + high))
        mean = (_interpolate(self.total, high) - _interpolate(self.total, low)) / width.clamp(min=1e-9)
        return torch.where(spread, mean, point)


def count(x: Tensor, s: Sensitive, w: Tensor, groups: Tensor | None = None) -> Counted:
    """Return the table of scores and S; scores that many share are points of their own.

    Rows of one group, coded from 0 on, count as one where it matters how many rows there are.
    """
    share = w / w.sum()
    values, index = x.unique(return_inverse=True)
    mass = share.new_zeros(len(values)).index_add(0, index, share)
    if len(values) > _LEVELS:
        upto = mass.cumsum(0)
        levels = torch.linspace(0.0, 1.0, _LEVELS, dtype=upto.dtype)
        at = torch.searchsorted(upto, levels.clamp(max=float(upto[-1]))).clamp_(max=len(values) - 1)
        often = (mass >= 1.0 / _LEVELS).nonzero().squeeze(1)
        ends = torch.tensor([0, len(values) - 1])
        values = values[torch.cat((at, often, ends)).unique()]
    cells = MeanCells.of(s, share, _RANGES)
    place = torch.searchsorted(values, x)
    part = torch.where(values[place] == x, 2 * place, 2 * place - 1)
    columns = 2 * len(values) - 1
    table = share.new_zeros(len(cells.mass) * columns).index_add(0, cells.code * columns + part, share)
    unit = share if groups is None else share.new_zeros(int(groups.max()) + 1).index_add(0, groups, share)
    units = 1.0 / float(unit.square().sum())
    return Counted(values, table.reshape(-1, columns), cells, units)


def make_map(counted: Counted, width: float) -> RepairMap:
    """Return the map with laws smoothed over this share of the ranks of S; categories stay apart."""
    edges, table, cells, n = counted
    near = _neighbours(cells, width)
    smooth = near @ table + (_PRIOR / n) * table.sum(dim=0)
    upto = torch.cat((smooth.new_zeros(len(smooth), 1), smooth.cumsum(dim=1)), dim=1)
    upto = (upto / upto[:, -1:]).clamp(0.0, 1.0)
    grid = torch.linspace(0.0, 1.0, _GRID, dtype=table.dtype)
    target = torch.zeros_like(grid)
    # The score at the ends of the parts: each point twice.
    ends = edges.repeat_interleave(2)
    for mass, law in zip(cells.mass, upto, strict=True):
        target += mass * _invert(law, ends, grid)
    step = 1.0 / (_GRID - 1)
    areas = 0.5 * step * (target[1:] + target[:-1])
    total = torch.cat((areas.new_zeros(1), areas.cumsum(0)))
    return RepairMap(cells.cells, edges, upto, target, total)


def _neighbours(cells: MeanCells, width: float) -> Tensor:
    """Return how much the rows of each cell count at each other one: by ranks, within equal categories."""
    middle, mass = cells.middle, cells.mass
    near = torch.ones(len(mass), len(mass), dtype=mass.dtype)
    for x, kind in zip(middle.values.T, middle.kinds, strict=True):
        if kind == "categorical":
            near *= (x[:, None] == x).to(near)
            continue
        places, index = x.unique(return_inverse=True)
        own = mass.new_zeros(len(places)).index_add(0, index, mass)
        rank = (own.cumsum(0) - 0.5 * own)[index]
        near *= torch.exp(-0.5 * ((rank[:, None] - rank) / width) ** 2)
    return near


def _invert(law: Tensor, ends: Tensor, grid: Tensor) -> Tensor:
    """Return the quantiles of a law that rises from 0 to 1 between the ends of its parts."""
    place = torch.searchsorted(law, grid).clamp_(1, len(law) - 1)
    low, high = law[place - 1], law[place]
    between = ((grid - low) / (high - low).clamp(min=1e-15)).clamp_(0.0, 1.0)
    return ends[place - 1] + between * (ends[place] - ends[place - 1])


def _interpolate(values: Tensor, u: Tensor) -> Tensor:
    """Return values at evenly spread levels of [0, 1] at the levels u."""
    place = u.clamp(0.0, 1.0) * (len(values) - 1)
    low = place.long().clamp_(max=len(values) - 2)
    return torch.lerp(values[low], values[low + 1], place - low)
