"""Binned MMD: the discrepancy between each bin of S and the whole."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.dependence._base import Dependence
from frhsic.kernels import Kernel, Linear, check_kernel
from frhsic.numerics._bins import Binning, bin_of, check_bins, inner_edges
from frhsic.numerics._smoothing import row_weights


class BinnedMMD(Dependence):
    """The sum over bins of S of MMD^2(P(Z | bin), P(Z)): the published binned baseline.

    Parameters
    ----------
    n_bins : int, default=10
    binning : {"quantile", "width"}, default="quantile"
        Edges at quantiles of S (the published scripts) or equally spaced (the paper's text).
    kernel_z : Kernel, default=Linear()
        Linear compares means only, as published.

    Notes
    -----
    Bins with fewer than two rows, of any weight, are left out. With equal masses the sum of MMD^2 over all
    pairs of bins is n_bins times this sum: the pairwise form of the paper's text is the same penalty up to a
    factor. A categorical column has a bin for each category.

    Examples
    --------
    >>> import torch
    >>> s = torch.arange(10, dtype=torch.float64)
    >>> BinnedMMD(n_bins=2)(s, s).item()
    12.5
    """

    kernel_z: Kernel

    def __init__(
        self, n_bins: int = 10, *, binning: Binning = "quantile", kernel_z: Kernel | None = None
    ) -> None:
        super().__init__()
        check_bins(n_bins, binning)
        self.n_bins = n_bins
        self.binning: Binning = binning
        self.kernel_z = check_kernel(kernel_z, "kernel_z") or Linear()
        self._edges: Tensor | None = None

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        edges = inner_edges(s, self.n_bins, self.binning) if self._edges is None else self._edges
        rows = torch.nn.functional.one_hot(bin_of(s, edges), len(edges) + 1).mT.to(z)  # (bins, n)
        w_rows = row_weights(s, w)
        weighted = rows * w_rows
        mass = weighted.sum(dim=1, keepdim=True)
        counted = (rows.sum(dim=1, keepdim=True) >= 2) & (mass > 0)
        E = torch.where(counted, weighted / torch.where(counted, mass, 1.0) - w_rows, 0.0)
        return self.kernel_z.bind(z, w).quadratic(z, E).sum(dim=-1)

    def _calibrated(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        return self._with(
            kernel_z=self.kernel_z.calibrate(z, weights=w, generator=generator, freeze=freeze),
            _edges=inner_edges(s, self.n_bins, self.binning),
        )
