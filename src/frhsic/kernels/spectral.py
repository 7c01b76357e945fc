"""The laws of the frequencies of kernels, which feature maps ask for.

A radial kernel of bandwidth one is k(x, y) = E cos(<omega, x - y>) for a rotation-invariant random omega, by
Bochner's theorem. The law of omega also gives the Lipschitz constant of the kernel's feature map:
2 (1 - k(x, y)) <= E <omega, x - y>^2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import chdtr, chdtri, fdtri, ndtri
from torch import Tensor

# Frequencies of one Gaussian column run up to 5.5: what is cut off weighs 4e-8.
_HIGHEST = 5.5
# As many of them are exact to 1e-7 for rows up to 33 bandwidths apart; more would be wasted.
_ENOUGH = 32


class SpectralLaw(ABC):
    """The law of a random frequency omega; equal laws are equal and hash alike."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of one entry of omega; infinite where the feature map is not Lipschitz."""

    @abstractmethod
    def lengths(self, count: int, q: int) -> NDArray[np.float64]:
        """Return the lengths |omega| that stand for equal shares of the law in q dimensions."""

    def line(self, m: int) -> tuple[Tensor, Tensor] | None:  # noqa: ARG002
        """Return at most m frequencies of one column with their masses, if there is a rule for them."""
        return None

    closed_under_products = False
    """Whether a product of kernels on their own columns, each of this law, has this law on all."""


@dataclass(frozen=True)
class GaussianLaw(SpectralLaw):
    """Standard normal frequencies: the Gaussian kernel."""

    variance = 1.0

    closed_under_products = True  # independent normal entries are a normal vector

    def lengths(self, count: int, q: int) -> NDArray[np.float64]:
        """Return root mean squares of the shares."""
        edges = chdtri(q, np.linspace(1.0, 0.0, count + 1))  # by their upper tails
        # E[r^2; r^2 <= x] is q times the law of a vector of two more entries.
        return np.sqrt(q * count * np.diff(chdtr(q + 2, edges)))

    def line(self, m: int) -> tuple[Tensor, Tensor]:
        """Return frequencies at even distances, which make a periodic copy of the kernel."""
        m = min(m, _ENOUGH)
        # Few frequencies do not reach as far: the two errors, of the end and of the period, stay of one size.
        step = min(_HIGHEST, 1.25 * m**0.5) / m
        frequencies = (torch.arange(m, dtype=torch.float64) + 0.5) * step
        mass = (-0.5 * frequencies.square()).exp()
        return frequencies[:, None], mass / mass.sum()


@dataclass(frozen=True)
class StudentLaw(SpectralLaw):
    """Multivariate Student t frequencies; with one degree of freedom those of the Laplace kernel."""

    degrees: float

    @property
    def variance(self) -> float:
        """That of a Student t, infinite up to two degrees of freedom."""
        return self.degrees / (self.degrees - 2.0) if self.degrees > 2.0 else float("inf")

    def lengths(self, count: int, q: int) -> NDArray[np.float64]:
        """Return medians of the shares: |omega|^2 / q has an F law."""
        return np.sqrt(q * fdtri(q, self.degrees, (np.arange(count) + 0.5) / count))


@dataclass(frozen=True)
class NormalProductLaw(SpectralLaw):
    """A normal vector times an independent |N(0, 1)|: the inverse multiquadric kernel."""

    variance = 1.0

    def lengths(self, count: int, q: int) -> NDArray[np.float64]:
        """Return medians of the shares."""
        mixing = ndtri(0.5 + 0.5 * (np.arange(256) + 0.5) / 256) ** 2
        squares = np.exp(np.linspace(-25.0, 8.0, 1_500))
        below = chdtr(q, squares[:, None] / mixing).mean(axis=1)
        u = (np.arange(count) + 0.5) / count
        return np.sqrt(np.exp(np.interp(u, below, np.log(squares))))
