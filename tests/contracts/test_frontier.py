"""FrontierSearch: what is trained on which rows, what is judged, what is chosen, and what is refused."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
import torch
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import mean_squared_error, roc_auc_score
from sklearn.model_selection import cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import Bunch

from frhsic import (
    EIPM,
    GDP,
    HSIC,
    FRHSICClassifier,
    FRHSICEncoder,
    FRHSICRegressor,
    KernelHGR,
    TableEncoder,
    load,
    save,
)
from frhsic.data import to_sensitive
from frhsic.dependence import ScoreGap
from frhsic.inference import confidence_interval, equivalence_test, independence_test
from frhsic.kernels import Gaussian
from frhsic.metrics import generalized_demographic_parity, normalized_hsic
from frhsic.selection import (
    FrontierSearch,
    first_not_rejected,
    knee,
    last_equivalent,
    lowest_dependence,
    lowest_dependence_within,
    pareto_front,
)
from frhsic.selection import _search as module
from frhsic.selection._held_out import Rows
from frhsic.selection._judging import Judge

N = 200
FAST = {"encoder": (4,), "epochs": 2, "batch_size": 64, "learning_rate": 1e-2, "random_state": 0}
CLASSIFIER = FRHSICClassifier(**FAST)


def task(n=N, seed=0):
    """Return X, y, S: the first column of X follows S, and tells the row by its order."""
    rng = np.random.default_rng(seed)
    s = rng.permutation(n) / n
    X = np.column_stack([s + 0.1 * rng.normal(size=n), rng.normal(size=n)])
    return X, (X.sum(axis=1) + rng.normal(size=n) > 0.5).astype(int), s


def search(estimator=CLASSIFIER, **settings):
    given = {"budgets": [0.5], "representation": False, "random_state": 0, **settings}
    return FrontierSearch(estimator, **given)


def fitted(estimator=CLASSIFIER, *, weights=None, **settings):
    X, y, s = task()
    return search(estimator, **settings).fit(X, y, sensitive_features=s, sample_weight=weights)


def held(seed=1, n=80):
    """Return other rows, as ``validation`` takes them."""
    return task(n, seed)


class Watching(TransformerMixin, BaseEstimator):
    """An earlier step that remembers the rows of each fit."""

    seen = ()

    def fit(self, X, y=None):
        Watching.seen += (np.asarray(X).copy(),)
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.asarray(X)


@pytest.fixture(autouse=True)
def _forget():
    Watching.seen = ()


@pytest.fixture
def no_training(monkeypatch):
    """Make training an error: what is refused here is refused before it."""

    def never(*_, **__):
        raise AssertionError("it was trained")

    monkeypatch.setattr(module, "fit_path", never)


def weights_of(model):
    return torch.cat([p.flatten() for part in (model.encoder_, model.head_) for p in part.parameters()])


# ---- what is trained -------------------------------------------------------------------------------------


def test_each_budget_has_a_point_and_the_unconstrained_model_comes_first():
    made = fitted(budgets=[0.2, 0.5])
    assert [p.budget for p in made.points_] == [None, 0.2, 0.5]
    assert [p.penalty_weight for p in made.points_] == [0.0, 5.0, 2.0]
    assert [(m.lam, m.budget) for m in made.models_] == [(0.0, None), (None, 0.2), (None, 0.5)]
    assert [p.label for p in made.points_] == ["unconstrained", "budget 20 %", "budget 50 %"]


def test_lams_are_taken_as_given():
    made = fitted(budgets=None, lams=[3.0, 0.0])
    assert [p.penalty_weight for p in made.points_] == [3.0, 0.0]
    assert [p.budget for p in made.points_] == [None, None]
    assert [p.label for p in made.points_] == ["lam 3", "unconstrained"]


def test_without_weights_four_budgets_are_trained():
    made = fitted(budgets=None)
    assert [p.budget for p in made.points_] == [None, 0.5, 0.2, 0.1, 0.05]


def test_models_are_those_of_fit_path_on_the_training_rows():
    X, y, s = task()
    made = search(lams=[0.0, 2.0], budgets=None, validation=held()).fit(X, y, sensitive_features=s)
    path = module.fit_path(CLASSIFIER, X, y, lams=[0.0, 2.0], sensitive_features=s)
    for one, other in zip(made.models_, path, strict=True):
        assert torch.equal(weights_of(one), weights_of(other))


def test_earlier_steps_are_fitted_once_on_the_rows_that_are_trained_on():
    pipe = Pipeline([("watch", Watching()), ("table", TableEncoder()), ("clf", CLASSIFIER)])
    X, y, s = task()
    made = search(pipe, budgets=[0.5, 0.2]).fit(X, y, sensitive_features=s)
    (seen,) = Watching.seen
    assert len(seen) == 0.8 * N
    assert {tuple(row) for row in seen} < {tuple(row) for row in X}
    assert list(made.best_estimator_.named_steps) == ["watch", "table", "clf"]
    assert made.best_estimator_[-1] is made.models_[made.best_index_]
    # What was passed in is not fitted.
    with pytest.raises(NotFittedError):
        pipe[-1].predict(X)


def test_a_pipeline_of_one_step_stays_a_pipeline():
    made = fitted(Pipeline([("clf", CLASSIFIER)]))
    assert list(made.best_estimator_.named_steps) == ["clf"]
    assert made.predict(task()[0]).shape == (N,)


def test_held_out_rows_reach_no_model():
    """Change X and S of the held-out rows beyond recognition: the models stay the same."""
    X, y, s = task()
    pipe = make_pipeline(Watching(), CLASSIFIER)
    made = search(pipe).fit(X, y, sensitive_features=s)
    trained_on = {tuple(row) for row in Watching.seen[0]}
    aside = np.array([tuple(row) not in trained_on for row in X])
    assert aside.sum() == 0.2 * N
    X2, s2 = X.copy(), s.copy()
    X2[aside] = 50.0 - X2[aside]
    s2[aside] = -s2[aside]
    other = search(pipe).fit(X2, y, sensitive_features=s2)
    for one, two in zip(made.models_, other.models_, strict=True):
        assert torch.equal(weights_of(one), weights_of(two))
    assert made.points_[0].dependence != other.points_[0].dependence
    X2[~aside] += 0.1 * (np.arange(N)[~aside, None] % 3)
    third = search(pipe).fit(X2, y, sensitive_features=s2)
    assert not torch.equal(weights_of(made.models_[0]), weights_of(third.models_[0]))


def test_held_out_rows_of_ones_own_reach_no_model_and_take_none():
    X, y, s = task()
    made = [search(validation=held(seed)).fit(X, y, sensitive_features=s) for seed in (1, 2)]
    assert torch.equal(weights_of(made[0].models_[1]), weights_of(made[1].models_[1]))
    assert made[0].points_[1].dependence != made[1].points_[1].dependence


def test_the_same_share_of_each_class_is_held_out(monkeypatch):
    X, y, s = task()
    y = (np.arange(N) < 30).astype(int)
    shares = []
    monkeypatch.setattr(
        Judge, "rehearse", lambda self, held: shares.append((len(held.y), int(np.sum(held.y))))
    )
    search().fit(X, y, sensitive_features=s)
    search(validation=0.5).fit(X, y, sensitive_features=s)
    assert shares == [(40, 6), (100, 15)]


def test_a_class_of_a_single_row_is_no_obstacle():
    X, y, s = task()
    y[0] = 2
    assert len(search().fit(X, y, sensitive_features=s).points_) == 2


def test_the_same_seed_makes_the_same_search_and_another_does_not():
    one, two, other = fitted(), fitted(), fitted(random_state=1)
    assert one.points_ == two.points_
    assert one.points_ != other.points_


# ---- what is judged --------------------------------------------------------------------------------------


def test_points_hold_the_estimators_own_score_and_the_interval_of_gdp():
    X, y, s = held()
    made = fitted(validation=(X, y, s))
    for point, model in zip(made.points_, made.models_, strict=True):
        probability = model.predict_proba(X)[:, 1]
        assert point.performance == model.score(X, y)
        gdp = generalized_demographic_parity(None, probability, sensitive_features=s)
        interval = confidence_interval(probability, s, dependence=GDP(), random_state=0)
        assert point.dependence == interval.estimate
        assert interval.plug_in == pytest.approx(gdp)
        assert point.lower <= point.dependence <= point.upper
        assert point.upper == pytest.approx(interval.high, rel=0.1)
        assert point.test is None
        assert point.equivalence is None


COLUMNS = [
    "model",
    "budget",
    "limit",
    "lam",
    "penalty_weight",
    "relative_dependence",
    "of_limit",
    "performance",
]
COLUMNS += ["dependence", "dependence_low", "dependence_high", "on_front"]
OF_PREDICTION = [f"{name}{end}" for name in ("gap", "gdp", "hsic") for end in ("", "_low", "_high")]
OF_REPRESENTATION = ["hsic_z", "r2_ridge", "r2_boosted"]


def test_the_table_has_a_row_for_each_model_and_agrees_with_the_points():
    X, y, s = held()
    made = fitted(budgets=[0.5, 0.1], validation=(X, y, s), representation=True)
    table = made.results_
    assert list(table) == COLUMNS + OF_PREDICTION + OF_REPRESENTATION
    assert table["dependence"].tolist() == [p.dependence for p in made.points_] == table["gdp"].tolist()
    assert table["dependence_low"].tolist() == [p.lower for p in made.points_]
    assert table["dependence_high"].tolist() == [p.upper for p in made.points_]
    assert table["performance"].tolist() == [p.performance for p in made.points_]
    assert np.flatnonzero(table["on_front"]).tolist() == sorted(pareto_front(made.points_))
    assert np.isnan(table["budget"][0])
    assert table["budget"].tolist()[1:] == [0.5, 0.1]
    assert table["relative_dependence"].tolist() == [m.relative_dependence_ for m in made.models_]
    whitened = HSIC(Gaussian("median", whiten=True), estimator="unbiased", normalized=True)
    for i, model in enumerate(made.models_):
        z = model.transform(X)
        assert table["hsic"][i] == pytest.approx(
            normalized_hsic(None, model.predict_proba(X)[:, 1], sensitive_features=s)
        )
        assert table["hsic_z"][i] == pytest.approx(whitened(torch.tensor(z), torch.tensor(s)).item())
    # Here X, and with it Z, follows S closely.
    assert table["r2_ridge"][0] > 0.5
    assert table["r2_boosted"][0] > 0.3


def test_without_pandas_the_table_is_a_dict_of_columns(monkeypatch):
    made = fitted()
    expected = made.results_

    def missing(_):
        raise ImportError("no pandas")

    monkeypatch.setattr(module, "frame", missing)
    found = made.results_
    assert list(found) == COLUMNS + OF_PREDICTION
    pd.testing.assert_frame_equal(pd.DataFrame(found), expected)


def test_a_regression_is_judged_by_r2_or_as_scoring_says():
    X, _, s = held()
    X_train, _, s_train = task()
    y, y_train = X.sum(axis=1), X_train.sum(axis=1)
    settings = {"validation": (X, y, s)}
    made = search(FRHSICRegressor(**FAST), **settings).fit(X_train, y_train, sensitive_features=s_train)
    assert [p.performance for p in made.points_] == [m.score(X, y) for m in made.models_]
    assert made.score(X, y) == made.points_[made.best_index_].performance
    minus = search(FRHSICRegressor(**FAST), scoring="neg_mean_squared_error", **settings)
    minus.fit(X_train, y_train, sensitive_features=s_train)
    assert minus.points_[1].performance == -mean_squared_error(y, minus.models_[1].predict(X))
    assert minus.score(X, y) == minus.points_[minus.best_index_].performance
    assert (is_regressor(made), is_classifier(made)) == (True, False)


def test_scoring_may_need_probabilities():
    X, y, s = held()
    made = fitted(validation=(X, y, s), scoring="roc_auc")
    assert made.points_[0].performance == roc_auc_score(y, made.models_[0].predict_proba(X)[:, 1])


def test_an_encoder_is_judged_by_what_it_rebuilds_and_on_its_representation():
    X, _, s = task()
    made = search(FRHSICEncoder(**{**FAST, "encoder": (2,)}), representation=True)
    made.fit(X, sensitive_features=s)
    assert list(made.results_) == COLUMNS + OF_REPRESENTATION
    assert made.points_[0].performance < 0
    assert made.transform(X).shape == (N, 2)
    for name in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(AttributeError, match=name):
            getattr(made, name)


def test_three_classes_are_judged_on_all_their_probabilities():
    X, _, s = task()
    y = np.digitize(X[:, 0], [0.3, 0.7])
    X_held, _, s_held = held()
    y_held = np.digitize(X_held[:, 0], [0.3, 0.7])
    made = search(validation=(X_held, y_held, s_held)).fit(X, y, sensitive_features=s)
    probability = made.models_[0].predict_proba(X_held)
    gdp = generalized_demographic_parity(None, probability, sensitive_features=s_held)
    assert made.points_[0].dependence == pytest.approx(gdp)
    each = [confidence_interval(one, s_held, dependence=ScoreGap()).estimate for one in probability.T]
    assert made.results_["gap"][0] == pytest.approx(max(each))


def test_the_dependence_on_the_points_is_the_one_asked_for():
    X, y, s = held()
    plain = fitted(validation=(X, y, s))
    measure = HSIC(estimator="unbiased", normalized=True)
    hsic = fitted(validation=(X, y, s), dependence=measure)
    assert [p.dependence for p in hsic.points_] == plain.results_["hsic"].tolist()
    z = fitted(validation=(X, y, s), on="representation", representation=True)
    assert [p.dependence for p in z.points_] == pytest.approx(z.results_["hsic_z"].tolist())
    gdp_z = fitted(validation=(X, y, s), on="representation", dependence=GDP())
    assert gdp_z.points_[0].dependence == pytest.approx(
        generalized_demographic_parity(None, gdp_z.models_[0].transform(X), sensitive_features=s)
    )


def test_tests_are_made_on_the_held_out_rows_where_asked_for():
    X, y, s = held()
    made = fitted(validation=(X, y, s), test=True, tolerance=0.5)
    table = made.results_
    for i, (point, model) in enumerate(zip(made.points_, made.models_, strict=True)):
        probability = model.predict_proba(X)[:, 1]
        assert point.test.n == point.equivalence.n == 80
        assert point.test.pvalue == table["pvalue"][i]
        assert point.equivalence.pvalue == table["equivalence_pvalue"][i]
        assert point.equivalence.tolerance == 0.5
        assert point.equivalence.estimate == pytest.approx(point.dependence)
        expected = equivalence_test(probability, s, tolerance=0.5, dependence=GDP(), random_state=3)
        assert point.equivalence.pvalue == pytest.approx(expected.pvalue, abs=0.01)
        assert point.test.statistic == pytest.approx(
            independence_test(probability, s, random_state=3).statistic, rel=0.2
        )


def test_of_several_columns_a_point_has_the_worst():
    X, y, s = task()
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"age": s, "noise": rng.normal(size=N), "sex": np.where(rng.random(N) > 0.5, "f", "m")}
    )
    made = search(test=True, tolerance=0.005).fit(X, y, sensitive_features=frame)
    table = made.results_
    for name in ("age", "noise", "sex"):
        assert {f"gdp_{name}", f"gdp_{name}_low", f"gdp_{name}_high", f"hsic_{name}"} <= set(table)
    for i, point in enumerate(made.points_):
        values = table.loc[i, ["gdp_age", "gdp_noise", "gdp_sex"]]
        assert point.dependence == values.max()
        assert point.upper == table.loc[i, ["gdp_age_high", "gdp_noise_high", "gdp_sex_high"]].max()
        assert point.equivalence.pvalue == pytest.approx(1.0, abs=1e-5)  # age is far above the tolerance
        assert point.equivalence.attributes == ("age",)
        assert point.test.attributes == ("age",)
        assert point.test.pvalue == pytest.approx(3 * 0.001)  # the smallest of 999 draws, times three columns


def test_the_lower_limit_of_several_columns_is_one_of_the_greatest_dependence():
    """Each column's limit alone fails in 5 % of samples: the greatest of three would fail more often."""
    X, y, s = held()
    model = FRHSICClassifier(lam=0.0, **FAST).fit(X, y)
    rng = np.random.default_rng(0)
    columns = {"age": s, "noise": rng.normal(size=len(s)), "other": rng.normal(size=len(s))}
    settings = {"scoring": None, "test": False, "tolerance": None, "representation": False, "seed": 0}
    judge = Judge(on="prediction", dependence=None, **settings)
    point, found = judge(model, Rows(X, y, to_sensitive(columns), None))
    probability = model.predict_proba(X)[:, 1]
    limits = {
        level: max(
            confidence_interval(
                probability,
                {name: column},
                dependence=GDP(),
                confidence_level=level,
                random_state=0,
                chance=False,
            ).low
            for name, column in columns.items()
        )
        for level in (0.95, 1.0 - 0.05 / 3)
    }
    assert point.lower == limits[1.0 - 0.05 / 3] < limits[0.95]
    assert point.upper == max(found[f"gdp_{name}_high"] for name in columns)


def test_a_model_that_predicts_a_constant_has_no_dependence():
    X, y, s = task()
    model = FRHSICClassifier(lam=0.0, **FAST).fit(X, y)
    for part in (model.encoder_, model.head_):
        for parameter in part.parameters():
            parameter.zero_()
    settings = {"scoring": None, "test": True, "tolerance": 0.01, "representation": True, "seed": 0}
    judge = Judge(on="prediction", dependence=None, **settings)
    point, found = judge(model, Rows(X, y, to_sensitive(s), None))
    assert (point.dependence, point.lower, point.upper) == (0.0, 0.0, 0.0)
    assert {found[name] for name in ("gdp", "hsic_high", "hsic_z", "r2_ridge", "r2_boosted")} == {0.0}
    assert point.test.pvalue == 1.0
    assert point.equivalence.below


def test_weights_are_used_in_training_and_in_judging():
    """Held-out rows of weight zero are as if they were not there, also in the score."""
    X, y, s = held()
    few = np.arange(80) < 40
    weights = few.astype(float)
    made = fitted(validation=(X, y, s, weights), representation=True)
    fewer = fitted(validation=(X[few], y[few], s[few]), representation=True)
    for one, two in zip(made.points_, fewer.points_, strict=True):
        assert one.performance == pytest.approx(two.performance)
        assert one.dependence == pytest.approx(two.dependence)
    assert (
        made.results_["r2_ridge"][0]
        != fitted(validation=(X, y, s), representation=True).results_["r2_ridge"][0]
    )
    rng = np.random.default_rng(0)
    assert fitted(weights=np.full(N, 3.0), tolerance=0.5).points_ == fitted(tolerance=0.5).points_
    uneven = fitted(weights=rng.uniform(0.5, 2.0, N), representation=True)
    assert np.isfinite(uneven.results_["hsic_z"]).all()
    assert not torch.equal(weights_of(uneven.models_[0]), weights_of(fitted().models_[0]))


# ---- what is chosen --------------------------------------------------------------------------------------


def test_the_rule_chooses():
    assert fitted(rule=lambda points: 1).best_index_ == 1
    assert fitted(rule=lambda points: 0).best_index_ == 0
    seen = []
    made = fitted(rule=lambda points: seen.append(points) or 1)
    assert seen[-1] is made.points_
    assert made.best_estimator_ is made.models_[1]


@pytest.mark.parametrize("rule", [knee, lowest_dependence, lowest_dependence_within])
def test_rules_of_the_room_are_respected(rule):
    made = fitted(rule=rule, budgets=[0.5, 0.2, 0.05])
    assert made.best_index_ == rule(made.points_)


def test_rules_with_keywords_are_partials():
    rule = partial(last_equivalent, alpha=0.2)
    made = fitted(rule=rule, tolerance=5.0)
    assert made.best_index_ == 0  # a GDP of probabilities is below 5 at every penalty weight


def test_another_rule_chooses_again_without_training(monkeypatch):
    made = fitted(rule=lambda points: 0)
    monkeypatch.setattr(module, "fit_path", None)
    assert made.choose(lambda points: 1) is made
    assert made.best_index_ == 1
    X = task()[0]
    np.testing.assert_array_equal(made.predict(X), made.models_[1].predict(X))
    assert made.get_params()["rule"]([]) == 0


def test_a_rule_that_chooses_nothing_is_an_error_that_keeps_the_models():
    X, y, s = task()
    made = search(rule=last_equivalent, tolerance=1e-6)
    with pytest.raises(
        ValueError, match=r"'rule' must choose a model\. Got None from 'last_equivalent'.* kept"
    ):
        made.fit(X, y, sensitive_features=s)
    assert len(made.models_) == len(made.results_) == 2
    with pytest.raises(NotFittedError):
        made.predict(X)
    assert made.choose(lowest_dependence).predict(X).shape == (N,)
    with pytest.raises(ValueError, match=r"Got None from 'last_equivalent'"):
        made.choose(partial(last_equivalent, alpha=0.01))


@pytest.mark.parametrize("index", [2, -1, 0.5, "knee"])
def test_a_rule_must_return_an_index(index):
    made = fitted()
    with pytest.raises(ValueError, match=r"'rule' must return an index below 2\. Got .* from '<lambda>'"):
        made.choose(lambda points: index)


def test_a_choice_of_an_earlier_fit_does_not_outlive_a_later_one():
    X, y, s = task()
    made = fitted()
    made.set_params(rule=lambda points: None)
    with pytest.raises(ValueError, match="must choose"):
        made.fit(X, y, sensitive_features=s)
    with pytest.raises(NotFittedError):
        made.predict(X)


# ---- as an estimator -------------------------------------------------------------------------------------


def test_the_chosen_model_answers():
    X, y, _ = task()
    made = fitted(rule=lambda points: 1)
    best = made.models_[1]
    for name in ("predict", "predict_proba", "decision_function", "transform"):
        np.testing.assert_array_equal(getattr(made, name)(X), getattr(best, name)(X))
    assert made.score(X, y) == best.score(X, y)
    weights = np.linspace(0, 1, N)
    assert made.score(X, y, sample_weight=weights) == best.score(X, y, sample_weight=weights)
    assert made.classes_.tolist() == [0, 1]
    assert is_classifier(made)


def test_nothing_answers_before_fit():
    X, y, _ = task()
    made = search()
    for call in (made.predict, made.transform, made.predict_proba, lambda X: made.score(X, y)):
        with pytest.raises(NotFittedError):
            call(X)
    with pytest.raises(NotFittedError):
        made.choose(knee)
    with pytest.raises(NotFittedError):
        made.results_  # noqa: B018


def test_it_is_cloned_pickled_and_its_parameters_are_set():
    made = fitted(rule=partial(lowest_dependence_within, tolerance=0.1), dependence=GDP())
    copied = clone(made)
    assert "models_" not in vars(copied)
    assert copied.get_params()["estimator__epochs"] == 2
    copied.set_params(estimator__epochs=1, validation=0.3)
    assert (copied.estimator.epochs, made.estimator.epochs) == (1, 2)
    again = pickle.loads(pickle.dumps(made))
    X = task()[0]
    np.testing.assert_array_equal(again.predict(X), made.predict(X))
    assert again.points_ == made.points_
    assert "FrontierSearch(" in repr(made)


def test_the_chosen_pipeline_is_saved_and_loaded(tmp_path):
    X, y, s = task()
    table = pd.DataFrame(X, columns=["a", "b"])
    made = search(make_pipeline(TableEncoder(), CLASSIFIER)).fit(table, y, sensitive_features=s)
    save(made.best_estimator_, tmp_path / "model.frhsic")
    np.testing.assert_array_equal(load(tmp_path / "model.frhsic").predict(table), made.predict(table))


FORMS = {
    "lists": (list, list, list),
    "pandas": (lambda X: pd.DataFrame(X, columns=["a", "b"]), pd.Series, lambda s: pd.Series(s, name="age")),
    "polars": (lambda X: pl.DataFrame(X, schema=["a", "b"]), pl.Series, lambda s: pl.DataFrame({"age": s})),
    "pyarrow": (lambda X: pa.table({"a": X[:, 0], "b": X[:, 1]}), np.asarray, lambda s: {"age": s}),
    "torch": (torch.tensor, np.asarray, torch.tensor),
    "sensitive": (np.asarray, np.asarray, to_sensitive),
}


@pytest.mark.parametrize("form", FORMS)
def test_tables_of_every_library_make_the_same_search(form):
    X, y, s = task()
    made_x, made_y, made_s = (make(part) for make, part in zip(FORMS[form], (X, y, s), strict=True))
    points = search().fit(made_x, made_y, sensitive_features=made_s).points_
    plain = fitted().points_
    assert [p.performance for p in points] == [p.performance for p in plain]
    assert [p.dependence for p in points] == pytest.approx([p.dependence for p in plain])


def test_sparse_rows_reach_the_earlier_steps():
    X, y, s = task()

    class Dense(TransformerMixin, BaseEstimator):
        def fit(self, X, y=None):
            self.fitted_ = True
            return self

        def transform(self, X):
            return X.toarray()

    made = search(make_pipeline(Dense(), CLASSIFIER)).fit(csr_matrix(X), y, sensitive_features=s)
    assert made.points_ == fitted().points_


def test_held_out_columns_are_read_like_those_of_training():
    """In another order, without a name where there is one only, and with labels missing."""
    X, y, s = task()
    X_held, y_held, s_held = held()
    label = np.where(s > 0.7, "c", np.where(s > 0.4, "b", "a"))
    other = np.where(s_held > 0.5, "c", "b")
    made = search(validation=(X_held, y_held, {"group": other, "age": s_held}))
    made.fit(X, y, sensitive_features={"age": s, "group": label})
    plain = search(validation=(X_held, y_held, s_held)).fit(X, y, sensitive_features={"age": s})
    assert made.results_["gdp_age"][0] == plain.results_["gdp"][0]


def test_a_bunch_of_held_out_rows_is_taken():
    X, y, s = held()
    bunch = Bunch(data=X, target=y, sensitive_features=s)
    assert fitted(validation=bunch).points_ == fitted(validation=(X, y, s)).points_


def test_routing_brings_sensitive_features_and_weights_into_a_search_within_cross_validation():
    class Weighing(Watching):
        def fit(self, X, y=None, sample_weight=None):
            assert sample_weight is None or len(sample_weight) == len(X)
            Watching.seen += (sample_weight,)
            self.fitted_ = True
            return self

    X, y, s = task()
    with sklearn.config_context(enable_metadata_routing=True):
        step = Weighing().set_fit_request(sample_weight=True)
        pipe = make_pipeline(step, Watching(), CLASSIFIER)
        w = np.linspace(1, 2, N)
        cross_validate(
            search(pipe),
            X,
            y,
            cv=2,
            params={"sensitive_features": s, "sample_weight": w},
            error_score="raise",
        )
    weights = [seen for seen in Watching.seen if seen.ndim == 1]
    assert [len(one) for one in weights] == [0.4 * N] * 2
    assert set(np.concatenate([np.asarray(one) for one in weights])) <= set(w)


# ---- what is refused, before anything is trained ---------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"lams": [1.0]}, ValueError, r"'budgets' must be None where 'lams' is given\. Got both\. Leave one"),
        ({"budgets": []}, ValueError, r"'budgets' must hold at least one budget\. Got none\. Leave"),
        ({"estimator": Watching()}, TypeError, r"'estimator' must be .* Got Watching\. Put one of them last"),
        (
            {"estimator": make_pipeline(CLASSIFIER, Watching())},
            TypeError,
            r"'estimator' must be .* Got Watching\.",
        ),
        ({"validation": 0.0}, ValueError, r"'validation' must lie between 0 and 1.* Got 0\.0\. Try 0\.2"),
        ({"validation": 1.0}, ValueError, r"'validation' must lie between 0 and 1.* Got 1\.0\."),
        (
            {"validation": 0.05},
            ValueError,
            r"'validation' must hold out at least 20 rows .* Got 10\. There are 200 rows",
        ),
        (
            {"validation": "some"},
            TypeError,
            r"'validation' must be a share .* Got str\. Write validation=0\.2",
        ),
        ({"validation": (1, 2)}, TypeError, r"'validation' must be a share .* Got tuple\."),
        ({"validation": held(n=10)}, ValueError, r"'validation' must hold at least 20 rows .* Got 10\. Pass"),
        (
            {"validation": (held()[0], None, held()[2])},
            ValueError,
            r"'validation' must have a y of 80 rows like its X\. Got None\. Pass",
        ),
        (
            {"validation": (held()[0], held()[1], {"height": held()[2]})},
            ValueError,
            r"'validation' must have the columns 's' as before\. Got 'height'\.",
        ),
        (
            {"validation": (held()[0], held()[1], to_sensitive({"height": held()[2]}))},
            ValueError,
            r"'validation' must have the sensitive columns .* Got .*height.* beside .*\bs: .* Pass the same",
        ),
        ({"on": "z"}, ValueError, r"'on' must be 'prediction', 'representation' or None\. Got 'z'\. Leave"),
        ({"tolerance": 0.0}, ValueError, r"'tolerance' must be a positive number or None\. Got 0\.0\. Say"),
        ({"scoring": "fairness"}, ValueError, r"'scoring' parameter .* Got 'fairness' instead"),
        (
            {"dependence": KernelHGR()},
            TypeError,
            r"'dependence' must be HSIC, .* Got KernelHGR\. Leave",
        ),
        (
            {"dependence": EIPM(), "tolerance": 0.1},
            TypeError,
            r"'dependence' must be HSIC, DistanceCovariance, GDP, ScoreGap or RankGap\. Got EIPM\.",
        ),
        (
            {"rule": first_not_rejected},
            ValueError,
            r"'points' must all have their 'test'\. Got None at index 0\. .* FrontierSearch\(test=True\)",
        ),
        (
            {"rule": last_equivalent},
            ValueError,
            r"all have their 'equivalence'\. Got None .* FrontierSearch\(tolerance=\.\.\.\)",
        ),
        (
            {"rule": partial(lowest_dependence_within, tolerance=1.5)},
            ValueError,
            r"'tolerance' must be a share .* Got 1\.5\.",
        ),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_a_search_that_cannot_end_is_refused_at_once(settings, error, words):
    X, y, s = task()
    with pytest.raises(error, match=words):
        search(**settings).fit(X, y, sensitive_features=s)


@pytest.mark.usefixtures("no_training")
def test_rows_that_do_not_belong_together_are_refused_at_once():
    X, y, s = task()
    with pytest.raises(
        ValueError, match=r"'sensitive_features' must be passed to fit\. Got None\. Pass them"
    ):
        search().fit(X, y)
    with pytest.raises(ValueError, match=r"'sensitive_features' must have 200 rows .* Got 199\."):
        search().fit(X, y, sensitive_features=s[1:])
    with pytest.raises(ValueError, match=r"'y' must have 200 rows like 'X'\. Got 199\."):
        search().fit(X, y[1:], sensitive_features=s)
    table = pd.DataFrame(X)
    with pytest.raises(ValueError, match=r"in the order of 'X'"):
        search().fit(table, y, sensitive_features=pd.Series(s)[::-1])
    with pytest.raises(ValueError, match=r"'tolerance' must be None with weights.* Got 0\.1\. Leave one"):
        search(tolerance=0.1).fit(X, y, sensitive_features=s, sample_weight=np.arange(N))
    with pytest.raises(ValueError, match=r"'on' must be 'representation' for an encoder.* Leave it out"):
        search(FRHSICEncoder(**FAST), on="prediction").fit(X, sensitive_features=s)
    # A column that varies overall, but not among the validation rows.
    rare = np.zeros(N)
    rare[0] = 1.0
    with pytest.raises(ValueError, match=r"'sensitive_features' must vary among the validation rows\. Got"):
        search().fit(X, y, sensitive_features=rare)
