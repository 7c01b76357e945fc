"""The Gaussian channel and the rebuilding of X: against loops, and in fitted models."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from frhsic import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, Penalty, Training, load, save
from frhsic.data import Sensitive
from frhsic.dependence import RecoveredVariance
from frhsic.engine.nets import Net, Stack, make_net, send
from frhsic.engine.objective import _find_spread, missed_share
from frhsic.engine.rows import Rows
from frhsic.estimators import fit_path


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.uniform(20, 70, n)
    X = np.column_stack((s / 20 + rng.normal(size=n), rng.normal(size=(n, 3))))
    return X, (X[:, 0] + X[:, 1] + rng.normal(size=n) > 2.2).astype(int), s


# -- the channel -------------------------------------------------------------------------------------------


def test_rows_are_held_within_the_unit_ball_along_their_direction():
    z = torch.tensor([[3.0, 4.0], [0.03, 0.04], [0.0, 0.0], [1e30, 0.0]], dtype=torch.float64)
    held = send(z, 1e-300, generator())
    expected = [np.tanh(5.0) / 5.0 * np.array([3.0, 4.0]), np.tanh(0.05) / 0.05 * np.array([0.03, 0.04])]
    np.testing.assert_allclose(held[:2], expected, rtol=1e-12)
    np.testing.assert_allclose(held[2:], [[0.0, 0.0], [1.0, 0.0]], atol=1e-12)
    assert send(z, 0.0) is z


def test_the_noise_has_its_standard_deviation_in_every_column_of_every_net():
    z = torch.zeros(3, 20_000, 4)
    noise = send(z, 0.2, generator(1))
    np.testing.assert_allclose(noise.std(dim=1), 0.2, rtol=0.03)
    assert noise.mean(dim=1).abs().max() < 0.01
    assert (noise[0] != noise[1]).all()


def test_a_net_and_a_stack_send_z_through_it_and_the_head_sees_the_noise():
    net = make_net(4, 1, encoder=(3,), noise=0.5, generator=generator())
    x = torch.randn(50, 4, generator=generator(2))
    torch.manual_seed(0)
    z, prediction = net(x)
    torch.manual_seed(0)
    torch.testing.assert_close(z, send(net.encoder(x), 0.5))
    torch.testing.assert_close(prediction, net.head(z))
    # Where nothing is trained, a score is that of one row: Z alone carries the noise.
    net.eval()
    first, second = net(x), net(x)
    assert (first[0] != second[0]).all()
    torch.testing.assert_close(first[1], second[1], rtol=0, atol=0)
    net.train()
    stack = Stack([net, net])
    assert stack(x)[0].shape == (2, 50, 3)
    assert [one.noise for one in stack.nets()] == [0.5, 0.5]
    assert Net(net.encoder, net.head).noise == 0.0


@pytest.mark.parametrize("kind", [FRHSICClassifier, FRHSICRegressor, FRHSICEncoder])
def test_a_model_draws_the_noise_from_its_random_state_and_it_is_saved(kind, tmp_path):
    X, y, s = table()
    model = kind(lam=1.0, epochs=2, encoder=(4, 2), random_state=3, training=Training(noise=0.3))
    model.fit(X, y, sensitive_features=s)
    z = model.transform(X)
    np.testing.assert_array_equal(model.transform(X), z)
    quiet = send(model.encoder_(model.scaling_x_.apply(torch.from_numpy(X))), 1e-300, generator()).numpy()
    assert np.linalg.norm(quiet, axis=1).max() <= 1.0
    assert (z - quiet).std() == pytest.approx(0.3, rel=0.15)
    save(model, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "model.safetensors").transform(X), z)
    assert load(tmp_path / "model.safetensors").noise_ == 0.3
    # Another table has other noise in the same rows, also in those that did not change.
    other = X.copy()
    other[0, 1] += 1.0
    assert (model.transform(other) != z).all()
    anew = model.set_params(random_state=None).transform(X)
    assert (anew != z).all()
    # It belongs to the model that was trained, not to the settings of the next training.
    later = model.set_params(random_state=3, training=None)
    np.testing.assert_array_equal(later.transform(X), z)
    save(later, tmp_path / "later.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "later.safetensors").transform(X), z)


@pytest.mark.parametrize("kind", [FRHSICClassifier, FRHSICRegressor])
def test_a_score_of_the_own_head_does_not_depend_on_the_table(kind):
    X, y, s = table()
    model = kind(lam=1.0, epochs=2, encoder=(4, 2), random_state=3, training=Training(noise=0.3))
    model.fit(X, y, sensitive_features=s)
    score = model.predict_proba if kind is FRHSICClassifier else model.predict
    np.testing.assert_allclose(score(X[::-1])[::-1], score(X), rtol=0, atol=1e-12)
    np.testing.assert_allclose(score(X[:3]), score(X)[:3], rtol=0, atol=1e-12)
    assert (model.transform(X[::-1])[::-1] != model.transform(X)).any()


def test_large_tables_are_sent_with_noise_in_every_part():
    X, y, s = table()
    training = Training(noise=0.3)
    model = FRHSICClassifier(lam=0.0, epochs=1, encoder=(2,), random_state=3, training=training)
    model.fit(X, y, sensitive_features=s)
    many = np.zeros((140_000, X.shape[1]))  # three parts, two of them equal
    assert len(np.unique(model.transform(many), axis=0)) == len(many)


def test_a_path_has_the_channel_of_single_fits():
    X, y, s = table()
    options = {
        "epochs": 3,
        "encoder": (4, 2),
        "random_state": 0,
        "training": Training(noise=0.3, rebuild=1.0),
    }
    for model in fit_path(FRHSICClassifier(**options), X, y, sensitive_features=s, lams=[0.0, 5.0]):
        z = model.transform(X)
        quiet = send(model.encoder_(model.scaling_x_.apply(torch.from_numpy(X))), 1e-300, generator()).numpy()
        assert (z - quiet).std() == pytest.approx(0.3, rel=0.15)


def test_a_model_with_noise_cannot_become_one_without_by_export(tmp_path):
    pytest.importorskip("onnx")
    from frhsic.persistence import export_onnx

    X, y, s = table(60)
    model = FRHSICClassifier(lam=0.0, epochs=1, encoder=(2,), training=Training(noise=0.1))
    model.fit(X, y, sensitive_features=s)
    with pytest.raises(ValueError, match=r"^'model' must have no noise\. Got noise of 0\.1\."):
        export_onnx(model, tmp_path / "model.onnx")


def test_noise_hides_a_direction_of_small_variance_from_a_regression():
    """What the channel is for: S in a direction of hundredths is found without it, and not with it."""
    rng = np.random.default_rng(0)
    s = rng.normal(size=4_000)
    z = torch.from_numpy(np.column_stack((rng.normal(size=4_000), 0.01 * s)))
    for noise, least, most in ((0.0, 0.99, 1.0), (0.1, -0.01, 0.05)):
        seen = send(z, noise, generator(5)).numpy()
        r2 = LinearRegression().fit(seen[:2_000], s[:2_000]).score(seen[2_000:], s[2_000:])
        assert least <= r2 <= most


@pytest.mark.parametrize(
    ("field", "value"), [("noise", -0.1), ("noise", "much"), ("rebuild", float("nan")), ("penalty_every", 0)]
)
def test_wrong_options_are_refused(field, value):
    with pytest.raises(ValueError, match=rf"^'{field}' must be "):
        Training(**{field: value})


def test_numbers_of_numpy_are_numbers(tmp_path):
    X, y, s = table()
    models = []
    for kind in (float, np.float32):
        penalty = kind(0.5) * Penalty(RecoveredVariance(4))
        training = Training(noise=kind(0.25), rebuild=kind(0.5), clip=kind(1.0), limit_fraction=kind(0.25))
        options = {"penalty": penalty, "training": training, "encoder": (3,), "epochs": 2, "random_state": 0}
        models.append(FRHSICClassifier(lam=1.0, **options).fit(X, y, sensitive_features=s))
    save(models[1], tmp_path / "model.frhsic")
    models.append(load(tmp_path / "model.frhsic"))
    z = [model.transform(X) for model in models]
    np.testing.assert_array_equal(z[0], z[1])
    np.testing.assert_array_equal(z[0], z[2])


# -- the rebuilding of X -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_what_is_missed_is_what_a_regression_misses(given, weighted):
    rng = np.random.default_rng(1)
    z, x, t = rng.normal(size=(80, 2)), rng.normal(size=(80, 4)), rng.normal(size=(80, 1))
    x[:, 0] = 3.0 * z[:, 0] + 0.1 * x[:, 0]
    x[:, 1] = t[:, 0] + 0.2 * x[:, 1]
    x[:, 3] = 7.0  # a constant column is no part of it
    w = rng.uniform(0.5, 2.0, 80) if weighted else None
    weights = None if w is None else torch.from_numpy(w)
    rows = Rows(torch.from_numpy(x), torch.zeros(80), None, weights=weights)
    spread = _find_spread(rows)
    share = np.full(80, 1 / 80) if w is None else w / w.sum()
    expected = 0.0
    seen = np.hstack((z, t)) if given else z
    for j in range(3):
        fit = LinearRegression().fit(seen, x[:, j], sample_weight=share)
        variance = share @ (x[:, j] - share @ x[:, j]) ** 2
        assert spread[j].item() == pytest.approx(variance**0.5)
        expected += share @ (x[:, j] - fit.predict(seen)) ** 2 / variance / 3
    found = missed_share(
        torch.from_numpy(z),
        rows.x,
        torch.from_numpy(t) if given else None,
        weights,
        spread,
    )
    assert found.item() == pytest.approx(expected, rel=1e-4)
    both = torch.from_numpy(np.stack((z, -z)))
    pair = missed_share(both, rows.x, None, None, spread)
    assert pair.shape == (2,)
    assert pair[0].item() == pytest.approx(pair[1].item())


def test_its_gradient_is_that_of_the_regression_as_z_moves():
    g = generator(4)
    x = torch.randn(40, 3, generator=g, dtype=torch.float64)
    z = (x[:, :2] + 0.5 * torch.randn(40, 2, generator=g, dtype=torch.float64)).requires_grad_()
    one = torch.ones(3, dtype=torch.float64)
    (found,) = torch.autograd.grad(missed_share(z, x, None, None, one), z)
    step = 1e-5
    for i, j in ((0, 0), (7, 1), (39, 0)):
        moved = [z.detach().clone() for _ in range(2)]
        moved[0][i, j] += step
        moved[1][i, j] -= step
        up, down = (missed_share(one_z, x, None, None, one) for one_z in moved)
        assert found[i, j].item() == pytest.approx(((up - down) / (2 * step)).item(), rel=1e-3, abs=1e-8)


def test_rebuilding_keeps_a_column_that_the_target_does_not_need_and_s_is_not_asked_of_z():
    rng = np.random.default_rng(0)
    n = 2_000
    s, free = rng.normal(size=n), rng.normal(size=n)
    X = np.column_stack((rng.normal(size=n), s + 0.1 * rng.normal(size=n), free))
    y = (X[:, 0] > 0).astype(int)

    def kept(column, **training):
        model = FRHSICClassifier(
            lam=3.0,
            penalty=Penalty(RecoveredVariance(20, seed=None, exact_gradient=False)),
            encoder=(8, 2),
            epochs=80,
            batch_size=500,
            learning_rate=0.01,
            random_state=0,
            training=Training(noise=0.3, **training),
        )
        z = model.fit(X, y, sensitive_features=s).transform(X)
        return LinearRegression().fit(z[:1_000], column[:1_000]).score(z[1_000:], column[1_000:])

    assert kept(free) < 0.2
    assert kept(free, rebuild=1.0) > 0.4
    assert kept(s, rebuild=1.0) < 0.1


def test_functions_of_several_columns_of_s_and_of_none_may_be_given():
    X, y, s = table()
    both = np.column_stack((s, s[::-1]))
    options = {"epochs": 2, "encoder": (4, 2), "training": Training(rebuild=1.0), "random_state": 0}
    for sensitive, lam in ((both, 1.0), (None, 0.0)):
        model = FRHSICClassifier(lam=lam, **options).fit(X, y, sensitive_features=sensitive)
        assert np.isfinite(model.transform(X)).all()
    assert RecoveredVariance(0).targets(Sensitive.of(torch.from_numpy(s)), None).shape == (300, 5)


# -- a penalty at some of the steps ------------------------------------------------------------------------


def test_a_penalty_at_every_third_step_is_evaluated_that_often_and_lowers_the_dependence():
    X, y, s = table(900)
    models = {}
    for every in (1, 3):
        penalty = Penalty(RecoveredVariance(10, seed=None))
        model = FRHSICClassifier(
            lam=2.0,
            penalty=penalty,
            encoder=(8, 2),
            epochs=30,
            batch_size=100,
            learning_rate=0.01,
            random_state=0,
            training=Training(penalty_every=every, clip=5.0),
        )
        models[every] = model.fit(X, y, sensitive_features=s)
    free = FRHSICClassifier(lam=0.0, encoder=(8, 2), epochs=30, batch_size=100, random_state=0).fit(X, y)
    z = {name: torch.from_numpy(model.transform(X)) for name, model in {**models, "free": free}.items()}
    left = {name: RecoveredVariance()(one, torch.from_numpy(s)).item() for name, one in z.items()}
    assert left[1] < 0.5 * left["free"]
    assert left[3] < 0.5 * left["free"]


def test_steps_are_counted_over_epochs_and_weighted(monkeypatch):
    calls = []
    value = RecoveredVariance._value

    def counted(self, z, s, w):
        calls.append(len(z))
        return value(self, z, s, w)

    X, y, s = table(200)
    monkeypatch.setattr(RecoveredVariance, "_value", counted)
    model = FRHSICClassifier(
        lam=1.0,
        penalty=Penalty(RecoveredVariance(2)),
        encoder=(2,),
        epochs=5,
        batch_size=100,
        training=Training(penalty_every=3),
    )
    model.fit(X, y, sensitive_features=s)
    assert len(calls) == 4  # of ten steps: 0, 3, 6 and 9
    assert [record["penalty"] is None for record in model.history_] == [False, False, True, False, False]
