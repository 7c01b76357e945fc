"""Names that would write lines of their own into a terminal, and names of any length."""

import csv

import numpy as np
import pytest

from frhsic import audit
from frhsic._text import join_lines, to_line
from frhsic.auditing import compare
from frhsic.cli import run
from frhsic.cli._output import echo, echo_table
from frhsic.testing import assert_gap_below

FORGED = "\nError: passed"
LONG = "x" * 10_000


def people(n=120):
    rng = np.random.default_rng(0)
    age = rng.integers(18, 78, n)
    return age, age / 100 + 0.2 * rng.random(n), rng.integers(0, 2, n), rng.integers(0, 2, n)


def assert_no_forged_line(text):
    assert "Error: passed" in text
    assert not [line for line in text.splitlines() if line.strip().startswith("Error: passed")]


@pytest.mark.parametrize("end", ["\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_break_inside_a_line_is_an_escape(end, capsys):
    name = f"age{end}Error: passed"
    assert_no_forged_line(join_lines([f"on {name}", "by sex"]))
    assert join_lines(["on age", "by sex"]) == "on age\nby sex"
    echo(f"on {name}")
    echo_table(f"On {name}", ["measure"], [[name]])
    echo(f"on {to_line(name)}", error=True)
    captured = capsys.readouterr()
    assert_no_forged_line(captured.out)
    assert captured.err.count("\n") == 1


def test_names_with_breaks_forge_no_line_of_an_audit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    age, score, sex, outcome = people()
    names = [f"{name}{FORGED}" for name in ("age", "score", "sex", "outcome")]
    columns = age, score, [f"{'fm'[x]}{FORGED}" for x in sex], [f"{'ny'[y]}{FORGED}" for y in outcome]
    with open("a.csv", "w", newline="") as file:
        csv.writer(file).writerows([names, *zip(*columns, strict=True)])
    options = ["--sensitive", names[0], "--sensitive", names[2], "--label", names[3], "--threshold", "0.5"]
    command = ["audit", "a.csv", "--score", names[1], *options, "--fail-above", "gap=0.001"]
    assert run([*command, "--json", "a.json", "--title", f"a{FORGED}"]) == 1
    captured = capsys.readouterr()
    assert_no_forged_line(captured.out)
    assert_no_forged_line(captured.err)


def test_names_with_breaks_forge_no_line_of_a_result_in_python():
    age, score, sex, _ = people()
    s = {f"age{FORGED}": age, f"sex{FORGED}": [f"{'fm'[x]}{FORGED}" for x in sex]}
    found = audit(score, sensitive_features=s, random_state=0)
    assert_no_forged_line(str(found))
    assert_no_forged_line(str(compare(found.to_dict(), found.to_dict())))
    with pytest.raises(AssertionError) as refused:
        assert_gap_below(score, s, 0.001)
    assert_no_forged_line(str(refused.value))


def test_labels_of_any_length_that_begin_alike_stay_apart():
    age, score, sex, outcome = people(200)
    found = audit(
        {f"s{LONG}": score},
        sensitive_features={f"a{LONG}": age, f"c{LONG}": [f"{LONG}{x}" for x in sex]},
        y_true=[f"{LONG}{y}" for y in outcome],
        thresholds=0.6,
        about={"title": LONG},
        random_state=0,
    )
    labels = [part.label for part in found.attributes[0].outcome.labels]
    assert len(set(labels)) == len(set(found.columns[1].labels)) == 2
    assert all(len(label) <= 80 for label in (*labels, *found.columns[1].labels))
    assert found.attributes[0].outcome.errors
