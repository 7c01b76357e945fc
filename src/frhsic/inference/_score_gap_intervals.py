"""The interval for the gap of a score: that of GDP, for the parts of the score between cut-offs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from frhsic.dependence import RankGap, ScoreGap, mid_ranks
from frhsic.inference._decision_gaps import decision_interval
from frhsic.inference._gaps import gaps_of
from frhsic.inference._gdp_intervals import (
    CHANCE_ROWS,
    gdp_curve,
    gdp_tails,
    gdp_under_independence,
)
from frhsic.inference._kernel_intervals import CHANCE_DRAWS, group_notes
from frhsic.inference._process import Smoothed
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
    check_one_score,
)
from frhsic.inference._results import Interval
from frhsic.numerics._permutations import random_orders

# Parts into which scores are cut, at equally many rows each.
_PARTS = 16


class GapCurve(NamedTuple):
    """The gap of a score, and the curve along s of the parts of the score whose GDP it nearly is."""

    estimate: float
    missed: float  # what the parts leave out of the estimate
    beside: float  # the mean of the gap over that of the parts, both under independence
    curve: Smoothed

    @property
    def method(self) -> str:
        """How its limits are made."""
        return "Gaussian multiplier process of the parts of the score"

    @property
    def target(self) -> str:
        """What the estimate is about, and under which assumption."""
        cells, between = self.curve.cells, "the mean distance between all scores and those"
        name = " and ".join(cells.names)
        if cells.exact:
            return f"{between} at each value of {name}"
        wide = cells.mass[~cells.single]
        share = f"{100 * float(wide.median()):.2g} % of the rows"
        ranges = f"within {len(wide)} ranges of {name}, of about {share} each"
        if not (cells.narrow and len(cells.names) == 1):
            return f"{between} {ranges}; for single values it is at least as large"
        monotone = f"the share above each cut-off only rises or only falls {ranges}, and their neighbours"
        return f"{between} at each value of {name}; the lower end always holds, the upper end if {monotone}"


def gap_curve(rows: Observations, measure: ScoreGap) -> GapCurve:
    """Return the gap and the curve of parts of the score.

    A score is the sum of its parts between neighbouring cut-offs. The gap of a decision has one sign between
    two near cut-offs, almost everywhere, and then the gap of the score is the sum of the GDP of its parts.
    What it is more, on these rows, is added to the upper limits.
    """
    check_one_score(rows, "the gap of a score")
    parts, ratio = _parts(rows.z, rows.weights / rows.weights.sum())
    means, curve = gdp_curve(replace(rows, z=parts), measure.means)
    estimate = float(measure._with(_cells=means._cells)(rows.z, rows.s, rows.w))
    missed = max(0.0, estimate - float(means(parts, rows.s, rows.w)))
    return GapCurve(estimate, missed, ratio, curve)


def cut_scores(u: Tensor, upto: Tensor) -> Tensor:
    """Return cut-offs of equally many rows between them, of sorted scores and the shares up to each."""
    at = torch.searchsorted(upto, torch.linspace(0, 1, _PARTS + 1, dtype=torch.float64))
    return u[at.clamp_max(len(u) - 1)].unique()


def _parts(z: Tensor, w: Tensor) -> tuple[Tensor, float]:
    """Return the parts of scores ``(n, 1)`` between cut-offs, and ``beside``; weights are of sum one."""
    u, order = z[:, 0].sort()
    F = w[order].cumsum(0)
    cuts = cut_scores(u, F)
    # GDP is a mean over columns: their number makes it a sum.
    parts = (len(cuts) - 1) * (z.clamp(cuts[:-1], cuts[1:]) - cuts[:-1])
    # Under independence means of rows err by their deviations, those of decisions by sqrt(F (1 - F)).
    decisions = float((F * (1.0 - F)).clamp_min(0.0).sqrt()[:-1] @ u.diff())
    deviations = (w @ (parts - w @ parts).square()).sqrt()
    return parts, decisions / float(deviations.mean())


def gap_tails(
    found: GapCurve, n_draws: int, generator: torch.Generator
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return the lower and the upper limit of the gap as functions of the chance that each fails."""
    tails = gdp_tails(found.curve, n_draws, generator, standardize=True)
    return (
        lambda tail: max(0.0, min(tails.lower(tail), found.estimate)),
        lambda tail: max(tails.upper(tail) + found.missed, found.estimate),
    )


def score_gap_interval(rows: Observations, measure: ScoreGap, options: IntervalOptions) -> Interval:
    """Return the interval of the gap over all cut-offs, at one, or at the worst."""
    check_one_score(rows, "the gap of a score")
    found = gaps_of(rows, measure)
    if found is not None:
        return found.interval(measure, options)
    if measure.cutoff is not None:
        return decision_interval(rows, measure, options)
    return _interval(rows, measure, options, gap_curve(rows, measure))


def rank_gap_interval(rows: Observations, measure: RankGap, options: IntervalOptions) -> Interval:
    """Return the interval of the rank gap; of groups of rows that of the score gap of their mid-ranks."""
    check_one_score(rows, "the rank gap")
    found = gaps_of(rows, measure)
    if found is not None:
        return found.interval(measure, options)
    ranked = replace(rows, z=mid_ranks(rows.z[:, 0], rows.weights)[:, None])
    by_rows = _interval(ranked, ScoreGap(), options, gap_curve(ranked, ScoreGap()))
    return replace(by_rows, measure=measure.words, notes=(*by_rows.notes, "Ranks are those of these rows."))


def _interval(rows: Observations, measure: ScoreGap, options: IntervalOptions, found: GapCurve) -> Interval:
    lower, upper = gap_tails(found, options.n_draws, options.generator)
    tail = 0.5 * (1.0 - options.confidence_level)
    draws = None
    if options.chance and len(rows) <= CHANCE_ROWS and rows.groups is None:
        fixed = measure.calibrate(rows.z, rows.s, weights=rows.w)
        orders = random_orders(len(rows), CHANCE_DRAWS, options.generator)
        draws = fixed.permuted(rows.z, rows.s, orders, rows.w)
    elif options.chance:
        draws = found.beside * gdp_under_independence(found.curve, options.generator)
    chance, chance_high = options.summarize(draws)
    return Interval(
        estimate=found.estimate,
        low=lower(tail),
        high=upper(tail),
        confidence_level=options.confidence_level,
        measure=measure.words,
        target=found.target,
        method=found.method,
        attributes=rows.s.names,
        n=rows.n_units,
        chance=chance,
        chance_high=chance_high,
        notes=(*group_notes(rows), *found.curve.notes()),
    )
