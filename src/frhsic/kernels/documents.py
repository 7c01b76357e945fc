"""Kernels as JSON, for saved models and for sketches.

A document names a class of ``frhsic.kernels`` and holds its arguments; nothing in it is code. Documents come
from outside, so an argument must be of the type that the class declares.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

import frhsic.kernels as kernels
from frhsic._checks import ArgumentError
from frhsic.kernels._base import Kernel


def has_document(kernel: Kernel) -> bool:
    """Return whether the kernel is made of those of ``frhsic.kernels`` alone."""
    inside = [value for value in vars(kernel).values() if isinstance(value, Kernel)]
    return type(kernel) in _classes().values() and all(map(has_document, inside))


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as JSON; raise ArgumentError if it is not made of those of ``frhsic.kernels``."""
    if type(kernel) not in _classes().values():
        must, fix = "be kernels of frhsic, which bytes can name", "Build one of frhsic.kernels."
        raise ArgumentError("kernel_z' and 'kernel_s", must, type(kernel).__name__, fix)
    # The fields of a kernel are all that it holds. Private ones are what calibrate learned: absent before.
    held = {name: value for name, value in vars(kernel).items() if name[0] != "_" or value is not None}
    return {
        "class": type(kernel).__name__,
        "arguments": {name: _plain(value) for name, value in held.items()},
    }


def read_kernel(document: Any) -> Kernel:
    """Return the kernel that ``describe_kernel`` wrote, or raise ValueError."""
    if not (isinstance(document, dict) and set(document) == {"class", "arguments"}):
        raise ValueError("a kernel must have 'class' and 'arguments'")
    name, arguments = document["class"], document["arguments"]
    known = _classes()
    if not (isinstance(name, str) and name in known and isinstance(arguments, dict)):
        raise ValueError(f"a kernel must be one of {', '.join(known)}, not {str(name)[:40]!a}")
    hints = typing.get_type_hints(known[name])
    declared = {field.name for field in fields(known[name])}  # type: ignore[arg-type]
    public = {field for field in declared if field[0] != "_"}
    if not public <= set(arguments) <= declared:
        raise ValueError(f"{name} must have exactly {', '.join(sorted(public)) or 'no arguments'}")
    return known[name](**{key: _read(value, hints[key], key) for key, value in arguments.items()})


def _classes() -> Mapping[str, type[Kernel]]:
    """Return the public kernels by name."""
    public = {name: getattr(kernels, name) for name in kernels.__all__ if name != "Kernel"}
    return {name: thing for name, thing in public.items() if isinstance(thing, type)}


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return describe_kernel(value)
    if isinstance(value, Tensor):
        return value.double().tolist()
    if isinstance(value, tuple | list):
        return [int(entry) for entry in value]
    if value is None or isinstance(value, bool | str | int):
        return value
    return float(value)


def _read(value: Any, hint: Any, name: str) -> Any:
    """Return a value of one of the types of the hint; lists become tensors or tuples."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    for part in typing.get_args(hint) if union else (hint,):
        if part is Kernel and isinstance(value, dict):
            return read_kernel(value)
        if part is Tensor and isinstance(value, list):
            return torch.tensor(value, dtype=torch.float64)
        if typing.get_origin(part) is tuple and isinstance(value, list):
            if all(type(entry) is int for entry in value):
                return tuple(value)
        elif typing.get_origin(part) is typing.Literal:
            if type(value) in (str, float) and value in typing.get_args(part):
                return value
        elif type(value) is part or (part is float and type(value) is int):
            return value
    raise ValueError(f"a kernel cannot have {type(value).__name__} as '{name}'")
