"""Methods beside the network without a penalty, on the splits that both have: table and figure."""

from typing import Any, NamedTuple

import pandas as pd

from benchmarks._figures import house_style
from benchmarks._record import DOCS
from benchmarks.paper._methods import CONTENDERS
from benchmarks.paper.reproduction._text import markdown

DATASETS = ("adult", "acs_income", "meps", "compas", "crime")
WIDTHS = (8, 50)
OURS = "recovered"
METHODS = ("Unfair", OURS, "selected", *list(CONTENDERS)[1:])
LEFT, GDP_LEFT = {8: 35.0, 50: 50.0}, 60.0  # per cent of R^2 and GDP that were to be left at most
ACCURACY, ABOVE_BASE, R2_LOST, USE = 0.99, 0.95, 0.02, 0.8
SHOWN = ("r2_max", "gdp", "gap", "gap_heads", "use")
CELL = ("dataset", "method", "width", "split")
NUMBERS = ("performance", "base", *SHOWN, "information", "worst_head")


def least_performance(free: float, base: float, *, regression: bool) -> float:
    """Return the performance that counts as kept: of a regression R^2, else the accuracy."""
    if regression:
        return free - R2_LOST
    return max(ACCURACY * free, base + ABOVE_BASE * (free - base))


class Pair(NamedTuple):
    """A method at one strength and the network without a penalty: means over the splits of both."""

    strength: float
    own: dict[str, float]
    free: dict[str, float]
    splits: int

    def left(self, key: str) -> float:
        """Return what is left of a number without a penalty, in per cent."""
        return 100.0 * max(self.own[key], 0.0) / max(self.free[key], 1e-9)

    def least(self, dataset: str) -> float:
        """Return the performance that counts as kept."""
        return least_performance(self.free["performance"], self.free["base"], regression=dataset == "crime")

    def worst(self, dataset: str, width: int) -> float:
        """Return the worst of R^2, GDP, performance and use, over what is asked: at most 1 if all are met."""
        lost = self.free["performance"] - self.own["performance"]
        return max(
            self.left("r2_max") / LEFT[width],
            self.left("gdp") / GDP_LEFT,
            lost / (self.free["performance"] - self.least(dataset)),
            100.0 * USE / max(self.left("use"), 1e-9),
        )

    def lost(self, dataset: str) -> str:
        """Return what is not kept of performance and use."""
        kept = {
            "performance": self.own["performance"] >= self.least(dataset),
            "use": self.own["use"] >= USE * self.free["use"],
        }
        return " and ".join(name for name, is_kept in kept.items() if not is_kept)


def pairs(rows: list[dict[str, Any]]) -> dict[tuple[str, int, str], list[Pair]]:
    """Return the pairs of each dataset, width and method, by their strength."""
    frame = pd.DataFrame(rows)
    frame = frame.astype({**dict.fromkeys((*NUMBERS, "strength"), float), "width": int, "split": int})
    frame = frame.set_index(["dataset", "width", "split"])
    free = frame[frame["method"] == "Unfair"]
    found: dict[tuple[str, int, str], list[Pair]] = {}
    for (name, width, method, strength), own in frame.groupby(["dataset", "width", "method", "strength"]):
        shared = own.index.intersection(free.index)
        if len(shared):
            mine, theirs = (part.loc[shared, list(NUMBERS)].mean().to_dict() for part in (own, free))
            pair = Pair(strength, mine, theirs, len(shared))
            found.setdefault((name, width, method), []).append(pair)
    return found


def matched(name: str, pairs: list[Pair]) -> Pair:
    """Return the strongest penalty that keeps performance and use; the weakest where none does."""
    return next((pair for pair in reversed(pairs) if not pair.lost(name)), pairs[0])


def table(rows: list[dict[str, Any]]) -> str:
    """Return what each method leaves of the numbers of the network without a penalty, at matched accuracy."""
    found, lines = pairs(rows), []
    for name in DATASETS:
        for width in WIDTHS:
            for method in METHODS:
                if (name, width, method) not in found:
                    continue
                pair = matched(name, found[name, width, method])
                cells = (
                    [f"{pair.own[key]:.3f}" for key in SHOWN]
                    if method == "Unfair"
                    else [f"{pair.left(key):.0f} %" for key in SHOWN]
                )
                start = [name, str(width), method, f"{pair.strength:g}", str(pair.splits)]
                lines.append([*start, f"{pair.own['performance']:.4f}", *cells, pair.lost(name)])
    header = ["data", "width", "method", "weight", "splits", "performance"]
    shares = ["R^2 left", "GDP left", "gap left", "of new heads", "use kept", "not kept"]
    return markdown([*header, *shares], lines, left=(0, 2, 11))


def summary(rows: list[dict[str, Any]]) -> str:
    """Return what ours leave, and the method of the sweep that leaves least of S and keeps both."""
    found, lines = pairs(rows), []
    for name in DATASETS:
        for width in WIDTHS:
            best = {
                method: matched(name, own)
                for method in METHODS[1:]
                if (own := found.get((name, width, method)))
            }
            of_sweep = {one: pair for one, pair in best.items() if one in CONTENDERS and not pair.lost(name)}
            least = min(of_sweep, key=lambda one: of_sweep[one].left("r2_max"), default="")
            ours = [_left(best[one], name) if one in best else "" for one in (OURS, "selected")]
            lines.append(
                [name, str(width), *ours, _left(best[least], name) if least else "none keeps", least]
            )
    return markdown(["data", "width", OURS, "selected", "of the sweep", "which"], lines, left=(0, 5))


def _left(pair: Pair, name: str) -> str:
    """Return R^2, GDP and use left, or what is not kept beside them."""
    numbers = " / ".join(f"{pair.left(key):.0f} %" for key in ("r2_max", "gdp", "use"))
    lost = pair.lost(name)
    return f"{numbers} (lost: {lost})" if lost else numbers


def figure(rows: list[dict[str, Any]]) -> None:
    """Draw R^2 left against accuracy, all methods, as means over splits."""
    import matplotlib.pyplot as plt
    import numpy as np

    found = pairs(rows)
    names = [name for name in DATASETS if all((name, width, OURS) in found for width in WIDTHS)]
    with house_style():
        size = 2.9 * len(names), 5.2
        made, axes = plt.subplots(len(WIDTHS), len(names), figsize=size, layout="constrained", squeeze=False)
        labels: dict[str, Any] = {}
        for at, axis in np.ndenumerate(axes):
            width, name = WIDTHS[at[0]], names[at[1]]
            for method in METHODS[:0:-1]:
                points = found.get((name, width, method), [])
                if not points:
                    continue
                look = CONTENDERS.get(method)
                own = "#B00020", "o" if method == OURS else "s"
                colour, marker = own if look is None else (look.colour, look.marker)
                labels[method] = axis.plot(
                    [100.0 * (pair.own["performance"] - pair.free["performance"]) for pair in points],
                    [pair.left("r2_max") for pair in points],
                    marker=marker,
                    color=colour,
                    ms=5,
                    lw=1.2 if method == OURS else 0,
                )[0]
            labels["no penalty"] = axis.plot(0.0, 100.0, marker="*", color="black", ms=9, lw=0)[0]
            (free,) = found[name, width, "Unfair"]
            lost = 100.0 * (free.least(name) - free.own["performance"])
            axis.axvline(lost, color="0.7", lw=0.8, ls=":")
            axis.axhline(LEFT[width], color="0.7", lw=0.8, ls=":")
            axis.set(ylim=(0.0, 125.0), title=f"{name}, {width} columns")
        for axis in axes[-1]:
            axis.set_xlabel("points of accuracy (R² for crime)")
        for axis in axes[:, 0]:
            axis.set_ylabel("R² of S left, %")
        made.legend(labels.values(), labels, loc="outside lower center", ncols=6, frameon=False)
        made.savefig(DOCS / "figures" / "representation.png", dpi=110)
        plt.close(made)
