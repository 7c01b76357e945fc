"""The weights of a representation's penalties, chosen for each dataset on its training rows (resumable).

One fifth of the training rows of the first split is held out for it; no test row of that split is read. From
one setting to the next each weight moves with what it is for: that on Z with R^2 of S, that of the score with
its gap, that of rebuilding with the use. Where accuracy is lost, R^2 and gap are aimed at higher.
"""

import argparse
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from benchmarks._protocol import SEEDS, Split, dataset, output_of, score_of, split_of
from benchmarks._record import Runs
from benchmarks._simulate import Task, opened, spread
from benchmarks.paper import _judges
from benchmarks.paper._matched import DATASETS, GDP_LEFT, LEFT, USE, WIDTHS, Pair
from benchmarks.paper.representation import (
    CHOSEN,
    Setting,
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

FAST = ("MLP", "boosted", "forest")
FEW, MANY = 3_000, 15_000  # rows


def first(name: str, gdp: float) -> Setting:
    """Return where a search begins: few rows have less noise and fewer steps, a small gap more weight."""
    rows = len(dataset(name).y)
    noise = 0.05 if rows > MANY else 0.02 if rows > FEW else 0.01
    steps = 2_000 if rows > MANY else max(500, round(0.1 * rows))
    score = float(f"{0.2 * max(1.0, (0.06 / gdp) ** 2):.2g}")
    return Setting(1.0, score, 0.2, noise, steps, "cosine")


def following(setting: Setting, pair: Pair, name: str, width: int) -> Setting:
    """Return the next setting of a search, from what the last one left."""
    lost = pair.free["performance"] - pair.own["performance"]
    price = lost / (pair.free["performance"] - pair.least(name))
    aim = min(max(0.5 * (1.0 + price), 0.9), 2.5)
    steps = {
        "z": pair.left("r2_max") / (aim * LEFT[width]),
        "score": (pair.left("gdp") / (aim * GDP_LEFT)) ** 2,
        "rebuild": (105.0 * USE / max(pair.left("use"), 1.0)) ** 3,
    }
    z, score, rebuild = (
        float(f"{getattr(setting, key) * min(max(step, 0.4), 2.5):.2g}") for key, step in steps.items()
    )
    return setting._replace(z=z, score=score, rebuild=rebuild)


def work(task: Task) -> Task:
    """Train one setting, or the network without a penalty, and judge it on rows that are held out."""
    name, width = task["dataset"], task["width"]
    whole, (rows, _) = split_of(name, 0), paper_split(len(dataset(name).y), repeat=0)
    inside, outside = train_test_split(np.arange(len(rows)), test_size=0.2, random_state=0)
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
    parser.add_argument("--rounds", type=int, default=7, help="settings that are tried")
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, and print what is chosen."""
    runs = opened(CHOSEN.name, fresh=arguments.fresh, quick=False)
    cells = [(name, width) for name in arguments.datasets for width in arguments.widths]
    last: dict[tuple[str, int], Setting | None] = dict.fromkeys(cells)
    for number in range(arguments.rounds + 1):  # the first is the network without a penalty
        tasks = [
            {
                "dataset": name,
                "width": width,
                "setting": setting._asdict() if setting else None,
                "round": number,
            }
            for (name, width), setting in last.items()
        ]
        spread(runs, tasks, work)
        for cell, setting in last.items():
            own, free = (found(runs, *cell, which) for which in (number, 0))
            pair = Pair(setting.z, own, free, 1) if setting else None
            last[cell] = following(setting, pair, *cell) if setting and pair else first(cell[0], free["gdp"])
    runs.write()
    for name, width in cells:
        setting, pair = chosen(name, width)
        left = ", ".join(f"{key} {pair.left(key):.0f} %" for key in ("performance", "r2_max", "gdp", "use"))
        print(f"{name}, {width} columns: {setting}; {left} {pair.lost(name)}")


def found(runs: Runs, name: str, width: int, number: int) -> dict[str, float]:
    """Return the numbers of a round."""
    key = {"dataset": name, "width": width, "round": number}
    return next(run["found"] for run in runs.runs if key.items() <= run.items())
