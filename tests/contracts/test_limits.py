"""A limit is kept: what a person will read is at most what was asked for, on rows not trained on."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from frhsic.boosting import FRHSICBoostingClassifier
from frhsic.data import to_sensitive
from frhsic.datasets import make_u_shaped
from frhsic.dependence import HSIC
from frhsic.engine import Training
from frhsic.engine.limits import MEASURES, Key, Limits, make_measure, read_limit
from frhsic.engine.meter import Meter, _Part, _Rows, find_gap, without_chance
from frhsic.engine.rows import Rows as EngineRows
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, fit_path
from frhsic.kernels import Energy, Gaussian, OnRanks
from frhsic.penalty import Penalty
from frhsic.persistence import load, save
from frhsic.selection import FrontierSearch, best_within_limit, lowest_dependence
from frhsic.table import GapErrors, ScoreTable

FAST = {"encoder": (16, 8), "epochs": 60, "batch_size": 100, "learning_rate": 5e-3, "random_state": 0}
ASIDE = Training(limit_fraction=0.4)
LIMITS = {
    "gap": {"gap": 0.03},
    "rank_gap": {"rank_gap": 0.06},
    "gdp": {"gdp": 0.03},
    "gap_worst": {"gap_worst": 0.08},
    "gap_at": {"gap_at": {0.5: 0.05}},
    "normalized_hsic": {"normalized_hsic": 0.01},
    "several": {"gap": 0.2, "gap_at": {0.5: 0.05, 0.3: 0.5}},
}


def u_shaped(n=2_000, seed=0):
    task = make_u_shaped(n, random_state=seed)
    return task.data, task.target, task.sensitive_features[:, 0]


def bins(s, count=10):
    return np.searchsorted(np.quantile(s, np.arange(1, count) / count), s)


def gap_by_hand(score, s):
    """The mean over ten bins of S of the integral of |F(t | bin) - F(t)|."""
    places, cell = np.sort(score), bins(s)
    F = np.searchsorted(places, places[:-1], side="right") / len(score)
    total = 0.0
    for one in np.unique(cell):
        own = np.sort(score[cell == one])
        G = np.searchsorted(own, places[:-1], side="right") / len(own)
        total += len(own) / len(score) * np.sum(np.abs(G - F) * np.diff(places))
    return total


def mean_gap_by_hand(values, s):
    cell = bins(s)
    return sum(
        np.mean(cell == one) * abs(values[cell == one].mean() - values.mean()) for one in np.unique(cell)
    )


@pytest.fixture(scope="module")
def models():
    X, y, s = u_shaped()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {
            name: FRHSICClassifier(**FAST, limit=limit, training=ASIDE).fit(X, y, sensitive_features=s)
            for name, limit in LIMITS.items()
        }


# What is asked for is what is left


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_kept_on_rows_limit_fraction(models, name):
    reached = models[name].reached_
    assert [one.limit for one in reached] == list(read_limit(LIMITS[name]).values())
    assert all((one.n_trained, one.n_steering) == (1_200, 800) for one in reached)
    # The tightest is kept, and is not kept by taking away much more than was asked for.
    assert 0.55 < max(one.steering / one.limit for one in reached) < 1.15


def test_a_limit_is_kept_on_new_rows_by_a_measurement_of_its_own(models):
    X, _, s = u_shaped(20_000, seed=1)
    free = FRHSICClassifier(**FAST, lam=0).fit(*u_shaped()[:2])
    score = {name: model.predict_proba(X)[:, 1] for name, model in (models | {"free": free}).items()}
    assert gap_by_hand(score["free"], s) > 0.15
    assert gap_by_hand(score["gap"], s) < 1.5 * 0.03
    assert mean_gap_by_hand(score["gdp"], s) < 1.5 * 0.03
    assert mean_gap_by_hand(score["gap_at"] > 0.5, s) < 1.5 * 0.05
    worst = max(mean_gap_by_hand(score["gap_worst"] > t, s) for t in np.linspace(0, 1, 101))
    assert worst < 1.5 * 0.08
    assert mean_gap_by_hand(score["several"] > 0.5, s) < 1.5 * 0.05


def test_what_is_reached_is_the_gap_of_an_audit_of_these_rows():
    X, y, s = u_shaped(4_000)
    limit = {"gap": 0.1, "gdp": 0.1, "gap_worst": 0.5, "gap_at": {0.5: 0.4}, "rank_gap": 0.3}
    options = {**FAST, "epochs": 15, "limit": limit}
    model = FRHSICClassifier(**options, training=Training(limit_fraction=0.0))
    model.fit(X, y, sensitive_features=s)
    score = model.predict_proba(X)[:, 1]
    errors = GapErrors.of(ScoreTable.from_rows(score, s))
    at_half = GapErrors.of(ScoreTable.from_rows(score, s, at_scores=[0.5]))
    cutoff = int((at_half.law.z <= 0.5).sum()) - 1
    limits = {
        "gap": errors.score_gap(),
        "gdp": errors.mean_gap(),
        "gap_worst": errors.worst(),
        "gap_at 0.5": at_half.decision_gap(cutoff),
        "rank_gap": errors.rank_gap(),
    }
    for one in model.reached_:
        ends = limits[one.name].ends()
        assert one.trained == pytest.approx(ends.estimate, rel=0.03)
        assert one.chance == pytest.approx(ends.chance, rel=0.1)  # the worst is drawn
    assert model.reached_[0].trained == pytest.approx(gap_by_hand(score, s), rel=0.1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("key", [Key("gap"), Key("rank_gap"), Key("gdp"), Key("gap_at", 0.3)], ids=str)
def test_what_chance_adds_to_the_value_that_steers_is_the_mean_over_random_orders(key, weighted):
    rng = np.random.default_rng(0)
    z, s = torch.tensor(rng.beta(1, 3, 1_200)), to_sensitive(rng.integers(18, 90, 1_200).astype(float))
    w = torch.tensor(rng.uniform(0.5, 2.0, 1_200)) if weighted else None
    share = None if w is None else w / w.sum()
    part = _Part.of(key, _Rows(None, s, share), torch.Generator().manual_seed(0))
    orders = [torch.tensor(rng.permutation(1_200)) for _ in range(60)]
    drawn = [float(part.measure(z[:, None], s[o], None if w is None else w[o])) for o in orders]
    assert part.value(z)[1] == pytest.approx(np.mean(drawn), rel=0.06)


def test_what_steers_is_raised_where_the_value_of_the_audit_is_larger():
    rng = np.random.default_rng(0)
    s = rng.random(600)
    z = torch.tensor(np.abs(s - 0.5) + 0.2 * rng.normal(size=600))
    rows = EngineRows(torch.zeros(600, 1), z, to_sensitive(s))
    meter = Meter(Limits([{Key("gdp"): 0.1}, {}], torch.as_tensor, rows.s.names), rows)

    def evaluate(x):
        return torch.stack((z, z[torch.arange(599, -1, -1)]))[..., None]

    quick, audited = meter.measure(evaluate), meter.audit(evaluate)[0]
    followed = [meter.follow(evaluate) for _ in range(9)]
    assert torch.equal(followed[0], quick)
    for values in followed[7:]:
        torch.testing.assert_close(values, quick * (audited / quick).clamp(1.0, 1.5))
    assert audited[0, 0] > quick[0, 0]
    other = Meter(meter.limits, rows)
    other.restore(meter.state())
    assert torch.equal(other.follow(evaluate), followed[-1])


def test_a_limit_on_the_rank_gap_is_not_met_by_shrinking():
    X, y, s = u_shaped()
    score = FRHSICClassifier(**{**FAST, "epochs": 10}, lam=0).fit(X, y).predict_proba(X)[:, 1]
    ranks, gaps = (
        [find_gap(Key(name), torch.tensor(one), to_sensitive(s))[0] for one in (score, score / 3)]
        for name in ("rank_gap", "gap")
    )
    assert ranks[0] == pytest.approx(ranks[1], rel=0.02)
    assert gaps[0] == pytest.approx(3.0 * gaps[1], rel=0.02)


def test_no_row_limit_fraction_is_trained_on():
    # Rows that are alone in having a feature: a model that never saw them gives it its first weight.
    X, y, s = u_shaped(1_000)
    model = FRHSICClassifier(**FAST, limit={"gap": 0.05}, training=ASIDE)
    aside = model._task(_inputs(X, y, s)).watched.x
    one = np.flatnonzero((aside[0].numpy() == X).all(axis=1))[0]
    changed = X.copy()
    changed[one] += 0.5  # one row that is only measured: scales and gradients are those of the others
    a = clone(model).fit(X, y, sensitive_features=s)
    b = clone(model).set_params(limit={"gap": 0.99}).fit(X, y, sensitive_features=s)
    c = clone(model).set_params(limit={"gap": 0.99}).fit(changed, y, sensitive_features=s)
    assert np.array_equal(b.scaling_x_.shift, c.scaling_x_.shift)
    assert not np.allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(b.predict_proba(X), c.predict_proba(X), atol=1e-6)


def _inputs(X, y, s):
    from frhsic.estimators.inputs import Inputs

    return Inputs(X, y, s, None)


def test_rows_are_limit_fraction_where_there_are_enough():
    X, y, s = u_shaped(2_000)
    options = {**FAST, "epochs": 1, "limit": {"gap": 0.5}}
    few = FRHSICClassifier(**options).fit(X[:1_999], y[:1_999], sensitive_features=s[:1_999]).reached_[0]
    many = FRHSICClassifier(**options).fit(X, y, sensitive_features=s).reached_[0]
    assert (few.n_trained, few.n_steering, few.steering) == (1_999, 0, None)
    assert (many.n_trained, many.n_steering) == (1_600, 400)
    assert few.judged == few.trained
    assert many.judged == many.steering


def test_with_early_stopping_the_steering_rows_serve_both():
    X, y, s = u_shaped()
    options = {**FAST, "limit": {"gap": 0.05}, "early_stopping": True}
    training = Training(validation_fraction=0.3, patience=10)
    model = FRHSICClassifier(**options, training=training).fit(X, y, sensitive_features=s)
    assert model.reached_[0].n_steering == 600
    assert model.history_[model.best_epoch_]["of_limit"] <= 1.05


# Units


def test_a_limit_of_a_regression_has_the_unit_of_the_target():
    rng = np.random.default_rng(0)
    s = rng.lognormal(size=1_500)
    X = np.column_stack([np.log(s) + 0.5 * rng.normal(size=1_500), rng.normal(size=1_500)])
    y = X.sum(axis=1)
    models = [
        FRHSICRegressor(**FAST, limit={"gap": 0.2 * unit, "gap_at": {shift: 0.2}}, training=ASIDE).fit(
            X, unit * y + shift, sensitive_features=s
        )
        for unit, shift in ((1.0, 0.0), (1024.0, 65536.0))
    ]
    a, b = (model.predict(X) for model in models)
    np.testing.assert_allclose(1024.0 * a + 65536.0, b, rtol=1e-3)
    assert models[1].reached_[0].steering == pytest.approx(1024.0 * models[0].reached_[0].steering, rel=0.02)
    assert models[0].reached_[0].steering < 1.15 * 0.2
    free = FRHSICRegressor(**FAST, lam=0).fit(X, y)
    assert gap_by_hand(free.predict(X), s) > 0.5


def test_a_monotone_transform_of_s_changes_nothing():
    X, y, s = u_shaped(800)
    options = {**FAST, "epochs": 20, "limit": {"gap": 0.1}}
    raw = FRHSICClassifier(**options).fit(X, y, sensitive_features=s)
    far = FRHSICClassifier(**options).fit(X, y, sensitive_features=np.exp(5.0 * s))
    np.testing.assert_allclose(raw.predict_proba(X), far.predict_proba(X), atol=1e-3)
    own = {**options, "penalty": Penalty(HSIC(Energy()), on="probability")}
    other = FRHSICClassifier(**own).fit(X, y, sensitive_features=np.exp(5.0 * s))
    assert np.abs(raw.predict_proba(X) - other.predict_proba(X)).max() > 0.01


# Several of everything


def test_every_sensitive_column_keeps_the_limit():
    rng = np.random.default_rng(0)
    s = rng.uniform(-1, 1, size=(2_000, 2))
    X = np.column_stack([s + 0.3 * rng.normal(size=s.shape), rng.normal(size=2_000)])
    y = (X.sum(axis=1) + 0.5 * rng.normal(size=2_000) > 0).astype(int)
    frame = to_sensitive({"age": s[:, 0], "income": s[:, 1]})
    model = FRHSICClassifier(**FAST, limit={"gap": 0.04}, training=ASIDE).fit(X, y, sensitive_features=frame)
    score = model.predict_proba(X)[:, 1]
    assert len(model.penalty_.terms) == 4
    assert all(gap_by_hand(score, column) < 0.06 for column in s.T)
    largest = max(gap_by_hand(score, column) for column in s.T)
    assert model.reached_[0].steering == pytest.approx(largest, abs=0.02)


def test_every_class_keeps_the_limit():
    rng = np.random.default_rng(0)
    s = rng.uniform(size=3_000)
    X = np.column_stack([s + 0.2 * rng.normal(size=3_000), rng.normal(size=3_000)])
    y = np.digitize(X.sum(axis=1), [0.0, 1.0])
    model = FRHSICClassifier(**FAST, limit={"gap": 0.04}, training=ASIDE).fit(X, y, sensitive_features=s)
    gaps = [gap_by_hand(score, s) for score in model.predict_proba(X).T]
    assert max(gaps) < 0.06
    assert model.reached_[0].steering == pytest.approx(max(gaps), abs=0.02)


def test_a_limit_within_a_label_is_measured_within_it():
    X, y, s = u_shaped(3_000)
    penalty = Penalty(HSIC(Energy(), OnRanks(Gaussian(0.1))), on="probability", given={"y": 1})
    model = FRHSICClassifier(
        **FAST, limit={"gap": 0.03}, penalty=penalty, training=Training(limit_fraction=0.0)
    )
    model.fit(X, y, sensitive_features=s)
    score = model.predict_proba(X)[:, 1]
    within = gap_by_hand(score[y == 1], s[y == 1])
    assert within < 0.045 < gap_by_hand(score[y == 0], s[y == 0])
    assert model.reached_[0].trained <= within


def test_weights_count():
    X, y, s = u_shaped(3_000)
    # Among the rows that count the score depends on S, among all rows less.
    rng = np.random.default_rng(1)
    X[1_000:, 0] = rng.permutation(X[1_000:, 0])
    w = np.where(np.arange(3_000) < 1_000, 1.0, 1e-3)
    options = {**FAST, "limit": {"gap": 0.03}, "training": Training(limit_fraction=0.0)}
    model = FRHSICClassifier(**options).fit(X, y, sensitive_features=s, sample_weight=w)
    assert gap_by_hand(model.predict_proba(X)[:1_000, 1], s[:1_000]) < 0.06
    assert {term.dependence.estimator for term in model.penalty_.terms} == {"biased"}


def test_a_category_is_a_sensitive_column():
    X, y, s = u_shaped()
    group = np.where(s < 0.2, "low", np.where(s > 0.8, "high", "middle"))
    model = FRHSICClassifier(**FAST, limit={"gap": 0.03}, training=ASIDE).fit(X, y, sensitive_features=group)
    score = model.predict_proba(X)[:, 1]
    shares = [abs(score[group == g].mean() - score.mean()) * np.mean(group == g) for g in np.unique(group)]
    assert sum(shares) < 0.045


# Paths, checkpoints, files


def test_a_path_has_the_unconstrained_model_first_and_agrees_with_fits(models):
    X, y, s = u_shaped()
    limits = [{"gap": 0.1}, {"gap": 0.03}]
    path = fit_path(FRHSICClassifier(**FAST, training=ASIDE), X, y, limits=limits, sensitive_features=s)
    assert [model.limit for model in path] == [None, *limits]
    assert path[0].reached_ == ()
    assert path[0].lam == 0.0
    gaps = [gap_by_hand(model.predict_proba(X)[:, 1], s) for model in path]
    assert gaps[0] > 0.15 > 0.12 > gaps[1] > 0.05 > gaps[2]
    np.testing.assert_allclose(path[2].predict_proba(X), models["gap"].predict_proba(X), atol=0.02)


def test_a_search_takes_limits_and_judges_by_what_is_limited():
    X, y, s = u_shaped()
    limits = [{"gap": 0.1}, {"gap": 0.03}]
    search = FrontierSearch(
        FRHSICClassifier(**FAST), limits=limits, representation=False, random_state=0, validation=0.4
    ).fit(X, y, sensitive_features=s)
    assert [point.label for point in search.points_] == ["unconstrained", "limit gap 0.1", "limit gap 0.03"]
    table = search.results_
    assert list(table["dependence"]) == list(table["gap"])
    assert table["gap"][0] > table["gap"][1] > table["gap"][2]
    assert math.isnan(table["of_limit"][0])
    assert all(table["of_limit"][1:] < 1.15)
    assert [point.penalty_weight for point in search.points_] == pytest.approx([0.0, 10.0, 1 / 0.03])
    assert list(table["limit"]) == ["", "gap 0.1", "gap 0.03"]


@pytest.fixture(scope="module")
def quick_search():
    """Return a search of two limits, of which the loosest is 0.1, by boosted trees."""
    X, y, s = u_shaped()
    model = FRHSICBoostingClassifier(n_estimators=40, random_state=0)
    limits = [{"gap": 0.03}, {"gap": 0.1}]
    options = {"limits": limits, "representation": False, "random_state": 0, "validation": 0.4}
    return FrontierSearch(model, **options).fit(X, y, sensitive_features=s)


def test_the_default_rule_with_limits_takes_the_best_that_does_not_miss_the_loosest(quick_search):
    table = quick_search.results_
    kept = table[~table["missed"].to_numpy(bool)]
    assert table["missed"][0]  # the unconstrained model, which was chosen before
    assert quick_search.best_index_ == kept["performance"].idxmax()
    assert quick_search.best_estimator_.limit in quick_search.limits


def test_where_every_model_misses_the_limit_none_is_chosen_and_the_results_are_there():
    X, y, s = u_shaped(400)
    model = FRHSICBoostingClassifier(n_estimators=2, random_state=0)
    options = {"limits": [{"gap": 1e-6}], "representation": False, "random_state": 0}
    with pytest.warns(
        ConvergenceWarning, match=r"No model is chosen: every model misses the limit gap 1e-06\."
    ):
        search = FrontierSearch(model, **options).fit(X, y, sensitive_features=s)
    assert list(search.results_["missed"]) == [True, True]
    assert search.plot().get_legend() is not None
    assert not hasattr(search, "best_index_")
    for access in (lambda: search.best_estimator_, lambda: search.predict(X), lambda: search.score(X, y)):
        with pytest.raises(NotFittedError, match="No model is chosen: every model misses the limit"):
            access()
    with pytest.raises(ValueError, match=r"'rule' must choose a model\. Got None from 'best_within_limit'"):
        search.choose(best_within_limit)
    assert search.choose(lowest_dependence).predict(X).shape == (400,)


def test_an_interrupted_training_goes_on(tmp_path, monkeypatch):
    X, y, s = u_shaped(600)
    file = tmp_path / "run.checkpoint"
    options = {**FAST, "epochs": 12, "limit": {"gap": 0.05}}
    training = Training(limit_fraction=0.3, checkpoint=str(file))
    whole = FRHSICClassifier(**options, training=Training(limit_fraction=0.3)).fit(X, y, sensitive_features=s)
    from frhsic.engine import run

    epochs = run.Run.train_epoch

    def fail(self, epoch, bar):
        if epoch == 7:
            raise KeyboardInterrupt
        return epochs(self, epoch, bar)

    monkeypatch.setattr(run.Run, "train_epoch", fail)
    with pytest.raises(KeyboardInterrupt):
        FRHSICClassifier(**options, training=training).fit(X, y, sensitive_features=s)
    monkeypatch.setattr(run.Run, "train_epoch", epochs)
    other = FRHSICClassifier(**{**options, "limit": {"gap": 0.06}}, training=training)
    with pytest.raises(ValueError, match=r"differs in.*limit"):
        other.fit(X, y, sensitive_features=s)
    again = FRHSICClassifier(**options, training=training).fit(X, y, sensitive_features=s)
    assert np.array_equal(again.predict_proba(X), whole.predict_proba(X))
    assert again.reached_ == whole.reached_


def test_a_saved_model_keeps_its_limit_and_what_was_reached(models, tmp_path):
    for name, model in models.items():
        save(model, tmp_path / "model")
        other = load(tmp_path / "model")
        assert other.limit == model.limit == LIMITS[name]
        assert other.reached_ == model.reached_


def test_a_model_of_version_0_1_0_is_read():
    model = load(Path(__file__).parent / "saved" / "model-0.1.0.frhsic")
    X = u_shaped(60)[0][:3]
    assert (model.limit, model.reached_, model.training.limit_fraction) == (None, (), "auto")
    assert model.predict_proba(X)[:, 1] == pytest.approx(EXPECTED, abs=1e-12)


EXPECTED = [0.4755435600683723, 0.4355752660714607, 0.39629582964995447]  # of the version that wrote it


# What is said


def test_what_was_reached_is_a_sentence(models):
    (text,) = map(str, models["gap"].reached_)
    assert text.startswith("Gap of the score: 0.0")
    assert " on 800 steering rows, 0.0" in text
    assert " on 1,200 training rows; limit 0.03." in text
    assert [str(one).partition(":")[0] for one in models["several"].reached_] == [
        "Gap of the score",
        "Gap of decisions at 0.5",
        "Gap of decisions at 0.3",
    ]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_that_say_little_say_so():
    X, y, s = u_shaped(40)
    model = FRHSICClassifier(**{**FAST, "epochs": 5}, limit={"gap": 0.02}).fit(X, y, sensitive_features=s)
    (one,) = model.reached_
    assert one.chance > 0.01
    assert str(one).endswith(f" By chance alone so few rows show {one.chance:.3g}, which is taken off.")


def test_a_limit_that_cannot_be_measured_is_refused():
    X, y, _ = u_shaped(1_000)
    s = np.zeros(1_000)
    model = FRHSICClassifier(**FAST, limit={"gap": 0.1}, training=ASIDE)
    s[np.flatnonzero((model._task(_inputs(X, y, X[:, 0])).rows.x[0].numpy() == X).all(axis=1))] = 1.0
    with pytest.raises(ValueError, match="must vary among the rows on which a limit is measured"):
        model.fit(X, y, sensitive_features=s)


def test_a_limit_out_of_reach_is_a_warning():
    X, y, s = u_shaped(500)
    with pytest.warns(ConvergenceWarning, match=r"limit 0\.01\..* Train for more epochs"):
        FRHSICClassifier(**{**FAST, "epochs": 4}, limit={"gap": 0.01}).fit(X, y, sensitive_features=s)


def test_a_limit_that_leaves_nothing_to_learn_is_a_warning():
    rng = np.random.default_rng(0)
    X, s = np.ones((600, 1)), rng.normal(size=600)
    X[:, 0] += 1e-3 * s  # all that there is to learn from is S
    y = (s + 0.1 * rng.normal(size=600) > 0).astype(int)
    for kind, target, constant in ((FRHSICClassifier, y, math.log(2)), (FRHSICRegressor, s, 1.0)):
        model = kind(**FAST, limit={"gap": 0.001})
        scalings = model._start(model._task(_inputs(X, target, s)))[1]
        assert model._task(_inputs(X, target, s)).constant_loss(scalings) == pytest.approx(constant, abs=0.01)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model.fit(X, target, sensitive_features=s)
        worse = model.history_[-1]["loss"] > constant
        assert any("of a constant prediction" in str(one.message) for one in found) == worse


def test_a_limit_that_does_not_bind_costs_nothing():
    X, y, s = u_shaped(1_000)
    options = {**FAST, "training": Training(schedule="cosine", limit_fraction=0.0)}
    free = FRHSICClassifier(**options, lam=0).fit(X, y)
    loose = FRHSICClassifier(**options, limit={"gap": 0.99}).fit(X, y, sensitive_features=s)
    np.testing.assert_allclose(free.predict_proba(X), loose.predict_proba(X), atol=0.02)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (0.02, "be a dict"),
        ({}, "be a dict"),
        ({"hsic": 0.1}, "name one of gap, rank_gap, gdp"),
        ({"gap": 0}, "positive numbers"),
        ({"gap": -0.1}, "positive numbers"),
        ({"gap": "much"}, "positive numbers"),
        ({"gap": float("nan")}, "positive numbers"),
        ({"gap": {0.5: 0.1}}, "cut-offs for 'gap_at'"),
        ({"gap_at": 0.1}, "cut-offs for 'gap_at'"),
        ({"gap_at": {"half": 0.1}}, "positive numbers"),
        (
            {"gap": 5},
            r"below 1 for 'gap', of a probability\. Got 5\. 5 percentage points are 0\.05",
        ),
        ({"gdp": 1.0}, "below 1 for 'gdp'"),
        ({"gap_at": {0.5: 3}}, "below 1 for 'gap_at', which is a share"),
    ],
)
def test_what_is_no_limit_is_refused(limit, message):
    X, y, s = u_shaped(50)
    with pytest.raises(ValueError, match=message):
        FRHSICClassifier(limit=limit).fit(X, y, sensitive_features=s)


def test_a_share_is_below_one_in_a_regression_too_and_a_gap_in_the_unit_of_y_need_not_be():
    assert read_limit({"gap": 5, "gdp": 2.0}) == {Key("gap"): 5.0, Key("gdp"): 2.0}
    for limit in ({"gap_worst": 1}, {"normalized_hsic": 2.0}, {"gap_at": {3.0: 5}}):
        with pytest.raises(ValueError, match="which is a share"):
            read_limit(limit)


def test_a_limit_does_not_go_with_a_budget_a_weight_or_an_encoder():
    X, y, s = u_shaped(50)
    for other in ({"budget": 0.1}, {"lam": 1.0}):
        with pytest.raises(ValueError, match="'limit' must be None where"):
            FRHSICClassifier(limit={"gap": 0.1}, **other).fit(X, y, sensitive_features=s)
    with pytest.raises(ValueError, match="without a score"):
        FRHSICEncoder(limit={"gap": 0.1}).fit(X, sensitive_features=s)
    with pytest.raises(ValueError, match="'lam' must be given for partial_fit"):
        FRHSICClassifier(limit={"gap": 0.1}).partial_fit(X, y, classes=[0, 1], sensitive_features=s)
    with pytest.raises(ValueError, match=r"'limits'.*one of them"):
        fit_path(FRHSICClassifier(), X, y, limits=[], sensitive_features=s)


# The parts


def test_chance_is_taken_off_as_the_mean_of_a_folded_normal_law_has_it():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=1_000_000)
    for size in (0.3, 1.0, 3.0, 12.0):
        found = without_chance(np.abs(size + noise).mean(), np.abs(noise).mean())
        assert found == pytest.approx(size, rel=0.02)
    assert without_chance(0.9, 1.0) == 0.0
    assert without_chance(0.5, 0.0) == 0.5


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_is_one_of_the_audit(name):
    import frhsic.auditing

    measure = make_measure(Key(name, 0.5 if name == "gap_at" else None))
    assert name == "gap_at" or name in frhsic.auditing.MEASURES
    z = torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert 0.0 < measure(z[:, None], z) < 1.1
