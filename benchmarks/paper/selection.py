"""Adult, Crime and COMPAS: the lambda that tests and tolerances choose, and the published choices (1 hour).

The published rule takes the first lambda at which a test of independence does not reject. Its threshold is
not that of a test of its level (the moments are not those of the null), and a test that does not reject is no
evidence of independence. Beside it: the same rule with tests that hold their level, and the last lambda that
is *shown* to lie below a tolerance. Models are trained once and kept; judging them takes minutes.
"""

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._figures import house_style
from benchmarks._protocol import (
    SEEDS,
    Array,
    Data,
    Seen,
    dataset,
    published,
    published_gdp,
    published_law,
    score_of,
    see,
    three_parts,
)
from benchmarks._record import DOCS, Runs
from frhsic import GDP, HSIC
from frhsic.dependence import Dependence
from frhsic.inference import EquivalenceResult, TestResult, equivalence_test, independence_test
from frhsic.kernels import Gaussian
from frhsic.selection import Point, first_not_rejected, last_equivalent

LAMS = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0)
ALPHA = 0.05
NEGLIGIBLE = 1e-3  # the paper's epsilon on HSIC_b
# What is to be shown below what: debiased normalised HSIC of Z as it is and whitened, GDP of the prediction.
WHITENED = HSIC(Gaussian("median", whiten=True), estimator="unbiased", normalized=True)
LIMITS: dict[str, tuple[str, Dependence | None, float]] = {
    "HSIC < 0.01": ("z", None, 0.01),
    "HSIC < 0.05": ("z", None, 0.05),
    "HSIC of whitened Z < 0.05": ("z", WHITENED, 0.05),
    "GDP < 0.05": ("prediction", GDP(0.1), 0.05),
}
FEW = 1_000  # rows the published script tests on
PUBLISHED_NAMES = {"adult": "adult", "crime": "communities", "compas": "compas"}
TITLES = {"adult": "Adult, S = age", "crime": "Crime, S = racepctblack", "compas": "COMPAS, S = age"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--permutations", type=int, default=199)
    parser.add_argument(
        "--crime-column", default="racepctblack", help="S of Crime; the published script takes householdsize"
    )
    parser.add_argument("--datasets", nargs="+", choices=tuple(TITLES), default=tuple(TITLES))
    parser.add_argument("--fresh", action="store_true", help="forget the results, not the trained models")
    parser.add_argument("--retrain", action="store_true", help="train again even where the cache has a model")
    parser.add_argument("--draw", action="store_true", help="only draw the figure from the results")


def published_test(z: Array, s: Array) -> dict[str, float]:
    """Return the published test: n HSIC_b against a gamma law whose moments are not those of the null.

    Bandwidths are medians of the first 500 rows plus 1e-5.
    """
    n = len(s)
    gram = {}
    for name, x in (("z", torch.from_numpy(z)), ("s", torch.from_numpy(s)[:, None])):
        some = x[:500]
        apart = torch.cdist(some, some)[~torch.eye(len(some), dtype=torch.bool)]
        gram[name] = Gaussian(apart.median().item() + 1e-5).gram(x, x)
    K, L = gram["z"], gram["s"]
    hsic = (K * L).mean() - 2.0 * (K.mean(dim=0) * L.mean(dim=0)).mean() + K.mean() * L.mean()
    K, L = K.fill_diagonal_(0.0), L.fill_diagonal_(0.0)
    of_z, of_s = ((M.sum().item(), M.square().sum().item()) for M in (K, L))
    law = published_law(n, of_z, of_s)
    return {
        "hsic": hsic.item(),
        "threshold": float(law.ppf(1.0 - ALPHA)),
        "pvalue": float(law.sf(n * hsic.item())),
    }


def judge(data: Data, seen: Seen, seed: int, n_permutations: int) -> dict[str, Any]:
    """Return tests and limits on the validation rows, performance and GDP on the test rows."""
    z, s = seen.parts["validation"].z, seen.s_unit("validation")
    views = {"z": z, "prediction": score_of(seen.parts["validation"].output, regression=data.regression)}
    found: dict[str, Any] = {}
    # The rows are in random order already: the first are a random sample.
    for title, rows in (("few", slice(FEW)), ("all", slice(None))):
        here_z, here_s = z[rows], s[rows]
        if title == "all" and len(s) <= FEW:
            found["all"] = found["few"]
            continue
        start = time.perf_counter()
        gamma = independence_test(here_z, here_s, dependence=HSIC(), method="gamma")
        permutation = independence_test(here_z, here_s, n_permutations=n_permutations, random_state=seed)
        limits = {}
        for name, (view, measure, tolerance) in LIMITS.items():
            limit = equivalence_test(
                views[view][rows], here_s, tolerance=tolerance, dependence=measure, random_state=seed
            )
            limits[name] = {"estimate": limit.estimate, "upper": limit.upper, "pvalue": limit.pvalue}
        found[title] = {
            "n": len(here_s),
            "published": published_test(here_z, here_s),
            "gamma": gamma.pvalue,
            "permutation": permutation.pvalue,
            "limits": limits,
            "seconds": round(time.perf_counter() - start, 1),
        }
    test, s_test = seen.parts["test"], seen.s_unit("test")
    own = torch.from_numpy(score_of(test.output, regression=data.regression))
    found["gdp"] = GDP(0.1)(own, torch.from_numpy(s_test)).item()
    found["gdp_published"] = published_gdp(test.output, s_test)
    if data.regression:
        found["mse"] = float(((test.output - test.y) ** 2).mean())
    else:
        found["accuracy"] = float(((test.output > 0) == (test.y > 0.5)).mean())
    found["r2"] = recovered(z, s, test.z, s_test)
    found["spread_of_z"] = float(np.sqrt(z.var(axis=0).sum()))
    return found


def recovered(z: Array, s: Array, z_test: Array, s_test: Array) -> float:
    """Return R^2 on the test rows of a ridge regression of S on the columns of Z at unit variance.

    It is made on the validation rows, and sees what is left in Z however small Z has become.
    """
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))
    return float(model.fit(z, s).score(z_test, s_test))


# A rule takes the runs of one repeat in order of lambda and returns the place of its choice, or None.
Rule = Callable[[list[dict[str, Any]]], int | None]


def pvalue(judged: dict[str, Any], test: str) -> float:
    """Return the p-value of one of the three tests."""
    return float(judged["published"]["pvalue"] if test == "published" else judged[test])


def not_rejected(test: str, rows: str, *, negligible: float | None = None) -> Rule:
    """Return the paper's rule with one of the tests; None where all reject, as in the published script."""

    def rule(runs: list[dict[str, Any]]) -> int | None:
        points = [point(run, rows, test=test) for run in runs]
        place = first_not_rejected(points, alpha=ALPHA, negligible=negligible)
        small = negligible is not None and points[place].dependence < negligible
        return place if small or pvalue(runs[place][rows], test) > ALPHA else None

    return rule


def shown_below(limit: str) -> Rule:
    """Return the rule with a guarantee: from the strongest penalty on, the last shown below a tolerance."""

    def rule(runs: list[dict[str, Any]]) -> int | None:
        return last_equivalent([point(run, "all", limit=limit) for run in runs], alpha=ALPHA)

    return rule


def point(run: dict[str, Any], rows: str, *, test: str | None = None, limit: str | None = None) -> Point:
    """Return a kept run as the rules want it; ``dependence`` is HSIC_b, as in the paper's epsilon."""
    kept, who = run[rows], (run["dataset"],)
    hsic, n = kept["published"]["hsic"], kept["n"]
    tested = shown = None
    if test is not None:
        tested = TestResult(hsic, pvalue(kept, test), test, "HSIC", who, n, test == "permutation")
    if limit is not None:
        found = kept["limits"][limit]
        shown = EquivalenceResult(
            found["estimate"], LIMITS[limit][2], found["pvalue"], found["upper"], ALPHA, limit, "", "",
            who, n,
        )  # fmt: skip
    performance = -run["mse"] if "mse" in run else run["accuracy"]
    return Point(run["lam"], performance, hsic, test=tested, equivalence=shown)


RULES: dict[str, Rule] = {
    "published threshold": not_rejected("published", "few"),
    "gamma, true moments": not_rejected("gamma", "few"),
    "permutation": not_rejected("permutation", "few"),
    "permutation, all rows": not_rejected("permutation", "all"),
    "permutation, or HSIC < 0.001": not_rejected("permutation", "few", negligible=NEGLIGIBLE),
    **{f"shown: {limit}": shown_below(limit) for limit in LIMITS},
}


def chosen_runs(runs: Runs, name: str, epochs: int) -> dict[int, list[dict[str, Any]]]:
    """Return the runs of a dataset by repeat, each in order of lambda; repeats without all are left out."""
    by_repeat: dict[int, list[dict[str, Any]]] = {}
    for run in sorted(runs.runs, key=lambda run: run["lam"]):
        if run["dataset"] == name and run["epochs"] == epochs:
            by_repeat.setdefault(run["repeat"], []).append(run)
    return {repeat: found for repeat, found in sorted(by_repeat.items()) if len(found) == len(LAMS)}


def tables(runs: Runs, names: list[str], epochs: int) -> dict[str, Any]:
    """Print the choices beside the published ones and return them."""
    theirs: dict[tuple[str, int], float | None] = {}
    for row in published("lambda_selection"):
        choice = row["selected_lambda"]
        theirs[row["dataset"], int(row["repeat"])] = float(choice) if choice else None
    summary: dict[str, Any] = {}
    for name in names:
        by_repeat = chosen_runs(runs, name, epochs)
        old = PUBLISHED_NAMES[name.partition("-")[0]]
        table: dict[str, Any] = {
            "published choice": {repeat: {"lam": theirs.get((old, repeat))} for repeat in by_repeat}
        }
        for title, rule in RULES.items():
            table[title] = {}
            for repeat, found in by_repeat.items():
                place = rule(found)
                run = None if place is None else found[place]
                table[title][repeat] = {"lam": None} if run is None else _outcome(run)
        table["none (lambda = 0.01)"] = {repeat: _outcome(found[0]) for repeat, found in by_repeat.items()}
        summary[name] = table
        print(f"\n{name}: lambda (GDP, performance, R^2 of S from Z; on test rows) of each repeat")
        for title, row in table.items():
            print(f"  {title:30s}", "  ".join(f"{_told(cell):>26s}" for cell in row.values()))
    return summary


def _outcome(run: dict[str, Any]) -> dict[str, Any]:
    performance = "mse" if "mse" in run else "accuracy"
    return {
        "lam": run["lam"], "gdp": run["gdp"], "gdp_published": run["gdp_published"], "r2": run["r2"],
        performance: run[performance],
        "upper": {name: limit["upper"] for name, limit in run["all"]["limits"].items()},
    }  # fmt: skip


def _told(cell: dict[str, Any]) -> str:
    if cell["lam"] is None:
        return "none"
    if "gdp" not in cell:
        return f"{cell['lam']:g}"
    performance = f"MSE {cell['mse']:.4f}" if "mse" in cell else f"{cell['accuracy']:.3f}"
    return f"{cell['lam']:g} ({cell['gdp']:.3f}, {performance}, {cell['r2']:.2f})"


@house_style(11.0)
def draw(runs: Runs, names: list[str], epochs: int) -> None:
    """Draw p-values, dependence with its upper limit, and what each rule chooses, against lambda."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(13.0, 10.0))
    axes = figure.subplots(
        3, len(names), sharey="row", sharex=True, height_ratios=(1.0, 1.0, 0.8), squeeze=False
    )
    theirs = published("lambda_selection")
    for column, name in enumerate(names):
        by_repeat = chosen_runs(runs, name, epochs)
        _draw_pvalues(axes[0, column], by_repeat)
        _draw_limits(axes[1, column], by_repeat)
        old = PUBLISHED_NAMES[name.partition("-")[0]]
        choices = {
            int(row["repeat"]): float(row["selected_lambda"] or math.nan)
            for row in theirs
            if row["dataset"] == old
        }
        _draw_choices(axes[2, column], by_repeat, choices)
        axes[0, column].set_title(TITLES.get(name, f"Crime, S = {name.partition('-')[2]}"))
    axes[0, 0].set_ylabel("p-value, at most 1,000\nvalidation rows")
    axes[1, 0].set_ylabel("dependence, all validation rows")
    axes[0, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes[1, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes[2, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    path = DOCS / "figures"
    path.mkdir(exist_ok=True)
    figure.savefig(path / "selection.png", dpi=130)
    plt.close(figure)


def _draw_pvalues(axis: Any, by_repeat: dict[int, list[dict[str, Any]]]) -> None:
    styles = {
        "published": ("published threshold (not a p-value of its level)", "#D55E00", "s"),
        "gamma": ("gamma, true moments", "#0072B2", "o"),
        "permutation": ("permutation, aggregated", "#009E73", "^"),
    }
    for test, (label, colour, marker) in styles.items():
        for repeat, found in by_repeat.items():
            values = [max(pvalue(run["few"], test), 1e-4) for run in found]
            axis.loglog(
                LAMS, values, color=colour, marker=marker, ms=4, lw=1.0, alpha=0.85,
                label=label if repeat == 0 else None,
            )  # fmt: skip
    axis.axhline(ALPHA, color="#000000", lw=0.8, ls="--", label="0.05")
    axis.set_ylim(0.7e-4, 1.5)
    axis.grid(True)


def _draw_limits(axis: Any, by_repeat: dict[int, list[dict[str, Any]]]) -> None:
    styles = {
        "HSIC < 0.05": ("normalised HSIC of Z", "#0072B2", "o", 0.88),
        "GDP < 0.05": ("GDP of the prediction", "#E69F00", "s", 1.14),
    }
    for limit, (label, colour, marker, shift) in styles.items():
        for repeat, found in by_repeat.items():
            # Side by side; an estimate without bias may be negative, and is drawn at zero.
            lams = np.array(LAMS) * shift * 1.09 ** (repeat - 1)
            estimates = np.array([max(run["all"]["limits"][limit]["estimate"], 0.0) for run in found])
            uppers = np.array([run["all"]["limits"][limit]["upper"] for run in found])
            axis.errorbar(
                lams, estimates, yerr=[np.zeros(len(found)), np.maximum(uppers - estimates, 0.0)], fmt=marker,
                ms=3, color=colour, lw=1.0, capsize=1.5,
                label=f"{label}, with 95 % upper limit" if repeat == 0 else None,
            )  # fmt: skip
    r2 = np.mean([[max(run["r2"], 0.0) for run in found] for found in by_repeat.values()], axis=0)
    axis.plot(LAMS, r2, color="#CC79A7", marker="v", ms=4, label="R^2 of S from Z (ridge), mean of repeats")
    axis.set_yscale("symlog", linthresh=1e-3, linscale=0.4)
    axis.set_ylim(-2e-4, 1.0)
    for tolerance, style in ((0.01, ":"), (0.05, "--")):
        axis.axhline(tolerance, color="#000000", lw=0.9, ls=style, label=f"tolerance {tolerance:g}")
    axis.grid(True)


def _draw_choices(
    axis: Any, by_repeat: dict[int, list[dict[str, Any]]], published_choices: dict[int, float]
) -> None:
    titles = ["as published", *RULES]
    nowhere = 2.2e3  # where "none" stands
    markers, colours = ("o", "s", "^"), ("#0072B2", "#E69F00", "#CC79A7")
    for repeat, found in by_repeat.items():
        lams = [published_choices.get(repeat, math.nan)]
        for rule in RULES.values():
            place = rule(found)
            lams.append(math.nan if place is None else LAMS[place])
        x = [nowhere if math.isnan(lam) else lam for lam in lams]
        y = np.arange(len(titles)) + 0.22 * (repeat - 1)
        axis.scatter(
            x, y, marker=markers[repeat % 3], s=28, color=colours[repeat % 3], label=f"repeat {repeat + 1}"
        )
    axis.set_yticks(range(len(titles)), titles)
    axis.set_ylim(len(titles) - 0.4, -0.6)
    axis.axvline(1e3, color="#999999", lw=0.8)
    axis.text(nowhere, -0.55, "none", ha="center", va="bottom")
    axis.set_xscale("log")
    axis.set_xlim(5e-3, 5e3)
    axis.set_xlabel("lambda chosen")
    axis.grid(True)


def run(arguments: argparse.Namespace) -> None:
    """Train and judge what is missing, print the tables and draw the figure."""
    runs = Runs(
        "selection.json", fresh=arguments.fresh and not arguments.draw, seeds=SEEDS[: arguments.repeats]
    )
    crime = {"racepctblack": "crime"}.get(arguments.crime_column, f"crime-{arguments.crime_column}")
    names = [crime if name == "crime" else name for name in arguments.datasets]
    for name in () if arguments.draw else names:
        data = dataset(name)
        for repeat in range(arguments.repeats):
            train, validation, test = three_parts(len(data.y), repeat)
            for lam in LAMS:
                key: dict[str, Any] = {
                    "dataset": name, "repeat": repeat, "lam": lam, "epochs": arguments.epochs
                }  # fmt: skip
                if not runs.missing(**key):
                    continue
                seen = see(
                    data, train, {"validation": validation, "test": test}, protocol="selection",
                    repeat=repeat, lam=lam, epochs=arguments.epochs, retrain=arguments.retrain,
                )  # fmt: skip
                found = judge(data, seen, SEEDS[repeat], arguments.permutations)
                runs.add(**key, **found, trained_by=seen.commit, training_seconds=round(seen.seconds, 1))
                few, limits = found["few"], found["all"]["limits"]
                print(
                    f"{name} repeat {repeat} lam {lam:g}: p published {few['published']['pvalue']:.3g}, "
                    f"gamma {few['gamma']:.3g}, permutation {few['permutation']:.3g}; normalised HSIC "
                    f"{limits['HSIC < 0.05']['estimate']:.3g} at most {limits['HSIC < 0.05']['upper']:.3g}, "
                    f"GDP at most {limits['GDP < 0.05']['upper']:.3g}, R^2 {found['r2']:.2f}",
                    flush=True,
                )
    names = [name for name in names if chosen_runs(runs, name, arguments.epochs)]
    summary = tables(runs, names, arguments.epochs)
    draw(runs, names, arguments.epochs)
    if not arguments.draw:
        print(runs.write(choices=summary))
