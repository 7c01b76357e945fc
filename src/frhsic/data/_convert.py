"""Tables, columns, weights and groups of rows as tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data._block import AnyArray
from frhsic.data._reading import read_blocks, read_column

_MOST_DENSE = 8 * 2**30  # bytes of a sparse matrix as dense numbers


def to_matrix(x: object, *, name: str = "X", min_rows: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """Any table of numbers as a finite ``(n, d)`` tensor; one column alone becomes ``(n, 1)``.

    Parameters
    ----------
    x : list, array, tensor, column, frame or dict of columns
        Numbers or booleans (0 and 1). A tensor is detached; scipy sparse matrices, up to 8 GB as dense
        numbers, and pandas sparse columns are densified.
    name : str, default="X"
        The argument that error messages name.
    min_rows : int, default=1
        The fewest rows that the caller's mathematics allows.
    dtype : torch.dtype, default=torch.float64
        A floating type. Entries whose square overflows in it are an error.

    Returns
    -------
    Tensor
        ``(n, d)``, on the CPU, contiguous; it shares memory with a float64 array or tensor.

    Examples
    --------
    >>> to_matrix({"income": [1, 2, 3], "member": [True, False, True]}).shape
    torch.Size([3, 2])
    """
    blocks = read_blocks(_densify(x, name) if issparse(x) else x, name)
    blocks[0].check_rows(min_rows=min_rows)
    return stack([block.to_numbers(dtype) for block in blocks], dtype)


def to_vector(
    x: object, *, name: str = "y", n_rows: int | None = None, rows_of: str = "X", min_rows: int = 1
) -> Tensor:
    """One column of numbers or booleans (0 and 1) as a finite ``(n,)`` tensor.

    It has ``n_rows`` rows, as the argument ``rows_of`` has, or else at least ``min_rows``.
    """
    block = read_column(x, name)
    block.check_rows(n_rows, rows_of, min_rows)
    return stack([block.to_numbers()], torch.float64)[:, 0]


def to_weights(
    sample_weight: object, *, n_rows: int, rows_of: str = "X", name: str = "sample_weight"
) -> Tensor | None:
    """Row weights as a finite, non-negative ``(n,)`` tensor with a positive sum; None stays None.

    Parameters
    ----------
    sample_weight : list, array, tensor, column or None
        One weight per row. They are not normalised here.
    n_rows : int
        The number of rows that it must have.
    rows_of : str, default="X"
        The argument that has these ``n_rows`` rows, for the error message.
    name : str, default="sample_weight"
        The argument that error messages name.

    Returns
    -------
    Tensor or None
        ``(n,)``.

    Examples
    --------
    >>> to_weights([1, 0, 2], n_rows=3)
    tensor([1., 0., 2.], dtype=torch.float64)
    """
    if sample_weight is None:
        return None
    weights = to_vector(sample_weight, name=name, n_rows=n_rows, rows_of=rows_of)
    negative = int((weights < 0).sum())
    if negative:
        raise ArgumentError(name, "not be negative", f"{negative} negative weights", "Set them to zero.")
    if not weights.sum() > 0:
        fix = "Give at least one row a positive weight."
        raise ArgumentError(name, "have a positive sum", "only zeros", fix)
    return weights


def to_groups(groups: object, *, n_rows: int, rows_of: str = "X") -> Tensor | None:
    """Return the group of each row as a code 0, ..., G - 1 in the order of rows, ``(n,)``; None stays None.

    Rows of one group (a person, a household, a branch) may depend on one another; groups may not. When every
    row is a group of its own the result is None too: rows are then independent as they are.
    """
    if groups is None:
        return None
    block = read_column(groups, "groups")
    block.check_rows(n_rows, rows_of)
    labels, codes = block.settle().factor()
    if len(labels) < 2:
        fix = "Pass the column that tells independent units apart, such as a customer number."
        must, got = "have at least two different labels", f"one in all {n_rows:,} rows"
        raise ArgumentError("groups", must, got, fix)
    if len(labels) == n_rows:
        return None
    # By their first rows, so that what the groups are called changes nothing.
    first = np.unique(codes, return_index=True)[1]
    return torch.from_numpy(np.argsort(np.argsort(first))[codes])


def stack(arrays: Sequence[AnyArray], dtype: torch.dtype) -> Tensor:
    """Return columns ``(n,)`` or ``(n, d)`` side by side; a single array keeps its memory."""
    matrix = arrays[0].reshape(len(arrays[0]), -1) if len(arrays) == 1 else np.column_stack(arrays)
    return torch.from_numpy(matrix).to(dtype)


def _densify(x: Any, name: str) -> AnyArray:
    """Return a scipy sparse matrix as an array, unless that would fill the memory."""
    size = 8.0 * math.prod(x.shape)
    if size > _MOST_DENSE:
        must = f"take at most {_MOST_DENSE / 2**30:.0f} GB as dense numbers"
        got = f"a sparse matrix of shape {tuple(x.shape)}, which takes {size / 2**30:,.0f} GB"
        rare = "Leave out rare columns, for example with OneHotEncoder(min_frequency=...)"
        raise ArgumentError(name, must, got, f"{rare}, or pass fewer rows at a time.")
    return x.toarray()
