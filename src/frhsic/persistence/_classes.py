"""The classes that a saved model may name, and the types of their arguments."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import frhsic.dependence as dependence
import frhsic.sketching as sketching
from frhsic.engine import Training
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor
from frhsic.penalty import Penalty, PenaltySum

Model: TypeAlias = FRHSICClassifier | FRHSICRegressor | FRHSICEncoder

MODELS: Final = (FRHSICClassifier, FRHSICRegressor, FRHSICEncoder)
_MEASURES: Final = [getattr(home, name) for home in (dependence, sketching) for name in home.__all__]
CLASSES: Final[list[type]] = [
    # A sketch is no part of a model.
    *(
        thing
        for thing in _MEASURES
        if issubclass(thing, dependence.Dependence) and not inspect.isabstract(thing)
    ),
    *(Penalty, PenaltySum, Training),
]
_LEFT_OUT: Final = {"device", "checkpoint"}  # they belong to the machine, not to the model
DTYPES: Final = {
    **{f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": float for bits in (16, 32, 64)},
    "bool": bool,
    "object": str,
}


@functools.cache
def arguments_of(cls: type) -> dict[str, Any]:
    """Return the types of the arguments that travel: a file may hold what the constructor declares."""
    hints = typing.get_type_hints(cls if dataclasses.is_dataclass(cls) else cls.__init__)  # type: ignore[misc]
    if issubclass(cls, MODELS):
        hints |= {"encoder": Sequence[int] | None, "random_state": int | None}
    names = [name for name in inspect.signature(cls).parameters if name[0] != "_" and name not in _LEFT_OUT]
    return {name: hints[name] for name in names}
