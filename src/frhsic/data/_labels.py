"""The rows of each label of a column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.data._reading import read_column
from frhsic.data._sensitive import Label


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
    """Split the rows by the distinct labels of the column ``y``, in the sorted order of the labels.

    ``only`` is a label or a collection of labels to keep, each of which must occur. A label with fewer than
    ``min_rows`` rows is skipped. ``name``, ``n_rows`` and ``rows_of`` are those of ``to_vector``.

    Examples
    --------
    >>> split_labels(["no", "yes", "no", "no"], min_rows=2)
    LabelSplit(kept=(LabelRows('no' in 3 rows),), skipped=(('yes', 1),))
    """
    block = read_column(y, name)
    block.check_rows(n_rows, rows_of)
    labels, codes = block.settle().factor()
    wanted = None if only is None else _choose(only, labels)
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
    """Raise ArgumentError if most rows would be left out because too few others have their label.

    Examples
    --------
    >>> check_kept(14, 2_000, n_labels=1_987, min_rows=8)
    Traceback (most recent call last):
    ...
    frhsic._checks.ArgumentError: 'given' must be labels that most rows share with at least 7 others. Got \
1,987 different labels, and 1,986 of 2,000 rows would be left out. Cut a number into a few bins, or merge \
rare labels.
    """
    if 2 * kept < total:
        must = f"be labels that most rows share with at least {min_rows - 1} others"
        got = f"{n_labels:,} different labels, and {total - kept:,} of {total:,} rows would be left out"
        raise ArgumentError(name, must, got, "Cut a number into a few bins, or merge rare labels.")


def _choose(only: object, labels: tuple[Label, ...]) -> set[object]:
    if isinstance(only, (Tensor, np.ndarray)):
        only = only.tolist()
    several = only if isinstance(only, Iterable) and not isinstance(only, (str, bytes)) else [only]
    try:
        chosen = set(several)
    except TypeError:
        raise TypeError(
            "'only' must be a label or a collection of labels. "
            f"Got '{type(only).__name__}' of something else. Pass a list of labels."
        ) from None
    absent = sorted(str(label) for label in chosen - set(labels))
    if absent or not chosen:
        got = list_names(absent) or "none"
        fix = "Correct the labels or leave 'only' out."
        raise ArgumentError("only", f"name labels that occur, among {list_names(labels)}", got, fix)
    return chosen
