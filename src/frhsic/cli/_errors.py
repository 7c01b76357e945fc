"""Errors of the library and of the system, in the words of the command line."""

from __future__ import annotations

import errno
import os
import re

from frhsic._checks import ArgumentError
from frhsic._text import quote


class CommandError(Exception):
    """One sentence for the person at the terminal that is not about the value of one option."""


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


def reword(text: str) -> str:
    text = re.sub(r"kinds=\{'(.+?)': '(\w+)'\}(, here or in [\w.]+to_sensitive)?", r"--kind \1=\2", text)
    for library, here in _WORDS.items():
        text = text.replace(library, here)
    # The library counts rows from 0; a person counts them from 1.
    return re.sub(r"in row (\d+)", lambda row: f"in row {int(row[1]) + 1} of the data", text)


def first_sentence(text: str) -> str:
    return reword(text).split("\n")[0].rstrip(".")[:200]


def describe(error: Exception) -> str:
    """Return one sentence about what went wrong."""
    if isinstance(error, CommandError):
        return str(error)
    if isinstance(error, ArgumentError) and error.argument.startswith(
        ("-", "FILE", "MODEL", "NAME", "the model")
    ):
        return f"{error.argument} must {error.must}. Got {error.got}. {error.fix}"
    if isinstance(error, OSError) and error.errno is not None:
        name = "" if error.filename is None else f" {quote(str(error.filename))}"
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
        return reword(" ".join(str(error).split()))
    return (
        f"This is a defect of frhsic ({type(error).__name__}: {first_sentence(str(error))}). "
        "Set FRHSIC_TRACEBACK=1 to see where, and report it."
    )
