"""What an audit says about decisions: rates above a threshold along S, their ratio, and asked regions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from frhsic._checks import ArgumentError, is_number
from frhsic._text import number, percent
from frhsic.auditing._privacy import MIN_ROWS_SHOWN, between_scores, shown_points
from frhsic.inference import Curve, DecisionGaps, Interval, RegionResult, Result

if TYPE_CHECKING:
    from torch import Tensor

    from frhsic.auditing._results import Attribute, Column
    from frhsic.auditing._subject import Subject
    from frhsic.data import Sensitive

_OPERATORS: dict[str, Callable[[Tensor, float], Tensor]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "=": operator.eq
}  # fmt: skip
# The ratio of selection rates of groups (of race, sex, ethnicity) below which US agencies speak of adverse
# impact, by 29 CFR 1607.4 D: see docs/explain/law.md.
_FOUR_FIFTHS = 0.8
# Rates of fewer rows are hardly known: the lowest and the highest of them would be luck.
_SHARE = 0.01


@dataclass(frozen=True)
class Decision(Result):
    """Decisions by one threshold: the share of rows with a score above it, along s."""

    threshold: float
    rate: float  # of all rows
    gap: Interval  # how far the rate at a value of s lies from it, on average over the rows
    curve: Curve | None  # the rate along s; None for several columns
    # Of the values of s (or ranges) with at least 1 % of the rows, those of the lowest and the highest rate,
    # and the ratio of these rates. Its limits are those of the band: they hold for every two values.
    lowest: float | None = None
    highest: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


@dataclass(frozen=True)
class Region(Result):
    """The answer to a one-sided question about a region of s, asked beforehand, with a level of its own."""

    region: str  # as it was asked
    answer: RegionResult


class RegionQuestion(NamedTuple):
    """A region of one column, and what is asked about its mean score."""

    text: str
    column: str
    compare: str
    value: str
    side: Literal["below", "above"]

    def rows(self, s: Sensitive) -> Tensor:
        """Return which rows lie in the region."""
        place = s.names.index(self.column)
        values, known = s.values[:, place], (s.categories or (None,) * len(s.names))[place]
        if s.kinds[place] == "continuous":
            try:
                return _OPERATORS[self.compare](values, float(self.value))
            except ValueError:
                fix = f"Write '{self.column} >= 62', say."
                raise ArgumentError("regions", "compare with a number", repr(self.text), fix) from None
        labels = [str(label) for label in known or ()]
        if self.compare != "=" or self.value not in labels:
            must = f"be '{self.column} = LABEL' with a label of the column"
            raise ArgumentError("regions", must, repr(self.text), f"Take one of {', '.join(labels[:10])}.")
        return values == float(labels.index(self.value))


def read_thresholds(thresholds: Sequence[float] | float) -> tuple[float, ...]:
    """Return thresholds as finite numbers, each once."""
    given = [thresholds] if is_number(thresholds) else list(thresholds)  # type: ignore[arg-type]
    if not all(is_number(one) and math.isfinite(one) for one in given):
        raise ArgumentError("thresholds", "be finite numbers", repr(thresholds), "Pass (0.5,), say.")
    return tuple(dict.fromkeys(map(float, given)))


def read_regions(regions: Mapping[str, str] | None) -> tuple[RegionQuestion, ...]:
    """Return questions from ``{"age >= 62": "below"}``."""
    found = []
    for text, side in (regions or {}).items():
        if side not in ("below", "above"):
            fix = "Pass {'age >= 62': 'below'}, say."
            raise ArgumentError("regions", "say 'below' or 'above' of each region", repr(side), fix)
        compare = next((one for one in _OPERATORS if one in text), None)
        column, _, value = text.partition(compare or "\0")
        if compare is None or not column.strip() or not value.strip():
            fix = "Write 'age >= 62', say."
            raise ArgumentError("regions", "be COLUMN, one of >= <= > < =, and a value", repr(text), fix)
        found.append(RegionQuestion(text, column.strip(), compare, value.strip(), side))  # type: ignore[arg-type]
    return tuple(found)


def check_regions(questions: Sequence[RegionQuestion], s: Sensitive) -> None:
    """Raise ArgumentError if a region is of a column that is not audited, or of no rows."""
    for one in questions:
        if one.column not in s.names:
            fix = f"Take one of {', '.join(map(repr, s.names))}."
            raise ArgumentError("regions", "be of a sensitive column", repr(one.text), fix)
        one.rows(s)


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
        curve = as_rates(subject.curve(level, threshold))
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


def as_rates(curve: Curve) -> Curve:
    """Return a curve of rates with its band between zero and one."""

    def clip(values: Sequence[float]) -> tuple[float, ...]:
        return tuple(min(1.0, max(0.0, x)) for x in values)

    return replace(
        curve,
        mean=clip(curve.mean),
        low=clip(curve.low),
        high=clip(curve.high),
        mean_low=clip(curve.mean_low),
        mean_high=clip(curve.mean_high),
    )


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
