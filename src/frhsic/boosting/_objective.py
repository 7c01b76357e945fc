"""The loss and the penalty of boosting, as a gradient and a Hessian of the raw scores of all rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.boosting._table import Link, Table, Term
from frhsic.data import Sensitive
from frhsic.dependence import HSIC
from frhsic.engine.budget import MOST, Multipliers
from frhsic.engine.rows import Rows
from frhsic.numerics._cells import MeanCells
from frhsic.penalty import On, Penalty, PenaltySum

PACE: Final = 10  # steps of a network that a round counts for, in the pace of a multiplier
_MOVES: Final = 2  # rounds between two moves of the multiplier
_NEW: Final = 0.25  # the part of the last ratio in the smoothed one that the multiplier follows
EVERY: Final = 5  # rounds between two measurements of what is limited, and of the curvature
_OFTEN: Final = 10  # rounds at the start, when scores change most, in each of which the curvature is measured
# Raw scores of the training rows and of the held-out rows to the largest measured value over its limit.
Ratio: TypeAlias = Callable[[Tensor, Tensor | None], float]


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss of raw scores ``(n, k)``: log loss of k classes (k = 1: of two), or squared error.

    Attributes
    ----------
    y : Tensor of shape (n,)
        Codes of classes, or numbers.
    weights : Tensor of shape (n,)
        Of mean one, with those of the classes.
    classes : int
        0 for a regression.
    shift, scale : float
        Of a regression: the mean of y, which is taken off y and raw scores, and its spread, by which
        predictions are divided before their dependence is measured. The loss is in units of its square.
    """

    y: Tensor
    weights: Tensor
    classes: int
    shift: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, rows: Rows, classes: int, like: Loss | None = None) -> Loss:
        """Return the loss of some rows; that of a regression in the units of another one, if given."""
        y = rows.y.double()
        weights = rows.loss_weighting
        w = torch.ones(len(y), dtype=torch.float64) if weights is None else weights.double()
        shift, scale = 0.0, 1.0
        if like is not None:
            shift, scale = like.shift, like.scale
        elif classes == 0:
            shift = float(y @ w / w.sum())
            scale = float(((y - shift).square() @ w / w.sum()).sqrt()) or 1.0
        return cls((y - shift).float(), w.float(), classes, shift, scale)

    def read(self, raw: NDArray[Any]) -> Tensor:
        """Return raw scores of a library as they are used here."""
        return torch.from_numpy(raw - self.shift if self.shift else raw).float()

    @property
    def outputs(self) -> int:
        """The number of trees of a round."""
        return self.classes if self.classes > 2 else 1

    @cached_property
    def total(self) -> float:
        """The sum of the weights of the rows."""
        return float(self.weights.sum(dtype=torch.float64))

    @property
    def unit(self) -> float:
        """What the penalty is multiplied by where the loss is written as libraries do: half of a square."""
        return 0.5 * self.scale**2 if self.classes == 0 else 1.0

    def derivatives(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient and the Hessian, ``(n, k)``, of the sum over rows."""
        w = self.weights[:, None]
        if self.classes == 0:
            return w * (raw - self.y[:, None]), w.expand_as(raw).clone()
        if self.classes == 2:
            p = raw.sigmoid()
            return (p - self.y[:, None]).mul_(w), p.mul_(1.0 - p).clamp_(min=1e-16).mul_(w)
        p = raw.softmax(dim=1)
        factor = self.classes / (self.classes - 1.0)
        hessian = (p * (1.0 - p)).clamp_(min=1e-16).mul_(factor * w)
        p[torch.arange(len(p)), self.y.long()] -= 1.0
        return p.mul_(w), hessian

    def mean(self, raw: Tensor) -> float:
        """Return the mean loss: log loss, or squared error in units of the variance of y."""
        if self.classes == 0:
            values = ((raw[:, 0] - self.y) / self.scale).square()
        elif self.classes == 2:
            values = nn.functional.softplus(raw[:, 0]) - self.y * raw[:, 0]
        else:
            values = nn.functional.cross_entropy(raw, self.y.long(), reduction="none")
        return self._average(values)

    def constant(self) -> float:
        """Return the least mean loss of a constant prediction."""
        if self.classes == 0:
            return self._average(((self.y - self._average(self.y)) / self.scale).square())
        mass = torch.bincount(self.y.long(), self.weights.double(), self.classes) / self.total
        return float(torch.special.entr(mass).sum())

    def _average(self, values: Tensor) -> float:
        return float((values * self.weights).sum(dtype=torch.float64)) / self.total

    def scores(self, raw: Tensor) -> Tensor:
        """Return what people read, in float64: probabilities (of the second of two classes), or numbers."""
        raw = raw.double()
        if self.classes == 0:
            return raw + self.shift
        return raw.sigmoid() if self.classes == 2 else raw.softmax(dim=1)


def _slope(t: Tensor) -> Tensor:
    p = t.sigmoid()
    return p * (1.0 - p)


def check_penalty(penalty: Penalty | PenaltySum, classes: int) -> None:
    """Raise ArgumentError if a table of scores by cells of S cannot hold a penalty."""
    for _, term in penalty.pairs:
        measure = term.dependence
        why = ""
        if term.on == "representation":
            why = "one of the representation, which trees do not have"
        elif type(measure) is not HSIC:
            why = f"{type(measure).__name__}, which needs the rows themselves"
        elif measure.normalized:
            why = "normalised HSIC: scores that shrink would not lower it, and boosting begins with none"
        elif term.on == "probability" and not classes:
            why = "one of probabilities, where none are predicted"
        elif term.needs_y and not classes:
            why = "one given labels of y, where y is not a class"
        if why:
            fix = "Pass Penalty(HSIC(...), on='probability') for classes, on='prediction' for numbers."
            raise ArgumentError("penalty", "be one that a table of scores by S can hold", why, fix)


class Dependence(NamedTuple):
    """The penalty over all rows, less what chance adds, and its derivative by the raw scores."""

    value: float
    gradient: Tensor
    curvature: float


class TablePenalty:
    """A penalty of scores over all rows at once.

    Parameters
    ----------
    penalty : Penalty or PenaltySum
        Of HSIC on the probability or the prediction, labels as codes.
    loss : Loss
        Of the same rows.
    s : Sensitive
    weights : Tensor of shape (n,)
        Of the sample, without those of classes.
    plain : Tensor of shape (n, k)
        Raw scores of a model without a penalty: rules for bandwidths are numbers of these.
    """

    def __init__(
        self, penalty: Penalty | PenaltySum, loss: Loss, s: Sensitive, weights: Tensor, plain: Tensor
    ) -> None:
        check_penalty(penalty, loss.classes)
        self.penalty, self.loss = penalty, loss
        weighted = not bool((weights == weights[0]).all())
        # The score of each class by itself: a kernel of all of them would need a table of so many dimensions.
        several = [
            penalty.calibrate(
                None,
                self._standard(t).double()[:, None],
                s,
                loss.y if penalty.needs_y else None,
                torch.Generator().manual_seed(0),
                weights=weights.double() if weighted else None,
                freeze=True,
            ).pairs
            for t in self._columns(plain, "probability" if loss.classes else "prediction")
        ]
        groups: dict[Any, list[tuple[tuple[float, Penalty], ...]]] = {}
        for same in zip(*several, strict=True):
            part = same[0][1]
            groups.setdefault((part.label, part.columns, part.on), []).append(same)
        self.tables: list[tuple[Table, On]] = []
        for (label, columns, on), parts in groups.items():
            rows = None if label is None else (loss.y == label).nonzero().squeeze(1)
            some = s if columns is None else s.columns(columns[0])
            own = weights.double()
            if rows is not None:
                some, own = some[rows], own[rows]
            own = own / own.sum()
            cells = MeanCells.of(some, own)
            terms = []
            for same in parts:
                measures: list[Any] = [one.dependence for _, one in same]
                kernels = [measure.kernel_z for measure in measures]
                terms.append(Term.of(same[0][0], kernels, measures[0].kernel_s, cells))
            self.tables.append((Table(rows, own.float() if weighted else None, cells, terms), on))

    def evaluate(self, raw: Tensor, *, curved: bool) -> Dependence:
        """Return the penalty of raw scores ``(n, k)``."""
        loss, n = self.loss, len(raw)
        gradient: Tensor | None = None
        value = curvature = 0.0
        for table, on in self.tables:
            link, slope = self._links(on)
            some = raw if table.rows is None else raw[table.rows]
            columns = []
            for c, t in enumerate(self._columns(some, on)):
                found = table.evaluate(t, link, slope, output=c, curved=curved)
                value += found.value
                curvature += found.curvature * n / len(some)
                columns.append(found.gradient)
            parts = torch.stack(columns, dim=1) if len(columns) > 1 else columns[0][:, None]
            if loss.outputs > 1 and on == "probability":
                # By the chain rule: d logit(p_c) / d raw_j = (1{c = j} - p_j) / (1 - p_c).
                p = some.softmax(dim=1)
                u = parts / (1.0 - p).clamp(min=1e-7)
                parts = u - p * u.sum(dim=1, keepdim=True)
            if table.rows is not None:
                parts = torch.zeros_like(raw).index_copy_(0, table.rows, parts)
            gradient = parts if gradient is None else gradient + parts
        assert gradient is not None  # noqa: S101 - a penalty has at least one term
        return Dependence(value, gradient, curvature)

    def _columns(self, raw: Tensor, on: On) -> list[Tensor]:
        """Return for each output a number of which its score is a function."""
        if self.loss.outputs > 1 and on == "probability":
            raw = raw.softmax(dim=1).clamp(1e-7, 1.0 - 1e-7).logit()
        return [t.contiguous() for t in raw.unbind(dim=1)]

    def _standard(self, t: Tensor) -> Tensor:
        """Return the predictions of a regression over the spread of y."""
        return t if self.loss.classes else t / self.loss.scale

    def _links(self, on: On) -> tuple[Link, Link]:
        """Return the score of a raw one, and the curvature of the loss there."""
        if self.loss.classes == 0:
            return self._standard, torch.ones_like
        return (torch.sigmoid if on == "probability" else _same), _slope


def _same(t: Tensor) -> Tensor:
    return t


@dataclass(frozen=True)
class Round:
    """What was found before a round: the mean loss (of every fifth), the penalty, and how it was weighed."""

    loss: float | None
    penalty: float
    relative_dependence: float | None
    of_limit: float | None
    penalty_weight: float


class Objective:
    """The loss plus a moving multiple of the penalty, as gradients of the raw scores of all rows.

    With a budget or a limit the multiple follows :class:`frhsic.engine.budget.Multipliers`, one step a round.
    Trees share no step with one another as the weights of a network do, so a round overshoots by as much as
    the penalty is steeper than the loss: the Hessian is multiplied by max(1, rate (1 + factor curvature)),
    with the largest curvature of the penalty relative to the loss.

    Parameters
    ----------
    loss : Loss
    penalty : TablePenalty
    rate : float
        The learning rate.
    lam, budget : float, optional
        A fixed weight, or a share of the penalty of ``plain``.
    plain : Tensor of shape (n, k)
        Raw scores of a model without a penalty.
    ratio : callable, optional
        Of a limit: the largest measured value over its limit, for raw scores of the training rows and of the
        held-out rows.
    """

    def __init__(
        self,
        loss: Loss,
        penalty: TablePenalty,
        rate: float,
        *,
        plain: Tensor,
        lam: float | None = None,
        budget: float | None = None,
        ratio: Ratio | None = None,
    ) -> None:
        self.loss, self.penalty, self.rate = loss, penalty, rate
        self.lam, self.budget, self.ratio = lam, budget, ratio
        self.before = penalty.evaluate(plain, curved=True).value
        unit = self.before if self.before > 0 else 1.0
        self._unit = torch.tensor([unit], dtype=torch.float64)
        most = 100.0 * MOST  # what is left of a penalty may be a hundredth of its unit
        self._multipliers = Multipliers([True], PACE * _MOVES, 0, most=most, like=self._unit)
        self.last: float | None = None
        """The last ratio of what was measured to what is allowed."""
        self._smooth = 0.0  # the logarithm of the ratio, over the last rounds
        self._violated = False
        self._curvature = 0.0
        self.history: list[Round] = []

    def relative(self, raw: Tensor) -> float | None:
        """Return the penalty over that of the plain model; None where that one has none."""
        value = self.penalty.evaluate(raw, curved=True).value
        return value / self.before if self.before > 0 else None

    def step(self, raw: Tensor, held: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the gradient and the Hessian for the next round, ``(n, k)``; once for each round."""
        gradient, hessian = self.loss.derivatives(raw)
        rounds = len(self.history)
        curved = rounds < _OFTEN or rounds % EVERY == 0
        found = self.penalty.evaluate(raw, curved=curved)
        self._curvature = found.curvature if curved else self._curvature
        factor = self._follow(found.value, raw, held)
        if factor > 0:
            steep = factor * self.loss.unit
            gradient.add_(found.gradient, alpha=self.loss.total * steep)
            hessian *= max(1.0, self.rate * (1.0 + steep * self._curvature))
        share = found.value / self.before if self.before > 0 and self.budget is not None else None
        mean = self.loss.mean(raw) if rounds % EVERY == 0 else None
        self.history.append(Round(mean, found.value, share, self.last, factor))
        return gradient, hessian

    def _follow(self, value: float, raw: Tensor, held: Tensor | None) -> float:
        """Move the multiplier, and return what the gradient of the penalty is multiplied by."""
        if self.lam is not None:
            return self.lam
        rounds = len(self.history)
        if self.ratio is None:
            self.last = value / (float(self._unit) * (self.budget or 1.0))
        elif rounds % EVERY == 0:
            self.last = self.ratio(raw, held)
        assert self.last is not None  # noqa: S101
        if self.last > 1.0 and not self._violated:
            # The first rounds predict nearly a constant: being within the limit lowered the multiplier.
            self._violated, self._smooth = True, 0.0
            self._multipliers.restart()
        if rounds % _MOVES == 0:
            # A round can overshoot, and a weight that answers to it at once would overshoot the other way.
            now = math.log(min(max(self.last, 0.1), 10.0))
            self._smooth += _NEW * (now - self._smooth)
            ratio = torch.tensor([math.exp(self._smooth)], dtype=torch.float64)
            self._multipliers.update(ratio, self._unit)
        return float(self._multipliers.factors[0])
