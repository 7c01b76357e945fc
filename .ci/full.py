"""Run what .ci/run leaves out, in parts, and write the outcome to .ci/full.json: see CONTRIBUTING.md.

A part is run again only when something changed that it depends on. A file of tests depends on the modules
that it imports, directly or not, and on the whole package where it starts processes. Another part depends on
the files and folders that are named beside it here.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTCOME = ROOT / ".ci" / "full.json"
STATE = ROOT / ".ci" / "state"  # coverage of the tests so far; not committed
OLD = 100  # commits to src after which the outcome no longer counts
CHUNK = 1_200.0  # seconds of the processor, about ten minutes of two cores: files of tests that run together

# name: (command, what it depends on)
PARTS = {
    "mutants": ("python .ci/mutants.py", ("src", "tests", ".ci/mutants.py")),
    "lowest": ("bash .ci/lowest", ("src", ".ci/lowest", ".ci/smoke.py")),
    "start": ("bash .ci/start", ("src", "README.md", "docs/start", ".ci/start")),
    "site": ("bash .ci/site", ("src", "docs", "examples", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    "python3.13": ("bash .ci/python3.13", ("src", "tests/oracles", "tests/theory", ".ci/python3.13")),
}

# A file of tests that has the word depends on the place.
MENTIONED = {
    "benchmarks": "benchmarks",
    "docs": "docs",
    "examples": "examples",
    "README": "README.md",
    "CHANGELOG": "CHANGELOG.md",
    "saved": "tests/contracts/saved",
}


def run_git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


# What a part depends on


@functools.cache
def hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@functools.cache
def list_files() -> list[str]:
    return run_git("ls-files").splitlines()


def hash_places(*places: str) -> str:
    """Return a digest of the files that git tracks at these places, and of what is installed."""
    wanted = set(places)
    files = [
        name for name in list_files() if name in wanted or any(str(up) in wanted for up in Path(name).parents)
    ]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    installed = [project["dependencies"], project["optional-dependencies"], settings["tool"]["pytest"]]
    text = json.dumps([installed, *([name, hash_file(ROOT / name)] for name in sorted(files))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def build_graph():
    import grimp

    return grimp.build_graph("frhsic")


@functools.cache
def find_homes() -> dict[str, str]:
    """Return the module of each name that ``frhsic`` imports when it is first used."""
    import frhsic

    return {name: f"frhsic.{package}" for package, names in frhsic._NAMES_OF.items() for name in names}


@functools.cache
def find_modules(module: str) -> frozenset[str]:
    """Return a module of the package and all that it imports, directly or not."""
    graph = build_graph()
    return (
        frozenset({module, *graph.find_upstream_modules(module)}) if module in graph.modules else frozenset()
    )


def find_places(file: str) -> list[str]:
    """Return what a file of tests depends on: files and folders."""
    text = (ROOT / file).read_text()
    places = [file, "conftest.py", "tests/helpers.py", "tests/covering.py", "tests/durations.py"]
    places += [name for name in list_files() if Path(name).name == "conftest.py"]
    for word, place in MENTIONED.items():
        if word in text:
            places.append(place)
    modules = set()
    homes = find_homes()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "frhsic":
            modules |= {homes.get(alias.name, f"frhsic.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    if "benchmarks" in text or "subprocess" in text or modules & {"frhsic", "importlib", "frhsic.cli"}:
        return [*places, "src"]
    for module in {"frhsic"}.union(*map(find_modules, modules)):
        path = "src/" + module.replace(".", "/")
        places += [f"{path}.py", f"{path}/__init__.py"]
    # Files that are no modules (templates, checksums) are few: each counts for all.
    return [*places, *(name for name in list_files() if name.startswith("src/") and not name.endswith(".py"))]


def hash_tests(unit: str) -> str:
    return hash_places("src", "conftest.py") if unit == "src" else hash_places(*find_places(unit))


# The outcome


def read_outcome() -> dict:
    return json.loads(OUTCOME.read_text()) if OUTCOME.exists() else {"tests": {}, "parts": {}}


def write_outcome(outcome: dict) -> None:
    text = json.dumps(outcome, indent=1, sort_keys=True) + "\n"
    OUTCOME.write_text(text)


def list_units() -> list[str]:
    """Return the files of tests, and 'src' for the examples in docstrings."""
    return [
        "src",
        *(name for name in list_files() if name.startswith("tests/") and Path(name).name[:5] == "test_"),
    ]


def list_due(outcome: dict) -> tuple[list[str], list[str]]:
    """Return the files of tests and the other parts that have not passed as they stand."""
    passed = {name: one["digest"] for name, one in {**outcome["tests"], **outcome["parts"]}.items()}
    tests = [unit for unit in list_units() if passed.get(unit) != hash_tests(unit)]
    parts = [name for name, (_, places) in PARTS.items() if passed.get(name) != hash_places(*places)]
    return tests, parts


def check_age() -> int:
    """Print how old the outcome is, and return 1 if it is too old."""
    commit = read_outcome().get("commit")
    since = f".ci/full passed at {commit}"
    if commit is None:
        added = run_git("log", "--diff-filter=A", "--format=%h", "--", ".ci/full.py").split()
        commit = added[-1] if added else "HEAD"
        since = f"No full run has passed as a whole since .ci/full.py was added at {commit}"
    try:
        count = int(run_git("rev-list", "--count", f"{commit}..HEAD", "--", "src"))
    except subprocess.CalledProcessError:
        print(f"{since}; the history is not here, so its age is unknown.")
        return 0
    print(f"{since}; src changed in {count} commits since.")
    if count > OLD:
        print(f"At most {OLD} may lie between two full runs. Run 'bash .ci/full' and commit .ci/full.json.")
    return int(count > OLD)


# Running


def cut_chunks(units: list[str]) -> list[list[str]]:
    """Cut the files of tests into lists of at most CHUNK seconds, by their stored times."""
    sys.path.insert(0, str(ROOT))
    from tests.durations import read_durations

    times: dict[str, float] = {}
    for name, seconds in read_durations().items():
        unit = "src" if name.startswith("src/") else name.split("::")[0]
        times[unit] = times.get(unit, 0.0) + seconds
    chunks: list[list[str]] = []
    size = CHUNK
    for unit in units:
        # Tests that are not stored take less than a second each: five seconds a file, measured.
        seconds = 5.0 + times.get(unit, 0.0)
        if size + seconds > CHUNK:
            chunks.append([])
            size = 0.0
        chunks[-1].append(unit)
        size += seconds
    return chunks


def run_tests(units: list[str], outcome: dict, commit: str) -> bool:
    """Run files of tests with coverage, and note which of them passed."""
    STATE.mkdir(exist_ok=True)
    source, measured = hash_places("src"), STATE / "measured.json"
    state = json.loads(measured.read_text()) if measured.exists() else {}
    if state.get("src") != source:  # line numbers of another tree would mix with those of this one
        state = {"src": source, "units": []}
        (STATE / "coverage").unlink(missing_ok=True)
    good = True
    for number, chunk in enumerate(chunks := cut_chunks(units), 1):
        print(f"\n== tests {number} of {len(chunks)}: {len(chunk)} files", flush=True)
        report = STATE / "outcomes.json"
        report.unlink(missing_ok=True)
        start = time.monotonic()
        command = ["pytest", "-q", "-n", "2", "--dist", "loadgroup", "--cov", "--cov-append", "--cov-report="]
        command += ["--write-durations", "tests/durations.json", "--write-outcomes", str(report), *chunk]
        environment = {**os.environ, "COVERAGE_FILE": str(STATE / "coverage")}
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        print(f"tests {number}: {(time.monotonic() - start) / 60:.1f} minutes", flush=True)
        good &= done.returncode == 0
        counts = json.loads(report.read_text()) if report.exists() else {}
        for unit in chunk:
            own = [one for file, one in counts.items() if file == unit or file.startswith(f"{unit}/")]
            total = {key: sum(one[key] for one in own) for key in ("passed", "skipped", "failed", "seconds")}
            if total["passed"] + total["skipped"] and not total["failed"]:
                total["seconds"] = round(total["seconds"])
                outcome["tests"][unit] = {"digest": hash_tests(unit), "commit": commit, **total}
                state["units"] = sorted({*state["units"], unit})
            else:
                outcome["tests"].pop(unit, None)
                good = False
        measured.write_text(json.dumps(state))
        write_outcome(outcome)
    if good and set(state["units"]) >= set(list_units()):
        good &= report_coverage(outcome, commit)
    elif good:
        print("Not every test ran on this source here: coverage is that of", outcome.get("coverage"))
    return good


def report_coverage(outcome: dict, commit: str) -> bool:
    environment = {**os.environ, "COVERAGE_FILE": str(STATE / "coverage")}
    command = ["coverage", "report"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout)
    total = next(line for line in done.stdout.splitlines() if line.startswith("TOTAL"))
    outcome["coverage"] = {"commit": commit, "percent": total.split()[-1]}
    write_outcome(outcome)
    return done.returncode == 0


def run_part(name: str, outcome: dict, commit: str) -> bool:
    command, places = PARTS[name]
    print(f"\n== {name}: {command}", flush=True)
    start = time.monotonic()
    done = subprocess.run(command.split(), cwd=ROOT, check=False)
    minutes = round((time.monotonic() - start) / 60, 1)
    print(f"{name}: {minutes} minutes, exit code {done.returncode}", flush=True)
    outcome["parts"].pop(name, None)
    if done.returncode == 0:
        outcome["parts"][name] = {"digest": hash_places(*places), "commit": commit, "minutes": minutes}
    write_outcome(outcome)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bash .ci/full", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"tests, {', '.join(PARTS)}; all by default")
    parser.add_argument("--fresh", action="store_true", help="run every part again")
    parser.add_argument("--list", action="store_true", help="print what would run")
    parser.add_argument("--age", action="store_true", help="print how old the outcome is")
    options = parser.parse_args()
    if options.age:
        return check_age()
    outcome = {"tests": {}, "parts": {}} if options.fresh else read_outcome()
    tests, parts = list_due(outcome)
    wanted = options.parts or ["tests", *PARTS]
    if unknown := set(wanted) - {"tests", *PARTS}:
        parser.error(f"no part {sorted(unknown)}: choose of tests, {', '.join(PARTS)}")
    tests, parts = tests if "tests" in wanted else [], [name for name in parts if name in wanted]
    number = len(cut_chunks(tests))
    print(f"{len(tests)} files of tests in {number} parts; other parts: {', '.join(parts) or 'none'}")
    if options.list:
        print(*tests, sep="\n")
        return 0
    made = {".ci/full.json", "tests/durations.json"}
    if changed := [line for line in run_git("status", "--porcelain").splitlines() if line[3:] not in made]:
        print("Commit first: the outcome is that of a commit.", *changed, sep="\n")
        return 2
    commit = run_git("rev-parse", "--short=12", "HEAD").strip()
    good = not tests or run_tests(tests, outcome, commit)
    for name in parts:
        good &= run_part(name, outcome, commit)
    tests, parts = list_due(outcome)
    if tests or parts:
        print("Still to pass:", *tests, *parts)
    else:
        outcome["commit"] = commit
        write_outcome(outcome)
        print(f"Everything passed at {commit}. Commit .ci/full.json and tests/durations.json.")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
