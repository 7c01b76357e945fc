"""The audit: every number about the dependence of a score or a representation on S, on one sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version

import torch
from torch import Tensor

from frhsic._checks import ArgumentError, check_confidence_level
from frhsic._progress import Progress
from frhsic.auditing._claims import Evidence, Shares, adjust, claims_of, rejects, signed_about_zero
from frhsic.auditing._parts import (
    LABELS,
    MIN_ROWS,
    TELLING,
    Asked,
    certified,
    cut,
    from_rows,
    gdp_or_note,
    refuse_identifiers,
    repeated_rows,
    warn_of_training,
)
from frhsic.auditing._representation import represented
from frhsic.auditing._results import Attribute, Audit, Column, Given, Outcome
from frhsic.auditing._sketched import audit_sketches
from frhsic.data import (
    Label,
    LabelRows,
    Sensitive,
    check_aligned,
    split_labels,
    suspicious_codes,
    to_generator,
    to_groups,
    to_matrix,
    to_sensitive,
    to_weights,
)
from frhsic.dependence import GDP, HSIC
from frhsic.inference import TestResult
from frhsic.inference._sketched import refuse_beside_a_sketch
from frhsic.sketching import HSICSketch


def audit(
    scores: object,
    *,
    sensitive_features: object = None,
    y_true: object = None,
    sample_weight: object = None,
    kinds: str | Mapping[str, str] | None = None,
    groups: object = None,
    confidence_level: float = 0.95,
    bandwidth_s: float | None = None,
    random_state: object = None,
    trained_on: bool | None = None,
    positive_label: Label | None = None,
) -> Audit:
    """Return every number about the dependence of a score or a representation on sensitive columns.

    Each number is that of the function of :mod:`frhsic.inference` which its type names, called with
    ``random_state=seed``, the seed that the audit carries. What is said about the population stands in
    ``claims``: of all of them together, any is false in at most 1 - confidence_level of samples.

    Parameters
    ----------
    scores : array or frame of shape (n,) or (n, d), HSICSketch, or list of HSICSketch
        Scores, or a representation when there are several columns. Two columns that sum to one are taken as
        those of ``predict_proba``: the second is the score. For rows that do not fit in memory a sketch of
        each sensitive column and, if there are several, then one of all; ``given`` of a sketch is the
        outcome. Sketches hold rows, outcome and weights, so that these are not passed.
    sensitive_features : array or frame of shape (n,) or (n, q)
        Numbers are continuous, labels categorical; ``kinds`` overrides. Needed unless sketches come.
    y_true : array of shape (n,), optional
        The outcome: adds dependence among the rows of each label (equal opportunity, equalized odds), the
        calibration of the score along s and, for a representation, fresh heads.
    sample_weight : array of shape (n,), optional
        The law under audit is the weighted one. No certificate then: its bounds are for equal weights.
    kinds : "continuous", "categorical" or dict of these by column name, optional
    groups : array of shape (n,), optional
        Labels of rows that may depend on one another, such as the person of each row: rows of different
        groups are independent.
    confidence_level : float, default=0.95
        The confidence of each interval, and of all claims together.
    bandwidth_s : float or None, default=None
        None takes means at each value of a continuous s, or within ranges of equally many rows; a number
        smooths along it with this fraction of its range, and the output says so.
    random_state : int, generator or None
    trained_on : bool, optional
        Whether these rows were used to train the model. True warns: its scores fit them too well.
    positive_label : label, optional
        The favourable outcome of a binary y; the last of the sorted labels unless said.

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
    seed = int(torch.randint(2**31, (), generator=to_generator(random_state)))
    if isinstance(random_state, int):
        seed = random_state
    sketches = [scores] if isinstance(scores, HSICSketch) else scores
    if isinstance(sketches, list | tuple) and any(isinstance(one, HSICSketch) for one in sketches):
        refuse_beside_a_sketch(
            sensitive_features=sensitive_features,
            y_true=y_true,
            sample_weight=sample_weight,
            kinds=kinds,
            groups=groups,
        )
        return audit_sketches(
            sketches,
            confidence_level=confidence_level,
            bandwidth_s=bandwidth_s,
            seed=seed,
            trained_on=trained_on,
            positive_label=positive_label,
        )
    check_aligned(
        scores=scores,
        sensitive_features=sensitive_features,
        y_true=y_true,
        sample_weight=sample_weight,
        groups=groups,
    )
    z, notes = _subject(scores)
    s = to_sensitive(sensitive_features, kinds=kinds, n_rows=len(z), rows_of="scores")
    refuse_identifiers(s, len(s))
    w = to_weights(sample_weight, n_rows=len(z), rows_of="scores")
    codes = to_groups(groups, n_rows=len(z), rows_of="scores")
    outcome = None if y_true is None else _Outcome.of(y_true, len(z), positive_label)
    if y_true is None and positive_label is not None:
        raise ValueError(
            f"'positive_label' must be None without 'y_true'. Got {positive_label!r}. Pass the outcome too."
        )
    check_confidence_level(confidence_level)
    if w is not None and bool((w == w[0]).all()):
        w = None  # equal weights are none
    notes = (*warn_of_training(trained_on), *notes, *repeated_rows(z, s, codes))
    parts = [s.columns([name]) for name in s.names]
    several, score = len(parts) > 1, z.shape[1] == 1
    shares = Shares(
        1.0 - confidence_level,
        attributes=len(parts),
        questions=1 if outcome is None else outcome.questions(z),
        labels=1 if outcome is None else max(1, len(outcome.split)),
        kinds=2 if score else 1,
    )
    asked = Asked(z, w, confidence_level, bandwidth_s, seed, shares, codes)
    columns = tuple(_column(part) for part in parts)
    with Progress("auditing", 7 * (len(parts) + several) + 2) as bar:
        evidence = gather(asked, parts, s if several else None, outcome, bar)
        together = evidence[len(parts)] if several else None
        claims = claims_of(evidence[: len(parts)], together, columns, shares.alpha)
        found = []
        for part, one in zip([*parts, *([s] if several else [])], evidence, strict=True):
            attribute, more = _attribute(asked, part, one, outcome, bar)
            found.append(attribute)
            notes += more
        representation = None
        if not score:
            y, labels = (None, False) if outcome is None else (outcome.y, bool(outcome.split))
            representation = represented(
                z,
                s,
                y,
                w,
                labels=labels,
                confidence_level=confidence_level,
                measure=GDP(bandwidth_s),
                seed=seed,
                groups=codes,
            )
        bar.advance()
        certificate = None if w is not None else certified(asked, s)
        bar.advance()
    if w is not None:
        notes += ("No certificate: its bounds are for rows of equal weight.",)
    return Audit(
        subject="score" if score else "representation",
        n=len(z),
        groups=None if codes is None else int(codes.max()) + 1,
        confidence_level=confidence_level,
        score=_described(z[:, 0], "score") if score else None,
        width=z.shape[1],
        columns=columns,
        attributes=tuple(found[: len(parts)]),
        joint=found[-1] if several else None,
        representation=representation,
        certificate=certificate,
        weighted=w is not None,
        trained_on=trained_on,
        seed=seed,
        version=version("frhsic"),
        claims=claims,
        notes=(*notes, *(() if outcome is None else outcome.notes), *_codes(z, s, outcome)),
    )


# ---- the door --------------------------------------------------------------------------------------------


def _subject(scores: object) -> tuple[Tensor, tuple[str, ...]]:
    z = to_matrix(scores, name="scores", min_rows=MIN_ROWS)
    if (
        z.shape[1] == 2
        and bool(((z >= 0) & (z <= 1)).all())
        and bool(((z.sum(dim=1) - 1).abs() < 1e-6).all())
    ):
        z = z[:, 1:]
        return z, ("Two columns that sum to one are probabilities: the second is the score.",)
    if bool((z == z[0]).all()):
        raise ArgumentError(
            "scores",
            "have more than one value",
            "the same in every row",
            "A constant depends on nothing; pass the scores before they are rounded or thresholded.",
        )
    return z, ()


# ---- what claims rest on -----------------------------------------------------------------------------------


def gather(
    asked: Asked,
    parts: Sequence[Sensitive],
    every: Sensitive | None,
    outcome: _Outcome | None,
    bar: Progress,
    *,
    only_claimed: bool = False,
) -> list[Evidence]:
    """Return what the claims rest on, p-values corrected: attributes, then all of them jointly.

    With ``only_claimed``, places along an attribute only where its test lets them be claimed.
    """
    tests = []
    for s in [*parts, *([] if every is None else [every])]:
        tests.append(Evidence(asked.test(s), within=None if outcome is None else outcome.test(asked, s)))
        bar.advance()
    many = len(parts)
    found = adjust(tests[:many], tests[many] if every is not None else None, asked.shares)
    for j, s in enumerate(parts):
        if not only_claimed or rejects(found[j].test, asked.shares.alpha):
            score = asked.signed(s, asked.shares.where) if asked.z.shape[1] == 1 else None
            found[j] = found[j]._replace(score=score, profile=asked.profile(s, asked.shares.where))
        if outcome is not None:
            found[j] = outcome.places(asked, s, found[j])
    return found


# ---- one attribute ---------------------------------------------------------------------------------------


def _attribute(
    asked: Asked, s: Sensitive, evidence: Evidence, outcome: _Outcome | None, bar: Progress
) -> tuple[Attribute, tuple[str, ...]]:
    one, score = len(s.names) == 1, asked.z.shape[1] == 1
    normalized = asked.interval(s, HSIC(estimator="unbiased", normalized=True))
    bar.advance()
    plain = asked.interval(s, HSIC(estimator="unbiased"))
    bar.advance()
    told = from_rows(asked, s, bar)
    gdp, notes = gdp_or_note(asked, s, f"on {' and '.join(s.names)}") if score else (None, ())
    bar.advance()
    beside = None
    if outcome is not None:
        beside, more = outcome.beside(asked, s, evidence)
        notes += more
    bar.advance()
    return Attribute(
        names=s.names,
        kind=s.kinds[0] if one else "joint",
        test=evidence.test,
        normalized_hsic=normalized,
        hsic=plain,
        distance_correlation=told.distance_correlation,
        kernel_hgr=told.kernel_hgr,
        gdp=gdp,
        curve=None if evidence.score is None else evidence.score.curve,
        profile=evidence.profile,
        outcome=beside,
    ), notes


# ---- beside the outcome ----------------------------------------------------------------------------------


class _Outcome:
    """The outcome as labels, as numbers, or both."""

    def __init__(
        self, y: Tensor, split: tuple[LabelRows, ...], positive: Label | None, notes: tuple[str, ...]
    ) -> None:
        self.y, self.split, self.positive, self.notes = y, split, positive, notes

    @classmethod
    def of(cls, y_true: object, n: int, positive_label: Label | None) -> _Outcome:
        split = split_labels(y_true, name="y_true", n_rows=n, rows_of="scores").kept
        labels = [level.value for level in split]
        if len(split) > max(LABELS, 2) and all(isinstance(label, int | float) for label in labels):
            if positive_label is not None:
                raise ValueError(
                    f"'positive_label' must be None for an outcome that is a number. Got {positive_label!r}. "
                    "Leave it out."
                )
            y = torch.empty(n, dtype=torch.float64)
            for level in split:
                y[level.rows] = float(level.value)
            note = f"The outcome has {len(split):,} values: it is a number, and not split into labels."
            return cls(y, (), None, (note,))
        positive = labels[-1] if positive_label is None else positive_label
        if positive not in labels:
            raise ValueError(
                f"'positive_label' must be a label of 'y_true'. Got {positive_label!r}. "
                f"Take one of {', '.join(repr(label) for label in labels[:LABELS])}."
            )
        y = torch.zeros(n, dtype=torch.float64)
        for code, level in enumerate(split):
            y[level.rows] = float(level.value == positive) if len(split) == 2 else float(code)
        return cls(y, split, positive if len(split) == 2 else None, ())

    def questions(self, z: Tensor) -> int:
        """Return how many questions an audit asks: dependence, within labels, calibration."""
        return 1 + bool(self.split) + self._calibrates(z)

    def _calibrates(self, z: Tensor) -> bool:
        binary = self.positive is not None and bool(((z >= 0) & (z <= 1)).all())
        return z.shape[1] == 1 and (binary or not self.split)

    def missed(self, asked: Asked) -> Asked | None:
        """Return outcome minus score in place of the score, where the score predicts the outcome."""
        return asked.of(self.y[:, None] - asked.z) if self._calibrates(asked.z) else None

    def test(self, asked: Asked, s: Sensitive) -> TestResult | None:
        """Return the test of independence within labels."""
        if not self.split:
            return None
        given = torch.full((len(s),), -1, dtype=torch.int64)
        for code, level in enumerate(self.split):
            given[level.rows] = code
        return asked.test(s, given=given)

    def places(self, asked: Asked, s: Sensitive, evidence: Evidence) -> Evidence:
        """Return the evidence with the mean score within each label of enough rows, and what it misses."""
        labels = {
            cut(level.value): asked.rows(level.rows).signed(s[level.rows], asked.shares.within)
            for level in self.split
            if self._enough(asked, s[level.rows])
        }
        missed = self.missed(asked)
        if missed is None:
            return evidence._replace(labels=labels)
        calibration = signed_about_zero(missed.curve(s, asked.shares.calibration))
        return evidence._replace(labels=labels, calibration=calibration)

    def _enough(self, asked: Asked, part: Sensitive) -> bool:
        varies = all(bool((column != column[0]).any()) for column in part.values.T)
        return len(part) >= MIN_ROWS and varies and asked.z.shape[1] == 1

    def beside(self, asked: Asked, s: Sensitive, evidence: Evidence) -> tuple[Outcome, tuple[str, ...]]:
        """Return the numbers beside the outcome, and notes on those that these rows do not give."""
        name, found = " and ".join(s.names), []
        notes: list[str] = []
        for level in self.split:
            label, part, gdp = cut(level.value), s[level.rows], None
            if self._enough(asked, part):
                of = f"on {name} where the outcome is {label}"
                gdp, more = gdp_or_note(asked.rows(level.rows), part, of)
                notes += more
            curve = evidence.labels.get(label)
            found.append(Given(label, len(level.rows), gdp, None if curve is None else curve.curve))
        gap, missed = None, self.missed(asked)
        if missed is not None:
            gap, more = gdp_or_note(missed, s, f"of outcome minus score on {name}")
            notes += more
        return Outcome(
            equalized_odds=evidence.within,
            labels=tuple(found),
            equal_opportunity=None if self.positive is None else cut(self.positive),
            calibration=None if evidence.calibration is None else evidence.calibration.curve,
            calibration_gap=gap,
        ), tuple(notes)


# ---- description -----------------------------------------------------------------------------------------


def _described(values: Tensor, name: str) -> Column:
    ordered = values.sort().values
    low, high = (float(ordered[round(q * (len(ordered) - 1))]) for q in (0.01, 0.99))
    return Column(
        name=name,
        kind="continuous",
        distinct=int(1 + (ordered[1:] != ordered[:-1]).sum()),
        low=low,
        mean=float(values.mean()),
        high=high,
        unit_interval=bool((ordered[0] >= 0) & (ordered[-1] <= 1)),
    )


def _codes(z: Tensor, s: Sensitive, outcome: _Outcome | None) -> tuple[str, ...]:
    """Return a note on each number in which a code such as -999 may stand for no value."""
    columns = [(z[:, 0], "the score")] if z.shape[1] == 1 else []
    columns += [
        (values, f"column '{name}'")
        for values, name, kind in zip(s.values.T, s.names, s.kinds, strict=True)
        if kind == "continuous"
    ]
    labels = () if outcome is None else outcome.split
    if outcome is not None and not labels:
        columns.append((outcome.y, "the outcome"))
    elif labels and all(isinstance(one.value, int | float) for one in labels):
        y = [torch.full((len(one.rows),), float(one.value), dtype=torch.float64) for one in labels]
        columns.append((torch.cat(y), "the outcome"))
    return tuple(note for values, what in columns if (note := suspicious_codes(values, what)) is not None)


def _column(s: Sensitive) -> Column:
    values, name = s.values[:, 0], s.names[0]
    if s.kinds == ("continuous",):
        return _described(values, name)
    counts = torch.bincount(values.long()).tolist()
    labels = (s.categories or (None,))[0] or tuple(range(len(counts)))
    told = [count >= TELLING for count in counts]
    return Column(
        name=name,
        kind="categorical",
        distinct=sum(count > 0 for count in counts),
        labels=tuple(
            cut(label) if tell else f"(fewer than {TELLING} rows)"
            for label, tell in zip(labels, told, strict=False)
        ),
        counts=tuple(count if tell else 0 for count, tell in zip(counts, told, strict=True)),
    )
