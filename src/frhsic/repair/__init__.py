"""Repair of the scores of any model, without retraining, where S is known at prediction."""

from frhsic.repair._repair import ScoreRepair

__all__ = ["ScoreRepair"]
