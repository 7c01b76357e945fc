"""HSIC and distance covariance against their published definitions, by loops and explicit matrices."""

import json
import math
import subprocess
import sys
from itertools import permutations, product

import numpy as np
import pytest
import torch

from frhsic.data import Sensitive
from frhsic.dependence import HSIC, DistanceCovariance
from frhsic.kernels import Delta, Energy, Gaussian, InverseMultiquadric, Laplace, Linear
from frhsic.numerics._lowrank import pivoted_factor
from frhsic.numerics._tiles import factored_hsic
from tests.covering import cover

CLOSE = {"rel": 1e-10, "abs": 1e-14}


def gram(k, x):
    rows = x.tolist()
    return np.array([[k(np.array(a), np.array(b)) for b in rows] for a in rows])


def gaussian(sigma):
    return lambda a, b: math.exp(-((a - b) @ (a - b)) / (2 * sigma**2))


# Each pair: the kernel, and the same similarity written down again.
KERNELS = {
    "gaussian": (Gaussian(0.8), gaussian(0.8)),
    "laplace": (Laplace(1.4), lambda a, b: math.exp(-np.linalg.norm(a - b) / 1.4)),
    "imq": (InverseMultiquadric(0.9), lambda a, b: (1 + (a - b) @ (a - b) / 0.81) ** -0.5),
    "linear": (Linear(), lambda a, b: a @ b),
    "energy": (
        Energy(),
        lambda a, b: (np.linalg.norm(a) + np.linalg.norm(b) - np.linalg.norm(a - b)) / 2,
    ),
    "sum": (Linear() + 0.5 * Gaussian(1.2), lambda a, b: a @ b + 0.5 * gaussian(1.2)(a, b)),
    "product": (Gaussian(1.0) * Gaussian(2.0), lambda a, b: gaussian(1.0)(a, b) * gaussian(2.0)(a, b)),
}


def sample(n, d=2, q=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    s = torch.randn(n, q, dtype=torch.float64, generator=generator)
    z = torch.randn(n, d, dtype=torch.float64, generator=generator)
    z[:, 0] += s[:, 0] ** 2
    w = 0.1 + torch.rand(n, dtype=torch.float64, generator=generator)
    return z, s, w


def hsic_biased(K, L, w):
    n = len(w)
    H = np.eye(n) - np.outer(np.ones(n), w)
    Kt, Lt = H @ K @ H.T, H @ L @ H.T
    return sum(w[i] * w[j] * Kt[i, j] * Lt[i, j] for i in range(n) for j in range(n))


def hsic_u_statistic(K, L):
    """Song et al. (2012): the mean over ordered quadruples of distinct rows."""
    n = len(K)
    terms = [
        K[i, j] * L[i, j] + K[i, j] * L[q, r] - 2 * K[i, j] * L[i, q]
        for i, j, q, r in permutations(range(n), 4)
    ]
    return sum(terms) / len(terms)


def hsic_unbiased(K, L):
    """Song et al. (2012): the same number by matrices without their diagonals."""
    n, one = len(K), np.ones(len(K))
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    cross = one @ K @ L @ one
    total = (one @ K @ one) * (one @ L @ one)
    trace = np.einsum("ij,ji->", K, L)
    return (trace + total / ((n - 1) * (n - 2)) - 2 * cross / (n - 2)) / (n * (n - 3))


def finished(zs, zz, ss, normalized, root):
    value = zs / math.sqrt(zz * ss) if normalized else zs
    return math.copysign(math.sqrt(abs(value)), value) if root else value


@pytest.mark.parametrize(
    ("name", "weighted", "normalized", "root", "block_size"),
    list(cover(KERNELS, (False, True), (False, True), (False, True), (None, 4))),
)
def test_biased_hsic_is_the_sum_of_products_of_centred_entries(name, weighted, normalized, root, block_size):
    kernel, k = KERNELS[name]
    z, s, w = sample(9)
    weights = w.numpy() / w.sum().item() if weighted else np.full(9, 1 / 9)
    K, L = gram(k, z), gram(gaussian(0.6), s)
    expected = finished(*(hsic_biased(A, B, weights) for A, B in ((K, L), (K, K), (L, L))), normalized, root)
    measure = HSIC(kernel, Gaussian(0.6), normalized=normalized, root=root, block_size=block_size)
    assert measure(z, s, w if weighted else None).item() == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize(
    ("name", "normalized", "root", "block_size"),
    list(cover(KERNELS, (False, True), (False, True), (None, 3))),
)
def test_unbiased_hsic_is_the_matrix_formula(name, normalized, root, block_size):
    kernel, k = KERNELS[name]
    z, s, _ = sample(10, q=2, seed=1)
    K, L = gram(k, z), gram(gaussian(0.9), s)
    expected = finished(*(hsic_unbiased(A, B) for A, B in ((K, L), (K, K), (L, L))), normalized, root)
    measure = HSIC(
        kernel, Gaussian(0.9), estimator="unbiased", normalized=normalized, root=root, block_size=block_size
    )
    assert measure(z, s).item() == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize(("name", "n"), list(cover(KERNELS, (4, 7))))
def test_unbiased_hsic_is_the_u_statistic_over_distinct_quadruples(name, n):
    kernel, k = KERNELS[name]
    z, s, _ = sample(n, seed=n)
    K, L = gram(k, z), gram(gaussian(0.7), s)
    expected = hsic_u_statistic(K, L)
    assert hsic_unbiased(K, L) == pytest.approx(expected, rel=1e-9, abs=1e-13)
    actual = HSIC(kernel, Gaussian(0.7), estimator="unbiased")(z, s).item()
    assert actual == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_default_kernels_are_medians_of_each_column_and_agreement_of_categories():
    z, s, _ = sample(12, q=2, seed=3)
    codes = torch.tensor([0, 1, 2] * 4, dtype=torch.float64)[:, None]
    mixed = Sensitive(
        torch.cat([s, codes], dim=1), ("a", "b", "c"), ("continuous", "continuous", "categorical")
    )

    def median(x):
        rows = x.numpy()
        r = sorted(np.linalg.norm(rows[i] - rows[j]) for i in range(12) for j in range(i))
        return r[(len(r) - 1) // 2]

    K = gram(gaussian(median(z)), z)
    L = gram(gaussian(median(s[:, :1])), s[:, :1]) * gram(gaussian(median(s[:, 1:])), s[:, 1:])
    L = L * gram(lambda a, b: float(a[0] == b[0]), codes)
    expected = hsic_biased(K, L, np.full(12, 1 / 12))
    assert HSIC()(z, mixed).item() == pytest.approx(expected, **CLOSE)
    assert HSIC().calibrate(z, mixed)(z, mixed).item() == pytest.approx(expected, **CLOSE)


def test_scale_free_and_whitened_hsic_use_the_weighted_moments():
    z, s, w = sample(12, d=3, seed=4)
    p = w.numpy() / w.sum().item()
    x = z.numpy() - p @ z.numpy()
    C = (p[:, None] * x).T @ x
    L = gram(gaussian(0.6), s)
    expected = hsic_biased(gram(gaussian(math.sqrt(2 * np.trace(C))), z), L, p)
    assert HSIC(Gaussian("scale-free"), Gaussian(0.6))(z, s, w).item() == pytest.approx(expected, **CLOSE)
    inverse = np.linalg.inv(C)
    whitened = gram(lambda a, b: math.exp(-((a - b) @ inverse @ (a - b)) / (2 * 1.5**2)), z)
    actual = HSIC(Gaussian(1.5, whiten=True), Gaussian(0.6))(z, s, w).item()
    assert actual == pytest.approx(hsic_biased(whitened, L, p), rel=1e-9)


def normal_cdf(t):
    return 0.5 * math.erfc(-t / math.sqrt(2))


def uniform_weights(s, kinds, w):
    """Density by loops: Silverman's bandwidth, boundary correction; weights clipped at ten times the mean."""
    n, q = s.shape
    density = [0.0] * n
    h = []
    for j in range(q):
        mean = sum(w[i] * s[i, j] for i in range(n))
        sd = math.sqrt(sum(w[i] * (s[i, j] - mean) ** 2 for i in range(n)))
        h.append(1.06 * sd * n**-0.2)
    for i in range(n):
        for m in range(n):
            near = w[m]
            for j in range(q):
                if kinds[j] == "continuous":
                    near *= math.exp(-((s[i, j] - s[m, j]) ** 2) / (2 * h[j] ** 2))
                else:
                    near *= s[i, j] == s[m, j]
            density[i] += near
        for j in range(q):
            if kinds[j] == "continuous":
                low, high = s[:, j].min(), s[:, j].max()
                density[i] /= normal_cdf((high - s[i, j]) / h[j]) - normal_cdf((low - s[i, j]) / h[j])
    raw = [1 / f for f in density]
    limit = 10 * sum(w[i] * raw[i] for i in range(n))
    weighted = [w[i] * min(raw[i], limit) for i in range(n)]
    return np.array([v / sum(weighted) for v in weighted])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kinds", [("continuous",), ("continuous", "categorical")])
def test_uniform_reference_weighs_rows_by_one_over_the_density(kinds, weighted):
    n = 30
    z, s, w = sample(n, seed=5)
    if len(kinds) == 2:
        s = torch.cat([s, (torch.arange(n) % 2).to(s)[:, None]], dim=1)
    sensitive = Sensitive(s, tuple("ab"[: len(kinds)]), kinds)
    base = w.numpy() / w.sum().item() if weighted else np.full(n, 1 / n)
    p = uniform_weights(s.numpy(), kinds, base)
    L = gram(gaussian(0.6), s)
    expected = hsic_biased(gram(gaussian(0.8), z), L, p)
    measure = HSIC(Gaussian(0.8), Gaussian(0.6), reference="uniform")
    weights = w if weighted else None
    assert measure(z, sensitive, weights).item() == pytest.approx(expected, **CLOSE)
    assert measure.effective_rows(sensitive, weights) == pytest.approx(1 / (p**2).sum(), rel=1e-10)
    plain = HSIC(Gaussian(0.8), Gaussian(0.6))
    assert plain.effective_rows(sensitive, weights) == pytest.approx(1 / (base**2).sum(), rel=1e-10)


def test_uniform_reference_clips_at_ten_times_the_mean_weight():
    s = torch.cat([torch.zeros(199), torch.ones(1)]).double()[:, None]
    codes = Sensitive(s, ("s",), ("categorical",))
    z = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None]
    # Unclipped, both categories weigh one half. The rare one has raw weight 200 against 200 / 199, mean 2.
    raw = np.where(s.numpy()[:, 0] == 1, 200.0, 200 / 199)
    p = np.minimum(raw, 10 * raw.mean())
    p = p / p.sum()
    assert p[-1] == pytest.approx(20 / 220)
    expected = hsic_biased(gram(gaussian(0.5), z), gram(lambda a, b: float(a[0] == b[0]), s), p)
    actual = HSIC(Gaussian(0.5), reference="uniform")(z, codes).item()
    assert actual == pytest.approx(expected, **CLOSE)


def distances(x, metric=lambda a, b: np.linalg.norm(a - b)):
    rows = x.tolist()
    return np.array([[metric(np.array(a), np.array(b)) for b in rows] for a in rows])


def double_centred(D, w):
    n = len(D)
    row = [sum(w[j] * D[i, j] for j in range(n)) for i in range(n)]
    total = sum(w[i] * row[i] for i in range(n))
    return np.array([[D[i, j] - row[i] - row[j] + total for j in range(n)] for i in range(n)])


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(
    ("root", "weighted", "block_size"),
    [(False, False, None), (True, True, None), (True, False, 4), (False, True, 4)],
)
def test_distance_covariance_is_the_product_of_double_centred_distances(
    root, normalized, weighted, block_size
):
    z, s, w = sample(10, d=3, q=2, seed=6)
    p = w.numpy() / w.sum().item() if weighted else np.full(10, 0.1)
    A, B = double_centred(distances(z), p), double_centred(distances(s), p)
    parts = [
        sum(p[i] * p[j] * X[i, j] * Y[i, j] for i in range(10) for j in range(10))
        for X, Y in ((A, B), (A, A), (B, B))
    ]
    measure = DistanceCovariance(normalized=normalized, root=root, block_size=block_size)
    actual = measure(z, s, w if weighted else None).item()
    assert actual == pytest.approx(finished(*parts, normalized, root), **CLOSE)


# In a process of its own: importing dcor compiles for seconds and changes the number of threads of torch.
DCOR = """
import json, sys
import dcor, numpy
plain = dcor.CompileMode.NO_COMPILE  # compiling takes a minute
answers = []
for x, y in json.load(sys.stdin):
    x, y = numpy.array(x), numpy.array(y)
    answers.append({name: float(getattr(dcor, name)(x, y, compile_mode=plain)) for name in sys.argv[1:]})
print(json.dumps(answers))
"""


def test_distance_covariance_is_that_of_dcor():
    measures = {
        "distance_covariance_sqr": DistanceCovariance(),
        "distance_covariance": DistanceCovariance(root=True),
        "distance_correlation_sqr": DistanceCovariance(normalized=True),
        "distance_correlation": DistanceCovariance(normalized=True, root=True),
        "u_distance_covariance_sqr": DistanceCovariance(estimator="unbiased"),
        "u_distance_correlation_sqr": DistanceCovariance(estimator="unbiased", normalized=True),
    }
    samples = [sample(40, d=3, q=q, seed=7)[:2] for q in (1, 2)]
    samples.append(sample(700, d=1, q=1, seed=7)[:2])  # in n log n, here and there
    answer = subprocess.run(
        [sys.executable, "-c", DCOR, *measures],
        input=json.dumps([[z.tolist(), s.tolist()] for z, s in samples]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    for (z, s), theirs in zip(samples, json.loads(answer.stdout), strict=True):
        for name, measure in measures.items():
            assert measure(z, s).item() == pytest.approx(theirs[name], rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kinds", [("continuous",), ("categorical",), ("categorical", "categorical")])
def test_sorted_distance_covariance_is_that_of_all_pairs(kinds, weighted):
    z, s, w = sample(600, d=1, q=len(kinds), seed=10)
    s = Sensitive(s.round() if "categorical" in kinds else s, tuple("ab"[: len(kinds)]), kinds)
    z = torch.stack((z, (z + 1e5).round(decimals=1))) + s.values[:, :1].square()
    w = w if weighted else None
    for estimator, normalized, root, whiten in product(("biased", "unbiased"), *[(False, True)] * 3):
        if weighted and estimator == "unbiased":
            continue
        options = {"estimator": estimator, "normalized": normalized, "root": root, "whiten": whiten}
        pairs = DistanceCovariance(**options, block_size=256)(z, s, w)
        torch.testing.assert_close(DistanceCovariance(**options)(z, s, w), pairs, rtol=1e-9, atol=1e-13)


def test_distance_covariance_of_whitened_z_is_that_of_mahalanobis_distances():
    z, s, _ = sample(20, d=3, seed=8)
    inverse = np.linalg.inv(np.cov(z.numpy().T, bias=True))
    p = np.full(20, 1 / 20)
    A = double_centred(distances(z, lambda a, b: math.sqrt((a - b) @ inverse @ (a - b))), p)
    B = double_centred(distances(s), p)
    assert DistanceCovariance(whiten=True)(z, s).item() == pytest.approx((A * B).mean(), rel=1e-9)


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_distance_covariance_of_categories_uses_the_discrete_metric(estimator):
    z, _, _ = sample(15, d=2, seed=9)
    codes = torch.tensor([[i % 3, i % 2] for i in range(15)], dtype=torch.float64)
    s = Sensitive(codes, ("a", "b"), ("categorical", "categorical"))
    discrete = distances(codes, lambda a, b: float((a != b).any()))
    if estimator == "biased":
        p = np.full(15, 1 / 15)
        expected = (double_centred(distances(z), p) * double_centred(discrete, p)).mean()
    else:
        # On distances the U-statistic of HSIC is the unbiased squared distance covariance.
        expected = hsic_unbiased(distances(z), discrete)
    assert DistanceCovariance(estimator=estimator)(z, s).item() == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("n", [40, 300])
@pytest.mark.parametrize("kernel", [Gaussian(2.0), Linear(), Delta(), Gaussian(4.0) * Gaussian(3.0)])
def test_pivoted_factor_times_its_transpose_is_the_gram_matrix(kernel, n):
    x = torch.linspace(-1, 1, n, dtype=torch.float64)[:, None]
    x = x.round() if isinstance(kernel, Delta) else x
    F = pivoted_factor(kernel, x)
    L = kernel.gram(x, x)
    assert F.shape[0] == n
    assert F.shape[1] <= max(8, n // 4)
    assert (L - F @ F.mT).diagonal().sum().item() <= 2e-12 * L.diagonal().sum().item()
    torch.testing.assert_close(F @ F.mT, L, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", [Laplace(0.1), Gaussian(0.001)])
def test_pivoted_factor_declines_a_gram_matrix_of_full_rank(kernel):
    x = torch.linspace(-1, 1, 100, dtype=torch.float64)[:, None]
    assert torch.linalg.matrix_rank(kernel.gram(x, x)) == 100
    assert pivoted_factor(kernel, x) is None


# Thin factors: one column, no gradients, more rows than a tile


def whole_hsic(z, s, w, sigma_z, sigma_s, normalized):
    """The definition with explicit matrices; w None is the U-statistic."""

    def gaussian_matrix(x, sigma):
        return np.exp(-((x[:, None] - x[None]) ** 2) / (2 * sigma**2))

    K, L = gaussian_matrix(z, sigma_z), gaussian_matrix(s, sigma_s)
    if w is None:
        zs, zz, ss = (hsic_unbiased(A, B) for A, B in ((K, L), (K, K), (L, L)))
    else:
        Kt, Lt = (M - (M @ w)[:, None] - (w @ M)[None] + w @ M @ w for M in (K, L))
        zs, zz, ss = (w @ (A * B) @ w for A, B in ((Kt, Lt), (Kt, Kt), (Lt, Lt)))
    return zs / math.sqrt(zz * ss) if normalized else zs


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("case", ["biased", "unbiased", "weighted"])
@pytest.mark.parametrize("n", [600, 1_200])
def test_hsic_of_one_column_by_thin_factors_is_the_definition(n, case, normalized):
    z, s, w = sample(n, d=1, seed=n)
    weights = w if case == "weighted" else None
    estimator = "unbiased" if case == "unbiased" else "biased"
    p = None if case == "unbiased" else (torch.ones(n) if weights is None else w).double().numpy()
    p = None if p is None else p / p.sum()
    expected = whole_hsic(z[:, 0].numpy(), s[:, 0].numpy(), p, 0.8, 0.6, normalized)
    kernels = Gaussian(0.8), Gaussian(0.6)
    given = weights if p is None else torch.from_numpy(p)
    found = factored_hsic(z[None], s, given, [kernels[0]], kernels[1], estimator)
    assert found is not None
    ((zs, zz, ss),) = ([x.item() for x in three] for three in found)
    assert finished(zs, zz, ss, normalized, False) == pytest.approx(expected, rel=1e-9)
    measure = HSIC(*kernels, estimator=estimator, normalized=normalized)
    assert measure(z, s, weights).item() == pytest.approx(expected, rel=1e-9)
    stack = torch.stack([z, z.flip(0), 2.0 * z])
    each = [
        whole_hsic(x[:, 0].numpy(), s[:, 0].numpy(), p, 0.8, 0.6, normalized) for x in (z, z.flip(0), 2.0 * z)
    ]
    np.testing.assert_allclose(measure(stack, s, weights).numpy(), each, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("case", ["biased", "unbiased", "weighted"])
@pytest.mark.parametrize(
    ("kernel", "d", "n"),
    list(cover((Gaussian(), Gaussian("scale-free"), Linear(), Laplace(1.0)), (1, 3), (512, 600))),
)
def test_hsic_without_gradients_is_the_one_with_gradients(n, d, case, kernel):
    """Whole, in tiles or by thin factors: above a tile of rows the way differs, the number does not."""
    z, s, w = sample(n, d=d, seed=3)
    estimator = "unbiased" if case == "unbiased" else "biased"
    weights = w if case == "weighted" else None
    for normalized in (False, True):
        measure = HSIC(kernel, estimator=estimator, normalized=normalized)
        stack = torch.stack([z, z.flip(0)])
        with_gradients = measure(stack.clone().requires_grad_(), s, weights).detach()
        np.testing.assert_allclose(measure(stack, s, weights), with_gradients, rtol=1e-9, atol=1e-12)
    calibrated = measure.calibrate(stack, s, weights=weights)
    with_gradients = calibrated(stack.clone().requires_grad_(), s, weights).detach()
    np.testing.assert_allclose(calibrated(stack, s, weights), with_gradients, rtol=1e-9, atol=1e-12)


def test_sides_without_a_thin_factor_are_declined():
    z, s, _ = sample(600, d=1)
    assert factored_hsic(z[None], s, None, [Laplace(0.01)], Gaussian(1.0), "biased") is None
    assert factored_hsic(z[None], s, None, [Gaussian(1.0)], Laplace(0.01), "biased") is None
