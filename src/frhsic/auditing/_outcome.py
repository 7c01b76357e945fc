"""What an audit says about the outcome along S: base rate, error rates at the thresholds, and the AUC."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from frhsic._checks import ArgumentError
from frhsic._text import number, percent
from frhsic.auditing._decisions import clip_curve, find_extremes
from frhsic.auditing._parts import ErrorRates
from frhsic.auditing._privacy import shown_points
from frhsic.inference import AUCCurve, Curve

if TYPE_CHECKING:
    from frhsic.auditing._parts import Column, Outcome
    from frhsic.auditing._subject import Subject

    Place = Callable[[float, Column], str]


class OutcomeCurves(NamedTuple):
    """The outcome along one attribute, each curve with a band at the confidence level of the audit."""

    curve: Curve | None = None
    absolute_error: Curve | None = None
    errors: tuple[ErrorRates, ...] = ()
    auc: AUCCurve | None = None


def find_outcome_curves(subject: Subject, column: Column | None) -> tuple[OutcomeCurves, tuple[str, ...]]:
    """Return the outcome along one attribute, and notes on what these rows do not give."""
    if column is None or subject.groups_lost:
        return OutcomeCurves(), ()
    level, notes = subject.settings.confidence_level, []
    curves: dict[str, Curve | None] = {}
    for name, what, part, most in (
        ("curve", "outcome", subject.of_outcome(), None if subject.favourable is None else 1.0),
        ("absolute_error", "absolute error", subject.of_absolute_error(), math.inf),
    ):
        try:
            curve = None if part is None else part.curve(level)
            curves[name] = curve if curve is None or most is None else clip_curve(curve, most)
        except ArgumentError as error:
            notes.append(f"No {what} along {column.name}: {error}")
    errors, more = _find_errors(subject)
    auc = None
    try:
        auc = subject.auc()
    except ArgumentError as error:
        more.append(f"No AUC along {column.name}: {error}")
    if auc is not None:
        more += [f"AUC along {column.name}: {note}" for note in auc.notes]
    return OutcomeCurves(**curves, errors=tuple(errors), auc=auc), (*notes, *more)


def _find_errors(subject: Subject) -> tuple[list[ErrorRates], list[str]]:
    """Return the error rates at each threshold that some scores are above and others not; notes."""
    errors: list[ErrorRates] = []
    notes: list[str] = []
    if subject.favourable is None or not subject.has_means:
        return errors, notes
    positive, negative = (
        next(part for label, part in subject.by_label() if (label == subject.favourable) is favourable)
        for favourable in (True, False)
    )
    scores = subject.rows.z
    for threshold in subject.settings.thresholds:
        if bool((scores > threshold).any()) and not bool((scores > threshold).all()):
            wrong, why = _rate(negative, threshold, "false positive")
            missed, why_not = _rate(positive, threshold, "false negative")
            errors.append(ErrorRates(threshold, wrong, None if missed is None else _complement(missed)))
            notes += [f"{note} along {subject.name}." for note in (why, why_not) if note]
    return errors, notes


def _rate(part: Subject, threshold: float, name: str) -> tuple[Curve | None, str]:
    """Return the share of scores above a threshold among the rows of one label, or why there is none."""
    why = f"No {name} rate at {number(threshold)}"
    if not part.is_sufficient():
        return None, f"{why}: {part.n:,} rows are too few, or do not vary"
    above = part.rows.z > threshold
    if bool((above == above[0]).all()):
        side = "above" if bool(above[0]) else "below or at"
        return None, f"{why}: all {part.n:,} rows are {side} it"
    try:
        return clip_curve(part.curve(part.settings.confidence_level, threshold)), ""
    except ArgumentError:  # too few groups, or hardly two rows at a value
        return None, f"{why}: the {part.n:,} rows give no variance"


def _complement(curve: Curve) -> Curve:
    """Return the curve of one minus what a curve is the mean of."""

    def flip(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(1.0 - x for x in values)

    return replace(
        curve,
        mean=flip(curve.mean),
        low=flip(curve.high),
        high=flip(curve.low),
        mean_low=flip(curve.mean_high),
        mean_high=flip(curve.mean_low),
        overall=1.0 - curve.overall,
    )


# ---- words -------------------------------------------------------------------------------------------------


def outcome_sentences(outcome: Outcome, column: Column, place: Place) -> list[str]:
    """Return what is said about the outcome along an attribute; ``place`` words a value of it."""
    label, lines = outcome.equal_opportunity, []
    if outcome.curve is not None:
        curve, write = outcome.curve, number if label is None else _percent
        what = "The mean outcome" if label is None else f"The rate of the outcome {label}"
        lines.append(f"{what} is {write(curve.overall)}{_between(curve, column, place, write)}.")
    if outcome.absolute_error is not None:
        curve = outcome.absolute_error
        text = f"The score is {number(curve.overall)} from the outcome on average"
        lines.append(f"{text}{_between(curve, column, place, number)}.")
    for one in outcome.errors:
        rates = [
            f"the false {name} rate is {_percent(curve.overall)}{_between(curve, column, place, _percent)}"
            for name, curve in (("positive", one.false_positive), ("negative", one.false_negative))
            if curve is not None
        ]
        if rates:
            lines.append(f"At the threshold {number(one.threshold)}, {'; '.join(rates)}.")
    if outcome.auc is not None:
        lines.append(auc_sentence(outcome.auc, column))
    return lines


def auc_sentence(auc: AUCCurve, column: Column) -> str:
    """Return the AUC overall, and in the windows where it is lowest and highest, with their intervals."""
    text, visible = f"The AUC is {number(auc.overall)}", shown_points(auc, column)
    if len(visible) < 2:
        return f"{text}; these rows give one window of {column.name} only."
    ends = (pick(visible, key=auc.auc.__getitem__) for pick in (min, max))
    least, most = (
        f"{number(auc.auc[i])} ({auc.name(i)}; {number(auc.low[i])} to {number(auc.high[i])})" for i in ends
    )
    share = percent(auc.confidence_level)
    return (
        f"{text}; along {column.name} it goes from {least} to {most}, with {share} intervals for all windows "
        "at once."
    )


def _between(curve: Curve, column: Column, place: Place, write: Callable[[float], str]) -> str:
    """Return where a curve is lowest and highest, in parentheses, or ""."""
    ends = find_extremes(curve, column)
    if ends is None:
        return ""
    low, high = (curve.mean_low or curve.low, curve.mean_high or curve.high)
    least, most = (
        f"{place(curve.points[i], column)}, {write(curve.mean[i])}, band {write(low[i])} to {write(high[i])}"
        for i in ends
    )
    return f" (lowest {least}; highest {most})"


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f}%"
