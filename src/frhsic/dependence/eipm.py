"""EIPM: the expected discrepancy between the conditional and the marginal law of Z."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Kind, Sensitive
from frhsic.dependence._base import Dependence
from frhsic.kernels import Gaussian, Kernel, check_kernel
from frhsic.numerics._numeric import signed_root
from frhsic.numerics._smoothing import (
    bandwidths_of,
    check_bandwidth,
    check_range,
    log_kernel,
    ranges_of,
    row_weights,
    smoothing_weights,
)


class EIPM(Dependence):
    """The mean over S of MMD(P(Z | S = s), P(Z)), with the conditional law smoothed along S.

    With smoothing weights v_a (leaving row a itself out) and v = w the weights of the marginal law,

        EIPM = sum_a w_a sqrt((v_a - w)' K (v_a - w)),

    the estimator of FREM: the MMD-based EIPM of the paper's remark "Relation to the MMD-based EIPM". A fixed
    bandwidth on S has a limit of its own, below the true EIPM.

    Parameters
    ----------
    kernel_z : Kernel, default=Gaussian("median")
    bandwidth_s : float, default=0.5
        Of the smoothing, as a fraction of the range of S.
    anchors : int or None, default=None
        Number of rows a over which the mean is taken, spread evenly over the ranks of the first column of S
        (among equal values in the order of rows); None takes all. The paper's setting is 32 in a batch of
        256.
    root : bool, default=True
        MMD as above; False averages its square, the paper's conditional MMD integral.
    range_s : float or None, default=None
        The range that ``bandwidth_s`` is a fraction of; None takes it from the sample, and ``calibrate``
        fixes it.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(0, 1, 50, dtype=torch.float64)
    >>> measure = EIPM(bandwidth_s=0.1)
    >>> [round(measure(z, s).item(), 2) for z in (s, torch.sin(1e4 * s))]
    [0.56, 0.13]
    """

    kernel_z: Kernel

    def __init__(
        self,
        kernel_z: Kernel | None = None,
        bandwidth_s: float = 0.5,
        *,
        anchors: int | None = None,
        root: bool = True,
        range_s: float | None = None,
    ) -> None:
        super().__init__()
        if anchors is not None and anchors < 1:
            raise ArgumentError("anchors", "be at least 1", anchors, "Leave it out to use every row.")
        self.kernel_z = check_kernel(kernel_z, "kernel_z") or Gaussian()
        self.bandwidth_s = check_bandwidth(bandwidth_s)
        self.anchors = anchors
        self.root = root
        self.range_s = check_range(range_s)
        self._ranges: tuple[float, ...] | None = None

    def cheap_rows(self, width: int, kinds: Sequence[Kind]) -> int:  # noqa: ARG002
        """Return 256: a product of two n x n matrices is formed."""
        return 256

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        E, anchor_weights = self._contrasts(s, row_weights(s, w))
        squared = self.kernel_z.bind(z, w).quadratic(z, E)  # (..., a)
        if self.root:
            squared = signed_root(squared.clamp_min(0.0))
        return squared @ anchor_weights

    @torch.no_grad()
    def _contrasts(self, s: Sensitive, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows v_a - w and the weights of the anchors."""
        n = len(s)
        rows = torch.arange(n, device=w.device)
        if self.anchors is not None and self.anchors < n:
            ranks = torch.linspace(0, n - 1, self.anchors, dtype=torch.float64).round().long().to(w.device)
            rows = s.values[:, 0].argsort(stable=True)[ranks]
        bandwidths = bandwidths_of(s, self.bandwidth_s, self.range_s, self._ranges)
        log = log_kernel(s.values[rows], s.values, s.kinds, bandwidths)
        log[torch.arange(len(rows), device=w.device), rows] = -torch.inf
        V = smoothing_weights(log, w)
        # A category of one row says nothing about its conditional law: it counts as the marginal one.
        V = torch.where(V.sum(dim=1, keepdim=True) == 0, w, V)
        return V - w, w[rows] / w[rows].sum()

    def _calibrated(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        return self._with(
            kernel_z=self.kernel_z.calibrate(z, weights=w, generator=generator, freeze=freeze),
            _ranges=ranges_of(s),
        )
