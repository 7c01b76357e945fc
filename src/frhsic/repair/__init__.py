"""Repair of the scores of any model, without retraining, where S is known at prediction."""

from frhsic.repair._model import RepairedModel
from frhsic.repair._model import predict_score as predict_score
from frhsic.repair._repair import ScoreRepair

__all__ = ["RepairedModel", "ScoreRepair"]
