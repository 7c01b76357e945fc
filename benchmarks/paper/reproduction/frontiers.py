"""The trade-off on real data: tab:real_data, tab:pareto_summary, fig:pareto, fig:pareto_crime and fig:mi."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks._figures import house_style
from benchmarks.paper._methods import CONTENDERS
from benchmarks.paper.reproduction._draw import PAGE, THEIRS, look
from benchmarks.paper.reproduction._text import TITLES, markdown
from benchmarks.paper.reproduction.comparison import (
    FILES,
    METHODS,
    Splits,
    Sweep,
    Theirs,
    committed,
    is_error,
    mean_sd,
    theirs,
)
from benchmarks.paper.reproduction.rankings import areas, matched, mean_points, their_points
from frhsic.selection import Point, pareto_front

# In the order of fig:pareto, with fig:pareto_crime for both attributes.
PANELS = ("adult", "acs_income", "meps", "compas", "crime-householdsize", "crime")
_DASHES = (0, (4, 3))


# ---- tables ----------------------------------------------------------------------------------------------


def main(sweep: Sweep | None = None) -> str:
    """Return tab:real_data as published beside ours, every method of ours on the same nine lambdas."""
    sweep = committed() if sweep is None else sweep
    dense, nine = theirs(lams=None), theirs()
    parts = []
    for dataset, title in TITLES.items():
        published, ours = their_points(dataset, dense), mean_points(sweep, dataset)
        area = areas(published), areas(their_points(dataset, nine)), areas(ours)
        rows = []
        for method in CONTENDERS:
            if method in published or method in ours:
                there, here = _matched(published, method), _matched(ours, method)
                known = _at(dense.get((dataset, method), []), there)
                found = None if here is None else sweep.at(dataset, method, here.penalty_weight)
                row = [method, *_known(dataset, known), *_ours(dataset, found, known, sweep.paired(dataset))]
                rows.append([*row, *(_best(one, method) for one in area)])
        measure = "MSE x 100" if is_error(dataset) else "accuracy"
        header = ["method", "lambda", measure, "GDP", "lambda, ours", f"{measure}, ours", "GDP, ours"]
        header += ["sd apart", "nAUP", "nAUP, nine", "nAUP, ours"]
        if rows:
            parts.append(f"**{title}**\n\n{markdown(header, rows)}")
    note = (
        "Each row shows the point of lowest GDP with a mean performance within 1 % of Unfair's, and nAUP. "
        "*sd apart*: the differences in performance and GDP, in published deviations. A dash: no lambda is "
        "within 1 %, or there is no such number.\n\n"
        "In the published columns FRHSIC has 18 lambdas and the others have nine. In ours, and in "
        '"nine", all have the same nine. nAUP is scaled over the six methods of the paper and Unfair; its '
        "best is bold. "
        f"dCor is in the published files but not in the paper's table.{_few(sweep)}\n"
    )
    return "\n".join([*parts, note])


def _best(values: dict[str, float], method: str) -> str:
    if method not in values:
        return "–"
    shown = f"{values[method]:.3f}"
    return f"**{shown}**" if values[method] == max(values.values()) else shown


def _matched(of: dict[str, list[Point]], method: str) -> Point | None:
    return next(iter(of.get("Unfair", ())), None) if method == "Unfair" else matched(of, method)


def _at(rows: Sequence[Theirs], point: Point | None) -> Theirs | None:
    return next((row for row in rows if point is not None and row.lam == point.penalty_weight), None)


def _known(dataset: str, known: Theirs | None) -> list[str]:
    if known is None:
        return ["–"] * 3
    perf = mean_sd(known.perf, known.perf_sd, error=is_error(dataset))
    return [f"{known.lam:g}", perf, mean_sd(known.gdp, known.gdp_sd, error=False)]


def _ours(dataset: str, found: Splits | None, known: Theirs | None, splits: Sequence[int]) -> list[str]:
    if found is None:
        return ["–"] * 4
    perf, gdp = found.mean("perf", splits), found.mean("gdp_grid", splits)
    apart = "–"
    if known is not None and known.perf_sd and known.gdp_sd:
        apart = f"{(perf - known.perf) / known.perf_sd:+.1f}, {(gdp - known.gdp) / known.gdp_sd:+.1f}"
    return [
        f"{found.strength:g}",
        mean_sd(perf, found.sd("perf", splits), error=is_error(dataset)),
        mean_sd(gdp, found.sd("gdp_grid", splits), error=False),
        apart,
    ]


def _few(sweep: Sweep) -> str:
    """Return a note on datasets with less than five splits."""
    counts = {title: len(sweep.paired(dataset)) for dataset, title in TITLES.items()}
    few = [f"{title} {count}" for title, count in counts.items() if count < 5]
    return f" Splits so far: {', '.join(few)}." if few else ""


def pareto(sweep: Sweep | None = None) -> str:
    """Return tab:pareto_summary: performance and GDP at the matched point, published and ours."""
    sweep = committed() if sweep is None else sweep
    nine = theirs()
    rows = []
    for method in CONTENDERS:
        row = [method]
        for dataset in TITLES:
            both = (their_points(dataset, nine), mean_points(sweep, dataset))
            row += [_shown(dataset, _matched(of, method)) for of in both[dataset not in FILES :]]
        rows.append(row)
    header = ["method"]
    for dataset, title in TITLES.items():
        header += [f"{title}, published", "ours"] if dataset in FILES else [f"{title}, ours"]
    return (
        f"{markdown(header, rows)}\nPerformance (accuracy; MSE x 100 for Crime) and GDP at the point of "
        "lowest GDP within 1 % of Unfair's performance, on the nine lambdas. A dash: there is no such point."
        f"{_few(sweep)}\n"
    )


def _shown(dataset: str, point: Point | None) -> str:
    if point is None:
        return "–"
    perf = f"{-100 * point.performance:.2f}" if is_error(dataset) else f"{point.performance:.3f}"
    return f"{perf}, {point.dependence:.3f}"


# ---- figures ---------------------------------------------------------------------------------------------


def pareto_figure(sweep: Sweep | None = None) -> Figure:
    """Return the frontiers by lambda."""
    return _frontiers(committed() if sweep is None else sweep, "lam")


def budget_figure(sweep: Sweep | None = None) -> Figure:
    """Return the frontiers by budget."""
    return _frontiers(committed() if sweep is None else sweep, "budget")


def _frontiers(sweep: Sweep, form: str) -> Figure:
    with house_style():
        figure = Figure(figsize=(PAGE, 4.9))
        panels = figure.subplots(2, 3).ravel()
        for axes, dataset in zip(panels, PANELS, strict=True):
            error, splits = is_error(dataset), sweep.paired(dataset, form)
            points = []
            for method in METHODS if splits else ():
                cells = sweep.of(dataset, method, form)
                if cells:
                    points += _frontier(axes, cells, splits, method, error=error)
            unfair = sweep.unfair(dataset)
            if unfair is not None and splits:
                of = {name: unfair.mean(name, splits) for name in ("perf", "perf_base", "gdp_grid")}
                factor = 100.0 if error else 1.0
                axes.axhline(factor * of["perf_base"], color=THEIRS, lw=0.7, ls=_DASHES, zorder=1)
                axes.plot(of["gdp_grid"], factor * of["perf"], "k*", ms=9, zorder=9, mew=0)
                _cut(axes, points, factor * of["perf_base"], factor * of["perf"])
            axes.set_title(TITLES[dataset])
            axes.set_ylabel("MSE x 100" if error else "accuracy")
            if error:
                axes.invert_yaxis()  # up is better, as in the other panels
            axes.set_xlim(left=0)
        for axes in panels[3:]:
            axes.set_xlabel("GDP (published reading)")
        _legend(figure, [one for one in METHODS if form in CONTENDERS[one].forms], base=True)
    return figure


def _cut(axes: Any, points: Sequence[tuple[float, float]], base: float, best: float) -> None:
    """Count, but leave out, what is so far below a constant prediction that it would flatten the rest."""
    edge = base - 0.35 * (best - base)
    seen = [x for x, y in points if (y - edge) * (best - base) > 0]
    if len(seen) < len(points):
        axes.set_ylim(*sorted((edge, best + 0.15 * (best - base))))
        axes.set_xlim(right=1.1 * max(seen))
        words = f"{len(points) - len(seen)} lower"
        axes.text(0.98, 0.02, words, transform=axes.transAxes, ha="right", va="bottom", color=THEIRS)


def _frontier(
    axes: Any, cells: Sequence[Splits], splits: Sequence[int], method: str, *, error: bool
) -> list[tuple[float, float]]:
    """Draw the mean points of a method, those that it does not beat itself joined, its deviations faint."""
    style, factor = look(method), 100.0 if error else 1.0
    colour, marker = style["color"], style["marker"]
    x = np.array([one.mean("gdp_grid", splits) for one in cells])
    y = factor * np.array([one.mean("perf", splits) for one in cells])
    x_sd = np.array([one.sd("gdp_grid", splits) for one in cells])
    y_sd = factor * np.array([one.sd("perf", splits) for one in cells])
    pairs = zip((-y if error else y).tolist(), x.tolist(), strict=True)
    front = pareto_front([Point(0.0, *pair) for pair in pairs])
    faint = {"fmt": "none", "ecolor": colour, "elinewidth": 0.6, "alpha": 0.3, "zorder": 2}
    axes.errorbar(x[front], y[front], xerr=x_sd[front], yerr=y_sd[front], **faint)
    beaten = [i for i in range(len(cells)) if i not in front]
    axes.plot(x[beaten], y[beaten], marker, color=colour, ms=2.5, alpha=0.45, mew=0, zorder=3)
    axes.plot(x[front], y[front], marker=marker, color=colour, ms=3.5, mew=0.3, mec="white", lw=1.0, zorder=4)
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _legend(figure: Figure, methods: Sequence[str], *, base: bool) -> None:
    handles = [Line2D([], [], **look(method), ms=4, mew=0, lw=1.0) for method in methods]
    handles.append(Line2D([], [], color="black", marker="*", ms=8, lw=0, mew=0, label="Unfair"))
    if base:
        handles.append(Line2D([], [], color=THEIRS, lw=0.7, ls=_DASHES, label="constant prediction"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, columnspacing=1.5, handlelength=1.8)


def mi_figure(sweep: Sweep | None = None) -> Figure:
    """Return fig:mi: performance against the KSG estimate as published, and against the R^2 of a probe."""
    sweep = committed() if sweep is None else sweep
    shown = [name for name in PANELS if name in FILES]
    measures: tuple[tuple[str, str, Callable[[float], float]], ...] = (
        ("mi_ksg", "MI of Z and S (KSG), nats", float),
        ("r2_s_boosted", "R² of S from Z (boosted)", lambda value: max(value, 0.0)),
    )
    with house_style():
        figure = Figure(figsize=(PAGE, 4.0))
        grid = figure.subplots(2, len(shown), sharey="col")
        for row, (column, label, cut) in zip(grid, measures, strict=True):
            for axes, dataset in zip(row, shown, strict=True):
                factor = 100.0 if is_error(dataset) else 1.0
                for method in METHODS:
                    cells = sweep.of(dataset, method)
                    x = [cut(one.mean(column)) for one in cells]
                    y = [factor * one.mean("perf") for one in cells]
                    style = look(method)
                    axes.plot(x, y, style["marker"], color=style["color"], ms=3.5, mew=0, alpha=0.8)
                unfair = sweep.unfair(dataset)
                if unfair is not None:
                    axes.plot(
                        cut(unfair.mean(column)), factor * unfair.mean("perf"), "k*", ms=8, mew=0, zorder=9
                    )
                axes.locator_params(axis="x", nbins=3)
                axes.set_xlim(left=-0.02 * axes.get_xlim()[1])
                if column == "mi_ksg" and _nothing(sweep, dataset, column):
                    axes.set_xlim(-0.02, 1)
                    axes.annotate(
                        "0 in every run:\nages are tied", (0.12, 0.5), xycoords="axes fraction", fontsize=7
                    )
            row[len(shown) // 2].set_xlabel(label)
        for axes, dataset in zip(grid[0], shown, strict=True):
            axes.set_title(TITLES[dataset].replace(" (", "\n("))
        for axes, dataset in zip(grid[0], shown, strict=True):
            if is_error(dataset):
                axes.invert_yaxis()  # of the whole column
        for row in grid:
            row[0].set_ylabel("accuracy")
            row[shown.index("crime-householdsize")].set_ylabel("MSE x 100")
        _legend(figure, METHODS, base=False)
    return figure


def _nothing(sweep: Sweep, dataset: str, column: str) -> bool:
    """Return whether a column is zero in every run of a dataset of which there is any."""
    runs = [one for method in CONTENDERS for one in sweep.of(dataset, method)]
    return bool(runs) and not any(one.values(column).any() for one in runs)
