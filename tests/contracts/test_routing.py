"""Sensitive features and weights through pipelines, searches and cross-validation, row by row."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, make_scorer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from frhsic import GDP, HSIC, FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, Penalty, TableEncoder
from frhsic.data import to_matrix, to_sensitive
from frhsic.dependence import Dependence

N = 90
FAST = {
    "lam": 1.0,
    "encoder": (4,),
    "epochs": 2,
    "batch_size": 45,
    "learning_rate": 1e-2,
    "random_state": 0,
}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame}
MODELS = (FRHSICClassifier, FRHSICRegressor, FRHSICEncoder)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def columns():
    rng = np.random.default_rng(0)
    return {
        "number": np.arange(N, dtype=float),  # the row, so that one sees what arrives with what
        "income": rng.normal(size=N),
        "job": np.array(["chef", "nurse", "pilot"])[rng.integers(0, 3, N)],
    }


def data(library="pandas"):
    """Return a table, classes, S and weights, all of which tell their row."""
    table = columns()
    y = (table["income"] > 0).astype(int)
    return FRAMES[library](table), y, s_of(table["number"]), w_of(table["number"])


def s_of(number):
    return 3.0 * number + 0.5


def w_of(number):
    return 1.0 + number / 7.0


def gap(y_true, probability, *, sensitive_features):
    """Return GDP of the score, after a look at the rows."""
    number = (np.asarray(sensitive_features) - 0.5) / 3.0
    np.testing.assert_array_equal(y_true, (columns()["income"] > 0)[number.round().astype(int)])
    SCORED.append(sorted(number.round().astype(int).tolist()))
    return float(GDP()(to_matrix(probability), to_sensitive(sensitive_features)))


FITS, SCORED = [], []  # what arrived


@pytest.fixture(autouse=True)
def _forget():
    FITS.clear()
    SCORED.clear()


class Recording(FRHSICClassifier):
    """A classifier that looks at what reaches its fit; the row is in the first column."""

    def fit(self, X, y, *, sensitive_features=None, sample_weight=None):
        number = to_matrix(X)[:, 0].numpy()
        FITS.append(
            (sorted(number.astype(int).tolist()), sensitive_features is not None, sample_weight is not None)
        )
        np.testing.assert_array_equal(y, (columns()["income"] > 0)[number.astype(int)])
        if sensitive_features is not None:
            np.testing.assert_array_equal(np.asarray(sensitive_features), s_of(number))
        if sample_weight is not None:
            np.testing.assert_array_equal(np.asarray(sample_weight), w_of(number))
        return super().fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)


class Aligned(Dependence):
    """A dependence that checks that S is the row number of Z, which a net of one layer lets through."""

    seen = ()

    def _value(self, z, s, w):
        type(self).seen += ((z.detach().clone(), s.values.clone(), None if w is None else w.clone()),)
        return (z**2).mean()


def transformer():
    scaler = StandardScaler().set_fit_request(sample_weight=True) if routed() else StandardScaler()
    return ColumnTransformer(
        [
            ("row", "passthrough", ["number"]),
            ("numbers", scaler, ["income"]),
            ("labels", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["job"]),
        ]
    )


def routed():
    return sklearn.get_config()["enable_metadata_routing"]


def pipeline(model=None):
    return Pipeline([("table", transformer()), ("clf", model or Recording(**FAST))])


def gdp_scorer():
    scorer = make_scorer(gap, greater_is_better=False, response_method="decision_function")
    return scorer.set_score_request(sensitive_features=True)


def accuracy():
    """Return the scorer of that name, told about weights, as it must be for every model."""
    return get_scorer("accuracy").set_score_request(sample_weight=True)


def folds():
    return KFold(3, shuffle=True, random_state=1)


def expected_folds():
    return [(train.tolist(), test.tolist()) for train, test in folds().split(np.zeros(N))]


# With routing


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("library", FRAMES)
def test_cross_validation_routes_each_row_with_its_own_values(library):
    X, y, s, w = data(library)
    result = cross_validate(
        pipeline(),
        X,
        y,
        cv=folds(),
        scoring={"accuracy": accuracy(), "gap": gdp_scorer()},
        params={"sensitive_features": s, "sample_weight": w},
        return_estimator=True,
        error_score="raise",
    )
    assert [fit[0] for fit in FITS] == [train for train, _ in expected_folds()]
    assert all(fit[1:] == (True, True) for fit in FITS)
    assert [test for _, test in expected_folds()] == SCORED
    assert (result["test_gap"] <= 0).all()
    assert ((result["test_accuracy"] >= 0) & (result["test_accuracy"] <= 1)).all()
    model = result["estimator"][0]["clf"]
    assert model.history_[0]["penalty"] > 0
    rows = expected_folds()[0][0]
    np.testing.assert_allclose(model.scaling_s_.shift, [np.average(s[rows], weights=w[rows])])
    scaler = result["estimator"][0]["table"].named_transformers_["numbers"]
    np.testing.assert_allclose(scaler.mean_, [np.average(columns()["income"][rows], weights=w[rows])])


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("library", FRAMES)
def test_a_grid_search_routes_each_row_with_its_own_values(library):
    X, y, s, w = data(library)
    search = GridSearchCV(
        pipeline(),
        {"clf__lam": [0.5, 5.0]},
        cv=folds(),
        scoring={"accuracy": accuracy(), "gap": gdp_scorer()},
        refit="accuracy",
        error_score="raise",
    )
    search.fit(X, y, sensitive_features=s, sample_weight=w)
    trains, tests = zip(*expected_folds(), strict=True)
    assert [fit[0] for fit in FITS] == [*trains, *trains, list(range(N))]
    assert all(fit[1:] == (True, True) for fit in FITS)
    assert [*tests, *tests] == SCORED
    assert search.predict(X).shape == (N,)
    assert search.best_params_["clf__lam"] in (0.5, 5.0)
    twin = pipeline().set_params(**search.best_params_).fit(X, y, sensitive_features=s, sample_weight=w)
    np.testing.assert_array_equal(search.predict_proba(X), twin.predict_proba(X))


@pytest.mark.usefixtures("routing")
def test_a_search_can_be_refitted_by_the_metric_that_needs_s():
    X, y, s, _ = data()
    search = GridSearchCV(
        pipeline(), {"clf__lam": [0.0, 1.0]}, cv=folds(), scoring=gdp_scorer(), error_score="raise"
    )
    search.fit(X, y, sensitive_features=s)
    assert len(SCORED) == 6
    assert all(fit[1:] == (True, False) for fit in FITS)
    assert search.best_score_ <= 0


@pytest.mark.usefixtures("routing")
def test_searches_within_cross_validation_route_twice():
    X, y, s, w = data()
    search = GridSearchCV(
        pipeline(), {"clf__lam": [0.0, 1.0]}, cv=2, scoring=gdp_scorer(), error_score="raise"
    )
    cross_validate(
        search,
        X,
        y,
        cv=folds(),
        scoring=gdp_scorer(),
        params={"sensitive_features": s, "sample_weight": w},
        error_score="raise",
    )
    assert len(FITS) == 3 * (2 * 2 + 1)
    assert all(fit[1:] == (True, True) for fit in FITS)
    for (train, _), fits in zip(expected_folds(), np.array_split(np.arange(15), 3), strict=True):
        assert FITS[fits[-1]][0] == train
        assert all(set(FITS[j][0]) < set(train) for j in fits[:-1])


@pytest.mark.usefixtures("routing")
def test_predictions_across_folds_and_calibration_route_too():
    X, y, s, w = data()
    params = {"sensitive_features": s, "sample_weight": w}
    cross_val_predict(pipeline(), X, y, cv=folds(), params=params, method="predict_proba")
    assert [fit[0] for fit in FITS] == [train for train, _ in expected_folds()]
    FITS.clear()
    calibrated = CalibratedClassifierCV(pipeline(), cv=folds()).fit(X, y, **params)
    assert calibrated.predict_proba(X).shape == (N, 2)
    assert all(fit[1:] == (True, True) for fit in FITS)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("scoring", [None, "accuracy"], ids=str)
def test_scores_that_need_no_s_are_not_disturbed_by_it(scoring, weighted):
    X, y, s, w = data()
    params = {"sensitive_features": s} | ({"sample_weight": w} if weighted else {})
    result = cross_validate(
        pipeline(),
        X,
        y,
        cv=folds(),
        scoring=accuracy() if scoring and weighted else scoring,
        params=params,
        return_estimator=True,
        error_score="raise",
    )
    for (_, test), model, score in zip(
        expected_folds(), result["estimator"], result["test_score"], strict=True
    ):
        right = model.predict(X.iloc[test]) == y[test]
        assert score == pytest.approx(np.average(right, weights=w[test] if weighted else None))


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("search", [False, True], ids=["cross_validate", "GridSearchCV"])
def test_scorers_by_name_serve_beside_s(search):
    X, y, s, _ = data()
    if search:
        grid = GridSearchCV(
            pipeline(), {"clf__lam": [0.5]}, cv=folds(), scoring="accuracy", error_score="raise"
        )
        assert grid.fit(X, y, sensitive_features=s).best_score_ >= 0
    else:
        params = {"sensitive_features": s}
        cross_validate(pipeline(), X, y, cv=folds(), scoring="accuracy", params=params, error_score="raise")
    assert all(fit[1:] == (True, False) for fit in FITS)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("model", MODELS)
def test_no_model_needs_to_be_asked(model):
    X, y, s, w = data()
    scores = cross_validate(
        make_pipeline(TableEncoder(), model(**FAST)),
        X,
        y,
        cv=folds(),
        params={"sensitive_features": s, "sample_weight": w},
        error_score="raise",
    )["test_score"]
    assert np.isfinite(scores).all()


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("model", MODELS)
def test_every_model_can_stand_in_the_middle_of_a_pipeline(model):
    X, y, s, _ = data()
    pipe = make_pipeline(TableEncoder(), model(**FAST), LogisticRegression())
    pipe.fit(X, y, sensitive_features=s)
    z = make_pipeline(TableEncoder(), model(**FAST)).fit(X, y, sensitive_features=s).transform(X)
    np.testing.assert_array_equal(pipe.predict(X), LogisticRegression().fit(z, y).predict(z))


@pytest.mark.usefixtures("routing")
def test_a_request_can_be_turned_off():
    X, y, s, w = data()
    off = Recording(**{**FAST, "lam": 0}).set_fit_request(sensitive_features=False)
    params = {"sensitive_features": s, "sample_weight": w}
    cross_validate(pipeline(off), X, y, cv=folds(), scoring=gdp_scorer(), params=params, error_score="raise")
    assert [fit[1:] for fit in FITS] == [(False, True)] * 3
    assert len(SCORED) == 3
    with pytest.raises(ValueError, match=r"^'sensitive_features' must be passed to fit for lam = 1"):
        cross_validate(
            pipeline(clone(off).set_params(lam=1)),
            X,
            y,
            cv=folds(),
            scoring=gdp_scorer(),
            params=params,
            error_score="raise",
        )
    with pytest.raises(TypeError, match="sensitive_features"):
        pipeline(off).fit(X, y, sensitive_features=s)


@pytest.mark.usefixtures("routing")
def test_a_request_can_be_renamed():
    X, y, s, _ = data()
    renamed = Recording(**FAST).set_fit_request(sensitive_features="age", sample_weight=False)
    pipeline(renamed).fit(X, y, age=s)
    assert [(list(range(N)), True, False)] == FITS


@pytest.mark.usefixtures("routing")
def test_other_steps_must_be_asked_about_weights_as_always():
    X, y, s, w = data()
    steps = make_pipeline(TableEncoder(), StandardScaler(), FRHSICClassifier(**FAST))
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        steps.fit(X, y, sensitive_features=s, sample_weight=w)


@pytest.mark.usefixtures("routing")
def test_requests_are_those_of_the_class_and_survive_cloning():
    for model in MODELS:
        for made in (model(), clone(model()), model(lam=0)):
            requests = made.get_metadata_routing().fit.requests
            assert requests == {"sensitive_features": True, "sample_weight": True}
    off = FRHSICClassifier().set_fit_request(sensitive_features=False)
    assert clone(off).get_metadata_routing().fit.requests["sensitive_features"] is False
    assert FRHSICClassifier().get_metadata_routing().fit.requests["sensitive_features"] is True


@pytest.mark.usefixtures("routing")
def test_missing_s_is_told_inside_a_pipeline_too():
    X, y, _, w = data()
    with pytest.raises(
        ValueError, match=r"^'sensitive_features' must be passed to fit for lam = 1\. Got None"
    ):
        pipeline().fit(X, y, sample_weight=w)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("library", FRAMES)
def test_sensitive_frames_are_split_with_their_rows(library):
    X, y, s, _ = data(library)
    frame = FRAMES[library]({"age": s, "sex": np.where(np.arange(N) % 2, "f", "m")})
    result = cross_validate(
        make_pipeline(
            TableEncoder(), FRHSICClassifier(**FAST, penalty=Penalty(HSIC(), columns=["age", "sex"]))
        ),
        X,
        y,
        cv=folds(),
        params={"sensitive_features": frame},
        return_estimator=True,
        error_score="raise",
    )
    for (train, _), model in zip(expected_folds(), result["estimator"], strict=True):
        assert model[-1].sensitive_names_ == ("age", "sex")
        assert model[-1].sensitive_kinds_ == ("continuous", "categorical")
        np.testing.assert_allclose(model[-1].scaling_s_.shift[0], s[train].mean())


@pytest.mark.usefixtures("routing")
def test_what_the_penalty_sees_are_rows_of_one_and_the_same_fold():
    X, y, s, w = data()
    Aligned.seen = ()
    # A layer that lets the row number through: then z tells which rows S and the weights must be of.
    layer = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    model = FRHSICClassifier(
        lam=1.0, encoder=layer, penalty=Penalty(Aligned()), epochs=1, learning_rate=1e-12, batch_size=20
    )
    cross_validate(
        model,
        X[["number"]],
        y,
        cv=folds(),
        params={"sensitive_features": s, "sample_weight": w},
        error_score="raise",
    )
    assert len(Aligned.seen) == 3 * 3
    for z, values, weights in Aligned.seen:
        # Both are the row number, brought to mean 0 and variance 1 with the same weights.
        torch.testing.assert_close(values, z, rtol=1e-4, atol=1e-5)
        order = z[:, 0].argsort()
        slopes = weights[order].diff() / z[order, 0].diff()
        torch.testing.assert_close(slopes, slopes.mean().expand_as(slopes), rtol=1e-3, atol=1e-4)


# Without routing


def test_a_pipeline_takes_values_by_the_name_of_the_step():
    X, y, s, w = data()
    pipeline().fit(X, y, clf__sensitive_features=s, clf__sample_weight=w)
    assert [(list(range(N)), True, True)] == FITS
    make_pipeline(TableEncoder(), FRHSICClassifier(**FAST)).fit(X, y, frhsicclassifier__sensitive_features=s)


@pytest.mark.parametrize("library", FRAMES)
def test_a_search_hands_on_what_its_fit_is_given(library):
    X, y, s, w = data(library)
    scoring = make_scorer(lambda y_true, y_pred: float(np.mean(y_true == y_pred)))
    search = GridSearchCV(
        pipeline(), {"clf__lam": [0.5, 5.0]}, cv=folds(), scoring=scoring, error_score="raise"
    )
    search.fit(X, y, clf__sensitive_features=s, clf__sample_weight=w)
    trains = [train for train, _ in expected_folds()]
    assert [fit[0] for fit in FITS] == [*trains, *trains, list(range(N))]
    assert all(fit[1:] == (True, True) for fit in FITS)


def test_a_search_over_the_model_itself_needs_no_prefix():
    X, y, s, _ = data()
    numbers = X[["number", "income"]]
    search = GridSearchCV(Recording(**FAST), {"lam": [0.5, 5.0]}, cv=folds(), error_score="raise")
    search.fit(numbers, y, sensitive_features=s)
    assert len(FITS) == 7
    FITS.clear()
    cross_validate(
        Recording(**FAST), numbers, y, cv=folds(), params={"sensitive_features": s}, error_score="raise"
    )
    assert [fit[0] for fit in FITS] == [train for train, _ in expected_folds()]


def test_without_routing_a_scorer_cannot_ask_for_s():
    with pytest.raises(RuntimeError, match="enable_metadata_routing"):
        gdp_scorer()


def test_without_routing_a_missing_s_says_how_to_turn_it_on():
    X, y, _, _ = data()
    says = r"^'sensitive_features' must be passed to fit for lam = 1\..*enable_metadata_routing=True"
    with pytest.raises(ValueError, match=says):
        pipeline().fit(X, y)
    with pytest.raises(ValueError, match=says):
        GridSearchCV(pipeline(), {"clf__epochs": [1]}, cv=folds(), error_score="raise").fit(X, y)
    with pytest.raises(ValueError, match=says):
        cross_validate(pipeline(), X, y, cv=folds(), error_score="raise")


def test_without_a_penalty_nothing_needs_to_be_routed():
    X, y, _, _ = data()
    search = GridSearchCV(
        pipeline().set_params(clf__lam=0), {"clf__epochs": [1, 2]}, cv=folds(), error_score="raise"
    )
    assert search.fit(X, y).best_score_ >= 0
    assert all(fit[1:] == (False, False) for fit in FITS)


# The encoder of tables


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("library", FRAMES)
def test_a_table_goes_straight_into_every_model(model, library):
    X, y, s, _ = data(library)
    made = [
        make_pipeline(TableEncoder(), model(**FAST)).fit(
            data(other)[0], y, **{f"{model.__name__.lower()}__sensitive_features": s}
        )
        for other in (library, "pandas")
    ]
    np.testing.assert_array_equal(made[0].transform(X), made[1].transform(data("pandas")[0]))
    assert made[0].get_feature_names_out().tolist() == [f"{model.__name__.lower()}{j}" for j in range(4)]
    assert made[0].feature_names_in_.tolist() == ["number", "income", "job"]
    named = make_pipeline(TableEncoder(), model(**FAST)).set_output(transform=library)
    out = named.fit_transform(X, y, **{f"{model.__name__.lower()}__sensitive_features": s})
    assert isinstance(out, FRAMES[library])
    assert named[-1].feature_names_in_.tolist() == TableEncoder().fit(X).get_feature_names_out().tolist()
    np.testing.assert_array_equal(out.to_numpy(), made[0].transform(X))


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("library", FRAMES)
def test_a_table_with_gaps_can_be_searched(library):
    _, y, s, w = data()
    gaps = {
        name: [None if j % every == 0 else v for j, v in enumerate(columns()[name].tolist())]
        for name, every in (("number", 11), ("income", 7), ("job", 5))
    }
    X = FRAMES[library](gaps)
    search = GridSearchCV(
        Pipeline([("table", TableEncoder()), ("clf", FRHSICClassifier(**FAST))]),
        {"clf__lam": [0.0, 1.0], "table__scaling": ["standard", "minmax"]},
        cv=folds(),
        scoring={"accuracy": accuracy(), "gap": gdp_scorer()},
        refit="gap",
        error_score="raise",
    )
    search.fit(X, y, sensitive_features=s, sample_weight=w)
    assert np.isfinite(search.cv_results_["mean_test_gap"]).all()
    assert search.best_estimator_.predict_proba(X).shape == (N, 2)


def test_a_table_that_was_not_encoded_is_refused_with_the_cure():
    X, y, s, _ = data()
    with pytest.raises(
        ValueError, match=r"^'X' must hold numbers in column 'job'\. Got strings\. .*TableEncoder"
    ):
        FRHSICClassifier(**FAST).fit(X, y, sensitive_features=s)
