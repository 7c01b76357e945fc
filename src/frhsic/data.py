"""The door: any frame or array becomes float64 tensors, checked here and nowhere else.

Lists, tuples, numpy, torch, pandas, polars and pyarrow columns and frames and dicts of columns come in; dense
and finite tensors on the CPU go out. They may share memory with what came in: read them, never write to them.
The kind of a sensitive column is never guessed from its values: numbers are continuous (integers too),
strings, booleans and categories are categorical, and ``kinds=`` overrides. Text that is mostly numbers could
be meant as either, so it is an error unless ``kinds=`` says which.

Privacy: an error message names arguments, columns, types, counts and row numbers, never a data value. The one
exception are labels that cannot be mended unseen (unknown categories, text that is no number, and the labels
they are compared with): at most five, each cut to 40 characters; of text that is mostly numbers at most three
entries that are none, each cut to 20. For the same reason a refusal hides its cause (``from None``): the
messages of other libraries quote the values that they stumble over.
"""

from __future__ import annotations

import math
import numbers
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeAlias

import narwhals as nw
import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from frhsic._checks import ArgumentError

__all__ = [
    "Kind",
    "Label",
    "LabelRows",
    "LabelSplit",
    "Sensitive",
    "check_aligned",
    "check_kept",
    "split_labels",
    "suspicious_codes",
    "to_generator",
    "to_groups",
    "to_matrix",
    "to_sensitive",
    "to_vector",
    "to_weights",
]

Kind = Literal["continuous", "categorical"]
Label: TypeAlias = str | bool | int | float
_Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_CONTINUOUS: tuple[Kind, ...] = ("continuous",)
# Squares of larger numbers, and sums of such squares, leave float64.
_LARGEST = 1e150
_MOST_DENSE = 8 * 2**30  # bytes of a sparse matrix as dense numbers
# A number as people write it: with a decimal comma, with signs between thousands, in per cent.
_WRITTEN_NUMBER = re.compile(
    r"\s*[+-]?(\d+([.,]\d+)?|\d{1,3}([.,' \u00a0\u2009\u202f]\d{3})+([.,]\d+)?)\s*%?\s*"
)
# What surveys and databases write for "no answer" and "unknown".
_CODES = frozenset(
    sign * code
    for sign in (-1, 1)
    for code in (7, 8, 9, 77, 88, 97, 98, 99, *(10**k - j for k in range(3, 9) for j in (1, 2, 3)), 777, 888)
) | {-1, -2}
_HEAP = 5  # rows from which on a code is noted
# By numpy's letter for a dtype.
_REFUSED = {
    "S": ("bytes", "Decode them to strings first."),
    "M": ("dates or times", "Convert them to a number, for example to years."),
    "m": ("durations", "Convert them to a number, for example to years."),
    "c": ("complex numbers", "Pass the real and the imaginary part as two columns."),
    "V": ("structured records", "Pass a dict of columns or a frame."),
}


@dataclass(frozen=True, eq=False, repr=False)
class Sensitive:
    """One or several sensitive columns as numbers, with a name and a kind for each.

    Parameters
    ----------
    values : Tensor
        ``(n, q)``; a categorical column holds the codes 0, ..., k - 1.
    names : tuple of str
        One per column.
    kinds : tuple of {"continuous", "categorical"}
        One per column.
    categories : tuple, default=()
        Per column the labels in code order, None for a continuous column; () means None everywhere.

    Examples
    --------
    >>> s = to_sensitive({"age": [31, 45, 62], "sex": ["f", "m", "f"]})
    >>> s
    Sensitive(n=3, age: continuous, sex: categorical with 2 levels)
    >>> s.columns(["sex"]).values.T
    tensor([[0., 1., 0.]], dtype=torch.float64)
    """

    values: Tensor
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    categories: tuple[tuple[Label, ...] | None, ...] = ()

    def __post_init__(self) -> None:
        # Lengths only: training builds one of these for every batch.
        q = self.values.shape[-1] if self.values.ndim == 2 else -1
        if not (q == len(self.names) == len(self.kinds) and len(self.categories) in (0, q)):
            raise ArgumentError(
                "values",
                "be (n, q) with q names and q kinds (and q or no categories)",
                f"shape {tuple(self.values.shape)}, {len(self.names)} names, {len(self.kinds)} kinds and "
                f"{len(self.categories)} categories",
                "Give each column its own name and kind.",
            )

        if not set(self.kinds) <= {"continuous", "categorical"}:
            raise ArgumentError(
                "kinds",
                "be 'continuous' or 'categorical' for each column",
                list(self.kinds),
                "Numbers are continuous, labels categorical.",
            )

    @classmethod
    def of(cls, values: Tensor) -> Sensitive:
        """Take a plain tensor ``(n,)`` or ``(n, q)`` as continuous columns "s", or "s0", "s1", ... ."""
        if values.ndim not in (1, 2):
            raise ArgumentError(
                "s", "be (n,) or (n, q)", f"shape {tuple(values.shape)}", "Flatten it to one row each."
            )
        values = values.unsqueeze(-1) if values.ndim == 1 else values
        q = values.shape[1]
        return cls(values, _unnamed(q), _CONTINUOUS * q)

    def __len__(self) -> int:
        return self.values.shape[0]

    def __repr__(self) -> str:
        parts = [f"n={len(self)}"]
        labels = self.categories or (None,) * len(self.names)
        for name, kind, known in zip(self.names, self.kinds, labels, strict=True):
            parts.append(f"{name}: {kind}" + (f" with {len(known)} levels" if known is not None else ""))
        return f"Sensitive({', '.join(parts)})"

    def __getitem__(self, rows: Tensor) -> Sensitive:
        """Take rows by number or by mask, in the order given."""
        return Sensitive(self.values[rows], self.names, self.kinds, self.categories)

    def columns(self, names: Sequence[str]) -> Sensitive:
        """Take columns by name, in the order given."""
        unknown = [name for name in names if name not in self.names]
        if isinstance(names, str) or unknown or not names:
            raise ArgumentError(
                "names",
                f"be a list of names among {list(self.names)}",
                f"{names!r}",
                "Use the names of the sensitive columns.",
            )
        picked = [self.names.index(name) for name in names]
        return Sensitive(
            self.values[:, picked],
            tuple(names),
            tuple(self.kinds[j] for j in picked),
            tuple(self.categories[j] for j in picked) if self.categories else (),
        )

    def to(self, like: Tensor) -> Sensitive:
        """Move the columns to the dtype and device of ``like``."""
        values = self.values.to(like)
        return self if values is self.values else Sensitive(values, self.names, self.kinds, self.categories)


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
    blocks = _read(_dense(x, name) if issparse(x) else x, name)
    _check_rows(blocks[0], name, min_rows=min_rows)
    return _stack([_numbers(block, name, dtype) for block in blocks], dtype)


def _dense(x: Any, name: str) -> _Array:
    """Return a scipy sparse matrix as an array, unless that would fill the memory."""
    size = 8.0 * math.prod(x.shape)
    if size > _MOST_DENSE:
        raise ArgumentError(
            name,
            f"take at most {_MOST_DENSE / 2**30:.0f} GB as dense numbers",
            f"a sparse matrix of shape {tuple(x.shape)}, which takes {size / 2**30:,.0f} GB",
            "Leave out rare columns, for example with OneHotEncoder(min_frequency=...), or "
            "pass fewer rows at a time.",
        )
    array: _Array = x.toarray()
    return array


def to_vector(
    x: object,
    *,
    name: str = "y",
    n_rows: int | None = None,
    rows_of: str = "X",
    min_rows: int = 1,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """One column of numbers as a finite ``(n,)`` tensor.

    Parameters
    ----------
    x : list, array, tensor, column, or table with a single column
        Numbers or booleans (0 and 1).
    name : str, default="y"
        The argument that error messages name.
    n_rows : int, optional
        The number of rows that must have come.
    rows_of : str, default="X"
        The argument that has these ``n_rows`` rows, for the error message.
    min_rows : int, default=1
        The fewest rows that the caller's mathematics allows.
    dtype : torch.dtype, default=torch.float64
        A floating type.

    Returns
    -------
    Tensor
        ``(n,)``, on the CPU, contiguous; it shares memory with a float64 array or tensor.

    Examples
    --------
    >>> to_vector([0, 1, 1], n_rows=3)
    tensor([0., 1., 1.], dtype=torch.float64)
    """
    block = _one_column(x, name)
    _check_rows(block, name, n_rows, rows_of, min_rows)
    return _stack([_numbers(block, name, dtype)], dtype)[:, 0]


def to_weights(
    sample_weight: object, *, n_rows: int, rows_of: str = "X", name: str = "sample_weight"
) -> Tensor | None:
    """Row weights as a finite, non-negative ``(n,)`` tensor with a positive sum; None stays None.

    Parameters
    ----------
    sample_weight : list, array, tensor, column or None
        One weight per row. They are not normalised here.
    n_rows : int
        The number of rows that must have come.
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
        raise ArgumentError(
            name, "have a positive sum", "only zeros", "Give at least one row a positive weight."
        )
    return weights


def to_groups(groups: object, *, n_rows: int, rows_of: str = "X", name: str = "groups") -> Tensor | None:
    """Return the group of each row as a code 0, ..., G - 1 in the order of rows, ``(n,)``; None stays None.

    Rows of one group (a person, a household, a branch) may depend on one another; groups may not. When every
    row is a group of its own the result is None too: rows are then independent as they are.

    Parameters
    ----------
    groups : list, array, tensor, column or None
        One label for each row; nothing missing.
    n_rows : int
        The number of rows that must have come.
    rows_of : str, default="X"
        The argument that has these ``n_rows`` rows, for the error message.
    name : str, default="groups"
        The argument that error messages name.

    Returns
    -------
    Tensor or None
        ``(n,)``, int64.

    Examples
    --------
    >>> to_groups(["ann", "bob", "ann"], n_rows=3)
    tensor([0, 1, 0])
    """
    if groups is None:
        return None
    block = _one_column(groups, name)
    _check_rows(block, name, n_rows, rows_of)
    labels, codes = _factor(_settle(block, name), name)
    if len(labels) < 2:
        raise ArgumentError(
            name,
            "have at least two different labels",
            f"one in all {n_rows:,} rows",
            "Pass the column that tells independent units apart, such as a customer number.",
        )
    if len(labels) == n_rows:
        return None
    # By their first rows, so that what the groups are called changes nothing.
    first = np.unique(codes, return_index=True)[1]
    return torch.from_numpy(np.argsort(np.argsort(first))[codes])


def to_sensitive(
    s: object,
    *,
    name: str = "sensitive_features",
    kinds: str | Mapping[str, str] | None = None,
    like: Sensitive | None = None,
    n_rows: int | None = None,
    rows_of: str = "X",
    min_rows: int = 2,
    allow_constant: bool = False,
    numeric_labels: bool = False,
) -> Sensitive:
    """Sensitive columns as numbers, each with its name and its kind.

    Numbers are continuous, integers too; strings, booleans and categories are categorical and become codes in
    the sorted order of their labels. Strings with more than two different labels, of which at least half, or
    at least half of the rows, are numbers ("34"), are an error unless ``kinds`` names their column: a single
    "unknown" among ages would otherwise make age categorical.

    Parameters
    ----------
    s : list, array, tensor, column, frame, dict of columns or Sensitive
        A named column keeps its name; unnamed ones are called "s", or "s0", "s1", ... when there are several.
        A ``Sensitive`` stays as it is.
    name : str, default="sensitive_features"
        The argument that error messages name.
    kinds : "continuous", "categorical" or dict of these by column name, optional
        Overrides the kind; a single string serves a single column.
    like : Sensitive, optional
        Earlier columns whose names, order, kinds and category codes are used again. A single unnamed column
        takes the name of a single earlier one.
    n_rows : int, optional
        The number of rows that must have come.
    rows_of : str, default="X"
        The argument that has these ``n_rows`` rows, for the error message.
    min_rows : int, default=2
        The fewest rows that the caller's mathematics allows.
    allow_constant : bool, default=False
        Whether a column may hold a single value.
    numeric_labels : bool, default=False
        Whether strings that are numbers are labels, as the predicted classes "0", "1" and "2" are.

    Returns
    -------
    Sensitive
        ``(n, q)`` values in float64.

    Examples
    --------
    >>> train = to_sensitive({"age": [31, 45, 62], "zone": [3, 1, 3]}, kinds={"zone": "categorical"})
    >>> train.categories
    (None, (1, 3))
    >>> to_sensitive({"zone": [3, 1], "age": [20, 70]}, like=train).values[:, 1]
    tensor([1., 0.], dtype=torch.float64)
    """
    if like is not None and kinds is not None:
        raise ArgumentError(
            "kinds",
            "be None where 'like' fixes the kinds",
            "both",
            "Leave 'kinds' out, or set it when the earlier columns are read.",
        )
    if isinstance(s, Sensitive):
        return _as_read(s, name, kinds, like, n_rows, rows_of, min_rows, allow_constant)
    columns = [column for block in _read(s, name) for column in block.columns()]
    _check_rows(columns[0], name, n_rows, rows_of, min_rows)
    default = _unnamed(len(columns))
    given = {key if c.name is None else c.name: c for key, c in zip(default, columns, strict=True)}
    if like is not None:
        given = _match(given, like, name)
    given = {key: _settle(column, name) for key, column in given.items()}
    chosen = like.kinds if like is not None else _choose_kinds(kinds, given)
    if like is None and not numeric_labels:
        for key, column in given.items():
            if not isinstance(kinds, str) and key not in {str(known) for known in kinds or ()}:
                _refuse_text_numbers(column, key, name)
    known = (like.categories if like is not None else ()) or (None,) * len(given)
    values, categories = [], []
    for column, kind, labels in zip(given.values(), chosen, known, strict=True):
        if kind == "categorical" and like is not None and labels is None:
            raise ArgumentError(
                "like",
                "carry the labels of its categorical columns",
                f"none{column.place}",
                "Make it with 'to_sensitive'.",
            )
        encoded, found = _encode(column, kind, labels, name)
        if not allow_constant and encoded.min() == encoded.max():
            raise _constant(name, column.place, len(encoded))
        values.append(encoded)
        categories.append(found)
    return Sensitive(_stack(values, torch.float64), tuple(given), chosen, tuple(categories))


def _as_read(
    s: Sensitive,
    name: str,
    kinds: object,
    like: Sensitive | None,
    n_rows: int | None,
    rows_of: str,
    min_rows: int,
    allow_constant: bool,
) -> Sensitive:
    if kinds is not None or like is not None:
        raise ArgumentError(
            name,
            "not be a Sensitive where 'kinds' or 'like' is given: its kinds are chosen",
            "one",
            "Leave them out, or pass the columns as they were before.",
        )
    values = s.values.detach().cpu().double()
    _check_rows(_Block(values.numpy()), name, n_rows, rows_of, min_rows)
    for column, title in zip(values.T.numpy(), s.names, strict=True):
        if not np.isfinite(column).all():
            raise _missing(~np.isfinite(column), name, _place(title))
        if not allow_constant and column.min() == column.max():
            raise _constant(name, _place(title), len(s))
    return Sensitive(values, s.names, s.kinds, s.categories)


def check_aligned(**arguments: object) -> None:
    """Raise ValueError if two arguments have indexes with the same labels in another order.

    Rows are paired by position. That is what is meant for arrays, for equal indexes and for indexes with
    different labels; where the same labels stand in another order, it would pair the score of one person with
    the age of another.

    Parameters
    ----------
    **arguments : object
        What a function was called with, by name. Only objects with an index (those of pandas, also as columns
        of a dict) are looked at.

    Examples
    --------
    >>> import pandas as pd
    >>> score = pd.Series([0.2, 0.7], index=["ann", "bob"])
    >>> check_aligned(z=score, s=score.sort_values(ascending=False))
    Traceback (most recent call last):
    ...
    frhsic._checks.ArgumentError: 's' must have its rows in the order of 'z'. Got an index \
with the same labels in another \
order. Align it with 's.loc[z.index]', or pass '.to_numpy()' if rows belong together as they stand.
    """
    first: dict[str, Any] = {}
    for name, x in arguments.items():
        columns = x.values() if isinstance(x, Mapping) and not issparse(x) else (x,)
        for index in filter(lambda index: index is not None, map(_index_of, columns)):
            for other, before in first.items():
                if _in_another_order(before, index):
                    raise ArgumentError(
                        name,
                        f"have its rows in the order of '{other}'",
                        "an index with the same labels in another order",
                        f"Align it with '{name}.loc[{other}.index]', or pass "
                        "'.to_numpy()' if rows belong together as they stand.",
                    )
            first.setdefault(name, index)


def _index_of(x: object) -> Any:
    """Return the index of a frame or column that has one, or None."""
    if isinstance(x, (Tensor, np.ndarray, list, tuple)):
        return None
    try:
        native = nw.from_native(x, allow_series=True, eager_only=True)  # type: ignore[call-overload]
    except Exception:
        return None  # the reader of the argument says what is wrong with it
    return nw.maybe_get_index(native)


def _in_another_order(one: Any, other: Any) -> bool:
    """Return whether two indexes hold the same labels, as often, in different orders."""
    if len(one) != len(other) or one.equals(other):
        return False
    try:
        return Counter(one) == Counter(other)
    except TypeError:  # labels that have no hash
        return False


@dataclass(frozen=True, eq=False, repr=False)
class LabelRows:
    """The rows of one label: ``value`` as the user wrote it and the row numbers ``rows`` in rising order."""

    value: Label
    rows: Tensor

    def __repr__(self) -> str:
        return f"LabelRows({self.value!r} in {len(self.rows)} rows)"


@dataclass(frozen=True, eq=False)
class LabelSplit:
    """A split by label: the labels ``kept``, and ``(value, row count)`` of those ``skipped`` as too small."""

    kept: tuple[LabelRows, ...]
    skipped: tuple[tuple[Label, int], ...]


def split_labels(
    y: object,
    only: object = None,
    *,
    min_rows: int = 1,
    name: str = "y",
    n_rows: int | None = None,
    rows_of: str = "X",
) -> LabelSplit:
    """Split the rows by the distinct labels of ``y``, in the sorted order of the labels.

    Parameters
    ----------
    y : list, array, tensor, column, or table with a single column
        Numbers, strings, booleans or categories; nothing missing.
    only : label or collection of labels, optional
        The labels to keep; each must occur.
    min_rows : int, default=1
        A label with fewer rows is not kept but reported as skipped.
    name : str, default="y"
        The argument that error messages name.
    n_rows : int, optional
        The number of rows that must have come.
    rows_of : str, default="X"
        The argument that has these ``n_rows`` rows, for the error message.

    Returns
    -------
    LabelSplit
        ``kept`` and ``skipped``.

    Examples
    --------
    >>> split_labels(["no", "yes", "no", "no"], min_rows=2)
    LabelSplit(kept=(LabelRows('no' in 3 rows),), skipped=(('yes', 1),))
    """
    block = _one_column(y, name)
    _check_rows(block, name, n_rows, rows_of)
    labels, codes = _factor(_settle(block, name), name)
    wanted = None if only is None else _wanted(only, labels)
    counts = np.bincount(codes, minlength=len(labels))
    stops = counts.cumsum()
    order = torch.from_numpy(np.argsort(codes, kind="stable"))
    kept, skipped = [], []
    for label, count, stop in zip(labels, counts.tolist(), stops.tolist(), strict=True):
        if wanted is not None and label not in wanted:
            continue
        if count < min_rows:
            skipped.append((label, count))
        else:
            kept.append(LabelRows(label, order[stop - count : stop]))
    return LabelSplit(tuple(kept), tuple(skipped))


def check_kept(kept: int, total: int, *, n_labels: int, min_rows: int, name: str = "given") -> None:
    """Raise ValueError if most rows would be left out because too few others have their label.

    Parameters
    ----------
    kept, total : int
        Rows whose label has enough of them, and all rows.
    n_labels : int
        Different labels.
    min_rows : int
        The rows that a label needs.
    name : str, default="given"
        The argument that the error message names.

    Examples
    --------
    >>> check_kept(14, 2_000, n_labels=1_987, min_rows=8)
    Traceback (most recent call last):
    ...
    frhsic._checks.ArgumentError: 'given' must be labels that most rows share with at least 7 \
others. Got 1,987 different \
labels, and 1,986 of 2,000 rows would be left out. Cut a number into a few bins, or merge rare labels.
    """
    if 2 * kept < total:
        raise ArgumentError(
            name,
            f"be labels that most rows share with at least {min_rows - 1} others",
            f"{n_labels:,} different labels, and {total - kept:,} of {total:,} rows would be left out",
            "Cut a number into a few bins, or merge rare labels.",
        )


def suspicious_codes(values: Tensor, what: str) -> str | None:
    """Return a sentence about codes such as -999 or 99 that may stand for "no value", or None.

    A code is suspicious where it is the smallest or largest value, stands in at least five rows, and is
    farther from all other values than the middle 98 % of these are from one another.

    Parameters
    ----------
    values : Tensor
        One column, ``(n,)``.
    what : str
        The column as the sentence names it.

    Returns
    -------
    str or None

    Examples
    --------
    >>> suspicious_codes(torch.tensor([18.0, 35, 52, 70, 90] * 9 + [999] * 5), "column 'age'")
    "999 in 5 rows of column 'age' lies far from all other values. If it stands for no value, read it as \
missing (missing_values=['999']) and audit again."
    >>> suspicious_codes(torch.arange(18.0, 91).repeat(9), "column 'age'")
    """
    ordered, counts = values.unique(return_counts=True)
    found: list[tuple[float, int]] = []
    for upper in (False, True):
        ends = (ordered.flip(0), counts.flip(0)) if upper else (ordered, counts)
        head = list(zip(ends[0][:6].tolist(), ends[1][:6].tolist(), strict=True))
        most = next((j for j, (value, _) in enumerate(head) if value not in _CODES), len(head))
        # Several codes may lie side by side (998 and 999), and the last may be a value (age 99).
        for k in range(min(most, len(ordered) - 2), 0, -1):
            rest, times = ends[0][k:], ends[1][k:]
            share = times.cumsum(0) / times.sum()
            inner = rest[(share >= 0.01) & (share - times / times.sum() <= 0.99)]
            gap = abs(float(rest[0]) - head[k - 1][0])
            if gap > float(inner.max() - inner.min()) and sum(count for _, count in head[:k]) >= _HEAP:
                found += head[:k]
                break
    if not found:
        return None
    codes, rows = [f"{code:.0f}" for code, _ in found], sum(count for _, count in found)
    lies, it_stands, it = ("lies", "it stands", "it") if len(codes) == 1 else ("lie", "they stand", "them")
    return (
        f"{' and '.join(codes)} in {rows:,} rows of {what} {lies} far from all other values. "
        f"If {it_stands} for no value, read {it} as missing (missing_values={codes}) and audit again."
    )


def to_generator(random_state: object = None) -> torch.Generator:
    """Make a torch generator from any of the usual ``random_state`` values; no global seed is read or set.

    Parameters
    ----------
    random_state : None, int, numpy RandomState, numpy Generator or torch.Generator
        None draws fresh entropy. A numpy generator gives a seed and moves on. A torch generator is returned.

    Returns
    -------
    torch.Generator
        On the CPU, unless a generator of another device came.

    Examples
    --------
    >>> torch.equal(torch.rand(2, generator=to_generator(7)), torch.rand(2, generator=to_generator(7)))
    True
    """
    if isinstance(random_state, torch.Generator):
        return random_state
    generator = torch.Generator()
    if random_state is None:
        generator.seed()
        return generator
    if isinstance(random_state, np.random.Generator):
        random_state = random_state.integers(2**63)
    elif isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**63, dtype=np.uint64)
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)):
        raise TypeError(
            "'random_state' must be None, an integer or a numpy or torch generator. "
            f"Got '{type(random_state).__name__}'. Pass an integer for a repeatable result."
        )
    if not 0 <= random_state < 2**63:
        raise ArgumentError(
            "random_state", "lie between 0 and 2**63 - 1", "an integer outside", "Pass a smaller one."
        )
    return generator.manual_seed(int(random_state))


@dataclass(frozen=True, eq=False)
class _Block:
    """Columns of one type ``(n,)`` or ``(n, d)``; a frame's column has a name; ``labelled``: categories."""

    array: _Array
    name: str | None = None
    labelled: bool = False

    @property
    def place(self) -> str:
        return _place(self.name)

    def columns(self) -> list[_Block]:
        return [self] if self.array.ndim == 1 else [_Block(column) for column in self.array.T]


def _read(x: object, name: str, place: str = "") -> list[_Block]:
    """Bring all that can come in to one or more blocks of equal length, their entries not yet checked."""
    blocks: list[_Block] = []
    if isinstance(x, Mapping) and not place and not issparse(x):  # a dict within a dict is no column
        for key, v in x.items():
            column = _one_column(v, name, _place(str(key)))
            blocks.append(_Block(column.array, str(key), column.labelled))
    elif isinstance(x, (Tensor, np.ndarray, list, tuple)):
        blocks.append(_Block(_array(x, name, place)))
    else:
        blocks.extend(_read_native(x, name, place))
    titles = [block.name for block in blocks if block.name is not None]
    if len(set(titles)) < len(titles):
        raise ValueError(_twice(name))
    if not blocks or blocks[0].array.shape[1:] == (0,):
        raise ArgumentError(name, f"have at least one column{place}", "none", "Pass a column.")
    lengths = {len(block.array) for block in blocks}
    if len(lengths) > 1:
        raise ArgumentError(
            name,
            "have columns of equal length",
            f"{min(lengths)} to {max(lengths)} rows",
            "Drop or align the missing rows first.",
        )
    return blocks


def _read_native(x: object, name: str, place: str) -> list[_Block]:
    """Read the frames and columns that narwhals knows; hand everything else to numpy."""
    try:
        native = nw.from_native(_rewrap(x), allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise ValueError(_twice(name)) from None
    except Exception:
        raise _unreadable(x, name, place) from None
    if isinstance(native, nw.LazyFrame):
        raise TypeError(f"'{name}' must be in memory{place}. Got a lazy frame. Call '.collect()' first.")
    if isinstance(native, nw.Series):
        return [_series(native, None if native.name is None or native.name == "" else str(native.name), name)]
    if isinstance(native, nw.DataFrame):
        return [_series(series, str(series.name), name) for series in native.iter_columns()]
    return [_Block(_array(x, name, place))]


def _rewrap(x: object) -> object:
    """Turn the column types of pandas and pyarrow that narwhals leaves out into those that it knows."""
    # These libraries are never imported here: whoever holds such an object has imported them.
    pd, pa = nw.dependencies.get_pandas(), nw.dependencies.get_pyarrow()
    if pd is not None and isinstance(x, (pd.Index, pd.api.extensions.ExtensionArray)):
        return pd.Series(x)
    if pa is not None and isinstance(x, pa.RecordBatch):
        return pa.Table.from_batches([x])
    if pa is not None and isinstance(x, pa.Array):
        return pa.chunked_array([x])
    return x


def _series(series: nw.Series[Any], title: str | None, name: str) -> _Block:
    dtype, place = series.dtype, _place(title)
    labelled = isinstance(dtype, (nw.Categorical, nw.Enum))
    if dtype.is_nested():
        raise ArgumentError(
            name,
            f"hold one number or label per row{place}",
            "nested entries",
            "Unnest them into columns or pass a two-dimensional array.",
        )
    try:
        if labelled:
            # Through a list, because a category of whole numbers must not come out as numbers.
            array = np.fromiter(series.to_list(), dtype=object, count=len(series))
        elif isinstance(dtype, (nw.Decimal, nw.Int128, nw.UInt128)):
            array = series.cast(nw.Float64()).to_numpy()
        else:
            array = series.to_numpy()
    except Exception:
        raise _unreadable(series, name, place) from None
    return _Block(_check_array(array, name, place), title, labelled)


def _array(x: object, name: str, place: str) -> _Array:
    if issparse(x) or (isinstance(x, Tensor) and x.layout is not torch.strided):
        raise TypeError(
            f"'{name}' must be dense{place}. Got a sparse '{type(x).__name__}'. Densify it first."
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
        raise _unreadable(x, name, place) from None
    if array.ndim == 0:
        raise _unreadable(x, name, place)
    array = _check_array(array, name, place)
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise _missing(np.ma.getmaskarray(x), name, place)
    return array


def _check_array(array: _Array, name: str, place: str) -> _Array:
    """Insist on one or two dimensions of booleans, numbers or objects; text becomes objects."""
    if array.ndim not in (1, 2):
        raise ArgumentError(
            name,
            f"have one or two dimensions{place}",
            f"shape {array.shape}",
            "Reshape it to (rows, columns).",
        )
    if array.dtype.kind in _REFUSED:
        found, cure = _REFUSED[array.dtype.kind]
        raise ArgumentError(name, f"hold numbers or labels{place}", found, cure)
    return array if array.dtype.kind in "biufO" else array.astype(object)


def _one_column(x: object, name: str, place: str = "") -> _Block:
    columns = [column for block in _read(x, name, place) for column in block.columns()]
    if len(columns) > 1:
        raise ArgumentError(name, f"be a single column{place}", len(columns), "Choose one of them.")
    return columns[0]


def _check_rows(
    block: _Block, name: str, n_rows: int | None = None, rows_of: str = "X", min_rows: int = 1
) -> None:
    n = len(block.array)
    if n_rows is not None and n != n_rows:
        raise ArgumentError(
            name, f"have {n_rows} rows like '{rows_of}'", n, "Drop or align the missing rows first."
        )
    if n < max(min_rows, 1):
        raise ArgumentError(name, f"have at least {max(min_rows, 1)} rows", n, "Pass more rows.")


def _sort(kind: type) -> str:
    """Tell what an entry is by its type, so that a long column is sorted by its few types."""
    if kind.__name__ in ("NoneType", "NAType", "NaTType", "MaskedConstant"):
        return "missing"
    # Before the numbers: a numpy duration is an integer to Python.
    if issubclass(kind, (date, time, timedelta, np.datetime64, np.timedelta64)):
        return "date"
    if issubclass(kind, (bool, np.bool_)):
        return "boolean"
    if issubclass(kind, str):
        return "text"
    return "number" if issubclass(kind, (numbers.Real, Decimal)) else "other"


def _settle(block: _Block, name: str) -> _Block:
    """Give objects that are numbers or booleans a plain dtype; only text and categories remain objects."""
    if block.array.dtype != object:
        return block
    entries = block.array.ravel().tolist()
    sorts = {kind: _sort(kind) for kind in set(map(type, entries))}
    found = set(sorts.values())
    if found & {"missing", "number"}:
        missing = [
            sorts[type(v)] == "missing" or (sorts[type(v)] == "number" and _is_nan(v)) for v in entries
        ]
        if any(missing):
            raise _missing(np.array(missing).reshape(block.array.shape), name, block.place)
    if block.labelled or found == {"text"}:
        return block
    if not found <= {"boolean", "number"}:
        first = next(i for i, v in enumerate(entries) if sorts[type(v)] not in ("boolean", "number"))
        kind = type(entries[first])
        says = (
            f"'{name}' must hold numbers only, or labels of one type only{block.place}. "
            f"Got a '{kind.__name__}' in row {first // (len(entries) // len(block.array))}. "
        )
        if sorts[kind] == "other":
            raise TypeError(says + "Convert it: each argument must be a string or a number.")
        cure = "Convert the entries to numbers, or all of them to strings."
        raise ValueError(says + (_REFUSED["M"][1] if sorts[kind] == "date" else cure))
    if found == {"boolean"}:
        return _Block(block.array.astype(bool), block.name)
    whole = all(issubclass(kind, numbers.Integral) for kind in sorts) and max(map(abs, entries)) < 2**63
    try:
        return _Block(block.array.astype(np.int64 if whole else np.float64), block.name)
    except Exception:
        raise _too_large(_LARGEST, name, block.place) from None


def _is_nan(v: Any) -> bool:
    # A signalling Decimal raises when it is compared.
    return v.is_nan() if isinstance(v, Decimal) else bool(v != v)


def _numbers(block: _Block, name: str, dtype: torch.dtype = torch.float64) -> _Array:
    """Bring a block to contiguous native float64, all finite and small enough to be squared in ``dtype``."""
    block = _settle(block, name)
    if block.array.dtype == object:
        found = None if block.labelled else _count_numbers(block.array.ravel().tolist())
        if found is not None and found.mostly:
            raise ArgumentError(name, f"hold numbers{block.place}", found, f"{found.cure}.")
        raise ArgumentError(
            name,
            f"hold numbers{block.place}",
            "categories" if block.labelled else "strings",
            "Encode them as numbers first; frhsic.TableEncoder does.",
        )
    largest = min(_LARGEST, torch.finfo(dtype).max ** 0.5)
    with np.errstate(all="ignore"):
        # Writable, because torch warns about memory that it may not write to.
        array = np.require(block.array, np.float64, ["C", "A", "W"])
        low, high = array.min(), array.max()
    if low >= -largest and high <= largest:  # False for NaN
        return array
    if np.isnan(low):
        raise _missing(np.isnan(array), name, block.place)
    if np.isinf(low) or np.isinf(high):
        raise ArgumentError(
            name,
            f"be finite{block.place}",
            f"{int(np.isinf(array).sum())} infinite values (inf)",
            "Drop or replace them first.",
        )
    raise _too_large(largest, name, block.place)


def _stack(arrays: Sequence[_Array], dtype: torch.dtype) -> Tensor:
    if len(arrays) == 1:
        return torch.from_numpy(arrays[0].reshape(len(arrays[0]), -1)).to(dtype)
    return torch.from_numpy(np.column_stack(arrays)).to(dtype)


def _factor(column: _Block, name: str) -> tuple[tuple[Label, ...], _Array]:
    """Find the distinct labels of a settled column in sorted order, and each row's place among them."""
    if column.array.dtype == object:
        entries = column.array.tolist()
        if set(map(type, entries)) != {str}:
            entries = [_label(v) for v in entries]
        labels = sorted(set(entries), key=lambda v: (isinstance(v, str), v))
        code = {label: j for j, label in enumerate(labels)}
        return tuple(labels), np.fromiter(map(code.__getitem__, entries), dtype=np.int64, count=len(entries))
    array = _numbers(column, name) if column.array.dtype.kind == "f" else column.array
    distinct, codes = np.unique(array, return_inverse=True)
    return tuple(distinct.tolist()), codes


def _label(v: Any) -> Label:
    """Make an entry a plain Python label; intervals, dates and other categories become their text."""
    if isinstance(v, str):
        return str.__str__(v)
    if isinstance(v, (bool, np.bool_)):
        return bool(v)
    if isinstance(v, (int, np.integer)):
        return int(v)
    return float(v) if isinstance(v, (float, np.floating)) else str(v)


def _encode(
    column: _Block, kind: Kind, known: tuple[Label, ...] | None, name: str
) -> tuple[_Array, tuple[Label, ...] | None]:
    """Turn a settled column into values and, if it is categorical, its labels in code order."""
    if kind == "continuous" and column.array.dtype != object:
        return _numbers(column, name), None
    labels, codes = _factor(column, name)
    if kind == "continuous":
        parsed = [_parse(label) for label in labels]
        wrong = [label for label, v in zip(labels, parsed, strict=True) if not math.isfinite(v)]
        if wrong:
            raise ArgumentError(
                name,
                f'hold numbers{column.place}, because its kind is "continuous"',
                _show(wrong),
                'Mend these entries or make the column "categorical".',
            )
        return _numbers(_Block(np.array(parsed)[codes], column.name), name), None
    if known is None:
        return codes.astype(np.float64), labels
    code = {label: j for j, label in enumerate(known)}
    unseen = [label for label in labels if label not in code]
    if unseen:
        raise ArgumentError(
            name,
            f"hold the known categories only{column.place}: {_show(known)}",
            f"also {_show(unseen)}",
            "Drop or recode these rows, or fit again on data that contain them.",
        )
    return np.array([code[label] for label in labels], dtype=np.float64)[codes], known


def _parse(label: Label) -> float:
    try:
        # Python reads "1_2" as 12; a column of data does not mean that.
        return math.nan if isinstance(label, str) and "_" in label else float(label)
    except (ValueError, OverflowError):
        return math.nan


@dataclass(frozen=True)
class _NumbersInText:
    """How many of some strings, and of the different ones among them, are numbers.

    ``others`` holds up to three different strings that Python does not read as a number, each with its row.
    """

    rows: int
    numeric_rows: int
    labels: int
    numeric_labels: int
    others: tuple[tuple[str, int], ...]

    @property
    def mostly(self) -> bool:
        return 2 * self.numeric_rows >= self.rows or 2 * self.numeric_labels >= self.labels

    @property
    def cure(self) -> str:
        if not self.others:
            return "Convert the column to numbers"
        if self.numeric_rows == self.rows:
            return "Write numbers with a decimal point and without signs between thousands"
        return "Turn placeholders into missing values and the column into numbers"

    def __str__(self) -> str:
        shown = [
            f"'{text if len(text) <= 20 else text[:19] + '…'}' in row {row}" for text, row in self.others
        ]
        plain = f"; not read as a number: {', '.join(shown)}" if shown else ""
        return f"strings, {self.numeric_rows:,} of {self.rows:,} of them numbers{plain}"


def _count_numbers(entries: Sequence[str]) -> _NumbersInText:
    counts: dict[str, int] = {}
    for text in entries:
        counts[text] = counts.get(text, 0) + 1
    read = {text: math.isfinite(_parse(text)) for text in counts}
    numeric = [text for text in counts if read[text] or _WRITTEN_NUMBER.fullmatch(text)]
    # What is no number at all says more than a number with a decimal comma.
    others = sorted((text for text in counts if not read[text]), key=set(numeric).__contains__)[:3]
    return _NumbersInText(
        len(entries),
        sum(counts[text] for text in numeric),
        len(counts),
        len(numeric),
        tuple((text, entries.index(text)) for text in others),
    )


def _refuse_text_numbers(column: _Block, key: str, name: str) -> None:
    """Refuse text that is mostly numbers. With two labels either kind is the same split of the rows."""
    if column.array.dtype != object or column.labelled:
        return
    found = _count_numbers([str.__str__(text) for text in column.array.tolist()])
    if found.labels < 3 or not found.mostly:
        return
    possible = ("categorical",) if found.others else ("continuous", "categorical")
    kinds = [f"kinds={{'{key}': '{kind}'}}" for kind in possible]
    raise ArgumentError(
        name,
        f"hold numbers or labels{column.place}, not text that is mostly numbers: its kind would be a guess",
        found,
        f"{found.cure}, or say what it is: {' or '.join(kinds)}, here or in frhsic.data.to_sensitive.",
    )


def _choose_kinds(kinds: object, given: Mapping[str, _Block]) -> tuple[Kind, ...]:
    """Take the kind of each settled column from ``kinds`` or else from its type."""
    if isinstance(kinds, str) and len(given) == 1:
        kinds = dict.fromkeys(given, kinds)
    if kinds is not None and not isinstance(kinds, Mapping):
        raise TypeError(
            "'kinds' must be a dict by column name, or a string for a single column. "
            f'Got \'{type(kinds).__name__}\' for {len(given)} columns. Write {{"age": "continuous"}}.'
        )
    chosen: dict[str, Kind] = {
        key: "categorical" if column.array.dtype.kind in "bO" else "continuous"
        for key, column in given.items()
    }
    for key, kind in (kinds or {}).items():
        if str(key) not in given:
            raise ArgumentError(
                "kinds", f"name columns among {_show(list(given))}", _show([key]), "Correct the name."
            )
        if not isinstance(kind, str) or kind not in ("continuous", "categorical"):
            raise ArgumentError(
                "kinds", "be 'continuous' or 'categorical'", _show([kind]), "Choose one of the two."
            )
        chosen[str(key)] = "continuous" if kind == "continuous" else "categorical"
    return tuple(chosen.values())


def _match(given: dict[str, _Block], like: Sensitive, name: str) -> dict[str, _Block]:
    """Put columns into the order of ``like``, by name; one unnamed column needs no name to match one."""
    if len(given) == len(like.names) == 1 and all(column.name is None for column in given.values()):
        return dict(zip(like.names, given.values(), strict=True))
    if set(given) != set(like.names):
        raise ArgumentError(
            name,
            f"have the columns {_show(like.names)} as before",
            _show(list(given)),
            "Add, drop or rename columns.",
        )
    return {key: given[key] for key in like.names}


def _wanted(only: object, labels: tuple[Label, ...]) -> set[object]:
    if isinstance(only, (Tensor, np.ndarray)):
        only = only.tolist()
    several = only if isinstance(only, Iterable) and not isinstance(only, (str, bytes)) else [only]
    try:
        wanted = set(several)
    except TypeError:
        raise TypeError(
            "'only' must be a label or a collection of labels. "
            f"Got '{type(only).__name__}' of something else. Pass a list of labels."
        ) from None
    absent = sorted(str(label) for label in wanted - set(labels))
    if absent or not wanted:
        raise ArgumentError(
            "only",
            f"name labels that occur, among {_show(labels)}",
            _show(absent) or "none",
            "Correct the labels or leave 'only' out.",
        )
    return wanted


def _missing(mask: _Array, name: str, place: str) -> ValueError:
    row = int(mask.reshape(len(mask), -1).any(axis=1).argmax())
    fill = "; frhsic.TableEncoder fills them" if name == "X" else ""
    return ArgumentError(
        name,
        f"have no missing values{place}",
        f"{int(mask.sum())} (None, NaN, NaT or NA), the first in row {row}",
        f"Drop or fill these rows first{fill}.",
    )


def _too_large(largest: float, name: str, place: str) -> ValueError:
    return ArgumentError(
        name,
        f"stay within {largest:.0e} in size{place}, so that squares stay finite",
        "a larger number",
        "Rescale it, for example to unit variance.",
    )


def _unreadable(x: object, name: str, place: str) -> TypeError:
    return TypeError(
        f"'{name}' must be a table or a column of numbers or labels, with rows of equal length{place}. "
        f"Got a '{type(x).__name__}' that is none. Pass a list, an array, a frame or a dict of columns."
    )


def _constant(name: str, place: str, n: int) -> ValueError:
    return ArgumentError(
        name,
        f"vary{place}",
        f"a single value in all {n} rows",
        "Leave the column out or pass rows in which it differs.",
    )


def _twice(name: str) -> str:
    return f"'{name}' must have distinct column names. Got one name twice. Rename the columns."


def _unnamed(q: int) -> tuple[str, ...]:
    return ("s",) if q == 1 else tuple(f"s{j}" for j in range(q))


def _place(title: str | None) -> str:
    return "" if title is None else f" in column {_show([title])}"


def _show(labels: Sequence[object]) -> str:
    texts = [str(label) for label in labels[:5]]
    shown = ", ".join(f"'{text if len(text) <= 40 else text[:39] + '…'}'" for text in texts)
    return shown + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")


def refuse_not_finite(s: Sensitive) -> None:
    """Refuse values that cannot be sorted into bins or neighbourhoods."""
    if not bool(torch.isfinite(s.values).all()):
        raise ArgumentError(
            "s",
            "be finite",
            "missing or infinite values",
            "Drop those rows first; frhsic.data.to_sensitive says which column has them.",
        )
