"""Tests of independence: by permutation, by a gamma law, given labels, with weights, of groups of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import check_aligned, to_generator
from frhsic.dependence import HSIC, Dependence
from frhsic.inference import _permutation as permutation
from frhsic.inference._bootstrap import WILD_ROWS, cluster_values, permuted_means, wild_values
from frhsic.inference._embedding import biased_hsic
from frhsic.inference._gamma import gamma_test
from frhsic.inference._moments import RANK_Z
from frhsic.inference._of_table import check_table_alone, table_test
from frhsic.inference._question import (
    MIN_GROUPS,
    Observations,
    check_cells,
    check_permutations,
    check_sketch_alone,
)
from frhsic.inference._results import TestResult
from frhsic.inference._sketch_tests import sketch_test
from frhsic.inference._strata import MIN_TEST_ROWS, Design, make_design
from frhsic.inference._table import has_table, rng_of, table_of
from frhsic.numerics._threads import one_thread
from frhsic.sketching import HSICSketch
from frhsic.table import ScoreTable, independence

NullLaw = Literal["permutation", "gamma"]

# Above, the default test draws the limit of the permutation law on thin factors instead of permuting rows.
MANY_ROWS = 5_000
# A bootstrap that spreads less than so much of what permutations do is not trusted alone.
_SPREAD = 0.7
# Above, the default test sees several columns of z through features: all pairs would take minutes.
WIDE_ROWS = 100


@overload
def independence_test(
    scores: HSICSketch | ScoreTable,
    *,
    method: NullLaw = ...,
    given: object = ...,
    n_permutations: int = ...,
    random_state: object = ...,
) -> TestResult: ...
@overload
def independence_test(
    scores: object,
    s: object,
    *,
    dependence: Dependence | None = ...,
    method: NullLaw = ...,
    given: object = ...,
    n_permutations: int = ...,
    random_state: object = ...,
    sample_weight: object = ...,
    weights_of_s: bool | None = ...,
    groups: object = ...,
    each: Literal[False] = ...,
) -> TestResult: ...
@overload
def independence_test(
    scores: object,
    s: object,
    *,
    dependence: Dependence | None = ...,
    method: NullLaw = ...,
    given: object = ...,
    n_permutations: int = ...,
    random_state: object = ...,
    sample_weight: object = ...,
    weights_of_s: bool | None = ...,
    groups: object = ...,
    each: Literal[True],
) -> tuple[TestResult, ...]: ...
@one_thread()
def independence_test(
    scores: object,
    s: object = None,
    *,
    dependence: Dependence | None = None,
    method: NullLaw = "permutation",
    given: object = None,
    n_permutations: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    weights_of_s: bool | None = None,
    groups: object = None,
    each: bool = False,
) -> TestResult | tuple[TestResult, ...]:
    """Test whether scores and s are independent: how often a random pairing shows as much dependence.

    The p-value of a permutation test is the share of pairings, the observed one among them, with at least the
    observed statistic: P(p <= alpha) <= alpha under independence at every n, for every measure.

    Parameters
    ----------
    scores : array or frame of shape (n,) or (n, d), ScoreTable or HSICSketch
        Scores or a representation; or a sketch of scores and s, which is tested by the HSIC of its kernels
        with the limit of the permutation law for large n.
    s : array or frame of shape (n,) or (n, q)
        The sensitive columns, tested jointly unless ``each``. Left out for a sketch.
    dependence : Dependence, optional
        The statistic. None aggregates HSIC over pairs of bandwidths, from nearly linear to narrow along s
        (several columns of scores as they are and whitened): one p-value, as exact as a single one. One score
        is tested from a table of counts: at most 128 cells of s by 256 levels, for any number of rows.
    method : {"permutation", "gamma"}, default="permutation"
        "gamma" fits a gamma law to the null moments of Gretton et al. (2007): no draws, a level for large n
        only (measured in ``docs/evidence/inference.md``), HSIC and distance covariance only, in their biased
        form without normalisation, as in the wild bootstrap.
    given : array of labels, optional
        Test independence given these labels (equalized odds): rows are exchanged within labels only. For a
        sketch, the labels to test within: ``sketch.labels`` for all.
    n_permutations : int, default=999
    random_state : int, generator or None
    sample_weight : array of shape (n,), optional
        The law under test is the weighted one. Weights that are a function of s travel with s and the
        permutation test stays exact; any others call for a wild bootstrap, which holds for large n.
    weights_of_s : bool, optional
        Whether the weights are a function of s. None looks: they are when rows of equal s, of which there are
        many, have equal weights. Pass True for weights computed from a continuous s.
    groups : array of labels of shape (n,), optional
        Rows of one group (a person, a household) may depend on one another; groups are independent. Where s
        is the same in all rows of a group, whole groups are exchanged with others of equal size, which is
        exact. Where it is not, or where too few groups are of equal size, the test is a cluster bootstrap (a
        random sign for each group), which holds for many groups. ``n`` is then the number of groups.
    each : bool, default=False
        Test each column of s by itself, with Holm's correction for their number in ``adjusted``.

    Returns
    -------
    TestResult, or a tuple of one for each column of s
        Not rejecting is no evidence of independence: for that, see :func:`equivalence_test`.

    Examples
    --------
    >>> import numpy as np
    >>> age, income = np.random.default_rng(0).normal(size=(2, 100))
    >>> independence_test(age**2, age, random_state=0).pvalue
    0.001
    >>> both = {"age": age, "income": income}
    >>> [result.adjusted for result in independence_test(age, both, each=True, random_state=0)]
    [0.002, 0.695]
    """
    _check(dependence, method, weights_of_s)
    check_permutations(n_permutations)
    check_aligned(scores=scores, s=s, given=given, sample_weight=sample_weight, groups=groups)
    generator = to_generator(random_state)
    if isinstance(scores, ScoreTable):
        check_table_alone(
            s=s,
            dependence=dependence,
            sample_weight=sample_weight,
            weights_of_s=weights_of_s,
            groups=groups,
            each=each or None,
        )
        return table_test(scores, given, int(n_permutations), generator)
    if isinstance(scores, HSICSketch):
        check_sketch_alone(
            s=s,
            dependence=dependence,
            sample_weight=sample_weight,
            weights_of_s=weights_of_s,
            groups=groups,
            each=each or None,
        )
        return sketch_test(scores, given, method, int(n_permutations), generator)
    rows = Observations.read(scores, s, sample_weight, groups, min_rows=MIN_TEST_ROWS)
    if rows.w is None and weights_of_s is not None:
        fix = "Leave it out, or pass the weights."
        raise ArgumentError("weights_of_s", "be None without 'sample_weight'", weights_of_s, fix)
    columns = [rows.s.columns([name]) for name in rows.s.names] if each else [rows.s]
    results = []
    for column in columns:
        design = make_design(replace(rows, s=column), given, weights_of_s)
        if method == "gamma":
            results.append(gamma_test(design, dependence, generator))
        else:
            results.append(_test(design, dependence, int(n_permutations), generator))
    if not each:
        return results[0]
    adjusted = holm([result.pvalue for result in results])
    return tuple(replace(result, adjusted=p) for result, p in zip(results, adjusted, strict=True))


def _check(dependence: object, method: object, weights_of_s: object) -> None:
    if dependence is not None and not isinstance(dependence, Dependence):
        fix = "Take one of frhsic.dependence, such as HSIC()."
        raise TypeError(f"'dependence' must be a measure or None. Got {dependence!r}. {fix}")
    check_cells(dependence)
    if method not in ("permutation", "gamma"):
        fix = "Leave it out for 'permutation'."
        raise ArgumentError("method", "be 'permutation' or 'gamma'", repr(method), fix)
    if weights_of_s is not None and not isinstance(weights_of_s, bool):
        fix = "Leave it out to let the test look."
        raise TypeError(f"'weights_of_s' must be True, False or None. Got {weights_of_s!r}. {fix}")


def holm(pvalues: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number: P(any true null hypothesis has p <= alpha) <= alpha.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(pvalues), 0.0
    for rank, j in enumerate(sorted(range(len(pvalues)), key=lambda j: pvalues[j])):
        largest = max(largest, min(1.0, (len(pvalues) - rank) * pvalues[j]))
        adjusted[j] = largest
    return adjusted


def _test(
    design: Design, dependence: Dependence | None, n_permutations: int, generator: torch.Generator
) -> TestResult:
    """Test by permutation or, where rows cannot be exchanged, by a bootstrap."""
    if dependence is None and has_table(design.z, design.s, design.strata[0].groups, joint=True):
        return _test_table(design, n_permutations, generator)
    shares = None
    z, s, notes = design.z, design.s, design.notes
    n = len(z)
    if dependence is None:
        family, shares = permutation.bandwidth_family(z, s, generator)
        words = f"HSIC aggregated over {len(family)} pairs of bandwidths"
        if z.shape[1] > 1 and n > WIDE_ROWS:
            z, family = permutation.use_features(z, family)
            design = design.with_z(z)
            notes += (
                f"Above {WIDE_ROWS} rows several columns of z enter through {RANK_Z} features per kernel.",
            )
        draws = _draw(design, family, n_permutations, generator, limit=family)
    else:
        # Without weights: a scale of z that saw the weights of s would change with the pairing.
        fixed = dependence.calibrate(z, s, generator, freeze=True)
        draws = _draw(design, [fixed], n_permutations, generator)
        words = type(dependence).__name__ + (" in its biased form" if draws.plain else "")
    notes += draws.notes
    combined = permutation.combine(draws.values, shares)
    pvalue = permutation.rank_pvalue(combined)
    plain, strata = draws.plain, design.strata
    if plain and bool((draws.values[:, 1:].mean(dim=1) < _SPREAD * permuted_means(plain, strata)).any()):
        # Rare meets rare: the rows that would show how much chance adds are not among these.
        rows = [replace(stratum, groups=None) for stratum in strata]
        others = permutation.limit_values(plain, rows, n_permutations, generator)
        pvalue = max(pvalue, permutation.rank_pvalue(permutation.combine(others, shares)))
        notes += (
            "A few rows make up most of what chance adds, so the p-value is the larger of two: of the "
            "bootstrap, and of permuted rows.",
        )
    return TestResult(
        statistic=float(combined[0]),
        pvalue=pvalue,
        method=draws.method,
        measure=words,
        attributes=s.names,
        n=n if design.n_groups is None else design.n_groups,
        exact=draws.exact,
        n_permutations=n_permutations,
        notes=notes,
        null=tuple(combined[1:].tolist()),
        n_rows=None if design.n_groups is None else n,
    )


def _test_table(design: Design, n_permutations: int, generator: torch.Generator) -> TestResult:
    """Test one score by a table of counts: the same test for any number of rows."""
    label = torch.cat([torch.full((len(one.z),), j) for j, one in enumerate(design.strata)])
    s, w = design.s, None
    if design.weighted:
        w = torch.cat([one.weights for one in design.strata if one.weights is not None])
    table = table_of(design.z, s, w, label)
    found = independence(
        [table.law(j) for j in range(len(design.strata))],
        n_permutations,
        rng_of(generator),
        shares=[one.share for one in design.strata],
        weights_of_s=design.of_s if design.weighted else None,
    )
    return TestResult(
        statistic=found.statistic,
        pvalue=found.pvalue,
        method=found.method,
        measure=found.measure,
        attributes=s.names,
        n=len(design.z),
        exact=found.exact,
        n_permutations=n_permutations,
        notes=(*design.notes, *found.notes),
        null=tuple(found.null.tolist()),
    )


class _Draws(NamedTuple):
    values: Tensor  # (k, B + 1), of each measure, the observed one first
    method: str
    exact: bool
    notes: tuple[str, ...] = ()
    plain: Sequence[HSIC] = ()  # the measures of a bootstrap


def _draw(
    design: Design,
    measures: Sequence[Dependence],
    count: int,
    generator: torch.Generator,
    limit: Sequence[HSIC] = (),
) -> _Draws:
    """Draw measures under independence; of many rows the law of those in ``limit`` is drawn in its limit."""
    z, s, strata, n_groups = design.z, design.s, design.strata, design.n_groups
    if design.obstacle is not None:
        if n_groups is not None and n_groups < MIN_GROUPS:
            must = f"be at least {MIN_GROUPS} where {design.obstacle}: random signs of fewer have no level"
            raise ArgumentError("groups", must, n_groups, "Pass more groups, or one row for each group.")
        fix = "Leave it out, or pass one row for each group."
        purpose = f"groups of rows where {design.obstacle}"
        plain = [biased_hsic(one, s, purpose, fix).calibrate(z, s, freeze=True) for one in measures]
        note = f"Groups have random signs instead of being permuted, as {design.obstacle}."
        values = cluster_values(plain, strata, count, generator)
        return _Draws(values, "cluster bootstrap", False, (note,), plain)
    if not design.of_s:
        fix = "Leave it out, or say weights_of_s=True if the weights were computed from s."
        purpose = "weights that are no function of s"
        plain = [biased_hsic(one, s, purpose, fix).calibrate(z, s, freeze=True) for one in measures]
        note = (
            f"Above {WILD_ROWS:,} rows the bootstrap draws from so many of them, in proportion to the "
            "squares of their terms."
        )
        notes = (note,) if max(len(stratum.z) for stratum in strata) > WILD_ROWS else ()
        return _Draws(wild_values(plain, strata, count, generator), "wild bootstrap", False, notes, plain)
    if not limit or len(z) <= MANY_ROWS:
        return _Draws(permutation.permuted_values(measures, strata, count, generator), "permutation", True)
    whole = n_groups is not None and n_groups <= MANY_ROWS
    values = permutation.limit_values(limit, strata, count, generator, whole=whole)
    note = (
        f"Above {MANY_ROWS:,} {'rows' if n_groups is None else 'groups'} the permutation law is drawn in its "
        "limit, from thin factors of the kernels; those too few and too far out for the limit are permuted."
    )
    return _Draws(values, "permutation", whole, () if whole else (note,))
