"""Every cell of the published sweep beside ours: mean and deviation over splits, and a stated tolerance."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._protocol import Array, published
from benchmarks._record import RESULTS
from benchmarks.paper._methods import CONTENDERS, LAMS
from benchmarks.paper.reproduction._text import TITLES, markdown
from benchmarks.paper.sweep import read

Row = dict[str, str]

EPOCHS = "200"
# Nothing is published for the attribute that the text names.
FILES = {name: "communities" if name == "crime-householdsize" else name for name in TITLES if name != "crime"}
METHODS = [name for name in CONTENDERS if name != "Unfair"]
# Rows and columns are the published ones here; those of ACS and MEPS differ.
ALIKE = ("adult", "compas", "crime-householdsize")
# A mean may differ from the published one by twice the published deviation over splits, or by this.
LEAST_ACCURACY, LEAST_MSE, LEAST_GDP = 0.005, 0.02, 0.01  # the second as a share of the published value
ROUNDED = 0.00005  # four decimals are published
COLLAPSED = 0.1  # less than this share of what Unfair gains over a constant prediction is left


# ---- what was trained, and what was published ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Splits:
    """One method at one penalty weight or budget: its row of the sweep for each split."""

    strength: float  # the column of sweep.csv: lam or the budget, by form
    rows: dict[int, Row]

    def values(self, column: str, splits: Iterable[int] | None = None) -> Array:
        """Return a column over the splits."""
        chosen = sorted(self.rows) if splits is None else splits
        return np.array([float(self.rows[split][column]) for split in chosen])

    def mean(self, column: str, splits: Iterable[int] | None = None) -> float:
        """Return the mean of a column over the splits."""
        return float(self.values(column, splits).mean())

    def sd(self, column: str, splits: Iterable[int] | None = None) -> float:
        """Return the deviation of a column over the splits: that of a population, as published."""
        return float(self.values(column, splits).std())


@dataclass(frozen=True, eq=False)
class Sweep:
    """The rows of sweep.csv by dataset, method and form, each a list from the weakest strength on."""

    rows: Sequence[Row]

    @cached_property
    def cells(self) -> dict[tuple[str, str, str], list[Splits]]:
        """What there is; a method that was not trained yet is no key."""
        found: dict[tuple[str, str, str], dict[float, dict[int, Row]]] = {}
        for row in self.rows:
            if row["epochs"] == EPOCHS:
                key = (row["dataset"], row["method"], row["form"])
                strengths = found.setdefault(key, {})
                strengths.setdefault(float(row["strength"]), {})[int(row["split"])] = row
        return {
            key: [Splits(one, strengths[one]) for one in sorted(strengths, reverse=key[2] == "budget")]
            for key, strengths in found.items()
        }

    @cached_property
    def with_gaps(self) -> "Sweep":
        """The datasets and forms of which every row has the gap of the score."""
        lacking = {(row["dataset"], row["form"]) for row in self.rows if not row.get("gap")}
        return Sweep([row for row in self.rows if (row["dataset"], row["form"]) not in lacking])

    def of(self, dataset: str, method: str, form: str = "lam") -> list[Splits]:
        """Return the strengths of a method; none where it was not trained."""
        return self.cells.get((dataset, method, form), [])

    def unfair(self, dataset: str) -> Splits | None:
        """Return the unconstrained model."""
        return next(iter(self.of(dataset, "Unfair")), None)

    def at(self, dataset: str, method: str, strength: float, form: str = "lam") -> Splits | None:
        """Return one strength of a method."""
        return next((one for one in self.of(dataset, method, form) if one.strength == strength), None)

    def paired(self, dataset: str, form: str = "lam") -> list[int]:
        """Return the splits that Unfair and every method trained in this form have, so that means compare."""
        methods = [
            key[1] for key in self.cells if key[0] == dataset and key[2] == form and key[1] != "Unfair"
        ]
        every = [self.of(dataset, "Unfair"), *(self.of(dataset, method, form) for method in methods)]
        shared = [set(one.rows) for cells in every for one in cells]
        return sorted(set.intersection(*shared)) if every[0] and methods else []


def committed() -> Sweep:
    """Return the sweep of this repository."""
    path = RESULTS / "sweep.csv"
    return _kept(path, path.stat().st_mtime_ns if path.exists() else 0)


@cache
def _kept(path: Path, written: int) -> Sweep:  # noqa: ARG001  (read again where it was written again)
    return Sweep(read(path))


@dataclass(frozen=True)
class Theirs:
    """A published row: means and deviations over five splits, to four decimals."""

    lam: float
    perf: float
    perf_sd: float
    gdp: float
    gdp_sd: float
    mi: float


Published = dict[tuple[str, str], list[Theirs]]


def theirs(rows: Sequence[Row] | None = None, lams: Sequence[float] | None = LAMS) -> Published:
    """Return the published rows by our names of dataset and method, on these lambdas (None: all)."""
    names = {one.published: one.name for one in CONTENDERS.values() if one.published}
    places = {file: name for name, file in FILES.items()}
    found: Published = {}
    for row in published("results_by_lambda") if rows is None else rows:
        lam = float(row["lam"])
        if lam == 0 or lams is None or lam in lams:
            columns = ("perf_mean", "perf_std", "gdp_mean", "gdp_std", "mi_ksg")
            found.setdefault((places[row["dataset"]], names[row["method"]]), []).append(
                Theirs(lam, *(float(row[column]) for column in columns))
            )
    return found


# ---- one beside the other --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beside:
    """A measure of ours, split by split, beside its published mean."""

    values: tuple[float, ...]
    published: float
    published_sd: float
    least: float

    @property
    def mean(self) -> float:
        """Ours."""
        return statistics.fmean(self.values)

    @property
    def sd(self) -> float:
        """Ours, of a population, as published."""
        return statistics.pstdev(self.values)

    @property
    def difference(self) -> float:
        """Ours minus theirs."""
        return self.mean - self.published

    @property
    def in_sd(self) -> float | None:
        """The difference in published deviations; None where they are 0.0000."""
        return self.difference / self.published_sd if self.published_sd else None

    @property
    def tolerance(self) -> float:
        """Two published deviations, or the least that counts."""
        return max(2.0 * self.published_sd, self.least)

    @property
    def within(self) -> bool:
        """Whether the means differ by no more than the tolerance."""
        return self.holds(self.mean)

    def holds(self, mean: float) -> bool:
        """Return whether a mean differs from the published one by no more than the tolerance."""
        return abs(mean - self.published) <= self.tolerance


@dataclass(frozen=True)
class Compared:
    """A cell: dataset, method and lambda, with performance and GDP of the published reading."""

    dataset: str
    method: str
    lam: float
    perf: Beside
    gdp: Beside
    collapsed: int  # splits in which next to nothing of the performance is left

    @property
    def splits(self) -> int:
        """How many there are of ours."""
        return len(self.perf.values)

    @property
    def within(self) -> bool:
        """Whether both are."""
        return self.perf.within and self.gdp.within


def comparison(sweep: Sweep | None = None, known: Published | None = None) -> list[Compared]:
    """Return every published cell on the nine lambdas of which ours has a split."""
    sweep = committed() if sweep is None else sweep
    found = []
    for (dataset, method), rows in sorted((theirs() if known is None else known).items(), key=_order):
        for row in rows:
            ours = sweep.at(dataset, method, row.lam)
            if ours is not None:
                error = next(iter(ours.rows.values()))["perf_name"] == "mse"
                least = LEAST_MSE * row.perf if error else LEAST_ACCURACY
                perf = Beside(tuple(ours.values("perf")), row.perf, row.perf_sd, least)
                gdp = Beside(tuple(ours.values("gdp_grid")), row.gdp, row.gdp_sd, LEAST_GDP)
                lost = collapsed(ours, sweep.unfair(dataset))
                found.append(Compared(dataset, method, row.lam, perf, gdp, lost))
    return found


def _order(item: tuple[tuple[str, str], object]) -> tuple[int, int]:
    (dataset, method), _ = item
    return list(TITLES).index(dataset), list(CONTENDERS).index(method)


def collapsed(ours: Splits, unfair: Splits | None) -> int:
    """Return the number of splits whose performance is next to that of a constant prediction."""
    return int(np.sum(gain_left(ours, unfair) < COLLAPSED))


def gain_left(ours: Splits, unfair: Splits | None) -> Array:
    """Return, split by split, the share that is left of what Unfair gains over a constant prediction."""
    if unfair is None:
        return np.array([])
    shared = sorted(ours.rows.keys() & unfair.rows.keys())
    base, best = unfair.values("perf_base", shared), unfair.values("perf", shared)
    share: Array = (ours.values("perf", shared) - base) / (best - base)
    return share


def within_share(cells: Sequence[Compared] | None = None) -> dict[tuple[str, str], tuple[int, int]]:
    """Return cells within and cells by dataset and method; "alike": Adult, COMPAS and Crime together."""
    share: dict[tuple[str, str], tuple[int, int]] = {}
    for cell in comparison() if cells is None else cells:
        for place in (cell.dataset, *(("alike",) if cell.dataset in ALIKE else ())):
            inside, count = share.get((place, cell.method), (0, 0))
            share[place, cell.method] = (inside + cell.within, count + 1)
    return share


def from_unfair(cells: Sequence[Compared]) -> list[Compared]:
    """Return the cells with Unfair put where it was published, everything else as far from it as ours is.

    Of other rows, and other columns, an unconstrained model has another performance and another GDP. Ours are
    moved by the difference of the two performances and multiplied by the ratio of the two GDPs.
    """
    unfair = {cell.dataset: cell for cell in cells if cell.method == "Unfair"}
    moved = []
    for cell in cells:
        if cell.dataset in unfair:
            perf, gdp = unfair[cell.dataset].perf, unfair[cell.dataset].gdp
            perfs = tuple(value - perf.difference for value in cell.perf.values)
            gdps = tuple(value * gdp.published / gdp.mean for value in cell.gdp.values)
            beside = replace(cell.perf, values=perfs), replace(cell.gdp, values=gdps)
            moved.append(replace(cell, perf=beside[0], gdp=beside[1]))
    return moved


def outside(cells: Sequence[Compared] | None = None) -> list[Compared]:
    """Return the cells that are not within the tolerance."""
    return [cell for cell in (comparison() if cells is None else cells) if not cell.within]


def why(cell: Compared, cells: Sequence[Compared]) -> str:
    """Return what our numbers say about a cell outside, "unexplained" where they say nothing.

    Tried in this order: some of our splits collapse and others do not, so that a mean of five has no meaning;
    on rows that are not theirs, the cell is as far from Unfair as the published one; trained again with other
    seeds the cell is within (of those that were); the published mean lies within two of our own deviations,
    which are the larger; the published point lies between ours at the next smaller and the next greater
    lambda, where the front is steep.
    """
    missed = [one for one in (cell.perf, cell.gdp) if not one.within]
    if 0 < cell.collapsed < cell.splits:
        return f"{cell.collapsed} of our {cell.splits} splits collapse, the others do not"
    if cell.dataset not in ALIKE:
        if cell.method == "Unfair":
            return "other rows"
        key = (cell.dataset, cell.method, cell.lam)
        if any(one.within for one in from_unfair(cells) if (one.dataset, one.method, one.lam) == key):
            return "other rows; within, seen from Unfair"
    seeds = with_other_seeds(cell)
    if any(seeds):
        return f"within with {sum(seeds)} of {len(seeds)} other seeds"
    if all(abs(one.difference) <= 2.0 * one.sd for one in missed):
        return "within two of our own deviations"
    row = sorted(
        (one for one in cells if (one.dataset, one.method) == (cell.dataset, cell.method)),
        key=lambda one: one.lam,
    )
    place = row.index(cell)
    near = row[max(0, place - 1) : place + 2]

    def spanned(measure: str) -> bool:
        means = [getattr(one, measure).mean for one in near]
        return min(means) <= getattr(cell, measure).published <= max(means)

    if all(spanned(name) for name in ("perf", "gdp") if not getattr(cell, name).within):
        return "between ours at the neighbouring lambdas"
    return "unexplained"


def with_other_seeds(cell: Compared) -> list[bool]:
    """Return for each other seed of weights and batches whether the cell is within; none if not trained."""
    within = [[one.holds(mean) for mean in means] for one, means in other_seeds(cell)]
    return [all(pair) for pair in zip(*within, strict=True)]


def other_seeds(cell: Compared) -> list[tuple[Beside, list[float]]]:
    """Return performance and GDP of a cell, with their means for each other seed; none if not trained."""
    means = {
        row["measure"]: row["means"]
        for row in _seeds()
        if (row["dataset"], row["method"], row["lam"]) == (cell.dataset, cell.method, cell.lam)
    }
    return [(cell.perf, means.get("perf", [])), (cell.gdp, means.get("gdp_grid", []))]


def within_by_seed(method: str, cells: Sequence[Compared] | None = None) -> list[tuple[int, int]]:
    """Return cells within and cells of Adult, COMPAS and Crime: ours, each other seed, the mean of them all.

    None where a cell was not trained with other seeds.
    """
    known = comparison() if cells is None else cells
    known = [cell for cell in known if cell.method == method and cell.dataset in ALIKE]
    seeds = min((len(means) for cell in known for _, means in other_seeds(cell)), default=0)
    if not seeds:
        return []
    found = []
    for cell in known:
        perfs, gdps = ([one.mean, *means[:seeds]] for one, means in other_seeds(cell))
        pairs = [*zip(perfs, gdps, strict=True), (statistics.fmean(perfs), statistics.fmean(gdps))]
        found.append([cell.perf.holds(perf) and cell.gdp.holds(gdp) for perf, gdp in pairs])
    return [(sum(one), len(known)) for one in zip(*found, strict=True)]


def _seeds() -> list[dict[str, Any]]:
    """Return what cells are with other seeds; none where they were not trained."""
    path = RESULTS / "seeds.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())["summary"] if path.exists() else []
    return found


def rounding_table() -> str:
    """Return FREM on COMPAS by the published formula in three arithmetics, beside published and ours."""
    rows = []
    for row in json.loads((RESULTS / "rounding.json").read_text())["summary"]:
        line = [f"{row['lam']:g}", row["precision"]]
        line += [f"{row[name]:.3f} ± {row[f'{name}_sd']:.3f}" for name in ("accuracy", "gdp")]
        ours = committed().at("compas", "FREM-exact", row["lam"])
        for name, column in (("accuracy", "perf"), ("gdp", "gdp_grid")):
            line.append(f"{row[f'{name}_published']:.3f}")
            line.append("–" if ours is None else f"{ours.mean(column):.3f}")
        rows.append(line)
    header = [
        "lambda",
        "precision",
        "accuracy",
        "GDP",
        "published accuracy",
        "FREM-exact",
        "published GDP",
        "FREM-exact",
    ]
    return markdown(header, rows, left=(1,))


def seeds_table() -> str:
    """Return cells outside with other seeds of weights and batches: a mean of five splits for each seed."""
    rows = []
    for cell in outside():
        for name, (one, means) in zip(("performance", "GDP"), other_seeds(cell), strict=True):
            if means:
                inside = sum(one.holds(mean) for mean in (one.mean, *means))
                line = [TITLES[cell.dataset], cell.method, f"{cell.lam:g}", name]
                line += [f"{one.published:.3f} ± {one.tolerance:.3f}", f"{one.mean:.3f}"]
                line += [", ".join(f"{mean:.3f}" for mean in means), f"{inside} of {1 + len(means)}"]
                rows.append(line)
    header = [
        "dataset",
        "method",
        "lambda",
        "measure",
        "published ± tolerance",
        "ours",
        "other seeds",
        "within",
    ]
    return markdown(header, rows, left=(0, 1, 3, 6))


def rounding(cells: Sequence[Compared] | None = None) -> dict[str, float]:
    """Return the error of four decimals in performance as a share of the tolerance, at most, by dataset."""
    found: dict[str, float] = {}
    for cell in comparison() if cells is None else cells:
        found[cell.dataset] = max(found.get(cell.dataset, 0.0), ROUNDED / cell.perf.tolerance)
    return found


# ---- tables ----------------------------------------------------------------------------------------------


def mean_sd(mean: float, sd: float, *, error: bool) -> str:
    """Return mean and deviation as the paper writes them: an error times 100."""
    if error:
        return f"{100 * mean:.2f} ± {100 * sd:.2f}"
    return f"{mean:.3f} ± {sd:.3f}"


def is_error(dataset: str) -> bool:
    """Return whether the performance is a mean squared error."""
    return dataset.startswith("crime")


def _distance(one: Beside) -> str:
    return "–" if one.in_sd is None else f"{one.in_sd:+.1f}"


def _share(pair: tuple[int, int] | None) -> str:
    return "–" if pair is None else f"{pair[0]}/{pair[1]}"


def within(sweep: Sweep | None = None, known: Published | None = None) -> str:
    """Return the table of cells within the tolerance, by method and dataset."""
    every = comparison(sweep, known)
    share, moved = within_share(every), within_share(from_unfair(every))
    rows = []
    for method in CONTENDERS:
        if any(key[1] == method for key in share):
            row = [method]
            for place in FILES:
                row.append(_share(share.get((place, method))))
                if place not in ALIKE:
                    row.append(_share(moved.get((place, method))))
            inside, count = share.get(("alike", method), (0, 0))
            rows.append([*row, f"{inside}/{count}, {100 * inside / count:.0f} %" if count else "–"])
    header = ["method"]
    for place in FILES:
        header += [TITLES[place]] if place in ALIKE else [TITLES[place], "from Unfair"]
    table = markdown([*header, "Adult, COMPAS, Crime"], rows)
    return (
        f"{table}\nA cell is one lambda of one method. It is within the tolerance if its mean performance "
        f"and its mean GDP both lie within max(2 published deviations, {LEAST_ACCURACY:g} accuracy or "
        f"{100 * LEAST_MSE:g} % of the published MSE, {LEAST_GDP:g} GDP) of the published means.\n\n"
        "Our rows and columns of ACS and MEPS are not those of the paper, so Unfair is another model there. "
        "*From Unfair*: our number, moved by the difference of the two Unfair in performance and multiplied "
        "by their ratio in GDP.\n"
    )


def cells(dataset: str, sweep: Sweep | None = None, known: Published | None = None) -> str:
    """Return the long table of a dataset: every method and lambda beside the published row."""
    error = is_error(dataset)
    every = comparison(sweep, known)
    rows = []
    for cell in every:
        if cell.dataset != dataset:
            continue
        row = [cell.method, f"{cell.lam:g}", str(cell.splits)]
        for one, of_error in ((cell.perf, error), (cell.gdp, False)):
            row += [_four(one.published, one.published_sd, of_error), _four(one.mean, one.sd, of_error)]
            row.append(_distance(one))
        rows.append([*row, "within" if cell.within else f"**outside**: {why(cell, every)}"])
    name = "MSE x 100" if error else "accuracy"
    header = ["method", "lambda", "splits", f"{name}, published", "ours", "sd apart"]
    return markdown([*header, "GDP, published", "ours", "sd apart", ""], rows, left=(0, 9))


def _four(mean: float, sd: float, error: bool) -> str:
    return f"{100 * mean:.2f} ± {100 * sd:.2f}" if error else f"{mean:.4f} ± {sd:.4f}"


def outside_table(sweep: Sweep | None = None, known: Published | None = None) -> str:
    """Return the table of the cells outside the tolerance, split by split, with what explains them.

    Where our rows are theirs; the others are counted by what explains them.
    """
    every = comparison(sweep, known)
    rows = []
    for cell in (one for one in outside(every) if one.dataset in ALIKE):
        for name, one in (("performance", cell.perf), ("GDP", cell.gdp)):
            if not one.within:
                error = is_error(cell.dataset) and name == "performance"
                scale, digits = (100, 2) if error else (1, 3)
                values = ", ".join(f"{scale * value:.{digits}f}" for value in one.values)
                means = (mean_sd(*pair, error=error) for pair in ((one.published, one.published_sd),))
                ours = mean_sd(one.mean, one.sd, error=error)
                row = [TITLES[cell.dataset], cell.method, f"{cell.lam:g}", name, *means, ours, _distance(one)]
                rows.append([*row, values, why(cell, every)])
    header = ["dataset", "method", "lambda", "measure", "published", "ours", "sd apart", "our splits", "why"]
    table = markdown(header, rows, left=(0, 1, 3, 7, 8)) if rows else "No cell lies outside.\n"
    for dataset in (name for name in FILES if name not in ALIKE):
        reasons = Counter(why(cell, every) for cell in outside(every) if cell.dataset == dataset)
        if reasons:
            told = "\n".join(f"- {reason}: {count}" for reason, count in reasons.most_common())
            table += (
                f"\n{TITLES[dataset]}, cells outside ({reasons.total()}), by what explains them:\n\n{told}\n"
            )
    return table
