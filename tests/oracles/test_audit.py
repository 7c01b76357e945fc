"""Every number of an audit of a seeded table, by loops over rows and by other libraries."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from frhsic.auditing import Audit, audit
from frhsic.auditing.probes import explained_variance

N = 160


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    age = rng.choice([30.0, 54.0, 80.0], N)  # at least 20 rows at each: every value is a cell of its own
    score = 1 / (1 + np.exp(-(((age - 54) / 20) ** 2 - 1.5 + 0.5 * rng.normal(size=N))))
    y = (rng.random(N) < score).astype(int)
    return {"age": age, "score": score, "y": y, "z": np.column_stack((score, rng.normal(size=N)))}


@pytest.fixture(scope="module")
def found(rows: dict[str, Any]) -> Audit:
    s = {"age": rows["age"]}
    return audit(rows["score"], sensitive_features=s, y_true=rows["y"], random_state=1)


def lower_median(x: np.ndarray) -> float:
    gaps = sorted(abs(a - b) for a, b in combinations(x, 2))
    return gaps[(len(gaps) - 1) // 2]


def gram(x: np.ndarray) -> np.ndarray:
    sigma = lower_median(x)
    return np.array([[math.exp(-((a - b) ** 2) / (2 * sigma**2)) for b in x] for a in x])


def unbiased_hsic(K: np.ndarray, L: np.ndarray) -> float:
    """The U-statistic of Song et al. (2012), with zero diagonals."""
    n = len(K)
    K, L = K - np.diag(np.diag(K)), L - np.diag(np.diag(L))
    total = np.trace(K @ L) + K.sum() * L.sum() / ((n - 1) * (n - 2)) - 2 * (K @ L).sum() / (n - 2)
    return float(total / (n * (n - 3)))


def mean_at(f: np.ndarray, s: np.ndarray, at: float) -> float:
    inside = [x for x, a in zip(f, s, strict=True) if a == at]
    return sum(inside) / len(inside)


def gdp(f: np.ndarray, s: np.ndarray) -> float:
    return float(np.mean([abs(mean_at(f, s, at) - f.mean()) for at in s]))


def test_hsic_and_its_normalised_form(found: Audit, rows: dict[str, Any]) -> None:
    K, L = gram(rows["score"]), gram(rows["age"])
    plain = unbiased_hsic(K, L)
    assert found.attributes[0].measures["hsic"].estimate == pytest.approx(plain, rel=1e-9)
    share = plain / math.sqrt(unbiased_hsic(K, K) * unbiased_hsic(L, L))
    assert found.attributes[0].measures["normalized_hsic"].estimate == pytest.approx(share, rel=1e-9)


def test_distance_correlation_is_the_u_statistic_of_distances(found: Audit, rows: dict[str, Any]) -> None:
    interval = found.attributes[0].measures["distance_correlation"]
    A, B = (np.array([[abs(a - b) for b in x] for a in x]) for x in (rows["score"], rows["age"]))
    squared = unbiased_hsic(A, B) / math.sqrt(unbiased_hsic(A, A) * unbiased_hsic(B, B))
    assert interval.estimate == pytest.approx(math.sqrt(squared), rel=1e-9)


def test_kernel_hgr_is_the_largest_regularised_correlation(found: Audit, rows: dict[str, Any]) -> None:
    H = np.eye(N) - 1 / N
    operators = []
    for K in (gram(rows["score"]), gram(rows["age"])):
        A = H @ K @ H / N
        operators.append(A @ np.linalg.inv(A + 0.01 * np.eye(N)))
    largest = max(np.linalg.eigvals(operators[0] @ operators[1]).real)
    result = found.attributes[0].measures["kernel_hgr"]
    assert result.estimate == pytest.approx(math.sqrt(largest), rel=1e-8)
    assert result.chance < result.chance_high < math.sqrt(largest)  # type: ignore[operator]


def test_gdp_overall_and_in_each_label(found: Audit, rows: dict[str, Any]) -> None:
    one = found.attributes[0]
    assert one.outcome is not None
    assert one.measures["gdp"].plug_in == pytest.approx(gdp(rows["score"], rows["age"]), rel=1e-9)
    levels = {given.label: given for given in one.outcome.labels}
    for label in (0, 1):
        kept = rows["y"] == label
        given = levels[str(label)]
        if kept.sum() < 50:
            assert given.gdp is None
        else:
            assert given.gdp is not None
            assert given.gdp.plug_in == pytest.approx(gdp(rows["score"][kept], rows["age"][kept]), rel=1e-9)


def test_gdp_by_chance_is_its_mean_over_random_pairings(found: Audit, rows: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    values = [gdp(rng.permutation(rows["score"]), rows["age"]) for _ in range(60)]
    interval = found.attributes[0].measures["gdp"]
    assert interval.chance == pytest.approx(np.mean(values), abs=4 * np.std(values) / math.sqrt(60))


def test_the_curve_and_the_calibration_are_means_at_each_value(found: Audit, rows: dict[str, Any]) -> None:
    one = found.attributes[0]
    assert one.curve is not None
    assert one.outcome is not None
    assert one.outcome.calibration is not None
    for curve, f in ((one.curve, rows["score"]), (one.outcome.calibration, rows["y"] - rows["score"])):
        assert list(curve.points) == sorted(set(rows["age"]))
        for at, mean in zip(curve.points, curve.mean, strict=True):
            assert mean == pytest.approx(mean_at(f, rows["age"], at), rel=1e-9, abs=1e-12)
        assert curve.overall == pytest.approx(f.mean(), rel=1e-9)
    gap = one.outcome.calibration_gap
    assert gap is not None
    assert gap.plug_in == pytest.approx(gdp(rows["y"] - rows["score"], rows["age"]), rel=1e-9)


def test_the_profile_is_the_distance_of_the_law_at_a_value_from_the_law_overall(
    found: Audit, rows: dict[str, Any]
) -> None:
    profile = found.attributes[0].profile
    assert profile is not None
    K, s = gram(rows["score"]), rows["age"]
    for at, contrast in zip(profile.points, profile.contrast, strict=True):
        window = (s == at).astype(float)
        e = window / window.sum() - 1 / N
        assert contrast == pytest.approx(math.sqrt(e @ K @ e), rel=1e-6)


def test_p_values_agree_with_another_draw_of_pairings(rows: dict[str, Any]) -> None:
    """At a weak dependence, where p is neither the smallest nor one: two seeds differ by chance alone."""
    noise = 0.04 * rows["age"] + np.random.default_rng(5).normal(size=N) * 4
    first, second = (
        audit(noise, sensitive_features={"age": rows["age"]}, random_state=seed).attributes[0].test.pvalue
        for seed in (1, 2)
    )
    assert 0.002 < first < 0.9
    assert abs(first - second) < 5 * math.sqrt(2 * first * (1 - first) / 999) + 0.02


def test_what_is_recovered_and_transferred_is_that_of_scikit_learn(rows: dict[str, Any]) -> None:
    s = {"age": rows["age"]}
    found = audit(rows["z"], sensitive_features=s, y_true=rows["y"], random_state=1)
    assert found.representation is not None
    import torch  # the rows are drawn by the seed

    order = torch.randperm(N, generator=torch.Generator().manual_seed(1)).numpy()
    learn, judge = order[: N // 2], order[N // 2 :]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000))
    model.fit(rows["z"][learn], rows["y"][learn])
    linear = found.representation.transfer[0]
    assert linear.performance == pytest.approx(model.score(rows["z"][judge], rows["y"][judge]))
    predicted = model.predict_proba(rows["z"][judge])[:, 1]
    assert linear.gdp[0].plug_in == pytest.approx(gdp(predicted, rows["age"][judge]), rel=1e-6)


@pytest.mark.parametrize("size", [1, 4], ids=["rows", "groups"])
def test_the_interval_of_a_recovered_share_covers_that_of_the_population(size: int) -> None:
    """Of a fixed prediction, with errors whose spread grows: E (1 + .3 |Z|)^2 = 1.78 for Student's law."""
    true, hits, draws = 1 - 1.78 / (0.16 * 2 + 1.78), 0, 400
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        unit = np.repeat(np.arange(1_000), size)
        z = rng.standard_t(4, 1_000)[unit]
        y = 0.4 * z + rng.normal(size=1_000)[unit] * (1 + 0.3 * np.abs(z))
        share, error = explained_variance(y, 0.4 * z, np.ones(len(y)), unit if size > 1 else None)
        hits += abs(share - true) <= 1.96 * error
    assert hits >= stats.binom.ppf(0.001, draws, 0.95)


def test_the_certificate_is_the_bound_on_the_rows_it_names(rows: dict[str, Any]) -> None:
    certificate = audit(rows["z"], sensitive_features={"age": rows["age"]}, random_state=1).certificate
    assert certificate is not None
    n = certificate.n
    root = n / (n - 1) * math.sqrt(certificate.hsic) + math.sqrt(3 * math.log(1 / 0.05) / n)
    assert certificate.bound("population").value == pytest.approx(root**2, rel=1e-9)


def test_columns_are_described_by_quantiles(found: Audit, rows: dict[str, Any]) -> None:
    assert found.score is not None
    ordered = sorted(rows["score"])
    # No score of one row is shown: the mean of the ten neighbours of the quantile, or of the last ten.
    for value, share in ((found.score.low, 0.01), (found.score.high, 0.99)):
        first = min(max(0, round(share * (N - 1)) - 5), N - 10)
        assert value == pytest.approx(sum(ordered[first : first + 10]) / 10)
        assert value not in ordered
    assert found.columns[0].distinct == len(set(rows["age"]))
