"""Columns as they arrived, and their way to finite numbers or to labels."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import torch

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.data._alignment import check_length
from frhsic.data._sensitive import Label
from frhsic.data._text_numbers import TextNumbers

AnyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Squares of larger numbers, and sums of such squares, leave float64.
_LARGEST = 1e150
_SMALLEST = 1e-75  # fourth powers of smaller numbers, of which variances of variances are made, vanish
# What to do about entries that are neither numbers nor labels, by numpy's letter for their dtype.
REJECTED_DTYPES = {
    "S": ("bytes", "Decode them to strings first."),
    "M": ("dates or times", "Convert them to a number, for example to years."),
    "m": ("durations", "Convert them to a number, for example to years."),
    "c": ("complex numbers", "Pass the real and the imaginary part as two columns."),
    "V": ("structured records", "Pass a dict of columns or a frame."),
}


@dataclass(frozen=True, eq=False)
class Block:
    """Columns of one type, ``(n,)`` or ``(n, d)``, of an argument that error messages name.

    A column of a frame has a name. ``labelled`` says that the entries are categories, whatever their type.
    """

    array: AnyArray
    argument: str
    name: str | None = None
    labelled: bool = False

    @property
    def place(self) -> str:
        """The words in an error message that name the column."""
        return describe_place(self.name)

    def columns(self) -> list[Block]:
        """Return the columns one by one."""
        return [self] if self.array.ndim == 1 else [Block(column, self.argument) for column in self.array.T]

    def check_rows(self, n_rows: int | None = None, rows_of: str = "X", min_rows: int = 1) -> None:
        """Raise ArgumentError unless there are ``n_rows`` rows, as in ``rows_of``, and enough of them."""
        n = len(self.array)
        if n_rows is not None:
            check_length(self.argument, n, n_rows, rows_of)
        least = max(min_rows, 1)
        if n < least:
            raise ArgumentError(self.argument, f"have at least {least} rows", n, "Pass more rows.")

    def find_missing(self) -> AnyArray:
        """Return a mask of the missing entries, in the shape of the array."""
        if self.array.dtype.kind == "f":
            return np.isnan(self.array)
        if self.array.dtype != object:
            return np.zeros(self.array.shape, dtype=bool)
        entries = self.array.ravel().tolist()
        return _mark_missing(entries, _sort_types(entries)).reshape(self.array.shape)

    def settle(self) -> Block:
        """Give objects that are numbers or booleans a plain dtype; only text and categories stay objects."""
        if self.array.dtype != object:
            return self
        entries = self.array.ravel().tolist()
        sorts = _sort_types(entries)
        found = set(sorts.values())
        missing = _mark_missing(entries, sorts)
        if missing.any():
            raise missing_error(missing.reshape(self.array.shape), self.argument, self.place)
        if self.labelled or found == {"text"}:
            return self
        if not found <= {"boolean", "number"}:
            raise self._mixed_error(entries, sorts)
        if found == {"boolean"}:
            return replace(self, array=self.array.astype(bool))
        whole = all(issubclass(kind, numbers.Integral) for kind in sorts) and max(map(abs, entries)) < 2**63
        try:
            return replace(self, array=self.array.astype(np.int64 if whole else np.float64))
        except Exception:
            raise self._too_large_error(_LARGEST) from None

    def settle_gaps(self) -> tuple[Block, AnyArray]:
        """Settle a column that may have missing entries; return the mask of these too."""
        missing, block = self.find_missing(), self
        if missing.any() and not missing.all():
            # Filled rather than dropped, so that error messages count the rows right.
            labels = self.labelled or all(isinstance(v, str) for v in self.array[~missing].tolist())
            array = self.array.copy()
            array[missing] = "" if labels else 0
            block = replace(self, array=array)
        return block if missing.all() else block.settle(), missing

    def to_numbers(self, dtype: torch.dtype = torch.float64) -> AnyArray:
        """Return contiguous native float64, all finite and small enough to be squared in ``dtype``."""
        block = self.settle()
        if block.array.dtype == object:
            raise block._text_error()
        largest = min(_LARGEST, torch.finfo(dtype).max ** 0.5)
        with np.errstate(all="ignore"):
            # Writable, because torch warns about memory that it may not write to.
            array = np.require(block.array, np.float64, ["C", "A", "W"])
            low, high = array.min(), array.max()
        if low >= -largest and high <= largest:  # False for NaN
            if max(-low, high) > 2.0**53:
                self._warn_collapsed(block.array)
            # Columns of X are scaled before anything is made of them.
            if self.argument != "X" and 0.0 < max(-low, high) < _SMALLEST:
                must = f"exceed {_SMALLEST:.0e} in size{self.place}, so that powers do not vanish"
                got, fix = f"at most {max(-low, high):.3g}", "Rescale it, for example to unit variance."
                raise ArgumentError(self.argument, must, got, fix)
            return array
        if np.isnan(low):
            raise missing_error(np.isnan(array), self.argument, self.place)
        if np.isinf(low) or np.isinf(high):
            got = f"{int(np.isinf(array).sum())} infinite values (inf)"
            raise ArgumentError(self.argument, f"be finite{self.place}", got, "Drop or replace them first.")
        raise self._too_large_error(largest)

    def _warn_collapsed(self, settled: AnyArray) -> None:
        """Warn if whole numbers that differ are the same as float64, which lacks many beyond 2^53."""
        if self.array.dtype == object and settled.dtype.kind == "f":  # beyond 2^63
            kinds = set(map(type, self.array.ravel().tolist()))
            settled = self.array if all(issubclass(one, numbers.Integral) for one in kinds) else settled
        if settled.dtype.kind == "f":
            return
        for column in settled.reshape(len(settled), -1).T:
            before, after = len(np.unique(column)), len(np.unique(column.astype(np.float64)))
            if after < before:
                warnings.warn(
                    f"'{self.argument}' has {before:,} different whole numbers{self.place}, beyond 2^53, of "
                    f"which {before - after:,} become the same as another one in float64. Subtract the "
                    "smallest first, or pass labels as strings.",
                    stacklevel=2,
                )
                return

    def factor(self) -> tuple[tuple[Label, ...], AnyArray]:
        """Return the distinct labels of a settled column, sorted, and each row's place among them."""
        if self.array.dtype == object:
            entries = self.array.tolist()
            if set(map(type, entries)) != {str}:
                entries = [to_label(v) for v in entries]
            labels = sorted(set(entries), key=lambda v: (isinstance(v, str), v))
            code = {label: j for j, label in enumerate(labels)}
            codes = np.fromiter(map(code.__getitem__, entries), dtype=np.int64, count=len(entries))
            return tuple(labels), codes
        array = self.to_numbers() if self.array.dtype.kind == "f" else self.array
        distinct, codes = np.unique(array, return_inverse=True)
        return tuple(distinct.tolist()), codes

    def _mixed_error(self, entries: list[Any], sorts: dict[type, str]) -> Exception:
        first = next(i for i, v in enumerate(entries) if sorts[type(v)] not in ("boolean", "number"))
        kind = type(entries[first])
        must = f"hold numbers only, or labels of one type only{self.place}"
        got = f"a '{kind.__name__}' in row {first // (len(entries) // len(self.array))}"
        if sorts[kind] == "other":
            fix = "Convert it: each argument must be a string or a number."
            return TypeError(f"'{self.argument}' must {must}. Got {got}. {fix}")
        fix = REJECTED_DTYPES["M"][1]
        if sorts[kind] != "date":
            fix = "Convert the entries to numbers, or all of them to strings."
        return ArgumentError(self.argument, must, got, fix)

    def _text_error(self) -> ArgumentError:
        got, fix = "strings", "Encode them as numbers first; frhsic.TableEncoder does."
        if self.labelled:
            got = "categories"
        elif (found := TextNumbers.count(self.array.ravel().tolist())).mostly:
            got, fix = str(found), f"{found.fix}."
        return ArgumentError(self.argument, f"hold numbers{self.place}", got, fix)

    def _too_large_error(self, largest: float) -> ArgumentError:
        must = f"stay within {largest:.0e} in size{self.place}, so that squares stay finite"
        fix = "Rescale it, for example to unit variance."
        return ArgumentError(self.argument, must, "a larger number", fix)


def describe_place(column: str | None) -> str:
    """Return the words in an error message that name a column; none for a column without a name."""
    return "" if column is None else f" in column {list_names([column])}"


def missing_error(missing: AnyArray, argument: str, place: str) -> ArgumentError:
    """Return the error about missing entries, from their mask."""
    row = int(missing.reshape(len(missing), -1).any(axis=1).argmax())
    fill = "; frhsic.TableEncoder fills them" if argument == "X" else ""
    got = f"{int(missing.sum())} (None, NaN, NaT or NA), the first in row {row}"
    fix = f"Drop or fill these rows first{fill}."
    return ArgumentError(argument, f"have no missing values{place}", got, fix)


def to_label(v: Any) -> Label:
    """Make an entry a plain Python label; intervals, dates and other categories become their text."""
    if isinstance(v, str):
        return str.__str__(v)
    if isinstance(v, (bool, np.bool_)):
        return bool(v)
    if isinstance(v, (int, np.integer)):
        return int(v)
    return float(v) if isinstance(v, (float, np.floating)) else str(v)


def _sort_types(entries: Iterable[object]) -> dict[type, str]:
    """Return what each type among the entries is: a long column has few types."""
    return {kind: _sort_type(kind) for kind in set(map(type, entries))}


def _sort_type(kind: type) -> str:
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


def _mark_missing(entries: list[Any], sorts: dict[type, str]) -> AnyArray:
    if not {"missing", "number"} & set(sorts.values()):
        return np.zeros(len(entries), dtype=bool)
    marks = ((s := sorts[type(v)]) == "missing" or (s == "number" and _is_nan(v)) for v in entries)
    return np.fromiter(marks, dtype=bool, count=len(entries))


def _is_nan(v: Any) -> bool:
    # A signalling Decimal raises when it is compared.
    return v.is_nan() if isinstance(v, Decimal) else bool(v != v)
