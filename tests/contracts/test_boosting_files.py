"""Trees in files, on frontiers and on the command line."""

import json
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from frhsic import FRHSICClassifier, FrontierSearch, TableEncoder, load, save
from frhsic._tensorfile import TensorFileError
from frhsic.boosting import FRHSICBoostingClassifier, FRHSICBoostingRegressor
from frhsic.cli import run
from frhsic.selection import Point, lowest_dependence_within
from tests.contracts.test_boosting import BACKENDS, MODELS, model, sample


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore:Gap of the score:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("setting", [{"budget": 0.2}, {"limit": {"gap": 0.2}}, {"lam": 0.0}], ids=str)
def test_saved_trees_predict_the_same_bit_for_bit(backend, kind, setting, tmp_path):
    X, y, s = sample(2_500)
    params = {"lightgbm": {"num_leaves": 7}, "xgboost": {"max_depth": 3}}[backend]
    first = model(kind, backend=backend, backend_params=params, n_estimators=40, **setting)
    first.fit(X, y, sensitive_features=s)
    save(first, tmp_path / "trees.frhsic")
    again = load(tmp_path / "trees.frhsic", backend=backend)
    assert type(again) is kind
    assert again.get_params() == first.get_params()
    assert np.array_equal(again.predict(X), first.predict(X))
    for name in (
        "n_iter_",
        "n_features_in_",
        "relative_dependence_",
        "reached_",
        "history_",
        "sensitive_names_",
    ):
        assert getattr(again, name) == getattr(first, name), name
    save(again, tmp_path / "twice.frhsic")
    assert (tmp_path / "twice.frhsic").read_bytes() == (tmp_path / "trees.frhsic").read_bytes()


def test_a_pipeline_of_a_table_and_trees_is_saved(tmp_path):
    X, y, s = sample()
    frame = pd.DataFrame(X, columns=["x", "z", "u"]).assign(job=np.where(X[:, 2] > 0.5, "chef", "nurse"))
    pipe = make_pipeline(TableEncoder(), model(budget=0.2))
    pipe.fit(frame, np.where(y == 1, "yes", "no"), frhsicboostingclassifier__sensitive_features=s)
    save(pipe, tmp_path / "pipe.frhsic")
    again = load(tmp_path / "pipe.frhsic", backend="lightgbm")
    assert np.array_equal(again.predict_proba(frame), pipe.predict_proba(frame))
    assert again.predict(frame).dtype == pipe.predict(frame).dtype


@pytest.mark.parametrize("backend", BACKENDS)
def test_trees_are_parsed_only_by_a_library_that_is_named(backend, tmp_path, monkeypatch):
    X, y, _ = sample()
    save(model(backend=backend, lam=0.0).fit(X, y), tmp_path / "trees.frhsic")
    other = BACKENDS[backend == BACKENDS[0]]

    def never(*_):
        raise KeyboardInterrupt("parsed")

    monkeypatch.setattr("frhsic.persistence._boosters.read_booster", never)
    for name in (None, other):
        with pytest.raises(ValueError, match=f"pass backend='{backend}'"):
            load(tmp_path / "trees.frhsic", backend=name)
    with pytest.raises(KeyboardInterrupt, match="parsed"):
        load(tmp_path / "trees.frhsic", backend=backend)


def test_a_network_takes_no_backend(tmp_path):
    X, y, _ = sample(100)
    save(FRHSICClassifier(lam=0, epochs=1).fit(X, y), tmp_path / "net.frhsic")
    with pytest.raises(ValueError, match="backend"):
        load(tmp_path / "net.frhsic", backend="lightgbm")


def test_damaged_trees_are_refused(tmp_path):
    X, y, _ = sample()
    file = tmp_path / "trees.frhsic"
    save(model(lam=0.0).fit(X, y), file)
    data = bytearray(file.read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(data), 40):
        changed = bytearray(data)
        changed[place] ^= 1 << rng.integers(0, 8)
        file.write_bytes(changed)
        with pytest.raises(TensorFileError):
            load(file, backend="lightgbm")


def test_one_frontier_over_networks_and_trees():
    X, y, s = sample(2_000)
    members = [
        FRHSICClassifier(epochs=10, encoder=(8,), random_state=0),
        make_pipeline(TableEncoder(), FRHSICBoostingClassifier(n_estimators=80, random_state=0)),
    ]
    search = FrontierSearch(members, budgets=[0.3, 0.1], random_state=0).fit(X, y, sensitive_features=s)
    table = search.results_
    assert table["model"].tolist() == ["network"] * 3 + ["lightgbm"] * 3
    assert table["r2_boosted"].isna().tolist() == [False] * 3 + [True] * 3
    assert [point.label for point in search.points_][3:] == [
        "lightgbm, unconstrained",
        "lightgbm, budget 30 %",
        "lightgbm, budget 10 %",
    ]
    trees = table[table["model"] == "lightgbm"]
    assert trees["gdp"].is_monotonic_decreasing
    assert trees["relative_dependence"].tolist()[1:] == pytest.approx([0.3, 0.1], rel=0.15)
    for index, estimator in enumerate(search.models_):
        chosen = search.choose(lambda _, index=index: index).best_estimator_
        last = chosen[-1] if index > 2 else chosen
        assert last is estimator
        assert search.predict_proba(X).shape == (2_000, 2)


def test_the_best_performing_unconstrained_model_is_what_others_are_compared_with():
    points = [
        Point(0.0, 0.80, 0.09, model="network"),
        Point(10.0, 0.79, 0.01, budget=0.1, model="network"),
        Point(0.0, 0.90, 0.08, model="lightgbm"),
        Point(10.0, 0.895, 0.05, budget=0.1, model="lightgbm"),
    ]
    assert lowest_dependence_within(points) == 3


def test_frontiers_refuse_what_does_not_belong_together():
    X, y, s = sample(200)
    mixed = [FRHSICBoostingClassifier(), FRHSICBoostingRegressor()]
    with pytest.raises(ValueError, match="list of classifiers"):
        FrontierSearch(mixed).fit(X, y, sensitive_features=s)
    with pytest.raises(ValueError, match="trees, which have no representation"):
        FrontierSearch(FRHSICBoostingClassifier(), on="representation").fit(X, y, sensitive_features=s)
    with pytest.raises(TypeError, match="estimator"):
        FrontierSearch([]).fit(X, y, sensitive_features=s)


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys):
    def call(*arguments):
        code = run(list(arguments))
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def people(tmp_path):
    X, y, s = sample(1_500)
    frame = pd.DataFrame(X, columns=["x", "z", "u"]).assign(age=s, income=np.where(y == 1, "high", "low"))
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


@pytest.mark.parametrize("backend", BACKENDS)
def test_train_and_predict_with_trees(people, backend, cli):
    file, out = people.parent / "m.frhsic", people.parent / "scores.csv"
    args = ["--target", "income", "--sensitive", "age", "--model", backend, "-o", str(file)]
    done = cli("train", str(people), *args, "--holdout", "0.3")
    assert done.code == 0, done.err
    assert f"with {backend} on" in done.out
    assert "HSIC of the score is" in done.out
    refused = cli("predict", str(file), str(people), "-o", str(out))
    assert refused.code == 2
    assert f"--backend {backend}" in refused.err
    assert "does not control" in refused.err
    done = cli("predict", str(file), str(people), "-o", str(out), "--backend", backend)
    assert done.code == 0, done.err
    assert pd.read_csv(out)["score"].between(0, 1).all()


def test_frontier_over_kinds_of_models(people, cli):
    file, numbers = people.parent / "m.frhsic", people.parent / "f.json"
    args = ["--target", "income", "--sensitive", "age", "-o", str(file), "--json", str(numbers)]
    done = cli("frontier", str(people), *args, "--model", "lightgbm,network", "--epochs", "3")
    assert done.code == 0, done.err
    kinds = [one["model"] for one in json.loads(numbers.read_text())["models"]]
    assert set(kinds) == {"lightgbm", "network"}
    assert "lightgbm" in done.out


@pytest.mark.parametrize("wrong", ["catboost", "lightgbm,lightgbm", ""])
def test_unknown_models_are_refused(people, wrong, cli):
    args = ["--target", "income", "--sensitive", "age", "-o", str(people.parent / "m.frhsic")]
    done = cli("train", str(people), *args, "--model", wrong)
    assert done.code == 2
    assert "--model must name" in done.err
