"""The paper's remark "Train-test fairness bridge": from HSIC on the training rows to the gap on test rows.

Z and S have finite supports and samples are tables of counts, so that the remark can be followed to
n = 10^10, where its right-hand side says something. The gap on n tied rows is then the weighted form below.
"""

import math

import numpy as np
import pytest
import torch

from frhsic import HSIC
from frhsic.kernels import Gaussian

WIDTH_Z, WIDTH_S = 0.8, 0.7
SIZE = 24  # encoders


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def gaussian(x, y, width):
    """Gram matrices of points x ``(..., A, d)`` and y ``(..., C, d)``."""
    return np.exp(-((x[..., :, None, :] - y[..., None, :, :]) ** 2).sum(axis=-1) / (2.0 * width**2))


def plug_in(p, K, L):
    """HSIC of the laws p ``(..., A, B)`` for the Gram matrices K and L."""
    D = p - p.sum(axis=-1, keepdims=True) * p.sum(axis=-2, keepdims=True)
    return (D @ L @ np.swapaxes(D, -1, -2) * K).sum(axis=(-2, -1))


def spectrum(p, L):
    """The positive eigenvalues of the centred kernel of S on a test sample, and eigenfunctions ``(B, r)``."""
    ps = p.sum(axis=0)
    H, root = np.eye(len(ps)) - ps, np.sqrt(ps)
    lam, vectors = np.linalg.eigh(root[:, None] * (H @ L @ H.T) * root)
    keep = lam[::-1] > 1e-10 * lam[-1]
    return lam[::-1][keep], (vectors[:, ::-1] / root[:, None])[:, keep]


def squared_gaps(p, f, psi):
    """(1/n) sum_i (P_m delta_f)_i^2 for heads with values f ``(heads, A)`` and each m: ``(heads, r)``."""
    centred = f - (f @ p.sum(axis=1))[:, None]
    return np.cumsum((centred @ p @ psi) ** 2, axis=1)


def random_heads(rng, z, count=20):
    """Functions sum_j alpha_j k(u_j, .): values at z and squared norms."""
    u = np.vstack([z, rng.normal(size=(4, z.shape[1]))])
    alpha = rng.normal(size=(count, len(u)))
    values, gram = alpha @ gaussian(u, z, WIDTH_Z), gaussian(u, u, WIDTH_Z)
    return values, np.einsum("ni,ij,nj->n", alpha, gram, alpha)


class World:
    """X has 24 columns of points in R^2, alike and independent given S; encoder h_j takes the j-th.

    All encoders have the same HSIC in the population, so that the sample alone decides which is chosen.
    """

    def __init__(self):
        rng = np.random.default_rng(0)
        self.z, self.s = rng.normal(size=(6, 2)), np.linspace(-1.5, 1.5, 5)
        p = np.exp(-((self.z[:, :1] - self.s) ** 2)) * rng.uniform(0.5, 1.0, size=(6, 5))
        self.p = p / p.sum()
        self.K = gaussian(self.z, self.z, WIDTH_Z)
        self.L = gaussian(self.s[:, None], self.s[:, None], WIDTH_S)
        self.population = plug_in(self.p, self.K, self.L)

    def sample(self, rng, n):
        """The shares of the cells (z, s) for each encoder, ``(24, 6, 5)``."""
        ps = self.p.sum(axis=0)
        n_s = rng.multinomial(n, ps)
        return rng.multinomial(n_s, (self.p / ps).T, size=(SIZE, 5)).transpose(0, 2, 1) / n

    def epsilon(self, n, delta):
        """epsilon_n(delta): G_n is the mean of the largest of 24 normal variables of variance |z|^2 / n."""
        complexity = np.linalg.norm(self.z, axis=1).max() * math.sqrt(2.0 * math.log(SIZE) / n)
        lipschitz = max(1.0 / WIDTH_Z, 1.0 / WIDTH_S)
        return (
            8.0 * math.sqrt(2.0 * math.log(2.0 / delta) / n)
            + 4.0 / n
            + 48.0 * math.sqrt(math.pi) * lipschitz * complexity
        )

    def train_and_test(self, rng, n):
        """HSIC of the chosen encoder on the training rows and on the test rows, and the test sample."""
        train, test = self.sample(rng, n), self.sample(rng, n)
        on_train = plug_in(train, self.K, self.L)
        j = on_train.argmin()
        return on_train[j], plug_in(test[j], self.K, self.L), test[j]


def test_squared_gap_of_shares_is_that_of_rows():
    """What the tests below use in place of P_m and delta_f on n rows, for every m."""
    world = World()
    rng = np.random.default_rng(1)
    cells = rng.choice(30, size=60, p=world.p.ravel())
    a, b = np.unravel_index(cells, (6, 5))
    test = np.bincount(cells, minlength=30).reshape(6, 5) / 60
    f, _ = random_heads(rng, world.z)
    lam, psi = spectrum(test, world.L)
    H = np.eye(60) - 1.0 / 60
    values, vectors = np.linalg.eigh(H @ world.L[np.ix_(b, b)] @ H / 60)
    E = vectors[:, ::-1][:, : len(lam)]
    assert values[::-1][: len(lam)] == pytest.approx(lam, rel=1e-8)
    delta = f[:, a] - f[:, a].mean(axis=1, keepdims=True)
    rows = np.stack(
        [((delta @ E[:, :m] @ E[:, :m].T) ** 2).mean(axis=1) for m in range(1, len(lam) + 1)], axis=1
    )
    assert squared_gaps(test, f, psi) == pytest.approx(rows, rel=1e-8)
    hsic = HSIC(Gaussian(WIDTH_Z), Gaussian(WIDTH_S))(tensor(world.z[a]), tensor(world.s[b])).item()
    assert hsic == pytest.approx(plug_in(test, world.K, world.L), rel=1e-10)


@pytest.mark.parametrize("n", [200, 10**10])
def test_gap_on_test_rows_is_at_most_hsic_on_test_rows(n):
    """First display: no probability in it, for every test sample, head and resolution m."""
    world, rng = World(), np.random.default_rng(2)
    tightest = 0.0
    for _ in range(100):
        _, on_test, test = world.train_and_test(rng, n)
        f, norms = random_heads(rng, world.z)
        lam, psi = spectrum(test, world.L)
        ratio = squared_gaps(test, f, psi) * lam / (norms[:, None] * on_test)
        assert ratio.max() <= 1.0 + 1e-8
        tightest = max(tightest, ratio.max())
    assert tightest > 0.2


@pytest.mark.parametrize("n", [30, 10**10])
def test_gap_on_test_rows_attains_its_bound_along_the_contrast(n):
    """First display, an equality for S of two values and f the difference of their embeddings (m = r = 1)."""
    rng = np.random.default_rng(3)
    world = World()
    p = np.stack([world.p[:, :2].sum(axis=1), world.p[:, 2:].sum(axis=1)], axis=1)
    L = gaussian(np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]]), WIDTH_S)
    for _ in range(5):
        test = rng.multinomial(n, p.ravel()).reshape(6, 2) / n
        alpha = test[:, 1] / test[:, 1].sum() - test[:, 0] / test[:, 0].sum()
        lam, psi = spectrum(test, L)
        gap = squared_gaps(test, (world.K @ alpha)[None], psi)[0]
        assert len(lam) == 1
        assert gap[0] == pytest.approx(alpha @ world.K @ alpha / lam[0] * plug_in(test, world.K, L), rel=1e-8)


@pytest.mark.parametrize("n", [10**3, 10**10])
@pytest.mark.parametrize("delta", [0.05, 0.4])
def test_hsic_on_test_rows_is_at_most_that_on_training_rows_and_twice_the_uniform_error(n, delta):
    """Second display, with probability at least 1 - 2 delta; without the error it fails for most samples."""
    world, rng = World(), np.random.default_rng(4)
    runs = [world.train_and_test(rng, n)[:2] for _ in range(400)]
    on_train, on_test = (np.array(column) for column in zip(*runs, strict=True))
    epsilon = world.epsilon(n, delta)
    assert (on_test > on_train + 2.0 * epsilon).mean() <= 2.0 * delta
    assert (world.population > on_train + epsilon).mean() <= delta
    assert (on_test > world.population + epsilon).mean() <= delta
    assert (on_test > on_train).mean() > 0.8
    assert (world.population > 2.0 * epsilon) == (n == 10**10)


def test_hsic_of_the_chosen_encoder_is_larger_on_test_rows_than_on_training_rows():
    """Why the training side needs uniformity and the test side does not: only the first is chosen."""
    world, rng = World(), np.random.default_rng(5)
    runs = [world.train_and_test(rng, 300)[:2] for _ in range(2000)]
    on_train, on_test = (np.array(column) for column in zip(*runs, strict=True))
    assert (on_train - world.population).mean() < -0.05 * world.population
    assert (on_test - world.population).mean() > 0.0  # the bias of a fixed encoder


@pytest.mark.parametrize("n", [10**3, 10**10])
def test_bridge_bounds_the_gap_on_test_rows_by_hsic_on_training_rows(n):
    """Last display, for random heads and every m; at n = 10^10 it is sharper than the trivial |f|^2."""
    world, rng, delta = World(), np.random.default_rng(6), 0.05
    epsilon = world.epsilon(n, delta)
    failures, informative = 0, 0
    for _ in range(100):
        on_train, _, test = world.train_and_test(rng, n)
        f, norms = random_heads(rng, world.z)
        lam, psi = spectrum(test, world.L)
        bound = norms[:, None] / lam * (on_train + 2.0 * epsilon)
        failures += (squared_gaps(test, f, psi) > bound).any()
        informative += (bound[:, 0] < norms).all()
    assert failures <= 2.0 * delta * 100
    assert informative == (100 if n == 10**10 else 0)


def test_bridge_needs_the_spectral_factor_of_the_test_rows():
    """lambda~_m goes with P_m on the test rows: the next larger eigenvalue in its place would fail."""
    world, rng = World(), np.random.default_rng(7)
    test = world.sample(rng, 10**10)[0]
    lam, psi = spectrum(test, world.L)
    m = 3
    # A test law with all its dependence along psi_m, and the head along it.
    q = rng.normal(size=6)
    q -= q.mean()
    pz, ps = test.sum(axis=1), test.sum(axis=0)
    t = 0.9 * (pz[:, None] / np.abs(np.outer(q, psi[:, m - 1]))).min()
    test = (pz[:, None] + t * np.outer(q, psi[:, m - 1])) * ps
    gap = squared_gaps(test, (world.K @ q)[None], psi)[0, m - 1]
    hsic = plug_in(test, world.K, world.L)
    right, wrong = (q @ world.K @ q / lam[k] * hsic for k in (m - 1, m - 2))
    assert gap == pytest.approx(right, rel=1e-8)
    assert gap > 1.2 * wrong
