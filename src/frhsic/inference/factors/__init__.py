"""Dependence with factors held equal, and what carries it."""

from frhsic.inference.factors._carriers import Carriers as Carriers
from frhsic.inference.factors._carriers import carriers
from frhsic.inference.factors._carriers import read_contributions as read_contributions
from frhsic.inference.factors._columns import Factors as Factors
from frhsic.inference.factors._columns import read_factors as read_factors
from frhsic.inference.factors._conditional import adjusted_curve, conditional_independence_test
from frhsic.inference.factors._results import AdjustedCurve as AdjustedCurve
from frhsic.inference.factors._results import ConditionalTestResult as ConditionalTestResult

__all__ = ["adjusted_curve", "carriers", "conditional_independence_test"]
