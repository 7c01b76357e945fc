"""One p-value of several statistics and their values under independence."""

from __future__ import annotations

import numpy as np
from scipy import special

from frhsic.table._axis import Floats


def combine(values: Floats, weights: Floats) -> Floats:
    """Return one statistic of several, (B + 1,): the largest of minus the logarithms of their tails."""
    return np.asarray((tails(values) + np.log(weights)[:, None]).max(axis=0))


def tails(values: Floats) -> Floats:
    """Return -log P(a gamma law of the mean and variance of the row > value), shape ``(t, B + 1)``.

    It puts statistics of different scale and skewness on one scale, without the ties of ranks. All B + 1
    values of a row share one fit, in which the observed one has no special place: what is computed from them
    symmetrically stays exchangeable, so a p-value by their ranks is exact whatever the fit. The largest value
    of a row is left out of its fit (unless all others are equal), or a strong dependence that one statistic
    alone sees would widen the law by which it is judged, the more the stronger it is.
    """
    most = np.sort(values, axis=1)[:, :-1]
    mean, variance = _moments(most)
    equal = variance <= 1e-28 * mean**2
    mean, variance = (np.where(equal, x, y) for x, y in zip(_moments(values), (mean, variance), strict=True))
    flat = (variance <= 1e-28 * mean**2) | (mean <= 0)
    mean, variance = np.where(flat, 1.0, mean), np.where(flat, 1.0, variance)
    a, x = np.broadcast_to(mean**2 / variance, values.shape), values * (mean / variance)
    logs = _log_gamma_tail(a, x)
    # Below the floats: the head of the asymptotic series, log(x^(a-1) e^-x / Gamma(a)) - log(1 - (a-1)/x).
    low = np.isinf(logs)
    a, x = a[low], x[low]
    logs[low] = (a - 1.0) * np.log(x) - x - special.gammaln(a) - np.log1p((1.0 - a) / x)
    return np.where(flat, 0.0, -logs)


def _moments(values: Floats) -> tuple[Floats, Floats]:
    return values.mean(axis=1, keepdims=True), values.var(axis=1, ddof=1, keepdims=True)


def _log_gamma_tail(a: Floats, x: Floats) -> Floats:
    """Return log P(X > x) of the gamma law of shape a: from the smaller of its two tails."""
    x = np.maximum(x, 0.0)
    with np.errstate(divide="ignore"):
        above, below = np.log(special.gammaincc(a, x)), np.log1p(-special.gammainc(a, x))
    return np.where(x > special.gammaincinv(a, 0.5), above, below)


def rank_pvalue(values: Floats) -> float:
    """Return the share of values that are at least the first, which is one of them."""
    observed = values[0]
    # Equal in exact arithmetic, apart by rounding. (inf - inf is nan, and no share is 0.)
    slack = 1e-9 * abs(observed) if np.isfinite(observed) else 0.0
    return float(np.mean(values >= observed - slack))
