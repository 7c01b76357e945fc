"""A sketch as bytes: tensors and one JSON document, in a safetensors file.

Bytes come from other machines, so reading runs nothing that they hold: kernels are named, not pickled, and
every shape and number is checked against the specification.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from frhsic._tensorfile import TensorFileError, pack, unpack
from frhsic.data import Label
from frhsic.sketching._grid import Grid
from frhsic.sketching._maps import Waves
from frhsic.sketching._plan import MOST_VALUES, Plan
from frhsic.sketching._rows import ALL, STORED, Sample
from frhsic.sketching._state import State, sort_labels

_FORMAT, _VERSION = "frhsic-sketch", 4  # 3: kernels as in saved models, 4: no moments of a score


def pack_states(
    plan: Plan | None, states: Mapping[Label | None, State], document: Mapping[str, Any]
) -> bytes:
    """Return states by label, and what else there is to a sketch, as bytes; equal input gives equal bytes."""
    tensors: dict[str, Tensor] = {}
    entries = []
    for place, (label, state) in enumerate(states.items()):
        own, entry = _describe_state(state)
        tensors |= {f"{place}.{name}": x for name, x in own.items()}
        entries.append({"label": label, **entry})
    if plan is not None:
        tensors["fingerprint"] = _frequencies(plan)
    head = {"format": _FORMAT, "version": _VERSION}
    return pack(tensors, {**head, **document, "states": entries}, version=_VERSION)


def unpack_sketch(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(
            f"'data' must be bytes. Got {type(data).__name__}. Pass what HSICSketch.to_bytes returned."
        )
    return unpack(bytes(data), kind=_FORMAT, version=_VERSION)


def read_states(
    plan: Plan, tensors: dict[str, Tensor], entries: Sequence[Mapping[str, Any]]
) -> dict[Label | None, State]:
    """Return the states by label; raise ValueError if they do not fit the plan."""
    own, found = _frequencies(plan), tensors.pop("fingerprint")
    near = 1e-9 * float(own.abs().sum())
    if own.shape != found.shape or not torch.allclose(own, found, rtol=0.0, atol=near):
        must = "hold a sketch with the frequencies that this machine draws"
        raise TensorFileError("data", must, "others", "Use the same version of torch on all machines.")
    states: dict[Label | None, State] = {}
    for place, entry in enumerate(entries):
        label, start = entry["label"], f"{place}."
        _demand(isinstance(label, Label | None) and label not in states, "label")
        names = [name for name in tensors if name.startswith(start)]
        states[label] = _read_state(plan, {x.removeprefix(start): tensors.pop(x) for x in names}, entry)
    _demand(not tensors and (len(states) == 1 or None not in states), "names")
    return states


def _frequencies(plan: Plan) -> Tensor:
    """Return the frequencies of the features of z: another version of torch might draw others."""
    drawn = [part.frequencies.flatten() for part in plan.map_z.parts if isinstance(part, Waves)]
    return torch.cat([torch.zeros(0, dtype=torch.float64), *drawn])


def _describe_state(state: State) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a state and the rest of it as JSON. The file calls values of s levels."""
    sample = state.sample
    tensors = {"sums": state.sums, "counts": state.counts}
    tensors |= {f"levels.{j}": x for j, x in enumerate(state.values) if isinstance(x, Tensor)}
    tensors |= {name: grid.sums for name, grid in state.grids.items()}
    tensors |= {"numbers": sample.numbers, "z": sample.z, "s": sample.s, "w": sample.w}
    return tensors, {
        "featured": state.featured,
        "levels": [x if isinstance(x, list) else None for x in state.values],
        "grids": {name: [grid.low, grid.high] for name, grid in state.grids.items()},
        "bound": sample.bound,
    }


def _read_state(plan: Plan, tensors: dict[str, Tensor], document: Mapping[str, Any]) -> State:
    state = State(plan)
    _demand(type(document["featured"]) is bool, "form")
    _demand(len(document["levels"]) == len(plan.names), "values")
    if document["featured"]:
        _demand(bool(plan.free), "form")
        state.use_features()
    for j, labels in enumerate(document["levels"]):
        if state.values[j] is None:
            _demand(labels is None, "values")
        elif plan.kinds[j] == "categorical":
            _demand(isinstance(labels, list) and all(isinstance(x, Label) for x in labels), "values")
            _demand(sort_labels(labels) == labels, "values")
            state.widen(j, labels)
        else:
            numbers = tensors.pop(f"levels.{j}")
            _demand(numbers.ndim == 1 and numbers.dtype == torch.float64, "values")
            _demand(bool((numbers.diff() > 0).all()), "values")
            _demand(len(numbers) <= MOST_VALUES or j not in plan.free, "values")
            state.widen(j, numbers)
    P = len(tensors["sums"])
    _demand(P in (1, 2), "sums")
    if P == 2:
        state.keep_squares()
    state.sums = _like(state.sums, tensors.pop("sums"), "sums")
    state.counts = _like(state.counts, tensors.pop("counts"), "counts")
    _demand(bool((state.counts >= 0).all()) and bool((state.sums[..., 0, 0] >= 0).all()), "counts")
    mass = state.sums[0, ..., 0, 0].reshape(plan.n_groups, -1).sum(dim=1)
    _demand(torch.equal(mass > 0, state.counts > 0), "counts")
    _demand(P == 2 or torch.equal(mass, state.counts.double()), "counts")
    _demand(set(document["grids"]) == set(state.grids), "grids")
    for name, grid in state.grids.items():
        _read_grid(grid, tensors.pop(name), document["grids"][name])
    state.sample = _read_sample(state, tensors, document["bound"])
    _demand(not tensors, "names")
    return state


def _read_grid(grid: Grid, sums: Tensor, ends: Any) -> None:
    low, high = ends
    _demand(isinstance(low, float) and isinstance(high, float), "grids")
    _demand(low <= high and math.isfinite(high - low), "grids")
    knots = Grid(())  # not ``grid`` itself, whose room could be of any size
    knots.reach(low, high)
    shape = (*grid.sums.shape[:-1], knots.sums.shape[-1])
    _demand(sums.shape == shape and sums.dtype == torch.float64, "grids")
    grid.__dict__.update(knots.__dict__, sums=sums)


def _read_sample(state: State, tensors: dict[str, Tensor], bound: Any) -> Sample:
    _demand(type(bound) is int and 0 <= bound <= ALL, "stored rows")
    n, (plan, empty) = len(tensors["numbers"]), (state.plan, state.sample)
    numbers, z, s, w = (
        _like(old.new_zeros((n, *old.shape[1:])), tensors.pop(name), "stored rows")
        for name, old in zip(("numbers", "z", "s", "w"), empty[:4], strict=True)
    )
    _demand(n <= STORED and bool((w > 0).all()), "stored rows")
    _demand(bool((numbers.diff() >= 0).all()) and bool((numbers < bound).all()), "stored rows")
    _demand(n == int(state.counts.sum()) or bound < ALL, "stored rows")
    for j, kind in enumerate(plan.kinds):
        if kind == "categorical" and n:
            codes = torch.arange(state.n_values(j), dtype=torch.float64)
            _demand(bool(torch.isin(s[:, j], codes).all()), "stored rows")
        elif isinstance(values := state.values[j], Tensor):
            _demand(bool(torch.isin(s[:, j], values).all()), "stored rows")
    return Sample(numbers, z, s, w, bound)


def _like(old: Tensor, new: Tensor, what: str) -> Tensor:
    _demand(new.shape == old.shape and new.dtype == old.dtype, what)
    return new


def _demand(ok: bool, what: str) -> None:
    if not ok:
        raise ValueError(what)
