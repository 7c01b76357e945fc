"""Results with what made them: command, commit, versions, machine."""

import csv
import json
import platform
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"


def provenance(**more: Any) -> dict[str, Any]:
    """Return what is needed to make the same result again."""
    git = ["git", "-C", str(Path(__file__).parent)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "../src", "*.py"], capture_output=True, text=True, check=False
    )
    cpu = Path("/proc/cpuinfo")
    model = (
        next(
            (
                line.split(":")[1].strip()
                for line in cpu.read_text().splitlines()
                if line.startswith("model name")
            ),
            platform.processor(),
        )
        if cpu.exists()
        else platform.processor()
    )
    return {
        # Where a folder is on this machine is nobody's business.
        "command": " ".join(["python", "-m", "benchmarks", *map(_without_folder, sys.argv[1:])]),
        "commit": commit.stdout.strip() + ("+changes" if changed.stdout.strip() else ""),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("frhsic", "torch", "numpy", "scipy", "scikit-learn")},
        "cpu": model,
        **more,
    }


def _without_folder(argument: str) -> str:
    return Path(argument).name if Path(argument).is_absolute() else argument


class Runs:
    """The runs of a long benchmark in one file, written after each: a killed command goes on where it was.

    A run is known by its key. Each carries the commit that made it.
    """

    def __init__(self, name: str, *, fresh: bool, **more: Any) -> None:
        self.name = name
        self.header = provenance(**more)
        path = RESULTS / name
        old = json.loads(path.read_text()) if path.exists() and not fresh else {}
        self.runs: list[dict[str, Any]] = old.get("runs", [])

    def missing(self, **key: Any) -> bool:
        """Return whether no run has this key."""
        return not any(all(run.get(name) == value for name, value in key.items()) for run in self.runs)

    def add(self, **run: Any) -> None:
        """Keep a run and write the file."""
        self.runs.append({**run, "commit": self.header["commit"]})
        self.write()

    def write(self, **summary: Any) -> Path:
        """Write header, summary and runs, and return the path."""
        return write(self.name, {**self.header, **summary, "runs": self.runs})


def write(name: str, result: dict[str, Any]) -> Path:
    """Write a result as JSON under benchmarks/results and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / name
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(result, indent=1) + "\n")
    draft.replace(path)  # at once: a command killed here leaves the old file or the new one
    return path


def write_section(
    page: str, mark: str, text: str, result: str, rows: Sequence[dict[str, Any]] | None = None
) -> None:
    """Write a text between two marks of a page of the docs, with what made the result.

    ``rows`` have the commits where they are in a table of their own.
    """
    header = json.loads((RESULTS / result).read_text())
    commits = sorted({run["commit"][:12] for run in rows or header["runs"]})
    seeds = f"seeds {', '.join(map(str, header['seeds']))}" if "seeds" in header else f"seed {header['seed']}"
    made = f"Made by `{header['command']}` at commit {', '.join(commits)}, {seeds}."
    made = textwrap.fill(made, 100, break_long_words=False, break_on_hyphens=False)
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    path = DOCS / page
    before, _, rest = path.read_text().partition(begin)
    path.write_text(f"{before}{begin}\n{text}\n\n{made}\n{end}{rest.partition(end)[2]}")


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table of results; none where it is not yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Write a table of results, at once: a command killed here leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    with draft.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _text(row[name]) for name in columns} for row in rows)
    draft.replace(path)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
