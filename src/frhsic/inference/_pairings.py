"""Random pairings of two sides through their features, and where a normal law may stand for them.

With features g_i of z and f_j of s, both of sum zero over n units, and a random permutation p, the sum
T = sum_i g_i f_p(i)' has mean zero and covariance (G'G) (x) (F'F) / (n - 1). It is close to normal where no
single term matters (Hoeffding 1951). The condition here is

    max_i |g_i|^2 max_j |f_j|^2 <= 0.04 n |G'G / n| |F'F / n|      (Frobenius norms),

which for two rare groups says that at least 25 units are expected in both. Where it does not hold, the units
with the largest features are taken out of it: those of z are paired one by one with units drawn from s, those
of s with units drawn from z, and only what is left of both sides is drawn from the normal law, given what it
was left with. As at most n / m units have m times the mean square, some sqrt(25 n) units of each side always
suffice. A side of which all units are taken out is permuted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# The largest squared term, over the typical size of the squared sum.
LARGEST = 0.04
# Of so few units all are paired one by one.
_FEW = 200


@dataclass(frozen=True, eq=False)
class PairingSide:
    """Features of the n units of one side, of sum zero, under several measures side by side."""

    n: int
    widths: tuple[int, ...]  # features under each measure
    gram: Tensor  # (R, R), the sum of g g'
    norms: Tensor  # (measures, n), |g|^2 or a bound on it
    rows: Callable[[Tensor], Tensor]  # numbers of units (m,) -> features (m, R)

    @classmethod
    def of(cls, features: Tensor, widths: tuple[int, ...]) -> PairingSide:
        """Return the side of features that are at hand; their mean is taken off."""
        G = features - features.mean(dim=0)
        norms = torch.stack([part.square().sum(dim=1) for part in G.split(widths, dim=1)])
        return cls(len(G), widths, G.mT @ G, norms, G.__getitem__)

    def sizes(self) -> Tensor:
        """Return |g|^2 over the Frobenius norm of the mean of g g', the largest over measures, ``(n,)``."""
        own = [part.split(self.widths, dim=1)[k] for k, part in enumerate(self.gram.split(self.widths))]
        scale = torch.stack([torch.linalg.matrix_norm(gram) / self.n for gram in own])[:, None]
        return torch.where(scale > 0, self.norms / scale.clamp_min(1e-300), 0.0).amax(dim=0)


def large_units(size_z: Tensor, size_s: Tensor, n: int) -> tuple[float, float]:
    """Return bounds a and b such that units with sizes up to a and up to b meet the condition.

    Of the pairs with a b = 0.04 n the one that leaves fewest units above, both sides together. Infinite
    bounds where no unit is above.
    """
    limit = LARGEST * n
    if float(size_z.max() * size_s.max()) <= limit:
        return float("inf"), float("inf")
    z, s = (size.sort(descending=True).values for size in (size_z, size_s))
    places = torch.unique(torch.cat((torch.zeros(1), torch.logspace(0, np.log10(len(z) - 1), 64))).long())
    best, found = 2 * n, (0.0, float("inf"))
    for a in z[places].tolist():
        b = limit / a if a > 0 else float("inf")
        count = int((z > a).sum()) + int((s > b).sum())
        if count < best:
            best, found = count, (a, b)
    return found


class Pairing:
    """Draws of sum_i g_i f_p(i)' over random permutations p."""

    def __init__(self, z: PairingSide, s: PairingSide, *, whole: bool = False) -> None:
        self.z, self.s = z, s
        n = z.n
        above_z, above_s = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
        if not whole and n > _FEW:
            size_z, size_s = z.sizes(), s.sizes()
            a, b = large_units(size_z, size_s, n)
            above_z, above_s = size_z > a, size_s > b
            if int(above_z.sum() + above_s.sum()) >= n // 2:
                above_z, above_s = torch.ones_like(above_z), torch.zeros_like(above_s)
        self.large_z, self.others_z = above_z.nonzero()[:, 0], (~above_z).nonzero()[:, 0]
        self.large_s = above_s.nonzero()[:, 0]
        self._place = torch.full((n,), -1)
        self._place[self.large_s] = torch.arange(len(self.large_s))
        self._G, self._F = z.rows(self.large_z), s.rows(self.large_s)
        self.root_z, self.root_s = (
            _root(_left(side.gram, own, n), side.gram, n) for side, own in ((z, self._G), (s, self._F))
        )

    @property
    def n_large(self) -> int:
        """The number of units that are paired one by one."""
        return len(self.large_z) + len(self.large_s)

    @property
    def cost(self) -> int:
        """The numbers that a draw takes."""
        features = len(self.large_z) * self._F.shape[1] + len(self.large_s) * self._G.shape[1]
        return max(1, features + self.root_z.shape[1] * self.root_s.shape[1])

    def draw(self, count: int, generator: torch.Generator) -> list[Tensor]:
        """Return draws of the sum under each measure, shapes ``(count, r, q)``."""
        n, size = self.z.n, (self.root_z.shape[1], self.root_s.shape[1])
        noise = torch.randn((count, *size), generator=generator, dtype=torch.float64)
        parts_z, parts_s = self.root_z.split(self.z.widths), self.root_s.split(self.s.widths)
        if self.n_large == 0:
            return [(a @ noise @ b.mT).div_((n - 1) ** 0.5) for a, b in zip(parts_z, parts_s, strict=True)]
        m_z, m_s = len(self.large_z), len(self.large_s)
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        images = _distinct(rng, n, m_z, count)  # the units of s that the large ones of z meet
        met = self._place[images]
        free = torch.ones((count, m_s + 1), dtype=torch.float64)
        free.scatter_(1, torch.where(met < 0, m_s, met), 0.0)
        free = free[:, :m_s]  # whether a large unit of s is left for one that is not large
        origins = self.others_z[_distinct(rng, n - m_z, m_s, count)] if m_s else images[:, :0]
        F = self.s.rows(images.flatten()).reshape(count, m_z, self._F.shape[1])
        G = self.z.rows(origins.flatten()).reshape(count, m_s, self._G.shape[1]) * free[:, :, None]
        left = n - m_z - free.sum(dim=1)
        scale = ((left - 1).clamp_min(0.0) / max(1, n - m_z - 1) / max(1, n - m_s - 1)).sqrt()
        sum_z = -self._G.sum(dim=0) - G.sum(dim=1)
        sum_s = -self._F.sum(dim=0) - ((met < 0).to(F)[:, None, :] @ F).squeeze(1)
        sum_s = sum_s / left.clamp_min(1.0)[:, None] * (left > 0)[:, None]
        draws = []
        wide_z, wide_s = self.z.widths, self.s.widths
        split_z = parts_z, self._G.split(wide_z, 1), G.split(wide_z, 2), sum_z.split(wide_z, 1)
        split_s = parts_s, self._F.split(wide_s, 1), F.split(wide_s, 2), sum_s.split(wide_s, 1)
        for own_z, own_s in zip(zip(*split_z, strict=True), zip(*split_s, strict=True), strict=True):
            (root_z, large_z, some_z, mean_z), (root_s, large_s, some_s, mean_s) = own_z, own_s
            drawn = large_z.mT @ some_s + some_z.mT @ large_s + mean_z[:, :, None] * mean_s[:, None, :]
            draws.append(drawn + root_z @ noise @ root_s.mT * scale[:, None, None])
        return draws


def _left(gram: Tensor, large: Tensor, n: int) -> Tensor:
    """Return the sum of (g - mean)(g - mean)' over the units that are not among the large ones."""
    left = n - len(large)
    if left < 2:
        return torch.zeros_like(gram)
    total = large.sum(dim=0)
    return gram - large.mT @ large - torch.outer(total, total) / left if len(large) else gram


def _root(gram: Tensor, whole: Tensor, n: int) -> Tensor:
    """Return R with R R' the matrix, no more columns than it has rank; what is left of it may be rounding.

    Sums over n units are off by up to n units in the last place, more or less by how the library adds up.
    Where nothing is left but that, draws must be equal to what was observed, not near it.
    """
    eigenvalues, vectors = torch.linalg.eigh(gram)
    rounding = max(1e-12, 8.0 * n * torch.finfo(gram.dtype).eps)
    keep = eigenvalues > rounding * max(float(eigenvalues[-1]), float(whole.diagonal().max()))
    return vectors[:, keep] * eigenvalues[keep].sqrt()


def _distinct(rng: np.random.Generator, n: int, size: int, count: int) -> Tensor:
    """Return ``count`` draws of ``size`` different numbers below n, in random order."""
    if size == n:
        return torch.from_numpy(rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1))
    return torch.from_numpy(np.stack([rng.choice(n, size, replace=False) for _ in range(count)]))
