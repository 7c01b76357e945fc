"""What may leave an audit: no number of a handful of rows, and no score of one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from frhsic.inference import AdjustedCurve, AUCCurve, Carriers, Curve, DecisionGaps, Profile

if TYPE_CHECKING:
    from torch import Tensor

    from frhsic.auditing._results import Attribute, Column, Outcome

# Fewer rows could be a person: their label, mean or rate is not shown.
MIN_ROWS_SHOWN: Final = 10

_OF_POINTS: Final = ("mean", "low", "high", "mean_low", "mean_high")


def shown_points(found: Curve | Carriers | Profile | AdjustedCurve | AUCCurve, column: Column) -> list[int]:
    """Return which points of a curve may be shown: no extremes, and none of fewer than ten rows."""
    counts: tuple[int, ...] = getattr(found, "counts", ())
    few = {i for i, count in enumerate(counts) if count < MIN_ROWS_SHOWN}
    return [i for i in column.visible(found.points) if i not in few]


def hide_attribute(found: Attribute, column: Column) -> Attribute:
    """Return what was found on an attribute without numbers of fewer than ten rows (NaN)."""
    return replace(
        found,
        curve=_hide(found.curve, column),
        outcome=None if found.outcome is None else _hide_outcome(found.outcome, column),
        decisions=tuple(replace(one, curve=_hide(one.curve, column)) for one in found.decisions),
        carried=None if found.carried is None else _hide_carried(found.carried, column),
    )


def _hide(curve: Curve | None, column: Column) -> Curve | None:
    if curve is None:
        return None
    kept = set(shown_points(curve, column))
    values: dict[str, Any] = {
        name: tuple(x if i in kept else math.nan for i, x in enumerate(getattr(curve, name)))
        for name in _OF_POINTS
    }
    return replace(curve, **values)


def _hide_outcome(outcome: Outcome, column: Column) -> Outcome:
    return replace(
        outcome,
        labels=tuple(replace(one, curve=_hide(one.curve, column)) for one in outcome.labels),
        calibration=_hide(outcome.calibration, column),
        curve=_hide(outcome.curve, column),
        absolute_error=_hide(outcome.absolute_error, column),
        errors=tuple(
            replace(
                one,
                false_positive=_hide(one.false_positive, column),
                false_negative=_hide(one.false_negative, column),
            )
            for one in outcome.errors
        ),
        auc=None if outcome.auc is None else _hide_windows(outcome.auc, column),
    )


def _hide_windows(auc: AUCCurve, column: Column) -> AUCCurve:
    kept = shown_points(auc, column)
    return auc if len(kept) == len(auc.points) else auc.take(kept)


def _hide_carried(carried: Carriers, column: Column) -> Carriers:
    kept = set(shown_points(carried, column))

    def hide(values: Iterable[float]) -> tuple[float, ...]:
        return tuple(x if i in kept else math.nan for i, x in enumerate(values))

    return replace(
        carried,
        parts=tuple(map(hide, carried.parts)),
        whole=hide(carried.whole),
        curves=tuple(filter(None, (_hide(curve, column) for curve in carried.curves))),
    )


def between_scores(gaps: DecisionGaps, scores: Tensor) -> DecisionGaps:
    """Return the same cut-offs, each of fewer than ten rows halfway to the next score.

    The decisions score > t are the same for all t from a score up to the next one.
    """
    values, counts = scores.unique(return_counts=True)
    cutoffs = torch.tensor(gaps.cutoffs, dtype=values.dtype)
    place = torch.searchsorted(values, cutoffs)
    at = place.clamp_max(len(values) - 1)
    own = (values[at] == cutoffs) & (counts[at] < MIN_ROWS_SHOWN) & (at + 1 < len(values))
    following = values[(at + 1).clamp_max(len(values) - 1)]
    return replace(gaps, cutoffs=tuple(torch.where(own, 0.5 * (cutoffs + following), cutoffs).tolist()))


def quantile(ordered: Tensor, q: float) -> float:
    """Return a quantile of sorted values; the mean of ten neighbours where fewer rows have that value."""
    k = round(q * (len(ordered) - 1))
    value = ordered[k]
    if int((ordered == value).sum()) >= MIN_ROWS_SHOWN or len(ordered) <= MIN_ROWS_SHOWN:
        return float(value)
    first = min(max(0, k - MIN_ROWS_SHOWN // 2), len(ordered) - MIN_ROWS_SHOWN)
    return float(ordered[first : first + MIN_ROWS_SHOWN].mean())
