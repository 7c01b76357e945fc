"""Gram matrices as thin products, and the feature maps behind them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from frhsic.kernels import Kernel

# What may be left of the trace.
_RESIDUAL = 1e-12
# After so many pivots of one column, and at once of several, random rows tell whether a factor can be thin.
_PROBED = 32
_PROBED_VALUES = 512
# Above so many rows pivots are sought among so many, and the features looked at on others: all of them, or so
# many of one column. Rows that the features miss join the first, in so many rounds.
_POOL, _CHECKED, _ROUNDS = 4_096, 32_768, 4
# The rows on which principal directions are found.
_DIRECTIONS = 16_384
# Rows of a block: 2 MB for 64 features, which stay in the cache (three quarters of the time of 32,768 rows).
_BLOCK = 4_096


def blocks(n: int) -> Iterator[slice]:
    """Yield the rows of n in blocks, for sums that never hold the features of all rows at once."""
    for start in range(0, n, _BLOCK):
        yield slice(start, min(start + _BLOCK, n))


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """G with <G(x), G(y)> = k(x, y), or a kernel below it, as similarities to a few rows."""

    kernel: Kernel
    seen: Tensor  # (p, d)
    turn: Tensor  # (p, r)

    @property
    def width(self) -> int:
        """The number of features."""
        return self.turn.shape[1]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features of the rows of x, shape ``(n, r)``; of many rows block by block."""
        if len(x) > _BLOCK:
            found = x.new_empty((len(x), self.width))
            for rows in blocks(len(x)):
                found[rows] = self(x[rows])
            return found
        # Ages repeat: a table of their features is quicker. Where none of a few repeats, many values differ.
        if x.shape[1] == 1 and len(x) > 256 and len(x[:_PROBED_VALUES].unique()) < _PROBED_VALUES:
            values, level = x[:, 0].unique(return_inverse=True)
            if 4 * len(values) <= len(x):
                return (self.kernel.gram(values[:, None], self.seen) @ self.turn).index_select(0, level)
        return self.kernel.gram(x, self.seen) @ self.turn


def complete_map(kernel: Kernel, x: Tensor, widest: int) -> FeatureMap | None:
    """Return features whose products are the Gram matrix of x up to 1e-12 of its trace, or None."""
    x = x.detach().double()
    if len(x) <= _POOL:
        pool, others = x, None
    elif x.shape[1] == 1:
        pool, others = _spread(x), x[_some(x, _CHECKED)]
    elif _is_wide(kernel, x, widest):
        return None
    else:
        pool, others = x[torch.cat((_some(x, _POOL), x.min(dim=0).indices, x.max(dim=0).indices))], x
    for _ in range(_ROUNDS):
        found = _pivoted(kernel, pool, min(widest, max(8, len(x) // 4)))
        if found is None:
            return None
        F, pivots = found
        eye = torch.eye(len(pivots), dtype=x.dtype, device=x.device)
        # F[pivots] is the Cholesky factor of their Gram matrix.
        turn = torch.linalg.solve_triangular(F[pivots], eye, upper=False).mT
        features = FeatureMap(kernel, pool[pivots], turn)
        far = None if others is None else _missed(features, others)
        if far is None:
            return features
        pool = torch.cat((pool, far))
    return None


def feature_map(kernel: Kernel, x: Tensor, rank: int) -> FeatureMap:
    """Return all features of the kernel on x, if they are at most 2 rank, or else ``rank`` principal ones."""
    return complete_map(kernel, x, 2 * rank) or principal_map(kernel, x, rank)


def principal_map(kernel: Kernel, x: Tensor, rank: int) -> FeatureMap:
    """Return ``rank`` features of the kernel, the principal ones on x; their products are a kernel below it.

    Rows are seen through their similarity to 4 rank of them (drawn from seed 0: the same each time) and the
    principal directions of that, in time linear in n.
    """
    x = x.detach().double()
    seen = x[_some(x, 4 * rank)]
    values, vectors = torch.linalg.eigh(kernel.gram(seen, seen))
    kept = values > 1e-10 * values[-1]
    turn = vectors[:, kept] / values[kept].sqrt()
    G = kernel.gram(x if len(x) <= _DIRECTIONS else x[_some(x, _DIRECTIONS)], seen) @ turn
    mean = G.mean(dim=0)
    directions = torch.linalg.eigh(G.mT @ G - len(G) * torch.outer(mean, mean)).eigenvectors
    return FeatureMap(kernel, seen, turn @ directions[:, -rank:])


def thin_factor(kernel: Kernel, x: Tensor, rank: int) -> Tensor:
    """Return G ``(n, r)``, r <= rank, with G G' the Gram matrix of x, or its projection on few directions."""
    F = pivoted_factor(kernel, x, rank)
    return principal_map(kernel, x, rank)(x.detach().double()) if F is None else F


def pivoted_factor(kernel: Kernel, x: Tensor, widest: int = 512) -> Tensor | None:
    """Return F ``(n, r)``, float64, with F F' the Gram matrix of x up to 1e-12 of its trace, or None.

    Incomplete Cholesky factorisation with pivoting: r columns of the Gram matrix are evaluated and the matrix
    itself is never formed. None when the numerical rank is above ``widest`` or a quarter of the rows.
    """
    found = _pivoted(kernel, x.detach().double(), min(widest, max(8, len(x) // 4)))
    return None if found is None else found[0]


def _pivoted(kernel: Kernel, x: Tensor, widest: int) -> tuple[Tensor, list[int]] | None:
    """Return the factor and its pivots, in their order."""
    n = len(x)
    left = kernel.diagonal(x).clone()
    allowed = _RESIDUAL * float(left.sum())
    F = x.new_zeros((n, 32))
    pivots: list[int] = []
    for r in range(widest):
        if float(left.sum()) <= allowed:
            return F[:, :r], pivots
        if r == (_PROBED if x.shape[1] == 1 else 0) and _is_wide(kernel, x, widest):
            return None
        if r == F.shape[1]:
            F = torch.cat((F, torch.zeros_like(F)), dim=1)
        pivot = int(left.argmax())
        column = kernel.gram(x, x[pivot : pivot + 1]).squeeze(-1) - F[:, :r] @ F[pivot, :r]
        F[:, r] = column / left[pivot].sqrt()
        left = (left - F[:, r].square()).clamp_min_(0.0)
        left[pivot] = 0.0
        pivots.append(pivot)
    return None


def _is_wide(kernel: Kernel, x: Tensor, widest: int) -> bool:
    """Return whether random rows alone, twice ``widest``, have more directions than so many features hold."""
    if len(x) <= 2 * widest:
        return False
    some = x[_some(x, 2 * widest)]
    values = torch.linalg.eigvalsh(kernel.gram(some, some))
    return float(values[:-widest].clamp_min(0.0).sum()) > 100.0 * _RESIDUAL * float(values.sum())


def _spread(x: Tensor) -> Tensor:
    """Return rows of one column at even ranks and at even values: what lies between has features between."""
    ordered = x[:, 0].sort().values
    ranks = torch.linspace(0, len(x) - 1, _POOL // 2, dtype=x.dtype, device=x.device).round().long()
    even = torch.linspace(float(ordered[0]), float(ordered[-1]), _POOL // 2, dtype=x.dtype, device=x.device)
    places = torch.searchsorted(ordered, even).clamp_max(len(x) - 1)
    return ordered[torch.cat((ranks, places))].unique()[:, None]


def _some(x: Tensor, count: int) -> Tensor:
    """Return row numbers drawn at random, the same each time."""
    return _first_rows(len(x), count).to(x.device)


@functools.lru_cache(maxsize=16)
def _first_rows(n: int, count: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:count].clone()


def _missed(features: FeatureMap, x: Tensor) -> Tensor | None:
    """Return the rows of each block that features miss most, or None if all together miss little enough."""
    trace = missed = 0.0
    far = []
    for rows in blocks(len(x)):
        size = features.kernel.diagonal(x[rows])
        left = size - features(x[rows]).square().sum(dim=1)
        trace, missed = trace + float(size.sum()), missed + float(left.clamp_min(0.0).sum())
        far.append(x[rows][left.topk(min(4, len(left))).indices])
    return None if missed <= 2.0 * _RESIDUAL * trace else torch.cat(far)
