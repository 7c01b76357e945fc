"""The rows that training sees, and their minibatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import torch
from torch import Tensor

from frhsic.data import Sensitive

MIN_BATCH: Final = 4  # the fewest rows for which every measure is defined


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table: x ``(n, p)``, the target y, S, and weights of mean one.

    ``weights`` are those of the sample, for the penalty; ``loss_weights`` also hold those of the classes.
    """

    x: Tensor
    y: Tensor
    s: Sensitive | None = None
    weights: Tensor | None = None
    loss_weights: Tensor | None = None
    labels: Tensor | None = None  # codes of classes, for penalties given y

    def __len__(self) -> int:
        return len(self.x)

    @property
    def loss_weighting(self) -> Tensor | None:
        """The weights of the rows in the loss; None where all are equal."""
        return self.weights if self.loss_weights is None else self.loss_weights

    @property
    def tensors(self) -> list[Tensor]:
        """All values, S last."""
        found = [part for part in vars(self).values() if isinstance(part, Tensor)]
        return found if self.s is None else [*found, self.s.values]

    def __getitem__(self, index: Tensor) -> Rows:
        return self._change(lambda part: part[index])

    def to(self, device: torch.device, dtype: torch.dtype) -> Rows:
        """Move to a device and a floating type; codes of classes stay whole numbers."""
        like = torch.empty(0, device=device, dtype=dtype)

        def move(part: Any) -> Any:
            whole = isinstance(part, Tensor) and not part.is_floating_point()
            return part.to(device if whole else like)

        return self._change(move)

    def _change(self, change: Callable[[Any], Any]) -> Rows:
        parts = {name: part for name, part in vars(self).items() if part is not None}
        return replace(self, **{name: change(part) for name, part in parts.items()})


def make_batches(
    n: int, batch_size: int, generator: torch.Generator | None, *, last: Literal["merge", "keep"] = "merge"
) -> list[Tensor]:
    """Return the rows of each batch, in random order if there is a generator.

    A last batch of less than half the size joins the one before it, or with "keep" one of less than 4 rows.
    """
    least = MIN_BATCH if last == "keep" else max(MIN_BATCH, batch_size / 2)
    order = torch.arange(n) if generator is None else torch.randperm(n, generator=generator)
    parts = list(order.split(batch_size))
    if len(parts) > 1 and len(parts[-1]) < min(least, batch_size):
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
