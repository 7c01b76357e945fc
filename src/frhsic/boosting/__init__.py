"""Boosted trees of LightGBM and XGBoost within a budget or a limit, and their objective alone."""

from frhsic.boosting._models import FRHSICBoostingClassifier, FRHSICBoostingRegressor

__all__ = ["FRHSICBoostingClassifier", "FRHSICBoostingRegressor"]
