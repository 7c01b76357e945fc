"""Which columns of a table stand for S: alone, and beside all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic._progress import Progress
from frhsic._text import number
from frhsic.data import Sensitive, check_aligned, read_columns, take_rows, to_generator, to_sensitive
from frhsic.inference._intervals import confidence_interval
from frhsic.inference._question import check_one_column
from frhsic.inference._results import Result, frame
from frhsic.inference._tests import holm, independence_test
from frhsic.inference.factors._columns import Factors, Floats, middle_ranks, read_factors, sensitive_features
from frhsic.inference.factors._learning import cross_fit
from frhsic.numerics._threads import one_thread

MOST_ROWS: Final = 20_000
_PAIRS: Final = 2_000  # rows of which all pairs are compared
_ALIKE: Final = 0.7  # rank correlation from which on columns are one group
_LEFT_OUT: Final = 20  # groups of which it is learned what is lost without them
_FOLDS: Final = 3


@dataclass(frozen=True)
class Proxy(Result):
    """One column beside S.

    Attributes
    ----------
    column : str
    group : tuple of str
        Columns so much alike (rank correlation of at least 0.7) that one stands for the other.
    hsic, hsic_low, hsic_high : float
        Debiased normalised HSIC with S, and its interval.
    pvalue : float
        Of independence, after Holm's correction over all columns.
    r2 : float
        Of the ranks of S from this column alone, on rows that took no part; of labels the mean over them.
    lost : float or None
        How much smaller R^2 from all columns is without its group; None for all but the leading groups.
    """

    column: str
    group: tuple[str, ...]
    hsic: float
    hsic_low: float
    hsic_high: float
    pvalue: float
    r2: float
    lost: float | None = None


@dataclass(frozen=True)
class Proxies(Result):
    """Columns of a table beside one sensitive column, from the largest HSIC to the smallest.

    Attributes
    ----------
    attribute : str
    columns : tuple of Proxy
    r2 : float
        Of the ranks of S from all columns together (boosted trees), on rows that took no part.
    confidence_level : float
    n : int
        Rows used.
    notes : tuple of str
    """

    attribute: str
    columns: tuple[Proxy, ...]
    r2: float
    confidence_level: float
    n: int
    notes: tuple[str, ...] = ()

    def to_frame(self) -> Any:
        """Return a row for each column."""
        return frame({**vars(one), "group": ", ".join(one.group)} for one in self.columns)

    def __str__(self) -> str:
        first = self.columns[:5]
        each = "; ".join(
            f"{one.column} HSIC {number(one.hsic)}, {format_pvalue(one.pvalue)}, "
            f"R^2 {number(max(one.r2, 0.0))}"
            + ("" if one.lost is None else f", {number(max(one.lost, 0.0))} lost without it")
            for one in first
        )
        text = (
            f"{len(self.columns)} columns together predict {self.attribute} with an R^2 of "
            f"{number(max(self.r2, 0.0))} on rows that took no part (n = {self.n:,}). The nearest: {each}. "
            "p after Holm's correction; a column without a small p is not shown to be no proxy."
        )
        return " ".join((text, *self.notes))


def format_pvalue(p: float) -> str:
    """Return a p-value in words: far in its tail the gamma law is a guess."""
    return "p < 1e-10" if p < 1e-10 else f"p = {number(p)}"


class _Column(NamedTuple):
    name: str
    factors: Factors
    order: Floats  # (n,): a single number for each row, to compare columns by


@one_thread()
def proxies(
    X: object,
    sensitive_features: object,
    *,
    confidence_level: float = 0.95,
    random_state: object = None,
) -> Proxies:
    """Say which columns of a table stand for one sensitive column.

    Parameters
    ----------
    X : frame, dict of columns or array of shape (n, p)
        Numbers or labels, with missing values if need be; without the sensitive column.
    sensitive_features : array-like of shape (n,)
    confidence_level : float, default=0.95
        Of the interval of each HSIC, by itself.
    random_state : None, int or generator, default=None

    Returns
    -------
    Proxies

    Notes
    -----
    At most 20,000 random rows are used, and 2,000 of these for HSIC and its test, whose null law is
    approximated by a gamma law so that p may be small enough for hundreds of columns. R^2 of one column is
    that of ridge regression on splines of it, or of its labels; R^2 of all columns is that of boosted trees,
    fitted again without each of the twenty groups of the largest HSIC.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(20, 70, 500)
    >>> X = {"tenure": age / 2.0 + rng.normal(size=500), "shoe": rng.normal(size=500)}
    >>> [one.column for one in proxies(X, {"age": age}, random_state=0).columns]
    ['tenure', 'shoe']
    """
    check_aligned(X=X, sensitive_features=sensitive_features)
    generator = to_generator(random_state)
    blocks = read_columns(X, "X")
    n = len(blocks[0].array)
    s = to_sensitive(sensitive_features, n_rows=n, min_rows=100)
    check_one_column(s, "search of proxies")
    notes: tuple[str, ...] = ()
    rows = torch.randperm(n, generator=generator)
    if n > MOST_ROWS:
        notes = (f"A random subsample of {MOST_ROWS:,} of {n:,} rows was used.",)
        rows, X = rows[:MOST_ROWS], take_rows(X, rows[:MOST_ROWS].numpy())
        blocks = read_columns(X, "X")
        s = s[rows]
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    n = len(s)
    features = _targets(s)
    found: list[_Column] = []
    constant = []
    for j, block in enumerate(blocks):
        name = f"x{j}" if block.name is None else block.name
        factors = read_factors({name: block.array}, n, argument="X", allow_constant=True)
        if not factors.x.shape[1]:
            constant.append(name)
            continue
        found.append(_Column(name, factors, _order(factors, features[:, 0])))
    if constant:
        notes += (f"{len(constant)} columns do not vary, or hold nothing, and are left out.",)
    if not found:
        raise ArgumentError("X", "have a column that varies", "none", "Pass other columns.")
    groups = _group(found)
    singles: list[dict[str, Any]] = []
    chosen = torch.randperm(n, generator=generator)[:_PAIRS]
    with Progress("columns", len(found)) as bar:
        for column in found:
            singles.append(_judge(column, s, features, chosen, confidence_level, seed))
            bar.advance()
    adjusted = holm([one["pvalue"] for one in singles])
    whole, lost = _leave_out(found, groups, [one["hsic"] for one in singles], features, seed)
    made = [
        Proxy(
            column=column.name,
            group=tuple(found[i].name for i in np.flatnonzero(groups == groups[j])),
            **{**singles[j], "pvalue": float(adjusted[j])},
            lost=lost.get(int(groups[j])),
        )
        for j, column in enumerate(found)
    ]
    made.sort(key=lambda one: -one.hsic)
    return Proxies(s.names[0], tuple(made), whole, confidence_level, n, notes)


def _targets(s: Sensitive) -> Floats:
    """Return the ranks of s, or its categories, of variance one."""
    return sensitive_features(s, np.ones(len(s)), 1)


def _order(factors: Factors, target: Floats) -> Floats:
    """Return one number for each row: the ranks of a number, or labels by the mean of s at them."""
    if factors.numeric[0]:
        return middle_ranks(factors.x[:, 0], np.ones(len(factors.x)))
    code = np.unique(factors.x, axis=0, return_inverse=True)[1].ravel()
    means = np.bincount(code, weights=target) / np.bincount(code)
    return np.asarray(means[code])


def _group(columns: list[_Column]) -> NDArray[np.int64]:
    """Return the group of each column, by rank correlation."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(columns) < 2:
        return np.zeros(len(columns), dtype=np.int64)
    order = np.column_stack([middle_ranks(one.order, np.ones(len(one.order))) for one in columns])
    spread = order.std(axis=0)
    order = (order - order.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    apart = 1.0 - np.abs(order.T @ order) / len(order)
    np.fill_diagonal(apart, 0.0)
    tree = linkage(squareform(np.clip(apart, 0.0, 1.0), checks=False), "average")
    return np.asarray(fcluster(tree, 1.0 - _ALIKE, "distance"), dtype=np.int64)


def _judge(
    column: _Column, s: Sensitive, features: Floats, chosen: torch.Tensor, level: float, seed: int
) -> dict[str, Any]:
    """Return HSIC with its interval and test, and R^2, of one column."""
    x = column.factors.x.copy()
    numeric = column.factors.numeric
    if numeric.any():
        x[:, numeric] = np.column_stack([middle_ranks(one, np.ones(len(x))) for one in x[:, numeric].T])
    z = torch.from_numpy(x)[chosen]
    if bool((z == z[:1]).all()):  # a rare label that none of these rows has
        hsic, low, high, pvalue = 0.0, 0.0, 1.0, 1.0
    else:
        interval = confidence_interval(
            z, s[chosen], confidence_level=level, random_state=seed, chance=False, n_draws=199
        )
        test = independence_test(z, s[chosen], method="gamma", random_state=seed)
        hsic, low, high, pvalue = interval.estimate, interval.low, interval.high, test.pvalue
    crossed = cross_fit(features, (), column.factors, np.ones(len(x)), None, None, seed, maps=("additive",))
    r2 = float(crossed.explained.mean())
    return {"hsic": hsic, "hsic_low": low, "hsic_high": high, "pvalue": pvalue, "r2": r2}


def _leave_out(
    columns: list[_Column], groups: NDArray[np.int64], sizes: list[float], features: Floats, seed: int
) -> tuple[float, dict[int, float]]:
    """Return R^2 from all columns, and what is lost without each of the leading groups."""
    best: dict[int, float] = {}
    for group, value in zip(groups.tolist(), sizes, strict=True):
        best[group] = max(value, best.get(group, -np.inf))
    leading = sorted(best, key=lambda group: -best[group])[:_LEFT_OUT]
    x = np.hstack([one.factors.x for one in columns])
    owner = np.concatenate([[g] * one.factors.x.shape[1] for g, one in zip(groups, columns, strict=True)])
    with Progress("without each group", len(leading) + 1) as bar:
        whole = _explained(x, features, seed)
        bar.advance()
        lost = {}
        for group in leading:
            kept = owner != group
            lost[group] = whole - (_explained(x[:, kept], features, seed) if kept.any() else 0.0)
            bar.advance()
    return whole, lost


def _explained(x: Floats, features: Floats, seed: int) -> float:
    """Return the R^2 of boosted trees on rows that took no part."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    fold = np.random.default_rng(seed).permutation(len(x)) % _FOLDS
    left = np.empty_like(features)
    for k in range(_FOLDS):
        for j in range(features.shape[1]):
            model = HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=15, random_state=seed)
            model.fit(x[fold != k], features[fold != k, j])
            left[fold == k, j] = features[fold == k, j] - model.predict(x[fold == k])
    return float(1.0 - (left**2).mean() / features.var(axis=0).mean())
