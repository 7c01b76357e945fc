"""What changed between two audits: from their records, and from the rows of both where these are given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic._text import number
from frhsic.auditing._compare_rows import DATA, WITHOUT_ROWS, Both, add_rows, columns_of, compare_curves
from frhsic.auditing._comparison import (
    CALIBRATION,
    SHARES,
    WITHIN,
    Comparison,
    MeanChange,
    NumberChange,
    RecordChange,
    Samples,
    is_gap,
)
from frhsic.auditing._limits import DECISION_MEASURE
from frhsic.auditing._measures import MEASURES
from frhsic.auditing._results import SCHEMA
from frhsic.auditing._verify import find_problems
from frhsic.dependence import mid_ranks
from frhsic.inference import Ends, difference_of_intervals

_Floats = NDArray[np.float64]
# Scores whose middle 98 % differ by more than this factor are on different scales.
_SCALES: Final = 3.0
# Curves with a correlation below minus this run against one another.
_AGAINST: Final = 0.5


def compare(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    old_rows: Mapping[str, object] | None = None,
    new_rows: Mapping[str, object] | None = None,
) -> Comparison:
    """Return what changed between two audits.

    Parameters
    ----------
    old, new : dict
        Records: :func:`read_record` of files, or ``to_dict()`` of audits.
    old_rows, new_rows : dict, optional
        The rows of both, as they were passed to ``audit``: "scores", "sensitive_features" and, where they
        were, "y_true", "sample_weight", "groups". Compared with the digests of the records first.

    Returns
    -------
    Comparison

    Notes
    -----
    Without rows, the interval of a change is made from the two recorded intervals (Zou and Donner, 2008),
    which assumes independent samples. Where both records are about the same rows that does not hold, and only
    the estimates are compared. With rows, gaps are compared by :func:`frhsic.inference.gap_change` and the
    mean score along an attribute by :func:`frhsic.inference.curve_change`.

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic.auditing import audit
    >>> rows = []
    >>> for seed, slope in ((0, 0.2), (1, 0.9)):
    ...     age = np.random.default_rng(seed).uniform(size=400)
    ...     score = slope * age + np.random.default_rng(seed + 2).uniform(size=400)
    ...     rows.append({"scores": score, "sensitive_features": {"age": age}})
    >>> records = [audit(**one, random_state=0).to_dict() for one in rows]
    >>> compare(*records, old_rows=rows[0], new_rows=rows[1]).number("age", "gdp").shown
    True
    """
    for name, plain in (("old", old), ("new", new)):
        _check_record(name, plain)
    if (old_rows is None) != (new_rows is None):
        name = "new_rows" if new_rows is None else "old_rows"
        raise ArgumentError(name, "be passed too", None, "Pass the rows of both audits, or none.")
    samples = _find_samples(old, new)
    numbers, incomparable = _compare_numbers(old, new, samples)
    curves: tuple[MeanChange, ...] = ()
    notes = list(_assumptions(old, new, samples))
    both = None
    if old_rows is not None and new_rows is not None:
        both = Both.read(old, new, old_rows, new_rows, samples)
        if samples != "same data":  # of which nothing could have changed
            numbers, more = add_rows(numbers, both)
            curves, few = compare_curves(both)
            incomparable += (*more, *few)
            notes += both.notes()
    elif samples != "same data":
        incomparable += ("The mean score along the attributes: give --data for a band of its change.",)
    if any(one.low is not None for one in numbers):
        notes.append("Each interval has its confidence by itself: among many, some miss their change.")
    if any(one.basis == "intervals" for one in numbers):
        notes.append(
            "Intervals of changes without rows are made from the two recorded intervals, for independent "
            "samples."
        )
    return Comparison(
        samples=samples,
        made=tuple(_compare_making(old, new)),
        data=tuple(_compare_data(old, new)),
        limits=tuple(_compare_limits(old, new)),
        numbers=numbers,
        curves=curves,
        incomparable=incomparable,
        notes=tuple(notes),
        scale_change=_compare_scales(old, new),
        rank_change=_compare_ranks(old, new, both),
    )


def _compare_scales(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return how the scales of two scores differ, where they do."""
    before, after = old["score"], new["score"]
    if before is None or after is None or {before["kind"], after["kind"]} != {"continuous"}:
        return None
    spreads = [one["high"] - one["low"] for one in (before, after)]
    if before["unit_interval"] == after["unit_interval"] and max(spreads) <= _SCALES * min(spreads):
        return None
    ranges = (
        f"{number(one['low'])} to {number(one['high'])}" + (", within 0 to 1" if one["unit_interval"] else "")
        for one in (before, after)
    )
    old_range, new_range = ranges
    return (
        f"The two scores are on different scales: the middle 98 % run from {old_range} (old) and from "
        f"{new_range} (new). Changes in the unit of the score compare numbers that are not alike."
    )


def _compare_ranks(old: Mapping[str, Any], new: Mapping[str, Any], both: Both | None) -> str | None:
    """Return where the new score runs against the old one: its ranks, or its means along an attribute."""
    fix = "It may be one minus the old one: gaps do not show that."
    if both is not None and both.paired and both.old.width == both.new.width == 1:
        equal = torch.full((both.old.n,), 1.0 / both.old.n, dtype=torch.float64)
        ranks = torch.stack([mid_ranks(subject.z[:, 0], equal) for subject in (both.old, both.new)])
        if float(ranks.std(dim=1).min()) > 0.0:
            correlation = float(torch.corrcoef(ranks)[0, 1])
            # Below this a correlation of unrelated scores is seldom found.
            if correlation < -3.0 / math.sqrt(both.old.n - 1):
                words = f"rank correlation {correlation:.2f}"
                return f"The new score ranks the rows against the old one ({words}). {fix}"
        return None
    after = {tuple(one["names"]): one for one in new["attributes"]}
    for one in old["attributes"]:
        curve, other = _read_curve(one), _read_curve(after.get(tuple(one["names"])))
        if curve is None or other is None:
            continue
        (points, means), (others, other_means) = curve, other
        inside = (points >= others[0]) & (points <= others[-1])
        means, other_means = means[inside], np.interp(points[inside], others, other_means)
        if len(means) < 4 or min(means.std(), other_means.std()) == 0.0:
            continue
        if np.corrcoef(means, other_means)[0, 1] < -_AGAINST:
            name = " and ".join(one["names"])
            return (
                f"Along {name} the mean of the new score falls where that of the old one rises, and rises "
                f"where it falls. {fix}"
            )
    return None


def _read_curve(attribute: Mapping[str, Any] | None) -> tuple[_Floats, _Floats] | None:
    """Return points and means of a curve along numbers that leaves its band, or None."""
    curve = None if attribute is None or attribute["kind"] != "continuous" else attribute["curve"]
    if curve is None:
        return None
    columns = [np.array(curve[name], dtype=float) for name in ("points", "mean", "low", "high")]
    points, means, low, high = (column[~np.isnan(columns[1])] for column in columns)
    if not ((low > curve["overall"]) | (high < curve["overall"])).any():
        return None  # a curve that may be flat falls and rises by chance
    return points, means


def _check_record(name: str, plain: Mapping[str, Any]) -> None:
    if not isinstance(plain, Mapping) or plain.get("schema") != SCHEMA:
        fix = "Pass read_record(path), or to_dict() of an audit."
        got = f"schema {plain.get('schema')!r}"[:80] if isinstance(plain, Mapping) else type(plain).__name__
        raise ArgumentError(name, f"be a record of schema {SCHEMA}", got, fix)
    problems = find_problems(plain)
    if problems:
        raise ArgumentError(name, "be a record as it was written", problems[0], "Write it anew.")


def _find_samples(old: Mapping[str, Any], new: Mapping[str, Any]) -> Samples:
    """Return whether two records are about the same rows, by the digests of their columns."""
    before, after = (
        {role: [one["sha256"] for one in plain["record"]["columns"] if one["role"] == role] for role in DATA}
        for plain in (old, new)
    )
    if not before["scores"] or not after["scores"]:
        return "not known"
    if before == after:
        return "same data"
    shared = set(before["sensitive_features"]) & set(after["sensitive_features"])
    return "same rows" if shared and old["n"] == new["n"] else "different rows"


def _assumptions(old: Mapping[str, Any], new: Mapping[str, Any], samples: Samples) -> Iterator[str]:
    said = {
        "same data": "Both records are about the same data: what differs comes from options or versions.",
        "same rows": "Both records are about the same rows: their sensitive columns have the same digest.",
        "different rows": "The records are about different rows. They are taken as independent samples: "
        "digests do not show people who are in both.",
        "not known": "A record holds no digests of its columns: whether the samples share rows is not known.",
    }
    yield said[samples]
    if old["trained_on"] or new["trained_on"]:
        yield "One of the models was trained on its rows: no interval holds for the population."
    if old["weighted"] != new["weighted"]:
        yield "Only one of the audits has weights: its numbers are those of the weighted rows."


# ---- what the records say ----------------------------------------------------------------------------------


def _compare_making(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[RecordChange]:
    """Yield what was said about the audits, options and versions."""
    for section in (("about",), ("record", "options"), ("record", "versions")):
        before, after = (_get(plain, section) for plain in (old, new))
        for name in dict.fromkeys((*before, *after)):
            if section[-1] == "options" and name == "limits":
                continue  # among the limits
            yield from _differ(name.replace("_", " "), before.get(name), after.get(name))
    for name in ("subject", "seed"):
        yield from _differ(name, old[name], new[name])
    yield from _differ("platform", old["record"]["platform"], new["record"]["platform"])


def _compare_data(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[RecordChange]:
    """Yield counts of rows, and the range and mean of columns."""
    names = {
        "n": "rows",
        "groups": "groups of rows",
        "left_out": "rows left out",
        "repeated": "repeated rows",
    }
    for name, words in names.items():
        yield from _differ(words, old[name], new[name])
    yield from _differ("weights", old["weighted"], new["weighted"])
    before, after = (columns_of(plain) for plain in (old, new))
    for name in before:
        if name in after:
            for field in ("kind", "low", "mean", "high"):
                words = {"low": "1 % quantile of ", "high": "99 % quantile of "}.get(field, f"{field} of ")
                yield from _differ(words + name, getattr(before[name], field), getattr(after[name], field))


def _compare_limits(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[RecordChange]:
    before, after = ({one["title"]: one for one in plain["limits"]} for plain in (old, new))
    for title in dict.fromkeys((*before, *after)):
        a, b = (None if one is None else _limit(one) for one in (before.get(title), after.get(title)))
        yield from _differ(title, a, b)


def _limit(one: Mapping[str, Any]) -> str:
    return f"{one['state']} (at most {number(one['at_most'])})"


def _differ(what: str, old: Any, new: Any) -> Iterator[RecordChange]:
    if old != new:
        yield RecordChange(what, _text(old), _text(new))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(item)}" for name, item in value.items()) or "none"
    return ", ".join(str(_text(item)) for item in value) or "none"


def _get(plain: Mapping[str, Any], keys: tuple[str, ...]) -> Mapping[str, Any]:
    for key in keys:
        plain = plain[key]
    return plain


# ---- numbers of the records --------------------------------------------------------------------------------


def _compare_numbers(
    old: Mapping[str, Any], new: Mapping[str, Any], samples: Samples
) -> tuple[tuple[NumberChange, ...], tuple[str, ...]]:
    """Return each number that both records hold, and what only one of them has."""
    before, after = (
        {" and ".join(one["names"]): one for one in (*plain["attributes"], *_joint(plain))}
        for plain in (old, new)
    )
    incomparable = [f"{name}: in one of the audits only." for name in before.keys() ^ after.keys()]
    found = []
    for name in before:
        if name not in after:
            continue
        if before[name]["kind"] != after[name]["kind"]:
            incomparable.append(f"{name}: {before[name]['kind']} in one, {after[name]['kind']} in the other.")
            continue
        one, other = (dict(_list_numbers(x)) for x in (before[name], after[name]))
        for key in dict.fromkeys((*one, *other)):
            if key not in one or key not in other:
                incomparable.append(f"{key[1]} on {name}: in one of the audits only.")
            elif (why := _obstacle(key[0], old, new)) is not None:
                incomparable.append(f"{key[1]} on {name}: cannot be compared: {why}.")
            else:
                unit = _unit(key[0], old, new)
                found.append(_compare_number(name, *key, unit, one[key], other[key], samples))
    return tuple(found), tuple(sorted(incomparable))


def _joint(plain: Mapping[str, Any]) -> list[Any]:
    return [] if plain["joint"] is None else [plain["joint"]]


def _list_numbers(one: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    """Yield each number of an attribute by its measure and title."""
    for name, result in one["measures"].items():
        yield (name, MEASURES[name].short if name in MEASURES else name), result
    for each in one["decisions"]:
        yield (DECISION_MEASURE, f"gap of decisions at {each['threshold']:g}"), each["gap"]
    outcome = one["outcome"]
    if outcome is not None:
        for part in outcome["labels"]:
            if part["gdp"] is not None:
                yield (WITHIN, f"GDP, outcome {part['label']}"), part["gdp"]
        if outcome["calibration_gap"] is not None:
            yield (CALIBRATION, "calibration gap"), outcome["calibration_gap"]


def _obstacle(measure: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return why two numbers are not about the same thing."""
    before, after = (plain["record"]["options"] for plain in (old, new))
    if old["subject"] != new["subject"]:
        return "a score in one, a representation in the other"
    if measure == CALIBRATION and before["positive_label"] != after["positive_label"]:
        return "the favourable outcome differs"
    return None


def _unit(measure: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if measure in SHARES:
        return "percentage points"
    if not is_gap(measure):
        return ""
    units = {plain["score"]["unit_interval"] for plain in (old, new) if plain["score"] is not None}
    return "percentage points" if units == {True} else "units of the score"


def _compare_number(
    attribute: str,
    measure: str,
    title: str,
    unit: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    samples: Samples,
) -> NumberChange:
    """Return the change of one number by the two records."""
    plain = NumberChange(
        attribute=attribute,
        measure=measure,
        title=title,
        unit=unit,
        old=old["estimate"],
        new=new["estimate"],
        change=new["estimate"] - old["estimate"],
        low=None,
        high=None,
        pvalue=None,
        confidence_level=None,
        basis="estimates",
        old_target=old.get("target"),
        new_target=new.get("target"),
        old_chance=old.get("chance"),
        new_chance=new.get("chance"),
    )
    if samples != "different rows":
        return replace(plain, why=WITHOUT_ROWS[samples])
    if old.get("low") is None or new.get("low") is None:
        return replace(plain, why="it has none in the records")
    if old["confidence_level"] != new["confidence_level"]:
        return replace(plain, why="cannot be compared: confidence levels differ")
    ends = [Ends(one["estimate"], one["low"], one["high"]) for one in (old, new)]
    _, low, high = difference_of_intervals(*ends)
    return replace(plain, low=low, high=high, confidence_level=new["confidence_level"], basis="intervals")
