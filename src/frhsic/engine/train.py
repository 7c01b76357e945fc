"""Training: minibatches, a loss, a penalty times its strength, and a history of what happened."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import numbers
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from frhsic.data import Label, Sensitive
from frhsic.engine import checkpoint
from frhsic.engine._progress import Progress
from frhsic.engine.nets import Loss, Net
from frhsic.engine.tensorfile import TensorFileError
from frhsic.penalty import MIN_ROWS, Penalty, PenaltySum, PenaltyValue

# When the median loss of the batches of an epoch is this many times the first one (or one, if that is
# larger), it will not come back. One batch alone may hold an outlier.
_DIVERGED = 1e3
_TUPLES = ("terms", "skipped", "validation_skipped")
MIN_BATCH = 4  # the fewest rows for which every measure is defined


_log = logging.getLogger(__name__)


class TrainingError(RuntimeError):
    """Training stopped because the loss left the numbers, or ran away."""


@dataclass(frozen=True)
class Training:
    """How to train, beyond what the estimators ask for.

    Parameters
    ----------
    schedule : {"constant", "cosine"}, default="constant"
        The learning rate over the epochs; "cosine" falls to zero.
    clip : float, optional
        The largest norm of the gradient; larger ones are scaled down.
    validation_fraction : float, default=0.1
        The part of the rows set aside for early stopping.
    patience : int, default=10
        Epochs without improvement on the rows set aside before training stops early.
    every : int, optional
        When rules for the scale of Z (``"median"``) are resolved: None at every step; 20, as published, at
        every step of each epoch divisible by 20, and then held.
    scaling : {"standard", "minmax", "none"}, default="standard"
        How the estimators scale X, continuous columns of S and the target of a regression on the training
        rows: to mean 0 and variance 1, to [0, 1] as published, or not at all.
    checkpoint : path, optional
        A file that is replaced every ``checkpoint_every`` epochs, from which the same call goes on after an
        interruption, to the same weights bit by bit. It is removed when training ends. With ``every`` it
        holds Z, predictions and row numbers of one batch.
    checkpoint_every : int, default=1

    Examples
    --------
    >>> Training(every=20, scaling="minmax").schedule  # as published
    'constant'
    """

    schedule: Literal["constant", "cosine"] = "constant"
    clip: float | None = None
    validation_fraction: float = 0.1
    patience: int = 10
    every: int | None = None
    scaling: Literal["standard", "minmax", "none"] = "standard"
    checkpoint: str | Path | None = None
    checkpoint_every: int = 1

    def __post_init__(self) -> None:
        _one_of("schedule", self.schedule, ("constant", "cosine"))
        _one_of("scaling", self.scaling, ("standard", "minmax", "none"))
        clip: Any = self.clip
        if clip is not None and not (isinstance(clip, (int, float)) and 0 < clip < math.inf):
            raise ValueError(f"'clip' must be a positive number or None. Got {self.clip!r}. Try 1.0.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"'validation_fraction' must lie between 0 and 1. Got {self.validation_fraction!r}. Try 0.1."
            )
        for name in ("patience", "every", "checkpoint_every"):
            value = getattr(self, name)
            if name == "every" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"'{name}' must be a whole number from 1. Got {value!r}. Try 10.")
        if self.checkpoint is not None and not isinstance(self.checkpoint, (str, Path)):
            raise TypeError(
                f"'checkpoint' must be a path. Got {type(self.checkpoint).__name__}. Write 'run.checkpoint'."
            )

    def rate(self, epoch: int, epochs: int) -> float:
        """Return the factor of the learning rate in an epoch, counted from 0."""
        return 1.0 if self.schedule == "constant" else 0.5 * (1.0 + math.cos(math.pi * epoch / epochs))


@dataclass(frozen=True, eq=False)
class Rows:
    """What training sees of a table: x ``(n, p)``, the target y, S, and weights of mean one.

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

    def __getitem__(self, index: Tensor) -> Rows:
        return Rows(
            self.x[index],
            self.y[index],
            None if self.s is None else self.s[index],
            None if self.weights is None else self.weights[index],
            None if self.loss_weights is None else self.loss_weights[index],
            None if self.labels is None else self.labels[index],
        )

    def to(self, device: torch.device, dtype: torch.dtype) -> Rows:
        """Move to a device and a floating type; codes of classes stay whole numbers."""
        like = torch.empty(0, device=device, dtype=dtype)
        return Rows(
            self.x.to(like),
            self.y.to(like) if self.y.is_floating_point() else self.y.to(device),
            None if self.s is None else self.s.to(like),
            None if self.weights is None else self.weights.to(like),
            None if self.loss_weights is None else self.loss_weights.to(like),
            None if self.labels is None else self.labels.to(device),
        )


@dataclass(frozen=True)
class Record:
    """One epoch: means over its batches, and the levels of y that were too small, with how many times.

    ``terms`` are the values of the terms of the penalty before their factors.
    """

    epoch: int
    loss: float
    penalty: float | None
    terms: tuple[float, ...]
    skipped: tuple[tuple[Label, int], ...]
    learning_rate: float
    seconds: float
    validation_loss: float | None = None
    validation_penalty: float | None = None
    validation_skipped: tuple[tuple[Label, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, eq=False)
class Trained:
    """What training gives back: the net, the epochs, the penalty with its scales, the epoch kept."""

    net: Net
    history: tuple[Record, ...]
    penalty: PenaltySum | None
    best_epoch: int


def train(
    net: Net,
    loss: Loss,
    rows: Rows,
    *,
    lam: float = 0.0,
    penalty: Penalty | PenaltySum | None = None,
    epochs: int = 200,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    training: Training | None = None,
    generator: torch.Generator,
    validation: Rows | None = None,
) -> Trained:
    """Minimise E loss + lam * penalty by Adam over minibatches (equation ``frhsic_objective`` of the paper).

    Parameters
    ----------
    net : Net
        Is trained in place.
    loss : callable
        ``loss(prediction, y) -> (n,)``, see :mod:`frhsic.engine.nets`.
    rows : Rows
        On the device and in the dtype of the net.
    lam : float, default=0.0
        The strength of the penalty. At 0 the penalty is not evaluated.
    penalty : Penalty, optional
        Its scales of S are fixed on all rows, those of Z by ``training.every``. Parameters that it has (an
        adversary) are ascended, one step for each step of the net.
    epochs, batch_size, learning_rate
        A last batch of less than half the size joins the one before it.
    training : Training, optional
    generator : torch.Generator
        Draws the batches. What the caller's modules draw (dropout) comes from a seed taken from it.
    validation : Rows, optional
        Rows set aside: training stops when loss + lam * penalty on them has not improved for
        ``training.patience`` epochs, and gives back the weights of the best one.

    Returns
    -------
    Trained

    Examples
    --------
    >>> from frhsic.engine.nets import make_net, squared_error
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(100, 2, generator=g)
    >>> done = train(make_net(2, 1, generator=g), squared_error, Rows(x, x[:, 0]), epochs=20, generator=g)
    >>> done.history[-1].loss < done.history[0].loss
    True
    """
    if lam > 0 and penalty is None:
        raise ValueError(f"'penalty' must be passed for lam = {lam:g}. Got None. Pass one, or lam=0.")
    with own_randomness(generator, rows.x.device):
        run = _Run(
            net,
            loss,
            rows,
            lam,
            penalty,
            epochs,
            batch_size,
            learning_rate,
            training or Training(),
            generator,
            validation,
        )
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        return run.run()


@contextlib.contextmanager
def own_randomness(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Let the caller's modules draw from a seed of the generator, and leave the global state as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(generator.initial_seed() % 2**63)
        yield


def batches(n: int, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
    """Return the rows of each batch in random order (in order without a generator), none much too short.

    Examples
    --------
    >>> [len(batch) for batch in batches(1_000, 256, None)], [len(batch) for batch in batches(800, 256, None)]
    ([256, 256, 256, 232], [256, 256, 288])
    """
    order = torch.arange(n) if generator is None else torch.randperm(n, generator=generator)
    parts = list(order.split(batch_size))
    if len(parts) > 1 and (2 * len(parts[-1]) < batch_size or len(parts[-1]) < min(MIN_BATCH, batch_size)):
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


class _Run:
    """One training, epoch by epoch."""

    def __init__(
        self,
        net: Net,
        loss: Loss,
        rows: Rows,
        lam: float,
        penalty: Penalty | PenaltySum | None,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        training: Training,
        generator: torch.Generator,
        validation: Rows | None,
    ) -> None:
        self.net, self.loss, self.rows = net, loss, rows
        self.lam, self.epochs, self.batch_size = lam, epochs, batch_size
        self.learning_rate, self.training, self.generator = learning_rate, training, generator
        self.validation = validation
        self.history: list[Record] = []
        self.best: tuple[int, float, dict[str, Tensor]] | None = None
        self.first_loss: float | None = None
        self.held: dict[str, Tensor] = {}  # what the scales of Z were last fixed on, for the checkpoint
        self.optimizer = torch.optim.Adam(net.parameters(), lr=learning_rate)
        self.fixed_s = self._fixed_s(penalty)  # scales of S are numbers, those of Z still rules
        self.penalty = self.fixed_s
        critics = [] if self.fixed_s is None else list(self.fixed_s.parameters())
        self.critic = torch.optim.Adam(critics, lr=learning_rate, maximize=True) if critics else None
        self.file = None
        if training.checkpoint is not None:
            self.file = checkpoint.Checkpoint(Path(training.checkpoint), self._fingerprint(penalty))

    def _fixed_s(self, penalty: Penalty | PenaltySum | None) -> PenaltySum | None:
        if self.lam == 0 or penalty is None:
            return None
        if self.rows.s is None:
            raise ValueError(
                "'rows' must have sensitive columns for a penalty of positive strength. Got none. Pass them."
            )
        z, prediction = self._encoded(self.rows)
        labels, weights = self.rows.labels, self.rows.weights
        return penalty.calibrate(
            z, prediction, self.rows.s, labels, self.generator, weights=weights, side="s"
        )

    @torch.no_grad()
    def _encoded(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return z and the prediction for all rows, in pieces."""
        self.net.eval()
        pieces = [self.net(x) for x in rows.x.split(65_536)]
        return torch.cat([z for z, _ in pieces]), torch.cat([prediction for _, prediction in pieces])

    def run(self) -> Trained:
        """Train to the end, and return the net, with the best weights where rows were set aside."""
        start = 0 if self.file is None else self._restore()
        steps = len(batches(len(self.rows), self.batch_size, None))
        with Progress("training", self.epochs * steps) as bar:
            bar.advance(start * steps)
            for epoch in range(start, self.epochs):
                if self._stale():
                    break
                record = self._epoch(epoch, bar)
                if epoch == 0:
                    self._tell_skipped(record, steps)
                self.history.append(record)
                _log.info("epoch %d: loss %.4g, penalty %s", epoch, record.loss, record.penalty)
                last = epoch == self.epochs - 1
                if self.file is not None and not last and (epoch + 1) % self.training.checkpoint_every == 0:
                    self.file.write(*self._state())
        if self.file is not None:
            self.file.remove()
        best_epoch = len(self.history) - 1
        if self.best is not None:
            best_epoch, _, weights = self.best
            self.net.load_state_dict(weights)
        self.net.eval()
        return Trained(self.net, tuple(self.history), self.penalty, best_epoch)

    def _epoch(self, epoch: int, bar: Progress) -> Record:
        began = time.perf_counter()
        rate = self.learning_rate * self.training.rate(epoch, self.epochs)
        for optimizer in (self.optimizer, self.critic):
            for group in optimizer.param_groups if optimizer is not None else ():
                group["lr"] = rate
        every = self.training.every
        hold = every is not None and epoch % every == 0
        self.net.train()
        losses: list[float] = []
        penalty_sum = 0.0
        terms: list[float] = []
        skipped: Counter[Label] = Counter()
        parts = batches(len(self.rows), self.batch_size, self.generator)
        for number, index in enumerate(parts):
            batch = self.rows[index.to(self.rows.x.device)]
            z, prediction = self.net(batch.x)
            loss = self._mean_loss(prediction, batch)
            objective = loss
            if self.fixed_s is not None:
                if hold:
                    self._hold(z, prediction, batch)
                    self.held = {"z": z.detach(), "prediction": prediction.detach(), "rows": index}
                if self.critic is not None:
                    self._ascend(z, prediction, batch)
                value = self._penalty_on(z, prediction, batch)
                objective = torch.add(loss, value.total, alpha=self.lam)
                values = [term.item() for term in value.values]
                penalty_sum += value.total.item()
                terms = [sum(pair) for pair in zip(terms, values, strict=True)] if terms else values
                skipped.update(label for label, _ in value.skipped)
            loss_value = loss.item()
            self._refuse_not_finite(loss_value, objective.item(), epoch, f"step {number}")
            losses.append(loss_value)
            self.optimizer.zero_grad()
            objective.backward()
            if self.training.clip is not None:
                nn.utils.clip_grad_norm_(self.net.parameters(), self.training.clip)
            self.optimizer.step()
            bar.advance()
        n = len(parts)
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.net.parameters()):
            raise TrainingError(
                f"Training stopped in epoch {epoch}: weights are no longer finite, though the loss was. "
                f"Try a smaller learning_rate (now {self.learning_rate:g}) or another penalty."
            )
        self._refuse_runaway(losses, epoch)
        aside: dict[str, Any] = {} if self.validation is None else self._validate(epoch)
        return Record(
            epoch=epoch,
            loss=sum(losses) / n,
            penalty=None if self.fixed_s is None else penalty_sum / n,
            terms=tuple(term / n for term in terms),
            skipped=tuple(sorted(skipped.items())),
            learning_rate=rate,
            seconds=time.perf_counter() - began,
            **aside,
        )

    def _mean_loss(self, prediction: Tensor, batch: Rows) -> Tensor:
        each = self.loss(prediction, batch.y)
        weights = batch.weights if batch.loss_weights is None else batch.loss_weights
        return each.mean() if weights is None else (each * weights).mean()

    def _penalty_on(self, z: Tensor, prediction: Tensor, batch: Rows) -> PenaltyValue:
        assert self.penalty is not None and batch.s is not None  # noqa: S101, PT018
        return self.penalty.evaluate(z, prediction, batch.s, batch.labels, batch.weights)

    def _hold(self, z: Tensor, prediction: Tensor, batch: Rows) -> None:
        """Fix the scales of Z on these rows until told otherwise."""
        assert self.fixed_s is not None and batch.s is not None  # noqa: S101, PT018
        self.penalty = self.fixed_s.calibrate(
            z.detach(), prediction.detach(), batch.s, batch.labels, weights=batch.weights, side="z"
        )

    def _ascend(self, z: Tensor, prediction: Tensor, batch: Rows) -> None:
        assert self.critic is not None  # noqa: S101
        total = self._penalty_on(z.detach(), prediction.detach(), batch).total
        if total.requires_grad:  # not where every level of y was too small
            self.critic.zero_grad()
            total.backward()
            self.critic.step()

    def _refuse_not_finite(self, loss: float, objective: float, epoch: int, where: str) -> None:
        if math.isfinite(objective):
            return
        what = "loss" if not math.isfinite(loss) else "penalty"
        raise self._stopped(epoch, where, f"the {what} is {loss if what == 'loss' else objective:g}")

    def _refuse_runaway(self, losses: list[float], epoch: int) -> None:
        if self.first_loss is None:
            self.first_loss = losses[0]
        typical = statistics.median(losses)
        if typical > _DIVERGED * max(1.0, self.first_loss):
            raise self._stopped(
                epoch, f"step {len(losses) - 1}", f"the loss is {typical:g} and began at {self.first_loss:g}"
            )

    def _tell_skipped(self, record: Record, steps: int) -> None:
        """Say at once when a level of y is too rare for the batches."""
        often = {label: count for label, count in record.skipped if 2 * count > steps}
        if not often or self.fixed_s is None or self.rows.labels is None:
            return
        rows = min(int(torch.eq(self.rows.labels, float(label)).sum()) for label in often)
        enough = math.ceil(2 * MIN_ROWS * len(self.rows) / max(rows, 1))
        says = (
            f"'batch_size' must give every level of y that the penalty is given {MIN_ROWS} rows in most "
            f"batches. Got {self.batch_size}, with which a level of {rows} rows has fewer. "
            f"Use batch_size={min(enough, len(self.rows))} or leave out 'given'."
        )
        if sum(count for _, count in record.skipped) == steps * len(self.fixed_s.terms):
            raise ValueError(says)
        warnings.warn(says, stacklevel=2)

    def _stopped(self, epoch: int, where: str, why: str) -> TrainingError:
        return TrainingError(
            f"Training stopped in epoch {epoch}, {where}: {why}. "
            f"Try a smaller learning_rate (now {self.learning_rate:g}), training=Training(clip=1.0)"
            + (f" or a smaller lam (now {self.lam:g})." if self.fixed_s is not None else ".")
        )

    @torch.no_grad()
    def _validate(self, epoch: int) -> dict[str, Any]:
        """Return loss and penalty on the rows set aside, and keep the weights if they are the best so far."""
        assert self.validation is not None  # noqa: S101
        self.net.eval()
        loss = penalty = 0.0
        skipped: Counter[Label] = Counter()
        parts = batches(len(self.validation), self.batch_size, None)
        for index in parts:
            batch = self.validation[index.to(self.validation.x.device)]
            z, prediction = self.net(batch.x)
            share = len(index) / len(self.validation)
            loss += share * self._mean_loss(prediction, batch).item()
            if self.fixed_s is not None:
                value = self._penalty_on(z, prediction, batch)
                penalty += share * value.total.item()
                skipped.update(label for label, _ in value.skipped)
        if self.fixed_s is not None and skipped.total() == len(parts) * len(self.fixed_s.terms):
            raise ValueError(
                "'validation' must have enough rows of the levels of y that the penalty is given. Got too "
                "few of each, so that early stopping would not see it. Set more rows aside, or do not stop "
                "early."
            )
        objective = loss + self.lam * penalty
        self._refuse_not_finite(loss, objective, epoch, "on the rows set aside")
        if self.best is None or objective < self.best[1]:
            weights = {name: value.clone() for name, value in self.net.state_dict().items()}
            self.best = epoch, objective, weights
        return {
            "validation_loss": loss,
            "validation_penalty": None if self.fixed_s is None else penalty,
            "validation_skipped": tuple(sorted(skipped.items())),
        }

    def _stale(self) -> bool:
        return self.best is not None and len(self.history) - 1 - self.best[0] >= self.training.patience

    def _fingerprint(self, penalty: Penalty | PenaltySum | None) -> dict[str, Any]:
        """Return all that must be the same for a checkpoint to be of this run."""
        training = dataclasses.asdict(self.training)
        del training["checkpoint"], training["checkpoint_every"]
        rows = [part for part in (self.rows, self.validation) if part is not None]
        data = [
            tensor
            for part in rows
            for tensor in (part.x, part.y, part.weights, part.loss_weights, part.labels)
            if tensor is not None
        ] + [part.s.values for part in rows if part.s is not None]
        return {
            "lam": self.lam,
            "penalty": repr(penalty) if self.lam else None,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "training": training,
            "loss": getattr(self.loss, "__name__", repr(self.loss)),
            "data": checkpoint.digest(data),
            "columns": None if self.rows.s is None else [*self.rows.s.names, *self.rows.s.kinds],
            "net": repr(self.net),
            "initial weights": checkpoint.digest(self.net.state_dict().values()),
            "random_state": checkpoint.digest([self.generator.get_state()]),
            "torch": torch.__version__,
            "device": str(self.rows.x.device),
        }

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that changes, at the end of an epoch."""
        tensors = {f"net.{name}": value for name, value in self.net.state_dict().items()}
        if self.fixed_s is not None:
            tensors |= {f"penalty.{name}": value for name, value in self.fixed_s.state_dict().items()}
        for title, optimizer in (("optimizer", self.optimizer), ("critic", self.critic)):
            states = optimizer.state_dict()["state"] if optimizer is not None else {}
            for number, state in states.items():
                tensors |= {f"{title}.{number}.{name}": value for name, value in state.items()}
        tensors |= {f"held.{name}": value for name, value in self.held.items()}
        tensors |= {"random.batches": self.generator.get_state(), "random.modules": torch.get_rng_state()}
        if self.rows.x.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.rows.x.device)
        best = None
        if self.best is not None:
            best = [self.best[0], self.best[1]]
            tensors |= {f"best.{name}": value for name, value in self.best[2].items()}
        history = [record.to_dict() for record in self.history]
        return tensors, {"history": history, "best": best, "first_loss": self.first_loss}

    def _restore(self) -> int:
        """Go back to the checkpoint, if there is one, and return the epoch to go on with."""
        assert self.file is not None  # noqa: S101
        found = self.file.read()
        if found is None:
            return 0
        try:
            return self._go_back(*found)
        except (KeyError, IndexError, TypeError, RuntimeError, ValueError) as error:
            raise TensorFileError(
                "'checkpoint' must hold the state of this run. Got a file that was changed "
                f"({type(error).__name__}). Remove it to begin anew."
            ) from error

    def _go_back(self, tensors: dict[str, Tensor], document: dict[str, Any]) -> int:
        grouped: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            group, _, rest = name.partition(".")
            grouped.setdefault(group, {})[rest] = value
        self.net.load_state_dict(grouped["net"])
        if self.fixed_s is not None and "penalty" in grouped:
            self.fixed_s.load_state_dict(grouped["penalty"])
        for title, optimizer in (("optimizer", self.optimizer), ("critic", self.critic)):
            if optimizer is None:
                continue
            state = optimizer.state_dict()
            for name, value in grouped.get(title, {}).items():
                number, _, key = name.partition(".")
                state["state"].setdefault(int(number), {})[key] = value
            optimizer.load_state_dict(state)
        if "held" in grouped:
            device = self.rows.x.device
            self.held = {name: value.to(device) for name, value in grouped["held"].items()}
            self._hold(self.held["z"], self.held["prediction"], self.rows[self.held["rows"]])
        self.generator.set_state(grouped["random"]["batches"])
        torch.set_rng_state(grouped["random"]["modules"])
        if self.rows.x.device.type == "cuda":
            torch.cuda.set_rng_state(grouped["random"]["cuda"], self.rows.x.device)
        self.history = [
            Record(**{**record, **{name: _tuples(record[name]) for name in _TUPLES}})
            for record in document["history"]
        ]
        if document["best"] is not None:
            epoch, objective = document["best"]
            self.best = epoch, objective, grouped["best"]
        self.first_loss = document["first_loss"]
        return len(self.history)


def _tuples(found: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(entry) if isinstance(entry, list) else entry for entry in found)


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(
            f"'{name}' must be one of {list(known)}. Got {value!r}. Leave it out for {known[0]!r}."
        )
