"""The law of s and the mean of z along it, at the values of s or on a fine grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive
from frhsic.sketching._state import State


class Law(NamedTuple):
    """The law of one column, at places along it."""

    places: Tensor  # (K,)
    mass: Tensor  # (K,), of sum one
    low: float  # the smallest value
    high: float  # the largest


@dataclass(frozen=True, eq=False)
class SensitiveLine:
    """The law of s and the mean of z along it, at the values of s or on a fine grid."""

    s: Sensitive  # the places, K rows
    mass: Tensor  # (K,), their weights, of sum one
    squared_mass: Tensor  # (K,), the sums of squared weights of rows, of weights of sum one
    mean: Tensor | None  # (K,), of the rows at each place, for one column z
    variance: Tensor | None  # (K,)
    low: float  # the smallest number of s; zero without numbers
    high: float
    step: float  # between places on a grid, whose rows are shared by the two around them; 0 for values of s

    @property
    def span(self) -> float:
        """The range of the numbers of s; 1 where there is none."""
        return self.high - self.low if self.high > self.low else 1.0

    @property
    def law(self) -> Law:
        return Law(self.s.values[:, 0], self.mass, self.low, self.high)


def line_of(state: State) -> SensitiveLine:
    plan, grid = state.plan, state.line
    if grid is None:
        must = "have at most one column of numbers to be put on a line"
        raise ArgumentError("s", must, len(plan.free), "Sketch one at a time.")
    sums = grid.sums.sum(dim=1)  # (P, values of the exact columns, K, 1 or 3)
    seen = sums[0, ..., 0] > 0
    s = torch.zeros((int(seen.sum()), len(plan.names)), dtype=torch.float64)
    *exact, knots = seen.nonzero().T
    for j, places in zip((j for j in range(len(plan.names)) if j not in plan.free), exact, strict=True):
        known = state.values[j]
        s[:, j] = known[places] if isinstance(known, Tensor) else places.double()
    for j in plan.free:
        s[:, j] = grid.knots[knots]
    first, second = sums[0][seen], sums[-1][seen]
    total = first[:, 0].sum()
    known_free = [state.values[j] for j in plan.free]
    on_knots = [isinstance(x, Tensor) and bool(torch.isin(x, grid.knots).all()) for x in known_free]
    mean = variance = None
    if first.shape[1] == 3:
        mean = first[:, 1] / first[:, 0]
        variance = (first[:, 2] / first[:, 0] - mean.square()).clamp_min(0.0)
    return SensitiveLine(
        s=state.sensitive(s),
        mass=first[:, 0] / total,
        squared_mass=second[:, 0] / total.square(),
        mean=mean,
        variance=variance,
        low=grid.low,
        high=grid.high,
        step=0.0 if all(on_knots) else 2.0**grid.exponent,
    )


class ScoreTable(NamedTuple):
    """The law of s and of one column z jointly: by place along s and by level of z."""

    line: SensitiveLine
    mass: Tensor  # (K, L), of sum one
    squared_mass: Tensor  # (K, L)
    cutoffs: Tensor  # (L - 1,): level l holds the scores above the first l of them, and not above the next


def table_of(state: State) -> ScoreTable | None:
    grid = state.decisions
    if grid is None or state.line is None:
        return None
    seen = (state.line.sums.sum(dim=1)[0, ..., 0] > 0).flatten()
    levels = grid.sums.shape[-1]
    first, second = (sums.reshape(-1, levels)[seen].clamp_min(0.0) for sums in (grid.sums[0], grid.sums[-1]))
    total = first.sum()
    return ScoreTable(line_of(state), first / total, second / total.square(), state.plan.cutoffs_tensor)


def law_of_scores(state: State) -> Law:
    grid = state.scores
    if grid is None:
        must = "be one column to have a law along it"
        raise ArgumentError("z", must, state.plan.width, "Sketch a score.")
    mass = grid.sums[0, ..., 0].sum(dim=0)
    return Law(grid.knots, mass / mass.sum(), grid.low, grid.high)
