"""Why a score depends on an attribute: what factors explain, and which inputs carry it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from frhsic._checks import ArgumentError
from frhsic._text import join_words, number, percent
from frhsic.inference import AdjustedCurve, Carriers, adjusted_curve, carriers

if TYPE_CHECKING:
    from frhsic.auditing._parts import Column
    from frhsic.auditing._results import Attribute
    from frhsic.auditing._subject import Subject

_NAMED = 5  # inputs in a sentence


class Explanations(NamedTuple):
    """What an audit says about why, along one attribute."""

    explained: AdjustedCurve | None = None
    carried: Carriers | None = None


def find_explanations(subject: Subject, column: Column | None) -> tuple[Explanations, tuple[str, ...]]:
    """Return the curve at equal factors and the split between inputs, where they were asked for; notes."""
    settings, rows = subject.settings, subject.rows
    if column is None or (settings.factors is None and settings.contributions is None):
        return Explanations(), ()
    asked = {**rows.options, "confidence_level": settings.confidence_level}
    explained, carried, notes = None, None, []
    if settings.factors is not None:
        try:
            explained = adjusted_curve(rows.z[:, 0], rows.s, given=settings.factors, **asked)
        except ArgumentError as error:
            notes.append(f"No curve of {column.name} at equal factors: {error}")
    if settings.contributions is not None:
        try:
            carried = carriers(settings.contributions, rows.s, **asked)
        except ArgumentError as error:
            notes.append(f"No split of the gap along {column.name} between inputs: {error}")
    return Explanations(explained, carried), tuple(notes)


# ---- words -------------------------------------------------------------------------------------------------


def explanation_sentences(found: Attribute, score: Column) -> list[str]:
    """Return what is said about factors and inputs along one attribute."""
    lines = []
    if found.explained is not None:
        lines.append(_explained(found.explained, score))
    if found.carried is not None:
        lines.append(_carried(found.carried))
    return lines


def _explained(one: AdjustedCurve, score: Column) -> str:
    s, factors, unit = one.attributes[0], join_words(list(one.factors), 5), score.gap_unit
    before, after, low, high = map(
        score.format_gap, (one.unadjusted_gap.estimate, one.gap.estimate, one.gap.low, one.gap.high)
    )
    share = percent(one.confidence_level)
    text = f"The mean score differs by {before} {unit} along {s} on average; at equal {factors} "
    if one.gap.low > 0.0:
        verb = "remain" if one.gap.estimate <= one.unadjusted_gap.estimate else "are shown"
        text += f"{after} {unit} {verb} ({share} interval {low} to {high})."
    else:
        text += f"no gap is shown ({after} {unit}, {share} interval {low} to {high})"
        text += ", which is no evidence of none."
    test = one.test
    text += f" A test of any dependence at equal {factors}: p = {number(test.pvalue)}."
    if one.shows_interaction:
        text += f" What it finds may differ with {factors}, or be one of the spread."
    text += (
        f" Regressions on {factors} explain {_share(test.explained_score)} of the score and "
        f"{_share(test.explained_sensitive)} of {s} on rows that took no part. "
        "This is no causal effect unless nothing else moves both "
        f"the score and {s}; its level rests on these regressions, and is for this question alone."
    )
    return " ".join((text, *test.warnings, *one.notes))


def _carried(one: Carriers) -> str:
    s = one.attributes[0]
    if math.isnan(one.share[0]):
        return f"No gap of the summed contributions is shown along {s}: nothing is said to carry it."
    rows = list(zip(one.inputs, one.share, one.low, one.high, strict=True))[:_NAMED]
    shares = ", ".join(f"{name} {_share(x)} ({_share(a)} to {_share(b)})" for name, x, a, b in rows)
    more = len(one.inputs) - len(rows)
    rest = f" and {more} more" if more else ""
    return (
        f"The gap along {s} is carried by {shares}{rest}; shares add up to 100 %, each with its own "
        f"{percent(one.confidence_level)} interval, on the scale on which contributions add up. A share is "
        "no remedy: without an input a model may learn the same from others."
    )


def _share(x: float) -> str:
    return f"{100.0 * max(x, -9.99):.0f} %"
