"""What the sweep says about the published numbers: each function returns the numbers of a sentence.

Numbers in brackets are those of the inconsistencies listed with the published tables, or of the findings of
the protocol where that is said.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks._record import RESULTS
from benchmarks.paper._methods import CONTENDERS, LAMS
from benchmarks.paper.forensics import scaling_rows
from benchmarks.paper.reproduction._text import TITLES, markdown
from benchmarks.paper.reproduction.comparison import (
    COLLAPSED,
    FILES,
    METHODS,
    ROUNDED,
    Published,
    Splits,
    Sweep,
    Theirs,
    collapsed,
    committed,
    gain_left,
    theirs,
)
from benchmarks.paper.reproduction.rankings import (
    SCALED_BY,
    areas,
    matched,
    mean_points,
    point,
    ranked,
    their_points,
)
from frhsic.selection import Point, matched_point

Numbers = dict[str, float]

STATED = (0.1, 1.0, 10.0, 100.0, 500.0)  # the grid of the paper's text
# Mutual information in the appendix on transfer: FRHSIC and Reg-GDP on Adult and Crime. Of no published row.
TEXT_MI = {
    ("adult", "FRHSIC-published"): 0.008,
    ("crime-householdsize", "FRHSIC-published"): 0.015,
    ("adult", "Reg-GDP"): 0.017,
    ("crime-householdsize", "Reg-GDP"): 0.056,
}
# Normalised HSIC of Z on Adult in finding 6 of the protocol: without a penalty; scale-free, lambda = 500.
PROTOCOL_HSIC = (0.162, 0.002)


def _sweep(sweep: Sweep | None) -> Sweep:
    return committed() if sweep is None else sweep


def crime_attribute(sweep: Sweep | None = None) -> Numbers:
    """Unfair on Crime with either attribute, beside the published row (inconsistency and finding 1)."""
    found: Numbers = {}
    for row in theirs().get(("crime-householdsize", "Unfair"), []):
        found |= {"mse_published": row.perf, "gdp_published": row.gdp, "gdp_sd_published": row.gdp_sd}
    for name, dataset in (("householdsize", "crime-householdsize"), ("racepctblack", "crime")):
        unfair = _sweep(sweep).unfair(dataset)
        if unfair is not None:
            found |= {f"mse_{name}": unfair.mean("perf"), f"gdp_{name}": unfair.mean("gdp_grid")}
            found[f"gdp_sd_{name}"] = unfair.sd("gdp_grid")
    return found


def of_six(of: dict[str, list[Point]], lams: Sequence[float] | None = None) -> tuple[float, int, float]:
    """Return nAUP and rank of FRHSIC among the six of tab:real_data, and how far the best is ahead."""
    kept = {
        method: [one for one in points if lams is None or method == "Unfair" or one.penalty_weight in lams]
        for method, points in of.items()
        if method in ("Unfair", *SCALED_BY)
    }
    values = areas(kept)
    mine = values["FRHSIC-published"]
    return mine, ranked(values)["FRHSIC-published"], max(values.values()) - mine


def grids(sweep: Sweep | None = None) -> dict[str, dict[str, tuple[float, int, float]]]:
    """FRHSIC under four grids and ours: nAUP, rank among six, distance to the best (inconsistency 2)."""
    dense = theirs(lams=None)
    found: dict[str, dict[str, tuple[float, int, float]]] = {}
    for dataset in FILES:
        of, ours = their_points(dataset, dense), mean_points(_sweep(sweep), dataset)
        if set(SCALED_BY) <= set(of):
            found[dataset] = {
                "published": of_six(of),
                "nine": of_six(of, LAMS),
                "stated": of_six(of, STATED),
            }
        if {"Unfair", *SCALED_BY} <= set(ours):
            found.setdefault(dataset, {})["ours, nine"] = of_six(ours)
            found[dataset]["ours, stated"] = of_six(ours, STATED)
    return found


def grids_table() -> str:
    """Return FRHSIC's nAUP and rank among six by grid, the published files beside ours."""
    names = {
        "published": "published: FRHSIC 18, others nine",
        "nine": "published: all nine",
        "stated": "published: the five of the text",
        "ours, nine": "ours: all nine",
        "ours, stated": "ours: the five of the text",
    }
    found = grids()
    rows = [
        [title] + [f"{of[name][0]:.3f} ({of[name][1]})" if name in of else "–" for of in found.values()]
        for name, title in names.items()
    ]
    return markdown(["grid", *(TITLES[dataset] for dataset in found)], rows)


def off_grid() -> tuple[int, int]:
    """Return the matched points of tab:real_data at a lambda that is not stated, and their number (2)."""
    dense = theirs(lams=None)
    chosen = [
        matched(their_points(dataset, dense), method)
        for dataset in {key[0] for key in dense}
        for method in SCALED_BY
    ]
    lams = [one.penalty_weight for one in chosen if one is not None]
    return sum(lam not in STATED for lam in lams), len(lams)


def two_tables() -> dict[str, tuple[Point | None, Point | None]]:
    """Return FRHSIC's matched points on 18 and on nine lambdas, where they differ (inconsistency 3)."""
    dense, nine = theirs(lams=None), theirs()
    found = {}
    for dataset in FILES:
        pair = tuple(matched(their_points(dataset, of), "FRHSIC-published") for of in (dense, nine))
        if pair[0] != pair[1]:
            found[dataset] = (pair[0], pair[1])
    return found


def spread(sweep: Sweep | None = None) -> dict[str, Numbers]:
    """FRHSIC's deviation of GDP over splits at its matched point, published and ours (inconsistency 4)."""
    dense = theirs(lams=None)
    found: dict[str, Numbers] = {}
    for dataset in FILES:
        there = matched(their_points(dataset, dense), "FRHSIC-published")
        row = _row(dense, dataset, "FRHSIC-published", there)
        if row is not None:
            found.setdefault(dataset, {})["published"] = row.gdp_sd
        here = matched(mean_points(_sweep(sweep), dataset), "FRHSIC-published")
        if here is not None:
            cell = _sweep(sweep).at(dataset, "FRHSIC-published", here.penalty_weight)
            found.setdefault(dataset, {})["ours"] = cell.sd("gdp_grid") if cell else float("nan")
    return found


def _row(known: Published, dataset: str, method: str, at: Point | None) -> Theirs | None:
    rows = known.get((dataset, method), [])
    return next((row for row in rows if at is not None and row.lam == at.penalty_weight), None)


# Where, of which method in which form: at which strength, in how many splits of how many.
Lost = dict[tuple[str, str, str], list[tuple[float, int, int]]]


def half_collapsed(sweep: Sweep | None = None) -> Lost:
    """Return lambdas at which a method collapses in some splits only (inconsistency 4).

    Collapsed: less than a tenth is left of what Unfair gains over a constant prediction.
    """
    sweep = _sweep(sweep)
    found: Lost = {}
    for (dataset, method, form), cells in sweep.cells.items():
        if form == "lam" and method != "Unfair":
            for one in cells:
                lost = collapsed(one, sweep.unfair(dataset))
                if 0 < lost < len(one.rows):
                    found.setdefault((dataset, method, form), []).append((one.strength, lost, len(one.rows)))
    return found


def below_constant(sweep: Sweep | None = None) -> Lost:
    """Return where a model is worse than a constant prediction by a tenth of what Unfair gains over it."""
    sweep = _sweep(sweep)
    found: Lost = {}
    for (dataset, method, form), cells in sweep.cells.items():
        for one in cells:
            lost = int(np.sum(gain_left(one, sweep.unfair(dataset)) < -COLLAPSED))
            if lost:
                found.setdefault((dataset, method, form), []).append((one.strength, lost, len(one.rows)))
    return found


def lost_table(found: Lost) -> str:
    """Return such models by method and dataset: strength: splits of splits."""
    places = [name for name in TITLES if any(key[0] == name for key in found)]
    rows = []
    for method in METHODS:
        for form, title in (("lam", method), ("budget", f"{method} by budget")):
            cells = [found.get((place, method, form), []) for place in places]
            if any(cells):
                told = (", ".join(f"{at:g}: {lost}/{of}" for at, lost, of in cell) for cell in cells)
                rows.append([title, *told])
    return markdown(["method", *(TITLES[place] for place in places)], rows)


def acs_deviations(sweep: Sweep | None = None) -> Numbers:
    """Mean deviations of accuracy and GDP of FRHSIC on ACS up to lambda 5, and Unfair's (inconsistency 5)."""
    known = theirs(lams=None)
    rows = known.get(("acs_income", "FRHSIC-published"), [])
    groups = {
        "first": [row for row in rows if row.lam in LAMS and row.lam <= 5],
        "infill": [row for row in rows if row.lam in (2.0, 20.0)],
        "unfair": known.get(("acs_income", "Unfair"), []),
    }
    found = {}
    for name, group in groups.items():
        if group:
            found[f"accuracy_sd_{name}"] = float(np.mean([row.perf_sd for row in group]))
            found[f"gdp_sd_{name}"] = float(np.mean([row.gdp_sd for row in group]))
    cells = [one for one in _sweep(sweep).of("acs_income", "FRHSIC-published") if one.strength <= 5]
    unfair = _sweep(sweep).of("acs_income", "Unfair")
    for name, ours in (("ours", cells), ("unfair_ours", unfair)):
        if ours:
            found[f"accuracy_sd_{name}"] = float(np.mean([one.sd("perf") for one in ours]))
            found[f"gdp_sd_{name}"] = float(np.mean([one.sd("gdp_grid") for one in ours]))
    return found


def base_rates(sweep: Sweep | None = None) -> dict[str, Numbers]:
    """Constant predictions on our splits beside the published collapse of Reg-GDP at 500 (inconsistency 6).

    To the fourth decimal the same mean and deviation: then rows and splits are the published ones.
    """
    known, found = theirs(), {}
    for dataset in FILES:
        unfair = _sweep(sweep).unfair(dataset)
        row = _row(known, dataset, "Reg-GDP", Point(500.0, 0.0, 0.0))
        if unfair is not None and row is not None:
            found[dataset] = {"published": row.perf, "published_sd": row.perf_sd}
            found[dataset] |= {"base": unfair.mean("perf_base"), "base_sd": unfair.sd("perf_base")}
            ours = _sweep(sweep).at(dataset, "Reg-GDP", 500.0)
            if ours is not None:
                found[dataset] |= {"ours": ours.mean("perf"), "ours_sd": ours.sd("perf")}
    return found


def mi_of_text() -> dict[tuple[str, str], float]:
    """Return how far the nearest published row is from each mutual information in the text (10)."""
    known = theirs(lams=None)
    return {
        key: min(abs(row.mi - value) for row in known[key]) for key, value in TEXT_MI.items() if key in known
    }


def mi_at_matched(sweep: Sweep | None = None) -> dict[str, Numbers]:
    """Mutual information of FRHSIC and Reg-GDP at their matched points, and ours with R^2 (10)."""
    dense = theirs(lams=None)
    found: dict[str, Numbers] = {}
    for dataset in FILES:
        here: Numbers = found.setdefault(dataset, {})
        for method in ("FRHSIC-published", "Reg-GDP"):
            row = _row(dense, dataset, method, matched(their_points(dataset, dense), method))
            if row is not None:
                here[f"{method}, published"] = row.mi
            chosen = matched(mean_points(_sweep(sweep), dataset), method)
            cell = None if chosen is None else _sweep(sweep).at(dataset, method, chosen.penalty_weight)
            if cell is not None:
                here[f"{method}, ours"] = cell.mean("mi_ksg")
                here[f"{method}, R2"] = cell.mean("r2_s_boosted")
    return found


def greatest_mi(dataset: str, sweep: Sweep | None = None) -> tuple[float, float]:
    """Return the greatest mutual information of any row of a dataset, published and ours (10)."""
    known = theirs(lams=None)
    there = [row.mi for (name, _), rows in known.items() if name == dataset for row in rows]
    here = [one.values("mi_ksg").max() for method in CONTENDERS for one in _sweep(sweep).of(dataset, method)]
    return max(there, default=float("nan")), float(max(here, default=float("nan")))


def kept(one: Splits, unfair: Splits) -> float:
    """Return the share of what Unfair gains over a constant prediction that a model keeps, mean of splits."""
    shared = sorted(one.rows.keys() & unfair.rows.keys())
    base, best = unfair.values("perf_base", shared), unfair.values("perf", shared)
    return float(np.mean((one.values("perf", shared) - base) / (best - base)))


def collapse(lam: float = 500.0, sweep: Sweep | None = None) -> dict[str, dict[str, Numbers]]:
    """Each method at a large lambda: performance kept, R^2 of S from Z, mutual information (finding 6)."""
    sweep = _sweep(sweep)
    found: dict[str, dict[str, Numbers]] = {}
    for (dataset, method, form), cells in sweep.cells.items():
        unfair = sweep.unfair(dataset)
        for one in cells:
            if form == "lam" and unfair is not None and one.strength in (lam, 0.0):
                found.setdefault(dataset, {})[method] = {
                    "kept": kept(one, unfair),
                    "gdp": one.mean("gdp_grid"),
                    "r2": one.mean("r2_s_boosted"),
                    "mi": one.mean("mi_ksg"),
                    "nhsic": one.mean("nhsic_z"),
                }
    return found


def shrinking() -> dict[str, Numbers]:
    """Adult at lambda = 500 under each estimator and scale of Z, few epochs, mean of splits (finding 6)."""
    told: dict[str, Any] = json.loads((RESULTS / "collapse.json").read_text())
    return {**told["table"], "run": {"epochs": told["runs"][0]["epochs"], "splits": len(told["seeds"])}}


def scaled() -> dict[str, Any]:
    """How far scaling on all rows moves means over splits, in deviations over splits (finding 7)."""
    rows = sorted(scaling_rows(), key=lambda row: abs(row["apart"]))
    return {
        "splits": min(row["splits"] for row in rows),
        "median": float(np.median([abs(row["apart"]) for row in rows])),
        "most": abs(rows[-1]["apart"]),
        "where": f"{TITLES[rows[-1]['dataset']]} at lambda = {rows[-1]['lam']:g}",
    }


def blind_mi(sweep: Sweep | None = None) -> tuple[int, int]:
    """Return in how many cells KSG is 0 in every split while R^2 of S from Z is 0.1 or more, of all."""
    sweep = _sweep(sweep)
    cells = [one for key, all_ in sweep.cells.items() if key[2] == "lam" for one in all_]
    blind = [one for one in cells if not one.values("mi_ksg").any() and one.mean("r2_s_boosted") >= 0.1]
    return len(blind), len(cells)


def rounded_band(dataset: str = "crime-householdsize") -> dict[str, tuple[Point | None, Point | None]]:
    """Return methods whose published matched point hangs on the fifth decimal: strictest, mildest.

    Four decimals of the mean squared error are published; the band of 1 % is two units of the last.
    """
    of = their_points(dataset, theirs(lams=None))
    found = {}
    for method in METHODS if "Unfair" in of else ():
        if method in of:
            ends = []
            for sign in (-1.0, 1.0):
                unfair = of["Unfair"][0]
                best = point(0.0, unfair.performance - sign * ROUNDED, unfair.dependence, error=False)
                moved = [
                    point(one.penalty_weight, one.performance + sign * ROUNDED, one.dependence, error=False)
                    for one in of[method]
                ]
                chosen = matched_point(moved, best)
                ends.append(None if chosen is None else of[method][chosen])
            if ends[0] != ends[1]:
                found[method] = (ends[0], ends[1])
    return found


def all_collapsed(sweep: Sweep | None = None) -> int:
    """Return the number of cells by lambda in which every split has collapsed (finding 6)."""
    sweep = _sweep(sweep)
    return sum(
        collapsed(one, sweep.unfair(key[0])) == len(one.rows)
        for key, cells in sweep.cells.items()
        if key[2] == "lam" and key[1] != "Unfair"
        for one in cells
    )


def budget_shares(
    strength: float = 0.1, sweep: Sweep | None = None
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return what a budget leaves: of the penalty's own dependence, of the prediction's normalised HSIC.

    Both as a share of the unconstrained model's, means over splits, by dataset and method.
    """
    sweep = _sweep(sweep)
    found = {}
    for dataset, method, form in sweep.cells:
        cell, unfair = sweep.at(dataset, method, strength, form), sweep.unfair(dataset)
        if form == "budget" and cell is not None and unfair is not None:
            shared = sorted(cell.rows.keys() & unfair.rows.keys())
            left = cell.mean("nhsic_prediction", shared) / unfair.mean("nhsic_prediction", shared)
            found[dataset, method] = cell.mean("relative"), left
    return found


def budget_shares_table(strength: float = 0.1) -> str:
    """Return what is left under a budget, by method and dataset."""
    found = budget_shares(strength)
    places = [name for name in TITLES if any(key[0] == name for key in found)]
    rows = []
    for method in METHODS:
        pairs = [found.get((place, method)) for place in places]
        if any(pairs):
            rows.append([method, *("–" if one is None else f"{one[0]:.2f}, {one[1]:.2f}" for one in pairs)])
    return markdown(["method", *(TITLES[place] for place in places)], rows)
