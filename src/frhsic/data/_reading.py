"""Lists, arrays, tensors, frames and dicts of columns become blocks; their entries are checked later.

Frame libraries are never imported here: narwhals recognises their objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data._block import REJECTED_DTYPES, AnyArray, Block, describe_place, missing_error


def read_blocks(x: object, argument: str, place: str = "") -> list[Block]:
    """Read a table or a column into one or more blocks of equal length, their entries not yet checked."""
    blocks: list[Block] = []
    if isinstance(x, Mapping) and not place and not issparse(x):  # a dict within a dict is no column
        for key, v in x.items():
            column = read_column(v, argument, describe_place(str(key)))
            blocks.append(Block(column.array, argument, str(key), column.labelled))
    elif isinstance(x, (Tensor, np.ndarray, list, tuple)):
        blocks.append(Block(_to_array(x, argument, place), argument))
    else:
        blocks.extend(_read_native(x, argument, place))
    titles = [block.name for block in blocks if block.name is not None]
    if len(set(titles)) < len(titles):
        raise _repeated_name_error(argument)
    if not blocks or blocks[0].array.shape[1:] == (0,):
        raise ArgumentError(argument, f"have at least one column{place}", "none", "Pass a column.")
    lengths = {len(block.array) for block in blocks}
    if len(lengths) > 1:
        got = f"{min(lengths)} to {max(lengths)} rows"
        fix = "Drop or align the missing rows first."
        raise ArgumentError(argument, "have columns of equal length", got, fix)
    return blocks


def read_columns(x: object, argument: str, place: str = "") -> list[Block]:
    """Read a table into its columns."""
    return [column for block in read_blocks(x, argument, place) for column in block.columns()]


def read_column(x: object, argument: str, place: str = "") -> Block:
    """Read a single column."""
    columns = read_columns(x, argument, place)
    if len(columns) > 1:
        raise ArgumentError(argument, f"be a single column{place}", len(columns), "Choose one of them.")
    return columns[0]


def wrap_native(x: object) -> object:
    """Turn the column types of pandas and pyarrow that narwhals leaves out into those that it knows."""
    pd, pa = nw.dependencies.get_pandas(), nw.dependencies.get_pyarrow()
    if pd is not None and isinstance(x, (pd.Index, pd.api.extensions.ExtensionArray)):
        return pd.Series(x)
    if pa is not None and isinstance(x, pa.RecordBatch):
        return pa.Table.from_batches([x])
    if pa is not None and isinstance(x, pa.Array):
        return pa.chunked_array([x])
    return x


def _read_native(x: object, argument: str, place: str) -> list[Block]:
    """Read the frames and columns that narwhals knows; hand everything else to numpy."""
    try:
        native = nw.from_native(wrap_native(x), allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise _repeated_name_error(argument) from None
    except Exception:
        raise _unreadable_error(x, argument, place) from None
    if isinstance(native, nw.LazyFrame):
        raise TypeError(f"'{argument}' must be in memory{place}. Got a lazy frame. Call '.collect()' first.")
    if isinstance(native, nw.Series):
        title = None if native.name is None or native.name == "" else str(native.name)
        return [_read_series(native, title, argument)]
    if isinstance(native, nw.DataFrame):
        return [_read_series(series, str(series.name), argument) for series in native.iter_columns()]
    return [Block(_to_array(x, argument, place), argument)]


def _read_series(series: nw.Series[Any], title: str | None, argument: str) -> Block:
    dtype, place = series.dtype, describe_place(title)
    labelled = isinstance(dtype, (nw.Categorical, nw.Enum))
    if dtype.is_nested():
        fix = "Unnest them into columns or pass a two-dimensional array."
        raise ArgumentError(argument, f"hold one number or label per row{place}", "nested entries", fix)
    try:
        if labelled:
            # Through a list, because a category of whole numbers must not come out as numbers.
            array = np.fromiter(series.to_list(), dtype=object, count=len(series))
        elif isinstance(dtype, (nw.Decimal, nw.Int128, nw.UInt128)):
            array = series.cast(nw.Float64()).to_numpy()
        else:
            array = _read_numbers(series)
    except Exception:
        raise _unreadable_error(series, argument, place) from None
    return Block(_check_array(array, argument, place), argument, title, labelled)


def _read_numbers(series: nw.Series[Any]) -> AnyArray:
    """Return a column as numpy has it. pyarrow's own conversion imports pandas, which takes half a second."""
    if series.implementation.is_pyarrow() and series.dtype.is_numeric() and len(series):
        column = series.to_native()
        if not column.null_count:
            return np.concatenate([np.from_dlpack(chunk) for chunk in column.chunks])
    return series.to_numpy()


def _to_array(x: object, argument: str, place: str) -> AnyArray:
    if issparse(x) or (isinstance(x, Tensor) and x.layout is not torch.strided):
        raise TypeError(
            f"'{argument}' must be dense{place}. Got a sparse '{type(x).__name__}'. Densify it first."
        )
    try:
        if isinstance(x, Tensor):
            # numpy has no bfloat16 and no float8.
            plain = x.dtype in (torch.float16, torch.float32) or not x.is_floating_point()
            array = (x if plain else x.double()).numpy(force=True)
        else:
            array = np.asarray(x)
        if array.dtype.kind in "UT" and not isinstance(x, np.ndarray):
            # numpy turns the numbers of a mixed list into text; the objects tell what was there.
            array = np.array(x, dtype=object)
    except Exception:
        raise _unreadable_error(x, argument, place) from None
    if array.ndim == 0:
        raise _unreadable_error(x, argument, place)
    array = _check_array(array, argument, place)
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise missing_error(np.ma.getmaskarray(x), argument, place)
    return array


def _check_array(array: AnyArray, argument: str, place: str) -> AnyArray:
    """Require one or two dimensions of booleans, numbers or objects; text becomes objects."""
    if array.ndim not in (1, 2):
        fix = "Reshape it to (rows, columns)."
        raise ArgumentError(argument, f"have one or two dimensions{place}", f"shape {array.shape}", fix)
    if array.dtype.kind in REJECTED_DTYPES:
        raise ArgumentError(argument, f"hold numbers or labels{place}", *REJECTED_DTYPES[array.dtype.kind])
    return array if array.dtype.kind in "biufO" else array.astype(object)


def _repeated_name_error(argument: str) -> ArgumentError:
    return ArgumentError(argument, "have distinct column names", "one name twice", "Rename the columns.")


def _unreadable_error(x: object, argument: str, place: str) -> TypeError:
    return TypeError(
        f"'{argument}' must be a table or a column of numbers or labels, with rows of equal length{place}. "
        f"Got a '{type(x).__name__}' that is none. Pass a list, an array, a frame or a dict of columns."
    )
