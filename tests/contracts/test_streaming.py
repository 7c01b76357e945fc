"""Rows in parts: what partial_fit promises, and the reader that mixes rows that do not fit in memory."""

import copy
import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone

from frhsic import (
    HSIC,
    FRHSICClassifier,
    FRHSICEncoder,
    FRHSICRegressor,
    Penalty,
    TableEncoder,
    Training,
    load,
    save,
)
from frhsic.data import Sensitive
from frhsic.datasets import make_u_shaped
from frhsic.dependence import Adversary, Dependence
from frhsic.engine import TrainingError, make_net
from frhsic.engine.nets import squared_error
from frhsic.engine.options import Options
from frhsic.engine.rows import Rows
from frhsic.engine.train import Passes, train
from frhsic.sources import open_source, shuffle, write_table

MODELS = [FRHSICClassifier, FRHSICRegressor, FRHSICEncoder]
SMALL = {"encoder": (6, 3), "random_state": 0, "lam": 1.0, "learning_rate": 1e-2, "batch_size": 64}
N = 300


def data(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    s = X[:, 1] + 0.3 * rng.standard_normal(n)
    y = (X[:, 0] + X[:, 1] + rng.standard_normal(n) > 0).astype(int)
    return X, y, s


def given(model, y):
    """Return the arguments that only a classifier takes."""
    return {"classes": [0, 1]} if isinstance(model, FRHSICClassifier) and y is not None else {}


def in_parts(model, parts=3, passes=1, n=N, seed=0, **more):
    X, y, s = data(n, seed)
    for _ in range(passes):
        for rows in np.array_split(np.arange(n), parts):
            model.partial_fit(X[rows], y[rows], sensitive_features=s[rows], **given(model, y), **more)
    return model


def output(model, X):
    return model.decision_function(X) if isinstance(model, FRHSICClassifier) else model.transform(X)


# The mathematics


@pytest.mark.parametrize("model", MODELS)
def test_calls_with_all_rows_in_one_batch_are_the_epochs_of_fit(model):
    X, y, s = data()
    common = {**SMALL, "batch_size": N}
    if model is FRHSICEncoder:  # whose own penalty draws random functions
        common["penalty"] = Penalty(HSIC())
    one = model(**common)
    for _ in range(7):
        one.partial_fit(X, y, sensitive_features=s, **given(one, y))
    other = model(**common, epochs=7).fit(X, y, sensitive_features=s)
    before = model(**common, epochs=6).fit(X, y, sensitive_features=s)
    far = np.abs(output(before, X) - output(other, X)).max()
    assert np.abs(output(one, X) - output(other, X)).max() < 1e-3 * far
    assert [record["epoch"] for record in one.history_] == list(range(7))
    assert one.n_iter_ == 7


def test_parts_share_weights_optimizer_and_scales():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(80, 2, generator=g)
    s = Sensitive(x[:, 1:].exp(), ("s",), ("continuous",))
    parts = [Rows(x[rows], x[rows, 0], s[rows]) for rows in torch.arange(80).split(40)]
    net = make_net(2, 1, encoder=(4,), generator=g)
    twin = copy.deepcopy(net)
    passes = Passes(net, squared_error, parts[0], Options(Penalty(HSIC()), [5.0]), generator=g)
    for part in parts * 3:
        passes.train_on(part)
    penalty = Penalty(HSIC()).calibrate(twin(parts[0].x)[0], None, parts[0].s, side="s")
    adam = torch.optim.Adam(twin.parameters(), lr=1e-3)
    for part in parts * 3:
        z, prediction = twin(part.x)
        adam.zero_grad()
        (squared_error(prediction, part.y).mean() + 5.0 * penalty(z, None, part.s)).backward()
        adam.step()
    for own, expected in zip(passes.net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-6)


def test_a_part_is_trained_on_in_minibatches():
    model = in_parts(FRHSICRegressor(**SMALL), parts=1)
    X, y, s = data()
    whole = FRHSICRegressor(**{**SMALL, "batch_size": N}).partial_fit(X, y, sensitive_features=s)
    # Adam moves a weight by about the learning rate in a step: five steps go further than one.
    start = FRHSICRegressor(**{**SMALL, "learning_rate": 1e-9}).partial_fit(X, y, sensitive_features=s)
    moved = [
        torch.cat([(a - b).abs().reshape(-1) for a, b in zip(m.encoder_.parameters(), p, strict=True)]).mean()
        for m in (model, whole)
        for p in [start.encoder_.parameters()]
    ]
    assert moved[0] > 2.5 * moved[1] > 0


@pytest.mark.parametrize("model", MODELS)
def test_many_parts_learn_what_fit_learns(model):
    X, y, _ = data(900, seed=2)
    parts = in_parts(model(**SMALL), parts=3, passes=10, n=900)
    whole = model(**SMALL, epochs=10).fit(*data(900)[:2], sensitive_features=data(900)[2])
    untrained = in_parts(model(**{**SMALL, "learning_rate": 1e-9}), parts=1, n=900)
    assert parts.score(X, y) > untrained.score(X, y) + 0.1
    assert parts.score(X, y) == pytest.approx(whole.score(X, y), abs=0.06)


def test_the_penalty_acts():
    X, _, s = data(2_000, seed=3)
    z = [
        torch.from_numpy(in_parts(FRHSICClassifier(**{**SMALL, "lam": lam}), passes=10, n=900).transform(X))
        for lam in (0.0, 30.0)
    ]
    free, bound = (float(HSIC(normalized=True)(x, torch.from_numpy(s))) for x in z)
    assert bound < 0.5 * free


# The same again


@pytest.mark.parametrize("model", MODELS)
def test_the_same_seed_and_parts_give_the_same_bits(model):
    X, _, _ = data(50, seed=1)
    one, two, other = (
        output(in_parts(model(**{**SMALL, "random_state": seed}), passes=2), X) for seed in (0, 0, 1)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"]
)
def test_a_copy_in_the_middle_goes_on_to_the_same_bits(again):
    X, _, _ = data(50, seed=1)
    model = in_parts(FRHSICClassifier(**SMALL))
    other = in_parts(again(model))
    assert np.array_equal(output(in_parts(model), X), output(other, X))


def test_a_model_in_the_middle_holds_no_rows():
    X, y, s = data(20_000)
    model = FRHSICClassifier(**{**SMALL, "batch_size": 5_000})
    model.partial_fit(X, y, classes=[0, 1], sensitive_features=s)
    assert len(pickle.dumps(model)) < 60_000  # the rows have 800,000 bytes


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    in_parts(FRHSICClassifier(**SMALL))
    assert torch.equal(torch.get_rng_state(), before)


# What stays from the first call


def test_scales_are_those_of_the_first_call():
    X, y, s = data()
    model = FRHSICRegressor(**SMALL).partial_fit(X, y, sensitive_features=s)
    first = [copy.deepcopy(getattr(model, f"scaling_{name}_")) for name in "xys"]
    bandwidth = model.penalty_.terms[0].dependence.kernel_s.bandwidth
    model.partial_fit(9.0 * X + 5.0, 2.0 * y, sensitive_features=7.0 * s)
    for name, old in zip("xys", first, strict=True):
        now = getattr(model, f"scaling_{name}_")
        assert torch.equal(now.shift, old.shift)
        assert torch.equal(now.factor, old.factor)
    assert model.penalty_.terms[0].dependence.kernel_s.bandwidth == bandwidth


def test_parts_need_not_have_all_classes():
    X, y, s = data()
    y = np.where(y == 1, "yes", "no")
    model = FRHSICClassifier(**SMALL)
    for label in ("no", "yes"):
        rows = y == label
        model.partial_fit(X[rows], y[rows], classes=["yes", "no", "maybe"], sensitive_features=s[rows])
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    assert model.predict_proba(X).shape == (N, 3)
    assert set(model.predict(X)) <= {"maybe", "no", "yes"}


def test_every_class_has_its_term_where_the_penalty_is_given_y():
    X, y, s = data()
    rows = y == 0
    for model in (FRHSICClassifier, FRHSICEncoder):
        made = model(**SMALL, penalty=Penalty(HSIC(), given="y"))
        with pytest.warns(UserWarning, match="a label of 0 rows"):
            made.partial_fit(X[rows], y[rows], classes=[0, 1], sensitive_features=s[rows])
        made.partial_fit(X, y, sensitive_features=s)
        assert [term.given for term in made.penalty_.terms] == [{"y": 0.0}, {"y": 1.0}]
        assert made.history_[1]["terms"][1] > 0


SEEN: list[torch.Tensor] = []


class Codes(Dependence):
    def _value(self, z, s, w):
        SEEN.append(s.values[:, 0])
        return 0.0 * z.sum(dim=(-2, -1))


def test_a_category_has_one_code_in_all_parts():
    X, y, _ = data(8)
    SEEN.clear()
    model = FRHSICRegressor(**SMALL, penalty=Penalty(Codes()))
    for labels in (["b", "d"], ["d", "a"], ["b", "c"]):
        model.partial_fit(X, y, sensitive_features=np.array(labels)[np.arange(8) // 4])
    assert [sorted(set(codes.tolist())) for codes in SEEN] == [[0, 1], [1, 2], [0, 3]]


def test_a_later_part_may_have_one_value_of_s_but_not_the_first():
    X, y, s = data()
    with pytest.raises(ValueError, match="'sensitive_features' must"):
        FRHSICRegressor(**SMALL).partial_fit(X, y, sensitive_features=np.zeros(N))
    model = FRHSICRegressor(**SMALL).partial_fit(X, y, sensitive_features=s)
    model.partial_fit(X, y, sensitive_features=np.zeros(N))
    assert np.isfinite(model.predict(X)).all()


def test_rows_of_weight_zero_are_not_there():
    X, y, s = data()
    w = np.linspace(0.5, 2.0, N)
    extra = np.vstack([X, 50.0 + X]), np.tile(y, 2), np.tile(s, 2), np.concatenate([w, 0 * w])
    models = [
        FRHSICRegressor(**SMALL).partial_fit(a, b, sensitive_features=c, sample_weight=d)
        for a, b, c, d in ((X, y, s, w), extra)
    ]
    assert np.array_equal(models[0].predict(X), models[1].predict(X))
    plain = FRHSICRegressor(**SMALL).partial_fit(X, y, sensitive_features=s)
    assert not np.array_equal(models[0].predict(X), plain.predict(X))


# Before and after


def test_partial_fit_after_fit_goes_on_from_its_weights():
    X, y, s = data()
    model = FRHSICClassifier(**SMALL, epochs=5).fit(X, y, sensitive_features=s)
    before = model.decision_function(X)
    model.set_params(learning_rate=1e-9).partial_fit(X, y, sensitive_features=s)
    assert np.abs(model.decision_function(X) - before).max() < 1e-4
    assert model.n_iter_ == 1


def test_fit_after_partial_fit_begins_anew():
    X, y, s = data()
    model = in_parts(FRHSICClassifier(**SMALL, epochs=2)).fit(X, y, sensitive_features=s)
    fresh = FRHSICClassifier(**SMALL, epochs=2).fit(X, y, sensitive_features=s)
    assert np.array_equal(model.decision_function(X), fresh.decision_function(X))
    other = copy.deepcopy(fresh)
    assert np.array_equal(in_parts(model).decision_function(X), in_parts(other).decision_function(X))


def test_a_parameter_that_is_set_between_calls_counts():
    X, _, s = data(500, seed=1)
    weak, strong = in_parts(FRHSICClassifier(**SMALL)), in_parts(FRHSICClassifier(**SMALL))
    weak.set_params(lam=1.0)  # as it was
    strong.set_params(lam=200.0)
    for model in (weak, strong):
        in_parts(model, passes=8)
    expected = in_parts(FRHSICClassifier(**SMALL), passes=9)
    assert np.array_equal(output(weak, X), output(expected, X))
    along = [abs(np.cov(output(model, X), s)[0, 1]) for model in (weak, strong)]
    assert along[1] < 0.5 * along[0]


def test_a_saved_model_says_the_same_and_can_go_on(tmp_path):
    X, _, _ = data(50, seed=1)
    model = in_parts(FRHSICClassifier(**SMALL))
    save(model, tmp_path / "model.frhsic")
    again = load(tmp_path / "model.frhsic")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    kept = [{**epoch, "seconds": None} for epoch in model.history_]  # equal fits save equal bytes
    assert again.history_ == kept
    in_parts(again)
    assert again.n_iter_ == 3
    assert not np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_training_that_fails_leaves_the_model_as_it_was(monkeypatch):
    X, y, s = data()
    model = in_parts(FRHSICClassifier(**SMALL))
    before = model.decision_function(X)

    def fails(self, rows):
        for parameter in self.net.parameters():
            parameter.data.fill_(torch.nan)
        raise TrainingError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(Passes, "train_on", fails)
        with pytest.raises(TrainingError):
            model.partial_fit(X, y, sensitive_features=s)
    assert np.array_equal(model.decision_function(X), before)
    model.partial_fit(X, y, sensitive_features=s)
    assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize(
    ("message", "settings", "call"),
    [
        ("'lam' must be given", {"lam": None}, {}),
        ("'lam' must be given", {"lam": None, "budget": 0.3}, {}),
        ("'early_stopping' must be False", {"early_stopping": True}, {}),
        ("'class_weight' must be None or a dict", {"class_weight": "balanced"}, {}),
        ("'training' must have a constant rate", {"training": Training(schedule="cosine")}, {}),
        ("'training' must have a constant rate", {"training": Training(checkpoint="a")}, {}),
        ("'classes' must be passed on the first call", {}, {"classes": None}),
        ("'y' must hold known classes", {}, {"classes": [0, 2]}),
        ("'sensitive_features' must be passed", {}, {"sensitive_features": None}),
    ],
)
def test_what_parts_cannot_have_is_refused_at_the_first_call(message, settings, call):
    X, y, s = data()
    model = FRHSICClassifier(**{**SMALL, **settings})
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, **{"classes": [0, 1], "sensitive_features": s, **call})
    assert "encoder_" not in vars(model)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("'classes' must be those of the first call", {"classes": [0, 1, 2]}),
        ("'y' must hold known classes", {"y": np.full(N, 3)}),
        ("expecting 3 features", {"X": np.zeros((N, 2))}),
        ("'sensitive_features' must have the columns", {"sensitive_features": ["a", "b", "c"] * (N // 3)}),
        ("'sensitive_features' must have the columns", {"sensitive_features": np.eye(N)[:, :2]}),
        ("'sensitive_features' must be passed", {"sensitive_features": None}),
    ],
)
def test_a_later_part_of_another_kind_is_refused_and_changes_nothing(message, change):
    X, y, s = data()
    model = in_parts(FRHSICClassifier(**SMALL))
    before = model.decision_function(X)
    arguments = {"X": X, "y": y, "sensitive_features": s, **change}
    with pytest.raises(ValueError, match=message):
        model.partial_fit(**arguments)
    assert np.array_equal(model.decision_function(X), before)
    fresh = in_parts(FRHSICClassifier(**SMALL))
    assert np.array_equal(in_parts(model).decision_function(X), in_parts(fresh).decision_function(X))


def test_an_adversary_learns_over_the_parts():
    X, y, s = data()
    model = FRHSICClassifier(**SMALL, penalty=Penalty(Adversary((4,))))
    model.partial_fit(X, y, classes=[0, 1], sensitive_features=s)
    first = [value.clone() for value in model.penalty_.parameters()]
    model.partial_fit(X, y, sensitive_features=s)
    assert not any(torch.equal(a, b) for a, b in zip(first, model.penalty_.parameters(), strict=True))


def test_a_clone_has_seen_no_rows():
    model = clone(in_parts(FRHSICClassifier(**SMALL)))
    assert not [name for name in vars(model) if name.endswith("_") or name == "_stream"]


def test_passes_draw_what_train_draws_first():
    g = torch.Generator().manual_seed(0)
    rows = Rows(torch.randn(64, 2, generator=g), torch.randn(64, generator=g))
    nets = [make_net(2, 1, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    options = Options(epochs=1, batch_size=16)
    train(nets[0], squared_error, rows, options, generator=torch.Generator().manual_seed(2))
    seed = torch.Generator().manual_seed(2)
    Passes(nets[1], squared_error, rows, options, generator=seed).train_on(rows)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a, b)


# The reader


def folder_of(tmp_path, files=5, rows=1_000):
    for j in range(files):
        first = j * rows
        table = {"row": np.arange(first, first + rows), "zone": [f"z{i % 3}" for i in range(rows)]}
        write_table(table, tmp_path / f"{j}.parquet")
    return open_source(str(tmp_path / "*.parquet"), batch_rows=100)


def rows_of(batches):
    return [batch["row"].to_numpy() for batch in batches]


def test_every_row_comes_once_with_its_own_columns(tmp_path):
    source = folder_of(tmp_path)
    found = list(shuffle(source, batch_rows=256, buffer_rows=1_024, random_state=0))
    rows = np.concatenate(rows_of(found))
    assert sorted(rows) == list(range(5_000))
    assert [f"z{row % 1_000 % 3}" for row in rows] == [
        z for batch in found for z in batch["zone"].to_pylist()
    ]


SIZES = [(1, 200), (3, 5_000), (99, 330), (100, 200), (149, 5_000), (150, 200), (151, 330)]
SIZES += [(1_000, 200), (1_000, 330), (1_040, 5_000), (1_040, 330), (1_060, 200), (1_060, 330)]


@pytest.mark.parametrize(("n", "buffer"), SIZES)
def test_batches_are_full_but_for_a_last_one_between_half_and_one_and_a_half(n, buffer):
    source = open_source(pa.table({"row": np.arange(n)}), batch_rows=64)
    parts = rows_of(shuffle(source, batch_rows=100, buffer_rows=buffer, random_state=0))
    sizes = [len(part) for part in parts]
    assert set(sizes[:-1]) <= {100}
    assert 50 <= sizes[-1] < 150 or sizes == [n]
    assert sorted(np.concatenate(parts)) == list(range(n))


def test_the_order_follows_the_seed_and_a_generator_moves_on(tmp_path):
    source = folder_of(tmp_path, files=3, rows=300)
    settings = {"batch_rows": 100, "buffer_rows": 300}

    def order(random_state):
        return np.concatenate(rows_of(shuffle(source, **settings, random_state=random_state))).tolist()

    assert order(0) == order(0) != order(1)
    rng = np.random.default_rng(0)
    first, second = order(rng), order(rng)
    assert first == order(0) != second


def test_a_buffer_that_holds_all_rows_mixes_them_uniformly():
    source = open_source(pa.table({"row": np.arange(20)}), batch_rows=5)
    table = np.zeros((20, 20))
    for seed in range(600):
        table[np.concatenate(rows_of(shuffle(source, batch_rows=10, random_state=seed))), np.arange(20)] += 1
    # 361 degrees of freedom: 30 is the expected count, 470 the 99.99 % point of chi-squared.
    assert ((table - 30.0) ** 2 / 30.0).sum() < 470


def test_rows_of_several_files_meet_in_a_batch_and_stay_near_their_place_in_a_stream(tmp_path):
    source = folder_of(tmp_path, files=4)
    first = next(shuffle(source, batch_rows=200, buffer_rows=1_000, random_state=0))
    assert len({row // 1_000 for row in first["row"].to_pylist()}) == 4
    n = 20_000
    stream = open_source(pa.table({"row": np.arange(n)}), batch_rows=100)
    order = np.concatenate(rows_of(shuffle(stream, batch_rows=250, buffer_rows=1_000, random_state=0)))
    early = np.arange(n) - np.argsort(order)
    assert early.max() <= 1_000  # no row comes before the buffer could have reached it


def test_a_stream_is_read_once_and_a_small_buffer_is_refused():
    batches = pa.table({"row": np.arange(10)}).to_batches(4)
    source = open_source(iter(batches))
    assert sum(map(len, rows_of(shuffle(source, batch_rows=4, buffer_rows=8)))) == 10
    with pytest.raises(ValueError, match="read before"):
        list(shuffle(source, batch_rows=4, buffer_rows=8))
    with pytest.raises(ValueError, match=r"'buffer_rows' must be at least two batches, 20\. Got 19"):
        shuffle(source, batch_rows=10, buffer_rows=19)
    with pytest.raises(ValueError, match="'batch_rows' must be a positive"):
        shuffle(source, batch_rows=0)


def test_a_table_in_files_is_learned_part_by_part(tmp_path):
    task = make_u_shaped(4_000, random_state=0)
    job = np.where(task.target == 1, "chef", "nurse")
    columns = {"a": task.data[:, 0], "b": task.data[:, 1], "y": job, "age": task.sensitive_features[:, 0]}
    for j, rows in enumerate(np.array_split(np.argsort(job), 4)):  # the classes one after the other
        write_table({name: column[rows] for name, column in columns.items()}, tmp_path / f"{j}.parquet")
    source = open_source(str(tmp_path / "*.parquet"), batch_rows=500)
    rng = np.random.default_rng(0)
    table, model = TableEncoder(), FRHSICClassifier(lam=1.0, random_state=0)
    for _ in range(8):
        for batch in shuffle(source, batch_rows=1_000, buffer_rows=4_000, random_state=rng):
            part = pa.Table.from_batches([batch])
            X = part.select(["a", "b"])
            if model.__dict__.get("n_iter_") is None:
                table.fit(X)
            model.partial_fit(
                table.transform(X),
                part["y"],
                classes=["chef", "nurse"],
                sensitive_features=part.select(["age"]),
            )
    test = make_u_shaped(4_000, random_state=1)
    X = table.transform(pa.table({"a": test.data[:, 0], "b": test.data[:, 1]}))
    assert model.sensitive_names_ == ("age",)
    assert np.mean((model.predict(X) == "chef") == (test.target == 1)) > 0.7
