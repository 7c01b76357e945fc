"""Who does the work: this process, a pool of processes that may die, or tasks of a Ray cluster.

An engine is given units and yields what becomes of them, in any order. It may do a unit twice, but yields it
once; where the result goes, and in which order it is added up, is not its business.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch

from frhsic.runners._work import Job, Unit, named, one_thread

# A unit that has ended so many workers is not tried again: the file may be what ends them.
_DEATHS = 3
_PATIENCE = 10.0  # seconds, for what should be there at once


class Part(NamedTuple):
    """What became of a unit: rows read so far and, once it is done, its sketch."""

    place: int
    rows: int
    data: bytes | None = None


class Engine(ABC):
    """Who does the work."""

    @abstractmethod
    def run(self, job: Job, units: Sequence[tuple[int, Unit]]) -> Iterator[Part]:
        """Yield parts of units, each with its place, until all are done; raise what one raised."""


@dataclass(frozen=True)
class Local(Engine):
    """The process that asks, one piece after the other, in one thread."""

    def run(self, job: Job, units: Sequence[tuple[int, Unit]]) -> Iterator[Part]:
        """Do one unit after the other."""
        with one_thread():
            for place, unit in units:
                for rows, data in job.work(unit):
                    yield Part(place, rows, data)


@dataclass
class _Worker:
    process: Any
    ready: bool = False
    task: tuple[int, Unit] | None = None


@dataclass(frozen=True)
class Pool(Engine):
    """Processes on this machine, of one thread each. One that is killed is replaced, and its work done again.

    A script that uses it must do so under ``if __name__ == "__main__":``, because new processes import it.

    Parameters
    ----------
    workers : int, optional
        By default one for each core that this process may use.
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        ok = isinstance(self.workers, int) and not isinstance(self.workers, bool) and self.workers > 0
        if self.workers is not None and not ok:
            raise ValueError(
                f"'workers' must be a positive whole number. Got {self.workers!r}. "
                "Leave it out for one on each core."
            )

    def run(self, job: Job, units: Sequence[tuple[int, Unit]]) -> Iterator[Part]:
        """Keep every worker busy."""
        most = self.workers or _cores()
        waiting = deque(units)
        workers: dict[Connection, _Worker] = {}
        deaths: Counter[int] = Counter()
        false_starts = 0
        try:
            while waiting or any(worker.task for worker in workers.values()):
                busy = sum(worker.task is not None for worker in workers.values())
                while len(workers) < min(most, busy + len(waiting)):
                    _start(job, workers)
                for worker_pipe in wait(list(workers)):
                    assert isinstance(worker_pipe, Connection)  # noqa: S101
                    worker = workers[worker_pipe]
                    try:
                        message = worker_pipe.recv()
                    except (EOFError, OSError):  # it is dead, perhaps in the middle of a message
                        del workers[worker_pipe]
                        code = _buried(worker_pipe, worker, _PATIENCE)
                        if worker.task is not None:
                            waiting.appendleft(worker.task)
                            place, unit = worker.task
                            deaths[place] += 1
                            yield Part(place, 0)
                            if deaths[place] == _DEATHS:
                                raise RuntimeError(_deadly(unit, code)) from None
                        elif not worker.ready:
                            false_starts += 1
                            if false_starts == _DEATHS:
                                raise RuntimeError(_never_began(code)) from None
                        continue
                    if message == "ready":
                        worker.ready, false_starts = True, 0
                    elif isinstance(message, Exception):
                        raise message
                    else:
                        assert worker.task is not None  # noqa: S101
                        rows, data = message
                        yield Part(worker.task[0], rows, data)
                        if data is None:
                            continue
                        worker.task = None
                    if waiting:
                        worker.task = waiting.popleft()
                        with contextlib.suppress(OSError):  # it is dead: the next round finds it so
                            worker_pipe.send(worker.task[1])
        finally:
            for worker_pipe, worker in workers.items():
                _buried(worker_pipe, worker)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if "sched_getaffinity" in dir(os) else os.cpu_count() or 1


def _start(job: Job, workers: dict[Connection, _Worker]) -> None:
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, job), daemon=True)
    with theirs:  # ours to close: only then does its death end the pipe
        process.start()
    workers[ours] = _Worker(process)


def _serve(pipe: Connection, job: Job) -> None:
    """Do units for as long as there is somebody to do them for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process ends it
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        pipe.send("ready")
        while True:
            for message in job.messages(pipe.recv()):
                pipe.send(message)


def _buried(pipe: Connection, worker: _Worker, patience: float = 0.0) -> int:
    """End a worker, which has nothing of its own to put in order, and return its exit code."""
    pipe.close()
    worker.process.join(patience)  # one that ends by itself closes its pipe before it has a code
    worker.process.kill()
    worker.process.join()
    code = worker.process.exitcode
    worker.process.close()
    return int(code)


def _deadly(unit: Unit, code: int) -> str:
    return (
        f"{named(unit)} must be readable by a process that lives. Got {_DEATHS} workers that died over it, "
        f"the last {_ended(code)}. Check the memory of the machine, and the file; with partials= what was "
        "done is kept."
    )


def _never_began(code: int) -> str:
    return (
        f"'engine' must be able to start processes. Got {_DEATHS} that ended before they began, the last "
        f'{_ended(code)}. In a script, put the call under: if __name__ == "__main__":'
    )


def _ended(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


@dataclass(frozen=True)
class Ray(Engine):
    """Tasks of a Ray cluster, of one core each; lost ones are done again on another worker or node.

    Files must be where all nodes find them. Needs ``pip install 'frhsic[ray]'``.

    Parameters
    ----------
    address : str, optional
        Of a running cluster, "auto" for the one of this machine. By default that to which this process is
        connected, or else RAY_ADDRESS, or else a new one on this machine, which ends with the work.
    """

    address: str | None = None

    def run(self, job: Job, units: Sequence[tuple[int, Unit]]) -> Iterator[Part]:
        """Give all units to the cluster, and take what comes."""
        ray = _ray()
        connected = ray.is_initialized()
        if connected and self.address is not None:
            raise ValueError(
                "'address' must be None where this process is connected to Ray already. "
                f"Got {self.address!r}. Leave it out, or call ray.shutdown() first."
            )
        if not connected:
            _connect(ray, self.address)
        waiting: dict[Any, tuple[int, Unit]] = {}
        try:
            task = ray.remote(num_cpus=1, max_retries=_DEATHS)(sketch_unit)
            shared = ray.put(job)
            waiting = {task.remote(shared, unit): (place, unit) for place, unit in units}
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                place, unit = waiting.pop(done)
                try:
                    found = ray.get(done)
                except ray.exceptions.RayError as error:
                    raise RuntimeError(_lost(unit, error)) from None
                if isinstance(found, Exception):
                    raise found
                yield Part(place, *found)
        finally:
            for one in waiting:
                ray.cancel(one, force=True)
            if not connected:
                ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError("A Ray cluster needs Ray. Install it: pip install 'frhsic[ray]'") from error
    return ray


def _connect(ray: Any, address: str | None) -> None:
    # Left to itself, Ray would look for the last cluster of this machine, for minutes if that is gone.
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    host, _, port = where.removeprefix("ray://").rpartition(":")
    more = {"include_dashboard": False} if where == "local" else {}
    try:
        if host and port.isdigit():
            socket.create_connection((host, int(port)), _PATIENCE).close()
        ray.init(where, log_to_driver=False, logging_level=logging.ERROR, **more)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConnectionError(
            f"'address' must lead to a Ray cluster that runs. Got {where!r}: "
            f"{(str(error).splitlines() or [''])[0][:200]}. Start one by 'ray start --head', or leave it out."
        ) from None


def sketch_unit(job: Job, unit: Unit) -> tuple[int, bytes | None] | Exception:
    """Do a unit in a process of Ray, which shows the name of this function."""
    torch.set_num_threads(1)
    *_, last = job.messages(unit)
    return last


def _lost(unit: Unit, error: Exception) -> str:
    return (
        f"{named(unit)} must be readable by a worker that lives. Got {type(error).__name__} from Ray after "
        f"{_DEATHS} more tries. Check the memory of the nodes, and the file; with partials= what was done is "
        "kept."
    )
