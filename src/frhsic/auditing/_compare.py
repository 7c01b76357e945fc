"""What changed between two audits: from their records, and from the rows of both where these are given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._text import join_lines, number, percent
from frhsic.auditing._limits import DECISION_MEASURE
from frhsic.auditing._measures import MEASURES
from frhsic.auditing._parts import Column
from frhsic.auditing._record import hash_rows
from frhsic.auditing._results import SCHEMA
from frhsic.auditing._rows import RowsSubject, subjects_of_rows
from frhsic.auditing._subject import Settings
from frhsic.auditing._verify import find_problems
from frhsic.auditing._words import places
from frhsic.data import Sensitive, read_blocks, split_labels
from frhsic.dependence import GDP, Dependence, RankGap, ScoreGap
from frhsic.inference import (
    CurveChange,
    Ends,
    GapChange,
    Result,
    curve_change,
    difference_of_intervals,
    gap_change,
)

# The form of to_dict(): the number grows when a reader of older ones would misread a newer one.
SCHEMA_OF_COMPARISON: Final = "frhsic.comparison/1"

_Floats = NDArray[np.float64]
Samples = Literal["same data", "same rows", "different rows", "not known"]
Basis = Literal["rows", "intervals", "estimates"]

_CALIBRATION: Final = "calibration_gap"
_WITHIN: Final = "gdp_within"
# Shares of rows, whatever the unit of the score.
_SHARES: Final = ("gap_worst", DECISION_MEASURE)
_OF_SCORE: Final = (_CALIBRATION, _WITHIN)
# Scores whose middle 98 % differ by more than this factor are on different scales.
_SCALES: Final = 3.0
# Curves with a correlation below minus this run against one another.
_AGAINST: Final = 0.5
# Columns that make two samples the same ones.
_DATA: Final = ("scores", "sensitive_features", "y_true", "sample_weight", "groups")
_WITHOUT_ROWS: Final = {
    "same rows": "the same rows: give --data for an interval",
    "same data": "the same data: it comes from options or versions",
    "not known": "without digests it is not known whether the two samples share rows",
}


@dataclass(frozen=True)
class RecordChange(Result):
    """Something that two records say differently: a state, a version, an option, a count.

    Attributes
    ----------
    what : str
    old, new : str or None
        As text; None where a record does not say it.
    """

    what: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class NumberChange(Result):
    """One number of two audits.

    Attributes
    ----------
    attribute, measure, title : str
        ``measure`` is its name in a record; "gap_at" of decisions, "gdp_within" within an outcome.
    unit : str
        "percentage points", "units of the score" or "".
    old, new : float
        The two recorded estimates.
    change : float
        By ``basis``: from the rows, or the difference of the two estimates.
    low, high, pvalue : float or None
        Of the change; there is a p-value only from rows.
    confidence_level : float or None
    basis : {"rows", "intervals", "estimates"}
    why : str or None
        Why there is no interval.
    old_target, new_target : str or None
        What the two estimates are about; from rows, both what the change is about.
    old_chance, new_chance : float or None
        What the two estimates would be on average under independence.
    """

    attribute: str
    measure: str
    title: str
    unit: str
    old: float
    new: float
    change: float
    low: float | None
    high: float | None
    pvalue: float | None
    confidence_level: float | None
    basis: Basis
    why: str | None = None
    old_target: str | None = None
    new_target: str | None = None
    old_chance: float | None = None
    new_chance: float | None = None

    @property
    def shown(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0.0 or self.high < 0.0)

    @property
    def in_score_unit(self) -> bool:
        """Whether another scale of the score changes the number."""
        return _is_gap(self.measure) and self.measure not in _SHARES

    def format(self, x: float, *, sign: bool = False) -> str:
        """Return a value in the unit of the number."""
        form = "+" if sign else ""
        return f"{100.0 * x:{form}.1f}" if self.unit == "percentage points" else f"{x:{form}.3g}"

    def __str__(self) -> str:
        the = "" if self.title[:1].isupper() else "the "
        what = f"{the}{self.title} on {self.attribute}"
        moved = f"{self.format(self.change, sign=True)} {self.unit}".strip()
        recorded = f"recorded: {self.format(self.old)} and {self.format(self.new)}"
        if self.low is None or self.high is None or self.confidence_level is None:
            why = f": {self.why}" if self.why else ""
            return f"The estimates of {what} differ by {moved} ({recorded}); no interval{why}."
        said = (
            f"{what[0].upper()}{what[1:]} changed by" if self.shown else f"A change of {what} is not shown:"
        )
        ends = (
            f"{percent(self.confidence_level)} interval {self.format(self.low)} to {self.format(self.high)}"
        )
        return f"{said} {moved}, {ends} ({recorded})."


@dataclass(frozen=True)
class MeanChange(Result):
    """The change of the mean score along one attribute, from the rows of both audits.

    Attributes
    ----------
    attribute : str
    labels : tuple of str
        Of the points of a categorical attribute.
    curve : CurveChange
        Without points beyond the 1 % and the 99 % quantile of the attribute in one of the samples.
    """

    attribute: str
    labels: tuple[str, ...]
    curve: CurveChange

    def __str__(self) -> str:
        found = self.curve
        band = f"{percent(found.confidence_level)} band for all values at once"
        column = Column(self.attribute, "categorical" if self.labels else "continuous", 0, labels=self.labels)
        sides = [
            f"{word} than before {places(points, found, column)}"
            for word, points in (("higher", found.higher), ("lower", found.lower))
            if points
        ]
        if not sides:
            return f"A change of the mean score at any value of {self.attribute} is not shown ({band})."
        where = f"Along {self.attribute} the mean score is {' and '.join(sides)}"
        return f"{where} ({band}; {found.target})."


@dataclass(frozen=True)
class Comparison(Result):
    """Two audits beside each other.

    Attributes
    ----------
    samples : {"same data", "same rows", "different rows", "not known"}
        By the digests of the columns. "same rows": the sensitive columns are the same, row by row, and
        something else is not.
    made : tuple of RecordChange
        What is said about the audits, options and versions, where they differ.
    data : tuple of RecordChange
        Rows, and the range of the columns, where they differ.
    limits : tuple of RecordChange
        The state of each limit, where it differs.
    numbers : tuple of NumberChange
    curves : tuple of MeanChange
        Empty without rows.
    incomparable : tuple of str
        What is in one of the audits only, or cannot be compared, and why.
    notes : tuple of str
        What the intervals assume.
    scale_change : str or None
        How the scales of the two scores differ, where differences in the unit of the score mean nothing.
    rank_change : str or None
        Where the new score runs against the old one.

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic.auditing import audit
    >>> age = np.arange(18.0, 78.0)
    >>> old, new = (audit(k * age, sensitive_features={"age": age}, random_state=0) for k in (1, 2))
    >>> compare(old.to_dict(), new.to_dict()).samples
    'same rows'
    """

    samples: Samples
    made: tuple[RecordChange, ...]
    data: tuple[RecordChange, ...]
    limits: tuple[RecordChange, ...]
    numbers: tuple[NumberChange, ...]
    curves: tuple[MeanChange, ...]
    incomparable: tuple[str, ...]
    notes: tuple[str, ...] = ()
    scale_change: str | None = None
    rank_change: str | None = None

    def number(self, attribute: str, measure: str) -> NumberChange:
        """Return the change of one number; of decisions that at the first threshold."""
        for one in self.numbers:
            if (one.attribute, one.measure) == (attribute, measure):
                return one
        fix = f"Take one of {', '.join(sorted({one.measure for one in self.numbers}))}."
        raise ArgumentError("measure", "be in both audits", repr(measure), fix)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists; ``schema`` names the form."""
        return {"schema": SCHEMA_OF_COMPARISON, **_finite(super().to_dict())}

    def __str__(self) -> str:
        first = filter(None, (self.scale_change, self.rank_change))
        lines = [*first, *map(str, self.numbers), *map(str, self.curves), *self.incomparable, *self.notes]
        return join_lines(lines)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- comparing ---------------------------------------------------------------------------------------------


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
        both = _Both.read(old, new, old_rows, new_rows, samples)
        if samples != "same data":  # of which nothing could have changed
            numbers, more = _add_rows(numbers, both)
            curves, few = _compare_curves(both)
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


def _compare_ranks(old: Mapping[str, Any], new: Mapping[str, Any], both: _Both | None) -> str | None:
    """Return where the new score runs against the old one: its ranks, or its means along an attribute."""
    fix = "It may be one minus the old one: gaps do not show that."
    if both is not None and both.paired and both.old.width == both.new.width == 1:
        ranks = [_rank(subject.z[:, 0].numpy()) for subject in (both.old, both.new)]
        if min(rank.std() for rank in ranks) > 0.0:
            correlation = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
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


def _rank(x: _Floats) -> _Floats:
    """Return the mean rank of each value among all."""
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - 0.5 * (counts - 1.0))[place])


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
        {role: [one["sha256"] for one in plain["record"]["columns"] if one["role"] == role] for role in _DATA}
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
    before, after = (_columns(plain) for plain in (old, new))
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


def _columns(plain: Mapping[str, Any]) -> dict[str, Column]:
    """Return the score and the sensitive columns as they are described."""
    found = [*([] if plain["score"] is None else [plain["score"]]), *plain["columns"]]
    names = {field.name for field in fields(Column)}
    return {
        one["name"]: Column(**{name: value for name, value in one.items() if name in names}) for one in found
    }


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
                yield (_WITHIN, f"GDP, outcome {part['label']}"), part["gdp"]
        if outcome["calibration_gap"] is not None:
            yield (_CALIBRATION, "calibration gap"), outcome["calibration_gap"]


def _obstacle(measure: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return why two numbers are not about the same thing."""
    before, after = (plain["record"]["options"] for plain in (old, new))
    if old["subject"] != new["subject"]:
        return "a score in one, a representation in the other"
    if measure == _CALIBRATION and before["positive_label"] != after["positive_label"]:
        return "the favourable outcome differs"
    return None


def _is_gap(measure: str) -> bool:
    of_score = measure in MEASURES and MEASURES[measure].of_score
    return of_score or measure in (*_SHARES, *_OF_SCORE)


def _unit(measure: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if measure in _SHARES:
        return "percentage points"
    if not _is_gap(measure):
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
        return replace(plain, why=_WITHOUT_ROWS[samples])
    if old.get("low") is None or new.get("low") is None:
        return replace(plain, why="it has none in the records")
    if old["confidence_level"] != new["confidence_level"]:
        return replace(plain, why="cannot be compared: confidence levels differ")
    ends = [Ends(one["estimate"], one["low"], one["high"]) for one in (old, new)]
    _, low, high = difference_of_intervals(*ends)
    return replace(plain, low=low, high=high, confidence_level=new["confidence_level"], basis="intervals")


# ---- rows --------------------------------------------------------------------------------------------------


class _Both(NamedTuple):
    """The rows of both audits, as these read them."""

    old: RowsSubject
    new: RowsSubject
    records: tuple[Mapping[str, Any], Mapping[str, Any]]
    paired: bool
    groups: list[str] | None
    level: float

    @classmethod
    def read(
        cls,
        old: Mapping[str, Any],
        new: Mapping[str, Any],
        old_rows: Mapping[str, object],
        new_rows: Mapping[str, object],
        samples: Samples,
    ) -> _Both:
        """Check rows against the digests of their records, and read them."""
        subjects = []
        for name, plain, rows in (("old_rows", old, old_rows), ("new_rows", new, new_rows)):
            _check_rows(name, plain, rows)
            subjects.append(_read_subject(plain, rows))
        paired = samples in ("same rows", "same data")
        if paired and any(_digest(old, role) != _digest(new, role) for role in ("sample_weight", "groups")):
            must = "have the weights and groups of 'old_rows', whose sensitive columns they have"
            raise ArgumentError("new_rows", must, "others", "Audit both scores with the same ones.")
        groups = None
        if subjects[0].groups is not None or subjects[1].groups is not None:
            groups = _labels_of("a", old_rows, old["n"])
            if not paired:
                groups += _labels_of("b", new_rows, new["n"])
        return cls(subjects[0], subjects[1], (old, new), paired, groups, new["confidence_level"])

    def arguments(self, names: Sequence[str], z: tuple[Tensor, Tensor]) -> dict[str, Any]:
        """Return the arguments of a function of two samples, for one attribute or several jointly."""
        a, b = (one.s.columns(names) for one in (self.old, self.new))
        common = {"random_state": self.new.settings.seed, "confidence_level": self.level}
        if self.paired:
            w = self.old.w
            return {"scores": torch.cat(z, dim=1), "s": a, "sample_weight": w, "groups": self.groups} | common
        w = None
        if self.old.w is not None or self.new.w is not None:
            w = torch.cat(
                [torch.ones(one.n) / one.n if one.w is None else one.w for one in (self.old, self.new)]
            )
        mask = torch.arange(len(a) + len(b)) >= len(a)
        more = {"new": mask, "sample_weight": w, "groups": self.groups}
        return {"scores": torch.cat(z), "s": _join(a, b), **more} | common

    @property
    def names(self) -> list[str]:
        """The attributes that both have, and as the same kind."""
        kinds = [dict(zip(one.s.names, one.s.kinds, strict=True)) for one in (self.old, self.new)]
        return [name for name, kind in kinds[0].items() if kinds[1].get(name) == kind]

    def columns(self, attribute: str) -> list[str] | None:
        """Return the columns of an attribute of the audits; None unless both have them."""
        if attribute in self.names:
            return [attribute]
        return list(self.names) if " and ".join(self.names) == attribute else None

    def notes(self) -> Iterator[str]:
        """Yield what the intervals from rows are about."""
        yield ("Changes from rows are changes of gaps within the same values or ranges in both samples.")
        for name in [] if self.paired else self.names:
            a, b = (one.s.columns([name]).values[:, 0].sort().values for one in (self.old, self.new))
            if torch.equal(a, b):
                yield (
                    f"Both samples hold the same values of {name} in another order. If they are the same "
                    "people, sort the rows alike and audit them again: they are taken as independent here."
                )


def _check_rows(name: str, plain: Mapping[str, Any], rows: Mapping[str, object]) -> None:
    """Raise ArgumentError unless the rows have the digests of a record."""
    unknown = [role for role in rows if role not in _DATA]
    if unknown or "scores" not in rows:
        got = repr(unknown[0])[:40] if unknown else "no scores"
        raise ArgumentError(name, f"have keys among {', '.join(_DATA)}", got, "Pass those of audit().")
    if not plain["record"]["columns"]:
        fix = "Without digests nothing shows that these are the rows of the record."
        raise ArgumentError(name, "come with a record that holds digests", "one without", fix)
    found = hash_rows({role: rows.get(role) for role in _DATA})
    for role in _DATA:
        if [one.sha256 for one in found if one.role == role] != _digest(plain, role):
            fix = "Pass the rows that were audited, in their order."
            raise ArgumentError(name, "be the rows of the record", f"other values of {role!r}", fix)


def _digest(plain: Mapping[str, Any], role: str) -> list[str]:
    return [one["sha256"] for one in plain["record"]["columns"] if one["role"] == role]


def _read_subject(plain: Mapping[str, Any], rows: Mapping[str, object]) -> RowsSubject:
    options = plain["record"]["options"]
    settings = Settings(plain["confidence_level"], plain["seed"])
    label = options["positive_label"]
    if label is not None:
        known = {str(one.value): one.value for one in split_labels(rows["y_true"], name="y_true").kept}
        label = known[label]
    subjects, _ = subjects_of_rows(
        rows["scores"],
        settings,
        sensitive_features=rows.get("sensitive_features"),
        y_true=rows.get("y_true"),
        sample_weight=rows.get("sample_weight"),
        kinds=options["kinds"] or None,
        groups=rows.get("groups"),
        positive_label=label,
    )
    return subjects[-1]


def _labels_of(sample: str, rows: Mapping[str, object], n: int) -> list[str]:
    """Return the groups of rows by their labels, which may be in both samples; rows without are alone."""
    if rows.get("groups") is None:
        return [f"{sample}{row}" for row in range(n)]
    (block,) = read_blocks(rows["groups"], "groups")
    return [f"={label}" for label in block.array.tolist()]


def _join(a: Sensitive, b: Sensitive) -> Sensitive:
    """Return the columns of two samples, the categories of both in one order."""
    columns, categories = [], []
    known = [one.categories or (None,) * len(one.names) for one in (a, b)]
    for j, kind in enumerate(a.kinds):
        pair, labels = (a.values[:, j], b.values[:, j]), None
        if kind == "categorical":
            own = [each[j] or () for each in known]
            labels = tuple(sorted({*own[0], *own[1]}, key=lambda label: (str(type(label)), label)))
            codes = [torch.tensor([labels.index(x) for x in each], dtype=torch.float64) for each in own]
            pair = (codes[0][pair[0].long()], codes[1][pair[1].long()])
        columns.append(torch.cat(pair))
        categories.append(labels)
    return Sensitive(torch.stack(columns, dim=1), a.names, a.kinds, tuple(categories))


def _add_rows(
    numbers: tuple[NumberChange, ...], both: _Both
) -> tuple[tuple[NumberChange, ...], tuple[str, ...]]:
    """Return the numbers, with the changes of gaps from rows."""
    found, incomparable = [], []
    for one in numbers:
        chosen, names = _measure_of(one, both), both.columns(one.attribute)
        if chosen is None or names is None:
            why = one.why
            if both.paired and one.basis == "estimates" and one.why == _WITHOUT_ROWS["same rows"]:
                why = "of the same rows only gaps have one"
            found.append(replace(one, why=why))
            continue
        z, measure = chosen
        try:
            change = gap_change(dependence=measure, **both.arguments(names, z))
        except ArgumentError as error:
            incomparable.append(f"{one.title} on {one.attribute} from rows: {error}")
            found.append(one)
            continue
        found.append(_from_rows(one, change))
    return tuple(found), tuple(incomparable)


def _measure_of(one: NumberChange, both: _Both) -> tuple[tuple[Tensor, Tensor], Dependence] | None:
    """Return the scores and the measure of a number that can be compared from rows."""
    if both.old.width != 1:
        return None
    z = both.old.z, both.new.z
    measures: dict[str, Dependence] = {"gap": ScoreGap(), "rank_gap": RankGap(), "gdp": GDP()}
    if one.measure in measures:
        return z, measures[one.measure]
    if one.measure == DECISION_MEASURE:
        known = both.records[0]["record"]["options"]["thresholds"]
        cutoff = next(x for x in known if one.title.endswith(f" at {x:g}"))
        return z, ScoreGap(cutoff=cutoff)
    if one.measure == _CALIBRATION:
        old, new = both.old.residual(), both.new.residual()
        return None if old is None or new is None else ((old.z, new.z), GDP())
    return None


def _from_rows(one: NumberChange, found: GapChange) -> NumberChange:
    return replace(
        one,
        change=found.change,
        low=found.low,
        high=found.high,
        pvalue=found.pvalue,
        confidence_level=found.confidence_level,
        basis="rows",
        why=None,
        old_target=found.target,
        new_target=found.target,
    )


def _compare_curves(both: _Both) -> tuple[tuple[MeanChange, ...], tuple[str, ...]]:
    """Return the change of the mean score along each attribute that both audits have."""
    found, incomparable = [], []
    described = [_columns(plain) for plain in both.records]
    for name in both.names if both.old.width == both.new.width == 1 else []:
        arguments = both.arguments([name], (both.old.z, both.new.z))
        try:
            curve = curve_change(**arguments)
        except ArgumentError as error:
            incomparable.append(f"The mean score along {name}: {error}")
            continue
        curve = _keep_visible(curve, [one[name] for one in described])
        labels = (arguments["s"].categories or (None,))[0] or ()
        seen = {int(point) for point in curve.points} if labels else set()
        hidden = "(fewer than 10 rows)"
        shown = tuple(str(label) if code in seen else hidden for code, label in enumerate(labels))
        found.append(MeanChange(name, shown, curve))
    return tuple(found), tuple(incomparable)


def _keep_visible(curve: CurveChange, columns: list[Column]) -> CurveChange:
    """Return a curve without the extremes of a continuous attribute: these belong to single rows."""
    kept = set(range(len(curve.points)))
    for column in columns:
        if column.kind == "continuous":
            kept &= set(column.visible(curve.points))
    values: dict[str, Any] = {
        name: tuple(getattr(curve, name)[i] for i in sorted(kept))
        for name in ("points", "old", "new", "change", "low", "high", "counts", "start", "stop")
    }
    return replace(curve, **values)
