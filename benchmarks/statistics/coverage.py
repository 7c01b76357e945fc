"""How often intervals, bands and bounds hold the population's value, at, near and away from independence.

Gaussian pairs of correlation rho, whose population values are known in closed form or by quadrature: rho 0;
the rho at which HSIC is 1/n (and, at n = 200, 0.2/n), where the law of the estimate changes from one form to
the other; and rho 0.5. Kernels are fixed numbers, so that the targets are too.
"""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from benchmarks._figures import house_style
from benchmarks._record import RESULTS
from benchmarks._simulate import (
    BLUE,
    ORANGE,
    Array,
    Task,
    binomial_interval,
    chunks,
    draws_of,
    figure_path,
    least,
    opened,
    rng,
    spread,
)
from benchmarks.statistics.convergence import population_hsic
from frhsic import GDP, HSIC, DistanceCovariance
from frhsic.dependence import Dependence
from frhsic.inference import Curve, conditional_curve, confidence_interval
from frhsic.inference.bounds import certify
from frhsic.kernels import Gaussian

LEVEL = 0.95
SIZES, DRAWS = (200, 1_000), 1_000
MULTIPLIERS = 499
LEVELS = np.arange(20.0, 35.0)  # fifteen ages
REGIMES = ("independent", "nearest", "near", "away")
TITLES = {
    "independent": "independent",
    "nearest": "HSIC = 0.2 / n",
    "near": "HSIC = 1 / n",
    "away": "rho = 0.5",
}
MEASURES: dict[str, Dependence] = {
    "HSIC": HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased"),
    "normalised HSIC": HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased", normalized=True),
    "distance correlation, squared": DistanceCovariance(estimator="unbiased", normalized=True),
    "GDP, level means": GDP(),
}
# What each is an interval of, in the order of the table.
TARGETS = {
    "HSIC": "HSIC of fixed kernels, closed form",
    "normalised HSIC": "HSIC(rho) / HSIC(1), closed form",
    "distance correlation, squared": "closed form of Szekely et al. (2007)",
    "GDP, level means": "E|m(S) - E m(S)| of the true curve, fifteen equally likely levels",
    "band, level means": "the true curve at all levels at once",
    "certificate, finite-sample": "HSIC of fixed kernels, closed form; an upper bound",
    "certificate, asymptotic": "HSIC of fixed kernels, closed form; an upper bound",
}


class Outcome(NamedTuple):
    """One interval: whether it held its target, on which side it missed, and what it cost in width."""

    name: str
    low: bool  # the target lies below the interval
    high: bool  # or above
    width: float  # of an upper bound: its value
    estimate: float
    normal: bool = False  # whether the normal law was used


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--draw", action="store_true", help="only draw the figure from the results")


def correlation(regime: str, n: int) -> float:
    """Return rho of a regime."""
    if regime in ("independent", "away"):
        return 0.0 if regime == "independent" else 0.5
    target = (1.0 if regime == "near" else 0.2) / n
    return float(brentq(lambda rho: population_hsic(rho) - target, 1e-6, 0.999, xtol=1e-12))


def squared_distance_correlation(rho: float) -> float:
    """Return dCor^2 of a Gaussian pair (Szekely, Rizzo and Bakirov 2007, theorem 7)."""
    top = rho * math.asin(rho) + math.sqrt(1.0 - rho * rho)
    top -= rho * math.asin(0.5 * rho) + math.sqrt(4.0 - rho * rho) - 1.0
    return top / (1.0 + math.pi / 3.0 - math.sqrt(3.0))


def standard_levels() -> Array:
    """Return the levels of s at mean zero and variance one."""
    return (LEVELS - LEVELS.mean()) / LEVELS.std()


def truths(rho: float) -> dict[str, float]:
    """Return the population values that do not depend on the sample."""
    hsic = population_hsic(rho)
    return {
        "HSIC": hsic,
        "normalised HSIC": hsic / population_hsic(1.0),
        "distance correlation, squared": squared_distance_correlation(rho),
        "GDP, level means": abs(rho) * float(np.abs(standard_levels()).mean()),
        "certificate, finite-sample": hsic,
        "certificate, asymptotic": hsic,
    }


def tasks_of(draws: int, quick: bool) -> list[Task]:
    """Return the chunks; of those with the same draws the large samples first."""
    tasks = []
    for n in reversed(SIZES):
        for regime in REGIMES:
            if regime == "nearest" and n != SIZES[0]:
                continue
            cell = {"n": n, "regime": regime}
            tasks += chunks(cell, 5, 5) if quick else chunks(cell, draws, 50 if n > 200 else 250)
    return sorted(tasks, key=lambda task: task["first"])  # a command that is cut short has seen every cell


def outcomes(n: int, regime: str, draw: int) -> Iterator[Outcome]:
    """Yield what each interval, band and bound says about one sample."""
    g, rho = rng("coverage", n, regime, draw), correlation(regime, n)
    true = truths(rho)
    s, noise = g.standard_normal((2, n))
    noise *= math.sqrt(1.0 - rho * rho)
    z = rho * s + noise
    level = g.integers(len(LEVELS), size=n)
    ages, scores = LEVELS[level], rho * standard_levels()[level] + noise
    labels = np.char.add("age ", ages.astype(int).astype(str))  # a mean at each, however few its rows
    for name, measure in MEASURES.items():
        interval = confidence_interval(
            *((scores, labels) if name == "GDP, level means" else (z, s)),
            dependence=measure,
            confidence_level=LEVEL,
            n_draws=MULTIPLIERS,
            random_state=int(g.integers(2**31)),
            chance=False,
        )
        yield Outcome(
            name,
            low=true[name] < interval.low,
            high=true[name] > interval.high,
            width=interval.high - interval.low,
            estimate=interval.estimate,
            normal=interval.method.startswith("normal"),
        )
    seed = int(g.integers(2**31))
    band = conditional_curve(scores, labels, confidence_level=LEVEL, n_draws=MULTIPLIERS, random_state=seed)
    yield held("band, level means", band, rho * standard_levels()[np.array(band.points, dtype=int)])
    fixed = HSIC(Gaussian(1.0), Gaussian(1.0))
    certificate = certify(
        z, s, dependence=fixed, confidence_level=LEVEL, n_permutations=19, random_state=seed
    )
    for kind, bound in (("finite-sample", "population"), ("asymptotic", "population_asymptotic")):
        value = certificate.bound(bound).value
        name = f"certificate, {kind}"
        yield Outcome(name, low=False, high=true[name] > value, width=value, estimate=certificate.hsic)


def held(name: str, band: Curve, truth: Array) -> Outcome:
    """Return whether a band holds the whole curve; its width is the mean over s."""
    low, high, mass = np.array(band.low), np.array(band.high), np.array(band.mass)
    return Outcome(
        name,
        low=bool((truth < low).any()),
        high=bool((truth > high).any()),
        width=float(mass @ (high - low)),
        estimate=band.overall,
    )


def work(task: Task) -> Task:
    """Return the sums over the draws of a chunk, in a worker."""
    tallies = {
        name: dict.fromkeys(("missed", "low", "high", "width", "estimate", "normal"), 0.0) for name in TARGETS
    }
    for draw in draws_of(task):
        for outcome in outcomes(task["n"], task["regime"], draw):
            tally = tallies[outcome.name]
            tally["missed"] += outcome.low or outcome.high
            for field in ("low", "high", "width", "estimate", "normal"):
                tally[field] += float(getattr(outcome, field))
    return {"tallies": tallies}


def summarise(runs: list[Task]) -> list[dict[str, Any]]:
    """Return a row for each interval, n and regime."""
    sums: dict[tuple[str, int, str], dict[str, float]] = {}
    for run in sorted(
        runs, key=lambda run: (run["n"], run["regime"], run["first"])
    ):  # sums to the last digit
        for name, tally in run["tallies"].items():
            cell = sums.setdefault(
                (name, run["n"], run["regime"]), {"draws": 0.0, **dict.fromkeys(tally, 0.0)}
            )
            cell["draws"] += run["draws"]
            for field, value in tally.items():
                cell[field] += value
    rows = []
    for name, target in TARGETS.items():
        for n in SIZES:
            for regime in REGIMES:
                cell = sums.get((name, n, regime), {})
                if not cell:
                    continue
                draws, rho = int(cell["draws"]), correlation(regime, n)
                covered = draws - int(cell["missed"])
                rows.append(
                    {
                        "interval": name,
                        "target": target,
                        "n": n,
                        "regime": regime,
                        "rho": rho,
                        "truth": truths(rho).get(name),
                        "draws": draws,
                        "coverage": covered / draws,
                        "coverage_95": binomial_interval(covered, draws),
                        "short": covered / draws < least(LEVEL, draws, len(sums)),
                        "target below": cell["low"] / draws,
                        "target above": cell["high"] / draws,
                        "mean width": cell["width"] / draws,
                        "mean estimate": cell["estimate"] / draws,
                        "normal law used": cell["normal"] / draws,
                    }
                )
    return rows


@house_style(11.0)
def draw_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw coverage with its binomial limits, a panel for each regime; mean widths stand beside."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    names = list(TARGETS)
    figure, axes = plt.subplots(1, 4, figsize=(13.0, 5.6), sharex=True, sharey=True)
    lowest = min([0.9, *(row["coverage_95"][0] for row in rows)])
    for axis, regime in zip(axes, REGIMES, strict=True):
        for n, colour, marker, shift in zip(SIZES, (ORANGE, BLUE), ("s", "o"), (0.17, -0.17), strict=True):
            for row in rows:
                if (row["regime"], row["n"]) != (regime, n):
                    continue
                y = len(names) - 1 - names.index(row["interval"]) + shift
                axis.hlines(y, *row["coverage_95"], color=colour, lw=1.6)
                face = "white" if row["short"] else colour
                axis.plot(row["coverage"], y, marker, color=colour, mfc=face, markersize=5)
                axis.text(
                    1.015,
                    y,
                    f"{row['mean width']:.2g}",
                    fontsize=7,
                    va="center",
                    color=colour,
                    transform=axis.get_yaxis_transform(),
                )
        axis.axvline(LEVEL, color="0.4", lw=0.9, ls="--")
        axis.set_xlim(lowest - 0.005, 1.005)
        axis.set_title(
            TITLES[regime] + (f", n = {SIZES[0]} only" if regime == "nearest" else ""), fontsize=10
        )
        axis.set_xlabel("coverage")
        axis.set_yticks(range(len(names)), reversed(names))
        axis.grid(False, axis="y")
    handles = [
        Line2D(
            [], [], ls="-", marker=marker, color=colour, label=f"n = {n:,}, 95 % limits; number: mean width"
        )
        for n, colour, marker in zip(SIZES, (ORANGE, BLUE), ("s", "o"), strict=True)
    ]
    handles += [
        Line2D(
            [],
            [],
            ls="",
            marker="o",
            mfc="white",
            mec="0.3",
            label="short of 0.95 beyond chance (all cells, 99 %)",
        ),
        Line2D([], [], color="0.4", lw=0.9, ls="--", label="asked: 0.95"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def run(arguments: argparse.Namespace) -> None:
    """Simulate what is missing, print the table, write benchmarks/results/coverage.json and draw."""
    if arguments.draw:
        rows = summarise(json.loads((RESULTS / "coverage.json").read_text())["runs"])
    else:
        runs = opened(
            "coverage.json",
            fresh=arguments.fresh,
            quick=arguments.quick,
            confidence_level=LEVEL,
            multiplier_draws=MULTIPLIERS,
        )
        spread(runs, tasks_of(arguments.draws, arguments.quick), work)
        rows = summarise(runs.runs)
        print(f"written to {runs.write(results=rows).name}")
    for row in rows:
        low, high = row["coverage_95"]
        print(
            f"{row['interval']}, n = {row['n']}, {row['regime']}: {row['coverage']:.3f} "
            f"[{low:.3f}, {high:.3f}], "
            f"width {row['mean width']:.3g}{'  SHORT' if row['short'] else ''}"
        )
    draw_figure(rows, figure_path("coverage.png", quick=arguments.quick))
