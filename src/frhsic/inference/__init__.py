"""Judge: tests, intervals and certificates for the dependence of a score or representation on S."""

from frhsic.inference._curve import conditional_curve, gdp_from_band
from frhsic.inference._equivalence import equivalence_test
from frhsic.inference._intervals import confidence_interval
from frhsic.inference._profile import localized_profile
from frhsic.inference._results import Curve, EquivalenceResult, Interval, Profile, TestResult
from frhsic.inference._tests import holm, independence_test, independence_tests

__all__ = [
    "Curve",
    "EquivalenceResult",
    "Interval",
    "Profile",
    "TestResult",
    "conditional_curve",
    "confidence_interval",
    "equivalence_test",
    "gdp_from_band",
    "holm",
    "independence_test",
    "independence_tests",
    "localized_profile",
]
