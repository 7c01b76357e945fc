"""What is left of a gap when a model is trained again without some of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import has_fit_parameter

from frhsic._checks import ArgumentError
from frhsic._progress import Progress
from frhsic._text import join_words, number, percent
from frhsic.data import check_aligned, drop_columns, to_generator
from frhsic.dependence import GDP
from frhsic.inference import Interval, Result, confidence_interval, frame
from frhsic.selection._held_out import Rows, hold_out

_NAMED: Final = 3  # inputs in a sentence


@dataclass(frozen=True)
class Retrained(Result):
    """A model trained without the first k of some inputs, for k = 0, 1, 2, ...

    Attributes
    ----------
    removed : tuple of tuple of str
        The columns each model went without; none for the first.
    gap : tuple of Interval
        The mean gap of each model's score along s (GDP: of probabilities, or of predicted numbers), on
        held-out rows.
    performance : tuple of float
        Accuracy of a classifier, R^2 of a regressor, on the same rows.
    measure : str
        "accuracy" or "R^2".
    attribute : str
    n : int
        Held-out rows.
    """

    removed: tuple[tuple[str, ...], ...]
    gap: tuple[Interval, ...]
    performance: tuple[float, ...]
    measure: str
    attribute: str
    n: int

    def to_frame(self) -> Any:
        """Return a row for each model: columns removed, gap with its interval, performance."""
        rows = zip(self.removed, self.gap, self.performance, strict=True)
        return frame(
            {
                "removed": ", ".join(removed),
                "gap": gap.estimate,
                "low": gap.low,
                "high": gap.high,
                self.measure: performance,
            }
            for removed, gap, performance in rows
        )

    def __str__(self) -> str:
        level = percent(self.gap[0].confidence_level)
        each = [
            f"{'with all inputs' if not removed else 'without ' + join_words(list(removed), _NAMED)} "
            f"{number(gap.estimate)} [{number(gap.low)}, {number(gap.high)}], "
            f"{self.measure} {number(performance)}"
            for removed, gap, performance in zip(self.removed, self.gap, self.performance, strict=True)
        ]
        return (
            f"Mean gap along {self.attribute} on {self.n:,} held-out rows ({level} intervals): "
            f"{'; '.join(each)}. Each model was trained once: another split or seed gives other numbers."
        )


def retrain_without(
    model: Any,
    X: Any,
    y: Any,
    *,
    sensitive_features: object,
    inputs: Sequence[str | Sequence[str]],
    validation: Any = 0.3,
    confidence_level: float = 0.95,
    random_state: object = None,
) -> Retrained:
    """Train a model again without the first, the first two, ... of some inputs, and measure what is left.

    A ranking by :func:`frhsic.inference.carriers` says what an input adds to the gap of a model as it is.
    Without that input a model may learn the same from others. This function tries it.

    Parameters
    ----------
    model : classifier of two classes, or regressor
        It is cloned, never changed. ``sensitive_features`` are passed on if its ``fit`` takes them.
    X : frame or array of shape (n, p)
        A model that asks for columns by name, such as a ``ColumnTransformer``, fails without them; let it
        select columns by type.
    y : array-like of shape (n,)
    sensitive_features : array-like of shape (n,)
    inputs : sequence of str, or of sequences of str
        What to remove, in this order: ``carriers(...).inputs[:3]``. A sequence of columns goes at once.
        Columns of an array are "x0", "x1", ...
    validation : float or (X, y, sensitive_features), default=0.3
        A share of the rows to measure on, or held-out rows.
    confidence_level : float, default=0.95
    random_state : None, int or generator, default=None

    Returns
    -------
    Retrained

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 70, 3_000)
    >>> tenure = age + rng.normal(size=3_000)
    >>> X = np.column_stack((tenure, tenure + rng.normal(size=3_000)))  # a twin
    >>> found = retrain_without(
    ...     LinearRegression(), X, age + 5 * rng.normal(size=3_000),
    ...     sensitive_features={"age": age}, inputs=["x0"], random_state=0,
    ... )
    >>> [round(gap.estimate) for gap in found.gap]
    [13, 13]
    """
    check_aligned(X=X, y=y, sensitive_features=sensitive_features)
    groups = [(one,) if isinstance(one, str) else tuple(one) for one in inputs]
    if isinstance(inputs, str) or not groups or not all(groups):
        fix = "Pass them in a list: inputs=['income', 'tenure']."
        raise ArgumentError("inputs", "name the columns to remove", repr(inputs)[:80], fix)
    seed = int(np.random.default_rng(to_generator(random_state).initial_seed()).integers(2**31 - 1))
    classifier = is_classifier(model)
    train, held = hold_out(Rows(X, y, sensitive_features, None), validation, stratify=classifier, seed=seed)
    gone: tuple[str, ...] = ()
    removed, gaps, performance = [gone], [], []
    for group in groups:
        gone += group
        removed.append(gone)
    known = {"sensitive_features": train.s} if has_fit_parameter(model, "sensitive_features") else {}
    tables = [(drop_columns(train.x, out, "inputs"), drop_columns(held.x, out, "inputs")) for out in removed]
    with Progress("models", len(removed)) as bar:
        for x_train, x_held in tables:
            fitted = clone(model).fit(x_train, train.y, **known)
            score = _score(fitted, x_held, classifier)
            gaps.append(
                confidence_interval(
                    score, held.s, dependence=GDP(), confidence_level=confidence_level, random_state=seed
                )
            )
            performance.append(float(fitted.score(x_held, held.y)))
            bar.advance()
    measure = "accuracy" if classifier else "R^2"
    return Retrained(tuple(removed), tuple(gaps), tuple(performance), measure, held.s.names[0], len(held.s))


def _score(model: Any, x: Any, classifier: bool) -> Any:
    """Return the probability of the second class, or the predicted number."""
    if not classifier:
        return model.predict(x)
    if len(model.classes_) != 2:
        fix = "Train a model of one class against the others."
        raise ArgumentError("model", "have two classes", len(model.classes_), fix)
    return model.predict_proba(x)[:, 1]
