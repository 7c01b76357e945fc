"""What the audit of rows and that of a sketch have in common."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._progress import Progress
from frhsic.auditing._claims import Shares, Signed, draws_for, error_of_mean, permutations_for, signed
from frhsic.auditing._results import Measured
from frhsic.data import Label, Sensitive, to_generator
from frhsic.dependence import GDP, HSIC, DistanceCovariance, KernelHGR
from frhsic.inference import (
    Curve,
    Interval,
    Profile,
    TestResult,
    conditional_curve,
    confidence_interval,
    independence_test,
    localized_profile,
)
from frhsic.inference._permutation import random_orders
from frhsic.inference.bounds import Certificate, certify

# Fewer rows leave nothing for bandwidths, bounds and cross-fitting.
MIN_ROWS = 50
# A label of fewer rows could be a person: it is not told.
TELLING = 10
# More labels in y than these are numbers, not groups.
LABELS = 10
# Of kernel HGR, which takes the eigenvectors of two (n, n) matrices.
_HGR_ROWS, _PERMUTATIONS = 1_000, 199
# Of the certificate's heads.
_CERTIFIED = 2_000
_LONGEST = 80
# A share of repeated rows that is noted, and that of different rows with scores of their own from which on a
# score is continuous.
_REPEATED, _OWN_SCORE = 0.05, 0.9


def refuse_identifiers(s: Sensitive, n: int) -> None:
    """Refuse a column with as many labels as only identifiers have."""
    labels = s.categories or (None,) * len(s.names)
    for name, known in zip(s.names, labels, strict=True):
        if known is not None and len(known) > max(2, n // 10):
            raise ArgumentError(
                "sensitive_features",
                "have few labels in a categorical column",
                f"{len(known):,} in {n:,} rows of '{name[:_LONGEST]}', as an identifier has",
                "Leave the column out, merge labels, or pass numbers as numbers.",
            )


def warn_of_training(trained_on: bool | None) -> tuple[str, ...]:
    """Return and raise the warning about rows that the model was trained on."""
    if not trained_on:
        return ()
    note = (
        "These rows were used to train the model: on them its dependence may be smaller than on new "
        "rows, and no p-value, interval or bound here holds for the population."
    )
    warnings.warn(note + " Audit rows that were held out.", stacklevel=3)
    return (note,)


class Asked:
    """What every part of an audit is called with."""

    def __init__(
        self,
        z: Tensor,
        w: Tensor | None,
        confidence_level: float,
        bandwidth_s: float | None,
        seed: int,
        shares: Shares,
        groups: Tensor | None = None,
    ) -> None:
        self.z, self.w, self.confidence_level, self.bandwidth_s, self.seed = (
            z,
            w,
            confidence_level,
            bandwidth_s,
            seed,
        )
        self.shares, self.groups = shares, groups

    def rows(self, rows: Tensor) -> Asked:
        """Return the same for some rows."""
        w = None if self.w is None else self.w[rows]
        groups = None if self.groups is None else self.groups[rows]
        return Asked(self.z[rows], w, self.confidence_level, self.bandwidth_s, self.seed, self.shares, groups)

    def of(self, z: Tensor) -> Asked:
        """Return the same for another score of the same rows."""
        return Asked(z, self.w, self.confidence_level, self.bandwidth_s, self.seed, self.shares, self.groups)

    @property
    def dependent(self) -> dict[str, Any]:
        """Which rows may depend on one another, where any do."""
        return {} if self.groups is None else {"groups": self.groups}

    def test(self, s: Sensitive, given: object = None) -> TestResult:
        """Return the test of independence."""
        return independence_test(
            self.z,
            s,
            given=given,
            n_permutations=self.shares.n_permutations,
            random_state=self.seed,
            sample_weight=self.w,
            **self.dependent,
        )

    def interval(self, s: Sensitive, measure: GDP | HSIC | DistanceCovariance) -> Interval:
        """Return the interval of a measure."""
        return confidence_interval(
            self.z,
            s,
            dependence=measure,
            confidence_level=self.confidence_level,
            random_state=self.seed,
            sample_weight=self.w,
            **self.dependent,
        )

    def gdp(self, s: Sensitive) -> Interval:
        """Return the interval of GDP."""
        return self.interval(s, GDP(self.bandwidth_s))

    def curve(self, s: Sensitive, confidence_level: float) -> Curve:
        """Return the mean score along one column, at the confidence that claims about it need."""
        return conditional_curve(
            self.z[:, 0],
            s,
            confidence_level=confidence_level,
            n_draws=draws_for(confidence_level),
            random_state=self.seed,
            sample_weight=self.w,
            bandwidth_s=self.bandwidth_s,
            **self.dependent,
        )

    def signed(self, s: Sensitive, confidence_level: float) -> Signed:
        """Return the mean score along one column, and where it is shown to leave the overall mean."""
        error = error_of_mean(self.z[:, 0], self.w, self.groups)
        return signed(
            self.curve(s, confidence_level), error, nested=is_constant_within(s.values[:, 0], self.groups)
        )

    def profile(self, s: Sensitive, confidence_level: float) -> Profile:
        """Return where along one column the distribution differs."""
        return localized_profile(
            self.z,
            s,
            confidence_level=confidence_level,
            n_permutations=permutations_for(confidence_level),
            random_state=self.seed,
            sample_weight=self.w,
            bandwidth_s=self.bandwidth_s,
            **self.dependent,
        )


def is_constant_within(values: Tensor, groups: Tensor | None) -> bool:
    """Return whether values ``(n,)`` are the same in all rows of each group."""
    if groups is None:
        return True
    first = values.new_zeros(int(groups.max()) + 1).index_copy(0, groups, values)
    return bool((first[groups] == values).all())


def repeated_rows(z: Tensor, s: Sensitive, groups: Tensor | None) -> tuple[str, ...]:
    """Return a note where rows of a continuous score repeat others, score and attributes alike.

    A score is continuous here if nearly every different row has a score of its own: scores of few values
    repeat themselves anyhow.
    """
    if groups is not None:
        return ()
    rows, counts = torch.cat((z, s.values), dim=1).unique(dim=0, return_counts=True)
    scores = len(rows[:, : z.shape[1]].unique(dim=0))
    copies = int(counts[counts > 1].sum())
    if copies < max(2.0, _REPEATED * len(z)) or scores < _OWN_SCORE * len(rows):
        return ()
    return (
        f"{copies:,} of {len(z):,} rows have the same score and attributes as another row. If these are "
        "copies, or several rows of one person, rows are not independent and no p-value, interval or claim "
        "here holds. Name the column that tells people apart ('groups', --group), or leave the copies out.",
    )


def certified(asked: Asked, s: Sensitive) -> Certificate:
    """Return the certificate of at most 2,000 rows."""
    return certify(
        asked.z,
        s,
        delta=1.0 - asked.confidence_level,
        random_state=asked.seed,
        max_rows=_CERTIFIED,
        **asked.dependent,
    )


class FromRows(NamedTuple):
    """What sums over rows do not tell about one attribute."""

    distance_correlation: Interval | None
    kernel_hgr: Measured


def from_rows(asked: Asked, s: Sensitive, bar: Progress) -> FromRows:
    """Return distance correlation and kernel HGR."""
    dcor = None
    if len(set(s.kinds)) == 1:
        dcor = asked.interval(s, DistanceCovariance(normalized=True, root=True))
    bar.advance()
    hgr = _kernel_hgr(asked, s)
    bar.advance()
    return FromRows(dcor, hgr)


def gdp_or_note(asked: Asked, s: Sensitive, of: str) -> tuple[Interval | None, tuple[str, ...]]:
    """Return the interval of GDP, or why these rows are too few for it."""
    try:
        return asked.gdp(s), ()
    except ValueError as error:
        return None, (f"No mean gap (GDP) {of}: {error}",)


def _kernel_hgr(asked: Asked, s: Sensitive) -> Measured:
    """Return kHGR on at most 1,000 rows beside its permutations; rows are drawn by their weights.

    Of each group one random row: these are independent.
    """
    generator = to_generator(asked.seed)
    if asked.groups is not None:
        order = torch.randperm(len(s), generator=generator)
        last = order.new_empty(int(asked.groups.max()) + 1).index_copy(0, asked.groups[order], order)
        kept = last[asked.groups.unique()]
        asked, s = asked.rows(kept), s[kept]
    if asked.w is None:
        rows = torch.randperm(len(s), generator=generator)[:_HGR_ROWS]
    else:
        few = min(_HGR_ROWS, int((asked.w > 0).sum()) // 2)
        rows = asked.w.multinomial(few, generator=generator)
    z, s, n = asked.z[rows], s[rows], len(rows)
    measure = KernelHGR().calibrate(z, s, generator, freeze=True)
    null = measure.permuted(z, s, random_orders(n, _PERMUTATIONS, generator))
    return Measured(
        measure="kernel HGR",
        value=float(measure(z, s)),
        chance=float(null.mean()),
        chance_high=float(null.quantile(asked.confidence_level)),
        n=n,
    )


def cut(label: Label) -> str:
    """Return a label as text of bounded length."""
    text = str(label)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
