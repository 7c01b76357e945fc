"""How often the intervals of the AUC along S hold the AUC of every window at once, on many designs.

S, outcome and scores have known laws: S is one of 400 values, and the law of the score given S and outcome is
known, so that the AUC of the population within the windows that a sample chose is a sum.
"""

import argparse
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from benchmarks._record import write_section
from benchmarks._simulate import Array, Task, chunks, draws_of, least, opened, rng, spread
from frhsic.inference import AUCCurve, auc_curve

LEVEL = 0.95
SIZES = (1_000, 5_000)
DRAWS, CHUNK = 500, 100
VALUES = 400


class Design(NamedTuple):
    """A law of S, of the outcome given S, and of the score given both."""

    name: str
    law: str = "age"
    rate: float = 0.4  # of the positive outcome, in the middle of S
    gain: float = 1.0  # what the positive outcome adds to the score, in standard deviations
    slope: float = 1.0  # how much more it adds from one end of S to the other
    step: float = 0.0  # scores are rounded to multiples of it
    missed: float = 0.0  # share of positives with a score below nearly all others
    rows: int = 1  # of each group
    weighted: bool = False


DESIGNS = (
    Design("integer age"),
    Design("no information", gain=0.0, slope=0.0),
    Design("rare class, 5 %", rate=0.05),
    Design("ties: five scores", step=1.0),
    Design("ties: two scores", step=4.0),
    Design("heavy S (Pareto 1.5)", law="Pareto"),
    Design("six categories", law="categories"),
    Design("groups of 5 rows", rows=5),
    Design("groups of 5 rows, rare class", rows=5, rate=0.1),
    Design("weights", weighted=True),
    Design("AUC near one", gain=3.0, slope=1.0),
    Design("AUC near one, rare class", gain=3.0, slope=1.0, rate=0.05),
    Design("one positive of ten missed", gain=3.0, slope=0.0, missed=0.1),
    Design("three positives of a hundred missed", gain=3.5, slope=0.0, missed=0.03),
)
BY_NAME = {design.name: design for design in DESIGNS}


class Population(NamedTuple):
    """The values of S, of equal mass, the rate of the outcome, and the distribution of the scores."""

    s: Array  # (VALUES,)
    rate: Array
    gain: Array
    cdf: Array  # (2, VALUES, scores): of negatives, of positives


@cache
def population(name: str) -> Population:
    """Return the population of a design."""
    design = BY_NAME[name]
    u = (np.arange(VALUES) + 0.5) / VALUES
    s = (1.0 - u) ** (-1.0 / 1.5)
    if design.law == "age":
        s = np.floor(18.0 + 60.0 * u**1.3)
    elif design.law == "categories":
        s = np.floor(6.0 * u**2)
    rate = special.expit(special.logit(design.rate) + 1.2 * (u - 0.5))
    gain = design.gain + design.slope * (u - 0.5)
    x = np.arange(-8.0, 8.0, design.step or 0.05)
    shift = 0.5 * (2.0 * u - 1.0) ** 2  # of all scores along s
    cdf = np.stack([special.ndtr(x - (shift + y * gain)[:, None] + 0.5 * design.step) for y in (0.0, 1.0)])
    cdf[1] = (1.0 - design.missed) * cdf[1] + design.missed * special.ndtr(x + 4.0 + 0.5 * design.step)
    return Population(s, rate, gain, cdf)


def sample(name: str, n: int, draw: int) -> dict[str, Any]:
    """Return the arguments of a call."""
    design, people, generator = BY_NAME[name], population(name), rng("auc", name, n, draw)
    group = np.arange(n) // design.rows
    at = generator.integers(0, VALUES, n)[group]
    # Of one group most outcomes are alike, and scores have a part in common.
    alike = generator.random(n)[group] < people.rate[at]
    y = np.where(generator.random(n) < 0.7, alike, generator.random(n) < people.rate[at])
    u = (at + 0.5) / VALUES
    share = 0.5 if design.rows > 1 else 0.0
    noise = share**0.5 * generator.normal(size=n)[group] + (1.0 - share) ** 0.5 * generator.normal(size=n)
    score = 0.5 * (2.0 * u - 1.0) ** 2 + y * people.gain[at] + noise
    missed = y & (generator.random(n) < design.missed)
    score = np.where(missed, noise - 4.0, score)
    if design.step:
        score = np.round(score / design.step) * design.step
    s = people.s[at]
    return {
        "y_true": y,
        "scores": score,
        "sensitive_features": {
            "s": np.array(list("abcdef"))[s.astype(int)] if design.law == "categories" else s
        },
        "groups": group if design.rows > 1 else None,
        "sample_weight": generator.exponential(size=n) + 0.2 if design.weighted else None,
    }


def truths(name: str, found: AUCCurve) -> Array:
    """Return the AUC of the population in each window."""
    people = population(name)
    ends = np.array([found.start, found.stop])
    if found.categories:
        ends = np.array([["abcdef".index(category) for category in found.categories]] * 2, dtype=float)
    inside = (people.s >= ends[0][:, None]) & (people.s <= ends[1][:, None])  # (windows, VALUES)
    laws = []
    for cdf, rate in zip(people.cdf, (1.0 - people.rate, people.rate), strict=True):
        share = inside * rate  # values of S have equal mass
        laws.append(np.diff(share / share.sum(axis=1, keepdims=True) @ cdf, axis=1, prepend=0.0))
    result: Array = (laws[1] * (np.cumsum(laws[0], axis=1) - 0.5 * laws[0])).sum(axis=1)
    return result


def work(task: Task) -> Task:
    """Run some draws of a cell."""
    held, each, windows, widths, below = 0, 0, 0, 0.0, 0
    for draw in draws_of(task):
        found = auc_curve(**sample(task["design"], task["n"], draw), confidence_level=LEVEL)
        real, low, high = truths(task["design"], found), np.array(found.low), np.array(found.high)
        inside = (low <= real + 1e-12) & (real - 1e-12 <= high)
        held += bool(inside.all())
        each += int(inside.sum())
        below += int((real < low).sum())
        windows += len(real)
        widths += float((high - low).mean())
    return {
        "held": held,
        "each": each,
        "below": below,
        "windows": windows,
        "width": widths / task["draws"],
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only write the table from the results")


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, and write the table."""
    runs = opened("auc.json", fresh=arguments.fresh, quick=arguments.quick, draws=DRAWS)
    if not arguments.table:
        tasks = [
            task
            for design in DESIGNS
            for n in SIZES
            for task in chunks({"design": design.name, "n": n}, 4 if arguments.quick else DRAWS, CHUNK)
        ]
        spread(runs, tasks, work)
        runs.write()
    text = table(runs.runs)
    print(text)
    if not arguments.quick:
        write_section("evidence/coverage.md", "auc", text, "auc.json")


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    head = " | ".join(f"n = {n:,}: all windows | windows | mean width" for n in SIZES)
    lines = [f"| design | {head} |", "| --- |" + " ---: |" * (3 * len(SIZES))]
    rates = []
    for design in DESIGNS:
        row = []
        for n in SIZES:
            parts = [one for one in runs if one["design"] == design.name and one["n"] == n]
            draws = sum(one["draws"] for one in parts)
            rates.append(sum(one["held"] for one in parts) / draws)
            windows = sum(one["windows"] for one in parts) / draws
            width = sum(one["width"] * one["draws"] for one in parts) / draws
            row += [f"{rates[-1]:.3f}", f"{windows:.1f}", f"{width:.3f}"]
        lines.append(f"| {design.name} | " + " | ".join(row) + " |")
    limit = least(LEVEL, DRAWS, len(rates))
    lines += [
        "",
        f"All windows: the share of {DRAWS} samples in which every interval holds its AUC; {LEVEL:g} was",
        f"asked. The smallest is {min(rates):.3f}; were all {LEVEL:g}, none would be below {limit:.3f} in",
        "99 % of such tables.",
    ]
    return "\n".join(lines)
