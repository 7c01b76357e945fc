"""The plain model with repaired scores, as points of a frontier: judged by maps that did not see the row."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import get_tags

from frhsic.data import to_matrix
from frhsic.engine.limits import Key, Reached, make_measure
from frhsic.repair import RepairedModel, ScoreRepair, predict_score
from frhsic.selection._held_out import Rows

_SHARE: Final = Key("normalized_hsic")  # of which a budget is a share


class RepairedScores(BaseEstimator):  # type: ignore[misc]
    """The cross-fitted scores of the validation rows, as a model that predicts them and nothing else."""

    lam = None

    def __init__(
        self,
        model: Any,
        scores: NDArray[np.float64],
        budget: float | None,
        limit: Mapping[str, Any] | None,
        relative_dependence_: float,
        reached_: tuple[Reached, ...] = (),
    ) -> None:
        self.model = model
        self.scores = scores
        self.budget = budget
        self.limit = limit
        self.relative_dependence_ = relative_dependence_
        self.reached_ = reached_

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scorers of scikit-learn ask for it
        """Return the model as it is."""
        return self

    @property
    def classes_(self) -> NDArray[Any]:
        """Those of the plain model."""
        classes: NDArray[Any] = self.model.classes_
        return classes

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: ARG002
        """Return the likelier class, or the number, of the validation rows."""
        scores = self.scores
        return self.classes_[(scores > 0.5).astype(int)] if is_classifier(self.model) else scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the probability of each class of the validation rows."""
        return np.column_stack((1.0 - self.scores, self.scores))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy, or R^2."""
        measure = accuracy_score if is_classifier(self.model) else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = get_tags(self.model).estimator_type
        return tags


def repair_model(
    plain: Any, held: Rows, budgets: Any, limits: Any, seed: int
) -> list[tuple[RepairedModel, RepairedScores]]:
    """Return the plain model repaired to each budget or limit on validation rows, and the scores of these."""
    scores = predict_score(plain, held.x)
    whole = _measure(scores, held)
    settings = [(budget, None, {_SHARE.measure: budget * max(whole, 1e-12)}) for budget in budgets or ()]
    settings += [(None, limit, limit) for limit in limits or ()]
    found = []
    for budget, limit, least in settings:
        repair = ScoreRepair(limit=least, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what was reached is in the table
            moved = repair.fit_transform(scores, held.s, sample_weight=held.w)
        share = _measure(moved, held) / whole if whole > 0 else float("nan")
        reached = () if limit is None else repair.reached_
        scored = RepairedScores(plain, moved, budget, limit, share, reached)
        found.append((RepairedModel(plain, repair), scored))
    return found


def _measure(scores: NDArray[np.float64], held: Rows) -> float:
    """Return the largest normalised HSIC of the scores among the columns of S."""
    measure = make_measure(_SHARE, weighted=held.w is not None)
    return max(float(measure(to_matrix(scores), part, held.w)) for part in held.parts.values())
