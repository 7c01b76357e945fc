"""What the penalty of a limit has to do with the gap: the Cramer distance C = E_S int (F(t|S) - F(t))^2 dt.

For discrete S it is HSIC with the energy kernel on the score and 1{s = s'} / P(s) on S. For ranks of a
continuous S and a Gaussian kernel of width h, HSIC / (sqrt(2 pi) h) is at most C and tends to it as h -> 0.
By Jensen's inequality gap^2 <= range x C, so that C bounds a gap; HSIC at a fixed h does not.
"""

import math

import numpy as np
import pytest
import torch

from frhsic.data import Sensitive
from frhsic.dependence import HSIC, ScoreGap
from frhsic.kernels import Delta, Energy, Gaussian, OnRanks


def laws(score, codes):
    """Return the widths between neighbouring scores, F there, F within each code, and the shares of codes."""
    places = np.sort(score)
    inner = places[:-1]
    F = np.searchsorted(places, inner, side="right") / len(score)
    own = [np.sort(score[codes == code]) for code in np.unique(codes)]
    G = np.array([np.searchsorted(one, inner, side="right") / len(one) for one in own])
    return np.diff(places), F, G, np.array([len(one) for one in own]) / len(score)


def cramer(score, codes):
    width, F, G, share = laws(score, codes)
    return float(share @ ((G - F) ** 2 @ width))


def gap(score, codes):
    width, F, G, share = laws(score, codes)
    return float(share @ (np.abs(G - F) @ width))


def hsic_by_hand(K, L):
    n = len(K)
    H = np.eye(n) - 1.0 / n
    return float(np.trace(K @ H @ L @ H)) / n**2


def sample(seed, n=240):
    rng = np.random.default_rng(seed)
    codes = rng.choice(4, size=n, p=[0.1, 0.2, 0.3, 0.4])
    return rng.normal(size=n) * (1.0 + codes) + 0.5 * codes, codes


@pytest.mark.parametrize("seed", range(5))
def test_cramer_is_hsic_with_the_energy_kernel_and_one_over_the_share(seed):
    score, codes = sample(seed)
    K = -0.5 * np.abs(score[:, None] - score[None])
    share = np.bincount(codes) / len(codes)
    L = (codes[:, None] == codes[None]) / share[codes]
    assert hsic_by_hand(K, L) == pytest.approx(cramer(score, codes), rel=1e-10)


def test_for_equal_shares_it_is_a_multiple_of_hsic_with_the_kernels_of_the_package():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(5), 40)
    score = rng.normal(size=200) + 0.3 * codes
    s = Sensitive(torch.from_numpy(codes[:, None].astype(float)), ("s",), ("categorical",))
    found = HSIC(Energy(), Delta())(torch.from_numpy(score)[:, None], s)
    assert 5.0 * found.item() == pytest.approx(cramer(score, codes), rel=1e-10)


def continuous(m=1_500, frequency=1.0):
    """Return F(t | s) - F(t) at equally likely ranks s, for a normal score of mean sin(2 pi frequency s)."""
    s = (np.arange(m) + 0.5) / m
    t = np.linspace(-6.0, 6.0, 601)
    F = torch.special.ndtr(torch.from_numpy(t[None] - np.sin(2.0 * np.pi * frequency * s)[:, None])).numpy()
    return s, F - F.mean(axis=0), t[1] - t[0]


def of_ranks(h, frequency=1.0):
    """Return HSIC with a Gaussian kernel on ranks over sqrt(2 pi) h, the Cramer distance, and the gap."""
    s, D, step = continuous(frequency=frequency)
    inner = D @ D.T * step
    L = np.exp(-((s[:, None] - s[None]) ** 2) / (2.0 * h**2))
    return (
        (L * inner).mean() / (math.sqrt(2.0 * math.pi) * h),
        np.diag(inner).mean(),
        np.abs(D).sum(1).mean() * step,
    )


def test_hsic_on_ranks_is_at_most_cramer_and_tends_to_it():
    shares = []
    for h in (0.2, 0.1, 0.05, 0.02, 0.01):
        hsic, whole, _ = of_ranks(h)
        assert hsic <= whole * (1.0 + 1e-9)
        shares.append(hsic / whole)
    assert shares == sorted(shares)
    assert shares[-1] > 0.97


def test_the_kernel_of_ranks_of_the_package_is_the_one_of_the_theorem():
    rng = np.random.default_rng(0)
    s = rng.lognormal(sigma=2.0, size=4_000)
    rank = (np.argsort(np.argsort(s)) + 0.5) / len(s)
    score = rng.normal(size=4_000) + np.sin(2.0 * np.pi * rank)
    found = HSIC(Energy(), OnRanks(Gaussian(0.1)))(torch.from_numpy(score)[:, None], torch.from_numpy(s))
    wanted = of_ranks(0.1)[0] * math.sqrt(2.0 * math.pi) * 0.1
    assert found.item() == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize("seed", range(10))
def test_cramer_certifies_a_gap(seed):
    score, codes = sample(seed)
    s = Sensitive(torch.from_numpy(codes[:, None].astype(float)), ("s",), ("categorical",))
    found = ScoreGap()(torch.from_numpy(score)[:, None], s).item()
    assert found == pytest.approx(gap(score, codes), rel=1e-10)
    assert found**2 <= np.ptp(score) * cramer(score, codes)


def test_the_bound_is_reached_by_a_score_of_two_values():
    codes = np.repeat([0, 1], 100)
    score = np.concatenate([np.repeat([0.0, 1.0], [80, 20]), np.repeat([0.0, 1.0], [40, 60])])
    assert gap(score, codes) ** 2 == pytest.approx(np.ptp(score) * cramer(score, codes))


def test_hsic_at_a_fixed_width_certifies_no_gap():
    slow, fast = of_ranks(0.1), of_ranks(0.1, frequency=12.0)
    assert fast[2] == pytest.approx(slow[2], rel=0.02)  # the gap is the same
    assert fast[0] < 0.01 * slow[0]
    assert fast[1] == pytest.approx(slow[1], rel=0.02)
