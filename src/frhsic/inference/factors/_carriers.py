"""Which inputs of a model carry the gap of its score along S.

With additive contributions phi_j, f = sum_j phi_j, means along S split exactly: D(s) = E[f | s] - E f is the
sum of D_j(s) = E[phi_j | s] - E phi_j, and with sign(D) as a function of s

    share_j = E[sign(D(S)) D_j(S)] / E|D(S)| = Cov(sign(D(S)), phi_j) / sum_k Cov(sign(D(S)), phi_k).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri

from frhsic._checks import ArgumentError
from frhsic._text import number, percent
from frhsic.data import check_aligned, read_columns
from frhsic.dependence import GDP
from frhsic.inference._curve import cell_medians, conditional_curve
from frhsic.inference._intervals import confidence_interval
from frhsic.inference._question import IntervalOptions, Observations, check_one_column
from frhsic.inference._results import Curve, Interval, Result, frame
from frhsic.inference.factors._columns import Floats, sum_by_unit
from frhsic.numerics._cells import Cells
from frhsic.numerics._threads import one_thread

_FOLDS: Final = 10
_DRAWN: Final = 6  # inputs whose curves get a band


@dataclass(frozen=True)
class Carriers(Result):
    """What each input adds to the curve of a score along s.

    Attributes
    ----------
    inputs : tuple of str
        From the largest share to the smallest.
    share : tuple of float
        Of the mean gap; signed, of sum one. NaN where no gap is shown.
    low, high : tuple of float
        The interval of each share by itself.
    points, mass : tuple of float
        Values of s, or medians of its ranges, and the share of rows of each.
    counts : tuple of int
        The rows of each.
    parts : tuple of tuple of float
        D_j at the points, for each input; they sum to ``whole``.
    whole : tuple of float
    gap : Interval
        The mean gap of the sum of contributions.
    curves : tuple of Curve
        Of the six inputs of the largest share, each with a band.
    attributes : tuple of str
    n : int
    confidence_level : float
    """

    inputs: tuple[str, ...]
    share: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    points: tuple[float, ...]
    mass: tuple[float, ...]
    parts: tuple[tuple[float, ...], ...]
    whole: tuple[float, ...]
    gap: Interval
    curves: tuple[Curve, ...]
    attributes: tuple[str, ...]
    n: int
    confidence_level: float
    counts: tuple[int, ...] = ()

    def to_frame(self) -> Any:
        """Return a row for each input: its share with an interval, and its mean gap by itself."""
        mass = np.array(self.mass)
        rows = zip(self.inputs, self.share, self.low, self.high, self.parts, strict=True)
        return frame(
            {"input": name, "share": share, "low": low, "high": high, "gap": float(mass @ np.abs(part))}
            for name, share, low, high, part in rows
        )

    def __str__(self) -> str:
        s, gap = self.attributes[0], self.gap
        text = (
            f"The sum of contributions differs by {number(gap.estimate)} along {s} on average "
            f"({percent(gap.confidence_level)} interval [{number(gap.low)}, {number(gap.high)}], "
            f"n = {self.n:,})"
        )
        if not np.isfinite(self.share[0]):
            return f"{text}: no gap is shown, so that nothing carries it."
        rows = list(zip(self.inputs, self.share, self.low, self.high, strict=True))[:5]
        shares = ", ".join(
            f"{name} {100.0 * share:.0f} % [{100.0 * low:.0f}, {100.0 * high:.0f}]"
            for name, share, low, high in rows
        )
        return (
            f"{text}. Carried by: {shares}. On the scale on which contributions add up. A share is no "
            "remedy: without an input a model may learn the same from others."
        )


@one_thread()
def carriers(
    contributions: object,
    sensitive_features: object,
    *,
    inputs: Mapping[str, Sequence[str]] | None = None,
    confidence_level: float = 0.95,
    n_draws: int = 999,
    random_state: object = None,
    sample_weight: object = None,
    groups: object = None,
) -> Carriers:
    """Split the gap of a score along one column of s between the inputs of its model.

    Parameters
    ----------
    contributions : frame, dict of columns or array of shape (n, p)
        What each input adds to the score of each row: ``pred_contrib=True`` of LightGBM, ``pred_contribs`` of
        XGBoost, coefficient times input of a linear model, SHAP values. Their sum is the score, on the scale
        on which it is a sum: log-odds for most classifiers. A constant column changes nothing.
    sensitive_features : array-like of shape (n,)
    inputs : dict of str to sequence of str, optional
        Inputs that count together, such as the indicators of one column: ``{"job": ["job_a", "job_b"]}``.
    confidence_level : float, default=0.95
    n_draws : int, default=999
    random_state : None, int or generator, default=None
    sample_weight : array-like of shape (n,), optional
    groups : array-like of shape (n,), optional
        Which rows may depend on one another; groups are independent.

    Returns
    -------
    Carriers

    Notes
    -----
    All inputs have the same cells of s as the curve of the score, so that their curves sum to it exactly.
    The sign of the gap at each value is taken from the rows of other folds (ten): that of the same rows would
    give a share to inputs that only add noise. Intervals of shares are those of a ratio of two means for
    large n, with these signs held.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 70, 2_000)
    >>> phi = {"income": 0.03 * (age - 45) + rng.normal(size=2_000), "zip": 0.01 * (age - 45.0)}
    >>> found = carriers(phi, {"age": age}, random_state=0)
    >>> found.inputs, [round(share, 1) for share in found.share]
    (('income', 'zip'), [0.8, 0.2])
    """
    options = IntervalOptions.read(confidence_level, n_draws, random_state)
    check_aligned(
        contributions=contributions,
        sensitive_features=sensitive_features,
        sample_weight=sample_weight,
        groups=groups,
    )
    names, phi = _read(contributions, inputs)
    total = phi.sum(axis=1)
    if np.ptp(total) == 0.0:
        raise ArgumentError("contributions", "have a sum that varies", "a constant", "Pass those of a model.")
    rows = Observations.read(total, sensitive_features, sample_weight, groups, min_rows=20, one_column=True)
    check_one_column(rows.s, "split")
    if rows.w is not None:
        kept = (rows.w > 0).nonzero().squeeze(1)
        rows, phi = rows.take(kept), phi[kept.numpy()]
    w = rows.weights
    cells = Cells.of(rows.s, w, rows.effective_units)
    code = cells.codes(rows.s).numpy()
    weights = w.numpy()
    mass = np.bincount(code, weights=weights, minlength=cells.size)
    centred = phi - weights @ phi
    sums = np.zeros((cells.size, phi.shape[1]))
    np.add.at(sums, code, weights[:, None] * centred)
    parts = sums / mass[:, None]  # (cells, inputs)
    whole = parts.sum(axis=1)
    asked: dict[str, Any] = {"n_draws": options.n_draws, "random_state": options.generator}
    asked |= {"sample_weight": rows.w, "groups": rows.groups, "confidence_level": confidence_level}
    gap = confidence_interval(centred.sum(axis=1), rows.s, dependence=GDP(), **asked)
    sign = _signs(centred.sum(axis=1), code, cells.size, rows, options)
    share, reach = _shares(centred, sign, rows, confidence_level)
    if gap.low <= 0.0:
        share, reach = np.full_like(share, np.nan), np.full_like(share, np.nan)
    by_gap = mass @ np.abs(parts)
    order = np.argsort(-np.where(np.isnan(share), by_gap, share), kind="stable")
    curves = tuple(
        conditional_curve(centred[:, j], rows.s, **asked) for j in order[:_DRAWN] if np.ptp(centred[:, j]) > 0
    )
    return Carriers(
        inputs=tuple(names[j] for j in order),
        share=tuple(share[order].tolist()),
        low=tuple((share - reach)[order].tolist()),
        high=tuple((share + reach)[order].tolist()),
        points=tuple(cell_medians(rows.s, w, cells).tolist()),
        mass=tuple(mass.tolist()),
        parts=tuple(tuple(parts[:, j].tolist()) for j in order),
        whole=tuple(whole.tolist()),
        gap=gap,
        curves=curves,
        attributes=rows.s.names,
        n=rows.n_units,
        confidence_level=confidence_level,
        counts=tuple(np.bincount(code, minlength=cells.size).tolist()),
    )


def read_contributions(contributions: object, n_rows: int | None = None) -> dict[str, Floats]:
    """Return the contributions of each input."""
    blocks = read_columns(contributions, "contributions")
    blocks[0].check_rows(n_rows, "scores")
    names = [f"x{j}" if block.name is None else block.name for j, block in enumerate(blocks)]
    return {name: block.to_numbers() for name, block in zip(names, blocks, strict=True)}


def _signs(
    total: Floats, code: NDArray[np.int64], size: int, rows: Observations, options: IntervalOptions
) -> Floats:
    """Return the sign of the gap at each row, as the rows of the other folds show it.

    Signs of the same rows would follow their noise, and give a share to inputs that only add noise.
    """
    w = rows.weights.numpy()
    fold = torch.randperm(rows.n_units, generator=options.generator).numpy() % _FOLDS
    fold = fold if rows.groups is None else fold[rows.groups.numpy()]
    sign = np.zeros(len(total))
    for k in range(_FOLDS):
        other = np.where(fold == k, 0.0, w)
        centre = other @ total / other.sum()
        sums = np.bincount(code, weights=other * (total - centre), minlength=size)
        sign[fold == k] = np.sign(sums)[code[fold == k]]
    return sign


def _shares(
    centred: Floats, sign: Floats, rows: Observations, confidence_level: float
) -> tuple[Floats, Floats]:
    """Return the share of each input, and half the length of its interval."""
    w = rows.weights.numpy()
    products = (sign - w @ sign)[:, None] * centred  # of mean Cov(sign, phi_j)
    each = w @ products
    total = each.sum()
    if total == 0.0:
        return np.full_like(each, np.nan), np.full_like(each, np.nan)
    share = each / total
    influence = w[:, None] * (products - products.sum(axis=1)[:, None] * share) / total
    influence = sum_by_unit(influence, None if rows.groups is None else rows.groups.numpy(), rows.n_units)
    return share, ndtri(0.5 * (1.0 + confidence_level)) * np.sqrt((influence**2).sum(axis=0))


def _read(contributions: object, inputs: Mapping[str, Sequence[str]] | None) -> tuple[list[str], Floats]:
    """Return the names of inputs and their contributions, joined where they count together."""
    found = read_contributions(contributions)
    names, phi = list(found), np.column_stack(list(found.values()))
    if inputs is None:
        return names, phi
    owner = {part: name for name, parts in inputs.items() for part in parts}
    unknown = [part for part in owner if part not in names]
    if unknown or len(owner) < sum(map(len, inputs.values())):
        must = "name columns of 'contributions', each once"
        raise ArgumentError("inputs", must, f"{len(unknown)} unknown, or one twice", "Check the names.")
    joined = list(dict.fromkeys(owner.get(name, name) for name in names))
    columns = [
        sum((phi[:, j] for j, name in enumerate(names) if owner.get(name, name) == one), np.zeros(len(phi)))
        for one in joined
    ]
    return joined, np.column_stack(columns)
