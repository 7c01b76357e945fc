"""The audit's subject as rows in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.auditing._claims import error_of_mean
from frhsic.auditing._parts import Column
from frhsic.auditing._privacy import quantile
from frhsic.auditing._subject import (
    MAX_LABELS,
    MIN_ROWS,
    Settings,
    Subject,
    check_identifiers,
    cut,
    describe_categories,
    note_repeated_rows,
    outcome_notes,
)
from frhsic.data import (
    Label,
    LabelRows,
    Sensitive,
    check_aligned,
    choose_positive,
    read_columns,
    split_labels,
    suspicious_codes,
    to_groups,
    to_matrix,
    to_sensitive,
    to_weights,
)
from frhsic.inference import AUCCurve, auc_curve, read_contributions, read_factors


class OutcomeColumn(NamedTuple):
    """The outcome as numbers y ``(n,)`` and, unless it has many values, the rows of each label."""

    y: Tensor
    split: tuple[LabelRows, ...] = ()
    positive: Label | None = None


class RowsSubject(Subject):
    """Rows of z ``(n, d)`` and s, with weights, groups of dependent rows and outcome where there are any."""

    def __init__(
        self,
        z: Tensor,
        s: Sensitive,
        settings: Settings,
        w: Tensor | None = None,
        groups: Tensor | None = None,
        outcome: OutcomeColumn | None = None,
    ) -> None:
        self.z, self.s, self.settings, self.w = z, s, settings, w
        self.groups, self.outcome = groups, outcome
        self.data, self.n, self.has_means = (z, s), len(z), z.shape[1] == 1
        self.options = {"random_state": settings.seed, "sample_weight": w, "groups": groups}
        if groups is not None:
            self.n_groups = int(groups.max()) + 1
            first = s.values.new_zeros((self.n_groups, s.values.shape[1])).index_copy(0, groups, s.values)
            self.is_nested = bool((first[groups] == s.values).all())
        if outcome is not None:
            self.given = torch.full((self.n,), -1, dtype=torch.int64)
            for code, label in enumerate(outcome.split):
                self.given[label.rows] = code
            self.favourable = None if outcome.positive is None else cut(outcome.positive)

    @property
    def rows(self) -> RowsSubject:
        return self

    def at(self, rows: Tensor) -> RowsSubject:
        """Return the subject of some of the rows, without the outcome."""
        w = None if self.w is None else self.w[rows]
        groups = None if self.groups is None else self.groups[rows]
        return RowsSubject(self.z[rows], self.s[rows], self.settings, w, groups)

    def on(self, name: str) -> RowsSubject:
        """Return the subject of one sensitive column."""
        s = self.s.columns([name])
        return RowsSubject(self.z, s, self.settings, self.w, self.groups, self.outcome)

    def mean_error(self) -> float:
        return error_of_mean(self.z[:, 0], self.w, self.groups)

    def by_label(self) -> list[tuple[str, Subject]]:
        split = () if self.outcome is None else self.outcome.split
        return [(cut(label.value), self.at(label.rows)) for label in split]

    def residual(self) -> RowsSubject | None:
        if self.outcome is None or not self.has_means:
            return None
        probability = self.outcome.positive is not None and bool(((self.z >= 0) & (self.z <= 1)).all())
        if not probability and self.outcome.split:
            return None
        return self._beside(self.outcome.y - self.z[:, 0])

    def _beside(self, values: Tensor) -> RowsSubject:
        """Return other values ``(n,)`` in place of the score."""
        return RowsSubject(values[:, None], self.s, self.settings, self.w, self.groups)

    def of_outcome(self) -> RowsSubject | None:
        if self.outcome is None or (self.outcome.split and self.outcome.positive is None):
            return None
        return self._beside(self.outcome.y)

    def of_absolute_error(self) -> RowsSubject | None:
        if self.outcome is None or self.outcome.split or not self.has_means:
            return None
        return self._beside((self.outcome.y - self.z[:, 0]).abs())

    def auc(self) -> AUCCurve | None:
        if self.outcome is None or self.outcome.positive is None or not self.has_means:
            return None
        found = auc_curve(
            self.outcome.y,
            self.z,
            self.s,
            confidence_level=self.settings.confidence_level,
            sample_weight=self.w,
            groups=self.groups,
        )
        return replace(found, label=cut(self.outcome.positive))

    def describe(self) -> Column:
        values, name = self.s.values[:, 0], self.s.names[0]
        if self.s.kinds == ("continuous",):
            return _describe_numbers(values, name)
        counts = torch.bincount(values.long()).tolist()
        labels = (self.s.categories or (None,))[0] or tuple(range(len(counts)))
        return describe_categories(name, tuple(labels), counts)

    def describe_score(self) -> Column:
        return _describe_numbers(self.z[:, 0], self.settings.score)

    def notes(self) -> tuple[str, ...]:
        notes = [] if self.groups is not None else [*note_repeated_rows(self.z, self.s)]
        columns = [(self.z[:, 0], "the score")] if self.has_means else []
        columns += [
            (values, f"column '{name}'")
            for values, name, kind in zip(self.s.values.T, self.s.names, self.s.kinds, strict=True)
            if kind == "continuous"
        ]
        if self.w is not None:
            effective = 1.0 / float(self.w.square().sum() / self.w.sum() ** 2)
            if effective < 0.5 * self.n:
                equal = f"{effective:,.0f} of equal weight"
                notes.append(f"The weights differ much: {self.n:,} rows say as much about a mean as {equal}.")
        if self.outcome is not None:
            y, labels = self.outcome.y, self.outcome.split
            notes += outcome_notes([one.value for one in labels])
            if not labels:
                values = len(y.unique())
                notes.append(f"The outcome has {values:,} values: it is a number, and not split into labels.")
                columns.append((y, "the outcome"))
            elif all(isinstance(one.value, int | float) for one in labels):
                each = [torch.full((len(one.rows),), float(one.value), dtype=y.dtype) for one in labels]
                columns.append((torch.cat(each), "the outcome"))
        found = (suspicious_codes(values, what) for values, what in columns)
        return (*notes, *(note for note in found if note is not None))


def _describe_numbers(values: Tensor, name: str) -> Column:
    ordered = values.sort().values
    low, high = (quantile(ordered, q) for q in (0.01, 0.99))
    return Column(
        name=name,
        kind="continuous",
        distinct=int(1 + (ordered[1:] != ordered[:-1]).sum()),
        low=low,
        mean=float(values.mean()),
        high=high,
        unit_interval=bool((ordered[0] >= 0) & (ordered[-1] <= 1)),
    )


# ---- input validation --------------------------------------------------------------------------------------


def subjects_of_rows(
    scores: object,
    settings: Settings,
    *,
    sensitive_features: object,
    y_true: object,
    sample_weight: object,
    kinds: str | Mapping[str, str] | None,
    groups: object,
    positive_label: Label | None,
    given: object = None,
    contributions: object = None,
) -> tuple[list[RowsSubject], tuple[str, ...]]:
    """Return the subject of each sensitive column and, of several, then that of all jointly; notes."""
    check_aligned(
        scores=scores,
        sensitive_features=sensitive_features,
        y_true=y_true,
        sample_weight=sample_weight,
        groups=groups,
        given=given,
        contributions=contributions,
    )
    z, notes = _read_scores(scores)
    s = to_sensitive(sensitive_features, kinds=kinds, n_rows=len(z), rows_of="scores")
    check_identifiers(s, len(s))
    w = to_weights(sample_weight, n_rows=len(z), rows_of="scores")
    if w is not None and bool((w == w[0]).all()):
        w = None  # equal weights are none
    codes = to_groups(groups, n_rows=len(z), rows_of="scores")
    if y_true is None and positive_label is not None:
        raise ArgumentError(
            "positive_label", "be None without 'y_true'", repr(positive_label), "Pass the outcome too."
        )
    outcome = None if y_true is None else read_outcome(y_true, len(z), positive_label)
    if given is not None:
        settings = settings._replace(factors=read_factors(given, len(z)))
    if contributions is not None:
        settings = settings._replace(contributions=read_contributions(contributions, len(z)))
    names = [block.name for block in read_columns(scores, "scores")]
    settings = settings._replace(score=names[-1] or "score")
    whole = RowsSubject(z, s, settings, w, codes, outcome)
    single = [whole.on(name) for name in s.names] if len(s.names) > 1 else []
    return [*single, whole], notes


def _read_scores(scores: object) -> tuple[Tensor, tuple[str, ...]]:
    z = to_matrix(scores, name="scores", min_rows=MIN_ROWS)
    pair = z.shape[1] == 2 and bool(((z >= 0) & (z <= 1)).all())
    if pair and bool(((z.sum(dim=1) - 1).abs() < 1e-6).all()):
        return z[:, 1:], ("Two columns that sum to one are probabilities: the second is the score.",)
    if bool((z == z[0]).all()):
        raise ArgumentError(
            "scores",
            "have more than one value",
            "the same in every row",
            "A constant depends on nothing; pass the scores before they are rounded or thresholded.",
        )
    return z, ()


def read_outcome(y_true: object, n: int, positive_label: Label | None) -> OutcomeColumn:
    split = split_labels(y_true, name="y_true", n_rows=n, rows_of="scores").kept
    labels = [label.value for label in split]
    y = torch.zeros(n, dtype=torch.float64)
    if len(split) > MAX_LABELS and all(isinstance(label, int | float) for label in labels):
        if positive_label is not None:
            raise ArgumentError(
                "positive_label",
                "be None for an outcome that is a number",
                repr(positive_label),
                "Leave it out.",
            )
        for label in split:
            y[label.rows] = float(label.value)
        return OutcomeColumn(y)
    positive = choose_positive(labels, positive_label)
    for code, label in enumerate(split):
        y[label.rows] = float(label.value == positive) if len(split) == 2 else float(code)
    return OutcomeColumn(y, split, positive if len(split) == 2 else None)
