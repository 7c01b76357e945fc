"""Which method is best, by the published area under the front and by a sound one, with their uncertainty."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks._protocol import Array
from benchmarks.paper._methods import CONTENDERS, LAMS
from benchmarks.paper.reproduction._text import TITLES, markdown
from benchmarks.paper.reproduction.comparison import (
    METHODS,
    Published,
    Splits,
    Sweep,
    committed,
    is_error,
    theirs,
)
from frhsic.selection import Point, matched_point, naup

# Utility is scaled over the methods of the paper's table and Unfair: dCor and this package's own penalty do
# not move the others.
SCALED_BY = ("FRHSIC-published", "FREM", "Reg-GDP", "ADV", "MMD (binned)", "LAFTR (binned)")
# The five datasets as the text has them: Crime with the share of black inhabitants.
OF_TEXT = tuple(name for name in TITLES if name != "crime-householdsize")
READINGS = ("published", "sound")
GDPS = ("grid", "population")
GAP = "gap"  # in the place of a reading of GDP: whole distributions and not only means


def column_of(dependence: str) -> str:
    """Return the column of the sweep with a reading of GDP, or with the gap of the score."""
    return dependence if dependence == GAP else f"gdp_{dependence}"


# ---- points ----------------------------------------------------------------------------------------------


def point(penalty_weight: float, perf: float, gdp: float, *, error: bool) -> Point:
    """Return a model of which more performance is better, also where it is an error."""
    return Point(penalty_weight, -perf if error else perf, gdp)


def mean_points(sweep: Sweep, dataset: str, form: str = "lam", gdp: str = "grid") -> dict[str, list[Point]]:
    """Return the points of every method, Unfair among them, as means over the splits that all have."""
    error, splits = is_error(dataset), sweep.paired(dataset, form)
    return {
        method: [
            point(one.strength, one.mean("perf", splits), one.mean(column_of(gdp), splits), error=error)
            for one in sweep.of(dataset, method, "lam" if method == "Unfair" else form)
        ]
        for method in CONTENDERS
        if splits and sweep.of(dataset, method, "lam" if method == "Unfair" else form)
    }


def their_points(dataset: str, known: Published) -> dict[str, list[Point]]:
    """Return the published points of every method, Unfair among them."""
    error = is_error(dataset)
    return {
        method: [point(row.lam, row.perf, row.gdp, error=error) for row in rows]
        for (name, method), rows in known.items()
        if name == dataset
    }


def limits(of: dict[str, list[Point]]) -> tuple[float, float]:
    """Return the least and the greatest performance of the paper's methods and Unfair: utility 0 and 1."""
    chosen = [one.performance for method in ("Unfair", *SCALED_BY) for one in of.get(method, ())]
    return min(chosen), max(chosen)


def areas(of: dict[str, list[Point]]) -> dict[str, float]:
    """Return the published nAUP of every method from mean points; none where there is no Unfair."""
    if "Unfair" not in of or len(of) == 1:
        return {}
    (unfair,), scale = of["Unfair"], limits(of)
    return {method: naup(points, unfair, limits=scale) for method, points in of.items() if method != "Unfair"}


def their_areas(dataset: str, lams: Sequence[float] | None = None) -> dict[str, float]:
    """Return the nAUP of the published points on these lambdas; None: all, which are more for FRHSIC."""
    return areas(their_points(dataset, theirs(lams=lams)))


def matched(of: dict[str, list[Point]], method: str) -> Point | None:
    """Return the point of lowest GDP with a performance within 1 % of Unfair's."""
    if "Unfair" not in of or method not in of:
        return None
    chosen = matched_point(of[method], of["Unfair"][0])
    return None if chosen is None else of[method][chosen]


def ranked(values: dict[str, float]) -> dict[str, int]:
    """Return ranks, 1 for the greatest; equal values share the better rank."""
    return {name: 1 + sum(other > value for other in values.values()) for name, value in values.items()}


# ---- a value with its uncertainty ------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """A method on a dataset under one reading of the area."""

    method: str
    value: float
    error: float  # standard error; nan of one split
    rank: int
    ranks: tuple[int, int]  # lowest and highest that the splits leave open
    tied: bool  # the best, or not separated from it
    splits: int


def nadeau_bengio(values: Array, n_train: int, n_test: int) -> float:
    """Return the standard error of a mean over random splits whose training rows overlap.

    sqrt((1/J + n_test/n_train) var) with the variance of a sample (Nadeau and Bengio, 2003).
    """
    if len(values) < 2:
        return math.nan
    return math.sqrt((1.0 / len(values) + n_test / n_train) * float(np.var(values, ddof=1)))


def standings(
    dataset: str,
    form: str = "lam",
    reading: str = "sound",
    gdp: str = "population",
    sweep: Sweep | None = None,
) -> list[Standing]:
    """Return every method's area and rank, best first.

    "published": from the means over splits, uncertainty by the bootstrap over splits, of which every resample
    is taken with its probability; ranks are those of the middle 95 % of it, and a method is tied with the
    best if it is at least as good in 2.5 % of it.
    "sound": for each split from two halves of the held-out rows, picked on one and valued on the other, both
    ways; utility from the constant prediction to Unfair; ranks are those in single splits, and a method is
    tied with the best if their mean difference is within two standard errors of it.
    """
    sweep = committed() if sweep is None else sweep
    return _standings(dataset, form, reading, gdp, sweep.with_gaps if gdp == GAP else sweep)


@cache
def _standings(dataset: str, form: str, reading: str, gdp: str, sweep: Sweep) -> list[Standing]:
    unfair, splits = sweep.unfair(dataset), sweep.paired(dataset, form)
    if unfair is None or not splits:
        return []
    methods = {name: sweep.of(dataset, name, form) for name in METHODS if sweep.of(dataset, name, form)}
    row = next(iter(unfair.rows.values()))
    n_train, n_test = int(row["n_train"]), int(row["n_test"])
    if reading == "published":
        chance, drawn = _resampled(dataset, methods, unfair, splits, gdp)
        value = {name: float(values[0]) for name, values in drawn.items()}
    else:
        drawn = {name: _sound(dataset, cells, unfair, splits, gdp) for name, cells in methods.items()}
        value = {name: float(values.mean()) for name, values in drawn.items()}
        chance = np.full(len(splits), 1.0 / len(splits))
    best, places = max(value, key=lambda name: value[name]), ranked(value)
    table = np.array(list(drawn.values()))  # method by resample or split
    seen = 1 + (table[:, None] < table[None]).sum(axis=1)
    found = []
    for name, ranks in zip(drawn, seen, strict=True):
        if reading == "published":
            error = float(np.sqrt(chance @ (drawn[name] - chance @ drawn[name]) ** 2))
            error = error if len(splits) > 1 else math.nan
            tied = float(chance[drawn[name] >= drawn[best]].sum()) >= 0.025
            low, high = _middle(ranks, chance)
        else:
            error = nadeau_bengio(drawn[name], n_train, n_test)
            apart = nadeau_bengio(drawn[best] - drawn[name], n_train, n_test)
            tied = not value[best] - value[name] > 2.0 * apart
            low, high = int(ranks.min()), int(ranks.max())
        found.append(Standing(name, value[name], error, places[name], (low, high), tied, len(splits)))
    return sorted(found, key=lambda one: one.rank)


def _sound(dataset: str, cells: list[Splits], unfair: Splits, splits: list[int], gdp: str) -> Array:
    """Return the sound area of a method for each split."""
    error = is_error(dataset)

    def seen(one: Splits, split: int, half: str) -> Point:
        row = one.rows[split]
        return point(
            one.strength, float(row[f"perf_{half}"]), float(row[f"{column_of(gdp)}_{half}"]), error=error
        )

    areas = []
    for split in splits:
        both = []
        for picked, valued in ("ab", "ba"):
            top = seen(unfair, split, valued)
            base = float(unfair.rows[split][f"base_{valued}"])
            both.append(
                naup(
                    [seen(one, split, picked) for one in cells],
                    seen(unfair, split, picked),
                    limits=(-base if error else base, top.performance),
                    judged=([seen(one, split, valued) for one in cells], top),
                )
            )
        areas.append(sum(both) / 2.0)
    return np.array(areas)


def resamples(count: int) -> tuple[Array, Array]:
    """Return every bootstrap resample of so many splits: its probability, and its share of each split.

    The first is each split once: its mean is that of the sample.
    """
    shares, chances = [], []
    for drawn in itertools.combinations_with_replacement(range(count), count):
        times = [drawn.count(split) for split in range(count)]
        ways = math.factorial(count) // math.prod(math.factorial(one) for one in times)
        shares.append([one / count for one in times])
        chances.append(ways / count**count)
    order = sorted(range(len(shares)), key=lambda i: -chances[i])
    return np.array([chances[i] for i in order]), np.array([shares[i] for i in order])


def _resampled(
    dataset: str, methods: dict[str, list[Splits]], unfair: Splits, splits: list[int], gdp: str
) -> tuple[Array, dict[str, Array]]:
    """Return the probability of each resample and the published areas of the methods in it."""
    error = is_error(dataset)
    chance, shares = resamples(len(splits))
    means = {
        name: [
            (one.strength, shares @ one.values("perf", splits), shares @ one.values(column_of(gdp), splits))
            for one in cells
        ]
        for name, cells in {"Unfair": [unfair], **methods}.items()
    }
    drawn: dict[str, list[float]] = {name: [] for name in methods}
    for i in range(len(chance)):
        of = {
            name: [point(weight, perf[i], of_gdp[i], error=error) for weight, perf, of_gdp in cells]
            for name, cells in means.items()
        }
        for name, area in areas(of).items():
            drawn[name].append(area)
    return chance, {name: np.array(values) for name, values in drawn.items()}


def _middle(ranks: Array, chance: Array) -> tuple[int, int]:
    """Return the ranks between which 95 % of a law lie, 2.5 % on either side at most."""
    order = np.argsort(ranks, kind="stable")
    total = np.cumsum(chance[order])
    low, high = np.searchsorted(total, (0.025, 0.975 - 1e-12))
    return int(ranks[order][low]), int(ranks[order][min(high, len(order) - 1)])


def least_wilcoxon(pairs: int = 5) -> float:
    """Return the least two-sided p-value of Wilcoxon's signed-rank test: all differences of one sign."""
    return 2.0 / 2**pairs


# ---- tables ----------------------------------------------------------------------------------------------

_UNCERTAIN = {
    "published": "± is the bootstrap's standard error over the splits. It is too small, because it ignores "
    "that training rows overlap. In brackets: the rank, and the ranks in the middle 95 % of the bootstrap.",
    "sound": "± is Nadeau and Bengio's standard error. In brackets: the rank, and the ranks in single "
    "splits.",
}


def rankings(
    form: str = "lam", reading: str = "sound", gdp: str = "population", sweep: Sweep | None = None
) -> str:
    """Return the table of areas and ranks, methods by datasets."""
    found = {name: {one.method: one for one in standings(name, form, reading, gdp, sweep)} for name in TITLES}
    rows = [
        [method, *(_standing(column.get(method)) for column in found.values())]
        for method in METHODS
        if any(method in column for column in found.values())
    ]
    if not rows:
        return "Not trained yet."
    few = {
        TITLES[name]: next(iter(column.values())).splits if column else 0
        for name, column in found.items()
        if not column or next(iter(column.values())).splits < 5
    }
    note = f" Splits so far: {', '.join(f'{name} {count}' for name, count in few.items())}." if few else ""
    table = markdown(["method", *TITLES.values()], rows)
    return f"{table}\n{_UNCERTAIN[reading]} ≈: not separated from the best (bold).{note}\n"


def _standing(one: Standing | None) -> str:
    if one is None:
        return "–"
    value = f"**{one.value:.3f}**" if one.rank == 1 else f"{one.value:.3f}"
    error = "" if math.isnan(one.error) else f" ± {one.error:.3f}"
    low, high = one.ranks
    places = f"{one.rank}" if low == high == one.rank else f"{one.rank}; {low}-{high}"
    return f"{'≈ ' if one.tied and one.rank > 1 else ''}{value}{error} ({places})"


def mean_ranks(
    form: str, reading: str, gdp: str, sweep: Sweep | None = None, datasets: Sequence[str] = OF_TEXT
) -> dict[str, tuple[float, int, int]]:
    """Return by method the mean rank over datasets, how often it is tied with the best, and of how many."""
    found: dict[str, list[Standing]] = {}
    for dataset in datasets:
        for one in standings(dataset, form, reading, gdp, sweep):
            found.setdefault(one.method, []).append(one)
    return {
        method: (float(np.mean([one.rank for one in all_])), sum(one.tied for one in all_), len(all_))
        for method, all_ in found.items()
    }


def their_mean_ranks(lams: Sequence[float] | None = None) -> dict[str, float]:
    """Return the mean rank by method over the five published datasets."""
    known = theirs(lams=lams)
    places: dict[str, list[int]] = {}
    for dataset in sorted({key[0] for key in known}):
        for method, rank in ranked(areas(their_points(dataset, known))).items():
            places.setdefault(method, []).append(rank)
    return {method: float(np.mean(ranks)) for method, ranks in places.items()}


def summary(sweep: Sweep | None = None) -> str:
    """Return the table of mean ranks over the text's five datasets: two areas, two GDPs, two forms."""
    columns = [(form, *one) for form in ("lam", "budget") for one in itertools.product(READINGS, GDPS)]
    ranks = [mean_ranks(*column, sweep=sweep) for column in columns]
    before = [their_mean_ranks(), their_mean_ranks(LAMS)]
    rows = []
    for method in METHODS:
        cells = [f"{one[method]:.1f}" if method in one else "–" for one in before]
        cells += [
            f"{one[method][0]:.1f} ({one[method][1]}/{one[method][2]})" if method in one else "–"
            for one in ranks
        ]
        rows.append([method, *cells])
    names = {"lam": "lambda", "budget": "budget"}
    header = ["method", "as published", "published, nine lambdas"]
    header += [f"{names[form]}, {reading}, {gdp}" for form, reading, gdp in columns]
    return (
        f"{markdown(header, rows)}\nMean rank over Adult, ACS, MEPS, COMPAS and Crime (household size in the "
        "published columns, racial composition in ours). In brackets: on how many of the datasets the method "
        f"is best or not separated from the best. Ranks are among {len(before[0])} methods in the "
        f"published columns, {len(ranks[0])} by lambda and {len(ranks[-1])} by budget.\n"
    )
