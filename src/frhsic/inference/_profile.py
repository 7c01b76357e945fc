"""Where along S the dependence sits: the law of z near each value of s beside its law overall."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from frhsic.inference._curve import cell_medians
from frhsic.inference._places import Places, gather_rows
from frhsic.inference._question import (
    MIN_GROUPS,
    IntervalOptions,
    Observations,
    check_one_column,
    check_permutations,
)
from frhsic.inference._results import Profile
from frhsic.inference._strata import some_rows
from frhsic.kernels import Gaussian
from frhsic.numerics._cells import Cells
from frhsic.numerics._lowrank import FeatureMap, blocks, feature_map
from frhsic.numerics._permutations import random_orders
from frhsic.numerics._threads import one_thread

# Features of z, and the rows up to which they are permuted; above, the limit of that law is drawn.
_FEATURES, _PERMUTED_ROWS = 64, 5_000
# With groups of rows, whole groups of about so many rows are drawn from more.
_UNIT_ROWS = 20_000


@one_thread()
def localized_profile(
    scores: object,
    s: object,
    *,
    confidence_level: float = 0.95,
    n_permutations: int = 199,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> Profile:
    """Return where along one column of s the law of z differs from its law overall.

    The contrast at a cell C of s is the MMD, under a Gaussian kernel of the median distance, between the z of
    that cell and all of z,

        | sum_{i in C} w_i phi(z_i) / sum_{i in C} w_i - sum_i w_i phi(z_i) |.

    Cells are those of :func:`conditional_curve`: the values of s where they are few for its rows, else about
    2 n^(1/3) ranges of equally many rows. Times the share of the rows in C the contrast is the left side of
    the paper's corollary "Localized conditional-MMD control by HSIC": its square is at most HSIC(Z, S) with a
    kernel of S that is one within cells and zero between them.

    Parameters
    ----------
    scores : array-like of shape (n,) or (n, d)
        Scores or a representation, of rows that were not used to train it.
    s : array-like of shape (n,) or (n, 1)
        The sensitive column.
    confidence_level : float, default=0.95
        Random pairings stay below ``chance`` everywhere at once with this probability.
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
    The contrast is not debiased: with few rows in a cell it is large by chance. ``chance`` holds that part,
    and is larger where rows are few: it is the mean of the contrast under random pairings plus a common
    multiple of its standard deviation, the multiple being the quantile of the largest over all points. Above
    5,000 rows, and with weights, the limit of the law of random pairings is drawn: sums of centred features
    over cells are normal, with variance sum_{i in C} w_i^2 times the covariance of the features.

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
    check_permutations(n_permutations)
    options = IntervalOptions.read(confidence_level, n_permutations, random_state)
    rows = Observations.read(scores, s, sample_weight, groups).drop_zero_weights()
    check_one_column(rows.s, "profile")
    if rows.groups is not None and len(rows) > _UNIT_ROWS:
        rows = rows.take(some_rows(len(rows.z), rows.groups, _UNIT_ROWS, options.generator, MIN_GROUPS))
    w = rows.weights
    cells = Cells.of(rows.s, w, rows.effective_units)
    places = gather_rows(cells.codes(rows.s), w, rows.groups, rows.s.names[0])
    mass = places.sums(places.w)
    contrast, null = _contrasts(torch.diag(1.0 / mass) - 1.0, rows, places, options)
    return Profile(
        points=tuple(cell_medians(rows.s, w, cells).tolist()),
        contrast=tuple(contrast.tolist()),
        chance=tuple(_simultaneous(null, confidence_level).tolist()),
        mass=tuple(mass.tolist()),
        confidence_level=confidence_level,
        attributes=rows.s.names,
        n=rows.n_units,
        counts=tuple(places.sizes),
    )


def _contrasts(
    E: Tensor, rows: Observations, places: Places, options: IntervalOptions
) -> tuple[Tensor, Tensor]:
    """Return the contrasts ``(a,)``, which are E times the sums at the places, and draws ``(B, a)``."""
    x, generator, count = rows.z, options.generator, options.n_draws
    features = feature_map(Gaussian("median").calibrate(x, generator=generator), x, _FEATURES)
    sums, covariance, mean = _sums(features, x, places)
    contrast = _lengths(E, sums)
    if rows.groups is None and (rows.w is not None or len(x) > _PERMUTED_ROWS):
        root = places.sums(places.w.square()).sqrt()
        return contrast, _limit(E * root, covariance, count, generator)
    G = places.w[:, None] * (features(x[places.rows]) - mean)
    if places.units is not None:  # a random multiplier for each
        n = int(places.units.max()) + 1
        noise = (torch.randn(n, generator=generator, dtype=torch.float64) for _ in range(count))
        return contrast, torch.stack([_lengths(E, places.sums(xi[places.units, None] * G)) for xi in noise])
    orders = random_orders(len(G), count, generator)  # equal weights, so in any order
    return contrast, torch.stack([_lengths(E, places.sums(G[order])) for order in orders])


def _lengths(E: Tensor, sums: Tensor) -> Tensor:
    return (E @ sums).square().sum(dim=1).sqrt()


def _sums(features: FeatureMap, x: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor]:
    """Return sum_i w_i g_i at each place of centred features, their covariance under w^2, and the mean."""
    r = features.width
    shift = features(x[: min(len(x), 1_000)]).mean(dim=0)  # near the mean, so that little cancels
    place = torch.repeat_interleave(torch.tensor(places.sizes))
    sums, second, first = x.new_zeros((len(places.sizes), r)), x.new_zeros((r, r)), x.new_zeros(r)
    for part in blocks(len(place)):
        w = places.w[part, None]
        G = features(x[places.rows[part]]).sub_(shift).mul_(w)
        sums.index_add_(0, place[part], G)
        second.addmm_(G.mT, G)
        first += (w * G).sum(dim=0)
    mean, total = sums.sum(dim=0), places.w.square().sum()
    sums -= torch.outer(places.sums(places.w), mean)
    second -= torch.outer(first, mean) + torch.outer(mean, first) - total * torch.outer(mean, mean)
    return sums, second / total, mean + shift


def _limit(E: Tensor, covariance: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return draws of the contrasts |E xi R| with R'R the covariance of features, shape ``(count, a)``."""
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > 1e-12 * values[-1]
    root = values[kept].sqrt()[:, None] * vectors[:, kept].mT
    size = E.shape[1], len(root)
    noise = (torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(count))
    return torch.stack([_lengths(E @ xi, root) for xi in noise])


def _simultaneous(null: Tensor, confidence_level: float) -> Tensor:
    """Return the limit below which so large a share of the draws ``(B, a)`` stays at all points at once."""
    mean, spread = null.mean(dim=0), null.std(dim=0).clamp_min(1e-300)
    largest = ((null - mean) / spread).amax(dim=1).sort().values
    rank = min(len(largest), math.ceil(confidence_level * (len(largest) + 1)))
    return mean + largest[rank - 1] * spread
