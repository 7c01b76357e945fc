"""What is audited: a score or representation beside one sensitive column, or beside several jointly."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._text import join_words, quote, shorten
from frhsic.auditing._claims import SignedCurve, draws_for, find_signs, permutations_for
from frhsic.auditing._parts import Column
from frhsic.auditing._privacy import MIN_ROWS_SHOWN
from frhsic.auditing._questions import RegionQuestion
from frhsic.data import Label, Sensitive
from frhsic.dependence import GDP, Dependence
from frhsic.inference import (
    AUCCurve,
    Curve,
    DecisionGaps,
    Factors,
    Interval,
    Profile,
    TestResult,
    conditional_curve,
    confidence_interval,
    decision_gaps,
    independence_test,
    localized_profile,
)

if TYPE_CHECKING:
    from frhsic.auditing._rows import RowsSubject

# Fewer rows leave nothing for bandwidths, bounds and cross-fitting.
MIN_ROWS = 50
# An outcome of more values than these is a number.
MAX_LABELS = 10
_LONGEST = 80
# A share of repeated rows that is noted, and the share of different rows with a score of their own from which
# on a score is continuous.
_REPEATED, _OWN_SCORE = 0.05, 0.9


class Settings(NamedTuple):
    """What every part of an audit is computed with."""

    confidence_level: float
    seed: int
    thresholds: tuple[float, ...] = ()
    regions: tuple[RegionQuestion, ...] = ()
    factors: Factors | None = None  # that are held equal
    score: str = "score"  # its name
    contributions: Any = None  # of the inputs of the model to the score of each row


class Subject(ABC):
    """A score or representation z beside sensitive columns s: as rows, or as a sketch of rows.

    The functions of inference take either; ``data``, ``given`` and ``options`` are their arguments.
    """

    data: tuple[Any, ...]  # z and s, or a sketch
    given: Any = None  # labels of the outcome
    options: dict[str, Any]  # seed, and weights and groups of rows
    settings: Settings
    s: Sensitive  # that of ``rows``
    n: int  # rows, stored or not
    n_groups: int | None = None  # groups of rows, where they are known
    groups_lost: bool = False  # whether ``rows`` depend on one another in a way that is no longer known
    is_nested: bool = True  # whether all rows of a group have the same value of s
    has_means: bool  # whether the mean score can be followed along s
    favourable: str | None = None  # the favourable label of a binary outcome

    @property
    @abstractmethod
    def rows(self) -> RowsSubject:
        """The rows, or those that a sketch has stored."""

    @property
    def name(self) -> str:
        """The sensitive columns, in words."""
        return " and ".join(self.s.names)

    @property
    def width(self) -> int:
        """The number of columns of z; a score has one."""
        return self.rows.z.shape[1]

    @property
    def two_values(self) -> bool:
        """Whether the score has two values only."""
        z = self.rows.z[:, 0]
        return bool(((z == z.min()) | (z == z.max())).all())

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self.rows.w is not None

    def is_sufficient(self) -> bool:
        """Return whether there are enough rows, and more than one value in each column."""
        return self.n >= MIN_ROWS and bool((self.s.values != self.s.values[0]).any(dim=0).all())

    def test(self, n_permutations: int, *, within_labels: bool = False) -> TestResult:
        """Return the test of independence, of all rows or within the labels of the outcome."""
        given = self.given if within_labels else None
        return independence_test(*self.data, given=given, n_permutations=n_permutations, **self.options)

    def interval(self, measure: Dependence) -> Interval:
        """Return the interval of a measure."""
        level = self.settings.confidence_level
        return confidence_interval(*self.data, dependence=measure, confidence_level=level, **self.options)

    @cached_property
    def cutoffs(self) -> DecisionGaps:
        """The gap of decisions along s at every cut-off; it takes a second."""
        options = {name: value for name, value in self.options.items() if name != "random_state"}
        return decision_gaps(*self.data, confidence_level=self.settings.confidence_level, **options)

    def gdp(self) -> Interval:
        """Return the interval of GDP."""
        return self.interval(GDP())

    def curve(self, confidence_level: float, cutoff: float | None = None) -> Curve:
        """Return the mean score along the column, or the share of scores above a cut-off."""
        return conditional_curve(
            *self.data,
            cutoff=cutoff,
            confidence_level=confidence_level,
            n_draws=draws_for(confidence_level),
            **self.options,
        )

    def signed_curve(self, confidence_level: float) -> SignedCurve | None:
        """Return the mean score along the column, and where it is shown to differ from the overall mean."""
        if not self.has_means:
            return None
        return find_signs(self.curve(confidence_level), self.mean_error(), nested=self.is_nested)

    def profile(self, confidence_level: float) -> Profile | None:
        """Return where along the column the distribution of ``rows`` differs."""
        if self.groups_lost:
            return None
        return localized_profile(
            *self.rows.data,
            confidence_level=confidence_level,
            n_permutations=permutations_for(confidence_level),
            **self.rows.options,
        )

    def residual(self) -> Subject | None:
        """Return outcome minus score in place of the score, where the score predicts the outcome."""
        return None

    def of_outcome(self) -> Subject | None:
        """Return the outcome in place of the score, where it is binary or a number."""
        return None

    def of_absolute_error(self) -> Subject | None:
        """Return |outcome - score| in place of the score, where the outcome is a number."""
        return None

    def auc(self) -> AUCCurve | None:
        """Return the AUC of the score along the column, where the outcome is binary."""
        return None

    @abstractmethod
    def mean_error(self) -> float:
        """Return the standard error of the overall mean score."""

    @abstractmethod
    def by_label(self) -> Sequence[tuple[str, Subject]]:
        """Return each label of the outcome with its rows."""

    @abstractmethod
    def describe(self) -> Column:
        """Return the description of a single sensitive column."""

    @abstractmethod
    def describe_score(self) -> Column:
        """Return the description of the score."""

    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Return what a reader should know about the data."""


# ---- shared by rows and sketches ---------------------------------------------------------------------------


def outcome_notes(labels: Sequence[Label]) -> tuple[str, ...]:
    """Return notes on an outcome that is constant, or whose labels look like one written in two ways."""
    if len(labels) == 1:
        return (f"The outcome is {quote(str(labels[0]))} in every row: nothing can be said about it.",)
    alike: dict[str, list[str]] = {}
    for label in labels:
        if isinstance(label, str):
            alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
    return tuple(
        f"The outcome has the labels {join_words(list(map(quote, several)))}, which differ in spaces or "
        "capitals only. They count as different labels: correct them if they are one."
        for several in alike.values()
        if len(several) > 1
    )


def cut(label: Label) -> str:
    """Return a label as text of bounded length; long labels that begin alike stay different."""
    text = str(label)
    if len(text) <= _LONGEST:
        return text
    return f"{shorten(text, _LONGEST - 11)} ({hashlib.sha256(text.encode()).hexdigest()[:8]})"


def check_identifiers(s: Sensitive, n: int) -> None:
    """Raise ArgumentError if a column has as many categories as only identifiers have."""
    for name, known in zip(s.names, s.categories or (None,) * len(s.names), strict=True):
        if known is not None and len(known) > max(2, n // 10):
            raise ArgumentError(
                "sensitive_features",
                "have few labels in a categorical column",
                f"{len(known):,} in {n:,} rows of '{name[:_LONGEST]}', as an identifier has",
                "Leave the column out, merge labels, or pass numbers as numbers.",
            )


def describe_categories(name: str, labels: tuple[Label, ...], counts: list[float]) -> Column:
    """Return the description of a categorical column; rare categories are not named."""
    known = [count >= MIN_ROWS_SHOWN - 0.5 for count in counts]  # weighted counts are rounded
    return Column(
        name=name,
        kind="categorical",
        distinct=sum(count > 0 for count in counts),
        labels=tuple(
            cut(label) if is_known else f"(fewer than {MIN_ROWS_SHOWN} rows)"
            for label, is_known in zip(labels, known, strict=False)
        ),
        counts=tuple(round(count) if is_known else 0 for count, is_known in zip(counts, known, strict=True)),
    )


def count_repeated(z: Tensor, s: Sensitive) -> int:
    """Return how many rows have the score and the attributes of another row."""
    counts = _number_rows(torch.cat((z, s.values), dim=1)).bincount()
    return int(counts[counts > 1].sum())


def note_repeated_rows(z: Tensor, s: Sensitive) -> tuple[str, ...]:
    """Return a note where rows of a continuous score repeat others, score and attributes alike.

    A score is continuous here if nearly every different row has a score of its own: scores of few values
    repeat themselves anyhow.
    """
    score = _number_rows(z)
    if int(score.max()) + 1 == len(z):
        return ()
    counts = _number_rows(torch.stack((score, _number_rows(s.values)), dim=1)).bincount()
    copies = int(counts[counts > 1].sum())
    if copies < max(2.0, _REPEATED * len(z)) or int(score.max()) + 1 < _OWN_SCORE * len(counts):
        return ()
    return (
        f"{copies:,} of {len(z):,} rows have the same score and attributes as another row. If these are "
        "copies, or several rows of one person, rows are not independent and no p-value, interval or claim "
        "here holds. Name the column that tells people apart ('groups', --group), or leave the copies out.",
    )


def _number_rows(x: Tensor) -> Tensor:
    """Return for each row the number of its value, column by column: quicker than whole rows."""
    number = x[:, 0].unique(return_inverse=True)[1]
    for column in x.mT[1:]:
        if int(number.max()) + 1 == len(x):
            break
        values, place = column.unique(return_inverse=True)
        number = (number * len(values) + place).unique(return_inverse=True)[1]
    return number
