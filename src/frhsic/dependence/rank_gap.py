"""The rank gap: the score gap of mid-ranks, the same on every scale of the score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Self

import torch
from torch import Tensor

from frhsic.data import Kind, Sensitive
from frhsic.dependence._base import Dependence
from frhsic.dependence.score_gap import ScoreGap
from frhsic.numerics._cells import Cells
from frhsic.numerics._smoothing import row_weights


class RankGap(Dependence):
    """The gap of decisions along S, averaged over cut-offs at the score of a row drawn at random.

    With p_j the shares of rows at the values v_1 < v_2 < ... of the score, and D(t) = E_S |P(f > t | S) -
    P(f > t)| the gap of the decision f > t,

        rank gap = sum_j w_j D(v_j),  w_j = (p_j + p_j+1) / 2,

    which is the score gap (:class:`ScoreGap`) of the mid-ranks of the score. It is the same under every
    strictly increasing transformation of the score, and for -f, so gaps of a probability and of a price can
    be compared, and no change of the scale makes it smaller. It is at most 1/3, and for a score of two
    values half the gap of the decision.

    Notes
    -----
    The cells of S are those of :class:`GDP` and :class:`ScoreGap`; weights count in p. Several columns of
    scores are averaged. It is not differentiable in the score, so it cannot be a penalty. It takes
    n log n.

    Examples
    --------
    >>> import torch
    >>> from frhsic.data import to_sensitive
    >>> group = to_sensitive(["a", "a", "b", "b"])
    >>> z = torch.tensor([0.0, 1.0, 1.0, 3.0])
    >>> RankGap()(z, group).item() == RankGap()(z.exp(), group).item()
    True
    >>> round(ScoreGap()(z.exp(), group).item() / ScoreGap()(z, group).item(), 1)
    6.4
    """

    differentiable: ClassVar[bool] = False
    words: Final = "rank gap of the score"

    def __init__(self) -> None:
        super().__init__()
        self._cells: Cells | None = None

    @property
    def gap(self) -> ScoreGap:
        """The measure that is taken of mid-ranks, in the same cells."""
        return ScoreGap()._with(_cells=self._cells)

    def cheap_rows(self, width: int, kinds: Sequence[Kind]) -> int:
        """Return many: the time is n log n."""
        return self.gap.cheap_rows(width, kinds)

    def cells(self, s: Sensitive, w: Tensor | None = None) -> Cells:
        """Return the cells of S: those it was calibrated to, or of these rows."""
        return self.gap.cells(s, w)

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        shares = row_weights(s, w).double()
        columns = z.detach().mT.reshape(-1, z.shape[-2])
        ranks = torch.stack([mid_ranks(column, shares) for column in columns])
        ranks = ranks.reshape(*z.shape[:-2], z.shape[-1], z.shape[-2]).mT
        return self.gap._value(ranks, s, shares).to(z.dtype)

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        """Permute z instead: cells are found once."""
        fixed = self._with(_cells=self.cells(s, w))
        return torch.stack([fixed._value(z[order], s, w) for order in permutations.argsort(dim=1)])

    def _calibrated(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        return self._with(_cells=self.gap._calibrated(z, s, w, generator, freeze)._cells)


def mid_ranks(z: Tensor, w: Tensor) -> Tensor:
    """Return the share of rows below each score ``(n,)``, plus half of those at it; w sums to one."""
    if not bool(z.isfinite().all()):
        return torch.full_like(w, torch.nan)
    values, index = z.unique(return_inverse=True)
    p = w.new_zeros(len(values)).index_add(0, index, w)
    return (p.cumsum(0) - 0.5 * p)[index]
