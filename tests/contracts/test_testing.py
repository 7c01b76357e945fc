"""assert_gap_below: the number of an audit, the rule of the gate, a sentence that says what failed."""

import traceback

import numpy as np
import pandas as pd
import pytest

from frhsic.auditing import MEASURES, audit, limit_sentence, measure_limits
from frhsic.cli._gate import _ENDS
from frhsic.testing import assert_gap_below

N = 400


def people(seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 50, N)
    score = 1.0 / (1.0 + np.exp(-(age - 34) / 12 - rng.normal(size=N)))
    return score, {"age": age, "income": rng.lognormal(size=N)}


@pytest.fixture(scope="module")
def found():
    score, s = people()
    limits = dict.fromkeys(("gap", "gdp", "normalized_hsic", "kernel_hgr"), 0.1)
    return audit(score, sensitive_features=s, limits=limits, random_state=0)


def passes(*arguments, **options):
    try:
        assert_gap_below(*arguments, **options)
    except AssertionError:
        return False
    return True


def test_the_numbers_are_those_of_an_audit(found):
    score, s = people()
    limits = dict.fromkeys(("gap", "gdp", "normalized_hsic", "kernel_hgr"), 0.1)
    mine, notes = measure_limits(score, limits, sensitive_features=s, random_state=0)
    assert set(mine) == set(found.limits)
    assert len(mine) == 8
    assert notes == ()


@pytest.mark.parametrize("on", _ENDS)
def test_each_end_is_compared_as_the_gate_compares_it(found, on):
    score, s = people()
    gap = found.attribute("age").measures["gap"]
    assert 0.0 < gap.low < gap.estimate < gap.high
    places = {
        "below all": 0.9 * gap.low,
        "above the lower end": 0.5 * (gap.low + gap.estimate),
        "above the estimate": 0.5 * (gap.estimate + gap.high),
        "above all": 1.01 * gap.high,
        "at the upper end": gap.high,
    }
    expected = {
        "lower": {"above the lower end", "above the estimate", "above all", "at the upper end"},
        "estimate": {"above the estimate", "above all", "at the upper end"},
        "upper": {"above all", "at the upper end"},
    }[on]
    options = {} if on == "upper" else {"on": on}  # the default
    assert {
        name for name, limit in places.items() if passes(score, {"age": s["age"]}, limit, **options)
    } == expected


def test_the_message_is_a_sentence_for_each_column_that_fails(found):
    score, s = people()
    limit = 0.4 * found.attribute("age").measures["gap"].low
    income = found.attribute("income").measures["gap"]
    assert income.high > limit > income.low
    with pytest.raises(AssertionError) as caught:
        assert_gap_below(score, s, limit)
    first, second, third = str(caught.value).splitlines()
    mine, _ = measure_limits(score, {"gap": limit}, sensitive_features=s, random_state=0)
    assert [first, second] == [limit_sentence(one, 0.95) for one in mine]
    assert first.startswith(f"score gap on age is shown to be above {limit:.3g} (95% interval ")
    assert "leave open on which side the true value is." in second
    assert third == "Compared with the limit: the upper end of the interval (on='upper')."
    with pytest.raises(AssertionError) as caught:
        assert_gap_below(score, s, limit, on="lower")
    assert "income" not in str(caught.value)
    # pytest shows the line of the test, not ours.
    frame = [one for one, _ in traceback.walk_tb(caught.tb) if one.f_code.co_name == "assert_gap_below"]
    assert frame[0].f_locals["__tracebackhide__"]


CHANGES = {
    "measure": "gdp",
    "sample_weight": np.random.default_rng(1).random(N),
    "groups": np.arange(N) // 2,
    "confidence_level": 0.5,
    "random_state": 1,
    "kinds": {"age": "categorical"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_argument_changes_the_answer(name):
    score, s = people()
    texts = []
    for options in ({}, {name: CHANGES[name]}):
        with pytest.raises(AssertionError) as caught:
            assert_gap_below(score, {"age": s["age"]}, 0.0, **options)
        texts.append(str(caught.value))
    if name == "random_state":  # of a gap nothing is drawn; of HSIC near independence its errors are
        mixed = np.random.default_rng(0).permutation(score)
        limits = [
            measure_limits(mixed, {"hsic": 0.0}, sensitive_features=s["age"], random_state=seed)[0]
            for seed in (0, 1)
        ]
        texts = [str(one[0].high) for one in limits]
    assert texts[0] != texts[1]


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_of_an_audit_is_taken_by_its_name(measure):
    score, s = people()
    frame = pd.DataFrame({"score": score})
    assert not passes(frame, {"age": s["age"]}, 0.0, measure=measure, on="estimate")
    assert passes(frame, {"age": s["age"]}, 1e9, measure=measure, on="estimate")


def test_wrong_arguments_are_errors_and_not_failed_assertions():
    score, s = people()
    for options, text in (
        ({"limit": -0.1}, "'limit' must be a number of at least 0"),
        ({"limit": float("nan")}, "'limit' must be a number of at least 0"),
        ({"on": "high"}, "'on' must be one of lower, upper, estimate"),
        ({"measure": "gpd"}, "'measure' must be a measure of an audit"),
        ({"measure": "kernel_hgr"}, "'measure' must have an interval for on='upper'"),
        ({"confidence_level": 95}, "'confidence_level' must lie between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=text.replace("(", r"\(")):
            assert_gap_below(score, s, **({"limit": 0.1} | options))
    several = np.column_stack([score, np.random.default_rng(0).normal(size=N)])
    for measure in ("gap", "gap_worst"):
        with pytest.raises(
            ValueError, match=r"'measure' must be defined for these scores\. Got .* of 2 columns"
        ):
            assert_gap_below(several, s, 0.1, measure=measure)
    assert passes(several, {"income": s["income"]}, 0.5, measure="normalized_hsic")
