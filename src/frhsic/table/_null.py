"""The test of independence of a table: HSIC under several bandwidths, and its law under independence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frhsic.table._axis import Floats, Integers
from frhsic.table._kernels import factor, gather, gaussian, median_distance
from frhsic.table._pvalues import combine, rank_pvalue
from frhsic.table._table import Law

# Bandwidths of the score and of S as multiples of their medians, and the weight of each pair. The first is
# nearly linear; along S the others are narrower, because a score is a function of S plus noise.
FAMILY = ((4.0, 4.0, 0.5), (2.0, 0.5, 0.25), (1.0, 0.25, 0.25))
# The grid of a test, the same for every number of rows: cells of S (of several columns together), levels of
# the score, and the product of both, which is what a draw of many rows costs. The narrowest kernel of the
# score reaches over dozens of 64 levels: with 256 no alternative is found more often. Labels are not merged;
# where they are many, the score has fewer levels, but not fewer than ``FEWEST_LEVELS``.
CELLS, JOINT_CELLS, LEVELS, FEWEST_LEVELS = 128, 1_024, 64, 4
LARGEST_GRID = 16_384
# Kernels are factored up to this.
_TRACE = 1e-11
# Tables are drawn in chunks of about so many numbers (16 MB).
_CHUNK = 2_000_000
# Weights are a function of S if rows of equal S have equal weights, and at most one row in ten is alone.
_ALONE = 0.1
# A bootstrap that spreads less than so much of what permutations do is not trusted alone.
_SPREAD = 0.7

# Draws tables (b, m, k), given b.
_Sampler = Callable[[int, np.random.Generator], NDArray[Any]]


class TableTest(NamedTuple):
    """The result of a test of independence."""

    statistic: float
    pvalue: float
    method: str
    exact: bool
    n_permutations: int
    null: Floats  # (n_permutations,), the statistic of each draw
    measure: str
    notes: tuple[str, ...]
    cells: int  # of S and of the score in the grid of the test
    levels: int


def independence(
    laws: Law | Sequence[Law],
    n_draws: int,
    rng: np.random.Generator,
    *,
    shares: Sequence[float] | None = None,
    weights_of_s: bool | None = None,
) -> TableTest:
    """Test whether S and the score are independent.

    The statistic is the largest of several HSIC, each as minus the logarithm of its tail probability, less
    the logarithm of its weight. Rows that are permuted make every table with the observed margins as likely
    as ``scipy.stats.random_table`` draws it. The cells, their positions, the levels, the bandwidths and the
    weights of the pairs are functions of one margin each, and sums of S and of the score inside a joint cell
    are not used. The p-value (1 + #{null >= observed}) / (B + 1) is therefore exact: P(p <= alpha) <= alpha
    under independence for every n.

    Numbers have Gaussian kernels with the bandwidths of ``FAMILY``. Labels have two kernels, each with half
    the weight: 1{s = s'}, in which a label counts by the square of its share, and 1{s = s'} / p_s, with which
    HSIC is a sum of squares between labels as in an analysis of variance. The second one sees what many rare
    labels show together.

    With weights that are a function of S, the weight of a row stays with its S, and the test is exact too.
    With other weights rows cannot be exchanged. The test is then a wild bootstrap: HSIC of a table of normal
    masses, of variance sum w^2 in each joint cell, with kernels centred by both weighted margins. Its level
    holds for many rows. Where its draws are smaller than those of rows that are exchanged with their weights
    (on average, by more than three tenths), a few rows make up most of what chance adds, and the p-value is
    the larger of the two.

    Parameters
    ----------
    laws : Law, or sequence of Law
        The laws of one table given each label: rows are exchanged within labels. The statistic is the mean of
        those of the labels.
    n_draws : int
    rng : numpy.random.Generator
    shares : sequence of float, optional
        The share of each label. None takes the shares of rows.
    weights_of_s : bool, optional
        Whether weights are a function of S. None looks: they are if all rows in a cell of S have the same
        weight. If True, a row has the mean weight of its cell.
    """
    laws = [laws] if isinstance(laws, Law) else list(laws)
    weighted = not all(_is_unweighted(law) for law in laws)
    of_s = not weighted or (
        all(_are_weights_of_s(law) for law in laws) if weights_of_s is None else weights_of_s
    )
    grid = _Grid.of(laws, by_rows=weighted and of_s)
    part = np.array([law.n for law in laws] if shares is None else shares, float)
    kernels = _Kernels(grid)
    strata = [
        _Stratum(grid, kernels, label, share, of_s=of_s)
        for label, share in enumerate(part / part.sum())
        # Where S or the score does not vary, draws would differ by rounding, which would be ranked.
        if min(np.count_nonzero(grid.rows[label].sum(axis=axis)) for axis in (0, 1)) > 1
    ]

    def draw(law: Callable[[_Stratum], _Sampler]) -> Floats:
        values = np.zeros((len(kernels.weights), n_draws + 1))
        for stratum in strata:
            stratum.add(values, law(stratum), rng)
        return values

    values = draw(_Stratum.permute if of_s else _Stratum.multiply)
    combined = combine(values, kernels.weights)
    pvalue, notes = rank_pvalue(combined), grid.notes
    if not of_s:
        notes += (
            "The weights are not a function of S, so rows have random multipliers instead of being permuted. "
            "The level holds for many rows.",
        )
        exchanged = sum((stratum.share * stratum.exchanged_means() for stratum in strata), np.zeros(1))
        if (values[:, 1:].mean(axis=1) < _SPREAD * exchanged).any():
            # Rare meets rare: the rows that would show how much chance adds are not among these.
            others = combine(draw(_Stratum.exchange), kernels.weights)
            pvalue = max(pvalue, rank_pvalue(others))
            notes += (
                "A few rows make up most of what chance adds, so the p-value is the larger of two: of the "
                "bootstrap, and of permuted rows.",
            )
    return TableTest(
        statistic=float(combined[0]),
        pvalue=pvalue,
        method="permutation" if of_s else "wild bootstrap",
        exact=of_s,
        n_permutations=n_draws,
        null=combined[1:],
        measure=f"HSIC aggregated over {kernels.words}",
        notes=notes,
        cells=grid.rows.shape[1],
        levels=grid.rows.shape[2],
    )


def _is_unweighted(law: Law) -> bool:
    """Return whether all rows have the same weight."""
    n = law.n
    same = np.allclose(law.shares * n, law.rows, rtol=1e-9, atol=0.0)
    return bool(same and np.allclose(law.squares * n * n, law.rows, rtol=1e-6, atol=0.0))


def _are_weights_of_s(law: Law) -> bool:
    """Return whether rows in a cell of S have equal weights, and nine rows of ten show it."""
    rows = law.rows.sum(axis=1)
    if rows[rows == 1.0].sum() > _ALONE * law.n:
        return False
    some = law.rows > 0
    mean = np.where(some, law.shares, 0.0) / np.where(some, law.rows, 1.0)
    low, high = np.where(some, mean, np.inf).min(axis=1), mean.max(axis=1)
    # Squares are whole numbers of a unit that is coarse beside those of small weights.
    spread = np.where(some, law.squares / np.where(some, law.rows, 1.0) - mean**2, 0.0)
    return bool((high - low <= 1e-9 * high).all() and (spread <= (1e-4 * high.max()) ** 2).all())


# The grid


class _Grid(NamedTuple):
    """Tables of each label on the grid of the test."""

    rows: Floats  # (l, m, k)
    shares: Floats  # (l, m, k), of weights of sum one
    squares: Floats  # (l, m, k)
    s: Floats  # (m, q)
    z: Floats  # (k,)
    numbers: tuple[bool, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, laws: Sequence[Law], *, by_rows: bool) -> _Grid:
        """Return the grid of some laws, a function of the margins of S and of the score.

        A level lies at the mean of its scores. ``by_rows``: or at its middle, because the mean under weights
        that are a function of S depends on both.
        """
        cells, levels = (
            np.unique(np.concatenate(x)) for x in ([law.cells for law in laws], [law.levels for law in laws])
        )
        tables = np.zeros((3, len(laws), len(cells), len(levels)))
        places = [np.searchsorted(cells, law.cells) for law in laws]
        heights = [np.searchsorted(levels, law.levels) for law in laws]
        for label, (law, i, j) in enumerate(zip(laws, places, heights, strict=True)):
            for table, x in zip(tables, (law.rows, law.shares, law.squares), strict=True):
                table[label][np.ix_(i, j)] = x
        rows = tables[0].sum(axis=0)
        in_cells = np.concatenate([law.rows.sum(axis=1) for law in laws])
        in_levels = np.concatenate([law.rows.sum(axis=0) for law in laws])
        z = np.concatenate([law.z_lows + 0.5 * law.z_widths if by_rows else law.z for law in laws])
        s = np.concatenate([law.s for law in laws])
        at_s = np.stack([_means(x, in_cells, np.concatenate(places)) for x in s.T], axis=1)
        at_z = _means(z, in_levels, np.concatenate(heights))
        cell = _merge_cells(at_s, laws[0].numbers, rows.sum(axis=1))
        m = int(cell.max()) + 1
        most = min(LEVELS, max(FEWEST_LEVELS, LARGEST_GRID // m))
        level = cut(at_z, rows.sum(axis=0), most)
        notes: tuple[str, ...] = ()
        if m < len(cells):
            notes += (f"S is tested in {m} ranges of about equally many rows.",)
        if (k := int(level.max()) + 1) < len(levels):
            why = f", because S has {m:,} cells" if m > CELLS else ""
            notes += (f"The score is tested in {k} levels of about equally many rows{why}.",)
        merged = np.zeros((m, k, *tables.shape[:2]))
        np.add.at(merged, np.ix_(cell, level), tables.transpose(2, 3, 0, 1))
        merged = merged.transpose(2, 3, 0, 1)
        return cls(
            rows=merged[0],
            shares=merged[1],
            squares=merged[2],
            s=np.stack([_means(x, rows.sum(axis=1), cell) for x in at_s.T], axis=1),
            z=_means(at_z, rows.sum(axis=0), level),
            numbers=laws[0].numbers,
            notes=notes,
        )


def cut(x: Floats, mass: Floats, size: int) -> Integers:
    """Return the code of each x: its value where there are at most ``size``, else ranges of equal masses."""
    values, index = np.unique(x, return_inverse=True)
    if len(values) <= size:
        return np.asarray(index)
    own = np.bincount(index, mass)
    upto = np.cumsum(own)
    code = np.minimum((size * (upto - 0.5 * own) / upto[-1]).astype(np.int64), size - 1)
    return np.asarray(np.unique(code, return_inverse=True)[1][index])


def _merge_cells(s: Floats, numbers: Sequence[bool], rows: Floats) -> Integers:
    """Return the cell of the grid of each cell of S. Labels are not merged."""
    if len(s) <= CELLS or not any(numbers) or (len(numbers) > 1 and len(s) <= JOINT_CELLS):
        return np.arange(len(s))
    labels = _codes(s[:, ~np.array(numbers)])
    size = CELLS
    if len(numbers) > 1:
        size = max(2, int((JOINT_CELLS / (labels.max() + 1)) ** (1.0 / sum(numbers))))
    parts = [cut(x, rows, size) for x, number in zip(s.T, numbers, strict=True) if number]
    return _codes(np.stack([labels, *parts], axis=1))


def _codes(columns: NDArray[Any]) -> Integers:
    """Return a number for each different row."""
    if not columns.shape[1]:
        return np.zeros(len(columns), np.int64)
    return np.asarray(np.unique(columns, axis=0, return_inverse=True)[1]).ravel()


def _means(x: Floats, mass: Floats, code: Integers) -> Floats:
    """Return the mean of x in each cell; of equal values that value, without rounding."""
    first = np.zeros(int(code.max()) + 1)
    first[code] = x
    return np.asarray(first + np.bincount(code, mass * (x - first[code])) / np.bincount(code, mass))


# The statistics


class _Kernels:
    """The kernels of each pair of bandwidths on a grid, as thin factors: K~ = A A' between cells."""

    def __init__(self, grid: _Grid) -> None:
        rows = grid.rows.sum(axis=0)
        p, q = rows.sum(axis=1), rows.sum(axis=0)
        numbers = np.array(grid.numbers)
        self.labels = _codes(grid.s[:, ~numbers])
        self.standardised = not numbers.all()
        lines = grid.s[:, numbers]
        medians = [median_distance(*gather(x, p)) for x in lines.T]
        sigma = median_distance(grid.z, q)
        self.of_z = [_factor(gaussian(grid.z, wide * sigma)) for wide, _, _ in FAMILY]
        self.of_s: list[Floats | None] = []
        for _, wide, _ in FAMILY:
            # Without numbers the kernel on the cells of a label is 1.
            grams = [gaussian(x, wide * median) for x, median in zip(lines.T, medians, strict=True)]
            self.of_s.append(_factor(np.prod(grams, axis=0), self.labels) if grams else None)
        weights = np.array([weight for _, _, weight in FAMILY])
        self.weights = np.repeat(0.5 * weights, 2) if self.standardised else weights
        self.words = f"{len(FAMILY)} {'pairs of ' if numbers.any() else ''}bandwidths"
        self.words += " and two weights of labels" if self.standardised else ""


def _factor(gram: Floats, labels: Integers | None = None) -> Floats:
    """Return A with A A' = K, but for 1e-11 on the diagonal, where it is 1.

    With labels it is the kernel between cells of one label, and the columns of A are those of its labels in
    turn, filled up with zeros.
    """
    labels = np.zeros(len(gram), np.int64) if labels is None else labels
    parts = []
    for label in range(int(labels.max()) + 1):
        own = np.flatnonzero(labels == label)
        inside = gram[np.ix_(own, own)]
        parts.append((own, factor(np.diagonal(inside), inside.__getitem__, len(own), _TRACE).columns))
    A = np.zeros((len(gram), max(part.shape[1] for _, part in parts)))
    for own, part in parts:
        A[own, : part.shape[1]] = part
    return A


class _Stratum:
    """The table of one label, and HSIC of tables with its margins.

    For masses P (m, k) with margin p of S, K = A A' and L = B B', HSIC = |A' (P B - p 1' P B)|^2.
    """

    def __init__(self, grid: _Grid, kernels: _Kernels, label: int, share: float, *, of_s: bool) -> None:
        rows = grid.rows[label]
        i, j = np.flatnonzero(rows.sum(axis=1)), np.flatnonzero(rows.sum(axis=0))
        inside = np.ix_(i, j)
        self.share = share
        self.rows = np.rint(rows[inside]).astype(np.int64)
        masses, self.squares = grid.shares[label][inside], grid.squares[label][inside]
        self.p = masses.sum(axis=1)
        # Tables hold rows, each with the weight of its cell of S, or else masses.
        self.observed = self.rows if of_s else masses
        self.unit = self.p / self.rows.sum(axis=1) if of_s else np.ones(len(i))
        q = self.observed.sum(axis=0) / self.observed.sum()
        # Any B centred by a fixed vector has the same HSIC; by q itself, little cancels.
        factors = [B[j] - q @ B[j] for B in kernels.of_z]
        self.B = np.concatenate(factors, axis=1)
        edges = np.cumsum([0, *(B.shape[1] for B in factors)])
        self.slices = [slice(a, b) for a, b in pairwise(edges)]
        self.A = [None if A is None else A[i] for A in kernels.of_s]
        self.labels = np.unique(kernels.labels[i], return_inverse=True)[1]
        ones = np.ones(int(self.labels.max()) + 1)
        scales = [ones, 1.0 / np.bincount(self.labels, self.p)] if kernels.standardised else [ones]
        self.scales = np.stack(scales, axis=1)  # (labels, kernels)

    def add(self, values: Floats, draw: _Sampler, rng: np.random.Generator) -> None:
        """Add the share of this label in each statistic, observed and drawn, to ``values`` (t, B + 1)."""
        values[:, 0] += self.share * self._hsic(self.observed[None])[:, 0]
        step = max(1, _CHUNK // self.rows.size)
        for first in range(1, values.shape[1], step):
            part = slice(first, min(first + step, values.shape[1]))
            values[:, part] += self.share * self._hsic(draw(part.stop - part.start, rng))

    def permute(self) -> _Sampler:
        """Return a function that draws tables of rows with the observed margins."""
        from scipy.stats import random_table  # takes half a second, which other questions need not pay

        law = random_table(self.rows.sum(axis=1), self.rows.sum(axis=0))
        # It permutes rows or, where these are many, draws cell by cell. Both are draws from one law.
        return lambda count, rng: law.rvs(count, random_state=rng)

    def multiply(self) -> _Sampler:
        """Return a function that draws normal masses with the variances of the weighted table."""
        some = np.flatnonzero(self.squares)
        root = np.sqrt(self.squares.ravel()[some])

        def masses(count: int, rng: np.random.Generator) -> Floats:
            tables = np.zeros((count, self.squares.size))
            tables[:, some] = root * rng.standard_normal((count, len(some)))
            return tables.reshape(count, *self.squares.shape)

        return masses

    def exchange(self) -> _Sampler:
        """Return a function that draws masses of rows that are permuted with their weights."""
        draw = self.permute()
        rows = self.rows.sum(axis=1)
        mean = self.p / rows
        variance = np.maximum(self.squares.sum(axis=1) / rows - mean**2, 0.0)  # of weights in a cell of S

        def masses(count: int, rng: np.random.Generator) -> Floats:
            tables = draw(count, rng)
            noise = rng.standard_normal(tables.shape)
            return mean[:, None] * tables + np.sqrt(variance[:, None] * tables) * noise

        return masses

    def exchanged_means(self) -> Floats:
        """Return the mean of each HSIC over all permutations of rows with their weights, (t,)."""
        squares, columns = self.squares.sum(axis=1), self.rows.sum(axis=0)
        n = float(columns.sum())
        means = []
        for A, own in zip(self.A, self.slices, strict=True):
            A = np.ones((len(self.p), 1)) if A is None else A
            centre = np.zeros((len(self.scales), A.shape[1]))
            np.add.at(centre, self.labels, self.p[:, None] * A)
            # K~(x, x) of kernels c 1{label = label'} A A', for each c.
            inner = np.square(A).sum(axis=1) - 2.0 * (A * centre[self.labels]).sum(axis=1)
            diagonal = self.scales[self.labels] * inner[:, None] + np.square(centre).sum(axis=1) @ self.scales
            B = self.B[:, own] - columns @ self.B[:, own] / n
            means.append(squares @ diagonal * (columns @ np.square(B).sum(axis=1)) / (n - 1.0))
        return np.concatenate(means)

    def _hsic(self, tables: NDArray[Any]) -> Floats:
        """Return each HSIC of some tables (b, m, k)."""
        T = (tables @ self.B) * self.unit[:, None]
        T -= self.p[:, None] * T.sum(axis=1, keepdims=True)
        values = []
        for A, own in zip(self.A, self.slices, strict=True):
            D = T[:, :, own]
            if A is None:
                norms = np.einsum("bmr,bmr->bm", D, D)
            elif len(self.scales) == 1:
                norms = np.square(A.T @ D).sum(axis=(1, 2))[:, None]
            else:
                parts = [self.labels == label for label in range(len(self.scales))]
                norms = np.stack([np.square(A[x].T @ D[:, x]).sum(axis=(1, 2)) for x in parts], axis=1)
            values.append((norms @ self.scales).T)
        return np.concatenate(values)
