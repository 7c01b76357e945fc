"""The task of a fit: checked rows, the problem they pose, the penalty, and the options of training."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.data import split_labels, to_weights
from frhsic.dependence import HSIC
from frhsic.engine.nets import Loss, Net
from frhsic.engine.options import Options
from frhsic.engine.record import Trained
from frhsic.engine.rows import Rows
from frhsic.engine.train import train, train_path
from frhsic.estimators._inputs import Constraint, Inputs, read_sensitive
from frhsic.estimators._scaling import Scaling, Scalings, fit_sensitive
from frhsic.kernels import Gaussian
from frhsic.numerics._centering import Estimator
from frhsic.penalty import Penalty, PenaltySum, budget_penalty, default_penalty


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
    if budget:
        return budget_penalty(estimator, columns, classes=problem.classes is not None)
    return default_penalty(estimator, columns)
