"""Rows of several arguments belong together by position; an index in another order is an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse
from torch import Tensor

from frhsic._checks import ArgumentError


def check_aligned(**arguments: object) -> None:
    """Raise ArgumentError if two arguments have indexes with the same labels in another order.

    Rows are paired by position, which would then pair the score of one person with the age of another. Only
    objects with an index (those of pandas, also as columns of a dict) are compared.
    """
    first: dict[str, Any] = {}
    for name, x in arguments.items():
        columns = x.values() if isinstance(x, Mapping) and not issparse(x) else (x,)
        for index in (found for found in map(_get_index, columns) if found is not None):
            other = next((other for other, before in first.items() if _is_reordered(before, index)), None)
            if other is not None:
                got = "an index with the same labels in another order"
                align = f"Align it with '{name}.loc[{other}.index]'"
                fix = f"{align}, or pass '.to_numpy()' if rows belong together as they stand."
                raise ArgumentError(name, f"have its rows in the order of '{other}'", got, fix)
            first.setdefault(name, index)


def check_length(name: str, n: int, n_rows: int, rows_of: str) -> None:
    """Raise ArgumentError unless the n rows of an argument are as many as those of another one."""
    if n != n_rows:
        fix = "Drop or align the missing rows first."
        raise ArgumentError(name, f"have {n_rows} rows like '{rows_of}'", n, fix)


def _get_index(x: object) -> Any:
    """Return the index of a frame or column that has one, or None."""
    if isinstance(x, (Tensor, np.ndarray, list, tuple)):
        return None
    try:
        native = nw.from_native(x, allow_series=True, eager_only=True)  # type: ignore[call-overload]
    except Exception:
        return None  # the conversion of the argument says what is wrong with it
    return nw.maybe_get_index(native)


def _is_reordered(one: Any, other: Any) -> bool:
    """Return whether two indexes hold the same labels, as often, in different orders."""
    if len(one) != len(other) or one.equals(other):
        return False
    try:
        return Counter(one) == Counter(other)
    except TypeError:  # labels that have no hash
        return False
