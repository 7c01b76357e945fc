"""How often the change of a gap, and of the mean score along S, is stated rightly between two samples.

Two laws of S, three numbers of rows, two independent samples or two scores of the same rows, and four
changes: none; none of the gap, though the law of the score is another (twice); a larger gap. Beside them what
two records give without rows, and permutations of the samples, which test another hypothesis.
"""

import argparse
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from benchmarks._record import write_section
from benchmarks._simulate import Array, Task, chunks, draws_of, least, most, opened, rng, spread
from benchmarks.statistics.curves import POPULATION, population
from benchmarks.statistics.gaps import GRID, PLACES, Truth, gaps_within
from frhsic.data import to_sensitive
from frhsic.dependence import ScoreGap
from frhsic.inference import (
    CurveChange,
    Ends,
    Interval,
    confidence_interval,
    curve_change,
    difference_of_intervals,
    gap_change,
)

LEVEL = 0.95
DRAWS = {500: 500, 2_000: 500, 10_000: 200}
CHUNK = 50
MULTIPLIERS = 499
# Of these draws also records are compared, and samples permuted: both take longer.
RECORDS = {500: 100, 2_000: 50, 10_000: 20}
PERMUTED = {500: 100, 2_000: 50, 10_000: 0}
PERMUTATIONS = 99
# The correlation of two scores of the same row.
CORRELATION = 0.8

LAWS = ("integer age", "uniform")
DESIGNS = ("independent", "same rows")
CASES = ("same law", "no gap, less spread", "same gap, another curve", "larger gap")
NULL = CASES[:3]
Way = Callable[[Array], tuple[Any, Any]]
Mask = NDArray[np.bool_]


def line(slope: float) -> Way:
    """Return a shift of the latent score along the ranks of S."""
    return lambda u: (slope * (2.0 * u - 1.0), 1.0)


def bowl(depth: float) -> Way:
    """Return a U."""
    return lambda u: (depth * ((2.0 * u - 1.0) ** 2 - 1.0 / 3.0), 1.0)


@cache
def ways(law: str, case: str) -> tuple[Way, Way]:
    """Return how the old and the new score follow S."""
    if case == "no gap, less spread":
        return line(0.0), lambda _: (0.0, 0.4)
    if case == "same gap, another curve":
        wanted = gap(truth_of(law, line(0.6)))
        depth = optimize.brentq(lambda c: gap(truth_of(law, bowl(c))) - wanted, 0.1, 3.0)
        return line(0.6), bowl(float(depth))
    return line(0.6), line(0.9 if case == "larger gap" else 0.6)


def truth_of(law: str, way: Way) -> Truth:
    """Return the shares above each cut-off at values of S of equal mass."""
    everybody = population(law)
    rows = np.arange(POPULATION // PLACES // 2, POPULATION, POPULATION // PLACES)
    shift, scale = way(everybody.rank[rows])
    cutoffs = 0.5 * (GRID[1:] + GRID[:-1])
    above = special.ndtr((np.asarray(shift)[..., None] - cutoffs) / scale)
    above = np.broadcast_to(above, (len(rows), len(cutoffs)))
    upto = np.vstack((np.zeros(len(cutoffs)), np.cumsum(above, axis=0)))
    return Truth(everybody.s[rows], upto, cutoffs, np.diff(special.ndtr(GRID)))


@cache
def truths(law: str, case: str) -> tuple[Truth, Truth]:
    """Return the truths of both samples."""
    old, new = ways(law, case)
    return truth_of(law, old), truth_of(law, new)


def gap(real: Truth, low: Array | None = None, high: Array | None = None) -> float:
    """Return the gap of the score, at single values or within ranges."""
    values = np.unique(real.s)
    inside = gaps_within(real, values if low is None else low, values if high is None else high)
    return float(inside @ real.steps)


def means_within(real: Truth, low: Array, high: Array) -> Array:
    """Return the mean score within ranges, which is the sum of the shares above cut-offs."""
    first = np.searchsorted(real.s, low, side="left")
    last = np.asarray(np.maximum(np.searchsorted(real.s, high, side="right"), first + 1))
    inside = real.upto[last] - real.upto[first]
    return np.asarray(inside @ real.steps / (last - first))


def sample(task: Task, draw: int) -> tuple[Array, Array, Mask | None]:
    """Return scores, s, and which rows are new; None for two scores of the same rows."""
    generator = rng("compare", *(task[name] for name in ("law", "design", "case", "n")), draw)
    everybody, n = population(task["law"]), task["n"]
    paired = task["design"] == "same rows"
    rows = np.asarray(generator.integers(0, POPULATION, n if paired else 2 * n))
    halves = (rows, rows) if paired else (rows[:n], rows[n:])
    noise = generator.normal(size=(2, n))
    if paired:
        noise[1] = CORRELATION * noise[0] + np.sqrt(1.0 - CORRELATION**2) * noise[1]
    scores = []
    for way, part, own in zip(ways(task["law"], task["case"]), halves, noise, strict=True):
        shift, scale = way(everybody.rank[part])
        scores.append(np.asarray(special.ndtr(shift + scale * own)))
    if paired:
        return np.column_stack(scores), everybody.s[rows], None
    return np.concatenate(scores), everybody.s[rows], np.arange(2 * n) >= n


def judge(task: Task, draw: int) -> tuple[dict[str, bool], dict[str, float]]:
    """Compare what two samples say with the truth, and return lengths beside."""
    scores, s, new = sample(task, draw)
    old_truth, new_truth = truths(task["law"], task["case"])
    options: dict[str, Any] = {"new": new, "random_state": draw, "confidence_level": LEVEL}
    found = gap_change(scores, {"s": s}, **options)
    curve = curve_change(scores, {"s": s}, n_draws=MULTIPLIERS, **options)
    low, high = np.array(curve.start), np.array(curve.stop)
    ends = (None, None) if exact(curve) else (low, high)
    change = gap(new_truth, *ends) - gap(old_truth, *ends)
    moved = means_within(new_truth, low, high) - means_within(old_truth, low, high)
    inside = (np.array(curve.low) <= moved + 1e-5) & (moved - 1e-5 <= np.array(curve.high))
    said = (np.array(curve.low) > 0.0) & (moved <= 1e-5) | (np.array(curve.high) < 0.0) & (moved >= -1e-5)
    held = {
        "covered": found.low <= change <= found.high,
        "rejected": found.shown,
        "band": bool(inside.all()),
        "places": not bool(said.any()),
    }
    sizes = {"length": found.high - found.low, "error": found.change - change}
    if new is not None and draw < RECORDS[task["n"]]:
        ends_of, stated = compare_records(task, scores, s, new, draw)
        held["records"] = ends_of.low <= stated <= ends_of.high
        held["records_rejected"] = not ends_of.low <= 0.0 <= ends_of.high
        sizes["records"] = ends_of.high - ends_of.low
    if new is not None and draw < PERMUTED[task["n"]] and task["law"] == LAWS[0]:
        plain, studentized = permute(scores, s, new, draw)
        held["plain"], held["studentized"] = plain <= 1.0 - LEVEL, studentized <= 1.0 - LEVEL
    return held, sizes


def exact(curve: CurveChange) -> bool:
    """Return whether the change is that at single values."""
    return curve.target == "the change at each value"


def compare_records(task: Task, scores: Array, s: Array, new: Mask, draw: int) -> tuple[Ends, float]:
    """Return the change from two intervals, and that of what these name."""
    made, true = [], []
    for mask, real in zip((~new, new), truths(task["law"], task["case"]), strict=True):
        own = {"s": s[mask]}
        one = confidence_interval(
            scores[mask],
            own,
            dependence=ScoreGap(),
            n_draws=MULTIPLIERS,
            random_state=draw,
            chance=False,
            confidence_level=LEVEL,
        )
        made.append(Ends(one.estimate, one.low, one.high))
        true.append(gap(real, *named(one, s[mask])))
    return difference_of_intervals(*made), true[1] - true[0]


def named(found: Interval, s: Array) -> tuple[Array | None, Array | None]:
    """Return the ranges that an interval names; None: it names single values."""
    cells = ScoreGap().cells(to_sensitive(s))
    if bool(cells.single.all()) or "at least as large" not in found.target:
        return None, None
    between = (0.5 * (cells.high[:-1] + cells.low[1:])).numpy()
    return np.concatenate(([-np.inf], between)), np.concatenate((between, [np.inf]))


def permute(scores: Array, s: Array, new: Mask, draw: int) -> tuple[float, float]:
    """Return the p-values of permutations of the samples, of the change and of it over its error."""
    generator = np.random.default_rng(draw)
    cells = ScoreGap().cells(to_sensitive(s[: len(s) // 2]))
    code = cells.codes(to_sensitive(s)).numpy()
    cuts = np.quantile(scores, np.linspace(0.0, 1.0, 17))
    parts = np.clip(scores[:, None], cuts[:-1], cuts[1:]) - cuts[:-1]
    values = []
    for k in range(PERMUTATIONS + 1):
        order = generator.permutation(new) if k else new
        (a, va), (b, vb) = (plug_in(parts[mask], code[mask], cells.size) for mask in (~order, order))
        values.append((abs(b - a), abs(b - a) / np.sqrt(va + vb)))
    drawn = np.array(values)
    plain, studentized = ((drawn >= drawn[0] - 1e-12).sum(axis=0) / len(drawn)).tolist()
    return plain, studentized


def plug_in(parts: Array, code: Array, size: int) -> tuple[float, float]:
    """Return the gap of parts of a score, and the variance of its influence function."""
    n = len(code)
    counts = np.bincount(code, minlength=size)
    table = np.zeros((size, n))
    table[code, np.arange(n)] = 1.0
    means = table @ parts / np.maximum(counts, 1)[:, None]
    overall = parts.mean(axis=0)
    gaps = np.where(counts[:, None] > 0, means - overall, 0.0)
    sign, share = np.sign(gaps), counts / n
    value = float(share @ np.abs(gaps).sum(axis=1))
    around = parts - overall
    influence = (sign[code] * around).sum(axis=1) - around @ (share @ sign) - value
    return value, float(influence.var() / n)


def work(task: Task) -> Task:
    """Run some draws of a cell."""
    found = [judge(task, draw) for draw in draws_of(task)]
    held: dict[str, list[int]] = {}
    for one, _ in found:
        for name, value in one.items():
            held.setdefault(name, []).append(int(value))
    sizes: dict[str, list[float]] = {}
    for _, more in found:
        for name, size in more.items():
            sizes.setdefault(name, []).append(size)
    return {
        "held": {name: [sum(values), len(values)] for name, values in held.items()},
        "sizes": {name: [float(np.sum(values)), len(values)] for name, values in sizes.items()},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only write the tables from the results")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(DRAWS), choices=list(DRAWS))


def tasks_of(quick: bool, sizes: list[int]) -> list[Task]:
    """Return the chunks, the first of each cell first: what is stopped is balanced."""
    found = [
        task
        for n in sizes
        for design in DESIGNS
        for law in LAWS
        for case in CASES
        for task in chunks(
            {"law": law, "design": design, "case": case, "n": n}, 4 if quick else DRAWS[n], CHUNK
        )
    ]
    return sorted(found, key=lambda task: int(task["first"]))


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, and write the tables."""
    runs = opened(
        "compare.json",
        fresh=arguments.fresh,
        quick=arguments.quick,
        draws=DRAWS,
        multipliers=MULTIPLIERS,
        records=RECORDS,
        permuted=PERMUTED,
    )
    if not arguments.table:
        spread(runs, tasks_of(arguments.quick, arguments.sizes), work)
        runs.write()
    text = tables(runs.runs)
    print(text)
    if not arguments.quick:
        write_section("evidence/coverage.md", "compare", text, "compare.json")


Key = tuple[str, str, str, int]


def cells_of(runs: list[dict[str, Any]]) -> dict[Key, dict[str, tuple[float, int]]]:
    """Add up the chunks of each cell: how often each thing held, and of how many draws."""
    found: dict[Key, dict[str, tuple[float, int]]] = {}
    for one in runs:
        total = found.setdefault((one["law"], one["design"], one["case"], one["n"]), {})
        for name, (value, count) in (*one["held"].items(), *prefixed(one["sizes"])):
            before = total.get(name, (0.0, 0))
            total[name] = (before[0] + value, before[1] + count)
    return found


def prefixed(sizes: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return sizes under names of their own."""
    return [(f"size of {name}", value) for name, value in sizes.items()]


def tables(runs: list[dict[str, Any]]) -> str:
    """Return the tables in Markdown."""
    found = cells_of(runs)
    sizes = sorted({key[3] for key in found})
    head = [f"n = {n:,}" for n in sizes]
    lines = ["| | " + " | ".join(head) + " |", "| --- |" + " ---: |" * len(sizes)]
    short: list[str] = []
    for name, words, cases in (
        ("covered", "the interval of the change of the gap holds it", CASES),
        ("band", "the band of the change of the curve holds it everywhere", CASES),
        ("places", "no place is said to be higher or lower that is not", CASES),
        ("records", "the interval from two records holds it", CASES),
    ):
        row = []
        for n in sizes:
            part = {k: one[name] for k, one in found.items() if k[3] == n and k[2] in cases and name in one}
            rates = [value / count for value, count in part.values()]
            row.append(f"{np.mean(rates):.3f} ({min(rates):.3f})" if rates else "-")
            short += [
                f"{words}: {', '.join(key[:3])}, n = {n:,}: {value / count:.3f}"
                for key, (value, count) in part.items()
                if value / count < least(LEVEL, count, len(part))
            ]
        lines.append(f"| {words} | " + " | ".join(row) + " |")
    lines += [
        "",
        "Each entry is the mean over laws of S, designs and changes, the smallest in parentheses.",
        f"Cells below .95 by more than chance (a row together, 1 %): {'; '.join(short) or 'none'}.",
        "",
        "How often a change of the gap is shown; it is an error but in the last three lines:",
        "",
        "| change | by | " + " | ".join(head) + " |",
        "| --- | --- |" + " ---: |" * len(sizes),
    ]
    for case in CASES:
        for name, words, design in (
            ("rejected", "`gap_change`, two samples", DESIGNS[0]),
            ("rejected", "`gap_change`, the same rows", DESIGNS[1]),
            ("records_rejected", "two records", DESIGNS[0]),
            ("plain", "permutations", DESIGNS[0]),
            ("studentized", "permutations, studentised", DESIGNS[0]),
        ):
            if case == CASES[-1] and name in ("plain", "studentized"):
                continue
            row = [rate_of(found, name, case, design, n) for n in sizes]
            lines.append(f"| {case} | {words} | " + " | ".join(row) + " |")
    lines += [
        "",
        "Mean length of the interval, where the gap grows from .084 to .124, and what the estimate is off:",
        "",
        "| | " + " | ".join(head) + " |",
        "| --- |" + " ---: |" * len(sizes),
    ]
    for name, words, design in (
        ("size of length", "`gap_change`, two samples", DESIGNS[0]),
        ("size of length", "`gap_change`, the same rows", DESIGNS[1]),
        ("size of records", "two records", DESIGNS[0]),
        ("size of error", "estimate less truth, two samples", DESIGNS[0]),
    ):
        row = []
        for n in sizes:
            parts = [one[name] for k, one in found.items() if k[1:] == (design, CASES[-1], n) and name in one]
            total = sum(count for _, count in parts)
            row.append(f"{sum(value for value, _ in parts) / total:.3f}" if total else "-")
        lines.append(f"| {words} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def rate_of(found: dict[Key, dict[str, tuple[float, int]]], name: str, case: str, design: str, n: int) -> str:
    """Return how often something was seen over the laws of S, marked where it is an error and too often."""
    parts = [one[name] for k, one in found.items() if k[1:] == (design, case, n) and name in one]
    value, count = (sum(x) for x in zip(*parts, strict=True)) if parts else (0.0, 0)
    if not count:
        return "-"
    loud = " (too often)" if case in NULL and value / count > most(1.0 - LEVEL, int(count), 1) else ""
    return f"{value / count:.3f}{loud}"
