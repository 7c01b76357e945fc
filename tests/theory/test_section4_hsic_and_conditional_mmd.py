"""Section 4.1 of the paper, "Equivalence with the conditional MMD integral", on finite laws."""

from dataclasses import replace

import numpy as np
import pytest

from frhsic import HSIC
from frhsic.kernels import Linear

PAIRS = [("gaussian", "gaussian"), ("laplace", "imq"), ("imq", "laplace"), ("linear", "gaussian")]
pairs = pytest.mark.parametrize(("name_z", "name_s"), PAIRS)
BELOW = 1.0 + 1e-9  # an inequality up to rounding


@pairs
def test_population_hsic_is_the_squared_distance_of_embeddings(law, twin, name_z, name_s):
    """Definition "Mean embeddings and HSIC" by explicit features of both kernels."""
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    exact = law.hsic(kz.gram(law.z, law.z), ks.gram(law.s, law.s))
    assert law.evaluate(HSIC(kz.kernel, ks.kernel)) == pytest.approx(exact, rel=1e-11)


@pairs
def test_hsic_decomposition_over_pairs_of_sensitive_values(law, twin, name_z, name_s):
    """Equation hsic_mmd: HSIC = E[<Delta(S), Delta(S')> k_S(S, S')]."""
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    inner = law.contrast.T @ kz.gram(law.z, law.z) @ law.contrast
    expected = law.ps @ (inner * ks.gram(law.s, law.s)) @ law.ps
    assert law.evaluate(HSIC(kz.kernel, ks.kernel)) == pytest.approx(expected, rel=1e-11)


def expected_mmd(law, K):
    return np.sqrt(law.squared_mmds(K)) @ law.ps


@pairs
def test_expected_mmd_bound_holds(law, twin, name_z, name_s):
    """Equation hsic_conditional: HSIC <= kappa_S (E MMD)^2, with kappa_S the kernel's own `bound`."""
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    bound = ks.kernel.bound * expected_mmd(law, kz.gram(law.z, law.z)) ** 2
    assert 0.01 * bound < law.evaluate(HSIC(kz.kernel, ks.kernel)) < bound


@pytest.mark.parametrize("share", [0.5, 0.3])
@pytest.mark.parametrize("d", [1, 3])
def test_expected_mmd_bound_is_attained_by_opposite_features(finite_law, twin, d, share):
    """Equation hsic_conditional is an equality for S = -1, 1 and k_S = s s', so kappa_S is the least."""
    law = finite_law.binary(np.random.default_rng(d), d, share)
    kz = twin("gaussian", 0.9)
    hsic = law.evaluate(HSIC(kz.kernel, Linear()))
    assert hsic == pytest.approx(1.0 * expected_mmd(law, kz.gram(law.z, law.z)) ** 2, rel=1e-11)


@pairs
def test_expected_mmd_bound_holds_with_half_the_range_of_the_kernel(law, twin, name_z, name_s):
    """Equation hsic_conditional, sharpened: (max k_S - min k_S) / 2 may stand in place of kappa_S.

    With y(s) = P_S(s) Delta(s) and M = <y(s), y(s')>, all entries of M sum to zero, so HSIC = <M, k_S - c> is
    at most (kappa - c) times the positive part of M, which is half of sum |M| <= (E MMD)^2. For kernels with
    values in (0, 1] the paper's constant is thus twice too large.
    """
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    L = ks.gram(law.s, law.s)
    bound = 0.5 * (L.max() - L.min()) * expected_mmd(law, kz.gram(law.z, law.z)) ** 2
    assert law.evaluate(HSIC(kz.kernel, ks.kernel)) < bound


@pytest.mark.parametrize("name_s", ["gaussian", "laplace", "imq", "linear", "delta"])
@pytest.mark.parametrize("share", [0.5, 0.2])
def test_sharpened_expected_mmd_bound_is_an_equality_for_binary_s(finite_law, twin, name_s, share):
    """Equation hsic_conditional, sharpened: for two values HSIC = (k(s,s) - k(s,s')) / 2 (E MMD)^2."""
    law = finite_law.binary(np.random.default_rng(3), 3, share)
    kz, ks = twin("gaussian", 0.9), twin(name_s, 1.3)
    L = ks.gram(law.s, law.s)
    expected = 0.5 * (L[0, 0] - L[0, 1]) * expected_mmd(law, kz.gram(law.z, law.z)) ** 2
    assert law.evaluate(HSIC(kz.kernel, ks.kernel)) == pytest.approx(expected, rel=1e-11)


def random_element(rng, gram, points, like):
    """A function sum_j alpha_j k(t_j, .) at the points, with its squared norm; the t_j lie anywhere."""
    t = 1.5 * rng.normal(size=(6, *like.shape[1:]))
    alpha = rng.normal(size=6)
    return gram(points, t) @ alpha, alpha @ gram(t, t) @ alpha


def test_smoothed_control_identity_is_the_norm_of_the_embedded_deviations(law, twin, feature_map):
    """Theorem "Smoothed conditional-distribution control": HSIC = |E[Delta(S) x k_S(S, .)]|^2."""
    kz, ks = twin("gaussian", 0.9), twin("laplace", 0.7)
    delta = feature_map(kz.gram(law.z, law.z)).T @ law.contrast  # (features, B)
    tensor = (delta * law.ps) @ feature_map(ks.gram(law.s, law.s))
    assert law.evaluate(HSIC(kz.kernel, ks.kernel)) == pytest.approx((tensor**2).sum(), rel=1e-11)


@pairs
def test_smoothed_control_theorem_and_its_two_reformulations(law, twin, name_z, name_s):
    """Equations hsic_controls_weighted_embedding, .._smoothed_head_gap and .._covariance_contrast.

    The left-hand sides are computed from the conditional deviations; each is also an HSIC of its own, with a
    linear kernel on g(S), on f(Z) or on both.
    """
    rng = np.random.default_rng(5)
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    K, L = kz.gram(law.z, law.z), ks.gram(law.s, law.s)
    hsic = law.evaluate(HSIC(kz.kernel, ks.kernel))
    for _ in range(15):
        g, g_norm = random_element(rng, ks.gram, law.s, law.s)
        f, f_norm = random_element(rng, kz.gram, law.z, law.z)
        weighted = law.contrast @ (law.ps * g)
        smoothed = law.ps * (f @ law.contrast)
        embedding, head, bilinear = weighted @ K @ weighted, smoothed @ L @ smoothed, (smoothed @ g) ** 2
        assert law.evaluate(HSIC(kz.kernel, Linear()), s=g) == pytest.approx(embedding, rel=1e-8)
        assert law.evaluate(HSIC(Linear(), ks.kernel), z=f[:, None]) == pytest.approx(head, rel=1e-8)
        both = law.evaluate(HSIC(Linear(), Linear()), z=f[:, None], s=g)
        assert both == pytest.approx(bilinear, rel=1e-6, abs=1e-14)
        assert embedding <= g_norm * hsic * BELOW
        assert head <= f_norm * hsic * BELOW
        assert bilinear <= f_norm * min(g_norm * hsic, embedding) * BELOW


@pytest.mark.parametrize("name_s", ["gaussian", "laplace", "imq"])
@pytest.mark.parametrize("d", [1, 3])
def test_smoothed_control_theorem_is_attained_when_z_has_two_values(finite_law, twin, d, name_s):
    """Theorem "Smoothed ... control": equality in all three forms, so no constant below one would do.

    With two values Delta(s) = c(s) u, u = k(z_1, .) - k(z_2, .); take f = u and g = E[c(S) k_S(S, .)].
    """
    law = finite_law.two_points(np.random.default_rng(d), d)
    kz, ks = twin("gaussian", 0.9), twin(name_s, 0.7)
    K, L = kz.gram(law.z, law.z), ks.gram(law.s, law.s)
    u, beta = np.array([1.0, -1.0]), law.contrast[0] * law.ps
    f, f_norm, g, g_norm = K @ u, u @ K @ u, L @ beta, beta @ L @ beta
    hsic = law.evaluate(HSIC(kz.kernel, ks.kernel))
    weighted, smoothed = law.contrast @ (law.ps * g), law.ps * (f @ law.contrast)
    assert weighted @ K @ weighted == pytest.approx(g_norm * hsic, rel=1e-10)
    assert smoothed @ L @ smoothed == pytest.approx(f_norm * hsic, rel=1e-10)
    assert (smoothed @ g) ** 2 == pytest.approx(f_norm * g_norm * hsic, rel=1e-10)


@pairs
def test_localized_contrasts_are_controlled_at_one_and_at_two_points(law, twin, name_z, name_s):
    """Corollary "Localized conditional-MMD control by HSIC", points of the support and between them."""
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    K = kz.gram(law.z, law.z)
    hsic = law.evaluate(HSIC(kz.kernel, ks.kernel))
    points = np.concatenate([law.s, np.linspace(-4.0, 4.0, 9)])
    at, among = ks.gram(law.s, points), ks.gram(points, points)
    deviations = law.contrast @ (law.ps[:, None] * at)  # (A, points)
    G = deviations.T @ K @ deviations
    norms = among.diagonal()
    assert (G.diagonal() <= norms * hsic * BELOW).all()
    contrasts = G.diagonal()[:, None] + G.diagonal() - 2.0 * G
    distances = norms[:, None] + norms - 2.0 * among
    assert (contrasts <= distances * hsic * BELOW + 1e-15).all()
    off = ~np.eye(len(points), dtype=bool)
    assert (contrasts[off] / distances[off]).max() > 0.1 * hsic


@pytest.mark.parametrize(("name_s", "one_point"), [("gaussian", False), ("laplace", False), ("linear", True)])
def test_localized_contrasts_are_attained_by_binary_s(finite_law, twin, name_s, one_point):
    """Corollary "Localized ... control": the two values of a binary S attain the two-point form.

    The one-point form is attained when their features are opposite, k_S(s, s') = s s' on {-1, 1}.
    """
    law = finite_law.binary(np.random.default_rng(0), 3, 0.3)
    kz, ks = twin("laplace", 0.9), twin(name_s, 1.1)
    K, L = kz.gram(law.z, law.z), ks.gram(law.s, law.s)
    hsic = law.evaluate(HSIC(kz.kernel, ks.kernel))
    deviations = law.contrast @ (law.ps[:, None] * L)
    contrast = deviations[:, 0] - deviations[:, 1]
    distance = L[0, 0] + L[1, 1] - 2.0 * L[0, 1]
    assert contrast @ K @ contrast == pytest.approx(distance * hsic, rel=1e-10)
    ratio = deviations[:, 0] @ K @ deviations[:, 0] / (L[0, 0] * hsic)
    assert ratio == pytest.approx(1.0, rel=1e-10) if one_point else ratio < 0.5


def tails(law, K, psi):
    """|Delta_l|^2 for each l, and the exact tails |(I - P_m) Delta|^2 for m = 1, 2, ... by projection."""
    coefficients = law.contrast @ (law.ps[:, None] * psi)  # (A, B): the embedding of column l is Delta_l
    energy = np.einsum("al,ac,cl->l", coefficients, K, coefficients)
    residual = [law.contrast - coefficients[:, :m] @ psi[:, :m].T for m in range(1, psi.shape[1] + 1)]
    return energy, np.array([np.einsum("ab,ac,cb->b", r, K, r) @ law.ps for r in residual])


@pairs
@pytest.mark.parametrize("centring", [False, True], ids=["as-stated", "centred"])
def test_spectral_equivalence_holds_for_every_m(law, twin, name_z, name_s, centring):
    """Theorem "Spectral equivalence of HSIC and the conditional MMD integral", both sides, exact tails.

    Also with the centred kernel in T_S: that is the population form of the finite-sample theorem, whose Gram
    matrix is centred while the T_S of this theorem is not.
    """
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    K, L = kz.gram(law.z, law.z), ks.gram(law.s, law.s)
    lam, psi = law.spectrum(law.centred(L) if centring else L)
    positive = int((lam > 1e-10 * lam[0]).sum())
    assert positive == len(law.s) - centring
    hsic = law.evaluate(HSIC(kz.kernel, ks.kernel))
    integral = law.squared_mmds(K) @ law.ps
    energy, rho2 = tails(law, K, psi)
    assert hsic == pytest.approx(lam @ energy, rel=1e-9)
    assert hsic <= lam[0] * integral * BELOW  # and lambda_1 <= kappa_S:
    assert lam[0] <= ks.kernel.bound * BELOW
    assert hsic / ks.kernel.bound < integral
    assert (np.diff(rho2) <= 1e-12).all()
    assert rho2[positive - 1] < 1e-12
    upper = hsic / lam[:positive] + rho2[:positive]
    assert (integral <= upper * BELOW).all()
    assert upper.min() < 5.0 * integral


@pytest.mark.parametrize("name_s", ["gaussian", "laplace", "imq"])
@pytest.mark.parametrize("m", [2, 4, 6])
@pytest.mark.parametrize("d", [1, 3])
def test_spectral_equivalence_is_attained_along_an_eigenfunction(finite_law, twin, d, m, name_s):
    """Theorem "Spectral equivalence": equality for Delta = u psi_m, so lambda_{m-1} in its place is wrong."""
    kz, ks = twin("gaussian", 0.9), twin(name_s, 1.0)
    law = finite_law.along_eigenfunction(np.random.default_rng(m), ks.gram, m, d)
    lam, psi = law.spectrum(ks.gram(law.s, law.s))
    hsic = law.evaluate(HSIC(kz.kernel, ks.kernel))
    K = kz.gram(law.z, law.z)
    integral = law.squared_mmds(K) @ law.ps
    rho2 = tails(law, K, psi)[1]
    assert rho2[m - 1] < 1e-12 * integral
    assert integral == pytest.approx(hsic / lam[m - 1] + rho2[m - 1], rel=1e-7)
    assert integral > 1.005 * hsic / lam[m - 2]


def test_spectral_equivalence_lower_bound_is_attained_by_opposite_features(finite_law, twin):
    """Theorem "Spectral equivalence", left side: HSIC = kappa_S E MMD^2 for S = -1, 1 alike, k_S = s s'."""
    law = finite_law.binary(np.random.default_rng(1), 3, 0.5)
    kz = twin("gaussian", 0.9)
    integral = law.squared_mmds(kz.gram(law.z, law.z)) @ law.ps
    assert law.evaluate(HSIC(kz.kernel, Linear())) == pytest.approx(integral, rel=1e-11)


def test_spectral_equivalence_needs_its_tail(law, twin):
    """Theorem "Spectral equivalence": a kernel of rank one leaves a tail that does not vanish with m."""
    kz, ks = twin("gaussian", 0.9), twin("linear")
    K = kz.gram(law.z, law.z)
    lam, psi = law.spectrum(ks.gram(law.s, law.s))
    hsic = law.evaluate(HSIC(kz.kernel, ks.kernel))
    integral = law.squared_mmds(K) @ law.ps
    rho2 = tails(law, K, psi)[1]
    assert lam[1] < 1e-12 * lam[0]
    assert hsic / lam[0] < 0.9 * integral
    # Rank one: the projected part is all HSIC sees, and the upper bound is an identity.
    assert integral == pytest.approx(hsic / lam[0] + rho2[0], rel=1e-10)


def test_population_quantities_do_not_depend_on_how_the_support_is_listed(law, twin):
    """Definition "Mean embeddings and HSIC": to split a support point in two changes nothing."""
    measure = HSIC(twin("gaussian", 0.9).kernel, twin("imq", 0.7).kernel)
    split = replace(
        law, z=np.vstack([law.z, law.z[:1]]), p=np.vstack([0.25 * law.p[:1], law.p[1:], 0.75 * law.p[:1]])
    )
    assert split.evaluate(measure) == pytest.approx(law.evaluate(measure), rel=1e-12)
