"""Each kernel, bandwidth rule and whitening against its definition, entry by entry."""

import math

import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

import frhsic.kernels
from frhsic.kernels import (
    Delta,
    Energy,
    Gaussian,
    InverseMultiquadric,
    Laplace,
    Linear,
    Matern,
    OnColumns,
    OnRanks,
    Product,
    Scaled,
    Sum,
    default_kernel,
)
from frhsic.kernels.scale import _lower_median, distances, distances_by_product
from frhsic.numerics._lowrank import _pivoted


def norm(v):
    return math.sqrt(sum(t * t for t in v))


def minus(x, y):
    return [a - b for a, b in zip(x, y, strict=True)]


def gaussian(sigma):
    return lambda x, y: math.exp(-(norm(minus(x, y)) ** 2) / (2 * sigma**2))


def laplace(sigma):
    return lambda x, y: math.exp(-norm(minus(x, y)) / sigma)


def inverse_multiquadric(sigma):
    return lambda x, y: 1 / math.sqrt(1 + norm(minus(x, y)) ** 2 / sigma**2)


def matern(sigma, nu):
    return lambda x, y: SklearnMatern(sigma, nu=nu)([x], [y]).item()


def linear(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def energy(x, y):
    return (norm(x) + norm(y) - norm(minus(x, y))) / 2


def delta(x, y):
    return float(all(a == b for a, b in zip(x, y, strict=True)))


ORIGIN = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
T = torch.tensor([[1.0, 0.2, 0.0], [0.0, 2.0, -0.3], [0.4, 0.0, 0.5]], dtype=torch.float64)


def moved(x):
    shifted = [a - o for a, o in zip(x, ORIGIN.tolist(), strict=True)]
    return [sum(shifted[i] * T[i, j].item() for i in range(3)) for j in range(3)]


def turned(x):
    return [sum(x[i] * T[i, j].item() for i in range(3)) for j in range(3)]


PLACES = torch.linspace(-2.0, 2.0, 60, dtype=torch.float64).reshape(20, 3)


def on_places(x):
    """Ranks among twenty rows, interpolated between them."""
    return np.array(
        [np.interp(a, column, (np.arange(20) + 0.5) / 20) for a, column in zip(x, PLACES.T, strict=True)]
    )


TWINS = {
    "OnRanks": [
        (OnRanks(Gaussian(0.3)).bind(PLACES), lambda x, y: gaussian(0.3)(on_places(x), on_places(y)))
    ],
    "Gaussian": [
        (Gaussian(0.7), gaussian(0.7)),
        (Gaussian(1.9, whiten=T), lambda x, y: gaussian(1.9)(turned(x), turned(y))),
    ],
    "Laplace": [
        (Laplace(1.7), laplace(1.7)),
        (Laplace(0.9, whiten=T), lambda x, y: laplace(0.9)(turned(x), turned(y))),
    ],
    "InverseMultiquadric": [
        (InverseMultiquadric(0.8), inverse_multiquadric(0.8)),
        (InverseMultiquadric(2.0, whiten=T), lambda x, y: inverse_multiquadric(2.0)(turned(x), turned(y))),
    ],
    "Matern": [
        (Matern(0.8), matern(0.8, 1.5)),
        (Matern(1.3, nu=2.5), matern(1.3, 2.5)),
        (Matern(2.0, whiten=T, nu=2.5), lambda x, y: matern(2.0, 2.5)(turned(x), turned(y))),
    ],
    "Linear": [
        (Linear(), linear),
        (Linear(whiten=T, origin=ORIGIN), lambda x, y: linear(moved(x), moved(y))),
    ],
    "Energy": [
        (Energy(), energy),
        (Energy(whiten=T, origin=ORIGIN), lambda x, y: energy(moved(x), moved(y))),
    ],
    "Delta": [(Delta(), delta)],
    "Sum": [(Sum(Linear(), Gaussian(1.0)), lambda x, y: linear(x, y) + gaussian(1.0)(x, y))],
    "Product": [
        (Product(Laplace(1.0), Gaussian(2.0)), lambda x, y: laplace(1.0)(x, y) * gaussian(2.0)(x, y))
    ],
    "Scaled": [(Scaled(Energy(), 2.5), lambda x, y: 2.5 * energy(x, y))],
    "OnColumns": [(OnColumns(Gaussian(1.1), (2, 0)), lambda x, y: gaussian(1.1)(x[::2], y[::2]))],
    "default_kernel": [
        (
            default_kernel(["continuous", "categorical", "continuous"], [0.5, 1.0, 2.0]),
            lambda x, y: gaussian(0.5)(x[:1], y[:1]) * delta(x[1:2], y[1:2]) * gaussian(2.0)(x[2:], y[2:]),
        ),
        (default_kernel(["categorical"]), delta),
        (
            default_kernel(["continuous"] * 3, 1.5),
            # A product of Gaussians of one bandwidth is the Gaussian of all columns.
            gaussian(1.5),
        ),
    ],
}


def sample(n, seed, levels=False):
    x = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    # A coarse middle column, so that Delta has agreements to find.
    x[:, 1] = x[:, 1].round()
    return x.round() if levels else x


@pytest.mark.parametrize("name", sorted(set(frhsic.kernels.__all__) - {"Kernel"}))
@pytest.mark.parametrize("levels", [False, True])
def test_gram_and_diagonal_equal_the_definition_entry_by_entry(name, levels):
    a, b = sample(7, 0, levels), sample(5, 1, levels)
    for kernel, k in TWINS[name]:
        expected = [[k(x, y) for y in b.tolist()] for x in a.tolist()]
        torch.testing.assert_close(
            kernel.gram(a, b), torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12
        )
        expected = [k(x, x) for x in a.tolist()]
        torch.testing.assert_close(
            kernel.diagonal(a), torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12
        )


def lower_median(values):
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def pairwise(x):
    rows = x.tolist()
    return [norm(minus(rows[i], rows[j])) for i in range(len(rows)) for j in range(i)]


@pytest.mark.parametrize("kernel", [Gaussian, Laplace, InverseMultiquadric, Matern])
@pytest.mark.parametrize("n", [2, 6, 9, 12])
def test_median_is_the_lower_median_of_the_pairwise_distances(kernel, n):
    x = sample(n, n)
    assert kernel("median").calibrate(x).bandwidth == pytest.approx(lower_median(pairwise(x)), rel=1e-12)


def test_median_of_a_stack_is_one_median_for_each_model():
    x = torch.stack([sample(8, 3), 5.0 * sample(8, 4)])
    expected = torch.tensor([lower_median(pairwise(one)) for one in x], dtype=torch.float64)
    torch.testing.assert_close(Gaussian("median").calibrate(x).bandwidth, expected, rtol=1e-12, atol=0)


def test_median_leaves_coinciding_pairs_out_when_they_are_the_majority():
    x = torch.tensor([0.0] * 8 + [1.0, 3.0], dtype=torch.float64)[:, None]
    apart = [r for r in pairwise(x) if r > 0]
    assert lower_median(pairwise(x)) == 0
    assert Gaussian("median").calibrate(x).bandwidth == pytest.approx(lower_median(apart), rel=1e-12)
    assert Gaussian("median").calibrate(torch.zeros_like(x)).bandwidth == 1.0


def test_median_of_many_rows_comes_from_a_subsample_of_two_thousand():
    x = torch.randn(2_300, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    gaps = np.abs(x.numpy() - x.numpy().T)[np.triu_indices(len(x), 1)]
    drawn = [
        Gaussian("median").calibrate(x, generator=g).bandwidth
        for g in (None, None, torch.Generator().manual_seed(1))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn == pytest.approx([np.median(gaps)] * 3, rel=0.02)


def covariance(x, w):
    mean = w @ x
    return (w[:, None] * (x - mean)).T @ (x - mean)


@pytest.mark.parametrize("weighted", [False, True])
def test_scale_free_is_twice_the_total_variance(weighted):
    x = sample(11, 6)
    w = torch.rand(11, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    w = w / w.sum() if weighted else None
    plain = np.full(11, 1 / 11) if w is None else w.numpy()
    expected = math.sqrt(2 * np.trace(covariance(x.numpy(), plain)))
    assert Gaussian("scale-free").bind(x, w).bandwidth.item() == pytest.approx(expected, rel=1e-12)
    # The mean squared distance between two rows drawn independently is the same number.
    rows = x.tolist()
    squared = sum(
        plain[i] * plain[j] * norm(minus(rows[i], rows[j])) ** 2 for i in range(11) for j in range(11)
    )
    assert expected**2 == pytest.approx(squared, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_whitened_inner_products_are_those_of_the_inverse_covariance(weighted):
    x = sample(14, 8) @ T + 3.0
    w = torch.rand(14, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    w = w / w.sum() if weighted else None
    plain = np.full(14, 1 / 14) if w is None else w.numpy()
    centred = x.numpy() - plain @ x.numpy()
    expected = centred @ np.linalg.inv(covariance(x.numpy(), plain)) @ centred.T
    actual = Linear(whiten=True).bind(x, w).gram(x, x)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-10, atol=1e-10)
    transform = Gaussian(1.0, whiten=True).bind(x, w).whiten.numpy()
    np.testing.assert_allclose(covariance(x.numpy() @ transform, plain), np.eye(3), atol=1e-10)


def test_median_of_a_whitened_kernel_is_taken_on_whitened_rows():
    x = sample(13, 10) @ T
    C = np.linalg.inv(covariance(x.numpy(), np.full(13, 1 / 13)))
    rows = x.numpy()
    apart = [math.sqrt((rows[i] - rows[j]) @ C @ (rows[i] - rows[j])) for i in range(13) for j in range(i)]
    kernel = Gaussian("median", whiten=True).calibrate(x)
    assert kernel.bandwidth == pytest.approx(lower_median(apart), rel=1e-10)
    assert kernel.whiten is True


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("equal", [3, 30], ids=["few are close", "most are close"])
def test_distances_by_a_product_are_those_of_pairs_one_by_one(dtype, equal):
    x = torch.randn((2, 40, 20), generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 5.0
    x[:, 1:equal] = x[:, :1] + 1e-3 * x[:, 1:equal]  # far closer than a product can tell
    x[:, equal] = x[:, 0]
    x = x.to(dtype)
    expected = (x.double().unsqueeze(-2) - x.double().unsqueeze(-3)).square().sum(dim=-1).sqrt()
    found = distances_by_product(x, x)
    assert distances(x, x).equal(found)  # so wide a sample takes the product
    torch.testing.assert_close(
        Energy().inner(x.double(), found.double()), -0.5 * (expected * found.double()).sum(dim=(-2, -1))
    )
    # In squares eps / CLOSE, so half of it in distances.
    torch.testing.assert_close(
        found.double(), expected, rtol=1e-11 if dtype == torch.float64 else 2e-4, atol=0
    )
    assert (found[:, 0, equal] == 0).all()


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_matern_has_the_gradient_of_its_differences_also_at_equal_rows(nu):
    x, b = sample(6, 2), sample(4, 3)
    b[0] = x[0]
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: Matern(0.9, nu=nu).gram(rows, b), x)
    assert torch.autograd.gradcheck(lambda rows: Matern("scale-free", nu=nu).bind(rows).gram(rows, rows), x)


def test_matern_of_another_smoothness_is_refused():
    with pytest.raises(ValueError, match=r"^'nu' must be 1\.5 or 2\.5\. Got 0\.5\. For 0\.5 use Laplace\."):
        Matern(nu=0.5)


@pytest.mark.parametrize("columns", [2, 6])
def test_a_product_of_gaussians_can_be_mapped_over_models(columns):
    x = torch.randn(3, 9, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    product = OnColumns(Gaussian(1.0), (0,)) * OnColumns(Gaussian(2.0), tuple(range(1, columns)))
    mapped = torch.func.vmap(lambda one: product.gram(one, one))(x)
    assert torch.allclose(mapped, product.gram(x, x), rtol=1e-14)


def test_a_product_of_gaussians_takes_one_exponential_and_is_the_same_product():
    x = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[0, 0] = 1e6  # an outlier must not cost the others their digits
    parts = [OnColumns(Gaussian(0.5 + j), (j,)) for j in range(3)]
    product = parts[0] * parts[1] * parts[2]
    wanted = math.prod(part.gram(x, x) for part in parts)
    assert torch.allclose(product.gram(x, x), wanted, rtol=1e-13, atol=1e-16)
    assert torch.equal(product.tiles(x)(slice(0, 7), slice(5, 40)), product.gram(x[:7], x[5:]))
    z = x.clone().requires_grad_()
    twin = x.clone().requires_grad_()
    product.gram(z, z).square().sum().backward()
    math.prod(part.gram(twin, twin) for part in parts).square().sum().backward()
    assert torch.allclose(z.grad, twin.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 1_000, 500_001])
@pytest.mark.parametrize("tied", [False, True])
def test_the_median_sought_near_a_guess_is_the_lower_median(n, tied):
    r = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    r = (4 * r).floor() if tied else r
    assert torch.equal(_lower_median(r), r.median())
    rising = r.sort().values
    assert torch.equal(_lower_median(rising), r.median())


def test_wide_rows_have_no_thin_factor_and_a_hundred_categories_have():
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(3_000, 30, dtype=torch.float64, generator=generator)
    assert _pivoted(Gaussian(3.0), wide, 128) is None
    codes = torch.randint(100, (3_000, 2), generator=generator).double()
    codes[:, 1] = codes[:, 0]
    F, _ = _pivoted(Delta(), codes, 128)
    assert F.shape[1] == 100
    assert torch.allclose(F @ F.mT, Delta().gram(codes, codes))


# ---- ranks


def mid_ranks(x, w):
    return np.array([w[x < a].sum() + 0.5 * w[x == a].sum() for a in x]) / w.sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_ranks_are_the_middle_of_the_ranks_of_equal_values(weighted):
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(18, 30, 200), np.exp(5.0 * rng.normal(size=200))])
    w = rng.uniform(0.1, 2.0, 200) if weighted else np.ones(200)
    ranks = np.column_stack([mid_ranks(column, w) for column in x.T])
    wanted = np.exp(-((ranks[:, None] - ranks[None]) ** 2).sum(axis=-1) / (2.0 * 0.1**2))
    rows, weights = torch.from_numpy(x), torch.from_numpy(w) if weighted else None
    kernel = OnRanks(Gaussian(0.1))
    for fixed in (kernel.bind(rows, weights), kernel.calibrate(rows, weights=weights)):
        np.testing.assert_allclose(fixed.gram(rows, rows).numpy(), wanted, rtol=1e-9)


def test_of_many_values_ranks_are_interpolated_and_beyond_them_they_stay():
    rng = np.random.default_rng(0)
    x = np.exp(3.0 * rng.normal(size=20_000))
    kernel = OnRanks(Linear()).calibrate(torch.from_numpy(x)[:, None])
    found = kernel._take(torch.from_numpy(x)[:, None])[:, 0].numpy()
    assert np.abs(found - mid_ranks_fast(x)).max() < 2.0 / 1_024
    new = torch.tensor([[-5.0], [x.min() / 2], [x.max() * 9]], dtype=torch.float64)
    np.testing.assert_allclose(kernel._take(new)[:, 0], [0.5 / 20_000] * 2 + [1 - 0.5 / 20_000], rtol=1e-6)


def mid_ranks_fast(x):
    return (np.argsort(np.argsort(x)) + 0.5) / len(x)
