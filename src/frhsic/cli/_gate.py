"""The gate of an audit: limits for measures, and whether they are kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic._text import number, quote, to_line
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
_ENDS = {"estimate": "estimate", "lower": "low", "upper": "high"}


@dataclass(frozen=True)
class Gate:
    """Limits by measure, and which end of the interval is compared with them."""

    limits: dict[str, float]
    end: str = "estimate"

    @classmethod
    def parse(
        cls, texts: Sequence[str] | None, end: str, *, several: bool, outcome: bool, thresholds: bool = False
    ) -> Gate:
        """Read the options of a gate for an audit of one or several columns, with or without an outcome."""
        if end not in _ENDS:
            must = f"be one of {', '.join(_ENDS)}"
            raise ArgumentError("--fail-on", must, quote(end), "Leave it out for estimate.")
        if end != "estimate" and not texts:
            fix = "Add --fail-above gdp=0.05, say."
            raise ArgumentError("--fail-on", "come with --fail-above", f"{end} and no limit", fix)
        limits = dict(map(_parse_limit, texts or ()))
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
                continue
            if measure is None and not outcome:
                raise ArgumentError(flag, "come with --label", "no outcome", "Name its column with --label.")
            if end != "estimate" and measure is not None and not measure.has_interval:
                must = "come with --fail-on estimate: it has no interval"
                raise ArgumentError(flag, must, end, "Take distance_correlation.")
        return cls(limits, end)

    def check(self, found: frhsic.auditing.Audit) -> bool:
        """Print which measures are above their limits; return whether all keep them."""
        failed = 0
        for name, limit in self.limits.items():
            for one in found.attributes:
                for title, measured in _select(one, name):
                    failed += self._exceeds(f"{title} on {to_line(one.name)}", measured, limit)
        return not failed

    def _exceeds(self, what: str, measured: Any, limit: float) -> bool:
        """Print whether a measure keeps its limit; one that cannot be measured does not."""
        import frhsic.auditing

        if measured is None:
            why = f"cannot be measured on these rows, so it is not shown to keep {number(limit)}"
            echo(f"FAILED: {what} {why}.", error=True)
            return True
        single = isinstance(measured, frhsic.auditing.Estimate)
        value = measured.estimate if single else getattr(measured, _ENDS[self.end])
        above = bool(value > limit)
        verdict = {
            "estimate": f"is {number(value)}, which {'is above' if above else 'is not above'}",
            "upper": "is not shown to be below" if above else "is shown to be at most",
            "lower": "is shown to be above" if above else "is not shown to be above",
        }[self.end]
        if single:
            certainty = f"Under independence it is seldom above {number(measured.chance_high)}."
        else:
            where = "holds the limit: these rows leave open on which side the true value is"
            if measured.low > limit or measured.high < limit:
                where = f"lies {'above' if measured.low > limit else 'below'} the limit as a whole"
            ends = f"{number(measured.low)} to {number(measured.high)}"
            certainty = f"The {100 * measured.confidence_level:g}% interval, {ends}, {where}."
        echo(f"{'FAILED' if above else 'Passed'}: {what} {verdict} {number(limit)}. {certainty}", error=above)
        return above


def _parse_limit(text: str) -> tuple[str, float]:
    # Measures other than the built-in ones exist only where auditing is loaded.
    auditing = sys.modules.get("frhsic.auditing")
    known = (*(BUILT_IN if auditing is None else auditing.MEASURES), DECISION_MEASURE, *OUTCOME_MEASURES)
    name, _, value = text.partition("=")
    name = name.strip().lower().replace("-", "_")
    if name not in known:
        must = f"be MEASURE=NUMBER with one of {', '.join(known)}"
        raise ArgumentError("--fail-above", must, quote(text), "Write --fail-above gdp=0.05, say.")
    limit = parse_float(value)
    if limit is None:
        fix = f"Write --fail-above {name}=0.05, say."
        raise ArgumentError("--fail-above", "be MEASURE=NUMBER", quote(text), fix)
    return name, limit


def _select(one: frhsic.auditing.Attribute, name: str) -> list[tuple[str, Any]]:
    """Return what a limit is about: one measure, or one for each label of the outcome."""
    import frhsic.auditing

    if name in frhsic.auditing.MEASURES:
        return [(frhsic.auditing.MEASURES[name].short, one.measures.get(name))]
    if name == DECISION_MEASURE:
        return [(f"gap of decisions at {number(each.threshold)}", each.gap) for each in one.decisions] or [
            ("gap of decisions", None)
        ]
    outcome = one.outcome
    if name == "calibration_gap":
        return [("the calibration gap", None if outcome is None else outcome.calibration_gap)]
    gaps = [
        (f"GDP where the outcome is {to_line(given.label)},", given.gdp)
        for given in (() if outcome is None else outcome.labels)
        if outcome is not None and (name == "equalized_odds" or given.label == outcome.equal_opportunity)
    ]
    return gaps or [(name.replace("_", " "), None)]
