"""Sensitive columns: names, kinds, and numbers for their categories."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import numpy as np
import torch

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.data._block import AnyArray, Block, describe_place, missing_error
from frhsic.data._convert import stack
from frhsic.data._reading import read_columns
from frhsic.data._sensitive import Kind, Label, Sensitive, default_names
from frhsic.data._text_numbers import TextNumbers, parse_number


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
        The number of rows that it must have.
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
        fix = "Leave 'kinds' out, or set it when the earlier columns are read."
        raise ArgumentError("kinds", "be None where 'like' fixes the kinds", "both", fix)
    if isinstance(s, Sensitive):
        if kinds is not None or like is not None:
            must = "not be a Sensitive where 'kinds' or 'like' is given: its kinds are chosen"
            raise ArgumentError(name, must, "one", "Leave them out, or pass the columns as they were before.")
        s = Sensitive(s.values.detach().cpu().double(), s.names, s.kinds, s.categories)
        Block(s.values.numpy(), name).check_rows(n_rows, rows_of, min_rows)
        return _check_values(s, name, allow_constant)
    columns = read_columns(s, name)
    columns[0].check_rows(n_rows, rows_of, min_rows)
    titles = default_names(len(columns))
    given = {key if c.name is None else c.name: c for key, c in zip(titles, columns, strict=True)}
    if like is not None:
        given = _match(given, like, name)
    given = {key: column.settle() for key, column in given.items()}
    chosen = like.kinds if like is not None else _choose_kinds(kinds, given)
    if like is None and not numeric_labels:
        for key, column in given.items():
            if not isinstance(kinds, str) and key not in {str(known) for known in kinds or ()}:
                _check_text(column, key)
    known = (like.categories if like is not None else ()) or (None,) * len(given)
    values, categories = [], []
    for column, kind, labels in zip(given.values(), chosen, known, strict=True):
        if kind == "categorical" and like is not None and labels is None:
            must = "carry the labels of its categorical columns"
            raise ArgumentError("like", must, f"none{column.place}", "Make it with 'to_sensitive'.")
        encoded, found = _encode(column, kind, labels)
        if not allow_constant:
            _check_varies(encoded, name, column.place)
        values.append(encoded)
        categories.append(found)
    return Sensitive(stack(values, torch.float64), tuple(given), chosen, tuple(categories))


def _check_values(s: Sensitive, name: str, allow_constant: bool) -> Sensitive:
    """Return columns that were read before, if they are finite and vary."""
    for column, title in zip(s.values.T.numpy(), s.names, strict=True):
        if not np.isfinite(column).all():
            raise missing_error(~np.isfinite(column), name, describe_place(title))
        if not allow_constant:
            _check_varies(column, name, describe_place(title))
    return s


def _encode(
    column: Block, kind: Kind, known: tuple[Label, ...] | None
) -> tuple[AnyArray, tuple[Label, ...] | None]:
    """Turn a settled column into values and, if it is categorical, its labels in code order."""
    if kind == "continuous" and column.array.dtype != object:
        return column.to_numbers(), None
    labels, codes = column.factor()
    if kind == "continuous":
        parsed = [parse_number(label) for label in labels]
        wrong = [label for label, v in zip(labels, parsed, strict=True) if not math.isfinite(v)]
        if wrong:
            must = f'hold numbers{column.place}, because its kind is "continuous"'
            fix = 'Mend these entries or make the column "categorical".'
            raise ArgumentError(column.argument, must, list_names(wrong), fix)
        return Block(np.array(parsed)[codes], column.argument, column.name).to_numbers(), None
    if known is None:
        return codes.astype(np.float64), labels
    code = {label: j for j, label in enumerate(known)}
    unseen = [label for label in labels if label not in code]
    if unseen:
        must = f"hold the known categories only{column.place}: {list_names(known)}"
        fix = "Drop or recode these rows, or fit again on data that contain them."
        raise ArgumentError(column.argument, must, f"also {list_names(unseen)}", fix)
    return np.array([code[label] for label in labels], dtype=np.float64)[codes], known


def _check_text(column: Block, key: str) -> None:
    """Raise for text that is mostly numbers. With two labels either kind is the same split of the rows."""
    if column.array.dtype != object or column.labelled:
        return
    found = TextNumbers.count([str.__str__(text) for text in column.array.tolist()])
    if found.labels < 3 or not found.mostly:
        return
    possible = ("categorical",) if found.others else ("continuous", "categorical")
    kinds = [f"kinds={{'{key}': '{kind}'}}" for kind in possible]
    must = f"hold numbers or labels{column.place}, not text that is mostly numbers: its kind would be a guess"
    fix = f"{found.fix}, or say what it is: {' or '.join(kinds)}, here or in frhsic.data.to_sensitive."
    raise ArgumentError(column.argument, must, found, fix)


def _choose_kinds(kinds: object, given: Mapping[str, Block]) -> tuple[Kind, ...]:
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
            must = f"name columns among {list_names(list(given))}"
            raise ArgumentError("kinds", must, list_names([key]), "Correct the name.")
        if not isinstance(kind, str) or kind not in ("continuous", "categorical"):
            must = "be 'continuous' or 'categorical'"
            raise ArgumentError("kinds", must, list_names([kind]), "Choose one of the two.")
        chosen[str(key)] = cast(Kind, kind)
    return tuple(chosen.values())


def _match(given: dict[str, Block], like: Sensitive, name: str) -> dict[str, Block]:
    """Put columns into the order of ``like``, by name; one unnamed column needs no name to match one."""
    if len(given) == len(like.names) == 1 and all(column.name is None for column in given.values()):
        return dict(zip(like.names, given.values(), strict=True))
    if set(given) != set(like.names):
        must = f"have the columns {list_names(like.names)} as before"
        raise ArgumentError(name, must, list_names(list(given)), "Add, drop or rename columns.")
    return {key: given[key] for key in like.names}


def _check_varies(column: AnyArray, argument: str, place: str) -> None:
    if column.min() == column.max():
        fix = "Leave the column out or pass rows in which it differs."
        raise ArgumentError(argument, f"vary{place}", f"a single value in all {len(column)} rows", fix)
