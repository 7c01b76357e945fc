"""The command ``frhsic``, also ``python -m frhsic``."""

from __future__ import annotations

import importlib.util
import os
import sys


def main() -> int:
    """Run the command line, or print in one sentence what is missing to run it."""
    if sys.stderr is None:  # closed by the caller: the exit code has to tell
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        # Nothing is run: its output would be lost, or end in the next file that is opened.
        sys.stderr.write("Error: standard output must be open. Got it closed. To discard it: > /dev/null\n")
        return 2
    for name in ("typer", "rich"):
        if importlib.util.find_spec(name) is None:
            sys.stderr.write(f"The command line needs {name}. Install it: pip install 'frhsic[cli]'\n")
            return 2
    from frhsic.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
