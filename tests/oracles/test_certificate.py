"""The bounds of a certificate against definitions written down again: matrices, loops and brute force."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

from frhsic.data import Sensitive
from frhsic.dependence import HSIC, KernelHGR
from frhsic.inference.bounds import _worst_case
from frhsic.inference.bounds._bounds import least_rows, population_bound
from frhsic.inference.bounds._certificate import certify
from frhsic.inference.bounds._complexity import (
    SELU_SLOPE,
    TrainedOn,
    linear_complexity,
    network_complexity,
    sampled_complexity,
    uniform_bound,
)
from frhsic.inference.bounds._worst_case import Fixed, centred_gram, directions, worst_case_head, worst_heads
from frhsic.kernels import Delta, Energy, Gaussian, InverseMultiquadric, Laplace, Linear, Matern, OnColumns

CLOSE = {"rel": 1e-8, "abs": 1e-12}
FIXED = HSIC(Gaussian(0.9), Gaussian(0.7))


def sample(n=60, d=2, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    z = rng.normal(size=(n, d))
    z[:, 0] += 0.7 * s**2
    return z, s


def gaussian(x, sigma):
    x = np.asarray(x, dtype=float).reshape(len(x), -1)
    return np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / (2 * sigma**2))


def centred(K):
    n = len(K)
    H = np.eye(n) - 1 / n
    return H @ K @ H


def spectrum(L):
    """Eigenvalues of L~ / n above 1e-10 of the first, falling, and their eigenvectors."""
    lam, E = np.linalg.eigh(centred(L) / len(L))
    lam, E = lam[::-1], E[:, ::-1]
    keep = lam > 1e-10 * lam[0]
    return lam[keep], E[:, keep]


def test_every_row_of_heads_is_the_papers_bound_and_the_brute_force_supremum():
    """The supremum of a' K~ P K~ a / (n a' K~ a), as a generalised eigenproblem."""
    z, s = sample()
    n = len(z)
    K = centred(gaussian(z, 0.9))
    lam, E = spectrum(gaussian(s, 0.7))
    hsic = np.trace(K @ centred(gaussian(s, 0.7))) / n**2
    certificate = certify(z, s, dependence=FIXED, n_permutations=19, random_state=0)
    assert certificate.hsic == pytest.approx(hsic, **CLOSE)
    assert abs(len(certificate.heads) - len(lam)) <= 1
    for row in certificate.heads[:12]:
        P = E[:, : row.m] @ E[:, : row.m].T
        largest = scipy.linalg.eigh(K @ P @ K / n, K + 1e-11 * np.eye(n), eigvals_only=True)[-1]
        assert row.eigenvalue == pytest.approx(lam[row.m - 1], rel=1e-6)
        assert row.paper_bound == pytest.approx(math.sqrt(hsic / lam[row.m - 1]), rel=1e-6)
        assert row.worst_rms == pytest.approx(math.sqrt(largest), rel=1e-5)
        assert row.sharper == pytest.approx(row.paper_bound / row.worst_rms)
        assert row.own_gdp <= row.worst_rms <= row.paper_bound


@pytest.mark.parametrize("m", [1, 3, 6])
def test_no_random_head_of_norm_one_exceeds_the_worst_and_the_worst_is_one_of_them(m):
    z, s = sample(seed=1)
    n = len(z)
    K, (_, E) = gaussian(z, 0.9), spectrum(gaussian(s, 0.7))
    P = E[:, :m] @ E[:, :m].T
    head = worst_case_head(z, s, dependence=FIXED, m=m)

    def gap(alpha):
        f = K @ alpha / math.sqrt(alpha @ K @ alpha)
        return P @ (f - f.mean())

    rng = np.random.default_rng(0)
    # Random coefficients, and random ones near the worst: the search has to be hard.
    near = np.array(head.coefficients)
    tries = [rng.normal(size=n) for _ in range(500)] + [
        near + 0.1 * rng.normal(size=n) * near.std() for _ in range(500)
    ]
    found = [math.sqrt((gap(alpha) ** 2).mean()) for alpha in tries]
    assert max(found) <= head.rms * (1 + 1e-9)
    assert max(found) > 0.8 * head.rms
    assert near @ K @ near == pytest.approx(1.0, rel=1e-8)
    own = gap(near)
    assert math.sqrt((own**2).mean()) == pytest.approx(head.rms, rel=1e-6)
    assert np.abs(own).mean() == pytest.approx(head.gdp, rel=1e-6)
    assert np.array(head.values) == pytest.approx(K @ near)


def test_a_head_predicts_the_sum_of_its_kernels_at_new_rows():
    z, s = sample(seed=2)
    head = worst_case_head(z, s, dependence=FIXED)
    new = np.random.default_rng(5).normal(size=(4, 2))
    expected = [
        sum(
            c * math.exp(-((a - b) @ (a - b)) / (2 * 0.81)) for c, b in zip(head.coefficients, z, strict=True)
        )
        for a in new
    ]
    assert head.predict(new) == pytest.approx(expected, **CLOSE)
    assert head.predict(z) == pytest.approx(head.values, **CLOSE)


def parts(n, d, seed):
    z, s = (torch.tensor(x) for x in sample(n, d, seed))
    return Fixed(z, Sensitive.of(s), Gaussian(0.9), Gaussian(0.7), torch.arange(n), ())


@pytest.mark.parametrize("d", [1, 12])
def test_the_null_is_the_worst_case_of_permuted_rows(d):
    """Thin (d = 1) and full (d = 12) Gram matrices; the eigenvectors are those of the permuted L."""
    part = parts(80, d, 3)
    K = centred_gram(part.kernel_z, part.z)
    E = directions(part.kernel_s, part.s.values).vectors[:, :5]
    null = _worst_case._null(part, K, E, 3, torch.Generator().manual_seed(4))
    generator = torch.Generator().manual_seed(4)
    dense = centred(gaussian(part.z, 0.9))
    for b in range(3):
        order = torch.randperm(80, generator=generator)
        _, vectors = spectrum(gaussian(part.s.values[order], 0.7))
        for m in range(1, 6):
            top = np.linalg.eigvalsh(vectors[:, :m].T @ dense @ vectors[:, :m])[-1]
            assert float(null[b, m - 1]) == pytest.approx(math.sqrt(top / 80), rel=1e-6)


def test_the_crossfitted_gap_is_that_of_one_halfs_head_on_the_other_half():
    part = parts(70, 2, 6)
    n, r = 70, 4
    K = centred_gram(part.kernel_z, part.z)
    crossed, chance = _worst_case._crossfitted(part, K, r, 200, torch.Generator().manual_seed(8))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(8)).numpy()
    halves = order[:35], order[35:]
    K, L = gaussian(part.z, 0.9), gaussian(part.s.values, 0.7)
    rng = np.random.default_rng(0)
    for m in range(1, r + 1):
        gaps, nulls = [], []
        for own, other in (halves, halves[::-1]):
            _, E = spectrum(L[np.ix_(own, own)])
            inside = centred(K[np.ix_(own, own)])
            mu, V = np.linalg.eigh(E[:, :m].T @ inside @ E[:, :m])
            alpha = E[:, :m] @ V[:, -1] / math.sqrt(mu[-1])
            f = K[np.ix_(other, own)] @ alpha
            _, A = spectrum(L[np.ix_(other, other)])
            A = A[:, :m]
            gaps.append(np.abs(A @ A.T @ (f - f.mean())).mean())
            for _ in range(200):
                B = A[rng.permutation(35)]
                nulls.append(np.abs(B @ B.T @ (f - f.mean())).mean())
        assert float(crossed[m - 1]) == pytest.approx(np.mean(gaps), rel=1e-6)
        assert float(chance[m - 1]) == pytest.approx(np.mean(nulls), rel=0.2)


def test_resolution_is_the_least_m_that_holds_95_percent_of_the_trace():
    z, s = sample(n=90)
    lam, _ = spectrum(gaussian(s, 0.7))
    least = next(m for m in range(1, 90) if lam[:m].sum() >= 0.95 * lam.sum())
    assert worst_case_head(z, s, dependence=FIXED).m == least


# The population bound ------------------------------------------------------------------------------------


def cross_covariance(F, G):
    return (F - F.mean(0)).T @ (G - G.mean(0)) / len(F)


def nonnegative_units(rng, n, p, concentration=0.5):
    X = rng.gamma(concentration, size=(n, p)) + 1e-9
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def change(F, G, f, g):
    F2, G2 = F.copy(), G.copy()
    F2[0], G2[0] = f, g
    C, C2 = cross_covariance(F, G), cross_covariance(F2, G2)
    return np.linalg.norm(C - C2), abs(np.linalg.norm(C) - np.linalg.norm(C2))


@pytest.mark.parametrize("n", [3, 10, 40])
def test_replacing_one_row_moves_the_embedding_by_the_exact_update(n):
    """C - C' = (n - 1) / n^2 [a b' - a' b''] with a, b the row's features less the mean of the others."""
    rng = np.random.default_rng(n)
    F, G = nonnegative_units(rng, n, 4), nonnegative_units(rng, n, 3)
    f, g = nonnegative_units(rng, 1, 4)[0], nonnegative_units(rng, 1, 3)[0]
    a, b = F[0] - F[1:].mean(0), G[0] - G[1:].mean(0)
    c, d = f - F[1:].mean(0), g - G[1:].mean(0)
    F2, G2 = F.copy(), G.copy()
    F2[0], G2[0] = f, g
    difference = cross_covariance(F, G) - cross_covariance(F2, G2)
    assert difference == pytest.approx((n - 1) / n**2 * (np.outer(a, b) - np.outer(c, d)), abs=1e-14)


@pytest.mark.parametrize("n", [2, 5, 30])
def test_the_bounded_difference_is_reached_by_three_distant_points(n):
    """All rows alike but one, which jumps between two points far from them and from each other."""
    F = np.tile(np.eye(3)[0], (n, 1))
    F[0] = np.eye(3)[1]
    moved, _ = change(F, F.copy(), np.eye(3)[2], np.eye(3)[2])
    assert moved == pytest.approx(math.sqrt(6) * (n - 1) / n**2, rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_adversarial_search_does_not_exceed_the_bounded_difference(n):
    """Gradient ascent over features with non-negative inner products and norm one, from random starts."""
    limit = math.sqrt(6) * (n - 1) / n**2
    generator = torch.Generator().manual_seed(n)
    raw = [torch.randn((10, n + 1, 4), generator=generator, dtype=torch.float64) for _ in range(2)]
    for leaf in raw:
        leaf.requires_grad_()
    optimizer = torch.optim.Adam(raw, lr=0.1)
    best = 0.0
    for _ in range(200):
        F, G = (x.square() / torch.linalg.vector_norm(x.square(), dim=-1, keepdim=True) for x in raw)
        before, after = (  # row 0 is replaced by row n
            (f - f.mean(1, keepdim=True)).mT @ (g - g.mean(1, keepdim=True)) / n
            for f, g in ((F[:, :n], G[:, :n]), (F[:, 1:], G[:, 1:]))
        )
        moved = torch.linalg.matrix_norm(before - after)
        optimizer.zero_grad()
        (-moved.sum()).backward()
        optimizer.step()
        best = max(best, float(moved.detach().max()))
    assert best <= limit * (1 + 1e-12)
    assert best > 0.99 * limit


@pytest.mark.parametrize("n", [2, 7])
def test_features_of_any_sign_stay_below_the_general_bounded_difference(n):
    rng = np.random.default_rng(n)
    largest = 0.0
    for _ in range(3000):
        F, G = (rng.normal(size=(n, 2)) for _ in range(2))
        F, G = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (F, G))
        f, g = (x / np.linalg.norm(x) for x in rng.normal(size=(2, 2)))
        largest = max(largest, change(F, G, f, g)[0])
    assert math.sqrt(6) * (n - 1) / n**2 < largest <= 8 * (n - 1) / n**2


def test_the_population_bound_is_mcdiarmids_with_these_differences():
    """E C^ = (n - 1)/n C, so |C| <= n/(n-1) (|C^| + sqrt(n c^2 ln(1/delta) / 2))."""
    hsic, n, delta = 0.01, 250, 0.1
    for constant, difference in ((3.0, math.sqrt(6)), (32.0, 8.0)):
        c = difference * (n - 1) / n**2
        root = n / (n - 1) * (math.sqrt(hsic) + math.sqrt(n * c**2 * math.log(1 / delta) / 2))
        assert population_bound(hsic, n, delta, constant=constant) == pytest.approx(root**2, rel=1e-12)


@pytest.mark.parametrize(
    ("kernel_z", "scale", "constant"),
    [
        (Gaussian(1.0), 1.0, 3.0),
        (2.0 * Laplace(1.0), 2.0, 3.0),
        (Matern(1.0), 1.0, 3.0),
        (Gaussian(1.0) + InverseMultiquadric(1.0), 2.0, 3.0),
    ],
)
def test_certify_takes_the_constant_of_its_kernels(kernel_z, scale, constant):
    z, s = sample()
    certificate = certify(
        z,
        s,
        dependence=HSIC(kernel_z, Gaussian(0.7)),
        n_permutations=19,
        random_state=0,
        confidence_level=0.8,
    )
    expected = population_bound(certificate.hsic, 60, 0.2, scale, constant)
    assert certificate.bound("population").value == pytest.approx(expected, rel=1e-12)


# The other bounds ----------------------------------------------------------------------------------------


def test_conditional_mmd_lies_between_its_bounds_and_khgr_below_its_own():
    z, s = sample(n=80, seed=4)
    n = len(z)
    certificate = certify(z, s, dependence=FIXED, n_permutations=19, random_state=0, ridge_z=0.1, ridge_s=0.2)
    K, (lam, E) = centred(gaussian(z, 0.9)), spectrum(gaussian(s, 0.7))
    upper, lower = certificate.bound("conditional_mmd"), certificate.bound("conditional_mmd_lower")
    m = next(m for m in range(1, n) if lam[:m].sum() >= 0.95 * lam.sum())
    exact = np.trace(E[:, :m].T @ K @ E[:, :m]) / n
    assert exact <= upper.value == pytest.approx(certificate.hsic / lam[m - 1], rel=1e-8)
    assert f"(it is {exact:.3g})" in upper.certifies
    assert lower.value == pytest.approx(certificate.hsic)
    assert lower.value <= np.trace(E.T @ K @ E) / n
    khgr = KernelHGR(0.1, 0.2, kernel_z=Gaussian(0.9), kernel_s=Gaussian(0.7))
    value = khgr(torch.tensor(z), torch.tensor(s)).item()
    assert value <= certificate.bound("khgr").value == pytest.approx(math.sqrt(certificate.hsic / 0.02))


def test_the_lower_bound_is_vacuous_below_the_mean_over_all_permutations():
    """tr(K~) tr(L~) / (n^2 (n - 1)) is the mean of HSIC_b over all n! permutations, here 720."""
    from itertools import permutations

    z, s = sample(n=6)
    K, L = centred(gaussian(z, 0.9)), centred(gaussian(s, 0.7))
    mean = np.mean([(K * L[np.ix_(p, p)]).sum() / 36 for p in permutations(range(6))])
    assert np.trace(K) * np.trace(L) / (36 * 5) == pytest.approx(mean)
    lower = certify(z, s, dependence=FIXED, n_permutations=19, random_state=0).bound("conditional_mmd_lower")
    assert f"{mean:.3g}" in lower.vacuous_when
    assert lower.vacuous == (lower.value <= mean)


def test_vacuous_is_reaching_the_cauchy_schwarz_value_or_the_largest_spread():
    z, s = sample(n=80, seed=4)
    K, L = centred(gaussian(z, 0.9)), centred(gaussian(s, 0.7))
    most = math.sqrt((K * K).sum() * (L * L).sum()) / 80**2
    spread = math.sqrt(np.linalg.eigvalsh(K)[-1] / 80)
    train = TrainedOn(100, 0.01, 0.1)
    certificate = certify(z, s, dependence=FIXED, n_permutations=19, random_state=0, train=train)
    for name in ("population", "population_asymptotic", "train_population", "train_test"):
        bound = certificate.bound(name)
        assert f"{most:.3g}" in bound.vacuous_when
        assert bound.vacuous == (bound.value >= most)
    for name in ("head_gap", "worst_head", "train_test_gap"):
        bound = certificate.bound(name)
        assert f"{spread:.3g}" in bound.vacuous_when
        assert bound.vacuous == (bound.value >= spread)


def test_n_needed_is_where_the_population_bound_stops_being_vacuous():
    z, s = sample(n=80, seed=4)
    K, L = centred(gaussian(z, 0.9)), centred(gaussian(s, 0.7))
    most = math.sqrt((K * K).sum() * (L * L).sum()) / 80**2
    certificate = certify(z, s, dependence=FIXED, n_permutations=19, random_state=0)
    n = certificate.bound("population").n_needed
    assert population_bound(certificate.hsic, n, 0.05) < most
    assert population_bound(certificate.hsic, n - 1, 0.05) >= most


def test_least_rows_is_the_first_at_which_a_falling_function_is_below():
    assert [least_rows(lambda n: 10 / n, t) for t in (6.0, 5.0, 4.9, 0.01)] == [2, 3, 3, 1001]
    assert least_rows(lambda n: 1.0 + 1 / n, 1.0) is None


def test_train_bounds_are_the_papers_formulas():
    z, s = sample()
    train = TrainedOn(5000, 0.002, 0.003)
    c = certify(z, s, dependence=FIXED, n_permutations=19, random_state=0, train=train, confidence_level=0.9)

    def B(n, delta, G):
        chance = 8 * math.sqrt(2) * math.sqrt(math.log(2 / delta) / n) + 4 / n
        return chance + 48 * math.sqrt(math.pi) * max(1 / 0.9, 1 / 0.7) * G

    assert c.bound("train_population").value == pytest.approx(0.002 + B(5000, 0.1, 0.003))
    bridge = 0.002 + B(5000, 0.05, 0.003) + B(60, 0.05, 0.0)
    assert c.bound("train_test").value == pytest.approx(bridge)
    # At equal numbers of rows it is never above the remark's HSIC_train + 2 eps_n(delta / 2).
    assert 0.002 + B(60, 0.05, 0.003) + B(60, 0.05, 0.0) <= 0.002 + 2 * B(60, 0.05, 0.003)
    m = worst_case_head(z, s, dependence=FIXED).m
    gap = c.bound("train_test_gap").value
    assert gap == pytest.approx(math.sqrt(bridge / c.heads[m - 1].eigenvalue))
    n = c.bound("train_population").n_needed
    most = float(c.bound("train_population").vacuous_when.split("reaches ")[1].split(",")[0])
    assert 0.002 + B(n, 0.1, 0.003 * math.sqrt(5000 / n)) == pytest.approx(most, rel=5e-3)


# Complexity ----------------------------------------------------------------------------------------------


def test_linear_complexity_is_the_papers_closed_form_and_an_upper_bound():
    """E |(1/n) sum_i xi_i x_i'|_F by simulation; with rows of norm M the bound is tight but for Jensen."""
    assert linear_complexity(2.0, 3.0, 5, 400) == pytest.approx(2.0 * 3.0 * math.sqrt(5 / 400))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4))
    x = 3.0 * x / np.linalg.norm(x, axis=1, keepdims=True)
    draws = [2.0 * np.linalg.norm(rng.normal(size=(50, 5)).T @ x) / 50 for _ in range(400)]
    bound = linear_complexity(2.0, 3.0, 5, 50)
    assert 0.9 * bound < np.mean(draws) < bound
    low = sampled_complexity(x, (2.0,), (5,), n_draws=100, steps=3, random_state=0)
    assert low == pytest.approx(np.mean(draws), rel=0.05)


def test_two_layers_are_at_most_the_plain_sudakov_fernique_bound():
    for H, d_z in ((50, 50), (3, 1), (200, 2)):
        plain = (
            math.sqrt(2) * SELU_SLOPE * 1.5 * 0.5 * 2.0 * (math.sqrt(d_z * H) + math.sqrt(H)) / math.sqrt(900)
        )
        ours = network_complexity((1.5, 0.5), (H, d_z), 2.0, 900, biases=False)
        assert 0.7 * plain < ours <= plain * (1 + 1e-12)


def test_depth_three_is_the_formula_of_the_docstring_and_biases_cost_more():
    radii, widths, M, n, slope = (1.2, 0.8, 0.5), (7, 5, 3), 1.5, 100, 1.1
    s = [math.sqrt(7), math.sqrt(35), math.sqrt(15)]
    expected = slope**2 * 1.2 * 0.8 * 0.5 * M * sum(x ** (2 / 3) for x in s) ** 1.5 / 10
    plain = network_complexity(radii, widths, M, n, slope=slope, biases=False)
    assert plain == pytest.approx(expected)
    with_biases = network_complexity(radii, widths, M, n, slope=slope)
    inside = [math.sqrt(M**2 + 1)]
    for R in radii[:2]:
        inside.append(math.sqrt((slope * R * inside[-1]) ** 2 + 1))
    terms = [
        slope**2 * 0.8 * 0.5 * 1.2 * inside[0] * math.sqrt(7),
        slope * 0.5 * 0.8 * inside[1] * math.sqrt(5 * 8),
        0.5 * inside[2] * math.sqrt(3 * 6),
    ]
    assert with_biases == pytest.approx(sum(t ** (2 / 3) for t in terms) ** 1.5 / 10)
    assert with_biases > plain


def test_homogeneous_networks_do_not_pay_for_hidden_width():
    def relu(widths, radii):
        return network_complexity(radii, widths, 1.0, 100, slope=1.0, biases=False, homogeneous=True)

    assert relu((40, 9), (1.0, 2.0)) == pytest.approx(math.sqrt(2 * 9) * 2.0 / 10)
    assert relu((40, 9), (1.0, 2.0)) == relu((4000, 9), (1.0, 2.0))
    # One output, ten layers: the published bound is the smaller one.
    assert relu((9,) * 9 + (1,), (1.0,) * 10) == pytest.approx((1 + math.sqrt(18 * math.log(2))) / 10)
    five = min(2 ** (4 / p) * math.sqrt(p - 1) for p in (2, 3, 4, 5, 6, 7))
    assert relu((99,) * 4 + (50,), (1.0,) * 5) == pytest.approx(math.sqrt(50) * five / 10)


@pytest.mark.parametrize("homogeneous", [False, True])
def test_gradient_ascent_over_the_class_stays_below_the_upper_bound(homogeneous):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    activation = torch.relu if homogeneous else torch.nn.functional.selu
    low = sampled_complexity(x, (1.5, 2.0), (6, 2), activation=activation, n_draws=6, random_state=0)
    slope = 1.0 if homogeneous else SELU_SLOPE
    high = network_complexity((1.5, 2.0), (6, 2), 1.0, 40, slope=slope, biases=False, homogeneous=homogeneous)
    assert 0.1 * high < low < high


def test_ascent_beats_random_networks_of_the_class():
    """The lower bound would be worth nothing if it did not climb."""
    rng = np.random.default_rng(2)
    x = torch.tensor(rng.normal(size=(30, 3)))
    climbed = sampled_complexity(x, (1.0, 1.0), (5, 2), n_draws=8, steps=60, random_state=3)
    start = sampled_complexity(x, (1.0, 1.0), (5, 2), n_draws=8, steps=1, random_state=3)
    assert climbed > 2 * start > 0


def test_the_moment_inequality_behind_the_homogeneous_bound_holds_in_simulation():
    """E sup_w (sum_i eps_i relu(w.x_i))^2 <= 2 E |sum_i eps_i x_i|^2 over unit w, on a grid of angles."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(15, 2))
    angles = np.linspace(0, 2 * np.pi, 720)
    hidden = np.maximum(x @ np.stack([np.cos(angles), np.sin(angles)]), 0.0)  # (15, 720)
    eps = rng.choice([-1.0, 1.0], size=(4000, 15))
    left = ((eps @ hidden) ** 2).max(1).mean()
    right = ((eps @ x) ** 2).sum(1).mean()
    assert 0.3 * right < left <= 2 * right


def test_uniform_bound_is_the_papers_equation_for_kernels_of_bound_one():
    expected = 8 * math.sqrt(2) * math.sqrt(math.log(20) / 700) + 4 / 700
    expected += 48 * math.sqrt(math.pi) * max(0.4, 0.3) * 0.01
    assert uniform_bound(700, 0.9, 1.0, 1.0, 0.3, 0.4, 0.01) == pytest.approx(expected)
    assert uniform_bound(700, 0.9, 1.0, 1.0, math.inf, math.inf, 0.0) < expected


def test_uniform_bound_scales_with_the_kernels_as_hsic_does():
    """c k has the bound c nu and the Lipschitz constant sqrt(c) l; HSIC is multiplied by c."""
    plain = uniform_bound(700, 0.9, 1.0, 1.0, 0.3, 0.4, 0.01)
    scaled = uniform_bound(700, 0.9, 2.0, 3.0, math.sqrt(2.0) * 0.3, math.sqrt(3.0) * 0.4, 0.01)
    assert scaled == pytest.approx(6.0 * plain)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(0.6),
        InverseMultiquadric(0.6),
        Matern(0.6),
        Matern(0.6, nu=2.5),
        Linear(),
        0.25 * Gaussian(0.5),
        Gaussian(0.5) + Gaussian(2.0),
        OnColumns(Gaussian(0.5), (0,)) * OnColumns(Gaussian(0.3), (1,)),
        Gaussian(0.7, whiten=torch.tensor([[2.0, 0.0], [1.0, 0.5]], dtype=torch.float64)),
        Gaussian(1.0) * (Gaussian(1.0) + Gaussian(0.4)),
    ],
    ids=repr,
)
def test_lipschitz_is_not_exceeded_and_nearly_reached(kernel):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((4000, 2), generator=generator, dtype=torch.float64)
    step = torch.randn((4000, 2), generator=generator, dtype=torch.float64)
    step = step / torch.linalg.vector_norm(step, dim=1, keepdim=True)
    step *= 10.0 ** torch.linspace(-3, 0.5, 4000, dtype=torch.float64)[:, None]
    pairs = torch.stack((x, x + step), dim=1)  # (4000, 2, 2)
    K = kernel.gram(pairs, pairs)
    squared = K[:, 0, 0] + K[:, 1, 1] - 2 * K[:, 0, 1]
    ratios = squared.clamp_min(0.0).sqrt() / torch.linalg.vector_norm(step, dim=1)
    assert 0.75 * kernel.lipschitz < float(ratios.max()) <= kernel.lipschitz * (1 + 1e-4)


def test_lipschitz_of_a_delta_is_that_of_codes_one_apart():
    codes = torch.tensor([[0.0], [1.0]])
    K = Delta().gram(codes, codes)
    assert Delta().lipschitz == pytest.approx(math.sqrt(K[0, 0] + K[1, 1] - 2 * K[0, 1]))


@pytest.mark.parametrize("kernel", [Laplace(1.0), Energy(), Gaussian(), Gaussian(1.0, whiten=True)])
def test_kernels_without_a_constant_are_refused(kernel):
    with pytest.raises(ValueError, match="'kernel' must have a Lipschitz feature map"):
        assert kernel.lipschitz


def test_worst_at_full_resolution_is_the_largest_spread_of_a_head_when_z_is_s():
    _, s = sample(n=50)
    s = torch.tensor(s)[:, None]
    K = centred_gram(Gaussian(0.7), s)
    spectrum = directions(Gaussian(0.7), s)
    worst = worst_heads(K, spectrum.vectors, len(spectrum.eigenvalues))[-1]
    assert worst.rms == pytest.approx(math.sqrt(float(spectrum.eigenvalues[0])), rel=1e-9)


def test_leading_directions_of_many_rows_are_those_of_all_eigenvectors():
    s = torch.tensor(np.random.default_rng(3).normal(size=(600, 3)))
    L = centred_gram(Gaussian(0.7), s) / 600
    lam, E = torch.linalg.eigh(L)
    spectrum = directions(Gaussian(0.7), s)
    assert spectrum.vectors.shape == (600, 64)
    assert spectrum.rank == int((lam > 1e-10 * lam[-1]).sum()) > 64
    assert spectrum.trace == pytest.approx(float(L.trace()), rel=1e-9)
    assert spectrum.eigenvalues.numpy() == pytest.approx(lam.flip(0)[:64].numpy(), rel=1e-9)
    overlaps = (spectrum.vectors * E.flip(1)[:, :64]).sum(dim=0).abs()
    assert overlaps.numpy() == pytest.approx(1.0, abs=1e-6)


def test_leading_directions_of_repeated_rows_are_eigenvectors():
    s = torch.tensor(np.random.default_rng(3).normal(size=(150, 3))).repeat_interleave(4, dim=0)
    kernel = Gaussian(1e-3)  # 149 equal eigenvalues
    spectrum = directions(kernel, s)
    L, E = centred_gram(kernel, s) / 600, spectrum.vectors
    assert (E.mT @ E - torch.eye(64)).abs().max() < 1e-9
    assert (L @ E - E * spectrum.eigenvalues).abs().max() < 1e-9


def test_a_matern_kernel_is_certified_with_its_own_lipschitz_constant():
    z, s = sample()
    kernel = Matern(2.0)
    train = TrainedOn(n=10_000, hsic=0.001, complexity=0.01)
    certificate = certify(
        z, s, dependence=HSIC(kernel, kernel), train=train, n_permutations=19, random_state=0
    )
    assert kernel.lipschitz == pytest.approx(math.sqrt(3.0) / 2.0)
    assert Matern(2.0, nu=2.5).lipschitz == pytest.approx(math.sqrt(5.0 / 3.0) / 2.0)
    expected = 0.001 + uniform_bound(10_000, 0.95, 1.0, 1.0, kernel.lipschitz, kernel.lipschitz, 0.01)
    assert certificate.bound("train_population").value == pytest.approx(expected, rel=1e-12)
