"""Time and memory of audits from Python and of the command line, each in a process of its own.

Audits are timed with torch's threads left alone and with one thread, cases and threads in turn. What is
quick is measured in CPU time of the whole process, beside ``import torch``. Nothing heavy is imported here:
Linux counts the memory of a parent as its children's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._record import Runs

SEED = 20_261_116
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


class Case(NamedTuple):
    """An audit: rows, continuous attributes, columns of the scores; seconds and MB to stay below."""

    rows: int
    attributes: int
    width: int = 1
    seconds: float | None = None
    megabytes: float | None = None

    @property
    def name(self) -> str:
        """What the tables call it."""
        columns = f" x {self.width} columns" if self.width > 1 else ""
        return f"{self.rows:,} rows{columns}, {self.attributes} attribute{'s' * (self.attributes > 1)}"


CASES = (
    Case(20_000, 1, seconds=5.0),
    Case(20_000, 3, seconds=18.0),
    Case(20_000, 20, seconds=110.0),
    Case(1_000_000, 1, seconds=15.0),
    Case(100_000, 1, width=200, seconds=60.0, megabytes=1_500.0),
)
QUICK = (Case(200, 1), Case(200, 2), Case(200, 1, width=5))
# Scores and attributes share a part; numbers of single precision where there are many, as networks give them.
_DATA = """
import numpy as np
def table(rows, attributes, width, seed):
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(rows)
    s = {f"s{j}": shared + rng.standard_normal(rows) * (1 + j) for j in range(attributes)}
    z = rng.standard_normal((rows, width), dtype=np.float32)
    z[:, 0] += 0.3 * shared
    return (z if width > 1 else z[:, 0].astype(np.float64)), s
"""
_AUDIT = (
    _DATA
    + """
import json, sys, time
rows, attributes, width, seed, threads = map(int, sys.argv[1:])
import torch
from frhsic import audit  # names are imported when first used: not part of the audit
if threads:
    torch.set_num_threads(threads)
z, s = table(rows, attributes, width, seed)
start, cpu = time.perf_counter(), time.process_time()
audit(z, sensitive_features=s, random_state=seed)
print(json.dumps({"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}))
"""
)
_FILE = (
    _DATA
    + """
import sys
z, s = table(1_000, 1, 1, int(sys.argv[2]))
np.savetxt(sys.argv[1], np.column_stack([z, s["s0"]]), delimiter=",", header="score,s0", comments="")
"""
)
# CPU seconds, MB and times the CPU of ``import torch`` to stay below.
COMMANDS: dict[str, tuple[list[str], dict[str, float]]] = {
    "python": (["-c", "pass"], {}),
    "import torch": (["-c", "import torch"], {}),
    "import frhsic": (["-c", "import frhsic"], {"cpu_seconds": 0.1}),
    "frhsic --help": (["-m", "frhsic", "--help"], {"cpu_seconds": 0.4, "megabytes": 40.0}),
    "frhsic audit, 1,000 rows": (
        ["-m", "frhsic", "audit", "{table}", "--score", "score", "--sensitive", "s0"],
        {"over_torch": 1.5},
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=3, help="interleaved repeats of the audits")
    parser.add_argument("--commands", type=int, default=7, help="interleaved repeats of the commands")
    parser.add_argument("--quick", action="store_true", help="few rows, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget the rounds made before")


def measure(arguments: list[str], *, one_thread: bool) -> dict[str, Any]:
    """Run Python in a process of its own and return its seconds, CPU seconds and peak memory in MB.

    What it prints as JSON takes the place of the first two.
    """
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    if one_thread:
        environment |= dict.fromkeys(THREADS, "1")
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    output = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, output)
    found = {"seconds": time.perf_counter() - start, "cpu_seconds": usage.ru_utime + usage.ru_stime}
    if output.startswith("{"):
        found |= json.loads(output)
    found = {name: round(value, 3) for name, value in found.items()}
    return {**found, "megabytes": round(usage.ru_maxrss / 1e3, 1), "load": round(os.getloadavg()[0], 1)}


def run(arguments: argparse.Namespace) -> None:
    """Measure what is missing and print medians beside their targets."""
    quick: bool = arguments.quick
    name = str(Path(tempfile.gettempdir()) / "quick-audits.json") if quick else "audits.json"
    runs = Runs(name, fresh=arguments.fresh or quick, seed=SEED, cores=os.cpu_count())
    cases = QUICK if quick else CASES
    with tempfile.TemporaryDirectory() as folder:
        table = str(Path(folder) / "table.csv")
        subprocess.run([sys.executable, "-c", _FILE, table, str(SEED)], check=True)
        for number in range(1 if quick else arguments.commands):
            for what, (options, _) in COMMANDS.items():
                key = {"what": what, "threads": "default", "round": number}
                if runs.missing(**key):
                    command = [option.format(table=table) for option in options]
                    runs.add(**key, **measure(command, one_thread=False))
    for number in range(1 if quick else arguments.rounds):
        for case in cases:
            for threads in ("default", "one"):
                key = {"what": case.name, "threads": threads, "round": number}
                if runs.missing(**key):
                    one = threads == "one"
                    numbers = (case.rows, case.attributes, case.width, SEED, int(one))
                    runs.add(**key, **measure(["-c", _AUDIT, *map(str, numbers)], one_thread=one))
                    print(runs.runs[-1], flush=True)
    summary = summarise(runs.runs, cases)
    for row in summary:
        line = f"{row['seconds']:8.2f} s {row['cpu_seconds']:8.2f} s of CPU {row['megabytes']:7.0f} MB"
        targets = ", ".join(f"{name} {value:g}" for name, value in row["targets"].items())
        print(f"{row['what']:38s} {row['threads']:8s} {line} {row['over_torch']:7.2f} x import torch", end="")
        print(f"   asked: {targets}" if targets else "")
    print(runs.write(summary=summary))


def summarise(runs: list[dict[str, Any]], cases: tuple[Case, ...] = CASES) -> list[dict[str, Any]]:
    """Return medians over the rounds, CPU time over that of ``import torch``, and what is asked."""
    asked = {what: targets for what, (_, targets) in COMMANDS.items()}
    for case in cases:
        both = {"seconds": case.seconds, "megabytes": case.megabytes}
        asked[case.name] = {name: value for name, value in both.items() if value is not None}
    rows: list[dict[str, Any]] = []
    for what, threads in dict.fromkeys((one["what"], one["threads"]) for one in runs):
        chosen = [one for one in runs if (one["what"], one["threads"]) == (what, threads)]
        row = {"what": what, "threads": threads, "rounds": len(chosen), "targets": asked.get(what, {})}
        row |= {
            name: statistics.median(one[name] for one in chosen)
            for name in ("seconds", "cpu_seconds", "megabytes")
        }
        rows.append(row)
    torch = next(row["cpu_seconds"] for row in rows if row["what"] == "import torch")
    return [{**row, "over_torch": round(row["cpu_seconds"] / torch, 2)} for row in rows]
