"""The empirical cross-covariance of z and s as an element of a Hilbert space, and the size of its error.

With weights w_i of sum one, and means under them, write a_i = (k(z_i, .) - mean) (x) (l(s_i, .) - mean) and
C^ = sum_i w_i a_i, so that HSIC_b = |C^|^2. Up to terms of order 1/n, C^ - C = sum_i w_i (a_i - C): for large
n it is normal, with or without independence, and

    n |C^ - C|^2   has the law of   sum_k lambda_k chi_k^2,

where lambda_k are the eigenvalues of n sum_i w_i^2 (a_i - C^) (x) (a_i - C^): the law, given the rows, of the
Gaussian multiplier bootstrap | sum_i w_i xi_i (a_i - C^) |. The naive bootstrap of rows fails at
independence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.dependence import HSIC, DistanceCovariance
from frhsic.dependence._centering import centred_by
from frhsic.dependence._features import Rows, pair_rows
from frhsic.dependence._lowrank import blocks, complete_map, feature_map
from frhsic.dependence.dcov import centred_diagonal, centred_products, sortable
from frhsic.kernels import Kernel

# Features are used above the first number of rows, up to so many of them if they are to be all; pairs of rows
# are never looked at above the second.
_WHOLE, _MOST_ROWS, _WIDEST = 400, 5_000, 128
# For eigenvalues: so many principal directions of each side, their products on so many pairs of them, from so
# many rows. The rest of the trace enters by its mean.
_FEATURES, _PAIRS, _EIGEN_ROWS = 64, 256, 20_000


@dataclass(frozen=True, eq=False)
class Embedding:
    """What inference needs of two centred Gram matrices K~ and L~ of n rows with weights w."""

    w: Tensor  # (n,), of sum one
    zs: Tensor  # (n,), sum_j w_j K~_ij L~_ij
    zz: Tensor
    ss: Tensor
    diagonal_z: Tensor  # (n,)
    diagonal_s: Tensor
    eigenvalues: Tensor  # largest first
    rest: float  # the part of their sum that they leave out
    spectra: tuple[Tensor, Tensor]  # eigenvalues of sum_i w_i^2 phi_i (x) phi_i / sum_i w_i^2 for each side
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.zs)

    @property
    def rows(self) -> float:
        """The number of equally weighted rows that would be as precise, 1 / sum_i w_i^2."""
        return 1.0 / float(self.w.square().sum())

    @property
    def length(self) -> float:
        """|C^|, the root of the biased HSIC."""
        return math.sqrt(max(float(self.w @ self.zs), 0.0))

    @property
    def _each(self) -> Rows:
        return Rows(self.zs, self.zz, self.ss, self.diagonal_z, self.diagonal_s)

    def unbiased(self) -> tuple[float, float, float]:
        """Return the debiased forms of HSIC(Z, S), HSIC(Z, Z) and HSIC(S, S): U-statistics if w are equal."""
        return self._each.debiased(self.w)

    def size(self, normalized: bool) -> float:
        """Return what HSIC is divided by: the root of HSIC(Z, Z) HSIC(S, S), or one."""
        return self._each.size(self.w, normalized)

    def standard_error(self, normalized: bool) -> float:
        """Return the first-order standard error of the debiased form.

        sum_j w_j K~_ij L~_ij is half the influence of row i. At independence the true influence vanishes, and
        what is left here is noise of variance (4/n) E[k~^2] E[l~^2]: over n, twice the variance of the
        degenerate U-statistic. So it is never too small there.
        """
        influence, n = self._each.influence(self.w, normalized), len(self)
        return math.sqrt(float((self.w * influence).square().sum()) * n / (n - 1))

    def errors(self, n_draws: int, generator: torch.Generator) -> Tensor:
        """Return draws of |C^ - C|, shape ``(n_draws,)``."""
        chi = torch.randn((n_draws, len(self.eigenvalues)), generator=generator, dtype=torch.float64).square()
        return ((chi @ self.eigenvalues + self.rest) / len(self)).sqrt()

    def by_chance(self, n_draws: int, generator: torch.Generator) -> Tensor:
        """Return draws of the debiased form under random pairings, in their limit, shape ``(n_draws,)``."""
        return by_chance(*self.spectra, n_draws, generator) / self.rows


def by_chance(lam: Tensor, mu: Tensor, n_draws: int, generator: torch.Generator) -> Tensor:
    """Return draws of sum_jk lambda_j mu_k (chi_jk^2 - 1), shape ``(n_draws,)``."""
    products = torch.outer(lam, mu).flatten()
    products = products[products > 1e-6 * products.max()]
    chi = torch.randn((n_draws, len(products)), generator=generator, dtype=torch.float64).square()
    return (chi - 1.0) @ products


def as_hsic(measure: HSIC | DistanceCovariance, s: Sensitive) -> HSIC:
    """Return the measure as an HSIC on its kernels for these columns."""
    return measure._hsic(s.kinds) if isinstance(measure, DistanceCovariance) else measure


def embedding(
    z: Tensor, s: Sensitive, measure: HSIC, generator: torch.Generator, w: Tensor | None = None
) -> Embedding:
    """Return the embedding under the kernels of a measure, bound on these rows.

    In time linear in n where the kernels have few features (scores are one column), in n log n for distance
    covariance of one column, and else from all pairs of a random subsample of 5,000 rows, which the notes
    say. Weights w are positive and sum to one.
    """
    if measure.reference != "product":
        raise ValueError(
            "'dependence' must have reference='product': the errors of an estimated density are not "
            f"followed. Got {measure.reference!r}. Use HSIC(reference='product')."
        )
    kernels = measure.kernel_z.bind(z, w), measure._kernel_s(s).bind(s.values, w)
    n, x = len(z), s.values
    w = z.new_full((n,), 1.0 / n) if w is None else w
    notes: tuple[str, ...] = ()
    if n <= _WHOLE:
        return _whole(kernels, (z, x), w)
    rows = _from_features(kernels, (z, x), w) or _from_sorting(kernels, (z, x), w)
    if rows is None:
        if n > _MOST_ROWS:
            drawn = torch.randperm(n, generator=generator)[:_MOST_ROWS]
            z, x, w = z[drawn], x[drawn], w[drawn] / w[drawn].sum()
            notes = (f"A random subsample of {_MOST_ROWS:,} of {n:,} rows was used.",)
        rows = pair_rows(kernels, (z, x), w)
    values, rest, spectra = _spectrum(rows, kernels, (z, x), w, generator)
    return Embedding(w, *rows, values, rest, spectra, notes)


Kernels = tuple[Kernel, Kernel]
Pair = tuple[Tensor, Tensor]


def _whole(kernels: Kernels, pair: Pair, w: Tensor) -> Embedding:
    K, L = (centred_by(k.gram(x, x), w) for k, x in zip(kernels, pair, strict=True))
    n, product = len(w), K * L
    rows = Rows(product @ w, (K * K) @ w, (L * L) @ w, K.diagonal(), L.diagonal())
    # <a_i - C^, a_j - C^> = (K L)_ij - zs_i - zs_j + |C^|^2, and so on the weights that scale the rows.
    errors = product - rows[0][:, None] - rows[0] + w @ rows[0]
    values = torch.linalg.eigvalsh(n * w[:, None] * errors * w).clamp_min(0.0).flip(0)
    root = w / w.square().sum().sqrt()
    z, s = (torch.linalg.eigvalsh(root[:, None] * M * root).clamp_min(0.0) for M in (K, L))
    return Embedding(w, *rows, values, 0.0, (z, s), ())


def _from_features(kernels: Kernels, pair: Pair, w: Tensor) -> Rows | None:
    """Return the rows from features G of z and F of s, in two passes, or None if there are too many.

    With T = sum_i w_i G_i F_i', sum_j w_j K~_ij L~_ij is G_i' T F_i.
    """
    map_s = complete_map(kernels[1], pair[1], _WIDEST)
    map_z = None if map_s is None else complete_map(kernels[0], pair[0], _WIDEST)
    if map_s is None or map_z is None:
        return None
    maps = map_z, map_s
    zs, zz, ss = (
        w.new_zeros((a.width, b.width)) for a, b in ((map_z, map_s), (map_z, map_z), (map_s, map_s))
    )
    # Near the means from the first block on, so that little cancels.
    shifts = [one(x[next(blocks(len(w)))]).mean(dim=0) for one, x in zip(maps, pair, strict=True)]
    means = [torch.zeros_like(shift) for shift in shifts]
    for rows in blocks(len(w)):
        G, F = (one(x[rows]).sub_(shift) for one, x, shift in zip(maps, pair, shifts, strict=True))
        weighted_z, weighted_s = w[rows, None] * G, w[rows, None] * F
        zs.addmm_(G.mT, weighted_s)
        zz.addmm_(G.mT, weighted_z)
        ss.addmm_(F.mT, weighted_s)
        means[0] += weighted_z.sum(dim=0)
        means[1] += weighted_s.sum(dim=0)
    for T, (i, j) in ((zs, (0, 1)), (zz, (0, 0)), (ss, (1, 1))):
        T.sub_(torch.outer(means[i], means[j]))
    means = [shift.add_(mean) for shift, mean in zip(shifts, means, strict=True)]
    parts: list[Rows] = []
    for rows in blocks(len(w)):
        G, F = (one(x[rows]).sub_(mean) for one, x, mean in zip(maps, pair, means, strict=True))
        a, b, c = (((A @ T) * B).sum(dim=1) for A, T, B in ((G, zs, F), (G, zz, G), (F, ss, F)))
        parts.append(Rows(a, b, c, G.square().sum(dim=1), F.square().sum(dim=1)))
    return Rows(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _from_sorting(kernels: Kernels, pair: Pair, w: Tensor) -> Rows | None:
    """Return the rows where distances along a line and agreements of labels are all that counts."""
    a, b = (sortable(kernel, x) for kernel, x in zip(kernels, pair, strict=True))
    if a is None or b is None:
        return None
    zs, zz, ss = (centred_products(one, other, w) for one, other in ((a, b), (a, a), (b, b)))
    return Rows(zs, zz, ss, centred_diagonal(a, w), centred_diagonal(b, w))


def _spectrum(
    rows: Rows, kernels: Kernels, pair: Pair, w: Tensor, generator: torch.Generator
) -> tuple[Tensor, float, tuple[Tensor, Tensor]]:
    """Return the eigenvalues of an embedding, what they leave out of the trace, and those of each side.

    From the features of at most 20,000 rows, on the pairs of principal directions with the largest products;
    the trace is that of all rows.
    """
    zs, _, _, diagonal_z, diagonal_s = rows
    terms = w.square() * (diagonal_z * diagonal_s - 2.0 * zs + w @ zs)
    total = len(w) * float(terms.sum())
    if len(w) > _EIGEN_ROWS:
        some = torch.randperm(len(w), generator=generator)[:_EIGEN_ROWS]
        pair, terms, w = (
            (pair[0][some], pair[1][some]),
            terms[some] / w[some].sum() ** 2,
            w[some] / w[some].sum(),
        )
    seen = len(w) * float(terms.sum())
    scale = total / seen if seen > 0.0 else 1.0
    sides = [principal(feature_map(k, x, _FEATURES)(x), w) for k, x in zip(kernels, pair, strict=True)]
    spectra = [torch.linalg.eigvalsh((w[:, None] * F).mT @ (w[:, None] * F)).clamp_min(0.0) for F in sides]
    G, F = sides
    sizes = torch.outer(w @ G.square(), w @ F.square()).flatten()
    kept = sizes.argsort(descending=True)[:_PAIRS]
    a, b = kept // F.shape[1], kept % F.shape[1]
    mean = ((w[:, None] * G).mT @ F).flatten()[kept]
    second = G.new_zeros((len(kept), len(kept)))
    for part in blocks(len(w)):
        errors = w[part, None] * (G[part][:, a] * F[part][:, b] - mean)
        second.addmm_(errors.mT, errors)
    values = scale * len(w) * torch.linalg.eigvalsh(second).clamp_min(0.0).flip(0)
    z, s = (values_of / w.square().sum() for values_of in spectra)
    return values, max(0.0, total - float(values.sum())), (z, s)


def principal(F: Tensor, w: Tensor | None = None) -> Tensor:
    """Return the centred factor turned to its principal directions."""
    if w is None:
        F = F - F.mean(dim=0)
        return F @ torch.linalg.eigh(F.mT @ F).eigenvectors
    F = F - w @ F
    return F @ torch.linalg.eigh((w[:, None] * F).mT @ F).eigenvectors
