"""What an audit says about the outcome along S: base rate, error rates, AUC, and the mean of a number."""

import json
import math
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from frhsic.auditing import audit, schema
from frhsic.inference import auc_curve, conditional_curve
from frhsic.report import render_report
from frhsic.sketching import HSICSketch
from frhsic.table import ScoreTable


def people(n=1_500, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 60, n)
    score = 1 / (1 + np.exp(-((age - 40) / 15 + rng.normal(size=n))))
    y = np.where(rng.random(n) < score, "paid", "late")
    return {"age": age, "score": score, "y": y, "sex": rng.choice(["f", "m"], n), "w": rng.random(n) + 0.5}


@pytest.fixture(scope="module")
def rows():
    return people()


@pytest.fixture(scope="module")
def found(rows):
    return audit(
        rows["score"],
        sensitive_features={"age": rows["age"]},
        y_true=rows["y"],
        thresholds=[0.4, 0.7],
        random_state=3,
    )


def rates(scores, age, **options):
    curve = conditional_curve(scores, {"age": age}, random_state=3, **options)
    return np.clip([curve.mean, curve.low, curve.high], 0.0, 1.0)


def test_each_curve_is_that_of_its_function(rows, found):
    outcome, paid = found.attribute("age").outcome, rows["y"] == "paid"
    mine = np.array([outcome.curve.mean, outcome.curve.low, outcome.curve.high])
    np.testing.assert_array_equal(mine, rates(paid.astype(float), rows["age"]))
    assert outcome.curve.overall == pytest.approx(paid.mean())
    assert [one.threshold for one in outcome.errors] == [0.4, 0.7]
    for one in outcome.errors:
        wrong, missed = one.false_positive, one.false_negative
        expected = rates(rows["score"][~paid], rows["age"][~paid], cutoff=one.threshold)
        np.testing.assert_array_equal([wrong.mean, wrong.low, wrong.high], expected)
        above = rates(rows["score"][paid], rows["age"][paid], cutoff=one.threshold)
        np.testing.assert_array_equal([missed.mean, missed.high, missed.low], 1.0 - above)
        assert missed.overall == pytest.approx((rows["score"][paid] <= one.threshold).mean())
        for start, stop, rate in zip(wrong.start, wrong.stop, wrong.mean, strict=True):
            at = ~paid & (rows["age"] >= start) & (rows["age"] <= stop)
            assert rate == pytest.approx((rows["score"][at] > one.threshold).mean())
    assert outcome.auc == auc_curve(rows["y"], rows["score"], {"age": rows["age"]})
    assert outcome.absolute_error is None


def test_weights_groups_and_the_favourable_label_are_passed_on(rows):
    groups = np.arange(1_500) // 3
    audited = audit(
        rows["score"],
        sensitive_features={"age": rows["age"]},
        y_true=rows["y"],
        positive_label="late",
        sample_weight=rows["w"],
        groups=groups,
        thresholds=[0.5],
        random_state=3,
    )
    outcome = audited.attribute("age").outcome
    late = rows["y"] == "late"
    options = {"sample_weight": rows["w"], "groups": groups}
    assert outcome.auc == auc_curve(
        rows["y"], rows["score"], {"age": rows["age"]}, positive_label="late", **options
    )
    assert outcome.curve.overall == pytest.approx(np.average(late, weights=rows["w"]))
    missed = np.average((rows["score"] <= 0.5)[late], weights=rows["w"][late])
    assert outcome.errors[0].false_negative.overall == pytest.approx(missed)


def test_an_outcome_that_is_a_number_has_its_mean_and_the_absolute_error(rows):
    y = 2.0 * rows["score"] + np.random.default_rng(0).normal(size=1_500)
    audited = audit(
        rows["score"], sensitive_features={"age": rows["age"]}, y_true=y, thresholds=[0.5], random_state=3
    )
    outcome = audited.attribute("age").outcome
    assert outcome.curve == conditional_curve(y, {"age": rows["age"]}, random_state=3)
    error = np.abs(y - rows["score"])
    assert outcome.absolute_error == conditional_curve(error, {"age": rows["age"]}, random_state=3)
    assert (outcome.errors, outcome.auc) == ((), None)
    text = str(audited)
    assert f"The mean outcome is {y.mean():.3g} (lowest near " in text
    assert f"The score is {error.mean():.3g} from the outcome on average" in text
    assert "AUC" not in text
    assert "Distance of score and outcome along age" in render_report(audited)


def test_three_labels_and_a_representation_have_no_error_rates(rows):
    three = np.where(rows["age"] % 3 == 0, "other", rows["y"])
    s, z = {"age": rows["age"]}, np.column_stack((rows["score"], rows["age"] % 7, rows["w"]))
    of_three = audit(rows["score"], sensitive_features=s, y_true=three, thresholds=[0.5], random_state=0)
    outcome = of_three.attribute("age").outcome
    assert (outcome.curve, outcome.errors, outcome.auc) == (None, (), None)
    wide = audit(z, sensitive_features=s, y_true=rows["y"], random_state=0).attribute("age").outcome
    assert (wide.errors, wide.auc) == ((), None)
    assert wide.curve.overall == pytest.approx((rows["y"] == "paid").mean())


def test_the_summary_names_lowest_and_highest_with_their_bands(rows, found):
    outcome, text = found.attribute("age").outcome, str(found)
    auc = outcome.auc
    low, high = (pick(range(len(auc.auc)), key=auc.auc.__getitem__) for pick in (min, max))
    (sentence,) = (line for line in text.splitlines() if "The AUC is" in line)
    assert (
        f"The AUC is {auc.overall:.3g}; along age it goes from {auc.auc[low]:.3g} ({auc.name(low)};"
        in sentence
    )
    assert f"to {auc.auc[high]:.3g} ({auc.name(high)};" in sentence
    rate = outcome.curve
    k = min((i for i, mass in enumerate(rate.mass) if mass >= 0.01), key=rate.mean.__getitem__)
    assert (
        f"(lowest near {rate.points[k]:.0f}, {100 * rate.mean[k]:.1f}%, band {100 * rate.low[k]:.1f}% to"
        in text
    )
    assert text.count("The AUC is") == 1
    assert text.count("false positive rate is") == 2


def test_what_the_rows_do_not_give_is_a_note(rows):
    score = np.where(rows["y"] == "paid", rows["score"], np.minimum(rows["score"], 0.6))
    audited = audit(
        score, sensitive_features={"age": rows["age"]}, y_true=rows["y"], thresholds=[0.8], random_state=0
    )
    (errors,) = audited.attribute("age").outcome.errors
    late = (rows["y"] == "late").sum()
    assert errors.false_positive is None
    assert errors.false_negative is not None
    assert f"No false positive rate at 0.8: all {late:,} rows are below or at it along age." in audited.notes
    rare = np.where(np.arange(1_500) < 20, "paid", "late")
    audited = audit(
        rows["score"], sensitive_features={"age": rows["age"]}, y_true=rare, thresholds=[0.5], random_state=0
    )
    outcome = audited.attribute("age").outcome
    assert outcome.auc is None
    assert outcome.errors[0].false_negative is None
    notes = " ".join(audited.notes)
    assert "No AUC along age: 'y_true' must have at least 30 rows of each class" in notes
    assert "No false negative rate at 0.5: 20 rows are too few" in notes
    render_report(audited)


def test_json_hides_values_of_fewer_than_ten_rows_and_follows_the_schema(rows):
    age = rows["age"].copy()
    age[:4] = 17
    audited = audit(
        rows["score"], sensitive_features={"age": age}, y_true=rows["y"], thresholds=[0.5], random_state=0
    )
    plain = json.loads(json.dumps(audited.to_dict(), allow_nan=False))
    jsonschema.validate(plain, schema())
    outcome = plain["attributes"][0]["outcome"]
    curves = [
        outcome["curve"],
        *(outcome["errors"][0][name] for name in ("false_positive", "false_negative")),
    ]
    hidden = 0
    for curve in curves:
        for count, *values in zip(*(curve[name] for name in ("counts", "mean", "low", "high")), strict=True):
            assert count >= 10 or values == [None] * 3
            hidden += count < 10
    assert hidden > 0
    assert min(outcome["auc"]["counts"]) >= 60
    assert outcome["auc"]["start"][0] is outcome["auc"]["stop"][-1] is None


def test_windows_that_may_not_be_shown_leave_the_json(rows, found):
    (column,), one = found.columns, found.attribute("age")
    auc = one.outcome.auc
    least = auc.points[0] + 0.5  # as if the first window lay beyond the quantiles that are shown
    narrow = replace(found, columns=(replace(column, low=least),))
    plain = narrow.to_dict()["attributes"][0]["outcome"]["auc"]
    assert plain["auc"] == pytest.approx(list(auc.auc[1:]), abs=0.01)
    assert plain["counts"] == list(auc.counts[1:])
    assert auc.name(0) not in str(narrow).partition("The AUC is")[2].partition("\n")[0]


def test_the_report_has_pictures_of_base_rate_errors_auc_and_calibration(found, rows):
    page = render_report(found)
    for title in (
        "Rate of the outcome paid along age",
        "Errors of decisions above 0.4 along age",
        "Errors of decisions above 0.7 along age",
        "AUC along age",
        "Outcome minus score along age",
    ):
        assert page.count(f"<figcaption>{title}") == 1
    by_sex = audit(
        rows["score"],
        sensitive_features={"sex": rows["sex"]},
        y_true=rows["y"],
        thresholds=[0.5],
        random_state=0,
    )
    page = render_report(by_sex)
    assert "AUC along sex" in page
    assert "Errors of decisions above 0.5 along sex" in page


def test_a_sketch_of_groups_has_no_curves_and_does_not_fail():
    rows = people(1_000, seed=5)
    s = {"age": rows["age"]}
    grouped = HSICSketch.like(rows["score"], s)
    grouped.update(rows["score"], s, given=rows["y"], groups=np.arange(1_000) // 2)
    outcome = audit(grouped, random_state=0).attribute("age").outcome
    assert (outcome.errors, outcome.auc) == ((), None)


def test_a_category_that_one_label_lacks_does_not_move_the_names_of_the_others_in_a_table():
    rows = people(3_000, seed=5)
    place = np.where((rows["y"] == "late") & (rows["age"] < 25), "a", rows["sex"])
    s = {"place": place}
    table = ScoreTable.from_rows(rows["score"], place, outcome=rows["y"], names=["place"], at_scores=(0.5,))
    mine = audit(table, thresholds=[0.5], random_state=0)
    other = audit(rows["score"], sensitive_features=s, y_true=rows["y"], thresholds=[0.5], random_state=0)
    assert mine.columns[0].labels == ("a", "f", "m")
    counted, exact = (found.attribute("place").outcome for found in (mine, other))
    for one, same in zip(counted.labels, exact.labels, strict=True):
        assert one.curve.points == same.curve.points
        np.testing.assert_allclose(one.curve.mean, same.curve.mean, rtol=1e-4)
    assert counted.errors[0].false_negative.points == (1.0, 2.0)
    assert exact.auc.categories == ("f", "m")
    assert counted.auc.auc == pytest.approx(exact.auc.auc, abs=1e-3)


def notes_of(y, weights=None):
    rng = np.random.default_rng(0)
    age, score = rng.integers(18, 60, len(y)), rng.random(len(y))
    found = audit(score, sensitive_features={"age": age}, y_true=y, sample_weight=weights, random_state=0)
    return " ".join(found.notes)


def test_an_outcome_that_is_constant_or_written_in_two_ways_is_named():
    assert "The outcome is 'paid' in every row" in notes_of(["paid"] * 200)
    notes = notes_of([" yes", "yes", "no", "YES"] * 50)
    assert "' yes', 'YES' and 'yes'" in notes
    assert "count as different labels" in notes
    assert "labels" not in notes_of(["yes", "no"] * 100)


def test_weights_that_differ_much_come_with_an_effective_number_of_rows():
    y = ["yes", "no"] * 100
    weights = 10 ** np.random.default_rng(1).uniform(0, 4, 200)
    effective = weights.sum() ** 2 / (weights**2).sum()
    assert f"200 rows say as much about a mean as {effective:,.0f} of equal weight" in notes_of(y, weights)
    assert "The weights differ much" not in notes_of(y, np.random.default_rng(1).uniform(1, 2, 200))


def test_the_band_of_an_absolute_error_is_not_below_zero():
    rng = np.random.default_rng(0)
    age, y = rng.integers(18, 60, 400), rng.standard_cauchy(400)
    found = audit(rng.random(400), sensitive_features={"age": age}, y_true=y, random_state=0)
    curve = found.attribute("age").outcome.absolute_error
    assert curve is not None
    assert min(low for low in (*curve.low, *curve.mean_low) if not math.isnan(low)) == 0.0
