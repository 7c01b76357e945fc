"""The numbers of rows, by which their groups and the stored rows are drawn; the stored rows."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive

# Rows that are kept as they are.
STORED = 5_000
# Above every number of a row: nothing had to be left out.
ALL = 2**63 - 1


class Sample(NamedTuple):
    """The stored rows: all those whose number is below ``bound``, by their numbers."""

    numbers: Tensor  # (m,) int64
    z: Tensor  # (m, d)
    s: Tensor  # (m, q), categories as codes
    w: Tensor  # (m,)
    bound: int = ALL

    @property
    def whole(self) -> bool:
        """Whether no row had to be left out."""
        return self.bound == ALL

    def join(self, other: Sample) -> Sample:
        """Return at most 5,000 rows of both: all below some number, so that no order matters."""
        bound = min(self.bound, other.bound)
        numbers, z, s, w = (torch.cat(pair) for pair in zip(self[:4], other[:4], strict=True))
        order = numbers.argsort(stable=True)
        if len(order) > STORED:
            bound = min(bound, int(numbers[order[STORED]]))
        order = order[: int((numbers < bound).sum())]
        return Sample(numbers[order], z[order], s[order], w[order], bound)

    def take(self, rows: Tensor) -> Sample:
        return Sample(self.numbers[rows], self.z[rows], self.s[rows], self.w[rows], self.bound)


class Stored(NamedTuple):
    """Rows of a sketch as they were passed: a random subsample, or all of them."""

    z: Tensor  # (m, d)
    s: Sensitive
    weights: Tensor  # (m,)


def row_numbers(ids: NDArray[np.int64], units: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return 63 bits for each id that look random; their low half, which chooses the group, by the unit."""
    if units is not None:
        low = np.int64(2**31 - 1)
        return (row_numbers(ids) & ~low) | (row_numbers(units) & low)
    x = ids.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)  # the finaliser of splitmix64
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(1)).view(np.int64)


def groups_of(numbers: Tensor, n_groups: int) -> Tensor:
    """Return the group of each row: by the low half of its number, since the stored rows have small ones."""
    return (numbers & (2**31 - 1)).mul_(n_groups).bitwise_right_shift_(31)


def read_ids(ids: object, n: int) -> NDArray[np.int64]:
    array = np.asarray(ids)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        must, got = f"be {n} integers, one for each row of 'z'", f"{array.dtype} of shape {array.shape}"
        raise ArgumentError("ids", must, got, "Number the rows, or turn other ids into integers.")
    return np.ascontiguousarray(array.astype(np.int64, copy=False))


def read_units(groups: object, n: int) -> NDArray[np.int64]:
    """Return 64 bits for the unit of each row, the same on all machines."""
    array = np.asarray(groups)
    if array.shape != (n,) or (array.dtype.kind not in "iuOUT"):
        got = f"{array.dtype} of shape {array.shape}"
        fix = "Pass the column that tells independent units apart, such as a customer number."
        raise ArgumentError("groups", f"be {n} integers or strings, one for each row of 'z'", got, fix)
    if array.dtype.kind in "iu":
        return np.ascontiguousarray(array.astype(np.int64, copy=False))
    labels, codes = np.unique(array.astype(str), return_inverse=True)
    digests = b"".join(hashlib.blake2b(x.encode(), digest_size=8).digest() for x in labels)
    return np.frombuffer(digests, "<i8").astype(np.int64)[codes.reshape(-1)]
