"""What HSIC bounds and decides: the bound on the gap, lambda_S by bandwidth, the lambda a test chooses."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks._figures import house_style
from benchmarks._protocol import published
from benchmarks._record import RESULTS
from benchmarks._simulate import BLUE, GREEN
from benchmarks.paper import bounds, selection
from benchmarks.paper.reproduction._draw import PAGE, THEIRS
from benchmarks.paper.reproduction.estimation import JOINT, log_slope

TITLES = {
    "adult": "Adult, S = age",
    "crime-householdsize": "Crime, S = household size",
    "crime": "Crime, S = racial composition",
}
ALPHA = selection.ALPHA
Value = TypeVar("Value")


@cache
def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def _sorted(kind: str, dataset: str, key: str) -> list[dict[str, Any]]:
    rows = [row for row in _result("bounds.json")[kind] if row["dataset"] == dataset]
    return sorted(rows, key=lambda row: row[key])


def bound() -> Figure:
    """Draw both sides of the bound against lambda, with what any head can have and what the worst one has."""
    lines = (
        ("rhs", "the bound, HSIC / $\\lambda_S$", JOINT, "s", "--"),
        ("ceiling", "largest variance of any head, whatever S", "#000000", "", "-"),
        ("worst_at_m_s", "worst head along S", BLUE, "o", "-"),
        ("null_95_at_m_s", "the same with S permuted, 95 % quantile", BLUE, "", ":"),
        ("lhs_max", "largest of 64 heads k(z, ·), as the script", GREEN, "^", "-"),
    )
    with house_style():
        figure = Figure(figsize=(PAGE, 3.2))
        axes = figure.subplots(1, len(TITLES), sharex=True, sharey=True)
        for axis, (name, title) in zip(axes, TITLES.items(), strict=True):
            rows = _sorted("tightness", name, "lam")
            lams = [row["lam"] for row in rows]
            for key, marker in (("published_rhs", "s"), ("published_lhs_max", "^")):
                if key in rows[0]:
                    axis.loglog(
                        lams, [row[key] for row in rows], ":", color=THEIRS, marker=marker, mfc="none", ms=6,
                        label="published" if marker == "s" else None,
                    )  # fmt: skip
            for key, label, colour, marker, style in lines:
                axis.loglog(
                    lams, [row[key] for row in rows], style, color=colour, marker=marker, ms=3.5, label=label
                )
            axis.set_title(title)
            axis.set_xlabel("λ in training")
        axes[0].set_ylabel("mean-square gap, heads of norm one")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def lambda_sigma() -> Figure:
    """Draw lambda_S against the bandwidth: in double and in single precision, and the cut itself."""
    lines = (
        ("lambda_s_double", "double precision", BLUE, "o", "-"),
        ("lambda_s_single", "single precision, as the script", JOINT, "s", "-"),
        ("cut_double", "$10^{-6}$ of the largest eigenvalue: the cut", "#000000", "", "--"),
        ("published", "published", THEIRS, "x", ":"),
    )
    with house_style():
        figure = Figure(figsize=(PAGE, 2.75))
        axes = figure.subplots(1, len(TITLES), sharex=True, sharey=True)
        for axis, (name, title) in zip(axes, TITLES.items(), strict=True):
            rows = _sorted("lambda_s", name, "sigma")
            sigmas = [row["sigma"] for row in rows]
            place = 0
            for key, label, colour, marker, style in lines:
                if key not in rows[0]:
                    continue
                values = [row[key] for row in rows]
                axis.loglog(
                    sigmas,
                    values,
                    style,
                    color=colour,
                    marker=marker,
                    label=label,
                    zorder=2 + (key == "published"),
                )
                axis.text(
                    0.04, 0.295 - 0.085 * place, f"slope {log_slope(sigmas, values):.2f}", color=colour,
                    fontsize=7, transform=axis.transAxes,
                )  # fmt: skip
                place += 1
            axis.set_title(title)
            axis.set_xlabel("bandwidth σ on S in [0, 1]")
        axes[0].set_ylabel("$\\lambda_S$, smallest above the cut")
        axes[0].set_ylim(3e-11, None)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def bound_numbers() -> dict[str, float]:
    """Return how far the bound is from what it bounds, in the published file and here."""
    rows = _result("bounds.json")["tightness"]
    file = [row for row in rows if "published_rhs" in row]
    over = [row["published_rhs"] / row["published_lhs_max"] for row in file]
    at_one = {row["dataset"]: row for row in rows if row["lam"] == bounds.PICTURED}
    rises = [_sorted("tightness", name, "lam")[-2:] for name in bounds.PUBLISHED_NAMES]
    return {
        "file_rhs_low": min(row["published_rhs"] for row in file),
        "file_rhs_high": max(row["published_rhs"] for row in file),
        "file_over_low": min(over),
        "file_over_high": max(over),
        "file_hsic_rises": sum(b["published_hsic"] > a["published_hsic"] for a, b in rises),
        "rows": len(rows),
        "hsic_rises": sum(b["hsic"] > a["hsic"] for a, b in rises),
        "below": sum(row["rhs"] < row["lhs_max"] for row in rows),
        "rhs_low": min(row["rhs"] for row in rows),
        "rhs_high": max(row["rhs"] for row in rows),
        "vacuous": sum(row["rhs"] > row["ceiling"] for row in rows),
        "vacuous_small": sum(row["bound_small"] > row["ceiling"] for row in rows),
        "ceiling_high": max(row["ceiling"] for row in rows),
        "over_worst_low": min(row["rhs"] / row["worst_at_m_s"] for row in rows),
        "over_worst_high": max(row["rhs"] / row["worst_at_m_s"] for row in rows),
        "rhs_adult": at_one["adult"]["rhs"],
        "ceiling_adult": at_one["adult"]["ceiling"],
        "worst_adult": at_one["adult"]["worst_at_m_s"],
        "null_adult": at_one["adult"]["null_95_at_m_s"],
        "anchors_below_worst": sum(row["lhs_max"] < row["worst_at_m_s"] for row in rows),
        "agree_published": max(
            abs(row["rhs"] / row["published_rhs"] - 1) for row in file if row["lam"] <= bounds.PICTURED
        ),
    }


def lambda_sigma_numbers() -> dict[str, float]:
    """Return slopes, local slopes of the published values, and how near the cut they are."""
    numbers: dict[str, float] = {}
    values, local, near, away = [], [], [], []
    for key, name in (("adult", "adult"), ("crime", "crime-householdsize")):
        rows = _sorted("lambda_s", name, "sigma")
        sigmas = np.array([row["sigma"] for row in rows])
        told = np.array([row["published"] for row in rows])
        local += list(np.diff(np.log(told)) / np.diff(np.log(sigmas)))
        values += list(told)
        # Where the published value is the cut-off itself.
        for row in rows:
            if row["published"] / row["cut_double"] < 1.05:
                near.append(row["published"] / row["cut_double"])
                away.append(row["lambda_s_double"] / row["published"])
        numbers |= {
            f"{key}_published": log_slope(sigmas, told),
            **{
                f"{key}_{one}": log_slope(sigmas, [row[f"lambda_s_{one}"] for row in rows])
                for one in ("double", "single")
            },
            f"{key}_double_above": rows[-1]["m_double"],
            f"{key}_single_above": rows[-1]["m_single"],
            f"{key}_cut": log_slope(sigmas[-2:], [row["cut_double"] for row in rows[-2:]]),
        }
    return numbers | {
        "local_steepest": float(min(local)),
        "local_flattest": float(max(local)),
        "file_low": float(min(values)),
        "file_high": float(max(values)),
        "at_the_cut": len(near),
        "cut_low": min(near),
        "cut_high": max(near),
        "double_over_low": min(away),
        "double_over_high": max(away),
    }


# ---- the lambda that a test chooses ----------------------------------------------------------------------

CHOICES = {
    "published threshold": "script's threshold",
    "gamma, true moments": "gamma, null moments",
    "permutation": "permutation",
}
_MARKERS = ("o", "s", "^")
_NOWHERE = 3_000.0  # where "none" stands


def _chosen(name: str) -> list[list[dict[str, Any]]]:
    """Return our runs of a dataset: for each repeat, in order of lambda."""
    runs = [run for run in _result("selection.json")["runs"] if run["dataset"] == name]
    runs.sort(key=lambda run: run["lam"])
    return [
        [run for run in runs if run["repeat"] == repeat] for repeat in sorted({r["repeat"] for r in runs})
    ]


@cache
def _published_choices(name: str) -> list[list[dict[str, str]]]:
    """Return the published rows of a dataset: for each repeat, in order of lambda."""
    rows = [row for row in published("lambda_selection") if row["dataset"] == selection.PUBLISHED_NAMES[name]]
    return [
        [row for row in rows if row["repeat"] == repeat] for repeat in sorted({r["repeat"] for r in rows})
    ]


def lambda_selection() -> Figure:
    """Draw n HSIC against its threshold, p-values of tests that keep their level, and the chosen lambda."""
    with house_style():
        figure = Figure(figsize=(PAGE, 5.4))
        axes = figure.subplots(3, 3, sharex=True, sharey="row", height_ratios=(1.2, 1, 0.75))
        for column, (name, title) in enumerate(selection.TITLES.items()):
            _draw_statistic(axes[0, column], name)
            _draw_pvalues(axes[1, column], name)
            _draw_choices(axes[2, column], name)
            if name == "crime":
                title = "Crime, S = racial composition\n(grey: household size, as published)"
            axes[0, column].set_title(title)
            axes[2, column].set_xlabel("λ")
        axes[0, 0].set_ylabel(f"n · HSIC of Z and S,\nat most {selection.FEW:,} rows")
        axes[1, 0].set_ylabel("p-value, the same rows")
        axes[2, 0].set_yticks(range(4), ["published file", *CHOICES.values()])
        axes[2, 0].set_ylim(3.5, -0.5)
        axes[0, 0].set_xlim(6e-3, 8e3)
        axes[0, 0].set_xticks([1e-2, 1, 1e2])
        handles: dict[str, Any] = {}
        for axis in axes[:, 0]:
            handles |= {
                label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
            }
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3)
    return figure


def _draw_statistic(axis: Axes, name: str) -> None:
    ours = _chosen(name)
    n = ours[0][0]["few"]["n"]
    for repeat, found in enumerate(ours):
        lams = [run["lam"] for run in found]
        first = repeat == 0
        if _published_choices(name):
            values = [n * float(row["hsic_val"]) for row in _published_choices(name)[repeat]]
            axis.loglog(
                lams, values, color=THEIRS, lw=0.9, label="n · HSIC, published" if first else None, zorder=1
            )
        tests = [run["few"]["published"] for run in found]
        axis.loglog(
            lams, [n * test["hsic"] for test in tests], color=JOINT, marker=_MARKERS[repeat], ms=3, lw=0.9,
            label="n · HSIC, ours" if first else None,
        )  # fmt: skip
        axis.loglog(
            lams, [test["threshold"] for test in tests], "--", color="#000000", lw=0.8,
            label="the script's threshold for it" if first else None,
        )  # fmt: skip


def _draw_pvalues(axis: Axes, name: str) -> None:
    least = min(run["few"]["permutation"] for run in _result("selection.json")["runs"])
    for test, label, colour in (
        ("gamma", "gamma with the moments of the null", BLUE),
        ("permutation", f"permutation, aggregated (least possible: {least:g})", GREEN),
    ):
        for repeat, found in enumerate(_chosen(name)):
            values = [max(run["few"][test], 1e-4) for run in found]
            axis.loglog(
                [run["lam"] for run in found], values, color=colour, marker=_MARKERS[repeat], ms=3, lw=0.9,
                label=label if repeat == 0 else None,
            )  # fmt: skip
    axis.axhline(ALPHA, color="#000000", lw=0.8, ls=":", label=f"level {ALPHA:g}")
    axis.set_yticks([1e-4, 1e-3, 1e-2, 1e-1, 1], ["≤$10^{-4}$", "$10^{-3}$", "$10^{-2}$", "$10^{-1}$", "1"])


def _draw_choices(axis: Axes, name: str) -> None:
    choices = _result("selection.json")["choices"][name]
    for row, (rule, colour) in enumerate(
        zip(("published choice", *CHOICES), (THEIRS, "#000000", BLUE, GREEN), strict=True)
    ):
        for repeat, cell in enumerate(choices[rule].values()):
            axis.plot(
                cell["lam"] or _NOWHERE, row + 0.24 * (repeat - 1), _MARKERS[repeat], color=colour, ms=3.5,
                label=f"repeat {repeat + 1}" if row == 1 else None,
            )  # fmt: skip
    axis.axvline(1_200.0, color="#BBBBBB", lw=0.6)
    axis.text(_NOWHERE, -0.55, "none", ha="center", va="bottom", fontsize=6.5)
    axis.grid(True, axis="x")


def selection_numbers() -> dict[str, Any]:
    """Return what the published rule chose and at what price, in the published file and here."""
    numbers: dict[str, Any] = {}
    ordinary = 0  # HSIC itself is below a threshold that is for n HSIC
    total = 0
    for name in selection.TITLES:
        file, ours = _published_choices(name), _chosen(name)
        ordinary += sum(float(row["hsic_val"]) < float(row["threshold"]) for rows in file for row in rows)
        total += sum(map(len, file))
        choices = _result("selection.json")["choices"][name]
        numbers[f"{name}_file_lams"] = _told(rows[0]["selected_lambda"] for rows in file)
        for key, rule in zip(("script", "gamma", "permutation"), CHOICES, strict=True):
            numbers[f"{name}_{key}_lams"] = _told(
                "" if cell["lam"] is None else f"{cell['lam']:g}" for cell in choices[rule].values()
            )
        numbers[f"{name}_n"] = ours[0][0]["few"]["n"]
        measure = "mse" if "mse" in ours[0][0] else "accuracy"
        factor = 100.0 if measure == "mse" else 1.0  # the published files have 100 MSE
        for key, at in (("file_weakest", 0), ("file_strongest", -1)):
            numbers[f"{name}_{key}_perf"] = _told(f"{float(rows[at]['perf']):.3g}" for rows in file)
            numbers[f"{name}_{key}_gdp"] = _told(f"{float(rows[at]['gdp']):.2g}" for rows in file)
        numbers[f"{name}_file_chosen_perf"] = _told(
            next((f"{float(row['perf']):.3g}" for row in rows if row["lam"] == row["selected_lambda"]), "")
            for rows in file
        )
        numbers[f"{name}_script_chosen_perf"] = _told(
            "" if cell["lam"] is None else f"{factor * cell[measure]:.3g}"
            for cell in choices["published threshold"].values()
        )
        numbers[f"{name}_weakest_perf"] = _told(f"{factor * found[0][measure]:.3g}" for found in ours)
        numbers[f"{name}_strongest_gdp"] = _told(f"{found[-1]['gdp_published']:.2g}" for found in ours)
        numbers[f"{name}_same_choice"] = sum(
            a["lam"] == b["lam"]
            for a, b in zip(
                choices["published choice"].values(), choices["published threshold"].values(), strict=True
            )
        )
    pvalues = [run["few"]["permutation"] for run in _result("selection.json")["runs"]]
    numbers |= {
        "rows": total,
        "hsic_below_threshold": ordinary,
        "models": len(pvalues),
        "permutation_rejects": sum(value <= ALPHA for value in pvalues),
        "gamma_rejects": sum(run["few"]["gamma"] <= ALPHA for run in _result("selection.json")["runs"]),
        "script_rejects": sum(
            run["few"]["published"]["pvalue"] <= ALPHA for run in _result("selection.json")["runs"]
        ),
    }
    return numbers


def _told(values: Iterable[str]) -> str:
    return ", ".join(value.removesuffix(".0") or "none" for value in values)


def level_numbers(n: int = 200) -> dict[str, float]:
    """Return null rejections at level 0.05 by test and bandwidth (times the median), over all laws of S."""
    numbers: dict[str, float] = {}
    for test, found in _result("calibration.json")["level"].items():
        for factor in ("0.5", "1.0", "2.0", "family"):
            rates = [
                row[f"rate {ALPHA}"] for row in found["rows"] if (row["n"], row["factor"]) == (n, factor)
            ]
            if rates:
                key = f"{test}_{factor.replace('.', '')}"
                numbers |= {f"{key}_low": min(rates), f"{key}_high": max(rates)}
    return numbers
