"""The test of independence of a table: its level, its power beside the test of rows, F and Kruskal-Wallis.

``level``: how often it rejects at .05 under independence, with 199 draws, also within labels of ``given``,
with weights that are a function of S and with others. ``power``: the same samples for the test of the rows.
``labels``: many labels of S, the same samples for an F-test and Kruskal-Wallis. ``speed``: CPU of 999 draws.
"""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special, stats

from benchmarks._simulate import Array, Task, chunks, draws_of, opened, rng, spread
from frhsic.data import to_sensitive
from frhsic.inference import independence_test
from frhsic.table import Law, ScoreTable, independence

PARTS = ("level", "power", "labels", "speed")
ALPHA, PERMUTATIONS, SPEED_DRAWS = 0.05, 199, 999
LEVEL_DRAWS, POWER_DRAWS, SPEED_REPEATS = 2_000, 200, 3
CHUNK = {"level": 100, "power": 20, "labels": 20, "speed": 1}

Generator = np.random.Generator
Column = NDArray[Any]


class Rows(NamedTuple):
    """A sample."""

    z: Array
    s: Column
    w: Array | None = None
    given: NDArray[np.int64] | None = None


def _normal(g: Generator, n: int) -> Array:
    return g.standard_normal(n)


def _text(prefix: str, codes: NDArray[np.int64]) -> Column:
    return np.char.add(prefix, codes.astype(str))


def _ages(g: Generator, n: int) -> Array:
    return g.integers(17, 89, n).astype(float)


def _heaped(g: Generator, n: int) -> Array:
    """Incomes, of which most are rounded: to 10,000, 5,000 or 1,000."""
    income = np.exp(10.5 + 0.7 * _normal(g, n))
    unit = np.array([1.0, 1_000.0, 5_000.0, 10_000.0])[g.choice(4, n, p=(0.2, 0.3, 0.2, 0.3))]
    return np.asarray(np.ceil(income / unit) * unit)


def _zipf(g: Generator, n: int, size: int) -> NDArray[np.int64]:
    p = 1.0 / np.arange(1.0, size + 1.0)
    return g.choice(size, n, p=p / p.sum())


def _chosen(g: Generator, n: int, logit: Callable[[Array, Array], Array]) -> Rows:
    """Return rows of independent columns that were chosen by chance, with the inverse of it as weight."""
    z, s = g.standard_normal((2, 12 * n))
    chance = 0.05 + 0.9 * special.expit(logit(z, s))
    rows = np.flatnonzero(g.random(12 * n) < chance)[:n]
    return Rows(z[rows], s[rows], 1.0 / chance[rows])


def _strata(g: Generator, n: int) -> Rows:
    y = g.integers(0, 3, n)
    return Rows(_normal(g, n) + y, _normal(g, n) + y, None, y)


def _weights_of_s(g: Generator, n: int) -> Rows:
    age = _ages(g, n)
    return Rows(np.exp(_normal(g, n)), age, np.exp(0.03 * (age - 50.0)))


def _lognormal(g: Generator, n: int, deviation: float = 0.5) -> Array:
    return np.exp(deviation * _normal(g, n))


# Laws under independence.
NULLS: dict[str, Callable[[Generator, int], Rows]] = {
    "72 ages": lambda g, n: Rows(_normal(g, n), _ages(g, n)),
    "log-normal income": lambda g, n: Rows(_normal(g, n), np.exp(_normal(g, n))),
    "heaped income": lambda g, n: Rows(_normal(g, n), _heaped(g, n)),
    "Cauchy S, Student(2) score": lambda g, n: Rows(g.standard_t(2, n), g.standard_cauchy(n)),
    "3 labels": lambda g, n: Rows(_normal(g, n), _text("g", g.choice(3, n, p=(0.6, 0.3, 0.1)))),
    "300 rare labels": lambda g, n: Rows(_normal(g, n), _text("g", _zipf(g, n, 300))),
    "score yes or no": lambda g, n: Rows((g.random(n) < 0.15).astype(float), _normal(g, n)),
    "score of 5 levels": lambda g, n: Rows(g.binomial(4, 0.3, n).astype(float), _ages(g, n)),
    "log-normal(1.5) score": lambda g, n: Rows(np.exp(1.5 * _normal(g, n)), np.exp(_normal(g, n))),
    "within 3 labels of given": _strata,
    "weights of S": _weights_of_s,
    "weights by chance": lambda g, n: Rows(_normal(g, n), _normal(g, n), _lognormal(g, n)),
    "weights of S and score": lambda g, n: _chosen(g, n, lambda z, s: z + 0.7 * s - 0.5),
    "weights of their product": lambda g, n: _chosen(g, n, lambda z, s: z * s - 0.5),
    "weights, score yes or no": lambda g, n: Rows(
        (g.random(n) < 0.15).astype(float), _normal(g, n), _lognormal(g, n)
    ),
    "weights, 30 labels": lambda g, n: Rows(_normal(g, n), _text("g", _zipf(g, n, 30)), _lognormal(g, n)),
    "weights, rare score and label": lambda g, n: Rows(
        (g.random(n) < 0.04).astype(float), _text("g", g.binomial(1, 0.04, n)), _lognormal(g, n)
    ),
}
LEVEL_CELLS: tuple[tuple[str, int, int], ...] = (
    *((law, 60, LEVEL_DRAWS) for law in list(NULLS)[:9]),
    *((law, 300, LEVEL_DRAWS) for law in NULLS),
    *((law, 2_000, LEVEL_DRAWS) for law in ("log-normal income", "300 rare labels", "weights by chance")),
    *((law, 2_000, LEVEL_DRAWS) for law in ("weights of S and score", "weights of their product")),
    ("72 ages", 20_000, LEVEL_DRAWS // 4),
)


def _linear(g: Generator, n: int) -> Rows:
    s = _normal(g, n)
    return Rows(0.15 * s + _normal(g, n), s)


def _wave(g: Generator, n: int) -> Rows:
    s = g.random(n)
    return Rows(0.12 * np.sin(6.0 * np.pi * s) + _normal(g, n), s)


def _spread(g: Generator, n: int) -> Rows:
    s = _normal(g, n)
    return Rows(np.exp(0.25 * s) * _normal(g, n), s)


def _circle(g: Generator, n: int) -> Rows:
    angle = 2.0 * np.pi * g.random(n)
    return Rows(np.sin(angle) + 0.35 * _normal(g, n), np.cos(angle) + 0.35 * _normal(g, n))


def _heap(g: Generator, n: int) -> Rows:
    s, heap = np.exp(_normal(g, n)), g.random(n) < 0.04
    return Rows(_normal(g, n) + 1.2 * heap, np.where(heap, 1.0, s))


def _labels(g: Generator, n: int) -> Rows:
    code = g.choice(6, n, p=(0.4, 0.3, 0.15, 0.08, 0.05, 0.02))
    return Rows(
        np.array([0.0, 0.15, -0.15, 0.3, -0.3, 0.6])[code] + _normal(g, n), np.array(list("abcdef"))[code]
    )


ALTERNATIVES: dict[str, tuple[int, Callable[[Generator, int], Rows]]] = {
    "linear": (300, _linear),
    "wave": (4_000, _wave),
    "spread": (300, _spread),
    "circle": (300, _circle),
    "rare heap": (1_000, _heap),
    "six labels": (300, _labels),
}


def _regions(g: Generator, n: int, deviation: float, size: int) -> Rows:
    effects, region = deviation * _normal(g, size), np.arange(n) % size
    return Rows(effects[region] + _normal(g, n), _text("g", region))


def _unequal(g: Generator, n: int) -> Rows:
    effects, region = 0.075 * _normal(g, 300), _zipf(g, n, 300)
    return Rows(effects[region] + _normal(g, n), _text("g", region))


def _one_rare(g: Generator, n: int) -> Rows:
    region = _zipf(g, n, 300)
    return Rows(0.6 * (region == 25) + _normal(g, n), _text("g", region))


def _skewed(g: Generator, n: int) -> Rows:
    region = _zipf(g, n, 30)
    return Rows(np.exp((0.15 * _normal(g, 30))[region] + 1.2 * _normal(g, n)), _text("g", region))


def _three(g: Generator, n: int, p: tuple[float, ...]) -> Rows:
    code = g.choice(3, n, p=p)
    return Rows(np.array([-0.18, 0.0, 0.18])[code] + _normal(g, n), _text("g", code))


MANY_LABELS: dict[str, tuple[int, Callable[[Generator, int], Rows]]] = {
    "1,000 regions x 50 rows": (50_000, lambda g, n: _regions(g, n, 0.042, 1_000)),
    "300 regions, Zipf": (10_000, _unequal),
    "300 regions, one rare differs": (10_000, _one_rare),
    "30 regions, skewed score": (1_000, _skewed),
    "3 labels": (300, lambda g, n: _three(g, n, (1 / 3, 1 / 3, 1 / 3))),
    "3 labels, one rare": (300, lambda g, n: _three(g, n, (0.5, 0.42, 0.08))),
}
SPEED: dict[str, tuple[int, Callable[[Generator, int], Rows]]] = {
    f"{name}, n = {n:,}": (n, draw)
    for name, draw, sizes in (
        ("72 ages", NULLS["72 ages"], (4_000, 16_000, 1_000_000, 10_000_000)),
        ("log-normal income", NULLS["log-normal income"], (4_000, 100_000, 1_000_000)),
        ("1,000 regions", lambda g, n: _regions(g, n, 0.0, 1_000), (50_000, 1_000_000)),
        ("10,000 regions", lambda g, n: _regions(g, n, 0.0, 10_000), (1_000_000,)),
        ("weights by chance", NULLS["weights by chance"], (100_000,)),
    )
    for n in sizes
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--part", choices=PARTS, default=None, help="one part only")
    parser.add_argument("--share", type=float, default=1.0, help="this share of all draws")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="two draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")


def tasks_of(part: str, share: float, quick: bool) -> list[Task]:
    """Return the chunks of a part: all cells in turn, so that a command that is cut short has seen each."""
    cells: list[tuple[str, int, int]]
    if part == "level":
        cells = list(LEVEL_CELLS)
    else:
        laws = {"power": ALTERNATIVES, "labels": MANY_LABELS, "speed": SPEED}[part]
        count = SPEED_REPEATS if part == "speed" else POWER_DRAWS
        cells = [(law, n, count) for law, (n, _) in laws.items()]
    size = 2 if quick else CHUNK[part]
    tasks = []
    for law, n, count in cells:
        draws = 2 if quick else size * max(1, math.ceil(share * count / size))
        tasks += chunks({"part": part, "law": law, "n": n}, draws, size)
    return sorted(tasks, key=lambda task: task["first"])


def laws_of(rows: Rows) -> list[Law]:
    """Return the law of the table of a sample, or those given each label."""
    table = ScoreTable.from_rows(rows.z, rows.s, sample_weight=rows.w, outcome=rows.given)
    return [table.law(j) for j in ([None] if table.outcome is None else range(table.outcome.size))]


def table_pvalue(rows: Rows, seed: int) -> float:
    """Return the p-value of the test of the table of a sample."""
    return independence(laws_of(rows), PERMUTATIONS, np.random.default_rng(seed)).pvalue


def work(task: Task) -> Task:
    """Return the p-values of some draws of a cell, in a worker."""
    part, law, n = task["part"], task["law"], task["n"]
    draw = NULLS[law] if part == "level" else {**ALTERNATIVES, **MANY_LABELS, **SPEED}[law][1]
    pvalues: dict[str, list[float]] = {"table": []}
    cpu: dict[str, float] = {}

    def note(method: str, test: Callable[[], float]) -> None:
        start = time.process_time()
        pvalues.setdefault(method, []).append(round(float(test()), 6))
        cpu[method] = cpu.get(method, 0.0) + time.process_time() - start

    for i in draws_of(task):
        rows = draw(rng("table-test", part, law, n, i), n)
        if part == "speed":
            laws = laws_of(rows)
            g = np.random.default_rng(i)
            note("table", lambda: independence(laws, SPEED_DRAWS, g).pvalue)  # noqa: B023
            continue
        note("table", lambda: table_pvalue(rows, i))  # noqa: B023
        if part != "level":
            note("rows", lambda: _rows_pvalue(rows, i))  # noqa: B023
        if part == "labels":
            groups = [rows.z[rows.s == label] for label in np.unique(rows.s)]
            note("F", lambda: stats.f_oneway(*groups).pvalue)  # noqa: B023
            note("Kruskal-Wallis", lambda: stats.kruskal(*groups).pvalue)  # noqa: B023
    return {"pvalues": pvalues, "cpu": {method: round(x, 3) for method, x in cpu.items()}}


def _rows_pvalue(rows: Rows, seed: int) -> float:
    """Return the p-value of the test that permutes rows, of many rows in its limit."""
    generator = torch.Generator().manual_seed(seed)
    z, s = torch.from_numpy(rows.z)[:, None], to_sensitive(rows.s)
    # A group for each row: rows are permuted, or their limit is drawn, as before there was a table.
    each = np.arange(len(z))
    found = independence_test(z, s, groups=each, n_permutations=PERMUTATIONS, random_state=generator)
    return found.pvalue


def summarise(runs: list[Task]) -> list[dict[str, Any]]:
    """Return a row for each cell."""
    cells = list(dict.fromkeys((run["part"], run["law"], run["n"]) for run in runs))
    rows = []
    for part, law, n in sorted(cells, key=lambda cell: PARTS.index(cell[0])):
        own = [run for run in runs if (run["part"], run["law"], run["n"]) == (part, law, n)]
        names = own[0]["pvalues"]
        p = {name: np.concatenate([run["pvalues"][name] for run in own]) for name in names}
        draws = len(p["table"])
        row: dict[str, Any] = {"part": part, "law": law, "n": n, "draws": draws}
        row["cpu_each"] = {name: round(sum(run["cpu"][name] for run in own) / draws, 4) for name in names}
        rejected = {name: x <= ALPHA + 1e-9 for name, x in p.items()}
        if part != "speed":
            row["rejected"] = {name: float(x.mean()) for name, x in rejected.items()}
        if part == "level":
            row["limit"] = float(stats.binom.isf(1e-3, draws, ALPHA)) / draws
            row["above"] = row["rejected"]["table"] > row["limit"]
        for other in [name for name in names if name != "table"]:
            gain = rejected["table"].astype(float) - rejected[other]
            row[f"gain on {other}"] = [float(gain.mean()), float(gain.std(ddof=1) / math.sqrt(draws))]
        rows.append(row)
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Simulate what is missing and write results/table_test.json."""
    runs = opened(
        "table_test.json",
        fresh=arguments.fresh,
        quick=arguments.quick,
        alpha=ALPHA,
        permutations=PERMUTATIONS,
    )
    for part in PARTS if arguments.part is None else (arguments.part,):
        tasks = tasks_of(part, arguments.share, arguments.quick)
        spread(runs, tasks, work, workers=arguments.workers)
    rows = summarise(runs.runs)
    print(f"written to {runs.write(results=rows).name}")
    for row in rows:
        print({name: value for name, value in row.items() if name != "above" or value})
