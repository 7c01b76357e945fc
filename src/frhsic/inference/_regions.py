"""The one-sided question about a region of S: whether the mean score there is below that of the others."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from scipy.special import stdtr, stdtrit
from torch import Tensor

import frhsic.data as data
from frhsic._checks import ArgumentError
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
    check_permutations,
    unit_errors,
    welch_degrees,
)
from frhsic.inference._results import RegionResult
from frhsic.numerics._permutations import random_orders
from frhsic.numerics._threads import one_thread

# Fewer rows (or groups) on one side have no standard error to speak of.
MIN_SIDE = 5
# Up to so many rows these are also permuted; above, the laws of the means are normal but for their skewness.
_PERMUTED_ROWS = 20_000


@one_thread()
def region_test(
    scores: object,
    region: object,
    *,
    side: Literal["below", "above"] = "below",
    confidence_level: float = 0.95,
    n_permutations: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> RegionResult:
    """Ask whether the mean score in a region is below (or above) that of the other rows.

    Region and side are to be chosen before the rows are looked at: the level is for that one question.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Scores; of decisions, 1.0 where the score is above the cut-off.
    region : array-like of bool of shape (n,)
        Whether each row lies in the region, such as ``age >= 62``.
    side : {"below", "above"}, default="below"
        What is asked about the region; the null hypothesis is that it is not so.
    confidence_level : float, default=0.95
        Of the interval of the difference, which has two sides.
    n_permutations : int, default=999
    random_state : int, generator or None
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), optional
        Which rows may depend on one another, such as those of one person; groups are independent.

    Returns
    -------
    RegionResult

    Notes
    -----
    t is the difference of the means over its standard error (Welch's), and p the larger of two: the tail of
    Student's law at g(t) = t + c t^2 / 3 + c^2 t^3 / 27 + c / 6 with c the skewness of the difference (Hall,
    1992, which takes off the error that skewed scores make), and the share of permutations of the region with
    a t as extreme, which is exact if scores have one law in and outside. Permutations need up to 20,000 rows
    of equal weight without groups. With 15 to 30 rows in the region, and scores there that are skewed while
    those of the others are not, p <= 0.05 was seen in up to 12 % of samples of equal means.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(18, 90, 1_000)
    >>> score = rng.uniform(size=1_000) - 0.2 * (age >= 62)
    >>> region_test(score, age >= 62, side="below", random_state=0).pvalue
    0.001
    """
    if side not in ("below", "above"):
        raise ArgumentError(
            "side", "be 'below' or 'above'", repr(side), "Say what is asked about the region."
        )
    options = IntervalOptions.read(confidence_level, 999, random_state)
    check_permutations(n_permutations)
    data.check_aligned(scores=scores, region=region, sample_weight=sample_weight, groups=groups)
    rows = Observations.read(scores, _labels(region), sample_weight, groups, one_column=True)
    rows = rows.drop_zero_weights()
    inside = rows.s.values[:, 0] == float(rows.s.values.max())
    found = _difference(rows, inside)
    sign = 1.0 if side == "below" else -1.0
    pvalue = float(stdtr(found.degrees, sign * found.corrected))
    method = "Student's law, corrected for skewness"
    if rows.groups is None and rows.w is None and len(rows) <= _PERMUTED_ROWS:
        orders = random_orders(len(rows), n_permutations, options.generator)
        t = _studentized(rows.z[:, 0], inside, orders)
        as_extreme = int((sign * t <= sign * found.t + 1e-12).sum())
        pvalue = max(pvalue, (1.0 + as_extreme) / (n_permutations + 1.0))
        method += f", and {n_permutations} permutations"
    tail = 0.5 * (1.0 - confidence_level)
    low, high = (found.shift(float(stdtrit(found.degrees, p))) for p in (1.0 - tail, tail))
    return RegionResult(
        side=side,
        difference=found.difference,
        low=low,
        high=high,
        pvalue=pvalue,
        confidence_level=confidence_level,
        inside=found.inside,
        outside=found.outside,
        n_inside=int(inside.sum()),
        n_outside=int((~inside).sum()),
        method=method,
    )


def _labels(region: object) -> object:
    """Return a region as one categorical column; raise ArgumentError unless it is one of two sides."""
    if region is None:
        raise ArgumentError(
            "region", "say for each row whether it lies in the region", None, "Pass age >= 62."
        )
    column = data.to_vector(region, name="region", min_rows=1)
    if bool(((column != 0.0) & (column != 1.0)).any()):
        raise ArgumentError("region", "be true or false in each row", "other values", "Pass age >= 62.")
    for name, count in (("inside", int(column.sum())), ("outside", int((1.0 - column).sum()))):
        if count < MIN_SIDE:
            must = f"have at least {MIN_SIDE} rows on each side"
            raise ArgumentError("region", must, f"{count} {name}", "Take another region.")
    return column.numpy()


class _Difference(NamedTuple):
    inside: float
    outside: float
    error: float
    skewness: float
    degrees: float

    @property
    def difference(self) -> float:
        return self.inside - self.outside

    @property
    def t(self) -> float:
        return self.difference / self.error if self.error > 0 else 0.0

    @property
    def corrected(self) -> float:
        """Hall's transform of t: a cube, so that it rises everywhere."""
        c = self.skewness
        if abs(c) < 1e-6:
            return self.t
        return ((1.0 + c * self.t / 3.0) ** 3 - 1.0) / c + c / 6.0

    def shift(self, quantile: float) -> float:
        """Return the difference that would lie at this quantile."""
        c = self.skewness
        if abs(c) < 1e-6:
            return self.difference - self.error * quantile
        cube = 1.0 + c * (quantile - c / 6.0)
        root = abs(cube) ** (1.0 / 3.0) * (1.0 if cube >= 0 else -1.0)
        return self.difference - self.error * 3.0 / c * (root - 1.0)


def _difference(rows: Observations, inside: Tensor) -> _Difference:
    """Return the difference of the means, its standard error and skewness, by sums over units."""
    f, w, groups = rows.z[:, 0], rows.weights, rows.groups
    unit = torch.arange(len(f)) if groups is None else groups
    means, parts, free = [], [], []
    for mask in (inside, ~inside):
        share = torch.where(mask, w, 0.0)
        share = share / share.sum()
        means.append(float(share @ f))
        found = unit_errors(share, f - means[-1], unit)
        parts.append(found[0])
        free.append(found[1])
    psi = parts[0] - parts[1]
    variance = float(psi.square().sum())
    skewness = float(psi.pow(3).sum()) / variance**1.5 if variance > 0 else 0.0
    degrees = welch_degrees([float(part.square().sum()) for part in parts], free)
    return _Difference(means[0], means[1], variance**0.5, skewness, degrees)


def _studentized(f: Tensor, inside: Tensor, orders: Tensor) -> Tensor:
    """Return Welch's t for permutations of the rows, ``(B,)``."""
    f = (f - f.mean()) / f.std().clamp_min(1e-300)
    total, squares, n, k = f.sum(), f.square().sum(), len(f), int(inside.sum())
    rows = inside.nonzero().squeeze(1)
    found = []
    for part in orders.split(max(1, 4_000_000 // n)):
        x = f[part[:, rows]]
        a, b = x.sum(dim=1), x.square().sum(dim=1)
        c, d, m = total - a, squares - b, n - k
        spread = (b - a * a / k) / (k * (k - 1.0)) + (d - c * c / m) / (m * (m - 1.0))
        found.append((a / k - c / m) / spread.clamp_min(1e-30).sqrt())
    return torch.cat(found)
