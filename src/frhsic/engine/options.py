"""Options of training: those a user may set beyond the estimator's own, and all of one run together."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from frhsic._checks import ArgumentError, is_number
from frhsic.engine.limits import Limits
from frhsic.penalty import Penalty, PenaltySum


def check_path(**grids: Sequence[Any] | None) -> None:
    """Raise ArgumentError unless exactly one of lams, budgets and limits is given and not empty."""
    given = {name: values for name, values in grids.items() if values is not None}
    if len(given) != 1 or not all(map(len, given.values())):
        got = " and ".join(f"{name}={values!r}" for name, values in given.items()) or "none"
        must = "'lams', 'budgets' or 'limits' must be given, one of them and not empty."
        raise ValueError(f"{must} Got {got}. Write budgets=[0.5, 0.1].")


def check_whole(name: str, value: object, usual: int) -> None:
    """Raise ArgumentError unless the value is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ArgumentError(name, "be a whole number from 1", repr(value), f"Try {usual}.")


def _check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ArgumentError(name, f"be one of {list(known)}", repr(value), f"Leave it out for {known[0]!r}.")


@dataclass(frozen=True)
class Training:
    """Options of training beyond the parameters of the estimators.

    Parameters
    ----------
    schedule : {"auto", "constant", "cosine"}, default="auto"
        The learning rate over the epochs; "cosine" falls to zero. "auto" is constant for a given ``lam``, as
        published, and cosine for a budget, which is met more closely the less the last epochs move.
    clip : float, optional
        The largest norm of the gradient; larger ones are scaled down.
    validation_fraction : float, default=0.1
        The share of the rows that is held out for early stopping.
    limit_fraction : float or "auto", default="auto"
        With a limit: the share of the rows that is not trained on, the steering rows, so that what is limited
        is measured on rows the model has not seen; 0 measures on the rows trained on. "auto" is 0.2 from
        2,000 rows on and 0 below, where so few rows say little. With early stopping these rows serve both.
    patience : int, default=10
        Epochs without improvement on the held-out rows before training stops early.
    every : int, optional
        When rules for the scale of Z (``"median"``) are resolved: None at every step; 20, as published, at
        every step of each epoch divisible by 20, and then held.
    last_batch : {"merge", "keep"}, default="merge"
        What happens to the last rows of an epoch if they are less than half a batch: they join the batch
        before them, or are a batch of their own, as published, on which a penalty is mostly noise.
    scaling : {"standard", "minmax", "none"}, default="standard"
        How the estimators scale X, continuous columns of S and the target of a regression on the training
        rows: to mean 0 and variance 1, to [0, 1] as published, or not at all.
    noise : float, default=0.0
        Of a Gaussian channel: rows of Z are held within the unit ball, and noise of this standard deviation
        is added to each column, in training, by ``transform`` and by ``predict``. It buries directions of
        small variance, in which S would survive: 0.03 to 0.1 for a representation that is handed on. It is
        drawn from ``random_state`` and the table, so that the same call has the same result.
    penalty_every : int, default=1
        The penalty and the rebuilding are evaluated at one of so many steps, with as many times their
        weight: 4 takes a quarter of their time.
    rebuild : float, default=0.0
        The weight of the mean share of the variance of columns of X that a linear map of Z and functions of
        S misses, added to the loss: it keeps Z of use for targets that it is not trained for. As S is given,
        S need not be in Z for it.
    checkpoint : path, optional
        A file that is replaced every ``checkpoint_every`` epochs. After an interruption the same call
        continues from it, to the same weights bit by bit. It is removed when training ends. With ``every``
        it holds Z, predictions and row numbers of one batch.
    checkpoint_every : int, default=1

    Examples
    --------
    >>> Training(every=20, last_batch="keep", scaling="minmax").rate(0, 200)  # as published
    1.0
    """

    schedule: Literal["auto", "constant", "cosine"] = "auto"
    clip: float | None = None
    validation_fraction: float = 0.1
    limit_fraction: float | Literal["auto"] = "auto"
    patience: int = 10
    every: int | None = None
    last_batch: Literal["merge", "keep"] = "merge"
    scaling: Literal["standard", "minmax", "none"] = "standard"
    penalty_every: int = 1
    noise: float = 0.0
    rebuild: float = 0.0
    checkpoint: str | Path | None = None
    checkpoint_every: int = 1

    def __post_init__(self) -> None:
        _check_choice("schedule", self.schedule, ("auto", "constant", "cosine"))
        _check_choice("last_batch", self.last_batch, ("merge", "keep"))
        _check_choice("scaling", self.scaling, ("standard", "minmax", "none"))
        clip: Any = self.clip
        if clip is not None and not (is_number(clip) and 0 < clip < math.inf):
            raise ArgumentError("clip", "be a positive number or None", repr(clip), "Try 1.0.")
        if not 0 < self.validation_fraction < 1:
            got = repr(self.validation_fraction)
            raise ArgumentError("validation_fraction", "lie between 0 and 1", got, "Try 0.1.")
        part: Any = self.limit_fraction
        if part != "auto" and not (is_number(part) and 0 <= part < 1):
            raise ArgumentError(
                "limit_fraction", "be 'auto' or at least 0 and below 1", repr(part), "Try 0.2."
            )
        for name, value in (("noise", self.noise), ("rebuild", self.rebuild)):
            if not (is_number(value) and 0 <= value < math.inf):
                raise ArgumentError(name, "be a number of at least 0", repr(value), "Leave it out for none.")
        check_whole("patience", self.patience, 10)
        check_whole("checkpoint_every", self.checkpoint_every, 10)
        check_whole("penalty_every", self.penalty_every, 1)
        if self.every is not None:
            check_whole("every", self.every, 10)
        if self.checkpoint is not None and not isinstance(self.checkpoint, (str, Path)):
            raise TypeError(
                f"'checkpoint' must be a path. Got {type(self.checkpoint).__name__}. Write 'run.checkpoint'."
            )

    def rate(self, epoch: int, epochs: int, *, budget: bool = False) -> float:
        """Return the factor of the learning rate in an epoch, counted from 0."""
        constant = self.schedule == "constant" or (self.schedule == "auto" and not budget)
        return 1.0 if constant else 0.5 * (1.0 + math.cos(math.pi * epoch / epochs))


@dataclass(frozen=True, eq=False)
class Options:
    """All options of one run: the penalty, its weights ``lams`` or ``budgets``, and how to train.

    The scales of S in the penalty are fixed on all rows, those of Z by ``training.every``. Parameters that it
    has (an adversary) are ascended, one step for each step of the net.
    """

    penalty: Penalty | PenaltySum | None = None
    lams: Sequence[float] | None = None  # of each net; at 0 the penalty is not evaluated; None is a single 0
    budgets: Sequence[float] | None = None  # of each net: a share of the dependence of an unconstrained net
    limits: Limits | None = None  # of each net, in the unit of the score
    epochs: int = 200
    batch_size: int = 256
    learning_rate: float = 1e-3
    training: Training = Training()

    def __post_init__(self) -> None:
        if self.penalty is None and self.penalised:
            what, fix = "for budgets and limits", "Pass what training is to lower."
            if self.constrained is None:
                what, fix = f"for lam = {max(self.weights):g}", "Pass one, or lam=0."
            raise ArgumentError("penalty", f"be passed {what}", None, fix)

    @property
    def weights(self) -> list[float]:
        """The penalty weight of each net; zeros where multipliers, which are not options, take its place."""
        if self.constrained is not None:
            return [0.0] * len(self.constrained)
        return [0.0] if self.lams is None else list(self.lams)

    @property
    def penalised(self) -> bool:
        """Whether any net has a penalty."""
        return self.constrained is not None or max(self.weights, default=0.0) > 0

    @property
    def constrained(self) -> list[bool] | None:
        """Whether each net has a budget or a limit; the first of those with budgets is unconstrained."""
        if self.limits is not None:
            return self.limits.constrained
        return None if self.budgets is None else [False] + [True] * len(self.budgets)

    def rate(self, epoch: int) -> float:
        """Return the learning rate in an epoch, counted from 0."""
        falls = self.constrained is not None
        return self.learning_rate * self.training.rate(epoch, self.epochs, budget=falls)
