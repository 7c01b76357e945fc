"""What each number of the report means and does not mean, apart from the measures of the audit."""

from __future__ import annotations

from typing import NamedTuple

from frhsic._text import join_words, shown
from frhsic.auditing import Attribute, Audit, AuditMeasure


class Meaning(NamedTuple):
    """A number's title, what it means and what it does not; ``{s}`` is the attribute, ``{z}`` the subject."""

    title: str
    means: str
    not_means: str

    @classmethod
    def of_measure(cls, measure: AuditMeasure) -> Meaning:
        """Return the meaning of a measure of the audit."""
        return cls(measure.title[:1].upper() + measure.title[1:], measure.means, measure.not_means)

    def fill(self, found: Attribute, audit: Audit, label: str = "") -> Meaning:
        """Return the texts for one attribute, and one label of the outcome."""
        z = f"the {audit.subject}"
        s = join_words([shown(name) for name in found.names], 3)
        return Meaning(*(text.format(s=s, z=z, label=shown(label)) for text in self))


TEST = Meaning(
    "Test of independence",
    "How often random pairings of {z} and {s} show at least as much dependence as these rows do.",
    "It is not the size of the dependence, nor the probability that there is none. A large p-value is no "
    "evidence of independence.",
)
EQUALIZED_ODDS = Meaning(
    "Test within equal outcomes (equalized odds)",
    "The test of independence among rows of the same outcome: pairs are exchanged only within it.",
    "It takes the outcomes as recorded, though they may depend on {s} themselves. A large p-value is no "
    "evidence of independence.",
)
WITHIN_LABEL = Meaning(
    "Mean gap where the outcome is {label}",
    "The mean gap among these rows only.",
    "It says nothing about rows of another outcome, nor whether the outcome was recorded alike for all.",
)
CALIBRATION = Meaning(
    "Calibration gap",
    "How far the mean of outcome minus score at a value of {s} lies from its overall mean, on average over "
    "the rows: near zero, the error of the score is the same everywhere.",
    "A score may have the same error everywhere and still depend on {s}, or the reverse. The gap is positive "
    "under independence too.",
)
DECISION = Meaning(
    "Gap of decisions at {label}",
    "With a decision for every score above this threshold: how far the rate at a value of {s} lies from the "
    "overall rate, on average over the rows. A share of the rows.",
    "It does not say whether the decision is favourable, nor which rate would be right. It is positive under "
    "independence too.",
)
RECOVERY = Meaning(
    "Prediction of the attribute",
    "The share of the variance of the attribute that a model predicts from the representation, on rows it "
    "was not trained on (R²; of a category, of its probabilities).",
    "Near or below zero means that these two models cannot predict it, not that none can.",
)
TRANSFER = Meaning(
    "Fresh heads",
    "New models for the outcome, trained on half of the rows of the representation and judged on the other: "
    "their performance, and the mean gap of their predictions.",
    "Heads of other kinds, or for another outcome, may show more.",
)

BOUNDS = {
    "population": "HSIC in the population, at any number of rows",
    "population_asymptotic": "HSIC in the population, for many rows",
    "head_gap": "Gap of every head, by the paper's bound",
    "worst_head": "Gap of the worst head, exactly",
    "worst_head_crossfit": "Gap of the worst head on rows it was not chosen on",
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
