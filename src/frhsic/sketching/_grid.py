"""The weight of rows along a line, on knots that follow the data: one pass, any order, mergeable."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# At most so many knots between the smallest and the largest value, and half as many at least.
KNOTS = 2_048
# Knots are never closer than this fraction of the largest value, 2^-30.
_FINEST = -30
_LEAST = -900
# A chord of the fastest cosine over this much of its argument is off by 1/100; it weighs next to nothing.
_FINE = 0.3


class Grid:
    """Sums at the knots j 2^k, each row shared by the two around it in proportion to its distance (hats).

    A hat on knots twice as far apart is a sum of hats on these, so the grid is made coarser without error as
    the range of the values grows: it depends on the smallest and the largest of them, not on their order.
    """

    def __init__(self, lead: Sequence[int]) -> None:
        self.sums = torch.zeros((*lead, 0), dtype=torch.float64)  # (..., K), at each knot
        self.low, self.high = math.inf, -math.inf  # the smallest and the largest value so far
        self.exponent, self.first = 0, 0  # the knots are j 2^exponent, from j = first on

    @property
    def knots(self) -> Tensor:
        """The places of the knots, shape ``(K,)``."""
        steps = torch.arange(self.first, self.first + self.sums.shape[-1], dtype=torch.float64)
        return steps * 2.0**self.exponent

    def fine(self, reach: float) -> bool:
        """Return whether cosines of ``reach`` times the values change little between knots."""
        return 2.0**self.exponent * reach <= _FINE

    def hats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Make room for the values x, and return the knot to the left of each and its share of the right."""
        self.reach(float(x.min()), float(x.max()))
        place = x * 2.0**-self.exponent  # exact
        left = place.floor()
        return left.long() - self.first, place - left

    def add(self, index: Tensor, left: Tensor, share: Tensor, powers: Sequence[Tensor]) -> None:
        """Add rows with hats ``left`` and ``share`` at ``index`` among the leading dimensions but the first.

        ``powers`` are those of their weights, one for each place of the first dimension.
        """
        K = self.sums.shape[-1]
        flat = self.sums.view(len(self.sums), -1, K)
        at = index * K + left
        for p, power in enumerate(powers):
            whole, right = (
                torch.bincount(at, weights=x, minlength=flat[p].numel()).view(-1, K)
                for x in (power, power * share)
            )
            flat[p] += whole - right
            flat[p, :, 1:] += right[:, :-1]

    def reach(self, low: float, high: float) -> None:
        """Make room for values between these."""
        if low >= self.low and high <= self.high:
            return
        low, high = min(low, self.low), max(high, self.high)
        exponent = _exponent(low, high)
        first = math.floor(low * 2.0**-exponent)
        if self.sums.shape[-1] == 0:
            self.exponent, self.first = exponent, first
        while self.exponent < exponent:
            self._coarser()
        size = math.floor(high * 2.0**-exponent) + 2 - first
        wider = self.sums.new_zeros((*self.sums.shape[:-1], size))
        old = self.first - first
        wider[..., old : old + self.sums.shape[-1]] = self.sums
        self.sums, self.first, self.low, self.high = wider, first, low, high

    def _coarser(self) -> None:
        """Take every second knot away: its rows go to the two beside it in halves."""
        if self.first % 2:  # begin at an even knot
            self.sums = torch.nn.functional.pad(self.sums, (1, 0))
            self.first -= 1
        if self.sums.shape[-1] % 2 == 0:  # end at one
            self.sums = torch.nn.functional.pad(self.sums, (0, 1))
        even, odd = self.sums[..., ::2].clone(), 0.5 * self.sums[..., 1::2]
        even[..., :-1] += odd
        even[..., 1:] += odd
        self.sums, self.first, self.exponent = even, self.first // 2, self.exponent + 1

    def merge(self, other: Grid) -> None:
        """Add the sums of another grid with the same leading dimensions."""
        if other.sums.shape[-1] == 0:
            return
        twin = other.copy()
        self.reach(other.low, other.high)
        twin.reach(self.low, self.high)
        self.sums = self.sums + twin.sums

    def copy(self) -> Grid:
        twin = Grid(())
        twin.__dict__.update(self.__dict__)
        twin.sums = self.sums.clone()
        return twin


def _exponent(low: float, high: float) -> int:
    """Return the least k for which the knots around these values are few enough."""
    largest = max(abs(low), abs(high))
    # 2^1024 is no float. Zero is below every other number, so that the exponent only ever grows.
    k = max(math.frexp(largest)[1] + _FINEST, _LEAST) if largest > 0.0 else _LEAST
    span = (high - low) / (KNOTS - 2)
    if span > 0.0:
        k = max(k, math.frexp(span)[1] - 1)
    while math.floor(high * 2.0**-k) - math.floor(low * 2.0**-k) + 2 > KNOTS:
        k += 1
    return k
