"""Scales learned on the training rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.engine.rows import Rows

Rule: TypeAlias = Literal["standard", "minmax", "none"]


@dataclass(frozen=True, eq=False)
class Scaling:
    """The map x -> (x - shift) * factor of each column; a column that does not vary becomes zero."""

    shift: Tensor
    factor: Tensor

    @classmethod
    def fit(cls, x: Tensor, rule: Rule, weights: Tensor | None = None) -> Scaling:
        """Learn the scaling on the rows of x ``(n, p)``; weights ``(n,)`` are positive."""
        if rule == "none":
            return cls(torch.zeros_like(x[0]), torch.ones_like(x[0]))
        if rule == "minmax":
            shift = x.amin(dim=0)
            size = x.amax(dim=0) - shift
        else:
            w = torch.ones_like(x[:, 0]) if weights is None else weights
            w = w / w.sum()
            shift = w @ x
            size = (w @ (x - shift).square()).sqrt()
        varies = size > 10.0 * torch.finfo(x.dtype).eps * x.abs().amax(dim=0)  # below is rounding
        return cls(shift, torch.where(varies, 1.0 / torch.where(varies, size, 1.0), 0.0))

    def apply(self, x: Tensor) -> Tensor:
        """Return the scaled rows."""
        return (x - self.shift) * self.factor

    def invert(self, x: Tensor) -> Tensor:
        """Return rows in the units before scaling."""
        return x / torch.where(self.factor > 0, self.factor, torch.inf) + self.shift


def fit_sensitive(s: Sensitive, rule: Rule, weights: Tensor | None = None) -> Scaling:
    """Learn the scaling of the continuous columns; codes of categories stay as they are."""
    scaling = Scaling.fit(s.values, rule, weights)
    categorical = torch.tensor([kind == "categorical" for kind in s.kinds])
    shift, factor = scaling.shift, scaling.factor
    return Scaling(torch.where(categorical, 0.0, shift), torch.where(categorical, 1.0, factor))


@dataclass(frozen=True, eq=False)
class Scalings:
    """The scales of X, of the target (those of X where X is rebuilt, None for classes) and of S."""

    x: Scaling
    y: Scaling | None
    s: Scaling | None

    def apply(self, rows: Rows) -> Rows:
        """Return scaled rows, with weights of mean one."""
        y = rows.y
        if self.y is self.x:
            y = self.x.apply(y)
        elif self.y is not None:
            y = self.y.apply(y.unsqueeze(-1)).squeeze(-1)
        s = rows.s
        if s is not None and self.s is not None:
            s = replace(s, values=self.s.apply(s.values))
        both = rows.weights, rows.loss_weights
        weights, loss_weights = (None if w is None else w / w.mean() for w in both)
        return Rows(self.x.apply(rows.x), y, s, weights, loss_weights, rows.labels)
