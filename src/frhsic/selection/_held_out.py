"""Training rows and validation rows of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.model_selection import train_test_split

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, check_aligned, take_rows, to_sensitive, to_weights

_FEWEST: Final = 20  # validation rows


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows as passed; validation rows, with x as the last step sees it and s a Sensitive."""

    x: Any
    y: Any
    s: Any
    w: Any

    @property
    def parts(self) -> dict[str, Sensitive]:
        """The sensitive columns of validation rows one by one."""
        return {name: self.s.columns([name]) for name in self.s.names}


def hold_out(rows: Rows, validation: Any, *, stratify: bool, seed: int) -> tuple[Rows, Rows]:
    """Return training and validation rows; the latter are ``validation`` or, if it is a share, random."""
    n = _count(rows.x)
    s = to_sensitive(rows.s, n_rows=n)
    w = to_weights(rows.w, n_rows=n)
    if w is not None and bool((w == w[0]).all()):
        w = None  # equal weights are none
    if rows.y is not None and len(rows.y) != n:
        fix = "Drop or align the missing rows first."
        raise ArgumentError("y", f"have {n} rows like 'X'", len(rows.y), fix)
    rows = replace(rows, w=w)
    if isinstance(validation, float):
        return _split(rows, s, validation, stratify=stratify, seed=seed)
    return rows, _read(validation, s, needs_y=rows.y is not None)


def _read(validation: Any, s: Sensitive, *, needs_y: bool) -> Rows:
    given = validation
    if isinstance(given, Mapping):
        given = tuple(given.get(name) for name in ("data", "target", "sensitive_features"))
    if not isinstance(given, tuple) or len(given) not in (3, 4):
        raise TypeError(
            "'validation' must be a share of the rows, or validation rows (X, y, sensitive_features). Got "
            f"{type(validation).__name__}. Write validation=0.2, or pass a tuple."
        )
    x, y, s_held, *weights = given
    check_aligned(**{f"validation[{j}]": part for j, part in enumerate(given)})
    n = _count(x)
    if needs_y and (y is None or len(y) != n):
        got = None if y is None else len(y)
        fix = "Pass (X, y, sensitive_features)."
        raise ArgumentError("validation", f"have a y of {n} rows like its X", got, fix)
    _check_count(n, "hold", "Pass more rows.")
    like = None if isinstance(s_held, Sensitive) else s
    held_s = to_sensitive(s_held, name="validation", like=like, n_rows=n, rows_of="its X")
    if (held_s.names, held_s.kinds) != (s.names, s.kinds):
        must = "have the sensitive columns of 'sensitive_features', in their order and of their kinds"
        raise ArgumentError("validation", must, f"{held_s!r} beside {s!r}", "Pass the same columns.")
    w = to_weights(*weights, n_rows=n, name="validation") if weights else None
    return Rows(x, y, held_s, w)


def _split(rows: Rows, s: Sensitive, share: float, *, stratify: bool, seed: int) -> tuple[Rows, Rows]:
    if not 0 < share < 1:
        must = "lie between 0 and 1, a share of the rows"
        raise ArgumentError("validation", must, repr(share), "Try 0.2.")
    n = len(s)
    _check_count(math.ceil(share * n), "hold out", f"There are {n} rows. Pass more, or a larger share.")
    labels = None
    if rows.y is not None and stratify:
        labels = np.unique(np.asarray(rows.y), return_inverse=True)[1].ravel()
    try:
        train, held = train_test_split(np.arange(n), test_size=share, stratify=labels, random_state=seed)
    except ValueError:  # a class of a single row, or more classes than rows
        train, held = train_test_split(np.arange(n), test_size=share, random_state=seed)
    held_s = s[torch.from_numpy(held)]
    for name, column in zip(s.names, held_s.values.T, strict=True):
        if bool((column == column[0]).all()):
            got = f"a single value of '{name}' in all {len(held)}"
            fix = "Leave the column out, or hold out more rows."
            raise ArgumentError("sensitive_features", "vary among the validation rows", got, fix)
    kept = Rows(*(take_rows(part, train) for part in (rows.x, rows.y, rows.s, rows.w)))
    return kept, Rows(take_rows(rows.x, held), take_rows(rows.y, held), held_s, take_rows(rows.w, held))


def _count(x: Any) -> int:
    return int(x.shape[0]) if issparse(x) else len(x)


def _check_count(rows: int, verb: str, fix: str) -> None:
    if rows < _FEWEST:
        raise ArgumentError("validation", f"{verb} at least {_FEWEST} rows to judge models on", rows, fix)
