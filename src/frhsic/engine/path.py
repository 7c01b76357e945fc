"""The path: one net for each strength of the penalty, all in one stacked pass over shared batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from frhsic.engine.nets import Loss, Net, Stack
from frhsic.engine.train import Rows, Trained, Training, run_all
from frhsic.penalty import Penalty, PenaltySum


def train_path(
    net: Net,
    loss: Loss,
    rows: Rows,
    *,
    lams: Sequence[float] | None = None,
    budgets: Sequence[float] | None = None,
    penalty: Penalty | PenaltySum | None,
    epochs: int = 200,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    training: Training | None = None,
    generator: torch.Generator,
    validation: Rows | None = None,
) -> list[Trained]:
    """Train one net for each strength in one stacked pass: shared batches, batched products.

    Every net starts from the weights of ``net`` and becomes what :func:`~frhsic.engine.train` would have made
    of it with the same generator (but for rounding, and for modules that draw random numbers or remember
    batches).

    Parameters
    ----------
    net : Net
        Is copied.
    loss, rows, penalty, epochs, batch_size, learning_rate, training, generator, validation
        As for :func:`~frhsic.engine.train`.
    lams : sequence of float, optional
        Strengths of the penalty.
    budgets : sequence of float, optional
        Instead: ``min loss`` subject to ``dependence <= budget * dependence of an unconstrained net``, which
        is trained along and returned first. The dependence is the penalty's :meth:`~frhsic.Penalty.excess`
        over independence, on thousands of rows after every epoch. With ``validation`` the epoch kept is the
        one of least loss on the rows set aside among those within the budget.

    Returns
    -------
    list of Trained

    Examples
    --------
    >>> from frhsic import HSIC, Penalty, Sensitive
    >>> from frhsic.engine.nets import make_net, squared_error
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(100, 2, generator=g)
    >>> rows = Rows(x, x.sum(dim=1), Sensitive.of(x[:, :1]))
    >>> weak, strong = train_path(
    ...     make_net(2, 1, generator=g), squared_error, rows,
    ...     lams=[0.1, 10.0], penalty=Penalty(HSIC()), epochs=20, generator=g)
    >>> strong.history[-1].penalty < weak.history[-1].penalty
    True
    """
    check_strengths(lams, budgets)
    if budgets is not None and penalty is None:
        raise ValueError("'penalty' must be passed for budgets. Got None. Pass what they are to bound.")
    count = len(lams) if lams is not None else len(budgets or ()) + 1
    return run_all(
        Stack([net] * count),
        loss,
        rows,
        lams=lams,
        budgets=budgets,
        penalty=penalty,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        training=training,
        generator=generator,
        validation=validation,
    )


def check_strengths(lams: Sequence[float] | None, budgets: Sequence[float] | None) -> None:
    """Refuse all but one of the two, with something in it."""
    given = [strengths for strengths in (lams, budgets) if strengths is not None]
    if len(given) != 1 or not len(given[0]):
        raise ValueError(
            "'lams' or 'budgets' must be given, one of them and not empty. "
            f"Got lams={lams!r} and budgets={budgets!r}. Write budgets=[0.5, 0.1]."
        )
