"""``python -m benchmarks <name>``."""

import argparse
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

from benchmarks import (
    adult,
    baselines,
    bounds,
    budgets,
    calibration,
    claims,
    collapse,
    convergence,
    coverage,
    curves,
    distributed,
    faults,
    heads,
    highdim,
    levels,
    micro,
    national,
    opportunity,
    path,
    peers,
    postgres,
    rounding,
    runtime,
    scale,
    scaling,
    seeds,
    selection,
    several,
    sketch,
    streaming,
    sweep,
    synthetic,
)
from benchmarks.reproduction import contents, page


class Command(NamedTuple):
    """A name of the command line."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def _of(module: ModuleType) -> Command:
    return Command((module.__doc__ or "").partition("\n")[0], module.add_arguments, module.run)


# The experiments of the paper, in the order in which they need each other, and how they are shown.
PAPER = {
    "run": _of(sweep),
    "heads": _of(heads),
    "synthetic": _of(synthetic),
    "rounding": _of(rounding),
    "seeds": _of(seeds),
    "scaling": _of(scaling),
    "several": _of(several),
    "opportunity": _of(opportunity),
    "bounds": _of(bounds),
    "selection": _of(selection),
    "convergence": _of(convergence),
    "runtime": _of(runtime),
    "highdim": _of(highdim),
}
SHOWN = {
    "table": Command("Print tables of the reproduction.", contents.add_table, contents.print_tables),
    "figure": Command("Draw figures of the reproduction.", contents.add_figure, contents.draw_figures),
    "page": Command("Draw every figure and write docs/reproduction.md.", page.add_arguments, page.run),
}
OTHERS = {
    module.__name__.rpartition(".")[2]: _of(module)
    for module in (
        micro,
        adult,
        collapse,
        calibration,
        claims,
        coverage,
        curves,
        levels,
        peers,
        budgets,
        path,
        baselines,
        postgres,
        sketch,
        scale,
        faults,
        national,
        distributed,
        streaming,
    )
}


def main() -> None:
    """Run one benchmark and write its results beside this package."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, command in (PAPER | SHOWN | OTHERS).items():
        one = commands.add_parser(name, help=command.help)
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    everything = "Run every experiment of the paper, what is there left as it is; then the page."
    commands.add_parser("all", help=everything).set_defaults(run=lambda _: _all(parser))
    arguments = parser.parse_args()
    arguments.run(arguments)


def _all(parser: argparse.ArgumentParser) -> None:
    for name in (*PAPER, "page"):
        print(f"== {name}", flush=True)
        arguments = parser.parse_args([name])
        arguments.run(arguments)


if __name__ == "__main__":
    main()
