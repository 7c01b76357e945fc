"""The law of the error of the cross-covariance of S and a score, from a table.

With features a of a cell of S and b of a level of the score, both centred, C^ = sum of w a (x) b over rows
and HSIC_b = |C^|^2. Up to terms of order 1/n, C^ - C = sum of w (a (x) b - C): for large n it is normal, with
or without independence, and its covariance is a sum over joint cells of the table. The naive bootstrap of
rows fails at independence; the law of C^ does not.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from scipy import special

from frhsic.table._axis import Floats
from frhsic.table._kernels import Bandwidths, Side, factor, side_s
from frhsic.table._measures import HSICValue, hsic_of
from frhsic.table._table import Law

# Directions of each side, and pairs of them, whose errors are followed; the rest enters by its mean.
_FEATURES, _PAIRS = 48, 256
# Columns of a factor of a kernel, and the share of its trace that they may leave out.
_COLUMNS, _LEFT = 96, 1e-10


class KernelErrors:
    """HSIC of the law of a table under two kernels on its cells, and the law of its error."""

    def __init__(self, law: Law, s: Side, z: Side) -> None:
        self.law, self.s, self.z = law, s, z
        self.value: HSICValue = hsic_of(law, s, z)
        self.zs = s.centred @ law.shares @ z.centred  # sum over rows of w K~ L~, of a row in each joint cell
        self.zz = (z.centred * z.centred) @ z.w
        self.ss = (s.centred * s.centred) @ s.w

    @classmethod
    def of_hsic(cls, law: Law, bandwidths: Bandwidths) -> KernelErrors:
        """Return the errors under Gaussian kernels, and equality for labels of S."""
        return cls(law, side_s(law, bandwidths), Side.gaussian(law.z, bandwidths.z, law.q))

    def size(self, normalized: bool) -> float:
        """Return what HSIC is divided by."""
        if not normalized:
            return 1.0
        _, zz, ss = self.value.unbiased
        if min(zz, ss) <= 0.0:
            raise ValueError(
                "'z' and 's' must have a positive HSIC with themselves to be normalised by it. "
                f"Got {zz:.3g} and {ss:.3g}. Use more rows, or normalized=False."
            )
        return math.sqrt(zz * ss)

    def standard_error(self, normalized: bool) -> float:
        """Return the first-order standard error of the unbiased form.

        At independence the true influence of a row vanishes, and what is left here is noise: it is never too
        small there.
        """
        law = self.law
        influence = 2.0 * (self.zs - np.sum(law.shares * self.zs))
        if normalized:
            zs, zz, ss = self.value.unbiased
            shrunk_s, shrunk_z = (self.ss - law.p @ self.ss) / ss, (self.zz - law.q @ self.zz) / zz
            size = self.size(True)
            influence = influence / size - zs / size * (shrunk_s[:, None] + shrunk_z)
        n = law.n
        return math.sqrt(float(np.sum(law.squares * influence**2)) * n / (n - 1.0))

    @cached_property
    def _directions(self) -> tuple[Floats, Floats]:
        return _features(self.s), _features(self.z)

    @cached_property
    def spectrum(self) -> tuple[Floats, float]:
        """Eigenvalues of the covariance of C^ - C, and the part of their sum that they leave out."""
        law, (A, B) = self.law, self._directions
        sq = law.squares
        sizes = np.outer(law.p @ A**2, law.q @ B**2).ravel()
        kept = np.argsort(sizes)[::-1][:_PAIRS]
        a, b = np.divmod(kept, B.shape[1])
        c = (A.T @ law.shares @ B)[a, b]
        v = (A.T @ sq @ B)[a, b]
        i, j = np.nonzero(sq)
        if len(i) * len(kept) ** 2 < B.shape[1] ** 2 * sq.shape[1] * (len(sq) + A.shape[1] ** 2):
            products = A[i][:, a] * B[j][:, b]
            second = products.T @ (sq[i, j][:, None] * products)
        else:
            products_a = (A[:, :, None] * A[:, None, :]).reshape(len(A), -1)
            products_b = (B[:, :, None] * B[:, None, :]).reshape(len(B), -1)
            fourth = (products_a.T @ sq @ products_b).reshape(A.shape[1], A.shape[1], B.shape[1], B.shape[1])
            second = fourth[a[:, None], a[None], b[:, None], b[None]]
        second = second - np.outer(v, c) - np.outer(c, v) + sq.sum() * np.outer(c, c)
        values = np.maximum(np.linalg.eigvalsh(second)[::-1], 0.0)
        return values, max(0.0, self.mean_square - float(values.sum()))

    @property
    def mean_square(self) -> float:
        """The mean of |C^ - C|^2: the sum of all eigenvalues."""
        squares = self.law.squares
        terms = squares * (np.outer(self.s.diagonal, self.z.diagonal) - 2.0 * self.zs)
        return float(terms.sum() + squares.sum() * np.sum(self.law.shares * self.zs))

    def is_far(self, factor: float, confidence: float) -> bool:
        """Return whether |C^| is above so many times a quantile of |C^ - C|, whatever the eigenvalues are.

        Of all sums of independent squares with one mean a single square has the largest upper quantiles, of
        tails up to .2: Szekely and Bakirov (2003).
        """
        square = float(special.chdtri(1.0, 1.0 - confidence))
        return self.value.biased[0] > factor**2 * square * self.mean_square

    def errors(self, n_draws: int, rng: np.random.Generator) -> Floats:
        """Return draws of |C^ - C|, shape ``(n_draws,)``."""
        values, rest = self.spectrum
        chi = rng.standard_normal((n_draws, len(values))) ** 2
        return np.asarray(np.sqrt(chi @ values + rest))

    def by_chance(self, n_draws: int, rng: np.random.Generator) -> Floats:
        """Return draws of the unbiased form under independence, in their limit."""
        squares = self.law.squares
        sides = zip(self._directions, (squares.sum(axis=1), squares.sum(axis=0)), strict=True)
        lam, mu = (np.maximum(np.linalg.eigvalsh(F.T @ (w[:, None] * F) / w.sum()), 0.0) for F, w in sides)
        products = np.sort(np.outer(lam, mu), axis=None)[::-1][:_PAIRS]
        chi = rng.standard_normal((n_draws, len(products))) ** 2
        return np.asarray((chi - 1.0) @ products / self.law.effective_rows)


def _features(side: Side) -> Floats:
    """Return A with A A' = K~ but for directions that hardly any row has, largest first: ``(m, r)``."""
    kernel = side.centred
    diagonal = np.diagonal(kernel)
    columns, _, left = factor(diagonal, kernel.__getitem__, _COLUMNS, 1e-13 * float(diagonal.max()))
    if side.w @ left <= _LEFT * (side.w @ diagonal):  # smooth kernels have few directions
        values, vectors = np.linalg.eigh(columns.T @ (side.w[:, None] * columns))
        A = columns @ vectors[:, ::-1]
    else:
        values, vectors = side.eigen()
        A = vectors[:, ::-1] * np.sqrt(values[::-1] / side.w[:, None])
    values = values[::-1][:_FEATURES]
    return np.asarray(A[:, : len(values)][:, values > 1e-7 * values[0]])
