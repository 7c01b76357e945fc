"""The answers of inference for a table of counts: the same as for its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import ndtri

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, check_kept
from frhsic.dependence import GDP, HSIC, Dependence, DistanceCovariance, RankGap, ScoreGap
from frhsic.inference._embedding import as_hsic
from frhsic.inference._gaps import Gaps, asked_cutoffs
from frhsic.inference._kernel_intervals import LIMIT_DRAWS, interval_of_embedding
from frhsic.inference._question import IntervalOptions
from frhsic.inference._results import Interval, TestResult
from frhsic.inference._strata import MIN_LABEL_ROWS, MIN_TEST_ROWS
from frhsic.inference._table import MOST_JOINT, TableEmbedding, rng_of
from frhsic.table import Law, ScoreTable, independence


def check_table_alone(**arguments: object) -> None:
    """Raise ArgumentError if an argument is passed that a table already holds."""
    for name, value in arguments.items():
        if value is not None:
            fix = "Pass the table alone."
            raise ArgumentError(name, "be left out beside a table of counts", type(value).__name__, fix)


def table_test(
    table: ScoreTable, given: object, n_permutations: int, generator: torch.Generator
) -> TestResult:
    """Return the test of independence of a table, of all rows or within labels of its outcome."""
    laws = [table.law()]
    notes: tuple[str, ...] = ()
    if given is not None:
        laws, notes = _laws_by_label(table, given)
    n = round(sum(law.n for law in laws))
    if n < MIN_TEST_ROWS:
        raise ArgumentError("scores", f"be a table of at least {MIN_TEST_ROWS} rows", n, "Add rows.")
    found = independence(laws, n_permutations, rng_of(generator))
    return TestResult(
        statistic=found.statistic,
        pvalue=found.pvalue,
        method=found.method,
        measure=found.measure,
        attributes=tuple(axis.name for axis in table.s),
        n=n,
        exact=found.exact,
        n_permutations=n_permutations,
        notes=(*notes, *found.notes),
        null=tuple(found.null.tolist()),
    )


def _laws_by_label(table: ScoreTable, given: object) -> tuple[list[Law], tuple[str, ...]]:
    """Return the law given each label with enough rows; labels of the outcome, as text."""
    known = () if table.outcome is None else table.outcome.labels
    asked = [str(label) for label in given] if isinstance(given, Sequence) else []
    if isinstance(given, str) or not asked or not set(asked) <= set(known):
        fix = f"Take some of {', '.join(known)}." if known else "Count with outcome=."
        raise ArgumentError("given", "be labels of the outcome of the table", repr(given), fix)
    laws = [table.law(known.index(label)) for label in asked]
    kept = [law for law in laws if law.n >= MIN_LABEL_ROWS]
    total, rows = (round(sum(law.n for law in some)) for some in (laws, kept))
    check_kept(rows, total, n_labels=len(laws), min_rows=MIN_LABEL_ROWS)
    skipped = f"{total - rows} rows of labels with fewer than {MIN_LABEL_ROWS} rows were left out."
    return kept, (skipped,) if rows < total else ()


def table_interval(table: ScoreTable, measure: Dependence, options: IntervalOptions) -> Interval:
    """Return the interval of a measure of a table."""
    if isinstance(measure, GDP | ScoreGap | RankGap):
        return table_gaps(table, measure).interval(measure, options)
    if not isinstance(measure, HSIC | DistanceCovariance):
        must = "be HSIC, DistanceCovariance, GDP, ScoreGap or RankGap for a table of counts"
        raise ArgumentError("dependence", must, type(measure).__name__, "Pass the rows.")
    found, hsic = table_embedding(table, measure)
    size = found.size(hsic.normalized)
    return interval_of_embedding(
        found,
        measure,
        options,
        half_width=float(ndtri(0.5 + 0.5 * options.confidence_level)) * found.standard_error(hsic.normalized),
        draws=found.by_chance(LIMIT_DRAWS, options.generator) / size if options.chance else None,
        attributes=tuple(axis.name for axis in table.s),
        notes=found.notes,
    )


def table_gaps(
    table: ScoreTable, measure: GDP | ScoreGap | RankGap, cutoffs: Sequence[float] | None = None
) -> Gaps:
    """Return what is known about the gaps of a table."""
    return Gaps.of(table, asked_cutoffs(measure) if cutoffs is None else cutoffs)


def table_embedding(table: ScoreTable, measure: HSIC | DistanceCovariance) -> tuple[TableEmbedding, HSIC]:
    """Return the embedding of the rows of a table under the kernels of a measure, and it as an HSIC."""
    law = table.law()
    if len(table.s) > 1 and len(law.s) > MOST_JOINT:
        fix = "Pass the rows for many columns jointly."
        raise ArgumentError(
            "scores", f"have at most {MOST_JOINT:,} cells of s for this measure", len(law.s), fix
        )
    values = law.s.copy()
    for j, axis in enumerate(table.s):
        if axis.kind == "labels":
            values[:, j] = np.unravel_index(law.cells, [other.size for other in table.s])[j]
    s = Sensitive(
        torch.from_numpy(np.ascontiguousarray(values)),
        tuple(axis.name for axis in table.s),
        tuple("categorical" if axis.kind == "labels" else "continuous" for axis in table.s),
        tuple(axis.labels or None for axis in table.s),
    )
    hsic = as_hsic(measure, s)
    z = torch.from_numpy(law.z)[:, None]
    return TableEmbedding.of(law, (hsic.kernel_z, hsic._kernel_s(s)), z, s), hsic
