"""What any score that keeps its R^2 of the target leaves of S on Crime: a bound on every method, estimated.

Of all functions f of X with a given correlation with Y, the one least correlated with S is
E[Y|X] - t E[S|X] for some t: both correlations are inner products with these two. A representation tells at
least what its own score tells. The two regressions are estimated, so the bound is.
"""

import argparse
import json
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict

from benchmarks._protocol import SEEDS, Array, Split, split_of
from benchmarks._record import RESULTS, provenance, read_rows, write, write_section
from benchmarks.paper._matched import WIDTHS, pairs
from benchmarks.paper.representation import TABLE
from benchmarks.paper.reproduction._text import markdown
from frhsic import GDP

NAME = "floors.json"
KINDS = {
    "linear": Ridge(),
    "trees": HistGradientBoostingRegressor(learning_rate=0.05, min_samples_leaf=50, random_state=0),
}


def line(y: Array, f: Array, f_test: Array) -> NDArray[Any]:
    """Return the predictions of y by a line in f, on held-out rows."""
    return np.polyval(np.polyfit(f, y, 1), f_test)


def explained(y: Array, predicted: NDArray[Any], mean: float) -> float:
    """Return R^2 on held-out rows, against the mean of the others."""
    return 1.0 - float(np.mean((y - predicted) ** 2) / np.mean((y - mean) ** 2))


def points(data: Split, kind: str) -> list[dict[str, float]]:
    """Return R^2 of Y and of S, and GDP, of E[Y|X] - t E[S|X], for each t."""
    targets, model = (data.y, data.s), KINDS[kind]
    y, s = (cross_val_predict(model, data.x, target, cv=5) for target in targets)
    y_test, s_test = (model.fit(data.x, target).predict(data.x_test) for target in targets)
    found = []
    for t in np.arange(0.0, 0.61, 0.05):
        score, of_s = (line(target, y - t * s, y_test - t * s_test) for target in targets)
        found.append(
            {
                "t": float(t),
                "performance": explained(data.y_test, score, data.y.mean()),
                "r2": explained(data.s_test, of_s, data.s.mean()),
                "gdp": float(GDP(0.1)(torch.from_numpy(score), torch.from_numpy(data.s_test))),
            }
        )
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--splits", type=int, default=5)


def run(arguments: argparse.Namespace) -> None:
    """Compute all of it, write it, and print the table."""
    rows: list[dict[str, Any]] = []
    header = provenance(seeds=SEEDS)
    for repeat in range(arguments.splits):
        data = split_of("crime", repeat)
        cell = {"split": repeat, "commit": header["commit"]}
        rows += [cell | {"kind": kind} | point for kind in KINDS for point in points(data, kind)]
    write(NAME, {**header, "runs": rows})
    print(table())
    write_section("evidence/representation.md", "floors", table(), NAME)


def table() -> str:
    """Return what a score leaves where its R^2 of the target is what counts as kept."""
    runs = pd.DataFrame(json.loads((RESULTS / NAME).read_text())["runs"])
    unpenalised = pairs(read_rows(TABLE))
    lines = []
    for width in WIDTHS:
        (pair,) = unpenalised["crime", width, "Unfair"]
        least, free = pair.least("crime"), pair.free
        for kind in KINDS:
            means = runs[runs["kind"] == kind].groupby("t").mean(numeric_only=True).sort_values("performance")
            r2, gdp = (np.interp(least, means["performance"], means[key]) for key in ("r2", "gdp"))
            best = means["performance"].max()
            shares = [f"{100.0 * r2 / free['r2_max']:.0f} %", f"{100.0 * gdp / free['gdp']:.0f} %"]
            lines.append([str(width), kind, f"{best:.3f}", f"{least:.3f}", f"{r2:.3f}", *shares])
    header = ["width", "regressions", "R^2 of the target", "kept at", "R^2 of S by the score"]
    return markdown([*header, "of that of Z without a penalty", "GDP left"], lines)
