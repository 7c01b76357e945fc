"""Errors of gaps in a table: their normal noise, and signs learned from some rows and valued on others."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from frhsic.table._axis import Floats
from frhsic.table._rows import (
    Features,
    Rows,
    covariances_each,
    covariances_of,
    linear_errors,
    variance_of,
    variances,
)

# Signs are learned from the first rows, from this share of them on.
FIRST = 0.3
# Half widths of the moving sums along S from which signs are learned, in cells.
WIDTHS = (0, 1, 3, 9)
# Shares of the rows from which signs are learned: midpoints.
_NODES = FIRST + (1.0 - FIRST) * (np.arange(6) + 0.5) / 6
# The share for the shown estimate: more of the rows leave out less, and vary more.
_SHOWN = 0.85
# Of n rows the variance of a feature of skewness c is trusted as that of n / (n + 20 c^2) of them: a cell
# without any event shows no variance. Else it is that under independence, a function of the margins.
_SKEWED = 20.0
# Random signs that variances are averaged over.
_SIGNS = 8
# So many deviations from zero no split of the rows changes a sign.
_CLEAR = 3.0
# Draws of the errors by which a width or cut-off is chosen blindly.
_BLIND = 500
# Draws of the part of the noise of a plug-in that is not linear; cells of S count as independent there.
_DRAWS = 32
_ROOT, _DENSITY = math.sqrt(2.0 / math.pi), 1.0 / math.sqrt(2.0 * math.pi)


class Noise:
    """Normal errors of all C_ir, with the covariances of a mean of independent rows, or of blocks of them."""

    def __init__(self, rows: Rows, features: Features, generator: np.random.Generator) -> None:
        self.rows, self.features = rows, features
        self.C = features.covariances(rows.shares)
        self.sigma = np.sqrt(variances(rows, features))
        if rows.blocks is None:
            drawn = generator.standard_normal((_DRAWS, *rows.squares.shape)) * np.sqrt(rows.squares)
            p, q = rows.shares.sum(axis=1), rows.shares.sum(axis=0)
            self.draws = linear_errors(drawn, features, p, q)
        else:
            added = rows.blocks.errors(rows, features)
            signs = generator.standard_normal((_DRAWS, len(added)))
            self.draws = (signs @ added.reshape(len(added), -1)).reshape(_DRAWS, *added.shape[1:])

    @cached_property
    def expected(self) -> Floats:
        """E |C^_ir| where C is that of the table."""
        return np.asarray(self.sigma * folded_mean(np.abs(self.C) / self.sigma))

    def centre(
        self, mean_square: Floats | float, square: Floats | float, weights: Floats | None = None
    ) -> Floats:
        """Return C of the mean square of C / sigma that is given, from that in the table.

        A smaller one by a factor. A larger one has one sign at all cut-offs of a cell, if there are
        ``weights``: then errors at different cut-offs add up.
        """
        factor = np.sqrt(np.minimum(mean_square / np.maximum(square, 1e-300), 1.0))
        beyond = np.maximum(mean_square - square, 0.0) * self.sigma**2
        along = self.C if weights is None else (self.C @ weights)[:, None]
        larger = np.where(along < 0.0, -1.0, 1.0) * np.sqrt(self.C**2 + beyond)
        return np.asarray(np.where(mean_square > square, larger, factor * self.C))

    def slope(self, centre: Floats) -> Floats:
        """Return the derivative of E|C + E| by C, 2 Phi(C / sigma) - 1."""
        return np.asarray(2.0 * ndtr(centre / self.sigma) - 1.0)

    def rest(self, centre: Floats, slope: Floats) -> Floats:
        """Return draws of |C + E| less its linear part, (draws, m, r)."""
        rest = self.draws + centre
        np.abs(rest, out=rest)
        rest -= slope * self.draws
        return rest

    def add_cells(self, variances: Floats) -> Floats:
        """Return the variance of a sum over cells of what is left, of that of each cell (m, ...).

        It is nearly a quadratic form of the errors: its correlations are the squares of theirs.
        """
        root = np.sqrt(variances)
        return np.asarray((root * np.tensordot(self._between_cells, root, axes=1)).sum(axis=0))

    @cached_property
    def _between_cells(self) -> Floats:
        """The squared correlations of the errors of two cells, (m, m)."""
        p = self.rows.shares.sum(axis=1)
        odds = p / np.maximum(1.0 - p, 1e-12)
        squared = np.minimum(odds[:, None] * odds, 1.0)
        if self.rows.blocks is not None:
            # Rows of one person may lie in neighbouring cells.
            added = self.rows.blocks.errors(self.rows, self.features) / self.sigma
            by_cell = np.moveaxis(added, 1, 0).reshape(len(p), -1)
            correlation = by_cell @ by_cell.T / self.sigma.shape[1]
            squared = np.maximum(squared, correlation**2 - 1.0 / len(added))
        np.fill_diagonal(squared, 1.0)
        return squared


# Mean squares of C / sigma, from zero on: parts of that in the table, and more by so much.
_PARTS, _BEYOND = (0.0, 0.25, 1.0), (1.0, 4.0)


class Folded:
    """The plug-in sum_ir w_r |C^_ir|, of which C^ has normal errors of deviation sigma_ir.

    Its error is split into the linear part sum w (2 Phi(C / sigma) - 1) E, of which the variance is known,
    and what is left: not correlated with it and, between two of many cells, hardly with itself. The variance
    of that is added up over cells from a few draws.
    """

    def __init__(self, noise: Noise, weights: Floats, own: Floats | None = None) -> None:
        self.noise, self.weights, self.own = noise, weights, own
        size = noise.sigma @ weights
        # A = sum w sigma, and the sum of w C^2 / sigma over A: the mean square of signal and noise.
        self.scale = float(size.sum())
        self.plug_in = float((np.abs(noise.C) @ weights).sum())
        self.square = float((noise.C**2 / noise.sigma @ weights).sum()) / self.scale

    @cached_property
    def deviations(self) -> tuple[Floats, Floats]:
        """Mean squares of C / sigma, and the deviation of the plug-in at each."""
        at = np.array([*(part * self.square for part in _PARTS), *(self.square + more for more in _BEYOND)])
        return at, np.array([self._deviation(float(one)) for one in at])

    def deviation(self, mean_square: float) -> float:
        """Return the deviation of the plug-in where C / sigma has this mean square."""
        return float(np.interp(mean_square, *self.deviations))

    def _deviation(self, mean_square: float) -> float:
        noise, w = self.noise, self.weights
        centre = noise.centre(mean_square, self.square, w)
        slope = noise.slope(centre)
        more = None if self.own is None else noise.expected.sum(axis=0) @ self.own
        linear = variance_of(noise.rows, noise.features, slope * w, more)
        left = noise.rest(centre, slope) @ w
        return math.sqrt(linear + float(noise.add_cells(left.var(axis=0, ddof=1))))


class FoldedEach:
    """The same for each cut-off by itself: D^_r = sum_i |C^_ir|."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self.scale = noise.sigma.sum(axis=0)
        self.plug_in = np.abs(noise.C).sum(axis=0)
        self.square = (noise.C**2 / noise.sigma).sum(axis=0) / self.scale
        at = [*(part * self.square for part in _PARTS), *(self.square + more for more in _BEYOND)]
        self._at, self._deviations = np.array(at), np.array([self._deviation(one) for one in at])

    def deviation(self, mean_square: Floats) -> Floats:
        """Return the deviation of each D^ where C / sigma has this mean square."""
        upper = np.clip((self._at < mean_square).sum(axis=0), 1, len(self._at) - 1)
        r = np.arange(len(upper))
        low, high = self._at[upper - 1, r], self._at[upper, r]
        part = np.clip((mean_square - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
        return np.asarray((1.0 - part) * self._deviations[upper - 1, r] + part * self._deviations[upper, r])

    def _deviation(self, mean_square: Floats) -> Floats:
        centre = self.noise.centre(mean_square, self.square)
        slope = self.noise.slope(centre)
        left = self.noise.add_cells(self.noise.rest(centre, slope).var(axis=0, ddof=1))
        linear = np.maximum(covariances_each(self.noise.rows, slope[None])[:, 0, 0], 0.0)
        return np.sqrt(linear + left)


class Witness:
    """An unbiased estimate of a sum of w_r g_ir C_ir with signs g that do not see what they are valued on.

    For any signs g, sum w_r g_ir C_ir <= sum w_r |C_ir|. Let the rows come in random order, and let g be
    learned at each time from the rows so far, and valued on the next row: a martingale around a mean below
    the gap, from the share t_0 of the rows on, with the variance of a mean of (1 - t_0) n rows. The average
    over all orders has at most that variance. With normal errors of C it is known in closed form. Where signs
    are those of moving sums C_W of C along S, with deviations sigma_W and covariances c_i = Cov(C_i, C_W),
    given C and for signs learned from the share t of the rows,

        E[g_i C_i] = C_i (2 Phi(a U) - 1) - (c_i / sigma_W) 2 a phi(a U),    U = C_W / sigma_W,

    with a^2 = t / (1 - t).

    It is also Stein's unbiased estimate of C_i E[psi(U)] for psi = 2 Phi(a U) - 1, of length at most one. No
    rows are split, and nothing is random.

    Where a sum is skewed (few rows, rare events, long tails) sigma_W and c_i are those under independence:
    then the mean of the right side is right for counts of two and more, and too small for fewer.

    There are several widths of the moving sums, and the best one is not known: of the values V_h with errors
    of covariance S, one is chosen by V + e and valued by V - e, with e of covariance S, which are
    independent; this is averaged over draws of e.
    """

    def __init__(self, noise: Noise, n: float, widths: tuple[int, ...] = WIDTHS) -> None:
        rows, features = noise.rows, noise.features
        self.rows, self.features = rows, features
        p = rows.shares.sum(axis=1)[:, None]
        own = features.squares(rows)
        pooled, skewness = features.moments(rows.shares.sum(axis=0))
        total, square = own.sum(axis=0), rows.squares.sum()
        by_block = None if rows.blocks is None else rows.blocks.errors(rows, features)
        block_sums = None if by_block is None else _cumulate(by_block)
        nodes = np.append(_NODES, _SHOWN)
        a = np.sqrt(nodes / (1.0 - nodes))[:, None, None]
        C = noise.C
        times = FIRST + (1.0 - FIRST) * (np.arange(_SIGNS) + 0.5) / _SIGNS
        mixed = C + np.sqrt(1.0 / times - 1.0)[:, None, None] * noise.draws[:_SIGNS]
        values, signs, doubts = [], [], []
        sums, drawn = ([_cumulate(x) for x in (C, own, p)], _cumulate(mixed))
        for width in widths:
            C_W, own_W, p_W = (_move(x, width) for x in sums)
            if by_block is None or block_sums is None:
                variance = np.maximum((1.0 - 2.0 * p_W) * own_W + p_W**2 * total - square * C_W**2, 0.0)
                shared = (1.0 - p_W) * own - p * own_W + p * p_W * total - square * C * C_W
            else:
                moved = _move(block_sums, width)
                variance = np.einsum("bir,bir->ir", moved, moved)
                shared = np.einsum("bir,bir->ir", by_block, moved)
            trust = p_W / (p_W + _SKEWED * rows.unit_square * skewness)
            under = square * rows.inflation * (1.0 - p_W) * pooled
            variance = trust * variance + (1.0 - trust) * p_W * under
            shared = trust * shared + (1.0 - trust) * p * under
            # A window of all cells has no error.
            deviation = np.sqrt(np.maximum(variance, 1e-9 * square * pooled))
            U = C_W / deviation
            slope = 2.0 * a * _DENSITY * np.exp(-0.5 * (a * U) ** 2)
            learned = C * (2.0 * ndtr(a * U) - 1.0) * (n / (n - 1.0)) - shared / deviation * slope
            values.append(learned.sum(axis=1))
            signs.append(np.sign(_move(drawn, width)))
            doubts.append(np.abs(U) < _CLEAR)
        by_node = np.stack(values)  # (h, nodes, r)
        self.values, self.shown = by_node[:, :-1].mean(axis=1), by_node[:, -1]  # (h, r)
        self.signs, self.doubts = np.stack(signs, axis=1), np.stack(doubts)  # (draws, h, m, r), (h, m, r)

    def value(self, weights: Floats, own: Floats | None = None) -> tuple[float, float]:
        """Return V and a bound of its standard deviation.

        Where a sign is beyond doubt, all rows count: the variance is that of n rows there.

        Parameters
        ----------
        weights : array of shape (r,)
        own : array of shape (r, k), optional
            The influence of a row of each level on each weight, where weights are those of the margin.
        """
        a = self.signs * weights
        more = None
        if own is not None:
            more = np.einsum("dhir,ir->dhr", self.signs, self.features.covariances(self.rows.shares)) @ own
        everywhere = covariances_of(self.rows, self.features, a, more)
        doubtful = covariances_of(self.rows, self.features, a * self.doubts)
        covariance = (everywhere + FIRST / (1.0 - FIRST) * doubtful).mean(axis=0)
        trust = (self._trust * weights).sum(axis=-1) / weights.sum()
        if (trust < 0.95).any():
            independent = covariances_of(self.rows.independent, self.features, a, more).mean(axis=0)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = independent / everywhere.mean(axis=0)
            covariance = _widen(covariance, ratio, trust)
        value, deviation = choose_blindly((self.values @ weights)[None], covariance[None])
        return float(value[0]), float(deviation[0])

    def estimate(self, weights: Floats, value: float, deviation: float) -> float:
        """Return what is shown: V where it may be chance, and the largest value of any width where it is not.

        The second is less far below a gap on average.
        """
        part = part_beyond_chance(value, deviation)
        return max(0.0, (1.0 - part) * value + part * float((self.shown @ weights).max()))

    def value_each(self) -> tuple[Floats, Floats]:
        """Return V of each cut-off by itself, and its deviation, (r,)."""
        everywhere = covariances_each(self.rows, self.signs)
        covariance = everywhere + FIRST / (1.0 - FIRST) * covariances_each(
            self.rows, self.signs * self.doubts
        )
        independent = covariances_each(self.rows.independent, self.signs).mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = independent / everywhere.mean(axis=0)
        wider = _widen(covariance.mean(axis=0), ratio, self._trust.T)
        return choose_blindly(self.values.T, wider)

    @cached_property
    def _trust(self) -> Floats:
        """How far variances of signed sums are trusted, (h, r): by the rows of the rarer sign.

        A small group that has few of the rarer decisions by chance shows a small variance, too.
        """
        rows = self.rows
        p = np.einsum("i,dhir->hr", rows.shares.sum(axis=1), self.signs > 0) / len(self.signs)
        fewer = np.minimum(p, 1.0 - p)
        skewness = self.features.moments(rows.shares.sum(axis=0))[1]
        return np.asarray(fewer / (fewer + _SKEWED * rows.unit_square * skewness + 1e-300))

    def agreement(self, weights: Floats) -> Floats:
        """Return how far the signs at two cut-offs agree, (r, r): a correlation over cells."""
        p = self.rows.shares.sum(axis=1)
        g = self.signs[:, (self.values @ weights).argmax()]
        g = (g - np.einsum("i,dir->dr", p, g)[:, None]) * np.sqrt(p)[:, None]
        g = g / np.maximum(np.sqrt(np.einsum("dir,dir->dr", g, g)), 1e-300)[:, None]
        return np.asarray(np.einsum("dir,dis->rs", g, g, optimize=True) / len(g))


# A variance this much smaller than under independence is a dependence, and not chance.
_MOST = 4.0


def _widen(covariance: Floats, ratio: Floats, trust: Floats) -> Floats:
    """Return covariances (..., h, h) with variances nearer to those under independence where not trusted."""
    diagonal = np.diagonal(ratio, axis1=-2, axis2=-1)
    larger = np.clip(np.nan_to_num(diagonal, nan=1.0, posinf=_MOST), 1.0, _MOST)
    root = np.sqrt(larger ** (1.0 - trust))
    return np.asarray(covariance * root[..., :, None] * root[..., None, :])


def part_beyond_chance(value: float, deviation: float) -> float:
    """Return 0 for a value of zero or less, 1 from two deviations on, and between them in between."""
    return min(max(value / (2.0 * deviation), 0.0), 1.0) if deviation > 0.0 else 0.0


def choose_blindly(values: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Return (V - e)[argmax(V + e)] averaged over e, and the deviation, of (..., h) and (..., h, h)."""
    variance = np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0.0)
    if values.shape[-1] == 1:
        return values[..., 0], np.sqrt(variance[..., 0])
    drawn = np.random.default_rng(0).standard_normal((_BLIND // 2, values.shape[-1]))
    e = np.concatenate((drawn, -drawn)) @ symmetric_root(covariance)  # (..., draws, h)
    chosen = (values[..., None, :] + e).argmax(axis=-1)[..., None]
    valued = np.take_along_axis(values[..., None, :] - e, chosen, axis=-1)[..., 0].mean(axis=-1)
    spread = np.take_along_axis(variance[..., None, :], chosen, axis=-1)[..., 0].mean(axis=-1)
    return np.asarray(valued), np.sqrt(spread)


def symmetric_root(covariance: Floats) -> Floats:
    """Return the symmetric R with R R = covariance, (..., h, h).

    It is unique and continuous, where eigenvectors alone turn by rounding, and draws with them.
    """
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(
        (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    )


def _cumulate(C: Floats) -> Floats:
    return np.concatenate((np.zeros((*C.shape[:-2], 1, C.shape[-1])), np.cumsum(C, axis=-2)), axis=-2)


def _move(sums: Floats, width: int) -> Floats:
    """Return moving sums over ``width`` cells on either side, from cumulated ones."""
    m = sums.shape[-2] - 1
    i = np.arange(m)
    return np.asarray(sums[..., np.minimum(i + width + 1, m), :] - sums[..., np.maximum(i - width, 0), :])


def folded_mean(k: Floats) -> Floats:
    """Return h(k) = E|k + N(0, 1)| = k (2 Phi(k) - 1) + 2 phi(k)."""
    return np.asarray(k * (2.0 * ndtr(k) - 1.0) + _ROOT * np.exp(-0.5 * k * k))


_K = np.linspace(0.0, 8.0, 4_001)
_H = folded_mean(_K)


def invert_folded_mean(values: Floats | float) -> Floats:
    """Return k >= 0 with E|k + N(0, 1)| = value; 0 below E|N(0, 1)|."""
    return np.asarray(np.where(values > _H[-1], values, np.interp(values, _H, _K)))
