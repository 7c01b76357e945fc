"""The command ``frhsic``, also ``python -m frhsic``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line, or say in one sentence what is missing to run it."""
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
