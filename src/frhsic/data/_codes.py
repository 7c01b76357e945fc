"""Numbers that may stand for a missing value."""

from __future__ import annotations

from torch import Tensor

# What surveys and databases write for "no answer" and "unknown".
_CODES = frozenset(
    sign * code
    for sign in (-1, 1)
    for code in (7, 8, 9, 77, 88, 97, 98, 99, *(10**k - j for k in range(3, 9) for j in (1, 2, 3)), 777, 888)
) | {-1, -2}
_MIN_ROWS = 5


def suspicious_codes(values: Tensor, what: str) -> str | None:
    """Return a sentence about codes such as -999 or 99 that may stand for "no value", or None.

    A code is suspicious where it is the smallest or largest of the ``values`` ``(n,)``, stands in at least
    five rows, and is farther from all other values than the middle 98 % of these are from one another.
    ``what`` is the column as the sentence names it.
    """
    ordered, counts = values.unique(return_counts=True)
    found: list[tuple[float, int]] = []
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
    if not found:
        return None
    codes, rows = [f"{code:.0f}" for code, _ in found], sum(count for _, count in found)
    lies, it_stands, it = ("lies", "it stands", "it") if len(codes) == 1 else ("lie", "they stand", "them")
    return (
        f"{' and '.join(codes)} in {rows:,} rows of {what} {lies} far from all other values. "
        f"If {it_stands} for no value, read {it} as missing (missing_values={codes}) and audit again."
    )
