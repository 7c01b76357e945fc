"""Null distributions: permutations of rows or groups within strata, and their limit for many rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.dependence import HSIC, Dependence
from frhsic.inference._moments import RANK_Z, feature_sums
from frhsic.inference._pairings import Pairing, PairingSide
from frhsic.inference._strata import Stratum, size_classes, varying
from frhsic.kernels import Gaussian, Linear, OnColumns, default_kernel
from frhsic.kernels.scale import median_bandwidth
from frhsic.numerics._lowrank import blocks, thin_factor
from frhsic.numerics._permutations import random_orders
from frhsic.table import combine as combine_tails
from frhsic.table import rank_pvalue as rank_of_first

# Bandwidths of z and of s as multiples of their medians, and the weight of each pair. The first is nearly
# linear; along s the others are narrower than along z, because a score is a function of s plus noise.
FAMILY = ((4.0, 4.0, 0.5), (2.0, 0.5, 0.25), (1.0, 0.25, 0.25))
# Rows whose features are kept, where some of them are permuted one by one (numbers: 160 MB).
_KEPT = 20_000_000
# Permutations are drawn in chunks of about this many row numbers (160 MB).
_CHUNK = 20_000_000


def bandwidth_family(z: Tensor, s: Sensitive, generator: torch.Generator) -> tuple[list[HSIC], Tensor]:
    """Return HSIC under several pairs of bandwidths, fixed on the rows of z and on those of s, with weights.

    Neither side sees how the two are paired, so permutations of the pairing stay exchangeable. Several
    columns of z enter as they are and whitened: otherwise a direction of small variance would not be seen.
    """
    medians = [
        median_bandwidth(s.values[:, j : j + 1], generator).item() if kind == "continuous" else 1.0
        for j, kind in enumerate(s.kinds)
    ]
    n, d = z.shape
    bases = [Gaussian("median")] + ([Gaussian("median", whiten=True)] if 1 < d <= n // 4 else [])
    measures, weights = [], []
    for base in bases:
        fixed = base.calibrate(z, generator=generator, freeze=True)
        for wide_z, wide_s, weight in FAMILY:
            kernel_z = replace(fixed, bandwidth=wide_z * float(fixed.bandwidth))
            measures.append(HSIC(kernel_z, default_kernel(s.kinds, [wide_s * sigma for sigma in medians])))
            weights.append(weight / len(bases))
    return measures, torch.tensor(weights, dtype=torch.float64)


def use_features(z: Tensor, measures: Sequence[HSIC]) -> tuple[Tensor, list[HSIC]]:
    """Return features of z under each kernel, side by side, and the measures that look at their own.

    Each kernel on z becomes that of at most 64 features, computed from the rows of z alone: permutations stay
    exchangeable, and cost 64 n instead of n^2 each.
    """
    G = z.new_empty((len(z), RANK_Z * len(measures)), dtype=torch.float64)
    seen, start = [], 0
    for measure in measures:
        part = thin_factor(measure.kernel_z, z, RANK_Z)
        own = range(start, start := start + part.shape[1])
        G[:, own.start : own.stop] = part
        seen.append(HSIC(OnColumns(Linear(), tuple(own)), measure.kernel_s))
    return G[:, :start], seen


def permuted_values(
    measures: Sequence[Dependence], strata: Sequence[Stratum], count: int, generator: torch.Generator
) -> Tensor:
    """Return each measure on the rows as they are and under ``count`` permutations: ``(k, count + 1)``.

    Rows are exchanged within strata, or whole groups of rows with others of their size; the value is the mean
    over strata by their shares.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in varying(strata):
        n, groups = len(stratum.z), stratum.groups
        for part in torch.arange(count + 1).split(max(1, _CHUNK // n)):
            size, first = len(part), int(part[0]) == 0
            if groups is None:
                orders = random_orders(n, size, generator, first_as_it_is=first)
            else:
                orders = group_orders(groups, size, generator, first_as_it_is=first)
            for k, measure in enumerate(measures):
                values = measure.permuted(stratum.z, stratum.s, orders, stratum.weights)
                total[k, part] += stratum.share * values
    return total


def group_orders(
    groups: Tensor, count: int, generator: torch.Generator, *, first_as_it_is: bool = False
) -> Tensor:
    """Return permutations of rows that exchange whole groups of equal size, shape ``(count, n)``.

    The k-th row of a group gets the place of the k-th row of the other.
    """
    orders = torch.arange(len(groups)).repeat(count, 1)
    for rows in size_classes(groups):
        for order in orders[int(first_as_it_is) :]:
            order[rows.flatten()] = rows[torch.randperm(len(rows), generator=generator)].flatten()
    return orders


def limit_values(
    measures: Sequence[HSIC],
    strata: Sequence[Stratum],
    count: int,
    generator: torch.Generator,
    *,
    whole: bool = False,
) -> Tensor:
    """Return HSIC and ``count`` draws from the limit of its permutation law, ``(k, count + 1)``.

    With features G of z and F of s, HSIC = |G'F|^2 / n^2. Over permutations G'F has exactly the covariance
    (G'G) (x) (F'F) / (n - 1), and for many rows it is normal: its draws cost no pass over the rows. Rows that
    are too few and too large for that are permuted one by one (:mod:`frhsic.inference._pairings`), and all of
    them if ``whole``. All measures are drawn together, so that what they have in common stays in common.

    Of groups of rows the sums of the features of z are paired with the features of s, which are the same for
    all rows of a group, among groups of the same size.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in varying(strata):
        n = len(stratum.z)
        cross, fixed, pairings = _pairings(measures, stratum, whole=whole)
        for k, observed in enumerate(cross):
            total[k, 0] += stratum.share * observed.square().sum()
        step = max(1, _CHUNK // sum(pairing.cost for pairing in pairings))
        for part in torch.arange(1, count + 1).split(step):
            draws = zip(*(pairing.draw(len(part), generator) for pairing in pairings), strict=True)
            for k, sums in enumerate(draws):
                draw = functools.reduce(torch.add, sums)
                total[k, part] += stratum.share * draw.add(fixed[k]).div_(n).square_().sum(dim=(1, 2))
    return total


def _pairings(
    measures: Sequence[HSIC], stratum: Stratum, *, whole: bool
) -> tuple[tuple[Tensor, ...], list[Tensor], list[Pairing]]:
    """Return G'F / n as observed, what no pairing changes of G'F, and the pairings that make up the rest."""
    seen, n = feature_sums(measures, stratum), len(stratum.z)
    maps_z, maps_s = zip(*seen.maps, strict=True)
    mean_s = torch.cat(seen.mean_s)
    widths_z, widths_s = (tuple(one.width for one in side) for side in (maps_z, maps_s))
    fixed = [torch.zeros_like(cross) for cross in seen.cross]

    def of_z(rows: Tensor | slice) -> Tensor:
        return torch.cat([one(stratum.z[rows]) for one in maps_z], dim=1) - seen.plain_z

    def of_s(rows: Tensor | slice) -> Tensor:
        F = torch.cat([one(stratum.s.values[rows]) for one in maps_s], dim=1) - mean_s
        return F if stratum.weights is None else n * seen.w[rows, None] * F

    if stratum.groups is None:
        sides = [
            PairingSide(n, widths, n * gram, norms, _feature_lookup(rows_of, n, sum(widths)))
            for widths, gram, norms, rows_of in (
                (widths_z, seen.gram_z, seen.norms_z, of_z),
                (widths_s, seen.gram_s, seen.norms_s, of_s),
            )
        ]
        return seen.cross, fixed, [Pairing(*sides, whole=whole)]
    _, place = stratum.groups.unique(return_inverse=True)
    sums = seen.plain_z.new_zeros((int(place.max()) + 1, len(seen.plain_z)))
    for block in blocks(n):
        sums.index_add_(0, place[block], of_z(block))
    pairings = []
    for rows in size_classes(stratum.groups):
        G, F = sums[place[rows[:, 0]]], of_s(rows[:, 0])
        parts = zip(G.split(widths_z, dim=1), F.split(widths_s, dim=1), strict=True)
        for k, (own_z, own_s) in enumerate(parts):
            fixed[k] += torch.outer(own_z.mean(dim=0), own_s.sum(dim=0))
        if len(rows) > 1:
            pairings.append(Pairing(PairingSide.of(G, widths_z), PairingSide.of(F, widths_s), whole=whole))
    return seen.cross, fixed, pairings


def _feature_lookup(
    rows_of: Callable[[Tensor | slice], Tensor], n: int, width: int
) -> Callable[[Tensor], Tensor]:
    """Return the features of some rows, from those of all rows if these are not too many to keep."""
    kept: list[Tensor] = []

    def look(rows: Tensor) -> Tensor:
        if n * width > _KEPT:
            some, place = rows.unique(return_inverse=True)
            return rows_of(some)[place] if len(rows) else rows_of(some)
        if not kept and len(rows):
            kept.append(torch.cat([rows_of(block) for block in blocks(n)]))
        return kept[0][rows] if kept else rows_of(rows)

    return look


def combine(values: Tensor, shares: Tensor | None) -> Tensor:
    """Return one statistic of several, ``(B + 1,)``: the largest of minus the logarithms of their tails."""
    return values[0] if shares is None else torch.from_numpy(combine_tails(values.numpy(), shares.numpy()))


def rank_pvalue(values: Tensor) -> float:
    """Return the share of values that are at least the first, which is one of them."""
    return rank_of_first(values.numpy())
