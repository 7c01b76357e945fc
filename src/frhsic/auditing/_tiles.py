"""The few numbers that stand at the head of an audit, each with its interval and one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from frhsic._text import number, percent
from frhsic.auditing._parts import Decision
from frhsic.auditing._words import largest_difference, place
from frhsic.inference import Interval

if TYPE_CHECKING:
    from frhsic.auditing._parts import Column
    from frhsic.auditing._results import Attribute, Audit


class Tile(NamedTuple):
    """One number: a title, its value and unit, its interval, and a sentence."""

    title: str
    value: str
    unit: str
    interval: str
    sentence: str


def make_tiles(audit: Audit, found: Attribute) -> tuple[Tile, ...]:
    """Return the tiles of one attribute."""
    column = next(one for one in audit.columns if (one.name,) == found.names)
    if audit.score is None:
        return tuple(_of_representation(audit, found))
    return tuple(_of_score(audit, found, column, audit.score))


def _of_score(audit: Audit, found: Attribute, column: Column, score: Column) -> Iterator[Tile]:
    shown = "depends" in audit.find_claims("dependence", found.names)
    gap, means = found.measures.get("gap"), found.measures.get("gdp")
    if isinstance(gap, Interval):
        yield _gap(gap, "Score gap", found.name, score, "Scores at one value of {s} and all scores", shown)
    elif isinstance(means, Interval):
        yield _gap(means, "Mean gap", found.name, score, "Mean scores at one value of {s} and overall", shown)
    if found.curve is not None:
        peak = largest_difference(found.curve, column)
        if peak is not None:
            yield _largest(found, column, score, peak)
    if found.decisions:
        yield from (_decision(one, found.name) for one in found.decisions[:2])
    elif found.cutoffs is not None and found.cutoffs.largest is not None:
        gaps, worst = found.cutoffs, found.cutoffs.largest
        yield Tile(
            "Decisions at the worst cut-off",
            _points(worst.estimate),
            "percentage points",
            _interval(worst, _points),
            f"With a decision above {number(gaps.cutoffs[gaps.worst])}, rates along {found.name} differ from "
            "the overall rate by this much on average. No threshold was asked for.",
        )
    if found.outcome is not None and found.outcome.calibration_gap is not None:
        error = found.outcome.calibration_gap
        yield Tile(
            "Calibration gap",
            score.format_gap(error.estimate),
            score.gap_unit,
            _interval(error, score.format_gap),
            f"Outcome minus score differs along {found.name} by this much on average{_chance(error, score)}.",
        )


def _gap(gap: Interval, title: str, s: str, score: Column, what: str, shown: bool) -> Tile:
    verdict = f"The dependence on {s} is shown" if shown else f"A dependence on {s} is not shown"
    return Tile(
        title,
        score.format_gap(gap.estimate),
        score.gap_unit,
        _interval(gap, score.format_gap),
        f"{what.format(s=s)} differ by this much on average{_chance(gap, score)}. {verdict}.",
    )


def _chance(gap: Interval, score: Column) -> str:
    return (
        ""
        if gap.chance is None or gap.plug_in is not None
        else f"; {score.format_gap(gap.chance)} under independence"
    )


def _largest(found: Attribute, column: Column, score: Column, peak: int) -> Tile:
    curve = found.curve
    assert curve is not None  # noqa: S101 - of the caller
    difference = curve.mean[peak] - curve.overall
    low, high = (ends[peak] for ends in (curve.mean_low or curve.low, curve.mean_high or curve.high))
    mean, low_mean, high_mean = map(_score_format(score), (curve.mean[peak], low, high))
    where = place(curve.points[peak], column)
    if curve.start and curve.start[peak] < curve.stop[peak] and column.kind == "continuous":
        where = f"around {number(curve.points[peak])}"
    return Tile(
        "Largest difference",
        f"{'+' if difference >= 0 else '−'}{score.format_gap(abs(difference))}",
        f"{score.gap_unit} {where}",
        f"mean {low_mean} to {high_mean} there",
        f"The mean score {where} is {mean}; overall it is {_score_format(score)(curve.overall)}. The band "
        f"holds at all values with {percent(curve.confidence_level)}.",
    )


def _score_format(score: Column) -> Callable[[float], str]:
    return (lambda x: f"{100.0 * x:.1f} %") if score.unit_interval else number


def _decision(one: Decision, s: str) -> Tile:
    ratio = "" if one.ratio is None else f" Lowest over highest rate: {one.ratio:.2f}."
    return Tile(
        f"Decisions at {number(one.threshold)}",
        _points(one.gap.estimate),
        "percentage points",
        _interval(one.gap, _points),
        f"{_points(one.rate)} % of the scores are above; along {s} the rate differs from that by this much "
        f"on average.{ratio}",
    )


def _of_representation(audit: Audit, found: Attribute) -> Iterator[Tile]:
    hsic = found.measures.get("normalized_hsic")
    if isinstance(hsic, Interval):
        yield Tile(
            "Normalised HSIC",
            number(hsic.estimate),
            "from 0 to 1",
            _interval(hsic, number),
            f"Any dependence of the representation on {found.name}; 0 is none.",
        )
    for one in audit.representation.recovered if audit.representation is not None else ():
        if one.attribute == found.name:
            yield Tile(
                f"R² of {found.name}",
                number(one.best),
                "",
                f"{percent(one.confidence_level)} interval {number(one.low)} to {number(one.high)}",
                f"Of {one.learner}, the best of three learners, on rows left out ({one.n:,} rows). More rows "
                "find more.",
            )


def _interval(found: Interval, write: Callable[[float], str]) -> str:
    return f"{percent(found.confidence_level)} interval {write(found.low)} to {write(found.high)}"


def _points(share: float) -> str:
    return f"{100.0 * share:.1f}"
