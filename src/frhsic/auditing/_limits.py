"""Limits that were fixed before the rows were looked at, and whether an audit shows them to be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from frhsic._checks import ArgumentError, is_number
from frhsic._text import number
from frhsic.auditing._measures import MEASURES
from frhsic.auditing._parts import Estimate, Limit, State
from frhsic.inference import Interval

if TYPE_CHECKING:
    from frhsic.auditing._results import Attribute, Audit

# Of decisions: the gap at each threshold.
DECISION_MEASURE: Final = "gap_at"
# Beside the outcome: the gap within the favourable label, within each label, and of outcome minus score.
OUTCOME_MEASURES: Final = ("equal_opportunity", "equalized_odds", "calibration_gap")

# What is compared with a limit.
ENDS: Final = ("lower", "upper", "estimate")


def read_limits(limits: Mapping[str, Any] | None) -> dict[str, float]:
    """Return limits by the name of a measure, as numbers."""
    found = {}
    for name, value in (limits or {}).items():
        known = (*MEASURES, DECISION_MEASURE, *OUTCOME_MEASURES)
        if name not in known:
            must = f"name measures among {', '.join(known)}"
            raise ArgumentError("limits", must, repr(str(name)[:40]), "Pass {'gap': 0.05}, say.")
        if not (is_number(value) and float(value) >= 0.0):
            must = f"have a number of at least 0 for {name}"
            raise ArgumentError("limits", must, repr(value)[:40], "Pass {'gap': 0.05}, say.")
        found[name] = float(value)
    return found


def find_limits(found: Audit, limits: Mapping[str, float]) -> tuple[Limit, ...]:
    """Return each limit beside the numbers it is about, on each attribute."""
    made = []
    for name, at_most in limits.items():
        for one in found.attributes:
            for title, measured in select_numbers(one, name):
                made.append(judge(name, f"{title} on {one.name}", one.name, measured, at_most))
    return tuple(made)


def judge(
    measure: str, title: str, attribute: str, measured: Interval | Estimate | None, at_most: float
) -> Limit:
    """Return a limit beside one number."""
    if measured is None:
        return Limit(measure, attribute, title, at_most, None, None, None, "not measured")
    low = high = measured.estimate
    ends: tuple[float | None, float | None] = (None, None)
    if isinstance(measured, Interval):
        low, high = measured.low, measured.high
        ends = low, high
    state: State = "passed" if high <= at_most else ("failed" if low > at_most else "not shown")
    return Limit(measure, attribute, title, at_most, measured.estimate, *ends, state)


def select_numbers(one: Attribute, name: str) -> list[tuple[str, Interval | Estimate | None]]:
    """Return what a limit is about: one measure, or one for each threshold or label of the outcome."""
    if name in MEASURES:
        return [(MEASURES[name].short, one.measures.get(name))]
    if name == DECISION_MEASURE:
        return [(f"gap of decisions at {number(each.threshold)}", each.gap) for each in one.decisions] or [
            ("gap of decisions", None)
        ]
    if name == "calibration_gap":
        return [("calibration gap", None if one.outcome is None else one.outcome.calibration_gap)]
    return list(_within_outcomes(one, name)) or [(name.replace("_", " "), None)]


def _within_outcomes(one: Attribute, name: str) -> Iterator[tuple[str, Interval | None]]:
    outcome = one.outcome
    for part in () if outcome is None else outcome.labels:
        if outcome is not None and (name == "equalized_odds" or part.label == outcome.equal_opportunity):
            yield f"GDP where the outcome is {part.label},", part.gdp


# ---- words -------------------------------------------------------------------------------------------------


def limit_sentence(one: Limit, level: float) -> str:
    """Return one limit in words."""
    limit = number(one.at_most)
    if one.estimate is None:
        return f"{one.title} cannot be measured on these rows, so that it is not shown to keep {limit}."
    if one.low is None or one.high is None:
        side = "above" if one.state == "failed" else "not above"
        return f"{one.title} is {number(one.estimate)}, which is {side} {limit}. It has no interval."
    ends = f"{100 * level:g}% interval {number(one.low)} to {number(one.high)}"
    verdict = {
        "passed": f"is shown to be at most {limit} ({ends})",
        "failed": f"is shown to be above {limit} ({ends})",
        "not shown": f"is {number(one.estimate)}; the {ends} holds the limit {limit}: these rows leave open "
        "on which side the true value is",
    }[one.state]
    return f"{one.title} {verdict}."
