"""HSIC of features, and the sums of a sketch, against loops over rows and explicit matrices."""

import itertools
import math

import numpy as np
import pytest
import torch

from frhsic.data import to_sensitive
from frhsic.dependence import HSIC
from frhsic.inference._sketch_intervals import jackknife_error
from frhsic.kernels import (
    Delta,
    Energy,
    Gaussian,
    InverseMultiquadric,
    Laplace,
    Linear,
    Matern,
    OnColumns,
    default_kernel,
)
from frhsic.numerics._products import debiased
from frhsic.sketching import FeatureHSIC, HSICSketch
from frhsic.sketching import _rows as stored_rows
from frhsic.sketching._grid import KNOTS, Grid
from frhsic.sketching._maps import feature_map, spectrum
from frhsic.sketching._rows import groups_of, row_numbers

D = torch.float64
PAIR = OnColumns(Gaussian(1.0), (0,)) * OnColumns(Gaussian(2.0), (1,))
KERNELS = {
    "gaussian": Gaussian(1.3),
    "laplace": Laplace(1.5),
    "imq": InverseMultiquadric(0.9),
    "matern": Matern(1.1),
    "smooth matern": Matern(1.1, nu=2.5),
    "linear": Linear(),
    "sum": Linear() + 0.5 * Gaussian(1.2),
    "two scales": Gaussian(0.7) + 2.0 * Laplace(1.0),
    "product": PAIR,
    "one column": OnColumns(Gaussian(1.0), (1,)),
}


def sample(n=40, d=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    s = torch.randn(n, dtype=D, generator=g)
    z = torch.randn(n, d, dtype=D, generator=g)
    z[:, 0] += s.square()
    w = 0.2 + torch.rand(n, dtype=D, generator=g)
    return z, s, w


def gram_of(kernel, x, n_features):
    """Return the Gram matrix of features, pair by pair."""
    A = feature_map(kernel, x.shape[1], n_features, 0, "kernel")
    columns = A.augmented(x)[:, 1 : 1 + A.width].numpy()
    return np.array([[a @ b for b in columns] for a in columns])


def biased(K, L, w):
    n = len(w)
    H = np.eye(n) - np.outer(np.ones(n), w)
    Kt, Lt = H @ K @ H.T, H @ L @ H.T
    return sum(w[i] * w[j] * Kt[i, j] * Lt[i, j] for i in range(n) for j in range(n))


def unbiased(K, L):
    """The U-statistic of Song et al., by sums over distinct rows."""
    n = len(K)
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    ones = np.ones(n)
    total = (K * L).sum() + (ones @ K @ ones) * (ones @ L @ ones) / ((n - 1) * (n - 2))
    return (total - 2 / (n - 2) * (ones @ K @ L @ ones)) / (n * (n - 3))


def unbiased_weighted(K, L, w):
    """The biased form less its mean at independence, with 1 / sum w^2 rows."""
    n = 1 / (w**2).sum()
    H = np.eye(len(w)) - np.outer(np.ones(len(w)), w)
    d, e = np.diag(H @ K @ H.T), np.diag(H @ L @ H.T)
    off = n / (n - 2) * (w**2 * d * e).sum()
    off -= n * n / ((n - 1) * (n - 2)) * (w**2 * d).sum() * (w**2 * e).sum()
    return n / (n - 3) * (biased(K, L, w) - off)


def expected(K, L, w, estimator, normalized):
    def one(K, L):
        if estimator == "biased":
            return biased(K, L, np.full(len(K), 1 / len(K)) if w is None else w)
        return unbiased(K, L) if w is None else unbiased_weighted(K, L, w)

    return one(K, L) / math.sqrt(one(K, K) * one(L, L)) if normalized else one(K, L)


FORMS = list(itertools.product(("biased", "unbiased"), (False, True)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_feature_hsic_and_the_sketch_are_hsic_of_the_feature_kernels(name, weighted):
    z, s, w = sample()
    K, L = gram_of(KERNELS[name], z, 32), gram_of(Gaussian(0.8), s[:, None], 15)
    shares, weights = ((w / w.sum()).numpy(), w) if weighted else (None, None)
    sketch = HSICSketch(KERNELS[name], Gaussian(0.8), n_features=(32, 16), dtype="float64")
    sketch.update(z, s, weights)
    for state in sketch._states.values():
        state.use_features()  # forty numbers are kept as values
    for estimator, normalized in FORMS:
        value = expected(K, L, shares, estimator, normalized)
        measure = FeatureHSIC(
            KERNELS[name], Gaussian(0.8), n_features=(32, 16), estimator=estimator, normalized=normalized
        )
        assert measure(z, s, weights).item() == pytest.approx(value, rel=1e-10)
        assert measure.of_moments(measure.moments(z, s, weights)).item() == pytest.approx(value, rel=1e-10)
        found = sketch.value(estimator=estimator, normalized=normalized)
        assert found == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize(
    "kernel_s", [Gaussian(0.8), Laplace(1.0), Energy(), Linear() + Laplace(0.3)], ids=repr
)
def test_few_values_of_s_are_exact_for_every_kernel(kernel_s):
    z, s, w = sample(300)
    s = s.round(decimals=1)
    assert len(s.unique()) < 100
    # A linear z is exact too.
    plain, weighted = (HSICSketch(Linear(), kernel_s).update(z, s, weights) for weights in (None, w))
    for estimator, normalized in FORMS:
        form = {"estimator": estimator, "normalized": normalized}
        exact = HSIC(Linear(), kernel_s, **form)
        assert plain.value(**form) == pytest.approx(exact(z, s).item(), rel=1e-10)
        if estimator == "biased":
            assert weighted.value(**form) == pytest.approx(exact(z, s, w).item(), rel=1e-10)


def test_ages_are_exact_beside_any_features_of_z():
    z, s, _ = sample(120)
    age = (45 + 15 * s).round()
    K, L = gram_of(Gaussian(1.3), z, 32), Gaussian(9.0).gram(age[:, None], age[:, None]).numpy()
    sketch = HSICSketch(Gaussian(1.3), Gaussian(9.0), n_features=(32, 16), dtype="float64").update(z, age)
    for estimator, normalized in FORMS:
        value = sketch.value(estimator=estimator, normalized=normalized)
        assert value == pytest.approx(expected(K, L, None, estimator, normalized), rel=1e-10)


@pytest.mark.parametrize("many", [False, True], ids=["values", "features"])
def test_categories_multiply_the_features_by_their_equality(many):
    z, s, w = sample(400)
    age = s if many else s.round(decimals=1)
    sex = np.where(z[:, 1].numpy() > 0, "f", "m")
    kernel_s = OnColumns(Delta(), (1,)) * OnColumns(Gaussian(0.8), (0,))
    columns = to_sensitive({"age": age.numpy(), "sex": sex})
    exact = HSIC(Linear(), kernel_s, estimator="biased")(z, columns, w).item()
    sketch = HSICSketch(Linear(), kernel_s).update(z, {"age": age.numpy(), "sex": sex}, w)
    assert next(iter(sketch._states.values())).featured is many
    assert sketch.value(estimator="biased") == pytest.approx(exact, rel=1e-6 if many else 1e-9)
    features = FeatureHSIC(Linear(), kernel_s)(z, columns, w).item()
    assert features == pytest.approx(exact, rel=1e-6)
    if many:
        assert sketch.value(estimator="biased") == pytest.approx(features, rel=1e-6)  # float32 or not


def test_categories_alone_are_exact():
    z, _, w = sample(300)
    columns = {
        "sex": np.where(z[:, 1].numpy() > 0, "f", "m"),
        "zone": np.array(["north", "east", "south"])[(z[:, 0] > 0).long() + (z[:, 1] > 1).long()],
    }
    for kernel_s in (Delta(), 3.0 * Delta(), default_kernel(["categorical"] * 2)):
        exact = HSIC(Linear(), kernel_s)(z, to_sensitive(columns), w).item()
        sketch = HSICSketch(Linear(), kernel_s).update(z, columns, w)
        assert sketch.value(estimator="biased") == pytest.approx(exact, rel=1e-10)
        features = FeatureHSIC(Linear(), kernel_s)(z, to_sensitive(columns), w)
        assert features.item() == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize(("n_features", "error"), [(64, 1e-7), (32, 1e-5), (16, 2e-3)])
def test_one_gaussian_column_is_its_kernel_far_beyond_its_bandwidth(n_features, error):
    # The features repeat themselves after a period, 36 bandwidths for 64 of them.
    r = torch.linspace(0, {64: 30.0, 32: 13.0, 16: 8.0}[n_features], 400, dtype=D)[:, None]
    A = feature_map(Gaussian(1.0), 1, n_features, 0, "kernel")
    columns = A.augmented(r)[:, 1:]
    assert (columns @ columns[0] - Gaussian(1.0).gram(r, r)[0]).abs().max() < error


@pytest.mark.parametrize(
    "kernel",
    [Gaussian(1.0), Laplace(1.0), InverseMultiquadric(1.0), Matern(1.0), Matern(1.0, nu=2.5)],
    ids=repr,
)
@pytest.mark.parametrize("q", [1, 2, 5, 40])
def test_frequencies_have_the_law_of_the_kernel(kernel, q):
    frequencies, mass = spectrum(kernel.law, 4_000, q, 3)
    assert mass.sum().item() == pytest.approx(1, abs=1e-12)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20, q, dtype=D, generator=g) / q**0.5
    K = ((x[:, None] - x) @ frequencies.mT).cos() @ mass
    assert (K - kernel.gram(x, x)).square().mean().sqrt() < 0.01


@pytest.mark.parametrize("q", [2, 8, 16])
def test_frames_of_gaussian_frequencies_have_unit_covariance(q):
    frequencies, mass = spectrum(Gaussian(1.0).law, 128, q, 1)
    covariance = (mass[:, None] * frequencies).mT @ frequencies
    torch.testing.assert_close(covariance, torch.eye(q, dtype=D), rtol=0, atol=1e-12)
    assert not torch.equal(frequencies, spectrum(Gaussian(1.0).law, 128, q, 2)[0])


def test_the_delta_columns_of_a_product_are_found_wherever_they_stand():
    kernel = 2.0 * (OnColumns(Delta() * OnColumns(Delta(), (1,)), (0, 3)) * OnColumns(Gaussian(1.0), (2,)))
    exact, rest, factor = kernel.split_equality(4)
    assert (exact, factor) == ((0, 3), 2.0)
    x, _, _ = sample(6, 4)
    x[:, [0, 3]] = x[:, [0, 3]].round()
    agree = (x[:, None, [0, 3]] == x[None, :, [0, 3]]).all(dim=-1)
    torch.testing.assert_close(kernel.gram(x, x), 2.0 * rest.gram(x, x) * agree)
    assert (3.0 * Delta()).split_equality(2) == ((0, 1), None, 3.0)
    exact, rest, _ = (Gaussian(1.0) + Delta()).split_equality(1)  # equality inside a sum is not taken out
    assert exact == ()
    assert rest is not None


def test_the_debiased_form_of_equal_weights_is_the_u_statistic():
    z, s, _ = sample(12)
    K, L = Gaussian(1.0).gram(z, z).numpy(), Gaussian(1.0).gram(s[:, None], s[:, None]).numpy()
    w = np.full(12, 1 / 12)
    assert unbiased_weighted(K, L, w) == pytest.approx(unbiased(K, L), rel=1e-12)
    H = np.eye(12) - 1 / 12
    d, e = np.diag(H @ K @ H), np.diag(H @ L @ H)
    terms = [
        torch.tensor(float(x), dtype=D)
        for x in (biased(K, L, w), d @ e / 144, d.sum() / 144, e.sum() / 144, 12)
    ]
    assert debiased(*terms).item() == pytest.approx(unbiased(K, L), rel=1e-12)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("kernel", ["gaussian", "sum"])
def test_gradients_of_feature_hsic_are_those_of_the_value(kernel, normalized):
    z, s, w = sample(9)
    z.requires_grad_()
    for estimator in ("biased", "unbiased"):
        measure = FeatureHSIC(
            KERNELS[kernel], Gaussian(1.0), n_features=(8, 9), estimator=estimator, normalized=normalized
        )
        assert torch.autograd.gradcheck(lambda x, m=measure: m(x, s, w), z)


def test_rules_of_scale_are_those_of_hsic():
    z, s, _ = sample(200, 1)
    for kernel in (Gaussian(), Gaussian("scale-free"), Gaussian("median", whiten=True)):
        exact, features = HSIC(kernel), FeatureHSIC(kernel)
        assert features(z, s).item() == pytest.approx(exact(z, s).item(), rel=1e-6)
        fixed = features.calibrate(z, s, freeze=True)
        assert fixed(z, s).item() == pytest.approx(features(z, s).item(), rel=1e-12)
        assert fixed(2 * z, s).item() != pytest.approx(features(2 * z, s).item(), rel=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("many", [False, True], ids=["values", "features"])
def test_leaving_a_group_out_is_leaving_its_rows_out(many, weighted):
    z, s, w = sample(500, 1)
    s = s if many else s.round(decimals=1)
    weights = w if weighted else None
    sketch = HSICSketch(Gaussian(1.0), Gaussian(0.7), n_groups=5, dtype="float64").update(z, s, weights)
    group = groups_of(torch.from_numpy(row_numbers(np.arange(500))), 5)
    shares = torch.bincount(group, w if weighted else torch.ones_like(w))
    torch.testing.assert_close(sketch.group_shares, shares / shares.sum())
    for k in range(5):
        kept = group != k
        rest = HSICSketch(Gaussian(1.0), Gaussian(0.7), dtype="float64")
        rest.update(z[kept], s[kept], w[kept] if weighted else None)
        without = sketch.without(k)
        for estimator, normalized in FORMS:
            asked = {"estimator": estimator, "normalized": normalized}
            assert without.value(**asked) == pytest.approx(rest.value(**asked), rel=1e-6)


def hats(x, step):
    """Shares of the knots around a number, from the definition."""
    left = math.floor(x / step)
    share = x / step - left
    return {left: 1 - share, left + 1: share}


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_a_grid_that_grew_is_the_grid_of_all_values(pieces):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(100, dtype=D, generator=g).exp() * torch.linspace(0.01, 50, 100, dtype=D)
    terms = torch.rand(100, 2, dtype=D, generator=g)
    grid = Grid((2, 3))
    index = torch.arange(100) % 3
    for part in torch.arange(100).split(-(-100 // pieces)):
        left, share = grid.hats(x[part])
        grid.add(index[part], left, share, [terms[part, 0], terms[part, 1]])
    step = 2.0**grid.exponent
    assert KNOTS / 2 - 2 < (x.max() - x.min()) / step + 2 <= KNOTS
    naive = np.zeros((2, 3, grid.sums.shape[2]))
    for i in range(100):
        for knot, share in hats(x[i].item(), step).items():
            naive[:, i % 3, knot - grid.first] += share * terms[i].numpy()
    np.testing.assert_allclose(grid.sums.numpy(), naive, rtol=0, atol=1e-12)
    assert (grid.low, grid.high) == (x.min().item(), x.max().item())
    # A hat has its mean where the row is.
    np.testing.assert_allclose((grid.sums[0] @ grid.knots).sum(), terms[:, 0] @ x, rtol=1e-12)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_grid_that_began_with_zeros_is_the_grid_of_all_values(order):
    parts = [
        torch.zeros(3, dtype=D),
        torch.full((2,), 1e-20, dtype=D),
        torch.tensor([3e-12, -1e-13], dtype=D),
    ]
    whole, one, merged = Grid((1, 1)), Grid((1, 1)), Grid((1, 1))
    for grid, x in ((whole, torch.cat(parts)), *((one, parts[k]) for k in order)):
        grid.add(torch.zeros(len(x), dtype=torch.int64), *grid.hats(x), [torch.ones_like(x)])
    for k in order:
        own = Grid((1, 1))
        own.add(
            torch.zeros(len(parts[k]), dtype=torch.int64), *own.hats(parts[k]), [torch.ones_like(parts[k])]
        )
        merged.merge(own)
    for grid in (one, merged):
        torch.testing.assert_close(grid.knots, whole.knots, rtol=0, atol=0)
        torch.testing.assert_close(grid.sums, whole.sums, rtol=0, atol=1e-12)


def test_the_error_of_features_is_that_on_the_stored_rows():
    z, s, w = sample(600, 3)
    sketch = HSICSketch(Gaussian(1.5), Gaussian(0.7), n_features=(32, 16)).update(z, s)
    error = sketch.error()
    assert error.rows == 600
    assert error.standard_error == 0
    exact = HSIC(Gaussian(1.5), Gaussian(0.7), estimator="unbiased")(z, s).item()
    assert error.exact == pytest.approx(exact, rel=1e-9)
    assert error.features == pytest.approx(sketch.value(), rel=1e-5)
    assert error.interval() == (error.error, error.error)
    assert abs(error.error) > 1e-4 * exact
    ratio = HSIC(Gaussian(1.5), Gaussian(0.7), estimator="unbiased", normalized=True)(z, s).item()
    assert sketch.error(normalized=True).exact == pytest.approx(ratio, rel=1e-9)
    assert sketch.error(normalized=True).features == pytest.approx(sketch.value(normalized=True), rel=1e-5)
    weighted = HSICSketch(Gaussian(1.5), Gaussian(0.7), n_features=(32, 16)).update(z, s, w)
    assert weighted.error().features == pytest.approx(weighted.value(), rel=1e-5)
    K, L = Gaussian(1.5).gram(z, z).numpy(), Gaussian(0.7).gram(s[:, None], s[:, None]).numpy()
    value = unbiased_weighted(K, L, (w / w.sum()).numpy())
    assert weighted.error().exact == pytest.approx(value, rel=1e-9)


def test_the_standard_error_of_the_feature_error_is_that_of_its_influence():
    z, s, _ = sample(600, 3)
    sketch = HSICSketch(Gaussian(1.5), Gaussian(0.7), n_features=(32, 16)).update(z, s)
    state = next(iter(sketch._states.values()))
    state.counts *= 4  # as if these were a quarter of the rows
    K, L = Gaussian(1.5).gram(z, z).numpy(), Gaussian(0.7).gram(s[:, None], s[:, None]).numpy()
    Kf, Lf = gram_of(Gaussian(1.5), z, 32), gram_of(Gaussian(0.7), s[:, None], 15)
    H = np.eye(600) - 1 / 600
    influence = 2 * (((H @ Kf @ H) * (H @ Lf @ H)).mean(axis=1) - ((H @ K @ H) * (H @ L @ H)).mean(axis=1))
    value = math.sqrt(influence.var(ddof=1) / 600 * 0.75)
    assert sketch.error().standard_error == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("many", [False, True], ids=["values", "features"])
@pytest.mark.parametrize(("name", "weighted"), [("gaussian", True), ("linear", False)])
def test_spectra_are_those_of_the_centred_features(many, name, weighted):
    z, s, w = sample(150)
    s = s if many else s.round(decimals=1)
    weights = w if weighted else torch.ones_like(w)
    sketch = HSICSketch(KERNELS[name], Gaussian(0.7), n_features=(32, 16)).update(z, s, weights)
    lam, mu = sketch.feature_sums().spectra()
    p, second = weights / weights.sum(), weights.square() / weights.square().sum()
    gram_s = gram_of(Gaussian(0.7), s[:, None], 15) if many else Gaussian(0.7).gram(s[:, None], s[:, None])
    H = np.eye(150) - np.outer(np.ones(150), p)
    for found, K in ((lam, gram_of(KERNELS[name], z, 32)), (mu, np.asarray(gram_s))):
        root = np.sqrt(second.numpy())
        naive = np.linalg.eigvalsh(root[:, None] * (H @ K @ H.T) * root)
        np.testing.assert_allclose(
            found.flip(0)[:12], naive[::-1][: min(12, len(found))], rtol=1e-6, atol=1e-9
        )
        assert found.sum().item() == pytest.approx(np.trace(root[:, None] * (H @ K @ H.T) * root), rel=1e-6)


def test_a_constant_side_has_no_spectrum():
    z, s, _ = sample(150)
    for kernel in (Gaussian(1.0), Linear()):
        for x, y in ((0 * z + 0.1, s), (1e3 + 0 * z, s), (z, 0 * s + 0.1)):
            sums = HSICSketch(kernel, Gaussian(0.7)).update(x, y).feature_sums()
            assert min(float(values.sum()) for values in sums.spectra()) == 0
        sums = HSICSketch(kernel, Gaussian(0.7)).update(1e3 + 1e-2 * z, s).feature_sums()
        assert min(float(values.sum()) for values in sums.spectra()) > 0


def test_the_jackknife_over_groups_of_any_size_is_that_of_the_mean_for_a_mean():
    # For a mean the pseudo-values of groups are their means: the variance between them, over their number.
    g = np.random.default_rng(0)
    x, sizes = g.normal(size=1_000), [30, 70, 100, 250, 550]
    groups = np.split(x, np.cumsum(sizes)[:-1])
    rest = [np.concatenate([one for k, one in enumerate(groups) if k != out]).mean() for out in range(5)]
    means, h = np.array([one.mean() for one in groups]), 1_000 / np.array(sizes)
    naive = math.sqrt(np.mean((means - means.mean()) ** 2 / (h - 1)))
    found = jackknife_error(x.mean(), rest, torch.tensor(sizes, dtype=D) / 1_000)
    assert found == pytest.approx(naive, rel=1e-12)


@pytest.mark.parametrize("tail", [0.3, 4.0], ids=["short", "long"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_normaliser_of_one_column_comes_from_all_rows_unless_it_reaches_too_far(
    monkeypatch, weighted, tail
):
    monkeypatch.setattr(stored_rows, "STORED", 300)
    z, s, w = sample(4_000, 1)
    z, s = (tail * (z[:, 0] - s.square() + s)).exp(), (tail * s).exp()
    weights = w if weighted else None
    measure = HSIC(normalized=True).calibrate(z, s)
    sketch = HSICSketch(measure.kernel_z, measure.kernel_s).update(z, s, weights)
    state = next(iter(sketch._states.values()))
    assert state.line.fine(state.plan.map_s.reach) is (tail < 1)
    assert state.scores.fine(state.plan.map_z.reach) is (tail < 1)
    # Three hundred rows know it to some percent, the grid to four digits.
    value = sketch.value(estimator="biased", normalized=True)
    assert value == pytest.approx(measure(z, s, weights).item(), rel=2e-4 if tail < 1 else 0.3)


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_a_matern_kernel_has_features_a_sketch_and_bytes(nu):
    z, s, _ = sample(400)
    kernel_z, kernel_s = Matern(1.0, nu=nu), Matern(0.7, nu=nu)
    exact = HSIC(kernel_z, kernel_s)(z, s).item()
    assert FeatureHSIC(kernel_z, kernel_s, n_features=(1024, 512))(z, s).item() == pytest.approx(
        exact, rel=0.02
    )
    sketch = HSICSketch(kernel_z, kernel_s, n_features=(1024, 512)).update(z, s)
    assert sketch.value(estimator="biased") == pytest.approx(exact, rel=0.02)
    again = HSICSketch.from_bytes(sketch.to_bytes())
    assert again.spec == sketch.spec
    assert again.value() == sketch.value()
