"""The audit of a sketch: what its sums say about all rows, and its stored rows about the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version

import torch

from frhsic.auditing._parts import (
    LABELS,
    MIN_ROWS,
    TELLING,
    Asked,
    certified,
    cut,
    from_rows,
    refuse_identifiers,
    warn_of_training,
)
from frhsic.auditing._representation import represented
from frhsic.auditing._results import Attribute, Audit, Column, Given, Outcome
from frhsic.data import Label
from frhsic.dependence import GDP, HSIC, HSICSketch
from frhsic.dependence.features import Law
from frhsic.engine._progress import Progress
from frhsic.inference import (
    Curve,
    Interval,
    conditional_curve,
    confidence_interval,
    holm,
    independence_test,
)


def audit_sketches(
    sketches: Sequence[HSICSketch],
    *,
    level: float,
    bandwidth_s: float,
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
        raise ValueError(
            f"'scores_or_Z' must have at least {MIN_ROWS} rows. Got a sketch of {n}. Add more rows."
        )
    refuse_identifiers(stored.s, n)
    positive = _positive(first, positive_label)
    weighted = not bool((stored.weights == stored.weights[0]).all())
    notes = (*warn_of_training(trained_on), *_notes(whole, weighted))
    asked = Sketched(level, bandwidth_s, seed)
    with Progress("auditing", 6 * len(sketches) + 2) as bar:
        found = [_attribute(asked, sketch, positive, bar) for sketch in single]
        if len(found) > 1:
            adjusted = holm([one.test.pvalue for one in found])
            found = [
                replace(one, test=replace(one.test, adjusted=p))
                for one, p in zip(found, adjusted, strict=True)
            ]
        together = _attribute(asked, joint[0], positive, bar) if joint else None
        rows = asked.rows(whole)
        representation = None
        if width > 1:
            representation = represented(
                rows.z, stored.s, None, rows.w, labels=False, level=level, bandwidth_s=bandwidth_s, seed=seed
            )
        bar.advance()
        certificate = None if weighted else certified(rows, stored.s)
        bar.advance()
    return Audit(
        subject="score" if width == 1 else "representation",
        n=n,
        level=level,
        score=_score(first) if width == 1 else None,
        width=width,
        columns=tuple(_column(sketch) for sketch in single),
        attributes=tuple(found),
        joint=together,
        representation=representation,
        certificate=certificate,
        weighted=weighted,
        trained_on=trained_on,
        seed=seed,
        version=version("frhsic"),
        notes=notes,
    )


def _refuse_unlike(single: Sequence[HSICSketch], joint: Sequence[HSICSketch]) -> None:
    names = [sketch.stored.s.names[0] for sketch in single]
    wanted = [tuple(names)] if len(names) > 1 else []
    every = [*single, *joint]
    if (
        len(set(names)) < len(names)
        or [sketch.stored.s.names for sketch in joint] != wanted
        or len({(sketch.n_rows, sketch.stored.z.shape[1], sketch.levels) for sketch in every}) > 1
    ):
        got = "; ".join(f"{sketch.n_rows:,} rows of {', '.join(sketch.stored.s.names)}" for sketch in every)
        raise ValueError(
            "'scores_or_Z' must be one sketch for each sensitive column and, if there are several, then one "
            f"of all of them, of the same rows. Got {got}. Sketch the same rows with each."
        )


def _positive(sketch: HSICSketch, asked: Label | None) -> Label | None:
    labels = sketch.levels
    if len(labels) > LABELS:
        raise ValueError(
            f"'scores_or_Z' must be a sketch by labels of an outcome, at most {LABELS}. Got {len(labels)}. "
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
    if sketch.levels:
        notes.append("Calibration is not part of the audit of a sketch.")
    if weighted:
        notes.append("No certificate: its bounds are for rows of equal weight.")
    return tuple(notes)


class Sketched:
    """What every part of the audit of a sketch is called with."""

    def __init__(self, level: float, bandwidth_s: float, seed: int) -> None:
        self.level, self.bandwidth_s, self.seed = level, bandwidth_s, seed

    def rows(self, sketch: HSICSketch) -> Asked:
        """Return the stored rows, to be asked what sums do not tell."""
        z, _, w = sketch.stored
        weights = None if bool((w == w[0]).all()) else w / w.sum()
        return Asked(z, weights, self.level, self.bandwidth_s, self.seed)

    def gdp(self, sketch: HSICSketch) -> Interval:
        return confidence_interval(
            sketch, dependence=GDP(self.bandwidth_s), level=self.level, random_state=self.seed
        )

    def curve(self, sketch: HSICSketch) -> Curve:
        return conditional_curve(
            sketch,
            level=self.level,
            bandwidth_s=self.bandwidth_s,
            smooth=sketch.stored.s.kinds == ("continuous",),
            random_state=self.seed,
        )


def _attribute(asked: Sketched, sketch: HSICSketch, positive: Label | None, bar: Progress) -> Attribute:
    rows, s = asked.rows(sketch), sketch.stored.s
    one, score = len(s.names) == 1, rows.z.shape[1] == 1
    along = score and s.kinds.count("continuous") <= 1
    test = independence_test(sketch, random_state=asked.seed)
    normalized = confidence_interval(sketch, level=asked.level, random_state=asked.seed)
    plain = confidence_interval(
        sketch, dependence=HSIC(estimator="unbiased"), level=asked.level, random_state=asked.seed
    )
    bar.advance()
    told = from_rows(rows, s, bar)
    gdp = asked.gdp(sketch) if along else None
    curve = asked.curve(sketch) if along and one else None
    bar.advance()
    outcome = _outcome(asked, sketch, positive, along=along, one=one) if sketch.levels else None
    bar.advance()
    return Attribute(
        names=s.names,
        kind=s.kinds[0] if one else "joint",
        test=test,
        normalized_hsic=normalized,
        hsic=plain,
        distance_correlation=told.distance_correlation,
        kernel_hgr=told.kernel_hgr,
        gdp=gdp,
        curve=curve,
        profile=told.profile,
        outcome=outcome,
    )


def _outcome(
    asked: Sketched, sketch: HSICSketch, positive: Label | None, *, along: bool, one: bool
) -> Outcome:
    found = []
    for label in sketch.levels:
        part = sketch.at(label)
        enough = part.n_rows >= MIN_ROWS and along and bool((part.stored.s.values.std(dim=0) > 0).all())
        found.append(
            Given(
                label=cut(label),
                n=part.n_rows,
                gdp=asked.gdp(part) if enough else None,
                curve=asked.curve(part) if enough and one else None,
            )
        )
    return Outcome(
        equalized_odds=independence_test(sketch, given=sketch.levels, random_state=asked.seed),
        levels=tuple(found),
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
