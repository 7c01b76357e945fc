"""Commands of the benchmarks, what they may import, and the mutants that they make."""

import ast
import re
from pathlib import Path

import pytest

import benchmarks
from benchmarks import __main__ as command_line
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
