"""The gap of decisions at every cut-off: a band for the curve t -> D(t), and limits for its largest value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from frhsic._checks import ArgumentError
from frhsic.dependence import ScoreGap
from frhsic.inference._gaps import gaps_of
from frhsic.inference._of_table import check_table_alone, table_gaps
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
)
from frhsic.inference._results import DecisionGaps
from frhsic.numerics._threads import one_thread
from frhsic.table import ScoreTable


@one_thread()
def decision_gaps(
    scores: object,
    s: object = None,
    *,
    cutoffs: Sequence[float] | None = None,
    confidence_level: float = 0.95,
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

    With groups, errors are sums over blocks of whole groups. Nothing is drawn but a noise whose seed is made
    of the table.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 30, 4_000)
    >>> score = rng.uniform(size=4_000) ** np.where(age > 24, 0.5, 1.0)
    >>> found = decision_gaps(score, {"age": age}, cutoffs=[0.25, 0.5, 0.75])
    >>> [round(gap, 2) for gap in found.gaps]
    [0.09, 0.12, 0.09]
    """
    options = IntervalOptions.read(confidence_level, 999, None, chance=True)
    asked = None if cutoffs is None else read_cutoffs(cutoffs)
    measure = ScoreGap(cutoff="worst")
    if isinstance(scores, ScoreTable):
        check_table_alone(s=s, sample_weight=sample_weight, groups=groups)
        return table_gaps(scores, measure, asked).decisions(asked, options)
    rows = Observations.read(scores, s, sample_weight, groups, one_column=True).drop_zero_weights()
    return gaps_of(rows, measure, asked).decisions(asked, options)


def read_cutoffs(cutoffs: Sequence[float]) -> list[float]:
    """Return cut-offs; raise ArgumentError unless they are finite numbers."""
    values = [float(one) for one in cutoffs]
    if not values or not all(map(math.isfinite, values)):
        raise ArgumentError("cutoffs", "be one finite number or several", repr(cutoffs), "Pass (0.5,).")
    return values
