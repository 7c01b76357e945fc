"""Computing an audit again, and comparing it with its record number by number."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from frhsic._checks import ArgumentError
from frhsic._text import join_lines, shorten
from frhsic.auditing._record import digest
from frhsic.auditing._results import SCHEMA, Audit
from frhsic.inference import Result

State = Literal["same bits", "within tolerance", "other words", "differs", "not computed"]

# Relative, where versions or the machine differ; of numbers near zero, absolute.
TOLERANCE: Final = 1e-6
_NEAR_ZERO: Final = 1e-9
_MOST_BYTES: Final = 1 << 28  # of a record
# What says how an audit was made, and is compared by itself.
_MADE: Final = ("digest", "version", "record.versions", "record.platform", "record.columns", "record.layout")
# Sentences that another version may write otherwise, and where there are none: what the caller said or asked.
_TEXTS: Final = ("notes", "target", "method", "certifies", "vacuous_when", "title", "measure")
_SAID: Final = ("about.", "record.", "columns.", "score.", "claims.")
_MEASURE: Final = ["limits", "measure"]
# Of places that differ, those of these names are printed first, and draws last.
_FIRST: Final = ("seed", "state", "says", "estimate", "low", "high", "pvalue", "at_most", "n")
_LAST: Final = ("null", "length")
_LINES: Final = 12


@dataclass(frozen=True)
class Difference(Result):
    """One place of a record at which an audit that was computed again says something else.

    Attributes
    ----------
    place : str
        Such as ``attributes.0.measures.gap.estimate``.
    state : {"within tolerance", "other words", "differs", "not computed"}
        Other words: a sentence that another version of frhsic may write otherwise.
    recorded, computed : str
        Both values as text, cut to 60 characters.
    """

    place: str
    state: State
    recorded: str
    computed: str


@dataclass(frozen=True)
class Verification(Result):
    """A record beside the same audit, computed again.

    Attributes
    ----------
    same, near, differ, lost : int
        How many numbers have the same bits, are within the tolerance, differ, and could not be computed.
    words, reworded : int
        How many texts are the same, and how many are not.
    problems : tuple of str
        Why the record cannot be what was written: its digest does not fit, or its parts contradict each
        other.
    differences : tuple of Difference
        All places that do not have the same bits.
    columns : dict of str to bool
        Whether the digest of each column is the recorded one, by role and name.
    versions : dict of str to str
        Versions that differ, as "recorded -> here".
    """

    same: int
    near: int
    differ: int
    lost: int
    words: int
    reworded: int
    problems: tuple[str, ...]
    differences: tuple[Difference, ...]
    columns: dict[str, bool]
    versions: dict[str, str]

    @property
    def code(self) -> int:
        """The exit code of ``frhsic verify``: 0 same or near, 1 differs, 3 something was not compared."""
        states = {one.state for one in self.differences}
        if self.problems or "differs" in states or not all(self.columns.values()):
            return 1
        return 3 if states & {"not computed", "other words"} or not self.columns else 0

    @property
    def verdict(self) -> str:
        """One sentence: whether the rows give the record."""
        states = {one.state for one in self.differences}
        if self.code == 0:
            return "Verified: the rows give the recorded numbers and words."
        if not all(self.columns.values()):
            return "Not verified: these are not the recorded rows."
        if self.problems:
            return "Not verified: the record was changed, or was never written by an audit."
        if "differs" in states:
            return "Not verified: the rows give something else than the record."
        if not self.columns:
            return "Not verified: the record does not say of which rows it is."
        if "not computed" in states:
            return "Not verified as a whole: a part of the record could not be computed here."
        return (
            "Numbers verified, words not: the record names another version of frhsic, which may word them "
            "otherwise. Read the words above, or verify with that version."
        )

    def lines(self) -> list[str]:
        """Return what is to be said in at most twelve lines, the verdict last."""
        lines = [f"CHANGED: {problem}" for problem in _first(self.problems, 3, "problems")]
        wrong = [name for name, same in self.columns.items() if not same]
        lines += [
            f"DIFFERS: the column {name} is not the recorded one." for name in _first(wrong, 2, "columns")
        ]
        numbers = [f"{self.same:,} have the same bits"]
        if self.near or self.versions:
            numbers.append(f"{self.near:,} are the same within {TOLERANCE:g} (relative)")
        numbers += [f"{self.differ:,} differ", f"{self.lost:,} could not be computed"]
        good = sum(self.columns.values())
        closing = [
            f"Columns: {good} of {len(self.columns)} have the recorded digest."
            if self.columns
            else "Columns: the record holds no digest of them.",
            f"Numbers of the record: {', '.join(numbers)}.",
            f"Words of the record: {self.words:,} are the same, {self.reworded:,} are not.",
        ]
        if self.versions:
            changed = ", ".join(f"{name} {how}" for name, how in self.versions.items())
            closing.append(f"Not as it was: {changed}.")
        closing.append(self.verdict)
        return [*lines, *self._places(_LINES - len(lines) - len(closing)), *closing]

    def _places(self, most: int) -> list[str]:
        """Return what differs, one line for all places of one name."""
        groups: dict[str, list[Difference]] = {}
        for one in self.differences:
            if one.state != "within tolerance":
                name = ".".join(part for part in one.place.split(".") if not part.isdecimal())
                groups.setdefault(name, []).append(one)
        found = sorted(groups.values(), key=lambda some: _rank(some[0]))
        lines = []
        for some in found[: most if len(found) <= most else most - 1]:
            more = f" (and at {len(some) - 1:,} more such places)" if len(some) > 1 else ""
            words = "WORDS" if some[0].state == "other words" else "DIFFERS"
            shown = f"{some[0].recorded} in the record, {some[0].computed} now{more}"
            lines.append(f"{words}: {some[0].place}: {shown}.")
        left = sum(map(len, found[len(lines) :]))
        return [*lines, f"... and at {left:,} more places."] if left else lines

    def __str__(self) -> str:
        return join_lines(self.lines())


def _rank(one: Difference) -> tuple[int, int]:
    """Return the order in which places are printed: draws last, a certificate after attributes."""
    parts = [part for part in one.place.split(".") if not part.isdecimal()]
    late = parts[-1] in _LAST or "null" in parts
    first = _FIRST.index(parts[-1]) if parts[-1] in _FIRST else len(_FIRST)
    return (2 if late else 0 if one.state != "other words" else 1), first


def _first(texts: Sequence[str], most: int, what: str) -> list[str]:
    if len(texts) <= most:
        return list(texts)
    return [*texts[: most - 1], f"{texts[most - 1]} And {len(texts) - most:,} more {what}."]


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the record of an audit from a JSON file; it holds data only, and nothing in it is run.

    Parameters
    ----------
    path : str or path
        Written by ``frhsic audit --json``.

    Returns
    -------
    dict

    Examples
    --------
    >>> read_record("pyproject.toml")
    Traceback (most recent call last):
    frhsic._checks.ArgumentError: 'record' must be the JSON of an audit. Got another file. Write one by frhsic
    audit --json.
    """
    file, fix = Path(path), "Write one by frhsic audit --json."
    if file.stat().st_size > _MOST_BYTES:
        raise ArgumentError("record", "be the JSON of an audit", "a file of more than 256 MiB", fix)
    try:
        plain = json.loads(
            file.read_text("utf-8"),
            parse_constant=_no_constant,
            parse_int=_read_integer,
            object_pairs_hook=_read_object,
        )
        for _ in _leaves(plain):  # not nested too deeply
            pass
    except _DuplicateNameError as error:
        must = "hold each name of an object once: readers of JSON take different ones of two"
        raise ArgumentError("record", must, f"{str(error)[:60]!r} twice", fix) from None
    except (ValueError, RecursionError):
        raise ArgumentError("record", "be the JSON of an audit", "another file", fix) from None
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        got = f"schema {plain.get('schema')!r}"[:80] if isinstance(plain, dict) else "no object"
        raise ArgumentError("record", f"be the JSON of an audit of schema {SCHEMA}", got, fix)
    needed = ("attributes", "columns", "limits", "record", "digest", "seed", "n", "confidence_level")
    absent = [name for name in needed if name not in plain]
    if absent or not isinstance(plain["record"], dict):
        raise ArgumentError("record", "be a whole record", f"none of {', '.join(absent) or 'record'}", fix)
    return plain


def _no_constant(_text: str) -> float:
    raise ValueError("not JSON")


class _DuplicateNameError(Exception):
    """An object of a JSON file has a name twice."""


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise _DuplicateNameError(next(name for name, count in names.items() if count > 1))
    return found


def _read_integer(text: str) -> int | float:
    """Return a whole number; infinity of one with more digits than Python reads."""
    try:
        return int(text)
    except ValueError:
        return math.copysign(math.inf, -1.0 if text.startswith("-") else 1.0)


def find_problems(plain: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why a record cannot be what an audit wrote; nothing else is checked without the rows."""
    problems = [
        f"{place} is no finite number."
        for place, value in _leaves(plain)
        if isinstance(value, float) and not math.isfinite(value)
    ]
    if problems or digest(plain) != plain.get("digest"):
        problems.append("The digest does not fit: the record was changed after it was written.")
    try:
        problems += _contradictions(plain)
    except (KeyError, TypeError, AttributeError):
        problems.append("Parts of the record are missing or of another type.")
    return tuple(problems)


def _contradictions(plain: Mapping[str, Any]) -> Iterator[str]:
    if plain["version"] != plain["record"]["versions"]["frhsic"]:
        yield "It names two versions of frhsic."
    for one in plain["limits"]:
        low, high, limit = one["low"], one["high"], one["at_most"]
        if one["estimate"] is None:
            expected = "not measured"
        else:
            low, high = (one["estimate"] if end is None else end for end in (low, high))
            expected = "passed" if high <= limit else ("failed" if low > limit else "not shown")
        if one["state"] != expected:
            said = f"is said to be {one['state']}, but its numbers say {expected}"
            yield f"The limit of {one['measure']} {said}."
        asked = plain["record"]["options"]["limits"].get(one["measure"])
        if asked != limit:
            yield f"The limit of {one['measure']} is not the one among the options."
    for place, value in _leaves(plain["attributes"], "attributes"):
        if place.endswith("pvalue") and value is not None and not 0.0 <= value <= 1.0:
            yield f"{place} is no p-value."


def verify(plain: Mapping[str, Any], found: Audit) -> Verification:
    """Compare the record of an audit with the same audit, computed again.

    Parameters
    ----------
    plain : dict
        The record: :func:`read_record` of a file, or ``to_dict()`` of an earlier audit.
    found : Audit
        Of the same rows with the same options; ``random_state`` is the ``seed`` of the record.

    Returns
    -------
    Verification

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic.auditing import audit
    >>> age = np.arange(18.0, 78.0)
    >>> record = audit(age**2, sensitive_features={"age": age}, random_state=0).to_dict()
    >>> again = audit(age**2, sensitive_features={"age": age}, random_state=0)
    >>> verify(record, again).code
    0
    """
    if not hasattr(found, "to_dict"):
        must, fix = "be an audit of the same rows", "Pass audit(..., random_state=plain['seed'])."
        raise ArgumentError("found", must, type(found).__name__, fix)
    new = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    versions = _changed_versions(plain["record"], new["record"])
    tolerant = bool(versions)
    old_leaves, new_leaves = dict(_leaves(plain)), dict(_leaves(new))
    numbers: Counter[State] = Counter()
    words: Counter[State] = Counter()
    differences = []
    absent = object()
    for place in dict.fromkeys((*old_leaves, *new_leaves)):
        if place.startswith(_MADE):
            continue
        old, fresh = old_leaves.get(place, absent), new_leaves.get(place, absent)
        state: State
        if fresh is absent:
            state = "not computed"
        elif old is absent:
            state = "differs"
        else:
            state = _compare(place, old, fresh, tolerant=tolerant, texts="frhsic" in versions)
        (words if isinstance(old, str) or isinstance(fresh, str) else numbers)[state] += 1
        if state != "same bits":
            shown = ("nothing" if x is absent else _shorten(x) for x in (old, fresh))
            differences.append(Difference(place, state, *shown))
    return Verification(
        same=numbers["same bits"],
        near=numbers["within tolerance"],
        differ=numbers["differs"],
        lost=numbers["not computed"],
        words=words["same bits"],
        reworded=words.total() - words["same bits"],
        problems=find_problems(plain),
        differences=tuple(differences),
        columns=_compare_columns(plain["record"], new["record"]),
        versions=versions,
    )


def _shorten(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**60:
        return "a whole number of more than 60 digits"
    return shorten(repr(value))


def _changed_versions(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    found = {
        name: f"{old['versions'].get(name)} -> {version}"
        for name, version in new["versions"].items()
        if old["versions"].get(name) != version
    }
    if old["platform"] != new["platform"]:
        found["platform"] = f"{old['platform']} -> {new['platform']}"
    if old["layout"] != new["layout"]:
        found["pieces of the files"] = "other ones, from which a sketch gives other numbers"
    return found


def _compare_columns(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, bool]:
    fresh = {(one["role"], one["name"]): one["sha256"] for one in new["columns"]}
    return {
        f"{one['role']} {one['name'] or ''}".strip(): fresh.get((one["role"], one["name"])) == one["sha256"]
        for one in old["columns"]
    }


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Return each number, text or truth value of a record with its place."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list):
        yield f"{place}.length", len(value)
        for j, item in enumerate(value):
            yield from _leaves(item, f"{place}.{j}")
    else:
        yield place, value


def _compare(place: str, old: Any, new: Any, *, tolerant: bool, texts: bool) -> State:
    if type(old) is type(new) and old == new:
        return "same bits"
    if not tolerant:
        return "differs"
    if isinstance(old, str) and isinstance(new, str):
        names = [part for part in place.split(".") if not part.isdecimal()]
        sentence = texts and names[-1] in _TEXTS and not place.startswith(_SAID) and names != _MEASURE
        return "other words" if sentence else "differs"
    number = isinstance(old, int | float) and isinstance(new, int | float)
    if not number or isinstance(old, bool) or isinstance(new, bool):
        return "differs"
    try:
        near = math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=_NEAR_ZERO)
    except OverflowError:  # a whole number beyond all floats
        near = False
    return "within tolerance" if near else "differs"
