"""An audit of decisions: thresholds, regions, and what the outputs say of them."""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import pandas as pd
import pytest

from frhsic.auditing import audit, schema
from frhsic.cli import run
from frhsic.dependence import ScoreGap
from frhsic.inference import conditional_curve, decision_gaps, region_test
from frhsic.report import render_report


def people(n=800, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 30, n)
    sex = np.where(rng.random(n) < 0.5, "f", "m")
    score = 1 / (1 + np.exp(-rng.normal(size=n) - 0.3 * (age > 24)))
    return score, pd.DataFrame({"age": age, "sex": sex})


@pytest.fixture(scope="module")
def found():
    score, s = people()
    regions = {"age >= 25": "above", "sex = f": "below"}
    return audit(score, sensitive_features=s, thresholds=[0.5, 0.7], regions=regions, random_state=0)


def test_each_number_is_that_of_the_function_behind_it(found):
    score, s = people()
    on_age = found.attribute("age")
    gaps = decision_gaps(score, s["age"].to_frame())
    assert replace(on_age.cutoffs, cutoffs=gaps.cutoffs) == gaps
    # Each cut-off lies among ten scores: nearly the same decisions, and no digits of a row's own score.
    for mine, raw in zip(on_age.cutoffs.cutoffs, gaps.cutoffs, strict=True):
        assert ((score > mine) != (score > raw)).sum() <= 5
        assert mine not in score
    decision = on_age.decisions[0]
    curve = conditional_curve((score > 0.5).astype(float), s["age"].to_frame(), random_state=0)
    assert decision.curve.mean == pytest.approx(curve.mean)
    assert decision.rate == pytest.approx(np.mean(score > 0.5))
    answer = region_test(score, s["age"] >= 25, side="above", random_state=0)
    assert on_age.regions[0].answer == answer
    assert on_age.regions[0].region == "age >= 25"
    assert found.attribute("sex").regions[0].answer.n_inside == int((s["sex"] == "f").sum())


def test_the_ratio_is_that_of_the_lowest_to_the_highest_rate_within_the_band(found):
    score, s = people()
    for one in found.attribute("age").decisions:
        rates = pd.Series(score > one.threshold).groupby(s["age"]).mean()
        assert one.ratio == pytest.approx(rates.min() / rates.max())
        assert (one.lowest, one.highest) == (rates.idxmin(), rates.idxmax())
        assert 0.0 <= one.ratio_low < one.ratio < one.ratio_high <= 1.0
        assert min(one.curve.low) >= 0.0
        assert max(one.curve.high) <= 1.0


def test_the_summary_says_it_in_points(found):
    text = str(found)
    gap = found.attribute("age").measures["gap"]
    assert f"Score distributions along age differ by {100 * gap.estimate:.1f} percentage points" in text
    assert "decisions at 0.5 by" in text
    assert "at the worst cut-off, " in text
    assert "At the threshold 0.7, " in text
    assert "four-fifths" in text
    assert "Asked beforehand: the mean score where age >= 25 is above that of the others" in text
    assert "fair" not in text


def test_units_that_are_no_probabilities_keep_decisions_in_percentage_points():
    score, s = people()
    text = str(audit(100 * score, sensitive_features=s["age"].to_frame(), thresholds=50, random_state=0))
    assert "units of the score on average" in text
    assert "decisions at 50 by" in text
    assert "percentage points; at the worst cut-off" in text


def test_json_follows_the_schema_and_the_report_shows_decisions(found):
    document = json.loads(json.dumps(found.to_dict()))
    jsonschema.Draft202012Validator(schema()).validate(document)
    assert document["attributes"][0]["decisions"][1]["threshold"] == 0.7
    page = render_report(found)
    assert "Gap of decisions at 0.7" in page
    assert "Share of scores above 0.5 along age" in page
    frame = found.to_frame()
    assert set(frame["measure"]) >= {"gap", "gap_worst", "gap of decisions at 0.5"}


def test_a_threshold_beyond_all_scores_is_a_note():
    score, s = people()
    found = audit(score, sensitive_features=s["age"].to_frame(), thresholds=[2.0], random_state=0)
    assert found.attribute("age").decisions == ()
    assert any("No decisions at 2: all scores are below" in note for note in found.notes)


def test_a_region_of_few_rows_is_a_note():
    score, s = people()
    found = audit(
        score, sensitive_features=s["age"].to_frame(), regions={"age > 40": "below"}, random_state=0
    )
    assert found.attribute("age").regions == ()
    assert any("No answer about age > 40" in note for note in found.notes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"thresholds": [float("nan")]}, "finite numbers"),
        ({"thresholds": ["half"]}, "finite numbers"),
        ({"regions": {"age >= 25": "beside"}}, "'below' or 'above'"),
        ({"regions": {"age": "below"}}, "COLUMN, one of"),
        ({"regions": {"income > 3": "below"}}, "of a sensitive column"),
        ({"regions": {"age > old": "below"}}, "compare with a number"),
        ({"regions": {"sex > f": "below"}}, "with a label of the column"),
        ({"regions": {"sex = x": "below"}}, "Take one of f, m"),
    ],
)
def test_what_is_asked_is_checked_first(arguments, message):
    score, s = people(100)
    with pytest.raises(ValueError, match=message):
        audit(score, sensitive_features=s, **arguments)


def test_a_representation_decides_nothing():
    score, s = people(100)
    with pytest.raises(ValueError, match="come with one score"):
        audit(np.stack([score, score**2], axis=1), sensitive_features=s, thresholds=0.5)


def test_the_command_asks_and_stops_on_decisions(tmp_path, capsys):
    score, s = people()
    s.assign(score=score).to_csv(tmp_path / "s.csv", index=False)
    command = ["audit", str(tmp_path / "s.csv"), "--score", "score", "--sensitive", "age"]
    asked = [
        "--threshold",
        "0.5",
        "--threshold",
        "0.7",
        "--below",
        "age >= 27",
        "--fail-above",
        "gap_at=0.01",
    ]
    assert run([*command, *asked]) == 0
    assert "NOT SHOWN: gap of decisions at 0.5 on age" in capsys.readouterr().err
    assert run([*command, *asked, "--fail-on", "upper"]) == 1
    printed = capsys.readouterr()
    assert "decisions at 0.7" in printed.out
    assert "NOT SHOWN: gap of decisions at 0.5 on age" in printed.err
    assert run([*command, *asked, "--fail-on", "estimate"]) == 1
    for wrong, message in (
        (["--fail-above", "gap_at=0.01"], "--threshold"),
        (["--below", "age > 25", "--above", "age > 25"], "other regions than --below"),
        (["--below", "zone > 25"], "--below or --above must be of a sensitive column"),
    ):
        assert run([*command, *wrong]) == 2
        assert message in capsys.readouterr().err


def test_cut_offs_may_be_numbers_of_numpy():
    half = np.float32(0.5)
    assert ScoreGap(cutoff=half).cutoff == 0.5
    rng = np.random.default_rng(0)
    age, score = rng.integers(18, 60, 300), rng.random(300)
    found = audit(score, sensitive_features={"age": age}, thresholds=half, random_state=0)
    assert [one.threshold for one in found.attribute("age").decisions] == [0.5]
    for wrong in (np.float32("nan"), np.bool_(True), "0.5"):
        with pytest.raises(ValueError, match="finite number"):
            audit(score, sensitive_features={"age": age}, thresholds=[wrong], random_state=0)
