"""Limits of gaps from tables of persons with several rows: how often they hold, and how wide they are.

Each person has ``each`` rows. Two scores of one person have a correlation, given S. S is constant within a
person, or rises by one from row to row. Truths are the gaps of a random row in the cells that a sample chose.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy import stats

from benchmarks._simulate import Task, chunks, draws_of, opened, rng
from benchmarks.statistics.table_gaps import AGES, LAWS, LEVELS, Population, of_ages, truths
from frhsic.table import GapErrors, Integers, Law, Persons, ScoreTable

NAME, DRAWS, CHUNK = "person_gaps.json", 200, 25
EACH, CORRELATIONS, PERSONS = (5, 10), (0.0, 0.3, 0.8), (40, 200, 5_000)
COMPARED = ("independent", "weak", "strong")
MEASURES = ("score gap", "rank gap", "mean gap", "decisions .5", "worst")
Z = np.linspace(-3.0, 3.0, LEVELS)
EDGES = 0.5 * (Z[1:] + Z[:-1])
SLOPES = {"independent": 0.0, "weak": 0.15, "strong": 0.8}


@cache
def population(law: str, each: int, varying: bool) -> Population:
    """Return the law of a random row."""
    alike = LAWS[law]()
    if not varying:
        return alike
    p = alike.shares.sum(axis=1)
    shifted = np.zeros(len(p))
    for later in range(each):
        np.add.at(shifted, np.minimum(np.arange(len(p)) + later, len(p) - 1), p / each)
    return Population(alike.shares / p[:, None] * shifted[:, None], AGES, Z)


def draw(cell: Task, number: int) -> tuple[Integers, Integers, Integers]:
    """Return levels of the score, places of the age and persons, of each row."""
    keys = ("law", "each", "correlation", "varying", "persons")
    law, each, correlation, varying, persons = (cell[key] for key in keys)
    generator = rng("person-gaps", law, each, correlation, varying, persons, number)
    p = of_ages(np.zeros(1)).shares.sum(axis=1)
    first = generator.choice(len(p), persons, p=p / p.sum())
    later = np.arange(each) if varying else np.zeros(each, int)
    place = np.minimum(first[:, None] + later, len(p) - 1)
    own = np.sqrt(correlation) * generator.normal(size=(persons, 1))
    score = own + np.sqrt(1.0 - correlation) * generator.normal(size=(persons, each))
    level = np.searchsorted(EDGES, score + SLOPES[law] * (AGES[place] - 50.0) / 20.0)
    return level.ravel(), place.ravel(), np.arange(persons).repeat(each)


def law_of(level: Integers, place: Integers, person: Integers) -> tuple[Law, Persons]:
    """Return the law of rows, and their persons."""
    table = ScoreTable.from_rows(Z[level], AGES[place])
    cell, at = table.places(Z[level], [AGES[place]])
    return table.law(), Persons.of(person, cell, at, np.ones(len(level)))


def judge(cell: Task, number: int) -> dict[str, list[float]]:
    """Return of each measure: truth, plug-in, estimate, both ends, the one-sided upper limit, chance."""
    found, persons = law_of(*draw(cell, number))
    P = population(cell["law"], cell["each"], cell["varying"])
    # The cells of the sample are among all ages.
    found = found._replace(cells=np.searchsorted(AGES, found.s[:, 0]), levels=np.searchsorted(Z, found.z))
    true, D, at = truths(P, found, 1.0 / persons.unit_square)
    errors = GapErrors(found, number, persons=persons)
    middle = int((found.levels <= at["decisions .5"]).sum()) - 1
    limits = {
        "score gap": errors.score_gap(),
        "rank gap": errors.rank_gap(),
        "mean gap": errors.mean_gap(),
        "decisions .5": errors.decision_gap(middle),
        "worst": errors.worst(),
    }
    values = {}
    for name, limit in limits.items():
        ends = limit.ends()
        values[name] = [
            true[name],
            ends.plug_in,
            ends.estimate,
            ends.low,
            ends.high,
            limit.upper(0.05),
            ends.chance,
        ]
    band = errors.at_all_cutoffs()
    there = D[np.searchsorted(Z, errors.law.z[band.levels])]
    values["band"] = [float((band.low > there + 1e-9).any()), float((band.high < there - 1e-9).any())]
    return values


def work(task: Task) -> Task:
    """Run some draws of a cell."""
    results = defaultdict(list)
    for number in draws_of(task):
        for name, values in judge(task, number).items():
            results[name].append(values)
    summary: dict[str, Any] = {}
    for name, rows in results.items():
        x = np.array(rows)
        if name == "band":
            summary[name] = {"low": int(x[:, 0].sum()), "high": int(x[:, 1].sum())}
            continue
        true, plug_in, estimate, low, high, one_sided, chance = x.T
        means = (true, plug_in, estimate, high - low, chance)
        summary[name] = {
            "low": int((low > true + 1e-12).sum()),
            "high": int((high < true - 1e-12).sum()),
            "kept": int((one_sided < true - 1e-12).sum()),
            **{
                key: round(float(value.mean()), 5)
                for key, value in zip(("truth", "plug_in", "estimate", "width", "chance"), means, strict=True)
            },
        }
    return {"measures": summary}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only print the table from the results")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--persons", type=int, nargs="*", default=list(PERSONS), choices=PERSONS)
    parser.add_argument("--each", type=int, nargs="*", default=list(EACH), choices=EACH)


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing in this process, all cells in turn, and print the table."""
    runs = opened(NAME, fresh=arguments.fresh, quick=arguments.quick)
    runs.header["workers"] = 1
    draws = 4 if arguments.quick else arguments.draws
    cells: list[Task] = [
        {"law": law, "each": each, "correlation": correlation, "varying": varying, "persons": persons}
        for persons in arguments.persons
        for each in arguments.each
        for law in COMPARED
        for varying in (False, True)
        for correlation in CORRELATIONS
    ]
    tasks = [task for cell in cells for task in chunks(cell, draws, CHUNK)]
    tasks.sort(key=lambda task: task["first"])
    for task in tasks if not arguments.table else ():
        if runs.missing(**task):
            start = time.process_time()
            runs.add(**task, **work(task), seconds=round(time.process_time() - start, 2))
    if not arguments.table:
        runs.write()
    print(table(runs.runs))


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Return shares of missed ends in Markdown, those beyond the .1 % binomial point in bold; and widths."""
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    for task in runs:
        key = tuple(task[name] for name in ("persons", "each", "law", "varying", "correlation"))
        cell = cells.setdefault(key, {"draws": 0})
        cell["draws"] += task["draws"]
        for name, part in task["measures"].items():
            total = cell.setdefault(name, defaultdict(float))
            for what, value in part.items():
                total[what] += value if what in ("low", "high", "kept") else task["draws"] * value
    heads = [f"{name}: low, high" for name in (*MEASURES, "band")]
    first = "| persons | rows each | law | S | correlation | draws | "
    lines = [first + " | ".join((*heads, "widths of score gap, rank gap, mean gap")) + " |"]
    lines.append("| --- " * (len(heads) + 7) + "|")
    for (persons, each, law, varying, correlation), cell in sorted(cells.items()):
        draws = cell["draws"]
        misses = [
            ", ".join(_share(cell[name][end], draws) for end in ("low", "high"))
            for name in (*MEASURES, "band")
        ]
        widths = ", ".join(f"{cell[name]['width'] / draws:.4f}" for name in MEASURES[:3])
        s = "varying" if varying else "constant"
        head = f"| {persons:,} | {each} | {law} | {s} | {correlation} | {draws} | "
        lines.append(head + " | ".join((*misses, widths)) + " |")
    return "\n".join(lines)


def _share(misses: float, draws: float) -> str:
    text = f"{misses / draws:.3f}"
    return f"**{text}**" if misses > stats.binom.isf(1e-3, int(draws), 0.025) else text
