"""How many threads a computation is worth."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch to one thread, and restore what was found; also a decorator.

    Measures and inference work in blocks that fit into the cache: a second thread saves little, and on a busy
    machine it waits for the first by spinning, up to ten times slower. With one thread the bits do not depend
    on the number of cores either. Training is left to the caller.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
