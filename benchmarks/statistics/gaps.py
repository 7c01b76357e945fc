"""How often the intervals of the gap of a score, the band of D(t) and the region question hold.

Six laws of S, six ways in which the score follows it and three kinds of scores (each law with three ways, and
each way with three laws), four numbers of rows. Truths are those of the population: at single values, or
within the ranges that the sample chose.
"""

import argparse
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import special

from benchmarks._record import write_section
from benchmarks._simulate import Array, Task, chunks, draws_of, least, most, opened, rng, spread
from benchmarks.statistics.curves import LAWS, POPULATION, population
from frhsic.data import to_sensitive
from frhsic.dependence import ScoreGap
from frhsic.inference import confidence_interval, decision_gaps, equivalence_test, region_test

LEVEL = 0.95
DRAWS = {300: 80, 1_000: 60, 5_000: 40, 20_000: 20}
CHUNK = {300: 20, 1_000: 20, 5_000: 20, 20_000: 10}
MULTIPLIERS = 499
# Values of S of equal mass for the truths, and cut-offs on the scale of the latent score.
PLACES = 4_000
GRID = np.linspace(-6.0, 6.0, 1_201)

SCORES = ("probability", "skewed", "five grades")
GRADES = np.array([-1.0, 0.0, 0.7, 1.5])
WAYS: dict[str, Callable[[Array, int], tuple[Any, Any]]] = {
    "independent": lambda u, _: (0.0 * u, 1.0 + 0.0 * u),
    "shift": lambda u, _: (0.6 * (2.0 * u - 1.0), 1.0 + 0.0 * u),
    "shift of size n^(-1/2)": lambda u, n: (4.0 * (2.0 * u - 1.0) / np.sqrt(n), 1.0 + 0.0 * u),
    "spread": lambda u, _: (0.0 * u, np.exp(0.8 * (2.0 * u - 1.0))),
    "U and spread": lambda u, _: (0.8 * (2.0 * u - 1.0) ** 2, 0.7 + 0.6 * u),
    "step": lambda u, _: (0.7 * (u > 0.85), 1.0 + 0.0 * u),
}
# The region question: the upper fifth of S. Its null holds where means are equal.
REGION = 0.8


def observed(x: Array, score: str) -> Array:
    """Return the score of a latent one: all rise with it."""
    if score == "probability":
        return np.asarray(special.ndtr(x))
    return np.exp(x) if score == "skewed" else np.searchsorted(GRADES, x).astype(float)


def cutoff_of(score: str) -> float:
    """Return the cut-off that stands for zero of the latent score."""
    return {"probability": 0.5, "skewed": 1.0, "five grades": 1.5}[score]


def combinations() -> list[Task]:
    """Return each law with three ways, the kinds of scores in turn."""
    return [
        {"law": law, "way": way, "score": SCORES[(i + j // 2) % 3]}
        for i, law in enumerate(LAWS)
        for j, way in enumerate(WAYS)
        if (i + j) % 2 == 0
    ]


def tasks_of(quick: bool, draws: dict[int, int]) -> list[Task]:
    """Return the chunks, of the small samples first."""
    return [
        task
        for n, count in draws.items()
        for cell in combinations()
        for task in chunks({**cell, "n": n}, 4 if quick else count, CHUNK[n])
    ]


def sample(task: Task, draw: int) -> tuple[Array, Array]:
    """Return scores and s."""
    generator = rng("gaps", task["law"], task["way"], task["score"], task["n"], draw)
    everybody = population(task["law"])
    rows = generator.integers(0, POPULATION, task["n"])
    shift, scale = WAYS[task["way"]](everybody.rank[rows], task["n"])
    return observed(shift + scale * generator.normal(size=task["n"]), task["score"]), everybody.s[rows]


class Truth(NamedTuple):
    """Values of S in order, and the share above each latent cut-off at each of them."""

    s: Array
    upto: Array  # (places + 1, cut-offs), sums of the shares above
    cutoffs: Array  # of the latent score
    steps: Array  # by how much the score moves from one cut-off to the next


@cache
def truth(law: str, way: str, score: str, n: int) -> Truth:
    """Return the truths of a cell."""
    everybody = population(law)
    rows = np.arange(POPULATION // PLACES // 2, POPULATION, POPULATION // PLACES)
    shift, scale = WAYS[way](everybody.rank[rows], n)
    cutoffs = GRADES if score == "five grades" else 0.5 * (GRID[1:] + GRID[:-1])
    steps = np.ones(len(GRADES)) if score == "five grades" else np.diff(observed(GRID, score))
    above = special.ndtr((shift[:, None] - cutoffs) / scale[:, None])
    upto = np.vstack((np.zeros(len(cutoffs)), np.cumsum(above, axis=0)))
    return Truth(everybody.s[rows], upto, cutoffs, steps)


def gaps_within(real: Truth, low: Array, high: Array) -> Array:
    """Return D at the cut-offs, of the shares within ranges of s."""
    first = np.searchsorted(real.s, low, side="left")
    last = np.maximum(np.searchsorted(real.s, high, side="right"), first + 1)
    within = (real.upto[last] - real.upto[first]) / (last - first)[:, None]
    mass = (last - first) / (last - first).sum()
    return np.asarray(mass @ np.abs(within - mass @ within))


class Held(NamedTuple):
    """What of one sample holds."""

    gap: bool
    lower: bool  # whether the lower end of the gap is at most that at single values
    band: bool
    worst: bool
    half: bool
    gap_level: bool  # whether the gap is not said to be below its own value
    worst_level: bool
    region: bool  # whether the answer to the region question is no


def judge(task: Task, draw: int) -> tuple[Held, dict[str, float]]:
    """Compare what one sample says with the truth, and return lengths beside."""
    real = truth(task["law"], task["way"], task["score"], task["n"])
    scores, s = sample(task, draw)
    options: dict[str, Any] = {"n_draws": MULTIPLIERS, "random_state": draw, "confidence_level": LEVEL}
    at = cutoff_of(task["score"])
    measures = {"gap": ScoreGap(), "worst": ScoreGap(cutoff="worst"), "half": ScoreGap(cutoff=at)}
    found = {
        name: confidence_interval(scores, {"s": s}, dependence=measure, chance=False, **options)
        for name, measure in measures.items()
    }
    cells = ScoreGap().cells(to_sensitive(s))
    values = np.unique(real.s)
    every = values, values
    between = 0.5 * (cells.high[:-1] + cells.low[1:])
    ends = torch.cat((cells.low[:1] - 1e9, between)), torch.cat((between, cells.high[-1:] + 1e9))
    single = bool(cells.single.all())
    named = "at least as large" not in found["gap"].target
    low, high = every if single or named else (end.numpy() for end in ends)
    D, alone = gaps_within(real, low, high), gaps_within(real, *every)
    band = decision_gaps(scores, {"s": s}, confidence_level=LEVEL)
    x = latent(np.array(band.cutoffs), task["score"])
    there = np.interp(x, real.cutoffs, D)
    true = {"gap": float(D @ real.steps), "worst": float(D.max())}
    true["half"] = float(np.interp(0.0, real.cutoffs, D))
    tests = {
        name: equivalence_test(
            scores,
            {"s": s},
            tolerance=max(true[name], 1e-9),
            dependence=measures[name],
            n_draws=MULTIPLIERS,
            random_state=draw,
        ).below
        for name in ("gap", "worst")
    }
    edge = population(task["law"]).s[int(REGION * POPULATION)]
    region = region_test(scores, s > edge, side="above", n_permutations=199, random_state=draw)
    holds = {
        name: one.low <= true[name] + 1e-9 and true[name] <= one.high + 1e-9 for name, one in found.items()
    }
    held = Held(
        **holds,
        lower=found["gap"].low <= float(alone @ real.steps) + 1e-9,
        band=bool(((np.array(band.low) <= there + 1e-6) & (there <= np.array(band.high) + 1e-6)).all()),
        gap_level=not tests["gap"],
        worst_level=not tests["worst"],
        region=region.pvalue > 1.0 - LEVEL,
    )
    lengths = {name: one.high - one.low for name, one in found.items()}
    width = float(np.mean(np.array(band.high) - np.array(band.low)))
    return held, {**lengths, "band": width, "truth": true["gap"]}


def latent(cutoffs: Array, score: str) -> Array:
    """Return the latent cut-offs of those of a score."""
    if score == "probability":
        return np.asarray(special.ndtri(np.clip(cutoffs, 1e-9, 1 - 1e-9)))
    return np.log(cutoffs) if score == "skewed" else GRADES[np.minimum(cutoffs.astype(int), len(GRADES) - 1)]


def work(task: Task) -> Task:
    """Run some draws of a cell."""
    found = [judge(task, draw) for draw in draws_of(task)]
    held = {name: int(sum(getattr(one, name) for one, _ in found)) for name in Held._fields}
    lengths = {name: float(np.mean([x[name] for _, x in found])) for name in found[0][1]}
    return {"held": held, "lengths": lengths}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only write the tables from the results")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(DRAWS), choices=list(DRAWS))


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, and write the tables."""
    runs = opened(
        "gaps.json", fresh=arguments.fresh, quick=arguments.quick, draws=DRAWS, multipliers=MULTIPLIERS
    )
    if not arguments.table:
        sizes = {n: DRAWS[n] for n in arguments.sizes}
        spread(runs, tasks_of(arguments.quick, sizes), work)
        runs.write()
    text = tables(runs.runs)
    print(text)
    if not arguments.quick:
        write_section("evidence/coverage.md", "gaps", text, "gaps.json")


ROWS = {
    "gap": "the interval of the gap holds its target",
    "lower": "its lower end is at most the gap at single values",
    "half": "the interval at one cut-off holds its target",
    "worst": "that at the worst cut-off does",
    "band": "the band of D(t) holds at all cut-offs",
    "gap_level": "a gap is not said to be below its own value",
    "worst_level": "nor is the worst one",
}


def cells(runs: list[dict[str, Any]]) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """Add up the chunks of each cell."""
    found: dict[tuple[str, str, str, int], dict[str, Any]] = {}
    for one in runs:
        key = (one["law"], one["way"], one["score"], one["n"])
        total = found.setdefault(key, {"draws": 0, "held": dict.fromkeys(Held._fields, 0), "lengths": {}})
        total["draws"] += one["draws"]
        for name, count in one["held"].items():
            total["held"][name] += count
        for name, length in one["lengths"].items():
            total["lengths"][name] = total["lengths"].get(name, 0.0) + one["draws"] * length
    return found


def tables(runs: list[dict[str, Any]]) -> str:
    """Return the tables in Markdown."""
    found = cells(runs)
    sizes = sorted({key[3] for key in found})
    heading = " | ".join(f"n = {n:,}" for n in sizes)
    lines = [f"| | {heading} |", "| --- |" + " ---: |" * len(sizes)]
    short: list[str] = []
    for name, words in ROWS.items():
        row = []
        for n in sizes:
            part = {key: one for key, one in found.items() if key[3] == n}
            rates = {key: one["held"][name] / one["draws"] for key, one in part.items()}
            row.append(f"{np.mean(list(rates.values())):.3f} ({min(rates.values()):.3f})")
            short += [
                f"{words}: {', '.join(key[:3])}, n = {n:,}: {rate:.3f}"
                for key, rate in rates.items()
                if rate < least(LEVEL, part[key]["draws"], len(part))
            ]
        lines.append(f"| {words} | " + " | ".join(row) + " |")
    for name, words in (
        ("gap", "mean length of the interval of the gap"),
        ("band", "mean width of the band"),
    ):
        row = []
        for n in sizes:
            part = {key: one for key, one in found.items() if key[2:] == (SCORES[0], n)}
            row.append(f"{np.mean([one['lengths'][name] / one['draws'] for one in part.values()]):.3f}")
        lines.append(f"| {words}, probabilities | " + " | ".join(row) + " |")
    lines += [
        "",
        f"Each entry is the mean over {len(found) // max(1, len(sizes))} cells, the smallest in parentheses.",
        f"Cells below .95 by more than chance (a row together, 1 %): {'; '.join(short) or 'none'}.",
        "",
        *region_table(found, sizes),
    ]
    return "\n".join(lines)


def region_table(found: dict[tuple[str, str, str, int], dict[str, Any]], sizes: list[int]) -> list[str]:
    """Return how often the answer to the region question is yes."""
    lines = [
        'The region question, "is the mean score of the upper fifth of S above that of the others?": yes in',
        "",
        "| the score | kind | " + " | ".join(f"n = {n:,}" for n in sizes) + " |",
        "| --- | --- |" + " ---: |" * len(sizes),
    ]
    asked = [*(("independent", score) for score in SCORES), ("spread", SCORES[0])]
    asked += [(way, score) for way in ("shift", "step") for score in SCORES]
    for way, score in asked:
        row = []
        for n in sizes:
            part = [one for key, one in found.items() if key[1:] == (way, score, n)]
            draws = sum(one["draws"] for one in part)
            yes = draws - sum(one["held"]["region"] for one in part)
            null = way in ("independent", "spread")
            loud = " (too often)" if draws and null and yes / draws > most(1.0 - LEVEL, draws, 1) else ""
            row.append(f"{yes / draws:.3f}{loud}" if draws else "-")
        if set(row) != {"-"}:
            lines.append(f"| {way} | {score} | " + " | ".join(row) + " |")
    return lines
