"""Saved models: one file of weights and one JSON document.

The document names classes and holds their arguments; nothing in it is code, a path or the name of an
attribute. ``_reading`` checks what files from outside hold.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import numbers
import os
import platform
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import frhsic.dependence as dependence
from frhsic import _tensorfile as tensorfile
from frhsic._checks import ArgumentError
from frhsic.boosting import FRHSICBoostingClassifier
from frhsic.engine.nets import Net
from frhsic.estimators import FRHSICClassifier, TableEncoder
from frhsic.kernels import Kernel
from frhsic.kernels.documents import describe_kernel, has_document
from frhsic.persistence._boosters import KIND as TREES_KIND
from frhsic.persistence._boosters import describe_trees, restore_trees
from frhsic.persistence._reading import CLASSES, DTYPES, MODELS, TREES, Model, arguments_of, restore

_KIND: Final = "frhsic-model"
_MOST_HISTORY: Final = 2**20  # characters


def save(model: Model | Pipeline, path: str | os.PathLike[str]) -> None:
    """Write a fitted model into one file, without pickle: weights, and a JSON document for all else.

    The file is plain safetensors; ``.safetensors`` or ``.frhsic`` are good suffixes. It holds no rows, but
    what prediction needs to know of them: labels of classes and categories, names of columns, and their
    means and deviations (or extremes or medians).

    Parameters
    ----------
    model : FRHSICClassifier, FRHSICRegressor, FRHSICEncoder, trees of frhsic.boosting, or Pipeline
        A Pipeline must be a TableEncoder and one of the others. Subclasses are not accepted.
    path : str or path
        A file there is replaced in one step.

    Notes
    -----
    Left out are ``penalty_`` (its scales come from data; ``fit`` makes it again), ``device`` ("cpu" after
    loading), the path of ``Training(checkpoint=...)``, the ``memory`` of a Pipeline, metadata requests, and a
    ``random_state`` that is a generator (None after loading). So is the time of each epoch (``"seconds"`` is
    None after loading): two equal fits write the same bytes. A ``history_`` beyond a megabyte is shortened
    to its first and last epoch. An encoder that is a module is saved as its state dict: give a module of the
    same architecture to :func:`load`.

    Raises
    ------
    TypeError
        If the model is none of these, or has a part (a measure, a kernel) that frhsic does not offer.
    ValueError
        If it is not fitted, or has a part that is calibrated.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from frhsic import FRHSICRegressor
    >>> X = np.linspace(0, 1, 40).reshape(20, 2)
    >>> model = FRHSICRegressor(lam=0, epochs=1, encoder=(3,)).fit(X, X[:, 0])
    >>> with TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.frhsic")
    ...     np.array_equal(load(f"{folder}/model.frhsic").predict(X), model.predict(X))
    True
    """
    table, estimator = _split_pipeline(model)
    if isinstance(estimator, TREES):
        _save_trees(model, table, estimator, path)
        return
    check_is_fitted(estimator, "encoder_")
    net = Net(estimator.encoder_, estimator.head_)
    tensors = _collect_tensors(estimator, net)
    custom = isinstance(estimator.encoder, nn.Module)
    document = {
        **_describe_top(_KIND, model, table, estimator),
        "architecture": {"encoder": None if custom else _widths(net.encoder), "head": _widths(net.head)},
        "fitted": _describe_fit(estimator),
    }
    # What could not be loaded again raises now, not when the model that was trained is gone.
    with _readable():
        restore(tensors, json.loads(json.dumps(document)), net.encoder if custom else None)
    tensorfile.write(path, tensors, document)


def _save_trees(model: Any, table: TableEncoder | None, estimator: Any, path: str | os.PathLike[str]) -> None:
    check_is_fitted(estimator, "booster_")
    tensors, fitted = describe_trees(estimator)
    classes = _describe_classes(estimator.classes_) if type(estimator) is FRHSICBoostingClassifier else None
    document = {
        **_describe_top(TREES_KIND, model, table, estimator),
        "classes": classes,
        "fitted": fitted,
    }
    with _readable():
        restore_trees(tensors, json.loads(json.dumps(document)), estimator.backend)
    tensorfile.write(path, tensors, document)


def _describe_top(kind: str, model: Any, table: TableEncoder | None, estimator: Any) -> dict[str, Any]:
    """Return what the documents of networks and of trees share."""
    pipeline = None
    if table is not None:
        pipeline = {
            "steps": [name for name, _ in model.steps],
            "verbose": bool(model.verbose),
            "table": table.get_state(),
            "output": _output(table),
        }
    versions = {"python": platform.python_version()}
    packages = ["frhsic", "torch", "numpy", "scikit-learn"]
    packages += [estimator.backend] if isinstance(estimator, TREES) else []
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "format": kind,
        "version": tensorfile.VERSION,
        "versions": versions,
        "pipeline": pipeline,
        "estimator": _describe(estimator),
    }


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Say of a model whose file would be refused what is wrong with it."""
    try:
        yield
    except ValueError as error:
        fix = error.fix if isinstance(error, tensorfile.TensorFileError) else ""
        raise ValueError(
            "'model' must be as its fit left it, so that its file can be read. Got one whose file would be "
            f"refused: {str(error).removesuffix(fix)}Set its parameters right or fit it again."
        ) from error


def load(
    path: str | os.PathLike[str],
    *,
    encoder: nn.Module | None = None,
    backend: Literal["lightgbm", "xgboost"] | None = None,
) -> Any:
    """Read a model that :func:`save` wrote; its predictions are the same, bit for bit.

    Nothing in the file is run, and nothing is allocated that the file does not hold. Trees are different:
    the file holds them in the format of their library, whose parser is C++ that frhsic does not control, so
    they are read only where ``backend`` names it.

    Parameters
    ----------
    path : str or path
    encoder : nn.Module, optional
        Needed exactly where the parameter ``encoder`` was a module: one of the same architecture. A copy of
        it takes the saved weights.
    backend : {"lightgbm", "xgboost"}, optional
        Of trees: the library that is to parse them. Name it if you trust where the file is from.

    Returns
    -------
    FRHSICClassifier, FRHSICRegressor, FRHSICEncoder, their trees, or Pipeline
        Fitted, on the CPU, without ``penalty_``.

    Raises
    ------
    TensorFileError
        A ValueError: the file is damaged (it holds a SHA-256 of itself), an older frhsic wrote it, or none.
    ValueError
        ``encoder`` is missing, not needed, or of another architecture.

    Examples
    --------
    >>> load("no such file.frhsic")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    frhsic._tensorfile.TensorFileError: 'path' must be a readable file. Got 'No such file or ...
    """
    if encoder is not None and not isinstance(encoder, nn.Module):
        raise TypeError(
            f"'encoder' must be a torch module. Got {type(encoder).__name__}. Leave it out for widths."
        )
    tensors, document = tensorfile.read(path, kind=(_KIND, TREES_KIND))
    if document["format"] == TREES_KIND:
        return restore_trees(tensors, document, backend)
    if backend is not None:
        raise ArgumentError("backend", "be None for a network", repr(backend), "Leave it out.")
    return restore(tensors, document, encoder)


def _split_pipeline(model: Any) -> tuple[TableEncoder | None, Model]:
    if type(model) in (*MODELS, *TREES):
        return None, model
    got = type(model).__name__
    if type(model) is Pipeline:
        steps = [step for _, step in model.steps]
        if len(steps) == 2 and type(steps[0]) is TableEncoder and type(steps[1]) in (*MODELS, *TREES):
            return steps[0], steps[1]
        names = (step if isinstance(step, str) else type(step).__name__ for step in steps)
        got = f"a Pipeline of {', '.join(names)}"
    raise TypeError(
        "'model' must be FRHSICClassifier, FRHSICRegressor, FRHSICEncoder, trees of frhsic.boosting, or a "
        f"Pipeline of TableEncoder and one of them. Got {got}. Save one of these."
    )


def _collect_tensors(estimator: Model, net: Net) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, value in net.state_dict().items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"'model' must have an encoder whose state is tensors. Got {type(value).__name__} in "
                f"'{name}'. Keep it in buffers instead of an extra state."
            )
        # Training works in float32: weights lose nothing by it unless they were set to others.
        short = value.float() if value.dtype == torch.float64 else value
        tensors[name] = short if torch.equal(short.to(value.dtype), value) else value
    scalings = {"x": estimator.scaling_x_, "y": estimator.scaling_y_, "s": estimator.scaling_s_}
    for name, scaling in scalings.items():
        if scaling is not None:
            tensors |= {f"scaling_{name}.shift": scaling.shift, f"scaling_{name}.factor": scaling.factor}
    if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
        raise ArgumentError("model", "have finite weights", "NaN or infinity", "Train it again.")
    return tensors


def _output(transformer: object) -> str | None:
    """Return what ``set_output`` was told."""
    config: dict[str, str] = getattr(transformer, "_sklearn_output_config", {})
    return config.get("transform")


def _widths(net: nn.Module) -> list[int]:
    layers = list(net) if type(net) is nn.Sequential else []
    linear = [layer for layer in layers[::2] if type(layer) is nn.Linear and layer.bias is not None]
    if len(layers) != 2 * len(linear) - 1 or any(type(layer) is not nn.SELU for layer in layers[1::2]):
        raise TypeError(
            "'model' must have the layers that its parameters describe. "
            f"Got a {type(net).__name__} of other layers. Fit it again."
        )
    return [linear[0].in_features, *(layer.out_features for layer in linear)]


def _describe_fit(estimator: Model) -> dict[str, Any]:
    names = getattr(estimator, "feature_names_in_", None)
    sensitive = None
    if estimator.sensitive_names_ is not None:
        kinds = estimator.sensitive_kinds_ or ()
        sensitive = {"names": list(estimator.sensitive_names_), "kinds": list(kinds)}
    # Without the time, which is another one in each run: equal fits give equal files.
    records = ({**record, "seconds": None} for record in estimator.history_)
    history = [{name: _plain(value) for name, value in record.items()} for record in records]
    if len(json.dumps(history)) > _MOST_HISTORY:
        history = [history[0], history[-1]]
    return {
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "classes": _describe_classes(estimator.classes_) if type(estimator) is FRHSICClassifier else None,
        "sensitive": sensitive,
        "n_iter": int(estimator.n_iter_),
        "best_epoch": int(estimator.best_epoch_),
        "relative_dependence": _plain(estimator.relative_dependence_),
        "reached": [one.to_dict() for one in estimator.reached_],
        "history": history,
        "noise": float(estimator.noise_),
        "output": _output(estimator),
    }


def _describe_classes(classes: NDArray[Any]) -> dict[str, Any]:
    dtype = classes.dtype
    name = f"U{dtype.itemsize // 4}" if dtype.kind == "U" else dtype.name
    if dtype.kind != "U" and name not in DTYPES:
        raise TypeError(f"'model' must have classes that are text or plain numbers. Got {name}. Convert y.")
    return {"dtype": name, "values": _plain(classes)}


def _describe(thing: Any) -> dict[str, Any]:
    """Return the name of the class and its arguments."""
    # A calibrated measure keeps what it learned in private attributes, parameters or tensors.
    private = {name for name, value in vars(thing).items() if name[0] == "_" and value is not None}
    learned = isinstance(thing, dependence.Dependence) and len(thing.state_dict()) > 0
    if type(thing) in CLASSES and (learned or private - set(vars(nn.Module()))):
        raise _calibrated(thing)
    arguments = {}
    for name in arguments_of(type(thing)):  # type: ignore[arg-type]
        value = getattr(thing, name)
        if name == "random_state" and not isinstance(value, numbers.Integral):
            value = None
        custom = name == "encoder" and isinstance(value, nn.Module)
        arguments[name] = None if custom else _plain(value)
    return {"class": type(thing).__name__, "arguments": arguments}


def _calibrated(thing: object) -> ArgumentError:
    fix = "Pass a new one with set_params; 'fit' calibrates its own copy."
    got = f"a calibrated {type(thing).__name__}"
    return ArgumentError("model", "have a penalty that is not calibrated", got, fix)


def _plain(value: Any) -> Any:
    """Return JSON; a mapping becomes pairs, since its keys may be numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, Mapping):
        return {"pairs": [[_plain(key), _plain(entry)] for key, entry in value.items()]}
    if isinstance(value, (list, tuple, np.ndarray, nn.ModuleList)):
        return [_plain(entry) for entry in value]
    if isinstance(value, (set, frozenset)):
        return [_plain(entry) for entry in sorted(value)]
    if isinstance(value, Kernel) and has_document(value):
        for part, _ in value.parts():
            if any(isinstance(entry, Tensor) for entry in vars(part).values()):
                raise _calibrated(part)
        return describe_kernel(value)
    if type(value) in CLASSES:
        return _describe(value)
    raise TypeError(
        "'model' must have parameters that are plain values, or measures and kernels of frhsic that are not "
        f"calibrated. Got {type(value).__name__}. Replace it with set_params."
    )
