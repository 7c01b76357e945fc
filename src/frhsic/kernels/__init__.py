"""Kernels: similarities k(x, y) from which the dependence measures are built.

Every kernel is an immutable value: ``gram`` evaluates it, ``calibrate`` returns the same kernel with its
data-dependent scales turned into numbers, and ``+``, ``*`` and scaling by a positive number compose kernels.
"""

from frhsic.kernels._base import Kernel
from frhsic.kernels._base import Term as Term
from frhsic.kernels._base import check_kernel as check_kernel
from frhsic.kernels._composed import OnColumns, OnRanks, Product, Scaled, Sum
from frhsic.kernels._default import default_kernel
from frhsic.kernels._plain import Delta, Energy, Linear
from frhsic.kernels._radial import Gaussian, InverseMultiquadric, Laplace, Matern

__all__ = [
    "Delta",
    "Energy",
    "Gaussian",
    "InverseMultiquadric",
    "Kernel",
    "Laplace",
    "Linear",
    "Matern",
    "OnColumns",
    "OnRanks",
    "Product",
    "Scaled",
    "Sum",
    "default_kernel",
]
