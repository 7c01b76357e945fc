"""A budget is kept: the dependence that is left is the share of the unconstrained one that was asked for."""

import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from frhsic.data import to_sensitive
from frhsic.datasets import make_u_shaped
from frhsic.dependence import EIPM, GDP, HSIC, Adversary, BinnedMMD
from frhsic.engine import Training
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, fit_path
from frhsic.kernels import Gaussian
from frhsic.penalty import Penalty

FAST = {"encoder": (16, 8), "epochs": 60, "batch_size": 50, "learning_rate": 5e-3, "random_state": 0}
BUDGETS = [1.0, 0.5, 0.1]
MISSED = "ignore:The model has:sklearn.exceptions.ConvergenceWarning"


def u_shaped(n=500, seed=0):
    task = make_u_shaped(n, random_state=seed)
    return task.data, task.target, task.sensitive_features[:, 0]


def gaussian(x, sigma):
    return np.exp(-((x[:, None] - x[None]) ** 2) / (2.0 * sigma**2))


def unbiased(K, L):
    n, one = len(K), np.ones(len(K))
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    total = (one @ K @ one) * (one @ L @ one)
    return (np.sum(K * L) + total / ((n - 1) * (n - 2)) - 2 * one @ K @ L @ one / (n - 2)) / (n * (n - 3))


def dependence(score, s):
    """Normalised, debiased HSIC of a score, its kernel of variance 2 Var; S at its median distance."""
    distances = np.abs(s[:, None] - s[None])[np.triu_indices(len(s), 1)]
    sigma = np.sort(distances)[(len(distances) - 1) // 2]
    K, L = gaussian(score, math.sqrt(2.0 * score.var())), gaussian(s, sigma)
    return unbiased(K, L) / math.sqrt(unbiased(K, K) * unbiased(L, L))


@pytest.fixture(scope="module")
def path():
    """The unconstrained model, and one for each budget."""
    X, y, s = u_shaped()
    return fit_path(FRHSICClassifier(**FAST), X, y, budgets=BUDGETS, sensitive_features=s)


# What is asked for is what is left


def test_budgets_are_met_by_a_measurement_of_its_own(path):
    X, _, s = u_shaped()
    found = [dependence(model.predict_proba(X)[:, 1], s) for model in path]
    for budget, model, value in zip(BUDGETS[1:], path[2:], found[2:], strict=True):
        assert value / found[0] == pytest.approx(budget, rel=0.15)
        assert model.relative_dependence_ == pytest.approx(value / found[0], abs=1e-4)
    assert path[0].relative_dependence_ == 1.0
    assert found[0] > 0.1


def test_a_smaller_budget_leaves_less_dependence_and_more_loss(path):
    X, y, _ = u_shaped()
    relative = [model.relative_dependence_ for model in path]
    assert relative == sorted(relative, reverse=True)
    p = [model.predict_proba(X)[np.arange(len(y)), y.astype(int)] for model in path]
    losses = [-np.log(each).mean() for each in p]
    assert losses == sorted(losses)
    assert losses[-1] > losses[0] + 0.02


def test_the_whole_budget_is_hardly_a_penalty(path):
    X, y, _ = u_shaped()
    assert 0.8 < path[1].relative_dependence_ < 1.1
    assert abs(path[1].score(X, y) - path[0].score(X, y)) < 0.02
    weights = [model.history_[-1]["multiplier"] for model in path]
    assert weights[0] == 0.0
    assert 0.0 < weights[1] < 0.5 * weights[2]


def test_a_smaller_budget_puts_a_higher_price_on_dependence(path):
    """The multiplier is that of the ratio to the budget: over the budget, the price of dependence itself."""
    prices = [model.history_[-1]["multiplier"] / (model.budget or 1.0) for model in path]
    assert prices == sorted(prices)
    assert prices[0] == 0.0 < prices[1] < 0.1 * prices[-1]


def test_the_history_tells_how_a_budget_was_met(path):
    for model in path:
        last = model.history_[-1]
        assert last["relative"] == pytest.approx(model.relative_dependence_, rel=0.05)
        assert all(record["multiplier"] >= 0 for record in model.history_)
        rates = [record["learning_rate"] for record in model.history_]
        assert rates[0] == pytest.approx(FAST["learning_rate"])
        assert rates[-1] < 0.01 * rates[0]  # budgets are met as the steps become small
    assert all(record["relative"] == 1.0 for record in path[0].history_)


def test_no_factor_of_z_meets_a_budget():
    """A net could always shrink its logits, which one bandwidth would take for less dependence."""
    X, y, s = u_shaped()
    penalty = Penalty(HSIC(Gaussian(1.0)), on="prediction")
    first, model = fit_path(
        FRHSICClassifier(**FAST, penalty=penalty), X, y, budgets=[0.2], sensitive_features=s
    )
    logits = [each.decision_function(X) for each in (first, model)]
    value = [dependence(each, s) for each in logits]
    assert model.relative_dependence_ == pytest.approx(0.2, rel=0.15)
    assert value[1] < 0.4 * value[0]
    assert logits[1].std() > 0.2 * logits[0].std()


# The door


def test_a_budget_and_a_lambda_are_refused_together():
    X, y, s = u_shaped(60)
    with pytest.raises(
        ValueError, match=r"^'budget' must be None where 'lam' is given\. Got budget=0\.5 and"
    ):
        FRHSICClassifier(budget=0.5, lam=1.0).fit(X, y, sensitive_features=s)


@pytest.mark.parametrize("budget", [0, -0.1, 1.01, math.nan, math.inf, "0.1", True, [0.1]])
def test_budgets_that_make_no_sense_are_refused_by_name(budget):
    X, y, s = u_shaped(60)
    for model in (FRHSICClassifier, FRHSICRegressor, FRHSICEncoder):
        with pytest.raises(
            ValueError, match=r"^'budget' must lie above 0 and be at most 1.*Got .*\. Try 0\.1"
        ):
            model(budget=budget).fit(X, y, sensitive_features=s)


@pytest.mark.filterwarnings(MISSED)
def test_neither_a_budget_nor_a_lambda_is_a_budget_of_a_tenth():
    X, y, s = u_shaped(120)
    quick = FAST | {"epochs": 3}
    usual, tenth, fifth = (
        FRHSICClassifier(**quick, budget=budget).fit(X, y, sensitive_features=s)
        for budget in (None, 0.1, 0.2)
    )
    assert usual.budget is None
    np.testing.assert_array_equal(usual.transform(X), tenth.transform(X))
    assert not np.array_equal(usual.transform(X), fifth.transform(X))
    assert usual.relative_dependence_ == tenth.relative_dependence_


def test_a_budget_needs_sensitive_features():
    X, y, _ = u_shaped(60)
    for model, says in ((FRHSICClassifier(), "budget = 0.1"), (FRHSICRegressor(budget=0.3), "budget = 0.3")):
        with pytest.raises(ValueError, match=f"^'sensitive_features' must be passed to fit for {says}"):
            model.fit(X, y)


@pytest.mark.parametrize("strength", [{"lam": 1.0}, {"budget": 0.5}])
@pytest.mark.parametrize("model", [FRHSICRegressor, FRHSICEncoder])
def test_probabilities_are_for_classifiers(model, strength):
    X, y, s = u_shaped(60)
    for penalty in (Penalty(HSIC(), on="probability"), Penalty(HSIC()) + Penalty(GDP(), on="probability")):
        with pytest.raises(
            ValueError, match=r"^'penalty' must not be on probabilities where none are predicted"
        ):
            model(**FAST, **strength, penalty=penalty).fit(X, y, sensitive_features=s)


def test_without_a_budget_there_is_no_relative_dependence():
    X, y, s = u_shaped(60)
    model = FRHSICClassifier(**(FAST | {"epochs": 2}), lam=1.0).fit(X, y, sensitive_features=s)
    assert model.relative_dependence_ is None
    assert {record["relative"] for record in model.history_} == {None}
    assert {record["multiplier"] for record in model.history_} == {None}


# Warnings


def test_a_budget_that_is_missed_is_told_with_what_is_left():
    X, y, s = u_shaped(200)
    model = FRHSICClassifier(**(FAST | {"epochs": 1}), budget=0.01)
    with pytest.warns(
        ConvergenceWarning, match=r"^The model has .* above its budget of 0\.01\. Train for more"
    ):
        model.fit(X, y, sensitive_features=s)
    assert model.relative_dependence_ > 0.0115


def test_a_budget_that_is_met_is_not_told():
    X, y, s = u_shaped(200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FRHSICClassifier(**(FAST | {"epochs": 2}), budget=1.0).fit(X, y, sensitive_features=s)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_where_nothing_depends_on_s_a_share_of_it_is_told_to_mean_nothing(early_stopping):
    """Debiased, the dependence of about half of such models is below zero."""
    rng = np.random.default_rng(0)
    told = 0
    for seed in range(6):
        X, s = rng.normal(size=(2, 120, 1))
        y = X[:, 0] + rng.normal(size=120) > 0
        model = FRHSICClassifier(**(FAST | {"epochs": 2}), budget=0.5, early_stopping=early_stopping)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.set_params(random_state=seed).fit(X, y, sensitive_features=s[:, 0])
        nothing = [w for w in caught if "shows no dependence on these rows" in str(w.message)]
        assert bool(nothing) == (model.relative_dependence_ is None)
        told += bool(nothing)
    assert told >= 1


# Early stopping


@pytest.mark.filterwarnings(MISSED)
@pytest.mark.parametrize("budget", [0.5, 0.2])
def test_early_stopping_keeps_the_least_loss_among_epochs_within_the_budget(budget):
    X, y, s = u_shaped()
    training = Training(validation_fraction=0.3, patience=15)
    model = FRHSICClassifier(**FAST, budget=budget, early_stopping=True, training=training)
    model.fit(X, y, sensitive_features=s)
    within = [r for r in model.history_ if r["relative"] is None or r["relative"] <= 1.05 * budget]
    best = min(within, key=lambda record: record["validation_loss"])
    assert model.best_epoch_ == best["epoch"]
    assert any(
        record["validation_loss"] < best["validation_loss"] for record in model.history_
    )  # outside the budget: taken without one
    assert model.relative_dependence_ <= 1.15 * budget


@pytest.mark.filterwarnings(MISSED)
def test_before_any_epoch_is_within_the_budget_the_nearest_is_kept_and_training_goes_on():
    X, y, s = u_shaped(200)
    training = Training(validation_fraction=0.3, patience=1)
    settings = FAST | {"epochs": 6, "learning_rate": 1e-4}
    model = FRHSICClassifier(**settings, budget=0.001, early_stopping=True, training=training)
    model.fit(X, y, sensitive_features=s)
    relative = [record["relative"] for record in model.history_]
    assert len(relative) == 6
    assert min(relative) > 0.00105
    assert model.best_epoch_ == int(np.argmin(relative))


def test_a_budget_that_leaves_nothing_to_learn_is_told_although_it_is_kept():
    rng = np.random.default_rng(2)
    s, X = rng.standard_normal(300), rng.standard_normal((300, 5))
    X[:, 0] += 0.2 * s
    y = X[:, 0] + 0.3 * rng.standard_normal(300)
    settings = FAST | {"epochs": 80, "batch_size": 64, "learning_rate": 1e-2}
    model = FRHSICRegressor(**settings, penalty=Penalty(GDP(0.1), on="prediction"), budget=0.01)
    with pytest.warns(ConvergenceWarning, match=r"^The loss ended at .* a budget of 0\.01 leaves nothing"):
        model.fit(X, y, sensitive_features=s)
    assert model.relative_dependence_ < 0.01
    assert np.mean((model.predict(X) - y) ** 2) > np.var(y)


# Every kind of model, of S and of measure


def regression(n=300):
    X, _, s = u_shaped(n)
    return X, X[:, 0] + np.random.default_rng(1).normal(size=n), s


def multiclass(n=300):
    X, y, s = u_shaped(n)
    return X, np.digitize(X[:, 0] + 0.5 * y, [-0.2, 0.6]), s


def test_a_budget_holds_for_a_regression():
    X, y, s = regression()
    first, model = fit_path(FRHSICRegressor(**FAST), X, y, budgets=[0.2], sensitive_features=s)
    value = [dependence(each.predict(X), s) for each in (first, model)]
    assert value[1] / value[0] == pytest.approx(0.2, rel=0.15)
    assert model.relative_dependence_ == pytest.approx(value[1] / value[0], abs=1e-4)


KINDS = {
    "three classes": (FRHSICClassifier, multiclass, {}),
    "encoder": (FRHSICEncoder, u_shaped, {"encoder": (16, 2)}),
    "sample weights": (FRHSICClassifier, u_shaped, {"weighted": True}),
    "categories": (FRHSICClassifier, u_shaped, {"categories": True}),
    "two columns": (FRHSICClassifier, u_shaped, {"columns": True}),
    "given y": (FRHSICClassifier, u_shaped, {"penalty": Penalty(HSIC(), on="prediction", given="y")}),
    "adversary": (FRHSICClassifier, u_shaped, {"penalty": Penalty(Adversary((8,)))}),
    "adversary of bins": (FRHSICRegressor, regression, {"penalty": Penalty(Adversary((8,), n_bins=3))}),
    "EIPM": (FRHSICClassifier, u_shaped, {"penalty": Penalty(EIPM(Gaussian(1.0), 0.5))}),
    "GDP": (FRHSICClassifier, u_shaped, {"penalty": Penalty(GDP(), on="probability")}),
    "binned MMD": (FRHSICRegressor, regression, {"penalty": Penalty(BinnedMMD(4))}),
    "two terms": (
        FRHSICClassifier,
        u_shaped,
        {"penalty": Penalty(HSIC()) + 0.5 * Penalty(GDP(), on="prediction")},
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_budget_lowers_what_it_is_a_share_of(name):
    model, data, options = KINDS[name]
    X, y, s = data(300)
    options = dict(options)
    settings = {"sensitive_features": s}
    if options.pop("categories", False):
        settings["sensitive_features"] = np.where(
            s > np.quantile(s, 0.7), "high", np.where(s < 0.3, "low", "mid")
        )
    if options.pop("columns", False):
        settings["sensitive_features"] = to_sensitive({"a": s, "b": np.abs(s)})
    if options.pop("weighted", False):
        settings["sample_weight"] = np.where(s > 0.5, 2.0, 0.5)
    estimator = model(**(FAST | {"epochs": 40} | options))
    first, held = fit_path(estimator, X, y, budgets=[0.3], **settings)
    assert first.relative_dependence_ == 1.0
    assert held.relative_dependence_ < 0.6
    assert math.isfinite(held.relative_dependence_)


@pytest.mark.filterwarnings(MISSED)
def test_the_weights_of_rows_are_those_of_a_budget():
    X, y, s = u_shaped(150)
    model = FRHSICClassifier(**(FAST | {"epochs": 4}), penalty=Penalty(HSIC(normalized=True)), budget=0.5)
    plain = clone(model).fit(X, y, sensitive_features=s)
    weighted = clone(model).fit(X, y, sensitive_features=s, sample_weight=np.where(s > 0.5, 3.0, 0.1))
    assert plain.relative_dependence_ != weighted.relative_dependence_
