"""The command ``frhsic verify``: an audit computed again from its record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from frhsic._checks import ArgumentError
from frhsic._text import to_line
from frhsic.cli import _options as options
from frhsic.cli._options import argument, option
from frhsic.cli._output import echo, show_status, write_json

_SHOWN = 10  # contradictions that are printed

_Record = Annotated[Path, argument("RECORD", "The JSON of an audit, written by frhsic audit --json.")]
_Rows = Annotated[
    str | None,
    argument("[FILE]", "The rows, as they were passed to frhsic audit; or the database, with --query."),
]
_Query = Annotated[str | None, option("--query SELECT", "The query of the record, after you have read it.")]
_ModelFile = Annotated[
    Path | None, option("--model-file FILE", "The file of the model, to be compared with its SHA-256.")
]


def verify(
    record: _Record,
    file: _Rows = None,
    query: _Query = None,
    driver: options.Driver = None,
    model_file: _ModelFile = None,
    as_json: options.Json = None,
) -> None:
    """Compute an audit again from its record and the rows, and say number by number what is the same.

    Exits with 0 if all numbers are the same or within the tolerance, 1 if one differs or the record was
    changed, 2 if the input cannot be read, 3 if something could not be computed or is worded otherwise by
    another version. Without the rows it says only whether the record is consistent in itself. Nothing in a
    record is run.

    \b
    Examples:
      frhsic verify audit.json scores.csv
      frhsic verify audit.json
    """  # noqa: D301
    with show_status("Loading"):
        import frhsic.auditing
    plain = frhsic.auditing.read_record(record)
    problems = list(frhsic.auditing.find_problems(plain))
    problems += _check_model(plain, model_file)
    if file is None:
        _echo_consistency(problems)
        raise typer.Exit(1 if problems else 0)
    try:
        from frhsic.cli._rows import audit_again

        found = audit_again(plain, file, query, driver)
    except (KeyError, TypeError, AttributeError, OverflowError):
        if problems:
            _echo_consistency(problems)
            raise typer.Exit(1) from None
        raise ArgumentError(
            "RECORD", "be a whole record", "parts of another type", "Write it anew."
        ) from None
    result = frhsic.auditing.verify(plain, found)
    result = replace(result, problems=tuple(problems))
    _echo_result(result)
    if as_json is not None:
        write_json(result.to_dict(), as_json)
        echo(f"Wrote {as_json}.")
    raise typer.Exit(result.code)


def _check_model(plain: dict[str, Any], model_file: Path | None) -> list[str]:
    """Return a problem if the file of the model is not the recorded one."""
    if model_file is None:
        return []
    from frhsic.cli._input import hash_file

    recorded = plain["about"].get("model_sha256")
    if recorded is None:
        fix = "Leave it out."
        raise ArgumentError("--model-file", "come with a record that holds its SHA-256", "one without", fix)
    same = hash_file(model_file) == recorded
    return [] if same else ["The file of the model is not the recorded one."]


def _echo_consistency(problems: list[str]) -> None:
    for problem in problems[:_SHOWN]:
        echo(f"CHANGED: {to_line(problem, 400)}", error=True)
    if len(problems) > _SHOWN:
        echo(f"... and {len(problems) - _SHOWN:,} more contradictions.", error=True)
    if not problems:
        echo(
            "Internally consistent: its digest fits and its parts do not contradict each other. Whether the "
            "numbers are those of the rows needs the rows: frhsic verify RECORD FILE."
        )


def _echo_result(result: Any) -> None:
    *lines, verdict = result.lines()
    for line in lines:
        wrong = line.startswith(("CHANGED", "DIFFERS", "WORDS", "..."))
        echo(to_line(line, 400), error=wrong)
    echo(verdict, style="bold", error=result.code != 0)
