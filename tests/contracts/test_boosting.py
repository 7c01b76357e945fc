"""What boosted trees promise: budgets and limits are kept, nothing is ignored, boosters are ordinary ones."""

import re
import subprocess
import sys
import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xgboost as xgb
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from frhsic import GDP, HSIC, FRHSICRegressor, Penalty
from frhsic.boosting import (
    FRHSICBoostingClassifier,
    FRHSICBoostingRegressor,
    lightgbm_objective,
    xgboost_objective,
)
from frhsic.boosting._training import EarlyStop
from frhsic.data import to_sensitive
from frhsic.dependence import Adversary, DistanceCovariance, ScoreGap
from frhsic.kernels import Delta, Gaussian, Linear

BACKENDS = ("lightgbm", "xgboost")
MODELS = (FRHSICBoostingClassifier, FRHSICBoostingRegressor)


def sample(n=1_200, seed=0):
    """Return X of which the second column goes with age, classes, and age in whole years."""
    rng = np.random.default_rng(seed)
    s = rng.integers(18, 70, n).astype(float)
    X = np.column_stack([rng.normal(size=n), (s - 44) / 15 + 0.5 * rng.normal(size=n), rng.uniform(size=n)])
    y = (X[:, 0] + X[:, 1] + 0.7 * rng.normal(size=n) > 0.3).astype(int)
    return X, y, s


def model(kind=FRHSICBoostingClassifier, **changes):
    return kind(**{"n_estimators": 60, "random_state": 0, **changes})


def fitted(kind=FRHSICBoostingClassifier, *, weights=None, s=None, data=None, **changes):
    X, y, age = sample() if data is None else data
    return model(kind, **changes).fit(X, y, sensitive_features=age if s is None else s, sample_weight=weights)


def gdp(scores, s):
    return GDP()(to_tensor(scores), to_sensitive(s)).item()


def to_tensor(x):
    import torch

    return torch.from_numpy(np.asarray(x, dtype=np.float64))[:, None]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("budget", [0.3, 0.1, 0.03])
def test_budget_is_kept_on_training_rows(backend, budget):
    found = fitted(backend=backend, budget=budget, n_estimators=150)
    assert found.relative_dependence_ == pytest.approx(budget, rel=0.1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_smaller_budget_leaves_a_smaller_gap(backend):
    X, _, s = sample()
    gaps = [gdp(fitted(backend=backend, budget=b).predict_proba(X)[:, 1], s) for b in (1.0, 0.2, 0.03)]
    assert gaps[0] > 1.5 * gaps[1] > 2.0 * gaps[2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_limit_is_kept_on_steering_rows_and_beyond(backend):
    found = fitted(backend=backend, data=sample(6_000), limit={"gap": 0.05}, n_estimators=120)
    (reached,) = found.reached_
    assert (reached.n_trained, reached.n_steering) == (4_800, 1_200)
    assert reached.steering <= 1.1 * 0.05
    X, _, s = sample(20_000, seed=1)
    gap = ScoreGap()(to_tensor(found.predict_proba(X)[:, 1]), to_sensitive(s)).item()
    assert gap <= 1.4 * 0.05  # 52 ages of 20,000 rows add about .01 by chance


@pytest.mark.parametrize(
    "limit", [{"gdp": 0.03}, {"gap_at": {0.5: 0.05}}, {"gap_worst": 0.08}, {"normalized_hsic": 0.02}], ids=str
)
def test_every_limit_is_kept(limit):
    found = fitted(data=sample(8_000), limit=limit, n_estimators=100)
    assert all(one.judged <= 1.15 * one.limit for one in found.reached_)
    plain = fitted(data=sample(8_000), lam=0.0)
    X, _, s = sample(8_000)
    p, q = found.predict_proba(X)[:, 1], plain.predict_proba(X)[:, 1]
    assert gdp(p, s) < 0.8 * gdp(q, s)


def test_a_limit_that_cannot_be_kept_in_so_few_rounds_warns():
    with pytest.warns(ConvergenceWarning, match="limit"):
        fitted(limit={"gap": 0.01}, n_estimators=4, data=sample(3_000))


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_a_penalty_it_is_the_plain_library(backend):
    X, y, _ = sample()
    found = model(backend=backend, lam=0.0).fit(X, y)
    assert found.history_ == []
    if backend == "lightgbm":
        params = {"objective": "binary", "verbosity": -1, "deterministic": True, "force_row_wise": True}
        own = lgb.train(params, lgb.Dataset(X, y), 60).predict(X)
        assert np.allclose(found.predict_proba(X)[:, 1], own)
    else:
        base = float(y.mean())
        params = {"objective": "binary:logistic", "learning_rate": 0.1, "base_score": base}
        own = xgb.train(params, xgb.DMatrix(X, y), 60).predict(xgb.DMatrix(X))
        assert np.allclose(found.predict_proba(X)[:, 1], own, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", MODELS)
def test_booster_is_an_ordinary_one_that_predicts_without_this_package(backend, kind, tmp_path):
    X, y, s = sample()
    found = model(kind, backend=backend, budget=0.2).fit(X, y, sensitive_features=s)
    own = found.predict_proba(X)[:, 1] if kind is FRHSICBoostingClassifier else found.predict(X)
    file = tmp_path / ("model.txt" if backend == "lightgbm" else "model.ubj")
    found.booster_.save_model(str(file))
    np.save(tmp_path / "x.npy", X)
    code = (
        "import lightgbm as lgb; p = lgb.Booster(model_file=F).predict(X)"
        if backend == "lightgbm"
        else "import xgboost as xgb; b = xgb.Booster(model_file=F); p = b.predict(xgb.DMatrix(X))"
    )
    script = f"import sys, numpy as np; F = {str(file)!r}; X = np.load({str(tmp_path / 'x.npy')!r}); {code}; "
    script += f"assert 'frhsic' not in sys.modules; np.save({str(tmp_path / 'p.npy')!r}, p)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    assert np.allclose(np.load(tmp_path / "p.npy"), own, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_three_classes(backend):
    X, _, s = sample()
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.8])]
    found = model(backend=backend, budget=0.1, n_estimators=120).fit(X, y, sensitive_features=s)
    assert found.relative_dependence_ == pytest.approx(0.1, rel=0.1)
    p = found.predict_proba(X)
    assert np.allclose(p.sum(axis=1), 1.0)
    assert set(found.predict(X)) <= {"a", "b", "c"}
    plain = model(backend=backend, lam=0.0).fit(X, y)
    for c in (0, 2):
        assert gdp(p[:, c], s) < 0.6 * gdp(plain.predict_proba(X)[:, c], s)


@pytest.mark.parametrize("backend", BACKENDS)
def test_regression_is_in_the_unit_of_y(backend):
    X, _, s = sample()
    rng = np.random.default_rng(1)
    y = 1e9 + 2e4 * (X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=len(s)))
    found = model(FRHSICBoostingRegressor, backend=backend, budget=0.1, n_estimators=120)
    found = found.fit(X, y, sensitive_features=s)
    assert found.relative_dependence_ == pytest.approx(0.1, rel=0.15)
    assert 0.2 < found.score(X, y) < 0.9
    data = sample(4_000)
    y = 100.0 + 10.0 * (data[0][:, 0] + data[0][:, 1])
    limited = model(FRHSICBoostingRegressor, backend=backend, limit={"gap": 2.0}, n_estimators=120)
    limited.fit(data[0], y, sensitive_features=data[2])
    # What steers is in at most ten ranges and never too small; an audit of the same rows shows less.
    assert 1.2 < limited.reached_[0].steering < 2.1


def test_given_a_label_the_dependence_of_its_rows_is_lowered():
    X, y, s = sample(3_000)
    X = X.copy()
    X[:, 1] = np.where(y == 1, X[:, 1], -X[:, 1])  # opposite ways within the two labels
    penalty = Penalty(HSIC(Linear(), Gaussian(8.0)), on="probability", given={"y": 1})
    plain = model(lam=0.0).fit(X, y).predict_proba(X)[:, 1]
    found = model(budget=0.05, penalty=penalty, n_estimators=120).fit(X, y, sensitive_features=s)
    p = found.predict_proba(X)[:, 1]
    one, zero = y == 1, y == 0
    assert gdp(p[one], s[one]) < 0.5 * gdp(plain[one], s[one])
    assert gdp(p[zero], s[zero]) > 0.5 * gdp(plain[zero], s[zero])
    both = Penalty(HSIC(Linear(), Gaussian(8.0)), on="probability", given="y")
    p = (
        model(budget=0.05, penalty=both, n_estimators=120)
        .fit(X, y, sensitive_features=s)
        .predict_proba(X)[:, 1]
    )
    for rows in (one, zero):
        assert gdp(p[rows], s[rows]) < 0.55 * gdp(plain[rows], s[rows])


def test_several_columns_are_all_lowered():
    rng = np.random.default_rng(7)
    X, y, s = sample(3_000)
    sex = rng.choice(["f", "m"], 3_000)
    X = np.column_stack([X, (sex == "f") + 0.5 * rng.normal(size=3_000)])
    y = (X[:, :2].sum(axis=1) + X[:, 3] + 0.7 * rng.normal(size=3_000) > 0.8).astype(int)
    both = pd.DataFrame({"age": s, "sex": sex})
    plain = model(lam=0.0).fit(X, y).predict_proba(X)[:, 1]
    for changes in ({"budget": 0.05}, {"budget": 0.05, "penalty": _joint()}):
        p = model(n_estimators=150, **changes).fit(X, y, sensitive_features=both).predict_proba(X)[:, 1]
        assert gdp(p, s) < 0.5 * gdp(plain, s)
        assert gdp(p, sex) < 0.5 * gdp(plain, sex)
    age_only = Penalty(HSIC(Gaussian("median"), Gaussian(8.0)), on="probability", columns=["age"])
    p = (
        model(budget=0.05, penalty=age_only, n_estimators=150)
        .fit(X, y, sensitive_features=both)
        .predict_proba(X)[:, 1]
    )
    assert gdp(p, s) < 0.5 * gdp(plain, s)
    assert gdp(p, sex) > 0.6 * gdp(plain, sex)


def _joint():
    """Return a penalty of age and sex at once."""
    from frhsic.kernels import OnColumns

    kernel = OnColumns(Gaussian(8.0), (0,)) + OnColumns(Delta(), (1,))
    return Penalty(HSIC(Gaussian("median"), kernel), on="probability")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_weight_of_two_is_the_row_twice(backend):
    X, y, s = sample(600)
    weights = np.where(s > 45, 2.0, 1.0)
    twice = np.repeat(np.arange(600), weights.astype(int))
    free = {"lightgbm": {"min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 5.0, "max_bin": 1_000}}
    options = {"backend": backend, "budget": 0.1, "n_estimators": 20, "backend_params": free.get(backend)}
    weighted = model(**options).fit(X, y, sensitive_features=s, sample_weight=weights)
    copied = model(**options).fit(X[twice], y[twice], sensitive_features=s[twice])
    plain = model(**options).fit(X, y, sensitive_features=s)
    own, other, none = (m.predict_proba(X)[:, 1] for m in (weighted, copied, plain))
    assert np.mean(np.abs(own - other)) < 0.5 * np.mean(np.abs(own - none))


def test_class_weight_moves_the_scores():
    X, _, _ = sample()
    even, heavy = (
        fitted(budget=0.2, class_weight=w).predict_proba(X)[:, 1].mean() for w in (None, {0: 1, 1: 5})
    )
    assert heavy > even + 0.1


def test_rows_of_weight_zero_are_left_out():
    X, y, s = sample()
    weights = np.ones(len(s))
    weights[::3] = 0.0
    kept = weights > 0
    a = fitted(budget=0.2, weights=weights)
    b = model(budget=0.2).fit(X[kept], y[kept], sensitive_features=s[kept])
    assert np.allclose(a.predict_proba(X), b.predict_proba(X))


@pytest.mark.parametrize("backend", BACKENDS)
def test_categories_and_missing_values_are_taken_as_the_library_takes_them(backend):
    rng = np.random.default_rng(0)
    X, _, s = sample()
    job = rng.choice(["a", "b", "c"], len(s))
    frame = pd.DataFrame(X, columns=["x", "z", "u"]).assign(job=pd.Categorical(job))
    y = ((job == "b") ^ (rng.random(len(s)) < 0.1)).astype(int)
    frame.loc[::7, "x"] = np.nan
    frame.loc[::11, "job"] = np.nan
    found = model(backend=backend, budget=0.5).fit(frame, y, sensitive_features=s)
    assert found.score(frame, y) > 0.8
    assert list(found.feature_names_in_) == ["x", "z", "u", "job"]
    assert np.isfinite(found.predict_proba(frame)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_sparse_rows_are_those_of_the_dense_matrix(backend):
    X, y, s = sample()
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    dense = model(backend=backend, budget=0.2).fit(X, y, sensitive_features=s)
    sparse = model(backend=backend, budget=0.2).fit(scipy.sparse.csr_matrix(X), y, sensitive_features=s)
    if backend == "lightgbm":  # XGBoost takes what is not stored for missing
        assert np.allclose(dense.predict_proba(X), sparse.predict_proba(X))
    assert sparse.predict_proba(scipy.sparse.csr_matrix(X)).shape == (len(s), 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_early_stopping_keeps_a_round_within_the_limit(backend):
    X, y, s = sample(4_000)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(len(y)) < 0.25, 1 - y, y)  # noise that many rounds learn by heart
    options = {"backend": backend, "limit": {"gap": 0.05}, "n_estimators": 300}
    found = model(**options, early_stopping=True).fit(X, y, sensitive_features=s)
    assert found.n_iter_ < 300
    assert found.reached_[0].steering <= 1.1 * 0.05
    rounds = found.booster_.num_trees() if backend == "lightgbm" else found.booster_.num_boosted_rounds()
    assert rounds == found.n_iter_ + (backend == "lightgbm")  # and the constant that it begins with


@pytest.mark.parametrize("backend", BACKENDS)
def test_early_stopping_does_not_keep_the_constant_that_boosting_begins_with(backend):
    def rare(n, seed):
        X, _, s = sample(n, seed)
        return X, (X[:, 0] + X[:, 1] + 0.7 * np.random.default_rng(seed).normal(size=n) > 1.3).astype(int), s

    options = {"backend": backend, "limit": {"gap": 0.08}, "n_estimators": 100, "data": rare(3_000, 0)}
    stopped, whole = fitted(**options, early_stopping=True), fitted(**options, validation_fraction=0.2)
    X, y, _ = rare(5_000, 2)
    assert stopped.n_iter_ > 10  # after 5 rounds nothing had violated the limit
    assert stopped.score(X, y) > whole.score(X, y) - 0.01
    assert stopped.reached_[0].steering <= 1.05 * 0.08


@pytest.mark.parametrize(
    ("ratios", "kept"),
    [
        ([0.1, 0.5, 0.9, 1.0, 1.0], 5),  # never violated: all count
        ([0.1, 0.9, 1.5, 1.2, 1.0], 5),  # those before the first violation do not
        ([0.1, 0.9, 1.5, 1.2, 1.1], None),  # none was within the limit since
    ],
)
def test_rounds_before_the_first_violation_do_not_count(ratios, kept):
    stop = EarlyStop()
    for made, ratio in enumerate(ratios, start=1):
        stop.judge(made, 1.0 - 0.1 * made, ratio)
    assert (None if stop.best is None else stop.best[1]) == kept


def test_rounds_that_come_back_to_the_limit_do_not_end_the_training():
    near, far, above, worse = (EarlyStop() for _ in range(4))
    for made in range(1, 100):
        near.judge(made, 0.5 if made < 3 else 0.6, 1.5 if made < 2 else 1.0)
        far.judge(made, 0.5 if made < 3 else 0.6, 1.5 if made < 2 else 0.9)
        above.judge(made, 0.5 if made < 3 else 0.4, 1.0 if made == 2 else 1.2)  # it may come back
        worse.judge(made, 0.5 if made < 3 else 0.6, 1.0 if made == 2 else 1.2)
    assert [one.stopped for one in (near, far, above, worse)] == [True, False, False, True]
    assert {one.best for one in (near, far, above, worse)} == {(0.5, 2)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_few_rounds_keep_a_limit_though_the_first_are_far_below_it(backend):
    found = fitted(backend=backend, data=sample(4_000), limit={"gap": 0.1}, n_estimators=40)
    assert found.reached_[0].judged <= 1.05 * 0.1  # 1.64 times it where the multiplier had to rise again


@pytest.mark.parametrize("backend", BACKENDS)
def test_early_stopping_needs_no_penalty(backend):
    X, y, _ = sample(2_000)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(len(y)) < 0.25, 1 - y, y)
    found = model(backend=backend, lam=0.0, n_estimators=200, early_stopping=True).fit(X, y)
    assert found.n_iter_ < 100
    new = sample(5_000, seed=3)
    whole = model(backend=backend, lam=0.0, n_estimators=200).fit(X, y)
    label = np.where(rng.random(5_000) < 0.25, 1 - new[1], new[1])
    losses = [np.mean(np.log(one.predict_proba(new[0])[np.arange(5_000), label])) for one in (found, whole)]
    assert losses[0] > losses[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_booster_of_ones_own_is_continued(backend):
    X, y, s = sample()
    if backend == "lightgbm":
        begun = lgb.train({"objective": "binary", "verbosity": -1}, lgb.Dataset(X, y), 30)
        raw = begun.predict(X, raw_score=True)
    else:
        begun = xgb.train({"objective": "binary:logistic"}, xgb.DMatrix(X, y), 30)
        raw = begun.predict(xgb.DMatrix(X), output_margin=True)
    options = {"backend": backend, "budget": 0.1, "n_estimators": 100}
    found = model(**options).fit(X, y, sensitive_features=s, init_model=begun)
    before = gdp(expit(raw), s)
    assert found.relative_dependence_ == pytest.approx(0.1, rel=0.15)
    assert gdp(found.predict_proba(X)[:, 1], s) < 0.6 * before
    if backend == "lightgbm":
        assert found.booster_.num_trees() == 130
        first = found.booster_.predict(X, raw_score=True, num_iteration=30)
    else:
        assert found.booster_.num_boosted_rounds() == 130
        first = found.booster_.predict(xgb.DMatrix(X), output_margin=True, iteration_range=(0, 30))
    assert np.allclose(first, raw, atol=1e-5)
    other = "xgboost" if backend == "lightgbm" else "lightgbm"
    with pytest.raises(ValueError, match="init_model"):
        model(backend=other).fit(X, y, sensitive_features=s, init_model=begun)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_seed_gives_the_same_trees(backend):
    X, _, _ = sample()
    options = {"backend": backend, "budget": 0.1, "backend_params": {"subsample": 0.5}}
    if backend == "lightgbm":
        options["backend_params"] = {"bagging_fraction": 0.5, "bagging_freq": 1}
    a, b, c = (fitted(**options, random_state=seed).predict_proba(X) for seed in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("backend", "params"), [("lightgbm", {"num_leaves": 3}), ("xgboost", {"max_depth": 1})]
)
def test_backend_params_reach_the_library(backend, params):
    found = fitted(backend=backend, budget=0.5, backend_params=params)
    frame = found.booster_.trees_to_dataframe()
    leaves = (frame.left_child.isna() if backend == "lightgbm" else frame.Feature == "Leaf").groupby(
        frame.tree_index if backend == "lightgbm" else frame.Tree
    )
    assert leaves.sum().max() <= 3
    with pytest.raises(ValueError, match=r"backend_params.*learning_rate"):
        fitted(backend=backend, backend_params={"learning_rate": 0.5})


def test_every_argument_changes_something():
    X, y, s = sample(2_500)
    rare = np.where(s > 60, 3.0, 1.0)
    base = {"budget": 0.2, "n_estimators": 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of so few rounds
        first = model(**base).fit(X, y, sensitive_features=s).predict_proba(X)
    stop = {"early_stopping": True, "n_estimators": 40}
    changes = {
        "backend": {"backend": "xgboost"},
        "budget": {"budget": 0.5},
        "lam": {"budget": None, "lam": 1.0},
        "limit": {"budget": None, "limit": {"gap": 0.05}},
        "penalty": {"penalty": Penalty(HSIC(Linear()), on="probability")},
        "n_estimators": {"n_estimators": 40},
        "learning_rate": {"learning_rate": 0.05},
        "early_stopping": stop,
        "validation_fraction": {**stop, "validation_fraction": 0.5},
        "class_weight": {"class_weight": "balanced"},
        "backend_params": {"backend_params": {"num_leaves": 4}},
        "random_state": {**stop, "random_state": 1},
    }
    assert set(changes) == set(FRHSICBoostingClassifier().get_params())
    seen = [first]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name, change in changes.items():
            one = model(**{**base, **change}).fit(X, y, sensitive_features=s).predict_proba(X)
            assert all(not np.allclose(one, other) for other in seen), name
            seen.append(one)
        weighted = model(**base).fit(X, y, sensitive_features=s, sample_weight=rare).predict_proba(X)
    assert not np.allclose(weighted, first)


def test_pipelines_route_sensitive_features():
    import sklearn

    X, y, s = sample()
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), model(budget=0.1)).fit(X, y, sensitive_features=s)
    assert pipe[-1].relative_dependence_ == pytest.approx(0.1, rel=0.15)
    with pytest.raises(ValueError, match="sensitive_features"):
        model(budget=0.1).fit(X, y)


@pytest.mark.parametrize(
    ("penalty", "why"),
    [
        (Penalty(HSIC()), "representation"),
        (Penalty(Adversary(), on="probability"), "Adversary"),
        (Penalty(DistanceCovariance(), on="probability"), "DistanceCovariance"),
        (Penalty(HSIC(normalized=True), on="probability"), "normalised"),
    ],
    ids=["representation", "adversary", "distance", "normalised"],
)
def test_a_penalty_that_the_table_cannot_hold_is_refused(penalty, why):
    with pytest.raises(ValueError, match=f"'penalty' must be one that a table.*{why}"):
        fitted(budget=0.1, penalty=penalty)


def test_regressions_refuse_probabilities_and_labels():
    X, y, s = sample()
    for change in ({"on": "probability"}, {"on": "prediction", "given": "y"}):
        with pytest.raises(ValueError, match="penalty"):
            model(FRHSICBoostingRegressor, penalty=Penalty(HSIC(), **change)).fit(
                X, y + 0.5, sensitive_features=s
            )


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": "catboost"},
        {"budget": 0.1, "lam": 1.0},
        {"budget": 2.0},
        {"limit": {"gap": -1.0}},
        {"limit": {"gap": 5}},
        {"n_estimators": 0},
        {"learning_rate": 0.0},
        {"early_stopping": "yes"},
        {"validation_fraction": 1.5},
        {"validation_fraction": 0, "early_stopping": True},
    ],
    ids=str,
)
def test_wrong_parameters_name_themselves(wrong):
    with pytest.raises(ValueError, match=f"'?{next(iter(wrong))}'? must|'{list(wrong)[-1]}'|'budget'"):
        fitted(**wrong)


@pytest.mark.parametrize(
    ("backend", "given", "fix"),
    [
        ("lightgbm", {"num_leafs": 5}, "Write 'num_leaf"),
        ("xgboost", {"max_dept": 5}, "Look at the parameters of xgboost"),
        ("xgboost", {"rate_drop": 0.1}, "Look at the parameters of xgboost"),  # of another booster
    ],
    ids=str,
)
def test_a_parameter_that_the_library_does_not_know_is_an_error(backend, given, fix):
    (name,) = given
    message = f"'backend_params' must hold parameters that {backend} knows and uses. Got '{name}'. {fix}"
    with pytest.raises(ValueError, match=re.escape(message)):
        fitted(backend=backend, backend_params=given, lam=0.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_that_the_library_knows_pass_by_any_of_their_names(backend):
    names = {
        "lightgbm": {"max_leaves": 4, "min_data": 5, "bagging_fraction": 0.5, "bagging_freq": 1},
        "xgboost": {"max_depth": 2, "subsample": 0.5, "reg_lambda": 2.0, "booster": "dart", "rate_drop": 0.1},
    }
    assert fitted(backend=backend, backend_params=names[backend], lam=0.0, n_estimators=3).n_iter_ == 3


@pytest.mark.parametrize("kind", [FRHSICBoostingRegressor, FRHSICRegressor])
def test_a_single_class_that_is_trained_as_a_number_is_a_warning(kind):
    X, y, s = sample(200)
    rounds = {"n_estimators": 2} if kind is FRHSICBoostingRegressor else {"epochs": 1}
    with pytest.warns(UserWarning, match=r"'y' has one value, 1, in all 200 rows: a regression learns"):
        kind(lam=0, random_state=0, **rounds).fit(X, np.ones_like(y), sensitive_features=s)


@pytest.mark.parametrize("wrong", [{"penalty": HSIC()}, {"backend_params": [1]}], ids=["penalty", "params"])
def test_wrong_types_name_themselves(wrong):
    with pytest.raises(TypeError, match=next(iter(wrong))):
        fitted(**wrong)


def test_a_library_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ImportError, match=r"frhsic\[trees\]"):
        fitted()


def test_neither_library_is_imported_unless_used():
    code = "import sys, frhsic.boosting; assert not {'lightgbm', 'xgboost'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("kind", MODELS)
def test_scikit_learns_checks(kind):
    model = kind(lam=0.0, n_estimators=20, random_state=0)
    for one, check in estimator_checks_generator(model):
        name = getattr(check, "func", check).__name__
        if name == "check_array_api_input":  # as the networks
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                check(one)
            except Exception as error:
                raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("few", [True, False], ids=["few rows", "constant columns"])
def test_columns_that_cannot_be_split_are_named(few):
    X, y, s = (a[:20] for a in sample()) if few else sample()
    with pytest.raises(ValueError, match="'X' must have a column that LightGBM can split"):
        model(budget=0.1).fit(X if few else np.ones_like(X), y, sensitive_features=s)


def test_clone_has_the_same_parameters():
    first = model(budget=0.3, backend_params={"num_leaves": 4})
    assert clone(first).get_params() == first.get_params()


# The objective alone.


@pytest.mark.parametrize("budget", [0.3, 0.1])
def test_lightgbm_objective_keeps_a_budget(budget):
    X, y, s = sample()
    rows = lgb.Dataset(X, y, free_raw_data=False)
    quiet = {"verbosity": -1}
    plain = lgb.train({**quiet, "objective": "binary"}, rows, 100).predict(X, raw_score=True)
    objective = lightgbm_objective(y, s, plain=plain, budget=budget)
    booster = lgb.train({**quiet, "objective": objective}, rows, 100)
    p, q = expit(booster.predict(X)), expit(plain)
    assert gdp(p, s) < (0.75 if budget == 0.3 else 0.5) * gdp(q, s)
    assert np.mean((p > 0.5) == y) > 0.7


def test_xgboost_objective_keeps_a_limit_and_takes_weights():
    X, y, s = sample(3_000)
    rows = xgb.DMatrix(X, y)
    params = {"learning_rate": 0.1}
    plain = xgb.train({**params, "objective": "binary:logistic"}, rows, 100).predict(rows, output_margin=True)
    found = []
    for weights in (None, np.where(s > 45, 3.0, 1.0)):
        objective = xgboost_objective(
            y, s, plain=plain, limit={"gap": 0.03}, learning_rate=0.1, sample_weight=weights
        )
        raw = xgb.train({**params, "base_score": 0.5}, rows, 100, obj=objective).predict(
            rows, output_margin=True
        )
        found.append(expit(raw))
    assert ScoreGap()(to_tensor(found[0]), to_sensitive(s)).item() < 0.06
    assert not np.allclose(found[0], found[1], atol=1e-3)


def test_objectives_of_three_classes_and_of_numbers():
    X, _, s = sample()
    y = np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.8])
    rows = lgb.Dataset(X, y, free_raw_data=False)
    params = {"verbosity": -1, "num_class": 3}
    plain = lgb.train({**params, "objective": "multiclass"}, rows, 60).predict(X, raw_score=True)
    objective = lightgbm_objective(y, s, plain=plain, budget=0.1)
    raw = lgb.train({**params, "objective": objective}, rows, 60).predict(X, raw_score=True)
    assert raw.shape == (len(s), 3)
    target = X[:, 0] + X[:, 1]
    rows = lgb.Dataset(X, target, free_raw_data=False)
    plain = lgb.train({"verbosity": -1, "objective": "regression"}, rows, 60).predict(X)
    objective = lightgbm_objective(target, s, plain=plain, budget=0.1, task="regression")
    own = lgb.train({"verbosity": -1, "objective": objective}, rows, 60).predict(X)
    assert gdp(own, s) < 0.5 * gdp(plain, s)


def test_objectives_refuse_what_they_cannot_use():
    _, y, s = sample()
    plain = np.zeros(len(s))
    with pytest.raises(ValueError, match="'y' must hold the codes"):
        lightgbm_objective(y + 5, s, plain=plain, budget=0.1)
    with pytest.raises(ValueError, match="'lam' must be positive"):
        lightgbm_objective(y, s, plain=plain, lam=0)
    with pytest.raises(ValueError, match="'y' must have"):
        lightgbm_objective(y[:-1], s, plain=plain, budget=0.1)
    with pytest.raises(ValueError, match="task"):
        lightgbm_objective(y, s, plain=plain, budget=0.1, task="ranking")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(4))
def test_small_trees_under_a_strict_limit_do_not_run_away(backend, seed):
    # Few leaves make few scores, which move to other levels from round to round.
    X, y, s = sample(4_000, seed=seed)
    params = {"lightgbm": {"num_leaves": 4, "min_data_in_leaf": 100}, "xgboost": {"max_depth": 2}}[backend]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so strict that it may not be reached
        found = model(backend=backend, limit={"gap": 0.02}, n_estimators=120, backend_params=params)
        found.fit(np.round(X), y, sensitive_features=s)
    assert np.abs(found.decision_function(np.round(X))).max() < 8.0
    assert found.reached_[0].steering < 0.06
