"""The command line as people meet it: journeys, gates, exit codes, and one sentence for whatever is wrong."""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from frhsic._checks import ArgumentError
from frhsic._text import escape
from frhsic.auditing import audit
from frhsic.auditing._limits import find_limits
from frhsic.cli import app, run
from frhsic.cli._errors import describe
from frhsic.cli._gate import Gate
from frhsic.cli._rules import LIMITED
from frhsic.cli._verdicts import make_verdict
from frhsic.engine.limits import MEASURES, Key, Reached
from frhsic.inference import Interval
from frhsic.sources import read_table, write_table

HELPS = ["--help", *(f"{command.callback.__name__} --help" for command in app.registered_commands)]


def people(n=300, seed=0):
    """Draw a table with categories, gaps, a weight and a score that depends on age."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n)
    job = rng.choice(["chef", "nurse", "pilot"], n).tolist()
    hours = rng.normal(40, 8, n).tolist()
    for i in range(0, n, 17):
        job[i] = hours[i] = None
    logit = (age - 45) / 15 + rng.normal(size=n)
    return {
        "age": age,
        "sex": rng.choice(["f", "m"], n),
        "job": job,
        "hours": hours,
        "income": np.where(logit + 0.3 * rng.normal(size=n) > 0, "high", "low"),
        "score": 1 / (1 + np.exp(-logit)),
        "weight": rng.uniform(1, 3, n),
        "zone": rng.integers(1, 5, n),
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FRHSIC_TRACEBACK", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    write_table(people(), "scores.csv")
    table = people()
    del table["score"]
    write_table(table, "people.csv")
    return tmp_path


def command(text, **options):
    arguments = [sys.executable, "-W", "error", "-m", "frhsic", *shlex.split(text)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, **options)


def refused(text, capsys):
    """Run what must be refused, and return its one sentence."""
    before = sorted(os.listdir("."))
    code = run(shlex.split(text))
    out, err = capsys.readouterr()
    assert code == 2, (out, err)
    assert out == ""
    assert err.startswith("Error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    assert sorted(os.listdir(".")) == before
    for word in ("'scores'", "sensitive_features", "sample_weight", "'path'", "y_true"):
        assert word not in err
    return err


# ---- what must work ----------------------------------------------------------------------------------------


def audit_to_record(name, seed, record=None):
    """Write rows, and the record of their audit."""
    write_table(people(seed=seed), f"{name}.parquet")
    audit = ["audit", f"{name}.parquet", "--score", "score", "--sensitive", "age"]
    assert run([*audit, "--json", f"{record or name}.json"]) == 0


def test_every_example_of_the_help_texts_runs(folder, capsys):
    examples = []
    for text in HELPS:
        assert run(shlex.split(text)) == 0
        text = re.sub(r"\n +(--(holdout|plot|budgets) )", r" \1", capsys.readouterr().out)
        examples += re.findall(r"^ +(frhsic .*)$", text, re.MULTILINE)
    # A model and held-out rows come before what needs them.
    order = {"train": 0, "frontier": 1, "predict": 2, "audit": 3, "verify": 4}
    examples = sorted(set(examples), key=lambda one: (order.get(one.split()[1], 5), -len(one)))
    assert len(examples) >= 13
    shutil.copy("scores.csv", "held_out.csv")
    Path("scores").mkdir()
    write_table(people(), "scores/1.parquet")
    write_table({**people(), "person_id": np.arange(300) // 5}, "panel.csv")
    for seed, name in enumerate(("spring", "autumn")):
        audit_to_record(name, seed)
    for one in examples:
        if one.startswith("frhsic audit"):
            write_table(people(), "scores.csv")
        if one.startswith("frhsic verify"):
            audit_to_record("scores", 0, "audit")
        if "--query" in one:
            continue  # test_sql has a database
        assert run(shlex.split(one)[1:]) == 0, (one, capsys.readouterr().err)
    assert json.loads(Path("audit.json").read_text())["schema"].startswith("frhsic.audit/")
    assert "<html" in Path("audit.html").read_text()[:200].lower()
    assert Path("frontier.png").read_bytes().startswith(b"\x89PNG")


def test_train_predict_audit_from_a_shell(folder):
    done = command(
        "train people.csv --target income --sensitive age --lam 1 -o m.frhsic --epochs 3 --holdout 0.4 "
        "--save-holdout held.csv"
    )
    assert done.returncode == 0, done.stderr
    assert "On test rows, which took no part (120): accuracy" in done.stdout
    assert "interval" in done.stdout
    done = command("predict m.frhsic held.csv -o s.parquet --keep age --keep income")
    assert done.returncode == 0, done.stderr
    assert "probability of 'low'" in done.stdout
    table = read_table("s.parquet")
    assert table.column_names == ["age", "income", "score"]
    assert table.num_rows == 120
    done = command("audit s.parquet --score score --sensitive age --held-out --fail-above gdp=0.9")
    assert done.returncode == 0, done.stderr
    assert "Passed: GDP on age" in done.stdout
    assert "Traceback" not in done.stderr


def test_without_lam_a_budget_of_a_tenth_is_kept_and_said(folder, capsys):
    from frhsic.persistence import load

    line = "train scores.csv --target income --sensitive age --drop weight --epochs 40 -o"
    assert run(shlex.split(f"{line} m")) == 0
    assert (load("m")[-1].budget, load("m")[-1].lam) == (None, None)
    said = re.search(r"HSIC of the score is (.*) % of that .* \(budget: 10 %\)", capsys.readouterr().out)
    assert float(said[1]) < 11.5
    assert run(shlex.split(f"{line} m --budget 0.5")) == 0
    assert load("m")[-1].budget == 0.5
    assert "(budget: 50 %)" in capsys.readouterr().out
    assert run(shlex.split(f"{line} m --lam 1")) == 0
    assert load("m")[-1].lam == 1
    assert "budget" not in capsys.readouterr().out


def test_a_limit_is_kept_and_said(folder, capsys):
    from frhsic.persistence import load

    line = "train people.csv --target income --sensitive age -o m --epochs 30"
    assert run(shlex.split(f"{line} --limit gap=0.06 --limit gap_at:0.5=0.5")) == 0
    out = capsys.readouterr().out
    found = re.search(r"Gap of the score: (\S+) on 300 training rows, which steered; limit 0\.06\.", out)
    assert found
    assert float(found[1]) < 1.15 * 0.06
    assert re.search(r"Gap of decisions at 0\.5: .*; limit 0\.5\.", out)
    assert load("m")[-1].limit == {"gap": 0.06, "gap_at": {0.5: 0.5}}


TRAIN = "train scores.csv --target income --sensitive age --drop weight -o m --epochs 1"


def first_line(capsys):
    return capsys.readouterr().out.partition("\n")[0]


def write_late(n=300):
    """Write a table of which the target follows age closely."""
    rng = np.random.default_rng(0)
    age = rng.integers(20, 70, n).astype(float)
    late = (age + 5.0 * rng.normal(size=n) > 45).astype(int)
    write_table({"age": age, "x": age + rng.normal(size=n), "late": late}, "t.csv")


def test_a_missed_limit_is_the_first_line_and_exit_code_1_and_nothing_is_saved(folder, capsys):
    write_late()
    line = "train t.csv --target late --sensitive age --model lightgbm -o m --limit gap=1e-4"
    assert run(shlex.split(f"{line} --limit gdp=0.9")) == 1
    out, err = capsys.readouterr()
    first, second = out.splitlines()[:2]
    assert re.fullmatch(r"Limit missed: gap 0\.0001\. gap \S+ on 300 training rows, which steered\.", first)
    assert second.startswith("Limit open: gdp 0.9. gdp ")
    assert "No model is saved: a limit is missed. Pass --save-missed" in err
    assert not Path("m").exists()
    assert run(shlex.split(f"{line} --save-missed")) == 1
    assert Path("m").exists()


def test_a_limit_is_kept_only_where_test_rows_show_it_and_open_otherwise(folder, capsys):
    assert run(shlex.split(f"{TRAIN} --limit gap=0.9")) == 0
    assert first_line(capsys).endswith("No test rows show whether it is kept: --holdout 0.2 keeps some.")
    assert run(shlex.split(f"{TRAIN} --limit gap=0.9 --holdout 0.3")) == 0
    assert re.fullmatch(
        r"Limit kept: gap 0\.9\. gap \S+ on 210 training rows, which steered; gap \S+, "
        r"95% interval \S+ to \S+, on 90 test rows\.",
        first_line(capsys),
    )


@pytest.mark.parametrize(
    ("steered", "low", "high", "state"),
    [
        (0.0316, 0.0, 0.01, "missed"),  # more than 5 % above
        (0.0314, 0.0, 0.01, "kept"),
        (0.0314, 0.0, 0.031, "open"),
        (0.01, 0.0301, 0.05, "missed"),  # the lower end is above
        (0.01, None, None, "open"),
    ],
)
def test_a_limit_is_missed_kept_or_open(steered, low, high, state):
    reached = Reached("gap", 0.03, None, 0, steered, 500)
    ends = [] if low is None else [Interval(low, low, high, 0.95, "gap", "", "", ("age",), 500)]
    verdict = make_verdict(Key("gap"), 0.03, reached, ends, where="on 500 test rows", hint="")
    assert verdict.state == state
    assert str(verdict).startswith(f"Limit {state}: gap 0.03. gap {steered:.3g} on 500 steering rows")


def test_a_frontier_saves_nothing_that_misses_the_loosest_limit_unless_told_to(folder, capsys):
    write_late()
    line = (
        "frontier t.csv --target late --sensitive age --model lightgbm --validation 0.3 -o m --json f.json "
    )
    line += "--limits gap=0.02 --rule within --within 0"
    assert run(shlex.split(line)) == 1
    out, err = capsys.readouterr()
    assert re.match(
        r"Limit missed: gap 0\.02\. gap \S+, 95% interval \S+ to \S+, on validation rows\.\n", out
    )
    assert "No model is saved. The limit is missed. Pass --save-missed" in err
    assert not Path("m").exists()
    (limit,) = json.loads(Path("f.json").read_text())["limits"]
    assert (limit["limit"], limit["state"]) == ("gap 0.02", "missed")
    assert run(shlex.split(f"{line} --save-missed")) == 1
    assert Path("m").exists()


def test_test_rows_show_what_is_limited_and_no_other_rows_are_called_so(folder, capsys):
    line = "train scores.csv --target income --sensitive age --drop weight -o m --epochs 5 --holdout 0.3"
    run(shlex.split(f"{line} --limit gap=0.5 --limit gap_at:0.5=0.9"))
    out = capsys.readouterr().out
    after = out.partition("On test rows, which took no part (90)")[2]
    assert re.search(r"  Gap of the score on age: \S+, 95% interval \S+ to \S+;", after)
    assert re.search(r"  Gap of decisions by the score at 0.5 on age: \S+, 95% interval", after)
    assert "held-out" not in out


def test_a_frontier_with_limits_takes_the_best_that_does_not_miss_the_loosest(folder, capsys):
    found, out = frontier("--limits gap=0.9,0.2 --validation 0.3 --holdout 0.3", capsys)
    assert found["rule"]["name"] == "limit"
    kept = [one for one in found["models"] if not one["missed"]]
    assert found["models"][found["chosen"]]["performance"] == max(one["performance"] for one in kept)
    assert "that do not miss the limit gap 0.9" in out
    assert re.search(r"On test rows, which took no part \(90\).*\n  Gap of the score on age: \S+, 95% ", out)
    assert "held-out" not in out
    assert run(shlex.split(f"{FRONTIER} --rule limit")) == 2
    assert "--rule limit must come with --limits" in capsys.readouterr().err


def test_no_model_is_saved_where_all_miss_the_limit(folder, capsys):
    line = f"{FRONTIER.replace('20', '1')} --limits gap=1e-5 --json f.json --plot f.png --report f.html"
    assert run(shlex.split(line)) == 1
    out, err = capsys.readouterr()
    assert "No model is chosen: every one misses the limit gap 1e-05." in out
    assert "No model is saved" in err
    assert not Path("m").exists()
    assert json.loads(Path("f.json").read_text())["chosen"] is None
    assert Path("f.png").exists()
    assert "No model is chosen: every one misses" in Path("f.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--limit 0.1", "--limit must name one of gap, rank_gap, gdp, gap_worst, normalized_hsic, gap_at"),
        ("--limit gap", "--limit must have a number behind '='"),
        ("--limit gap_at=0.1", "for gap_at a cut-off behind ':'"),
        ("--limit gap:0.5=0.1", "for gap_at a cut-off behind ':'"),
        ("--limit gap=0.1,0.2", "--limit must name one number"),
        ("--limit gap=0", "--limit must be above 0"),
        ("--limit gap=much", "--limit must be numbers"),
        ("--limit gap=0.1 --budget 0.5", "--budget must come without --limit"),
        ("--limit gap=0.1 --lam 1", "--limit must come without --lam"),
    ],
)
def test_what_is_no_limit_is_told(folder, capsys, options, message):
    line = f"train people.csv --target income --sensitive age -o m {options}"
    assert run(shlex.split(line)) == 2
    assert message in capsys.readouterr().err


def test_the_measures_that_may_be_limited_are_those_of_the_estimators():
    assert LIMITED == MEASURES


def test_a_frontier_of_limits_is_judged_by_what_is_limited(folder, capsys):
    found, out = frontier("--limits gap=0.05,0.2 --rule lowest", capsys)
    assert [one["limit"] for one in found["models"]] == [None, "gap 0.2", "gap 0.05"]
    assert found["dependence"] == "gap"
    assert all(one["dependence"] == one["gap"] for one in found["models"])
    assert re.search(r"limit +of it +accuracy +gap +95% interval", out)
    assert "Chosen: limit gap 0.05" in out
    assert found["rule"]["name"] == "lowest"
    assert run(shlex.split(f"{FRONTIER} --limits gap=0.1 --budgets 0.5")) == 2
    assert "--budgets must come without --limits" in capsys.readouterr().err


def test_a_budget_that_is_not_kept_is_told(folder, capsys):
    line = "train scores.csv --target income --sensitive age -o m --epochs 1 --budget 0.01"
    assert run(shlex.split(line)) == 0
    assert re.search(r"Note: The model has .* above its budget of 0.01. Train for", capsys.readouterr().err)


def test_predictions_are_those_of_the_model(folder):
    from frhsic.persistence import load

    assert run(shlex.split("train people.csv --target income --sensitive age --lam 0 -o m --epochs 2")) == 0
    assert run(shlex.split("predict m people.csv -o s.csv")) == 0
    features = read_table("people.csv", columns=["sex", "job", "hours", "weight", "zone"])
    expected = load("m").predict_proba(features)[:, 1]
    np.testing.assert_allclose(read_table("s.csv")["score"].to_numpy(), expected, rtol=1e-12)


def test_a_number_is_a_regression_and_task_overrides(folder, capsys):
    options = "--sensitive age --lam 0 -o m --epochs 1"
    assert run(shlex.split(f"train scores.csv --target score {options}")) == 0
    assert "R^2" in capsys.readouterr().out
    table = people()
    table["grade"] = np.arange(300) % 3
    write_table(table, "grades.csv")
    assert run(shlex.split(f"train grades.csv --target grade {options} --task classification")) == 0
    assert "accuracy" in capsys.readouterr().out
    assert run(shlex.split("predict m grades.csv -o s.csv")) == 0
    scores = read_table("s.csv")
    assert scores.column_names == ["score_0", "score_1", "score_2"]
    np.testing.assert_allclose(sum(scores[name].to_numpy() for name in scores.column_names), 1.0)


def test_sensitive_columns_are_features_only_when_asked(folder, capsys):
    options = "train people.csv --target income --sensitive age --lam 0 -o m --epochs 1 --drop weight"
    run(shlex.split(options))
    assert "'age'" not in capsys.readouterr().out
    run(shlex.split(f"{options} --keep-sensitive"))
    assert "'age'" in capsys.readouterr().out


def test_the_json_holds_what_audit_returns(folder):
    from frhsic.auditing import audit

    line = "audit scores.csv --score score --sensitive age --sensitive sex --seed 3 --confidence-level 0.9"
    line += " --json a.json"
    assert run(shlex.split(line)) == 0
    table = read_table("scores.csv")
    expected = audit(
        table.select(["score"]),
        sensitive_features=table.select(["age", "sex"]),
        confidence_level=0.9,
        random_state=3,
    )
    assert json.loads(Path("a.json").read_text()) == json.loads(json.dumps(expected.to_dict()))


def test_every_option_of_audit_reaches_it(folder):
    base = "audit scores.csv --score score --sensitive age --json"

    def found(options):
        assert run(shlex.split(f"{base} o.json {options}")) == 0
        return json.loads(Path("o.json").read_text())

    plain = found("")
    for options in (
        "--label income",
        "--weight weight",
        "--confidence-level 0.8",
        "--seed 5",
        "--held-out",
        "--score hours --drop-missing",
        "--sensitive sex",
    ):
        assert found(options) != plain, options
    assert found("--sensitive zone --kind zone=categorical") != found("--sensitive zone")
    assert found("--label income --positive high") != found("--label income --positive low")


def test_the_summary_and_the_table_fit_into_eighty_columns(folder, capsys):
    assert run(shlex.split("audit scores.csv --score score --sensitive age")) == 0
    out = capsys.readouterr().out
    table = [line for line in out.splitlines() if re.match(r"(GDP|normalised HSIC|HSIC|kernel HGR)  ", line)]
    assert len(table) == 4
    assert all(len(line) <= 80 and "…" not in line for line in table)
    assert "What this does not show" in out


# ---- the frontier ------------------------------------------------------------------------------------------

FRONTIER = "frontier scores.csv --target income --sensitive age --drop weight --epochs 20 -o m"


def frontier(options, capsys, line=FRONTIER):
    assert run(shlex.split(f"{line} {options} --json f.json")) == 0, capsys.readouterr().err
    return json.loads(Path("f.json").read_text()), capsys.readouterr().out


def test_frontier_predict_audit_from_a_shell(folder):
    done = command(
        f"{FRONTIER} --budgets 0.2,0.5 --plot f.png --json f.json --validation 0.3 --holdout 0.3 "
        "--save-holdout held.csv"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(Path("f.json").read_text())
    assert found["rows"] == {"training": 147, "validation": 63, "test": 90}
    assert [one["budget"] for one in found["models"]] == [None, 0.5, 0.2]
    (marked,) = [line for line in done.stdout.splitlines() if line.rstrip().endswith("< chosen")]
    best = found["models"][found["chosen"]]
    assert marked.split()[0] == ("none" if best["budget"] is None else f"{best['budget']:g}")
    assert f"{best['performance']:.4f}" in marked
    assert f"{best['gdp_low']:.4f} to {best['gdp_high']:.4f}" in marked
    assert "It was chosen on these 63 rows, which tend to flatter it" in done.stdout
    assert "On test rows, which took no part (90): accuracy" in done.stdout
    assert Path("f.png").read_bytes().startswith(b"\x89PNG")
    assert command("predict m held.csv -o s.csv --keep age").returncode == 0
    assert read_table("s.csv").num_rows == 90
    done = command("audit s.csv --score score --sensitive age --held-out")
    assert done.returncode == 0, done.stderr
    assert "90 rows" in done.stdout


def test_the_saved_model_is_the_chosen_one_of_the_search(folder, capsys):
    from sklearn.pipeline import make_pipeline

    from frhsic.estimators import FRHSICClassifier, TableEncoder
    from frhsic.persistence import load
    from frhsic.selection import FrontierSearch, lowest_dependence

    found, _ = frontier("--budgets 0.5,0.1 --rule lowest --seed 3 --validation 0.25", capsys)
    table = read_table("scores.csv")
    x = table.select(["sex", "job", "hours", "score", "zone"])
    search = FrontierSearch(
        make_pipeline(TableEncoder(), FRHSICClassifier(epochs=20, random_state=3)),
        budgets=[0.5, 0.1],
        rule=lowest_dependence,
        validation=0.25,
        random_state=3,
    ).fit(x, np.array(table["income"].to_pylist()), sensitive_features=table.select(["age"]))
    assert search.best_index_ == found["chosen"] > 0
    assert [point.dependence for point in search.points_] == [one["dependence"] for one in found["models"]]
    np.testing.assert_allclose(load("m").predict_proba(x), search.predict_proba(x), rtol=1e-12)


def test_the_json_of_a_frontier_has_every_number_of_every_model(folder, capsys):
    found, _ = frontier("--lams 1,5 --sensitive sex --weight zone", capsys)
    assert found["schema"] == "frhsic.frontier/1"
    assert set(found) == {
        "schema", "version", "target", "task", "features", "epochs", "seed", "rule", "reason", "sensitive",
        "rows", "performance", "dependence", "confidence_level", "chosen", "models", "limits",
    }  # fmt: skip
    assert found["rule"] == {"name": "within", "within": 0.01, "tolerance": None}
    assert found["sensitive"] == ["age", "sex"]
    assert [one["lam"] for one in found["models"]] == [0, 1, 5]
    for index, one in enumerate(found["models"]):
        assert one["chosen"] is (index == found["chosen"])
        assert one["budget"] is None
        assert type(one["on_front"]) is bool
        assert one["dependence"] == max(one["gdp_age"], one["gdp_sex"])
        assert one["gdp_age_low"] <= one["gdp_age"] <= one["gdp_age_high"]
        assert {"performance", "hsic_age", "hsic_z_sex", "r2_ridge_age", "r2_boosted_sex"} <= set(one)


def test_several_sensitive_columns_have_a_table_each(folder, capsys):
    _, out = frontier("--budgets 0.5 --sensitive sex", capsys)
    assert "60 validation rows: the score and age" in out
    assert "60 validation rows: the score and sex" in out
    assert out.count("< chosen") == 2
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines() if line.startswith((" ", "budget")))


def test_every_rule_can_be_asked_for_and_says_what_it_promises(folder, capsys):
    words = {
        "within --within 0.5": "within 50 % of the one without penalty",
        "lowest": "whatever the accuracy",
        "knee": "the bend of the front",
        "not-rejected": "independence",
        "equivalent --tolerance 0.9": "shown to be below 0.9",
    }
    for rule, says in words.items():
        found, out = frontier(f"--budgets 0.5,0.1 --rule {rule}", capsys)
        assert says in out, rule
        assert found["reason"] in out
        assert found["rule"]["name"] == rule.split()[0]
    assert found["chosen"] == 0  # the weakest of all passes so large a tolerance
    found = frontier("--budgets 0.5,0.1 --within 0.9", capsys)[0]
    assert found["chosen"] == int(np.argmin([one["dependence"] for one in found["models"]]))
    found = frontier("--budgets 0.5,0.1 --within 0", capsys)[0]
    assert found["models"][found["chosen"]]["performance"] >= found["models"][0]["performance"]


def test_no_model_is_saved_where_none_is_shown_to_be_below_the_tolerance(folder, capsys):
    line = f"{FRONTIER} --budgets 0.5 --rule equivalent --tolerance 1e-6 --plot f.svg --json f.json"
    assert run(shlex.split(line)) == 1
    out, err = capsys.readouterr()
    assert "No model is chosen" in out
    assert "No model is saved" in err
    assert not Path("m").exists()
    assert json.loads(Path("f.json").read_text())["chosen"] is None
    assert "<svg" in Path("f.svg").read_text()


def test_a_number_is_a_regression_on_the_frontier_too(folder, capsys):
    found, out = frontier(
        "--budgets 0.5", capsys, "frontier scores.csv --target score --sensitive age --epochs 5 -o m"
    )
    assert found["task"] == "regression"
    assert found["performance"] == "R^2"
    assert "with R^2" in out


def test_budgets_that_are_not_kept_are_told_once(folder, capsys):
    line = FRONTIER.replace("20", "1")
    assert run(shlex.split(f"{line} --budgets 0.05,0.02")) == 0
    err = capsys.readouterr().err
    assert err.count("Note: ") == 1
    assert "More than budget 0.05, 0.02 is left on the rows trained on" in err


def test_the_form_of_a_picture_is_told_by_its_name_and_the_seed_draws_it_again(folder, capsys):
    for name, begins in (("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")):
        frontier(f"--budgets 0.5 --plot {name}", capsys)
        assert Path(name).read_bytes().startswith(begins)
    frontier("--budgets 0.5 --plot b.png", capsys)
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


# ---- the gate ----------------------------------------------------------------------------------------------


def test_the_gate_says_which_measure_failed_on_which_column(folder, capsys):
    line = "audit scores.csv --score score --sensitive age --sensitive sex --fail-above"
    assert run(shlex.split(f"{line} gdp=0.05 --fail-above normalized_hsic=0.99")) == 1
    out, err = capsys.readouterr()
    assert re.search(r"FAILED: GDP on age is shown to be above 0.05 \(95% interval 0\.\d+ to 0\.\d+\)", err)
    assert "FAILED: GDP on sex" not in err
    assert "NOT SHOWN: GDP on sex" in err
    assert out.count("Passed: normalised HSIC") == 2
    for measure in ("hsic", "distance_correlation", "kernel_hgr"):
        assert run(shlex.split(f"{line} {measure}=0 --fail-on estimate")) == 1
        assert run(shlex.split(f"{line} {measure}=1.1")) == 0


@pytest.fixture(scope="module")
def found():
    table = people(400)
    return audit(
        table["score"], sensitive_features={"age": table["age"]}, y_true=table["income"], random_state=0
    )


def passes(limits, end, found):
    return Gate(limits, end).check(replace(found, limits=find_limits(found, limits)))


@pytest.mark.parametrize("end", ["estimate", "lower", "upper"])
def test_the_gate_compares_the_end_that_is_asked_for(found, end, capsys):
    """Limits between the ends: an estimate below its limit is not shown to be below by the upper end."""
    gdp = found.attributes[0].measures["gdp"]
    assert gdp.low < gdp.estimate < gdp.high
    limits = {0.5 * (gdp.low + gdp.estimate): "between low and estimate"}
    limits |= {0.5 * (gdp.estimate + gdp.high): "between estimate and high"}
    limits |= {0.9 * gdp.low: "below", 1.1 * gdp.high: "above"}
    fails = {
        "lower": ["below"],
        "estimate": ["below", "between low and estimate"],
        "upper": ["below", "between low and estimate", "between estimate and high"],
    }[end]
    for limit, place in limits.items():
        assert passes({"gdp": limit}, end, found) == (place not in fails)
        out, err = capsys.readouterr()
        # What is said depends on the interval alone; which of it fails the command, on the end.
        assert ("FAILED: GDP on age" in err) == (place == "below")
        assert ("NOT SHOWN: GDP on age" in err) == ("between" in place)
        assert ("Passed: GDP on age" in out) == (place == "above")


def test_the_gate_takes_measures_beside_the_outcome(found, capsys):
    outcome = found.attributes[0].outcome
    gaps = {given.label: given.gdp.estimate for given in outcome.labels}
    assert not passes({"equalized_odds": 0.9 * min(gaps.values())}, "estimate", found)
    err = capsys.readouterr().err
    assert err.count(": GDP where the outcome is") == len(gaps) == 2
    assert not passes({"equal_opportunity": 0.9 * gaps["low"]}, "estimate", found)
    assert capsys.readouterr().err.count(": GDP where the outcome is low, on age") == 1
    assert passes({"calibration_gap": 1.0}, "upper", found)
    assert "Passed: calibration gap on age is shown to be at most 1" in capsys.readouterr().out


def test_what_cannot_be_measured_does_not_pass_the_gate(found, capsys):
    one = found.attributes[0]
    lost = replace(found, attributes=(replace(one, measures={"hsic": one.measures["hsic"]}),))
    for end in ("lower", "upper", "estimate"):
        assert not passes({"gdp": 0.9}, end, lost)
    assert "cannot be measured on these rows" in capsys.readouterr().err


def test_the_outcome_is_in_the_terminal(folder, capsys):
    assert run(shlex.split("audit scores.csv --score score --sensitive age")) == 0
    without = capsys.readouterr().out
    assert run(shlex.split("audit scores.csv --score score --sensitive age --label income")) == 0
    out = " ".join(capsys.readouterr().out.split())
    for part in ("Among rows of the same outcome", "Where the outcome is high", "GDP, outcome low"):
        assert part in out
        assert part not in " ".join(without.split())
    assert "calibration gap" in out


def test_a_failed_gate_still_writes_its_files(folder):
    done = command("audit scores.csv --score score --sensitive age --json a.json --fail-above gdp=0.001")
    assert done.returncode == 1
    assert "FAILED" in done.stderr
    assert json.loads(Path("a.json").read_text())["n"] == 300


# ---- bad input ---------------------------------------------------------------------------------------------

TRAIN = "train people.csv --target income --sensitive age -o m"
AUDIT = "audit {} --score score --sensitive age"
CASES = {
    "missing column": ("audit scores.csv --score scroe --sensitive age", "--score must", "'score'"),
    "missing sensitive": ("audit scores.csv --score score --sensitive Age", "--sensitive must", "'age'"),
    "missing file": (AUDIT.format("nowhere.csv"), "nowhere.csv", "Check the path"),
    "directory": ("train . --target income --sensitive age -o m.frhsic", "directory", "path of a file"),
    "empty": (AUDIT.format("empty.csv"), "empty file", "Check"),
    "garbage": (AUDIT.format("garbage.csv"), "binary data", "Save the table as CSV"),
    "no rows": (AUDIT.format("no_rows.parquet"), "0 rows", "Check"),
    "ragged": (AUDIT.format("ragged.csv"), "fields under", "Check"),
    "nan in the score": (AUDIT.format("nan.csv"), "Got 2 empty or NaN, the first in row 4", "--drop-missing"),
    "one value": (AUDIT.format("constant.csv"), "single value in all 300 rows", "Leave the column out"),
    "constant score": (AUDIT.format("flat.csv"), "--score must", "pass the scores"),
    "text score": (AUDIT.format("text.csv"), "--score must hold numbers", "--missing-values"),
    "few rows": (AUDIT.format("few.csv"), "at least 50 rows", "Pass more rows"),
    "unknown kind": (AUDIT.format("scores.csv") + " --kind age=number", "--kind must", "=categorical"),
    "kind of another": (AUDIT.format("scores.csv") + " --kind sex=categorical", "--kind must name", "'age'"),
    "unknown measure": (AUDIT.format("scores.csv") + " --fail-above gpd=1", "--fail-above must", "gdp=0.05"),
    "no number": (AUDIT.format("scores.csv") + " --fail-above gdp=abc", "MEASURE=NUMBER", "gdp=0.05"),
    "unknown end": (AUDIT.format("scores.csv") + " --fail-above gdp=1 --fail-on high",
                    "--fail-on must", "upper"),
    "end without a limit": (AUDIT.format("scores.csv") + " --fail-on upper", "--fail-above", "gdp=0.05"),
    "end of kernel HGR": (AUDIT.format("scores.csv") + " --fail-above kernel_hgr=1 --fail-on upper",
                          "no interval", "distance_correlation"),
    "gate without an outcome": (AUDIT.format("scores.csv") + " --fail-above equalized_odds=1",
                                "--label", "outcome"),
    "missing group": (AUDIT.format("scores.csv") + " --group person", "--group must", "column"),
    "gate on z": ("audit scores.csv --score score --score weight --sensitive age --fail-above gdp=1",
                  "single --score", "normalized_hsic"),
    "level": (AUDIT.format("scores.csv") + " --confidence-level 95", "--confidence-level must", "0.95"),
    "positive": (AUDIT.format("scores.csv") + " --label income --positive rich", "--positive", "'high'"),
    "negative weight": (AUDIT.format("negative.csv") + " --weight weight", "--weight must", "zero"),
    "identifier": ("audit scores.csv --score score --sensitive weight --kind weight=categorical",
                   "--sensitive must have few labels", "Leave the column out"),
    "no folder": (AUDIT.format("scores.csv") + " --json no/a.json", "--json must", "Make the folder"),
    "output is a folder": (AUDIT.format("scores.csv") + " --report .", "--report must", "Add a file name"),
    "output is the input": (AUDIT.format("scores.csv") + " --json scores.csv", "--json must not", "another"),
    "no such option": (AUDIT.format("scores.csv") + " --frobnicate", "--frobnicate", "frhsic audit --help"),
    "option left out": ("audit scores.csv --sensitive age", "--score", "--help"),
    "no such command": ("adit scores.csv", "adit", "--help"),
    "corrupt model": ("predict garbage.csv scores.csv -o out.csv", "MODEL must", "Train it again"),
    "no model": ("predict nowhere scores.csv -o out.csv", "MODEL must", "Check the path"),
    "suffix": ("predict garbage.csv scores.csv -o out.xlsx", "-o must end in", ".parquet"),
    "task": (f"{TRAIN} --lam 1 --task guess", "--task", "Choose"),
    "negative lam": (f"{TRAIN} --lam -1", "--lam must", "Pass 0"),
    "target is sensitive": (
        "train people.csv --target age --sensitive age --lam 1 -o m", "different", "another"
    ),
    "missing target": ("train gaps.csv --target income --sensitive age --lam 1 -o m", "--target must have no",
                       "--drop-missing"),
    "identifier as feature": ("train ids.csv --target income --sensitive age --lam 1 -o m",
                              "at most 100 categories", "--drop"),
    "dates as feature": ("train dates.csv --target income --sensitive age --lam 1 -o m", "dates", "--drop"),
    "both strengths": (f"{TRAIN} --lam 1 --budget 0.1", "--budget must come without --lam", "Leave one"),
    "budget of zero": (f"{TRAIN} --budget 0", "--budget must lie above 0", "--lam 0"),
    "budget in percent": (f"{TRAIN} --budget 10", "--budget must", "0.1"),
    "both lists": (f"{FRONTIER} --budgets 0.1 --lams 1", "--budgets must come without --lams", "Leave one"),
    "budgets in percent": (f"{FRONTIER} --budgets 50,10", "--budgets must lie above 0", "0.5,0.2,0.1"),
    "budgets with a gap": (f"{FRONTIER} --budgets 0.5,,0.1", "numbers with commas", "0.5,0.2,0.1"),
    "budgets that are none": (f"{FRONTIER} --budgets nan", "numbers with commas", "0.5,0.2,0.1"),
    "negative lams": (f"{FRONTIER} --lams=-1,2", "--lams must not be negative", "1,10,100"),
    "unknown rule": (f"{FRONTIER} --rule kne", "--rule must be one of", "Try 'knee'"),
    "within what": (f"{FRONTIER} --rule knee --within 0.1", "--within must come with --rule within", "Leave"),
    "within too much": (f"{FRONTIER} --within 1.5", "--within must be a share", "0.01"),
    "no tolerance": (f"{FRONTIER} --rule equivalent", "must come with --tolerance", "too little to matter"),
    "tolerance alone": (f"{FRONTIER} --tolerance 0.1", "must come with --rule equivalent", "Leave one"),
    "tolerance and weight": (f"{FRONTIER} --rule equivalent --tolerance 0.1 --weight zone", "without --w",
                             "Leave one"),
    "validation": (f"{FRONTIER} --validation 0", "--validation must be a share", "0.2"),
    "few to choose on": (f"{FRONTIER} --validation 0.16", "at least 52 rows to choose on. Got 48", "larger"),
    "form of the picture": (f"{FRONTIER} --plot f.jpg", "--plot must end in .png, .svg", "frontier.png"),
    "no folder for the picture": (f"{FRONTIER} --plot no/f.png", "--plot must be in a folder", "Make the"),
    "one file for two": (f"{FRONTIER} --plot f.png --json f.png", "--json must not be the file of --plot",
                         "another"),
    "no epochs": (f"{FRONTIER} --epochs 0", "--epochs must", "Try 200"),
    "holdout": (f"{TRAIN} --lam 1 --holdout 2", "--holdout", "0.2"),
    "dataset": ("datasets adlut", "NAME must", "'adult'"),
}  # fmt: skip


@pytest.fixture
def bad(folder):
    table = people()
    score = table["score"].tolist()
    Path("empty.csv").touch()
    Path("garbage.csv").write_bytes(bytes(range(256)) * 20)
    write_table(pa.table(table).slice(0, 0), "no_rows.parquet")
    Path("ragged.csv").write_text("score,age\n0.5,31\n0.6\n")
    write_table(table | {"score": [None if i in (3, 9) else v for i, v in enumerate(score)]}, "nan.csv")
    write_table(table | {"age": [40] * 300}, "constant.csv")
    write_table(table | {"score": [0.5] * 300}, "flat.csv")
    write_table(table | {"score": ["high" if i == 5 else str(v) for i, v in enumerate(score)]}, "text.csv")
    write_table(people(20), "few.csv")
    write_table(table | {"weight": -table["weight"]}, "negative.csv")
    write_table(table | {"income": [None, *table["income"][1:]]}, "gaps.csv")
    write_table(table | {"id": [f"person {i}" for i in range(300)]}, "ids.csv")
    write_table(table | {"born": np.arange(300).astype("datetime64[D]")}, "dates.csv")
    return folder


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_one_sentence_with_the_cure(bad, capsys, case):
    text, says, cure = CASES[case]
    sentence = refused(text, capsys)
    assert says in sentence
    assert cure in sentence


def test_an_error_about_an_argument_names_the_option_and_what_to_do_here():
    def say(*parts):
        return describe(ArgumentError(*parts))

    assert say("groups", "vary", 1, "Add groups.") == "--group must vary. Got 1. Add groups."
    assert say("--rule", "be one", "'x'", "Try 'y'.") == "--rule must be one. Got 'x'. Try 'y'."
    assert say("a.csv", "have rows", 0, "Add some.") == "'a.csv' must have rows. Got 0. Add some."
    gaps = "2 (None, NaN, NaT or NA), the first in row 3"
    assert say("scores", "have no missing values", gaps, "Drop or fill these rows first.") == (
        "--score must have no missing values. Got 2 empty or NaN, the first in row 4 of the data. "
        "Fill these cells, or pass --drop-missing to leave such rows out."
    )
    fix = "Turn placeholders into missing values and the column into numbers, or say what it is: "
    text = "strings; not read as a number: '?' in row 0"
    assert say("sensitive_features", "vary", text, fix + "kinds={'a': 'categorical'}, here or there.") == (
        "--sensitive must vary. Got text; not read as a number: '?' in row 1 of the data. "
        "Name placeholders with --missing-values, or say what it is: --kind a=categorical."
    )


def test_an_error_that_is_not_about_an_argument_is_shown_as_it_is():
    text = "'sensitive_features' must be what they are in row 3."
    assert describe(ValueError(text)) == text
    assert "defect" in describe(KeyError("x"))


def test_bad_input_from_a_shell_leaves_no_traceback(bad):
    for name in ("missing column", "garbage", "corrupt model"):
        done = command(CASES[name][0])
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1


def test_rows_with_gaps_are_left_out_when_asked_and_counted(bad, capsys):
    assert run(shlex.split(AUDIT.format("nan.csv") + " --drop-missing")) == 0
    out, err = capsys.readouterr()
    assert "Left out 2 of 300 rows" in err
    assert "298 rows" in out


def test_a_semicolon_file_with_decimal_commas_is_audited(folder, capsys):
    table = people()
    rows = [f"{s:.4f}".replace(".", ",") + f";{a}" for s, a in zip(table["score"], table["age"], strict=True)]
    Path("euro.csv").write_text("\n".join(["score;age", *rows]))
    assert run(shlex.split(AUDIT.format("euro.csv"))) == 0
    assert "300 rows" in capsys.readouterr().out


def test_trained_on_is_told(folder, capsys):
    assert run(shlex.split(AUDIT.format("scores.csv") + " --trained-on")) == 0
    assert "used to train the model" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="needs unshare")
def test_a_full_disk_leaves_no_half_written_file(folder):
    inside = (
        "mount -t tmpfs -o size=4k tmpfs disk && {python} -m frhsic {arguments};"
        " code=$?; ls -A disk; exit $code"
    )
    os.mkdir("disk")
    probe = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=4k t disk"], check=False)
    if probe.returncode:
        pytest.skip("no permission to mount a small disk")
    for arguments in (
        "audit scores.csv --score score --sensitive age --json disk/a.json",
        "datasets classification -o disk/u.csv",
        "train scores.csv --target income --sensitive age --lam 0 --epochs 1 -o disk/m.frhsic",
        "frontier scores.csv --target income --sensitive age --lams 1 --epochs 1 --plot disk/f.png -o m",
    ):
        script = inside.format(python=shlex.quote(sys.executable), arguments=arguments)
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2, (arguments, done)
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        assert not [
            name
            for name in done.stdout.splitlines()
            if name.endswith((".json", ".csv", ".frhsic", ".png", ".tmp"))
        ]


def test_a_full_disk_under_stdout_is_told(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "frhsic", "datasets"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_files_without_permission_are_told(capsys):
    # Not in pytest's folder, which another user cannot enter; and root may read everything.
    with tempfile.TemporaryDirectory() as name:
        write_table(people(), f"{name}/scores.csv")
        assert run(shlex.split(AUDIT.format(f"{name}/scores.csv"))) == 0  # imports what root alone may read
        assert run(["datasets", "u_shaped", "-o", f"{name}/u.csv"]) == 0
        os.chmod(f"{name}/scores.csv", 0)
        os.chmod(name, 0o555)
        capsys.readouterr()
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65534)
            read = run(shlex.split(AUDIT.format(f"{name}/scores.csv")))
            written = run(["datasets", "xor", "-o", f"{name}/x.csv"])
        finally:
            os.seteuid(user)
        err = capsys.readouterr().err
        assert read == written == 2, err
        assert "Permission denied. Ask for the permission" in err
        assert "folder you may write to" in err
        assert sorted(os.listdir(name)) == ["scores.csv", "u.csv"]
        os.chmod(name, 0o755)


# ---- what users typed --------------------------------------------------------------------------------------


def test_hostile_names_and_labels_do_no_harm_in_the_terminal(folder, capsys):
    table = people()
    evil = "[red]\x1b[31m\u202egnp.exe[/red]"
    table[evil] = table.pop("age")
    table["<script>alert(1)</script>"] = table.pop("sex")
    table["long"] = ["x" * 10_000 if v == "high" else "سن" for v in table["income"]]
    write_table(table, "evil.parquet")
    line = ["audit", "evil.parquet", "--score", "score", "--json", "e.json", "--report", "e.html"]
    for name in (evil, "<script>alert(1)</script>", "long"):
        line += ["--sensitive", name]
    assert run(line) == 0
    out, err = capsys.readouterr()
    for text in (out, err, Path("e.json").read_text()):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "[red]\\x1b[31m\\u202egnp.exe[/red]" in out
    assert "x" * 200 not in out
    assert "<script>alert(1)</script>" not in Path("e.html").read_text()


def test_hostile_names_do_no_harm_on_a_frontier(folder, capsys):
    table = people()
    evil = "$a$ [red]\x1b[31m\u202egnp.exe 年 _{2}"
    table[evil] = table.pop("age")
    table["<b>$" + "x" * 10_000] = table.pop("income")
    write_table(table, "evil.parquet")
    line = ["frontier", "evil.parquet", "--target", "<b>$" + "x" * 10_000, "--sensitive", evil]
    line += shlex.split("--epochs 1 --budgets 0.5 -o m --json e.json --plot e.svg")
    assert run(line) == 0
    assert run([*line[:-1], "e.png"]) == 0
    out, err = capsys.readouterr()
    for text in (out, err, Path("e.json").read_text(), Path("e.svg").read_text()):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "[red]\\x1b[31m\\u202egnp.exe" in out
    assert "x" * 200 not in out
    assert json.loads(Path("e.json").read_text())["sensitive"] == [evil]


def test_ten_thousand_characters_are_cut_in_an_error(folder, capsys):
    assert len(refused(f"audit scores.csv --score {'y' * 10_000} --sensitive age", capsys)) < 600


def test_invisible_characters_are_made_visible():
    assert escape("a\u202eb\u200bc\x00\x1b[0m\ud800é") == "a\\u202eb\\u200bc\\x00\\x1b[0m\\ud800é"


def test_a_terminal_without_unicode_gets_escapes(folder):
    table = people()
    table["größe"] = table.pop("age")
    write_table(table, "u.csv")
    done = command(
        "audit u.csv --score score --sensitive größe", env=os.environ | {"PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0, done.stderr
    assert "gr\\xf6\\xdfe" in done.stdout


# ---- start-up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", ["typer", "rich"])
def test_without_the_extra_one_sentence_says_how_to_get_it(absent):
    code = (
        f"import sys; sys.modules[{absent!r}] = None; from frhsic.__main__ import main;"
        "sys.argv = ['frhsic', '--help']; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'frhsic[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_version_is_that_of_the_package(capsys):
    import frhsic

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"frhsic {frhsic.__version__}\n"


def test_a_reader_that_leaves_early_gets_no_traceback_and_no_false_pass(folder):
    pipe = f"{shlex.quote(sys.executable)} -m frhsic datasets | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=False)
    assert done.returncode == 141
    assert done.stderr == ""


def test_datasets_are_listed_from_the_face_and_written(folder, capsys):
    import frhsic.datasets

    assert run(["datasets"]) == 0
    out = capsys.readouterr().out
    for name in frhsic.datasets.__all__:
        bare = name.removeprefix("fetch_").removeprefix("make_")
        is_dataset = name not in ("check_data_home", "make_preprocessor", "paper_split")
        assert bool(re.search(rf"^{bare} ", out, re.MULTILINE)) == is_dataset, name
    assert run(["datasets", "u_shaped", "-o", "u.parquet"]) == 0
    assert read_table("u.parquet").num_rows == 1000


@pytest.mark.skipif("FRHSIC_DATA_HOME" not in os.environ, reason="needs the real data in FRHSIC_DATA_HOME")
@pytest.mark.parametrize("name", ["acs_income", "adult", "compas", "crime", "meps"])
def test_real_datasets_are_written_with_every_row_and_their_labels(folder, name):
    import frhsic.datasets

    keep = {"adult": {"missing": "category"}, "crime": {"missing": "keep"}}
    bunch = getattr(frhsic.datasets, f"fetch_{name}")(**keep.get(name, {}))
    assert run(["datasets", name, "-o", "d.parquet"]) == 0
    written = read_table("d.parquet").to_pandas()
    assert len(written) == len(bunch.data)
    for column in (*bunch.data, *bunch.sensitive_features):
        truth = (bunch.data if column in bunch.data else bunch.sensitive_features)[column]
        found = written[column]
        if column in bunch.categories:
            assert found.fillna("?").astype(str).tolist() == truth.astype(str).tolist()
        else:
            assert np.array_equal(found.astype(float), truth.astype(float), equal_nan=True)
    assert written[bunch.target_name].tolist() == bunch.target.tolist()


def test_a_packed_csv_is_audited(folder, capsys):
    Path("s.csv.gz").write_bytes(gzip.compress(Path("scores.csv").read_bytes()))
    assert run(shlex.split(AUDIT.format("s.csv.gz"))) == 0


@pytest.mark.parametrize("words", ["--version", "--help", "audit t.csv --score score --sensitive age"])
def test_a_closed_output_is_exit_code_2_and_no_traceback(words, tmp_path):
    # Exit code 1 would say that a limit is exceeded.
    (tmp_path / "t.csv").write_text("score,age\n" + "\n".join(f"0.{j},{20 + j}" for j in range(10, 60)))
    line = f"{shlex.quote(sys.executable)} -m frhsic {words} >&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "Error: standard output must be open. Got it closed. To discard it: > /dev/null\n"


def test_a_closed_error_output_changes_no_exit_code():
    line = f"{shlex.quote(sys.executable)} -m frhsic {{}} 2>&-"
    for arguments, code in (("--version", 0), ("audit nowhere.csv --score a --sensitive b", 2)):
        command = ["bash", "-c", line.format(arguments)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == code
