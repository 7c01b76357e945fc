"""The command ``frhsic``, also ``python -m frhsic``."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line, or say in one sentence what is missing to run it."""
    if sys.stderr is None:  # closed by the caller: the exit code has to tell
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        # Nothing is run: its output would be lost, or end in the next file that is opened.
        sys.stderr.write("Error: standard output must be open. Got it closed. To discard it: > /dev/null\n")
        return 2
    try:
        from frhsic.cli import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.stderr.write(f"The command line needs {error.name}. Install it: pip install 'frhsic[cli]'\n")
        return 2
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
