"""Export to ONNX."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from frhsic._checks import ArgumentError
from frhsic.estimators import FRHSICClassifier, FRHSICRegressor
from frhsic.persistence._reading import MODELS, Model


def export_onnx(model: Model, path: str | os.PathLike[str]) -> None:
    """Write what a model predicts as an ONNX graph, scaling included.

    The input ``X`` ``(n, p)`` and all numbers inside are float64, as in the estimators: in float32 a column
    far from zero (a year, an income, a time stamp) would lose the digits that tell its rows apart. Outputs
    are ``label`` and ``probabilities`` of a classifier, ``prediction`` of a regressor, and the
    ``representation`` of all three.

    Parameters
    ----------
    model : FRHSICClassifier, FRHSICRegressor or FRHSICEncoder
        Of a Pipeline, export the last step and encode tables before. An encoder that is a module must
        be a ``Sequential`` of Linear, SELU, ReLU, Tanh, Sigmoid, Dropout and Identity.
    path : str or path

    Notes
    -----
    The graph returns NaN for rows with missing values, for which the estimators raise ValueError. The names
    of the columns, where ``fit`` saw names, are in the metadata as ``feature_names``.

    Raises
    ------
    ImportError
        Without the package onnx: ``pip install 'frhsic[onnx]'``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> X = np.linspace(0, 1, 40).reshape(20, 2)
    >>> model = FRHSICRegressor(lam=0, epochs=1, encoder=(3,)).fit(X, X[:, 0])
    >>> with TemporaryDirectory() as folder:
    ...     export_onnx(model, f"{folder}/model.onnx")
    """
    try:
        import onnx
        from onnx import helper
    except ImportError as error:
        raise ImportError("'export_onnx' needs onnx. Install it: pip install 'frhsic[onnx]'.") from error
    if type(model) not in MODELS:
        raise TypeError(
            "'model' must be FRHSICClassifier, FRHSICRegressor or FRHSICEncoder. "
            f"Got {type(model).__name__}. Of a Pipeline, export the last step: export_onnx(model[-1], path)."
        )
    check_is_fitted(model, "encoder_")
    if model.noise_:
        must, fix = "have no noise", "Train it with Training(noise=0), or release Z from 'transform'."
        raise ArgumentError("model", must, f"noise of {model.noise_:g}", fix)
    nodes = _Nodes()
    shift, factor = model.scaling_x_.shift.numpy(), model.scaling_x_.factor.numpy()
    z = nodes.run(model.encoder_, nodes.add("Mul", nodes.add("Sub", "X", shift), factor))
    nodes.add("Identity", z, output="representation")
    outputs: list[_Output] = [
        *_predict(nodes, model, z),
        ("representation", np.float64, ["n", model._n_features_out]),
    ]
    graph = helper.make_graph(
        nodes.nodes,
        "frhsic",
        [helper.make_tensor_value_info("X", onnx.TensorProto.DOUBLE, ["n", len(shift)])],
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, dtype, shape in outputs
        ],
        nodes.constants,
    )
    exported = helper.make_model(
        graph, producer_name="frhsic", opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    if (names := getattr(model, "feature_names_in_", None)) is not None:
        helper.set_model_props(exported, {"feature_names": json.dumps([str(name) for name in names])})
    onnx.checker.check_model(exported, full_check=True)
    Path(path).write_bytes(exported.SerializeToString())


_Output = tuple[str, Any, list[str | int]]  # its name, dtype and shape


def _predict(nodes: _Nodes, model: Model, z: str) -> list[_Output]:
    """Add what is predicted from the representation, and return it."""
    if isinstance(model, FRHSICClassifier):
        logits, classes = nodes.run(model.head_, z), model.classes_
        if len(classes) == 2:
            logits = nodes.add("Pad", logits, np.array([0, 1, 0, 0]))  # the first class has the logit zero
        nodes.add("Softmax", logits, axis=1, output="probabilities")
        most = nodes.add("ArgMax", "probabilities", axis=1, keepdims=0)
        labels = classes.astype(object) if classes.dtype.kind in "OU" else classes
        nodes.add("Gather", labels, most, output="label")
        return [("label", labels.dtype, ["n"]), ("probabilities", np.float64, ["n", len(classes)])]
    if isinstance(model, FRHSICRegressor):
        y = model.scaling_y_
        assert y is not None  # noqa: S101
        size = torch.where(y.factor > 0, y.factor, torch.inf).numpy()
        prediction = nodes.add("Add", nodes.add("Div", nodes.run(model.head_, z), size), y.shift.numpy())
        nodes.add("Reshape", prediction, np.array([-1]), output="prediction")
        return [("prediction", np.float64, ["n"])]
    return []


class _Nodes:
    """The nodes of a graph, and the constants among their inputs."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(
        self, operator: str, *inputs: str | NDArray[Any] | float, output: str | None = None, **options: Any
    ) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper, numpy_helper

        names = []
        for value in inputs:
            if not isinstance(value, str):
                self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
                value = self.constants[-1].name
            names.append(value)
        output = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [output], **options))
        return output

    def run(self, layers: nn.Module, x: str) -> str:
        """Add the layers of a network and return the name of its output."""
        for layer in _layers(layers):
            if isinstance(layer, nn.Linear):
                bias = np.zeros(layer.out_features) if layer.bias is None else layer.bias.numpy()
                x = self.add("Gemm", x, layer.weight.numpy(), bias, transB=1)
            elif isinstance(layer, nn.SELU):  # runtimes have no Selu in float64
                below = self.add("Sub", self.add("Exp", self.add("Min", x, 0.0)), 1.0)
                above = self.add("Mul", self.add("Max", x, 0.0), _SELU[0])
                x = self.add("Add", above, self.add("Mul", below, _SELU[0] * _SELU[1]))
            else:
                x = self.add({nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid"}[type(layer)], x)
        return x


_SELU: Final = (1.0507009873554805, 1.6732632423543772)  # scale, alpha


def _layers(net: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers that do something in prediction; raise TypeError for one that ONNX cannot have."""
    hooked = bool(net._forward_hooks or net._forward_pre_hooks)
    if type(net) is nn.Sequential and not hooked:
        for part in net:
            yield from _layers(part)
    elif type(net) in (nn.Linear, nn.SELU, nn.ReLU, nn.Tanh, nn.Sigmoid) and not hooked:
        yield net
    elif type(net) not in (nn.Dropout, nn.Identity) or hooked:
        raise TypeError(
            "'model' must have an encoder made of Sequential, Linear, SELU, ReLU, Tanh, Sigmoid, Dropout and "
            f"Identity, without hooks. Got {type(net).__name__}. Export such a module with torch.onnx itself."
        )
