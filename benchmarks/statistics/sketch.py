"""How close a sketch comes to HSIC, whether it knows its own error, its tests and intervals, its speed.

Dependent laws of eight columns and of one, 256 x 64 features, another seed of the features in every draw. At
n = 5,000 all rows are stored and the error is known; at n = 10,000, for eight columns, it is estimated from
half of the rows. Tests are made at independence, from all rows and from fewer; intervals for normal pairs,
whose HSIC is known in closed form.
"""

import argparse
import math
import time
from typing import Any

import numpy as np
import torch

from benchmarks._simulate import Array, Task, binomial_interval, chunks, draws_of, opened, rng, spread
from frhsic import HSIC
from frhsic.inference import confidence_interval, independence_test
from frhsic.kernels import Gaussian
from frhsic.sketching import HSICSketch

LAWS = ("linear", "u-shaped", "heteroscedastic", "mixed columns", "scores by age")
WIDTHS, SIZES, DRAWS, CHUNK = (8, 1), (5_000, 10_000), 200, 10
LEVEL = 0.95
# Columns and rows of tests at independence, and correlations of the normal pairs of intervals.
NULLS, NULL_DRAWS = ((1, 500), (8, 6_000)), 400
PAIRS, PAIR_ROWS, PAIR_DRAWS = (0.0, 0.1, 0.3, 0.6), 500, 200
# What each must not exceed, by the number of columns.
MOST = {8: 0.04, 1: 0.005}
FEATURES, BLOCK, ROWS, REPEATS = (256, 64), 4_096, 2**20, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--speed", action="store_true", help="only measure rows per second")


def draw(law: str, d: int, n: int, g: np.random.Generator) -> tuple[Array, Array]:
    """Return z and s of a law."""
    s = g.standard_normal(n)
    z = g.standard_normal((n, d))
    if law == "linear":
        z[:, 0] = 0.7 * s + 0.7 * z[:, 0]
    elif law == "u-shaped":
        z[:, 0] = s**2 + 0.5 * z[:, 0]
    elif law == "heteroscedastic":
        z *= (1.0 + 0.8 * np.tanh(s))[:, None]
    elif law == "mixed columns":  # every column depends on every other, on very different scales
        turn = np.random.default_rng(5).standard_normal((d, d))
        z = (z + 0.5 * np.sin(2.0 * s)[:, None]) @ turn
    else:  # ages are whole numbers, scores logistic in age and noise
        s = np.clip(np.round(42.0 + 14.0 * s), 17.0, 90.0)
        z = 1.0 / (1.0 + np.exp(-(0.04 * (s - 42.0)[:, None] + z)))
    return z, s


def one_draw(law: str, d: int, n: int, number: int) -> dict[str, float]:
    """Return sketch and exact value of one draw, the error of the first and what it knows about it."""
    z, s = draw(law, d, n, rng("sketch", law, d, n, number))
    x, y = torch.from_numpy(z), torch.from_numpy(s)
    measure = HSIC(estimator="unbiased").calibrate(x, y)
    exact = float(measure(x, y))
    kernels = measure.kernel_z, measure.kernel_s
    assert kernels[1] is not None
    sketch = HSICSketch(kernels[0], kernels[1], n_features=FEATURES, random_state=number).update(z, s)
    value = sketch.value()
    found = {"relative": value / exact - 1.0}
    if n == SIZES[0]:  # then the error is known exactly
        return found
    error = sketch.error()
    low, high = error.interval(LEVEL)
    return found | {
        "corrected": (value - error.error) / exact - 1.0,
        "covered": float(low <= value - exact <= high),
        "half_width": 0.5 * (high - low) / exact,
    }


def one_test(d: int, n: int, number: int) -> dict[str, float]:
    """Return the p-values of tests of a sketch of independent rows."""
    g = rng("sketch null", d, n, number)
    z, s = g.standard_normal((n, d)), g.standard_normal(n)
    kernels = Gaussian(math.sqrt(d)), Gaussian(1.0)
    sketch = HSICSketch(*kernels, n_features=FEATURES, random_state=number).update(z, s)
    return {
        "permutation": independence_test(sketch, n_permutations=199, random_state=number).pvalue,
        "gamma": independence_test(sketch, method="gamma").pvalue,
    }


def of_pairs(rho: float) -> float:
    """Return HSIC of normal pairs of unit variance under kernels of bandwidth one."""
    return (9.0 - 4.0 * rho**2) ** -0.5 + 9.0**-0.5 - 2.0 * (9.0 - rho**2) ** -0.5


def one_interval(rho: float, number: int) -> dict[str, float]:
    """Return whether the intervals of a sketch of normal pairs hold the truth."""
    g = rng("sketch pairs", rho, number)
    s = g.standard_normal(PAIR_ROWS)
    z = rho * s + math.sqrt(1.0 - rho**2) * g.standard_normal(PAIR_ROWS)
    sketch = HSICSketch(Gaussian(1.0), Gaussian(1.0), random_state=number).update(z, s)
    found = {}
    for name, normalized, truth in (("plain", False, 1.0), ("normalised", True, of_pairs(1.0))):
        interval = confidence_interval(
            sketch,
            dependence=HSIC(normalized=normalized),
            confidence_level=LEVEL,
            random_state=number,
            chance=False,
        )
        found[name] = float(interval.low <= of_pairs(rho) / truth <= interval.high)
    return found


def work(task: Task) -> Task:
    """Return the outcomes of the draws of a chunk."""
    found = []
    for number in draws_of(task):
        if "rho" in task:
            found.append(one_interval(task["rho"], number))
        elif task["law"] == "independent":
            found.append(one_test(task["d"], task["n"], number))
        else:
            found.append(one_draw(task["law"], task["d"], task["n"], number))
    return {"outcomes": {name: [round(one[name], 9) for one in found] for name in found[0]}}


def tasks_of(draws: int, quick: bool) -> list[Task]:
    """Return the chunks; the first of every cell before the second of any."""
    tasks = [
        task
        for n in SIZES
        for d in WIDTHS
        for law in LAWS
        if d > 1 or (law != "mixed columns" and n == SIZES[0])
        for task in chunks({"law": law, "d": d, "n": n}, 3 if quick else draws, CHUNK)
    ]
    for d, n in NULLS:
        tasks += chunks({"law": "independent", "d": d, "n": n}, 3 if quick else NULL_DRAWS, 2 * CHUNK)
    for rho in PAIRS:
        tasks += chunks({"rho": rho}, 3 if quick else PAIR_DRAWS, CHUNK)
    return sorted(tasks, key=lambda task: task["first"])


def summarise(runs: list[Task]) -> list[dict[str, Any]]:
    """Return a row for each law, width and size."""
    cells: dict[tuple[int, int, str], dict[str, list[float]]] = {}
    for one in sorted((one for one in runs if one.get("law") in LAWS), key=lambda one: one["first"]):
        cell = cells.setdefault((one["n"], one["d"], one["law"]), {})
        for name, values in one["outcomes"].items():
            cell.setdefault(name, []).extend(values)
    rows = []
    for (n, d, law), cell in sorted(cells.items(), key=lambda item: (item[0][0], -item[0][1])):
        relative = np.array(cell["relative"])
        row: dict[str, Any] = {
            "law": law,
            "d": d,
            "n": n,
            "draws": len(relative),
            "rms_error": float(np.sqrt((relative**2).mean())),
            "mean_error": float(relative.mean()),
            "largest_error": float(np.abs(relative).max()),
            "within": bool(np.sqrt((relative**2).mean()) <= MOST[d]),
        }
        if "covered" in cell:
            covered = int(sum(cell["covered"]))
            row["rms_error_corrected"] = float(np.sqrt((np.array(cell["corrected"]) ** 2).mean()))
            row["coverage"] = covered / len(relative)
            row["coverage_95"] = binomial_interval(covered, len(relative))
            row["mean_half_width"] = float(np.mean(cell["half_width"]))
        rows.append(row)
    return rows


def inference(runs: list[Task]) -> list[dict[str, Any]]:
    """Return a row for each test and each interval: how often it rejects at 5 %, or covers at 95 %."""
    shares: dict[tuple[str, str], list[bool]] = {}
    for one in runs:
        for name, values in one["outcomes"].items():
            if "rho" in one:
                cell = (f"{name} interval covers", f"correlation {one['rho']}, n = {PAIR_ROWS}")
                shares.setdefault(cell, []).extend(value > 0.5 for value in values)
            elif one["law"] == "independent":
                cell = (f"{name} test rejects", f"d = {one['d']}, n = {one['n']}")
                shares.setdefault(cell, []).extend(value <= 1.0 - LEVEL for value in values)
    rows = []
    for (what, where), hits in shares.items():
        low, high = binomial_interval(sum(hits), len(hits))
        rows.append(
            {
                "what": what,
                "where": where,
                "draws": len(hits),
                "share": sum(hits) / len(hits),
                "95 %": [low, high],
            }
        )
    return rows


def bare(z: torch.Tensor, s: torch.Tensor) -> None:
    """Project, take cosines and sines, and add up their products: what no sketch can do without."""
    g = torch.Generator().manual_seed(0)
    of_z, of_s = (n // 2 for n in FEATURES)
    A, B = torch.randn(of_z, z.shape[1], generator=g), torch.randn(of_s, 1, generator=g)
    X, Y = (torch.empty(n, BLOCK + 16)[:, :BLOCK] for n in FEATURES)
    total = torch.zeros(FEATURES, dtype=torch.float64)
    for start in range(0, len(z), BLOCK):
        part = slice(start, start + BLOCK)
        for one, rows, half, out in ((A, z[part], of_z, X), (B, s[part, None], of_s, Y)):
            torch.mm(one, rows.float().mT, out=out[:half])
            torch.sin(out[:half], out=out[half:])
            out[:half].cos_()
        total += X @ Y.mT


def speed() -> list[dict[str, Any]]:
    """Return CPU time per row of ``update`` and of the bare loop, the least of several in turn."""
    torch.set_num_threads(1)
    rows = []
    for name, law, d, weighted in (
        ("eight columns", "linear", 8, False),
        ("eight columns, ages", "scores by age", 8, False),
        ("eight columns, weights", "linear", 8, True),
        ("one column", "linear", 1, False),
        ("one column, ages", "scores by age", 1, False),
    ):
        g = rng("speed", name)
        z, s = (torch.from_numpy(x) for x in draw(law, d, ROWS, g))
        w = torch.from_numpy(g.random(ROWS)) + 0.5 if weighted else None
        sketch = HSICSketch.like(z[:5_000], s[:5_000], n_features=FEATURES)

        def update(sketch: HSICSketch = sketch, z: Any = z, s: Any = s, w: Any = w) -> None:
            for part in torch.arange(ROWS).split(2**17):
                rows_ = slice(int(part[0]), int(part[-1]) + 1)
                sketch.update(z[rows_], s[rows_], None if w is None else w[rows_])

        times = {"update": math.inf, "bare": math.inf}
        for _ in range(REPEATS):
            for label, act in (("bare", lambda z=z, s=s: bare(z, s)), ("update", update)):
                start = time.process_time()
                act()
                times[label] = min(times[label], time.process_time() - start)
        rows.append(
            {
                "case": name,
                "rows": ROWS,
                "update_ns_per_row": 1e9 * times["update"] / ROWS,
                "bare_ns_per_row": 1e9 * times["bare"] / ROWS,
                "million_rows_per_second": ROWS / times["update"] / 1e6,
                "bare_over_update": times["bare"] / times["update"],
                "bytes": len(sketch.to_bytes()),
            }
        )
        print(
            f"{name}: {rows[-1]['million_rows_per_second']:.2f} million rows/s, "
            f"{rows[-1]['bare_over_update']:.2f} of the bare loop",
            flush=True,
        )
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Simulate what is missing, measure the speed, print both, write benchmarks/results/sketch.json."""
    runs = opened("sketch.json", fresh=arguments.fresh, quick=arguments.quick, features=list(FEATURES))
    if not arguments.speed:
        spread(runs, tasks_of(arguments.draws, arguments.quick), work)
    rows = summarise(runs.runs)
    for row in rows:
        known = f", corrected {100 * row['rms_error_corrected']:.2g} %" if "coverage" in row else ""
        known += f", covered {row['coverage']:.3f}" if "coverage" in row else ""
        print(
            f"{row['law']}, d = {row['d']}, n = {row['n']}, {row['draws']} draws: rms error "
            f"{100 * row['rms_error']:.2g} %{known}{'' if row['within'] else '  ABOVE'}"
        )
    inferred = inference(runs.runs)
    for row in inferred:
        low, high = row["95 %"]
        limits = f"{row['share']:.3f} ({low:.3f} to {high:.3f})"
        print(f"{row['what']}, {row['where']}: {limits}, {row['draws']} draws")
    rates = speed() if arguments.speed or not arguments.quick else []
    print(f"written to {runs.write(results=rows, inference=inferred, speed=rates).name}")
