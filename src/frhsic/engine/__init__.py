"""Training: networks, losses, minibatches, checkpoints."""

from frhsic.engine.nets import Net, make_net
from frhsic.engine.path import train_path
from frhsic.engine.train import Record, Rows, Trained, Training, TrainingError, train

__all__ = ["Net", "Record", "Rows", "Trained", "Training", "TrainingError", "make_net", "train", "train_path"]
