"""A sketch as bytes: tensors and one JSON document, in a safetensors file.

Bytes come from other machines, so reading runs nothing that they hold: kernels are named, not pickled, and
every shape and number is checked against the specification.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from frhsic._files import NO_DIGEST, is_sealed, seal
from frhsic.data import Label
from frhsic.sketching._grid import Grid
from frhsic.sketching._maps import FeatureMap, Joined, Waves
from frhsic.sketching._state import ALL, LEVELS, STORED, Plan, Sample, State, joined_labels

FORMAT, VERSION = "frhsic-sketch", 3  # 2: a digest, 3: kernels as in saved models


def fingerprint(one: FeatureMap) -> Tensor:
    """Return the frequencies of features: another version of torch might draw others."""
    if isinstance(one, Joined):
        return torch.cat([fingerprint(part) for part in one.parts])
    return one.frequencies.flatten() if isinstance(one, Waves) else torch.zeros(0, dtype=torch.float64)


def write_state(state: State) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a state and what else there is to it."""
    tensors = {"sums": state.sums, "counts": state.counts}
    levels: list[Any] = []
    for j, known in enumerate(state.levels):
        levels.append(known if isinstance(known, list) else None)
        if isinstance(known, Tensor):
            tensors[f"levels.{j}"] = known
    grids: dict[str, Any] = {}
    for name, grid in (("line", state.line), ("scores", state.scores)):
        if grid is not None:
            tensors[name] = grid.sums
            grids[name] = [grid.low, grid.high]
    sample = state.sample
    tensors |= {"numbers": sample.numbers, "z": sample.z, "s": sample.s, "w": sample.w}
    return tensors, {
        "featured": state.featured,
        "levels": levels,
        "grids": grids,
        "bound": sample.bound,
    }


def read_state(plan: Plan, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> State:
    """Return a state, or raise ValueError with what is wrong with it."""
    state = State(plan)
    tensors = dict(tensors)
    _demand(type(document["featured"]) is bool, "form")
    _demand(len(document["levels"]) == len(plan.names), "levels")
    if document["featured"]:
        _demand(bool(plan.free), "form")
        state.feature()
    for j, labels in enumerate(document["levels"]):
        if state.levels[j] is None:
            _demand(labels is None, "levels")
        elif plan.kinds[j] == "categorical":
            _demand(isinstance(labels, list) and all(isinstance(x, Label) for x in labels), "levels")
            _demand(joined_labels(labels, ()) == labels, "levels")
            state._widen(j, labels)
        else:
            numbers = tensors.pop(f"levels.{j}")
            _demand(numbers.ndim == 1 and numbers.dtype == torch.float64, "levels")
            _demand(bool((numbers.diff() > 0).all()), "levels")
            _demand(len(numbers) <= LEVELS or j not in plan.free, "levels")
            state._widen(j, numbers)
    P = len(tensors["sums"])
    _demand(P in (1, 2), "sums")
    if P == 2:
        state._square()
    state.sums = _like(state.sums, tensors.pop("sums"), "sums")
    state.counts = _like(state.counts, tensors.pop("counts"), "counts")
    _demand(bool((state.counts >= 0).all()) and bool((state.sums[..., 0, 0] >= 0).all()), "counts")
    mass = state.sums[0, ..., 0, 0].reshape(plan.n_groups, -1).sum(dim=1)
    _demand(
        torch.equal(mass > 0, state.counts > 0) and (P == 2 or torch.equal(mass, state.counts.double())),
        "counts",
    )
    for name, grid in (("line", state.line), ("scores", state.scores)):
        if grid is not None:
            _read_grid(grid, tensors.pop(name), document["grids"].pop(name))
    state.sample = _read_sample(state, tensors, document["bound"])
    _demand(not tensors and not document["grids"], "names")
    return state


def _read_grid(grid: Grid, sums: Tensor, ends: Any) -> None:
    low, high = ends
    _demand(isinstance(low, float) and isinstance(high, float), "grids")
    _demand(low <= high and math.isfinite(high - low), "grids")
    knots = Grid((), 0)
    knots.reach(low, high)
    lead, (K, M) = grid.sums.shape[:-2], (knots.sums.shape[-2], grid.sums.shape[-1])
    _demand(sums.shape == (*lead, K, M) and sums.dtype == torch.float64, "grids")
    grid.sums = _like(sums, sums, "grids")
    grid.low, grid.high, grid.exponent, grid.first = low, high, knots.exponent, knots.first


def _read_sample(state: State, tensors: dict[str, Tensor], bound: Any) -> Sample:
    _demand(type(bound) is int and 0 <= bound <= ALL, "stored rows")
    n, (plan, empty) = len(tensors["numbers"]), (state.plan, state.sample)
    parts = []
    for name, old in zip(("numbers", "z", "s", "w"), empty[:4], strict=True):
        parts.append(_like(old.new_zeros((n, *old.shape[1:])), tensors.pop(name), "stored rows"))
    numbers, z, s, w = parts
    _demand(n <= STORED and bool((w > 0).all()), "stored rows")
    _demand(bool((numbers.diff() >= 0).all()) and bool((numbers < bound).all()), "stored rows")
    _demand(n == int(state.counts.sum()) or bound < ALL, "stored rows")
    for j, kind in enumerate(plan.kinds):
        if kind == "categorical" and n:
            codes = torch.arange(state._n_levels(j), dtype=torch.float64)
            _demand(bool(torch.isin(s[:, j], codes).all()), "stored rows")
        elif isinstance(levels := state.levels[j], Tensor):
            _demand(bool(torch.isin(s[:, j], levels).all()), "stored rows")
    return Sample(numbers, z, s, w, bound)


def _like(old: Tensor, new: Tensor, what: str) -> Tensor:
    _demand(new.shape == old.shape and new.dtype == old.dtype, what)
    _demand(not new.is_floating_point() or bool(torch.isfinite(new).all()), what)
    return new.clone()


def _demand(ok: bool, what: str) -> None:
    if not ok:
        raise ValueError(what)


def pack(tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> bytes:
    """Return tensors and a document as bytes; equal input gives equal bytes."""
    from safetensors.torch import save

    head = {"format": FORMAT, "version": VERSION, "sha256": NO_DIGEST}
    text = json.dumps({**head, **document}, sort_keys=True, allow_nan=False)
    contents = {name: tensors[name].contiguous() for name in sorted(tensors)}
    return seal(save(contents, {"frhsic": text}))


def unpack(data: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what ``pack`` packed, or refuse."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(
            f"'data' must be bytes. Got {type(data).__name__}. Pass what HSICSketch.to_bytes returned."
        )
    data = bytes(data)
    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        document = json.loads(header["__metadata__"]["frhsic"])
        found, version = document["format"], document["version"]
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, MemoryError, AttributeError):
        raise refusal("hold a sketch", "bytes that are damaged or something else") from None
    if found != FORMAT:
        raise refusal(f"hold '{FORMAT}'", f"{str(found)[:40]!r}")
    if version != VERSION:
        raise refusal(f"have version {VERSION}", str(version)[:40], "Use the frhsic that wrote it.")
    if document.pop("sha256", None) is None or not is_sealed(data):
        raise refusal("have the SHA-256 with which it was written", "another: its bytes have changed")
    return tensors, document


def refusal(must: str, got: str, cure: str = "Make the sketch again, or copy its bytes again.") -> ValueError:
    """Return the error for bytes that are no sketch."""
    return ValueError(f"'data' must {must}. Got {got}. {cure}")
