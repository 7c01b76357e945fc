"""Gaps of one score along S from its table: estimates, intervals, bands, and tests that they are small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from frhsic._checks import ArgumentError
from frhsic._text import number
from frhsic.dependence import GDP, RankGap, ScoreGap
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
    check_one_score,
)
from frhsic.inference._results import DecisionGaps, EquivalenceResult, Interval
from frhsic.inference._table import has_table, once, persons_of, table_of
from frhsic.numerics._cells import Cells
from frhsic.table import Floats, GapErrors, GapLimits, Integers, Law, Persons, ScoreTable, coarse_cells

Gap: TypeAlias = GDP | ScoreGap | RankGap

# Gaps of tables that are still in use: an audit asks several questions of one.
_KNOWN: WeakKeyDictionary[ScoreTable, Gaps] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Gaps:
    """What is known about the gaps of a score: those of the cells of S in its table."""

    errors: GapErrors
    ends: Floats  # (k,), where each level of the score ends
    names: tuple[str, ...]
    exact: bool  # whether each value of S is a cell of its own
    n: int | None = None  # persons, where rows are in groups; None: the rows of the law
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, table: ScoreTable, cutoffs: Sequence[float] | None = None, persons: Persons | None = None
    ) -> Gaps:
        """Return the gaps of a table; with ``cutoffs`` those of decisions at these, which it must know.

        ``persons`` tell which of its rows are of one person.
        """
        if cutoffs is None and persons is None and table in _KNOWN:
            return _KNOWN[table]
        law, borders = table.law(), table.score.borders
        for name, cells in (("scores", law.z), ("s", law.s)):
            if len(cells) < 2:
                raise ArgumentError(name, "vary", "a single value", "A gap compares values.")
        starts, ends = (borders[:-1], borders[1:]) if table.score.kind == "ranges" else (borders, borders)
        last = _last_levels(cutoffs, starts, ends, law.levels)
        names = tuple(axis.name for axis in table.s)
        errors = GapErrors.of(table, cutoffs=last, persons=persons)
        exact = len(errors.law.p) == len(law.p) and not law.s_widths.any()
        gaps = cls(errors, ends[law.levels], names, exact)
        if persons is not None:
            return replace(gaps, n=persons.count, notes=_group_notes(persons))
        if cutoffs is None:
            _KNOWN[table] = gaps
        return gaps

    @cached_property
    def cells(self) -> str:
        """The cells in words: "at each of 72 values of age"."""
        size, name = len(self.errors.law.p), " and ".join(self.names)
        if self.exact:
            what = "values" if any(self.errors.law.numbers) or len(self.names) > 1 else "labels"
            return f"at each of {size:,} {what} of {name}"
        share = 100.0 * float(np.median(self.errors.law.p))
        what = "ranges" if len(self.names) == 1 else "cells"
        return f"within {size:,} {what} of {name}, of about {share:.2g} % of the rows each"

    def target(self, measure: Gap) -> str:
        """Return what a gap is about: finer cells have a larger one."""
        if isinstance(measure, GDP):
            what = "the mean distance between the overall mean and those"
        elif isinstance(measure, ScoreGap) and measure.cutoff is not None:
            what = "the mean distance between the overall rate and those"
        elif isinstance(measure, RankGap):
            what = "the gap of decisions, averaged over cut-offs at the score of a random row, of scores"
        else:
            what = "the mean distance between all scores and those"
        finer = "" if self.exact else "; for single values it is at least as large"
        return f"{what} {self.cells}{finer}"

    def limits(self, measure: Gap) -> GapLimits:
        """Return the limits of a measure."""
        if isinstance(measure, GDP):
            return self.errors.mean_gap()
        if isinstance(measure, RankGap):
            return self.errors.rank_gap()
        if measure.cutoff is None:
            return self.errors.score_gap()
        if measure.cutoff == "worst":
            return self.errors.worst()
        return self.errors.decision_gap(int(self.errors.firsts[1]) - 1)

    def interval(self, measure: Gap, options: IntervalOptions) -> Interval:
        """Return the interval of a measure."""
        ends = self.limits(measure).ends(options.confidence_level)
        return Interval(
            estimate=ends.estimate,
            low=ends.low,
            high=ends.high,
            confidence_level=options.confidence_level,
            measure=words_of(measure),
            target=self.target(measure),
            method=ends.method,
            attributes=self.names,
            n=self.n or round(self.errors.law.n),
            chance=ends.chance if options.chance else None,
            chance_high=ends.chance_high if options.chance else None,
            notes=(*self.notes, *ends.notes),
            plug_in=ends.plug_in,
        )

    def below(self, measure: Gap, tolerance: float, alpha: float) -> EquivalenceResult:
        """Return the test whose null hypothesis is that a gap is at least the tolerance."""
        limits = self.limits(measure)
        return EquivalenceResult(
            estimate=limits.ends(1.0 - 2.0 * min(alpha, 0.49)).estimate,
            tolerance=tolerance,
            pvalue=limits.pvalue(tolerance),
            upper=limits.upper(alpha),
            alpha=alpha,
            measure=words_of(measure),
            target=self.target(measure),
            method=limits.method,
            attributes=self.names,
            n=self.n or round(self.errors.law.n),
            notes=(*self.notes, *limits.notes),
        )

    def decisions(self, cutoffs: Sequence[float] | None, options: IntervalOptions) -> DecisionGaps:
        """Return the gaps at asked cut-offs, or at up to 127, with a band for all of them."""
        band = self.errors.at_all_cutoffs(options.confidence_level)
        at = self.ends[band.levels] if cutoffs is None else np.asarray(cutoffs, float)
        order = np.arange(len(at)) if cutoffs is None else np.searchsorted(np.unique(at), at)
        columns = {
            name: tuple(getattr(band, name)[order].tolist())
            for name in ("rates", "low", "high", "chance", "plug_in")
        }
        measure = ScoreGap(cutoff="worst")
        return DecisionGaps(
            cutoffs=tuple(at.tolist()),
            gaps=tuple(band.estimate[order].tolist()),
            **columns,
            confidence_level=options.confidence_level,
            target=f"at each cut-off {self.target(measure)}",
            attributes=self.names,
            n=self.n or round(self.errors.law.n),
            notes=self.notes,
            largest=self.interval(measure, options) if cutoffs is None else None,
        )


def words_of(measure: Gap) -> str:
    """Return a gap in words."""
    return "GDP" if isinstance(measure, GDP) else measure.words


def has_gaps(rows: Observations) -> bool:
    """Return whether a mean gap is one of a score: of several columns, or a constant, there is no table."""
    return rows.z.shape[1] == 1 and bool((rows.z != rows.z[:1]).any())


def gaps_of(rows: Observations, measure: Gap, cutoffs: Sequence[float] | None = None) -> Gaps:
    """Return the gaps of rows of one score; ``measure`` and ``cutoffs`` are what is asked."""
    if bool((rows.z == rows.z[:1]).all()):
        fix = "A constant decides nothing; pass the scores before they are rounded."
        raise ArgumentError("scores", "have more than one value", "the same in every row", fix)
    asked, s, exact = asked_cutoffs(measure) if cutoffs is None else cutoffs, rows.s, None
    if not has_table(rows.z, s, None) or measure._cells is not None:
        # Of several columns, or very many labels, the cells of gaps are those of the table.
        cells = measure._cells or Cells.of(s, rows.weights, rows.effective_units)
        s, exact = (
            once(("cells", id(measure._cells)), (s.values, rows.w), lambda: cells.as_sensitive(s)),
            cells.exact,
        )
    table = table_of(rows.z, s, rows.w, cutoffs=asked or ())
    if rows.groups is None:
        gaps = Gaps.of(table, asked)
    else:
        key, groups = ("gaps of groups", None if asked is None else tuple(asked)), rows.groups
        tensors = (rows.z, s.values, rows.w, groups)
        gaps = once(key, tensors, lambda: Gaps.of(table, asked, persons_of(table, rows.z, s, rows.w, groups)))
    return gaps if exact is None else replace(gaps, names=rows.s.names, exact=exact)


def gap_interval(rows: Observations, measure: ScoreGap | RankGap, options: IntervalOptions) -> Interval:
    """Return the interval of a gap of a score: over all cut-offs, of ranks, at one cut-off or the worst."""
    check_one_score(rows, "the rank gap" if isinstance(measure, RankGap) else "the gap of a score")
    return gaps_of(rows, measure).interval(measure, options)


def _group_notes(persons: Persons) -> tuple[str, ...]:
    return (f"n counts groups, of {len(persons.share):,} rows.",)


def asked_cutoffs(measure: Gap) -> list[float] | None:
    """Return the cut-off of a measure of decisions at one."""
    cutoff = measure.cutoff if isinstance(measure, ScoreGap) else None
    return None if cutoff is None or cutoff == "worst" else [float(cutoff)]


def _is_exact(law: Law) -> bool:
    """Return whether each value of S is a cell of its own."""
    return bool(coarse_cells(law).max() + 1 == len(law.p) and not law.s_widths.any())


def _last_levels(
    cutoffs: Sequence[float] | None, starts: Floats, ends: Floats, levels: Integers
) -> Integers | None:
    """Return which of some levels of the score is the last one that is not above each cut-off."""
    if cutoffs is None:
        return None
    below = np.searchsorted(ends, cutoffs, side="right")
    found = np.searchsorted(levels, below - 1, side="right")
    for cutoff, level, count in zip(cutoffs, below, found, strict=True):
        if level < len(ends) and starts[level] < cutoff and level in levels:
            fix = "Make the table with at_scores=(cutoff,)."
            raise ArgumentError("cutoffs", "be borders of the levels of the table", number(cutoff), fix)
        if not 0 < count < len(levels):
            got = f"{number(cutoff)}, with all scores {'above' if count == 0 else 'not above'} it"
            raise ArgumentError("cutoffs", "have scores on both sides", got, "Take one between the scores.")
    return np.unique(found - 1)
