"""The generators: the paper's rows, and the dependence that each one claims to have."""

import inspect

import numpy as np
import pytest
from scipy import stats

from frhsic import datasets

GENERATORS = [
    datasets.make_classification,
    datasets.make_convergence,
    datasets.make_scm,
    datasets.make_sinusoidal,
    datasets.make_u_shaped,
    datasets.make_variance_only,
    datasets.make_xor,
]


def columns(bunch):
    return bunch.data[:, 0], bunch.sensitive_features[:, 0]


@pytest.mark.parametrize("make", GENERATORS)
def test_every_generator_returns_plain_arrays_of_the_size_asked_for(make):
    bunch = make(37, random_state=0)
    assert type(bunch.data) is type(bunch.sensitive_features) is np.ndarray
    assert bunch.data.dtype == bunch.sensitive_features.dtype == np.float64
    assert len(bunch.data) == len(bunch.sensitive_features) == 37
    assert bunch.sensitive_features.shape == (37, 1)
    assert len(bunch.feature_names) == bunch.data.shape[1]
    if bunch.target is not None:
        assert bunch.target.shape == (37,)
        assert set(bunch.target) <= {0.0, 1.0}


@pytest.mark.parametrize("make", GENERATORS)
def test_random_state_decides_the_draw(make):
    one = make(50, random_state=3)
    for same in (3, np.int64(3), np.random.RandomState(3)):
        np.testing.assert_array_equal(make(50, random_state=same).data, one.data)
    assert not np.array_equal(make(50, random_state=4).data, one.data)
    assert not np.array_equal(make(50).data, make(50).data)
    generated = [make(50, random_state=np.random.default_rng(5)).data for _ in range(2)]
    np.testing.assert_array_equal(*generated)
    with pytest.raises(ValueError, match="'random_state' must be None, an int"):
        make(50, random_state="five")
    with pytest.raises(ValueError, match="'n_samples' must be at least 1"):
        make(0)


@pytest.mark.parametrize("make", GENERATORS)
def test_no_generator_touches_the_global_seed(make):
    np.random.seed(11)  # noqa: NPY002 - the global state is what this is about
    untouched = np.random.rand(3)  # noqa: NPY002
    np.random.seed(11)  # noqa: NPY002
    make(50, random_state=0)
    make(50)
    np.testing.assert_array_equal(np.random.rand(3), untouched)  # noqa: NPY002


@pytest.mark.parametrize("make", GENERATORS)
def test_every_argument_changes_the_data(make):
    other = {"correlation": 0.9, "noise": 0.7, "frequency": 2, "effect": 3.0, "binary": False}
    one = make(50, random_state=0)
    for name in set(inspect.signature(make).parameters) - {"n_samples", "random_state"}:
        changed = make(50, random_state=0, **{name: other[name]})
        assert not all(np.array_equal(changed[key], one[key]) for key in ("data", "sensitive_features")), name


def test_convergence_rows_are_the_published_ones():
    # Drawn as the scripts draw them: all of Z first, then all of the noise.
    rng = np.random.RandomState(7)
    z, noise = rng.normal(0, 1, 200), rng.normal(0, 1, 200)
    bunch = datasets.make_convergence(200, random_state=7)
    np.testing.assert_array_equal(bunch.data[:, 0], z)
    np.testing.assert_allclose(bunch.sensitive_features[:, 0], 0.5 * z + np.sqrt(0.75) * noise)
    assert bunch.target is None
    with pytest.raises(ValueError, match="'correlation' must be between"):
        datasets.make_convergence(correlation=1.5)


def test_hsic_of_the_convergence_task_is_near_its_closed_form():
    # At bandwidth 1 the population value is 0.0107633.
    z, s = columns(datasets.make_convergence(4000, random_state=999))
    k, gram_s = (np.exp(-((v[:, None] - v) ** 2) / 2) for v in (z, s))
    k -= k.mean(0) + k.mean(1)[:, None] - k.mean()
    assert (k * gram_s).mean() == pytest.approx(0.0108, abs=0.0015)


def test_classification_rows_serve_runtime_and_ablation():
    for n in (500, 5000, 20_000):
        rng = np.random.RandomState(42)
        s = rng.uniform(0, 1, n).astype(np.float32)  # the runtime and ablation scripts round at once
        x = np.column_stack([s + rng.normal(0, 0.3, n), rng.normal(0, 1, n)]).astype(np.float32)
        y = rng.binomial(1, 1.0 / (1.0 + np.exp(-x[:, 0])))
        bunch = datasets.make_classification(n, random_state=42)
        np.testing.assert_allclose(bunch.data, x, atol=1e-6)
        np.testing.assert_allclose(bunch.sensitive_features[:, 0], s, atol=1e-6)
        np.testing.assert_array_equal(bunch.target, y)


def test_the_test_part_of_the_paper_has_62_percent_of_one_label():
    assert datasets.make_classification(random_state=42).target[4000:].mean() == 0.62


def test_u_shape_is_invisible_to_correlation_and_visible_in_the_mean():
    x, s = columns(datasets.make_u_shaped(50_000, random_state=0))
    assert abs(np.corrcoef(x, s)[0, 1]) < 0.015
    ends, middle = x[np.abs(s - 0.5) > 0.4].mean(), x[np.abs(s - 0.5) < 0.1].mean()
    assert ends - middle > 3
    assert x.mean() == pytest.approx(0, abs=0.02)


def test_variance_only_has_one_conditional_mean_and_many_spreads():
    x, s = columns(datasets.make_variance_only(50_000, random_state=0))
    tenth = (s * 10).astype(int)
    for j in range(10):
        group = x[tenth == j]
        assert abs(group.mean()) < 4 * group.std() / np.sqrt(len(group))
        assert group.std() == pytest.approx(0.3 + 2 * (j + 0.5) / 10, rel=0.1)


@pytest.mark.parametrize("frequency", [1, 4])
def test_sinusoidal_has_uniform_marginals_and_the_stated_density(frequency):
    x, s = columns(datasets.make_sinusoidal(100_000, frequency=frequency, random_state=0))
    for v in (x, s):
        assert stats.kstest(v, "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 0.001
    # E[sin(w X) sin(w S)] = 1/4 under 1 + sin(w x) sin(w s), and 0 at every other frequency.
    for other in (1, 2, 4):
        wave = np.sin(other * x) * np.sin(other * s)
        assert wave.mean() == pytest.approx(0.25 if other == frequency else 0, abs=0.01)
    with pytest.raises(ValueError, match="'frequency' must be a whole number"):
        datasets.make_sinusoidal(frequency=0)


def test_xor_is_independent_of_s_but_changes_for_everybody():
    xor = datasets.make_xor(40_000, random_state=0)
    x, s = columns(xor)
    table = [[np.sum((x == i) & (s == j)) for j in (0, 1)] for i in (0, 1)]
    assert stats.chi2_contingency(table).pvalue > 0.001
    np.testing.assert_array_equal(xor.counterfactual_data, 1 - xor.data)
    np.testing.assert_array_equal(xor.counterfactual_sensitive_features, 1 - xor.sensitive_features)
    np.testing.assert_array_equal(xor.target, x)
    np.testing.assert_array_equal(xor.counterfactual_target, 1 - xor.target)


def test_the_continuous_xor_is_independent_of_s_but_not_counterfactually_fair():
    xor = datasets.make_xor(40_000, binary=False, random_state=0)
    x, s = columns(xor)
    table, _, _ = np.histogram2d(x, s, bins=8, range=[[0, 1], [0, 1]])
    assert stats.chi2_contingency(table).pvalue > 0.001
    change = np.abs(xor.counterfactual_data - xor.data)
    assert change.mean() > 0.3
    assert (change > 0).all()


def test_the_scm_moves_only_what_s_causes():
    scm = datasets.make_scm(20_000, effect=2.0, random_state=0)
    shift = scm.counterfactual_sensitive_features - scm.sensitive_features
    np.testing.assert_allclose(scm.counterfactual_data - scm.data, np.hstack([2 * shift, 0 * shift]))
    x, s = columns(scm)
    assert np.corrcoef(x, s)[0, 1] == pytest.approx(2 / np.sqrt(12 + 4), abs=0.02)
    none = datasets.make_scm(100, effect=0.0, random_state=0)
    np.testing.assert_array_equal(none.counterfactual_data, none.data)
    np.testing.assert_array_equal(none.counterfactual_target, none.target)
    assert scm.target.mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("make", [datasets.make_u_shaped, datasets.make_variance_only])
def test_noise_must_be_above_zero(make):
    with pytest.raises(ValueError, match="'noise' must be above 0"):
        make(noise=0.0)
