"""GDP: the mean absolute gap between the conditional and the overall mean of a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Kind, Sensitive, check_finite
from frhsic.dependence._base import Dependence
from frhsic.numerics._cells import Cells
from frhsic.numerics._smoothing import (
    bandwidths_of,
    check_bandwidth,
    check_range,
    log_kernel,
    ranges_of,
    row_weights,
    smoothing_weights,
)

# Up to this many rows all pairs are smoothed exactly; above, rows are first gathered on levels or knots.
_EXACT_ROWS = 4_096
_EXACT_LEVELS = 2_048
# Knots per bandwidth and reach of the smoothing in bandwidths: linear binning errs by (1/64)^2 / 8 of the
# curvature, and exp(-8^2/2) is 1e-14.
_KNOTS = 64
_REACH = 8
_MOST_KNOTS = 4_000_000
# Permutations are evaluated in chunks of about this many numbers (32 MB).
_CHUNK = 4_000_000


class GDP(Dependence):
    """Generalized demographic parity: the mean over S of |E[f | S] - E[f]| of a prediction f.

    Equation ``GDP`` of the paper with f in place of f(Z). Unless a bandwidth is given, E[f | S] is the mean
    of f within cells C of S,

        GDP = sum_C P(C) |E[f | C] - E[f]|,

    each value of S by itself where it has few values for its rows (at most 100, of 20 rows on average), else
    about 2 n^(1/3) ranges of equally many rows. With single values it is the GDP of the true curve. With
    ranges it is at most that, whatever the curve (Jensen's inequality), and equal to it but for ranges within
    which the curve crosses the overall mean.

    Parameters
    ----------
    bandwidth_s : float or None, default=None
        A number smooths along S instead: a Nadaraya-Watson estimate with a Gaussian kernel, whose bandwidth
        is this fraction of the *range* of S. It is the form of the published scripts, for training as they
        do; where S is skewed or has outliers it smooths the curve away. Intervals, tests and audits take
        means within cells alone.
    weighting : {"population", "grid"}, default="population"
        The law of the outer mean: that of S (the paper's text), or equally spaced points between the smallest
        and the largest S (the published scripts), for which a bandwidth is needed.
    n_grid : int, default=50
        Number of those points.
    range_s : float or None, default=None
        The range that ``bandwidth_s`` is a fraction of; None takes it from the sample, and ``calibrate``
        fixes it, and with it the ends of the grid. With a number they stay those of each sample, as in the
        published penalty, whose grid runs between the extremes of each batch.

    Notes
    -----
    Several columns of predictions are averaged, so the two columns of ``predict_proba`` give the GDP of one.
    ``calibrate`` fixes the cells. Several continuous columns of S share the number of ranges.

    With a bandwidth, one continuous column of S, alone or with categories, takes linear time above 4,096
    rows: exactly when it has at most 2,048 distinct values, else by linear binning on 64 knots per bandwidth,
    with an error below 1e-4 of the range of f. Several continuous columns take quadratic time.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(0, 1, 200, dtype=torch.float64)
    >>> round(GDP()(s, s).item(), 2)
    0.25
    """

    def __init__(
        self,
        bandwidth_s: float | None = None,
        *,
        weighting: Literal["population", "grid"] = "population",
        n_grid: int = 50,
        range_s: float | None = None,
    ) -> None:
        super().__init__()
        if weighting not in ("population", "grid"):
            raise ArgumentError(
                "weighting", "be 'population' or 'grid'", repr(weighting), "Leave it out for 'population'."
            )
        if n_grid < 2:
            raise ArgumentError("n_grid", "be at least 2", n_grid, "The published scripts use 50.")
        self.bandwidth_s = None if bandwidth_s is None else check_bandwidth(bandwidth_s)
        if bandwidth_s is None and (weighting == "grid" or range_s is not None):
            raise ArgumentError(
                "bandwidth_s",
                "be a number for weighting='grid' and for 'range_s': without one nothing is smoothed",
                "None",
                "Take 0.1 for the published tenth of the range.",
            )
        self.weighting = weighting
        self.n_grid = n_grid
        self.range_s = check_range(range_s)
        self._ranges: tuple[float, ...] | None = None
        self._ends: tuple[float, float] | None = None
        self._cells: Cells | None = None

    def cheap_rows(self, width: int, kinds: Sequence[Kind]) -> int:
        """Return many where the time is linear in n: in cells, or smoothed along one continuous column."""
        linear = self.bandwidth_s is None or kinds.count("continuous") <= 1
        return 65_536 if linear else super().cheap_rows(width, kinds)

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        w = row_weights(s, w)
        for _ in range(2):  # gaps first, or an offset would cost digits; the second round is for float32
            z = z - (w[:, None] * z).sum(dim=-2, keepdim=True)
        if self.bandwidth_s is None:
            return _in_cells(self.cells(s, w).codes(s), w, z)
        bandwidths = bandwidths_of(s, self.bandwidth_s, self.range_s, self._ranges)
        if self.weighting == "grid":
            if s.kinds != ("continuous",):
                raise ArgumentError(
                    "s",
                    "be one continuous column for weighting='grid'",
                    repr(s),
                    "Use weighting='population'.",
                )
            low, high = self._ends or (float(s.values.min()), float(s.values.max()))
            points = torch.linspace(low, high, self.n_grid, dtype=torch.float64).to(z)
            gaps = _smoothed(points[:, None], s.values, w, z, s.kinds, bandwidths)
            outer = w.new_full((self.n_grid,), 1.0 / self.n_grid)
        elif len(s) > _EXACT_ROWS and s.kinds.count("continuous") <= 1:
            gaps, outer = _gathered(s, w.double(), z.double(), bandwidths)
        else:
            gaps, outer = _smoothed(s.values, s.values, w, z, s.kinds, bandwidths), w
        return (gaps.abs().mean(dim=-1) @ outer.to(gaps)).to(z.dtype)

    def cells(self, s: Sensitive, w: Tensor | None = None) -> Cells:
        """Return the cells of S in which means are taken: those it was calibrated to, or of these rows."""
        check_finite(s)
        return Cells.of(s, w) if self._cells is None else self._cells

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        """Permute z instead, as a stack of models: cells or smoothing along S are computed once for many."""
        fixed = self._with(_cells=self.cells(s, w)) if self.bandwidth_s is None else self
        chunks = permutations.argsort(dim=1).split(max(1, _CHUNK // z.numel()))
        return torch.cat([fixed._value(z[orders], s, w) for orders in chunks])

    def _calibrated(
        self,
        z: Tensor,  # noqa: ARG002
        s: Sensitive,
        w: Tensor | None,
        generator: torch.Generator | None,  # noqa: ARG002
        freeze: bool,  # noqa: ARG002
    ) -> Self:
        if self.bandwidth_s is None:
            return self._with(_cells=self.cells(s, w))
        if self.range_s is not None:
            return self._with()
        ends = float(s.values.min()), float(s.values.max())
        return self._with(_ranges=ranges_of(s), _ends=ends)


def _in_cells(code: Tensor, w: Tensor, z: Tensor) -> Tensor:
    """Return the mean over columns of sum_C |sum of w z over the rows of C|, for z of mean zero."""
    sums = _sums(code, w, z, int(code.max()) + 1)
    return sums.abs().sum(dim=-2).mean(dim=-1)


def _smoothed(
    at: Tensor, s: Tensor, w: Tensor, z: Tensor, kinds: Sequence[Kind], bandwidths: Sequence[float]
) -> Tensor:
    """Return the conditional means of z ``(..., n, d)`` at the rows of ``at`` ``(a, q)``: ``(..., a, d)``."""
    blocks = at.split(max(1, 16_000_000 // len(s)))
    parts = [smoothing_weights(log_kernel(points, s, kinds, bandwidths), w) @ z for points in blocks]
    return torch.cat(parts, dim=-2)


def _gathered(s: Sensitive, w: Tensor, z: Tensor, bandwidths: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return conditional means and the mass of S by categories and, in each, by levels or knots of a line."""
    check_finite(s)
    lines = [j for j, kind in enumerate(s.kinds) if kind == "continuous"]
    others = [j for j, kind in enumerate(s.kinds) if kind == "categorical"]
    group = (
        s.values[:, others].unique(dim=0, return_inverse=True)[1] if others else torch.zeros_like(w).long()
    )
    means, masses = [], []
    for value in group.unique():
        rows = group == value
        part_w, part_z = w[rows], z[..., rows, :]
        if lines:
            mean, mass = _line(bandwidths[lines[0]], s.values[rows, lines[0]].double(), part_w, part_z)
        else:
            mass = part_w.sum().reshape(1)
            mean = (part_w[:, None] * part_z).sum(dim=-2, keepdim=True) / mass
        means.append(mean)
        masses.append(mass)
    return torch.cat(means, dim=-2), torch.cat(masses)


def _line(sigma: float, s: Tensor, w: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return conditional means and the mass of one column on its levels or on knots, in linear time."""
    values, level = s.unique(return_inverse=True)
    span = float(values[-1] - values[0]) / sigma * _KNOTS
    if len(values) <= _EXACT_LEVELS or span > _MOST_KNOTS:
        mass = w.new_zeros(len(values)).index_add(0, level, w)
        means = _sums(level, w, z, len(values)) / mass[:, None]
        return _smoothed(values[:, None], values[:, None], mass, means, ("continuous",), [sigma]), mass
    position = (s - values[0]) / sigma * _KNOTS
    left = position.floor().long()
    share = position - left
    knots = int(left.max()) + 2
    lower, upper = w * (1.0 - share), w * share
    mass = w.new_zeros(knots).index_add(0, left, lower).index_add(0, left + 1, upper)
    sums = _sums(left, lower, z, knots) + _sums(left + 1, upper, z, knots)
    offsets = torch.arange(-_REACH * _KNOTS, _REACH * _KNOTS + 1).to(w) / _KNOTS
    taps = (-0.5 * offsets.square()).exp()
    filled = mass > 0  # elsewhere the mean has no weight, and the smoothed mass is rounding
    smooth_mass = torch.where(filled, _convolved(mass, taps), 1.0)
    return torch.where(filled[:, None], _convolved(sums.mT, taps).mT / smooth_mass[:, None], 0.0), mass


def _sums(index: Tensor, w: Tensor, z: Tensor, size: int) -> Tensor:
    """Return sum of w z over rows of each index, shape ``(..., size, d)``."""
    empty = z.new_zeros((*z.shape[:-2], size, z.shape[-1]))
    return empty.index_add(-2, index, w[:, None] * z)


def _convolved(x: Tensor, taps: Tensor) -> Tensor:
    """Return x smoothed along its last dimension, by Fourier transform."""
    n, reach = x.shape[-1], len(taps) // 2
    size = n + len(taps) - 1
    product = torch.fft.rfft(x, size) * torch.fft.rfft(taps, size)
    return torch.fft.irfft(product, size)[..., reach : reach + n]
