"""Rules that choose one model of a sweep over penalty weights or budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from frhsic._checks import ArgumentError
from frhsic.inference import EquivalenceResult, TestResult
from frhsic.selection._front import matched_point, pareto_front
from frhsic.selection._point import Point, check_points

R = TypeVar("R", TestResult, EquivalenceResult)


def first_not_rejected(
    points: Sequence[Point], *, alpha: float = 0.05, negligible: float | None = None
) -> int:
    """Return the weakest penalty at which independence is not rejected: a heuristic, without a guarantee.

    The paper's algorithm "HSIC-test-based lambda selection": from the weakest penalty to the strongest, stop
    at the first with ``test.pvalue > alpha`` or, in the practical-significance variant, with ``dependence <
    negligible``. If there is none, the strongest is returned.

    Parameters
    ----------
    points : sequence of Point
        Each with a ``test``; in any order.
    alpha : float, default=0.05
        The level of each test.
    negligible : float, optional
        A dependence below which a rejection is disregarded, in the units of ``dependence``; the paper
        suggests 1e-3 for HSIC. None: the plain rule.

    Returns
    -------
    int
        An index into ``points``.

    See Also
    --------
    last_equivalent : The rule with a guarantee.

    Notes
    -----
    Not rejected is not independent: with few rows, or a weak test, the first model of the sweep passes
    whatever its dependence; with many rows none may pass, and the strongest is returned though its test
    rejected. Nor does the level carry over to the rule: it goes through tests until one does not reject. The
    variant compares an estimate, not a confidence limit, with ``negligible``.

    Examples
    --------
    >>> def judged(p):
    ...     return TestResult(0.01, p, "permutation", "HSIC", ("age",), 500, True)
    >>> sweep = [Point(lam, 0.8, 0.1 / lam, test=judged(p)) for lam, p in [(1, 0.01), (10, 0.02), (100, 0.3)]]
    >>> first_not_rejected(sweep), first_not_rejected(sweep, negligible=0.02)
    (2, 1)
    """
    _check_alpha(alpha)
    if negligible is not None and not negligible > 0:
        fix = "Leave it out for the test alone."
        raise ArgumentError("negligible", "be a positive number or None", repr(negligible), fix)
    order = _sort(points)
    tests = _require([point.test for point in points], "test", "independence", "test=True")
    for index in order:
        if tests[index].pvalue > alpha or (negligible is not None and points[index].dependence < negligible):
            return index
    return order[-1]


def last_equivalent(points: Sequence[Point], *, alpha: float = 0.05) -> int | None:
    """Return the weakest penalty reached by fixed-sequence testing whose dependence is shown to be small.

    From the strongest penalty to the weakest, each model's equivalence test is made at level ``alpha``; it
    passes if ``equivalence.pvalue <= alpha``. Testing stops at the first failure, and the last pass is
    returned. Then, over validation samples,

        P(a model is returned and its dependence is at least the tolerance) <= alpha.

    Parameters
    ----------
    points : sequence of Point
        Each with an ``equivalence``, all with one tolerance; in any order.
    alpha : float, default=0.05
        The level of each test, and of the whole.

    Returns
    -------
    int or None
        An index into ``points``; None if not even the strongest penalty passes. A larger validation sample, a
        stronger penalty or a larger tolerance may help; the last must not be chosen by looking at these rows.

    See Also
    --------
    first_not_rejected : The paper's heuristic.

    Notes
    -----
    The guarantee needs the models, their order, the tolerance and ``alpha`` to be fixed before the held-out
    rows are looked at, and each test to have level ``alpha`` for its own model. If the tests have their level
    for large n only, so has the rule.

    Proof. Fix the trained models (condition on the training rows), of true dependence d_1, ..., d_K in the
    order of testing. If all are below the tolerance, no error can be made. Otherwise let j be the first with
    d_j at least the tolerance; j is not random. The models before j are below it, so an error means that
    some k >= j is returned; k is returned only if tests 1, ..., k all pass, test j among them. Hence P(error)
    <= P(test j passes) <= alpha, because its null hypothesis is true. Averaging over the training rows keeps
    the bound.

    One test only enters the bound. So there is no correction for the number of models, the tests may depend
    on each other in any way (they mostly share their rows), and the dependence need not fall with the
    penalty weight: where it does not, the rule only stops earlier. Taking the weakest penalty that passes,
    without stopping at a failure, has no such guarantee. The guarantee is about the tolerance: the model's
    own upper limit (``Point.upper``) is not corrected for the choice.

    Examples
    --------
    >>> def judged(p):
    ...     return EquivalenceResult(0.01, 0.05, p, 0.04, 0.05, "GDP", "smoothed", "normal", ("age",), 500)
    >>> sweep = [(1, 0.04), (10, 0.2), (100, 0.03), (1000, 0.001)]
    >>> last_equivalent([Point(lam, 0.8, 0.01, equivalence=judged(p)) for lam, p in sweep])
    2
    """
    _check_alpha(alpha)
    order = _sort(points, strongest_first=True)
    tests = _require([point.equivalence for point in points], "equivalence", "equivalence", "tolerance=...")
    tolerances = sorted({test.tolerance for test in tests})
    if len(tolerances) > 1:
        got = ", ".join(f"{value:g}" for value in tolerances)
        fix = "Test every model against the tolerance that was fixed beforehand."
        raise ArgumentError("points", "have one tolerance", got, fix)
    passed = None
    for index in order:
        if not tests[index].pvalue <= alpha:  # nan fails
            break
        passed = index
    return passed


def lowest_dependence(points: Sequence[Point]) -> int:
    """Return the model of lowest dependence, whatever its performance.

    Of equal dependences the one of better performance, then the first. A constant prediction has none: look
    at the performance of what is returned, or take :func:`lowest_dependence_within`.

    Parameters
    ----------
    points : sequence of Point

    Returns
    -------
    int
        An index into ``points``.

    Examples
    --------
    >>> lowest_dependence([Point(0, 0.85, 0.07), Point(1, 0.84, 0.03), Point(10, 0.76, 0.01)])
    2
    """
    return pareto_front(points)[0]


def lowest_dependence_within(points: Sequence[Point], *, tolerance: float = 0.01) -> int:
    """Return the model of lowest dependence that performs nearly as well as the weakest penalty.

    The weakest penalty is the unconstrained model where the sweep has it, the best performing one in a sweep
    over several kinds of models. This is the matched point of the paper's tables; see
    :func:`matched_point`.

    Parameters
    ----------
    points : sequence of Point
    tolerance : float, default=0.01
        The share of the performance that may be lost, or by which an error may grow where the performance is
        minus an error.

    Returns
    -------
    int
        An index into ``points``; that of the weakest penalty where no other is within the tolerance.

    Notes
    -----
    On few validation rows 1 % is less than the error of the performance: with 1,000 rows an accuracy of 0.85
    has a standard error of 0.011 (less for a difference of two models, which mostly agree).

    Examples
    --------
    >>> lowest_dependence_within([Point(0, 0.85, 0.07), Point(1, 0.845, 0.03), Point(10, 0.76, 0.01)])
    1
    """
    weakest = points[find_weakest(points)]
    chosen = matched_point(points, weakest, tolerance=tolerance)
    assert chosen is not None  # noqa: S101 - the weakest is within any tolerance of itself
    return chosen


def best_within_limit(points: Sequence[Point]) -> int | None:
    """Return the best performing model that does not miss the loosest limit asked.

    Models of tighter limits are the fall-back where that of the loosest misses it. The default rule of a
    search with limits.

    Parameters
    ----------
    points : sequence of Point
        Each with ``missed``.

    Returns
    -------
    int or None
        An index into ``points``; None where every model misses the limit. Of equal performances the one of
        lower dependence, then the first.

    Notes
    -----
    Not missed is not shown to be kept: that needs rows that took no part in training, steering or choosing.

    Examples
    --------
    >>> sweep = [(0.85, 0.09, True), (0.83, 0.06, True), (0.80, 0.03, False), (0.76, 0.02, False)]
    >>> best_within_limit([Point(0, p, d, missed=missed) for p, d, missed in sweep])
    2
    """
    check_points(points)
    for index, point in enumerate(points):
        if point.missed is None:
            fix = "Train models with limits: FrontierSearch(limits=...)."
            raise ArgumentError("points", "all have their 'missed'", f"None at index {index}", fix)
    within = [index for index, point in enumerate(points) if not point.missed]
    return max(within, key=lambda i: (points[i].performance, -points[i].dependence), default=None)


def knee(points: Sequence[Point]) -> int:
    """Return the model of the Pareto front that lies furthest above the chord between the front's ends.

    Both axes are scaled so that the front runs from (0, 0), its lowest dependence, to (1, 1), its best
    performance. The distance from the chord is then proportional to

        (scaled performance) - (scaled dependence),

    what is kept of the performance beyond what is kept of the dependence.

    Parameters
    ----------
    points : sequence of Point

    Returns
    -------
    int
        An index into ``points``. Of equal distances the lower dependence: so also where the front has fewer
        than three models, or none above its chord, and there is no knee to speak of.

    Notes
    -----
    The ends of the sweep scale the axes, so a stronger last penalty may move the knee. No tolerance is kept.

    Examples
    --------
    >>> knee([Point(0, 0.85, 0.07), Point(1, 0.845, 0.03), Point(5, 0.82, 0.02), Point(10, 0.76, 0.01)])
    1
    """
    front = pareto_front(points)
    first, last = points[front[0]], points[front[-1]]
    if len(front) < 3:
        return front[0]

    def above(index: int) -> float:
        performance = (points[index].performance - first.performance) / (last.performance - first.performance)
        return performance - (points[index].dependence - first.dependence) / (
            last.dependence - first.dependence
        )

    return max(front, key=above)


def find_weakest(points: Sequence[Point]) -> int:
    """Return the model of the weakest penalty; of several kinds of models the best performing one."""
    order = _sort(points)
    least = points[order[0]].penalty_weight
    equal = [index for index in order if points[index].penalty_weight == least]
    if any(points[index].model is None for index in equal):
        return order[0]
    return max(equal, key=lambda index: points[index].performance)


def _sort(points: Sequence[Point], *, strongest_first: bool = False) -> list[int]:
    """Return the indices by penalty weight, equal ones as given: an order validation rows cannot change."""
    check_points(points)
    sign = -1.0 if strongest_first else 1.0
    return sorted(range(len(points)), key=lambda index: sign * points[index].penalty_weight)


def _require(results: list[R | None], name: str, of: str, keyword: str) -> list[R]:
    for index, result in enumerate(results):
        if result is None:
            fix = f"Make a test of {of} on validation rows for every model: FrontierSearch({keyword})."
            raise ArgumentError("points", f"all have their '{name}'", f"None at index {index}", fix)
    return [result for result in results if result is not None]


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ArgumentError("alpha", "be between 0 and 1", repr(alpha), "The usual level is 0.05.")
