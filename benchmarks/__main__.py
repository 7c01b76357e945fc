"""``python -m benchmarks <name>``."""

import argparse
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

# A command is a module with ``add_arguments`` and ``run``, or an object with both after a colon.
# The experiments of the paper, in the order in which they need each other.
PAPER = {
    "run": "paper.sweep",
    "heads": "paper.heads",
    "synthetic": "paper.synthetic",
    "rounding": "paper.forensics:ROUNDING",
    "seeds": "paper.forensics:OTHER_SEEDS",
    "scaling": "paper.forensics:SCALING",
    "several": "paper.several",
    "opportunity": "paper.opportunity",
    "bounds": "paper.bounds",
    "selection": "paper.selection",
    "convergence": "statistics.convergence",
    "runtime": "speed.runtime",
    "highdim": "speed.highdim",
}
OTHERS = {
    "table": "paper.reproduction.contents:TABLE",
    "figure": "paper.reproduction.contents:FIGURE",
    "page": "paper.reproduction.page",
    "micro": "speed.micro",
    "audits": "speed.audits",
    "collapse": "paper.forensics:COLLAPSE",
    "calibration": "statistics.calibration",
    "claims": "statistics.claims",
    "compare": "statistics.compare",
    "coverage": "statistics.coverage",
    "curves": "statistics.curves",
    "auc": "statistics.auc",
    "conditional": "statistics.conditional",
    "gaps": "statistics.gaps",
    "gold": "gold",
    "levels": "statistics.levels",
    "peers": "statistics.peers",
    "persons": "statistics.persons",
    "rare": "statistics.rare",
    "budgets": "paper.budgets",
    "penalties": "paper.penalties",
    "limits": "paper.limits",
    "ideas": "paper.ideas",
    "chosen": "paper.chosen",
    "scores": "paper.scores",
    "representation": "paper.representation",
    "trees": "paper.trees",
    "stopping": "paper.stopping",
    "path": "speed.path",
    "epoch": "speed.epoch",
    "baselines": "paper.baselines",
    "postgres": "scale.postgres",
    "mutants": "statistics.mutants",
    "sketch": "statistics.sketch",
    "table-test": "statistics.table_test",
    "table-gaps": "statistics.table_gaps",
    "person-gaps": "statistics.person_gaps",
    "left-out": "statistics.left_out",
    "scale": "scale.sketching",
    "faults": "scale.faults",
    "national": "scale.national",
    "distributed": "scale.distributed",
    "streaming": "scale.streaming",
}


def main() -> None:
    """Run one benchmark and write its results beside this package."""
    commands = PAPER | OTHERS
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    subparsers = parser.add_subparsers(dest="command", required=True)
    everything = "Run every experiment of the paper, what is there left as it is; then the page."
    subparsers.add_parser("all", help=everything)
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    if chosen == "all":
        names: tuple[str, ...] = (*PAPER, "page")
    else:
        names = (chosen,) if chosen in commands else tuple(commands)  # one is loaded without the others
    for name in names:
        command = _load(commands[name])
        one = subparsers.add_parser(name, help=_title(command))
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    arguments = parser.parse_args()
    if arguments.command != "all":
        arguments.run(arguments)
        return
    for name in names:
        print(f"== {name}", flush=True)
        arguments = parser.parse_args([name])
        arguments.run(arguments)


def _load(command: str) -> Any:
    module, _, name = command.partition(":")
    loaded = import_module(f"benchmarks.{module}")
    return getattr(loaded, name) if name else loaded


def _title(command: Any) -> str:
    return (command.__doc__ or "").partition("\n")[0] if isinstance(command, ModuleType) else command.title


if __name__ == "__main__":
    main()
