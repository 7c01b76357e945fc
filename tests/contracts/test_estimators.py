"""What the three estimators promise: scikit-learn's contract, ours, and that nothing is silently ignored."""

import copy
import inspect
import itertools
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import _num_samples
from torch import nn

import frhsic.estimators
from frhsic import HSIC, FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, Penalty, Training
from frhsic.data import to_generator, to_sensitive
from frhsic.dependence import Adversary, Dependence
from frhsic.estimators import _base
from frhsic.kernels import Gaussian
from frhsic.penalty import default_penalty

MODELS = {
    name: getattr(frhsic.estimators, name)
    for name in frhsic.estimators.__all__
    if name not in ("TableEncoder", "fit_path")
}
FAST = {
    "lam": 1.0,
    "encoder": (6, 3),
    "epochs": 3,
    "batch_size": 40,
    "learning_rate": 1e-2,
    "random_state": 0,
}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame}
SECRET = 48151.623


def sample(n=100, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(40.0, 9.0, n)
    X = np.column_stack([rng.normal(size=n), s / 9.0 + 0.3 * rng.normal(size=n), rng.uniform(5, 9, n)])
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int), s


def made(name, **changes):
    return MODELS[name](**{**FAST, **changes})


def fitted(name="FRHSICClassifier", *, n=100, **changes):
    X, y, s = sample(n)
    return made(name, **changes).fit(X, y, sensitive_features=s)


def seen(model, X):
    """Return all that a model says of X, side by side."""
    shown = [model.transform(X)]
    for name in ("predict_proba", "decision_function", "predict"):
        if name in dir(model) and (name != "predict" or isinstance(model, FRHSICRegressor)):
            shown.append(np.asarray(getattr(model, name)(X)).reshape(len(X), -1))
    return np.hstack(shown)


def same(a, b, X):
    return np.array_equal(seen(a, X), seen(b, X))


def test_every_model_on_the_face_is_tested():
    assert set(MODELS) == {"FRHSICClassifier", "FRHSICRegressor", "FRHSICEncoder"}


# The contract of scikit-learn

WEIGHTS = (
    "minibatches are drawn by row and weights are float32, so that a weight of two is not two rows, as for "
    "SGDClassifier; rows of weight zero are left out exactly"
)
# A few fast epochs: some checks want a fit that separates three blobs.
CHECKED = {"encoder": (8,), "epochs": 15, "learning_rate": 2e-2, "random_state": 0}


class ClassifierWithS(FRHSICClassifier):
    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, y, sample_weight=sample_weight, sensitive_features=some_s(X))

    def partial_fit(self, X, y=None, classes=None, sample_weight=None):
        s = some_s(X)
        return super().partial_fit(X, y, classes=classes, sample_weight=sample_weight, sensitive_features=s)


class RegressorWithS(FRHSICRegressor):
    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, y, sample_weight=sample_weight, sensitive_features=some_s(X))

    def partial_fit(self, X, y=None, sample_weight=None):
        return super().partial_fit(X, y, sample_weight=sample_weight, sensitive_features=some_s(X))


class EncoderWithS(FRHSICEncoder):
    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, y, sample_weight=sample_weight, sensitive_features=some_s(X))

    def partial_fit(self, X, y=None, sample_weight=None):
        return super().partial_fit(X, y, sample_weight=sample_weight, sensitive_features=some_s(X))


EQUIVALENCE = tuple(f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse"))


def some_s(X):
    """Return a sensitive column for any X: the checks of scikit-learn have none to pass."""
    return np.sin(1.7 * np.arange(_num_samples(X)))


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(estimator, check, id=f"{type(estimator).__name__} {check.func.__name__}")
        for model in (
            *(model(lam=0, **CHECKED) for model in MODELS.values()),
            *(model(lam=0.1, **CHECKED) for model in (ClassifierWithS, RegressorWithS, EncoderWithS)),
        )
        for estimator, check in estimator_checks_generator(
            model,
            expected_failed_checks=dict.fromkeys(EQUIVALENCE, WEIGHTS),
            mark=None,
        )
        if check.func.__name__ not in (*EQUIVALENCE, "check_array_api_input")
    ],
)
# scikit-learn casts an infinite y to integers before it refuses it.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
# Its checks fit a handful of rows.
@pytest.mark.filterwarnings("ignore:'X' has .* rows to train on:UserWarning")
def test_the_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


def test_the_one_check_left_out_is_there_and_fails_for_the_stated_reason():
    checks = {check.func.__name__: check for _, check in estimator_checks_generator(made("FRHSICRegressor"))}
    estimator = FRHSICRegressor(lam=0, **CHECKED)
    with pytest.raises(AssertionError, match="not equivalent to fitting with removed or repeated"):
        checks["check_sample_weight_equivalence_on_dense_data"](clone(estimator))


# Arguments


@pytest.mark.filterwarnings("ignore:The model has:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*limit:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_every_argument_of_the_constructor_changes_something(name):
    X, y, s = sample()
    changes = {
        "lam": 30.0,
        "penalty": Penalty(HSIC(normalized=True)),
        "encoder": (6, 4),
        "epochs": 4,
        "batch_size": 50,
        "learning_rate": 2e-2,
        "early_stopping": True,
        "random_state": 1,
        "training": Training(scaling="minmax"),
        "class_weight": {0: 1.0, 1: 3.0},
    }
    arguments = set(inspect.signature(MODELS[name]).parameters)
    base = fitted(name)
    for argument in arguments - {"device", "warm_start", "budget", "limit"}:
        other = fitted(name, **{argument: changes[argument]})
        assert seen(other, X).shape != seen(base, X).shape or not same(other, base, X), argument
    loose, tight, usual, explicit = (
        fitted(name, lam=None, budget=b, epochs=10, penalty=Penalty(HSIC())) for b in (0.9, 0.2, None, 0.1)
    )
    assert not any(same(a, b, X) for a, b in ((loose, tight), (loose, base), (tight, explicit)))
    assert same(usual, explicit, X)
    if name != "FRHSICEncoder":  # which has no score
        most = [{"gap": 0.5}, {"gap": 0.01}, {"gdp": 0.01}]
        limited = [fitted(name, lam=None, limit=one, epochs=10) for one in most]
        assert not any(same(a, b, X) for a, b in itertools.combinations([*limited, explicit], 2))
    again = fitted(name)
    assert same(again, base, X)
    assert same(again.fit(X, y, sensitive_features=s), base, X)
    assert not same(again.set_params(warm_start=True).fit(X, y, sensitive_features=s), base, X)
    with pytest.raises(RuntimeError, match="nowhere"):
        fitted(name, device="nowhere")


@pytest.mark.parametrize("name", MODELS)
def test_every_argument_of_fit_changes_something(name):
    X, y, s = sample()
    biased = {"penalty": Penalty(HSIC())}  # the default would change with the weights
    base = fitted(name, **biased)
    w = np.linspace(0.1, 2, len(X))
    others = {
        "X": made(name, **biased).fit(X**2, y, sensitive_features=s),
        "y": made(name, **biased).fit(X, 1 - y, sensitive_features=s),
        "sensitive_features": made(name, **biased).fit(X, y, sensitive_features=s**2),
        "sample_weight": made(name, **biased).fit(X, y, sensitive_features=s, sample_weight=w),
    }
    assert set(others) == set(inspect.signature(base.fit).parameters)
    for argument, other in others.items():
        ignored = argument == "y" and name == "FRHSICEncoder"  # read only by a penalty that is given y
        assert same(other, base, X) == ignored, argument


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("lam", -1.0),
        ("lam", float("nan")),
        ("lam", float("inf")),
        ("lam", "1"),
        ("lam", True),
        ("penalty", HSIC()),
        ("encoder", ()),
        ("encoder", (0,)),
        ("encoder", (2.5,)),
        ("encoder", "ab"),
        ("encoder", 5),
        ("encoder", nn.Linear(2, 2)),
        ("encoder", nn.Flatten(0)),
        ("epochs", 0),
        ("epochs", 2.0),
        ("epochs", True),
        ("batch_size", 0),
        ("batch_size", None),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("learning_rate", "fast"),
        ("early_stopping", "no"),
        ("random_state", -1),
        ("random_state", "seed"),
        ("training", {"clip": 1.0}),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name(name, argument, value):
    with pytest.raises((TypeError, ValueError), match=rf"^'{argument}' must .*\. Got .*\. [A-Z]"):
        fitted(name, **{argument: value})


@pytest.mark.parametrize(
    "class_weight",
    ["equal", {0: 1.0, 7: 2.0}, {0: -1.0, 1: 1.0}, {0: 0.0, 1: 0.0}, {0: float("nan"), 1: 1.0}],
)
def test_class_weights_that_make_no_sense_are_refused_by_name(class_weight):
    with pytest.raises((TypeError, ValueError), match=r"'?class_weight'? "):
        fitted(class_weight=class_weight)


def test_numpy_numbers_are_numbers():
    X, _, _ = sample()
    plain = fitted(lam=2.0, epochs=2, batch_size=30, learning_rate=0.5, random_state=3)
    numpy = fitted(
        lam=np.float32(2),
        epochs=np.int64(2),
        batch_size=np.int32(30),
        learning_rate=np.float64(0.5),
        random_state=np.int64(3),
        encoder=list(np.array([6, 3])),
    )
    assert same(plain, numpy, X)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_cloned_printed_and_set_like_any_other(name):
    penalty = Penalty(HSIC(normalized=True), on="prediction")
    model = made(name, penalty=penalty, training=Training(clip=1.0))
    assert model.get_params(deep=False)["penalty"] is penalty
    copied = clone(model)
    assert repr(copied.penalty) == repr(penalty)
    assert copied.training == model.training
    assert copied.set_params(lam=7.0, epochs=9).get_params()["lam"] == 7.0
    assert model.lam == 1.0
    assert "normalized=True" in repr(model)
    assert repr(MODELS[name](lam=3.0)) == f"{name}(lam=3.0)"
    X, y, s = sample()
    assert same(model.fit(X, y, sensitive_features=s), clone(model).fit(X, y, sensitive_features=s), X)


class Plain(Dependence):
    """A dependence without scales: calibrating gives back the object itself."""

    def _value(self, z, s, w):
        return (z * s.values).mean() ** 2


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lam", [0.0, 1.0])
@pytest.mark.parametrize("dependence", [HSIC(), Adversary((4,)), Plain()], ids=["HSIC", "Adversary", "Plain"])
def test_fit_does_not_change_the_penalty_of_the_caller(name, lam, dependence):
    given = {"y": 1} if name == "FRHSICClassifier" else None
    penalty = Penalty(dependence, given=given)
    before = repr(penalty)
    model = fitted(name, penalty=penalty, lam=lam)
    assert model.penalty is penalty
    assert (repr(penalty), penalty.given, list(penalty.parameters())) == (before, given, [])
    assert not set(map(id, model.penalty_.modules())) & set(map(id, penalty.modules()))
    if lam and isinstance(dependence, Adversary):
        assert len(list(model.penalty_.parameters())) == 4


@pytest.mark.parametrize("name", MODELS)
def test_the_default_penalty_is_that_of_the_package(name):
    X, y, s = sample()
    model = fitted(name)
    default = default_penalty
    if name == "FRHSICEncoder":  # the decoder would undo any shrinking that a whitened kernel does not see

        def default(estimator="unbiased"):
            return Penalty(HSIC(Gaussian("scale-free", whiten=True), estimator=estimator))

    assert model.penalty is None
    assert same(model, fitted(name, penalty=default()), X)
    # No weighted unbiased estimator is derived: with weights it is the biased one.
    data = {"X": X, "y": y, "sensitive_features": s, "sample_weight": np.linspace(0.1, 2, 100)}
    biased = made(name, penalty=default("biased")).fit(**data)
    assert same(made(name).fit(**data), biased, X)


@pytest.mark.parametrize("name", MODELS)
def test_pickling_keeps_every_bit(name):
    X, _, _ = sample()
    model = fitted(name, penalty=Penalty(HSIC()) + 0.5 * Penalty(Adversary((4,))))
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert same(other, model, X)
        assert other.history_ == model.history_
        assert repr(other.penalty_) == repr(model.penalty_)


# Sensitive features


@pytest.mark.parametrize("name", MODELS)
def test_only_without_a_penalty_may_sensitive_features_be_left_out(name):
    X, y, s = sample()
    without = made(name, lam=0).fit(X, y)
    assert same(without, made(name, lam=0).fit(X, y, sensitive_features=s), X)
    assert without.history_[-1]["penalty"] is None
    says = (
        r"^'sensitive_features' must be passed to fit for lam = 1\. Got None\. .*enable_metadata_routing=True"
    )
    with pytest.raises(ValueError, match=says):
        made(name).fit(X, y)


class Exploding(Dependence):
    def _value(self, z, s, w):
        raise AssertionError("evaluated")


def test_at_lam_zero_the_penalty_is_not_evaluated():
    X, y, s = sample()
    made("FRHSICClassifier", lam=0, penalty=Penalty(Exploding())).fit(X, y, sensitive_features=s)
    with pytest.raises(AssertionError, match="evaluated"):
        made("FRHSICClassifier", penalty=Penalty(Exploding())).fit(X, y, sensitive_features=s)


@pytest.mark.parametrize("name", MODELS)
def test_a_strong_penalty_lowers_the_dependence_of_the_representation(name):
    X, y, s = sample(120)
    measure = HSIC(Gaussian(), normalized=True)
    values = []
    for lam in (0.0, 20.0):
        model = made(name, lam=lam, epochs=40, penalty=Penalty(HSIC(normalized=True)))
        z = model.fit(X, y, sensitive_features=s).transform(X)
        values.append(float(measure(torch.tensor(z), torch.tensor(s))))
    assert values[1] < 0.5 * values[0]


def test_sensitive_columns_keep_their_names_and_kinds():
    X, y, s = sample()
    frame = {"age": s, "sex": np.where(np.arange(100) % 3 == 0, "f", "m")}
    models = [
        made("FRHSICClassifier", penalty=Penalty(HSIC(), columns=["age", "sex"])).fit(
            X, y, sensitive_features=make(frame)
        )
        for make in (pd.DataFrame, pl.DataFrame, dict)
    ]
    assert models[0].sensitive_names_ == ("age", "sex")
    assert models[0].sensitive_kinds_ == ("continuous", "categorical")
    assert all(same(models[0], other, X) for other in models[1:])
    assert len(models[0].history_[0]["terms"]) == 2
    # Codes of categories are not scaled.
    assert models[0].scaling_s_.shift[1] == 0
    assert models[0].scaling_s_.factor[1] == 1
    only_age = made("FRHSICClassifier", penalty=Penalty(HSIC(), columns=["age"]))
    alone = made("FRHSICClassifier", penalty=Penalty(HSIC())).fit(X, y, sensitive_features=s)
    assert same(only_age.fit(X, y, sensitive_features=pd.DataFrame(frame)), alone, X)
    with pytest.raises(ValueError, match=r"^'columns' must be among the sensitive columns \['age', 'sex'\]"):
        made("FRHSICClassifier", penalty=Penalty(HSIC(), columns=["income"])).fit(
            X, y, sensitive_features=pd.DataFrame(frame)
        )


# Classes


CLASSES = {
    "integers": (3, 8),
    "floats": (0.0, 1.0),
    "booleans": (False, True),
    "strings": ("no", "yes"),
    "objects": (np.array("no", dtype=object).item(), "yes"),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_classes_of_every_type_are_predicted_as_they_came(kind):
    X, y, s = sample()
    classes = np.array(CLASSES[kind], dtype=object if kind == "objects" else None)
    labels = classes[y]
    model = made("FRHSICClassifier").fit(X, labels, sensitive_features=s)
    assert model.classes_.tolist() == list(CLASSES[kind])
    predicted = model.predict(X)
    assert predicted.dtype == labels.dtype
    assert set(predicted.tolist()) <= set(CLASSES[kind])
    assert same(model, fitted(), X)
    for column in (labels.tolist(), pd.Series(labels), pl.Series(labels.tolist())):
        assert same(made("FRHSICClassifier").fit(X, column, sensitive_features=s), model, X)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities_decisions_and_predictions_agree(classes):
    X, _, s = sample()
    y = np.array(list("edcba"))[np.digitize(X[:, 0], np.linspace(-1, 1, classes - 1))]
    model = made("FRHSICClassifier", epochs=8).fit(X, y, sensitive_features=s)
    logits, proba = model.decision_function(X), model.predict_proba(X)
    assert model.classes_.tolist() == sorted(set(y))
    assert proba.shape == (100, classes)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    if classes == 2:
        assert logits.shape == (100,)
        np.testing.assert_allclose(proba[:, 1], 1 / (1 + np.exp(-logits)), rtol=1e-12)
        expected = model.classes_[(logits > 0).astype(int)]
    else:
        assert logits.shape == (100, classes)
        exponential = np.exp(logits)
        np.testing.assert_allclose(
            proba, exponential / exponential.sum(axis=1, keepdims=True), rtol=1e-12, atol=1e-15
        )
        expected = model.classes_[logits.argmax(axis=1)]
    np.testing.assert_array_equal(model.predict(X), expected)
    assert len(set(model.predict(X))) > 1


def test_probabilities_of_extreme_rows_stay_probabilities():
    model = fitted()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        proba = model.predict_proba(1e12 * np.eye(3))
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    ("classes", "label"),
    [((0, 1), 1), ((0, 1), np.int64(1)), (("no", "yes"), "yes"), ((False, True), True), ((-1.0, 2.0), 2.0)],
    ids=str,
)
def test_equal_opportunity_names_the_class_as_it_stands_in_y(classes, label):
    X, y, s = sample()
    model = made("FRHSICClassifier", penalty=Penalty(HSIC(), given={"y": label}), batch_size=100, epochs=1)
    model.fit(X, np.array(classes)[y], sensitive_features=s)
    # The first step sees the initial weights, which are those of a model that is trained without a penalty.
    initial = made("FRHSICClassifier", batch_size=100, epochs=1, learning_rate=1e-12, lam=0).fit(X, y)
    z = torch.tensor(initial.transform(X))[torch.tensor(y == 1)]
    scaled = model.scaling_s_.apply(torch.tensor(s)[:, None])[torch.tensor(y == 1)]
    assert model.history_[0]["penalty"] == pytest.approx(float(HSIC()(z, scaled)), rel=1e-4)
    other = made("FRHSICClassifier", penalty=Penalty(HSIC(), given="y"), batch_size=100, epochs=1)
    assert other.fit(X, y, sensitive_features=s).history_[0]["penalty"] != model.history_[0]["penalty"]


@pytest.mark.parametrize("label", ["maybe", 2, None])
def test_an_unknown_class_in_the_penalty_is_refused(label):
    X, y, s = sample()
    y = np.array(["no", "yes"])[y]
    with pytest.raises(ValueError, match=r"^'given' must name (classes of y, among 'no', 'yes'|a label)"):
        made("FRHSICClassifier", penalty=Penalty(HSIC(), given={"y": label})).fit(X, y, sensitive_features=s)


def test_only_classes_can_be_given():
    X, y, s = sample()
    penalty = Penalty(HSIC(), given="y")
    with pytest.raises(ValueError, match=r"^'penalty' must not be given labels of y"):
        made("FRHSICRegressor", penalty=penalty).fit(X, y, sensitive_features=s)
    with pytest.raises(ValueError, match=r"^'y' must be passed"):
        made("FRHSICEncoder", penalty=penalty).fit(X, sensitive_features=s)
    given = made("FRHSICEncoder", penalty=penalty).fit(X, y, sensitive_features=s)
    assert not same(given, made("FRHSICEncoder").fit(X, y, sensitive_features=s), X)


def test_a_rare_class_is_counted_by_its_own_name_in_the_history():
    X, y, s = sample()
    labels = np.array(["no", "yes"], dtype=object)[y]
    labels[np.flatnonzero(y)[:5]] = "rare"
    model = made("FRHSICClassifier", penalty=Penalty(HSIC(), given="y"), batch_size=50)
    with pytest.warns(UserWarning, match=r"with which a label of 5 rows has fewer\. Use batch_size=100 "):
        model.fit(X, labels, sensitive_features=s)
    for record in model.history_:
        assert dict(record["skipped"])["rare"] >= 1
        assert set(dict(record["skipped"])) <= {"rare"}


# What goes in


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("library", FRAMES)
def test_frames_bring_names_in_and_take_names_out(name, library):
    X, y, s = sample()
    frame = FRAMES[library](dict(zip(("income", "years", "rooms"), X.T, strict=True)))
    model, twin = made(name).fit(frame, y, sensitive_features=s), fitted(name)
    np.testing.assert_array_equal(model.transform(frame), twin.transform(X))
    assert model.feature_names_in_.tolist() == ["income", "years", "rooms"]
    assert model.n_features_in_ == 3
    names = [f"{name.lower()}{j}" for j in range(3)]
    assert model.get_feature_names_out().tolist() == names
    out = model.set_output(transform=library).transform(frame)
    assert isinstance(out, FRAMES[library])
    assert list(out.columns) == names
    np.testing.assert_array_equal(out.to_numpy(), twin.transform(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(frame[["years", "income", "rooms"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.transform(X)


@pytest.mark.parametrize("name", MODELS)
def test_models_trained_on_arrays_have_no_names(name):
    model = fitted(name)
    assert "feature_names_in_" not in vars(model)
    with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3"):
        model.transform(sample()[0][:, :2])
    with pytest.raises(NotFittedError):
        made(name).transform(sample()[0])


def test_every_table_of_the_same_numbers_gives_the_same_model():
    X, y, s = sample()
    base = fitted()
    for table in (X.tolist(), torch.tensor(X), X.copy(order="F"), tuple(map(tuple, X.tolist()))):
        model = made("FRHSICClassifier").fit(table, torch.tensor(y), sensitive_features=torch.tensor(s))
        assert model.n_features_in_ == 3
        assert same(model, base, X)
        np.testing.assert_array_equal(model.transform(table), base.transform(X))


def test_a_dict_of_columns_is_refused():
    X, y, s = sample()
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
    with pytest.raises(TypeError, match=r"^'X' must be an array or a frame\. Got a dict"):
        made("FRHSICClassifier").fit(table, y, sensitive_features=s)


def with_entry(column, value):
    changed = np.array(column, dtype=object if value is None else None)
    changed[(7,) + (0,) * (changed.ndim - 1)] = value
    return changed


X0, Y0, S0 = sample()
WRONG = {
    "NaN in X": ("X", with_entry(X0, np.nan)),
    "None in X": ("X", with_entry(X0, None)),
    "infinity in X": ("X", with_entry(X0, np.inf)),
    "huge number in X": ("X", with_entry(X0, 1e200)),
    "one-dimensional X": ("X", X0[:, 0]),
    "one-dimensional list X": ("X", X0[:, 0].tolist()),
    "one-dimensional tuple X": ("X", tuple(X0[:, 0].tolist())),
    "one-dimensional pandas X": ("X", pd.Series(X0[:, 0])),
    "one-dimensional polars X": ("X", pl.Series(X0[:, 0])),
    "three-dimensional X": ("X", X0[:, :, None]),
    "strings in X": ("X", X0.astype(str)),
    "complex X": ("X", X0 + 1j),
    "no columns in X": ("X", X0[:, :0]),
    "fewer rows in X": ("y", X0[:-1]),
    "multi-output y": ("y", np.column_stack([Y0, Y0])),
    "fewer rows in y": ("y", Y0[:-1]),
    "no y": ("y", None),
    "NaN in y": ("y", with_entry(Y0.astype(float), np.nan)),
    "None in y": ("y", with_entry(Y0, None)),
    "infinity in y": ("y", with_entry(Y0.astype(float), np.inf)),
    "fewer rows in S": ("sensitive_features", S0[:-1]),
    "constant S": ("sensitive_features", np.full(100, SECRET)),
    "a constant column of S": ("sensitive_features", {"age": S0, "zone": np.full(100, SECRET)}),
    "NaN in S": ("sensitive_features", with_entry(S0, np.nan)),
    "infinity in S": ("sensitive_features", with_entry(S0, np.inf)),
    "sparse S": ("sensitive_features", scipy.sparse.csr_array(S0[:, None])),
    "three-dimensional S": ("sensitive_features", S0[:, None, None]),
    "fewer weights": ("sample_weight", np.ones(99)),
    "negative weights": ("sample_weight", with_entry(np.ones(100), -SECRET)),
    "no positive weight": ("sample_weight", np.zeros(100)),
    "NaN in weights": ("sample_weight", with_entry(np.ones(100), np.nan)),
    "two columns of weights": ("sample_weight", np.ones((100, 2))),
}
# scikit-learn reads y in its own words: "y should be a 1d array", "Input y contains NaN".
LOOSE = {"multi-output y", "NaN in y", "None in y", "infinity in y"}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("what", WRONG)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_data_that_cannot_be_trained_on_are_refused_by_name_and_without_values(name, what):
    argument, value = WRONG[what]
    if argument == "y" and name == "FRHSICEncoder" and what != "fewer rows in X":
        pytest.skip("the encoder reads no y")
    X = np.where(X0[3, 0] == X0, SECRET, X0)
    data = {"X": X, "y": Y0, "sensitive_features": np.where(S0[3] == S0, SECRET, S0)}
    data["X" if what == "fewer rows in X" else argument] = value
    if what == "fewer rows in X" and name == "FRHSICEncoder":
        argument = "sensitive_features"
    with pytest.raises((TypeError, ValueError)) as caught:
        made(name).fit(**data)
    message = str(caught.value)
    if what in LOOSE:
        assert f"'{argument}'" in message or f" {argument} " in f" {message}"
    else:
        assert message.startswith(f"'{argument}' must ")
    assert str(SECRET)[:5] not in message


@pytest.mark.parametrize("value", [None, np.nan, 7], ids=str)
def test_strings_with_gaps_or_numbers_among_them_are_refused_as_classes(value):
    X, y, s = sample()
    labels = np.array(["no", "yes"], dtype=object)[y]
    labels[7] = value
    with pytest.raises((TypeError, ValueError), match=r"\by\b") as caught:
        made("FRHSICClassifier").fit(X, labels, sensitive_features=s)
    assert "not supported between instances" not in str(caught.value)


def test_a_continuous_target_is_no_class():
    X, _, s = sample()
    with pytest.raises(ValueError, match=r"(?s)'y' .*Unknown label type: continuous"):
        made("FRHSICClassifier").fit(X, X[:, 0], sensitive_features=s)


def test_a_single_class_is_refused():
    X, y, s = sample()
    with pytest.raises(ValueError, match=r"^'y' must have at least two classes. Got only 1 class"):
        made("FRHSICClassifier").fit(X, 0 * y, sensitive_features=s)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "what", [what for what in WRONG if what.endswith((" X", "in X")) and what != "fewer rows in X"]
)
def test_predictions_refuse_the_same_tables(name, what):
    with pytest.raises((TypeError, ValueError)) as caught:
        fitted(name).transform(WRONG[what][1])
    assert str(caught.value).startswith(("'X' must ", "X has 0 features", "X has 1 features"))


def test_a_column_vector_as_y_is_taken_with_a_warning():
    X, y, s = sample()
    with pytest.warns(Warning, match="column-vector y"):
        model = made("FRHSICClassifier").fit(X, y[:, None], sensitive_features=s)
    assert same(model, fitted(), X)


# Scales


@pytest.mark.parametrize("early_stopping", [False, True])
def test_scales_are_learned_on_the_rows_of_training_only(early_stopping):
    # Powers of two: their sum tells which rows it is of. Means over 32 rows are exact.
    n = 36 if early_stopping else 32
    powers = 2.0 ** np.arange(n)
    X = np.column_stack([powers, np.ones(n)])
    model = made(
        "FRHSICRegressor", early_stopping=early_stopping, training=Training(validation_fraction=1 / 9)
    )
    model.fit(X, powers, sensitive_features=powers)
    rows = np.array([bool(int(32 * model.scaling_x_.shift[0]) >> j & 1) for j in range(n)])
    assert rows.sum() == 32
    for scaling in (model.scaling_x_, model.scaling_s_, model.scaling_y_):
        assert scaling.shift[0] == powers[rows].mean()
        assert scaling.factor[0] == pytest.approx(1 / powers[rows].std())
    assert model.scaling_x_.factor[1] == 0  # does not vary


@pytest.mark.parametrize("scaling", ["standard", "minmax", "none"])
def test_the_scaling_is_the_one_asked_for(scaling):
    X, y, s = sample()
    model = made("FRHSICRegressor", training=Training(scaling=scaling)).fit(X, y, sensitive_features=s)
    apply = {
        "standard": lambda x: (x - x.mean(axis=0)) / x.std(axis=0),
        "minmax": lambda x: (x - x.min(axis=0)) / (x.max(axis=0) - x.min(axis=0)),
        "none": lambda x: x,
    }[scaling]
    np.testing.assert_allclose(model.scaling_x_.apply(torch.tensor(X)), apply(X), atol=1e-12)
    np.testing.assert_allclose(model.scaling_s_.apply(torch.tensor(s)[:, None])[:, 0], apply(s), atol=1e-12)
    target = model.scaling_y_.apply(torch.tensor(y, dtype=torch.float64)[:, None])
    np.testing.assert_allclose(target[:, 0], apply(y), atol=1e-12)
    np.testing.assert_allclose(model.scaling_y_.invert(target)[:, 0], y, atol=1e-12)


def test_weights_enter_the_scales():
    X, y, s = sample()
    w = np.linspace(0.1, 2, 100)
    model = made("FRHSICClassifier").fit(X, y, sensitive_features=s, sample_weight=w)
    mean = np.average(X, axis=0, weights=w)
    np.testing.assert_allclose(model.scaling_x_.shift, mean)
    np.testing.assert_allclose(
        model.scaling_x_.factor, np.average((X - mean) ** 2, axis=0, weights=w) ** -0.5
    )
    np.testing.assert_allclose(model.scaling_s_.shift, np.average(s, weights=w)[None])


def test_regressions_predict_in_the_units_of_y():
    X, _, s = sample()
    y = X[:, 0]
    a = made("FRHSICRegressor", epochs=40).fit(X, y, sensitive_features=s).predict(X)
    b = made("FRHSICRegressor", epochs=40).fit(X, 1000.0 * y - 5e4, sensitive_features=s).predict(X)
    np.testing.assert_allclose(b, 1000.0 * a - 5e4, rtol=1e-3)
    assert np.corrcoef(a, y)[0, 1] > 0.9
    with pytest.warns(UserWarning, match=r"'y' has one value, 3\.5, in all 100 rows"):
        constant = made("FRHSICRegressor").fit(X, np.full(100, 3.5), sensitive_features=s)
    np.testing.assert_allclose(constant.predict(X), 3.5, rtol=1e-12)


def numpy_layers(layers, x):
    """Return what SELU layers make of x, in numpy."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            x = x @ layer.weight.numpy().T + layer.bias.numpy()
        else:
            assert isinstance(layer, nn.SELU)
            x = 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    return x


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_those_of_the_layers_in_float64(name):
    X, _, _ = sample()
    model = fitted(name)
    x = (X - model.scaling_x_.shift.numpy()) * model.scaling_x_.factor.numpy()
    z = numpy_layers(model.encoder_, x)
    out = numpy_layers(model.head_, z)
    assert model.transform(X).dtype == np.float64
    np.testing.assert_allclose(model.transform(X), z, rtol=1e-12, atol=1e-14)
    if name == "FRHSICClassifier":
        np.testing.assert_allclose(model.decision_function(X), out[:, 0], rtol=1e-12, atol=1e-14)
        assert model.predict_proba(X).dtype == np.float64
    elif name == "FRHSICRegressor":
        expected = out[:, 0] / model.scaling_y_.factor.item() + model.scaling_y_.shift.item()
        np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12, atol=1e-14)
    else:
        assert model.score(X) == pytest.approx(-((out - x) ** 2).mean(), rel=1e-12)
        assert [layer.out_features for layer in model.head_ if isinstance(layer, nn.Linear)] == [6, 3]


@pytest.mark.parametrize("name", MODELS)
def test_predictions_in_chunks_are_the_same(name, monkeypatch):
    X, _, _ = sample()
    model = fitted(name)
    whole = seen(model, X)
    monkeypatch.setattr(_base, "_CHUNK", 7)
    np.testing.assert_allclose(seen(model, X), whole, rtol=1e-13, atol=1e-15)


# Weights


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("penalty", [None, Penalty(HSIC())], ids=["default", "HSIC"])
def test_rows_of_weight_zero_are_not_there(name, early_stopping, penalty):
    X, y, s = sample()
    keep = np.arange(100) % 4 != 0
    X = np.where(keep[:, None], X, 1e9)
    changes = {"early_stopping": early_stopping, "epochs": 5, "penalty": penalty}
    w = 2.5 * keep
    zero = made(name, **changes).fit(X, y, sensitive_features=s, sample_weight=w)
    twin = made(name, **changes).fit(X[keep], y[keep], sensitive_features=s[keep], sample_weight=w[keep])
    assert same(zero, twin, sample()[0])
    if penalty is not None:  # the default one has another form with weights
        bare = made(name, **changes).fit(X[keep], y[keep], sensitive_features=s[keep])
        np.testing.assert_allclose(seen(zero, sample()[0]), seen(bare, sample()[0]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.0, 1: 4.0}], ids=str)
def test_rows_of_weight_zero_do_not_count_in_class_weights_either(class_weight):
    X, y, s = sample()
    keep = (np.arange(100) % 4 != 0) | (y == 1)
    w = 1.0 * keep
    zero = made("FRHSICClassifier", class_weight=class_weight)
    zero.fit(X, y, sensitive_features=s, sample_weight=w)
    twin = made("FRHSICClassifier", class_weight=class_weight)
    assert same(zero, twin.fit(X[keep], y[keep], sensitive_features=s[keep], sample_weight=w[keep]), X)


@pytest.mark.parametrize("name", MODELS)
def test_only_ratios_of_weights_count(name):
    X, y, s = sample()
    w = np.linspace(0.1, 2, 100)
    a, b = (made(name).fit(X, y, sensitive_features=s, sample_weight=c * w) for c in (1.0, 8.0))
    assert same(a, b, X)


@pytest.mark.parametrize("classes", [2, 3])
def test_class_weights_are_weights_of_the_loss(classes):
    X, _, _ = sample()
    y = np.digitize(X[:, 0], [-0.8, 0.8][: classes - 1])
    balanced = 100 / (classes * np.bincount(y))
    by_hand = {k: float(v) for k, v in enumerate(balanced)}
    plain = Training(scaling="none")  # weights of rows would enter the scales
    fits = [
        made("FRHSICClassifier", lam=0, training=plain, class_weight=class_weight).fit(X, y)
        for class_weight in ("balanced", by_hand)
    ]
    fits.append(made("FRHSICClassifier", lam=0, training=plain).fit(X, y, sample_weight=balanced[y]))
    assert same(fits[0], fits[1], X)
    np.testing.assert_allclose(seen(fits[2], X), seen(fits[0], X), rtol=1e-4, atol=1e-6)
    unweighted = made("FRHSICClassifier", lam=0, training=plain).fit(X, y)
    assert not np.allclose(seen(unweighted, X), seen(fits[0], X), rtol=1e-3)


@pytest.mark.parametrize("class_weight", [{0: 1.0, 1: 9.0}, {0: 0.0, 1: 1.0}], ids=str)
def test_class_weights_do_not_enter_the_penalty(class_weight):
    # The first step sees the same initial weights.
    one_step = {"batch_size": 100, "epochs": 1}
    weighted = fitted(class_weight=class_weight, **one_step).history_[0]
    plain = fitted(**one_step).history_[0]
    assert weighted["penalty"] == plain["penalty"]
    assert weighted["loss"] != plain["loss"]


# Networks


class Odd(nn.Module):
    """A module with dropout, batch norm and a buffer of whole numbers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 2)
        )

    def forward(self, x):
        return self.layers(x)


def odd():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return Odd()


@pytest.mark.parametrize("name", MODELS)
def test_any_module_can_be_the_encoder_and_is_not_changed(name):
    X, y, s = sample()
    encoder = odd()
    before = copy.deepcopy(encoder.state_dict())
    model = made(name, encoder=encoder).fit(X, y, sensitive_features=s)
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())
    assert encoder.training
    assert model.encoder is encoder
    norm = model.encoder_.layers[1]
    assert norm.num_batches_tracked == 3 * 3  # 100 rows are three batches; nothing else was tracked
    assert not norm.running_mean.allclose(torch.zeros(8, dtype=torch.float64))
    assert not model.encoder_.training
    np.testing.assert_array_equal(model.transform(X), model.transform(X))
    np.testing.assert_allclose(model.transform(X[:1]), model.transform(X)[:1], rtol=1e-12)
    assert model.transform(X).shape == (100, 2)
    assert model.get_feature_names_out().tolist() == [f"{name.lower()}0", f"{name.lower()}1"]
    assert same(made(name, encoder=odd()).fit(X, y, sensitive_features=s), model, X)
    other = made(name, encoder=odd(), random_state=1).fit(X, y, sensitive_features=s)
    assert not same(other, model, X)
    assert same(pickle.loads(pickle.dumps(model)), model, X)


def test_frozen_layers_of_the_caller_stay_frozen_also_after_a_warm_start():
    X, y, s = sample()
    encoder = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    encoder[0].requires_grad_(False)
    model = made("FRHSICClassifier", encoder=encoder, warm_start=True)
    for _ in range(2):
        model.fit(X, y, sensitive_features=s)
        torch.testing.assert_close(model.encoder_[0].weight, encoder[0].weight.double(), rtol=0, atol=0)
        assert not torch.equal(model.encoder_[2].weight, encoder[2].weight.double())


def test_a_warm_start_goes_on_from_the_weights():
    X, y, _ = sample()
    model = made("FRHSICClassifier", lam=0, batch_size=100, epochs=10, warm_start=True).fit(X, y)
    reached = log_loss(y, model.predict_proba(X))
    model.fit(X, y)
    assert model.history_[0]["loss"] == pytest.approx(reached, rel=1e-5)
    assert model.n_iter_ == len(model.history_) == 10
    model.set_params(warm_start=False).fit(X, y)
    assert model.history_[0]["loss"] > 1.05 * reached


@pytest.mark.parametrize("name", MODELS)
def test_a_warm_start_of_something_else_is_refused(name):
    X, y, s = sample()
    model = made(name, warm_start=True).fit(X, y, sensitive_features=s)
    with pytest.raises(ValueError, match=r"^'(warm_start|X)' must "):
        model.fit(X[:, :2], y, sensitive_features=s)


@pytest.mark.parametrize("classes", [(0, 1, 2), (5, 6)], ids=str)
def test_a_warm_start_with_other_classes_is_refused(classes):
    X, y, s = sample()
    model = made("FRHSICClassifier", warm_start=True).fit(X, y, sensitive_features=s)
    labels = np.array(classes)[np.arange(100) % len(classes)]
    with pytest.raises(ValueError, match=r"^'y' must have the same classes as before"):
        model.fit(X, labels, sensitive_features=s)


# Randomness and history


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("random_state", [None, 0], ids=str)
def test_global_generators_are_left_alone(name, random_state):
    X, y, s = sample()
    penalty = Penalty(HSIC()) + Penalty(Adversary((4,)))
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    model = made(name, encoder=odd(), penalty=penalty, random_state=random_state, early_stopping=True)
    model.fit(X, y, sensitive_features=s).transform(X)
    assert torch.equal(torch.get_rng_state(), torch_before)
    numpy_after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(numpy_before, numpy_after, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_global_seeds_do_not_reach_the_model(name):
    X, y, s = sample()
    models = []
    with torch.random.fork_rng():
        for seed in (1, 2):
            torch.manual_seed(seed)
            models.append(made(name, penalty=Penalty(Adversary((4,)))).fit(X, y, sensitive_features=s))
    assert same(*models, X)
    a, b = (made(name, random_state=None).fit(X, y, sensitive_features=s) for _ in range(2))
    assert not same(a, b, X)


@pytest.mark.parametrize(
    "make",
    [np.random.RandomState, np.random.default_rng, to_generator],
    ids=["RandomState", "numpy", "torch"],
)
def test_generators_are_states_that_move_on(make):
    X, y, s = sample()
    generator = make(3)
    first, second, again = (
        made("FRHSICClassifier", random_state=state).fit(X, y, sensitive_features=s)
        for state in (generator, generator, make(3))
    )
    assert same(first, again, X)
    assert not same(first, second, X)


@pytest.mark.parametrize("name", MODELS)
def test_the_history_tells_each_epoch(name):
    model = fitted(name, epochs=4)
    assert [record["epoch"] for record in model.history_] == [0, 1, 2, 3]
    assert (model.n_iter_, model.best_epoch_) == (4, 3)
    for record in model.history_:
        assert record["penalty"] == pytest.approx(sum(record["terms"]))
        assert record["validation_loss"] is None
        assert record["seconds"] > 0
    stopped = fitted(name, epochs=200, learning_rate=0.1, early_stopping=True, training=Training(patience=2))
    assert stopped.n_iter_ == stopped.best_epoch_ + 3 < 200
    objectives = [record["validation_loss"] + record["validation_penalty"] for record in stopped.history_]
    assert int(np.argmin(objectives)) == stopped.best_epoch_


def test_too_few_rows_to_hold_out_are_an_error():
    X, y, s = sample()
    with pytest.raises(ValueError, match=r"^'X' must have enough rows to hold out 4"):
        made("FRHSICClassifier", early_stopping=True).fit(X[:10], y[:10], sensitive_features=s[:10])


@pytest.mark.parametrize("encoder", [(6, 3), (50, 50)])
@pytest.mark.parametrize("name", MODELS)
def test_four_held_out_rows_are_enough_and_fewer_are_an_error(name, encoder):
    X, y, s = sample()
    model = made(name, early_stopping=True, encoder=encoder)
    model.fit(X[:40], y[:40], sensitive_features=s[:40])
    assert model.history_[0]["validation_penalty"] is not None
    with pytest.raises(ValueError, match=r"^'X' must have enough rows to hold out 4"):
        model.fit(X[:30], y[:30], sensitive_features=s[:30])


def test_held_out_rows_hold_the_same_share_of_each_class():
    X, _, s = sample()
    y = (np.arange(100) % 10 == 0).astype(int)
    penalty = Penalty(HSIC(), given="y")
    for seed in range(5):
        model = made("FRHSICClassifier", penalty=penalty, early_stopping=True, batch_size=100, epochs=1)
        model.set_params(random_state=seed, training=Training(validation_fraction=0.5))
        with pytest.warns(UserWarning, match="'batch_size' must give every label"):
            model.fit(X, y, sensitive_features=s)
        assert model.history_[0]["validation_skipped"] == ((1, 1),)  # five of the ten
        assert model.history_[0]["skipped"] == ((1, 1),)


def test_early_stopping_that_cannot_see_the_penalty_is_refused():
    X, y, s = sample(200)
    y = (np.arange(200) % 3 == 0).astype(int)
    model = made("FRHSICClassifier", penalty=Penalty(HSIC(), given={"y": 1}), early_stopping=True)
    with pytest.raises(ValueError, match=r"^'validation' must have enough rows of the labels of y"):
        model.set_params(batch_size=100).fit(X, y, sensitive_features=s)


@pytest.mark.parametrize("name", MODELS)
def test_equal_weights_are_no_weights(name):
    X, y, s = sample()
    weighted = made(name).fit(X, y, sensitive_features=s, sample_weight=np.full(100, 3.0))
    assert same(weighted, fitted(name), X)


def test_a_penalty_without_weights_in_it_says_so_for_weights_that_differ():
    X, y, s = sample()
    model = made("FRHSICClassifier", penalty=Penalty(HSIC(estimator="unbiased")))
    with pytest.raises(ValueError, match="unbiased"):
        model.fit(X, y, sensitive_features=s, sample_weight=np.linspace(1, 2, 100))


def test_the_default_penalty_does_not_inflate_the_logits():
    # An unbiased linear term rewards large logits: sd 420 at lam = 100 instead of 1.
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(300, 3)), rng.normal(size=300)
    y = rng.uniform(size=300) < 1 / (1 + np.exp(-X[:, 0]))
    models = [
        FRHSICClassifier(lam=lam, epochs=100, random_state=0).fit(X, y, sensitive_features=s)
        for lam in (0, 100)
    ]
    free, bound = (model.decision_function(X).std() for model in models)
    assert bound < 3 * free


def test_one_outlying_target_does_not_stop_a_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_000, 2))
    y = X[:, 0].copy()
    y[7] = 1e6
    FRHSICRegressor(lam=0, batch_size=4, epochs=1, encoder=(4,), random_state=0).fit(X, y)


@pytest.mark.parametrize("name", MODELS)
def test_a_warm_start_goes_on_from_the_same_function_on_other_rows(name):
    X, y, s = sample()
    model = fitted(name)
    before = seen(model, X)
    high = X[:, 2] > 7
    model.set_params(warm_start=True, learning_rate=1e-12, epochs=1)
    model.fit(X[high], y[high], sensitive_features=s[high])
    np.testing.assert_allclose(seen(model, X), before, atol=1e-5)
    with pytest.raises(ValueError, match=r"^'encoder' must be as before for warm_start=True"):
        model.set_params(encoder=(7, 3)).fit(X, y, sensitive_features=s)


@pytest.mark.parametrize(("batch_size", "n"), [(4, 10), (6, 9), (5, 11), (4, 6)])
@pytest.mark.filterwarnings("ignore:'X' has . rows to train on")
def test_no_batch_is_too_short_for_the_default_penalty(batch_size, n):
    X, y, s = sample()
    y = np.arange(100) % 2
    model = made("FRHSICClassifier", batch_size=batch_size)
    assert model.fit(X[:n], y[:n], sensitive_features=s[:n]).n_iter_ == 3


def test_a_module_that_draws_at_once_leaves_the_global_generator_alone():
    X, y, s = sample()
    before = torch.get_rng_state()
    module = torch.nn.Sequential(torch.nn.LazyLinear(3))
    models = [
        made("FRHSICClassifier", encoder=module).fit(X, y, sensitive_features=s)
        for _ in (torch.manual_seed(5), torch.manual_seed(6))
    ]
    assert same(*models, X)
    torch.set_rng_state(before)
    made("FRHSICClassifier", encoder=module).fit(X, y, sensitive_features=s)
    assert torch.equal(torch.get_rng_state(), before)


def test_several_sensitive_columns_are_taken_one_by_one_by_default():
    X, y, s = sample()
    frame = pd.DataFrame({"age": s, "sex": np.where(np.arange(100) % 3 == 0, "f", "m")})
    model = made("FRHSICClassifier").fit(X, y, sensitive_features=frame)
    assert [term.columns for term in model.penalty_.terms] == [(("age",),), (("sex",),)] * 2


def test_text_with_many_labels_is_no_sensitive_attribute():
    X, y, s = sample(120)
    with pytest.raises(ValueError, match=r"at most 100 categories in a column\. Got 120 in 's'\. Convert"):
        made("FRHSICClassifier").fit(X, y, sensitive_features=np.char.add("id ", s.astype(str)))


def test_codes_can_be_called_categorical():
    X, y, s = sample()
    zone = to_sensitive({"zone": (s // 10).astype(int)}, kinds={"zone": "categorical"})
    model = made("FRHSICClassifier").fit(X, y, sensitive_features=zone)
    assert model.sensitive_kinds_ == ("categorical",)
    with pytest.raises(ValueError, match=r"^'sensitive_features' must have 100 rows"):
        made("FRHSICClassifier").fit(X, y, sensitive_features=zone[torch.arange(50)])


def test_rows_of_weight_zero_do_not_make_s_vary():
    X, y, s = sample()
    s[10:] = 40.0
    weights = np.r_[np.zeros(10), np.linspace(1, 2, 90)]
    with pytest.raises(
        ValueError, match=r"^'sensitive_features' must vary among the rows of positive weight"
    ):
        made("FRHSICClassifier").fit(X, y, sensitive_features=s, sample_weight=weights)


def test_a_failed_fit_leaves_an_earlier_one_usable():
    X, y, s = sample()
    model = fitted()
    before = seen(model, X)
    with pytest.raises(ValueError, match="'sensitive_features'"):
        model.fit(2 * X + 1, y, sensitive_features=s[:-1])
    np.testing.assert_array_equal(seen(model, X), before)
    with pytest.raises(RuntimeError, match="Training stopped"):
        model.set_params(learning_rate=1e6).fit(2 * X + 1, y, sensitive_features=s)
    np.testing.assert_array_equal(seen(model, X), before)


def test_rows_in_another_order_than_x_are_refused():
    X, y, s = sample()
    frame, age = pd.DataFrame(X), pd.Series(s, name="age")
    model = made("FRHSICClassifier")
    with pytest.raises(ValueError, match=r"^'sensitive_features' must have its rows in the order of 'X'"):
        model.fit(frame, y, sensitive_features=age.sample(frac=1, random_state=0))
    # Other labels may be another way to count the same rows.
    model.fit(frame.set_axis(range(100, 200)), y, sensitive_features=age.to_frame())
    assert same(model, made("FRHSICClassifier").fit(X, y, sensitive_features=s), X)
