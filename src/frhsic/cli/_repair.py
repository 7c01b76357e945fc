"""The command ``frhsic repair``."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frhsic._checks import ArgumentError
from frhsic._text import quote
from frhsic.cli import _options as options
from frhsic.cli._input import sample_rows
from frhsic.cli._options import option
from frhsic.cli._output import count_formulas, echo, echo_formulas, echo_warnings, show_status
from frhsic.cli._rules import parse_limit
from frhsic.cli._verdicts import SAVE_MISSED, Verdict, echo_verdicts, judge_limits, make_verdict

if TYPE_CHECKING:
    import pyarrow as pa

# Names of columns that hold ids: "id", "person_id", "customerId", "PERSON".
_ID = re.compile(
    r"(?:^|[\W_])(?i:id|uid|uuid|ids)(?:$|[\W_])|[a-z]I[dD]$"
    r"|^(?i:person|people|customer|client|patient|member|household|user|borrower|applicant)$"
)
_MOST_ROWS = 1_000_000  # that a repair is fitted on
_MOST_JUDGED, _FEWEST_JUDGED = 200_000, 50  # rows of FILE that judge a limit, where --fit is another

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
_Groups = Annotated[
    str | None,
    option(
        "--groups --group COL",
        "A column whose rows of one value (a person, a household) may depend on one another: folds and "
        "intervals are then those of groups.",
    ),
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
    groups: _Groups = None,
    keep: _Keep = None,
    save_missed: options.SaveMissed = False,
    seed: options.Seed = 0,
    missing_values: options.MissingValues = None,
) -> None:
    """Repair scores so that their law is the same along the sensitive columns, without retraining.

    Each score moves towards the mean of the quantiles along the sensitive columns; among people equal in
    these the order is kept. The repaired score needs the sensitive columns at prediction, which law may
    forbid. Files of any size are read in pieces; laws are learned from a million random rows at most.

    A limit is missed where what is left, each row by a map of the other folds, is more than 5 % above it, or
    where the lower end of its interval is above: nothing is then written, and the exit code is 1.

    \b
    Examples:
      frhsic repair scores.csv --score score --sensitive age -o repaired.csv
      frhsic repair scores.csv --score score --sensitive age --limit gap=0.03 -o repaired.parquet --keep sex
      frhsic repair panel.csv --score score --sensitive age --groups person_id -o repaired.csv
    """  # noqa: D301
    options.check_only_one({"--amount": amount, "--limit": limit})
    if amount is not None and not 0 <= amount <= 1:
        raise ArgumentError("--amount", "be from 0 to 1", f"{amount:g}", "Leave it out for 1.")
    limits = parse_limit(limit) if limit else None
    kinds = options.parse_kinds(kind, sensitive)
    options.check_output("-o", output, file, table=True)
    placeholders = options.parse_placeholders(missing_values)
    written = f"{score}_repaired"
    columns = list(dict.fromkeys([*(keep or ()), score]))
    if written in columns:
        raise ArgumentError("--keep", "not name a column that is written", quote(written), "Rename it.")
    with show_status("Loading"):
        import frhsic.data
        import frhsic.repair
        import frhsic.sources

    names = list(dict.fromkeys(sensitive))
    extra = [column for column in (weight, groups) if column is not None]
    ids = [] if groups is not None else _find_ids(fit or file, [score, *names, *extra])
    learn = frhsic.sources.open_source(
        fit or file, columns=list(dict.fromkeys([score, *names, *extra])), missing_values=placeholders
    )
    made = frhsic.repair.ScoreRepair(1.0 if amount is None else amount, limit=limits, random_state=seed)
    table, _ = sample_rows(learn, seed, _MOST_ROWS)
    s = frhsic.data.to_sensitive(table.select(names), kinds=kinds)
    w = None if weight is None else table.column(weight)
    for name in ids:
        _echo_repeated(fit or file, name)
    with show_status("Fitting"), echo_warnings():
        made.fit(
            table.column(score), s, sample_weight=w, groups=None if groups is None else table.column(groups)
        )
    verdicts = _judge(made, limits or {})
    if limits and fit is not None:
        unseen = frhsic.sources.open_source(file, columns=[score, *names], missing_values=placeholders)
        verdicts = _judge_unseen(made, limits, sample_rows(unseen, seed, _MOST_JUDGED)[0], score, kinds, seed)
    kept = echo_verdicts(verdicts)
    if not (kept or save_missed):
        echo(str(made), lines=True)
        echo(f"No scores are written: a limit is missed. {SAVE_MISSED}", error=True)
        raise typer.Exit(1)
    source = frhsic.sources.open_source(
        file, columns=list(dict.fromkeys([*columns, *names])), missing_values=placeholders
    )
    formulas: dict[str, int] = dict.fromkeys(columns, 0)
    with echo_warnings():
        rows = frhsic.sources.write_batches(
            _transform(made, source, score, names, columns, written, kinds, formulas), output
        )
    echo(str(made), lines=True)
    echo(f"Wrote {rows:,} rows to {output}: {', '.join(map(quote, [*columns, written]))}.")
    echo_formulas(formulas, output)
    if not kept:
        raise typer.Exit(1)


def _judge(made: Any, limits: dict[str, Any]) -> list[Verdict]:
    """Return the verdict on each limit: what is left has an interval, of each row by other folds."""
    from frhsic.engine.limits import read_limit

    read = read_limit(limits) if limits else {}
    names = made.sensitive_names_
    verdicts = []
    for key, limit in read.items():
        own = [made.left_[str(key) if len(names) == 1 else f"{key} {name}"] for name in names]
        reached = next(one for one in made.reached_ if one.name == str(key))
        groups = "" if made.n_groups_ is None else f" in {made.n_groups_:,} groups"
        where = f"on {made.n_rows_:,} rows{groups}, each by a map of the other folds"
        verdict = make_verdict(key, limit, reached, own, where=where, hint="")
        # One column of independent rows: what steered is the estimate of the interval, which is printed once.
        same = len(names) == 1 and made.n_groups_ is None
        verdicts.append(replace(verdict, steered="") if same else verdict)
    return verdicts


def _judge_unseen(
    made: Any, limits: dict[str, Any], table: pa.Table, score: str, kinds: Any, seed: int
) -> list[Verdict]:
    """Return the verdict on each limit where FILE is not the file that was learned from."""
    import frhsic.data
    from frhsic.engine.limits import read_limit

    columns = table.select(list(made.sensitive_names_))
    s = frhsic.data.to_sensitive(columns, kinds=kinds, like=made.like_, allow_constant=True, min_rows=1)
    if len(s) < _FEWEST_JUDGED or bool((s.values == s.values[:1]).all(dim=0).any()):
        return _judge(made, limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what lies beyond the rows of fit is said where they are written
        repaired = made.transform(table.column(score), s)
    where = f"on {len(s):,} rows of FILE, which took no part"
    scores = {score: repaired}
    return judge_limits(read_limit(limits), made.reached_, scores, s, None, seed=seed, where=where, hint="")


def _find_ids(file: Path, used: Sequence[str]) -> list[str]:
    """Return the columns of a file whose names are those of ids."""
    import frhsic.sources

    if not file.is_file():
        return []
    return [name for name in frhsic.sources.column_names(file) if _ID.search(name) and name not in used]


def _echo_repeated(file: Path, name: str) -> None:
    """Print a note if a column of ids has one value in several rows."""
    import frhsic.sources

    column = frhsic.sources.read_table(file, columns=[name]).column(name).drop_null()
    different = len(column.unique())
    if different < len(column):
        echo(
            f"Note: {quote(name)} has {different:,} values in {len(column):,} rows. If rows of one value "
            f"depend on one another, folds and intervals must know: pass --groups {quote(name)}.",
            error=True,
        )


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
