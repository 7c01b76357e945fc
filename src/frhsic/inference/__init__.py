"""Judge: tests, intervals and certificates for the dependence of a score or representation on S."""

from frhsic.inference._certificate import Bound, Certificate, certify
from frhsic.inference._complexity import (
    TrainedOn,
    linear_complexity,
    network_complexity,
    sampled_complexity,
    uniform_bound,
)
from frhsic.inference._curve import conditional_curve, gdp_from_band
from frhsic.inference._equivalence import equivalence_test
from frhsic.inference._intervals import confidence_interval
from frhsic.inference._profile import localized_profile
from frhsic.inference._results import Curve, EquivalenceResult, Interval, Profile, TestResult
from frhsic.inference._tests import holm, independence_test, independence_tests
from frhsic.inference._worst_case import HeadRow, WorstHead, worst_case_head

__all__ = [
    "Bound",
    "Certificate",
    "Curve",
    "EquivalenceResult",
    "HeadRow",
    "Interval",
    "Profile",
    "TestResult",
    "TrainedOn",
    "WorstHead",
    "certify",
    "conditional_curve",
    "confidence_interval",
    "equivalence_test",
    "gdp_from_band",
    "holm",
    "independence_test",
    "independence_tests",
    "linear_complexity",
    "localized_profile",
    "network_complexity",
    "sampled_complexity",
    "uniform_bound",
    "worst_case_head",
]
