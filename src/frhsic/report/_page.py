"""The report: an audit as one HTML file that loads nothing, runs nothing and judges nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from frhsic._files import replacing
from frhsic._text import clean, digits, is_right_to_left, join_words, shorten, shown
from frhsic.auditing import (
    MIN_ROWS_SHOWN,
    Audit,
    Column,
    Limit,
    Tile,
    limit_sentence,
    list_facts,
    make_tiles,
)
from frhsic.report import _figures, _reasons, _tables, _words
from frhsic.report._svg import Picture

_COMMAND = 2_000  # characters of the command that are shown
_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib")


def write_report(
    audit: Audit,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    command: str | None = None,
    source: str | None = None,
    date: datetime | None = None,
) -> None:
    """Write an audit as one HTML file that holds everything it needs.

    An interruption leaves the old file: the new one replaces it when it is complete.

    Parameters
    ----------
    audit : Audit
    path : str or path
    title, command, source, date
        As in :func:`render_report`.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from frhsic.auditing import audit
    >>> x = np.random.default_rng(0).normal(size=(80, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(audit(x[:, 0], sensitive_features=x[:, 1], random_state=0), f"{folder}/report.html")
    """
    write_html(path, lambda: render_report(audit, title=title, command=command, source=source, date=date))


def write_html(path: str | os.PathLike[str], render: Callable[[], str]) -> None:
    """Write a page to a file, which is replaced when the page is complete."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"'path' must be a file. Got the folder '{target}'. Add a name: report.html.")
    html = render().encode()
    with replacing(target) as file:
        file.write(html)


def get_template(file: str, names: set[str]) -> jinja2.Template:
    """Return a template; its filter ``say`` marks these names in sentences."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("frhsic.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"say": _sentence_filter(names), "name": _mark_name, "digits": digits}
    return environment.get_template(file)


def render_element(
    names: set[str],
    sections: Sequence[tuple[str, Sequence[Tile]]],
    pictures: Sequence[Picture],
    sentences: Sequence[str],
    limits: Sequence[tuple[Limit, str]] = (),
) -> str:
    """Return an HTML element for a notebook: limits, numbers, a picture, and words."""
    html = get_template("card.html", names).render(
        t=_words.TEXT,
        limits=limits,
        sections=sections,
        several=len(sections) > 1,
        pictures=pictures,
        sentences=sentences,
    )
    # An empty line would end the HTML where notebooks are turned into Markdown.
    return "\n".join(line for line in html.splitlines() if line.strip())


def write_date(date: datetime | None) -> str:
    """Return a time in words; None is now."""
    date = datetime.now(UTC) if date is None else date
    return f"{date:%Y-%m-%d %H:%M} {date.tzname() or ''}".strip()


def write_command(command: str | None) -> str | None:
    """Return a command without control characters, and not too long."""
    return None if command is None else shorten(clean(command), _COMMAND)


def find_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries behind a page."""
    own, *libraries = ((name, importlib.metadata.version(name)) for name in ("frhsic", *_LIBRARIES))
    return dict([own, ("python", platform.python_version()), *libraries])


def render_report(
    audit: Audit,
    *,
    title: str | None = None,
    command: str | None = None,
    source: str | None = None,
    date: datetime | None = None,
) -> str:
    """Return an audit as an HTML report: a summary in words, figures, tables, and how it was made.

    Parameters
    ----------
    audit : Audit
    title : str, optional
    command : str, optional
        The command that made it, to be shown at the end.
    source : str, optional
        Where the rows came from, such as the name of a file.
    date : datetime, optional
        None is now. With a date given, the same audit gives the same bytes.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic.auditing import audit
    >>> x = np.random.default_rng(0).normal(size=(80, 2))
    >>> render_report(audit(x[:, 0], sensitive_features=x[:, 1], random_state=0), title="Rows")[:15]
    '<!doctype html>'
    """
    audit = audit.released
    names = [shown(name) for found in audit.attributes for name in found.names]
    names_in_text = {name for column in audit.columns for name in (column.name, *column.labels)}
    return get_template("report.html", names_in_text).render(
        audit=audit,
        version=audit.version,
        t=_words.TEXT,
        level=f"{100.0 * audit.confidence_level:g} %",
        title=_title(audit, title, names),
        about=_about(audit),
        limits=[(one, limit_sentence(one, audit.confidence_level)) for one in audit.limits],
        several=len(audit.attributes) > 1,
        outcome_labels=_outcome_labels(audit),
        fewest=MIN_ROWS_SHOWN,
        digest=audit.to_dict()["digest"],
        date=write_date(date),
        source=None if source is None else shown(source, 200),
        command=write_command(command),
        summary=audit.sentences(),
        notes=[note for note in audit.notes if note not in audit.sentences()],
        overview=_tables.overview_rows(audit),
        sections=tuple(_sections(audit)),
        subject=f"the {audit.subject}",
        transfer=tuple(_figures.transfer_figures(audit.representation)),
        certificate=audit.certificate,
        bounds=None if audit.certificate is None else _figures.bounds_figure(audit.certificate),
        bound_titles=_words.BOUNDS,
        kinds=_words.KINDS,
        recovery=_words.RECOVERY,
        fresh=_words.TRANSFER,
        columns=[_tables.describe_column(column) for column in audit.columns],
        versions=find_versions() | {"frhsic": audit.version},
    )


def _title(audit: Audit, title: str | None, names: list[str]) -> str:
    """Return the title: the caller's, or one with the model and the score."""
    said, words, s = title or audit.about.title, _words.TEXT["page"], join_words(names, 3)
    if said:
        return shown(said, 200)
    if audit.about.model_name is None or audit.score is None:
        return str(words["title"].format(z=audit.subject, s=s))
    return str(words["title_model"].format(model=audit.about.model_name, score=audit.score.name, s=s))


def _about(audit: Audit) -> list[tuple[str, str]]:
    """Return what the caller said about the audit, and the names of score and outcome."""
    return [(_words.TEXT["page"][name], text) for name, text in list_facts(audit).items()]


def _outcome_labels(audit: Audit) -> list[tuple[str, int]]:
    """Return the labels of the outcome of at least ten rows, with their rows."""
    outcome = audit.attributes[0].outcome
    parts = () if outcome is None else outcome.labels
    return [(part.label, part.n) for part in parts if part.n >= MIN_ROWS_SHOWN]


def _sections(audit: Audit) -> Iterator[dict[str, object]]:
    """Return what the report shows of each attribute, and of all jointly."""
    # Without columns of which every label has too few rows to be drawn.
    visible = [column for column in audit.columns if column.kind != "categorical" or any(column.counts)]
    columns: dict[tuple[str, ...], Column] = {(column.name,): column for column in visible}
    known: set[str] = set()
    for place, found in enumerate(audit.every):
        key, column = f"a{place}", columns.get(found.names)
        yield {
            "joint": found.kind == "joint",
            "name": join_words([shown(name) for name in found.names], 3),
            "key": key,
            "tiles": () if found.kind == "joint" else make_tiles(audit, found),
            "figures": tuple(_figures.attribute_figures(found, column, key, audit)),
            "rows": _tables.explain_once(_tables.attribute_rows(found, audit), known),
            "decision_rows": _tables.explain_once(_tables.decision_rows(found, audit), known),
            "decision_figures": tuple(_figures.decision_figures(found, column, key)),
            "reasons": tuple(_reasons.reason_figures(found, column, key)),
            "outcome_rows": _tables.explain_once(_tables.outcome_rows(found, audit), known),
            "outcome_figures": tuple(_figures.outcome_figures(found.outcome, column, key, audit)),
        }


def _mark_name(text: object) -> Markup:
    """Return a name that cannot change the direction of the text around it."""
    name = shown(text)
    # A word as long as a column may be broken anywhere; others only between words.
    if max(map(len, name.split()), default=0) > 18:
        return Markup('<bdi class="long">{}</bdi>').format(name)
    return Markup("<bdi>{}</bdi>").format(name)


def _sentence_filter(names: set[str]) -> Callable[[object], Markup]:
    """Return a filter for sentences that hold names: long ones are cut, others keep their direction."""
    names = names | {shown(name) for name in names}
    odd = sorted((name for name in names if shown(name) != name or is_right_to_left(name)), key=len)
    pattern = re.compile("|".join(map(re.escape, reversed(odd))) or r"(?!)")

    def say(text: object) -> Markup:
        whole, parts, end = str(text), [], 0
        for found in pattern.finditer(whole):
            parts += [escape(clean(whole[end : found.start()])), _mark_name(found[0])]
            end = found.end()
        return Markup("").join([*parts, escape(clean(whole[end:]))])

    return say
