"""Early stopping of boosted trees within a limit, beside all rounds of the same training (resumable)."""

import argparse
import json
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning

from benchmarks._pool import spread
from benchmarks._protocol import SEEDS
from benchmarks._record import RESULTS, Runs
from benchmarks.paper.trees import load
from frhsic.boosting import FRHSICBoostingClassifier

NAME = "stopping.json"
LIMITS = {"adult": (0.05, 0.03, 0.02, 0.01), "acs_income": (0.05, 0.03, 0.02)}
BACKENDS = ("lightgbm", "xgboost")
ALLOWED = 0.01  # of the accuracy


@dataclass(frozen=True)
class Cell:
    """One limit of one library on one split of a dataset."""

    dataset: str
    backend: str
    limit: float
    split: int

    def __str__(self) -> str:
        return f"{self.dataset}, {self.backend}, limit {self.limit}, split {self.split}"


def work(cell: Cell) -> dict[str, Any]:
    """Train with and without early stopping, with the same held-out rows, and judge on test rows."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)  # what was reached is in the table
    data = load(cell.dataset, cell.split)
    row: dict[str, Any] = {**vars(cell)}
    for name, early in (("all", False), ("stopped", True)):
        model = FRHSICBoostingClassifier(
            backend=cell.backend,  # type: ignore[arg-type]
            limit={"gap": cell.limit},
            early_stopping=early,
            random_state=SEEDS[cell.split],
        )
        model.fit(data.x, data.y, sensitive_features=data.s)
        row[f"accuracy_{name}"] = round(model.score(data.x_test, data.y_test), 4)
        row[f"rounds_{name}"] = model.n_iter_
        row[f"reached_{name}"] = round(model.reached_[0].judged, 4)
    return row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def run(arguments: argparse.Namespace) -> None:
    """Train what is not there yet, and print how far accuracies are apart."""
    runs = Runs(NAME, fresh=arguments.fresh, seeds=SEEDS[: arguments.splits], allowed=ALLOWED)
    cells = [
        Cell(dataset, backend, limit, split)
        for split in range(arguments.splits)
        for dataset, limits in LIMITS.items()
        for backend in BACKENDS
        for limit in limits
    ]
    missing = [cell for cell in cells if runs.missing(**vars(cell))]
    for row in spread(missing, work, cost=lambda _: 1.0, workers=arguments.workers):
        runs.add(**row)
    rows = runs.runs
    lost = [row["accuracy_all"] - row["accuracy_stopped"] for row in rows]
    within = sum(abs(one) <= ALLOWED for one in lost)
    runs.write(n=len(rows), within=within, most_lost=round(max(lost), 4), fewest_rounds=_fewest(rows))
    print_table()


def _fewest(rows: list[dict[str, Any]]) -> int:
    return min(row["rounds_stopped"] for row in rows)


def print_table() -> None:
    """Print each run, and in how many the accuracy is as without early stopping."""
    found = json.loads((RESULTS / NAME).read_text())
    for row in found["runs"]:
        print(
            f"{row['dataset']:10s} {row['backend']:8s} limit {row['limit']:g} split {row['split']}: "
            f"accuracy {row['accuracy_stopped']:.4f} after {row['rounds_stopped']} rounds, "
            f"{row['accuracy_all']:.4f} after {row['rounds_all']}; gap {row['reached_stopped']:.4f} and "
            f"{row['reached_all']:.4f} on steering rows"
        )
    print(f"Within {ALLOWED}: {found['within']} of {found['n']}; at most {found['most_lost']} lost.")
