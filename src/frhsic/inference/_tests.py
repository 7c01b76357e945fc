"""Tests of independence: by permutation, by a gamma law, within levels, with weights, of groups of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import (
    Sensitive,
    check_aligned,
    check_kept,
    split_labels,
    to_generator,
    to_groups,
    to_matrix,
    to_sensitive,
    to_weights,
)
from frhsic.dependence import HSIC, Dependence, DistanceCovariance
from frhsic.inference._curve import MIN_GROUPS
from frhsic.inference._embedding import as_hsic
from frhsic.inference._gamma import gamma_tail, null_moments
from frhsic.inference._permutation import (
    MIN_LEVEL,
    RANK_Z,
    WILD_ROWS,
    Stratum,
    bandwidth_family,
    cluster_values,
    limit_values,
    permuted_means,
    permuted_values,
    rank_pvalue,
    seen_through_features,
    size_classes,
    tails,
    wild_values,
)
from frhsic.inference._results import TestResult
from frhsic.inference._sketched import refuse_beside_a_sketch, sketched_test
from frhsic.kernels import default_kernel
from frhsic.sketching import HSICSketch

Method = Literal["permutation", "gamma"]

# Above, the default test draws the limit of the permutation law on thin factors instead of permuting rows.
MANY_ROWS = 5_000
# The null moments of Gretton et al. need six rows; below, no test has a level to speak of.
MIN_ROWS = 6
# Whole groups are permuted where exchanging those of equal size gives at least so many pairings.
_PAIRINGS = 720
# A bootstrap that spreads less than so much of what permutations do is not trusted alone.
_SPREAD = 0.7
# Above, the default test sees several columns of z through features: all pairs would take minutes.
WIDE_ROWS = 100


def independence_test(
    z: object,
    s: object = None,
    *,
    dependence: Dependence | None = None,
    method: Method = "permutation",
    given: object = None,
    n_permutations: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    weights_of_s: bool | None = None,
    groups: object = None,
) -> TestResult:
    """Test whether z and s are independent: how often would a random pairing show as much dependence.

    The p-value of a permutation test is the share of pairings, the observed one among them, with at least the
    observed statistic: P(p <= alpha) <= alpha under independence at every n, for every measure.

    Parameters
    ----------
    z : array or frame of shape (n,) or (n, d), or HSICSketch
        A score or a representation; or a sketch of z and s, which is tested by the HSIC of its kernels with
        the permutation law in its limit, for large n.
    s : array or frame of shape (n,) or (n, q)
        The sensitive columns, tested jointly; :func:`independence_tests` takes them one by one.
    dependence : Dependence, optional
        The statistic. None aggregates HSIC over pairs of bandwidths, from nearly linear to narrow along s
        (several columns of z as they are and whitened): one p-value, as exact as a single one.
    method : {"permutation", "gamma"}, default="permutation"
        "gamma" fits a gamma law to the null moments of Gretton et al. (2007): no draws, a level for large n
        only (see the measured levels in ``docs/inference.md``), HSIC and distance covariance only, in their
        biased form without normalisation; so is the wild bootstrap.
    given : array of labels, optional
        Test independence within each level (equalized odds): rows are exchanged within levels only. Of a
        sketch by labels those to test within: ``sketch.labels`` for all.
    n_permutations : int, default=999
    random_state : int, generator or None
    sample_weight : array of shape (n,), optional
        The law under test is the weighted one. Weights that are a function of s travel with s and the
        permutation test stays exact; any others call for a wild bootstrap, which holds for large n.
    weights_of_s : bool, optional
        Whether the weights are a function of s. None looks: they are when rows of equal s, of which there are
        many, have equal weights. Say True for weights computed from a continuous s.
    groups : array of labels of shape (n,), optional
        Rows of one group (a person, a household) may depend on one another; groups are independent. Where s
        is the same in all rows of a group, whole groups are exchanged with others of equal size, which is
        exact. Where it is not, or where too few groups are of equal size, the test is a cluster bootstrap (a
        random sign for each group), which holds for many groups. ``n`` is then the number of groups.

    Returns
    -------
    TestResult
        Not rejecting is no evidence of independence: for that, see :func:`equivalence_test`.

    Examples
    --------
    >>> import numpy as np
    >>> age = np.linspace(18, 90, 200)
    >>> score = (age - 54) ** 2 + np.random.default_rng(0).normal(0, 800, 200)
    >>> independence_test(score, age, random_state=0).pvalue
    0.001
    """
    _check(dependence, method, n_permutations, weights_of_s)
    check_aligned(z=z, s=s, given=given, sample_weight=sample_weight, groups=groups)
    if isinstance(z, HSICSketch):
        refuse_beside_a_sketch(
            s=s,
            dependence=dependence,
            sample_weight=sample_weight,
            weights_of_s=weights_of_s,
            groups=groups,
        )
        return sketched_test(z, given, method, int(n_permutations), to_generator(random_state))
    z, s = _pair(z, s)
    w = None if sample_weight is None else to_weights(sample_weight, n_rows=len(z), rows_of="z")
    if w is None and weights_of_s is not None:
        raise ValueError(
            f"'weights_of_s' must be None without 'sample_weight'. Got {weights_of_s}. "
            "Leave it out, or pass the weights."
        )
    if w is not None and bool((w == w[0]).all()):
        w = None  # equal weights are none
    generator = to_generator(random_state)
    codes = to_groups(groups, n_rows=len(z), rows_of="z")
    strata, notes = _strata(z, s, w, given, codes)
    n_groups = None
    if codes is not None:
        strata, n_groups = _recoded(strata)
    of_s = w is None or (_function_of_s(strata) if weights_of_s is None else weights_of_s)
    z, s = torch.cat([stratum.z for stratum in strata]), _joined([stratum.s for stratum in strata])
    n = len(z)
    apart = None if codes is None else _reason_against_permuting(strata, of_s)
    if method == "gamma":
        if codes is not None:
            raise ValueError(
                "'groups' must be None for method='gamma': its moments are for independent rows. "
                "Got groups. Use method='permutation'."
            )
        if w is not None:
            raise ValueError(
                "'sample_weight' must be None for method='gamma': its moments are for equal weights. "
                "Got weights. Use method='permutation'."
            )
        return _gamma(dependence, z, s, strata, notes, generator)
    measures: Sequence[Dependence]
    shares = None
    if dependence is None:
        family, shares = bandwidth_family(z, s, generator)
        words = f"HSIC aggregated over {len(family)} pairs of bandwidths"
        if z.shape[1] > 1 and n > WIDE_ROWS:
            z, family = seen_through_features(z, family)
            strata = _with_rows(strata, z)
            notes += (
                f"Above {WIDE_ROWS} rows several columns of z enter through {RANK_Z} features per kernel.",
            )
        measures = family
    else:
        # Without weights: a scale of z that saw the weights of s would change with the pairing.
        measures = [dependence.calibrate(z, s, generator, freeze=True)]
        words = _words(dependence)
    exact, drawn = True, "permutation"
    plain: list[HSIC] = []
    if apart is not None:
        if n_groups is not None and n_groups < MIN_GROUPS:
            raise ValueError(
                f"'groups' must be at least {MIN_GROUPS} where {apart}: random signs of fewer groups have no "
                f"level. Got {n_groups}. Pass more groups, or one row for each group."
            )
        cure = "Leave it out, or pass one row for each group."
        plain = [_biased(measure, s, f"groups of rows where {apart}", cure) for measure in measures]
        values = cluster_values(plain, strata, n_permutations, generator)
        exact, drawn = False, "cluster bootstrap"
        notes += (f"Groups have random signs instead of being permuted, as {apart}.",)
        words = words if shares is not None else f"{words} in its biased form"
    elif not of_s:
        cure = "Leave it out, or say weights_of_s=True if the weights were computed from s."
        plain = [_biased(measure, s, "weights that are no function of s", cure) for measure in measures]
        kernels = [measure.calibrate(z, s, freeze=True) for measure in plain]
        values = wild_values(kernels, strata, n_permutations, generator)
        exact, drawn = False, "wild bootstrap"
        if max(len(stratum.z) for stratum in strata) > WILD_ROWS:
            notes += (
                f"Above {WILD_ROWS:,} rows the bootstrap draws from so many of them, in proportion to the "
                "squares of their terms.",
            )
        words = words if shares is not None else f"{words} in its biased form"
    elif shares is not None and n > MANY_ROWS:
        exact = n_groups is not None and n_groups <= MANY_ROWS
        values = limit_values(family, strata, n_permutations, generator, whole=exact)
        if not exact:
            notes += (
                f"Above {MANY_ROWS:,} {'rows' if n_groups is None else 'groups'} the permutation law is "
                "drawn in its limit, from thin factors of the kernels; those too few and too far out for the "
                "limit are permuted.",
            )
    else:
        values = permuted_values(measures, strata, n_permutations, generator)
    combined = _combined(values, shares)
    pvalue = rank_pvalue(combined)
    if plain and bool((values[:, 1:].mean(dim=1) < _SPREAD * permuted_means(plain, strata)).any()):
        # Rare meets rare: the rows that would show how much chance adds are not among these.
        rows = [replace(stratum, groups=None) for stratum in strata]
        others = _combined(limit_values(plain, rows, n_permutations, generator), shares)
        pvalue = max(pvalue, rank_pvalue(others))
        notes += (
            "A few rows make up most of what chance adds, so the p-value is the larger of two: of the "
            "bootstrap, and of permuted rows.",
        )
    return TestResult(
        statistic=float(combined[0]),
        pvalue=pvalue,
        method=drawn,
        measure=words,
        attributes=s.names,
        n=n if n_groups is None else n_groups,
        exact=exact,
        n_permutations=int(n_permutations),
        notes=notes,
        null=tuple(combined[1:].tolist()),
        n_rows=None if n_groups is None else n,
    )


def independence_tests(
    z: object,
    s: object,
    *,
    dependence: Dependence | None = None,
    method: Method = "permutation",
    given: object = None,
    n_permutations: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    weights_of_s: bool | None = None,
    groups: object = None,
) -> tuple[TestResult, ...]:
    """Test each column of s by itself, with Holm's correction for their number in ``adjusted``.

    The parameters are those of :func:`independence_test`.

    Examples
    --------
    >>> import numpy as np
    >>> age, income = np.random.default_rng(0).normal(size=(2, 100))
    >>> results = independence_tests(age, {"age": age, "income": income}, random_state=0)
    >>> [result.adjusted for result in results]
    [0.002, 0.658]
    """
    check_aligned(z=z, s=s, given=given, sample_weight=sample_weight, groups=groups)
    z, s = _pair(z, s)
    generator = to_generator(random_state)
    results = [
        independence_test(
            z,
            s.columns([name]),
            dependence=dependence,
            method=method,
            given=given,
            n_permutations=n_permutations,
            random_state=generator,
            sample_weight=sample_weight,
            weights_of_s=weights_of_s,
            groups=groups,
        )
        for name in s.names
    ]
    adjusted = holm([result.pvalue for result in results])
    return tuple(replace(result, adjusted=p) for result, p in zip(results, adjusted, strict=True))


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


def _combined(values: Tensor, shares: Tensor | None) -> Tensor:
    """Return one statistic of several, ``(B + 1,)``: the largest of minus the logarithms of their tails."""
    return values[0] if shares is None else (tails(values) + shares.log()[:, None]).amax(dim=0)


def _pair(z: object, s: object) -> tuple[Tensor, Sensitive]:
    z = to_matrix(z, name="z", min_rows=MIN_ROWS)
    return z, to_sensitive(s, name="s", n_rows=len(z), rows_of="z")


def _check(dependence: object, method: object, n_permutations: object, weights_of_s: object) -> None:
    if dependence is not None and not isinstance(dependence, Dependence):
        raise TypeError(
            f"'dependence' must be a measure or None. Got {dependence!r}. "
            "Take one of frhsic.dependence, such as HSIC()."
        )
    if method not in ("permutation", "gamma"):
        raise ValueError(
            f"'method' must be 'permutation' or 'gamma'. Got {method!r}. Leave it out for 'permutation'."
        )
    if isinstance(n_permutations, bool) or not isinstance(n_permutations, Integral):
        raise TypeError(
            f"'n_permutations' must be an integer. Got {type(n_permutations).__name__}. Take 999."
        )
    if int(n_permutations) < 19:
        raise ValueError(
            f"'n_permutations' must be at least 19: fewer can never give p <= 0.05. Got {n_permutations}. "
            "Take 999."
        )
    if weights_of_s is not None and not isinstance(weights_of_s, bool):
        raise TypeError(
            f"'weights_of_s' must be True, False or None. Got {weights_of_s!r}. "
            "Leave it out to let the test look."
        )


def _strata(
    z: Tensor, s: Sensitive, w: Tensor | None, given: object, groups: Tensor | None
) -> tuple[list[Stratum], tuple[str, ...]]:
    """Return the levels of ``given``, or all rows; rows of no weight are left out."""
    present = torch.ones(len(z), dtype=torch.bool) if w is None else w > 0
    notes: tuple[str, ...] = ()
    if given is None:
        parts = [present.nonzero().squeeze(1)]
        if len(parts[0]) < MIN_ROWS:
            raise ValueError(
                f"'sample_weight' must be positive in at least {MIN_ROWS} rows. Got {len(parts[0])}. "
                "Pass more rows that count."
            )
    else:
        parts, skipped = parts_of(given, present, rows_of="z")
        if skipped:
            notes = (f"{skipped} rows of levels with fewer than {MIN_LEVEL} rows were left out.",)
    masses = [float(len(rows)) if w is None else float(w[rows].sum()) for rows in parts]
    strata = [
        Stratum(
            z[rows],
            s[rows],
            None if w is None else w[rows],
            mass / sum(masses),
            None if groups is None else groups[rows],
        )
        for rows, mass in zip(parts, masses, strict=True)
    ]
    return strata, notes


def _recoded(strata: Sequence[Stratum]) -> tuple[list[Stratum], int]:
    """Return the strata with codes 0, ..., G - 1 of the groups that are left in them, and G."""
    codes = [stratum.groups for stratum in strata if stratum.groups is not None]
    left, places = torch.cat(codes).unique(return_inverse=True)
    if len(left) < MIN_ROWS:
        raise ArgumentError(
            "groups",
            f"be at least {MIN_ROWS}, which are then the independent units",
            f"{len(left)} in the rows used",
            "Pass more groups.",
        )
    parts = places.split([len(code) for code in codes])
    return [replace(stratum, groups=part) for stratum, part in zip(strata, parts, strict=True)], len(left)


def _reason_against_permuting(strata: Sequence[Stratum], of_s: bool) -> str | None:
    """Return why whole groups cannot be exchanged, or None if they can.

    They can where s and the weights are the same in all rows of a group, each group lies in one stratum, and
    sizes repeat: at most half as many sizes as groups in all strata together, and 720 pairings (those of six
    groups of one size) or more.
    """
    if not of_s:
        return "the weights are no function of s"
    seen = [stratum.groups.unique() for stratum in strata if stratum.groups is not None]
    if len(torch.cat(seen).unique()) < sum(map(len, seen)):
        return "groups have rows in several levels of 'given'"
    n_groups, n_sizes, pairings = 0, 0, 0.0
    for stratum in strata:
        assert stratum.groups is not None  # noqa: S101
        for rows in size_classes(stratum.groups):
            values = stratum.s.values[rows]  # (groups, size, q)
            if not bool((values == values[:, :1]).all()):
                return "s varies inside groups"
            w = None if stratum.weights is None else stratum.weights[rows]
            if w is not None and not bool((w == w[:, :1]).all()):
                return "the weights vary inside groups"
            n_groups, n_sizes = n_groups + len(rows), n_sizes + 1
            pairings += math.lgamma(len(rows) + 1.0)
    if 2 * n_sizes > n_groups or pairings < math.log(_PAIRINGS) - 1e-9:
        return f"too few groups are of equal size ({n_sizes} sizes of {n_groups} groups)"
    return None


def parts_of(given: object, present: Tensor, rows_of: str) -> tuple[list[Tensor], int]:
    """Return the rows present in each level of ``given`` that has enough of them, and how many have not."""
    split = split_labels(given, name="given")
    n = sum(len(level.rows) for level in split.kept)
    if n != len(present):
        raise ValueError(
            f"'given' must have {len(present)} rows like '{rows_of}'. Got {n}. Pass one label for each row."
        )
    found = [level.rows[present[level.rows]] for level in split.kept]
    parts = [rows for rows in found if len(rows) >= MIN_LEVEL]
    if not parts:
        raise ValueError(
            f"'given' must have a level with at least {MIN_LEVEL} rows. Got none. "
            "Merge levels, cut a number into a few bins, or leave 'given' out."
        )
    total, kept = (sum(map(len, some)) for some in (found, parts))
    check_kept(kept, total, n_labels=len(found), min_rows=MIN_LEVEL)
    return parts, total - kept


def _with_rows(strata: Sequence[Stratum], z: Tensor) -> list[Stratum]:
    """Return the strata with other columns of z, whose rows stand in the order of the strata."""
    parts = z.split([len(stratum.z) for stratum in strata])
    return [replace(stratum, z=part) for stratum, part in zip(strata, parts, strict=True)]


def _function_of_s(strata: Sequence[Stratum]) -> bool:
    """Return whether weights are equal where s is, within each stratum, and nine rows of ten show it."""
    weights = [stratum.weights for stratum in strata if stratum.weights is not None]
    if all(bool((w == w[0]).all()) for w in weights):
        return True
    w = torch.cat(weights)
    keys = [torch.nn.functional.pad(stratum.s.values, (1, 0), value=j) for j, stratum in enumerate(strata)]
    _, level, rows = torch.cat(keys).unique(dim=0, return_inverse=True, return_counts=True)
    if int((rows == 1).sum()) > len(w) // 10:
        return False
    low = torch.full((len(rows),), torch.inf, dtype=w.dtype).scatter_reduce(0, level, w, "amin")
    high = torch.zeros(len(rows), dtype=w.dtype).scatter_reduce(0, level, w, "amax")
    return bool((high - low <= 1e-12 * high).all())


def _joined(parts: Sequence[Sensitive]) -> Sensitive:
    first = parts[0]
    return Sensitive(torch.cat([part.values for part in parts]), first.names, first.kinds, first.categories)


def _biased(measure: Dependence, s: Sensitive, purpose: str, cure: str) -> HSIC:
    """Return the biased HSIC on the kernels of a measure, or say that it has none."""
    if isinstance(measure, HSIC | DistanceCovariance):
        hsic = as_hsic(measure, s)
        if hsic.reference == "product":
            return HSIC(hsic.kernel_z, hsic.kernel_s)
    raise ValueError(
        f"'dependence' must be a DistanceCovariance or an HSIC with reference='product' for {purpose}. "
        f"Got {_words(measure)}. {cure}"
    )


def _words(dependence: Dependence) -> str:
    return type(dependence).__name__


def _gamma(
    dependence: Dependence | None,
    z: Tensor,
    s: Sensitive,
    strata: Sequence[Stratum],
    notes: tuple[str, ...],
    generator: torch.Generator,
) -> TestResult:
    measure = HSIC() if dependence is None else dependence
    plain = _biased(measure, s, "method='gamma'", "Use method='permutation', which takes any measure.")
    fixed = plain.calibrate(z, s, generator, freeze=True)
    kernel_s = fixed.kernel_s or default_kernel(s.kinds)
    statistic = mean = variance = 0.0
    for stratum in strata:
        moments = null_moments(stratum.z, stratum.s.values, fixed.kernel_z, kernel_s)
        statistic += stratum.share * moments.statistic
        mean += stratum.share * moments.mean
        variance += stratum.share**2 * moments.variance
    degenerate = not (mean > 0 and variance > 0)
    pvalue = 1.0 if degenerate else gamma_tail(statistic, mean, variance)
    return TestResult(
        statistic=statistic,
        pvalue=pvalue,
        method="gamma",
        measure=f"{_words(measure)} in its biased form",
        attributes=s.names,
        n=sum(len(stratum.z) for stratum in strata),
        exact=False,
        notes=notes,
    )
