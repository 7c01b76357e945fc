"""The rows of a question, the options of an interval or a band, and checks of arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TypeVar

import torch
from torch import Tensor

import frhsic.data as data
from frhsic._checks import ArgumentError, check_confidence_level, check_draws
from frhsic.data import Sensitive
from frhsic.dependence import GDP, Dependence
from frhsic.numerics._smoothing import row_weights

# Standard errors and multipliers of fewer groups are not reliable.
MIN_GROUPS = 20

_Method = TypeVar("_Method")


@dataclass(frozen=True, eq=False)
class Observations:
    """Scores and sensitive columns of n rows, with their weights and groups."""

    z: Tensor  # (n, d)
    s: Sensitive
    w: Tensor | None = None  # (n,); None: equal
    groups: Tensor | None = None  # (n,), codes; rows of one group may depend on one another

    def __len__(self) -> int:
        return len(self.z)

    @classmethod
    def read(
        cls,
        scores: object,
        s: object,
        sample_weight: object = None,
        groups: object = None,
        *,
        min_rows: int = 8,
        one_column: bool = False,
    ) -> Observations:
        """Validate and convert the arguments of a public function."""
        if s is None:
            fix = "Pass s, or a sketch alone as 'scores'."
            raise ArgumentError("s", "be the sensitive columns of these rows", None, fix)
        data.check_aligned(scores=scores, s=s, sample_weight=sample_weight, groups=groups)
        z = (data.to_vector if one_column else data.to_matrix)(scores, name="scores", min_rows=min_rows)
        return cls(
            z[:, None] if one_column else z,
            data.to_sensitive(s, name="s", n_rows=len(z), rows_of="scores"),
            data.to_weights(sample_weight, n_rows=len(z), rows_of="scores"),
            data.to_groups(groups, n_rows=len(z), rows_of="scores"),
        )

    def take(self, rows: Tensor) -> Observations:
        """Return some of the rows, with weights of sum one; equal weights become None."""
        w = None if self.w is None else self.w[rows]
        if w is not None:
            # An exact sum: it does not depend on the order of the rows, nor does a table of them.
            w = None if bool((w == w[0]).all()) else w / math.fsum(w.tolist())
        groups = None if self.groups is None else self.groups[rows].unique(return_inverse=True)[1]
        return Observations(self.z[rows], self.s[rows], w, groups)

    def drop_zero_weights(self, min_rows: int = 8) -> Observations:
        """Return the rows of positive weight; raise ArgumentError if they or their groups are too few."""
        rows = self
        if self.w is not None:
            present = self.w > 0
            check_positive(int(present.sum()), min_rows)
            rows = self.take(present)
        count = MIN_GROUPS if rows.groups is None else int(rows.groups.max()) + 1
        if count < MIN_GROUPS:
            must = f"be at least {MIN_GROUPS}, which are then the independent units"
            fix = "Pass more groups; independence_test takes fewer."
            raise ArgumentError("groups", must, count, fix)
        return rows

    @property
    def weights(self) -> Tensor:
        """The weights of the rows, shape ``(n,)``."""
        return row_weights(self.s, self.w)

    @property
    def n_units(self) -> int:
        """The number of independent units: groups, or rows."""
        return len(self) if self.groups is None else int(self.groups.max()) + 1

    @property
    def effective_units(self) -> float:
        """The number of equally weighted units that would be as precise."""
        return effective_units(self.weights, self.groups)


@dataclass(frozen=True, eq=False)
class IntervalOptions:
    """The options of an interval or a band."""

    confidence_level: float
    n_draws: int
    generator: torch.Generator
    chance: bool = False

    @classmethod
    def read(
        cls, confidence_level: float, n_draws: int, random_state: object, chance: bool = False
    ) -> IntervalOptions:
        """Validate and convert the arguments of a public function."""
        check_confidence_level(confidence_level)
        check_draws(n_draws)
        return cls(confidence_level, n_draws, data.to_generator(random_state), chance)

    def summarize(self, draws: Tensor | None) -> tuple[float | None, float | None]:
        """Return the mean of draws and their quantile at the confidence level."""
        if draws is None:
            return None, None
        return float(draws.mean()), float(draws.quantile(self.confidence_level))


def find_method(methods: Mapping[type[Dependence], _Method], measure: object) -> _Method:
    """Return the method of a measure; raise TypeError if there is none for its type."""
    for kind in type(measure).__mro__:
        if kind in methods:
            return methods[kind]
    *names, last = (kind.__name__ for kind in methods)
    fix = "Leave it out for normalised HSIC."
    raise TypeError(f"'dependence' must be {', '.join(names)} or {last}. Got {type(measure).__name__}. {fix}")


def check_cells(measure: object) -> None:
    """Raise ArgumentError for a mean gap that is smoothed along s: the smoothed curve is not the true one."""
    if isinstance(measure, GDP) and measure.bandwidth_s is not None:
        must = "have no 'bandwidth_s' here: means are those at each value of s, or within ranges"
        raise ArgumentError("dependence", must, repr(measure.bandwidth_s), "Leave it out: GDP().")


def effective_units(w: Tensor, units: Tensor | None) -> float:
    """Return the number of equal units that would be as precise: one over the sum of their squared shares."""
    if units is not None:
        w = w.new_zeros(int(units.max()) + 1).index_add(0, units, w)
    return 1.0 / float(w.square().sum())


def unit_errors(share: Tensor, deviations: Tensor, unit: Tensor) -> tuple[Tensor, float]:
    """Return the error of a weighted mean by unit, and its degrees of freedom.

    The squares of the errors add up to the variance of the mean, as large as of a mean that is known.
    """
    count = int(unit.max()) + 1
    part = share.new_zeros(count).index_add(0, unit, share * deviations)
    m = 1.0 / float(share.new_zeros(count).index_add(0, unit, share).square().sum())
    return part * (m / max(m - 1.0, 0.5)) ** 0.5, max(m - 1.0, 1.0)


def welch_degrees(variances: Sequence[float], degrees: Sequence[float]) -> float:
    """Return the degrees of freedom of a sum of estimated variances, by Welch and Satterthwaite."""
    spread = sum(v * v / m for v, m in zip(variances, degrees, strict=True))
    return max(min(degrees), sum(variances) ** 2 / max(spread, 1e-300))  # never fewer than the fewest


def check_positive(count: int, min_rows: int) -> None:
    """Raise ArgumentError if too few rows have a positive weight."""
    if count < min_rows:
        raise ArgumentError("sample_weight", f"be positive in at least {min_rows} rows", count, "Pass more.")


def check_permutations(count: object) -> None:
    """Raise TypeError or ArgumentError unless ``n_permutations`` is an integer of at least 19."""
    if isinstance(count, bool) or not isinstance(count, Integral):
        raise TypeError(f"'n_permutations' must be an integer. Got {type(count).__name__}. Take 999.")
    if int(count) < 19:
        raise ArgumentError("n_permutations", "be at least 19, or p is always above 0.05", count, "Take 999.")


def check_one_column(s: Sensitive, purpose: str, name: str = "s") -> None:
    """Raise ArgumentError if there are several sensitive columns."""
    if len(s.names) != 1:
        fix = f"Draw one {purpose} for each column."
        raise ArgumentError(name, f"be one column for a {purpose}", len(s.names), fix)


def check_one_score(rows: Observations, purpose: str) -> None:
    """Raise ArgumentError if there are several columns of scores."""
    if rows.z.shape[1] != 1:
        fix = "Pass one score; of several classes each by itself."
        raise ArgumentError("scores", f"be one column for {purpose}", rows.z.shape[1], fix)


def check_sketch_alone(**arguments: object) -> None:
    """Raise ArgumentError if an argument is passed that a sketch already holds."""
    for name, value in arguments.items():
        if value is not None:
            must = "be left out beside a sketch, which holds rows, weights and kernels"
            fix = "Pass the sketch alone; sketch.at(label) is that of one label."
            raise ArgumentError(name, must, type(value).__name__, fix)
