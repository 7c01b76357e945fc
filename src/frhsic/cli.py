"""The command line: tables in, sentences, tables and files out. The only module that prints.

Whatever is wrong with the input ends in one sentence on stderr and exit code 2, a gate that is not passed in
exit code 1. Everything heavy is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import errno
import importlib.metadata
import inspect
import io
import json
import math
import os
import re
import shlex
import sys
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

    from frhsic.auditing import Attribute, Audit
    from frhsic.selection import Point
    from frhsic.sources import Source

_MEASURES = ("gdp", "normalized_hsic", "hsic", "distance_correlation", "kernel_hgr")
# Beside the outcome: the gap within the favourable label, within each label, and of outcome minus score.
_OUTCOME_MEASURES = ("equal_opportunity", "equalized_odds", "calibration_gap")
_ENDS = {"estimate": "estimate", "lower": "low", "upper": "high"}
_RULES = ("within", "lowest", "knee", "not-rejected", "equivalent")
_PICTURES = (".png", ".svg", ".pdf")
_FEWEST = 52  # rows to choose on: fewer cannot be whitened in a representation of 50 columns
_CHUNK = 65_536  # rows that a prediction holds at a time
_IN_MEMORY = 500_000  # rows that an audit reads as they are; more are sketched
_IN_MEMORY_BYTES = 256 << 20  # the same for a CSV file, which does not say how many rows it has
_MANY = 20_000_000  # rows from which on a sketch is worth all cores
_ENGINES = ("auto", "local", "pool", "ray")
_LONGEST = 60  # characters of a name on the screen
_MOST_LABELS = 100

app = typer.Typer(
    name="frhsic",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Refusal(Exception):  # noqa: N818
    """One sentence for the person at the terminal, with the cure."""


# ---- options -----------------------------------------------------------------------------------------------

_File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A CSV, Parquet or Arrow file.", show_default=False)
]
_Sensitive = Annotated[
    list[str], typer.Option("--sensitive", metavar="COL", help="A sensitive column; may be repeated.")
]
_Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="COL=KIND",
        help="Take a sensitive column as continuous or categorical. Unless said, numbers are continuous "
        "and text is categorical.",
    ),
]
_Weight = Annotated[
    str | None, typer.Option("--weight", metavar="COL", help="How many people each row stands for.")
]
_Seed = Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same numbers.")]
_Target = Annotated[str, typer.Option("--target", metavar="COL", help="The column to predict.")]
_Model = Annotated[Path, typer.Option("-o", "--output", metavar="MODEL", help="Where to save the model.")]
_Task = Annotated[str, typer.Option("--task", metavar="TASK", help="auto, classification or regression.")]
_Drop = Annotated[
    list[str] | None, typer.Option("--drop", metavar="COL", help="A column that is no feature.")
]
_KeepSensitive = Annotated[
    bool, typer.Option("--keep-sensitive", help="Use the sensitive columns as features too.")
]
_SaveHoldout = Annotated[
    Path | None,
    typer.Option("--save-holdout", metavar="OUT", help="Write the held-out rows, for predict and audit."),
]
_Epochs = Annotated[int, typer.Option("--epochs", metavar="N", help="Passes over the rows.")]
_Json = Annotated[Path | None, typer.Option("--json", metavar="OUT.json", help="Write every number as JSON.")]
_DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave out rows in which one of the named columns is empty.")
]
_MissingValues = Annotated[
    str | None,
    typer.Option(
        "--missing-values",
        metavar="LIST",
        help="Cells that stand for no value, such as unknown,-999. They count as empty in every column that "
        "is read.",
    ),
]


# ---- audit -------------------------------------------------------------------------------------------------


@app.command()
def audit(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A CSV, Parquet or Arrow file; a folder, a quoted pattern ('scores/*.parquet') or URL of "
            "such files; or, with --query, a PostgreSQL database: its URL, or the name of an environment "
            "variable that holds it.",
            show_default=False,
        ),
    ],
    score: Annotated[
        list[str],
        typer.Option("--score", metavar="COL", help="The score; several columns are a representation."),
    ],
    sensitive: _Sensitive,
    kind: _Kinds = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="COL", help="The outcome that the score predicts.")
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option("--positive", metavar="LABEL", help="The favourable outcome; else the last label."),
    ] = None,
    weight: _Weight = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="COL", help="Rows of equal COL, such as a person, may depend on one another."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="OUT.html", help="Write a report with pictures.")
    ] = None,
    as_json: _Json = None,
    confidence_level: Annotated[
        float,
        typer.Option(
            "--confidence-level", help="The confidence of each interval, and of all claims together."
        ),
    ] = 0.95,
    seed: _Seed = 0,
    trained_on: Annotated[
        bool | None,
        typer.Option(
            "--trained-on/--held-out", help="Whether the model was trained on these rows.", show_default=False
        ),
    ] = None,
    fail_above: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-above",
            metavar="MEASURE=X",
            help=f"Exit with 1 if a measure is above X on any sensitive column: {', '.join(_MEASURES)}; with "
            f"--label also {', '.join(_OUTCOME_MEASURES)}.",
        ),
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="END",
            help="What --fail-above compares. estimate; upper: the upper end of the interval, so that only "
            "what is shown to be below passes; lower: the lower end, so that only what is shown to be above "
            "fails.",
        ),
    ] = "estimate",
    drop_missing: _DropMissing = False,
    missing_values: _MissingValues = None,
    query: Annotated[
        str | None, typer.Option("--query", metavar="SELECT", help="What to read from a database.")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="ENGINE",
            help=f"auto: rows as they are, above {_IN_MEMORY:,} by a sketch, above {_MANY:,} on all cores. "
            "local, pool, ray: a sketch by this process, on all cores, or on a Ray cluster (RAY_ADDRESS).",
        ),
    ] = "auto",
    partials: Annotated[
        Path | None,
        typer.Option(
            "--partials", metavar="DIR", help="Keep what is done of a sketch, to go on after a stop."
        ),
    ] = None,
) -> None:
    """Say how much a score depends on sensitive columns, how sure that is, and what chance alone gives.

    A small dependence is small under these measures and on these rows; it is no verdict about the model.
    Tables too large for memory are read once for each sensitive column and once for all of them, and
    sketched; the report says what then comes from a sample of 5,000 rows.

    \b
    Examples:
      frhsic audit scores.csv --score score --sensitive age
      frhsic audit scores.csv --score score --sensitive age --sensitive sex --label income --held-out
      frhsic audit scores.csv --score score --sensitive age --report audit.html --json audit.json
      frhsic audit scores.csv --score score --sensitive age --fail-above gdp=0.25
      frhsic audit 'scores/*.parquet' --score score --sensitive age --report audit.html
      frhsic audit BANK_DATABASE --query "SELECT score, age FROM scores" --score score --sensitive age
    """  # noqa: D301
    limits = _limits(fail_above or [], fail_on, several=len(set(score)) > 1, outcome=label is not None)
    kinds = _kinds(kind or [], sensitive)
    if not 0 < confidence_level < 1:
        raise Refusal(
            f"--confidence-level must lie between 0 and 1. Got {confidence_level:g}. Pass 0.95, say."
        )
    if positive is not None and label is None:
        raise Refusal("--positive must come with --label. Got no outcome. Name its column with --label.")
    _check_outputs({"--report": report, "--json": as_json}, Path(file))
    if engine not in _ENGINES:
        raise Refusal(f"--engine must be one of {', '.join(_ENGINES)}. Got {_quoted(engine)}. Leave it out.")
    options = {
        "--score": score,
        "--sensitive": sensitive,
        "--label": label,
        "--weight": weight,
        "--group": group,
    }
    placeholders = _placeholders(missing_values)
    source = _large(file, query, engine, options, placeholders, drop_missing=drop_missing)
    with _busy("Loading"):
        from frhsic.auditing import audit as run_audit
        from frhsic.auditing import audit_source
    _on_one_thread()
    if source is None:
        if partials is not None:
            raise Refusal(
                "--partials must come with a sketch. Got rows that are read as they are. "
                "Leave it out, or add --engine local."
            )
        table = _columns(Path(file), options, placeholders)
        if drop_missing:
            table = _without_missing(table, table.column_names)
        with _told():
            found = run_audit(
                table.select(list(dict.fromkeys(score))),
                sensitive_features=table.select(list(dict.fromkeys(sensitive))),
                y_true=None if label is None else table.column(label),
                sample_weight=None if weight is None else table.column(weight),
                groups=None if group is None else table.column(group),
                kinds=kinds,
                confidence_level=confidence_level,
                random_state=seed,
                trained_on=trained_on,
                positive_label=_positive(positive, table, label),
            )
    else:
        with _told(), _watched() as watch:
            found = audit_source(
                source,
                scores=score,
                sensitive_features=sensitive,
                y_true=label,
                sample_weight=weight,
                kinds=kinds,
                groups=group,
                confidence_level=confidence_level,
                random_state=seed,
                trained_on=trained_on,
                positive_label=None if positive is None else _positive(positive, source.sample(), label),
                engine=_engine(engine, source),
                partials=partials,
                progress=watch,
            )
        _say(next(note for note in found.notes if note.startswith("Of a sketch")), error=True)
    if report is not None:
        with _busy("Drawing the report"):
            _write_report(found, report, _named_source(file))
    if as_json is not None:
        _write_json(found.to_dict(), as_json)
    _show_audit(found, _named_source(file), score)
    for path in (report, as_json):
        if path is not None:
            _say(f"Wrote {path}.")
    raise typer.Exit(_gate(found, limits, fail_on))


def _large(
    file: str,
    query: str | None,
    engine: str,
    options: dict[str, Any],
    placeholders: Sequence[str],
    *,
    drop_missing: bool,
) -> Source | None:
    """Return the rows as a source where they are to be sketched; None where they can be read as they are."""
    from frhsic.sources import column_names, open_source, open_sql

    if query is not None:
        with _busy("Asking the database"):
            source = open_sql(file, query, allow_missing=drop_missing)
        source = dataclasses.replace(source, missing_values=tuple(placeholders))
        _named_columns(list(source.columns), options)
        return source
    path = Path(file)
    if path.is_file():
        _named_columns(column_names(path), options)
    wanted = [
        name for given in options.values() for name in ([given] if isinstance(given, str) else given or [])
    ]
    with _busy(f"Looking at {_short(_named_source(file))}"):
        source = open_source(file, columns=wanted, allow_missing=drop_missing, missing_values=placeholders)
    small = source.rows is not None and source.rows <= _IN_MEMORY
    if path.is_file() and source.rows is None:
        small = path.stat().st_size <= _IN_MEMORY_BYTES
    return None if engine == "auto" and path.is_file() and small else source


def _engine(name: str, source: Source) -> Any:
    from frhsic.runners import Local, Pool, Ray

    if name == "auto":
        files = all(piece.path for piece in source.pieces)
        many = source.rows is None or source.rows >= _MANY
        name = "pool" if files and many and len(source.pieces) > 1 else "local"
    return {"local": Local, "pool": Pool, "ray": Ray}[name]()


def _named_source(file: str) -> str:
    """Return what is audited as it may be shown: of a URL neither user, password nor query."""
    from frhsic.sources._stores import shown

    return shown(file)


@contextlib.contextmanager
def _watched() -> Iterator[Any]:
    """Show in a terminal how far a sketch is."""
    console = _err()
    if not console.is_terminal:
        yield None
        return
    with console.status(Text("Reading ...")) as status:
        yield lambda names, state: status.update(Text(_clean(f"{names}: {state}")))


def _limits(given: Sequence[str], end: str, *, several: bool, outcome: bool) -> dict[str, float]:
    if end not in _ENDS:
        raise Refusal(
            f"--fail-on must be one of {', '.join(_ENDS)}. Got {_quoted(end)}. Leave it out for estimate."
        )
    if end != "estimate" and not given:
        raise Refusal(
            f"--fail-on must come with --fail-above. Got {end} and no limit. Add --fail-above gdp=0.05, say."
        )
    if not given:
        return {}
    from frhsic.auditing import MEASURES

    limits: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        name = name.strip().lower().replace("-", "_")
        if name not in (*MEASURES, *_OUTCOME_MEASURES):
            raise Refusal(
                "--fail-above must be MEASURE=NUMBER with one of "
                f"{', '.join((*MEASURES, *_OUTCOME_MEASURES))}. "
                f"Got {_quoted(text)}. Write --fail-above gdp=0.05, say."
            )
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not math.isfinite(limit):
            raise Refusal(
                f"--fail-above must be MEASURE=NUMBER. Got {_quoted(text)}. "
                f"Write --fail-above {name}=0.05, say."
            )
        if several and (name in _OUTCOME_MEASURES or MEASURES[name].of_score):
            raise Refusal(
                f"--fail-above {name} must have a single --score: it is a gap between mean scores. Got "
                "several. Take normalized_hsic for a representation."
            )
        if name in _OUTCOME_MEASURES and not outcome:
            raise Refusal(
                f"--fail-above {name} must come with --label. Got no outcome. Name its column with --label."
            )
        if end != "estimate" and name in MEASURES and not MEASURES[name].has_interval:
            raise Refusal(
                f"--fail-above {name} must come with --fail-on estimate: it has no interval. Got {end}. "
                "Take distance_correlation."
            )
        limits[name] = limit
    return limits


def _gate(found: Audit, limits: dict[str, float], end: str) -> int:
    """Say which measures are above their limits; return the exit code."""
    failed = 0
    for name, limit in limits.items():
        for one in found.attributes:
            for title, measured in _gated(one, name):
                what = f"{title} on {_short(one.name)}"
                failed += _fails(what, measured, limit, end)
    return 1 if failed else 0


def _gated(one: Attribute, name: str) -> list[tuple[str, Any]]:
    """Return what a limit is about: one measure, or one for each label of the outcome."""
    from frhsic.auditing import MEASURES

    if name in MEASURES:
        return [(MEASURES[name].short, one.measures.get(name))]
    outcome = one.outcome
    if name == "calibration_gap":
        return [("the calibration gap", None if outcome is None else outcome.calibration_gap)]
    gaps = [
        (f"GDP where the outcome is {_short(given.label)},", given.gdp)
        for given in (() if outcome is None else outcome.labels)
        if outcome is not None and (name == "equalized_odds" or given.label == outcome.equal_opportunity)
    ]
    return gaps or [(name.replace("_", " "), None)]


def _fails(what: str, measured: Any, limit: float, end: str) -> bool:
    """Say whether a measure keeps its limit; what cannot be measured does not."""
    from frhsic.auditing import Estimate

    if measured is None:
        _say(
            f"FAILED: {what} cannot be measured on these rows, so it is not shown to keep {_number(limit)}.",
            error=True,
        )
        return True
    if isinstance(measured, Estimate):
        above = bool(measured.estimate > limit)
        sure = f"Under independence it is seldom above {_number(measured.chance_high)}."
        said = f"is {_number(measured.estimate)}, which {'is above' if above else 'is not above'}"
    else:
        value = getattr(measured, _ENDS[end])
        above = bool(value > limit)
        where = (
            "lies above the limit as a whole"
            if measured.low > limit
            else "lies below the limit as a whole"
            if measured.high < limit
            else "holds the limit: these rows leave open on which side the true value is"
        )
        ends = f"{_number(measured.low)} to {_number(measured.high)}"
        sure = f"The {100 * measured.confidence_level:g}% interval, {ends}, {where}."
        said = {
            "estimate": f"is {_number(value)}, which {'is above' if above else 'is not above'}",
            "upper": "is not shown to be below" if above else "is shown to be at most",
            "lower": "is shown to be above" if above else "is not shown to be above",
        }[end]
    _say(f"{'FAILED' if above else 'Passed'}: {what} {said} {_number(limit)}. {sure}", error=above)
    return above


def _positive(text: str | None, table: pa.Table, label: str | None) -> Any:
    """Return the label of the outcome that reads like what was typed."""
    if text is None or label is None:
        return None
    from frhsic.data import split_labels

    known = [one.value for one in split_labels(table.column(label), name="y_true").kept]
    for value in known:
        if str(value) == text:
            return value
    raise Refusal(
        f"--positive must be a label of column {_quoted(label)}. Got {_quoted(text)}. "
        f"Take one of {_listed([str(value) for value in known])}."
    )


def _write_report(found: Audit, path: Path, source: str) -> None:
    from frhsic.report import write_report

    command = shlex.join(["frhsic", *map(_named_source, _ARGUMENTS)])
    write_report(found, path, command=command, source=source)


def _write_bytes(content: bytes, path: Path) -> None:
    from frhsic.sources import replacing

    with replacing(path) as file:
        file.write(content)


def _write_json(found: dict[str, Any], path: Path) -> None:
    # Only ASCII goes out, so that no control character of a column's name reaches a terminal.
    text = json.dumps(found, indent=2, allow_nan=False)
    _write_bytes(text.encode() + b"\n", path)


def _show_audit(found: Audit, source: str, score: Sequence[str]) -> None:
    what = f"score {_quoted(score[0])}" if found.subject == "score" else f"{found.width} columns"
    groups = "" if found.groups is None else f" in {found.groups:,} groups"
    _say(f"Audit of {what} in {_short(Path(source).name)}: {found.n:,} rows{groups}.", style="bold")
    summary = str(found)
    for name in {name for one in found.attributes for name in one.names}:
        summary = summary.replace(name, _short(name)) if len(name) > _LONGEST else summary
    for paragraph in summary.splitlines():
        if paragraph.strip():
            _say("")
            _say(paragraph)
    for note in found.notes[1:] if found.trained_on else found.notes:
        if not note.startswith("Of a sketch"):  # said before, while it was made
            _say("")
            _say(f"Note: {note}")
    for one in found.every:
        _say("")
        _out().print(_numbers(one, found))
    _say("")
    _say(
        "GDP is the mean gap between the score at a value and overall, in units of the score. For the others "
        "0 is none, and 1 the most (HSIC alone has no such end). By chance: what is seen on average without "
        f"any dependence, and what is then exceeded in 1 of {round(1 / (1 - found.confidence_level)):,} "
        "samples."
    )


def _numbers(one: Attribute, found: Audit) -> Table:
    """Return the numbers on one attribute as a table that fits into 80 columns."""
    corrected = "" if one.test.adjusted is None else " (corrected)"
    title = f"Dependence on {_short(one.name)}: p = {_number(one.test.reported)}{corrected}"
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    table.box, table.show_edge, table.pad_edge = box.SIMPLE_HEAD, False, False
    table.add_column("measure", no_wrap=True)
    for heading in ("estimate", f"{found.confidence_level:.0%} interval", "by chance", "seldom above"):
        table.add_column(heading, justify="right", no_wrap=True)
    from frhsic.auditing import MEASURES, Estimate

    results: list[tuple[str, Any]] = [(MEASURES[name].short, result) for name, result in one.measures.items()]
    for title, measured in [*results, *_beside(one)]:
        alone = isinstance(measured, Estimate)
        interval = "" if alone else f"{_cell(measured.low)} to {_cell(measured.high)}"
        chance = ["" if x is None else _cell(x) for x in (measured.chance, measured.chance_high)]
        table.add_row(title, _cell(measured.estimate), interval, *chance)
    return table


def _beside(one: Attribute) -> list[tuple[str, Any]]:
    """Return the gaps beside the outcome, with titles that fit into the table."""
    outcome = one.outcome
    if outcome is None:
        return []
    rows = []
    for given in outcome.labels:
        label = _clean(given.label)
        rows.append((f"GDP, outcome {label if len(label) <= 8 else label[:7] + '…'}", given.gdp))
    rows.append(("calibration gap", outcome.calibration_gap))
    return [(title, gap) for title, gap in rows if gap is not None]


# ---- train -------------------------------------------------------------------------------------------------


@app.command()
def train(
    file: _File,
    target: _Target,
    sensitive: _Sensitive,
    output: _Model,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="SHARE",
            help="Share, from above 0 to 1, of the dependence of a model without penalty that may be left in "
            "training; 0.1 unless --lam is given.",
        ),
    ] = None,
    lam: Annotated[
        float | None,
        typer.Option(
            "--lam", metavar="X", help="Strength of a penalty instead, without a unit; 0 trains without."
        ),
    ] = None,
    task: _Task = "auto",
    kind: _Kinds = None,
    weight: _Weight = None,
    drop: _Drop = None,
    keep_sensitive: _KeepSensitive = False,
    holdout: Annotated[
        float, typer.Option("--holdout", metavar="SHARE", help="Share of rows to judge on, not to train on.")
    ] = 0.0,
    save_holdout: _SaveHoldout = None,
    epochs: _Epochs = 200,
    seed: _Seed = 0,
    drop_missing: _DropMissing = False,
    missing_values: _MissingValues = None,
) -> None:
    """Train a model whose score depends less on the sensitive columns.

    Features are all columns other than target, weight and sensitive ones; text becomes categories, empty
    cells are filled. With --drop-missing, rows are left out where target, weight or a sensitive column is
    empty. To choose among several budgets, see: frhsic frontier --help

    \b
    Examples:
      frhsic train people.csv --target income --sensitive age -o model.frhsic --epochs 5
      frhsic train people.csv --target income --sensitive age --budget 0.2 -o model.frhsic --epochs 5
        --holdout 0.3 --save-holdout held_out.csv
      frhsic train people.csv --target income --sensitive age --lam 3 -o model.frhsic --epochs 5
    """  # noqa: D301
    _check_task(task)
    if budget is not None and lam is not None:
        raise Refusal("--budget must come without --lam. Got both. Leave one of them out.")
    if budget is not None and not 0 < budget <= 1:
        raise Refusal(
            "--budget must lie above 0 and be at most 1: a share of the dependence of a model without "
            f"penalty. Got {budget:g}. Pass 0.1, say, or --lam 0 to train without a penalty."
        )
    _check_holdout(holdout, save_holdout)
    kinds = _kinds(kind or [], sensitive)
    _check_outputs({"-o": output, "--save-holdout": save_holdout}, file)
    data = _training_data(
        file,
        target,
        sensitive,
        task,
        kinds,
        weight,
        drop or [],
        keep_sensitive,
        drop_missing,
        missing_values,
    )
    with _busy("Loading"):
        from sklearn.pipeline import make_pipeline

        from frhsic.estimators import FRHSICClassifier, FRHSICRegressor, TableEncoder
        from frhsic.persistence import save
    rows, held = _split(len(data.y), data.y if data.classes else None, holdout, seed)
    model_class = FRHSICClassifier if data.classes else FRHSICRegressor
    model = make_pipeline(
        TableEncoder(), model_class(budget=budget, lam=lam, epochs=epochs, random_state=seed)
    )
    step = model.steps[-1][0]
    with _told():
        model.fit(
            data.x.take(rows),
            data.y[rows],
            **{
                f"{step}__sensitive_features": data.s[_tensor(rows)],
                f"{step}__sample_weight": None if data.w is None else data.w[rows],
            },
        )
    save(model, output)
    _say(f"Trained a {data.what} on {len(rows):,} rows and {data.width}.")
    for name, part in (("the rows used for training", rows), ("held-out rows", held)):
        if len(part):
            _say("")
            _judge(model, name, data, part, seed, sure=part is held)
        if part is rows:
            _say_relative(model[-1].relative_dependence_, budget)
    if save_holdout is not None:
        _write_holdout(data.table.take(held), save_holdout)
    if not len(held):
        _say("Numbers on rows used for training flatter a model: judge it on others (--holdout, or audit).")
    _say(f"Saved the model to {output}.")


def _say_relative(relative: float | None, budget: float | None) -> None:
    """Say how much of the dependence is left where a share of it was asked for."""
    from frhsic.estimators._models import BUDGET

    if relative is None or math.isnan(relative):
        return
    _say(
        f"  Normalised HSIC of the score is {_share(relative)} of that of a model trained beside it without "
        f"penalty; asked: at most {_share(budget or BUDGET)}. GDP falls more slowly: HSIC is of the nature "
        "of a square."
    )


class _Data(NamedTuple):
    """What models are trained on and judged by."""

    table: Any
    x: Any
    y: Any
    s: Any
    w: Any
    classes: list[Any]
    what: str

    @property
    def width(self) -> str:
        """The features in words."""
        return f"{self.x.num_columns} features: {_listed(self.x.column_names)}"


def _training_data(
    file: Path,
    target: str,
    sensitive: Sequence[str],
    task: str,
    kinds: dict[str, str] | None,
    weight: str | None,
    drop: Sequence[str],
    keep_sensitive: bool,
    drop_missing: bool,
    missing_values: str | None,
) -> _Data:
    """Read a table, and take it apart into features, target, sensitive columns and weight."""
    table = _columns(
        file,
        {"--target": target, "--sensitive": sensitive, "--weight": weight, "--drop": drop},
        _placeholders(missing_values),
        every=True,
    )
    if drop_missing:
        table = _without_missing(table, [target, *sensitive, *([] if weight is None else [weight])])
    apart = {target, weight, *drop, *([] if keep_sensitive else sensitive)}
    features = [name for name in table.column_names if name not in apart]
    if not features:
        raise Refusal(
            "FILE must have columns beside target, weight and sensitive ones. Got none. Drop fewer columns."
        )
    with _busy("Loading"):
        from frhsic.data import to_sensitive, to_vector
    _on_one_thread()
    y, classes, why = _target(table.column(target), task)
    s = to_sensitive(table.select(list(dict.fromkeys(sensitive))), kinds=kinds)
    for name, labels in zip(s.names, s.categories, strict=True):
        if labels is not None and len(labels) > _MOST_LABELS:
            raise Refusal(
                f"--sensitive must have at most {_MOST_LABELS} labels in a categorical column. Got "
                f"{len(labels):,} in {_quoted(name)}. Merge labels or name another column."
            )
    w = None if weight is None else to_vector(table.column(weight), name="sample_weight").numpy()
    what = f"{'classifier' if classes else 'regression'} of {_quoted(target)} ({why})"
    return _Data(table, table.select(features), y, s, w, classes, what)


def _write_holdout(rows: pa.Table, path: Path) -> None:
    from frhsic.sources import write_table

    write_table(rows, path)
    _say(f"Wrote {rows.num_rows:,} held-out rows to {path}.")


def _target(column: Any, task: str) -> tuple[Any, list[Any], str]:
    """Return the target as an array, its classes (none for a number), and why it was taken so."""
    import numpy as np

    from frhsic.data import split_labels, to_vector

    split = split_labels(column, name="y").kept
    labels = [one.value for one in split]
    text = any(isinstance(label, str | bool) for label in labels)
    if task == "auto":
        task = "classification" if text or len(labels) == 2 else "regression"
        why = f"{len(labels)} classes"
        if task == "regression":
            why = f"a number with {len(labels):,} values; for classes pass --task classification"
    else:
        why = f"--task {task}"
    if task == "regression":
        return to_vector(column, name="y").numpy(), [], why
    if len(labels) > _MOST_LABELS:
        raise Refusal(
            f"--target must have at most {_MOST_LABELS} classes. Got {len(labels):,} different values. "
            "Name another column, or pass --task regression for a number."
        )
    y = np.empty(sum(len(one.rows) for one in split), dtype=np.array(labels).dtype)
    for one in split:
        y[one.rows.numpy()] = one.value
    return y, labels, why


def _split(n: int, labels: Any, share: float, seed: int) -> tuple[Any, Any]:
    import numpy as np
    from sklearn.model_selection import train_test_split

    if share == 0:
        return np.arange(n), np.arange(0)
    try:
        rows, held = train_test_split(np.arange(n), test_size=share, random_state=seed, stratify=labels)
    except ValueError:  # a class of a single row
        rows, held = train_test_split(np.arange(n), test_size=share, random_state=seed)
    return np.sort(rows), np.sort(held)


def _judge(model: Any, name: str, data: _Data, rows: Any, seed: int, *, sure: bool) -> None:
    """Say performance, and the dependence of each score on each sensitive column."""
    import numpy as np
    from sklearn.metrics import accuracy_score, r2_score

    from frhsic.dependence import GDP
    from frhsic.inference import confidence_interval

    y, s, classes = data.y[rows], data.s[_tensor(rows)], data.classes
    w = None if data.w is None else data.w[rows]
    scores = _scores(model, data.x.take(rows))
    if classes:
        columns = list(scores.values())
        best = columns[0] > 0.5 if len(columns) == 1 else np.argmax(columns, axis=0)
        found = model[-1].classes_[best.astype(int)]
        most = max(float(np.average(y == label, weights=w)) for label in classes)
        right = accuracy_score(y, found, sample_weight=w)
        _say(f"On {name} ({len(y):,}): accuracy {right:.3f} (the commonest class alone: {most:.3f}).")
    else:
        _say(f"On {name} ({len(y):,}): R^2 {r2_score(y, scores['score'], sample_weight=w):.3f}.")
    for column, values in scores.items():
        what = "the score" if column == "score" else _quoted(column)
        for attribute in s.names:
            part = s.columns([attribute])
            if not sure:
                gap = float(GDP()(_tensor(values), part, None if w is None else _tensor(w)))
                _say(f"  GDP of {what} on {_short(attribute)}: {_number(gap)}.")
                continue
            with _told():
                interval = confidence_interval(
                    values, part, dependence=GDP(), random_state=seed, sample_weight=w
                )
            _say(
                f"  GDP of {what} on {_short(attribute)}: {_number(interval.estimate)}, "
                f"{interval.confidence_level:.0%} "
                f"interval {_number(interval.low)} to {_number(interval.high)}; chance alone gives "
                f"{_number(interval.chance or 0.0)}, seldom above {_number(interval.chance_high or 0.0)}."
            )


def _on_one_thread() -> None:
    """Compute on one thread.

    Batches and blocks are small, so that a second thread saves little, and on a busy machine it waits for the
    first by spinning: ten times slower. With one, the bits do not depend on the machine's cores either.
    """
    import torch

    torch.set_num_threads(1)


def _tensor(rows: Any) -> Any:
    import torch

    return torch.from_numpy(rows)


# ---- frontier ----------------------------------------------------------------------------------------------


@app.command()
def frontier(
    file: _File,
    target: _Target,
    sensitive: _Sensitive,
    output: _Model,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="OUT", help="Draw the frontier: .png, .svg or .pdf.")
    ] = None,
    as_json: _Json = None,
    budgets: Annotated[
        str | None,
        typer.Option(
            "--budgets",
            metavar="LIST",
            help="Shares of the dependence of a model without penalty; without --lams 0.5,0.2,0.1,0.05.",
        ),
    ] = None,
    lams: Annotated[
        str | None,
        typer.Option("--lams", metavar="LIST", help="Strengths of a penalty instead, without a unit."),
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            metavar="RULE",
            help="within: lowest dependence at nearly the performance of the model without penalty; lowest: "
            "lowest dependence; knee: the bend of the front; not-rejected: the weakest penalty at which a "
            "test does not reject; equivalent: the weakest shown to be below --tolerance.",
        ),
    ] = "within",
    within: Annotated[
        float | None,
        typer.Option(
            "--within", metavar="SHARE", help="Of --rule within: what may be lost of it; 0.01 unless said."
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="X",
            help="Of --rule equivalent: the GDP that is too much; fix it before you look at the rows.",
        ),
    ] = None,
    validation: Annotated[
        float, typer.Option("--validation", metavar="SHARE", help="Share of rows to choose on.")
    ] = 0.2,
    task: _Task = "auto",
    kind: _Kinds = None,
    weight: _Weight = None,
    drop: _Drop = None,
    keep_sensitive: _KeepSensitive = False,
    holdout: Annotated[
        float,
        typer.Option(
            "--holdout",
            metavar="SHARE",
            help="Share of rows that take no part, to judge the chosen model on.",
        ),
    ] = 0.0,
    save_holdout: _SaveHoldout = None,
    epochs: _Epochs = 200,
    seed: _Seed = 0,
    drop_missing: _DropMissing = False,
    missing_values: _MissingValues = None,
) -> None:
    """Train models of several strengths at once, show what each costs, and save one of them.

    Columns are taken as by frhsic train. A model without penalty is always trained beside the others. All are
    judged on rows set aside (--validation), and a rule chooses one of them there, which flatters it: audit
    what was chosen on rows that took no part (--holdout).

    \b
    Examples:
      frhsic frontier people.csv --target income --sensitive age -o model.frhsic --epochs 5
        --plot frontier.png
      frhsic frontier people.csv --target income --sensitive age -o model.frhsic --epochs 5
        --budgets 0.5,0.1 --rule knee --validation 0.3 --holdout 0.3 --save-holdout held_out.csv
    """  # noqa: D301
    _check_task(task)
    strengths = _strengths(budgets, lams)
    within = _check_rule(rule, within, tolerance, weight)
    if not 0 < validation < 1:
        raise Refusal(f"--validation must be a share between 0 and 1. Got {validation:g}. Pass 0.2, say.")
    _check_holdout(holdout, save_holdout)
    kinds = _kinds(kind or [], sensitive)
    _check_outputs({"-o": output, "--plot": plot, "--json": as_json, "--save-holdout": save_holdout}, file)
    if plot is not None and plot.suffix.lower() not in _PICTURES:
        raise Refusal(
            f"--plot must end in {', '.join(_PICTURES)}. Got {_quoted(plot.name)}. Write frontier.png, say."
        )
    if plot is not None:
        _load_report()  # what is not installed is better said before training than after
    data = _training_data(
        file,
        target,
        sensitive,
        task,
        kinds,
        weight,
        drop or [],
        keep_sensitive,
        drop_missing,
        missing_values,
    )
    with _busy("Loading"):
        from sklearn.pipeline import make_pipeline

        from frhsic.estimators import FRHSICClassifier, FRHSICRegressor, TableEncoder
        from frhsic.persistence import save
        from frhsic.selection import FrontierSearch, lowest_dependence
        from frhsic.selection._judging import LEVEL
    rows, held = _split(len(data.y), data.y if data.classes else None, holdout, seed)
    judged = math.ceil(validation * len(rows))
    if judged < _FEWEST:
        raise Refusal(
            f"--validation must set aside at least {_FEWEST} rows to choose on. Got {judged}. "
            "Take a larger share or a longer file."
        )
    model_class = FRHSICClassifier if data.classes else FRHSICRegressor
    search = FrontierSearch(
        make_pipeline(TableEncoder(), model_class(epochs=epochs, random_state=seed)),
        budgets=strengths.budgets,
        lams=strengths.lams,
        rule=lowest_dependence,  # finds one always; the rule that was asked for may find none
        validation=validation,
        test=rule == "not-rejected",
        tolerance=tolerance,
        random_state=seed,
    )
    with _told():
        search.fit(
            data.x.take(rows),
            data.y[rows],
            sensitive_features=data.s[_tensor(rows)],
            sample_weight=None if data.w is None else data.w[rows],
        )
    table = search.results_
    found = _Frontier(
        points=search.points_,
        columns={str(name): list(table[name]) for name in table},
        attributes=data.s.names,
        performance="accuracy" if data.classes else "R^2",
        what="the score" if len(data.classes) < 3 else "the scores",
        rows={"training": len(rows) - judged, "validation": judged, "held_out": len(held)},
        confidence_level=LEVEL,
        chosen=None,
    )
    function = _rule(rule, within)
    found = found._replace(chosen=function(found.points))
    reason = _reason(found, rule, within, tolerance)
    # Everything is made before anything is written.
    picture = None if plot is None else _drawn(found, plot.suffix.lower()[1:], target)
    if found.chosen is not None:
        save(search.choose(function).best_estimator_, output)
    if plot is not None and picture is not None:
        _write_bytes(picture, plot)
    if as_json is not None:
        facts = {
            "target": target,
            "task": "classification" if data.classes else "regression",
            "features": data.x.column_names,
            "epochs": epochs,
            "seed": seed,
            "rule": {"name": rule, "within": within, "tolerance": tolerance},
            "reason": reason,
        }
        _write_json(_frontier_dict(found, facts), as_json)
    _say(
        f"Trained {len(found.points)} models, each a {data.what}, on {found.rows['training']:,} rows and "
        f"{data.width}."
    )
    _show_frontier(found)
    _say("")
    _say(reason, style="bold")
    if found.chosen is not None:
        _say(
            f"It was chosen on these {judged:,} rows, which tend to flatter it; its interval is that of one "
            "model fixed beforehand."
            + ("" if len(held) else " Audit it on rows that took no part: --holdout 0.2 keeps some.")
        )
        if len(held):
            _say("")
            _judge(search.best_estimator_, "held-out rows, which took no part", data, held, seed, sure=True)
    _say("")
    if save_holdout is not None:
        _write_holdout(data.table.take(held), save_holdout)
    for path in (plot, as_json):
        if path is not None:
            _say(f"Wrote {path}.")
    if found.chosen is None:
        _say("No model is saved.", error=True)
        raise typer.Exit(1)
    _say(f"Saved the chosen model to {output}.")


class _Strengths(NamedTuple):
    """Budgets or lambdas, from the weakest to the strongest; neither: the budgets of the library."""

    budgets: list[float] | None
    lams: list[float] | None


class _Frontier(NamedTuple):
    """What was found about each model, and which was chosen."""

    points: list[Point]
    columns: dict[str, list[Any]]
    attributes: Sequence[str]
    performance: str
    what: str
    rows: dict[str, int]
    confidence_level: float
    chosen: int | None

    def of(self, title: str, attribute: str) -> list[float]:
        """Return a column of the table about one sensitive attribute."""
        suffix = "" if len(self.attributes) == 1 else f"_{attribute}"
        measure, _, end = title.partition(":")
        return self.columns[f"{measure}{suffix}{end}"]


def _strengths(budgets: str | None, lams: str | None) -> _Strengths:
    if budgets is not None and lams is not None:
        raise Refusal("--budgets must come without --lams. Got both. Leave one of them out.")
    if lams is not None:
        found = _floats("--lams", lams, "1,10,100")
        if min(found) < 0:
            raise Refusal(f"--lams must not be negative. Got {min(found):g}. Write --lams 1,10,100, say.")
        return _Strengths(None, sorted({0.0, *found}))
    if budgets is None:
        return _Strengths(None, None)
    found = _floats("--budgets", budgets, "0.5,0.2,0.1")
    for share in found:
        if not 0 < share <= 1:
            raise Refusal(
                "--budgets must lie above 0 and be at most 1: shares of the dependence of a model without "
                f"penalty. Got {share:g}. Write --budgets 0.5,0.2,0.1, say; that model is always trained too."
            )
    return _Strengths(sorted(set(found), reverse=True), None)


def _floats(option: str, text: str, say: str) -> list[float]:
    found = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise Refusal(
                f"{option} must be numbers with commas between them. Got {_quoted(text)}. "
                f"Write {option} {say}, say."
            )
        found.append(value)
    return found


def _check_rule(rule: str, within: float | None, tolerance: float | None, weight: str | None) -> float | None:
    """Refuse what does not go together, and return the share of --rule within."""
    if rule not in _RULES:
        close = difflib.get_close_matches(rule, _RULES, n=1) or _RULES
        raise Refusal(
            f"--rule must be one of {', '.join(_RULES)}. Got {_quoted(rule)}. Try {_quoted(close[0])}."
        )
    for option, given, belongs in (("--within", within, "within"), ("--tolerance", tolerance, "equivalent")):
        if given is not None and rule != belongs:
            raise Refusal(
                f"{option} must come with --rule {belongs}. Got --rule {rule}. Leave one of them out."
            )
    if within is not None and not 0 <= within < 1:
        raise Refusal(f"--within must be a share from 0 to below 1. Got {within:g}. Pass 0.01, say.")
    if rule == "within":
        return 0.01 if within is None else within
    if rule != "equivalent":
        return None
    if tolerance is None or not 0 < tolerance < math.inf:
        raise Refusal(
            "--rule equivalent must come with --tolerance, a positive number. Got "
            f"{'none' if tolerance is None else f'{tolerance:g}'}. Say how much GDP is too little to matter."
        )
    if weight is not None:
        raise Refusal(
            "--rule equivalent must come without --weight: its test has no weighted form. Got both. "
            "Leave one of them out."
        )
    return None


def _rule(name: str, within: float | None) -> Any:
    """Return the function behind a name."""
    from functools import partial

    import frhsic.selection as selection

    return {
        "within": partial(selection.lowest_dependence_within, tolerance=within or 0.0),
        "lowest": selection.lowest_dependence,
        "knee": selection.knee,
        "not-rejected": selection.first_not_rejected,
        "equivalent": selection.last_equivalent,
    }[name]


def _reason(found: _Frontier, rule: str, within: float | None, tolerance: float | None) -> str:
    """Say which model was chosen, and what the rule promises, which is mostly nothing."""
    gap = "GDP" if len(found.attributes) == 1 else "GDP on the worst column"
    if found.chosen is None:
        return (
            f"No model is chosen: not even for the strongest is {gap} shown to be below {tolerance:g} at "
            "alpha = 0.05. More rows or a stronger penalty may help; another tolerance must not be picked "
            "here."
        )
    point, free = found.points[found.chosen], found.points[0]
    why = {
        "within": f"the lowest {gap} among models whose {found.performance} is within "
        f"{_share(within or 0.0)} of the one without penalty",
        "lowest": f"the lowest {gap}, whatever the {found.performance}",
        "knee": f"the bend of the front of {found.performance} against {gap}; the ends of the list place it",
    }.get(rule, "")
    if rule == "within" and found.chosen == 0:
        from frhsic.selection import matched_point

        others = matched_point(found.points[1:], free, tolerance=within or 0.0)
        why += (
            ": no other is; --within allows more"
            if others is None
            else f": none of the others has less {gap}"
        )
    if rule == "not-rejected" and point.test is not None:
        why = (
            f"the weakest penalty at which independence is not rejected (p = {_number(point.test.pvalue)}), "
            "which is no evidence of independence"
            if point.test.pvalue > 0.05
            else f"the strongest penalty, because independence is rejected for every model (here p = "
            f"{_number(point.test.pvalue)})"
        )
    if rule == "equivalent" and point.equivalence is not None:
        why = (
            f"the weakest penalty, from the strongest on, with {gap} shown to be below {tolerance:g} at "
            f"alpha = 0.05 (p = {_number(point.equivalence.pvalue)}), if the tolerance was fixed beforehand"
        )
    beside = f" (without penalty: {_cell(free.performance)} and {_cell(free.dependence)})"
    return (
        f"Chosen: {_named(point)}, with {found.performance} {_cell(point.performance)} and {gap} "
        f"{_cell(point.dependence)}{'' if found.chosen == 0 else beside}. Rule '{rule}': {why}."
    )


def _named(point: Point) -> str:
    if point.budget is not None:
        return f"budget {point.budget:g}"
    return "the model without penalty" if point.strength == 0 else f"lam {point.strength:g}"


def _show_frontier(found: _Frontier) -> None:
    columns, with_budgets = found.columns, found.points[-1].budget is not None
    for attribute in found.attributes:
        table = Table(title_justify="left", title_style="bold")
        table.title = Text(
            f"{found.rows['validation']:,} validation rows: {found.what} and {_short(attribute)}"
        )
        table.box, table.show_edge, table.pad_edge = box.SIMPLE_HEAD, False, False
        headings = [found.performance, "GDP", f"{found.confidence_level:.0%} interval", "R^2 from Z", ""]
        for heading in ["budget", "reached", *headings] if with_budgets else ["lam", *headings]:
            table.add_column(heading, justify="right", no_wrap=True)
        for index, point in enumerate(found.points):
            first = [f"{point.strength:g}"]
            if with_budgets:
                reached = columns["relative_dependence"][index]
                first = [
                    "none" if point.budget is None else f"{point.budget:g}",
                    "" if math.isnan(reached) else f"{reached:.3f}",
                ]
            low, high = (found.of(f"gdp:{end}", attribute)[index] for end in ("_low", "_high"))
            chosen = index == found.chosen
            table.add_row(
                *first,
                _cell(point.performance),
                _cell(found.of("gdp", attribute)[index]),
                f"{_cell(low)} to {_cell(high)}",
                f"{found.of('r2_boosted', attribute)[index]:.3f}",
                "< chosen" if chosen else "",
                style="bold" if chosen else "",
            )
        _say("")
        _out().print(table)
    _say("")
    _say(
        (
            "Budget: the share of the normalised HSIC of the model without penalty that training allowed; "
            "reached: the share left on the rows trained on. "
            if with_budgets
            else ""
        )
        + f"GDP: the mean gap between {found.what} at a value and overall. R^2 from Z: how well boosted "
        "trees read the column from the representation; near or below 0 is not at all."
    )
    if with_budgets:
        _say_missed(found)


def _say_missed(found: _Frontier) -> None:
    """Say which budgets are not kept."""
    from frhsic.estimators._models import MET

    reached = found.columns["relative_dependence"]
    if math.isnan(reached[0]):
        _say(
            "Note: The model without penalty shows no dependence on the rows trained on: a share of it means "
            "nothing.",
            error=True,
        )
    missed = [
        f"{point.budget:g}"
        for point, share in zip(found.points, reached, strict=True)
        if point.budget is not None and share > MET * point.budget
    ]
    if missed:
        _say(
            f"Note: More than budget {', '.join(missed)} is left on the rows trained on. Train for more "
            "epochs.",
            error=True,
        )


def _load_report() -> None:
    os.environ.setdefault("MPLBACKEND", "agg")  # files are drawn, no windows
    with _busy("Loading"):
        import frhsic.report  # noqa: F401


def _drawn(found: _Frontier, form: str, target: str) -> bytes:
    """Return the picture of a frontier as the bytes of a file."""
    from frhsic.report import plot_frontier

    on = _short(found.attributes[0]) if len(found.attributes) == 1 else "the worst column"
    axes = plot_frontier(
        found.points,
        chosen=found.chosen,
        dependence=f"GDP of {found.what} on {on}",
        performance=f"{found.performance.replace('^2', '²')} for {_short(target)}",
    )
    figure: Any = axes.get_figure(root=True)
    numbers = "budgets, shares of normalised HSIC" if found.points[-1].budget is not None else "lam"
    title = f"{found.rows['validation']:,} validation rows; the numbers are {numbers}"
    figure.suptitle(title, x=0.99, ha="right", fontsize="medium")
    buffer = io.BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format=form, dpi=150, metadata=dates)
    return buffer.getvalue()


def _frontier_dict(found: _Frontier, facts: dict[str, Any]) -> dict[str, Any]:
    """Return every number as plain values; what is not there is None."""
    models = []
    for index, point in enumerate(found.points):
        row = {name: _plain(values[index]) for name, values in found.columns.items()}
        models.append({"label": point.label, "chosen": index == found.chosen, **row})
    return {
        "schema": "frhsic.frontier/1",
        "version": importlib.metadata.version("frhsic"),
        **facts,
        "sensitive": list(found.attributes),
        "rows": found.rows,
        "performance": found.performance,
        "dependence": "GDP",
        "confidence_level": found.confidence_level,
        "chosen": found.chosen,
        "models": models,
    }


def _plain(value: Any) -> Any:
    """Return a number or a truth value that JSON knows."""
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return bool(value)
    return float(value) if math.isfinite(value) else None


# ---- predict -----------------------------------------------------------------------------------------------


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A file of frhsic train.", show_default=False)
    ],
    file: _File,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="A .parquet, .csv or .arrow file.")
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="COL", help="A column to write beside the score; may be repeated."),
    ] = None,
    missing_values: _MissingValues = None,
) -> None:
    """Write the score of each row: the probability of the second class, or the predicted number.

    With more than two classes there is a column score_LABEL for each. The sensitive columns are not needed;
    keep them beside the score to audit it.

    \b
    Examples:
      frhsic predict model.frhsic held_out.csv -o scores.csv --keep age --keep sex --keep income
      frhsic predict model.frhsic people.csv -o scores.parquet
    """  # noqa: D301
    for other in (file, model):
        _check_output("-o", output, other, table=True)
    with _busy("Loading"):
        from sklearn.pipeline import Pipeline

        from frhsic.estimators import FRHSICEncoder
        from frhsic.persistence import load
        from frhsic.sources import write_table
    if not model.exists():
        raise Refusal(
            f"MODEL must be a file. Got {_quoted(str(model))}, which does not exist. Check the path."
        )
    try:
        loaded = load(model)
    except (ValueError, TypeError) as error:
        raise Refusal(
            f"MODEL must be a file that 'frhsic train' or frhsic.save wrote. Got {_quoted(str(model))}, "
            f"which is none or is damaged ({_sentence(str(error))}). Train it again or copy it anew."
        ) from None
    first = loaded[0] if isinstance(loaded, Pipeline) else loaded
    if isinstance(loaded if first is loaded else loaded[-1], FRHSICEncoder):
        raise Refusal("MODEL must predict a target. Got an FRHSICEncoder. Use its 'transform' in Python.")
    names = getattr(first, "feature_names_in_", None)
    if names is None:
        raise Refusal(
            "MODEL must know the names of its columns. Got one that was trained on an array. "
            "Use its 'predict' in Python, or train it on a table."
        )
    features = [str(name) for name in names]
    table = _columns(file, {"the model": features, "--keep": keep or []}, _placeholders(missing_values))
    scores = _scores(loaded, table.select(features))
    clash = [name for name in keep or [] if name in scores]
    if clash:
        raise Refusal(f"--keep must not name a column that is written. Got {_quoted(clash[0])}. Rename it.")
    kept = table.select(list(dict.fromkeys(keep or [])))
    write_table({name: kept.column(name) for name in kept.column_names} | scores, output)
    classes = getattr(loaded[-1] if first is not loaded else loaded, "classes_", None)
    meaning = (
        "the predicted number"
        if classes is None
        else f"probability of {_quoted(str(classes[1]))}"
        if len(classes) == 2
        else "probability of each class"
    )
    _say(f"Wrote {table.num_rows:,} rows to {output}: {_listed(list(scores))} ({meaning}).")


def _scores(model: Any, x: pa.Table) -> dict[str, Any]:
    """Return the columns that a model writes, computed a few rows at a time."""
    import numpy as np
    from sklearn.pipeline import Pipeline

    from frhsic._progress import Progress
    from frhsic.data import to_matrix

    last = model[-1] if isinstance(model, Pipeline) else model
    classes = getattr(last, "classes_", None)
    parts = []
    with Progress("predicting", x.num_rows) as bar, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        for start in range(0, x.num_rows, _CHUNK):
            part = x.slice(start, _CHUNK)
            rows = part if last is not model else to_matrix(part).numpy()
            parts.append(model.predict(rows) if classes is None else model.predict_proba(rows))
            bar.advance(part.num_rows)
    found = np.concatenate(parts)
    if classes is None:
        return {"score": found}
    if len(classes) == 2:
        return {"score": found[:, 1]}
    return {f"score_{label}": found[:, j] for j, label in enumerate(classes)}


# ---- datasets ----------------------------------------------------------------------------------------------


@app.command()
def datasets(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One of the list.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help="A .parquet, .csv or .arrow file.")
    ] = None,
    seed: _Seed = 0,
) -> None:
    """List the datasets, tell about one, or write one to a file.

    Real data come from the folder FRHSIC_DATA_HOME or from their official source. Rows with unknown values
    are kept, with empty cells.

    \b
    Examples:
      frhsic datasets
      frhsic datasets u_shaped -o u_shaped.csv
    """  # noqa: D301
    with _busy("Loading"):
        import frhsic.datasets as room
    loaders = {}
    for title in room.__all__:
        loader = getattr(room, title)
        if inspect.isfunction(loader) and inspect.signature(loader).return_annotation == "Bunch":
            loaders[title.removeprefix("fetch_").removeprefix("make_")] = loader
    if name is None:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("name", style="bold")
        table.add_column("what it is")
        for title, loader in loaders.items():
            table.add_row(Text(title), Text(_summary(loader)))
        _out().print(table)
        _say("")
        _say("Write one to a file: frhsic datasets u_shaped -o u_shaped.csv")
        return
    if name not in loaders:
        close = difflib.get_close_matches(name, loaders, n=2) or list(loaders)
        raise Refusal(f"NAME must be a dataset. Got {_quoted(name)}. Try {_listed(close, ' or ')}.")
    _check_output("-o", output, None, table=True)
    bunch = _bunch(loaders[name], seed)
    if output is None:
        _say(bunch.DESCR.strip(), wrap=False)
        return
    from frhsic.sources import write_table

    columns = _flat(bunch)
    write_table(columns, output)
    n = len(next(iter(columns.values())))
    target = "" if bunch.target is None else f"; target: {_quoted(_target_name(bunch))}"
    _say(
        f"Wrote {n:,} rows and {len(columns)} columns to {output}; sensitive: "
        f"{_listed(_sensitive_names(bunch))}{target}."
    )


def _summary(loader: Any) -> str:
    """Return the first sentence of a loader's docstring, and where the data come from."""
    text = (inspect.getdoc(loader) or "").splitlines()[0]
    return re.sub(r"^(Load|Draw) ", "", text)


def _bunch(loader: Any, seed: int) -> Any:
    """Load with every row, with empty cells, and as arrays, which need no other library."""
    parameters = inspect.signature(loader).parameters
    keeping = {"drop": "category", "impute": "keep"}
    asked: dict[str, Any] = {"random_state": seed, "as_frame": False}
    if "missing" in parameters and parameters["missing"].default in keeping:
        asked["missing"] = keeping[parameters["missing"].default]
    return loader(**{name: value for name, value in asked.items() if name in parameters})


def _sensitive_names(bunch: Any) -> list[str]:
    q = bunch.sensitive_features.shape[1]
    return list(bunch.get("sensitive_names", ["s"] if q == 1 else [f"s{j}" for j in range(q)]))


def _target_name(bunch: Any) -> str:
    return str(bunch.get("target_name", "y"))


def _flat(bunch: Any) -> dict[str, Any]:
    """Return features, sensitive columns, target and weight as one dict of plain columns."""
    import numpy as np

    names = [*bunch.feature_names, *_sensitive_names(bunch)]
    labels = bunch.get("categories", {})
    columns: dict[str, Any] = {}
    for name, values in zip(names, np.hstack((bunch.data, bunch.sensitive_features)).T, strict=True):
        columns[name] = values
        if name in labels:  # codes, in the order of the labels
            codes = np.unique(values, return_inverse=True)[1]
            columns[name] = [None if labels[name][code] == "?" else labels[name][code] for code in codes]
        elif (values == values.round()).all():
            columns[name] = values.astype(np.int64)
    if bunch.target is not None:
        columns[_target_name(bunch)] = np.asarray(bunch.target)
    if bunch.get("sample_weight") is not None:
        columns.setdefault(bunch.weight_name, np.asarray(bunch.sample_weight))
    return columns


# ---- input -------------------------------------------------------------------------------------------------


def _columns(
    file: Path, options: dict[str, Any], placeholders: Sequence[str] = (), *, every: bool = False
) -> pa.Table:
    """Read the columns that options name, or all; say which option names one that is not there."""
    from frhsic.sources import column_names, read_table

    wanted = _named_columns(column_names(file), options)
    uses: dict[str, str] = {}
    for option, given in options.items():
        for name in _asked(given):
            if {option, uses.setdefault(name, option)} == {"--target", "--sensitive"}:
                raise Refusal(
                    f"--target and --sensitive must be different columns. Got {_quoted(name)} for both. "
                    "Name another column for one of them."
                )
    with _busy(f"Reading {_short(file.name)}"):
        return read_table(file, columns=None if every else wanted, missing_values=placeholders)


def _placeholders(text: str | None) -> list[str]:
    """Return the cells that stand for no value."""
    if text is None:
        return []
    found = [part.strip() for part in text.split(",")]
    if "" in found:
        raise Refusal(
            f"--missing-values must be texts or numbers with commas between them. Got {_quoted(text)}. "
            "Write --missing-values unknown,-999, say; empty cells are missing anyway."
        )
    return found


def _asked(given: str | Sequence[str] | None) -> list[str]:
    """Return the columns that an option names."""
    return [given] if isinstance(given, str) else list(given or [])


def _named_columns(names: list[str], options: dict[str, Any]) -> list[str]:
    """Return the columns that options name; say which option names one that is not there."""
    from frhsic.sources._files import absent_columns

    wanted: list[str] = []
    for option, given in options.items():
        asked = _asked(given)
        absent = [name for name in asked if name not in names]
        if absent:
            raise Refusal(absent_columns("option", absent, names).replace("'option'", option, 1))
        wanted += asked
    return wanted


def _without_missing(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    from frhsic.sources import drop_missing

    kept = drop_missing(table, columns)
    gone = table.num_rows - kept.num_rows
    if gone:
        _say(f"Left out {gone:,} of {table.num_rows:,} rows, in which a named column is empty.", error=True)
    return kept


def _kinds(given: Sequence[str], sensitive: Sequence[str]) -> dict[str, str] | None:
    kinds = {}
    for text in given:
        name, _, kind = text.rpartition("=")
        if kind not in ("continuous", "categorical") or not name:
            raise Refusal(
                f"--kind must be COL=continuous or COL=categorical. Got {_quoted(text)}. "
                f"Write --kind {_short(name or 'zone')}=categorical, say."
            )
        if name not in sensitive:
            raise Refusal(
                f"--kind must name a --sensitive column. Got {_quoted(name)}. "
                f"Take one of {_listed(sensitive)}."
            )
        kinds[name] = kind
    return kinds or None


def _check_task(task: str) -> None:
    if task not in ("auto", "classification", "regression"):
        raise Refusal(f"--task must be auto, classification or regression. Got {_quoted(task)}. Choose one.")


def _check_holdout(share: float, path: Path | None) -> None:
    if not 0 <= share < 1:
        raise Refusal(f"--holdout must be a share from 0 to below 1. Got {share:g}. Pass 0.2, say.")
    if path is not None and share == 0:
        raise Refusal("--save-holdout must come with --holdout. Got none. Add --holdout 0.2, say.")


def _check_outputs(outputs: dict[str, Path | None], source: Path) -> None:
    """Refuse paths that cannot be written to, or that are one and the same, before any work is done."""
    seen: dict[str, str] = {}
    for option, path in outputs.items():
        _check_output(option, path, source, table=option == "--save-holdout")
        if path is None:
            continue
        other = seen.setdefault(os.path.realpath(path), option)
        if other != option:
            raise Refusal(
                f"{option} must not be the file of {other}. Got {_quoted(str(path))} twice. Choose another."
            )


def _check_output(option: str, path: Path | None, source: Path | None, *, table: bool = False) -> None:
    """Refuse a path that cannot be written to before any work is done."""
    if path is None:
        return
    folder = Path(os.path.realpath(path)).parent
    shown = _quoted(str(path))
    if table:
        from frhsic.sources._files import check_suffix

        try:
            check_suffix(path)
        except ValueError as error:
            raise Refusal(str(error).replace("'path'", option, 1)) from None
    if not folder.is_dir():
        raise Refusal(f"{option} must be in a folder that exists. Got {shown}. Make the folder first.")
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise Refusal(f"{option} must be a file. Got {shown}, which is a folder or device. Add a file name.")
    if source is not None and path.exists() and source.exists() and os.path.samefile(path, source):
        raise Refusal(f"{option} must not be the file that is read. Got {shown}. Choose another name.")
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise Refusal(f"{option} must be in a folder you may write to. Got {shown}. Choose another folder.")


# ---- output ------------------------------------------------------------------------------------------------


def _out() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def _err() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def _say(text: str, *, error: bool = False, style: str = "", wrap: bool = True) -> None:
    """Print a sentence; whatever users typed in it is made visible first."""
    console = _err() if error else _out()
    # A path or a name should be copied in one piece: only a terminal wraps.
    console.print(Text(_clean(text), style=style), soft_wrap=not (wrap and console.is_terminal))


def _clean(text: str) -> str:
    """Make control characters, overrides of the direction and other invisible signs visible."""
    return "".join(
        sign if sign == "\n" or unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        else sign.encode("unicode_escape", "surrogatepass").decode("ascii")
        for sign in text
    )  # fmt: skip


def _short(text: str) -> str:
    text = _clean(text).replace("\n", "\\n")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _quoted(text: str) -> str:
    return f"'{_short(text)}'"


def _listed(names: Sequence[str], joint: str = ", ") -> str:
    return joint.join(map(_quoted, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _number(x: float) -> str:
    return f"{x:.3g}" if abs(x) >= 1e-4 or x == 0 else f"{x:.1e}"


def _share(x: float) -> str:
    return f"{100 * x:.3g} %"


def _cell(x: float) -> str:
    """Return a number with as many decimals as its neighbours in a table."""
    if 0.0 < abs(x) < 5e-5:  # of many rows
        return f"{x:.0e}"
    return f"{x:.4f}" if abs(x) < 100 else f"{x:.4g}"


@contextlib.contextmanager
def _busy(what: str) -> Iterator[None]:
    """Show in a terminal that something is going on."""
    console = _err()
    if not console.is_terminal:
        yield
        return
    with console.status(Text(f"{what} ...")):
        yield


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Say warnings as sentences, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    # Those of ours: other libraries have classes of their own, but for the one that we borrow.
    ours = [one for one in caught if one.category.__name__ in ("UserWarning", "ConvergenceWarning")]
    for text in dict.fromkeys(str(one.message) for one in ours):
        _say(f"Note: {_reworded(text)}", error=True)


# ---- the door ----------------------------------------------------------------------------------------------

# What the library calls its arguments, and what they are called here; in a command of its own, see _reworded.
_WORDS = {
    "'scores'": "--score",
    "'sensitive_features'": "--sensitive",
    "'groups'": "--group",
    "'y_true'": "--label",
    "'y'": "--target",
    "'sample_weight'": "--weight",
    "'kinds'": "--kind",
    "'confidence_level'": "--confidence-level",
    "'positive_label'": "--positive",
    "'random_state'": "--seed",
    "'budget'": "--budget",
    "'lam'": "--lam",
    "lam=0": "--lam 0",
    "'validation'": "--validation",
    "'tolerance'": "--tolerance",
    "'epochs'": "--epochs",
    "'X'": "FILE",
    "'path'": "FILE",
    "'where'": "FILE",
    "'database'": "FILE",
    "'query'": "--query",
    "'partials'": "--partials",
    "'columns'": "FILE",
    " (None, NaN, NaT or NA)": " empty or NaN",
    "Drop or fill these rows first.": "Fill these cells, or pass --drop-missing to leave such rows out.",
    "Encode them as numbers first; frhsic.TableEncoder does.": "Mend the entries that are no numbers, or "
    "name another column.",
    "Got strings": "Got text",
    "Turn placeholders into missing values and the column into numbers": "Name placeholders with "
    "--missing-values",
    ", turn text into numbers, or raise 'max_categories'": " or turn text into numbers",
    "Drop it, join": "Leave it out with --drop, join",
    "Drop the column.": "Leave it out with --drop.",
    "Convert them to a number, for example to years.": "Turn them into numbers, for example years, or leave "
    "the column out (train: --drop).",
    "or pass rows in which it differs": "or take a file in which it differs",
    "as in 'fit'": "as in training",
    "or open it with allow_missing=True and leave them out of each batch by drop_missing.": "or pass "
    "--drop-missing to leave such rows out.",
}
_ARGUMENTS: list[str] = []


def _reworded(text: str) -> str:
    text = re.sub(r"kinds=\{'(.+?)': '(\w+)'\}(, here or in [\w.]+to_sensitive)?", r"--kind \1=\2", text)
    for library, here in _WORDS.items():
        text = text.replace(library, here)
    # The library counts rows from 0; a person counts them from 1.
    return re.sub(r"in row (\d+)", lambda row: f"in row {int(row[1]) + 1} of the data", text)


def _sentence(text: str) -> str:
    return _reworded(text).split("\n")[0].rstrip(".")[:200]


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0, 1 for a gate not passed, 2 for what cannot be done."""
    _ARGUMENTS[:] = arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may know no Unicode
    try:
        code = _dispatch(list(arguments))
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        # Whoever read the output has seen enough (rich exits then). Not 0: the gate may not be reached yet.
        _drop_output()
        return 141
    except Exception as error:
        if "FRHSIC_TRACEBACK" in os.environ:
            raise
        with contextlib.suppress(OSError):
            _say(f"Error: {_refused(error)}", error=True)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        return 2
    except KeyboardInterrupt:
        _say("Stopped.", error=True)
        return 130
    return code


def _drop_output() -> None:
    """Let go of what could not be written, which would fail again, with another exit code, at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# typer has its own copy of click since some version: its exceptions are found through what it exports.
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]


def _dispatch(arguments: list[str]) -> int:
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="frhsic", standalone_mode=False)
    except _ClickException as error:
        text = str(error.format_message())  # type: ignore[attr-defined]
        if type(error).__name__ == "NoArgsIsHelpError":
            _say(text, wrap=False)  # the whole help, line by line
            return 2
        message = " ".join(text.split()).rstrip(".")
        context = getattr(error, "ctx", None)
        raise Refusal(f"{message}. Look at: {context.command_path if context else 'frhsic'} --help") from None
    return code if isinstance(code, int) else 0


def _refused(error: Exception) -> str:
    """Return one sentence about what went wrong."""
    if isinstance(error, Refusal):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        name = "" if error.filename is None else f" {_quoted(str(error.filename))}"
        cure = {
            errno.ENOENT: "Check the path.",
            errno.EACCES: "Ask for the permission, or choose another path.",
            errno.EPERM: "Ask for the permission, or choose another path.",
            errno.EISDIR: "Name a file, not a folder.",
            errno.ENOSPC: "Nothing was written; make room or choose another disk.",
            errno.EROFS: "Choose another folder.",
        }.get(error.errno, "Nothing was written.")
        return f"The system refused{name}: {os.strerror(error.errno)}. {cure}"
    if isinstance(error, MemoryError):
        return "There is not enough memory for this file. Take fewer rows or columns."
    if isinstance(error, ValueError | TypeError | ImportError | RuntimeError | OSError):
        return _reworded(" ".join(str(error).split()))
    return (
        f"This is a defect of frhsic ({type(error).__name__}: {_sentence(str(error))}). "
        "Set FRHSIC_TRACEBACK=1 to see where, and report it."
    )


def _version(asked: bool) -> None:
    if asked:
        _say(f"frhsic {importlib.metadata.version('frhsic')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure, reduce and certify the dependence of a model on a sensitive attribute that is a number.

    \b
    Examples:
      frhsic audit scores.csv --score score --sensitive age
      frhsic train people.csv --target income --sensitive age -o model.frhsic --epochs 5
      frhsic predict model.frhsic people.csv -o scores.parquet --keep age

    Exit codes: 0 done, 1 a measure is above its --fail-above or no model meets --rule equivalent, 2 something
    is wrong with input or output.
    """  # noqa: D301
