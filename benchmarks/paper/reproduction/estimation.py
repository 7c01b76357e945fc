"""The two routes and their rates: dependence estimated jointly, or slice by slice."""

import json
import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from scipy import stats

from benchmarks._figures import house_style
from benchmarks._protocol import Array, published
from benchmarks._record import RESULTS
from benchmarks.paper.reproduction._draw import PAGE, look
from benchmarks.statistics.convergence import slope
from frhsic import EIPM, HSIC

JOINT, CONDITIONAL = look("FRHSIC-published")["color"], look("FREM")["color"]
# The windows on S that are drawn, their width, and the widths that EIPM is told with.
WINDOWS, WIDTH, WIDTHS = (0.15, 0.5, 0.85), 0.06, (0.03, 0.06, 0.12, 0.24)


def _pair(n: int = 160) -> tuple[Array, Array]:
    """Return Z and S of the picture: a wave in the mean, and a spread that grows with S."""
    rng = np.random.default_rng(8)
    s = rng.uniform(size=n)
    return 0.8 * np.sin(2.2 * math.pi * s) + (0.25 + 0.35 * s) * rng.standard_normal(n), s


def routes() -> Figure:
    """Draw the two routes on one small sample: slices of S with their local laws, and pairs against pairs."""
    z, s = _pair()
    z_torch, s_torch = torch.from_numpy(z), torch.from_numpy(s)
    shuffled = np.random.default_rng(1).permutation(s)
    hsic = HSIC()
    values = [hsic(z_torch, torch.from_numpy(one)).item() for one in (s, shuffled)]
    by_width = [EIPM(bandwidth_s=width, range_s=1.0)(z_torch, s_torch).item() for width in WIDTHS]
    heights = np.linspace(z.min() - 0.4, z.max() + 0.4, 200)
    with house_style():
        figure = Figure(figsize=(PAGE, 2.75), layout=ConstrainedLayoutEngine(rect=(0, 0.08, 1, 0.84)))
        axes = figure.subplots(1, 4, sharey=True, width_ratios=(1.25, 0.75, 1, 1))
        cloud, laws, joint, product = axes
        for axis in axes:
            axis.grid(False)
        shades = [stats.norm.pdf(s, at, WIDTH) for at in WINDOWS]
        greens = ("#66C7AB", CONDITIONAL, "#004D38")
        cloud.scatter(s, z, s=7, color="#BBBBBB", lw=0)
        fine = np.linspace(0, 1, 400)
        for at, weight, colour in zip(WINDOWS, shades, greens, strict=True):
            window = np.exp(-((fine - at) ** 2) / (2 * WIDTH**2))
            cloud.fill_between(
                fine, heights[0], heights[0] + 0.6 * window, color=colour, alpha=0.35, lw=0, zorder=0
            )
            near = weight > 0.1 * stats.norm.pdf(0, 0, WIDTH)
            cloud.scatter(s[near], z[near], s=9, color=colour, lw=0)
            law = stats.gaussian_kde(z, weights=weight)(heights)
            laws.plot(law, heights, color=colour, label=f"s = {at:g}")
        laws.plot(stats.gaussian_kde(z)(heights), heights, "--", color="#000000", label="all rows")
        laws.legend(loc="lower right", handlelength=1.3, borderaxespad=0, fontsize=6.5)
        laws.set(xlabel="density", xticks=[], xlim=(0, None))
        cloud.set(xlabel="S", ylabel="Z")
        cloud.set_title("P(Z | S = s), in windows on S", loc="left")
        laws.set_title("against P(Z)", loc="left")
        for axis, places, value, title, colour in (
            (joint, s, values[0], "the pairs, P(Z, S)", JOINT),
            (product, shuffled, values[1], "S shuffled: P(Z) P(S)", "#000000"),
        ):
            axis.scatter(places, z, s=7, color=colour, lw=0, alpha=0.8)
            axis.set_title(title, loc="left")
            axis.set(xlabel="S", xticks=[0, 0.5, 1])
            axis.text(0.5, 0.02, f"HSIC = {value:.4f}", ha="center", color=colour, transform=axis.transAxes)
        cloud.set(xticks=[0, 0.5, 1], ylim=(heights[0], heights[-1]))
        told = ", ".join(f"{value:.2f}" for value in by_width)
        for x, title, colour, foot in (
            (0.01, "Conditional route", CONDITIONAL, f"EIPM = {told} with windows of width {_list(WIDTHS)}"),
            (0.54, "Joint route", JOINT, "the kernels' scales stay as n grows: no window has to shrink"),
        ):
            figure.text(x, 0.98, title, fontsize=9, fontweight="bold", color=colour, va="top")
            figure.text(x, 0.02, foot, fontsize=6.8)
    return figure


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


@cache
def _converged() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / "convergence.json").read_text())
    return found


def _measured(estimator: str, rho: float = 0.5) -> dict[str, Any]:
    rows = _converged()["results"]
    row: dict[str, Any] = next(row for row in rows if (row["rho"], row["estimator"]) == (rho, estimator))
    return row


def own_limit_error() -> Array:
    """Return the root mean square error of EIPM with fixed smoothing about its own limit, by n."""
    row = _measured("EIPM fixed")
    away = np.array(row["mean_error"]) + row["population"] - _converged()["eipm_limit_fixed"]
    spread = np.array(row["standard_error_of_mean"]) * math.sqrt(_converged()["replications"])
    return np.sqrt(away**2 + spread**2)


@cache
def _published_errors() -> dict[str, tuple[Array, Array, float]]:
    """Return sizes, errors (size by replication) and the n = 20,000 proxy of each published estimator."""
    found: dict[str, dict[int, list[float]]] = {}
    proxy = {}
    for row in published("convergence"):
        found.setdefault(row["estimator"], {}).setdefault(int(row["n"]), []).append(float(row["abs_error"]))
        proxy[row["estimator"]] = float(row["true_value"])
    return {
        name: (np.array(list(by_n), dtype=float), np.array(list(by_n.values())), proxy[name])
        for name, by_n in found.items()
    }


def convergence() -> Figure:
    """Draw errors against n: as published, about an estimate from n = 20,000, and about the true values."""
    with house_style():
        figure = Figure(figsize=(PAGE, 3.0))
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        for name, (sizes, errors, proxy) in _published_errors().items():
            fitted = slope(sizes, errors)
            colour, marker = (JOINT, "o") if name == "HSIC" else (CONDITIONAL, "s")
            left.loglog(
                sizes, errors.mean(axis=1), color=colour, marker=marker, mfc="white",
                label=f"{name}, about {proxy:.4f}\n{_slope(fitted)}",
            )  # fmt: skip
        left.set_title("Published: error about the estimate at n = 20,000", loc="left")
        lines = (
            ("HSIC", "HSIC", JOINT, "o", "-"),
            ("EIPM shrinking", "EIPM, window 1.06 n$^{-1/5}$", "#56B48F", "D", "-"),
            ("EIPM fixed", "EIPM, window 1", CONDITIONAL, "s", "-"),
        )
        for name, label, colour, marker, style in lines:
            row = _measured(name)
            fitted = (row["slope"], *row["slope_95"])
            right.loglog(
                row["n"], row["mean_absolute_error"], style, color=colour, marker=marker,
                label=f"{label}, about {row['population']:.4f}\n{_slope(fitted)}",
            )  # fmt: skip
        sizes = np.array(_measured("EIPM fixed")["n"], dtype=float)
        limit = _converged()["eipm_limit_fixed"]
        right.loglog(
            sizes, own_limit_error(), ":", color=CONDITIONAL, marker="s", mfc="white",
            label=f"the same about its own limit {limit:.4f}\n"
            f"(root mean square), slope {own_limit_slope():.2f}",
        )  # fmt: skip
        right.set_title("Ours: error about the population value", loc="left")
        left.set_ylabel("mean absolute error")
        for axis in (left, right):
            axis.set_xlabel("sample size n")
            if axis.lines:  # none on the left where the published files are not at hand
                axis.legend(loc="lower left", labelspacing=0.6)
        left.set_ylim(4e-6, 0.2)  # room for the legends
    return figure


def own_limit_slope() -> float:
    """Return the log-log slope of that error."""
    return log_slope(_measured("EIPM fixed")["n"], own_limit_error())


def _slope(fitted: tuple[float, ...]) -> str:
    return "slope {:.2f} [{:.2f}, {:.2f}]".format(*fitted)


def log_slope(sizes: Any, values: Any) -> float:
    """Return the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def convergence_numbers() -> dict[str, float]:
    """Return slopes with their intervals, population values and what the published file has instead."""
    numbers: dict[str, float] = {
        "eipm_limit": _converged()["eipm_limit_fixed"],
        "eipm_own_limit_slope": own_limit_slope(),
    }
    for key, name in (("hsic", "HSIC"), ("eipm_fixed", "EIPM fixed"), ("eipm_shrinking", "EIPM shrinking")):
        row = _measured(name)
        numbers |= {
            f"{key}_slope": row["slope"],
            f"{key}_slope_low": row["slope_95"][0],
            f"{key}_slope_high": row["slope_95"][1],
            f"{key}_population": row["population"],
            f"{key}_relative_error": row["mean_absolute_error"][-1] / row["population"],
        }
    null = _measured("HSIC", rho=0.0)
    numbers["hsic_slope_independent"] = null["slope"]
    for key, name in (("hsic", "HSIC"), ("eipm_fixed", "EIPM")):
        sizes, errors, proxy = _published_errors()[name]
        value, low, high = slope(sizes, errors)
        truth = _measured("HSIC" if key == "hsic" else "EIPM fixed")["population"]
        numbers |= {
            f"{key}_slope_published": value,
            f"{key}_slope_published_low": low,
            f"{key}_slope_published_high": high,
            f"{key}_proxy_published": proxy,
            f"{key}_proxy_off": proxy / truth - 1,
        }
    return numbers
