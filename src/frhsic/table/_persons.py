"""Rows of a law by persons: whole persons make the blocks of which errors are taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from frhsic.table._axis import Floats, Integers
from frhsic.table._rows import Blocks

# Blocks of persons, and the numbers (of blocks times cells times levels) that are held at most beyond 32.
BLOCKS, _FEWEST, _MOST_NUMBERS = 256, 32, 16_000_000


@dataclass(frozen=True, eq=False)
class Persons:
    """Which rows of a law are of one person: rows of two persons are independent.

    Attributes
    ----------
    person, cell, level : arrays of int of shape (n,)
        Of each row; persons are 0, 1, ... in order.
    share : array of shape (n,)
        Of sum one.
    """

    person: Integers
    cell: Integers
    level: Integers
    share: Floats

    @classmethod
    def of(cls, person: Integers, cell: Integers, level: Integers, weights: Floats) -> Persons:
        """Return the rows sorted by persons, and these by what their rows are.

        Neither the order of the rows nor what the persons are called changes anything.
        """
        order = np.argsort(person, kind="stable")
        person, cell, level, weights = person[order], cell[order], level[order], weights[order]
        first = np.flatnonzero(np.concatenate(([True], np.diff(person) != 0)))
        size = np.diff(np.append(first, len(person)))
        content = np.add.reduceat(_mix(_mix(_mix(cell) + level.astype(np.uint64)) + _bits(weights)), first)
        place = np.empty(len(first), np.int64)
        place[np.argsort(content, kind="stable")] = np.arange(len(first))
        person = np.repeat(place, size)
        order = np.lexsort((weights, cell, level, person))
        return cls(person[order], cell[order], level[order], weights[order] / weights.sum())

    @cached_property
    def sums(self) -> Floats:
        """The share of each person."""
        return np.asarray(np.bincount(self.person, self.share), float)

    @property
    def count(self) -> int:
        """The number of persons."""
        return len(self.sums)

    @property
    def unit_square(self) -> float:
        """The sum of their squared shares."""
        return float(self.sums @ self.sums)

    def merge(self, groups: Integers) -> Persons:
        """Return the persons with cells of S merged: ``groups`` (m,) is the new cell of each."""
        return replace(self, cell=groups[self.cell])

    def sides(self) -> tuple[Floats, Floats]:
        """Return the effective numbers of persons with rows up to each level but the last, and above it."""
        k = int(self.level.max()) + 1
        up = self._squares_upto(np.arange(len(self.level)), k)[:-1]
        down = self._squares_upto(np.arange(len(self.level))[::-1], k)[::-1][1:]
        F = np.cumsum(np.bincount(self.level, self.share, k))
        return F[:-1] ** 2 / up, (F[-1] - F[:-1]) ** 2 / down

    def _squares_upto(self, order: Integers, k: int) -> Floats:
        """Return the sums of the squared shares that persons have up to each level, of rows in an order."""
        person, share = self.person[order], self.share[order]
        level = self.level[order] if order[0] == 0 else k - 1 - self.level[order]
        upto = np.cumsum(share)
        first = np.flatnonzero(np.concatenate(([True], np.diff(person) != 0)))
        size = np.diff(np.append(first, len(person)))
        before = upto - share - np.repeat(upto[first] - share[first], size)
        return np.cumsum(np.bincount(level, share * (2.0 * before + share), k))

    def blocks(self, firsts: Integers, cells: int, seed: int, most: int = BLOCKS) -> Blocks:
        """Return blocks of equally many persons at random, with neighbouring levels merged."""
        size = min(self.count, most, max(_FEWEST, _MOST_NUMBERS // (cells * len(firsts))))
        block = np.random.default_rng([seed, 3]).permutation(self.count) % size
        block = block[self.person]
        order = np.argsort(block, kind="stable")
        level = np.searchsorted(firsts, self.level, side="right") - 1
        shape = (cells, len(firsts))
        return Blocks(
            block[order], self.cell[order], level[order], self.share[order], shape, self.unit_square
        )


def _bits(x: Floats) -> NDArray[np.uint64]:
    return np.ascontiguousarray(x, float).view(np.uint64)


def _mix(x: Integers | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return whole numbers that look random, the same for the same numbers (splitmix64)."""
    y = x.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    y = (y ^ (y >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    y = (y ^ (y >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(y ^ (y >> np.uint64(31)))
