"""Simulations in chunks over worker processes: seeds, binomial limits, and a pool."""

import multiprocessing
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from benchmarks._record import DOCS, Runs

Array = NDArray[np.float64]
Task = dict[str, Any]
Work = Callable[[Task], Task]

SEED = 20_261_205
WORKERS = 2
# What the tables and figures call significant: all cells of a table together.
SIMULTANEOUS = 0.99
# Okabe and Ito's colours, which most colour-blind people tell apart.
BLUE, SKY, GREEN, ORANGE, RED, PINK = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"


def rng(*key: object) -> np.random.Generator:
    """Return the generator of one draw: the same numbers in whichever chunk and order it is taken."""
    return np.random.default_rng([SEED, *(zlib.crc32(str(part).encode()) for part in key)])


def chunks(cell: Task, draws: int, size: int) -> list[Task]:
    """Return the tasks of a cell: ``size`` draws each, from number ``first``."""
    return [{**cell, "first": first, "draws": min(size, draws - first)} for first in range(0, draws, size)]


def draws_of(task: Task) -> range:
    """Return the numbers of the draws of a task."""
    return range(task["first"], task["first"] + task["draws"])


def spread(runs: Runs, tasks: Sequence[Task], work: Work, workers: int = WORKERS) -> None:
    """Run the tasks that have no result yet in processes of one thread each; keep each as it comes."""
    missing = [task for task in tasks if runs.missing(**task)]
    if not missing:
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the workers when they load their libraries
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(workers, initializer=_one_thread) as pool:
        for done, run in enumerate(pool.imap_unordered(partial(_worked, work), missing), 1):
            runs.add(**run)
            minutes = (time.perf_counter() - start) / 60.0
            cell = ", ".join(f"{name} {value}" for name, value in run.items() if not isinstance(value, dict))
            print(f"{done}/{len(missing)}, {minutes:.1f} min: {cell}", flush=True)


def _one_thread() -> None:
    torch.set_num_threads(1)


def _worked(work: Work, task: Task) -> Task:
    start = time.process_time()
    return {**task, **work(task), "seconds": round(time.process_time() - start, 2)}


def opened(name: str, *, fresh: bool, quick: bool, **more: Any) -> Runs:
    """Return the runs of a benchmark; those of a quick try-out begin anew in a temporary file."""
    path = str(Path(tempfile.gettempdir()) / f"quick-{name}") if quick else name
    return Runs(path, fresh=fresh or quick, seed=SEED, workers=WORKERS, threads_each=1, **more)


def figure_path(name: str, *, quick: bool) -> Path:
    """Return where a figure belongs: in the docs, or beside the results of a quick try-out."""
    folder = Path(tempfile.gettempdir()) if quick else DOCS / "figures"
    folder.mkdir(exist_ok=True)
    return folder / (f"quick-{name}" if quick else name)


def limits(rate: float, draws: int, cells: int) -> tuple[float, float]:
    """Return limits that the shares of all cells keep together with probability 0.99, were each rate true."""
    tail = (1.0 - SIMULTANEOUS) / (2.0 * cells)
    return stats.binom.ppf(tail, draws, rate) / draws, stats.binom.isf(tail, draws, rate) / draws


def most(rate: float, draws: int, cells: int) -> float:
    """Return the share that no cell exceeds with probability 0.99, were each rate at most ``rate``."""
    return float(stats.binom.isf((1.0 - SIMULTANEOUS) / cells, draws, rate)) / draws


def least(rate: float, draws: int, cells: int) -> float:
    """Return the share that no cell falls below with probability 0.99, were each rate at least ``rate``."""
    return float(stats.binom.ppf((1.0 - SIMULTANEOUS) / cells, draws, rate)) / draws


def binomial_interval(successes: int, draws: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of Clopper and Pearson for a rate."""
    tail = 0.5 * (1.0 - level)
    low = stats.beta.ppf(tail, successes, draws - successes + 1) if successes else 0.0
    high = stats.beta.isf(tail, successes + 1, draws - successes) if successes < draws else 1.0
    return float(low), float(high)
