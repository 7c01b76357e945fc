"""Boosted trees within budgets and limits beside networks, on the same splits and columns (resumable)."""

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from benchmarks._pool import spread
from benchmarks._protocol import CACHE, SEEDS, Array, Split, split_of
from benchmarks._record import RESULTS, Runs
from benchmarks.paper.sweep import gaps, measured
from frhsic import GDP, FRHSICClassifier
from frhsic.boosting import FRHSICBoostingClassifier
from frhsic.datasets import fetch_acs_income, fetch_compas, make_preprocessor, paper_split
from frhsic.estimators import fit_path

NAME = "trees.json"
SCORES = CACHE / "trees"
DATASETS = ("adult", "acs_income", "acs_income_78", "compas_age")
MODELS = ("lightgbm", "xgboost", "network")
BUDGETS = (0.3, 0.1, 0.03)
LIMITS = (0.05, 0.03, 0.02, 0.01)
SETTINGS: tuple[dict[str, Any], ...] = (
    {"lam": 0.0},
    *({"budget": one} for one in BUDGETS),
    *({"limit": {"gap": one}} for one in LIMITS),
)


@dataclass(frozen=True)
class Cell:
    """All budgets and limits of one model on one split of a dataset."""

    dataset: str
    model: str
    split: int

    @property
    def file(self) -> Any:
        """Where the scores of its held-out rows are kept."""
        return SCORES / f"{self.dataset}-{self.model}-{self.split}.npz"

    def __str__(self) -> str:
        return f"{self.dataset}, {self.model}, split {self.split}"


@lru_cache(1)
def load(name: str, split: int) -> Split:
    """Return a split; "compas_age" has age among its columns, "acs_income_78" all 78,000 rows."""
    if name in ("adult", "acs_income"):
        return split_of(name, split)
    if name == "compas_age":
        bunch = fetch_compas()
        age = bunch.sensitive_features["age"].to_numpy(np.float64)
    else:
        bunch = fetch_acs_income()
        age = bunch.sensitive_features["AGEP"].to_numpy(np.float64)
    y = np.asarray(bunch.target).astype(np.int64)
    train, test = paper_split(len(y), repeat=split)
    preprocessor = make_preprocessor(bunch).fit(bunch.data.iloc[train])
    x, x_test = (np.asarray(preprocessor.transform(bunch.data.iloc[rows])) for rows in (train, test))
    low, high = age[train].min(), age[train].max()
    s = (age - low) / (high - low)
    if name == "compas_age":
        x, x_test = np.column_stack([x, s[train]]), np.column_stack([x_test, s[test]])
    return Split(x, y[train], s[train], x_test, y[test], s[test], regression=False)


def fit_all(cell: Cell, data: Split) -> list[tuple[dict[str, Any], Any, float]]:
    """Return every setting with its model and the seconds it took."""
    seed = SEEDS[cell.split]
    found = []
    if cell.model != "network":
        for setting in SETTINGS:
            start = time.perf_counter()
            model = FRHSICBoostingClassifier(backend=cell.model, random_state=seed, **setting)  # type: ignore[arg-type]
            model.fit(data.x, data.y, sensitive_features=data.s)
            found.append((setting, model, time.perf_counter() - start))
        return found
    for name, values in (("budgets", list(BUDGETS)), ("limits", [{"gap": one} for one in LIMITS])):
        start = time.perf_counter()
        estimator = FRHSICClassifier(random_state=seed)
        grid: Any = {name: values}
        path = fit_path(estimator, data.x, data.y, sensitive_features=data.s, **grid)
        seconds = (time.perf_counter() - start) / len(path)
        settings = [{name[:-1]: value} for value in values]
        if name == "budgets":
            settings = [{"lam": 0.0}, *settings]
        else:
            path = path[1:]
        found += [(setting, model, seconds) for setting, model in zip(settings, path, strict=True)]
    return found


def work(cell: Cell) -> list[dict[str, Any]]:
    """Train and judge the settings of a cell."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)  # what was reached is in the table
    data = load(cell.dataset, cell.split)
    rows, scores = [], {}
    for setting, model, seconds in fit_all(cell, data):
        logits = model.decision_function(data.x_test)
        score = model.predict_proba(data.x_test)[:, 1]
        label = describe(setting)
        scores[label] = score
        rows.append(
            {
                **vars(cell),
                "setting": label,
                **measured(logits, score, data, slice(None)),
                **mean_gaps(score, data.s_test),
                **gaps(score, data.s_test, chance=True),
                "share": model.relative_dependence_,
                "reached": [one.to_dict() for one in model.reached_],
                "seconds": round(seconds, 2),
            }
        )
    SCORES.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(cell.file, s=data.s_test, **scores)
    return rows


def describe(setting: dict[str, Any]) -> str:
    """Return "plain", "budget 0.1" or "limit 0.02"."""
    if "lam" in setting:
        return "plain"
    return f"budget {setting['budget']:g}" if "budget" in setting else f"limit {setting['limit']['gap']:g}"


def mean_gaps(score: Array, s: Array) -> dict[str, float]:
    """Return GDP of the probabilities and of the decisions p > .5, both smoothed alike along S."""
    measure, along = GDP(0.1), torch.from_numpy(s)
    decisions = (score > 0.5).astype(np.float64)
    return {
        "gdp": measure(torch.from_numpy(score), along).item(),
        "gdp_decisions": measure(torch.from_numpy(decisions), along).item(),
    }


def pooled(cells: list[Cell]) -> list[dict[str, Any]]:
    """Return gaps of the held-out rows of all splits of a dataset together."""
    rows = []
    for dataset in DATASETS:
        for model in MODELS:
            own = [cell for cell in cells if (cell.dataset, cell.model) == (dataset, model)]
            if not own or not all(cell.file.exists() for cell in own):
                continue
            parts = [dict(np.load(cell.file)) for cell in own]
            s = np.concatenate([part["s"] for part in parts])
            for setting in map(describe, SETTINGS):
                score = np.concatenate([part[setting] for part in parts])
                found = {**mean_gaps(score, s), **gaps(score, s, chance=True)}
                rows.append({"dataset": dataset, "model": model, "setting": setting, **found})
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=DATASETS, metavar="DATASET")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS, metavar="MODEL")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def run(arguments: argparse.Namespace) -> None:
    """Train what is not there yet, and print the tables."""
    runs = Runs(NAME, fresh=arguments.fresh, seeds=SEEDS, budgets=BUDGETS, limits=LIMITS)
    every = [
        Cell(dataset, model, split)
        for dataset in arguments.datasets
        for model in arguments.models
        for split in range(arguments.splits)
    ]
    cells = [cell for cell in every if runs.missing(**vars(cell))]
    for rows in spread(cells, work, cost=_cost, workers=arguments.workers):
        for row in rows:
            runs.add(**row)
    old = json.loads((RESULTS / NAME).read_text()).get("pooled", []) if (RESULTS / NAME).exists() else []
    new = pooled([Cell(d, m, s) for d in DATASETS for m in MODELS for s in range(arguments.splits)])
    there = {(row["dataset"], row["model"]) for row in new}
    runs.write(pooled=[row for row in old if (row["dataset"], row["model"]) not in there] + new)
    print_table()


def _cost(cell: Cell) -> float:
    size = {"adult": 3.0, "acs_income": 2.0, "acs_income_78": 8.0, "compas_age": 1.0}[cell.dataset]
    return size * (40.0 if cell.model == "network" else 1.0)


def print_table() -> None:
    """Print what is left and what it costs."""
    found = json.loads((RESULTS / NAME).read_text())
    for row in found["pooled"]:
        own = [run for run in found["runs"] if all(run[k] == row[k] for k in ("dataset", "model", "setting"))]
        share = [run["share"] for run in own if run["share"] is not None]
        print(
            f"{row['dataset']:14s} {row['model']:9s} {row['setting']:12s} accuracy "
            f"{np.mean([run['perf'] for run in own]):.4f}, gap {row['gap']:.4f} (chance "
            f"{row['gap_chance']:.4f}), GDP {row['gdp']:.4f}, of decisions {row['gdp_decisions']:.4f}"
            + (f", share {min(share):.3f} to {max(share):.3f}" if share else "")
        )
