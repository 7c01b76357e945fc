"""The recipes of docs/howto/gates.md, run as they are written."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from frhsic.sources import write_table

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "gates.md").read_text("utf-8")
# What the score depends on age by; the limit of the page is 0.05.
EFFECTS = {"kept": 0.0, "not shown": 0.2, "exceeded": 0.5}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def block(language, part):
    (found,) = [one for one in blocks(language) if part in one]
    return found


@pytest.fixture
def folder(tmp_path):
    """Return how to make a folder with a table of scores and the limits of the page."""

    def make(which):
        rng = np.random.default_rng(0)
        age, noise = rng.integers(18, 80, 1_000), rng.normal(size=1_000)
        score = 1.0 / (1.0 + np.exp(-(EFFECTS[which] * (age - 49) / 18 + 0.5 * noise)))
        write_table({"age": age, "score": score}, tmp_path / "scores.csv")
        (tmp_path / "limits.toml").write_text(block("toml", "[limits]"))
        return tmp_path

    return make


def shell(command, folder, **environment):
    """Run a command line as a hook or a workflow does: in a shell that stops at the first error."""
    scripts = folder / "bin"
    if not scripts.exists():
        scripts.mkdir()
        # The command of this source tree, wherever another one is installed.
        (scripts / "frhsic").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m frhsic "$@"\n')
        (scripts / "frhsic").chmod(0o755)
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PATH": path} | environment,
        timeout=300,
    )


CODES = {"kept": 0, "not shown": 1, "exceeded": 1}


@pytest.mark.parametrize("which", CODES)
def test_the_command_is_a_gate(folder, which):
    done = shell(block("bash", "frhsic audit"), folder(which))
    assert done.returncode == CODES[which], done.stderr
    words = {"kept": "Passed: ", "not shown": "NOT SHOWN: ", "exceeded": "FAILED: "}
    assert words[which] in done.stdout + done.stderr
    shown = " ".join(block("text", "NOT SHOWN").split())
    assert (shown in " ".join(done.stderr.split())) == (which == "not shown")


@pytest.mark.parametrize("which", ["kept", "exceeded"])
def test_the_hook_stops_a_commit(folder, which):
    (repo,) = yaml.safe_load(block("yaml", "repo: local"))["repos"]
    (hook,) = repo["hooks"]
    assert (repo["repo"], hook["language"], hook["pass_filenames"]) == ("local", "system", False)
    changed = re.compile(hook["files"])
    assert [name for name in ("scores.csv", "limits.toml", "scoresXcsv", "a.py") if changed.search(name)] == [
        "scores.csv",
        "limits.toml",
    ]
    done = shell(hook["entry"], folder(which))
    assert done.returncode == CODES[which], done.stderr


@pytest.mark.parametrize("which", ["kept", "exceeded"])
def test_the_workflow_fails_and_still_shows_its_summary(folder, which):
    workflow = yaml.safe_load(block("yaml", "GITHUB_STEP_SUMMARY"))
    steps = [step for step in workflow["jobs"]["audit"]["steps"] if "run" in step]
    install, gate, summary = steps
    assert install["run"] == "pip install 'frhsic[cli,report]'"
    here = folder(which)
    done = shell(gate["run"], here)
    assert done.returncode == CODES[which], done.stderr
    assert "if" not in gate
    assert summary["if"] == "always()"
    (here / "summary").write_text("Before.\n")
    assert shell(summary["run"], here, GITHUB_STEP_SUMMARY=str(here / "summary")).returncode == 0
    state = {"kept": "Passed", "exceeded": "Failed"}[which]
    text = (here / "summary").read_text("utf-8")
    assert text.startswith("Before.\n## Dependence of “score” on age\n")
    assert f"\n- **{state}**: score gap on age is shown" in text
    kept = [step for step in workflow["jobs"]["audit"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert [one["with"]["path"] for one in kept] == ["audit.*"]
    assert {one.name for one in here.glob("audit.*")} == {"audit.md", "audit.html", "audit.json"}


@pytest.mark.parametrize("which", CODES)
def test_the_test_of_the_page_passes_and_fails(folder, which):
    here = folder(which)
    (here / "test_scores.py").write_text(block("python", "assert_gap_below"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_scores.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here, timeout=300)
    assert done.returncode == CODES[which], done.stdout
    if which == "not shown":
        for line in block("text", "AssertionError").splitlines():
            assert line.removesuffix(" ...") in done.stdout
        # pytest points at the test, not at the inside of the assertion.
        assert "src/frhsic/testing.py" not in done.stdout.replace(os.sep, "/")


needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


@needs_ssh
def test_a_signature_holds_until_a_byte_changes(folder):
    here = folder("kept")
    gate = "frhsic audit scores.csv --score score --sensitive age --json audit.json"
    assert shell(gate, here).returncode == 0
    commands = block("bash", "ssh-keygen")
    done = shell(commands, here)
    assert done.returncode == 0, done.stderr
    shown = block("text", "Good").strip().removesuffix("...")
    assert done.stdout.strip().splitlines()[-1].startswith(shown)
    (verify,) = [line for line in commands.splitlines() if "-Y verify" in line]
    assert shell(verify, here).returncode == 0
    for change in (lambda text: text.replace('"seed": 0', '"seed": 1', 1), lambda text: text + "\n"):
        whole = (here / "audit.json").read_text()
        assert change(whole) != whole
        (here / "audit.json").write_text(change(whole))
        assert shell(verify, here).returncode != 0
        (here / "audit.json").write_text(whole)
    # Another key signs for itself only.
    assert shell("ssh-keygen -q -t ed25519 -N '' -f other_key && rm audit.json.sig", here).returncode == 0
    assert shell("ssh-keygen -Y sign -f other_key -n file audit.json", here).returncode == 0
    assert shell(verify, here).returncode != 0
