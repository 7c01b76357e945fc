"""The Bunch of every dataset: columns as pandas, polars or numpy tables."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from frhsic._checks import ArgumentError

AsFrame = bool | Literal["pandas", "polars"]
Values = NDArray[Any]


def library(name: str, why: str) -> Any:
    """Import an optional library, or raise an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"'{name}' must be installed {why}. Got no module of that name. Run: pip install "
            f"{name.split('.')[0]}"
        ) from error


def check_as_frame(as_frame: AsFrame) -> None:
    """Raise for an unknown or uninstalled kind of table before anything is downloaded."""
    if as_frame not in (True, False, "pandas", "polars"):
        must = "be True, False, 'pandas' or 'polars'"
        raise ArgumentError("as_frame", must, repr(as_frame), "Use True for pandas frames.")
    if as_frame is not False:
        _frames(as_frame)


def check_option(argument: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        must = f"be one of {', '.join(map(repr, allowed))}"
        raise ArgumentError(argument, must, repr(value), f"The default is {allowed[0]!r}.")


def make_bunch(
    columns: Mapping[str, Values],
    target: tuple[str, Values],
    *,
    sensitive: str | Sequence[str],
    as_frame: AsFrame,
    task: Literal["classification", "regression"],
    description: str,
    categorical: Collection[str] = (),
    weight: tuple[str, Values] | None = None,
    codes: bool = False,
) -> Bunch:
    """Split off the sensitive columns and convert everything to the library that was asked for.

    ``columns`` are features and sensitive columns together, numbers or strings; those in ``categorical``
    become categories, which are the distinct values of the rows given. ``codes`` says that the paper fed
    these categories to its networks as numbers, not one-hot.
    """
    names = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    unknown = [name for name in names if name not in columns]
    if unknown or not names or len(set(names)) < len(names):
        must, fix = "name one or more different columns", f"Choose from {', '.join(columns)}."
        raise ArgumentError("sensitive", must, repr(sensitive), fix)
    packed = {name: _pack(name, values, name in categorical, as_frame) for name, values in columns.items()}
    features = [name for name in columns if name not in names]
    return Bunch(
        data=_join({name: packed[name][0] for name in features}, as_frame),
        target=pack_series(*target, as_frame),
        sensitive_features=_join({name: packed[name][0] for name in names}, as_frame),
        sample_weight=None if weight is None else pack_series(*weight, as_frame),
        feature_names=features,
        categories={name: packed[name][1] for name in features if name in categorical},
        target_name=target[0],
        sensitive_names=names,
        weight_name=None if weight is None else weight[0],
        task=task,
        codes=codes,
        DESCR=description,
    )


def read_description(name: str) -> str:
    """Return the description of a dataset: its source, what was done to it, and its known problems."""
    return files(__package__).joinpath("descriptions", f"{name}.rst").read_text(encoding="utf-8")


def pack_series(name: str, values: Values, as_frame: AsFrame) -> Any:
    """Convert a column beside the data, strings as categories."""
    column = _pack(name, values, values.dtype.kind == "U", as_frame)[0]
    if as_frame is False:
        return values
    return column if as_frame == "polars" else _frames(as_frame).Series(column, name=name)


def _frames(as_frame: AsFrame) -> Any:
    return library(
        "polars" if as_frame == "polars" else "pandas", f"for as_frame={as_frame!r} (False needs none)"
    )


def _pack(name: str, values: Values, categorical: bool, as_frame: AsFrame) -> tuple[Any, list[str]]:
    """Return the column in its library's type, and the names of its categories."""
    if not categorical:
        return (_frames(as_frame).Series(name, values) if as_frame == "polars" else values), []
    found, codes = np.unique(values, return_inverse=True)
    names = [str(value) for value in found]
    if as_frame is False:
        # A survey's own code where there is one (OCCP stays OCCP), the position of the name elsewhere.
        return (values if values.dtype.kind in "iuf" else codes), names
    if as_frame == "polars":
        pl = _frames(as_frame)
        return pl.Series(name, names, dtype=pl.Enum(names)).gather(codes.astype(np.uint32)), names
    return _frames(as_frame).Categorical.from_codes(codes, names), names


def _join(columns: Mapping[str, Any], as_frame: AsFrame) -> Any:
    if as_frame is False:
        return np.column_stack([np.asarray(values, dtype=np.float64) for values in columns.values()])
    return _frames(as_frame).DataFrame(columns)
