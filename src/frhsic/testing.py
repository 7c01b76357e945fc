"""Assertions for tests: a score keeps a limit on its dependence on sensitive columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from frhsic._checks import ArgumentError
from frhsic._text import join_lines, list_names
from frhsic.auditing import ENDS, MEASURES, limit_sentence, measure_limits

__all__ = ["assert_gap_below"]

_COMPARED = {
    "upper": "the upper end of the interval",
    "estimate": "the estimate",
    "lower": "the lower end of the interval",
}


def assert_gap_below(
    scores: object,
    sensitive_features: object,
    limit: float,
    *,
    on: Literal["upper", "estimate", "lower"] = "upper",
    measure: str = "gap",
    sample_weight: object = None,
    groups: object = None,
    kinds: str | Mapping[str, str] | None = None,
    confidence_level: float = 0.95,
    random_state: object = 0,
) -> None:
    """Raise AssertionError unless the gap of the score is at most a limit, on each sensitive column.

    Parameters
    ----------
    scores : array or frame of shape (n,) or (n, d)
        Scores of rows that were not used for training; at least 50.
    sensitive_features : array or frame of shape (n,) or (n, q)
        Numbers are continuous, labels categorical; ``kinds`` overrides.
    limit : float
        In the unit of the measure; that of the gap is the unit of the score.
    on : {"upper", "estimate", "lower"}, default="upper"
        What is compared with the limit, as for ``frhsic audit --fail-on``. "upper": the upper end of the
        interval, so that passing shows that the gap is at most the limit. "lower": only a gap that is shown
        to be above the limit fails. "estimate": neither is shown.
    measure : str, default="gap"
        A name of :data:`frhsic.auditing.MEASURES`.
    sample_weight, groups, kinds, confidence_level
        As in :func:`frhsic.audit`, whose number and interval these are.
    random_state : int, generator or None, default=0
        With an int, the same rows always give the same answer.

    Raises
    ------
    AssertionError
        With a sentence for each column on which the limit is not kept, or the measure cannot be computed.

    Notes
    -----
    If the gap of the population is above the limit, ``on="upper"`` passes in at most 1 - confidence_level of
    samples. With several columns all must pass, so that this holds for each of them.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(18, 90, 1_000)
    >>> score = 0.002 * age + 0.1 * rng.normal(size=1_000)
    >>> assert_gap_below(score, {"age": age}, 0.06)
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    _check_arguments(limit, on, measure)
    found, notes = measure_limits(
        scores,
        {measure: float(limit)},
        sensitive_features=sensitive_features,
        sample_weight=sample_weight,
        kinds=kinds,
        groups=groups,
        confidence_level=confidence_level,
        random_state=random_state,
    )
    failed = [limit_sentence(one, confidence_level) for one in found if one.exceeds(on)]
    if failed:
        compared = f"Compared with the limit: {_COMPARED[on]} (on={on!r})."
        raise AssertionError(join_lines((*failed, *notes, compared)))


def _check_arguments(limit: float, on: str, measure: str) -> None:
    if not limit >= 0.0:
        raise ArgumentError("limit", "be a number of at least 0", repr(limit), "Pass 0.05, say.")
    if on not in ENDS:
        raise ArgumentError("on", f"be one of {', '.join(ENDS)}", repr(on), "Leave it out for upper.")
    if measure not in MEASURES:
        fix = f"Take one of {list_names(list(MEASURES), most=20)}."
        raise ArgumentError("measure", "be a measure of an audit", repr(measure), fix)
    if on != "estimate" and not MEASURES[measure].has_interval:
        must = f"have an interval for on={on!r}"
        raise ArgumentError("measure", must, repr(measure), "Pass on='estimate', or another measure.")
