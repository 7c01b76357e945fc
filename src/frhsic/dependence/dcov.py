"""Distance covariance and correlation: HSIC on the energy kernel."""

from __future__ import annotations

from torch import Tensor

from frhsic.data import Sensitive
from frhsic.dependence._base import Dependence
from frhsic.dependence._centering import Estimator
from frhsic.dependence.hsic import HSIC
from frhsic.kernels import Delta, Energy, Kernel


class DistanceCovariance(Dependence):
    """Squared distance covariance of Z and S, 4 HSIC on the energy kernel; no bandwidth to choose.

    dCov^2 = 4 HSIC with k(x, y) = (|x| + |y| - |x - y|) / 2 on both sides. It is zero in the population
    exactly under independence, when Z and S have first moments.

    Parameters
    ----------
    normalized : bool, default=False
        Squared distance correlation instead.
    estimator : {"biased", "unbiased"}, default="biased"
    root : bool, default=False
        The (signed) square root: distance covariance, or distance correlation with ``normalized``.
    whiten : bool, default=False
        Whiten Z first: affinely invariant in Z.
    block_size : int or None, default=None
        As in :class:`HSIC`.

    Notes
    -----
    Categories in S enter with the discrete metric, all columns together. Continuous and categorical columns
    do not mix here, because sums of metrics do not characterise joint independence: use :class:`HSIC`.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(-1, 1, 100, dtype=torch.float64)
    >>> round(DistanceCovariance(normalized=True, root=True)(s**2, s).item(), 2)
    0.49
    """

    def __init__(
        self,
        *,
        normalized: bool = False,
        estimator: Estimator = "biased",
        root: bool = False,
        whiten: bool = False,
        block_size: int | None = None,
    ) -> None:
        super().__init__()
        self.normalized = normalized
        self.estimator = estimator
        self.root = root
        self.whiten = whiten
        self.block_size = block_size
        self._hsic(("continuous",))  # so that wrong arguments are refused here

    @property
    def bounded_below(self) -> bool:
        """Whether no z makes the value arbitrarily negative; see :class:`~frhsic.HSIC`."""
        return self._hsic(("continuous",)).bounded_below

    def _hsic(self, kinds: tuple[str, ...]) -> HSIC:
        if set(kinds) == {"continuous", "categorical"}:
            raise ValueError(
                "'s' must have columns of one kind for DistanceCovariance. Got continuous and categorical "
                "ones. Measure them one by one, or all together with HSIC."
            )
        kernel_s: Kernel = Energy() if kinds[0] == "continuous" else 0.5 * Delta()
        # 4 HSIC = dCov^2: a factor 4 on one kernel, which cancels when normalised.
        return HSIC(
            4.0 * Energy(self.whiten),
            kernel_s,
            estimator=self.estimator,
            normalized=self.normalized,
            root=self.root,
            block_size=self.block_size,
        )

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        return self._hsic(s.kinds)._value(z, s, w)

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        return self._hsic(s.kinds)._permuted(z, s, permutations, w)
