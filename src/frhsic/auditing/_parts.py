"""The parts of the results of an audit: columns, claims, decisions, outcomes, limits, representations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from frhsic._text import number, percent
from frhsic.inference import AUCCurve, Curve, Interval, RegionResult, Result, TestResult

Question = Literal["dependence", "within outcomes", "calibration"]
Says = Literal["depends", "above", "below", "differs"]


@dataclass(frozen=True)
class Claim(Result):
    """One statement about the population; all those of an audit together hold with its confidence.

    Attributes
    ----------
    question : {"dependence", "within outcomes", "calibration"}
        Of the score on the attributes; of the same among rows of equal outcome; of outcome minus score.
    says : {"depends", "above", "below", "differs"}
        Dependence; or places along the attribute: where the mean score is above or below the overall mean
        (that of the label, within outcomes), where the outcome is above or below the score (calibration), or
        where the distribution differs from the one overall.
    attributes : tuple of str
        Several: dependence on all of them jointly.
    label : str or None
        The outcome, for places within one.
    points : tuple of float
        The places: values of the attribute, codes of a categorical one. None for dependence.

    Examples
    --------
    >>> print(Claim("dependence", "above", ("age",), points=(20.0, 25.0)).says)
    above
    """

    question: Question
    says: Says
    attributes: tuple[str, ...]
    label: str | None = None
    points: tuple[float, ...] = ()


@dataclass(frozen=True)
class Column(Result):
    """A column of the data, described without showing any row of it.

    Attributes
    ----------
    name : str
    kind : {"continuous", "categorical"}
    distinct : int
        Different values.
    low, mean, high : float or None
        Of a continuous column: its 1 % quantile, mean and 99 % quantile. The extremes belong to single rows
        and are not shown.
    labels : tuple of str
        Of a categorical column, in the order of its codes; a longer one is cut.
    counts : tuple of int
        Rows of each label; 0 where they are too few to be shown.
    unit_interval : bool
        Whether all values lie between 0 and 1, as probabilities do.
    """

    name: str
    kind: str
    distinct: int
    low: float | None = None
    mean: float | None = None
    high: float | None = None
    labels: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    unit_interval: bool = False

    @property
    def gap_unit(self) -> str:
        """The unit of a difference between values of the column."""
        return "percentage points" if self.unit_interval else "units of the score"

    def format_gap(self, x: float) -> str:
        """Return a difference between values of the column, in its unit."""
        return f"{100.0 * x:.1f}" if self.unit_interval else number(x)

    def format_mean(self) -> str:
        """Return the mean of the column, in percent for probabilities."""
        mean = self.mean or 0.0
        return f"{100.0 * mean:.1f}%" if self.unit_interval else number(mean)

    def visible(self, points: Sequence[float]) -> list[int]:
        """Return which points along the column may be shown: no extremes, and no labels of few rows."""
        if self.kind == "categorical":
            return [i for i, point in enumerate(points) if self.counts[int(point)] > 0]
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return [i for i, point in enumerate(points) if low <= point <= high]


@dataclass(frozen=True)
class Estimate(Result):
    """An estimate beside its values under independence, without an interval.

    Attributes
    ----------
    estimate : float
    measure : str
    chance, chance_high : float
        The mean over permutations of s, and the quantile at the confidence level of the audit.
    n : int
        Rows used.

    Examples
    --------
    >>> print(Estimate(0.6, "kernel HGR", chance=0.1, chance_high=0.2, n=500))
    kernel HGR is 0.6 (n = 500). Under independence: 0.1 on average, seldom above 0.2.
    """

    estimate: float
    measure: str
    chance: float
    chance_high: float
    n: int

    def __str__(self) -> str:
        return (
            f"{self.measure} is {number(self.estimate)} (n = {self.n:,}). Under independence: "
            f"{number(self.chance)} on average, seldom above {number(self.chance_high)}."
        )


@dataclass(frozen=True)
class Decision(Result):
    """Decisions by one threshold: the share of rows with a score above it, along s."""

    threshold: float
    rate: float  # of all rows
    gap: Interval  # how far the rate at a value of s lies from it, on average over the rows
    curve: Curve | None  # the rate along s; None for several columns
    # Of the values of s (or ranges) with at least 1 % of the rows, those of the lowest and the highest rate,
    # and the ratio of these rates. Its limits are those of the band: they hold for every two values.
    lowest: float | None = None
    highest: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


@dataclass(frozen=True)
class Region(Result):
    """The answer to a one-sided question about a region of s, asked beforehand, with a level of its own."""

    region: str  # as it was asked
    answer: RegionResult


@dataclass(frozen=True)
class ErrorRates(Result):
    """How often decisions by one threshold miss a binary outcome, along s."""

    threshold: float
    # Of the rows without the favourable outcome, the share of scores above the threshold; None where the rows
    # are too few or all on one side, as a note says.
    false_positive: Curve | None
    false_negative: Curve | None  # of the rows with it, the share of scores that are not above


@dataclass(frozen=True)
class LabelDependence(Result):
    """Dependence on s among the rows of one label of y.

    Attributes
    ----------
    label : str
    n : int
    gdp : Interval or None
        None where z is a representation, or the rows are too few.
    curve : Curve or None
    """

    label: str
    n: int
    gdp: Interval | None
    curve: Curve | None


@dataclass(frozen=True)
class Outcome(Result):
    """Dependence on s beside the outcome y.

    Attributes
    ----------
    equalized_odds : TestResult or None
        Of independence within the labels of y.
    labels : tuple of LabelDependence
        The labels of y one by one; none when y is a number with many values.
    equal_opportunity : str or None
        The label that counts as the favourable outcome.
    calibration : Curve or None
        The mean of y - score along s: zero where the score is calibrated at that value of s.
    calibration_gap : Interval or None
        The mean over s of the distance of that curve from its own mean.
    curve : Curve or None
        The mean of y along s: of a binary outcome the rate of the favourable label (base rate).
    absolute_error : Curve or None
        The mean of |y - score| along s, when y is a number with many values.
    errors : tuple of ErrorRates
        Of a binary outcome at each threshold.
    auc : AUCCurve or None
        Of a binary outcome, in windows along s.
    """

    equalized_odds: TestResult | None
    labels: tuple[LabelDependence, ...]
    equal_opportunity: str | None
    calibration: Curve | None
    calibration_gap: Interval | None
    curve: Curve | None = None
    absolute_error: Curve | None = None
    errors: tuple[ErrorRates, ...] = ()
    auc: AUCCurve | None = None


State = Literal["passed", "failed", "not shown", "not measured"]


@dataclass(frozen=True)
class Limit(Result):
    """One number of an audit beside the limit it must keep.

    Attributes
    ----------
    measure : str
    attribute : str
    title : str
        The number, in words.
    at_most : float
    estimate, low, high : float or None
        None where these rows do not give the number; the ends also where it has no interval.
    state : {"passed", "failed", "not shown", "not measured"}
        Passed: the whole interval is at most the limit. Failed: the whole interval is above it. Not shown:
        the limit lies within. A number without an interval is compared by itself.
    """

    measure: str
    attribute: str
    title: str
    at_most: float
    estimate: float | None
    low: float | None
    high: float | None
    state: State

    def exceeds(self, on: str) -> bool:
        """Return whether an end of the interval ("lower", "upper") or the estimate is above the limit."""
        if self.estimate is None:
            return True
        if on == "estimate":
            return self.estimate > self.at_most
        return self.state == "failed" or (on == "upper" and self.state == "not shown")


@dataclass(frozen=True)
class About(Result):
    """What an audit is about, as its caller says.

    Attributes
    ----------
    title : str or None
        Of the page.
    model : str or None
        The name of the model and, after an @, its version.
    owner, purpose, population : str or None
        Who answers for the model, what it is used for, and whom the rows stand for.
    limits_fixed : str or None
        When the limits were fixed.
    model_sha256 : str or None
        Of the file of the model.
    """

    title: str | None = None
    model: str | None = None
    owner: str | None = None
    purpose: str | None = None
    population: str | None = None
    limits_fixed: str | None = None
    model_sha256: str | None = None

    @property
    def model_name(self) -> str | None:
        """The model with its version, in words."""
        if self.model is None:
            return None
        name, at, version = self.model.rpartition("@")
        return f"{name}, version {version}" if at and name and version else self.model


@dataclass(frozen=True)
class Transfer(Result):
    """A fresh head trained on half of the rows of a representation and judged on the other half.

    Attributes
    ----------
    head : str
        "linear", "MLP", "forest" or "boosted".
    performance : float
        Of predicting y: accuracy for labels, R^2 for numbers.
    metric : {"accuracy", "R^2"}
    gdp : tuple of Interval
        Of its probabilities (or predictions), for each sensitive column.
    """

    head: str
    performance: float
    metric: str
    gdp: tuple[Interval, ...]


@dataclass(frozen=True)
class Recovery(Result):
    """How well s can be predicted from z on rows not used to learn it.

    Attributes
    ----------
    attribute : str
    linear, boosted, forest : float
        R^2 of a linear model, of boosted trees and of a forest of extremely random trees, cross-validated;
        for a categorical column, that of the probabilities (one minus the Brier score divided by that of the
        shares). Near or below zero: nothing.
    n : int
        Rows; four fifths of them are learned from, of more than 20,000 two thirds. More rows find more.
    learner : str
        The best of the three.
    low, high : float
        The interval of its R^2 on such rows, learned from as many.
    confidence_level : float
    """

    attribute: str
    linear: float
    boosted: float
    forest: float
    n: int
    learner: str
    low: float
    high: float
    confidence_level: float

    @property
    def best(self) -> float:
        """The largest R^2."""
        return max(self.linear, self.boosted, self.forest)

    def __str__(self) -> str:
        best = number(self.best)
        interval = f"{percent(self.confidence_level)} interval {number(self.low)} to {number(self.high)}"
        return (
            f"R^2 of {self.attribute} from the representation, by {self.learner} on rows left out: {best} "
            f"({interval}; {self.n:,} rows). More rows find more."
        )


@dataclass(frozen=True)
class Representation(Result):
    """What can be predicted from a representation.

    Attributes
    ----------
    recovered : tuple of Recovery
        One for each sensitive column.
    transfer : tuple of Transfer
        Fresh heads for y; none when y was not given.
    """

    recovered: tuple[Recovery, ...]
    transfer: tuple[Transfer, ...]
