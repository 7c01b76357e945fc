"""Simulations: how often certificates are exceeded by a truth that is known, and what chance gives them."""

from math import sqrt

import numpy as np
import pytest
import torch

from frhsic.data import Sensitive
from frhsic.dependence import HSIC
from frhsic.inference._embedding import embedding
from frhsic.inference.bounds._bounds import population_bound
from frhsic.inference.bounds._certificate import certify
from frhsic.kernels import Gaussian

N, DRAWS, DELTA = 200, 300, 0.05
FIXED = HSIC(Gaussian(1.0), Gaussian(1.0))


def population_hsic(rho):
    """Unit-variance Gaussians with correlation rho, both bandwidths 1."""
    return (9.0 - 4.0 * rho**2) ** -0.5 + 1.0 / 3.0 - 2.0 * (9.0 - rho**2) ** -0.5


def exceeded(rho, seed):
    """Return how often the truth is above the finite-sample bound, above the asymptotic one, and |C^| > q."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    truth = population_hsic(rho)
    counts = np.zeros(3)
    values = []
    for _ in range(DRAWS):
        s, e = torch.tensor(rng.normal(size=(2, N, 1)))
        z = rho * s + sqrt(1.0 - rho**2) * e
        found = embedding(z, Sensitive.of(s), HSIC(Gaussian(1.0), Gaussian(1.0)), generator)
        hsic = found.length**2
        q = float(found.errors(300, generator).quantile(1.0 - DELTA))
        finite, large = population_bound(hsic, N, DELTA), (sqrt(hsic) + q) ** 2
        counts += [truth > finite, truth > large, sqrt(hsic) > q]
        values.append((finite, large))
    return counts / DRAWS, np.mean(values, axis=0), truth


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.5])
def test_the_population_hsic_exceeds_its_certificates_no_more_often_than_delta(rho):
    """300 samples of 200 rows, each; the asymptotic bound is the smaller one, below 3 HSIC at rho = .5."""
    (finite, large, _), (mean_finite, mean_large), truth = exceeded(rho, seed=int(10 * rho))
    assert finite <= DELTA
    assert large <= DELTA + 2.0 * sqrt(DELTA * (1.0 - DELTA) / DRAWS)
    assert truth < mean_large < 0.4 * mean_finite
    if rho == 0.5:
        assert mean_large < 3.0 * truth


def test_the_multiplier_quantile_has_its_level_at_independence():
    """There |C^ - C| = |C^|: it must exceed its 95 % quantile in 5 % of samples, within 3 standard errors.

    Centring and the multiplier keep the spread of C^ only up to 1/n, so a little less is expected.
    """
    (_, _, beyond), _, _ = exceeded(0.0, seed=7)
    assert 0.01 < beyond < DELTA + 3.0 * sqrt(DELTA * (1.0 - DELTA) / DRAWS)


@pytest.fixture(scope="module")
def independent():
    """Certificates of 60 samples of 150 rows without dependence."""
    rng = np.random.default_rng(3)
    return [
        certify(
            rng.normal(size=(150, 2)),
            rng.normal(size=150),
            dependence=FIXED,
            n_permutations=39,
            random_state=i,
        )
        for i in range(60)
    ]


def test_the_worst_head_grows_with_the_resolution_under_independence_and_its_null_with_it(independent):
    """In-sample it is no evidence: at m = 10 it is well above m = 1, and the permutation mean is the same."""
    at = {m: np.mean([c.heads[m - 1].worst_rms for c in independent]) for m in (1, 10)}
    null = {m: np.mean([c.heads[m - 1].null_mean for c in independent]) for m in (1, 10)}
    assert at[10] > 1.5 * at[1]
    assert at[10] == pytest.approx(null[10], rel=0.1)
    assert at[1] == pytest.approx(null[1], rel=0.2)


def test_the_worst_head_exceeds_its_null_quantile_in_about_five_percent_under_independence(independent):
    for m in (1, 4, 8):
        share = np.mean([c.heads[m - 1].worst_rms > c.heads[m - 1].null_high for c in independent])
        assert share <= 0.05 + 3.0 * sqrt(0.05 * 0.95 / 60)


def test_the_crossfitted_gap_is_what_chance_gives_under_independence(independent):
    gaps, chance = (
        np.array([[getattr(c.heads[m - 1], name) for m in (1, 4)] for c in independent])
        for name in ("crossfit_gdp", "crossfit_null")
    )
    assert gaps.mean(0) == pytest.approx(chance.mean(0), rel=0.25)


def test_the_crossfitted_gap_and_the_worst_head_stand_out_under_dependence():
    rng = np.random.default_rng(4)
    s = rng.normal(size=300)
    z = np.stack([s**2 + rng.normal(size=300), rng.normal(size=300)], axis=1)
    row = certify(z, s, dependence=FIXED, n_permutations=99, random_state=0).heads[3]
    assert row.worst_rms > 2.0 * row.null_high
    assert row.crossfit_gdp > 2.0 * row.crossfit_null
