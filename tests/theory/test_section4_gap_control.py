"""Section 4.2 of the paper, "Control of the demographic-parity gap", and the remark on its constant."""

import numpy as np
import pytest
import torch

from frhsic import GDP, HSIC
from frhsic.kernels import Gaussian, Linear

EXACT = 1e-6  # smoothing along S that does not reach the next support point
BELOW = 1.0 + 1e-9
KERNELS = ["gaussian", "laplace", "imq"]


def tensor(x):
    return torch.tensor(x, dtype=torch.float64)


def random_heads(rng, gram, z, count):
    """Functions sum_j alpha_j k(u_j, .) centred in z and elsewhere: values and squared norms."""
    u = np.vstack([z[: min(8, len(z))], 1.5 * rng.normal(size=(6, z.shape[1]))])
    alphas = rng.normal(size=(count, len(u)))
    return alphas @ gram(u, z), np.einsum("ni,ij,nj->n", alphas, gram(u, u), alphas)


@pytest.mark.parametrize("name_z", KERNELS)
@pytest.mark.parametrize("name_s", KERNELS)
def test_spectral_gdp_control_holds_for_every_m_and_random_heads(law, twin, name_z, name_s):
    """Corollary "Spectral control of GDP for RKHS heads", both displays, with the exact tail of each head."""
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    lam, psi = law.spectrum(ks.gram(law.s, law.s))
    assert (lam > 1e-10 * lam[0]).all()
    hsic = law.evaluate(HSIC(kz.kernel, ks.kernel))
    values, norms = random_heads(np.random.default_rng(0), kz.gram, law.z, 10)
    for f, norm in zip(values, norms, strict=True):
        m_f = f @ law.contrast
        gdp = law.evaluate(GDP(EXACT), z=f[:, None])
        assert gdp == pytest.approx(np.abs(m_f) @ law.ps, rel=1e-9)
        coefficients = (m_f * law.ps) @ psi
        for m in range(1, len(lam) + 1):
            projected = psi[:, :m] @ coefficients[:m]
            r2 = (m_f - projected) ** 2 @ law.ps
            assert projected**2 @ law.ps <= norm / lam[m - 1] * hsic * BELOW
            assert gdp**2 <= (norm / lam[m - 1] * hsic + r2) * BELOW


@pytest.mark.parametrize("name_s", KERNELS)
@pytest.mark.parametrize("m", [2, 4, 6])
@pytest.mark.parametrize("d", [1, 3])
def test_spectral_gdp_control_is_attained_along_an_eigenfunction(finite_law, twin, d, m, name_s):
    """Corollary "Spectral control of GDP": equality for Delta = u psi_m, f = u; lambda_{m-1} would fail."""
    kz, ks = twin("gaussian", 0.9), twin(name_s, 1.0)
    law = finite_law.along_eigenfunction(np.random.default_rng(m), ks.gram, m, d)
    lam = law.spectrum(ks.gram(law.s, law.s))[0]
    K = kz.gram(law.z, law.z)
    alpha = law.contrast[:, 0]  # proportional to u
    m_f = K @ alpha @ law.contrast
    hsic = law.evaluate(HSIC(kz.kernel, ks.kernel))
    assert m_f**2 @ law.ps == pytest.approx(alpha @ K @ alpha / lam[m - 1] * hsic, rel=1e-7)
    assert m_f**2 @ law.ps > 1.005 * (alpha @ K @ alpha / lam[m - 2] * hsic)


@pytest.mark.parametrize("name_s", KERNELS)
def test_spectral_gdp_control_of_the_gap_itself_is_attained_by_balanced_binary_s(finite_law, twin, name_s):
    """Corollary "Spectral control of GDP", last display: equality at m = 2 for two equally likely values."""
    law = finite_law.binary(np.random.default_rng(2), 3, 0.5)
    kz, ks = twin("gaussian", 0.9), twin(name_s, 1.0)
    K = kz.gram(law.z, law.z)
    lam = law.spectrum(ks.gram(law.s, law.s))[0]
    alpha = law.contrast[:, 0]
    gdp = law.evaluate(GDP(EXACT), z=(K @ alpha)[:, None])
    bound = alpha @ K @ alpha / lam[1] * law.evaluate(HSIC(kz.kernel, ks.kernel))
    assert gdp**2 == pytest.approx(bound, rel=1e-10)


def sample(seed, d, n=40):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    z = np.sin(2.0 * s)[:, None] + 0.7 * rng.normal(size=(n, d))
    return z, s


def spectrum(L):
    """The positive eigenvalues of H L H / n (above 1e-10 of the first), largest first, and eigenvectors."""
    n = len(L)
    H = np.eye(n) - 1.0 / n
    lam, vectors = np.linalg.eigh(H @ L @ H / n)
    keep = lam[::-1] > 1e-10 * lam[-1]
    return lam[::-1][keep], vectors[:, ::-1][:, keep]


@pytest.mark.parametrize("name_s", KERNELS)
@pytest.mark.parametrize("name_z", KERNELS)
@pytest.mark.parametrize("d", [1, 3])
def test_finite_sample_gdp_control_holds_for_every_m_and_random_heads(twin, d, name_z, name_s):
    """Theorem "Finite-sample control of the empirical demographic-parity gap by HSIC", both inequalities."""
    z, s = sample(d, d)
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    lam, E = spectrum(ks.gram(s, s))
    assert len(lam) >= 15
    hsic = HSIC(kz.kernel, ks.kernel)(tensor(z), tensor(s)).item()
    values, norms = random_heads(np.random.default_rng(1), kz.gram, z, 20)
    deltas = values - values.mean(axis=1, keepdims=True)
    coefficients = deltas @ E
    tightest = 0.0
    for m in range(1, len(lam) + 1):
        gaps = coefficients[:, :m] @ E[:, :m].T
        gdp, squares = np.abs(gaps).mean(axis=1), (gaps**2).mean(axis=1)
        bound = norms / lam[m - 1] * hsic
        assert (gdp**2 <= squares * BELOW).all()
        assert (squares <= bound * (1.0 + 1e-6)).all()
        tightest = max(tightest, (squares / bound).max())
    assert tightest > 0.02  # the bound is of the order of what it bounds for some head and resolution


@pytest.mark.parametrize("name_s", KERNELS)
def test_finite_sample_gdp_control_is_attained_along_each_eigenvector(twin, name_s):
    """Theorem "Finite-sample control": equality for z = e_m and f(z) = z, so lambda_{m-1} is too large."""
    s = sample(5, 1)[1]
    ks = twin(name_s, 0.7)
    lam, E = spectrum(ks.gram(s, s))
    checked = 0
    for m in range(2, int((lam > 1e-6 * lam[0]).sum()) + 1):
        e = E[:, m - 1]
        hsic = HSIC(Linear(), ks.kernel)(tensor(e), tensor(s)).item()
        gap = E[:, :m] @ (E[:, :m].T @ (e - e.mean()))
        assert (gap**2).mean() == pytest.approx(1.0 / lam[m - 1] * hsic, rel=1e-6)
        if lam[m - 2] > 1.001 * lam[m - 1]:
            assert (gap**2).mean() > 1.0005 / lam[m - 2] * hsic
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize("name_s", KERNELS)
def test_finite_sample_gdp_control_of_the_gap_itself_is_attained_by_balanced_binary_s(twin, name_s):
    """Theorem "Finite-sample control": both are equalities for balanced S = -1, 1 and f(z) = z = S."""
    s = np.repeat([-1.0, 1.0], 12)
    ks = twin(name_s, 1.0)
    lam, E = spectrum(ks.gram(s, s))
    assert len(lam) == 1
    hsic = HSIC(Linear(), ks.kernel)(tensor(s), tensor(s)).item()
    gap = E @ (E.T @ s)
    assert np.abs(gap).mean() ** 2 == pytest.approx((gap**2).mean(), rel=1e-12)
    assert (gap**2).mean() == pytest.approx(hsic / lam[0], rel=1e-10)


@pytest.mark.parametrize("name_s", KERNELS)
@pytest.mark.parametrize("name_z", KERNELS)
def test_hsic_spectral_identity(twin, name_z, name_s):
    """Equation hsic_spectral: HSIC_b = (1/n) sum_j lambda_j e_j' K~ e_j."""
    z, s = sample(3, 3)
    kz, ks = twin(name_z, 0.9), twin(name_s, 0.7)
    n = len(s)
    H = np.eye(n) - 1.0 / n
    Kc = H @ kz.gram(z, z) @ H
    lam, E = spectrum(ks.gram(s, s))
    terms = lam * np.einsum("ij,ik,kj->j", E, Kc, E) / n
    hsic = HSIC(kz.kernel, ks.kernel)(tensor(z), tensor(s)).item()
    assert hsic == pytest.approx(terms.sum(), rel=1e-9)
    assert terms[0] < 0.9 * hsic
    assert hsic == pytest.approx(np.trace(Kc @ H @ ks.gram(s, s) @ H) / n**2, rel=1e-11)


def test_finite_sample_gap_at_full_resolution_is_the_spread_of_the_head_not_its_dependence(twin):
    """Theorem "Finite-sample control" at m = r = n - 1: P_m is H, so the gap is mean |f - mean f|.

    It is the same number for every re-pairing of Z with S: at full resolution the bounded quantity carries no
    information on dependence (the remark's "point-mass notion of conditioning").
    """
    z, s = sample(6, 1, n=12)
    ks = twin("laplace", 0.2)
    f = np.tanh(z[:, 0])
    gaps = []
    for order in (np.arange(12), np.random.default_rng(0).permutation(12)):
        lam, E = spectrum(ks.gram(s[order], s[order]))
        assert len(lam) == 11
        gaps.append(np.abs(E @ (E.T @ f)).mean())
        coarse = np.abs(E[:, :2] @ (E[:, :2].T @ f)).mean()
        assert coarse < 0.9 * gaps[-1]
    assert gaps == pytest.approx([np.abs(f - f.mean()).mean()] * 2, rel=1e-10)


def test_finite_sample_bound_with_a_truncated_eigenvalue_needs_the_truncated_projection():
    """Theorem "Finite-sample control": lambda_m goes with P_m.

    The appendix "Empirical Tightness" divides by the last eigenvalue above 1e-6 lambda_1 but keeps the whole
    gap vector; a head along a dropped eigenvector then exceeds the "bound".
    """
    s = np.linspace(-1.5, 1.5, 40)
    lam, E = spectrum(np.exp(-0.5 * (s[:, None] - s) ** 2))
    kept = int((lam > 1e-6 * lam[0]).sum())
    assert kept < len(lam)
    e = E[:, kept]  # the first dropped one
    hsic = HSIC(Linear(), Gaussian(1.0))(tensor(e), tensor(s)).item()
    bound = hsic / lam[kept - 1]
    assert ((e - e.mean()) ** 2).mean() > 2.0 * bound
    assert ((E[:, :kept] @ (E[:, :kept].T @ e)) ** 2).mean() < bound


def smallest(sigma, s):
    """lambda_min^+ of H L H / n for distinct S: the (n - 1)-th eigenvalue, with L from the package."""
    L = Gaussian(sigma).gram(tensor(s)[:, None], tensor(s)[:, None]).numpy()
    n = len(s)
    H = np.eye(n) - 1.0 / n
    return np.linalg.eigvalsh(H @ L @ H / n)[1]


def test_bandwidth_remark_small_bandwidths_give_one_over_n():
    """Remark "Bandwidth scaling of the full-resolution constant": the limit at sigma -> 0 is 1/n."""
    s = np.array([-1.3, -0.4, 0.1, 0.9, 1.6, 2.2, 3.1])
    values = [smallest(sigma, s) for sigma in (1.0, 0.5, 0.25, 0.1, 0.05)]
    assert np.all(np.diff(values) > 0)
    assert values[-1] == pytest.approx(1.0 / 7.0, rel=1e-10)


def test_bandwidth_remark_large_bandwidths_give_zero_at_the_rate_of_the_number_of_rows():
    """Remark "Bandwidth scaling": the limit at sigma -> infinity is 0, like sigma^(-2 (n - 1)).

    The exponent grows with n, so at n = 1500 the smallest positive eigenvalue is far below rounding.
    """
    s = np.array([-1.0, 0.2, 0.9, 2.0])
    ratios = [smallest(sigma, s) / smallest(2.0 * sigma, s) for sigma in (10.0, 20.0)]
    assert smallest(40.0, s) < 1e-8
    assert ratios == pytest.approx([2.0**6] * 2, rel=0.05)


def test_bandwidth_remark_needs_distinct_values_of_s():
    """Remark "Bandwidth scaling": with ties L does not tend to the identity; two rows per value give 2/n."""
    s = np.repeat([-1.0, 0.0, 2.0, 3.0], 2)
    L = Gaussian(0.05).gram(tensor(s)[:, None], tensor(s)[:, None]).numpy()
    lam = spectrum(L)[0]
    assert lam == pytest.approx([2.0 / 8.0] * 3, rel=1e-10)
