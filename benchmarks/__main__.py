"""``python -m benchmarks <name>``."""

import argparse

from benchmarks import (
    adult,
    baselines,
    bounds,
    budgets,
    calibration,
    collapse,
    convergence,
    coverage,
    micro,
    path,
    peers,
    runtime,
    selection,
    sweep,
)


def main() -> None:
    """Run one benchmark and write its results beside this package."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for module in (
        sweep,
        micro,
        convergence,
        runtime,
        adult,
        collapse,
        calibration,
        coverage,
        bounds,
        selection,
        peers,
        budgets,
        path,
        baselines,
    ):
        name = "run" if module is sweep else module.__name__.rpartition(".")[2]
        command = commands.add_parser(name, help=(module.__doc__ or "").partition("\n")[0])
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
