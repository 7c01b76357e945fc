"""Quantiles of the largest of several errors, and exact limits of a share."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from frhsic.table._axis import Floats
from frhsic.table._errors import symmetric_root


def largest_quantile(F: Floats, tail: float, draws: int = 2_000) -> float:
    """Return a quantile of the largest normal error, with correlations F (1 - F') / (F' (1 - F)), F <= F'."""
    root = symmetric_root(squared_correlations(F))
    largest = (np.random.default_rng(0).standard_normal((draws, len(F))) @ root).max(axis=1)
    return float(np.quantile(largest, 1.0 - tail))


def squared_correlations(F: Floats) -> Floats:
    """Return the squared correlations of the shares up to two cut-offs."""
    odds = F / (1.0 - F)
    return np.asarray(np.minimum(odds[:, None], odds) / np.maximum(odds[:, None], odds))


def upper_share(events: float, n: float, tail: float) -> float:
    """Return the limit of Clopper and Pearson for a share."""
    return float(betaincinv(events + 1.0, n - events, 1.0 - tail)) if events < n else 1.0


def lower_share(events: float, n: float, tail: float) -> float:
    return float(betaincinv(events, n - events + 1.0, tail)) if events > 0 else 0.0


def largest_gap(share: float) -> float:
    return 2.0 * share * (1.0 - share) if share < 0.5 else 0.5
