"""The gap of decisions at every cut-off: a band for the curve t -> D(t), and limits for its largest value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._text import number
from frhsic.dependence import ScoreGap
from frhsic.inference._gaps import gaps_of
from frhsic.inference._gdp_intervals import (
    Tails,
    gaps_under_independence,
    gdp_curve,
    tails_of_columns,
)
from frhsic.inference._kernel_intervals import group_notes
from frhsic.inference._of_table import check_table_alone, table_gaps
from frhsic.inference._process import Smoothed
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
    check_one_score,
)
from frhsic.inference._results import DecisionGaps, Interval
from frhsic.numerics._threads import one_thread
from frhsic.table import ScoreTable

# Cut-offs at which the curve is drawn and its largest value is looked for, at equal shares of the rows.
_CUTOFFS = 32
# More draws than these change a limit of 32 curves by less than its own error, and need memory.
MOST_DRAWS = 1_999


@one_thread()
def decision_gaps(
    scores: object,
    s: object = None,
    *,
    cutoffs: Sequence[float] | None = None,
    confidence_level: float = 0.95,
    n_draws: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> DecisionGaps:
    """Return the mean gap of the decision score > t along s at each cut-off t, with a band for all of them.

    D(t) = E_S |P(score > t | S) - P(score > t)|: what :class:`frhsic.dependence.ScoreGap` adds up over t.

    Parameters
    ----------
    scores : array-like of shape (n,), or ScoreTable
        Scores; or a table of counts, of which ``cutoffs`` must be borders of levels.
    s : array-like of shape (n,) or (n, q)
        The sensitive columns, taken jointly. Left out for a table, as are weights and groups.
    cutoffs : sequence of float, optional
        None takes those between the levels of the score, or up to 127 of them.
    confidence_level : float, default=0.95
        The confidence that D(t) lies in the band at every one of the cut-offs.
    n_draws : int, default=999
        Multiplier draws.
    random_state : int, generator or None
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), optional
        Which rows may depend on one another, such as those of one person; groups are independent.

    Returns
    -------
    DecisionGaps

    Notes
    -----
    ``gaps`` hold little of what chance adds, and ``plug_in`` all of it; both ends of the band are those of
    :func:`confidence_interval`, at the quantile of the largest of the normal errors of all cut-offs.

    With groups D(t) is the GDP of the decision on these rows at 32 quantiles and at the worst cut-off, with
    draws of its error that all cut-offs share: the chance that a single limit fails is chosen so that all of
    them hold together.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 30, 4_000)
    >>> score = rng.uniform(size=4_000) ** np.where(age > 24, 0.5, 1.0)
    >>> found = decision_gaps(score, {"age": age}, cutoffs=[0.25, 0.5, 0.75], random_state=0)
    >>> [round(gap, 2) for gap in found.gaps]
    [0.09, 0.12, 0.09]
    """
    options = IntervalOptions.read(confidence_level, n_draws, random_state, chance=True)
    asked = None if cutoffs is None else read_cutoffs(cutoffs)
    measure = ScoreGap(cutoff="worst")
    if isinstance(scores, ScoreTable):
        check_table_alone(s=s, sample_weight=sample_weight, groups=groups)
        return table_gaps(scores, measure, asked).decisions(asked, options)
    rows = Observations.read(scores, s, sample_weight, groups, one_column=True).drop_zero_weights()
    if bool((rows.z == rows.z[:1]).all()):
        fix = "A constant decides nothing; pass the scores before they are rounded."
        raise ArgumentError("scores", "have more than one value", "the same in every row", fix)
    table = gaps_of(rows, measure, asked)
    if table is not None:
        return table.decisions(asked, options)
    found = find_decisions(rows, measure, None if asked is None else _tensor(asked))
    tails = tails_of_columns(found.curve, min(n_draws, MOST_DRAWS), options.generator)
    each = _Together.of(tails).both(1.0 - confidence_level)
    ends = [(one.lower(each), one.upper(each)) for one in tails]
    draws = gaps_under_independence(found.curve, options.generator)
    return DecisionGaps(
        cutoffs=tuple(found.cutoffs.tolist()),
        rates=tuple(found.curve.overall.tolist()),
        gaps=tuple(found.gaps.tolist()),
        low=tuple(min(low, gap) for (low, _), gap in zip(ends, found.gaps.tolist(), strict=True)),
        high=tuple(max(high, gap) for (_, high), gap in zip(ends, found.gaps.tolist(), strict=True)),
        plug_in=tuple(found.gaps.tolist()),
        chance=tuple(draws.mean(dim=0).tolist()),
        confidence_level=confidence_level,
        target=f"at each cut-off {found.target}",
        attributes=rows.s.names,
        n=rows.n_units,
        notes=(*group_notes(rows), *found.curve.notes()),
        largest=_interval(rows, measure, options, found, tails, draws) if cutoffs is None else None,
    )


def read_cutoffs(cutoffs: Sequence[float]) -> list[float]:
    """Return cut-offs; raise ArgumentError unless they are finite numbers."""
    values = [float(one) for one in cutoffs]
    if not values or not all(map(math.isfinite, values)):
        raise ArgumentError("cutoffs", "be one finite number or several", repr(cutoffs), "Pass (0.5,).")
    return values


def _tensor(cutoffs: Sequence[float]) -> Tensor:
    return torch.tensor(cutoffs, dtype=torch.float64)


class Decisions(NamedTuple):
    """Decisions at several cut-offs, and the curves of their rates along s."""

    cutoffs: Tensor  # (r,)
    gaps: Tensor  # (r,), D(t) on these rows
    curve: Smoothed
    missed: float  # by how much the largest gap at any cut-off is above those at these

    @property
    def estimate(self) -> float:
        """The largest gap on these rows."""
        return float(self.gaps.max()) + self.missed

    @property
    def method(self) -> str:
        """How its limits are made."""
        return "Gaussian multiplier process of the decisions"

    @property
    def target(self) -> str:
        """What the gaps are about, and under which assumption."""
        return self.curve.target_of_gdp.replace("the GDP of", "the mean gap of")


def find_decisions(rows: Observations, measure: ScoreGap, cutoffs: Tensor | None = None) -> Decisions:
    """Return the curves of the decisions at given cut-offs; None: at quantiles, and at the worst one."""
    check_one_score(rows, "the gap of decisions")
    if cutoffs is None:
        worst, most = measure.worst(rows.z, rows.s, rows.w)
        cutoffs = _quantiles(rows, worst)
    else:
        most = cutoffs.new_zeros(1)
        _check_rates(cutoffs, torch.stack([(rows.z > t).double().mean() for t in cutoffs]))
    decisions = (rows.z > cutoffs).to(torch.float64)
    curve = gdp_curve(replace(rows, z=decisions), measure.means)[1]
    gaps = curve.mass @ curve.gaps.abs()
    return Decisions(cutoffs, gaps, curve, max(0.0, float(most) - float(gaps.max())))


def _check_rates(cutoffs: Tensor, rates: Tensor) -> None:
    """Raise ArgumentError if all rows are on one side of a cut-off."""
    alike = ~((rates > 0.0) & (rates < 1.0))
    if bool(alike.any()):
        side = "above" if float(rates[alike][0]) > 0.5 else "not above"
        got = f"{number(float(cutoffs[alike][0]))}, with all scores {side} it"
        raise ArgumentError("cutoffs", "have scores on both sides", got, "Take one between the scores.")


def _quantiles(rows: Observations, worst: Tensor) -> Tensor:
    """Return cut-offs at equal shares of the rows, and one more; above each of them there are rows."""
    u, order = rows.z[:, 0].sort()
    upto = rows.weights[order].cumsum(0)
    shares = torch.arange(1, _CUTOFFS + 1, dtype=torch.float64) / (_CUTOFFS + 1)
    at = torch.searchsorted(upto, shares * upto[-1]).clamp_max(len(u) - 1)
    cutoffs = torch.cat((u[at], worst)).unique()
    return cutoffs[cutoffs < u[-1]]


class _Together(NamedTuple):
    """The tail of each of several limits at which all of them hold together."""

    up: Tensor  # (B,), the smallest tail of a draw among those that would break an upper limit
    down: Tensor  # (B,), a lower one

    @classmethod
    def of(cls, tails: Sequence[Tails]) -> _Together:
        moves, noise, chance, every = (
            torch.stack(draws)
            for draws in zip(*((one.moves, one.noise, one.chance, one.every) for one in tails), strict=True)
        )
        up = torch.minimum(_tail_of(-moves), _tail_of(chance)).amin(dim=0)
        down = torch.stack([_tail_of(one) for one in (moves, noise, every)]).amin(dim=(0, 1))
        return cls(up, down)

    def upper(self, tail: float) -> float:
        return self._quantile(self.up, tail)

    def lower(self, tail: float) -> float:
        return self._quantile(self.down, tail)

    def both(self, tail: float) -> float:
        return self._quantile(torch.minimum(self.up, self.down), tail)

    def _quantile(self, smallest: Tensor, tail: float) -> float:
        return max(float(smallest.quantile(tail)), 1.0 / (len(smallest) + 1.0))


def _tail_of(draws: Tensor) -> Tensor:
    """Return the share of draws that are as large as each one, row by row; one where all are equal."""
    ordered = draws.sort(dim=1).values
    return 1.0 - torch.searchsorted(ordered, draws.contiguous()) / draws.shape[1]


def decision_tails(
    found: Decisions, n_draws: int, generator: torch.Generator
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return the limits of the largest D(t) among cut-offs, as functions of the chance that each fails."""
    return _limits(found, tails_of_columns(found.curve, min(n_draws, MOST_DRAWS), generator))


def _limits(
    found: Decisions, tails: Sequence[Tails]
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    together = None if len(tails) == 1 else _Together.of(tails)

    def lower(tail: float) -> float:
        each = tail if together is None else together.lower(tail)
        return min(max(one.lower(each) for one in tails), found.estimate)

    def upper(tail: float) -> float:
        each = tail if together is None else together.upper(tail)
        return max(max(one.upper(each) for one in tails) + found.missed, found.estimate)

    return lower, upper


def cutoffs_of(measure: ScoreGap) -> Tensor | None:
    """Return the cut-off of a measure; None for the worst."""
    if measure.cutoff is None or measure.cutoff == "worst":
        return None
    return _tensor([measure.cutoff])


def decision_interval(rows: Observations, measure: ScoreGap, options: IntervalOptions) -> Interval:
    """Return the interval of D(t) at one cut-off, or of its largest value."""
    found = find_decisions(rows, measure, cutoffs_of(measure))
    tails = tails_of_columns(found.curve, min(options.n_draws, MOST_DRAWS), options.generator)
    draws = gaps_under_independence(found.curve, options.generator) if options.chance else None
    return _interval(rows, measure, options, found, tails, draws)


def _interval(
    rows: Observations,
    measure: ScoreGap,
    options: IntervalOptions,
    found: Decisions,
    tails: Sequence[Tails],
    draws: Tensor | None,
) -> Interval:
    lower, upper = _limits(found, tails)
    tail = 0.5 * (1.0 - options.confidence_level)
    chance, chance_high = options.summarize(None if draws is None else draws.amax(dim=1))
    return Interval(
        estimate=found.estimate,
        low=lower(tail),
        high=upper(tail),
        confidence_level=options.confidence_level,
        measure=measure.words,
        target=found.target,
        method=found.method,
        attributes=rows.s.names,
        n=rows.n_units,
        chance=chance,
        chance_high=chance_high,
        notes=(*group_notes(rows), *found.curve.notes()),
    )
