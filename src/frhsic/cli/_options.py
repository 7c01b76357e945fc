"""Options that several commands share, and checks of their values before any work is done."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from frhsic._checks import ArgumentError
from frhsic._text import quote, quote_all, to_line

# Rows that an audit reads as they are; more are counted, or sketched. From so many a sketch takes all cores.
IN_MEMORY, MANY = 500_000, 20_000_000


def option(usage: str, text: str) -> Any:
    """Return an option by its flags and the name of its value ("-o --output OUT"), and its help text."""
    flags = [word for word in usage.split() if word[0] == "-"]
    metavar = next((word for word in usage.split() if word[0] != "-"), None)
    return typer.Option(*flags, metavar=metavar, help=text, show_default="/" not in usage)


def argument(metavar: str, text: str) -> Any:
    """Return an argument with its name and its help text."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


_TABLE_FILE = "A .parquet, .csv or .arrow file."
File = Annotated[Path, argument("FILE", "A CSV, Parquet or Arrow file.")]
Sensitive = Annotated[list[str], option("--sensitive COL", "A sensitive column; may be repeated.")]
Kinds = Annotated[
    list[str] | None,
    option(
        "--kind COL=KIND",
        "Take a sensitive column as continuous or categorical. Unless said, numbers are continuous and text "
        "is categorical.",
    ),
]
Weight = Annotated[str | None, option("--weight COL", "How many people each row stands for.")]
Seed = Annotated[int, option("--seed N", "The same seed gives the same numbers.")]
Target = Annotated[str, option("--target COL", "The column to predict.")]
Model = Annotated[Path, option("-o --output MODEL", "Where to save the model.")]
Task = Annotated[str, option("--task TASK", "auto, classification or regression.")]
Drop = Annotated[list[str] | None, option("--drop COL", "A column that is no feature.")]
KeepSensitive = Annotated[bool, option("--keep-sensitive", "Use the sensitive columns as features too.")]
SaveHoldout = Annotated[
    Path | None, option("--save-holdout OUT", "Write the test rows, for predict and audit.")
]
SaveMissed = Annotated[
    bool, option("--save-missed", "Write the result although it misses a limit; the exit code stays 1.")
]
Epochs = Annotated[int, option("--epochs N", "Passes over the rows.")]
Json = Annotated[Path | None, option("--json OUT.json", "Write every number as JSON.")]
Table = Annotated[Path, option("-o --output OUT", _TABLE_FILE)]
TableOrNone = Annotated[Path | None, option("-o --output OUT", _TABLE_FILE)]
Driver = Annotated[
    str | None,
    option(
        "--driver NAME",
        "The ADBC driver of the database, where neither its URL nor its suffix tells: postgresql, duckdb, "
        "sqlite, or another one, which is untried.",
    ),
]
DropMissing = Annotated[
    bool, option("--drop-missing", "Leave out rows in which one of the named columns is empty.")
]
MissingValues = Annotated[
    str | None,
    option(
        "--missing-values LIST",
        "Cells that stand for no value, such as unknown,-999. They count as empty in every column that is "
        "read.",
    ),
]


def parse_kinds(texts: Sequence[str] | None, sensitive: Sequence[str]) -> dict[str, str] | None:
    """Return the kind of each sensitive column for which one is given."""
    kinds = {}
    for text in texts or ():
        name, _, kind = text.rpartition("=")
        if kind not in ("continuous", "categorical") or not name:
            example = f"Write --kind {to_line(name or 'zone')}=categorical, say."
            raise ArgumentError("--kind", "be COL=continuous or COL=categorical", quote(text), example)
        if name not in sensitive:
            fix = f"Take one of {quote_all(sensitive)}."
            raise ArgumentError("--kind", "name a --sensitive column", quote(name), fix)
        kinds[name] = kind
    return kinds or None


def parse_placeholders(text: str | None) -> list[str]:
    """Return the cells that stand for no value."""
    if text is None:
        return []
    found = [part.strip() for part in text.split(",")]
    if "" in found:
        fix = "Write --missing-values unknown,-999, say; empty cells are missing anyway."
        must = "be texts or numbers with commas between them"
        raise ArgumentError("--missing-values", must, quote(text), fix)
    return found


def parse_float(text: str) -> float | None:
    """Return a finite number, or None for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def check_only_one(given: Mapping[str, object]) -> None:
    """Raise ArgumentError if more than one of these options is given."""
    flags = [flag for flag, value in given.items() if value is not None]
    if len(flags) > 1:
        raise ArgumentError(flags[0], f"come without {flags[1]}", "both", "Leave one of them out.")


def parse_floats(flag: str, text: str, example: str) -> list[float]:
    """Return the numbers of a list with commas."""
    found = [value for value in map(parse_float, text.split(",")) if value is not None]
    if len(found) <= text.count(","):
        fix = f"Write {flag} {example}, say."
        raise ArgumentError(flag, "be numbers with commas between them", quote(text), fix)
    return found


def check_outputs(outputs: dict[str, Path | None], source: Path) -> None:
    """Raise ArgumentError for paths that cannot be written to, or that are one and the same."""
    seen: dict[str, str] = {}
    for flag, path in outputs.items():
        check_output(flag, path, source, table=flag == "--save-holdout")
        other = flag if path is None else seen.setdefault(os.path.realpath(path), flag)
        if other != flag:
            got = f"{quote(str(path))} twice"
            raise ArgumentError(flag, f"not be the file of {other}", got, "Choose another.")


def check_output(flag: str, path: Path | None, source: Path | None, *, table: bool = False) -> None:
    """Raise ArgumentError for a path that cannot be written to."""
    if path is None:
        return
    if table:
        import frhsic.sources

        try:
            frhsic.sources.check_suffix(path)
        except ArgumentError as error:
            raise ArgumentError(flag, error.must, error.got, error.fix) from None
    folder, shown = Path(os.path.realpath(path)).parent, quote(str(path))
    if not folder.is_dir():
        raise ArgumentError(flag, "be in a folder that exists", shown, "Make the folder first.")
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise ArgumentError(flag, "be a file", f"{shown}, which is a folder or device", "Add a file name.")
    if source is not None and path.exists() and source.exists() and os.path.samefile(path, source):
        raise ArgumentError(flag, "not be the file that is read", shown, "Choose another name.")
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ArgumentError(flag, "be in a folder you may write to", shown, "Choose another folder.")
