"""The interval for EIPM, from the multiplier process of the error of an embedding along S."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive
from frhsic.dependence import EIPM
from frhsic.inference._embedding import principal
from frhsic.inference._gdp_intervals import BEYOND_DOUBT
from frhsic.inference._kernel_intervals import CHANCE_DRAWS
from frhsic.inference._places import gather_rows
from frhsic.inference._process import Process, Smoothed
from frhsic.inference._question import IntervalOptions, Observations
from frhsic.inference._results import Interval
from frhsic.kernels import Kernel
from frhsic.numerics._lowrank import thin_factor
from frhsic.numerics._permutations import random_orders
from frhsic.numerics._smoothing import bandwidths_of, ranges_of

# EIPM leaves each row out of its own neighbourhood: it takes all pairs of at most so many rows.
_MOST_ROWS = 4_096
# Columns of the feature map in which errors of embeddings are drawn, and what share of the variance may enter
# by its mean instead.
_FEATURES, _NEGLIGIBLE = 64, 1e-3


def eipm_interval(rows: Observations, measure: EIPM, options: IntervalOptions) -> Interval:
    if rows.groups is not None:
        fix = "Use GDP(), HSIC() or DistanceCovariance(), or one row for each group."
        raise ArgumentError("groups", "be None for EIPM", "groups", fix)
    kernel = measure.kernel_z.bind(rows.z, rows.w)
    bandwidths = bandwidths_of(rows.s, measure.bandwidth_s, measure.range_s, measure._ranges)
    measure = measure._with(kernel_z=kernel, _ranges=measure._ranges or ranges_of(rows.s))  # of all rows
    rows, notes = rows.draw(_MOST_ROWS, options.generator)
    G, missing = _features(kernel, rows.z)
    curve = Smoothed(G, gather_rows(rows.s, rows.weights, options.generator), bandwidths, missing)
    estimate = float(measure(rows.z, rows.s, rows.w))
    errors = _errors(curve, options.n_draws, options.generator, square=not measure.root)
    radius = float(errors.quantile(options.confidence_level))
    if measure.root:
        low, high = max(0.0, estimate - radius), estimate + radius
    else:
        # The root of the mean square is itself a norm, over rows and features at once: the same argument on
        # that scale, and the sampling error of the mean square divided by the root.
        length = math.sqrt(max(estimate, 0.0))
        low, high = max(0.0, length - radius) ** 2, (length + radius) ** 2
    draws = None
    if options.chance:
        orders = random_orders(len(rows), CHANCE_DRAWS, options.generator)
        draws = _permuted(rows.s, measure, G, missing, orders, rows.weights)
    chance, chance_high = options.summarize(draws)
    return Interval(
        estimate=estimate,
        low=low,
        high=high,
        confidence_level=options.confidence_level,
        measure="EIPM" if measure.root else "mean squared MMD along s",
        target=f"that of {curve.target}, under this kernel as fixed on this sample",
        method="Gaussian multiplier process of the embedding",
        attributes=rows.s.names,
        n=len(rows),
        chance=chance,
        chance_high=chance_high,
        notes=(*notes, *curve.notes()),
    )


def _errors(curve: Smoothed, n_draws: int, generator: torch.Generator, *, square: bool) -> Tensor:
    """Return draws of the bound on the error of the mean of |g|, or of its root mean square.

    With A the points at which the gap is beyond doubt (outside a simultaneous 99 % band of the process), the
    mean of |g| moves with the gap there and no faster than its error elsewhere:

        | sum_A pi_a (|g_a + e*_a| - |g_a|) + (P_n* - P_n) |g| | + sum_{not A} pi_a |e*_a|.

    The root mean square is a norm as a whole, so A is not needed: its error is at most that of e*.
    """
    points, share = curve.points()
    process = Process(curve, points)
    places, here = curve.places, process.mean
    gaps = _norm(curve.gaps)
    if square:
        gaps = gaps.square() / math.sqrt(max(float(curve.mass @ gaps.square()), 1e-300))
    gaps = gaps - curve.mass @ gaps
    # What the features leave out of the squared norm of the error, in the mean.
    left = (process.P - 1.0).square() @ places.sums(places.w.square() * curve.missing)
    sizes, changes, outer = [], [], []
    for errors, multipliers in process.draws(n_draws, generator, gap=True):
        e = _norm(errors)  # (a, b)
        sizes.append((e.square() + left[:, None]).sqrt() if bool((left > 0).any()) else e)
        changes.append(_norm(here[:, None, :] + errors) - _norm(here)[:, None])
        outer.append(gaps @ multipliers)
    e, zeta = torch.cat(sizes, dim=1) * places.scale, torch.cat(outer) * places.scale
    if square:
        return (share @ e.square()).sqrt() + zeta.abs()
    spread = e.square().mean(dim=1).sqrt().clamp_min(1e-300)
    largest = (e / spread[:, None]).amax(dim=0).quantile(BEYOND_DOUBT)
    clear = (_norm(here) > largest * spread).to(e)
    signed = (share * clear) @ torch.cat(changes, dim=1) * places.scale
    return (signed + zeta).abs() + (share * (1.0 - clear)) @ e


def _norm(gaps: Tensor) -> Tensor:
    return gaps.square().sum(dim=-1).sqrt()


def _features(kernel: Kernel, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return features G with G G' near the centred Gram matrix, and what is missing on its diagonal.

    What they leave out is spread over many directions, so that its norm hardly varies.
    """
    G = principal(thin_factor(kernel, z, _FEATURES))
    rows = torch.cat([kernel.gram(part, z).mean(dim=1) for part in z.split(1_000)])
    centred = kernel.diagonal(z) - 2.0 * rows + rows.mean()
    missing = (centred - G.square().sum(dim=1)).clamp_min(0.0)
    upto = G.square().sum(dim=0).cumsum(0)  # smallest directions first
    small = upto <= _NEGLIGIBLE * upto[-1]
    return G[:, ~small], missing + G[:, small].square().sum(dim=1)


def _permuted(s: Sensitive, measure: EIPM, G: Tensor, missing: Tensor, orders: Tensor, w: Tensor) -> Tensor:
    """Return EIPM for each permutation: products of the contrasts at no more than 256 anchors."""
    at_most = 256 if measure.anchors is None else min(256, measure.anchors)
    E, share = measure._with(anchors=at_most)._contrasts(s, w)
    values = []
    for order in orders:
        squared = (E @ G[order]).square().sum(dim=1) + E.square() @ missing[order]
        values.append((squared.sqrt() if measure.root else squared) @ share)
    return torch.stack(values)
