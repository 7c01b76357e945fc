"""HSIC: the discrepancy between the joint law of (Z, S) and the product of its marginals."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Literal, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from frhsic.data import Sensitive
from frhsic.dependence._base import Dependence
from frhsic.dependence._centering import Estimator, PairSums, both_centred, centred, hsic_from_sums
from frhsic.dependence._density import Density, effective_rows
from frhsic.dependence._lowrank import pivoted_factor
from frhsic.dependence._numeric import signed_root
from frhsic.kernels import Gaussian, Kernel, default_kernel

# Above this many rows the Gram matrices are tiled by default; a tile of 512 float64 rows stays in the cache.
_WHOLE = 4_096
_TILE = 512
# Permutations are evaluated in chunks of about this many float64 numbers (256 MB).
_CHUNK = 32_000_000


class HSIC(Dependence):
    """The squared distance, in a product RKHS, between the law of (Z, S) and the product of its marginals.

    With Gram matrices K, L and centring H = I - 1 w' (Definition "Mean embeddings and HSIC" of the paper,
    equation ``hsic_empirical`` for equal weights),

        HSIC_w = sum_ij w_i w_j (H K H')_ij (H L H')_ij.

    It is zero, in the population and for characteristic kernels, exactly when Z and S are independent.

    Parameters
    ----------
    kernel_z : Kernel, default=Gaussian("median")
    kernel_s : Kernel, default=default_kernel(kinds of s)
        A product over the columns of s: a Gaussian for each continuous, a Delta for each categorical one.
    estimator : {"biased", "unbiased"}, default="biased"
        The V-statistic above, non-negative, whose expectation near independence is HSIC + (1 - E k)(1 - E l)
        / n for kernels with k(x, x) = 1; or the U-statistic, which may be negative and takes no weights.
    normalized : bool, default=False
        Divide by the geometric mean of HSIC(Z, Z) and HSIC(S, S), all by the same estimator. The biased form
        lies in [0, 1]; the unbiased ("debiased") one may leave it. 0/0 is 0.
    root : bool, default=False
        Return the signed square root, with a finite gradient at zero.
    reference : {"product", "uniform"}, default="product"
        The law of S under which the dependence is measured. "uniform" is the paper's minority-protection
        target: rows are weighted by one over the density of S (clipped), so that the comparison is between
        P(z | s) U(ds) and the product of its own marginals. :meth:`effective_rows` says what that costs.
    block_size : int or None, default=None
        Rows of a tile. Value and gradient stay the same, the memory is n + block_size^2 instead of n^2. None
        tiles above 4,096 rows.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(-1, 1, 100, dtype=torch.float64)
    >>> round(HSIC(normalized=True)(s**2, s).item(), 2)
    0.32
    """

    def __init__(
        self,
        kernel_z: Kernel | None = None,
        kernel_s: Kernel | None = None,
        *,
        estimator: Estimator = "biased",
        normalized: bool = False,
        root: bool = False,
        reference: Literal["product", "uniform"] = "product",
        block_size: int | None = None,
    ) -> None:
        super().__init__()
        if estimator not in ("biased", "unbiased"):
            raise ValueError(
                f"'estimator' must be 'biased' or 'unbiased'. Got {estimator!r}. "
                "Take 'unbiased' to report a dependence, 'biased' for a non-negative one."
            )
        if reference not in ("product", "uniform"):
            raise ValueError(
                f"'reference' must be 'product' or 'uniform'. Got {reference!r}. Leave it out for 'product'."
            )
        if reference == "uniform" and estimator == "unbiased":
            raise ValueError(
                "'reference' must be 'product' for estimator='unbiased': the uniform reference is a "
                "weighting and no weighted unbiased estimator is derived. Got 'uniform'. "
                "Use estimator='biased'."
            )
        if block_size is not None and block_size < 1:
            raise ValueError(
                f"'block_size' must be a positive number of rows. Got {block_size}. Leave it out to choose."
            )
        self.kernel_z = Gaussian() if kernel_z is None else kernel_z
        self.kernel_s = kernel_s
        self.estimator = estimator
        self.normalized = normalized
        self.root = root
        self.reference = reference
        self.block_size = block_size
        self._density: Density | None = None

    def extra_repr(self) -> str:
        """Return the arguments, for the printed form."""
        return (
            f"kernel_z={self.kernel_z}, kernel_s={self.kernel_s}, estimator={self.estimator!r}, "
            f"normalized={self.normalized}, root={self.root}, reference={self.reference!r}"
        )

    def effective_rows(self, s: Tensor | Sensitive, weights: Tensor | None = None) -> float:
        """Return 1 / sum w^2, the number of equally weighted rows that would be as precise."""
        values = s.values if isinstance(s, Sensitive) else s
        _, s, w = self._checked(values.reshape(len(values), -1), s, weights)
        w = self._reference_weights(s, w)
        return float(len(s)) if w is None else effective_rows(w)

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        self._refuse_weights(w)
        self._refuse_few_rows(len(s))
        w = self._reference_weights(s, w)
        kernel_z = self.kernel_z.bind(z, w)
        kernel_s = self._kernel_s(s).bind(s.values, w)
        n = len(s)
        block = self.block_size or (n if n <= _WHOLE else _TILE)
        if block < n:
            value = self._tiled(z, s.values, w, kernel_z, kernel_s, block)
        else:
            value = self._whole(z, s.values, w, kernel_z, kernel_s)
        return signed_root(value) if self.root else value

    def _kernel_s(self, s: Sensitive) -> Kernel:
        return default_kernel(s.kinds) if self.kernel_s is None else self.kernel_s

    def _refuse_weights(self, w: Tensor | None) -> None:
        if w is not None and self.estimator == "unbiased":
            raise ValueError(
                "'weights' must be None for estimator='unbiased': no weighted U-statistic is derived. "
                "Got weights. Use HSIC(estimator='biased')."
            )

    def _refuse_few_rows(self, n: int) -> None:
        if self.estimator == "unbiased" and n < 4:
            raise ValueError(
                f"'z' must have at least 4 rows for estimator='unbiased'. Got {n}. "
                "Use a larger batch or sample."
            )

    def _reference_weights(self, s: Sensitive, w: Tensor | None) -> Tensor | None:
        if self.reference == "product":
            return w
        density = self._density or Density.fit(s, w)
        return density.uniform_weights(s, w)

    def _whole(self, z: Tensor, s: Tensor, w: Tensor | None, kernel_z: Kernel, kernel_s: Kernel) -> Tensor:
        L = kernel_s.gram(s, s)
        if not self.normalized:
            M, factor = centred(L, w, self.estimator)
            return kernel_z.inner(z, M, factor)
        # Both sides centred: small entries do not cancel, and Cauchy-Schwarz holds for what is computed.
        A, B = (both_centred(gram, w, self.estimator) for gram in (kernel_z.gram(z, z), L))
        return self._normalized((A * B).sum(dim=(-2, -1)), (A * A).sum(dim=(-2, -1)), (B * B).sum())

    def _tiled(
        self, z: Tensor, s: Tensor, w: Tensor | None, kernel_z: Kernel, kernel_s: Kernel, block: int
    ) -> Tensor:
        w = z.new_full((len(s),), 1.0 / len(s)) if w is None else w
        zs, zz, ss = _pair_sums(z, s, w, kernel_z, kernel_s, block, self.estimator, self.normalized)
        w = w.double()
        value = hsic_from_sums(zs, w, self.estimator)
        if self.normalized:
            value = self._normalized(
                value, hsic_from_sums(zz, w, self.estimator), hsic_from_sums(ss, w, self.estimator)
            )
        return value.to(z.dtype)

    def _normalized(self, zs: Tensor, zz: Tensor, ss: Tensor) -> Tensor:
        """Return zs / sqrt(zz ss); factors common to all three cancel, and 0/0 is 0."""
        positive = (zz > 0) & (ss > 0)
        ratio = zs / (torch.where(positive, zz, 1.0).sqrt() * torch.where(positive, ss, 1.0).sqrt())
        if self.estimator == "biased":
            ratio = ratio.clamp(0.0, 1.0)  # beyond is rounding
        return torch.where(positive, ratio, 0.0)

    def _calibrated(self, z: Tensor, s: Sensitive, generator: torch.Generator | None) -> Self:
        density = Density.fit(s, None) if self.reference == "uniform" else None
        return self._with(
            kernel_z=self.kernel_z.calibrate(z, generator=generator),
            kernel_s=self._kernel_s(s).calibrate(s.values, generator=generator),
            _density=density,
        )

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor) -> Tensor:
        """Evaluate all permutations by matrix products.

        The Gram matrix of one side is factored as F F' at its numerical rank r (some twenty for one Gaussian
        column, the number of levels for categories); <K, F_p F_p'> is then a sum over columns of K F_p, and
        to permute S is to permute the rows of F (or, the other way round, those of the factor of K by the
        inverse permutation).
        """
        if self.reference == "uniform":
            return super()._permuted(z, s, permutations)
        self._refuse_few_rows(len(s))
        n = len(s)
        kernel_z = self.kernel_z.bind(z)
        kernel_s = self._kernel_s(s).bind(s.values)
        F, G = pivoted_factor(kernel_s, s.values), pivoted_factor(kernel_z, z)
        unbiased = self.estimator == "unbiased"
        if F is not None:
            values = _permuted_sums(F, G, kernel_z, z, permutations, unbiased)
        elif G is not None:
            values = _permuted_sums(G, None, kernel_s, s.values, permutations.argsort(dim=1), unbiased)
        else:
            K = kernel_z.gram(z, z)
            M = centred(kernel_s.gram(s.values, s.values), None, self.estimator).matrix
            values = torch.stack([(K * M[order][:, order]).sum() for order in permutations])
        values = values / (n * (n - 3) if unbiased else n * n)
        if self.normalized:
            zz = HSIC(kernel_z, kernel_z, estimator=self.estimator)(z, z)
            ss = HSIC(kernel_s, kernel_s, estimator=self.estimator)(s.values, s.values)
            values = self._normalized(values, zz, ss)
        return signed_root(values) if self.root else values


def _pair_sums(
    z: Tensor,
    s: Tensor,
    w: Tensor,
    kernel_z: Kernel,
    kernel_s: Kernel,
    block: int,
    estimator: Estimator,
    normalized: bool,
) -> tuple[PairSums, PairSums, PairSums]:
    """Return the sums over all pairs for (Z, S), (Z, Z) and (S, S) from the tiles on and above the diagonal.

    Tiles in the dtype of z, totals in float64. With gradients each tile is computed again in the backward
    pass instead of being kept. (Z, Z) and (S, S) are filled in only when ``normalized``.
    """
    blocks = [slice(start, start + block) for start in range(0, len(s), block)]
    tile_z, tile_s = kernel_z.tiles(z), kernel_s.tiles(s)
    # HSIC does not see a constant added to K or L; near their means the sums cancel least. float32 needs it.
    shifted = s.dtype == torch.float32
    with torch.no_grad():
        level_z, level_s = (
            tile(blocks[0], blocks[0]).mean() if shifted else None for tile in (tile_z, tile_s)
        )
    in_graph = torch.is_grad_enabled() and z.requires_grad

    def sums(I: slice, J: slice, L: Tensor, hollow: bool) -> tuple[Tensor, ...]:  # noqa: E741
        K = tile_z(I, J)
        if level_z is not None:
            K = K - level_z
        if hollow:
            K = K - torch.diag_embed(K.diagonal(dim1=-2, dim2=-1))
        along, down = K @ w[J], K.mT @ w[I]
        kk = ((K * K) @ w[J]) @ w[I] if normalized else zero
        KL = K * L if in_graph else K.mul_(L)
        return (KL @ w[J]) @ w[I], kk, along, down

    zero = w.new_zeros(())
    kl, kk, ll = zero.double(), zero.double(), zero.double()
    rows_k, rows_l = [zero.double()] * len(blocks), [zero.double()] * len(blocks)
    for i, j in combinations_with_replacement(range(len(blocks)), 2):
        I, J = blocks[i], blocks[j]  # noqa: E741
        hollow = i == j and estimator == "unbiased"
        L = tile_s(I, J)
        if level_s is not None:
            L = L - level_s
        if hollow:
            L.fill_diagonal_(0.0)
        if in_graph:
            tile_kl, tile_kk, along, down = checkpoint(sums, I, J, L, hollow, use_reentrant=False)
        else:
            tile_kl, tile_kk, along, down = sums(I, J, L, hollow)
        times = 1.0 if i == j else 2.0
        kl = kl + times * tile_kl
        rows_k[i] = rows_k[i] + along.double()
        rows_l[i] = rows_l[i] + (L @ w[J]).double()
        if i != j:
            rows_k[j] = rows_k[j] + down.double()
            rows_l[j] = rows_l[j] + (L.mT @ w[I]).double()
        if normalized:
            kk = kk + times * tile_kk
            ll = ll + times * (((L * L) @ w[J]) @ w[I])
    k, m = torch.cat(rows_k, dim=-1), torch.cat(rows_l)
    return PairSums(kl, k, m), PairSums(kk, k, k), PairSums(ll, m, m)


def _permuted_sums(
    F: Tensor, G: Tensor | None, kernel: Kernel, x: Tensor, permutations: Tensor, unbiased: bool
) -> Tensor:
    """Return n^2 HSIC (or n (n - 3) HSIC, unbiased) of K with F F' under each permutation of the rows of F.

    F is the factor ``(n, r)`` of one Gram matrix; the other one, K, comes as its factor G or as a kernel on
    x. Once F is centred every row of F F' sums to zero, so <K, F F'> is all there is to the biased form; the
    unbiased one leaves the diagonals out.
    """
    n, r = F.shape
    F = F - F.mean(dim=0)
    whole = kernel.gram(x, x) if G is None and n <= _WHOLE else None
    norms = F.square().sum(dim=1)  # the diagonal of F F'
    chunk = max(1, _CHUNK // (n * r))
    sums = []
    for orders in permutations.split(chunk):
        permuted = F[orders]  # (c, n, r)
        if G is not None:
            sums.append((G.mT @ permuted).square().sum(dim=(1, 2)))
            continue
        flat = permuted.movedim(0, 1).reshape(n, -1)  # (n, c r)
        total = flat.new_zeros(len(orders))
        for rows in torch.arange(n, device=F.device).split(_WHOLE):
            K = kernel.gram(x[rows], x) if whole is None else whole
            total += ((K @ flat) * flat[rows]).sum(dim=0).reshape(len(orders), r).sum(dim=1)
        sums.append(total)
    product = torch.cat(sums)
    if not unbiased:
        return product
    diagonal, row_k = _diagonal_and_rows(kernel, x, G, whole)
    off = product - norms[permutations] @ diagonal
    row_k = row_k - diagonal
    row_l = -norms
    total_kl = row_k.sum() * row_l.sum() / ((n - 1) * (n - 2))
    return off + total_kl - 2.0 / (n - 2) * (row_l[permutations] @ row_k)


def _diagonal_and_rows(
    kernel: Kernel, x: Tensor, G: Tensor | None, whole: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the diagonal and the row sums of a Gram matrix given as a factor, as a whole or as a kernel."""
    if G is not None:
        return G.square().sum(dim=1), G @ G.sum(dim=0)
    if whole is not None:
        return whole.diagonal(), whole.sum(dim=1)
    blocks = torch.arange(len(x), device=x.device).split(_TILE)
    return kernel.diagonal(x), torch.cat([kernel.gram(x[rows], x).sum(dim=1) for rows in blocks])
