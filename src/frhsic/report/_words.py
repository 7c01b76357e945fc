"""What each number of the report means and does not mean; how numbers are said."""

from __future__ import annotations

import math
from typing import NamedTuple

from frhsic.inference import TestResult

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Meaning(NamedTuple):
    """A number's title, what it means and what it does not; ``{s}`` is the attribute, ``{z}`` the subject."""

    title: str
    means: str
    not_means: str


TEST = Meaning(
    "Test of independence",
    "How often random pairings of {z} and {s} show at least as much dependence as these rows do.",
    "It is not the strength of the dependence, nor the probability that there is none. A large p-value is no "
    "evidence of independence.",
)
GDP = Meaning(
    "Mean gap (GDP)",
    "How far the mean score at a value of {s} lies from the overall mean, on average over the rows.",
    "It sees means only: a score that just spreads more at some values has no gap. It is never negative, so "
    "chance alone makes it positive.",
)
NORMALIZED_HSIC = Meaning(
    "Normalised HSIC",
    "Dependence of any kind, in the mean or not, on a scale from 0 (none) to 1.",
    "It has no unit, and no value of it is small for every purpose. It depends on the kernels, chosen here "
    "by rule. Without dependence it scatters around zero, also below.",
)
HSIC = Meaning(
    "HSIC",
    "The same before it is scaled: the squared distance between the joint distribution of {z} and {s} and "
    "the one they would have if they were independent.",
    "It compares only with values under the same kernels, not with those of other attributes.",
)
DISTANCE_CORRELATION = Meaning(
    "Distance correlation",
    "Dependence of any kind, by distances between rows instead of kernels, from 0 to 1.",
    "It is no share of variance and no correlation along a line. Without dependence it scatters around zero, "
    "also below.",
)
KERNEL_HGR = Meaning(
    "Kernel HGR",
    "The largest correlation between a smooth function of {z} and a smooth function of {s}.",
    "A largest value is large by chance too, the more so on few rows. Other smoothness gives another number.",
)
EQUALIZED_ODDS = Meaning(
    "Test within equal outcomes (equalized odds)",
    "The test of independence among rows of the same outcome: pairs are exchanged only within it.",
    "It takes the outcomes as recorded, though they may depend on {s} themselves. A large p-value is no "
    "evidence of independence.",
)
GIVEN = Meaning(
    "Mean gap where the outcome is {label}",
    "The mean gap among these rows only.",
    "It says nothing about rows of another outcome, nor whether the outcome was recorded alike for all.",
)
CALIBRATION = Meaning(
    "Calibration gap",
    "How far the mean of outcome minus score at a value of {s} lies from its overall mean, on average over "
    "the rows: near zero, the score errs alike everywhere.",
    "A score may err alike everywhere and still depend on {s}, or the reverse. Chance alone "
    "makes it positive.",
)
RECOVERED = Meaning(
    "Can it be read back?",
    "The share of the variance of the attribute that a model predicts from the representation, on rows it "
    "did not learn from (R²; of a category, of its probabilities).",
    "Near or below zero says that these two models did not read it, not that none can.",
)
TRANSFER = Meaning(
    "Fresh heads",
    "New models for the outcome, trained on half of the rows of the representation and judged on the other: "
    "how well they do, and the mean gap of what they predict.",
    "Heads of other kinds, or for another outcome, may show more.",
)

BOUNDS = {
    "population": "HSIC in the population, at any number of rows",
    "population_asymptotic": "HSIC in the population, for many rows",
    "head_gap": "Gap of every head, by the paper's bound",
    "worst_head": "Gap of the worst head, exactly",
    "worst_head_crossfit": "Gap of the worst head on rows it has not seen",
    "khgr": "Kernel HGR, by the paper's bound",
    "conditional_mmd": "Mean squared difference of distributions, at most",
    "conditional_mmd_lower": "Mean squared difference of distributions, at least",
    "train_population": "HSIC in the population, from the training rows",
    "train_test": "HSIC on new rows, from the training rows",
    "train_test_gap": "Gap of every head on new rows, from the training rows",
}
KINDS = {
    "finite-sample": "holds with the stated probability at any number of rows",
    "asymptotic": "holds with nearly the stated probability for many rows",
    "in-sample": "is certain, but about these rows only",
    "estimate": "is an estimate and no bound",
}


def digits(x: float | None) -> str:
    """Return a number with three digits, as one would write it.

    Examples
    --------
    >>> digits(0.06), digits(-1.5e-7), digits(18.0), digits(12345.6)
    ('0.0600', '−1.50×10⁻⁷', '18', '12,346')
    """
    if x is None or not math.isfinite(x):
        return "–" if x is None or math.isnan(x) else f"{x}".replace("-", "−").replace("inf", "∞")
    whole = x == round(x) or abs(x) >= 1_000
    text = f"{x:,.0f}" if whole and abs(x) < 1e9 else f"{x:#.3g}".rstrip(".")
    mantissa, e, exponent = text.partition("e")
    raised = f"×10{str(int(exponent)).translate(_RAISED)}" if e else ""
    return mantissa.replace("-", "−").rstrip(".") + raised


def p_value(test: TestResult) -> tuple[str, str]:
    """Return the p-value in words, and what stands behind it."""
    said = f"p = {test.pvalue:.3g}"
    behind = ""
    if test.n_permutations is not None:
        draws = f"{test.n_permutations:,} {'permutations' if 'permut' in test.method else 'draws'}"
        smallest = test.pvalue <= 1.0 / (test.n_permutations + 1) + 1e-12
        behind = f"the smallest that {draws} can give" if smallest else draws
    if test.adjusted is not None:
        behind += ("; " if behind else "") + (
            f"p = {test.adjusted:.3g} corrected for all tests of this audit"
        )
    return said, behind
