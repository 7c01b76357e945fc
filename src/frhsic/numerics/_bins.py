"""Bins of S, for the two published baselines that need them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, check_finite

Binning = Literal["quantile", "width"]


def check_bins(n_bins: int, binning: Binning) -> None:
    """Raise ArgumentError for a binning that does not exist."""
    if n_bins < 2:
        raise ArgumentError("n_bins", "be at least 2", n_bins, "The published baselines use 10 and 4.")
    if binning not in ("quantile", "width"):
        raise ArgumentError(
            "binning", "be 'quantile' or 'width'", repr(binning), "Leave it out for 'quantile'."
        )


def inner_edges(s: Sensitive, n_bins: int, binning: Binning) -> Tensor:
    """Return the n_bins - 1 inner edges of the one column of s; categories keep their codes."""
    if len(s.names) != 1:
        raise ArgumentError(
            "s", "have one column to be binned", len(s.names), "Choose one with s.columns([name])."
        )
    column = s.values[:, 0]
    check_finite(s)
    if s.kinds[0] == "categorical":
        known = s.categories[0] if s.categories else None
        levels = int(column.max()) + 1 if known is None else len(known)
        return torch.arange(1, levels).to(column) - 0.5
    k = torch.arange(1, n_bins, device=column.device)
    if binning == "width":
        return column.min() + (column.max() - column.min()) * (k.double() / n_bins).to(column)
    ordered = column.sort().values
    # In whole numbers, so that an edge that falls on a row is that row.
    place = k * (len(ordered) - 1)
    below, share = place // n_bins, (place % n_bins).to(column) / n_bins
    lower, upper = ordered[below], ordered[(below + 1).clamp_max(len(ordered) - 1)]
    return lower + share * (upper - lower)


def bin_of(s: Sensitive, edges: Tensor) -> Tensor:
    """Return the bin 0, ..., len(edges) of each row; a value on an edge belongs to the bin above."""
    return torch.bucketize(s.values[:, 0].contiguous(), edges.to(s.values), right=True)
