"""The plot of a frontier: models by performance and dependence, with labels that do not overlap."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

from frhsic._checks import ArgumentError
from frhsic.report._plots import CHANCE, MAIN, SECOND, draw_legend, escape_dollars, prepare_axes
from frhsic.selection import Point, pareto_front


def plot_frontier(
    points: Sequence[Point],
    *,
    chosen: int | None = None,
    dependence: str = "dependence",
    performance: str = "performance",
    ax: Axes | None = None,
) -> Axes:
    """Draw the models of a sweep, performance against dependence, and the front of those that none beats.

    Each kind of model has its marker. Beside the models are their budgets in percent, their limits, or their
    penalty weights. Bars are the confidence intervals of each model by itself, where there are some. The
    front is drawn in steps: between two models there is none.

    Parameters
    ----------
    points : sequence of Point
    chosen : int, optional
        The model to mark, such as ``best_index_`` of a search.
    dependence, performance : str
        What the axes hold.
    ax : Axes, optional
        None makes a figure.

    Examples
    --------
    >>> points = [Point(0.0, 0.85, 0.07), Point(10.0, 0.83, 0.01, budget=0.1)]
    >>> plot_frontier(points, chosen=1, performance="accuracy").get_ylabel()
    'accuracy'
    """
    if not points:
        raise ArgumentError("points", "hold at least one Point", "none", "Pass the models of a sweep.")
    if chosen is not None and chosen not in range(len(points)):
        must = f"be an index below {len(points)} or None"
        raise ArgumentError("chosen", must, repr(chosen), "Pass best_index_.")
    ax = prepare_axes(ax)
    _draw_bars(ax, points)
    # In steps up to the greatest dependence: the last model of the front stays available there.
    front = [points[index] for index in pareto_front(points)]
    x = [*(point.dependence for point in front), max(point.dependence for point in points)]
    y = [*(point.performance for point in front), front[-1].performance]
    ax.step(x, y, where="post", color=MAIN, linewidth=1.6, label="best with at most this", zorder=2.2)
    kinds = dict.fromkeys(point.model for point in points)
    for kind, marker in zip(kinds, itertools.cycle("o^Dv"), strict=False):
        own = [point for point in points if point.penalty_weight != 0 and point.model == kind]
        name = escape_dollars(kind or "models")
        # The line may pass through a model that another one beats: it is drawn hollow.
        beaten = [point for point in own if point not in front]
        _draw_models(ax, [point for point in own if point in front], name, marker, MAIN)
        _draw_models(ax, beaten, f"{name}, beaten by another", marker, MAIN, hollow=True)
    _draw_models(ax, [point for point in points if point.penalty_weight == 0], "unconstrained", "s", CHANCE)
    if chosen is not None:
        ring: dict[str, Any] = {"fillstyle": "none", "markersize": 13, "markeredgewidth": 1.8, "zorder": 2.6}
        point = points[chosen]
        ax.plot(point.dependence, point.performance, "o", color=SECOND, label="chosen", **ring)
    ax.margins(x=0.08, y=0.12)
    ax.set(xlabel=f"{escape_dollars(dependence)} (less is to the left)", ylabel=escape_dollars(performance))
    _label_points(ax, points)
    draw_legend(ax)
    return ax


def _draw_bars(ax: Axes, points: Sequence[Point]) -> None:
    """Draw the interval of each model that has one; without a lower limit it starts at the point itself."""
    bars = [
        (
            point.performance,
            point.dependence,
            0.0 if point.lower is None else max(point.dependence - point.lower, 0.0),
            max(point.upper - point.dependence, 0.0),
        )
        for point in points
        if point.upper is not None
    ]
    if bars:
        y, x, left, right = zip(*bars, strict=True)
        style: dict[str, Any] = {"fmt": "none", "ecolor": MAIN, "elinewidth": 1.0, "alpha": 0.45}
        ax.errorbar(x, y, xerr=np.array([left, right]), capsize=2.5, label="interval of each model", **style)


def _draw_models(
    ax: Axes, points: Sequence[Point], label: str, marker: str, color: str, *, hollow: bool = False
) -> None:
    if points:
        x, y = [point.dependence for point in points], [point.performance for point in points]
        edge: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.8}  # keeps neighbours apart
        if hollow:
            edge = {"markeredgecolor": color, "markeredgewidth": 1.2, "markerfacecolor": ax.get_facecolor()}
        ax.plot(x, y, marker, color=color, markersize=6.5, label=label, zorder=2.4, **edge)


# Where a label may stand beside its point, in points of type. A front comes from below, leaves to the right.
_SIDES = ((0.0, 8.0, "center"), (0.0, -17.0, "center"), (-8.0, -4.0, "right"), (8.0, -4.0, "left"))


def _label_points(ax: Axes, points: Sequence[Point]) -> None:
    """Write budget or penalty weight beside each model, unless it would hide a model or a label."""
    ax.autoscale_view()  # limits are worked out late, and are needed here
    height = FontProperties(size="small").get_size_in_points()
    box = ax.get_position()
    inches = ax.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    # In points of type from the corner of the axes; a layout may still move that, but hardly its scale.
    scale = 72.0 * inches * (box.width, box.height)
    places = scale * ax.transLimits.transform([(point.dependence, point.performance) for point in points])
    taken = [Bbox.from_extents(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    for point, (x, y) in zip(points, places, strict=True):
        if point.penalty_weight == 0:
            continue  # the legend says it
        text = point.limit or f"{point.penalty_weight:g}"
        if point.budget is not None:
            text = f"{100.0 * point.budget:g} %"
        width = 0.62 * height * len(text)
        for dx, dy, side in _SIDES:
            left = x + dx - {"center": width / 2, "left": 0.0, "right": width}[side]
            here = Bbox.from_extents(left, y + dy, left + width, y + dy + height)
            middle = np.array([left + width / 2, y + dy + height / 2])
            # Nearer to another model, a label would be read as that one's.
            nearest = int(np.linalg.norm(places - middle, axis=1).argmin())
            own = bool((places[nearest] == (x, y)).all())
            if own and not any(here.overlaps(other) for other in taken):
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
