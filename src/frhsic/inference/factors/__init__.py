"""Dependence with factors held equal, and what carries it."""

from frhsic.inference.factors._conditional import adjusted_curve, conditional_independence_test
from frhsic.inference.factors._results import AdjustedCurve as AdjustedCurve
from frhsic.inference.factors._results import ConditionalTestResult as ConditionalTestResult

__all__ = ["adjusted_curve", "conditional_independence_test"]
