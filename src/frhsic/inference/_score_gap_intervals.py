"""The interval for the gap of a score: that of GDP, for the parts of the score between cut-offs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from frhsic._text import number
from frhsic.dependence import ScoreGap
from frhsic.inference._decision_gaps import cutoffs_of, decision_interval, interval_of, read_sketch
from frhsic.inference._gdp_intervals import (
    CHANCE_ROWS,
    gdp_curve,
    gdp_tails,
    gdp_under_independence,
    rows_to_smooth,
)
from frhsic.inference._kernel_intervals import CHANCE_DRAWS, group_notes
from frhsic.inference._process import Smoothed
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
    check_one_score,
    check_sketch_of_rows,
    note_stored,
    stored_rows,
)
from frhsic.inference._results import Interval
from frhsic.inference._score_table import Table
from frhsic.numerics._permutations import random_orders
from frhsic.sketching import HSICSketch

# Parts into which scores are cut, at equally many rows each.
_PARTS = 16


class GapCurve(NamedTuple):
    """The gap of a score, and the curve along s of the parts of the score whose GDP it nearly is."""

    estimate: float
    missed: float  # what the parts leave out of the estimate
    beside: float  # the mean of the gap over that of the parts, both under independence
    curve: Smoothed
    notes: tuple[str, ...]
    error: float = 0.0  # of the estimate, by levels of the score in a sketch
    n: int | None = None  # rows, where they are those of a sketch

    @property
    def method(self) -> str:
        """How its limits are made."""
        return "Gaussian multiplier process of the parts of the score"

    @property
    def target(self) -> str:
        """What the estimate is about, and under which assumption."""
        cells, between = self.curve.cells, "the mean distance between all scores and those"
        if cells is None:
            return f"{between} near each value of s, weighted as by {self.curve.target}"
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


def gap_curve(rows: Observations, measure: ScoreGap, generator: torch.Generator) -> GapCurve:
    """Return the gap and the curve of parts of the score.

    A score is the sum of its parts between neighbouring cut-offs. The gap of a decision has one sign between
    two near cut-offs, almost everywhere, and then the gap of the score is the sum of the GDP of its parts.
    What it is more, on these rows, is added to the upper limits.
    """
    check_one_score(rows, "the gap of a score")
    rows, means, notes = rows_to_smooth(rows, measure.means, generator)
    parts, ratio = _parts(rows.z, rows.weights / rows.weights.sum())
    means, curve = gdp_curve(replace(rows, z=parts), means, generator)
    estimate = float(measure._with(_cells=means._cells, _ranges=means._ranges)(rows.z, rows.s, rows.w))
    missed = max(0.0, estimate - float(means(parts, rows.s, rows.w)))
    return GapCurve(estimate, missed, ratio, curve, notes)


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


def _gap_of_sketch(sketch: HSICSketch, table: Table) -> GapCurve:
    """Return the gap of all rows of a sketch, with each score at the mean of its level.

    A distance between two laws changes by at most the mean distances that scores move: the gap is off by at
    most twice the mean distance between a score and the mean of its level. Both ends move by that.
    """
    law, mass = sketch.law_z(), table.mass.sum(dim=0)
    level = torch.searchsorted(table.cutoffs, law.places.contiguous())
    held, inside = (
        mass.new_zeros(len(mass)).index_add(0, level, x) for x in (law.mass, law.mass * law.places)
    )
    edges = torch.cat((table.cutoffs[:1], table.cutoffs, table.cutoffs[-1:]))
    z = torch.where(held > 0, inside / held.clamp_min(1e-300), 0.5 * (edges[:-1] + edges[1:]))[:, None]
    step = float(law.places.diff().min()) if len(law.places) > 1 else 0.0
    error = 2.0 * (float(law.mass @ (law.places - z[level, 0]).abs()) + step)
    kept = mass > 0
    some, ratio = _parts(z[kept], mass[kept])
    parts = z.new_zeros((len(z), some.shape[1])).index_copy(0, kept.nonzero()[:, 0], some)
    curve = table.curve(parts)
    estimate = float(
        table.gaps() @ z[:, 0].diff()
    )  # between the means of two levels D is that of the cut-off
    missed = max(0.0, estimate - float(curve.mass @ curve.gaps.abs().mean(dim=1)))
    note = (
        f"By {len(mass):,} levels of the score: within {number(error)} of the gap of the scores themselves; "
        "the interval is longer by that on both sides."
    )
    return GapCurve(estimate, missed, ratio, curve, (note,), error, sketch.n_rows)


def gap_tails(
    found: GapCurve, n_draws: int, generator: torch.Generator
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return the lower and the upper limit of the gap as functions of the chance that each fails."""
    tails = gdp_tails(found.curve, n_draws, generator, standardize=True)
    return (
        lambda tail: max(0.0, min(tails.lower(tail), found.estimate) - found.error),
        lambda tail: max(tails.upper(tail) + found.missed, found.estimate) + found.error,
    )


def score_gap_interval(rows: Observations, measure: ScoreGap, options: IntervalOptions) -> Interval:
    """Return the interval of the gap over all cut-offs, at one, or at the worst."""
    if measure.cutoff is not None:
        return decision_interval(rows, measure, options)
    return _interval(rows, measure, options, gap_curve(rows, measure, options.generator))


def sketch_score_gap_interval(sketch: HSICSketch, measure: ScoreGap, options: IntervalOptions) -> Interval:
    """Return the interval of a sketch: of all its rows where it counts decisions, else of its stored rows."""
    if measure.cutoff is not None:
        rows, decisions = read_sketch(sketch, measure, options.generator, cutoffs_of(measure))
        return interval_of(rows, measure, options, decisions)
    check_sketch_of_rows(sketch, "the gap of a score")
    rows = stored_rows(sketch)
    table = Table.of_sketch(sketch) if measure.bandwidth_s is None else None
    if table is not None:
        return _interval(rows, measure, options, _gap_of_sketch(sketch, table))
    found = gap_curve(rows, measure, options.generator)
    return _interval(rows, measure, options, found._replace(notes=(*found.notes, *note_stored(sketch))))


def _interval(rows: Observations, measure: ScoreGap, options: IntervalOptions, found: GapCurve) -> Interval:
    lower, upper = gap_tails(found, options.n_draws, options.generator)
    tail = 0.5 * (1.0 - options.confidence_level)
    draws = None
    if options.chance and found.n is None and len(rows) <= CHANCE_ROWS and rows.groups is None:
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
        n=found.n or rows.n_units,
        chance=chance,
        chance_high=chance_high,
        notes=(*found.notes, *group_notes(rows), *found.curve.notes()),
    )
