"""What the command line imports: help and errors about options need no numerical library, an audit few."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from frhsic.cli import app

SCRIPT = shutil.which("frhsic", path=Path(sys.executable).parent)
PROGRAM = [sys.executable, "-m", "frhsic"] if SCRIPT is None else [SCRIPT]
HEAVY = {"torch", "numpy", "scipy", "sklearn", "pandas", "pyarrow", "narwhals", "matplotlib"}
COMMANDS = [command.callback.__name__ for command in app.registered_commands]
TRAIN = "train t.csv --target y --sensitive age -o m"
WRONG = [
    "adit",
    "--frobnicate",
    "audit",
    "audit t.csv --score score",
    "audit t.csv --score score --sensitive age --frobnicate",
    "audit t.csv --score score --sensitive age --seed x",
    "audit t.csv --score score --sensitive age --confidence-level 2",
    "audit t.csv --score score --sensitive age --kind age=number",
    "audit t.csv --score score --sensitive age --fail-above gpd=1",
    "audit t.csv --score score --sensitive age --engine spark",
    "audit t.csv --score score --sensitive age --json nowhere/a.json",
    f"{TRAIN} --budget 2",
    f"{TRAIN} --task guess",
    f"{TRAIN} --holdout 2",
    "frontier t.csv --target y --sensitive age -o m --rule kne",
    "frontier t.csv --target y --sensitive age -o m --budgets 50",
    "predict m",
]


def imports(arguments, cwd):
    """Run the installed command in a new process; return exit code, stdout and imported modules."""
    done = subprocess.run(
        [*PROGRAM, *arguments.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},
    )
    modules = set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", done.stderr, re.MULTILINE))
    assert "frhsic" in modules, done.stderr[-500:]
    return done.returncode, done.stdout, modules


def packages(modules):
    return {name.split(".")[0] for name in modules}


@pytest.mark.parametrize("words", ["--help", "-h", "--version", *(f"{name} --help" for name in COMMANDS)])
def test_help_and_version_import_no_numerical_library(words, tmp_path):
    code, out, modules = imports(words, tmp_path)
    assert code == 0
    assert "frhsic" in out
    assert not packages(modules) & HEAVY
    assert "version" in words or "rich" not in packages(modules)
    # The package, its texts and checks, and the command line; of these no more than one file a command.
    assert len([name for name in modules if name.startswith("frhsic.")]) <= 14 + len(COMMANDS)
    assert len(modules) < 450


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_option_is_answered_without_a_numerical_library(words, tmp_path):
    code, out, modules = imports(words, tmp_path)
    assert (code, out) == (2, "")
    assert not packages(modules) & HEAVY


def test_a_wrong_column_is_answered_without_torch(tmp_path):
    (tmp_path / "t.csv").write_text("score,age\n0.5,31\n0.4,32\n")
    for words in ("audit t.csv --score scroe --sensitive age", f"{TRAIN} --lam 1"):
        code, _, modules = imports(words, tmp_path)
        assert code == 2
        assert not packages(modules) & {"torch", "sklearn", "pandas", "scipy"}


def test_an_audit_imports_only_what_it_uses(tmp_path):
    rng = np.random.default_rng(0)
    rows = "\n".join(f"{score:.6f},{age}" for score, age in zip(rng.random(60), range(20, 80), strict=True))
    (tmp_path / "t.csv").write_text(f"score,age\n{rows}\n")
    code, _, modules = imports("audit t.csv --score score --sensitive age", tmp_path)
    assert code == 0
    assert {"torch", "frhsic.auditing"} <= modules
    assert not packages(modules) & {"sklearn", "matplotlib", "jinja2", "ray"}
    assert not modules & {"frhsic.estimators", "frhsic.report"}
