"""A fitted model whose scores are repaired."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from frhsic._checks import ArgumentError
from frhsic.repair._repair import ScoreRepair


def _predicts_classes(model: RepairedModel) -> bool:
    return bool(is_classifier(model.model))


class RepairedModel(BaseEstimator):  # type: ignore[misc]
    """A fitted classifier of two classes, or a regressor, with a fitted repair of its scores.

    Predictions need S. :class:`frhsic.selection.FrontierSearch` makes these with ``repair=True``.

    Parameters
    ----------
    model : fitted estimator
    repair : ScoreRepair
        Fitted on the model's probabilities of the second class, or on its predictions.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 70, 2_000)
    >>> x = np.column_stack((age / 10.0, rng.normal(size=2_000)))
    >>> model = LogisticRegression().fit(x, rng.random(2_000) < 1.0 / (1.0 + np.exp(4.5 - x.sum(axis=1))))
    >>> repair = ScoreRepair(random_state=0).fit(model.predict_proba(x)[:, 1], age)
    >>> repaired = RepairedModel(model, repair).predict_proba(x, sensitive_features=age)[:, 1]
    >>> bool(abs(np.corrcoef(repaired, age)[0, 1]) < 0.05)
    True
    """

    __metadata_request__predict: ClassVar = {"sensitive_features": True}
    __metadata_request__predict_proba: ClassVar = {"sensitive_features": True}

    def __init__(self, model: Any, repair: ScoreRepair) -> None:
        self.model = model
        self.repair = repair

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - a Pipeline asks for it
        """Return the model as it is: it holds what is fitted.

        Parameters
        ----------
        X, y : object
            Not read.
        """
        return self

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the likelier class or the number, after repair.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        sensitive_features : array or frame of shape (n,) or (n, q)
        """
        moved = self._repaired(X, sensitive_features)
        return self.classes_[(moved > 0.5).astype(int)] if _predicts_classes(self) else moved

    @available_if(_predicts_classes)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Return the probability of each class after repair, ``(n, 2)``.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        sensitive_features : array or frame of shape (n,) or (n, q)
        """
        moved = self._repaired(X, sensitive_features)
        return np.column_stack((1.0 - moved, moved))

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of a classifier."""
        classes: NDArray[Any] = self.model.classes_
        return classes

    def _repaired(self, X: Any, sensitive_features: Any) -> NDArray[np.float64]:
        if sensitive_features is None:
            must, fix = "be passed: scores are repaired by it", "Call predict(X, sensitive_features=...)"
            if _predicts_classes(self):
                fix += " or predict_proba"
            raise ArgumentError("sensitive_features", must, None, f"{fix} of the model itself.")
        return self.repair.transform(predict_score(self.model, X), sensitive_features)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.model)
        tags.estimator_type = own.estimator_type
        tags.classifier_tags, tags.regressor_tags = own.classifier_tags, own.regressor_tags
        return tags


def predict_score(model: Any, X: Any) -> NDArray[np.float64]:
    """Return the probability of the second of two classes, or the predicted number."""
    if not is_classifier(model):
        return np.asarray(model.predict(X), dtype=np.float64)
    scores = model.predict_proba(X)
    if scores.shape[1] != 2:
        must, fix = "have two classes: each score is repaired by itself", "Leave repair out."
        raise ArgumentError("model", must, scores.shape[1], fix)
    return np.asarray(scores[:, 1], dtype=np.float64)
