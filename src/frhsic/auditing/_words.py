"""An audit in plain words: what was seen, how sure one can be, and what it does not show. No verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from frhsic.inference._results import Curve, Interval, Profile, number

if TYPE_CHECKING:
    from frhsic.auditing._results import Attribute, Audit, Column

DOES_NOT_SHOW = (
    "What this does not show: why the dependence is there, whether it is justified or lawful, or what the "
    "model does to people other than those these rows were drawn from."
)


def sentences(audit: Audit) -> tuple[str, ...]:
    """Return the summary of an audit, a paragraph for each attribute."""
    what = "the score" if audit.subject == "score" else f"the representation ({audit.width} columns)"
    lines = list(audit.notes[:1]) if audit.trained_on else []
    columns = {column.name: column for column in audit.columns}
    for found in audit.attributes:
        lines.append(
            " ".join((seen(found, what), *_how_much(found, audit), *_where(found, columns[found.names[0]])))
        )
    if audit.joint is not None:
        lines.append(f"Jointly: {seen(audit.joint, what)}")
    lines.append(DOES_NOT_SHOW)
    return tuple(lines)


def seen(found: Attribute, what: str) -> str:
    """Say whether dependence was seen, and how often chance alone shows as much."""
    p = found.test.reported
    corrected = "" if found.test.adjusted is None else ", corrected for the number of attributes"
    how = f"p = {number(p)}{corrected}, n = {found.test.n:,}"
    if p <= 0.05:
        return (
            f"Dependence of {what} on {found.name} is seen on this sample: if there were none, so much of it "
            f"would be seen in at most {_share(p)} samples ({how})."
        )
    return (
        f"Dependence of {what} on {found.name} is not seen on this sample: without any, as much of it would "
        f"be seen in {_share(p)} samples ({how}). That is no evidence of independence; the intervals say how "
        "much dependence these rows leave possible."
    )


def _share(p: float) -> str:
    return f"{p:.0%} of" if p > 0.015 else f"{max(1, round(1_000 * p))} of 1,000"


def _how_much(found: Attribute, audit: Audit) -> list[str]:
    lines = []
    if found.gdp is not None and audit.score is not None:
        say, unit = units(audit)
        gdp = found.gdp
        overall = say(audit.score.mean or 0.0)
        chance = f"{say(gdp.floor or 0.0)}, seldom more than {say(gdp.floor_high or 0.0)}"
        lines.append(
            f"On average over {found.name}, the mean score at a value of {found.name} lies "
            f"{say(gdp.estimate)} {unit} away from the overall mean of {overall} ({_range(gdp, say)}; chance "
            f"alone gives {chance})."
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
    return f"{interval.level:.0%} interval {say(interval.low)} to {say(interval.high)}"


def _where(found: Attribute, column: Column) -> list[str]:
    lines = []
    if found.curve is not None:
        lines.append(_along(found.curve, column))
    if found.profile is not None and (found.curve is None or not _outside(found.curve, column)):
        lines.append(_localized(found.profile, column))
    return lines


def _along(curve: Curve, column: Column) -> str:
    sides = _outside(curve, column)
    if not sides:
        return (
            f"The {curve.level:.0%} band of the mean score along {column.name} holds the overall mean "
            "everywhere: no part of it stands out."
        )
    text = []
    for word, above in (("above", True), ("below", False)):
        points = [i for i, side in sides if side is above]
        if points:
            text.append(f"{word} the overall mean {places(points, curve.points, column)}")
    peak = max(column.told(curve.points), key=lambda i: abs(curve.mean[i] - curve.overall))
    return (
        f"The mean score is {' and '.join(text)}, beyond the {curve.level:.0%} band of the whole curve; it "
        f"is farthest from the overall mean {place(curve.points[peak], column)}."
    )


def _outside(curve: Curve, column: Column) -> list[tuple[int, bool]]:
    """Return the points at which the band leaves the overall mean, and whether it does so above."""
    rows = ((i, curve.low[i], curve.high[i]) for i in column.told(curve.points))
    return [(i, low > curve.overall) for i, low, high in rows if not low <= curve.overall <= high]


def _localized(profile: Profile, column: Column) -> str:
    points = [i for i in column.told(profile.points) if profile.contrast[i] > profile.chance[i]]
    if not points:
        return (
            f"At no value of {column.name} by itself does its distribution differ by more than chance allows."
        )
    return f"Its distribution differs from the one overall {places(points, profile.points, column)}."


def place(point: float, column: Column) -> str:
    """Say one value of an attribute."""
    if column.kind == "categorical":
        return f"for {column.labels[int(point)]}"
    return f"near {number(point)}"


def places(rows: Sequence[int], points: Sequence[float], column: Column) -> str:
    """Say runs of neighbouring points of an attribute, or its labels."""
    if column.kind == "categorical":
        return "for " + _list([column.labels[int(points[i])] for i in rows])
    order = sorted(range(len(points)), key=points.__getitem__)
    rank = {i: r for r, i in enumerate(order)}
    runs: list[list[int]] = []
    for r in sorted(rank[i] for i in rows):
        if runs and r == runs[-1][-1] + 1:
            runs[-1].append(r)
        else:
            runs.append([r])
    return _list(
        [
            f"near {number(points[order[run[0]]])}"
            if len(run) == 1
            else f"between {number(points[order[run[0]]])} and {number(points[order[run[-1]]])}"
            for run in runs
        ]
    )


def _list(parts: Sequence[str], most: int = 5) -> str:
    kept = [*parts[:most], *([f"{len(parts) - most} more"] if len(parts) > most else [])]
    return kept[0] if len(kept) == 1 else ", ".join(kept[:-1]) + " and " + kept[-1]
