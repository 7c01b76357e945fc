"""Repair of scores without retraining, for which S must be known."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from frhsic._checks import ArgumentError, is_number
from frhsic._text import join_lines
from frhsic.data import (
    Sensitive,
    check_aligned,
    get_index,
    to_generator,
    to_groups,
    to_sensitive,
    to_vector,
    to_weights,
)
from frhsic.engine.budget import FEASIBLE
from frhsic.engine.limits import Key, Limits, Reached, make_measure, read_limit, write_limit
from frhsic.engine.meter import Meter, Scores
from frhsic.engine.rows import Rows
from frhsic.inference import Interval, confidence_interval
from frhsic.numerics._threads import one_thread
from frhsic.repair._map import RepairMap, count, make_map

_FOLDS: Final = 5
_FEWEST: Final = 50  # rows
_FEWEST_GROUPS: Final = 20  # of rows, for intervals
_HALVINGS: Final = 12  # of the amount that keeps a limit
_AIMS: Final = 4  # at a limit, until the reported value keeps it

NOTE: Final = (
    "The repaired score uses {} at prediction. Law may forbid that where training with it is allowed: ask "
    "before you use it for decisions."
)


class ScoreRepair(BaseEstimator):  # type: ignore[misc]
    """Repair scores of any model so that their law is the same along S, without retraining.

    Each score is moved to the barycentre of the laws of scores along S: B(F(x | s)) with B(u) = E Q(u | S),
    F the distribution function of scores at s and Q its inverse. Among people of one s the order is kept.
    ``transform`` needs S, which law may forbid: see ``note_``.

    Parameters
    ----------
    amount : float, default=1.0
        How far scores move: 0 leaves them, 1 takes them all the way.
    limit : dict, optional
        Instead of an amount: the least amount that leaves at most this, ``{"gap": 0.02}`` or another limit of
        :class:`frhsic.FRHSICClassifier`, on rows that took no part in fitting (five folds).
    width : float or "auto", default="auto"
        The share of the rows, by ranks of S, over which laws are smoothed; "auto" is 0.4 n^(-1/3), and at
        least 0.015. Categories are never smoothed over.
    random_state : None, int or generator, default=None
        Of the folds and of the draws behind intervals.

    Attributes
    ----------
    amount_, width_ : float
    left_ : dict of str to Interval
        "gap" and "gdp", and what is limited, of the repaired scores of each row by a map of the other folds,
        for each column of S ("gap age" where there are several).
    reached_ : tuple of Reached
        With a limit: what is left of each thing that is limited, the largest among columns of S, as in
        ``left_``.
    note_ : str
        What is to be said beside every repaired score.
    n_rows_ : int
    n_groups_ : int or None
        The number of groups of rows; None where rows were taken to be independent.
    like_ : Sensitive
        Columns of S without rows: what ``transform`` expects.
    sensitive_names_ : tuple of str

    Notes
    -----
    Scores that many people share (a scorecard of twenty points) cannot be spread: each moves to the mean of
    B over its ranks, and some dependence is left. Scores and values of S beyond those of ``fit`` are taken
    for the nearest; ``transform`` warns. Intervals in ``left_`` are for maps fitted on four fifths of the
    rows, which the map of all rows is no worse than on average.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 70, 2_000)
    >>> score = rng.normal(age / 10.0, 1.0 + age / 50.0)
    >>> repair = ScoreRepair(random_state=0).fit(score, age)
    >>> repaired = repair.transform(score, age)
    >>> bool(abs(np.corrcoef(repaired, age)[0, 1]) < 0.05)
    True
    """

    __metadata_request__fit: ClassVar = dict.fromkeys(("sensitive_features", "sample_weight", "groups"), True)
    __metadata_request__fit_transform: ClassVar = __metadata_request__fit
    __metadata_request__transform: ClassVar = {"sensitive_features": True}

    def __init__(
        self,
        amount: float = 1.0,
        *,
        limit: Mapping[str, float | Mapping[float, float]] | None = None,
        width: float | Literal["auto"] = "auto",
        random_state: Any = None,
    ) -> None:
        self.amount = amount
        self.limit = limit
        self.width = width
        self.random_state = random_state

    def fit(
        self, scores: Any, sensitive_features: Any, *, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Learn the laws of scores along S.

        Parameters
        ----------
        scores : array of shape (n,)
            Of any model, in any unit.
        sensitive_features : array or frame of shape (n,) or (n, q)
        sample_weight : array of shape (n,), optional
        groups : array of labels of shape (n,), optional
            Rows of one group (a person, a household) may depend on one another. They are in one fold, and
            intervals are those of so many groups, of which there must be 20.
        """
        options = {"sample_weight": sample_weight, "groups": groups}
        self.fit_transform(scores, sensitive_features, **options)
        return self

    @one_thread()
    def fit_transform(
        self, scores: Any, sensitive_features: Any, *, sample_weight: Any = None, groups: Any = None
    ) -> NDArray[np.float64]:
        """Fit, and return each score as repaired by the rows of the other folds, ``(n,)``.

        These are what rows that took no part would get, and not ``fit(...).transform(...)`` of the same rows.

        Parameters
        ----------
        scores : array of shape (n,)
        sensitive_features : array or frame of shape (n,) or (n, q)
        sample_weight, groups : array of shape (n,), optional
            As for ``fit``.
        """
        self._check_parameters()
        columns = {"scores": scores, "sensitive_features": sensitive_features, "sample_weight": sample_weight}
        check_aligned(**columns, groups=groups)
        if groups is None:
            _warn_repeated(columns)
        x = to_vector(scores, name="scores")
        probability = bool(((x >= 0.0) & (x <= 1.0)).all())
        limit = None if self.limit is None else read_limit(self.limit, probability=probability)
        s = to_sensitive(sensitive_features, n_rows=len(x), rows_of="scores")
        w = to_weights(sample_weight, n_rows=len(x))
        if len(x) < _FEWEST:
            raise ArgumentError("scores", f"have at least {_FEWEST} rows", len(x), "Pass more rows.")
        unit = to_groups(groups, n_rows=len(x), rows_of="scores")
        count_units = len(x) if unit is None else int(unit.max()) + 1
        if count_units < _FEWEST_GROUPS:
            must = f"be at least {_FEWEST_GROUPS}, which are then the independent units"
            raise ArgumentError("groups", must, count_units, "Pass more groups.")
        generator = to_generator(self.random_state)
        weights = torch.ones(len(x), dtype=torch.float64) if w is None else w
        fold = torch.randperm(count_units, generator=generator) % _FOLDS
        fold = fold if unit is None else fold[unit]
        whole = torch.empty_like(x)
        for k in range(_FOLDS):
            rows, other = (fold != k).nonzero().squeeze(1), (fold == k).nonzero().squeeze(1)
            own = None if unit is None else unit[rows].unique(return_inverse=True)[1]
            part = count(x[rows], s[rows], weights[rows], own)
            whole[other] = make_map(part, self._width(part.n))(x[other], s[other])
        amount = float(self.amount)
        reached: tuple[Reached, ...] = ()
        if limit is not None:
            amount, reached = _least_amount(x, whole, s, w, limit)
        left = torch.lerp(x, whole, amount)
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        counted = count(x, s, weights, unit)
        self.amount_, self.width_, self.n_rows_ = amount, self._width(counted.n), len(x)
        self.n_groups_ = None if unit is None else count_units
        self.map_: RepairMap = make_map(counted, self.width_)
        self.sensitive_names_ = s.names
        self.like_ = s[torch.arange(0)]
        self._range = {name: _range(column) for name, column in zip(s.names, s.values.T, strict=True)}
        self.note_ = NOTE.format(" and ".join(s.names))
        self.reached_ = reached
        self.left_ = _measure_left(left, s, w, unit, seed, limit or {})
        return left.numpy()

    def transform(self, scores: Any, sensitive_features: Any) -> NDArray[np.float64]:
        """Return the repaired scores, ``(n,)``.

        Parameters
        ----------
        scores : array of shape (n,)
        sensitive_features : array or frame of shape (n,) or (n, q)
            With the columns of ``fit``; not a label that it has not seen.
        """
        check_is_fitted(self, "map_")
        check_aligned(scores=scores, sensitive_features=sensitive_features)
        x = to_vector(scores, name="scores")
        s = self._read(sensitive_features, len(x))
        self._warn_beyond(x, s)
        return torch.lerp(x, self.map_(x, s), self.amount_).numpy()

    def _read(self, values: Any, n: int) -> Sensitive:
        """Return S with the columns, kinds and codes of ``fit``."""
        if not isinstance(values, Sensitive):
            return to_sensitive(
                values, n_rows=n, rows_of="scores", like=self.like_, allow_constant=True, min_rows=1
            )
        own, like = ((one.names, one.kinds, one.categories) for one in (values, self.like_))
        if own != like:
            must = "have the columns, kinds and categories of fit"
            raise ArgumentError("sensitive_features", must, repr(values), "Pass the columns themselves.")
        return values

    def __str__(self) -> str:
        if "map_" not in vars(self):
            return repr(self)
        names = " and ".join(self.sensitive_names_)
        rows = f"{self.n_rows_:,} rows"
        if self.n_groups_ is not None:
            rows += f" in {self.n_groups_:,} groups"
        lines = [
            f"Repair of scores along {names}, fitted on {rows}: amount {self.amount_:.3g}, laws smoothed "
            f"over {self.width_:.3g} of the ranks.",
            *(f"Left of {name} on other rows: {one}" for name, one in self.left_.items()),
            self.note_,
        ]
        return join_lines(lines)

    def _check_parameters(self) -> None:
        if not is_number(self.amount) or not 0 <= self.amount <= 1:
            raise ArgumentError("amount", "be a number from 0 to 1", repr(self.amount), "Leave it out for 1.")
        width: Any = self.width
        if width != "auto" and not (is_number(width) and 0 < width <= 1):
            must = "be 'auto' or a share of the rows, above 0 and at most 1"
            raise ArgumentError("width", must, repr(width), "Leave it out.")
        if self.limit is not None:
            read_limit(self.limit)

    def _width(self, n: float) -> float:
        # Chosen on development data: narrower laws have more noise, wider ones miss what changes along S.
        return max(0.015, 0.4 * n ** (-1.0 / 3.0)) if self.width == "auto" else float(self.width)

    def _warn_beyond(self, x: Tensor, s: Sensitive) -> None:
        edges = self.map_.edges
        found = {"scores": (x < edges[0]) | (x > edges[-1])}
        for name, column, kind in zip(s.names, s.values.T, s.kinds, strict=True):
            if kind == "continuous":
                low, high = self._range[name]
                found[name] = (column < low) | (column > high)
        beyond = {name: int(rows.sum()) for name, rows in found.items() if bool(rows.any())}
        if beyond:
            counts = ", ".join(f"'{name}' in {n:,} of {len(x):,} rows" for name, n in beyond.items())
            warnings.warn(
                f"Beyond the rows of fit: {counts}. The nearest is taken. Fit on rows that reach further.",
                stacklevel=3,
            )


def _warn_repeated(columns: Mapping[str, Any]) -> None:
    """Warn if the index of a pandas object has labels twice: rows of one person, perhaps."""
    for name, column in columns.items():
        index = get_index(column)
        if index is not None and index.has_duplicates:
            warnings.warn(
                f"The index of '{name}' has {index.nunique():,} labels for {len(index):,} rows. If rows of "
                "one label are those of one person, pass it as 'groups': folds and intervals must know.",
                stacklevel=5,
            )
            return


def _range(column: Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(column)
    return float(low), float(high)


def _least_amount(
    x: Tensor, whole: Tensor, s: Sensitive, w: Tensor | None, limit: Mapping[Key, float]
) -> tuple[float, tuple[Reached, ...]]:
    """Return the least amount that keeps a limit, each row by a map of the other folds, and what is left.

    If even the whole repair does not keep it, that is 1, with a warning.
    """
    index = torch.arange(len(x), dtype=torch.float64)[:, None]
    rows = Rows(index, x, s, w)
    meter = Meter(Limits([limit], torch.as_tensor, s.names), rows)

    def scores(amount: float) -> Scores:
        moved = torch.lerp(x, whole, amount)
        return lambda at: moved[at[:, 0].long()][:, None]

    def ratio(amount: float) -> float:
        return float(meter.limits.divide(meter.measure(scores(amount)))[0])

    def report(amount: float) -> tuple[Reached, ...]:
        # The rows that are measured are those that choose the amount: they steer it.
        (measured,) = meter.report(scores(amount), rows)
        return tuple(
            replace(one, trained=None, n_trained=0, steering=one.trained, n_steering=one.n_trained)
            for one in measured
        )

    def find_amount(aim: float) -> float:
        if ratio(0.0) <= aim:
            return 0.0
        if ratio(1.0) > aim:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if ratio(middle) <= aim else (middle, high)
        return high

    # The value that steers is quick; the one that is reported is that of an audit, and must keep the limit.
    aim = 1.0
    for _ in range(_AIMS):
        amount = find_amount(aim)
        reached = report(amount)
        worst = max(one.judged / one.limit for one in reached)
        if worst <= FEASIBLE or amount == 1.0:
            break
        aim /= worst
    if worst > FEASIBLE:
        told = " ".join(map(str, reached))
        fix = "Pass more rows, or train within the limit."
        warnings.warn(
            f"The repair leaves more than the limit {write_limit(limit)}. {told} {fix}",
            ConvergenceWarning,
            stacklevel=4,
        )
    return amount, reached


def _measure_left(
    x: Tensor,
    s: Sensitive,
    w: Tensor | None,
    groups: Tensor | None,
    seed: int,
    limited: Iterable[Key],
) -> dict[str, Interval]:
    keys = dict.fromkeys([Key("gap"), Key("gdp"), *limited])
    found = {}
    for name in s.names:
        suffix = "" if len(s.names) == 1 else f" {name}"
        for key in keys:
            measure = make_measure(key)
            found[f"{key}{suffix}"] = confidence_interval(
                x, s.columns((name,)), dependence=measure, random_state=seed, sample_weight=w, groups=groups
            )
    return found
