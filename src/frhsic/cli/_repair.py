"""The command ``frhsic repair``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from frhsic._checks import ArgumentError
from frhsic._text import quote
from frhsic.cli import _options as options
from frhsic.cli._input import sample_rows
from frhsic.cli._options import option
from frhsic.cli._output import count_formulas, echo, echo_formulas, echo_warnings, show_status
from frhsic.cli._rules import parse_limit

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_ROWS = 1_000_000  # that a repair is fitted on

_Score = Annotated[str, option("--score COL", "The column to repair.")]
_Amount = Annotated[
    float | None, option("--amount X", "How far scores move, from 0 to 1; 1 unless --limit is given.")
]
_Limit = Annotated[
    list[str] | None,
    option("--limit MEASURE=X", "The least amount that leaves at most this: gap=0.02, say. May be repeated."),
]
_Fit = Annotated[
    Path | None,
    option("--fit FILE", "Another file to learn the laws of scores from; FILE itself unless given."),
]
_Keep = Annotated[list[str] | None, option("--keep COL", "A column to write beside; may be repeated.")]


def repair(
    file: options.File,
    score: _Score,
    sensitive: options.Sensitive,
    output: options.Table,
    amount: _Amount = None,
    limit: _Limit = None,
    fit: _Fit = None,
    kind: options.Kinds = None,
    weight: options.Weight = None,
    keep: _Keep = None,
    seed: options.Seed = 0,
    missing_values: options.MissingValues = None,
) -> None:
    """Repair scores so that their law is the same along the sensitive columns, without retraining.

    Each score moves towards the mean of the quantiles along the sensitive columns; among people equal in
    these the order is kept. The repaired score needs the sensitive columns at prediction, which law may
    forbid. Files of any size are read in pieces; laws are learned from a million random rows at most.

    \b
    Examples:
      frhsic repair scores.csv --score score --sensitive age -o repaired.csv
      frhsic repair scores.csv --score score --sensitive age --limit gap=0.03 -o repaired.parquet --keep sex
    """  # noqa: D301
    options.check_only_one({"--amount": amount, "--limit": limit})
    if amount is not None and not 0 <= amount <= 1:
        raise ArgumentError("--amount", "be from 0 to 1", f"{amount:g}", "Leave it out for 1.")
    limits = parse_limit(limit) if limit else None
    kinds = options.parse_kinds(kind, sensitive)
    options.check_output("-o", output, file, table=True)
    placeholders = options.parse_placeholders(missing_values)
    written = f"{score}_repaired"
    kept = list(dict.fromkeys([*(keep or ()), score]))
    if written in kept:
        raise ArgumentError("--keep", "not name a column that is written", quote(written), "Rename it.")
    with show_status("Loading"):
        import frhsic.data
        import frhsic.repair
        import frhsic.sources

    names = list(dict.fromkeys(sensitive))
    weights = [] if weight is None else [weight]
    learn = frhsic.sources.open_source(
        fit or file, columns=[score, *names, *weights], missing_values=placeholders
    )
    made = frhsic.repair.ScoreRepair(1.0 if amount is None else amount, limit=limits, random_state=seed)
    table, _ = sample_rows(learn, seed, _MOST_ROWS)
    s = frhsic.data.to_sensitive(table.select(names), kinds=kinds)
    w = None if weight is None else table.column(weight)
    with show_status("Fitting"), echo_warnings():
        made.fit(table.column(score), s, sample_weight=w)
    source = frhsic.sources.open_source(
        file, columns=list(dict.fromkeys([*kept, *names])), missing_values=placeholders
    )
    formulas: dict[str, int] = dict.fromkeys(kept, 0)
    with echo_warnings():
        rows = frhsic.sources.write_batches(
            _transform(made, source, score, names, kept, written, kinds, formulas), output
        )
    echo(str(made), lines=True)
    echo(f"Wrote {rows:,} rows to {output}: {', '.join(map(quote, [*kept, written]))}.")
    echo_formulas(formulas, output)


def _transform(
    made: Any,
    source: Any,
    score: str,
    names: list[str],
    kept: Sequence[str],
    written: str,
    kinds: Any,
    formulas: dict[str, int],
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    import frhsic.data

    for batch in source:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        s = frhsic.data.to_sensitive(
            table.select(names), kinds=kinds, like=made.like_, allow_constant=True, min_rows=1
        )
        repaired = pa.array(made.transform(table.column(score), s))
        columns = {name: table.column(name).combine_chunks() for name in kept}
        for name, column in columns.items():
            formulas[name] += count_formulas(column)
        yield pa.RecordBatch.from_pydict({**columns, written: repaired})
