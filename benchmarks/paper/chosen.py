"""The weights of a representation's penalties, searched for on the training rows of each dataset (resumable).

Training rows of the first split are cut into fifths, of which three are held out in turn: no test row of that
split is read. From one setting to the next each weight moves with what it is for: that on Z with R^2 of S,
that of the score with its gap, that of rebuilding with the use. Where accuracy is lost, R^2 and gap are aimed
at higher. Numbers of one held-out fifth are noisy: what is chosen is the mean of the last settings, not the
best of them.
"""

import argparse
import json
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import KFold

from benchmarks._protocol import SEEDS, Split, dataset, output_of, score_of, split_of
from benchmarks._record import RESULTS, Runs
from benchmarks._simulate import Task, opened, spread
from benchmarks.paper import _judges
from benchmarks.paper._matched import DATASETS, GDP_LEFT, LEFT, USE, WIDTHS, Pair
from benchmarks.paper.representation import Setting, fit, of_sweep, ours, performance_of, unit_of, uses_of
from frhsic import GDP
from frhsic.datasets import paper_split

NAME = "chosen.json"
FAST = ("MLP", "boosted", "forest")
FEW, MANY = 3_000, 15_000  # rows
FOLDS, ROUNDS, AVERAGED = 3, 9, 6
MARGIN = 0.93  # of what is asked: test rows differ from held-out rows


def first(rows: int, gdp: float) -> Setting:
    """Return where a search begins: few rows have less noise and fewer steps, a small gap more weight."""
    noise = 0.05 if rows > MANY else 0.02 if rows > FEW else 0.01
    steps = 2_000 if rows > MANY else max(500, round(0.1 * rows))
    score = float(f"{0.2 * max(1.0, (0.06 / gdp) ** 2):.2g}")
    return Setting(0.7, score, 0.2, noise, steps)


def following(setting: Setting, pair: Pair, name: str, width: int) -> Setting:
    """Return the next setting of a search, from what the last one left."""
    lost = pair.free["performance"] - pair.own["performance"]
    price = lost / (pair.free["performance"] - pair.least(name))
    aim = MARGIN * min(max(0.5 * (1.0 + price), 0.9), 2.5)
    steps = {
        "z": pair.left("r2_max") / (aim * LEFT[width]),
        "score": (pair.left("gdp") / (aim * GDP_LEFT)) ** 1.5,
        "rebuild": (100.0 * USE / (MARGIN * max(pair.left("use"), 1.0))) ** 2,
    }
    z, score, rebuild = (
        float(f"{getattr(setting, key) * min(max(step, 0.4), 2.5):.2g}") for key, step in steps.items()
    )
    return setting._replace(z=z, score=score, rebuild=rebuild)


def work(task: Task) -> Task:
    """Train one setting, or the network without a penalty, and judge it on rows that are held out."""
    name, width = task["dataset"], task["width"]
    whole, (rows, _) = split_of(name, 0), paper_split(len(dataset(name).y), repeat=0)
    inside, outside = list(KFold(5, shuffle=True, random_state=0).split(rows))[task["fold"]]
    (x, y, s), (x_test, y_test, s_test) = (
        [one[part] for one in (whole.x, whole.y, whole.s)] for part in (inside, outside)
    )
    data = Split(x, y, s, x_test, y_test, s_test, whole.regression)
    setting = task["setting"]
    options: dict[str, Any] = {"rows": len(data.y), "regression": data.regression, "seed": SEEDS[0]}
    model = (
        of_sweep("Unfair", data, width, SEEDS[0])
        if setting is None
        else ours(width, Setting(**setting), unit=unit_of(data), **options)
    )
    fit([model], data)
    z, z_test = model.transform(data.x), model.transform(data.x_test)
    score = score_of(output_of(model, data.x_test, regression=data.regression), regression=data.regression)
    uses = uses_of(name)[rows]
    return {
        "found": {
            "rows": len(whole.y) + len(whole.y_test),
            **performance_of(model, data),
            "r2_max": max(_judges.recovered(z, data.s, z_test, data.s_test, FAST).values()),
            "gdp": GDP(0.1)(torch.from_numpy(score), torch.from_numpy(data.s_test)).item(),
            "use": _judges.use(z, uses[inside], z_test, uses[outside]),
        }
    }


def settings(runs: list[dict[str, Any]], name: str, width: int) -> list[Setting]:
    """Return the settings of a search as far as its runs go: the last one is still to be tried."""
    cell = {"dataset": name, "width": width}
    own = [run for run in runs if cell.items() <= run.items() and "fold" in run]  # others: of an older search
    free = {run["fold"]: run["found"] for run in own if run["setting"] is None}
    if not free:
        return []
    path = [first(free[0]["rows"], free[0]["gdp"])]
    for number in range(ROUNDS):
        fold, setting = number % FOLDS, path[-1]
        key = {"fold": fold, "setting": setting._asdict()}
        found = next((run["found"] for run in own if key.items() <= run.items()), None)
        if found is None or fold not in free:
            break
        path.append(following(setting, Pair(setting.z, found, free[fold], 1), name, width))
    return path


def chosen(name: str, width: int) -> Setting:
    """Return the geometric mean of the last settings of a search."""
    runs = json.loads((RESULTS / NAME).read_text())["runs"]
    path = settings(runs, name, width)
    if len(path) <= ROUNDS:
        raise SystemExit(f"{NAME} has no whole search for {name}. Run python -m benchmarks chosen first.")
    return averaged(path[-AVERAGED:])


def averaged(path: list[Setting]) -> Setting:
    """Return the geometric mean of settings."""
    logs = np.log([[one.z, one.score, one.rebuild] for one in path])
    z, score, rebuild = (float(f"{value:.2g}") for value in np.exp(logs.mean(axis=0)))
    return path[0]._replace(z=z, score=score, rebuild=rebuild)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, and print what is chosen."""
    runs = opened(NAME, fresh=arguments.fresh, quick=False)
    cells = [{"dataset": name, "width": width} for name in arguments.datasets for width in arguments.widths]
    spread(runs, [{**cell, "fold": k, "setting": None} for cell in cells for k in range(FOLDS)], work)
    for number in range(ROUNDS):
        spread(runs, [_task(runs, cell, number) for cell in cells], work)
    runs.write()
    for name in arguments.datasets:
        for width in arguments.widths:
            print(f"{name}, {width} columns: {chosen(name, width)}")


def _task(runs: Runs, cell: Task, number: int) -> Task:
    setting = settings(runs.runs, cell["dataset"], cell["width"])[number]
    return {**cell, "fold": number % FOLDS, "setting": setting._asdict()}
