"""Training: networks, losses, minibatches, checkpoints."""

from frhsic.engine.global_batch import GlobalBatch
from frhsic.engine.nets import Net, make_net
from frhsic.engine.path import train_path
from frhsic.engine.train import Passes, Record, Rows, Trained, Training, TrainingError, train

__all__ = [
    "GlobalBatch",
    "Net",
    "Passes",
    "Record",
    "Rows",
    "Trained",
    "Training",
    "TrainingError",
    "make_net",
    "train",
    "train_path",
]
