"""How often bands along S and the interval of the mean gap hold for rare events and skewed scores.

Fifteen ages have equally many people. A share above a cut-off, a base rate or a mean is the same at every
age, or rises. Judged are the band of a curve, of the decisions of an audit, and the interval of the mean gap.
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from benchmarks._record import write_section
from benchmarks._simulate import Array, Task, chunks, draws_of, opened, rng, spread
from frhsic import GDP, audit
from frhsic.inference import Curve, conditional_curve, confidence_interval
from frhsic.sketching import HSICSketch

LEVEL, DRAWS, CHUNK = 0.95, 400, 50
AGES = np.linspace(20.0, 76.0, 15)
PLACE = (AGES - 48.0) / 28.0
# A share that a true rate of 95 % falls below in one of 1,000 simulations.
LEAST = float(stats.binom.ppf(1e-3, DRAWS, LEVEL)) / DRAWS


class Law(NamedTuple):
    """The scores of one law: their mean at each age, and their draws."""

    mean: Array  # (15,)
    deviation: Array  # (15,)
    draw: Callable[[np.random.Generator, NDArray[np.int64]], Array]  # given the code of the age of each row


def rates(mean: float | Array) -> Law:
    """Return the law of an event with these rates."""
    p = np.broadcast_to(np.asarray(mean, dtype=float), AGES.shape)
    return Law(p, np.sqrt(p * (1.0 - p)), lambda g, age: (g.random(len(age)) < p[age]).astype(float))


def scaled(base: stats.rv_continuous, grows: float = 0.0) -> Law:
    """Return the law of scores whose mean and deviation are multiplied by exp(grows * place)."""
    scale = np.exp(grows * PLACE)
    return Law(
        scale * base.mean(),
        scale * base.std(),
        lambda g, age: scale[age] * base.rvs(len(age), random_state=g),
    )


LAWS: dict[str, Law] = {
    "rate .01": rates(0.01),
    "rate .02": rates(0.02),
    "rate .05": rates(0.05),
    "rates .02 to .05": rates(np.linspace(0.02, 0.05, 15)),
    "rates .05 to .02": rates(np.linspace(0.05, 0.02, 15)),
    "rates .01 to .18": rates(special.expit(-3.0 + 1.5 * PLACE)),
    "rate .98": rates(0.98),
    "log-normal(1.5)": scaled(stats.lognorm(1.5)),
    "log-normal(1.5), growing": scaled(stats.lognorm(1.5), 0.5),
    "Student(3)": scaled(stats.t(3)),
    "normal": scaled(stats.norm()),
    "normal, growing": scaled(stats.norm(), 1.0),
}
# What is judged, the law and the number of rows.
CELLS: tuple[tuple[str, str, int], ...] = (
    ("share above a cut-off", "rate .01", 6_000),
    ("share above a cut-off", "rate .01", 12_000),
    ("share above a cut-off", "rate .02", 3_000),
    ("share above a cut-off, of a sketch", "rate .01", 12_000),
    ("decisions of an audit", "rate .01", 6_000),
    ("mean", "rate .02", 6_000),
    ("mean", "rate .05", 6_000),
    ("mean", "rates .02 to .05", 6_000),
    ("mean", "rates .05 to .02", 12_000),
    ("mean", "rates .01 to .18", 6_000),
    ("mean", "rate .98", 6_000),
    ("mean", "log-normal(1.5)", 3_000),
    ("mean", "log-normal(1.5)", 6_000),
    ("mean", "log-normal(1.5)", 12_000),
    ("mean", "log-normal(1.5), growing", 6_000),
    ("mean", "Student(3)", 6_000),
    ("mean", "normal", 6_000),
    ("mean", "normal, growing", 6_000),
    ("mean gap", "rate .01", 2_000),
    ("mean gap", "rate .01", 6_000),
    ("mean gap", "rate .01", 12_000),
    ("mean gap", "rates .01 to .18", 6_000),
    ("mean gap", "log-normal(1.5)", 6_000),
    ("mean gap", "log-normal(1.5), growing", 6_000),
    ("mean gap", "normal", 6_000),
)


def tasks_of(draws: int) -> list[Task]:
    """Return the chunks of all cells, audits last: they take longest."""
    ordered = sorted(CELLS, key=lambda cell: "audit" in cell[0])
    return [
        task
        for what, law, n in ordered
        for task in chunks({"what": what, "law": law, "n": n}, draws, min(draws, CHUNK))
    ]


def band_of(what: str, scores: Array, ages: Array, draw: int) -> Curve:
    """Return the curve that is judged; ``scores`` are 0 and 1 where it is one of decisions."""
    options: dict[str, Any] = {"random_state": draw, "confidence_level": LEVEL}
    generator = rng("rare", "score", draw)
    # Any score whose share above the cut-off is the event.
    above = np.where(scores > 0.5, 1.0, -1.0) * generator.random(len(scores))
    if what == "share above a cut-off":
        return conditional_curve(above, {"age": ages}, cutoff=0.0, **options)
    if what == "share above a cut-off, of a sketch":
        sketch = HSICSketch.like(above, {"age": ages}, cutoffs=[0.0]).update(above, {"age": ages})
        return conditional_curve(sketch, cutoff=0.0, **options)
    if what == "decisions of an audit":
        found = audit(above, sensitive_features={"age": ages}, thresholds=[0.0], **options)
        curve = found.attributes[0].decisions[0].curve
        assert curve is not None
        return curve
    return conditional_curve(scores, {"age": ages}, **options)


def work(task: Task) -> Task:
    """Run some draws of a cell."""
    law, n = LAWS[task["law"]], task["n"]
    gdp = float(np.abs(law.mean - law.mean.mean()).mean())
    held, above, below, lengths = 0, 0, 0, []
    for draw in draws_of(task):
        generator = rng("rare", task["law"], n, draw)
        age = np.asarray(generator.integers(0, len(AGES), n))
        scores = law.draw(generator, age)
        if task["what"] == "mean gap":
            options: dict[str, Any] = {"random_state": draw, "confidence_level": LEVEL, "chance": False}
            found = confidence_interval(scores, {"age": AGES[age]}, dependence=GDP(), **options)
            low, high, truth = np.array([found.low]), np.array([found.high]), np.array([gdp])
        else:
            curve = band_of(task["what"], scores, AGES[age], draw)
            low, high, truth = np.array(curve.low), np.array(curve.high), law.mean
        too_high, too_low = bool((low > truth + 1e-12).any()), bool((high < truth - 1e-12).any())
        held += not (too_high or too_low)
        above, below = above + too_low, below + too_high
        lengths.append(float((high - low).mean()))
    # Of a normal band with known deviations, for 15 independent means.
    reach = stats.norm.isf(0.5 * (1.0 - LEVEL ** (1.0 / len(AGES))))
    known = float((2.0 * reach * law.deviation / np.sqrt(n / len(AGES))).mean())
    return {
        "held": held,
        "truth_above": above,
        "truth_below": below,
        "length": float(np.mean(lengths)),
        "known": None if task["what"] == "mean gap" else known,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only write the table from the results")


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, and write the table."""
    runs = opened("rare.json", fresh=arguments.fresh, quick=arguments.quick, draws_each=DRAWS)
    if not arguments.table:
        spread(runs, tasks_of(4 if arguments.quick else DRAWS), work)
        runs.write()
    text = table(runs.runs)
    print(text)
    if not arguments.quick:
        write_section("evidence/coverage.md", "rare", text, "rare.json")


def table(runs: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| what | law | n | held | truth above | truth below | mean width | over that of known deviations |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for what, law, n in CELLS:
        parts = [one for one in runs if (one["what"], one["law"], one["n"]) == (what, law, n)]
        draws = sum(part["draws"] for part in parts)
        if not draws:
            continue
        held, above, below = (
            sum(part[name] for part in parts) / draws for name in ("held", "truth_above", "truth_below")
        )
        width = sum(part["length"] * part["draws"] for part in parts) / draws
        known = parts[0]["known"]
        ratio = "-" if known is None else f"{width / known:.2f}"
        marked = f"{held:.3f}" if held >= LEAST else f"**{held:.3f}**"
        lines.append(
            f"| {what} | {law} | {n:,} | {marked} | {above:.3f} | {below:.3f} | {width:.3g} | {ratio} |"
        )
    lines += ["", f"In bold: below {LEAST:.4f}, which a rate of .95 falls below in one of 1,000 simulations."]
    return "\n".join(lines)
