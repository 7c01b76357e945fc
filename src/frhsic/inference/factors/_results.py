"""Results of questions with factors held equal."""

from __future__ import annotations

from dataclasses import dataclass

from frhsic._text import join_words, number, percent
from frhsic.inference._results import Interval, Result

# Estimates of n times error times error are up to three times what it is; up to 0.1 of that the level held in
# all simulations.
ENOUGH = 0.5


@dataclass(frozen=True)
class ConditionalTestResult(Result):
    """A test whose null hypothesis is that the score and s are independent given the factors.

    Attributes
    ----------
    pvalue : float
        Small when so much is seldom left under conditional independence.
    statistic : float
        The largest mean product of residuals over its standard error.
    attributes, factors : tuple of str
    explained_score, explained_sensitive : float
        The share of the variance of the score, and of the ranks of s (the greatest of several columns), that
        the factors explain on rows that took no part.
    learners : tuple of str
        The best for the score and for s.
    other_pvalue : float
        That of the second best learners.
    error : float
        n times the mean squared errors of both regressions, each over the variance left, as far as these rows
        can tell. The level needs it to be small.
    n : int
        Independent units: rows, or groups.
    notes : tuple of str
    """

    pvalue: float
    statistic: float
    attributes: tuple[str, ...]
    factors: tuple[str, ...]
    explained_score: float
    explained_sensitive: float
    learners: tuple[str, str]
    other_pvalue: float
    error: float
    n: int
    notes: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What speaks against the level on these rows."""
        found = []
        if self.error > ENOUGH:
            found.append(
                f"The regressions on the factors may be too rough for the level: n x error x error is about "
                f"{number(self.error)}, where the level held in simulations up to {ENOUGH:g}."
            )
        if (self.pvalue <= 0.05) != (self.other_pvalue <= 0.05):
            found.append(f"Learners disagree: with the second best p = {number(self.other_pvalue)}.")
        return tuple(found)

    def __str__(self) -> str:
        s, factors = join_words(self.attributes), join_words(self.factors)
        text = (
            f"Dependence on {s} given {factors}: p = {number(self.pvalue)} by products of residuals (level "
            f"for large n, n = {self.n:,}). The factors explain {percent(max(self.explained_score, 0.0))} of "
            f"the score ({self.learners[0]}) and {percent(max(self.explained_sensitive, 0.0))} of {s} "
            f"({self.learners[1]}) on rows that took no part."
        )
        if self.pvalue > 0.05:
            text += " Not rejected at 5 %, which is no evidence of independence."
        always = "No valid test sees every dependence, and the level rests on these regressions being good."
        return " ".join((text, always, *self.warnings, *self.notes))


@dataclass(frozen=True)
class AdjustedCurve(Result):
    """The score along s with the factors held equal: h(s) in score = m(factors) + h(s) + error.

    Attributes
    ----------
    points : tuple of float
        Values of s (codes of a categorical column).
    mean, low, high : tuple of float
        h, of mean zero, and its band for the whole curve.
    unadjusted : tuple of float
        The same curve without factors.
    mass : tuple of float
        The share of rows that each point stands for.
    gap, unadjusted_gap : Interval
        E|h(S)|, in the unit of the score.
    test : ConditionalTestResult
        Whether anything is left, of any form.
    confidence_level : float
    factors, attributes : tuple of str
    n : int
    target : str
    notes : tuple of str
    counts : tuple of int
        The rows that each point stands for.
    """

    _columns = ("points", "mean", "low", "high", "unadjusted", "mass")

    points: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    unadjusted: tuple[float, ...]
    mass: tuple[float, ...]
    gap: Interval
    unadjusted_gap: Interval
    test: ConditionalTestResult
    confidence_level: float
    factors: tuple[str, ...]
    attributes: tuple[str, ...]
    n: int
    target: str
    notes: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def shows_interaction(self) -> bool:
        """Whether something is left that the curve does not show."""
        return self.test.pvalue <= 0.05 and self.gap.low == 0.0

    def __str__(self) -> str:
        level, gap = percent(self.confidence_level), self.gap
        text = (
            f"The mean score differs by {number(self.unadjusted_gap.estimate)} along {self.attributes[0]} on "
            f"average; {number(gap.estimate)} at equal {join_words(self.factors)} ({level} interval "
            f"[{number(gap.low)}, {number(gap.high)}], n = {self.n:,}). Target: {self.target}. Not a causal "
            f"effect unless nothing else moves both the score and {self.attributes[0]}."
        )
        if self.shows_interaction:
            text += (
                f" The test finds a dependence (p = {number(self.test.pvalue)}) that this curve does not "
                "show: it may differ with the factors, or be one of the spread."
            )
        return " ".join((text, *self.test.warnings, *self.notes))
