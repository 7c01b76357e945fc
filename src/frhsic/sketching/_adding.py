"""Rows into the sums of a sketch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frhsic.data import Label, Sensitive
from frhsic.sketching._maps import FeatureMap
from frhsic.sketching._rows import Sample, groups_of, row_numbers
from frhsic.sketching._state import State, sort_labels

# Rows sorted by group at once, and rows of a block of features.
_SORTED, _BLOCK = 131_072, 4_096
# Rows of a cell that are summed in float32.
_CELL_ROWS = 256
# Arguments of cosines beyond this have too few digits after the point in float32.
_LARGEST = 128.0


def add_rows(
    state: State,
    z: Tensor,
    s: Sensitive,
    w: Tensor | None,
    ids: NDArray[np.int64],
    units: NDArray[np.int64] | None = None,
) -> None:
    """Add rows; weights are positive. Rows of one unit are in one group."""
    numbers = row_numbers(ids, units)
    for start in range(0, len(z), _SORTED):
        part = slice(start, start + _SORTED)
        rows = Sensitive(s.values[part], s.names, s.kinds, s.categories)
        _add(state, z[part], rows, None if w is None else w[part], torch.from_numpy(numbers[part]))


def _add(state: State, z: Tensor, s: Sensitive, w: Tensor | None, numbers: Tensor) -> None:
    if w is not None and not state.weighted:
        state.keep_squares()
    elif w is None and state.weighted:
        w = torch.ones_like(z[:, 0])
    group, codes = groups_of(numbers, state.plan.n_groups), _encode(state, s)
    place = state.place(group, codes, state.discrete)
    if state.featured:
        _add_products(state, z, s.values, w, place)
    else:
        _add_at_values(state, z, w, place)
    _add_along(state, z, s.values, [] if w is None else [w, w * w], group, codes)
    state.counts += torch.bincount(group, minlength=state.plan.n_groups)
    kept = numbers < state.sample.bound
    if bool(kept.any()):
        values = s.values[kept]
        for j, kind in enumerate(state.plan.kinds):
            if kind == "categorical":
                values[:, j] = codes[j][kept].double()
        weights = torch.ones_like(values[:, 0]) if w is None else w[kept]
        state.sample = state.sample.join(Sample(numbers[kept], z[kept], values, weights))


def _encode(state: State, s: Sensitive) -> dict[int, Tensor]:
    """Return the place of each row among the values of each column that has them, learning new values."""
    codes: dict[int, Tensor | None] = {}
    for j, column in enumerate(s.values.mT):
        known = state.values[j]
        if isinstance(known, list):
            categories = s.categories[j] if s.categories else None
            codes[j] = _encode_labels(state, j, known, column.long(), categories)
        elif known is not None:
            codes[j] = _encode_numbers(state, j, known, column.contiguous())
    return {j: places for j, places in codes.items() if places is not None}


def _encode_numbers(state: State, j: int, known: Tensor, x: Tensor) -> Tensor | None:
    """Return the places of numbers among the values, or None where these have become too many."""
    fresh = x
    if len(known):
        place = _find(known, x)
        fresh = x[known[place] != x]
        if not len(fresh):
            return place
    state.learn(j, torch.cat((known, fresh)).unique())
    values = state.values[j]
    return torch.searchsorted(values, x) if isinstance(values, Tensor) else None


def _find(known: Tensor, x: Tensor) -> Tensor:
    """Return the place of each number among the values; any place for a number that is not one of them."""
    low, span = known[0], float(known[-1] - known[0])
    if span < 4096 and bool((known == known.floor()).all()):
        # Ages: a table is ten times as fast as a search.
        table = torch.searchsorted(known, low + torch.arange(int(span) + 1, dtype=torch.float64))
        return table[(x - low).clamp_(0.0, span).long()]
    return torch.searchsorted(known, x).clamp_(max=len(known) - 1)


def _encode_labels(
    state: State, j: int, known: list[Label], given: Tensor, categories: Sequence[Label] | None
) -> Tensor:
    present = torch.bincount(given).nonzero()[:, 0].tolist()
    labels = {code: code if categories is None else categories[code] for code in present}
    merged = sort_labels([*known, *labels.values()])
    if len(merged) > len(known):
        state.learn(j, merged)
    places = {label: place for place, label in enumerate(merged)}
    table = torch.zeros(max(present) + 1, dtype=torch.int64)
    table[present] = torch.tensor([places[label] for label in labels.values()])
    return table[given]


def _add_at_values(state: State, z: Tensor, w: Tensor | None, place: Tensor) -> None:
    plan = state.plan
    flat = state.sums.view(len(state.sums), -1, state.sums.shape[-2])  # (P, places, A)
    y = _standardise(plan.map_z, z, plan.dtype)
    P, places, A = flat.shape
    size = min(_BLOCK, len(y), _CELL_ROWS * plan.n_groups)  # groups are of one size, values may not be
    X = y.new_empty((size, A - 1))
    part = y.new_zeros((P, places, A - 1))
    held = torch.zeros(places, dtype=torch.int64)
    unit = _unit(w)
    for p in range(P):
        flat[p, :, 0] += torch.bincount(place, None if w is None else w ** (p + 1), minlength=places)
    for start in range(0, len(y), size):
        rows = slice(start, start + size)
        here = torch.bincount(place[rows], minlength=places)
        held += here
        # A long sum of equal rows would be off by all of its roundings, which go the same way.
        if int(held.max()) > _CELL_ROWS:
            held = here
            for p in range(P):
                flat[p, :, 1:].add_(part[p], alpha=unit ** (p + 1))
            part.zero_()
        block = X[: len(y[rows])]
        plan.map_z.fill_with_norms(y[rows], block)
        for p in range(P):
            if w is not None:  # once and once again
                block *= (w[rows, None] / unit).to(block)
            part[p].index_add_(0, place[rows], block)
    for p in range(P):
        flat[p, :, 1:].add_(part[p], alpha=unit ** (p + 1))


def _add_products(state: State, z: Tensor, s: Tensor, w: Tensor | None, place: Tensor) -> None:
    map_z, map_s = state.plan.map_z, state.plan.map_s
    A, B = state.sums.shape[-2:]
    flat = state.sums.view(len(state.sums), -1, A, B)
    counts = torch.bincount(place, minlength=flat.shape[1])
    # numpy sorts small integers by counting them.
    small = place.numpy().astype(np.uint16 if len(counts) < 2**16 else np.int64)
    order = torch.from_numpy(np.argsort(small, kind="stable"))
    y_z, y_s = (
        _standardise(one, x, state.plan.dtype).index_select(0, order) for one, x in ((map_z, z), (map_s, s))
    )
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
    for at, count in enumerate(counts.tolist()):
        for start in range(stops[at] - count, stops[at], _BLOCK):
            stop = min(start + _BLOCK, stops[at])
            x, y = X[:, : stop - start], Y[..., : stop - start]
            map_z.fill_with_norms(y_z[start:stop], x[1:].mT)
            map_s.fill_with_norms(y_s[start:stop], y[0, 1:].mT)
            if w is not None:
                own = w[start:stop]
                y[0, 0] = 1.0
                y[0] *= own
                torch.mul(y[0], own, out=y[1])
            for p, one in enumerate(y):
                flat[p, at].add_(x @ one.mT, alpha=unit ** (p + 1))


def _add_along(
    state: State, z: Tensor, s: Tensor, powers: Sequence[Tensor], group: Tensor, codes: Mapping[int, Tensor]
) -> None:
    """Add the weight along one column of z, and along the free column of s."""
    powers = powers or [torch.ones_like(z[:, 0])]
    if state.scores is not None:
        state.scores.add(group, *state.scores.hats(z[:, 0]), powers)
    if state.line is not None:
        free = state.plan.free
        exact = [j for j in state.discrete if j not in free]
        x = s[:, free[0]] if free else torch.zeros_like(z[:, 0])
        hats = state.line.hats(x)
        state.line.add(state.place(group, codes, exact), *hats, powers)


def _standardise(one: FeatureMap, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return rows in units of the kernel, in float32 where that keeps enough digits."""
    y = one.standard(x)
    if dtype == torch.float32 and one.reach < math.inf:
        single = y.float()
        low, high = torch.aminmax(single)
        if max(-float(low), float(high)) * one.reach <= _LARGEST:
            return single
    return y


def _unit(w: Tensor | None) -> float:
    """Return a power of two near the largest weight: over it, squares of weights stay within float32."""
    return 1.0 if w is None else 2.0 ** math.frexp(float(w.max()))[1]
