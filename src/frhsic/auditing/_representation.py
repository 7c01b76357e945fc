"""What only a representation is asked: can S be read from it, and what do fresh heads make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frhsic.auditing._results import Recovered, Representation, Transfer
from frhsic.data import Sensitive, to_generator
from frhsic.dependence import GDP
from frhsic.inference import confidence_interval

# Heads are trained and judged on no more rows than these.
MOST_ROWS = 5_000
_FOLDS = 3
_RIDGES = tuple(10.0**k for k in range(-3, 4))


def represented(
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
    """Return how well s is recovered from z, and fresh heads for y: learned without weights, judged with.

    Rows of one group are all learned from, or all judged on.
    """
    rows = torch.randperm(len(z), generator=to_generator(seed))[:MOST_ROWS]
    if groups is not None:  # whole groups side by side, in random order
        first = torch.randperm(int(groups.max()) + 1, generator=to_generator(seed))
        rows = rows[first[groups[rows]].argsort(stable=True)]
        groups = groups[rows]
    z, s = z[rows], s[rows]
    w = None if w is None else w[rows]
    recovered = tuple(_recovered(z, s.columns([name]), w, seed, groups) for name in s.names)
    if y is None:
        return Representation(recovered, ())
    y, half = y[rows], len(rows) // 2
    if groups is not None:
        half = int((groups == groups[half]).nonzero()[0])  # before the group in the middle
    if labels and len(y[:half].unique()) < 2:
        return Representation(recovered, ())
    judged = torch.arange(half, len(rows))
    weights = None if w is None else w[judged]
    dependent: dict[str, Any] = {} if groups is None else {"groups": groups[judged]}
    transfer = []
    for head, model in _heads(labels, seed):
        model.fit(z[:half].numpy(), y[:half].numpy())
        predicted = _predicted(model, z[judged].numpy(), labels)
        gaps = [
            confidence_interval(
                predicted,
                s[judged].columns([name]),
                dependence=measure,
                confidence_level=confidence_level,
                random_state=seed,
                sample_weight=weights,
                **dependent,
            )
            for name in s.names
        ]
        right = model.score(z[judged].numpy(), y[judged].numpy(), weights)
        transfer.append(Transfer(head, float(right), "accuracy" if labels else "R^2", tuple(gaps)))
    return Representation(recovered, tuple(transfer))


def _heads(labels: bool, seed: int) -> list[tuple[str, Any]]:
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scaled = StandardScaler()
    if labels:
        return [
            ("linear", make_pipeline(scaled, LogisticRegression(max_iter=1_000))),
            ("MLP", make_pipeline(scaled, MLPClassifier(early_stopping=True, random_state=seed))),
            ("forest", RandomForestClassifier(min_samples_leaf=5, random_state=seed)),
            ("boosted", HistGradientBoostingClassifier(random_state=seed)),
        ]
    return [
        ("linear", make_pipeline(scaled, RidgeCV(_RIDGES))),
        ("MLP", make_pipeline(scaled, MLPRegressor(early_stopping=True, random_state=seed))),
        ("forest", RandomForestRegressor(min_samples_leaf=5, random_state=seed)),
        ("boosted", HistGradientBoostingRegressor(random_state=seed)),
    ]


def _predicted(model: Any, z: NDArray[np.float64], labels: bool) -> NDArray[np.float64]:
    """Return probabilities (of the second of two labels, or of each), or predictions."""
    if not labels:
        return np.asarray(model.predict(z), dtype=float)
    probabilities = np.asarray(model.predict_proba(z), dtype=float)
    return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities


def _recovered(
    z: Tensor, s: Sensitive, w: Tensor | None, seed: int, groups: Tensor | None = None
) -> Recovered:
    """Return R^2 of s from z on folds not used to learn it."""
    linear, boosted = (_r2(kind, z.numpy(), s, w, seed, groups) for kind in ("linear", "boosted"))
    return Recovered(attribute=s.names[0], linear=linear, boosted=boosted, n=len(z))


def _r2(
    kind: str, z: NDArray[np.float64], s: Sensitive, w: Tensor | None, seed: int, groups: Tensor | None
) -> float:
    from sklearn import model_selection as selection

    labels = s.kinds == ("categorical",)
    target = s.values[:, 0].numpy()
    if labels:
        target = target.astype(int)
        rare = np.bincount(target)[target] < _FOLDS
        z, target = z[~rare], target[~rare]
        w = None if w is None else w[torch.from_numpy(~rare)]
        groups = None if groups is None else groups[torch.from_numpy(~rare)]
    model = dict(_heads(labels, seed))[kind]
    folds: Any
    if groups is None:
        plain = selection.StratifiedKFold if labels else selection.KFold
        folds = plain(_FOLDS, shuffle=True, random_state=seed)
    else:  # rows stand in random order of their groups already
        folds = (selection.StratifiedGroupKFold if labels else selection.GroupKFold)(_FOLDS)
    predicted = selection.cross_val_predict(
        model,
        z,
        target,
        cv=folds,
        groups=None if groups is None else groups.numpy(),
        method="predict_proba" if labels else "predict",
    )
    truth = (target[:, None] == np.unique(target)).astype(float) if labels else target[:, None]
    weights = np.ones(len(z)) if w is None else w.numpy()
    error = np.average(((truth - predicted.reshape(truth.shape)) ** 2).sum(axis=1), weights=weights)
    around = truth - np.average(truth, axis=0, weights=weights)
    return float(1.0 - error / np.average((around**2).sum(axis=1), weights=weights))
