"""What the sums of a sketch are sums of: kernels, their features, and columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from frhsic._checks import ArgumentError
from frhsic.data import Kind, Sensitive
from frhsic.kernels import Kernel
from frhsic.sketching._maps import FeatureMap, feature_map

# Up to so many distinct numbers in a column of s, and so many combinations of all columns, sums are kept for
# each and the kernel of s is exact: ages from 0 to 120, or from 17 to 90 for each of three categories.
MOST_VALUES, MOST_CELLS = 128, 256
# The most sums of products of features: 134 MB.
MOST_SUMS = 2**24
# Features of a side and columns of z, at most: bytes from elsewhere must not ask for any amount of memory.
MOST_FEATURES = 4_096


@dataclass(frozen=True, eq=False)
class Plan:
    """Kernels, features and the columns of the first rows."""

    kernel_z: Kernel
    kernel_s: Kernel
    n_features: tuple[int, int]
    random_state: int
    n_groups: int
    dtype: torch.dtype
    width: int  # of z
    names: tuple[str, ...]  # of s
    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        if self.width > MOST_FEATURES:
            must = f"have at most {MOST_FEATURES:,} columns for a sketch"
            fix = "Sketch a score, or a narrower representation."
            raise ArgumentError("z", must, f"{self.width:,}", fix)
        seen = {
            (j, kernel.by_equality)
            for kernel, columns in self.kernel_s.parts()
            for j in (range(len(self.names)) if columns is None else columns)
        }
        if max(j for j, _ in seen) >= len(self.names):
            got, fix = f"{len(self.names)} for {self.kernel_s!r}", "Pass them all, or another kernel."
            raise ArgumentError("s", "have the columns that 'kernel_s' looks at", got, fix)
        unseen = set(range(len(self.names))) - {j for j, _ in seen}
        if unseen:
            got = f"{self.kernel_s!r}, blind to {self.names[min(unseen)]!r}"
            raise ArgumentError("kernel_s", "look at all columns of 's'", got, "Leave that column out.")
        wrong = [self.names[j] for j, equality in seen if self.kinds[j] == "categorical" and not equality]
        if wrong:
            must = "be Delta() on categories, whose codes mean nothing"
            got = f"{self.kernel_s!r} for the column {wrong[0]!r}"
            raise ArgumentError("kernel_s", must, got, "HSICSketch.like makes kernels that fit.")
        self.map_z  # noqa: B018  raises if 'kernel_z' has too few features

    @property
    def columns(self) -> dict[str, Any]:
        return {"z": self.width, "names": list(self.names), "kinds": list(self.kinds)}

    @cached_property
    def map_z(self) -> FeatureMap:
        return feature_map(self.kernel_z, self.width, self.n_features[0], self.random_state, "kernel_z")

    @cached_property
    def split(self) -> tuple[tuple[int, ...], Kernel | None, float]:
        """The columns compared by equality alone, the kernel of the others, and a factor."""
        return self.kernel_s.split_equality(len(self.names))

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The columns of s whose values are kept apart only while they are few."""
        return tuple(j for j in range(len(self.names)) if j not in self.split[0])

    @cached_property
    def map_s(self) -> FeatureMap:
        """The features of the free columns; one of ``n_features`` is the constant."""
        _, rest, factor = self.split
        assert rest is not None  # noqa: S101
        n_features = self.n_features[1] - 1
        return feature_map(rest, len(self.names), n_features, self.random_state, "kernel_s", factor)

    def match(self, width: int, s: Sensitive) -> Sensitive:
        """Return s with its columns in the order of the plan; raise ArgumentError if z or s has others."""
        if width != self.width:
            raise ArgumentError("z", f"have {self.width} columns as before", width, "Make another sketch.")
        if set(s.names) == set(self.names) and s.names != self.names:
            s = s.columns(self.names)
        if (s.names, s.kinds) != (self.names, self.kinds):
            before, now = (
                ", ".join(f"'{name}' ({kind})" for name, kind in zip(one.names, one.kinds, strict=True))
                for one in (self, s)
            )
            raise ArgumentError("s", f"have the columns {before} as before", now, "Make another sketch.")
        return s

    def too_many(self, sizes: Mapping[int, int]) -> bool:
        """Return whether columns with so many values each must be replaced by features."""
        return bool(self.free) and (
            any(sizes[j] > MOST_VALUES for j in self.free) or math.prod(sizes.values()) > MOST_CELLS
        )


def check_n_features(n_features: Sequence[int], n_groups: int = 0) -> tuple[int, int]:
    """Return the numbers of features of z and of s, with not too many products for all groups."""
    try:
        of_z, of_s = (int(n) for n in n_features)
        if min(of_z, of_s - 1) < 2 or max(of_z, of_s) > MOST_FEATURES:
            raise ValueError
    except (TypeError, ValueError):
        must = f"be two numbers, of z from 2 and of s from 3 on, up to {MOST_FEATURES:,}"
        raise ArgumentError("n_features", must, repr(n_features), "Leave it out for (256, 64).") from None
    if n_groups * (1 + of_z) * of_s > MOST_SUMS:
        must = f"make at most {MOST_SUMS:,} sums, products of features for each group"
        got = f"{n_groups} x {of_z} x {of_s}"
        raise ArgumentError("n_features", must, got, "Use fewer features or groups.")
    return of_z, of_s


def check_seed(random_state: int) -> int:
    """Return an integer from which the same features are drawn again."""
    if isinstance(random_state, bool) or not isinstance(random_state, int) or not 0 <= random_state < 2**62:
        must = "be an integer from 0 to 2**62, so that the same features are drawn again"
        raise ArgumentError("random_state", must, repr(random_state), "Leave it out for 0.")
    return random_state
