"""Saved trees: the library's own format inside our container, read only where the library is named."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._tensorfile import TensorFileError
from frhsic.boosting import FRHSICBoostingClassifier
from frhsic.boosting.documents import Round, booster_bytes, read_booster
from frhsic.data import to_generator
from frhsic.engine.limits import Reached
from frhsic.persistence import _reading as reading
from frhsic.persistence._reading import TREES

KIND: Final = "frhsic-trees"


def describe_trees(estimator: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the booster as bytes, and what was fitted as plain data."""
    names = getattr(estimator, "feature_names_in_", None)
    sensitive = None
    if estimator.sensitive_names_ is not None:
        sensitive = {"names": list(estimator.sensitive_names_), "kinds": list(estimator.sensitive_kinds_)}
    data = torch.frombuffer(bytearray(booster_bytes(estimator)), dtype=torch.uint8)
    relative = estimator.relative_dependence_
    fitted = {
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "sensitive": sensitive,
        "n_iter": int(estimator.n_iter_),
        "relative_dependence": None if relative is None else float(relative),
        "reached": [one.to_dict() for one in estimator.reached_],
        "history": [dict(record) for record in estimator.history_],
    }
    return {"booster": data}, fitted


def restore_trees(tensors: Mapping[str, Tensor], document: dict[str, Any], backend: str | None) -> Any:
    """Return the trees that a file holds, if the caller names the library that is to parse them."""
    names = ("format", "version", "versions", "pipeline", "estimator", "classes", "fitted")
    top = reading.take_fields(document, "document", names)
    estimator: Any = reading.make_object(top["estimator"], TREES, "estimator")
    if backend != estimator.backend:
        own = str(estimator.backend)
        must = f"name the library whose trees the file holds, '{own}'"
        why = "its own parser would read them, in C++ that frhsic does not control"
        got = f"{'nothing' if backend is None else repr(backend)}: {why}"
        raise ArgumentError(
            "backend", must, got, f"If you trust where the file is from, pass backend='{own}'."
        )
    with reading.blame_file("estimator"):
        estimator._check_parameters()
        to_generator(estimator.random_state)
    reading.demand(set(tensors) == {"booster"}, "hold one booster", "other tensors")
    data = tensors["booster"]
    reading.demand(data.dtype == torch.uint8 and data.ndim == 1, "hold a booster as bytes", "something else")
    _restore_fitted(estimator, top["fitted"])
    if type(estimator) is FRHSICBoostingClassifier:
        estimator.classes_ = reading.take_classes(top["classes"])
    else:
        reading.demand(top["classes"] is None, "hold 'classes' for a classifier only", "some")
    try:
        estimator.booster_ = read_booster(estimator.backend, data.numpy().tobytes())
    except ImportError:
        raise
    except Exception as error:
        must = f"hold a model that {estimator.backend} reads"
        raise TensorFileError("path", must, ascii(str(error)[:120])) from None
    estimator.penalty_ = None
    return estimator if top["pipeline"] is None else reading.make_pipeline(top["pipeline"], estimator)


def _restore_fitted(estimator: Any, plain: Any) -> None:
    names = ("n_features_in", "feature_names_in", "sensitive", "n_iter", "relative_dependence", "reached")
    fitted = reading.take_fields(plain, "fitted", (*names, "history"))
    reading.restore_columns(estimator, fitted)
    estimator.n_iter_ = reading.take_value(fitted["n_iter"], int, "n_iter")
    relative = reading.take_value(fitted["relative_dependence"], float | None, "relative_dependence")
    estimator.relative_dependence_ = relative
    for name in ("reached", "history"):
        reading.demand(type(fitted[name]) is list, f"hold a list as '{name}'", "something else")
    one, each = typing.get_type_hints(Reached), typing.get_type_hints(Round)
    estimator.reached_ = tuple(
        Reached(**reading.take_record(entry, "reached", one)) for entry in fitted["reached"]
    )
    estimator.history_ = [reading.take_record(entry, "history", each) for entry in fitted["history"]]
