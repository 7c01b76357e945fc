"""The constrained form: the least loss among models with a given share of the unconstrained dependence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

# An epoch is within its budget up to this: the multipliers keep it on the limit, not below.
FEASIBLE: Final = 1.05
MET: Final = 1.15  # times its budget: what a model may have without a warning
BUDGET: Final = 0.1  # of the estimators, where neither a budget nor a penalty weight is given

_FIRST: Final = 0.1  # of the multipliers, in units of the loss
_MOST: Final = 1e3  # beyond, a budget is out of reach, and nothing but noise is left of the loss
# The exponent of an update: so much for each step of the epoch before it, for a net needs steps to follow.
_PACE, _FASTEST = 0.02, 0.5
_REST: Final = 0.1  # the share of the epochs before the first update: D_0 must be there to be a share of
_REACH: Final = math.e  # ratios beyond are taken for this, or the first epochs would decide all


class Multipliers:
    """One multiplier for each constraint D <= b D_0, where D_0 is the dependence of an unconstrained net.

    With r = D / (b D_0) the augmented Lagrangian of a net is

        loss + mu psi(r),    psi(r) = (r^2 - 1) / 2,

    whose gradient weighs that of r by mu r, and mu <- mu r^gamma after every epoch: the method of multipliers
    with a penalty function of its own in the place of the square (Kort and Bertsekas), in which a multiplier
    stays positive and moves by factors, so that one pace serves measures and data of any size. D and D_0 are
    measured on the same rows at the end of each epoch.

    ``budgets`` holds b for every net but the first, the unconstrained one. For the first tenth of the epochs
    nothing is constrained.
    """

    def __init__(self, budgets: Sequence[float], steps: int, epochs: int, *, like: Tensor) -> None:
        self.budgets = torch.tensor([1.0, *budgets], dtype=torch.float64, device=like.device)
        self.mu = torch.full_like(self.budgets, _FIRST)
        self.weights = torch.zeros_like(self.budgets)  # mu r, of the gradient of r
        self.factors = torch.zeros_like(self.budgets).to(like)
        """What the gradient of the dependence of each net is multiplied by."""
        self.rest = torch.tensor(int(_REST * epochs))  # epochs still to wait
        self.pace = min(_FASTEST, _PACE * steps)

    @torch.no_grad()
    def update(self, dependence: Tensor) -> None:
        """Take the dependence of each net, the unconstrained one first."""
        if self.rest > 0:
            self.rest = self.rest - 1
            return
        limit = self.budgets * dependence[0]
        if not bool(dependence[0] > 0):  # nothing to take away
            limit = torch.ones_like(limit)
        r = (dependence / limit).clamp(1.0 / _REACH, _REACH)
        self.mu = (self.mu * r**self.pace).clamp(1.0 / _MOST**2, _MOST)
        self.weights = self.mu * r
        self.weights[0] = 0.0
        self.factors = (self.weights / limit).to(self.factors)

    @property
    def values(self) -> list[float]:
        """The weight of each constraint, zero for the unconstrained net."""
        return self.weights.tolist()

    def state(self) -> dict[str, Tensor]:
        """Return what changes."""
        return {"mu": self.mu, "weights": self.weights, "factors": self.factors, "rest": self.rest}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state."""
        for name, old in self.state().items():
            setattr(self, name, state[name].to(old))
