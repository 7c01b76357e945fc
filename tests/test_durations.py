"""Which tests a fast run takes, and what it says of one that takes too long."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import durations

SPIN = """
import time

def test_it():
    end = time.process_time() + {seconds}
    while time.process_time() < end:
        pass
"""

FIRST = """
import pathlib

def first():
    path = pathlib.Path("mark")
    new = not path.exists()
    path.touch()
    return new
"""


def run(folder, *options):
    """Run pytest with the plugin in a folder of its own; return its exit code and its output."""
    (folder / "conftest.py").write_text('pytest_plugins = ["tests.durations"]\n')
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {Path(__file__).parents[1]}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_is_not_stored_counts_as_fast_and_fails_the_run_by_name_if_it_is_not(tmp_path):
    (tmp_path / "test_slow.py").write_text(SPIN.format(seconds=durations.TOO_LONG + 0.1))
    (tmp_path / "test_quick.py").write_text(SPIN.format(seconds=0.0))
    code, text = run(tmp_path, "--fast", "--write-outcomes", "outcomes.json")
    assert code == 1
    assert "TOO LONG test_slow.py::test_it" in text
    assert "TOO LONG test_quick" not in text
    counts = json.loads((tmp_path / "outcomes.json").read_text())
    assert [counts[name]["passed"] for name in ("test_quick.py", "test_slow.py")] == [1, 1]
    assert run(tmp_path)[0] == 0  # all tests may take what they take


def test_a_test_that_is_slow_only_beside_others_does_not_fail_the_run(tmp_path):
    seconds = f"{durations.TOO_LONG + 0.1} * first()"
    (tmp_path / "test_once.py").write_text(FIRST + SPIN.format(seconds=seconds))
    code, text = run(tmp_path, "--fast")
    assert code == 0
    assert "TOO LONG" not in text


def test_times_are_stored_for_tests_of_more_than_a_second_only(tmp_path):
    path = tmp_path / "durations.json"
    name = "tests/test_durations.py::test_"
    durations.write_durations({f"{name}a": 5.04, f"{name}b": 0.5}, path)
    assert durations.read_durations(path) == {f"{name}a": 5.0}
    durations.write_durations({f"{name}a": 0.4, f"{name}c[1-x]": 2.0}, path)
    assert durations.read_durations(path) == {f"{name}c[1-x]": 2.0}
    assert durations.read_durations(tmp_path / "none.json") == {}


def test_tests_that_always_run_exist_and_stay_within_their_seconds():
    stored = durations.read_durations()
    assert set(durations.ALWAYS) <= stored.keys()
    assert sum(stored[name] for name in durations.ALWAYS) <= durations.DEAR
    assert len(set(durations.ALWAYS)) == len(durations.ALWAYS)


@pytest.mark.parametrize("stored", [True, False])
def test_a_stored_test_is_left_out_of_a_fast_run(stored):
    name = "tests/contracts/test_x.py::test_y"
    assert durations.is_fast(name, [name] if stored else []) is not stored
    assert durations.is_fast(durations.ALWAYS[0], durations.ALWAYS)
    assert durations.is_fast(f"{durations.PAGES}README.md]", [f"{durations.PAGES}README.md]"])
