"""Other methods: the published ones with their published settings, and two simple ones to try first.

The methods differ in the penalty alone and share network, optimiser and batches with FRHSIC, so that a
comparison is one of penalties. The settings are those of the published experiment scripts; where the paper's
text says something else, ``docs/evidence/baselines.md`` has both.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted, validate_data

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, check_aligned, to_matrix, to_sensitive, to_weights
from frhsic.dependence import EIPM, GDP, HSIC, Adversary, BinnedMMD, DistanceCovariance
from frhsic.engine import Training
from frhsic.estimators import FRHSICClassifier, FRHSICRegressor
from frhsic.kernels import Gaussian
from frhsic.penalty import Penalty

__all__ = [
    "ADV",
    "DCOR",
    "FREM",
    "FRHSIC",
    "LAFTR",
    "MMD",
    "REG_GDP",
    "REG_GDP_PROBABILITIES",
    "UNFAIR",
    "Residualizer",
    "adversarial_fairness",
    "correlation_remover",
]


@dataclass(frozen=True)
class Method:
    """A published method: a penalty, trained as published.

    The estimators it makes are ordinary ones, with ``lam`` to set, or to vary with
    :func:`frhsic.estimators.fit_path`.

    Parameters
    ----------
    name : str
        As in the paper's tables.
    penalty : Penalty or None
        None for training without one.

    Examples
    --------
    >>> FREM.classifier(lam=50.0).training == FRHSIC.regressor(lam=1.0).training
    True
    >>> UNFAIR.classifier().lam
    0.0
    """

    name: str
    penalty: Penalty | None

    def classifier(
        self, *, lam: float | None = None, epochs: int = 200, random_state: Any = None
    ) -> FRHSICClassifier:
        """Return an unfitted classifier.

        Parameters
        ----------
        lam : float, optional
            The penalty weight; None is 1, or 0 without a penalty.
        epochs : int, default=200
        random_state : int or generator, optional
        """
        return FRHSICClassifier(**self._parameters(lam), epochs=epochs, random_state=random_state)

    def regressor(
        self, *, lam: float | None = None, epochs: int = 200, random_state: Any = None
    ) -> FRHSICRegressor:
        """Return an unfitted regressor; the parameters are those of :meth:`classifier`."""
        if self.penalty is not None and self.penalty.on == "probability":
            fix = "Take Reg-GDP."
            raise ArgumentError(self.name, "have probabilities to look at", "a regression", fix)
        return FRHSICRegressor(**self._parameters(lam), epochs=epochs, random_state=random_state)

    def _parameters(self, lam: float | None) -> dict[str, Any]:
        """Return the penalty and how the published scripts train with it.

        Short last batches; sigma_Z is held from each epoch divisible by 20.
        """
        if self.penalty is None and lam:
            must = f"be 0 or None for {self.name}, which has no penalty"
            raise ArgumentError("lam", must, repr(lam), "Take another method.")
        return {
            "lam": (0.0 if self.penalty is None else 1.0) if lam is None else lam,
            "penalty": copy.deepcopy(self.penalty),
            "training": Training(every=20, last_batch="keep", scaling="minmax"),
        }

    def __repr__(self) -> str:
        return f"<frhsic.baselines.Method {self.name}>"


# The eight methods, and Reg-GDP as its definition has it.

UNFAIR = Method("Unfair", None)
FRHSIC = Method("FRHSIC", Penalty(HSIC()))
# All rows of the batch as anchors: the mean that the scripts estimate from 32 random ones.
FREM = Method("FREM", Penalty(EIPM(Gaussian(1.0), 0.5)))
# S is in [0, 1]: a range of one, and a grid between the extremes of each batch.
REG_GDP = Method("Reg-GDP", Penalty(GDP(0.2, weighting="grid", n_grid=30, range_s=1.0), on="prediction"))
REG_GDP_PROBABILITIES = Method("Reg-GDP (probabilities)", Penalty(GDP(0.2), on="probability"))
ADV = Method("ADV", Penalty(Adversary((50,))))
MMD = Method("MMD (binned)", Penalty(BinnedMMD(10)))
LAFTR = Method("LAFTR (binned)", Penalty(Adversary((50,), n_bins=4)))
DCOR = Method("dCor", Penalty(DistanceCovariance()))


class Residualizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """X without what a linear regression on S explains of it, for new rows whose S nobody knows.

    S is predicted from X by least squares, and X is regressed on that prediction t(X),

        x -> x - Cov(X, t) Var(t)^-1 (t(x) - mean(t)),

    so that on the training rows every column is uncorrelated with every column of S, and no linear change of
    X that achieves this without knowing S is smaller in the mean square. Dependence that is no correlation
    (a U-shape, a variance) stays, and nonlinear models find it.

    Residualising on S itself, x - Cov(X, S) Var(S)^-1 (s - mean(S)), needs the S of every new row; that is
    fairlearn's CorrelationRemover, :func:`correlation_remover`.

    Attributes
    ----------
    prediction_ : LinearRegression
        Of S from X; a category of S is an indicator column for each category.
    explained_ : LinearRegression
        Of X from that prediction.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> s = rng.normal(size=100)
    >>> X = np.column_stack([s + rng.normal(size=100), rng.normal(size=100)])
    >>> left = Residualizer().fit(X, sensitive_features=s).transform(X)
    >>> bool(abs(np.corrcoef(left[:, 0], s)[0, 1]) < 1e-12)
    True
    """

    __metadata_request__fit = {"sensitive_features": True, "sample_weight": True}  # noqa: RUF012

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn both regressions.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        y : ignored
        sensitive_features : array or frame of shape (n,) or (n, q)
        sample_weight : array of shape (n,), optional
        """
        if sensitive_features is None:
            fix = "Pass them. Inside a Pipeline or a search, first call "
            fix += "sklearn.set_config(enable_metadata_routing=True)."
            raise ArgumentError("sensitive_features", "be passed to fit", None, fix)
        check_aligned(X=X, sensitive_features=sensitive_features, sample_weight=sample_weight)
        x = to_matrix(X).numpy()
        validate_data(self, X, skip_check_array=True, reset=True)
        columns = _indicators(to_sensitive(sensitive_features, n_rows=len(x)))
        weights = to_weights(sample_weight, n_rows=len(x))
        w = None if weights is None else weights.numpy()
        self.prediction_ = LinearRegression().fit(x, columns, sample_weight=w)
        t = self.prediction_.predict(x)
        self.explained_ = LinearRegression().fit(t, x, sample_weight=w)
        self.mean_ = np.average(x, axis=0, weights=w)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return what is left of X, shape ``(n, p)``; needs no S.

        Parameters
        ----------
        X : array or frame of shape (n, p)
        """
        check_is_fitted(self)
        x = to_matrix(X).numpy()
        validate_data(self, X, skip_check_array=True, reset=False)
        left: NDArray[np.float64] = x - self.explained_.predict(self.prediction_.predict(x)) + self.mean_
        return left


def _indicators(s: Sensitive) -> NDArray[np.float64]:
    """Return the columns of S as numbers: an indicator for each category."""
    parts = []
    for j, kind in enumerate(s.kinds):
        column = s.values[:, j : j + 1]
        parts.append(column if kind == "continuous" else (column == column.unique()).double())
    return torch.cat(parts, dim=1).numpy()


def correlation_remover(columns: Sequence[str | int], *, alpha: float = 1.0) -> Any:
    """Return fairlearn's CorrelationRemover: X residualised on sensitive columns that it must contain.

    Parameters
    ----------
    columns : sequence of str or int
        The sensitive columns of X. They are dropped, and needed for new rows, too.
    alpha : float, default=1.0
        The part of the correction that is applied.

    Returns
    -------
    fairlearn.preprocessing.CorrelationRemover

    Examples
    --------
    >>> correlation_remover(["age"]).sensitive_feature_ids
    ['age']
    """
    return _import_fairlearn("preprocessing").CorrelationRemover(
        sensitive_feature_ids=list(columns), alpha=alpha
    )


def adversarial_fairness(
    task: Literal["classification", "regression"] = "classification",
    *,
    alpha: float = 1.0,
    epochs: int = 200,
) -> Any:
    """Return fairlearn's adversarial mitigation, with the paper's network, batches and adversary.

    Its adversary guesses S from the prediction, not from Z, and the gradient of the predictor is projected
    (Zhang, Lemoine and Mitchell, 2018). It scales nothing: pass X and S in [0, 1]. A column S of whole
    numbers, such as ages, is taken for classes, one for each value. In fairlearn 0.15 all networks start from
    seed 0, whatever its ``random_state``, and PyTorch's own generator is set to it.

    Parameters
    ----------
    task : {"classification", "regression"}, default="classification"
    alpha : float, default=1.0
        The weight of the adversary.
    epochs : int, default=200

    Returns
    -------
    fairlearn.adversarial.AdversarialFairnessClassifier or AdversarialFairnessRegressor

    Examples
    --------
    >>> adversarial_fairness("regression", alpha=0.5).batch_size
    256
    """
    if task not in ("classification", "regression"):
        must = "be 'classification' or 'regression'"
        raise ArgumentError("task", must, repr(task), "Leave it out for the former.")
    module = _import_fairlearn("adversarial")
    classifier, regressor = module.AdversarialFairnessClassifier, module.AdversarialFairnessRegressor
    return (classifier if task == "classification" else regressor)(
        backend="torch",
        predictor_model=[50, "selu", 50],
        adversary_model=[50, "selu"],
        learning_rate=1e-3,
        alpha=alpha,
        epochs=epochs,
        batch_size=256,
        shuffle=True,
    )


def _import_fairlearn(module: str) -> Any:
    try:
        return importlib.import_module(f"fairlearn.{module}")
    except ImportError as error:
        raise ImportError(
            "'fairlearn' must be installed for its methods. Got none. Run: pip install 'frhsic[bench]'."
        ) from error
