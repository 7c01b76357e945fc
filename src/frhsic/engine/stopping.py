"""Early stopping: loss and penalty on held-out rows after every epoch, and the best weights so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Label
from frhsic.engine.budget import FEASIBLE
from frhsic.engine.guards import Guards
from frhsic.engine.nets import Net, Stack
from frhsic.engine.objective import Objective
from frhsic.engine.options import Options
from frhsic.engine.rows import Rows, make_batches


@dataclass(frozen=True, eq=False)
class Best:
    """The epoch that early stopping would return, its rank (the smallest is the best) and its weights."""

    epoch: int
    rank: tuple[int, float]
    weights: dict[str, Tensor]


class EarlyStopping:
    """Keeps the best weights of each net and decides when it has stopped improving."""

    def __init__(self, rows: Rows, options: Options, objective: Objective, guards: Guards) -> None:
        self.rows, self.options, self.objective, self.guards = rows, options, objective, guards
        self.best: list[Best | None] = [None] * len(options.weights)

    def is_over(self, k: int, epochs: int) -> bool:
        """Return whether net k has not improved for too long, after this many epochs."""
        best = self.best[k]
        if best is None or best.rank[0] > 0:
            return False
        return epochs - 1 - best.epoch >= self.options.training.patience

    @torch.no_grad()
    def validate(
        self, net: Net | Stack, epoch: int, of_limit: list[float | None], active: list[bool]
    ) -> list[dict[str, Any]]:
        """Return loss and penalty on the held-out rows; keep the weights of active nets that are the best."""
        losses, penalties, rebuilding, skipped = self._evaluate(net)
        values = zip(losses, rebuilding, self.options.weights, penalties, strict=True)
        objectives = [loss + cost + lam * penalty for loss, cost, lam, penalty in values]
        self.guards.check_finite(losses, objectives, epoch, "on the held-out rows")
        nets: list[Net] = []
        for k, value in enumerate(objectives):
            rank = self._rank(k, value, of_limit[k])
            best = self.best[k]
            if active[k] and (best is None or rank < best.rank):
                nets = nets or net.nets()
                weights = {name: value.clone() for name, value in nets[k].state_dict().items()}
                self.best[k] = Best(epoch, rank, weights)
        return [
            {
                "validation_loss": losses[k],
                "validation_penalty": None if self.objective.fixed_s is None else penalties[k],
                "validation_skipped": tuple(sorted(skipped.items())),
            }
            for k in range(len(losses))
        ]

    def _evaluate(self, net: Net | Stack) -> tuple[list[float], list[float], list[float], Counter[Label]]:
        net.eval()
        objective = self.objective
        losses, penalties, rebuilding = ([0.0] * len(self.best) for _ in range(3))
        skipped: Counter[Label] = Counter()
        parts = make_batches(len(self.rows), self.options.batch_size, None)
        for index in parts:
            batch = self.rows[index.to(self.rows.x.device)]
            z, prediction = net(batch.x)
            share = len(index) / len(self.rows)
            for k, loss in enumerate(to_list(objective.mean_loss(prediction, batch))):
                losses[k] += share * loss
            for k, cost in enumerate(
                to_list(objective.cost_of_rebuilding(z, batch)) if objective.rebuild else ()
            ):
                rebuilding[k] += share * cost
            if objective.fixed_s is not None:
                value = objective.evaluate_penalty(z, prediction, batch)
                for k, penalty in enumerate(to_list(value.total)):
                    penalties[k] += share * penalty
                skipped.update(label for label, _ in value.skipped)
        if objective.fixed_s is not None and skipped.total() == len(parts) * len(objective.fixed_s.terms):
            must = "have enough rows of the labels of y that the penalty is given"
            got = "too few of each, so that early stopping would not see it"
            raise ArgumentError("validation", must, got, "Hold out more rows, or do not stop early.")
        return losses, penalties, rebuilding, skipped

    def _rank(self, k: int, objective: float, of_limit: float | None) -> tuple[int, float]:
        """Return what early stopping minimises: within the limit the objective, before that the excess."""
        constrained = self.options.constrained
        if constrained is None or not constrained[k] or of_limit is None:
            return 0, objective
        return (0, objective) if of_limit <= FEASIBLE else (1, of_limit)


def to_list(values: Tensor) -> list[float]:
    """Return the numbers of a step, one for each net."""
    return [values.item()] if values.ndim == 0 else values.tolist()
