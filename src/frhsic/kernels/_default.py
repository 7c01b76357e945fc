"""The kernel for given kinds of columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul

from frhsic.data import Kind
from frhsic.kernels._base import Kernel
from frhsic.kernels._composed import OnColumns
from frhsic.kernels._plain import Delta
from frhsic.kernels._radial import Gaussian
from frhsic.kernels.scale import Rule


def default_kernel(kinds: Sequence[Kind], bandwidth: float | Rule | Sequence[float] = "median") -> Kernel:
    """Return the product over columns of a Gaussian for each continuous and a Delta for each categorical one.

    Parameters
    ----------
    kinds : sequence of {"continuous", "categorical"}
    bandwidth : float, rule or sequence of float, default="median"
        Of the Gaussians: one for all, or one for each column.

    Examples
    --------
    >>> default_kernel(["continuous"])
    Gaussian(bandwidth='median', whiten=False)
    """
    sigmas = [bandwidth] * len(kinds) if isinstance(bandwidth, (str, float, int)) else list(bandwidth)
    parts: list[Kernel] = [
        Gaussian(sigma) if kind == "continuous" else Delta()
        for kind, sigma in zip(kinds, sigmas, strict=True)
    ]
    if len(parts) == 1:
        return parts[0]
    return reduce(mul, (OnColumns(part, (j,)) for j, part in enumerate(parts)))
