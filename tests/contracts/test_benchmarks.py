"""Commands of the benchmarks, what they may import, and the mutants that they make."""

import ast
import math
import re
from pathlib import Path

import pytest

import benchmarks
from benchmarks import __main__ as command_line
from benchmarks import gold
from benchmarks._simulate import rng
from benchmarks.speed import audits
from benchmarks.statistics import mutants

ROOT = Path(benchmarks.__file__).parent


@pytest.mark.parametrize("name", command_line.PAPER | command_line.OTHERS)
def test_every_command_has_options_and_a_run(name):
    module, _, entry = (command_line.PAPER | command_line.OTHERS)[name].partition(":")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
    if entry:
        assert any(isinstance(one, ast.Assign) and one.targets[0].id == entry for one in tree.body)
    else:
        defined = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        assert {"add_arguments", "run"} <= defined


def test_benchmarks_use_the_public_api_only():
    private = re.compile(r"^\s*(?:from|import) frhsic(?:\.\w+)*(?:\._\w+| import _\w+)", re.MULTILINE)
    assert [path for path in ROOT.rglob("*.py") if private.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("before", "kind", "after"),
    [
        ("x < 1", "comparison", "x <= 1"),
        ("x is None", "comparison", "x is not None"),
        ("x + y", "arithmetic", "x - y"),
        ("x / y", "arithmetic", "x * y"),
        ("x and y", "and/or", "x or y"),
        ("not x", "no sign", "x"),
        ("True", "constant", "False"),
        ("3", "constant", "4"),
        ("max(x, y)", "min/max", "min(x, y)"),
        ("x.min(0)", "min/max", "x.max(0)"),
    ],
)
def test_a_mutant_changes_one_thing(before, kind, after):
    found, node = mutants.mutate(ast.parse(before, mode="eval").body)
    assert (found, ast.unparse(node)) == (kind, after)


def test_messages_annotations_docstrings_and_exports_are_left_alone():
    text = '__all__ = ["a"]\ndef f(x: 1 < 2) -> 3:\n    """1 < 2"""\n    raise ValueError(f"{1 + 1}")\n'
    assert [mutants.mutate(node) for node in mutants.walk(ast.parse(text)) if mutants.mutate(node)] == []


def test_a_mutant_is_written_and_differs_from_the_source_in_one_place(tmp_path):
    chosen = mutants.draw(5, seed=1)
    assert chosen == mutants.draw(5, seed=1)
    for mutant in chosen:
        path = tmp_path / mutant.file
        path.parent.mkdir(parents=True, exist_ok=True)
        mutants.write_mutant(mutant, tmp_path)
        clean = ast.unparse(ast.parse((mutants.ROOT / mutant.file).read_text())).splitlines()
        mutated = path.read_text().splitlines()
        compile(path.read_text(), mutant.file, "exec")
        assert mutated != clean
        assert (
            len(clean) - len(mutated) in (0, len(mutant.before.splitlines()) - 1) or mutant.kind == "deleted"
        )


def test_tests_are_chosen_by_what_the_module_defines():
    one = mutants.mutants_of(mutants.ROOT / "src/frhsic/dependence/mi.py")[0]
    by, tests = mutants.Tests(None, None, 60.0).choose(one)
    assert (by, tests[0]) == ("package", "tests/oracles/test_mutual_information.py")


def test_medians_of_audits_stand_beside_their_targets():
    runs = [
        {"what": what, "threads": "one", "seconds": seconds, "cpu_seconds": seconds, "megabytes": 1.0}
        for what, times in (("import torch", (1.0, 2.0, 3.0)), (audits.CASES[0].name, (4.0, 6.0, 9.0)))
        for seconds in times
    ]
    rows = {row["what"]: row for row in audits.summarise(runs)}
    row = rows["20,000 rows, 1 attribute"]
    assert (row["seconds"], row["over_torch"], row["targets"]) == (6.0, 3.0, {"seconds": 5.0})


def test_the_digest_of_a_gold_case_is_that_of_its_columns_and_options():
    first, again = (gold.CASES["binary outcome"](rng("gold", "binary outcome")) for _ in range(2))
    assert gold.digest(first) == gold.digest(again)
    others = [{**first, "thresholds": (0.6,)}, {**first, "y_true": 1 - first["y_true"]}]
    assert len({gold.digest(data) for data in (first, *others)}) == 3


def test_a_comparison_names_what_differs_beyond_the_tolerance_and_nothing_else():
    gap = {"estimate": 0.1, "low": 0.08, "high": 0.12}
    curve = {"points": [20, 30, 40], "mean": [0.2, 0.5, 0.3]}
    old = {"age": {"test": {"method": "permutation", "pvalue": 0}, "gap": gap, "curve": curve}}
    assert gold.differences(old, old, 0.0) == []
    assert gold.differences({"ratio": 2e-16}, {"ratio": 0}, 0.0) == []
    lost = gold.differences({"ends": [1, math.nan]}, {"ends": [math.nan, math.nan]}, 0.5)
    assert [row[:4] for row in lost] == [("ends [0 of 2]", "1", "nan", math.inf)]
    near = {**gap, "estimate": 0.1000999, "low": 0.07992001}
    new = {"age": {**old["age"], "gap": near, "curve": {**curve, "mean": [0.2, 0.4996, 0.3]}}}
    assert gold.differences(old, new, 1e-3) == []
    names = [row.quantity for row in gold.differences(old, new, 9e-4)]
    assert names == ["age: gap: estimate", "age: gap: low"]
    far = {
        "test": {"method": "table", "pvalue": 0.001},
        "gap": {"estimate": 0.11, "low": 0.08, "chance": 0.02},
        "curve": {"points": [20, 30], "mean": [0.2, 0.5, 0.4]},
    }
    assert [row[:4] for row in gold.differences(old, {"age": far}, 1e-3)] == [
        ("age: test: method", "permutation", "table", math.inf),
        ("age: test: pvalue", "0", "0.001", math.inf),
        ("age: gap: estimate", "0.1", "0.11", pytest.approx(0.1)),
        ("age: gap: high", "0.12", "-", math.inf),
        ("age: curve: points", "3 numbers", "2 numbers", math.inf),
        ("age: curve: mean [2 of 3]", "0.3", "0.4", pytest.approx(0.2)),
        ("age: gap: chance", "-", "0.02", math.inf),
    ]
    estimate = gold.differences(old, {"age": far}, 1e-3)[2]
    assert estimate.width == pytest.approx(0.25)
    assert gold.table_of([estimate]).splitlines()[1].split() == (
        ["age:", "gap:", "estimate", "0.1", "0.11", "10.00%", "25.00%"]
    )
