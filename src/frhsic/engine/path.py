"""The path: one net for each penalty weight or budget, all in one stacked pass over shared batches."""

from __future__ import annotations

import torch

from frhsic.engine.nets import Loss, Net, Stack
from frhsic.engine.options import Options, check_path
from frhsic.engine.record import Trained
from frhsic.engine.rows import Rows
from frhsic.engine.train import train_nets


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

    ``options`` have ``lams`` or ``budgets``; all else is as for :func:`~frhsic.engine.train.train`. Every net
    starts from a copy of the weights of ``net`` and becomes what ``train`` would have made of it with the
    same generator (but for rounding, and for modules that draw random numbers or remember batches).

    With budgets, ``min loss`` subject to ``dependence <= budget * dependence of an unconstrained net``, which
    is trained along and returned first. The dependence is the penalty's :meth:`~frhsic.Penalty.excess` over
    independence, on thousands of rows after every epoch. With ``validation`` the epoch kept is the one of
    least loss on the held-out rows among those within the budget.

    Examples
    --------
    >>> from frhsic import HSIC, Penalty, Sensitive
    >>> from frhsic.engine.nets import make_net, squared_error
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(100, 2, generator=g)
    >>> rows = Rows(x, x.sum(dim=1), Sensitive.of(x[:, :1]))
    >>> options = Options(penalty=Penalty(HSIC()), lams=[0.1, 10.0], epochs=20)
    >>> weak, strong = train_path(make_net(2, 1, generator=g), squared_error, rows, options, generator=g)
    >>> strong.history[-1].penalty < weak.history[-1].penalty
    True
    """
    check_path(options.lams, options.budgets)
    stack = Stack([net] * len(options.weights))
    return train_nets(stack, loss, rows, options, generator=generator, validation=validation)
