"""What the cells of a table leave out: how far HSIC of the rows may be from HSIC of their table.

A table knows the rows in each joint cell of S and score, and the sums of s and z over them. So it knows where
a row lies that is alone in its joint cell, and the mean of several. Put all rows of a joint cell at their
mean: HSIC of that law is computed here, from low-rank features of both kernels. What is left are the second
moments of several rows around their mean. In an interval [lo, hi] with mean m they are between 0 and
(hi - m)(m - lo). With the cross-covariance C of the law at the means and its witness

    g(s, z) = <C, (k(s, .) - mean) (x) (l(z, .) - mean)>,

HSIC of the rows is 2 E g - |C|^2 + |C_rows - C|^2 - 2 <C, shift of the means>. E g in a joint cell differs
from g at its mean by E (d, e) H (d, e)' / 2, with the second derivatives H of g somewhere in the cell. They
are known at the means of cells, third derivatives too; fourth derivatives are bounded by their norms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from frhsic.table._axis import UNITS, Floats, Integers
from frhsic.table._kernels import Bandwidths, factor
from frhsic.table._measures import HSICValue, hsic
from frhsic.table._table import Law

# Features of a kernel: so many at most, or until less than this of the kernel is left out at each point.
_RANK, _TOLERANCE = 512, 1e-13
# Norms of the first four derivatives of the features of a Gaussian kernel with bandwidth 1.
_NORMS = (1.0, math.sqrt(3.0), math.sqrt(15.0), math.sqrt(105.0))


class LeftOut(NamedTuple):
    """A measure of the rows is between its value of the table plus ``low`` and plus ``high``."""

    low: float
    high: float

    @property
    def most(self) -> float:
        """The largest difference between the table and its rows."""
        return max(abs(self.low), abs(self.high))


class CellBounds:
    """Bounds on HSIC of the rows minus HSIC of their table, under Gaussian kernels.

    Parameters
    ----------
    law : Law
        Of a score and one column of S; cells that were not merged.
    bandwidths : Bandwidths
        Of the table. The rows are measured with the same ones.
    """

    def __init__(self, law: Law, bandwidths: Bandwidths) -> None:
        if law.s.shape[1] != 1:
            raise ValueError(f"'law' must have one column of S. Got {law.s.shape[1]}. Count each by itself.")
        self.law, self.bandwidths = law, bandwidths

    @cached_property
    def _value(self) -> HSICValue:
        return hsic(self.law, self.bandwidths)

    @cached_property
    def _cells(self) -> _Cells:
        return _Cells.of(self.law)

    @cached_property
    def _sides(self) -> tuple[_Features, _Features]:
        cells, bandwidths = self._cells, self.bandwidths
        sigma = bandwidths.s[0] if self.law.numbers[0] else 0.0
        return _Features.of(cells.s, sigma, cells.mass), _Features.of(cells.z, bandwidths.z, cells.mass)

    @property
    def products(self) -> float:
        """The number of multiplications that the features take: large for long tails and many rows."""
        if not (self.law.s_widths.any() or self.law.z_widths.any()):
            return 0.0
        return float(len(self._cells.mass) * sum(len(side.points) ** 2 for side in self._sides))

    def of(self, *, unbiased: bool, normalized: bool) -> LeftOut:
        """Return the bounds of one form, as of :meth:`~frhsic.table._measures.HSICValue.of`."""
        if not (self.law.s_widths.any() or self.law.z_widths.any()):
            return LeftOut(0.0, 0.0)
        form = _Form.of(self.law.effective_rows, unbiased)
        low, high = _bound_pair(self._cells, *self._sides, form)
        if normalized:
            low, high = _divide((low, high), *(_bound_own(self._cells, side, form) for side in self._sides))
            if not unbiased:
                low, high = max(low, 0.0), min(high, 1.0)
        table = self._value.of(unbiased=unbiased, normalized=normalized)
        rounding = 1e-13 * (1.0 if not normalized else 1.0 / _size(self._value, unbiased))
        return LeftOut(low - table - rounding, high - table + rounding)


def left_out(
    law: Law, bandwidths: Bandwidths, *, unbiased: bool = False, normalized: bool = False
) -> LeftOut:
    """Return bounds on HSIC of the rows minus HSIC of their table: see :class:`CellBounds`."""
    return CellBounds(law, bandwidths).of(unbiased=unbiased, normalized=normalized)


def _size(value: HSICValue, unbiased: bool) -> float:
    _, zz, ss = value.unbiased if unbiased else value.biased
    return math.sqrt(zz * ss) if min(zz, ss) > 0.0 else 1.0


def _divide(zs: tuple[float, float], ss: tuple[float, float], zz: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the largest of zs / sqrt(zz ss)."""
    least, most = math.sqrt(max(ss[0], 0.0) * max(zz[0], 0.0)), math.sqrt(max(ss[1] * zz[1], 0.0))
    if least == 0.0:
        return -math.inf, math.inf
    return zs[0] / (most if zs[0] > 0.0 else least), zs[1] / (least if zs[1] > 0.0 else most)


class _Side(NamedTuple):
    """One coordinate of the joint cells: where their means lie, and how far rows may be from them."""

    cell: Integers  # (N,), the cell of this column
    x: Floats  # (N,), the mean of the rows of each joint cell
    most: Floats  # (N,), the largest second moment around it
    width: Floats  # (N,)
    grid: Floats  # (m,), the mean of each cell
    shift: Floats  # (N,), what whole units of offsets may move a mean


class _Cells(NamedTuple):
    """The joint cells with rows."""

    mass: Floats  # (N,), of sum one
    squares: Floats  # (N,), sums of squared weights
    several: Floats  # (N,), whether a cell has several rows
    equal: bool  # whether rows have equal weights
    s: _Side
    z: _Side

    @classmethod
    def of(cls, law: Law) -> _Cells:
        i, j = np.nonzero(law.shares > 0.0)
        mass, several = law.shares[i, j], law.rows[i, j] > 1.5
        sides = (
            (i, law.s[:, 0], law.s_inner[i, j, 0], law.s_lows[:, 0], law.s_widths[:, 0]),
            (j, law.z, law.z_inner[i, j], law.z_lows, law.z_widths),
        )
        made = []
        for cell, grid, inner, lows, widths in sides:
            low, width = lows[cell], widths[cell]
            x = np.where(width > 0.0, np.clip(grid[cell] + inner / mass, low, low + width), grid[cell])
            most = np.where(several & (width > 0.0), (low + width - x) * (x - low), 0.0)
            made.append(_Side(cell, x, np.maximum(most, 0.0), width, grid, width / UNITS))
        squares = law.squares[i, j]
        n = law.effective_rows
        equal = bool(np.abs(squares * n - mass).max() < 1e-9 * mass.max())
        return cls(mass, squares, several.astype(float), equal, made[0], made[1])


class _Form(NamedTuple):
    """HSIC = a (E g - b sum w^2 k l + c (sum w^2 k)(sum w^2 l)); k and l: K~ and L~ of a row with itself."""

    a: float
    b: float
    c: float

    @classmethod
    def of(cls, n: float, unbiased: bool) -> _Form:
        if not unbiased:
            return cls(1.0, 0.0, 0.0)
        return cls(n / (n - 3.0), n / (n - 2.0), n * n / ((n - 1.0) * (n - 2.0)))

    def value(self, whole: float, product: float, first: float, second: float) -> float:
        return self.a * (whole - self.b * product + self.c * first * second)


class _Features:
    """Features of a kernel at the means of joint cells and of cells.

    ``sigma`` 0: the kernel is equality of labels.
    """

    def __init__(self, side: _Side, sigma: float, points: Floats, root: Floats, mass: Floats) -> None:
        self.side, self.sigma, self.points, self.root, self.mass = side, sigma, points, root, mass

    @classmethod
    def of(cls, side: _Side, sigma: float, mass: Floats) -> _Features:
        if not sigma:
            return cls(side, 0.0, np.empty(0), np.empty((0, 0)), mass)
        # Cells much narrower than the kernel are spanned by their means.
        wide = side.x[side.width > sigma / 16.0]
        return cls(side, sigma, *_choose_points(np.union1d(side.grid, wide), sigma), mass)

    def at(self, x: Floats, order: int = 0) -> Floats:
        """Return the features at points, or their derivatives: ``(len(x), r)``."""
        u = (x[:, None] - self.points) / self.sigma
        gram = np.exp(-0.5 * u * u)
        if order == 1:
            gram = -u / self.sigma * gram
        elif order == 2:
            gram = (u * u - 1.0) / self.sigma**2 * gram
        elif order == 3:
            gram = u * (3.0 - u * u) / self.sigma**3 * gram
        return np.asarray(gram @ self.root)

    @cached_property
    def values(self) -> tuple[Floats, Floats]:
        """Centred features at the means of joint cells, and the mean that was taken off."""
        if not self.sigma:
            values = np.eye(len(self.side.grid))[self.side.cell]
        elif self.side.width.any():
            values = self.at(self.side.x)
        else:
            values = self.at(self.side.grid)[self.side.cell]
        mean = self.mass @ values
        return values - mean, mean

    def derivatives(self, mean: Floats) -> list[Floats]:
        """Return centred features at the means of cells, and their first three derivatives."""
        grid = self.side.grid
        if not self.sigma:
            return [np.eye(len(grid)) - mean, *np.zeros((3, len(grid), len(grid)))]
        return [self.at(grid) - mean, *(self.at(grid, order) for order in (1, 2, 3))]

    @cached_property
    def rest(self) -> tuple[float, float]:
        """Bounds of what features leave out of HSIC, and of the norm of the cross-covariance."""
        if not self.sigma:
            return 0.0, 0.0
        values, mean = self.values
        # The squared norm of the features before the mean was taken off.
        norms = np.einsum("ij,ij->i", values, values) + 2.0 * values @ mean + float(mean @ mean)
        missing = np.maximum(1.0 - norms, 0.0)
        return 4.0 * float(self.mass @ missing), 2.0 * float(self.mass @ np.sqrt(missing))

    @property
    def norms(self) -> list[float]:
        """Bounds of the norms of the first four derivatives of the features."""
        return [0.0] * 4 if not self.sigma else [x / self.sigma**k for k, x in enumerate(_NORMS, start=1)]


def _choose_points(x: Floats, sigma: float) -> tuple[Floats, Floats]:
    """Return points of which the kernel is spanned, and the matrix that makes features of it.

    Cholesky's method with pivots: what is left of the kernel at each point is known.
    """
    found = factor(np.ones(len(x)), lambda i: np.exp(-0.5 * ((x - x[i]) / sigma) ** 2), _RANK, _TOLERANCE)
    lower = found.columns[found.pivots]  # K = lower lower' at the points
    return x[found.pivots], np.asarray(np.linalg.inv(np.tril(lower)).T, float)


def _bound_pair(cells: _Cells, s: _Features, z: _Features, form: _Form) -> tuple[float, float]:
    """Return the least and the largest HSIC of the score and S that the rows may have."""
    mass, squares, n = cells.mass, cells.squares, 1.0 / cells.squares.sum()
    (fs, mean_s), (fz, mean_z) = s.values, z.values
    C = (mass[:, None] * fs).T @ fz
    size = float(np.linalg.norm(C))
    (rest_s, far_s), (rest_z, far_z) = s.rest, z.rest
    own_s, own_z = (1.0 - 2.0 * x @ m - float(m @ m) for x, m in ((fs, mean_s), (fz, mean_z)))
    first, second = float(squares @ own_s), float(squares @ own_z)
    value = form.value(size**2, float(squares @ (own_s * own_z)), first, second)

    i, j = s.side.cell, z.side.cell
    at_s, at_z = s.derivatives(mean_s), z.derivatives(mean_z)
    ks, dks, ddks = _squares(mean_s, at_s)
    kz, dkz, ddkz = _squares(mean_z, at_z)
    w = 1.0 / n  # of a row; in sums of squared weights
    b, c = form.b * w, form.c * w
    g = {(p, q): 2.0 * (at_s[p] @ C @ at_z[q].T)[i, j] for p in range(4) for q in range(4) if 2 <= p + q <= 3}
    H_ss = g[2, 0] - b * ddks[i] * kz[j] + c * second * ddks[i]
    H_sz = g[1, 1] - b * dks[i] * dkz[j]
    H_zz = g[0, 2] - b * ks[i] * ddkz[j] + c * first * ddkz[j]
    top_s, top_z = (math.sqrt(1.0 + float(mean @ mean)) for mean in (mean_s, mean_z))
    Bs, Bz, ws, wz = s.side.most, z.side.most, s.side.width, z.side.width
    (s_1, s_2, s_3, s_4), (z_1, z_2, z_3, z_4) = s.norms, z.norms
    # Second derivatives at the mean of a joint cell, from those at the means of its row and column. What
    # third derivatives add inside the cell; all fourth derivatives by their norms.
    us, uz = s.side.x - s.side.grid[i], z.side.x - z.side.grid[j]
    H_ss = H_ss + us * g[3, 0] + uz * g[2, 1]
    H_sz = H_sz + us * g[2, 1] + uz * g[1, 2]
    H_zz = H_zz + us * g[1, 2] + uz * g[0, 3]
    slack_ss = (ws * np.abs(g[3, 0]) + 3.0 * wz * np.abs(g[2, 1])) / 3.0
    slack_sz = 0.0 * ws
    slack_zz = (wz * np.abs(g[0, 3]) + 3.0 * ws * np.abs(g[1, 2])) / 3.0
    mixed = s_2 * z_2
    slack_ss += 2.0 * size * (0.6 * ws**2 * s_4 * top_z + 1.4 * ws * wz * s_3 * z_1 + 0.75 * wz**2 * mixed)
    slack_zz += 2.0 * size * (0.6 * wz**2 * z_4 * top_s + 1.4 * ws * wz * s_1 * z_3 + 0.75 * ws**2 * mixed)
    slack_sz += size * (ws**2 * s_3 * z_1 + 2.0 * ws * wz * mixed + wz**2 * s_1 * z_3)
    off = b + c
    slack_ss += off * (4.0 * s_3 * ws + 4.0 * s_2 * z_1 * wz)
    slack_sz += off * (4.0 * s_2 * z_1 * ws + 4.0 * s_1 * z_2 * wz)
    slack_zz += off * (4.0 * z_3 * wz + 4.0 * z_2 * s_1 * ws)
    tops = (
        2.0 * size * s_2 * top_z + 4.0 * off * s_2, 2.0 * size * s_1 * z_1 + 4.0 * off * s_1 * z_1,
        2.0 * size * top_s * z_2 + 4.0 * off * z_2,
    )  # fmt: skip
    forms = _clip_forms([(H_ss, slack_ss), (H_sz, slack_sz), (H_zz, slack_zz)], tops)
    cap = (2.0 * size * math.sqrt(2.0) * (top_s + top_z) + 8.0 * off) * cells.several
    high = np.minimum(0.5 * _largest(forms, Bs, Bz), cap)
    low = -np.minimum(0.5 * _largest([(-least, -most) for most, least in forms], Bs, Bz), cap)

    # The law of the rows has other means of features, and a cross-covariance that is farther from C.
    shift_s = float(mass @ np.minimum(0.5 * s_2 * Bs, math.sqrt(2.0) * cells.several))
    shift_z = float(mass @ np.minimum(0.5 * z_2 * Bz, math.sqrt(2.0) * cells.several))
    moved = 0.5 * (s_2 * top_z * Bs + z_2 * top_s * Bz) + s_1 * z_1 * np.sqrt(Bs * Bz)
    moved = np.minimum(moved, math.sqrt(2.0) * (top_s + top_z) * cells.several)
    distance = float(mass @ moved) + shift_s * shift_z
    both = 2.0 * size * shift_s * shift_z
    diagonal = form.b * (
        2.0 * shift_s * float(np.linalg.norm((squares * own_z) @ fs)) + shift_s**2 * second
        + 2.0 * shift_z * float(np.linalg.norm((squares * own_s) @ fz)) + shift_z**2 * first
        + 4.0 * w * shift_s * shift_z
    ) + form.c * (
        second * (2.0 * shift_s * float(np.linalg.norm(squares @ fs)) + w * shift_s**2)
        + first * (2.0 * shift_z * float(np.linalg.norm(squares @ fz)) + w * shift_z**2)
    )  # fmt: skip
    if not cells.equal:  # sums of s and z are weighted by w, not by w^2
        reach = np.minimum(4.0 * s_1 * ws, 2.0) + np.minimum(4.0 * z_1 * wz, 2.0)
        diagonal += (form.b + form.c) * 2.0 * float((squares * cells.several) @ reach)
    units = 2.0 * size * (s_1 * top_z * s.side.shift + z_1 * top_s * z.side.shift)
    other = both + diagonal + float(mass @ units) + rest_s + rest_z + 2.0 * (far_s + far_z) * distance
    low_sum, high_sum = float(mass @ low), float(mass @ high)
    return value + form.a * (low_sum - other), value + form.a * (high_sum + other + distance**2)


def _bound_own(cells: _Cells, f: _Features, form: _Form) -> tuple[float, float]:
    """Return the least and the largest HSIC of a column with itself that the rows may have."""
    mass, squares, w = cells.mass, cells.squares, float(cells.squares.sum())
    values, mean = f.values
    C = (mass[:, None] * values).T @ values
    size = float(np.linalg.norm(C))
    rest, far = f.rest
    k = 1.0 - 2.0 * values @ mean - float(mean @ mean)
    total = float(squares @ k)
    value = form.value(size**2, float(squares @ (k * k)), total, total)
    f0, f1, f2, f3 = at = f.derivatives(mean)
    ks, dks, ddks = _squares(mean, at)
    H = 4.0 * ((f2 @ C) * f0 + (f1 @ C) * f1).sum(axis=1)
    H = H - 2.0 * form.b * w * (dks**2 + ks * ddks) + 2.0 * form.c * w * total * ddks
    B, width, top = f.side.most, f.side.width, math.sqrt(1.0 + float(mean @ mean))
    n1, n2, n3, n4 = f.norms
    third = 4.0 * ((f3 @ C) * f0 + 3.0 * (f2 @ C) * f1).sum(axis=1)[f.side.cell]
    H = H[f.side.cell] + third * (f.side.x - f.side.grid[f.side.cell])
    slack = np.abs(third) * width / 3.0
    slack += 0.6 * 4.0 * size * (n4 * top + 4.0 * n3 * n1 + 3.0 * n2**2) * width**2
    slack += w * (form.b + form.c) * (16.0 * n3 + 48.0 * n1 * n2) * width
    cap = (4.0 * math.sqrt(2.0) * size * top + 8.0 * w * (form.b + form.c)) * cells.several
    high = np.minimum(0.5 * np.maximum(H + slack, 0.0) * B, cap)
    low = -np.minimum(0.5 * np.maximum(slack - H, 0.0) * B, cap)
    shift = float(mass @ np.minimum(0.5 * n2 * B, math.sqrt(2.0) * cells.several))
    moved = np.minimum((n2 * top + n1 * n1) * B, 2.0 * math.sqrt(2.0) * top * cells.several)
    distance = float(mass @ moved) + shift**2
    diagonal = (
        2.0 * form.b * (2.0 * shift * float(np.linalg.norm((squares * k) @ values)) + 3.0 * w * shift**2)
    )
    diagonal += form.c * 2.0 * total * (2.0 * shift * float(np.linalg.norm(squares @ values)) + w * shift**2)
    if not cells.equal:
        diagonal += (
            (form.b + form.c) * 4.0 * float((squares * cells.several) @ np.minimum(4.0 * n1 * width, 2.0))
        )
    other = 2.0 * size * shift**2 + diagonal + 4.0 * size * n1 * top * float(mass @ f.side.shift)
    other += 2.0 * rest + 4.0 * far * distance
    low_sum, high_sum = float(mass @ low), float(mass @ high)
    return value + form.a * (low_sum - other), value + form.a * (high_sum + other + distance**2)


def _squares(mean: Floats, f: list[Floats]) -> tuple[Floats, Floats, Floats]:
    """Return K~(x, x) = 1 - 2 <mean, f(x)> + |mean|^2 and its derivatives, of features and theirs."""
    own = 1.0 - 2.0 * f[0] @ mean - float(mean @ mean)  # f[0] is centred
    return own, -2.0 * f[1] @ mean, -2.0 * f[2] @ mean


def _clip_forms(forms: Sequence[tuple[Floats, Floats]], tops: Sequence[float]) -> list[tuple[Floats, Floats]]:
    """Return the largest and the least second derivatives within a slack, and within what they can be."""
    return [
        (np.minimum(H + slack, top), np.maximum(H - slack, -top))
        for (H, slack), top in zip(forms, tops, strict=True)
    ]


def _largest(forms: Sequence[tuple[Floats, Floats]], u: Floats, v: Floats) -> Floats:
    """Return the largest E (d, e) H (d, e)' of second moments E d^2 <= u and E e^2 <= v.

    ``forms`` are the largest and the least H_ss, H_sz and H_zz.
    """
    (a, _), (b, least), (c, _) = forms
    b = np.maximum(np.abs(b), np.abs(least))
    root = np.sqrt(u * v)
    best = np.maximum.reduce([np.zeros_like(u), a * u, c * v, a * u + 2.0 * b * root + c * v])
    with np.errstate(divide="ignore", invalid="ignore"):
        for p, q, x, y in ((a, c, u, v), (c, a, v, u)):
            inside = (q < 0.0) & (
                b * b * x < q * q * y
            )  # the best second moment of the other is below its most
            best = np.maximum(best, np.where(inside, p * x - b * b * x / q, 0.0))
    return np.asarray(best)
