"""An audit of sketches says what an audit of their rows says."""

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest

from frhsic.auditing import audit, schema
from frhsic.inference import independence_test
from frhsic.sketching import HSICSketch

N = 6_000


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, N)
    score = 1.0 / (1.0 + np.exp(-(((age - 54) / 30.0) ** 2) + rng.normal(size=N)))
    return pd.DataFrame(
        {
            "age": age,
            "sex": np.where(rng.random(N) < 0.4, "f", "m"),
            "score": score,
            "bought": np.where(rng.random(N) < score, "yes", "no"),
            "weight": rng.uniform(0.5, 2.0, N),
        }
    )


def sketched(people, *columns, given=None, weights=None, z="score"):
    s = people[list(columns)]
    sketch = HSICSketch.like(people[z], s)
    for part in np.array_split(np.arange(len(people)), 3):
        rows = people.iloc[part]
        sketch.update(
            rows[z],
            rows[list(columns)],
            None if weights is None else rows[weights],
            given=None if given is None else rows[given],
        )
    return sketch


@pytest.fixture(scope="module")
def ours(people):
    sketches = [sketched(people, *names, given="bought") for names in (["age"], ["sex"], ["age", "sex"])]
    return audit(sketches, random_state=0, positive_label="no")


@pytest.fixture(scope="module")
def theirs(people):
    return audit(
        people["score"],
        sensitive_features=people[["age", "sex"]],
        y_true=people["bought"],
        random_state=0,
        positive_label="no",
    )


def test_every_attribute_has_the_numbers_of_the_rows(ours, theirs):
    for mine, other in zip(ours.every, theirs.every, strict=True):
        assert mine.names == other.names
        assert mine.test.n == N
        assert (mine.test.pvalue < 0.01) == (other.test.pvalue < 0.01)
        assert mine.measures["gdp"].estimate == pytest.approx(other.measures["gdp"].estimate, rel=1e-6)
        for name in ("normalized_hsic", "hsic"):
            a, b = mine.measures[name], other.measures[name]
            assert a.low <= b.estimate <= a.high
            assert b.low <= a.estimate <= b.high
        assert ("distance_correlation" in mine.measures) == (len(mine.names) == 1)
        if len(mine.names) == 1:
            assert mine.measures["distance_correlation"].n == 5_000
    assert ours.attributes[0].curve.points == theirs.attributes[0].curve.points
    np.testing.assert_allclose(ours.attributes[0].curve.mean, theirs.attributes[0].curve.mean, rtol=1e-9)


def test_columns_are_described_as_from_the_rows(ours, theirs):
    assert (ours.n, ours.subject, ours.width) == (N, "score", 1)
    assert [c.counts for c in ours.columns] == [c.counts for c in theirs.columns]
    assert [c.labels for c in ours.columns] == [c.labels for c in theirs.columns]
    assert (ours.columns[0].low, ours.columns[0].high) == (theirs.columns[0].low, theirs.columns[0].high)
    assert ours.columns[0].mean == pytest.approx(theirs.columns[0].mean)
    assert ours.score.low == pytest.approx(theirs.score.low, abs=1e-3)
    assert ours.score.high == pytest.approx(theirs.score.high, abs=1e-3)
    assert ours.score.unit_interval


def test_the_outcome_is_asked_label_by_label(ours, theirs):
    mine, other = ours.attribute("age").outcome, theirs.attribute("age").outcome
    assert mine.equal_opportunity == other.equal_opportunity == "no"
    for a, b in zip(mine.labels, other.labels, strict=True):
        assert (a.label, a.n) == (b.label, b.n)
        assert a.gdp.estimate == pytest.approx(b.gdp.estimate, rel=1e-6)
    assert mine.equalized_odds.pvalue == other.equalized_odds.pvalue == 0.001
    assert mine.equalized_odds.n == N
    assert mine.calibration is None


def test_what_came_from_stored_rows_is_said(ours):
    assert any("5,000 rows drawn at random" in note for note in ours.notes)
    assert ours.attribute("age").measures["kernel_hgr"].n == 1_000
    jsonschema.validate(json.loads(json.dumps(ours.to_dict())), schema())


def test_weights_and_a_representation_are_taken_from_the_sketch(people):
    wide = people.assign(other=people["score"] ** 2)
    s = wide[["age"]]
    sketch = HSICSketch.like(wide[["score", "other"]], s)
    sketch.update(wide[["score", "other"]], s, wide["weight"])
    found = audit(sketch, random_state=0)
    assert (found.subject, found.width, found.weighted) == ("representation", 2, True)
    assert found.certificate is None
    assert found.representation.recovered[0].attribute == "age"
    assert "gdp" not in found.attribute("age").measures


def test_within_labels_a_sketch_is_tested_by_the_mean_over_them(people):
    sketch = sketched(people, "age", given="bought")
    test = independence_test(sketch, given=sketch.labels, random_state=0)
    shares = [sketch.at(label).n_rows / N for label in sketch.labels]
    values = [sketch.at(label).value() for label in sketch.labels]
    assert test.statistic == pytest.approx(np.dot(shares, values))
    with pytest.raises(ValueError, match=r"'given' must be labels of the sketch.*Got 'maybe'"):
        independence_test(sketch, given=["maybe"])


def test_sketches_of_other_rows_or_without_the_joint_one_are_refused(people):
    age, sex = sketched(people, "age"), sketched(people, "sex")
    with pytest.raises(ValueError, match="'scores' must be one sketch for each sensitive column"):
        audit([age, sex])
    with pytest.raises(ValueError, match="'scores' must be one sketch for each sensitive column"):
        audit([age, sketched(people[:3_000], "sex"), sketched(people, "age", "sex")])
    with pytest.raises(ValueError, match="'y_true' must be left out beside a sketch"):
        audit(age, y_true=people["bought"])
    with pytest.raises(ValueError, match="'positive_label' must be a label of the sketch"):
        audit(age, positive_label="yes")
    with pytest.raises(ValueError, match="'scores' must have at least 50 rows"):
        audit(sketched(people[:40], "age"))


def test_ids_that_are_shared_by_rows_are_noted() -> None:
    rng = np.random.default_rng(0)
    s, score = rng.normal(size=(2, 600))
    for ids, noted in ((np.arange(600), False), (np.arange(600) // 3, True)):
        sketch = HSICSketch.like(score, {"age": s}).update(score, {"age": s}, ids=ids)
        assert any("600 of 600 stored rows share their id" in note for note in audit(sketch).notes) == noted
    grouped = HSICSketch.like(score, {"age": s}).update(score, {"age": s}, groups=np.arange(600) // 3)
    found = audit(grouped)
    assert not any("share their id" in note for note in found.notes)
    assert any("only the test and HSIC count these" in note for note in found.notes)
    assert list(found.attributes[0].measures) == ["normalized_hsic", "hsic", "kernel_hgr"]
    assert found.attributes[0].curve is found.attributes[0].profile is None
