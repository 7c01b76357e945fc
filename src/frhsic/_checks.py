"""Errors about arguments, and checks of arguments that many functions share."""

from __future__ import annotations

import numbers
from typing import TypeGuard


class ArgumentError(ValueError):
    """An argument that cannot be used.

    The message has one grammar everywhere: which argument, what must hold, what arrived, how to fix it. The
    parts are kept, so that a caller with other names for the arguments (the command line) can word its own.

    Examples
    --------
    >>> raise ArgumentError("alpha", "lie between 0 and 1", 2, "Take 0.05.")
    Traceback (most recent call last):
    ...
    frhsic._checks.ArgumentError: 'alpha' must lie between 0 and 1. Got 2. Take 0.05.
    """

    def __init__(self, argument: str, must: str, got: object, fix: str) -> None:
        super().__init__(f"'{argument}' must {must}. Got {got}. {fix}")
        self.argument, self.must, self.got, self.fix = argument, must, str(got), fix

    def __reduce__(self) -> tuple[type[ArgumentError], tuple[str, str, str, str]]:
        return type(self), (self.argument, self.must, self.got, self.fix)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number, of NumPy too; a boolean is none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_confidence_level(confidence_level: float) -> None:
    """Raise ArgumentError unless it lies between 0 and 1."""
    if not 0.0 < confidence_level < 1.0:
        raise ArgumentError("confidence_level", "lie between 0 and 1", confidence_level, "Take 0.95.")


def check_draws(n_draws: int) -> None:
    """Raise ArgumentError if there are too few multiplier draws for a quantile."""
    if n_draws < 19:
        raise ArgumentError("n_draws", "be at least 19", n_draws, "Take 999.")
