"""Text for people: names that users typed, without control characters and of bounded length; numbers."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence

# Characters that turn the direction of the text after them: a name with one would rewrite our sentences.
_DIRECTIONS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
LONGEST = 60
# Where a line ends, to a terminal or to str.splitlines.
_BREAKS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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


def to_line(text: str, longest: int = LONGEST) -> str:
    """Return what a user typed for a terminal: one line of bounded length, with escapes."""
    return shorten(escape(text).replace("\n", "\\n"), longest)


def join_lines(lines: Iterable[str], joint: str = "\n") -> str:
    r"""Return lines under one another; breaks inside a line, in the name of a column, are escapes.

    Examples
    --------
    >>> print(join_lines(["On 'age\nError: passed'", "by 'sex'"]))
    On 'age\nError: passed'
    by 'sex'
    """
    return joint.join(map(to_paragraph, lines))


def to_paragraph(text: str) -> str:
    """Return text in which breaks of lines are escapes: a name with one would forge a line of ours."""
    return "".join(
        sign.encode("unicode_escape").decode("ascii") if sign in _BREAKS else sign for sign in text
    )


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


def list_names(names: Sequence[object], most: int = 5, joint: str = ", ") -> str:
    """Return names in quotes for an error message: at most five, each cut to 40 characters.

    Examples
    --------
    >>> list_names(["age", "sex"]), list_names(range(7))
    ("'age', 'sex'", "'0', '1', '2', '3', '4' and 2 more")
    """
    listed = joint.join(f"'{shorten(str(name), 40)}'" for name in names[:most])
    return listed + (f" and {len(names) - most} more" if len(names) > most else "")


def digits(x: float | None) -> str:
    """Return a number with three digits for an HTML report.

    Examples
    --------
    >>> digits(0.06), digits(-1.5e-7), digits(18.0), digits(12345.6)
    ('0.0600', '−1.50×10⁻⁷', '18', '12,346')
    """
    if x is None or not math.isfinite(x):
        return "–" if x is None or math.isnan(x) else f"{x}".replace("-", "−").replace("inf", "∞")
    whole = x == round(x) or abs(x) >= 1_000
    text = f"{x:,.0f}" if whole and abs(x) < 1e9 else f"{x:#.3g}".rstrip(".")
    mantissa, e, exponent = text.partition("e")
    raised = f"×10{str(int(exponent)).translate(_RAISED)}" if e else ""
    return mantissa.replace("-", "−").rstrip(".") + raised


def join_words(parts: Sequence[str], most: int = 5) -> str:
    """Return a list in words: its first items, and how many more there are.

    Examples
    --------
    >>> join_words(["age", "sex"]), join_words(["age", "sex", "income", "zone"], most=2)
    ('age and sex', 'age, sex and 2 more')
    """
    kept = [*parts[:most], *([f"{len(parts) - most} more"] if len(parts) > most else [])]
    return kept[0] if len(kept) == 1 else ", ".join(kept[:-1]) + " and " + kept[-1]
