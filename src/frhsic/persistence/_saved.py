"""Saved models: one file of weights and one JSON document.

The document names classes and holds their arguments; nothing in it is code, a path or the name of an
attribute. Files come from outside: a name is looked up in the faces of this package only, an argument must be
of the type that the constructor declares, and every size must agree with the tensors that are really there
before a network is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import inspect
import json
import numbers
import os
import platform
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import frhsic.dependence as dependence
import frhsic.kernels as kernels
from frhsic import _tensorfile as tensorfile
from frhsic._tensorfile import TensorFileError
from frhsic.data import to_generator
from frhsic.engine import Net, Record, Training, make_net
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, TableEncoder
from frhsic.estimators._scaling import Scaling
from frhsic.penalty import Penalty, PenaltySum

Model: TypeAlias = FRHSICClassifier | FRHSICRegressor | FRHSICEncoder

_KIND: Final = "frhsic-model"
MODELS: Final = (FRHSICClassifier, FRHSICRegressor, FRHSICEncoder)
_NAMES: Final = (
    "FRHSICClassifier, FRHSICRegressor, FRHSICEncoder, or a Pipeline of TableEncoder and one of them"
)
_FACES: Final = [getattr(face, name) for face in (dependence, kernels) for name in face.__all__]
_PARTS: Final = (dependence.Dependence, kernels.Kernel)  # a sketch is no part of a model
_CLASSES: Final[list[type]] = [
    *(
        thing
        for thing in _FACES
        if inspect.isclass(thing) and issubclass(thing, _PARTS) and not inspect.isabstract(thing)
    ),
    *(Penalty, PenaltySum, Training),
]
_LEFT_OUT: Final = {"device", "checkpoint"}  # they belong to the machine, not to the model
_CURE: Final = "The file is damaged or frhsic did not write it: save or copy it again."
_MOST_ENTRIES: Final = 1_000  # of a list of arguments: terms of a penalty, widths of layers
_MOST_HISTORY: Final = 2**20  # characters
_MOST_LABELS: Final = 2**22  # characters of all classes at the width of the longest
_DTYPES: Final = {
    **{f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": float for bits in (16, 32, 64)},
    "bool": bool,
    "object": str,
}


def save(model: Model | Pipeline, path: str | os.PathLike[str]) -> None:
    """Write a fitted model into one file, without pickle: weights, and a JSON document for all else.

    The file is plain safetensors; ``.safetensors`` or ``.frhsic`` are good suffixes. It holds no rows, but
    what prediction needs to know of them: labels of classes and categories, names of columns, and their
    means and deviations (or extremes or medians).

    Parameters
    ----------
    model : FRHSICClassifier, FRHSICRegressor, FRHSICEncoder or Pipeline
        A Pipeline must be a TableEncoder and one of the others. Subclasses are refused.
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
    >>> X = np.linspace(0, 1, 40).reshape(20, 2)
    >>> model = FRHSICRegressor(lam=0, epochs=1, encoder=(3,)).fit(X, X[:, 0])
    >>> with TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.frhsic")
    ...     np.array_equal(load(f"{folder}/model.frhsic").predict(X), model.predict(X))
    True
    """
    table, estimator = _steps(model)
    check_is_fitted(estimator, "encoder_")
    net = Net(estimator.encoder_, estimator.head_)
    tensors: dict[str, Tensor] = {}
    for name, value in net.state_dict().items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"'model' must have an encoder whose state is tensors. Got {type(value).__name__} in "
                f"'{name}'. Keep it in buffers instead of an extra state."
            )
        tensors[name] = _compact(value)
    for name, scaling in (
        ("x", estimator.scaling_x_),
        ("y", estimator.scaling_y_),
        ("s", estimator.scaling_s_),
    ):
        if scaling is not None:
            tensors |= {f"scaling_{name}.shift": scaling.shift, f"scaling_{name}.factor": scaling.factor}
    if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
        raise ValueError("'model' must have finite weights. Got NaN or infinity. Train it again.")
    custom = isinstance(estimator.encoder, nn.Module)
    pipeline = None
    if table is not None:
        pipeline = {
            "steps": [name for name, _ in model.steps],
            "verbose": bool(model.verbose),
            "table": table.get_state(),
            "output": _output(table),
        }
    document = {
        "format": _KIND,
        "version": tensorfile.VERSION,
        "versions": _versions(),
        "pipeline": pipeline,
        "estimator": _describe(estimator),
        "architecture": {"encoder": None if custom else _widths(net.encoder), "head": _widths(net.head)},
        "fitted": _fitted(estimator),
    }
    # What could not be loaded again is refused now, not when the model that was trained is gone.
    try:
        _restore(tensors, json.loads(json.dumps(document)), net.encoder if custom else None)
    except ValueError as error:
        raise ValueError(
            "'model' must be as its fit left it, so that its file can be read. Got one whose file would be "
            f"refused: {str(error).removesuffix(_CURE)}Set its parameters right or fit it again."
        ) from error
    tensorfile.write(path, tensors, document)


def load(path: str | os.PathLike[str], *, encoder: nn.Module | None = None) -> Any:
    """Read a model that :func:`save` wrote; its predictions are the same, bit for bit.

    Nothing in the file is run, and nothing is allocated that the file does not hold.

    Parameters
    ----------
    path : str or path
    encoder : nn.Module, optional
        Needed exactly where the parameter ``encoder`` was a module: one of the same architecture. A copy of
        it takes the saved weights.

    Returns
    -------
    FRHSICClassifier, FRHSICRegressor, FRHSICEncoder or Pipeline
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
    return _restore(*tensorfile.read(path, kind=_KIND), encoder)


# Writing


def _steps(model: Any) -> tuple[TableEncoder | None, Model]:
    if type(model) in MODELS:
        return None, model
    if type(model) is not Pipeline:
        raise TypeError(f"'model' must be {_NAMES}. Got {type(model).__name__}. Save one of these.")
    steps = [step for _, step in model.steps]
    if len(steps) != 2 or type(steps[0]) is not TableEncoder or type(steps[1]) not in MODELS:
        names = ", ".join(step if isinstance(step, str) else type(step).__name__ for step in steps)
        raise TypeError(f"'model' must be {_NAMES}. Got a Pipeline of {names}. Save one of these.")
    return steps[0], steps[1]


def _compact(x: Tensor) -> Tensor:
    """Return weights in float32 where that loses nothing: training works in float32."""
    if x.dtype != torch.float64:
        return x
    short = x.float()
    return short if torch.equal(short.double(), x) else x


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("frhsic", "torch", "numpy", "scikit-learn"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


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


def _fitted(estimator: Model) -> dict[str, Any]:
    names = getattr(estimator, "feature_names_in_", None)
    sensitive = None
    if estimator.sensitive_names_ is not None:
        sensitive = {
            "names": list(estimator.sensitive_names_),
            "kinds": list(estimator.sensitive_kinds_ or ()),
        }
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
        "history": history,
        "output": _output(estimator),
    }


def _describe_classes(classes: NDArray[Any]) -> dict[str, Any]:
    dtype = classes.dtype
    name = f"U{dtype.itemsize // 4}" if dtype.kind == "U" else dtype.name
    if dtype.kind != "U" and name not in _DTYPES:
        raise TypeError(f"'model' must have classes that are text or plain numbers. Got {name}. Convert y.")
    return {"dtype": name, "values": _plain(classes)}


def _describe(thing: Any) -> dict[str, Any]:
    """Return the name of the class and its arguments."""
    # A calibrated measure or kernel keeps what it learned in private attributes, parameters or tensors.
    private = {name for name, value in vars(thing).items() if name[0] == "_" and value is not None}
    learned = isinstance(thing, dependence.Dependence) and len(thing.state_dict()) > 0
    if type(thing) in _CLASSES and (learned or private - set(vars(nn.Module()))):
        raise ValueError(
            f"'model' must have a penalty that is not calibrated. Got a calibrated {type(thing).__name__}. "
            "Pass a new one with set_params; 'fit' calibrates its own copy."
        )
    arguments = {}
    for name in _arguments(type(thing)):  # type: ignore[arg-type]
        value = getattr(thing, name)
        if name == "random_state" and not isinstance(value, numbers.Integral):
            value = None
        custom = name == "encoder" and isinstance(value, nn.Module)
        arguments[name] = None if custom else _plain(value)
    return {"class": type(thing).__name__, "arguments": arguments}


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
    if type(value) in _CLASSES:
        return _describe(value)
    raise TypeError(
        "'model' must have parameters that are plain values, or measures and kernels of frhsic that are not "
        f"calibrated. Got {type(value).__name__}. Replace it with set_params."
    )


# Reading: every function below takes what a stranger may have written.


def _refusal(must: str, got: str) -> TensorFileError:
    return TensorFileError("path", must, got, _CURE)


def _demand(ok: bool, must: str, got: str) -> None:
    if not ok:
        raise _refusal(must, got)


@contextlib.contextmanager
def _refusing(where: str) -> Iterator[None]:
    """Turn the refusal of a constructor into that of the file."""
    try:
        yield
    except (TypeError, ValueError, ArithmeticError) as error:
        raise _refusal(f"hold valid values in '{where}'", ascii(str(error)[:200])) from None


def _fields(value: Any, where: str, names: Iterable[str]) -> dict[str, Any]:
    names = list(names)
    good = type(value) is dict and set(value) == set(names)
    _demand(good, f"hold in '{where}' exactly {', '.join(names) or 'nothing'}", "something else")
    return value


def _restore(tensors: dict[str, Tensor], document: dict[str, Any], encoder: nn.Module | None) -> Any:
    names = ("format", "version", "versions", "pipeline", "estimator", "architecture", "fitted")
    top = _fields(document, "document", names)
    versions = top["versions"]
    good = type(versions) is dict and all(type(version) is str for version in versions.values())
    _demand(good, "hold 'versions' as texts", "something else")
    estimator: Any = _object(top["estimator"], MODELS, "estimator")
    chains = _fields(top["architecture"], "architecture", ("encoder", "head"))
    widths = _value(chains["encoder"], tuple[int, ...] | None, "architecture.encoder")
    head = _value(chains["head"], tuple[int, ...], "architecture.head")
    good = estimator.encoder is None if widths is None else estimator.encoder == widths[1:]
    _demand(good, "have the layers that the parameter 'encoder' describes", "others")
    if widths is None and encoder is None:
        raise ValueError(
            "'encoder' must be a module of the architecture that was saved: the model was trained with one "
            "of the caller's. Got None. Pass it: load(path, encoder=module)."
        )
    if widths is not None and encoder is not None:
        raise ValueError(
            "'encoder' must be None for a model whose encoder is made from widths. "
            f"Got {type(encoder).__name__}. Leave it out."
        )
    layers: nn.Module | tuple[int, ...] = encoder if encoder is not None else estimator.encoder
    estimator.encoder = layers
    with _refusing("estimator"):
        estimator._check_parameters()
        to_generator(estimator.random_state)
    _restore_fitted(estimator, top["fitted"], head)
    _check_shapes(estimator, tensors, widths, head)
    model = estimator if top["pipeline"] is None else _pipeline(top["pipeline"], estimator)
    _restore_tensors(estimator, tensors, layers, head)
    return model


def _restore_fitted(estimator: Any, plain: Any, head: tuple[int, ...]) -> None:
    names = ("n_features_in", "feature_names_in", "classes", "sensitive", "n_iter", "best_epoch", "history")
    fitted = _fields(plain, "fitted", (*names, "relative_dependence", "output"))
    p = estimator.n_features_in_ = _value(fitted["n_features_in"], int, "n_features_in")
    columns = _value(fitted["feature_names_in"], tuple[str, ...] | None, "feature_names_in")
    if columns is not None:
        good = len(columns) == p == len(set(columns))
        _demand(good, "hold distinct 'feature_names_in', one for each column", "others")
        estimator.feature_names_in_ = np.array(columns, dtype=object)
    outputs = p if type(estimator) is FRHSICEncoder else 1
    if type(estimator) is FRHSICClassifier:
        estimator.classes_ = _classes(fitted["classes"])
        outputs = 1 if len(estimator.classes_) == 2 else len(estimator.classes_)
    else:
        _demand(fitted["classes"] is None, "hold 'classes' for a classifier only", "some")
    _demand(head[-1:] == (outputs,), f"have a head with {outputs} outputs", "another")
    estimator.sensitive_names_ = estimator.sensitive_kinds_ = None
    if fitted["sensitive"] is not None:
        sensitive = _fields(fitted["sensitive"], "sensitive", ("names", "kinds"))
        estimator.sensitive_names_ = _value(sensitive["names"], tuple[str, ...], "sensitive.names")
        kinds = tuple[Literal["continuous", "categorical"], ...]
        estimator.sensitive_kinds_ = _value(sensitive["kinds"], kinds, "sensitive.kinds")
        q = len(estimator.sensitive_names_)
        good = 0 < q == len(estimator.sensitive_kinds_) == len(set(estimator.sensitive_names_))
        _demand(good, "hold distinct 'sensitive' names with a kind each", "others")
    estimator.n_iter_ = _value(fitted["n_iter"], int, "n_iter")
    estimator.best_epoch_ = _value(fitted["best_epoch"], int, "best_epoch")
    relative = _value(fitted["relative_dependence"], float | None, "relative_dependence")
    estimator.relative_dependence_ = relative
    _demand(type(fitted["history"]) is list, "hold a list as 'history'", "something else")
    hints = typing.get_type_hints(Record)
    records = [_fields(record, "history", hints) for record in fitted["history"]]
    estimator.history_ = [
        {name: _value(record[name], hint, f"history.{name}") for name, hint in hints.items()}
        for record in records
    ]
    good = 0 <= estimator.best_epoch_ < estimator.n_iter_ >= len(estimator.history_) > 0
    _demand(good, "hold 'best_epoch' and a 'history' within 'n_iter' epochs", "others")
    _set_output(estimator, fitted["output"])


def _set_output(transformer: Any, plain: Any) -> None:
    transformer.set_output(transform=_value(plain, Literal["default", "pandas", "polars"] | None, "output"))


def _classes(plain: Any) -> NDArray[Any]:
    found = _fields(plain, "classes", ("dtype", "values"))
    values = list(_value(found["values"], tuple[str | bool | int | float, ...], "classes.values"))
    name = _value(found["dtype"], str, "classes.dtype")
    width = re.fullmatch(r"U([1-9][0-9]{0,6})", name, re.ASCII)
    _demand(name in _DTYPES or width is not None, "hold a known 'classes.dtype'", ascii(name[:40]))
    kind = _DTYPES.get(name, str)
    good = len(values) > 1 and all(type(value) is kind for value in values)
    _demand(good, f"hold at least two classes for the dtype {name}", "others")
    _demand(all(a < b for a, b in pairwise(values)), "hold sorted and distinct classes", "others")
    if width is not None:
        good = len(values) * int(width[1]) <= _MOST_LABELS
        _demand(good, f"hold classes of at most {_MOST_LABELS} characters", "more")
    with _refusing("classes"), np.errstate(over="ignore"):
        classes = np.array(values, dtype=name)
    _demand(classes.tolist() == values, f"hold classes that fit the dtype {name}", "others")
    return classes


def _check_shapes(
    estimator: Any, tensors: Mapping[str, Tensor], widths: tuple[int, ...] | None, head: tuple[int, ...]
) -> None:
    """Refuse sizes that the tensors in the file do not have, before anything is made of these sizes."""
    chains = {"head": head} if widths is None else {"encoder": widths, "head": head}
    for name, chain in chains.items():
        good = 2 <= len(chain) <= len(tensors) and min(chain) > 0
        _demand(good, f"hold positive widths in 'architecture.{name}', as many as layers", "others")
    p = estimator.n_features_in_
    good = widths is None or (widths[0] == p and widths[-1] == head[0])
    _demand(good, "have layers that join: columns, encoder, head", "others")
    expected = {
        f"{name}.{2 * depth}.{part}": shape
        for name, chain in chains.items()
        for depth, (fan_in, fan_out) in enumerate(pairwise(chain))
        for part, shape in (("weight", (fan_out, fan_in)), ("bias", (fan_out,)))
    }
    regression = type(estimator) is FRHSICRegressor
    sizes = {"x": p, "y": 1 if regression else 0, "s": len(estimator.sensitive_names_ or ())}
    for name, size in sizes.items():
        if size:
            expected |= {f"scaling_{name}.{part}": (size,) for part in ("shift", "factor")}
    # What belongs to the caller's module is compared with that module.
    own = [name for name in tensors if widths is not None or not name.startswith("encoder.")]
    found = {name: tuple(tensors[name].shape) for name in own}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        must = f"hold '{wrong[0][:40]}' of the shape {expected.get(wrong[0])} that its architecture implies"
        raise _refusal(must, f"{found.get(wrong[0])}")
    for name in found:
        scaling = name.startswith("scaling_")
        good = tensors[name].dtype == torch.float64 or (tensors[name].dtype == torch.float32 and not scaling)
        _demand(good, f"hold floats in '{name}' (float64 for a scaling)", f"{tensors[name].dtype}")
        good = not name.endswith(".factor") or bool((tensors[name] >= 0).all())
        _demand(good, f"hold no negative number in '{name}'", "one")


def _restore_tensors(
    estimator: Any, tensors: Mapping[str, Tensor], encoder: nn.Module | Sequence[int], head: tuple[int, ...]
) -> None:
    def scaling(name: str) -> Scaling | None:
        shift, factor = (tensors.get(f"scaling_{name}.{part}") for part in ("shift", "factor"))
        return None if shift is None or factor is None else Scaling(shift, factor)

    estimator.scaling_x_, estimator.scaling_y_, estimator.scaling_s_ = map(scaling, "xys")
    with torch.device("cpu"):
        # Its own generator, or the draws that the saved weights replace would move the global one.
        net = make_net(
            estimator.n_features_in_, head[-1], encoder=encoder, head=head[1:-1], generator=torch.Generator()
        )
    # Through float32 like the buffers of a module in training, which may not be in its state.
    net = net.to(device="cpu", dtype=torch.float32).to(dtype=torch.float64)
    saved = {name: x for name, x in tensors.items() if name.startswith(("encoder.", "head."))}
    there = {name: _kind(x) for name, x in net.state_dict().items()}
    here = {name: _kind(x) for name, x in saved.items()}
    wrong = sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))
    if wrong:
        raise ValueError(
            f"'encoder' must have the architecture that was saved, with {here.get(wrong[0])} for "
            f"'{wrong[0]}'. Got {there.get(wrong[0])}. Make it like the one that was trained."
        )
    net.load_state_dict(saved)
    net.eval().requires_grad_(False)
    estimator.encoder_, estimator.head_, estimator._n_features_out = net.encoder, net.head, head[0]


def _kind(x: Any) -> tuple[str, tuple[int, ...]]:
    """Return what must agree; weights are float64 in memory and may be float32 in the file."""
    if not isinstance(x, Tensor):
        return type(x).__name__, ()
    return "float" if x.is_floating_point() else str(x.dtype).removeprefix("torch."), tuple(x.shape)


def _pipeline(plain: Any, estimator: Any) -> Pipeline:
    found = _fields(plain, "pipeline", ("steps", "verbose", "table", "output"))
    with _refusing("table"):
        table = TableEncoder.from_state(found["table"])
    _set_output(table, found["output"])
    columns = sum(len(column.suffixes) for column in table.columns_)
    _demand(columns == estimator.n_features_in_, "hold a 'table' with the columns of the model", "others")
    names = _value(found["steps"], tuple[str, str], "pipeline.steps")
    verbose = _value(found["verbose"], bool, "pipeline.verbose")
    model = Pipeline(list(zip(names, (table, estimator), strict=True)), verbose=verbose)
    taken = {"", *model.get_params(deep=False)}
    good = names[0] != names[1] and not taken & set(names) and not any("__" in name for name in names)
    _demand(good, "name the steps of the pipeline as scikit-learn allows", "others")
    return model


def _object(plain: Any, bases: tuple[type, ...], where: str) -> Any:
    """Make an object of one of the known classes, of arguments that have the types it declares."""
    found = _fields(plain, where, ("class", "arguments"))
    known = {cls.__name__: cls for cls in (*_CLASSES, *MODELS) if issubclass(cls, bases)}
    name = _value(found["class"], str, f"{where}.class")
    _demand(name in known, f"name in '{where}' one of {', '.join(known) or 'no class'}", ascii(name[:40]))
    hints = _arguments(known[name])  # type: ignore[arg-type]
    arguments = _fields(found["arguments"], f"{where}.{name}", hints)
    short = all(type(value) is not list or len(value) <= _MOST_ENTRIES for value in arguments.values())
    _demand(short, f"hold lists of at most {_MOST_ENTRIES} entries in '{where}'", "a longer one")
    values = {key: _value(value, hints[key], f"{where}.{key}") for key, value in arguments.items()}
    with _refusing(where):
        return known[name](**values)


@functools.cache
def _arguments(cls: type) -> dict[str, Any]:
    """Return the types of the arguments that travel: a file may hold what the constructor declares."""
    hints = typing.get_type_hints(cls if dataclasses.is_dataclass(cls) else cls.__init__)  # type: ignore[misc]
    if issubclass(cls, MODELS):
        hints |= {"encoder": Sequence[int] | None, "random_state": int | None}
    names = [name for name in inspect.signature(cls).parameters if name[0] != "_" and name not in _LEFT_OUT]
    return {name: hints[name] for name in names}


def _value(value: Any, hint: Any, where: str) -> Any:
    """Return a value of exactly the type of the hint; lists become tuples, pairs mappings."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    parts = typing.get_args(hint) if union else (hint,)
    if type(value) is dict and "class" in value:
        return _object(value, tuple(part for part in parts if isinstance(part, type)), where)
    for part in parts:
        origin, args = typing.get_origin(part), typing.get_args(part)
        if part in (str, bool, int, float, types.NoneType, Any) or origin is Literal:
            simple = {float: (int, float), Any: (str, bool, int, float)}.get(part, (part,))
            if type(value) in simple or (origin is Literal and type(value) is str and value in args):
                return value
            if part is Any and type(value) is list:  # several labels of y
                return [_value(entry, str | bool | int | float, where) for entry in value]
        elif origin in (tuple, Sequence) and type(value) is list:
            fixed = origin is tuple and args[-1] is not ...
            if not fixed or len(args) == len(value):
                kinds = args if fixed else args[:1] * len(value)
                return tuple(_value(entry, kind, where) for entry, kind in zip(value, kinds, strict=True))
        elif origin is Mapping and type(value) is dict:
            pair: Any = types.GenericAlias(tuple, args)
            pairs = _value(
                _fields(value, where, ("pairs",))["pairs"], types.GenericAlias(tuple, (pair, ...)), where
            )
            with _refusing(where):  # a list of labels is no key
                mapping = dict(pairs)
            _demand(len(mapping) == len(pairs), f"hold every key of '{where}' once", "one twice")
            return mapping
    expected = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
    raise _refusal(f"hold {expected} in '{where}'", type(value).__name__)
