"""Every table and figure of the reproduction by its name: ``table``, ``figure``, ``page`` and ``all``."""

import argparse
from collections.abc import Callable, Mapping

from matplotlib.figure import Figure

from benchmarks.reproduction import appendix, comparison, findings, frontiers, rankings, transfer
from benchmarks.reproduction._draw import keep

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


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``table``."""
    parser.add_argument("names", nargs="*", default=list(TABLES), metavar="NAME", help=", ".join(TABLES))


def add_figure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``figure``."""
    parser.add_argument("names", nargs="*", default=list(FIGURES), metavar="NAME", help=", ".join(FIGURES))


def print_tables(arguments: argparse.Namespace) -> None:
    """Print the tables named, as Markdown."""
    for name in _known(arguments.names, TABLES):
        print(TABLES[name]())


def draw_figures(arguments: argparse.Namespace) -> None:
    """Draw the figures named into the docs."""
    for name in _known(arguments.names, FIGURES):
        print(keep(FIGURES[name](), name))


def _known(names: list[str], all_of: Mapping[str, object]) -> list[str]:
    unknown = sorted(set(names) - set(all_of))
    if unknown:
        raise SystemExit(f"The names must be of {', '.join(all_of)}. Got {', '.join(unknown)}.")
    return names
