"""Independent tasks over worker processes of one thread each, or over a Ray cluster."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")

# So often a worker may be killed before something else is to blame.
MOST_DEATHS = 10


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
    if workers == 1:
        yield from (_with_task_one_thread(work, task) for task in tasks)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the workers when they load their libraries
    spawn = multiprocessing.get_context("spawn")
    left, deaths = list(tasks), 0
    while left:
        pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=_worker)
        try:
            for future in as_completed([pool.submit(_with_task, work, task) for task in left]):
                task, result = future.result()
                yield task, result
                left.remove(task)
        except BrokenProcessPool:  # a worker was killed: what it had begun is begun again
            deaths += 1
            if deaths > MOST_DEATHS:
                raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


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


def _worker() -> None:
    _one_thread()
    parent = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    """End when the parent has: a task would be finished for nobody, beside those of the next run."""
    parent.join()
    os._exit(1)


def _one_thread() -> None:
    torch.set_num_threads(1)


def _words(seconds: float) -> str:
    minutes = round(seconds / 60.0)
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes // 60} h {minutes % 60} min"
