"""Answers for a table of counts are those for its rows."""

import numpy as np
import pytest
import torch

from frhsic.data import to_sensitive
from frhsic.dependence import EIPM, GDP, HSIC, DistanceCovariance, RankGap, ScoreGap
from frhsic.inference import confidence_interval, decision_gaps, equivalence_test, independence_test
from frhsic.kernels import Gaussian, default_kernel
from frhsic.table import Bandwidths, ScoreTable

MEASURES = (
    None,
    HSIC(estimator="unbiased"),
    DistanceCovariance(normalized=True, root=True),
    GDP(),
    ScoreGap(),
    RankGap(),
    ScoreGap(cutoff=0.5),
    ScoreGap(cutoff="worst"),
)


def rows(n=3_000, kind="ages"):
    rng = np.random.default_rng(0)
    s = {
        "ages": lambda: rng.integers(20, 60, n).astype(float),
        "income": lambda: rng.lognormal(size=n),
        "labels": lambda: rng.choice(["a", "b", "c"], n),
    }[kind]()
    shift = (s == "a") if kind == "labels" else np.argsort(np.argsort(s)) / n
    z = 1.0 / (1.0 + np.exp(-rng.normal(size=n) - 0.5 * shift))
    return z, s, rng.random(n) < z


def table_of(z, s, y=None, weights=None):
    return ScoreTable.from_rows(z, s, outcome=y, sample_weight=weights, names=["age"], at_scores=(0.5,))


@pytest.mark.parametrize("kind", ["ages", "income", "labels"])
@pytest.mark.parametrize("measure", MEASURES, ids=repr)
def test_an_interval_of_a_table_is_that_of_its_rows(measure, kind):
    z, s, _ = rows(kind=kind)
    found = confidence_interval(table_of(z, s), dependence=measure, random_state=0)
    twin = confidence_interval(z, {"age": s}, dependence=measure, random_state=0)
    near = 1e-12 if isinstance(measure, ScoreGap) and measure.cutoff == 0.5 else 2e-3
    ours, theirs = ((one.low, one.estimate, one.high) for one in (found, twin))
    assert ours == pytest.approx(theirs, rel=near, abs=1e-4)
    assert (found.measure, found.target, found.n, found.attributes) == (
        twin.measure,
        twin.target,
        twin.n,
        twin.attributes,
    )


@pytest.mark.parametrize("measure", MEASURES, ids=repr)
def test_equivalence_of_a_table_is_that_of_its_rows(measure):
    z, s, _ = rows()
    found = equivalence_test(table_of(z, s), tolerance=0.1, dependence=measure, random_state=0)
    twin = equivalence_test(z, {"age": s}, tolerance=0.1, dependence=measure, random_state=0)
    assert found.upper == pytest.approx(twin.upper, rel=0.01)
    assert (found.below, found.n) == (twin.below, twin.n)


def test_the_test_of_a_table_is_that_of_its_rows_also_within_labels():
    z, s, y = rows(n=600)
    table = table_of(z, s, y)
    found, twin = independence_test(table, random_state=0), independence_test(z, {"age": s}, random_state=0)
    assert found.pvalue == pytest.approx(twin.pvalue, abs=0.02)
    assert found.statistic == pytest.approx(twin.statistic, rel=0.05)  # of other draws
    assert (found.exact, found.n, found.measure) == (True, 600, twin.measure)
    within = independence_test(table, given=table.outcome.labels, random_state=0)
    other = independence_test(z, {"age": s}, given=y, random_state=0)
    assert within.pvalue == pytest.approx(other.pvalue, abs=0.05)
    one = independence_test(table, given=["True"], random_state=0)
    assert one.n == y.sum()


def test_gaps_at_cutoffs_of_a_table_are_those_of_its_rows():
    z, s, _ = rows()
    found, twin = decision_gaps(table_of(z, s), cutoffs=[0.5]), decision_gaps(z, {"age": s}, cutoffs=[0.5])
    assert (found.plug_in, found.rates) == (twin.plug_in, twin.rates)
    every = decision_gaps(table_of(z, s))
    assert len(every.gaps) == 127
    assert every.largest.plug_in == pytest.approx(max(every.plug_in), rel=0.01)


@pytest.mark.parametrize("kind", ["ages", "income", "labels"])
@pytest.mark.parametrize("normalized", [False, True])
def test_the_estimate_from_rows_is_within_the_error_of_the_cells(kind, normalized):
    z, s, _ = rows(n=900, kind=kind)
    table = ScoreTable.from_rows(z, s)
    bandwidths = Bandwidths.of(table.law())
    kernel_s = None if kind == "labels" else Gaussian(bandwidths.s[0])
    measure = HSIC(Gaussian(bandwidths.z), kernel_s, estimator="unbiased", normalized=normalized)
    interval = confidence_interval(table, dependence=measure)
    difference = abs(interval.estimate - float(measure(torch.as_tensor(z)[:, None], to_sensitive(s))))
    assert 0.0 < difference <= interval.cell_error < 0.1 * abs(interval.estimate)
    every_value = confidence_interval(
        np.round(z, 2), s if kind == "labels" else np.round(s), dependence=measure
    )
    assert every_value.cell_error == 0.0


@pytest.mark.parametrize("kinds", [("ages", "income"), ("ages", "labels")])
def test_hsic_of_two_columns_jointly_is_that_of_their_table_whatever_the_order_of_the_rows(kinds):
    z, first, _ = rows(kind=kinds[0])
    columns = {"a": first, "b": rows(kind=kinds[1])[1]}
    table = ScoreTable.from_rows(z, list(columns.values()), names=["a", "b"])
    interval = confidence_interval(table, random_state=0)
    order = np.random.default_rng(1).permutation(len(z))
    shuffled = {name: column[order] for name, column in columns.items()}
    for scores, s in ((z, columns), (z[order], shuffled)):
        twin = confidence_interval(scores, s, random_state=0)
        assert (twin.low, twin.estimate, twin.high) == pytest.approx(
            (interval.low, interval.estimate, interval.high), rel=1e-9
        )
        assert twin.notes == interval.notes == (f"a and b together: by {len(table.law().s)} cells.",)
    # The same kernels on the rows themselves.
    scales = Bandwidths.of(table.law())
    measure = HSIC(
        Gaussian(scales.z), default_kernel(to_sensitive(columns).kinds, scales.s), estimator="unbiased"
    )
    of_rows = confidence_interval(z, columns, dependence=measure, groups=np.arange(len(z)), random_state=0)
    of_table = confidence_interval(z, columns, dependence=HSIC(estimator="unbiased"), random_state=0)
    assert of_table.estimate == pytest.approx(of_rows.estimate, rel=0.02)


def test_distance_correlation_has_no_bound_on_what_cells_leave_out():
    z, s, _ = rows(kind="income")
    measure = DistanceCovariance(normalized=True, root=True)
    assert confidence_interval(table_of(z, s), dependence=measure).cell_error is None


def test_two_nights_add_up_to_both():
    z, s, _ = rows()
    whole = table_of(z, s)
    parts = [
        ScoreTable.from_rows(z[part], s[part], names=["age"], score_axis=whole.score, s_axes=whole.s)
        for part in (slice(0, 1_000), slice(1_000, None))
    ]
    found = [confidence_interval(one, dependence=ScoreGap()) for one in (whole, parts[0] + parts[1])]
    assert found[0] == found[1]


def test_weights_count():
    z, s, _ = rows()
    w = np.random.default_rng(1).uniform(0.5, 2.0, len(z))
    found = confidence_interval(table_of(z, s, weights=w), dependence=ScoreGap())
    twin = confidence_interval(z, {"age": s}, dependence=ScoreGap(), sample_weight=w)
    assert (found.low, found.high) == pytest.approx((twin.low, twin.high), rel=0.01)


def test_what_a_table_does_not_have_is_an_error_in_words():
    z, s, y = rows(n=300)
    table = table_of(z, s)
    both = ScoreTable.from_rows(z, [s, s + 1.0])
    refusals = {
        r"^'s' must be left out beside a table": lambda: confidence_interval(table, s),
        r"^'sample_weight' must be left out": lambda: confidence_interval(table, sample_weight=z),
        r"^'dependence' must be left out": lambda: independence_test(table, dependence=HSIC()),
        r"^'given' must be labels of the outcome": lambda: independence_test(table, given=["1"]),
        r"^'given' must be labels of .* Take some of False, True": lambda: independence_test(
            table_of(z, s, y), given="True"
        ),
        r"^'dependence' must be HSIC, .* Got EIPM": lambda: confidence_interval(table, dependence=EIPM()),
        r"must have no 'bandwidth_s'": lambda: confidence_interval(table, dependence=GDP(0.1)),
        r"^'cutoffs' must be borders of the levels": lambda: decision_gaps(table, cutoffs=[1.0 / 3.0]),
        r"^'scores' must vary": lambda: confidence_interval(table_of(z * 0.0, s), dependence=GDP()),
        r"^'s' must vary": lambda: confidence_interval(table_of(z, s * 0.0), dependence=ScoreGap()),
        r"^'scores' must have at most 1,600 cells of s": lambda: confidence_interval(three),
    }
    many = rows()
    three = ScoreTable.from_rows(many[0], list(np.random.default_rng(0).normal(size=(3, 3_000))))
    refusals[r"^'cutoffs' must be borders of the levels"] = lambda: decision_gaps(
        table_of(*many[:2]), cutoffs=[1.0 / 3.0]
    )
    for words, call in refusals.items():
        with pytest.raises((ValueError, TypeError), match=words):
            call()
    assert confidence_interval(both, dependence=ScoreGap()).attributes == ("s0", "s1")
