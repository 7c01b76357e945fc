"""One fitted estimator for each penalty weight or budget, from one stacked pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

from frhsic.engine.run import own_randomness
from frhsic.estimators._base import BaseModel
from frhsic.estimators._models import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor
from frhsic.estimators.inputs import Inputs, list_settings

Model = TypeVar("Model", FRHSICClassifier, FRHSICRegressor, FRHSICEncoder)


def fit_path(
    estimator: Model,
    X: Any,
    y: Any = None,
    *,
    lams: Sequence[float] | None = None,
    budgets: Sequence[float] | None = None,
    limits: Sequence[Mapping[str, Any]] | None = None,
    sensitive_features: Any = None,
    sample_weight: Any = None,
) -> list[Model]:
    """Return one fitted copy of an estimator for each penalty weight or budget, trained in one stacked pass.

    All copies start from the same weights and see the same batches; each becomes what ``fit`` would have made
    of it with the same ``random_state`` (but for rounding, and for modules that draw random numbers, such as
    dropout). Nine take a third to a half of the time of nine fits.

    Parameters
    ----------
    estimator : FRHSICClassifier, FRHSICRegressor or FRHSICEncoder
        Its ``lam`` and ``budget`` are not read.
    X, y, sensitive_features, sample_weight
        As for ``fit``.
    lams : sequence of float, optional
        Penalty weights; 0 is no penalty.
    budgets : sequence of float, optional
        Shares of the dependence of the unconstrained model, which comes first in what is returned, with ``lam
        = 0``: one model more than budgets. It has the schedule of the others, a falling rate by default.
        Whether a budget was kept is in ``relative_dependence_``; only ``fit`` warns.

    Examples
    --------
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(300, random_state=0)
    >>> models = fit_path(FRHSICClassifier(epochs=2), task.data, task.target, budgets=[0.5, 0.1],
    ...                   sensitive_features=task.sensitive_features)
    >>> [model.budget for model in models]
    [None, 0.5, 0.1]
    """
    if not isinstance(estimator, BaseModel):
        raise TypeError(
            "'estimator' must be a FRHSICClassifier, FRHSICRegressor or FRHSICEncoder. "
            f"Got {type(estimator).__name__}. Fit the earlier steps of a Pipeline first."
        )
    lams, budgets = _to_list(lams, "lams"), _to_list(budgets, "budgets")
    models = [clone(estimator).set_params(**setting) for setting in list_settings(lams, budgets, limits)]
    for model in models:
        model._check_parameters()
    # The most penalised speaks for all where it matters whether there is a penalty at all.
    first = max(models, key=lambda model: (model.lam is None, model.lam or 0.0))
    if estimator.warm_start:
        first.__dict__.update({name: value for name, value in vars(estimator).items() if name.endswith("_")})
    task = first._task(Inputs(X, y, sensitive_features, sample_weight))
    lams, budgets = (None if part is None else list(map(float, part)) for part in (lams, budgets))
    with own_randomness(task.generator, task.device):
        net, scalings = first._start(task)
        options = replace(task.options, lams=lams, budgets=budgets)
        if limits is not None:
            options = task.limit([model._constraint.limit or {} for model in models], scalings)
        path = task.train(net, scalings, options, path=True)
    for model, done in zip(models, path, strict=True):
        model._keep(task, scalings, done)
    return models


def _to_list(values: Any, name: str) -> list[float] | None:
    """Return a list, also of an array; each number is checked where it is set."""
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, str) or any(value is None for value in values):
        raise TypeError(f"'{name}' must be a sequence of numbers. Got {values!r}. Write {name}=[0.5, 0.1].")
    return list(values)
