"""The audit's subject as a sketch: its sums stand for all rows, its stored rows for what sums do not give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

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
from frhsic.inference import AUCCurve, Curve, auc_curve
from frhsic.sketching import HSICSketch


class SketchSubject(Subject):
    """A sketch of rows, which holds their weights and the labels of the outcome."""

    def __init__(self, sketch: HSICSketch, settings: Settings, positive: Label | None = None) -> None:
        z, s, w = sketch.stored
        weights = None if bool((w == w[0]).all()) else w / w.sum()
        self.sketch, self.settings, self.s, self.n = sketch, settings, s, sketch.n_rows
        self.data, self.given, self.options = (sketch,), sketch.labels, {"random_state": settings.seed}
        self.stored, self.groups_lost = RowsSubject(z, s, settings, weights), sketch.grouped
        self.has_means = z.shape[1] == 1 and s.kinds.count("continuous") <= 1 and not sketch.grouped
        self.favourable = None if positive is None else cut(positive)
        self.whole = s  # that of all labels, where this is one of them

    @property
    def rows(self) -> RowsSubject:
        return self.stored

    def mean_error(self) -> float:
        line = self.sketch.line()
        assert line.mean is not None and line.variance is not None  # noqa: S101, PT018 - of a score
        variance = line.mass @ (line.variance + (line.mean - line.mass @ line.mean).square())
        return math.sqrt(float(variance * line.squared_mass.sum()))

    def by_label(self) -> list[tuple[str, SketchSubject]]:
        parts = [(cut(one), SketchSubject(self.sketch.at(one), self.settings)) for one in self.sketch.labels]
        for _, part in parts:
            part.whole = self.s
        return parts

    def codes_of(self, values: Tensor) -> Tensor:
        """Return values of s with the codes that the categories have among all labels of the outcome."""
        mine, known = ((s.categories or (None,))[0] for s in (self.s, self.whole))
        if mine is None or known is None or mine == known:
            return values
        return torch.tensor([float(known.index(label)) for label in mine])[values.long()].to(values)

    def curve(self, confidence_level: float, cutoff: float | None = None) -> Curve:
        found = super().curve(confidence_level, cutoff)
        if self.whole.categories == self.s.categories:
            return found
        points, start, stop = (
            tuple(self.codes_of(torch.tensor(ends)).tolist())
            for ends in (found.points, found.start, found.stop)
        )
        return replace(found, points=points, start=start, stop=stop)

    def auc(self) -> AUCCurve | None:
        """Return the AUC of the stored rows, at most 5,000 of each label."""
        if self.favourable is None or not self.has_means:
            return None
        parts = [(label == self.favourable, part, part.rows) for label, part in self.by_label()]
        z = torch.cat([rows.z for _, _, rows in parts])
        s = torch.cat([part.codes_of(rows.s.values) for _, part, rows in parts])
        # A row counts beside those of its own label only: weights need no scale in common.
        w = torch.cat([torch.ones(rows.n) if rows.w is None else rows.w * rows.n for _, _, rows in parts])
        y = torch.cat([torch.full((rows.n,), float(positive)) for positive, _, rows in parts])
        level = self.settings.confidence_level
        found = auc_curve(y, z, replace(self.s, values=s), confidence_level=level, sample_weight=w)
        return replace(found, label=self.favourable)

    def describe(self) -> Column:
        s, line = self.s, self.sketch.line()
        if s.kinds == ("continuous",):
            distinct = self.sketch.distinct or len(s.values.unique())
            return _describe_law(s.names[0], distinct, *line.law)
        labels = (s.categories or ((),))[0] or ()
        counts = torch.zeros(len(labels), dtype=torch.float64)
        counts[line.s.values[:, 0].long()] = self.n * line.mass  # of equal weights these are rows
        return describe_categories(s.names[0], tuple(labels), counts.tolist())

    def describe_score(self) -> Column:
        return _describe_law("score", len(self.sketch.stored.z.unique()), *self.sketch.law_z())

    def _gaps_of_stored(self) -> str:
        if len(self.s.names) > 1:
            return ", and so are gaps on all columns jointly"
        counted = self.sketch.score_table() is not None
        return "" if counted else ", and so are gaps of the score and of decisions"

    def notes(self) -> tuple[str, ...]:
        sketch, stored = self.sketch, len(self.sketch.stored.z)
        notes = [f"Of a sketch: all {self.n:,} rows in one pass, by sums of features. {sketch.error()}"]
        if stored < self.n:
            notes.append(
                "Answers about regions, distance correlation, kernel HGR, the profile and the certificate "
                f"are those of {stored:,} rows drawn at random{self._gaps_of_stored()}; the test, HSIC, GDP "
                "and curves are those of all rows."
            )
        repeated = 0 if sketch.grouped else sketch.repeated_ids
        if repeated:
            notes.append(
                f"{repeated:,} of {stored:,} stored rows share their id with another row. If an id is that "
                "of a person, rows are not independent and no p-value, interval or claim here holds. Pass "
                "the column as 'groups' (--group)."
            )
        if sketch.labels:
            notes.append(
                "Calibration and the base rate are not part of the audit of a sketch; the AUC is that of at "
                "most 5,000 stored rows of each label."
            )
        if sketch.grouped:
            notes.append(
                "Rows come in groups: of a sketch only the test and HSIC count these. Gaps (GDP too), "
                "curves, the profile, distance correlation and the certificate are left out; kernel HGR "
                "counts rows."
            )
        else:
            notes += note_repeated_rows(sketch.stored.z, sketch.stored.s)
        return tuple(notes)


def _describe_law(
    name: str, distinct: int, places: Tensor, mass: Tensor, least: float, most: float
) -> Column:
    """Return the description of a column; quantiles are exact to the distance of its places."""
    order = places.argsort()
    ordered, below = places[order], mass[order].cumsum(0)
    low, high = (
        min(max(float(ordered[min(int(torch.searchsorted(below, q)), len(ordered) - 1)]), least), most)
        for q in (0.01, 0.99)
    )
    return Column(
        name=name,
        kind="continuous",
        distinct=distinct,
        low=low,
        mean=float(mass @ places),
        high=high,
        unit_interval=least >= 0.0 and most <= 1.0,
    )


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
