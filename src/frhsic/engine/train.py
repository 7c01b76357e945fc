"""Training of one net."""

from __future__ import annotations

import torch

from frhsic.engine.nets import Loss, Net, Stack
from frhsic.engine.options import Options
from frhsic.engine.record import Trained
from frhsic.engine.rows import Rows
from frhsic.engine.run import Run, own_randomness, seed_modules


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

    Examples
    --------
    >>> from frhsic.engine.nets import make_net, squared_error
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(100, 2, generator=g)
    >>> done = train(make_net(2, 1, generator=g), squared_error, Rows(x, x[:, 0]), generator=g)
    >>> done.history[-1].loss < done.history[0].loss
    True
    """
    (done,) = train_nets(net, loss, rows, options or Options(), generator=generator, validation=validation)
    return done


def train_nets(
    net: Net | Stack,
    loss: Loss,
    rows: Rows,
    options: Options,
    *,
    generator: torch.Generator,
    validation: Rows | None,
) -> list[Trained]:
    """Train a net, or a stack of them with a penalty weight or a budget each."""
    with own_randomness(generator, rows.x.device):
        run = Run(net, loss, rows, options, generator, validation)
        seed_modules(generator)
        return run.run()
