"""Rows of any accepted input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

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
