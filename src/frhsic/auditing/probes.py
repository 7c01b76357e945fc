"""Probes of a representation: how well S is predicted from it, and fresh heads for the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from frhsic.auditing._parts import Recovery, Representation, Transfer
from frhsic.data import Sensitive, to_generator
from frhsic.dependence import GDP
from frhsic.inference import confidence_interval

# Rows from which S is learned, in an audit; heads are trained and judged on no more than MOST_ROWS.
RECOVERY_ROWS, MOST_ROWS = 50_000, 5_000
# Five folds up to so many rows, then three; labels with fewer rows than folds are left out.
_FOLDS, _MORE_FOLDS, _MANY_ROWS = 3, 5, 20_000
_RIDGES = tuple(10.0**k for k in range(-3, 4))


def probe_representation(
    z: Tensor,
    s: Sensitive,
    y: Tensor | None,
    w: Tensor | None,
    *,
    labels: bool,
    confidence_level: float,
    measure: GDP,
    seed: int,
    groups: Tensor | None = None,
) -> Representation:
    """Return how well s is predicted from z, and fresh heads for y: trained without weights, judged with.

    Rows of one group are all trained on, or all judged on.
    """
    rows = torch.randperm(len(z), generator=to_generator(seed))[:RECOVERY_ROWS]
    if groups is not None:  # whole groups side by side, in random order
        first = torch.randperm(int(groups.max()) + 1, generator=to_generator(seed))
        rows = rows[first[groups[rows]].argsort(stable=True)]
        groups = groups[rows]
    some = z[rows], s[rows], None if w is None else w[rows]
    recovered = tuple(
        _recover(some[0], some[1].columns([name]), some[2], seed, groups, confidence_level)
        for name in s.names
    )
    if y is None:
        return Representation(recovered, ())
    rows = rows[:MOST_ROWS]
    z, s, w = z[rows], s[rows], None if w is None else w[rows]
    groups = None if groups is None else groups[:MOST_ROWS].unique_consecutive(return_inverse=True)[1]
    y, half = y[rows], len(rows) // 2
    if groups is not None:
        half = int((groups == groups[half]).nonzero()[0])  # before the group in the middle
    if labels and len(y[:half].unique()) < 2:
        return Representation(recovered, ())
    judged = torch.arange(half, len(rows))
    weights = None if w is None else w[judged]
    transfer = []
    for head, model in _heads(labels, seed):
        model.fit(z[:half].numpy(), y[:half].numpy())
        predicted = _predict(model, z[judged].numpy(), labels)
        gaps = [
            confidence_interval(
                predicted,
                s[judged].columns([name]),
                dependence=measure,
                confidence_level=confidence_level,
                random_state=seed,
                sample_weight=weights,
                groups=None if groups is None else groups[judged],
            )
            for name in s.names
        ]
        right = model.score(z[judged].numpy(), y[judged].numpy(), weights)
        transfer.append(Transfer(head, float(right), "accuracy" if labels else "R^2", tuple(gaps)))
    return Representation(recovered, tuple(transfer))


def _heads(labels: bool, seed: int) -> list[tuple[str, Any]]:
    from sklearn import ensemble, linear_model
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scaled = StandardScaler()
    if labels:
        return [
            ("linear", make_pipeline(scaled, linear_model.LogisticRegression(max_iter=1_000))),
            (
                "MLP",
                make_pipeline(scaled, MLPClassifier(early_stopping=True, random_state=seed)),
            ),
            ("forest", ensemble.RandomForestClassifier(min_samples_leaf=5, random_state=seed)),
            ("boosted", ensemble.HistGradientBoostingClassifier(random_state=seed)),
        ]
    return [
        ("linear", make_pipeline(scaled, linear_model.RidgeCV(_RIDGES))),
        ("MLP", make_pipeline(scaled, MLPRegressor(early_stopping=True, random_state=seed))),
        ("forest", ensemble.RandomForestRegressor(min_samples_leaf=5, random_state=seed)),
        ("boosted", ensemble.HistGradientBoostingRegressor(random_state=seed)),
    ]


def _predict(model: Any, z: NDArray[np.float64], labels: bool) -> NDArray[np.float64]:
    """Return probabilities (of the second of two labels, or of each), or predictions."""
    if not labels:
        return np.asarray(model.predict(z), dtype=float)
    probabilities = np.asarray(model.predict_proba(z), dtype=float)
    return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities


def _probes(labels: bool, seed: int) -> dict[str, Any]:
    """Return the learners of s: a linear one, trees that stop when held-back rows gain nothing, a forest.

    In a representation that was trained to hide s, boosting that goes on and networks find less, and a forest
    of extremely random trees finds the most.
    """
    from sklearn import ensemble

    linear = dict(_heads(labels, seed))["linear"]
    boosting, forest = (
        (ensemble.HistGradientBoostingClassifier, ensemble.ExtraTreesClassifier)
        if labels
        else (ensemble.HistGradientBoostingRegressor, ensemble.ExtraTreesRegressor)
    )
    boosted = boosting(
        learning_rate=0.05,
        max_iter=600,
        early_stopping=True,
        validation_fraction=0.1,
        n_iter_no_change=40,
        random_state=seed,
    )
    return {
        "linear": linear,
        "boosted": boosted,
        "forest": forest(100, min_samples_leaf=5, random_state=seed),
    }


_TITLES = {
    "linear": ("ridge regression", "logistic regression"),
    "boosted": ("boosted trees", "boosted trees"),
    "forest": ("a forest of random trees", "a forest of random trees"),
}


def _recover(
    z: Tensor, s: Sensitive, w: Tensor | None, seed: int, groups: Tensor | None, confidence_level: float
) -> Recovery:
    """Return R^2 of s from z on folds not used to learn it, by each learner, with an interval of the best."""
    n, found = find_shares(z, s, w, seed, groups)
    name = max(found, key=lambda one: found[one][0])
    best, error = found[name]
    reach = float(ndtri(0.5 + 0.5 * confidence_level)) * error
    return Recovery(
        attribute=s.names[0],
        linear=found["linear"][0],
        boosted=found["boosted"][0],
        forest=found["forest"][0],
        n=n,
        learner=_TITLES[name][s.kinds == ("categorical",)],
        low=best - reach,
        high=min(1.0, best + reach),
        confidence_level=confidence_level,
    )


def find_shares(
    z: Tensor,
    s: Sensitive,
    w: Tensor | None,
    seed: int,
    groups: Tensor | None = None,
    learners: Sequence[str] = tuple(_TITLES),
) -> tuple[int, dict[str, tuple[float, float]]]:
    """Return the number of rows used, and for each learner R^2 of s from z with its standard error."""
    labels = s.kinds == ("categorical",)
    target = s.values[:, 0].numpy()
    kept = np.ones(len(z), dtype=bool)
    if labels:
        target = target.astype(int)
        kept = np.bincount(target)[target] >= _MORE_FOLDS
    units = None if groups is None else groups.numpy()[kept]
    weights = np.ones(len(z)) if w is None else w.numpy()
    x, target, weights = z.numpy()[kept], target[kept], weights[kept] / weights[kept].sum()
    models, found = _probes(labels, seed), {}
    for name in learners:
        predicted = _predict_folds(models[name], x, target, labels, seed, units)
        found[name] = explained_variance(target, predicted, weights, units, labels=labels)
    return len(x), found


def _predict_folds(
    model: Any,
    x: NDArray[np.float64],
    target: NDArray[Any],
    labels: bool,
    seed: int,
    groups: NDArray[Any] | None,
) -> NDArray[np.float64]:
    """Return the prediction of each row by a model that did not see it, nor its group."""
    from sklearn import model_selection as split

    count = _FOLDS if len(x) > _MANY_ROWS else _MORE_FOLDS
    folds: Any
    if groups is None:
        folds = (split.StratifiedKFold if labels else split.KFold)(count, shuffle=True, random_state=seed)
    else:  # the groups are in random order already
        folds = (split.StratifiedGroupKFold if labels else split.GroupKFold)(count)
    method = "predict_proba" if labels else "predict"
    predicted = split.cross_val_predict(model, x, target, cv=folds, groups=groups, method=method)
    return np.asarray(predicted, dtype=np.float64)


def explained_variance(
    target: NDArray[Any],
    predicted: NDArray[np.float64],
    weights: NDArray[np.float64],
    groups: NDArray[Any] | None,
    *,
    labels: bool = False,
) -> tuple[float, float]:
    """Return R^2 = 1 - A / B of predictions, and its standard error over rows, or groups of rows.

    A is the mean squared error and B the variance, so that to first order R^2 moves with a row by
    (A (v - B) / B - (e - A)) / B, e its squared error and v its squared distance from the mean. Predictions
    are taken as given: what another sample to learn from would change is not in it.
    """
    truth = (target[:, None] == np.unique(target)).astype(float) if labels else target[:, None]
    e = ((truth - predicted.reshape(truth.shape)) ** 2).sum(axis=1)
    v = ((truth - np.average(truth, axis=0, weights=weights)) ** 2).sum(axis=1)
    A, B = np.average(e, weights=weights), np.average(v, weights=weights)
    moves = weights * (A * (v - B) / B - (e - A)) / B
    if groups is not None:
        moves = np.bincount(np.unique(groups, return_inverse=True)[1], weights=moves)
    n = len(moves)
    return float(1.0 - A / B), float(np.sqrt(n / (n - 1) * (moves**2).sum()))
