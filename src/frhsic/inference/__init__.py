"""Tests, intervals and curves for the dependence of a score or representation on S."""

from frhsic.inference._auc import auc_curve
from frhsic.inference._change_results import CurveChange as CurveChange
from frhsic.inference._change_results import GapChange as GapChange
from frhsic.inference._curve import conditional_curve
from frhsic.inference._curve_change import curve_change
from frhsic.inference._decision_gaps import decision_gaps
from frhsic.inference._equivalence import equivalence_test
from frhsic.inference._gap_change import Ends as Ends
from frhsic.inference._gap_change import difference_of_intervals as difference_of_intervals
from frhsic.inference._gap_change import gap_change
from frhsic.inference._intervals import confidence_interval
from frhsic.inference._profile import localized_profile
from frhsic.inference._regions import region_test

# `as`: for the packages above, not part of the public API.
from frhsic.inference._results import AUCCurve as AUCCurve
from frhsic.inference._results import Curve as Curve
from frhsic.inference._results import DecisionGaps as DecisionGaps
from frhsic.inference._results import EquivalenceResult as EquivalenceResult
from frhsic.inference._results import Interval, TestResult
from frhsic.inference._results import Profile as Profile
from frhsic.inference._results import RegionResult as RegionResult
from frhsic.inference._results import Result as Result
from frhsic.inference._results import frame as frame
from frhsic.inference._results import load_report as load_report
from frhsic.inference._strata import MIN_LABEL_ROWS as MIN_LABEL_ROWS
from frhsic.inference._strata import rows_by_label as rows_by_label
from frhsic.inference._table import keep_tables as keep_tables
from frhsic.inference._tests import holm as holm
from frhsic.inference._tests import independence_test
from frhsic.inference.factors import AdjustedCurve as AdjustedCurve
from frhsic.inference.factors import Carriers as Carriers
from frhsic.inference.factors import ConditionalTestResult as ConditionalTestResult
from frhsic.inference.factors import Factors as Factors
from frhsic.inference.factors import Proxies as Proxies
from frhsic.inference.factors import adjusted_curve, carriers, conditional_independence_test, proxies
from frhsic.inference.factors import read_contributions as read_contributions
from frhsic.inference.factors import read_factors as read_factors

__all__ = [
    "Interval",
    "TestResult",
    "adjusted_curve",
    "auc_curve",
    "carriers",
    "conditional_curve",
    "conditional_independence_test",
    "confidence_interval",
    "curve_change",
    "decision_gaps",
    "equivalence_test",
    "gap_change",
    "independence_test",
    "localized_profile",
    "proxies",
    "region_test",
]
