"""How often tests of independence reject under independence: repeated rows, groups, rare cells, small n.

Each cell draws tables on which z and s are independent and counts the p-values that are at most 0.05. A test
may reject less often (few values of a score make few p-values), never more often than binomial chance allows
for all cells at once.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from benchmarks._record import RESULTS, write_section
from benchmarks._simulate import SIMULTANEOUS, Task, binomial_interval, chunks, draws_of, opened, rng, spread
from frhsic.inference import independence_test
from frhsic.kernels import Delta, Gaussian
from frhsic.sketching import HSICSketch

ALPHA = 0.05
DRAWS, DRAWS_OF_MILLIONS = 1_000, 200
# p-values are multiples of 1/100, of which 0.05 is one.
PERMUTATIONS = 99
MILLION = 1_000_000

Generator = np.random.Generator


def twice(g: Generator, seed: int) -> float:
    """Each of 60 rows twice."""
    z, s = g.standard_normal((2, 60))
    rows = np.repeat(np.arange(60), 2)
    return _tested(z[rows], s[rows], rows, seed)


def people(g: Generator, seed: int) -> float:
    """40 people with 5 rows each; s is that of the person."""
    return _tested(*_people(g, np.full(40, 5)), seed)


def twenty(g: Generator, seed: int) -> float:
    """20 people, the fewest for a bootstrap, with 1 to 30 rows each; s varies inside a person too."""
    z, s, groups = _people(g, g.integers(1, 31, 20))
    return _tested(z, s + 0.5 * g.standard_normal(len(s)), groups, seed)


def unequal(g: Generator, seed: int) -> float:
    """40 people with 1 to 30 rows; s is that of the person."""
    return _tested(*_people(g, g.integers(1, 31, 40)), seed)


def varying(g: Generator, seed: int) -> float:
    """40 people with 5 rows each; s varies inside a person too."""
    z, s, groups = _people(g, np.full(40, 5))
    return _tested(z, s + 0.5 * g.standard_normal(len(s)), groups, seed)


def sketch_of_groups(g: Generator, seed: int) -> float:
    """100 people with 5 rows each, in a sketch with groups."""
    z, s, groups = _people(g, np.full(100, 5))
    return _sketched(z, np.round(s, 1), seed, groups=groups + 100 * seed)


def sketch_of_ids(g: Generator, seed: int) -> float:
    """500 rows in a sketch, which ids tell apart."""
    z, s = g.standard_normal((2, 500))
    return _sketched(z, np.round(s, 1), seed, ids=np.arange(500) + 500 * seed)


def rare_eighteen(n: int) -> Callable[[Generator, int], float]:
    """18 rare scores and a group of 18."""
    return lambda g, seed: _tested(*_rare(g, n, 18), None, seed)


def rare(n: int) -> Callable[[Generator, int], float]:
    """Rare scores and a rare group, one row expected in both."""
    return lambda g, seed: _tested(*_rare(g, n, round(n**0.5)), None, seed)


def rare_sketch(n: int) -> Callable[[Generator, int], float]:
    """Rare scores and a rare group in a sketch, one row expected in both."""
    return lambda g, seed: _sketched(*_rare(g, n, round(n**0.5)), seed)


def scores(kind: str, n: int) -> Callable[[Generator, int], float]:
    """Integer, binary or Cauchy scores of few rows."""

    def draw(g: Generator, seed: int) -> float:
        if kind == "Cauchy":
            z = g.standard_cauchy(n)
        else:
            z = g.integers(0, 5 if kind == "integer" else 2, n).astype(float)
        return _tested(z, g.standard_normal(n), None, seed) if np.ptp(z) > 0 else 1.0

    return draw


def strata(g: Generator, seed: int) -> float:
    """200 rows in three levels of ``given``, on which both z and s depend."""
    y = g.integers(0, 3, 200)
    z, s = g.standard_normal((2, 200)) + y
    return _tested(z, s, None, seed, given=y)


def attributes(g: Generator, seed: int) -> float:
    """Five attributes, n = 100: the smallest p-value after Holm's correction."""
    columns = {f"s{j}": column for j, column in enumerate(g.standard_normal((5, 100)))}
    results = independence_test(
        g.standard_normal(100), columns, each=True, n_permutations=2 * PERMUTATIONS + 1, random_state=seed
    )
    return min(result.reported for result in results)


CELLS: dict[str, Callable[[Generator, int], float]] = {
    "each row twice, 60 groups": twice,
    "40 people x 5 rows": people,
    "40 people x 1 to 30 rows": unequal,
    "40 people x 5 rows, s varies inside": varying,
    "20 people x 1 to 30 rows, s varies inside": twenty,
    "sketch, 100 people x 5 rows, groups": sketch_of_groups,
    "sketch, 500 rows, ids": sketch_of_ids,
    "rare x rare, 18 and 18, n = 6,000": rare_eighteen(6_000),
    "rare x rare, n = 6,000": rare(6_000),
    "rare x rare, n = 60,000": rare(60_000),
    "rare x rare, n = 1,000,000": rare(MILLION),
    "sketch, rare x rare, n = 6,000": rare_sketch(6_000),
    "sketch, rare x rare, n = 1,000,000": rare_sketch(MILLION),
    **{
        f"{kind} score, n = {n}": scores(kind, n)
        for kind in ("integer", "binary", "Cauchy")
        for n in (20, 40, 60)
    },
    "three strata, n = 200": strata,
    "five attributes, n = 100": attributes,
}


def _people(g: Generator, sizes: Any) -> tuple[Any, Any, Any]:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    z = g.standard_normal(len(sizes))[groups] + 0.5 * g.standard_normal(len(groups))
    return z, g.standard_normal(len(sizes))[groups], groups


def _rare(g: Generator, n: int, count: int) -> tuple[Any, Any]:
    z, s = np.zeros(n), np.full(n, "most")
    z[g.choice(n, count, replace=False)] = 1.0
    s[g.choice(n, count, replace=False)] = "few"
    return z, s


def _tested(z: Any, s: Any, groups: Any, seed: int, **more: Any) -> float:
    result = independence_test(z, s, groups=groups, n_permutations=PERMUTATIONS, random_state=seed, **more)
    return result.pvalue


def _sketched(z: Any, s: Any, seed: int, **more: Any) -> float:
    kernel_s = Delta() if s.dtype.kind == "U" else Gaussian(1.0)
    sketch = HSICSketch(Gaussian(1.0), kernel_s, n_features=(16, 16)).update(z, s, **more)
    return independence_test(sketch, n_permutations=PERMUTATIONS, random_state=seed).pvalue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--draws", type=int, default=DRAWS, help="a fifth of these at 10^6 rows")
    parser.add_argument("--quick", action="store_true", help="two draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only write the table of the results")


def tasks_of(draws: int, quick: bool) -> list[Task]:
    """Return the chunks: 50 draws each, 10 of 10^6 rows."""
    tasks = []
    for cell in CELLS:
        large = cell.endswith("1,000,000")
        count = draws * DRAWS_OF_MILLIONS // DRAWS if large else draws
        tasks += chunks({"cell": cell}, 2, 2) if quick else chunks({"cell": cell}, count, 10 if large else 50)
    return sorted(tasks, key=lambda task: task["first"])  # a command that is cut short has seen every cell


def work(task: Task) -> Task:
    """Return how many draws of a chunk reject, in a worker."""
    draw = CELLS[task["cell"]]
    pvalues = [draw(rng("levels", task["cell"], i), i) for i in draws_of(task)]
    return {"rejected": sum(p <= ALPHA + 1e-9 for p in pvalues)}


def most(draws: int, cells: int) -> float:
    """Return the largest share of rejections that a level of 0.05 explains, all cells together, at 99 %."""
    return float(stats.binom.ppf(1.0 - (1.0 - SIMULTANEOUS) / cells, draws, ALPHA)) / draws


def summarise(runs: list[Task]) -> list[dict[str, Any]]:
    """Return a row for each cell."""
    rows = []
    for cell in CELLS:
        own = [run for run in runs if run["cell"] == cell]
        draws, rejected = sum(run["draws"] for run in own), sum(run["rejected"] for run in own)
        if draws:
            limit = most(draws, len(CELLS))
            rows.append(
                {
                    "cell": cell,
                    "draws": draws,
                    "level": rejected / draws,
                    "level_95": binomial_interval(rejected, draws),
                    "limit": limit,
                    "above": rejected / draws > limit,
                    "seconds": round(sum(run["seconds"] for run in own), 1),
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a markdown table."""
    lines = [
        "| rows | draws | rejected at .05 | 95 % limits | largest rate that .05 explains (all cells, 99 %) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        low, high = row["level_95"]
        level = f"{row['level']:.3f}{' above' if row['above'] else ''}"
        lines.append(
            f"| {row['cell']} | {row['draws']:,} | {level} | {low:.3f} to {high:.3f} | {row['limit']:.3f} |"
        )
    return "\n".join(lines)


def run(arguments: argparse.Namespace) -> None:
    """Simulate what is missing, write results/levels.json and the table in docs/evidence/coverage.md."""
    if arguments.table:
        rows = summarise(json.loads((RESULTS / "levels.json").read_text())["runs"])
    else:
        runs = opened(
            "levels.json",
            fresh=arguments.fresh,
            quick=arguments.quick,
            alpha=ALPHA,
            permutations=PERMUTATIONS,
        )
        spread(runs, tasks_of(arguments.draws, arguments.quick), work)
        rows = summarise(runs.runs)
        print(f"written to {runs.write(results=rows).name}")
    print(table(rows))
    if not arguments.quick:
        write_section("evidence/coverage.md", "levels", table(rows), "levels.json")
