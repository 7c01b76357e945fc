"""Boosted trees of LightGBM and XGBoost within a budget or a limit, and their objective alone."""

from frhsic.boosting._alone import lightgbm_objective, xgboost_objective
from frhsic.boosting._models import FRHSICBoostingClassifier, FRHSICBoostingRegressor
from frhsic.boosting._path import fit_trees as fit_trees

__all__ = [
    "FRHSICBoostingClassifier",
    "FRHSICBoostingRegressor",
    "lightgbm_objective",
    "xgboost_objective",
]
