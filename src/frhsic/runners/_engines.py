"""Engines: this process, or a pool of processes.

An engine receives units and yields their sketches, in any order. It may compute a unit twice, but yields it
once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch

from frhsic._checks import ArgumentError
from frhsic.numerics._threads import one_thread
from frhsic.runners._work import Job, Unit, lost_error

# A unit that has ended so many workers is not tried again: the file may be what ends them.
DEATHS = 3
PATIENCE = 10.0  # seconds, for what should be there at once


class Part(NamedTuple):
    """Rows read of a unit so far and, once it is complete, its sketch."""

    place: int
    rows: int
    data: bytes | None = None


class Engine(ABC):
    """What computes the sketches of units."""

    @abstractmethod
    def run(self, job: Job, units: Sequence[tuple[int, Unit]]) -> Iterator[Part]:
        """Yield parts of units, each with its place, until all are complete; raise what one raised."""


@dataclass(frozen=True)
class Local(Engine):
    """The calling process, one piece after the other, in one thread.

    Examples
    --------
    >>> Local()
    Local()
    """

    def run(self, job: Job, units: Sequence[tuple[int, Unit]]) -> Iterator[Part]:
        with one_thread():
            for place, unit in units:
                for rows, data in job.work(unit):
                    yield Part(place, rows, data)


@dataclass
class _Worker:
    process: Any
    ready: bool = False
    task: tuple[int, Unit] | None = None

    def end(self, pipe: Connection, patience: float = 0.0) -> str:
        """End the worker, which has nothing to save, and return how it ended."""
        pipe.close()
        self.process.join(patience)  # one that ends by itself closes its pipe before it has a code
        self.process.kill()
        self.process.join()
        code = self.process.exitcode
        self.process.close()
        return f"by signal {-code}" if code < 0 else f"with exit code {code}"


@dataclass(frozen=True)
class Pool(Engine):
    """Processes on this machine, of one thread each. A killed process is replaced and its work repeated.

    A script that uses it must do so under ``if __name__ == "__main__":``, because new processes import it.

    Parameters
    ----------
    workers : int, optional
        By default one for each core that this process may use.

    Examples
    --------
    >>> Pool(workers=2)
    Pool(workers=2)
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and (type(self.workers) is not int or self.workers < 1):
            fix = "Leave it out for one on each core."
            raise ArgumentError("workers", "be a positive whole number", repr(self.workers), fix)

    def run(self, job: Job, units: Sequence[tuple[int, Unit]]) -> Iterator[Part]:
        allowed = len(os.sched_getaffinity(0)) if "sched_getaffinity" in dir(os) else os.cpu_count()
        most = self.workers or allowed or 1
        waiting = deque(units)
        workers: dict[Connection, _Worker] = {}
        deaths: Counter[int | None] = Counter()  # by place; None: before the worker was ready
        try:
            while waiting or any(worker.task for worker in workers.values()):
                busy = sum(worker.task is not None for worker in workers.values())
                while len(workers) < min(most, busy + len(waiting)):
                    _start(job, workers)
                for pipe in wait(list(workers)):
                    assert isinstance(pipe, Connection)  # noqa: S101
                    worker = workers[pipe]
                    try:
                        message = pipe.recv()
                    except (EOFError, OSError):  # it is dead, perhaps in the middle of a message
                        end = workers.pop(pipe).end(pipe, PATIENCE)
                        if worker.task is not None:
                            waiting.appendleft(worker.task)
                            yield Part(worker.task[0], 0)
                        _count_death(deaths, worker, end)
                        continue
                    if message == "ready":
                        worker.ready, deaths[None] = True, 0
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
                            pipe.send(worker.task[1])
        finally:
            for pipe, worker in workers.items():
                worker.end(pipe)


def _start(job: Job, workers: dict[Connection, _Worker]) -> None:
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, job), daemon=True)
    with theirs:  # ours to close: only then does its death end the pipe
        process.start()
    workers[ours] = _Worker(process)


def _serve(pipe: Connection, job: Job) -> None:
    """Sketch units until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        pipe.send("ready")
        while True:
            for message in job.messages(pipe.recv()):
                pipe.send(message)


def _count_death(deaths: Counter[int | None], worker: _Worker, end: str) -> None:
    """Raise RuntimeError if too many workers died over one unit, or before they began."""
    if worker.task is None and worker.ready:
        return
    place, unit = worker.task or (None, None)
    deaths[place] += 1
    if deaths[place] < DEATHS:
        return
    if unit is None:
        raise RuntimeError(
            f"'engine' must be able to start processes. Got {DEATHS} that ended before they began, the last "
            f'{end}. In a script, put the call under: if __name__ == "__main__":'
        )
    raise lost_error(unit, f"{DEATHS} workers that died over it, the last {end}")
