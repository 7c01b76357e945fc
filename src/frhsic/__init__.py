"""Measure, reduce and certify the dependence of a model on a continuous sensitive attribute.

>>> import torch, frhsic
>>> age = torch.linspace(18, 90, 400, dtype=torch.float64)
>>> score = (age - 54) ** 2                          # a U-shape: correlation sees nothing
>>> round(frhsic.HSIC(normalized=True)(score, age).item(), 2)
0.33
>>> round(frhsic.GDP()(score / score.max(), age).item(), 2)  # mean gap of the score along age
0.26
"""

import logging

from frhsic.auditing import audit
from frhsic.data import Sensitive
from frhsic.dependence import (
    EIPM,
    GDP,
    HSIC,
    Adversary,
    BinnedMMD,
    DistanceCovariance,
    KernelHGR,
    MutualInformation,
)
from frhsic.engine import Training
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, TableEncoder
from frhsic.penalty import Penalty
from frhsic.persistence import load, save
from frhsic.selection import FrontierSearch

__version__ = "0.1.0.dev0"

__all__ = [
    "EIPM",
    "GDP",
    "HSIC",
    "Adversary",
    "BinnedMMD",
    "DistanceCovariance",
    "FRHSICClassifier",
    "FRHSICEncoder",
    "FRHSICRegressor",
    "FrontierSearch",
    "KernelHGR",
    "MutualInformation",
    "Penalty",
    "Sensitive",
    "TableEncoder",
    "Training",
    "audit",
    "load",
    "save",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())
