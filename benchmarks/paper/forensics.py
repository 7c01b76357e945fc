"""Four questions about single published numbers, each answered by a table of committed runs.

``collapse``: what becomes of Z at lambda = 500. ``rounding``: FREM in single and in double precision.
``seeds``: cells outside the tolerance with other seeds. ``scaling``: scales learned on all rows.
"""

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from torch import Tensor, nn

from benchmarks._pool import spread
from benchmarks._protocol import PUBLISHED, SEEDS, Split, published, published_gdp, split_of
from benchmarks._record import RESULTS, Runs
from benchmarks.paper._methods import CONTENDERS, LAMS, AsWritten
from benchmarks.paper.sweep import DATASETS, SLOW, measured, predicted, stacked
from frhsic import GDP, HSIC, FRHSICClassifier, Penalty, Training
from frhsic.kernels import Gaussian

Cell = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """One command: cells that are trained where they are missing, and a summary of them.

    ``options`` are numbers of the command line with their defaults; ``cells`` reads them. The summary is
    written under ``key``.
    """

    name: str
    title: str
    options: dict[str, int]
    cells: Callable[[argparse.Namespace], list[Cell]]
    train: Callable[[Cell], Cell]
    summarise: Callable[[list[Cell]], Any]
    key: str = "summary"
    header: dict[str, Any] = field(default_factory=dict)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this study."""
        for name, default in self.options.items():
            parser.add_argument(f"--{name}", type=int, default=default)
        parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes of one thread")
        parser.add_argument("--fresh", action="store_true", help="forget the runs made before")

    def run(self, arguments: argparse.Namespace) -> None:
        """Train what is missing, print the summary and write both."""
        header = {"seeds": SEEDS[: getattr(arguments, "splits", len(SEEDS))], **self.header}
        runs = Runs(f"{self.name}.json", fresh=arguments.fresh, **header)
        missing = [cell for cell in self.cells(arguments) if runs.missing(**cell)]
        work = partial(_train, self.train)
        for done in spread(missing, work, cost=_cost, workers=arguments.workers):
            runs.add(**done)
        summary = self.summarise(runs.runs)
        for row in summary.items() if isinstance(summary, dict) else summary:
            print(row)
        print(runs.write(**{self.key: summary}))


def _train(train: Callable[[Cell], Cell], cell: Cell) -> Cell:
    start = time.perf_counter()
    return {**cell, **train(cell), "seconds": round(time.perf_counter() - start, 1)}


def _cost(cell: Cell) -> float:
    return DATASETS.get(cell.get("dataset", ""), 1.0) * SLOW.get(cell.get("method", ""), 1.0)


# ---- collapse ----------------------------------------------------------------------------------------------

LAM = 500.0
DEFAULT_LAMS = (1.0, 10.0, 100.0)  # of the estimators' default penalty
# Held: sigma_Z fixed for 20 epochs, as published. The others are taken out of Z inside the graph.
SCALES = {
    "held": (Gaussian("median"), 20),
    "scale-free": (Gaussian("scale-free"), None),
    "whitened": (Gaussian("scale-free", whiten=True), None),
}
PENALTIES = [
    ("none", ""),
    *((estimator, scale) for scale in SCALES for estimator in ("biased", "unbiased")),
    *(("default", f"lam = {lam:g}") for lam in DEFAULT_LAMS),
]
COLUMNS = (
    "accuracy", "gdp_probabilities", "gdp_published", "spread", "first_direction", "hsic", "hsic_whitened",
    "r2_linear", "r2_boosted",
)  # fmt: skip


def _collapse_cells(arguments: argparse.Namespace) -> list[Cell]:
    return [
        {"estimator": estimator, "scale": scale, "seed": seed, "epochs": arguments.epochs}
        for seed in SEEDS[: arguments.splits]
        for estimator, scale in PENALTIES
    ]


def _train_penalty(cell: Cell) -> Cell:
    split, estimator, scale = split_of("adult", SEEDS.index(cell["seed"])), cell["estimator"], cell["scale"]
    kernel, every = SCALES.get(scale, (None, None))
    measure = HSIC(kernel, estimator="unbiased" if estimator == "unbiased" else "biased")
    model = FRHSICClassifier(
        lam=LAM if scale in SCALES else float(scale.rpartition(" ")[2] or 0),
        penalty=None if estimator == "default" else Penalty(measure),
        epochs=cell["epochs"],
        random_state=cell["seed"],
        training=Training(every=every, scaling="minmax"),
    )
    return judge(model.fit(split.x, split.y, sensitive_features=split.s), split)


def judge(model: FRHSICClassifier, split: Split) -> dict[str, float]:
    """Return performance, dependence and what two regressions recover of S from Z, on the test rows."""
    z, z_test = model.transform(split.x), model.transform(split.x_test)
    probability = model.predict_proba(split.x_test)[:, 1]
    s_test = torch.from_numpy(split.s_test)
    variances = np.linalg.eigvalsh(np.cov(z_test.T))
    # At unit size: boosting bins and least squares must not fail because Z is small.
    centre, size = z.mean(axis=0), max(float(z.std()), 1e-300)
    z, z_unit = (z - centre) / size, (z_test - centre) / size
    rows = torch.from_numpy(z_unit[:2000])
    plain = HSIC(estimator="unbiased", normalized=True)
    white = HSIC(Gaussian("scale-free", whiten=True), estimator="unbiased", normalized=True)
    boosted = HistGradientBoostingRegressor(random_state=0).fit(z, split.s)
    return {
        "accuracy": model.score(split.x_test, split.y_test),
        "gdp_probabilities": GDP(0.1)(torch.from_numpy(probability), s_test).item(),
        "gdp_published": published_gdp(model.decision_function(split.x_test), split.s_test),
        "spread": float(np.sqrt(variances.sum())),
        "first_direction": float(variances[-1] / variances.sum()),
        "hsic": plain(rows, s_test[:2000]).item(),
        "hsic_whitened": white(rows, s_test[:2000]).item(),
        "r2_linear": LinearRegression().fit(z, split.s).score(z_unit, split.s_test),
        "r2_boosted": boosted.score(z_unit, split.s_test),
    }


def _collapse_table(runs: list[Cell]) -> dict[str, dict[str, float]]:
    table = {}
    for estimator, scale in PENALTIES:
        chosen = [one for one in runs if (one["estimator"], one["scale"]) == (estimator, scale)]
        table[f"{estimator} {scale}".strip()] = {
            name: float(f"{statistics.mean(one[name] for one in chosen):.3g}") for name in COLUMNS
        }
    return table


COLLAPSE = Study(
    "collapse",
    "Adult: {biased, unbiased} x {held, scale-free, whitened} at lambda = 500, and the default penalty.",
    {"epochs": 25, "splits": 3},
    _collapse_cells,
    _train_penalty,
    _collapse_table,
    key="table",
    header={"lam": LAM},
)


# ---- rounding ----------------------------------------------------------------------------------------------


class PairByPair(AsWritten):
    """The same with differences of rows in the place of a product, which does not cancel."""

    def _squared(self, z: Tensor) -> Tensor:
        return (z[:, None] - z[None]).square().sum(dim=2)


ROUNDED_LAMS = (50.0, 100.0)
PRECISIONS = {
    "single": (torch.float32, AsWritten()),
    "single, distances pair by pair": (torch.float32, PairByPair()),
    "double": (torch.float64, AsWritten()),
}


def _rounding_cells(arguments: argparse.Namespace) -> list[Cell]:
    return [
        {"precision": precision, "lam": lam, "repeat": repeat, "epochs": arguments.epochs}
        for repeat, lam, precision in itertools.product(range(arguments.splits), ROUNDED_LAMS, PRECISIONS)
    ]


def _train_as_written(cell: Cell) -> Cell:
    """Train as the published script does, and return accuracy and GDP on the held-out rows."""
    data = split_of("compas", cell["repeat"])
    torch.manual_seed(SEEDS[cell["repeat"]])
    dtype, penalty = PRECISIONS[cell["precision"]]
    x, y, s, x_test = (torch.as_tensor(part, dtype=dtype) for part in (data.x, data.y, data.s, data.x_test))
    encoder = nn.Sequential(nn.Linear(x.shape[1], 50), nn.SELU(), nn.Linear(50, 50)).to(dtype)
    head = nn.Linear(50, 1).to(dtype)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(cell["epochs"]):
        for rows in torch.randperm(len(x)).split(256):
            z = encoder(x[rows])
            loss = nn.functional.binary_cross_entropy_with_logits(head(z).squeeze(1), y[rows])
            objective = loss + cell["lam"] * penalty(z, s[rows])
            optimizer.zero_grad()
            objective.backward()
            optimizer.step()
    with torch.no_grad():
        logits = head(encoder(x_test)).squeeze(1).double().numpy()
    return {
        "accuracy": float(np.mean((logits > 0) == data.y_test)),
        "gdp": published_gdp(logits, data.s_test),
    }


def _rounding_rows(runs: list[Cell]) -> list[Cell]:
    theirs = {
        float(row["lam"]): row
        for row in published("results_by_lambda")
        if (row["dataset"], row["method"]) == ("compas", "FREM")
    }
    rows = []
    for lam, precision in itertools.product(ROUNDED_LAMS, PRECISIONS):
        found = [one for one in runs if (one["lam"], one["precision"]) == (lam, precision)]
        row = {"lam": lam, "precision": precision, "splits": len(found)}
        for name in ("accuracy", "gdp"):
            values = [one[name] for one in found]
            row |= {name: statistics.mean(values), f"{name}_sd": statistics.pstdev(values)}
        if lam in theirs:
            row |= {"accuracy_published": float(theirs[lam]["perf_mean"])}
            row |= {"gdp_published": float(theirs[lam]["gdp_mean"])}
        rows.append(row)
    return rows


ROUNDING = Study(
    "rounding",
    "FREM on COMPAS by the published formula in single and in double precision (half an hour).",
    {"epochs": 200, "splits": 5},
    _rounding_cells,
    _train_as_written,
    _rounding_rows,
)


# ---- seeds -------------------------------------------------------------------------------------------------

# Of the first most cells are outside. LAFTR has fewer than nine in ten within: all of its grid.
OUTSIDE: dict[tuple[str, str], tuple[float, ...]] = {
    ("compas", "FREM"): (50.0, 100.0),
    ("crime-householdsize", "LAFTR (binned)"): LAMS,
    ("compas", "LAFTR (binned)"): LAMS,
    ("adult", "LAFTR (binned)"): LAMS,
}


def _seeds_cells(arguments: argparse.Namespace) -> list[Cell]:
    return [
        {"dataset": dataset, "method": method, "split": split, "number": number, "epochs": arguments.epochs}
        for number in range(1, arguments.seeds + 1)
        for dataset, method in OUTSIDE
        for split in range(len(SEEDS))
    ]


def _train_seed(cell: Cell) -> Cell:
    data, seed = split_of(cell["dataset"], cell["split"]), 1_000 * cell["number"] + SEEDS[cell["split"]]
    estimator = CONTENDERS[cell["method"]].estimator(
        "lam", regression=data.regression, epochs=cell["epochs"], seed=seed
    )
    return {"cells": _train_lams(estimator, data, OUTSIDE[cell["dataset"], cell["method"]])}


def _train_lams(estimator: Any, data: Split, lams: Sequence[float]) -> list[dict[str, float]]:
    """Return performance and GDP on the held-out rows at each lambda, in one stacked pass."""
    rows = []
    for lam, model in zip(lams, stacked(estimator, data, lams=lams), strict=True):
        found = measured(*predicted(model, data), data, slice(None))
        rows.append({"lam": lam, "perf": found["perf"], "gdp_grid": found["gdp_grid"]})
    return rows


def _seeds_rows(runs: list[Cell]) -> list[Cell]:
    """Return for each cell and measure the means of five splits, one for each seed that has them all."""
    rows = []
    for (dataset, method), lams in OUTSIDE.items():
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


OTHER_SEEDS = Study(
    "seeds",
    "LAFTR on its whole grid, FREM where it is outside, with other seeds of weights and batches (80 min).",
    {"epochs": 200, "seeds": 4},
    _seeds_cells,
    _train_seed,
    _seeds_rows,
    header={"seeds": "1,000 times a number and that of the split"},
)


# ---- scaling -----------------------------------------------------------------------------------------------

SCALED = ("adult", "compas", "crime-householdsize")
SCALED_LAMS = (0.0, 10.0, 50.0)  # of FRHSIC-published


def _scaling_cells(arguments: argparse.Namespace) -> list[Cell]:
    return [
        {"dataset": dataset, "split": split, "on_all": on_all, "epochs": arguments.epochs}
        for dataset, split, on_all in itertools.product(SCALED, range(len(SEEDS)), (False, True))
    ]


def _train_scaled(cell: Cell) -> Cell:
    """Train as the sweep does, on rows as the split has scaled them: the estimator would do it once more."""
    data = split_of(cell["dataset"], cell["split"], on_all=cell["on_all"])
    estimator = CONTENDERS["FRHSIC-published"].estimator(
        "lam", regression=data.regression, epochs=cell["epochs"], seed=SEEDS[cell["split"]]
    )
    estimator.set_params(training=replace(PUBLISHED, scaling="none"))
    return {"cells": _train_lams(estimator, data, SCALED_LAMS)}


def scaling_rows(runs: list[Cell] | None = None) -> list[Cell]:
    """Return means over the splits by scaling, and their difference in deviations over the splits."""
    if runs is None:
        runs = json.loads((RESULTS / "scaling.json").read_text())["runs"]
    table = []
    for dataset, lam, measure in itertools.product(SCALED, SCALED_LAMS, ("perf", "gdp_grid")):
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


SCALING = Study(
    "scaling",
    "Scales learned on the training rows or on all rows, as three of the published scripts do (20 minutes).",
    {"epochs": 200},
    _scaling_cells,
    _train_scaled,
    scaling_rows,
)
