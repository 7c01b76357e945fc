"""The page of the reproduction: a text with its tables and numbers put in."""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import jinja2

from benchmarks._protocol import dataset, published
from benchmarks._record import DOCS, RESULTS
from benchmarks.paper import sweep
from benchmarks.paper.reproduction import appendix, comparison, decisions, findings, rankings, transfer
from benchmarks.paper.reproduction._draw import keep
from benchmarks.paper.reproduction._text import TITLES, wrap
from benchmarks.paper.reproduction.contents import FIGURES, TABLES

PAGE, CELLS = DOCS / "evidence" / "reproduction.md", DOCS / "evidence" / "reproduction-cells.md"

_CELLS_INTRODUCTION = """# Every cell beside the published one

After this page you can compare each published number with ours.
A cell is one lambda of one method; [the paper, reproduced](reproduction.md) sums the cells up.
`python -m benchmarks page` writes both pages.

GDP is the mean gap (GDP, generalized demographic parity), of logits over a grid as published.
*sd apart*: the difference of the means, in published deviations.
The last column says whether both means are within the tolerance and, if not, what explains it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command: none."""


def run(arguments: argparse.Namespace) -> None:  # noqa: ARG001
    """Draw every figure and write the page and its appendix of cells."""
    for name, draw in FIGURES.items():
        print(keep(draw(), name))
    for path, text in ((PAGE, page()), (CELLS, cells())):
        path.write_text(text)
        print(path)


def page() -> str:
    """Return docs/evidence/reproduction.md."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    spread = findings.spread()
    text = environment.get_template("page.md.j2").render(
        tables=TABLES,
        numbers=appendix.NUMBERS,
        comparison=comparison,
        findings=findings,
        rankings=rankings,
        decisions=decisions,
        titles=TITLES,
        confirmed=lambda holds: "confirmed" if holds else "**not confirmed**",
        training=_training(),
        shapes=_shapes(),
        forms=[
            form for form in ("lam", "budget") if any(key[2] == form for key in comparison.committed().cells)
        ],
        conclusion=_conclusion(),
        collapse=findings.collapse(),
        scaling=findings.scaled(),
        spread=spread,
        ours_spread=", ".join(
            f"{TITLES[name]} {found['ours']:.3f}" for name, found in spread.items() if "ours" in found
        ),
        acs=findings.acs_deviations(),
        mi_text=min(findings.mi_of_text().values()),
        rounded=list(findings.rounded_band()),
        transfer_differs=transfer.differs(),
        mixed=transfer.mixture(),
        again=transfer.found_again(),
        cells=_cells(),
        leftover={row["dataset"]: int(row["n_train"]) % 256 for row in sweep.read()},
    )
    return wrap(text)


def _training() -> dict[str, Any]:
    """Return hours of training on the cores used, and seconds of a cell, by form."""
    rows = [row for row in sweep.read() if row["epochs"] == comparison.EPOCHS]
    workers = json.loads((RESULTS / "sweep.json").read_text())["workers"]
    found: dict[str, Any] = {"workers": workers}
    for form in ("lam", "budget"):
        cells: dict[tuple[str, ...], float] = {}
        for row in rows:
            if row["form"] == form:
                key = (row["dataset"], row["method"], row["split"])
                cells[key] = cells.get(key, 0.0) + float(row["seconds"])
        found[form] = cells and {
            "hours": sum(cells.values()) / workers / 3600.0,
            "median": statistics.median(cells.values()),
            "longest": max(cells.values()),
        }
    return found


def _cells() -> dict[str, int]:
    """Return how many cells of the sweep are there, of all."""
    parser = argparse.ArgumentParser()
    sweep.add_arguments(parser)
    asked = {cell.key for cell in sweep.cells(parser.parse_args([]))}
    return {"done": len(asked & {sweep.key_of(row) for row in sweep.read()}), "all": len(asked)}


def _shapes() -> dict[str, dict[str, str]]:
    """Return rows and columns of the dataset that is not theirs, and theirs."""
    ours = dataset("meps")
    theirs = next(row for row in published("results_by_lambda") if row["dataset"] == "meps")
    return {
        "meps": {"n": f"{len(ours.y):,}", "d": str(ours.bunch.data.shape[1])},
        "published_meps": {"n": f"{int(theirs['n']):,}", "d": theirs["d"]},
    }


def _conclusion() -> str:
    """Return which methods are best or not separated from the best, dataset by dataset."""
    lines = []
    for form in ("lam", "budget"):
        for name, title in TITLES.items():
            found = rankings.standings(name, form, "sound", "population")
            if found:
                best = min(found, key=lambda one: one.rank)
                tied = [one.method for one in found if one.tied and one is not best]
                also = (
                    f"; not separated from it: {', '.join(tied)}" if tied else ", separated from all others"
                )
                by = "lambda" if form == "lam" else "budget"
                lines.append(f"- {title} by {by}: {best.method} ({best.value:.2f}){also}.")
    return "\n".join(lines)


def cells() -> str:
    """Return docs/evidence/reproduction-cells.md: every cell beside the published one."""
    parts = (f"## {TITLES[name]}\n\n{comparison.cells(name)}" for name in comparison.FILES)
    return wrap("\n".join([_CELLS_INTRODUCTION, *parts]))
