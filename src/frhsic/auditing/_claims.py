"""What an audit claims about the population, and how often any of it is wrong: in at most alpha of samples.

A claim says that the score depends on an attribute, or where along the attribute its mean is above or below
the overall mean, or where its distribution differs. Numbers and their intervals are no claims. With
alpha = 1 - confidence level for the whole audit, Q questions (dependence; dependence within equal outcomes;
calibration) and m attributes, each question has a = alpha / Q, and each attribute of it a / m:

- *Gate.* With several attributes, p_gate = min(5 p_joint, 5/4 m min_j p_j). Dependence on the attributes
  together is claimed if p_gate <= a.
- *Attributes.* Dependence on attribute j is claimed if p_gate <= a and m p_j <= a.
- *Where.* Places along attribute j are claimed only if dependence on it is. Their bands and limits hold
  together with confidence 1 - a / m: that of the mean and that of the distribution at 1 - a / (2 m) each,
  those within K labels of the outcome at 1 - a / (K m) each.
- *Calibration* has no test before it: its band alone holds with confidence 1 - a / m.

Proof that some claim is false with probability at most alpha, whichever attributes are independent of the
score. It suffices that each question errs with probability at most a. If the score is independent of all
attributes jointly, every claim needs the gate, and P(p_gate <= a) <= a/5 + m (4/5) a/m = a. Otherwise the
joint claim is true. An attribute on which the score does not depend yields a false claim only if m p_j <= a,
with probability at most a / m. One on which it does depend yields a false claim only if one of its bands or
limits fails, with probability at most a / m. For each attribute only one of the two can happen: the sum is at
most a. No independence between tests is needed. The tests are exact or hold for many rows, as each of them
says; bands hold for many rows. Signs are those of means at single values or within ranges of an attribute
(``Curve.mean_low`` and ``mean_high``), which need no assumption on the curve.

Why a fifth of the error for the joint test in the gate: docs/howto/audit.md.

*Signs.* A band is for the mean at a place, m(a), but "above the overall mean" is about m(a) - mu, and the
overall mean has an error of its own. With pi_a the share of the rows at a, and independent rows,

    Var(m^(a) - f_) = (1 - 2 pi_a) Var(m^(a)) + Var(f_)        where m(a) = mu,

so a sign is claimed where the mean of a value or range is farther from the overall mean than
sqrt((1 - 2 pi_a)_+ half_a^2 + (k se(f_))^2), k the normal quantile for all points at once. For the means of
categories, whose errors are independent, the quantile of the band is Sidak's, which holds for any dependence
between normal variables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError, check_confidence_level
from frhsic.auditing._parts import Claim, Column, Question, Says
from frhsic.auditing._privacy import shown_points
from frhsic.inference import Curve, Profile, TestResult

# Draws beyond the quantile of a band: fewer make the quantile itself a matter of chance.
_BEYOND = 20
# The part of the error that the joint test has in the gate.
_JOINT = 0.2
_MOST_CONFIDENT = 0.9999  # 40,000 permutations of each question


class Shares(NamedTuple):
    """How the error of an audit is shared among what it claims."""

    alpha: float
    attributes: int
    questions: int = 1
    labels: int = 1  # of the outcome
    kinds: int = 2  # of places along an attribute: mean and distribution of a score; only the latter of Z

    @property
    def tests(self) -> int:
        """What the p-value of one attribute is multiplied by."""
        return self.questions * self.attributes

    @property
    def where(self) -> float:
        """The confidence of the curve and of the profile along one attribute."""
        return 1.0 - self.alpha / (self.tests * self.kinds)

    @property
    def within(self) -> float:
        """The confidence of the curve along one attribute within one label of the outcome."""
        return 1.0 - self.alpha / (self.tests * self.labels)

    @property
    def calibration(self) -> float:
        """The confidence of the curve of outcome minus score along one attribute."""
        return 1.0 - self.alpha / self.tests

    @property
    def n_permutations(self) -> int:
        """Permutations of a test: more than let its smallest p-value pass the gate alone."""
        return max(999, math.ceil(4.0 * self.tests / self.alpha) - 1)


def check_confidence(confidence_level: float) -> None:
    """Raise ArgumentError unless so many permutations as a confidence level needs can be made."""
    check_confidence_level(confidence_level)
    if confidence_level > _MOST_CONFIDENT:
        must = f"be at most {_MOST_CONFIDENT} in an audit, whose permutations are several over the error"
        raise ArgumentError("confidence_level", must, repr(confidence_level), "Take 0.99.")


def draws_for(confidence_level: float) -> int:
    """Return how many multiplier draws a band of that confidence needs."""
    return max(999, math.ceil(_BEYOND / (1.0 - confidence_level)))


def permutations_for(confidence_level: float) -> int:
    """Return how many permutations a limit of that confidence needs: the rows themselves are one more."""
    return max(199, math.ceil(1.0 / (1.0 - confidence_level)))


class SignedCurve(NamedTuple):
    """A curve, and the points at which it is shown to be above or below."""

    curve: Curve
    above: tuple[int, ...]
    below: tuple[int, ...]


def find_signs(curve: Curve, error: float, *, nested: bool = True) -> SignedCurve:
    """Return where a curve is shown to differ from the overall mean, whose standard error is ``error``.

    Not ``nested``, rows of one group lie at several places along s: the error of the mean at a place and that
    of the overall mean may then be related in any way, and are added.
    """
    from scipy.special import ndtri

    k = float(ndtri(1.0 - (1.0 - curve.confidence_level) / (2.0 * len(curve.points)))) * error
    reach = [
        math.sqrt(max(0.0, 1.0 - 2.0 * share) * half**2 + k**2) if nested else half + k
        for share, half in zip(curve.mass, _halves(curve), strict=True)
    ]
    return _compare(curve, curve.overall, reach)


def find_signs_about_zero(curve: Curve) -> SignedCurve:
    """Return where a curve is shown to be above or below zero."""
    return _compare(curve, 0.0, _halves(curve))


def _halves(curve: Curve) -> list[float]:
    low, high = curve.mean_low or curve.low, curve.mean_high or curve.high
    return [0.5 * (above - below) for below, above in zip(low, high, strict=True)]


def _compare(curve: Curve, line: float, reach: Sequence[float]) -> SignedCurve:
    gaps = [mean - line for mean in curve.mean]
    rows = list(enumerate(zip(gaps, reach, strict=True)))
    return SignedCurve(
        curve,
        above=tuple(i for i, (gap, far) in rows if gap > far),
        below=tuple(i for i, (gap, far) in rows if -gap > far),
    )


def error_of_mean(f: Tensor, w: Tensor | None, groups: Tensor | None) -> float:
    """Return the standard error of the (weighted) mean of f ``(n,)``; groups of rows are independent."""
    w = torch.full_like(f, 1.0 / len(f)) if w is None else w / w.sum()
    parts = w * (f - w @ f)
    if groups is not None:
        parts = parts.new_zeros(int(groups.max()) + 1).index_add(0, groups, parts)
    m = int((parts != 0).sum())
    return math.sqrt(float(parts.square().sum()) * m / max(m - 1, 1))


class Evidence(NamedTuple):
    """What the claims about one attribute, or about all jointly, rest on."""

    test: TestResult
    score: SignedCurve | None = None
    profile: Profile | None = None
    within: TestResult | None = None
    labels: Mapping[str, SignedCurve] = {}
    calibration: SignedCurve | None = None


def adjust(found: Sequence[Evidence], joint: Evidence | None, shares: Shares) -> list[Evidence]:
    """Return the evidence with p-values to be compared with alpha; that of all jointly last, if there is."""
    if shares.tests == 1:
        return list(found)
    every = [*found, *(() if joint is None else (joint,))]
    for name in ("test", "within"):
        tests = [getattr(one, name) for one in every]
        if any(test is None for test in tests):
            continue
        values = [test.pvalue for test in tests]
        together = values.pop() if joint is not None else None
        corrected = adjust_pvalues(values, together, shares.questions)
        every = [
            one._replace(**{name: replace(test, adjusted=p)})
            for one, test, p in zip(every, tests, corrected, strict=True)
        ]
    return every


def adjust_pvalues(pvalues: Sequence[float], joint: float | None, questions: int = 1) -> list[float]:
    """Return p-values of attributes, and of all jointly if there is one, to be compared with alpha.

    Examples
    --------
    >>> [round(p, 3) for p in adjust_pvalues([0.004, 0.012, 0.3], 0.02)]
    [0.015, 0.036, 0.9, 0.015]
    """
    m = len(pvalues)
    gate = 0.0 if joint is None else min(joint / _JOINT, m * min(pvalues) / (1.0 - _JOINT))
    values = [questions * max(gate, m * p) for p in pvalues]
    return [min(1.0, p) for p in (*values, *(() if joint is None else (questions * gate,)))]


def make_claims(
    found: Sequence[Evidence], joint: Evidence | None, columns: Sequence[Column], alpha: float
) -> tuple[Claim, ...]:
    """Return what is claimed: dependence where its test rejects, and places only after that."""
    claims = []
    for one, column in zip(found, columns, strict=True):
        names = (column.name,)
        if rejects(one.test, alpha):
            claims.append(Claim("dependence", "depends", names))
            if one.score is not None:
                claims += _signs("dependence", one.score, column)
            if one.profile is not None:
                visible = set(column.visible(one.profile.points))
                above = one.profile.above
                points = tuple(at for i, at in enumerate(one.profile.points) if i in visible and at in above)
                claims += [Claim("dependence", "differs", names, None, points)] if points else []
        if one.within is not None and rejects(one.within, alpha):
            claims.append(Claim("within outcomes", "depends", names))
            for label, curve in one.labels.items():
                claims += _signs("within outcomes", curve, column, label)
        if one.calibration is not None:
            claims += _signs("calibration", one.calibration, column)
    if joint is not None:
        together = tuple(column.name for column in columns)
        if rejects(joint.test, alpha):
            claims.append(Claim("dependence", "depends", together))
        if joint.within is not None and rejects(joint.within, alpha):
            claims.append(Claim("within outcomes", "depends", together))
    return tuple(claims)


def rejects(test: TestResult, alpha: float) -> bool:
    """Return whether a test rejects at alpha; 1 - 0.9 is a little less than 0.1."""
    return test.reported <= alpha + 1e-12


def _signs(question: Question, found: SignedCurve, column: Column, label: str | None = None) -> list[Claim]:
    visible, points = set(shown_points(found.curve, column)), found.curve.points
    sides: tuple[tuple[Says, tuple[int, ...]], ...] = (("above", found.above), ("below", found.below))
    return [
        Claim(question, says, (column.name,), label, tuple(points[i] for i in rows if i in visible))
        for says, rows in sides
        if not visible.isdisjoint(rows)
    ]
