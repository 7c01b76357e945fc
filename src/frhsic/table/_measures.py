"""Measures of the dependence of a score on S, of the joint law in a table."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from frhsic.numerics._ranges import are_few, range_of_each
from frhsic.table._axis import Floats, Integers
from frhsic.table._kernels import Bandwidths, Side, energy, gaussian, gram_s, side_s
from frhsic.table._table import Law


class HSICValue(NamedTuple):
    """HSIC(Z, S), HSIC(Z, Z) and HSIC(S, S), as sums over all pairs and without pairs of one row."""

    biased: tuple[float, float, float]
    unbiased: tuple[float, float, float]

    def of(self, *, unbiased: bool, normalized: bool) -> float:
        """Return the value, divided by the root of HSIC(Z, Z) HSIC(S, S) if normalised; 0 for 0/0."""
        zs, zz, ss = self.unbiased if unbiased else self.biased
        if not normalized:
            return zs
        ratio = zs / math.sqrt(zz * ss) if min(zz, ss) > 0 else 0.0
        return ratio if unbiased else min(max(ratio, 0.0), 1.0)


def hsic(law: Law, bandwidths: Bandwidths) -> HSICValue:
    """Return HSIC with Gaussian kernels, equality for labels of S."""
    return hsic_of(law, side_s(law, bandwidths), Side.gaussian(law.z, bandwidths.z, law.q))


def distance_covariance(law: Law) -> HSICValue:
    """Return squared distance covariance, and squared distance variances, of one column of S."""
    gram = energy(law.s[:, 0], law.numbers[0])
    # 4 HSIC = dCov^2: a factor 4 on one kernel, which cancels when normalised.
    return hsic_of(law, Side(gram, law.p), Side(4.0 * energy(law.z), law.q))


def hsic_of(law: Law, s: Side, z: Side) -> HSICValue:
    """Return HSIC of two kernels on cells.

    With K~, L~ centred, HSIC = sum over pairs of rows of w w' K~ L~, and of all rows of a pair of cells it is
    one product: <P, K~ P L~>. Rows do not lie at the means of their cells: with the sums of their distances
    from them in each joint cell, S and Z, the value is right to first order, <P, K~ P L~> + 2 <S, dK~ P L~> +
    2 <Z, K~ P dL~'>.
    """
    P, sq = law.shares, law.squares
    sides = {"zs": (s, z, P, sq), "zz": (z, z, None, sq.sum(axis=0)), "ss": (s, s, None, sq.sum(axis=1))}
    biased, unbiased = [], []
    for a, b, shares, squares in sides.values():
        if shares is None:
            value = float(np.sum(a.w[:, None] * a.centred * b.centred * b.w))
            product = float(squares @ (a.diagonal * b.diagonal))
            first, second = float(squares @ a.diagonal), float(squares @ b.diagonal)
        else:
            value = float(np.sum(shares * (a.centred @ shares @ b.centred))) + _beside_means(law, a, b)
            product = float(a.diagonal @ squares @ b.diagonal)
            first = float(a.diagonal @ squares.sum(axis=1))
            second = float(squares.sum(axis=0) @ b.diagonal)
        biased.append(value)
        unbiased.append(_debias(value, product, first, second, law.effective_rows))
    return HSICValue((biased[0], biased[1], biased[2]), (unbiased[0], unbiased[1], unbiased[2]))


def _beside_means(law: Law, s: Side, z: Side) -> float:
    """Return what it changes, to first order, that rows do not lie at the means of their cells."""
    total = 0.0
    if s.centred_slope is not None and law.s_widths.any():
        total += 2.0 * float(np.sum(law.s_inner[:, :, 0] * (s.centred_slope @ law.shares @ z.centred)))
    if z.centred_slope is not None and law.z_widths.any():
        total += 2.0 * float(np.sum(law.z_inner * (s.centred @ law.shares @ z.centred_slope.T)))
    return total


def _debias(value: float, product: float, first: float, second: float, n: float) -> float:
    """Return the U-statistic; see ``frhsic.numerics._products.debiased``."""
    off = n / (n - 2.0) * product - n * n / ((n - 1.0) * (n - 2.0)) * first * second
    return n / (n - 3.0) * (value - off)


def kernel_hgr(law: Law, bandwidths: Bandwidths, ridge_z: float = 0.01, ridge_s: float = 0.01) -> float:
    """Return the largest correlation of a function of Z with one of S, both from a regularised RKHS ball."""
    roots = [
        _resolvent_root(Side(gram, w), ridge)
        for gram, w, ridge in (
            (gram_s(law, bandwidths.s), law.p, ridge_s),
            (gaussian(law.z, bandwidths.z), law.q, ridge_z),
        )
    ]
    coupling = law.shares / np.sqrt(law.p[:, None] * law.q)
    inner = roots[0].T @ coupling @ roots[1]
    return min(1.0, float(np.linalg.norm(inner, 2))) if inner.size else 0.0


def _resolvent_root(side: Side, ridge: float) -> Floats:
    """Return F with F F' = A (A + ridge)^-1 and A = D^1/2 K~ D^1/2."""
    values, vectors = side.eigen()
    shrunk = values / (values + ridge)
    some = shrunk > 16 * len(shrunk) * np.finfo(float).eps
    return np.asarray(vectors[:, some] * np.sqrt(shrunk[some]))


# Gaps


def coarse_cells(law: Law, units: float | None = None) -> Integers:
    """Return the cell of means (0, 1, ...) of each cell of S: each value by itself, or ranges, or labels.

    A column of numbers has its values where they are few for the rows, else about 2 n^(1/3) ranges of equally
    many rows for n units (people, where rows repeat them); several columns share that number, and the ranges
    of a column are those within the ranges of the columns before it.
    """
    units = law.effective_rows if units is None else units
    lines = sum(law.numbers)
    count = (2.0 * units ** (1.0 / 3.0)) ** (1.0 / max(lines, 1))
    code = np.zeros(len(law.s), np.int64)
    for column, number in zip(law.s.T, law.numbers, strict=True):
        part = np.zeros(len(column), np.int64)
        for first in np.unique(code):
            inside = code == first
            part[inside] = _cut(column[inside], law.p[inside], number, lines, units, count)
        code = np.unique(code * (part.max() + 1) + part, return_inverse=True)[1]
    return code


def _cut(x: Floats, w: Floats, number: bool, lines: int, units: float, count: float) -> Integers:
    values, index = np.unique(x, return_inverse=True)
    if not number or (lines == 1 and are_few(len(values), units)):
        return np.asarray(index)
    mass = np.bincount(index, w).astype(float)
    return range_of_each(mass, max(1, round(count)))[index]


def differences(shares: Floats) -> Floats:
    """Return C (..., m, k - 1): P(cell, score up to each cut-off) minus the product of both."""
    P = shares / shares.sum(axis=(-2, -1), keepdims=True)
    p, q = P.sum(axis=-1, keepdims=True), P.sum(axis=-2, keepdims=True)
    return np.asarray(np.cumsum(P - p * q, axis=-1)[..., :-1])


def decision_gaps(law: Law) -> Floats:
    """Return D at each cut-off between levels, (k - 1,): E_S |P(f > t | S) - P(f > t)|."""
    return np.asarray(np.abs(differences(law.shares)).sum(axis=0))


def score_gap(law: Law) -> float:
    """Return the score gap: the integral of D, which is the mean over S of a Wasserstein-1 distance."""
    return float(decision_gaps(law) @ np.diff(law.z))


def rank_weights(shares: Floats) -> Floats:
    """Return w_j = (p_j + p_j+1) / 2 of each cut-off between neighbouring levels, (..., k - 1)."""
    p = shares.sum(axis=-2)
    p = p / p.sum(axis=-1, keepdims=True)
    return np.asarray(0.5 * (p[..., :-1] + p[..., 1:]))


def rank_gap(law: Law) -> float:
    """Return the score gap of mid-ranks: the gap of decisions averaged over cut-offs at a random score.

    sum_j w_j D_j. It is the same under every strictly monotone transformation of the score, at most 1/3, and
    half the gap of decisions for a score of two values.
    """
    return float(decision_gaps(law) @ rank_weights(law.shares))


def mean_gap(law: Law) -> float:
    """Return GDP: the mean over S of |E[f | S] - E[f]|."""
    # Scores of a cell lie at the mean of their own, not at that of their level.
    sums = law.shares @ (law.z - law.q @ law.z) + law.z_inner.sum(axis=1)
    return float(np.abs(sums).sum())
