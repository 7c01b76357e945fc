"""HSIC of any number of rows in one pass."""

from __future__ import annotations

from copy import copy
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._tensorfile import TensorFileError
from frhsic.data import (
    Label,
    Sensitive,
    check_aligned,
    split_labels,
    to_matrix,
    to_sensitive,
    to_vector,
    to_weights,
)
from frhsic.dependence import HSIC
from frhsic.kernels import Kernel, check_kernel
from frhsic.kernels.documents import describe_kernel, read_kernel
from frhsic.numerics._centering import Estimator, check_estimator
from frhsic.numerics._products import Rows, hsic_of_sums, normalized_hsic
from frhsic.sketching._adding import add_rows
from frhsic.sketching._bytes import pack_states, read_states, unpack_sketch
from frhsic.sketching._error import FeatureError, exact_rows, feature_error
from frhsic.sketching._feature_sums import FeatureSums
from frhsic.sketching._plan import Plan, check_n_features, check_seed
from frhsic.sketching._rows import Stored, read_ids, read_units
from frhsic.sketching._state import State, merge_states, sort_labels

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


class HSICSketch:
    """HSIC of any number of rows in one pass and constant memory: sums of products of features.

    Two sketches of the same specification add up to the sketch of all their rows, on one machine or many.
    What is kept: sums over rows of phi(z) psi(s)' in float64, for each group of rows; the weight along one
    column of z and of s; and at most 5,000 rows as they are.

    Parameters
    ----------
    kernel_z : Kernel
        With numbers as bandwidths: Gaussian, Laplace, InverseMultiquadric or Linear, multiples and sums of
        these, products of Gaussians. :meth:`like` takes the scales from a sample.
    kernel_s : Kernel
        The same, times Deltas on categorical columns; any kernel for s of few values (see Notes).
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
    Sums are kept for each category, and for each value of columns with at most 128 distinct numbers (ages),
    at most 256 combinations in all: the kernel of s is then exact. Whether values are few is decided by all
    rows together, in any order.

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
            if check_kernel(kernel, name) is None or not kernel.fixed:
                must = "be a kernel with numbers as bandwidths: rows that come later must not change it"
                fix = "HSICSketch.like(z, s) takes the scales from a sample."
                raise ArgumentError(name, must, repr(kernel), fix)
        kernel_z.terms(None, 1.0, "kernel_z")  # ArgumentError if it has no features
        if not isinstance(n_groups, int) or not 2 <= n_groups <= 1_000:
            raise ArgumentError("n_groups", "lie between 2 and 1,000", repr(n_groups), "Leave it out for 20.")
        if dtype not in _DTYPES:
            raise ArgumentError("dtype", "be 'float32' or 'float64'", repr(dtype), "Leave it out.")
        self.kernel_z = kernel_z
        self.kernel_s = kernel_s
        self.n_features = check_n_features(n_features, n_groups)
        self.random_state = check_seed(random_state)
        self.n_groups = n_groups
        self.dtype = dtype
        describe_kernel(kernel_z), describe_kernel(kernel_s)  # raises now if bytes cannot name it
        self._plan: Plan | None = None
        self._states: dict[Label | None, State] = {}
        self._n_seen = 0
        self._grouped = False
        self._exact: Rows | None = None  # the stored rows under the kernels, once needed

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
        kernels = (measure.kernel_z, cast(Kernel, measure.kernel_s))
        return cls(
            *kernels,
            n_features=n_features,
            random_state=random_state,
            n_groups=n_groups,
            dtype=dtype,
        )

    # Rows

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
            got = f"{int((w < 0).sum())} negative ones"
            raise ArgumentError("weights", "not be negative", got, "Set them to zero.")
        numbers = np.arange(n, dtype=np.int64) + self._n_seen if ids is None else read_ids(ids, n)
        units = None if groups is None else read_units(groups, n)
        self._check_beside("groups", units is not None, self._grouped)
        labels = None if given is None else split_labels(given, name="given", n_rows=n, rows_of="z").kept
        rows = self._plan_columns(x.shape[1], rows)
        self._check_beside("given", given is not None, None not in self._states)
        parts = [(None, torch.arange(n))] if labels is None else [(part.value, part.rows) for part in labels]
        for label, some in parts:
            kept = some if w is None else some[w[some] > 0]
            if not len(kept):
                continue
            state = self._states.get(label) or State(cast(Plan, self._plan))
            if len(kept) == n:
                add_rows(state, x, rows, w, numbers, units)
            else:
                at, own = kept.numpy(), None if w is None else w[kept]
                add_rows(state, x[kept], rows[kept], own, numbers[at], None if units is None else units[at])
            self._states[label] = state
        self._n_seen += n
        self._grouped = units is not None
        self._exact = None
        return self

    def _check_beside(self, argument: str, now: bool, before: bool) -> None:
        """Raise ArgumentError if only some of the rows come with an argument."""
        if self._states and now != before:
            got = "some after rows without" if now else f"none after rows with '{argument}'"
            must = "come with all rows of a sketch or with none"
            raise ArgumentError(argument, must, got, "Make two sketches.")

    def _plan_columns(self, width: int, s: Sensitive) -> Sensitive:
        """Fix the columns on the first rows; return s with its columns in that order."""
        if self._plan is None:
            fixed = (self.kernel_z, self.kernel_s, self.n_features, self.random_state, self.n_groups)
            self._plan = Plan(*fixed, _DTYPES[self.dtype], width, s.names, s.kinds)
        return self._plan.match(width, s)

    def __add__(self, other: HSICSketch) -> HSICSketch:
        """Return the sketch of the rows of both."""
        if not isinstance(other, HSICSketch):
            return NotImplemented
        self._check_same(other)
        states = {
            label: merge_states([one._states[label] for one in (self, other) if label in one._states])
            for label in {**self._states, **other._states}
        }
        n_seen, grouped = self._n_seen + other._n_seen, self._grouped or other._grouped
        return self._with(self._plan or other._plan, states, n_seen, grouped)

    def _with(
        self, plan: Plan | None, states: dict[Label | None, State], n_seen: int, grouped: bool
    ) -> HSICSketch:
        """Return a sketch of the same specification with other contents."""
        other = copy(self)
        other._plan, other._states, other._n_seen, other._grouped = plan, states, n_seen, grouped
        other._exact = None
        return other

    def _check_same(self, other: HSICSketch) -> None:
        """Raise ArgumentError if the two cannot be added up."""
        mine, theirs = self.spec, other.spec
        if self._plan is not None and other._plan is not None:
            mine["columns"], theirs["columns"] = self._plan.columns, other._plan.columns
        if mine != theirs:
            differ = sorted(name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name))
            got = " and ".join(f"{ {name: one.get(name) for name in differ} }" for one in (mine, theirs))
            fix = "Make both with the same kernels, features and columns."
            raise ArgumentError("other", "be a sketch of the same specification", got, fix)
        if not self._states or not other._states:
            return
        for argument, what, one, two in (
            ("groups", "a sketch of groups of rows as", self._grouped, other._grouped),
            ("given", "by labels of 'given' as", None in self._states, None in other._states),
        ):
            if one != two:
                fix = f"Update both with '{argument}' or both without."
                raise ArgumentError("other", f"be {what} this one, or both without", "one of each", fix)

    # In a validation loop, by the names of torchmetrics

    def compute(self) -> Tensor:
        """Return ``value(normalized=True)`` as a tensor."""
        return torch.tensor(self.value(normalized=True), dtype=torch.float64)

    def reset(self) -> None:
        """Forget all rows and their columns."""
        vars(self).update(vars(self._with(None, {}, 0, grouped=False)))

    def merge_state(self, other: HSICSketch) -> None:
        """Add the rows of another sketch, which stays as it is."""
        vars(self).update(vars(self + other))

    # Contents

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

    @property
    def n_rows(self) -> int:
        """Rows of positive weight so far."""
        return sum(state.n_rows for state in self._states.values())

    @property
    def grouped(self) -> bool:
        """Whether rows came with ``groups``: rows of one unit may depend on one another."""
        return self._grouped

    @property
    def effective_rows(self) -> float:
        """The number of equally weighted rows that would be as precise, (sum w)^2 / sum w^2."""
        first, second, *_ = self.feature_sums().moments()
        return float(first[0, 0].square() / second[0, 0])

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of ``given``, in order; none without it."""
        return tuple(sort_labels(label for label in self._states if label is not None))

    def at(self, label: Label) -> HSICSketch:
        """Return the sketch of the rows of one label of ``given``."""
        if label not in self.labels:
            fix = "Pass 'given' to update, and a label that occurred."
            raise ArgumentError("label", f"be one of {list(self.labels)[:5]}", repr(label), fix)
        return self._of(self._states[label].copy())

    def without(self, group: int) -> HSICSketch:
        """Return the sketch without the rows of a group: the delete-a-group jackknife takes each in turn.

        For reading: rows that are added to it join all groups.
        """
        if not 0 <= group < self.n_groups:
            must = f"lie between 0 and {self.n_groups - 1}"
            raise ArgumentError("group", must, group, "Take one of n_groups.")
        return self._of(self._total().without(group))

    def _of(self, state: State) -> HSICSketch:
        return self._with(self._plan, {None: state}, self._n_seen, self._grouped)

    @property
    def group_shares(self) -> Tensor:
        """The share of each group in the sum of weights, shape ``(n_groups,)``."""
        mass = self._total().sums[0, ..., 0, 0].reshape(self.n_groups, -1).sum(dim=1)
        return mass / mass.sum()

    def _total(self) -> State:
        """Return the sums of all rows, whatever their label."""
        if not self._states:
            raise ArgumentError("update", "have brought rows before a sketch is read", "none", "Add rows.")
        if len(self._states) == 1:
            return next(iter(self._states.values()))
        return merge_states([self._states[label] for label in self.labels])

    def feature_sums(self) -> FeatureSums:
        """Return the sums over all rows of features and of their products, for tests and intervals."""
        return FeatureSums(self._total())

    @property
    def stored(self) -> Stored:
        """At most 5,000 rows as they were passed: all of them, or a random subsample."""
        state = self._total()
        return Stored(state.sample.z, state.sensitive(state.sample.s), state.sample.w)

    @property
    def repeated_ids(self) -> int:
        """How many stored rows share their id with another: such ids name people, not rows."""
        counts = self._total().sample.numbers.unique(return_counts=True)[1]
        return int(counts[counts > 1].sum())

    @property
    def masses(self) -> Tensor | None:
        """The weight of each value of one column of s, which sum to one; None where these are too many."""
        state = self._total()
        if len(state.values) > 1 or state.values[0] is None:
            return None
        mass = state.sums[0, ..., 0, 0].sum(dim=0)
        return mass / mass.sum()

    @property
    def distinct(self) -> int | None:
        """How many different numbers or categories one column of s has; None where they are too many."""
        known = self._total().values
        return len(known[0]) if len(known) == 1 and known[0] is not None else None

    # Results

    def value(self, *, estimator: Estimator = "unbiased", normalized: bool = False) -> float:
        """Return HSIC of all rows.

        Parameters
        ----------
        estimator : {"unbiased", "biased"}, default="unbiased"
            As in :class:`FeatureHSIC`.
        normalized : bool, default=False
            Divide by the geometric mean of HSIC(Z, Z) and HSIC(S, S), by the same estimator. These come from
            all rows for categories and few values of s and for one column (on a grid, to 1e-4 or so, unless
            it reaches further than a hundred bandwidths), else from the stored rows.
        """
        check_estimator(estimator)
        sums = self.feature_sums()
        moments = sums.moments()
        effective = float(moments.first[0, 0].square() / moments.second[0, 0])
        if estimator == "unbiased" and effective < 4.0 - 1e-9:
            must = "have brought at least 4 rows for estimator='unbiased', or weighted rows worth as many"
            raise ArgumentError("update", must, f"{effective:.3g}", "Add rows.")
        value = hsic_of_sums(*moments, estimator)
        if normalized:
            zz, ss = (hsic_of_sums(*one, estimator) for one in (sums.z.products(), sums.s.products()))
            value = normalized_hsic(value, zz, ss, estimator)
        return float(value)

    def error(self, *, normalized: bool = False) -> FeatureError:
        """Return the error of the features, on the stored rows, where the kernels are evaluated exactly."""
        state = self._total()
        if self._exact is None:
            self._exact = exact_rows(state, self.kernel_z, self.kernel_s)
        return feature_error(state, self._exact, normalized=normalized)

    # Bytes

    def to_bytes(self) -> bytes:
        """Return the sketch as a safetensors file: some megabytes, the same for the same sums."""
        columns = None if self._plan is None else self._plan.columns
        document = {"spec": self.spec, "columns": columns, "seen": self._n_seen}
        states = {label: self._states[label] for label in self.labels or self._states}
        return pack_states(self._plan, states, document | ({"grouped": True} if self._grouped else {}))

    @classmethod
    def from_bytes(cls, data: bytes, *, like: HSICSketch | None = None) -> HSICSketch:
        """Return the sketch that :meth:`to_bytes` wrote.

        Raises ``ValueError`` for any other bytes and, given ``like``, for a sketch of another specification.
        """
        tensors, document = unpack_sketch(data)
        try:
            spec = document["spec"]
            sketch = cls(**spec | {name: read_kernel(spec[name]) for name in ("kernel_z", "kernel_s")})
            sketch._read(tensors, document)
        except TensorFileError:
            raise
        except Exception:  # whatever such bytes lead to
            got = "one whose parts do not fit together"
            raise TensorFileError("data", "hold a whole sketch", got) from None
        if like is not None:
            like._check_same(sketch)
        return sketch

    def _read(self, tensors: dict[str, Tensor], document: dict[str, Any]) -> None:
        columns, seen, states = document["columns"], document["seen"], document["states"]
        grouped = document.get("grouped", False)
        counted = type(seen) is int and seen >= 0 and type(grouped) is bool
        if not counted or (columns is None) != (not states):
            raise ValueError
        self._n_seen, self._grouped = seen, grouped
        if columns is not None:
            width, names, kinds = columns["z"], tuple(columns["names"]), tuple(columns["kinds"])
            if type(width) is not int or width < 1 or not 1 <= len(names) <= 1_000:
                raise ValueError
            blank = torch.zeros((1, len(names)), dtype=torch.float64)
            self._plan_columns(width, Sensitive(blank, names, kinds))
            self._states = read_states(cast(Plan, self._plan), tensors, states)

    def __repr__(self) -> str:
        return (
            f"HSICSketch({self.kernel_z!r}, {self.kernel_s!r}, n_features={self.n_features}, "
            f"random_state={self.random_state}, n_rows={self.n_rows:,})"
        )
