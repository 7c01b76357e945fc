"""Rows that a command audits: how they are read, in memory or in pieces, and their audit."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic._text import quote, quote_all, to_line
from frhsic.cli._input import check_columns, drop_empty, list_columns, read_columns
from frhsic.cli._options import IN_MEMORY, MANY
from frhsic.cli._output import echo, echo_warnings, show_status

if TYPE_CHECKING:
    import pyarrow as pa

    import frhsic.auditing
    import frhsic.sources

_BY_PIECES = ("counts", "sketch")  # methods of a record of which the rows are not held in memory
# Notes that are printed while the rows are read, not again below the summary.
SOURCE_NOTES = ("Of a sketch", "From a table of counts")


@dataclass(frozen=True)
class Request:
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


def redact(file: str, query: str | None) -> str:
    """Return the file or the database as it may be printed."""
    import frhsic.sources

    return frhsic.sources.redact_url(file) if query is None else frhsic.sources.redact_database(file)


def audit_again(
    plain: dict[str, Any], file: str, query: str | None, driver: str | None = None
) -> frhsic.auditing.Audit:
    """Return the audit that a record describes, computed again from rows."""
    request = _request_of(plain, file, query, driver)
    source = open_large(request) if plain["record"]["options"]["method"] in _BY_PIECES else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the audit was made
        return audit_table(request) if source is None else audit_by_pieces(request, source)


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


def _request_of(plain: dict[str, Any], file: str, query: str | None, driver: str | None = None) -> Request:
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
    return Request(
        file, columns, options_["positive_label"], arguments, list(options_["missing_values"]),
        options_["drop_missing"], query, "local" if options_["method"] in _BY_PIECES else "auto", None,
        redact(file, query), driver, options_["prefix"],
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


def _check_in_memory(request: Request) -> None:
    """Raise ArgumentError if reasons are asked for of rows that are sketched."""
    for name in ("--given", "--contributions"):
        if request.columns[name]:
            must = f"come with one file of at most {IN_MEMORY:,} rows: regressions need the rows"
            fix = "Take a random part of them, or leave it out."
            raise ArgumentError(name, must, "rows that are read in pieces", fix)


def audit_table(request: Request) -> frhsic.auditing.Audit:
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


def _read_request(request: Request) -> tuple[pa.Table, int]:
    """Return the rows of a file without those that are left out, and how many there were."""
    table = read_columns(Path(request.file), request.columns, request.placeholders)
    read = table.num_rows
    if request.drop_missing:
        # Factors may be missing, and are then so by themselves.
        table = drop_empty(table, [one for one in table.column_names if one not in request.given])
    return table, read


def _arguments_of(request: Request, table: pa.Table) -> dict[str, Any]:
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


def _complete(found: frhsic.auditing.Audit, request: Request, left_out: int | None) -> frhsic.auditing.Audit:
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


def audit_by_pieces(request: Request, source: frhsic.sources.Source) -> frhsic.auditing.Audit:
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
    echo(next(note for note in found.notes if note.startswith(SOURCE_NOTES)), error=True)
    return _complete(found, request, found.left_out)


def open_large(request: Request) -> frhsic.sources.Source | None:
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
        return source.rows <= IN_MEMORY
    form = source.pieces[0].form
    if form is not None and form.name == "csv":
        return frhsic.sources.has_at_most(path, IN_MEMORY)
    rows = 0
    for batch in dataclasses.replace(source, allow_missing=True):
        rows += batch.num_rows
        if rows > IN_MEMORY:
            return False
    return True


def _choose_engine(request: Request, source: frhsic.sources.Source) -> Any:
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
        many = source.rows is None or source.rows >= MANY
        name = "pool" if files and many and len(source.pieces) > 1 else "local"
    runners = frhsic.runners
    return {"local": runners.Local, "pool": runners.Pool, "ray": runners.Ray}[name]()


def _find_label(request: Request, table: pa.Table) -> Any:
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
