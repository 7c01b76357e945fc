"""What a caller asks of an audit beforehand: thresholds, and regions of an attribute."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from frhsic._checks import ArgumentError, is_number

if TYPE_CHECKING:
    from torch import Tensor

    from frhsic.data import Sensitive

_OPERATORS: dict[str, Callable[[Tensor, float], Tensor]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "=": operator.eq
}  # fmt: skip


class RegionQuestion(NamedTuple):
    """A region of one column, and what is asked about its mean score."""

    text: str
    column: str
    compare: str
    value: str
    side: Literal["below", "above"]

    def rows(self, s: Sensitive) -> Tensor:
        """Return which rows lie in the region."""
        place = s.names.index(self.column)
        values, known = s.values[:, place], (s.categories or (None,) * len(s.names))[place]
        if s.kinds[place] == "continuous":
            try:
                return _OPERATORS[self.compare](values, float(self.value))
            except ValueError:
                fix = f"Write '{self.column} >= 62', say."
                raise ArgumentError("regions", "compare with a number", repr(self.text), fix) from None
        labels = [str(label) for label in known or ()]
        if self.compare != "=" or self.value not in labels:
            must = f"be '{self.column} = LABEL' with a label of the column"
            raise ArgumentError("regions", must, repr(self.text), f"Take one of {', '.join(labels[:10])}.")
        return values == float(labels.index(self.value))


def read_thresholds(thresholds: Sequence[float] | float) -> tuple[float, ...]:
    """Return thresholds as finite numbers, each once."""
    given = [thresholds] if is_number(thresholds) else list(thresholds)  # type: ignore[arg-type]
    if not all(is_number(one) and math.isfinite(one) for one in given):
        raise ArgumentError("thresholds", "be finite numbers", repr(thresholds), "Pass (0.5,), say.")
    return tuple(dict.fromkeys(map(float, given)))


def read_regions(regions: Mapping[str, str] | None) -> tuple[RegionQuestion, ...]:
    """Return questions from ``{"age >= 62": "below"}``."""
    found = []
    for text, side in (regions or {}).items():
        if side not in ("below", "above"):
            fix = "Pass {'age >= 62': 'below'}, say."
            raise ArgumentError("regions", "say 'below' or 'above' of each region", repr(side), fix)
        compare = next((one for one in _OPERATORS if one in text), None)
        column, _, value = text.partition(compare or "\0")
        if compare is None or not column.strip() or not value.strip():
            fix = "Write 'age >= 62', say."
            raise ArgumentError("regions", "be COLUMN, one of >= <= > < =, and a value", repr(text), fix)
        found.append(RegionQuestion(text, column.strip(), compare, value.strip(), side))  # type: ignore[arg-type]
    return tuple(found)


def check_regions(questions: Sequence[RegionQuestion], s: Sensitive) -> None:
    """Raise ArgumentError if a region is of a column that is not audited, or of no rows."""
    for one in questions:
        if one.column not in s.names:
            fix = f"Take one of {', '.join(map(repr, s.names))}."
            raise ArgumentError("regions", "be of a sensitive column", repr(one.text), fix)
        one.rows(s)
