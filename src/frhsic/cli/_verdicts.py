"""Whether a limit is missed, shown to be kept, or neither: first lines and exit codes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from frhsic._text import number
from frhsic.cli._output import echo, echo_warnings

if TYPE_CHECKING:
    from frhsic.engine.limits import Key, Reached
    from frhsic.inference import Interval

SAVE_MISSED = "Pass --save-missed to write it all the same."


@dataclass(frozen=True)
class Verdict:
    """What is known of one limit.

    ``lowest`` and ``highest`` are those intervals, of each score on each sensitive column, which have the
    greatest lower end and the greatest upper end, on rows that took no part (``where``); None without any.
    """

    title: str
    limit: float
    steered: str
    above: bool
    lowest: Interval | None = None
    highest: Interval | None = None
    where: str = ""
    hint: str = ""

    @property
    def state(self) -> Literal["missed", "kept", "open"]:
        """Missed: the value on steering rows is more than 5 % above, or the lower end on other rows is."""
        if self.above or (self.lowest is not None and self.lowest.low > self.limit):
            return "missed"
        return "kept" if self.highest is not None and self.highest.high <= self.limit else "open"

    def __str__(self) -> str:
        judged = self.lowest if self.state == "missed" else self.highest
        parts = [self.steered] if self.steered else []
        if judged is not None:
            ends = f"{number(judged.low)} to {number(judged.high)}"
            level = f"{100.0 * judged.confidence_level:.3g}% interval"
            parts.append(f"{self.title.split()[0]} {number(judged.estimate)}, {level} {ends}, {self.where}")
        hint = f" {self.hint}" if judged is None and self.state == "open" else ""
        return f"Limit {self.state}: {self.title}. {'; '.join(parts)}.{hint}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"limit": self.title, "state": self.state, "sentence": str(self)}


def judge_limits(
    limits: Mapping[Key, float],
    reached: Sequence[Reached],
    scores: Mapping[str, Any],
    s: Any,
    weights: Any,
    *,
    seed: int,
    where: str,
    hint: str,
) -> list[Verdict]:
    """Return a verdict on each limit, from what steered it and from scores on rows that took no part."""
    from frhsic.engine.limits import make_measure
    from frhsic.inference import Interval, confidence_interval

    steering = {one.name: one for one in reached}
    verdicts = []
    for key, limit in limits.items():
        intervals = []
        # The greatest of several lower ends is above a limit as soon as one of them fails.
        level = 1.0 - 0.05 / max(len(scores) * len(s.names), 1) if scores else 0.95
        for values, name in itertools.product(scores.values(), s.names):
            if (values == values[0]).all():  # a constant depends on nothing
                zero = 0.0, 0.0, 0.0
                intervals.append(
                    Interval(*zero, level, str(key), "these rows", "constant", (name,), len(values))
                )
                continue
            with echo_warnings():
                intervals.append(
                    confidence_interval(
                        values,
                        s.columns([name]),
                        dependence=make_measure(key),
                        confidence_level=level,
                        random_state=seed,
                        sample_weight=weights,
                        chance=False,
                    )
                )
        one = steering.get(str(key))
        verdicts.append(make_verdict(key, limit, one, intervals, where=where, hint=hint))
    return verdicts


def make_verdict(
    key: Key, limit: float, one: Reached | None, intervals: Sequence[Interval], *, where: str, hint: str
) -> Verdict:
    """Return the verdict on one limit."""
    from frhsic.engine.limits import write_limit

    return Verdict(
        write_limit({key: limit}),
        limit,
        "" if one is None else one.describe_judged(),
        one is not None and one.exceeds(limit),
        max(intervals, key=lambda interval: interval.low, default=None),
        max(intervals, key=lambda interval: interval.high, default=None),
        where,
        hint,
    )


def echo_verdicts(verdicts: Sequence[Verdict]) -> bool:
    """Print them, those that are missed first, and return whether none is missed."""
    order = ("missed", "open", "kept")
    for verdict in sorted(verdicts, key=lambda one: order.index(one.state)):
        echo(str(verdict), style="bold")
    return all(verdict.state != "missed" for verdict in verdicts)
