"""The gate of an audit: limits for measures, and whether they are kept."""

from __future__ import annotations

import datetime
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError, is_number
from frhsic._text import quote, to_line
from frhsic.cli._options import parse_float
from frhsic.cli._output import echo

if TYPE_CHECKING:
    import frhsic.auditing

# For the help, which loads no library; a test compares them with those of an audit.
BUILT_IN = ("gap", "gdp", "gap_worst", "normalized_hsic", "hsic", "distance_correlation", "kernel_hgr")
# Of decisions: the gap at each --threshold.
DECISION_MEASURE = "gap_at"
# Beside the outcome: the gap within the favourable label, within each label, and of outcome minus score.
OUTCOME_MEASURES = ("equal_opportunity", "equalized_odds", "calibration_gap")
_ENDS = ("lower", "upper", "estimate")
_KEYS = ("fixed", "fail_on", "limits")
_WORDS = {
    "passed": "Passed",
    "failed": "FAILED",
    "not shown": "NOT SHOWN",
    "not measured": "NOT MEASURED",
}


@dataclass(frozen=True)
class Gate:
    """Limits by measure, when they were fixed, and which end of the interval decides the exit code."""

    limits: dict[str, float]
    end: str = "lower"
    fixed: str | None = None

    @classmethod
    def parse(
        cls,
        texts: Sequence[str] | None,
        end: str | None,
        *,
        several: bool,
        outcome: bool,
        thresholds: bool = False,
        file: Path | None = None,
    ) -> Gate:
        """Read the options of a gate for an audit of one or several columns, with or without an outcome."""
        limits = dict(_parse_limit(*_split(text), flag="--fail-above") for text in texts or ())
        fixed = None
        if file is not None:
            read = _read_file(file)
            own = dict(_parse_limit(name, x, flag=str(file)) for name, x in _items(read, file))
            twice = [name for name in own if name in limits]
            if twice:
                fix = "Leave one out."
                raise ArgumentError("--fail-above", "not be in --limits too", quote(twice[0]), fix)
            limits, fixed, end = {**own, **limits}, _fixed(read), end or read.get("fail_on")
        if end is not None and end not in _ENDS:
            must = f"be one of {', '.join(_ENDS)}"
            raise ArgumentError("--fail-on", must, quote(str(end)), "Leave it out for lower.")
        if end is not None and not limits:
            fix = "Add --fail-above gdp=0.05, say."
            raise ArgumentError("--fail-on", "come with --fail-above or --limits", f"{end} and no limit", fix)
        _check_measures(limits, end, several=several, outcome=outcome, thresholds=thresholds)
        return cls(limits, end or "lower", fixed)

    def check(self, found: frhsic.auditing.Audit) -> bool:
        """Print each limit beside its number; return whether the command succeeds."""
        import frhsic.auditing

        kept = True
        for one in found.limits:
            fails = one.exceeds(self.end)
            text = frhsic.auditing.limit_sentence(one, found.confidence_level)
            echo(f"{_WORDS[one.state]}: {to_line(text, 400)}", error=fails or one.state != "passed")
            kept &= not fails
        return kept


def _check_measures(
    limits: Iterable[str], end: str | None, *, several: bool, outcome: bool, thresholds: bool
) -> None:
    """Raise ArgumentError for a measure that the audit will not have."""
    if limits:
        import frhsic.auditing
    for name in limits:
        flag, measure = f"--fail-above {name}", frhsic.auditing.MEASURES.get(name)
        if several and (measure is None or measure.of_score):
            must = "have a single --score: it is a gap between mean scores"
            raise ArgumentError(flag, must, "several", "Take normalized_hsic for a representation.")
        if name == DECISION_MEASURE:
            if not thresholds:
                raise ArgumentError(flag, "come with --threshold", "none", "Add --threshold 0.5, say.")
        elif measure is None and not outcome:
            raise ArgumentError(flag, "come with --label", "no outcome", "Name its column with --label.")
        elif end in ("lower", "upper") and measure is not None and not measure.has_interval:
            must = "come with --fail-on estimate: it has no interval"
            raise ArgumentError(flag, must, str(end), "Take distance_correlation.")


def _read_file(file: Path) -> dict[str, Any]:
    """Return the limits that a TOML file holds."""
    try:
        read = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        got, fix = f"line and column: {error}"[:120], "Write a [limits] table with lines such as gap = 0.05."
        raise ArgumentError("--limits", "be a TOML file", got, fix) from None
    unknown = [name for name in read if name not in _KEYS]
    if unknown or not isinstance(read.get("limits"), dict):
        got = quote(unknown[0]) if unknown else "no [limits]"
        fix = "Write: fixed = 2026-11-01, then [limits] with lines such as gap = 0.05."
        raise ArgumentError("--limits", f"hold {', '.join(_KEYS)} and nothing else", got, fix)
    return read


def _items(read: Mapping[str, Any], file: Path) -> list[tuple[str, str]]:
    found = []
    for name, value in read["limits"].items():
        if not is_number(value):
            fix = "Write gap = 0.05, say."
            raise ArgumentError(str(file.name), "have a number for each measure", quote(name), fix)
        found.append((name, repr(value)))
    return found


def _fixed(read: Mapping[str, Any]) -> str | None:
    """Return when the limits were fixed, as the file says."""
    value = read.get("fixed")
    if value is None:
        return None
    return value.isoformat() if isinstance(value, datetime.date | datetime.datetime) else str(value)


def _split(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _parse_limit(name: str, value: str, *, flag: str) -> tuple[str, float]:
    # Measures other than the built-in ones exist only where auditing is loaded.
    auditing = sys.modules.get("frhsic.auditing")
    known = (*(BUILT_IN if auditing is None else auditing.MEASURES), DECISION_MEASURE, *OUTCOME_MEASURES)
    shown, name = quote(f"{name}={value}" if value else name), name.strip().lower().replace("-", "_")
    if name not in known:
        must = f"be MEASURE=NUMBER with one of {', '.join(known)}"
        raise ArgumentError(flag, must, shown, "Write --fail-above gdp=0.05, say.")
    limit = parse_float(value)
    if limit is None or not limit >= 0.0:
        fix = f"Write --fail-above {name}=0.05, say."
        raise ArgumentError(flag, "be MEASURE=NUMBER", shown, fix)
    return name, limit
