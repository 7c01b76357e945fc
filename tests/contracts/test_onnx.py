"""The exported graph predicts what the estimator predicts."""

import builtins
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from torch import nn

from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, TableEncoder
from frhsic.persistence import export_onnx

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

RNG = np.random.default_rng(0)
# Columns like a score, an income, a time stamp and a constant.
X = RNG.normal(size=(80, 4)) * [1.0, 3.0, 1.0, 0.0] + [0.0, 1e6, 1.7e9, 5.0]
SMALL = {"lam": 0, "encoder": (6, 4), "epochs": 3, "learning_rate": 0.05, "random_state": 0}
CLASSES = [
    np.array([0, 1]),
    np.array([-1, 4, 9], dtype=np.int16),
    np.array(["no", "ä"]),
    np.array(["a", "b", "c"], dtype=object),
    np.array([False, True]),
    np.array([0.0, 2.0], dtype=np.float32),
]


def run(model, x, path):
    export_onnx(model, path)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": x}), strict=True))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("classes", CLASSES, ids=str)
def test_labels_and_probabilities_are_those_of_the_classifier(classes, path):
    y = classes[np.digitize(X[:, 2] - 1.7e9, [-0.3, 0.3][: len(classes) - 1])]
    model = FRHSICClassifier(**SMALL).fit(X, y)
    found = run(model, X, path)
    assert list(found) == ["label", "probabilities", "representation"]
    expected = model.predict(X)
    assert len(set(expected.tolist())) > 1
    assert found["label"].tolist() == expected.tolist()
    if classes.dtype.kind not in "OU":
        assert found["label"].dtype == classes.dtype
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["representation"], model.transform(X), rtol=0, atol=1e-9)


def test_predictions_are_those_of_the_regressor_in_its_units(path):
    model = FRHSICRegressor(**SMALL).fit(X, 1e9 + X[:, 0])
    found = run(model, X, path)
    assert list(found) == ["prediction", "representation"]
    assert np.ptp(model.predict(X)) > 0.5
    np.testing.assert_allclose(found["prediction"] - 1e9, model.predict(X) - 1e9, rtol=0, atol=1e-5)


def test_a_constant_target_is_predicted(path):
    with pytest.warns(UserWarning, match="'y' has one value, 7"):
        model = FRHSICRegressor(**SMALL).fit(X, np.full(len(X), 7.0))
    np.testing.assert_array_equal(run(model, X, path)["prediction"], model.predict(X))


def test_the_representation_is_that_of_the_encoder(path):
    model = FRHSICEncoder(**SMALL).fit(X)
    found = run(model, X, path)
    assert list(found) == ["representation"]
    np.testing.assert_allclose(found["representation"], model.transform(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 33])
def test_any_number_of_rows_may_come(n, path):
    model = FRHSICRegressor(**SMALL).fit(X, X[:, 0])
    assert run(model, X[:n], path)["prediction"].shape == (n,)


def test_extreme_rows_give_the_probabilities_of_the_classifier(path):
    model = FRHSICClassifier(**SMALL).fit(X, X[:, 0] > 0)
    far = X * [1e6, 1.0, 1.0, 1.0]
    found = run(model, far, path)["probabilities"]
    np.testing.assert_allclose(found, model.predict_proba(far), rtol=0, atol=1e-9)


def test_modules_of_known_layers_are_exported(path):
    inner = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Dropout(0.5), nn.Identity())
    encoder = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), inner, nn.Sigmoid(), nn.Linear(4, 2), nn.SELU())
    model = FRHSICRegressor(**(SMALL | {"encoder": encoder})).fit(X, X[:, 0])
    found = run(model, X, path)
    np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=0, atol=1e-9)


def test_other_layers_are_refused_by_name(path):
    model = FRHSICRegressor(**(SMALL | {"encoder": nn.Sequential(nn.Linear(4, 2), nn.GELU())})).fit(
        X, X[:, 0]
    )
    with pytest.raises(TypeError, match="Got GELU"):
        export_onnx(model, path)
    model = FRHSICRegressor(**SMALL).fit(X, X[:, 0])
    model.encoder_[0].register_forward_hook(lambda module, x, y: y + 1)
    with pytest.raises(TypeError, match=r"without hooks\. Got Linear"):
        export_onnx(model, path)
    assert not path.exists()


def test_other_models_are_refused_by_name(path):
    pipeline = make_pipeline(TableEncoder(), FRHSICRegressor(**SMALL)).fit(X, X[:, 0])
    with pytest.raises(TypeError, match=r"Got Pipeline.+export_onnx\(model\[-1\], path\)"):
        export_onnx(pipeline, path)
    found = run(pipeline[-1], pipeline[0].transform(X), path)
    np.testing.assert_allclose(found["prediction"], pipeline.predict(X), rtol=0, atol=1e-9)
    with pytest.raises(TypeError, match="Got Linear"):
        export_onnx(torch.nn.Linear(1, 1), path)
    with pytest.raises(NotFittedError):
        export_onnx(FRHSICEncoder(), path)


def test_names_of_columns_are_in_the_metadata(path):
    model = FRHSICRegressor(**SMALL).fit(pd.DataFrame(X, columns=list("abcd")), X[:, 0])
    export_onnx(model, path)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map["feature_names"]) == list("abcd")


def test_without_onnx_the_message_says_what_to_install(path, monkeypatch):
    model = FRHSICRegressor(**SMALL).fit(X, X[:, 0])
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("onnx"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'frhsic\[onnx\]'"):
        export_onnx(model, path)
