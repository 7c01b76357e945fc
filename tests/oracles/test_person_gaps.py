"""Errors of gaps by blocks of persons against loops over persons, and against the form for single rows."""

import numpy as np
import pytest

from frhsic.table import Persons, ScoreTable
from frhsic.table import _rows as rows_of_law
from frhsic.table._limits import GapErrors


def sample(persons=60, each=4, seed=0, weights=False, constant=True):
    rng = np.random.default_rng(seed)
    n = persons * each
    person = np.arange(persons).repeat(each)
    s = rng.integers(0, 6, persons)[person] if constant else rng.integers(0, 6, n)
    z = np.round(rng.normal(size=persons)[person] + 0.5 * rng.normal(size=n) + 0.2 * s, 1)
    return z, s.astype(float), person, rng.exponential(size=n) if weights else None


def law_of(z, s, person, w=None, order=None):
    order = np.arange(len(z)) if order is None else order
    z, s, person, w = z[order], s[order], person[order], None if w is None else w[order]
    table = ScoreTable.from_rows(z, s, sample_weight=w)
    cell, level = table.places(z, [s])
    return table, Persons.of(person, cell, level, np.ones(len(z)) if w is None else w)


def small(weights=False, constant=True, **more):
    z, s, person, w = sample(weights=weights, constant=constant, **more)
    table, persons = law_of(z, s, person, w)
    law = table.law()
    firsts = np.arange(len(law.z))
    rows = rows_of_law.Rows.of(law, firsts, persons.blocks(firsts, len(law.p), 0))
    w = np.ones(len(z)) if w is None else w
    codes = (np.unique(x, return_inverse=True)[1] for x in (s, z))
    return *codes, person, w / w.sum(), rows


def loop_variance(x, w, person):
    """The variance of the weighted mean of x, by a loop over persons."""
    x = x - w @ x
    shares = np.array([w[person == p].sum() for p in np.unique(person)])
    effective = 1.0 / (shares**2).sum()
    return effective / (effective - 1.0) * sum((w * x)[person == p].sum() ** 2 for p in np.unique(person))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_variances_are_those_of_a_loop_over_persons(weights, constant):
    cell, level, person, w, rows = small(weights, constant)
    steps, values = rows_of_law.Steps(), rows_of_law.Values(rows.z)
    V, one = rows_of_law.variances(rows, steps), rows_of_law.variances(rows, values)
    z = rows.z[level]
    for i, r in ((0, 3), (2, 12), (5, 20)):
        inside, below = (cell == i).astype(float), (level <= r).astype(float)
        x = (inside - w @ inside) * (below - w @ below)
        assert V[i, r] == pytest.approx(loop_variance(x, w, person), rel=1e-6)
        assert one[i, 0] == pytest.approx(
            loop_variance((inside - w @ inside) * (z - w @ z), w, person), rel=1e-6
        )


@pytest.mark.parametrize("weights", [False, True])
def test_the_variance_of_a_signed_sum_is_that_of_a_loop_over_persons(weights):
    cell, level, person, w, rows = small(weights)
    rng = np.random.default_rng(1)
    m, k = rows.shares.shape
    a, more = rng.normal(size=(m, k - 1)), rng.normal(size=k)
    x = more[level]
    for i in range(m):
        for r in range(k - 1):
            inside, below = (cell == i).astype(float), (level <= r).astype(float)
            x = x + a[i, r] * (inside - w @ inside) * (below - w @ below)
    steps = rows_of_law.Steps()
    loop = loop_variance(x, w, person)
    assert rows_of_law.variance_of(rows, steps, a, more) == pytest.approx(loop, rel=1e-6)
    single = np.zeros_like(a)
    single[:, 7] = a[:, 7]
    each = rows_of_law.covariances_each(rows, a[None])[7, 0, 0]
    assert each == pytest.approx(rows_of_law.variance_of(rows, steps, single), rel=1e-9)


def test_of_persons_with_one_row_everything_is_that_of_rows():
    z, s, _, _ = sample(persons=300, each=1)
    table, persons = law_of(z, s, np.arange(300))
    by_rows = GapErrors.of(table)
    by_persons = GapErrors(table.law(), by_rows.seed, persons=persons, blocks=300)
    steps = rows_of_law.Steps()
    ratio = rows_of_law.variances(by_persons.rows, steps) / rows_of_law.variances(by_rows.rows, steps)
    assert ratio == pytest.approx(300 / 299, rel=1e-6)
    assert by_persons.n == pytest.approx(300)
    assert by_persons.rows.inflation == 1.0
    for name in ("score_gap", "rank_gap", "mean_gap", "worst"):
        ours, theirs = getattr(by_persons, name)().ends(), getattr(by_rows, name)().ends()
        assert ours.plug_in == theirs.plug_in
        # Of 299 degrees of freedom, and random signs and draws of another kind.
        numbers = ("estimate", "low", "high", "chance")
        expected = [getattr(theirs, name) for name in numbers]
        assert [getattr(ours, name) for name in numbers] == pytest.approx(expected, abs=0.02 * ours.high)
        assert ours.chance_high == pytest.approx(theirs.chance_high, rel=0.1)


def test_neither_the_order_of_rows_nor_the_names_of_persons_change_anything():
    z, s, person, _ = sample(persons=600, each=3, constant=False)
    rng = np.random.default_rng(2)
    order, names = rng.permutation(len(z)), rng.permutation(600)
    ends = []
    for some, people in ((None, person), (order, names[person])):
        table, persons = law_of(z, s, people, order=some)
        errors = GapErrors.of(table, persons=persons)
        ends.append((errors.score_gap().ends(), errors.worst().ends()))
    for ours, theirs in zip(*ends, strict=True):
        assert ours[:6] == pytest.approx(theirs[:6], rel=1e-9)


def test_effective_persons_on_both_sides_of_a_cutoff_are_those_of_a_loop():
    z, s, person, w = sample(weights=True)
    _, persons = law_of(z, s, person, w)
    below, above = persons.sides()
    for place, t in enumerate(np.unique(z)[:-1]):
        for side, found in ((z <= t, below), (z > t, above)):
            own = np.array([w[(person == p) & side].sum() for p in range(60)])
            assert found[place] == pytest.approx(own.sum() ** 2 / (own**2).sum(), rel=1e-9)


def test_rows_of_one_person_twice_are_that_person_once():
    z, s, _, _ = sample(persons=240, each=1)
    once = GapErrors.of(law_of(z, s, np.arange(240))[0], persons=law_of(z, s, np.arange(240))[1])
    twice, persons = law_of(np.tile(z, 2), np.tile(s, 2), np.tile(np.arange(240), 2))
    double = GapErrors(twice.law(), once.seed, persons=persons)
    assert double.rows.inflation == pytest.approx(2.0)
    assert double.n == pytest.approx(240)
    ours, theirs = double.rank_gap().ends(), once.rank_gap().ends()
    assert (ours.plug_in, ours.chance) == pytest.approx((theirs.plug_in, theirs.chance), rel=0.02)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02 * ours.high)
