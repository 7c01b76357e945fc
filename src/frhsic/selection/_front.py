"""The frontier of a sweep: its Pareto front, the area under it, and its point at matched performance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.integrate import trapezoid

from frhsic._checks import ArgumentError
from frhsic.selection._point import Point, check_points

_GRID = 201  # budgets at which the published area is summed


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Return the models that no other beats: none has less dependence without less performance.

    A model is beaten by another that is at least as good in both and better in one. Of models that are equal
    in both the first is kept. So both dependence and performance rise strictly along the front.

    Parameters
    ----------
    points : sequence of Point
        In any order.

    Returns
    -------
    list of int
        Indices into ``points``, from the lowest dependence to the highest.

    Examples
    --------
    >>> pareto_front([Point(0, 0.85, 0.07), Point(1, 0.84, 0.03), Point(5, 0.83, 0.04), Point(9, 0.76, 0.0)])
    [3, 1, 0]
    """
    check_points(points, finite=True)
    front: list[int] = []
    best = -math.inf
    for index in sorted(range(len(points)), key=lambda i: (points[i].dependence, -points[i].performance)):
        if points[index].performance > best:
            front.append(index)
            best = points[index].performance
    return front


def naup(
    points: Sequence[Point],
    unfair: Point,
    *,
    limits: tuple[float, float],
    judged: tuple[Sequence[Point], Point] | None = None,
) -> float:
    """Return the normalised area under the Pareto envelope: the mean utility kept over all budgets.

    With the utility u = (performance - low) / (high - low) and the budget g = dependence / dependence of the
    unconstrained model, cut to [0, 1], the envelope U(g) is the utility of the best performing model of
    budget at most g, 0 where there is none, and

        nAUP = integral of U(g) over g in [0, 1], by the trapezoidal rule on 201 points.

    Parameters
    ----------
    points : sequence of Point
        The models of one method.
    unfair : Point
        The unconstrained model, on the same rows.
    limits : tuple of float
        ``(low, high)``: the performances of utility 0 and 1. Utilities outside are not cut.
    judged : tuple of (sequence of Point, Point), optional
        The same models in the same order, and the unconstrained one, on other rows. Models are then picked by
        their performance in ``points`` and valued by that in ``judged``, to which ``limits`` refer, and a
        model counts from the budget that it keeps on both.

    Returns
    -------
    float
        1 for a model that has the performance ``high`` without dependence.

    Notes
    -----
    Two readings:

    *Published.* ``limits`` are the least and the greatest performance of all methods on the dataset, the
    unconstrained model included, and there is no ``judged``. A single collapsed run of any method then moves
    the value of every other, and the envelope is the best of noisy values on the rows that it reports:
    methods with denser grids gain.

    *Sound.* ``limits`` are the performance of a constant prediction (the commonest class, the mean) and that
    of the unconstrained model on test rows; ``points`` come from validation rows and ``judged`` from test
    rows; one value for each split. Performance on test rows then picks nothing, and their dependence can only
    take credit away.

    Examples
    --------
    >>> unfair = Point(0, 0.9, 0.1)
    >>> sweep = [Point(1, 0.9, 0.05), Point(10, 0.8, 0.0)]
    >>> round(naup(sweep, unfair, limits=(0.7, 0.9)), 4)  # 0.5 up to half of the budget, 1 from there on
    0.7512
    """
    check_points(points, finite=True)
    low, high = limits
    if not low < high:
        fix = "Pass the performances of utility 0 and 1."
        raise ArgumentError("limits", "be (low, high) with low < high", f"({low!r}, {high!r})", fix)
    valued, other = (points, unfair) if judged is None else judged
    check_points(valued, finite=True)
    if len(valued) != len(points):
        must = f"hold the {len(points)} models of 'points', in their order"
        raise ArgumentError("judged", must, len(valued), "Judge every model on both sets of rows.")
    budgets = np.maximum(_budgets(points, unfair), _budgets(valued, other))
    grid = np.linspace(0.0, 1.0, _GRID)
    envelope = np.zeros(_GRID)
    # From the worst to the best (of equals the lower dependence): each takes over from its budget on.
    for index in sorted(range(len(points)), key=lambda i: (points[i].performance, -points[i].dependence)):
        envelope[grid >= budgets[index]] = (valued[index].performance - low) / (high - low)
    return float(trapezoid(envelope, grid))


def matched_point(points: Sequence[Point], unfair: Point, *, tolerance: float = 0.01) -> int | None:
    """Return the model of lowest dependence whose performance is within a tolerance of the unconstrained one.

    Parameters
    ----------
    points : sequence of Point
        The models of one method.
    unfair : Point
        The unconstrained model, on the same rows.
    tolerance : float, default=0.01
        Relative: an accuracy of at least 0.99 times that of ``unfair``, or, where the performance is minus an
        error and so negative, an error of at most 1.01 times its error.

    Returns
    -------
    int or None
        An index into ``points``, None where no model is within the tolerance. Of equal dependences the one
        of better performance, then the first.

    Examples
    --------
    >>> unfair = Point(0, -0.0191, 0.029)  # minus the mean squared error
    >>> matched_point([Point(1, -0.0192, 0.027), Point(10, -0.0194, 0.02)], unfair)
    0
    """
    check_points(points, finite=True)
    if not 0 <= tolerance < 1:
        must = "be a share of at least 0 and below 1"
        raise ArgumentError("tolerance", must, repr(tolerance), "0.01 is 1 %.")
    reference = unfair.performance
    least = reference * (1.0 - tolerance if reference >= 0 else 1.0 + tolerance)
    within = [index for index, point in enumerate(points) if point.performance >= least]
    return min(within, key=lambda i: (points[i].dependence, -points[i].performance), default=None)


def _budgets(points: Sequence[Point], unfair: Point) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return dependences as shares of that of the unconstrained model, cut to [0, 1]."""
    if not 0 < unfair.dependence < math.inf:
        fix = "Without any there is nothing to lower: take a measure that sees some."
        raise ArgumentError("unfair", "have a positive dependence", repr(unfair.dependence), fix)
    return np.clip([point.dependence / unfair.dependence for point in points], 0.0, 1.0)
