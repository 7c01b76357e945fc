"""Results of comparisons of two samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frhsic._text import number, percent
from frhsic.inference._results import Result, places_of

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class GapChange(Result):
    """By how much the gap of a score changed between two samples, or between two scores of one sample.

    Attributes
    ----------
    old, new : float
        The gaps, without most of what chance adds to them.
    change : float
        New minus old.
    low, high : float
        The interval of the change.
    pvalue : float
        Small when the interval excludes zero also at a high confidence.
    confidence_level : float
    measure, target : str
    attributes : tuple of str
    n_old, n_new : int
        Independent units: rows, or groups of rows.
    paired : bool
        Whether both scores are those of the same rows.
    method : str
    notes : tuple of str

    Examples
    --------
    >>> print(GapChange(0.05, 0.062, 0.012, 0.003, 0.021, 0.009, 0.95, "GDP", "", ("age",), 900, 900, False))
    GDP on age changed by +0.012, 95% interval 0.003 to 0.021 (p = 0.009): from 0.05 (n = 900) to 0.062 (n =
    900).
    """

    old: float
    new: float
    change: float
    low: float
    high: float
    pvalue: float
    confidence_level: float
    measure: str
    target: str
    attributes: tuple[str, ...]
    n_old: int
    n_new: int
    paired: bool
    method: str = ""
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0.0 or self.high < 0.0

    def __str__(self) -> str:
        what = f"{self.measure} on {' and '.join(self.attributes)}"
        said = f"{what} changed by" if self.shown else f"A change of {what} is not shown:"
        rows = f"{number(self.old)} (n = {self.n_old:,}) to {number(self.new)} (n = {self.n_new:,})"
        text = (
            f"{said} {self.change:+.3g}, {percent(self.confidence_level)} interval {number(self.low)} to "
            f"{number(self.high)} (p = {number(self.pvalue)}): from {rows}."
        )
        target = f"Target: {self.target}." if self.target else ""
        return " ".join(filter(None, (text, target, *self.notes)))


@dataclass(frozen=True)
class CurveChange(Result):
    """The change of the mean score along s, with a band for all points at once.

    Attributes
    ----------
    points : tuple of float
        Values of s (codes of a categorical column): of a range its median.
    old, new, change : tuple of float
        The mean scores at each point, and new minus old.
    low, high : tuple of float
        The simultaneous band of the change.
    counts : tuple of int
        Rows at each point, of the sample with fewer.
    start, stop : tuple of float
        Where each range begins and ends; equal for a single value.
    confidence_level : float
    target : str
    attributes : tuple of str
    n_old, n_new : int
    paired : bool
    notes : tuple of str
    """

    _columns = ("points", "old", "new", "change", "low", "high")

    points: tuple[float, ...]
    old: tuple[float, ...]
    new: tuple[float, ...]
    change: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    counts: tuple[int, ...]
    start: tuple[float, ...]
    stop: tuple[float, ...]
    confidence_level: float
    target: str
    attributes: tuple[str, ...]
    n_old: int
    n_new: int
    paired: bool
    notes: tuple[str, ...] = ()

    @property
    def higher(self) -> tuple[float, ...]:
        """The points at which the mean score is shown to be higher now."""
        return tuple(point for point, low in zip(self.points, self.low, strict=True) if low > 0.0)

    @property
    def lower(self) -> tuple[float, ...]:
        """The points at which it is shown to be lower now."""
        return tuple(point for point, high in zip(self.points, self.high, strict=True) if high < 0.0)

    def __str__(self) -> str:
        sides = [(word, some) for word, some in (("higher", self.higher), ("lower", self.lower)) if some]
        said = " and ".join(f"{word} {places_of(some, self.points)}" for word, some in sides)
        name = self.attributes[0]
        band = f"{percent(self.confidence_level)} simultaneous band"
        text = (
            f"The mean score is {said} along {name} than before ({band})."
            if said
            else f"A change of the mean score at any value of {name} is not shown ({band})."
        )
        return " ".join((text, f"Target: {self.target}.", *self.notes))
