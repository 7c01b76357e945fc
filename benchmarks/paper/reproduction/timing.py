"""Seconds of an epoch: by the number of rows, and by the dimension of S."""

import json
from functools import cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks._figures import house_style
from benchmarks._protocol import Array, published
from benchmarks._record import RESULTS
from benchmarks.paper.reproduction._draw import PAGE, THEIRS, look
from benchmarks.paper.reproduction.estimation import CONDITIONAL, JOINT, log_slope
from benchmarks.speed.highdim import summary as highdim_summary

GRID = look("Reg-GDP")["color"]
TOLD = "#6E6E6E"  # words about what is drawn in THEIRS, dark enough to read
# What the text prints (section 5.4): seconds of an epoch at n = 20,000, and their ratio.
TEXT_SECONDS = {"FRHSIC": 2.82, "FREM": 100.7, "Reg-GDP": 1.69}
TEXT_RATIO = 36.0
# Figure highdim: FREM is "consistently 2-3x slower" at every dimension.
TEXT_HIGHDIM = (2.0, 3.0)


@cache
def _timed() -> dict[int, dict[str, dict[str, Any]]]:
    found = json.loads((RESULTS / "runtime.json").read_text())["epoch"]
    return {int(key.rpartition(" ")[2]): cell for key, cell in found.items()}


@cache
def _published_times() -> dict[str, dict[int, list[float]]]:
    found: dict[str, dict[int, list[float]]] = {}
    for row in published("runtime"):
        found.setdefault(row["method"], {}).setdefault(int(row["n"]), []).append(float(row["seconds"]))
    return found


def _times(name: str) -> Array:
    return np.array([cell[name]["seconds"] for cell in _timed().values()])


def _published_means(name: str) -> Array:
    return np.array([np.mean(values) for values in _published_times()[name].values()])


# A colour for each method: dashed as the published script computes it, full as it is here.
_TIMED = (
    ("FREM, loop", "FREM, loop over 256 anchors", CONDITIONAL, "s", "--"),
    ("FREM", "FREM, one matrix product", CONDITIONAL, "s", "-"),
    ("FRHSIC, as written", "FRHSIC, formula as written", JOINT, "o", "--"),
    ("FRHSIC", "FRHSIC, fused", JOINT, "o", "-"),
    ("Reg-GDP, loop", "Reg-GDP, loop over 30 points", GRID, "^", "--"),
    ("Reg-GDP", "Reg-GDP, vectorised", GRID, "^", "-"),
)


def runtime() -> Figure:
    """Draw seconds of an epoch against n, and how many times those of FRHSIC FREM takes."""
    sizes = list(_timed())
    with house_style():
        figure = Figure(figsize=(PAGE, 3.3))
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        for name, label, colour, marker, style in _TIMED:
            left.loglog(sizes, _times(name), style, color=colour, marker=marker, ms=3, label=label)
        left.loglog(sizes, _times("Unfair"), color="#000000", label="no penalty")
        for name in _published_times():
            marker = look("FRHSIC-published" if name == "FRHSIC" else name)["marker"]
            left.loglog(
                list(_published_times()[name]), _published_means(name), marker, color=THEIRS, mfc="none",
                ms=5, label="published seconds" if name == "FRHSIC" else None,
            )  # fmt: skip
        left.set_ylabel("seconds for an epoch, batches of 256")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        for one, other, style, label, side in (
            ("FREM, loop", "FRHSIC, as written", "--", "ours, as the script computes", -1),
            ("FREM", "FRHSIC", "-", "ours, both without loops", 1),
        ):
            values = _times(one) / _times(other)
            right.semilogx(sizes, values, style, color=CONDITIONAL, marker="s")
            _beside(right, sizes[3], values[3], label, CONDITIONAL, side)
        if _published_times():
            values = _published_means("FREM") / _published_means("FRHSIC")
            right.semilogx(list(_published_times()["FREM"]), values, color=THEIRS, marker="s", mfc="none")
            _beside(right, sizes[2], values[2], "published file", TOLD, 1)
        right.plot(sizes[-1], TEXT_RATIO, "x", color=THEIRS, ms=6, mew=1.5)
        _beside(right, sizes[-1], TEXT_RATIO, "text", TOLD, -1)
        right.set(ylim=(0, None), ylabel="FREM / FRHSIC, seconds of an epoch")
        for axis in (left, right):
            axis.set_xlabel("rows n")
            axis.set_xticks(sizes, [f"{n / 1000:g}k" for n in sizes])
            axis.minorticks_off()
    return figure


def _beside(axis: Axes, x: float, y: float, text: str, colour: str, side: int) -> None:
    """Write above (1) or below (-1) a point."""
    axis.annotate(
        text, (x, y), (0, 5 * side), textcoords="offset points", ha="center",
        va="bottom" if side > 0 else "top", color=colour, fontsize=7,
    )  # fmt: skip


def runtime_numbers() -> dict[str, float]:
    """Return ratios and exponents of the times at the largest n: the text's, the file's and ours."""
    sizes = np.array(list(_timed()), dtype=float)
    last = _timed()[int(sizes[-1])]
    file = {name: _published_means(name) for name in _published_times()}
    over = file["FREM"] / file["FRHSIC"]
    first = _published_times()["FRHSIC"][int(sizes[0])]
    numbers = {
        "text_ratio": TEXT_SECONDS["FREM"] / TEXT_SECONDS["FRHSIC"],
        "file_ratio": over[-1],
        "file_ratio_low": over[1:-1].min(),
        "file_ratio_high": over[1:-1].max(),
        "file_first_over_rest": first[0] / float(np.mean(first[1:])),
        "file_exponent_frem": log_slope(sizes, file["FREM"]),
        "exponent_frem_loop": log_slope(sizes, _times("FREM, loop")),
        "ratio_as_script": last["FREM, loop"]["seconds"] / last["FRHSIC, as written"]["seconds"],
        "ratio_products": last["FREM"]["seconds"] / last["FRHSIC"]["seconds"],
        "ratio_loop_to_fused": last["FREM, loop"]["seconds"] / last["FRHSIC"]["seconds"],
        "frem_loop_over_product": last["FREM, loop"]["seconds"] / last["FREM"]["seconds"],
        "reg_gdp_over_frhsic": last["Reg-GDP"]["seconds"] / last["FRHSIC"]["seconds"],
        "reg_gdp_over_frhsic_text": TEXT_SECONDS["Reg-GDP"] / TEXT_SECONDS["FRHSIC"],
    }
    for name, told in TEXT_SECONDS.items():
        key = name.lower().replace("-", "_")
        numbers |= {f"text_seconds_{key}": told, f"file_seconds_{key}": file[name][-1]}
    for name in ("Unfair", "FRHSIC", "FRHSIC, as written", "FREM", "FREM, loop", "Reg-GDP", "Reg-GDP, loop"):
        key = name.lower().replace(", ", "_").replace("-", "_").replace(" ", "_")
        numbers |= {
            f"seconds_{key}": last[name]["seconds"],
            f"over_unfair_{key}": last[name]["over Unfair"],
        }
    return {key: float(value) for key, value in numbers.items()}


# As it is here with 32 anchors, as the paper has them, and as the script computes it.
_BY_DIMENSION = (
    ("FREM, loop over 32 anchors", "FREM, loop over 32 anchors", CONDITIONAL, "s", "--"),
    ("FREM, 32 anchors", "FREM, 32 anchors at once", CONDITIONAL, "s", "-"),
    ("FRHSIC, as written", "FRHSIC, formula as written", JOINT, "o", "--"),
    ("FRHSIC", "FRHSIC, fused", JOINT, "o", "-"),
    ("Unfair", "no penalty", "#000000", "", "-"),
)


def _by_dimension(method: str, value: str) -> tuple[list[int], list[float]]:
    rows = [row for row in highdim_summary() if row["method"] == method and value in row]
    return [row["dimension"] for row in rows], [row[value] for row in rows]


def highdim() -> Figure:
    """Draw seconds of an epoch by the dimension of S, and how many times those of FRHSIC FREM takes."""
    with house_style():
        figure = Figure(figsize=(PAGE, 2.9))
        left, right = figure.subplots(1, 2)
        for name, label, colour, marker, style in _BY_DIMENSION:
            left.semilogy(*_by_dimension(name, "seconds"), style, color=colour, marker=marker, label=label)
            if name.startswith("FREM"):
                right.plot(*_by_dimension(name, "over_frhsic"), style, color=colour, marker=marker)
        for name, marker in (("FRHSIC, as written", "o"), ("FREM, loop over 32 anchors", "s")):
            left.semilogy(
                *_by_dimension(name, "seconds_published"), marker, color=THEIRS, mfc="none", ms=5,
                label="published" if marker == "o" else None,
            )  # fmt: skip
        right.plot(
            *_by_dimension("FREM, loop over 32 anchors", "over_frhsic_published"), color=THEIRS, marker="s",
            mfc="none",
        )  # fmt: skip
        right.axhspan(*TEXT_HIGHDIM, color=THEIRS, alpha=0.25, lw=0)
        right.text(3.5, sum(TEXT_HIGHDIM) / 2, "the text", ha="center", va="center", fontsize=7, color=TOLD)
        left.set_ylabel("seconds for an epoch, 2,000 rows")
        right.set(ylabel="FREM / FRHSIC, seconds of an epoch", ylim=(0, None))
        for axis in (left, right):
            axis.set(xlabel="dimension of S", xticks=range(1, 6))
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def highdim_numbers() -> dict[str, float]:
    """Return the ratios of FREM to FRHSIC by dimension, in the published file and here."""
    numbers: dict[str, float] = {}
    for key, method, value in (
        ("file", "FREM, loop over 32 anchors", "over_frhsic_published"),
        ("as_script", "FREM, loop over 32 anchors", "over_frhsic"),
        ("products", "FREM, 32 anchors", "over_frhsic"),
        ("frhsic_over_first", "FRHSIC", "over_first"),
        ("frem_over_first", "FREM, 32 anchors", "over_first"),
    ):
        _, values = _by_dimension(method, value)
        numbers |= {
            f"{key}_first": values[0],
            f"{key}_low": min(values[1:]),
            f"{key}_high": max(values[1:]),
        }
    return numbers
