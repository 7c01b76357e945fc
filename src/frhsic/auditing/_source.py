"""The audit of a source: tables of counts of a score; sketches of a representation, and of rows in groups."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from frhsic._checks import ArgumentError
from frhsic.auditing._about import read_about
from frhsic.auditing._audit import audit, audit_subjects, read_seed
from frhsic.auditing._claims import check_confidence
from frhsic.auditing._counting import Counts, Roles, count_source
from frhsic.auditing._limits import find_limits, read_limits
from frhsic.auditing._questions import RegionQuestion, read_regions, read_thresholds
from frhsic.auditing._record import ColumnDigest, Options, Record, hash_source, layout_of, make_record
from frhsic.auditing._results import Audit
from frhsic.auditing._subject import MAX_LABELS, Settings
from frhsic.auditing._tables import subjects_of_counts
from frhsic.auditing._words import ROW_SECURITY
from frhsic.data import Label, Sensitive, split_labels, suspicious_codes, to_matrix, to_sensitive
from frhsic.kernels import Gaussian, Kernel, default_kernel
from frhsic.kernels.scale import median_of_all_rows
from frhsic.numerics._threads import one_thread
from frhsic.runners import Engine, Local, RunProgress, sketch_source
from frhsic.sketching import HSICSketch
from frhsic.sources import Reservoir, Source, absent_error, drop_missing

# Rows from which scales of kernels come: more where columns are few. Of 20,000 rows normalised HSIC differs
# by up to a fifth of the interval of 200,000 rows, of 100,000 by a tenth. The seed is fixed: partials of a
# run that ended early belong to these rows, whatever the seed of the audit.
_LEAST_ROWS, _MOST_ROWS, _CELLS = 20_000, 100_000, 2_000_000
_NOTE = "Scales of kernels are those of {:,} random rows of all (seed 0)."
# Rows of which the columns are read once more for their digests.
_HASHED_ROWS = 1_000_000_000
_JOINT_NOTE = (
    "All columns jointly have too many cells for a table: what is said about them jointly is that of {:,} "
    "rows drawn at random (seed 0)."
)


@one_thread()
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
    engine: Engine | None = None,
    partials: str | os.PathLike[str] | None = None,
    progress: Callable[[str, RunProgress], None] | None = None,
) -> Audit:
    """Return the audit of rows that need not fit in memory.

    One score is counted: a table of counts of each sensitive column, and one of all, which are the same for
    the rows in any order and in any pieces. It takes two or three passes, the first of which finds the ends
    of each column, the second, where a column has many values, coarse counts.

    Several columns, which are a representation, and rows in groups are sketched: a first pass draws 100,000
    rows at random from all, of more than 20 columns fewer (at least 20,000), for the scales of kernels.

    Parameters
    ----------
    source : Source
        From ``open_source`` or ``open_sql``.
    scores, sensitive_features : str or list of str
        Columns, of which numbers are continuous and labels categorical.
    y_true, sample_weight : str, optional
        Columns. A sketch leaves out an outcome with more than ten values.
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
        Of sketches, as in :func:`frhsic.runners.sketch_source`. Counts are made by this process.
    progress : callable, optional
        Called with the pass in words ("ends", "ranges", "counts", or of sketches the columns), and how far
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
    options: dict[str, Any] = {
        "confidence_level": confidence_level,
        "random_state": random_state,
        "trained_on": trained_on,
        "thresholds": thresholds,
        "regions": regions,
        "limits": limits,
        "about": about,
    }
    if len(z) == 1 and groups is None:
        _check_no_sketch(engine, partials)
        roles = Roles(z[0], tuple(s), y_true, sample_weight)
        result = _audit_counts(source, roles, kinds or {}, positive_label, progress, **options)
        notes: tuple[str, ...] = ()
    else:
        running = {"engine": engine or Local(), "partials": partials, "progress": progress}
        sketches, notes = _sketch(source, z, s, single, kinds or {}, running)
        positive = _read_label(positive_label, sketches[0].labels)
        result = audit(sketches, positive_label=positive, **options)
        columns = _hash_columns(result, source, {"scores": z, "sensitive_features": s, **single})
        assert result.record is not None  # noqa: S101
        record = replace(result.record, columns=tuple(columns), layout=layout_of(source))
        result = replace(result, record=record)
        if result.score is not None:
            result = replace(result, score=replace(result.score, name=z[-1]))
    first = int(bool(trained_on))  # the warning about rows of training
    return replace(
        result,
        outcome=y_true,
        left_out=source.rows - result.n if source.allow_missing and source.rows is not None else None,
        notes=(*result.notes[:first], *(ROW_SECURITY,) * source.row_security, *result.notes[first:], *notes),
        record=_with_reading(result.record, source, kinds or {}),
    )


def _audit_counts(
    source: Source,
    roles: Roles,
    kinds: Mapping[str, str],
    positive_label: Label | None,
    progress: Callable[[str, RunProgress], None] | None,
    *,
    confidence_level: float,
    random_state: object,
    trained_on: bool | None,
    thresholds: Sequence[float] | float,
    regions: Mapping[str, str] | None,
    limits: Mapping[str, float] | None,
    about: Mapping[str, object] | None,
) -> Audit:
    """Return the audit of a score by tables of counts."""
    check_confidence(confidence_level)
    settings = Settings(
        confidence_level,
        read_seed(random_state),
        read_thresholds(thresholds),
        read_regions(regions),
        score=roles.score,
    )
    asked, said = read_limits(limits), read_about(about)
    if roles.outcome is None and positive_label is not None:
        fix = "Pass the outcome too."
        raise ArgumentError("positive_label", "be None without 'y_true'", repr(positive_label), fix)
    counts = count_source(
        source,
        roles,
        kinds=kinds,
        thresholds=settings.thresholds,
        regions={name: _borders_of(settings.regions, name) for name in roles.s},
        progress=progress,
    )
    subjects = subjects_of_counts(counts, settings, positive_label=positive_label)
    said_of_tables = subjects[0].notes() if counts.drawn is not None else ()
    found = audit_subjects(subjects, settings, said_of_tables, trained_on=trained_on)
    options = Options(
        confidence_level=confidence_level,
        thresholds=settings.thresholds,
        regions=dict(regions or {}),
        kinds={},
        positive_label=None if positive_label is None else str(positive_label),
        trained_on=trained_on,
        limits=asked,
        method="counts",
    )
    return replace(
        found,
        about=said,
        limits=find_limits(found, asked),
        repeated=None,
        notes=(*found.notes, *_notes_of_counts(counts)),
        record=make_record(counts.columns, options),
    )


def _borders_of(regions: Sequence[RegionQuestion], column: str) -> list[float]:
    """Return the ends of regions of a column of numbers; a value on a border belongs below."""
    borders: list[float] = []
    for region in regions:
        if region.column == column:
            with contextlib.suppress(ValueError):  # a label
                value = float(region.value)
                below = math.nextafter(value, -math.inf)
                borders += {">": [value], "<=": [value], "=": [below, value]}.get(region.compare, [below])
    return borders


def _notes_of_counts(counts: Counts) -> tuple[str, ...]:
    """Return notes on joint rows, an outcome of numbers, and numbers that may stand for no value."""
    notes: list[str | None] = []
    if counts.drawn is not None:
        notes.append(_JOINT_NOTE.format(len(counts.drawn.z)))
    if counts.beside:
        notes.append("The outcome has many values: it is a number, and not split into labels.")
    for what, scout in counts.scouts:
        values, rows = (torch.from_numpy(x) for x in scout.law)
        notes.append(suspicious_codes(values, what, rows))
    return tuple(note for note in notes if note is not None)


def _check_no_sketch(engine: Engine | None, partials: object) -> None:
    """Raise ArgumentError if options of sketches come with what is counted."""
    for name, value in (("engine", engine), ("partials", partials)):
        if value is not None and not isinstance(value, Local):
            must = "come with several columns of scores, or with groups: one score is counted by this process"
            raise ArgumentError(name, must, type(value).__name__, "Leave it out.")


def _sketch(
    source: Source,
    z: Sequence[str],
    s: Sequence[str],
    single: Mapping[str, str | None],
    kinds: Mapping[str, str],
    running: Mapping[str, Any],
) -> tuple[list[HSICSketch], tuple[str, ...]]:
    """Return a sketch of each sensitive column, and of all; notes."""
    progress = running["progress"]
    sample = _draw_sample(source, progress)
    given, notes = _labels(sample, single["y_true"])
    notes += _code_notes(sample, z, s)
    sketches = []
    for names, empty in plan_sketches(sample, z, s, kinds):
        columns: dict[str, Any] = {
            "z": z,
            "s": names,
            "weights": single["sample_weight"],
            "given": given,
            "groups": single["groups"],
        }
        show = None if progress is None else partial(progress, " and ".join(names))
        sketches.append(sketch_source(source, empty, **columns, **{**running, "progress": show}))
    if len(sample) < sketches[0].n_rows:
        notes += (_NOTE.format(len(sample)),)
    return sketches, notes


def _hash_columns(
    result: Audit, source: Source, columns: Mapping[str, Sequence[str] | str | None]
) -> list[ColumnDigest]:
    """Return the digests of the columns, read once more unless they are too many."""
    roles = [
        (role, name)
        for role, names in columns.items()
        for name in ([names] if isinstance(names, str) else names or ())
    ]
    return hash_source(source, roles) if result.n <= _HASHED_ROWS else []


def _with_reading(record: Record | None, source: Source, kinds: Mapping[str, str]) -> Record | None:
    """Return the record with how the rows were read."""
    if record is None:
        return None
    options = replace(
        record.options,
        kinds=dict(kinds),
        missing_values=tuple(source.missing_values),
        drop_missing=source.allow_missing,
        row_security=source.row_security,
    )
    return replace(record, options=options)


def plan_sketches(
    sample: Any, z: Sequence[str], s: Sequence[str], kinds: Mapping[str, str]
) -> list[tuple[list[str], HSICSketch]]:
    """Return an empty sketch of each sensitive column and of all, with the scales of a sample."""
    kernel_z = Gaussian(median_of_all_rows(to_matrix(sample.select(z), name="scores", min_rows=2)))
    planned = []
    for names in [[name] for name in s] + ([list(s)] if len(s) > 1 else []):
        own = _sensitive(sample.select(names), kinds)
        planned.append((names, HSICSketch(kernel_z, _kernel_s(own))))
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
