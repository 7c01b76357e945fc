"""Intervals, curves and their error process against loops that write the definitions down again."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm, t

from frhsic.data import Sensitive
from frhsic.dependence import GDP, HSIC, DistanceCovariance
from frhsic.inference import (
    _gdp_intervals,
    conditional_curve,
    confidence_interval,
)
from frhsic.inference._equivalence import _smallest_tail
from frhsic.inference._places import gather_rows
from frhsic.inference._process import Process, Smoothed
from frhsic.kernels import Gaussian
from frhsic.numerics._cells import Cells
from tests.helpers import gaussian_pair

DRAWS = 4_000


def sample(n=60, rho=0.6, seed=0):
    return gaussian_pair(n, rho, seed)


def thirds(s):
    return np.digitize(s, [-0.5, 0.5])


def weights_at(a, s, w):
    v = np.array([w[i] * (s[i] == a) for i in range(len(s))])
    return v / v.sum()


def means_at(z, code, w=None):
    w = np.full(len(code), 1 / len(code)) if w is None else w / w.sum()
    labels = Sensitive(torch.tensor(code)[:, None].double(), ("s",), ("categorical",))
    places = gather_rows(torch.tensor(code), torch.tensor(w))
    return Smoothed(torch.tensor(z).reshape(len(code), -1), places, Cells.of(labels, torch.tensor(w)))


# ---- kernels


def centred_products(z, s, sigma=1.0):
    n = len(z)
    H = np.eye(n) - 1 / n
    K, L = (H @ np.exp(-0.5 * np.subtract.outer(x, x) ** 2 / sigma**2) @ H for x in (z, s))
    return K, L


def test_the_normal_interval_is_that_of_the_root_of_the_unbiased_form():
    z, s = sample(120, 0.8)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0))
    result = confidence_interval(z, s, dependence=measure, confidence_level=0.9, random_state=0, chance=False)
    K, L = centred_products(z, s)
    n = len(z)
    influence = [2 * (sum(K[i, j] * L[i, j] for j in range(n)) / n - (K * L).sum() / n**2) for i in range(n)]
    se = math.sqrt(np.var(influence, ddof=1) / n)
    estimate = HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased")(
        torch.tensor(z), torch.tensor(s)
    ).item()
    half = norm.ppf(0.95) * se / (2 * math.sqrt(estimate))
    assert result.method.startswith("normal")
    assert result.estimate == pytest.approx(estimate)
    assert (result.low, result.high) == pytest.approx(
        [(math.sqrt(estimate) + k * half) ** 2 for k in (-1, 1)]
    )


@pytest.mark.parametrize("normalized", [False, True])
def test_near_independence_the_upper_end_is_the_triangle_inequality(normalized):
    z, s = sample(80, 0.0, seed=3)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), normalized=normalized)
    result = confidence_interval(z, s, dependence=measure, random_state=0, n_draws=DRAWS, chance=False)
    K, L = centred_products(z, s)
    n = len(z)
    A = K * L
    A = A - A.mean(axis=0) - A.mean(axis=1)[:, None] + A.mean()
    xi = np.random.default_rng(5).normal(size=(DRAWS, n))
    radius = np.quantile([math.sqrt(max(x @ A @ x, 0.0)) / n for x in xi], 0.95)
    side = HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased")
    zz, ss = (side(torch.tensor(x), torch.tensor(x)).item() for x in (z, s))
    expected = (math.sqrt((K * L).sum()) / n + radius) ** 2 / (math.sqrt(zz * ss) if normalized else 1.0)
    assert result.method.startswith("bound")
    assert result.high == pytest.approx(expected, rel=0.05)
    assert result.low == min(0.0, result.estimate)


def test_distance_correlation_is_the_root_of_the_normalised_energy_hsic():
    z, s = sample(100, 0.7)
    result = confidence_interval(
        z, s, dependence=DistanceCovariance(normalized=True, root=True), random_state=0, chance=False
    )
    squared = confidence_interval(
        z, s, dependence=DistanceCovariance(normalized=True), random_state=0, chance=False
    )
    own = DistanceCovariance(normalized=True, estimator="unbiased")(torch.tensor(z), torch.tensor(s)).item()
    assert squared.estimate == pytest.approx(own)
    ends = [math.sqrt(value) for value in (squared.low, squared.estimate, squared.high)]
    assert [result.low, result.estimate, result.high] == pytest.approx(ends)


def test_chance_of_hsic_is_its_mean_and_quantile_under_permutations():
    z, s = sample(60, 0.5)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased")
    result = confidence_interval(z, s, dependence=measure, random_state=0)
    rng = np.random.default_rng(1)
    orders = torch.tensor(np.array([rng.permutation(60) for _ in range(2_000)]))
    null = measure.permuted(torch.tensor(z), torch.tensor(s), orders).numpy()
    assert result.chance == pytest.approx(null.mean(), abs=4 * null.std() / math.sqrt(199))
    assert np.quantile(null, 0.90) < result.chance_high < np.quantile(null, 0.985)


# ---- the error process


@pytest.mark.parametrize("weighted", [False, True])
def test_curve_and_variance_are_the_weighted_sums_of_their_definition(weighted):
    z, s = sample(300)
    w = np.random.default_rng(1).uniform(0.5, 2.0, len(z)) if weighted else np.ones(len(z))
    w, s = w / w.sum(), thirds(s)
    process = Process(means_at(z, s, w))
    for a, (mean, variance) in enumerate(
        zip(process.mean[:, 0].tolist(), process.variance.tolist(), strict=True)
    ):
        W = weights_at(a, s, w)
        m = sum(W[i] * z[i] for i in range(len(z)))
        naive = sum(W[i] ** 2 * (z[i] - m) ** 2 for i in range(len(z))) / (1 - sum(W**2))
        assert mean == pytest.approx(m - w @ z)
        assert variance == pytest.approx(naive)


@pytest.mark.parametrize("gap", [False, True])
def test_draws_have_the_covariance_of_the_multiplier_sums(gap):
    z, s = sample(150)
    s = thirds(s)
    process = Process(means_at(z, s))
    blocks = [
        errors[..., 0] for errors, _ in process.draws(20_000, torch.Generator().manual_seed(1), gap=gap)
    ]
    ours = np.cov(torch.cat(blocks, dim=1).numpy())
    n = len(z)
    psi = []
    for a in range(3):
        W = weights_at(a, s, np.full(n, 1 / n))
        row = W * (z - W @ z) / math.sqrt(1 - sum(W**2))
        psi.append(row - gap * (z - z.mean()) / n)
    twin = np.array(psi) @ np.array(psi).T
    assert ours == pytest.approx(twin, rel=0.06, abs=0.01 * twin.max())


def test_a_level_of_one_row_takes_the_variance_of_the_others():
    rng = np.random.default_rng(0)
    s = np.append(rng.integers(0, 4, 400), 4)
    z = rng.normal(size=401)
    curve = means_at(z, s)
    within = sum(((z[s == k] - z[s == k].mean()) ** 2).sum() * n / (n - 1) for k, n in _counts(s)) / 400
    assert curve.pooled == pytest.approx(within)
    assert Process(curve, torch.tensor([4])).variance.item() == pytest.approx(within)
    assert "0.2% of the rows" in curve.notes()[0]


def _counts(s):
    return [(k, int((s == k).sum())) for k in range(4)]


# ---- GDP


@pytest.mark.parametrize("size", [0.0, 0.25, 2.0], ids=["all in doubt", "some", "most clear"])
def test_the_limits_of_gdp_are_those_of_the_formula(size):
    """Twelve values of s, 30 rows each; multipliers row by row, the limits written down again."""
    rng = np.random.default_rng(4)
    s = np.repeat(np.arange(12.0), 30)
    z = size * np.where(s < 4, -1.0, 0.5) + rng.normal(size=360)
    # Several columns of scores go by rows: twice the same one is that one.
    twice = np.column_stack((z, z))
    result = confidence_interval(twice, s, dependence=GDP(), n_draws=DRAWS, random_state=0, chance=False)
    means = np.array([z[s == k].mean() for k in range(12)])
    g = means - z.mean()
    assert result.estimate == pytest.approx(np.abs(g).mean())
    xi = rng.normal(size=(DRAWS, 360))
    stretch = math.sqrt(30 / 29)
    e = np.array([stretch * (xi[:, s == k] @ (z[s == k] - means[k])) / 30 for k in range(12)])
    # Of 30 rows the limit of doubt takes the larger of their own variance and those of more.
    e = e - xi @ (z - z.mean()) / 360
    zeta = xi @ (np.abs(g)[s.astype(int)] - np.abs(g).mean()) / 360
    spread = np.sqrt((e**2).mean(axis=1))
    largest = np.quantile((np.abs(e) / spread[:, None]).max(axis=0), 0.99)
    own = np.array([z[s == k].var(ddof=1) for k in range(12)])
    near = [
        own[max(0, k - 3) : k + 4].mean() for k in range(12)
    ]  # at least 200 degrees of freedom of 29 each
    near[0], near[1], near[2], near[-1], near[-2], near[-3] = (
        own[:7].mean(),
        own[:7].mean(),
        own[:7].mean(),
        own[-7:].mean(),
        own[-7:].mean(),
        own[-7:].mean(),
    )
    variance = np.maximum(np.maximum(own, near), own.mean()) / 30
    clear = np.abs(g) > t.isf(norm.sf(largest), 29) * np.sqrt(variance)
    assert {0.0: clear.sum() == 0, 0.25: clear.sum() < 12, 2.0: clear.sum() > 6}[size]
    moves = zeta + (np.sign(g[clear])[:, None] * e[clear]).sum(axis=0) / 12
    noise = np.abs(e[~clear]).sum(axis=0) / 12
    beyond = max(0.0, np.abs(g[~clear]).sum() / 12 - np.quantile(noise, 0.975))
    low = max(0.0, np.abs(g[clear]).sum() / 12 - np.quantile(moves, 0.975) + beyond)
    v = spread[~clear] ** 2
    Q = max(0.0, ((g[~clear] ** 2 - v) / 12).sum())
    chance = ((e[~clear] ** 2 - v[:, None]) / 12).sum(axis=0)
    lam = np.linalg.eigvalsh(e[~clear] @ e[~clear].T / DRAWS / 12)[-1] if (~clear).any() else 0.0
    q, c = np.quantile(chance, 0.975), norm.ppf(0.975)
    # The larger root of (x - Q)^2 = 4 c^2 lam x + q^2.
    most = max(np.roots([1.0, -2 * Q - 4 * c * c * lam, Q * Q - q * q]).real)
    high = np.abs(g[clear]).sum() / 12 - np.quantile(moves, 0.025) + math.sqrt((~clear).mean() * most)
    assert result.low == pytest.approx(low, rel=0.05, abs=0.003)
    assert result.high == pytest.approx(max(high, result.estimate), rel=0.05)


def test_gaps_beyond_doubt_move_with_their_signed_error():
    """Two levels far apart: GDP is then p (1 - p) |difference|-like, and its radius that of a normal mean."""
    rng = np.random.default_rng(0)
    s = np.repeat([0.0, 1.0], 200)
    z = 5.0 * s + rng.normal(size=400)
    twice = np.column_stack((z, z))  # which goes by rows
    result = confidence_interval(twice, s, dependence=GDP(), n_draws=20_000, random_state=0, chance=False)
    x, y = z[:200], z[200:]
    # With equal halves the gap is half the difference at both levels, and the law of s adds nothing.
    se = 0.5 * math.sqrt((x.var(ddof=1) + y.var(ddof=1)) / 200)
    assert result.estimate == pytest.approx(0.5 * (y.mean() - x.mean()))
    assert result.high - result.estimate == pytest.approx(norm.ppf(0.975) * se, rel=0.03)
    assert result.target == "the GDP of the true curve"


def test_chance_of_gdp_by_rows_is_its_mean_under_permutations():
    z, s = sample(90, 0.6)
    z, measure = np.column_stack((z, z)), GDP()
    result = confidence_interval(z, s, dependence=measure, random_state=0)
    rng = np.random.default_rng(1)
    orders = torch.tensor(np.array([rng.permutation(90) for _ in range(400)]))
    null = measure.permuted(torch.tensor(z), torch.tensor(s), orders).numpy()
    assert result.chance == pytest.approx(null.mean(), abs=4 * null.std() / math.sqrt(130))
    assert np.quantile(null, 0.89) < result.chance_high < np.quantile(null, 0.99)


# ---- the curve


def test_level_means_have_the_t_band_of_their_levels():
    rng = np.random.default_rng(0)
    s = np.repeat(np.arange(5), 240)
    z = (1 + 0.2 * s) * rng.normal(size=1_200) + 0.2 * s
    curve = conditional_curve(z, s, n_draws=20_000, random_state=0)
    assert curve.points == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert curve.mass == pytest.approx([0.2] * 5)
    assert curve.mean == pytest.approx([z[s == k].mean() for k in range(5)])
    # The largest of five independent |normals|, then the same tail of Student's law.
    c = t.isf(norm.sf(norm.ppf(0.5 + 0.5 * 0.95 ** (1 / 5))), 239)
    for k in range(5):
        half = (curve.high[k] - curve.low[k]) / 2
        assert half == pytest.approx(c * z[s == k].std(ddof=1) / math.sqrt(240), rel=0.03)


@pytest.mark.parametrize("skewed", [False, True])
def test_small_levels_of_skewed_scores_take_the_larger_of_their_own_and_the_common_variance(skewed):
    rng = np.random.default_rng(0)
    s = np.repeat(np.arange(4), 40)
    z = rng.exponential(size=160)
    if not skewed:
        z[::2] *= -1.0
        z[1::2] = -z[::2]
    z *= np.array([0.5, 1.0, 1.0, 3.0])[s]
    curve = conditional_curve(z, s)
    above = np.array(curve.high) - curve.mean
    own = np.array([z[s == k].var(ddof=1) for k in range(4)])
    if skewed:  # the smallest deviation, with the quantile of a gamma law
        assert above[0] > 1.5 * np.sqrt(own.mean() / 40)
    else:
        c = t.isf(norm.sf(norm.ppf(0.5 + 0.5 * 0.95 ** (1 / 4))), 39)
        assert above == pytest.approx(c * np.sqrt(own / 40))


def test_equal_mass_points_stand_for_equal_shares():
    code = np.repeat(np.arange(300), 2)
    at, mass = means_at(np.random.default_rng(0).normal(size=600), code).points()
    assert at.numpy() == pytest.approx(300 * (np.arange(128) + 0.5) / 128, abs=1.0)
    assert mass.numpy() == pytest.approx([1 / 128] * 128)


# ---- weights


@pytest.mark.parametrize("where", ["normal", "bound"])
def test_the_weighted_interval_of_hsic_is_that_of_its_definition(where):
    z, s = sample(150, 0.8 if where == "normal" else 0.0, seed=6)
    w = np.random.default_rng(1).uniform(0.2, 3.0, 150)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0))
    result = confidence_interval(
        z, s, dependence=measure, random_state=0, n_draws=DRAWS, chance=False, sample_weight=7 * w
    )
    w = w / w.sum()
    n = len(z)
    H = np.eye(n) - np.outer(np.ones(n), w)
    K, L = (H @ np.exp(-0.5 * np.subtract.outer(x, x) ** 2) @ H.T for x in (z, s))
    zs = np.array([sum(w[j] * K[i, j] * L[i, j] for j in range(n)) for i in range(n)])
    rows, d, e = 1 / sum(w**2), K.diagonal(), L.diagonal()
    estimate = (
        w @ zs
        - rows / (rows - 2) * sum(w**2 * d * e)
        + rows**2 / ((rows - 1) * (rows - 2)) * sum(w**2 * d) * sum(w**2 * e)
    ) * (rows / (rows - 3))
    assert result.estimate == pytest.approx(estimate)
    assert result.method.startswith(where)
    if where == "normal":
        se = math.sqrt(sum((2 * w * (zs - w @ zs)) ** 2) * n / (n - 1))
        half = norm.ppf(0.975) * se / (2 * math.sqrt(estimate))
        ends = [(math.sqrt(estimate) + k * half) ** 2 for k in (-1, 1)]
        assert [result.low, result.high] == pytest.approx(ends)
    else:
        A = (K * L - zs[:, None] - zs + w @ zs) * np.outer(w, w)
        xi = np.random.default_rng(5).normal(size=(DRAWS, n))
        radius = np.quantile([math.sqrt(max(x @ A @ x, 0.0)) for x in xi], 0.95)
        assert result.high == pytest.approx((math.sqrt(w @ zs) + radius) ** 2, rel=0.05)


def test_weighted_gdp_by_rows_is_that_of_the_weighted_measure():
    z, s = sample(100, 0.5)
    z, measure = np.column_stack((z, z)), GDP()
    w = np.random.default_rng(1).uniform(0.2, 3.0, 100)
    result = confidence_interval(z, s, dependence=measure, random_state=0, sample_weight=w, chance=False)
    assert result.estimate == pytest.approx(measure(torch.tensor(z), torch.tensor(s), torch.tensor(w)).item())
    plain = confidence_interval(z, s, dependence=measure, random_state=0, chance=False)
    assert result.estimate != pytest.approx(plain.estimate, rel=1e-3)


def test_sums_of_multipliers_over_groups_have_the_law_of_single_multipliers():
    """Covariance of 20,000 draws at three levels, by groups and by rows."""
    rng = np.random.default_rng(0)
    s = rng.integers(0, 3, 300)
    z, w = rng.normal(size=300) + s, rng.uniform(0.2, 3.0, 300)
    process = Process(means_at(z, s, w))
    generator = torch.Generator().manual_seed(1)
    draws = [torch.cat((errors[..., 0], sums)) for errors, sums in process.draws(20_000, generator, gap=True)]
    ours = np.cov(torch.cat(draws, dim=1).numpy())
    w = w / w.sum()
    psi = []
    for a in range(3):
        W = weights_at(a, s, w)
        psi.append(W * (z - W @ z) / math.sqrt(1 - sum(W**2)) - w * (z - w @ z))
    psi += [w * (s == a) for a in range(3)]
    twin = np.array(psi) @ np.array(psi).T
    assert ours == pytest.approx(twin, rel=0.06, abs=0.02 * twin.max())


@pytest.mark.parametrize("weighted", [False, True])
def test_the_limit_of_chance_of_gdp_is_that_of_permutations(weighted, monkeypatch):
    rng = np.random.default_rng(0)
    s = rng.integers(0, 40, 2_000)
    z, w = rng.exponential(size=2_000), rng.uniform(0.2, 3.0, 2_000) if weighted else None
    curve = means_at(z, s, w)

    def mean_and_quantile():
        draws = _gdp_intervals.gdp_under_independence(curve, torch.Generator().manual_seed(0))
        return float(draws.mean()), float(draws.quantile(0.9))

    monkeypatch.setattr(_gdp_intervals, "CHANCE_DRAWS", 1_000)
    permuted = mean_and_quantile()
    monkeypatch.setattr(_gdp_intervals, "CHANCE_ROWS", 100)
    limit = mean_and_quantile()
    assert limit == pytest.approx(permuted, rel=0.06)
    assert limit != permuted


@pytest.mark.parametrize(("enough", "least"), [(200, 0), (120, 2)])
def test_the_variance_near_a_point_is_that_of_neighbours_with_enough_degrees_of_freedom(enough, least):
    rng = np.random.default_rng(0)
    s = torch.tensor(np.repeat(np.arange(12.0), 50))[:, None]
    z = torch.tensor(rng.normal(size=(600, 1)) * (1.0 + 0.3 * s.numpy()))
    ages = Sensitive.of(s)
    cells = GDP().cells(ages)
    places = gather_rows(cells.codes(ages), z.new_full((600,), 1 / 600))
    curve = Smoothed(z, places, cells)
    variance, rows = torch.tensor(rng.uniform(0.1, 60.0, 12)), torch.full((12,), 50.0)
    near = curve.variance_near(variance, rows, enough, least)
    for k in range(12):
        reach = next(r for r in range(least, 12) if (min(k + r, 11) - max(k - r, 0) + 1) * 49 >= enough)
        window = variance[max(k - reach, 0) : k + reach + 1]
        assert float(near[k]) == pytest.approx(max(curve.pooled, float(window.mean())))


def test_the_smallest_p_value_of_an_equivalence_test_is_one_over_the_draws_and_one():
    assert _smallest_tail(lambda tail: 0.0, 1.0, 199) == 1 / 200
    assert _smallest_tail(lambda tail: 2.0, 1.0, 199) == 1.0
    assert _smallest_tail(lambda tail: 1.3 - tail, 1.0, 199) == pytest.approx(0.3, abs=1e-6)
