"""The empirical cross-covariance of z and s as an element of a Hilbert space, and the size of its error.

With weights w_i of sum one, and means under them, write a_i = (k(z_i, .) - mean) (x) (l(s_i, .) - mean) and
C^ = sum_i w_i a_i, so that HSIC_b = |C^|^2. Up to terms of order 1/n, C^ - C = sum_i w_i (a_i - C): for large
n it is normal, with or without independence, and

    n |C^ - C|^2   has the law of   sum_k lambda_k chi_k^2,

where lambda_k are the eigenvalues of n sum_i w_i^2 (a_i - C^) (x) (a_i - C^): the law, given the rows, of the
Gaussian multiplier bootstrap | sum_i w_i xi_i (a_i - C^) |. The naive bootstrap of rows fails at
independence.

Where rows come in groups that may depend inside, the sums A_g = sum_{i in g} w_i (a_i - C^) take the place
of the rows: lambda_k are the eigenvalues of n sum_g A_g (x) A_g, and what is debiased takes off all pairs of
rows of one group. With W the sum over these pairs of w_i w_j K~_ij L~_ij and q = sum_g share_g^2, HSIC_b has
the mean W / (1 - q) at independence, and W holds q |C|^2 elsewhere, so the debiased form is

    (HSIC_b - W / (1 - q)) (1 - q) / (1 - 2 q).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive
from frhsic.dependence import HSIC, Dependence, DistanceCovariance
from frhsic.dependence.dcov import centred_diagonal, centred_products, is_sortable, sortable
from frhsic.inference._strata import size_classes, some_rows
from frhsic.inference._table import TableEmbedding, law_for_kernels, once
from frhsic.kernels import Kernel
from frhsic.kernels.documents import describe_kernel, has_document
from frhsic.numerics._centering import centred_by
from frhsic.numerics._lowrank import blocks, complete_map, feature_map
from frhsic.numerics._products import Rows, pair_rows

# Features are used above the first number of rows, up to so many of them if they are to be all; pairs of rows
# are never looked at above the second, and rows are sorted up to the third.
_WHOLE, _MOST_ROWS, _SORTED_ROWS, _WIDEST = 400, 5_000, 200_000, 128
# For eigenvalues: so many principal directions of each side, their products on so many pairs of them, from so
# many rows. The rest of the trace enters by its mean.
_FEATURES, _PAIRS, _EIGEN_ROWS = 64, 256, 20_000
# Pairs of rows of one group that are looked at together.
_PAIRS_AT_ONCE = 1_000_000


Kernels = tuple[Kernel, Kernel]
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Embedding:
    """What inference needs of two centred Gram matrices K~ and L~ of n rows with weights w."""

    w: Tensor  # (n,), of sum one
    each: Rows  # of each row, such as zs_i = sum_j w_j K~_ij L~_ij
    eigenvalues: Tensor  # largest first
    rest: float  # the part of their sum that they leave out
    spectra: tuple[Tensor, Tensor]  # eigenvalues of sum_i w_i^2 phi_i (x) phi_i / sum_i w_i^2 for each side
    notes: tuple[str, ...]
    groups: Tensor | None = None  # (n,), codes 0, ..., G - 1
    within: tuple[float, float, float] | None = None  # W of (z, s), (z, z) and (s, s)

    def __len__(self) -> int:
        return len(self.w)

    @property
    def rows(self) -> float:
        """The number of equally weighted rows that would be as precise, 1 / sum_i w_i^2."""
        return 1.0 / float(self.w.square().sum())

    @property
    def units(self) -> int:
        """The number of independent units: groups, or rows."""
        return len(self) if self.groups is None else int(self.groups.max()) + 1

    @property
    def length(self) -> float:
        """|C^|, the root of the biased HSIC."""
        return math.sqrt(max(float(self.w @ self.each.zs), 0.0))

    def unbiased(self) -> tuple[float, float, float]:
        """Return the debiased forms of HSIC(Z, S), HSIC(Z, Z) and HSIC(S, S): U-statistics if w are equal."""
        if self.groups is None or self.within is None:
            return self.each.debiased(self.w)
        share = _group_sums(self.w, self.groups).square().sum().item()
        zs, zz, ss = (
            (float(self.w @ each) * (1.0 - share) - inside) / (1.0 - 2.0 * share)
            for each, inside in zip(self.each[:3], self.within, strict=True)
        )
        return zs, zz, ss

    def size(self, normalized: bool) -> float:
        """Return what HSIC is divided by: the root of HSIC(Z, Z) HSIC(S, S), or one."""
        return self.each.size(self.w, normalized, self.unbiased())

    def standard_error(self, normalized: bool) -> float:
        """Return the first-order standard error of the debiased form.

        sum_j w_j K~_ij L~_ij is half the influence of row i. At independence the true influence vanishes, and
        what is left here is noise of variance (4/n) E[k~^2] E[l~^2]: over n, twice the variance of the
        degenerate U-statistic. So it is never too small there.
        """
        terms, n = self.w * self.each.influence(self.w, normalized, self.unbiased()), self.units
        terms = terms if self.groups is None else _group_sums(terms, self.groups)
        return math.sqrt(float(terms.square().sum()) * n / (n - 1))

    def errors(self, n_draws: int, generator: torch.Generator) -> Tensor:
        """Return draws of |C^ - C|, shape ``(n_draws,)``."""
        chi = torch.randn((n_draws, len(self.eigenvalues)), generator=generator, dtype=torch.float64).square()
        return ((chi @ self.eigenvalues + self.rest) / len(self)).sqrt()

    def by_chance(self, n_draws: int, generator: torch.Generator) -> Tensor:
        """Return draws of the debiased form under random pairings, in their limit, shape ``(n_draws,)``.

        Of groups draws of |C^ - C|^2 less its mean, which are those of independent groups.
        """
        if self.groups is not None:
            return self.errors(n_draws, generator).square() - (
                float(self.eigenvalues.sum()) + self.rest
            ) / len(self)
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


def biased_hsic(measure: Dependence, s: Sensitive, purpose: str, fix: str) -> HSIC:
    """Return the biased HSIC on the kernels of a measure; raise ArgumentError if it has none."""
    if isinstance(measure, HSIC | DistanceCovariance):
        hsic = as_hsic(measure, s)
        if hsic.reference == "product":
            return HSIC(hsic.kernel_z, hsic.kernel_s)
    must = f"be a DistanceCovariance or an HSIC with reference='product' for {purpose}"
    raise ArgumentError("dependence", must, type(measure).__name__, fix)


def embedding(
    z: Tensor,
    s: Sensitive,
    measure: HSIC,
    generator: torch.Generator,
    w: Tensor | None = None,
    groups: Tensor | None = None,
) -> Embedding | TableEmbedding:
    """Return the embedding under the kernels of a measure, bound on these rows.

    Within :func:`keep_tables` one that was computed before is returned.

    In time linear in n where the kernels have few features (scores are one column), in n log n for distance
    covariance of one column (above 200,000 rows on a random subsample of so many), and else from all pairs of
    a random subsample of 5,000 rows. The notes say so. Weights w are positive and sum to one. Groups are
    codes 0, ..., G - 1 of rows that may depend.
    """
    if measure.reference != "product":
        must = "have reference='product': the errors of an estimated density are not followed"
        fix = "Use HSIC(reference='product')."
        raise ArgumentError("dependence", must, repr(measure.reference), fix)
    kernels = measure.kernel_z, measure._kernel_s(s)
    if not all(map(has_document, kernels)):
        return _from_table_or_rows(z, s, kernels, generator, w, groups)

    def make() -> tuple[Embedding | TableEmbedding, Tensor]:
        return _from_table_or_rows(z, s, kernels, generator, w, groups), generator.get_state()

    documents = repr([describe_kernel(kernel) for kernel in kernels])
    key = ("embedding", documents, generator.get_state().numpy().tobytes())
    found, state = once(key, (z, s.values, w, groups), make)
    generator.set_state(state)
    return found


def _from_table_or_rows(
    z: Tensor,
    s: Sensitive,
    kernels: Kernels,
    generator: torch.Generator,
    w: Tensor | None,
    groups: Tensor | None,
) -> Embedding | TableEmbedding:
    law = law_for_kernels(z, s, w, groups)
    if law is not None:
        return TableEmbedding.of(law, kernels, z, s)
    return _embed(z, s, kernels, generator, w, groups)


def _embed(
    z: Tensor,
    s: Sensitive,
    rules: Kernels,
    generator: torch.Generator,
    w: Tensor | None,
    groups: Tensor | None,
) -> Embedding:
    kernels = rules[0].bind(z, w), rules[1].bind(s.values, w)
    n, x = len(z), s.values
    w = z.new_full((n,), 1.0 / n) if w is None else w
    notes: tuple[str, ...] = ()
    if n <= _WHOLE:
        return _whole(kernels, (z, x), w, groups)
    rows = _from_features(kernels, (z, x), w)
    if rows is None:
        lines = all(is_sortable(kernel, x.shape[1]) for kernel, x in zip(kernels, (z, x), strict=True))
        most = _SORTED_ROWS if lines else _MOST_ROWS
        if n > most:
            drawn = some_rows(n, groups, most, generator)
            z, x, w = z[drawn], x[drawn], w[drawn] / w[drawn].sum()
            groups = None if groups is None else groups[drawn].unique(return_inverse=True)[1]
            notes = (f"A random subsample of {len(drawn):,} of {n:,} rows was used.",)
        rows = _from_sorting(kernels, (z, x), w) or pair_rows(kernels, (z, x), w)
    within = None if groups is None else _within(rows, kernels, (z, x), w, groups)
    values, rest, spectra = _spectrum(rows, kernels, (z, x), w, generator, groups, within)
    return Embedding(w, rows, values, rest, spectra, notes, groups, within)


def _group_sums(x: Tensor, groups: Tensor) -> Tensor:
    """Return the sums of rows over groups, shape ``(G, ...)``."""
    return x.new_zeros((int(groups.max()) + 1, *x.shape[1:])).index_add_(0, groups, x)


def _within(
    rows: Rows, kernels: Kernels, pair: Pair, w: Tensor, groups: Tensor
) -> tuple[float, float, float]:
    """Return the sums over pairs of rows of one group of w_i w_j K~_ij L~_ij, of K~^2 and of L~^2."""
    means = []  # sum_j w_j k_ij less half of its mean, from the centred diagonal
    for kernel, x, centred in zip(kernels, pair, (rows.diagonal_z, rows.diagonal_s), strict=True):
        diagonal = kernel.diagonal(x)
        overall = w @ (diagonal - centred)
        means.append(0.5 * (diagonal + overall - centred) - 0.5 * overall)
    total = [0.0, 0.0, 0.0]
    for members in size_classes(groups):
        step = max(1, _PAIRS_AT_ONCE // members.shape[1] ** 2)
        for part in members.split(step):  # (groups, m)
            K, L = (
                kernel.gram(x[part], x[part]) - mean[part][:, :, None] - mean[part][:, None, :]
                for kernel, x, mean in zip(kernels, pair, means, strict=True)
            )
            u = w[part][:, :, None] * w[part][:, None, :]
            for k, (A, B) in enumerate(((K, L), (K, K), (L, L))):
                total[k] += float((u * A * B).sum())
    return total[0], total[1], total[2]


def _whole(kernels: Kernels, pair: Pair, w: Tensor, groups: Tensor | None) -> Embedding:
    K, L = (centred_by(k.gram(x, x), w) for k, x in zip(kernels, pair, strict=True))
    n, product = len(w), K * L
    rows = Rows(product @ w, (K * K) @ w, (L * L) @ w, K.diagonal(), L.diagonal())
    # <a_i - C^, a_j - C^> = (K L)_ij - zs_i - zs_j + |C^|^2, and so on the weights that scale the rows.
    errors = product - rows[0][:, None] - rows[0] + w @ rows[0]
    errors, within = w[:, None] * errors * w, None
    if groups is not None:
        errors = _group_sums(_group_sums(errors, groups).mT, groups)
        same = torch.outer(w, w) * (groups[:, None] == groups)
        within = (float((same * product).sum()), float((same * K * K).sum()), float((same * L * L).sum()))
    values = torch.linalg.eigvalsh(n * errors).clamp_min(0.0).flip(0)
    root = w / w.square().sum().sqrt()
    z, s = (torch.linalg.eigvalsh(root[:, None] * M * root).clamp_min(0.0) for M in (K, L))
    return Embedding(w, rows, values, 0.0, (z, s), (), groups, within)


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
    rows: Rows,
    kernels: Kernels,
    pair: Pair,
    w: Tensor,
    generator: torch.Generator,
    groups: Tensor | None,
    within: tuple[float, float, float] | None,
) -> tuple[Tensor, float, tuple[Tensor, Tensor]]:
    """Return the eigenvalues of an embedding, what they leave out of the trace, and those of each side.

    From the features of at most 20,000 rows, on the pairs of principal directions with the largest products;
    the trace is that of all rows.
    """
    zs, _, _, diagonal_z, diagonal_s = rows
    terms = w.square() * (diagonal_z * diagonal_s - 2.0 * zs + w @ zs)
    total = len(w) * float(terms.sum())
    together = total
    if groups is not None and within is not None:
        share, product = _group_sums(w, groups), _group_sums(w * zs, groups)
        together = len(w) * (
            within[0] - 2.0 * float(share @ product) + float(share.square().sum() * (w @ zs))
        )
    if len(w) > _EIGEN_ROWS:
        some = some_rows(len(w), groups, _EIGEN_ROWS, generator)
        groups = None if groups is None else groups[some].unique(return_inverse=True)[1]
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
    sums = G.new_zeros((0 if groups is None else int(groups.max()) + 1, len(kept)))
    for part in blocks(len(w)):
        errors = w[part, None] * (G[part][:, a] * F[part][:, b] - mean)
        if groups is None:
            second.addmm_(errors.mT, errors)
        else:
            sums.index_add_(0, groups[part], errors)
    if groups is not None:
        second.addmm_(sums.mT, sums)
    values = scale * len(w) * torch.linalg.eigvalsh(second).clamp_min(0.0).flip(0)
    z, s = (values_of / w.square().sum() for values_of in spectra)
    return values, max(0.0, together - float(values.sum())), (z, s)


def principal(F: Tensor, w: Tensor | None = None) -> Tensor:
    """Return the centred factor turned to its principal directions."""
    if w is None:
        F = F - F.mean(dim=0)
        return F @ torch.linalg.eigh(F.mT @ F).eigenvectors
    F = F - w @ F
    return F @ torch.linalg.eigh((w[:, None] * F).mT @ F).eigenvectors
