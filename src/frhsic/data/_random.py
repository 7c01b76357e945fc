"""Random states of every kind as a torch generator."""

from __future__ import annotations

import numpy as np
import torch

from frhsic._checks import ArgumentError


def to_generator(random_state: object = None) -> torch.Generator:
    """Make a torch generator from any of the usual ``random_state`` values; no global seed is read or set.

    None draws fresh entropy. A numpy ``Generator`` or ``RandomState`` gives a seed and moves on. A torch
    generator is returned as it is.
    """
    if isinstance(random_state, torch.Generator):
        return random_state
    generator = torch.Generator()
    if random_state is None:
        generator.seed()
        return generator
    if isinstance(random_state, np.random.Generator):
        random_state = random_state.integers(2**63)
    elif isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**63, dtype=np.uint64)
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)):
        raise TypeError(
            "'random_state' must be None, an integer or a numpy or torch generator. "
            f"Got '{type(random_state).__name__}'. Pass an integer for a repeatable result."
        )
    if not 0 <= random_state < 2**63:
        must = "lie between 0 and 2**63 - 1"
        raise ArgumentError("random_state", must, "an integer outside", "Pass a smaller one.")
    return generator.manual_seed(int(random_state))
