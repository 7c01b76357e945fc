"""Smoothing along S, for the measures that estimate a conditional law or mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Kind, Sensitive


def check_bandwidth(bandwidth_s: float) -> float:
    """Return the bandwidth, or say what it must be."""
    if not isinstance(bandwidth_s, int | float) or not 0 < bandwidth_s < float("inf"):
        raise ArgumentError(
            "bandwidth_s",
            "be a positive number, a fraction of the range of S",
            repr(bandwidth_s),
            "Take 0.1 for a tenth of the range.",
        )
    return float(bandwidth_s)


def check_range(range_s: float | None) -> float | None:
    """Return the range, or say what it must be."""
    if range_s is not None and not 0 < range_s < float("inf"):
        raise ArgumentError(
            "range_s",
            "be a positive number or None",
            repr(range_s),
            "Leave it out to take it from the sample.",
        )
    return range_s


def ranges_of(s: Sensitive) -> tuple[float, ...]:
    """Return the range of each column; 1 for categories and constant columns, where it is not used."""
    spans = (s.values.amax(dim=0) - s.values.amin(dim=0)).tolist()
    return tuple(
        span if kind == "continuous" and span > 0 else 1.0 for span, kind in zip(spans, s.kinds, strict=True)
    )


def bandwidths_of(
    s: Sensitive, bandwidth_s: float, range_s: float | None, calibrated: Sequence[float] | None
) -> list[float]:
    """Return the smoothing bandwidth of each column: that fraction of the given, fixed or own range."""
    if range_s is not None:
        return [bandwidth_s * range_s] * len(s.names)
    return [bandwidth_s * span for span in (ranges_of(s) if calibrated is None else calibrated)]


def log_kernel(at: Tensor, s: Tensor, kinds: Sequence[Kind], bandwidths: Sequence[float]) -> Tensor:
    """Return the logarithm of the smoothing kernel, ``(a, n)``: Gaussian, and exact match for categories.

    In logarithms, because what counts is the ratio of weights: far from all rows every weight underflows, and
    the nearest row must still win.
    """
    parts = []
    for j, (kind, sigma) in enumerate(zip(kinds, bandwidths, strict=True)):
        if kind == "continuous":
            gap = (at[:, j : j + 1] / sigma) - (s[:, j] / sigma)
            parts.append(gap.square_().mul_(-0.5))
        else:
            gap = at[:, j : j + 1] - s[:, j]
            parts.append(torch.where(gap == 0, 0.0, -torch.inf).to(at))
    return sum(parts[1:], start=parts[0])


def smoothing_weights(log: Tensor, w: Tensor) -> Tensor:
    """Return weights proportional to w times the kernel, of sum one along each row; zeros where all are."""
    weights = (log + w.log()).softmax(dim=1)
    lonely = log.amax(dim=1, keepdim=True) == -torch.inf
    return torch.where(lonely, 0.0, weights) if bool(lonely.any()) else weights


def row_weights(s: Sensitive, w: Tensor | None) -> Tensor:
    """Return the weights of rows, equal ones for None."""
    return s.values.new_full((len(s),), 1.0 / len(s)) if w is None else w
