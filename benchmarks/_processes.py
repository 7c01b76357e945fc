"""What Linux tells of processes: which descend from one, and what they have used."""

import os
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that these started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(children.get(pid, []))
    for one in found:
        found += children.get(one, [])
    return found


def title(pid: int) -> str:
    """Return the command line of a process, or what it calls itself; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, without that of its children."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def peak_memory(pid: int) -> float:
    """Return the most memory that a process has held, in MB."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmHWM")), 0.0)


def _stat(pid: int) -> list[str]:
    """Return the fields after the name, which may hold spaces: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
