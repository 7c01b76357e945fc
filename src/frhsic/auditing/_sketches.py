"""The audit's subject as a sketch: its sums stand for all rows, its stored rows for what sums do not give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from frhsic._checks import ArgumentError
from frhsic.auditing._parts import Column
from frhsic.auditing._rows import RowsSubject
from frhsic.auditing._subject import (
    MAX_LABELS,
    MIN_ROWS,
    Settings,
    Subject,
    check_identifiers,
    cut,
    describe_categories,
    note_repeated_rows,
)
from frhsic.data import Label
from frhsic.sketching import HSICSketch


class SketchSubject(Subject):
    """A sketch of a representation, or of rows in groups, which holds their weights and labels."""

    has_means = False

    def __init__(self, sketch: HSICSketch, settings: Settings, positive: Label | None = None) -> None:
        z, s, w = sketch.stored
        weights = None if bool((w == w[0]).all()) else w / w.sum()
        self.sketch, self.settings, self.s, self.n = sketch, settings, s, sketch.n_rows
        self.data, self.given, self.options = (sketch,), sketch.labels, {"random_state": settings.seed}
        self.stored, self.groups_lost = RowsSubject(z, s, settings, weights), sketch.grouped
        self.favourable = None if positive is None else cut(positive)

    @property
    def rows(self) -> RowsSubject:
        return self.stored

    def mean_error(self) -> float:
        return self.stored.mean_error()

    def by_label(self) -> list[tuple[str, SketchSubject]]:
        return [(cut(one), SketchSubject(self.sketch.at(one), self.settings)) for one in self.sketch.labels]

    def describe(self) -> Column:
        masses, labels = self.sketch.masses, (self.s.categories or (None,))[0]
        if labels is None or masses is None:
            column = self.stored.describe()
            return replace(column, distinct=self.sketch.distinct or column.distinct)
        counts = (self.n * masses).tolist()  # of equal weights these are rows
        return describe_categories(self.s.names[0], tuple(labels), counts)

    def describe_score(self) -> Column:
        return self.stored.describe_score()

    def notes(self) -> tuple[str, ...]:
        sketch, stored = self.sketch, len(self.sketch.stored.z)
        notes = [f"Of a sketch: all {self.n:,} rows in one pass, by sums of features. {sketch.error()}"]
        if stored < self.n:
            notes.append(
                "Descriptions of numbers, distance correlation, kernel HGR, the profile and the certificate "
                f"are those of {stored:,} rows drawn at random; the test and HSIC are those of all rows."
            )
        repeated = 0 if sketch.grouped else sketch.repeated_ids
        if repeated:
            notes.append(
                f"{repeated:,} of {stored:,} stored rows share their id with another row. If an id is that "
                "of a person, rows are not independent and no p-value, interval or claim here holds. Pass "
                "the column as 'groups' (--group)."
            )
        if sketch.labels:
            notes.append("Calibration, the base rate and the AUC are not part of the audit of a sketch.")
        if sketch.grouped:
            notes.append(
                "Rows come in groups: of a sketch only the test and HSIC count these. Gaps (GDP too), "
                "curves, the profile, distance correlation and the certificate are left out; kernel HGR "
                "counts rows."
            )
        else:
            notes += note_repeated_rows(sketch.stored.z, sketch.stored.s)
        return tuple(notes)


# ---- input validation --------------------------------------------------------------------------------------


def subjects_of_sketches(
    sketches: Sequence[HSICSketch], settings: Settings, *, positive_label: Label | None
) -> list[SketchSubject]:
    """Return the subject of each sensitive column and, of several, then that of all jointly."""
    single = [sketch for sketch in sketches if len(sketch.stored.s.names) == 1]
    every = [*single, *(sketch for sketch in sketches if len(sketch.stored.s.names) > 1)]
    _check_alike(single, every[len(single) :])
    n = every[-1].n_rows
    if n < MIN_ROWS:
        raise ArgumentError("scores", f"have at least {MIN_ROWS} rows", f"a sketch of {n}", "Add more rows.")
    if every[-1].stored.z.shape[1] == 1 and not every[-1].grouped:
        must = "be sketches of several columns, or of rows in groups: one score is counted"
        fix = "Pass a ScoreTable of each sensitive column and one of all, or use audit_source."
        raise ArgumentError("scores", must, "sketches of one score", fix)
    check_identifiers(every[-1].stored.s, n)
    positive = _positive_label(every[-1].labels, positive_label)
    return [SketchSubject(sketch, settings, positive) for sketch in every]


def _check_alike(single: Sequence[HSICSketch], joint: Sequence[HSICSketch]) -> None:
    names = [sketch.stored.s.names[0] for sketch in single]
    expected = [tuple(names)] if len(names) > 1 else []
    every = [*single, *joint]
    if (
        not single
        or len(set(names)) < len(names)
        or [sketch.stored.s.names for sketch in joint] != expected
        or len({(sketch.n_rows, sketch.stored.z.shape[1], sketch.labels) for sketch in every}) > 1
    ):
        raise ArgumentError(
            "scores",
            "be one sketch for each sensitive column and, if there are several, then one of all of them, of "
            "the same rows",
            "; ".join(f"{sketch.n_rows:,} rows of {', '.join(sketch.stored.s.names)}" for sketch in every),
            "Sketch the same rows with each.",
        )


def _positive_label(labels: Sequence[Label], positive_label: Label | None) -> Label | None:
    if len(labels) > MAX_LABELS:
        raise ArgumentError(
            "scores",
            f"be a sketch by labels of an outcome, at most {MAX_LABELS}",
            len(labels),
            "Leave 'given' out of update for an outcome that is a number.",
        )
    if positive_label is not None and positive_label not in labels:
        known = ", ".join(map(repr, labels)) or "none: it was made without an outcome"
        raise ArgumentError(
            "positive_label", "be a label of the sketch", repr(positive_label), f"Take one of {known}."
        )
    return (labels[-1] if positive_label is None else positive_label) if len(labels) == 2 else None
