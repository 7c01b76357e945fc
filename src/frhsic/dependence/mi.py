"""Mutual information by nearest neighbours."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import digamma
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, check_finite
from frhsic.dependence._base import Dependence

Array = NDArray[np.float64]

# The distance between two categories, beyond any distance between numbers of unit variance.
_FAR = 1e9


class MutualInformation(Dependence):
    """Mutual information I(Z; S) in nats, by the nearest-neighbour estimator of Kraskov et al. (2004).

    I = psi(k) + psi(n) - mean_i [psi(n_z(i) + 1) + psi(n_s(i) + 1)], where n_z(i) and n_s(i) count the rows
    strictly closer to row i, in the largest coordinate, than its k-th neighbour in the joint space.

    Not differentiable, so it cannot be a penalty. It takes no weights.

    Parameters
    ----------
    k : int, default=5
        Number of neighbours; the published scripts use 5.
    standardize : bool, default=True
        Bring continuous columns to unit variance first; the published scripts do not.

    Notes
    -----
    The estimator is for continuous laws, and ties (integers, decisions of 0 and 1) would bias it by whole
    tenths of a nat. A column with ties is therefore spread evenly over its smallest gap, from a fixed seed:
    the value can still be told from the spread one, so the information stays what it is. Categories are far
    from each other, all equally. The estimate may be slightly negative near independence; it is not clipped.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(0, 1, 300, dtype=torch.float64)
    >>> MutualInformation()(s, s).item() > 3
    True
    """

    differentiable: ClassVar[bool] = False

    def __init__(self, k: int = 5, *, standardize: bool = True) -> None:
        super().__init__()
        if k < 1:
            raise ArgumentError("k", "be at least 1", k, "The published scripts use 5.")
        self.k = k
        self.standardize = standardize

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        if w is not None:
            raise ArgumentError(
                "weights",
                "be None for MutualInformation: no weighted form is derived",
                "weights",
                "Use HSIC or DistanceCovariance.",
            )
        check_finite(s)
        if len(s) <= self.k:
            raise ArgumentError(
                "z", f"have more than k = {self.k} rows", len(s), "Use a larger sample or a smaller k."
            )
        y = _points(s.values.detach().cpu().double().numpy(), s.kinds, self.standardize, side=1)
        models = z.detach().cpu().double().reshape(-1, *z.shape[-2:]).numpy()
        kinds = ("continuous",) * z.shape[-1]
        values = [_ksg(_points(x, kinds, self.standardize, side=0), y, self.k) for x in models]
        return torch.tensor(values, dtype=z.dtype, device=z.device).reshape(z.shape[:-2])


def _points(x: Array, kinds: tuple[str, ...], standardize: bool, side: int) -> Array:
    """Return the columns as coordinates; a category becomes a corner of its own, far from all others.

    ``side`` keeps the seeds of Z and S apart: the same spread on both would be a dependence.
    """
    columns = []
    for j, (column, kind) in enumerate(zip(x.T, kinds, strict=True)):
        if kind == "categorical":
            columns.append(_FAR * (column[:, None] == np.unique(column)))
        else:
            sd = column.std() if standardize else 1.0
            columns.append(_spread(column / (sd if sd > 0 else 1.0), (side, j))[:, None])
    return np.hstack(columns)


def _spread(column: Array, seed: tuple[int, int]) -> Array:
    """Return the column with ties spread over half the smallest gap to either side."""
    values = np.unique(column)
    if len(values) in (1, len(column)):
        return column
    gaps = np.diff(values)
    real = gaps[gaps > 1e-9 * (values[-1] - values[0])]  # below is rounding
    return column + real.min() * np.random.default_rng(seed).uniform(-0.5, 0.5, len(column))


def _ksg(x: Array, y: Array, k: int) -> float:
    from scipy.spatial import cKDTree

    if not (np.ptp(x, axis=0).any() and np.ptp(y, axis=0).any()):
        return 0.0  # a constant tells nothing
    joint = np.hstack([x, y])
    reach = cKDTree(joint).query(joint, k=k + 1, p=np.inf)[0][:, -1]
    inside = np.nextafter(reach, 0.0)  # strictly closer
    near_x, near_y = (
        cKDTree(points).query_ball_point(points, inside, p=np.inf, return_length=True) for points in (x, y)
    )
    # Both counts contain the row itself: they are n_x + 1 and n_y + 1.
    return float(digamma(k) + digamma(len(x)) - np.mean(digamma(near_x) + digamma(near_y)))
