"""Plots of results, and the report: an audit as one HTML file that holds everything it needs."""

try:
    import jinja2 as _jinja2  # noqa: F401
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"'frhsic.report' needs {error.name}. Install it: pip install 'frhsic[report]'."
    ) from error

from frhsic.report._frontier import plot_frontier
from frhsic.report._frontier_page import draw_search as draw_search
from frhsic.report._frontier_page import render_frontier, write_frontier
from frhsic.report._frontier_page import render_search as render_search
from frhsic.report._notebook import plot as plot
from frhsic.report._notebook import render_card as render_card
from frhsic.report._page import render_report, write_report
from frhsic.report._plots import (
    plot_auc,
    plot_bounds,
    plot_curve,
    plot_decision_gaps,
    plot_error_rates,
    plot_history,
    plot_null,
    plot_profile,
    plot_transfer,
)
from frhsic.report._reasons import draw_proxies as draw_proxies
from frhsic.report._reasons import plot_adjusted, plot_carriers, plot_proxies

__all__ = [
    "plot_adjusted",
    "plot_auc",
    "plot_bounds",
    "plot_carriers",
    "plot_curve",
    "plot_decision_gaps",
    "plot_error_rates",
    "plot_frontier",
    "plot_history",
    "plot_null",
    "plot_profile",
    "plot_proxies",
    "plot_transfer",
    "render_frontier",
    "render_report",
    "write_frontier",
    "write_report",
]
