"""Plots of results: data in, Axes out. Legends stand above the axes; give a title to the figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic._text import percent, shown
from frhsic.auditing import ErrorRates, Representation
from frhsic.inference import AUCCurve, Curve, DecisionGaps, Profile, TestResult
from frhsic.inference.bounds import Certificate

# Okabe and Ito's colours, told apart by every common kind of colour vision; lines differ in style as well.
MAIN, SECOND, THIRD, CHANCE = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"


def plot_curve(
    curve: Curve, *, labels: Sequence[str] = (), ylabel: str = "mean score", ax: Axes | None = None
) -> Axes:
    """Draw the mean score along s, its band for the whole curve, the overall mean and where the rows are.

    Parameters
    ----------
    curve : Curve
    labels : sequence of str, default=()
        Of a categorical column, in the order of its codes: then a point with its interval for each.
    ylabel : str, default="mean score"
        What the curve is the mean of.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> curve = Curve((20, 30), (0.4, 0.5), (0.3, 0.4), (0.5, 0.6), (0.5, 0.5), 0.45, 0.95, "", ("age",), 90)
    >>> plot_curve(curve).get_xlabel()
    'age'
    """
    ax = prepare_axes(ax)
    band = f"{percent(curve.confidence_level)} band, {'all at once' if labels else 'whole curve'}"
    name = shown(curve.attributes[0])
    points, mean, low, high, mass = _ordered(curve.points, curve.mean, curve.low, curve.high, curve.mass)
    if labels:
        rows, error = np.arange(len(points)), np.stack([mean - low, high - mean])
        ax.axvline(curve.overall, color=CHANCE, linestyle="--", linewidth=1.2, label="overall mean")
        ax.errorbar(mean, rows, xerr=error, fmt="o", color=MAIN, capsize=3, label=band)
        _label_rows(ax, points, mass, labels, name)
        ax.set_xlabel(escape_dollars(ylabel))
    else:
        ax.fill_between(points, low, high, color=MAIN, alpha=0.22, linewidth=0, label=band)
        ax.plot(points, mean, color=MAIN, linewidth=2, label=ylabel)
        ax.axhline(curve.overall, color=CHANCE, linestyle="--", linewidth=1.2, label="overall mean")
        _rug(ax, points, mass)
        ax.set(xlabel=escape_dollars(name), ylabel=escape_dollars(ylabel))
    draw_legend(ax)
    return ax


def plot_error_rates(errors: ErrorRates, *, labels: Sequence[str] = (), ax: Axes | None = None) -> Axes:
    """Draw the false positive and the false negative rate along s, each with its band.

    Parameters
    ----------
    errors : ErrorRates
        Of an audit with an outcome and a threshold.
    labels : sequence of str, default=()
        Of a categorical column, in the order of its codes: then a point with its interval for each.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> curve = Curve((20, 30), (0.4, 0.5), (0.3, 0.4), (0.5, 0.6), (0.5, 0.5), 0.45, 0.95, "", ("age",), 90)
    >>> plot_error_rates(ErrorRates(0.5, curve, None)).get_ylabel()
    'share of decisions'
    """
    ax = prepare_axes(ax)
    drawn = {
        name: curve
        for name, curve in (("positives", errors.false_positive), ("negatives", errors.false_negative))
        if curve is not None
    }
    if not drawn:
        fix = "Pass more rows, or another threshold."
        raise ArgumentError("errors", "hold at least one curve", "none", fix)
    codes = sorted({point for curve in drawn.values() for point in curve.points})
    for name, curve in drawn.items():
        first = name == "positives"
        style: dict[str, Any] = {"color": MAIN if first else SECOND, "label": f"false {name}"}
        points, mean, low, high = _ordered(curve.points, curve.mean, curve.low, curve.high)
        if labels:
            rows = np.searchsorted(codes, points) + (-0.12 if first else 0.12)
            error = np.stack([mean - low, high - mean])
            ax.errorbar(mean, rows, xerr=error, fmt="o" if first else "D", capsize=3, **style)
        else:
            ax.fill_between(points, low, high, color=style["color"], alpha=0.18, linewidth=0)
            ax.plot(points, mean, linestyle="-" if first else "--", linewidth=1.8, **style)
    s = escape_dollars(shown(next(iter(drawn.values())).attributes[0]))
    what = "share of decisions"
    if labels:
        _name_rows(ax, [shown(labels[int(code)], 28) for code in codes], s)
        ax.set_xlabel(what)
    else:
        ax.set(xlabel=s, ylabel=what)
    draw_legend(ax)
    return ax


def plot_auc(curve: AUCCurve, *, ax: Axes | None = None) -> Axes:
    """Draw the AUC in each window of s with its interval, and the AUC of all rows.

    Parameters
    ----------
    curve : AUCCurve
        From :func:`frhsic.inference.auc_curve`.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> from frhsic.inference import auc_curve
    >>> y, age = [0, 1] * 100, [20] * 100 + [30] * 100
    >>> plot_auc(auc_curve(y, [a + i % 7 for i, a in enumerate(y)], {"age": age})).get_ylabel()
    'AUC'
    """
    ax = prepare_axes(ax)
    auc, low, high = (np.array(part) for part in (curve.auc, curve.low, curve.high))
    name, interval = shown(curve.attributes[0]), f"{percent(curve.confidence_level)} interval, all at once"
    error = np.stack([auc - low, high - auc])
    style: dict[str, Any] = {"fmt": "o", "color": MAIN, "capsize": 3, "label": interval}
    chance: dict[str, Any] = {"color": CHANCE, "linestyle": "--", "linewidth": 1.2, "label": "all rows"}
    if curve.categories:
        ax.axvline(curve.overall, **chance)
        ax.errorbar(auc, np.arange(len(auc)), xerr=error, **style)
        _name_rows(ax, list(curve.categories), escape_dollars(name))
        ax.set_xlabel("AUC")
    else:
        points = np.array(curve.points)
        ax.axhline(curve.overall, **chance)
        ax.errorbar(points, auc, yerr=error, **style)
        # Each window as wide as it is; the outermost, which have no end, from or to their middle.
        start, stop = (np.array(ends) for ends in (curve.start, curve.stop))
        start, stop = np.where(np.isinf(start), points, start), np.where(np.isinf(stop), points, stop)
        ax.hlines(auc, start, stop, color=MAIN, linewidth=2)
        ax.set(xlabel=escape_dollars(name), ylabel="AUC")
    draw_legend(ax)
    return ax


def plot_profile(profile: Profile, *, labels: Sequence[str] = (), ax: Axes | None = None) -> Axes:
    """Draw how far the distribution of z near each value of s is from the overall one, with its limit.

    Parameters
    ----------
    profile : Profile
    labels : sequence of str, default=()
        Of a categorical column, in the order of its codes: then a point for each.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> profile = Profile((20, 30), (0.2, 0.4), (0.3, 0.3), (0.5, 0.5), 0.95, ("age",), 90)
    >>> plot_profile(profile).get_ylabel()
    'difference of distributions (MMD)'
    """
    ax = prepare_axes(ax)
    name = shown(profile.attributes[0])
    points, contrast, chance, mass = _ordered(profile.points, profile.contrast, profile.chance, profile.mass)
    above = contrast > chance
    limit = f"limit under independence ({percent(profile.confidence_level)})"
    what = "difference of distributions (MMD)"
    if labels:
        rows = np.arange(len(points))
        ax.plot(contrast[~above], rows[~above], "o", color=MAIN, fillstyle="none", label="within the limit")
        ax.plot(contrast[above], rows[above], "D", color=SECOND, label="above the limit")
        ax.scatter(chance, rows, marker="|", s=160, color=CHANCE, label=limit)
        _label_rows(ax, points, mass, labels, name)
        ax.set_xlabel(what)
        ax.set_xlim(0, 1.08 * float(max(contrast.max(), chance.max())) or 1.0)
    else:
        ax.fill_between(
            points, chance, contrast, where=above, interpolate=True, color=SECOND, alpha=0.25, linewidth=0
        )
        ax.plot(points, contrast, color=MAIN, linewidth=2, label="near this value")
        for piece, (start, end) in enumerate(_runs(above)):
            x, y = points[start:end], contrast[start:end]
            marker = "o" if end - start == 1 else ""  # a run of a single point has no length
            label = None if piece else "above the limit"
            ax.plot(x, y, color=SECOND, linewidth=3, marker=marker, label=label)
        ax.plot(points, chance, color=CHANCE, linestyle="--", linewidth=1.2, label=limit)
        ax.set_ylim(0, 1.05 * float(max(contrast.max(), chance.max())) or 1.0)
        _rug(ax, points, mass)
        ax.set(xlabel=escape_dollars(name), ylabel=what)
    draw_legend(ax)
    return ax


def plot_decision_gaps(
    found: DecisionGaps, *, thresholds: Sequence[float] = (), ax: Axes | None = None
) -> Axes:
    """Draw the gap of decisions at every cut-off and its band.

    Where the gaps hold all that chance adds, their mean under independence is drawn beside them.

    Parameters
    ----------
    found : DecisionGaps
        From :func:`frhsic.inference.decision_gaps`.
    thresholds : sequence of float, default=()
        Cut-offs to be marked.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> from frhsic.inference import decision_gaps
    >>> ages = [20, 30] * 100
    >>> found = decision_gaps([a / 50 + 0.001 * i for i, a in enumerate(ages)], ages)
    >>> plot_decision_gaps(found).get_xlabel()
    'cut-off'
    """
    ax = prepare_axes(ax)
    columns = _ordered(found.cutoffs, found.gaps, found.low, found.high, found.chance)
    cutoffs, gaps, low, high, chance = columns
    band = f"{percent(found.confidence_level)} band, all cut-offs"
    ax.fill_between(cutoffs, low, high, color=MAIN, alpha=0.22, linewidth=0, label=band)
    ax.plot(cutoffs, gaps, color=MAIN, linewidth=2, marker="." if len(cutoffs) < 8 else "", label="gap")
    if found.plug_in == found.gaps:
        ax.plot(cutoffs, chance, color=CHANCE, linestyle="--", linewidth=1.2, label="if independent")
    for place, one in enumerate(thresholds):
        label = "threshold" if place == 0 else None
        ax.axvline(one, color=SECOND, linestyle=":", linewidth=1.4, label=label)
    ax.set(xlabel="cut-off", ylabel="gap of decisions", ylim=(0.0, None))
    draw_legend(ax)
    return ax


def plot_null(test: TestResult, *, ax: Axes | None = None) -> Axes:
    """Draw the statistic of a test beside its values under random pairings.

    Parameters
    ----------
    test : TestResult
        By permutation or wild bootstrap.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> test = TestResult(3.0, 0.2, "permutation", "HSIC", ("age",), 50, True, 4, null=(1.0, 2.0, 2.5, 4.0))
    >>> plot_null(test).get_ylabel()
    'random pairings'
    """
    if not test.null:
        must, got = "hold draws of its null distribution", f"none (method {test.method!r})"
        raise ArgumentError("test", must, got, "Use a test by permutation.")
    ax = prepare_axes(ax)
    null = np.asarray(test.null)
    span = (min(null.min(), test.statistic), max(null.max(), test.statistic))
    bins = int(np.clip(len(null) // 12, 8, 50))
    edges = np.linspace(null.min(), null.max() if null.max() > null.min() else null.min() + 1e-12, bins + 1)
    ax.hist(null, bins=edges.tolist(), color=CHANCE, alpha=0.55, label=f"{len(null):,} random pairings")
    ax.axvline(test.statistic, color=SECOND, linewidth=2, label="observed")
    margin = 0.04 * (span[1] - span[0]) or 1.0
    ax.set_xlim(span[0] - margin, span[1] + margin)
    ax.set(xlabel="test statistic", ylabel="random pairings")
    draw_legend(ax)
    return ax


def plot_bounds(certificate: Certificate, *, ax: Axes | None = None) -> Axes:
    """Draw the paper's bound and the worst head by resolution m, beside the worst head under independence.

    Parameters
    ----------
    certificate : Certificate
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> from frhsic.inference.bounds import certify
    >>> s = np.random.default_rng(0).normal(size=(80, 2))
    >>> plot_bounds(certify(s[:, 0], s[:, 1], random_state=0)).get_yscale()
    'log'
    """
    ax = prepare_axes(ax)
    heads = certificate.heads
    m = [head.m for head in heads]
    low, high = [head.null_mean for head in heads], [head.null_high for head in heads]
    chance = "worst head under independence"
    ax.fill_between(m, low, high, color=CHANCE, alpha=0.35, linewidth=0, label=chance)
    ax.plot(m, [head.paper_bound for head in heads], color=SECOND, linestyle="--", label="the paper's bound")
    ax.plot(m, [head.worst_rms for head in heads], color=MAIN, linewidth=2, marker=".", label="worst head")
    crossed = [head.crossfit_gdp for head in heads]
    if not any(math.isnan(value) for value in crossed):
        ax.plot(m, crossed, color=THIRD, linestyle=":", linewidth=2, label="its GDP on the other half")
    ax.set_yscale("log")
    # The paper's bound grows without end as the eigenvalues fall: beyond this it only flattens the rest.
    ax.set_ylim(top=min(ax.get_ylim()[1], 30.0 * max(head.worst_rms for head in heads) or 1.0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    names = shown(" and ".join(shown(name, 24) for name in certificate.attributes))
    ax.set(xlabel=f"resolution m along {escape_dollars(names)}", ylabel="gap of a head")
    draw_legend(ax)
    return ax


def plot_history(history: Sequence[Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """Draw loss and penalty by epoch; dashed, where there are some, on held-out rows.

    Parameters
    ----------
    history : sequence of dict
        ``history_`` of an estimator.
    ax : Axes, optional
        Holds the loss; the penalty has a scale of its own on the right. None makes a figure.

    Examples
    --------
    >>> plot_history([{"epoch": 0, "loss": 0.7, "penalty": 0.1}, {"epoch": 1, "loss": 0.6}]).get_xlabel()
    'epoch'
    """
    if not len(history):
        fix = "Pass history_ of a fitted model."
        raise ArgumentError("history", "hold at least one epoch", "none", fix)
    ax = prepare_axes(ax)
    lines = _series(ax, history, "loss", MAIN, ("-", "--"))
    ax.set(xlabel="epoch")
    ax.set_ylabel("loss", color=MAIN)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if any(record.get("penalty") is not None for record in history):
        right = ax.twinx()
        lines += _series(right, history, "penalty", SECOND, ("-.", ":"))
        right.set_ylabel("penalty", color=SECOND)
        right.spines["top"].set_visible(False)
        right.spines["right"].set_visible(True)
    ax.legend(handles=lines, loc="best", fontsize="small", frameon=False)
    return ax


def plot_transfer(
    representation: Representation, *, attribute: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw fresh heads on a representation: performance against GDP, with the intervals of the latter.

    Parameters
    ----------
    representation : Representation
    attribute : str, optional
        The sensitive column; None takes the first.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> from frhsic.auditing import Transfer
    >>> from frhsic.inference import Interval
    >>> gdp = Interval(0.02, 0.01, 0.03, 0.95, "GDP", "", "", ("age",), 90)
    >>> plot_transfer(Representation((), (Transfer("linear", 0.8, "accuracy", (gdp,)),))).get_ylabel()
    'accuracy'
    """
    heads = representation.transfer
    if not heads:
        fix = "Pass y_true to the audit: heads predict it."
        raise ArgumentError("representation", "hold fresh heads", "none", fix)
    names = [" and ".join(gdp.attributes) for gdp in heads[0].gdp]
    if attribute is not None and attribute not in names:
        fix = f"Take one of {', '.join(map(repr, names))}."
        raise ArgumentError("attribute", "be a sensitive column of these heads", repr(attribute), fix)
    which = 0 if attribute is None else names.index(attribute)
    ax = prepare_axes(ax)
    found = [head.gdp[which] for head in heads]
    x, y = [gdp.estimate for gdp in found], [head.performance for head in heads]
    errors = np.transpose([(gdp.estimate - gdp.low, gdp.high - gdp.estimate) for gdp in found]).clip(0.0)
    interval = f"{percent(found[0].confidence_level)} interval"
    ax.errorbar(x, y, xerr=errors, fmt="o", color=MAIN, capsize=3, label=interval)
    chances = [(gdp.chance, at) for gdp, at in zip(found, y, strict=True) if gdp.chance is not None]
    if chances:
        x_chance, y_chance = zip(*chances, strict=True)
        ax.scatter(x_chance, y_chance, marker="|", s=90, color=CHANCE, label="under independence")
    for head, at, value in zip(heads, x, y, strict=True):
        ax.annotate(head.head, (at, value), xytext=(0, 6), textcoords="offset points", fontsize="small")
    ax.margins(y=0.2)
    ax.set_xlim(left=min(0.0, *(gdp.low for gdp in found)))
    ax.set(xlabel=f"GDP on {escape_dollars(shown(names[which]))}", ylabel=escape_dollars(heads[0].metric))
    draw_legend(ax)
    return ax


# ---- parts -----------------------------------------------------------------------------------------------


def prepare_axes(ax: Axes | None) -> Axes:
    """Return the axes without the upper and the right spine; None makes a figure."""
    if ax is None:
        import matplotlib.pyplot as plt  # only here: an Axes that is passed needs no window system

        ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def escape_dollars(text: str) -> str:
    """Return text in which a dollar is a dollar and does not begin a formula."""
    return text.replace("$", r"\$")


def draw_legend(ax: Axes) -> None:
    """Put the legend above the axes, where it covers no data.

    It grows to the left, over the labels of the other axis, and so takes no width from the axes.
    """
    ax.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=2,
        fontsize="small",
        frameon=False,
        borderpad=0.2,
        columnspacing=1.4,
    )


def _ordered(points: Sequence[float], *columns: Sequence[float]) -> list[NDArray[np.float64]]:
    """Return the points from left to right, and what belongs to them in the same order."""
    order = np.argsort(points, kind="stable")
    return [np.asarray(column, dtype=np.float64)[order] for column in (points, *columns)]


def _rug(ax: Axes, x: NDArray[np.float64], share: NDArray[np.float64]) -> None:
    """Draw how many rows there are along s as a strip at the foot of the axes, below all curves."""
    if len(x) < 2:
        return
    middle = (x[1:] + x[:-1]) / 2
    reach = float(np.median(np.diff(x))) / 2  # the outermost points may stand alone, far from the others
    edges = np.concatenate([x[:1] - reach, middle, x[-1:] + reach])
    # Points of equal mass lie close where rows are many: only the share of equal steps shows it.
    grid = np.linspace(edges[0], edges[-1], min(40, len(x)) + 1)
    rows = np.diff(np.interp(grid, edges, np.concatenate([[0.0], np.cumsum(share)])))
    low, high = ax.get_ylim()
    ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    style: dict[str, Any] = {"fill": True, "color": CHANCE, "alpha": 0.5, "label": "where the rows are"}
    ax.stairs(0.11 * rows / rows.max(), grid, transform=ax.get_xaxis_transform(), **style)
    ax.set_ylim(low - 0.16 * (high - low), high)
    ax.set_yticks(ticks)  # none beside the strip, which has no scale


def _label_rows(
    ax: Axes, points: NDArray[np.float64], mass: NDArray[np.float64], labels: Sequence[str], name: str
) -> None:
    """Write the labels of a categorical column and their shares beside the rows of a picture."""
    texts = [
        f"{shown(labels[int(point)], 28)} ({share:.0%})" for point, share in zip(points, mass, strict=True)
    ]
    _name_rows(ax, texts, escape_dollars(name))


def _name_rows(ax: Axes, texts: Sequence[str], name: str) -> None:
    """Write names beside the rows of a picture, the first on top."""
    ax.set_yticks(range(len(texts)), [escape_dollars(text) for text in texts])
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_ylim(len(texts) - 0.4, -0.6)
    ax.set_ylabel(name)


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the stretches of True as half-open ranges."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return [(int(start), int(end)) for start, end in list(pairwise(edges))[::2]]


def _series(
    ax: Axes, history: Sequence[Mapping[str, Any]], what: str, color: str, styles: tuple[str, str]
) -> list[Any]:
    lines, epochs = [], [record["epoch"] for record in history]
    keys = ((what, what), (f"validation_{what}", f"{what}, held-out rows"))
    for (key, words), style in zip(keys, styles, strict=True):
        values = [record.get(key) for record in history]
        if any(value is not None for value in values):
            heights = [math.nan if value is None else value for value in values]
            marker = "o" if len(values) < 3 else ""
            lines += ax.plot(epochs, heights, style, color=color, marker=marker, label=words)
    return lines
