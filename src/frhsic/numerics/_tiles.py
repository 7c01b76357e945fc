"""HSIC of many rows: one pass over tiles of the Gram matrix of Z, in memory n + block^2."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from frhsic.kernels import Kernel
from frhsic.numerics._centering import Estimator, GramSums, hsic_from_sums
from frhsic.numerics._lowrank import pivoted_factor

# Up to this many rows Gram matrices are formed whole; a tile of 512 float64 rows stays in the cache.
WHOLE = 4_096
TILE = 512
# L is factored from this many rows on; a product with a wider factor costs more than the tiles of L.
_FACTORED, _WIDEST = 64, 128


def tiled_hsic(
    z: Tensor,
    s: Tensor,
    weights: Tensor | None,
    kernel_z: Kernel,
    kernel_s: Kernel,
    block: int,
    estimator: Estimator,
    normalized: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return HSIC(Z, S), HSIC(Z, Z) and HSIC(S, S) in float64; the last two only if ``normalized``.

    When L = F F' at a low rank (one Gaussian column: some twenty), centring L is centring F and a tile costs
    one product with F beyond its own kernel values; else the tiles of L are formed too. With gradients each
    tile is computed again in the backward pass instead of being kept.
    """
    w: Tensor = z.new_full((len(s),), 1.0 / len(s)) if weights is None else weights
    F = pivoted_factor(kernel_s, s, _WIDEST) if len(s) >= _FACTORED else None
    factored = F is not None
    columns, sums_s = _from_factor(s.new_zeros((len(s), 0)).double() if F is None else F, w)
    rows_needed = not factored or normalized or estimator == "unbiased"
    in_graph = torch.is_grad_enabled() and z.requires_grad
    blocks = [slice(start, start + block) for start in range(0, len(s), block)]
    tile_z, tile_s = kernel_z.tiles(z), kernel_s.tiles(s)
    # HSIC does not see a constant added to K or L; near their means the sums cancel least. float32 needs it.
    level_z = level_s = w.new_zeros(())
    if z.dtype == torch.float32 and rows_needed:
        with torch.no_grad():
            level_z, level_s = (tile(blocks[0], blocks[0]).mean() for tile in (tile_z, tile_s))
    shifted = bool(level_z != 0)

    def sums(I: slice, J: slice, L: Tensor | None) -> tuple[Tensor, ...]:  # noqa: E741
        """Return what a tile adds to sum w w K L, to sum w w K^2 and to the row sums of both sides."""
        K = tile_z(I, J) - level_z if shifted else tile_z(I, J)
        rows = (K @ w[J], K.mT @ w[I]) if rows_needed else (zero, zero)
        kk = ((K * K) @ w[J]) @ w[I] if normalized else zero
        if L is None:
            return ((K @ columns[J]) * columns[I]).sum(dim=(-2, -1)), kk, *rows
        return ((K * L) @ w[J]) @ w[I], kk, *rows

    zero = w.new_zeros(())
    kl, kk, ll = zero.double(), zero.double(), zero.double()
    rows_k, rows_l = [zero.double()] * len(blocks), [zero.double()] * len(blocks)
    for i, j in combinations_with_replacement(range(len(blocks)), 2):
        I, J = blocks[i], blocks[j]  # noqa: E741
        times = 1.0 if i == j else 2.0
        L = None
        if not factored:
            L = tile_s(I, J) - level_s
            rows_l[i] = rows_l[i] + (L @ w[J]).double()
            if i != j:
                rows_l[j] = rows_l[j] + (L.mT @ w[I]).double()
            if normalized:
                ll = ll + times * (((L * L) @ w[J]) @ w[I]).double()
        if in_graph:
            part_kl, part_kk, along, down = checkpoint(sums, I, J, L, use_reentrant=False)
        else:
            part_kl, part_kk, along, down = sums(I, J, L)
        kl, kk = kl + times * part_kl.double(), kk + times * part_kk.double()
        rows_k[i] = rows_k[i] + along.double()
        if i != j:
            rows_k[j] = rows_k[j] + down.double()

    diagonal = kernel_z.diagonal(z).double() - level_z
    sums_z = GramSums(kk, torch.cat(rows_k, dim=-1) if rows_needed else torch.zeros_like(diagonal), diagonal)
    if not factored:
        sums_s = GramSums(ll, torch.cat(rows_l), kernel_s.diagonal(s).double() - level_s)
    zs = hsic_from_sums(kl, sums_z, sums_s, w.double(), estimator)
    if not normalized:
        return zs, zs, zs
    zz, ss = (hsic_from_sums(side.square, side, side, w.double(), estimator) for side in (sums_z, sums_s))
    return zs, zz, ss


def factored_hsic(
    models: Tensor,
    s: Tensor,
    weights: Tensor | None,
    kernels_z: Sequence[Kernel],
    kernel_s: Kernel,
    estimator: Estimator,
) -> list[tuple[Tensor, Tensor, Tensor]] | None:
    """Return the same three numbers for each model in time linear in n, or None unless all sides are thin."""
    w = (models.new_full((len(s),), 1.0 / len(s)) if weights is None else weights).double()
    F = pivoted_factor(kernel_s, s, _WIDEST)
    if F is None:
        return None
    columns, sums_s = _from_factor(F, w)
    found = []
    for z, kernel_z in zip(models, kernels_z, strict=True):
        G = pivoted_factor(kernel_z, z, _WIDEST)
        if G is None:
            return None
        own, sums_z = _from_factor(G, w)
        kl = (own.mT @ (columns / w[:, None])).square().sum()
        pairs = ((kl, sums_z, sums_s), (sums_z.square, sums_z, sums_z), (sums_s.square, sums_s, sums_s))
        zs, zz, ss = (hsic_from_sums(*sums, w, estimator) for sums in pairs)
        found.append((zs, zz, ss))
    return found


def _from_factor(F: Tensor, w: Tensor) -> tuple[Tensor, GramSums]:
    """Return w F for the centred factor F of L, in the dtype of w, and the sums of F F'.

    Rows of F F' sum to zero once F is centred.
    """
    wide = w.double()
    size = F.square().sum()
    F = F - wide @ F
    F = torch.where(F.square().sum(dim=0) > 1e-26 * size, F, 0.0)  # what is left of a constant is rounding
    weighted = wide[:, None] * F
    square = (F.mT @ weighted).square().sum()
    return weighted.to(w), GramSums(square, torch.zeros_like(wide), F.square().sum(dim=1))
