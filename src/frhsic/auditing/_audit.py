"""The audit: every number about the dependence of a score or a representation on S, on one sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

import torch
from torch import Tensor

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
from frhsic.auditing._sketched import audit_sketches
from frhsic.data import Label, Level, Sensitive, levels, to_generator, to_matrix, to_sensitive, to_weights
from frhsic.dependence import HSIC, HSICSketch
from frhsic.engine._progress import Progress
from frhsic.inference import holm
from frhsic.inference._sketched import refuse_beside_a_sketch


def audit(
    scores_or_Z: object,
    *,
    sensitive_features: object = None,
    y_true: object = None,
    sample_weight: object = None,
    kinds: str | Mapping[str, str] | None = None,
    level: float = 0.95,
    bandwidth_s: float = 0.1,
    random_state: object = None,
    trained_on: bool | None = None,
    positive_label: Label | None = None,
) -> Audit:
    """Return every number about the dependence of a score or a representation on sensitive columns.

    Each number is that of the function of :mod:`frhsic.inference` which its type names, called with
    ``random_state=seed``, the seed that the audit carries.

    Parameters
    ----------
    scores_or_Z : array or frame of shape (n,) or (n, d), HSICSketch, or list of HSICSketch
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
    level : float, default=0.95
        Of each interval and band.
    bandwidth_s : float, default=0.1
        Of the smoothing along a continuous s, as a fraction of its range.
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
    sketches = [scores_or_Z] if isinstance(scores_or_Z, HSICSketch) else scores_or_Z
    if isinstance(sketches, list | tuple) and any(isinstance(one, HSICSketch) for one in sketches):
        refuse_beside_a_sketch(
            sensitive_features=sensitive_features, y_true=y_true, sample_weight=sample_weight, kinds=kinds
        )
        return audit_sketches(
            sketches,
            level=level,
            bandwidth_s=bandwidth_s,
            seed=seed,
            trained_on=trained_on,
            positive_label=positive_label,
        )
    z, notes = _subject(scores_or_Z)
    s = to_sensitive(sensitive_features, kinds=kinds, n_rows=len(z), rows_of="scores_or_Z")
    refuse_identifiers(s, len(s))
    w = to_weights(sample_weight, n_rows=len(z), rows_of="scores_or_Z")
    outcome = None if y_true is None else _Outcome.of(y_true, len(z), positive_label)
    if y_true is None and positive_label is not None:
        raise ValueError(
            f"'positive_label' must be None without 'y_true'. Got {positive_label!r}. Pass the outcome too."
        )
    if w is not None and bool((w == w[0]).all()):
        w = None  # equal weights are none
    notes = (*warn_of_training(trained_on), *notes)
    parts = [s.columns([name]) for name in s.names]
    several = len(parts) > 1
    asked = Asked(z, w, level, bandwidth_s, seed)
    with Progress("auditing", 8 * (len(parts) + several) + 2) as bar:
        found = [_attribute(asked, part, outcome, bar) for part in parts]
        adjusted = holm([one.test.pvalue for one in found])
        if several:
            found = [
                replace(one, test=replace(one.test, adjusted=p))
                for one, p in zip(found, adjusted, strict=True)
            ]
        joint = _attribute(asked, s, outcome, bar) if several else None
        representation = None
        if z.shape[1] > 1:
            y, labels = (None, False) if outcome is None else (outcome.y, bool(outcome.split))
            representation = represented(
                z, s, y, w, labels=labels, level=level, bandwidth_s=bandwidth_s, seed=seed
            )
        bar.advance()
        certificate = None if w is not None else certified(asked, s)
        bar.advance()
    if w is not None:
        notes += ("No certificate: its bounds are for rows of equal weight.",)
    return Audit(
        subject="score" if z.shape[1] == 1 else "representation",
        n=len(z),
        level=level,
        score=_described(z[:, 0], "score") if z.shape[1] == 1 else None,
        width=z.shape[1],
        columns=tuple(_column(part) for part in parts),
        attributes=tuple(found),
        joint=joint,
        representation=representation,
        certificate=certificate,
        weighted=w is not None,
        trained_on=trained_on,
        seed=seed,
        version=version("frhsic"),
        notes=(*notes, *(() if outcome is None else outcome.notes)),
    )


# ---- the door --------------------------------------------------------------------------------------------


def _subject(scores_or_Z: object) -> tuple[Tensor, tuple[str, ...]]:
    z = to_matrix(scores_or_Z, name="scores_or_Z", min_rows=MIN_ROWS)
    if (
        z.shape[1] == 2
        and bool(((z >= 0) & (z <= 1)).all())
        and bool(((z.sum(dim=1) - 1).abs() < 1e-6).all())
    ):
        z = z[:, 1:]
        return z, ("Two columns that sum to one are probabilities: the second is the score.",)
    if bool((z == z[0]).all()):
        raise ValueError(
            "'scores_or_Z' must have more than one value. Got the same in every row. "
            "A constant depends on nothing; pass the scores before they are rounded or thresholded."
        )
    return z, ()


# ---- one attribute ---------------------------------------------------------------------------------------


def _attribute(asked: Asked, s: Sensitive, outcome: _Outcome | None, bar: Progress) -> Attribute:
    one, score = len(s.names) == 1, asked.z.shape[1] == 1
    test = asked.test(s)
    bar.advance()
    normalized = asked.interval(s, HSIC(estimator="unbiased", normalized=True))
    bar.advance()
    plain = asked.interval(s, HSIC(estimator="unbiased"))
    bar.advance()
    told = from_rows(asked, s, bar)
    gdp = asked.gdp(s) if score else None
    curve = asked.curve(s) if score and one else None
    bar.advance()
    beside = None if outcome is None else outcome.beside(asked, s)
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
        outcome=beside,
    )


# ---- beside the outcome ----------------------------------------------------------------------------------


class _Outcome:
    """The outcome as labels, as numbers, or both."""

    def __init__(
        self, y: Tensor, split: tuple[Level, ...], positive: Label | None, notes: tuple[str, ...]
    ) -> None:
        self.y, self.split, self.positive, self.notes = y, split, positive, notes

    @classmethod
    def of(cls, y_true: object, n: int, positive_label: Label | None) -> _Outcome:
        split = levels(y_true, name="y_true", n_rows=n, rows_of="scores_or_Z").kept
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

    def beside(self, asked: Asked, s: Sensitive) -> Outcome:
        score, one = asked.z.shape[1] == 1, len(s.names) == 1
        found, given = [], torch.full((len(s),), -1, dtype=torch.int64)
        for code, level in enumerate(self.split):
            given[level.rows] = code
            part = s[level.rows]
            varies = all(bool((column != column[0]).any()) for column in part.values.T)
            enough = len(level.rows) >= MIN_ROWS and varies and score
            found.append(
                Given(
                    label=cut(level.value),
                    n=len(level.rows),
                    gdp=asked.rows(level.rows).gdp(part) if enough else None,
                    curve=asked.rows(level.rows).curve(part) if enough and one else None,
                )
            )
        test = asked.test(s, given=given) if self.split else None
        calibration = gap = None
        binary = self.positive is not None and bool(((asked.z >= 0) & (asked.z <= 1)).all())
        if score and (binary or not self.split):
            residuals = Asked(
                (self.y[:, None] - asked.z), asked.w, asked.level, asked.bandwidth_s, asked.seed
            )
            gap = residuals.gdp(s)
            calibration = residuals.curve(s) if one else None
        return Outcome(
            equalized_odds=test,
            levels=tuple(found),
            equal_opportunity=None if self.positive is None else cut(self.positive),
            calibration=calibration,
            calibration_gap=gap,
        )


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
