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
    return shorten(" ".join(clean(text).split()), longest)


def shorten(text: str, longest: int = LONGEST) -> str:
    """Return a text cut to a length, with an ellipsis at the end if something is missing."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def clean(text: object) -> str:
    """Return text in which characters that are not to be seen stand as a replacement character."""
    return "".join(character if _visible(character) else "\ufffd" for character in str(text))


def escape(text: str) -> str:
    r"""Return text in which control characters and other invisible ones are escapes; lines are kept.

    Examples
    --------
    >>> escape("a\x1b[31m") == "a\\x1b[31m"
    True
    """
    return "".join(
        sign
        if sign == "\n" or unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        else sign.encode("unicode_escape", "surrogatepass").decode("ascii")
        for sign in text
    )


def to_line(text: str) -> str:
    """Return what a user typed for a terminal: one line of bounded length, with escapes."""
    return shorten(escape(text).replace("\n", "\\n"))


def quote(text: str) -> str:
    """Return what a user typed, in quotes."""
    return f"'{to_line(text)}'"


def quote_all(names: Sequence[str], joint: str = ", ") -> str:
    """Return the first eight of some names in quotes, and how many more there are."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return joint.join(map(quote, names[:8])) + more


def share(x: float) -> str:
    """Return a share in percent with three digits, such as 7.26 %."""
    return f"{100 * x:.3g} %"


def cell(x: float) -> str:
    """Return a number with as many decimals as its neighbours in a table."""
    if 0.0 < abs(x) < 5e-5:  # of many rows
        return f"{x:.0e}"
    return f"{x:.4f}" if abs(x) < 100 else f"{x:.4g}"


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
