"""Two sensitive attributes, and dependence among the positives: tab:multi_s, fig:multi_s and tab:eo."""

import json
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from matplotlib.figure import Figure

from benchmarks._figures import house_style
from benchmarks._record import RESULTS
from benchmarks.paper import opportunity, several
from benchmarks.paper.reproduction._draw import PAGE, THEIRS, look
from benchmarks.paper.reproduction._text import TITLES, markdown

Row = dict[str, Any]

_ATTRIBUTES = {"age": "age", "hours": "hours per week"}
_MEASURES = ("accuracy", "gdp_grid_age", "gdp_grid_hours")
_LOOKS = {
    "FRHSIC-Joint": ("Joint, one Gaussian", look("FRHSIC-published")["color"], "o"),
    "FRHSIC-Joint (product)": ("Joint, product of two", "#E69F00", "D"),
    "FRHSIC-Sum": ("Sum", "#0072B2", "^"),
}
_STRONG = 50.0  # the lambda that the text speaks of


def _with_first(rows: list[Row], file: str, keys: Iterable[str], measures: Iterable[str]) -> list[Row]:
    """Add to each row of a summary, as ``_first``, the split of the published seed, which is one run."""
    runs = json.loads((RESULTS / file).read_text())["runs"]
    keys, measures = tuple(keys), tuple(measures)
    first = {tuple(run[key] for key in keys): run for run in runs if run["split"] == 0}
    return [
        {**row, **{f"{name}_first": first[tuple(row[key] for key in keys)][name] for name in measures}}
        for row in rows
    ]


def _multi() -> list[Row]:
    return _with_first(several.summary(), "several.json", ("method", "lam", "epochs"), _MEASURES)


def _opportunity() -> list[Row]:
    rows = opportunity.summary()
    rows.sort(key=lambda row: (row["dataset"], row["lam"]))  # the order of methods stays
    keys = ("dataset", "method", "bandwidths", "lam", "epochs")
    return _with_first(rows, "opportunity.json", keys, opportunity.MEASURES)


def _ours(row: Row, name: str) -> list[str]:
    return [f"{row[f'{name}_first']:.3f}", f"{row[name]:.3f} ± {row[f'{name}_sd']:.3f}"]


def _theirs(row: Row, name: str, *sources: str) -> str:
    told = [f"{row[f'{name}_{source}']:.3f}" for source in sources if f"{name}_{source}" in row]
    return " / ".join(told)


def multi_table() -> str:
    """Return tab:multi_s: what the file has, what the paper prints, and ours."""
    header = ["method", "λ"]
    for title in ("accuracy", *(f"GDP, {one}" for one in _ATTRIBUTES.values())):
        header += [f"{title}: file / paper", "ours, same split", "ours"]
    rows = _multi()
    lines = []
    for row in rows:
        line = [row["method"], f"{row['lam']:g}"]
        for name in _MEASURES:
            line += [_theirs(row, name, "published", "paper"), *_ours(row, name)]
        lines.append(line)
    return markdown(header, lines) + (
        "\nAdult, 200 epochs, GDP of logits over a grid as published. The published numbers are one run on "
        f"one split. Ours are that split, and mean ± deviation over {_splits(rows)}.\n\n"
        "*Joint*: the script's product kernel, which is one isotropic Gaussian on both columns. "
        "*Joint (product)*: a product with a bandwidth for each column, as in the text.\n"
    )


def _splits(rows: list[Row]) -> str:
    counts = sorted({row["splits"] for row in rows})
    return f"{counts[0]} splits" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} splits"


def multi_figure() -> Figure:
    """Draw accuracy against the GDP of each attribute, by lambda, beside the published runs."""
    rows = _multi()
    with house_style():
        figure = Figure(figsize=(PAGE, 3.1))
        axes = figure.subplots(1, 2, sharey=True)
        for axis, (name, title) in zip(axes, _ATTRIBUTES.items(), strict=True):
            gdp = f"gdp_grid_{name}"
            for method, (label, colour, marker) in _LOOKS.items():
                line = sorted((row for row in rows if row["method"] == method), key=itemgetter(gdp))
                file = [row for row in line if f"{gdp}_published" in row]
                axis.plot(
                    [row[f"{gdp}_published"] for row in file],
                    [row["accuracy_published"] for row in file],
                    marker, color=THEIRS, mfc="none", ms=5.5, zorder=1,
                )  # fmt: skip
                axis.errorbar(
                    [row[gdp] for row in line],
                    [row["accuracy"] for row in line],
                    xerr=[row[f"{gdp}_sd"] for row in line],
                    yerr=[row["accuracy_sd"] for row in line],
                    color=colour, marker=marker, elinewidth=0.6, label=label,
                )  # fmt: skip
            (unfair,) = (row for row in rows if row["method"] == "Unfair")
            axis.plot(unfair[gdp], unfair["accuracy"], "*", color="#000000", ms=8, label="Unfair")
            axis.plot([], [], "o", color=THEIRS, mfc="none", ms=5.5, label="published run")
            axis.set_xlabel(f"GDP along {title} (logits, grid)")
        axes[0].set_ylabel("accuracy")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def multi_numbers() -> dict[str, float]:
    """Return the methods at lambda = 50 as printed, in the file and here, and how near the files are."""
    numbers: dict[str, float] = {}
    rows = {(row["method"], row["lam"]): row for row in _multi()}
    for key, method in zip(("joint", "product", "sum"), _LOOKS, strict=True):
        row = rows[method, _STRONG]
        for name in _MEASURES:
            for of in ("", "_sd", "_first", "_paper", "_published"):
                if f"{name}{of}" in row:
                    numbers[f"{key}_{name.replace('grid_', '')}{of}"] = row[f"{name}{of}"]
    gaps = [
        abs(row[f"{name}_paper"] - row[f"{name}_published"])
        for key, row in rows.items()
        if "accuracy_paper" in row and key != ("FRHSIC-Sum", _STRONG)
        for name in _MEASURES
    ]
    return {**numbers, "paper_file_gap_elsewhere": max(gaps)}


def eo_table() -> str:
    """Return tab:eo beside ours; the script's bandwidths, and the same for both."""
    rows = _opportunity()
    header = ["dataset", "λ", "penalty", "bandwidths"]
    for title in ("accuracy", "EO-GDP"):
        header += [f"{title}: paper", "ours, same split", "ours"]
    header += ["GDP: ours", "EO-GDP of probabilities: ours"]
    lines = []
    for row in rows:
        line = [TITLES[row["dataset"]], f"{row['lam']:g}", row["method"], row["bandwidths"]]
        for name in ("accuracy", "gdp_grid_positives"):
            line += [_theirs(row, name, "paper"), *_ours(row, name)]
        line += [_ours(row, name)[1] for name in ("gdp_grid", "gdp_population_positives")]
        lines.append(line)
    return markdown(header, lines, left=(0, 2)) + (
        "\n200 epochs, GDP of logits over a grid as published, EO-GDP among rows with y = 1. The printed "
        "numbers are one run on one split. Ours are that split, and mean ± deviation over "
        f"{_splits(rows)}.\n\n"
        "The script has median bandwidths for DP and bandwidths 1 for EO. The other two pairs are trained "
        "here, so that DP and EO can be compared with one thing changed.\n"
    )


def eo_numbers() -> dict[str, float]:
    """Return the ends of the grid by dataset, penalty and bandwidths: printed, the same split, all splits.

    ``left_out`` is the largest number of batches of a model without enough positives for a penalty.
    """
    runs = json.loads((RESULTS / "opportunity.json").read_text())["runs"]
    numbers: dict[str, float] = {
        f"{name}_left_out": max(run["left_out"] for run in runs if run["dataset"] == name)
        for name in opportunity.DATASETS
    }
    names = {"accuracy": "accuracy", "eo": "gdp_grid_positives", "gdp": "gdp_grid"}
    for row in _opportunity():
        if row["lam"] not in (0.0, opportunity.LAMS[0], _STRONG):
            continue
        parts = (row["dataset"], row["method"].lower(), row["bandwidths"], f"{row['lam']:g}".replace(".", ""))
        key = "_".join(part for part in parts if part)
        for short, name in names.items():
            for of in ("", "_sd", "_first", "_paper"):
                if f"{name}{of}" in row:
                    numbers[f"{key}_{short}{of}"] = row[f"{name}{of}"]
    return numbers
