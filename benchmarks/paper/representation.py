"""What Z tells about S at matched accuracy, for every method at two widths (resumable).

The weights of ``recovered`` were chosen by ``ideas`` on development data, those of ``selected`` by ``chosen``
on the training rows of each dataset. The methods of the sweep are trained as published, at the strongest
lambda of their nine that keeps the accuracy in the sweep.
"""

import argparse
import json
import math
import time
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from benchmarks._pool import spread
from benchmarks._protocol import (
    SEEDS,
    Array,
    Split,
    dataset,
    output_of,
    score_of,
    split_of,
    training_commit,
)
from benchmarks._record import RESULTS, provenance, read_rows, write_rows, write_section
from benchmarks.paper import _judges
from benchmarks.paper._matched import (
    CELL,
    DATASETS,
    METHODS,
    OURS,
    R2_LOST,
    WIDTHS,
    figure,
    least_performance,
    summary,
    table,
)
from benchmarks.paper._methods import CONTENDERS
from benchmarks.paper.sweep import gaps, read
from frhsic import GDP, FRHSICClassifier, FRHSICRegressor, Penalty, Training
from frhsic.datasets import paper_split
from frhsic.dependence import BinnedMMD, RecoveredVariance
from frhsic.inference.bounds import worst_case_head

TABLE, HEADER = RESULTS / "representation.csv", RESULTS / "representation.json"
BATCH = 2_048
EPOCHS = 120
USES = {"adult": ["hours-per-week", "education-num"]}
Cell = tuple[str, str, int, int]


class Setting(NamedTuple):
    """Weights of recovered variance of Z, of squared mean gaps of the score, and of X rebuilt; and more."""

    z: float
    score: float = 0.4
    rebuild: float = 0.13
    noise: float = 0.05
    steps: int = 1_500  # at least


STRENGTHS = (0.25, 0.4, 0.6)  # the weights of the penalty on Z of ``recovered``
COLUMNS = (
    *("dataset", "method", "width", "split", "strength", "performance", "base", "r2_max", "judge", "gdp"),
    *("gap", "use", "information", "gap_heads", "worst_head", "seconds", "commit"),
)


def ours(
    width: int, setting: Setting, *, rows: int, regression: bool, seed: int, unit: float = 1.0
) -> FRHSICClassifier | FRHSICRegressor:
    """Return the estimator of some weights, for a loss of ``unit`` times that of labels."""
    kind = FRHSICRegressor if regression else FRHSICClassifier
    each = max(1, round(rows / BATCH))
    of_z = Penalty(RecoveredVariance(192, seed=None, exact_gradient=False))
    of_score = Penalty(BinnedMMD(10), on="prediction" if regression else "probability")
    return kind(
        lam=unit,
        penalty=setting.z * of_z + setting.score * of_score,
        encoder=(50, width),
        epochs=max(EPOCHS, math.ceil(setting.steps / each)),
        batch_size=BATCH,
        learning_rate=3e-3,
        random_state=seed,
        training=Training(
            scaling="minmax",
            clip=5.0,
            penalty_every=8,
            noise=setting.noise,
            rebuild=unit * setting.rebuild,
        ),
    )


def of_sweep(method: str, data: Split, width: int, seed: int) -> FRHSICClassifier | FRHSICRegressor:
    """Return a method of the sweep, as published but for the width."""
    found = CONTENDERS[method].estimator("lam", regression=data.regression, epochs=200, seed=seed)
    return found.set_params(encoder=(50, width))


@cache
def lam_of(name: str, method: str) -> float:
    """Return the strongest lambda that keeps the performance in the sweep, the weakest where none does."""
    rows = [row for row in read() if row["dataset"] == name and row["form"] == "lam"]
    means: dict[tuple[str, float], tuple[float, float]] = {}
    for key in {(row["method"], float(row["strength"])) for row in rows}:
        own = [row for row in rows if (row["method"], float(row["strength"])) == key]
        means[key] = (
            float(np.mean([float(row["perf"]) for row in own])),
            float(np.mean([float(row["perf_base"]) for row in own])),
        )
    free, base = means["Unfair", 0.0]
    if name == "crime":  # mean squared errors, of which R^2 is 1 - MSE / base
        kept = [key for key, (perf, _) in means.items() if perf <= free + R2_LOST * base]
    else:
        least = least_performance(free, base, regression=False)
        kept = [key for key, (perf, _) in means.items() if perf >= least]
    own_strengths = [strength for other, strength in means if other == method]
    return max([strength for other, strength in kept if other == method], default=min(own_strengths))


@cache
def uses_of(name: str) -> Array:
    """Return columns that no method is trained for, as codes in their order: at most ten of the table."""
    frame = dataset(name).bunch.data
    chosen = USES.get(name)
    if chosen is None:
        several = [one for one in frame if frame[one].nunique() > 2]
        chosen = several[:: math.ceil(len(several) / 10)]
    return np.column_stack([pd.factorize(frame[one], sort=True)[0] for one in chosen]).astype(np.float64)


def settings_of(name: str, method: str, width: int) -> list[Setting]:
    """Return the weights at which a method is judged; a method of the sweep has its lambda."""
    if method == "selected":
        from benchmarks.paper.chosen import chosen  # which trains by this module

        return [chosen(name, width)]
    return [Setting(z) for z in (STRENGTHS if method == OURS else (lam_of(name, method),))]


def unit_of(data: Split) -> float:
    """Return what a constant prediction misses: the variance of a target in [0, 1], over log 2 of labels."""
    return float(np.var(data.y)) / np.ptp(data.y) ** 2 / math.log(2.0) if data.regression else 1.0


def fit(models: list[Any], data: Split) -> None:
    """Train models, with the smallest numbers as zero: much faster, and far below rounding."""
    torch.set_flush_denormal(True)
    for model in models:
        model.fit(data.x, data.y, sensitive_features=data.s)
    torch.set_flush_denormal(False)


def worked(task: tuple[Cell, list[Setting]]) -> list[dict[str, Any]]:
    """Train a method on one split and judge it at each of some settings."""
    cell, settings = task
    name, method, width, repeat = cell
    data, seed = split_of(name, repeat), SEEDS[repeat]
    start = time.perf_counter()
    if method in (OURS, "selected"):
        options: dict[str, Any] = {"rows": len(data.y), "regression": data.regression, "unit": unit_of(data)}
        models = [ours(width, setting, seed=seed, **options) for setting in settings]
    else:
        models = [of_sweep(method, data, width, seed).set_params(lam=setting.z) for setting in settings]
    fit(models, data)
    seconds = (time.perf_counter() - start) / len(models)
    uses, (train, test) = uses_of(name), paper_split(len(dataset(name).y), repeat=repeat)
    rows = []
    for setting, model in zip(settings, models, strict=True):
        row = dict(zip(CELL, cell, strict=True)) | {"strength": setting.z}
        found = judged(model, data, uses[train], uses[test])
        rows.append(row | found | {"seconds": round(seconds, 2), "commit": training_commit()})
    return rows


def performance_of(model: Any, data: Split) -> dict[str, float]:
    """Return the accuracy and that of the more frequent label; R^2 and 0 for a regression."""
    output = output_of(model, data.x_test, regression=data.regression)
    if data.regression:
        missed = np.mean((output - data.y_test) ** 2) / np.mean((data.y.mean() - data.y_test) ** 2)
        return {"performance": float(1.0 - missed), "base": 0.0}
    return {
        "performance": float(np.mean((output > 0) == data.y_test)),
        "base": float(np.mean(data.y_test == (data.y.mean() > 0.5))),
    }


def judged(model: Any, data: Split, uses: Array, uses_test: Array) -> dict[str, Any]:
    """Return performance, what judges recover of S, gaps, and use, on held-out rows."""
    z, z_test = model.transform(data.x), model.transform(data.x_test)
    score = score_of(output_of(model, data.x_test, regression=data.regression), regression=data.regression)
    of_quartiles, information = _judges.quartiles(z, data.s, z_test, data.s_test)
    each = _judges.recovered(z, data.s, z_test, data.s_test) | of_quartiles
    heads = _judges.heads(z, data.y, z_test, regression=data.regression)
    s = torch.from_numpy(data.s_test)
    return {
        **performance_of(model, data),
        "r2_max": max(each.values()),
        "judge": max(each, key=each.__getitem__),
        "gdp": GDP(0.1)(torch.from_numpy(score), s).item(),
        "gap": gaps(score, data.s_test)["gap"],
        "use": _judges.use(z, uses, z_test, uses_test),
        "information": information,
        "gap_heads": max(gaps(one, data.s_test)["gap"] for one in heads.values()),
        "worst_head": worst_case_head(z_test[:1_000], data.s_test[:1_000], random_state=0).rms,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))
    parser.add_argument("--splits", nargs="*", type=int, default=list(range(5)))
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--table", action="store_true", help="only print the table")


def run(arguments: argparse.Namespace) -> None:
    """Train and judge what the table does not have, and write it after each."""
    rows = read_rows(TABLE)
    if not arguments.table:
        done = {(*(str(row[one]) for one in CELL), float(row["strength"])) for row in rows}
        tasks = []
        for cell in product(
            arguments.splits, arguments.methods, reversed(arguments.datasets), arguments.widths
        ):
            repeat, method, name, width = cell
            own = [
                setting
                for setting in settings_of(name, method, width)
                if (name, method, str(width), str(repeat), setting.z) not in done
            ]
            tasks += [((name, method, width, repeat), own)] if own else []
        header = provenance(seeds=SEEDS, threads_each=1, workers=arguments.workers)
        HEADER.write_text(json.dumps(header, indent=1) + "\n")
        for found in spread(tasks, worked, cost=_cost, workers=arguments.workers):
            rows += found
            write(rows)
    text = table(rows)
    print(text)
    write_section("evidence/representation.md", "representation", text, HEADER.name, rows)
    write_section("evidence/representation.md", "summary", summary(rows), HEADER.name, rows)
    figure(rows)


def write(rows: list[dict[str, Any]]) -> None:
    """Write the table in the order of datasets, methods and widths."""

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        which = DATASETS.index(row["dataset"]), int(row["width"]), METHODS.index(row["method"])
        return *which, int(row["split"]), float(row["strength"])

    write_rows(TABLE, COLUMNS, sorted(rows, key=place))


def _cost(task: tuple[Cell, list[Setting]]) -> float:
    (name, *_), settings = task
    return len(settings) * {"adult": 6.0, "acs_income": 4.0, "meps": 3.0, "compas": 2.0, "crime": 1.5}[name]
