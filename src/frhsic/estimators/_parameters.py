"""Checks of the constructor parameters, made when ``fit`` is called."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from frhsic._checks import ArgumentError
from frhsic.engine.limits import read_limit
from frhsic.engine.nets import check_layers
from frhsic.engine.options import Training, check_whole
from frhsic.engine.rows import MIN_BATCH
from frhsic.penalty import Penalty, PenaltySum

if TYPE_CHECKING:
    from frhsic.estimators._base import BaseModel


def check_parameters(model: BaseModel) -> None:
    """Raise an error if a constructor parameter cannot be used."""
    _check_constraint(model)
    for name, kinds, fix in (
        ("penalty", (Penalty, PenaltySum), "Wrap a measure: Penalty(HSIC())."),
        ("training", (Training,), "Write training=Training(clip=1.0)."),
    ):
        value = getattr(model, name)
        if value is not None and not isinstance(value, kinds):
            kind = kinds[0].__name__
            raise TypeError(f"'{name}' must be a {kind} or None. Got {type(value).__name__}. {fix}")
    check_whole("epochs", model.epochs, 200)
    check_whole("batch_size", model.batch_size, 256)
    if model._constraint.penalised and model.batch_size < MIN_BATCH:
        must = f"be at least {MIN_BATCH} with a penalty"
        raise ArgumentError("batch_size", must, model.batch_size, "Try 256.")
    if not _is_number(model.learning_rate) or not 0 < model.learning_rate < math.inf:
        raise ArgumentError("learning_rate", "be a positive number", repr(model.learning_rate), "Try 1e-3.")
    for name in ("early_stopping", "warm_start"):
        flag = getattr(model, name)
        if not isinstance(flag, (bool, np.bool_)):
            raise ArgumentError(name, "be True or False", repr(flag), "Pass a boolean.")
    if not isinstance(model.encoder, nn.Module):
        check_layers(model.encoder, "encoder", empty=False)
    if torch.device(model.device).type == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("device", "be there", "'cuda' where PyTorch finds none", "Use device='cpu'.")
    has_file = model.training is not None and model.training.checkpoint is not None
    if has_file and not isinstance(model.random_state, numbers.Integral):
        must = "be an integer with Training(checkpoint=...), or no call could go on"
        raise ArgumentError("random_state", must, type(model.random_state).__name__, "Pass random_state=0.")


def _check_constraint(model: BaseModel) -> None:
    lam, budget = model.lam, model.budget
    if budget is not None and lam is not None:
        got = f"budget={budget!r} and lam={lam!r}"
        raise ArgumentError("budget", "be None where 'lam' is given", got, "Leave one of them out.")
    if model.limit is not None:
        if budget is not None or lam is not None:
            got = f"limit={model.limit!r}, budget={budget!r} and lam={lam!r}"
            must = "be None where 'lam' or 'budget' is given"
            raise ArgumentError("limit", must, got, "Leave all but one of them out.")
        if not hasattr(model, "predict"):
            must = "be None for a model without a score"
            raise ArgumentError("limit", must, repr(model.limit), "Pass a budget.")
        read_limit(model.limit)
    if lam is not None and (not _is_number(lam) or not 0 <= lam < math.inf):
        fix = "Pass 0 to train without a penalty."
        raise ArgumentError("lam", "be a non-negative number", repr(lam), fix)
    if budget is not None and (not _is_number(budget) or not 0 < budget <= 1):
        must = "lie above 0 and be at most 1: a share of the dependence of the unconstrained model"
        raise ArgumentError("budget", must, repr(budget), "Try 0.1, or lam=0 to train without a penalty.")


def check_partial(model: BaseModel) -> None:
    """Raise an error if a parameter needs all rows at once, which ``partial_fit`` does not have."""
    if model.lam is None:
        must = "be given for partial_fit: budgets and limits are kept on all rows, which it never has"
        raise ArgumentError("lam", must, model._constraint, "Choose lam by a fit on some of the rows.")
    if model.early_stopping:
        must = "be False for partial_fit, which holds out no rows"
        raise ArgumentError("early_stopping", must, True, "Judge the model on other rows between calls.")


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
