"""The audit of a source: one pass over its rows for each sensitive column, and one for all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.auditing._audit import audit
from frhsic.auditing._decisions import read_thresholds
from frhsic.auditing._record import Record, hash_source, layout_of
from frhsic.auditing._results import Audit
from frhsic.auditing._subject import MAX_LABELS
from frhsic.data import Label, Sensitive, split_labels, to_matrix, to_sensitive
from frhsic.runners import Engine, Local, RunProgress, sketch_source
from frhsic.sketching import HSICSketch
from frhsic.sources import Source, absent_error

# Levels of the score in a sketch.
_LEVELS = 256
# Rows of which the columns are read once more for their digests.
_HASHED_ROWS = 1_000_000_000


def audit_source(
    source: Source,
    *,
    scores: str | Sequence[str],
    sensitive_features: str | Sequence[str],
    y_true: str | None = None,
    sample_weight: str | None = None,
    kinds: Mapping[str, str] | None = None,
    groups: str | None = None,
    confidence_level: float = 0.95,
    bandwidth_s: float | None = None,
    random_state: object = None,
    trained_on: bool | None = None,
    positive_label: Label | None = None,
    thresholds: Sequence[float] | float = (),
    regions: Mapping[str, str] | None = None,
    limits: Mapping[str, float] | None = None,
    about: Mapping[str, object] | None = None,
    engine: Engine = Local(),  # noqa: B008
    partials: str | os.PathLike[str] | None = None,
    progress: Callable[[str, RunProgress], None] | None = None,
) -> Audit:
    """Return the audit of rows that need not fit in memory: a sketch of each sensitive column, and of all.

    Parameters
    ----------
    source : Source
        From ``open_source`` or ``open_sql``.
    scores, sensitive_features : str or list of str
        Columns, of which numbers are continuous and labels categorical.
    y_true, sample_weight : str, optional
        Columns. An outcome with more than ten values is left out: a sketch keeps labels apart, not numbers.
    kinds : dict, optional
        ``{"zone": "categorical"}`` for a column of text that is mostly numbers. A sketch takes other columns
        as they are.
    groups : str, optional
        The column whose equal values mark rows that may depend on one another, such as a person.
    confidence_level, bandwidth_s, random_state, trained_on, positive_label
        As in :func:`audit`.
    thresholds, regions, limits, about
        As in :func:`audit`.
    engine, partials
        As in :func:`frhsic.runners.sketch_source`.
    progress : callable, optional
        Called with the sensitive columns of a pass, in words, and how far it is.

    Returns
    -------
    Audit

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from frhsic.sources import open_source
    >>> age = np.arange(10_000) % 72 + 18
    >>> scores = open_source(pa.table({"age": age, "score": (age - 54.0) ** 2}))
    >>> found = audit_source(scores, scores="score", sensitive_features="age", random_state=0)
    >>> round(found.attribute("age").measures["normalized_hsic"].estimate, 2)
    0.33
    """
    z, s = (
        [names] if isinstance(names, str) else list(dict.fromkeys(names))
        for names in (scores, sensitive_features)
    )
    single = {"y_true": y_true, "sample_weight": sample_weight, "groups": groups}
    _check_columns(source, {"scores": z, "sensitive_features": s, **{k: [v] for k, v in single.items() if v}})
    sample = source.sample()  # for the scales of kernels
    given, notes = _labels(sample, y_true)
    rows = to_matrix(sample.select(z), name="scores", min_rows=2)
    cutoffs = _cutoffs(rows, read_thresholds(thresholds))
    weights = None if sample_weight is None else sample.column(sample_weight)
    sketches = []
    for names in [[name] for name in s] + ([s] if len(s) > 1 else []):
        own = _sensitive(sample.select(names), kinds or {})
        empty = HSICSketch.like(rows, own, weights=weights, cutoffs=cutoffs if len(names) == 1 else ())
        columns: dict[str, Any] = {
            "z": z,
            "s": names,
            "weights": sample_weight,
            "given": given,
            "groups": groups,
        }
        show = None if progress is None else partial(progress, " and ".join(names))
        options: dict[str, Any] = {"engine": engine, "partials": partials, "progress": show}
        sketches.append(sketch_source(source, empty, **columns, **options))
    result = audit(
        sketches,
        confidence_level=confidence_level,
        bandwidth_s=bandwidth_s,
        random_state=random_state,
        trained_on=trained_on,
        positive_label=positive_label,
        thresholds=thresholds,
        regions=regions,
        limits=limits,
        about=about,
    )
    return replace(
        result,
        score=None if result.score is None else replace(result.score, name=z[-1]),
        outcome=y_true,
        left_out=source.rows - result.n if source.allow_missing and source.rows is not None else None,
        notes=(*result.notes, *notes),
        record=_record(result, source, {"scores": z, "sensitive_features": s, **single}, kinds or {}),
    )


def _record(
    found: Audit, source: Source, columns: Mapping[str, Sequence[str] | str | None], kinds: Mapping[str, str]
) -> Record | None:
    """Return the record with digests of the columns, read once more unless they are too many."""
    if found.record is None:
        return None
    roles = [
        (role, name)
        for role, names in columns.items()
        for name in ([names] if isinstance(names, str) else names or ())
    ]
    hashed = hash_source(source, roles) if found.n <= _HASHED_ROWS else []
    options = replace(
        found.record.options,
        kinds=dict(kinds),
        missing_values=tuple(source.missing_values),
        drop_missing=source.allow_missing,
    )
    return replace(found.record, columns=tuple(hashed), options=options, layout=layout_of(source))


def _cutoffs(scores: Tensor, thresholds: Sequence[float]) -> list[float]:
    """Return the cut-offs of one column of scores: the thresholds, and quantiles of a sample."""
    if scores.shape[1] > 1:
        return []
    ordered = scores[:, 0].sort().values
    at = torch.linspace(0, len(ordered) - 1, _LEVELS + 1, dtype=torch.float64).round().long()
    return sorted({*ordered[at[1:-1]].tolist(), *thresholds})


def _check_columns(source: Source, arguments: Mapping[str, Sequence[str]]) -> None:
    for argument, names in arguments.items():
        absent = [name for name in names if name not in source.columns]
        if absent:
            raise absent_error(argument, absent, list(source.columns))


def _sensitive(sample: Any, kinds: Mapping[str, str]) -> Sensitive:
    """Return the sensitive columns of a sample, which have the kinds that batches of rows will have."""
    mine = {name: kind for name, kind in kinds.items() if name in sample.column_names}
    s = to_sensitive(sample, kinds=mine, rows_of="scores")
    plain = to_sensitive(sample, rows_of="scores", numeric_labels=True)
    for name, kind, own in zip(s.names, s.kinds, plain.kinds, strict=True):
        if kind != own:
            raise ArgumentError(
                "kinds",
                f"be {own!r} for column '{name}' where rows are sketched",
                repr(kind),
                "Write numbers as numbers and labels as text.",
            )
    return s


def _labels(sample: Any, y_true: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the column of labels, or none and why."""
    if y_true is None:
        return None, ()
    known = [label.value for label in split_labels(sample.column(y_true), name="y_true").kept]
    if len(known) <= MAX_LABELS or not all(isinstance(label, int | float) for label in known):
        return y_true, ()
    note = f"The outcome '{y_true}' is a number of many values: a sketch leaves it out."
    return None, (note,)
