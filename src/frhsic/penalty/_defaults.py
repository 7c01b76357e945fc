"""Penalties where none is chosen: of an estimator, of a budget, of a limit, and of boosting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frhsic.data import Kind, Sensitive
from frhsic.dependence import HSIC
from frhsic.kernels import Delta, Energy, Gaussian, Kernel, Linear, OnRanks
from frhsic.numerics._centering import Estimator
from frhsic.penalty._penalty import On, Penalty, PenaltySum, sum_terms

# The penalty of a limit: the width, in ranks, within which values of S are alike, and the factor of means.
_RANKS: Final = 0.1
_MEANS: Final = 8.0


def default_penalty(
    estimator: Estimator = "unbiased", columns: Sequence[str | tuple[str, ...]] | None = None
) -> PenaltySum:
    """Return the penalty of the estimators when none is chosen.

    HSIC with a linear kernel on the prediction (its conditional mean along S) plus HSIC with a scale-free
    Gaussian kernel on the representation (everything else, at any scale of Z). The first is biased: without
    its diagonal a linear kernel has no lower bound, and training would inflate the logits. The second is
    unbiased where that is possible (it takes no weights). The estimators pass the names of several sensitive
    columns as ``columns``: a product kernel over many columns sees less of each of them.
    """
    mean = HSIC(Linear())
    rest = HSIC(Gaussian("scale-free"), estimator=estimator)
    return Penalty(mean, on="prediction", columns=columns) + Penalty(rest, columns=columns)


def budget_penalty(
    estimator: Estimator = "unbiased",
    columns: Sequence[str | tuple[str, ...]] | None = None,
    *,
    classes: bool,
) -> Penalty:
    """Return what a budget bounds when no penalty is chosen: normalised HSIC of the score, debiased.

    Of the probabilities where there are ``classes``, of the prediction of a regression otherwise. A score is
    one number: no stretching hides what it depends on, as it would in one of many columns of Z.
    """
    measure = HSIC(Gaussian("scale-free"), estimator=estimator, normalized=True)
    return Penalty(measure, on="probability" if classes else "prediction", columns=columns)


def limit_penalty(s: Sensitive, *, weighted: bool, classes: bool) -> PenaltySum:
    """Return what training lowers to keep a limit when no penalty is chosen: means, and the Cramer distance.

    E_S of the integral of (F(t | S) - F(t))^2, with F the distribution function of the score, is HSIC with
    the energy kernel on the score and 1{s = s'} / P(s) on S. In the place of the latter stands a Gaussian
    kernel on ranks of S, ten to the whole, which has less noise in a batch. Beside it stands HSIC with a
    linear kernel, of means alone: most of a gap is one of means, and its gradient has less noise still. They
    were chosen among sixteen on development data: ``benchmarks penalties``.
    """
    on: On = "probability" if classes else "prediction"
    # No weighted unbiased estimator is derived, and a prediction has no bound.
    estimator: Estimator = "biased" if weighted or not classes else "unbiased"
    pairs = []
    for columns, kernel_s in _on_ranks(s):
        for factor, measure in (
            (_MEANS, HSIC(Linear(), kernel_s)),
            (1.0, HSIC(Energy(), kernel_s, estimator=estimator)),
        ):
            pairs.append((factor, Penalty(measure, on=on, columns=columns)))
    return sum_terms(pairs)


def score_penalty(s: Sensitive, bandwidth: float, *, classes: bool) -> PenaltySum:
    """Return HSIC of the score over all rows: what boosting lowers where no penalty is chosen.

    A Gaussian kernel on the score sees decisions as well as means; its bandwidth is that of a model without
    a penalty, so that a score that shrinks has less of it.
    """
    on: On = "probability" if classes else "prediction"
    measures = [(columns, HSIC(Gaussian(bandwidth), kernel_s)) for columns, kernel_s in _on_ranks(s)]
    return sum_terms([(1.0, Penalty(measure, on=on, columns=columns)) for columns, measure in measures])


def _on_ranks(s: Sensitive) -> list[tuple[list[str] | None, Kernel]]:
    """Return each column of S with a kernel that no tail and no monotone transform changes."""
    kernels: dict[Kind, Kernel] = {"continuous": OnRanks(Gaussian(_RANKS)), "categorical": Delta()}
    pairs = zip(s.names, s.kinds, strict=True)
    return [(None if len(s.names) == 1 else [name], kernels[kind]) for name, kind in pairs]
