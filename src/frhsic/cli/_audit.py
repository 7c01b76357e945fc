"""The command ``frhsic audit``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frhsic._checks import ArgumentError, check_confidence_level
from frhsic._text import LONGEST, cell, number, quote, to_line
from frhsic.cli import _options as options
from frhsic.cli._gate import BUILT_IN, DECISION_MEASURE, OUTCOME_MEASURES, Gate
from frhsic.cli._input import hash_file
from frhsic.cli._options import argument, option
from frhsic.cli._output import echo, echo_table, show_status, write_bytes, write_json

if TYPE_CHECKING:
    import frhsic.auditing
    import frhsic.sources
    from frhsic.cli._rows import Request

_ENGINES = ("auto", "local", "pool", "ray")
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
        f"auto: rows as they are, above {options.IN_MEMORY:,} by counts, or by a sketch with --group or "
        f"several --score, above {options.MANY:,} on all cores. local: by this process. pool, ray: a sketch "
        "on all cores or on a Ray cluster (RAY_ADDRESS).",
    ),
]
_Partials = Annotated[
    Path | None, option("--partials DIR", "Keep what is done of a sketch, to go on after a stop.")
]


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
    from frhsic.cli import _rows

    shown = _rows.redact(file, query)
    request = _rows.Request(
        file, columns, positive, arguments, placeholders, drop_missing, query, engine, partials, shown,
        driver, contributions,
    )  # fmt: skip
    source = _rows.open_large(request)
    with show_status("Loading"):
        import frhsic.auditing
    found = _rows.audit_table(request) if source is None else _rows.audit_by_pieces(request, source)
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


def _echo_audit(found: frhsic.auditing.Audit, request: Request) -> None:
    from frhsic.cli._rows import SOURCE_NOTES

    what = f"{found.width} columns"
    if found.subject == "score":
        what = f"score {quote(request.columns['--score'][0])}"
    groups = "" if found.groups is None else f" in {found.groups:,} groups"
    file = to_line(Path(request.shown_file).name)
    echo(f"Audit of {what} in {file}: {found.n:,} rows{groups}.", style="bold")
    said = found.sentences()
    more = (note for note in found.notes if note not in said and not note.startswith(SOURCE_NOTES))
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
