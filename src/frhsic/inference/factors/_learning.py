"""What factors say about targets, learned on other rows: ridge regression on features of them, or trees.

Ridge predictions are linear in the targets, so that one eigendecomposition for each fold serves all targets
and all penalties. The penalty of each target is that of the least squared error on rows that took no part,
as is the learner.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic.inference.factors._columns import Factors, Floats, normal_scores

_FOLDS: Final = 5
_TRIED: Final = 2  # folds on which trees are tried, which take most of the time
_PENALTIES: Final = np.logspace(-4.0, 4.0, 17)
_WIDTHS: Final = {"smooth": 0.25, "rough": 1.0}  # of a Gaussian kernel: its exponent times the columns
_LANDMARKS: Final = 300
_PAIRED: Final = 10  # columns whose products are features
_BENT: Final = 20  # columns of which splines are
_KNOTS: Final = 7
_LEAST: Final = 0.01  # of the variance that factors must leave


class Predicted(NamedTuple):
    """Predictions of one learner for rows that took no part, and how uncertain they are."""

    values: Floats  # (n, k)
    noise: Floats  # (k,): the mean squared error that comes from the rows trained on; zero where unknown


class CrossFitted(NamedTuple):
    """Targets less what the factors say about them."""

    residuals: Floats  # (n, k), of the best learner of each target
    other: Floats  # (n, k), of the second best
    explained: Floats  # (k,): the share of the variance, on rows that took no part
    error: Floats  # (k,): mean squared error of the regression over the variance left, as far as can be told
    learners: tuple[str, ...]  # the best of each target


def cross_fit(
    targets: Floats,
    leads: tuple[int, ...],
    factors: Factors,
    w: Floats,
    groups: NDArray[np.int64] | None,
    regressor: Any,
    seed: int,
    *,
    maps: tuple[str, ...] | None = None,
) -> CrossFitted:
    """Return the residuals of targets by the learner that is best for each on other rows.

    Trees (or the given regressor) are tried on two folds of the targets ``leads``; where they win, all folds
    of these and of those up to the next lead are predicted. ``maps`` names the features of ridge regression.
    """
    folds = _folds(factors.x, groups, seed)
    features = _maps(factors, seed, maps)
    found = {name: _ridge(one, targets, w, folds) for name, one in features.items()}
    name = "boosted trees" if regressor is None else type(regressor).__name__
    fitted = Predicted(np.full_like(targets, np.nan), np.zeros(targets.shape[1]))
    for lead, end in zip(leads, (*leads[1:], targets.shape[1]), strict=False):  # no leads: no trees
        make = regressor if regressor is not None else _trees(seed)
        tried = np.concatenate(folds[:_TRIED])
        some = _predict(make, factors.x, targets[:, lead], w, folds[:_TRIED])[tried]
        ridge = min(_errors(one.values[tried], targets[tried], w[tried])[lead] for one in found.values())
        if np.average((targets[tried, lead] - some) ** 2, weights=w[tried]) < ridge:
            for j in range(lead, end):
                fitted.values[:, j] = _predict(make, factors.x, targets[:, j], w, folds)
    found[name] = fitted
    return _choose(found, targets, w)


def _errors(values: Floats, targets: Floats, w: Floats) -> Floats:
    return np.asarray(np.average((targets - values) ** 2, axis=0, weights=w))


def _choose(found: dict[str, Predicted], targets: Floats, w: Floats) -> CrossFitted:
    names = list(found)
    errors = np.stack([_errors(one.values, targets, w) for one in found.values()])
    errors = np.where(np.isnan(errors), np.inf, errors)
    order = errors.argsort(axis=0)
    columns = np.arange(targets.shape[1])
    values = np.stack([one.values for one in found.values()])
    best, second = values[order[0], :, columns].T, values[order[1], :, columns].T
    second = np.where(np.isnan(second), best, second)  # of one factor with two values one learner is enough
    variance = np.average((targets - np.average(targets, axis=0, weights=w)) ** 2, axis=0, weights=w)
    left = errors[order[0], columns]
    noise = np.stack([one.noise for one in found.values()])[order[0], columns]
    apart = np.average((best - second) ** 2, axis=0, weights=w)
    # At the best penalty the squared bias is about as large as the noise.
    error = np.maximum(apart, 2.0 * noise) / np.maximum(left, 1e-300)
    return CrossFitted(
        targets - best,
        targets - second,
        1.0 - left / np.maximum(variance, 1e-300),
        error,
        tuple(names[k] for k in order[0]),
    )


def check_left(explained: float, argument: str, what: str) -> None:
    """Raise ArgumentError where the factors leave next to nothing: what is left is the error of learning."""
    if explained > 1.0 - _LEAST:
        must = f"vary beyond what the factors say about {what}"
        got = f"{100.0 * explained:.1f} % explained, so that what is left is mostly the error of learning"
        fix = "Leave out the factors that determine it."
        raise ArgumentError(argument, must, got, fix)


def _folds(x: Floats, groups: NDArray[np.int64] | None, seed: int) -> list[NDArray[np.int64]]:
    """Return the rows of each fold; those of one group are in one fold."""
    from sklearn.model_selection import GroupKFold, KFold

    if groups is None:
        return [held for _, held in KFold(_FOLDS, shuffle=True, random_state=seed).split(x)]
    splitter = GroupKFold(_FOLDS, shuffle=True, random_state=seed)
    return [held for _, held in splitter.split(x, groups=groups)]


def _maps(factors: Factors, seed: int, names: tuple[str, ...] | None) -> dict[str, Floats]:
    """Return features of the factors, which know nothing of the targets."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.preprocessing import StandardScaler

    x, numeric = factors.x, factors.numeric
    n, p = x.shape
    linear = StandardScaler().fit_transform(x)
    if p == 1 and len(np.unique(x)) == 2:
        return {"linear": linear}
    placed = linear.copy()
    if numeric.any():
        placed[:, numeric] = StandardScaler().fit_transform(normal_scores(x[:, numeric]))
    products = placed[:, :0]
    if p <= _PAIRED:
        i, j = np.triu_indices(p)
        raw = placed[:, i] * placed[:, j]
        varied = raw.std(axis=0) > 1e-9
        products = StandardScaler().fit_transform(raw[:, varied])
    curves = [_curves(column) for column in placed[:, numeric].T] if numeric.sum() <= _BENT else []
    base = np.hstack((linear, placed, products))
    landmarks = min(_LANDMARKS, max(50, n // 5), n)
    found = {"linear": linear, "additive": np.hstack((base, *curves))}
    for name, width in _WIDTHS.items():
        if names is not None and name not in names:
            continue
        kernel = Nystroem(gamma=width / p, n_components=landmarks, random_state=seed)
        found[name] = np.hstack((base, kernel.fit_transform(placed)))
    return found


def _curves(column: Floats) -> Floats:
    """Return splines of one column, of variance one."""
    from sklearn.preprocessing import SplineTransformer, StandardScaler

    knots = "quantile" if len(np.unique(column)) > 3 * _KNOTS else "uniform"
    made = SplineTransformer(_KNOTS, knots=knots, include_bias=False).fit_transform(column[:, None])
    return np.asarray(StandardScaler().fit_transform(made[:, made.std(axis=0) > 1e-6]))


def _ridge(features: Floats, targets: Floats, w: Floats, folds: list[NDArray[np.int64]]) -> Predicted:
    """Return predictions of each target with its best penalty."""
    share = w / w.sum() * len(w)
    features = features - np.average(features, axis=0, weights=w)
    centre = np.average(targets, axis=0, weights=w)
    y = targets - centre
    weighted = share[:, None] * features
    gram, cross = weighted.T @ features, weighted.T @ y
    found = np.empty((len(_PENALTIES), *targets.shape))
    noise = np.zeros(len(_PENALTIES))
    for held in folds:
        part = features[held]
        values, vectors = np.linalg.eigh(gram - weighted[held].T @ part)
        values = np.maximum(values, 0.0)
        at = part @ vectors
        own = vectors.T @ (cross - weighted[held].T @ y[held])
        shrunk = 1.0 / (values + _PENALTIES[:, None] + 1e-9 * values[-1])  # (penalties, features)
        for k, one in enumerate(shrunk):
            found[k, held] = centre + at @ (one[:, None] * own)
        # A prediction is a sum of targets; with unit variance of each its own is the sum of squares.
        squares = np.average(at**2, axis=0, weights=w[held]) * w[held].sum() / w.sum()
        noise += (shrunk**2 * values) @ squares
    errors = np.stack([_errors(one, targets, w) for one in found])
    best = errors.argmin(axis=0)
    columns = np.arange(targets.shape[1])
    return Predicted(found[best, :, columns].T, noise[best] * errors[best, columns])


def _trees(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        max_iter=100, learning_rate=0.1, max_leaf_nodes=8, min_samples_leaf=20, random_state=seed
    )


def _predict(
    regressor: Any, x: Floats, y: Floats, w: Floats, folds: list[NDArray[np.int64]]
) -> NDArray[np.float64]:
    from sklearn.base import clone

    found = np.full_like(y, np.nan)
    weighted = not np.all(w == w[0])
    for held in folds:
        kept = np.setdiff1d(np.arange(len(x)), held, assume_unique=True)
        options = {"sample_weight": w[kept]} if weighted else {}
        found[held] = np.ravel(clone(regressor).fit(x[kept], y[kept], **options).predict(x[held]))
    return found
