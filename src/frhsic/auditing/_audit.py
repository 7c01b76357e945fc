"""The audit: every number about the dependence of a score or a representation on S, on one sample."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import zip_longest
from typing import Literal

import torch

from frhsic._checks import ArgumentError
from frhsic._progress import Progress
from frhsic._text import number
from frhsic.auditing._about import read_about
from frhsic.auditing._claims import (
    Evidence,
    Shares,
    adjust,
    check_confidence,
    find_signs_about_zero,
    make_claims,
    rejects,
)
from frhsic.auditing._decisions import check_regions, find_decisions, read_regions, read_thresholds
from frhsic.auditing._explained import find_explanations
from frhsic.auditing._limits import Limit, find_limits, judge, read_limits
from frhsic.auditing._measures import MEASURES, AuditMeasure, Measurement
from frhsic.auditing._outcome import find_outcome_curves
from frhsic.auditing._record import ColumnDigest, Options, hash_rows, make_record
from frhsic.auditing._results import Attribute, Audit, Column, LabelDependence, Outcome, Representation
from frhsic.auditing._rows import subjects_of_rows
from frhsic.auditing._sketches import subjects_of_sketches
from frhsic.auditing._subject import Settings, Subject, count_repeated
from frhsic.auditing._tables import subjects_of_tables
from frhsic.auditing.probes import probe_representation
from frhsic.data import Label, read_columns, to_generator
from frhsic.dependence import GDP
from frhsic.inference import Interval, keep_tables
from frhsic.inference.bounds import Certificate, certify
from frhsic.numerics._threads import one_thread
from frhsic.sketching import HSICSketch
from frhsic.table import ScoreTable

# Of the certificate's heads.
_CERTIFICATE_ROWS = 2_000
# By which two ways to the same number may differ.
_ROUNDING = 1e-6


@one_thread()
def audit(
    scores: object,
    *,
    sensitive_features: object = None,
    y_true: object = None,
    sample_weight: object = None,
    kinds: str | Mapping[str, str] | None = None,
    groups: object = None,
    confidence_level: float = 0.95,
    random_state: object = None,
    trained_on: bool | None = None,
    positive_label: Label | None = None,
    thresholds: Sequence[float] | float = (),
    regions: Mapping[str, str] | None = None,
    given: object = None,
    contributions: object = None,
    limits: Mapping[str, float] | None = None,
    about: Mapping[str, object] | None = None,
) -> Audit:
    """Return every number about the dependence of a score or a representation on sensitive columns.

    Each number is that of a function of :mod:`frhsic.inference`, called with ``random_state=seed``, the seed
    of the audit. ``claims`` lists every statement about the population: the probability that any of them is
    false is at most 1 - confidence_level.

    Parameters
    ----------
    scores : array or frame of shape (n,) or (n, d), ScoreTable, HSICSketch, or list of these
        Scores, or a representation when there are several columns. Two columns that sum to one are taken as
        those of ``predict_proba``: the second is the score. Where rows stay where they are, a table of counts
        of each sensitive column and, if there are several, then one of all. For rows that do not fit in
        memory, a sketch of each and of all likewise; ``given`` of a sketch is the outcome. Tables and
        sketches hold S, outcome, weights and groups: do not pass these beside them.
    sensitive_features : array or frame of shape (n,) or (n, q)
        Numbers are continuous, labels categorical; ``kinds`` overrides. Required beside rows.
    y_true : array of shape (n,), optional
        The outcome: adds dependence among the rows of each label (equal opportunity, equalized odds) and,
        along s, the calibration of the score, the mean of the outcome (base rate), error rates at the
        thresholds and the AUC; for a representation, fresh heads.
    sample_weight : array of shape (n,), optional
        Every number is then that of the weighted distribution. There is no certificate: its bounds are for
        equal weights.
    kinds : "continuous", "categorical" or dict of these by column name, optional
    groups : array of shape (n,), optional
        Labels of rows that may depend on one another, such as the person of each row: rows of different
        groups are independent.
    confidence_level : float, default=0.95
        The confidence of each interval, and of all claims together.
    random_state : int, generator or None
    trained_on : bool, optional
        Whether these rows were used to train the model. True warns: its scores fit them too well.
    positive_label : label, optional
        The favourable outcome of a binary y; the last of the sorted labels unless said.
    thresholds : float or sequence of float, default=()
        Scores above which a decision is made: adds the rate of decisions along each attribute, its gap, and
        the ratio of the lowest to the highest rate.
    regions : dict of str to {"below", "above"}, optional
        Questions that are asked before the rows are looked at: ``{"age >= 62": "below"}`` asks whether the
        mean score there is below that of the others. Each answer has its own level, 1 - confidence_level.
    given : frame, dict of columns or array of shape (n, p), optional
        Factors, such as income and tenure: adds the curve along each attribute with them held equal
        (:func:`frhsic.inference.adjusted_curve`). Each has its own confidence.
    contributions : frame, dict of columns or array of shape (n, p), optional
        What each input of the model adds to the score of each row (SHAP values, say): adds which inputs carry
        the gap (:func:`frhsic.inference.carriers`).
    limits : dict of str to float, optional
        Limits that were fixed beforehand, by the names of measures: ``{"gap": 0.05, "gap_at": 0.03}``. The
        audit says of each whether it is shown to be kept, shown to be exceeded, or neither.
    about : dict of str to str, optional
        "title", "model" ("risk@2.1"), "owner", "purpose", "population", "limits_fixed" (when),
        "model_sha256": shown and recorded as they are.

    Returns
    -------
    Audit
        ``print`` it for a summary in words; ``to_dict`` for JSON, ``to_frame`` for a table.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(18, 90, 400)
    >>> score = ((age - 54) / 36) ** 2 + 0.1 * rng.normal(size=400)
    >>> audit(score, sensitive_features={"age": age}, random_state=0).attribute("age").test.pvalue
    0.001
    """
    check_confidence(confidence_level)
    settings = Settings(
        confidence_level,
        read_seed(random_state),
        read_thresholds(thresholds),
        read_regions(regions),
    )
    asked, said = read_limits(limits), read_about(about)
    why = {"given": given, "contributions": contributions}
    data = {
        "sensitive_features": sensitive_features,
        "y_true": y_true,
        "sample_weight": sample_weight,
        "kinds": kinds,
        "groups": groups,
    }
    sketches = [scores] if isinstance(scores, HSICSketch | ScoreTable) else scores
    subjects: Sequence[Subject]
    notes: tuple[str, ...] = ()
    columns: list[ColumnDigest] = []
    method: Literal["rows", "sketch", "counts"] = "sketch"
    if isinstance(sketches, list | tuple) and any(isinstance(one, ScoreTable) for one in sketches):
        _check_absent({**data, **why}, "a table of counts")
        subjects, method = subjects_of_tables(sketches, settings, positive_label=positive_label), "counts"
    elif isinstance(sketches, list | tuple) and any(isinstance(one, HSICSketch) for one in sketches):
        _check_absent({**data, **why}, "a sketch")
        subjects = subjects_of_sketches(sketches, settings, positive_label=positive_label)
    else:
        subjects, notes = subjects_of_rows(
            scores,
            settings,
            **{**data, **why},  # type: ignore[arg-type]
            positive_label=positive_label,
        )
        method = "rows"
        settings = subjects[-1].settings
        rows = {name: value for name, value in data.items() if name != "kinds"}
        columns = hash_rows({"scores": scores, **rows, **why})
    found = audit_subjects(subjects, settings, notes, trained_on=trained_on)
    options = Options(
        confidence_level=confidence_level,
        thresholds=settings.thresholds,
        regions=dict(regions or {}),
        kinds=dict.fromkeys(found.every[-1].names, kinds) if isinstance(kinds, str) else dict(kinds or {}),
        positive_label=None if positive_label is None else str(positive_label),
        trained_on=trained_on,
        limits=asked,
        method=method,
    )
    return replace(
        found,
        about=said,
        outcome=_name_of(y_true),
        limits=find_limits(found, asked),
        repeated=None if method != "rows" else count_repeated(subjects[-1].rows.z, subjects[-1].s),
        record=make_record(columns, options),
    )


@one_thread()
def measure_limits(
    scores: object,
    limits: Mapping[str, float],
    *,
    sensitive_features: object,
    sample_weight: object = None,
    kinds: str | Mapping[str, str] | None = None,
    groups: object = None,
    confidence_level: float = 0.95,
    random_state: object = None,
) -> tuple[tuple[Limit, ...], tuple[str, ...]]:
    """Return limits beside the numbers of an audit, and notes on what these rows do not give.

    Only the measures that are limited are computed.
    """
    check_confidence(confidence_level)
    subjects, _ = subjects_of_rows(
        scores,
        Settings(confidence_level, read_seed(random_state)),
        sensitive_features=sensitive_features,
        y_true=None,
        sample_weight=sample_weight,
        kinds=kinds,
        groups=groups,
        positive_label=None,
    )
    found: list[Limit] = []
    notes: tuple[str, ...] = ()
    for subject in subjects[:-1] or subjects:
        for name, at_most in limits.items():
            measured, more = _measure(MEASURES[name], subject, f"on {subject.name}")
            if measured is None and not more:
                got, fix = f"{name} of {subject.width} columns", "Take normalized_hsic."
                raise ArgumentError("measure", "be defined for these scores", got, fix)
            title = f"{MEASURES[name].short} on {subject.name}"
            found.append(judge(name, title, subject.name, measured, at_most))
            notes += more
    return tuple(found), notes


def read_seed(random_state: object) -> int:
    """Return the seed of an audit; an int is its own."""
    seed = int(torch.randint(2**31, (), generator=to_generator(random_state)))
    return random_state if isinstance(random_state, int) else seed


def _name_of(column: object) -> str | None:
    """Return the name of a column that was passed by itself; "outcome" if it has none."""
    if column is None:
        return None
    names = [block.name for block in read_columns(column, "y_true")]
    return names[0] or "outcome"


def _check_absent(data: Mapping[str, object], holder: str) -> None:
    """Raise ArgumentError if anything that a sketch or a table holds is passed beside it."""
    for name, value in data.items():
        if value is not None:
            must = f"be left out beside {holder}, which holds rows, weights and outcome"
            raise ArgumentError(name, must, type(value).__name__, "Pass it alone.")


def audit_subjects(
    subjects: Sequence[Subject], settings: Settings, notes: tuple[str, ...], *, trained_on: bool | None
) -> Audit:
    """Return the audit of each sensitive column and, last of several subjects, of all of them jointly."""
    whole, several = subjects[-1], len(subjects) > 1
    settings = whole.settings
    check_regions(settings.regions, whole.s)
    _check_decisions(settings, whole.width)
    single = subjects[:-1] if several else subjects
    score = whole.width == 1
    notes = (*_warn_of_training(trained_on), *notes, *whole.notes())
    labels = whole.by_label()
    shares = Shares(
        1.0 - settings.confidence_level,
        attributes=len(single),
        questions=1 + bool(labels) + (whole.residual() is not None),
        labels=max(1, len(labels)),
        kinds=2 if score else 1,
    )
    columns = tuple(subject.describe() for subject in single)
    with Progress("auditing", (2 + len(MEASURES)) * len(subjects) + 2) as bar:
        evidence = gather_evidence(subjects, shares, bar)
        claims = make_claims(
            evidence[: len(single)], evidence[-1] if several else None, columns, shares.alpha
        )
        found = []
        for subject, one, column in zip_longest(subjects, evidence, columns):
            attribute, more = _audit_attribute(subject, one, column, bar)
            found.append(attribute)
            notes += more
        representation = None if score else _probe(whole)
        bar.advance()
        certificate = None if score else _certify(whole)
        bar.advance()
    if whole.weighted and not score:
        notes += ("No certificate: its bounds are for rows of equal weight.",)
    return Audit(
        subject="score" if score else "representation",
        n=whole.n,
        groups=whole.n_groups,
        confidence_level=settings.confidence_level,
        score=whole.describe_score() if score else None,
        width=whole.width,
        columns=columns,
        attributes=tuple(found[: len(single)]),
        joint=found[-1] if several else None,
        representation=representation,
        certificate=certificate,
        weighted=whole.weighted,
        trained_on=trained_on,
        seed=settings.seed,
        version=version("frhsic"),
        claims=claims,
        notes=notes,
    )


def _warn_of_training(trained_on: bool | None) -> tuple[str, ...]:
    """Return and raise the warning about rows that the model was trained on."""
    if not trained_on:
        return ()
    note = (
        "These rows were used to train the model: on them its dependence may be smaller than on new "
        "rows, and no p-value, interval or bound here holds for the population."
    )
    warnings.warn(note + " Audit rows that were held out.", stacklevel=4)
    return (note,)


def gather_evidence(
    subjects: Sequence[Subject], shares: Shares, bar: Progress, *, only_claimed: bool = False
) -> list[Evidence]:
    """Return what the claims rest on, with corrected p-values, in the order of the subjects.

    With ``only_claimed``, places along an attribute only where its test allows a claim about them.
    """
    evidence = []
    for subject in subjects:
        within = subject.test(shares.n_permutations, within_labels=True) if subject.by_label() else None
        evidence.append(Evidence(subject.test(shares.n_permutations), within=within))
        bar.advance()
    m = shares.attributes
    found = adjust(evidence[:m], evidence[m] if len(evidence) > m else None, shares)
    for j, subject in enumerate(subjects[:m]):
        if not only_claimed or rejects(found[j].test, shares.alpha):
            score, profile = subject.signed_curve(shares.where), subject.profile(shares.where)
            found[j] = found[j]._replace(score=score, profile=profile)
        labels = {
            label: curve
            for label, part in subject.by_label()
            if part.is_sufficient() and (curve := part.signed_curve(shares.within)) is not None
        }
        residual = subject.residual()
        calibration = None if residual is None else find_signs_about_zero(residual.curve(shares.calibration))
        found[j] = found[j]._replace(labels=labels, calibration=calibration)
    return found


@keep_tables()
def _audit_attribute(
    subject: Subject, evidence: Evidence, column: Column | None, bar: Progress
) -> tuple[Attribute, tuple[str, ...]]:
    """Return what was found on one attribute, and notes on what could not be measured."""
    measures: dict[str, Measurement] = {}
    notes: list[str] = []
    for name, measure in MEASURES.items():
        result, more = _measure(measure, subject, f"on {subject.name}")
        notes += more
        if result is not None:
            measures[name] = result
        bar.advance()
    check_gaps(measures, subject.name)
    outcome, more = _audit_outcome(subject, evidence, column)
    decisions, few = find_decisions(subject, column)
    reasons, other = find_explanations(subject, column)
    bar.advance()
    return Attribute(
        names=subject.s.names,
        kind=subject.s.kinds[0] if len(subject.s.names) == 1 else "joint",
        test=evidence.test,
        measures=measures,
        curve=None if evidence.score is None else evidence.score.curve,
        profile=evidence.profile,
        outcome=outcome,
        **decisions._asdict(),
        **reasons._asdict(),
    ), (*notes, *more, *few, *other)


def _check_decisions(settings: Settings, width: int) -> None:
    """Raise ArgumentError if decisions or reasons are asked for of a representation."""
    names = ("thresholds", "regions", "factors", "contributions")
    for name, asked in ((one, getattr(settings, one)) for one in names):
        if asked is not None and len(asked) and width > 1:
            must = "come with one score, not with a representation"
            shown = "given" if name == "factors" else name
            raise ArgumentError(shown, must, f"{width} columns", "Leave it out, or pass one score.")


def _measure(
    measure: AuditMeasure, subject: Subject, where: str
) -> tuple[Measurement | None, tuple[str, ...]]:
    """Return a measure, or a note on why these rows do not give it."""
    try:
        return measure.compute(subject), ()
    except ValueError as error:
        return None, (f"No {measure.title} {where}: {error}",)


def check_gaps(measures: Mapping[str, Measurement], name: str) -> None:
    """Raise RuntimeError if the mean gap is above the gap of the score, which is never below it."""
    gap, mean_gap = measures.get("gap"), measures.get("gdp")
    if not isinstance(gap, Interval) or not isinstance(mean_gap, Interval):
        return
    if mean_gap.low > max(gap.high, gap.estimate) * (1.0 + _ROUNDING):
        found, bound = (
            f"{number(one.estimate)}, interval {number(one.low)} to {number(one.high)}"
            for one in (mean_gap, gap)
        )
        raise RuntimeError(
            f"The mean gap on {name} must be at most the gap of the score, which bounds it. Got {found}, "
            f"above {bound}. This is a check of frhsic on itself, and its numbers cannot be used: report it."
        )


def _audit_outcome(
    subject: Subject, evidence: Evidence, column: Column | None
) -> tuple[Outcome | None, tuple[str, ...]]:
    """Return the numbers beside the outcome, and notes on those that these rows do not give."""
    parts, residual = subject.by_label(), subject.residual()
    if not parts and subject.rows.outcome is None:
        return None, ()
    labels: list[LabelDependence] = []
    notes: list[str] = []

    def measure_gap(part: Subject, where: str) -> Interval | None:
        gap, more = _measure(MEASURES["gdp"], part, where)
        notes.extend(more)
        return gap if isinstance(gap, Interval) else None

    for label, part in parts:
        where = f"on {subject.name} where the outcome is {label}"
        gap = measure_gap(part, where) if part.is_sufficient() else None
        curve = evidence.labels.get(label)
        labels.append(LabelDependence(label, part.n, gap, None if curve is None else curve.curve))
    where = f"of outcome minus score on {subject.name}"
    curves, more = find_outcome_curves(subject, column)
    return Outcome(
        equalized_odds=evidence.within,
        labels=tuple(labels),
        equal_opportunity=subject.favourable,
        calibration=None if evidence.calibration is None else evidence.calibration.curve,
        calibration_gap=None if residual is None else measure_gap(residual, where),
        **curves._asdict(),
    ), (*notes, *more)


def _probe(whole: Subject) -> Representation:
    rows, settings = whole.rows, whole.settings
    return probe_representation(
        rows.z,
        rows.s,
        None if rows.outcome is None else rows.outcome.y,
        rows.w,
        labels=rows.outcome is not None and bool(rows.outcome.split),
        confidence_level=settings.confidence_level,
        measure=GDP(),
        seed=settings.seed,
        groups=rows.groups,
    )


def _certify(whole: Subject) -> Certificate | None:
    """Return the certificate of at most 2,000 rows."""
    if whole.weighted or whole.groups_lost:
        return None
    rows, settings = whole.rows, whole.settings
    return certify(
        rows.z,
        rows.s,
        confidence_level=settings.confidence_level,
        random_state=settings.seed,
        max_rows=_CERTIFICATE_ROWS,
        groups=rows.groups,
    )
