"""What a kernel is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.kernels.spectral import SpectralLaw

if TYPE_CHECKING:
    from frhsic.kernels._composed import Product, Scaled, Sum

Columns = tuple[int, ...]
Parts = Iterator[tuple["Kernel", Columns | None]]
Factors = Iterator[tuple["Kernel | None", Columns, float]]
Tiles = Callable[[slice, slice], Tensor]


class Term(NamedTuple):
    """One summand of a kernel: a factor times a linear kernel, or times radial ones on their columns."""

    factor: float
    law: SpectralLaw | None  # None: linear
    sides: tuple[tuple[tuple[int, ...], Kernel], ...]


class Kernel(ABC):
    """A symmetric positive definite similarity k(x, y) of rows x and y, as an immutable value.

    A scale may be a number or a rule on data. ``calibrate`` turns the rules that stand outside the graph
    (``"median"``) into numbers once; ``bind`` resolves all that is left on the sample at hand, inside the
    graph (``"scale-free"``, ``whiten=True``), and is what the dependence measures call at each evaluation.

    A kernel also says what others need to know of it: ``bound``, ``lipschitz`` and ``is_standard`` for
    certificates, ``terms`` for features, ``split_equality`` for sums by category. What a subclass does not
    declare is taken to be unknown.

    Examples
    --------
    >>> from frhsic.kernels import Gaussian, Linear
    >>> (Gaussian(1.0) + Linear()).bound
    inf
    """

    @abstractmethod
    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return K_ij = k(a_i, b_j), shape ``(..., n, m)``, for a ``(..., n, d)`` and b ``(..., m, d)``."""

    @abstractmethod
    def diagonal(self, x: Tensor) -> Tensor:
        """Return k(x_i, x_i), shape ``(..., n)``."""

    def bind(self, x: Tensor, weights: Tensor | None = None) -> Kernel:  # noqa: ARG002
        """Return this kernel with every rule resolved on the rows of x, differentiably where the rule is."""
        return self

    def calibrate(
        self,
        x: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,  # noqa: ARG002
        freeze: bool = False,
    ) -> Kernel:
        """Return this kernel with its data-dependent scales fixed on the rows of x ``(..., n, d)``.

        Rules that are differentiable by design (``"scale-free"``, ``whiten=True``) stay rules unless
        ``freeze``.
        """
        return self.bind(x.detach(), weights) if freeze else self

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

    @property
    def is_standard(self) -> bool:
        """Whether k >= 0 and k(x, x) is the same for all x."""
        return False

    @property
    def has_linear(self) -> bool:
        """Whether linear functions are in its RKHS."""
        return False

    by_equality = False
    """Whether it is one for equal rows and zero for others."""

    by_distance = False
    """Whether centring leaves -|x - y| / 2 of it, for rows that ``standard_rows`` returns."""

    @property
    def row_rule(self) -> str | None:
        """The rule, if any, that needs the rows themselves and not only their means and variances."""
        return None

    @property
    def lipschitz(self) -> float:
        """The least known l with |k(x, .) - k(y, .)| <= l |x - y| for all x and y, in the norm of the RKHS.

        ArgumentError where there is none: the feature maps of Laplace and energy kernels are only Hölder of
        order 1/2, and a bandwidth that is a rule has none yet.
        """
        must = "have a Lipschitz feature map and numbers as bandwidths"
        fix = "Use Gaussian, Matern or InverseMultiquadric kernels, fixed with calibrate(..., freeze=True)."
        raise ArgumentError("kernel", must, repr(self), fix)

    def standard_rows(self, x: Tensor) -> Tensor:
        """Return the rows that a simple kernel compares: moved, whitened, over the bandwidth."""
        return x

    @property
    def plain_rate(self) -> float | None:
        """The number by which ``standard_rows`` multiplies, if it does nothing else."""
        return None

    def parts(self, columns: Columns | None = None) -> Parts:
        """Yield the simple kernels that it is made of, with the columns that each of them sees.

        None: all that there are.
        """
        yield self, columns

    def unscaled(self) -> tuple[Kernel, float]:
        """Return a kernel of which this one is a multiple, and the factor."""
        return self, 1.0

    def terms(self, columns: Columns | None, factor: float, name: str) -> list[Term]:  # noqa: ARG002
        """Return its summands with features on these columns; None: on all that there may be.

        ArgumentError about the argument ``name`` if it has none.
        """
        must = (
            "be Gaussian, Laplace, Matern, InverseMultiquadric or Linear, a multiple or sum of these, or a "
            "product of Gaussians: others have no features here"
        )
        raise ArgumentError(name, must, repr(self), "Use HSIC, which takes any.")

    def split_equality(self, width: int) -> tuple[Columns, Kernel | None, float]:
        """Return the columns that a product compares by equality alone, the rest of it, and its factor.

        None: there is no rest. A Delta inside a sum is not taken out.
        """
        from frhsic.kernels._composed import OnColumns

        exact: set[int] = set()
        rest: list[Kernel] = []
        total = 1.0
        for kernel, columns, factor in self._factors(tuple(range(width))):
            total *= factor
            if kernel is not None and kernel.by_equality:
                exact.update(columns)
            elif kernel is not None:
                rest.append(OnColumns(kernel, columns))
        return tuple(sorted(exact)), reduce(mul, rest) if rest else None, total

    def _factors(self, columns: Columns) -> Factors:
        """Yield the factors of a product: kernels with their columns, and numbers (None: no kernel)."""
        yield self, columns, 1.0

    @property
    def is_exponential(self) -> bool:
        """Whether it is exp(-|x - y|^2 / 2) of ``standard_rows``: then so are products of such kernels."""
        return False

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
        from frhsic.kernels._composed import Sum

        return Sum(self, other)

    def __mul__(self, other: Kernel | float) -> Product | Scaled:
        from frhsic.kernels._composed import Product, Scaled

        return Product(self, other) if isinstance(other, Kernel) else Scaled(self, other)

    __rmul__ = __mul__


def check_kernel(kernel: Kernel | None, name: str) -> Kernel | None:
    """Return the kernel; raise TypeError if it is none."""
    if kernel is not None and not isinstance(kernel, Kernel):
        raise TypeError(
            f"'{name}' must be a kernel or None. Got {kernel!r}. "
            "Take one of frhsic.kernels, such as Gaussian(1.0)."
        )
    return kernel
