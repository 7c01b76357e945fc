"""Intervals for HSIC and distance covariance, from the law of the error of the cross-covariance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import ndtri, stdtrit
from torch import Tensor

from frhsic._text import number
from frhsic.dependence import HSIC, DistanceCovariance
from frhsic.inference._embedding import Embedding, as_hsic, embedding
from frhsic.inference._question import IntervalOptions, Observations
from frhsic.inference._results import Interval
from frhsic.inference._table import TableEmbedding
from frhsic.inference.bounds import population_bound
from frhsic.numerics._numeric import signed_root
from frhsic.numerics._permutations import random_orders

# Zero must lie beyond 1.5 times the radius of the certificate's ball before the normal law is used. Simulated
# with Gaussian pairs at n = 200, independence passes in 1 of 500 samples, and coverage at 95 % is 0.94 to 1
# for HSIC, its normalised form and distance correlation, at correlations 0, 0.18, 0.35 (HSIC = 1/n), 0.5 and
# 0.8. On the scale of HSIC itself instead of its root it is 0.90 to 0.95.
_MARGIN = 1.5
# Draws of the estimate under independence: permutations up to so many rows (of distances, which have no thin
# factor and cost n^2 each, up to the second number), the limit of their law above.
CHANCE_DRAWS, _CHANCE_ROWS, _CHANCE_DISTANCES = 199, 1_024, 512
LIMIT_DRAWS = 1_999  # of the limit, which cost no rows


def kernel_interval(
    rows: Observations, measure: HSIC | DistanceCovariance, options: IntervalOptions
) -> Interval:
    z, s, w = rows.z, rows.s, rows.w
    hsic = as_hsic(measure, s)
    found = embedding(z, s, hsic, options.generator, w, rows.groups)
    n, size, plain = len(found), found.size(hsic.normalized), w is None and rows.groups is None
    upper = 0.5 + 0.5 * options.confidence_level
    t = ndtri(upper) if rows.groups is None else stdtrit(found.units - 1, upper)
    notes = [*found.notes, *group_notes(found)]
    # Not for scales that these rows chose: the bound is for kernels fixed before the rows were seen.
    rules = hsic.kernel_z, hsic._kernel_s(s)
    kernels = (rules[0].bind(z, w), rules[1].bind(s.values, w)) if all(one.fixed for one in rules) else ()
    if plain and kernels and all(one.is_standard for one in kernels):
        tail = 1.0 - options.confidence_level
        most = population_bound(found.length**2, n, tail, kernels[0].bound * kernels[1].bound)
        confidence = f"with confidence {options.confidence_level:g}"
        notes.append(f"At every n, HSIC (not normalised) is at most {number(most)} {confidence}.")
    draws = None
    most = _CHANCE_DISTANCES if isinstance(measure, DistanceCovariance) else _CHANCE_ROWS
    if options.chance and plain and n == len(z) <= most:
        bound = HSIC(rules[0].bind(z), rules[1].bind(s.values), estimator="unbiased")
        draws = bound.permuted(z, s, random_orders(n, CHANCE_DRAWS, options.generator)) / size
    elif options.chance:
        draws = found.by_chance(LIMIT_DRAWS, options.generator) / size
    half_width = float(t) * found.standard_error(hsic.normalized)
    return interval_of_embedding(
        found, measure, options, half_width=half_width, draws=draws, attributes=s.names, notes=notes
    )


def interval_of_embedding(
    found: Embedding | TableEmbedding,
    measure: HSIC | DistanceCovariance,
    options: IntervalOptions,
    *,
    half_width: float,
    draws: Tensor | None,
    attributes: tuple[str, ...],
    notes: Sequence[str] = (),
) -> Interval:
    """Return the interval of a measure from its embedding."""
    wide, size = max(options.confidence_level, 0.95), found.size(measure.normalized)
    far = isinstance(found, TableEmbedding) and found.is_far(_MARGIN, wide)
    cell_error = None
    if isinstance(found, TableEmbedding) and isinstance(measure, HSIC) and not measure.root:
        cell_error = found.cell_error(measure.normalized)
    return hsic_interval(
        measure,
        options,
        cell_error=cell_error,
        estimate=found.unbiased()[0] / size,
        half_width=half_width,
        length=found.length,
        errors=None if far else found.errors(options.n_draws, options.generator),
        size=size,
        draws=draws,
        methods=(
            "normal, on the root of the unbiased form",
            "bound by the multiplier bootstrap of the embedding: near independence",
        ),
        target="the population's value under these kernels, as fixed on this sample",
        attributes=attributes,
        n=found.units,
        notes=notes,
    )


def hsic_interval(
    measure: HSIC | DistanceCovariance,
    options: IntervalOptions,
    *,
    estimate: float,
    half_width: float,
    length: float,
    errors: Tensor | None,
    size: float,
    draws: Tensor | None,
    methods: tuple[str, str],
    target: str,
    attributes: tuple[str, ...],
    n: int,
    notes: Sequence[str],
    excess: float = 0.0,
    cell_error: float | None = None,
) -> Interval:
    """Return the interval for an HSIC: on its root far from independence, else from zero to a bound.

    The estimate is |C|^2 / size, ``length`` is |C^|, ``errors`` are draws of |C^ - C| (None: ``length`` is
    far beyond them), and ``draws`` those of the estimate under independence. ``excess`` is added to it.
    """
    level = options.confidence_level
    radius, wide = 0.0, 0.0
    if errors is not None:
        radius, wide = (float(errors.quantile(q)) for q in (level, max(level, 0.95)))
    if estimate > 0.0 and length > _MARGIN * wide:
        method, middle = methods[0], math.sqrt(estimate)
        half = half_width / (2.0 * middle)
        low, high = max(0.0, middle - half) ** 2, (middle + half) ** 2
    else:
        method = methods[1]
        low, high = min(0.0, estimate), (length + radius) ** 2 / size + excess
    if measure.normalized:
        high = min(high, 1.0)
    low, high = min(low, estimate), max(high, estimate)
    if measure.root:
        low, estimate, high = (root_of(value) for value in (low, estimate, high))
        draws = None if draws is None else signed_root(draws)
    chance, chance_high = options.summarize(draws)
    if low < 0.0:
        notes = [*notes, "The target is never below zero; its unbiased estimate may be."]
    return Interval(
        estimate=estimate,
        low=low,
        high=high,
        confidence_level=level,
        measure=kernel_words(measure),
        target=target,
        method=method,
        attributes=attributes,
        n=n,
        chance=chance,
        chance_high=chance_high,
        notes=tuple(notes),
        cell_error=cell_error,
    )


def kernel_words(measure: HSIC | DistanceCovariance) -> str:
    if isinstance(measure, DistanceCovariance):
        name = "distance correlation" if measure.normalized else "distance covariance"
        return name if measure.root else f"squared {name}"
    name = "normalised HSIC" if measure.normalized else "HSIC"
    return f"root of {name}" if measure.root else name


def group_notes(rows: Embedding | TableEmbedding | Observations) -> tuple[str, ...]:
    """Return what n counts where rows come in groups."""
    return () if rows.groups is None else (f"n counts groups, of {len(rows):,} rows.",)


def root_of(value: float) -> float:
    """Return the root with the sign of the value."""
    return math.copysign(math.sqrt(abs(value)), value)
