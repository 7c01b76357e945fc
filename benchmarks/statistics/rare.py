"""How often bands along S and the interval of the mean gap hold for rare events and skewed scores.

Ages have equally many people, 15 or 72 of them. A share above a cut-off, a base rate, a mean, or the mean of
outcome less score (calibration) is the same at every age, or rises. Judged are the band of a curve, of the
decisions of an audit, and the interval of the mean gap. Ends of rates beyond 0 and 1 count as 0 and 1.
"""

import argparse
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from benchmarks._record import RESULTS, write_section
from benchmarks._simulate import Array, Task, chunks, draws_of, opened, rng, spread
from frhsic import GDP, audit
from frhsic.inference import Curve, conditional_curve, confidence_interval

LEVEL, DRAWS, CHUNK = 0.95, 400, 50
_BEFORE = "rare-before.json"
# A share that a true rate of 95 % falls below in one of 1,000 simulations.
LEAST = float(stats.binom.ppf(1e-3, DRAWS, LEVEL)) / DRAWS


class Law(NamedTuple):
    """The scores of one law: their mean and deviation at each age, and their draws."""

    mean: Array  # (ages,)
    deviation: Array  # (ages,)
    draw: Callable[[np.random.Generator, NDArray[np.int64]], Array]  # given the code of the age of each row
    rate: bool = False


def rates(mean: float | Array, ages: int) -> Law:
    """Return the law of an event with these rates."""
    p = np.broadcast_to(np.asarray(mean, dtype=float), ages)
    return Law(p, np.sqrt(p * (1.0 - p)), lambda g, age: (g.random(len(age)) < p[age]).astype(float), True)


def scaled(base: Any, ages: int, *, grows: float = 0.0, rises: float = 0.0) -> Law:
    """Return the law of scores whose mean and deviation grow by exp(grows * place), or whose mean rises."""
    place = np.linspace(-1.0, 1.0, ages)
    scale, shift = np.exp(grows * place), rises * place
    return Law(
        scale * base.mean() + shift,
        scale * base.std(),
        lambda g, age: shift[age] + scale[age] * base.rvs(len(age), random_state=g),
    )


def calibrated(score: Callable[[np.random.Generator, int], Array], ages: int) -> Law:
    """Return the law of outcome less score, where the score is the chance of the outcome."""

    def draw(generator: np.random.Generator, age: NDArray[np.int64]) -> Array:
        chance = score(generator, len(age))
        return (generator.random(len(age)) < chance) - chance

    chance = score(np.random.default_rng(0), 1_000_000)
    return Law(np.zeros(ages), np.full(ages, np.sqrt((chance * (1.0 - chance)).mean())), draw)


def one_skewed(base: Any, ages: int) -> Law:
    """Return the law of normal scores, but for the age in the middle: skewed, of the same moments."""
    normal, skewed = stats.norm(base.mean(), base.std()), scaled(base, ages)

    def draw(generator: np.random.Generator, age: NDArray[np.int64]) -> Array:
        other = normal.rvs(len(age), random_state=generator)
        return np.where(age == ages // 2, skewed.draw(generator, age), other)

    return skewed._replace(draw=draw)


@cache
def law_of(name: str, ages: int) -> Law:
    """Return a law by its name."""
    place = np.linspace(-1.0, 1.0, ages)
    if name.startswith("rate"):
        found = {
            "rate .01": 0.01,
            "rate .02": 0.02,
            "rate .05": 0.05,
            "rate .98": 0.98,
            "rates .02 to .05": np.linspace(0.02, 0.05, ages),
            "rates .05 to .02": np.linspace(0.05, 0.02, ages),
            "rates .01 to .18": special.expit(-3.0 + 1.5 * place),
            "rate .1 at each third age, else .003": np.where(np.arange(ages) % 3 == 0, 0.1, 0.003),
        }
        return rates(found[name], ages)
    made: dict[str, Callable[[], Law]] = {
        "log-normal(1.5)": lambda: scaled(stats.lognorm(1.5), ages),
        "log-normal(1)": lambda: scaled(stats.lognorm(1.0), ages),
        "exponential": lambda: scaled(stats.expon(), ages),
        "log-normal(1.5), growing": lambda: scaled(stats.lognorm(1.5), ages, grows=0.5),
        "log-normal(1.5) at one age": lambda: one_skewed(stats.lognorm(1.5), ages),
        "log-normal(1) at one age": lambda: one_skewed(stats.lognorm(1.0), ages),
        "outcomes of about .03": lambda: calibrated(lambda g, n: g.beta(1.5, 48.5, n), ages),
        "skewed chances": lambda: calibrated(lambda g, n: special.expit(-4.5 + 1.5 * g.normal(size=n)), ages),
        "Student(3)": lambda: scaled(stats.t(3), ages),
        "normal": lambda: scaled(stats.norm(), ages),
        "normal, rising": lambda: scaled(stats.norm(), ages, rises=1.0),
        "normal, growing": lambda: scaled(stats.norm(), ages, grows=1.0),
        "uniform": lambda: scaled(stats.uniform(), ages),
    }
    return made[name]()


class Cell(NamedTuple):
    """What is judged, of which law, of how many rows and ages."""

    what: str
    law: str
    n: int
    ages: int = 15


_SIZES = ((500, 15), (3_000, 15), (6_000, 15), (20_000, 15), (12_000, 72))
_LAWS = {
    "mean": (
        "log-normal(1.5)",
        "log-normal(1)",
        "exponential",
        "log-normal(1.5) at one age",
        "normal",
        "normal, rising",
        "uniform",
    ),
    "share above a cut-off": ("rate .01",),
    "base rate": ("rates .02 to .05",),
    "calibration": ("outcomes of about .03", "skewed chances"),
}
CELLS: tuple[Cell, ...] = (
    *(Cell(what, law, *size) for what, laws in _LAWS.items() for law in laws for size in _SIZES),
    Cell("share above a cut-off", "rate .01", 3_000, 72),
    Cell("share above a cut-off", "rate .02", 3_000),
    Cell("base rate", "rates .05 to .02", 12_000),
    Cell("base rate", "rates .01 to .18", 6_000),
    Cell("base rate", "rate .98", 6_000),
    Cell("base rate", "rate .1 at each third age, else .003", 500),
    Cell("base rate", "rate .1 at each third age, else .003", 3_000, 72),
    Cell("mean", "log-normal(1.5)", 3_000, 72),
    Cell("mean", "log-normal(1) at one age", 500),
    Cell("mean", "log-normal(1) at one age", 3_000),
    Cell("mean", "log-normal(1.5), growing", 3_000),
    Cell("mean", "log-normal(1.5), growing", 6_000),
    Cell("mean", "Student(3)", 3_000),
    Cell("mean", "Student(3)", 6_000),
    Cell("mean", "normal, growing", 3_000),
    Cell("mean", "normal, growing", 6_000),
    Cell("mean gap", "rate .01", 2_000),
    Cell("mean gap", "rate .01", 6_000),
    Cell("mean gap", "rate .01", 12_000),
    Cell("mean gap", "rates .01 to .18", 6_000),
    Cell("mean gap", "log-normal(1.5)", 6_000),
    Cell("mean gap", "log-normal(1.5), growing", 6_000),
    Cell("mean gap", "normal", 6_000),
    Cell("decisions of an audit", "rate .01", 6_000),
)


def tasks_of(draws: int) -> list[Task]:
    """Return the chunks of all cells."""
    return [task for cell in CELLS for task in chunks(cell._asdict(), draws, min(draws, CHUNK))]


def band_of(what: str, scores: Array, ages: Array, draw: int) -> Curve:
    """Return the curve that is judged; ``scores`` are 0 and 1 where it is one of decisions."""
    options: dict[str, Any] = {"random_state": draw, "confidence_level": LEVEL}
    generator = rng("rare", "score", draw)
    # Any score whose share above the cut-off is the event.
    above = np.where(scores > 0.5, 1.0, -1.0) * generator.random(len(scores))
    if what == "share above a cut-off":
        return conditional_curve(above, {"age": ages}, cutoff=0.0, **options)
    if what == "decisions of an audit":
        found = audit(above, sensitive_features={"age": ages}, thresholds=[0.0], **options)
        curve = found.attributes[0].decisions[0].curve
        assert curve is not None
        return curve
    return conditional_curve(scores, {"age": ages}, **options)


def work(task: Task) -> Task:
    """Run some draws of a cell."""
    n, ages = task["n"], task["ages"]
    law = law_of(task["law"], ages)
    years = np.linspace(20.0, 76.0, ages)
    gdp = float(np.abs(law.mean - law.mean.mean()).mean())
    held, above, below, lengths, errors, deviations = 0, 0, 0, [], [], []
    for draw in draws_of(task):
        generator = rng("rare", task["law"], n, ages, draw)
        age = np.asarray(generator.integers(0, ages, n))
        scores = law.draw(generator, age)
        if task["what"] == "mean gap":
            options: dict[str, Any] = {"random_state": draw, "confidence_level": LEVEL, "chance": False}
            found = confidence_interval(scores, {"age": years[age]}, dependence=GDP(), **options)
            low, high, truth = np.array([found.low]), np.array([found.high]), np.array([gdp])
        else:
            curve = band_of(task["what"], scores, years[age], draw)
            low, high, truth = np.array(curve.low), np.array(curve.high), law.mean
            if law.rate:
                low, high = low.clip(0.0, 1.0), high.clip(0.0, 1.0)
            deviation = law.deviation / np.sqrt(np.bincount(age, minlength=ages))
            errors.append(float((np.abs(np.array(curve.mean) - truth) / deviation).max()))
            deviations.append(float(deviation.mean()))
        too_high, too_low = bool((low > truth + 1e-12).any()), bool((high < truth - 1e-12).any())
        held += not (too_high or too_low)
        above, below = above + too_low, below + too_high
        lengths.append(float((high - low).mean()))
    return {
        "held": held,
        "truth_above": above,
        "truth_below": below,
        "length": float(np.mean(lengths)),
        "errors": [round(error, 3) for error in errors],
        "deviation": float(np.mean(deviations)) if deviations else None,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only write the table from the results")
    parser.add_argument(
        "--before", action="store_true", help="of code to compare with: into rare-before.json"
    )
    parser.add_argument("--draws", type=int, default=DRAWS, help="samples of each cell")


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, and write the table."""
    name = _BEFORE if arguments.before else "rare.json"
    runs = opened(name, fresh=arguments.fresh, quick=arguments.quick, draws_each=arguments.draws)
    if not arguments.table:
        spread(runs, tasks_of(4 if arguments.quick else arguments.draws), work)
        if arguments.before:  # the same samples: their errors are in the other file
            for one in runs.runs:
                one.pop("errors", None)
        runs.write()
    if not arguments.before:
        before = opened(_BEFORE, fresh=False, quick=False).runs if (RESULTS / _BEFORE).exists() else []
        text = table(runs.runs, before)
        print(text)
        if not arguments.quick:
            write_section("evidence/coverage.md", "rare", text, "rare.json")


class Total(NamedTuple):
    """All samples of one cell."""

    draws: int
    held: float
    above: float
    below: float
    width: float
    oracle: float | None  # the width of a band that knows each deviation and the law of the largest error


def total(runs: list[dict[str, Any]], cell: Cell) -> Total | None:
    """Add up the chunks of a cell; return None if there are none."""
    parts = [one for one in runs if all(one.get(name) == value for name, value in cell._asdict().items())]
    draws = sum(part["draws"] for part in parts)
    if not draws:
        return None
    held, above, below = (
        sum(part[name] for part in parts) / draws for name in ("held", "truth_above", "truth_below")
    )
    width = sum(part["length"] * part["draws"] for part in parts) / draws
    oracle = None
    if parts[0]["deviation"] is not None:
        deviation = sum(part["deviation"] * part["draws"] for part in parts) / draws
        errors = [error for part in parts for error in part.get("errors", [math.nan])]
        oracle = 2.0 * deviation * float(np.quantile(errors, LEVEL))
    return Total(draws, held, above, below, width, oracle)


def table(runs: list[dict[str, Any]], before: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| what | law | n | ages | samples | held | truth above | truth below | width | of oracle "
        "| before: held | new width of old |",
        "| --- | --- |" + " ---: |" * 10,
    ]
    for cell in CELLS:
        found, old = total(runs, cell), total(before, cell)
        if found is None:
            continue
        least = float(stats.binom.ppf(1e-3, found.draws, LEVEL)) / found.draws
        held = f"{found.held:.3f}" if found.held >= least else f"**{found.held:.3f}**"
        ratio = "-" if found.oracle is None else f"{found.width / found.oracle:.2f}"
        against = "- | -" if old is None else f"{old.held:.3f} | {found.width / old.width:.2f}"
        lines.append(
            f"| {cell.what} | {cell.law} | {cell.n:,} | {cell.ages} | {found.draws} | {held} "
            f"| {found.above:.3f} | {found.below:.3f} | {found.width:.3g} | {ratio} | {against} |"
        )
    lines += [
        "",
        f"In bold: below {LEAST:.4f} (of {DRAWS} samples), which .95 falls below in one of 1,000.",
    ]
    return "\n".join(lines)
