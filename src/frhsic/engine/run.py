"""The training loop, of a net or of a stack of nets that share their batches."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from frhsic._progress import Progress
from frhsic.data import Label
from frhsic.engine import checkpoint
from frhsic.engine.guards import Guards, check_labels
from frhsic.engine.limits import Reached
from frhsic.engine.meter import scores_of
from frhsic.engine.nets import Loss, Net, Stack
from frhsic.engine.objective import Measured, Objective
from frhsic.engine.options import Options
from frhsic.engine.record import Record, Trained
from frhsic.engine.rows import Rows, make_batches
from frhsic.engine.stopping import EarlyStopping, to_list

_log = logging.getLogger(__name__)


class Run:
    """One training, epoch by epoch.

    Values of a step have the shape of the stack, ``()`` for a net; lists have one entry for each net.
    """

    def __init__(
        self,
        net: Net | Stack,
        loss: Loss,
        rows: Rows,
        options: Options,
        generator: torch.Generator,
        validation: Rows | None = None,
    ) -> None:
        self.net, self.rows, self.options, self.generator = net, rows, options, generator
        self.count = len(options.weights)
        self.histories: list[list[Record]] = [[] for _ in range(self.count)]
        self.optimizer = torch.optim.Adam(net.parameters(), lr=options.learning_rate)
        with own_randomness(generator, rows.x.device):
            self.objective = Objective(net, loss, rows, options, generator)
        self.guards = Guards(options)
        self.stopping = None
        if validation is not None:
            self.stopping = EarlyStopping(validation, options, self.objective, self.guards)
        self.file = None
        if options.training.checkpoint is not None:
            path = Path(options.training.checkpoint)
            self.file = checkpoint.Checkpoint(path, checkpoint.fingerprint(self))

    def make_batches(self, generator: torch.Generator | None) -> list[Tensor]:
        """Return the rows of each batch of an epoch."""
        options = self.options
        return make_batches(len(self.rows), options.batch_size, generator, last=options.training.last_batch)

    def run(self) -> list[Trained]:
        """Train to the end, and return the nets, with the best weights if there are held-out rows."""
        epochs, steps = self.options.epochs, len(self.make_batches(None))
        own = own_randomness(self.generator, self.rows.x.device, draw=True)
        with own, Progress("training", epochs * steps) as bar:
            start = 0 if self.file is None else checkpoint.restore(self, self.file)
            bar.advance(start * steps)
            for epoch in range(start, epochs):
                active = [not self._is_over(k) for k in range(self.count)]
                if not any(active):
                    break
                records = self.train_epoch(epoch, bar)
                if epoch == 0:
                    check_labels(records[0], self.rows, self.options.batch_size, steps)
                for k, record in enumerate(records):
                    if active[k]:
                        self.histories[k].append(record)
                        _log.info("epoch %d: loss %.4g, penalty %s", epoch, record.loss, record.penalty)
                due = (epoch + 1) % self.options.training.checkpoint_every == 0
                if self.file is not None and due and epoch < epochs - 1:
                    self.file.write(*checkpoint.capture(self))
            if self.file is not None:
                self.file.path.unlink(missing_ok=True)
            return self._finish()

    def _is_over(self, k: int) -> bool:
        return self.stopping is not None and self.stopping.is_over(k, len(self.histories[k]))

    def _finish(self) -> list[Trained]:
        nets = self.net.nets()
        epochs = [len(history) - 1 for history in self.histories]
        for k, best in enumerate(() if self.stopping is None else self.stopping.best):
            if best is not None:
                nets[k].load_state_dict(best.weights)
                epochs[k] = best.epoch
        for net in (self.net, *nets):
            net.eval()
        ratios: Sequence[float | None] = [None] * self.count
        if self.options.budgets is not None:
            ratios = self.objective.measure_relative(nets, self.rows)
        penalties = [self.objective.penalty_of(k, self.net, self.rows) for k in range(self.count)]
        histories = map(tuple, self.histories)
        reached: Sequence[tuple[Reached, ...]] = [()] * self.count
        if self.objective.meter is not None:
            meter = self.objective.meter
            reached = meter.report(scores_of(Stack(nets), meter.limits.score), self.rows)
        return list(map(Trained, nets, histories, penalties, epochs, ratios, reached))

    def train_epoch(self, epoch: int, bar: Progress) -> list[Record]:
        """Train on every batch once, and return a record for each net."""
        began = time.perf_counter()
        rate = self.options.rate(epoch)
        for optimizer in (self.optimizer, self.objective.critic):
            for group in optimizer.param_groups if optimizer is not None else ():
                group["lr"] = rate
        every = self.options.training.every
        hold = every is not None and epoch % every == 0
        self.net.train()
        sums = _Sums()
        batches = self.make_batches(self.generator)
        for number, index in enumerate(batches):
            due = (epoch * len(batches) + number) % self.options.training.penalty_every == 0
            objective = self._evaluate(index, sums, hold=hold, due=due)
            self.guards.check_finite(sums.losses[-1], to_list(objective), epoch, f"step {number}")
            self.optimizer.zero_grad()
            objective.sum().backward()
            self._clip()
            self.optimizer.step()
            bar.advance()
        self.guards.check_weights(self.net, epoch)
        self.guards.check_runaway(sums.losses, epoch)
        none: list[float | None] = [None] * self.count
        measured = Measured(none, none, none)
        if self.objective.multipliers is not None:
            measured = self.objective.update_multipliers(self.net, self.rows)
        held_out: list[dict[str, Any]] = [{}] * self.count
        if self.stopping is not None:
            active = [not self._is_over(k) for k in range(self.count)]
            held_out = self.stopping.validate(self.net, epoch, measured.of_limit, active)
        return [
            Record(
                epoch=epoch,
                **sums.means(k),
                skipped=tuple(sorted(sums.skipped.items())),
                learning_rate=rate,
                seconds=time.perf_counter() - began,
                relative=measured.relative[k],
                of_limit=measured.of_limit[k],
                multiplier=measured.multipliers[k],
                **held_out[k],
            )
            for k in range(self.count)
        ]

    def _evaluate(self, index: Tensor, sums: _Sums, *, hold: bool, due: bool) -> Tensor:
        """Return the objective of a batch, and add its parts to the sums."""
        batch = self.rows[index.to(self.rows.x.device)]
        z, prediction = self.net(batch.x)
        loss = self.objective.mean_loss(prediction, batch)
        sums.losses.append(to_list(loss))
        if not due:
            return loss
        times = self.options.training.penalty_every
        if self.objective.rebuild:
            loss = loss + times * self.objective.cost_of_rebuilding(z, batch)
        if self.objective.fixed_s is None:
            return loss
        if hold:
            self.objective.hold(z, prediction, self.rows, index)
        self.objective.ascend(z, prediction, batch)
        value = self.objective.evaluate_penalty(z, prediction, batch)
        sums.penalties.append(to_list(value.total))
        sums.terms.append([to_list(term) for term in value.values])
        sums.skipped.update(label for label, _ in value.skipped)
        return self.objective.add(loss, value.total if times == 1 else times * value.total)

    def _clip(self) -> None:
        most = self.options.training.clip
        if most is None:
            return
        for gradients in self.net.gradients():
            norm = nn.utils.get_total_norm(gradients)
            for gradient in gradients:
                gradient.mul_((most / (norm + 1e-6)).clamp_max(1.0))


@dataclass(eq=False)
class _Sums:
    """Numbers of the steps of an epoch, each with one entry for each net."""

    losses: list[list[float]] = field(default_factory=list)
    penalties: list[list[float]] = field(default_factory=list)
    terms: list[list[list[float]]] = field(default_factory=list)
    skipped: Counter[Label] = field(default_factory=Counter)

    def means(self, k: int) -> dict[str, Any]:
        """Return the means over the steps, for net k."""
        n = len(self.losses)
        terms = range(len(self.terms[0]) if self.terms else 0)
        return {
            "loss": sum(step[k] for step in self.losses) / n,
            "penalty": sum(step[k] for step in self.penalties) / n if self.penalties else None,
            "terms": tuple(sum(step[j][k] for step in self.terms) / n for j in terms),
        }


@contextlib.contextmanager
def own_randomness(generator: torch.Generator, device: torch.device, *, draw: bool = False) -> Iterator[None]:
    """Seed the caller's modules (dropout) with the seed of the generator, or with a number drawn from it.

    The global state is afterwards as it was.
    """
    seed = int(torch.randint(2**62, (1,), generator=generator)) if draw else generator.initial_seed() % 2**63
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
