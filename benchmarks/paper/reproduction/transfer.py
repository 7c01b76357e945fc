"""Fresh heads on frozen representations: tab:transfer_summary, fig:transfer, and heads at matched points."""

import statistics
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks._figures import house_style
from benchmarks._protocol import published
from benchmarks._record import read_rows
from benchmarks.paper import heads, sweep
from benchmarks.paper._methods import CONTENDERS
from benchmarks.paper.reproduction._draw import PAGE, look
from benchmarks.paper.reproduction._text import TITLES, markdown, plus_minus
from benchmarks.paper.reproduction.comparison import committed

# Only in the paper's text (tab:transfer_summary), at lambda 10 for Adult and 100 for Crime.
PAPER = {
    "adult": {"Unfair": 0.348, "FRHSIC-published": 0.244, "FREM": 0.247, "Reg-GDP": 0.058, "ADV": 0.252},
    "crime-householdsize": {"FRHSIC-published": 0.001, "FREM": 0.002, "Reg-GDP": 0.002, "ADV": 0.005},
}
_HEADS = {"Linear": "Linear", "MLP": "MLP", "Random Forest": "Forest", "SVM": "SVM"}


def rows(kind: str, dataset: str, method: str, strength: float | None = None) -> list[dict[str, str]]:
    """Return the measured heads of a representation, all splits."""
    return [
        row
        for row in read_rows(heads.TABLE)
        if (row["kind"], row["dataset"], row["method"], row["epochs"]) == (kind, dataset, method, "200")
        and (strength is None or method == "Unfair" or float(row["strength"]) == strength)
    ]


def spread_over_heads(found: Sequence[dict[str, str]], column: str) -> list[float]:
    """Return the deviation (of a population, as published) over the four heads of each split."""
    splits = sorted({row["split"] for row in found})
    return [statistics.pstdev(float(row[column]) for row in found if row["split"] == one) for one in splits]


def published_spread(dataset: str, method: str) -> float | None:
    """Return the deviation over heads of the published file."""
    name = "communities" if dataset.startswith("crime") else dataset
    values = [
        float(row["gdp"])
        for row in published("transfer")
        if (row["dataset"], row["method"]) == (name, CONTENDERS[method].published)
    ]
    return statistics.pstdev(values) if values else None


def table() -> str:
    """Return tab:transfer_summary beside ours."""
    body = []
    for dataset in heads.PUBLISHED:
        lams = heads.LAMS.get(dataset, (10.0,))
        for lam in lams:
            for method in CONTENDERS:
                found = rows("published", dataset, method, lam)
                if not found or (method == "Unfair" and lam != lams[0]):
                    continue
                paper = (
                    PAPER.get(dataset, {}).get(method)
                    if (dataset, lam) != (heads.PUBLISHED[1], 10.0)
                    else None
                )
                file = published_spread(dataset, method) if lam == 10.0 else None
                body.append(
                    [
                        TITLES[dataset],
                        "0" if method == "Unfair" else f"{lam:g}",
                        method,
                        "" if paper is None else f"{paper:.3f}",
                        "" if file is None else f"{file:.4f}",
                        f"{spread_over_heads(found, 'gdp_published')[0]:.4f}",
                        plus_minus(spread_over_heads(found, "gdp_published"), 4),
                        plus_minus(spread_over_heads(found, "gdp_grid"), 4),
                        plus_minus(spread_over_heads(found, "gdp_population"), 4),
                    ]
                )
    header = (
        "dataset",
        "lambda",
        "method",
        "paper",
        "published file",
        "ours, first split",
        "ours, all splits",
    )
    return markdown((*header, "on probabilities", "weighted by P_S"), body, left=(0, 2)) + (
        "\nEach number is the deviation of GDP over a linear head, an MLP, a forest and a support vector "
        "machine. The first four columns of numbers mix logits (linear, MLP) with labels (forest, SVM), as "
        "published. The last two are of probabilities, or predictions, for every head.\n"
    )


def mixture() -> dict[str, float]:
    """Return the deviation over heads on Unfair of Adult, logits beside labels and all probabilities."""
    found = rows("published", "adult", "Unfair")
    return {
        "mixture": statistics.mean(spread_over_heads(found, "gdp_published")),
        "probabilities": statistics.mean(spread_over_heads(found, "gdp_grid")),
    }


def differs() -> bool:
    """Return whether the paper's deviations and those of its own file differ by more than rounding."""
    pairs = [
        (told, published_spread(dataset, method))
        for dataset, of in PAPER.items()
        for method, told in of.items()
    ]
    return any(file is not None and abs(told - file) > 0.0015 for told, file in pairs)


def matched_table() -> str:
    """Return GDP of each fresh head at the matched point of each method, and of the worst of them."""
    body = []
    for dataset in sweep.DATASETS:
        for method in CONTENDERS:
            found = rows("matched", dataset, method)
            if not found:
                continue
            strength = float(found[0]["strength"])
            by_head = {
                head: [float(row["gdp_population"]) for row in found if row["head"] == head]
                for head in heads.KINDS["matched"]
            }
            own, worst = own_and_worst(dataset, method, strength)
            cells = [plus_minus(values, 3) for values in by_head.values()]
            body.append(
                [TITLES[dataset], method, f"{strength:g}", plus_minus(own, 3), *cells, plus_minus(worst, 3)]
            )
    header = ("dataset", "method", "lambda", "own head", *heads.KINDS["matched"], "worst")
    return markdown(header, body, left=(0, 1))


def own_and_worst(dataset: str, method: str, strength: float) -> tuple[list[float], list[float]]:
    """Return population-weighted GDP of the head of training and of the worst fresh one, split by split."""
    cell = committed().at(dataset, method, strength)
    found = [] if cell is None else [row for _, row in sorted(cell.rows.items()) if row["worst_head"]]
    return [float(row["gdp_population"]) for row in found], [float(row["worst_head"]) for row in found]


def found_again() -> dict[str, Any]:
    """Return GDP at matched points as a share of Unfair's: of the head of training, of the worst fresh one.

    Medians over datasets and methods, and the least of the worst with its place.
    """
    shares = {}
    for dataset in sweep.DATASETS:
        unfair = own_and_worst(dataset, "Unfair", 0.0)
        for method in CONTENDERS:
            found = rows("matched", dataset, method)
            if found and unfair[1] and method != "Unfair":
                pair = own_and_worst(dataset, method, float(found[0]["strength"]))
                shares[dataset, method] = [
                    statistics.mean(one) / statistics.mean(other)
                    for one, other in zip(pair, unfair, strict=True)
                ]
    least = min(shares, key=lambda place: shares[place][1])
    return {
        "cells": len(shares),
        "own": statistics.median(own for own, _ in shares.values()),
        "worst": statistics.median(worst for _, worst in shares.values()),
        "least": shares[least][1],
        "least_at": f"{least[1]} on {TITLES[least[0]]}",
    }


def figure() -> Figure:
    """Return fig:transfer: the published mixture of scales above, probabilities for every head below."""
    with house_style():
        drawn = Figure(figsize=(PAGE, 4.0))
        axes = drawn.subplots(2, len(heads.PUBLISHED), squeeze=False)
        for column, dataset in enumerate(heads.PUBLISHED):
            for line, (measure, kind) in enumerate(
                (("gdp_published", "published"), ("gdp_population", "matched"))
            ):
                _draw(axes[line, column], dataset, kind, measure)
            axes[0, column].set_title(TITLES[dataset])
        axes[0, 0].set_ylabel("GDP as published, λ = 10\n(logits and labels)")
        axes[1, 0].set_ylabel("GDP of scores,\nat matched points")
        shown = {
            label: handle
            for axis in axes.flat
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        order = [name for name in CONTENDERS if name in shown]
        drawn.legend([shown[name] for name in order], order, loc="outside lower center", ncols=5)
    return drawn


def _draw(axis: Any, dataset: str, kind: str, measure: str) -> None:
    names = heads.KINDS[kind]
    shown = [
        method for method in CONTENDERS if rows(kind, dataset, method, 10.0 if kind == "published" else None)
    ]
    for place, method in enumerate(shown):
        found = rows(kind, dataset, method, 10.0 if kind == "published" else None)
        values = [[float(row[measure]) for row in found if row["head"] == head] for head in names]
        shift = 0.8 * (place + 0.5) / len(shown) - 0.4
        style = look(method)
        axis.errorbar(
            [position + shift for position in range(len(names))],
            [statistics.mean(one) for one in values],
            [statistics.pstdev(one) for one in values],
            linestyle="none",
            elinewidth=0.7,
            **style,
        )
    if kind == "published":
        for place, method in enumerate(shown):
            shift = 0.8 * (place + 0.5) / len(shown) - 0.4
            name = "communities" if dataset.startswith("crime") else dataset
            theirs = {
                _HEADS[row["head"]]: float(row["gdp"])
                for row in published("transfer")
                if (row["dataset"], row["method"]) == (name, CONTENDERS[method].published)
            }
            axis.scatter(
                [position + shift for position, head in enumerate(names) if head in theirs],
                [theirs[head] for head in names if head in theirs],
                s=28,
                facecolors="none",
                edgecolors="#9A9A9A",
                linewidths=0.6,
                zorder=1,
            )
    axis.set_xticks(range(len(names)), names)
    axis.set_xlim(-0.5, len(names) - 0.5)
    axis.set_ylim(0.0, 1.05 * axis.get_ylim()[1])
    axis.grid(axis="x", visible=False)
