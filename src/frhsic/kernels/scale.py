"""Scales: bandwidth rules, whitening, and distances that do not cancel."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from frhsic._checks import ArgumentError

Rule = Literal["median", "scale-free"]

# Rows above which the median is taken on a random subsample: 2,000 rows are 2 million pairs.
MEDIAN_ROWS = 2_000
# Squared distances below this share of the squared norms are not left to cancelling.
CLOSE = 1e-3
FIX_RULE = "Fix it on data first: kernel.calibrate(x, freeze=True)."
_PAIRS = 1_000_000  # in the median of many rows
_WIDE = 16  # columns from which one product is quicker than pair by pair


def sum_dtype(K: Tensor) -> torch.dtype | None:
    """Return the dtype for sums over a matrix: float64 beyond batch size, where float32 would cost digits.

    None is that of the matrix: naming it doubles the time of a sum.
    """
    return torch.float64 if K.shape[-1] > 512 else None


def weighted_mean(x: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean row of x, shape ``(..., 1, d)``; weights ``(n,)`` sum to one."""
    if weights is None:
        return x.mean(dim=-2, keepdim=True)
    return (weights[:, None] * x).sum(dim=-2, keepdim=True)


def move(x: Tensor, origin: Tensor | None, whiten: bool | Tensor) -> Tensor:
    """Return rows seen from the origin, whitened by a matrix if there is one."""
    if origin is not None:
        x = x - origin.to(x)
    return x @ whiten.to(x) if isinstance(whiten, Tensor) else x


def exponent(a: Tensor, b: Tensor, rate: float = 1.0, least: float = -torch.inf) -> Tensor:
    """Return -rate |a_i - b_j|^2 / 2, or ``least`` where it is below, shape ``(..., n, m)``.

    One matrix product of rows centred at a common point: centring keeps the expansion a.b - |a|^2/2 - |b|^2/2
    from cancelling when the data sit far from zero. One column is subtracted directly.
    """
    if a.shape[-1] == 1:
        gap = a - b.mT
        squared = gap * gap if gap.requires_grad else gap.mul_(gap)
        E = squared.mul_(-0.5 * rate)  # never above zero
        return E if least == -torch.inf else held(E, least)
    centre = a.detach().mean(dim=-2, keepdim=True)
    if a is b:
        return held(self_exponent(a - centre)[0].mul_(rate), least)
    a, b = a - centre, b - centre
    half_a, half_b = (0.5 * (x * x).sum(dim=-1) for x in (a, b))
    return held((a @ b.mT).sub_(half_a.unsqueeze(-1)).sub_(half_b.unsqueeze(-2)).mul_(rate), least)


def held(E: Tensor, least: float) -> Tensor:
    """Hold E between ``least`` and zero, in place and outside the graph.

    Above zero is rounding, which exp would blow up. A gradient need not know of either bound, and the masks
    of two clamps would take a quarter of its time.
    """
    E.detach().clamp_min_(least).clamp_max_(0.0)  # vmap has no rule for clamp_
    return E


def self_exponent(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return -|x_i - x_j|^2 / 2 and |x_i|^2 / 2 for centred rows.

    The norms are read off the diagonal of the product, which becomes zero.
    """
    E = x @ x.mT
    half = E.diagonal(dim1=-2, dim2=-1) * 0.5
    return E.sub_(half.unsqueeze(-1)).sub_(half.unsqueeze(-2)), half


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Return |a_i - b_j|, shape ``(..., n, m)``, exactly zero for equal rows and with gradient zero there."""
    in_graph = (a.requires_grad or b.requires_grad) and torch.is_grad_enabled()
    return _pair_by_pair(a, b) if in_graph or a.shape[-1] < _WIDE else distances_by_product(a, b)


def distances_by_product(a: Tensor, b: Tensor) -> Tensor:
    """Return |a_i - b_j| without a gradient, by one product: several times as quick for wide rows.

    What is left of a product after cancelling has a relative error of eps / CLOSE in squares; pairs closer
    than that are taken one by one.
    """
    centre = b.mean(dim=-2, keepdim=True)
    a, b = (a - centre,) * 2 if a is b else (a - centre, b - centre)
    sums = a.square().sum(dim=-1).unsqueeze(-1) + b.square().sum(dim=-1).unsqueeze(-2)
    squared = (a @ b.mT).mul_(-2.0).add_(sums)
    *models, i, j = (squared < CLOSE * sums).nonzero(as_tuple=True)
    if len(i) > squared.numel() // 8 + squared.shape[-1]:
        return _pair_by_pair(a, b)
    squared[*models, i, j] = (a[*models, i] - b[*models, j]).square().sum(dim=-1)
    return squared.clamp_min_(0.0).sqrt_()


def _pair_by_pair(a: Tensor, b: Tensor) -> Tensor:
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def median_rows(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return the rows whose distances have the median: all, or above 2,000 a random subsample of 2,000.

    ``generator=None`` draws it from seed 0, so that calling twice gives the same number.
    """
    n = x.shape[-2]
    if n <= MEDIAN_ROWS:
        return x.detach()
    generator = generator or torch.Generator().manual_seed(0)
    rows = torch.randperm(n, generator=generator, device=generator.device)[:MEDIAN_ROWS]
    return x.detach()[..., rows.to(x.device), :]


def median_bandwidth(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return the lower median of the distances between :func:`median_rows`, one for each leading index.

    When half of the pairs coincide the median of the others is taken; when all do, 1.
    """
    x = median_rows(x, generator)
    n = x.shape[-2]
    # At unit size, or the squares of very small and very large numbers would leave the floats.
    size = x.abs().amax(dim=(-2, -1), keepdim=True)
    size = torch.where(size > 0, size, 1.0)
    models = (x / size).reshape(-1, n, x.shape[-1])
    # Each pair once: a quarter of the memory of all distances and the places of their upper half.
    r = torch.stack([torch.nn.functional.pdist(model) for model in models])
    r = r.reshape(*x.shape[:-2], -1).mul_(size[..., 0])
    median = torch.stack([_lower_median(model) for model in r.reshape(-1, r.shape[-1])]).reshape(r.shape[:-1])
    if bool((median > 0).all()):
        return median
    apart = torch.where(r > 0, r, torch.nan).nanmedian(dim=-1).values
    return torch.where(median > 0, median, apart).nan_to_num(1.0)


def median_of_all_rows(x: Tensor) -> float:
    """Return the median of the distances between rows of x ``(n, d)``, by pairs of all rows.

    For a sample of a large table, where another sample should give nearly the same number. The rows of
    :func:`median_bandwidth`, 2,000, are too few, and its median of ages in years jumps from one year to the
    next. Here rows make a million pairs at random, and the share of the distances up to a number is
    interpolated between the middles of its steps. Up to 2,000 rows the two are the same.
    """
    n = len(x)
    if n <= MEDIAN_ROWS:
        return median_bandwidth(x).item()
    # In an order of our own: neighbours of a sorted table are alike.
    x = x.detach()[torch.randperm(n, generator=torch.Generator().manual_seed(0))]
    size = 2.0 ** math.frexp(float(x.abs().max()))[1]  # exact; squares stay within the floats
    x = x / size
    shifts = range(1, -(-_PAIRS // n) + 1)
    pairs = [torch.linalg.vector_norm(x - x.roll(shift, 0), dim=1) for shift in shifts]
    # In float32, where 0.3 - 0.2 is 0.2 - 0.1.
    r, counts = torch.cat(pairs).float().unique(return_counts=True)
    if r[0] == 0 and 2 * counts[0] >= counts.sum():  # the median of the others
        r, counts = r[1:], counts[1:]
    if not len(r):
        return 1.0
    middle = counts.cumsum(0) - 0.5 * counts
    median = float(np.interp(0.5 * int(counts.sum()), middle.numpy(), r.numpy()))
    return max(median, float(r[r > 0][0])) * size


def stretch(whiten: bool | Tensor) -> float:
    """Return the most by which a whitening lengthens a row."""
    return float(torch.linalg.matrix_norm(whiten, 2)) if isinstance(whiten, Tensor) else 1.0


def _lower_median(r: Tensor) -> Tensor:
    """Return ``r.median()``, sought among the numbers near the median of every 64th: four times as quick."""
    k, some = (len(r) - 1) // 2, r[::64].sort().values
    reach = 4 * int(len(some) ** 0.5)
    if len(some) > 8 * reach:
        low, high = some[len(some) // 2 - reach], some[len(some) // 2 + reach]
        below, near = int((r < low).sum()), r[(r >= low) & (r <= high)]
        if below <= k < below + len(near):
            return near.kthvalue(k - below + 1).values
    return r.median()


def scale_free_bandwidth(x: Tensor, weights: Tensor | None) -> Tensor:
    """Return sigma with sigma^2 = 2 tr Cov_w(x), the mean squared distance, inside the graph and floored."""
    spread = (x - weighted_mean(x, weights)).square().sum(dim=-1)
    mean = spread.mean(dim=-1) if weights is None else spread @ weights
    return (2.0 * mean).clamp_min(torch.finfo(x.dtype).tiny ** 0.5).sqrt()


def whitening(x: Tensor, weights: Tensor | None) -> Tensor:
    """Return T ``(..., d, d)`` such that x T has unit covariance, inside the graph.

    Columns are first brought to unit variance, which is exact at any scale, and constant ones to zero; the
    correlation matrix that is left gets a small ridge, for columns that repeat each other.
    """
    n, d = x.shape[-2:]
    if n < d + 2:
        must = f"have at least d + 2 = {d + 2} rows: fewer are equally far apart once whitened"
        raise ArgumentError("whiten", must, n, "Use more rows or whiten=False.")
    eps = torch.finfo(x.dtype).eps
    mean = weighted_mean(x, weights)
    x = x - mean
    w = torch.full_like(x[..., :1], 1.0 / n) if weights is None else weights[:, None]
    sd = (w.mT @ x.square()).clamp_min(torch.finfo(x.dtype).tiny ** 0.5).sqrt()
    sd = torch.where(sd > 10.0 * eps * mean.abs(), sd, torch.inf)  # a constant column but for rounding
    x = x / sd
    correlation = (w * x).mT @ x
    eye = torch.eye(d, dtype=x.dtype, device=x.device)
    root = torch.linalg.cholesky(correlation + (100.0 * d * eps) * eye)
    return torch.linalg.solve_triangular(root, eye.expand_as(root), upper=False).mT / sd.mT
