"""Computing an audit again, and comparing it with its record number by number."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from frhsic._checks import ArgumentError
from frhsic._text import join_lines
from frhsic.auditing._record import digest
from frhsic.auditing._results import SCHEMA, Audit
from frhsic.inference import Result

State = Literal["same bits", "within tolerance", "differs", "not computed"]

# Relative, where versions or the machine differ; of numbers near zero, absolute.
TOLERANCE: Final = 1e-6
_NEAR_ZERO: Final = 1e-9
_MOST_BYTES: Final = 1 << 28  # of a record
# What says how an audit was made, and is compared by itself.
_MADE: Final = ("digest", "version", "record.versions", "record.platform", "record.columns", "record.layout")
# Words that another version may write otherwise.
_TEXTS: Final = ("notes", "target", "method", "certifies", "vacuous_when", "title", "measure")


@dataclass(frozen=True)
class Difference(Result):
    """One place of a record at which an audit that was computed again says something else.

    Attributes
    ----------
    place : str
        Such as ``attributes.0.measures.gap.estimate``.
    state : {"within tolerance", "differs", "not computed"}
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
    problems: tuple[str, ...]
    differences: tuple[Difference, ...]
    columns: dict[str, bool]
    versions: dict[str, str]

    @property
    def code(self) -> int:
        """The exit code of ``frhsic verify``: 0 same or near, 1 differs, 3 something was not computed."""
        if self.problems or self.differ or not all(self.columns.values()):
            return 1
        return 3 if self.lost or not self.columns else 0

    def __str__(self) -> str:
        parts = [f"{self.same:,} have the same bits"]
        if self.near or self.versions:
            parts.append(f"{self.near:,} are the same within {TOLERANCE:g} (relative)")
        parts += [f"{self.differ:,} differ", f"{self.lost:,} could not be computed"]
        good = sum(self.columns.values())
        lines = [
            *self.problems,
            f"Columns: {good} of {len(self.columns)} have the recorded digest."
            if self.columns
            else "Columns: the record holds no digest of them.",
            f"Numbers and words of the record: {', '.join(parts)}.",
        ]
        if self.versions:
            changed = ", ".join(f"{name} {how}" for name, how in self.versions.items())
            lines.append(f"Not as it was: {changed}.")
        return join_lines(lines)


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
        plain = json.loads(file.read_text("utf-8"), parse_constant=_no_constant)
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


def find_problems(plain: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why a record cannot be what an audit wrote; nothing else is checked without the rows."""
    problems = []
    if digest(plain) != plain.get("digest"):
        problems.append("The digest does not fit: the record was changed after it was written.")
    try:
        problems += _contradictions(plain)
    except (KeyError, TypeError, AttributeError):
        problems.append("Parts of the record are missing or of another type.")
    return tuple(problems)


def _contradictions(plain: Mapping[str, Any]) -> Iterator[str]:
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
    counts: Counter[State] = Counter()
    differences = []
    for place in dict.fromkeys((*old_leaves, *new_leaves)):
        if place.startswith(_MADE):
            continue
        absent = object()
        old, fresh = old_leaves.get(place, absent), new_leaves.get(place, absent)
        state: State
        if fresh is absent:
            state = "not computed"
        elif old is absent:
            state = "differs"
        else:
            state = _compare(place, old, fresh, tolerant=tolerant, texts="frhsic" in versions)
        counts[state] += 1
        if state != "same bits":
            shown = ("nothing" if x is absent else repr(x)[:60] for x in (old, fresh))
            differences.append(Difference(place, state, *shown))
    return Verification(
        same=counts["same bits"],
        near=counts["within tolerance"],
        differ=counts["differs"],
        lost=counts["not computed"],
        problems=find_problems(plain),
        differences=tuple(differences),
        columns=_compare_columns(plain["record"], new["record"]),
        versions=versions,
    )


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
    number = isinstance(old, int | float) and isinstance(new, int | float)
    if old == new and type(old) is type(new):
        return "same bits"
    if not tolerant:
        return "differs"
    if number and not isinstance(old, bool) and not isinstance(new, bool):
        return (
            "within tolerance" if math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=_NEAR_ZERO) else "differs"
        )
    words = texts and isinstance(old, str) and any(name in _TEXTS for name in place.split("."))
    return "within tolerance" if words else "differs"
