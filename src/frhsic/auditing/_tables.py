"""The audit's subject as a table of counts: what its counts give, and rows drawn from it for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from frhsic._checks import ArgumentError
from frhsic.auditing._counting import Counts
from frhsic.auditing._parts import Column
from frhsic.auditing._rows import OutcomeColumn, RowsSubject, read_outcome
from frhsic.auditing._subject import (
    MIN_ROWS,
    Settings,
    Subject,
    check_identifiers,
    cut,
    describe_categories,
    outcome_notes,
)
from frhsic.data import Label, Sensitive
from frhsic.dependence import HSIC, Dependence, DistanceCovariance
from frhsic.inference import (
    DecisionGaps,
    Interval,
    TestResult,
    confidence_interval,
    decision_gaps,
    independence_test,
)
from frhsic.table import ScoreTable, draw_rows

# Rows that stand for more where counts alone do not answer: curves, calibration, AUC, profile, kernel HGR.
_DRAWN = 200_000


class NumericOutcome(NamedTuple):
    """Tables of what an outcome of many numbers gives in place of the score."""

    outcome: ScoreTable
    residual: ScoreTable
    absolute_error: ScoreTable


class TableSubject(RowsSubject):
    """A table of counts. Its rows lie at the means of their cells, at most 200,000 drawn at random."""

    def __init__(
        self,
        table: ScoreTable,
        settings: Settings,
        positive_label: Label | None = None,
        beside: NumericOutcome | None = None,
    ) -> None:
        self.table, drawn = table, draw_rows(table, _DRAWN)
        kinds = tuple("categorical" if axis.kind == "labels" else "continuous" for axis in table.s)
        names = tuple(axis.name for axis in table.s)
        labels = tuple(axis.labels or None for axis in table.s)
        s = Sensitive(torch.from_numpy(drawn.s), names, kinds, labels)  # type: ignore[arg-type]
        outcome: OutcomeColumn | None = None
        if table.outcome is not None:
            y = np.array(table.outcome.labels, dtype=object)[drawn.outcome]
            outcome = read_outcome(y, len(y), None if positive_label is None else str(positive_label))
        if beside is not None:
            outcome = OutcomeColumn(torch.empty(0))
        self.beside = beside
        w = None if drawn.weights is None else torch.from_numpy(drawn.weights)
        super().__init__(torch.from_numpy(drawn.scores)[:, None], s, settings, w, None, outcome)
        self.n = table.n

    def test(self, n_permutations: int, *, within_labels: bool = False) -> TestResult:
        given = list(self.table.outcome.labels) if within_labels and self.table.outcome else None
        options: dict[str, Any] = {"n_permutations": n_permutations, "random_state": self.settings.seed}
        return independence_test(self.table, given=given, **options)

    def interval(self, measure: Dependence) -> Interval:
        level = self.settings.confidence_level
        options: dict[str, Any] = {"confidence_level": level, "random_state": self.settings.seed}
        try:
            return confidence_interval(self.table, dependence=measure, **options)
        except ArgumentError:
            if len(self.table.s) == 1 or not isinstance(measure, HSIC | DistanceCovariance):
                raise
            return super().interval(measure)  # of too many cells jointly

    @cached_property
    def cutoffs(self) -> DecisionGaps:
        return decision_gaps(self.table, confidence_level=self.settings.confidence_level)

    def by_label(self) -> list[tuple[str, Subject]]:
        return self._by_label

    @cached_property
    def _by_label(self) -> list[tuple[str, Subject]]:
        known = () if self.table.outcome is None else self.table.outcome.labels
        split = () if self.outcome is None else self.outcome.split
        return [
            (cut(one.value), TableSubject(self.table.only(known.index(str(one.value))), self.settings))
            for one in split
        ]

    def residual(self) -> RowsSubject | None:
        return (
            super().residual() if self.beside is None else TableSubject(self.beside.residual, self.settings)
        )

    def of_outcome(self) -> RowsSubject | None:
        return (
            super().of_outcome() if self.beside is None else TableSubject(self.beside.outcome, self.settings)
        )

    def of_absolute_error(self) -> RowsSubject | None:
        if self.beside is None:
            return super().of_absolute_error()
        return TableSubject(self.beside.absolute_error, self.settings)

    def describe(self) -> Column:
        (axis,) = self.table.s
        if axis.kind != "labels":
            return super().describe()
        counts = self.table.counts.sum(axis=(0, 2)).tolist()
        return describe_categories(axis.name, tuple(axis.labels), counts)

    def notes(self) -> tuple[str, ...]:
        rows = len(self.z)
        drawn = "its rows, at the means of their cells"
        if rows < self.n:
            drawn = f"{rows:,} rows drawn from it at random, at the means of their cells"
        notes = [
            f"From a table of counts ({self.table!r}): the test, HSIC, distance correlation and gaps are "
            f"those of all rows; curves, profile, calibration, AUC and kernel HGR are those of {drawn}."
        ]
        if self.outcome is not None and self.beside is None:
            notes += outcome_notes([one.value for one in self.outcome.split])
        for reason, count in self.table.left_out.items():
            notes.append(f"{count:,} rows are in no cell of the table: {reason}.")
        return tuple(notes)


def subjects_of_tables(
    tables: Sequence[ScoreTable], settings: Settings, *, positive_label: Label | None
) -> list[TableSubject]:
    """Return the subject of each sensitive column and, of several, then that of all jointly."""
    single = [table for table in tables if len(table.s) == 1]
    every = [*single, *(table for table in tables if len(table.s) > 1)]
    names = [table.s[0].name for table in single]
    joint = [tuple(axis.name for axis in table.s) for table in every[len(single) :]]
    alike = {(table.n, table.outcome and table.outcome.labels) for table in every}
    if (
        not single
        or len(set(names)) < len(names)
        or joint != ([tuple(names)] if len(names) > 1 else [])
        or len(alike) > 1
    ):
        must = "be one table for each sensitive column and, if there are several, then one of all of them"
        got = "; ".join(f"{table.n:,} rows of {', '.join(axis.name for axis in table.s)}" for table in every)
        raise ArgumentError("scores", f"{must}, of the same rows", got, "Count the same rows for each.")
    n = every[-1].n
    if n < MIN_ROWS:
        raise ArgumentError("scores", f"have at least {MIN_ROWS} rows", f"a table of {n}", "Add more rows.")
    subjects = [TableSubject(table, settings, positive_label) for table in every]
    check_identifiers(subjects[-1].s, n)
    return subjects


def subjects_of_counts(
    counts: Counts, settings: Settings, *, positive_label: Label | None
) -> list[RowsSubject]:
    """Return the subjects of a source, the last one that of all columns jointly."""
    beside: list[NumericOutcome | None] = [NumericOutcome(*tables) for tables in counts.beside]
    beside = beside or [None] * len(counts.tables)
    positive = next((label for label in counts.labels if str(label) == str(positive_label)), positive_label)
    if positive is None and len(counts.labels) == 2:
        positive = counts.labels[-1]
    subjects: list[RowsSubject] = [
        TableSubject(table, settings, positive, more)
        for table, more in zip(counts.tables, beside, strict=True)
    ]
    if counts.drawn is not None:
        z, s, w, y = counts.drawn
        outcome = None if y is None else read_outcome(y, len(z), positive)
        subjects.append(RowsSubject(z, s, settings, w, None, outcome))
        subjects[-1].n = counts.n
    if counts.n < MIN_ROWS:
        fix = "Add more rows."
        raise ArgumentError("scores", f"have at least {MIN_ROWS} rows", f"a source of {counts.n}", fix)
    for subject in subjects:
        check_identifiers(subject.s, counts.n)
    return subjects
