"""Kernels as inner products of finitely many features."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.kernels import Kernel, Term
from frhsic.kernels.spectral import SpectralLaw

# So many orthogonal frames at least, or each direction has its own length.
_FRAMES = 8


@dataclass(frozen=True, eq=False)
class Waves:
    """Cosines and sines of projections: the features of a kernel of differences."""

    sides: tuple[tuple[tuple[int, ...], Kernel | None], ...]
    frequencies: Tensor  # (width / 2, q)
    scale: Tensor  # (width,)
    diagonal: float  # k(x, x)

    @classmethod
    def of(cls, term: Term, frequencies: Tensor, mass: Tensor) -> Waves:
        sides: list[tuple[tuple[int, ...], Kernel | None]] = []
        rates: list[float] = []
        for columns, kernel in term.sides:
            rate = kernel.plain_rate  # it multiplies the few frequencies instead of the many rows
            sides.append((columns, kernel if rate is None else None))
            rates += [1.0 if rate is None else rate] * len(columns)
        frequencies = frequencies * frequencies.new_tensor(rates)
        return cls(tuple(sides), frequencies, (term.factor * mass).sqrt().repeat(2), term.factor)

    @property
    def reach(self) -> float:
        return float(self.frequencies.abs().sum(dim=1).max())

    def standard(self, x: Tensor) -> Tensor:
        """Return the columns of each side in turn, over those bandwidths that frequencies do not hold."""
        sides = [(_take(x, columns), kernel) for columns, kernel in self.sides]
        return _beside([y if kernel is None else kernel.standard_rows(y) for y, kernel in sides])

    def columns(self, y: Tensor) -> Tensor:
        t = y @ self.frequencies.to(y).mT
        return torch.cat((t.cos(), t.sin()), dim=-1)

    def norms(self, y: Tensor) -> Tensor:
        return torch.full_like(y[..., 0], float(self.scale.square().sum()) / 2.0)

    def fill(self, y: Tensor, out: Tensor) -> None:
        # One product, in place: new memory for each block would cost as much as a cosine.
        cosines, sines = out.split(len(self.frequencies), dim=1)
        torch.mm(y, self.frequencies.to(y).mT, out=cosines)
        torch.sin(cosines, out=sines)
        cosines.cos_()


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns themselves: the features of the linear kernel."""

    seen: tuple[int, ...]
    kernel: Kernel
    factor: float
    scale: Tensor  # (width,)
    diagonal = None  # it varies
    reach = math.inf  # what is left after centring may be far below a digit of float32

    @classmethod
    def of(cls, term: Term) -> Columns:
        ((seen, kernel),) = term.sides
        width = kernel.standard_rows(torch.zeros((1, len(seen)), dtype=torch.float64)).shape[-1]
        scale = torch.full((width,), term.factor**0.5, dtype=torch.float64)
        return cls(seen, kernel, term.factor, scale)

    def standard(self, x: Tensor) -> Tensor:
        return self.kernel.standard_rows(_take(x, self.seen))

    def columns(self, y: Tensor) -> Tensor:
        return y

    def norms(self, y: Tensor) -> Tensor:
        return self.factor * y.square().sum(dim=-1)

    def fill(self, y: Tensor, out: Tensor) -> None:
        out.copy_(y)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Columns phi with <phi(x), phi(y)> = k(x, y), or nearly, once each is multiplied by its scale.

    The summands of the kernel have their columns side by side.
    """

    parts: tuple[Waves | Columns, ...]
    widths: tuple[int, ...]  # of the standard rows of each part but the first, which has the others

    @cached_property
    def scale(self) -> Tensor:
        return torch.cat([part.scale for part in self.parts])

    @property
    def width(self) -> int:
        return len(self.scale)

    @cached_property
    def diagonal(self) -> float | None:
        """k(x, x) where it is the same for all x."""
        diagonals = [part.diagonal for part in self.parts if part.diagonal is not None]
        return math.fsum(diagonals) if len(diagonals) == len(self.parts) else None

    @cached_property
    def reach(self) -> float:
        """Arguments of cosines stay below this times the rows of ``standard``; infinite: no float32."""
        return max(part.reach for part in self.parts)

    @property
    def scale_with_norms(self) -> Tensor:
        """The scales, that of k(x, x) among them where it varies."""
        return self.scale if self.diagonal is not None else torch.cat((self.scale, self.scale.new_ones(1)))

    def standard(self, x: Tensor) -> Tensor:
        """Return rows in units of the kernel, shape ``(..., n, q)``."""
        return _beside([part.standard(x) for part in self.parts])

    def fill_with_norms(self, y: Tensor, out: Tensor) -> None:
        """Write the columns of standard rows ``(n, q)`` and, where it varies, k(x, x) into ``out``."""
        places = out[:, : self.width].split([len(part.scale) for part in self.parts], dim=1)
        for (part, own), place in zip(self._own(y), places, strict=True):
            part.fill(own, place)
        if self.diagonal is None:
            out[:, self.width] = self._norms(y)

    def augmented(self, x: Tensor) -> Tensor:
        """Return (1, phi) or (1, phi, k(x, x)) of the rows of x, scaled, with gradients."""
        y = self.standard(x)
        columns = _beside([part.columns(own) for part, own in self._own(y)])
        parts = [torch.ones_like(y[..., :1]), columns * self.scale.to(y)]
        if self.diagonal is None:
            parts.append(self._norms(y)[..., None])
        return torch.cat(parts, dim=-1)

    def _norms(self, y: Tensor) -> Tensor:
        return torch.stack([part.norms(own) for part, own in self._own(y)]).sum(dim=0)

    def _own(self, y: Tensor) -> Iterator[tuple[Waves | Columns, Tensor]]:
        widths = (y.shape[-1] - sum(self.widths), *self.widths)
        return zip(self.parts, y.split(widths, dim=-1), strict=True)


def _take(x: Tensor, columns: Sequence[int]) -> Tensor:
    return x if len(columns) == x.shape[-1] and list(columns) == sorted(columns) else x[..., list(columns)]


def _beside(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=-1)


def feature_map(
    kernel: Kernel, width: int, n_features: int, random_state: int, name: str, factor: float = 1.0
) -> FeatureMap:
    """Return features of a kernel on rows of ``width`` columns: at most ``n_features`` cosines and sines.

    One Gaussian column takes frequencies at even distances, as they make a periodic copy of the kernel, with
    a period of 36 bandwidths at 64 features; several columns take random orthogonal directions.
    """
    terms = kernel.terms(tuple(range(width)), factor, name)
    waves = sum(term.law is not None for term in terms)
    parts: list[Waves | Columns] = []
    for place, term in enumerate(terms):
        if term.law is None:
            parts.append(Columns.of(term))
            continue
        pairs = n_features // (2 * waves)
        if pairs < 1:
            must = f"be at least {2 * waves} for '{name}', a cosine and a sine for each of its kernels"
            raise ArgumentError("n_features", must, n_features, "Use more features or a simpler kernel.")
        q = sum(len(columns) for columns, _ in term.sides)
        parts.append(Waves.of(term, *spectrum(term.law, pairs, q, random_state + place)))
    blank = torch.zeros((1, width), dtype=torch.float64)
    return FeatureMap(tuple(parts), tuple(part.standard(blank).shape[-1] for part in parts[1:]))


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
