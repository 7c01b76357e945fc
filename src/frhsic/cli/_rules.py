"""The budgets, limits or penalty weights that a frontier tries, and the rule that chooses one model."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic._text import cell, number, quote, share
from frhsic.cli._options import check_only_one, parse_floats

if TYPE_CHECKING:
    import frhsic.selection
    from frhsic.cli._frontier_results import Frontier

# For the help, which loads no library; a test compares them with those of the estimators.
LIMITED = ("gap", "rank_gap", "gdp", "gap_worst", "normalized_hsic", "gap_at")
_RULES = {  # functions of frhsic.selection
    "limit": "best_within_limit",
    "within": "lowest_dependence_within",
    "lowest": "lowest_dependence",
    "knee": "knee",
    "not-rejected": "first_not_rejected",
    "equivalent": "last_equivalent",
}


def parse_grid(budgets: str | None, limits: str | None, lams: str | None) -> dict[str, Any]:
    """Return one of them from the weakest to the strongest; none: the budgets of the library."""
    check_only_one({"--budgets": budgets, "--limits": limits, "--lams": lams})
    if limits is not None:
        return {"limits": _parse_limits(limits)}
    if lams is not None:
        found = parse_floats("--lams", lams, "1,10,100")
        if min(found) < 0:
            got = f"{min(found):g}"
            raise ArgumentError("--lams", "not be negative", got, "Write --lams 1,10,100, say.")
        return {"lams": sorted({0.0, *found})}
    if budgets is None:
        return {}
    found = parse_floats("--budgets", budgets, "0.5,0.2,0.1")
    for budget in found:
        if not 0 < budget <= 1:
            must = "lie above 0 and be at most 1: shares of the dependence of a model without penalty"
            fix = "Write --budgets 0.5,0.2,0.1, say; that model is always trained too."
            raise ArgumentError("--budgets", must, f"{budget:g}", fix)
    return {"budgets": sorted(set(found), reverse=True)}


def parse_limit(texts: Sequence[str]) -> dict[str, Any]:
    """Read --limit gap=0.02, --limit gap_at:0.5=0.03 as an estimator takes them."""
    found: dict[str, Any] = {}
    for text in texts:
        (name, cutoff), values = _split_limit("--limit", text)
        value = values[0]
        if len(values) > 1:
            raise ArgumentError(
                "--limit", "name one number", quote(text), "Pass several to frontier --limits."
            )
        if cutoff is None:
            found[name] = value
        else:
            found.setdefault(name, {})[cutoff] = value
    return found


def _parse_limits(text: str) -> list[dict[str, Any]]:
    """Read gap=0.05,0.02,0.01: one measure, limits from the weakest to the strongest."""
    (name, cutoff), values = _split_limit("--limits", text)
    ordered = sorted(set(values), reverse=True)
    return [{name: value if cutoff is None else {cutoff: value}} for value in ordered]


def _split_limit(flag: str, text: str) -> tuple[tuple[str, float | None], list[float]]:
    """Return the measure with its cut-off, and the numbers."""
    fix = f"Write {flag} gap=0.02 or {flag} gap_at:0.5=0.03."
    left, equals, right = text.partition("=")
    name, colon, at = left.strip().partition(":")
    if name not in LIMITED:
        raise ArgumentError(flag, f"name one of {', '.join(LIMITED)} and a number", quote(text), fix)
    if not equals or (name == "gap_at") != bool(colon):
        must = "have a number behind '=', and for gap_at a cut-off behind ':'"
        raise ArgumentError(flag, must, quote(text), fix)
    values = parse_floats(flag, right, f"{name}=0.05,0.02")
    if not min(values) > 0:
        raise ArgumentError(flag, "be above 0", f"{min(values):g}", fix)
    return (name, parse_floats(flag, at, "0.5")[0] if colon else None), values


@dataclass(frozen=True)
class Rule:
    """The rule of --rule, with --within and --tolerance where it has them."""

    name: str
    within: float | None
    tolerance: float | None

    @classmethod
    def parse(
        cls,
        name: str | None,
        within: float | None,
        tolerance: float | None,
        weight: str | None,
        *,
        limited: bool,
    ) -> Rule:
        """Read the options of a rule; raise ArgumentError for options that do not go together."""
        if name is None:
            name = "limit" if limited else "within"
        if name == "limit" and not limited:
            fix = "Pass --limits gap=0.05, say, or another rule."
            raise ArgumentError("--rule limit", "come with --limits", "none", fix)
        if name not in _RULES:
            close = difflib.get_close_matches(name, _RULES, n=1) or list(_RULES)
            fix = f"Try {quote(close[0])}."
            raise ArgumentError("--rule", f"be one of {', '.join(_RULES)}", quote(name), fix)
        for flag, given, owner in (("--within", within, "within"), ("--tolerance", tolerance, "equivalent")):
            if given is not None and name != owner:
                must, got = f"come with --rule {owner}", f"--rule {name}"
                raise ArgumentError(flag, must, got, "Leave one of them out.")
        if within is not None and not 0 <= within < 1:
            must = "be a share from 0 to below 1"
            raise ArgumentError("--within", must, f"{within:g}", "Pass 0.01, say.")
        equivalent = name == "equivalent"
        if equivalent and (tolerance is None or not 0 < tolerance < math.inf):
            got = "none" if tolerance is None else f"{tolerance:g}"
            must, fix = (
                "come with --tolerance, a positive number",
                "Say how much GDP is too little to matter.",
            )
            raise ArgumentError("--rule equivalent", must, got, fix)
        if equivalent and weight is not None:
            must = "come without --weight: its test has no weighted form"
            raise ArgumentError("--rule equivalent", must, "both", "Leave one of them out.")
        return cls(name, 0.01 if name == "within" and within is None else within, tolerance)

    @property
    def function(self) -> Callable[[Sequence[frhsic.selection.Point]], int | None]:
        """The function of frhsic.selection that finds the index of the chosen model."""
        import frhsic.selection

        function = getattr(frhsic.selection, _RULES[self.name])
        return partial(function, tolerance=self.within) if self.name == "within" else function

    def explain(self, found: Frontier) -> str:
        """Return which model was chosen, and what the rule promises, which is mostly nothing."""
        gap = found.measure if len(found.attributes) == 1 else f"{found.measure} on the worst column"
        if found.chosen is None and self.name == "limit":
            return (
                f"No model is chosen: every one misses the limit {found.loosest}. Training for longer, more "
                "rows or a larger limit may help."
            )
        if found.chosen is None:
            return (
                f"No model is chosen: not even for the strongest is {gap} shown to be below "
                f"{self.tolerance:g} at alpha = 0.05. More rows or a stronger penalty may help; another "
                "tolerance must not be picked here."
            )
        point, free = found.points[found.chosen], found.points[found.weakest]
        beside = f" (without penalty: {cell(free.performance)} and {cell(free.dependence)})"
        return (
            f"Chosen: {_describe(point)}, with {found.performance} {cell(point.performance)} and {gap} "
            f"{cell(point.dependence)}{'' if found.chosen == found.weakest else beside}. Rule '{self.name}': "
            f"{self._explain_choice(found, point, gap)}."
        )

    def _explain_choice(self, found: Frontier, point: frhsic.selection.Point, gap: str) -> str:
        import frhsic.selection

        if self.name == "not-rejected" and point.test is not None:
            p = f"p = {number(point.test.pvalue)}"
            if point.test.pvalue > 0.05:
                why = f"at which independence is not rejected ({p}), which is no evidence of independence"
                return f"the weakest penalty {why}"
            return f"the strongest penalty, because independence is rejected for every model (here {p})"
        if self.name == "equivalent" and point.equivalence is not None:
            return (
                f"the weakest penalty, from the strongest on, with {gap} shown to be below "
                f"{self.tolerance:g} at alpha = 0.05 (p = {number(point.equivalence.pvalue)}), if the "
                "tolerance was fixed beforehand"
            )
        if self.name == "limit":
            why = f"the best {found.performance} among models that do not miss the limit {found.loosest}"
            return f"{why}, which is not yet shown to be kept"
        if self.name == "knee":
            return (
                f"the bend of the front of {found.performance} against {gap}; the ends of the list place it"
            )
        if self.name == "lowest":
            return f"the lowest {gap}, whatever the {found.performance}"
        why = (
            f"the lowest {gap} among models whose {found.performance} is within {share(self.within or 0.0)} "
            "of the one without penalty"
        )
        if found.chosen != found.weakest:
            return why
        others = [one for index, one in enumerate(found.points) if index != found.weakest]
        if frhsic.selection.matched_point(others, point, tolerance=self.within or 0.0) is None:
            return f"{why}: no other is; --within allows more"
        return f"{why}: none of the others has less {gap}"


def _describe(point: frhsic.selection.Point) -> str:
    if point.model is not None:
        return point.label
    if point.limit is not None:
        return point.label
    if point.budget is not None:
        return f"budget {point.budget:g}"
    return "the model without penalty" if point.penalty_weight == 0 else f"lam {point.penalty_weight:g}"
