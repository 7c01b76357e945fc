"""Decisions and not only means: ranks by the gap of the score, and limits of it beside the nine methods."""

import json
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks._protocol import Array
from benchmarks._record import RESULTS
from benchmarks.paper._methods import CONTENDERS
from benchmarks.paper.reproduction._text import TITLES, markdown
from benchmarks.paper.reproduction.comparison import METHODS, Splits, Sweep, committed, is_error
from benchmarks.paper.reproduction.rankings import GAP, OF_TEXT, standings

ALLOWED = 1.1  # times a limit: what held-out rows may have
NINE = [name for name in CONTENDERS if name != "Unfair"]


# ---- ranks -----------------------------------------------------------------------------------------------


def ranked_datasets(form: str = "lam", sweep: Sweep | None = None) -> list[str]:
    """Return the datasets of the text of which every model has been judged by the gap."""
    return [name for name in OF_TEXT if standings(name, form, "sound", GAP, sweep)]


def both_ranks(dataset: str, form: str = "lam", sweep: Sweep | None = None) -> dict[str, tuple[int, int]]:
    """Return the rank of each method by GDP, weighted by the law of S, and by the gap."""
    means, whole = (
        {one.method: one.rank for one in standings(dataset, form, "sound", reading, sweep)}
        for reading in ("population", GAP)
    )
    return {method: (means[method], whole[method]) for method in whole if method in means}


def rank_table(form: str = "lam", sweep: Sweep | None = None) -> str:
    """Return the table of both ranks, methods by datasets."""
    found = {name: both_ranks(name, form, sweep) for name in ranked_datasets(form, sweep)}
    if not found:
        return "Not trained yet."
    rows = [
        [method, *(_pair(column.get(method)) for column in found.values())]
        for method in METHODS
        if any(method in column for column in found.values())
    ]
    return markdown(["method", *(TITLES[name] for name in found)], rows)


def _pair(pair: tuple[int, int] | None) -> str:
    if pair is None:
        return "–"
    return f"{pair[0]}, {pair[1]}" if pair[0] == pair[1] else f"**{pair[0]}, {pair[1]}**"


def hidden(dataset: str, sweep: Sweep | None = None) -> dict[str, tuple[float, float]]:
    """Return for each method the GDP and the gap of its model with the least GDP that still predicts.

    Means over splits, as shares of those of Unfair; a model predicts that keeps half of what Unfair gains.
    """
    sweep = (committed() if sweep is None else sweep).with_gaps
    unfair = sweep.unfair(dataset)
    if unfair is None:
        return {}
    found = {}
    top, base = unfair.mean("perf"), unfair.mean("perf_base")
    for method in NINE:
        kept = [one for one in sweep.of(dataset, method) if (one.mean("perf") - base) / (top - base) >= 0.5]
        if kept:
            least = min(kept, key=lambda one: one.mean("gdp_population"))
            found[method] = (
                least.mean("gdp_population") / unfair.mean("gdp_population"),
                least.mean("gap") / unfair.mean("gap"),
            )
    return found


def hidden_table(sweep: Sweep | None = None) -> str:
    """Return both shares, methods by datasets."""
    found = {name: hidden(name, sweep) for name in ranked_datasets("lam", sweep)}
    if not found:
        return "Not trained yet."
    rows = [
        [
            method,
            *("–" if method not in one else "{:.2f}, {:.2f}".format(*one[method]) for one in found.values()),
        ]
        for method in NINE
    ]
    return markdown(["method", *(TITLES[name] for name in found)], rows)


# ---- limits ----------------------------------------------------------------------------------------------


@cache
def _limits() -> dict[str, Any]:
    path = RESULTS / "limits.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"pooled": [], "runs": []}
    return found


def runs_of(dataset: str, limit: float | None) -> list[dict[str, Any]]:
    """Return the models of a limit, one for each split; None: those without."""
    found = [run for run in _limits()["runs"] if (run["dataset"], run["limit"]) == (dataset, limit)]
    return sorted(found, key=lambda run: int(run["split"]))


def counts(row: dict[str, Any]) -> bool:
    """Return whether chance is small enough for a limit to be judged."""
    return row["limit"] is not None and row["gap_chance"] <= row["limit"] / 2.0


def kept_share() -> tuple[int, int]:
    """Return how many of the limits that count are kept on held-out rows, and of how many."""
    judged = [row for row in _limits()["pooled"] if counts(row)]
    return sum(row["gap"] <= ALLOWED * row["limit"] for row in judged), len(judged)


def limit_table(sweep: Sweep | None = None) -> str:
    """Return limits, what was reached, and performance beside the best of the nine methods at that gap."""
    rows = []
    for row in _limits()["pooled"]:
        name, limit = row["dataset"], row["limit"]
        own = runs_of(name, limit)
        if not own:
            continue
        verdict = "" if limit is None else "exempt"
        if counts(row):
            verdict = "kept" if row["gap"] <= ALLOWED * limit else "**not kept**"
        beside = None if limit is None else compare(name, limit, sweep)
        rows.append(
            [
                TITLES[name],
                "none" if limit is None else f"{limit:g}",
                f"{row['gap']:.4f}",
                f"{row['gap_chance']:.4f}",
                verdict,
                f"{np.mean([run['gap_half'] for run in own]):.4f}",
                f"{np.mean([run['perf'] for run in own]):.4f}",
                "–" if beside is None else beside.text,
            ]
        )
    header = ["", "limit", "gap", "by chance", "", "gap at one half", "performance", "less the best of nine"]
    return markdown(header, rows) if rows else "Not trained yet."


@dataclass(frozen=True)
class Beside:
    """Our performance less that of the best of the nine methods at the gap that ours has, over splits."""

    method: str
    difference: float  # positive where ours is better, also where performance is an error
    error: float

    @property
    def no_worse(self) -> bool:
        """Whether ours is no worse, within one standard error."""
        return self.difference >= -self.error

    @property
    def text(self) -> str:
        """As the table has it."""
        return f"{self.difference:+.4f} ± {self.error:.4f} ({self.method})"


def compare(dataset: str, limit: float | None, sweep: Sweep | None = None) -> Beside | None:
    """Return a limit beside the method that is best, on average over splits, at the same gaps.

    A method is taken between neighbouring points of its front in each split, from the constant prediction,
    which has no gap, to Unfair.
    """
    sweep = (committed() if sweep is None else sweep).with_gaps
    own = runs_of(dataset, limit)
    unfair, sign = sweep.unfair(dataset), -1.0 if is_error(dataset) else 1.0
    if unfair is None or not own:
        return None
    splits = [int(run["split"]) for run in own]
    ours = np.array([sign * run["perf"] for run in own])
    best: Beside | None = None
    for method in NINE:
        cells = [unfair, *sweep.of(dataset, method)]
        if len(cells) == 1:
            continue
        theirs = [_front(cells, split, run["gap"], sign) for split, run in zip(splits, own, strict=True)]
        apart = ours - np.array(theirs)
        error = float(apart.std(ddof=1)) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
        one = Beside(method, float(apart.mean()), error)
        if best is None or one.difference < best.difference:
            best = one
    return best


def _front(cells: list[Splits], split: int, gap: float, sign: float) -> float:
    """Return the performance of a method at a gap, on one split."""
    rows = [one.rows[split] for one in cells]
    points = [(float(row["gap"]), sign * float(row["perf"])) for row in rows]
    return envelope([(0.0, sign * float(rows[0]["perf_base"])), *points], gap)


def envelope(points: list[tuple[float, float]], gap: float) -> float:
    """Return the performance at a gap, between neighbouring points that no other beats."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda one: (one[0], -one[1])):
        if not front or y > front[-1][1]:
            front.append((x, y))
    places, values = zip(*front, strict=True)
    return float(np.interp(gap, places, values))


def by_dataset(sweep: Sweep | None = None) -> dict[str, tuple[int, int]]:
    """Return on each dataset at how many limits ours is no worse, and of how many that count."""
    found = {}
    for name in OF_TEXT:
        limits = [row["limit"] for row in _limits()["pooled"] if row["dataset"] == name and counts(row)]
        judged = [one for one in (compare(name, limit, sweep) for limit in limits) if one is not None]
        if judged:
            found[name] = sum(one.no_worse for one in judged), len(judged)
    return found


def no_worse_text(sweep: Sweep | None = None) -> str:
    """Return where ours is no worse at every limit that counts, and how often it is elsewhere."""
    found = by_dataset(sweep)
    always = [TITLES[name] for name, (good, every) in found.items() if good == every]
    others = [
        f"on {TITLES[name]} at {good} of {every}" for name, (good, every) in found.items() if good < every
    ]
    where = ", ".join(always) or "no dataset"
    first = f"Within one standard error, ours is no worse at every limit that counts on {where}"
    rest = f"; {', '.join(others)}" if others else ""
    return f"{first} ({len(always)} of {len(found)}){rest}."


def mean_of(dataset: str, column: str, limit: float | None) -> float:
    """Return the mean of a column over splits."""
    values: Array = np.array([run[column] for run in runs_of(dataset, limit)])
    return float(values.mean())
