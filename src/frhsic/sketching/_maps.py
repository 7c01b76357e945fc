"""Kernels as inner products of finitely many features."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import mul

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import chdtr, chdtri, fdtri, ndtri
from torch import Tensor

from frhsic.kernels import (
    Delta,
    Gaussian,
    InverseMultiquadric,
    Kernel,
    Laplace,
    Linear,
    OnColumns,
    Product,
    Scaled,
    Sum,
)
from frhsic.kernels._radial import _Radial

# Frequencies of one Gaussian column run up to 5.5: what is cut off weighs 4e-8.
_HIGHEST = 5.5
# As many of them are exact to 1e-7 for rows up to 33 bandwidths apart; more would be wasted.
_ENOUGH = 64
# So many orthogonal frames at least, or each direction has its own length.
_FRAMES = 8
_RADIAL = (Gaussian, Laplace, InverseMultiquadric)


@dataclass(frozen=True, eq=False)
class FeatureMap(ABC):
    """Columns phi with <phi(x), phi(y)> = k(x, y), or nearly, once each is multiplied by its scale."""

    width: int  # the number of columns
    scale: Tensor  # (width,)
    diagonal: float | None  # k(x, x) where it is the same for all x
    reach: float  # arguments of cosines stay below this times the rows of ``standard``; infinite: no float32

    @property
    def width_with_norms(self) -> int:
        """The number of columns, that of k(x, x) among them where it varies."""
        return self.width + (self.diagonal is None)

    @property
    def scale_with_norms(self) -> Tensor:
        """The scales of those."""
        return self.scale if self.diagonal is not None else torch.cat((self.scale, self.scale.new_ones(1)))

    @abstractmethod
    def standard(self, x: Tensor) -> Tensor:
        """Return rows in units of the kernel, shape ``(..., n, q)``."""

    @abstractmethod
    def columns(self, y: Tensor) -> Tensor:
        """Return the columns of standard rows, shape ``(..., n, width)``, with gradients."""

    @abstractmethod
    def norms(self, y: Tensor) -> Tensor:
        """Return k(x, x) of standard rows, shape ``(..., n)``."""

    @abstractmethod
    def fill(self, y: Tensor, out: Tensor) -> None:
        """Write the columns of standard rows ``(n, q)`` into ``out`` ``(n, width)``."""

    def fill_with_norms(self, y: Tensor, out: Tensor) -> None:
        """Write the columns and, where it varies, k(x, x)."""
        self.fill(y, out[:, : self.width])
        if self.diagonal is None:
            out[:, self.width] = self.norms(y)

    def augmented(self, x: Tensor) -> Tensor:
        """Return (1, phi) or (1, phi, k(x, x)) of the rows of x, scaled, shape ``(..., n, 1 + ...)``."""
        y = self.standard(x)
        parts = [torch.ones_like(y[..., :1]), self.columns(y) * self.scale.to(y)]
        if self.diagonal is None:
            parts.append(self.norms(y)[..., None])
        return torch.cat(parts, dim=-1)


@dataclass(frozen=True, eq=False)
class Waves(FeatureMap):
    """Cosines and sines of projections: a kernel of differences."""

    sides: tuple[tuple[tuple[int, ...], _Radial | None], ...]
    frequencies: Tensor  # (width / 2, q)

    @classmethod
    def of(cls, term: _Term, frequencies: Tensor, mass: Tensor) -> Waves:
        """Return the waves of a summand of a kernel."""
        sides: list[tuple[tuple[int, ...], _Radial | None]] = []
        rates: list[float] = []
        for columns, kernel in term.sides:
            assert isinstance(kernel, _Radial)  # noqa: S101
            # A plain bandwidth divides the few frequencies instead of the many rows.
            plain = (
                kernel.whiten is False and kernel._origin is None and not isinstance(kernel.bandwidth, Tensor)
            )
            sides.append((columns, None if plain else kernel))
            rates += [1.0 / float(kernel.bandwidth) if plain else 1.0] * len(columns)
        frequencies = frequencies * frequencies.new_tensor(rates)
        return cls(
            width=2 * len(mass),
            scale=(term.factor * mass).sqrt().repeat(2),
            diagonal=term.factor,
            reach=float(frequencies.abs().sum(dim=1).max()),
            sides=tuple(sides),
            frequencies=frequencies,
        )

    def standard(self, x: Tensor) -> Tensor:
        """Return the columns of each side in turn, over those bandwidths that frequencies do not hold."""
        parts = []
        for columns, kernel in self.sides:
            y = _take(x, columns)
            parts.append(y if kernel is None else kernel._rows(y) * kernel._rate() ** 0.5)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def columns(self, y: Tensor) -> Tensor:
        """Return all cosines, then all sines."""
        t = y @ self.frequencies.to(y).mT
        return torch.cat((t.cos(), t.sin()), dim=-1)

    def norms(self, y: Tensor) -> Tensor:
        """Return the same number for each row."""
        return torch.full_like(y[..., 0], float(self.scale.square().sum()) / 2.0)

    def fill(self, y: Tensor, out: Tensor) -> None:
        """Write them by one product, in place: new memory for each block would cost as much as a cosine."""
        cosines, sines = out.split(len(self.frequencies), dim=1)
        torch.mm(y, self.frequencies.to(y).mT, out=cosines)
        torch.sin(cosines, out=sines)
        cosines.cos_()


@dataclass(frozen=True, eq=False)
class Columns(FeatureMap):
    """The columns themselves: the linear kernel."""

    seen: tuple[int, ...]
    kernel: Linear
    factor: float

    @classmethod
    def of(cls, term: _Term) -> Columns:
        """Return the columns of a summand of a kernel."""
        ((seen, kernel),) = term.sides
        assert isinstance(kernel, Linear)  # noqa: S101
        width = kernel.whiten.shape[-1] if isinstance(kernel.whiten, Tensor) else len(seen)
        return cls(
            width=width,
            scale=torch.full((width,), term.factor**0.5, dtype=torch.float64),
            diagonal=None,
            reach=math.inf,  # what is left after centring may be far below a digit of float32
            seen=seen,
            kernel=kernel,
            factor=term.factor,
        )

    def standard(self, x: Tensor) -> Tensor:
        """Return rows as the kernel sees them."""
        return self.kernel._moved(_take(x, self.seen))

    def columns(self, y: Tensor) -> Tensor:
        """Return the rows."""
        return y

    def norms(self, y: Tensor) -> Tensor:
        """Return squared norms."""
        return self.factor * y.square().sum(dim=-1)

    def fill(self, y: Tensor, out: Tensor) -> None:
        """Copy the rows."""
        out.copy_(y)


@dataclass(frozen=True, eq=False)
class Joined(FeatureMap):
    """The features of a sum of kernels, side by side."""

    parts: tuple[FeatureMap, ...]
    widths: tuple[int, ...]  # of the standard rows of each

    @classmethod
    def of(cls, parts: Sequence[FeatureMap], blank: Tensor) -> Joined:
        """Return the features of parts, given a row of x."""
        diagonals = [part.diagonal for part in parts if part.diagonal is not None]
        return cls(
            width=sum(part.width for part in parts),
            scale=torch.cat([part.scale for part in parts]),
            diagonal=math.fsum(diagonals) if len(diagonals) == len(parts) else None,
            reach=max(part.reach for part in parts),
            parts=tuple(parts),
            widths=tuple(part.standard(blank).shape[-1] for part in parts),
        )

    def standard(self, x: Tensor) -> Tensor:
        """Return the standard rows of each part in turn."""
        return torch.cat([part.standard(x) for part in self.parts], dim=-1)

    def columns(self, y: Tensor) -> Tensor:
        """Return the columns of each part in turn."""
        return torch.cat([part.columns(own) for part, own in self._own(y)], dim=-1)

    def norms(self, y: Tensor) -> Tensor:
        """Return the sum of those of the parts."""
        return torch.stack([part.norms(own) for part, own in self._own(y)]).sum(dim=0)

    def fill(self, y: Tensor, out: Tensor) -> None:
        """Let each part write its own."""
        columns = out.split([part.width for part in self.parts], dim=1)
        for (part, own), place in zip(self._own(y), columns, strict=True):
            part.fill(own, place)

    def _own(self, y: Tensor) -> list[tuple[FeatureMap, Tensor]]:
        return list(zip(self.parts, y.split(self.widths, dim=-1), strict=True))


def _take(x: Tensor, columns: Sequence[int]) -> Tensor:
    return x if len(columns) == x.shape[-1] and list(columns) == sorted(columns) else x[..., list(columns)]


@dataclass(frozen=True)
class _Term:
    """One summand of a kernel: a factor times a linear kernel, or times radial ones on their columns."""

    factor: float
    law: str
    sides: tuple[tuple[tuple[int, ...], Kernel], ...]


def feature_map(
    kernel: Kernel, width: int, n_features: int, random_state: int, name: str, factor: float = 1.0
) -> FeatureMap:
    """Return features of a kernel on rows of ``width`` columns: at most ``n_features`` cosines and sines.

    One Gaussian column takes frequencies at even distances, as they make a periodic copy of the kernel, with
    a period of 36 bandwidths at 64 features; several columns take random orthogonal directions.
    """
    terms = _terms(kernel, tuple(range(width)), factor, name)
    waves = sum(term.law != "Linear" for term in terms)
    parts: list[FeatureMap] = []
    for place, term in enumerate(terms):
        if term.law == "Linear":
            parts.append(Columns.of(term))
            continue
        pairs = n_features // (2 * waves)
        if pairs < 1:
            raise ValueError(
                f"'n_features' must be at least {2 * waves} for '{name}', a cosine and a sine for each "
                f"of its kernels. Got {n_features}. Use more features or a simpler kernel."
            )
        q = sum(len(columns) for columns, _ in term.sides)
        parts.append(Waves.of(term, *spectrum(term.law, pairs, q, random_state + place)))
    if len(parts) == 1:
        return parts[0]
    return Joined.of(parts, torch.zeros((1, width), dtype=torch.float64))


def check_kernel(kernel: Kernel, name: str) -> None:
    """Refuse a kernel that has no features here."""
    _terms(kernel, None, 1.0, name)


def _terms(kernel: Kernel, columns: tuple[int, ...] | None, factor: float, name: str) -> list[_Term]:
    """Return the summands of a kernel that sees these columns; None: all that there may be."""
    match kernel:
        case Sum():
            return [*_terms(kernel.left, columns, factor, name), *_terms(kernel.right, columns, factor, name)]
        case Scaled():
            return _terms(kernel.kernel, columns, factor * kernel.factor, name)
        case OnColumns():
            seen = kernel.columns if columns is None else tuple(columns[j] for j in kernel.columns)
            return _terms(kernel.kernel, seen, factor, name)
        case Product():
            left = _terms(kernel.left, columns, factor, name)
            right = _terms(kernel.right, columns, 1.0, name)
            if [term.law for term in left + right] == ["Gaussian", "Gaussian"]:
                return [_Term(left[0].factor * right[0].factor, "Gaussian", left[0].sides + right[0].sides)]
    if type(kernel) in (*_RADIAL, Linear):
        return [_Term(factor, type(kernel).__name__, ((columns or (), kernel),))]
    raise ValueError(
        f"'{name}' must be Gaussian, Laplace, InverseMultiquadric or Linear, a multiple or sum of these, or "
        f"a product of Gaussians: others have no features here. Got {kernel!r}. Use HSIC, which takes any."
    )


def delta_columns(kernel: Kernel, width: int) -> tuple[tuple[int, ...], Kernel | None, float]:
    """Return the columns that a product kernel compares by equality alone, what else it is, and a factor.

    None: nothing else. A Delta inside a sum is not taken out.
    """
    exact: set[int] = set()
    rest: list[Kernel] = []

    def walk(kernel: Kernel, columns: tuple[int, ...], factor: float) -> float:
        match kernel:
            case Product():
                return walk(kernel.right, columns, walk(kernel.left, columns, factor))
            case Scaled():
                return walk(kernel.kernel, columns, factor * kernel.factor)
            case OnColumns():
                return walk(kernel.kernel, tuple(columns[j] for j in kernel.columns), factor)
            case Delta():
                exact.update(columns)
            case _:
                rest.append(OnColumns(kernel, columns))
        return factor

    factor = walk(kernel, tuple(range(width)), 1.0)
    return tuple(sorted(exact)), reduce(mul, rest) if rest else None, factor


def seen_columns(kernel: Kernel, width: int) -> set[tuple[int, bool]]:
    """Return each column that a kernel looks at, with whether it does so by equality alone."""
    match kernel:
        case Sum() | Product():
            return seen_columns(kernel.left, width) | seen_columns(kernel.right, width)
        case Scaled():
            return seen_columns(kernel.kernel, width)
        case OnColumns():
            inside = seen_columns(kernel.kernel, len(kernel.columns))
            return {(kernel.columns[j], equality) for j, equality in inside}
    return {(j, isinstance(kernel, Delta)) for j in range(width)}


@lru_cache(maxsize=64)
def spectrum(law: str, m: int, q: int, random_state: int) -> tuple[Tensor, Tensor]:
    """Return at most m frequencies ``(m, q)`` and their masses, of sum one, for a kernel of bandwidth one.

    sum_j mass_j cos(<omega_j, x - y>) is then close to k(x, y). Nothing is random for one column.
    """
    if q == 1 and law == "Gaussian":
        m = min(m, _ENOUGH // 2)
        # Few frequencies do not reach as far: the two errors, of the end and of the period, stay of one size.
        step = min(_HIGHEST, 1.25 * m**0.5) / m
        frequencies = (torch.arange(m, dtype=torch.float64) + 0.5) * step
        mass = (-0.5 * frequencies.square()).exp()
        return frequencies[:, None], mass / mass.sum()
    # One length for each frame integrates |omega|^2 exactly in all directions at once. Measured over five
    # laws at q = 8, m = 128 it errs by 0.4 to 2.8 %; a length for each direction by 0.5 to 3.6 %, random
    # lengths by 2.4 to 6.3 %, Sobol points by 0.8 to 3.4 %, random frequencies by 5 to 12 %. Of fewer than
    # eight frames the lengths are too few.
    frames = m >= _FRAMES * q
    m = m // q * q if frames else m
    count = m // q if frames else m
    lengths = torch.from_numpy(_lengths(law, count, q))
    directions = torch.ones((m, 1), dtype=torch.float64)
    if q > 1:
        generator = torch.Generator().manual_seed(random_state)
        directions = torch.cat([_frame(q, generator) for _ in range(-(-m // q))])[:m]
        lengths = lengths[torch.randperm(count, generator=generator)]
    lengths = lengths.repeat_interleave(m // count)
    return directions * lengths[:, None], torch.full((m,), 1.0 / m, dtype=torch.float64)


def _frame(q: int, generator: torch.Generator) -> Tensor:
    """Return q orthonormal rows, uniformly distributed."""
    Q, R = torch.linalg.qr(torch.randn((q, q), generator=generator, dtype=torch.float64))
    return (Q * R.diagonal().sign()).mT


def _lengths(law: str, count: int, q: int) -> NDArray[np.float64]:
    """Return the lengths that stand for equal shares of the law of a frequency in q dimensions.

    A Laplace kernel has the spectrum of a Gaussian vector over an independent |N|, an inverse multiquadric
    that of a Gaussian vector times an independent |N|: the medians of shares are taken. A Gaussian kernel has
    that of a Gaussian vector itself, and root mean squares.
    """
    if law == "Gaussian":
        edges = chdtri(q, np.linspace(1.0, 0.0, count + 1))  # by their upper tails
        # E[r^2; r^2 <= x] is q times the law of a vector of two more entries.
        return np.sqrt(q * count * np.diff(chdtr(q + 2, edges)))
    u = (np.arange(count) + 0.5) / count
    if law == "Laplace":
        return np.sqrt(q * fdtri(q, 1, u))
    mixing = ndtri(0.5 + 0.5 * (np.arange(256) + 0.5) / 256) ** 2
    squares = np.exp(np.linspace(-25.0, 8.0, 1_500))
    below = chdtr(q, squares[:, None] / mixing).mean(axis=1)
    return np.sqrt(np.exp(np.interp(u, below, np.log(squares))))
