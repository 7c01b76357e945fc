"""Guards of a run: stop when the loss is not finite or runs away, warn when labels are too rare."""

from __future__ import annotations

import math
import statistics
import warnings
from typing import Final

import torch
from torch import nn

from frhsic._checks import ArgumentError
from frhsic.engine.options import Options
from frhsic.engine.record import Record
from frhsic.engine.rows import Rows
from frhsic.penalty import MIN_ROWS

# When the median loss of the batches of an epoch is this many times the first one (or one, if that is
# larger), it will not come back. One batch alone may hold an outlier.
_DIVERGED: Final = 1e3


class TrainingError(RuntimeError):
    """Training stopped because the loss or the weights are not finite, or the loss ran away.

    Examples
    --------
    >>> issubclass(TrainingError, RuntimeError)
    True
    """


class Guards:
    """Checks of the losses of a run; lists have one entry for each net."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.first_losses: list[float] | None = None

    def check_finite(self, losses: list[float], objectives: list[float], epoch: int, where: str) -> None:
        """Raise TrainingError unless every loss and objective is finite."""
        for k, (loss, objective) in enumerate(zip(losses, objectives, strict=True)):
            if math.isfinite(objective):
                continue
            what = "loss" if not math.isfinite(loss) else "penalty"
            raise self._error(epoch, where, f"the {what} is {loss if what == 'loss' else objective:g}", k)

    def check_weights(self, net: nn.Module, epoch: int) -> None:
        """Raise TrainingError unless all weights of the net are finite."""
        if not all(bool(torch.isfinite(parameter).all()) for parameter in net.parameters()):
            why = "weights are no longer finite, though the loss was"
            fix = f"Try a smaller learning_rate (now {self.options.learning_rate:g}) or another penalty."
            raise TrainingError(f"Training stopped in epoch {epoch}: {why}. {fix}")

    def check_runaway(self, losses: list[list[float]], epoch: int) -> None:
        """Raise TrainingError if the losses of the steps of an epoch are far above the first loss."""
        if self.first_losses is None:
            self.first_losses = losses[0]
        for k, first in enumerate(self.first_losses):
            typical = statistics.median(step[k] for step in losses)
            if typical > _DIVERGED * max(1.0, first):
                why = f"the loss is {typical:g} and began at {first:g}"
                raise self._error(epoch, f"step {len(losses) - 1}", why, k)

    def _error(self, epoch: int, where: str, why: str, k: int) -> TrainingError:
        fix = f"a smaller learning_rate (now {self.options.learning_rate:g}), training=Training(clip=1.0)"
        if self.options.budgets is not None and k > 0:
            fix += f" or a larger budget (now {self.options.budgets[k - 1]:g})"
        elif self.options.limits is not None and self.options.limits.constrained[k]:
            fix += " or a larger limit"
        elif (lam := self.options.weights[k]) > 0:
            fix += f" or a smaller lam (now {lam:g})"
        return TrainingError(f"Training stopped in epoch {epoch}, {where}: {why}. Try {fix}.")


def check_labels(record: Record, rows: Rows, batch_size: int, steps: int) -> None:
    """Warn if some label is too rare in most batches of the first epoch; raise ArgumentError if all are."""
    often = {label: count for label, count in record.skipped if 2 * count > steps}
    if not often or rows.labels is None:
        return
    fewest = min(int(torch.eq(rows.labels, float(label)).sum()) for label in often)
    all_skipped = sum(count for _, count in record.skipped) == steps * len(record.terms)
    if all_skipped and fewest < MIN_ROWS:  # no batch could have them
        must = f"have {MIN_ROWS} rows of every label that the penalty is given"
        raise ArgumentError("y", must, f"a label of {fewest} rows", "Pass more rows, or leave out 'given'.")
    enough = math.ceil(2 * MIN_ROWS * len(rows) / max(fewest, 1))
    must = f"give every label of y that the penalty is given {MIN_ROWS} rows in most batches"
    got = f"{batch_size}, with which a label of {fewest} rows has fewer"
    fix = f"Use batch_size={min(enough, len(rows))} or leave out 'given'."
    error = ArgumentError("batch_size", must, got, fix)
    if all_skipped:
        raise error
    warnings.warn(str(error), stacklevel=2)
