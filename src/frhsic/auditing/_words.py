"""The summary of an audit in plain words, made from its claims and numbers, without a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from frhsic._text import join_words, number, percent, to_paragraph
from frhsic.auditing._decisions import decision_sentences, headline
from frhsic.auditing._explained import explanation_sentences
from frhsic.auditing._measures import MEASURES
from frhsic.auditing._outcome import outcome_sentences
from frhsic.auditing._privacy import shown_points
from frhsic.auditing._results import Attribute, Audit, Renderers
from frhsic.inference import Curve, CurveChange, Profile, TestResult

if TYPE_CHECKING:
    from frhsic.auditing._parts import Claim, Column, Outcome

LIMITS = (
    "What this does not show: why the dependence exists, whether it is justified or lawful, or how the model "
    "treats people outside the population of these rows."
)


ROW_SECURITY = (
    "Row-level security of the database chose these rows: they are those that this user may see, and another "
    "user would get other numbers."
)


def leading_notes(audit: Audit) -> tuple[str, ...]:
    """Return the notes that stand above all numbers: of rows of training, and of rows that a policy chose."""
    training = audit.notes[:1] if audit.trained_on else ()
    return (*training, *(note for note in audit.notes if note == ROW_SECURITY))


def sentences(audit: Audit) -> tuple[str, ...]:
    """Return the summary of an audit: a paragraph for each attribute with its claims and numbers."""
    lines = list(leading_notes(audit))
    columns = {column.name: column for column in audit.columns}
    for found in audit.attributes:
        column = columns[found.names[0]]
        numbers = (measure.sentence(found, audit.score) for measure in MEASURES.values())
        parts = (
            dependence_sentence(found, audit),
            *filter(None, (headline(found, audit.score), *numbers)),
            *_places_of(found, column, audit),
        )
        lines.append(" ".join(parts))
        if audit.score is not None:
            lines += decision_sentences(found, column, audit.score, place)
            lines += explanation_sentences(found, audit.score)
        if found.outcome is not None:
            lines.append(" ".join(_outcome(found, found.outcome, column, audit)))
            lines.append(" ".join(outcome_sentences(found.outcome, column, place)))
    if audit.joint is not None:
        lines.append(" ".join(_joint(audit.joint, audit)))
    return (*map(to_paragraph, filter(None, lines)), confidence_sentence(audit), LIMITS)


def confidence_sentence(audit: Audit) -> str:
    """Return the confidence of all statements together, and of each interval."""
    share = percent(audit.confidence_level)
    if not audit.claims:
        return f"This audit states nothing about the population. Each interval has {share} confidence."
    return (
        f"All statements about the population (whether {_subject(audit)} depends on an attribute, and at "
        f"which values) hold together with {share} confidence. Each interval has {share} by itself."
    )


def _subject(audit: Audit) -> str:
    return "the score" if audit.subject == "score" else f"the representation ({audit.width} columns)"


def dependence_sentence(found: Attribute, audit: Audit) -> str:
    """Return whether the score is shown to depend on an attribute."""
    subject, p = _subject(audit), _p_value(found.test)
    if "depends" in audit.find_claims("dependence", found.names):
        return f"{subject[:1].upper()}{subject[1:]} depends on {found.name} ({p})."
    single = "" if found.kind == "joint" else f" Single values of {found.name} are then not tested."
    return (
        f"These rows do not show that {subject} depends on {found.name} ({p}). This is no evidence of "
        "independence: the intervals show how much dependence is compatible with these rows." + single
    )


def _p_value(test: TestResult) -> str:
    corrected = "" if test.adjusted is None else ", corrected for all tests of this audit"
    groups = "" if test.n_rows is None else f" groups of {test.n_rows:,} rows"
    return f"p = {number(test.reported)}{corrected}, n = {test.n:,}{groups}"


def _places_of(found: Attribute, column: Column, audit: Audit) -> list[str]:
    """Return at which values of an attribute the score is shown to differ."""
    claims = audit.find_claims("dependence", found.names)
    if "depends" not in claims:
        return []
    if found.curve is not None and ("above" in claims or "below" in claims):
        curve = found.curve
        sides = _sides(claims, curve, column, "the overall mean")
        text = f"The mean score is {sides} ({_resolution(curve)})."
        peak = largest_difference(curve, column)
        if peak is not None:
            text += f" In this sample the difference is largest {place(curve.points[peak], column)}."
        return [text]
    if found.profile is not None and "differs" in claims:
        profile = found.profile
        where = places(claims["differs"].points, profile, column)
        return [f"Its distribution differs from the overall distribution {where}."]
    return [f"These rows do not show at which values of {column.name}."]


def largest_difference(curve: Curve, column: Column) -> int | None:
    """Return the point of at least ten rows at which the mean is farthest from the overall mean."""
    points = shown_points(curve, column)
    return max(points, key=lambda i: abs(curve.mean[i] - curve.overall)) if points else None


def _resolution(curve: Curve) -> str:
    """Return what the mean is taken over at a place along the attribute."""
    if not curve.start:
        return f"this is about {curve.target}"
    ranges = sum(below < above for below, above in zip(curve.start, curve.stop, strict=True))
    return f"on average within {ranges} ranges" if ranges else "value by value"


def _sides(claims: Mapping[str, Claim], curve: Curve, column: Column, line: str) -> str:
    return " and ".join(
        f"{says} {line} {places(claims[says].points, curve, column)}"
        for says in ("above", "below")
        if says in claims
    )


def _outcome(found: Attribute, outcome: Outcome, column: Column, audit: Audit) -> list[str]:
    """Return the sentences beside the outcome: within each label, and outcome minus score."""
    name, lines = found.name, []
    if outcome.equalized_odds is not None:
        lines.append(_within_outcomes(found, outcome.equalized_odds, audit))
    for one in outcome.labels:
        favourable = " (equal opportunity)" if one.label == outcome.equal_opportunity else ""
        if one.gdp is not None and audit.score is not None:
            gap, low, high = map(audit.score.format_gap, (one.gdp.estimate, one.gdp.low, one.gdp.high))
            lines.append(
                f"Where the outcome is {one.label}{favourable}, the mean score at a value of {name} differs "
                f"from the mean of these rows by {gap} {audit.score.gap_unit} on average "
                f"({percent(one.gdp.confidence_level)} interval {low} to {high})."
            )
        claims = audit.find_claims("within outcomes", found.names, one.label)
        if claims and one.curve is not None:
            sides = _sides(claims, one.curve, column, "the mean of these rows")
            lines.append(f"There the mean score is {sides} ({_resolution(one.curve)}).")
    if outcome.calibration is not None:
        claims = audit.find_claims("calibration", found.names)
        lines.append(
            f"The outcome is on average {_sides(claims, outcome.calibration, column, 'the score')} "
            f"({_resolution(outcome.calibration)})."
            if claims
            else f"These rows do not show a value of {name} at which the outcome differs from the score on "
            "average. This is no evidence that there is none."
        )
    return lines


def _within_outcomes(found: Attribute, test: TestResult, audit: Audit) -> str:
    subject, p = _subject(audit), _p_value(test)
    if "depends" in audit.find_claims("within outcomes", found.names):
        return f"Among rows of the same outcome {subject} depends on {found.name} ({p})."
    return (
        f"These rows do not show that {subject} depends on {found.name} among rows of the same outcome "
        f"({p}). This is no evidence of independence."
    )


def _joint(joint: Attribute, audit: Audit) -> list[str]:
    lines = [f"Jointly: {dependence_sentence(joint, audit)}"]
    single = any(audit.find_claims("dependence", found.names) for found in audit.attributes)
    if "depends" in audit.find_claims("dependence", joint.names) and not single:
        lines.append("These rows do not show on which of them.")
    if joint.outcome is not None and joint.outcome.equalized_odds is not None:
        lines.append(_within_outcomes(joint, joint.outcome.equalized_odds, audit))
    return lines


def place(point: float, column: Column) -> str:
    """Return one value of an attribute, in words."""
    if column.kind == "categorical":
        return f"for {column.labels[int(point)]}"
    return f"near {number(point)}"


def places(claimed: Sequence[float], found: Curve | CurveChange | Profile, column: Column) -> str:
    """Return runs of neighbouring points of an attribute, or the ranges they stand for, or its labels."""
    if column.kind == "categorical":
        return "for " + join_words([column.labels[int(point)] for point in claimed])
    order = sorted(found.points)
    runs: list[list[int]] = []
    for rank in sorted(map(order.index, claimed)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    start = stop = dict(zip(order, order, strict=True))
    if isinstance(found, Curve | CurveChange) and found.start:
        start, stop = (dict(zip(found.points, ends, strict=True)) for ends in (found.start, found.stop))
    return join_words([_between(start[order[run[0]]], stop[order[run[-1]]]) for run in runs])


def _between(first: float, last: float) -> str:
    if first == last:
        return f"near {number(first)}"
    if math.isinf(first):
        return "everywhere" if math.isinf(last) else f"up to {number(last)}"
    return f"from {number(first)} on" if math.isinf(last) else f"between {number(first)} and {number(last)}"


Renderers.sentences = sentences
