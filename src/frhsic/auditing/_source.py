"""The audit of a source: one pass over its rows for each sensitive column, and one for all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.auditing._audit import audit
from frhsic.auditing._questions import read_thresholds
from frhsic.auditing._record import Record, hash_source, layout_of
from frhsic.auditing._results import Audit
from frhsic.auditing._subject import MAX_LABELS
from frhsic.auditing._words import ROW_SECURITY
from frhsic.data import Label, Sensitive, split_labels, suspicious_codes, to_matrix, to_sensitive
from frhsic.kernels import Gaussian, Kernel, default_kernel
from frhsic.kernels.scale import median_of_all_rows
from frhsic.runners import Engine, Local, RunProgress, sketch_source
from frhsic.sketching import HSICSketch
from frhsic.sources import Reservoir, Source, absent_error, drop_missing

# Levels of the score in a sketch.
_LEVELS = 256
# Rows from which cut-offs of the score and scales of kernels come: more where columns are few. Of 20,000 rows
# normalised HSIC differs by up to a fifth of the interval of 200,000 rows, of 100,000 by a tenth. The seed is
# fixed: partials of a run that ended early belong to these rows, whatever the seed of the audit.
_LEAST_ROWS, _MOST_ROWS, _CELLS = 20_000, 100_000, 2_000_000
_NOTE = "Cut-offs of the score and scales of kernels are those of {:,} random rows of all (seed 0)."
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

    A first pass draws 100,000 rows at random from all, of more than 20 columns fewer (at least 20,000).
    Cut-offs of the score and scales of kernels are those of this sample, so the order of the rows does not
    matter. Rows in one order have the same sample each time (seed 0).

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
    confidence_level, random_state, trained_on, positive_label
        As in :func:`audit`; text may stand for the label that reads like it.
    thresholds, regions, limits, about
        As in :func:`audit`.
    engine, partials
        As in :func:`frhsic.runners.sketch_source`.
    progress : callable, optional
        Called with the sensitive columns of a pass, in words ("a sample" for the first pass), and how far
        it is.

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
    used = [*z, *s, *(name for name in single.values() if name is not None)]
    source = _with_columns(source, list(dict.fromkeys(used)))
    sample = _draw_sample(source, progress)
    given, notes = _labels(sample, y_true)
    notes += _code_notes(sample, z, s)
    sketches = []
    for names, empty in plan_sketches(sample, z, s, kinds or {}, read_thresholds(thresholds)):
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
    if len(sample) < sketches[0].n_rows:
        notes += (_NOTE.format(len(sample)),)
    result = audit(
        sketches,
        confidence_level=confidence_level,
        random_state=random_state,
        trained_on=trained_on,
        positive_label=_read_label(positive_label, sketches[0].labels),
        thresholds=thresholds,
        regions=regions,
        limits=limits,
        about=about,
    )
    first = int(bool(trained_on))  # the warning about rows of training
    return replace(
        result,
        score=None if result.score is None else replace(result.score, name=z[-1]),
        outcome=y_true,
        left_out=source.rows - result.n if source.allow_missing and source.rows is not None else None,
        notes=(*result.notes[:first], *(ROW_SECURITY,) * source.row_security, *result.notes[first:], *notes),
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
        row_security=source.row_security,
    )
    return replace(found.record, columns=tuple(hashed), options=options, layout=layout_of(source))


def plan_sketches(
    sample: Any, z: Sequence[str], s: Sequence[str], kinds: Mapping[str, str], thresholds: Sequence[float]
) -> list[tuple[list[str], HSICSketch]]:
    """Return an empty sketch of each sensitive column and of all, with cut-offs and scales of a sample."""
    rows = to_matrix(sample.select(z), name="scores", min_rows=2)
    kernel_z, cutoffs = Gaussian(median_of_all_rows(rows)), _cutoffs(rows, thresholds)
    planned = []
    for names in [[name] for name in s] + ([list(s)] if len(s) > 1 else []):
        own = _sensitive(sample.select(names), kinds)
        empty = HSICSketch(kernel_z, _kernel_s(own), cutoffs=cutoffs if len(names) == 1 else ())
        planned.append((names, empty))
    return planned


def _code_notes(sample: Any, z: Sequence[str], s: Sequence[str]) -> tuple[str, ...]:
    """Return notes on numbers that may stand for no value, by the rows of a sample."""
    numbers = to_sensitive(sample.select(list(s)), rows_of="scores", numeric_labels=True)
    columns = [
        (values, f"column '{name}'")
        for values, name, kind in zip(numbers.values.mT, numbers.names, numbers.kinds, strict=True)
        if kind == "continuous"
    ]
    if len(z) == 1:
        columns.append((to_matrix(sample.select(list(z)), name="scores", min_rows=2)[:, 0], "the score"))
    where = f"in a sample of {len(sample):,} rows"
    found = (suspicious_codes(values, f"{what} {where}") for values, what in columns)
    return tuple(note for note in found if note is not None)


def _with_columns(source: Source, names: list[str]) -> Source:
    """Return the source with these columns alone: others are neither read nor asked for missing values."""
    # Arrow's own way to a part of a schema; only sources import it.
    return replace(source, schema=source.schema.empty_table().select(names).schema)


def _draw_sample(source: Source, progress: Callable[[str, RunProgress], None] | None) -> Any:
    """Return the rows that fix cut-offs and scales, drawn from all rows, whatever their order."""
    reservoir = Reservoir(max(_LEAST_ROWS, min(_MOST_ROWS, _CELLS // len(source.columns))))
    start, rows = time.monotonic(), 0
    for done, piece in enumerate(source.pieces):
        for batch in source.batches(piece):
            reservoir.add(drop_missing(batch) if source.allow_missing else batch)
            rows += batch.num_rows
            if progress is not None:
                pieces = (done, len(source.pieces), 0)
                progress("a sample", RunProgress(rows, source.rows, *pieces, time.monotonic() - start))
    return reservoir.table(source.schema)


def _kernel_s(s: Sensitive) -> Kernel:
    """Return the kernel of sensitive columns with the scales of a sample."""
    scales = [
        median_of_all_rows(column[:, None]) if kind == "continuous" else 1.0
        for column, kind in zip(s.values.mT, s.kinds, strict=True)
    ]
    return default_kernel(s.kinds, scales)


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
            path = source.pieces[0].path or ""
            raise absent_error(argument, absent, list(source.columns), path=path)


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


def _read_label(given: Label | None, labels: Sequence[Label]) -> Label | None:
    """Return the label that is given, or the one that reads like it."""
    return next((label for label in labels if isinstance(given, str) and str(label) == given), given)


def _labels(sample: Any, y_true: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the column of labels, or none and why."""
    if y_true is None:
        return None, ()
    known = [label.value for label in split_labels(sample.column(y_true), name="y_true").kept]
    if len(known) <= MAX_LABELS or not all(isinstance(label, int | float) for label in known):
        return y_true, ()
    note = f"The outcome '{y_true}' is a number of many values: a sketch leaves it out."
    return None, (note,)
