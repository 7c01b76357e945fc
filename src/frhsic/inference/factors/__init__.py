"""Dependence with factors held equal, proxies, and what carries a gap; public in frhsic.inference."""

from frhsic.inference.factors._carriers import Carriers as Carriers
from frhsic.inference.factors._carriers import carriers as carriers
from frhsic.inference.factors._carriers import read_contributions as read_contributions
from frhsic.inference.factors._columns import Factors as Factors
from frhsic.inference.factors._columns import read_factors as read_factors
from frhsic.inference.factors._conditional import adjusted_curve as adjusted_curve
from frhsic.inference.factors._conditional import (
    conditional_independence_test as conditional_independence_test,
)
from frhsic.inference.factors._conditional import find_residuals as find_residuals
from frhsic.inference.factors._proxies import MOST_ROWS as MOST_ROWS
from frhsic.inference.factors._proxies import Proxies as Proxies
from frhsic.inference.factors._proxies import Proxy as Proxy
from frhsic.inference.factors._proxies import format_pvalue as format_pvalue
from frhsic.inference.factors._proxies import proxies as proxies
from frhsic.inference.factors._results import AdjustedCurve as AdjustedCurve
from frhsic.inference.factors._results import ConditionalTestResult as ConditionalTestResult
