"""The gap of a score: how far its law at one value of S lies from its law overall."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError, is_number
from frhsic.data import Kind, Sensitive
from frhsic.dependence._base import Dependence
from frhsic.dependence.gdp import GDP
from frhsic.numerics._cells import Cells
from frhsic.numerics._smoothing import row_weights

# Cut-offs that are tried for the worst one.
_CUTOFFS = 2_048


class ScoreGap(Dependence):
    """The mean over S of the Wasserstein-1 distance between the scores at one value of S and all scores.

    With D(t) = E_S |P(f > t | S) - P(f > t)|, the mean gap of the decision f > t along S,

        gap = integral of D(t) dt = E_S W1(law of f given S, law of f),

    in the unit of the score. It is at least GDP, which compares means only, and equal to it exactly where
    almost every conditional law is stochastically ordered against the law of all scores: a score of two
    values, or a shift. It is at most E|f - f'| for independent copies, and zero only for independence.

    Parameters
    ----------
    cutoff : float, "worst" or None, default=None
        None adds up D(t) over all cut-offs t. A number is D at that one, a share of rows; "worst" the
        largest. Neither has a gradient.

    Notes
    -----
    Laws are taken within cells of S as :class:`GDP` takes means. It takes n log n, however many cells there
    are: between two neighbouring scores of a cell its distribution function is constant and that of all
    scores crosses it once.

    Several columns of scores are averaged. The value is positive under independence: with m rows in each of
    many cells by about E_t sqrt(2 F (1 - F) / (pi m)) over the range. See :meth:`beyond_chance`.

    Examples
    --------
    >>> import torch
    >>> from frhsic.data import to_sensitive
    >>> group = to_sensitive(["a", "a", "b", "b"])
    >>> z = torch.tensor([0.0, 3.0, 1.0, 2.0])  # equal means, unequal spread
    >>> ScoreGap()(z, group).item(), GDP()(z, group).item()
    (0.5, 0.0)
    """

    def __init__(self, *, cutoff: float | Literal["worst"] | None = None) -> None:
        super().__init__()
        if cutoff is not None and cutoff != "worst":
            cutoff = _finite(cutoff)
        self.cutoff = cutoff
        self._cells: Cells | None = None

    @property
    def words(self) -> str:
        """The measure in words."""
        if self.cutoff is None:
            return "gap of the score"
        at = "the worst cut-off" if self.cutoff == "worst" else f"{self.cutoff:g}"
        return f"gap of decisions at {at}"

    @property
    def means(self) -> GDP:
        """The measure of means along S, in the same cells."""
        return GDP()._with(_cells=self._cells)

    def cheap_rows(self, width: int, kinds: Sequence[Kind]) -> int:
        """Return many: the time is n log n."""
        return self.means.cheap_rows(width, kinds)

    def cells(self, s: Sensitive, w: Tensor | None = None) -> Cells:
        """Return the cells of S: those it was calibrated to, or of these rows."""
        return self.means.cells(s, w)

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        if self.cutoff == "worst":
            found = [self.worst(one, s, w)[1].mean() for one in z.reshape(-1, *z.shape[-2:])]
            return torch.stack(found).reshape(z.shape[:-2])
        if self.cutoff is not None:
            return self.means._value((z > self.cutoff).to(z), s, w)
        w = row_weights(s, w)
        code = self.cells(s, w).codes(s)
        columns = z.mT.reshape(-1, z.shape[-2])
        gaps = torch.stack([_mean_distance(column, code, w) for column in columns])
        return gaps.reshape(z.shape[:-2] + z.shape[-1:]).mean(dim=-1)

    def at(self, z: Tensor, s: Tensor | Sensitive, cutoffs: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return D(t), the mean gap of the decision z > t along S, for each cut-off t and column of z.

        Parameters
        ----------
        z : Tensor of shape (n, d)
        s : Tensor of shape (n,), (n, q) or Sensitive
        cutoffs : Tensor of shape (a,)
        weights : Tensor of shape (n,), optional

        Returns
        -------
        Tensor of shape (a, d)
        """
        z, s, w = self._checked(z.detach(), s, weights)
        cutoffs = cutoffs.to(z)
        w = row_weights(s, w)
        code = self.cells(s, w).codes(s)
        return torch.stack([_gaps_of_decisions(column, cutoffs, code, w) for column in z.mT], dim=1)

    def worst(self, z: Tensor, s: Tensor | Sensitive, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the cut-off with the largest D(t), and that gap, each for each column of z.

        All scores are tried as cut-offs, or 2,048 quantiles of more: the largest gap may then be larger by
        2 / 2,048.
        """
        z, s, weights = self._checked(z.detach(), s, weights)
        ordered = z.sort(dim=0).values
        at = torch.linspace(0, len(z) - 1, min(len(z), _CUTOFFS), dtype=torch.float64).round().long()
        found = [
            (cutoffs := ordered[at, j], self.at(z[:, j : j + 1], s, cutoffs, weights)[:, 0])
            for j in range(z.shape[1])
        ]
        best = [int(gaps.argmax()) for _, gaps in found]
        cut, gap = (torch.stack([x[k][i] for x, i in zip(found, best, strict=True)]) for k in (0, 1))
        return cut, gap

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        """Permute z instead: cells are found once."""
        fixed = self._calibrated(z, s, w, None, True)
        return torch.stack([fixed._value(z[order], s, w) for order in permutations.argsort(dim=1)])

    def _calibrated(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        return self._with(_cells=self.means._calibrated(z, s, w, generator, freeze)._cells)


def _finite(cutoff: object) -> float:
    """Return a cut-off as a finite float."""
    if not is_number(cutoff) or not math.isfinite(cutoff):
        raise ArgumentError("cutoff", "be a finite number, 'worst' or None", repr(cutoff), "Take 0.5.")
    return float(cutoff)


def _mean_distance(z: Tensor, code: Tensor, w: Tensor) -> Tensor:
    """Return sum_C P(C) W1(law of z in C, law of z) for one column z ``(n,)`` and cells 0, 1, ... of rows.

    Between neighbouring scores a < b of a cell its distribution function is a constant c, and that of all
    scores, F, crosses c at one score x. With I(t) the integral of F up to t,

        int_a^b |c - F| = c (x - a) - (I(x) - I(a)) + (I(b) - I(x)) - c (b - x).
    """
    order = z.detach().argsort(stable=True)
    u, v, cell = z[order] - z[order[0]], w[order], code[order]
    F = v.cumsum(0)
    F = F / F[-1]
    integral = torch.cat((u.new_zeros(1), (F[:-1] * u.diff()).cumsum(0)))  # I at each score
    place = cell.argsort(stable=True)  # scores of one cell after another, in their order
    own, mass = cell[place], v.new_zeros(int(cell.max()) + 1).index_add(0, cell, v)
    share = v[place].cumsum(0)
    first = torch.cat((own.new_ones(1, dtype=torch.bool), own.diff() != 0))
    last = torch.cat((first[1:], first.new_ones(1)))
    before = (mass.cumsum(0) - mass)[own]
    c = ((share - before) / mass[own]).clamp(0.0, 1.0)  # of the cell, at and after each of its scores
    a, b = place[~last], place[~first]
    level = c[~last]
    x = torch.searchsorted(F, level.contiguous()).clamp_max(len(u) - 1)
    x = torch.minimum(torch.maximum(x, a), b)
    inside = level * (2.0 * u[x] - u[a] - u[b]) + integral[a] + integral[b] - 2.0 * integral[x]
    ends = integral[place[first]] + (u[-1] - u[place[last]]) - (integral[-1] - integral[place[last]])
    return mass[own[~last]] @ inside + mass[own[last]] @ ends


def _gaps_of_decisions(z: Tensor, cutoffs: Tensor, code: Tensor, w: Tensor) -> Tensor:
    """Return sum_C |P(z > t, C) - P(C) P(z > t)| for each cut-off t, from a table of cells by cut-offs."""
    ordered, order = cutoffs.sort()
    below = torch.searchsorted(ordered, z.contiguous())  # the number of cut-offs below z, in their order
    cells, a = int(code.max()) + 1, len(cutoffs)
    table = w.new_zeros(cells * (a + 1)).index_add(0, code * (a + 1) + below, w).reshape(cells, a + 1)
    above = table.flip(1).cumsum(1).flip(1)  # (cells, a + 1): column k is P(z above the first k, C)
    mass, above = above[:, :1], above[:, 1:]
    gaps = (above - mass * above.sum(dim=0)).abs().sum(dim=0)
    return torch.empty_like(gaps).index_copy(0, order, gaps)
