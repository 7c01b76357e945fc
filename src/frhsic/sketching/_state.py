"""The sums behind a sketch: by group of rows and level of s, times features of what has too many levels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frhsic.data import Kind, Label, Sensitive
from frhsic.kernels import Kernel
from frhsic.sketching._grid import Grid
from frhsic.sketching._maps import FeatureMap, feature_map

# Up to so many distinct numbers in a column of s, and so many combinations of all columns, s is kept level by
# level and its kernel is exact: ages from 0 to 120, or from 17 to 90 for each of three groups.
LEVELS, CELLS = 128, 256
# The most sums of products of features: 134 MB.
MOST_SUMS = 2**24
# Rows that are kept as they are.
STORED = 5_000
# Rows sorted by group at once, and rows of a block of features.
_SORTED, _BLOCK = 131_072, 4_096
# Rows of a cell that are summed in float32.
_CELL_ROWS = 256
# Arguments of cosines beyond this have too few digits after the point in float32.
_LARGEST = 128.0
# Features that vary by less than this share of their squared length vary no more than by rounding.
_RESOLVED = {torch.float32: 1e-6, torch.float64: 1e-12}
# Above every number of a row: nothing had to be left out.
ALL = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Plan:
    """What the sums are sums of: kernels, features and the columns that came first."""

    kernel_z: Kernel
    kernel_s: Kernel
    n_features: tuple[int, int]
    random_state: int
    n_groups: int
    dtype: torch.dtype
    width: int  # of z
    names: tuple[str, ...]  # of s
    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        seen = {
            (j, kernel.by_equality)
            for kernel, columns in self.kernel_s.parts()
            for j in (range(len(self.names)) if columns is None else columns)
        }
        if max(j for j, _ in seen) >= len(self.names):
            raise ValueError(
                "'s' must have the columns that 'kernel_s' looks at. "
                f"Got {len(self.names)} for {self.kernel_s!r}. Pass them all, or another kernel."
            )
        unseen = set(range(len(self.names))) - {j for j, _ in seen}
        if unseen:
            raise ValueError(
                f"'kernel_s' must look at all columns of 's'. Got {self.kernel_s!r}, blind to "
                f"{self.names[min(unseen)]!r}. Leave that column out."
            )
        wrong = [self.names[j] for j, equality in seen if self.kinds[j] == "categorical" and not equality]
        if wrong:
            raise ValueError(
                f"'kernel_s' must be Delta() on categories, whose codes mean nothing. Got {self.kernel_s!r} "
                f"for the column {wrong[0]!r}. HSICSketch.like makes kernels that fit."
            )

    @cached_property
    def map_z(self) -> FeatureMap:
        """The features of z."""
        return feature_map(self.kernel_z, self.width, self.n_features[0], self.random_state, "kernel_z")

    @cached_property
    def _split(self) -> tuple[tuple[int, ...], Kernel | None, float]:
        return self.kernel_s.split_equality(len(self.names))

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The columns of s that are kept level by level only while they have few levels."""
        exact, _, _ = self._split
        return tuple(j for j in range(len(self.names)) if j not in exact)

    @cached_property
    def map_s(self) -> FeatureMap:
        """The features of the free columns; one of the features asked for is the constant."""
        _, rest, factor = self._split
        assert rest is not None  # noqa: S101
        n_features = self.n_features[1] - 1
        return feature_map(rest, len(self.names), n_features, self.random_state, "kernel_s", factor)

    def too_many(self, sizes: Mapping[int, int]) -> bool:
        """Return whether columns with so many levels each must go over to features."""
        return bool(self.free) and (
            any(sizes[j] > LEVELS for j in self.free) or math.prod(sizes.values()) > CELLS
        )


class Moments(NamedTuple):
    """Sums F and S of products of features, ready for ``hsic_of_sums``."""

    first: Tensor
    second: Tensor
    diagonal_z: float | None
    diagonal_s: float | None


class Sample(NamedTuple):
    """The stored rows: all those whose number is below ``bound``, by their numbers."""

    numbers: Tensor  # (m,) int64
    z: Tensor  # (m, d)
    s: Tensor  # (m, q), categories as codes
    w: Tensor  # (m,)
    bound: int = ALL

    @property
    def whole(self) -> bool:
        """Whether no row had to be left out."""
        return self.bound == ALL

    def join(self, other: Sample) -> Sample:
        """Return at most 5,000 rows of both: all below some number, so that no order matters."""
        bound = min(self.bound, other.bound)
        numbers, z, s, w = (torch.cat(pair) for pair in zip(self[:4], other[:4], strict=True))
        order = numbers.argsort(stable=True)
        if len(order) > STORED:
            bound = min(bound, int(numbers[order[STORED]]))
        order = order[: int((numbers < bound).sum())]
        return Sample(numbers[order], z[order], s[order], w[order], bound)


def row_numbers(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 63 bits for each id that look random (the finaliser of splitmix64)."""
    x = ids.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(1)).view(np.int64)


def numbers_by_unit(ids: NDArray[np.int64], units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers of rows whose low half, which chooses the group, is that of the unit of the row."""
    low = np.int64(2**31 - 1)
    return (row_numbers(ids) & ~low) | (row_numbers(units) & low)


def groups_of(numbers: Tensor, n_groups: int) -> Tensor:
    """Return the group of each row: by the low half of its number, since the stored rows have small ones."""
    return (numbers & (2**31 - 1)).mul_(n_groups).bitwise_right_shift_(31)


class State:
    """The sums of some rows: what a sketch is for one level of ``given``.

    Attributes
    ----------
    levels : list
        For each column of s its levels in order (numbers as a tensor), None where it enters by features.
    sums : Tensor of shape (P, G, levels of each column that has them, A, B)
        Over rows, (1, phi) (1, psi)' times weights and, once rows were weighted (P = 2), their squares. phi
        and psi are not scaled. B is 1 as long as all columns of s are kept by levels.
    line : Grid or None
        Sums (P, G, levels of the exact columns, K, 1 or 3) of w (of w, w z, w z^2 for one column z) along the
        free column of s; at one knot where there is none, nowhere where there are several.
    scores : Grid or None
        Sums (P, G, K, 1) of w along one column z.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.featured = False
        self.levels: list[Tensor | list[Label] | None] = [
            [] if kind == "categorical" else torch.zeros(0, dtype=torch.float64) for kind in plan.kinds
        ]
        G, q, scalar = plan.n_groups, len(plan.names), plan.width == 1
        self.counts = torch.zeros(G, dtype=torch.int64)
        self.sums = torch.zeros((1, G, *(0,) * q, 1 + plan.map_z.width_with_norms, 1), dtype=torch.float64)
        exact = (0,) * (q - len(plan.free))
        self.line = Grid((1, G, *exact), 3 if scalar else 1) if len(plan.free) <= 1 else None
        self.scores = Grid((1, G), 1) if scalar else None
        wide = torch.zeros((0, plan.width + q + 1), dtype=torch.float64)
        z, s, w = wide.split((plan.width, q, 1), dim=1)
        self.sample = Sample(torch.zeros(0, dtype=torch.int64), z, s, w[:, 0])

    # Rows

    def add(
        self,
        z: Tensor,
        s: Sensitive,
        w: Tensor | None,
        ids: NDArray[np.int64],
        units: NDArray[np.int64] | None = None,
    ) -> None:
        """Add rows; weights are positive. Rows of one unit are in one group."""
        numbers = row_numbers(ids) if units is None else numbers_by_unit(ids, units)
        for start in range(0, len(z), _SORTED):
            part = slice(start, start + _SORTED)
            rows = Sensitive(s.values[part], s.names, s.kinds, s.categories)
            self._add(z[part], rows, None if w is None else w[part], torch.from_numpy(numbers[part]))

    def _add(self, z: Tensor, s: Sensitive, w: Tensor | None, numbers: Tensor) -> None:
        if w is not None and len(self.sums) == 1:
            self._square()
        group = groups_of(numbers, self.plan.n_groups)
        codes = self._codes(s)
        if w is None and len(self.sums) == 2:
            w = torch.ones_like(z[:, 0])
        powers = [] if w is None else [w, w * w]
        index = self._index(group, codes, self.discrete)
        if self.featured:
            self._add_products(z, s.values, w, index)
        else:
            self._add_levels(z, w, index)
        self._add_moments(z, s.values, powers, group, codes)
        self.counts += torch.bincount(group, minlength=self.plan.n_groups)
        kept = numbers < self.sample.bound
        if bool(kept.any()):
            values = s.values[kept]
            for j, kind in enumerate(self.plan.kinds):
                if kind == "categorical":
                    values[:, j] = codes[j][kept].double()
            weights = torch.ones_like(values[:, 0]) if w is None else w[kept]
            self.sample = self.sample.join(Sample(numbers[kept], z[kept], values, weights))

    def _index(self, group: Tensor, codes: Mapping[int, Tensor], columns: Iterable[int]) -> Tensor:
        """Return the place of each row among groups and levels of columns."""
        for j in columns:
            group = group * self._n_levels(j) + codes[j]
        return group

    def _add_levels(self, z: Tensor, w: Tensor | None, index: Tensor) -> None:
        """Add features of z at the levels of s."""
        flat = self.sums.view(len(self.sums), -1, self.sums.shape[-2])  # (P, places, A)
        y = self._rows(self.plan.map_z, z)
        P, places, A = flat.shape
        size = min(
            _BLOCK, len(y), _CELL_ROWS * self.plan.n_groups
        )  # groups are of one size, levels may not be
        X = y.new_empty((size, A - 1))
        part = y.new_zeros((P, places, A - 1))
        held = torch.zeros(places, dtype=torch.int64)
        unit = _unit(w)
        for p in range(P):
            flat[p, :, 0] += torch.bincount(index, None if w is None else w ** (p + 1), minlength=places)
        for start in range(0, len(y), size):
            rows = slice(start, start + size)
            here = torch.bincount(index[rows], minlength=places)
            held += here
            # A long sum of equal rows would be off by all of its roundings, which go the same way.
            if int(held.max()) > _CELL_ROWS:
                held = here
                for p in range(P):
                    flat[p, :, 1:].add_(part[p], alpha=unit ** (p + 1))
                part.zero_()
            block = X[: len(y[rows])]
            self.plan.map_z.fill_with_norms(y[rows], block)
            for p in range(P):
                if w is not None:  # once and once again
                    block *= (w[rows, None] / unit).to(block)
                part[p].index_add_(0, index[rows], block)
        for p in range(P):
            flat[p, :, 1:].add_(part[p], alpha=unit ** (p + 1))

    def _add_products(self, z: Tensor, s: Tensor, w: Tensor | None, index: Tensor) -> None:
        """Add products of features of z and s, place by place."""
        map_z, map_s = self.plan.map_z, self.plan.map_s
        A, B = self.sums.shape[-2:]
        flat = self.sums.view(len(self.sums), -1, A, B)
        counts = torch.bincount(index, minlength=flat.shape[1])
        # numpy sorts small integers by counting them.
        small = index.numpy().astype(np.uint16 if len(counts) < 2**16 else np.int64)
        order = torch.from_numpy(np.argsort(small, kind="stable"))
        y_z, y_s = (self._rows(one, x).index_select(0, order) for one, x in ((map_z, z), (map_s, s)))
        unit = _unit(w)
        w = None if w is None else (w / unit).index_select(0, order)
        dtype = torch.promote_types(y_z.dtype, y_s.dtype)
        y_z, y_s, w = y_z.to(dtype), y_s.to(dtype), None if w is None else w.to(dtype)
        # Features in rows, since their product is quicker; not at distances of a power of two, which would
        # fall on the same lines of the cache.
        longest = min(_BLOCK, int(counts.max()))
        X = torch.empty((A, longest + 16), dtype=dtype)
        Y = torch.empty((len(flat), B, longest + 16), dtype=dtype)
        X[0], Y[:, 0] = 1.0, 1.0
        stops = counts.cumsum(0).tolist()
        for place, count in enumerate(counts.tolist()):
            for start in range(stops[place] - count, stops[place], _BLOCK):
                stop = min(start + _BLOCK, stops[place])
                x, y = X[:, : stop - start], Y[..., : stop - start]
                map_z.fill_with_norms(y_z[start:stop], x[1:].mT)
                map_s.fill_with_norms(y_s[start:stop], y[0, 1:].mT)
                if w is not None:
                    own = w[start:stop]
                    y[0, 0] = 1.0
                    y[0] *= own
                    torch.mul(y[0], own, out=y[1])
                for p, one in enumerate(y):
                    flat[p, place].add_(x @ one.mT, alpha=unit ** (p + 1))

    def _add_moments(
        self, z: Tensor, s: Tensor, powers: Sequence[Tensor], group: Tensor, codes: Mapping[int, Tensor]
    ) -> None:
        """Add the moments of z along s, and the mass of z along itself."""
        powers = powers or [torch.ones_like(z[:, 0])]
        terms = [[power] for power in powers]
        if self.scores is not None:
            x = z[:, 0]
            self.scores.add(group, *self.scores.hats(x), terms)
            terms = [[power, power * x, power * x * x] for power in powers]
        if self.line is not None:
            free = self.plan.free
            place = self._index(group, codes, (j for j in self.discrete if j not in free))
            self.line.add(place, *self.line.hats(s[:, free[0]] if free else torch.zeros_like(z[:, 0])), terms)

    def _rows(self, one: FeatureMap, x: Tensor) -> Tensor:
        """Return rows in units of the kernel, in float32 where that keeps enough digits."""
        y = one.standard(x)
        if self.plan.dtype == torch.float32 and one.reach < math.inf:
            single = y.float()
            low, high = torch.aminmax(single)
            if max(-float(low), float(high)) * one.reach <= _LARGEST:
                return single
        return y

    # Levels

    @property
    def discrete(self) -> list[int]:
        """The columns of s that are kept by levels."""
        return [j for j, levels in enumerate(self.levels) if levels is not None]

    def _n_levels(self, j: int) -> int:
        levels = self.levels[j]
        return 0 if levels is None else len(levels)

    def _codes(self, s: Sensitive) -> dict[int, Tensor]:
        """Return the level of each row in each column that has levels, learning those that are new."""
        codes: dict[int, Tensor] = {}
        for j, column in enumerate(s.values.mT):
            levels = self.levels[j]
            if isinstance(levels, list):
                codes[j] = self._labels(j, levels, column.long(), s.categories[j] if s.categories else None)
            elif levels is not None:
                found = self._numbers(j, levels, column.contiguous())
                if found is not None:
                    codes[j] = found
        return codes

    def _numbers(self, j: int, known: Tensor, x: Tensor) -> Tensor | None:
        """Return the places of numbers among the levels, or None where these have become too many."""
        fresh = x
        if len(known):
            place = _places(known, x)
            fresh = x[known[place] != x]
            if not len(fresh):
                return place
        self._learn(j, torch.cat((known, fresh)).unique())
        levels = self.levels[j]
        return torch.searchsorted(levels, x) if isinstance(levels, Tensor) else None

    def _labels(
        self, j: int, known: list[Label], given: Tensor, categories: Sequence[Label] | None
    ) -> Tensor:
        """Return the places of labels among the levels."""
        present = torch.bincount(given).nonzero()[:, 0].tolist()
        labels = {code: code if categories is None else categories[code] for code in present}
        merged = joined_labels(known, labels.values())
        if len(merged) > len(known):
            self._learn(j, merged)
        places = {label: place for place, label in enumerate(merged)}
        table = torch.zeros(max(present) + 1, dtype=torch.int64)
        table[present] = torch.tensor([places[label] for label in labels.values()])
        return table[given]

    def _learn(self, j: int, levels: Tensor | list[Label]) -> None:
        """Take up new levels of a column, or go over to features when they are too many."""
        sizes = {i: max(1, self._n_levels(i)) for i in self.discrete} | {j: len(levels)}
        if not self.featured and self.plan.too_many(sizes):
            self.feature()
        if self.levels[j] is not None:
            self._widen(j, levels)

    def _widen(self, j: int, levels: Tensor | list[Label]) -> None:
        """Give the sums room for these levels of a column, those that it has among them."""
        old = self.levels[j]
        others = math.prod(max(1, self._n_levels(i)) for i in self.discrete if i != j)
        if len(levels) * others * self.plan.n_groups * math.prod(self.sums.shape[-2:]) > MOST_SUMS:
            raise ValueError(
                "'s' must have fewer levels for a sketch, which keeps sums for each. Got at least "
                f"{len(levels):,} in the column {self.plan.names[j]!r}. Gather rare levels, or use fewer "
                "features or groups."
            )
        if isinstance(levels, Tensor) and isinstance(old, Tensor):
            places = torch.searchsorted(levels, old)
        else:
            position = {label: place for place, label in enumerate(levels)}
            places = torch.tensor([position[label] for label in old or []], dtype=torch.int64)
            if len(self.sample.s):
                s = self.sample.s.clone()
                s[:, j] = places[s[:, j].long()].double()
                self.sample = self.sample._replace(s=s)
        axis = 2 + self.discrete.index(j)
        self.sums = _spread(self.sums, axis, places, len(levels))
        if self.line is not None and j not in self.plan.free:
            axis -= sum(i in self.plan.free for i in self.discrete if i < j)
            self.line.sums = _spread(self.line.sums, axis, places, len(levels))
        self.levels[j] = levels

    def feature(self) -> None:
        """Go over from levels of the free columns to features of them: the same sums, but for rounding."""
        map_s, free = self.plan.map_s, self.plan.free  # a kernel without features is refused here
        axes = [2 + self.discrete.index(j) for j in free]
        kept = [axis for axis in range(self.sums.ndim - 2) if axis not in axes]
        points = self._points(free)
        columns = torch.ones((len(points), 1 + map_s.width_with_norms), dtype=torch.float64)
        map_s.fill_with_norms(map_s.standard(points), columns[:, 1:])
        sums = self.sums.squeeze(-1)
        sums = sums.permute(*kept, sums.ndim - 1, *axes).flatten(len(kept) + 1)  # (P, G, ..., A, points)
        self.sums = sums @ columns
        self.featured = True
        for j in free:
            self.levels[j] = None

    def _points(self, columns: Sequence[int]) -> Tensor:
        """Return every combination of levels of these columns as a row of s; the others are zero."""
        axes = []
        for j in columns:
            levels = self.levels[j]
            axes.append(levels if isinstance(levels, Tensor) else torch.arange(self._n_levels(j)).double())
        points = torch.zeros((math.prod(map(len, axes)), len(self.plan.names)), dtype=torch.float64)
        for j, values in zip(columns, torch.meshgrid(*axes, indexing="ij") if axes else (), strict=True):
            points[:, j] = values.reshape(-1)
        return points

    def _square(self) -> None:
        """Begin to keep sums over squared weights, which so far were one."""
        self.sums = torch.cat((self.sums, self.sums))
        for grid in (self.line, self.scores):
            if grid is not None:
                grid.sums = torch.cat((grid.sums, grid.sums))

    # Whole states

    def copy(self) -> State:
        """Return a state that does not change with this one."""
        twin = State.__new__(State)
        twin.__dict__.update(self.__dict__)
        twin.levels = list(self.levels)
        twin.sums, twin.counts = self.sums.clone(), self.counts.clone()
        twin.line, twin.scores = (None if x is None else x.copy() for x in (self.line, self.scores))
        return twin

    def merge(self, other: State) -> None:
        """Add the sums of another state of the same plan."""
        other = other.copy()
        unions: dict[int, Tensor | list[Label]] = {}
        for j, pair in enumerate(zip(self.levels, other.levels, strict=True)):
            match pair:
                case Tensor() as one, Tensor() as two:
                    unions[j] = torch.cat((one, two)).unique()
                case list() as one, list() as two:
                    unions[j] = joined_labels(one, two)
        sizes = {j: len(levels) for j, levels in unions.items()}
        if self.featured or other.featured or self.plan.too_many(sizes):
            for state in (self, other):
                if not state.featured and self.plan.free:
                    state.feature()
        for state in (self, other):
            for j in state.discrete:
                state._widen(j, unions[j])
            if len(state.sums) < max(len(self.sums), len(other.sums)):
                state._square()
        self.sums = self.sums + other.sums
        self.counts = self.counts + other.counts
        for mine, theirs in ((self.line, other.line), (self.scores, other.scores)):
            if mine is not None and theirs is not None:
                mine.merge(theirs)
        self.sample = self.sample.join(other.sample)

    def without(self, group: int) -> State:
        """Return the state of all rows but those of a group."""
        twin = self.copy()
        twin.counts[group] = 0
        twin.sums[:, group] = 0.0
        for grid in (twin.line, twin.scores):
            if grid is not None:
                grid.sums[:, group] = 0.0
        rows = groups_of(self.sample.numbers, self.plan.n_groups) != group
        numbers, z, s, w, bound = self.sample
        twin.sample = Sample(numbers[rows], z[rows], s[rows], w[rows], bound)
        return twin

    # What comes out

    def _table(self) -> tuple[Tensor, float | None]:
        """Return (1, psi), or (1, psi, l(s, s)), of each combination of levels, and l(s, s) if constant.

        Of those that occur; the others have none.
        """
        mass = self.sums[0, ..., 0, 0].sum(dim=0).reshape(-1)
        seen = mass > 0
        if not self.plan.free:  # the equality of levels: each is a feature of its own
            eye = torch.eye(len(mass), dtype=torch.float64) * self.plan._split[2] ** 0.5
            return torch.cat((torch.ones_like(mass)[:, None], eye), dim=1), self.plan._split[2]
        points = self._points(self.discrete)[seen]
        kernel = self.plan.kernel_s.bind(points, mass[seen] / mass.sum())
        values, vectors = torch.linalg.eigh(kernel.gram(points, points))
        kept = values > 1e-14 * values[-1:].clamp_min(1e-300)
        diagonal = kernel.diagonal(points)
        constant = bool((diagonal == diagonal[0]).all())
        parts = [torch.ones_like(diagonal)[:, None], vectors[:, kept] * values[kept].sqrt()]
        columns = torch.cat(parts if constant else [*parts, diagonal[:, None]], dim=1)
        table = columns.new_zeros((len(mass), columns.shape[1]))
        table[seen] = columns
        return table, float(diagonal[0]) if constant else None

    def augmented_s(self, s: Tensor) -> Tensor:
        """Return (1, psi), or (1, psi, l(s, s)), of rows whose categories are codes of the levels here."""
        codes: dict[int, Tensor] = {}
        for j in self.discrete:
            levels, column = self.levels[j], s[:, j].contiguous()
            codes[j] = torch.searchsorted(levels, column) if isinstance(levels, Tensor) else column.long()
        place = self._index(torch.zeros(len(s), dtype=torch.int64), codes, self.discrete)
        if not self.featured:
            return self._table()[0][place]
        n_places = math.prod(self._n_levels(j) for j in self.discrete)
        return by_place(self.plan.map_s.augmented(s), place, n_places, self.plan.map_s.width)

    @property
    def diagonal_s(self) -> float | None:
        """l(s, s) where it is the same for all s."""
        return self.plan.map_s.diagonal if self.featured else self._table()[1]

    def moments(self) -> Moments:
        """Return the sums over all groups, scaled."""
        map_z = self.plan.map_z
        sums = self.sums.sum(dim=1)
        sums = sums.reshape(len(sums), -1, *sums.shape[-2:])  # (P, places, A, B)
        if self.featured:
            width = self.plan.map_s.width
            one, psi, norms = sums.split((1, width, sums.shape[-1] - 1 - width), dim=-1)
            psi = (psi * self.plan.map_s.scale).movedim(1, -2).flatten(-2)  # (P, A, places width)
            both = torch.cat((one.sum(dim=1), psi, norms.sum(dim=1)), dim=-1)
        else:
            both = sums.squeeze(-1).mT @ self._table()[0]
        both = both * torch.cat((map_z.scale.new_ones(1), map_z.scale_with_norms))[:, None]
        return Moments(both[0], both[-1], map_z.diagonal, self.diagonal_s)

    def moments_z(self) -> Moments:
        """Return the same of z with itself: from its mass for one column, else from the stored rows."""
        map_z = self.plan.map_z
        if self.scores is None or self.sample.whole or not self.scores.fine(map_z.reach):
            X, powers = map_z.augmented(self.sample.z), self._sample_powers()
        else:
            powers = self.scores.sums.sum(dim=1).squeeze(-1)  # (P, K)
            X = map_z.augmented(self.scores.knots[:, None])
        first, second = ((power[:, None] * X).mT @ X for power in (powers[0], powers[-1]))
        return Moments(first, second, map_z.diagonal, map_z.diagonal)

    def moments_s(self) -> Moments:
        """Return the same of s with itself: from levels, from its mass along a line, or the stored rows."""
        if not self.featured:
            powers = self.sums[..., 0, 0].sum(dim=1).flatten(1)  # (P, places)
            Y = self._table()[0]
        elif self.line is None or self.sample.whole or not self.line.fine(self.plan.map_s.reach):
            Y, powers = self.augmented_s(self.sample.s), self._sample_powers()
        else:
            mass = self.line.sums[..., 0].sum(dim=1)
            mass = mass.reshape(len(mass), -1, mass.shape[-1])  # (P, places, K)
            places, K = mass.shape[1:]
            points = torch.zeros((K, len(self.plan.names)), dtype=torch.float64)
            points[:, self.plan.free[0]] = self.line.knots
            rows = self.plan.map_s.augmented(points).repeat(places, 1)
            place = torch.arange(places).repeat_interleave(K)
            Y, powers = by_place(rows, place, places, self.plan.map_s.width), mass.flatten(1)
        first, second = ((power[:, None] * Y).mT @ Y for power in (powers[0], powers[-1]))
        return Moments(first, second, self.diagonal_s, self.diagonal_s)

    def group_terms(self) -> tuple[Tensor, Tensor]:
        """Return sum_{i in g} w_i phi~_i psi~_i' of each group, ``(G, r, q)``, and the shares of groups.

        Weights sum to one, and features are centred by their means over all rows: the terms add up to the
        cross-covariance.
        """
        map_z = self.plan.map_z
        sums = self.sums[0].reshape(self.plan.n_groups, -1, *self.sums.shape[-2:])  # (G, places, A, B)
        if self.featured:
            width = self.plan.map_s.width
            one, psi, _ = sums.split((1, width, sums.shape[-1] - 1 - width), dim=-1)
            psi = (psi * self.plan.map_s.scale).movedim(1, -2).flatten(-2)  # (G, A, places width)
            both = torch.cat((one.sum(dim=1), psi), dim=-1)
        else:
            table, constant = self._table()
            both = sums.squeeze(-1).mT @ (table if constant is not None else table[:, :-1])
        both = both[:, : 1 + map_z.width] * torch.cat((map_z.scale.new_ones(1), map_z.scale))[:, None]
        both = both / both[:, 0, 0].sum()
        total = both.sum(dim=0)
        mean_z, mean_s = total[1:, 0], total[0, 1:]
        mass, first_z, first_s = both[:, 0, 0], both[:, 1:, 0], both[:, 0, 1:]
        terms = both[:, 1:, 1:] - first_z[:, :, None] * mean_s - mean_z[:, None] * first_s[:, None, :]
        return terms + mass[:, None, None] * torch.outer(mean_z, mean_s), mass

    def atoms_z(self) -> tuple[Tensor, Tensor, bool]:
        """Return features of z where it has mass, ``(K, r)``, that mass, and whether all rows are in it."""
        map_z = self.plan.map_z
        if self.scores is None or self.sample.whole or not self.scores.fine(map_z.reach):
            X, mass, whole = map_z.augmented(self.sample.z), self.sample.w, self.sample.whole
        else:
            mass, whole = self.scores.sums[0].sum(dim=0).squeeze(-1), True
            X = map_z.augmented(self.scores.knots[:, None])
        seen = mass > 0
        return X[seen, 1 : 1 + map_z.width], mass[seen], whole

    def atoms_s(self) -> tuple[Tensor, Tensor, bool]:
        """Return the same of s: at its levels, along a line, or of the stored rows."""
        whole = True
        if not self.featured:
            mass, Y = self.sums[0, ..., 0, 0].sum(dim=0).flatten(), self._table()[0]
        elif self.line is None or self.sample.whole or not self.line.fine(self.plan.map_s.reach):
            Y, mass, whole = self.augmented_s(self.sample.s), self.sample.w, self.sample.whole
        else:
            own = self.line.sums[0, ..., 0].sum(dim=0)
            own = own.reshape(-1, own.shape[-1])  # (places, K)
            places, K = own.shape
            points = torch.zeros((K, len(self.plan.names)), dtype=torch.float64)
            points[:, self.plan.free[0]] = self.line.knots
            rows = self.plan.map_s.augmented(points).repeat(places, 1)
            place = torch.arange(places).repeat_interleave(K)
            Y, mass = by_place(rows, place, places, self.plan.map_s.width), own.flatten()
        seen = mass > 0
        return Y[seen, 1 : Y.shape[1] - (self.diagonal_s is None)], mass[seen], whole

    def spectra(self) -> tuple[Tensor, Tensor]:
        """Return the eigenvalues of sum_i w_i^2 phi~_i phi~_i' / sum_i w_i^2, and those of psi.

        All are zero where the features differ by no more than their rounding.
        """
        values = []
        exact = (self.plan.map_z.reach == math.inf, not self.featured or self.plan.map_s.reach == math.inf)
        for double, moments in zip(exact, (self.moments_z(), self.moments_s()), strict=True):
            first, second, diagonal, _ = moments
            a = len(first) - (diagonal is None)
            mean, cross = first[1:a, 0] / first[0, 0], second[1:a, 0] / second[0, 0]
            covariance = second[1:a, 1:a] / second[0, 0] - torch.outer(mean, cross) - torch.outer(cross, mean)
            own = torch.linalg.eigvalsh(covariance + torch.outer(mean, mean)).clamp_min(0.0)
            size = float(first[-1, 0] / first[0, 0]) if diagonal is None else diagonal
            least = _RESOLVED[torch.float64 if double else self.plan.dtype]
            values.append(own * (own.sum() > least * size))
        return values[0], values[1]

    def _sample_powers(self) -> Tensor:
        return torch.stack((self.sample.w, self.sample.w.square()))


def by_place(rows: Tensor, place: Tensor, n_places: int, width: int) -> Tensor:
    """Return augmented rows with ``width`` features for each place, zero but for the own place of a row.

    These are the features of the kernel times the equality of places.
    """
    if n_places == 1:
        return rows
    one, psi, norms = rows.split((1, width, rows.shape[-1] - 1 - width), dim=-1)
    apart = psi.new_zeros((len(rows), n_places, width))
    apart[torch.arange(len(rows)), place] = psi
    return torch.cat((one, apart.flatten(1), norms), dim=-1)


def _unit(w: Tensor | None) -> float:
    """Return a power of two near the largest weight: over it, squares of weights stay within float32."""
    return 1.0 if w is None else 2.0 ** math.frexp(float(w.max()))[1]


def joined_labels(known: Iterable[Label], others: Iterable[Label]) -> list[Label]:
    """Return the labels of both in the order in which :mod:`frhsic.data` sorts them."""
    return sorted({*known, *others}, key=lambda label: (isinstance(label, str), label))


def _places(known: Tensor, x: Tensor) -> Tensor:
    """Return the place of each number among the levels; of any level for one that is none."""
    low, span = known[0], float(known[-1] - known[0])
    if span < 4096 and bool((known == known.floor()).all()):
        # Ages: a table is ten times as fast as a search.
        table = torch.searchsorted(known, low + torch.arange(int(span) + 1, dtype=torch.float64))
        return table[(x - low).clamp_(0.0, span).long()]
    return torch.searchsorted(known, x).clamp_(max=len(known) - 1)


def _spread(x: Tensor, axis: int, places: Tensor, size: int) -> Tensor:
    """Return x with ``size`` entries along an axis, those that it has at ``places``."""
    if len(places) == size:
        return x
    wider = x.new_zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]))
    return wider.index_copy_(axis, places, x)
