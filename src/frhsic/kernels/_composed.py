"""Kernels made of kernels: sums, products, multiples, and kernels of some columns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.kernels._base import Columns, Factors, Kernel, Parts, Term, Tiles
from frhsic.kernels._gaussian import least_exponent
from frhsic.kernels.ranks import find_places, find_ranks
from frhsic.kernels.scale import FIX_RULE, distances, held


@dataclass(frozen=True, eq=False)
class _Composed(Kernel, ABC):
    @abstractmethod
    def _combine(self, *values: Any) -> Any:
        """Return its value, given those of the kernels that it is made of."""

    @property
    def _inside(self) -> dict[str, Kernel]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Kernel)}

    def _take(self, x: Tensor) -> Tensor:
        """Return the columns that the kernels inside see."""
        return x

    def _learn(self, x: Tensor, weights: Tensor | None) -> Self:  # noqa: ARG002
        """Return it with what it takes from the rows itself, before the kernels inside see them."""
        return self

    def _combine_each(self, value: Callable[[Kernel], Any]) -> Any:
        return self._combine(*map(value, self._inside.values()))

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        rows = self._take(a)
        others = rows if b is a else self._take(b)
        return self._combine_each(lambda kernel: kernel.gram(rows, others))

    def diagonal(self, x: Tensor) -> Tensor:
        return self._combine_each(lambda kernel: kernel.diagonal(self._take(x)))

    def tiles(self, x: Tensor) -> Tiles:
        inside = [kernel.tiles(self._take(x)) for kernel in self._inside.values()]
        return lambda rows, columns: self._combine(*(tile(rows, columns) for tile in inside))

    @property
    def bound(self) -> float:
        return float(self._combine_each(lambda kernel: kernel.bound))

    @property
    def fixed(self) -> bool:
        return all(kernel.fixed for kernel in self._inside.values())

    @property
    def anchored(self) -> bool:
        return all(kernel.anchored for kernel in self._inside.values())

    @property
    def is_standard(self) -> bool:
        return all(kernel.is_standard for kernel in self._inside.values())

    @property
    def has_linear(self) -> bool:
        return any(kernel.has_linear for kernel in self._inside.values())

    def parts(self, columns: Columns | None = None) -> Parts:
        for kernel in self._inside.values():
            yield from kernel.parts(columns)

    def bind(self, x: Tensor, weights: Tensor | None = None) -> Self:
        own = self._learn(x, weights)
        rows = own._take(x)
        return replace(own, **{name: kernel.bind(rows, weights) for name, kernel in own._inside.items()})

    def calibrate(
        self,
        x: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
        freeze: bool = False,
    ) -> Self:
        options: Any = {"weights": weights, "generator": generator, "freeze": freeze}
        own = self._learn(x, weights)
        rows = own._take(x)
        fixed = {name: kernel.calibrate(rows, **options) for name, kernel in own._inside.items()}
        return replace(own, **fixed)


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

    def terms(self, columns: Columns | None, factor: float, name: str) -> list[Term]:
        """Return the summands of both."""
        return [*self.left.terms(columns, factor, name), *self.right.terms(columns, factor, name)]


# Up to so many columns are quicker subtracted one by one.
_FEW_COLUMNS = 4


def _decay(a: Tensor, b: Tensor) -> Tensor:
    """Return exp(-|a_i - b_j|^2 / 2), exactly one for equal rows: sensitive columns have far-off codes."""
    if a.shape[-1] > _FEW_COLUMNS:
        E = distances(a, b)
        E = E.mul_(E).mul_(-0.5)
    else:
        gap = a[..., :1] - b[..., :1].mT
        E = gap.mul_(gap).mul_(-0.5)
        for j in range(1, a.shape[-1]):
            gap = a[..., j : j + 1] - b[..., j : j + 1].mT
            E.sub_(gap.mul_(gap), alpha=0.5)
    return held(E, least_exponent(a)).exp_()


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
        if not self.is_exponential or a.requires_grad or b.requires_grad:
            return super().gram(a, b)
        return _decay(self.standard_rows(a), self.standard_rows(b))

    @property
    def is_exponential(self) -> bool:
        """Whether both are."""
        return self.left.is_exponential and self.right.is_exponential

    def standard_rows(self, x: Tensor) -> Tensor:
        """Return the rows of both side by side: squared distances add up."""
        return torch.cat((self.left.standard_rows(x), self.right.standard_rows(x)), dim=-1)

    def tiles(self, x: Tensor) -> Tiles:
        """Return the product of both blocks."""
        if not self.is_exponential or x.requires_grad:
            return super().tiles(x)
        x = self.standard_rows(x)
        return lambda rows, columns: _decay(x[..., rows, :], x[..., columns, :])

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

    has_linear = False

    def _factors(self, columns: Columns) -> Factors:
        yield from self.left._factors(columns)
        yield from self.right._factors(columns)


@dataclass(frozen=True, eq=False)
class Scaled(_Composed):
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

    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            fix = "Multiply kernels by numbers above 0."
            raise ArgumentError("factor", "be a positive number", repr(self.factor), fix)

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

    def _factors(self, columns: Columns) -> Factors:
        yield None, (), self.factor
        yield from self.kernel._factors(columns)


@dataclass(frozen=True, eq=False)
class OnColumns(_Composed):
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

    kernel: Kernel
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

    def standard_rows(self, x: Tensor) -> Tensor:
        """Return the rows of the kernel inside on the chosen columns."""
        return self.kernel.standard_rows(self._take(x))

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

    def _factors(self, columns: Columns) -> Factors:
        return self.kernel._factors(self._among(columns))


@dataclass(frozen=True, eq=False)
class OnRanks(_Composed):
    """A kernel of ranks: k(F(x), F(y)), with F the distribution function of each column, from 0 to 1.

    A monotone transform of a column (income or its logarithm) changes nothing, and neither do heavy tails.
    With ``Gaussian(h)`` inside, rows within a share h of all rows are alike.

    Parameters
    ----------
    kernel : Kernel

    Notes
    -----
    Equal values share the middle of their ranks. Ranks are those of the rows at hand until ``calibrate``
    fixes them, exactly for up to 1,024 different values, by interpolation between as many quantiles of more;
    beyond the smallest and the largest value they stay as they are there.

    Examples
    --------
    >>> import torch
    >>> from frhsic.kernels import Gaussian
    >>> income, kernel = torch.tensor([[1.0], [10.0], [1000.0]]), OnRanks(Gaussian(0.5))
    >>> a, b = (kernel.bind(x).gram(x, x) for x in (income, income.log()))
    >>> torch.equal(a, b)
    True
    """

    kernel: Kernel
    _places: Tensor | None = field(default=None, repr=False)  # (d, 2, m): values and their ranks

    def _take(self, x: Tensor) -> Tensor:
        if self._places is None:
            must = "be resolved before the kernel is evaluated"
            raise ArgumentError("ranks", must, "those of no rows", FIX_RULE)
        return find_ranks(x, self._places)

    def _combine(self, *values: Any) -> Any:
        return values[0]

    @property
    def fixed(self) -> bool:
        """Whether ranks are those of fixed rows, and the kernel inside is fixed."""
        return self._places is not None and super().fixed

    @property
    def row_rule(self) -> str | None:
        """Ranks need the rows."""
        return "ranks" if self._places is None else None

    def parts(self, columns: Columns | None = None) -> Parts:
        """Yield the kernel itself: the one inside does not see columns but their ranks."""
        yield self, columns

    def _learn(self, x: Tensor, weights: Tensor | None) -> Self:
        if self._places is not None:
            return self
        return replace(self, _places=find_places(x.detach().reshape(-1, x.shape[-1]), weights))
