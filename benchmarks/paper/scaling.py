"""Scales learned on the training rows or on all rows, as three of the published scripts do (20 minutes)."""

import argparse
import itertools
import json
import os
import statistics
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks._pool import spread
from benchmarks._protocol import PUBLISHED, SEEDS, split_of
from benchmarks._record import RESULTS, Runs
from benchmarks.paper._methods import CONTENDERS
from benchmarks.paper.seeds import trained
from benchmarks.paper.sweep import DATASETS

NAMES = ("adult", "compas", "crime-householdsize")
LAMS = (0.0, 10.0, 50.0)  # of FRHSIC-published


class Task(NamedTuple):
    """One split, scaled in one way: its lambdas in one stacked pass."""

    dataset: str
    split: int
    on_all: bool
    epochs: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes of one thread each")
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, and print how far the means of five splits are apart."""
    runs = Runs("scaling.json", fresh=arguments.fresh, seeds=SEEDS)
    tasks = [
        Task(dataset, split, on_all, arguments.epochs)
        for dataset, split, on_all in itertools.product(NAMES, range(len(SEEDS)), (False, True))
    ]
    missing = [task for task in tasks if runs.missing(**task._asdict())]
    for task, found in spread(missing, worked, cost=_cost, workers=arguments.workers):
        runs.add(**task._asdict(), cells=found)
    print(runs.write())
    for row in summary():
        print(row)


def _cost(task: Task) -> float:
    return DATASETS[task.dataset]


def worked(task: Task) -> tuple[Task, list[dict[str, float]]]:
    """Train as the sweep does, on rows as the split has scaled them: the estimator would do it once more."""
    data = split_of(task.dataset, task.split, on_all=task.on_all)
    estimator = CONTENDERS["FRHSIC-published"].estimator(
        "lam", regression=data.regression, epochs=task.epochs, seed=SEEDS[task.split]
    )
    estimator.set_params(training=replace(PUBLISHED, scaling="none"))
    return task, trained(estimator, data, LAMS)


def summary() -> list[dict[str, Any]]:
    """Return means over the splits by scaling, and their difference in deviations over the splits."""
    runs = json.loads((RESULTS / "scaling.json").read_text())["runs"]
    table = []
    for dataset, lam, measure in itertools.product(NAMES, LAMS, ("perf", "gdp_grid")):
        train, every = (
            {
                one["split"]: next(cell[measure] for cell in one["cells"] if cell["lam"] == lam)
                for one in runs
                if (one["dataset"], one["on_all"]) == (dataset, on_all)
            }
            for on_all in (False, True)
        )
        both = sorted(train.keys() & every.keys())
        means = [statistics.fmean(one[split] for split in both) for one in (train, every)]
        sd = statistics.pstdev(train[split] for split in both)
        table.append(
            {"dataset": dataset, "lam": lam, "measure": measure, "splits": len(both), "train": means[0]}
            | {"all": means[1], "apart": (means[1] - means[0]) / sd}
        )
    return table
