"""One training of boosted trees within a budget or a limit, and what was kept of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch import Tensor

from frhsic._progress import Progress
from frhsic.boosting._backends import Backend, Floats
from frhsic.boosting._objective import EVERY, Loss, Objective, Ratio, Round, TablePenalty, check_penalty
from frhsic.data import Sensitive
from frhsic.engine.budget import FEASIBLE
from frhsic.engine.limits import Limits, Reached, find_labels
from frhsic.engine.meter import Meter, Scores
from frhsic.engine.rows import Rows
from frhsic.estimators.inputs import Constraint, choose_penalty
from frhsic.kernels import Gaussian
from frhsic.penalty import Penalty, PenaltySum, limit_penalty, score_penalty

_LEAST_WIDTH: Final = 0.3  # of a kernel on the score, in standard deviations of it
_AIM: Final = 0.95  # of a limit: rows that steer are no longer quite held out
_FRESH: Final = 4  # measurements of a limit between two of what chance adds to it
PATIENCE: Final = 30  # rounds without a better one, after which early stopping ends
_SLACK: Final = 0.95  # of a limit: below, rounds are not counted for it


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows to train on, and those held out, if there are some; ``x`` of both are numbers of rows."""

    train: Rows
    held: Rows | None


@dataclass(frozen=True)
class Boosted:
    """A trained booster, with what was measured on the way and at the end."""

    booster: Any
    rounds: int
    history: tuple[Round, ...]
    relative: float | None
    reached: tuple[Reached, ...]
    losses: tuple[float, float]
    """The loss of the constant prediction, and that of the booster, on the training rows."""
    penalty: Penalty | PenaltySum | None = None


class EarlyStop:
    """Remembers the round with the least loss on held-out rows among those within the limit.

    Boosting begins with a constant prediction, which is within any limit. Its first rounds are kept only if
    no later one is above the limit: from the first violation on, only rounds after it count.
    """

    def __init__(self) -> None:
        self.best: tuple[float, int] | None = None
        self.stopped = False
        self._violated = False
        self._judged = 0  # the rounds when it was last asked
        self._waited = 0  # rounds without a better one

    def judge(self, rounds: int, loss: float, ratio: float | None = None) -> None:
        """Take what was found after so many rounds: the loss, and what is limited over its limit."""
        if ratio is not None and ratio > FEASIBLE and not self._violated:
            self._violated, self.best = True, None
        since, self._judged = rounds - self._judged, rounds
        lower = self.best is None or loss < self.best[0]
        if lower and (ratio is None or ratio <= FEASIBLE):
            self.best, self._waited = (loss, rounds), 0
        # Above the limit with a lower loss, the rounds come back to it; far below a limit that was violated
        # the weight of the penalty still falls, and the loss with it. Neither says that nothing better comes.
        elif not lower and not (self._violated and ratio is not None and ratio < _SLACK):
            self._waited += since
        self.stopped = self.best is not None and self._waited >= PATIENCE


def read_penalty(
    penalty: Penalty | PenaltySum | None, classes: NDArray[Any] | None, constraint: Constraint
) -> Penalty | PenaltySum | None:
    """Return a copy of the user's penalty, if there is one, with codes in the place of classes."""
    if penalty is None:
        return None
    chosen = choose_penalty(penalty, classes, constraint)
    check_penalty(chosen, 0 if classes is None else len(classes))
    return chosen


def choose_default(loss: Loss, s: Sensitive, constraint: Constraint, plain: Tensor) -> PenaltySum:
    """Return the penalty where the user chose none, for raw scores of a booster without one."""
    if constraint.limit is not None:
        return limit_penalty(s, weighted=True, classes=loss.classes > 0)
    scores = loss.scores(plain) if loss.classes else plain.double() / loss.scale
    generator = torch.Generator().manual_seed(0)
    widths = [0.0]
    for score in scores.unbind(dim=1):
        if bool((score != score[0]).any()):
            # Most scores of a rare class are alike: their median distance alone would see little else.
            median: Any = Gaussian("median").calibrate(score[:, None], generator=generator)
            widths.append(max(float(median.bandwidth), _LEAST_WIDTH * float(score.std())))
    return score_penalty(s, max(widths) or 1.0, classes=loss.classes > 0)


def make_objective(
    loss: Loss,
    parts: Parts,
    penalty: Penalty | PenaltySum | None,
    constraint: Constraint,
    rate: float,
    plain: Tensor,
) -> tuple[Objective, Meter | None]:
    """Return the objective of the training rows, and what measures the limits."""
    train = parts.train
    assert train.s is not None  # noqa: S101
    if penalty is None:
        penalty = choose_default(loss, train.s, constraint, plain)
    weights = torch.ones(len(train)) if train.weights is None else train.weights
    table = TablePenalty(penalty, loss, train.s, weights, plain)
    meter = None if constraint.limit is None else _meter(parts, penalty, constraint.limit)
    objective = Objective(
        loss,
        table,
        rate,
        plain=plain,
        lam=constraint.lam,
        budget=None if meter is not None or constraint.lam is not None else constraint.share,
        ratio=None if meter is None else _ratio(meter, loss),
    )
    return objective, meter


def boost_plain(backend: Backend, parts: Parts, *, early_stopping: bool) -> Boosted:
    """Train without a penalty, which needs no S."""
    settings = backend.settings
    loss = Loss.of(parts.train, settings.classes)
    rounds = settings.rounds
    if not early_stopping or parts.held is None:
        booster = backend.train_plain()
    else:
        held, stop = Loss.of(parts.held, settings.classes, loss), EarlyStop()

        def step(raw: Floats, _: Floats | None) -> tuple[Floats, Floats]:
            gradient, hessian = loss.derivatives(loss.read(raw))
            return gradient.numpy(), hessian.numpy()

        def after(made: int, other: Floats | None) -> bool:
            assert other is not None  # noqa: S101
            stop.judge(made, held.mean(loss.read(other)))
            return stop.stopped

        grown = backend.train(step, after)
        rounds = settings.rounds if stop.best is None else stop.best[1]
        booster = backend.finish(grown, rounds)
    kept = loss.mean(loss.read(backend.predict_raw(booster, backend.data.x)))
    return Boosted(booster, rounds, (), None, (), (loss.constant(), kept))


def boost(
    backend: Backend,
    parts: Parts,
    penalty: Penalty | PenaltySum | None,
    constraint: Constraint,
    *,
    early_stopping: bool,
) -> Boosted:
    """Train without a penalty, then with it: the least loss among boosters within the budget or the limit."""
    settings, train, held = backend.settings, parts.train, parts.held
    classes = settings.classes
    loss = Loss.of(train, classes)
    plain = loss.read(backend.predict_raw(backend.train_plain(), backend.data.x))
    objective, meter = make_objective(loss, parts, penalty, constraint, settings.learning_rate, plain)
    held_loss = None if held is None else Loss.of(held, classes, loss)
    stop = EarlyStop() if early_stopping else None

    def judge(rounds: int, value: float, other: Tensor | None) -> None:
        if stop is None or held_loss is None or other is None or rounds == 0:
            return
        if meter is not None and rounds % EVERY:  # a limit is measured in other rounds
            return
        penalised = constraint.lam * value if constraint.lam is not None else 0.0
        stop.judge(rounds, held_loss.mean(other) + penalised, objective.last)

    with Progress("boosting", settings.rounds) as bar:

        def step(raw: Floats, other: Floats | None) -> tuple[Floats, Floats]:
            watched = None if other is None else loss.read(other)
            gradient, hessian = objective.step(loss.read(raw), watched)
            judge(len(objective.history) - 1, objective.history[-1].penalty, watched)
            return gradient.numpy(), hessian.numpy()

        def after(_: int, __: Floats | None) -> bool:
            bar.advance()
            return stop is not None and stop.stopped

        grown = backend.train(step, after)
    rounds = len(objective.history)
    if stop is not None and stop.best is not None:
        rounds = stop.best[1]
    booster = backend.finish(grown, rounds)
    raw = loss.read(backend.predict_raw(booster, backend.data.x))
    reached: tuple[Reached, ...] = ()
    if meter is not None:
        other = None if held is None else loss.read(backend.predict_raw(booster, backend.data.held_x))
        (reached,) = meter.report(_evaluate(loss, raw, other), train)
    return Boosted(
        booster,
        rounds,
        tuple(objective.history),
        objective.relative(raw) if objective.budget is not None else None,
        reached,
        (loss.constant(), loss.mean(raw)),
        objective.penalty.penalty,
    )


def _meter(parts: Parts, penalty: Penalty | PenaltySum, limit: Any) -> Meter:
    """Return what measures the limits: on the held-out rows, if there are some."""
    train, held = parts.train, parts.held
    assert train.s is not None  # noqa: S101
    labels = find_labels(penalty, train.labels)
    limits = Limits([limit], torch.as_tensor, train.s.names, labels, held)
    return Meter(limits, train if held is None else held)


def _evaluate(loss: Loss, raw: Tensor, held: Tensor | None) -> Scores:
    """Return a function of numbers of rows: their scores, in the unit that people read."""
    both = raw if held is None else torch.cat([raw, held])

    def evaluate(x: Tensor) -> Tensor:
        return loss.scores(both[x[:, 0].long()])

    return evaluate


def _ratio(meter: Meter, loss: Loss) -> Ratio:
    """Return a function of raw scores: the largest measured value over its limit."""
    count = itertools.count()

    def ratio(raw: Tensor, held: Tensor | None) -> float:
        if held is None and meter.limits.watched is not None:
            return 0.0  # before the first round, when all scores are equal
        turn = next(count)
        fresh = turn < _FRESH or turn % _FRESH == 0  # scores change most at the start
        found = meter.follow(_evaluate(loss, raw, held), fresh=fresh)
        return float(meter.limits.divide(found)[0]) / (1.0 if held is None else _AIM)

    return ratio
