"""Repair of scores of several rows a person: coverage of the gap that is left (resumable)."""

import argparse
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import ndtri

from benchmarks._record import RESULTS
from benchmarks._simulate import Array, Task, chunks, draws_of, opened, rng, spread
from frhsic.repair import ScoreRepair

NAME = "persons.json"
AGES = np.arange(20.0, 95.0, 5.0)
ROWS = 1_000
EACH = (5, 10)  # rows a person
CORRELATIONS = (0.0, 0.3, 0.8)  # of two scores of one person of an age
DRAWS = 400
LEVELS = 400  # quantiles of each law
MEASURES = ("gap", "gdp")


def draw(generator: np.random.Generator, each: int, correlation: float) -> tuple[Array, Array, Any]:
    """Return scores, ages and persons; the mean score rises with age."""
    people = ROWS // each
    person = np.arange(people).repeat(each)
    age = generator.choice(AGES, people)[person]
    own = np.sqrt(correlation) * generator.normal(size=people)[person]
    score = _mean(age) + own + np.sqrt(1.0 - correlation) * generator.normal(size=ROWS)
    return score, age, person


def _mean(age: Array) -> Array:
    return (age - 57.5) / 40.0


@cache
def _population() -> tuple[Array, Array]:
    """Return equally likely scores of each age, and the ages."""
    age = AGES.repeat(LEVELS)
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    return _mean(age) + np.tile(ndtri(levels), len(AGES)), age


def left_by(repair: ScoreRepair) -> dict[str, float]:
    """Return the gap and the mean gap of repaired scores in the population, whose laws are known."""
    score, age = _population()
    moved = repair.transform(score, age).reshape(len(AGES), LEVELS)
    pooled = np.sort(moved, axis=None).reshape(LEVELS, len(AGES)).mean(axis=1)
    gaps = np.abs(np.sort(moved, axis=1) - pooled).mean(axis=1)
    return {"gap": float(gaps.mean()), "gdp": float(np.abs(moved.mean(axis=1) - moved.mean()).mean())}


def work(task: Task) -> Task:
    """Count the intervals that hold what is left, and those whose upper end does."""
    import warnings

    warnings.simplefilter("ignore")  # scores beyond those of fit
    found = dict.fromkeys((f"{name}_{end}" for name in MEASURES for end in ("within", "below")), 0)
    width = dict.fromkeys(MEASURES, 0.0)
    for number in draws_of(task):
        each, correlation, grouped = task["each"], task["correlation"], task["groups"]
        score, age, person = draw(rng("persons", each, correlation, number), each, correlation)
        repair = ScoreRepair(random_state=number).fit(score, age, groups=person if grouped else None)
        truth = left_by(repair)
        for name in MEASURES:
            interval = repair.left_[name]
            found[f"{name}_below"] += truth[name] <= interval.high
            found[f"{name}_within"] += interval.low <= truth[name] <= interval.high
            width[name] += interval.high
    return {**found, **{f"{name}_high": round(total, 4) for name, total in width.items()}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="a few draws, in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def run(arguments: argparse.Namespace) -> None:
    """Draw what is not there yet, and print the coverage."""
    draws = 4 if arguments.quick else DRAWS
    runs = opened(NAME, fresh=arguments.fresh, quick=arguments.quick, rows=ROWS, draws=draws)
    cells: list[Task] = [
        {"each": each, "correlation": correlation, "groups": grouped}
        for grouped in (True, False)
        for each in EACH
        for correlation in CORRELATIONS
    ]
    # Without groups a quarter of the draws shows what was wrong.
    tasks = [task for cell in cells for task in chunks(cell, draws if cell["groups"] else draws // 4, 20)]
    spread(runs, tasks, work)
    runs.write(cells=[summarize(cell, runs.runs) for cell in cells])
    if not arguments.quick:
        print_table()


def summarize(cell: Task, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return coverages of a cell, and the share of draws that it falls below once in a thousand at 95 %."""
    own = [run for run in runs if all(run[name] == value for name, value in cell.items())]
    draws = sum(run["draws"] for run in own)
    ends = [f"{name}_{end}" for name in MEASURES for end in ("within", "below", "high")]
    shares = {end: round(sum(run[end] for run in own) / draws, 4) for end in ends}
    return {**cell, "draws": draws, **shares, "least": float(stats.binom.ppf(0.001, draws, 0.95)) / draws}


def print_table() -> None:
    """Print the coverage of each cell."""
    for cell in json.loads((RESULTS / NAME).read_text())["cells"]:
        print(
            f"{cell['each']} rows a person, correlation {cell['correlation']}, groups {cell['groups']}: gap "
            f"within {cell['gap_within']:.4f}, below the upper end {cell['gap_below']:.4f}, mean gap "
            f"{cell['gdp_within']:.4f}, {cell['gdp_below']:.4f} of {cell['draws']} (least "
            f"{cell['least']:.4f}); upper ends {cell['gap_high']:.3f}, {cell['gdp_high']:.3f} on average"
        )
