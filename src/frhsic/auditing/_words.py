"""An audit in plain words, made from its claims and numbers; what it does not show; no verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from frhsic._text import number, percent
from frhsic.inference import Curve, Interval, TestResult

if TYPE_CHECKING:
    from frhsic.auditing._results import Attribute, Audit, Claim, Column, Outcome

DOES_NOT_SHOW = (
    "What this does not show: why the dependence is there, whether it is justified or lawful, or what the "
    "model does to people other than those these rows were drawn from."
)


def sentences(audit: Audit) -> tuple[str, ...]:
    """Return the summary of an audit: what it claims, with its numbers, a paragraph for each attribute."""
    lines = list(audit.notes[:1]) if audit.trained_on else []
    columns = {column.name: column for column in audit.columns}
    for found in audit.attributes:
        column = columns[found.names[0]]
        lines.append(" ".join((seen(found, audit), *_how_much(found, audit), *_where(found, column, audit))))
        if found.outcome is not None:
            lines.append(" ".join(_beside(found, found.outcome, column, audit)))
    if audit.joint is not None:
        lines.append(" ".join(_jointly(audit.joint, audit)))
    lines.append(together(audit))
    lines.append(DOES_NOT_SHOW)
    return tuple(lines)


def together(audit: Audit) -> str:
    """Return how sure the statements of the summary are, all of them at once."""
    share = percent(audit.confidence_level)
    if not audit.claims:
        return f"Nothing is claimed about the population. Each interval has a confidence of {share}."
    return (
        "What is stated about the population (on what the score depends, where it is above or below, where "
        f"it differs) holds all together with a confidence of {share}; each interval has {share} by itself."
    ).replace("the score", _what(audit))


def _what(audit: Audit) -> str:
    return "the score" if audit.subject == "score" else f"the representation ({audit.width} columns)"


def _claims(
    audit: Audit, question: str, names: tuple[str, ...], label: str | None = None
) -> dict[str, Claim]:
    """Return what is claimed about some attributes, by what it says."""
    return {
        claim.says: claim
        for claim in audit.claims
        if (claim.question, claim.attributes, claim.label) == (question, names, label)
    }


def seen(found: Attribute, audit: Audit) -> str:
    """Return whether the score is shown to depend on an attribute."""
    what, how = _what(audit), _p_value(found.test)
    if "depends" in _claims(audit, "dependence", found.names):
        return f"{_capital(what)} depends on {found.name} ({how})."
    where = "" if found.kind == "joint" else f" Where along {found.name} it might is not asked."
    return (
        f"These rows do not show that {what} depends on {found.name} ({how}). That is no evidence of "
        "independence; the intervals say how much dependence these rows leave possible." + where
    )


def _p_value(test: TestResult) -> str:
    corrected = "" if test.adjusted is None else ", corrected for all tests of this audit"
    groups = "" if test.n_rows is None else f" groups of {test.n_rows:,} rows"
    return f"p = {number(test.reported)}{corrected}, n = {test.n:,}{groups}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _how_much(found: Attribute, audit: Audit) -> list[str]:
    lines = []
    if found.gdp is not None and audit.score is not None:
        say, unit = units(audit)
        gdp = found.gdp
        overall = say(audit.score.mean or 0.0)
        chance = f"{say(gdp.chance or 0.0)}, seldom more than {say(gdp.chance_high or 0.0)}"
        lines.append(
            f"On average over {found.name}, the mean score at a value of {found.name} lies "
            f"{say(gdp.estimate)} {unit} away from the overall mean of {overall} ({_range(gdp, say)}, for "
            f"{gdp.target}; chance alone gives {chance})."
        )
    share = found.normalized_hsic
    lines.append(
        f"On a scale from 0 (none) to 1, the dependence is {number(max(share.estimate, 0.0))} "
        f"({_range(share, lambda x: number(max(x, 0.0)))}; normalised HSIC)."
    )
    return lines


def units(audit: Audit) -> tuple[Callable[[float], str], str]:
    """Return how a score is said: in points of a hundred when it is a probability, or as it is."""
    score = audit.score
    if score is not None and score.unit_interval:
        return (lambda x: f"{100.0 * x:.1f}"), "points (of 100)"
    return number, "units of the score"


def _range(interval: Interval, say: Callable[[float], str]) -> str:
    return f"{percent(interval.confidence_level)} interval {say(interval.low)} to {say(interval.high)}"


def _where(found: Attribute, column: Column, audit: Audit) -> list[str]:
    claims = _claims(audit, "dependence", found.names)
    if "depends" not in claims:
        return []
    if found.curve is not None and ("above" in claims or "below" in claims):
        curve = found.curve
        peak = max(column.told(curve.points), key=lambda i: abs(curve.mean[i] - curve.overall))
        return [
            f"The mean score is {_sides(claims, curve, column, 'the overall mean')} ({_about(curve)}). On "
            f"these rows it is farthest from the overall mean {place(curve.points[peak], column)}."
        ]
    if found.profile is not None and "differs" in claims:
        profile = found.profile
        window = (
            "" if profile.bandwidth == 0 else f", seen through a window of width {number(profile.bandwidth)}"
        )
        return [
            "Its distribution differs from the one overall "
            f"{places(claims['differs'].points, profile.points, column)}{window}."
        ]
    return [f"At which values of {column.name} cannot be told from these rows."]


def _about(curve: Curve) -> str:
    """Return what a sign that is claimed is the sign of."""
    if not curve.start:
        return f"this is about {curve.target}"
    ranges = sum(below < above for below, above in zip(curve.start, curve.stop, strict=True))
    return f"on average within {ranges} ranges" if ranges else "value by value"


def _sides(claims: Mapping[str, Claim], curve: Curve, column: Column, line: str) -> str:
    return " and ".join(
        f"{says} {line} {places(claims[says].points, curve.points, column, curve.start, curve.stop)}"
        for says in ("above", "below")
        if says in claims
    )


def _beside(found: Attribute, outcome: Outcome, column: Column, audit: Audit) -> list[str]:
    """Return what is said beside the outcome: within each label, and where the score misses it."""
    name, lines = found.name, []
    say, unit = units(audit)
    test = outcome.equalized_odds
    if test is not None:
        lines.append(_within(found, test, audit))
    for given in outcome.labels:
        good = " (equal opportunity)" if given.label == outcome.equal_opportunity else ""
        if given.gdp is not None:
            lines.append(
                f"Where the outcome is {given.label}{good}, the mean score at a value of {name} lies "
                f"{say(given.gdp.estimate)} {unit} away from its mean ({_range(given.gdp, say)})."
            )
        claims = _claims(audit, "within outcomes", found.names, given.label)
        if claims and given.curve is not None:
            sides = _sides(claims, given.curve, column, "its mean")
            lines.append(f"There it is {sides} ({_about(given.curve)}).")
    if outcome.calibration is not None:
        claims = _claims(audit, "calibration", found.names)
        lines.append(
            f"The outcome is on average {_sides(claims, outcome.calibration, column, 'the score')} "
            f"({_about(outcome.calibration)})."
            if claims
            else f"These rows do not show a value of {name} at which the outcome differs from the score on "
            "average, which is no evidence that there is none."
        )
    return lines


def _within(found: Attribute, test: TestResult, audit: Audit) -> str:
    what, how = _what(audit), _p_value(test)
    if "depends" in _claims(audit, "within outcomes", found.names):
        return f"Among rows of the same outcome {what} depends on {found.name} ({how})."
    return (
        f"These rows do not show that {what} depends on {found.name} among rows of the same outcome ({how}), "
        "which is no evidence of independence."
    )


def _jointly(joint: Attribute, audit: Audit) -> list[str]:
    lines = [f"Jointly: {seen(joint, audit)}"]
    single = [
        claim for claim in audit.claims if claim.question == "dependence" and len(claim.attributes) == 1
    ]
    if "depends" in _claims(audit, "dependence", joint.names) and not single:
        lines.append("On which of them cannot be told from these rows.")
    if joint.outcome is not None and joint.outcome.equalized_odds is not None:
        lines.append(_within(joint, joint.outcome.equalized_odds, audit))
    return lines


def place(point: float, column: Column) -> str:
    """Say one value of an attribute."""
    if column.kind == "categorical":
        return f"for {column.labels[int(point)]}"
    return f"near {number(point)}"


def places(
    claimed: Sequence[float],
    points: Sequence[float],
    column: Column,
    start: Sequence[float] = (),
    stop: Sequence[float] = (),
) -> str:
    """Return runs of neighbouring points of an attribute, or its labels, in words.

    ``start`` and ``stop`` are the ends of the ranges in which the points lie, if they stand for ranges.
    """
    if column.kind == "categorical":
        return "for " + _list([column.labels[int(point)] for point in claimed])
    order = sorted(points)
    rank = {point: r for r, point in enumerate(order)}
    runs: list[list[int]] = []
    for r in sorted(rank[point] for point in claimed):
        if runs and r == runs[-1][-1] + 1:
            runs[-1].append(r)
        else:
            runs.append([r])
    ends = dict(zip(points, zip(start, stop, strict=True), strict=True)) if start else {}
    return _list(
        [
            _between(*(ends.get(order[r], (order[r], order[r]))[k] for r, k in ((run[0], 0), (run[-1], 1))))
            for run in runs
        ]
    )


def _between(first: float, last: float) -> str:
    if first == last:
        return f"near {number(first)}"
    if math.isinf(first):
        return "everywhere" if math.isinf(last) else f"up to {number(last)}"
    return f"from {number(first)} on" if math.isinf(last) else f"between {number(first)} and {number(last)}"


def _list(parts: Sequence[str], most: int = 5) -> str:
    kept = [*parts[:most], *([f"{len(parts) - most} more"] if len(parts) > most else [])]
    return kept[0] if len(kept) == 1 else ", ".join(kept[:-1]) + " and " + kept[-1]
