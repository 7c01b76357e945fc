"""Small numerical pieces that several measures share."""

from __future__ import annotations

import torch
from torch import Tensor


def signed_root(v: Tensor) -> Tensor:
    """Return sign(v) sqrt(|v|), linear below eps^2 so that the gradient is finite at zero."""
    return v / v.abs().clamp_min(torch.finfo(v.dtype).eps ** 2).sqrt()
