"""How every figure of the reproduction looks: the width of a column or a page, one colour for each method."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks._figures import house_style
from benchmarks._record import DOCS
from benchmarks.paper._methods import CONTENDERS

FOLDER = DOCS / "figures" / "reproduction"
COLUMN, PAGE = 3.4, 7.0  # inches
# What is not a method but stands beside another: ours and theirs, the joint and the conditional route.
OURS, THEIRS = "#000000", "#9A9A9A"


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
