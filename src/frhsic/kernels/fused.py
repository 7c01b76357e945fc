"""Calls of fused autograd functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def apply_fused(function: type[torch.autograd.Function], *arguments: Any) -> Tensor | None:
    """Return the value of a fused function, or None under ``torch.func`` (vmap, grad, jacrev).

    There a function must have ``setup_context``, whose dispatch costs as much time as one of the products at
    batch size: only what needs another form pays for it. Every other error is raised.
    """
    try:
        value: Tensor = function.apply(*arguments)
    except RuntimeError as error:
        if "setup_context" not in str(error):
            raise
        return None
    return value
