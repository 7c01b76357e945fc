"""Pictures of results: data in, Axes out. Legends stand above the axes; give a title to the figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from frhsic._text import percent, shown
from frhsic.auditing import Representation
from frhsic.inference import Curve, Profile, TestResult
from frhsic.inference.bounds import Certificate
from frhsic.selection import Point, pareto_front

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

    Returns
    -------
    Axes

    Examples
    --------
    >>> curve = Curve((20, 30), (0.4, 0.5), (0.3, 0.4), (0.5, 0.6), (0.5, 0.5), 0.45, 0.95, "", ("age",), 90)
    >>> plot_curve(curve).get_xlabel()
    'age'
    """
    ax = _axes(ax)
    band = f"{percent(curve.confidence_level)} band, whole curve"
    name = shown(curve.attributes[0])
    points, mean, low, high, mass = _ordered(curve.points, curve.mean, curve.low, curve.high, curve.mass)
    if labels:
        rows, error = np.arange(len(points)), np.stack([mean - low, high - mean])
        ax.axvline(curve.overall, color=CHANCE, linestyle="--", linewidth=1.2, label="overall mean")
        ax.errorbar(
            mean,
            rows,
            xerr=error,
            fmt="o",
            color=MAIN,
            capsize=3,
            label=f"{percent(curve.confidence_level)} band, all at once",
        )
        _label_rows(ax, points, mass, labels, name)
        ax.set_xlabel(_plain(ylabel))
    else:
        ax.fill_between(points, low, high, color=MAIN, alpha=0.22, linewidth=0, label=band)
        ax.plot(points, mean, color=MAIN, linewidth=2, label=ylabel)
        ax.axhline(curve.overall, color=CHANCE, linestyle="--", linewidth=1.2, label="overall mean")
        _rug(ax, points, mass)
        ax.set(xlabel=_plain(name), ylabel=_plain(ylabel))
    _legend(ax)
    return ax


def plot_profile(profile: Profile, *, labels: Sequence[str] = (), ax: Axes | None = None) -> Axes:
    """Draw how far the law of z near each value of s is from its law overall, beside what chance gives.

    Parameters
    ----------
    profile : Profile
    labels : sequence of str, default=()
        Of a categorical column, in the order of its codes: then a point for each.
    ax : Axes, optional
        None makes a figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> profile = Profile((20, 30), (0.2, 0.4), (0.3, 0.3), (0.5, 0.5), 0.95, 3.0, ("age",), 90)
    >>> plot_profile(profile).get_ylabel()
    'difference of distributions (MMD)'
    """
    ax = _axes(ax)
    name = shown(profile.attributes[0])
    points, contrast, chance, mass = _ordered(profile.points, profile.contrast, profile.chance, profile.mass)
    above = contrast > chance
    limit = f"limit of chance ({percent(profile.confidence_level)})"
    what = "difference of distributions (MMD)"
    if labels:
        rows = np.arange(len(points))
        ax.plot(contrast[~above], rows[~above], "o", color=MAIN, fillstyle="none", label="within chance")
        ax.plot(contrast[above], rows[above], "D", color=SECOND, label="above chance")
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
            inside = slice(start, end)
            # A marker too, for a run of a single point has no length.
            ax.plot(
                points[inside],
                contrast[inside],
                color=SECOND,
                linewidth=3,
                marker="o" if end - start == 1 else "",
                label=None if piece else "above chance",
            )
        ax.plot(points, chance, color=CHANCE, linestyle="--", linewidth=1.2, label=limit)
        ax.set_ylim(0, 1.05 * float(max(contrast.max(), chance.max())) or 1.0)
        _rug(ax, points, mass)
        ax.set(xlabel=_plain(name), ylabel=what)
    _legend(ax)
    return ax


def plot_frontier(
    points: Sequence[Point],
    *,
    chosen: int | None = None,
    dependence: str = "dependence",
    performance: str = "performance",
    ax: Axes | None = None,
) -> Axes:
    """Draw the models of a sweep, performance against dependence, and the front of those that none beats.

    Numbers beside the models are their budgets in percent, or the strengths of their penalties. Bars are the
    confidence intervals of each model by itself, where there are some. The front is drawn in steps: between
    two models there is none.

    Parameters
    ----------
    points : sequence of Point
    chosen : int, optional
        The model to mark, such as ``best_index_`` of a search.
    dependence, performance : str
        What the axes hold.
    ax : Axes, optional
        None makes a figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> points = [Point(0.0, 0.85, 0.07), Point(10.0, 0.83, 0.01, budget=0.1)]
    >>> plot_frontier(points, chosen=1, performance="accuracy").get_ylabel()
    'accuracy'
    """
    if not points:
        raise ValueError("'points' must hold at least one Point. Got none. Pass the models of a sweep.")
    if chosen is not None and chosen not in range(len(points)):
        raise ValueError(
            f"'chosen' must be an index below {len(points)} or None. Got {chosen!r}. Pass best_index_."
        )
    ax = _axes(ax)
    front = [points[index] for index in pareto_front(points)]
    barred = [(point, *_limits(point)) for point in points if point.upper is not None]
    if barred:
        ax.errorbar(
            [point.dependence for point, _, _ in barred],
            [point.performance for point, _, _ in barred],
            xerr=np.transpose(
                [[point.dependence - low, high - point.dependence] for point, low, high in barred]
            ),
            fmt="none",
            ecolor=MAIN,
            elinewidth=1.0,
            capsize=2.5,
            alpha=0.45,
            label="interval of each model",
        )
    # To the right of its last model the front goes on: whoever accepts more dependence may still take that.
    ax.step(
        [*(point.dependence for point in front), max(point.dependence for point in points)],
        [*(point.performance for point in front), front[-1].performance],
        where="post",
        color=MAIN,
        linewidth=1.6,
        label="beaten by none",
        zorder=2.2,
    )
    for label, marker, fill, kind in (
        ("models", "o", MAIN, [p for p in points if p.strength != 0]),
        ("unconstrained", "s", CHANCE, [p for p in points if p.strength == 0]),
    ):
        if kind:
            x, y = [point.dependence for point in kind], [point.performance for point in kind]
            # A white edge keeps neighbours apart.
            ax.plot(
                x,
                y,
                marker,
                color=fill,
                markersize=6.5,
                markeredgecolor="white",
                markeredgewidth=0.8,
                label=label,
                zorder=2.4,
            )
    if chosen is not None:
        ax.plot(
            points[chosen].dependence,
            points[chosen].performance,
            "o",
            color=SECOND,
            markersize=13,
            fillstyle="none",
            markeredgewidth=1.8,
            label="chosen",
            zorder=2.6,
        )
    ax.margins(x=0.08, y=0.12)
    ax.set(xlabel=f"{_plain(dependence)} (less is to the left)", ylabel=_plain(performance))
    _label_points(ax, points)
    _legend(ax)
    return ax


def plot_null(test: TestResult, *, ax: Axes | None = None) -> Axes:
    """Draw the statistic of a test beside its values under random pairings.

    Parameters
    ----------
    test : TestResult
        By permutation or wild bootstrap.
    ax : Axes, optional
        None makes a figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> test = TestResult(3.0, 0.2, "permutation", "HSIC", ("age",), 50, True, 4, null=(1.0, 2.0, 2.5, 4.0))
    >>> plot_null(test).get_ylabel()
    'random pairings'
    """
    if not test.null:
        raise ValueError(
            f"'test' must hold draws of its null distribution. Got none (method {test.method!r}). "
            "Use a test by permutation."
        )
    ax = _axes(ax)
    null = np.asarray(test.null)
    span = (min(null.min(), test.statistic), max(null.max(), test.statistic))
    bins = int(np.clip(len(null) // 12, 8, 50))
    edges = np.linspace(null.min(), null.max() if null.max() > null.min() else null.min() + 1e-12, bins + 1)
    ax.hist(null, bins=edges.tolist(), color=CHANCE, alpha=0.55, label=f"{len(null):,} random pairings")
    ax.axvline(test.statistic, color=SECOND, linewidth=2, label="observed")
    margin = 0.04 * (span[1] - span[0]) or 1.0
    ax.set_xlim(span[0] - margin, span[1] + margin)
    ax.set(xlabel="test statistic", ylabel="random pairings")
    _legend(ax)
    return ax


def plot_bounds(certificate: Certificate, *, ax: Axes | None = None) -> Axes:
    """Draw the paper's bound and the worst head by resolution m, beside what chance gives the worst head.

    Parameters
    ----------
    certificate : Certificate
    ax : Axes, optional
        None makes a figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> from frhsic.inference import certify
    >>> s = np.random.default_rng(0).normal(size=(80, 2))
    >>> plot_bounds(certify(s[:, 0], s[:, 1], random_state=0)).get_yscale()
    'log'
    """
    ax = _axes(ax)
    heads = certificate.heads
    m = [head.m for head in heads]
    ax.fill_between(
        m,
        [head.null_mean for head in heads],
        [head.null_high for head in heads],
        color=CHANCE,
        alpha=0.35,
        linewidth=0,
        label="worst head by chance",
    )
    ax.plot(m, [head.paper_bound for head in heads], color=SECOND, linestyle="--", label="the paper's bound")
    ax.plot(m, [head.worst_rms for head in heads], color=MAIN, linewidth=2, marker=".", label="worst head")
    crossed = [head.crossfit_gdp for head in heads]
    if not any(math.isnan(value) for value in crossed):
        ax.plot(m, crossed, color=THIRD, linestyle=":", linewidth=2, label="its GDP on the other half")
    ax.set_yscale("log")
    # The paper's bound grows without end as the eigenvalues fall: beyond this it only flattens the rest.
    ax.set_ylim(top=min(ax.get_ylim()[1], 30.0 * max(head.worst_rms for head in heads) or 1.0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel=f"resolution m along {_plain(_joined(certificate.attributes))}", ylabel="gap of a head")
    _legend(ax)
    return ax


def plot_history(history: Sequence[Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """Draw loss and penalty by epoch; dashed, where there are some, on the rows set aside.

    Parameters
    ----------
    history : sequence of dict
        ``history_`` of an estimator.
    ax : Axes, optional
        Holds the loss; the penalty has a scale of its own on the right. None makes a figure.

    Returns
    -------
    Axes

    Examples
    --------
    >>> plot_history([{"epoch": 0, "loss": 0.7, "penalty": 0.1}, {"epoch": 1, "loss": 0.6}]).get_xlabel()
    'epoch'
    """
    if not len(history):
        raise ValueError("'history' must hold at least one epoch. Got none. Pass history_ of a fitted model.")
    ax = _axes(ax)
    epochs = [record["epoch"] for record in history]
    lines = _series(ax, epochs, history, "loss", MAIN, ("-", "--"))
    ax.set(xlabel="epoch")
    ax.set_ylabel("loss", color=MAIN)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if any(record.get("penalty") is not None for record in history):
        right = ax.twinx()
        lines += _series(right, epochs, history, "penalty", SECOND, ("-.", ":"))
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

    Returns
    -------
    Axes

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
        raise ValueError(
            "'representation' must hold fresh heads. Got none. Pass y_true to the audit: heads predict it."
        )
    names = [" and ".join(gdp.attributes) for gdp in heads[0].gdp]
    if attribute is not None and attribute not in names:
        raise ValueError(
            f"'attribute' must be a sensitive column of these heads. Got {attribute!r}. "
            f"Take one of {', '.join(map(repr, names))}."
        )
    which = 0 if attribute is None else names.index(attribute)
    ax = _axes(ax)
    found = [head.gdp[which] for head in heads]
    x, y = [gdp.estimate for gdp in found], [head.performance for head in heads]
    errors = [
        [max(gdp.estimate - gdp.low, 0.0) for gdp in found],
        [max(gdp.high - gdp.estimate, 0.0) for gdp in found],
    ]
    interval = f"{found[0].confidence_level:.0%} interval"
    ax.errorbar(x, y, xerr=errors, fmt="o", color=MAIN, capsize=3, label=interval)
    chances = [(gdp.chance, at) for gdp, at in zip(found, y, strict=True) if gdp.chance is not None]
    if chances:
        x_chance, y_chance = zip(*chances, strict=True)
        ax.scatter(x_chance, y_chance, marker="|", s=90, color=CHANCE, label="by chance, on average")
    for head, at, value in zip(heads, x, y, strict=True):
        ax.annotate(
            _plain(head.head), (at, value), xytext=(0, 6), textcoords="offset points", fontsize="small"
        )
    ax.margins(y=0.2)
    ax.set_xlim(left=min(0.0, *(gdp.low for gdp in found)))
    ax.set(xlabel=f"GDP on {_plain(shown(names[which]))}", ylabel=_plain(heads[0].metric))
    _legend(ax)
    return ax


# ---- parts -----------------------------------------------------------------------------------------------


def _axes(ax: Axes | None) -> Axes:
    if ax is None:
        import matplotlib.pyplot as plt  # only here: whoever brings an Axes needs no window system

        ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _plain(text: str) -> str:
    """Return text in which a dollar is a dollar and does not begin a formula."""
    return text.replace("$", r"\$")


def _joined(names: Sequence[str]) -> str:
    return shown(" and ".join(shown(name, 24) for name in names))


def _legend(ax: Axes) -> None:
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


def _limits(point: Point) -> tuple[float, float]:
    """Return the ends of a point's bar: from the point itself where it has no lower limit."""
    low = point.dependence if point.lower is None else min(point.lower, point.dependence)
    return low, point.dependence if point.upper is None else max(point.upper, point.dependence)


# Where a label may stand beside its point, in points of type. A front comes from below, leaves to the right.
_SIDES = ((0.0, 8.0, "center"), (0.0, -17.0, "center"), (-8.0, -4.0, "right"), (8.0, -4.0, "left"))


def _label_points(ax: Axes, points: Sequence[Point]) -> None:
    """Write the strength beside each model, on the first side where it hides neither model nor label.

    A label without such a side is left out.
    """
    ax.autoscale_view()  # limits are worked out late, and are needed here
    height = FontProperties(size="small").get_size_in_points()
    box = ax.get_position()
    inches = ax.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    # In points of type from the corner of the axes; a layout may still move that, but hardly its scale.
    scale = 72.0 * inches * (box.width, box.height)
    places = scale * ax.transLimits.transform([(point.dependence, point.performance) for point in points])
    taken = [_Box(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    for point, (x, y) in zip(points, places, strict=True):
        if point.strength == 0:
            continue  # the legend says it
        text = f"{100.0 * point.budget:g} %" if point.budget is not None else f"{point.strength:g}"
        width = 0.62 * height * len(text)
        for dx, dy, side in _SIDES:
            left = x + dx - {"center": width / 2, "left": 0.0, "right": width}[side]
            here = _Box(left, y + dy, left + width, y + dy + height)
            if not any(here.hides(other) for other in taken):
                taken.append(here)
                ax.annotate(
                    text,
                    (point.dependence, point.performance),
                    xytext=(dx, dy),
                    textcoords="offset points",
                    ha=side,
                    fontsize="small",
                    path_effects=[withStroke(linewidth=2.5, foreground=ax.get_facecolor())],
                )
                break


class _Box(NamedTuple):
    """A rectangle by its left, lower, right and upper edge."""

    left: float
    low: float
    right: float
    high: float

    def hides(self, other: _Box) -> bool:
        """Whether the two have an area in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.low < other.high and other.low < self.high


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
    ax.stairs(
        0.11 * rows / rows.max(),
        grid,
        fill=True,
        color=CHANCE,
        alpha=0.5,
        transform=ax.get_xaxis_transform(),
        label="where the rows are",
    )
    ax.set_ylim(low - 0.16 * (high - low), high)
    ax.set_yticks(ticks)  # none beside the strip, which has no scale


def _label_rows(
    ax: Axes, points: NDArray[np.float64], mass: NDArray[np.float64], labels: Sequence[str], name: str
) -> None:
    """Write the labels of a categorical column and their shares beside the rows of a picture."""
    texts = [
        _plain(f"{shown(labels[int(point)], 28)} ({share:.0%})")
        for point, share in zip(points, mass, strict=True)
    ]
    ax.set_yticks(range(len(texts)), texts)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_ylim(len(texts) - 0.4, -0.6)  # the first label on top
    ax.set_ylabel(_plain(name))


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the stretches of True as half-open ranges."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return [(int(start), int(end)) for start, end in list(pairwise(edges))[::2]]


def _series(
    ax: Axes,
    epochs: Sequence[int],
    history: Sequence[Mapping[str, Any]],
    what: str,
    color: str,
    styles: tuple[str, str],
) -> list[Any]:
    lines = []
    keys = ((what, what), (f"validation_{what}", f"{what}, rows set aside"))
    for (key, words), style in zip(keys, styles, strict=True):
        values = [record.get(key) for record in history]
        if any(value is not None for value in values):
            heights = [math.nan if value is None else value for value in values]
            lines += ax.plot(
                epochs, heights, style, color=color, marker="o" if len(values) < 3 else "", label=words
            )
    return lines
