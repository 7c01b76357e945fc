"""The weights of a representation's penalties, chosen for each dataset on its training rows (resumable).

One fifth of the training rows of the first split is held out for it; no test row of that split is read.
"""

import argparse
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from benchmarks._protocol import SEEDS, Split, dataset, output_of, score_of, split_of
from benchmarks._simulate import Task, opened, spread
from benchmarks.paper import _judges
from benchmarks.paper._matched import DATASETS, WIDTHS
from benchmarks.paper.representation import (
    CHOSEN,
    SETTINGS,
    chosen,
    fit,
    of_sweep,
    ours,
    performance_of,
    unit_of,
    uses_of,
)
from frhsic import GDP
from frhsic.datasets import paper_split

FAST = ("ridge", "MLP", "boosted")


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
    runs = opened(CHOSEN.name, fresh=arguments.fresh, quick=False, settings=SETTINGS)
    cells = [(name, width) for name in arguments.datasets for width in arguments.widths]
    tasks = [
        {"dataset": name, "width": width, "setting": setting}
        for name, width in cells
        for setting in ("none", *SETTINGS)
    ]
    spread(runs, tasks, work)
    runs.write()
    for name, width in cells:
        setting, pair = chosen(name, width)
        left = ", ".join(f"{key} {pair.left(key):.0f} %" for key in ("performance", "r2_max", "gdp", "use"))
        print(f"{name}, {width} columns: {setting} {SETTINGS[setting]}; {left} {pair.lost(name)}")
