"""Audits of rows that depend on one another: groups reach every part, and n is their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frhsic.auditing import Audit, audit
from frhsic.dependence import GDP
from frhsic.inference import confidence_interval, independence_test

PEOPLE, TIMES = 60, 5


def rows(seed: int, *, size: float = 0.0) -> dict[str, Any]:
    """Draw people with several rows each, whose scores share a part; age is that of the person."""
    rng = np.random.default_rng([22, seed])
    person = np.repeat(np.arange(PEOPLE), TIMES)
    age = rng.integers(18, 60, PEOPLE)[person]
    common = rng.normal(size=PEOPLE)[person]
    score = common + 0.3 * rng.normal(size=len(person)) + size * (age - 39) / 12
    return {"score": score, "age": age, "person": person}


@pytest.fixture(scope="module")
def found() -> Audit:
    table = rows(0, size=2.0)
    return audit(
        table["score"], sensitive_features={"age": table["age"]}, groups=table["person"], random_state=0
    )


def test_n_is_the_number_of_groups_with_rows_beside_it(found: Audit) -> None:
    assert (found.n, found.groups) == (PEOPLE * TIMES, PEOPLE)
    assert found.attributes[0].test.n == PEOPLE
    assert f"n = {PEOPLE}" in str(found)
    assert found.to_dict()["groups"] == PEOPLE


def test_numbers_are_those_of_the_functions_with_the_same_groups(found: Audit) -> None:
    table = rows(0, size=2.0)
    s, same = {"age": table["age"]}, {"groups": table["person"], "random_state": 0}
    assert found.attributes[0].test == independence_test(table["score"], s, **same)
    assert found.attributes[0].measures["gdp"] == confidence_interval(
        table["score"], s, dependence=GDP(), **same
    )


def without_record(found):
    return {name: value for name, value in found.to_dict().items() if name not in ("record", "digest")}


def test_labels_of_groups_do_not_matter_and_single_rows_are_no_groups() -> None:
    table = rows(1)
    s = {"age": table["age"]}
    names = np.array([f"p{i}" for i in table["person"]])
    one, two = (
        audit(table["score"], sensitive_features=s, groups=groups, random_state=0)
        for groups in (table["person"], names)
    )
    # The digests of the column of groups differ, and nothing else does.
    assert without_record(one) == without_record(two)
    alone = audit(table["score"], sensitive_features=s, groups=np.arange(len(names)), random_state=0)
    assert alone.groups is None
    plain = audit(table["score"], sensitive_features=s, random_state=0)
    assert without_record(alone) == without_record(plain)


def test_copies_with_their_groups_are_not_noted() -> None:
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(100), 2)
    score, age = rng.normal(size=100)[person], rng.integers(18, 90, 100)[person]
    plain = audit(score, sensitive_features={"age": age}, random_state=0)
    grouped = audit(score, sensitive_features={"age": age}, groups=person, random_state=0)
    assert any("same score and attributes" in note for note in plain.notes)
    assert not any("same score and attributes" in note for note in grouped.notes)


def test_repeated_people_are_claimed_to_depend_no_more_often_than_stated() -> None:
    """Twenty audits of independent people with five rows each: without groups most of them claim."""
    claimed = {"groups": 0, "rows": 0}
    for seed in range(20):
        table = rows(100 + seed)
        s = {"age": table["age"]}
        for name, groups in (("groups", table["person"]), ("rows", None)):
            made = audit(table["score"], sensitive_features=s, groups=groups, random_state=seed)
            claimed[name] += bool(made.claims)
    assert claimed["groups"] <= 5  # a rate of .05 exceeds this once in a thousand times
    assert claimed["rows"] >= 6
