"""Claims about the package as a whole: what importing does, and that examples run."""

import ast
import importlib
import logging
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import frhsic

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OUTSIDE_GALLERY = [path for path in EXAMPLES if path.name.startswith("09_")]


def test_importing_loads_neither_torch_nor_any_other_library():
    code = "import sys; before = set(sys.modules); import frhsic; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded <= {*sys.stdlib_module_names, "frhsic"}
    assert len(done.stdout.split()) < 60


def test_every_public_name_is_known_to_type_checkers_and_found_at_its_home():
    tree = ast.parse(Path(frhsic.__file__).read_text())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in checked.body for alias in node.names}  # type: ignore[attr-defined]
    assert seen == frhsic._HOMES
    assert set(seen) == set(frhsic.__all__) <= set(dir(frhsic))
    for package in frhsic._PACKAGES:
        assert package in dir(frhsic)
        assert getattr(frhsic, package).__doc__
    with pytest.raises(AttributeError, match="no attribute 'HISC'"):
        frhsic.HISC  # noqa: B018


def test_importing_is_silent_and_has_a_null_handler():
    done = subprocess.run([sys.executable, "-c", "import frhsic"], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("frhsic").handlers)


def test_the_public_api_lists_what_exists_and_no_more_than_twenty_names():
    assert len(frhsic.__all__) <= 20
    assert frhsic.__all__ == sorted(frhsic.__all__, key=lambda name: (not name.isupper(), name))
    for name in frhsic.__all__:
        assert getattr(frhsic, name).__doc__


SINCE_0_1_0 = {"OnRanks", "ScoreGap", "decision_gaps", "plot_decision_gaps", "region_test", "score_gap"}
SINCE_0_1_0 |= {"FRHSICBoostingClassifier", "FRHSICBoostingRegressor", "ScoreRepair", "RepairedModel"}
SINCE_0_1_0 |= {"lightgbm_objective", "xgboost_objective", "plot_adjusted", "plot_carriers", "plot_proxies"}
SINCE_0_1_0 |= {"adjusted_curve", "carriers", "conditional_independence_test", "proxies", "retrain_without"}
SINCE_0_1_0 |= {"read_record", "verify", "render_frontier", "write_frontier"}
SINCE_0_1_0 |= {"assert_gap_below", "log_audit"}
SINCE_0_1_0 |= {"auc_curve", "plot_auc", "plot_error_rates"}
SINCE_0_1_0 |= {"compare", "gap_change", "curve_change", "RecoveredVariance", "channel_bound"}
SINCE_0_1_0 |= {"best_within_limit", "Axis", "ScoreTable", "RankGap"}


def test_every_public_name_has_one_home_and_there_are_not_too_many():
    homes = {}
    for found in pkgutil.walk_packages(frhsic.__path__, "frhsic."):
        private = any(part.startswith("_") for part in found.name.split("."))
        if not private and found.name != "frhsic.cli":  # a command, not an API
            for name in getattr(importlib.import_module(found.name), "__all__", ()):
                homes.setdefault(name, []).append(found.name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
    assert set(frhsic.__all__) <= set(homes)
    assert len(homes.keys() - SINCE_0_1_0) <= 125
    assert homes.keys() >= SINCE_0_1_0


def test_no_module_prints_or_imports_the_public_api():
    for path in (ROOT / "src" / "frhsic").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", path
            if isinstance(node, ast.Import):
                assert all(alias.name != "frhsic" for alias in node.names), path
            if isinstance(node, ast.ImportFrom):
                names = [alias.name for alias in node.names]
                assert node.module != "frhsic" or all(name.startswith("_") for name in names), path


def test_examples_are_short_and_the_gallery_runs_all_but_those_run_here():
    pattern = re.search(r'"filename_pattern": r"(.*?)"', (ROOT / "docs" / "conf.py").read_text())
    shown = {path for path in EXAMPLES if pattern and re.search(pattern[1], path.as_posix())}
    assert set(EXAMPLES) - shown == set(OUTSIDE_GALLERY)
    assert all(len(path.read_text().splitlines()) <= 80 for path in EXAMPLES)


@pytest.mark.parametrize("path", OUTSIDE_GALLERY, ids=lambda path: path.stem)
def test_an_example_outside_the_gallery_runs(path, tmp_path):
    command = [sys.executable, "-W", "error", str(path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
