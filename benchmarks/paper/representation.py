"""What Z tells about S at matched accuracy, for every method at two widths (resumable).

The settings of ``recovered`` were chosen by ``ideas`` on development data. Those of the sweep are trained as
published, at the strongest lambda of their nine that keeps the accuracy in the sweep.
"""

import argparse
import json
import math
import time
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks._figures import house_style
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
from benchmarks._record import DOCS, RESULTS, provenance, read_rows, write_rows
from benchmarks.paper import _judges
from benchmarks.paper._methods import CONTENDERS
from benchmarks.paper.sweep import gaps, read
from frhsic import GDP, FRHSICClassifier, FRHSICRegressor, Penalty, Training
from frhsic.datasets import paper_split
from frhsic.dependence import BinnedMMD, RecoveredVariance
from frhsic.inference.bounds import worst_case_head

TABLE = RESULTS / "representation.csv"
DATASETS = ("adult", "acs_income", "meps", "compas", "crime")
WIDTHS = (8, 50)
OURS = "recovered"
STRENGTHS = (0.25, 0.4, 0.6)  # the weights of the penalty on Z; what else is weighed stays as it is
SCORE = 0.4  # of the squared mean gaps of the score in ten bins of S
REBUILD = 0.13
NOISE = 0.05
STEPS = 1_500  # of each of our trainings, at least
BATCH = 2_048
EPOCHS = 120
USES = {"adult": ["hours-per-week", "education-num"]}
COLUMNS = (
    *("dataset", "method", "width", "split", "strength", "performance", "base", "r2_max", "judge", "gdp"),
    *("gap", "use", "information", "gap_heads", "worst_head", "seconds", "commit"),
)
CELL = ("dataset", "method", "width", "split")
ACCURACY, ABOVE_BASE, R2_LOST, USE = 0.99, 0.95, 0.02, 0.8


def ours(
    width: int, strength: float, *, rows: int, regression: bool, seed: int, unit: float = 1.0
) -> FRHSICClassifier | FRHSICRegressor:
    """Return the estimator, as chosen on development data, for a loss of ``unit`` times that of labels."""
    kind = FRHSICRegressor if regression else FRHSICClassifier
    steps = max(1, round(rows / BATCH))
    of_z = Penalty(RecoveredVariance(192, seed=None, exact_gradient=False))
    of_score = Penalty(BinnedMMD(10), on="prediction" if regression else "probability")
    return kind(
        lam=unit,
        penalty=strength * of_z + SCORE * of_score,
        encoder=(50, width),
        epochs=max(EPOCHS, math.ceil(STEPS / steps)),
        batch_size=BATCH,
        learning_rate=3e-3,
        random_state=seed,
        training=Training(scaling="minmax", clip=5.0, penalty_every=8, noise=NOISE, rebuild=unit * REBUILD),
    )


def of_sweep(method: str, data: Split, width: int, seed: int) -> FRHSICClassifier | FRHSICRegressor:
    """Return a method of the sweep, as published but for the width."""
    found = CONTENDERS[method].estimator("lam", regression=data.regression, epochs=200, seed=seed)
    return found.set_params(encoder=(50, width))


def least_performance(free: float, base: float, *, regression: bool) -> float:
    """Return the performance that counts as kept: of a regression R^2, else the accuracy."""
    if regression:
        return free - R2_LOST
    return max(ACCURACY * free, base + ABOVE_BASE * (free - base))


@cache
def matched(name: str, method: str) -> float:
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


def worked(cell: tuple[str, str, int, int]) -> list[dict[str, Any]]:
    """Train a method on one split and judge it at each of its strengths."""
    name, method, width, repeat = cell
    data, seed = split_of(name, repeat), SEEDS[repeat]
    start = time.perf_counter()
    if method == OURS:
        strengths: tuple[float, ...] = STRENGTHS
        # What a constant prediction misses: the variance of a target in [0, 1], where labels have log 2.
        unit = float(np.var(data.y)) / np.ptp(data.y) ** 2 / math.log(2.0) if data.regression else 1.0
        options: dict[str, Any] = {"rows": len(data.y), "regression": data.regression, "seed": seed}
        options["unit"] = unit
        models = [ours(width, strength, **options) for strength in strengths]
    else:
        strengths = (matched(name, method),)
        models = [of_sweep(method, data, width, seed).set_params(lam=strengths[0])]
    torch.set_flush_denormal(True)
    for model in models:
        model.fit(data.x, data.y, sensitive_features=data.s)
    torch.set_flush_denormal(False)
    seconds = (time.perf_counter() - start) / len(models)
    uses, (train, test) = uses_of(name), paper_split(len(dataset(name).y), repeat=repeat)
    rows = []
    for strength, model in zip(strengths, models, strict=True):
        row = dict(zip(CELL, cell, strict=True)) | {"strength": strength}
        found = judged(model, data, uses[train], uses[test])
        rows.append(row | found | {"seconds": round(seconds, 2), "commit": training_commit()})
    return rows


def judged(model: Any, data: Split, uses: Array, uses_test: Array) -> dict[str, Any]:
    """Return performance, what judges recover of S, gaps, and use, on held-out rows."""
    z, z_test = model.transform(data.x), model.transform(data.x_test)
    output = output_of(model, data.x_test, regression=data.regression)
    score = score_of(output, regression=data.regression)
    if data.regression:
        performance = 1.0 - np.mean((output - data.y_test) ** 2) / np.mean((data.y.mean() - data.y_test) ** 2)
        base = 0.0
    else:
        performance = np.mean((output > 0) == data.y_test)
        base = np.mean(data.y_test == (data.y.mean() > 0.5))
    of_quartiles, information = _judges.quartiles(z, data.s, z_test, data.s_test)
    recovered = _judges.recovered(z, data.s, z_test, data.s_test) | of_quartiles
    heads = _judges.heads(z, data.y, z_test, regression=data.regression)
    s = torch.from_numpy(data.s_test)
    return {
        "performance": float(performance),
        "base": float(base),
        "r2_max": max(recovered.values()),
        "judge": max(recovered, key=recovered.__getitem__),
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
    parser.add_argument("--methods", nargs="*", default=["Unfair", OURS, *list(CONTENDERS)[1:]])
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--table", action="store_true", help="only print the table")


def run(arguments: argparse.Namespace) -> None:
    """Train and judge what the table does not have, and write it after each."""
    rows = read_rows(TABLE)
    if not arguments.table:
        done = {tuple(row[one] for one in CELL) for row in rows}
        cells = [
            (name, method, width, repeat)
            for method in arguments.methods
            for name in reversed(arguments.datasets)
            for repeat in range(arguments.splits)
            for width in arguments.widths
            if (name, method, str(width), str(repeat)) not in done
        ]
        header = provenance(seeds=SEEDS, threads_each=1, workers=arguments.workers)
        for found in spread(cells, worked, cost=_cost, workers=arguments.workers):
            rows += found
            write(rows)
            TABLE.with_suffix(".json").write_text(json.dumps(header, indent=1) + "\n")
    print(table(rows))
    with house_style():
        figure(rows)


def write(rows: list[dict[str, Any]]) -> None:
    """Write the table in the order of datasets, methods and widths."""
    methods = ["Unfair", OURS, *CONTENDERS]

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        which = DATASETS.index(row["dataset"]), int(row["width"]), methods.index(row["method"])
        return *which, int(row["split"]), float(row["strength"])

    write_rows(TABLE, COLUMNS, sorted(rows, key=place))


def _cost(cell: tuple[str, str, int, int]) -> float:
    return {"adult": 6.0, "acs_income": 4.0, "meps": 3.0, "compas": 2.0, "crime": 1.5}[cell[0]]


NUMBERS = ("performance", "base", "r2_max", "gdp", "gap", "use", "information", "gap_heads", "worst_head")


def means(rows: list[dict[str, Any]]) -> dict[tuple[str, int, str, float], dict[str, float]]:
    """Return means over splits, by dataset, width, method and strength."""
    found: dict[tuple[str, int, str, float], list[dict[str, Any]]] = {}
    for row in rows:
        key = row["dataset"], int(row["width"]), row["method"], float(row["strength"])
        found.setdefault(key, []).append(row)
    return {
        key: {name: float(np.mean([float(row[name]) for row in own])) for name in NUMBERS}
        | {"splits": len(own)}
        for key, own in found.items()
    }


def matched_points(
    rows: list[dict[str, Any]],
) -> dict[tuple[str, int, str], tuple[float, dict[str, float], str]]:
    """Return the strongest penalty that keeps performance and use, means, and what is not kept.

    By dataset, width and method; the weakest penalty where none keeps both. Means are over the splits that
    the network without a penalty has, too.
    """
    every = means(rows)
    found: dict[tuple[str, int, str], tuple[float, dict[str, float], str]] = {}
    for (name, width, method, strength), own in sorted(every.items()):
        free = every.get((name, width, "Unfair", 0.0))
        if free is None or own["splits"] != free["splits"]:
            continue
        least = least_performance(free["performance"], free["base"], regression=name == "crime")
        lost = [] if own["performance"] >= least else ["performance"]
        lost += [] if own["use"] >= USE * free["use"] else ["use"]
        if not lost or (name, width, method) not in found:
            found[name, width, method] = strength, own, " and ".join(lost)
    return found


def figure(rows: list[dict[str, Any]]) -> None:
    """Draw R^2 left against accuracy, all methods, as means over splits."""
    import matplotlib.pyplot as plt

    every = means(rows)
    names = [name for name in DATASETS if any(key[0] == name and key[2] == OURS for key in every)]
    made, axes = plt.subplots(
        len(WIDTHS), len(names), figsize=(2.9 * len(names), 5.2), layout="constrained", squeeze=False
    )
    labels: dict[str, Any] = {}
    for at, axis in np.ndenumerate(axes):
        width, name = WIDTHS[at[0]], names[at[1]]
        free = every[name, width, "Unfair", 0.0]
        for method in (*list(CONTENDERS)[1:], OURS):
            points = [every[key] for key in sorted(every) if key[:3] == (name, width, method)]
            if not points:
                continue
            look = CONTENDERS.get(method)
            x = [100.0 * (point["performance"] - free["performance"]) for point in points]
            y = [100.0 * point["r2_max"] / free["r2_max"] for point in points]
            colour, marker = ("#B00020", "o") if look is None else (look.colour, look.marker)
            labels[method] = axis.plot(
                x, y, marker=marker, color=colour, ms=5, lw=1.2 if look is None else 0, zorder=3
            )[0]
        labels["no penalty"] = axis.plot(0.0, 100.0, marker="*", color="black", ms=9, lw=0)[0]
        axis.axhline(35.0 if width == 8 else 50.0, color="0.7", lw=0.8, ls=":")
        lost = least_performance(free["performance"], free["base"], regression=name == "crime")
        axis.axvline(100.0 * (lost - free["performance"]), color="0.7", lw=0.8, ls=":")
        axis.set(ylim=(0.0, 125.0), title=f"{name}, {width} columns")
    for axis in axes[-1]:
        axis.set_xlabel("points of accuracy (R² for crime)")
    for axis in axes[:, 0]:
        axis.set_ylabel("R² of S left, %")
    made.legend(labels.values(), labels, loc="outside lower center", ncols=6, frameon=False)
    made.savefig(DOCS / "figures" / "representation.png", dpi=110)
    plt.close(made)


def table(rows: list[dict[str, Any]]) -> str:
    """Return what each method leaves of the numbers of the network without a penalty, at matched accuracy."""
    points = matched_points(rows)
    head = "| data | width | method | strength | performance | R^2 left | GDP left | gap left | use kept |"
    lines = [head + " not kept |", "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"]
    for name in DATASETS:
        for width in WIDTHS:
            for method in ("Unfair", OURS, *list(CONTENDERS)[1:]):
                if (name, width, method) not in points:
                    continue
                _, free, _ = points[name, width, "Unfair"]
                strength, own, lost = points[name, width, method]
                if method == "Unfair":
                    cells = [f"{own[key]:.3f}" for key in ("r2_max", "gdp", "gap", "use")]
                else:
                    cells = [
                        f"{100.0 * max(own[key], 0.0) / free[key]:.0f} %"
                        for key in ("r2_max", "gdp", "gap", "use")
                    ]
                row = f"{strength:g} | {own['performance']:.4f} | {' | '.join(cells)}"
                lines.append(f"| {name} | {width} | {method} | {row} | {lost} |")
    return "\n".join(lines)
