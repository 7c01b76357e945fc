"""A path is many trainings in one: each net of a stack becomes what it would have become alone."""

import copy
import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from frhsic import baselines
from frhsic.baselines import Method
from frhsic.data import Sensitive
from frhsic.dependence import EIPM, HSIC, Adversary
from frhsic.engine import Training, TrainingError, make_net
from frhsic.engine.nets import Net, Stack, binary_cross_entropy, cross_entropy, squared_error
from frhsic.engine.options import Options
from frhsic.engine.rows import Rows
from frhsic.engine.train import train, train_path
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, fit_path
from frhsic.kernels import Gaussian
from frhsic.penalty import Penalty, budget_penalty, default_penalty

CLOSE = 1e-8  # what the issue asks for; 3e-14 is the most that was seen
EPOCHS = 20
METHODS = {name: found for name in baselines.__all__ if isinstance(found := getattr(baselines, name), Method)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def table(n=160, *, seed=0, columns=1, kinds="continuous", weighted=False, target="binary"):
    g = generator(seed)
    x = torch.rand(n, 4, generator=g, dtype=torch.float64)
    s = x[:, 1 : 1 + columns] + 0.1 * torch.rand(n, columns, generator=g, dtype=torch.float64)
    s = s.round(decimals=1) if kinds == "categorical" else s
    noise = 0.3 * torch.randn(n, generator=g, dtype=torch.float64)
    score = x[:, 0] + x[:, 1] + noise
    y = {"binary": (score > 1).double(), "three": (score > 0.8).long() + (score > 1.2), "rebuilt": x}[target]
    w = 0.1 + torch.rand(n, generator=g, dtype=torch.float64) if weighted else None
    w = None if w is None else w / w.mean()
    names = tuple(f"s{i}" for i in range(columns))
    labels = (score > 1).long()
    return Rows(x, y, Sensitive(s, names, (kinds,) * columns), w, w, labels)


def net(outputs=1, head=()):
    return make_net(4, outputs, encoder=(8, 5), head=head, generator=generator(1)).double()


def both(
    lams,
    penalty,
    *,
    rows=None,
    make=net,
    loss=binary_cross_entropy,
    validation=None,
    epochs=EPOCHS,
    **training,
):
    """Train with all penalty weights in one stack, and one after the other."""
    rows = table() if rows is None else rows
    options = Options(
        penalty,
        lams,
        epochs=epochs,
        batch_size=48,
        learning_rate=1e-2,
        training=training.pop("training", None) or Training(**training),
    )
    start = make()
    before = copy.deepcopy(start.state_dict())
    stacked = train_path(start, loss, rows, options, generator=generator(2), validation=validation)
    assert all(torch.equal(value, before[name]) for name, value in start.state_dict().items())
    apart = []
    for lam in lams:
        one = dataclasses.replace(options, lams=[lam])
        model = copy.deepcopy(start)
        apart.append(train(model, loss, rows, one, generator=generator(2), validation=validation))
    return stacked, apart


def furthest(a, b):
    a, b = a.state_dict(), b.state_dict()
    assert a.keys() == b.keys()
    return max((float((a[name] - b[name]).abs().max()) for name in a), default=0.0)


def assert_same(stacked, apart, *, penalties=True):
    for one, other in zip(stacked, apart, strict=True):
        assert furthest(one.net, other.net) < CLOSE
        assert one.best_epoch == other.best_epoch
        assert len(one.history) == len(other.history)
        for a, b in zip(one.history, other.history, strict=True):
            assert abs(a.loss - b.loss) < CLOSE
            if b.penalty is not None:  # not evaluated alone where lam is zero
                assert abs(a.penalty - b.penalty) < CLOSE
                np.testing.assert_allclose(a.terms, b.terms, atol=CLOSE)
            if b.validation_loss is not None:
                assert abs(a.validation_loss - b.validation_loss) < CLOSE
        if penalties and other.penalty is not None and one.history:
            assert furthest(one.penalty, other.penalty) < CLOSE
    # They are different nets, or nothing would have been shown.
    assert furthest(stacked[0].net, stacked[-1].net) > 1e-3


# Stacked and apart


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_stacked_as_it_trains_apart(name):
    method = METHODS[name]
    if method.penalty is None:
        stacked, apart = both([0.0, 0.0], None, training=method.classifier().training)
        assert max(furthest(a.net, b.net) for a, b in zip(stacked, apart, strict=True)) < CLOSE
        assert furthest(stacked[0].net, net()) > 1e-3
        return
    assert_same(*both([0.0, 1.0, 20.0], method.penalty, training=method.classifier().training))


ODDS = Penalty(HSIC(), given="y")
VARIANTS = {
    "default penalty": {"penalty": default_penalty()},
    "budget penalty": {"penalty": budget_penalty(classes=True)},
    "budget penalty of a regression": {"penalty": budget_penalty(classes=False), "loss": squared_error},
    "no zero among the strengths": {"lams": [0.3, 3.0]},
    "clipped": {"clip": 0.05},
    "clipped, one by one": {"clip": 0.05, "make": lambda: normed()},
    "sample weights": {"rows": table(weighted=True), "penalty": default_penalty("biased")},
    "several columns": {"rows": table(columns=2), "penalty": default_penalty(columns=["s0", "s1"])},
    "several columns jointly": {"rows": table(columns=2)},
    "categories": {"rows": table(kinds="categorical")},
    "given y": {"penalty": ODDS},
    "three classes": {
        "rows": table(target="three"),
        "loss": cross_entropy,
        "make": lambda: net(3),
        "penalty": budget_penalty(classes=True),
    },
    "two hidden layers in the head": {
        "rows": table(target="rebuilt"),
        "loss": squared_error,
        "make": lambda: net(4, (7, 6)),
        "penalty": Penalty(HSIC(Gaussian("scale-free", whiten=True))),
    },
    "scales of Z held": {"every": 3, "penalty": ODDS},
    "cosine": {"schedule": "cosine"},
    "adversary": {
        "penalty": Penalty(Adversary((4,), n_bins=3)) + 0.5 * Penalty(HSIC(), given="y"),
        "every": 3,
    },
    "batch normalisation": {"make": lambda: normed()},
    "one layer in two places": {"make": lambda: twice()},
    "a frozen layer": {"make": lambda: frozen()},
    "no bias": {"make": lambda: bare()},
}


def with_head(encoder, width):
    head = nn.Sequential(nn.Linear(width, 1))
    return Net(encoder, head).double()


def seeded(build):
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return build()


def normed():
    return seeded(
        lambda: with_head(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)), 3)
    )


def twice():
    def build():
        layer = nn.Linear(4, 4)
        return with_head(nn.Sequential(layer, nn.Tanh(), layer), 4)

    return seeded(build)


def frozen():
    def build():
        encoder = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))
        encoder[0].requires_grad_(False)
        return with_head(encoder, 3)

    return seeded(build)


def bare():
    return seeded(
        lambda: with_head(
            nn.Sequential(
                nn.Linear(4, 6, bias=False), nn.SiLU(), nn.Linear(6, 5), nn.Linear(5, 3, bias=False)
            ),
            3,
        )
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_a_stack_is_trained_as_its_nets_are_apart(name):
    settings = {"lams": [0.0, 0.5, 5.0], "penalty": Penalty(HSIC())} | VARIANTS[name]
    assert_same(*both(settings.pop("lams"), settings.pop("penalty"), **settings))


def test_a_frozen_layer_stays_as_it_was_in_a_stack():
    stacked, _ = both([0.0, 5.0], Penalty(HSIC()), make=frozen, epochs=2)
    for done in stacked:
        assert torch.equal(done.net.encoder[0].weight, frozen().encoder[0].weight)
        assert not torch.equal(done.net.encoder[2].weight, frozen().encoder[2].weight)


@pytest.mark.parametrize(
    ("build", "batched"), [(net, True), (bare, True), (normed, False), (twice, False), (frozen, False)]
)
def test_only_plain_layers_become_batched_products(build, batched):
    names = [type(part).__name__ for part in Stack([build()] * 2).children()]
    assert (names == ["_Products", "_Products"]) == batched


def test_each_net_of_a_stack_stops_early_when_it_would_have_alone():
    settings = {"validation": table(60, seed=5), "epochs": 120, "patience": 3}
    stacked, apart = both([0.0, 1.0, 30.0], Penalty(HSIC()), **settings)
    assert_same(stacked, apart, penalties=False)
    lengths = [len(done.history) for done in apart]
    assert len(set(lengths)) > 1, lengths
    assert min(lengths) < 120


def test_one_net_that_diverges_stops_them_all_and_is_named():
    penalty = Penalty(EIPM(Gaussian(1.0), 0.5))
    options = Options(penalty, [0.0, 1e300], epochs=5, batch_size=48, learning_rate=1.0)
    with pytest.raises(TrainingError, match=r"smaller lam \(now 1e\+300\)"):
        train_path(net(), binary_cross_entropy, table(), options, generator=generator())


# Checkpoints of a path


class Interrupt(BaseException):
    pass


PATHS = {
    "lams": {"lams": [0.0, 2.0], "penalty": Penalty(HSIC())},
    "lams, held, adversary": {
        "lams": [0.5, 2.0],
        "penalty": Penalty(Adversary((4,), n_bins=3)) + 0.5 * Penalty(HSIC(), given="y"),
        "every": 2,
    },
    "lams, early stopping, one by one": {
        "lams": [0.0, 5.0],
        "penalty": Penalty(HSIC()),
        "make": normed,
        "validation": table(60, seed=5),
    },
    "budgets": {"budgets": [0.5, 0.1], "penalty": budget_penalty(classes=True)},
    "budgets, early stopping, biased": {
        "budgets": [0.5],
        "penalty": Penalty(HSIC()),
        "validation": table(60, seed=5),
    },
    "budgets, held": {"budgets": [0.5], "penalty": Penalty(HSIC()), "every": 3},
    "budgets, adversary": {"budgets": [0.5], "penalty": Penalty(Adversary((4,)))},
}


def checkpointed(name, path):
    settings = dict(PATHS[name])
    training = Training(checkpoint=path, every=settings.pop("every", None), patience=2)
    make, validation = settings.pop("make", net), settings.pop("validation", None)
    options = Options(**settings, epochs=7, batch_size=48, learning_rate=1e-2, training=training)
    return train_path(
        make(), binary_cross_entropy, table(), options, generator=generator(2), validation=validation
    )


def stopped_at(step, name, path):
    count = itertools.count()

    def stop(optimizer, *_):
        if not optimizer.defaults["maximize"] and next(count) == step:
            raise Interrupt

    handle = register_optimizer_step_pre_hook(stop)
    try:
        with pytest.raises(Interrupt):
            checkpointed(name, path)
    finally:
        handle.remove()


@pytest.mark.parametrize("name", PATHS)
def test_a_path_goes_on_after_an_interruption_to_the_same_bits(name, tmp_path):
    path = tmp_path / "run"
    whole = checkpointed(name, None)
    for step in (4, 11):
        stopped_at(step, name, path)
        assert path.exists()
        done = checkpointed(name, path)
        for one, other in zip(done, whole, strict=True):
            assert furthest(one.net, other.net) == 0.0
            assert furthest(one.penalty, other.penalty) == 0.0
            assert repr(one.penalty) == repr(other.penalty)
            assert (one.best_epoch, one.relative) == (other.best_epoch, other.relative)
            for a, b in zip(one.history, other.history, strict=True):
                assert dataclasses.replace(a, seconds=0) == dataclasses.replace(b, seconds=0)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "differs"),
    [({"lams": [0.0, 3.0]}, "lam"), ({"lams": None, "budgets": [0.5]}, "lam', 'budget")],
)
def test_a_checkpoint_of_another_path_is_refused(changes, differs, tmp_path, monkeypatch):
    path = tmp_path / "run"
    stopped_at(4, "lams", path)
    monkeypatch.setitem(PATHS, "lams", PATHS["lams"] | changes)
    with pytest.raises(
        ValueError, match=rf"^'checkpoint' must be of the same call.*differs in \['{differs}'\]"
    ):
        checkpointed("lams", path)


# Estimators

FAST = {"encoder": (6, 3), "epochs": 5, "batch_size": 40, "learning_rate": 1e-2, "random_state": 0}
MODELS = {"classifier": FRHSICClassifier, "regressor": FRHSICRegressor, "encoder": FRHSICEncoder}


def sample(n=160, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(40.0, 9.0, n)
    X = np.column_stack([rng.normal(size=n), s / 9.0 + 0.3 * rng.normal(size=n), rng.uniform(5, 9, n)])
    return X, (X[:, 0] + 0.1 * (s - 40.0) + 0.5 * rng.normal(size=n) > 0).astype(int), s


def assert_equal_models(one, other, X):
    """To the rounding of float32, in which estimators train."""
    np.testing.assert_allclose(one.transform(X), other.transform(X), atol=2e-4)
    for a, b in zip(one.history_, other.history_, strict=True):
        np.testing.assert_allclose(a["loss"], b["loss"], atol=1e-4)
    assert one.get_params(deep=False).keys() == other.get_params(deep=False).keys()
    assert (one.lam, one.budget, one.n_iter_, one.best_epoch_) == (
        other.lam,
        other.budget,
        other.n_iter_,
        other.best_epoch_,
    )
    # The copies have all that a fit leaves.
    assert set(vars(one)) == set(vars(other))


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_a_path_are_those_of_fits_in_the_order_given(name, early_stopping):
    X, y, s = sample()
    estimator = MODELS[name](
        **FAST, early_stopping=early_stopping, training=Training(validation_fraction=0.3)
    )
    lams = [3.0, 0.0, 10.0, 0.1]
    models = fit_path(estimator, X, y, lams=lams, sensitive_features=s)
    assert [model.lam for model in models] == lams
    for lam, model in zip(lams, models, strict=True):
        alone = clone(estimator).set_params(lam=lam).fit(X, y, sensitive_features=s)
        assert_equal_models(model, alone, X)
    assert not np.allclose(models[1].transform(X), models[2].transform(X), atol=1e-2)
    assert estimator.lam is None
    assert not any(name.endswith("_") for name in vars(estimator))


@pytest.mark.filterwarnings("ignore:The model has:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("penalty", [None, Penalty(HSIC())], ids=["debiased", "biased"])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_budgets_are_those_of_fits_after_the_unconstrained_one(name, penalty):
    X, y, s = sample()
    w = np.linspace(0.5, 1.5, len(X))
    estimator = MODELS[name](**FAST, penalty=penalty)
    budgets = [0.2, 0.6]
    models = fit_path(estimator, X, y, budgets=budgets, sensitive_features=s, sample_weight=w)
    assert [(model.lam, model.budget) for model in models] == [(0.0, None), (None, 0.2), (None, 0.6)]
    assert models[0].relative_dependence_ == 1.0
    for budget, model in zip(budgets, models[1:], strict=True):
        alone = clone(estimator).set_params(budget=budget).fit(X, y, sensitive_features=s, sample_weight=w)
        assert_equal_models(model, alone, X)
        assert model.relative_dependence_ == pytest.approx(alone.relative_dependence_, abs=1e-3)


def test_the_unconstrained_model_of_budgets_is_that_of_a_fit_with_the_same_schedule():
    X, y, s = sample()
    estimator = FRHSICClassifier(**FAST, training=Training(schedule="cosine"))
    first = fit_path(estimator, X, y, budgets=[0.5], sensitive_features=s)[0]
    assert_equal_models(first, clone(estimator).set_params(lam=0.0).fit(X, y, sensitive_features=s), X)


def test_a_path_takes_frames_weights_and_arrays_of_strengths():
    X, y, s = sample()
    frame, w = pd.DataFrame(X, columns=list("abc")), np.linspace(0, 1, len(X))
    estimator = FRHSICClassifier(**FAST)
    lams = np.array([0.5, 2.0], dtype=np.float32)
    settings = {"sensitive_features": pd.Series(s, name="age"), "sample_weight": w}
    models = fit_path(estimator, frame, pd.Series(y), lams=lams, **settings)
    for lam, model in zip(lams, models, strict=True):
        assert model.feature_names_in_.tolist() == ["a", "b", "c"]
        assert model.sensitive_names_ == ("age",)
        assert_equal_models(model, clone(estimator).set_params(lam=lam).fit(frame, y, **settings), frame)
    plain = fit_path(estimator, X, y, lams=lams, sensitive_features=s)
    assert not np.allclose(plain[0].transform(X), models[0].transform(frame), atol=1e-3)


def test_a_path_without_any_penalty_needs_no_sensitive_features():
    X, y, _ = sample()
    (model,) = fit_path(FRHSICClassifier(**FAST), X, y, lams=[0.0])
    assert_equal_models(model, FRHSICClassifier(**FAST, lam=0.0).fit(X, y), X)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "'lams', 'budgets' or 'limits' must"),
        ({"lams": [1.0], "budgets": [0.5]}, "'lams', 'budgets' or 'limits' must"),
        ({"lams": []}, "'lams', 'budgets' or 'limits' must"),
        ({"budgets": np.array([])}, "'lams', 'budgets' or 'limits' must"),
        ({"lams": 1.0}, "'lams' must be a sequence of numbers."),
        ({"budgets": "0.5"}, "'budgets' must be a sequence of numbers."),
        ({"lams": [1.0, -1.0]}, "'lam' must"),
        ({"lams": [1.0, float("nan")]}, "'lam' must"),
        ({"lams": [1.0, "2"]}, "'lam' must"),
        ({"lams": [[1.0]]}, "'lam' must"),
        ({"budgets": [0.5, 0.0]}, "'budget' must"),
        ({"budgets": [1.5]}, "'budget' must"),
        ({"budgets": [None]}, "'budgets' must be a sequence of numbers."),
        ({"lams": [1.0], "sensitive_features": None}, "'sensitive_features' must be passed"),
        ({"budgets": [1.0], "sensitive_features": None}, "'sensitive_features' must be passed"),
    ],
)
def test_arguments_of_a_path_that_make_no_sense_are_refused_by_name(arguments, says):
    X, y, s = sample()
    with pytest.raises((TypeError, ValueError), match=rf"^{says} .*Got .*\. [A-Z]"):
        fit_path(FRHSICClassifier(**FAST), X, y, **({"sensitive_features": s} | arguments))


def test_a_path_that_is_no_estimator_is_refused():
    X, y, s = sample()
    with pytest.raises(TypeError, match=r"^'estimator' must be .*Got LogisticRegression\. "):
        fit_path(LogisticRegression(), X, y, lams=[1.0], sensitive_features=s)


def test_a_path_goes_on_from_an_earlier_fit_with_a_warm_start():
    X, y, s = sample()
    first = FRHSICClassifier(**FAST, lam=1.0, warm_start=True).fit(X, y, sensitive_features=s)
    before = first.transform(X)
    lams = [0.5, 4.0]
    models = fit_path(first, X, y, lams=lams, sensitive_features=s)
    np.testing.assert_array_equal(first.transform(X), before)
    for lam, model in zip(lams, models, strict=True):
        alone = copy.deepcopy(first).set_params(lam=lam).fit(X, y, sensitive_features=s)
        assert_equal_models(model, alone, X)
        assert not np.allclose(model.transform(X), before, atol=1e-3)
    slow = clone(first).set_params(learning_rate=1e-9)
    slow.__dict__.update({name: value for name, value in vars(first).items() if name.endswith("_")})
    for model in fit_path(slow, X, y, lams=lams, sensitive_features=s):
        np.testing.assert_allclose(model.transform(X), before, atol=1e-5)
    cold = fit_path(clone(first), X, y, lams=lams, sensitive_features=s)[0]
    assert not np.allclose(cold.transform(X), models[0].transform(X), atol=1e-3)


def test_a_path_is_repeatable_and_follows_its_random_state():
    X, y, s = sample()
    runs = [
        fit_path(
            FRHSICClassifier(**(FAST | {"random_state": seed})), X, y, lams=[0.0, 2.0], sensitive_features=s
        )
        for seed in (0, 0, 1)
    ]
    for a, b, c in zip(*runs, strict=True):
        np.testing.assert_array_equal(a.transform(X), b.transform(X))
        assert not np.array_equal(a.transform(X), c.transform(X))


def test_each_budget_is_trained_in_a_stack_as_beside_the_unconstrained_net_alone():
    rows = table()

    def path(*budgets):
        penalty = budget_penalty(classes=True)
        options = Options(penalty, budgets=budgets, epochs=EPOCHS, batch_size=48, learning_rate=1e-2)
        return train_path(net(), binary_cross_entropy, rows, options, generator=generator(2))

    free, weak, strong = path(0.5, 0.1)
    for budget, stacked in ((0.5, weak), (0.1, strong)):
        first, alone = path(budget)
        assert furthest(first.net, free.net) < CLOSE
        assert furthest(alone.net, stacked.net) < CLOSE
        assert alone.relative == pytest.approx(stacked.relative, abs=1e-8)
    assert furthest(weak.net, strong.net) > 1e-3


@pytest.mark.parametrize(
    "strengths", [{}, {"lams": [1.0], "budgets": [0.5]}, {"lams": []}, {"budgets": []}], ids=str
)
def test_a_path_takes_either_strengths_or_budgets(strengths):
    options = Options(default_penalty(), **strengths)
    with pytest.raises(
        ValueError, match=r"^'lams', 'budgets' or 'limits' must be given, one of them and not empty\. Got"
    ):
        train_path(net(), binary_cross_entropy, table(), options, generator=generator())


def test_budgets_need_something_to_bound():
    with pytest.raises(ValueError, match=r"^'penalty' must be passed for budgets and limits\. Got None\."):
        train_path(net(), binary_cross_entropy, table(), Options(budgets=[0.5]), generator=generator())


def test_a_stack_prints_the_layers_by_which_a_checkpoint_knows_it():
    def prints(activation):
        encoder = nn.Sequential(nn.Linear(4, 3), activation, nn.Linear(3, 2))
        return repr(Stack([Net(encoder, nn.Linear(2, 1))] * 2))

    assert prints(nn.ReLU()) != prints(nn.Tanh())
