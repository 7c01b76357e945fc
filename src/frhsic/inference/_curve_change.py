"""What changed along S between two samples, or between two scores of one sample."""

from __future__ import annotations

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.inference._change_results import CurveChange
from frhsic.inference._curve import cell_medians
from frhsic.inference._places import gather_rows
from frhsic.inference._process import Process, Smoothed, student_quantile
from frhsic.inference._question import IntervalOptions, check_one_column
from frhsic.inference._two_samples import Pair
from frhsic.numerics._threads import one_thread

# Rows at a point of the curve.
MIN_POINT = 10


@one_thread()
def curve_change(
    scores: object,
    s: object,
    *,
    new: object = None,
    confidence_level: float = 0.95,
    n_draws: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> CurveChange:
    """Return the change of the mean score along one column of s, with a band for all its values at once.

    Parameters
    ----------
    scores : array-like of shape (n,) or (n, 2)
        Scores of both samples; or the old and the new score of each row.
    s : array-like of shape (n,) or (n, 1)
    new : array-like of bool of shape (n,), optional
        Which rows are of the new sample. Left out for two columns of scores.
    confidence_level : float, default=0.95
        The confidence that the change at all points lies in the band.
    n_draws : int, default=999
        Multiplier draws.
    random_state : None, int or generator, default=None
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), optional
        Which rows may depend on one another, such as those of one person, within a sample and across both.

    Returns
    -------
    CurveChange

    Notes
    -----
    Means are taken within the common cells of :func:`gap_change`. The band is that of
    :func:`conditional_curve`, for the difference of two means: m'(a) - m(a) -/+ c se(a), with c the quantile
    of the largest error over its deviation under Gaussian multipliers. Of two scores of the same rows it is
    the band of their difference. Points of fewer than ten rows in one of the samples are left out.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 30, 4_000)
    >>> old = rng.uniform(size=4_000)
    >>> scores = np.column_stack((old, old + 0.1 * (age > 27) + 0.1 * rng.normal(size=4_000)))
    >>> curve_change(scores, {"age": age}, random_state=0).higher
    (28.0, 29.0)
    """
    options = IntervalOptions.read(confidence_level, n_draws, random_state)
    pair = Pair.read(scores, s, new, sample_weight, groups)
    check_one_column(pair.s, "curve")
    z, code, size = _stack(pair)
    w = pair.w / pair.w.sum()
    places = gather_rows(code, w, pair.units if pair.grouped else None, pair.s.names[0])
    process = Process(Smoothed(z[:, None], places, pair.cells))
    at = places.cell
    counts = torch.bincount(code, minlength=2 * size)
    few = counts < MIN_POINT
    if not pair.paired:
        few = few[:size] | few[size:]
    kept = (~few[:size]).nonzero()[:, 0]
    if not len(kept):
        must = f"have a value (or range) with {MIN_POINT} rows in both samples"
        raise ArgumentError("s", must, "none", "Take more rows, or samples of the same people.")
    found = torch.full((2 * size,), -1)
    found[at] = torch.arange(len(at))
    here = found[kept] if pair.paired else torch.stack((found[kept], found[kept + size]))
    reach = _reach(process, here, options)
    means = _means_at(pair, kept)
    low, high = means[1] - means[0] - reach, means[1] - means[0] + reach
    medians, (start, stop) = _describe_cells(pair, kept)
    least = counts[kept] if pair.paired else torch.minimum(counts[kept], counts[kept + size])
    n_old, n_new = pair.counts
    lost = len(pair.s) - int(torch.isin(code % size, kept).sum())
    notes = (f"{lost:,} rows at values with fewer than {MIN_POINT} rows in one sample are left out.",)
    return CurveChange(
        points=tuple(medians.tolist()),
        old=tuple(means[0].tolist()),
        new=tuple(means[1].tolist()),
        change=tuple((means[1] - means[0]).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        counts=tuple(least.tolist()),
        start=tuple(start.tolist()),
        stop=tuple(stop.tolist()),
        confidence_level=confidence_level,
        target=_curve_target(pair),
        attributes=pair.s.names,
        n_old=n_old,
        n_new=n_new,
        paired=pair.paired,
        notes=(*pair.notes, *(notes if lost else ())),
    )


def _curve_target(pair: Pair) -> str:
    if pair.cells.exact:
        return "the change at each value"
    return f"the change of the mean within {pair.cells.size} ranges that both samples share"


def _stack(pair: Pair) -> tuple[Tensor, Tensor, int]:
    """Return the scores in the order of s with the place of each row: cells of the new sample come second."""
    code, size = pair.cells.codes(pair.s), pair.cells.size
    if pair.paired:
        return pair.scores[1] - pair.scores[0], code, size
    z = torch.zeros(len(pair.s), dtype=torch.float64)
    for part, column in zip(pair.rows, pair.scores, strict=True):
        z[part] = column
    code = code.clone()
    code[pair.rows[1]] += size
    return z, code, size


def _reach(process: Process, here: Tensor, options: IntervalOptions) -> Tensor:
    """Return how far the change may be off at each point."""
    variance, degrees = process.trusted()
    # A point without variance has errors of rounding only.
    rounded = torch.maximum(process.variance, 1e-9 * process.common)
    if here.ndim == 1:  # the difference of two scores of the same rows
        drawn = [errors[here, :, 0] for errors, _ in process.draws(options.n_draws, options.generator)]
        own, trusted, free = rounded[here], variance[here], degrees[here]
    else:
        old, new = here
        drawn = [
            errors[new, :, 0] - errors[old, :, 0]
            for errors, _ in process.draws(options.n_draws, options.generator)
        ]
        own, trusted = (x[old] + x[new] for x in (rounded, variance))
        # Welch and Satterthwaite.
        parts = variance[here].square() / degrees[here]
        free = trusted.square() / parts.sum(dim=0).clamp_min(1e-300)
    errors = torch.cat(drawn, dim=1)  # (a, B)
    if here.ndim == 2 and process.curve.covariance is not None:  # groups may be in both samples
        shared = errors.square().mean(dim=1) / own.clamp_min(1e-300)
        own, trusted = own * shared, trusted * shared
    deviation = own.clamp_min(1e-300).sqrt()
    largest = float((errors.abs() / deviation[:, None]).amax(dim=0).quantile(options.confidence_level))
    return student_quantile(free, largest) * trusted.sqrt()


def _means_at(pair: Pair, kept: Tensor) -> list[Tensor]:
    """Return the mean of both scores in some cells."""
    found = []
    for z, (code, w, _) in zip(pair.scores, pair.samples, strict=True):
        mass, sums = (z.new_zeros(pair.cells.size).index_add(0, code, x) for x in (w, w * z))
        found.append(sums[kept] / mass[kept])
    return found


def _describe_cells(pair: Pair, kept: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return the median of s in some cells, and where these begin and end."""
    every = torch.arange(pair.cells.size)
    present = torch.bincount(pair.cells.codes(pair.s), minlength=pair.cells.size) > 0
    medians = torch.full((pair.cells.size,), torch.nan, dtype=torch.float64)
    medians[present] = cell_medians(pair.s, pair.w, pair.cells)
    start, stop = pair.cells.ends(every)
    return medians[kept], (start[kept], stop[kept])
