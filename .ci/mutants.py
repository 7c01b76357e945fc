"""Break the package in ten ways and check that the tests of a fast run notice each: python .ci/mutants.py.

The list was made before any test was moved out of .ci/run. No test had seen one of the ten, the wrong
derivative of the logistic function; it has a test since.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Mutant(NamedTuple):
    """One change of the source, and the files of tests of which a fast run has one that fails."""

    file: str
    old: str
    new: str
    tests: str


MUTANTS = {
    "the unbiased HSIC is divided by n^2": Mutant(
        "numerics/_centering.py", "1.0 / (n * (n - 3))", "1.0 / (n * n)", "tests/oracles/test_hsic.py"
    ),
    "one term of HSIC from sums has the wrong sign": Mutant(
        "numerics/_centering.py",
        "* total - 2.0 * n / (n - 2) * cross",
        "* total + 2.0 * n / (n - 2) * cross",
        "tests/oracles/test_permuted.py",
    ),
    "a p-value may be zero": Mutant(
        "table/_pvalues.py",
        "np.mean(values >= observed - slack)",
        "np.mean(values[1:] >= observed - slack)",
        "tests/oracles/test_independence.py tests/contracts/test_inference.py",
    ),
    "rows of another number are paired": Mutant(
        "data/_alignment.py", "if n != n_rows:", "if n < n_rows:", "tests/contracts/test_data.py"
    ),
    "numbers of single rows are shown": Mutant(
        "auditing/_privacy.py",
        "MIN_ROWS_SHOWN: Final = 10",
        "MIN_ROWS_SHOWN: Final = 1",
        "tests/contracts/test_audit.py tests/contracts/test_record.py tests/contracts/test_outcome.py",
    ),
    "a report does not escape": Mutant(
        "report/_page.py", "autoescape=True", "autoescape=False", "tests/contracts/test_report.py"
    ),
    "a damaged file is read": Mutant(
        "_tensorfile.py",
        "return data[start:end] == digest",
        "return len(data) > 0",
        "tests/contracts/test_tensorfile.py",
    ),
    "a session of PostgreSQL may write": Mutant(
        "sources/_sessions.py",
        "isolation level repeatable read, read only",
        "isolation level repeatable read",
        "tests/contracts/test_sql.py tests/contracts/test_sql_drivers.py",
    ),
    "the derivative of the logistic function is wrong": Mutant(
        "boosting/_objective.py",
        "return p * (1.0 - p)",
        "return p",
        "tests/oracles/test_boosting_table.py tests/contracts/test_boosting.py",
    ),
    "a beaten model stands on the front": Mutant(
        "selection/_front.py",
        "if points[index].performance > best:",
        "if points[index].performance >= best:",
        "tests/oracles/test_front.py",
    ),
}  # fmt: skip


def is_caught(mutant: Mutant, folder: Path) -> bool:
    """Return whether a test of the fast run fails on a copy of the source with the change."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    path = source / "frhsic" / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        sys.exit(
            f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times: bring the mutant up to date"
        )
    path.write_text(text.replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--fast", "-p", "no:cacheprovider"]
    command += mutant.tests.split()
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stdout[-3_000:] + done.stderr[-3_000:])
    return done.returncode == 1 and " failed" in done.stdout


survived = []
for name, mutant in MUTANTS.items():
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        caught = is_caught(mutant, Path(folder))
    print(f"{'caught' if caught else 'SURVIVED':8} {name} ({time.monotonic() - start:.0f} s)", flush=True)
    if not caught:
        survived.append(name)
sys.exit(f"no test of the fast run notices: {survived}" if survived else 0)
