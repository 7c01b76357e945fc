"""What an audit says about decisions: rates above a threshold along S, their ratio, and asked regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from frhsic._checks import ArgumentError
from frhsic._text import number, percent
from frhsic.auditing._parts import Decision, Region
from frhsic.auditing._privacy import MIN_ROWS_SHOWN, between_scores, shown_points
from frhsic.inference import Curve, DecisionGaps, Interval, RegionResult

if TYPE_CHECKING:
    from frhsic.auditing._parts import Column
    from frhsic.auditing._results import Attribute
    from frhsic.auditing._subject import Subject

# The ratio of selection rates of groups (of race, sex, ethnicity) below which US agencies speak of adverse
# impact, by 29 CFR 1607.4 D: see docs/explain/law.md.
_FOUR_FIFTHS = 0.8
# Rates of fewer rows are hardly known: the lowest and the highest of them would be luck.
_SHARE = 0.01


# ---- computing ---------------------------------------------------------------------------------------------


class DecisionResults(NamedTuple):
    """What an audit says about decisions along one attribute."""

    cutoffs: DecisionGaps | None = None
    decisions: tuple[Decision, ...] = ()
    regions: tuple[Region, ...] = ()


def find_decisions(subject: Subject, column: Column | None) -> tuple[DecisionResults, tuple[str, ...]]:
    """Return gaps at all cut-offs, decisions at the thresholds and answers about regions; notes.

    Of one attribute and one score; ``column`` describes the attribute.
    """
    from frhsic.dependence import ScoreGap
    from frhsic.inference import region_test

    rows, settings = subject.rows, subject.settings
    if column is None or not rows.has_means or subject.groups_lost:
        return DecisionResults(), ()
    z, level = rows.z[:, 0], settings.confidence_level
    decisions, regions, notes = [], [], []
    for threshold in settings.thresholds:
        try:
            gap = subject.interval(ScoreGap(cutoff=threshold))
        except ArgumentError:  # of a sketch the stored rows may all be on one side, and others not
            side = "above" if float(z[0]) > threshold else "below or at"
            notes.append(f"No decisions at {number(threshold)}: all scores are {side} it.")
            continue
        curve = clip_curve(subject.curve(level, threshold))
        decisions.append(_decision(threshold, gap, curve, column))
    for question in settings.regions:
        if question.column == column.name:
            asked = {"side": question.side, "confidence_level": level, **rows.options}
            inside = question.rows(rows.s)
            none = f"No answer about {question.text}:"
            if min(int(inside.sum()), int((~inside).sum())) < MIN_ROWS_SHOWN:
                # A mean of so few could be the score of one person.
                notes.append(f"{none} fewer than {MIN_ROWS_SHOWN} rows on one side.")
                continue
            try:
                regions.append(Region(question.text, region_test(z, inside, **asked)))
            except ArgumentError as error:
                notes.append(f"{none} {error}")
    cutoffs = between_scores(subject.cutoffs, z)
    return DecisionResults(cutoffs, tuple(decisions), tuple(regions)), tuple(notes)


def clip_curve(curve: Curve, most: float = 1.0) -> Curve:
    """Return a curve with its band between zero and one, as that of rates, or another largest value."""
    names = ("mean", "low", "high", "mean_low", "mean_high")
    values: dict[str, Any] = {
        name: tuple(min(most, max(0.0, x)) for x in getattr(curve, name)) for name in names
    }
    return replace(curve, **values)


def find_extremes(curve: Curve, column: Column) -> tuple[int, int] | None:
    """Return where a curve is lowest and highest, of values with at least 1 % of the rows; None of one."""
    visible = [i for i in shown_points(curve, column) if curve.mass[i] >= _SHARE]
    if len(visible) < 2:
        return None
    return min(visible, key=curve.mean.__getitem__), max(visible, key=curve.mean.__getitem__)


def _decision(threshold: float, gap: Interval, curve: Curve, column: Column) -> Decision:
    """Return the decisions by a threshold, with the ratio of the lowest to the highest rate."""
    ends, found = find_extremes(curve, column), Decision(threshold, curve.overall, gap, curve)
    if ends is None or curve.mean[ends[1]] <= 0.0:
        return found
    low, high = curve.mean_low or curve.low, curve.mean_high or curve.high
    worst, best = ends
    return Decision(
        threshold,
        curve.overall,
        gap,
        curve,
        lowest=curve.points[worst],
        highest=curve.points[best],
        ratio=curve.mean[worst] / curve.mean[best],
        ratio_low=low[worst] / high[best],
        ratio_high=min(1.0, high[worst] / low[best]) if low[best] > 0.0 else 1.0,
    )


# ---- words -------------------------------------------------------------------------------------------------


def headline(found: Attribute, score: Column | None) -> str:
    """Return the sentence about scores and decisions along an attribute, or ""."""
    gap, means, gaps = found.measures.get("gap"), found.measures.get("gdp"), found.cutoffs
    if score is None or not isinstance(gap, Interval):
        return ""
    beside = [_interval(gap, score.format_gap)]
    if means is not None:
        beside.append(f"mean shift {score.format_gap(means.estimate)}")
    if gap.chance is not None and gap.plug_in is None:
        beside.append(f"under independence {score.format_gap(gap.chance)}")
    parts = [
        f"Score distributions along {found.name} differ by {score.format_gap(gap.estimate)} "
        f"{score.gap_unit} on average ({'; '.join(beside)})"
    ]
    unit = "" if score.unit_interval else " percentage points"
    parts += [
        f"decisions at {number(one.threshold)} by {_points(one.gap.estimate)}{unit}"
        for one in found.decisions
    ]
    if gaps is not None:
        k = gaps.worst
        parts.append(f"at the worst cut-off, {number(gaps.cutoffs[k])}, by {_points(gaps.gaps[k])}{unit}")
    return "; ".join(parts) + "."


def decision_sentences(
    found: Attribute, column: Column, score: Column, place: Callable[[float, Column], str]
) -> list[str]:
    """Return what is said about each threshold and each region; ``place`` words a value of the attribute."""
    lines = []
    for one in found.decisions:
        text = (
            f"At the threshold {number(one.threshold)}, {_points(one.rate)}% of the scores are above. The "
            f"rate at a value of {found.name} differs from that by {_points(one.gap.estimate)} percentage "
            f"points on average ({_interval(one.gap, _points)})."
        )
        lines.append(f"{text} {_ratio(one, column, place)}".strip())
    lines += [_answer(region, score) for region in found.regions]
    return lines


def _ratio(one: Decision, column: Column, place: Callable[[float, Column], str]) -> str:
    """Return where the rate is lowest and highest, or ""."""
    if one.ratio is None or one.curve is None:
        return ""
    rates = dict(zip(one.curve.points, one.curve.mean, strict=True))
    (low, least), (high, most) = (
        (place(point, column), _points(rates[point]))
        for point in (one.lowest, one.highest)
        if point is not None
    )
    share = percent(one.curve.confidence_level)
    return (
        f"Of values with at least {percent(_SHARE)} of the rows it is lowest {low} ({least}%) and highest "
        f"{high} ({most}%): a ratio of {one.ratio:.2f} ({share} interval {one.ratio_low:.2f} to "
        f"{one.ratio_high:.2f}, whichever two are compared; the four-fifths rule of thumb, made for groups, "
        f"compares such a ratio with {_FOUR_FIFTHS})."
    )


def _answer(region: Region, score: Column) -> str:
    answer = region.answer
    alpha = 1.0 - answer.confidence_level
    shown = "is" if answer.pvalue <= alpha + 1e-12 else "is not shown to be"
    return (
        f"Asked beforehand: the mean score where {region.region} {shown} {answer.side} that of the others "
        f"(p = {number(answer.pvalue)}, level {alpha:.2g} for this question alone; difference "
        f"{score.format_gap(answer.difference)} {score.gap_unit}, {_interval(answer, score.format_gap)}; "
        f"{answer.n_inside:,} rows against {answer.n_outside:,})."
    )


def _interval(found: Interval | RegionResult, write: Callable[[float], str]) -> str:
    return f"{percent(found.confidence_level)} interval {write(found.low)} to {write(found.high)}"


def _points(share: float) -> str:
    return f"{100.0 * share:.1f}"
