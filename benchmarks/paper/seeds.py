"""LAFTR on its whole grid, FREM where it is outside, with other seeds of weights and batches (80 minutes)."""

import argparse
import itertools
import os
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks._pool import spread
from benchmarks._protocol import SEEDS, Split, split_of
from benchmarks._record import Runs
from benchmarks.paper._methods import CONTENDERS, LAMS
from benchmarks.paper.sweep import DATASETS, SLOW, measured, predicted, stacked

# Of these two most cells are outside. LAFTR has fewer than nine in ten within: all of its grid.
CELLS: dict[tuple[str, str], tuple[float, ...]] = {
    ("compas", "FREM"): (50.0, 100.0),
    ("crime-householdsize", "LAFTR (binned)"): LAMS,
    ("compas", "LAFTR (binned)"): LAMS,
    ("adult", "LAFTR (binned)"): LAMS,
}
SEEDS_EACH = 4


class Task(NamedTuple):
    """One split with one seed: its lambdas in one stacked pass."""

    dataset: str
    method: str
    split: int
    number: int
    epochs: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--seeds", type=int, default=SEEDS_EACH)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes of one thread each")
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, and print the means of five splits by seed."""
    runs = Runs("seeds.json", fresh=arguments.fresh, seeds="1,000 times a number and that of the split")
    tasks = [
        Task(dataset, method, split, number, arguments.epochs)
        for number in range(1, arguments.seeds + 1)
        for dataset, method in CELLS
        for split in range(len(SEEDS))
    ]
    missing = [task for task in tasks if runs.missing(**task._asdict())]
    for task, found in spread(missing, worked, cost=_cost, workers=arguments.workers):
        runs.add(**task._asdict(), cells=found)
    rows = summary(runs.runs)
    for row in rows:
        print(row)
    print(runs.write(summary=rows))


def _cost(task: Task) -> float:
    return DATASETS[task.dataset] * SLOW.get(task.method, 1.0)


def worked(task: Task) -> tuple[Task, list[dict[str, float]]]:
    """Train as the sweep does, but for the seed."""
    data, seed = split_of(task.dataset, task.split), 1_000 * task.number + SEEDS[task.split]
    estimator = CONTENDERS[task.method].estimator(
        "lam", regression=data.regression, epochs=task.epochs, seed=seed
    )
    return task, trained(estimator, data, CELLS[task.dataset, task.method])


def trained(estimator: Any, data: Split, lams: Sequence[float]) -> list[dict[str, float]]:
    """Return performance and GDP on the held-out rows at each lambda, in one stacked pass."""
    rows = []
    for lam, model in zip(lams, stacked(estimator, data, lams=lams), strict=True):
        found = measured(*predicted(model, data), data, slice(None))
        rows.append({"lam": lam, "perf": found["perf"], "gdp_grid": found["gdp_grid"]})
    return rows


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each cell and measure the means of five splits, one for each seed that has them all."""
    rows = []
    for (dataset, method), lams in CELLS.items():
        for lam, measure in itertools.product(lams, ("perf", "gdp_grid")):
            by_seed: dict[int, list[float]] = {}
            for one in runs:
                if (one["dataset"], one["method"]) == (dataset, method):
                    found = [cell[measure] for cell in one["cells"] if cell["lam"] == lam]
                    by_seed.setdefault(one["number"], []).extend(found)
            means = [statistics.mean(x) for _, x in sorted(by_seed.items()) if len(x) == len(SEEDS)]
            rows.append(
                {"dataset": dataset, "method": method, "lam": lam, "measure": measure, "means": means}
            )
    return rows
