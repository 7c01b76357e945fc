"""The constrained form: the least loss among models whose dependence is within a budget or a limit."""

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
MOST: Final = 1e3  # beyond, a budget is out of reach, and nothing but noise is left of the loss
# The exponent of an update: so much for each step of the epoch before it, for a net needs steps to follow.
_PACE, _FASTEST = 0.02, 0.5
_REST: Final = 0.1  # the share of the epochs before the first update: D_0 must be there to be a share of
_REACH: Final = math.e  # ratios beyond are taken for this, or the first epochs would decide all


def divide_by_budgets(dependence: Tensor, budgets: Tensor) -> tuple[Tensor, Tensor]:
    """Return D / (b D_0) of each net and b D_0, for the dependence of each, the unconstrained one first."""
    limit = budgets * dependence[0]
    if not bool(dependence[0] > 0):  # nothing to take away
        limit = torch.ones_like(limit)
    return dependence / limit, limit


def describe_share(relative: float | None, budget: float, losses: tuple[float, float], fix: str) -> list[str]:
    """Return that a share is above its budget, or that the loss rose from that of the start."""
    if relative is None:
        nothing = "The unconstrained model shows no dependence on these rows: a share of it means nothing."
        return [f"{nothing} Pass lam=0."]
    missed = []
    if relative > MET * budget:
        found = f"The model has {relative:.3g} of the dependence of the unconstrained one"
        missed.append(f"{found}, above its budget of {budget:g}. {fix}")
    first, kept = losses
    if kept > 1.1 * first:
        found = f"The loss ended at {kept:.3g}, above the {first:.3g} of its beginning"
        missed.append(f"{found}: a budget of {budget:g} leaves nothing to learn from these rows. {fix}")
    return missed


class Multipliers:
    """One multiplier for each constraint D <= b, by the ratio r = D / b that is measured after every epoch.

    The augmented Lagrangian of a net is

        loss + mu psi(r),    psi(r) = (r^2 - 1) / 2,

    whose gradient weighs that of r by mu r, and mu <- mu r^gamma after every epoch: the method of multipliers
    with a penalty function of its own in the place of the square (Kort and Bertsekas), in which a multiplier
    stays positive and moves by factors, so that one pace serves measures and data of any size.

    With a budget D is the penalty and b a share of what an unconstrained net has, on the same rows. With a
    limit D is a number that people read, which need not have a gradient, and what is descended is the penalty
    P over its size before anything was constrained: mu r grad P / P_0. For the first tenth of the epochs
    nothing is constrained.
    """

    def __init__(
        self, constrained: Sequence[bool], steps: int, epochs: int, *, most: float, like: Tensor
    ) -> None:
        self.constrained = torch.tensor(constrained, device=like.device)
        self.mu = torch.full((len(constrained),), _FIRST, dtype=torch.float64, device=like.device)
        self.weights = torch.zeros_like(self.mu)  # mu r, of the gradient of r
        self.factors = torch.zeros_like(self.mu).to(like)
        """What the gradient of the penalty of each net is multiplied by."""
        self.rest = torch.tensor(int(_REST * epochs))  # epochs still to wait
        self.unit = torch.full_like(self.mu, torch.nan)  # the penalty when nothing was constrained
        self.pace = min(_FASTEST, _PACE * steps)
        self.most = most

    @property
    def needs_unit(self) -> bool:
        """Whether the size of the penalty before anything is constrained is not known yet."""
        return bool(self.rest > 0) or bool(self.unit.isnan().any())

    @torch.no_grad()
    def update(self, ratio: Tensor, unit: Tensor | None = None) -> None:
        """Take D / b of each net, and what the gradient of its penalty is divided by, if it has changed."""
        if unit is not None:
            self.unit = unit.to(self.mu)
        if self.rest > 0:
            self.rest = self.rest - 1
            return
        r = ratio.to(self.mu).clamp(1.0 / _REACH, _REACH)
        self.mu = (self.mu * r**self.pace).clamp(1.0 / MOST**2, self.most)
        self.weights = torch.where(self.constrained, self.mu * r, 0.0)
        self.factors = (self.weights / self.unit).to(self.factors)

    def restart(self) -> None:
        """Raise multipliers that have fallen below their beginning to it."""
        self.mu = self.mu.clamp(min=_FIRST)

    @property
    def values(self) -> list[float]:
        """The weight of each constraint, zero for the unconstrained net."""
        return self.weights.tolist()

    def state(self) -> dict[str, Tensor]:
        """Return what changes."""
        names = ("mu", "weights", "factors", "rest", "unit")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state."""
        for name, old in self.state().items():
            setattr(self, name, state[name].to(old))
