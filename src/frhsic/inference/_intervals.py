"""Confidence intervals for a dependence: what it may be in the population, given these rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from frhsic._checks import ArgumentError
from frhsic.dependence import GDP, HSIC, Dependence, DistanceCovariance, RankGap, ScoreGap
from frhsic.inference._gaps import gap_interval
from frhsic.inference._gdp_intervals import gdp_interval
from frhsic.inference._kernel_intervals import kernel_interval
from frhsic.inference._of_table import check_table_alone, table_interval
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
    check_cells,
    check_sketch_alone,
    find_method,
)
from frhsic.inference._results import Interval
from frhsic.inference._sketch_intervals import sketch_hsic_interval
from frhsic.numerics._threads import one_thread
from frhsic.sketching import HSICSketch
from frhsic.table import ScoreTable

# The interval of each measure: a new measure gets one by a line here.
_OF_ROWS: dict[type[Dependence], Callable[[Observations, Any, IntervalOptions], Interval]] = {
    HSIC: kernel_interval,
    DistanceCovariance: kernel_interval,
    GDP: gdp_interval,
    ScoreGap: gap_interval,
    RankGap: gap_interval,
}


@overload
def confidence_interval(
    scores: HSICSketch | ScoreTable,
    *,
    dependence: Dependence | None = ...,
    confidence_level: float = ...,
    n_draws: int = ...,
    random_state: object = ...,
    chance: bool = ...,
) -> Interval: ...
@overload
def confidence_interval(
    scores: object,
    s: object,
    *,
    dependence: Dependence | None = ...,
    confidence_level: float = ...,
    n_draws: int = ...,
    random_state: object = ...,
    chance: bool = ...,
    sample_weight: object = ...,
    groups: object = ...,
) -> Interval: ...
@one_thread()
def confidence_interval(
    scores: object,
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
    """Return a confidence interval for the dependence of scores on s in the population.

    Parameters
    ----------
    scores : array-like of shape (n,) or (n, d), ScoreTable or HSICSketch
        Scores or a representation, of rows that were not used to train it; or a table of counts, or a sketch,
        of scores and s.
    s : array-like of shape (n,) or (n, q)
        The sensitive columns. Left out for a table or a sketch, as are weights and groups.
    dependence : HSIC, DistanceCovariance, GDP, ScoreGap, RankGap or None, default=None
        None is normalised HSIC with the kernels' default scales. A sketch has its own kernels: pass an HSIC
        without kernels (normalised or not, its root or not), a GDP, a ScoreGap or a RankGap.
    confidence_level : float, default=0.95
    n_draws : int, default=999
        Multiplier draws.
    random_state : None, int or generator, default=None
    chance : bool, default=True
        Also return the mean and the quantile of the estimate under independence (199 permutations of s).
    sample_weight : array-like of shape (n,) or None, default=None
        The target is then that of the weighted law, such as a population from which rows were drawn with
        unequal probabilities; the weights are one over these. Rows of weight zero are left out.
    groups : array of labels of shape (n,) or None, default=None
        Rows of one group (a person, a household) may depend on one another; groups are independent. The
        interval is then that of so many groups, and ``n`` is their number.

    Returns
    -------
    Interval
        With its target: kernels and bandwidths that are rules are fixed as on this sample.

    Notes
    -----
    *HSIC and distance covariance.* The estimate is the unbiased form, whichever the measure asks for. Near
    independence its law is not normal (the first-order term vanishes), and for the same reason the naive
    bootstrap of rows fails there. The cross-covariance operator C itself has no such point: the Gaussian
    multiplier bootstrap gives the quantile r of |C^ - C| with or without independence, and
    |C^| - r <= |C| <= |C^| + r with HSIC = |C|^2. So: where |C^| exceeds 1.5 r, the normal interval on the
    root of the estimate, on which scale its variance depends least on its value; else from zero to
    (|C^| + r)^2. Normalised forms divide by sqrt(HSIC(Z, Z) HSIC(S, S)).

    With weights the effective number of rows, 1 / sum_i w_i^2, takes the place of n. With groups, sums over
    the rows of a group take the place of rows, Student's law that of the normal law, and the estimate leaves
    out all pairs of rows of one group. The interval always holds its estimate, which may be negative.

    *Gaps of one score* (GDP, ScoreGap, RankGap) come from its table: they are sums of w_r |C_ir|, with C_ir
    the covariance of being in cell i of s and of a score up to cut-off r. For any signs g the sum of w_r g_ir
    C_ir is at most the gap. V is its mean over all orders of the rows, of signs that are learned from the
    rows so far and valued on the next one, in closed form. V less a quantile of its error is the lower end,
    and V, or nearly, the estimate: it leaves out most of what chance adds to ``plug_in``, the gap of the rows
    themselves. Where signs change faster along s than so many rows can learn, it is below the gap. With
    normal errors of deviation sigma_ir, E|C^_ir| = sigma_ir h(|C_ir| / sigma_ir) with h(k) = E|k + N(0, 1)|;
    the plug-in and a quantile of its error, through the inverse of h, give the upper end. Below 30 rows of
    the rarer decision both ends are exact binomial ones. Nothing is drawn but a noise whose seed is made of
    the table: ``random_state`` and ``n_draws`` change nothing.

    *GDP of several columns of scores, or gaps with groups*: the mean over s of |g|, g the gap between the
    mean at s (or within its range) and the overall mean. Where the sign of the gap is beyond doubt, its error
    is that of a mean. Elsewhere the sum of |g| is at most the root of that of g^2, which is estimated without
    the part that chance adds. A score is the sum of its parts between 17 cut-offs; its gap is the sum of the
    GDP of the parts, and what it is more on these rows is added to the upper end.

    *A sketch.* The debiased HSIC of all rows, less the error of the features on the stored rows, with the
    standard error of the jackknife over groups of rows.

    For a z of one column and any number of rows HSIC, distance covariance and GDP use all of them. Where the
    kernels have too many features (wide representations), 5,000 random rows are used; the notes say so.
    ``chance`` of many rows, or with weights, is drawn from the limit of the permutation law.

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic.dependence import GDP
    >>> rng = np.random.default_rng(0)
    >>> s, noise = rng.normal(size=(2, 500))
    >>> interval = confidence_interval(s + noise, s, dependence=GDP(), random_state=0, chance=False)
    >>> [round(end, 1) for end in (interval.low, interval.estimate, interval.high)]
    [0.7, 0.8, 0.9]
    """
    options = IntervalOptions.read(confidence_level, n_draws, random_state, chance)
    measure = HSIC(estimator="unbiased", normalized=True) if dependence is None else dependence
    check_cells(measure)
    if isinstance(scores, ScoreTable):
        check_table_alone(s=s, sample_weight=sample_weight, groups=groups)
        return table_interval(scores, measure, options)
    if isinstance(scores, HSICSketch):
        check_sketch_alone(s=s, sample_weight=sample_weight, groups=groups)
        return sketch_hsic_interval(scores, measure, options)
    of_rows = find_method(_OF_ROWS, measure)
    rows = Observations.read(scores, s, sample_weight, groups).drop_zero_weights()
    if bool((rows.z == rows.z[:1]).all()):
        fix = "A constant tells nothing about 's'."
        raise ArgumentError("scores", "vary", "the same row throughout", fix)
    return of_rows(rows, measure, options)
