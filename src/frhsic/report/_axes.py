"""What all plots share: colours, axes, legends, and text without formulas."""

from __future__ import annotations

from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart by every common kind of colour vision; lines differ in style as well.
MAIN, SECOND, THIRD, CHANCE = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"


def prepare_axes(ax: Axes | None) -> Axes:
    """Return the axes without the upper and the right spine; None makes a figure."""
    if ax is None:
        import matplotlib.pyplot as plt  # only here: an Axes that is passed needs no window system

        ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def escape_dollars(text: str) -> str:
    """Return text in which a dollar is a dollar and does not begin a formula."""
    return text.replace("$", r"\$")


def draw_legend(ax: Axes) -> None:
    """Put the legend above the axes, where it covers no data.

    It grows to the left, over the labels of the other axis, and so takes no width from the axes.
    """
    ax.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=2,
        fontsize="small",
        frameon=False,
        borderpad=0.2,
        columnspacing=1.4,
    )
