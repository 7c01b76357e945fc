"""Results of inference: frozen, printable as a sentence, ready for JSON and for frames."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from frhsic._text import number, percent

if TYPE_CHECKING:
    import pandas as pd

# Characters of repr(): one line in a notebook or a debugger.
_LONGEST_REPR = 240

Kind = Literal["finite-sample", "asymptotic", "in-sample", "estimate"]


@dataclass(frozen=True)
class Result:
    """A frozen result: ``to_dict()`` for JSON, ``to_frame()`` for a table, ``str()`` for a sentence.

    ``repr()`` is one line: long fields are counted, not shown.
    """

    # The fields that are columns of to_frame(); none: a row of all fields that are no lists.
    _columns: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        # Before @dataclass looks: it writes a __repr__ of every number unless the class has its own.
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = [f"{field.name}={_brief(getattr(self, field.name))}" for field in fields(self)]
        kept: list[str] = []
        length = len(type(self).__name__) + 2
        for part in shown:
            length += len(part) + 2
            if length > _LONGEST_REPR:
                return f"{type(self).__name__}({', '.join((*kept, '...'))})"
            kept.append(part)
        return f"{type(self).__name__}({', '.join(kept)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain numbers, strings, lists and dictionaries."""
        names = (field.name for field in fields(self) if not field.name.startswith("_"))
        return {name: _plain(getattr(self, name)) for name in names}

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame: a row for each point of a curve, else one row without the lists."""
        plain = self.to_dict()
        if self._columns:
            rows = zip(*(plain[name] for name in self._columns), strict=True)
            return frame(dict(zip(self._columns, row, strict=True)) for row in rows)
        return frame([{name: value for name, value in plain.items() if not isinstance(value, list | dict)}])

    def plot(self, *, ax: Any = None, **options: Any) -> Any:
        """Draw it by the function of ``frhsic.report`` that is made for it, with its options.

        Parameters
        ----------
        ax : Axes, optional
            None makes a figure.

        Returns
        -------
        Axes
        """
        return load_report().plot(self, ax=ax, **options)

    def _repr_html_(self) -> str | None:
        """Return a card for notebooks; None, which shows the text, without the extra ``report``."""
        try:
            card: str = load_report().render_card(self)
        except ImportError:
            return None
        return card


def load_report() -> Any:
    """Return ``frhsic.report``, which stands on this package: it is loaded when something is drawn."""
    return importlib.import_module("frhsic.report")


@dataclass(frozen=True)
class TestResult(Result):
    """A test of independence; the null hypothesis is that z and s are independent (given ``given``).

    Attributes
    ----------
    statistic : float
        What was observed; for an aggregated test, minus the logarithm of the smallest single tail.
    pvalue : float
        Small when so much dependence is seldom seen under independence.
    method : str
        "permutation", "gamma", "wild bootstrap" or "cluster bootstrap".
    measure : str
        The dependence measure, in words.
    attributes : tuple of str
        The columns of s, taken jointly.
    n : int
        Independent units used: rows, or groups of rows where ``groups`` were passed.
    exact : bool
        Whether the level holds for every n; otherwise it holds for large n.
    n_permutations : int or None
    adjusted : float or None
        The p-value after a correction for several tests: Holm's over attributes, or that of an audit.
    notes : tuple of str
        Approximations made, labels left out.
    null : tuple of float
        The statistic under the permutations, for a picture.
    n_rows : int or None
        Rows used, where ``n`` counts groups of them.

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic.inference import independence_test
    >>> age = np.arange(18.0, 78.0)
    >>> independence_test(age**2, age, random_state=0).pvalue
    0.001
    """

    __test__: ClassVar[bool] = False  # not a test case, whatever its name says to pytest

    statistic: float
    pvalue: float
    method: str
    measure: str
    attributes: tuple[str, ...]
    n: int
    exact: bool
    n_permutations: int | None = None
    adjusted: float | None = None
    notes: tuple[str, ...] = ()
    null: tuple[float, ...] = ()
    n_rows: int | None = None

    @property
    def reported(self) -> float:
        """The p-value to go by: corrected where several attributes were tested."""
        return self.pvalue if self.adjusted is None else self.adjusted

    def __str__(self) -> str:
        draws = "" if self.n_permutations is None else f", {self.n_permutations} draws"
        corrected = "" if self.adjusted is None else f" ({number(self.adjusted)} corrected for several tests)"
        units = "" if self.n_rows is None else f" groups of {self.n_rows:,} rows"
        text = (
            f"Dependence on {' and '.join(self.attributes)}: p = {number(self.pvalue)}{corrected} by "
            f"{self.measure} ({self.method}{draws}, level {'exact' if self.exact else 'for large n'}, "
            f"n = {self.n:,}{units})."
        )
        if self.reported > 0.05:
            text += " Not rejected at 5 %, which is no evidence of independence."
        return " ".join((text, *self.notes))


@dataclass(frozen=True)
class EquivalenceResult(Result):
    """A test whose null hypothesis is that the dependence is *at least* the tolerance."""

    estimate: float  # the dependence on these rows
    tolerance: float  # what the population's dependence is compared with
    pvalue: (
        float  # small when so little dependence is seldom seen at the tolerance: evidence that it is below
    )
    upper: float  # the confidence limit at 1 - alpha; below the tolerance exactly when pvalue < alpha
    alpha: float  # the level of the test
    measure: str
    target: str
    method: str
    attributes: tuple[str, ...]
    n: int
    notes: tuple[str, ...] = ()

    @property
    def below(self) -> bool:
        """Whether the dependence is shown to be below the tolerance, at level alpha."""
        return self.pvalue <= self.alpha

    def __str__(self) -> str:
        verdict = "is below" if self.below else "is not shown to be below"
        text = (
            f"Dependence on {' and '.join(self.attributes)} {verdict} {number(self.tolerance)} at level "
            f"{self.alpha:.3g} (p = {number(self.pvalue)}): {self.measure} is {number(self.estimate)}, at "
            f"most {number(self.upper)} with confidence {1.0 - self.alpha:g} ({self.method}, "
            f"n = {self.n:,}). Target: {self.target}."
        )
        return " ".join((text, *self.notes))


@dataclass(frozen=True)
class Interval(Result):
    """A confidence interval for a dependence.

    Attributes
    ----------
    estimate, low, high : float
    confidence_level : float
    measure, method : str
    target : str
        What the interval is for: the true quantity, or that of fixed kernels.
    attributes : tuple of str
    n : int
    chance : float or None
        The mean of the estimate under independence (over permutations of s), or of ``plug_in``.
    chance_high : float or None
        Its quantile at ``confidence_level``.
    notes : tuple of str
    plug_in : float or None
        The value of the rows themselves, with all that chance adds; None where that is the estimate.
    cell_error : float or None
        Of HSIC of a score from its table of counts: the estimate from the rows, wherever they lie in their
        cells, is at most so far away. 0 where each value is a cell; None where no bound is known.

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic.inference import confidence_interval
    >>> age = np.arange(18.0, 78.0)
    >>> found = confidence_interval(age**2, age, random_state=0)
    >>> found.low < found.estimate < found.high
    True
    """

    estimate: float
    low: float
    high: float
    confidence_level: float
    measure: str
    target: str
    method: str
    attributes: tuple[str, ...]
    n: int
    chance: float | None = None
    chance_high: float | None = None
    notes: tuple[str, ...] = ()
    plug_in: float | None = None
    cell_error: float | None = None

    def __str__(self) -> str:
        level, chance = percent(self.confidence_level), ""
        if self.chance is not None and self.chance_high is not None:
            mean, high = number(self.chance), number(self.chance_high)
            chance = f" Under independence: {mean} on average, {level} below {high}."
            if self.plug_in is not None:
                chance = (
                    f" On these rows it is {number(self.plug_in)} with what chance adds; under independence "
                    f"that is {mean} on average, {level} below {high}."
                )
        text = (
            f"{self.measure} on {' and '.join(self.attributes)} is {number(self.estimate)}, {level} interval "
            f"[{number(self.low)}, {number(self.high)}] ({self.method}, n = {self.n:,}).{chance} "
            f"Target: {self.target}."
        )
        return " ".join((text, *self.notes))


@dataclass(frozen=True)
class Curve(Result):
    """The mean score along s, with a band that covers the whole curve at once."""

    _columns = ("points", "mean", "low", "high", "mass")

    points: tuple[float, ...]  # values of s (codes of a categorical column): of a range its median
    mean: tuple[float, ...]  # at each value, or within each range
    low: tuple[float, ...]  # the simultaneous band of what the target says
    high: tuple[float, ...]
    mass: tuple[float, ...]  # the share of rows that each point stands for; sums to one
    overall: float  # the mean score
    confidence_level: float
    target: str  # the true curve and under which assumption, or means within ranges
    attributes: tuple[str, ...]
    n: int
    # The simultaneous band of the mean within each range, whatever the curve does inside it; the same as low
    # and high but where these are about the true curve between ranges.
    mean_low: tuple[float, ...] = ()
    mean_high: tuple[float, ...] = ()
    start: tuple[float, ...] = ()  # the smallest value of s in each range
    stop: tuple[float, ...] = ()  # the largest
    counts: tuple[int, ...] = ()  # the rows in each range

    def __str__(self) -> str:
        rows = zip(self.points, self.mean_low or self.low, self.mean_high or self.high, strict=True)
        apart = [point for point, low, high in rows if not low <= self.overall <= high]
        verb, where = ("excludes", places_of(apart, self.points)) if apart else ("contains", "everywhere")
        return (
            f"The {percent(self.confidence_level)} simultaneous band of the mean score along "
            f"{self.attributes[0]} {verb} the overall mean {number(self.overall)} {where} (n = {self.n:,}). "
            f"Target: {self.target}."
        )


@dataclass(frozen=True)
class AUCCurve(Result):
    """The AUC of a score in windows along s, with intervals that hold for all windows at once."""

    _columns = ("points", "auc", "low", "high", "start", "stop", "counts", "positives")

    points: tuple[float, ...]  # the median of s in each window (the code of a category)
    auc: tuple[float, ...]
    low: tuple[float, ...]  # the simultaneous intervals
    high: tuple[float, ...]
    start: tuple[float, ...]  # where each window begins and ends; infinite at the outermost
    stop: tuple[float, ...]
    mass: tuple[float, ...]  # the share of all rows in each window
    counts: tuple[int, ...]  # the rows in each window
    positives: tuple[int, ...]  # those of them with the positive outcome
    overall: float  # the AUC of all rows
    confidence_level: float
    attributes: tuple[str, ...]
    label: str  # the positive outcome
    n: int  # rows, or groups of rows
    categories: tuple[str, ...] = ()  # of the windows of a categorical column
    notes: tuple[str, ...] = ()  # categories that are left out

    def __str__(self) -> str:
        ends = (pick(range(len(self.auc)), key=self.auc.__getitem__) for pick in (min, max))
        least, most = (f"{number(self.auc[i])} ({self.name(i)})" for i in ends)
        size = f"{len(self.auc)} windows" if len(self.auc) > 1 else "one window"
        text = (
            f"The AUC along {self.attributes[0]} is between {least} and {most}, and {number(self.overall)} "
            f"overall: {size} of at least {min(self.counts):,} rows, with "
            f"{percent(self.confidence_level)} intervals for all of them at once (n = {self.n:,})."
        )
        return " ".join((text, *self.notes))

    def take(self, windows: Sequence[int]) -> AUCCurve:
        """Return some of the windows."""
        names = (*self._columns, "mass", *(("categories",) if self.categories else ()))
        values: dict[str, Any] = {name: tuple(getattr(self, name)[i] for i in windows) for name in names}
        return replace(self, **values)

    def name(self, window: int) -> str:
        """Return a window in words."""
        if self.categories:
            return self.categories[window]
        first, last = self.start[window], self.stop[window]
        if first == last:
            return number(first)
        if math.isinf(first):
            return "everywhere" if math.isinf(last) else f"up to {number(last)}"
        return f"from {number(first)} on" if math.isinf(last) else f"{number(first)} to {number(last)}"


@dataclass(frozen=True)
class DecisionGaps(Result):
    """The mean gap along s of the decision score > t at each cut-off t, with a band for all of them."""

    _columns = ("cutoffs", "rates", "gaps", "low", "high", "plug_in", "chance")

    cutoffs: tuple[float, ...]
    rates: tuple[float, ...]  # the share of rows above each
    gaps: tuple[float, ...]  # how far the share at a value of s lies from it, on average over the rows
    low: tuple[float, ...]  # the simultaneous band
    high: tuple[float, ...]
    plug_in: tuple[float, ...]  # the gap of the rows themselves, with all that chance adds
    chance: tuple[float, ...]  # its mean under independence
    confidence_level: float
    target: str
    attributes: tuple[str, ...]
    n: int
    notes: tuple[str, ...] = ()
    largest: Interval | None = None  # of the largest gap at any cut-off; None where cut-offs were given

    @property
    def worst(self) -> int:
        """The index of the cut-off with the largest gap."""
        return max(range(len(self.gaps)), key=self.gaps.__getitem__)

    def __str__(self) -> str:
        k = self.worst
        text = (
            f"Decisions along {' and '.join(self.attributes)} differ from the overall rate by at most "
            f"{number(max(self.high))} on average at each of {len(self.cutoffs)} cut-offs, with "
            f"{percent(self.confidence_level)} confidence for all of them; most at "
            f"{number(self.cutoffs[k])}: {number(self.gaps[k])} (n = {self.n:,}; with what chance adds "
            f"{number(self.plug_in[k])}, under independence {number(self.chance[k])}). Target: {self.target}."
        )
        return " ".join((text, *self.notes))


@dataclass(frozen=True)
class RegionResult(Result):
    """Whether the mean score in a region is below, or above, that of the other rows."""

    side: Literal["below", "above"]  # what was asked about the region
    difference: float  # of the means, that of the region first
    low: float
    high: float
    pvalue: float  # small when such a difference is seldom seen if the answer is no
    confidence_level: float  # of the interval, which has two sides
    inside: float  # the mean score in the region
    outside: float  # that of the other rows
    n_inside: int
    n_outside: int
    method: str

    def __str__(self) -> str:
        verdict = f"is {self.side}" if self.pvalue <= 0.05 else f"is not shown to be {self.side}"
        return (
            f"The mean score in the region, {number(self.inside)}, {verdict} that of the others, "
            f"{number(self.outside)}, at level 0.05 (p = {number(self.pvalue)}): the difference is "
            f"{number(self.difference)}, {percent(self.confidence_level)} interval [{number(self.low)}, "
            f"{number(self.high)}] ({self.method}, {self.n_inside:,} rows against {self.n_outside:,})."
        )


@dataclass(frozen=True)
class Profile(Result):
    """Where along s the law of z differs from its law overall, beside what independence gives."""

    _columns = ("points", "contrast", "chance", "mass")

    points: tuple[float, ...]  # values of s (codes of a categorical column)
    contrast: tuple[float, ...]  # MMD between z near each point and z overall: zero when the two laws agree
    chance: tuple[float, ...]  # what random pairings exceed anywhere on s with chance 1 - confidence_level
    mass: tuple[float, ...]  # the share of rows that each point stands for; sums to one
    confidence_level: float
    attributes: tuple[str, ...]
    n: int
    counts: tuple[int, ...] = ()  # the rows at each point

    @property
    def above(self) -> tuple[float, ...]:
        """The points at which the contrast is above chance."""
        rows = zip(self.points, self.contrast, self.chance, strict=True)
        return tuple(point for point, contrast, chance in rows if contrast > chance)

    def __str__(self) -> str:
        nowhere = "nowhere, which is no evidence of independence"
        where = places_of(self.above, self.points) if self.above else nowhere
        return (
            f"The law of z along {self.attributes[0]} differs from its law overall by more than chance "
            f"{where} (MMD, {percent(self.confidence_level)} for all points at once, n = {self.n:,})."
        )


def places_of(some: Sequence[float], points: Sequence[float]) -> str:
    return f"at {len(some)} of {len(points)} points, between {number(min(some))} and {number(max(some))}"


def frame(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a pandas frame; the only place in inference that imports pandas."""
    import pandas as pd

    return pd.DataFrame(list(rows))


def _brief(value: Any) -> str:
    """Return a field for repr(): numbers and short texts as they are, the rest by its size."""
    if isinstance(value, Result):
        return f"{type(value).__name__}(...)"
    if isinstance(value, tuple | list):
        short = len(value) <= 3 and all(isinstance(item, str | int | float) for item in value)
        return f"({', '.join(map(_brief, value))})" if short else f"({len(value):,} items)"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:39] + "…")
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
