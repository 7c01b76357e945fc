"""HSIC under many permutations of S, by matrix products."""

from __future__ import annotations

import torch
from torch import Tensor

from frhsic.kernels import Kernel
from frhsic.numerics._centering import Estimator, GramSums, centred, hsic_from_sums
from frhsic.numerics._lowrank import pivoted_factor
from frhsic.numerics._tiles import TILE, WHOLE

# Permutations are evaluated in chunks of about this many float64 numbers, three times over: 8 MB, or 128 MB
# where each chunk evaluates the kernel anew.
_CHUNK, _LARGE_CHUNK = 1_000_000, 16_000_000


def random_orders(n: int, count: int, generator: torch.Generator, *, first_as_it_is: bool = False) -> Tensor:
    """Return random permutations of n rows, shape ``(count, n)``; the first may be the rows as they are."""
    orders = torch.arange(n).repeat(count, 1)
    for order in orders[int(first_as_it_is) :]:
        torch.randperm(n, generator=generator, out=order)
    return orders


def permuted_hsic(
    z: Tensor,
    s: Tensor,
    w: Tensor | None,
    kernel_z: Kernel,
    kernel_s: Kernel,
    permutations: Tensor,
    estimator: Estimator,
) -> Tensor:
    """Return HSIC of z with s[permutation] for each permutation, shape ``(B,)``.

    The Gram matrix of one side is factored as F F' at its numerical rank r (some twenty for one Gaussian
    column, the number of levels for categories); <K, F_p F_p'> is then a sum over columns of K F_p, and to
    permute S is to permute the rows of F (or those of the factor of K by the inverse permutation). Weights
    belong to the rows of s: centred by them and multiplied by n w, F takes them along.
    """
    F, G = pivoted_factor(kernel_s, s), pivoted_factor(kernel_z, z)
    if F is not None:
        F = F.to(z)
        F = F - F.mean(dim=0) if w is None else len(s) * w[:, None] * (F - w @ F)
        return _factored(F, G, kernel_z, z, permutations, estimator)
    if G is not None and w is None:
        G = G.to(z)
        return _factored(G - G.mean(dim=0), None, kernel_s, s, permutations.argsort(dim=1), estimator)
    K = kernel_z.gram(z, z)
    M, factor = centred(kernel_s.gram(s, s), w, estimator)
    return torch.stack([(K * M[order][:, order]).sum() for order in permutations]) * factor


def _factored(
    F: Tensor, G: Tensor | None, kernel: Kernel, x: Tensor, permutations: Tensor, estimator: Estimator
) -> Tensor:
    """Return HSIC of K, given by its factor G or as a kernel on x, with F F' under permutations of F.

    The columns of F sum to zero.
    """
    n, r = F.shape
    G = None if G is None else G.to(x)
    whole = kernel.gram(x, x) if G is None and n <= WHOLE else None
    products = []
    size = _LARGE_CHUNK if G is None and whole is None else _CHUNK
    step = min(len(permutations), max(1, size // (n * max(r, 1))))
    # Made once: blocks of this size that come and go would scatter over the heap and never be given back.
    store = F.new_empty(step * n * r)
    image = torch.empty_like(store if whole is not None else store[:0])
    for orders in permutations.split(max(1, step)):
        c = len(orders)
        flat = torch.index_select(F, 0, orders.T.reshape(-1), out=store[: n * c * r].view(n * c, r))
        flat = flat.view(n, c * r)
        if G is not None:
            squares = (G.mT @ flat).square_().sum(dim=0)
        elif whole is not None:
            squares = torch.mm(whole, flat, out=image[: n * c * r].view(n, c * r)).mul_(flat).sum(dim=0)
        else:
            squares = flat.new_zeros(c * r)
            for rows in (slice(start, start + TILE) for start in range(0, n, TILE)):
                squares += (kernel.gram(x[rows], x) @ flat).mul_(flat[rows]).sum(dim=0)
        products.append(squares.reshape(c, r).sum(dim=1))
    values = torch.cat(products) / (n * n)
    if estimator == "biased":
        return values  # rows of F F' sum to zero: nothing is left to take off
    norms = F.square().sum(dim=1)[permutations]  # (B, n): the diagonal of each permuted F F'
    sums_f = GramSums(norms.new_zeros(()), torch.zeros_like(norms), norms)
    w = x.new_full((n,), 1.0 / n)
    return hsic_from_sums(values, _sums(kernel, x, G, whole), sums_f, w, estimator)


def _sums(kernel: Kernel, x: Tensor, G: Tensor | None, whole: Tensor | None) -> GramSums:
    """Return row means and diagonal of a Gram matrix given as a factor, as a whole or as a kernel."""
    n = len(x)
    if G is not None:
        rows, diagonal = G @ G.mean(dim=0), G.square().sum(dim=1)
    elif whole is not None:
        rows, diagonal = whole.mean(dim=1), whole.diagonal()
    else:
        blocks = torch.arange(n, device=x.device).split(TILE)
        rows = torch.cat([kernel.gram(x[part], x).mean(dim=1) for part in blocks])
        diagonal = kernel.diagonal(x)
    return GramSums(rows.new_zeros(()), rows, diagonal)
