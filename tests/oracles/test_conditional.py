"""EIPM, GDP and binned MMD against loops over anchors, grid points and bins."""

import math

import numpy as np
import pytest
import torch

from frhsic.data import Sensitive
from frhsic.dependence import EIPM, GDP, BinnedMMD
from frhsic.kernels import Gaussian, Linear

CLOSE = {"rel": 1e-10, "abs": 1e-13}


def gaussian(a, b, sigma):
    gap = np.asarray(a) - np.asarray(b)
    return math.exp(-float((gap * gap).sum()) / (2 * sigma**2))


def sample(n, d=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(n, dtype=torch.float64, generator=generator)
    z = torch.randn(n, d, dtype=torch.float64, generator=generator)
    z[:, 0] += 3 * s
    w = 0.1 + torch.rand(n, dtype=torch.float64, generator=generator)
    return z, s, w


def probabilities(w, n, weighted):
    return (w / w.sum()).tolist() if weighted else [1 / n] * n


def eipm(z, similarity, p, sigma_z, root, anchors):
    """Mean over anchors of the MMD between the rows near the anchor, itself left out, and all rows."""
    n = len(z)
    K = [[gaussian(z[i], z[j], sigma_z) for j in range(n)] for i in range(n)]
    total = 0.0
    for a in anchors:
        v = [0.0 if i == a else p[i] * similarity(a, i) for i in range(n)]
        v = [t / sum(v) for t in v]
        squared = sum((v[i] - p[i]) * K[i][j] * (v[j] - p[j]) for i in range(n) for j in range(n))
        total += p[a] * (math.sqrt(max(squared, 0.0)) if root else squared)
    return total / sum(p[a] for a in anchors)


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("anchors", [None, 1, 5])
@pytest.mark.parametrize("tied", [False, True])
def test_eipm_is_the_mean_over_anchors_of_leave_one_out_mmd(tied, anchors, weighted, root):
    n = 14
    z, s, w = sample(n)
    s = (4 * s).round() if tied else s
    p = probabilities(w, n, weighted)
    span = (s.max() - s.min()).item()
    by_rank = sorted(range(n), key=lambda i: s[i].item())  # among equal values in the order of rows
    # Ranks spread evenly from the smallest to the largest; one anchor alone is the smallest.
    places = [0] if anchors == 1 else [round(m * (n - 1) / ((anchors or n) - 1)) for m in range(anchors or n)]
    expected = eipm(
        z.numpy(),
        lambda a, i: gaussian(s[a], s[i], 0.3 * span),
        p,
        1.2,
        root,
        [by_rank[m] for m in places],
    )
    measure = EIPM(Gaussian(1.2), 0.3, anchors=anchors, root=root)
    assert measure(z, s, w if weighted else None).item() == pytest.approx(expected, **CLOSE)


def test_eipm_of_equal_weights_is_the_published_loop():
    n, gamma = 20, 0.5
    z, s, _ = sample(n, d=3, seed=1)
    x, t = z.numpy(), s.numpy()
    gram = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)
    everyone = gram.mean()
    values = []
    for i in range(n):
        near = np.exp(-((t - t[i]) ** 2) / (2 * gamma**2))
        near[i] = 0
        near = near / near.sum()
        values.append(np.sqrt(near @ gram @ near - 2 * near @ gram.mean(axis=1) + everyone))
    actual = EIPM(Gaussian(1.0), gamma, range_s=1.0)(z, s).item()
    assert actual == pytest.approx(np.mean(values), **CLOSE)


def test_eipm_conditions_on_several_columns_by_a_product_and_skips_lonely_categories():
    n = 12
    z, s, _ = sample(n, seed=2)
    codes = torch.tensor([0] * 6 + [1] * 5 + [2], dtype=torch.float64)
    both = Sensitive(torch.stack([s, codes], dim=1), ("a", "b"), ("continuous", "categorical"))
    span = (s.max() - s.min()).item()

    def near(a, i):
        if a == n - 1:
            return 1.0  # the only row of its category counts as the marginal law ...
        return gaussian(s[a], s[i], 0.4 * span) * (codes[a] == codes[i]).item()

    p = [1 / n] * n
    with_rest = eipm(z.numpy(), near, p, 1.0, True, range(n - 1)) * (n - 1) / n  # ... so it adds nothing
    assert EIPM(Gaussian(1.0), 0.4)(z, both).item() == pytest.approx(with_rest, **CLOSE)


def test_calibrated_range_is_that_of_the_calibration_sample():
    z, s, _ = sample(15, seed=3)
    for measure, fixed in (
        (EIPM(Gaussian(1.0), 0.2), EIPM(Gaussian(1.0), 0.2, range_s=3.0)),
        (GDP(0.2), GDP(0.2, range_s=3.0)),
    ):
        wide = s.clone()
        wide[0], wide[1] = -1.0, 2.0
        calibrated = measure.calibrate(z, wide)
        torch.testing.assert_close(calibrated(z, s), fixed(z, s), rtol=1e-12, atol=0)
        assert abs(measure(z, s) - fixed(z, s)) > 1e-3


def nadaraya_watson(at, similarity, f, p):
    v = [p[i] * similarity(at, i) for i in range(len(f))]
    return sum(v[i] * f[i] for i in range(len(f))) / sum(v)


def gdp(points, outer, similarity, z, p):
    gaps = []
    for j in range(z.shape[1]):
        f = z[:, j].tolist()
        mean = sum(p[i] * f[i] for i in range(len(f)))
        gaps.append(
            sum(
                o * abs(nadaraya_watson(t, similarity, f, p) - mean)
                for t, o in zip(points, outer, strict=True)
            )
        )
    return sum(gaps) / len(gaps)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 3])
def test_gdp_is_the_mean_gap_between_smoothed_and_overall_mean(d, weighted):
    n = 25
    z, s, w = sample(n, d, seed=4)
    p = probabilities(w, n, weighted)
    span = (s.max() - s.min()).item()
    expected = gdp(s.tolist(), p, lambda t, i: gaussian(t, s[i].item(), 0.15 * span), z, p)
    assert GDP(0.15)(z, s, w if weighted else None).item() == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n_grid", "bandwidth"), [(50, 0.1), (30, 0.2)])
def test_gdp_on_a_grid_is_the_published_loop(n_grid, bandwidth, weighted):
    n = 25
    z, s, w = sample(n, 1, seed=5)
    p = probabilities(w, n, weighted)
    low, high = s.min().item(), s.max().item()
    points = [low + (high - low) * m / (n_grid - 1) for m in range(n_grid)]
    expected = gdp(points, [1 / n_grid] * n_grid, lambda t, i: gaussian(t, s[i].item(), bandwidth), z, p)
    measure = GDP(bandwidth, weighting="grid", n_grid=n_grid, range_s=1.0)
    assert measure(z, s, w if weighted else None).item() == pytest.approx(expected, **CLOSE)


def test_gdp_conditions_on_several_columns_by_a_product():
    n = 18
    z, s, _ = sample(n, 1, seed=6)
    codes = (torch.arange(n) % 3).double()
    both = Sensitive(torch.stack([s, codes], dim=1), ("a", "b"), ("continuous", "categorical"))
    span = (s.max() - s.min()).item()

    def near(t, i):
        return gaussian(s[t], s[i], 0.2 * span) * (codes[t] == codes[i]).item()

    expected = gdp(range(n), [1 / n] * n, near, z, [1 / n] * n)
    assert GDP(0.2)(z, both).item() == pytest.approx(expected, **CLOSE)


def test_gdp_leaves_a_category_without_weight_out():
    z, _, _ = sample(9, 1, seed=12)
    codes = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2], dtype=torch.float64)
    w = torch.tensor([1.0, 2.0, 1.0, 1.0, 3.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    s = Sensitive(codes[:, None], ("c",), ("categorical",))
    p = (w[:6] / w.sum()).tolist()
    expected = gdp(range(6), p, lambda t, i: float(codes[t] == codes[i]), z[:6], p)
    assert GDP()(z, s, w).item() == pytest.approx(expected, **CLOSE)


def exact_gdp(f, s, sigma, p):
    """The same double sum in blocks of rows, so that 5,000 rows fit."""
    total = 0.0
    for rows in np.array_split(np.arange(len(s)), 20):
        v = np.exp(-((s[rows, None] - s[None]) ** 2) / (2 * sigma**2)) * p
        total += p[rows] @ np.abs((v @ f) / v.sum(axis=1) - p @ f)
    return total


@pytest.mark.parametrize("bandwidth", [0.02, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("law", ["uniform", "normal", "integer"])
def test_gdp_in_linear_time_is_the_double_sum(law, weighted, bandwidth):
    n = 5_000
    rng = np.random.default_rng(7)
    s = {
        "uniform": rng.random(n),
        "normal": rng.normal(size=n),  # tails with a few rows far from the others
        "integer": rng.integers(17, 91, n).astype(float),
    }[law]
    position = (s - s.min()) / np.ptp(s)
    f = 1 / (1 + np.exp(-(6 * position - 3 + rng.normal(size=n))))
    w = 0.1 + rng.random(n)
    p = w / w.sum() if weighted else np.full(n, 1 / n)
    expected = exact_gdp(f, s, bandwidth * np.ptp(s), p)
    actual = GDP(bandwidth)(torch.tensor(f), torch.tensor(s), torch.tensor(w) if weighted else None).item()
    assert actual == pytest.approx(expected, rel=0, abs=1e-10 if law == "integer" else 1e-4)


def test_gdp_in_linear_time_has_the_gradient_of_the_double_sum():
    n = 4_100
    generator = torch.Generator().manual_seed(8)
    s = torch.rand(n, dtype=torch.float64, generator=generator)
    z = (s + 0.1 * torch.randn(n, dtype=torch.float64, generator=generator)).requires_grad_()
    (actual,) = torch.autograd.grad(GDP(0.1, range_s=1.0)(z, s), z)
    v = torch.exp(-((s[:, None] - s) ** 2) / (2 * 0.1**2))
    v = v / v.sum(dim=1, keepdim=True)
    (expected,) = torch.autograd.grad((v @ z - z.mean()).abs().mean(), z)
    assert ((actual - expected).norm() / expected.norm()).item() < 1e-3


def binned_mmd(z, bin_of, p, k):
    n, total = len(z), 0.0
    for b in sorted(set(bin_of)):
        inside = [i for i in range(n) if bin_of[i] == b]
        if len(inside) < 2:
            continue
        mass = sum(p[i] for i in inside)
        e = [(p[i] / mass if i in inside else 0.0) - p[i] for i in range(n)]
        total += sum(e[i] * e[j] * k(z[i], z[j]) for i in range(n) for j in range(n))
    return total


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("binning", ["quantile", "width"])
@pytest.mark.parametrize("n_bins", [2, 5, 10])
def test_binned_mmd_is_the_sum_over_bins_of_two_rows_or_more(n_bins, binning, weighted, kernel):
    n = 24
    z, s, w = sample(n, seed=9)
    s = s**3  # so that equal widths leave bins with one row or none
    t = s.numpy()
    edges = (
        np.quantile(t, np.linspace(0, 1, n_bins + 1))
        if binning == "quantile"
        else np.linspace(t.min(), t.max(), n_bins + 1)
    )
    bin_of = np.digitize(t, edges[1:-1]).tolist()
    if (binning, n_bins) == ("width", 10):
        assert 1 in [bin_of.count(b) for b in range(n_bins)]
    p = probabilities(w, n, weighted)
    k = (lambda a, b: float(a @ b)) if kernel == "linear" else (lambda a, b: gaussian(a, b, 1.1))
    expected = binned_mmd(z.numpy(), bin_of, p, k)
    measure = BinnedMMD(n_bins, binning=binning, kernel_z=Linear() if kernel == "linear" else Gaussian(1.1))
    assert measure(z, s, w if weighted else None).item() == pytest.approx(expected, **CLOSE)


# Sizes for which no edge falls on a row, where numpy's rounding would decide.
@pytest.mark.parametrize("n", [22, 100, 255])
def test_binned_mmd_is_the_published_sum_of_squared_distances_of_means(n):
    z, s, _ = sample(n, d=4, seed=n)
    x, t = z.numpy(), s.numpy()
    bin_of = np.digitize(t, np.quantile(t, np.linspace(0, 1, 11))[1:-1])
    expected = 0.0
    for b in range(10):
        if (bin_of == b).sum() > 1:
            expected += ((x[bin_of == b].mean(axis=0) - x.mean(axis=0)) ** 2).sum()
    assert BinnedMMD()(z, s).item() == pytest.approx(expected, **CLOSE)


def test_a_row_exactly_on_a_quantile_edge_belongs_to_the_bin_above():
    n, n_bins = 21, 10
    for seed in range(20):
        z, s, _ = sample(n, seed=seed)
        order = s.argsort().tolist()
        # The k-th edge is the row of rank 2 k exactly.
        bin_of = [0] * n
        for rank, row in enumerate(order):
            bin_of[row] = min(rank // 2, n_bins - 1)
        expected = binned_mmd(z.numpy(), bin_of, [1 / n] * n, lambda a, b: float(a @ b))
        assert BinnedMMD(n_bins)(z, s).item() == pytest.approx(expected, **CLOSE)


def test_binned_mmd_of_categories_has_a_bin_for_each_level():
    z, _, _ = sample(13, seed=10)
    codes = [0, 3, 1, 1, 3, 3, 0, 1, 2, 0, 3, 1, 0]
    s = Sensitive(torch.tensor(codes, dtype=torch.float64)[:, None], ("c",), ("categorical",))
    expected = binned_mmd(z.numpy(), codes, [1 / 13] * 13, lambda a, b: float(a @ b))
    assert BinnedMMD(2)(z, s).item() == pytest.approx(expected, **CLOSE)


def test_pairwise_mmd_of_equal_bins_is_the_number_of_bins_times_the_sum():
    z, s, _ = sample(20, seed=11)
    order = s.argsort().tolist()
    groups = [z[order[5 * b : 5 * b + 5]].mean(dim=0) for b in range(4)]
    pairwise = sum((groups[a] - groups[b]).square().sum().item() for a in range(4) for b in range(a))
    assert 4 * BinnedMMD(4)(z, s).item() == pytest.approx(pairwise, rel=1e-10)
