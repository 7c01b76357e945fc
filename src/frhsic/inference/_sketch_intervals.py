"""The interval for HSIC of all rows of a sketch, from its sums, its groups of rows and its stored rows."""

from __future__ import annotations

import math

import torch
from scipy.special import stdtrit
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._text import number
from frhsic.dependence import HSIC, Dependence
from frhsic.inference._embedding import by_chance
from frhsic.inference._kernel_intervals import CHANCE_DRAWS, hsic_interval
from frhsic.inference._question import IntervalOptions
from frhsic.inference._results import Interval
from frhsic.numerics._products import hsic_of_sums
from frhsic.sketching import HSICSketch

CONSTANT = (
    "One side is constant, or varies by less than features of this bandwidth and dtype resolve (float64 and "
    "a smaller bandwidth resolve more)"
)


def sketch_hsic_interval(sketch: HSICSketch, measure: Dependence, options: IntervalOptions) -> Interval:
    """Return the interval for HSIC of the kernels of a sketch.

    The estimate is that of all rows, less the error of the features on the stored rows. Its standard error is
    that of the jackknife over groups together with that of the error. Far from independence Student's law on
    the root; near it a bound from zero to (|C^| + r)^2, where |C^ - C|^2 has the mean by which the biased
    HSIC exceeds the debiased one, and the law of a sum over products of eigenvalues.
    """
    plain_form = {"estimator": "biased", "normalized": False, "root": False, "block_size": None}
    if not isinstance(measure, HSIC) or repr(measure._with(**plain_form)) != repr(HSIC()):
        must = "be an HSIC without kernels for a sketch, which has its own"
        fix = "Leave it out, or take HSIC(normalized=False)."
        raise ArgumentError("dependence", must, repr(measure), fix)
    sums, normalized, shares = sketch.feature_sums(), measure.normalized, sketch.group_shares
    if bool((shares == 0).any()) or sketch.effective_rows < 2 * sketch.n_groups:
        must = f"be a sketch with rows in each of its {sketch.n_groups} groups, two on average"
        fix = "Add rows, or pass the rows themselves."
        raise ArgumentError("scores", must, f"{sketch.n_rows:,} rows", fix)
    lam, mu = sums.spectra()
    if float(lam.sum() * mu.sum()) == 0.0:
        raise ValueError(f"'scores' must be a sketch that varies. Got one of which this holds: {CONSTANT}.")
    size = 1.0
    if normalized:
        zz, ss = (float(hsic_of_sums(*one, "unbiased")) for one in (sums.z.products(), sums.s.products()))
        size = math.sqrt(max(zz * ss, 1e-300))
    biased, plain = sketch.value(estimator="biased"), sketch.value()
    spread = max(biased - plain, 0.0)
    if sketch.grouped:
        terms, blocks = sums.group_terms()
        A, q = terms.flatten(1), float(blocks.square().sum())
        plain = block_debiased(biased, A @ A.mT, q)
        spread = float(A.square().sum()) / (1.0 - q)
    error = sketch.error(normalized=normalized)
    without = [sketch.without(group).value(normalized=normalized) for group in range(sketch.n_groups)]
    se = math.hypot(jackknife_error(plain / size, without, shares), error.standard_error)
    t = float(stdtrit(sketch.n_groups - 1, 0.5 + 0.5 * options.confidence_level))
    errors = _errors(sketch, lam, mu, spread, options)
    draws = None
    if options.chance:
        draws = by_chance(lam, mu, CHANCE_DRAWS, options.generator) / (sketch.effective_rows * size)
        if sketch.grouped:  # as much more as groups differ more than rows would
            draws *= spread * sketch.effective_rows / float(lam.sum() * mu.sum())
    return hsic_interval(
        measure,
        options,
        estimate=plain / size - error.error,
        half_width=t * se,
        length=math.sqrt(biased),
        errors=errors,
        size=size,
        draws=draws,
        methods=(
            f"jackknife over {sketch.n_groups} groups of rows, on the root of the unbiased form",
            "bound by the spectrum of the features: near independence",
        ),
        target="the population's value under the kernels of the sketch",
        attributes=sketch.stored.s.names,
        n=sketch.n_rows,
        notes=[
            f"The features are off by {number(error.error)} on {error.rows:,} stored rows (standard error "
            f"{number(error.standard_error)}): this is taken off the estimate, and its error is in the "
            "interval."
        ],
        excess=max(0.0, t * error.standard_error - error.error),
    )


def _errors(sketch: HSICSketch, lam: Tensor, mu: Tensor, spread: float, options: IntervalOptions) -> Tensor:
    """Return draws of |C^ - C|, whose square has the mean ``spread``."""
    errors = 1.0 + by_chance(lam / lam.sum(), mu / mu.sum(), options.n_draws, options.generator)
    errors = (errors.clamp_min(0.0) * spread).sqrt()
    if not sketch.grouped:
        return errors
    # The mean is estimated from the groups themselves.
    size = (options.n_draws, sketch.n_groups - 1)
    chi = torch.randn(size, generator=options.generator, dtype=torch.float64).square().mean(dim=1)
    return errors / chi.sqrt()


def block_debiased(biased: float, gram: Tensor, q: float) -> float:
    """Return HSIC without the pairs of rows of one group, as in :mod:`frhsic.inference._embedding`."""
    return (biased * (1.0 - q) - float(gram.diagonal().sum())) / (1.0 - 2.0 * q)


def jackknife_error(value: float, without: list[float], shares: Tensor) -> float:
    """Return the standard error of a value from those without each group, of shares of any size.

    With h_g = 1 / share_g and p_g = h_g value - (h_g - 1) without_g, the root of the mean over groups of
    (p_g - mean)^2 / (h_g - 1): Busing, Meijer and van der Leeden (1999).
    """
    h = 1.0 / shares
    pseudo = h * value - (h - 1.0) * torch.tensor(without, dtype=torch.float64)
    return math.sqrt(float(((pseudo - pseudo.mean()).square() / (h - 1.0)).mean()))
