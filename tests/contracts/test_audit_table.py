"""The audit of a table of counts is that of its rows."""

import json

import jsonschema
import numpy as np
import pytest

import frhsic
from frhsic.auditing import _tables, schema
from frhsic.table import Axis, ScoreTable
from frhsic.table._draw import draw_rows


def people(n=3_000):
    rng = np.random.default_rng(0)
    age = rng.integers(20, 60, n).astype(float)
    region = rng.choice(["north", "south", "west"], n)
    score = 1.0 / (1.0 + np.exp(-rng.normal(size=n) - 0.03 * (age - 40) - 0.4 * (region == "west")))
    return np.round(score, 3), age, region, np.where(rng.random(n) < score, "paid", "default")


def tables(score, age, region, y, **more):
    options = {"outcome": y, "at_scores": (0.5,), **more}
    return [
        ScoreTable.from_rows(score, age, names=["age"], **options),
        ScoreTable.from_rows(score, region, names=["region"], **options),
        ScoreTable.from_rows(score, [age, region], names=["age", "region"], **options),
    ]


@pytest.fixture(scope="module")
def both():
    score, age, region, y = people()
    options = {"thresholds": 0.5, "random_state": 0, "regions": {"age >= 50": "above"}}
    rows = frhsic.audit(score, sensitive_features={"age": age, "region": region}, y_true=y, **options)
    return frhsic.audit(tables(score, age, region, y), **options), rows


def test_the_numbers_are_those_of_the_rows(both):
    table, rows = both
    assert (table.n, table.columns[1].counts) == (rows.n, rows.columns[1].counts)
    for mine, theirs in zip(table.attributes, rows.attributes, strict=True):
        assert mine.test.pvalue == pytest.approx(theirs.test.pvalue, abs=0.01)
        for name, found in theirs.measures.items():
            near = {"abs": 0.1} if name == "kernel_hgr" else {"rel": 0.02, "abs": 1e-3}
            assert mine.measures[name].estimate == pytest.approx(found.estimate, **near), name
        assert mine.decisions[0].gap.plug_in == pytest.approx(theirs.decisions[0].gap.plug_in, rel=1e-9)
        assert mine.decisions[0].rate == pytest.approx(theirs.decisions[0].rate)
        ends = ((one.curve.mean, one.curve.low, one.curve.high) for one in (mine, theirs))
        for ours, others in zip(*ends, strict=True):
            assert ours == pytest.approx(others, abs=2e-3)
        assert mine.outcome.auc.overall == pytest.approx(theirs.outcome.auc.overall, abs=1e-3)
        assert mine.outcome.calibration_gap.plug_in == pytest.approx(
            theirs.outcome.calibration_gap.plug_in, abs=1e-3
        )
        assert mine.outcome.curve.mean == pytest.approx(theirs.outcome.curve.mean)
        for ours, others in zip(mine.outcome.labels, theirs.outcome.labels, strict=True):
            assert (ours.label, ours.n) == (others.label, others.n)
            assert ours.gdp.plug_in == pytest.approx(others.gdp.plug_in, rel=1e-2)
    region = (one.attribute("age").regions[0].answer.difference for one in both)
    assert next(region) == pytest.approx(next(region), abs=1e-3)


def test_the_claims_are_those_of_the_rows(both):
    table, rows = ({(one.question, one.says, one.attributes, one.label) for one in x.claims} for x in both)
    assert table == rows


def test_it_says_what_it_is_from_and_its_json_has_the_form(both):
    table, _ = both
    assert any(note.startswith("From a table of counts (ScoreTable(3,000 rows") for note in table.notes)
    assert not any("same score and attributes" in note for note in table.notes)
    plain = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    jsonschema.Draft202012Validator(schema()).validate(plain)
    assert plain["record"]["options"]["method"] == "counts"
    assert plain["repeated"] is None


def test_weights_count():
    score, age, _, _ = people()
    w = np.random.default_rng(1).uniform(0.5, 2.0, len(score))
    table = ScoreTable.from_rows(score, age, sample_weight=w, names=["age"])
    found = frhsic.audit(table, random_state=0)
    rows = frhsic.audit(score, sensitive_features={"age": age}, sample_weight=w, random_state=0)
    for name in ("gap", "gdp", "normalized_hsic"):
        ours, theirs = (one.attributes[0].measures[name].estimate for one in (found, rows))
        assert ours == pytest.approx(theirs, rel=0.02, abs=1e-3)


def test_many_rows_are_drawn_for_curves_and_all_of_them_count_in_gaps(monkeypatch):
    monkeypatch.setattr(_tables, "_DRAWN", 2_000)
    score, age, _, _ = people()
    axes = {"score_axis": Axis.of_values(score), "s_axes": (Axis.of_values(age, "age"),)}
    one = ScoreTable.from_rows(score, age, **axes)
    many = one
    for _ in range(3):
        many = many + many
    found = frhsic.audit(many, random_state=0)
    assert found.n == 8 * 3_000
    assert any("2,000 rows drawn from it at random" in note for note in found.notes)
    gap = found.attributes[0].measures["gap"]
    assert (gap.n, found.attributes[0].curve.n) == (24_000, 2_000)
    alone = frhsic.audit(one, random_state=0).attributes[0].measures["gap"]
    assert gap.plug_in == pytest.approx(alone.plug_in, abs=2e-3)
    assert gap.high - gap.low < 0.5 * (alone.high - alone.low)


def test_rows_of_a_table_have_its_counts_and_the_means_of_its_cells():
    rng = np.random.default_rng(0)
    income, score = rng.lognormal(size=4_000), rng.random(4_000)
    table = ScoreTable.from_rows(score, income, outcome=score > 0.5, names=["income"], levels=32, cells=16)
    rows = draw_rows(table, 10_000)
    again = ScoreTable.from_rows(
        rows.scores,
        rows.s[:, 0],
        outcome=np.array(table.outcome.labels)[rows.outcome],
        score_axis=table.score,
        s_axes=table.s,
        names=["income"],
    )
    assert (again.counts == table.counts).all()
    assert rows.s.sum() == pytest.approx(income.sum(), rel=1e-6)
    assert rows.scores.sum() == pytest.approx(score.sum(), rel=1e-6)
    some = draw_rows(table, 1_000)
    assert len(some.scores) == 1_000
    assert (some.scores == draw_rows(table, 1_000).scores).all()


def test_what_does_not_fit_is_an_error_in_words():
    score, age, region, y = people()
    first, second, joint = tables(score, age, region, y)
    for given in ([first, second], [first, first, joint], [joint], [first, second, joint.only(0)]):
        with pytest.raises(ValueError, match=r"^'scores' must be one table for each sensitive column"):
            frhsic.audit(given)
    with pytest.raises(ValueError, match=r"^'sensitive_features' must be left out beside a table of counts"):
        frhsic.audit(first, sensitive_features=age)
    with pytest.raises(ValueError, match=r"at least 50 rows"):
        frhsic.audit(ScoreTable.from_rows(score[:20], age[:20]))
    with pytest.raises(ValueError, match=r"positive_label"):
        frhsic.audit(first, positive_label="maybe")
