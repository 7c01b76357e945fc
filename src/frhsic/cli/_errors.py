"""Errors of the library and of the system, in the words of the command line."""

from __future__ import annotations

import errno
import os
import re

from frhsic._checks import ArgumentError
from frhsic._text import quote


class CommandError(Exception):
    """One sentence for the person at the terminal that is not about the value of one option."""


# The option that an argument of the library comes from; the arguments of commands are options already.
_OPTIONS = {
    "scores": "--score",
    "sensitive_features": "--sensitive",
    "kinds": "--kind",
    "groups": "--group",
    "y_true": "--label",
    "y": "--target",
    "sample_weight": "--weight",
    "positive_label": "--positive",
    "random_state": "--seed",
    "confidence_level": "--confidence-level",
    "missing_values": "--missing-values",
    "thresholds": "--threshold",
    "regions": "--below or --above",
    "old": "OLD",
    "new": "NEW",
    "old_rows": "the first file of --data",
    "new_rows": "the second file of --data",
    **{
        name: f"--{name}"
        for name in ("budget", "budgets", "limit", "limits", "lam", "lams", "validation", "tolerance")
    },
    **{name: f"--{name}" for name in ("epochs", "query", "driver", "partials")},
    **dict.fromkeys(("X", "path", "where", "database", "columns"), "FILE"),
}
_DROP_MISSING = "pass --drop-missing to leave such rows out."
# Where a fix speaks about Python: how it begins, and what to do here.
_FIXES = {
    "Drop or fill these rows first": f"Fill these cells, or {_DROP_MISSING}",
    "Fill or drop these rows, or open": f"Fill or drop these rows, or {_DROP_MISSING}",
    "Encode them as numbers first": "Mend the entries that are no numbers, or name another column.",
    "Turn placeholders into missing values": "Name placeholders with --missing-values",
    "Drop it, join rare": "Leave it out with --drop, join rare labels or turn text into numbers.",
    "Drop the column": "Leave it out with --drop.",
    "Convert them to a number": "Turn them into numbers, for example years, or leave the column out (train: "
    "--drop).",
    "Leave the column out or pass rows": "Leave the column out or take a file in which it differs.",
}
# Errors that are no ValueError, and warnings, name arguments too: how they begin, and how they do here.
_STARTS = {
    **{f"'{name}' must": "FILE must" for name in ("path", "where", "database")},
    "'X' has": "FILE has",
}
_NO_DEPENDENCE = "The unconstrained model shows no dependence on these rows: a share of it means nothing."
# After an error of the system: files are written one by one, before anything is printed.
_LEFT = "A file is written whole or stays as it was; other files of this command may have been written."
_KIND = re.compile(r"kinds=\{'(.+?)': '(\w+)'\}")
_NUMBER = re.compile(r"\d+")
_ROW = re.compile(r"in row (\d+)")


def describe(error: Exception) -> str:
    """Return one sentence about what went wrong."""
    if isinstance(error, ArgumentError):
        name = error.argument
        own = name.startswith(("-", "FILE", "MODEL", "NAME", "OLD", "NEW", "the model"))
        option = _OPTIONS.get(name, name if own else f"'{name}'")
        return _join(f"{option} must {error.must}. Got {_word_got(error)}. {_word_fix(error)}")
    if isinstance(error, OSError) and error.errno is not None:
        name = "" if error.filename is None else f" {quote(str(error.filename))}"
        cure = {
            errno.ENOENT: "Check the path.",
            errno.EACCES: "Ask for the permission, or choose another path.",
            errno.EPERM: "Ask for the permission, or choose another path.",
            errno.EISDIR: "Name a file, not a folder.",
            errno.ENOSPC: f"Make room, or choose another disk. {_LEFT}",
            errno.EROFS: "Choose another folder.",
        }.get(error.errno, _LEFT)
        return f"The system refused{name}: {os.strerror(error.errno)}. {cure}"
    if isinstance(error, MemoryError):
        return "There is not enough memory for this file. Take fewer rows or columns."
    if isinstance(error, CommandError | ValueError | TypeError | ImportError | RuntimeError | OSError):
        return _join(str(error) if isinstance(error, ValueError) else _word_start(str(error)))
    return (
        f"This is a defect of frhsic ({type(error).__name__}: {take_sentence(error)}). "
        "Set FRHSIC_TRACEBACK=1 to see where, and report it."
    )


def take_sentence(error: Exception) -> str:
    """Return the beginning of an error message, to stand inside another one."""
    text = describe(error) if isinstance(error, ArgumentError) else _word_start(str(error))
    line = text.split("\n")[0]
    if len(line) > 200:  # up to the end of a sentence, or else of a word
        end = line.rfind(". ", 0, 200)
        line = line[: end + 1] if end > 0 else f"{line[: line.rfind(' ', 0, 199)]} …"
    return line.rstrip(".")


def _word_got(error: ArgumentError) -> str:
    """Return what arrived; the library counts rows from 0, a person counts them from 1."""
    if error.fix.startswith("Drop or fill these rows first"):
        count, row = _NUMBER.findall(error.got)[:2]
        return f"{count} empty or NaN, the first in row {int(row) + 1} of the data"
    got = f"text{error.got.removeprefix('strings')}" if error.got.startswith("strings") else error.got
    return _ROW.sub(lambda row: f"in row {int(row[1]) + 1} of the data", got)


def _word_fix(error: ArgumentError) -> str:
    """Return what to do about it at the command line."""
    fix = next((here for start, here in _FIXES.items() if error.fix.startswith(start)), error.fix)
    query, mark, _ = fix.partition(", or open it with allow_missing")
    if mark:
        return f"{query}, or {_DROP_MISSING}"
    kinds = [f"--kind {column}={kind}" for column, kind in _KIND.findall(error.fix)]
    if not kinds:
        return fix if fix.endswith((".", "?")) else f"{fix}."
    return f"{fix.partition(', or say what it is')[0]}, or say what it is: {' or '.join(kinds)}."


def describe_warning(text: str) -> str:
    """Return a warning of the library in the words of the command line."""
    return f"{_NO_DEPENDENCE} Pass --lam 0." if text.startswith(_NO_DEPENDENCE) else _word_start(text)


def _word_start(text: str) -> str:
    for start, here in _STARTS.items():
        if text.startswith(start):
            return here + text.removeprefix(start)
    option = _OPTIONS.get(text[1:].partition("' has ")[0]) if text.startswith("'") else None
    return text if option is None else f"{option} has {text.partition(' has ')[2]}"


def _join(text: str) -> str:
    return " ".join(text.split())
