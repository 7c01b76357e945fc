"""The error of features: HSIC of the kernels and of the features, on the stored rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

from frhsic._checks import ArgumentError, check_confidence_level
from frhsic.kernels import Kernel
from frhsic.numerics._products import Rows, feature_rows, pair_rows
from frhsic.sketching._feature_sums import FeatureSums
from frhsic.sketching._state import State


@dataclass(frozen=True)
class FeatureError:
    """The error of the features, estimated on the stored rows, where the kernels can be evaluated too."""

    exact: float  # debiased HSIC of the kernels
    features: float  # and of the features, on the same rows
    standard_error: float  # of their difference as an estimate of that on all rows; 0 if all are stored
    rows: int  # stored ones

    @property
    def error(self) -> float:
        """The estimated error; what is left of it after subtraction has ``standard_error``."""
        return self.features - self.exact

    def interval(self, confidence_level: float = 0.95) -> tuple[float, float]:
        """Return limits for the error on all rows, for large numbers of stored rows."""
        check_confidence_level(confidence_level)
        reach = float(ndtri(0.5 + 0.5 * confidence_level)) * self.standard_error
        return self.error - reach, self.error + reach

    def __str__(self) -> str:
        share = f" ({100 * self.error / self.exact:+.2g} %)" if self.exact > 0 else ""
        return (
            f"On {self.rows:,} stored rows the features give {self.features:.4g} and the kernels "
            f"{self.exact:.4g}: an error of {self.error:+.2g}{share}, standard error "
            f"{self.standard_error:.2g}."
        )


def exact_rows(state: State, kernel_z: Kernel, kernel_s: Kernel) -> Rows:
    """Return what each stored row adds to HSIC of the kernels."""
    _, z, s, w, _ = state.sample
    if len(z) < 4:
        must, got = "tell rows apart, so that at least 4 can be stored", f"{len(z)} stored of {state.n_rows}"
        raise ArgumentError("ids", must, got, "Use other ids, or none; or add rows.")
    w = w / w.sum()
    return pair_rows((kernel_z.bind(z, w), kernel_s.bind(s, w)), (z, s), w)


def feature_error(state: State, exact: Rows, *, normalized: bool) -> FeatureError:
    """Return the error of the features on the stored rows, of which ``exact`` are those of the kernels."""
    _, z, s, w, _ = state.sample
    m, w, sums = len(z), w / w.sum(), FeatureSums(state)
    X, Y = state.plan.map_z.augmented(z), sums.augmented_s(s)
    phi, psi = X[:, 1 : 1 + state.plan.map_z.width], Y[:, 1 : Y.shape[1] - (sums.diagonal_s is None)]
    features = feature_rows(phi, psi, w)
    influence = features.influence(w, normalized) - exact.influence(w, normalized)
    spread = (w * influence).square().sum() * m / (m - 1) * (1.0 - m / state.n_rows)
    return FeatureError(
        exact=exact.value(w, normalized),
        features=features.value(w, normalized),
        standard_error=math.sqrt(max(float(spread), 0.0)),
        rows=m,
    )
