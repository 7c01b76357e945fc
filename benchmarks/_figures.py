"""How figures of benchmarks look. Colours are Okabe and Ito's: colour-blind readers tell them apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DPI = 200


@contextmanager
def house_style(font_size: float = 8.0) -> Iterator[None]:
    """Draw in one style. Figures of 7 inches have letters of 8 points, wider ones larger letters."""
    import matplotlib as mpl

    scale = font_size / 8.0
    style: Any = {
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
        "font.size": font_size,
        "axes.titlesize": font_size,
        "axes.labelsize": font_size,
        "xtick.labelsize": 7 * scale,
        "ytick.labelsize": 7 * scale,
        "legend.fontsize": 7 * scale,
        "legend.frameon": False,
        "lines.linewidth": 1.2 * scale,
        "lines.markersize": 4 * scale,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6 * scale,
        "xtick.major.width": 0.6 * scale,
        "ytick.major.width": 0.6 * scale,
        "axes.grid": True,
        "grid.linewidth": 0.4 * scale,
        "grid.color": "#E3E3E3",
        "axes.axisbelow": True,
        "figure.constrained_layout.use": True,
        "savefig.dpi": DPI,
        "svg.hashsalt": "frhsic",
    }
    with mpl.rc_context(style):
        yield
