"""Factors of any kind as numbers, and features of a score or of S that see more than its mean."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, read_columns

Floats: TypeAlias = NDArray[np.float64]

_MOST_LABELS: Final = 30  # of a column; the rarer ones are one together
# Of factors that are held equal: labels of a column, and columns with the indicators of labels.
_MOST_HELD_LABELS, _MOST_HELD_COLUMNS = 1_000, 100
MOST_CATEGORIES: Final = 40  # of a sensitive column


class Factors(NamedTuple):
    """Columns that are held equal, as numbers."""

    names: tuple[str, ...]
    x: Floats  # (n, p): numbers with their median where one is missing, and indicators
    owner: NDArray[np.int64]  # (p,): the column that each belongs to
    numeric: NDArray[np.bool_]  # (p,)

    def take(self, rows: NDArray[Any]) -> Factors:
        """Return some rows."""
        return self._replace(x=self.x[rows])


def read_factors(
    given: object, n_rows: int, *, argument: str = "given", allow_constant: bool = False
) -> Factors:
    """Return the columns of a frame, dict or array as numbers; missing entries get an indicator.

    With ``allow_constant`` columns that hold nothing, or one value, may be all that there is.
    """
    if isinstance(given, Factors):
        return given
    if given is None:
        fix = "Pass a frame or dict of columns, such as {'income': income}."
        raise ArgumentError(argument, "be the factors that are held equal", None, fix)
    blocks = read_columns(given, argument)
    blocks[0].check_rows(n_rows, "scores")
    names, parts, owner, numeric = [], [], [], []
    for j, block in enumerate(blocks):
        names.append(f"x{j}" if block.name is None else block.name)
        settled, missing = block.settle_gaps()
        if missing.all() and allow_constant:
            continue
        if missing.all():
            fix = "Leave the column out."
            raise ArgumentError(argument, f"hold a value{block.place}", "none", fix)
        is_number = settled.array.dtype != object
        columns = _numbers(settled.to_numbers(), missing) if is_number else _labels(settled, missing)
        kept = [column for column in columns if np.ptp(column) > 0]
        if argument == "given" and not is_number:
            _check_labels(settled, missing)
        parts += kept
        owner += [j] * len(kept)
        numeric += [is_number and k == 0 for k in range(len(kept))]
    if not parts and allow_constant:
        parts = [np.empty((n_rows, 0))]
    if not parts:
        raise ArgumentError(argument, "have a column that varies", "constants", "Pass other columns.")
    if argument == "given" and len(parts) > _MOST_HELD_COLUMNS:
        each = f"an indicator of each of up to {_MOST_LABELS} labels counted"
        must = f"make at most {_MOST_HELD_COLUMNS} columns, {each}"
        fix = "Pass fewer factors: those that you would name as reasons."
        raise ArgumentError(argument, must, f"{len(parts):,} of {len(blocks):,} factors", fix)
    return Factors(tuple(names), np.column_stack(parts), np.array(owner), np.array(numeric))


def _check_labels(block: Any, missing: NDArray[np.bool_]) -> None:
    """Raise ArgumentError for a column of so many labels that holding their commonest equal says little."""
    labels, _ = block.factor()
    count = len(labels) - int(missing.any())
    if count > _MOST_HELD_LABELS:
        must = f"have at most {_MOST_HELD_LABELS:,} labels{block.place}"
        fix = "Merge labels, such as districts for postcodes, or leave an identifier out."
        raise ArgumentError("given", must, f"{count:,}", fix)


def _numbers(x: Floats, missing: NDArray[np.bool_]) -> list[Floats]:
    filled = np.where(missing, np.median(x[~missing]), x)
    return [filled, missing.astype(np.float64)] if missing.any() else [filled]


def _labels(block: Any, missing: NDArray[np.bool_]) -> list[Floats]:
    """Return an indicator of each label but the commonest; rare ones together, missing ones apart."""
    _, code = block.factor()
    code = np.where(missing, -1, code)
    labels, counts = np.unique(code[~missing], return_counts=True)
    order = labels[np.argsort(-counts, kind="stable")]
    found = [(code == label).astype(np.float64) for label in order[1:_MOST_LABELS]]
    if len(order) > _MOST_LABELS:
        found.append(np.isin(code, order[_MOST_LABELS:]).astype(np.float64))
    return [*found, missing.astype(np.float64)] if missing.any() else found


def sum_by_unit(x: Floats, groups: NDArray[np.int64] | None, n_units: int) -> Floats:
    """Return rows summed within groups; the rows where there are none."""
    if groups is None:
        return x
    found = np.zeros((n_units, x.shape[1]))
    np.add.at(found, groups, x)
    return found


def middle_ranks(x: Floats, w: Floats) -> Floats:
    """Return the share of rows below each, and half of those equal to it."""
    _, index = np.unique(x, return_inverse=True)
    mass = np.bincount(index, weights=w) / w.sum()
    return np.asarray((np.cumsum(mass) - 0.5 * mass)[index])


def normal_scores(x: Floats) -> Floats:
    """Return normal quantiles at the ranks of each column."""
    ones = np.ones(len(x))
    return np.column_stack([ndtri(middle_ranks(column, ones)) for column in x.T])


def polynomials(x: Floats, w: Floats, degree: int) -> Floats:
    """Return polynomials of the ranks of x, orthonormal to each other and to one under the weights.

    Of fewer values than degrees they span all functions of x.
    """
    ranks = middle_ranks(x, w)
    degree = min(degree, len(np.unique(x)) - 1)
    columns: Floats = np.asarray(np.polynomial.legendre.legvander(2.0 * ranks - 1.0, degree), np.float64)
    return _orthonormal(columns, w)


def _orthonormal(columns: Floats, w: Floats) -> Floats:
    """Return columns orthonormal under the weights, the first of which is constant and left out."""
    root = np.sqrt(w / w.sum())[:, None]
    q, r = np.linalg.qr(root * columns)
    kept = np.abs(r.diagonal()) > 1e-8 * np.abs(r).max()
    return np.asarray((q * np.sign(r.diagonal()) / root)[:, kept][:, 1:])


def sensitive_features(s: Sensitive, w: Floats, degree: int) -> Floats:
    """Return features of one sensitive column: polynomials of its ranks, or its categories."""
    x = s.values[:, 0].numpy()
    if s.kinds[0] == "continuous":
        return polynomials(x, w, degree)
    labels, code = np.unique(x, return_inverse=True)
    if len(labels) > MOST_CATEGORIES:
        must = f"have at most {MOST_CATEGORIES} categories"
        raise ArgumentError("sensitive_features", must, len(labels), "Merge labels.")
    indicators = (code[:, None] == np.arange(len(labels))).astype(np.float64)
    return _orthonormal(np.column_stack((np.ones(len(x)), indicators[:, 1:])), w)
