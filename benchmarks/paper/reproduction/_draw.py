"""How every figure of the reproduction looks: the width of a column or a page, one colour for each method."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks._record import DOCS
from benchmarks.paper._methods import CONTENDERS

FOLDER = DOCS / "figures" / "reproduction"
COLUMN, PAGE = 3.4, 7.0  # inches
# What is not a method but stands beside another: ours and theirs, the joint and the conditional route.
OURS, THEIRS = "#000000", "#9A9A9A"
DPI = 200

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "#E3E3E3",
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
    "savefig.dpi": DPI,
    "svg.hashsalt": "frhsic",
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the style of the house."""
    with mpl.rc_context(_STYLE):
        yield


def look(method: str) -> dict[str, Any]:
    """Return colour, marker and label of a method, for ``plot`` and its kin."""
    one = CONTENDERS[method]
    return {"color": one.colour, "marker": one.marker, "label": one.name}


def keep(figure: Figure, name: str, folder: Path = FOLDER) -> Path:
    """Write a figure as PNG that names the version that drew it: the same data then give the same picture."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    with house_style():
        figure.savefig(path, metadata={"Software": f"matplotlib {mpl.__version__}"})
    return path
