"""Rows of several arguments belong together by position; an index that says otherwise is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from frhsic._checks import ArgumentError


def check_aligned(**arguments: object) -> None:
    """Raise ArgumentError if two arguments have indexes that share labels at other positions.

    Rows are paired by position, which would then pair the score of one person with the age of another. Only
    objects with an index (those of pandas, also as columns of a dict) are compared.

    An index that is 0 to n - 1 in this order, of whatever type, is taken as no index unless the other one has
    the same labels: it is that of predictions in a new Series. So nothing is said where a frame was reset, or
    read from a file, in another order. Nor is it where indexes share no label, or where other people have the
    same labels.
    """
    known: list[tuple[str, Any]] = []  # each index once, with the argument that came with it first
    for name, x in arguments.items():
        columns = x.values() if isinstance(x, Mapping) and not issparse(x) else (x,)
        for index in (found for found in map(get_index, columns) if found is not None):
            if any(index is before for _, before in known):
                continue
            for other, before in known:
                moved = _find_moved(before, index)
                if moved is not None:
                    raise _error(name, other, moved)
            if not any(before.equals(index) for _, before in known):
                known.append((name, index))


def check_length(name: str, n: int, n_rows: int, rows_of: str) -> None:
    """Raise ArgumentError unless the n rows of an argument are as many as those of another one."""
    if n != n_rows:
        fix = "Drop or align the missing rows first."
        raise ArgumentError(name, f"have {n_rows} rows like '{rows_of}'", n, fix)


def get_index(x: object) -> Any:
    """Return the index of a frame or column that has one (those of pandas), or None."""
    if isinstance(x, (Tensor, np.ndarray, list, tuple)):
        return None
    try:
        native = nw.from_native(x, allow_series=True, eager_only=True)  # type: ignore[call-overload]
    except Exception:
        return None  # the conversion of the argument says what is wrong with it
    return nw.maybe_get_index(native)


class _Moved(NamedTuple):
    """How many labels of an index another one has, at other positions or not."""

    shared: int
    n: int
    all_shared: bool  # whether both have the same labels, as often


def _find_moved(one: Any, other: Any) -> _Moved | None:
    """Return what two indexes share if some label of both is at other positions; else None."""
    n = len(one)
    if n != len(other) or one.equals(other):
        return None
    try:
        codes = _codes(one, other)
    except TypeError:  # labels that have no hash
        return None
    here, there = codes[:n], codes[n:]
    before, after = (np.bincount(part[part >= 0], minlength=codes.max() + 1) for part in (here, there))
    shared = np.append((before > 0) & (after > 0), False)  # the last one is that of missing labels
    moved = (here != there) & (shared[here] | shared[there])
    if not moved.any():
        return None
    same = bool(np.array_equal(before, after))
    if not same and (_is_default(one) or _is_default(other)):
        return None
    return _Moved(int(shared[there].sum()), n, same)


def _codes(one: Any, other: Any) -> NDArray[np.int64]:
    """Return equal numbers for equal labels of both indexes in turn, and -1 for missing ones."""
    n = len(one) + len(other)
    if one.nlevels != other.nlevels:
        return np.arange(n)
    if one.nlevels == 1:
        return np.asarray(one.append(other).factorize()[0], dtype=np.int64)
    codes = np.zeros(n, dtype=np.int64)
    for level in range(one.nlevels):  # tuples would take a minute
        part = _codes(one.get_level_values(level), other.get_level_values(level))
        codes = np.unique(codes * (part.max() + 2) + part + 1, return_inverse=True)[1]
    return codes


def _is_default(index: Any) -> bool:
    """Return whether labels are 0 to n - 1 in this order, of whatever type."""
    return index.nlevels == 1 and bool(np.array_equal(np.asarray(index), np.arange(len(index))))


def _error(name: str, other: str, moved: _Moved) -> ArgumentError:
    got = "an index with the same labels in another order"
    align = f"Align it with '{name}.loc[{other}.index]'"
    if not moved.all_shared:
        got = f"an index that shares {moved.shared:,} of its {moved.n:,} labels with it, at other positions"
        align = "Take the same rows of both"
    fix = f"{align}, or pass '.to_numpy()' if rows belong together as they stand."
    return ArgumentError(name, f"have its rows in the order of '{other}'", got, fix)
