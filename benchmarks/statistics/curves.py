"""How often the interval of GDP and the band of a curve hold what their sentence names, on many laws of S.

Six laws of S, seven curves, three kinds of scores (each law with each curve, and one kind of score in turn:
a third of the combinations), four numbers of rows. Truths are those of the population: of the true curve, or
of the mean within the ranges that the sample chose.
"""

import argparse
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from benchmarks._record import write_section
from benchmarks._simulate import Array, Task, chunks, draws_of, opened, rng, spread
from frhsic import GDP
from frhsic.inference import Curve, Interval, conditional_curve, confidence_interval

LEVEL = 0.95
DRAWS = {300: 400, 1_000: 400, 5_000: 200, 20_000: 100}
CHUNK = {300: 100, 1_000: 100, 5_000: 50, 20_000: 25}
MULTIPLIERS = 499
# Points of the population, of equal mass: truths are means over them.
POPULATION = 1_000_000

LAWS = ("uniform", "lognormal .7", "lognormal 1", "Pareto 1.5", "integer age", "heaped age")
CURVES = ("flat", "linear", "linear of size n^(-1/2)", "U", "step", "spike and dip", "logit of log S")
SCORES = ("homoskedastic", "heteroskedastic", "binary")


class Population(NamedTuple):
    """Values of S of equal mass, in order, and their ranks in the middle of ties."""

    s: Array
    rank: Array


@cache
def population(law: str) -> Population:
    """Return the population of a law."""
    u = (np.arange(POPULATION) + 0.5) / POPULATION
    if law == "uniform":
        s = u
    elif law.startswith("lognormal"):
        s = np.exp(float(law.split()[1]) * special.ndtri(u))
    elif law == "Pareto 1.5":
        s = (1.0 - u) ** (-1.0 / 1.5)
    else:
        ages = np.arange(18, 91)
        mass = np.exp(-0.5 * ((ages - 42.0) / 20.0) ** 2)
        if law == "heaped age":  # half of the people between two multiples of five say one of them
            heap = np.where(ages % 5 == 0, 1.0, 0.5)
            mass = mass * heap
            mass = mass * np.where(ages % 5 == 0, 3.0, 1.0)
        s = ages[np.searchsorted(np.cumsum(mass) / mass.sum(), u).clip(max=len(ages) - 1)].astype(float)
    values, index, counts = np.unique(s, return_inverse=True, return_counts=True)
    rank = u if len(values) == len(s) else ((np.cumsum(counts) - 0.5 * counts) / POPULATION)[index]
    return Population(s, rank)


def curve(name: str, law: str, n: int) -> Callable[[Array, Array], Array]:
    """Return the mean score as a function of s and of its rank, between 0.1 and 0.9."""
    s = population(law).s
    low, middle, high = s[[POPULATION // 10, POPULATION // 2, POPULATION * 9 // 10]]
    step = 65.0 if "age" in law else s[POPULATION * 4 // 5]

    def line(x: Array) -> Array:
        return (x - middle) / (high - low)

    def bump(u: Array, at: float) -> Array:
        return np.exp(-0.5 * ((u - at) / 0.04) ** 2)

    logs = np.log(s)
    found: dict[str, Callable[[Array, Array], Array]] = {
        "flat": lambda x, _: np.full_like(x, 0.15),
        "linear": lambda x, _: np.clip(0.5 + 0.3 * line(x), 0.1, 0.9),
        "linear of size n^(-1/2)": lambda x, _: 0.3 + np.clip(line(x), -1.0, 1.0) / np.sqrt(n),
        "U": lambda _, u: 0.2 + 0.5 * (2.0 * u - 1.0) ** 2,
        "step": lambda x, _: np.where(x < step, 0.3, 0.5),
        "spike and dip": lambda _, u: 0.4 + 0.25 * bump(u, 0.3) - 0.25 * bump(u, 0.7),
        "logit of log S": lambda x, _: special.expit(-0.8 + 0.8 * (np.log(x) - logs.mean()) / logs.std()),
    }
    return found[name]


def combinations() -> list[Task]:
    """Return each law with each curve, and the kinds of scores in turn."""
    return [
        {"law": law, "curve": name, "score": SCORES[(i + j) % 3]}
        for i, law in enumerate(LAWS)
        for j, name in enumerate(CURVES)
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
    generator = rng("curves", task["law"], task["curve"], task["score"], task["n"], draw)
    everybody = population(task["law"])
    rows = generator.integers(0, POPULATION, task["n"])
    s, u = everybody.s[rows], everybody.rank[rows]
    mean = curve(task["curve"], task["law"], task["n"])(s, u)
    if task["score"] == "binary":
        return (generator.random(task["n"]) < mean).astype(float), s
    sd = 0.2 if task["score"] == "homoskedastic" else 0.05 + 0.3 * u
    return mean + sd * generator.normal(size=task["n"]), s


class Truth(NamedTuple):
    """The population's curve, its mean, and its GDP."""

    s: Array
    mean: Array
    overall: float
    gdp: float
    deviation: float  # of one row in an estimate of GDP that knows all signs


@cache
def truth(law: str, name: str, score: str, n: int) -> Truth:
    """Return the truths of a cell."""
    everybody = population(law)
    mean = curve(name, law, n)(everybody.s, everybody.rank)
    overall = float(mean.mean())
    gap = mean - overall
    sd = 0.2 if score == "homoskedastic" else 0.05 + 0.3 * everybody.rank
    noise = mean * (1.0 - mean) if score == "binary" else np.broadcast_to(np.square(sd), mean.shape)
    sign = (
        np.sign(gap) - np.sign(gap).mean()
    )  # of mean(sign (f - mean f)), whose influence is sign (f - mean)
    signed = sign * gap
    deviation = float(np.sqrt(signed.var() + (sign**2 * noise).mean()))
    return Truth(everybody.s, mean, overall, float(np.abs(gap).mean()), deviation)


class Held(NamedTuple):
    """What of one sample holds."""

    interval: bool
    lower: bool  # whether the lower end is at most the GDP of the true curve
    band: bool
    means: bool  # whether all means within ranges lie in their band
    signs: bool  # whether no range is said to be on the wrong side of the overall mean
    true: bool  # whether the sentences name the true curve


def means_within(real: Truth, found: Curve) -> tuple[Array, Array]:
    """Return mass and mean of the population in each range."""
    starts, stops = (np.array(x, dtype=float) for x in (found.start, found.stop))
    first = np.searchsorted(real.s, starts, side="left")
    last = np.searchsorted(real.s, stops, side="right")
    sums = np.concatenate(([0.0], np.cumsum(real.mean)))
    size = np.maximum(last - first, 1)
    return size / POPULATION, (sums[last] - sums[first]) / size


def judge(real: Truth, found: Curve, interval: Interval) -> Held:
    """Compare an interval and a band with what their targets say."""
    exact = found.target == "the true curve, value by value"
    true = exact or found.target.startswith("the true curve")
    mass, within = means_within(real, found)
    gdp = real.gdp if true else float(mass @ np.abs(within - real.overall))
    low, high = np.array(found.low), np.array(found.high)
    mean_low, mean_high = np.array(found.mean_low), np.array(found.mean_high)
    band = bool(((low <= within) & (within <= high)).all()) if not true or exact else True
    if true and not exact:
        ends = [0, -1]
        band = bool(((low <= within) & (within <= high))[ends].all())
        step = POPULATION // 4_000
        places, means = real.s[::step], real.mean[::step]
        cell = np.searchsorted(np.array(found.stop[:-1]), places, side="left")
        inner = (cell > 0) & (cell < len(low) - 1)
        band &= bool(((low[cell] <= means) & (means <= high[cell]))[inner].all())
    above, below = mean_low > found.overall, mean_high < found.overall
    wrong = (above & (within < real.overall)) | (below & (within > real.overall))
    return Held(
        interval=interval.low <= gdp <= interval.high,
        lower=interval.low <= real.gdp + 1e-12,
        band=band,
        means=bool(((mean_low <= within) & (within <= mean_high)).all()),
        signs=not bool(wrong.any()),
        true=true,
    )


def work(task: Task) -> Task:
    """Run some draws of a cell."""
    real = truth(task["law"], task["curve"], task["score"], task["n"])
    held, lengths, widths = [], [], []
    for draw in draws_of(task):
        scores, s = sample(task, draw)
        options: dict[str, Any] = {"n_draws": MULTIPLIERS, "random_state": draw, "confidence_level": LEVEL}
        interval = confidence_interval(scores, {"s": s}, dependence=GDP(), chance=False, **options)
        found = conditional_curve(scores, {"s": s}, **options)
        held.append(judge(real, found, interval))
        lengths.append(interval.high - interval.low)
        widths.append(np.array(found.mass) @ (np.array(found.high) - np.array(found.low)))
    counts = {name: int(sum(getattr(one, name) for one in held)) for name in Held._fields}
    oracle = 2.0 * stats.norm.isf(0.5 * (1.0 - LEVEL)) * real.deviation / np.sqrt(task["n"])
    return {
        "held": counts,
        "length": float(np.mean(lengths)),
        "oracle": float(oracle),
        "width": float(np.mean(widths)),
        "gdp": real.gdp,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only write the tables from the results")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(DRAWS), choices=list(DRAWS))


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, and write the tables."""
    runs = opened(
        "curves.json", fresh=arguments.fresh, quick=arguments.quick, draws=DRAWS, multipliers=MULTIPLIERS
    )
    if not arguments.table:
        sizes = {n: DRAWS[n] for n in arguments.sizes}
        spread(runs, tasks_of(arguments.quick, sizes), work)
        runs.write()
    text = tables(runs.runs)
    print(text)
    if not arguments.quick:
        write_section("evidence/coverage.md", "curves", text, "curves.json")


class Cell(NamedTuple):
    """All draws of one cell."""

    law: str
    curve: str
    score: str
    n: int
    draws: int
    held: dict[str, int]
    length: float
    oracle: float
    width: float


def cells(runs: list[dict[str, Any]]) -> list[Cell]:
    """Add up the chunks of each cell."""
    found: dict[tuple[str, str, str, int], list[dict[str, Any]]] = {}
    for one in runs:
        found.setdefault((one["law"], one["curve"], one["score"], one["n"]), []).append(one)
    result = []
    for key, parts in found.items():
        draws = sum(part["draws"] for part in parts)
        held = {name: sum(part["held"][name] for part in parts) for name in Held._fields}
        length, width = (sum(part[x] * part["draws"] for part in parts) / draws for x in ("length", "width"))
        result.append(Cell(*key, draws, held, length, parts[0]["oracle"], width))
    return result


def short_cells(found: list[Cell], name: str, rate: float = 0.93, alpha: float = 0.01) -> list[Cell]:
    """Return the cells whose coverage is significantly below a rate: binomial tests, Holm over cells."""
    pvalues = [float(stats.binom.cdf(cell.held[name], cell.draws, rate)) for cell in found]
    order = sorted(range(len(found)), key=pvalues.__getitem__)
    short = []
    for rank, j in enumerate(order):
        if pvalues[j] > alpha / (len(found) - rank):
            break
        short.append(found[j])
    return short


def tables(runs: list[dict[str, Any]]) -> str:
    """Return the tables in Markdown."""
    found = cells(runs)
    sizes = sorted({cell.n for cell in found})
    lines = ["| | " + " | ".join(f"n = {n:,}" for n in sizes) + " |", "| --- |" + " ---: |" * len(sizes)]
    for name, words in (
        ("interval", "GDP's interval holds its target"),
        ("lower", "its lower end is at most the true GDP"),
        ("band", "the band holds its target"),
        ("means", "all means within ranges are in their band"),
        ("signs", "no sign is wrong"),
    ):
        row = []
        for n in sizes:
            rates = [cell.held[name] / cell.draws for cell in found if cell.n == n]
            row.append(f"{np.mean(rates):.3f} ({min(rates):.3f})")
        lines.append(f"| {words} | " + " | ".join(row) + " |")
    ratio = [
        np.median([cell.length / cell.oracle for cell in found if cell.n == n and cell.oracle > 0])
        for n in sizes
    ]
    lines.append(
        "| length of the interval over that of an oracle that knows all signs, median | "
        + " | ".join(f"{x:.2f}" for x in ratio)
        + " |"
    )
    lines += ["", "Each entry is the mean over the 42 cells, with the smallest in parentheses."]
    lines += ["Cells that are significantly below .93 (Holm, 1 %):", ""]
    for name in ("interval", "lower", "band", "means", "signs"):
        short = short_cells(found, name)
        words = "; ".join(
            f"{c.law}, {c.curve}, {c.score}, n = {c.n:,}: {c.held[name] / c.draws:.3f}" for c in short
        )
        lines.append(f"- {name}: {words or 'none'}.")
    lines += [
        "",
        "What the sentence names: the true curve, or ranges (a number is the share of true curves):",
        "",
    ]
    lines += [
        "| law of S | " + " | ".join(f"n = {n:,}" for n in sizes) + " |",
        "| --- |" + " ---: |" * len(sizes),
    ]
    for law in LAWS:
        row = []
        for n in sizes:
            part = [cell for cell in found if cell.law == law and cell.n == n]
            share = sum(cell.held["true"] for cell in part) / max(1, sum(cell.draws for cell in part))
            row.append({0.0: "ranges", 1.0: "true curve"}.get(share, f"{share:.2f}"))
        lines.append(f"| {law} | " + " | ".join(row) + " |")
    lines += ["", "Coverage in every cell (interval / band):", ""]
    lines += ["| law of S | curve | score | " + " | ".join(f"n = {n:,}" for n in sizes) + " |"]
    lines += ["| --- | --- | --- |" + " ---: |" * len(sizes)]
    for cell in combinations():
        row = []
        for n in sizes:
            match = [c for c in found if (c.law, c.curve, c.score, c.n) == (*cell.values(), n)]
            row += [
                f"{c.held['interval'] / c.draws:.3f} / {c.held['band'] / c.draws:.3f}" for c in match
            ] or ["-"]
        lines.append(f"| {cell['law']} | {cell['curve']} | {cell['score']} | " + " | ".join(row) + " |")
    return "\n".join(lines)
