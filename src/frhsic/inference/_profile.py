"""Where along S the dependence sits: the law of z near each value of s beside its law overall."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from frhsic._checks import check_confidence_level, check_draws
from frhsic.data import check_aligned, to_generator, to_groups, to_matrix, to_sensitive, to_weights
from frhsic.inference._curve import check_groups, middles
from frhsic.inference._permutation import random_orders
from frhsic.inference._process import Groups, effective_units, equal_mass, gathered
from frhsic.inference._results import Profile
from frhsic.kernels import Gaussian
from frhsic.numerics._cells import Cells
from frhsic.numerics._lowrank import FeatureMap, blocks, feature_map
from frhsic.numerics._smoothing import (
    bandwidths_of,
    check_bandwidth,
    log_kernel,
    row_weights,
    smoothing_weights,
)

# Features of z, and the rows up to which they are permuted; above, the limit of that law is drawn.
_FEATURES, _PERMUTED_ROWS = 64, 5_000
# With groups of rows, whole groups of about so many rows are drawn from more.
_UNIT_ROWS = 20_000


def localized_profile(
    z: object,
    s: object,
    *,
    confidence_level: float = 0.95,
    bandwidth_s: float | None = None,
    n_points: int = 50,
    n_permutations: int = 199,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> Profile:
    """Return where along one column of s the law of z differs from its law overall.

    The contrast at s_0 is the MMD, under a Gaussian kernel of the median distance, between z weighted by a
    window kappa around s_0 and all of z,

        | sum_i w_i kappa(s_i, s_0) phi(z_i) / sum_i w_i kappa(s_i, s_0) - sum_i w_i phi(z_i) |.

    The window is the cell of s_0 as in :func:`conditional_curve`: its value where s has few values for its
    rows, else one of about 2 n^(1/3) ranges of equally many rows. With a Gaussian window, times the mean of
    kappa(S, s_0), it is the left side of the paper's corollary "Localized conditional-MMD control by HSIC",
    so its square is at most HSIC(Z, S) under the same two kernels.

    Parameters
    ----------
    z : array-like of shape (n,) or (n, d)
        Scores or a representation, of rows that were not used to train it.
    s : array-like of shape (n,) or (n, 1)
    confidence_level : float, default=0.95
        Random pairings stay below ``chance`` everywhere at once with this probability.
    bandwidth_s : float or None, default=None
        A number takes a Gaussian window of this fraction of the *range* of s instead.
    n_points : int, default=50
        Points of equal mass along s for a Gaussian window; all values of s if they are not more.
    n_permutations : int, default=199
        Random pairings drawn for ``chance``.
    random_state : None, int or generator, default=None
    sample_weight : array-like of shape (n,) or None, default=None
        Both laws are then the weighted ones.
    groups : array-like of shape (n,) or None, default=None
        Which rows may depend on one another, such as those of one person; ``chance`` is then drawn with one
        multiplier for each group.

    Returns
    -------
    Profile

    Notes
    -----
    The contrast is not debiased: with few rows in a window it is large by chance. ``chance`` holds that part,
    and is larger where rows are few: it is the mean of the contrast under random pairings plus a common
    multiple of its standard deviation, the multiple being the quantile of the largest over all points. Above
    5,000 rows, and with weights, the limit of the law of random pairings is drawn: window sums of centred
    features are normal, with covariance sum_i w_i^2 kappa kappa' times that of the features.

    A score of one column has all features of its kernel here; a wide z is seen through the 64 principal ones.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 60, 2_000)
    >>> score = np.where(age > 50, 0.5, 0.0) + rng.normal(size=2_000)
    >>> profile = localized_profile(score, {"age": age}, random_state=0)
    >>> profile.points[np.argmax(profile.contrast)] > 50
    True
    """
    check_confidence_level(confidence_level)
    check_draws(n_permutations)
    if bandwidth_s is not None:
        check_bandwidth(bandwidth_s)
    if n_points < 2:
        raise ValueError(f"'n_points' must be at least 2. Got {n_points}. Leave it out for 50.")
    check_aligned(z=z, s=s, sample_weight=sample_weight, groups=groups)
    x = to_matrix(z, name="z", min_rows=8)
    sensitive = to_sensitive(s, name="s", n_rows=len(x), rows_of="z", min_rows=8)
    if len(sensitive.names) != 1:
        raise ValueError(
            f"'s' must be one column for a profile. Got {len(sensitive.names)}. Draw one for each column."
        )
    weights = to_weights(sample_weight, n_rows=len(x), rows_of="z")
    units = to_groups(groups, n_rows=len(x), rows_of="z")
    check_groups(units)
    if weights is not None:
        present = weights > 0
        x, sensitive, weights = x[present], sensitive[present], weights[present]
        units = None if units is None else units[present]
        weights = None if bool((weights == weights[0]).all()) else weights / weights.sum()
    generator = to_generator(random_state)
    if units is not None and len(x) > _UNIT_ROWS:
        units, rows = _some_units(units, generator)
        x, sensitive = x[rows], sensitive[rows]
        weights = None if weights is None else weights[rows] / weights[rows].sum()
    n, w = len(x), row_weights(sensitive, weights)
    if bandwidth_s is None:
        cells = Cells.of(sensitive, w, effective_units(w, units))
        groups_of_s = gathered(cells.as_sensitive(sensitive), w, generator, units)
        bandwidths, mass = [1.0], groups_of_s.sums(groups_of_s.w)
        points, share = groups_of_s.s, mass
        places = middles(sensitive.values[:, 0], w, cells.codes(sensitive))
    else:
        groups_of_s = gathered(sensitive, w, generator, units)
        bandwidths, mass = bandwidths_of(sensitive, bandwidth_s, None, None), groups_of_s.sums(groups_of_s.w)
        few = len(mass) <= n_points
        points, share = (groups_of_s.s, mass) if few else equal_mass(groups_of_s, n_points)
        places = points[:, 0]
    window = smoothing_weights(log_kernel(points, groups_of_s.s, groups_of_s.kinds, bandwidths), mass) / mass
    E = window - 1.0  # (a, M): contrasts are E times the sums over groups
    features = feature_map(Gaussian("median").calibrate(x, generator=generator), x, _FEATURES)
    sums, covariance, mean = _sums(features, x, groups_of_s)
    contrast = (E @ sums).square().sum(dim=1).sqrt()
    if units is not None:
        G = groups_of_s.w[:, None] * (features(x[groups_of_s.rows]) - mean)
        null = _by_units(E, G, groups_of_s, units[groups_of_s.rows], n_permutations, generator)
    elif weights is None and n <= _PERMUTED_ROWS:
        G = groups_of_s.w[:, None] * (features(x[groups_of_s.rows]) - mean)  # equal weights, so in any order
        orders = random_orders(len(G), n_permutations, generator)
        null = torch.stack([(E @ groups_of_s.sums(G[order])).square().sum(dim=1).sqrt() for order in orders])
    else:
        root = groups_of_s.sums(groups_of_s.w.square()).sqrt()
        null = _limit(E * root, covariance, n_permutations, generator)
    chance = _simultaneous(null, confidence_level)
    gaussian = bandwidth_s is not None and sensitive.kinds == ("continuous",)
    return Profile(
        points=tuple(places.tolist()),
        contrast=tuple(contrast.tolist()),
        chance=tuple(chance.tolist()),
        mass=tuple(share.tolist()),
        confidence_level=confidence_level,
        bandwidth=float(bandwidths[0]) if gaussian else 0.0,
        attributes=sensitive.names,
        n=n if units is None else len(units.unique()),
    )


def _some_units(units: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random whole units of about 20,000 rows, and those rows."""
    order = torch.randperm(int(units.max()) + 1, generator=generator)
    sizes = torch.bincount(units, minlength=len(order))[order].cumsum(0)
    kept = torch.zeros(len(order), dtype=torch.bool)
    kept[order[sizes <= _UNIT_ROWS]] = True
    rows = kept[units].nonzero().squeeze(1)
    return units[rows], rows


def _by_units(
    E: Tensor, G: Tensor, groups: Groups, units: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    """Return contrasts of centred features G with a random multiplier for each unit, shape ``(count, a)``."""
    null = []
    for _ in range(count):
        xi = torch.randn(int(units.max()) + 1, generator=generator, dtype=torch.float64)
        null.append((E @ groups.sums(xi[units, None] * G)).square().sum(dim=1).sqrt())
    return torch.stack(null)


def _sums(features: FeatureMap, x: Tensor, groups: Groups) -> tuple[Tensor, Tensor, Tensor]:
    """Return sum_i w_i g_i over each group of centred features, their covariance under w^2, and the mean."""
    r = features.width
    shift = features(x[: min(len(x), 1_000)]).mean(dim=0)  # near the mean, so that little cancels
    group = torch.repeat_interleave(torch.tensor(groups.sizes))
    sums, second, first = x.new_zeros((len(groups.sizes), r)), x.new_zeros((r, r)), x.new_zeros(r)
    for part in blocks(len(group)):
        w = groups.w[part, None]
        G = features(x[groups.rows[part]]).sub_(shift).mul_(w)
        sums.index_add_(0, group[part], G)
        second.addmm_(G.mT, G)
        first += (w * G).sum(dim=0)
    mean, total = sums.sum(dim=0), groups.w.square().sum()
    sums -= torch.outer(groups.sums(groups.w), mean)
    second -= torch.outer(first, mean) + torch.outer(mean, first) - total * torch.outer(mean, mean)
    return sums, second / total, mean + shift


def _limit(E: Tensor, covariance: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return draws of the contrasts |E xi R| with R'R the covariance of features, shape ``(count, a)``."""
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > 1e-12 * values[-1]
    root = values[kept].sqrt()[:, None] * vectors[:, kept].mT
    noise = (
        torch.randn((E.shape[1], len(root)), generator=generator, dtype=torch.float64) for _ in range(count)
    )
    return torch.stack([(E @ xi @ root).square().sum(dim=1).sqrt() for xi in noise])


def _simultaneous(null: Tensor, confidence_level: float) -> Tensor:
    """Return the limit below which so large a share of the draws ``(B, a)`` stays at all points at once."""
    mean, spread = null.mean(dim=0), null.std(dim=0).clamp_min(1e-300)
    largest = ((null - mean) / spread).amax(dim=1).sort().values
    rank = min(len(largest), math.ceil(confidence_level * (len(largest) + 1)))
    return mean + largest[rank - 1] * spread
