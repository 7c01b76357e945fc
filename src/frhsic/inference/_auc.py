"""The area under the ROC curve along S, with intervals for all windows of S at once.

With the rows of a window of S, positives i with scores x_i and weights a_i, negatives j with scores y_j and
weights b_j (each of sum one), and psi(x, y) = 1, 1/2 or 0 where x is above, equal to or below y,

    AUC = sum_ij a_i b_j psi(x_i, y_j),     p_i = sum_j b_j psi(x_i, y_j),     q_j = sum_i a_i psi(x_i, y_j).

Its error is that of the mean of p over the positives and of q over the negatives (DeLong, DeLong and
Clarke-Pearson, 1988): the sums of a_i (p_i - AUC) and b_j (q_j - AUC) over the rows of each unit, a row or a
group, are independent, and their squares add up to the variance.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.special import expit, logit, stdtrit
from torch import Tensor

import frhsic.data as data
from frhsic._checks import ArgumentError, check_confidence_level
from frhsic._text import shown
from frhsic.data import Label, Sensitive
from frhsic.inference._question import Observations, check_one_column, unit_errors, welch_degrees
from frhsic.inference._results import AUCCurve
from frhsic.numerics._threads import one_thread

# A window has at least so many rows (or groups) of each class.
MIN_CLASS = 30
# With fewer than so many rows on the wrong side, what they show of the variance is not to be trusted.
_FEW = 5.0
# Of few different scores hardly any row may show the variance: it is at least this part of that of a rate.
_PART = 1.0 / 8.0


@one_thread()
def auc_curve(
    y_true: object,
    scores: object,
    sensitive_features: object,
    *,
    confidence_level: float = 0.95,
    positive_label: Label | None = None,
    sample_weight: object = None,
    groups: object = None,
) -> AUCCurve:
    """Return the area under the ROC curve (AUC) in windows along one column of S, with intervals for all.

    The AUC of a window is the probability that a random row of it with the positive outcome has a higher
    score than a random row of it with the other outcome; ties count one half.

    Parameters
    ----------
    y_true : array-like of shape (n,)
        The outcome, of two labels.
    scores : array-like of shape (n,)
        Higher where the positive outcome is more likely.
    sensitive_features : array-like of shape (n,) or (n, 1)
        The sensitive column.
    confidence_level : float, default=0.95
        The confidence that the AUC of every window lies in its interval.
    positive_label : label, optional
        The last of the sorted labels unless said.
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), optional
        Which rows may depend on one another, such as those of one person; groups are independent.

    Returns
    -------
    AUCCurve

    Notes
    -----
    *Windows.* Neighbouring values of a continuous column are joined until a window has 30 rows of each class
    and a share 1 / k of the rarer one, k the cube root of its number of rows; what is left over joins the
    last window. With groups and weights, 30 are as many groups, or rows of equal weight, as would be as
    precise. Each category is a window; those with fewer rows are left out. Windows depend on s, outcomes and
    weights, never on the scores.

    *Intervals.* The variance is that of DeLong, DeLong and Clarke-Pearson (1988), summed over groups. An
    interval holds two: that which is symmetric on the logit scale, and Wilson's of a rate of as many rows as
    would be as precise. Both have Student's quantile at the level divided by the number of windows
    (Bonferroni). Near zero and one, where fewer than five rows of the rarer class are on the wrong side,
    Wilson's counts each of its rows once: an AUC of one in a window has an interval too. Nor is the variance
    taken below an eighth of that of a rate, which scores with many ties may show.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age, y = rng.integers(20, 60, 2_000), rng.integers(0, 2, 2_000)
    >>> print(auc_curve(y, y * (age > 40) + rng.normal(size=2_000), {"age": age}))
    The AUC along age is between 0.451 (up to 25) and 0.775 (41 to 45), and 0.623 overall: 7 windows of at
    least 243 rows, with 95% intervals for all of them at once (n = 2,000).
    """
    check_confidence_level(confidence_level)
    rows, positive, label = _read(y_true, scores, sensitive_features, positive_label, sample_weight, groups)
    counts = _count_units(rows, positive)
    least = min(float(counts[positive].sum()), float(counts[~positive].sum()))
    if least < MIN_CLASS - 1e-9:
        what = "rows" if rows.groups is None and rows.w is None else "groups or rows of equal weight"
        must, fix = f"have at least {MIN_CLASS} {what} of each class", "Pass more rows."
        raise ArgumentError("y_true", must, f"{least:.0f} of one", fix)
    code, notes = _find_windows(rows.s, positive, counts, least)
    parts = _rows_of_windows(code)
    weights = torch.ones_like(counts) if rows.w is None else rows.w
    found = [_measure(rows, weights, positive, part) for part in parts]
    tail = 0.5 * (1.0 - confidence_level) / len(parts)
    limits = [one.interval(tail) for one in found]
    points, start, stop = _places(rows.s, parts)
    return AUCCurve(
        points=tuple(points.tolist()),
        auc=tuple(one.auc for one in found),
        low=tuple(low for low, _ in limits),
        high=tuple(high for _, high in limits),
        start=tuple(start.tolist()),
        stop=tuple(stop.tolist()),
        mass=tuple(float(weights[part].sum() / weights.sum()) for part in parts),
        counts=tuple(map(len, parts)),
        positives=tuple(int(positive[part].sum()) for part in parts),
        overall=_measure(rows, weights, positive, torch.arange(len(rows))).auc,
        confidence_level=confidence_level,
        attributes=rows.s.names,
        label=label,
        n=rows.n_units,
        categories=_names(rows.s, points),
        notes=notes,
    )


def _read(
    y_true: object,
    scores: object,
    sensitive_features: object,
    positive_label: Label | None,
    sample_weight: object,
    groups: object,
) -> tuple[Observations, Tensor, str]:
    """Return the rows of positive weight, which of them are positive, and the label that these have."""
    if y_true is None or sensitive_features is None:
        name = "y_true" if y_true is None else "sensitive_features"
        raise ArgumentError(name, "be a column of these rows", None, "Pass it.")
    data.check_aligned(
        scores=scores,
        sensitive_features=sensitive_features,
        y_true=y_true,
        sample_weight=sample_weight,
        groups=groups,
    )
    z = data.to_vector(scores, name="scores", min_rows=2 * MIN_CLASS)
    same = {"n_rows": len(z), "rows_of": "scores"}
    s = data.to_sensitive(sensitive_features, **same)  # type: ignore[arg-type]
    check_one_column(s, "curve", "sensitive_features")
    split = data.split_labels(y_true, name="y_true", **same).kept  # type: ignore[arg-type]
    labels = [one.value for one in split]
    if len(labels) != 2:
        fix = "Pass whether the outcome is one of them."
        raise ArgumentError("y_true", "have two labels", f"{len(labels):,}", fix)
    label = data.choose_positive(labels, positive_label)
    positive = torch.zeros(len(z), dtype=torch.float64)
    positive[split[labels.index(label)].rows] = 1.0
    w = data.to_weights(sample_weight, **same)  # type: ignore[arg-type]
    both = torch.stack((z, positive), dim=1)
    rows = Observations(both, s, w, data.to_groups(groups, **same))  # type: ignore[arg-type]
    rows = rows.drop_zero_weights(2 * MIN_CLASS)
    return rows, rows.z[:, 1] == 1.0, shown(label)


# ---- windows -----------------------------------------------------------------------------------------------


def _count_units(rows: Observations, positive: Tensor) -> Tensor:
    """Return what each row adds to the units of its class, ``(n,)``: 1, or a part with groups and weights.

    The rows of one group and class add up to one, and all of a class to the number of rows of equal weight
    that would be as precise.
    """
    counts = torch.ones(len(rows), dtype=torch.float64)
    if rows.groups is not None:
        _, place, sizes = (2 * rows.groups + positive).unique(return_inverse=True, return_counts=True)
        counts = 1.0 / sizes[place].double()
    for mask in (positive, ~positive):
        w = rows.weights[mask]
        if len(w):
            counts[mask] *= float(w.sum()) ** 2 / (len(w) * float(w.square().sum()))
    return counts


def _find_windows(
    s: Sensitive, positive: Tensor, counts: Tensor, least: float
) -> tuple[Tensor, tuple[str, ...]]:
    """Return the window of each row, -1 for none, and a note on the categories that are left out."""
    places, index = s.values[:, 0].unique(return_inverse=True)
    units = counts.new_zeros((len(places), 2)).index_put((index, positive.long()), counts, accumulate=True)
    if s.kinds == ("categorical",):
        kept = units.amin(dim=1) >= MIN_CLASS - 1e-9
        if not bool(kept.any()):
            must = f"have a category with at least {MIN_CLASS} rows of each class"
            raise ArgumentError("sensitive_features", must, "none", "Merge categories.")
        code, few = torch.where(kept, kept.cumsum(0) - 1, -1)[index], int((~kept).sum())
        if not few:
            return code, ()
        # Not named: the label of a few rows could be that of one person.
        return code, (
            f"{few} of {len(kept)} categories have fewer than {MIN_CLASS} rows of one class: no AUC.",
        )
    need = max(float(MIN_CLASS), least / int(least ** (1.0 / 3.0) + 1e-9)) - 1e-9
    upto = units.cumsum(0).mT.contiguous()  # (2, places)
    starts, reached = [0], upto.new_zeros(2)
    while True:
        last = int(torch.searchsorted(upto, (reached + need)[:, None]).max())
        if last >= len(places):
            break
        starts.append(last + 1)
        reached = upto[:, last]
    # Each start but the first ends a window that is full: the rows after the last one join it.
    edges = torch.tensor(starts[1:-1], dtype=torch.long)
    return torch.bucketize(index, edges, right=True), ()


def _rows_of_windows(code: Tensor) -> list[Tensor]:
    """Return the rows of each window."""
    inside = (code >= 0).nonzero()[:, 0]
    order = inside[code[inside].argsort(stable=True)]
    return list(order.split(code[inside].bincount().tolist()))


def _places(s: Sensitive, windows: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return a value in the middle of each window, and where windows begin and end.

    Windows of numbers end halfway between two values, at whole numbers if all are whole; the outermost are
    infinite: the extremes of a column belong to single rows.
    """
    x = s.values[:, 0]
    parts = [x[rows] for rows in windows]
    points = torch.stack([part.median() for part in parts])
    if s.kinds == ("categorical",):
        return points, points, points
    low, high = (torch.stack(ends) for ends in ([p.min() for p in parts], [p.max() for p in parts]))
    stop = start = 0.5 * (high[:-1] + low[1:])
    if bool((x == x.round()).all()):
        stop = stop.floor()
        start = stop + 1.0
    single = (low == high)[1:-1]
    start, stop = torch.cat((x.new_tensor([-torch.inf]), start)), torch.cat((stop, x.new_tensor([torch.inf])))
    start[1:-1], stop[1:-1] = (torch.where(single, low[1:-1], ends[1:-1]) for ends in (start, stop))
    return points, start, stop


def _names(s: Sensitive, points: Tensor) -> tuple[str, ...]:
    """Return the categories at some codes; none of a continuous column."""
    if s.kinds != ("categorical",):
        return ()
    known = (s.categories or (None,))[0]
    return tuple(shown(int(at) if known is None else known[int(at)]) for at in points)


# ---- one window --------------------------------------------------------------------------------------------


class _AUC(NamedTuple):
    auc: float
    variance: float
    degrees: float
    units: float  # of the rarer class: rows of equal weight, or groups

    def interval(self, tail: float) -> tuple[float, float]:
        """Return the limits that the AUC is beyond with so much probability on each side."""
        quantile = float(-stdtrit(self.degrees, tail))
        middle = (self.units * self.auc + 0.5) / (self.units + 1.0)  # as of rates: no logit of zero or one
        slope = middle * (1.0 - middle)
        variance = max(self.variance, _PART * slope / self.units)
        reach = quantile * variance**0.5 / slope
        ends = [float(expit(logit(middle) + side)) for side in (-reach, reach)]
        rows = slope / variance  # of a rate that would be known as well
        if self.units * min(self.auc, 1.0 - self.auc) < _FEW:
            rows = min(rows, self.units)
        ends += _wilson(self.auc, rows, quantile)
        return min(self.auc, *ends), max(self.auc, *ends)


def _wilson(rate: float, n: float, quantile: float) -> tuple[float, float]:
    """Return Wilson's interval of a rate of n rows."""
    z = quantile * quantile / n
    middle, reach = rate + 0.5 * z, (z * (rate * (1.0 - rate) + 0.25 * z)) ** 0.5
    return max(0.0, (middle - reach) / (1.0 + z)), min(1.0, (middle + reach) / (1.0 + z))


def _measure(rows: Observations, w: Tensor, positive: Tensor, part: Tensor) -> _AUC:
    """Return the AUC of some rows, with its variance."""
    scores, above = rows.z[part, 0], positive[part]
    values, place = scores.unique(return_inverse=True)
    shares, laws = [], []
    for mask in (above, ~above):
        inside = torch.where(mask, w[part], 0.0)
        law = w.new_zeros(len(values)).index_add(0, place, inside)
        laws.append((law.cumsum(0) - 0.5 * law) / inside.sum())  # below a score, and half of what is equal
        shares.append(inside / inside.sum())
    placed = (laws[1][place], 1.0 - laws[0][place])  # p of a positive, q of a negative
    auc = min(1.0, max(0.0, float((w[part] * above) @ placed[0] / w[part][above].sum())))
    unit = torch.arange(len(part))
    if rows.groups is not None:
        unit = rows.groups[part].unique(return_inverse=True)[1]
    (a, free), (b, other) = (
        unit_errors(share, p - auc, unit) for share, p in zip(shares, placed, strict=True)
    )
    degrees = welch_degrees([float(error.square().sum()) for error in (a, b)], [free, other])
    return _AUC(auc, float((a + b).square().sum()), degrees, 1.0 + min(free, other))
