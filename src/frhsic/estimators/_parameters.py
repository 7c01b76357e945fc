"""Checks of the constructor parameters, made when ``fit`` is called."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.base import is_classifier
from torch import nn

from frhsic._checks import ArgumentError, is_number
from frhsic.engine.nets import check_layers
from frhsic.engine.options import Training, check_whole
from frhsic.engine.rows import MIN_BATCH
from frhsic.estimators.inputs import check_constraint
from frhsic.penalty import Penalty, PenaltySum

if TYPE_CHECKING:
    from frhsic.estimators._base import BaseModel


def check_parameters(model: BaseModel) -> None:
    """Raise an error if a constructor parameter cannot be used."""
    settings = model.lam, model.budget, model.limit
    check_constraint(*settings, scored=hasattr(model, "predict"), probability=is_classifier(model))
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
    if not is_number(model.learning_rate) or not 0 < model.learning_rate < math.inf:
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


def check_partial(model: BaseModel) -> None:
    """Raise an error if a parameter needs all rows at once, which ``partial_fit`` does not have."""
    if model.lam is None:
        must = "be given for partial_fit: budgets and limits are kept on all rows, which it never has"
        raise ArgumentError("lam", must, model._constraint, "Choose lam by a fit on some of the rows.")
    if model.early_stopping:
        must = "be False for partial_fit, which holds out no rows"
        raise ArgumentError("early_stopping", must, True, "Judge the model on other rows between calls.")
