"""HSIC of a score over all rows at once, from a table of score levels by cells of S.

With T the shares of the rows at each of m levels and in each of G cells, C = T - (row sums)(column sums)',
K the kernel of the score on the levels and L that of S on the cells, HSIC is tr(C'KCL). A row between two
levels belongs to both in proportion, so that the value is continuous in its score, and its derivative is the
difference of the potential 2KCL between the two levels over their distance: no pair of rows is visited.

Rows are held in float32, where a place between two levels is exact to a thousandth; sums are in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from frhsic.kernels import Kernel
from frhsic.numerics._cells import MeanCells
from frhsic.table import Side

Link: TypeAlias = Callable[[Tensor], Tensor]

LEVELS: Final = 128
FAR: Final = 16.0  # logits beyond are taken for this
_NEGLIGIBLE: Final = 1e-7  # of the largest eigenvalue of the kernel of S: below, a direction is left out
_ROOM, _FILLED = 0.1, 0.6  # levels reach so far beyond the scores, which fill at least so much of them
_FRESH: Final = 0.2  # of a random direction, beside the one of the call before
_STEPS: Final = 4  # of the power iteration, which goes on from the round before


class Term(NamedTuple):
    """One HSIC of a table: its factor, a kernel for each score, and V with VV' the centred kernel of S."""

    factor: float
    kernels: Sequence[Kernel]
    v: Tensor

    @classmethod
    def of(cls, factor: float, kernels: Sequence[Kernel], kernel_s: Kernel, cells: MeanCells) -> Term:
        """Return a term whose kernels have numbers as scales."""
        x = cells.middle.values
        side = Side(kernel_s.gram(x, x).numpy(), cells.mass.numpy())
        return cls(factor, kernels, torch.from_numpy(side.factor(_NEGLIGIBLE)).contiguous())

    def chance(self, K: Tensor, levels: Tensor, mass: Tensor, squares: float) -> float:
        """Return the value that independent rows with this sum of squared weights would show."""
        spread = float(levels @ (K.diagonal() - K @ levels))
        return squares / (1.0 - squares) * spread * float(mass @ self.v.square().sum(dim=1))


class Evaluated(NamedTuple):
    """The penalty of a column of scores less what chance adds, its derivative, and its curvature."""

    value: float
    gradient: Tensor
    curvature: float


@dataclass(eq=False)
class Table:
    """Rows of one label of y (or all), in the cells of one joint set of columns of S.

    Attributes
    ----------
    rows : Tensor or None
        Which of all rows; None is all of them.
    weights : Tensor of shape (n,), or None
        Of sum one; None where all are equal.
    cells : MeanCells
    terms : sequence of Term
    """

    rows: Tensor | None
    weights: Tensor | None
    cells: MeanCells
    terms: Sequence[Term]

    def __post_init__(self) -> None:
        n = len(self.cells.code)
        self._squares = 1.0 / n if self.weights is None else float(self.weights.double().square().sum())
        self._code = self.cells.code.int()
        self._directions: dict[int, Tensor] = {}
        self._chances: dict[int, float] = {}
        self._levels: dict[int, tuple[float, float, list[Tensor]]] = {}

    def evaluate(
        self, t: Tensor, link: Link, slope: Link, *, output: int = 0, curved: bool = True
    ) -> Evaluated:
        """Return the penalty of the scores ``link(t)`` of one output, and its derivative by t ``(n,)``.

        ``slope`` is the curvature of the loss at t, against which that of the penalty is measured: the
        largest v'Hv / v'Dv, with D the loss's and H the penalty's part that is never negative (Gauss-Newton).
        Without ``curved`` it is left out, and what chance adds is that of the call before.
        """
        low, high = (float(x) for x in torch.aminmax(t))
        beyond = None
        if link is torch.sigmoid and not -FAR <= low <= high <= FAR:
            # A probability of almost 0 or 1 cannot move, and its logit would make all levels coarse.
            beyond = t.abs() > FAR
            low, high = max(low, -FAR), min(high, FAR)
            t = t.clamp(low, high)
        if not high - low > 1e-4 * max(abs(low), abs(high), 1e-30):  # a constant depends on nothing
            return Evaluated(0.0, torch.zeros_like(t), 0.0)
        low, step, grams = self._find_levels(low, high, link, output)
        index, whole, table = self._count(t, low, step)
        shares = table.sum(dim=1)
        C = table - shares[:, None] * self.cells.mass
        if curved or output not in self._chances:
            pairs = zip(self.terms, grams, strict=True)
            chances = [term.chance(K, shares, self.cells.mass, self._squares) for term, K in pairs]
            self._chances[output] = sum(chances)
        value, potential = -self._chances[output], torch.zeros_like(C)
        for term, K in zip(self.terms, grams, strict=True):
            side = C @ term.v
            other = K @ side
            value += float((side * other).sum())
            potential += 2.0 * other @ term.v.T
        each = 1.0 / len(t) if self.weights is None else 1.0
        slopes = potential.diff(dim=0).mul_(each / step).to(t.dtype).flatten()
        gradient = slopes.index_select(0, index)
        if self.weights is not None:
            gradient *= self.weights
        if beyond is not None:
            gradient[beyond] = 0.0
        curvature = 0.0
        if curved:
            middles = low + step * (torch.arange(LEVELS - 1, dtype=torch.float64) + 0.5)
            weight = (whole[:-1] / slope(middles).clamp(min=1e-12)[:, None]).sqrt()
            curvature = self._curvature(output, [K.diff(dim=0).diff(dim=1) / step**2 for K in grams], weight)
        return Evaluated(value, gradient, curvature)

    def _find_levels(
        self, low: float, high: float, link: Link, output: int
    ) -> tuple[float, float, list[Tensor]]:
        """Return the lowest level, their distance, and the kernels on them; those of before if they fit."""
        known = self._levels.get(output)
        if known is not None:
            start, step, grams = known
            reach = (LEVELS - 1) * step
            if start <= low and high <= start + reach and high - low > _FILLED * reach:
                return known
            room = _ROOM * (high - low)  # for the rounds to come
            low, high = low - room, high + room
        step = (high - low) / (LEVELS - 1)
        grid = link(torch.linspace(low, high, LEVELS, dtype=torch.float64))[:, None]
        grams = [term.kernels[output].gram(grid, grid) * term.factor for term in self.terms]
        self._levels[output] = low, step, grams
        return low, step, grams

    def _count(self, t: Tensor, low: float, step: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the place of each row, the shares between two levels, and those at the levels."""
        size = len(self.cells.mass)
        place = (t - low).mul_(1.0 / step)
        level = place.int().clamp_(max=LEVELS - 2)
        place -= level
        index = level.mul_(size).add_(self._code)
        if self.weights is None:
            whole = torch.bincount(index, minlength=LEVELS * size).double() / len(t)
            upper = torch.bincount(index, place.double(), LEVELS * size) / len(t)
        else:
            whole = torch.bincount(index, self.weights.double(), LEVELS * size)
            upper = torch.bincount(index, (place * self.weights).double(), LEVELS * size)
        whole, upper = whole.reshape(LEVELS, size), upper.reshape(LEVELS, size)
        table = whole - upper
        table[1:] += upper[:-1]
        return index, whole, table

    def _curvature(self, output: int, mixed: Sequence[Tensor], weight: Tensor) -> float:
        """Return the largest curvature of the penalty over that of the loss, by a power iteration."""
        known = output in self._directions
        fixed = torch.Generator().manual_seed(0)
        u = torch.rand(weight.shape, generator=fixed, dtype=torch.float64) - 0.5
        if known:
            # With something of every direction: scores that have moved to other levels may leave none of it.
            before = self._directions[output]
            u = before / before.norm().clamp(min=1e-300) + _FRESH * u / u.norm()
        largest = 0.0
        for _ in range(_STEPS if known else 10 * _STEPS):
            inner = weight * u / u.norm().clamp(min=1e-300)
            u = torch.zeros_like(u)
            for M, term in zip(mixed, self.terms, strict=True):
                u += M @ (inner @ term.v) @ term.v.T
            u *= 2.0 * weight
            largest = float(u.norm())
        self._directions[output] = u
        return largest
