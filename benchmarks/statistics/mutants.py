"""How many small faults of the source the tests see: random mutants, one change each (resumable).

A mutant is written into a copy of the source tree, tests that run the changed line are run against it, and it
is killed if one of them fails (or if they do not end). Tests are chosen by a coverage database with contexts
(``pytest --cov --cov-context=test --durations=0 -vv``), fastest first, or by package where there is none. A
test that kills is run once without the mutant: one that fails there, too, is left out.
"""

import argparse
import ast
import copy
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._record import Runs

ROOT = Path(__file__).parents[2]
SEED, MUTANTS = 20_261_116, 80
# Without a coverage database: the tests of a package, by the beginnings of their names.
PACKAGES = {
    "dependence": "hsic conditional hgr mutual adversary permuted dependence measures tiles kernels",
    "inference": "independence intervals profile embedding groups cells certificate equivalence inference",
    "penalty": "penalty notions training",
    "engine": "budget training batches path streaming estimators",
}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
UNKNOWN_SECONDS = 0.01  # of a test that the log of durations leaves out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--name", default="after", help="results are written to mutants-<name>.json")
    parser.add_argument("--mutants", type=int, default=MUTANTS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--contexts", type=Path, help="a coverage database with a context for each test")
    parser.add_argument("--durations", type=Path, help="a log of pytest --durations=0 -vv")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests for a mutant")
    parser.add_argument("--timeout", type=float, default=180.0, help="after which tests count as hung")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget the mutants tried before")


# ---- mutants -----------------------------------------------------------------------------------------------

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}
EXTREMES = {
    "min": "max",
    "minimum": "maximum",
    "amin": "amax",
    "clamp_min": "clamp_max",
    "argmin": "argmax",
    "max": "min",
    "maximum": "minimum",
    "amax": "amin",
    "clamp_max": "clamp_min",
    "argmax": "argmin",
}
SKIPPED = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal)
TALK = ("warn", "debug", "info", "warning", "print")  # calls for people


@dataclass(frozen=True)
class Mutant:
    """One change of one node, which ``place`` finds in the order of :func:`walk`."""

    file: str
    line: int
    end: int
    place: int
    kind: str
    before: str
    after: str


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may change: no annotations, decorators, messages, docstrings or ``__all__``."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_skipped(child):
                yield child
                yield from walk(child)


def _is_skipped(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        if not isinstance(node.value, ast.Call):
            return True
        return getattr(node.value.func, "attr", getattr(node.value.func, "id", "")) in TALK
    if isinstance(node, ast.If):
        return getattr(node.test, "id", "") == "TYPE_CHECKING"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        return getattr(node.value.value, "id", "") in ("Literal", "Callable")
    if isinstance(node, ast.Assign):
        return getattr(node.targets[0], "id", "") == "__all__"
    return isinstance(node, SKIPPED)


def mutate(node: ast.AST, rebinds: bool = True) -> tuple[str, ast.AST] | None:
    """Return what kind of change a node allows, and the node changed; None if there is none.

    An assignment is deleted only where it ``rebinds``: without the first one nothing runs.
    """
    new: Any = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            new.ops = [COMPARISONS[type(op)]()]
            return "comparison", new
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            new.op = ARITHMETIC[type(op)]()
            return "arithmetic", new
        case ast.BoolOp(op=op):
            new.op = ast.And() if isinstance(op, ast.Or) else ast.Or()
            return "and/or", new
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return "no sign", new.operand
        case ast.Constant(value=bool() as value):
            return "constant", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            return "constant", ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in EXTREMES:
            new.func.id = EXTREMES[name]
            return "min/max", new
        case ast.Call(func=ast.Attribute(attr=name)) if name in EXTREMES:
            new.func.attr = EXTREMES[name]
            return "min/max", new
        case ast.If() | ast.IfExp():
            new.test = ast.UnaryOp(ast.Not(), new.test)
            return "negated", new
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            new.value = ast.Constant(None)
            return "return None", new
        case ast.Expr():
            return "deleted", ast.Pass()
        case ast.Assign() if rebinds:
            return "deleted", ast.Pass()
    return None


def mutants_of(path: Path) -> list[Mutant]:
    """Return every mutant of a file."""
    tree, found = ast.parse(path.read_text()), []
    known: set[str] = set()
    statement: ast.stmt | None = None
    for place, node in enumerate(walk(tree)):
        if isinstance(node, ast.FunctionDef):
            known = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        if isinstance(node, ast.stmt):
            statement = node
        targets = node.targets if isinstance(node, ast.Assign) else []
        rebinds = all(isinstance(one, ast.Name) and one.id in known for one in targets) or any(
            isinstance(one, ast.Attribute | ast.Subscript) for one in targets
        )
        known |= {one.id for one in targets if isinstance(one, ast.Name)}
        changed = mutate(node, rebinds)
        if changed is None or statement is None:
            continue
        kind, new = changed
        # Of a block only its head: what it holds is covered by other tests.
        line, end = statement.lineno, getattr(node, "end_lineno", 0) or statement.lineno
        if isinstance(node, ast.If):
            end = node.test.end_lineno or node.lineno
        before, after = (
            ast.unparse(ast.fix_missing_locations(one)).partition("\n")[0] for one in (node, new)
        )
        file = path.relative_to(ROOT).as_posix()
        found.append(Mutant(file, line, end, place, kind, before[:160], after[:160]))
    return found


def _show(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node)).partition("\n")[0][:160]


def draw(count: int, seed: int) -> list[Mutant]:
    """Return random mutants of the packages, at most one of a line."""
    source = ROOT / "src" / "frhsic"
    files = [
        file for name in PACKAGES for file in (*source.glob(f"{name}.py"), *source.glob(f"{name}/**/*.py"))
    ]
    all_of = [one for file in sorted(files) for one in mutants_of(file)]
    random.Random(seed).shuffle(all_of)
    by_line = {(one.file, one.line): one for one in reversed(all_of)}
    return [one for one in all_of if by_line[one.file, one.line] is one][:count]


def write_mutant(mutant: Mutant, folder: Path) -> None:
    """Write the changed file into a copy of the tree."""
    tree = ast.parse((ROOT / mutant.file).read_text())
    target = next(node for place, node in enumerate(walk(tree)) if place == mutant.place)
    changed = mutate(target)
    if changed is None:
        raise AssertionError(mutant)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, changed[1])
            elif isinstance(value, list) and any(one is target for one in value):
                setattr(parent, name, [changed[1] if one is target else one for one in value])
    _put(folder / mutant.file, ast.unparse(ast.fix_missing_locations(tree)))


def _put(path: Path, text: str) -> None:
    path.write_text(text)
    for old in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        old.unlink()  # known by size and second of the source, which may be those of another mutant


# ---- tests -------------------------------------------------------------------------------------------------


class Tests:
    """Which tests run a line, and how long they take."""

    def __init__(self, contexts: Path | None, durations: Path | None, budget: float) -> None:
        self.budget = budget
        self.seconds: dict[str, float] = {}
        if durations is not None:
            for line in durations.read_text(errors="replace").splitlines():
                found = re.match(r"\s*([\d.]+)s (?:call|setup|teardown)\s+(\S.*)", line)
                if found:
                    self.seconds[found[2]] = self.seconds.get(found[2], 0.0) + float(found[1])
        self.data: Any = None
        if contexts is not None:
            from coverage import CoverageData

            self.data = CoverageData(str(contexts))
            self.data.read()
            command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
            lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
            self.known = {line for line in lines.splitlines() if "::" in line}

    def choose(self, mutant: Mutant) -> tuple[str, list[str]]:
        """Return how tests were chosen, and those to run, in this order."""
        found = self._by_contexts(mutant) if self.data is not None else []
        if found:
            return "contexts", found
        package = Path(mutant.file).parts[2].removesuffix(".py")
        names = tuple(f"test_{name}" for name in PACKAGES[package].split())
        files = [path for path in (ROOT / "tests").rglob("test_*.py") if path.name.startswith(names)]
        # First those that speak most of what the module defines.
        body = ast.parse((ROOT / mutant.file).read_text()).body
        defined = {one.name for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
        words = {path: re.findall(r"\w+", path.read_text()) for path in files}
        mentions = {path: sum(word in defined for word in words[path]) for path in files}
        files.sort(key=lambda path: (-mentions[path], path))
        return "package", [path.relative_to(ROOT).as_posix() for path in files]

    def _by_contexts(self, mutant: Mutant) -> list[str]:
        measured = [one for one in self.data.measured_files() if one.endswith(f"/{mutant.file}")]
        by_line = self.data.contexts_by_lineno(measured[0]) if measured else {}
        lines = range(mutant.line, mutant.end + 1)
        tests = {context.partition("|")[0] for line in lines for context in by_line.get(line, [])}
        spent, chosen = 0.0, list[str]()
        for test in sorted(tests & self.known, key=lambda one: (self._cost(one), one)):
            spent += self._cost(test)
            if spent > self.budget and chosen:
                break
            chosen.append(test)
        return chosen

    def _cost(self, test: str) -> float:
        return self.seconds.get(test, UNKNOWN_SECONDS)


class Workspace:
    """A tree like the repository, with a source of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        for entry in ROOT.iterdir():
            if entry.name != "src" and not entry.name.startswith("."):
                (self.folder / entry.name).symlink_to(entry)
        shutil.copytree(ROOT / "src", self.folder / "src")
        self.process: subprocess.Popen[str] | None = None

    def stop(self) -> None:
        """End the tests that run, with what they have started."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def run(self, tests: list[str], timeout: float, without: set[str]) -> tuple[str, str, float]:
        """Run tests and return "passed", "failed" or "timeout", the first test that failed, and seconds."""
        listed = self.folder / "tests.txt"
        listed.write_text("\n".join(tests) + "\n")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"@{listed}"]
        command += [f"--deselect={test}" for test in sorted(without)]
        path = os.pathsep.join([str(self.folder / "src"), str(self.folder)])
        environment = {**os.environ, "PYTHONPATH": path, **dict.fromkeys(THREADS, "1")}
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.process = process
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            process.communicate()
            return "timeout", "", time.perf_counter() - start
        seconds = time.perf_counter() - start
        if process.returncode in (0, 5):
            return "passed", "", seconds
        found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, flags=re.M)
        if not found and process.returncode != 1:
            raise RuntimeError(f"pytest ended with {process.returncode}:\n{output[-2_000:]}")
        return "failed", found[0] if found else "", seconds


# ---- all of them -------------------------------------------------------------------------------------------


class Trial:
    """Mutants against tests, in one workspace for each thread."""

    def __init__(self, tests: Tests, timeout: float) -> None:
        self.tests, self.timeout = tests, timeout
        self.sound: set[str] = set()  # tests that pass without a mutant
        self.broken: set[str] = set()
        self.local = threading.local()
        self.workspaces: list[Workspace] = []

    def close(self) -> None:
        """End what runs and remove the copies of the tree."""
        for workspace in self.workspaces:
            workspace.stop()
            shutil.rmtree(workspace.folder, ignore_errors=True)

    def judge(self, mutant: Mutant) -> dict[str, Any]:
        """Return whether a mutant is killed, by which test, and in how many seconds."""
        if not hasattr(self.local, "workspace"):
            self.local.workspace = Workspace()
            self.workspaces.append(self.local.workspace)
        space: Workspace = self.local.workspace
        chosen_by, tests = self.tests.choose(mutant)
        start = time.perf_counter()
        while True:
            left = [test for test in tests if test not in self.broken]
            write_mutant(mutant, space.folder)
            outcome, test, seconds = space.run(left, self.timeout, self.broken)
            _put(space.folder / mutant.file, (ROOT / mutant.file).read_text())
            if outcome == "passed" or test in self.sound:
                break
            # A file without "::" could not be imported; by a timeout no test is named: all that were chosen.
            clean, also, _ = space.run([test] if test else left, 2.0 * self.timeout, self.broken)
            if clean == "passed":
                self.sound |= {test} if test else set()
                break
            if clean == "timeout":
                outcome = "too slow"
                break
            self.broken.add(also or test)
        status = {"passed": "survived", "failed": "killed", "timeout": "killed"}.get(outcome, outcome)
        return {
            "status": status,
            "by": "timeout" if outcome == "timeout" else test,
            "tests": len(tests),
            "chosen_by": chosen_by,
            "seconds": round(seconds, 1),
            "seconds_in_all": round(time.perf_counter() - start, 1),
        }


def run(arguments: argparse.Namespace) -> None:
    """Try the mutants that are missing and print the survivors."""
    runs = Runs(f"mutants-{arguments.name}.json", fresh=arguments.fresh, seed=arguments.seed)
    mutants = draw(arguments.mutants, arguments.seed)
    missing = [one for one in mutants if runs.missing(**asdict(one))]
    trial = Trial(Tests(arguments.contexts, arguments.durations, arguments.budget), arguments.timeout)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # and the tests with it
    pool = ThreadPoolExecutor(arguments.jobs)
    try:
        futures = {pool.submit(trial.judge, one): one for one in missing}
        for done, future in enumerate(as_completed(futures), 1):
            mutant, found = futures[future], future.result()
            runs.add(**asdict(mutant), **found)
            print(
                f"{done}/{len(missing)} {found['status']} {mutant.file}:{mutant.line} {mutant.kind}: "
                f"{mutant.before} -> {mutant.after} ({found['by']}, {found['seconds']:g} s)",
                flush=True,
            )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        trial.close()
    survived = [one for one in runs.runs if one["status"] == "survived"]
    killed = sum(one["status"] == "killed" for one in runs.runs)
    print(f"{killed} of {len(runs.runs)} killed; survivors:")
    for one in survived:
        print(f"  {one['file']}:{one['line']} {one['kind']}: {one['before']} -> {one['after']}")
    print(runs.write(killed=killed, survived=len(survived), broken_tests=sorted(trial.broken)))
