"""What every published method promises, over the whole face of frhsic.baselines, and what one tries first."""

import inspect
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import nn

from frhsic import Training, baselines, load, save
from frhsic.baselines import Method, Residualizer, adversarial_fairness, correlation_remover
from frhsic.estimators import fit_path

METHODS = {
    name: getattr(baselines, name)
    for name in baselines.__all__
    if isinstance(getattr(baselines, name), Method)
}
PENALISED = {name: method for name, method in METHODS.items() if method.penalty is not None}
# What each lowers, and the strength at which a small table shows it.
STRENGTH = {
    "FRHSIC": 30.0,
    "FREM": 10.0,
    "REG_GDP": 1.0,
    "REG_GDP_PROBABILITIES": 5.0,
    "ADV": 30.0,
    "MMD": 3.0,
    "LAFTR": 3.0,
    "DCOR": 30.0,
}
every_method = pytest.mark.parametrize("name", METHODS)
every_penalised = pytest.mark.parametrize("name", PENALISED)


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, size=n).astype(float)
    u = (age - age.mean()) / age.std()
    X = np.column_stack([u + 0.5 * rng.normal(size=n), rng.normal(size=n), rng.normal(size=n)])
    y = (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(int)
    return X, y, age


def gap(model, X, age):
    logits = model.decision_function(X)
    return np.abs(pd.Series(logits).groupby(pd.cut(age, 8, labels=False)).mean() - logits.mean()).mean()


def test_the_face_lists_the_eight_published_methods_and_reg_gdp_on_probabilities():
    assert sorted(method.name for method in METHODS.values()) == [
        "ADV", "FREM", "FRHSIC", "LAFTR (binned)", "MMD (binned)", "Reg-GDP", "Reg-GDP (probabilities)",
        "Unfair", "dCor",
    ]  # fmt: skip
    assert set(STRENGTH) == set(PENALISED)


@every_method
def test_methods_differ_in_the_penalty_alone(name):
    mine, other = METHODS[name].classifier(random_state=0), METHODS["FRHSIC"].classifier(random_state=0)
    left_out = {"penalty", "lam"}
    same = {key: value for key, value in mine.get_params().items() if key not in left_out}
    assert same == {key: value for key, value in other.get_params().items() if key not in left_out}
    assert mine.training == Training(every=20, last_batch="keep", scaling="minmax")


@every_method
def test_every_argument_reaches_the_estimator(name):
    method = METHODS[name]
    lam = 0.0 if method.penalty is None else 3.0
    for make in (method.classifier, method.regressor):
        if make == method.regressor and name == "REG_GDP_PROBABILITIES":
            continue
        model = make(lam=lam, epochs=7, random_state=5)
        assert (model.lam, model.epochs, model.random_state) == (lam, 7, 5)
        assert set(inspect.signature(make).parameters) == {"lam", "epochs", "random_state"}
        assert make().lam == (0.0 if method.penalty is None else 1.0)


@every_method
def test_estimators_are_cloned_and_share_nothing(name):
    method = METHODS[name]
    first, second = method.classifier(), method.classifier()
    assert repr(clone(first)) == repr(first)
    if method.penalty is not None:
        assert first.penalty is not second.penalty
        assert first.penalty is not method.penalty
        assert repr(first.penalty) == repr(method.penalty)
    assert repr(method) == f"<frhsic.baselines.Method {method.name}>"


@every_penalised
def test_each_method_lowers_the_gap_along_age(name):
    X, y, age = table()
    models = fit_path(
        PENALISED[name].classifier(epochs=25, random_state=0).set_params(batch_size=64),
        X, y, lams=[0.0, STRENGTH[name]], sensitive_features=age,
    )  # fmt: skip
    free, held = (gap(model, X, age) for model in models)
    assert held < 0.7 * free


@every_penalised
def test_the_path_is_the_separate_fits(name):
    X, y, age = table(200)
    method = PENALISED[name]
    path = fit_path(
        method.classifier(epochs=2, random_state=0), X, y, lams=[0.5, 5.0], sensitive_features=age
    )
    for lam, stacked in zip((0.5, 5.0), path, strict=True):
        alone = method.classifier(lam=lam, epochs=2, random_state=0).fit(X, y, sensitive_features=age)
        np.testing.assert_allclose(stacked.decision_function(X), alone.decision_function(X), atol=1e-5)


@every_method
def test_methods_regress_too(name):
    X, _, age = table(120)
    method = METHODS[name]
    if name == "REG_GDP_PROBABILITIES":
        with pytest.raises(
            ValueError, match=r"^'Reg-GDP \(probabilities\)' must have probabilities.*Reg-GDP"
        ):
            method.regressor()
        return
    model = method.regressor(epochs=1, random_state=0).fit(X, X[:, 0], sensitive_features=age)
    assert model.predict(X).shape == (120,)


@every_method
def test_fitted_methods_are_saved_with_their_settings(name, tmp_path):
    X, y, age = table(120)
    model = METHODS[name].classifier(epochs=1, random_state=0).fit(X, y, sensitive_features=age)
    save(model, tmp_path / "model.frhsic")
    again = load(tmp_path / "model.frhsic")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert repr(again.penalty) == repr(model.penalty)
    assert again.training == model.training


def test_unfair_has_no_strength():
    with pytest.raises(ValueError, match=r"^'lam' must be 0 or None for Unfair.*Got 2\.0\."):
        METHODS["UNFAIR"].classifier(lam=2.0)
    with pytest.raises(ValueError, match=r"^'lam' must be 0 or None for Unfair"):
        METHODS["UNFAIR"].regressor(lam=0.1)
    assert METHODS["UNFAIR"].classifier(lam=0).lam == 0


def test_unfair_needs_no_sensitive_features():
    X, y, _ = table(100)
    assert METHODS["UNFAIR"].classifier(epochs=1, random_state=0).fit(X, y).predict(X).shape == (100,)


# ---- residualising ---------------------------------------------------------------------------------------


def test_residualizer_needs_no_sensitive_feature_for_new_rows():
    X, y, age = table(500)
    pipe = make_pipeline(Residualizer(), LogisticRegression())
    pipe.fit(X[:400], y[:400], residualizer__sensitive_features=age[:400])
    plain = LogisticRegression().fit(X[:400], y[:400])
    left, before = (abs(np.corrcoef(m.decision_function(X[400:]), age[400:])[0, 1]) for m in (pipe, plain))
    assert before > 0.5
    assert left < 0.2


def test_residualizer_leaves_what_is_no_correlation():
    rng = np.random.default_rng(0)
    s = rng.normal(size=500)
    X = np.column_stack([s**2, s + rng.normal(size=500)])
    left = Residualizer().fit(X, sensitive_features=s).transform(X)
    squares = np.column_stack([s, s**2])
    assert LinearRegression().fit(squares, left[:, 0]).score(squares, left[:, 0]) > 0.8


def test_residualizer_is_routed_through_pipelines():
    X, y, age = table(100)
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(Residualizer(), LogisticRegression())
        pipe.fit(X, y, sensitive_features=age)
        assert pipe.predict(X).shape == (100,)


def test_residualizer_keeps_names_and_refuses_other_columns():
    X, _, age = table(50)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = Residualizer().fit(frame, sensitive_features=age)
    assert fitted.get_feature_names_out().tolist() == ["a", "b", "c"]
    plain = Residualizer().fit(X, sensitive_features=age)
    np.testing.assert_allclose(fitted.transform(frame), plain.transform(X), rtol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(frame[["b", "a", "c"]])
    with pytest.raises(ValueError, match=r"^'sensitive_features' must be passed to fit\. Got None\."):
        Residualizer().fit(frame)
    with pytest.raises(ValueError, match=r"^'sensitive_features' must have 50 rows like 'X'\. Got 49\."):
        Residualizer().fit(frame, sensitive_features=age[:49])


# ---- fairlearn's own -------------------------------------------------------------------------------------


def test_the_correlation_remover_is_fairlearns():
    X, _, age = table(60)
    frame = pd.DataFrame({"age": age, "a": X[:, 0], "b": X[:, 1]})
    remover = correlation_remover(["age"], alpha=1.0)
    assert type(remover).__module__.startswith("fairlearn")
    left = np.asarray(remover.fit_transform(frame))
    assert left.shape == (60, 2)
    assert abs(np.corrcoef(left[:, 0], age)[0, 1]) < 1e-10
    assert correlation_remover(["age"], alpha=0.5).alpha == 0.5


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.filterwarnings("ignore")
def test_adversarial_fairness_is_fairlearns_with_the_papers_network(task):
    X, y, age = table(80)
    unit = (age - age.min()) / (age.max() - age.min())
    model = adversarial_fairness(task, alpha=0.5, epochs=1)
    assert type(model).__module__.startswith("fairlearn")
    target = y if task == "classification" else X[:, 1]
    model.fit(X, target, sensitive_features=unit)
    assert np.shape(model.predict(X))[0] == 80
    layers = model.backendEngine_.predictor_model.layers_
    widths = [layer.out_features for layer in layers if isinstance(layer, nn.Linear)]
    assert widths == [50, 50, 1]
    assert (model.alpha, model.epochs, model.batch_size) == (0.5, 1, 256)


def test_a_task_is_one_of_two():
    with pytest.raises(
        ValueError, match=r"^'task' must be 'classification' or 'regression'\. Got 'ranking'\."
    ):
        adversarial_fairness("ranking")


def test_without_fairlearn_the_message_says_how_to_get_it(monkeypatch):
    for name in ("fairlearn.preprocessing", "fairlearn.adversarial"):
        monkeypatch.setitem(sys.modules, name, None)
    for make in (lambda: correlation_remover(["age"]), adversarial_fairness):
        with pytest.raises(ImportError, match=r"^'fairlearn' must be installed.*frhsic\[bench\]"):
            make()
