"""Do the tests keep their level, what do they see, and what do they cost, beside hyppo and dcor.

``level``: null rejections of the permutation, aggregated and gamma tests, and of the published threshold.
``equivalence``: how often a dependence equal to the tolerance is called smaller, and independence too.
``power``: four shapes of dependence at n = 200, the same draws for every package.
``speed``: 999 permutations at n = 2,000 and peak memory; run this part alone.
"""

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.spatial.distance import pdist

from benchmarks._figures import house_style
from benchmarks._protocol import published_law
from benchmarks._record import RESULTS, Runs
from benchmarks._simulate import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    SKY,
    Array,
    Task,
    binomial_interval,
    chunks,
    draws_of,
    figure_path,
    limits,
    most,
    opened,
    rng,
    spread,
)
from benchmarks.statistics.convergence import population_hsic
from frhsic import GDP, HSIC, DistanceCovariance
from frhsic.dependence import Dependence
from frhsic.inference import equivalence_test, independence_test
from frhsic.kernels import Gaussian

PARTS = ("level", "equivalence", "power", "speed")
ALPHAS = (0.05, 0.01)
PERMUTATIONS = 199

SIZES, WIDTHS, FACTORS = (50, 200, 1_000), (1, 5, 50), (0.5, 1.0, 2.0)
KINDS = ("normal", "integer", "Cauchy")
LEVEL_DRAWS = 2_000
# One draw in four for the default test where a draw takes 0.2 to 0.3 s: n = 1,000; n = 200, several columns.
SLOW = 4

RHOS, GDP_RHOS, EQUIVALENCE_SIZES = (0.1, 0.2, 0.3, 0.5), (0.2, 0.5), (200, 1_000)
EQUIVALENCE_DRAWS, MULTIPLIERS = {200: 1_000, 1_000: 500}, 999

POWER_DRAWS, POWER_ROWS = 500, 200
# A test of hyppo takes 0.3 s at n = 200: it sees the first draws only.
HYPPO_DRAWS = 100
STRENGTHS = {
    "linear": (0.3, 0.5),
    "U-shaped": (0.75, 1.5),
    "variance only": (0.8, 1.6),
    "sinusoidal": (0.5, 0.8),
}
METHODS = (
    "aggregated (default)",
    "HSIC",
    "distance covariance",
    "HSIC, hyppo's bandwidth",
    "hyppo Hsic",
    "distance covariance, unbiased",
    "hyppo Dcorr",
    "dcor",
)
# Ours and theirs with the same statistic: unbiased HSIC with the median distance of z as bandwidth on both
# sides (hyppo), unbiased distance correlation (hyppo), the V-statistic of distance covariance (dcor).
SAME = (
    ("HSIC, hyppo's bandwidth", "hyppo Hsic"),
    ("distance covariance, unbiased", "hyppo Dcorr"),
    ("distance covariance", "dcor"),
)
NEAR_BEST = 0.05

REPEATS = 3
# What is timed: rows, permutations. n = 20,000 with several columns has no thin factor of K, so that HSIC()
# evaluates K anew for every few permutations.
SPEED = {
    "frhsic HSIC()": (2_000, 999),
    "hyppo Hsic": (2_000, 999),
    "frhsic default": (2_000, 999),
}
LARGE = {"frhsic default": (20_000, 999), "frhsic HSIC()": (20_000, 19)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--part", choices=PARTS, default=None, help="one part only; 'speed' must run alone")
    parser.add_argument("--draws", type=int, default=LEVEL_DRAWS, help="null draws of each cell of 'level'")
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--draw", action="store_true", help="only draw the figures from the results")


# ---- level -----------------------------------------------------------------------------------------------


def level_tasks(draws: int, quick: bool) -> list[Task]:
    """Return the chunks of null draws; methods share the draws of a cell, not its tasks."""
    tasks = []

    def add(method: str, n: int, d: int, kind: str, draws: int, size: int) -> None:
        factors = (
            () if method == "aggregated" else (1.0,) if (method, n) == ("permutation", 1_000) else FACTORS
        )
        cell = {"part": "level", "method": method, "n": n, "d": d, "s": kind, "factors": list(factors)}
        tasks.extend(chunks(cell, 8, 8) if quick else chunks(cell, draws, size))

    for kind in KINDS:
        for d in WIDTHS:
            add("gamma", 1_000, d, kind, draws, 500)
            for n in (200, 50):
                wide = n == 200 and d > 1
                add("aggregated", n, d, kind, draws // SLOW if wide else draws, 250 if wide else 1_000)
                add("permutation", n, d, kind, draws, 500 if wide else 1_000)
                add("gamma", n, d, kind, draws, 2_000)
        add("permutation", 1_000, 1, kind, draws, 1_000)
    add("aggregated", 1_000, 1, "integer", draws // SLOW, 250)
    return sorted(tasks, key=lambda task: task["first"])  # a command that is cut short has seen every cell


def null_sample(n: int, d: int, kind: str, draw: int) -> tuple[Array, Array, int]:
    """Return independent z and s, and a seed for the test."""
    g = rng("level", n, d, kind, draw)
    z = g.standard_normal((n, d))
    s: Array
    if kind == "normal":
        s = g.standard_normal(n)
    elif kind == "integer":
        s = g.integers(17, 91, n).astype(np.float64)  # ages
    else:
        s = g.standard_cauchy(n)
    return z, s, int(g.integers(2**31))


def lower_median(squared: Array) -> float:
    """Return the median distance, as ``Gaussian("median")`` takes it, from squared ones."""
    middle = (len(squared) - 1) // 2
    return math.sqrt(np.partition(squared, middle)[middle])


def kernel_sums(squared: Array, median: float) -> dict[float, tuple[float, float]]:
    """Return the sums over i != j of k and of k^2 by factor; narrower kernels are powers of the widest."""
    k = np.exp(squared / (-8.0 * median**2))
    sums = {}
    for factor in (2.0, 1.0, 0.5):
        square = k * k
        sums[factor] = 2.0 * float(k.sum()), 2.0 * float(square.sum())
        k = square * square
    return sums


def level_work(task: Task) -> Task:
    """Return how often each test rejects at 0.05 and 0.01, by factor of the median bandwidth."""
    published = task["method"] == "gamma" and task["first"] == 0  # the first chunk says enough about it
    names = ("gamma", "published") if published else (task["method"],)
    labels = [str(factor) for factor in task["factors"]] or ["family"]
    counts = {name: {label: [0, 0] for label in labels} for name in names}
    for draw in draws_of(task):
        z, s, seed = null_sample(task["n"], task["d"], task["s"], draw)
        if task["method"] == "aggregated":
            pvalue = independence_test(z, s, n_permutations=PERMUTATIONS, random_state=seed).pvalue
            count(counts["aggregated"]["family"], pvalue)
            continue
        squared_z, squared_s = pdist(z, "sqeuclidean"), pdist(s[:, None], "sqeuclidean")
        median_z, median_s = lower_median(squared_z), lower_median(squared_s)
        if published:
            sums_z, sums_s = kernel_sums(squared_z, median_z), kernel_sums(squared_s, median_s)
        for factor in task["factors"]:
            measure = HSIC(Gaussian(factor * median_z), Gaussian(factor * median_s))
            if task["method"] == "permutation":
                result = independence_test(
                    z, s, dependence=measure, n_permutations=PERMUTATIONS, random_state=seed
                )
                count(counts["permutation"][str(factor)], result.pvalue)
                continue
            result = independence_test(z, s, dependence=measure, method="gamma")
            count(counts["gamma"][str(factor)], result.pvalue)
            if not published:
                continue
            for k, alpha in enumerate(ALPHAS):
                threshold = published_law(task["n"], sums_z[factor], sums_s[factor]).isf(alpha)
                counts["published"][str(factor)][k] += task["n"] * result.statistic > threshold
    return {"rejections": counts}


def count(into: list[int], pvalue: float) -> None:
    """Count a p-value at each level; the levels are multiples of one over the number of pairings."""
    for k, alpha in enumerate(ALPHAS):
        into[k] += pvalue <= alpha + 1e-9


def level_summary(runs: list[Task]) -> dict[str, Any]:
    """Return the rates of each cell by method, with those outside the simultaneous limits marked."""
    cells: dict[tuple[str, int, int, str, str], list[int]] = {}
    for run in runs:
        for method, counts in run["rejections"].items():
            for label, (five, one) in counts.items():
                cell = cells.setdefault((method, run["n"], run["d"], run["s"], label), [0, 0, 0])
                for k, value in enumerate((five, one, run["draws"])):
                    cell[k] += value
    summary: dict[str, Any] = {}
    for method in ("permutation", "aggregated", "gamma", "published"):
        chosen = sorted((key, value) for key, value in cells.items() if key[0] == method)
        if not chosen:
            continue
        rows = []
        for (_, n, d, kind, label), (*rejected, draws) in chosen:
            row: dict[str, Any] = {"n": n, "d": d, "s": kind, "factor": label, "draws": draws}
            for alpha, number in zip(ALPHAS, rejected, strict=True):
                low, high = limits(alpha, draws, len(chosen))
                row[f"rate {alpha}"] = number / draws
                row[f"outside {alpha}"] = not low <= number / draws <= high
            rows.append(row)
        verdict = {
            f"at {alpha}": {
                "smallest": min(row[f"rate {alpha}"] for row in rows),
                "largest": max(row[f"rate {alpha}"] for row in rows),
                "limits by draws": {
                    str(draws): limits(alpha, draws, len(chosen))
                    for draws in sorted({r["draws"] for r in rows})
                },
                "cells outside": sum(row[f"outside {alpha}"] for row in rows),
            }
            for alpha in ALPHAS
        }
        summary[method] = {"cells": len(chosen), **verdict, "rows": rows}
    return summary


# ---- equivalence -----------------------------------------------------------------------------------------


def equivalence_tasks(quick: bool) -> list[Task]:
    """Return the chunks at the tolerance of each correlation, and at independence (rho 0)."""
    tasks = []
    for n in reversed(EQUIVALENCE_SIZES):
        for measure, rhos in (("normalised HSIC", RHOS), ("GDP", GDP_RHOS)):
            for rho in (0.0, *rhos):
                cell = {"part": "equivalence", "measure": measure, "n": n, "rho": rho}
                size = 250 if n > 200 else 1_000
                tasks.extend(chunks(cell, 10, 10) if quick else chunks(cell, EQUIVALENCE_DRAWS[n], size))
    return tasks


def equivalence_truth(measure: str, rho: float) -> tuple[Dependence, float]:
    """Return a measure with fixed scales and its population value for Gaussian pairs of correlation rho."""
    if measure == "GDP":
        return GDP(), rho * math.sqrt(2.0 / math.pi)  # of ranges nearly
    hsic = HSIC(Gaussian(1.0), Gaussian(1.0), normalized=True)
    return hsic, population_hsic(rho) / population_hsic(1.0)


def gaussian_pair(n: int, rho: float, g: np.random.Generator) -> tuple[Array, Array]:
    """Return z = rho s + noise and s, both of variance one."""
    s, noise = g.standard_normal((2, n))
    return rho * s + math.sqrt(1.0 - rho * rho) * noise, s


def equivalence_work(task: Task) -> Task:
    """Return how often the dependence is called smaller than the tolerance, by the rho of the tolerance."""
    name, n, rho = task["measure"], task["n"], task["rho"]
    rhos = (GDP_RHOS if name == "GDP" else RHOS) if rho == 0.0 else (rho,)
    tolerances = {other: equivalence_truth(name, other)[1] for other in rhos}
    measure = equivalence_truth(name, rho)[0]
    counts = {str(other): [0, 0] for other in rhos}
    for draw in draws_of(task):
        g = rng("equivalence", name, n, rho, draw)
        z, s = gaussian_pair(n, rho, g)
        result = equivalence_test(
            z,
            s,
            tolerance=tolerances[rhos[-1]],
            dependence=measure,
            n_draws=MULTIPLIERS,
            random_state=int(g.integers(2**31)),
        )
        if rho != 0.0:
            count(counts[str(rho)], result.pvalue)
            continue
        for other, tolerance in tolerances.items():  # p <= 0.05 where the upper limit is below
            counts[str(other)][0] += result.upper <= tolerance
    return {"rejections": counts}


def equivalence_summary(runs: list[Task]) -> list[dict[str, Any]]:
    """Return the rates at the tolerance, with the limit they must not exceed, and at independence."""
    cells: dict[tuple[str, int, float, float], list[int]] = {}
    for run in runs:
        for label, (five, one) in run["rejections"].items():
            cell = cells.setdefault((run["measure"], run["n"], run["rho"], float(label)), [0, 0, 0])
            for k, value in enumerate((five, one, run["draws"])):
                cell[k] += value
    at_tolerance = sum(rho != 0.0 for _, _, rho, _ in cells)
    rows = []
    for (measure, n, rho, other), (five, one, draws) in sorted(cells.items()):
        row: dict[str, Any] = {
            "measure": measure,
            "n": n,
            "tolerance": equivalence_truth(measure, other)[1],
            "rho of the tolerance": other,
            "truth": "independence" if rho == 0.0 else "the tolerance",
            "draws": draws,
            "rate 0.05": five / draws,
            "interval 0.05": binomial_interval(five, draws),
        }
        if rho != 0.0:
            row["rate 0.01"] = one / draws
            row["above alpha"] = any(
                number / draws > most(alpha, draws, at_tolerance)
                for alpha, number in zip(ALPHAS, (five, one), strict=True)
            )
        rows.append(row)
    return rows


# ---- power -----------------------------------------------------------------------------------------------


def power_tasks(quick: bool) -> list[Task]:
    """Return the chunks of each shape and strength; those that hyppo sees are small."""
    tasks = []
    for shape, strengths in STRENGTHS.items():
        for strength in strengths:
            cell = {"part": "power", "shape": shape, "strength": strength}
            if quick:
                tasks += chunks(cell, 6, 6)
                continue
            tasks += chunks(cell, HYPPO_DRAWS, 50)
            later = chunks(cell, POWER_DRAWS - HYPPO_DRAWS, 200)
            tasks += [{**task, "first": task["first"] + HYPPO_DRAWS} for task in later]
    return sorted(tasks, key=lambda task: task["first"])


def dependent_sample(shape: str, strength: float, draw: int) -> tuple[Array, Array, int]:
    """Return z and s uniform on [-1, 1], and a seed for the tests."""
    g = rng("power", shape, strength, draw)
    s, e = g.uniform(-1.0, 1.0, POWER_ROWS), g.standard_normal(POWER_ROWS)
    z = {
        "linear": strength * s + e,
        "U-shaped": strength * s**2 + e,
        "variance only": e * np.exp(strength * np.abs(s)),
        "sinusoidal": strength * np.sin(2.0 * np.pi * s) + e,
    }[shape]
    return z, s, int(g.integers(2**31))


def power_work(task: Task) -> Task:
    """Return for each method a digit for each draw: 2 for p <= 0.01, 1 for p <= 0.05, 0, or - for not run."""
    digits = dict.fromkeys(METHODS, "")
    for draw in draws_of(task):
        z, s, seed = dependent_sample(task["shape"], task["strength"], draw)
        hyppo = draw < HYPPO_DRAWS
        pvalues = ours(z, s, seed, hyppo=hyppo) | theirs(z, s, seed, hyppo=hyppo)
        for method in METHODS:
            p = pvalues.get(method)
            digits[method] += "-" if p is None else str(sum(p <= alpha + 1e-9 for alpha in ALPHAS))
    return {"found": digits}


def ours(z: Array, s: Array, seed: int, *, hyppo: bool) -> dict[str, float]:
    """Return the p-values of this library."""
    sigma = float(np.median(pdist(z[:, None])))
    measures: dict[str, Dependence | None] = {
        "aggregated (default)": None,
        "HSIC": HSIC(),
        "distance covariance": DistanceCovariance(),
        "HSIC, hyppo's bandwidth": HSIC(Gaussian(sigma), Gaussian(sigma), estimator="unbiased"),
    }
    if hyppo:
        measures["distance covariance, unbiased"] = DistanceCovariance(estimator="unbiased")
    return {
        name: independence_test(
            z, s, dependence=measure, n_permutations=PERMUTATIONS, random_state=seed
        ).pvalue
        for name, measure in measures.items()
    }


def theirs(z: Array, s: Array, seed: int, *, hyppo: bool) -> dict[str, float]:
    """Return the p-values of the other packages, by permutation."""
    dcor = importlib.import_module("dcor.independence")
    torch.set_num_threads(1)  # which that import changes
    found = {
        "dcor": dcor.distance_covariance_test(z, s, num_resamples=PERMUTATIONS, random_state=seed).pvalue
    }
    if not hyppo:
        return found
    tests = importlib.import_module("hyppo.independence")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that 199 permutations are few
        np.random.seed(seed)  # noqa: NPY002 (Hsic takes no other seed: it drops its random_state)
        # A new one each time: it keeps what it computed.
        found["hyppo Hsic"] = tests.Hsic().test(z, s, reps=PERMUTATIONS, workers=1, auto=False)[1]
        found["hyppo Dcorr"] = tests.Dcorr().test(
            z, s, reps=PERMUTATIONS, workers=1, auto=False, random_state=seed
        )[1]
    return {name: float(p) for name, p in found.items()}


def power_summary(runs: list[Task]) -> dict[str, Any]:
    """Return power at 0.05, what equal statistics disagree on, and how far the default is from the best."""
    joined: dict[tuple[str, float], dict[str, str]] = {}
    for run in sorted(runs, key=lambda run: run["first"]):
        cell = joined.setdefault((run["shape"], run["strength"]), dict.fromkeys(METHODS, ""))
        for method in METHODS:
            cell[method] += run["found"][method]
    rows, pairs, gaps = [], [], []
    comparisons = len(joined) * len(SAME)
    for (shape, strength), digits in joined.items():
        rates = {}
        for method in METHODS:
            ran = digits[method].replace("-", "")
            found = len(ran) - ran.count("0")
            rates[method] = found / len(ran)
            interval = binomial_interval(found, len(ran))
            rows.append(
                {
                    "shape": shape,
                    "strength": strength,
                    "method": method,
                    "draws": len(ran),
                    "power": rates[method],
                    "interval": interval,
                }
            )
        for mine, other in SAME:
            both = [
                (a != "0", b != "0") for a, b in zip(digits[mine], digits[other], strict=True) if b != "-"
            ]
            only_mine, only_other = both.count((True, False)), both.count((False, True))
            apart = only_mine + only_other
            p = float(stats.binomtest(only_mine, apart).pvalue) if apart else 1.0
            pairs.append(
                {
                    "shape": shape,
                    "strength": strength,
                    "ours": mine,
                    "theirs": other,
                    "draws": len(both),
                    "difference": (only_mine - only_other) / len(both),
                    "only ours": only_mine,
                    "only theirs": only_other,
                    "pvalue": p,
                    "same power": p * comparisons > 0.01,
                }
            )
        best = max(rates["HSIC"], rates["distance covariance"])
        gap = best - rates["aggregated (default)"]
        gaps.append({"shape": shape, "strength": strength, "below the best": gap, "within": gap <= NEAR_BEST})
    return {"rows": rows, "same statistic": pairs, "default": gaps}


# ---- speed -----------------------------------------------------------------------------------------------

_TIMED = """
import json, sys, time, warnings
what, n, permutations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
warnings.simplefilter("ignore")
import numpy as np
def peak():
    # Not getrusage: its maximum is inherited from the process that started this one.
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9
if what.startswith("frhsic"):
    import torch
    from frhsic import HSIC
    from frhsic.inference import independence_test
    torch.set_num_threads(1)
    measure = HSIC() if "HSIC" in what else None
    def test(z, s, count):
        return independence_test(z, s, dependence=measure, n_permutations=count, random_state=0).pvalue
else:
    from hyppo.independence import Hsic
    def test(z, s, count):
        return float(Hsic().test(z, s, reps=count, workers=1, auto=False)[1])
g = np.random.default_rng(0)
z, s = g.standard_normal((n, 50)), g.standard_normal(n)
test(z[:60], s[:60], 19)  # so that nothing is compiled or loaded below
before = peak()
start = time.perf_counter()
p = test(z, s, permutations)
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "gigabytes": peak(), "gigabytes before": before, "pvalue": p}))
"""


def speed_tasks(quick: bool) -> list[Task]:
    """Return the timings in turn, then the large sample."""
    tasks = []
    for repeat in range(1 if quick else REPEATS):
        for what, (n, permutations) in SPEED.items():
            size = {"n": 500, "permutations": 49} if quick else {"n": n, "permutations": permutations}
            tasks.append({"part": "speed", "what": what, "repeat": repeat, **size})
    if not quick:
        for what, (n, permutations) in LARGE.items():
            tasks.append({"part": "speed", "what": what, "repeat": 0, "n": n, "permutations": permutations})
    return tasks


def time_all(runs: Runs, tasks: list[Task]) -> None:
    """Time what is missing, each in a process of its own and of one thread, one after the other."""
    for task in tasks:
        if not runs.missing(**task):
            continue
        command = [sys.executable, "-c", _TIMED, task["what"], str(task["n"]), str(task["permutations"])]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "NUMBA_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        result = json.loads(done.stdout)
        runs.add(**task, **result)
        print(f"{task['what']}, n = {task['n']}: {result['seconds']:.1f} s", flush=True)


def speed_summary(runs: list[Task]) -> list[dict[str, Any]]:
    """Return medians over the repeats, and hyppo's time over each of ours at the same n."""
    cells: dict[tuple[int, str, int], list[Task]] = {}
    for run in runs:
        cells.setdefault((run["n"], run["what"], run["permutations"]), []).append(run)
    seconds = {key: statistics.median(run["seconds"] for run in done) for key, done in cells.items()}
    rows = []
    for (n, what, permutations), done in sorted(cells.items()):
        hyppo = seconds.get((n, "hyppo Hsic", permutations))
        gigabytes = max(run["gigabytes"] for run in done)
        rows.append(
            {
                "n": n,
                "d": 50,
                "what": what,
                "permutations": permutations,
                "repeats": len(done),
                "seconds": round(seconds[n, what, permutations], 2),
                "hyppo over this": None
                if hyppo is None
                else round(hyppo / seconds[n, what, permutations], 1),
                "peak gigabytes": round(gigabytes, 2),
                "gigabytes above the imports": round(
                    gigabytes - statistics.median(run["gigabytes before"] for run in done), 2
                ),
            }
        )
    return rows


# ---- together --------------------------------------------------------------------------------------------


def work(task: Task) -> Task:
    """Run one chunk, in a worker."""
    return {"level": level_work, "equivalence": equivalence_work, "power": power_work}[task["part"]](task)


def summarise(runs: list[Task]) -> dict[str, Any]:
    """Return the tables of the parts that have results."""
    tables = {
        "level": level_summary,
        "equivalence": equivalence_summary,
        "power": power_summary,
        "speed": speed_summary,
    }
    by_part = {part: [run for run in runs if run["part"] == part] for part in PARTS}
    return {part: tables[part](by_part[part]) for part in PARTS if by_part[part]}


def show(summary: dict[str, Any]) -> None:
    """Print what the tables say."""
    for method, table in summary.get("level", {}).items():
        for alpha in ALPHAS:
            at = table[f"at {alpha}"]
            print(
                f"level {alpha} of {method}: {at['smallest']:.4f} to {at['largest']:.4f} over "
                f"{table['cells']} cells, {at['cells outside']} outside their simultaneous 99 % limits"
            )
    for row in summary.get("equivalence", []):
        at = f"n = {row['n']}, tolerance of rho = {row['rho of the tolerance']}, truth {row['truth']}"
        mark = "  ABOVE ALPHA" if row.get("above alpha") else ""
        print(f"equivalence, {row['measure']}, {at}: {row['rate 0.05']:.3f}{mark}")
    power = summary.get("power", {"rows": [], "same statistic": [], "default": []})
    for row in power["rows"]:
        print(f"power, {row['shape']} {row['strength']}, {row['method']}: {row['power']:.3f}")
    for row in power["same statistic"]:
        if not row["same power"]:
            print(f"power differs: {row}")
    for row in power["default"]:
        print(f"default below the best, {row['shape']} {row['strength']}: {row['below the best']:+.3f}")
    for row in summary.get("speed", []):
        print(f"speed: {row}")


@house_style(10.0)
def draw_level(summary: dict[str, Any], path: Path) -> None:
    """Draw null rejection rates by n and bandwidth: ours, the gamma law, the published threshold."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    colours, markers = dict(zip(KINDS, (BLUE, ORANGE, GREEN), strict=True)), {1: "o", 5: "s", 50: "^"}
    places = {"0.5": 0, "1.0": 1, "2.0": 2, "family": 3}
    titles = (
        (("permutation", "aggregated"), "permutation", 0.10),
        (("gamma",), "gamma law, 2007 moments", 0.10),
        (("published",), "published threshold", 1.06),
    )
    figure, axes = plt.subplots(3, 3, figsize=(10.5, 8.4), sharex=True, sharey="row")
    for place, (methods, title, highest) in enumerate(titles):
        line = axes[place]
        for axis, n in zip(line, SIZES, strict=True):
            for method in methods:
                table = summary.get(method, {"rows": [], "cells": 1})
                for row in table["rows"]:
                    if row["n"] != n:
                        continue
                    highest = max(highest, 1.1 * row["rate 0.05"])
                    order = 3 * WIDTHS.index(row["d"]) + KINDS.index(row["s"])
                    x = places[row["factor"]] + (order - 4) * 0.085
                    low, high = limits(0.05, row["draws"], table["cells"])
                    axis.vlines(x, low, high, color="0.85", lw=5, zorder=1)
                    low, high = limits(0.01, row["draws"], table["cells"])
                    axis.vlines(x, low, high, color="0.93", lw=5, zorder=0)
                    for alpha, size in ((0.05, 26), (0.01, 10)):
                        axis.scatter(
                            x,
                            row[f"rate {alpha}"],
                            s=size,
                            marker=markers[row["d"]],
                            color=colours[row["s"]],
                            edgecolor="black" if row[f"outside {alpha}"] else "none",
                            linewidth=1.0,
                            zorder=3,
                        )
            for alpha in ALPHAS:
                axis.axhline(alpha, color="0.4", lw=0.8, ls="--" if alpha == 0.05 else ":", zorder=2)
            axis.set_xlim(-0.55, 3.55)
            axis.set_xticks(range(4), ["0.5", "1", "2", "default\n(aggregated)"])
            if n == SIZES[0]:
                axis.set_ylabel(f"{title}\nnull rejections")
            if place == 0:
                axis.set_title(f"n = {n:,}")
            if place == 2:
                axis.set_xlabel("bandwidth / median")
        line[0].set_ylim(-0.03 * highest, min(highest, 1.06))
    handles = [Line2D([], [], ls="", marker="o", color=colours[kind], label=f"S {kind}") for kind in KINDS]
    handles += [
        Line2D([], [], ls="", marker=markers[d], color="0.4", label=f"Z of {d} column{'s' * (d > 1)}")
        for d in WIDTHS
    ]
    handles += [
        Line2D([], [], ls="", marker="o", mfc="0.8", mec="black", label="outside the limits"),
        Line2D([], [], color="0.85", lw=5, label="99 % limits, all cells of a method together"),
        Line2D([], [], color="0.4", lw=0.8, ls="--", label="asked: 0.05 (large marks)"),
        Line2D([], [], color="0.4", lw=0.8, ls=":", label="asked: 0.01 (small marks)"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=130)
    plt.close(figure)


@house_style(10.0)
def draw_power(summary: dict[str, Any], path: Path) -> None:
    """Draw power by shape and method, and below it the equivalence test."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(11.0, 7.6))
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.15, 1.0))
    top, bottom = parts
    axes = top.subplots(1, 4, sharey=True)
    power = summary.get("power", {"rows": []})
    theirs_too = {other for _, other in SAME}
    for axis, (shape, strengths) in zip(axes, STRENGTHS.items(), strict=True):
        for strength, marker, full in zip(strengths, ("o", "D"), (True, False), strict=True):
            for row in power["rows"]:
                if (row["shape"], row["strength"]) != (shape, strength):
                    continue
                y = len(METHODS) - 1 - METHODS.index(row["method"]) + (0.13 if full else -0.13)
                colour = ORANGE if row["method"] in theirs_too else BLUE
                low, high = row["interval"]
                axis.hlines(y, low, high, color=colour, lw=1.6)
                face = colour if full else "white"
                axis.plot(row["power"], y, marker, color=colour, mfc=face, markersize=5.5)
        axis.set_xlim(-0.03, 1.03)
        axis.set_yticks(range(len(METHODS)), reversed(METHODS))
        axis.set_title(f"{shape}: {strengths[0]} (filled), {strengths[1]}")
        axis.set_xlabel("power at level 0.05")
        axis.grid(False, axis="y")
    top.suptitle(
        f"Independence tests, n = {POWER_ROWS}, {PERMUTATIONS} permutations, with 95 % limits "
        "(blue: frhsic, orange: hyppo and dcor)",
        fontsize=10,
    )
    axes = bottom.subplots(1, 2, sharey=True)
    for axis, measure in zip(axes, ("normalised HSIC", "GDP"), strict=True):
        for n, colour, marker in zip(EQUIVALENCE_SIZES, (SKY, BLUE), ("s", "o"), strict=True):
            for truth, style in (("the tolerance", "-"), ("independence", "--")):
                rows = [
                    row
                    for row in summary.get("equivalence", [])
                    if (row["measure"], row["n"], row["truth"]) == (measure, n, truth)
                ]
                if not rows:
                    continue
                at = [row["rho of the tolerance"] for row in rows]
                rates = [row["rate 0.05"] for row in rows]
                error = [[abs(row["interval 0.05"][k] - row["rate 0.05"]) for row in rows] for k in (0, 1)]
                label = f"n = {n:,}, Z and S {'at ' + truth if style == '-' else 'independent'}"
                axis.errorbar(at, rates, error, color=colour, ls=style, marker=marker, capsize=2, label=label)
        axis.axhline(0.05, color=RED, lw=0.9, ls=":", label="0.05")
        axis.set_title(f"tolerance on {measure}")
        axis.set_xlabel("correlation at which the dependence equals the tolerance")
        axis.set_ylim(-0.03, 1.03)
        axis.grid(True)
    axes[0].set_ylabel("share called below the tolerance")
    handles, labels = axes[0].get_legend_handles_labels()
    bottom.legend(handles, labels, loc="outside lower center", ncols=5)
    bottom.suptitle(
        "Equivalence test: the null hypothesis is dependence of at least the tolerance", fontsize=10
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


def run(arguments: argparse.Namespace) -> None:
    """Simulate what is missing, print the tables, write benchmarks/results/calibration.json and draw."""
    quick = arguments.quick
    if arguments.draw:
        summary = summarise(json.loads((RESULTS / "calibration.json").read_text())["runs"])
    else:
        runs = opened(
            "calibration.json",
            fresh=arguments.fresh,
            quick=quick,
            compared_with={name: version(name) for name in ("hyppo", "dcor")},
            permutations=PERMUTATIONS,
            multiplier_draws=MULTIPLIERS,
        )
        parts = PARTS if arguments.part is None else (arguments.part,)
        tasks: list[Task] = []
        tasks += level_tasks(arguments.draws, quick) if "level" in parts else []
        tasks += equivalence_tasks(quick) if "equivalence" in parts else []
        tasks += power_tasks(quick) if "power" in parts else []
        spread(runs, tasks, work)
        if "speed" in parts:
            time_all(runs, speed_tasks(quick))
        summary = summarise(runs.runs)
        print(f"written to {runs.write(**summary).name}")
    show(summary)
    if "level" in summary:
        draw_level(summary["level"], figure_path("calibration.png", quick=quick))
    if "power" in summary or "equivalence" in summary:
        draw_power(summary, figure_path("power.png", quick=quick))
