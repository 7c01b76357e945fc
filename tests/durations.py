"""How long each test takes, and which tests a fast run takes: a plugin of pytest (see CONTRIBUTING.md).

Times are seconds of the processor, of the test's own process and of the processes that it waits for, so that
they hardly depend on what else the machine does; and no more than the clock says, as a process that an
earlier test left behind may end now. A fixture that several tests share counts for each of them with its
share.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import pytest

STORED = Path(__file__).with_name("durations.json")
FAST = 1.0  # seconds: what a test of the fast run took at most when it was measured
TOO_LONG = 3.0  # seconds: a test of the fast run that takes longer fails the run
DEAR = 60.0  # seconds: what the tests of always.txt may take together

# Imported before the first test that is measured.
LIBRARIES = (
    "torch",
    "sklearn.ensemble",
    "scipy.stats",
    "pandas",
    "polars",
    "pyarrow",
    "matplotlib.pyplot",
    "lightgbm",
)

# Tests that run on every change whatever they take; the file has the reason for each.
ALWAYS = tuple(
    line
    for line in Path(__file__).with_name("always.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
# The code of the pages of the documentation, once: it is what people run first.
PAGES = "tests/contracts/test_docs.py::test_the_code_of_a_page_runs_as_written["


def read_durations(path: Path = STORED) -> dict[str, float]:
    """Return the seconds of each test that took more than ``FAST``; others are not stored."""
    stored = json.loads(path.read_text()) if path.exists() else {}
    return {f"{file}::{test}": seconds for file, tests in stored.items() for test, seconds in tests.items()}


def is_fast(name: str, stored: Container[str]) -> bool:
    """Return whether a test runs on every change."""
    return name not in stored or is_exempt(name)


def is_exempt(name: str) -> bool:
    """Return whether a test runs on every change whatever it takes."""
    return name in ALWAYS or name.startswith(PAGES)


def write_durations(measured: dict[str, float], path: Path = STORED) -> None:
    """Replace the times of the tests that were measured, and keep those of the others."""
    times = {**read_durations(path), **measured}
    by_file: dict[str, dict[str, float]] = {}
    for name, seconds in sorted(times.items()):
        if seconds > FAST:
            file, _, test = name.partition("::")
            by_file.setdefault(file, {})[test] = round(seconds, 1)
    path.write_text(json.dumps(by_file, indent=0, ensure_ascii=False) + "\n")


def measure_again(times: dict[str, float], root: Path) -> dict[str, float]:
    """Return the tests that take too long alone as well: beside others one can take three times as long."""
    if not times:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "durations.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--write-durations",
            str(path),
        ]
        environment = {name: value for name, value in os.environ.items() if "XDIST" not in name}
        subprocess.run([*command, *times], cwd=root, env=environment, capture_output=True)
        again = read_durations(path)
    return {name: again[name] for name in times if again.get(name, 0.0) > TOO_LONG}


def get_cpu_seconds() -> float:
    """Return the processor's seconds of this process and of those that it has waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Clock:
    """Measures tests and the fixtures that several of them share."""

    def __init__(self) -> None:
        self.shared: dict[Any, float] = {}  # of each fixture that is made once for several tests
        self.users: Counter[Any] = Counter()
        self.inside = 0.0  # what shared fixtures took within the test that runs now

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Import what many tests import, so that none of them seems to take as long as that."""
        if session.config.getoption("fast") or session.config.getoption("write_durations"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for name in LIBRARIES:
                    importlib.import_module(name)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests that ask for each fixture."""
        self.users = Counter(one for item in session.items for one in _get_fixtures(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        """Measure a fixture apart from the test that happens to be the first to ask for it."""
        start, clock, before = get_cpu_seconds(), time.monotonic(), self.inside
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                # A fixture asked for within this one has added its own time already.
                own = min(get_cpu_seconds() - start, time.monotonic() - clock) - (self.inside - before)
                self.shared[fixturedef] = max(own, self.shared.get(fixturedef, 0.0))
                self.inside += own

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Measure a test with its set-up and its tear-down."""
        start, clock, self.inside = get_cpu_seconds(), time.monotonic(), 0.0

        def measure() -> float:
            own = min(get_cpu_seconds() - start, time.monotonic() - clock)
            return max(own - self.inside, 0.0) + self._get_shared(item)

        item.stash[_CPU] = measure
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[Any]:
        """Send the time along with the last report of a test, also from a worker of pytest-xdist."""
        report = yield
        # Without what is torn down: that of a fixture for many tests would count for the last of them.
        if call.when == "call" or (call.when == "setup" and not report.passed):
            report.user_properties.append(("cpu", item.stash[_CPU]()))
        return report

    def _get_shared(self, item: pytest.Item) -> float:
        used = (one for one in _get_fixtures(item) if one in self.shared)
        return sum(self.shared[one] * len(one.params or [0]) / max(self.users[one], 1) for one in used)


def _get_fixtures(item: pytest.Item) -> list[Any]:
    information = getattr(item, "_fixtureinfo", None)
    return [several[-1] for several in information.name2fixturedefs.values()] if information else []


_OUTCOMES = ("passed", "failed", "skipped")
_CPU = pytest.StashKey[Any]()


class Durations:
    """Collects the times of a run, where the reports of all workers arrive."""

    def __init__(self, config: pytest.Config) -> None:
        self.fast = config.getoption("fast")
        self.path = config.getoption("write_durations")
        self.outcomes = config.getoption("write_outcomes")
        self.measured: dict[str, float] = {}
        self.failed: set[str] = set()
        self.skipped: set[str] = set()
        self.too_long: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the time of one test."""
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.skipped:
            self.skipped.add(report.nodeid)
        for name, value in report.user_properties:
            if name == "cpu":
                self.measured[report.nodeid] = value

    def find_too_long(self) -> dict[str, float]:
        """Return the tests of a fast run that take too long, with their seconds."""
        if not self.fast:
            return {}
        return {
            name: seconds
            for name, seconds in self.measured.items()
            if seconds > TOO_LONG and not is_exempt(name) and name not in self.failed
        }

    def count_by_file(self) -> dict[str, dict[str, float]]:
        """Return how many tests of each file passed, failed and were skipped, and their seconds."""
        counts: dict[str, dict[str, float]] = {}
        for name in self.measured.keys() | self.failed:
            one = counts.setdefault(name.partition("::")[0], dict.fromkeys((*_OUTCOMES, "seconds"), 0))
            one["failed" if name in self.failed else "skipped" if name in self.skipped else "passed"] += 1
            one["seconds"] += self.measured.get(name, 0.0)
        return counts

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the times, and fail a fast run with a test that takes too long."""
        if self.path:
            passed = {name: value for name, value in self.measured.items() if name not in self.failed}
            write_durations(passed, Path(self.path))
        if self.outcomes:
            Path(self.outcomes).write_text(json.dumps(self.count_by_file()))
        self.too_long = measure_again(self.find_too_long(), session.config.rootpath)
        if self.too_long and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the tests that take too long, and what to do."""
        total = sum(self.measured.values())
        terminalreporter.write_line(f"{len(self.measured)} tests took {total:.0f} s of the processor.")
        for name, seconds in sorted(self.too_long.items()):
            text = f"TOO LONG {name}: {seconds:.1f} s; a test of the fast run takes at most {TOO_LONG:.0f} s."
            terminalreporter.write_line(f"{text} Make it cheaper, or run it with --write-durations.")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("durations")
    text = f"run only tests that took at most {FAST:.0f} s, and those that guard something alone"
    group.addoption("--fast", action="store_true", help=text)
    group.addoption("--write-durations", metavar="FILE", help="store the times of this run in a JSON file")
    text = "store in a JSON file how many tests of each file passed"
    group.addoption("--write-outcomes", metavar="FILE", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each worker, collect in the process that has none above it."""
    config.pluginmanager.register(Clock())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests of a fast run."""
    if config.getoption("fast"):
        stored = read_durations()
        config.hook.pytest_deselected(items=[item for item in items if not is_fast(item.nodeid, stored)])
        items[:] = [item for item in items if is_fast(item.nodeid, stored)]
