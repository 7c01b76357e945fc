"""Numbers that may stand for a missing value."""

from __future__ import annotations

import torch
from torch import Tensor

from frhsic._text import join_words

# What surveys and databases write for "no answer" and "unknown".
_CODES = frozenset(
    sign * code
    for sign in (-1, 1)
    for code in (7, 8, 9, 77, 88, 97, 98, 99, *(10**k - j for k in range(3, 9) for j in (1, 2, 3)), 777, 888)
) | {-1, -2}
_MIN_ROWS = 5
_MIN_SHOWN = 10  # a smaller number of rows is not told


# Of those, what stands for "unknown" above values that it could be one of, such as age 99.
_HEAPED = frozenset(10.0**k - 1.0 for k in range(2, 9))
# A sign that no other value has, or a heap, is suspicious beside at least so many other values.
_MIN_VALUES, _GAP = 8, 3.0
_MOST_SHARE = 0.2  # of the rows


def suspicious_codes(values: Tensor, what: str, counts: Tensor | None = None) -> str | None:
    """Return a sentence about codes such as -999 or 99 that may stand for "no value", or None.

    A code is suspicious where it stands in at least five rows and

    - is the smallest or largest of the ``values`` ``(n,)``, farther from all other values than the middle
      98 % of these are from one another; or
    - is negative, and all other values are not; or
    - is 99, 999 and so on, the largest of whole numbers, with a gap below it and no fewer rows than the
      values before it have on average.

    ``what`` is the column as the sentence names it. With ``counts`` each value stands for so many rows.
    """
    if counts is None:
        ordered, counts = values.unique(return_counts=True)
    else:
        ordered, place = values.unique(return_inverse=True)
        counts = torch.zeros(len(ordered), dtype=torch.int64).index_add_(0, place, counts)
    codes = dict(_find_distant(ordered, counts))
    codes |= {value: count for value, count in _find_other_sign(ordered, counts) if value not in codes}
    codes |= {value: count for value, count in _find_heap(ordered, counts) if value not in codes}
    if not codes:
        return None
    names, rows = [f"{code:.0f}" for code in codes], sum(codes.values())
    number = f"{rows:,}" if rows >= _MIN_SHOWN else f"fewer than {_MIN_SHOWN}"
    they, stand, them = ("they", "stand", "them") if len(names) > 1 else ("it", "stands", "it")
    how = f"missing_values={names} in Python, --missing-values={','.join(names)} at the command line"
    return (
        f"{join_words(names)} in {number} rows of {what} may stand for no value: far from all other values, "
        f"or with a sign or a number of rows of its own. If {they} {stand} for none, read {them} as missing "
        f"({how}) and audit again."
    )


_Codes = list[tuple[float, int]]


def _find_distant(ordered: Tensor, counts: Tensor) -> _Codes:
    """Return codes beyond a gap that is wider than the middle 98 % of the other values."""
    found: _Codes = []
    for upper in (False, True):
        ends = (ordered.flip(0), counts.flip(0)) if upper else (ordered, counts)
        head = list(zip(ends[0][:6].tolist(), ends[1][:6].tolist(), strict=True))
        most = next((j for j, (value, _) in enumerate(head) if value not in _CODES), len(head))
        # Several codes may lie side by side (998 and 999), and the last may be a value (age 99).
        for k in range(min(most, len(ordered) - 2), 0, -1):
            rest, times = ends[0][k:], ends[1][k:]
            share = times.cumsum(0) / times.sum()
            inner = rest[(share >= 0.01) & (share - times / times.sum() <= 0.99)]
            gap = abs(float(rest[0]) - head[k - 1][0])
            if gap > float(inner.max() - inner.min()) and sum(count for _, count in head[:k]) >= _MIN_ROWS:
                found += head[:k]
                break
    return found


def _find_other_sign(ordered: Tensor, counts: Tensor) -> _Codes:
    """Return negative codes in a column of which no other value is negative."""
    negative = int((ordered < 0).sum())
    codes = list(zip(ordered[:negative].tolist(), counts[:negative].tolist(), strict=True))
    rows = sum(count for _, count in codes)
    few = rows >= _MIN_ROWS and rows <= _MOST_SHARE * int(counts.sum())
    if not few or len(ordered) - negative < _MIN_VALUES or any(value not in _CODES for value, _ in codes):
        return []
    return codes


def _find_heap(ordered: Tensor, counts: Tensor) -> _Codes:
    """Return 99, 999 and so on, the largest value, with a gap below and no fewer rows than those before."""
    value, count = float(ordered[-1]), int(counts[-1])
    others = ordered[ordered >= 0][:-1]
    if (
        value not in _HEAPED
        or count < _MIN_ROWS
        or len(others) < _MIN_VALUES
        or float(others[-1]) > value - _GAP
    ):
        return []
    if bool((ordered != ordered.round()).any()) or count > _MOST_SHARE * int(counts.sum()):
        return []
    before = counts[-1 - _MIN_VALUES : -1].double().mean()
    return [(value, count)] if count >= float(before) else []
