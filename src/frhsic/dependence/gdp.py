"""GDP: the mean absolute gap between the conditional and the overall mean of a prediction."""

from __future__ import annotations

from typing import Literal, Self

import torch
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.dependence._base import Dependence
from frhsic.dependence._smoothing import check_bandwidth, check_range, ranges_of, row_weights, smoother
from frhsic.kernels import Kernel

# Up to this many rows all pairs are smoothed exactly; above, rows are first gathered on levels or knots.
_EXACT_ROWS = 4_096
_EXACT_LEVELS = 2_048
# Knots per bandwidth and reach of the smoothing in bandwidths: linear binning errs by (1/64)^2 / 8 of the
# curvature, and exp(-8^2/2) is 1e-14.
_KNOTS = 64
_REACH = 8


class GDP(Dependence):
    """Generalized demographic parity: the mean over S of |E[f | S] - E[f]| of a prediction f.

    The conditional mean is a Nadaraya-Watson smoother along S with weights w,

        m(s) = sum_i w_i k(s_i - s) f_i / sum_i w_i k(s_i - s),    GDP = E_S |m(S) - sum_i w_i f_i|,

    equation ``GDP`` of the paper with f in place of f(Z).

    Parameters
    ----------
    bandwidth_s : float, default=0.1
        Of the smoothing, as a fraction of the range of S.
    weighting : {"population", "grid"}, default="population"
        The law of the outer mean: that of S (the paper's text), or equally spaced points between the smallest
        and the largest S (the published scripts).
    n_grid : int, default=50
        Number of those points.
    range_s : float or None, default=None
        The range that ``bandwidth_s`` is a fraction of; None takes it from the sample, and ``calibrate``
        fixes it.

    Notes
    -----
    Several columns of predictions are averaged, so the two columns of ``predict_proba`` give the GDP of one.
    One continuous column of S takes linear time above 4,096 rows: exactly when S has at most 2,048 distinct
    values, else by linear binning on 64 knots per bandwidth, with an error below 1e-4 of the range of f.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(0, 1, 200, dtype=torch.float64)
    >>> round(GDP(bandwidth_s=0.01)(s, s).item(), 2)
    0.25
    """

    def __init__(
        self,
        bandwidth_s: float = 0.1,
        *,
        weighting: Literal["population", "grid"] = "population",
        n_grid: int = 50,
        range_s: float | None = None,
    ) -> None:
        super().__init__()
        if weighting not in ("population", "grid"):
            raise ValueError(
                f"'weighting' must be 'population' or 'grid'. Got {weighting!r}. "
                "Leave it out for 'population'."
            )
        if n_grid < 2:
            raise ValueError(f"'n_grid' must be at least 2. Got {n_grid}. The published scripts use 50.")
        self.bandwidth_s = check_bandwidth(bandwidth_s)
        self.weighting = weighting
        self.n_grid = n_grid
        self.range_s = check_range(range_s)
        self._ranges: tuple[float, ...] | None = None

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        w = row_weights(s, w)
        ranges = self._ranges if self.range_s is None else (self.range_s,) * len(s.names)
        kernel = smoother(s, self.bandwidth_s, ranges)
        for _ in range(2):  # gaps first, or an offset would cost digits; the second round is for float32
            z = z - (w[:, None] * z).sum(dim=-2, keepdim=True)
        line = s.kinds == ("continuous",)
        if self.weighting == "grid":
            if not line:
                raise ValueError(
                    f"'s' must be one continuous column for weighting='grid'. Got {s!r}. "
                    "Use weighting='population'."
                )
            ends = s.values.amin(), s.values.amax()
            points = ends[0] + (ends[1] - ends[0]) * torch.linspace(
                0, 1, self.n_grid, dtype=torch.float64
            ).to(z)
            gaps = _smoothed(kernel, points[:, None], s.values, w, z)
            outer = w.new_full((self.n_grid,), 1.0 / self.n_grid)
        elif line and len(s) > _EXACT_ROWS:
            sigma = self.bandwidth_s * (ranges or ranges_of(s))[0]
            gaps, outer = _line(kernel, sigma, s.values[:, 0].double(), w.double(), z.double())
        else:
            gaps, outer = _smoothed(kernel, s.values, s.values, w, z), w
        return (gaps.abs().mean(dim=-1) @ outer.to(gaps)).to(z.dtype)

    def _calibrated(self, z: Tensor, s: Sensitive, generator: torch.Generator | None) -> Self:  # noqa: ARG002
        return self._with(_ranges=ranges_of(s))


def _smoothed(kernel: Kernel, at: Tensor, s: Tensor, w: Tensor, z: Tensor) -> Tensor:
    """Return the conditional means of z ``(..., n, d)`` at the rows of ``at`` ``(a, q)``: ``(..., a, d)``."""
    parts = []
    for points in at.split(max(1, 16_000_000 // len(s))):
        V = kernel.gram(points, s) * w
        mass = V.sum(dim=1, keepdim=True)
        # A category of no weight has no conditional mean, and no weight in the outer mean either.
        parts.append((V / torch.where(mass > 0, mass, 1.0)) @ z)
    return torch.cat(parts, dim=-2)


def _line(kernel: Kernel, sigma: float, s: Tensor, w: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return conditional means and the mass of S on levels or knots of one column, in linear time."""
    values, level = s.unique(return_inverse=True)
    if len(values) <= _EXACT_LEVELS:
        mass = w.new_zeros(len(values)).index_add(0, level, w)
        means = _gather(level, w, z, len(values)) / mass[:, None].clamp_min(torch.finfo(w.dtype).tiny)
        return _smoothed(kernel, values[:, None], values[:, None], mass, means), mass
    step = sigma / _KNOTS
    position = (s - values[0]) / step
    left = position.floor().long()
    share = position - left
    knots = int(left.max()) + 2
    lower, upper = w * (1.0 - share), w * share
    mass = w.new_zeros(knots).index_add(0, left, lower).index_add(0, left + 1, upper)
    sums = _gather(left, lower, z, knots) + _gather(left + 1, upper, z, knots)
    offsets = torch.arange(-_REACH * _KNOTS, _REACH * _KNOTS + 1).to(w) / _KNOTS
    taps = (-0.5 * offsets.square()).exp()[None, None]
    smooth_mass = _convolved(mass, taps)
    smooth_sums = _convolved(sums.mT, taps).mT
    filled = smooth_mass > 0
    safe = torch.where(filled, smooth_mass, 1.0)
    return smooth_sums / safe[:, None], mass


def _gather(index: Tensor, w: Tensor, z: Tensor, size: int) -> Tensor:
    """Return sum of w z over rows of each index, shape ``(..., size, d)``."""
    empty = z.new_zeros((*z.shape[:-2], size, z.shape[-1]))
    return empty.index_add(-2, index, w[:, None] * z)


def _convolved(x: Tensor, taps: Tensor) -> Tensor:
    flat = x.reshape(-1, 1, x.shape[-1])
    return torch.nn.functional.conv1d(flat, taps, padding=taps.shape[-1] // 2).reshape(x.shape)
