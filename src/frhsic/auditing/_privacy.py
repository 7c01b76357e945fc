"""What may leave an audit: no number of a handful of rows, and none with more digits than its rows support.

:func:`release` is the one gate: record, JSON, HTML report, its pictures and Markdown are made of what it
returns. Sentences and claims leave out points that may not be shown, too (:func:`shown_points`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from frhsic.auditing._parts import Claim, Column, Decision, LabelDependence, Limit, Outcome
from frhsic.auditing._results import Attribute, Audit, Renderers
from frhsic.inference import (
    AdjustedCurve,
    AUCCurve,
    Carriers,
    Curve,
    DecisionGaps,
    Interval,
    Profile,
    RegionResult,
    Result,
)

# Fewer rows could be a person: their label, mean or rate is not shown.
MIN_ROWS_SHOWN: Final = 10
FEW_ROWS: Final = f"(fewer than {MIN_ROWS_SHOWN} rows)"
# A number is rounded to a step of at most this part of its interval: the rounding moves it by at most a
# twentieth of half the interval.
_PART: Final = 20.0
# Digits of numbers that have no interval.
_DIGITS: Final = 4
# What was asked for, or counts draws: it says nothing about single rows.
_EXACT: Final = frozenset({"confidence_level", "pvalue", "adjusted", "other_pvalue", "at_most", "threshold"})

_Along = TypeVar("_Along", Curve, Carriers, Profile, AdjustedCurve, AUCCurve)
_Some = TypeVar("_Some", bound=Result)


def shown_points(found: Curve | Carriers | Profile | AdjustedCurve | AUCCurve, column: Column) -> list[int]:
    """Return which points of a curve may be shown: no extremes, and none of fewer than ten rows."""
    few = {i for i, count in enumerate(found.counts) if count < MIN_ROWS_SHOWN}
    return [i for i in column.visible(found.points) if i not in few]


def release(audit: Audit) -> Audit:
    """Return an audit as it may leave: the gate of records, JSON, reports, pictures and Markdown.

    - Points of fewer than ten rows, and those beyond the 1 % and the 99 % quantile of the attribute, are NaN,
      with all their numbers; labels of the outcome with fewer than ten rows are not named.
    - A value of the attribute that ten rows share stays. Another one, such as the median of a range, is
      rounded so that about ten rows have the rounded value.
    - A number with an interval is rounded to a step of at most a twentieth of its length, the ends outwards;
      a mean without one to what its standard error supports; any other number to four digits. So the means of
      500 and of 499 rows do not give the number of the one that is missing.

    States of limits, p-values and counts stay as they are.
    """
    attributes = []
    claims = list(audit.claims)
    for found, column in zip(audit.attributes, audit.columns, strict=True):
        places = _Places(column)
        attributes.append(_release_attribute(found, places))
        claims = [_move(claim, found, places) for claim in claims]
    return replace(
        audit,
        score=None if audit.score is None else _round_column(audit.score, audit.n),
        columns=tuple(_round_column(column, audit.n) for column in audit.columns),
        attributes=tuple(attributes),
        joint=None if audit.joint is None else _release_joint(audit.joint),
        representation=None if audit.representation is None else _round_fields(audit.representation),
        certificate=None if audit.certificate is None else _round_fields(audit.certificate),
        limits=tuple(map(_round_limit, audit.limits)),
        claims=tuple(claims),
    )


Renderers.release = release

# ---- places along an attribute -----------------------------------------------------------------------------


class _Places:
    """Values of one attribute as they may leave: the same value of two curves is rounded alike."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self._known: dict[float, float] = {}

    def hide(self, found: _Along, numbers: Sequence[str]) -> _Along:
        """Return a curve with NaN for what may not be shown, and with rounded places."""
        kept = shown_points(found, self.column)
        self._learn(found, kept)
        continuous = self.column.kind == "continuous"
        values: dict[str, Any] = {
            name: _keep(getattr(found, name), kept, math.nan) for name in (*numbers, "mass")
        }
        if continuous:
            values["points"] = _keep(tuple(map(self, found.points)), kept, math.nan)
        if isinstance(found, Curve | AUCCurve) and found.start and continuous:
            for name in ("start", "stop"):
                values[name] = _keep(tuple(map(self, getattr(found, name))), kept, math.nan)
        if found.counts:
            values["counts"] = _keep(found.counts, kept, 0)
        return replace(found, **values)

    def _learn(self, found: _Along, kept: Sequence[int]) -> None:
        """Round the places of a curve that are not yet known."""
        if self.column.kind != "continuous":
            self._known |= dict(zip(found.points, found.points, strict=True))
            return
        points = found.points
        start, stop = points, points
        if isinstance(found, Curve | AUCCurve) and found.start:
            start, stop = found.start, found.stop
        for i in kept:
            if start is not points and start[i] == stop[i]:  # one value, of as many rows
                self._known.setdefault(points[i], points[i])
                continue
            step = _power(_width_of_ten(found, i))
            for x in (points[i], start[i], stop[i]):
                self._known.setdefault(x, _nearest(x, step))

    def __call__(self, x: float) -> float:
        """Return a value as it leaves."""
        return self._known.get(x, _nearest(x, _power(abs(x) / 100.0)))


def _width_of_ten(found: Curve | Carriers | Profile | AdjustedCurve | AUCCurve, i: int) -> float:
    """Return about how far ten rows reach near a point, and at most the distance to the next point of ten."""
    points, last = found.points, len(found.points) - 1
    count = found.counts[i] if found.counts else MIN_ROWS_SHOWN
    rows = min(float(count), found.mass[i] * found.n)
    if rows >= MIN_ROWS_SHOWN:
        beside = [abs(points[i] - points[j]) for j in (i - 1, i + 1) if 0 <= j <= last]
        return min(filter(None, beside), default=0.0) * MIN_ROWS_SHOWN / rows
    reach = math.ceil(0.5 * MIN_ROWS_SHOWN / max(rows, 0.1))
    low, high = max(0, i - reach), min(last, i + reach)
    return (points[high] - points[low]) / max(1, high - low) * MIN_ROWS_SHOWN / max(rows, 0.1)


def _keep(values: Sequence[Any], kept: Iterable[int], otherwise: Any) -> tuple[Any, ...]:
    visible = set(kept)
    return tuple(x if i in visible else otherwise for i, x in enumerate(values))


def _move(claim: Claim, found: Attribute, places: _Places) -> Claim:
    """Return a claim with its points as they leave, if it is about this attribute."""
    if claim.attributes != found.names:
        return claim
    return replace(claim, points=tuple(map(places, claim.points)))


# ---- numbers -----------------------------------------------------------------------------------------------


def _step(width: float) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that an interval of this length supports; 0 of none."""
    most = width / _PART
    if not (math.isfinite(most) and most > 0.0):
        return 0.0
    power = _power(most)
    return max((k * power for k in (1.0, 2.0, 5.0) if k * power <= most * (1.0 + 1e-12)), default=power)


def _power(x: float) -> float:
    """Return the largest power of ten that is at most x; 0 of zero."""
    if not (math.isfinite(x) and x > 1e-300):
        return 0.0
    return float(f"1e{math.floor(math.log10(x) + 1e-12)}")


def _on_grid(x: float, step: float, to: Callable[[float], float]) -> float:
    """Return x rounded to a multiple of a step, as the shortest decimal; without a step to four digits."""
    if not math.isfinite(x):
        return x
    if step <= 0.0:
        return _digits(x)
    k = x / step
    near = round(k)
    k = near if math.isclose(k, near, rel_tol=1e-12, abs_tol=1e-9) else to(k)
    return float(f"{k * step:.{max(0, 1 - math.floor(math.log10(step)))}f}") + 0.0


def _nearest(x: float, step: float) -> float:
    return _on_grid(x, step, round)


def _down(x: float, step: float) -> float:
    return _on_grid(x, step, math.floor)


def _up(x: float, step: float) -> float:
    return _on_grid(x, step, math.ceil)


def _digits(x: float) -> float:
    """Return a number without an interval."""
    return float(f"{x:.{_DIGITS}g}") + 0.0 if math.isfinite(x) else x


def _round_fields(found: _Some) -> _Some:
    """Return a result with each of its numbers rounded: by its interval where it has one, else to digits."""
    values: dict[str, Any] = {
        field.name: _round_value(getattr(found, field.name))
        for field in fields(found)
        if field.name not in _EXACT
    }
    if isinstance(found, Interval):
        values = _by_interval(found)
    return replace(found, **values)


def _round_value(value: Any) -> Any:
    if isinstance(value, Result):
        return _round_fields(value)
    if isinstance(value, tuple):
        return tuple(map(_round_value, value))
    if isinstance(value, dict):
        return {name: _round_value(item) for name, item in value.items()}
    return _digits(value) if isinstance(value, float) else value


def _by_interval(found: Interval) -> dict[str, Any]:
    step = _step(found.high - found.low)
    return {
        "estimate": _nearest(found.estimate, step),
        "low": _down(found.low, step),
        "high": _up(found.high, step),
        "plug_in": None if found.plug_in is None else _nearest(found.plug_in, step),
        "chance": None if found.chance is None else _nearest(found.chance, step),
        "chance_high": None if found.chance_high is None else _nearest(found.chance_high, step),
        "cell_error": None if found.cell_error is None else _up_to_digits(found.cell_error),
    }


def _up_to_digits(x: float) -> float:
    """Return a bound with two digits, rounded up."""
    return _up(x, 10.0 ** (math.floor(math.log10(x)) - 1)) if x > 0.0 else 0.0


def _round_limit(found: Limit) -> Limit:
    """Return a limit with its numbers rounded as far as its state can be told from them."""
    if found.estimate is None:
        return found
    if found.low is None or found.high is None:
        digits = next(
            digits
            for digits in range(_DIGITS, 18)
            if (float(f"{found.estimate:.{digits}g}") > found.at_most) == (found.estimate > found.at_most)
        )
        return replace(found, estimate=float(f"{found.estimate:.{digits}g}"))
    step = _step(found.high - found.low)
    for _ in range(18):
        low, high = _down(found.low, step), _up(found.high, step)
        sides = (low > found.at_most, high <= found.at_most)
        if sides == (found.low > found.at_most, found.high <= found.at_most):
            return replace(found, estimate=_nearest(found.estimate, step), low=low, high=high)
        step /= 10.0
    return found


def _round_column(column: Column, n: int) -> Column:
    if column.low is None or column.high is None or column.mean is None:
        return column
    width = column.high - column.low  # 4.65 deviations of a normal law
    step = _power(width / 100.0)
    return replace(
        column,
        low=_nearest(column.low, step),
        mean=_nearest(column.mean, _step(0.86 * width / math.sqrt(max(n, 1)))),
        high=_nearest(column.high, step),
    )


def _round_band(found: _Along, middle: str, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the fields of a curve with a band, rounded point by point."""
    low, high = (getattr(found, name) for name in pairs[0])
    steps = [_step(b - a) for a, b in zip(low, high, strict=True)]

    def each(to: Callable[[float, float], float], name: str) -> tuple[float, ...]:
        return tuple(to(x, step) for x, step in zip(getattr(found, name), steps, strict=True))

    values: dict[str, Any] = {middle: each(_nearest, middle)}
    for below, above in pairs:
        if getattr(found, below):
            values |= {below: each(_down, below), above: each(_up, above)}
    return values | {"mass": tuple(map(_digits, found.mass))}


def _overall(found: Curve | AUCCurve) -> float:
    """Return the overall mean, rounded to what its standard error supports: about a third of the band's."""
    halves = [
        (0.5 * mass * (high - low)) ** 2
        for mass, low, high in zip(found.mass, found.low, found.high, strict=True)
        if math.isfinite(mass * (high - low))
    ]
    return _nearest(found.overall, _step(4.0 * math.sqrt(sum(halves)) / 3.0))


# ---- one attribute -----------------------------------------------------------------------------------------


def _release_attribute(found: Attribute, places: _Places) -> Attribute:
    curve = _release_curve(found.curve, places)  # first: it tells values from ranges
    return replace(
        found,
        test=_round_fields(found.test),
        measures={name: _round_fields(one) for name, one in found.measures.items()},
        curve=curve,
        profile=None if found.profile is None else _round_fields(places.hide(found.profile, _OF_PROFILE)),
        outcome=None if found.outcome is None else _release_outcome(found.outcome, places),
        cutoffs=None if found.cutoffs is None else _round_cutoffs(found.cutoffs),
        decisions=tuple(_release_decision(one, places) for one in found.decisions),
        regions=tuple(replace(one, answer=_round_region(one.answer)) for one in found.regions),
        explained=None if found.explained is None else _release_adjusted(found.explained, places),
        carried=None if found.carried is None else _release_carried(found.carried, places),
    )


_OF_PROFILE: Final = ("contrast", "chance")
_OF_CURVE: Final = ("mean", "low", "high", "mean_low", "mean_high")
_BANDS: Final = (("low", "high"), ("mean_low", "mean_high"))


def _release_curve(curve: Curve | None, places: _Places) -> Curve | None:
    if curve is None:
        return None
    overall = _overall(curve)
    numbers = tuple(name for name in _OF_CURVE if getattr(curve, name))
    hidden = places.hide(curve, numbers)
    return replace(hidden, **_round_band(hidden, "mean", _BANDS), overall=overall)


def _release_adjusted(found: AdjustedCurve, places: _Places) -> AdjustedCurve:
    hidden = places.hide(found, ("mean", "low", "high", "unadjusted"))
    values = _round_band(hidden, "mean", (("low", "high"),))
    steps = [_step(high - low) for low, high in zip(hidden.low, hidden.high, strict=True)]
    values["unadjusted"] = tuple(map(_nearest, hidden.unadjusted, steps))
    values |= {name: _round_fields(getattr(found, name)) for name in ("gap", "unadjusted_gap", "test")}
    return replace(hidden, **values)


def _release_carried(carried: Carriers, places: _Places) -> Carriers:
    gap = _round_fields(carried.gap)
    step = _step(carried.gap.high - carried.gap.low)
    hidden = places.hide(carried, ("whole",))
    kept = shown_points(carried, places.column)

    def each(part: Sequence[float]) -> tuple[float, ...]:
        return tuple(_nearest(x, step) for x in _keep(part, kept, math.nan))

    shares = [_step(high - low) for low, high in zip(carried.low, carried.high, strict=True)]
    return replace(
        hidden,
        share=tuple(map(_nearest, carried.share, shares)),
        low=tuple(map(_down, carried.low, shares)),
        high=tuple(map(_up, carried.high, shares)),
        mass=tuple(map(_digits, hidden.mass)),
        parts=tuple(map(each, carried.parts)),
        whole=each(carried.whole),
        gap=gap,
        curves=tuple(filter(None, (_release_curve(curve, places) for curve in carried.curves))),
    )


def _release_outcome(outcome: Outcome, places: _Places) -> Outcome:
    return replace(
        outcome,
        equalized_odds=None if outcome.equalized_odds is None else _round_fields(outcome.equalized_odds),
        labels=tuple(_release_label(one, places) for one in outcome.labels),
        calibration=_release_curve(outcome.calibration, places),
        calibration_gap=None if outcome.calibration_gap is None else _round_fields(outcome.calibration_gap),
        curve=_release_curve(outcome.curve, places),
        absolute_error=_release_curve(outcome.absolute_error, places),
        errors=tuple(
            replace(
                one,
                false_positive=_release_curve(one.false_positive, places),
                false_negative=_release_curve(one.false_negative, places),
            )
            for one in outcome.errors
        ),
        auc=None if outcome.auc is None else _release_windows(outcome.auc, places),
    )


def _release_joint(found: Attribute) -> Attribute:
    """Return what was found on several attributes jointly, which has no curves."""
    outcome = found.outcome
    if outcome is not None:
        outcome = replace(outcome, labels=tuple(map(_hide_label, outcome.labels)))
    return _round_fields(replace(found, outcome=outcome))


def _hide_label(one: LabelDependence) -> LabelDependence:
    return replace(one, label=FEW_ROWS, n=0, gdp=None, curve=None) if one.n < MIN_ROWS_SHOWN else one


def _release_label(one: LabelDependence, places: _Places) -> LabelDependence:
    one = _hide_label(one)
    gdp = None if one.gdp is None else _round_fields(one.gdp)
    return replace(one, gdp=gdp, curve=_release_curve(one.curve, places))


def _release_windows(auc: AUCCurve, places: _Places) -> AUCCurve:
    kept, overall = shown_points(auc, places.column), _overall(auc)
    hidden = places.hide(auc, ("auc", "low", "high"))
    rounded = replace(hidden, **_round_band(hidden, "auc", (("low", "high"),)), overall=overall)
    return rounded if len(kept) == len(auc.points) else rounded.take(kept)


def _round_cutoffs(gaps: DecisionGaps) -> DecisionGaps:
    steps = [_step(high - low) for low, high in zip(gaps.low, gaps.high, strict=True)]
    return replace(
        gaps,
        rates=tuple(map(_digits, gaps.rates)),
        gaps=tuple(map(_nearest, gaps.gaps, steps)),
        low=tuple(map(_down, gaps.low, steps)),
        high=tuple(map(_up, gaps.high, steps)),
        plug_in=tuple(map(_nearest, gaps.plug_in, steps)),
        chance=tuple(map(_nearest, gaps.chance, steps)),
        largest=None if gaps.largest is None else _round_fields(gaps.largest),
    )


def _release_decision(one: Decision, places: _Places) -> Decision:
    curve = _release_curve(one.curve, places)
    values: dict[str, Any] = {"rate": _digits(one.rate) if curve is None else curve.overall}
    if one.ratio is not None and one.ratio_low is not None and one.ratio_high is not None:
        step = _step(one.ratio_high - one.ratio_low)
        values |= {"ratio": _nearest(one.ratio, step), "ratio_low": _down(one.ratio_low, step)}
        values["ratio_high"] = min(1.0, _up(one.ratio_high, step))
    for name in ("lowest", "highest"):
        point = getattr(one, name)
        values[name] = None if point is None else places(point)
    return replace(one, gap=_round_fields(one.gap), curve=curve, **values)


def _round_region(answer: RegionResult) -> RegionResult:
    step = _step(answer.high - answer.low)
    return replace(
        answer,
        difference=_nearest(answer.difference, step),
        low=_down(answer.low, step),
        high=_up(answer.high, step),
        inside=_nearest(answer.inside, step),
        outside=_nearest(answer.outside, step),
    )


# ---- values of rows, before anything is made of them -------------------------------------------------------


def between_scores(gaps: DecisionGaps, scores: Tensor) -> DecisionGaps:
    """Return the same cut-offs; each that fewer than ten rows have as their score is moved among ten rows.

    It becomes the shortest decimal between the fourth row below it and the fifth above.
    """
    values, counts = scores.unique(return_counts=True)
    ordered = scores.sort().values
    moved = []
    for cutoff in gaps.cutoffs:
        place = int(torch.searchsorted(values, cutoff))
        if place == len(values) or float(values[place]) != cutoff or counts[place] >= MIN_ROWS_SHOWN:
            moved.append(cutoff)
            continue
        last = int(torch.searchsorted(ordered, cutoff, right=True)) - 1
        half = MIN_ROWS_SHOWN // 2
        low, high = ordered[max(0, last - half + 1)], ordered[min(len(ordered) - 1, last + half)]
        moved.append(_shortest_between(float(low), float(high)))
    return replace(gaps, cutoffs=tuple(moved))


def _shortest_between(low: float, high: float) -> float:
    """Return the decimal of fewest digits between two numbers that is nearest to the middle."""
    middle = low + 0.5 * (high - low)
    step = _power(max(abs(low), abs(high))) * 10.0
    while step > 0.0 and step > 1e-17 * max(abs(low), abs(high)):
        found = _nearest(middle, step)
        if low < found < high:
            return found
        step = _power(0.1 * step * 1.001)
    return middle


def quantile(ordered: Tensor, q: float) -> float:
    """Return a quantile of sorted values; the mean of ten neighbours where fewer rows have that value."""
    k = round(q * (len(ordered) - 1))
    value = ordered[k]
    if int((ordered == value).sum()) >= MIN_ROWS_SHOWN or len(ordered) <= MIN_ROWS_SHOWN:
        return float(value)
    first = min(max(0, k - MIN_ROWS_SHOWN // 2), len(ordered) - MIN_ROWS_SHOWN)
    return float(ordered[first : first + MIN_ROWS_SHOWN].mean())
