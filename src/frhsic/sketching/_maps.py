"""Kernels as inner products of finitely many features."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.kernels import Kernel
from frhsic.kernels.spectral import SpectralLaw, Term

# So many orthogonal frames at least, or each direction has its own length.
_FRAMES = 8


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

    sides: tuple[tuple[tuple[int, ...], Kernel | None], ...]
    frequencies: Tensor  # (width / 2, q)

    @classmethod
    def of(cls, term: Term, frequencies: Tensor, mass: Tensor) -> Waves:
        """Return the waves of a summand of a kernel."""
        sides: list[tuple[tuple[int, ...], Kernel | None]] = []
        rates: list[float] = []
        for columns, kernel in term.sides:
            rate = kernel.plain_rate  # it multiplies the few frequencies instead of the many rows
            sides.append((columns, kernel if rate is None else None))
            rates += [1.0 if rate is None else rate] * len(columns)
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
            parts.append(y if kernel is None else kernel.standard_rows(y))
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
    kernel: Kernel
    factor: float

    @classmethod
    def of(cls, term: Term) -> Columns:
        """Return the columns of a summand of a kernel."""
        ((seen, kernel),) = term.sides
        width = kernel.standard_rows(torch.zeros((1, len(seen)), dtype=torch.float64)).shape[-1]
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
        return self.kernel.standard_rows(_take(x, self.seen))

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


def feature_map(
    kernel: Kernel, width: int, n_features: int, random_state: int, name: str, factor: float = 1.0
) -> FeatureMap:
    """Return features of a kernel on rows of ``width`` columns: at most ``n_features`` cosines and sines.

    One Gaussian column takes frequencies at even distances, as they make a periodic copy of the kernel, with
    a period of 36 bandwidths at 64 features; several columns take random orthogonal directions.
    """
    terms = kernel.terms(tuple(range(width)), factor, name)
    waves = sum(term.law is not None for term in terms)
    parts: list[FeatureMap] = []
    for place, term in enumerate(terms):
        if term.law is None:
            parts.append(Columns.of(term))
            continue
        pairs = n_features // (2 * waves)
        if pairs < 1:
            raise ArgumentError(
                "n_features",
                f"be at least {2 * waves} for '{name}', a cosine and a sine for each of its kernels",
                n_features,
                "Use more features or a simpler kernel.",
            )
        q = sum(len(columns) for columns, _ in term.sides)
        parts.append(Waves.of(term, *spectrum(term.law, pairs, q, random_state + place)))
    if len(parts) == 1:
        return parts[0]
    return Joined.of(parts, torch.zeros((1, width), dtype=torch.float64))


@lru_cache(maxsize=64)
def spectrum(law: SpectralLaw, m: int, q: int, random_state: int) -> tuple[Tensor, Tensor]:
    """Return at most m frequencies ``(m, q)`` and their masses, of sum one, for a kernel of bandwidth one.

    sum_j mass_j cos(<omega_j, x - y>) is then close to k(x, y). Nothing is random for one column.
    """
    if q == 1 and (line := law.line(m)) is not None:
        return line
    # One length for each frame integrates |omega|^2 exactly in all directions at once. Measured over five
    # laws at q = 8, m = 128 it errs by 0.4 to 2.8 %; a length for each direction by 0.5 to 3.6 %, random
    # lengths by 2.4 to 6.3 %, Sobol points by 0.8 to 3.4 %, random frequencies by 5 to 12 %. Of fewer than
    # eight frames the lengths are too few.
    frames = m >= _FRAMES * q
    m = m // q * q if frames else m
    count = m // q if frames else m
    lengths = torch.from_numpy(law.lengths(count, q))
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
