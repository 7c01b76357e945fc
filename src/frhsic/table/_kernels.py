"""Kernels between cells: Gram matrices, bandwidths by rule, and what centring leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from frhsic.table._axis import Floats, Integers
from frhsic.table._table import Law


def median_distance(x: Floats, rows: Floats) -> float:
    """Return the lower median of the distances between two different rows, of cells at x with so many rows.

    When half of the pairs coincide it is the median of the others; when all do, 1. Weights do not count: the
    rule is about rows, and a function of the margin of x alone.
    """
    order = np.argsort(x, kind="stable")
    x, c = x[order], rows[order]
    i, j = np.triu_indices(len(x), 1)
    distances, pairs = x[j] - x[i], c[i] * c[j]
    apart = distances > 0
    distances, pairs = distances[apart], pairs[apart]
    if not len(distances):
        return 1.0
    total = 0.5 * c.sum() * (c.sum() - 1.0)
    rank = np.argsort(distances, kind="stable")
    upto = np.cumsum(pairs[rank])
    together = total - upto[-1]
    # The lower median of N numbers is the one of rank (N - 1) // 2, from zero on.
    wanted = np.floor((total - 1.0) / 2.0) - together
    if wanted < 0:
        wanted = np.floor((upto[-1] - 1.0) / 2.0)
    return float(distances[rank][min(np.searchsorted(upto, wanted, side="right"), len(upto) - 1)])


def gaussian(x: Floats, sigma: float) -> Floats:
    """Return exp(-(x_i - x_j)^2 / 2 sigma^2)."""
    return np.asarray(np.exp(-0.5 * ((x[:, None] - x[None]) / sigma) ** 2))


def gram_s(law: Law, bandwidths: Sequence[float]) -> Floats:
    """Return the kernel on cells of S: Gaussian on each column of numbers, equality on each of labels."""
    K = np.ones((len(law.s), len(law.s)))
    for column, number, sigma in zip(law.s.T, law.numbers, bandwidths, strict=True):
        K *= gaussian(column, sigma) if number else column[:, None] == column[None]
    return K


class Bandwidths(NamedTuple):
    """Of the score, and of each column of S; 1 for labels."""

    z: float
    s: tuple[float, ...]

    @classmethod
    def of(cls, law: Law) -> Bandwidths:
        """Return the median distances of a law: functions of one margin each."""
        rows_s, rows_z = law.rows.sum(axis=1), law.rows.sum(axis=0)
        pairs = zip(law.s.T, law.numbers, strict=True)
        s = (median_distance(*gather(x, rows_s)) if number else 1.0 for x, number in pairs)
        return cls(median_distance(law.z, rows_z), tuple(s))

    def times(self, z: float, s: float) -> Bandwidths:
        """Return multiples."""
        return Bandwidths(z * self.z, tuple(s * sigma for sigma in self.s))


class Side:
    """A kernel on the cells of one column with the shares of its margin: K~ = H K H', H = I - 1 w'.

    ``slope`` is its derivative by the first argument, for rows that do not lie at the mean of their cell.
    """

    def __init__(self, gram: Floats, w: Floats, slope: Floats | None = None) -> None:
        self.gram, self.w, self.slope = gram, w, slope

    @classmethod
    def gaussian(cls, x: Floats, sigma: float, w: Floats) -> Side:
        """Return the side of a Gaussian kernel."""
        gram = gaussian(x, sigma)
        return cls(gram, w, -(x[:, None] - x[None]) / sigma**2 * gram)

    @cached_property
    def centred(self) -> Floats:
        """K~ between cells."""
        mean = self.gram @ self.w
        return np.asarray(self.gram - mean[:, None] - mean[None] + self.w @ mean)

    @cached_property
    def centred_slope(self) -> Floats | None:
        """The derivative of K~ by its first argument, but for what centring that argument adds."""
        return None if self.slope is None else self.slope - (self.slope @ self.w)[:, None]

    @property
    def diagonal(self) -> Floats:
        """K~(x, x) of a row in each cell."""
        return np.diagonal(self.centred)

    def eigen(self) -> tuple[Floats, Floats]:
        """Return the eigenvalues of D^1/2 K~ D^1/2, smallest first and not below zero, and its vectors.

        Directions are judged so by how much of the rows lies in them; D holds the shares.
        """
        root = np.sqrt(self.w)
        values, vectors = np.linalg.eigh(self.centred * root[:, None] * root)
        return np.maximum(values, 0.0), vectors

    def factor(self, negligible: float) -> Floats:
        """Return V with V V' = K~, without directions below a part of the largest; no cell is empty."""
        values, vectors = self.eigen()
        some = values > negligible * values[-1]
        return np.asarray(vectors[:, some] / np.sqrt(self.w)[:, None] * np.sqrt(values[some]))


def side_s(law: Law, bandwidths: Bandwidths) -> Side:
    """Return the side of S under :func:`gram_s`."""
    if len(bandwidths.s) == 1 and law.numbers[0]:
        return Side.gaussian(law.s[:, 0], bandwidths.s[0], law.p)
    return Side(gram_s(law, bandwidths.s), law.p)


def energy(x: Floats, numbers: bool = True) -> Floats:
    """Return the kernel of distance covariance, -|x_i - x_j| / 2; for labels half of their equality."""
    if not numbers:
        return 0.5 * np.asarray(x[:, None] == x[None], float)
    return np.asarray(-0.5 * np.abs(x[:, None] - x[None]))


class Factor(NamedTuple):
    """Columns C with K = C C' but for what is left of the diagonal, and the pivots that chose them."""

    columns: Floats  # (m, r)
    pivots: Integers  # (r,)
    left: Floats  # (m,)


def factor(diagonal: Floats, row: Callable[[int], Floats], most: int, tolerance: float) -> Factor:
    """Return Cholesky's factor with pivots of a kernel matrix of which one row at a time is looked at.

    It ends with ``most`` columns, or where nothing on the diagonal is left above the tolerance.
    """
    most = min(most, len(diagonal))
    columns, left, pivots = np.empty((most, len(diagonal))), diagonal.copy(), []
    for r in range(most):
        pivot = int(left.argmax())
        if left[pivot] < tolerance:
            break
        pivots.append(pivot)
        columns[r] = (row(pivot) - columns[:r, pivot] @ columns[:r]) / np.sqrt(left[pivot])
        left = np.maximum(left - columns[r] ** 2, 0.0)
        left[pivot] = 0.0
    return Factor(columns[: len(pivots)].T, np.array(pivots, np.int64), left)


def gather(x: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Return the different values of x with their rows."""
    values, index = np.unique(x, return_inverse=True)
    return values, np.bincount(index, rows).astype(float)
