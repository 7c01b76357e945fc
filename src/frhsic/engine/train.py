"""Training: minibatches, a loss, a penalty times its strength, and a history of what happened."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import math
import numbers
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from frhsic._progress import Progress
from frhsic._tensorfile import TensorFileError
from frhsic.data import Label, Sensitive
from frhsic.engine import checkpoint
from frhsic.engine.budget import FEASIBLE, Multipliers
from frhsic.engine.nets import Loss, Net, Stack
from frhsic.penalty import MIN_ROWS, Penalty, PenaltySum, PenaltyValue

# When the median loss of the batches of an epoch is this many times the first one (or one, if that is
# larger), it will not come back. One batch alone may hold an outlier.
_DIVERGED = 1e3
_TUPLES = ("terms", "skipped", "validation_skipped")
_MEASURED = 8_192  # rows on which the dependence is measured after every epoch, or more if they are cheap
MIN_BATCH = 4  # the fewest rows for which every measure is defined


_log = logging.getLogger(__name__)


class TrainingError(RuntimeError):
    """Training stopped because the loss left the numbers, or ran away."""


@dataclass(frozen=True)
class Training:
    """How to train, beyond what the estimators ask for.

    Parameters
    ----------
    schedule : {"auto", "constant", "cosine"}, default="auto"
        The learning rate over the epochs; "cosine" falls to zero. "auto" is constant for a given strength, as
        published, and cosine for a budget, which is met more closely the less the last epochs move.
    clip : float, optional
        The largest norm of the gradient; larger ones are scaled down.
    validation_fraction : float, default=0.1
        The part of the rows set aside for early stopping.
    patience : int, default=10
        Epochs without improvement on the rows set aside before training stops early.
    every : int, optional
        When rules for the scale of Z (``"median"``) are resolved: None at every step; 20, as published, at
        every step of each epoch divisible by 20, and then held.
    last_batch : {"merge", "keep"}, default="merge"
        What becomes of the rows that an epoch leaves over, where they are less than half a batch: they join
        the batch before them, or are one of their own, as published, on which a penalty is mostly noise.
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
    >>> Training(every=20, last_batch="keep", scaling="minmax").rate(0, 200)  # as published
    1.0
    """

    schedule: Literal["auto", "constant", "cosine"] = "auto"
    clip: float | None = None
    validation_fraction: float = 0.1
    patience: int = 10
    every: int | None = None
    last_batch: Literal["merge", "keep"] = "merge"
    scaling: Literal["standard", "minmax", "none"] = "standard"
    checkpoint: str | Path | None = None
    checkpoint_every: int = 1

    def __post_init__(self) -> None:
        _one_of("schedule", self.schedule, ("auto", "constant", "cosine"))
        _one_of("last_batch", self.last_batch, ("merge", "keep"))
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

    def rate(self, epoch: int, epochs: int, *, budget: bool = False) -> float:
        """Return the factor of the learning rate in an epoch, counted from 0."""
        constant = self.schedule == "constant" or (self.schedule == "auto" and not budget)
        return 1.0 if constant else 0.5 * (1.0 + math.cos(math.pi * epoch / epochs))


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

    ``terms`` are the values of the terms of the penalty before their factors. With a budget, ``penalty`` is
    the debiased, scale-free dependence, ``relative`` its ratio to that of the unconstrained model in the same
    epoch, and ``multiplier`` the weight of the constraint from then on.
    """

    epoch: int
    loss: float
    penalty: float | None
    terms: tuple[float, ...]
    skipped: tuple[tuple[Label, int], ...]
    learning_rate: float
    seconds: float | None  # None in a model that was loaded
    validation_loss: float | None = None
    validation_penalty: float | None = None
    validation_skipped: tuple[tuple[Label, int], ...] = ()
    relative: float | None = None
    multiplier: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, eq=False)
class Trained:
    """What training gives back: the net, the epochs, the penalty with its scales, the epoch kept.

    With a budget, ``relative`` is the dependence of the net over that of the unconstrained one, both as they
    are given back (after early stopping each of its own best epoch) and on all rows trained on.
    """

    net: Net
    history: tuple[Record, ...]
    penalty: PenaltySum | None
    best_epoch: int
    relative: float | None = None


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
    return run_all(
        net,
        loss,
        rows,
        lams=[lam],
        penalty=penalty,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        training=training,
        generator=generator,
        validation=validation,
    )[0]


def run_all(
    net: Net | Stack,
    loss: Loss,
    rows: Rows,
    *,
    lams: Sequence[float] | None = None,
    budgets: Sequence[float] | None = None,
    penalty: Penalty | PenaltySum | None,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    training: Training | None,
    generator: torch.Generator,
    validation: Rows | None,
) -> list[Trained]:
    """Train a net, or a stack of them with a strength each; see :func:`train` and ``train_path``."""
    strongest = max(lams) if lams is not None else 1.0
    if strongest > 0 and penalty is None:
        raise ValueError(f"'penalty' must be passed for lam = {strongest:g}. Got None. Pass one, or lam=0.")
    with own_randomness(generator, rows.x.device):
        run = _Run(
            net,
            loss,
            rows,
            lams,
            budgets,
            penalty if strongest > 0 else None,
            epochs,
            batch_size,
            learning_rate,
            training or Training(),
            generator,
            validation,
        )
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        return run.run()


class Passes:
    """Training in parts: each call is one pass over other rows, and net, optimizer and scales stay.

    For rows that do not fit in memory, or keep coming.

    Parameters
    ----------
    net, loss, lam, penalty, batch_size, learning_rate, training, generator
        As for :func:`train`, at a constant learning rate and without a checkpoint.
    rows : Rows
        The scales of S are fixed on these; they are not trained on, nor kept.

    Examples
    --------
    >>> from frhsic.engine.nets import make_net, squared_error
    >>> g = torch.Generator().manual_seed(0)
    >>> x = torch.randn(100, 2, generator=g)
    >>> passes = Passes(make_net(2, 1, generator=g), squared_error, Rows(x, x[:, 0]), generator=g)
    >>> [passes.over(Rows(part, part[:, 0])).epoch for part in x.split(50)]
    [0, 1]
    """

    def __init__(
        self,
        net: Net,
        loss: Loss,
        rows: Rows,
        *,
        lam: float = 0.0,
        penalty: Penalty | PenaltySum | None = None,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        training: Training | None = None,
        generator: torch.Generator,
    ) -> None:
        training = training or Training()
        if training.schedule == "cosine" or training.checkpoint is not None:
            raise ValueError(
                "'training' must have a constant rate and no checkpoint where rows come in parts, whose end "
                f"is not known. Got {training!r}. Leave out 'schedule' and 'checkpoint'; save the model."
            )
        with own_randomness(generator, rows.x.device):
            self._run = _Run(
                net,
                loss,
                rows,
                [lam],
                None,
                penalty if lam > 0 else None,
                1,
                batch_size,
                learning_rate,
                training,
                generator,
                None,
            )
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
        return self._run.penalty

    def over(self, rows: Rows) -> Record:
        """Train on these rows once, in minibatches, and return what happened."""
        run = self._run
        run.rows = rows
        steps = len(run._batches(None))
        with own_randomness(run.generator, rows.x.device), Progress("training", steps) as bar:
            torch.manual_seed(int(torch.randint(2**62, (1,), generator=run.generator)))
            record = run._epoch(self._count, bar)[0]
        if self._count == 0:
            run._tell_skipped(record, steps)
        run.rows = rows[torch.arange(0)]
        run.net.eval()
        self._count += 1
        return record


@contextlib.contextmanager
def own_randomness(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Let the caller's modules draw from a seed of the generator, and leave the global state as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(generator.initial_seed() % 2**63)
        yield


def batches(
    n: int, batch_size: int, generator: torch.Generator | None, *, last: Literal["merge", "keep"] = "merge"
) -> list[Tensor]:
    """Return the rows of each batch in random order (in order without a generator), none much too short.

    Examples
    --------
    >>> [len(batch) for batch in batches(1_000, 256, None)], [len(batch) for batch in batches(800, 256, None)]
    ([256, 256, 256, 232], [256, 256, 288])
    >>> [len(batch) for batch in batches(800, 256, None, last="keep")]
    [256, 256, 256, 32]
    """
    least = MIN_BATCH if last == "keep" else max(MIN_BATCH, batch_size / 2)
    order = torch.arange(n) if generator is None else torch.randperm(n, generator=generator)
    parts = list(order.split(batch_size))
    if len(parts) > 1 and len(parts[-1]) < min(least, batch_size):
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


class _Run:
    """One training, epoch by epoch, of a net or of a stack of nets that share their batches.

    Values of a step have the shape of the stack, ``()`` for a net; lists have one entry for each net.
    """

    def __init__(
        self,
        net: Net | Stack,
        loss: Loss,
        rows: Rows,
        lams: Sequence[float] | None,
        budgets: Sequence[float] | None,
        penalty: Penalty | PenaltySum | None,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        training: Training,
        generator: torch.Generator,
        validation: Rows | None,
    ) -> None:
        self.net, self.loss, self.rows = net, loss, rows
        self.lams, self.budgets, self.epochs, self.batch_size = lams, budgets, epochs, batch_size
        self.learning_rate, self.training, self.generator = learning_rate, training, generator
        self.validation = validation
        self.count = len(lams) if lams is not None else len(budgets or ()) + 1
        self.histories: list[list[Record]] = [[] for _ in range(self.count)]
        self.best: list[_Best | None] = [None] * self.count
        self.first_losses: list[float] | None = None
        self.held: dict[str, Tensor] = {}  # what the scales of Z were last fixed on, for the checkpoint
        self.optimizer = torch.optim.Adam(net.parameters(), lr=learning_rate)
        # Drawn whether or not there is a penalty, so that every strength sees the same batches.
        child = torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        self.fixed_s = self._fixed_s(penalty, child)  # scales of S are numbers, those of Z still rules
        self.penalty = self.fixed_s
        critics = [] if self.fixed_s is None else list(self.fixed_s.parameters())
        self.critic = torch.optim.Adam(critics, lr=learning_rate, maximize=True) if critics else None
        self.multipliers = None
        self.lam: float | Tensor = 0.0
        if budgets is not None:
            steps = len(self._batches(None))
            self.multipliers = Multipliers(budgets, steps, epochs, like=rows.x)
            self.block = self._block()
            order = torch.randperm(len(rows), generator=child)[: max(_MEASURED, self.block)]
            self.judged = [order[part] for part in batches(len(order), self.block, None)]
        elif lams is not None:
            self.lam = lams[0] if isinstance(net, Net) else torch.tensor(lams).to(rows.x)
        self.file = None
        if training.checkpoint is not None:
            self.file = checkpoint.Checkpoint(Path(training.checkpoint), self._fingerprint(penalty))

    def _batches(self, generator: torch.Generator | None) -> list[Tensor]:
        return batches(len(self.rows), self.batch_size, generator, last=self.training.last_batch)

    def _fixed_s(self, penalty: Penalty | PenaltySum | None, generator: torch.Generator) -> PenaltySum | None:
        if penalty is None:
            return None
        if self.rows.s is None:
            raise ValueError(
                "'rows' must have sensitive columns for a penalty of positive strength. Got none. Pass them."
            )
        z, prediction = self._encoded(self.rows)
        labels, weights = self.rows.labels, self.rows.weights
        return penalty.calibrate(z, prediction, self.rows.s, labels, generator, weights=weights, side="s")

    @torch.no_grad()
    def _encoded(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return z and the prediction for all rows, in pieces."""
        self.net.eval()
        pieces = [self.net(x) for x in rows.x.split(65_536)]
        return torch.cat([z for z, _ in pieces], dim=-2), torch.cat([f for _, f in pieces], dim=-2)

    def run(self) -> list[Trained]:
        """Train to the end, and return the nets, with the best weights where rows were set aside."""
        start = 0 if self.file is None else self._restore()
        steps = len(self._batches(None))
        with Progress("training", self.epochs * steps) as bar:
            bar.advance(start * steps)
            for epoch in range(start, self.epochs):
                stale = [self._stale(k) for k in range(self.count)]
                if all(stale):
                    break
                records = self._epoch(epoch, bar)
                if epoch == 0:
                    self._tell_skipped(records[0], steps)
                for k, record in enumerate(records):
                    if not stale[k]:
                        self.histories[k].append(record)
                        _log.info("epoch %d: loss %.4g, penalty %s", epoch, record.loss, record.penalty)
                last = epoch == self.epochs - 1
                if self.file is not None and not last and (epoch + 1) % self.training.checkpoint_every == 0:
                    self.file.write(*self._state())
        if self.file is not None:
            self.file.remove()
        return self._finished()

    def _finished(self) -> list[Trained]:
        nets = [self.net] if isinstance(self.net, Net) else self.net.nets()
        epochs = [len(history) - 1 for history in self.histories]
        for k, best in enumerate(self.best):
            if best is not None:
                nets[k].load_state_dict(best.weights)
                epochs[k] = best.epoch
        self.net.eval()
        for net in nets:
            net.eval()
        ratios: Sequence[float | None] = [None] * self.count
        if self.budgets is not None:
            blocks = batches(len(self.rows), self.block, torch.Generator().manual_seed(0))
            ratios = _ratios(self._dependence(Stack(nets).eval(), blocks))
        return [
            Trained(net, tuple(self.histories[k]), self._penalty_of(k), epochs[k], ratios[k])
            for k, net in enumerate(nets)
        ]

    def _penalty_of(self, k: int) -> PenaltySum | None:
        """Return the penalty with the scales and the layers of one net of the stack."""
        if self.fixed_s is None or isinstance(self.net, Net):
            return self.penalty
        own = copy.deepcopy(self.fixed_s)
        for parameter in own.parameters():
            parameter.data = parameter.data[k]
        if not self.held:
            return own
        z, prediction = (self.held[name][k] for name in ("z", "prediction"))
        rows = self.rows[self.held["rows"].to(self.rows.x.device)]
        assert rows.s is not None  # noqa: S101
        free = self.budgets is not None
        return own.calibrate(
            z, prediction, rows.s, rows.labels, weights=rows.weights, side="z", scale_free=free
        )

    def _epoch(self, epoch: int, bar: Progress) -> list[Record]:
        began = time.perf_counter()
        rate = self.learning_rate * self.training.rate(epoch, self.epochs, budget=self.budgets is not None)
        for optimizer in (self.optimizer, self.critic):
            for group in optimizer.param_groups if optimizer is not None else ():
                group["lr"] = rate
        every = self.training.every
        hold = every is not None and epoch % every == 0
        self.net.train()
        losses: list[list[float]] = []
        totals: list[list[float]] = []
        terms: list[list[list[float]]] = []
        skipped: Counter[Label] = Counter()
        parts = self._batches(self.generator)
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
                if self.multipliers is not None:
                    objective = torch.addcmul(loss, self.multipliers.factors, value.total)
                elif isinstance(self.lam, Tensor):
                    objective = torch.addcmul(loss, self.lam, value.total)
                else:
                    objective = torch.add(loss, value.total, alpha=self.lam)
                totals.append(_listed(value.total))
                terms.append([_listed(term) for term in value.values])
                skipped.update(label for label, _ in value.skipped)
            losses.append(_listed(loss))
            self._refuse_not_finite(losses[-1], _listed(objective), epoch, f"step {number}")
            self.optimizer.zero_grad()
            objective.sum().backward()
            self._clip()
            self.optimizer.step()
            bar.advance()
        self._refuse_weights_not_finite(epoch)
        self._refuse_runaway(losses, epoch)
        n = len(parts)
        mean_total = [_mean(totals, k) if totals else None for k in range(self.count)]
        relative, weight = self._measured()
        aside = self._validate(epoch, relative) if self.validation is not None else [{}] * self.count
        return [
            Record(
                epoch=epoch,
                loss=_mean(losses, k),
                penalty=mean_total[k],
                terms=tuple(
                    sum(step[j][k] for step in terms) / n for j in range(len(terms[0]) if terms else 0)
                ),
                skipped=tuple(sorted(skipped.items())),
                learning_rate=rate,
                seconds=time.perf_counter() - began,
                relative=relative[k],
                multiplier=weight[k],
                **aside[k],
            )
            for k in range(self.count)
        ]

    def _block(self) -> int:
        """Return the rows on which the dependence is measured at once."""
        assert self.fixed_s is not None  # noqa: S101
        z, prediction = self._encoded(self.rows[torch.arange(1)])
        assert self.rows.s is not None  # noqa: S101
        cheap = []
        for _, term in self.fixed_s.pairs:
            s = self.rows.s if term.columns is None else self.rows.s.columns(term.columns[0])
            width = (z if term.on == "representation" else prediction).shape[-1]
            cheap.append(term.dependence.cheap_rows(width, s.kinds))
        return min(cheap)

    @torch.no_grad()
    def _measured(self) -> tuple[list[float | None], list[float | None]]:
        """Measure every net, move the multipliers, and return both, with a budget."""
        if self.multipliers is None:
            return [None] * self.count, [None] * self.count
        self.net.eval()
        value = self._dependence(self.net, self.judged)
        self.multipliers.update(value)
        return _ratios(value), [*self.multipliers.values]

    @torch.no_grad()
    def _dependence(self, net: nn.Module, parts: Sequence[Tensor]) -> Tensor:
        """Return the dependence of each net of a stack on rows in blocks, always with the same pairings."""
        total: Any = 0.0
        fixed = torch.Generator().manual_seed(0)
        for index in parts:
            batch = self.rows[index.to(self.rows.x.device)]
            z, prediction = net(batch.x)
            total = total + self._penalty_on(z, prediction, batch, fixed).total.double() * len(index)
        return total / sum(map(len, parts))

    def _clip(self) -> None:
        most = self.training.clip
        if most is None:
            return
        if isinstance(self.net, Net):
            nn.utils.clip_grad_norm_(self.net.parameters(), most)
            return
        for gradients in self.net.gradients():
            norm = nn.utils.get_total_norm(gradients)
            for gradient in gradients:
                gradient.mul_((most / (norm + 1e-6)).clamp_max(1.0))

    def _mean_loss(self, prediction: Tensor, batch: Rows) -> Tensor:
        each = self.loss(prediction, batch.y)
        weights = batch.weights if batch.loss_weights is None else batch.loss_weights
        return each.mean(dim=-1) if weights is None else (each * weights).mean(dim=-1)

    def _penalty_on(
        self, z: Tensor, prediction: Tensor, batch: Rows, generator: torch.Generator | None = None
    ) -> PenaltyValue:
        assert self.penalty is not None and batch.s is not None  # noqa: S101, PT018
        if self.budgets is not None:
            generator = self.generator if generator is None else generator
            return self.penalty.excess(z, prediction, batch.s, batch.labels, batch.weights, generator)
        return self.penalty.evaluate(z, prediction, batch.s, batch.labels, batch.weights)

    def _hold(self, z: Tensor, prediction: Tensor, batch: Rows) -> None:
        """Fix the scales of Z on these rows until told otherwise."""
        assert self.fixed_s is not None and batch.s is not None  # noqa: S101, PT018
        self.penalty = self.fixed_s.calibrate(
            z.detach(),
            prediction.detach(),
            batch.s,
            batch.labels,
            weights=batch.weights,
            side="z",
            scale_free=self.budgets is not None,
        )

    def _ascend(self, z: Tensor, prediction: Tensor, batch: Rows) -> None:
        assert self.critic is not None  # noqa: S101
        total = self._penalty_on(z.detach(), prediction.detach(), batch).total
        if total.requires_grad:  # not where every level of y was too small
            self.critic.zero_grad()
            total.sum().backward()
            self.critic.step()

    def _refuse_not_finite(
        self, losses: list[float], objectives: list[float], epoch: int, where: str
    ) -> None:
        for k, (loss, objective) in enumerate(zip(losses, objectives, strict=True)):
            if math.isfinite(objective):
                continue
            what = "loss" if not math.isfinite(loss) else "penalty"
            raise self._stopped(epoch, where, f"the {what} is {loss if what == 'loss' else objective:g}", k)

    def _refuse_weights_not_finite(self, epoch: int) -> None:
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.net.parameters()):
            raise TrainingError(
                f"Training stopped in epoch {epoch}: weights are no longer finite, though the loss was. "
                f"Try a smaller learning_rate (now {self.learning_rate:g}) or another penalty."
            )

    def _refuse_runaway(self, losses: list[list[float]], epoch: int) -> None:
        if self.first_losses is None:
            self.first_losses = losses[0]
        for k, first in enumerate(self.first_losses):
            typical = statistics.median(step[k] for step in losses)
            if typical > _DIVERGED * max(1.0, first):
                raise self._stopped(
                    epoch, f"step {len(losses) - 1}", f"the loss is {typical:g} and began at {first:g}", k
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
            if rows < MIN_ROWS:  # no batch could have them
                says = (
                    f"'y' must have {MIN_ROWS} rows of every level that the penalty is given. Got a level of "
                    f"{rows} rows. Pass more rows, or leave out 'given'."
                )
            raise ValueError(says)
        warnings.warn(says, stacklevel=2)

    def _stopped(self, epoch: int, where: str, why: str, k: int) -> TrainingError:
        cure = "."
        if self.budgets is not None and k > 0:
            cure = f" or a larger budget (now {self.budgets[k - 1]:g})."
        elif self.lams is not None and self.lams[k] > 0:
            cure = f" or a smaller lam (now {self.lams[k]:g})."
        return TrainingError(
            f"Training stopped in epoch {epoch}, {where}: {why}. "
            f"Try a smaller learning_rate (now {self.learning_rate:g}), training=Training(clip=1.0){cure}"
        )

    @torch.no_grad()
    def _validate(self, epoch: int, relative: list[float | None]) -> list[dict[str, Any]]:
        """Return loss and penalty on the rows set aside, and keep the weights that are the best so far."""
        assert self.validation is not None  # noqa: S101
        self.net.eval()
        losses, penalties = [0.0] * self.count, [0.0] * self.count
        skipped: Counter[Label] = Counter()
        parts = batches(len(self.validation), self.batch_size, None)
        for index in parts:
            batch = self.validation[index.to(self.validation.x.device)]
            z, prediction = self.net(batch.x)
            share = len(index) / len(self.validation)
            for k, loss in enumerate(_listed(self._mean_loss(prediction, batch))):
                losses[k] += share * loss
            if self.fixed_s is not None:
                value = self._penalty_on(z, prediction, batch)
                for k, penalty in enumerate(_listed(value.total)):
                    penalties[k] += share * penalty
                skipped.update(label for label, _ in value.skipped)
        if self.fixed_s is not None and skipped.total() == len(parts) * len(self.fixed_s.terms):
            raise ValueError(
                "'validation' must have enough rows of the levels of y that the penalty is given. Got too "
                "few of each, so that early stopping would not see it. Set more rows aside, or do not stop "
                "early."
            )
        strengths = self.lams or [0.0] * self.count  # with a budget the loss alone
        objectives = [loss + lam * d for loss, lam, d in zip(losses, strengths, penalties, strict=True)]
        self._refuse_not_finite(losses, objectives, epoch, "on the rows set aside")
        stale = [self._stale(k) for k in range(self.count)]
        nets: list[Net] = []
        for k, objective in enumerate(objectives):
            rank = self._rank(k, objective, relative[k])
            best = self.best[k]
            if not stale[k] and (best is None or rank < best.rank):
                nets = [self.net] if isinstance(self.net, Net) else nets or self.net.nets()
                weights = {name: value.clone() for name, value in nets[k].state_dict().items()}
                self.best[k] = _Best(epoch, rank, weights)
        return [
            {
                "validation_loss": losses[k],
                "validation_penalty": None if self.fixed_s is None else penalties[k],
                "validation_skipped": tuple(sorted(skipped.items())),
            }
            for k in range(self.count)
        ]

    def _rank(self, k: int, objective: float, relative: float | None) -> tuple[int, float]:
        """Return what early stopping minimises: within the budget the objective, before that the excess."""
        if self.budgets is None or k == 0 or relative is None:
            return 0, objective
        return (0, objective) if relative <= FEASIBLE * self.budgets[k - 1] else (1, relative)

    def _stale(self, k: int) -> bool:
        best = self.best[k]
        if best is None or best.rank[0] > 0:
            return False
        return len(self.histories[k]) - 1 - best.epoch >= self.training.patience

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
            "lam": None if self.lams is None else list(self.lams),
            "budget": None if self.budgets is None else list(self.budgets),
            "penalty": None if penalty is None else repr(penalty),
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
        if self.multipliers is not None:
            tensors |= {f"multipliers.{name}": value for name, value in self.multipliers.state().items()}
        best = []
        for k, found in enumerate(self.best):
            best.append(None if found is None else [found.epoch, *found.rank])
            if found is not None:
                tensors |= {f"best.{k}.{name}": value for name, value in found.weights.items()}
        histories = [[record.to_dict() for record in history] for history in self.histories]
        return tensors, {"histories": histories, "best": best, "first_losses": self.first_losses}

    def _restore(self) -> int:
        """Go back to the checkpoint, if there is one, and return the epoch to go on with."""
        assert self.file is not None  # noqa: S101
        found = self.file.read()
        if found is None:
            return 0
        try:
            return self._go_back(*found)
        except (KeyError, IndexError, TypeError, RuntimeError, ValueError) as error:
            got = f"a file that was changed ({type(error).__name__})"
            raise TensorFileError(
                "checkpoint", "hold the state of this run", got, "Remove it to begin anew."
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
        if self.multipliers is not None:
            self.multipliers.restore(grouped["multipliers"])
        self.histories = [
            [Record(**{**record, **{name: _tuples(record[name]) for name in _TUPLES}}) for record in history]
            for history in document["histories"]
        ]
        for k, found in enumerate(document["best"]):
            if found is not None:
                own = {
                    name.partition(".")[2]: value
                    for name, value in grouped["best"].items()
                    if name.partition(".")[0] == str(k)
                }
                self.best[k] = _Best(found[0], (found[1], found[2]), own)
        self.first_losses = document["first_losses"]
        return max(map(len, self.histories))


@dataclass(frozen=True, eq=False)
class _Best:
    """The epoch that early stopping would give back, its rank (the smallest is the best) and its weights."""

    epoch: int
    rank: tuple[int, float]
    weights: dict[str, Tensor]


def _listed(values: Tensor) -> list[float]:
    """Return the numbers of a step, one for each net."""
    return [values.item()] if values.ndim == 0 else values.tolist()


def _ratios(dependence: Tensor) -> list[float | None]:
    """Return the dependence of each net over that of the first; None where that one has none."""
    if not bool(dependence[0] > 0):
        return [None] * len(dependence)
    return [float(value / dependence[0]) for value in dependence]


def _mean(steps: list[list[float]], k: int) -> float:
    return sum(step[k] for step in steps) / len(steps)


def _tuples(found: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(entry) if isinstance(entry, list) else entry for entry in found)


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(
            f"'{name}' must be one of {list(known)}. Got {value!r}. Leave it out for {known[0]!r}."
        )
