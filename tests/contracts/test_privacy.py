"""Nothing that leaves an audit is a value of fewer than ten rows, or gives one away by a difference."""

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from frhsic.auditing import audit, verify
from frhsic.inference import conditional_curve
from frhsic.report import render_report

N = 400


def table(seed=0):
    """Return columns of which every row of some is the only one with its value."""
    rng = np.random.default_rng(seed)
    age = rng.integers(30, 44, N).astype(float)
    age[:4] = 16.25, 107.75, 36.5, 36.5
    income = np.round(np.exp(rng.normal(10.0, 1.0, N)), 2)
    score = 1.0 / (1.0 + np.exp(-((age - 36.0) / 8.0 + rng.normal(size=N))))
    grade = np.array(["usual", "other"])[rng.integers(0, 2, N)].astype(object)
    grade[:3] = "Zyxwv"
    outcome = np.array(["yes", "no"])[(rng.random(N) < score).astype(int)].astype(object)
    outcome[:4] = "Utsrq"
    return {
        "age": age,
        "income": income,
        "score": score,
        "grade": grade,
        "outcome": outcome,
        "number": score + rng.normal(size=N),
        "person": np.repeat(np.arange(N // 2) + 500_000.5, 2),
        "factor": rng.normal(size=N),
        "rare": np.where(rng.random(N) < 0.05, rng.uniform(0.9, 1.0, N), 0.0),
        "weight": rng.uniform(0.5, 2.0, N),
    }


def options(name, columns):
    """Return the arguments of one of six audits."""
    by_age = {"age": columns["age"]}
    both = {**by_age, "income": columns["income"]}
    given = {"factor": columns["factor"]}
    return {
        "one": {"scores": columns["score"], "sensitive_features": {"income": columns["income"]}},
        "given": {"scores": columns["score"], "sensitive_features": both, "given": given},
        "groups": {"scores": columns["score"], "sensitive_features": by_age, "groups": columns["person"]},
        "threshold": {
            "scores": {"score": columns["score"]},
            "sensitive_features": {**by_age, "grade": columns["grade"]},
            "thresholds": [0.5],
            "regions": {"age >= 40": "above"},
            "y_true": columns["outcome"],
        },
        "rare": {"scores": columns["rare"], "sensitive_features": by_age, "sample_weight": columns["weight"]},
        "number": {
            "scores": columns["score"],
            "sensitive_features": {"income": columns["income"]},
            "y_true": columns["number"],
        },
    }[name]


@cache
def one_audit(name):
    """Return an audit, and the columns that it is made of."""
    columns = table()
    asked = options(name, columns)
    used = [columns[each] for each in columns if any(columns[each] is x for x in _arrays(asked))]
    return audit(**asked, random_state=0), used


def _arrays(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from _arrays(item)
    else:
        yield value


def leaves(value, place=""):
    """Return every number and text of a document with its place."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, f"{place}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, place)
    else:
        yield place, value


def rare_values(columns):
    """Return numbers and labels that fewer than ten rows have; not those that counts may equal by chance."""
    numbers, labels = set(), set()
    for column in columns:
        few = {value for value, count in Counter(column.tolist()).items() if count < 10}
        labels |= {value for value in few if isinstance(value, str)}
        numbers |= {value for value in few if isinstance(value, float) and value != round(value)}
    return numbers, labels


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["one", "given", "groups", "threshold", "rare", "number"])
def test_no_output_holds_a_value_of_fewer_than_ten_rows(name):
    found, columns = one_audit(name)
    numbers, labels = rare_values(columns)
    assert len(numbers) > 100
    record = json.loads(json.dumps(found.to_dict()))
    seen = {(place, value) for place, value in leaves(record) if value in numbers}
    assert not seen
    texts = {
        "html": render_report(found),
        "md": found.to_markdown(),
        "json": json.dumps(record),
        "text": str(found),
    }
    for kind, text in texts.items():
        tokens = {float(token) for token in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?", text)}
        assert not tokens & numbers, kind
        assert not [label for label in labels if label in text], kind


@pytest.mark.filterwarnings("ignore")
def test_what_is_shown_has_ten_rows_and_what_is_not_has_no_number():
    found, _ = one_audit("given")
    for attribute in found.to_dict()["attributes"]:
        for curve in (attribute["curve"], attribute["profile"], attribute["explained"]):
            points = zip(curve["points"], curve["counts"], curve["mass"], strict=True)
            assert all(
                (count >= 10) == (point is not None) == (mass is not None) for point, count, mass in points
            )
            assert any(curve["counts"])
    ages = found.to_dict()["attributes"][0]["curve"]
    assert {x for x in ages["points"] if x is not None} <= set(map(float, range(30, 44)))


@pytest.mark.filterwarnings("ignore")
def test_a_record_is_the_same_again_and_verifies():
    found, _ = one_audit("threshold")
    again = audit(**options("threshold", table()), random_state=0)
    assert verify(found.to_dict(), again).code == 0
    assert found.released.released is found.released
    assert found.released.to_dict() == found.to_dict()


@pytest.mark.filterwarnings("ignore")
def test_numbers_are_rounded_by_at_most_a_twentieth_of_their_interval_and_ends_outwards():
    found, _ = one_audit("threshold")
    for one, plain in zip(found.attributes, found.to_dict()["attributes"], strict=True):
        for name, measure in one.measures.items():
            if hasattr(measure, "low"):
                width, shown = measure.high - measure.low, plain["measures"][name]
                assert abs(shown["estimate"] - measure.estimate) <= width / 40.0 + 1e-12
                assert measure.low - width / 20.0 <= shown["low"] <= measure.low + 1e-12
                assert measure.high - 1e-12 <= shown["high"] <= measure.high + width / 20.0
    assert len(json.dumps(found.to_dict()["attributes"][0]["curve"]["mean"][2])) <= 6


@pytest.mark.filterwarnings("ignore")
def test_limits_keep_their_states_whatever_they_are():
    found, _ = one_audit("one")
    gap = found.attributes[0].measures["gap"]
    ends = [end + off for end in (gap.low, gap.high) for off in (-1e-7, 0.0, 1e-7)]
    for at_most in ends:
        one = audit_limits(found, at_most)
        (shown,) = one.released.limits
        expected = "passed" if shown.high <= at_most else ("failed" if shown.low > at_most else "not shown")
        assert shown.state == expected


def audit_limits(found, at_most):
    from frhsic.auditing._limits import find_limits

    return replace(found, limits=find_limits(found, {"gap": at_most}))


@pytest.mark.filterwarnings("ignore")
def test_records_of_500_and_of_499_rows_do_not_give_the_missing_one():
    """At full precision the difference of the two means was the person's number to ten digits."""
    found, _ = one_audit("one")
    rng = np.random.default_rng(0)
    income, s = np.exp(rng.normal(10.0, 0.5, 500)), rng.integers(0, 10, 500).astype(float)

    def overall(rows):
        curve = conditional_curve(income[rows], s[rows], n_draws=99, random_state=0)
        attribute = replace(found.attributes[0], curve=curve)
        return replace(found, attributes=(attribute,)).released.attributes[0].curve.overall

    everybody = np.ones(500, dtype=bool)
    guesses = []
    for missing in range(40):
        others = everybody.copy()
        others[missing] = False
        guesses.append(500 * overall(everybody) - 499 * overall(others))
    error = np.sqrt(np.mean((np.array(guesses) - income[:40]) ** 2))
    assert error > income.std()
