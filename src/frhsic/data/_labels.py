"""The rows of each label of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data._reading import read_column
from frhsic.data._sensitive import Label


@dataclass(frozen=True, eq=False)
class LabelRows:
    """The rows of one label: ``value`` as the user wrote it and the row numbers ``rows`` in rising order."""

    value: Label
    rows: Tensor


@dataclass(frozen=True, eq=False)
class LabelSplit:
    """A split by label, in the sorted order of the labels."""

    kept: tuple[LabelRows, ...]


def split_labels(y: object, *, name: str = "y", n_rows: int | None = None, rows_of: str = "X") -> LabelSplit:
    """Split the rows by the distinct labels of a column; the keywords are those of ``to_vector``."""
    block = read_column(y, name)
    block.check_rows(n_rows, rows_of)
    labels, codes = block.settle().factor()
    counts = np.bincount(codes, minlength=len(labels)).tolist()
    rows = torch.from_numpy(np.argsort(codes, kind="stable")).split(counts)
    return LabelSplit(tuple(map(LabelRows, labels, rows)))


def choose_positive(labels: Sequence[Label], positive_label: Label | None) -> Label:
    """Return the label that counts as 1: the one asked for, or the last; ArgumentError if it is none."""
    positive = labels[-1] if positive_label is None else positive_label
    if positive not in labels:
        fix = f"Take one of {', '.join(repr(label) for label in labels[:10])}."
        raise ArgumentError("positive_label", "be a label of 'y_true'", repr(positive_label), fix)
    return positive


def check_kept(kept: int, total: int, *, n_labels: int, min_rows: int) -> None:
    """Raise ArgumentError if most rows would be left out because too few others have their label."""
    if 2 * kept < total:
        must = f"be labels that most rows share with at least {min_rows - 1} others"
        got = f"{n_labels:,} different labels, and {total - kept:,} of {total:,} rows would be left out"
        raise ArgumentError("given", must, got, "Cut a number into a few bins, or merge rare labels.")
