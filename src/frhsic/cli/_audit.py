"""The command ``frhsic audit``."""

from __future__ import annotations

import dataclasses
import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frhsic._checks import ArgumentError, check_confidence_level
from frhsic._text import LONGEST, cell, number, quote, quote_all, to_line
from frhsic.cli import _options as options
from frhsic.cli._gate import BUILT_IN, DECISION_MEASURE, OUTCOME_MEASURES, Gate
from frhsic.cli._input import check_columns, drop_empty, hash_file, list_columns, read_columns
from frhsic.cli._options import argument, option
from frhsic.cli._output import echo, echo_table, echo_warnings, show_status, write_bytes, write_json

if TYPE_CHECKING:
    import pyarrow as pa

    import frhsic.auditing
    import frhsic.sources

_IN_MEMORY = 500_000  # rows that an audit reads as they are; more are counted, or sketched
_MANY = 20_000_000  # rows from which on a sketch is worth all cores
_BY_PIECES = ("counts", "sketch")  # methods of a record of which the rows are not held in memory
_ENGINES = ("auto", "local", "pool", "ray")
# Notes that are printed while the rows are read, not again below the summary.
_SOURCE_NOTES = ("Of a sketch", "From a table of counts")

_File = Annotated[
    str,
    argument(
        "FILE",
        "A CSV, Parquet or Arrow file; a folder, a quoted pattern ('scores/*.parquet') or URL of such files; "
        "or, with --query, a database: the URL of PostgreSQL, a DuckDB or SQLite file, or the name of an "
        "environment variable that holds one of them.",
    ),
]
_Score = Annotated[list[str], option("--score COL", "The score; several columns are a representation.")]
_Label = Annotated[str | None, option("--label COL", "The outcome that the score predicts.")]
_Positive = Annotated[str | None, option("--positive LABEL", "The favourable outcome; else the last label.")]
_Group = Annotated[
    str | None, option("--group COL", "Rows of equal COL, such as a person, may depend on one another.")
]
_Report = Annotated[Path | None, option("--report OUT.html", "Write a report with pictures.")]
_Markdown = Annotated[
    Path | None, option("--markdown OUT.md", "Write a section for a model card or a pull request.")
]
_ConfidenceLevel = Annotated[
    float, option("--confidence-level", "The confidence of each interval, and of all claims together.")
]
_TrainedOn = Annotated[
    bool | None, option("--trained-on/--held-out", "Whether the model was trained on these rows.")
]
_FailAbove = Annotated[
    list[str] | None,
    option(
        "--fail-above MEASURE=X",
        f"A limit; exit with 1 if a measure is above X on any sensitive column: {', '.join(BUILT_IN)}; with "
        f"--threshold also {DECISION_MEASURE}; with --label also {', '.join(OUTCOME_MEASURES)}.",
    ),
]
_FailOn = Annotated[
    str | None,
    option(
        "--fail-on END",
        "What is compared with limits for the exit code. lower (unless said): the lower end of the interval, "
        "so that only what is shown to be above fails; upper: only what is shown to be at most the limit "
        "passes; estimate.",
    ),
]
_Limits = Annotated[
    Path | None,
    option(
        "--limits FILE.toml",
        "Limits fixed beforehand: a [limits] table with lines such as gap = 0.05, and fixed = DATE.",
    ),
]
_Title = Annotated[str | None, option("--title TEXT", "The title of the report.")]
_Model = Annotated[str | None, option("--model NAME@VERSION", "Which model made the score.")]
_ModelFile = Annotated[
    Path | None, option("--model-file FILE", "The file of the model: its SHA-256 is recorded.")
]
_Owner = Annotated[str | None, option("--owner TEXT", "Who answers for the model.")]
_Purpose = Annotated[str | None, option("--purpose TEXT", "What the score is used for.")]
_Population = Annotated[str | None, option("--population TEXT", "Whom the rows stand for.")]
_Threshold = Annotated[
    list[float] | None,
    option(
        "--threshold T",
        "A score above which a decision is made: the rate of decisions along each attribute, its gap and "
        "the ratio of the lowest to the highest rate. May be repeated.",
    ),
]
_Below = Annotated[
    list[str] | None,
    option(
        "--below REGION",
        "Ask whether the mean score of a region, such as 'age >= 62', is below that of the others. To be "
        "chosen before the rows are looked at; each question has its own level. May be repeated.",
    ),
]
_Above = Annotated[list[str] | None, option("--above REGION", "The same, above that of the others.")]
_Given = Annotated[
    list[str] | None,
    option(
        "--given COL",
        "A factor to hold equal, such as income: what remains along each attribute. May be repeated.",
    ),
]
_Contributions = Annotated[
    str | None,
    option(
        "--contributions PREFIX",
        "Columns that begin so hold what each input of the model adds to the score (SHAP values, say): "
        "which inputs carry the gap.",
    ),
]
_Query = Annotated[
    str | None,
    option("--query SELECT", "What to read from a database. It is written into reports and records."),
]
_Engine = Annotated[
    str,
    option(
        "--engine ENGINE",
        f"auto: rows as they are, above {_IN_MEMORY:,} by counts, or by a sketch with --group or several "
        f"--score, above {_MANY:,} on all cores. local: by this process. pool, ray: a sketch on all cores or "
        "on a Ray cluster (RAY_ADDRESS).",
    ),
]
_Partials = Annotated[
    Path | None, option("--partials DIR", "Keep what is done of a sketch, to go on after a stop.")
]


@dataclass(frozen=True)
class _Request:
    """What is to be audited, and how it is read."""

    file: str
    columns: dict[str, Any]  # by option
    positive: str | None
    arguments: dict[str, Any]  # of ``audit`` and ``audit_source``, that need no table
    placeholders: list[str]
    drop_missing: bool
    query: str | None
    engine: str
    partials: Path | None
    shown_file: str  # of a URL neither user, password nor query
    driver: str | None = None  # of a database
    prefix: str | None = None  # of the columns of contributions

    @property
    def is_sketched(self) -> bool:
        """Whether rows in pieces are sketched: those of a representation, and those in groups."""
        return len(set(self.columns["--score"])) > 1 or self.columns["--group"] is not None

    @property
    def given(self) -> list[str]:
        """The factors."""
        return self.columns["--given"] or []


def audit(
    context: typer.Context,
    file: _File,
    score: _Score,
    sensitive: options.Sensitive,
    kind: options.Kinds = None,
    label: _Label = None,
    positive: _Positive = None,
    weight: options.Weight = None,
    group: _Group = None,
    threshold: _Threshold = None,
    below: _Below = None,
    above: _Above = None,
    given: _Given = None,
    contributions: _Contributions = None,
    report: _Report = None,
    as_json: options.Json = None,
    markdown: _Markdown = None,
    confidence_level: _ConfidenceLevel = 0.95,
    seed: options.Seed = 0,
    trained_on: _TrainedOn = None,
    fail_above: _FailAbove = None,
    fail_on: _FailOn = None,
    limits: _Limits = None,
    title: _Title = None,
    model: _Model = None,
    model_file: _ModelFile = None,
    owner: _Owner = None,
    purpose: _Purpose = None,
    population: _Population = None,
    drop_missing: options.DropMissing = False,
    missing_values: options.MissingValues = None,
    query: _Query = None,
    driver: options.Driver = None,
    engine: _Engine = "auto",
    partials: _Partials = None,
) -> None:
    """Print how much a score depends on sensitive columns, and how certain that is.

    A small dependence is small under these measures and on these rows; it is no verdict about the model.
    Files above 500,000 rows, folders and databases are counted in two or three passes: a table of each
    sensitive column and one of all. With --group or several --score they are sketched; the report says what
    then comes from 5,000 rows.

    \b
    Examples:
      frhsic audit scores.csv --score score --sensitive age
      frhsic audit scores.csv --score score --sensitive age --sensitive sex --label income --held-out
      frhsic audit scores.csv --score score --sensitive age --report audit.html --json audit.json
      frhsic audit scores.csv --score score --sensitive age --threshold 0.5 --below 'age >= 62'
      frhsic audit scores.csv --score score --sensitive age --given hours --report audit.html
      frhsic audit scores.csv --score score --sensitive age --fail-above gdp=0.25
      frhsic audit 'scores/*.parquet' --score score --sensitive age --report audit.html
      frhsic audit BANK_DATABASE --query "SELECT score, age FROM scores" --score score --sensitive age
      frhsic audit scores.duckdb --query "SELECT score, age FROM scores" --score score --sensitive age
    """  # noqa: D301
    gate = Gate.parse(
        fail_above,
        fail_on,
        several=len(set(score)) > 1,
        outcome=label is not None,
        thresholds=bool(threshold),
        file=limits,
    )
    kinds = options.parse_kinds(kind, sensitive)
    check_confidence_level(confidence_level)
    if positive is not None and label is None:
        fix = "Name its column with --label."
        raise ArgumentError("--positive", "come with --label", "no outcome", fix)
    options.check_outputs({"--report": report, "--json": as_json, "--markdown": markdown}, Path(file))
    if engine not in _ENGINES:
        must = f"be one of {', '.join(_ENGINES)}"
        raise ArgumentError("--engine", must, quote(engine), "Leave it out.")
    columns = {
        "--score": score, "--sensitive": sensitive, "--label": label, "--weight": weight, "--group": group,
        "--given": given,
        "--contributions": _list_contributions(file if query is None else "", contributions),
    }  # fmt: skip
    arguments = {
        "kinds": kinds,
        "confidence_level": confidence_level,
        "random_state": seed,
        "trained_on": trained_on,
        "thresholds": tuple(threshold or ()),
        "regions": _parse_regions(below, above),
        "limits": gate.limits,
        "about": {
            "title": title, "model": model, "owner": owner, "purpose": purpose, "population": population,
            "limits_fixed": gate.fixed, "model_sha256": hash_file(model_file),
        },
    }  # fmt: skip
    placeholders = options.parse_placeholders(missing_values)
    import frhsic.sources

    shown = _redact(file, query)
    request = _Request(
        file, columns, positive, arguments, placeholders, drop_missing, query, engine, partials, shown,
        driver, contributions,
    )  # fmt: skip
    source = _open_large(request)
    with show_status("Loading"):
        import frhsic.auditing
    found = _audit_table(request) if source is None else _audit_source(request, source)
    found = found.released  # the terminal says what files say
    if report is not None:
        with show_status("Drawing the report"):
            import frhsic.report

            typed = (shown if one == file else frhsic.sources.redact_url(one) for one in context.obj)
            command = shlex.join(["frhsic", *typed])
            frhsic.report.write_report(found, report, command=command, source=shown)
    if as_json is not None:
        write_json(found.to_dict(), as_json)
    if markdown is not None:
        write_bytes(found.to_markdown().encode(), markdown)
    _echo_audit(found, request)
    for path in filter(None, (report, as_json, markdown)):
        echo(f"Wrote {path}.")
    raise typer.Exit(0 if gate.check(found) else 1)


def _redact(file: str, query: str | None) -> str:
    """Return the file or the database as it may be printed."""
    import frhsic.sources

    return frhsic.sources.redact_url(file) if query is None else frhsic.sources.redact_database(file)


def audit_again(
    plain: dict[str, Any], file: str, query: str | None, driver: str | None = None
) -> frhsic.auditing.Audit:
    """Return the audit that a record describes, computed again from rows."""
    request = _request_of(plain, file, query, driver)
    source = _open_large(request) if plain["record"]["options"]["method"] in _BY_PIECES else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the audit was made
        return _audit_table(request) if source is None else _audit_source(request, source)


def read_rows(plain: dict[str, Any], file: str) -> dict[str, Any]:
    """Return the rows that a record describes, by the arguments of ``audit``."""
    if plain["record"]["options"]["method"] in _BY_PIECES:
        fix = "Leave it out, or audit a random part of the rows."
        raise ArgumentError("--data", "come with audits of rows as they are", "one of pieces", fix)
    request = _request_of(plain, file, None)
    rows = _arguments_of(request, _read_request(request)[0])
    return {
        name: rows[name] for name in ("scores", "sensitive_features", "y_true", "sample_weight", "groups")
    }


def _request_of(plain: dict[str, Any], file: str, query: str | None, driver: str | None = None) -> _Request:
    """Return what a record says was audited, and how it was read."""
    options_, names = plain["record"]["options"], _names_by_role(plain)
    if (options_["query"] is None) != (query is None) or (query or "") != (options_["query"] or ""):
        got = "another one" if query else "none"
        # Nothing that a record says is sent to a database.
        fix = "Pass the query of the record, after reading it."
        raise ArgumentError("--query", "be the query of the record", got, fix)
    prefix = options_["prefix"] or ""
    columns = {
        "--score": names["scores"], "--sensitive": names["sensitive_features"],
        "--label": _first(names["y_true"]), "--weight": _first(names["sample_weight"]),
        "--group": _first(names["groups"]), "--given": names["given"],
        "--contributions": [f"{prefix}{name}" for name in names["contributions"]],
    }  # fmt: skip
    arguments = {
        name: options_[name] for name in ("confidence_level", "kinds", "trained_on", "regions", "limits")
    }
    arguments |= {"random_state": plain["seed"], "about": plain["about"]}
    arguments |= {"thresholds": tuple(options_["thresholds"])}
    return _Request(
        file, columns, options_["positive_label"], arguments, list(options_["missing_values"]),
        options_["drop_missing"], query, "local" if options_["method"] in _BY_PIECES else "auto", None,
        _redact(file, query), driver, options_["prefix"],
    )  # fmt: skip


def _names_by_role(plain: dict[str, Any]) -> dict[str, list[str]]:
    """Return the columns of a record by the argument they were passed as."""
    roles = ("scores", "sensitive_features", "y_true", "sample_weight", "groups", "given", "contributions")
    found: dict[str, list[str]] = {role: [] for role in roles}
    for one in plain["record"]["columns"]:
        if one["name"] is None or one["role"] not in found:
            must = "name the columns of a file"
            fix = "It was made in Python from arrays: use frhsic.auditing.verify there."
            raise ArgumentError("RECORD", must, f"a column of {quote(one['role'])} without a name", fix)
        found[one["role"]].append(one["name"])
    if not found["scores"]:
        fix = "Without digests of the columns nothing shows that these are the same rows."
        raise ArgumentError("RECORD", "hold digests of the columns", "none", fix)
    return found


def _first(names: list[str]) -> str | None:
    return names[0] if names else None


def _parse_regions(below: list[str] | None, above: list[str] | None) -> dict[str, str]:
    """Return each region with what is asked about it."""
    regions = dict.fromkeys(below or (), "below")
    for text in above or ():
        if text in regions:
            fix = "Ask one of the two: a question has one side."
            raise ArgumentError("--above", "name other regions than --below", quote(text), fix)
        regions[text] = "above"
    return regions


def _list_contributions(file: str, prefix: str | None) -> list[str]:
    """Return the columns of a file that begin with the prefix."""
    if prefix is None:
        return []
    import frhsic.sources

    path = Path(file)
    names = frhsic.sources.column_names(path) if path.is_file() else []
    found = [name for name in names if name.startswith(prefix)]
    if not found:
        must = "be how columns of a single file begin"
        raise ArgumentError("--contributions", must, quote(prefix), "Check the names of the columns.")
    return found


def _check_in_memory(request: _Request) -> None:
    """Raise ArgumentError if reasons are asked for of rows that are sketched."""
    for name in ("--given", "--contributions"):
        if request.columns[name]:
            must = f"come with one file of at most {_IN_MEMORY:,} rows: regressions need the rows"
            fix = "Take a random part of them, or leave it out."
            raise ArgumentError(name, must, "rows that are read in pieces", fix)


def _audit_table(request: _Request) -> frhsic.auditing.Audit:
    """Audit rows that are held in memory."""
    import frhsic.auditing

    if request.partials is not None:
        got, fix = "rows that are read as they are", "Leave it out, or add --engine local."
        raise ArgumentError("--partials", "come with a sketch", got, fix)
    table, read = _read_request(request)
    with echo_warnings():
        found = frhsic.auditing.audit(
            **_arguments_of(request, table), positive_label=_find_label(request, table), **request.arguments
        )
    return _complete(found, request, read - table.num_rows if request.drop_missing else None)


def _read_request(request: _Request) -> tuple[pa.Table, int]:
    """Return the rows of a file without those that are left out, and how many there were."""
    table = read_columns(Path(request.file), request.columns, request.placeholders)
    read = table.num_rows
    if request.drop_missing:
        # Factors may be missing, and are then so by themselves.
        table = drop_empty(table, [one for one in table.column_names if one not in request.given])
    return table, read


def _arguments_of(request: _Request, table: pa.Table) -> dict[str, Any]:
    """Return the columns of a table by the arguments of ``audit``."""
    score, sensitive, label, weight, group, given, added = request.columns.values()
    label, weight, group = (None if one is None else table.column(one) for one in (label, weight, group))
    return {
        "scores": table.select(list(dict.fromkeys(score))),
        "sensitive_features": table.select(list(dict.fromkeys(sensitive))),
        "y_true": label,
        "sample_weight": weight,
        "groups": group,
        "given": table.select(list(dict.fromkeys(given))) if given else None,
        "contributions": _take_contributions(table, added, request.prefix) if added else None,
    }


def _complete(found: frhsic.auditing.Audit, request: _Request, left_out: int | None) -> frhsic.auditing.Audit:
    """Return the audit with what only the command knows: names of columns, and how rows were read."""
    if found.record is None:
        return found
    options = dataclasses.replace(
        found.record.options,
        missing_values=tuple(request.placeholders),
        drop_missing=request.drop_missing,
        query=request.query,
        prefix=request.prefix,
    )
    names = {"y_true": "--label", "sample_weight": "--weight", "groups": "--group"}
    columns = tuple(
        dataclasses.replace(one, name=request.columns[names[one.role]]) if one.role in names else one
        for one in found.record.columns
    )
    record = dataclasses.replace(found.record, options=options, columns=columns)
    return dataclasses.replace(found, record=record, left_out=left_out, outcome=request.columns["--label"])


def _take_contributions(table: pa.Table, names: list[str], prefix: str | None) -> pa.Table:
    """Return the contributions, named by their inputs."""
    return table.select(names).rename_columns([name.removeprefix(prefix or "") or name for name in names])


def _audit_source(request: _Request, source: frhsic.sources.Source) -> frhsic.auditing.Audit:
    """Audit rows of a source by tables of counts or sketches of them."""
    import frhsic.auditing

    _check_in_memory(request)
    with echo_warnings(), show_status("Reading") as progress:
        found = frhsic.auditing.audit_source(
            source,
            scores=request.columns["--score"],
            sensitive_features=request.columns["--sensitive"],
            y_true=request.columns["--label"],
            sample_weight=request.columns["--weight"],
            groups=request.columns["--group"],
            positive_label=request.positive,
            engine=_choose_engine(request, source),
            partials=request.partials,
            progress=progress,
            **request.arguments,
        )
    echo(next(note for note in found.notes if note.startswith(_SOURCE_NOTES)), error=True)
    return _complete(found, request, found.left_out)


def _open_large(request: _Request) -> frhsic.sources.Source | None:
    """Return the rows as a source where they are to be sketched; None where they fit into memory."""
    import frhsic.sources

    if request.query is None and request.driver is not None:
        got, fix = "none", "Write what to read from the database."
        raise ArgumentError("--driver", "come with --query", got, fix)
    if request.query is not None:
        with echo_warnings(), show_status("Asking the database"):
            source = frhsic.sources.open_sql(
                request.file, request.query, driver=request.driver, allow_missing=request.drop_missing
            )
        source = dataclasses.replace(source, missing_values=tuple(request.placeholders))
        check_columns(list(source.columns), request.columns)
        return source
    path = Path(request.file)
    if path.is_file():
        check_columns(frhsic.sources.column_names(path), request.columns)
    with show_status(f"Looking at {to_line(request.shown_file)}"):
        source = frhsic.sources.open_source(
            request.file,
            columns=list_columns(request.columns),
            allow_missing=request.drop_missing,
            missing_values=request.placeholders,
        )
        as_rows = request.engine == "auto" and path.is_file() and _has_few_rows(source, path)
    return None if as_rows else source


def _has_few_rows(source: frhsic.sources.Source, path: Path) -> bool:
    """Return whether a file has few enough rows to be held in memory; only reading tells for some kinds."""
    import frhsic.sources

    if source.rows is not None:
        return source.rows <= _IN_MEMORY
    form = source.pieces[0].form
    if form is not None and form.name == "csv":
        return frhsic.sources.has_at_most(path, _IN_MEMORY)
    rows = 0
    for batch in dataclasses.replace(source, allow_missing=True):
        rows += batch.num_rows
        if rows > _IN_MEMORY:
            return False
    return True


def _choose_engine(request: _Request, source: frhsic.sources.Source) -> Any:
    """Return the engine of a sketch; counts have none."""
    import frhsic.runners

    name = request.engine
    if not request.is_sketched:
        if name in ("pool", "ray"):
            must, fix = "come with --group or several --score", "Leave it out: one score is counted."
            raise ArgumentError("--engine", must, quote(name), fix)
        return None
    if name == "auto":
        files = all(piece.path for piece in source.pieces)
        many = source.rows is None or source.rows >= _MANY
        name = "pool" if files and many and len(source.pieces) > 1 else "local"
    runners = frhsic.runners
    return {"local": runners.Local, "pool": runners.Pool, "ray": runners.Ray}[name]()


def _find_label(request: _Request, table: pa.Table) -> Any:
    """Return the label of the outcome that reads like the one of --positive."""
    import frhsic.data

    if request.positive is None:
        return None
    name = request.columns["--label"]
    labels = frhsic.data.split_labels(table.column(name), name="y_true").kept
    known = {str(one.value): one.value for one in labels}
    if request.positive not in known:
        fix = f"Take one of {quote_all(list(known))}."
        raise ArgumentError("--positive", f"be a label of column {quote(name)}", quote(request.positive), fix)
    return known[request.positive]


def _echo_audit(found: frhsic.auditing.Audit, request: _Request) -> None:
    what = f"{found.width} columns"
    if found.subject == "score":
        what = f"score {quote(request.columns['--score'][0])}"
    groups = "" if found.groups is None else f" in {found.groups:,} groups"
    file = to_line(Path(request.shown_file).name)
    echo(f"Audit of {what} in {file}: {found.n:,} rows{groups}.", style="bold")
    said = found.sentences()
    more = (note for note in found.notes if note not in said and not note.startswith(_SOURCE_NOTES))
    names = {*(name for one in found.attributes for name in one.names), *filter(None, [found.outcome])}
    for paragraph in (*said, *(f"Note: {note}" for note in more)):
        for name in names:
            paragraph = paragraph.replace(name, to_line(name)) if len(name) > LONGEST else paragraph
        echo()
        echo(paragraph)
    for one in found.every:
        _echo_numbers(one, found)
    echo()
    echo(
        "gap: the mean distance between the scores at a value and all scores, GDP that of their means, in "
        "units of the score. For the others 0 is none, and 1 the most (HSIC alone has no such end). With "
        "chance: the gap of these rows themselves, of which the estimate leaves out nearly all that chance "
        "adds. If independent: the mean of that (or of the estimate) under independence."
    )


def _echo_numbers(one: frhsic.auditing.Attribute, found: frhsic.auditing.Audit) -> None:
    """Print the numbers on one attribute as a table."""
    import frhsic.auditing

    corrected = "" if one.test.adjusted is None else " (corrected)"
    title = f"Dependence on {to_line(one.name)}: p = {number(one.test.reported)}{corrected}"
    share = f"{found.confidence_level:.0%}"
    headings = ["measure", "estimate", f"{share} interval", "with chance", "if independent"]
    results: list[tuple[str, Any]] = [
        (frhsic.auditing.MEASURES[name].short, result) for name, result in one.measures.items()
    ]
    results += [(f"decisions at {number(each.threshold)}", each.gap) for each in one.decisions]
    if one.outcome is not None:
        results += [(f"GDP, outcome {to_line(part.label, 8)}", part.gdp) for part in one.outcome.labels]
        results.append(("calibration gap", one.outcome.calibration_gap))
    rows = []
    for name, result in results:
        if result is not None:
            single = isinstance(result, frhsic.auditing.Estimate)
            interval = "" if single else f"{cell(result.low)} to {cell(result.high)}"
            rest = (getattr(result, "plug_in", None), result.chance)
            chance = ("" if x is None else cell(x) for x in rest)
            rows.append((name, cell(result.estimate), interval, *chance))
    echo_table(title, headings, rows)
