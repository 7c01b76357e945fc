"""Training: networks, losses, minibatches, checkpoints."""

from frhsic.engine.global_batch import GlobalBatch
from frhsic.engine.guards import TrainingError
from frhsic.engine.nets import make_net
from frhsic.engine.options import Training

__all__ = ["GlobalBatch", "Training", "TrainingError", "make_net"]
