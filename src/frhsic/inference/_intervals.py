"""Confidence intervals for a dependence: what it may be in the population, given these rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from scipy.special import ndtri, stdtrit
from torch import Tensor

from frhsic._checks import check_confidence_level, check_draws
from frhsic._text import number
from frhsic.data import (
    Sensitive,
    check_aligned,
    to_generator,
    to_groups,
    to_matrix,
    to_sensitive,
    to_weights,
)
from frhsic.dependence import EIPM, GDP, HSIC, Dependence, DistanceCovariance
from frhsic.inference._curve import check_groups
from frhsic.inference._embedding import Embedding, as_hsic, embedding, principal
from frhsic.inference._permutation import random_orders
from frhsic.inference._process import (
    Smoothed,
    cell_curve,
    cells_of_line,
    effective_units,
    gathered,
    is_coarse,
    line_groups,
    roots,
)
from frhsic.inference._results import Interval
from frhsic.inference._sketched import refuse_beside_a_sketch, refuse_grouped, sketched_interval
from frhsic.inference.bounds._bounds import population_bound
from frhsic.kernels import Kernel
from frhsic.numerics._cells import Cells
from frhsic.numerics._lowrank import thin_factor
from frhsic.numerics._numeric import signed_root
from frhsic.numerics._smoothing import bandwidths_of, ranges_of, row_weights
from frhsic.sketching import HSICSketch

# What takes all pairs of rows: EIPM, which leaves each row out of its own neighbourhood, and GDP along
# several continuous columns.
_MOST_ROWS_EIPM, _MOST_ROWS_GDP = 4_096, 10_000
# Zero must lie beyond 1.5 times the radius of the certificate's ball before the normal law is used. Simulated
# with Gaussian pairs at n = 200, independence passes in 1 of 500 samples, and coverage at 95 % is 0.94 to 1
# for HSIC, its normalised form and distance correlation, at correlations 0, 0.18, 0.35 (HSIC = 1/n), 0.5 and
# 0.8. On the scale of HSIC itself instead of its root it is 0.90 to 0.95.
_MARGIN = 1.5
# The simultaneous confidence with which the sign of a gap is taken as known.
_BEYOND_DOUBT = 0.99
# Up to so many rows they are permuted for the chances of HSIC and GDP; above, the limit of that law is drawn.
_PERMUTATIONS, _CHANCE_ROWS, _CHANCE_ROWS_GDP = 199, 1_024, 5_000
_COARSE = "The numbers of s reach too far for the grid of the sketch: {:,} stored rows were used."
# Columns of the feature map in which errors of embeddings are drawn, and what share of the variance may enter
# by its mean instead.
_FEATURES, _NEGLIGIBLE = 64, 1e-3


def confidence_interval(
    z: object,
    s: object = None,
    *,
    dependence: Dependence | None = None,
    confidence_level: float = 0.95,
    n_draws: int = 999,
    random_state: object = None,
    chance: bool = True,
    sample_weight: object = None,
    groups: object = None,
) -> Interval:
    """Return a confidence interval for the dependence of z on s in the population.

    Parameters
    ----------
    z : array-like of shape (n,) or (n, d), or HSICSketch
        Scores or a representation, of rows that were not used to train it; or a sketch of z and s.
    s : array-like of shape (n,) or (n, q)
    dependence : HSIC, DistanceCovariance, GDP, EIPM or None, default=None
        None is normalised HSIC with the kernels' default scales. For a sketch HSIC with its kernels: an HSIC
        without kernels says here whether normalised, whether the root.
    confidence_level : float, default=0.95
    n_draws : int, default=999
        Multiplier draws.
    random_state : None, int or generator, default=None
    chance : bool, default=True
        Also give the mean and the quantile of the estimate over 199 permutations of s.
    sample_weight : array-like of shape (n,) or None, default=None
        The target is then that of the weighted law, such as that of a population from which rows were drawn
        with unequal chances, one over which are the weights. Rows of weight zero are left out.
    groups : array of labels of shape (n,) or None, default=None
        Rows of one group (a person, a household) may depend on one another; groups are independent. The
        interval is then that of so many groups, and ``n`` is their number.

    Returns
    -------
    Interval
        With its target: kernels and bandwidths that are rules are fixed as on this sample, and a smoothed
        curve is not the true one.

    Notes
    -----
    *HSIC and distance covariance.* The estimate is the unbiased form, whichever the measure asks for. Near
    independence its law is not normal (the first-order term vanishes), and for the same reason the naive
    bootstrap of rows fails there. The cross-covariance operator C itself has no such point: the Gaussian
    multiplier bootstrap gives the quantile r of |C^ - C| with or without independence, and
    |C^| - r <= |C| <= |C^| + r with HSIC = |C|^2. So: where |C^| exceeds 1.5 r, the normal interval on the
    root of the estimate, on which scale its variance depends least on its value; else from zero to
    (|C^| + r)^2. Normalised forms divide by sqrt(HSIC(Z, Z) HSIC(S, S)).

    With weights, C^ = sum_i w_i a_i, the multipliers are those of w_i (a_i - C^), and the debiased estimate
    is the formula of the unbiased one with 1 / sum_i w_i^2, the effective number of rows, in place of n: what
    it takes off is what chance adds to the weighted form at independence, whatever the weights.

    With groups, sums of w_i (a_i - C^) over the rows of a group take the place of the rows: in the
    multipliers, in the standard error (with Student's law), and in the debiased estimate, which leaves out
    all pairs of rows of one group.

    The interval always holds its estimate. HSIC itself is never negative, but its unbiased estimate may be:
    then the lower end is that estimate, and values below zero are none that the target can take.

    *GDP* is the mean over s of |g|, g the gap between the mean at s (or within its range, see
    :class:`frhsic.GDP`) and the overall mean. Where the sign of the gap is beyond doubt, its error is that of
    a mean. Elsewhere the sum of |g| is at most the root of that of g^2, which is estimated without the part
    that chance adds; the lower end takes off what chance adds to |g|. Errors are those of the Gaussian
    multiplier process. ``target`` says which curve it is about: the lower end holds for any, because the mean
    gap of ranges is at most that of the curve. Beside it stands what independence gives: GDP is positive by
    chance.

    *EIPM.* With g(a) the smoothed gap and e(a) the error of its estimate, the error of the mean of |g| over s
    is at most sum_a pi_a |e(a)| + |(P_n - P) |g||; where the gap is beyond doubt it moves with e(a) instead
    of |e(a)|. The interval is the estimate -/+ the quantile of that bound.

    *A sketch.* The debiased HSIC of all rows, less the error of the features as it is on the stored rows. The
    standard error is that of the jackknife over the groups of rows, together with that of the error of the
    features; Student's law on the root where zero is far, else the bound of above, from the eigenvalues of
    the features.

    For a z of one column and any number of rows HSIC, distance covariance and GDP use all of them. Where the
    kernels have too many features (wide representations), 5,000 random rows are used, and for EIPM 4,096; the
    notes say so. Floors of many rows, or with weights, are drawn from the limit of the permutation law.

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic.dependence import GDP
    >>> rng = np.random.default_rng(0)
    >>> s, noise = rng.normal(size=(2, 500))
    >>> interval = confidence_interval(s + noise, s, dependence=GDP(), random_state=0, chance=False)
    >>> [round(end, 1) for end in (interval.low, interval.estimate, interval.high)]
    [0.7, 0.8, 1.0]
    """
    check_confidence_level(confidence_level)
    check_draws(n_draws)
    measure = HSIC(estimator="unbiased", normalized=True) if dependence is None else dependence
    if isinstance(z, HSICSketch):
        refuse_beside_a_sketch(s=s, sample_weight=sample_weight, groups=groups)
        if isinstance(measure, GDP):
            return _sketched_gdp(z, measure, confidence_level, n_draws, to_generator(random_state), chance)
        if not isinstance(measure, HSIC) or repr(
            measure._with(estimator="biased", normalized=False, root=False, block_size=None)
        ) != repr(HSIC()):
            raise ValueError(
                "'dependence' must be an HSIC without kernels for a sketch, which has its own. "
                f"Got {measure!r}. Leave it out, or take HSIC(normalized=False)."
            )
        return sketched_interval(z, measure, confidence_level, n_draws, to_generator(random_state), chance)
    check_aligned(z=z, s=s, sample_weight=sample_weight, groups=groups)
    x = to_matrix(z, name="z", min_rows=8)
    sensitive = to_sensitive(s, name="s", n_rows=len(x), rows_of="z", min_rows=8)
    w = to_weights(sample_weight, n_rows=len(x), rows_of="z")
    codes = to_groups(groups, n_rows=len(x), rows_of="z")
    if w is not None:
        present = w > 0
        if int(present.sum()) < 8:
            raise ValueError(
                f"'sample_weight' must be positive in at least 8 rows. Got {int(present.sum())}. "
                "Pass more rows that count."
            )
        x, sensitive, w = x[present], sensitive[present], w[present]
        codes = None if codes is None else codes[present].unique(return_inverse=True)[1]
        w = None if bool((w == w[0]).all()) else w / w.sum()  # equal weights are none
    if bool((x == x[:1]).all()):
        raise ValueError("'z' must vary. Got the same row throughout. A constant tells nothing about 's'.")
    generator = to_generator(random_state)
    check_groups(codes)
    if codes is not None and isinstance(measure, EIPM):
        raise ValueError(
            "'groups' must be None for EIPM. Got groups. Use GDP(), HSIC() or DistanceCovariance(), or one "
            "row for each group."
        )
    if isinstance(measure, HSIC | DistanceCovariance):
        return _kernel_interval(x, sensitive, measure, confidence_level, n_draws, generator, chance, w, codes)
    if isinstance(measure, GDP):
        return _gdp_interval(x, sensitive, measure, confidence_level, n_draws, generator, chance, w, codes)
    if isinstance(measure, EIPM):
        return _eipm_interval(x, sensitive, measure, confidence_level, n_draws, generator, chance, w)
    raise TypeError(
        "'dependence' must be HSIC, DistanceCovariance, GDP or EIPM: no interval is derived for others. "
        f"Got {type(measure).__name__}. Take one of these four."
    )


def kernel_words(measure: HSIC | DistanceCovariance) -> str:
    """Return the name of a measure, as one would say it."""
    if isinstance(measure, DistanceCovariance):
        name = "distance correlation" if measure.normalized else "distance covariance"
        return name if measure.root else f"squared {name}"
    name = "normalised HSIC" if measure.normalized else "HSIC"
    return f"root of {name}" if measure.root else name


# ---- kernels ---------------------------------------------------------------------------------------------


def _kernel_interval(
    z: Tensor,
    s: Sensitive,
    asked: HSIC | DistanceCovariance,
    confidence_level: float,
    n_draws: int,
    generator: torch.Generator,
    chance: bool,
    w: Tensor | None,
    groups: Tensor | None,
) -> Interval:
    measure = as_hsic(asked, s)
    kernel_z, kernel_s = measure.kernel_z.bind(z, w), measure._kernel_s(s).bind(s.values, w)
    found = embedding(z, s, measure, generator, w, groups)
    n, notes = len(found), [*found.notes, *group_notes(found)]
    size, se = found.size(measure.normalized), found.standard_error(measure.normalized)
    estimate, length = found.unbiased()[0] / size, found.length
    errors = found.errors(n_draws, generator)
    radius, wide = (float(errors.quantile(q)) for q in (confidence_level, max(confidence_level, 0.95)))
    if estimate > 0.0 and length > _MARGIN * wide:
        method = "normal, on the root of the unbiased form"
        middle = math.sqrt(estimate)
        upper = 0.5 + 0.5 * confidence_level
        half = (
            float(ndtri(upper) if groups is None else stdtrit(found.units - 1, upper)) * se / (2.0 * middle)
        )
        low, high = max(0.0, middle - half) ** 2, (middle + half) ** 2
    else:
        method = "bound by the multiplier bootstrap of the embedding: near independence"
        low, high = min(0.0, estimate), (length + radius) ** 2 / size
    if measure.normalized:
        high = min(high, 1.0)
    low, high = min(low, estimate), max(high, estimate)
    # Not for scales that these rows chose: the bound is for kernels fixed before the rows were seen.
    fixed = measure.kernel_z.fixed and measure._kernel_s(s).fixed
    alone = w is None and groups is None
    if alone and fixed and kernel_z.is_standard and kernel_s.is_standard:
        sure = population_bound(length**2, n, 1.0 - confidence_level, kernel_z.bound * kernel_s.bound)
        notes.append(
            f"At every n, HSIC (not normalised) is at most {number(sure)} with confidence "
            f"{confidence_level:g}."
        )
    mean, top = (None, None)
    if chance:
        bound = HSIC(kernel_z, kernel_s, estimator="unbiased")
        if w is None and groups is None and n == len(z) <= _CHANCE_ROWS:
            values = bound.permuted(z, s, random_orders(n, _PERMUTATIONS, generator))
        else:
            values = found.by_chance(_PERMUTATIONS, generator)
        values = signed_root(values / size) if measure.root else values / size
        mean, top = float(values.mean()), float(values.quantile(confidence_level))
    if measure.root:
        low, estimate, high = (root_of(value) for value in (low, estimate, high))
    if low < 0.0:
        notes.append("Below zero is no value of the target: the estimate is unbiased, so it may lie there.")
    return Interval(
        estimate=estimate,
        low=low,
        high=high,
        confidence_level=confidence_level,
        measure=kernel_words(asked),
        target="the population's value under these kernels, as fixed on this sample",
        method=method,
        attributes=s.names,
        n=found.units,
        chance=mean,
        chance_high=top,
        notes=tuple(notes),
    )


def group_notes(found: Embedding) -> tuple[str, ...]:
    """Return what n counts where rows come in groups."""
    return () if found.groups is None else (f"n counts groups, of {len(found):,} rows.",)


def root_of(value: float) -> float:
    """Return the root with the sign of the value."""
    return math.copysign(math.sqrt(abs(value)), value)


# ---- smoothing -------------------------------------------------------------------------------------------


def _gdp_interval(
    z: Tensor,
    s: Sensitive,
    measure: GDP,
    confidence_level: float,
    n_draws: int,
    generator: torch.Generator,
    chance: bool,
    w: Tensor | None,
    units: Tensor | None = None,
) -> Interval:
    notes: tuple[str, ...] = ()
    if measure.bandwidth_s is not None and s.kinds.count("continuous") > 1:
        measure = measure._with(_ranges=measure._ranges or ranges_of(s))
        z, s, w, units, notes = _some_rows(z, s, w, units, _MOST_ROWS_GDP, generator)
    measure, curve = gdp_curve(z, s, measure, generator, w, units)
    low, high = gdp_limits(curve, 0.5 * (1.0 - confidence_level), n_draws, generator)
    n = len(z) if units is None else len(units.unique())
    if units is not None:
        notes += (f"n counts groups, of {len(z):,} rows.",)
    return _around_gdp(
        float(measure(z, s, w)), low, high, curve, confidence_level, s.names, n, chance, notes, generator
    )


def _sketched_gdp(
    sketch: HSICSketch,
    measure: GDP,
    confidence_level: float,
    n_draws: int,
    generator: torch.Generator,
    chance: bool,
) -> Interval:
    _refuse_grid(measure)
    refuse_grouped(sketch, "GDP")
    line = sketch.line()
    if measure.bandwidth_s is None:
        cells = cells_of_line(line, sketch.effective_rows)
        if is_coarse(line, cells):
            z, s, w = sketch.stored
            found = _gdp_interval(z, s, measure, confidence_level, n_draws, generator, chance, w / w.sum())
            return replace(found, notes=(*found.notes, _COARSE.format(len(z))))
        f, groups = line_groups(line, line.s.kinds, cells)
        curve = Smoothed.of(f, groups, [1.0], cells=cells)
    else:
        span = line.span if measure.range_s is None else measure.range_s
        f, groups = line_groups(line, line.s.kinds)
        curve = Smoothed.of(f, groups, bandwidths_of(line.s, measure.bandwidth_s, span, None))
    low, high = gdp_limits(curve, 0.5 * (1.0 - confidence_level), n_draws, generator)
    estimate = float(curve.mass @ _absolute(curve.gaps))
    n = sketch.n_rows
    return _around_gdp(estimate, low, high, curve, confidence_level, line.s.names, n, chance, (), generator)


def _around_gdp(
    estimate: float,
    low: float,
    high: float,
    curve: Smoothed,
    confidence_level: float,
    names: tuple[str, ...],
    n: int,
    chance: bool,
    notes: tuple[str, ...],
    generator: torch.Generator,
) -> Interval:
    mean, top = _gdp_chance(curve, confidence_level, generator) if chance else (None, None)
    return Interval(
        estimate=estimate,
        low=min(low, estimate),
        high=max(high, estimate),
        confidence_level=confidence_level,
        measure="GDP",
        target=curve.target_of_gdp,
        method="Gaussian multiplier process of the curve",
        attributes=names,
        n=n,
        chance=mean,
        chance_high=top,
        notes=(*notes, *curve.notes()),
    )


def _some_rows(
    z: Tensor, s: Sensitive, w: Tensor | None, units: Tensor | None, most: int, generator: torch.Generator
) -> tuple[Tensor, Sensitive, Tensor | None, Tensor | None, tuple[str, ...]]:
    """Return random rows, and say so; all if there are no more."""
    if len(z) <= most:
        return z, s, w, units, ()
    rows = torch.randperm(len(z), generator=generator)[:most]
    note = f"A random subsample of {most:,} of {len(z):,} rows was used."
    units = None if units is None else units[rows]
    return z[rows], s[rows], None if w is None else w[rows] / w[rows].sum(), units, (note,)


def gdp_curve(
    z: Tensor,
    s: Sensitive,
    measure: GDP,
    generator: torch.Generator,
    w: Tensor | None = None,
    units: Tensor | None = None,
) -> tuple[GDP, Smoothed]:
    """Return the measure with its cells fixed, and the curve of which it is the mean gap."""
    _refuse_grid(measure)
    weights = row_weights(s, w)
    if measure.bandwidth_s is None:
        cells = measure._cells or Cells.of(s, weights, effective_units(weights, units))
        return measure._with(_cells=cells), cell_curve(z, s, cells, weights, generator, units)
    bandwidths = bandwidths_of(s, measure.bandwidth_s, measure.range_s, measure._ranges)
    return measure, Smoothed.of(z, gathered(s, weights, generator, units), bandwidths)


def gdp_limits(curve: Smoothed, tail: float, n_draws: int, generator: torch.Generator) -> tuple[float, float]:
    """Return limits of the mean of |g|, each of which fails with probability ``tail`` at most."""
    lower, upper = gdp_tails(curve, n_draws, generator)
    return lower(tail), upper(tail)


def gdp_tails(
    curve: Smoothed, n_draws: int, generator: torch.Generator
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return the lower and the upper limit of the mean of |g| as functions of the chance that each fails.

    Let A be the places where the sign of g is beyond doubt (outside a simultaneous 99 % band), and U the
    others. On A the mean of |g| is that of +/- g, and its error is that of a mean. On U

        sum_U pi_a |g_a|  <=  ( pi(U) sum_U pi_a g_a^2 )^(1/2),

    and the sum of squares is estimated without bias by Q^ = sum_U pi_a (g^_a^2 - var e_a). Its error is
    2 sum_U pi_a g_a e_a + sum_U pi_a (e_a^2 - var e_a), of which the first has at most the variance
    4 lambda Q, lambda the largest eigenvalue of the covariance of sqrt(pi) e on U. So Q is at most the
    larger root of (Q - Q^)^2 = 4 z^2 lambda Q + q^2 with z and q the quantiles. In bins, chance adds
    E|e_a| to each |g_a| but nothing to Q^: the limit is shorter than one around sum |g^_a| by a factor that
    grows with the number of bins. (It is never below the estimate sum pi_a |g^_a| itself.) The lower limit
    takes the quantile of sum_U pi_a |e_a| off instead, and is not below zero on U.
    """
    points, share = curve.points()
    process = curve.at(points)
    groups, here = curve.groups, process.mean
    gaps = _absolute(curve.gaps)
    estimate = float(curve.mass @ gaps)
    gaps = gaps - estimate
    drawn, outer = [], []
    for errors, multipliers in process.draws(n_draws, generator, gap=True):
        drawn.append(errors.permute(0, 2, 1).flatten(0, 1))  # (a r, b)
        outer.append(gaps @ multipliers)
    e, zeta = torch.cat(drawn, dim=1) * groups.scale, torch.cat(outer) * groups.scale
    g, r = here.flatten(), here.shape[1]
    pi = share.repeat_interleave(r) / r
    variance = e.square().mean(dim=1)
    spread = variance.sqrt().clamp_min(1e-12 * float(variance.max().sqrt()) + 1e-300)
    largest = float((e.abs() / spread[:, None]).amax(dim=0).quantile(_BEYOND_DOUBT))
    # Of a few rows no sign is beyond doubt: Student's law down to one degree of freedom.
    clear = g.abs() > process.limits(largest, 2.0).repeat_interleave(r) * groups.scale
    known = float(pi[clear] @ g[clear].abs())
    moves = zeta + (pi[clear] * g[clear].sign()) @ e[clear]
    p, u, v = pi[~clear], e[~clear], variance[~clear]
    unknown, noise = float(p @ g[~clear].abs()), p @ u.abs()
    Q = max(0.0, float(p @ (g[~clear].square() - v)))
    chance = p @ (u.square() - v[:, None])
    rooted = p.sqrt()[:, None] * u
    lam = float(torch.linalg.eigvalsh(rooted @ rooted.mT / e.shape[1])[-1]) if len(p) else 0.0
    turns = _crossings(curve, g.reshape(here.shape), clear.reshape(here.shape), share)

    def lower(tail: float) -> float:
        beyond = max(0.0, unknown - float(noise.quantile(1.0 - tail)))
        return max(0.0, known - float(moves.quantile(1.0 - tail)) + beyond)

    def upper(tail: float) -> float:
        z = max(0.0, float(ndtri(1.0 - tail)))
        q = max(0.0, float(chance.quantile(1.0 - tail)))
        shift = Q + 2.0 * z * z * lam
        most = shift + math.sqrt(max(0.0, shift**2 - Q**2 + q**2))
        limit = known - float(moves.quantile(tail)) + math.sqrt(float(p.sum()) * most) + turns
        return max(limit, estimate)

    return lower, upper


def _crossings(curve: Smoothed, g: Tensor, clear: Tensor, share: Tensor) -> float:
    """Return what the mean of |g| may lose in ranges within which the curve crosses the overall mean.

    Of a range whose two neighbours lie clearly on different sides, at distances u and v, a curve that is
    monotone over the three lies between them; with the mean g of the range, the mean of |g| is at most
    (2 u v + g (u - v)) / (u + v), where u is on the side of positive g.
    """
    cells = curve.cells
    if cells is None or cells.exact or not cells.narrow or len(cells.names) != 1 or len(g) < 3:
        return 0.0
    left, mid, right = g[:-2], g[1:-1], g[2:]
    cross = clear[:-2] & clear[2:] & (left * right < 0) & ~cells.single[1:-1, None]
    u = torch.maximum(left, right)
    v = -torch.minimum(left, right)
    most = (2.0 * u * v + mid * (u - v)) / (u + v).clamp_min(1e-300)
    lost = torch.where(cross, (most - mid.abs()).clamp_min(0.0), 0.0)
    return float(share[1:-1] @ lost.mean(dim=1))


def _absolute(gaps: Tensor) -> Tensor:
    return gaps.abs().mean(dim=-1)


def _refuse_grid(measure: GDP) -> None:
    if measure.weighting != "population":
        raise ValueError(
            "'dependence' must have weighting='population' here: the ends of a grid are the "
            f"sample's extremes, and have no target. Got {measure.weighting!r}. Leave 'weighting' out."
        )


def _eipm_interval(
    z: Tensor,
    s: Sensitive,
    measure: EIPM,
    confidence_level: float,
    n_draws: int,
    generator: torch.Generator,
    chance: bool,
    w: Tensor | None,
) -> Interval:
    kernel = measure.kernel_z.bind(z, w)
    bandwidths = bandwidths_of(s, measure.bandwidth_s, measure.range_s, measure._ranges)
    measure = measure._with(kernel_z=kernel, _ranges=measure._ranges or ranges_of(s))  # of all rows
    z, s, w, _, notes = _some_rows(z, s, w, None, _MOST_ROWS_EIPM, generator)
    G, missing = _features(kernel, z)
    curve = Smoothed.of(G, gathered(s, row_weights(s, w), generator), bandwidths, missing)
    estimate = float(measure(z, s, w))
    if measure.root:
        radius = float(_errors(curve, _norm, n_draws, generator).quantile(confidence_level))
        low, high = max(0.0, estimate - radius), estimate + radius
    else:
        # The root of the mean square is itself a norm, over rows and features at once: the same argument on
        # that scale, and the sampling error of the mean square divided by the root.
        length = math.sqrt(max(estimate, 0.0))
        radius = float(_errors(curve, _norm, n_draws, generator, square=True).quantile(confidence_level))
        low, high = max(0.0, length - radius) ** 2, (length + radius) ** 2
    mean, top = (None, None)
    if chance:
        values = _eipm_permuted(s, measure, G, missing, random_orders(len(z), _PERMUTATIONS, generator), w)
        mean, top = float(values.mean()), float(values.quantile(confidence_level))
    return Interval(
        estimate=estimate,
        low=low,
        high=high,
        confidence_level=confidence_level,
        measure="EIPM" if measure.root else "mean squared MMD along s",
        target=f"that of {curve.target}, under this kernel as fixed on this sample",
        method="Gaussian multiplier process of the embedding",
        attributes=s.names,
        n=len(z),
        chance=mean,
        chance_high=top,
        notes=(*notes, *curve.notes()),
    )


def _norm(gaps: Tensor) -> Tensor:
    return gaps.square().sum(dim=-1).sqrt()


def _errors(
    curve: Smoothed,
    size: Callable[[Tensor], Tensor],
    n_draws: int,
    generator: torch.Generator,
    *,
    square: bool = False,
) -> Tensor:
    """Return draws of the bound on the error of the mean of |g|, or of its root mean square.

    With A the points at which the gap is beyond doubt (outside a simultaneous 99 % band of the process), the
    mean of |g| moves with the gap there and no faster than its error elsewhere:

        | sum_A pi_a (|g_a + e*_a| - |g_a|) + (P_n* - P_n) |g| | + sum_{not A} pi_a |e*_a|.

    The root mean square is a norm as a whole, so A is not needed: its error is at most that of e*.
    """
    points, share = curve.points()
    process = curve.at(points)
    groups, here = curve.groups, process.mean
    gaps = size(curve.gaps)
    if square:
        gaps = gaps.square() / math.sqrt(max(float(curve.mass @ gaps.square()), 1e-300))
    gaps = gaps - curve.mass @ gaps
    # What the features leave out of the squared norm of the error, in the mean.
    left = (process.P - 1.0).square() @ groups.sums(groups.w.square() * curve.missing)
    sizes, changes, outer = [], [], []
    for errors, multipliers in process.draws(n_draws, generator, gap=True):
        e = size(errors)  # (a, b)
        sizes.append((e.square() + left[:, None]).sqrt() if bool((left > 0).any()) else e)
        changes.append(size(here[:, None, :] + errors) - size(here)[:, None])
        outer.append(gaps @ multipliers)
    e, zeta = torch.cat(sizes, dim=1) * groups.scale, torch.cat(outer) * groups.scale
    if square:
        return (share @ e.square()).sqrt() + zeta.abs()
    spread = e.square().mean(dim=1).sqrt().clamp_min(1e-300)
    largest = (e / spread[:, None]).amax(dim=0).quantile(_BEYOND_DOUBT)
    clear = (size(here) > largest * spread).to(e)
    signed = (share * clear) @ torch.cat(changes, dim=1) * groups.scale
    return (signed + zeta).abs() + (share * (1.0 - clear)) @ e


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


def _gdp_chance(curve: Smoothed, confidence_level: float, generator: torch.Generator) -> tuple[float, float]:
    """Return mean and quantile of GDP over permutations: one product with the smoother.

    The sums over groups of w_i f_p(i), for a random order p, have the covariance of f times
    diag(sum_i w_i^2) - mass mass' / n. Gaps from the overall mean do not see the second part, and the sums of
    many rows are normal.
    """
    groups, f = curve.groups, curve.f
    n, r = f.shape
    if curve.covariance is not None:  # of groups of rows: the law of their sums, were there no dependence
        size = r * len(groups.sizes)
        root = roots(curve.covariance[1:, :, 1:].reshape(size, size))
        draws = torch.randn((_PERMUTATIONS, size), generator=generator, dtype=torch.float64) @ root
        sums = draws.reshape(_PERMUTATIONS, r, -1).permute(2, 0, 1)
    elif n <= _CHANCE_ROWS_GDP and groups.counts is None:
        orders = random_orders(n, _PERMUTATIONS, generator)
        sums = torch.stack([groups.sums(groups.w[:, None] * f[order]) for order in orders], dim=1)
    else:
        noise = torch.randn((len(groups.sizes), _PERMUTATIONS, r), generator=generator, dtype=torch.float64)
        counts = f.new_ones(n) if groups.counts is None else groups.counts
        around = f - counts @ f / counts.sum()
        root = roots((counts[:, None] * around).mT @ around / (counts.sum() - 1.0))
        sums = groups.sums(groups.w.square()).sqrt()[:, None, None] * (noise @ root)  # (M, B, r)
    gaps = (curve.smoother @ sums.reshape(len(sums), -1)).reshape(sums.shape) - sums.sum(dim=0)
    chance = curve.mass @ gaps.abs().mean(dim=-1) * groups.scale
    return float(chance.mean()), float(chance.quantile(confidence_level))


def _eipm_permuted(
    s: Sensitive, measure: EIPM, G: Tensor, missing: Tensor, orders: Tensor, w: Tensor | None
) -> Tensor:
    """Return EIPM for each permutation: products of the contrasts at no more than 256 anchors."""
    at_most = 256 if measure.anchors is None else min(256, measure.anchors)
    E, share = measure._with(anchors=at_most)._contrasts(s, row_weights(s, w))
    values = []
    for order in orders:
        squared = (E @ G[order]).square().sum(dim=1) + E.square() @ missing[order]
        values.append((squared.sqrt() if measure.root else squared) @ share)
    return torch.stack(values)
