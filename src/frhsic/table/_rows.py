"""The joint law of S and a score as errors see it: shares, their variances, and influences of rows."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from frhsic.table._axis import Floats, Integers
from frhsic.table._table import Law


def merge_levels(shares: Floats, z: Floats, size: int) -> Integers:
    """Return the first levels of at most about ``size`` groups of neighbouring levels.

    Of equal parts of the mean of two things: the rows, and the noise sqrt(F (1 - F)) dz of the cut-offs, so
    that long tails of a score are not one level.
    """
    k = len(z)
    if k <= size:
        return np.arange(k)
    q = shares.sum(axis=0)
    F = np.cumsum(q)
    noise = np.sqrt(np.clip(F * (1.0 - F), 0.0, None))[:-1] * np.diff(z)
    steps = 0.5 * (q[:-1] + q[1:]) + noise / noise.sum()
    upto = np.concatenate(([0.0], np.cumsum(steps)))
    group = np.minimum(np.floor(upto / upto[-1] * size), size - 1)
    return np.flatnonzero(np.concatenate(([True], np.diff(group) > 0)))


class Rows(NamedTuple):
    """The joint law that errors are taken of: shares and sums of squared weights.

    Where several rows are of one person, ``blocks`` hold the shares of blocks of whole persons.
    """

    shares: Floats  # (m, k), of sum one
    squares: Floats  # (m, k)
    z: Floats  # (k,)
    blocks: Blocks | None = None

    @classmethod
    def of(cls, law: Law, firsts: Integers, blocks: Blocks | None = None) -> Rows:
        """Return the law with neighbouring levels merged, as those of the blocks are."""
        q = law.q
        z = np.add.reduceat(q * law.z, firsts) / np.add.reduceat(q, firsts)
        shares, squares = (np.add.reduceat(x, firsts, axis=1) for x in (law.shares, law.squares))
        return cls(shares, squares, z, blocks)

    @property
    def independent(self) -> Rows:
        """The law with the same margins under independence of S and the score."""
        P, Q = self.shares, self.squares
        squares = Q.sum(axis=1)[:, None] * Q.sum(axis=0) * (self.inflation / Q.sum())
        shares = P.sum(axis=1)[:, None] * P.sum(axis=0)
        return self._replace(shares=shares, squares=squares, blocks=None)

    @property
    def inflation(self) -> float:
        """The variance of a covariance under independence over that of independent rows."""
        return 1.0 if self.blocks is None else self.blocks.inflation(self)

    @property
    def unit_square(self) -> float:
        """The sum of the squared shares of the independent units: rows, or persons."""
        return float(self.squares.sum()) if self.blocks is None else self.blocks.unit_square


class Blocks:
    """Shares of blocks of whole persons, of which errors are sums that are independent of one another.

    A mean of phi over rows has the variance B / (B - 1) sum_b (sum_il P_b,il phi_il)^2, with phi of mean zero
    and P_b the shares of block b. Of blocks of unequal size B is one over the sum of their squared shares.

    Parameters
    ----------
    block, cell, level : arrays of int of shape (e,)
        Of each entry; blocks in order.
    share : array of shape (e,)
        Of sum one.
    shape : tuple of int
        The numbers of cells and levels.
    unit_square : float
        The sum of the squared shares of persons.
    """

    def __init__(
        self,
        block: Integers,
        cell: Integers,
        level: Integers,
        share: Floats,
        shape: tuple[int, int],
        unit_square: float,
    ) -> None:
        self.block, self.cell, self.level, self.share = block, cell, level, share
        self.shape, self.unit_square = shape, unit_square
        self.size = int(block[-1]) + 1
        self.sums = np.bincount(block, share, self.size)
        effective = 1.0 / float(self.sums @ self.sums)
        self.degrees = max(effective - 1.0, 1.0)
        self._root = math.sqrt(effective / self.degrees)
        self._errors: dict[type, Floats] = {}

    def errors(self, rows: Rows, features: Features) -> Floats:
        """Return the error of each C_ir that each block adds, (B, m, r): its squares add up to a variance."""
        if type(features) not in self._errors:
            p, q = rows.shares.sum(axis=1), rows.shares.sum(axis=0)
            C = features.covariances(rows.shares)
            added = np.empty((self.size, *C.shape))
            starts = np.searchsorted(self.block, np.arange(self.size + 1))
            place = self.cell * self.shape[1] + self.level
            for b in range(self.size):
                inside = slice(starts[b], starts[b + 1])
                P = np.bincount(place[inside], self.share[inside], math.prod(self.shape)).astype(float)
                added[b] = linear_errors(P.reshape(self.shape), features, p, q) - self.sums[b] * C
            self._errors[type(features)] = self._root * added
        return self._errors[type(features)]

    @cached_property
    def levels(self) -> Floats:
        """The error of the share of each level that each block adds, (B, k)."""
        return self._margin(self.level, self.shape[1])

    def _margin(self, code: Integers, size: int) -> Floats:
        sums = np.bincount(self.block * size + code, self.share, self.size * size).reshape(-1, size)
        return np.asarray(self._root * (sums - self.sums[:, None] * sums.sum(axis=0)))

    def inflation(self, rows: Rows) -> float:
        """Return the variance of a covariance under independence over that of independent rows.

        1 + (D - 1) r_s r_z: D is the mean number of rows of the person of a row (weighted), r_s and r_z the
        correlations of the cells, and of the decisions, of two rows of one person.
        """
        square = float(rows.squares.sum())
        design = self.unit_square / square
        ratios = []
        for axis, added in (
            (1, self._margin(self.cell, self.shape[0])),
            (0, np.cumsum(self.levels, axis=1)[:, :-1]),
        ):
            p, own = rows.shares.sum(axis=axis), rows.squares.sum(axis=axis)
            if axis == 0:
                p, own = np.cumsum(p)[:-1], np.cumsum(own)[:-1]
            alone = float((own * (1.0 - 2.0 * p) + p**2 * square).sum())
            ratios.append(float((added**2).sum()) / max(alone, 1e-300))
        if design < 1.0 + 1e-6:
            return 1.0
        s, z = (min((ratio - 1.0) / (design - 1.0), 1.0) for ratio in ratios)
        return max(1.0 + (design - 1.0) * s * z, 0.1)


class Features(Protocol):
    """Features f_r of a level, of whose covariances with cells of S a gap is a sum of lengths."""

    def covariances(self, shares: Floats) -> Floats:
        """Return C_ir = Cov(1{cell i}, f_r), (..., m, r), of tables (..., m, k) of any sum."""

    def add(self, a: Floats, q: Floats) -> Floats:
        """Return sum_r a_ir (f_lr - mean of f_r), (..., m, k), for margins q of the score."""

    def squares(self, rows: Rows) -> Floats:
        """Return sums over the rows of a cell of squared weights times (f_r - mean)^2, (m, r)."""

    def moments(self, q: Floats) -> tuple[Floats, Floats]:
        """Return the variance of each feature for margins q of the score, and its squared skewness, (r,)."""


class Steps:
    """The features 1{score up to cut-off r}."""

    def covariances(self, shares: Floats) -> Floats:
        total = shares.sum(axis=(-2, -1), keepdims=True)
        up = np.cumsum(shares, axis=-1)
        p, F = up[..., -1:], up.sum(axis=-2, keepdims=True)[..., :-1]
        return np.asarray((up[..., :-1] - p * (F / total)) / total)

    def add(self, a: Floats, q: Floats) -> Floats:
        beyond = np.cumsum(a[..., ::-1], axis=-1)[..., ::-1]
        mean = a @ np.cumsum(q)[:-1]
        phi = np.empty((*a.shape[:-1], a.shape[-1] + 1))
        np.subtract(beyond, mean[..., None], out=phi[..., :-1])
        phi[..., -1] = -mean
        return phi

    def squares(self, rows: Rows) -> Floats:
        F = np.cumsum(rows.shares.sum(axis=0))[:-1]
        below = np.cumsum(rows.squares, axis=1)
        below, all_rows = below[:, :-1], below[:, -1:]
        return np.asarray(below * (1.0 - F) ** 2 + (all_rows - below) * F**2)

    def moments(self, q: Floats) -> tuple[Floats, Floats]:
        F = np.cumsum(q)[:-1]
        variance = np.maximum(F * (1.0 - F), 1e-300)
        return variance, (1.0 - 2.0 * F) ** 2 / variance


class Values(NamedTuple):
    """One feature with a value for each level: the score itself."""

    f: Floats  # (k,)

    def covariances(self, shares: Floats) -> Floats:
        total = shares.sum(axis=(-2, -1))[..., None]
        sums = shares @ self.f
        return np.asarray((sums - shares.sum(axis=-1) * (sums.sum(axis=-1, keepdims=True) / total)) / total)[
            ..., None
        ]

    def add(self, a: Floats, q: Floats) -> Floats:
        return np.asarray(a * (self.f - q @ self.f))

    def squares(self, rows: Rows) -> Floats:
        return np.asarray((rows.squares @ (self.f - rows.shares.sum(axis=0) @ self.f) ** 2)[:, None])

    def moments(self, q: Floats) -> tuple[Floats, Floats]:
        around = self.f - q @ self.f
        variance = max(float(q @ around**2), 1e-300)
        return np.array([variance]), np.array([float(q @ around**3) ** 2 / variance**3])


def variances(rows: Rows, features: Features) -> Floats:
    """Return the variance of each C_ir, the mean of (1{cell i} - p_i) (f_r - mean of f_r), (m, r)."""
    p, own, C = rows.shares.sum(axis=1)[:, None], features.squares(rows), features.covariances(rows.shares)
    if rows.blocks is not None:
        added = rows.blocks.errors(rows, features)
        return np.asarray(np.maximum(np.einsum("bir,bir->ir", added, added), 1e-6 * own + 1e-300))
    found = (1.0 - 2.0 * p) * own + p**2 * own.sum(axis=0) - rows.squares.sum() * C**2
    return np.asarray(np.maximum(found, 1e-6 * own + 1e-300))


def influence(rows: Rows, features: Features, a: Floats, more: Floats | None = None) -> Floats:
    """Return the influence of a row of each cell and level on sum_ir a_ir C_ir, (..., m, k), of any mean.

    A row in cell i and level l counts with sum_r (a_ir - sum_i' p_i' a_i'r) (f_lr - mean of f_r), and with
    ``more`` (..., k) of its level.
    """
    p, q = rows.shares.sum(axis=1), rows.shares.sum(axis=0)
    phi = features.add(a - np.einsum("i,...ir->...r", p, a)[..., None, :], q)
    return phi if more is None else phi + more[..., None, :]


def variance_of(rows: Rows, features: Features, a: Floats, more: Floats | None = None) -> float:
    """Return the variance of sum_ir a_ir C_ir, of a (m, r)."""
    return float(covariances_of(rows, features, a[None], None if more is None else more[None])[0, 0])


def covariances_of(rows: Rows, features: Features, a: Floats, more: Floats | None = None) -> Floats:
    """Return the covariances of several sums of a_ir C_ir, (..., h, h), of a (..., h, m, r)."""
    if rows.blocks is not None:
        added = rows.blocks.errors(rows, features).reshape(rows.blocks.size, -1)
        sums = a.reshape(*a.shape[:-2], -1) @ added.T
        if more is not None:
            sums = sums + more @ rows.blocks.levels.T
        return np.asarray(sums @ np.swapaxes(sums, -1, -2))
    phi = influence(rows, features, a, more).reshape(*a.shape[:-2], -1)
    phi -= (phi @ rows.shares.ravel())[..., None]
    phi *= np.sqrt(rows.squares.ravel())
    return np.asarray(phi @ np.swapaxes(phi, -1, -2))


def covariances_each(rows: Rows, g: Floats) -> Floats:
    """Return the covariances of sums of g_ir C_ir at each cut-off, (..., r, h, h), of g (..., h, m, r)."""
    if rows.blocks is not None:
        added = np.moveaxis(rows.blocks.errors(rows, Steps()), 0, -1).swapaxes(0, 1)  # (r, m, b)
        sums = np.moveaxis(g, -1, -3) @ added
        return np.asarray(sums @ np.swapaxes(sums, -1, -2))
    p = rows.shares.sum(axis=1)
    g = np.moveaxis(g - np.einsum("i,...ir->...r", p, g)[..., None, :], -1, -3)  # (..., r, h, m)
    value = g @ Steps().covariances(rows.shares).T[:, :, None]  # (..., r, h, 1)
    second = (g * Steps().squares(rows).T[:, None, :]) @ np.swapaxes(g, -1, -2)
    return np.asarray(second - rows.squares.sum() * value * np.swapaxes(value, -1, -2))


def linear_errors(noise: Floats, features: Features, p: Floats, q: Floats) -> Floats:
    """Return the errors of C of errors of shares: those of the mean of (1{cell i} - p_i) (f - mean of f)."""
    if isinstance(features, Values):
        own = noise @ (features.f - q @ features.f)
        return np.asarray(own - p * own.sum(axis=-1, keepdims=True))[..., None]
    up = np.cumsum(noise, axis=-1)
    own = up[..., :-1] - up[..., -1:] * np.cumsum(q)[:-1]
    return np.asarray(own - p[:, None] * own.sum(axis=-2, keepdims=True))
