"""Results in a notebook: a card with the numbers of the report and its picture."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from frhsic._text import join_words, number, percent, shown
from frhsic.auditing import Audit, ErrorRates, Tile, limit_sentence, make_tiles
from frhsic.inference import (
    AdjustedCurve,
    AUCCurve,
    Carriers,
    Curve,
    DecisionGaps,
    EquivalenceResult,
    Interval,
    Profile,
    Proxies,
    Result,
    TestResult,
)
from frhsic.inference.bounds import Certificate
from frhsic.report import _words
from frhsic.report._figures import attribute_figures
from frhsic.report._page import render_element
from frhsic.report._plots import (
    plot_auc,
    plot_bounds,
    plot_curve,
    plot_decision_gaps,
    plot_error_rates,
    plot_null,
    plot_profile,
)
from frhsic.report._reasons import plot_adjusted, plot_carriers, plot_proxies
from frhsic.report._svg import Picture, draw_picture

_PLOTS: dict[type[Result], Callable[..., Axes]] = {
    AdjustedCurve: plot_adjusted,
    AUCCurve: plot_auc,
    Carriers: plot_carriers,
    Certificate: plot_bounds,
    Curve: plot_curve,
    DecisionGaps: plot_decision_gaps,
    ErrorRates: plot_error_rates,
    Profile: plot_profile,
    Proxies: plot_proxies,
    TestResult: plot_null,
}
_MOST = 3  # attributes of an audit on a card


def plot(result: Result, *, ax: Axes | None = None, **options: Any) -> Axes:
    """Draw a result by the function of this package that is made for it; of an audit, its first curve."""
    if isinstance(result, Audit):
        first, column = result.attributes[0], result.columns[0]
        drawn = first.curve if first.curve is not None else first.test
        if isinstance(drawn, Curve) and column.kind == "categorical":
            options = {"labels": column.labels, **options}
        return plot(drawn, ax=ax, **options)
    if type(result) not in _PLOTS or (isinstance(result, TestResult) and not result.null):
        name = type(result).__name__
        raise TypeError(f"{name} has nothing to draw. Print it, or call to_frame().")
    return _PLOTS[type(result)](result, ax=ax, **options)


def render_card(result: Result) -> str:
    """Return a result as an HTML element for a notebook: limits, numbers, a picture, and words."""
    if isinstance(result, Audit):
        return _render_audit(result)
    tiles = tuple(filter(None, (_tile(result),)))
    words = () if tiles else (str(result),)
    return render_element(set(), [("", tiles)], _draw(result), words)


def _render_audit(audit: Audit) -> str:
    audit = audit.released
    sections = [(found.name, make_tiles(audit, found)) for found in audit.attributes[:_MOST]]
    visible = audit.columns[0].kind != "categorical" or any(audit.columns[0].counts)
    column = audit.columns[0] if visible else None
    pictures = tuple(attribute_figures(audit.attributes[0], column, _key(audit), audit))
    left = len(audit.attributes) - _MOST
    more = [_words.TEXT["page"]["unlisted"].format(n=left)] if left > 0 else []
    notes = [*audit.notes[:_MOST], *more, audit.sentences()[-1]]
    limits = [(one, limit_sentence(one, audit.confidence_level)) for one in audit.limits]
    return render_element({name for name, _ in sections}, sections, pictures, notes, limits)


def _tile(result: Result) -> Tile | None:
    """Return the number of a test or an interval."""
    if isinstance(result, Interval):
        ends = f"{percent(result.confidence_level)} interval {number(result.low)} to {number(result.high)}"
        title = f"{result.measure} on {join_words([shown(name) for name in result.attributes], 3)}"
        return Tile(title[:1].upper() + title[1:], number(result.estimate), "", ends, str(result))
    if isinstance(result, TestResult | EquivalenceResult):
        kind = "independence" if isinstance(result, TestResult) else "equivalence"
        return Tile(f"Test of {kind}", f"p = {number(result.pvalue)}", "", "", str(result))
    return None


def _draw(result: Result) -> tuple[Picture, ...]:
    if type(result) not in _PLOTS or (isinstance(result, TestResult) and not result.null):
        return ()
    name = type(result).__name__
    return (draw_picture(partial(plot, result), key=_key(result), title=name, description="", caption=""),)


def _key(result: Result) -> str:
    """Return a name for the elements of a picture that no other result on the page has."""
    return "f" + hashlib.sha256(json.dumps(result.to_dict()).encode()).hexdigest()[:10]
