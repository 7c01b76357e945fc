"""Draw the pictures of these pages: python docs/reference/datasets/_figures.py (needs the data)."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from frhsic import datasets

mpl.use("Agg")
BLUE, ORANGE = "#2b5c8a", "#c8642b"


def conditional_mean(s, y, edges):
    """Mean of y in each bin of s with its 95 % band; a gap where a bin has fewer than 20 rows."""
    place = np.clip(np.digitize(s, edges) - 1, 0, len(edges) - 2)
    rows = []
    for j in range(len(edges) - 1):
        inside = y[place == j]
        if len(inside) >= 20:
            half = 1.96 * inside.std(ddof=1) / np.sqrt(len(inside))
            rows.append((s[place == j].mean(), inside.mean(), half))
        else:
            rows.append((np.nan, np.nan, np.nan))
    return np.array(rows).T


def draw(name, bunch, s_label, y_label, edges):
    s, y = bunch.sensitive_features[:, 0], bunch.target
    fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.0), layout="constrained")
    left.hist(s, bins=edges, color=BLUE, edgecolor="white", linewidth=0.4)
    left.set(xlabel=s_label, ylabel="rows", title=f"S, {len(s):,} rows")
    left.yaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:,.0f}"))
    at, mean, half = conditional_mean(s, y, edges)
    right.fill_between(at, mean - half, mean + half, color=ORANGE, alpha=0.25, linewidth=0)
    right.errorbar(at, mean, yerr=half, fmt="none", ecolor=ORANGE, elinewidth=0.8, alpha=0.5)
    right.plot(at, mean, color=ORANGE, marker="o", markersize=2.5, linewidth=1.2)
    right.axhline(y.mean(), color="0.45", linewidth=0.9, linestyle="--")
    right.set(
        xlabel=s_label,
        ylabel=y_label,
        title=f"E[y | S] by bins, 95 % band (all rows: {y.mean():.3f})",
        ylim=(0, None),
    )
    right.set_xlim(left.get_xlim())
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(10)
    fig.savefig(Path(__file__).with_name(f"{name}.png"), dpi=110)
    plt.close(fig)


def main():
    years = np.arange(16, 97, 3)
    draw("adult", datasets.fetch_adult(as_frame=False), "age", "share above 50,000 dollars", years)
    draw(
        "acs_income",
        datasets.fetch_acs_income(as_frame=False),
        "age (AGEP)",
        "share above 50,000 dollars",
        years,
    )
    draw(
        "meps",
        datasets.fetch_meps(as_frame=False),
        "age (AGE)",
        "share with ten or more uses",
        np.arange(0, 88, 3),
    )
    draw("compas", datasets.fetch_compas(as_frame=False), "age", "share charged again", np.arange(18, 99, 3))
    tenths = np.linspace(0, 1, 21)
    crime = datasets.fetch_crime(as_frame=False)
    draw("crime", crime, "racepctblack (scaled)", "violent crimes per head (scaled)", tenths)
    homes = datasets.fetch_crime(sensitive="householdsize", as_frame=False)
    draw("crime_householdsize", homes, "householdsize (scaled)", "violent crimes per head (scaled)", tenths)


if __name__ == "__main__":
    main()
