"""The cross-covariance of z and s by explicit features."""

import numpy as np
import pytest
import torch

from frhsic import HSIC
from frhsic.data import Sensitive, to_sensitive
from frhsic.dependence import DistanceCovariance
from frhsic.dependence.dcov import Labels, Line, centred_diagonal, centred_products
from frhsic.inference import _embedding, keep_tables
from frhsic.kernels import Gaussian, Linear
from frhsic.numerics._products import pair_rows


def sample(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n, 2))
    return rng.normal(size=(n, d)) + 0.4 * s[:, :1], s


def found(z, s, measure, w=None):
    """Return the embedding of rows; that of a table of one score and one column is in test_table.py."""
    z, s = torch.tensor(z), s if isinstance(s, Sensitive) else Sensitive.of(torch.tensor(s))
    w = None if w is None else torch.tensor(w / w.sum())
    kernels = measure.kernel_z, measure._kernel_s(s)
    return _embedding._embed(z, s, kernels, torch.Generator().manual_seed(0), w, None)


def test_with_linear_kernels_everything_is_an_explicit_covariance_matrix():
    z, s = sample(40)
    result = found(z, s, HSIC(Linear(), Linear()))
    F, G = z - z.mean(axis=0), s - s.mean(axis=0)
    a = np.einsum("ij,ik->ijk", F, G).reshape(40, -1)
    C = a.mean(axis=0)
    covariance = (a - C).T @ (a - C) / 40
    assert result.length == pytest.approx(np.linalg.norm(C))
    assert result.each.zs.numpy() == pytest.approx(a @ C)
    assert result.eigenvalues[:6].numpy() == pytest.approx(np.linalg.eigvalsh(covariance)[::-1], abs=1e-12)
    assert result.rest == pytest.approx(0.0, abs=1e-12)


def test_pairs_of_rows_tile_by_tile_are_those_of_whole_matrices():
    z, s = (torch.tensor(x) for x in sample(600))
    w = torch.rand(600, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    w /= w.sum()
    kernels = Gaussian(1.3), Gaussian(0.8)
    rows = pair_rows(kernels, (z, s), w)
    centre = torch.eye(600, dtype=torch.float64) - w
    K, L = (centre @ kernel.gram(x, x) @ centre.mT for kernel, x in zip(kernels, (z, s), strict=True))
    for found_here, twin in zip(rows[:3], ((K * L) @ w, (K * K) @ w, (L * L) @ w), strict=True):
        assert found_here.numpy() == pytest.approx(twin.numpy(), rel=1e-10)
    assert rows.diagonal_z.numpy() == pytest.approx(K.diagonal().numpy(), rel=1e-10)
    assert rows.diagonal_s.numpy() == pytest.approx(L.diagonal().numpy(), rel=1e-10)


def test_errors_have_the_law_of_multiplier_sums_of_explicit_features():
    """Mean, variance and third moment of |C* - C^|^2 over 20,000 draws of both."""
    z, s = sample(30, seed=1)
    result = found(z, s, HSIC(Linear(), Linear()))
    F, G = z - z.mean(axis=0), s - s.mean(axis=0)
    a = np.einsum("ij,ik->ijk", F, G).reshape(30, -1)
    xi = np.random.default_rng(2).normal(size=(20_000, 30))
    twin = np.square(xi @ (a - a.mean(axis=0)) / 30).sum(axis=1)
    ours = result.errors(20_000, torch.Generator().manual_seed(3)).square().numpy()
    for power in (1, 2, 3):
        assert np.mean(ours**power) == pytest.approx(np.mean(twin**power), rel=0.1 * power)
    assert np.quantile(ours, 0.95) == pytest.approx(np.quantile(twin, 0.95), rel=0.04)


def test_unbiased_values_are_those_of_the_measure():
    z, s = sample(50)
    kernel_z, kernel_s = Gaussian(1.3), Gaussian(0.8)
    result = found(z, s, HSIC(kernel_z, kernel_s))
    z, s = torch.tensor(z), torch.tensor(s)
    pairs = ((kernel_z, kernel_s, z, s), (kernel_z, kernel_z, z, z), (kernel_s, kernel_s, s, s))
    expected = [HSIC(k, m, estimator="unbiased")(x, y).item() for k, m, x, y in pairs]
    assert result.unbiased() == pytest.approx(expected)
    normalized = HSIC(kernel_z, kernel_s, estimator="unbiased", normalized=True)(z, s).item()
    assert result.unbiased()[0] / result.size(True) == pytest.approx(normalized)
    assert result.size(False) == 1.0


@pytest.mark.parametrize("normalized", [False, True])
def test_the_standard_error_is_that_of_the_infinitesimal_jackknife(normalized):
    """Weights moved a little towards each row: the derivative of the (biased) measure, by differences."""
    z, s = sample(200, d=1, seed=4)
    s = s[:, :1]
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), normalized=normalized)
    result = found(z, s, measure)
    z, s = torch.tensor(z), torch.tensor(s)
    n, step = len(z), 1e-5
    influence = []
    for i in range(n):
        values = []
        for sign in (1.0, -1.0):
            w = torch.full((n,), (1.0 - sign * step) / n, dtype=torch.float64)
            w[i] += sign * step
            values.append(measure(z, s, w).item())
        influence.append((values[0] - values[1]) / (2.0 * step))
    # The ratio's influence is taken at the debiased value, so the two agree up to 1/n.
    assert result.standard_error(normalized) == pytest.approx(
        np.std(influence) / np.sqrt(n), rel=0.06 if normalized else 0.01
    )


def test_features_and_all_pairs_give_what_whole_matrices_give(monkeypatch):
    z, s = sample(300, d=1)
    s = s[:, :1]
    measure = HSIC(Gaussian(1.0), Gaussian(1.0))
    whole = found(z, s, measure)
    monkeypatch.setattr(_embedding, "_WHOLE", 100)
    thin = found(z, s, measure)
    monkeypatch.setattr(_embedding, "_WIDEST", 2)  # too few features: all pairs instead
    pairs = found(z, s, measure)
    for other in (thin, pairs):
        assert other.length == pytest.approx(whole.length, rel=1e-9)
        assert other.unbiased() == pytest.approx(whole.unbiased(), rel=1e-8)
        assert other.standard_error(True) == pytest.approx(whole.standard_error(True), rel=1e-8)
        assert other.eigenvalues[:20].numpy() == pytest.approx(whole.eigenvalues[:20].numpy(), rel=1e-3)
        total = float(other.eigenvalues.sum()) + other.rest
        assert total == pytest.approx(float(whole.eigenvalues.sum()), rel=1e-6)


def test_many_rows_without_thin_factors_become_a_subsample_that_is_named(monkeypatch):
    monkeypatch.setattr(_embedding, "_WHOLE", 50)
    monkeypatch.setattr(_embedding, "_MOST_ROWS", 60)
    monkeypatch.setattr(_embedding, "_WIDEST", 4)
    z, s = sample(100)
    result = found(z, s, HSIC(Gaussian(0.3), Gaussian(0.3)))
    assert len(result) == 60
    assert result.notes == ("A random subsample of 60 of 100 rows was used.",)


# ---- weights


def weights(n, seed=3):
    return np.random.default_rng(seed).uniform(0.2, 3.0, n)


@pytest.mark.parametrize("route", ["whole", "features"])
def test_with_weights_everything_is_an_explicit_weighted_covariance(route, monkeypatch):
    monkeypatch.setattr(_embedding, "_WHOLE", 10 if route == "features" else 400)
    n = 60
    z, s = sample(n)
    w = weights(n) / weights(n).sum()
    result = found(z, s, HSIC(Linear(), Linear()), w)
    F, G = z - w @ z, s - w @ s
    a = np.einsum("ij,ik->ijk", F, G).reshape(n, -1)
    C = w @ a
    covariance = sum(n * w[i] ** 2 * np.outer(a[i] - C, a[i] - C) for i in range(n))
    assert result.length == pytest.approx(np.linalg.norm(C))
    assert result.each.zs.numpy() == pytest.approx(a @ C)
    assert result.eigenvalues[:6].numpy() == pytest.approx(np.linalg.eigvalsh(covariance)[::-1], abs=1e-12)
    assert result.rest == pytest.approx(0.0, abs=1e-9)
    se = np.sqrt(sum((2 * w[i] * (a[i] @ C - C @ C)) ** 2 for i in range(n)) * n / (n - 1))
    assert result.standard_error(False) == pytest.approx(se)
    assert result.rows == pytest.approx(1 / sum(w**2))
    for side, X in zip(result.spectra, (F, G), strict=True):
        twin = sum(w[i] ** 2 * np.outer(X[i], X[i]) for i in range(n)) / sum(w**2)
        assert side.numpy()[-X.shape[1] :] == pytest.approx(np.linalg.eigvalsh(twin))


@pytest.mark.parametrize("normalized", [False, True])
def test_the_weighted_standard_error_is_that_of_the_infinitesimal_jackknife(normalized):
    z, s = sample(200, d=1, seed=4)
    s, w = s[:, :1], weights(200)
    w = w / w.sum()
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), normalized=normalized)
    result = found(z, s, measure, w)
    z, s, step, terms = torch.tensor(z), torch.tensor(s), 1e-5, []
    for i in range(200):
        values = []
        for sign in (1.0, -1.0):
            moved = torch.tensor(w * (1.0 - sign * step))
            moved[i] += sign * step
            values.append(measure(z, s, moved).item())
        terms.append(w[i] * (values[0] - values[1]) / (2.0 * step))
    expected = np.sqrt(np.square(terms).sum())
    assert result.standard_error(normalized) == pytest.approx(expected, rel=0.06 if normalized else 0.01)


def test_the_debiased_form_has_mean_zero_at_independence_with_any_weights():
    """Weights that depend on both sides; the biased form is then ten of its standard errors above zero."""
    biased, debiased = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        z, s = rng.uniform(-1, 1, size=(2, 300))
        chance = np.where((np.abs(z) > 0.5) & (np.abs(s) > 0.5), 0.2, 1.0)
        kept = rng.random(300) < chance
        result = found(z[kept, None], s[kept, None], HSIC(Gaussian(1.0), Gaussian(1.0)), 1 / chance[kept])
        biased.append(result.length**2)
        debiased.append(result.unbiased()[0])
    error = np.std(debiased) / np.sqrt(300)
    assert abs(np.mean(debiased)) < 3.5 * error
    assert np.mean(biased) > 10 * error


def test_equal_weights_are_no_weights():
    for n in (50, 450):
        z, s = sample(n, d=1)
        for measure in (HSIC(Gaussian(1.0), Gaussian(1.0)), HSIC(Gaussian(0.05), Gaussian(0.05))):
            plain, equal = found(z, s, measure), found(z, s, measure, np.ones(n))
            assert equal.unbiased() == pytest.approx(plain.unbiased(), rel=1e-12)
            assert equal.standard_error(True) == pytest.approx(plain.standard_error(True), rel=1e-12)


# ---- distances


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 50, 131])
def test_sorted_sums_are_those_over_all_pairs(n, ties):
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(2, n))
    if ties:
        x, y = np.round(2 * x), np.round(y)
    code = np.unique(rng.integers(0, 4, n), return_inverse=True)[1]
    w = weights(n) / weights(n).sum()
    H = np.eye(n) - np.outer(np.ones(n), w)
    sides = {
        "x": (Line(torch.tensor(x), 4.0), -2.0 * np.abs(np.subtract.outer(x, x))),
        "y": (Line(torch.tensor(y), 1.0), -0.5 * np.abs(np.subtract.outer(y, y))),
        "labels": (Labels(torch.tensor(code), 0.5), 0.5 * np.equal.outer(code, code)),
    }
    for first, second in (("x", "y"), ("x", "labels"), ("labels", "y"), ("x", "x"), ("labels", "labels")):
        (a, K), (b, L) = sides[first], sides[second]
        K, L = H @ K @ H.T, H @ L @ H.T
        found_rows = centred_products(a, b, torch.tensor(w)).numpy()
        assert found_rows == pytest.approx((K * L) @ w, abs=1e-12)
        assert centred_diagonal(a, torch.tensor(w)).numpy() == pytest.approx(K.diagonal(), abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["line", "ages", "labels"])
def test_distance_covariance_of_many_rows_is_that_of_whole_matrices(kind, weighted, monkeypatch):
    n = 350
    rng = np.random.default_rng(0)
    column = {
        "line": rng.normal(size=n),
        "ages": rng.integers(20, 30, n) / 10,
        "labels": rng.integers(0, 4, n),
    }[kind].astype(float)
    kinds = ("categorical",) if kind == "labels" else ("continuous",)
    s = Sensitive(torch.tensor(column)[:, None], ("s",), kinds)
    z = rng.normal(size=(n, 1)) + 0.3 * column[:, None]
    w = weights(n) if weighted else None
    measure = DistanceCovariance(normalized=True)._hsic(kinds)
    whole = found(z, s, measure, w)
    monkeypatch.setattr(_embedding, "_WHOLE", 100)
    monkeypatch.setattr(_embedding, "_from_features", lambda *_: None)
    monkeypatch.setattr(_embedding, "pair_rows", None)
    many = found(z, s, measure, w)
    assert many.unbiased() == pytest.approx(whole.unbiased(), rel=1e-9)
    assert many.standard_error(True) == pytest.approx(whole.standard_error(True), rel=1e-9)
    # The smaller ones lack what pairs beyond the 256 would add; the law of the error hardly sees it.
    assert many.eigenvalues[:5].numpy() == pytest.approx(whole.eigenvalues[:5].numpy(), rel=0.05)
    for q in (0.5, 0.95):
        a, b = (one.errors(20_000, torch.Generator().manual_seed(0)).quantile(q) for one in (many, whole))
        assert float(a) == pytest.approx(float(b), rel=0.03)
    total = float(many.eigenvalues.sum()) + many.rest
    assert total == pytest.approx(float(whole.eigenvalues.sum()), rel=1e-6)
    assert many.notes == ()


def test_eigenvalues_of_few_rows_have_the_trace_of_all(monkeypatch):
    z, s = sample(3_000, d=1)
    w = weights(3_000)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0))
    whole = found(z, s[:, :1], measure, w)
    monkeypatch.setattr(_embedding, "_EIGEN_ROWS", 1_000)
    few = found(z, s[:, :1], measure, w)
    assert few.eigenvalues[:5].numpy() == pytest.approx(whole.eigenvalues[:5].numpy(), rel=0.15)
    assert float(few.eigenvalues.sum()) + few.rest == pytest.approx(
        float(whole.eigenvalues.sum()) + whole.rest, rel=1e-9
    )


def test_chance_has_the_law_of_permutations_for_many_rows():
    n = 500
    z, s = sample(n, d=1)
    s = s[:, :1]
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased")
    draws = found(z, s, measure).by_chance(4_000, torch.Generator().manual_seed(1)).numpy()
    generator = torch.Generator().manual_seed(0)
    orders = torch.stack([torch.randperm(n, generator=generator) for _ in range(2_000)])
    null = measure.permuted(torch.tensor(z), torch.tensor(s), orders).numpy()
    assert abs(draws.mean()) < 4 * null.std() / np.sqrt(4_000)
    assert draws.std() == pytest.approx(null.std(), rel=0.1)
    for q in (0.5, 0.9, 0.95, 0.99):
        assert np.quantile(draws, q) == pytest.approx(np.quantile(null, q), abs=0.15 * null.std())


def test_embeddings_that_are_kept_are_those_computed_anew_and_leave_the_same_draws():
    generator = torch.Generator().manual_seed(1)
    z, s = torch.randn(2, 700, 1, dtype=torch.float64, generator=generator)
    s = to_sensitive(z + s)

    def length(z):
        g = torch.Generator().manual_seed(0)
        found = _embedding.embedding(z, s, HSIC(), g)
        return found.length, float(torch.rand((), generator=g)), found

    alone = length(z)
    with keep_tables():
        first, again, other = length(z), length(z), length(2.0 * z + s.values)
    assert again[2] is first[2]
    assert alone[:2] == first[:2] == again[:2]
    assert other[0] != first[0]
    assert length(z)[2] is not first[2]
