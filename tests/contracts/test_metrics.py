"""What holds for every metric: in scorers, in cross-validation, beside fairlearn, and its errors."""

import functools
import inspect
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, make_scorer
from sklearn.model_selection import KFold, cross_validate

from frhsic import metrics
from frhsic.inference import independence_test

NAMES = metrics.__all__
METRICS = [getattr(metrics, name) for name in NAMES]
every_metric = pytest.mark.parametrize("metric", METRICS, ids=NAMES)
N = 240


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 91, n)
    u = (age - 54) / 36
    x = np.column_stack([u + 0.5 * rng.normal(size=n), rng.normal(size=n)])
    y = (x.sum(axis=1) + rng.normal(size=n) > 0).astype(int)
    return x, y, age, np.where(rng.uniform(size=n) < 0.5, "f", "m")


def parameters(metric):
    return inspect.signature(metric).parameters


@every_metric
def test_signature_is_that_of_a_scorer_and_no_name_promises_that_higher_is_better(metric):
    names = list(parameters(metric))
    assert names[:5] == ["y_true", "y_pred", "sensitive_features", "sample_weight", "given"]
    assert all(p.kind is p.KEYWORD_ONLY for p in list(parameters(metric).values())[2:])
    assert not metric.__name__.endswith("_score")


@every_metric
def test_dependence_scores_worse_than_independence(metric):
    _, _, age, _ = people()
    rng = np.random.default_rng(1)
    u = (age - 54) / 36
    noise = 0.3 * rng.normal(size=N)
    none = metric(None, noise, sensitive_features=age)
    assert isinstance(none, float)
    for shape in (u, u**2):
        assert metric(None, shape + noise, sensitive_features=age) > 1.5 * none


@every_metric
def test_y_true_is_not_read(metric):
    x, _, age, _ = people()
    assert metric(None, x[:, 0], sensitive_features=age) == metric("?", x[:, 0], sensitive_features=age)


@every_metric
def test_every_form_of_predictions_is_accepted(metric):
    x, y, age, _ = people()
    p = 1 / (1 + np.exp(-x[:, 0]))
    value = metric(y, p, sensitive_features=age)
    assert metric(y, np.column_stack([1 - p, p]), sensitive_features=age) == pytest.approx(value, rel=1e-6)
    assert metric(y, pd.Series(p), sensitive_features=pd.Series(age, index=range(5, N + 5))) == value
    assert metric(y, p.tolist(), sensitive_features=pl.DataFrame({"age": age})) == value
    labels = (p > 0.6).astype(int)
    decided = metric(y, labels, sensitive_features=age)
    assert metric(y, np.where(labels == 1, "yes", "no"), sensitive_features=age) == pytest.approx(decided)
    assert metric(y, labels == 1, sensitive_features=age) == decided
    assert np.isfinite(metric(y, x, sensitive_features=age))  # a representation
    three = np.array(["a", "b", "c"])[np.digitize(p, [0.4, 0.6])]
    assert metric(y, three, sensitive_features=age) == pytest.approx(
        metric(y, np.eye(3)[np.digitize(p, [0.4, 0.6])], sensitive_features=age)
    )


@every_metric
def test_constant_predictions_depend_on_nothing(metric):
    _, y, age, _ = people()
    assert metric(y, np.full(N, 0.3), sensitive_features=age) == pytest.approx(0.0, abs=1e-7)


@every_metric
def test_every_argument_changes_the_value(metric):
    x, y, age, sex = people()
    f = np.abs(x[:, 0])
    plain = {"sensitive_features": age}
    value = metric(y, f, **plain)
    if "estimator" in parameters(metric):
        assert metric(y, f, estimator="biased", **plain) != value
        plain["estimator"] = "biased"  # which takes weights
        value = metric(y, f, **plain)
    few = {"max_rows": 50} if "max_rows" in parameters(metric) else {}
    changes = {
        "sample_weight": np.arange(N),
        "given": y,
        "kinds": "categorical",
        "bandwidth_s": 0.03,  # of EIPM
        "cutoff": "worst",
        "ridge": 0.1,
        "max_rows": 100,
        "random_state": 1,
    }
    for name in set(parameters(metric)) - {"y_true", "y_pred", "sensitive_features", "estimator"}:
        before = metric(y, f, **plain, **few) if name == "random_state" else value
        more = {**plain, **few} if name == "random_state" else plain
        assert metric(y, f, **{**more, name: changes[name]}) != before, name
    assert metric(y, f, sensitive_features=sex) != value


@every_metric
def test_same_input_same_value_also_when_rows_are_drawn(metric):
    x, y, age, _ = people()
    few = {"max_rows": 50} if "max_rows" in parameters(metric) else {}
    assert metric(y, x, sensitive_features=age, **few) == metric(y, x, sensitive_features=age, **few)


@every_metric
def test_100000_rows_take_seconds(metric):
    _, _, age, _ = people(100_000)
    score = age / 100 + np.random.default_rng(0).normal(size=len(age))
    start = time.process_time()
    assert metric(None, score, sensitive_features=age) > 0
    assert time.process_time() - start < 30  # all pairs of them would take minutes, or no end


def test_rows_that_are_drawn_stand_for_all():
    _, _, age, _ = people(6_000)
    score = age / 100 + np.random.default_rng(0).normal(size=len(age))
    for metric in (metrics.normalized_hsic, metrics.distance_correlation):
        all_rows = metric(None, score, sensitive_features=age)
        drawn = metric(None, score, sensitive_features=age, max_rows=2_000)
        assert drawn != all_rows
        assert drawn == pytest.approx(all_rows, rel=0.25)


# ---- scikit-learn ----------------------------------------------------------------------------------------


@every_metric
def test_cross_validate_scores_each_fold_on_its_own_rows(metric):
    x, y, age, _ = people()
    folds = KFold(3)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(metric, greater_is_better=False, response_method="predict_proba")
        scorer = scorer.set_score_request(sensitive_features=True, given=True)
        params = {"sensitive_features": age, "given": y}
        found = cross_validate(LogisticRegression(), x, y, cv=folds, scoring=scorer, params=params)
    for (train, test), score in zip(folds.split(x), found["test_score"], strict=True):
        p = LogisticRegression().fit(x[train], y[train]).predict_proba(x[test])[:, 1]
        assert score == -metric(y[test], p, sensitive_features=age[test], given=y[test])


def test_scorers_beside_others_and_with_weights():
    x, y, age, _ = people()
    weights = np.linspace(0.5, 1.5, N)
    gap = make_scorer(
        metrics.generalized_demographic_parity, greater_is_better=False, response_method="predict_proba"
    )
    biased = functools.partial(metrics.normalized_hsic, estimator="biased")
    share = make_scorer(metrics.normalized_hsic, greater_is_better=False, estimator="biased")
    with sklearn.config_context(enable_metadata_routing=True):
        scoring = {
            "accuracy": get_scorer("accuracy").set_score_request(sample_weight=False),
            "gdp": gap.set_score_request(sensitive_features=True, sample_weight=False),
            "hsic": share.set_score_request(sensitive_features=True, sample_weight=True),
        }
        found = cross_validate(
            LogisticRegression().set_fit_request(sample_weight=False),
            pd.DataFrame(x),
            y,
            cv=KFold(2),
            scoring=scoring,
            params={"sensitive_features": pd.DataFrame({"age": age}), "sample_weight": weights},
        )
    train, test = np.arange(N // 2), np.arange(N // 2, N)
    labels = LogisticRegression().fit(x[train], y[train]).predict(x[test])
    expected = biased(None, labels, sensitive_features=age[test], sample_weight=weights[test])
    assert found["test_hsic"][1] == pytest.approx(-expected)
    assert (found["test_gdp"] < 0).all()


# ---- fairlearn -------------------------------------------------------------------------------------------


def test_metric_frame_shows_dependence_on_age_within_groups_of_sex():
    fairlearn = pytest.importorskip("fairlearn.metrics")
    _, y, age, sex = people()
    u = (age - 54) / 36
    score = np.where(sex == "f", 0.3 * u**2, 0.0) + 0.1 * np.random.default_rng(3).normal(size=N)
    frame = fairlearn.MetricFrame(
        metrics=dict(zip(NAMES, METRICS, strict=True)),
        y_true=y,
        y_pred=score,
        sensitive_features=pd.Series(sex, name="sex"),
        sample_params={name: {"sensitive_features": age} for name in NAMES},
    )
    for name, metric in zip(NAMES, METRICS, strict=True):
        assert frame.overall[name] == metric(y, score, sensitive_features=age)
        for group in "fm":
            rows = sex == group
            alone = metric(y[rows], score[rows], sensitive_features=age[rows])
            assert frame.by_group.loc[group, name] == alone
    assert (frame.by_group.loc["f"] > 1.5 * frame.by_group.loc["m"]).all()
    assert independence_test(score[sex == "f"], age[sex == "f"], random_state=0).pvalue <= 0.01


# ---- errors ----------------------------------------------------------------------------------------------


WRONG = [
    ({"sensitive_features": np.arange(10.0)}, "'sensitive_features' must have 240 rows like 'y_pred'"),
    ({"sensitive_features": np.ones(N)}, "'sensitive_features' must vary"),
    ({"y_pred": np.full(N, np.nan)}, "'y_pred' must have no missing values"),
    ({"y_pred": [f"{i / 7:.3f}" for i in range(N)]}, "'y_pred' must hold numbers, or at most 100"),
    ({"sample_weight": -np.ones(N)}, "'sample_weight' must not be negative"),
    ({"given": np.ones(10)}, "'given' must have 240 rows like 'y_pred'. Got 10"),
    ({"given": np.arange(N)}, "'given' must have a label with at least 8 rows"),
]


@every_metric
def test_what_cannot_be_measured_is_an_error_by_name(metric):
    x, y, age, _ = people()
    for change, words in WRONG:
        arguments = {"y_pred": x[:, 0], "sensitive_features": age, **change}
        with pytest.raises(ValueError, match=words):
            metric(y, **arguments)


@every_metric
def test_max_rows_and_weights_are_checked(metric):
    x, y, age, _ = people()
    if "max_rows" in parameters(metric):
        for wrong in (3, True, 10.5):
            with pytest.raises(ValueError, match="'max_rows' must be an integer of at least 8, or None"):
                metric(y, x, sensitive_features=age, max_rows=wrong)
    if "estimator" in parameters(metric):
        with pytest.raises(ValueError, match="Pass estimator='biased'"):
            metric(y, x, sensitive_features=age, sample_weight=np.arange(N))
        equal = metric(y, x, sensitive_features=age, sample_weight=np.full(N, 3.0))
        assert equal == metric(y, x, sensitive_features=age)
