"""HSIC through finitely many features: a measure in linear time, and a sketch for any number of rows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from frhsic.data import (
    Kind,
    Label,
    Sensitive,
    check_aligned,
    split_labels,
    to_matrix,
    to_sensitive,
    to_vector,
    to_weights,
)
from frhsic.dependence._base import Dependence, checked_kernel
from frhsic.dependence.gdp import GDP
from frhsic.dependence.hsic import HSIC
from frhsic.kernels import Gaussian, Kernel, default_kernel
from frhsic.kernels.documents import describe_kernel, read_kernel
from frhsic.numerics._cells import Cells
from frhsic.numerics._centering import Estimator, check_estimator, refuse_few_rows
from frhsic.numerics._numeric import signed_root
from frhsic.numerics._products import Rows, feature_rows, hsic_of_sums, normalized_hsic, pair_rows
from frhsic.sketching._bytes import (
    fingerprint,
    pack,
    read_state,
    refusal,
    unpack,
    write_state,
)
from frhsic.sketching._maps import (
    feature_map,
)
from frhsic.sketching._state import MOST_SUMS, Moments, Plan, State, by_place

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Features of a side and columns of z, at most: bytes from elsewhere must not ask for any amount of memory.
_MOST = 4_096


class FeatureHSIC(Dependence):
    """HSIC of kernels that are inner products of features phi(z) and psi(s), in time linear in the rows.

    With weights w of sum one and means under them,

        HSIC_w = | sum_i w_i (phi_i - mean) (psi_i - mean)' |^2,

    close to :class:`HSIC` of the kernels that the features stand for: to 1e-7 for one Gaussian column on each
    side, to a few percent for several columns. Features of several columns are cosines along random
    orthogonal directions, always the same for the same ``random_state``.

    Parameters
    ----------
    kernel_z : Kernel, default=Gaussian("median")
        Gaussian, Laplace, InverseMultiquadric or Linear, multiples and sums of these, products of Gaussians.
    kernel_s : Kernel, default=default_kernel(kinds of s)
        The same, or such a kernel times Deltas on other columns, which are exact.
    n_features : tuple of int, default=(256, 64)
        Of z and of s, at most: one Gaussian column takes no more than 64.
    random_state : int, default=0
    estimator : {"biased", "unbiased"}, default="biased"
        As in :class:`HSIC`. With weights the unbiased form takes off what the biased one is on average at
        independence.
    normalized, root : bool, default=False
        As in :class:`HSIC`.

    Notes
    -----
    :meth:`moments` are sums over rows and :meth:`of_moments` is the value: for rows on several machines add
    up the moments of each, of a measure whose scales are calibrated with ``freeze=True``.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(-1, 1, 100, dtype=torch.float64)
    >>> round(FeatureHSIC(normalized=True)(s**2, s).item(), 2)
    0.32
    """

    kernel_z: Kernel

    def __init__(
        self,
        kernel_z: Kernel | None = None,
        kernel_s: Kernel | None = None,
        *,
        n_features: tuple[int, int] = (256, 64),
        random_state: int = 0,
        estimator: Estimator = "biased",
        normalized: bool = False,
        root: bool = False,
    ) -> None:
        super().__init__()
        check_estimator(estimator)
        self.kernel_z = checked_kernel(kernel_z, "kernel_z") or Gaussian()
        self.kernel_s = checked_kernel(kernel_s, "kernel_s")
        self.kernel_z.terms(None, 1.0, "kernel_z")  # ArgumentError if it has no features
        self.n_features = _checked_features(n_features)
        self.random_state = _checked_seed(random_state)
        self.estimator = estimator
        self.normalized = normalized
        self.root = root

    def cheap_rows(self, width: int, kinds: Sequence[Kind]) -> int:  # noqa: ARG002
        """Return many: the time is linear in n."""
        return 65_536

    @property
    def debiased(self) -> bool:
        """Whether the estimator is the U-statistic."""
        return self.estimator == "unbiased"

    @property
    def bounded_below(self) -> bool:
        """Whether no z makes the value arbitrarily negative."""
        return self.estimator == "biased" or self.normalized or self.kernel_z.bound < float("inf")

    def moments(self, z: Tensor, s: Tensor | Sensitive, weights: Tensor | None = None) -> tuple[Moments, ...]:
        """Return sums over rows from which the value follows: of (z, s) and, if normalised, (z, z), (s, s).

        Weights are taken as they are, equal ones as one.
        """
        z, s, _ = self._checked(z, s, weights)
        return self._moments(z, s, None if weights is None else weights[weights > 0].double())

    def of_moments(self, moments: Sequence[Moments]) -> Tensor:
        """Return the value, shape ``(...)``, for sums over all rows."""
        value, *selves = (hsic_of_sums(*one, self.estimator) for one in moments)
        if self.normalized:
            value = normalized_hsic(value, selves[0], selves[1], self.estimator)
        return signed_root(value) if self.root else value

    def _moments(self, z: Tensor, s: Sensitive, w: Tensor | None) -> tuple[Moments, ...]:
        X, Y, of_z, of_s = self._sides(z, s, w)
        return self._products(X, Y, of_z, of_s, w)

    def _products(
        self, X: Tensor, Y: Tensor, of_z: float | None, of_s: float | None, w: Tensor | None
    ) -> tuple[Moments, ...]:
        w = Y.new_ones(len(Y)) if w is None else w.to(Y)
        pairs = [(X, Y, of_z, of_s), (X, X, of_z, of_z), (Y, Y, of_s, of_s)][: 3 if self.normalized else 1]
        return tuple(
            Moments((w[:, None] * a).mT @ b, (w.square()[:, None] * a).mT @ b, of_a, of_b)
            for a, b, of_a, of_b in pairs
        )

    def _sides(
        self, z: Tensor, s: Sensitive, w: Tensor | None
    ) -> tuple[Tensor, Tensor, float | None, float | None]:
        """Return the augmented features of both sides in float64, and what is known of their norms."""
        z, x = z.double(), s.values.double()
        w = None if w is None else w.double() / w.double().sum()
        kernel_s = default_kernel(s.kinds) if self.kernel_s is None else self.kernel_s
        map_z = feature_map(
            self.kernel_z.bind(z, w), z.shape[-1], self.n_features[0], self.random_state, "kernel_z"
        )
        exact, rest, factor = kernel_s.bind(x, w).split_equality(x.shape[1])
        place, n_places = torch.zeros(len(x), dtype=torch.int64, device=x.device), 1
        for j in exact:
            values, codes = x[:, j].unique(return_inverse=True)
            place, n_places = place * len(values) + codes, n_places * len(values)
        if rest is None:
            own = factor**0.5 * torch.nn.functional.one_hot(place, n_places).to(x)
            Y = torch.cat((torch.ones_like(x[:, :1]), own), dim=1)
            return map_z.augmented(z), Y, map_z.diagonal, factor
        n_features = self.n_features[1] - 1
        map_s = feature_map(rest, x.shape[1], n_features, self.random_state, "kernel_s", factor)
        Y = by_place(map_s.augmented(x), place, n_places, map_s.width)
        return map_z.augmented(z), Y, map_z.diagonal, map_s.diagonal

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        refuse_few_rows(self.estimator, len(s))
        return self.of_moments(self._moments(z, s, w)).to(z.dtype)

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        if w is not None and not self.kernel_z.fixed:  # then the side of z, too, changes with the pairing
            return super()._permuted(z, s, permutations, w)
        refuse_few_rows(self.estimator, len(s))
        X, Y, of_z, of_s = self._sides(z, s, w)
        values = [
            self.of_moments(self._products(X, Y[order], of_z, of_s, None if w is None else w[order]))
            for order in permutations
        ]
        return torch.stack(values).to(z.dtype)

    def _calibrated(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        kernel_s = default_kernel(s.kinds) if self.kernel_s is None else self.kernel_s
        return self._with(
            kernel_z=self.kernel_z.calibrate(z, weights=w, generator=generator, freeze=freeze),
            kernel_s=kernel_s.calibrate(s.values, weights=w, generator=generator, freeze=freeze),
        )


@dataclass(frozen=True)
class FeatureError:
    """What the features cost, seen on the stored rows where the exact kernels can be evaluated too.

    Attributes
    ----------
    exact, features : float
        Debiased HSIC of the kernels and of the features, on the same rows.
    standard_error : float
        Of their difference as an estimate of that on all rows; zero when all rows are stored.
    rows : int
        The stored rows.
    """

    exact: float
    features: float
    standard_error: float
    rows: int

    @property
    def error(self) -> float:
        """The estimated error; what is left of it after subtraction has ``standard_error``."""
        return self.features - self.exact

    def interval(self, confidence_level: float = 0.95) -> tuple[float, float]:
        """Return limits for the error on all rows, for large numbers of stored rows."""
        if not 0 < confidence_level < 1:
            raise ValueError(
                f"'confidence_level' must lie between 0 and 1. Got {confidence_level}. Leave it out for 0.95."
            )
        reach = float(ndtri(0.5 + 0.5 * confidence_level)) * self.standard_error
        return self.error - reach, self.error + reach

    def __str__(self) -> str:
        share = f" ({100 * self.error / self.exact:+.2g} %)" if self.exact > 0 else ""
        return (
            f"On {self.rows:,} stored rows the features give {self.features:.4g} and the kernels "
            f"{self.exact:.4g}: an error of {self.error:+.2g}{share}, standard error "
            f"{self.standard_error:.2g}."
        )


class Law(NamedTuple):
    """The law of one column, at places along it."""

    places: Tensor  # (K,)
    mass: Tensor  # (K,), of sum one
    low: float  # the smallest value
    high: float  # the largest


@dataclass(frozen=True, eq=False)
class Line:
    """The law of s and the mean of z along it, at the levels of s or on a fine grid.

    Attributes
    ----------
    s : Sensitive
        The places, K rows.
    mass : Tensor of shape (K,)
        Their weights, of sum one.
    squared_mass : Tensor of shape (K,)
        The sums of squared weights of rows, of weights of sum one.
    mean, variance : Tensor of shape (K,), or None
        Of the rows at each place, for one column z.
    low, high : float
        The smallest and the largest number of s; zero without numbers.
    step : float
        The distance of places on a grid, whose rows are shared by the two around them; 0 for levels of s.
    """

    s: Sensitive
    mass: Tensor
    squared_mass: Tensor
    mean: Tensor | None
    variance: Tensor | None
    low: float
    high: float
    step: float

    @property
    def span(self) -> float:
        """The range of the numbers of s; 1 where there is none."""
        return self.high - self.low if self.high > self.low else 1.0

    @property
    def law(self) -> Law:
        """The law of s, of one column."""
        return Law(self.s.values[:, 0], self.mass, self.low, self.high)


class Stored(NamedTuple):
    """Rows of a sketch as they came: a random subsample, or all of them."""

    z: Tensor  # (m, d)
    s: Sensitive
    weights: Tensor  # (m,)


class HSICSketch:
    """HSIC of any number of rows in one pass and constant memory: sums of products of features.

    Two sketches of the same specification add up to the sketch of all their rows, on one machine or many.
    What is kept: sums over rows of phi(z) psi(s)' in float64, for each group of rows; at most 5,000 rows as
    they are; and, for one column z, its moments along s.

    Parameters
    ----------
    kernel_z : Kernel
        With numbers as bandwidths: Gaussian, Laplace, InverseMultiquadric or Linear, multiples and sums of
        these, products of Gaussians. :meth:`like` takes the scales from a sample.
    kernel_s : Kernel
        The same, times Deltas on categorical columns; any kernel for s of few levels (see Notes).
    n_features : tuple of int, default=(256, 64)
        Of z and of s, at most: one Gaussian column takes no more than 64 and is then exact to 1e-7.
    random_state : int, default=0
        Of the directions of features of several columns. Sketches that add up have the same.
    n_groups : int, default=20
        Groups of rows, at random by their ids, for intervals (see :meth:`without`).
    dtype : {"float32", "float64"}, default="float32"
        Of the features within blocks of 4,096 rows; sums are float64. float32 errs by about 1e-7 of the
        square root of HSIC and takes half the time.

    Notes
    -----
    Columns of s with at most 128 distinct numbers (ages), at most 256 combinations in all, and categories are
    kept level by level: the kernel of s is then exact whatever it is. Whether they are is decided by all rows
    together, in whichever order they come.

    Examples
    --------
    >>> import torch
    >>> from frhsic.kernels import Gaussian
    >>> age = torch.arange(18, 90).repeat(100)
    >>> a, b = (HSICSketch(Gaussian(0.3), Gaussian(20.0)).update((part - 54) ** 2 / 1296, part)
    ...         for part in age.split(4_000))
    >>> round((a + b).value(normalized=True), 2)
    0.35
    """

    def __init__(
        self,
        kernel_z: Kernel,
        kernel_s: Kernel,
        *,
        n_features: tuple[int, int] = (256, 64),
        random_state: int = 0,
        n_groups: int = 20,
        dtype: str = "float32",
    ) -> None:
        for name, kernel in (("kernel_z", kernel_z), ("kernel_s", kernel_s)):
            if checked_kernel(kernel, name) is None or not kernel.fixed:
                raise ValueError(
                    f"'{name}' must be a kernel with numbers as bandwidths: rows that come later must not "
                    f"change it. Got {kernel!r}. HSICSketch.like(z, s) takes the scales from a sample."
                )
        kernel_z.terms(None, 1.0, "kernel_z")  # ArgumentError if it has no features
        if not isinstance(n_groups, int) or not 2 <= n_groups <= 1_000:
            raise ValueError(
                f"'n_groups' must lie between 2 and 1,000. Got {n_groups!r}. Leave it out for 20."
            )
        of_z, of_s = self.n_features = _checked_features(n_features)
        if n_groups * (1 + of_z) * of_s > MOST_SUMS:
            raise ValueError(
                f"'n_features' must make at most {MOST_SUMS:,} sums, products of features for each group. "
                f"Got {n_groups} x {of_z} x {of_s}. Use fewer features or groups."
            )
        if dtype not in _DTYPES:
            raise ValueError(f"'dtype' must be 'float32' or 'float64'. Got {dtype!r}. Leave it out.")
        self.kernel_z = kernel_z
        self.kernel_s = kernel_s
        self.random_state = _checked_seed(random_state)
        self.n_groups = n_groups
        self.dtype = dtype
        describe_kernel(kernel_z), describe_kernel(kernel_s)  # what bytes cannot name is refused now
        self._plan: Plan | None = None
        self._states: dict[Label | None, State] = {}
        self._n_seen = 0
        self._grouped = False
        self._exact: Rows | None = None  # the stored rows under the kernels, once asked for

    @classmethod
    def like(
        cls,
        z: object,
        s: object,
        *,
        kernel_z: Kernel | None = None,
        kernel_s: Kernel | None = None,
        weights: object = None,
        n_features: tuple[int, int] = (256, 64),
        random_state: int = 0,
        n_groups: int = 20,
        dtype: str = "float32",
    ) -> Self:
        """Return an empty sketch whose kernels have their scales from a sample, as ``HSIC.calibrate``.

        The sample, some thousand rows, is not counted. Kernels default to those of :class:`HSIC`.
        """
        check_aligned(z=z, s=s, weights=weights)
        x = to_matrix(z, name="z", min_rows=2)
        sensitive = to_sensitive(s, name="s", n_rows=len(x), rows_of="z")
        w = to_weights(weights, n_rows=len(x), rows_of="z", name="weights")
        measure = HSIC(kernel_z, kernel_s).calibrate(x, sensitive, weights=w, freeze=True)
        return cls(
            measure.kernel_z,
            cast(Kernel, measure.kernel_s),
            n_features=n_features,
            random_state=random_state,
            n_groups=n_groups,
            dtype=dtype,
        )

    # Rows in

    def update(
        self,
        z: object,
        s: object,
        weights: object = None,
        *,
        given: object = None,
        ids: object = None,
        groups: object = None,
    ) -> Self:
        """Add rows, and return this sketch.

        Parameters
        ----------
        z : array or frame of shape (n,) or (n, d)
        s : array or frame of shape (n,) or (n, q)
            Always the same columns; categories may be new.
        weights : array of shape (n,), optional
        given : array of labels, optional
            Keep the rows of each label apart: see :attr:`labels` and :meth:`at`.
        ids : array of integers of shape (n,), optional
            What tells rows apart, such as the number of a contract. The stored rows and the groups are drawn
            by these, so they are the same in whichever order and parts the rows come. None counts the rows of
            this sketch, which is as good a draw.
        groups : array of integers or strings of shape (n,), optional
            What tells independent units apart, such as a customer number, where a unit may have several rows.
            All rows of a unit are then in one of the ``n_groups`` groups, and tests and intervals take these
            as what is independent. With all rows of a sketch or with none.
        """
        check_aligned(z=z, s=s, weights=weights, given=given, ids=ids, groups=groups)
        x = to_matrix(z, name="z")
        n = len(x)
        # The kernels fix the kinds; ``like`` has seen whether text is mostly numbers.
        rows = to_sensitive(
            s, name="s", n_rows=n, rows_of="z", min_rows=1, allow_constant=True, numeric_labels=True
        )
        w = None if weights is None else to_vector(weights, name="weights", n_rows=n, rows_of="z")
        if w is not None and bool((w < 0).any()):  # all may be zero: other rows come
            raise ValueError(
                f"'weights' must not be negative. Got {int((w < 0).sum())} negative ones. Set them to zero."
            )
        numbers = self._ids(ids, n)
        units = None if groups is None else _units(groups, n)
        if self._states and self._grouped != (units is not None):
            raise ValueError(
                "'groups' must come with all rows of a sketch or with none. "
                f"Got {'some after rows without' if units is not None else 'none after rows with groups'}. "
                "Make two sketches."
            )
        labels = None if given is None else split_labels(given, name="given", n_rows=n, rows_of="z").kept
        rows = self._planned(x, rows)
        if self._states and (None in self._states) == (given is not None):
            raise ValueError(
                "'given' must come with all rows of a sketch or with none. "
                f"Got {'labels after rows without' if given is not None else 'none after rows with labels'}. "
                "Make two sketches."
            )
        parts = [(None, None)] if labels is None else [(level.value, level.rows) for level in labels]
        for label, some in parts:
            kept = some
            if w is not None and bool((w == 0).any()):
                kept = (w > 0).nonzero()[:, 0] if some is None else some[w[some] > 0]
            state = self._states.get(label) or State(cast(Plan, self._plan))
            if kept is None:
                state.add(x, rows, w, numbers, units)
            elif len(kept):
                own = None if units is None else units[kept.numpy()]
                state.add(x[kept], rows[kept], None if w is None else w[kept], numbers[kept.numpy()], own)
            if int(state.counts.sum()):
                self._states[label] = state
        self._n_seen += n
        self._grouped = units is not None
        self._exact = None
        return self

    def _planned(self, z: Tensor, s: Sensitive) -> Sensitive:
        """Fix the columns on the first rows; return s with its columns in that order."""
        if z.shape[1] > _MOST:
            raise ValueError(
                f"'z' must have at most {_MOST:,} columns for a sketch. Got {z.shape[1]:,}. "
                "Sketch a score, or a narrower representation."
            )
        if self._plan is None:
            self._plan = Plan(
                self.kernel_z,
                self.kernel_s,
                self.n_features,
                self.random_state,
                self.n_groups,
                _DTYPES[self.dtype],
                z.shape[1],
                s.names,
                s.kinds,
            )
            self._plan.map_z  # noqa: B018  refuse now what has no features
        plan = self._plan
        if z.shape[1] != plan.width:
            raise ValueError(
                f"'z' must have {plan.width} columns as before. Got {z.shape[1]}. Make another sketch."
            )
        if set(s.names) == set(plan.names) and s.names != plan.names:
            s = s.columns(plan.names)
        if (s.names, s.kinds) != (plan.names, plan.kinds):
            raise ValueError(
                f"'s' must have the columns {_columns(plan.names, plan.kinds)} as before. "
                f"Got {_columns(s.names, s.kinds)}. Make another sketch."
            )
        return s

    def _ids(self, ids: object, n: int) -> NDArray[np.int64]:
        if ids is None:
            return np.arange(self._n_seen, self._n_seen + n, dtype=np.int64)
        array = np.asarray(ids)
        if array.shape != (n,) or array.dtype.kind not in "iu":
            raise ValueError(
                f"'ids' must be {n} integers, one for each row of 'z'. Got {array.dtype} of shape "
                f"{array.shape}. Number the rows, or turn other ids into integers."
            )
        return np.ascontiguousarray(array.astype(np.int64, copy=False))

    def __add__(self, other: HSICSketch) -> HSICSketch:
        """Return the sketch of the rows of both."""
        if not isinstance(other, HSICSketch):
            return NotImplemented
        self._refuse_other(other)
        total = self._empty()
        total._plan = self._plan or other._plan
        total._n_seen = self._n_seen + other._n_seen
        total._grouped = self._grouped or other._grouped
        total._states = {label: state.copy() for label, state in self._states.items()}
        for label, state in other._states.items():
            if label in total._states:
                total._states[label].merge(state)
            else:
                total._states[label] = state.copy()
        return total

    def _refuse_other(self, other: HSICSketch) -> None:
        mine, theirs = self.spec, other.spec
        if None not in (self._plan, other._plan):
            mine, theirs = ({**one.spec, "columns": one._columns()} for one in (self, other))
        if mine != theirs:
            differ = sorted(name for name in mine if mine[name] != theirs[name])
            raise ValueError(
                "'other' must be a sketch of the same specification. Got "
                + " and ".join(f"{ {name: one[name] for name in differ} }" for one in (mine, theirs))
                + ". Make both with the same kernels, features and columns."
            )
        if self._states and other._states and self._grouped != other._grouped:
            raise ValueError(
                "'other' must be a sketch of groups of rows as this one, or both without. Got one of each. "
                "Update both with 'groups' or both without."
            )
        if self._states and other._states and (None in self._states) != (None in other._states):
            raise ValueError(
                "'other' must be by levels of 'given' as this sketch, or both without. Got one of each. "
                "Update both with 'given' or both without."
            )

    def _empty(self) -> HSICSketch:
        return HSICSketch(
            self.kernel_z,
            self.kernel_s,
            n_features=self.n_features,
            random_state=self.random_state,
            n_groups=self.n_groups,
            dtype=self.dtype,
        )

    # In a validation loop, by the names of torchmetrics

    def compute(self) -> Tensor:
        """Return ``value(normalized=True)`` as a tensor."""
        return torch.tensor(self.value(normalized=True), dtype=torch.float64)

    def reset(self) -> None:
        """Forget all rows, and the columns that came."""
        self._plan, self._states, self._n_seen, self._exact, self._grouped = None, {}, 0, None, False

    def merge_state(self, other: HSICSketch) -> None:
        """Take up the rows of another sketch, which stays as it is."""
        total = self + other
        self._plan, self._states, self._n_seen = total._plan, total._states, total._n_seen
        self._grouped = total._grouped
        self._exact = None

    # What is in it

    @property
    def spec(self) -> dict[str, Any]:
        """What two sketches must have in common to add up, as JSON."""
        return {
            "kernel_z": describe_kernel(self.kernel_z),
            "kernel_s": describe_kernel(self.kernel_s),
            "n_features": list(self.n_features),
            "random_state": self.random_state,
            "n_groups": self.n_groups,
            "dtype": self.dtype,
        }

    def _columns(self) -> dict[str, Any] | None:
        plan = self._plan
        return (
            None if plan is None else {"z": plan.width, "names": list(plan.names), "kinds": list(plan.kinds)}
        )

    @property
    def n_rows(self) -> int:
        """Rows of positive weight so far."""
        return sum(int(state.counts.sum()) for state in self._states.values())

    @property
    def grouped(self) -> bool:
        """Whether rows came with ``groups``: rows of one unit may depend on one another."""
        return self._grouped

    @property
    def effective_rows(self) -> float:
        """The number of equally weighted rows that would be as precise, (sum w)^2 / sum w^2."""
        first, second, *_ = self._state().moments()
        return float(first[0, 0].square() / second[0, 0])

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of ``given``, in order; none without it."""
        labels = [label for label in self._states if label is not None]
        return tuple(sorted(labels, key=lambda label: (isinstance(label, str), label)))

    def at(self, label: Label) -> HSICSketch:
        """Return the sketch of the rows of one label of ``given``."""
        if label not in self.labels:
            raise ValueError(
                f"'label' must be one of {list(self.labels)[:5]}. Got {label!r}. "
                "Pass 'given' to update, and a label that occurred."
            )
        return self._of(self._states[label].copy())

    def without(self, group: int) -> HSICSketch:
        """Return the sketch without the rows of a group: the delete-a-group jackknife takes each in turn.

        For reading: rows that are added to it join all groups.
        """
        if not 0 <= group < self.n_groups:
            raise ValueError(
                f"'group' must lie between 0 and {self.n_groups - 1}. Got {group}. Take one of n_groups."
            )
        return self._of(self._state().without(group))

    def _of(self, state: State) -> HSICSketch:
        other = self._empty()
        other._plan, other._n_seen, other._states = self._plan, self._n_seen, {None: state}
        other._grouped = self._grouped
        return other

    @property
    def group_shares(self) -> Tensor:
        """The share of each group in the sum of weights, shape ``(n_groups,)``."""
        mass = self._state().sums[0, ..., 0, 0].reshape(self.n_groups, -1).sum(dim=1)
        return mass / mass.sum()

    def _state(self) -> State:
        """Return the sums of all rows, whatever their label."""
        if not self._states:
            raise ValueError("'update' must have brought rows before a sketch is read. Got none. Add rows.")
        if len(self._states) == 1:
            return next(iter(self._states.values()))
        first, *others = (self._states[label] for label in self.labels)
        return reduce(_merged, others, first)

    @property
    def stored(self) -> Stored:
        """At most 5,000 rows as they came: all of them, or a random subsample."""
        state = self._state()
        return Stored(state.sample.z, self._sensitive(state, state.sample.s), state.sample.w)

    def _repeated_ids(self) -> int:
        """Return how many stored rows share their id with another: ids that name people, not rows."""
        counts = self._state().sample.numbers.unique(return_counts=True)[1]
        return int(counts[counts > 1].sum())

    def _sensitive(self, state: State, values: Tensor) -> Sensitive:
        categories = tuple(tuple(x) if isinstance(x, list) else None for x in state.levels)
        return Sensitive(values, state.plan.names, state.plan.kinds, categories)

    # Numbers out

    def value(self, *, estimator: Estimator = "unbiased", normalized: bool = False) -> float:
        """Return HSIC of all rows.

        Parameters
        ----------
        estimator : {"unbiased", "biased"}, default="unbiased"
            As in :class:`FeatureHSIC`.
        normalized : bool, default=False
            Divide by the geometric mean of HSIC(Z, Z) and HSIC(S, S), by the same estimator. These come from
            all rows for levels of s and for one column (on a grid, to 1e-4 or so, unless it reaches further
            than a hundred bandwidths), else from the stored rows.
        """
        check_estimator(estimator)
        state = self._state()
        moments = state.moments()
        effective = float(moments.first[0, 0].square() / moments.second[0, 0])
        if estimator == "unbiased" and effective < 4.0 - 1e-9:
            raise ValueError(
                "'update' must have brought at least 4 rows for estimator='unbiased', of equal weight or as "
                f"good as these. Got {effective:.3g}. Add rows."
            )
        value = hsic_of_sums(*moments, estimator)
        if normalized:
            zz, ss = (hsic_of_sums(*one, estimator) for one in (state.moments_z(), state.moments_s()))
            value = normalized_hsic(value, zz, ss, estimator)
        return float(value)

    def gdp(self, bandwidth_s: float | None = None) -> float:
        """Return :class:`GDP` of one column z along s, in cells of s or smoothed by a fraction of its range.

        Exact at values of s that the sketch keeps apart; else rows are shared by the two nearest of 2,048
        places between the smallest and the largest s.
        """
        line = self.line()
        if line.mean is None:
            raise ValueError(
                f"'z' must be one column for GDP. Got {cast(Plan, self._plan).width}. Sketch a score."
            )
        if bandwidth_s is not None:
            return float(GDP(bandwidth_s, range_s=line.span)(line.mean[:, None], line.s, line.mass))
        cells = Cells.of(line.s, line.mass, self.effective_rows)
        return float(GDP()._with(_cells=cells)(line.mean[:, None], line.s, line.mass))

    def law_z(self) -> Law:
        """Return the law of one column z."""
        grid = self._state().scores
        if grid is None:
            raise ValueError(
                f"'z' must be one column to have a law along it. Got {cast(Plan, self._plan).width}. "
                "Sketch a score."
            )
        mass = grid.sums[0, ..., 0].sum(dim=0)
        return Law(grid.knots, mass / mass.sum(), grid.low, grid.high)

    @property
    def distinct(self) -> int | None:
        """How many different numbers or labels one column of s has; None where they are too many to tell."""
        known = self._state().levels
        return len(known[0]) if len(known) == 1 and known[0] is not None else None

    def line(self) -> Line:
        """Return the law of s and the mean of z along it."""
        state = self._state()
        plan, grid = state.plan, state.line
        if grid is None:
            raise ValueError(
                f"'s' must have at most one column of numbers to be put on a line. Got {len(plan.free)}. "
                "Sketch one at a time."
            )
        sums = grid.sums.sum(dim=1)  # (P, levels, K, 1 or 3)
        seen = sums[0, ..., 0] > 0
        values = torch.zeros((int(seen.sum()), len(plan.names)), dtype=torch.float64)
        fixed = (j for j in range(len(plan.names)) if j not in plan.free)
        for places, j in zip(seen.nonzero().T, (*fixed, *(plan.free or (None,))), strict=True):
            if j is not None:
                known = state.levels[j]
                values[:, j] = (
                    grid.knots[places]
                    if j in plan.free
                    else known[places]
                    if isinstance(known, Tensor)
                    else places.double()
                )
        first, second = sums[0][seen], sums[-1][seen]
        total = first[:, 0].sum()
        known_free = [state.levels[j] for j in plan.free]
        on_knots = [isinstance(x, Tensor) and bool(torch.isin(x, grid.knots).all()) for x in known_free]
        mean = variance = None
        if first.shape[1] == 3:
            mean = first[:, 1] / first[:, 0]
            variance = (first[:, 2] / first[:, 0] - mean.square()).clamp_min(0.0)
        return Line(
            s=self._sensitive(state, values),
            mass=first[:, 0] / total,
            squared_mass=second[:, 0] / total.square(),
            mean=mean,
            variance=variance,
            low=grid.low,
            high=grid.high,
            step=0.0 if all(on_knots) else 2.0**grid.exponent,
        )

    def error(self, *, normalized: bool = False) -> FeatureError:
        """Return what the features cost, on the stored rows, where the kernels are evaluated exactly."""
        state = self._state()
        z, s, w, n = *state.sample[1:4], int(state.counts.sum())
        m = len(z)
        if m < 4:
            raise ValueError(
                f"'ids' must tell rows apart, so that at least 4 can be stored. Got {m} stored of {n}. "
                "Use other ids, or none; or add rows."
            )
        w = w / w.sum()
        X, Y = state.plan.map_z.augmented(z), state.augmented_s(s)
        phi, psi = X[:, 1 : 1 + state.plan.map_z.width], Y[:, 1 : Y.shape[1] - (state.diagonal_s is None)]
        if self._exact is None:
            self._exact = pair_rows((self.kernel_z.bind(z, w), self.kernel_s.bind(s, w)), (z, s), w)
        exact = self._exact
        features = feature_rows(phi, psi, w)
        influence = features.influence(w, normalized) - exact.influence(w, normalized)
        spread = (w * influence).square().sum() * m / (m - 1) * (1.0 - m / n)
        return FeatureError(
            exact=exact.value(w, normalized),
            features=features.value(w, normalized),
            standard_error=math.sqrt(max(float(spread), 0.0)),
            rows=m,
        )

    # Bytes

    def to_bytes(self) -> bytes:
        """Return the sketch as a safetensors file: some megabytes, the same for the same sums."""
        tensors: dict[str, Tensor] = {}
        states = []
        for place, label in enumerate(self.labels or self._states):
            own, document = write_state(self._states[label])
            tensors |= {f"{place}.{name}": x for name, x in own.items()}
            states.append({"label": label, **document})
        if self._plan is not None:
            tensors["fingerprint"] = fingerprint(self._plan.map_z)
        document = {
            "spec": self.spec,
            "columns": self._columns(),
            "seen": self._n_seen,
            "states": states,
        } | ({"grouped": True} if self._grouped else {})
        return pack(tensors, document)

    @classmethod
    def from_bytes(cls, data: bytes, *, like: HSICSketch | None = None) -> HSICSketch:
        """Return the sketch that :meth:`to_bytes` wrote, or refuse.

        ``like`` refuses a sketch of another specification than that one.
        """
        tensors, document = unpack(data)
        try:
            spec = document["spec"]
            sketch = cls(
                read_kernel(spec["kernel_z"]),
                read_kernel(spec["kernel_s"]),
                n_features=tuple(spec["n_features"]),
                random_state=spec["random_state"],
                n_groups=spec["n_groups"],
                dtype=spec["dtype"],
            )
            sketch._read(tensors, document)
        except _OtherFrequenciesError:
            raise
        except Exception:  # whatever it is that such bytes lead to
            raise refusal("hold a whole sketch", "one whose parts do not fit together") from None
        if like is not None:
            like._refuse_other(sketch)
        return sketch

    def _read(self, tensors: dict[str, Tensor], document: dict[str, Any]) -> None:
        columns, seen, states = document["columns"], document["seen"], document["states"]
        if type(seen) is not int or seen < 0 or (columns is None) != (not states):
            raise ValueError
        self._n_seen = seen
        self._grouped = document.get("grouped", False)
        if type(self._grouped) is not bool:
            raise ValueError
        if columns is None:
            return
        width, names, kinds = columns["z"], tuple(columns["names"]), tuple(columns["kinds"])
        if type(width) is not int or not 1 <= width <= _MOST or not 1 <= len(names) <= 1_000:
            raise ValueError
        blank = torch.zeros((1, width), dtype=torch.float64)
        self._planned(blank, Sensitive(torch.zeros((1, len(names)), dtype=torch.float64), names, kinds))
        plan = cast(Plan, self._plan)
        own, found = fingerprint(plan.map_z), tensors.pop("fingerprint")
        near = 1e-9 * float(own.abs().sum())
        if own.shape != found.shape or not torch.allclose(own, found, rtol=0.0, atol=near):
            raise _OtherFrequenciesError(
                "'data' must hold a sketch with the frequencies that this machine draws. Got others. "
                "Use the same version of torch on all machines."
            )
        for place, entry in enumerate(states):
            label = entry["label"]
            if not isinstance(label, Label | None) or label in self._states:
                raise ValueError
            start = f"{place}."
            names_ = [name for name in tensors if name.startswith(start)]
            own_tensors = {name.removeprefix(start): tensors.pop(name) for name in names_}
            self._states[label] = read_state(plan, own_tensors, entry)
        if tensors or (len(states) > 1 and None in self._states):
            raise ValueError

    def __repr__(self) -> str:
        return (
            f"HSICSketch({self.kernel_z!r}, {self.kernel_s!r}, n_features={self.n_features}, "
            f"random_state={self.random_state}, n_rows={self.n_rows:,})"
        )


class _OtherFrequenciesError(ValueError):
    pass


def _units(groups: object, n: int) -> NDArray[np.int64]:
    """Return 64 bits for each label of a unit, the same on all machines."""
    array = np.asarray(groups)
    if array.shape != (n,) or (array.dtype.kind not in "iuOUT"):
        raise ValueError(
            f"'groups' must be {n} integers or strings, one for each row of 'z'. Got {array.dtype} of shape "
            f"{array.shape}. Pass the column that tells independent units apart, such as a customer number."
        )
    if array.dtype.kind in "iu":
        return np.ascontiguousarray(array.astype(np.int64, copy=False))
    labels, codes = np.unique(array.astype(str), return_inverse=True)
    bits = [
        int.from_bytes(hashlib.blake2b(x.encode(), digest_size=8).digest(), "little", signed=True)
        for x in labels
    ]
    return np.array(bits, dtype=np.int64)[codes.reshape(-1)]


def _merged(one: State, other: State) -> State:
    total = one.copy()
    total.merge(other)
    return total


def _columns(names: Sequence[str], kinds: Sequence[Kind]) -> str:
    return ", ".join(f"'{name}' ({kind})" for name, kind in zip(names, kinds, strict=True))


def _checked_features(n_features: Sequence[int]) -> tuple[int, int]:
    try:
        of_z, of_s = (int(n) for n in n_features)
        if min(of_z, of_s - 1) < 2 or max(of_z, of_s) > _MOST:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            f"'n_features' must be two numbers, of z from 2 and of s from 3 on, up to {_MOST:,}. "
            f"Got {n_features!r}. Leave it out for (256, 64)."
        ) from None
    return of_z, of_s


def _checked_seed(random_state: int) -> int:
    if isinstance(random_state, bool) or not isinstance(random_state, int) or not 0 <= random_state < 2**62:
        raise ValueError(
            "'random_state' must be an integer from 0 to 2**62, so that the same features are drawn again. "
            f"Got {random_state!r}. Leave it out for 0."
        )
    return random_state
