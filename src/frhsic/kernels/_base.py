"""What a kernel is, and how kernels compose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

Tiles = Callable[[slice, slice], Tensor]


def applied(function: type[torch.autograd.Function], *arguments: Any) -> Tensor | None:
    """Return what a fused function gives, or None under ``torch.func`` (vmap, grad, jacrev).

    There a function must have ``setup_context``, whose dispatch costs as much time as one of the products at
    batch size: only what needs another form pays for it.
    """
    try:
        value: Tensor = function.apply(*arguments)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return None
    return value


class Kernel(ABC):
    """A symmetric positive definite similarity k(x, y) of rows x and y, as an immutable value.

    A scale may be a number or a rule on data. ``calibrate`` turns the rules that stand outside the graph
    (``"median"``) into numbers once; ``bind`` resolves all that is left on the sample at hand, inside the
    graph (``"scale-free"``, ``whiten=True``), and is what the dependence measures call at each evaluation.
    """

    @abstractmethod
    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return K_ij = k(a_i, b_j), shape ``(..., n, m)``, for a ``(..., n, d)`` and b ``(..., m, d)``."""

    @abstractmethod
    def diagonal(self, x: Tensor) -> Tensor:
        """Return k(x_i, x_i), shape ``(..., n)``."""

    @abstractmethod
    def bind(self, x: Tensor, weights: Tensor | None = None) -> Kernel:
        """Return this kernel with every rule resolved on the rows of x, differentiably where the rule is."""

    @abstractmethod
    def calibrate(
        self,
        x: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
        freeze: bool = False,
    ) -> Kernel:
        """Return this kernel with its data-dependent scales fixed on the rows of x ``(..., n, d)``.

        Rules that are differentiable by design (``"scale-free"``, ``whiten=True``) stay rules unless
        ``freeze``.
        """

    @property
    @abstractmethod
    def bound(self) -> float:
        """The supremum of k(x, x): the paper's kappa; infinite for unbounded kernels."""

    @property
    def fixed(self) -> bool:
        """Whether no scale is a rule any more, so that k(x, y) depends on x and y alone."""
        return True

    @property
    def anchored(self) -> bool:
        """Whether it has no origin that ``bind`` would move to the mean row."""
        return True

    def tiles(self, x: Tensor) -> Tiles:
        """Return a function of two ranges of rows that evaluates that block of the Gram matrix of x.

        What all blocks share is computed once.
        """
        return lambda rows, columns: self.gram(x[..., rows, :], x[..., columns, :])

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return factor sum_ij M_ij k(x_i, x_j), shape ``(...)``, for a constant M ``(n, n)``.

        M is symmetric and its rows sum to zero, so that a constant added to k changes nothing.
        """
        return (self.gram(x, x) * M).sum(dim=(-2, -1)) * factor

    def bind_inner(self, x: Tensor, M: Tensor, factor: float = 1.0, weights: Tensor | None = None) -> Tensor:
        """Return ``bind(x, weights).inner(x, M, factor)``, in one step where that costs less."""
        return self.bind(x, weights).inner(x, M, factor)

    def quadratic(self, x: Tensor, E: Tensor) -> Tensor:
        """Return e' K e for each row e of a constant E ``(a, n)``, shape ``(..., a)``."""
        return ((E @ self.gram(x, x)) * E).sum(dim=-1)

    def __add__(self, other: Kernel) -> Sum:
        return Sum(self, other)

    def __mul__(self, other: Kernel | float) -> Product | Scaled:
        if isinstance(other, Kernel):
            return Product(self, other)
        return Scaled(self, other)

    def __rmul__(self, other: float) -> Scaled:
        return Scaled(self, other)


@dataclass(frozen=True, eq=False)
class _Pair(Kernel, ABC):
    left: Kernel
    right: Kernel

    @property
    def fixed(self) -> bool:
        return self.left.fixed and self.right.fixed

    @property
    def anchored(self) -> bool:
        return self.left.anchored and self.right.anchored

    def bind(self, x: Tensor, weights: Tensor | None = None) -> Self:
        return type(self)(self.left.bind(x, weights), self.right.bind(x, weights))

    def calibrate(
        self,
        x: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
        freeze: bool = False,
    ) -> Self:
        return type(self)(
            self.left.calibrate(x, weights=weights, generator=generator, freeze=freeze),
            self.right.calibrate(x, weights=weights, generator=generator, freeze=freeze),
        )


class Sum(_Pair):
    """The sum of two kernels, written ``k + l``; characteristic as soon as one of them is.

    Examples
    --------
    >>> import torch
    >>> from frhsic.kernels import Gaussian, Linear
    >>> (Linear() + Gaussian(1.0)).gram(torch.ones(1, 2), torch.ones(1, 2)).item()
    3.0
    """

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the sum of both Gram matrices, shape ``(..., n, m)``."""
        return self.left.gram(a, b) + self.right.gram(a, b)

    def diagonal(self, x: Tensor) -> Tensor:
        """Return the sum of both diagonals, shape ``(..., n)``."""
        return self.left.diagonal(x) + self.right.diagonal(x)

    def tiles(self, x: Tensor) -> Tiles:
        """Return the sum of both blocks."""
        left, right = self.left.tiles(x), self.right.tiles(x)
        return lambda rows, columns: left(rows, columns) + right(rows, columns)

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return the sum of both forms, shape ``(...)``."""
        return self.left.inner(x, M, factor) + self.right.inner(x, M, factor)

    def bind_inner(self, x: Tensor, M: Tensor, factor: float = 1.0, weights: Tensor | None = None) -> Tensor:
        """Return the sum of both forms, shape ``(...)``."""
        return self.left.bind_inner(x, M, factor, weights) + self.right.bind_inner(x, M, factor, weights)

    @property
    def bound(self) -> float:
        """The sum of both bounds."""
        return self.left.bound + self.right.bound


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

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the entrywise product of both Gram matrices, shape ``(..., n, m)``."""
        return self.left.gram(a, b) * self.right.gram(a, b)

    def diagonal(self, x: Tensor) -> Tensor:
        """Return the product of both diagonals, shape ``(..., n)``."""
        return self.left.diagonal(x) * self.right.diagonal(x)

    def tiles(self, x: Tensor) -> Tiles:
        """Return the product of both blocks."""
        left, right = self.left.tiles(x), self.right.tiles(x)
        return lambda rows, columns: left(rows, columns) * right(rows, columns)

    @property
    def fixed(self) -> bool:
        """Whether both are, their origins too: centring does not take those out of a product."""
        return super().fixed and self.anchored

    @property
    def bound(self) -> float:
        """The product of both bounds."""
        return self.left.bound * self.right.bound


@dataclass(frozen=True, eq=False)
class _Around(Kernel, ABC):
    kernel: Kernel

    @property
    def fixed(self) -> bool:
        return self.kernel.fixed

    @property
    def anchored(self) -> bool:
        return self.kernel.anchored


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
        if not 0 < self.factor < float("inf"):
            raise ValueError(
                f"'factor' must be a positive number. Got {self.factor!r}. "
                "Multiply kernels by numbers above 0."
            )

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the scaled Gram matrix, shape ``(..., n, m)``."""
        return self.factor * self.kernel.gram(a, b)

    def diagonal(self, x: Tensor) -> Tensor:
        """Return the scaled diagonal, shape ``(..., n)``."""
        return self.factor * self.kernel.diagonal(x)

    def tiles(self, x: Tensor) -> Tiles:
        """Return the scaled blocks."""
        inside = self.kernel.tiles(x)
        return lambda rows, columns: self.factor * inside(rows, columns)

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return the scaled form of the kernel inside, shape ``(...)``."""
        return self.kernel.inner(x, M, factor * self.factor)

    def bind_inner(self, x: Tensor, M: Tensor, factor: float = 1.0, weights: Tensor | None = None) -> Tensor:
        """Return the scaled form of the kernel inside, shape ``(...)``."""
        return self.kernel.bind_inner(x, M, factor * self.factor, weights)

    def bind(self, x: Tensor, weights: Tensor | None = None) -> Scaled:
        """Bind the kernel inside."""
        return Scaled(self.kernel.bind(x, weights), self.factor)

    def calibrate(
        self,
        x: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
        freeze: bool = False,
    ) -> Scaled:
        """Calibrate the kernel inside."""
        inside = self.kernel.calibrate(x, weights=weights, generator=generator, freeze=freeze)
        return Scaled(inside, self.factor)

    @property
    def bound(self) -> float:
        """The factor times the bound of the kernel inside."""
        return self.factor * self.kernel.bound


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

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the Gram matrix of the chosen columns, shape ``(..., n, m)``."""
        return self.kernel.gram(self._take(a), self._take(b))

    def diagonal(self, x: Tensor) -> Tensor:
        """Return the diagonal of the kernel inside, shape ``(..., n)``."""
        return self.kernel.diagonal(self._take(x))

    def tiles(self, x: Tensor) -> Tiles:
        """Return the blocks of the kernel inside on the chosen columns."""
        return self.kernel.tiles(self._take(x))

    def inner(self, x: Tensor, M: Tensor, factor: float = 1.0) -> Tensor:
        """Return the form of the kernel inside on the chosen columns, shape ``(...)``."""
        return self.kernel.inner(self._take(x), M, factor)

    def bind(self, x: Tensor, weights: Tensor | None = None) -> OnColumns:
        """Bind the kernel inside to the chosen columns."""
        return OnColumns(self.kernel.bind(self._take(x), weights), self.columns)

    def calibrate(
        self,
        x: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
        freeze: bool = False,
    ) -> OnColumns:
        """Calibrate the kernel inside on the chosen columns."""
        inside = self.kernel.calibrate(self._take(x), weights=weights, generator=generator, freeze=freeze)
        return OnColumns(inside, self.columns)

    @property
    def bound(self) -> float:
        """The bound of the kernel inside."""
        return self.kernel.bound
