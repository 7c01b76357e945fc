"""What is left along S with factors held equal, and which inputs carry it."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge

from frhsic import FRHSICClassifier, HSICSketch, audit
from frhsic._checks import ArgumentError
from frhsic.boosting import FRHSICBoostingClassifier
from frhsic.cli import run
from frhsic.data import to_sensitive
from frhsic.inference import adjusted_curve, carriers, conditional_independence_test, proxies
from frhsic.inference.factors import _conditional as conditional
from frhsic.inference.factors import _learning as learning
from frhsic.inference.factors._columns import polynomials, read_factors, sensitive_features
from frhsic.metrics import generalized_demographic_parity
from frhsic.report import plot_adjusted, plot_carriers, render_report
from frhsic.selection import retrain_without


def table(n=1_500, seed=0, own=0.0, through=1.0):
    """Return a score that depends on age through income, and by itself."""
    rng = np.random.default_rng(seed)
    income = rng.normal(size=n)
    age = np.clip(np.round(45.0 + 9.0 * income + 10.0 * rng.normal(size=n)), 18.0, 90.0)
    score = through * income + own * (age - 45.0) / 10.0 + rng.normal(size=n)
    return score, {"age": age}, {"income": income}


# Parts


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        (lambda n: {"id": [f"u{i}" for i in range(n)]}, "at most 1,000 labels.*'id'.*Got 1,500.*identifier"),
        (
            lambda n: {f"x{j}": np.arange(n) % (j + 2) for j in range(300)},
            "at most 100 columns.*Got 300 of 300",
        ),
        (
            lambda n: {f"x{j}": np.arange(n).astype(str).astype("U1") for j in range(40)},
            "at most 100 columns.*Got 360 of 40 factors",
        ),
    ],
    ids=["identifier", "many numbers", "many labels"],
)
def test_more_factors_than_can_be_held_equal_are_an_error(factors, said):
    score, s, _ = table()
    for question in (conditional_independence_test, adjusted_curve):
        with pytest.raises(ArgumentError, match=said):
            question(score, s, given=factors(len(score)), random_state=0)
    with pytest.raises(ArgumentError, match=said):
        audit(score, sensitive_features=s, given=factors(len(score)), random_state=0)


def test_wide_factors_take_fewer_rows(monkeypatch):
    monkeypatch.setattr(conditional, "_MOST_CELLS", 6_000)
    score, s, given = table()
    wide = {**given, **{f"x{j}": np.arange(len(score)) % (j + 2) for j in range(9)}}
    found = conditional_independence_test(score, s, given=wide, random_state=0)
    assert found.n == 600
    assert "A random subsample of 600 of 1,500 rows was used." in found.notes
    assert conditional_independence_test(score, s, given=given, random_state=0).n == len(score)


def test_polynomials_are_orthonormal_and_span_all_functions_of_few_values():
    rng = np.random.default_rng(0)
    w = rng.random(400)
    x = rng.choice([1.0, 5.0, 900.0], 400)
    q = polynomials(x, w, 6)
    assert q.shape == (400, 2)
    full = np.column_stack((np.ones(400), q))
    np.testing.assert_allclose((full * w[:, None] / w.sum()).T @ full, np.eye(3), atol=1e-10)
    target = (x == 5.0).astype(float)
    fitted = full @ ((full * w[:, None] / w.sum()).T @ target)
    np.testing.assert_allclose(fitted, target, atol=1e-9)
    labels = to_sensitive(rng.choice(["a", "b", "c", "d"], 400))
    assert sensitive_features(labels, w, 2).shape == (400, 3)


def test_monotone_transforms_of_s_change_nothing():
    score, s, given = table(600)
    one = conditional_independence_test(score, s, given=given, random_state=0)
    other = conditional_independence_test(score, {"age": np.exp(s["age"] / 9.0)}, given=given, random_state=0)
    assert one.pvalue == other.pvalue
    assert one.statistic == pytest.approx(other.statistic, rel=1e-9)


def test_ridge_is_that_of_scikit_learn_fold_by_fold(monkeypatch):
    rng = np.random.default_rng(0)
    features, targets, w = rng.normal(size=(300, 8)), rng.normal(size=(300, 2)), 0.2 + rng.random(300)
    targets[:, 0] += features[:, 0]
    folds = learning._folds(features, None, 0)
    monkeypatch.setattr(learning, "_PENALTIES", np.array([3.0]))
    found = learning._ridge(features, targets, w, folds)
    share = w / w.sum() * len(w)
    centre, middle = np.average(features, axis=0, weights=w), np.average(targets, axis=0, weights=w)
    for held in folds:
        kept = np.setdiff1d(np.arange(300), held)
        model = Ridge(3.0, fit_intercept=False)
        model.fit(features[kept] - centre, targets[kept] - middle, sample_weight=share[kept])
        expected = middle + model.predict(features[held] - centre)
        np.testing.assert_allclose(found.values[held], expected, rtol=1e-5, atol=1e-6)


def test_noise_of_ridge_is_the_variance_of_its_predictions(monkeypatch):
    rng = np.random.default_rng(1)
    features = rng.normal(size=(200, 6))
    folds = learning._folds(features, None, 0)
    monkeypatch.setattr(learning, "_PENALTIES", np.array([5.0]))
    drawn = [learning._ridge(features, rng.normal(size=(200, 1)), np.ones(200), folds) for _ in range(300)]
    values = np.stack([one.values[:, 0] for one in drawn])
    assert np.mean([one.noise[0] for one in drawn]) == pytest.approx(values.var(axis=0).mean(), rel=0.12)


def test_statistic_is_the_largest_mean_product_of_residuals():
    score, s, given = table(400)
    question = conditional._Question.read(score, s, given, None, None, 0)
    fit = conditional._fit(question, 4, None)
    found = conditional._test(question, fit)
    r = fit.crossed.residuals
    rank = np.sqrt(12.0) * (pd.Series(given["income"]).rank(method="average").to_numpy() - 0.5) / 400
    rank -= np.sqrt(3.0)
    products = [r[:, j] * r[:, 4 + k] for j in range(4) for k in range(4)]
    products += [rank * r[:, 0] * r[:, 4 + k] for k in range(2)]
    t = [np.sqrt(len(p)) * np.mean(p) / np.std(p) for p in products]
    assert found.statistic == pytest.approx(np.abs(t).max(), rel=1e-9)


def test_curve_is_the_regression_of_residuals_on_residuals():
    score, s, given = table(800, own=0.5)
    found = adjusted_curve(score, s, given=given, random_state=0)
    question = conditional._Question.read(score, s, given, None, None, 0)
    degree = min(12, round(2 * 800**0.2))
    fit = conditional._fit(question, degree, None)
    r, q = fit.crossed.residuals[:, 0], fit.crossed.residuals[:, fit.places[0]]
    model = LinearRegression(fit_intercept=False).fit(q, fit.scale * r)
    h = fit.targets[:, fit.places[0]] @ model.coef_
    expected = [h[np.flatnonzero(s["age"] == point)[0]] for point in found.points]
    expected = np.array(expected) - np.array(found.mass) @ np.array(expected)
    np.testing.assert_allclose(found.mean, expected, atol=1e-8)
    assert found.gap.estimate == pytest.approx(np.array(found.mass) @ np.abs(found.mean))


# What it must find


def test_a_gap_that_runs_through_income_goes_and_its_reverse_appears():
    through = adjusted_curve(*table(3_000)[:2], given=table(3_000)[2], random_state=0)
    assert through.unadjusted_gap.low > 0.3
    assert through.gap.low == 0.0
    assert through.gap.high < 0.5 * through.unadjusted_gap.low
    assert through.test.pvalue > 0.05
    # The effect of age takes away just what income adds.
    score, s, given = table(3_000, own=-0.5)
    hidden = adjusted_curve(score, s, given=given, random_state=0)
    assert hidden.unadjusted_gap.estimate < 0.12
    assert hidden.gap.low > 0.3
    assert hidden.test.pvalue < 0.001
    assert hidden.mean[0] > 0 > hidden.mean[-1]
    assert "at equal income" in str(hidden)


@pytest.mark.parametrize(
    "add",
    [
        lambda age, noise, income: 0.4 * np.abs(age - 45.0) / 10.0,
        lambda age, noise, income: noise * np.exp(0.4 * (age - 45.0) / 10.0),
        lambda age, noise, income: 0.4 * np.sign(income) * (age - 45.0 - 9.0 * income) / 10.0,
    ],
    ids=["U", "spread", "sign of a factor"],
)
def test_dependence_beyond_means_is_seen(add):
    score, s, given = table(2_000)
    noise = np.random.default_rng(5).normal(size=2_000)
    found = conditional_independence_test(
        score + add(s["age"], noise, given["income"]), s, given=given, random_state=0
    )
    assert found.pvalue < 0.01


def test_interaction_is_named_where_the_curve_is_flat():
    score, s, _ = table(3_000, through=0.0)
    side = np.random.default_rng(7).choice([-1.0, 1.0], 3_000)
    opposite = 0.5 * side * (s["age"] - 45.0) / 10.0
    found = adjusted_curve(score + opposite, s, given={"side": side}, random_state=0)
    assert found.gap.low == 0.0
    assert found.shows_interaction
    assert "may differ with the factors" in str(found)


def test_level_where_regressions_are_good():
    # 60 draws at 5 %: more than 10 rejections happen once in 2,000.
    rejected = sum(
        conditional_independence_test(
            *table(400, seed)[:2], given=table(400, seed)[2], random_state=seed
        ).pvalue
        <= 0.05
        for seed in range(60)
    )
    assert rejected <= 10


def test_rough_regressions_are_warned_about():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3))
    both = np.sin(3.0 * x[:, 0]) * x[:, 1]
    found = conditional_independence_test(
        both + rng.normal(size=500), both + rng.normal(size=500), given=x, random_state=0
    )
    assert found.error > 0.5
    assert "too rough for the level" in str(found)
    assert not conditional_independence_test(
        *table(4_000)[:2], given=table(4_000)[2], random_state=0
    ).warnings


# What it takes


def test_factors_of_all_kinds_weights_and_groups():
    score, s, given = table(600)
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "income": np.where(rng.random(600) < 0.1, np.nan, given["income"]),
            "job": rng.choice(["chef", "nurse", None], 600),
            "code": [f"c{k}" for k in rng.integers(0, 60, 600)],
            "same": 1.0,
        }
    )
    factors = read_factors(frame, 600)
    assert factors.names == ("income", "job", "code", "same")
    assert set(factors.owner.tolist()) == {0, 1, 2}
    assert np.isfinite(factors.x).all()
    assert (factors.owner == 2).sum() == 30  # the rare ones are one together
    found = conditional_independence_test(score, s, given=frame, random_state=0)
    assert 0.0 < found.pvalue <= 1.0
    # Each row three times, as a group: the p-value is about that of single rows, not of three times as many.
    score, s, given = table(500, own=0.06)
    once = conditional_independence_test(score, s, given=given, random_state=0)
    thrice = conditional_independence_test(
        np.repeat(score, 3),
        {"age": np.repeat(s["age"], 3)},
        given={"income": np.repeat(given["income"], 3)},
        groups=np.repeat(np.arange(500), 3),
        random_state=0,
    )
    assert thrice.n == 500
    assert thrice.statistic == pytest.approx(once.statistic, abs=0.6)
    # Rows of weight zero are as if they were not there.
    w = (np.arange(500) < 300).astype(float)
    part = adjusted_curve(
        score[:300], {"age": s["age"][:300]}, given={"x": given["income"][:300]}, random_state=0
    )
    zero = adjusted_curve(score, s, given={"x": given["income"]}, sample_weight=w, random_state=0)
    assert zero.gap.estimate == pytest.approx(part.gap.estimate, rel=1e-9)


def test_categorical_s_and_a_regressor_of_ones_own():
    rng = np.random.default_rng(0)
    income = rng.normal(size=1_000)
    group = np.where(income + rng.normal(size=1_000) > 0, "a", np.where(rng.random(1_000) < 0.5, "b", "c"))
    score = income + 0.5 * (group == "b") + 0.5 * rng.normal(size=1_000)
    found = adjusted_curve(
        score, {"g": group}, given={"income": income}, regressor=LinearRegression(), random_state=0
    )
    a, b, c = found.mean
    assert b - c == pytest.approx(0.5, abs=0.15)
    assert abs(a - c) < 0.15
    assert plot_adjusted(found, labels=["a", "b", "c"]).get_xlabel() == "g"


def test_what_cannot_be_asked_is_a_sentence():
    score, s, given = table(300)
    with pytest.raises(ArgumentError, match="vary beyond what the factors say"):
        conditional_independence_test(given["income"], s, given=given, random_state=0)
    with pytest.raises(ArgumentError, match="sensitive_features"):
        conditional_independence_test(score, s, given={"twin": s["age"]}, random_state=0)
    with pytest.raises(ArgumentError, match="'given' must be the factors"):
        conditional_independence_test(score, s, given=None)
    with pytest.raises(ArgumentError, match="have a column that varies"):
        conditional_independence_test(score, s, given={"one": np.ones(300)})
    with pytest.raises(ArgumentError, match="300 rows"):
        conditional_independence_test(score, s, given={"x": np.arange(299.0)})
    with pytest.raises(ArgumentError, match="at least 100 rows"):
        conditional_independence_test(score[:50], {"age": s["age"][:50]}, given={"x": given["income"][:50]})
    with pytest.raises(ArgumentError, match="one column"):
        adjusted_curve(score, {**s, "b": score}, given=given)


@pytest.mark.parametrize("call", [conditional_independence_test, adjusted_curve])
def test_the_same_seed_gives_the_same_result_and_inputs_stay_as_they_are(call):
    score, s, given = table(300)
    before = score.copy(), s["age"].copy(), given["income"].copy()
    one, again = (call(score, s, given=given, random_state=3) for _ in range(2))
    assert one.to_dict() == again.to_dict()
    assert json.loads(json.dumps(one.to_dict())) == one.to_dict()
    for old, new in zip(before, (score, s["age"], given["income"]), strict=True):
        assert (old == new).all()


# Carriers


def contributions(n=2_000, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 70, n).astype(float)
    phi = {
        "income": 0.03 * (age - 45.0) + rng.normal(size=n),
        "noise": rng.normal(size=n),
        "zip": 0.01 * (age - 45.0),
        "tenure": -0.005 * (age - 45.0),
    }
    return phi, age


def test_shares_are_those_of_the_curves_and_add_to_one():
    phi, age = contributions()
    found = carriers(phi, {"age": age}, random_state=0)
    assert sum(found.share) == pytest.approx(1.0, abs=1e-12)
    total = sum(phi.values())
    values = np.unique(age)
    whole = np.array([total[age == v].mean() for v in values]) - total.mean()
    np.testing.assert_allclose(found.whole, whole, atol=1e-12)
    np.testing.assert_allclose(np.sum(found.parts, axis=0), whole, atol=1e-12)
    for name, part in zip(found.inputs, found.parts, strict=True):
        own = np.array([phi[name][age == v].mean() for v in values]) - phi[name].mean()
        np.testing.assert_allclose(part, own, atol=1e-12)
    truth = {"income": 6 / 7, "zip": 2 / 7, "noise": 0.0, "tenure": -1 / 7}
    assert found.inputs == ("income", "zip", "noise", "tenure")
    for name, share in zip(found.inputs, found.share, strict=True):
        assert share == pytest.approx(truth[name], abs=0.12)
    assert list(found.to_frame()["input"]) == list(found.inputs)
    assert "A share is no remedy" in str(found)
    assert plot_carriers(found).get_ylabel() == "added to the mean score"


def test_intervals_of_shares_cover():
    truth = {"income": 6 / 7, "zip": 2 / 7, "noise": 0.0, "tenure": -1 / 7}
    held = dict.fromkeys(truth, 0)
    for seed in range(40):
        found = carriers(*contributions(1_000, seed), random_state=seed, n_draws=99)
        for name, low, high in zip(found.inputs, found.low, found.high, strict=True):
            held[name] += low <= truth[name] <= high
    assert min(held.values()) >= 33  # of 40 at 95 %: fewer happen once in 3,000


def test_no_shares_of_a_gap_that_is_not_shown():
    rng = np.random.default_rng(0)
    found = carriers(rng.normal(size=(400, 3)), rng.integers(20, 40, 400), random_state=0)
    assert np.isnan(found.share).all()
    assert "no gap is shown" in str(found)


def test_inputs_count_together_and_groups_of_rows_are_units():
    phi, age = contributions()
    found = carriers(phi, age, inputs={"money": ["income", "zip"]}, random_state=0)
    assert set(found.inputs) == {"money", "noise", "tenure"}
    alone = carriers(phi, age, random_state=0)
    shares = dict(zip(alone.inputs, alone.share, strict=True))
    assert found.share[0] == pytest.approx(shares["income"] + shares["zip"], abs=1e-9)
    twice = {name: np.repeat(values, 2) for name, values in phi.items()}
    grouped = carriers(twice, np.repeat(age, 2), groups=np.repeat(np.arange(2_000), 2), random_state=0)
    width = [high - low for low, high in zip(alone.low, alone.high, strict=True)]
    double = [high - low for low, high in zip(grouped.low, grouped.high, strict=True)]
    np.testing.assert_allclose(double, width, rtol=0.15)
    with pytest.raises(ArgumentError, match="each once"):
        carriers(phi, age, inputs={"money": ["salary"]})


def test_contributions_of_boosted_trees_sum_to_their_score():
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    age = rng.integers(20, 70, 1_500).astype(float)
    x = pd.DataFrame({"income": age / 10.0 + rng.normal(size=1_500), "other": rng.normal(size=1_500)})
    y = rng.random(1_500) < 1.0 / (1.0 + np.exp(4.5 - x["income"] - x["other"]))
    booster = lightgbm.train({"objective": "binary", "verbosity": -1}, lightgbm.Dataset(x, y), 20)
    phi = booster.predict(x, pred_contrib=True)
    found = carriers(pd.DataFrame(phi, columns=[*x, "bias"]), {"age": age}, random_state=0)
    margin = booster.predict(x, raw_score=True)
    expected = carriers({"all": margin}, {"age": age}, random_state=0)
    np.testing.assert_allclose(found.whole, expected.whole, atol=1e-9)
    assert sum(found.share) == pytest.approx(1.0, abs=1e-12)
    assert found.inputs[0] == "income"
    assert found.share[0] > 0.9


def test_contributions_of_xgboost_sum_to_their_score_in_float32():
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    age = rng.integers(20, 70, 1_500).astype(float)
    x = pd.DataFrame({"income": age / 10.0 + rng.normal(size=1_500), "other": rng.normal(size=1_500)})
    y = rng.random(1_500) < 1.0 / (1.0 + np.exp(4.5 - x["income"] - x["other"]))
    rows = xgboost.DMatrix(x, y)
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, rows, 20)
    phi = booster.predict(rows, pred_contribs=True)
    assert phi.dtype == np.float32
    found = carriers(pd.DataFrame(phi, columns=[*x, "bias"]), {"age": age}, random_state=0)
    exact = carriers({"all": phi.astype(np.float64).sum(axis=1)}, {"age": age}, random_state=0)
    margin = carriers({"all": booster.predict(rows, output_margin=True)}, {"age": age}, random_state=0)
    np.testing.assert_allclose(found.whole, exact.whole, atol=1e-12)
    np.testing.assert_allclose(found.whole, margin.whole, atol=1e-5)
    assert sum(found.share) == pytest.approx(1.0, abs=1e-12)
    assert found.inputs[0] == "income"


# Training again without inputs


def frames_of(x):
    return [x, x.to_numpy(), pl.from_pandas(x)]


def test_a_twin_takes_the_place_of_what_is_removed():
    rng = np.random.default_rng(0)
    age = rng.integers(20, 70, 3_000).astype(float)
    tenure = age / 10.0 + rng.normal(size=3_000)
    x = pd.DataFrame({"tenure": tenure, "twin": tenure + 0.01 * rng.normal(size=3_000)})
    x["other"] = rng.normal(size=3_000)
    y = tenure + x["other"] + rng.normal(size=3_000)
    for table in frames_of(x):
        names = ["x0", "x1"] if isinstance(table, np.ndarray) else ["tenure", "twin"]
        found = retrain_without(
            LinearRegression(), table, y, sensitive_features={"age": age}, inputs=names, random_state=0
        )
        assert found.removed == ((), (names[0],), tuple(names))
        whole, one, both = (gap.estimate for gap in found.gap)
        assert one == pytest.approx(whole, rel=0.02)  # the same from its twin
        assert both < 0.1 * whole
        assert found.performance[2] < found.performance[0] - 0.2
    # By hand: the same held-out rows, the same model.
    held = (x[:1_000], y[:1_000], {"age": age[:1_000]})
    found = retrain_without(
        LinearRegression(), x[1_000:], y[1_000:], sensitive_features={"age": age[1_000:]},
        inputs=[["tenure", "twin"]], validation=held, random_state=0,
    )  # fmt: skip
    model = LinearRegression().fit(x[["other"]][1_000:], y[1_000:])
    gap = generalized_demographic_parity(
        None, model.predict(x[["other"]][:1_000]), sensitive_features=age[:1_000]
    )
    assert found.gap[1].plug_in == pytest.approx(gap, rel=1e-3)
    assert found.performance[1] == pytest.approx(model.score(x[["other"]][:1_000], y[:1_000]))
    assert list(found.to_frame()["removed"]) == ["", "tenure, twin"]
    assert "without tenure and twin" in str(found)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FRHSICBoostingClassifier(lam=0, n_estimators=20, random_state=0),
        lambda: FRHSICClassifier(
            encoder=torch.nn.Identity(), lam=0, epochs=60, learning_rate=0.01, random_state=0
        ),
        lambda: LogisticRegression(),
    ],
    ids=["trees", "linear", "scikit-learn"],
)
def test_models_of_this_package_are_trained_again(make):
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(1)
    age = rng.integers(20, 70, 2_000).astype(float)
    x = pd.DataFrame({"tenure": age / 10.0 + rng.normal(size=2_000), "other": rng.normal(size=2_000)})
    y = (rng.random(2_000) < 1.0 / (1.0 + np.exp(4.5 - x["tenure"] - x["other"]))).astype(int)
    found = retrain_without(
        make(), x, y, sensitive_features=pd.Series(age, name="age"), inputs=["tenure"], random_state=0
    )
    assert found.measure == "accuracy"
    assert found.gap[1].estimate < 0.5 * found.gap[0].estimate
    assert found.gap[0].low > 0.0


def test_what_cannot_be_removed_is_a_sentence():
    x, y = np.random.default_rng(0).normal(size=(200, 2)), np.arange(200.0)
    for inputs, match in [
        ("x0", "name the columns to remove"),
        ([], "name the columns to remove"),
        (["income"], "name columns of 'X', each once"),
        (["x0", "x0"], "one twice"),
        (["x0", "x1"], "leave a column"),
    ]:
        with pytest.raises(ArgumentError, match=match):
            retrain_without(LinearRegression(), x, y, sensitive_features=y, inputs=inputs)
    with pytest.raises(ArgumentError, match="two classes"):
        retrain_without(LogisticRegression(), x, y // 70, sensitive_features=y, inputs=["x0"])


# Proxies


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    age = rng.integers(20, 70, 1_500).astype(float)
    tenure = age / 2.0 + 4.0 * rng.normal(size=1_500)
    return pd.DataFrame(
        {
            "age": age,
            "shoe": rng.normal(size=1_500),
            "tenure": tenure,
            "copy": 2.0 * tenure + rng.normal(size=1_500),
            "distance": np.abs(age - 45.0) + 5.0 * rng.normal(size=1_500),
            "job": np.where(age > 60, "retired", rng.choice(["a", "b", None], 1_500)),
            "same": 1.0,
            "tails": np.where(rng.random(1_500) < 0.2, np.nan, rng.standard_cauchy(1_500)),
        }
    )


def test_proxies_are_found_and_twins_do_not_hide_each_other(people):
    found = proxies(people.drop(columns="age"), people["age"], random_state=0)
    by = {one.column: one for one in found.columns}
    assert set(by) == {"shoe", "tenure", "copy", "distance", "job", "tails"}
    assert any("1 columns do not vary" in note for note in found.notes)
    assert set(by["tenure"].group) == {"tenure", "copy"}
    assert by["shoe"].group == ("shoe",)
    # Alone as a linear regression has it: R^2 = Var(age / 2) / (Var(age / 2) + 16).
    ranks = people["age"].rank()
    assert by["tenure"].r2 == pytest.approx(np.corrcoef(people["tenure"], ranks)[0, 1] ** 2, abs=0.03)
    # Without it alone its twin would do; without both much is lost.
    assert by["tenure"].lost == by["copy"].lost > 0.1
    # Age is not predicted from its distance to 45, but depends on it.
    assert by["distance"].r2 < 0.05
    assert by["distance"].hsic_low > 0.1
    assert max(by[name].pvalue for name in ("tenure", "copy", "distance", "job")) < 1e-6
    assert min(by[name].pvalue for name in ("shoe", "tails")) > 0.05
    assert found.r2 > 0.75
    assert [one.hsic for one in found.columns] == sorted((one.hsic for one in found.columns), reverse=True)
    assert list(found.to_frame()["column"]) == [one.column for one in found.columns]
    json.dumps(found.to_dict(), allow_nan=False)


def test_proxies_level_over_columns():
    rng = np.random.default_rng(0)
    false = 0
    for seed in range(8):
        x, s = rng.standard_t(3, size=(300, 20)), rng.exponential(size=300)
        found = proxies(x, s, random_state=seed)
        false += any(one.pvalue <= 0.05 for one in found.columns)
    assert false <= 3  # of 8 at 5 %: more happen once in 2,700


def test_proxies_of_labels_and_of_many_rows():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 21_000)
    found = proxies({"height": (sex == "m") + rng.normal(size=21_000)}, {"sex": sex}, random_state=0)
    assert found.n == 20_000
    assert "random subsample of 20,000 of 21,000" in str(found)
    assert found.columns[0].r2 == pytest.approx(0.2, abs=0.03)
    with pytest.raises(ArgumentError, match="have a column that varies"):
        proxies({"same": np.ones(200)}, np.arange(200.0))
    # One bad cell is an error, and not a column that is said not to vary.
    with pytest.raises(ArgumentError, match="be finite in column 'x'"):
        proxies({"x": np.where(np.arange(200) == 3, np.inf, 1.0)}, np.arange(200.0))


def test_proxies_from_a_shell(people, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    people.to_parquet("p.parquet")
    line = [
        "proxies",
        "p.parquet",
        "--sensitive",
        "age",
        "--drop",
        "copy",
        "--plot",
        "p.png",
        "--json",
        "p.json",
    ]
    assert run(line) == 0
    out = capsys.readouterr().out
    assert "Columns that stand for age: 1,500 rows." in out
    assert "tenure" in out
    assert "copy" not in out
    assert json.loads((tmp_path / "p.json").read_text())["columns"][0]["column"] == "tenure"
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert run(["proxies", "p.parquet", "--sensitive", "nothing"]) == 2
    assert run(["proxies", "p.parquet", "--sensitive", "age", "--plot", "p.txt"]) == 2


# The audit


def test_audit_explains_and_splits(tmp_path, capsys):
    score, s, given = table(700, own=0.2)
    phi = {"income": given["income"], "own": score - given["income"]}
    found = audit(score, sensitive_features=s, given=given, contributions=phi, random_state=0)
    one = found.attribute("age")
    alone = adjusted_curve(score, s, given=given, random_state=0)
    assert one.explained.gap == alone.gap
    assert one.carried.share == carriers(phi, s, random_state=0).share
    text = str(found)
    assert "at equal income" in text
    assert "is carried by" in text
    page = render_report(found)
    assert "Explained by" in page
    assert "Carried by" in page
    json.dumps(found.to_dict(), allow_nan=False)
    plain = render_report(audit(score, sensitive_features=s, random_state=0))
    assert "Explained by" not in plain


def test_audit_of_what_has_no_reasons():
    score, s, given = table(300)
    sketch = HSICSketch.like(torch.from_numpy(score)[:, None], s)
    sketch.update(torch.from_numpy(score)[:, None], s)
    with pytest.raises(ArgumentError, match="'given' must be left out beside a sketch"):
        audit(sketch, given=given)
    with pytest.raises(ArgumentError, match="one score"):
        audit(np.column_stack((score, score**2)), sensitive_features=s, given=given)
    # What the factors determine is a note, not the end of the audit.
    found = audit(given["income"], sensitive_features=s, given=given, random_state=0)
    assert found.attribute("age").explained is None
    assert any("at equal factors" in note for note in found.notes)


def test_audit_from_a_shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    score, s, given = table(600, own=0.3)
    frame = pd.DataFrame(
        {"score": score, **s, **given, "phi_a": given["income"], "phi_b": score - given["income"]}
    )
    frame.loc[:5, "income"] = np.nan
    frame.to_csv("s.csv", index=False)
    line = ["audit", "s.csv", "--score", "score", "--sensitive", "age"]
    assert run([*line, "--given", "income", "--contributions", "phi_", "--report", "r.html"]) == 0
    out = capsys.readouterr().out
    assert "at equal income" in out
    assert "is carried by" in out
    assert " b " in out
    assert run([*line, "--given", "salary"]) != 0
    assert run([*line, "--contributions", "shap"]) != 0
    assert run([*line, "--given", "income", "--engine", "local"]) != 0
    assert "regressions need the rows" in capsys.readouterr().err
