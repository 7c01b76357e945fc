"""Why: the curve with factors held equal, and the inputs that carry it, as plots and as figures."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frhsic._text import digits, join_words, percent, shown
from frhsic.auditing import Attribute, Column
from frhsic.inference import AdjustedCurve, Carriers, Proxies
from frhsic.report._figures import select_points, take_points
from frhsic.report._plots import CHANCE, MAIN, SECOND, draw_legend, escape_dollars, prepare_axes
from frhsic.report._svg import Picture, draw_picture

# Of stacked inputs; the last is that of all others together.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B0B0B0")
_STACKED = len(_COLOURS) - 1


def plot_adjusted(curve: AdjustedCurve, *, labels: Sequence[str] = (), ax: Axes | None = None) -> Axes:
    """Draw the score along s with factors held equal, its band, and the curve without factors.

    Parameters
    ----------
    curve : AdjustedCurve
    labels : sequence of str, default=()
        Of a categorical column, in the order of its codes.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> from frhsic.inference import adjusted_curve
    >>> rng = np.random.default_rng(0)
    >>> income, noise = rng.normal(size=(2, 300))
    >>> curve = adjusted_curve(income + noise, {"age": income}, given={"tenure": noise}, random_state=0)
    >>> plot_adjusted(curve).get_ylabel()
    'mean score less its average'
    """
    ax = prepare_axes(ax)
    x, what = np.array(curve.points), "mean score less its average"
    low, high, mean = (np.array(part) for part in (curve.low, curve.high, curve.mean))
    name, equal = shown(curve.attributes[0]), f"at equal {join_words([shown(f) for f in curve.factors], 3)}"
    ax.axhline(0.0, color=CHANCE, linewidth=0.8)
    band = f"{equal}, {percent(curve.confidence_level)} band"
    if labels:
        places = np.arange(len(x))
        ax.errorbar(places, mean, yerr=[mean - low, high - mean], fmt="o", color=MAIN, capsize=3, label=band)
        ax.plot(places, curve.unadjusted, "D", color=SECOND, fillstyle="none", label="all rows")
        ax.set_xticks(places, [escape_dollars(shown(labels[int(code)], 12)) for code in x])
    else:
        ax.fill_between(x, low, high, color=MAIN, alpha=0.22, linewidth=0, label=band)
        ax.plot(x, mean, color=MAIN, linewidth=2)
        ax.plot(x, curve.unadjusted, color=SECOND, linestyle="--", linewidth=1.6, label="all rows")
    ax.set(xlabel=escape_dollars(name), ylabel=what)
    draw_legend(ax)
    return ax


def plot_carriers(carried: Carriers, *, labels: Sequence[str] = (), ax: Axes | None = None) -> Axes:
    """Draw what each input adds to the curve of the score along s, stacked, and their sum.

    Parameters
    ----------
    carried : Carriers
    labels : sequence of str, default=()
        Of a categorical column, in the order of its codes.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> from frhsic.inference import carriers
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 40, 500)
    >>> phi = {"income": age / 10.0, "zip": rng.normal(size=500)}
    >>> plot_carriers(carriers(phi, {"age": age}, random_state=0)).get_xlabel()
    'age'
    """
    ax = prepare_axes(ax)
    order = np.argsort(carried.points)
    x = np.arange(len(order)) if labels else np.array(carried.points)[order]
    mass = np.array(carried.mass)
    parts = np.array(carried.parts)[:, order]
    sizes = np.abs(np.array(carried.parts)) @ mass
    largest = sorted(np.argsort(-sizes)[:_STACKED].tolist())
    rest = [j for j in range(len(parts)) if j not in largest]
    rows = [(escape_dollars(shown(carried.inputs[j], 24)), parts[j]) for j in largest]
    if rest:
        rows.append((f"{len(rest)} others", parts[rest].sum(axis=0)))
    up, down = np.zeros(len(x)), np.zeros(len(x))
    width = 0.8 if labels else np.gradient(x) if len(x) > 1 else 1.0
    for (name, part), colour in zip(rows, _COLOURS, strict=False):
        base = np.where(part >= 0, up, down)
        ax.bar(x, part, bottom=base, width=width, color=colour, linewidth=0, label=name)
        up, down = up + np.maximum(part, 0.0), down + np.minimum(part, 0.0)
    whole, line = np.array(carried.whole)[order], "" if labels else "-"
    ax.plot(x, whole, line, color="black", marker="o", markersize=5 if labels else 2.5, label="sum")
    ax.axhline(0.0, color=CHANCE, linewidth=0.8)
    if labels:
        codes = np.array(carried.points)[order].astype(int)
        ax.set_xticks(x, [escape_dollars(shown(labels[code], 12)) for code in codes])
    ax.set(xlabel=escape_dollars(shown(carried.attributes[0])), ylabel="added to the mean score")
    draw_legend(ax)
    return ax


def plot_proxies(found: Proxies, *, most: int = 15, ax: Axes | None = None) -> Axes:
    """Draw the dependence of each column on s, how well it predicts s, and what is lost without it.

    Parameters
    ----------
    found : Proxies
    most : int, default=15
        Columns that are drawn, of the largest HSIC.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> from frhsic.inference import proxies
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=200)
    >>> found = proxies({"tenure": age + rng.normal(size=200)}, {"age": age}, random_state=0)
    >>> plot_proxies(found).get_xlabel()
    'R^2 of age, and normalised HSIC'
    """
    ax = prepare_axes(ax)
    rows = found.columns[:most]
    places = np.arange(len(rows))
    style: dict[str, Any] = {"height": 0.7, "color": MAIN, "alpha": 0.45, "label": "R^2, alone"}
    ax.barh(places, [max(one.r2, 0.0) for one in rows], **style)
    low, size, high = (
        np.array([max(getattr(one, name), 0.0) for one in rows]) for name in ("hsic_low", "hsic", "hsic_high")
    )
    error = np.maximum([size - low, high - size], 0.0)
    ax.errorbar(size, places, xerr=error, fmt="o", color="black", markersize=4, capsize=2.5, label="HSIC")
    lost = [(k, max(one.lost, 0.0)) for k, one in enumerate(rows) if one.lost is not None]
    ax.plot(
        [x for _, x in lost], [k for k, _ in lost], "D", color=SECOND, label="lost without it and its like"
    )
    ax.axvline(max(found.r2, 0.0), color=CHANCE, linestyle="--", linewidth=1.2, label="all columns together")
    ax.set_yticks(places, [escape_dollars(shown(one.column, 28)) for one in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_ylabel("column")
    ax.set_xlabel(f"R^2 of {escape_dollars(shown(found.attribute))}, and normalised HSIC")
    draw_legend(ax)
    return ax


def draw_proxies(found: Proxies, form: str) -> bytes:
    """Return the picture of :func:`plot_proxies` as a file of this form."""
    figure = Figure(figsize=(6.4, 1.6 + 0.28 * min(15, len(found.columns))), layout="constrained")
    plot_proxies(found, ax=figure.subplots())
    file = io.BytesIO()
    figure.savefig(file, format=form, dpi=150)
    return file.getvalue()


def reason_figures(found: Attribute, column: Column | None, key: str) -> Iterator[tuple[str, Picture]]:
    """Return the heading and the figure of each reason that an audit gives."""
    if column is None:
        return
    s, labels = shown(column.name), column.labels
    one = found.explained
    if one is not None and (chosen := select_points(one, column))[0]:
        rows, remark = chosen
        one = take_points(one, rows, "points", "mean", "low", "high", "unadjusted", "mass")
        factors = join_words([shown(name) for name in one.factors], 3)
        title = f"Mean score along {s} at equal {factors}"
        other = "Diamonds" if labels else "Dashed"
        yield (
            "Explained by",
            draw_picture(
                partial(plot_adjusted, one, labels=labels),
                key=f"{key}-explained",
                title=title,
                description=f"The mean gap is {digits(one.unadjusted_gap.estimate)} on all rows and "
                f"{digits(one.gap.estimate)} at equal {factors}, between {digits(one.gap.low)} and "
                f"{digits(one.gap.high)}.",
                caption=f"{title}, less its average, with a band for the whole curve. {other}: the same "
                f"without holding {factors} equal. Not a causal effect.{remark}",
            ),
        )
    carried = found.carried
    if carried is not None and (chosen := select_points(carried, column))[0]:
        rows, remark = chosen
        parts = tuple(tuple(part[i] for i in rows) for part in carried.parts)
        carried = replace(take_points(carried, rows, "points", "mass", "whole"), parts=parts)
        title = f"What each input adds along {s}"
        shares = "; ".join(
            f"{shown(name)}: {digits(share)}"
            for name, share in list(zip(carried.inputs, carried.share, strict=True))[:_STACKED]
        )
        yield (
            "Carried by",
            draw_picture(
                partial(plot_carriers, carried, labels=labels),
                key=f"{key}-carried",
                title=title,
                description=f"Shares of the mean gap: {shares}.",
                caption=f"{title}, less its average, on the scale on which contributions add up. Inputs "
                "are stacked; the line is their sum. A share is no remedy: without an input a model may "
                f"learn the same from others.{remark}",
            ),
        )
