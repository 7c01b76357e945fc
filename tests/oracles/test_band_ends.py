"""Tests of the ends of bands along S against loops and other implementations of the same laws."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from frhsic.inference import conditional_curve
from frhsic.inference._band_ends import gamma_quantile, hall_quantile, rate_limit


def simultaneous(points, level=0.95):
    """Return what the largest of so many independent |normals| stays below with this probability."""
    return stats.norm.ppf(0.5 + 0.5 * level ** (1 / points))


def test_the_gamma_quantile_is_that_of_pearsons_third_law():
    skewness = [0.0, 0.1, 1.0, 4.0]
    found = gamma_quantile(3.0, torch.tensor(skewness, dtype=torch.float64))
    theirs = [-stats.pearson3.ppf(stats.norm.cdf(-3.0), c) for c in skewness]
    assert found.numpy() == pytest.approx(theirs, rel=1e-6)


def test_halls_transform_takes_the_quantile_back():
    skewness = torch.tensor([0.0, 0.2, 1.0], dtype=torch.float64)
    found = hall_quantile(torch.full((3,), 3.0, dtype=torch.float64), skewness)
    for t, c in zip(found.tolist(), skewness.tolist(), strict=True):
        assert t + c * t**2 / 3 + c**2 * t**3 / 27 + c / 6 == pytest.approx(3.0)


def naive_limit(n, x, tail):
    def chance(p):
        return stats.binom.cdf(x - 1, n, p) + 0.5 * stats.binom.pmf(x, n, p) - tail

    return 1.0 if x == n else optimize.brentq(chance, x / n, 1.0)


@pytest.mark.parametrize("x", [0, 1, 7, 39, 40])
def test_the_limit_of_a_rate_is_the_mid_p_limit(x):
    rows = torch.tensor([40.0], dtype=torch.float64)
    assert rate_limit(rows, torch.tensor([x / 40.0]), 0.002).item() == pytest.approx(
        naive_limit(40, x, 0.002), rel=1e-6
    )


def naive_band_of_rates(events, counts, level=0.95):
    """Return the band of independent rates, by root finding."""

    def upper(x):
        missable = max(1.0, (x.sum() + 2 * math.sqrt(x.sum()) + 1) / 4)
        tail = max(stats.norm.sf(simultaneous(len(x), level)), 0.5 * (1 - level) / missable)
        return np.array([naive_limit(n, k, tail) for n, k in zip(counts, x, strict=True)])

    return 1.0 - upper(counts - events), upper(events)


@pytest.mark.parametrize("rate", [0.01, 0.4, 0.97])
def test_the_band_of_a_rate_has_binomial_ends(rate):
    rng = np.random.default_rng(0)
    s = rng.integers(0, 8, 800)
    event = rng.random(800) < rate
    counts, events = np.bincount(s), np.bincount(s, event)
    low, high = naive_band_of_rates(events, counts)
    for score in (event.astype(float), 2.0 + 3.0 * event):
        found = conditional_curve(score, s)
        at, scale = score.min(), np.ptp(score)
        assert (np.array(found.low) - at) / scale == pytest.approx(low, abs=1e-9)
        assert (np.array(found.high) - at) / scale == pytest.approx(high, abs=1e-9)
    assert conditional_curve(event.astype(float), s, sample_weight=np.full(800, 7.0)).high == pytest.approx(
        high, abs=1e-9
    )


def test_the_band_of_a_rate_counts_people_not_rows():
    """Each person has five rows with the same event: the band is that of one row for each."""
    rng = np.random.default_rng(0)
    s, event = rng.integers(0, 5, 400), (rng.random(400) < 0.1).astype(float)
    one = conditional_curve(event, s)
    five = conditional_curve(np.repeat(event, 5), np.repeat(s, 5), groups=np.repeat(np.arange(400), 5))
    assert five.low == pytest.approx(one.low, rel=0.05, abs=2e-3)
    assert five.high == pytest.approx(one.high, rel=0.05)


def test_rates_that_are_0_or_1_at_each_value_have_limits():
    s = np.repeat(np.arange(4), 50)
    found = conditional_curve((s > 1).astype(float), s)
    assert found.low[:2] == pytest.approx((0.0, 0.0))
    assert found.high[2:] == pytest.approx((1.0, 1.0))
    assert 0.05 < found.high[0] < 0.12
    balanced = np.tile([0.0, 1.0], 100)  # each person has one event of two rows: no variance at all
    found = conditional_curve(balanced, s, groups=np.arange(200) // 2)
    assert found.high == pytest.approx(conditional_curve(balanced, s).high)


def naive_skew(parts, weights):
    """Return third moment, score of the powers 3/2 and score of the signs of some parts of an error."""
    middle = sum(math.copysign(abs(x) ** 1.5, x) for x in parts)
    below = -sum(w * np.sign(x) for x, w in zip(parts, weights, strict=True))
    cubes = sum(abs(x) ** 3 for x in parts)
    return sum(x**3 for x in parts), middle / math.sqrt(cubes), below / math.sqrt(sum(w * w for w in weights))


def naive_clear(skew, side, least):
    third, middle, below = skew
    score = max(side * middle, side * below if side * third > 0 else 0.0, 1e-9)
    return max(0.0, 1.0 - least / score**2)


def naive_band(z, s, unit, level=0.95):
    """Return the band of means at values of s, all of which have many units of equal weight."""
    values = sorted(set(s))
    mean = {a: np.mean(z[s == a]) for a in values}
    around = z - np.array([mean[a] for a in s])
    here, variance, behind, rows = {}, {}, {}, {}
    for a in values:
        parts, weights = defaultdict(float), defaultdict(float)
        for i in np.flatnonzero(s == a):
            parts[unit[i]] += around[i] / (s == a).sum()
            weights[unit[i]] += 1.0 / (s == a).sum()
        x, w = np.array(list(parts.values())), np.array(list(weights.values()))
        here[a], behind[a], rows[a] = naive_skew(x, w), (w**2).sum(), (w**2).sum() ** 2 / (w**4).sum()
        variance[a] = (x**2).sum() / (1 - behind[a])
    total, share = defaultdict(float), defaultdict(float)
    for i in range(len(z)):
        total[unit[i]] += around[i] / len(z)
        share[unit[i]] += 1 / len(z)
    whole = naive_skew(list(total.values()), list(share.values()))
    mass = {a: np.mean(s == a) for a in values}
    pooled = sum(mass[a] * variance[a] / behind[a] for a in values)
    third = sum(mass[a] * here[a][0] / behind[a] ** 2 for a in values) / pooled**1.5
    c = simultaneous(len(values), level)
    ends = []
    for a in values:
        common, ends_here = max(pooled * behind[a], variance[a]), []
        t = stats.t.ppf(stats.norm.cdf(c), rows[a] - 1)
        own = here[a][0] / (variance[a] * (1 - behind[a])) ** 1.5
        for side in (-1, 1):
            of_all = naive_clear(whole, side, 1.0)
            doubt = max(of_all, naive_clear(here[a], side, 2.0))
            wide = math.sqrt(variance[a] + doubt * (common - variance[a]))
            heavy, light = (
                max(0.0, min(sign * own, sign * third * math.sqrt(behind[a]))) for sign in (side, -side)
            )
            light *= naive_clear(whole, -side, 1.0)
            if light > 1e-3:
                q = 3 / light * ((1 + light * (t - light / 6)) ** (1 / 3) - 1)
            else:
                q = -t * stats.pearson3.ppf(stats.norm.cdf(-c), of_all * heavy) / c
            ends_here.append(q * wide)
        ends.append((mean[a] - ends_here[0], mean[a] + ends_here[1]))
    return np.array(ends).T


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("law", ["log-normal", "its negative", "normal"])
def test_the_band_of_scores_is_that_of_its_definition(law, grouped):
    rng = np.random.default_rng(1)
    unit = np.arange(1_500) // (2 if grouped else 1)
    s = rng.permutation(np.arange(750) % 5).repeat(2)
    z = rng.normal(size=1_500) if law == "normal" else rng.lognormal(sigma=1.2, size=1_500)
    z = -z if law == "its negative" else z
    groups = {"groups": unit, "n_draws": 20_000} if grouped else {}
    # Labels have no neighbours whose variance counts.
    found = conditional_curve(z, {"s": [f"label {a}" for a in s]}, random_state=0, **groups)
    for ours, naive in zip((found.low, found.high), naive_band(z, s, unit), strict=True):
        reach = np.abs(naive - found.mean)
        assert (np.abs(np.array(ours) - found.mean) / reach) == pytest.approx(
            1.0, abs=0.03 if grouped else 1e-6
        )


def test_the_end_towards_a_long_tail_is_the_near_one():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 15, 3_000)
    z = rng.lognormal(sigma=1.5, size=3_000)
    found, turned = conditional_curve(z, s), conditional_curve(-z, s)
    below, above = np.subtract(found.mean, found.low), np.subtract(found.high, found.mean)
    assert np.median(below / above) < 0.9
    assert turned.low == pytest.approx([-x for x in found.high])
    assert turned.high == pytest.approx([-x for x in found.low])
    scaled = conditional_curve(5.0 * z - 3.0, s)
    assert scaled.high == pytest.approx(5.0 * np.array(found.high) - 3.0)
