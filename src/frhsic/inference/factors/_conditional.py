"""Dependence on S with factors held equal: a test, and the curve that is left.

With phi_l(S) features of S and psi_k(f) features of the score, the residuals of both on the factors X,

    r_k = psi_k(f) - E[psi_k(f) | X],        q_l = phi_l(S) - E[phi_l(S) | X],

have products of mean zero under conditional independence, also times any function of X. The test is one of
their means (generalised covariance measure, Shah and Peters 2020; with weights of X, Scheidegger, Hoerrmann
and Buehlmann 2022): the largest of them and a sum of squares, whichever says more, under the Gaussian law of
their covariance. The curve is Robinson's: r_0 regressed on all q_l.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic._text import join_words
from frhsic.data import check_aligned
from frhsic.inference._question import IntervalOptions, Observations, check_one_column
from frhsic.inference._results import Interval
from frhsic.inference.factors._columns import (
    Factors,
    Floats,
    middle_ranks,
    normal_scores,
    polynomials,
    read_factors,
    sensitive_features,
    sum_by_unit,
)
from frhsic.inference.factors._learning import CrossFitted, check_left, cross_fit
from frhsic.inference.factors._results import AdjustedCurve, ConditionalTestResult
from frhsic.numerics._threads import one_thread

_DEGREE: Final = 4  # of the polynomials of s in the test
_SCORES: Final = 3  # of those of the score, beside the score itself
_WEIGHTS: Final = 5  # functions of the factors by which products are weighted
_DRAWS: Final = 4_999
_MOST_DEGREE: Final = 12  # of the curve
_MOST_POINTS: Final = 200
_FEW: Final = 10  # rows at a point of the curve
_MOST_ROWS: Final = 200_000
_MOST_CELLS: Final = 6_000_000  # rows times columns of factors
_FEWEST: Final = 100


@one_thread()
def conditional_independence_test(
    scores: object,
    sensitive_features: object,
    *,
    given: object,
    regressor: Any = None,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> ConditionalTestResult:
    """Test whether a score depends on s beyond what factors explain: income, tenure and the like.

    Parameters
    ----------
    scores : array-like of shape (n,)
    sensitive_features : array-like of shape (n,) or (n, q)
        Several columns are tested jointly.
    given : frame, dict of columns or array of shape (n, p)
        The factors: numbers or labels, with missing values if need be.
    regressor : scikit-learn regressor, optional
        Tried beside ridge regression on smooth features of the factors; None is histogram gradient boosting.
        Whichever is best on rows that took no part is taken.
    random_state : None, int or generator, default=None
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), optional
        Which rows may depend on one another; groups are independent, and are not split between folds.

    Returns
    -------
    ConditionalTestResult

    Notes
    -----
    No valid test of conditional independence has power against every alternative (Shah and Peters 2020). This
    one sees products of four polynomials of the ranks of s with the score and three polynomials of its ranks,
    and of two of them times functions of the factors. Its level rests on the regressions: sqrt(n) times the
    product of their root mean squared errors must be small, for every feature. ``error`` estimates the square
    of it, and the second best learners give a second p-value: ``print`` warns where either speaks against it.

    At most 200,000 random rows are used, and 6,000,000 over the number of columns of factors. These are at
    most 100, with an indicator for each of the 30 commonest labels of a factor.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> income = rng.normal(size=1_000)
    >>> age = income + rng.normal(size=1_000)
    >>> score = income + rng.normal(size=1_000)
    >>> found = conditional_independence_test(score, {"age": age}, given={"income": income}, random_state=0)
    >>> found.pvalue > 0.05
    True
    """
    question = _Question.read(scores, sensitive_features, given, sample_weight, groups, random_state)
    return _test(question, _fit(question, _DEGREE, regressor))


@one_thread()
def adjusted_curve(
    scores: object,
    sensitive_features: object,
    *,
    given: object,
    regressor: Any = None,
    confidence_level: float = 0.95,
    n_draws: int = 4_999,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> AdjustedCurve:
    """Return the score along one column of s with factors held equal, with a band, and the gap that remains.

    Parameters
    ----------
    scores : array-like of shape (n,)
    sensitive_features : array-like of shape (n,)
    given : frame, dict of columns or array of shape (n, p)
        The factors that are held equal.
    regressor : scikit-learn regressor, optional
        As in :func:`conditional_independence_test`.
    confidence_level : float, default=0.95
        That the whole curve lies in its band, and that the gap lies in its interval.
    n_draws : int, default=4999
    random_state : None, int or generator, default=None
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), optional

    Returns
    -------
    AdjustedCurve

    Notes
    -----
    The curve is h in the additive projection score = m(factors) + h(s) + error with E h(S) = 0, of
    polynomials of the ranks of s of degree 2 n^(1/5), at most 12 (Robinson 1988; double machine learning): a
    step or a narrow peak is smoothed. Band and interval hold for large n where the product of the errors of
    both regressions is small against n^(-1/2), and the squared error of that of s, too. Where the dependence
    differs with the factors, h is a mean over them.

    It is a causal effect of s only if the factors hold everything that moves both s and the score, and s
    moves none of the factors: of age neither is likely.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> income = rng.normal(size=2_000)
    >>> age = rng.integers(20, 70, 2_000) + 10.0 * income
    >>> score = income + rng.normal(size=2_000)
    >>> found = adjusted_curve(score, {"age": age}, given={"income": income}, random_state=0)
    >>> found.unadjusted_gap.low > 0.2, found.gap.low
    (True, 0.0)
    """
    options = IntervalOptions.read(confidence_level, n_draws, random_state)
    question = _Question.read(scores, sensitive_features, given, sample_weight, groups, options.generator)
    check_one_column(question.rows.s, "curve")
    degree = min(_MOST_DEGREE, max(_DEGREE, round(2.0 * question.n_units**0.2)))
    fit = _fit(question, degree, regressor)
    return _curve(question, fit, options)


class Residuals(NamedTuple):
    """Features of the score (the score itself first) and then of s, and what the factors leave of them."""

    targets: Floats
    residuals: Floats
    of_score: int
    test: ConditionalTestResult


def find_residuals(scores: object, s: object, given: object, random_state: object) -> Residuals:
    """Return the result of :func:`conditional_independence_test`, and what it is made of."""
    question = _Question.read(scores, s, given, None, None, random_state)
    fit = _fit(question, _DEGREE, None)
    return Residuals(fit.targets, fit.crossed.residuals, fit.of_score, _test(question, fit))


class _Question(NamedTuple):
    """Rows, factors and weights of one question."""

    rows: Observations
    factors: Factors
    w: Floats  # of sum one
    groups: NDArray[np.int64] | None
    seed: int
    notes: tuple[str, ...]

    @classmethod
    def read(
        cls,
        scores: object,
        s: object,
        given: object,
        sample_weight: object,
        groups: object,
        random_state: object,
    ) -> _Question:
        if s is None:
            raise ArgumentError("sensitive_features", "be the sensitive columns", None, "Pass them.")
        check_aligned(
            scores=scores, sensitive_features=s, given=given, sample_weight=sample_weight, groups=groups
        )
        rows = Observations.read(scores, s, sample_weight, groups, min_rows=_FEWEST, one_column=True)
        factors = read_factors(given, len(rows))
        generator = IntervalOptions.read(0.95, 999, random_state).generator
        kept = torch.arange(len(rows)) if rows.w is None else (rows.w > 0).nonzero().squeeze(1)
        notes: tuple[str, ...] = ()
        most = min(_MOST_ROWS, _MOST_CELLS // factors.x.shape[1])
        if len(kept) > most:
            notes = (f"A random subsample of {most:,} of {len(kept):,} rows was used.",)
            kept = kept[torch.randperm(len(kept), generator=generator)[:most]]
        if len(kept) < len(rows):
            rows, factors = rows.take(kept), factors.take(kept.numpy())
        rows = rows.drop_zero_weights(_FEWEST)
        codes = None if rows.groups is None else rows.groups.numpy()
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        return cls(rows, factors, rows.weights.numpy(), codes, seed, notes)

    @property
    def n_units(self) -> int:
        return self.rows.n_units

    def sum_units(self, x: Floats) -> Floats:
        """Return rows summed within groups."""
        return sum_by_unit(x, self.groups, self.n_units)


class _Fit(NamedTuple):
    """Targets and their residuals: the score and its polynomials, then features of each column of s."""

    crossed: CrossFitted
    targets: Floats
    scale: float  # of the score
    of_score: int  # how many are of the score
    places: tuple[slice, ...]  # the features of each column of s


def _fit(question: _Question, degree: int, regressor: Any) -> _Fit:
    rows, w = question.rows, question.w
    f = rows.z[:, 0].numpy()
    centre = np.average(f, weights=w)
    scale = float(np.sqrt(np.average((f - centre) ** 2, weights=w)))
    if not scale > 0:
        raise ArgumentError("scores", "vary", "a constant", "Pass the scores of several people.")
    of_score = np.column_stack(((f - centre) / scale, polynomials(f, w, _SCORES)))
    parts, places, start = [of_score], [], of_score.shape[1]
    for name in rows.s.names:
        parts.append(sensitive_features(rows.s.columns((name,)), w, degree))
        places.append(slice(start, start + parts[-1].shape[1]))
        start = places[-1].stop
    targets = np.hstack(parts)
    leads = (0, *(place.start for place in places))
    crossed = cross_fit(targets, leads, question.factors, w, question.groups, regressor, question.seed)
    check_left(float(crossed.explained[0]), "scores", "them")
    for name, place in zip(rows.s.names, places, strict=True):
        check_left(float(crossed.explained[place].max()), "sensitive_features", f"'{name}'")
    return _Fit(crossed, targets, scale, of_score.shape[1], tuple(places))


def _test(question: _Question, fit: _Fit) -> ConditionalTestResult:
    crossed, s = fit.crossed, [k for place in fit.places for k in range(*place.indices(10**6))[:_DEGREE]]
    if question.rows.s.kinds == ("categorical",):
        s = list(range(fit.places[0].start, fit.places[0].stop))
    rng = np.random.default_rng(question.seed)
    weights = _weights(question.factors, question.w)
    leads = [place.start for place in fit.places]
    pvalues, statistic = [], 0.0
    for residuals in (crossed.residuals, crossed.other):
        pairs = [(j, k, None) for j in range(fit.of_score) for k in s]
        size = [1.0 / (max(j, 1) * (1 + i % _DEGREE)) for j in range(fit.of_score) for i in range(len(s))]
        for v in weights.T:
            for lead in leads:
                for i, k in enumerate(range(lead, lead + 2)):
                    if k in s:
                        pairs.append((0, k, v))
                        size.append(0.5 / (1 + i))
        products = np.column_stack(
            [residuals[:, j] * residuals[:, k] * (1.0 if v is None else v) for j, k, v in pairs]
        )
        found, largest = _pvalue(question, products, np.array(size), rng)
        pvalues.append(found)
        statistic = statistic or largest
    error = question.n_units * crossed.error[0] * max(crossed.error[k] for k in leads)
    lead = max(leads, key=lambda k: crossed.explained[k])
    return ConditionalTestResult(
        pvalue=pvalues[0],
        statistic=statistic,
        attributes=question.rows.s.names,
        factors=question.factors.names,
        explained_score=float(crossed.explained[0]),
        explained_sensitive=float(crossed.explained[lead]),
        learners=(crossed.learners[0], crossed.learners[lead]),
        other_pvalue=pvalues[1],
        error=float(error),
        n=question.n_units,
        notes=question.notes,
    )


def _weights(factors: Factors, w: Floats) -> Floats:
    """Return a few bounded functions of the factors: ranks of them, or of their leading components."""
    x = factors.x
    if x.shape[1] > _WEIGHTS:
        x = normal_scores(x)
        x = x - x.mean(axis=0)
        x = x @ np.linalg.svd(x.T @ x)[0][:, :_WEIGHTS]
    return np.column_stack([np.sqrt(12.0) * (middle_ranks(column, w) - 0.5) for column in x.T])


def _pvalue(
    question: _Question, products: Floats, size: Floats, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the p-value of the largest and of the sum of squares together, and the largest."""
    weighted = question.w[:, None] * products
    mean = weighted.sum(axis=0)
    units = question.sum_units(weighted - question.w[:, None] * mean)
    covariance = units.T @ units
    deviation = np.sqrt(np.maximum(covariance.diagonal(), 1e-300))
    t = mean / deviation
    values, vectors = np.linalg.eigh(covariance / deviation[:, None] / deviation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    null = rng.normal(size=(_DRAWS, len(t))) @ root.T

    def summarize(x: Floats) -> Floats:
        return np.column_stack((np.abs(x).max(axis=1), (x**2) @ size))

    observed, drawn = summarize(t[None])[0], summarize(null)
    single = (1.0 + (drawn >= observed).sum(axis=0)) / (_DRAWS + 1.0)
    # The smaller of two p-values, under the law that the smaller of two has.
    order = (-drawn).argsort(axis=0).argsort(axis=0)
    smaller = (order.min(axis=1) + 1.0) / (_DRAWS + 1.0)
    return float((1.0 + (smaller <= single.min()).sum()) / (_DRAWS + 1.0)), float(observed[0])


def _merge(
    values: Floats, mass: Floats, counts: NDArray[np.int64], most: int
) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Return the values at equal steps of the mass, the mass and rows nearest to each, and their places."""
    levels = (np.arange(most) + 0.5) / most
    chosen = np.unique(np.searchsorted(np.cumsum(mass), levels).clip(max=len(values) - 1))
    nearest = np.searchsorted(0.5 * (values[chosen][1:] + values[chosen][:-1]), values)
    merged = np.bincount(nearest, weights=mass).astype(np.float64)
    return values[chosen], merged, np.bincount(nearest, weights=counts).astype(np.int64), chosen


def _curve(question: _Question, fit: _Fit, options: IntervalOptions) -> AdjustedCurve:
    rows, w, (place,) = question.rows, question.w, fit.places
    x = rows.s.values[:, 0].numpy()
    values, first, code = np.unique(x, return_index=True, return_inverse=True)
    mass = np.bincount(code, weights=w).astype(np.float64)
    counts = np.bincount(code).astype(np.int64)
    if len(values) > _MOST_POINTS:
        values, mass, counts, chosen = _merge(values, mass, counts, _MOST_POINTS)
        first = first[chosen]
    features = fit.targets[:, place]
    at = features[first]
    rng = np.random.default_rng(question.seed + 1)
    seen = {}
    for name, u, v in (
        ("unadjusted", features, fit.targets[:, 0]),
        ("adjusted", fit.crossed.residuals[:, place], fit.crossed.residuals[:, 0]),
    ):
        root = np.sqrt(w)[:, None]
        solved = np.linalg.pinv(root * u, rcond=1e-3)
        beta = fit.scale * (solved @ (root[:, 0] * v))
        inverse = solved @ solved.T
        scores = question.sum_units((w * (fit.scale * v - u @ beta))[:, None] * u) @ inverse
        stretch = question.n_units / max(question.n_units - u.shape[1] - 1.0, 1.0)
        covariance = stretch * scores.T @ scores
        eigen, vectors = np.linalg.eigh(covariance)
        drawn = (rng.normal(size=(options.n_draws, len(eigen))) * np.sqrt(np.maximum(eigen, 0.0))) @ vectors.T
        h, errors = at @ beta, drawn @ at.T  # (points,), (draws, points)
        h, errors = h - mass @ h, errors - (errors @ mass)[:, None]
        deviation = np.maximum(errors.std(axis=0), 1e-300)
        reach = np.quantile((np.abs(errors) / deviation).max(axis=1), options.confidence_level) * deviation
        off = float(np.quantile(np.abs(errors) @ mass, options.confidence_level))
        gap = float(mass @ np.abs(h))
        seen[name] = (h, reach, gap, max(gap - off, 0.0), gap + off)
    target = "the additive projection on factors and polynomials of the ranks of s"
    if rows.s.kinds[0] == "categorical":
        target = "the additive projection on factors and categories of s"

    def make_interval(name: str, what: str) -> Interval:
        _, _, gap, low, high = seen[name]
        method = "Gaussian law of the coefficients"
        level, n = options.confidence_level, question.n_units
        return Interval(gap, low, high, level, what, target, method, rows.s.names, n)

    h, reach, *_ = seen["adjusted"]
    before = seen["unadjusted"][0]
    if rows.s.kinds[0] == "continuous" and mass[counts >= _FEW].sum() < 0.5:  # a point would be one row
        most = max(4, len(rows) // (2 * _FEW))
        values, mass, counts, chosen = _merge(values, mass, counts, most)
        h, before = (x[chosen] - mass @ x[chosen] for x in (h, before))
        reach = reach[chosen]
    factors = question.factors.names
    return AdjustedCurve(
        points=tuple(values.tolist()),
        mean=tuple(h.tolist()),
        low=tuple((h - reach).tolist()),
        high=tuple((h + reach).tolist()),
        unadjusted=tuple(before.tolist()),
        mass=tuple(mass.tolist()),
        gap=make_interval("adjusted", f"Mean gap at equal {join_words(factors)}"),
        unadjusted_gap=make_interval("unadjusted", "Mean gap"),
        test=_test(question, fit),
        confidence_level=options.confidence_level,
        factors=factors,
        attributes=rows.s.names,
        n=question.n_units,
        target=target,
        notes=question.notes,
        counts=tuple(counts.tolist()),
    )
