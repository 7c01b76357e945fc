"""Limits of the gap on the five datasets: what is left on held-out rows, and what it costs (resumable)."""

import argparse
import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._pool import spread
from benchmarks._protocol import CACHE, SEEDS, Array, split_of
from benchmarks._record import RESULTS, Runs
from benchmarks.paper._methods import CONTENDERS
from benchmarks.paper.sweep import DATASETS, gaps, measured, predicted, stacked

LIMITS = (0.05, 0.03, 0.02, 0.01)
NAMES = ("adult", "acs_income", "meps", "compas", "crime")
NAME = "limits.json"
SCORES = CACHE / "limits"


@dataclass(frozen=True)
class Cell:
    """All limits on one split of a dataset, in one stacked pass."""

    dataset: str
    split: int
    epochs: int

    @property
    def file(self) -> Path:
        """Where the scores of its held-out rows are kept."""
        return SCORES / f"{self.dataset}-{self.split}-{self.epochs}.npz"

    def __str__(self) -> str:
        return f"{self.dataset}, split {self.split}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--datasets", nargs="*", default=list(NAMES), choices=NAMES, metavar="DATASET")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def run(arguments: argparse.Namespace) -> None:
    """Train what is not there yet, and write what the five splits say together."""
    runs = Runs(NAME, fresh=arguments.fresh, limits=LIMITS, seeds=SEEDS)
    cells = [
        Cell(dataset, split, arguments.epochs)
        for dataset in arguments.datasets
        for split in range(arguments.splits)
        if runs.missing(dataset=dataset, split=split, epochs=arguments.epochs)
    ]
    for rows in spread(cells, work, cost=_cost, workers=arguments.workers):
        for row in rows:
            runs.add(**row)
    old = json.loads((RESULTS / NAME).read_text()).get("pooled", []) if (RESULTS / NAME).exists() else []
    new = [row for name in NAMES for row in pooled(name, arguments.splits, arguments.epochs)]
    there = {row["dataset"] for row in new}
    runs.write(pooled=[row for row in old if row["dataset"] not in there] + new)
    print_table()


def _cost(cell: Cell) -> float:
    return float(DATASETS[cell.dataset])


def work(cell: Cell) -> list[dict[str, Any]]:
    """Train the limits of a cell with the default penalty, and judge them on the held-out rows."""
    data = split_of(cell.dataset, cell.split)
    estimator = CONTENDERS["FRHSIC"].estimator(
        "budget", regression=data.regression, epochs=cell.epochs, seed=SEEDS[cell.split]
    )
    estimator.set_params(penalty=None)  # the default of limits
    start = time.perf_counter()
    path = stacked(estimator, data, limits=[{"gap": limit} for limit in LIMITS])
    seconds = round(time.perf_counter() - start, 1)
    rows: list[dict[str, Any]] = []
    scores: dict[str, Any] = {}
    half = float(np.median(data.y)) if data.regression else 0.5
    for limit, model in zip((0.0, *LIMITS), path, strict=True):
        output, score = predicted(model, data)
        scores[f"{limit:g}"] = score
        rows.append(
            {
                **vars(cell),
                "limit": limit or None,
                **measured(output, score, data, slice(None)),
                **gaps(score, data.s_test, half, chance=True),
                "reached": [one.to_dict() for one in model.reached_],
                "seconds": seconds,
            }
        )
    SCORES.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(cell.file, s=data.s_test, **scores)
    return rows


def pooled(name: str, splits: int, epochs: int) -> list[dict[str, Any]]:
    """Return the gap of the held-out rows of all splits together, at each limit."""
    files = [Cell(name, split, epochs).file for split in range(splits)]
    if not all(file.exists() for file in files):
        return []
    parts = [dict(np.load(file)) for file in files]
    together = partial(_join, parts)
    return [
        {"dataset": name, "limit": limit or None, **gaps(together(f"{limit:g}"), together("s"), chance=True)}
        for limit in (0.0, *LIMITS)
    ]


def _join(parts: list[dict[str, Array]], name: str) -> Array:
    return np.concatenate([part[name] for part in parts])


def print_table() -> None:
    """Print the gap of all splits together beside its limit, and the mean performance."""
    found = json.loads((RESULTS / NAME).read_text())
    for row in found["pooled"]:
        own = [
            run for run in found["runs"] if (run["dataset"], run["limit"]) == (row["dataset"], row["limit"])
        ]
        limit = row["limit"]
        counts = limit is not None and row["gap_chance"] <= limit / 2.0
        kept = "" if not counts else "kept" if row["gap"] <= 1.1 * limit else "MISSED"
        print(
            f"{row['dataset']:12s} limit {limit}: gap {row['gap']:.4f} (chance {row['gap_chance']:.4f}), "
            f"single splits {np.mean([run['gap'] for run in own]):.4f}, performance "
            f"{np.mean([run['perf'] for run in own]):.4f} {kept}"
        )
