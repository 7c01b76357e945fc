"""The search for alternatives as one HTML file: which models were tried, what each costs and leaves."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from matplotlib.axes import Axes
from sklearn.base import is_classifier

from frhsic._text import digits, join_words, shown
from frhsic.auditing import Tile
from frhsic.report import _words
from frhsic.report._frontier import plot_frontier
from frhsic.report._page import (
    find_versions,
    get_template,
    render_element,
    write_command,
    write_date,
    write_html,
)
from frhsic.report._svg import Picture, draw_picture
from frhsic.selection import FrontierSearch, find_weakest

_KINDS: Final = {"network": "a network", "lightgbm": "LightGBM", "xgboost": "XGBoost"}
_NEAR: Final = 0.99  # of the performance: models that count as alternatives in the summary


def write_frontier(search: FrontierSearch, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a search as one HTML file that holds everything it needs.

    Parameters
    ----------
    search : FrontierSearch
        Fitted.
    path : str or path
    **options
        As in :func:`render_frontier`.

    Examples
    --------
    >>> import tempfile
    >>> from frhsic import FRHSICClassifier
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(400, random_state=0)
    >>> search = FrontierSearch(FRHSICClassifier(epochs=2), budgets=[0.5], random_state=0)
    >>> search = search.fit(task.data, task.target, sensitive_features=task.sensitive_features)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_frontier(search, f"{folder}/frontier.html")
    """
    write_html(path, lambda: render_frontier(search, **options))


def render_frontier(
    search: FrontierSearch,
    *,
    title: str | None = None,
    target: str | None = None,
    reason: str | None = None,
    rule: str | None = None,
    found: bool = True,
    test_rows: Sequence[str] = (),
    command: str | None = None,
    source: str | None = None,
    date: datetime | None = None,
) -> str:
    """Return the search for less dependent alternatives as a page.

    It shows which models were tried, what each costs and leaves, the rule, the choice, and what was not
    tried.

    Parameters
    ----------
    search : FrontierSearch
        Fitted.
    title, target : str, optional
        Of the page; what is predicted.
    reason, rule : str, optional
        Why the model was chosen, in words; the name of the rule if it is not that of the search.
    found : bool, default=True
        False: no model met the rule, whatever the search has chosen.
    test_rows : sequence of str
        Sentences about the chosen model on rows that took no part.
    command, source, date
        As in :func:`render_report`.

    Returns
    -------
    str

    Examples
    --------
    >>> from frhsic import FRHSICClassifier
    >>> from frhsic.datasets import make_u_shaped
    >>> task = make_u_shaped(400, random_state=0)
    >>> search = FrontierSearch(FRHSICClassifier(epochs=2), budgets=[0.5], random_state=0)
    >>> search = search.fit(task.data, task.target, sensitive_features=task.sensitive_features)
    >>> render_frontier(search, target="income")[:15]
    '<!doctype html>'
    """
    words, table = _words.TEXT["frontier"], _Table(search, found=found)
    names = [shown(name) for name in table.attributes]
    s = join_words(names, 3)
    heading = words["title"].format(target=shown(target), s=s) if target else words["title_plain"].format(s=s)
    return get_template("frontier.html", set(table.attributes)).render(
        t=_words.TEXT,
        w=words,
        title=shown(title, 200) if title else heading,
        version=find_versions()["frhsic"],
        date=write_date(date),
        source=None if source is None else shown(source, 200),
        command=write_command(command),
        versions=find_versions(),
        n=len(search.points_),
        reason=reason,
        chosen=found and search._chosen is not None,
        chosen_tiles=table.tiles(),
        picture=_picture(search, found=found),
        summary=table.summary(),
        headings=table.headings(),
        rows=table.rows(),
        settings=[repr(_last(member))[:300] for member in search._members],
        rule=rule or _rule_name(search._rule),
        not_tried=table.not_tried(),
        test_rows=test_rows,
    )


def render_search(search: FrontierSearch) -> str:
    """Return a fitted search as an HTML element for a notebook."""
    table = _Table(search, found=True)
    picture = _picture(search, found=True)
    return render_element(set(table.attributes), [("", table.tiles())], [picture], table.summary())


def draw_search(search: FrontierSearch, *, ax: Axes | None = None, found: bool = True) -> Axes:
    """Draw the models of a search by performance and dependence, with the chosen one marked."""
    table = _Table(search, found=found)
    several = len(table.attributes) > 1
    on = "the worst column" if several else shown(table.attributes[0])
    return plot_frontier(
        search.points_,
        chosen=search._chosen if found else None,
        dependence=f"dependence on {on}",
        performance=table.performance,
        ax=ax,
    )


def _picture(search: FrontierSearch, *, found: bool) -> Picture:
    points = search.points_
    best, least = max(one.performance for one in points), min(one.dependence for one in points)
    return draw_picture(
        partial(draw_search, search, found=found),
        key="frontier",
        title="Performance against dependence",
        description=f"{len(points)} models; the best performance is {digits(best)}, the least dependence "
        f"{digits(least)}.",
        caption="Each model by its performance and its dependence on validation rows, with the interval of "
        "each by itself. The line joins models that no other beats.",
        size=(7.2, 4.2),
    )


class _Table:
    """The numbers of a search, as the page shows them."""

    def __init__(self, search: FrontierSearch, *, found: bool) -> None:
        results = search.results_
        self._columns: dict[str, list[Any]] = {str(name): list(results[name]) for name in results}
        self._points = search.points_
        self._chosen = search._chosen if found else None
        self._words = _words.TEXT["frontier"]
        self._repairs = search.repair
        model = search._trained[0].model
        self.attributes: tuple[str, ...] = tuple(getattr(model, "sensitive_names_", None) or ("s",))
        self.performance = _performance_name(search)

    @property
    def _free(self) -> int:
        return find_weakest(self._points)

    def _get(self, measure: str, attribute: str, index: int) -> tuple[float, float, float] | None:
        """Return a measure on one attribute of one model, with its interval."""
        suffix = "" if len(self.attributes) == 1 else f"_{attribute}"
        keys = [f"{measure}{suffix}{end}" for end in ("", "_low", "_high")]
        if keys[0] not in self._columns:
            return None
        values = [float(self._columns[key][index]) if key in self._columns else math.nan for key in keys]
        return None if math.isnan(values[0]) else (values[0], values[1], values[2])

    def tiles(self) -> tuple[Tile, ...]:
        """Return the chosen model in a few numbers, beside the one without penalty."""
        if self._chosen is None:
            return ()
        point, free = self._points[self._chosen], self._points[self._free]
        name = self.performance[:1].upper() + self.performance[1:]
        label = self._words["of_model"].format(label=point.label, free=digits(free.performance))
        says = self._words["says_performance"]
        title = self._words["performance"].format(name=name)
        made = [Tile(title, digits(point.performance), label, "", says)]
        for attribute in self.attributes[:3]:
            for measure in ("gap", "gdp"):
                own = self._get(measure, attribute, self._chosen)
                unconstrained = self._get(measure, attribute, self._free)
                if own is None or unconstrained is None:
                    continue
                ends = "" if math.isnan(own[1]) else f"95 % interval {digits(own[1])} to {digits(own[2])}"
                sentence = self._words[f"says_{measure}"].format(
                    s=shown(attribute), free=digits(unconstrained[0])
                )
                title = self._words[measure].format(s=shown(attribute))
                made.append(Tile(title, digits(own[0]), "", ends, sentence))
        return tuple(made)

    def summary(self) -> list[str]:
        """Return what was tried, in words."""
        words, free = self._words, self._points[self._free]
        kinds = list(dict.fromkeys(self._columns["model"]))
        cheaper = [
            one
            for one in self._points
            if one.dependence < free.dependence and one.performance >= _NEAR * free.performance
        ]
        front = sum(map(bool, self._columns["on_front"]))
        share = f"{100 * _NEAR:g} %"
        return [
            words["tried_text"].format(
                n=len(self._points),
                kinds=join_words([_name_kind(kind) for kind in kinds], 6),
            ),
            words["count_front"].format(n=front),
            words["cheaper"].format(n=len(cheaper), share=share, name=self.performance),
        ]

    def headings(self) -> list[str]:
        """Return the titles of the columns of the table."""
        words = self._words
        measured = [
            words[key].format(s=shown(attribute))
            for attribute in self.attributes
            for measure, key in (("gap", "gap"), ("gdp", "gdp"), ("r2_boosted", "read"))
            if self._has(measure, attribute)
        ]
        performance = self.performance[:1].upper() + self.performance[1:]
        return [words["model"], words["reached"], performance, *measured, words["front"]]

    def _has(self, measure: str, attribute: str) -> bool:
        return any(self._get(measure, attribute, index) is not None for index in range(len(self._points)))

    def rows(self) -> list[tuple[bool, list[str]]]:
        """Return a row for each model, and whether it is the chosen one."""
        return [(index == self._chosen, self._row(index)) for index in range(len(self._points))]

    def _row(self, index: int) -> list[str]:
        point = self._points[index]
        of_limit = float(self._columns["of_limit"][index])
        share = float(self._columns["relative_dependence"][index])
        reached = "" if point.penalty_weight == 0 or math.isnan(share) else f"{100 * share:.1f} %"
        if point.limit is not None:
            reached = "" if math.isnan(of_limit) else f"{of_limit:.2f}"
        cells = [point.label, reached or "–", digits(point.performance)]
        for attribute in self.attributes:
            cells += [
                _cell(self._get(measure, attribute, index))
                for measure in ("gap", "gdp", "r2_boosted")
                if self._has(measure, attribute)
            ]
        return [*cells, self._words["yes" if self._columns["on_front"][index] else "no"]]

    def not_tried(self) -> list[str]:
        """Return what else could have been an alternative."""
        words, kinds = self._words, " ".join(self._columns["model"])
        others = [name for kind, name in _KINDS.items() if kind not in kinds]
        found = [words["other_kinds"].format(kinds=join_words([*others, "linear models and others"], 6))]
        if not self._repairs:
            found.append(words["repair"])
        return [*found, words["one_setting"], words["between"], words["inputs"], words["use"]]


def _name_kind(kind: str) -> str:
    """Return a kind of model in words: "LightGBM, repaired"."""
    name, space, rest = kind.partition(" ")
    return _KINDS.get(name, name) + (f" ({rest})" if space else "")


def _cell(value: tuple[float, float, float] | None) -> str:
    if value is None:
        return "–"
    estimate, low, high = value
    return digits(estimate) if math.isnan(low) else f"{digits(estimate)} ({digits(low)} to {digits(high)})"


def _last(member: Any) -> Any:
    return member.steps[-1][1] if hasattr(member, "steps") else member


def _performance_name(search: FrontierSearch) -> str:
    if search.scoring is not None:
        return shown(search.scoring) if isinstance(search.scoring, str) else "performance"
    if search._on == "representation" and not hasattr(search._last, "predict"):
        return "minus the error of what is rebuilt"
    return "accuracy" if is_classifier(search._last) else "R²"


def _rule_name(rule: Any) -> str:
    if isinstance(rule, partial):
        options = ", ".join(f"{name}={value}" for name, value in rule.keywords.items())
        return f"{_rule_name(rule.func)}({options})"
    return str(getattr(rule, "__name__", type(rule).__name__))
