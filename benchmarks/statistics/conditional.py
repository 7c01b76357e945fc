"""How often the conditional test and the adjusted curve hold, and what the test finds beside its peers.

``level``: five nulls in which factors move both the score and S. ``power``: five ways in which the score
depends on S beyond the factors, with tests of other libraries on the same draws (hyppo and causal-learn, to
be installed by hand). ``curve``: whether the adjusted curve and its gap cover the truth.
"""

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks._record import Runs, write_section
from benchmarks._simulate import Array, Task, chunks, draws_of, least, most, opened, rng, spread
from frhsic.inference import adjusted_curve, conditional_independence_test
from frhsic.inference.factors import find_residuals

LEVEL = 0.05
SIZES = {500: 1_000, 2_000: 1_000, 10_000: 300}
CHUNK = {500: 50, 2_000: 50, 10_000: 20}
ENOUGH = 0.1  # of n x error x error
STUDIES = ("level", "power", "curve")

# Means of the score and of s given three factors.
NULLS: dict[str, Callable[[Array], tuple[Array, Array]]] = {
    "linear": lambda x: (0.7 * x[:, 0] + 0.5 * x[:, 1], 0.6 * x[:, 0] + 0.5 * x[:, 2]),
    "nonlinear": lambda x: (
        np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] ** 2,
        np.cos(x[:, 0]) + 0.5 * np.abs(x[:, 1]),
    ),
    "interaction": lambda x: (np.sin(x[:, 0]) * x[:, 1], np.sin(x[:, 0]) * x[:, 1]),
    "heavy-tailed factors": lambda x: (0.5 * x[:, 0] + 0.5 * x[:, 1], 0.5 * x[:, 0] - 0.5 * x[:, 2]),
    "integer age": lambda x: (0.7 * x[:, 0] + 0.5 * x[:, 1], 0.6 * x[:, 0] + 0.5 * x[:, 2]),
}
# What is added to the score of the linear design, from s, noise and a factor; sizes for n = 500.
WAYS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "linear": lambda s, e, _: e + 0.1 * s,
    "U": lambda s, e, _: e + 0.1 * (s**2 - 1.0),
    "spread": lambda s, e, _: e * np.exp(0.12 * s),
    "sign of a factor": lambda s, e, x: e + 0.15 * s * np.sign(x),
    "wave": lambda s, e, _: e + 0.2 * np.sin(2.5 * s),
}
POWER = {500: 200, 2_000: 40}
PEERS = ("causal-learn KCI", "causal-learn RCIT", "hyppo FCIT")

CURVES = {
    "nothing left": lambda u: 0.0 * u,
    "linear": lambda u: 0.6 * (u - 0.5),
    "U": lambda u: 2.0 * ((u - 0.5) ** 2 - 1.0 / 12.0),
    "wave": lambda u: 0.3 * np.sin(2.0 * np.pi * u),
    "opposite to the factors": lambda u: -0.8 * (u - 0.5),
    "step, smoothed": lambda u: 0.4 / (1.0 + np.exp(-20.0 * (u - 0.7))),
}
CURVE_DRAWS, CURVE_ROWS = 1_000, 1_000

_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(31)
_SHARES = _SHARES / _SHARES.sum()


def factors_of(design: str, n: int, generator: np.random.Generator) -> Array:
    """Return three factors."""
    heavy = design == "heavy-tailed factors"
    return generator.standard_t(2.5, size=(n, 3)) if heavy else generator.normal(size=(n, 3))


def observe(design: str, score: Array, s: Array) -> tuple[Array, Array]:
    """Return what is seen of the latent score and s."""
    if design != "integer age":
        return score, s
    return 1.0 / (1.0 + np.exp(-score)), np.clip(np.round(45.0 + 12.0 * s), 18.0, 90.0)


@cache
def population(design: str) -> tuple[Array, Array]:
    """Return sorted scores and values of s of a large sample."""
    generator = rng("conditional", "population", design)
    mean, of_s = NULLS[design](factors_of(design, 400_000, generator))
    noise = generator.normal(size=(2, len(mean)))
    f, s = observe(design, mean + noise[0], of_s + noise[1])
    return np.sort(f), np.sort(s)


def ranks_in(everybody: Array, x: Array) -> Array:
    """Return the share of a sorted sample below each value, and half of those equal to it."""
    both = np.searchsorted(everybody, x, "left") + np.searchsorted(everybody, x, "right")
    return 0.5 * both / len(everybody)


def expected(design: str, mean: Array, which: int, degree: int) -> Array:
    """Return the conditional means of polynomials of the ranks of the score (0) or s (1)."""
    latent = mean[:, None] + _NODES
    seen = observe(design, latent, latent)[which]
    everybody = population(design)[which]
    values = np.polynomial.legendre.legvander(2.0 * ranks_in(everybody, seen) - 1.0, degree)[..., 1:]
    values = values * np.sqrt(2.0 * np.arange(1, degree + 1) + 1.0)
    return np.einsum("ijk,j->ik", values, _SHARES)


def test_null(task: Task, draw: int) -> dict[str, float]:
    """Return the p-value of one sample without dependence, and the true and the estimated error."""
    design, n = task["design"], task["n"]
    generator = rng("conditional", design, n, draw)
    x = factors_of(design, n, generator)
    mean, of_s = NULLS[design](x)
    noise = generator.normal(size=(2, n))
    f, s = observe(design, mean + noise[0], of_s + noise[1])
    fit = find_residuals(f, {"s": s}, x, draw)
    if design == "integer age":
        latent = mean[:, None] + _NODES
        lead = (1.0 / (1.0 + np.exp(-latent))) @ _SHARES
    else:
        lead = mean
    true = np.column_stack(
        (
            (lead - f.mean()) / f.std(),
            expected(design, mean, 0, 3),
            expected(design, of_s, 1, fit.targets.shape[1] - fit.of_score),
        )
    )
    predicted = fit.targets - fit.residuals
    errors = ((predicted - true) ** 2).mean(axis=0) / fit.residuals.var(axis=0)
    return {
        "pvalue": fit.test.pvalue,
        "error": float(n * errors[0] * errors[fit.of_score]),
        "estimate": fit.test.error,
        "warned": float(bool(fit.test.warnings)),
    }


def peers() -> dict[str, Callable[[Array, Array, Array], float]]:
    """Return the tests of other libraries, as their documentation says they are called."""
    cit = importlib.import_module("causallearn.utils.cit").CIT
    fcit = importlib.import_module("hyppo.conditional").FCIT

    def causal(name: str) -> Callable[[Array, Array, Array], float]:
        return lambda f, s, x: float(cit(np.column_stack((f, s, x)), name)(0, 1, [2, 3, 4]))

    return {
        PEERS[0]: causal("kci"),
        PEERS[1]: causal("rcit"),
        PEERS[2]: lambda f, s, x: float(fcit().test(f[:, None], s[:, None], x)[1]),
    }


def test_way(task: Task, draw: int) -> dict[str, Any]:
    """Return the p-values and times of one test on one sample with dependence."""
    n, way = task["n"], task["way"]
    generator = rng("conditional", "power", way, n, draw)
    x = generator.normal(size=(n, 3))
    mean, of_s = NULLS["linear"](x)
    noise = generator.normal(size=(2, n))
    s = of_s + noise[1]
    size = (500.0 / n) ** 0.5
    added = noise[0] if way == "none" else WAYS[way](s, noise[0], x[:, 1])
    f = mean + noise[0] + size * (added - noise[0])
    start = time.perf_counter()
    if task["test"] == "frhsic":
        pvalue = conditional_independence_test(f, s, given=x, random_state=draw).pvalue
    else:
        np.random.seed(draw)  # noqa: NPY002 - the peers draw from it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pvalue = peers()[task["test"]](f, s, x)
    return {"pvalue": pvalue, "time": time.perf_counter() - start}


def test_curve(task: Task, draw: int) -> dict[str, Any]:
    """Return whether the band holds the true curve, and the interval its gap."""
    generator = rng("conditional", "curve", task["curve"], draw)
    n = task["n"]
    x = generator.normal(size=(n, 3))
    mean, of_s = NULLS["linear"](x)
    age = np.clip(np.round(45.0 + 12.0 * (of_s + generator.normal(size=n))), 18.0, 90.0)
    everybody = population("integer age")[1]

    def curve(values: Array) -> Array:
        return CURVES[task["curve"]](ranks_in(everybody, values))

    f = mean + curve(age) + generator.normal(size=n)
    found = adjusted_curve(f, {"age": age}, given=x, random_state=draw, n_draws=999)
    true = curve(np.array(found.points))
    true = true - np.array(found.mass) @ true  # of mean zero among these people
    values, counts = np.unique(everybody, return_counts=True)
    h = curve(values)
    gap = float(counts @ np.abs(h - counts @ h / counts.sum()) / counts.sum())
    inside = (np.array(found.low) <= true + 1e-9) & (true <= np.array(found.high) + 1e-9)
    return {
        "band": float(inside.all()),
        "gap": float(found.gap.low <= gap + 1e-9 and gap <= found.gap.high + 1e-9),
        "length": found.gap.high - found.gap.low,
        "warned": float(bool(found.test.warnings)),
    }


def work(task: Task) -> Task:
    """Run some draws of a cell."""
    run = {"level": test_null, "power": test_way, "curve": test_curve}[task["study"]]
    found = [run(task, draw) for draw in draws_of(task)]
    return {"found": {name: [round(float(one[name]), 5) for one in found] for name in found[0]}}


def tasks_of(studies: list[str], quick: bool) -> list[Task]:
    """Return the chunks of some studies."""
    found: list[Task] = []
    if "level" in studies:
        for n, draws in SIZES.items():
            for design in NULLS:
                cell = {"study": "level", "design": design, "n": n}
                found += chunks(cell, 2 if quick else draws, CHUNK[n])
    if "power" in studies:
        for test in ("frhsic", *PEERS):
            for n, draws in POWER.items():
                for way in ("none", *WAYS):
                    cell = {"study": "power", "test": test, "way": way, "n": n}
                    found += chunks(cell, 2 if quick else draws, 20)
    if "curve" in studies:
        for curve in CURVES:
            cell = {"study": "curve", "curve": curve, "n": CURVE_ROWS}
            found += chunks(cell, 2 if quick else CURVE_DRAWS, 50)
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only write the tables from the results")
    parser.add_argument("--studies", nargs="*", default=list(STUDIES), choices=STUDIES)


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, and write the tables."""
    runs = opened("conditional.json", fresh=arguments.fresh, quick=arguments.quick, sizes=SIZES)
    if not arguments.table:
        spread(runs, tasks_of(arguments.studies, arguments.quick), work)
        runs.write()
    text = tables(runs)
    print(text)
    if not arguments.quick:
        write_section("evidence/conditional.md", "conditional", text, "conditional.json")


def gather(runs: Runs, study: str, *names: str) -> dict[tuple[Any, ...], dict[str, Array]]:
    """Return all draws of each cell."""
    found: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for one in runs.runs:
        if one["study"] == study:
            cell = found.setdefault(tuple(one[name] for name in names), {})
            for name, values in one["found"].items():
                cell.setdefault(name, []).extend(values)
    return {key: {name: np.array(v) for name, v in cell.items()} for key, cell in found.items()}


def tables(runs: Runs) -> str:
    """Return the tables in Markdown."""
    lines = ["Level at .05 where the score and S are independent given three factors:", ""]
    lines += ["| factors | n | draws | rejected | n x error x error | warned |", "| --- |" + " ---: |" * 5]
    found = gather(runs, "level", "design", "n")
    counting = sum(bool(np.median(cell["error"]) <= ENOUGH) for cell in found.values())
    for (design, n), cell in found.items():
        rate, draws, error = (cell["pvalue"] <= LEVEL).mean(), len(cell["pvalue"]), np.median(cell["error"])
        counts = error <= ENOUGH
        loud = " (too often)" if rate > most(LEVEL, draws, max(counting, 1)) else ""
        mark = "" if counts else " (above .1)"
        row = f"{design} | {n:,} | {draws:,} | {rate:.3f}{loud} | {error:.2g}{mark}"
        lines.append(f"| {row} | {cell['warned'].mean():.2f} |")
    power = gather(runs, "power", "test", "n", "way")
    if power:
        lines += ["", "Share rejected at .05, and the median seconds of a test, on the same draws:", ""]
        lines += ["| test | n | none | " + " | ".join(WAYS) + " | seconds |", "| --- |" + " ---: |" * 8]
        for test, n in dict.fromkeys(key[:2] for key in power):
            cells = [power.get((test, n, way)) for way in ("none", *WAYS)]
            rates = ["-" if one is None else f"{(one['pvalue'] <= LEVEL).mean():.2f}" for one in cells]
            seconds = np.median(np.concatenate([one["time"] for one in cells if one is not None]))
            lines.append(f"| {test} | {n:,} | {' | '.join(rates)} | {seconds:.2f} |")
    curves = gather(runs, "curve", "curve", "n")
    if curves:
        lines += [
            "",
            "Share of samples in which the 95 % band holds the true adjusted curve, and its gap:",
            "",
        ]
        lines += ["| what is left | n | draws | band | gap | length | warned |", "| --- |" + " ---: |" * 6]
        for (name, n), cell in curves.items():
            draws = len(cell["band"])
            marks = []
            for part in ("band", "gap"):
                rate = cell[part].mean()
                few = " (too seldom)" if rate < least(0.95, draws, 2 * len(curves)) else ""
                marks.append(f"{rate:.3f}{few}")
            rest = f"{cell['length'].mean():.3f} | {cell['warned'].mean():.2f}"
            lines.append(f"| {name} | {n:,} | {draws} | {' | '.join(marks)} | {rest} |")
    return "\n".join(lines)
