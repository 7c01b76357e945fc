"""The models of a frontier, as tables, a picture and JSON."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frhsic import __version__
from frhsic._text import cell, to_line
from frhsic.cli._output import echo, echo_table

if TYPE_CHECKING:
    import frhsic.selection

_CONFIDENCE_LEVEL = 0.95  # of the intervals of FrontierSearch


@dataclass(frozen=True)
class Frontier:
    """What was found about each model, and which was chosen."""

    points: list[frhsic.selection.Point]
    columns: dict[str, list[Any]]
    attributes: Sequence[str]
    performance: str
    what: str
    rows: dict[str, int]
    chosen: int | None
    measure: str = "GDP"  # of the points
    loosest: str = ""  # of the limits

    @property
    def weakest(self) -> int:
        """The model without penalty, or of the weakest; of several kinds the best performing one."""
        import frhsic.selection

        return frhsic.selection.find_weakest(self.points)

    @property
    def kinds(self) -> list[str]:
        """The kinds of models, each once."""
        return list(dict.fromkeys(self.columns["model"]))

    @property
    def has_representation(self) -> bool:
        """Whether all models have one."""
        return self.kinds == ["network"]

    @property
    def has_budgets(self) -> bool:
        """Whether the models have budgets, not penalty weights."""
        return self.points[-1].budget is not None

    @property
    def has_limits(self) -> bool:
        """Whether the models have limits."""
        return self.points[-1].limit is not None

    @property
    def _shared(self) -> str:
        """What budgets are shares of."""
        if "network" not in self.kinds:
            return "HSIC"
        return "normalised HSIC" if self.has_representation else "normalised HSIC (network) or HSIC (trees)"

    def get_column(self, measure: str, attribute: str, end: str = "") -> list[float]:
        """Return a column of the results about one sensitive attribute."""
        suffix = "" if len(self.attributes) == 1 else f"_{attribute}"
        return self.columns[f"{measure}{suffix}{end}"]

    def echo(self) -> None:
        """Print a table for each sensitive attribute, and what its columns are."""
        for attribute in self.attributes:
            self._echo_models(attribute)
        setting = ""
        if self.has_budgets:
            setting = (
                f"Budget: the share of the {self._shared} of the model without penalty that training "
                "allowed; reached: the share left on the rows trained on. "
            )
        if self.has_limits:
            setting = "Of it: what training measured at its end over the limit, on the steering rows. "
        shown = f"GDP: the mean gap between {self.what} at a value and overall"
        if self.measure == "gap":
            shown = f"Gap: the mean distance between {self.what} at a value and all of them"
        echo()
        read = ""
        if self.has_representation:
            read = (
                " R^2 from Z: how well boosted trees read the column from the representation; near or below 0"
            )
            read += " is not at all."
        echo(f"{setting}{shown}.{read}")
        from frhsic.engine.budget import FEASIBLE, MET

        if self.has_limits:
            ratios = zip(self.points, self.columns["of_limit"], strict=True)
            above = [str(point.limit) for point, ratio in ratios if ratio > FEASIBLE]
            if above:
                echo(f"Note: above their limits: {', '.join(above)}. Train for longer.", error=True)
        if not self.has_budgets:
            return
        # Repair is fitted on validation rows.
        kinds = self.columns["model"]
        shares = zip(kinds, self.columns["relative_dependence"], strict=True)
        reached = [math.nan if kind.endswith("repaired") else share for kind, share in shares]
        if all(math.isnan(share) for point, share in zip(self.points, reached, strict=True) if point.budget):
            why = "The model without penalty shows no dependence on the rows trained on"
            echo(f"Note: {why}: a share of it means nothing.", error=True)
        pairs = ((point.budget, share) for point, share in zip(self.points, reached, strict=True))
        missed = [f"{budget:g}" for budget, share in pairs if budget and share > MET * budget]
        if missed:
            left = f"More than budget {', '.join(missed)} is left on the rows trained on"
            echo(f"Note: {left}. Train for longer.", error=True)

    def _echo_models(self, attribute: str) -> None:
        title = f"{self.rows['validation']:,} validation rows: {self.what} and {to_line(attribute)}"
        first = ["limit", "of it"] if self.has_limits else ["lam"]
        first = ["budget", "reached"] if self.has_budgets else first
        interval = f"{_CONFIDENCE_LEVEL:.0%} interval"
        shown = "gap" if self.measure == "gap" else "GDP"
        several = len(self.kinds) > 1
        first = ["model", *first] if several else first
        z = ["R^2 from Z"] if self.has_representation else []
        headings = [*first, self.performance, shown, interval, *z, ""]
        rows = []
        for index, point in enumerate(self.points):
            setting = [f"{point.penalty_weight:g}"]
            if self.has_budgets:
                reached = self.columns["relative_dependence"][index]
                setting = [
                    "none" if point.budget is None else f"{point.budget:g}",
                    "" if math.isnan(reached) else f"{reached:.3f}",
                ]
            if self.has_limits:
                ratio = self.columns["of_limit"][index]
                setting = [point.limit or "none", "" if math.isnan(ratio) else f"{ratio:.2f}"]
            name = shown.lower()
            low, high = (self.get_column(name, attribute, end)[index] for end in ("_low", "_high"))
            gaps = [cell(self.get_column(name, attribute)[index]), f"{cell(low)} to {cell(high)}"]
            setting = [self.columns["model"][index], *setting] if several else setting
            read = []
            if self.has_representation:
                read = [f"{self.get_column('r2_boosted', attribute)[index]:.3f}"]
            mark = ("<" if several else "< chosen") if index == self.chosen else ""
            rows.append([*setting, cell(point.performance), *gaps, *read, mark])
        echo_table(title, headings, rows, bold=self.chosen)

    def draw(self, form: str, target: str) -> bytes:
        """Return the picture as the bytes of a file."""
        import frhsic.report

        on = to_line(self.attributes[0]) if len(self.attributes) == 1 else "the worst column"
        axes = frhsic.report.plot_frontier(
            self.points,
            chosen=self.chosen,
            dependence=f"{self.measure} of {self.what} on {on}",
            performance=f"{self.performance.replace('^2', '²')} for {to_line(target)}",
        )
        figure: Any = axes.get_figure(root=True)
        numbers = "limits" if self.has_limits else "lam"
        budgets = f"budgets, shares of {self._shared}" if len(self.kinds) == 1 else "budgets"
        numbers = budgets if self.has_budgets else numbers
        title = f"{self.rows['validation']:,} validation rows; the numbers are {numbers}"
        figure.suptitle(title, x=0.99, ha="right", fontsize="medium")
        buffer = io.BytesIO()
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(buffer, format=form, dpi=150, metadata=dates)
        return buffer.getvalue()

    def to_dict(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Return every number as plain values, beside facts about the run; NaN is None."""
        models = []
        for index, point in enumerate(self.points):
            row = {name: _to_plain(values[index]) for name, values in self.columns.items()}
            models.append({"label": point.label, "chosen": index == self.chosen, **row})
        return {
            "schema": "frhsic.frontier/1",
            "version": __version__,
            **facts,
            "sensitive": list(self.attributes),
            "rows": self.rows,
            "performance": self.performance,
            "dependence": self.measure,
            "confidence_level": _CONFIDENCE_LEVEL,
            "chosen": self.chosen,
            "models": models,
        }


def _to_plain(value: Any) -> Any:
    """Return a number or a truth value that JSON knows."""
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return bool(value)
    if isinstance(value, str):
        return value or None
    return float(value) if math.isfinite(value) else None
