"""Each published penalty on a batch against a loop over the formula of the published scripts."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from benchmarks.speed.runtime import LoopedEIPM, LoopedGDP, WrittenHSIC
from frhsic import baselines
from frhsic.baselines import Residualizer
from frhsic.dependence import EIPM, HSIC
from frhsic.kernels import Gaussian

TRAIN, BATCH, WIDTH = 90, 26, 3
CLOSE = {"rel": 1e-9, "abs": 1e-13}


class Case:
    """Training rows, on which scales of S are fixed, and one batch of them, as the engine sees them."""

    def __init__(self, seed=0):
        g = torch.Generator().manual_seed(seed)
        s = torch.rand(TRAIN, generator=g, dtype=torch.float64).mul(20).round()  # with ties, as ages have
        s = (s - s.min()) / (s.max() - s.min())
        z = torch.randn(TRAIN, WIDTH, generator=g, dtype=torch.float64) + s[:, None] * torch.arange(WIDTH)
        f = z @ torch.tensor([[0.5], [-1.0], [0.8]], dtype=torch.float64) + 0.3
        self.all = z, f, s
        self.z, self.f, self.s = z[:BATCH], f[:BATCH], s[:BATCH]

    def value(self, method):
        fixed = method.penalty.calibrate(*self.all, generator=torch.Generator().manual_seed(1), side="s")
        self.measure = fixed.terms[0].dependence
        return fixed(self.z, self.f, self.s).item()

    @property
    def numpy(self):
        return self.z.numpy(), self.f.numpy()[:, 0], self.s.numpy()


@pytest.fixture
def case():
    return Case()


def gaussian(a, b, sigma):
    return math.exp(-float(np.sum((np.atleast_1d(a) - np.atleast_1d(b)) ** 2)) / (2.0 * sigma**2))


def median_distance(x):
    return float(np.median([np.linalg.norm(x[i] - x[j]) for i in range(len(x)) for j in range(i)]))


def test_frhsic_is_the_biased_trace_with_median_bandwidths(case):
    z, _, s = case.numpy
    sigma_z = median_distance(z)  # of the batch
    sigma_s = median_distance(case.all[2].numpy()[:, None])  # of the training rows
    n = BATCH
    K = [[gaussian(z[i], z[j], sigma_z) for j in range(n)] for i in range(n)]
    L = [[gaussian(s[i], s[j], sigma_s) for j in range(n)] for i in range(n)]
    H = np.eye(n) - 1.0 / n
    expected = np.trace(np.array(K) @ H @ np.array(L) @ H) / n**2
    assert case.value(baselines.FRHSIC) == pytest.approx(expected, **CLOSE)


def test_frem_is_the_mean_root_discrepancy_of_smoothed_laws_that_leave_the_anchor_out(case):
    z, _, s = case.numpy
    n = BATCH
    K = np.array([[gaussian(z[i], z[j], 1.0) for j in range(n)] for i in range(n)])
    total = 0.0
    for a in range(n):
        w = np.array([0.0 if i == a else gaussian(s[a], s[i], 0.5) for i in range(n)])
        w /= w.sum()
        squared = sum(
            (w[i] * w[j] - 2.0 * w[i] / n + 1.0 / n**2) * K[i, j] for i in range(n) for j in range(n)
        )
        total += math.sqrt(squared)
    assert case.value(baselines.FREM) == pytest.approx(total / n, **CLOSE)


def gaps(f, s, points, bandwidth):
    for point in points:
        w = np.array([gaussian(point, value, bandwidth) for value in s])
        yield abs(sum(w[i] * f[i] for i in range(len(f))) / w.sum() - f.mean())


def test_reg_gdp_is_the_mean_gap_over_thirty_points_between_the_extremes_of_the_batch(case):
    _, f, s = case.numpy
    points = [s.min() + k * (s.max() - s.min()) / 29 for k in range(30)]
    expected = sum(gaps(f, s, points, 0.2)) / 30
    assert case.value(baselines.REG_GDP) == pytest.approx(expected, **CLOSE)


def test_the_grid_of_reg_gdp_does_not_reach_beyond_the_batch(case):
    # The training rows do: their ends would give another number.
    z, f, s = (x[(case.all[2] > 0.2) & (case.all[2] < 0.7)] for x in case.all)
    fixed = baselines.REG_GDP.penalty.calibrate(*case.all, side="s")
    points = np.linspace(s.min().item(), s.max().item(), 30)
    expected = sum(gaps(f.numpy()[:, 0], s.numpy(), points, 0.2)) / 30
    assert fixed(z, f, s).item() == pytest.approx(expected, **CLOSE)
    whole = sum(gaps(f.numpy()[:, 0], s.numpy(), np.linspace(0, 1, 30), 0.2)) / 30
    assert abs(whole - expected) > 0.02 * expected


def test_reg_gdp_on_probabilities_is_the_mean_gap_of_the_logistic_function_over_the_rows(case):
    _, f, s = case.numpy
    p = np.array([1.0 / (1.0 + math.exp(-value)) for value in f])
    expected = sum(gaps(p, s, s, 0.2)) / BATCH
    assert case.value(baselines.REG_GDP_PROBABILITIES) == pytest.approx(expected, **CLOSE)


def network(adversary, x):
    (first, second), (bias, last) = adversary.weights, adversary.biases
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    hidden = x @ first.detach().numpy() + bias.detach().numpy()
    hidden = scale * np.where(hidden > 0, hidden, alpha * (np.exp(np.minimum(hidden, 0)) - 1))
    return hidden @ second.detach().numpy() + last.detach().numpy()


def quantile_bins(train, s, count):
    """Numbers of the bins between quantiles of the training rows; a value on an edge is above it."""
    edges = [np.quantile(train, k / count) for k in range(1, count)]
    return [sum(value >= edge for edge in edges) for value in s]


def test_adv_is_minus_the_squared_error_up_to_what_no_encoder_changes(case):
    z, _, s = case.numpy
    value = case.value(baselines.ADV)
    guess = network(case.measure, z)[:, 0]
    error = sum((guess[i] - s[i]) ** 2 for i in range(BATCH)) / BATCH
    assert case.measure.weights[0].shape == (WIDTH, 50)
    assert value == pytest.approx(np.var(s) - error, **CLOSE)


def test_laftr_is_minus_the_cross_entropy_of_four_bins_up_to_what_no_encoder_changes(case):
    z, _, s = case.numpy
    value = case.value(baselines.LAFTR)
    bins = quantile_bins(case.all[2].numpy(), s, 4)
    entropy = 0.0
    for b in range(4):
        share = bins.count(b) / BATCH
        entropy -= share * math.log(share) if share else 0.0
    scores = network(case.measure, z)
    cross = 0.0
    for i, b in enumerate(bins):
        cross -= scores[i, b] - math.log(sum(math.exp(score) for score in scores[i]))
    assert value == pytest.approx(entropy - cross / BATCH, **CLOSE)


def test_mmd_is_the_sum_over_ten_bins_of_squared_distances_of_means(case):
    z, _, s = case.numpy
    bins = np.array(quantile_bins(case.all[2].numpy(), s, 10))
    expected = 0.0
    counts = [int((bins == b).sum()) for b in range(10)]
    assert 1 in counts  # bins of one row are left out
    for b in range(10):
        if counts[b] > 1:
            expected += float(np.sum((z[bins == b].mean(axis=0) - z.mean(axis=0)) ** 2))
    assert case.value(baselines.MMD) == pytest.approx(expected, **CLOSE)


def test_dcor_is_the_biased_squared_distance_covariance(case):
    z, _, s = case.numpy

    def centred(x):
        D = np.array([[np.linalg.norm(a - b) for b in x] for a in x])
        return D - D.mean(axis=0) - D.mean(axis=1)[:, None] + D.mean()

    A, B = centred(z), centred(s[:, None])
    expected = sum(A[i, j] * B[i, j] for i in range(BATCH) for j in range(BATCH)) / BATCH**2
    assert case.value(baselines.DCOR) == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("method", [baselines.ADV, baselines.LAFTR], ids=lambda m: m.name)
def test_what_the_adversary_is_told_does_not_move_the_encoder(method):
    # Var(S) and the entropy of the bins are constants: the gradient is that of the published loss.
    case = Case()
    case.value(method)
    z = case.z.clone().requires_grad_(True)
    case.measure(z, case.s).backward()
    adversary = case.measure
    again = case.z.clone().requires_grad_(True)
    hidden = torch.selu(again @ adversary.weights[0] + adversary.biases[0])
    out = hidden @ adversary.weights[1] + adversary.biases[1]
    if adversary.n_bins is None:
        loss = -torch.nn.functional.mse_loss(out[:, 0], case.s)
    else:
        bins = torch.tensor(quantile_bins(case.all[2].numpy(), case.s.numpy(), 4))
        loss = -torch.nn.functional.cross_entropy(out, bins)
    loss.backward()
    torch.testing.assert_close(z.grad, again.grad, rtol=1e-10, atol=1e-14)


def test_residualizer_is_the_smallest_affine_change_that_removes_the_covariance():
    rng = np.random.default_rng(0)
    s = rng.normal(size=(200, 2))
    X = s @ rng.normal(size=(2, 4)) + rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    left = Residualizer().fit(X, sensitive_features=s).transform(X)
    covariance = (left - left.mean(axis=0)).T @ (s - s.mean(axis=0)) / 200
    np.testing.assert_allclose(covariance, 0.0, atol=1e-12)
    np.testing.assert_allclose(left.mean(axis=0), X.mean(axis=0), atol=1e-12)
    # x - C (C' V^-1 C)^-1 C' V^-1 (x - mean), V = Cov(X), C = Cov(X, S).
    centred = X - X.mean(axis=0)
    V, C = centred.T @ centred / 200, centred.T @ (s - s.mean(axis=0)) / 200
    P = C @ np.linalg.inv(C.T @ np.linalg.inv(V) @ C) @ C.T @ np.linalg.inv(V)
    np.testing.assert_allclose(left, X - centred @ P.T, atol=1e-10)
    # Any other projection along the same nullspace condition changes X more.
    for seed in range(5):
        B = np.random.default_rng(seed).normal(size=(4, 2))
        other = C @ np.linalg.inv(B.T @ C) @ B.T
        assert np.sum((centred @ other.T) ** 2) > np.sum((X - left) ** 2)


def test_residualizer_with_weights_is_that_of_repeated_rows():
    rng = np.random.default_rng(1)
    s = rng.normal(size=60)
    X = np.column_stack([s + rng.normal(size=60), rng.normal(size=60), s**2])
    w = rng.integers(0, 4, size=60)
    weighted = Residualizer().fit(X, sensitive_features=s, sample_weight=w)
    repeated = Residualizer().fit(np.repeat(X, w, axis=0), sensitive_features=np.repeat(s, w))
    np.testing.assert_allclose(weighted.transform(X), repeated.transform(X), atol=1e-10)


def test_residualizer_removes_the_means_of_each_category():
    rng = np.random.default_rng(2)
    group = np.array(["a", "b", "c"])[rng.integers(0, 3, size=300)]
    X = rng.normal(size=(300, 4)) + np.where(group == "a", 2.0, 0.0)[:, None]
    left = Residualizer().fit(X, sensitive_features=group).transform(X)
    means = np.array([left[group == name].mean(axis=0) for name in "abc"])
    np.testing.assert_allclose(means, means.mean(axis=0)[None].repeat(3, axis=0), atol=1e-10)
    assert LinearRegression().fit(X, group == "a").score(X, group == "a") > 0.3


def test_the_formulas_timed_as_written_are_those_of_the_methods(case):
    written = {
        "hsic": (WrittenHSIC(), HSIC(Gaussian(1.0), Gaussian(0.3)), case.z),
        "eipm": (LoopedEIPM(), EIPM(Gaussian(1.0), 0.5, range_s=1.0), case.z),
        "gdp": (LoopedGDP(), baselines.REG_GDP.penalty.dependence, case.f),
    }
    for loop, measure, of in written.values():
        # Their grid is float32, their distances lose half the digits.
        assert loop(of, case.s).item() == pytest.approx(measure(of, case.s).item(), rel=1e-6)
