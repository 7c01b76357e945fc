"""An audit as Markdown: a section of a model card, or the summary of a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from frhsic._text import LONGEST, clean, is_right_to_left, join_words, shown
from frhsic.auditing._about import list_facts
from frhsic.auditing._limits import limit_sentence
from frhsic.auditing._results import Attribute, Audit, Renderers
from frhsic.auditing._tiles import make_tiles
from frhsic.auditing._words import LIMITS, confidence_sentence, dependence_sentence

_TITLE: Final = 200  # characters
# A backslash is enough for the first; not all renderers take one before the others.
_SPECIAL: Final = str.maketrans(
    {one: f"\\{one}" for one in "\\`*_[]#"}
    | {one: f"&#{ord(one)};" for one in "|~$@"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    | dict.fromkeys("\n\t\u2028\u2029", " ")
)
_HEADINGS: Final = ("Number", "Value", "Interval", "Meaning")

_Write = Callable[[object], str]


def make_markdown(audit: Audit, digest: str) -> str:
    """Return an audit as Markdown, without any row of it."""
    write = _make_writer(audit)
    parts = [
        f"## {write(_title(audit))}",
        _list(_facts(audit, write)),
        *_notes(audit, write),
        *_limits(audit, write),
    ]
    for found in audit.every:
        parts += _attribute(audit, found, write)
    parts += ["### How to read this", write(confidence_sentence(audit)), write(LIMITS)]
    parts += [_made(audit, digest, write)]
    return "\n\n".join(parts) + "\n"


def escape_markdown(text: object) -> str:
    r"""Return text on one line that Markdown and HTML show as it is.

    Examples
    --------
    >>> print(escape_markdown("a|b [x](javascript:y)\n<script>"))
    a&#124;b \[x\](javascript:y) &lt;script&gt;
    """
    escaped = clean(text).translate(_SPECIAL)
    # Code hosts make links of bare addresses.
    return escaped.replace("://", "&#58;//").replace("www.", "www&#46;")


def _make_writer(audit: Audit) -> _Write:
    """Return a function that escapes sentences: long names are cut, others keep their direction."""
    columns = (*audit.columns, *(() if audit.score is None else (audit.score,)))
    names = {name for column in columns for name in (column.name, *column.labels)}
    names |= {shown(name) for name in names}
    odd = sorted((name for name in names if len(name) > LONGEST or is_right_to_left(name)), key=len)
    pattern = re.compile(f"({'|'.join(map(re.escape, reversed(odd))) or '(?!)'})")

    def write(text: object) -> str:
        # Every second part is a name: isolated, so that what stands around it keeps its direction.
        return "".join(
            f"\u2068{escape_markdown(shown(part))}\u2069" if i % 2 else escape_markdown(part)
            for i, part in enumerate(pattern.split(str(text)))
        )

    return write


def _title(audit: Audit) -> str:
    """Return the title of the caller, or one with the model and the score."""
    names = join_words([shown(name) for found in audit.attributes for name in found.names], 3)
    subject = "the representation" if audit.score is None else f"“{shown(audit.score.name)}”"
    model = "Dependence" if audit.about.model_name is None else f"{audit.about.model_name}: dependence"
    return shown(audit.about.title or f"{model} of {subject} on {names}", _TITLE)


def _facts(audit: Audit, write: _Write) -> Iterator[str]:
    said = {**list_facts(audit), "rows": f"{audit.n:,}{', weighted' if audit.weighted else ''}"}
    if audit.groups is not None:
        said["groups of rows"] = f"{audit.groups:,}"
    yield from (f"{name.capitalize()}: {write(text)}" for name, text in said.items())


def _notes(audit: Audit, write: _Write) -> Iterator[str]:
    if audit.notes:
        yield "### Notes"
        yield _list(map(write, audit.notes))


def _limits(audit: Audit, write: _Write) -> Iterator[str]:
    if not audit.limits:
        return
    yield "### Limits"
    yield _list(
        f"**{one.state.capitalize()}**: {write(limit_sentence(one, audit.confidence_level))}"
        for one in audit.limits
    )
    if audit.about.limits_fixed is not None:
        yield f"Fixed: {write(audit.about.limits_fixed)}, as the caller said."


def _attribute(audit: Audit, found: Attribute, write: _Write) -> Iterator[str]:
    yield f"### {'Jointly: ' if found.kind == 'joint' else ''}{write(found.name)}"
    yield write(dependence_sentence(found, audit))
    tiles = () if found.kind == "joint" else make_tiles(audit, found)
    if tiles:
        rows = ((one.title, f"{one.value} {one.unit}".strip(), one.interval, one.sentence) for one in tiles)
        yield _table(_HEADINGS, (tuple(map(write, row)) for row in rows))


def _made(audit: Audit, digest: str, write: _Write) -> str:
    versions = {"frhsic": audit.version} | ({} if audit.record is None else audit.record.versions)
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"Made with {write(listed)}; seed {audit.seed}; SHA-256 of the JSON record: `{digest}`"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


Renderers.make_markdown = make_markdown
