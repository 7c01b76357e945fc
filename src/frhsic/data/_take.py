"""Rows and columns of any accepted input."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data._sensitive import Sensitive


def take_rows(x: Any, rows: NDArray[np.int64]) -> Any:
    """Return rows by number, in a table of the same type; None of None."""
    if x is None:
        return None
    if isinstance(x, Mapping) and not issparse(x):
        return {name: take_rows(column, rows) for name, column in x.items()}
    if isinstance(x, Tensor | Sensitive):
        return x[torch.from_numpy(rows)]
    if nw.dependencies.is_pyarrow_table(x) or nw.dependencies.is_pyarrow_chunked_array(x):
        return x.take(rows)  # which scikit-learn 1.6 cannot index
    from sklearn.utils import _safe_indexing

    return _safe_indexing(x, rows)


def drop_columns(x: Any, names: Collection[str], argument: str) -> Any:
    """Return a table of the same type without some columns; those of an array are "x0", "x1", ..."""
    framed = nw.from_native(x, eager_only=True, pass_through=True)
    frame = isinstance(framed, nw.DataFrame)
    known = [str(name) for name in framed.columns] if frame else [f"x{j}" for j in range(x.shape[1])]
    missing = [name for name in names if name not in known]
    if missing or len(set(names)) < len(names):
        got = f"{len(missing)} that are not" if missing else "one twice"
        raise ArgumentError(argument, "name columns of 'X', each once", got, "Check the names.")
    if len(names) == len(known):
        raise ArgumentError(argument, "leave a column of 'X'", "all of them", "Remove fewer.")
    if frame:
        return framed.drop(*names).to_native() if names else x
    return x[:, [j for j, name in enumerate(known) if name not in names]]
