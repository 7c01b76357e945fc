"""Section 3 of the paper, "The Joint Discrepancy", on finite laws."""

from itertools import product

import numpy as np
import pytest
import torch

from frhsic import EIPM, GDP, HSIC
from frhsic.kernels import Gaussian, Linear

# So small a fraction of the range that smoothing along S does not reach the next support point.
EXACT = 1e-6


def signs(size):
    """All functions from `size` points to {-1, 1}: the extreme points of the functions bounded by one."""
    return np.array(list(product([-1.0, 1.0], repeat=size)))


def zero_level_values(law, twin):
    """Each side of the proposition as a number that is zero exactly when that side holds."""
    kz, ks = twin("gaussian", 0.9), twin("laplace", 0.7)
    heads = signs(len(law.z))
    gaps = heads @ law.contrast  # (heads, B)
    gdp = max(law.evaluate(GDP(EXACT), z=head[:, None]) for head in heads)
    assert gdp == pytest.approx((np.abs(gaps) @ law.ps).max(), abs=1e-14)
    return {
        "1: HSIC": law.evaluate(HSIC(kz.kernel, ks.kernel)),
        "1: total variation": np.abs(law.p - law.independent.p).sum(),  # all functions bounded by one
        "2: joint law": np.abs(law.p - law.independent.p).max(),
        "3: conditional laws": np.abs(law.conditional - law.pz[:, None]).max(),
        "4: bounded functions": np.abs(gaps).max(),
        "EIPM": np.sqrt(law.squared_mmds(kz.gram(law.z, law.z))) @ law.ps,
        "GDP": gdp,
    }


def test_zero_level_proposition_all_conditions_hold_for_an_independent_law(law, twin):
    """Proposition "Zero-level characterization of representation fairness", from condition (2)."""
    values = zero_level_values(law.independent, twin)
    # EIPM is a root, so its rounding is that of MMD^2 under the root.
    assert all(value < (1e-7 if name == "EIPM" else 1e-14) for name, value in values.items()), values


def test_zero_level_proposition_all_conditions_fail_for_a_dependent_law(law, twin):
    """Proposition "Zero-level characterization of representation fairness", from the negation of (2)."""
    values = zero_level_values(law, twin)
    assert all(value > 1e-3 for value in values.values()), values


@pytest.mark.parametrize("d", [1, 3])
def test_zero_level_proposition_needs_a_characteristic_class(finite_law, twin, d):
    """Proposition "Zero-level characterization": a linear kernel takes mean independence for independence."""
    law = finite_law.mean_independent(d)
    assert np.abs(law.z.T @ law.contrast).max() < 1e-15
    assert abs(law.evaluate(HSIC(Linear(), Gaussian(1.0)))) < 1e-15
    assert law.evaluate(GDP(EXACT)) < 1e-15  # the head f(z) = z sees nothing either,
    assert law.evaluate(GDP(EXACT), z=law.z**2) > 0.1  # the head f(z) = z^2 does
    values = zero_level_values(law, twin)
    assert all(value > 1e-3 for value in values.values()), values


@pytest.mark.parametrize("t", [0.5, 1e-2, 1e-4])
def test_zero_level_proposition_holds_however_weak_the_dependence(law, twin, t):
    """Proposition "Zero-level characterization": mixing in the product scales HSIC by t^2, others by t."""
    strong, weak = zero_level_values(law, twin), zero_level_values(law.mixed_with_product(t), twin)
    for name, value in weak.items():
        assert value == pytest.approx(strong[name] * (t * t if name == "1: HSIC" else t), rel=1e-6), name


def test_gdp_of_a_binary_attribute_is_the_parity_gap_times_twice_the_shares(finite_law):
    """Equation GDP: "GDP reduces to DP when S is binary" holds with the factor 2 P(S=0) P(S=1)."""
    for share in (0.5, 0.2):
        law = finite_law.binary(np.random.default_rng(0), share=share)
        gap = abs(law.z[:, 0] @ law.conditional @ [1.0, -1.0])
        assert law.evaluate(GDP(EXACT)) == pytest.approx(2.0 * share * (1.0 - share) * gap, rel=1e-12)


def test_eipm_controls_gdp_of_every_head_and_is_attained(law, finite_law, twin):
    """Section 2, "controlling EIPM controls GDP": GDP(f) <= |f| EIPM, with equality when Z has two values."""
    rng = np.random.default_rng(1)
    kz = twin("gaussian", 0.9)
    for joint in (law, finite_law.two_points(rng, law.z.shape[1])):
        K = kz.gram(joint.z, joint.z)
        eipm = np.sqrt(joint.squared_mmds(K)) @ joint.ps
        alphas = np.vstack([rng.normal(size=(20, len(joint.z))), joint.contrast.T])
        ratios = [
            joint.evaluate(GDP(EXACT), z=(K @ alpha)[:, None]) / np.sqrt(alpha @ K @ alpha) / eipm
            for alpha in alphas
        ]
        assert max(ratios) <= 1.0 + 1e-10
    assert max(ratios) == pytest.approx(1.0, rel=1e-8)


def test_eipm_estimator_reaches_the_population_eipm_as_its_left_out_row_loses_weight(finite_law, twin):
    """Remark "Relation to the MMD-based EIPM": the estimator leaves one row out, an error of order 1/rows."""
    law = finite_law.random(np.random.default_rng(4), 1, (3, 4))
    kz = twin("gaussian", 0.9)
    squared = law.squared_mmds(kz.gram(law.z, law.z))
    errors = {}
    for root, exact in ((True, np.sqrt(squared) @ law.ps), (False, squared @ law.ps)):
        measure = EIPM(kz.kernel, EXACT, root=root)
        for copies in (20, 80):

            def spread(z, s, w, measure=measure, copies=copies):
                return measure(*(x.repeat_interleave(copies, dim=0) for x in (z, s, w)))

            errors[root, copies] = abs(law.evaluate(spread) / exact - 1.0)
        assert errors[root, 80] < 0.3 * errors[root, 20] < 0.01


def finite_witnesses(law, rng, count=30):
    return rng.normal(size=(count, *law.p.shape))


def test_disintegration_theorem_holds_for_a_finite_witness_class(law):
    """Theorem "Disintegration of the joint-vs-product IPM" for 30 arbitrary functions of (z, s)."""
    F = finite_witnesses(law, np.random.default_rng(0))
    joint = np.abs((F * law.p).sum(axis=(1, 2)) - np.einsum("fab,a,b->f", F, law.pz, law.ps)).max()
    inner = np.einsum("fab,ab->fb", F, law.conditional) - np.einsum("fab,a->fb", F, law.pz)
    assert joint == pytest.approx(np.abs(inner @ law.ps).max(), rel=1e-12)
    # The weighting is that of P_S, not a choice: equal weights give another number.
    assert joint != pytest.approx(np.abs(inner.mean(axis=1)).max(), rel=1e-2)


def test_disintegration_theorem_holds_for_a_finite_class_of_product_witnesses(law):
    """Theorem "Disintegration": for f = g(z) h(s) the contrast is a covariance, HSIC with linear kernels."""
    rng = np.random.default_rng(1)
    gs, hs = rng.normal(size=(8, len(law.z))), rng.normal(size=(8, len(law.s)))
    joint = max(
        law.evaluate(HSIC(Linear(), Linear(), root=True), z=g[:, None], s=h)
        for g, h in zip(gs, hs, strict=True)
    )
    contrasts = [(g @ law.contrast * h) @ law.ps for g, h in zip(gs, hs, strict=True)]
    assert joint == pytest.approx(np.abs(contrasts).max(), rel=1e-7)


@pytest.mark.parametrize(("name_z", "name_s"), [("gaussian", "gaussian"), ("laplace", "imq")])
def test_disintegration_theorem_holds_for_the_rkhs_unit_ball(law, twin, name_z, name_s):
    """Theorem "Disintegration" for the unit ball of the product RKHS: root HSIC is the supremum, attained."""
    rng = np.random.default_rng(2)
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    supremum = law.evaluate(HSIC(kz.kernel, ks.kernel, root=True))

    def conditional_contrast(u, t, alpha):
        """The right-hand side for f = sum_j alpha_j k(u_j, .) l(t_j, .), divided by the norm of f."""
        f = np.einsum("aj,bj,j->ab", kz.gram(law.z, u), ks.gram(law.s, t), alpha)
        norm = np.sqrt(alpha @ (kz.gram(u, u) * ks.gram(t, t)) @ alpha)
        return abs((f * law.contrast).sum(axis=0) @ law.ps) / norm

    # The maximiser is the embedding of the signed measure itself.
    A, B = law.p.shape
    u, t = np.repeat(law.z, B, axis=0), np.tile(law.s, A)
    best = conditional_contrast(u, t, (law.contrast * law.ps).ravel())
    assert best == pytest.approx(supremum, rel=1e-7)
    d = law.z.shape[1]
    for _ in range(30):
        anywhere = conditional_contrast(rng.normal(size=(7, d)), rng.normal(size=7), rng.normal(size=7))
        nearby = conditional_contrast(
            u, t, (law.contrast * law.ps).ravel() * (1.0 + 0.1 * rng.normal(size=A * B))
        )
        assert anywhere < supremum
        assert 0.5 * supremum < nearby < supremum * (1.0 - 1e-6)


def selector_values(law, V, selectors):
    """The conditional contrast of (z, s) -> V[selector(s)](z), for each row of selectors."""
    cells = (V @ law.contrast) * law.ps  # (|V|, B)
    return np.array([cells[selector, np.arange(len(law.s))].sum() for selector in selectors])


@pytest.fixture
def small_law(finite_law):
    return finite_law.random(np.random.default_rng(7), 3, (5, 4))


def test_decomposable_corollary_all_selectors_recover_the_conditional_integral(small_law):
    """Corollary "Recovery of the conditional-integral IPM under decomposability", F = all 6^4 selectors."""
    law = small_law
    half = np.random.default_rng(3).normal(size=(3, 5))
    V = np.vstack([half, -half])
    selectors = np.array(list(product(range(6), repeat=4)))
    integral = np.abs(V @ law.contrast).max(axis=0) @ law.ps
    assert np.abs(selector_values(law, V, selectors)).max() == pytest.approx(integral, rel=1e-12)


@pytest.mark.parametrize(
    ("keep", "strictly_below"),
    [
        (lambda g: g[0] == g[1] == g[2] == g[3], 1e-12),  # one g for all s: the contrast averages to zero
        (lambda g: g[0] == g[1] and g[2] == g[3], 0.95),  # g may change only once along s
    ],
    ids=["constant", "coarse"],
)
def test_decomposable_corollary_is_strict_without_all_selectors(small_law, keep, strictly_below):
    """Corollary "Recovery ...": equality is lost without part (1) of Definition "Decomposable ..."."""
    law = small_law
    half = np.random.default_rng(3).normal(size=(3, 5))
    V = np.vstack([half, -half])
    selectors = [g for g in product(range(6), repeat=4) if keep(g)]
    integral = np.abs(V @ law.contrast).max(axis=0) @ law.ps
    assert np.abs(selector_values(law, V, selectors)).max() < strictly_below * integral


def test_decomposable_corollary_needs_a_symmetric_class(small_law):
    """Corollary "Recovery ...": for V = {g} the joint IPM is 0; for V = {g, -g} it is GDP(g)."""
    law = small_law
    g = np.random.default_rng(5).normal(size=5)
    gdp = law.evaluate(GDP(EXACT), z=g[:, None])
    assert gdp > 0.05
    assert np.abs(selector_values(law, g[None], [(0,) * 4])).max() < 1e-15
    both = list(product(range(2), repeat=4))
    assert np.abs(selector_values(law, np.array([g, -g]), both)).max() == pytest.approx(gdp, rel=1e-12)


def test_decomposable_corollary_gives_eipm_for_the_rkhs_ball_and_not_root_hsic(law, twin):
    """Corollary "Recovery ...", V the unit ball: selectors reach EIPM, the product RKHS does not."""
    kz = twin("gaussian", 0.9)
    K = kz.gram(law.z, law.z)
    mmd = np.sqrt(law.squared_mmds(K))
    eipm = mmd @ law.ps
    best = law.contrast / mmd  # g_s = Delta(s) / |Delta(s)|, as coefficients of k(z_a, .)
    np.testing.assert_allclose(np.einsum("ab,ac,cb->b", best, K, best), 1.0)
    reached = np.einsum("ab,ac,cb->b", best, K, law.contrast) @ law.ps
    assert reached == pytest.approx(eipm, rel=1e-12)
    rng = np.random.default_rng(0)
    alphas = rng.normal(size=(200, *law.p.shape))
    norms = np.sqrt(np.einsum("nab,ac,ncb->nb", alphas, K, alphas))
    values = np.einsum("nab,ac,cb->nb", alphas, K, law.contrast) / norms
    assert np.abs(values @ law.ps).max() < eipm
    assert law.evaluate(HSIC(kz.kernel, Gaussian(0.7), root=True)) < 0.75 * eipm


def test_stacked_models_share_one_law_of_s(law):
    """Definition "Mean embeddings and HSIC": each model of a stack gets its own population HSIC."""
    measure = HSIC(Gaussian(0.9), Gaussian(0.7))
    stack = [law.z, law.z**2, np.sin(law.z)]
    A, B = law.p.shape
    rows = torch.tensor(np.stack([np.repeat(z, B, axis=0) for z in stack]))
    values = measure(rows, torch.tensor(np.tile(law.s, A)), torch.tensor(law.p.ravel()))
    assert values.tolist() == pytest.approx([law.evaluate(measure, z=z) for z in stack], rel=1e-12)
