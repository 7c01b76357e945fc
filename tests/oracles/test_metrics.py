"""Metrics against loops over rows, and against themselves level by level."""

import inspect
import math

import numpy as np
import pytest

from frhsic import metrics

N = 60
METRICS = [getattr(metrics, name) for name in metrics.__all__]


def sample(seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 91, N).astype(float)
    score = ((age - 54) / 36) ** 2 + rng.normal(0, 0.3, N)
    return score, age, rng.uniform(0.5, 2.0, N)


def gaussian(x, median=None):
    distances = [abs(a - b) for i, a in enumerate(x) for b in x[i + 1 :]]
    sigma = sorted(distances)[(len(distances) - 1) // 2]
    return np.array([[math.exp(-((a - b) ** 2) / (2 * sigma**2)) for b in x] for a in x])


def unbiased(K, L):
    """Return the U-statistic over quadruples of distinct rows, by its expansion."""
    n = len(K)
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    total = (K * L).sum() + K.sum() * L.sum() / ((n - 1) * (n - 2)) - 2 * (K @ L).sum() / (n - 2)
    return total / (n * (n - 3))


def gdp(f, s, w):
    w, overall, value = w / w.sum(), np.average(f, weights=w), 0.0
    for at in set(s):
        rows = s == at
        value += w[rows].sum() * abs(np.average(f[rows], weights=w[rows]) - overall)
    return value


def test_gdp_is_the_mean_gap_of_the_means_at_each_value():
    f, s, w = sample()
    s = np.where(s > 54, 1.0, 0.0)  # 20 rows at each value
    measure = metrics.generalized_demographic_parity
    assert measure(None, f, sensitive_features=s) == pytest.approx(gdp(f, s, np.ones(N)), rel=1e-9)
    weighted = measure(None, f, sensitive_features=s, sample_weight=w)
    assert weighted == pytest.approx(gdp(f, s, w), rel=1e-9)


def test_hsic_is_the_u_statistic_and_its_normalised_form_the_ratio():
    f, s, _ = sample()
    K, L = gaussian(f), gaussian(s)
    assert metrics.hsic(None, f, sensitive_features=s) == pytest.approx(unbiased(K, L), rel=1e-9)
    ratio = unbiased(K, L) / math.sqrt(unbiased(K, K) * unbiased(L, L))
    assert metrics.normalized_hsic(None, f, sensitive_features=s) == pytest.approx(ratio, rel=1e-9)


def test_distance_correlation_is_that_of_centred_distances():
    f, s, _ = sample()

    def centred(x):
        D = np.abs(x[:, None] - x[None, :])
        return D - D.mean(0) - D.mean(1)[:, None] + D.mean()

    A, B = centred(f), centred(s)
    plain = math.sqrt((A * B).sum() / math.sqrt((A * A).sum() * (B * B).sum()))
    D, E = (np.abs(x[:, None] - x[None, :]) for x in (f, s))
    debiased = math.sqrt(unbiased(D, E) / math.sqrt(unbiased(D, D) * unbiased(E, E)))
    options = {"sensitive_features": s}
    assert metrics.distance_correlation(None, f, estimator="biased", **options) == pytest.approx(plain)
    assert metrics.distance_correlation(None, f, **options) == pytest.approx(debiased)


def test_eipm_is_the_mean_distance_of_the_neighbourhoods_from_the_whole():
    f, s, _ = sample()
    K, sigma, value = gaussian(f), 0.5 * (s.max() - s.min()), 0.0
    for a in range(N):
        near = np.exp(-((s - s[a]) ** 2) / (2 * sigma**2))
        near[a] = 0.0
        contrast = near / near.sum() - 1 / N
        value += math.sqrt(contrast @ K @ contrast) / N
    assert metrics.eipm(None, f, sensitive_features=s) == pytest.approx(value, rel=1e-9)


def test_kernel_hgr_is_the_norm_of_the_regularised_cross_covariance():
    f, s, _ = sample()
    H = np.eye(N) - 1 / N
    A, B = (H @ gaussian(x) @ H / N for x in (f, s))
    R, T = (G @ np.linalg.inv(G + 0.05 * np.eye(N)) for G in (A, B))
    value = math.sqrt(np.linalg.eigvals(R @ T).real.max())
    assert metrics.kernel_hgr(None, f, sensitive_features=s, ridge=0.05) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_given_is_the_mean_over_levels_by_their_shares(metric):
    f, s, w = sample()
    y = np.array(["no"] * 35 + ["yes"] * 20 + ["rare"] * 5)  # five rows are too few for a level
    apart = [
        (share, metric(None, f[y == level], sensitive_features=s[y == level]))
        for level, share in (("no", 35 / 55), ("yes", 20 / 55))
    ]
    together = metric(None, f, sensitive_features=s, given=y)
    assert together == pytest.approx(sum(share * value for share, value in apart), rel=1e-9)
    biased = {"estimator": "biased"} if "estimator" in inspect.signature(metric).parameters else {}
    mass = {level: w[y == level].sum() for level in ("no", "yes")}
    weighted = sum(
        total
        * metric(None, f[y == level], sensitive_features=s[y == level], sample_weight=w[y == level], **biased)
        for level, total in mass.items()
    ) / sum(mass.values())
    assert metric(None, f, sensitive_features=s, sample_weight=w, given=y, **biased) == pytest.approx(
        weighted, rel=1e-9
    )


@pytest.mark.parametrize("metric", METRICS)
def test_a_weight_of_one_or_zero_is_the_choice_of_rows(metric):
    """Equal opportunity: the rows with a favourable outcome."""
    f, s, _ = sample()
    y = np.arange(N) % 3 == 0
    assert metric(y, f, sensitive_features=s, sample_weight=y) == pytest.approx(
        metric(None, f[y], sensitive_features=s[y]), rel=1e-9
    )
