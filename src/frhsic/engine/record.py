"""Results of training: the record of an epoch, and the trained net with its history."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frhsic.data import Label
from frhsic.engine.limits import Reached
from frhsic.engine.nets import Net
from frhsic.penalty import PenaltySum


@dataclass(frozen=True)
class Record:
    """One epoch: means over its batches, and in how many batches each label of y had too few rows.

    ``terms`` are the values of the terms of the penalty before their factors. With a budget, ``penalty`` is
    the debiased, scale-free dependence, ``relative`` its ratio to that of the unconstrained model in the same
    epoch, and ``multiplier`` the weight of the constraint from then on. ``of_limit`` is that ratio over the
    budget, or with limits the largest measured value over its limit.
    """

    epoch: int
    loss: float
    penalty: float | None
    terms: tuple[float, ...]
    skipped: tuple[tuple[Label, int], ...]
    learning_rate: float
    seconds: float | None  # None in a model that was loaded
    validation_loss: float | None = None
    validation_penalty: float | None = None
    validation_skipped: tuple[tuple[Label, int], ...] = ()
    relative: float | None = None
    of_limit: float | None = None
    multiplier: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """Return a record from plain values, in which JSON has lists for tuples."""
        lists = {
            name: tuple(tuple(entry) if isinstance(entry, list) else entry for entry in values[name])
            for name in ("terms", "skipped", "validation_skipped")
        }
        return cls(**{**values, **lists})


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained net: its epochs, the penalty with its scales, and the epoch whose weights were kept.

    With a budget, ``relative`` is the dependence of the net over that of the unconstrained one, each at the
    epoch that was kept, on all training rows. With limits, ``reached`` has what was measured for each.
    """

    net: Net
    history: tuple[Record, ...]
    penalty: PenaltySum | None
    best_epoch: int
    relative: float | None = None
    reached: tuple[Reached, ...] = ()
