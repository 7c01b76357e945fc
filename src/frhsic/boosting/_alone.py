"""The objective alone, for people who call ``lightgbm.train`` or ``xgboost.train`` themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic.boosting._objective import Loss
from frhsic.boosting._training import Parts, make_objective, read_penalty
from frhsic.data import check_aligned, to_matrix, to_vector, to_weights
from frhsic.engine.rows import Rows
from frhsic.estimators.inputs import Constraint, check_constraint, read_sensitive
from frhsic.penalty import Penalty, PenaltySum

Floats: TypeAlias = NDArray[np.float64]
Custom: TypeAlias = Callable[[Floats, Any], tuple[Floats, Floats]]


def lightgbm_objective(
    y: Any,
    sensitive_features: Any,
    *,
    plain: Any,
    budget: float | None = None,
    lam: float | None = None,
    limit: Mapping[str, float | Mapping[float, float]] | None = None,
    penalty: Penalty | PenaltySum | None = None,
    learning_rate: float = 0.1,
    sample_weight: Any = None,
    task: Literal["classification", "regression"] = "classification",
) -> Custom:
    """Return an objective for ``lightgbm.train({"objective": ...})``: the loss plus a multiple of HSIC.

    It is a function with a memory: the multiple moves in every round until the budget or the limit is kept
    on the training rows. Make a new one for each training, of rows in the order of its ``Dataset``.

    Parameters
    ----------
    y : array of shape (n,)
        Classes as the codes 0, 1, ..., or numbers.
    sensitive_features : array or frame of shape (n,) or (n, q)
    plain : array of shape (n,) or (n, k)
        Raw scores (``raw_score=True``) of a model without a penalty on the same rows: what a budget is a
        share of, and what bandwidths are taken from. k columns are k classes.
    budget, lam, limit, penalty
        As for :class:`FRHSICBoostingClassifier`.
    learning_rate : float, default=0.1
        That of the training.
    sample_weight : array of shape (n,), optional
        In the loss and in the penalty. LightGBM ignores weights of a ``Dataset`` here.
    task : {"classification", "regression"}, default="classification"

    Returns
    -------
    callable
        Of raw scores and a ``Dataset``; it returns the gradient and the Hessian.

    Notes
    -----
    A booster trained so predicts raw scores, and begins at zero instead of the average: pass ``init_score``
    to the ``Dataset`` for that, and add it to predictions, which leave it out.

    Examples
    --------
    >>> import lightgbm as lgb
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(500, random_state=0)
    >>> rows = lgb.Dataset(task.data, task.target, free_raw_data=False)
    >>> plain = lgb.train({"objective": "binary", "verbosity": -1}, rows, 50)
    >>> plain = plain.predict(task.data, raw_score=True)
    >>> objective = lightgbm_objective(task.target, task.sensitive_features, plain=plain, budget=0.1)
    >>> booster = lgb.train({"objective": objective, "verbosity": -1}, rows, 50)
    >>> booster.num_trees()
    50
    """
    check_constraint(lam, budget, limit, probability=task == "classification")
    constraint = Constraint.of(lam, budget, limit)
    check_aligned(y=y, sensitive_features=sensitive_features, plain=plain, sample_weight=sample_weight)
    raw = to_matrix(plain, name="plain").numpy()
    rows = _read_rows(y, sensitive_features, sample_weight, constraint, task, len(raw))
    outputs = raw.shape[1]
    classes = 0 if task == "regression" else max(outputs, 2)
    if classes and not bool(((rows.y == rows.y.round()) & (rows.y >= 0) & (rows.y < classes)).all()):
        must = f"hold the codes 0 to {classes - 1} for {outputs} column(s) of 'plain'"
        raise ArgumentError("y", must, "others", "Number the classes, or pass task='regression'.")
    if not constraint.penalised:
        raise ArgumentError("lam", "be positive", repr(lam), "Take the objective of the library.")
    names = np.arange(classes) if classes else None
    chosen = read_penalty(penalty, names, constraint)
    loss = Loss.of(rows, classes)
    made, _ = make_objective(loss, Parts(rows, None), chosen, constraint, learning_rate, loss.read(raw))

    def objective(predicted: Floats, _: Any) -> tuple[Floats, Floats]:
        # A closure: LightGBM copies its parameters deeply, and an object would forget.
        both = made.step(loss.read(np.asarray(predicted, dtype=np.float64).reshape(-1, outputs)))
        gradient, hessian = (one.double().numpy().reshape(predicted.shape) for one in both)
        return gradient, hessian

    return objective


def _read_rows(y: Any, s: Any, weights: Any, constraint: Constraint, task: str, n: int) -> Rows:
    """Return the rows of the objective; all stay, those of weight zero too, since the library has them."""
    if task not in ("classification", "regression"):
        raise ArgumentError("task", "be 'classification' or 'regression'", repr(task), "Leave it out.")
    vector = to_vector(y, n_rows=n, name="y")
    read = read_sensitive(s, n, constraint, later=False)
    w = to_weights(weights, n_rows=n)
    labels = vector.long() if task == "classification" else None
    return Rows(torch.arange(n, dtype=torch.float64)[:, None], vector, read, w, w, labels)


def xgboost_objective(
    y: Any,
    sensitive_features: Any,
    *,
    plain: Any,
    budget: float | None = None,
    lam: float | None = None,
    limit: Mapping[str, float | Mapping[float, float]] | None = None,
    penalty: Penalty | PenaltySum | None = None,
    learning_rate: float = 0.3,
    sample_weight: Any = None,
    task: Literal["classification", "regression"] = "classification",
) -> Custom:
    """Return an objective for ``xgboost.train(..., obj=...)``: the loss plus a multiple of HSIC.

    As :func:`lightgbm_objective` in all else.

    Parameters
    ----------
    y, sensitive_features, plain, budget, lam, limit, penalty, sample_weight, task
        As for :func:`lightgbm_objective`; raw scores are those of ``output_margin=True``.
    learning_rate : float, default=0.3
        That of the training; XGBoost takes 0.3 unless told.

    Returns
    -------
    callable
        Of raw scores and a ``DMatrix``; it returns the gradient and the Hessian.

    Examples
    --------
    >>> import xgboost as xgb
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(500, random_state=0)
    >>> rows = xgb.DMatrix(task.data, task.target)
    >>> plain = xgb.train({"objective": "binary:logistic"}, rows, 50).predict(rows, output_margin=True)
    >>> objective = xgboost_objective(task.target, task.sensitive_features, plain=plain, budget=0.1)
    >>> xgb.train({"base_score": 0.5}, rows, 50, obj=objective).num_boosted_rounds()
    50
    """
    return lightgbm_objective(
        y,
        sensitive_features,
        plain=plain,
        budget=budget,
        lam=lam,
        limit=limit,
        penalty=penalty,
        learning_rate=learning_rate,
        sample_weight=sample_weight,
        task=task,
    )
