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
            "other": score**2 + 0.1 * rng.normal(size=N),
            "bought": np.where(rng.random(N) < score, "yes", "no"),
            "weight": rng.uniform(0.5, 2.0, N),
        }
    )


def sketched(people, *columns, given=None, weights=None, z=("score", "other")):
    s, z = people[list(columns)], list(z)
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
        people[["score", "other"]],
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
        for name in ("normalized_hsic", "hsic"):
            a, b = mine.measures[name], other.measures[name]
            assert a.low <= b.estimate <= a.high
            assert b.low <= a.estimate <= b.high
        assert ("distance_correlation" in mine.measures) == (len(mine.names) == 1)
        if len(mine.names) == 1:
            assert mine.measures["distance_correlation"].n == 5_000
        assert "gdp" not in mine.measures


def test_columns_are_described_as_from_the_rows(ours, theirs):
    assert (ours.n, ours.subject, ours.width) == (N, "representation", 2)
    assert [c.counts for c in ours.columns] == [c.counts for c in theirs.columns]
    assert [c.labels for c in ours.columns] == [c.labels for c in theirs.columns]
    assert (ours.columns[0].low, ours.columns[0].high) == (theirs.columns[0].low, theirs.columns[0].high)
    assert ours.columns[0].mean == pytest.approx(theirs.columns[0].mean, abs=0.5)  # of 5,000 rows


def test_the_outcome_is_asked_label_by_label(ours, theirs):
    mine, other = ours.attribute("age").outcome, theirs.attribute("age").outcome
    assert mine.equal_opportunity == other.equal_opportunity == "no"
    for a, b in zip(mine.labels, other.labels, strict=True):
        assert (a.label, a.n, a.gdp) == (b.label, b.n, b.gdp)
    assert mine.equalized_odds.pvalue == other.equalized_odds.pvalue == 0.001
    assert mine.equalized_odds.n == N
    assert mine.calibration is None


def test_what_came_from_stored_rows_is_said(ours):
    assert any("5,000 rows drawn at random" in note for note in ours.notes)
    assert any("Calibration, the base rate and the AUC are not part" in note for note in ours.notes)
    assert ours.attribute("age").measures["kernel_hgr"].n == 1_000
    jsonschema.validate(json.loads(json.dumps(ours.to_dict())), schema())


def test_weights_and_a_representation_are_taken_from_the_sketch(people):
    found = audit(sketched(people, "age", weights="weight"), random_state=0)
    assert (found.subject, found.width, found.weighted) == ("representation", 2, True)
    assert found.certificate is None
    assert found.representation.recovered[0].attribute == "age"


def test_the_weight_of_each_value_is_that_of_the_rows(people):
    shares = people.groupby("sex")["weight"].sum() / people["weight"].sum()
    masses = sketched(people, "sex", weights="weight").masses
    np.testing.assert_allclose(masses.numpy(), shares, rtol=1e-12)
    assert sketched(people, "age", "sex").masses is None


def test_a_score_without_groups_is_counted_and_not_sketched(people):
    with pytest.raises(
        ValueError, match="'scores' must be sketches of several columns, or of rows in groups"
    ):
        audit(sketched(people, "age", z=["score"]))


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
    s, z = rng.normal(size=600), rng.normal(size=(600, 2))
    for ids, noted in ((np.arange(600), False), (np.arange(600) // 3, True)):
        sketch = HSICSketch.like(z, {"age": s}).update(z, {"age": s}, ids=ids)
        assert any("600 of 600 stored rows share their id" in note for note in audit(sketch).notes) == noted
    score = z[:, 0]
    grouped = HSICSketch.like(score, {"age": s}).update(score, {"age": s}, groups=np.arange(600) // 3)
    found = audit(grouped)
    assert not any("share their id" in note for note in found.notes)
    assert any("only the test and HSIC count these" in note for note in found.notes)
    assert list(found.attributes[0].measures) == ["normalized_hsic", "hsic", "kernel_hgr"]
    assert found.attributes[0].curve is found.attributes[0].profile is None
