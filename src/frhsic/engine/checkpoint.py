"""Checkpoints: all that changes during training, in one file, from which the same call continues."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from frhsic import _tensorfile as tensorfile
from frhsic._checks import ArgumentError
from frhsic.engine.record import Record
from frhsic.engine.stopping import Best

if TYPE_CHECKING:
    from frhsic.engine.run import Run

KIND: Final = "frhsic-checkpoint"
_REMOVE = "Remove it to begin anew."


@dataclass(frozen=True)
class Checkpoint:
    """The file of one run; a file with another fingerprint (plain values) is not read."""

    path: Path
    fingerprint: Mapping[str, Any]

    def write(self, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> None:
        """Replace the file atomically."""
        head = {"format": KIND, "version": tensorfile.VERSION, "names": sorted(tensors)}
        tensorfile.write(self.path, tensors, {**document, **head, "fingerprint": dict(self.fingerprint)})

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what the same run wrote, None if there is no file."""
        if not self.path.exists():
            return None
        try:
            tensors, document = tensorfile.read(self.path, kind=KIND, finite=False)
        except tensorfile.TensorFileError as error:
            fix = f"{error.fix} {_REMOVE}"
            raise tensorfile.TensorFileError("checkpoint", error.must, error.got, fix) from None
        found = document.get("fingerprint")
        if not isinstance(found, dict) or document.get("names") != sorted(tensors):
            must = "hold what a run wrote into it"
            raise tensorfile.TensorFileError("checkpoint", must, "another file", _REMOVE)
        differs = [name for name, value in self.fingerprint.items() if found.get(name) != value]
        if differs:
            got = f"a file of one that differs in {differs}"
            again = "Repeat that call (with an integer random_state) to go on"
            fix = f"{again}, or remove the file to begin anew."
            raise ArgumentError("checkpoint", "be of the same call", got, fix)
        return tensors, document


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a checksum of types, shapes and values."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def fingerprint(run: Run) -> dict[str, Any]:
    """Return all that must be the same for a checkpoint to be of this run."""
    options, loss = run.options, run.objective.loss
    training = dataclasses.asdict(options.training)
    del training["checkpoint"], training["checkpoint_every"]
    data = run.rows.tensors + ([] if run.stopping is None else run.stopping.rows.tensors)
    limits = options.limits
    if limits is not None and limits.watched is not None:
        data = data + limits.watched.tensors
    return {
        "lam": None if options.constrained is not None else options.weights,
        "budget": None if options.budgets is None else list(options.budgets),
        "limit": None if limits is None else [sorted((*map(str, net.items()),)) for net in limits.most],
        "penalty": repr(options.penalty) if options.penalised else None,
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        "training": training,
        "loss": getattr(loss, "__name__", repr(loss)),
        "data": digest(data),
        "columns": None if run.rows.s is None else [*run.rows.s.names, *run.rows.s.kinds],
        "net": repr(run.net),
        "initial weights": digest(run.net.state_dict().values()),
        "random_state": digest([run.generator.get_state()]),
        "torch": torch.__version__,
        "device": str(run.rows.x.device),
    }


def capture(run: Run) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return all that changes, at the end of an epoch."""
    objective = run.objective
    groups: dict[str, Mapping[str, Tensor]] = {"net": run.net.state_dict(), "held": objective.held}
    if objective.fixed_s is not None:
        groups["penalty"] = objective.fixed_s.state_dict()
    if objective.multipliers is not None:
        groups["multipliers"] = objective.multipliers.state()
    if objective.meter is not None:
        groups["meter"] = objective.meter.state()
    for title, optimizer in (("optimizer", run.optimizer), ("critic", objective.critic)):
        states = optimizer.state_dict()["state"] if optimizer is not None else {}
        groups |= {f"{title}.{number}": state for number, state in states.items()}
    random = {"batches": run.generator.get_state(), "modules": torch.get_rng_state()}
    if run.rows.x.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(run.rows.x.device)
    groups["random"] = random
    best: list[list[float] | None] = []
    for k, found in enumerate([] if run.stopping is None else run.stopping.best):
        best.append(None if found is None else [found.epoch, *found.rank])
        if found is not None:
            groups[f"best.{k}"] = found.weights
    tensors = {f"{title}.{name}": value for title, group in groups.items() for name, value in group.items()}
    histories = [[record.to_dict() for record in history] for history in run.histories]
    return tensors, {"histories": histories, "best": best, "first_losses": run.guards.first_losses}


def restore(run: Run, file: Checkpoint) -> int:
    """Return to the checkpoint, if there is one, and return the epoch to continue with."""
    found = file.read()
    if found is None:
        return 0
    try:
        return _restore(run, *found)
    except (KeyError, IndexError, TypeError, RuntimeError, ValueError) as error:
        got = f"a file that was changed ({type(error).__name__})"
        must = "hold the state of this run"
        raise tensorfile.TensorFileError("checkpoint", must, got, _REMOVE) from error


def _restore(run: Run, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> int:
    groups = _group(tensors)
    objective, device = run.objective, run.rows.x.device
    run.net.load_state_dict(groups["net"])
    if objective.fixed_s is not None and "penalty" in groups:
        objective.fixed_s.load_state_dict(groups["penalty"])
    for title, optimizer in (("optimizer", run.optimizer), ("critic", objective.critic)):
        if optimizer is None:
            continue
        state = optimizer.state_dict()
        for number, values in _group(groups.get(title, {})).items():
            state["state"].setdefault(int(number), {}).update(values)
        optimizer.load_state_dict(state)
    if "held" in groups:
        held = {name: value.to(device) for name, value in groups["held"].items()}
        objective.hold(held["z"], held["prediction"], run.rows, held["rows"])
    run.generator.set_state(groups["random"]["batches"])
    torch.set_rng_state(groups["random"]["modules"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(groups["random"]["cuda"], device)
    if objective.multipliers is not None:
        objective.multipliers.restore(groups["multipliers"])
    if objective.meter is not None:
        objective.meter.restore(groups["meter"])
    run.histories = [[Record.from_dict(record) for record in history] for history in document["histories"]]
    for k, found in enumerate(document["best"]):
        if found is not None and run.stopping is not None:
            own = _group(groups["best"])[str(k)]
            run.stopping.best[k] = Best(found[0], (found[1], found[2]), own)
    run.guards.first_losses = document["first_losses"]
    return max(map(len, run.histories))


def _group(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return tensors by the first part of their names."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        group, _, rest = name.partition(".")
        groups.setdefault(group, {})[rest] = value
    return groups
