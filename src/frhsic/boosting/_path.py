"""Trees at several budgets, limits or penalty weights."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from frhsic.boosting._models import FRHSICBoostingClassifier, FRHSICBoostingRegressor
from frhsic.estimators.inputs import list_settings

Trees = FRHSICBoostingClassifier | FRHSICBoostingRegressor


def fit_trees(
    estimator: Trees,
    X: Any,
    y: Any,
    *,
    lams: Sequence[float] | None = None,
    budgets: Sequence[float] | None = None,
    limits: Sequence[Mapping[str, Any]] | None = None,
    sensitive_features: Any = None,
    sample_weight: Any = None,
) -> list[Any]:
    """Return a fitted copy for each setting, as :func:`frhsic.estimators.fit_path`, one after another."""
    settings = list_settings(lams, budgets, limits)
    models: list[Any] = [clone(estimator).set_params(**setting) for setting in settings]
    for model in models:
        model._check_parameters()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # whether it was kept is in the table
        for model in models:
            model.fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)
    return models
