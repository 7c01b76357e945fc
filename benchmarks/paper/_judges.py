"""Judges of a representation that no method has seen: what they recover of S, and what Z is of use for."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor

from benchmarks._protocol import Array

MOST_ROWS = 5_000  # that judges learn from; kernel ridge from fewer
KERNEL_ROWS = 1_200


def judges() -> dict[str, Any]:
    """Return regressions of different kinds, unfitted."""
    grid = {"alpha": [1e-2, 1e-1, 1.0], "gamma": [0.01, 0.03, 0.1]}
    return {
        "ridge": RidgeCV(np.logspace(-3, 3, 7)),
        "MLP": MLPRegressor(hidden_layer_sizes=(100,), early_stopping=True, max_iter=100, random_state=0),
        "forest": ExtraTreesRegressor(200, min_samples_leaf=5, random_state=0),
        "boosted": HistGradientBoostingRegressor(random_state=0),
        "neighbours": GridSearchCV(KNeighborsRegressor(), {"n_neighbors": [10, 30, 100]}, cv=3),
        "kernel ridge": GridSearchCV(KernelRidge(kernel="rbf"), grid, cv=3),
    }


def views(z: Array, z_test: Array) -> Iterator[tuple[str, Array, Array]]:
    """Yield Z with columns of unit variance, and whitened along its principal directions."""
    centre, sd = z.mean(axis=0), z.std(axis=0)
    yield "plain", *((x - centre) / np.where(sd > 1e-9, sd, np.inf) for x in (z, z_test))
    _, spread, directions = np.linalg.svd(z - centre, full_matrices=False)
    kept = spread > 1e-6 * max(spread[0], 1e-300)
    stretch = directions[kept].T * np.sqrt(len(z)) / spread[kept]
    yield "whitened", (z - centre) @ stretch, (z_test - centre) @ stretch


def recovered(
    z: Array, s: Array, z_test: Array, s_test: Array, only: tuple[str, ...] | None = None
) -> dict[str, float]:
    """Return R^2 of S on held-out rows, by judge and view."""
    rows = np.random.default_rng(0).permutation(len(z))[:MOST_ROWS]
    mean, sd = s[rows].mean(), s[rows].std()
    t, t_test = (s[rows] - mean) / sd, (s_test - mean) / sd
    found = {}
    for view, x, x_test in views(z[rows], z_test):
        for name, judge in judges().items():
            if only is None or name in only:
                few = slice(KERNEL_ROWS if name == "kernel ridge" else None)
                found[f"{name}, {view}"] = float(judge.fit(x[few], t[few]).score(x_test, t_test))
    return found


def quartiles(z: Array, s: Array, z_test: Array, s_test: Array) -> tuple[dict[str, float], float]:
    """Return what boosted trees predict of the quartiles of S on held-out rows.

    By view, the share of the variance of their indicators; and a lower bound of the mutual information of Z
    and the quartiles, in nats: their entropy less the log loss, the larger of both views.
    """
    rows = np.random.default_rng(0).permutation(len(z))[:MOST_ROWS]
    edges = np.unique(np.quantile(s[rows], [0.25, 0.5, 0.75]))
    seen = np.searchsorted(edges, s_test)
    shares = np.bincount(seen) / len(seen)
    entropy = -float(np.sum(shares[shares > 0] * np.log(shares[shares > 0])))
    found, nats = {}, [0.0]
    for view, x, x_test in views(z[rows], z_test):
        model = HistGradientBoostingClassifier(random_state=0).fit(x, np.searchsorted(edges, s[rows]))
        guess, each = model.predict_proba(x_test), seen[:, None] == model.classes_
        missed = ((each - guess) ** 2).sum()
        found[f"quartiles, {view}"] = float(1.0 - missed / ((each - each.mean(axis=0)) ** 2).sum())
        nats.append(entropy - log_loss(seen, guess, labels=model.classes_))
    return found, max(nats)


def heads(z: Array, y: NDArray[Any], z_test: Array, *, regression: bool) -> dict[str, Array]:
    """Return the scores of fresh heads for the task, trained on Z, for held-out rows."""
    rows = np.random.default_rng(0).permutation(len(z))[:MOST_ROWS]
    (_, x, x_test), _ = views(z[rows], z_test)
    trees = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    linear: Any = RidgeCV(np.logspace(-3, 3, 7)) if regression else LogisticRegression(max_iter=1_000)
    network = (MLPRegressor if regression else MLPClassifier)(early_stopping=True, random_state=0)
    found = {}
    for name, head in (("linear", linear), ("boosted", trees(random_state=0)), ("MLP", network)):
        head.fit(x, y[rows])
        found[name] = head.predict(x_test) if regression else head.predict_proba(x_test)[:, 1]
    return found


def use(z: Array, targets: Array, z_test: Array, targets_test: Array) -> float:
    """Return the mean R^2 of ranks of other columns, by boosted trees on Z."""
    rows = np.random.default_rng(0).permutation(len(z))[:MOST_ROWS]
    scores = []
    for j in range(targets.shape[1]):
        both = rankdata(np.concatenate((targets[:, j], targets_test[:, j]))) / (len(z) + len(z_test))
        model = HistGradientBoostingRegressor(random_state=0).fit(z[rows], both[: len(z)][rows])
        scores.append(model.score(z_test, both[len(z) :]))
    return float(np.mean(scores))
