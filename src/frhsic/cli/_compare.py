"""The command ``frhsic compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frhsic._checks import ArgumentError
from frhsic._text import cell, to_line
from frhsic.cli import _options as options
from frhsic.cli._gate import Gate
from frhsic.cli._options import argument, option
from frhsic.cli._output import echo, echo_table, show_status, write_json

if TYPE_CHECKING:
    import frhsic.auditing

_SHOWN = 20  # differences that are printed
# Numbers that are also said in a sentence.
_SAID = ("gap", "gdp", "gap_at", "calibration_gap")

_Old = Annotated[Path, argument("OLD", "The JSON of the earlier audit, written by frhsic audit --json.")]
_New = Annotated[Path, argument("NEW", "The JSON of the later audit.")]
_Data = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--data",
        metavar="OLD NEW",
        help="The rows of both audits, one file each. They are compared with the digests of the records.",
        show_default=False,
    ),
]
_FailAbove = Annotated[
    list[str] | None,
    option(
        "--fail-above MEASURE=X",
        "Exit with 1 if a measure is shown to have grown by more than X, or its change has no interval.",
    ),
]


def compare(
    old: _Old,
    new: _New,
    data: _Data = None,
    as_json: options.Json = None,
    fail_above: _FailAbove = None,
) -> None:
    """Print what changed between two audits, number by number, and how certain that is.

    Without rows, intervals of changes come from the two recorded intervals and hold for independent samples.
    With the rows of both audits they come from these, also where both are about the same people. A change
    that is not shown may still be there.

    \b
    Examples:
      frhsic compare spring.json autumn.json
      frhsic compare spring.json autumn.json --data spring.parquet autumn.parquet
      frhsic compare spring.json autumn.json --json changes.json --fail-above gap=0.01
    """  # noqa: D301
    for source in (old, new, *map(Path, data or ())):
        options.check_output("--json", as_json, source)
    gate = Gate.parse(fail_above, None, several=False, outcome=True, thresholds=True)
    with show_status("Loading"):
        import frhsic.auditing
    records = [_read_record(name, path) for name, path in (("OLD", old), ("NEW", new))]
    try:
        rows = None
        if data is not None:
            from frhsic.cli._rows import read_rows

            rows = [read_rows(plain, file) for plain, file in zip(records, data, strict=True)]
        with show_status("Comparing"):
            found = frhsic.auditing.compare(
                *records, old_rows=rows[0] if rows else None, new_rows=rows[1] if rows else None
            )
    except (KeyError, TypeError, AttributeError):
        got, fix = "parts of another type", "Write both anew."
        raise ArgumentError("OLD and NEW", "be whole records", got, fix) from None
    _echo(found, old, new)
    if as_json is not None:
        write_json(found.to_dict(), as_json)
        echo(f"Wrote {as_json}.")
    raise typer.Exit(0 if _keeps(found, gate) else 1)


def _read_record(name: str, path: Path) -> dict[str, Any]:
    import frhsic.auditing

    try:
        return frhsic.auditing.read_record(path)
    except ArgumentError as error:
        raise ArgumentError(name, error.must, error.got, error.fix) from None


def _echo(found: frhsic.auditing.Comparison, old: Path, new: Path) -> None:
    names = f"{to_line(old.name)} and {to_line(new.name)}"
    said = {
        "same data": "the same data",
        "same rows": "the same rows",
        "different rows": "different rows",
        "not known": "whether they share rows is not known",
    }[found.samples]
    echo(f"Comparison of {names}: {said}.", style="bold")
    for text in filter(None, (found.scale_change, found.rank_change)):
        echo(to_line(text, 400), style="bold")
    for title, some in (("Made", found.made), ("Data", found.data), ("Limits", found.limits)):
        _echo_differences(title, some)
    for attribute in dict.fromkeys(one.attribute for one in found.numbers):
        _echo_numbers(attribute, [one for one in found.numbers if one.attribute == attribute])
    echo()
    for number in found.numbers:
        if number.measure in _SAID:
            echo(to_line(str(number), 400))
    for curve in found.curves:
        echo(to_line(str(curve), 600))
    if found.incomparable:
        echo()
        echo("Not comparable:")
        for text in found.incomparable:
            echo(f"  {to_line(text, 300)}")
    echo()
    for text in found.notes:
        echo(f"Note: {to_line(text, 400)}")


def _echo_differences(title: str, some: tuple[Any, ...]) -> None:
    if not some:
        return
    echo()
    echo(f"{title}:")
    for one in some[:_SHOWN]:
        old, new = ("not said" if text is None else to_line(text) for text in (one.old, one.new))
        echo(f"  {to_line(one.what)}: {old} -> {new}")
    if len(some) > _SHOWN:
        echo(f"  ... and {len(some) - _SHOWN:,} more.")


def _echo_numbers(attribute: str, numbers: list[frhsic.auditing.NumberChange]) -> None:
    """Print the numbers on one attribute as a table."""
    rows = []
    for one in numbers:
        interval = "" if one.low is None or one.high is None else f"{cell(one.low)} to {cell(one.high)}"
        title = to_line(one.title, 24)
        rows.append((title, cell(one.old), cell(one.new), f"{cell(one.change)}", interval))
    levels = {one.confidence_level for one in numbers} - {None}
    level = f"{levels.pop():.4g}" if len(levels) == 1 else ""
    share = f"{100 * float(level):g}% interval" if level else "interval"
    echo_table(f"On {to_line(attribute)}", ["measure", "old", "new", "change", share], rows)


def _keeps(found: frhsic.auditing.Comparison, gate: Gate) -> bool:
    """Print each limit of a change beside it; return whether none is shown to be exceeded."""
    kept = True
    for name, limit in gate.limits.items():
        numbers = [one for one in found.numbers if one.measure == name]
        if not numbers:
            fix = "Take a measure of both audits."
            raise ArgumentError("--fail-above", "name a number of both audits", f"'{name}'", fix)
        if found.scale_change is not None and numbers[0].in_score_unit:
            must = "name a measure that does not depend on the scale of the score, as the two scales differ"
            fix = "Take gap_worst or normalized_hsic, or bring both scores to one scale."
            raise ArgumentError("--fail-above", must, f"'{name}'", fix)
        for one in numbers:
            what = f"{to_line(one.title, 60)} on {to_line(one.attribute)}"
            if one.low is None:
                echo(f"NOT MEASURED: the change of {what} has no interval.", error=True)
                kept = False
            elif one.low > limit:
                echo(f"FAILED: {what} is shown to have grown by more than {limit:g}.", error=True)
                kept = False
            else:
                echo(f"Passed: {what} is not shown to have grown by more than {limit:g}.")
    return kept
