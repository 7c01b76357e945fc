"""Pictures of results, and the report: one HTML file that holds everything it needs."""

from frhsic.report._page import render_report, write_report
from frhsic.report._plots import (
    plot_bounds,
    plot_curve,
    plot_frontier,
    plot_history,
    plot_null,
    plot_profile,
    plot_transfer,
)

__all__ = [
    "plot_bounds",
    "plot_curve",
    "plot_frontier",
    "plot_history",
    "plot_null",
    "plot_profile",
    "plot_transfer",
    "render_report",
    "write_report",
]
