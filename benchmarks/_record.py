"""Results with what made them: command, commit, versions, machine."""

import json
import platform
import subprocess
import sys
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
        "command": " ".join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "commit": commit.stdout.strip() + ("+changes" if changed.stdout.strip() else ""),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("frhsic", "torch", "numpy", "scipy")},
        "cpu": model,
        **more,
    }


def write(name: str, result: dict[str, Any]) -> Path:
    """Write a result as JSON under benchmarks/results and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / name
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path
