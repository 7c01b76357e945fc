"""A test whose positive answer supports independence: the dependence is below a tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from scipy.special import ndtr, stdtr

from frhsic._checks import ArgumentError
from frhsic.data import to_generator
from frhsic.dependence import GDP, HSIC, Dependence, DistanceCovariance, RankGap, ScoreGap
from frhsic.inference._embedding import Embedding, as_hsic, embedding
from frhsic.inference._gaps import gaps_of, has_gaps
from frhsic.inference._gdp_intervals import gdp_curve, gdp_tails
from frhsic.inference._kernel_intervals import group_notes, kernel_words, root_of
from frhsic.inference._of_table import check_table_alone, table_embedding, table_gaps
from frhsic.inference._question import Observations, check_cells, check_one_score, find_method
from frhsic.inference._results import EquivalenceResult
from frhsic.inference._table import TableEmbedding
from frhsic.numerics._threads import one_thread
from frhsic.table import ScoreTable


@one_thread()
def equivalence_test(
    scores: object,
    s: object = None,
    *,
    tolerance: float,
    dependence: Dependence | None = None,
    alpha: float = 0.05,
    n_draws: int = 9_999,
    random_state: object = None,
    groups: object = None,
) -> EquivalenceResult:
    """Test whether the dependence of scores on s is *below* a tolerance.

    The null hypothesis is that it is not: the only test here whose positive answer supports independence, up
    to the tolerance. For large n, P(p <= alpha) is at most alpha when the dependence in the population is at
    least the tolerance.

    Parameters
    ----------
    scores : array or frame of shape (n,) or (n, d), or ScoreTable
        A score or a representation, of rows that were not used to train it; or a table of counts of scores
        and s, which is then left out.
    s : array or frame of shape (n,) or (n, q)
        The sensitive columns.
    tolerance : float
        In the units of the measure: debiased normalised HSIC by default, the unit of the score for GDP.
    dependence : HSIC, DistanceCovariance, GDP, ScoreGap, RankGap or None, default=None
        None is normalised HSIC.
    alpha : float, default=0.05
        The level of the test; ``upper`` is the upper confidence limit at 1 - alpha.
    n_draws : int, default=9999
        Draws of the law of the error.
    random_state : int, generator or None
    groups : array of labels of shape (n,) or None, default=None
        Rows of one group (a person, a household) may depend on one another; groups are independent, and ``n``
        is then their number.

    Returns
    -------
    EquivalenceResult

    Notes
    -----
    *HSIC.* With C the cross-covariance, HSIC = |C|^2, the estimate C^ is C plus an error that is normal for
    large n, with eigenvalues lambda_k / n of its covariance. Among all C of the length that the tolerance
    allows, |C^| is most often small when C lies along the first eigenvector. So

        p = P( (|C| + sqrt(lambda_1 / n) x_1)^2 + sum_{k > 1} lambda_k x_k^2 / n <= HSIC_b ),

    x_k standard normal, |C|^2 = tolerance x sqrt(HSIC(Z, Z) HSIC(S, S)), and never less than the p-value of
    the normal law of the unbiased form, which also holds the error of the normaliser. The same law at every
    distance from independence: no test of it comes first. An HSIC_b below what independence gives on average
    counts as that average, so that no lucky draw shows a tolerance for which the rows are too few. Where |C|
    is larger than |C^|, lambda_1 is taken times |C| / |C^|: of a dependence that sits in a small group, the
    sample that has few rows of it shows a small |C^| and a small variance at once.

    *GDP, ScoreGap and RankGap.* p is the smallest alpha at which the upper confidence limit, as in
    :func:`confidence_interval`, is below the tolerance. ``target`` says for which curves it holds.

    Examples
    --------
    >>> import numpy as np
    >>> score, age = np.random.default_rng(0).normal(size=(2, 2_000))
    >>> equivalence_test(score, age, tolerance=0.02, random_state=0).below
    True
    """
    measure = HSIC(estimator="unbiased", normalized=True) if dependence is None else dependence
    check_cells(measure)
    if not 0.0 < alpha < 1.0:
        raise ArgumentError("alpha", "lie between 0 and 1", alpha, "Take 0.05.")
    if not 0 < tolerance < float("inf"):
        fix = "No data can show that a dependence is zero: say how much of it is too little to matter."
        raise ArgumentError("tolerance", "be a positive number", repr(tolerance), fix)
    if n_draws < 99:
        raise ArgumentError("n_draws", "be at least 99", n_draws, "Leave it out for 9,999.")
    method = find_method(_METHODS, measure)
    if isinstance(scores, ScoreTable):
        check_table_alone(s=s, groups=groups)
        if isinstance(measure, GDP | ScoreGap | RankGap):
            return table_gaps(scores, measure).below(measure, tolerance, alpha)
        assert isinstance(measure, HSIC | DistanceCovariance)  # noqa: S101 - by ``find_method``
        found, hsic = table_embedding(scores, measure)
        names = tuple(axis.name for axis in scores.s)
        asked = _Question(tolerance, alpha, n_draws, to_generator(random_state))
        return _test_embedding(found, measure, hsic, names, asked)
    rows = Observations.read(scores, s, groups=groups).drop_zero_weights()
    return method(rows, measure, _Question(tolerance, alpha, n_draws, to_generator(random_state)))


class _Question(NamedTuple):
    tolerance: float
    alpha: float
    n_draws: int
    generator: torch.Generator


def _test_hsic(
    rows: Observations, measure: HSIC | DistanceCovariance, question: _Question
) -> EquivalenceResult:
    hsic = as_hsic(measure, rows.s)
    found = embedding(rows.z, rows.s, hsic, question.generator, groups=rows.groups)
    return _test_embedding(found, measure, hsic, rows.s.names, question)


def _test_embedding(
    found: Embedding | TableEmbedding,
    measure: HSIC | DistanceCovariance,
    hsic: HSIC,
    names: tuple[str, ...],
    question: _Question,
) -> EquivalenceResult:
    tolerance, alpha, n_draws, generator = question
    n, size, se = len(found), found.size(hsic.normalized), found.standard_error(hsic.normalized)
    estimate = found.unbiased()[0] / size
    # Less than independence gives on average is luck, and luck must not show a tolerance that n cannot.
    chance = (float(found.eigenvalues.sum()) + found.rest) / n
    observed = max(found.length**2, chance)
    x = torch.randn((n_draws, len(found.eigenvalues)), generator=generator, dtype=torch.float64)
    along = x[:, 0] * (found.eigenvalues[0] / n).sqrt()
    across = (x[:, 1:].square() @ found.eigenvalues[1:] + found.rest) / n

    def pvalue(value: float) -> float:
        """Return p for a tolerance on the scale of the squared form."""
        length = math.sqrt(value * size)
        # Of a dependence in a small group, |C^| and the variance of |C^| both grow with the rows that happen
        # to be in it, as count and variance of a Poisson law do: the variance is that at the tolerance.
        wide = math.sqrt(max(1.0, length / math.sqrt(observed)))
        draws = (length + wide * along).square() + across
        worst = (1.0 + float((draws <= observed).sum())) / (n_draws + 1.0)
        if se <= 0:
            return worst
        distance = (max(estimate, 0.0) - value) / se
        return max(worst, float(ndtr(distance) if found.groups is None else stdtr(found.units - 1, distance)))

    low, high = 0.0, 1.0
    while pvalue(high) > alpha:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if pvalue(middle) > alpha else (low, middle)
    return EquivalenceResult(
        estimate=root_of(estimate) if hsic.root else estimate,
        tolerance=tolerance,
        pvalue=pvalue(tolerance**2 if hsic.root else tolerance),
        upper=root_of(high) if hsic.root else high,
        alpha=alpha,
        measure=kernel_words(measure),
        target="the population's value under these kernels, as fixed on this sample",
        method="normal law of the embedding, in its worst direction",
        attributes=names,
        n=found.units,
        notes=(*found.notes, *group_notes(found)),
    )


def _test_gdp(rows: Observations, measure: GDP, question: _Question) -> EquivalenceResult:
    if has_gaps(rows):
        return gaps_of(rows, measure).below(measure, question.tolerance, question.alpha)
    measure, curve = gdp_curve(rows, measure)
    upper = gdp_tails(curve, question.n_draws, question.generator).upper
    return _from_limits(
        rows,
        question,
        upper,
        estimate=float(measure(rows.z, rows.s)),
        measure="GDP",
        target=curve.target_of_gdp,
        method="Gaussian multiplier process of the curve",
        notes=curve.notes(),
    )


def _test_gap(rows: Observations, measure: ScoreGap | RankGap, question: _Question) -> EquivalenceResult:
    check_one_score(rows, "the gap of a score")
    return gaps_of(rows, measure).below(measure, question.tolerance, question.alpha)


def _from_limits(
    rows: Observations, question: _Question, upper: Callable[[float], float], **about: Any
) -> EquivalenceResult:
    """Return the result of a test that asks whether an upper limit is below the tolerance."""
    return EquivalenceResult(
        tolerance=question.tolerance,
        pvalue=_smallest_tail(upper, question.tolerance, question.n_draws),
        upper=upper(question.alpha),
        alpha=question.alpha,
        attributes=rows.s.names,
        n=rows.n_units,
        **about,
    )


def _smallest_tail(upper: Callable[[float], float], tolerance: float, n_draws: int) -> float:
    """Return the smallest tail at which the upper limit is below the tolerance: the p-value."""
    low, high = 1.0 / (n_draws + 1.0), 1.0 - 1.0 / (n_draws + 1.0)
    if upper(high) >= tolerance:
        return 1.0
    if upper(low) < tolerance:
        return low
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if upper(middle) < tolerance else (middle, high)
    return high


# The test of each measure: a new measure gets one by a line here.
_METHODS: dict[type[Dependence], Callable[[Observations, Any, _Question], EquivalenceResult]] = {
    HSIC: _test_hsic,
    DistanceCovariance: _test_hsic,
    GDP: _test_gdp,
    ScoreGap: _test_gap,
    RankGap: _test_gap,
}
