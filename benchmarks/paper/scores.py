"""What scores that keep their performance leave of S, whatever is penalised, estimated.

Crime: of all functions f of X with a given correlation with Y, the one least correlated with S is
E[Y|X] - t E[S|X] for some t: both correlations are inner products with these two. A representation tells at
least what its own score tells. The two regressions are estimated, so the bound is.

Labels: the same line in log odds, against what is lost by the same regression. It bounds nothing: decisions
alone keep the accuracy, and tell less of S than the probabilities that they are made of. Both are measured.
So is the gap of the same score with its log odds halved: its decisions are the same.
"""

import argparse
import json
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict

from benchmarks._protocol import SEEDS, Array, Split, split_of
from benchmarks._record import RESULTS, provenance, read_rows, write, write_section
from benchmarks.paper._matched import DATASETS, WIDTHS, least_performance, pairs
from benchmarks.paper.representation import TABLE
from benchmarks.paper.reproduction._text import markdown
from frhsic import GDP

NAME = "scores.json"
TREES: dict[str, Any] = {"learning_rate": 0.05, "min_samples_leaf": 50, "random_state": 0}
KINDS = {"linear": Ridge(), "trees": HistGradientBoostingRegressor(**TREES)}
OF_LABELS = {
    "linear": LogisticRegression(max_iter=500),
    "trees": HistGradientBoostingClassifier(**TREES),
}


def line(y: Array, f: Array, f_test: Array) -> NDArray[Any]:
    """Return the predictions of y by a line in f, on held-out rows."""
    return np.polyval(np.polyfit(f, y, 1), f_test)


def explained(y: Array, predicted: NDArray[Any], mean: float) -> float:
    """Return R^2 on held-out rows, against the mean of the others."""
    return 1.0 - float(np.mean((y - predicted) ** 2) / np.mean((y - mean) ** 2))


def gdp_of(score: NDArray[Any], s: Array) -> float:
    """Return the GDP of a score."""
    return float(GDP(0.1)(torch.from_numpy(score), torch.from_numpy(s)))


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
                "gdp": gdp_of(score, data.s_test),
            }
        )
    return found


def points_of_labels(data: Split, kind: str) -> list[dict[str, float]]:
    """Return accuracy, R^2 of S by the probability and by the decision, and GDP, for each t."""
    of_y, of_s = OF_LABELS[kind], KINDS[kind]
    p = cross_val_predict(of_y, data.x, data.y, cv=5, method="predict_proba")[:, 1]
    p_test = of_y.fit(data.x, data.y).predict_proba(data.x_test)[:, 1]
    s = cross_val_predict(of_s, data.x, data.s, cv=5)
    s_test = of_s.fit(data.x, data.s).predict(data.x_test)
    mean, sd = data.s.mean(), data.s.std()
    found = []
    for t in np.arange(0.0, 2.01, 0.1):
        odds, odds_test = (
            logit(np.clip(one, 1e-6, 1.0 - 1e-6)) - t * (other - mean) / sd
            for one, other in ((p, s), (p_test, s_test))
        )
        of = {"r2": (expit(odds), expit(odds_test)), "decision": (1.0 * (odds > 0), 1.0 * (odds_test > 0))}
        found.append(
            {
                "t": float(t),
                "performance": float(np.mean((odds_test > 0) == data.y_test)),
                "base": float(np.mean(data.y_test == (data.y.mean() > 0.5))),
                **{key: explained(data.s_test, line(data.s, *both), mean) for key, both in of.items()},
                "gdp": gdp_of(expit(odds_test), data.s_test),
                "halved": gdp_of(expit(0.5 * odds_test), data.s_test),
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
    for name in DATASETS:
        for repeat in range(arguments.splits):
            data = split_of(name, repeat)
            cell = {"dataset": name, "split": repeat, "commit": header["commit"]}
            found = points if data.regression else points_of_labels
            rows += [cell | {"kind": kind} | point for kind in KINDS for point in found(data, kind)]
    write(NAME, {**header, "runs": rows})
    print(table() + "\n" + table_of_labels())
    write_section("evidence/representation.md", "scores-crime", table(), NAME)
    write_section("evidence/representation.md", "scores", table_of_labels(), NAME)


def table() -> str:
    """Return what a score leaves on Crime where its R^2 of the target is what counts as kept."""
    means = _means("crime")
    unpenalised = pairs(read_rows(TABLE))
    lines = []
    for width in WIDTHS:
        (pair,) = unpenalised["crime", width, "Unfair"]
        least, free = pair.least("crime"), pair.free
        for kind in KINDS:
            own = means.loc[kind].sort_values("performance")
            r2, gdp = (np.interp(least, own["performance"], own[key]) for key in ("r2", "gdp"))
            best = own["performance"].max()
            shares = [f"{100.0 * r2 / free['r2_max']:.0f} %", f"{100.0 * gdp / free['gdp']:.0f} %"]
            lines.append([str(width), kind, f"{best:.3f}", f"{least:.3f}", f"{r2:.3f}", *shares])
    header = ["width", "regressions", "R^2 of the target", "kept at", "R^2 of S by the score"]
    return markdown([*header, "of that of Z without a penalty", "GDP left"], lines)


def table_of_labels() -> str:
    """Return what the score of least gap that keeps the accuracy leaves, for each t that there is."""
    unpenalised = pairs(read_rows(TABLE))
    lines = []
    for name in DATASETS:
        if name == "crime":
            continue
        z = unpenalised[name, WIDTHS[0], "Unfair"][0].free["r2_max"]
        for kind in KINDS:
            own = _means(name).loc[kind]
            free = own.loc[0.0]
            least = least_performance(free["performance"], free["base"], regression=False)
            best = own[own["performance"] >= least].sort_values("gdp").iloc[0]
            each = [f"{best[key]:.3f} ({100.0 * best[key] / z:.0f} %)" for key in ("r2", "decision")]
            left = f"{100.0 * best['gdp'] / free['gdp']:.0f} %"
            accuracies = [f"{free['performance']:.4f}", f"{least:.4f}"]
            halved = f"{100.0 * free['halved'] / free['gdp']:.0f} %"
            lines.append([name, kind, *accuracies, f"{free['gdp']:.3f}", left, *each, halved])
    header = ["data", "regressions", "accuracy", "kept at", "GDP", "GDP left"]
    shares = ["R^2 of S by the score", "by its decisions", "GDP left by halved log odds"]
    return markdown([*header, *shares], lines, left=(0, 1))


def _means(name: str) -> pd.DataFrame:
    runs = pd.DataFrame(json.loads((RESULTS / NAME).read_text())["runs"])
    runs["t"] = runs["t"].round(3)
    return runs[runs["dataset"] == name].groupby(["kind", "t"]).mean(numeric_only=True)
