"""The density of S, to weight rows towards a uniform law."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.kernels import Kernel, default_kernel

# The density is a mixture of at most this many smoothed rows.
_CENTRES = 2_048
# No row weighs more than this many times the average: bounds the variance where S is almost empty.
_CLIP = 10.0


def effective_rows(w: Tensor) -> float:
    """Return 1 / sum w^2 for weights that sum to one: the number of equal weights that are as precise."""
    return 1.0 / float(w.square().sum())


@dataclass(frozen=True)
class Density:
    """The density of S up to a factor: Gaussian smoothing of continuous columns, frequencies of categories.

    The bandwidth of a column is Silverman's, 1.06 sd m^(-1/5) for m rows (so that repeated rows do not weigh
    exactly like integer weights here). Near the ends of the range the density is divided by the part of the
    smoothing kernel that lies inside, or else rows there would weigh double.
    """

    kernel: Kernel
    centres: Tensor  # (m, q)
    mass: Tensor  # (m,), sums to one
    ranges: tuple[tuple[int, float, float, float], ...]  # of continuous columns: index, low, high, bandwidth
    floor: float  # the least that a row of the sample adds to the density at its own place

    @classmethod
    def fit(cls, s: Sensitive, w: Tensor | None) -> Density:
        """Return the density of these rows, from a random 2,048 of them (seed 0) when there are more."""
        x = s.values
        mass = x.new_full((len(x),), 1.0 / len(x)) if w is None else w
        low, high = x.amin(dim=0), x.amax(dim=0)
        floor = float(mass[mass > 0].min())
        if len(x) > _CENTRES:
            rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_CENTRES].to(x.device)
            x, mass = x[rows], mass[rows] / mass[rows].sum()
        mean = mass @ x
        sd = (mass @ (x - mean).square()).sqrt()
        h = (1.06 * len(x) ** -0.2 * sd).tolist()
        h = [value if value > 0 else 1.0 for value in h]
        ranges = tuple(
            (j, float(low[j]), float(high[j]), h[j]) for j, kind in enumerate(s.kinds) if kind == "continuous"
        )
        return cls(default_kernel(s.kinds, h), x, mass, ranges, floor)

    def at(self, s: Tensor) -> Tensor:
        """Return the density at the rows of s ``(n, q)``, up to one factor."""
        blocks = [self.kernel.gram(rows, self.centres.to(s)) @ self.mass.to(s) for rows in s.split(4_096)]
        # A row far from all centres still has itself: without this one outlier would take all the weight.
        density = torch.cat(blocks).clamp_min(self.floor)
        for j, low, high, h in self.ranges:
            inside = torch.special.ndtr((high - s[:, j]) / h) - torch.special.ndtr((low - s[:, j]) / h)
            density = density / inside.clamp_min(0.5 if high == low else 1e-3)
        return density

    def uniform_weights(self, s: Sensitive, w: Tensor | None) -> Tensor:
        """Return weights proportional to w over the density, clipped at ten times their mean, of sum one."""
        density = self.at(s.values)
        raw = 1.0 / density
        base = torch.full_like(raw, 1.0 / len(raw)) if w is None else w
        clipped = raw.clamp_max(_CLIP * float(base @ raw))
        weighted = base * clipped
        return weighted / weighted.sum()
