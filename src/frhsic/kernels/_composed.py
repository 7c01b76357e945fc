"""Kernels made of kernels: sums, products, multiples, and kernels of some columns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.kernels._base import Columns, Kernel, Parts, Tiles
from frhsic.kernels._gaussian import least_exponent
from frhsic.kernels.scale import held
from frhsic.kernels.spectral import Term


@dataclass(frozen=True, eq=False)
class _Composed(Kernel, ABC):
    @abstractmethod
    def _combine(self, *values: Any) -> Any:
        """Return its value, given those of the kernels that it is made of."""

    @property
    def _inside(self) -> tuple[Kernel, ...]:
        return tuple(value for value in vars(self).values() if isinstance(value, Kernel))

    def _take(self, x: Tensor) -> Tensor:
        """Return the columns that the kernels inside see."""
        return x

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the Gram matrices of the kernels inside, combined, shape ``(..., n, m)``."""
        value: Tensor = self._combine(*(k.gram(self._take(a), self._take(b)) for k in self._inside))
        return value

    def diagonal(self, x: Tensor) -> Tensor:
        """Return the diagonals of the kernels inside, combined, shape ``(..., n)``."""
        value: Tensor = self._combine(*(kernel.diagonal(self._take(x)) for kernel in self._inside))
        return value

    def tiles(self, x: Tensor) -> Tiles:
        """Return the blocks of the kernels inside, combined."""
        inside = [kernel.tiles(self._take(x)) for kernel in self._inside]
        return lambda rows, columns: self._combine(*(tile(rows, columns) for tile in inside))

    @property
    def bound(self) -> float:
        """The bounds of the kernels inside, combined."""
        return float(self._combine(*(kernel.bound for kernel in self._inside)))

    def _changed(self, change: Callable[[Kernel, Tensor], Kernel], x: Tensor) -> Self:
        """Return the same of changed kernels, each on the columns of x that it sees."""
        own = ((name, kernel) for name, kernel in vars(self).items() if isinstance(kernel, Kernel))
        return replace(self, **{name: change(kernel, self._take(x)) for name, kernel in own})

    @property
    def fixed(self) -> bool:
        """Whether all kernels inside are."""
        return all(kernel.fixed for kernel in self._inside)

    @property
    def anchored(self) -> bool:
        """Whether all kernels inside are."""
        return all(kernel.anchored for kernel in self._inside)

    @property
    def is_standard(self) -> bool:
        """Whether all kernels inside are."""
        return all(kernel.is_standard for kernel in self._inside)

    def parts(self, columns: Columns | None = None) -> Parts:
        """Yield the parts of all kernels inside."""
        for kernel in self._inside:
            yield from kernel.parts(columns)

    def bind(self, x: Tensor, weights: Tensor | None = None) -> Self:
        """Bind the kernels inside."""
        return self._changed(lambda kernel, rows: kernel.bind(rows, weights), x)

    def calibrate(
        self,
        x: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
        freeze: bool = False,
    ) -> Self:
        """Calibrate the kernels inside."""

        def change(kernel: Kernel, rows: Tensor) -> Kernel:
            return kernel.calibrate(rows, weights=weights, generator=generator, freeze=freeze)

        return self._changed(change, x)


@dataclass(frozen=True, eq=False)
class _Pair(_Composed, ABC):
    left: Kernel
    right: Kernel


class Sum(_Pair):
    """The sum of two kernels, written ``k + l``; characteristic as soon as one of them is.

    Examples
    --------
    >>> import torch
    >>> from frhsic.kernels import Gaussian, Linear
    >>> (Linear() + Gaussian(1.0)).gram(torch.ones(1, 2), torch.ones(1, 2)).item()
    3.0
    """

    def _combine(self, *values: Any) -> Any:
        return values[0] + values[1]

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return the sum of both forms, shape ``(...)``."""
        return self.left.inner(x, M, factor) + self.right.inner(x, M, factor)

    def bind_inner(self, x: Tensor, M: Tensor, factor: float = 1.0, weights: Tensor | None = None) -> Tensor:
        """Return the sum of both forms, shape ``(...)``."""
        return self.left.bind_inner(x, M, factor, weights) + self.right.bind_inner(x, M, factor, weights)

    @property
    def lipschitz(self) -> float:
        """The root of the sum of both squares."""
        return math.hypot(self.left.lipschitz, self.right.lipschitz)

    @property
    def has_linear(self) -> bool:
        """Whether one of them has."""
        return self.left.has_linear or self.right.has_linear

    def terms(self, columns: Columns | None, factor: float, name: str) -> list[Term]:
        """Return the summands of both."""
        return [*self.left.terms(columns, factor, name), *self.right.terms(columns, factor, name)]


class Product(_Pair):
    """The product of two kernels, written ``k * l``: the kernel of the tensor product of their spaces.

    Examples
    --------
    >>> import torch
    >>> from frhsic.kernels import Delta, Gaussian, OnColumns
    >>> k = OnColumns(Gaussian(1.0), (0,)) * OnColumns(Delta(), (1,))
    >>> k.gram(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
    tensor([[1., 0.]])
    """

    def _combine(self, *values: Any) -> Any:
        return values[0] * values[1]

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the entrywise product of both Gram matrices, shape ``(..., n, m)``."""
        return self.log_gram(a, b).exp_() if self.is_exponential else super().gram(a, b)

    @property
    def is_exponential(self) -> bool:
        """Whether both are."""
        return self.left.is_exponential and self.right.is_exponential

    def log_gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the sum of both logarithms, shape ``(..., n, m)``."""
        return held(self.left.log_gram(a, b) + self.right.log_gram(a, b), least_exponent(a))

    def tiles(self, x: Tensor) -> Tiles:
        """Return the product of both blocks."""
        return Kernel.tiles(self, x) if self.is_exponential else super().tiles(x)

    @property
    def fixed(self) -> bool:
        """Whether both are, their origins too: centring does not take those out of a product."""
        return super().fixed and self.anchored

    @property
    def lipschitz(self) -> float:
        """By the product rule; for constant diagonals 1 - (1 - a)(1 - b) <= a + b, and squares add up."""
        if not max(self.left.bound, self.right.bound) < math.inf:
            return super().lipschitz
        left = math.sqrt(self.right.bound) * self.left.lipschitz
        right = math.sqrt(self.left.bound) * self.right.lipschitz
        return math.hypot(left, right) if self.is_standard else left + right

    def terms(self, columns: Columns | None, factor: float, name: str) -> list[Term]:
        """Return one summand on the columns of both, if their law allows it."""
        left = self.left.terms(columns, factor, name)
        right = self.right.terms(columns, 1.0, name)
        if len(left) == len(right) == 1:
            one, other = left[0], right[0]
            if one.law is not None and one.law == other.law and one.law.closed_under_products:
                return [Term(one.factor * other.factor, one.law, one.sides + other.sides)]
        return super().terms(columns, factor, name)

    def _factors(self, columns: Columns, factor: float, exact: set[int], rest: list[Kernel]) -> float:
        factor = self.left._factors(columns, factor, exact, rest)
        return self.right._factors(columns, factor, exact, rest)


@dataclass(frozen=True, eq=False)
class _Around(_Composed, ABC):
    kernel: Kernel

    @property
    def has_linear(self) -> bool:
        """Whether the kernel inside has."""
        return self.kernel.has_linear


@dataclass(frozen=True, eq=False)
class Scaled(_Around):
    """A positive multiple of a kernel, written ``2.0 * k``.

    Parameters
    ----------
    kernel : Kernel
    factor : float
        Positive: a negative multiple is no kernel.

    Examples
    --------
    >>> import torch
    >>> from frhsic.kernels import Gaussian
    >>> (0.5 * Gaussian(1.0)).gram(torch.zeros(1, 1), torch.zeros(1, 1)).item()
    0.5
    """

    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ArgumentError(
                "factor", "be a positive number", repr(self.factor), "Multiply kernels by numbers above 0."
            )

    def _combine(self, *values: Any) -> Any:
        return self.factor * values[0]

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return the scaled form of the kernel inside, shape ``(...)``."""
        return self.kernel.inner(x, M, factor * self.factor)

    def bind_inner(self, x: Tensor, M: Tensor, factor: float = 1.0, weights: Tensor | None = None) -> Tensor:
        """Return the scaled form of the kernel inside, shape ``(...)``."""
        return self.kernel.bind_inner(x, M, factor * self.factor, weights)

    @property
    def lipschitz(self) -> float:
        """The root of the factor times the constant of the kernel inside."""
        return math.sqrt(self.factor) * self.kernel.lipschitz

    def unscaled(self) -> tuple[Kernel, float]:
        """Return the kernel inside, without its own factor, and both factors."""
        inside, factor = self.kernel.unscaled()
        return inside, self.factor * factor

    def terms(self, columns: Columns | None, factor: float, name: str) -> list[Term]:
        """Return the scaled summands of the kernel inside."""
        return self.kernel.terms(columns, factor * self.factor, name)

    def _factors(self, columns: Columns, factor: float, exact: set[int], rest: list[Kernel]) -> float:
        return self.kernel._factors(columns, factor * self.factor, exact, rest)


@dataclass(frozen=True, eq=False)
class OnColumns(_Around):
    """A kernel that looks at some columns only: k(x[columns], y[columns]).

    Parameters
    ----------
    kernel : Kernel
    columns : tuple of int

    Examples
    --------
    >>> import torch
    >>> from frhsic.kernels import Linear
    >>> OnColumns(Linear(), (1,)).gram(torch.tensor([[9.0, 2.0]]), torch.tensor([[9.0, 3.0]])).item()
    6.0
    """

    columns: tuple[int, ...]

    def _take(self, x: Tensor) -> Tensor:
        if self.columns and self.columns == tuple(range(self.columns[0], self.columns[-1] + 1)):
            return x[..., self.columns[0] : self.columns[-1] + 1]  # a view
        return x[..., list(self.columns)]

    def _combine(self, *values: Any) -> Any:
        return values[0]

    def _among(self, columns: Columns | None) -> Columns:
        return self.columns if columns is None else tuple(columns[j] for j in self.columns)

    @property
    def is_exponential(self) -> bool:
        """Whether the kernel inside is."""
        return self.kernel.is_exponential

    def log_gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the logarithm of the Gram matrix of the chosen columns, shape ``(..., n, m)``."""
        return self.kernel.log_gram(self._take(a), self._take(b))

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return the form of the kernel inside on the chosen columns, shape ``(...)``."""
        return self.kernel.inner(self._take(x), M, factor)

    @property
    def lipschitz(self) -> float:
        """The constant of the kernel inside."""
        return self.kernel.lipschitz

    def parts(self, columns: Columns | None = None) -> Parts:
        """Yield the parts of the kernel inside on the chosen columns."""
        return self.kernel.parts(self._among(columns))

    def terms(self, columns: Columns | None, factor: float, name: str) -> list[Term]:
        """Return the summands of the kernel inside on the chosen columns."""
        return self.kernel.terms(self._among(columns), factor, name)

    def _factors(self, columns: Columns, factor: float, exact: set[int], rest: list[Kernel]) -> float:
        return self.kernel._factors(self._among(columns), factor, exact, rest)
