"""HSIC through finitely many features: a measure in time linear in the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from frhsic.data import Kind, Sensitive
from frhsic.dependence import Dependence
from frhsic.kernels import Gaussian, Kernel, check_kernel, default_kernel
from frhsic.numerics._centering import Estimator, check_estimator, check_row_count
from frhsic.numerics._numeric import signed_root
from frhsic.numerics._products import hsic_of_sums, normalized_hsic
from frhsic.sketching._feature_sums import ProductSums, by_place
from frhsic.sketching._maps import feature_map
from frhsic.sketching._plan import check_n_features, check_seed


class FeatureHSIC(Dependence):
    """HSIC of kernels that are inner products of features phi(z) and psi(s), in time linear in the rows.

    With weights w of sum one and means under them,

        HSIC_w = | sum_i w_i (phi_i - mean) (psi_i - mean)' |^2,

    close to :class:`HSIC` of the kernels that the features stand for: to 1e-7 for one Gaussian column on each
    side, to a few percent for several columns. Features of several columns are cosines along random
    orthogonal directions, always the same for the same ``random_state``.

    Parameters
    ----------
    kernel_z : Kernel, default=Gaussian("median")
        Gaussian, Laplace, InverseMultiquadric or Linear, multiples and sums of these, products of Gaussians.
    kernel_s : Kernel, default=default_kernel(kinds of s)
        The same, or such a kernel times Deltas on other columns, which are exact.
    n_features : tuple of int, default=(256, 64)
        Of z and of s, at most: one Gaussian column takes no more than 64.
    random_state : int, default=0
    estimator : {"biased", "unbiased"}, default="biased"
        As in :class:`HSIC`. With weights the unbiased form takes off what the biased one is on average at
        independence.
    normalized, root : bool, default=False
        As in :class:`HSIC`.

    Notes
    -----
    :meth:`moments` are sums over rows and :meth:`of_moments` is the value: for rows on several machines add
    up the moments of each, of a measure whose scales are calibrated with ``freeze=True``.

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(-1, 1, 100, dtype=torch.float64)
    >>> round(FeatureHSIC(normalized=True)(s**2, s).item(), 2)
    0.32
    """

    kernel_z: Kernel

    def __init__(
        self,
        kernel_z: Kernel | None = None,
        kernel_s: Kernel | None = None,
        *,
        n_features: tuple[int, int] = (256, 64),
        random_state: int = 0,
        estimator: Estimator = "biased",
        normalized: bool = False,
        root: bool = False,
    ) -> None:
        super().__init__()
        check_estimator(estimator)
        self.kernel_z = check_kernel(kernel_z, "kernel_z") or Gaussian()
        self.kernel_s = check_kernel(kernel_s, "kernel_s")
        self.kernel_z.terms(None, 1.0, "kernel_z")  # ArgumentError if it has no features
        self.n_features = check_n_features(n_features)
        self.random_state = check_seed(random_state)
        self.estimator = estimator
        self.normalized = normalized
        self.root = root

    def cheap_rows(self, width: int, kinds: Sequence[Kind]) -> int:  # noqa: ARG002
        """Return many: the time is linear in n."""
        return 65_536

    @property
    def debiased(self) -> bool:
        """Whether the estimator is the U-statistic."""
        return self.estimator == "unbiased"

    @property
    def bounded_below(self) -> bool:
        """Whether no z makes the value arbitrarily negative."""
        return self.estimator == "biased" or self.normalized or self.kernel_z.bound < float("inf")

    def moments(
        self, z: Tensor, s: Tensor | Sensitive, weights: Tensor | None = None
    ) -> tuple[ProductSums, ...]:
        """Return sums over rows from which the value follows: of (z, s) and, if normalised, (z, z), (s, s).

        Weights are taken as they are, equal ones as one.
        """
        z, s, _ = self._checked(z, s, weights)
        return self._moments(z, s, None if weights is None else weights[weights > 0].double())

    def of_moments(self, moments: Sequence[ProductSums]) -> Tensor:
        """Return the value, shape ``(...)``, for sums over all rows."""
        value, *selves = (hsic_of_sums(*one, self.estimator) for one in moments)
        if self.normalized:
            value = normalized_hsic(value, selves[0], selves[1], self.estimator)
        return signed_root(value) if self.root else value

    def _moments(self, z: Tensor, s: Sensitive, w: Tensor | None) -> tuple[ProductSums, ...]:
        return self._products(*self._sides(z, s, w), w)

    def _products(
        self, X: Tensor, Y: Tensor, of_z: float | None, of_s: float | None, w: Tensor | None
    ) -> tuple[ProductSums, ...]:
        w = Y.new_ones(len(Y)) if w is None else w.to(Y)
        pairs = [(X, Y, of_z, of_s), (X, X, of_z, of_z), (Y, Y, of_s, of_s)][: 3 if self.normalized else 1]
        return tuple(
            ProductSums((w[:, None] * a).mT @ b, (w.square()[:, None] * a).mT @ b, of_a, of_b)
            for a, b, of_a, of_b in pairs
        )

    def _sides(
        self, z: Tensor, s: Sensitive, w: Tensor | None
    ) -> tuple[Tensor, Tensor, float | None, float | None]:
        """Return the augmented features of both sides in float64, and what is known of their norms."""
        z, x = z.double(), s.values.double()
        w = None if w is None else w.double() / w.double().sum()
        kernel_s = default_kernel(s.kinds) if self.kernel_s is None else self.kernel_s
        map_z = feature_map(
            self.kernel_z.bind(z, w), z.shape[-1], self.n_features[0], self.random_state, "kernel_z"
        )
        exact, rest, factor = kernel_s.bind(x, w).split_equality(x.shape[1])
        place, n_places = torch.zeros(len(x), dtype=torch.int64, device=x.device), 1
        for j in exact:
            values, codes = x[:, j].unique(return_inverse=True)
            place, n_places = place * len(values) + codes, n_places * len(values)
        if rest is None:
            own = factor**0.5 * torch.nn.functional.one_hot(place, n_places).to(x)
            Y = torch.cat((torch.ones_like(x[:, :1]), own), dim=1)
            return map_z.augmented(z), Y, map_z.diagonal, factor
        n_features = self.n_features[1] - 1
        map_s = feature_map(rest, x.shape[1], n_features, self.random_state, "kernel_s", factor)
        Y = by_place(map_s.augmented(x), place, n_places, map_s.width)
        return map_z.augmented(z), Y, map_z.diagonal, map_s.diagonal

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        check_row_count(self.estimator, len(s))
        return self.of_moments(self._moments(z, s, w)).to(z.dtype)

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        if w is not None and not self.kernel_z.fixed:  # then the side of z, too, changes with the pairing
            return super()._permuted(z, s, permutations, w)
        check_row_count(self.estimator, len(s))
        X, Y, of_z, of_s = self._sides(z, s, w)
        pairings = ((Y[order], None if w is None else w[order]) for order in permutations)
        values = [self.of_moments(self._products(X, own, of_z, of_s, v)) for own, v in pairings]
        return torch.stack(values).to(z.dtype)

    def _calibrated(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        kernel_s = default_kernel(s.kinds) if self.kernel_s is None else self.kernel_s
        return self._with(
            kernel_z=self.kernel_z.calibrate(z, weights=w, generator=generator, freeze=freeze),
            kernel_s=kernel_s.calibrate(s.values, weights=w, generator=generator, freeze=freeze),
        )
