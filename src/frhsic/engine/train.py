"""Training of one net, or of one for each penalty weight or budget in a stacked pass over shared batches."""

from __future__ import annotations

import torch

from frhsic.engine.nets import Loss, Net, Stack
from frhsic.engine.options import Options, check_path
from frhsic.engine.record import Trained
from frhsic.engine.rows import Rows
from frhsic.engine.run import Run


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
    check_path(options.lams, options.budgets)
    return Run(Stack([net] * len(options.weights)), loss, rows, options, generator, validation).run()
