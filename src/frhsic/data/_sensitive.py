"""Sensitive columns as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from frhsic._checks import ArgumentError

Kind = Literal["continuous", "categorical"]
Label: TypeAlias = str | bool | int | float


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
    >>> from frhsic.data import to_sensitive
    >>> s = to_sensitive({"age": [31, 45, 62], "sex": ["f", "m", "f"]})
    >>> s
    Sensitive(n=3, age: continuous, sex: categorical with 2 categories)
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
            must = "be (n, q) with q names and q kinds (and q or no categories)"
            counts = f"{len(self.names)} names, {len(self.kinds)} kinds and {len(self.categories)} categories"
            got = f"shape {tuple(self.values.shape)}, {counts}"
            raise ArgumentError("values", must, got, "Give each column its own name and kind.")
        if not set(self.kinds) <= {"continuous", "categorical"}:
            must = "be 'continuous' or 'categorical' for each column"
            fix = "Numbers are continuous, labels categorical."
            raise ArgumentError("kinds", must, list(self.kinds), fix)

    @classmethod
    def of(cls, values: Tensor) -> Sensitive:
        """Take a plain tensor ``(n,)`` or ``(n, q)`` as continuous columns "s", or "s0", "s1", ... ."""
        if values.ndim not in (1, 2):
            got = f"shape {tuple(values.shape)}"
            raise ArgumentError("s", "be (n,) or (n, q)", got, "Flatten it to one row each.")
        values = values.unsqueeze(-1) if values.ndim == 1 else values
        kinds: list[Kind] = ["continuous"] * values.shape[1]
        return cls(values, default_names(len(kinds)), tuple(kinds))

    def __len__(self) -> int:
        return self.values.shape[0]

    def __repr__(self) -> str:
        parts = [f"n={len(self)}"]
        labels = self.categories or (None,) * len(self.names)
        for name, kind, known in zip(self.names, self.kinds, labels, strict=True):
            parts.append(f"{name}: {kind}" + (f" with {len(known)} categories" if known is not None else ""))
        return f"Sensitive({', '.join(parts)})"

    def __getitem__(self, rows: Tensor) -> Sensitive:
        """Take rows by number or by mask, in the order given."""
        return Sensitive(self.values[rows], self.names, self.kinds, self.categories)

    def columns(self, names: Sequence[str]) -> Sensitive:
        """Take columns by name, in the order given."""
        unknown = [name for name in names if name not in self.names]
        if isinstance(names, str) or unknown or not names:
            fix = "Use the names of the sensitive columns."
            raise ArgumentError("names", f"be a list of names among {list(self.names)}", repr(names), fix)
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


def default_names(q: int) -> tuple[str, ...]:
    """Return the names of ``q`` columns without names: "s", or "s0", "s1", ... ."""
    return ("s",) if q == 1 else tuple(f"s{j}" for j in range(q))


def check_finite(s: Sensitive) -> None:
    """Raise ArgumentError for values that cannot be sorted into bins or neighbourhoods."""
    if not bool(torch.isfinite(s.values).all()):
        fix = "Drop those rows first; frhsic.data.to_sensitive says which column has them."
        raise ArgumentError("s", "be finite", "missing or infinite values", fix)
