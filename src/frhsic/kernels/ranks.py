"""Ranks of values, from 0 to 1: among the rows at hand, or as fixed on others."""

from __future__ import annotations

import torch
from torch import Tensor

# Places on which ranks are exact; between them they are interpolated.
_PLACES = 1_024


def find_places(x: Tensor, weights: Tensor | None) -> Tensor:
    """Return values ``(d, 0, m)`` and their ranks ``(d, 1, m)`` for each column of x ``(n, d)``."""
    w = torch.ones_like(x[:, 0]) if weights is None else weights.to(x)
    pairs = []
    for column in x.mT:
        values, index = column.unique(return_inverse=True)
        mass = w.new_zeros(len(values)).index_add(0, index, w)
        ranks = (mass.cumsum(0) - 0.5 * mass) / mass.sum()
        if len(values) > _PLACES:
            at = torch.searchsorted(ranks, torch.linspace(0.0, 1.0, _PLACES).to(ranks))
            at = at.clamp_max(len(values) - 1).unique()
            values, ranks = values[at], ranks[at]
        pairs.append(torch.stack((values, ranks)))
    most = max(pair.shape[1] for pair in pairs)
    padded = [torch.cat((pair, pair[:, -1:].expand(2, most - pair.shape[1])), dim=1) for pair in pairs]
    return torch.stack(padded)


def find_ranks(x: Tensor, places: Tensor) -> Tensor:
    """Return the rank of each entry of x ``(..., d)``, between those of the places on both sides."""
    columns = []
    for column, (values, ranks) in zip(x.unbind(dim=-1), places.to(x), strict=True):
        right = torch.searchsorted(values, column.contiguous()).clamp(0, len(values) - 1)
        left = (right - 1).clamp_min(0)
        low, high = values[left], values[right]
        share = ((column - low) / torch.where(high > low, high - low, 1.0)).clamp(0.0, 1.0)
        columns.append(ranks[left] + share * (ranks[right] - ranks[left]))
    return torch.stack(columns, dim=-1)
