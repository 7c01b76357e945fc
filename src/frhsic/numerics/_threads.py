"""How many threads a computation is worth."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from threadpoolctl import threadpool_limits

_limited: ContextVar[bool] = ContextVar("limited", default=False)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch and the BLAS of NumPy to one thread, and restore what was found; also a decorator.

    Measures and inference work in blocks that fit into the cache: a second thread saves little, and on a busy
    machine it waits for the first by spinning, up to ten times slower. With one thread the bits do not depend
    on the number of cores either. Training is left to the caller.
    """
    if _limited.get():  # by a caller; looking for the libraries takes two milliseconds
        yield
        return
    before, token = torch.get_num_threads(), _limited.set(True)
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
        _limited.reset(token)
