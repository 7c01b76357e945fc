"""The audit of a sketch: what its sums say about all rows, and its stored rows about the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version

import torch

from frhsic._checks import check_confidence_level
from frhsic._progress import Progress
from frhsic.auditing._claims import Evidence, Shares, Signed, adjust, claims_of, draws_for, signed
from frhsic.auditing._parts import (
    LABELS,
    MIN_ROWS,
    TELLING,
    Asked,
    certified,
    cut,
    from_rows,
    refuse_identifiers,
    repeated_rows,
    warn_of_training,
)
from frhsic.auditing._representation import represented
from frhsic.auditing._results import Attribute, Audit, Column, Given, Outcome
from frhsic.data import Label
from frhsic.dependence import GDP, HSIC
from frhsic.inference import (
    Interval,
    TestResult,
    conditional_curve,
    confidence_interval,
    independence_test,
)
from frhsic.sketching import HSICSketch, Law


def audit_sketches(
    sketches: Sequence[HSICSketch],
    *,
    confidence_level: float,
    bandwidth_s: float | None,
    seed: int,
    trained_on: bool | None,
    positive_label: Label | None,
) -> Audit:
    """Return the audit of the rows behind sketches: one of each sensitive column, then one of all of them."""
    single = [sketch for sketch in sketches if len(sketch.stored.s.names) == 1]
    joint = [sketch for sketch in sketches if len(sketch.stored.s.names) > 1]
    _refuse_unlike(single, joint)
    first, whole = single[0], (joint or single)[0]
    n, stored = whole.n_rows, whole.stored
    width = stored.z.shape[1]
    if n < MIN_ROWS:
        raise ValueError(f"'scores' must have at least {MIN_ROWS} rows. Got a sketch of {n}. Add more rows.")
    refuse_identifiers(stored.s, n)
    positive = _positive(first, positive_label)
    weighted = not bool((stored.weights == stored.weights[0]).all())
    repeated = () if whole.grouped else repeated_rows(stored.z, stored.s, None)
    notes = (*warn_of_training(trained_on), *_notes(whole, weighted), *repeated)
    check_confidence_level(confidence_level)
    labels = first.labels
    shares = Shares(
        1.0 - confidence_level,
        attributes=len(single),
        questions=2 if labels else 1,
        labels=max(1, len(labels)),
        kinds=2 if width == 1 else 1,
    )
    asked = Sketched(confidence_level, bandwidth_s, seed, shares)
    columns = tuple(_column(sketch) for sketch in single)
    with Progress("auditing", 6 * len(sketches) + 2) as bar:
        evidence = _gather(asked, single, joint, bar)
        together = evidence[len(single)] if joint else None
        claims = claims_of(evidence[: len(single)], together, columns, shares.alpha)
        found = [
            _attribute(asked, sketch, one, positive, bar)
            for sketch, one in zip([*single, *joint], evidence, strict=True)
        ]
        rows = asked.rows(whole)
        representation = None
        if width > 1:
            representation = represented(
                rows.z,
                stored.s,
                None,
                rows.w,
                labels=False,
                confidence_level=confidence_level,
                measure=GDP(bandwidth_s),
                seed=seed,
            )
        bar.advance()
        certificate = None if weighted or whole.grouped else certified(rows, stored.s)
        bar.advance()
    return Audit(
        subject="score" if width == 1 else "representation",
        n=n,
        groups=None,
        confidence_level=confidence_level,
        score=_score(first) if width == 1 else None,
        width=width,
        columns=columns,
        attributes=tuple(found[: len(single)]),
        joint=found[-1] if joint else None,
        representation=representation,
        certificate=certificate,
        weighted=weighted,
        trained_on=trained_on,
        seed=seed,
        version=version("frhsic"),
        claims=claims,
        notes=notes,
    )


def _refuse_unlike(single: Sequence[HSICSketch], joint: Sequence[HSICSketch]) -> None:
    names = [sketch.stored.s.names[0] for sketch in single]
    wanted = [tuple(names)] if len(names) > 1 else []
    every = [*single, *joint]
    if (
        len(set(names)) < len(names)
        or [sketch.stored.s.names for sketch in joint] != wanted
        or len({(sketch.n_rows, sketch.stored.z.shape[1], sketch.labels) for sketch in every}) > 1
    ):
        got = "; ".join(f"{sketch.n_rows:,} rows of {', '.join(sketch.stored.s.names)}" for sketch in every)
        raise ValueError(
            "'scores' must be one sketch for each sensitive column and, if there are several, then one "
            f"of all of them, of the same rows. Got {got}. Sketch the same rows with each."
        )


def _positive(sketch: HSICSketch, asked: Label | None) -> Label | None:
    labels = sketch.labels
    if len(labels) > LABELS:
        raise ValueError(
            f"'scores' must be a sketch by labels of an outcome, at most {LABELS}. Got {len(labels)}. "
            "Leave 'given' out of update for an outcome that is a number."
        )
    if asked is not None and asked not in labels:
        raise ValueError(
            f"'positive_label' must be a label of the sketch. Got {asked!r}. "
            f"Take one of {', '.join(map(repr, labels)) or 'none: it was made without an outcome'}."
        )
    return (labels[-1] if asked is None else asked) if len(labels) == 2 else None


def _notes(sketch: HSICSketch, weighted: bool) -> tuple[str, ...]:
    stored = len(sketch.stored.z)
    notes = [f"Of a sketch: all {sketch.n_rows:,} rows in one pass, by sums of features. {sketch.error()}"]
    if stored < sketch.n_rows:
        notes.append(
            f"Distance correlation, kernel HGR, the profile and the certificate are those of {stored:,} rows "
            "drawn at random; the test, HSIC, GDP and curves are those of all rows."
        )
    repeated = 0 if sketch.grouped else sketch.repeated_ids
    if repeated:
        notes.append(
            f"{repeated:,} of {stored:,} stored rows share their id with another row. If an id is that of a "
            "person, rows are not independent and no p-value, interval or claim here holds. Pass the column "
            "as 'groups' (--group)."
        )
    if sketch.labels:
        notes.append("Calibration is not part of the audit of a sketch.")
    if sketch.grouped:
        notes.append(
            "Rows come in groups: of a sketch only the test and HSIC count these. The mean gap (GDP), "
            "curves, the profile, distance correlation and the certificate are left out; kernel HGR counts "
            "rows."
        )
    if weighted:
        notes.append("No certificate: its bounds are for rows of equal weight.")
    return tuple(notes)


class Sketched:
    """What every part of the audit of a sketch is called with."""

    def __init__(self, confidence_level: float, bandwidth_s: float | None, seed: int, shares: Shares) -> None:
        self.confidence_level, self.bandwidth_s, self.seed, self.shares = (
            confidence_level,
            bandwidth_s,
            seed,
            shares,
        )

    def rows(self, sketch: HSICSketch) -> Asked:
        """Return the stored rows, to be asked what sums do not tell."""
        z, _, w = sketch.stored
        weights = None if bool((w == w[0]).all()) else w / w.sum()
        return Asked(z, weights, self.confidence_level, self.bandwidth_s, self.seed, self.shares)

    def test(self, sketch: HSICSketch, given: Sequence[Label] | None = None) -> TestResult:
        """Return the test of independence."""
        return independence_test(
            sketch, given=given, n_permutations=self.shares.n_permutations, random_state=self.seed
        )

    def gdp(self, sketch: HSICSketch) -> Interval:
        """Return the interval of GDP."""
        return confidence_interval(
            sketch,
            dependence=GDP(self.bandwidth_s),
            confidence_level=self.confidence_level,
            random_state=self.seed,
        )

    def signed(self, sketch: HSICSketch, confidence_level: float) -> Signed:
        """Return the mean score along one column, and where it is shown to leave the overall mean."""
        curve = conditional_curve(
            sketch,
            confidence_level=confidence_level,
            n_draws=draws_for(confidence_level),
            random_state=self.seed,
            bandwidth_s=self.bandwidth_s,
        )
        return signed(curve, _error_of_mean(sketch))


def _error_of_mean(sketch: HSICSketch) -> float:
    line = sketch.line()
    assert line.mean is not None and line.variance is not None  # noqa: S101, PT018 - of a score
    variance = line.mass @ (line.variance + (line.mean - line.mass @ line.mean).square())
    return math.sqrt(float(variance * line.squared_mass.sum()))


def _gather(
    asked: Sketched, single: Sequence[HSICSketch], joint: Sequence[HSICSketch], bar: Progress
) -> list[Evidence]:
    """Return what the claims rest on: attributes, then all jointly."""
    found = []
    for sketch in [*single, *joint]:
        rows, s, shares = asked.rows(sketch), sketch.stored.s, asked.shares
        one = Evidence(
            asked.test(sketch), within=asked.test(sketch, sketch.labels) if sketch.labels else None
        )
        if len(s.names) == 1 and not sketch.grouped:
            one = one._replace(profile=rows.profile(s, shares.where))
            if rows.z.shape[1] == 1:
                labels = {
                    cut(label): asked.signed(sketch.at(label), shares.within)
                    for label in sketch.labels
                    if _enough(sketch.at(label))
                }
                one = one._replace(score=asked.signed(sketch, shares.where), labels=labels)
        found.append(one)
        bar.advance()
    return adjust(found[: len(single)], found[-1] if joint else None, asked.shares)


def _enough(part: HSICSketch) -> bool:
    return part.n_rows >= MIN_ROWS and bool((part.stored.s.values.std(dim=0) > 0).all())


def _attribute(
    asked: Sketched, sketch: HSICSketch, evidence: Evidence, positive: Label | None, bar: Progress
) -> Attribute:
    rows, s = asked.rows(sketch), sketch.stored.s
    one, score = len(s.names) == 1, rows.z.shape[1] == 1
    along = score and s.kinds.count("continuous") <= 1 and not sketch.grouped
    normalized = confidence_interval(sketch, confidence_level=asked.confidence_level, random_state=asked.seed)
    plain = confidence_interval(
        sketch,
        dependence=HSIC(estimator="unbiased"),
        confidence_level=asked.confidence_level,
        random_state=asked.seed,
    )
    bar.advance()
    told = from_rows(rows, s, bar)
    gdp = asked.gdp(sketch) if along else None
    bar.advance()
    outcome = _outcome(asked, sketch, evidence, positive, along=along) if sketch.labels else None
    bar.advance()
    return Attribute(
        names=s.names,
        kind=s.kinds[0] if one else "joint",
        test=evidence.test,
        normalized_hsic=normalized,
        hsic=plain,
        distance_correlation=None if sketch.grouped else told.distance_correlation,
        kernel_hgr=told.kernel_hgr,
        gdp=gdp,
        curve=None if evidence.score is None else evidence.score.curve,
        profile=evidence.profile,
        outcome=outcome,
    )


def _outcome(
    asked: Sketched, sketch: HSICSketch, evidence: Evidence, positive: Label | None, *, along: bool
) -> Outcome:
    found = []
    for label in sketch.labels:
        part, curve = sketch.at(label), evidence.labels.get(cut(label))
        found.append(
            Given(
                label=cut(label),
                n=part.n_rows,
                gdp=asked.gdp(part) if along and _enough(part) else None,
                curve=None if curve is None else curve.curve,
            )
        )
    return Outcome(
        equalized_odds=evidence.within,
        labels=tuple(found),
        equal_opportunity=None if positive is None else cut(positive),
        calibration=None,
        calibration_gap=None,
    )


# ---- description -----------------------------------------------------------------------------------------


def _score(sketch: HSICSketch) -> Column:
    return _described(sketch.law_z(), "score", len(sketch.stored.z.unique()))


def _column(sketch: HSICSketch) -> Column:
    s, line = sketch.stored.s, sketch.line()
    if s.kinds == ("continuous",):
        return _described(line.law, s.names[0], sketch.distinct or len(s.values.unique()))
    counts = torch.zeros(len((s.categories or ((),))[0] or ()), dtype=torch.float64)
    counts[line.s.values[:, 0].long()] = sketch.n_rows * line.mass  # of equal weights these are rows
    told = [count >= TELLING - 0.5 for count in counts.tolist()]
    return Column(
        name=s.names[0],
        kind="categorical",
        distinct=int((counts > 0).sum()),
        labels=tuple(
            cut(label) if tell else f"(fewer than {TELLING} rows)"
            for label, tell in zip((s.categories or ((),))[0] or (), told, strict=True)
        ),
        counts=tuple(round(count) if tell else 0 for count, tell in zip(counts.tolist(), told, strict=True)),
    )


def _described(law: Law, name: str, distinct: int) -> Column:
    """Describe a column; quantiles are exact to the distance of its places."""
    order = law.places.argsort()
    places, upto = law.places[order], law.mass[order].cumsum(0)
    low, high = (
        min(max(float(places[min(int(torch.searchsorted(upto, q)), len(places) - 1)]), law.low), law.high)
        for q in (0.01, 0.99)
    )
    return Column(
        name=name,
        kind="continuous",
        distinct=distinct,
        low=low,
        mean=float(law.mass @ law.places),
        high=high,
        unit_interval=law.low >= 0.0 and law.high <= 1.0,
    )
