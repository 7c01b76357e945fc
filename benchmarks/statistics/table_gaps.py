"""How often the limits of gaps from a table hold, how wide they are, and what the estimates leave out.

Populations are tables: shares of values of S by levels of a score, from which counts are drawn. Truths are
the gaps of the population in the cells that each sample chose. Of each end: how often it misses; of the upper
end at one-sided .05, how often a gap would be found below its own value.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from benchmarks._simulate import Array, Task, chunks, draws_of, opened, rng
from frhsic.table import GapErrors, Law, coarse_cells, differences

DRAWS, CHUNK, LEVELS = 500, 25, 64
SIZES = (300, 2_000, 5_000, 20_000)
COMPARED = ("independent", "weak", "strong", "spread")
AGES = np.arange(18.0, 90.0)
MEASURES = ("score gap", "rank gap", "mean gap", "decisions .5", "decisions .95", "worst")


class Population(NamedTuple):
    """The joint shares of values of S and levels of a score."""

    shares: Array  # (m, k)
    s: Array
    z: Array
    number: bool = True
    weighted: bool = False


def normal(s: Array, p: Array, shift: Array, scale: Array, z: Array, **more: bool) -> Population:
    """Return a population whose score is normal, cut into levels at the middles between z."""
    edges = 0.5 * (z[1:] + z[:-1])
    F = ndtr((edges - shift[:, None]) / scale[:, None])
    F = np.hstack((np.zeros((len(s), 1)), F, np.ones((len(s), 1))))
    P = (p / p.sum())[:, None] * np.diff(F, axis=1)
    return Population(P / P.sum(), s, z, **more)


def of_ages(shift: Array, scale: Array | float = 1.0, **more: Any) -> Population:
    """Return a population of 72 ages."""
    z = more.pop("z", np.linspace(-3.0, 3.0, LEVELS))
    p = np.exp(-(((AGES - 40.0) / 25.0) ** 2))
    one = np.ones(len(AGES))
    return normal(AGES, p, shift * one, scale * one, z, **more)


def of_places(s: Array, p: Array) -> Population:
    """Return a population of many values of S with a score that rises with their rank."""
    u = np.cumsum(p) - 0.5 * p
    return normal(s, p, 0.5 * (2.0 * u - 1.0), np.ones(len(s)), np.linspace(-3.0, 3.0, 64))


def skewed(slope: float) -> Population:
    """Return a population with scores exp(1.5 x), x normal around ``slope`` times the age."""
    x = np.linspace(-3.0, 4.5, LEVELS)
    return of_ages(slope * (AGES - 50.0) / 20.0, z=x)._replace(z=np.exp(1.5 * x))


def yes_no(rate: Array) -> Population:
    """Return a population of ages with a score of 0 and 1."""
    everybody = of_ages(np.zeros(1))
    p = everybody.shares.sum(axis=1)
    return Population(np.stack((p * (1.0 - rate), p * rate), axis=1), AGES, np.array([0.0, 1.0]))


def cauchy(size: int) -> Array:
    """Return so many quantiles of the Cauchy law."""
    return np.asarray(np.tan(np.pi * ((np.arange(size) + 0.5) / size - 0.5)))


def two_labels(p: Sequence[float], shift: Sequence[float]) -> Population:
    """Return a population of two labels."""
    z = np.linspace(-3.0, 3.0, LEVELS)
    return normal(np.arange(2.0), np.array(p), np.array(shift), np.ones(2), z, number=False)


def heaped() -> Population:
    """Return incomes, of which two fifths are on round values."""
    s = np.exp(ndtri((np.arange(600) + 0.5) / 600))
    p = np.full(600, 0.6 / 600)
    p[np.arange(25, 600, 50)] += 0.4 / 12
    return of_places(s, p)


LAWS: dict[str, Callable[[], Population]] = {
    "independent": lambda: of_ages(np.zeros(1)),
    "weak": lambda: of_ages(0.15 * (AGES - 50.0) / 20.0),
    "strong": lambda: of_ages(0.8 * (AGES - 50.0) / 20.0),
    "spread": lambda: of_ages(np.zeros(1), np.exp((AGES - 50.0) / 40.0)),
    "jagged": lambda: of_ages(0.1 * (-1.0) ** AGES),
    "heavy-tailed S": lambda: of_places(cauchy(720), np.full(720, 1 / 720)),
    "heaped S": heaped,
    "five grades": lambda: of_ages(0.3 * (AGES - 50.0) / 20.0, z=np.array([-1.5, -0.5, 0.3, 1.0, 1.8])),
    "rates .01 to .04": lambda: yes_no(0.01 + 0.03 * (AGES - 18.0) / 71.0),
    "rate .02": lambda: yes_no(0.02 + 0.0 * AGES),
    "weights": lambda: of_ages(0.15 * (AGES - 50.0) / 20.0, weighted=True),
    "weights, independent": lambda: of_ages(np.zeros(1), weighted=True),
    "log-normal(1.5)": lambda: skewed(0.0),
    "log-normal(1.5), growing": lambda: skewed(0.3),
    "two labels": lambda: two_labels((0.5, 0.5), (0.0, 0.0)),
    "two labels, apart": lambda: two_labels((0.2, 0.8), (0.0, 0.15)),
}


@cache
def population(law: str) -> Population:
    """Return the population of a law."""
    return LAWS[law]()


def sample(law: str, n: int, draw: int) -> Law:
    """Return the law of a sample."""
    P = population(law)
    generator = rng("table-gaps", law, n, draw)
    counts = generator.multinomial(n, P.shares.ravel()).astype(float)
    mass, squares = counts, counts
    if P.weighted:
        # Weights of mean one: the target is the population.
        cell = np.repeat(np.arange(counts.size), counts.astype(int))
        w = generator.lognormal(-0.32, 0.8, n)
        mass, squares = (np.bincount(cell, x, counts.size) for x in (w, w * w))
    mass, squares, counts = (x.reshape(P.shares.shape) for x in (mass, squares, counts))
    i, j = np.flatnonzero(counts.sum(axis=1)), np.flatnonzero(counts.sum(axis=0))
    mass, squares, counts = (x[np.ix_(i, j)] for x in (mass, squares, counts))
    m, k = counts.shape
    return Law(
        shares=mass / mass.sum(),
        squares=squares / mass.sum() ** 2,
        rows=counts,
        s=P.s[i][:, None],
        z=P.z[j],
        s_inner=np.zeros((m, k, 1)),
        z_inner=np.zeros((m, k)),
        cells=i,
        levels=j,
        numbers=(P.number,),
        s_widths=np.zeros((m, 1)),
        z_widths=np.zeros(k),
        z_lows=P.z[j],
        s_lows=P.s[i][:, None],
    )


def truths(
    P: Population, found: Law, units: float | None = None
) -> tuple[dict[str, float], Array, dict[str, int]]:
    """Return the gaps of the population in the cells of a sample, D at all levels, and asked cut-offs."""
    code = coarse_cells(found, units)
    # A value that the sample has not belongs to the cell of the next one.
    nearest = np.minimum(np.searchsorted(found.cells, np.arange(len(P.s))), len(found.cells) - 1)
    merged = np.zeros((int(code.max()) + 1, len(P.z)))
    np.add.at(merged, code[nearest], P.shares)
    C = differences(merged)
    D, q = np.abs(C).sum(axis=0), merged.sum(axis=0)
    F = np.cumsum(q)[:-1]
    at = {
        name: int(np.argmin(np.abs(F - share)))
        for name, share in (("decisions .5", 0.5), ("decisions .95", 0.95))
    }
    values = {
        "score gap": float(D @ np.diff(P.z)),
        "rank gap": float(D @ (0.5 * (q[:-1] + q[1:]))),
        "mean gap": float(np.abs(C @ np.diff(P.z)).sum()),
        "worst": float(D.max()),
        **{name: float(D[j]) for name, j in at.items()},
    }
    return values, D, at


def judge(law: str, n: int, draw: int) -> dict[str, list[float]]:
    """Return of each measure: truth, plug-in, estimate, both ends, the one-sided upper limit, chance."""
    found = sample(law, n, draw)
    if len(found.z) < 2:  # rare events, of which there is none: a constant score has no gap
        return {}
    true, D, at = truths(population(law), found)
    errors = GapErrors(found, draw)
    asked = {name: int((found.levels <= j).sum()) - 1 for name, j in at.items()}
    limits = {
        "score gap": errors.score_gap,
        "rank gap": errors.rank_gap,
        "mean gap": errors.mean_gap,
        "worst": errors.worst,
    }
    values = {}
    for name in MEASURES:
        if name in limits:
            limit = limits[name]()
        elif 0 <= asked[name] < len(found.z) - 1:
            limit = errors.decision_gap(asked[name])
        else:
            continue
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
    there = D[np.searchsorted(population(law).z, errors.law.z[band.levels])]
    values["band"] = [float((band.low > there + 1e-9).any()), float((band.high < there - 1e-9).any())]
    return values


def work(task: Task) -> Task:
    """Run some draws of a cell."""
    results = defaultdict(list)
    for draw in draws_of(task):
        for name, values in judge(task["law"], task["n"], draw).items():
            results[name].append(values)
    summary: dict[str, Any] = {}
    for name, rows in results.items():
        x = np.array(rows)
        if name == "band":
            summary[name] = {"draws": len(x), "low": int(x[:, 0].sum()), "high": int(x[:, 1].sum())}
            continue
        true, plug_in, estimate, low, high, one_sided, chance = x.T
        summary[name] = {
            "draws": len(x),
            "low": int((low > true + 1e-12).sum()),
            "high": int((high < true - 1e-12).sum()),
            "kept": int((one_sided < true - 1e-12).sum()),
            **{
                key: float(value.mean())
                for key, value in {
                    "truth": true,
                    "plug_in": plug_in,
                    "estimate": estimate,
                    "width": high - low,
                    "chance": chance,
                }.items()
            },
            "estimate_square": float(((estimate - true) ** 2).mean()),
            "one_sided": [round(float(value), 5) for value in one_sided],
        }
    return {"measures": summary}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only print the tables from the results")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), choices=SIZES)
    parser.add_argument("--laws", nargs="*", default=list(LAWS), choices=list(LAWS))


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing in this process, all cells in turn, and print the tables."""
    runs = opened("table_gaps.json", fresh=arguments.fresh, quick=arguments.quick)
    runs.header["workers"] = 1
    draws = 8 if arguments.quick else arguments.draws
    tasks: list[tuple[Callable[[Task], Task], Task]] = []
    for n in arguments.sizes:
        for law in arguments.laws:
            if n == 5_000 and law not in COMPARED:
                continue
            tasks += [(work, task) for task in chunks({"law": law, "n": n}, draws, CHUNK)]
    tasks.sort(key=lambda one: one[1]["first"])
    if not arguments.table:
        spread_here(runs, tasks)
        runs.write()
    print(tables(runs.runs))


def spread_here(runs: Any, tasks: Sequence[tuple[Callable[[Task], Task], Task]]) -> None:
    """Run the tasks without results one after the other, and keep each as it comes."""
    import time

    for work_of, task in tasks:
        if runs.missing(**task):
            start = time.process_time()
            runs.add(**task, **work_of(task), seconds=round(time.process_time() - start, 2))


def cells(runs: Sequence[dict[str, Any]]) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Add up the chunks of each law, number of rows and measure."""
    found: dict[tuple[str, int, str], dict[str, Any]] = {}
    for one in runs:
        for name, part in one.get("measures", {}).items():
            total = found.setdefault((one["law"], one["n"], name), defaultdict(float))
            for key, value in part.items():
                if key == "one_sided":
                    total[key] = [*(total[key] or []), *value]
                else:
                    total[key] += value if key in ("draws", "low", "high", "kept") else part["draws"] * value
    for total in found.values():
        for key in ("truth", "plug_in", "estimate", "width", "chance", "estimate_square"):
            total[key] /= total["draws"]
    return found


def tables(runs: Sequence[dict[str, Any]]) -> str:
    """Return the tables in Markdown; misses beyond the .1 % binomial point in bold."""
    found = cells(runs)
    heads = [f"{name}: low, high" for name in (*MEASURES, "band")]
    lines = [f"| law | n | draws | {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) + 2)]
    laws = list(dict.fromkeys((law, n) for law, n, _ in found))
    for law, n in laws:
        row = []
        for name in (*MEASURES, "band"):
            one = found.get((law, n, name))
            row.append(
                "-"
                if one is None
                else ", ".join(_share(one[end], one["draws"], 0.025) for end in ("low", "high"))
            )
        draws = max(
            int(found[law, n, name]["draws"]) for name in (*MEASURES, "band") if (law, n, name) in found
        )
        lines.append(f"| {law} | {n:,} | {draws} | {' | '.join(row)} |")
    # Of the intervals by rows that these replaced: they were run once.
    before = {(one["law"], one["n"]): one for one in runs if one.get("today")}
    columns = ("law", "n", "measure", "truth", "plug-in", "estimate", "width", "width before")
    more = ("found kept at its value", "gap / limit kept in 80 %", "before")
    lines += ["", f"| {' | '.join((*columns, *more))} |"]
    lines.append("| --- |" + " ---: |" * 10)
    for law, n in laws:
        for name in ("score gap", "rank gap", "mean gap", "decisions .5", "worst"):
            one = found.get((law, n, name))
            if one is None:
                continue
            old = before.get((law, n)) if name == "score gap" else None
            ratio = one["truth"] / np.quantile(one["one_sided"], 0.8)
            old_ratio = "-" if old is None else f"{one['truth'] / np.quantile(old['one_sided'], 0.8):.2f}"
            lines.append(
                f"| {law} | {n:,} | {name} | "
                f"{one['truth']:.4f} | {one['plug_in']:.4f} | {one['estimate']:.4f} | "
                f"{one['width']:.4f} | {'-' if old is None else format(old['width'], '.4f')} | "
                f"{_share(one['kept'], one['draws'], 0.05)} | {ratio:.2f} | {old_ratio} |"
            )
    return "\n".join(lines)


def _share(misses: float, draws: float, rate: float) -> str:
    text = f"{misses / draws:.3f}"
    return f"**{text}**" if misses > stats.binom.isf(1e-3, int(draws), rate) else text
