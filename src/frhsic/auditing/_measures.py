"""The measures of an audit: how each one is named, explained, formatted and computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

from frhsic._text import number, percent
from frhsic.auditing._parts import Estimate
from frhsic.data import to_generator
from frhsic.dependence import HSIC, DistanceCovariance, KernelHGR, RankGap, ScoreGap
from frhsic.inference import Interval

if TYPE_CHECKING:
    from frhsic.auditing._parts import Column
    from frhsic.auditing._results import Attribute
    from frhsic.auditing._subject import Subject

# Kernel HGR takes the eigenvectors of two (n, n) matrices.
_HGR_ROWS, _PERMUTATIONS = 1_000, 199


Measurement: TypeAlias = Interval | Estimate


@dataclass(frozen=True)
class AuditMeasure:
    """One measure of an audit. An entry of ``MEASURES`` appears in every output of an audit.

    Attributes
    ----------
    name : str
        Its key in ``Attribute.measures`` and in JSON, and its name for ``frhsic audit --fail-above``.
    title : str
        As it stands within a sentence.
    means, not_means : str
        What it says and what it does not; ``{s}`` is the attribute, ``{z}`` the score or representation.
    compute : callable
        Of a ``Subject``; None where the measure does not apply. A ValueError becomes a note of the audit.
    label : str
        The title where space is short; "" takes ``title``.
    of_score : bool, default=False
        Whether it is in units of the score. A representation has no such measure.
    has_interval : bool, default=True
        Whether the result is an ``Interval``.
    summary : str
        A sentence for the summary with ``{s} {overall} {estimate} {interval} {target} {chance}``, or "".

    Examples
    --------
    >>> MEASURES["gdp"].title
    'mean gap (GDP)'
    """

    name: str
    title: str
    means: str
    not_means: str
    compute: Callable[[Subject], Measurement | None]
    label: str = ""
    of_score: bool = False
    has_interval: bool = True
    summary: str = ""

    @property
    def short(self) -> str:
        """The title where space is short."""
        return self.label or self.title

    def format(self, x: float, score: Column | None) -> str:
        """Return a value in the unit of the measure; the measures themselves are never negative."""
        return score.format_gap(max(x, 0.0)) if self.of_score and score else number(max(x, 0.0))

    def unit(self, score: Column | None) -> str:
        """Return the unit of the measure, or "" if it has none."""
        return score.gap_unit if self.of_score and score else ""

    def sentence(self, found: Attribute, score: Column | None) -> str:
        """Return the sentence of the summary about one attribute, or ""."""
        result = found.measures.get(self.name)
        if not self.summary or not isinstance(result, Interval):
            return ""
        low, high, chance, most = (
            self.format(x or 0.0, score) for x in (result.low, result.high, result.chance, result.chance_high)
        )
        share = percent(result.confidence_level)
        return self.summary.format(
            s=found.name,
            overall=score.format_mean() if score else "",
            estimate=f"{self.format(result.estimate, score)} {self.unit(score)}".strip(),
            interval=f"{share} interval {low} to {high}",
            target=result.target,
            chance=(
                f"Under independence: {chance} on average, {share} below {most}."
                if result.plug_in is None
                else f"With what chance adds it is {self.format(result.plug_in, score)} on these rows; under "
                f"independence that is {chance} on average, {share} below {most}."
            ),
        )


def _gdp(subject: Subject) -> Interval | None:
    return subject.gdp() if subject.has_means else None


def _gap(subject: Subject) -> Interval | None:
    if not subject.has_means or subject.groups_lost:
        return None
    return subject.interval(ScoreGap())


def _rank_gap(subject: Subject) -> Interval | None:
    """Return the rank gap; of a score of two values it is half the gap of the decision, which says more."""
    if not subject.has_means or subject.groups_lost or subject.two_values:
        return None
    return subject.interval(RankGap())


def _worst_gap(subject: Subject) -> Interval | None:
    return subject.cutoffs.largest if subject.has_means and not subject.groups_lost else None


def _distance_correlation(subject: Subject) -> Interval | None:
    if len(set(subject.s.kinds)) > 1 or subject.groups_lost:
        return None
    return subject.rows.interval(DistanceCovariance(normalized=True, root=True))


def _kernel_hgr(subject: Subject) -> Estimate:
    """Return kHGR on at most 1,000 rows beside its permutations; rows are drawn by their weights.

    Of each group one random row: these are independent.
    """
    rows = subject.rows
    generator = to_generator(rows.settings.seed)
    if rows.groups is not None:
        order = torch.randperm(len(rows.s), generator=generator)
        last = order.new_empty(int(rows.groups.max()) + 1).index_copy(0, rows.groups[order], order)
        rows = rows.at(last[rows.groups.unique()])
    if rows.w is None:
        kept = torch.randperm(len(rows.s), generator=generator)[:_HGR_ROWS]
    else:
        kept = rows.w.multinomial(min(_HGR_ROWS, int((rows.w > 0).sum()) // 2), generator=generator)
    z, s, n = rows.z[kept], rows.s[kept], len(kept)
    measure = KernelHGR().calibrate(z, s, generator, freeze=True)
    orders = [torch.randperm(n, generator=generator) for _ in range(_PERMUTATIONS)]
    found, *permuted = measure.permuted(z, s, torch.stack([torch.arange(n), *orders]))
    null = torch.stack(permuted)
    return Estimate(
        estimate=float(found),
        measure="kernel HGR",
        chance=float(null.mean()),
        chance_high=float(null.quantile(rows.settings.confidence_level)),
        n=n,
    )


# In the order in which they are shown.
MEASURES: dict[str, AuditMeasure] = {
    measure.name: measure
    for measure in (
        AuditMeasure(
            name="gap",
            title="gap of the score",
            means="How far the distribution of the score at a value of {s} lies from the overall "
            "distribution, on average over the rows: the mean distance by which scores would have to move, "
            "and the mean gap of decisions over all cut-offs.",
            not_means="It says nothing about single people, nor at which cut-off decisions differ. It is "
            "never negative, so it is positive under independence too.",
            compute=_gap,
            label="score gap",
            of_score=True,
        ),
        AuditMeasure(
            name="rank_gap",
            title="rank gap",
            means="The gap of decisions averaged over all cut-offs, each taken as often as people have that "
            "score: how far the rate at a value of {s} lies from the overall rate, on average over the rows. "
            "It is the same on every scale of the score, and at most 1/3.",
            not_means="It says nothing about the cut-off that is used. It does not see a score that is "
            "turned upside down. It is never negative, so it is positive under independence too.",
            compute=_rank_gap,
        ),
        AuditMeasure(
            name="gdp",
            title="mean gap (GDP)",
            label="GDP",
            means="How far the mean score at a value of {s} lies from the overall mean, on average over the "
            "rows.",
            not_means="It compares means only: a score that just spreads more at some values has no gap. It "
            "is never negative, so it is positive under independence too.",
            compute=_gdp,
            of_score=True,
            summary="The mean score at a value of {s} differs from the overall mean of {overall} by "
            "{estimate} on average ({interval}, for {target}). {chance}",
        ),
        AuditMeasure(
            name="gap_worst",
            title="gap of decisions at the worst cut-off",
            label="worst cut-off",
            means="With a decision for every score above a cut-off: how far the rate at a value of {s} lies "
            "from the overall rate, on average over the rows, at the cut-off where this is largest. A share "
            "of the rows.",
            not_means="Nobody may decide at that cut-off. A largest value is large under independence too.",
            compute=_worst_gap,
        ),
        AuditMeasure(
            name="normalized_hsic",
            title="normalised HSIC",
            means="Dependence of any kind, in the mean or not, on a scale from 0 (none) to 1.",
            not_means="It has no unit, and no value of it is small for every purpose. It depends on the "
            "kernels, chosen here by rule. Under independence it scatters around zero, also below.",
            compute=lambda subject: subject.interval(HSIC(estimator="unbiased", normalized=True)),
            summary="On a scale from 0 (no dependence) to 1, normalised HSIC is {estimate} ({interval}).",
        ),
        AuditMeasure(
            name="hsic",
            title="HSIC",
            means="The same before scaling: the squared distance between the joint distribution of {z} and "
            "{s} and the one they would have under independence.",
            not_means="It compares only with values under the same kernels, not with those of other "
            "attributes.",
            compute=lambda subject: subject.interval(HSIC(estimator="unbiased")),
        ),
        AuditMeasure(
            name="distance_correlation",
            title="distance correlation",
            means="Dependence of any kind, by distances between rows instead of kernels, from 0 to 1.",
            not_means="It is no share of variance and no correlation along a line. Under independence it "
            "scatters around zero, also below.",
            compute=_distance_correlation,
        ),
        AuditMeasure(
            name="kernel_hgr",
            title="kernel HGR",
            means="The largest correlation between a smooth function of {z} and a smooth function of {s}.",
            not_means="A largest value is large under independence too, the more so on few rows. Another "
            "smoothness gives another number.",
            compute=_kernel_hgr,
            has_interval=False,
        ),
    )
}
