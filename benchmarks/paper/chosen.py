"""The weights of a representation's penalties, chosen for each dataset on its training rows (resumable).

One fifth of the training rows of the first split is held out for it; no test row of that split is read. One
fifth is little: a weight may look better than it is, and the best of many looks better than it is.
"""

import argparse
import json
from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from benchmarks._protocol import SEEDS, Split, dataset, output_of, score_of, split_of
from benchmarks._record import RESULTS
from benchmarks._simulate import Task, opened, spread
from benchmarks.paper import _judges
from benchmarks.paper._matched import DATASETS, WIDTHS, Pair
from benchmarks.paper.representation import Setting, fit, of_sweep, ours, performance_of, unit_of, uses_of
from frhsic import GDP
from frhsic.datasets import paper_split

NAME = "chosen.json"
FAST = ("ridge", "MLP", "boosted")
STEPS = 400  # at least
SETTINGS = {
    "weakest": Setting(0.05, 0.1, 0.13, 0.02, STEPS),
    "weak": Setting(0.1, 0.2, 0.13, 0.02, STEPS),
    "less noise": Setting(0.25, 0.4, 0.13, 0.02, STEPS),
    "low": Setting(0.25, 0.4, 0.13, 0.05, STEPS),
    "middle": Setting(0.4, 0.4, 0.13, 0.05, STEPS),
    "high": Setting(0.6, 0.4, 0.13, 0.05, STEPS),
    "some score": Setting(0.25, 0.65, 0.15, 0.05, STEPS),
    "gap": Setting(0.25, 0.72, 0.15, 0.05, STEPS),
    "score": Setting(0.3, 1.0, 0.2, 0.05, STEPS),
    "Z": Setting(0.6, 0.15, 0.07, 0.05, STEPS),
    "Z and use": Setting(0.6, 0.25, 0.11, 0.05, STEPS),
    "more Z": Setting(1.0, 0.2, 0.07, 0.05, STEPS),
    "mostly Z": Setting(1.0, 0.25, 0.07, 0.05, STEPS),
    # Squares of a small gap are small: its weight must be larger.
    "small gap": Setting(0.3, 9.0, 0.6, 0.025, STEPS),
    "small gap, less use": Setting(0.35, 8.0, 0.5, 0.03, STEPS),
    "small gap, more Z": Setting(0.8, 9.0, 0.5, 0.02, STEPS),
    "small gap, mostly Z": Setting(1.0, 8.0, 0.42, 0.02, STEPS),
}


@cache
def chosen(name: str, width: int) -> Setting:
    """Return the setting that comes nearest to all that is asked, on training rows held out."""
    path = RESULTS / NAME
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    found = {run["setting"]: run["found"] for run in runs if (run["dataset"], run["width"]) == (name, width)}
    if not {"none", *SETTINGS} <= set(found):
        raise SystemExit(f"{NAME} has not all settings. Run python -m benchmarks chosen first.")
    pairs = {key: Pair(SETTINGS[key].z, found[key], found["none"], 1) for key in SETTINGS}
    return SETTINGS[min(SETTINGS, key=lambda key: pairs[key].worst(name, width))]


def work(task: Task) -> Task:
    """Train one setting, or the network without a penalty, and judge it on rows that are held out."""
    name, width = task["dataset"], task["width"]
    whole, (rows, _) = split_of(name, 0), paper_split(len(dataset(name).y), repeat=0)
    inside, outside = train_test_split(np.arange(len(rows)), test_size=0.2, random_state=0)
    (x, y, s), (x_test, y_test, s_test) = (
        [one[part] for one in (whole.x, whole.y, whole.s)] for part in (inside, outside)
    )
    data = Split(x, y, s, x_test, y_test, s_test, whole.regression)
    setting = SETTINGS.get(task["setting"])
    options: dict[str, Any] = {"rows": len(data.y), "regression": data.regression, "seed": SEEDS[0]}
    model = (
        of_sweep("Unfair", data, width, SEEDS[0])
        if setting is None
        else ours(width, setting, unit=unit_of(data), **options)
    )
    fit([model], data)
    z, z_test = model.transform(data.x), model.transform(data.x_test)
    score = score_of(output_of(model, data.x_test, regression=data.regression), regression=data.regression)
    uses = uses_of(name)[rows]
    return {
        "found": {
            **performance_of(model, data),
            "r2_max": max(_judges.recovered(z, data.s, z_test, data.s_test, FAST).values()),
            "gdp": GDP(0.1)(torch.from_numpy(score), torch.from_numpy(data.s_test)).item(),
            "use": _judges.use(z, uses[inside], z_test, uses[outside]),
        }
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, and print what is chosen."""
    runs = opened(NAME, fresh=arguments.fresh, quick=False, settings=SETTINGS)
    cells = [(name, width) for name in arguments.datasets for width in arguments.widths]
    tasks = [
        {"dataset": name, "width": width, "setting": setting}
        for name, width in cells
        for setting in ("none", *SETTINGS)
    ]
    spread(runs, tasks, work)
    runs.write()
    for name, width in cells:
        print(f"{name}, {width} columns: {chosen(name, width)}")
