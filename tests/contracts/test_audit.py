"""What an audit holds, refuses and never tells."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from scipy import stats

from frhsic.auditing import MEASURES, Audit, AuditMeasure, Estimate, audit, schema
from frhsic.dependence import GDP, HSIC, DistanceCovariance
from frhsic.inference import (
    conditional_curve,
    confidence_interval,
    independence_test,
    localized_profile,
)

ROOT = Path(__file__).parents[2]


def table(n: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    age = rng.integers(18, 91, n)
    sex = rng.choice(["f", "m"], n)
    score = 1 / (1 + np.exp(-(((age - 54) / 20) ** 2 - 1.5 + 0.4 * (sex == "m") + rng.normal(size=n))))
    return {
        "age": age,
        "sex": sex,
        "score": score,
        "y": (rng.random(n) < score).astype(int),
        "w": rng.uniform(0.5, 2.0, n),
        "z": np.column_stack((score, rng.normal(size=(n, 2)))),
    }


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    return table()


@pytest.fixture(scope="module")
def of_score(rows: dict[str, Any]) -> Audit:
    return audit(
        rows["score"],
        sensitive_features={"age": rows["age"], "sex": rows["sex"]},
        y_true=rows["y"],
        random_state=5,
    )


@pytest.fixture(scope="module")
def of_representation(rows: dict[str, Any]) -> Audit:
    return audit(rows["z"], sensitive_features={"age": rows["age"]}, y_true=rows["y"], random_state=5)


@pytest.fixture(scope="module")
def weighted(rows: dict[str, Any]) -> Audit:
    return audit(
        rows["score"],
        sensitive_features={"age": rows["age"]},
        y_true=rows["y"],
        sample_weight=rows["w"],
        random_state=5,
    )


# ---- each number is that of the function it names ---------------------------------------------------------


def test_each_number_is_that_of_its_function_with_the_seed_of_the_audit(
    rows: dict[str, Any], of_score: Audit
) -> None:
    z, found = rows["score"], of_score.attribute("age")
    s = {"age": rows["age"]}
    assert of_score.seed == 5
    assert list(found.measures) == list(MEASURES)
    for name, measure in (
        ("gdp", GDP()),
        ("hsic", HSIC(estimator="unbiased")),
        ("normalized_hsic", HSIC(estimator="unbiased", normalized=True)),
        ("distance_correlation", DistanceCovariance(normalized=True, root=True)),
    ):
        assert found.measures[name] == confidence_interval(z, s, dependence=measure, random_state=5)
    level = 1 - 0.05 / (3 * 2 * 2)  # three questions, two attributes, mean and distribution
    draws = {"n_draws": math.ceil(20 / (1 - level)), "random_state": 5}
    assert found.curve == conditional_curve(z, s, confidence_level=level, **draws)
    pairings = math.ceil(1 / (1 - level))
    profile = localized_profile(z, s, confidence_level=level, n_permutations=pairings, random_state=5)
    assert found.profile == profile
    single = independence_test(z, s, random_state=5)
    assert replace(found.test, adjusted=None) == single
    both = {"age": rows["age"], "sex": rows["sex"]}
    assert of_score.joint is not None
    assert replace(of_score.joint.test, adjusted=None) == independence_test(z, both, random_state=5)
    assert of_score.certificate is None


def test_several_attributes_are_corrected_and_a_single_one_without_an_outcome_is_not(
    rows: dict[str, Any], of_score: Audit
) -> None:
    """By the gate, the number of attributes and that of questions: written out here."""
    assert of_score.joint is not None
    for which in ("test", "equalized_odds"):
        tests = [one if which == "test" else one.outcome for one in of_score.every]
        found = [getattr(one, which) for one in tests]
        first, second, joint = (test.pvalue for test in found)
        gate = min(joint / 0.2, 2 * min(first, second) / 0.8)
        wanted = [min(1, 3 * max(gate, 2 * first)), min(1, 3 * max(gate, 2 * second)), min(1, 3 * gate)]
        assert [test.adjusted for test in found] == pytest.approx(wanted)
    single = audit(rows["score"], sensitive_features={"age": rows["age"]}, random_state=5)
    assert single.attributes[0].test.adjusted is None
    assert single.joint is None
    assert single.attributes[0].curve.confidence_level == 0.975  # type: ignore[union-attr]


def test_labels_of_the_outcome_are_audits_of_their_rows(rows: dict[str, Any], of_score: Audit) -> None:
    outcome = of_score.attribute("age").outcome
    assert outcome is not None
    assert outcome.equal_opportunity == "1"
    for given in outcome.labels:
        kept = rows["y"] == int(given.label)
        assert given.n == kept.sum()
        assert given.gdp == confidence_interval(
            rows["score"][kept], {"age": rows["age"][kept]}, dependence=GDP(), random_state=5
        )
    test = independence_test(rows["score"], {"age": rows["age"]}, given=rows["y"], random_state=5)
    assert outcome.equalized_odds is not None
    assert replace(outcome.equalized_odds, adjusted=None) == test


def test_calibration_is_the_curve_of_what_the_score_misses(rows: dict[str, Any], of_score: Audit) -> None:
    outcome = of_score.attribute("age").outcome
    assert outcome is not None
    missed = rows["y"] - rows["score"]
    level = 1 - 0.05 / (3 * 2)
    draws = math.ceil(20 / (1 - level))
    assert outcome.calibration == conditional_curve(
        missed, {"age": rows["age"]}, confidence_level=level, n_draws=draws, random_state=5
    )
    assert outcome.calibration is not None
    assert outcome.calibration.overall == pytest.approx(missed.mean())


def test_a_score_that_is_no_probability_has_no_calibration_for_labels(rows: dict[str, Any]) -> None:
    found = audit(
        10 * rows["score"], sensitive_features={"age": rows["age"]}, y_true=rows["y"], random_state=0
    )
    outcome = found.attributes[0].outcome
    assert outcome is not None
    assert outcome.calibration is None
    assert "units of the score" in str(found)


def test_an_outcome_that_is_a_number_has_calibration_and_no_labels(rows: dict[str, Any]) -> None:
    number = rows["score"] + np.random.default_rng(0).normal(size=300)
    found = audit(rows["score"], sensitive_features={"age": rows["age"]}, y_true=number, random_state=0)
    outcome = found.attributes[0].outcome
    assert outcome is not None
    assert outcome.labels == ()
    assert outcome.equalized_odds is None
    assert outcome.calibration is not None


def test_two_columns_of_probabilities_are_a_score(rows: dict[str, Any], of_score: Audit) -> None:
    both = np.column_stack((1 - rows["score"], rows["score"]))
    found = audit(both, sensitive_features={"age": rows["age"]}, random_state=5)
    assert found.subject == "score"
    assert found.attributes[0].measures["gdp"] == of_score.attribute("age").measures["gdp"]
    assert "second is the score" in found.notes[0]


# ---- representations --------------------------------------------------------------------------------------


def test_a_representation_has_heads_recovery_and_a_certificate_but_no_curve(of_representation: Audit) -> None:
    found = of_representation
    assert found.subject == "representation"
    assert "gdp" not in found.attributes[0].measures
    assert found.attributes[0].curve is None
    assert found.representation is not None
    assert [row.head for row in found.representation.transfer] == ["linear", "MLP", "forest", "boosted"]
    assert found.certificate is not None
    assert found.certificate.heads


def test_age_is_recovered_by_boosting_where_the_dependence_is_a_u_shape(rows: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    age = rng.uniform(-1, 1, 600)
    z = np.column_stack((age**2 + 0.05 * rng.normal(size=600), rng.normal(size=600)))
    of_square = audit(z, sensitive_features={"square": age**2, "age": age}, random_state=0)
    assert of_square.representation is not None
    square, plain = of_square.representation.recovered
    assert square.boosted > 0.8
    assert square.linear > 0.8
    assert abs(plain.linear) < 0.1
    assert plain.boosted < 0.5


def test_recovery_of_labels_is_one_minus_the_brier_score_over_that_of_the_shares() -> None:
    rng = np.random.default_rng(1)
    sex = rng.choice(["f", "m"], 400)
    z = np.column_stack((np.where(sex == "m", 3.0, -3.0) + rng.normal(size=400), rng.normal(size=400)))
    found = audit(z, sensitive_features={"sex": sex}, random_state=0).representation
    assert found is not None
    assert found.recovered[0].linear > 0.9
    noise = audit(rng.normal(size=(400, 2)), sensitive_features={"sex": sex}, random_state=0).representation
    assert noise is not None
    assert noise.recovered[0].linear < 0.05


# ---- weights, training rows, words ------------------------------------------------------------------------


def test_a_representation_with_weights_has_no_certificate_and_says_so(rows: dict[str, Any]) -> None:
    found = audit(rows["z"], sensitive_features={"age": rows["age"]}, sample_weight=rows["w"], random_state=5)
    assert found.certificate is None
    assert any("certificate" in note for note in found.notes)


def test_weights_change_every_measure(rows: dict[str, Any], weighted: Audit, of_score: Audit) -> None:
    for name in ("gdp", "hsic", "normalized_hsic", "distance_correlation"):
        other = of_score.attribute("age").measures[name]
        assert weighted.attributes[0].measures[name].estimate != other.estimate
    same = audit(
        rows["score"],
        sensitive_features={"age": rows["age"]},
        sample_weight=np.full(300, 2.0),
        random_state=5,
    )
    assert not same.weighted
    assert same.attributes[0].measures["gdp"] == of_score.attribute("age").measures["gdp"]


def test_rows_used_for_training_bring_a_warning_first(rows: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="used to train"):
        found = audit(rows["score"], sensitive_features={"age": rows["age"]}, trained_on=True, random_state=0)
    assert found.sentences()[0].startswith("These rows were used to train")


def test_the_summary_answers_in_order_and_gives_no_verdict(of_score: Audit) -> None:
    first, *_, last = of_score.sentences()
    for part in (
        "The score depends on age (p = 0.0075, corrected",
        "percentage points on average",
        "95% interval",
        "under independence that is ",
        "above the overall mean up to",
    ):
        assert part in first
    assert "does not show" in last
    words = str(of_score).lower()
    for verdict in ("fair", "biased", "discriminat", "compliant"):
        assert verdict not in words


def test_not_seen_is_said_to_be_no_evidence(rows: dict[str, Any]) -> None:
    noise = np.random.default_rng(11).random(300)
    found = audit(noise, sensitive_features={"age": rows["age"]}, random_state=0)
    assert found.attributes[0].test.pvalue > 0.05
    assert "no evidence of independence" in str(found)


# ---- the file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["of_score", "of_representation", "weighted"])
def test_the_dictionary_follows_the_schema_as_strict_json(which: str, request: pytest.FixtureRequest) -> None:
    found: Audit = request.getfixturevalue(which)
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["schema"] == schema()["title"] == "frhsic.audit/3"
    jsonschema.Draft202012Validator(schema()).validate(read)


def test_the_schema_is_the_one_that_was_promised_under_its_number() -> None:
    number = schema()["title"].rpartition("/")[2]
    promised = json.loads((ROOT / "docs" / "reference" / f"audit-{number}.schema.json").read_text())
    assert schema() == promised, "the form changed: raise the number of the schema and write a new file"


def test_the_frame_has_a_row_for_each_measure_of_each_attribute(of_score: Audit) -> None:
    frame = of_score.to_frame()
    assert list(frame["attribute"].unique()) == ["age", "sex", "age and sex"]
    age = frame[frame["attribute"] == "age"].set_index("measure")
    assert age.loc["gdp", "estimate"] == of_score.attribute("age").measures["gdp"].estimate
    assert age.loc["independence test", "pvalue"] == of_score.attribute("age").test.pvalue


def test_repr_is_one_short_line_for_every_result(of_score: Audit, of_representation: Audit) -> None:
    found = of_score.attribute("age")
    parts = [of_score, found, found.test, *found.measures.values(), found.curve, found.profile, found.outcome]
    parts += [of_score.score, of_representation, of_representation.certificate]
    parts += [of_representation.representation]
    for part in parts:
        assert len(repr(part)) <= 250
        assert repr(part).startswith(f"{type(part).__name__}(")
    assert "pvalue=0.001" in repr(found.test)
    assert "null=(999 items)" in repr(replace(found.test, notes=()))


# ---- one more measure --------------------------------------------------------------------------------------


def spearman(subject: Any) -> Estimate:
    """Compute |Spearman's correlation| of the score with one column, beside its permutations."""
    ranks = [
        np.argsort(np.argsort(x)) for x in (subject.rows.z[:, 0].numpy(), subject.rows.s.values[:, 0].numpy())
    ]
    rng = np.random.default_rng(subject.settings.seed)
    null = [abs(np.corrcoef(ranks[0], rng.permutation(ranks[1]))[0, 1]) for _ in range(99)]
    value = float(abs(np.corrcoef(*ranks)[0, 1]))
    level = subject.settings.confidence_level
    return Estimate(value, "Spearman", float(np.mean(null)), float(np.quantile(null, level)), subject.rows.n)


def test_a_measure_that_is_added_appears_in_every_output(
    rows: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the result, the frame, the JSON, the HTML report, the terminal and the gate: by its entry alone."""
    from frhsic.cli import run

    toy = AuditMeasure(
        name="spearman",
        title="rank correlation",
        means="Monotone dependence of {z} on {s}.",
        not_means="A U-shape has none.",
        compute=spearman,
        has_interval=False,
    )
    monkeypatch.setitem(MEASURES, toy.name, toy)
    found = audit(rows["score"], sensitive_features={"age": rows["age"]}, random_state=0)
    result = found.attributes[0].measures["spearman"]
    wanted = abs(stats.spearmanr(rows["score"], rows["age"]).statistic)
    assert result.estimate == pytest.approx(wanted, abs=0.02)  # ties
    assert "spearman" in set(found.to_frame()["measure"])

    lines = [f"{a},{b}" for a, b in zip(rows["score"], rows["age"], strict=True)]
    (tmp_path / "a.csv").write_text("score,age\n" + "\n".join(lines))
    line = ["audit", str(tmp_path / "a.csv"), "--score", "score", "--sensitive", "age"]
    out = ["--json", str(tmp_path / "a.json"), "--report", str(tmp_path / "a.html")]
    assert run([*line, *out, "--fail-above", "spearman=0"]) == 1
    printed, failed = capsys.readouterr()
    assert re.search(r"^rank correlation +0\.\d+", printed, re.MULTILINE)
    assert "FAILED: rank correlation on age is 0." in failed
    assert run([*line, "--fail-above", "spearman=1"]) == 0
    read = json.loads((tmp_path / "a.json").read_text())
    jsonschema.Draft202012Validator(schema()).validate(read)
    recorded = read["attributes"][0]["measures"]["spearman"]["estimate"]
    assert recorded == pytest.approx(result.estimate, rel=1e-3)
    html = (tmp_path / "a.html").read_text()
    for text in ("Rank correlation", "Monotone dependence of the score on age.", "A U-shape has none."):
        assert text in html


def test_a_measure_that_cannot_be_computed_is_a_note(
    rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(subject: Any) -> None:
        raise ValueError("too few rows")

    monkeypatch.setitem(MEASURES, "toy", AuditMeasure("toy", "toy measure", "", "", fail))
    found = audit(rows["score"], sensitive_features={"age": rows["age"]}, random_state=0)
    assert "toy" not in found.attributes[0].measures
    assert "No toy measure on age: too few rows" in found.notes


# ---- what is never told -----------------------------------------------------------------------------------


def test_labels_of_few_rows_and_extremes_of_numbers_are_not_told(rows: dict[str, Any]) -> None:
    town = np.where(np.arange(300) < 3, "Ada Lovelace", rows["sex"])
    age = rows["age"].astype(float)
    age[0] = 117.0
    found = audit(rows["score"], sensitive_features={"town": town, "age": age}, random_state=0)
    told = json.dumps(found.to_dict()) + str(found) + repr(found)
    assert "Lovelace" not in told
    described = json.dumps([column.to_dict() for column in found.columns])
    assert "117" not in described


def test_an_identifier_is_refused_as_a_sensitive_column(rows: dict[str, Any]) -> None:
    names = [f"person {i}" for i in range(300)]
    with pytest.raises(ValueError, match=r"few labels.*Got 300 in 300 rows of 'name'"):
        audit(rows["score"], sensitive_features={"name": names})


def refusals(rows: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    s = {"age": rows["age"]}
    yield {"scores": rows["score"][:10], "sensitive_features": {"age": rows["age"][:10]}}, "at least 50"
    yield {"scores": np.ones(300), "sensitive_features": s}, "more than one value"
    yield {"scores": rows["score"], "sensitive_features": {"age": rows["age"][:200]}}, "300 rows"
    yield {"scores": rows["score"], "sensitive_features": s, "y_true": rows["y"][:9]}, "'y_true' must"
    yield (
        {"scores": rows["score"], "sensitive_features": s, "confidence_level": 1.0},
        "'confidence_level' must lie",
    )
    yield {"scores": rows["score"], "sensitive_features": s, "positive_label": 1}, "without 'y_true'"
    wrong = {"y_true": rows["y"], "positive_label": "yes"}
    yield {"scores": rows["score"], "sensitive_features": s, **wrong}, "label of 'y_true'"


@pytest.mark.parametrize("case", range(7))
def test_what_cannot_be_audited_is_refused_with_a_cure(rows: dict[str, Any], case: int) -> None:
    arguments, message = list(refusals(rows))[case]
    with pytest.raises(ValueError, match=message):
        audit(arguments.pop("scores"), **arguments)


def test_an_attribute_that_is_not_there_is_named(of_score: Audit) -> None:
    with pytest.raises(ValueError, match="'age', 'sex'"):
        of_score.attribute("income")


# ---- arguments change something ---------------------------------------------------------------------------


def test_every_argument_changes_something(rows: dict[str, Any], of_score: Audit) -> None:
    s = {"age": rows["age"]}
    plain = audit(rows["score"], sensitive_features=s, y_true=rows["y"], random_state=5)
    wide = audit(rows["score"], sensitive_features=s, confidence_level=0.5, random_state=5)
    first, second = (one.attributes[0].measures["gdp"] for one in (wide, plain))
    assert first.high < second.high  # type: ignore[union-attr]
    decades = {"decade": rows["age"] // 10}
    labels = audit(rows["score"], sensitive_features=decades, kinds="categorical", random_state=5)
    assert labels.attributes[0].kind == "categorical"
    other = audit(
        rows["score"], sensitive_features=s, y_true=rows["y"], positive_label=0, random_state=5
    ).attributes[0]
    assert other.outcome.equal_opportunity == "0"  # type: ignore[union-attr]
    fresh = audit(rows["score"], sensitive_features=s)
    again = audit(rows["score"], sensitive_features=s, random_state=fresh.seed)
    assert again.to_dict() == fresh.to_dict()


def test_a_confidence_beyond_any_number_of_permutations_is_an_error_before_they_are_made():
    rng = np.random.default_rng(0)
    message = r"'confidence_level' must be at most 0\.9999 in an audit.*Got 0\.999999999999\."
    with pytest.raises(ValueError, match=message):
        audit(rng.random(100), sensitive_features=rng.random(100), confidence_level=1 - 1e-12)


def test_scores_whose_squares_vanish_are_an_error_that_says_so():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"'scores' must exceed 1e-75 in size"):
        audit(1e-300 * rng.random(100), sensitive_features=rng.random(100))
