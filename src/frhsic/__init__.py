"""Measure, reduce and certify the dependence of a model on a continuous sensitive attribute.

>>> import torch, frhsic
>>> age = torch.linspace(18, 90, 400, dtype=torch.float64)
>>> score = (age - 54) ** 2                          # a U-shape: correlation sees nothing
>>> round(frhsic.HSIC(normalized=True)(score, age).item(), 2)
0.33
>>> round(frhsic.GDP()(score / score.max(), age).item(), 2)  # mean gap of the score along age
0.26
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

if (
    TYPE_CHECKING
):  # what type checkers and editors read; at run time each name is imported when it is first used
    from frhsic.auditing import audit
    from frhsic.data import Sensitive
    from frhsic.dependence import EIPM, GDP, HSIC, DistanceCovariance, KernelHGR, MutualInformation
    from frhsic.engine import Training
    from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, TableEncoder
    from frhsic.penalty import Penalty
    from frhsic.persistence import load, save
    from frhsic.selection import FrontierSearch
    from frhsic.sketching import HSICSketch

__version__ = "0.2.0.dev0"

__all__ = [
    "EIPM",
    "GDP",
    "HSIC",
    "DistanceCovariance",
    "FRHSICClassifier",
    "FRHSICEncoder",
    "FRHSICRegressor",
    "FrontierSearch",
    "HSICSketch",
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

_NAMES_OF = {
    "auditing": ("audit",),
    "data": ("Sensitive",),
    "dependence": ("EIPM", "GDP", "HSIC", "DistanceCovariance", "KernelHGR", "MutualInformation"),
    "engine": ("Training",),
    "estimators": ("FRHSICClassifier", "FRHSICEncoder", "FRHSICRegressor", "TableEncoder"),
    "penalty": ("Penalty",),
    "persistence": ("load", "save"),
    "selection": ("FrontierSearch",),
    "sketching": ("HSICSketch",),
}
_HOMES = {name: f"{__name__}.{home}" for home, names in _NAMES_OF.items() for name in names}
_PACKAGES = {
    *_NAMES_OF,
    "baselines",
    "boosting",
    "datasets",
    "inference",
    "kernels",
    "metrics",
    "repair",
    "report",
    "runners",
    "sources",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import a public name, or a public package, when it is first asked for (PEP 562)."""
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
