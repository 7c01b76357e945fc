"""Budgets beside a grid of lambdas on Adult, COMPAS and Crime; what is left of age in Z (2 hours)."""

import argparse
import statistics
import time
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks._figures import house_style
from benchmarks._protocol import SEEDS, Array, dataset
from benchmarks._record import DOCS, Runs
from frhsic import GDP, HSIC, FRHSICClassifier, FRHSICRegressor, Penalty, Training
from frhsic.datasets import make_preprocessor, paper_split
from frhsic.estimators import fit_path
from frhsic.kernels import Gaussian, Laplace, Linear
from frhsic.penalty import PenaltySum, budget_penalty, default_penalty

BUDGETS = (0.5, 0.2, 0.1, 0.05)
LAMS = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0)
DATASETS = ("crime", "compas", "adult")
# What a budget is about when nothing is chosen: the same measure for both forms, and for judging them.
SCORE: dict[bool, Penalty | PenaltySum] = {
    False: budget_penalty(classes=True),
    True: budget_penalty(classes=False),
}
# The second study: the mean of the score along S, and everything about Z that a whitened heavy-tailed kernel
# sees. Found on split 0, where kernels, factors and strengths were chosen; the other splits are the test.
WHITENED = Penalty(HSIC(Laplace("scale-free", whiten=True), estimator="unbiased", normalized=True))
MEAN = Penalty(HSIC(Linear(), estimator="unbiased", normalized=True), on="probability")
STUDIES: dict[str, tuple[tuple[int, ...], Penalty | PenaltySum, str, tuple[float, ...]]] = {
    "score and Z, width 8": ((50, 8), MEAN + WHITENED, "lams", (0.7, 1.0, 1.3, 2.0)),
    "score and Z, width 50": ((50, 50), MEAN + WHITENED, "lams", (0.0, 0.7, 1.0, 1.3, 2.0)),
    "score and Z, width 8, budgets": ((50, 8), MEAN + WHITENED, "budgets", (0.3, 0.2, 0.1)),
    "score, width 50, budgets": ((50, 50), SCORE[False], "budgets", (0.5, 0.3, 0.2)),
    "default penalty, width 8": ((50, 8), default_penalty(), "lams", (1.0, 3.0, 5.0)),
    "default penalty and 0.2 Z, width 8": (
        (50, 8),
        default_penalty() + 0.2 * WHITENED,
        "lams",
        (3.0, 4.0, 5.0),
    ),
}
UNFAIR = "score and Z, width 50"  # whose first model has no penalty


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--datasets", nargs="*", default=DATASETS, choices=DATASETS, metavar="DATASET")
    parser.add_argument("--studies", nargs="*", default=list(STUDIES), metavar="STUDY")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--study-epochs", type=int, default=30)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


class Task:
    """One split of a dataset, and what its models are judged by."""

    def __init__(self, name: str, repeat: int) -> None:
        data = dataset(name)
        train, test = paper_split(len(data.y), repeat=repeat)
        preprocessor = make_preprocessor(data.bunch)
        self.regression, self.seed = data.regression, SEEDS[repeat]
        self.x = preprocessor.fit_transform(data.bunch.data.iloc[train])
        self.x_test = preprocessor.transform(data.bunch.data.iloc[test])
        y: NDArray[Any] = data.y if data.regression else data.y.astype(np.int64)
        self.y, self.y_test, self.s, self.s_test = y[train], y[test], data.s[train], data.s[test]

    def models(
        self,
        penalty: Penalty | PenaltySum,
        encoder: tuple[int, ...],
        epochs: int,
        schedule: Literal["auto", "cosine"],
        form: str,
        strengths: tuple[float, ...],
    ) -> list[Any]:
        """Return the models of a path."""
        kind = FRHSICRegressor if self.regression else FRHSICClassifier
        model = kind(
            penalty=penalty,
            encoder=encoder,
            epochs=epochs,
            random_state=self.seed,
            training=Training(schedule=schedule),
        )
        lams, budgets = (strengths, None) if form == "lams" else (None, strengths)
        return fit_path(model, self.x, self.y, sensitive_features=self.s, lams=lams, budgets=budgets)

    def judged(self, model: Any) -> dict[str, float]:
        """Return performance and dependence, held in and held out."""
        found: dict[str, float] = {}
        for where, x, y, s in (
            ("in", self.x, self.y, self.s),
            ("out", self.x_test, self.y_test, self.s_test),
        ):
            if self.regression:
                score = model.predict(x)
                found[f"performance_{where}"] = 1.0 - float(np.mean((score - y) ** 2) / np.var(y))
            else:
                score = model.predict_proba(x)[:, 1]
                found[f"performance_{where}"] = float(np.mean((score > 0.5) == y))
            # All rows at once, by the measure itself and not by the training loop.
            found[f"dependence_{where}"] = normalized_hsic(score, s)
            found[f"gdp_{where}"] = GDP(0.1)(torch.from_numpy(score), torch.from_numpy(s)).item()
        return found

    def boosted(self, model: Any) -> float:
        """Return R^2 of S from Z by boosted trees, learned on 10,000 training rows, on the test rows."""
        trees = HistGradientBoostingRegressor(random_state=0)
        trees.fit(model.transform(self.x[:10_000]), self.s[:10_000])
        return float(trees.score(model.transform(self.x_test), self.s_test))


def normalized_hsic(score: Array, s: Array) -> float:
    """Return the debiased normalised HSIC of a score, bandwidths as in training."""
    measure = HSIC(Gaussian("scale-free"), estimator="unbiased", normalized=True)
    return measure(torch.from_numpy(score), torch.from_numpy(s)).item()


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, compare, draw and write."""
    runs = Runs("budgets.json", fresh=arguments.fresh, seeds=SEEDS)
    # The lambdas twice, with the constant rate that is their default and with the falling one of budgets.
    forms: list[tuple[str, Literal["auto", "cosine"], tuple[float, ...]]] = [
        ("budgets", "auto", BUDGETS),
        ("lams", "auto", (0.0, *LAMS)),
        ("lams", "cosine", (0.0, *LAMS)),
    ]
    for repeat in range(arguments.splits):
        for name in arguments.datasets:
            task = None
            for form, schedule, strengths in forms:
                key = {"part": "grid", "dataset": name, "repeat": repeat, "form": form, "schedule": schedule}
                if runs.missing(**key, epochs=arguments.epochs):
                    task = task or Task(name, repeat)
                    penalty = SCORE[task.regression]
                    _add(runs, key, task, penalty, (50, 50), arguments.epochs, strengths)
    for repeat in range(arguments.splits):
        task = None
        for title in arguments.studies:
            encoder, penalty, form, strengths = STUDIES[title]
            key = {"part": "study", "dataset": "adult", "repeat": repeat, "form": form, "study": title}
            if runs.missing(**key, epochs=arguments.study_epochs):
                task = task or Task("adult", repeat)
                _add(runs, key, task, penalty, encoder, arguments.study_epochs, strengths)
    tables = {"budgets": _budgets(runs.runs), "frontier of GDP and R^2": _frontier(runs.runs)}
    for title, rows in tables.items():
        print(title)
        for row in rows:
            print("  ", row)
    _draw(runs.runs)
    print(runs.write(**tables))


def _add(
    runs: Runs,
    key: dict[str, Any],
    task: Task,
    penalty: Penalty | PenaltySum,
    encoder: tuple[int, ...],
    epochs: int,
    strengths: tuple[float, ...],
) -> None:
    form = key["form"]
    start = time.perf_counter()
    models = task.models(penalty, encoder, epochs, key.get("schedule", "auto"), form, strengths)
    seconds = round(time.perf_counter() - start, 1)
    found = []
    for model, strength in zip(models, (0.0, *strengths) if form == "budgets" else strengths, strict=True):
        judged = task.judged(model)
        if key["part"] == "study":
            judged["r2_boosted"] = task.boosted(model)
        found.append(
            {
                **key,
                "epochs": epochs,
                "strength": strength,
                "relative": model.relative_dependence_,
                **{name: round(value, 6) for name, value in judged.items()},
                "seconds": seconds,
            }
        )
    for one in found:  # together: a killed run leaves a path whole or not at all
        runs.runs.append({**one, "commit": runs.header["commit"]})
    runs.write()
    print(key, seconds, "s")


def _of(runs: list[dict[str, Any]], **key: Any) -> list[dict[str, Any]]:
    return [one for one in runs if all(one.get(name) == value for name, value in key.items())]


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    return round(statistics.mean(one[name] for one in rows), 4)


def _budgets(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return asked and obtained, and the best lambda of no greater dependence, split by split, in means."""
    table = []
    for name in DATASETS:
        splits = sorted({one["repeat"] for one in _of(runs, part="grid", dataset=name, form="lams")})
        for budget in (0.0, *BUDGETS):
            rows = []
            for repeat in splits:
                key = {"part": "grid", "dataset": name, "repeat": repeat}
                (free,) = _of(runs, **key, form="budgets", strength=0.0)
                (one,) = _of(runs, **key, form="budgets", strength=budget)
                rivals = [
                    other
                    for other in _of(runs, **key, form="lams")
                    if other["dependence_in"] <= one["dependence_in"]
                ]
                best = max((other["performance_out"] for other in rivals), default=float("nan"))
                rows.append(
                    {
                        "held in": one["dependence_in"] / free["dependence_in"],
                        "held out": one["dependence_out"] / free["dependence_out"],
                        "performance": one["performance_out"],
                        "behind the best lambda": best - one["performance_out"],
                        "gdp": one["gdp_out"],
                    }
                )
            if not rows:
                continue
            worst = max(abs(row["held in"] / budget - 1.0) for row in rows) if budget else 0.0
            means = {key: _mean(rows, key) for key in rows[0]}
            table.append(
                {
                    "dataset": name,
                    "budget": budget,
                    "splits": len(rows),
                    **means,
                    "worst miss": round(worst, 3),
                }
            )
    return table


def _frontier(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return accuracy, GDP and R^2 relative to the unpenalised (50, 50) model of the same split."""
    table = []
    for title in STUDIES:
        for strength in sorted({one["strength"] for one in _of(runs, part="study", study=title)}):
            rows = []
            for one in _of(runs, part="study", study=title, strength=strength):
                key = {"part": "study", "study": UNFAIR, "strength": 0.0, "epochs": one["epochs"]}
                for free in _of(runs, **key, repeat=one["repeat"]):
                    ratios = {
                        name: one[of] / free[of]
                        for name, of in (
                            ("accuracy", "performance_out"),
                            ("gdp", "gdp_out"),
                            ("r2", "r2_boosted"),
                        )
                    }
                    rows.append({"repeat": one["repeat"], **ratios})
            means = {key: _mean(rows, key) for key in ("accuracy", "gdp", "r2")} if rows else {}
            others = [row for row in rows if row["repeat"] > 0]
            if others:
                means |= {f"{key}, splits from 1": _mean(others, key) for key in ("accuracy", "gdp", "r2")}
            table.append({"study": title, "strength": strength, "splits": len(rows), **means})
    return table


@house_style(9.0)
def _draw(runs: list[dict[str, Any]]) -> None:
    """Draw asked against obtained, and the frontier of both forms, for each dataset."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    names = [name for name in DATASETS if _of(runs, part="grid", dataset=name, form="lams")]
    figure, axes = plt.subplots(2, len(names), figsize=(3.2 * len(names), 5.6), squeeze=False)
    for column, name in enumerate(names):
        top, bottom = axes[:, column]
        forms = {form: _of(runs, part="grid", dataset=name, form=form) for form in ("budgets", "lams")}
        free = {one["repeat"]: one for one in forms["budgets"] if one["strength"] == 0.0}
        top.plot([0.04, 0.6], [0.04, 0.6], color="0.7", lw=1, zorder=0)
        top.fill_between([0.04, 0.6], [0.034, 0.51], [0.046, 0.69], color="0.92", zorder=0, lw=0)
        for where, marker, colour in (("in", "o", "C0"), ("out", "x", "C1")):
            points = [
                (one["strength"], one[f"dependence_{where}"] / free[one["repeat"]][f"dependence_{where}"])
                for one in forms["budgets"]
                if one["strength"] > 0
            ]
            top.scatter(*zip(*points, strict=True), marker=marker, color=colour, s=22, label=f"held {where}")
        top.set(xscale="log", yscale="log", title={"adult": "Adult", "compas": "COMPAS"}.get(name, "Crime"))
        ticks = [0.05, 0.1, 0.2, 0.5]
        top.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
        top.set_yticks(ticks, [f"{tick:.0%}" for tick in ticks])
        top.minorticks_off()
        top.set_xlabel("budget")
        for form, schedule, style, colour, label in (
            ("lams", "auto", "s--", "0.5", "nine lambdas"),
            ("lams", "cosine", "^:", "0.6", "nine lambdas, rate to zero"),
            ("budgets", "auto", "o-", "C0", "four budgets"),
        ):
            chosen = [one for one in forms[form] if one["schedule"] == schedule]
            curve = []
            for strength in sorted({one["strength"] for one in chosen}):
                rows = [one for one in chosen if one["strength"] == strength]
                share = [one["dependence_in"] / free[one["repeat"]]["dependence_in"] for one in rows]
                curve.append((statistics.mean(share), _mean(rows, "performance_out")))
            curve = sorted(pair for pair in curve if pair[0] > 0.02)
            bottom.plot(*zip(*curve, strict=True), style, color=colour, ms=4, lw=1, label=label)
        bottom.set_xscale("log")
        bottom.set_xticks([0.05, 0.1, 0.2, 0.5, 1.0], ["5%", "10%", "20%", "50%", "100%"])
        bottom.minorticks_off()
        bottom.set_xlabel("dependence left, held in")
    axes[0, 0].set_ylabel("dependence left")
    axes[1, 0].set_ylabel("$R^2$ (Crime) or accuracy, held out")
    axes[0, 0].legend(frameon=False)
    axes[1, 0].legend(frameon=False)
    path = DOCS / "figures" / "budgets.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(path)
