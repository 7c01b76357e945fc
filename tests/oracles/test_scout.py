"""The cells of a column from its scout: two sums over pieces of the rows, in any order."""

import math

import numpy as np
import pytest

from frhsic.table import Axis, Extent, ScoreTable, Scout

N, SIZE = 40_000, 512


def make_columns():
    rng = np.random.default_rng(0)
    normal, uniform = rng.normal(size=N), rng.random(N)
    years = rng.integers(1950, 2010, N).astype(float)
    income = np.round(np.exp(10.6 + 0.9 * normal), 2)
    leaves = np.sort(1 / (1 + np.exp(-2 * rng.normal(size=700))))
    return {
        "probabilities": 1 / (1 + np.exp(-normal)),
        "254 probabilities": leaves[:254][np.minimum((254 * uniform**2).astype(int), 253)],
        "700 probabilities": leaves[np.minimum((700 * uniform**2).astype(int), 699)],
        "income": income,
        "log-normal(2)": np.exp(2 * normal),
        "Cauchy": rng.standard_cauchy(N),
        "near 1": uniform**0.02,
        "tiny": 1e-300 * uniform,
        "huge": 1e300 * normal,
        "years": years,
        "years and 0": np.where(uniform < 1e-3, 0.0, years),
        "years and a million": np.where(uniform < 1e-3, 1e6, years),
        "scores and a million": np.append(uniform[1:], 1e6),
        "heaps": np.where(uniform < 0.6, np.round(income, -3), income),
        "heap": np.where(uniform < 0.6, 50_000.0, income),
        "zeros": np.where(uniform < 0.6, 0.0, income),
        "constant": np.full(N, 7.0),
        "negative": -income,
        "both signs": normal,
        "integers": np.floor(1e12 * uniform),
        "integers of all sizes": np.floor(10 ** (12 * uniform)),
        "two clusters": normal + np.where(uniform < 0.5, 0.0, 1e6),
        "far clusters": normal + np.where(uniform < 0.5, 1e15, -1e15),
        "counts": rng.geometric(0.05, N) * np.where(uniform < 1e-3, 1e5, 1.0),
    }


COLUMNS = make_columns()
each_column = pytest.mark.parametrize("x", COLUMNS.values(), ids=COLUMNS)


def scout_of(x, pieces=1):
    parts = np.array_split(x, pieces)
    extent = Extent.of_rows(parts[0])
    for part in parts[1:]:
        extent = extent + Extent.of_rows(part)
    scout = Scout.of_rows(parts[-1], extent)
    for part in parts[-2::-1]:
        scout = scout + Scout.of_rows(part, extent)
    return scout


@each_column
@pytest.mark.parametrize("size", [512, 32])
def test_cells_hold_about_equally_many_rows_unless_they_are_of_one_value(x, size):
    axis = Axis.choose(scout_of(x), size)
    codes = axis.codes(x)
    assert codes.min() >= 0
    values, counts = np.unique(x, return_counts=True)
    if len(values) <= size:
        assert axis.kind == "values"
        assert np.array_equal(axis.borders, values)
        return
    assert axis.kind == "ranges"
    assert axis.size <= 2 * size + 64  # empty ones on the way to rows far away
    rows, most = np.bincount(codes, minlength=axis.size), np.zeros(axis.size)
    np.maximum.at(most, axis.codes(values), counts)
    assert (rows - most).max() <= 5 * N / size
    # The others are as many as rows that are not heaped allow.
    assert (rows > 0).sum() >= 0.3 * size * (1 - counts[counts > N / size].sum() / N)


@each_column
def test_coarse_cells_are_dyadic_and_follow_from_both_ends_alone(x):
    borders = Extent.of_rows(x).borders
    assert 2 <= len(borders) <= 1_025
    assert np.array_equal(borders, Extent.of_rows(np.array([x.max(), x.min()])).borders)
    assert borders[0] < x.min() <= borders[1]
    assert borders[-2] < x.max() <= borders[-1]
    assert not ((borders[:-1] < 0) & (borders[1:] > 0)).any()
    width = np.diff(borders)
    assert (np.frexp(width)[0] == 0.5).all()
    assert (borders[1:] / width == np.round(borders[1:] / width)).all()


@each_column
@pytest.mark.parametrize("pieces", [2, 7])
def test_scouts_of_pieces_in_any_order_add_up_to_that_of_all_rows(x, pieces):
    whole, parts = scout_of(x), scout_of(np.random.default_rng(1).permutation(x), pieces)
    assert np.array_equal(parts.counts, whole.counts)
    assert np.array_equal(parts.least, whole.least)
    assert np.array_equal(parts.largest, whole.largest)
    for size in (32, 512):
        assert Axis.choose(parts, size) == Axis.choose(whole, size)


@each_column
def test_the_table_of_rows_has_the_cells_of_their_scout(x):
    table = ScoreTable.from_rows(x, COLUMNS["years"], at_scores=(1.25,))
    assert table.score == Axis.choose(scout_of(x), SIZE, "score", at=(1.25,))
    assert table.n == N
    if table.score.kind == "ranges" and x.min() < 1.25 < x.max():
        assert 1.25 in table.score.borders


def test_the_first_step_counts_what_is_no_number():
    x = np.array([1.0, math.nan, math.inf, -math.inf, 2.0, math.nan, -0.0])
    found = Extent.of_rows(x, missing=3) + Extent.of_rows(np.empty(0), missing=1)
    assert (found.finite, found.missing, found.not_a_number, found.infinite) == (3, 4, 2, 2)
    assert (found.least, found.largest) == (0.0, 2.0)
    assert found.values.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("name", ["years", "years and 0", "254 probabilities", "constant"])
def test_listed_values_need_no_second_step(name):
    listed, counted = Extent.of_rows(COLUMNS[name]).scout, scout_of(COLUMNS[name])
    assert np.array_equal(listed.counts, counted.counts)
    assert Axis.choose(listed, 32) == Axis.choose(counted, 32)
    assert Extent.of_rows(COLUMNS["income"]).scout is None


def test_values_are_listed_up_to_a_limit_whatever_the_pieces():
    x = np.arange(513.0)
    assert Extent.of_rows(x).values is None
    assert (Extent.of_rows(x[:300]) + Extent.of_rows(x[200:])).values is None
    assert len((Extent.of_rows(x[:300]) + Extent.of_rows(x[200:512])).values) == 512


def test_a_column_without_finite_values_has_no_cells():
    with pytest.raises(ValueError, match="'income' must have finite values"):
        Axis.choose(scout_of(np.array([math.nan, math.inf])), 5, "income")
