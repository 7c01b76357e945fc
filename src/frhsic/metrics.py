"""Metrics for scorers: how much predictions depend on a sensitive attribute, as one float; lower is better.

All are called as ``metric(y_true, y_pred, *, sensitive_features, sample_weight=None, given=None, ...)``, so
that ``make_scorer(metric, greater_is_better=False)``, ``cross_validate`` and fairlearn's ``MetricFrame`` take
them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import check_aligned, to_generator, to_sensitive, to_weights
from frhsic.dependence import EIPM, GDP, HSIC, Dependence, DistanceCovariance, KernelHGR, ScoreGap
from frhsic.inference import MIN_LABEL_ROWS, rows_by_label
from frhsic.numerics._centering import Estimator

__all__ = [
    "distance_correlation",
    "eipm",
    "generalized_demographic_parity",
    "hsic",
    "kernel_hgr",
    "normalized_hsic",
    "score_gap",
]

Kinds = str | Mapping[str, str] | None

# Rows that a metric takes unless told otherwise: 0.4 to 1.6 s on one core, and below 1 GB.
_PAIRS, _CUBES = 10_000, 2_000
# Above, labels are taken for numbers that came as text.
_MOST_LABELS = 100


def generalized_demographic_parity(
    y_true: object,  # noqa: ARG001
    y_pred: object,
    *,
    sensitive_features: object,
    sample_weight: object = None,
    given: object = None,
    kinds: Kinds = None,
) -> float:
    """Return the mean over S of |E[prediction | S] - E[prediction]|, in the unit of the prediction.

    Parameters
    ----------
    y_true : object
        Not read: scorers pass it. For notions that look at the outcome see ``given`` and ``sample_weight``.
    y_pred : array-like of shape (n,) or (n, d)
        Probabilities, scores, numbers, decisions, ``predict_proba`` or a representation. Text labels become
        0 and 1, or a column for each when there are more than two.
    sensitive_features : array-like of shape (n,) or (n, q)
        Numbers are continuous (integers too), text, booleans and categories are categorical.
    sample_weight : array-like of shape (n,), optional
        Non-negative; rows of weight zero are left out. ``y_true == 1`` is equal opportunity.
    given : array-like of shape (n,), optional
        The metric within each of these labels, averaged by their shares (labels with fewer than 8 rows are
        left out). ``given=y_true`` is equalized odds.
    kinds : "continuous", "categorical" or dict of these by column name, optional
        Overrides the kinds of the sensitive columns.

    Returns
    -------
    float
        Zero when the mean prediction is the same at every S. A sample gives more than zero by chance;
        :func:`frhsic.inference.confidence_interval` says how much.

    Notes
    -----
    Means are those at each value of S, or within ranges of equally many rows; time n log n. See
    :class:`frhsic.GDP`.

    Examples
    --------
    >>> age = list(range(18, 91))
    >>> u_shape = [((a - 54) / 36) ** 2 for a in age]
    >>> round(generalized_demographic_parity(None, u_shape, sensitive_features=age), 2)
    0.26
    """
    return _evaluate(GDP(), y_pred, sensitive_features, sample_weight, given, kinds)


def score_gap(
    y_true: object,  # noqa: ARG001
    y_pred: object,
    *,
    sensitive_features: object,
    sample_weight: object = None,
    given: object = None,
    cutoff: float | Literal["worst"] | None = None,
    kinds: Kinds = None,
) -> float:
    """Return the mean over S of the distance between the predictions at S and all predictions.

    In the unit of the prediction (Wasserstein-1): the mean gap of decisions, added up over all cut-offs.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, given, kinds
        As in :func:`generalized_demographic_parity`.
    cutoff : float, "worst" or None, default=None
        A number takes the decision prediction > cutoff alone, "worst" the cut-off with the largest gap: both
        are shares of rows. See :class:`frhsic.dependence.ScoreGap`.

    Returns
    -------
    float
        Zero when predictions have the same law at every S. A sample gives more than zero by chance.

    Examples
    --------
    >>> age = [20, 20, 30, 30]
    >>> scores = [0.0, 1.0, 0.25, 0.75]  # equal means
    >>> score_gap(None, scores, sensitive_features=age, kinds="categorical")
    0.125
    """
    measure = ScoreGap(cutoff=cutoff)
    return _evaluate(measure, y_pred, sensitive_features, sample_weight, given, kinds)


def hsic(
    y_true: object,  # noqa: ARG001
    y_pred: object,
    *,
    sensitive_features: object,
    sample_weight: object = None,
    given: object = None,
    estimator: Estimator = "unbiased",
    kinds: Kinds = None,
    max_rows: int | None = _PAIRS,
    random_state: object = 0,
) -> float:
    """Return HSIC: the squared distance between the law of (prediction, S) and the product of its marginals.

    It sees every kind of dependence, also of the spread of the prediction on S. Kernels are Gaussian with the
    median distance as bandwidth, so numbers on different data are not on one scale: :func:`normalized_hsic`.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, given, kinds
        As in :func:`generalized_demographic_parity`. Weights that differ need ``estimator="biased"``.
    estimator : {"unbiased", "biased"}, default="unbiased"
        Unbiased: zero on average under independence, and negative at times by chance. Biased: never negative,
        but above zero under independence by a term of order 1 / n.
    max_rows : int or None, default=10,000
        More rows (of each label of ``given``) are represented by so many random ones; None takes all, in
        quadratic time.
    random_state : int or generator, default=0
        Chooses those rows. Fixed, so that the same predictions have the same value.

    Returns
    -------
    float

    Examples
    --------
    >>> age = list(range(18, 91))
    >>> round(hsic(None, age, sensitive_features=age), 2)
    0.1
    """
    measure = HSIC(estimator=estimator)
    return _evaluate(measure, y_pred, sensitive_features, sample_weight, given, kinds, max_rows, random_state)


def normalized_hsic(
    y_true: object,  # noqa: ARG001
    y_pred: object,
    *,
    sensitive_features: object,
    sample_weight: object = None,
    given: object = None,
    estimator: Estimator = "unbiased",
    kinds: Kinds = None,
    max_rows: int | None = _PAIRS,
    random_state: object = 0,
) -> float:
    """Return HSIC(prediction, S) / sqrt(HSIC(prediction, prediction) HSIC(S, S)): 0 to 1 but for chance.

    The parameters are those of :func:`hsic`.

    Examples
    --------
    >>> age = list(range(18, 91))
    >>> u_shape = [(a - 54) ** 2 for a in age]
    >>> [round(normalized_hsic(None, y, sensitive_features=age), 2) for y in (age, u_shape)]
    [1.0, 0.3]
    """
    measure = HSIC(estimator=estimator, normalized=True)
    return _evaluate(measure, y_pred, sensitive_features, sample_weight, given, kinds, max_rows, random_state)


def eipm(
    y_true: object,  # noqa: ARG001
    y_pred: object,
    *,
    sensitive_features: object,
    sample_weight: object = None,
    given: object = None,
    bandwidth_s: float = 0.5,
    kinds: Kinds = None,
    max_rows: int | None = _CUBES,
    random_state: object = 0,
) -> float:
    """Return the mean over S of the discrepancy (MMD) between the law of the prediction at S and overall.

    The metric of FREM. The parameters are those of :func:`generalized_demographic_parity`, with a wider
    smoothing along S, and ``max_rows`` and ``random_state`` of :func:`hsic`. All rows take cubic time.

    Examples
    --------
    >>> age = list(range(18, 91))
    >>> [round(eipm(None, age, sensitive_features=age, bandwidth_s=h), 2) for h in (0.5, 0.1)]
    [0.14, 0.56]
    """
    measure = EIPM(bandwidth_s=bandwidth_s)
    return _evaluate(measure, y_pred, sensitive_features, sample_weight, given, kinds, max_rows, random_state)


def distance_correlation(
    y_true: object,  # noqa: ARG001
    y_pred: object,
    *,
    sensitive_features: object,
    sample_weight: object = None,
    given: object = None,
    estimator: Estimator = "unbiased",
    kinds: Kinds = None,
    max_rows: int | None = _PAIRS,
    random_state: object = 0,
) -> float:
    """Return the distance correlation of prediction and S, 0 to 1 but for chance; no bandwidth to choose.

    The root (with its sign) of the squared form, which is the one that ``estimator="unbiased"`` makes zero on
    average under independence. The parameters are those of :func:`hsic`; sensitive columns of one kind.

    Examples
    --------
    >>> age = list(range(18, 91))
    >>> u_shape = [(a - 54) ** 2 for a in age]
    >>> [round(distance_correlation(None, y, sensitive_features=age), 2) for y in (age, u_shape)]
    [1.0, 0.46]
    """
    measure = DistanceCovariance(normalized=True, root=True, estimator=estimator)
    return _evaluate(measure, y_pred, sensitive_features, sample_weight, given, kinds, max_rows, random_state)


def kernel_hgr(
    y_true: object,  # noqa: ARG001
    y_pred: object,
    *,
    sensitive_features: object,
    sample_weight: object = None,
    given: object = None,
    ridge: float = 0.01,
    kinds: Kinds = None,
    max_rows: int | None = _CUBES,
    random_state: object = 0,
) -> float:
    """Return the largest correlation of a function of the prediction with one of S, 0 to 1.

    Both functions come from a regularised kernel space. A smaller ``ridge`` allows rougher functions, which
    find more correlation by chance: compare values at one n and one ridge. The other parameters are those of
    :func:`hsic`. All rows take cubic time.

    Examples
    --------
    >>> age = list(range(18, 91))
    >>> u_shape = [(a - 54) ** 2 for a in age]
    >>> round(kernel_hgr(None, u_shape, sensitive_features=age), 1)
    0.9
    """
    measure = KernelHGR(ridge, ridge)
    return _evaluate(measure, y_pred, sensitive_features, sample_weight, given, kinds, max_rows, random_state)


def _evaluate(
    measure: Dependence,
    y_pred: object,
    sensitive_features: object,
    sample_weight: object,
    given: object,
    kinds: Kinds,
    max_rows: int | None = None,
    random_state: object = 0,
) -> float:
    """Return the measure on the rows that count: all, or the mean over the labels of ``given``."""
    check_aligned(
        y_pred=y_pred, sensitive_features=sensitive_features, sample_weight=sample_weight, given=given
    )
    z = _numbers(y_pred)
    n = len(z)
    s = to_sensitive(sensitive_features, kinds=kinds, n_rows=n, rows_of="y_pred")
    w = to_weights(sample_weight, n_rows=n, rows_of="y_pred")
    present = torch.ones(n, dtype=torch.bool) if w is None else w > 0
    if w is not None and len(w[present].unique()) == 1:
        w = None  # equal weights are none
    debiased = isinstance(measure, HSIC | DistanceCovariance) and measure.estimator == "unbiased"
    if w is not None and debiased:
        must = "be equal, or zero, in all rows for estimator='unbiased': no weighted form of it is derived"
        fix = "Pass estimator='biased'."
        raise ArgumentError("sample_weight", must, "weights that differ", fix)
    most = _check_max_rows(max_rows)
    generator = to_generator(random_state)
    parts = [present.nonzero().squeeze(1)]
    if given is not None:
        parts, _ = rows_by_label(given, present, rows_of="y_pred")
    total, mass = 0.0, 0.0
    for rows in parts:
        share = float(len(rows)) if w is None else float(w[rows].sum())
        if most is not None and len(rows) > most:
            rows = rows[torch.randperm(len(rows), generator=generator)[:most]]
        total += share * float(measure(z[rows], s[rows], None if w is None else w[rows]))
        mass += share
    return total / mass


def _numbers(y_pred: object) -> Tensor:
    """Return predictions as columns of numbers; labels become indicators."""
    read = to_sensitive(y_pred, name="y_pred", min_rows=4, allow_constant=True, numeric_labels=True)
    if "categorical" not in read.kinds:
        return read.values
    columns = []
    for column, labels in zip(read.values.T, read.categories, strict=True):
        if labels is None or len(labels) <= 2:
            columns.append(column[:, None])
            continue
        if len(labels) > _MOST_LABELS:
            must = f"hold numbers, or at most {_MOST_LABELS} different labels"
            fix = "Convert numbers that came as text first."
            raise ArgumentError("y_pred", must, f"{len(labels)} labels", fix)
        columns.append(torch.nn.functional.one_hot(column.long(), len(labels)).to(column))
    return torch.cat(columns, dim=1)


def _check_max_rows(max_rows: object) -> int | None:
    if max_rows is None:
        return None
    if isinstance(max_rows, bool) or not isinstance(max_rows, Integral) or int(max_rows) < MIN_LABEL_ROWS:
        must = f"be an integer of at least {MIN_LABEL_ROWS}, or None"
        raise ArgumentError("max_rows", must, repr(max_rows), "Leave it out, or pass None for all rows.")
    return int(max_rows)
