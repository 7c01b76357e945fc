"""Reading of the arguments of ``fit``: X, S, classes, weights, the penalty; rows that are held out."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from frhsic._checks import ArgumentError, is_number
from frhsic.data import Label, Sensitive, check_length, split_labels, to_matrix, to_sensitive, to_weights
from frhsic.engine.budget import BUDGET
from frhsic.engine.limits import Key, read_limit, write_limit
from frhsic.engine.options import Training, check_path
from frhsic.engine.rows import MIN_BATCH, Rows
from frhsic.penalty import Penalty, PenaltySum

_MOST_CATEGORIES: Final = 100
HELD_OUT, ENOUGH = 0.2, 2_000  # the share of the rows held out for limits, from so many on


@dataclass(frozen=True, eq=False)
class Inputs:
    """The arguments of ``fit``; for ``partial_fit`` also the classes of all parts."""

    X: Any
    y: Any
    sensitive_features: Any
    sample_weight: Any
    classes: NDArray[Any] | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The arguments that must have the same rows, by name."""
        return {name: getattr(self, name) for name in ("X", "y", "sensitive_features", "sample_weight")}


def check_constraint(
    lam: Any, budget: Any, limit: Any, *, scored: bool = True, probability: bool = False
) -> None:
    """Raise ArgumentError unless at most one of them is given, as it may be; without a score no limit is."""
    if budget is not None and lam is not None:
        got = f"budget={budget!r} and lam={lam!r}"
        raise ArgumentError("budget", "be None where 'lam' is given", got, "Leave one of them out.")
    if limit is not None:
        if budget is not None or lam is not None:
            got = f"limit={limit!r}, budget={budget!r} and lam={lam!r}"
            must = "be None where 'lam' or 'budget' is given"
            raise ArgumentError("limit", must, got, "Leave all but one of them out.")
        if not scored:
            must = "be None for a model without a score"
            raise ArgumentError("limit", must, repr(limit), "Pass a budget.")
        read_limit(limit, probability=probability)
    if lam is not None and (not is_number(lam) or not 0 <= lam < math.inf):
        fix = "Pass 0 to train without a penalty."
        raise ArgumentError("lam", "be a non-negative number", repr(lam), fix)
    if budget is not None and (not is_number(budget) or not 0 < budget <= 1):
        must = "lie above 0 and be at most 1: a share of the dependence of the unconstrained model"
        raise ArgumentError("budget", must, repr(budget), "Try 0.1, or lam=0 to train without a penalty.")


def list_settings(
    lams: Sequence[float] | None, budgets: Sequence[float] | None, limits: Sequence[Any] | None
) -> list[dict[str, Any]]:
    """Return the parameters of each model of a path: beside budgets and limits, first one without."""
    check_path(lams=lams, budgets=budgets, limits=limits)
    given: list[dict[str, Any]] = [{"lam": lam} for lam in lams or ()]
    if lams is None:
        given = [{"lam": 0.0}, *({"budget": budget} for budget in budgets or ())]
        given += [{"limit": limit} for limit in limits or ()]
    return [{"lam": None, "budget": None, "limit": None} | one for one in given]


@dataclass(frozen=True)
class Constraint:
    """What ``lam``, ``budget`` or ``limit`` asks for, and how it is written in messages."""

    lam: float | None
    budget: float | None
    limit: Mapping[Key, float] | None = None

    @classmethod
    def of(cls, lam: float | None, budget: float | None, limit: Any) -> Constraint:
        """Return what three parameters of an estimator ask for."""
        return cls(lam, budget, None if limit is None else read_limit(limit))

    @property
    def penalised(self) -> bool:
        """Whether there is a penalty at all."""
        return self.lam is None or self.lam > 0

    @property
    def share(self) -> float:
        """The budget, where ``lam`` is not given."""
        return BUDGET if self.budget is None else float(self.budget)

    def __str__(self) -> str:
        if self.limit is not None:
            return f"the limit {write_limit(self.limit)}"
        return f"budget = {self.share:g}" if self.lam is None else f"lam = {self.lam:g}"


def read_x(X: Any) -> Tensor:
    """Convert X to a matrix; scikit-learn does not accept a Series or a dict here."""
    if isinstance(X, Mapping) and not issparse(X):
        raise TypeError("'X' must be an array or a frame. Got a dict. Pass a frame of these columns.")
    shape: tuple[int, ...] | None = None
    if nw.dependencies.is_into_series(X):
        shape = (len(X),)
    elif isinstance(X, (np.ndarray, Tensor, list, tuple)):
        with contextlib.suppress(ValueError):  # rows of different lengths: to_matrix raises
            shape = tuple(np.shape(X))
    if shape is not None and len(shape) == 1:
        fix = "Reshape your data: X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row."
        raise ArgumentError("X", "be two-dimensional, a row for each case", "one dimension", fix)
    if shape is not None and shape[1:] == (0,):
        got = f"0 feature(s) (shape={shape}) while a minimum of 1 is required"
        raise ArgumentError("X", "have at least one column", got, "Pass a column.")
    if isinstance(X, np.ndarray) and np.iscomplexobj(X):
        raise ArgumentError("X", "be real", "complex numbers", "Complex data not supported.")
    return to_matrix(X)


def read_sensitive(values: Any, n: int, constraint: Constraint, *, later: bool) -> Sensitive | None:
    """Convert S of n rows; in a later part of the rows it may be constant."""
    penalised = constraint.penalised
    if penalised and n < MIN_BATCH:
        got = f"{n} sample{'s' if n > 1 else ''}"
        raise ArgumentError("X", f"have at least {MIN_BATCH} rows for {constraint}", got, "Pass more rows.")
    if isinstance(values, Sensitive):
        check_length("sensitive_features", len(values), n, "X")
        return values
    if values is not None:
        s = to_sensitive(values, n_rows=n, min_rows=1, allow_constant=later or not penalised)
        if penalised:
            _check_categories(s)
        return s
    if not penalised:
        return None
    routing = "first call sklearn.set_config(enable_metadata_routing=True)"
    fix = f"Pass them, or set lam=0. Inside a Pipeline or a search, {routing}."
    raise ArgumentError("sensitive_features", f"be passed to fit for {constraint}", None, fix)


def _check_categories(s: Sensitive) -> None:
    """Raise ArgumentError if there are so many that a kernel of equality sees next to nothing."""
    for name, labels in zip(s.names, s.categories or (None,) * len(s.names), strict=True):
        if labels is not None and len(labels) > _MOST_CATEGORIES:
            must = f"have at most {_MOST_CATEGORIES} categories in a column"
            fix = "Convert text to numbers if it is one, or group the labels."
            raise ArgumentError("sensitive_features", must, f"{len(labels)} in '{name}'", fix)


def recode(s: Sensitive | None, first: Sensitive, labels: dict[str, list[Label]]) -> Sensitive:
    """Return S of a part with a code for each label that is the same in all parts."""
    if s is None or s.names != first.names or s.kinds != first.kinds:
        wanted, got = (
            "none" if one is None else ", ".join(map("{} ({})".format, one.names, one.kinds))
            for one in (first, s)
        )
        fix = "Pass the same columns; to_sensitive(s, kinds=...) says what they are."
        must = f"have the columns of the first call, {wanted}"
        raise ArgumentError("sensitive_features", must, got, fix)
    values = s.values.clone()
    for j, (name, own) in enumerate(zip(s.names, s.categories or (None,) * len(s.names), strict=True)):
        if own is not None:
            known = labels.setdefault(name, [])
            known += [label for label in own if label not in known]
            codes = torch.tensor([known.index(label) for label in own], dtype=values.dtype)
            values[:, j] = codes[values[:, j].long()]
    categories = tuple(tuple(labels[name]) if name in labels else None for name in s.names)
    return Sensitive(values, s.names, s.kinds, categories)


def read_target(estimator: object, y: Any) -> NDArray[Any]:
    """Return y as one column."""
    if y is None:
        needs = f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        raise ValueError(f"'y' must be passed: {needs}. Pass one value for each row.")
    return column_or_1d(y, warn=True)


def warn_constant(y: Tensor) -> None:
    """Warn if the target of a regression is the same in all rows: mostly it is a single class."""
    if len(y) and bool((y == y[0]).all()):
        learned = "a regression learns to predict it for everyone"
        fix = "Pass rows of another value, or of another class."
        warnings.warn(f"'y' has one value, {y[0]:g}, in all {len(y):,} rows: {learned}. {fix}", stacklevel=4)


def settle_classes(classes: Any, before: NDArray[Any] | None) -> NDArray[Any]:
    """Return the classes of a model that learns from parts, any of which may lack some."""
    if classes is None and before is None:
        must = "be passed on the first call to partial_fit, whose rows need not have them all"
        raise ArgumentError("classes", must, None, "Pass all classes that y will ever have: classes=[0, 1].")
    if classes is None or before is None:
        return np.unique(column_or_1d(before if classes is None else classes))
    if np.unique(column_or_1d(classes)).tolist() != before.tolist():
        must = f"be those of the first call to partial_fit, {before.tolist()[:5]}"
        raise ArgumentError("classes", must, "others", "Leave 'classes' out, or begin with a new model.")
    return before


def read_classes(
    estimator: object, y: Any, n: int, known: NDArray[Any] | None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the known classes, or those of y sorted, and the code of each row."""
    column = read_target(estimator, y)
    if len(column) != n:
        raise ArgumentError("y", f"have {n} rows like 'X'", len(column), "Drop or align the missing rows.")
    if column.dtype == object and len({isinstance(label, str) for label in column.tolist()}) > 1:
        fix = "Drop rows without a class."
        raise ArgumentError("y", "hold classes of one type, none missing", "text and something else", fix)
    try:
        check_classification_targets(column)
    except ValueError as error:
        got = f"something else: {str(error).rstrip('.')}"
        raise ArgumentError("y", "hold classes", got, "Pass labels, or use a regressor.") from None
    classes, codes = np.unique(column, return_inverse=True)
    if known is None:
        return classes, codes.astype(np.int64)
    code = {label: j for j, label in enumerate(known.tolist())}
    unknown = [label for label in classes.tolist() if label not in code]
    if unknown:
        must = f"hold known classes, {known.tolist()[:5]}"
        raise ArgumentError("y", must, unknown[:5], "Name all classes in the first call to partial_fit.")
    places = np.array([code[label] for label in classes.tolist()], dtype=np.int64)
    return known, places[codes]


def read_class_weights(
    class_weight: Any, classes: NDArray[Any], codes: NDArray[np.int64], weights: Tensor | None
) -> Tensor | None:
    """Return the weight of the class of each row; "balanced" counts the rows of positive weight."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        there = codes if weights is None else codes[weights.numpy() > 0]
        counts = np.bincount(there, minlength=len(classes))
        by_class = counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))
        return torch.from_numpy(by_class[codes])
    if not isinstance(class_weight, Mapping):
        got = repr(class_weight)
        raise ArgumentError("class_weight", "be None, 'balanced' or a dict", got, "Leave it out.")
    names = classes.tolist()
    unknown = sum(label not in names for label in class_weight)
    if unknown:
        must = "have classes of y as keys"
        raise ArgumentError("class_weight", must, f"{unknown} others", "Correct the keys.")
    by_class = np.array([class_weight.get(label, 1.0) for label in names], dtype=np.float64)
    if not (np.isfinite(by_class).all() and (by_class >= 0).all() and by_class.any()):
        must = "hold non-negative numbers, not all zero"
        raise ArgumentError("class_weight", must, "others", "Correct them.")
    return torch.from_numpy(by_class[codes])


def make_rows(
    x: Tensor,
    y: Tensor,
    inputs: Inputs,
    constraint: Constraint,
    *,
    labels: Tensor | None,
    class_weights: Tensor | None,
    later: bool = False,
) -> Rows:
    """Return the rows of positive weight; S may be constant in a later part of them."""
    s = read_sensitive(inputs.sensitive_features, len(x), constraint, later=later)
    weights = to_weights(inputs.sample_weight, n_rows=len(x))
    rows = Rows(x, y, s, weights, class_weights, labels)
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
        return HELD_OUT if n >= ENOUGH else 0.0
    return float(training.limit_fraction)


def choose_penalty(
    penalty: Penalty | PenaltySum,
    classes: NDArray[Any] | None,
    constraint: Constraint,
    *,
    predicted: bool = True,
) -> Penalty | PenaltySum:
    """Return a copy of the user's penalty, with codes in the place of classes, predicted or not."""
    penalty = copy.deepcopy(penalty)
    on_probability = any(term.on == "probability" for _, term in penalty.pairs)
    if constraint.penalised and (classes is None or not predicted) and on_probability:
        must = "not be on probabilities where none are predicted"
        raise ArgumentError("penalty", must, "on='probability'", "Use on='prediction', or a classifier.")
    if classes is not None:
        return penalty.relabel({label: float(code) for code, label in enumerate(classes.tolist())})
    if penalty.needs_y and constraint.penalised:
        must = "not be given labels of y where y is not a class"
        raise ArgumentError("penalty", must, "one that is", "Leave 'given' out.")
    return penalty
