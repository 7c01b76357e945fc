"""Every table and figure of the reproduction by its name: ``table``, ``figure``, ``page`` and ``all``."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from matplotlib.figure import Figure

from benchmarks.paper.reproduction import appendix, comparison, findings, frontiers, rankings, transfer
from benchmarks.paper.reproduction._draw import keep

TABLES: dict[str, Callable[[], str]] = {
    "main": frontiers.main,
    "pareto": frontiers.pareto,
    "transfer": transfer.table,
    **appendix.TABLES,
    # Not in the paper.
    "within": comparison.within,
    "outside": comparison.outside_table,
    "heads": transfer.matched_table,
    "ranks": rankings.summary,
    "grids": findings.grids_table,
    "budgets": findings.budget_shares_table,
    "half": lambda: findings.lost_table(findings.half_collapsed()),
    "below": lambda: findings.lost_table(findings.below_constant()),
    "seeds": comparison.seeds_table,
    "rounding": comparison.rounding_table,
}
FIGURES: dict[str, Callable[[], Figure]] = {
    "pareto": frontiers.pareto_figure,
    "mi": frontiers.mi_figure,
    "transfer": transfer.figure,
    **appendix.FIGURES,
    "budgets": frontiers.budget_figure,
}


@dataclass(frozen=True)
class Shown:
    """A command that shows what is named, or all of it."""

    title: str
    all_of: Mapping[str, object]
    show: Callable[[str], object]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the names."""
        names = list(self.all_of)
        parser.add_argument("names", nargs="*", default=names, metavar="NAME", help=", ".join(names))

    def run(self, arguments: argparse.Namespace) -> None:
        """Print what is shown of each name."""
        unknown = sorted(set(arguments.names) - set(self.all_of))
        if unknown:
            raise SystemExit(f"The names must be of {', '.join(self.all_of)}. Got {', '.join(unknown)}.")
        for name in arguments.names:
            print(self.show(name))


TABLE = Shown("Print tables of the reproduction as Markdown.", TABLES, lambda name: TABLES[name]())
FIGURE = Shown("Draw figures of the reproduction.", FIGURES, lambda name: keep(FIGURES[name](), name))
