"""The result of a comparison of two audits: what it holds, and its sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from frhsic._checks import ArgumentError
from frhsic._text import join_lines, percent
from frhsic.auditing._limits import DECISION_MEASURE
from frhsic.auditing._measures import MEASURES
from frhsic.auditing._parts import Column
from frhsic.auditing._results import finite
from frhsic.auditing._words import places
from frhsic.inference import CurveChange, Result

# The form of to_dict(): the number grows when a reader of older ones would misread a newer one.
SCHEMA_OF_COMPARISON: Final = "frhsic.comparison/1"
Samples = Literal["same data", "same rows", "different rows", "not known"]
Basis = Literal["rows", "intervals", "estimates"]
CALIBRATION: Final = "calibration_gap"
WITHIN: Final = "gdp_within"
# Shares of rows, whatever the unit of the score.
SHARES: Final = ("gap_worst", DECISION_MEASURE)
_OF_SCORE: Final = (CALIBRATION, WITHIN)


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
        return is_gap(self.measure) and self.measure not in SHARES

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
    >>> from frhsic.auditing import audit, compare
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
        return {"schema": SCHEMA_OF_COMPARISON, **finite(super().to_dict())}

    def __str__(self) -> str:
        first = filter(None, (self.scale_change, self.rank_change))
        lines = [*first, *map(str, self.numbers), *map(str, self.curves), *self.incomparable, *self.notes]
        return join_lines(lines)


def is_gap(measure: str) -> bool:
    of_score = measure in MEASURES and MEASURES[measure].of_score
    return of_score or measure in (*SHARES, *_OF_SCORE)
