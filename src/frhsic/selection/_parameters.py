"""Checks of the parameters of a search, made when ``fit`` is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.base import is_classifier
from sklearn.metrics import check_scoring

from frhsic._checks import ArgumentError
from frhsic.boosting import FRHSICBoostingClassifier, FRHSICBoostingRegressor
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor
from frhsic.inference import EquivalenceResult, TestResult
from frhsic.selection._judging import LEVEL
from frhsic.selection._pipelines import last_step
from frhsic.selection._point import Point

if TYPE_CHECKING:
    from frhsic.selection._search import FrontierSearch

TREES = (FRHSICBoostingClassifier, FRHSICBoostingRegressor)
GRIDS = {"budgets": "budget", "limits": "limit", "lams": "weight"}  # of which one is given, or none


def check_parameters(search: FrontierSearch) -> None:
    """Raise an error if a parameter of the search cannot be used."""
    for last in map(last_step, search._members or [None]):
        if not isinstance(last, (FRHSICClassifier, FRHSICRegressor, FRHSICEncoder, *TREES)):
            raise TypeError(
                "'estimator' must be an FRHSIC classifier, regressor or encoder (a network or trees), or "
                f"a Pipeline that ends in one. Got {type(last).__name__}. Put one of them last."
            )
        if is_classifier(last) != is_classifier(search._last) or (
            isinstance(last, FRHSICEncoder) != isinstance(search._last, FRHSICEncoder)
        ):
            must = "be a list of classifiers, of regressors or of encoders"
            raise ArgumentError("estimator", must, "both", "Make one frontier for each.")
        if isinstance(last, TREES) and search.on == "representation":
            must = "be 'prediction' for trees, which have no representation"
            raise ArgumentError("on", must, repr(search.on), "Leave it out.")
    check_scoring(search._last, search.scoring)
    given = [name for name in GRIDS if getattr(search, name) is not None]
    if len(given) > 1:
        fix = "Leave one of them out: budgets are shares of the unconstrained dependence, limits have "
        fix += "the unit of the score, lams have none."
        raise ArgumentError(given[0], f"be None where '{given[1]}' is given", "both", fix)
    for name in given:
        if not len(getattr(search, name)):
            raise ArgumentError(name, f"hold at least one {GRIDS[name]}", "none", "Leave it out.")
    if search.on not in (None, "prediction", "representation"):
        must = "be 'prediction', 'representation' or None"
        raise ArgumentError("on", must, repr(search.on), "Leave it out.")
    if search._on == "prediction" and isinstance(search._last, FRHSICEncoder):
        must = "be 'representation' for an encoder, which predicts nothing"
        raise ArgumentError("on", must, "'prediction'", "Leave it out.")
    if search.repair and (search.lams is not None or isinstance(search._last, FRHSICEncoder)):
        must, fix = "be False with 'lams' or an encoder", "Pass budgets or limits, of a prediction."
        raise ArgumentError("repair", must, repr(search.repair), fix)
    if search.repair and search._on == "representation":
        must = "be False where the representation is judged: repair leaves it as it is"
        raise ArgumentError("repair", must, repr(search.repair), "Leave 'on' out.")
    if search.tolerance is not None and not 0 < search.tolerance < float("inf"):
        fix = "Say how much dependence is too little to matter."
        raise ArgumentError("tolerance", "be a positive number or None", repr(search.tolerance), fix)


def try_rule(search: FrontierSearch) -> None:
    """Call the rule on made-up points, so that it fails before training and not after."""
    given: dict[str, Any] = {"lower": 0.0, "upper": 0.2}
    if search.test:
        given["test"] = TestResult(0.1, 0.5, "permutation", "HSIC", ("s",), 100, True)
    if search.tolerance is not None:
        given["equivalence"] = EquivalenceResult(
            0.1, search.tolerance, 0.5, 0.2, 1.0 - LEVEL, "GDP", "", "normal", ("s",), 100
        )
    if search.limits is not None:
        given["missed"] = False
    search._rule([Point(float(i), 0.8 - 0.01 * i, 0.1 / (1 + i), **given) for i in range(3)])
