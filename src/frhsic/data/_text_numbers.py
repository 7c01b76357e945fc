"""Numbers written as text: ages that became strings because of one "unknown" among them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from frhsic._text import shorten
from frhsic.data._sensitive import Label

# A number as people write it: with a decimal comma, with signs between thousands, in per cent.
_WRITTEN_NUMBER = re.compile(
    r"\s*[+-]?(\d+([.,]\d+)?|\d{1,3}([.,' \u00a0\u2009\u202f]\d{3})+([.,]\d+)?)\s*%?\s*"
)


def parse_number(label: Label) -> float:
    """Return the number that a label is, or NaN."""
    try:
        # Python reads "1_2" as 12; a column of data does not mean that.
        return math.nan if isinstance(label, str) and "_" in label else float(label)
    except (ValueError, OverflowError):
        return math.nan


@dataclass(frozen=True)
class TextNumbers:
    """How many of some strings, and of the different ones among them, are numbers.

    ``others`` holds up to three different strings that Python does not read as a number, each with its row.
    """

    rows: int
    numeric_rows: int
    labels: int
    numeric_labels: int
    others: tuple[tuple[str, int], ...]

    @classmethod
    def count(cls, entries: Sequence[str]) -> TextNumbers:
        """Count the numbers among strings."""
        counts = Counter(entries)
        is_read = {text: math.isfinite(parse_number(text)) for text in counts}
        numeric = [text for text in counts if is_read[text] or _WRITTEN_NUMBER.fullmatch(text)]
        # What is no number at all says more than a number with a decimal comma.
        others = sorted((text for text in counts if not is_read[text]), key=set(numeric).__contains__)[:3]
        return cls(
            len(entries),
            sum(counts[text] for text in numeric),
            len(counts),
            len(numeric),
            tuple((text, entries.index(text)) for text in others),
        )

    @property
    def mostly(self) -> bool:
        """Whether at least half of the rows, or of the different strings, are numbers."""
        return 2 * self.numeric_rows >= self.rows or 2 * self.numeric_labels >= self.labels

    @property
    def fix(self) -> str:
        """What to do about it, without a full stop."""
        if not self.others:
            return "Convert the column to numbers"
        if self.numeric_rows == self.rows:
            return "Write numbers with a decimal point and without signs between thousands"
        return "Turn placeholders into missing values and the column into numbers"

    def __str__(self) -> str:
        examples = [f"'{shorten(text, 20)}' in row {row}" for text, row in self.others]
        plain = f"; not read as a number: {', '.join(examples)}" if examples else ""
        return f"strings, {self.numeric_rows:,} of {self.rows:,} of them numbers{plain}"
