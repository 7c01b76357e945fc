"""Section 5 of the paper, "Uniform train-to-population control", and the appendix on uniform concentration.

X and S have finite supports, so that HSIC(h) is a finite sum and HSIC_n(h) is the same sum at the observed
shares of the cells. A sample is then a table of counts, and n = 10^10, where the bound B_n is below the HSIC
it is meant to control, costs no more than n = 10.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from frhsic import HSIC
from frhsic.kernels import Gaussian, Linear

WIDTH_Z, WIDTH_S = 0.8, 0.7  # nu = 1 and ell = 1 / width for a Gaussian kernel


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def gaussian(x, width):
    x = x[..., None] if x.ndim == 1 else x
    return np.exp(-((x[..., :, None, :] - x[..., None, :, :]) ** 2).sum(axis=-1) / (2.0 * width**2))


def plug_in(p, K, L):
    """HSIC of the laws p ``(..., A, B)`` for the Gram matrices K ``(h, A, A)`` and L: shape ``(..., h)``."""
    D = p - p.sum(axis=-1, keepdims=True) * p.sum(axis=-2, keepdims=True)
    return np.einsum("...ac,hac->...h", D @ L @ np.swapaxes(D, -1, -2), K)


def shares(rng, p, n, draws):
    """The observed shares of the cells in samples of n rows, shape ``(draws, A, B)``."""
    return rng.multinomial(n, p.ravel(), size=draws).reshape(draws, *p.shape) / n


def bound(n, delta, complexity, nu_z=1.0, nu_s=1.0, ell_z=1.0 / WIDTH_Z, ell_s=1.0 / WIDTH_S):
    """B_n(H, delta), equation Bn_explicit."""
    return (
        8.0 * math.sqrt(2.0) * nu_z * nu_s * math.sqrt(math.log(2.0 / delta) / n)
        + 4.0 * nu_z * nu_s / n
        + 48.0 * math.sqrt(math.pi) * max(nu_z * ell_s, nu_s * ell_z) * complexity
    )


def finite_class(rng, x, size=12, d=2):
    """Encoders tanh(V x + b) at the points x: values ``(size, A, d)``."""
    V, b = rng.normal(size=(size, x.shape[1], d)), rng.normal(size=(size, 1, d))
    return np.tanh(x @ V + b)


def gaussian_complexity(rng, h, px, n, draws=4000):
    """Monte Carlo of G_n for a finite class: of n rows, those at x_a add N(0, n_a I) to the sum of xi."""
    noise = rng.normal(size=(draws, *h.shape[1:])) * np.sqrt(rng.multinomial(n, px, size=draws))[..., None]
    return (np.einsum("rad,had->rh", noise, h).max(axis=1) / n).mean()


@pytest.fixture
def setting(finite_law):
    """A dependent law of X in R^3 and S, a finite class of encoders, and its Gram matrices."""
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(8, 3)), np.linspace(-1.5, 1.5, 5)
    p = np.exp(-((x[:, :1] - s) ** 2) / 0.5) * rng.uniform(0.5, 1.0, size=(8, 5))
    law = finite_law(x, s, p / p.sum())
    h = finite_class(rng, x)
    return law, h, gaussian(h, WIDTH_Z), gaussian(law.s, WIDTH_S)


def test_hsic_of_rows_is_the_plug_in_of_their_shares(setting):
    """What the simulations below use in place of n rows, for all encoders of the class at once."""
    law, h, K, L = setting
    cells = np.random.default_rng(1).choice(law.p.size, size=60, p=law.p.ravel())
    a, b = np.unravel_index(cells, law.p.shape)
    seen = np.bincount(cells, minlength=law.p.size).reshape(law.p.shape) / 60
    measure = HSIC(Gaussian(WIDTH_Z), Gaussian(WIDTH_S))
    assert measure(tensor(h[:, a]), tensor(law.s[b])).numpy() == pytest.approx(plug_in(seen, K, L), rel=1e-10)
    exact = [law.evaluate(measure, z=values) for values in h]
    assert plug_in(law.p, K, L) == pytest.approx(exact, rel=1e-10)


# Theorem "Uniform concentration of empirical HSIC over the encoder class".


@pytest.mark.parametrize("n", [10**3, 10**10])
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_uniform_bound_holds_for_a_finite_class_of_encoders(setting, n, delta):
    """The share of samples beyond B_n is at most delta; B_n over 10^4 is exceeded too often.

    At n = 10^3 the bound is above 1, the largest value of HSIC; at 10^10 it is below what it controls. B_n is
    some 2000 times the median of the supremum here.
    """
    law, h, K, L = setting
    rng = np.random.default_rng(2)
    population = plug_in(law.p, K, L)
    B = bound(n, delta, gaussian_complexity(rng, h, law.pz, n))
    assert (B > 1.0) if n == 10**3 else (np.median(population) > 10.0 * B)
    worst = np.abs(plug_in(shares(rng, law.p, n, 2000), K, L) - population).max(axis=1)
    assert (worst > B).mean() <= delta
    assert (worst > B / 1e4).mean() > delta


def test_uniform_bound_holds_for_bounded_linear_encoders(setting):
    """|W|_F <= R by a net of the disc that resolves the supremum, with G_n <= R M sqrt(d_z / n)."""
    law, _, _, L = setting
    x = law.z[:, :2]
    n, R, M, delta = 10**10, 1.5, np.linalg.norm(x, axis=1).max(), 0.05

    def worst(radii, angles):
        r, t = np.meshgrid(R * np.linspace(0.0, 1.0, radii + 1)[1:], np.linspace(0.0, np.pi, angles))
        W = np.stack([r * np.cos(t), r * np.sin(t)], axis=-1).reshape(-1, 2)  # W and -W give the same HSIC
        K = gaussian((W @ x.T)[..., None], WIDTH_Z)
        p = shares(np.random.default_rng(3), law.p, n, 200)
        population = plug_in(law.p, K, L)
        return np.abs(plug_in(p, K, L) - population).max(axis=1), population

    (coarse, _), (fine, population) = worst(16, 48), worst(24, 96)
    assert coarse == pytest.approx(fine, rel=0.05)
    B = bound(n, delta, R * M / math.sqrt(n))
    assert population.max() > 2.0 * B
    assert (fine > B).mean() <= delta
    assert (fine > B / 1e4).mean() > delta


@pytest.mark.parametrize("name", ["gaussian", "imq"])
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_lipschitz_condition_holds_with_one_over_the_bandwidth(twin, name, sigma):
    """Assumption of the theorem for Gaussian and inverse multiquadric kernels; the constant is attained."""
    r = np.geomspace(1e-4, 1e2, 200)
    value = twin(name, sigma).gram(np.zeros(1), r)[0]
    slopes = np.sqrt(2.0 - 2.0 * value) / r
    assert slopes.max() <= (1.0 + 1e-6) / sigma
    assert slopes.max() == pytest.approx(1.0 / sigma, rel=1e-3)


def test_lipschitz_condition_excludes_the_laplace_kernel(twin):
    """|phi(z) - phi(z')| is of the order of |z - z'|^(1/2) there: the theorem does not speak of it."""
    slopes = [
        np.sqrt(2.0 - 2.0 * twin("laplace").gram(np.zeros(1), np.full(1, r))[0, 0]) / r for r in (1e-2, 1e-4)
    ]
    assert slopes[1] == pytest.approx(10.0 * slopes[0], rel=0.01)


def test_uniform_bound_as_written_fails_for_a_kernel_with_values_above_one():
    """The complexity term lacks the factor nu_z^(1/2): it must be homogeneous in the kernel, as HSIC is.

    X is uniform on [0, 1] and independent of S = -a, a, so HSIC(h) = 0 for every h. H holds all functions
    from [0, 1] to [-r, r]; one of them is r S / a on the (distinct) rows of a sample. With k_z = c^2 times a
    Gaussian kernel, c large, and S in small units (a large), B_n / c^2 tends to its first two terms, as if H
    were a single encoder. With nu_s nu_z^(1/2) ell_z in the last term the bound holds here.
    """
    n, delta, c, a, r = 10_000, 0.05, 1e6, 1e6, 3.0 * WIDTH_Z
    width_s = a / 3.0
    complexity = r * math.sqrt(2.0 / math.pi)  # the supremum over H is r times the mean of |xi_i|
    measure = HSIC(c**2 * Gaussian(WIDTH_Z), Gaussian(width_s))
    written = bound(n, delta, complexity, nu_z=c**2, ell_z=c / WIDTH_Z, ell_s=1.0 / width_s)
    mended = bound(n, delta, complexity, nu_z=c**2, ell_z=math.sqrt(c**2) * c / WIDTH_Z, ell_s=1.0 / width_s)
    for positive in np.random.default_rng(4).binomial(n, 0.5, size=50):
        w = tensor([n - positive, positive])
        deviation = measure(tensor([-r, r]), tensor([-a, a]), w).item()  # minus HSIC(h) = 0
        assert written < deviation < mended


# The two terms beside the complexity: the deviation and the bias.


def tables(n, cells):
    """All tables of counts with the sum n, ``(N, cells)``."""
    bars = np.array(list(itertools.combinations(range(n + cells - 1), cells - 1)))
    edges = np.column_stack([np.full(len(bars), -1), bars, np.full(len(bars), n + cells - 1)])
    return np.diff(edges, axis=1) - 1


def expectation(p, n, K, L):
    """E[HSIC_n] over all samples of n rows from p, by enumeration."""
    counts = tables(n, p.size)
    log_factorial = np.array([math.lgamma(i + 1.0) for i in range(n + 1)])
    chance = np.exp(log_factorial[n] - log_factorial[counts].sum(axis=1) + counts @ np.log(p.ravel()))
    assert chance.sum() == pytest.approx(1.0, rel=1e-10)
    return chance @ plug_in(counts.reshape(-1, *p.shape) / n, K[None], L)[:, 0]


@pytest.mark.parametrize("name", ["gaussian", "delta", "linear"])
@pytest.mark.parametrize("n", [2, 5, 11])
def test_bias_is_at_most_four_over_n(twin, n, name):
    """The term 4 nu_z nu_s / n of B_n bounds |E HSIC_n - HSIC|, exactly, on random laws with six cells."""
    rng = np.random.default_rng(5)
    z, s = np.array([-1.0, 0.3, 1.0]), np.array([-1.0, 1.0])
    K, L = twin(name).gram(z, z), twin(name).gram(s, s)
    for concentration in np.repeat([0.2, 1.0, 5.0], 10):
        p = (rng.dirichlet(np.full(6, concentration)) + 1e-9).reshape(3, 2)
        p /= p.sum()
        bias = expectation(p, n, K, L) - plug_in(p, K[None], L)[0]
        assert abs(bias) <= 4.0 / n


def test_bias_term_needs_a_constant_of_two():
    """Z = S = -1, 1 with linear kernels, nu = 1: the bias tends to -2 / n, half of the theorem's term."""
    K = np.array([[1.0, -1.0], [-1.0, 1.0]])
    p = np.diag([0.5, 0.5]) + 1e-15
    scaled = [n * (expectation(p, n, K, K) - 1.0) for n in (10, 20, 40)]
    assert scaled == sorted(scaled, reverse=True)
    assert scaled[-1] == pytest.approx(-2.0, rel=0.05)


@pytest.mark.parametrize("n", [2, 6, 12])
def test_bias_at_independence_is_known_exactly(twin, n):
    """E HSIC_n = (n - 1) / n^2 (1 - E k)(1 - E l) for independent Z and S and kernels with k(x, x) = 1."""
    z, s = np.array([-1.0, 0.2, 0.7]), np.array([0.0, 1.5])
    pz, ps = np.array([0.5, 0.2, 0.3]), np.array([0.4, 0.6])
    K, L = twin("gaussian", 0.9).gram(z, z), twin("laplace", 0.7).gram(s, s)
    exact = (n - 1) / n**2 * (1.0 - pz @ K @ pz) * (1.0 - ps @ L @ ps)
    assert expectation(np.outer(pz, ps), n, K, L) == pytest.approx(exact, rel=1e-9)


def test_bias_has_the_leading_term_of_its_expansion(twin):
    """n (E HSIC_n - HSIC) tends to E[k~(Z, Z) l~(S, S)] - 3 HSIC, with both kernels centred under P."""
    z, s = np.array([-1.0, 0.7]), np.array([0.0, 1.5])
    p = np.array([[0.4, 0.1], [0.15, 0.35]])
    K, L = twin("gaussian", 0.9).gram(z, z), twin("gaussian", 0.7).gram(s, s)
    H_z, H_s = np.eye(2) - p.sum(axis=1), np.eye(2) - p.sum(axis=0)
    hsic = plug_in(p, K[None], L)[0]
    limit = np.diag(H_z @ K @ H_z.T) @ p @ np.diag(H_s @ L @ H_s.T) - 3.0 * hsic
    errors = [n * (expectation(p, n, K, L) - hsic) / limit - 1.0 for n in (2, 8, 64)]
    assert abs(errors[0]) > 0.1
    assert abs(errors[1]) < 0.03
    assert abs(errors[2]) < 0.001


# Corollary "Root-n rate under controlled encoder complexity".


def test_uniform_deviation_is_of_the_order_of_one_over_root_n(setting):
    """Sixteen times the rows give a quarter of the supremum: the rate is reached, and no better one holds."""
    law, _, K, L = setting
    rng = np.random.default_rng(6)
    population = plug_in(law.p, K, L)
    sizes = [500, 8_000, 128_000]
    worst = [np.abs(plug_in(shares(rng, law.p, n, 1500), K, L) - population).max(axis=1) for n in sizes]
    for quantile in (0.5, 0.95):
        q = [np.quantile(w, quantile) for w in worst]
        assert [q[0] / q[1], q[1] / q[2]] == pytest.approx([4.0] * 2, rel=0.12)


def test_uniform_deviation_at_independence_is_of_the_order_of_one_over_n(setting):
    """The statistic is degenerate there: sixteen times the rows give a sixteenth, which B_n does not know."""
    law, _, K, L = setting
    rng = np.random.default_rng(7)
    p = law.independent.p
    assert np.abs(plug_in(p, K, L)).max() < 1e-15
    q = [np.median(plug_in(shares(rng, p, n, 1500), K, L).max(axis=1)) for n in (500, 8_000, 128_000)]
    assert [q[0] / q[1], q[1] / q[2]] == pytest.approx([16.0] * 2, rel=0.12)


def test_root_n_corollary_bound_falls_like_one_over_root_n_for_linear_encoders():
    """B_n n^(1/2) has a finite limit for G_n = R M (d_z / n)^(1/2), reached from above."""
    scaled = [bound(n, 0.05, 2.0 * math.sqrt(3.0 / n)) * math.sqrt(n) for n in (10**2, 10**4, 10**10)]
    assert scaled == sorted(scaled, reverse=True)
    assert scaled[0] - scaled[2] == pytest.approx(4.0 / 10.0, rel=1e-3)  # the bias term alone


# Corollary "Population HSIC control for the learned encoder".

COLUMNS, LEVELS = 24, np.array([-1.0, 0.0, 1.0])
UP = np.array([0.2, 0.5, 0.8])  # P(X_j = 1 | S)


def columns(rng, n, draws):
    """Samples of 24 columns X_j in {0, 1} that are independent given S and all alike, as shares.

    The encoders h_j(x) = x_j have the same HSIC in the population; samples differ. Shape (draws, 24, 2, 3).
    """
    n_s = rng.multinomial(n, np.full(3, 1.0 / 3.0), size=draws)
    ones = rng.binomial(n_s[:, None], UP, size=(draws, COLUMNS, 3))
    return np.stack([n_s[:, None] - ones, ones], axis=2) / n


def optimism(n, draws, seed=8):
    """HSIC(h) and HSIC_n(h) for every column and sample."""
    K, L = gaussian(np.array([0.0, 1.0]), WIDTH_Z)[None], gaussian(LEVELS, WIDTH_S)
    population = plug_in(np.stack([1.0 - UP, UP]) / 3.0, K, L)[0]
    return population, plug_in(columns(np.random.default_rng(seed), n, draws), K, L)[..., 0]


def test_learned_encoder_looks_better_on_its_sample_than_it_is():
    """Each fixed encoder is judged without favour on average; the minimiser of HSIC_n is underrated."""
    population, sample = optimism(n=2_000, draws=4_000)
    error = sample - population
    limit = np.quantile(sample[:2000], 0.05)  # what a fixed encoder's HSIC_n falls below with chance 5 %
    fixed, chosen = sample[2000:, 0], sample[2000:].min(axis=1)
    assert abs(error[:, 0].mean()) < 0.02 * population
    assert (chosen - population).mean() < -0.1 * population
    assert (fixed < limit).mean() == pytest.approx(0.05, abs=0.015)
    assert (chosen < limit).mean() > 0.4  # pointwise concentration is not enough


@pytest.mark.parametrize("n", [10**3, 10**10])
def test_learned_encoder_obeys_the_corollary(n):
    """HSIC(h^) <= HSIC_n(h^) + B_n; without B_n it fails for most samples. B_n is below HSIC at n = 10^10."""
    delta = 0.05
    population, sample = optimism(n, draws=1_000)
    chosen = sample.min(axis=1)
    # |h| <= 1 in R^1: the mean of the largest of 24 normal numbers of variance 1 / n is at most this.
    B = bound(n, delta, math.sqrt(2.0 * math.log(COLUMNS) / n))
    assert (population > chosen + B).mean() <= delta
    assert (population > chosen).mean() > 0.9
    assert (population > 2.0 * B) == (n == 10**10)


def test_learned_encoder_is_underrated_by_the_order_of_one_over_root_n():
    """Corollary "Root-n rate", its last clause: the optimism of the minimiser falls at that rate."""
    optimisms = []
    for n in (8_000, 128_000):
        population, sample = optimism(n, draws=2_000)
        optimisms.append(population - sample.min(axis=1).mean())
    assert optimisms[0] / optimisms[1] == pytest.approx(4.0, rel=0.15)


# Paragraph "Encoder classes covered by the rate": |W|_F <= R, |X| <= M.


def complexity_draws(rng, x, R, d, draws=4000):
    """R |(1/n) sum_i xi_i x_i'|_F for draws of xi: the supremum over W."""
    xi = rng.normal(size=(draws, d, len(x)))
    return R * np.sqrt(((xi @ x / len(x)) ** 2).sum(axis=(1, 2)))


def test_supremum_over_linear_encoders_is_a_frobenius_norm():
    """The supremum of (1/n) sum <xi_i, W x_i> is attained at W proportional to sum xi_i x_i'."""
    rng = np.random.default_rng(9)
    x, xi, R = rng.normal(size=(30, 4)), rng.normal(size=(30, 3)), 1.7
    G = xi.T @ x / 30
    supremum = R * np.linalg.norm(G)

    def value(W):
        return (xi * (x @ W.T)).sum() / 30

    assert value(R * G / np.linalg.norm(G)) == pytest.approx(supremum, rel=1e-12)
    W = rng.normal(size=(500, 3, 4))
    W *= R / np.linalg.norm(W, axis=(1, 2), keepdims=True)
    assert max(value(w) for w in W) < supremum
    assert max(value(R * (0.1 * w + G) / np.linalg.norm(0.1 * w + G)) for w in W) < supremum


@pytest.mark.parametrize("d", [1, 3, 8])
@pytest.mark.parametrize("n", [20, 320])
def test_gaussian_complexity_of_linear_encoders_is_at_most_its_bound(n, d):
    """G_n <= R M (d_z / n)^(1/2) for |X| <= M, by Monte Carlo; of the right order in n and d."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=(n, 5))
    x *= (rng.uniform(size=(n, 1)) ** 0.2) / np.linalg.norm(
        x, axis=1, keepdims=True
    )  # uniform in the unit ball
    draws = complexity_draws(rng, x, 2.0, d)
    ratio = draws.mean() / (2.0 * math.sqrt(d / n))
    assert 0.7 < ratio < 1.0
    assert (draws**2).mean() == pytest.approx(4.0 * d * (x**2).sum() / n**2, rel=0.05)


def test_gaussian_complexity_bound_of_linear_encoders_is_tight_for_many_directions():
    """|X| = M and many columns: the ratio to R M (d_z / n)^(1/2) tends to one, so its constant is right."""
    rng = np.random.default_rng(10)
    ratios = []
    for width in (1, 4, 60):
        x = rng.normal(size=(200, width))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        ratios.append(complexity_draws(rng, x, 1.0, 2, draws=2000).mean() / math.sqrt(2 / 200))
    assert ratios == sorted(ratios)
    assert 0.99 < ratios[-1] < 1.005


def test_complexity_display_needs_the_expectation_over_xi():
    """The paper's first display bounds G^_n, a number, by a random norm: half the time it fails."""
    rng = np.random.default_rng(11)
    draws = complexity_draws(rng, rng.normal(size=(100, 3)), 1.0, 2)
    assert 0.4 < (draws < draws.mean()).mean() < 0.6


def test_gaussian_complexity_of_one_encoder_is_zero_and_a_shift_does_not_count(setting):
    """Without an absolute value a singleton (the untouched S) adds nothing, nor does a common offset."""
    law, h, _, _ = setting
    n = 400
    single = gaussian_complexity(np.random.default_rng(12), h[:1], law.pz, n, draws=20_000)
    whole = gaussian_complexity(np.random.default_rng(12), h, law.pz, n, draws=20_000)
    shifted = gaussian_complexity(np.random.default_rng(12), h + 5.0, law.pz, n, draws=20_000)
    noise = 5.0 * math.sqrt(2.0 / n) / math.sqrt(20_000)
    assert abs(single) < 0.05 * whole
    assert shifted == pytest.approx(whole, abs=4.0 * noise)
    assert whole > 0.02


def test_gaussian_complexity_of_rows_is_that_of_their_counts(setting):
    """The Monte Carlo above against the definition with n rows and n vectors xi."""
    law, h, _, _ = setting
    rng = np.random.default_rng(13)
    rows = rng.choice(len(law.pz), size=(3000, 50), p=law.pz)
    xi = rng.normal(size=(3000, 50, h.shape[2]))
    literal = np.stack([(xi * values[rows]).sum(axis=(1, 2)) / 50 for values in h]).max(axis=0).mean()
    assert gaussian_complexity(rng, h, law.pz, 50) == pytest.approx(literal, rel=0.05)


def test_hsic_of_linear_kernels_agrees_with_the_enumeration_of_two_rows():
    """The expectation by enumeration against the package on every sample of two rows."""
    p = np.array([[0.4, 0.1], [0.2, 0.3]])
    values = np.array([-1.0, 1.0])
    total = 0.0
    for (a, b), (c, d) in itertools.product(np.ndindex(2, 2), repeat=2):
        z, s = tensor(values[[a, c]]), tensor(values[[b, d]])
        total += p[a, b] * p[c, d] * HSIC(Linear(), Linear())(z, s).item()
    K = np.outer(values, values)
    assert expectation(p, 2, K, K) == pytest.approx(total, rel=1e-12)
