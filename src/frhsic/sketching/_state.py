"""The sums of a sketch: by group of rows and value of s, or times features of s where it has many values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Label, Sensitive
from frhsic.sketching._grid import Grid
from frhsic.sketching._plan import MOST_SUMS, Plan
from frhsic.sketching._rows import Sample, groups_of

# The values of a column of s in order: numbers or categories.
Values: TypeAlias = Tensor | list[Label]


class State:
    """The sums of some rows: a sketch has one for each label of ``given``.

    Attributes
    ----------
    values : list
        For each column of s its values in order, None where features stand for it.
    sums : Tensor of shape (P, G, values of each column that has them, A, B)
        Over rows, (1, phi) (1, psi)' times weights and, once rows were weighted (P = 2), their squares. phi
        and psi are not scaled. B is 1 as long as the values of all columns of s are kept apart.
    line : Grid or None
        Sums (P, G, values of the exact columns, K) of w along the free column of s; at one knot where there
        is none, None where there are several.
    scores : Grid or None
        Sums (P, G, K) of w along one column z.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.featured = False
        self.values: list[Values | None] = [
            [] if kind == "categorical" else torch.zeros(0, dtype=torch.float64) for kind in plan.kinds
        ]
        G, q = plan.n_groups, len(plan.names)
        self.counts = torch.zeros(G, dtype=torch.int64)
        A = 1 + len(plan.map_z.scale_with_norms)
        self.sums = torch.zeros((1, G, *(0,) * q, A, 1), dtype=torch.float64)
        exact = (0,) * (q - len(plan.free))
        self.line = Grid((1, G, *exact)) if len(plan.free) <= 1 else None
        self.scores = Grid((1, G)) if plan.width == 1 else None
        wide = torch.zeros((0, plan.width + q + 1), dtype=torch.float64)
        z, s, w = wide.split((plan.width, q, 1), dim=1)
        self.sample = Sample(torch.zeros(0, dtype=torch.int64), z, s, w[:, 0])

    @property
    def n_rows(self) -> int:
        """Rows of positive weight."""
        return int(self.counts.sum())

    @property
    def weighted(self) -> bool:
        """Whether sums over squared weights are kept."""
        return len(self.sums) == 2

    @property
    def grids(self) -> dict[str, Grid]:
        named = {"line": self.line, "scores": self.scores}
        return {name: grid for name, grid in named.items() if grid is not None}

    # Values of the columns of s

    @property
    def discrete(self) -> list[int]:
        """The columns of s whose values are kept apart."""
        return [j for j, values in enumerate(self.values) if values is not None]

    def n_values(self, j: int) -> int:
        values = self.values[j]
        return 0 if values is None else len(values)

    def place(self, first: Tensor, codes: Mapping[int, Tensor], columns: Iterable[int]) -> Tensor:
        """Return the place of each row among combinations of values of columns, after a first index."""
        for j in columns:
            first = first * self.n_values(j) + codes[j]
        return first

    def points(self, columns: Sequence[int]) -> Tensor:
        """Return every combination of values of these columns as a row of s; the others are zero."""
        axes = []
        for j in columns:
            values = self.values[j]
            axes.append(values if isinstance(values, Tensor) else torch.arange(self.n_values(j)).double())
        points = torch.zeros((math.prod(map(len, axes)), len(self.plan.names)), dtype=torch.float64)
        for j, column in zip(columns, torch.meshgrid(*axes, indexing="ij") if axes else (), strict=True):
            points[:, j] = column.reshape(-1)
        return points

    def sensitive(self, values: Tensor) -> Sensitive:
        """Return rows of s, with categories for their codes."""
        categories = tuple(tuple(x) if isinstance(x, list) else None for x in self.values)
        return Sensitive(values, self.plan.names, self.plan.kinds, categories)

    def learn(self, j: int, values: Values) -> None:
        """Extend the values of a column, or replace them by features if they are too many."""
        sizes = {i: max(1, self.n_values(i)) for i in self.discrete} | {j: len(values)}
        if not self.featured and self.plan.too_many(sizes):
            self.use_features()
        if self.values[j] is not None:
            self.widen(j, values)

    def widen(self, j: int, values: Values) -> None:
        """Extend the sums to these values of a column, which include those that it has."""
        old = self.values[j]
        others = math.prod(max(1, self.n_values(i)) for i in self.discrete if i != j)
        if len(values) * others * self.plan.n_groups * math.prod(self.sums.shape[-2:]) > MOST_SUMS:
            must = "have fewer categories for a sketch, which keeps sums for each"
            got = f"at least {len(values):,} in the column {self.plan.names[j]!r}"
            raise ArgumentError("s", must, got, "Gather rare categories, or use fewer features or groups.")
        if isinstance(values, Tensor) and isinstance(old, Tensor):
            places = torch.searchsorted(values, old)
        else:
            position = {label: place for place, label in enumerate(values)}
            places = torch.tensor([position[label] for label in old or []], dtype=torch.int64)
            if len(self.sample.s):
                s = self.sample.s.clone()
                s[:, j] = places[s[:, j].long()].double()
                self.sample = self.sample._replace(s=s)
        axis = 2 + self.discrete.index(j)
        self.sums = _spread(self.sums, axis, places, len(values))
        if self.line is not None and j not in self.plan.free:
            axis -= sum(i in self.plan.free for i in self.discrete if i < j)
            self.line.sums = _spread(self.line.sums, axis, places, len(values))
        self.values[j] = values

    def use_features(self) -> None:
        """Replace values of the free columns by features of them: the same sums, up to rounding."""
        map_s, free = self.plan.map_s, self.plan.free  # raises if the kernel has no features
        axes = [2 + self.discrete.index(j) for j in free]
        kept = [axis for axis in range(self.sums.ndim - 2) if axis not in axes]
        points = self.points(free)
        columns = torch.ones((len(points), 1 + len(map_s.scale_with_norms)), dtype=torch.float64)
        map_s.fill_with_norms(map_s.standard(points), columns[:, 1:])
        sums = self.sums.squeeze(-1)
        sums = sums.permute(*kept, sums.ndim - 1, *axes).flatten(len(kept) + 1)  # (P, G, ..., A, points)
        self.sums = sums @ columns
        self.featured = True
        for j in free:
            self.values[j] = None

    def keep_squares(self) -> None:
        """Begin to keep sums over squared weights, which so far were one."""
        self.sums = torch.cat((self.sums, self.sums))
        for grid in self.grids.values():
            grid.sums = torch.cat((grid.sums, grid.sums))

    # Whole states

    def copy(self) -> State:
        twin = State.__new__(State)
        twin.__dict__.update(self.__dict__)
        twin.values = list(self.values)
        twin.sums, twin.counts = self.sums.clone(), self.counts.clone()
        for name, grid in self.grids.items():
            setattr(twin, name, grid.copy())
        return twin

    def merge(self, other: State) -> None:
        other = other.copy()
        unions: dict[int, Values] = {}
        for j, pair in enumerate(zip(self.values, other.values, strict=True)):
            match pair:
                case Tensor() as one, Tensor() as two:
                    unions[j] = torch.cat((one, two)).unique()
                case list() as one, list() as two:
                    unions[j] = sort_labels([*one, *two])
        sizes = {j: len(values) for j, values in unions.items()}
        if self.featured or other.featured or self.plan.too_many(sizes):
            for state in (self, other):
                if not state.featured and self.plan.free:
                    state.use_features()
        for state in (self, other):
            for j in state.discrete:
                state.widen(j, unions[j])
            if len(state.sums) < max(len(self.sums), len(other.sums)):
                state.keep_squares()
        self.sums = self.sums + other.sums
        self.counts = self.counts + other.counts
        for name, grid in self.grids.items():
            grid.merge(other.grids[name])
        self.sample = self.sample.join(other.sample)

    def without(self, group: int) -> State:
        """Return the state of all rows but those of a group."""
        twin = self.copy()
        twin.counts[group] = 0
        twin.sums[:, group] = 0.0
        for grid in twin.grids.values():
            grid.sums[:, group] = 0.0
        twin.sample = self.sample.take(groups_of(self.sample.numbers, self.plan.n_groups) != group)
        return twin


def merge_states(states: Sequence[State]) -> State:
    """Return the sums of several states, which stay as they are."""
    total = states[0].copy()
    for other in states[1:]:
        total.merge(other)
    return total


def sort_labels(labels: Iterable[Label]) -> list[Label]:
    """Return labels once each, in the order in which :mod:`frhsic.data` sorts them."""
    return sorted(set(labels), key=lambda label: (isinstance(label, str), label))


def _spread(x: Tensor, axis: int, places: Tensor, size: int) -> Tensor:
    """Return x with ``size`` entries along an axis, those that it has at ``places``."""
    if len(places) == size:
        return x
    wider = x.new_zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]))
    return wider.index_copy_(axis, places, x)
