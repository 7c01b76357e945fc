"""Independent tasks over worker processes of one thread each, or over a Ray cluster."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")


def spread(
    tasks: Sequence[Task],
    work: Callable[[Task], Result],
    *,
    cost: Callable[[Task], float],
    workers: int = 2,
    ray: bool = False,
) -> Iterator[Result]:
    """Yield the result of each task as it comes, and print which one it was and how long the rest will take.

    ``cost`` is what a task takes compared with the others.
    """
    start, spent, whole = time.perf_counter(), 0.0, sum(map(cost, tasks))
    results = _by_ray(tasks, work) if ray else _by_processes(tasks, work, workers)
    for done, (task, result) in enumerate(results, 1):
        yield result  # kept before it is announced
        passed, spent = time.perf_counter() - start, spent + cost(task)
        left = passed / spent * (whole - spent)
        print(f"{done}/{len(tasks)} {task}; {_words(passed)} so far, about {_words(left)} left", flush=True)


def _by_processes(tasks: Sequence[Task], work: Callable[[Task], Result], workers: int) -> Iterator[Any]:
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the workers when they load their libraries
    with multiprocessing.get_context("spawn").Pool(workers, initializer=_one_thread) as pool:
        yield from pool.imap_unordered(partial(_with_task, work), tasks)


def _by_ray(tasks: Sequence[Task], work: Callable[[Task], Result]) -> Iterator[Any]:
    import ray  # an extra: pip install 'frhsic[ray]'

    if not ray.is_initialized():
        ray.init(runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}}, log_to_driver=False)
    remote: Any = ray.remote(num_cpus=1)(_with_task_one_thread)
    waiting = [remote.remote(work, task) for task in tasks]
    while waiting:
        ready, waiting = ray.wait(waiting)
        yield from ray.get(ready)


def _with_task(work: Callable[[Task], Result], task: Task) -> tuple[Task, Result]:
    return task, work(task)


def _with_task_one_thread(work: Callable[[Task], Result], task: Task) -> tuple[Task, Result]:
    _one_thread()
    return task, work(task)


def _one_thread() -> None:
    torch.set_num_threads(1)
    # Kernels of a fixed bandwidth reach numbers below 1e-38, with which a step takes three times as long.
    torch.set_flush_denormal(True)


def _words(seconds: float) -> str:
    minutes = round(seconds / 60.0)
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes // 60} h {minutes % 60} min"
