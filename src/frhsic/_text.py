"""Text for people: names that users typed, without control characters and of bounded length; numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# Characters that turn the direction of the text after them: a name with one would rewrite our sentences.
_DIRECTIONS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
LONGEST = 60


def shown(text: object, longest: int = LONGEST) -> str:
    """Return a name on one line without control characters, cut to a length.

    Examples
    --------
    >>> shown("age  (years)"), shown("x" * 100, 8)
    ('age (years)', 'xxxxxxx…')
    """
    line = " ".join(clean(text).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def clean(text: object) -> str:
    """Return text in which characters that are not to be seen stand as a replacement character."""
    return "".join(character if _visible(character) else "\ufffd" for character in str(text))


def is_right_to_left(text: str) -> bool:
    """Return whether any letter of the text is written from right to left."""
    return any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)


def _visible(character: str) -> bool:
    if character in "\n\t":
        return True
    return character not in _DIRECTIONS and unicodedata.category(character) not in ("Cc", "Cs", "Cn")


def number(x: float) -> str:
    """Return a number with three digits, as one would say it."""
    return f"{x:.3g}"


def percent(share: float) -> str:
    """Return a confidence in percent, such as 99.5%: that of many claims together is rarely whole.

    Examples
    --------
    >>> percent(0.95), percent(1 - 0.05 / 30)
    ('95%', '99.83%')
    """
    return f"{100.0 * share:.4g}%"


def truncate(text: str, longest: int) -> str:
    """Return a text cut to a length; unlike ``shown``, nothing else of it changes."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def list_names(names: Sequence[object], most: int = 5, joint: str = ", ") -> str:
    """Return names in quotes for an error message: at most five, each cut to 40 characters.

    Examples
    --------
    >>> list_names(["age", "sex"]), list_names(range(7))
    ("'age', 'sex'", "'0', '1', '2', '3', '4' and 2 more")
    """
    listed = joint.join(f"'{truncate(str(name), 40)}'" for name in names[:most])
    return listed + (f" and {len(names) - most} more" if len(names) > most else "")
