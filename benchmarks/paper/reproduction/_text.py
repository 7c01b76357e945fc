"""Tables and paragraphs as Markdown."""

import re
import statistics
import textwrap
from collections.abc import Sequence

# As headings call the datasets.
TITLES = {
    "adult": "Adult",
    "acs_income": "ACS Income",
    "meps": "MEPS",
    "compas": "COMPAS",
    "crime-householdsize": "Crime (household size)",
    "crime": "Crime (racial composition)",
}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Return a table; the columns ``left`` are aligned to the left, the others to the right."""
    rule = [":---" if column in left else "---:" for column in range(len(header))]
    return "".join("| " + " | ".join(line) + " |\n" for line in (header, rule, *rows))


def plus_minus(values: Sequence[float], digits: int, *, factor: float = 1.0) -> str:
    """Return mean and deviation (of a population, as published); a dash for no values."""
    if not values:
        return "–"
    mean, sd = factor * statistics.mean(values), factor * statistics.pstdev(values)
    return f"{mean:.{digits}f} ± {sd:.{digits}f}"


def wrap(text: str, width: int = 100) -> str:
    """Return Markdown with its paragraphs and list items in lines of at most ``width`` characters.

    Tables, headings, pictures, directives and code stay as they are, and so does a code span in a line.
    """
    lines: list[str] = []
    part: list[str] = []  # the lines of the paragraph or item that is being read
    fenced = False

    def finish() -> None:
        if part:
            mark = re.match(r"([-*]|\d+\.) ", part[0])
            words = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), " ".join(part))
            indent = " " * len(mark[0]) if mark else ""
            found = textwrap.wrap(
                words, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
            lines.extend(line.replace("\0", " ") for line in found)
            part.clear()

    for line in text.splitlines():
        fence = line.startswith("```")
        if fenced or fence or not line.strip() or line.startswith(("|", "#", ":", "!", ">")):
            finish()
            lines.append(line)
            fenced ^= fence
        else:
            if re.match(r"([-*]|\d+\.) ", line):
                finish()
            part.append(line.strip())
    finish()
    return "\n".join(lines) + "\n"
