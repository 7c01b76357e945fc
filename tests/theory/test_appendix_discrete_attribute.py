"""Lemma "Discrete sensitive attribute coincidence" of the paper's appendix, and when the values coincide."""

from dataclasses import replace

import numpy as np
import pytest

from frhsic import HSIC
from frhsic.kernels import Delta, Gaussian, Linear


def with_kernel_table(law, kernel_z, L, feature_map):
    """HSIC for an arbitrary kernel table L on the levels of S: a linear kernel on features of L."""
    return law.evaluate(HSIC(kernel_z, Linear()), s=feature_map(L))


def conditional_integral(law, K):
    """I = E_S[MMD^2(P(Z | S), P(Z))]."""
    return law.squared_mmds(K) @ law.ps


def laws_with_marginal(law, rng, count):
    """Laws with the same P_S and supports, and random P(Z | S)."""
    A, B = law.p.shape
    return [replace(law, p=rng.dirichlet(np.ones(A), size=B).T * law.ps) for _ in range(count)]


@pytest.fixture(params=[3, 5])
def levels(request, finite_law):
    """A law with K levels of S of unequal probabilities, Z in R^3."""
    return finite_law.random(np.random.default_rng(request.param), 3, (6, request.param))


@pytest.mark.parametrize("name_s", ["gaussian", "laplace", "imq", "delta", "linear"])
def test_discrete_lemma_hsic_is_a_quadratic_form_in_the_level_deviations(levels, twin, name_s):
    """Lemma "Discrete sensitive attribute coincidence", the display, with deltas as explicit features."""
    law = levels
    kz, ks = twin("gaussian", 0.9), twin(name_s, 0.7)
    K, L = kz.gram(law.z, law.z), ks.gram(law.s, law.s)
    expected = sum(
        law.ps[i] * law.ps[j] * L[i, j] * (law.contrast[:, i] @ K @ law.contrast[:, j])
        for i in range(len(law.s))
        for j in range(len(law.s))
    )
    assert law.evaluate(HSIC(kz.kernel, ks.kernel)) == pytest.approx(expected, rel=1e-11)


def test_discrete_lemma_hsic_is_an_aggregate_of_two_sample_mmds(levels, twin):
    """Lemma "Discrete ...": "both reduce to aggregated two-sample MMDs", with the whole and in pairs.

    HSIC = sum_k pi_k (L pi)_k MMD^2(P_k, P_Z) - (1/2) sum_kl pi_k pi_l L_kl MMD^2(P_k, P_l): the pairs count
    negatively, against I = sum_k pi_k MMD^2(P_k, P_Z), so the two aggregates differ.
    """
    law = levels
    kz, ks = twin("gaussian", 0.9), twin("laplace", 0.7)
    K, L = kz.gram(law.z, law.z), ks.gram(law.s, law.s)
    between = law.conditional[:, :, None] - law.conditional[:, None, :]
    pairs = np.einsum("aij,ac,cij->ij", between, K, between)
    expected = law.ps * (L @ law.ps) @ law.squared_mmds(K) - 0.5 * law.ps @ (L * pairs) @ law.ps
    assert law.evaluate(HSIC(kz.kernel, ks.kernel)) == pytest.approx(expected, rel=1e-10)


def test_discrete_lemma_both_functionals_vanish_together(levels, twin):
    """Lemma "Discrete ...": HSIC and I vanish if and only if P(Z | S = s_k) = P(Z) for every k."""
    kz = twin("gaussian", 0.9)
    K = kz.gram(levels.z, levels.z)
    for measure in (HSIC(kz.kernel, Gaussian(0.7)), HSIC(kz.kernel, Delta())):
        assert abs(levels.independent.evaluate(measure)) < 1e-15
        for law in laws_with_marginal(levels, np.random.default_rng(0), 5):
            assert law.evaluate(measure) > 1e-4
    assert conditional_integral(levels.independent, K) < 1e-15
    assert conditional_integral(levels, K) > 1e-3


def test_discrete_lemma_needs_positive_definiteness_on_contrasts(finite_law, twin):
    """Lemma "Discrete ...": with a kernel of rank one HSIC vanishes while I does not."""
    conditional = np.array([[0.8, 0.2, 0.8], [0.2, 0.8, 0.2]])
    law = finite_law(np.array([[0.0], [1.0]]), np.array([-1.0, 0.0, 1.0]), conditional * [0.25, 0.5, 0.25])
    kz = twin("gaussian", 0.9)
    assert abs(law.evaluate(HSIC(kz.kernel, Linear()))) < 1e-15
    assert conditional_integral(law, kz.gram(law.z, law.z)) > 0.05


def centred_form(L):
    """The quadratic form of L on vectors of sum zero: all that HSIC can see of it."""
    H = np.eye(len(L)) - 1.0 / len(L)
    return H @ L @ H


def test_discrete_values_coincide_for_the_inverse_probability_kernel(levels, twin, feature_map):
    """Lemma "Discrete ...", in value: HSIC = I for every P(Z | S) when k_S(s, s') = 1{s = s'} / pi_s."""
    kz = twin("gaussian", 0.9)
    D = np.diag(1.0 / levels.ps)
    for law in [levels, *laws_with_marginal(levels, np.random.default_rng(1), 5)]:
        integral = conditional_integral(law, kz.gram(law.z, law.z))
        assert with_kernel_table(law, kz.kernel, D, feature_map) == pytest.approx(integral, rel=1e-10)


@pytest.mark.parametrize("shift", ["constant", "minus one", "vector"])
def test_discrete_values_coincide_up_to_terms_that_centring_removes(levels, twin, feature_map, shift):
    """Lemma "Discrete ...", in value: HSIC = I also for k_S = 1{s = s'} / pi_s + a(s) + a(s').

    Since sum_k pi_k delta_k = 0, any function a of one argument drops out; k_S only has to stay positive
    semi-definite, which it does for all small a and for a = c / 2 with any constant c >= -1. (At c = -1 it is
    the kernel centred under P_S: singular, yet positive definite on contrasts, which is all the lemma needs.)
    """
    kz = twin("gaussian", 0.9)
    size = len(levels.s)
    rng = np.random.default_rng(2)
    a = {
        "constant": np.full(size, 2.0),
        "minus one": np.full(size, -0.5),
        "vector": 0.1 * rng.normal(size=size),
    }[shift]
    L = np.diag(1.0 / levels.ps) + a[:, None] + a
    assert np.linalg.eigvalsh(L).min() > -1e-12
    for law in laws_with_marginal(levels, rng, 5):
        integral = conditional_integral(law, kz.gram(law.z, law.z))
        assert with_kernel_table(law, kz.kernel, L, feature_map) == pytest.approx(integral, rel=1e-9)


def test_discrete_values_coincide_for_no_other_kernel(levels, twin):
    """Lemma "Discrete ...", in value: HSIC = I for all P(Z | S) forces k_S = 1{s = s'} / pi_s + a(s) + a(s').

    HSIC = <M, L> and I = <M, diag(1/pi)> are linear in the table L, with M_kl = pi_k pi_l <delta_k, delta_l>,
    and M 1 = 0. Over random P(Z | S) the M span all symmetric matrices with M 1 = 0, a space of dimension
    K (K - 1) / 2; so L - diag(1/pi) is orthogonal to those, that is, a 1' + 1 a' with K free numbers.
    """
    kz = twin("gaussian", 0.9)
    size = len(levels.s)
    upper = np.triu_indices(size)
    times = np.where(upper[0] == upper[1], 1.0, 2.0)
    rows, integrals = [], []
    for law in laws_with_marginal(levels, np.random.default_rng(3), 40):
        K = kz.gram(law.z, law.z)
        y = law.contrast * law.ps
        rows.append((y.T @ K @ y)[upper] * times)
        integrals.append(conditional_integral(law, K))
    rows = np.array(rows)
    _, values, right = np.linalg.svd(rows)
    rank = int((values > 1e-8 * values[0]).sum())
    assert rank == size * (size - 1) // 2
    null = right[rank:]  # tables that no law can tell from zero
    assert len(null) == size
    one_argument = np.array([(a[:, None] + a)[upper] for a in np.eye(size)])
    assert np.linalg.matrix_rank(np.vstack([null, one_argument]), tol=1e-8) == size
    # Solving HSIC = I for the table gives back diag(1/pi) as far as it can be seen.
    found = np.zeros((size, size))
    found[upper] = np.linalg.lstsq(rows, np.array(integrals), rcond=1e-8)[0]
    found += np.triu(found, 1).T
    np.testing.assert_allclose(centred_form(found), centred_form(np.diag(1.0 / levels.ps)), rtol=1e-6)


@pytest.mark.parametrize("name_s", ["gaussian", "laplace", "imq", "delta"])
def test_discrete_values_differ_for_other_kernels_beyond_any_factor(levels, twin, name_s):
    """Lemma "Discrete ...", in value: for the usual kernels HSIC / I depends on P(Z | S)."""
    kz, ks = twin("gaussian", 0.9), twin(name_s, 0.7)
    ratios = [
        law.evaluate(HSIC(kz.kernel, ks.kernel)) / conditional_integral(law, kz.gram(law.z, law.z))
        for law in laws_with_marginal(levels, np.random.default_rng(4), 20)
    ]
    assert max(ratios) > 1.2 * min(ratios)


@pytest.mark.parametrize(("uniform", "proportional"), [(True, True), (False, False)])
def test_discrete_values_are_proportional_for_the_delta_kernel_only_at_equal_shares(
    finite_law, twin, uniform, proportional
):
    """Lemma "Discrete ...", in value: K HSIC = I for k_S = 1{s = s'} when every level has probability 1/K."""
    law = finite_law.random(np.random.default_rng(6), 3, (6, 4))
    if uniform:
        law = replace(law, p=law.conditional / 4.0)
    kz = twin("gaussian", 0.9)
    for other in laws_with_marginal(law, np.random.default_rng(5), 5):
        integral = conditional_integral(other, kz.gram(law.z, law.z))
        value = 4.0 * other.evaluate(HSIC(kz.kernel, Delta()))
        assert np.isclose(value, integral, rtol=1e-9, atol=0.0) == proportional


@pytest.mark.parametrize("name_s", ["gaussian", "laplace", "imq", "delta", "linear"])
@pytest.mark.parametrize("share", [0.5, 0.15])
def test_discrete_values_are_proportional_for_every_kernel_when_s_is_binary(finite_law, twin, name_s, share):
    """Lemma "Discrete ...", in value: for K = 2, HSIC = pi_0 pi_1 |k_S(s_0,.) - k_S(s_1,.)|^2 I."""
    kz, ks = twin("laplace", 0.9), twin(name_s, 0.7)
    law = finite_law.binary(np.random.default_rng(1), 3, share)
    L = ks.gram(law.s, law.s)
    factor = share * (1.0 - share) * (L[0, 0] + L[1, 1] - 2.0 * L[0, 1])
    integral = conditional_integral(law, kz.gram(law.z, law.z))
    assert law.evaluate(HSIC(kz.kernel, ks.kernel)) == pytest.approx(factor * integral, rel=1e-10)
