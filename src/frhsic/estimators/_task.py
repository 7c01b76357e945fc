"""The task of a fit: checked rows, the problem they pose, the penalty, and the options of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from frhsic.dependence import HSIC, RecoveredVariance
from frhsic.engine.limits import Key, Limits, Score, find_labels
from frhsic.engine.nets import Loss, Net
from frhsic.engine.options import Options
from frhsic.engine.record import Trained
from frhsic.engine.rows import Rows
from frhsic.engine.train import train, train_path
from frhsic.estimators._scaling import Scaling, Scalings, fit_sensitive
from frhsic.estimators.inputs import Constraint
from frhsic.kernels import Gaussian
from frhsic.numerics._centering import Estimator
from frhsic.penalty import Penalty, PenaltySum, budget_penalty, default_penalty, limit_penalty

# Of the penalty on a representation without a target: a regression needs four rows for each feature, and
# with few features it misses most of what trees and networks find.
_MOST_FEATURES, _FEWEST_FEATURES = 192, 64


@dataclass(frozen=True, eq=False)
class Problem:
    """What differs between the estimators: target (None: X itself), loss, outputs, and classes."""

    y: Tensor | None
    loss: Loss
    outputs: int
    head: tuple[int, ...] = ()
    labels: Tensor | None = None
    classes: NDArray[Any] | None = None
    class_weights: Tensor | None = None

    def fit_scalings(self, rows: Rows, options: Options) -> Scalings:
        """Learn the scales on the training rows."""
        rule = options.training.scaling
        x = Scaling.fit(rows.x, rule, rows.weights)
        regression = self.y is not None and self.labels is None
        y = Scaling.fit(rows.y.unsqueeze(-1), rule, rows.weights) if regression else None
        s = None if rows.s is None else fit_sensitive(rows.s, rule, rows.weights)
        return Scalings(x, x if self.y is None else y, s)


@dataclass(frozen=True, eq=False)
class Task:
    """The checked arguments of a fit; ``options`` have neither ``lams`` nor ``budgets`` yet."""

    problem: Problem
    columns: BaseEstimator
    rows: Rows
    validation: Rows | None
    options: Options
    generator: torch.Generator
    device: torch.device
    watched: Rows | None = None  # held out for limits

    def scale(self, rows: Rows, scalings: Scalings) -> Rows:
        """Return rows as the net sees them."""
        return scalings.apply(rows).to(self.device, torch.float32)

    def train(self, net: Net, scalings: Scalings, options: Options, *, path: bool) -> list[Trained]:
        """Train one net, or a path of nets."""
        rows = self.scale(self.rows, scalings)
        validation = None if self.validation is None else self.scale(self.validation, scalings)
        loss, generator = self.problem.loss, self.generator
        if path:
            return train_path(net, loss, rows, options, generator=generator, validation=validation)
        return [train(net, loss, rows, options, generator=generator, validation=validation)]

    def limit(self, most: Sequence[Mapping[Key, float]], scalings: Scalings) -> Options:
        """Return the options with limits for each net; a mapping may be empty."""
        assert self.rows.s is not None  # noqa: S101
        score: Score
        if self.problem.labels is None:
            assert scalings.y is not None  # noqa: S101
            score = scalings.y.invert
        elif self.problem.outputs == 1:
            score = torch.sigmoid
        else:
            score = partial(torch.softmax, dim=-1)
        watched = None if self.watched is None else self.scale(self.watched, scalings)
        assert self.options.penalty is not None  # noqa: S101
        labels = find_labels(self.options.penalty, self.rows.labels)
        limits = Limits(most, score, self.rows.s.names, labels, watched)
        return replace(self.options, limits=limits)

    def constant_loss(self, scalings: Scalings) -> float:
        """Return the least mean loss of a constant prediction on the training rows."""
        rows = self.scale(self.rows, scalings)
        w = rows.loss_weighting
        w = torch.ones(len(rows), dtype=torch.float64) if w is None else w.double().cpu()
        y, share = rows.y.double().cpu(), w / w.sum()
        if self.problem.labels is None:
            return float(w.mean() * (share @ (y - share @ y).square()))
        mass = torch.zeros(int(y.max()) + 1, dtype=torch.float64).index_add(0, y.long(), share)
        return float(-w.mean() * torch.xlogy(mass, mass).sum())


def choose_default(
    problem: Problem, rows: Rows, constraint: Constraint, encoder: Sequence[int] | nn.Module, n: int
) -> Penalty | PenaltySum:
    """Return the penalty where the user chose none, for batches of n rows."""
    # No weighted unbiased estimator is derived.
    estimator: Estimator = "unbiased" if rows.weights is None else "biased"
    columns = None if rows.s is None or len(rows.s.names) == 1 else rows.s.names
    budget = constraint.lam is None
    if problem.y is None:
        # The decoder undoes any linear map of Z, so that only what is blind to such maps sees through it.
        width = None if isinstance(encoder, nn.Module) else tuple(encoder)[-1]
        features = 0 if width is None else min(_MOST_FEATURES, n // 4 - width)
        if features >= _FEWEST_FEATURES:
            recovered = RecoveredVariance(features, seed=None, exact_gradient=False)
            return Penalty(recovered, columns=columns)
        kernel = Gaussian("scale-free", whiten=width is not None and n >= 2 * (width + 2))
        return Penalty(HSIC(kernel, estimator=estimator, normalized=budget), columns=columns)
    if constraint.limit is not None and rows.s is not None:
        return limit_penalty(rows.s, weighted=rows.weights is not None, classes=problem.classes is not None)
    if budget:
        return budget_penalty(estimator, columns, classes=problem.classes is not None)
    return default_penalty(estimator, columns)
