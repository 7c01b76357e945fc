"""Reading of saved models, which come from outside.

A name is looked up among the public classes only, an argument must be of the type that the constructor
declares, and every size must agree with the tensors that are really there before a network is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
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
from torch import Tensor, nn

import frhsic.dependence as dependence
import frhsic.sketching as sketching
from frhsic._checks import ArgumentError
from frhsic._tensorfile import TensorFileError
from frhsic.boosting import FRHSICBoostingClassifier, FRHSICBoostingRegressor
from frhsic.data import to_generator
from frhsic.engine import Training, make_net
from frhsic.engine.limits import Reached
from frhsic.engine.record import Record
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, Scaling, TableEncoder
from frhsic.kernels import Kernel
from frhsic.kernels.documents import read_kernel
from frhsic.penalty import Penalty, PenaltySum

Model: TypeAlias = FRHSICClassifier | FRHSICRegressor | FRHSICEncoder

MODELS: Final = (FRHSICClassifier, FRHSICRegressor, FRHSICEncoder)
TREES: Final = (FRHSICBoostingClassifier, FRHSICBoostingRegressor)
_MEASURES: Final = [getattr(home, name) for home in (dependence, sketching) for name in home.__all__]
CLASSES: Final[list[type]] = [Penalty, PenaltySum, Training]
CLASSES.extend(  # a sketch is no part of a model
    thing for thing in _MEASURES if issubclass(thing, dependence.Dependence) and not inspect.isabstract(thing)
)
_LEFT_OUT: Final = {"device", "checkpoint"}  # they belong to the machine, not to the model
DTYPES: Final = {
    **{f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": float for bits in (16, 32, 64)},
    "bool": bool,
    "object": str,
}
_MOST_ENTRIES: Final = 1_000  # of a list of arguments: terms of a penalty, widths of layers
_MOST_LABELS: Final = 2**22  # characters of all classes at the width of the longest


@functools.cache
def arguments_of(cls: type) -> dict[str, Any]:
    """Return the types of the arguments that travel: a file may hold what the constructor declares."""
    hints = typing.get_type_hints(cls if dataclasses.is_dataclass(cls) else cls.__init__)  # type: ignore[misc]
    if issubclass(cls, (*MODELS, *TREES)):
        hints["random_state"] = int | None
    if issubclass(cls, MODELS):
        hints["encoder"] = Sequence[int] | None
    names = [name for name in inspect.signature(cls).parameters if name[0] != "_" and name not in _LEFT_OUT]
    return {name: hints[name] for name in names}


def demand(ok: bool, must: str, got: str) -> None:
    """Raise TensorFileError unless something holds."""
    if not ok:
        raise TensorFileError("path", must, got)


@contextlib.contextmanager
def blame_file(where: str) -> Iterator[None]:
    """Turn the error of a constructor into one about the file."""
    try:
        yield
    except (TypeError, ValueError, ArithmeticError) as error:
        must = f"hold valid values in '{where}'"
        raise TensorFileError("path", must, ascii(str(error)[:200])) from None


def take_fields(value: Any, where: str, names: Iterable[str]) -> dict[str, Any]:
    """Return a dict of exactly these keys."""
    names = list(names)
    good = type(value) is dict and set(value) == set(names)
    demand(good, f"hold in '{where}' exactly {', '.join(names) or 'nothing'}", "something else")
    return value


def take_record(value: Any, where: str, hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return exactly the fields that the hints name, each of the type of its hint."""
    found = take_fields(value, where, hints)
    return {name: take_value(found[name], hint, f"{where}.{name}") for name, hint in hints.items()}


def restore(tensors: dict[str, Tensor], document: dict[str, Any], encoder: nn.Module | None) -> Any:
    """Return the model that a file holds, or raise ValueError."""
    names = ("format", "version", "versions", "pipeline", "estimator", "architecture", "fitted")
    top = take_fields(document, "document", names)
    if top["version"] == 3:
        _add_limits(top)
    versions = top["versions"]
    good = type(versions) is dict and all(type(version) is str for version in versions.values())
    demand(good, "hold 'versions' as texts", "something else")
    estimator: Any = make_object(top["estimator"], MODELS, "estimator")
    chains = {"encoder": tuple[int, ...] | None, "head": tuple[int, ...]}
    widths, head = take_record(top["architecture"], "architecture", chains).values()
    good = estimator.encoder is None if widths is None else estimator.encoder == widths[1:]
    demand(good, "have the layers that the parameter 'encoder' describes", "others")
    if widths is None and encoder is None:
        must = "be a module of the architecture that was saved: "
        must += "the model was trained with one of the caller's"
        raise ArgumentError("encoder", must, "None", "Pass it: load(path, encoder=module).")
    if widths is not None and encoder is not None:
        must = "be None for a model whose encoder is made from widths"
        raise ArgumentError("encoder", must, type(encoder).__name__, "Leave it out.")
    layers: nn.Module | tuple[int, ...] = encoder if encoder is not None else estimator.encoder
    estimator.encoder = layers
    with blame_file("estimator"):
        estimator._check_parameters()
        to_generator(estimator.random_state)
    _restore_fitted(estimator, top["fitted"], head)
    _check_shapes(estimator, tensors, widths, head)
    model = estimator if top["pipeline"] is None else make_pipeline(top["pipeline"], estimator)
    _restore_tensors(estimator, tensors, layers, head)
    return model


def _add_limits(top: dict[str, Any]) -> None:
    """Add to a document of version 3, before there were limits, what says that there is none."""
    arguments = top["estimator"].get("arguments") if type(top["estimator"]) is dict else None
    fitted = top["fitted"]
    if type(arguments) is not dict or type(fitted) is not dict:
        return  # refused where it is read
    arguments.setdefault("limit", None)
    training = arguments.get("training")
    if type(training) is dict and type(training.get("arguments")) is dict:
        training["arguments"].setdefault("limit_fraction", "auto")
        training["arguments"].setdefault("penalty_every", 1)
        training["arguments"].setdefault("noise", 0.0)
        training["arguments"].setdefault("rebuild", 0.0)
    fitted.setdefault("reached", [])
    fitted.setdefault("noise", 0.0)
    history = fitted.get("history")
    for record in history if type(history) is list else ():
        if type(record) is dict:
            record.setdefault("of_limit", None)


def _restore_fitted(estimator: Any, plain: Any, head: tuple[int, ...]) -> None:
    names = ("n_features_in", "feature_names_in", "classes", "sensitive", "n_iter", "best_epoch", "history")
    fitted = take_fields(plain, "fitted", (*names, "relative_dependence", "reached", "noise", "output"))
    restore_columns(estimator, fitted)
    p = estimator.n_features_in_
    outputs = p if type(estimator) is FRHSICEncoder else 1
    if type(estimator) is FRHSICClassifier:
        estimator.classes_ = take_classes(fitted["classes"])
        outputs = 1 if len(estimator.classes_) == 2 else len(estimator.classes_)
    else:
        demand(fitted["classes"] is None, "hold 'classes' for a classifier only", "some")
    demand(head[-1:] == (outputs,), f"have a head with {outputs} outputs", "another")
    estimator.n_iter_ = take_value(fitted["n_iter"], int, "n_iter")
    estimator.best_epoch_ = take_value(fitted["best_epoch"], int, "best_epoch")
    relative = take_value(fitted["relative_dependence"], float | None, "relative_dependence")
    estimator.relative_dependence_ = relative
    noise = take_value(fitted["noise"], float, "noise")
    demand(0.0 <= noise <= 1e30, "hold a 'noise' between 0 and 1e30", "another")
    estimator.noise_ = float(noise)
    demand(type(fitted["reached"]) is list, "hold a list as 'reached'", "something else")
    one = typing.get_type_hints(Reached)
    estimator.reached_ = tuple(Reached(**take_record(entry, "reached", one)) for entry in fitted["reached"])
    demand(type(fitted["history"]) is list, "hold a list as 'history'", "something else")
    epoch = typing.get_type_hints(Record)
    estimator.history_ = [take_record(record, "history", epoch) for record in fitted["history"]]
    good = 0 <= estimator.best_epoch_ < estimator.n_iter_ >= len(estimator.history_) > 0
    demand(good, "hold 'best_epoch' and a 'history' within 'n_iter' epochs", "others")
    _set_output(estimator, fitted["output"])


def restore_columns(estimator: Any, fitted: Mapping[str, Any]) -> None:
    """Set the names of the columns of X and of S."""
    p = estimator.n_features_in_ = take_value(fitted["n_features_in"], int, "n_features_in")
    columns = take_value(fitted["feature_names_in"], tuple[str, ...] | None, "feature_names_in")
    if columns is not None:
        good = len(columns) == p == len(set(columns))
        demand(good, "hold distinct 'feature_names_in', one for each column", "others")
        estimator.feature_names_in_ = np.array(columns, dtype=object)
    estimator.sensitive_names_ = estimator.sensitive_kinds_ = None
    if fitted["sensitive"] is not None:
        hints = {"names": tuple[str, ...], "kinds": tuple[Literal["continuous", "categorical"], ...]}
        labels, kinds = take_record(fitted["sensitive"], "sensitive", hints).values()
        estimator.sensitive_names_, estimator.sensitive_kinds_ = labels, kinds
        good = 0 < len(labels) == len(kinds) == len(set(labels))
        demand(good, "hold distinct 'sensitive' names with a kind each", "others")


def _set_output(transformer: Any, plain: Any) -> None:
    transformer.set_output(
        transform=take_value(plain, Literal["default", "pandas", "polars"] | None, "output")
    )


def take_classes(plain: Any) -> NDArray[Any]:
    """Return the classes of a model."""
    found = take_record(plain, "classes", {"dtype": str, "values": tuple[str | bool | int | float, ...]})
    name, values = found["dtype"], list(found["values"])
    width = re.fullmatch(r"U([1-9][0-9]{0,6})", name, re.ASCII)
    demand(name in DTYPES or width is not None, "hold a known 'classes.dtype'", ascii(name[:40]))
    kind = DTYPES.get(name, str)
    good = len(values) > 1 and all(type(value) is kind for value in values)
    demand(good, f"hold at least two classes for the dtype {name}", "others")
    demand(all(a < b for a, b in pairwise(values)), "hold sorted and distinct classes", "others")
    if width is not None:
        good = len(values) * int(width[1]) <= _MOST_LABELS
        demand(good, f"hold classes of at most {_MOST_LABELS} characters", "more")
    with blame_file("classes"), np.errstate(over="ignore"):
        classes = np.array(values, dtype=name)
    demand(classes.tolist() == values, f"hold classes that fit the dtype {name}", "others")
    return classes


def _check_shapes(
    estimator: Any, tensors: Mapping[str, Tensor], widths: tuple[int, ...] | None, head: tuple[int, ...]
) -> None:
    """Compare all sizes with the tensors in the file, before anything is made of these sizes."""
    chains = {"head": head} if widths is None else {"encoder": widths, "head": head}
    for name, chain in chains.items():
        good = 2 <= len(chain) <= len(tensors) and min(chain) > 0
        demand(good, f"hold positive widths in 'architecture.{name}', as many as layers", "others")
    p = estimator.n_features_in_
    good = widths is None or (widths[0] == p and widths[-1] == head[0])
    demand(good, "have layers that join: columns, encoder, head", "others")
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
    wrong, (shape, got) = _first_difference(expected, found)
    must = f"hold '{wrong[:40]}' of the shape {shape} that its architecture implies"
    demand(not wrong, must, f"{got}")
    for name in own:
        dtype, scaling = tensors[name].dtype, name.startswith("scaling_")
        good = dtype == torch.float64 or (dtype == torch.float32 and not scaling)
        demand(good, f"hold floats in '{name}' (float64 for a scaling)", f"{dtype}")
        good = not name.endswith(".factor") or bool((tensors[name] >= 0).all())
        demand(good, f"hold no negative number in '{name}'", "one")


def _first_difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, tuple[Any, Any]]:
    """Return the first name whose values differ ("" if there is none), and the two values."""
    name = min((name for name in a.keys() | b.keys() if a.get(name) != b.get(name)), default="")
    return name, (a.get(name), b.get(name))


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
    wrong, (got, saved_kind) = _first_difference(there, here)
    if wrong:
        must = f"have the architecture that was saved, with {saved_kind} for '{wrong}'"
        raise ArgumentError("encoder", must, got, "Make it like the one that was trained.")
    net.load_state_dict(saved)
    net.eval().requires_grad_(False)
    estimator.encoder_, estimator.head_, estimator._n_features_out = net.encoder, net.head, head[0]


def _kind(x: Any) -> tuple[str, tuple[int, ...]]:
    """Return what must agree; weights are float64 in memory and may be float32 in the file."""
    if not isinstance(x, Tensor):
        return type(x).__name__, ()
    return "float" if x.is_floating_point() else str(x.dtype).removeprefix("torch."), tuple(x.shape)


def make_pipeline(plain: Any, estimator: Any) -> Pipeline:
    """Return the estimator after the encoder of tables that was saved with it."""
    found = take_fields(plain, "pipeline", ("steps", "verbose", "table", "output"))
    with blame_file("table"):
        table = TableEncoder.from_state(found["table"])
    _set_output(table, found["output"])
    columns = sum(len(column.suffixes) for column in table.columns_)
    demand(columns == estimator.n_features_in_, "hold a 'table' with the columns of the model", "others")
    names = take_value(found["steps"], tuple[str, str], "pipeline.steps")
    verbose = take_value(found["verbose"], bool, "pipeline.verbose")
    model = Pipeline(list(zip(names, (table, estimator), strict=True)), verbose=verbose)
    taken = {"", *model.get_params(deep=False)}
    good = names[0] != names[1] and not taken & set(names) and not any("__" in name for name in names)
    demand(good, "name the steps of the pipeline as scikit-learn allows", "others")
    return model


def make_object(plain: Any, bases: tuple[type, ...], where: str) -> Any:
    """Make an object of one of the known classes, of arguments that have the types it declares."""
    found = take_fields(plain, where, ("class", "arguments"))
    known = {cls.__name__: cls for cls in (*CLASSES, *MODELS, *TREES) if issubclass(cls, bases)}
    name = take_value(found["class"], str, f"{where}.class")
    demand(name in known, f"name in '{where}' one of {', '.join(known) or 'no class'}", ascii(name[:40]))
    hints = arguments_of(known[name])  # type: ignore[arg-type]
    arguments = take_fields(found["arguments"], f"{where}.{name}", hints)
    short = all(type(value) is not list or len(value) <= _MOST_ENTRIES for value in arguments.values())
    demand(short, f"hold lists of at most {_MOST_ENTRIES} entries in '{where}'", "a longer one")
    values = {key: take_value(value, hints[key], f"{where}.{key}") for key, value in arguments.items()}
    with blame_file(where):
        return known[name](**values)


def take_value(value: Any, hint: Any, where: str) -> Any:
    """Return a value of exactly the type of the hint; lists become tuples, pairs mappings."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    parts = typing.get_args(hint) if union else (hint,)
    if type(value) is dict and Kernel in parts:
        with blame_file(where):
            return read_kernel(value)
    if type(value) is dict and "class" in value:
        return make_object(value, tuple(part for part in parts if isinstance(part, type)), where)
    for part in parts:
        origin, args = typing.get_origin(part), typing.get_args(part)
        if part in (str, bool, int, float, types.NoneType, Any) or origin is Literal:
            simple = {float: (int, float), Any: (str, bool, int, float)}.get(part, (part,))
            if type(value) in simple or (origin is Literal and type(value) is str and value in args):
                return value
            if part is Any and type(value) is list:  # several labels of y
                return [take_value(entry, str | bool | int | float, where) for entry in value]
        elif origin in (tuple, Sequence) and type(value) is list:
            fixed = origin is tuple and args[-1] is not ...
            if not fixed or len(args) == len(value):
                kinds = args if fixed else args[:1] * len(value)
                return tuple(take_value(entry, kind, where) for entry, kind in zip(value, kinds, strict=True))
        elif origin is Mapping and type(value) is dict:
            pair: Any = types.GenericAlias(tuple, args)
            pairs = take_value(
                take_fields(value, where, ("pairs",))["pairs"], types.GenericAlias(tuple, (pair, ...)), where
            )
            with blame_file(where):  # a list of labels is no key
                mapping = dict(pairs)
            demand(len(mapping) == len(pairs), f"hold every key of '{where}' once", "one twice")
            return mapping
    expected = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
    raise TensorFileError("path", f"hold {expected} in '{where}'", type(value).__name__)
