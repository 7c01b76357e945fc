"""The task of a fit: checked rows, the problem they pose, the penalty, and the options of training."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.data import split_labels, to_weights
from frhsic.dependence import HSIC
from frhsic.engine.limits import Key, Limits, Score
from frhsic.engine.nets import Loss, Net
from frhsic.engine.options import Options, Training
from frhsic.engine.record import Trained
from frhsic.engine.rows import Rows
from frhsic.engine.train import train, train_path
from frhsic.estimators._inputs import Constraint, Inputs, read_sensitive
from frhsic.estimators._scaling import Scaling, Scalings, fit_sensitive
from frhsic.kernels import Gaussian
from frhsic.numerics._centering import Estimator
from frhsic.penalty import Penalty, PenaltySum, budget_penalty, default_penalty, limit_penalty

_HELD_OUT, _ENOUGH = 0.2, 2_000  # the share of the rows held out for limits, from so many on


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
        limits = Limits(most, score, self.rows.s.names, self._given(), watched)
        return replace(self.options, limits=limits)

    def constant_loss(self, scalings: Scalings) -> float:
        """Return the least mean loss of a constant prediction on the training rows."""
        rows = self.scale(self.rows, scalings)
        w = rows.weights if rows.loss_weights is None else rows.loss_weights
        w = torch.ones(len(rows), dtype=torch.float64) if w is None else w.double().cpu()
        y, share = rows.y.double().cpu(), w / w.sum()
        if self.problem.labels is None:
            return float(w.mean() * (share @ (y - share @ y).square()))
        mass = torch.zeros(int(y.max()) + 1, dtype=torch.float64).index_add(0, y.long(), share)
        return float(-w.mean() * torch.xlogy(mass, mass).sum())

    def _given(self) -> list[float] | None:
        """Return the codes of y within which the penalty is taken; None for all rows together."""
        assert self.options.penalty is not None  # noqa: S101
        given = [term.given for _, term in self.options.penalty.pairs]
        if self.rows.labels is None or None in given:
            return None
        known = self.rows.labels.unique().tolist()
        named = {code for one in given for code in (one["y"] if isinstance(one, Mapping) else known)}
        return sorted(map(float, named))


def make_rows(
    x: Tensor, problem: Problem, inputs: Inputs, constraint: Constraint, *, later: bool = False
) -> Rows:
    """Return the rows of positive weight; S may be constant in a later part of them."""
    s = read_sensitive(inputs.sensitive_features, len(x), constraint, later=later)
    weights = to_weights(inputs.sample_weight, n_rows=len(x))
    y = x if problem.y is None else problem.y
    rows = Rows(x, y, s, weights, problem.class_weights, problem.labels)
    if weights is not None and bool((weights == 0).any()):
        rows = rows[(weights > 0).nonzero().squeeze(-1)]
        varies = rows.s is None or bool((rows.s.values != rows.s.values[0]).any(dim=0).all())
        if constraint.penalised and not varies and not later:
            must = "vary among the rows of positive weight"
            fix = "Give weight to rows in which it differs."
            raise ArgumentError("sensitive_features", must, "a single value", fix)
    if rows.weights is not None and bool((rows.weights == rows.weights[0]).all()):
        rows = replace(rows, weights=None)  # equal weights are none, which every estimator takes
    if rows.weights is None:
        return rows
    by_class = 1.0 if rows.loss_weights is None else rows.loss_weights
    return replace(rows, loss_weights=rows.weights * by_class)


def hold_out(rows: Rows, fraction: float, least: int, generator: torch.Generator) -> tuple[Rows, Rows]:
    """Return training rows and held-out rows, at random, with the same share of each class."""
    n = len(rows)
    held = round(fraction * n)
    if held < least or n - held < least:
        must = f"have enough rows to hold out {least} for early stopping and to train on as many"
        fix = "Use early_stopping=False, more rows, or another Training(validation_fraction=...)."
        raise ArgumentError("X", must, f"{n}, of which {held} would be held out", fix)
    order = torch.randperm(n, generator=generator)
    if rows.labels is not None:
        # By the place of a row among those of its class.
        place = torch.zeros(n, dtype=torch.float64)
        for label in split_labels(rows.labels[order]).kept:
            size = len(label.rows)
            place[label.rows] = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        order = order[place.argsort(stable=True)]
    parts = rows[order[held:]], rows[order[:held]]
    if any(part.loss_weights is not None and not part.loss_weights.sum() > 0 for part in parts):
        must = "give weight to some of the rows held out for early stopping and to some of the others"
        fix = "Use early_stopping=False or more rows."
        raise ArgumentError("class_weight", must, "none in one part", fix)
    return parts


def choose_share(training: Training, n: int) -> float:
    """Return the share of n rows that is held out for limits."""
    if training.limit_fraction == "auto":
        return _HELD_OUT if n >= _ENOUGH else 0.0
    return float(training.limit_fraction)


def choose_penalty(
    penalty: Penalty | PenaltySum, problem: Problem, constraint: Constraint
) -> Penalty | PenaltySum:
    """Return a copy of the user's penalty, with codes in the place of classes."""
    penalty = copy.deepcopy(penalty)
    no_probabilities = problem.classes is None or problem.y is None
    on_probability = any(term.on == "probability" for _, term in penalty.pairs)
    if constraint.penalised and no_probabilities and on_probability:
        must = "not be on probabilities where none are predicted"
        raise ArgumentError("penalty", must, "on='probability'", "Use on='prediction', or a classifier.")
    if problem.classes is not None:
        return penalty.relabel({label: float(code) for code, label in enumerate(problem.classes.tolist())})
    if penalty.needs_y and constraint.penalised:
        must = "not be given labels of y where y is not a class"
        raise ArgumentError("penalty", must, "one that is", "Leave 'given' out.")
    return penalty


def choose_default(
    problem: Problem, rows: Rows, constraint: Constraint, encoder: Sequence[int] | nn.Module, n: int
) -> Penalty | PenaltySum:
    """Return the penalty where the user chose none, for batches of n rows."""
    # No weighted unbiased estimator is derived.
    estimator: Estimator = "unbiased" if rows.weights is None else "biased"
    columns = None if rows.s is None or len(rows.s.names) == 1 else rows.s.names
    budget = constraint.lam is None
    if problem.y is None:
        # The decoder undoes any linear map of Z, so that only a kernel blind to such maps sees through it.
        whiten = not isinstance(encoder, nn.Module) and n >= 2 * (tuple(encoder)[-1] + 2)
        kernel = Gaussian("scale-free", whiten=whiten)
        return Penalty(HSIC(kernel, estimator=estimator, normalized=budget), columns=columns)
    if constraint.limit is not None and rows.s is not None:
        return limit_penalty(rows.s, weighted=rows.weights is not None, classes=problem.classes is not None)
    if budget:
        return budget_penalty(estimator, columns, classes=problem.classes is not None)
    return default_penalty(estimator, columns)
