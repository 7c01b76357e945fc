"""Training: of one net, of one for each penalty weight or budget in a stacked pass, or of one in parts."""

from __future__ import annotations

import torch

from frhsic._checks import ArgumentError
from frhsic._progress import Progress
from frhsic.engine.guards import check_labels
from frhsic.engine.nets import Loss, Net, Stack
from frhsic.engine.options import Options, check_path
from frhsic.engine.record import Record, Trained
from frhsic.engine.rows import Rows
from frhsic.engine.run import Run, own_randomness
from frhsic.penalty import PenaltySum


def train(
    net: Net,
    loss: Loss,
    rows: Rows,
    options: Options | None = None,
    *,
    generator: torch.Generator,
    validation: Rows | None = None,
) -> Trained:
    """Minimise E loss + lam * penalty by Adam over minibatches (equation ``frhsic_objective`` of the paper).

    ``net`` is trained in place; ``rows`` are on its device and in its dtype. ``options`` have at most one
    entry in ``lams``. ``generator`` draws the batches, and a seed for what the caller's modules draw
    (dropout). With held-out rows in ``validation``, training stops when loss + lam * penalty on them has not
    improved for ``training.patience`` epochs, and the weights of the best one are returned.
    """
    (done,) = Run(net, loss, rows, options or Options(), generator, validation).run()
    return done


def train_path(
    net: Net,
    loss: Loss,
    rows: Rows,
    options: Options,
    *,
    generator: torch.Generator,
    validation: Rows | None = None,
) -> list[Trained]:
    """Train one net for each penalty weight or budget in one stacked pass: shared batches, batched products.

    Every net starts from a copy of the weights of ``net`` and becomes what ``train`` would have made of it
    with the same generator (but for rounding, and for modules that draw random numbers or remember batches).

    With budgets, ``min loss`` subject to ``dependence <= budget * dependence of an unconstrained net``, which
    is trained along and returned first. The dependence is the penalty's :meth:`~frhsic.Penalty.excess` over
    independence, on thousands of rows after every epoch. With ``validation`` the epoch kept is the one of
    least loss on the held-out rows among those within the budget.
    """
    most = None if options.limits is None else options.limits.most
    check_path(lams=options.lams, budgets=options.budgets, limits=most)
    return Run(Stack([net] * len(options.weights)), loss, rows, options, generator, validation).run()


class Passes:
    """Training in parts, for rows that do not fit in memory or keep arriving: one pass for each call.

    Net, optimizer and scales stay. The scales of S are fixed on the first ``rows``, which are not trained on,
    nor kept. The options must have a constant learning rate and no checkpoint; ``epochs`` is not read.
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
