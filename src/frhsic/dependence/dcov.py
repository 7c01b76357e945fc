"""Distance covariance and correlation: HSIC on the energy kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Kind, Sensitive
from frhsic.dependence._base import Dependence
from frhsic.dependence.hsic import HSIC
from frhsic.kernels import Delta, Energy, Kernel
from frhsic.numerics._centering import Estimator
from frhsic.numerics._numeric import signed_root
from frhsic.numerics._products import debiased, normalized_hsic
from frhsic.numerics._tiles import TILE


class DistanceCovariance(Dependence):
    """Squared distance covariance of Z and S, 4 HSIC on the energy kernel; no bandwidth to choose.

    dCov^2 = 4 HSIC with k(x, y) = (|x| + |y| - |x - y|) / 2 on both sides. It is zero in the population
    exactly under independence, when Z and S have first moments.

    Parameters
    ----------
    normalized : bool, default=False
        Squared distance correlation instead.
    estimator : {"biased", "unbiased"}, default="biased"
    root : bool, default=False
        The (signed) square root: distance covariance, or distance correlation with ``normalized``.
    whiten : bool, default=False
        Whiten Z first: affinely invariant in Z.
    block_size : int or None, default=None
        As in :class:`HSIC`.

    Notes
    -----
    Without gradients one column of Z and one of S, or categories, take n log n above 512 rows, not n^2.

    Categories in S enter with the discrete metric, all columns together. Continuous and categorical columns
    do not mix here, because sums of metrics do not characterise joint independence: use :class:`HSIC`.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(-1, 1, 100, dtype=torch.float64)
    >>> round(DistanceCovariance(normalized=True, root=True)(s**2, s).item(), 2)
    0.49
    """

    def __init__(
        self,
        *,
        normalized: bool = False,
        estimator: Estimator = "biased",
        root: bool = False,
        whiten: bool = False,
        block_size: int | None = None,
    ) -> None:
        super().__init__()
        self.normalized = normalized
        self.estimator = estimator
        self.root = root
        self.whiten = whiten
        self.block_size = block_size
        self._hsic(("continuous",))  # so that wrong arguments raise here

    @property
    def debiased(self) -> bool:
        """Whether the estimator is the U-statistic."""
        return self.estimator == "unbiased"

    @property
    def bounded_below(self) -> bool:
        """Whether no z makes the value arbitrarily negative; see :class:`~frhsic.HSIC`."""
        return self._hsic(("continuous",)).bounded_below

    def _hsic(self, kinds: tuple[str, ...]) -> HSIC:
        if set(kinds) == {"continuous", "categorical"}:
            raise ArgumentError(
                "s",
                "have columns of one kind for DistanceCovariance",
                "continuous and categorical ones",
                "Measure them one by one, or all together with HSIC.",
            )
        kernel_s: Kernel = Energy() if kinds[0] == "continuous" else 0.5 * Delta()
        # 4 HSIC = dCov^2: a factor 4 on one kernel, which cancels when normalised.
        return HSIC(
            4.0 * Energy(self.whiten),
            kernel_s,
            estimator=self.estimator,
            normalized=self.normalized,
            root=self.root,
            block_size=self.block_size,
        )

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        hsic = self._hsic(s.kinds)
        if torch.is_grad_enabled() and z.requires_grad:
            return hsic._value(z, s, w)
        if len(s) <= TILE or self.block_size is not None or not _on_lines(z.shape[-1], s.kinds):
            return hsic._value(z, s, w)
        hsic._refuse_weights(w)
        share = z.new_full((len(s),), 1.0 / len(s), dtype=torch.float64) if w is None else w.double()
        values = []
        for x in z.reshape(-1, len(s), 1):
            a = sortable(hsic.kernel_z.bind(x, w), x)
            b = sortable(hsic._kernel_s(s).bind(s.values, w), s.values)
            assert a is not None  # noqa: S101
            assert b is not None  # noqa: S101
            value = _hsic(a, b, share, self.estimator)
            if self.normalized:
                zz, ss = (_hsic(side, side, share, self.estimator) for side in (a, b))
                value = normalized_hsic(value, zz, ss, self.estimator)
            values.append(value)
        stack = torch.stack(values).reshape(z.shape[:-2])
        return (signed_root(stack) if self.root else stack).to(z.dtype)

    def cheap_rows(self, width: int, kinds: Sequence[Kind]) -> int:
        """Return many for one column each, which are sorted; else distances are taken pair by pair."""
        return 65_536 if _on_lines(width, kinds) and self.block_size is None else 512

    def beyond_chance(
        self, z: Tensor, s: Tensor | Sensitive, order: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return the U-statistic where there is one, else see :class:`Dependence`; a root has none."""
        if weights is not None or self.root:
            return super().beyond_chance(z, s, order, weights)
        return self._with(estimator="unbiased")(z, s)

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        return self._hsic(s.kinds)._permuted(z, s, permutations, w)


# ---- in n log n ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Line:
    """One column under a multiple of the energy kernel, which centring takes for -factor |x - y| / 2."""

    x: Tensor  # (n,), near zero
    factor: float

    @cached_property
    def order(self) -> Tensor:
        """The rows along the column."""
        return self.x.argsort()

    def times(self, v: Tensor) -> Tensor:
        """Return sum_j K_ij v_j, shape ``(n,)``, from running sums along the sorted column."""
        x, v = self.x[self.order], v[self.order]
        upto, moment = v.cumsum(0), (x * v).cumsum(0)
        found = torch.empty_like(x)
        found[self.order] = x * (2.0 * upto - upto[-1]) - (2.0 * moment - moment[-1])
        return -0.5 * self.factor * found

    @property
    def diagonal(self) -> Tensor:
        """K_ii."""
        return torch.zeros_like(self.x)


@dataclass(frozen=True, eq=False)
class Labels:
    """Categories under a multiple of the delta kernel."""

    code: Tensor  # (n,), from zero on
    factor: float

    def times(self, v: Tensor) -> Tensor:
        """Return sum_j L_ij v_j, shape ``(n,)``."""
        return self.factor * v.new_zeros(int(self.code.max()) + 1).index_add(0, self.code, v)[self.code]

    @property
    def diagonal(self) -> Tensor:
        """L_ii."""
        return torch.full_like(self.code, self.factor, dtype=torch.float64)


Side = Line | Labels


def is_sortable(kernel: Kernel, width: int) -> bool:
    """Return whether a kernel sees rows of so many columns as a line or as labels."""
    kernel, _ = kernel.unscaled()
    return kernel.by_equality or (kernel.by_distance and width == 1)


def sortable(kernel: Kernel, x: Tensor) -> Side | None:
    """Return the rows as a line or as labels, where a bound kernel sees them so: then no pairs are formed."""
    if not is_sortable(kernel, x.shape[1]):
        return None
    kernel, factor = kernel.unscaled()
    if kernel.by_equality:
        return Labels(x.unique(dim=0, return_inverse=True)[1], factor)
    return Line(kernel.standard_rows(x.double())[:, 0], factor)


def centred_products(a: Side, b: Side, w: Tensor) -> Tensor:
    """Return sum_j w_j K~_ij L~_ij, shape ``(n,)``, for matrices centred by weights w of sum one.

    Rows of K~ have the weighted sum zero, so centring L changes sum_j w_j K~_ij L_ij by its row means alone:
    one sum over pairs, and sums of each matrix with the row means of the other.
    """
    k, m = a.times(w), b.times(w)
    pairs = _products(a, b, w) - a.times(w * m) - b.times(w * k) + (w * k) @ m
    return pairs - (k - w @ k) * (m - w @ m)


def _on_lines(width: int, kinds: Sequence[Kind]) -> bool:
    """Return whether both sides are numbers on a line or categories."""
    return width == 1 and (len(kinds) == 1 or set(kinds) == {"categorical"})


def _hsic(a: Side, b: Side, w: Tensor, estimator: Estimator) -> Tensor:
    """Return HSIC of two sides."""
    biased = w @ centred_products(a, b, w)
    if estimator == "biased":
        return biased
    d, e, second = centred_diagonal(a, w), centred_diagonal(b, w), w.square()
    return debiased(biased, second @ (d * e), second @ d, second @ e, 1.0 / second.sum())


def centred_diagonal(a: Side, w: Tensor) -> Tensor:
    """Return K~_ii, shape ``(n,)``."""
    k = a.times(w)
    return a.diagonal - 2.0 * k + w @ k


def _products(a: Side, b: Side, w: Tensor) -> Tensor:
    """Return sum_j w_j K_ij L_ij, shape ``(n,)``."""
    if isinstance(a, Labels) and isinstance(b, Labels):
        both = torch.stack((a.code, b.code), dim=1).unique(dim=0, return_inverse=True)[1]
        return Labels(both, a.factor * b.factor).times(w)
    if isinstance(a, Labels):
        return _products(b, a, w)
    if isinstance(b, Labels):
        found = torch.empty_like(w)
        for code in range(int(b.code.max()) + 1):
            rows = b.code == code
            found[rows] = Line(a.x[rows], a.factor * b.factor).times(w[rows])
        return found
    factor = 0.25 * a.factor * b.factor
    if a is b:
        return factor * (a.x.square() - 2.0 * a.x * (w @ a.x) + w @ a.x.square())
    return factor * _distance_products(a.x, b.x, w)


def _distance_products(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Return sum_j w_j |x_i - x_j| |y_i - y_j|, shape ``(n,)``, in n log n (Huo and Székely, 2016).

    The product is (x_i - x_j)(y_i - y_j) with the sign (2p - 1)(2q - 1), where p says that j comes before i
    along x and q that it lies lower in y; ties make the product zero, whatever their sign.
    """
    order = x.argsort()
    x, y, w = x[order], y[order], w[order]
    terms = torch.stack((w, w * x, w * y, w * x * y))  # (4, n)
    levels, level = y.unique(return_inverse=True)
    sums = _before_and_below(level, len(levels), terms).mul_(4.0)
    lower = terms.new_zeros((4, len(levels))).index_add(1, level, terms).cumsum(1)
    lower = torch.nn.functional.pad(lower, (1, -1))
    for term, below, total in zip(terms, lower, sums, strict=True):  # one by one, for the memory of many rows
        total -= 2.0 * (below[level] + term.cumsum(0) - term)
        total += term.sum()
    found = torch.empty_like(x)
    found[order] = x * y * sums[0] - y * sums[1] - x * sums[2] + sums[3]
    return found


def _before_and_below(level: Tensor, n_levels: int, terms: Tensor) -> Tensor:
    """Return the sums of terms ``(4, n)`` over those that come before and have a lower level.

    From the highest bit of the level down, entries stand in groups of equal higher bits, each in the first
    order: those before and below first differ from an entry in a bit that it has and they have not.
    """
    n = len(level)
    first = torch.nn.functional.pad(torch.bincount(level, minlength=n_levels).cumsum(0), (1, 0))
    entry = position = torch.arange(n)
    terms, found = terms.clone(), torch.zeros_like(terms)  # in the order of the positions, for the cache
    for bit in reversed(range(max(n_levels - 1, 1).bit_length())):
        high = (level >> bit) & 1 == 1
        at = high.nonzero().squeeze(1)
        start = first[(level >> (bit + 1)) << (bit + 1)]
        # Within its group, an entry without the bit goes behind those without it before, and so on.
        zeros = torch.nn.functional.pad((~high).long().cumsum(0), (1, 0))
        without = zeros[:-1] - zeros[start]
        middle = first[(((level >> bit) | 1) << bit).clamp_max(n_levels)]
        target = torch.where(high, middle + position - start - without, start + without)
        source = torch.empty_like(target).scatter_(0, target, position)
        for term, sums in zip(terms, found, strict=True):  # one by one, for the memory of many rows
            upto = torch.nn.functional.pad(torch.where(high, 0.0, term).cumsum(0), (1, 0))
            sums[at] += upto[at] - upto[start[at]]
            term.copy_(term[source])
            sums.copy_(sums[source])
        level, entry = level[source], entry[source]
    return torch.empty_like(found).index_copy_(1, entry, found)
