"""Boosters as bytes in the format of their library."""

from __future__ import annotations

from typing import Any

from frhsic.boosting._backends import find_backend
from frhsic.boosting._objective import Round as Round


def booster_bytes(estimator: Any) -> bytes:
    """Return the booster of a fitted estimator as its library writes it."""
    return find_backend(estimator.backend).to_bytes(estimator.booster_)


def read_booster(backend: str, data: bytes) -> Any:
    """Return a booster; the parser is the library's."""
    return find_backend(backend).from_bytes(data)
