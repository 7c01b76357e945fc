"""What the audit of rows and that of a sketch have in common."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from frhsic.auditing._results import Measured
from frhsic.data import Label, Sensitive, to_generator
from frhsic.dependence import GDP, HSIC, DistanceCovariance, KernelHGR
from frhsic.engine._progress import Progress
from frhsic.inference import (
    Certificate,
    Curve,
    Interval,
    Profile,
    TestResult,
    certify,
    conditional_curve,
    confidence_interval,
    independence_test,
    localized_profile,
)
from frhsic.inference._permutation import random_orders

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


def refuse_identifiers(s: Sensitive, n: int) -> None:
    """Refuse a column with as many labels as only identifiers have."""
    labels = s.categories or (None,) * len(s.names)
    for name, known in zip(s.names, labels, strict=True):
        if known is not None and len(known) > max(2, n // 10):
            raise ValueError(
                f"'sensitive_features' must have few labels in a categorical column. Got {len(known):,} in "
                f"{n:,} rows of '{name[:_LONGEST]}', as an identifier has. Leave the column out, merge "
                "labels, or pass numbers as numbers."
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

    def __init__(self, z: Tensor, w: Tensor | None, level: float, bandwidth_s: float, seed: int) -> None:
        self.z, self.w, self.level, self.bandwidth_s, self.seed = z, w, level, bandwidth_s, seed

    def rows(self, rows: Tensor) -> Asked:
        """Return the same for some rows."""
        w = None if self.w is None else self.w[rows]
        return Asked(self.z[rows], w, self.level, self.bandwidth_s, self.seed)

    def test(self, s: Sensitive, given: object = None) -> TestResult:
        """Return the test of independence."""
        return independence_test(self.z, s, given=given, random_state=self.seed, sample_weight=self.w)

    def interval(self, s: Sensitive, measure: GDP | HSIC | DistanceCovariance) -> Interval:
        """Return the interval of a measure."""
        return confidence_interval(
            self.z, s, dependence=measure, level=self.level, random_state=self.seed, sample_weight=self.w
        )

    def gdp(self, s: Sensitive) -> Interval:
        """Return the interval of GDP."""
        return self.interval(s, GDP(self.bandwidth_s))

    def curve(self, s: Sensitive) -> Curve:
        """Return the mean score along one column."""
        return conditional_curve(
            self.z[:, 0],
            s,
            level=self.level,
            bandwidth_s=self.bandwidth_s,
            smooth=s.kinds == ("continuous",),
            random_state=self.seed,
            sample_weight=self.w,
        )


def certified(asked: Asked, s: Sensitive) -> Certificate:
    """Return the certificate of at most 2,000 rows."""
    return certify(asked.z, s, delta=1.0 - asked.level, random_state=asked.seed, max_rows=_CERTIFIED)


class FromRows(NamedTuple):
    """What sums over rows do not tell about one attribute."""

    distance_correlation: Interval | None
    kernel_hgr: Measured
    profile: Profile | None


def from_rows(asked: Asked, s: Sensitive, bar: Progress) -> FromRows:
    """Return distance correlation, kernel HGR and, along one column, the profile."""
    dcor = profile = None
    if len(set(s.kinds)) == 1:
        dcor = asked.interval(s, DistanceCovariance(normalized=True, root=True))
    bar.advance()
    hgr = _kernel_hgr(asked, s)
    bar.advance()
    if len(s.names) == 1:
        profile = localized_profile(
            asked.z,
            s,
            level=asked.level,
            bandwidth_s=asked.bandwidth_s,
            random_state=asked.seed,
            sample_weight=asked.w,
        )
    bar.advance()
    return FromRows(dcor, hgr, profile)


def _kernel_hgr(asked: Asked, s: Sensitive) -> Measured:
    """Return kHGR on at most 1,000 rows beside its permutations; rows are drawn by their weights."""
    generator = to_generator(asked.seed)
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
        floor=float(null.mean()),
        floor_high=float(null.quantile(asked.level)),
        n=n,
    )


def cut(label: Label) -> str:
    """Return a label as text of bounded length."""
    text = str(label)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
