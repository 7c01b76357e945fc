"""Training in parts, for rows that do not fit in memory or keep arriving."""

from __future__ import annotations

import torch

from frhsic._checks import ArgumentError
from frhsic._progress import Progress
from frhsic.engine.guards import check_labels
from frhsic.engine.nets import Loss, Net
from frhsic.engine.options import Options
from frhsic.engine.record import Record
from frhsic.engine.rows import Rows
from frhsic.engine.run import Run, own_randomness
from frhsic.penalty import PenaltySum


class Passes:
    """Training in parts: each call is one pass over other rows; net, optimizer and scales stay.

    The scales of S are fixed on the first ``rows``, which are not trained on, nor kept. The options must have
    a constant learning rate and no checkpoint; ``epochs`` is not read.
    """

    def __init__(
        self, net: Net, loss: Loss, rows: Rows, options: Options | None = None, *, generator: torch.Generator
    ) -> None:
        options = options or Options()
        if options.training.schedule == "cosine" or options.training.checkpoint is not None:
            must = "have a constant rate and no checkpoint where rows come in parts, whose end is not known"
            fix = "Leave out 'schedule' and 'checkpoint'; save the model."
            raise ArgumentError("training", must, repr(options.training), fix)
        self._run = Run(net, loss, rows, options, generator)
        self._run.rows = rows[torch.arange(0)]
        self._count = 0

    @property
    def net(self) -> Net:
        """The net as it is now."""
        assert isinstance(self._run.net, Net)  # noqa: S101
        return self._run.net

    @property
    def penalty(self) -> PenaltySum | None:
        """The penalty with its scales."""
        return self._run.objective.penalty

    def train_on(self, rows: Rows) -> Record:
        """Train on these rows once, in minibatches, and return the record."""
        run = self._run
        run.rows = rows
        steps = len(run.make_batches(None))
        own = own_randomness(run.generator, rows.x.device, draw=True)
        with own, Progress("training", steps) as bar:
            (record,) = run.train_epoch(self._count, bar)
        if self._count == 0:
            check_labels(record, rows, run.options.batch_size, steps)
        run.rows = rows[torch.arange(0)]
        run.net.eval()
        self._count += 1
        return record
