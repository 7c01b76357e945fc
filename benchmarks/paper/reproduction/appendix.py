"""Figures, tables and numbers of everything but the main comparison, by the names of the command line."""

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from benchmarks.paper.reproduction import ablations, attributes, estimation, limits, timing

FIGURES: dict[str, Callable[[], Figure]] = {
    "routes": estimation.routes,
    "convergence": estimation.convergence,
    "runtime": timing.runtime,
    "bound": limits.bound,
    "lambda-sigma": limits.lambda_sigma,
    "highdim": timing.highdim,
    "lambda-selection": limits.lambda_selection,
    "synthetic": ablations.synthetic,
    "multi": attributes.multi_figure,
}
TABLES: dict[str, Callable[[], str]] = {
    "eo": attributes.eo_table,
    "multi": attributes.multi_table,
    "kernels": ablations.kernels,
    "dimension": ablations.dimension,
}
# What the page says in words, by the figure or table that it is about.
NUMBERS: dict[str, Callable[[], dict[str, Any]]] = {
    "convergence": estimation.convergence_numbers,
    "runtime": timing.runtime_numbers,
    "highdim": timing.highdim_numbers,
    "bound": limits.bound_numbers,
    "lambda_sigma": limits.lambda_sigma_numbers,
    "lambda_selection": limits.selection_numbers,
    "level": limits.level_numbers,
    "synthetic": ablations.synthetic_numbers,
    "ablation": ablations.ablation_numbers,
    "multi": attributes.multi_numbers,
    "eo": attributes.eo_numbers,
}
