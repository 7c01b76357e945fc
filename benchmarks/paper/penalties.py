"""Which penalty keeps a limit of the gap at the least cost: candidates on development data (resumable)."""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata

from benchmarks._pool import spread
from benchmarks._protocol import Array, score_of
from benchmarks._record import RESULTS, Runs, write_section
from benchmarks.paper.reproduction._text import markdown
from benchmarks.paper.sweep import gaps
from frhsic import HSIC, FRHSICClassifier, FRHSICRegressor, Training
from frhsic.datasets import fetch_acs_income, fetch_adult, fetch_meps, make_preprocessor, make_u_shaped
from frhsic.dependence import ScoreGap
from frhsic.estimators import fit_path
from frhsic.kernels import Energy, Gaussian, Kernel, Linear
from frhsic.penalty import Penalty, PenaltySum, budget_penalty, default_penalty

LIMITS = (0.05, 0.03, 0.02, 0.01)
SHOWN = (0.05, 0.03)
NAME = "penalties.json"
# None of these rows is in the five datasets that the limits are judged on.
DATASETS = ("adult.test", "acs_co", "acs_ne", "meps_2016", "u_shaped", "rates")
EPOCHS = 50


def ranks(s: Array) -> Array:
    """Return ranks in (0, 1); equal values share theirs."""
    return np.asarray((rankdata(s) - 0.5) / len(s))


def _hsic(kernel: Kernel, width: float | None, *, normalized: bool = False) -> HSIC:
    # S is scaled to variance one, in which ranks have a range of 12^(1/2).
    kernel_s = None if width is None else Gaussian(width * 12.0**0.5)
    estimator = "biased" if isinstance(kernel, Energy) else "unbiased"
    return HSIC(kernel, kernel_s, estimator=estimator, normalized=normalized)  # type: ignore[arg-type]


def _on_score(measure: Any, *, classes: bool) -> Penalty:
    return Penalty(measure, on="probability" if classes else "prediction")


def _sum(classes: bool) -> PenaltySum:
    free = _hsic(Gaussian("scale-free"), 0.1, normalized=True)
    return _on_score(free, classes=classes) + _on_score(_hsic(Energy(), 0.1), classes=classes)


def _unbiased(width: float, *, classes: bool) -> HSIC:
    # A prediction has no bound, and then the unbiased estimator has none with this kernel.
    estimator: Any = "unbiased" if classes else "biased"
    return HSIC(Energy(), Gaussian(width * 12.0**0.5), estimator=estimator)


def _with_means(classes: bool, factor: float = 1.0) -> PenaltySum:
    means = _on_score(HSIC(Linear(), Gaussian(0.1 * 12.0**0.5)), classes=classes)
    return factor * means + _on_score(_unbiased(0.1, classes=classes), classes=classes)


@dataclass(frozen=True)
class Candidate:
    """A penalty, and whether S is given as ranks."""

    make: Callable[..., Any]
    ranked: bool = True


CANDIDATES = {
    "normalised": Candidate(lambda classes: budget_penalty(classes=classes), ranked=False),
    "normalised, ranks": Candidate(lambda classes: budget_penalty(classes=classes)),
    "normalised, ranks .1": Candidate(
        lambda classes: _on_score(_hsic(Gaussian("scale-free"), 0.1, normalized=True), classes=classes)
    ),
    "scale-free, ranks .1": Candidate(
        lambda classes: _on_score(_hsic(Gaussian("scale-free"), 0.1), classes=classes)
    ),
    "Gaussian .2, ranks .1": Candidate(
        lambda classes: _on_score(_hsic(Gaussian(0.2 if classes else 0.8), 0.1), classes=classes)
    ),
    "energy, ranks .1": Candidate(lambda classes: _on_score(_hsic(Energy(), 0.1), classes=classes)),
    "energy, ranks .3": Candidate(lambda classes: _on_score(_hsic(Energy(), 0.3), classes=classes)),
    "energy unbiased, ranks .05": Candidate(
        lambda classes: _on_score(_unbiased(0.05, classes=classes), classes=classes)
    ),
    "energy unbiased, ranks .1": Candidate(
        lambda classes: _on_score(_unbiased(0.1, classes=classes), classes=classes)
    ),
    "energy unbiased, ranks .2": Candidate(
        lambda classes: _on_score(_unbiased(0.2, classes=classes), classes=classes)
    ),
    "linear and energy, ranks .1": Candidate(_with_means),
    "4 linear and energy, ranks .1": Candidate(partial(_with_means, factor=4.0)),
    "8 linear and energy, ranks .1": Candidate(partial(_with_means, factor=8.0)),
    "16 linear and energy, ranks .1": Candidate(partial(_with_means, factor=16.0)),
    "sum": Candidate(_sum),
    "default of lam": Candidate(lambda classes: default_penalty(), ranked=False),  # noqa: ARG005
    "gap itself": Candidate(lambda classes: _on_score(ScoreGap(), classes=classes)),
}


@dataclass(frozen=True)
class Cell:
    """One candidate on one split of a dataset."""

    dataset: str
    candidate: str
    split: int

    def __str__(self) -> str:
        return f"{self.dataset}, {self.candidate}, split {self.split}"


def load(name: str, split: int) -> tuple[Array, Array, Array, bool]:
    """Return scaled X, y, S, and whether y is a number."""
    if name == "u_shaped":
        task = make_u_shaped(6_000, random_state=split)
        return task.data, task.target, task.sensitive_features.ravel(), False
    if name == "rates":
        return _rates(split)
    if name == "adult.test":
        bunch, column = fetch_adult(subset="test", missing="category"), "age"
    elif name == "meps_2016":
        bunch, column = fetch_meps(2016, features="paper", missing="drop"), "AGE"
    else:
        bunch, column = fetch_acs_income(name[-2:].upper(), subsample=10_000), "AGEP"
    x = make_preprocessor(bunch).fit_transform(bunch.data)
    s = bunch.sensitive_features[column].to_numpy(np.float64)
    return np.asarray(x, dtype=np.float64), np.asarray(bunch.target), s, False


def _rates(split: int) -> tuple[Array, Array, Array, bool]:
    """Return towns: thirty columns of four factors, a rate in [0, 1], a skewed share that goes with it."""
    rng = np.random.default_rng(split)
    factors = rng.normal(size=(2_000, 4))
    x = factors @ rng.normal(size=(4, 30)) + rng.normal(size=(2_000, 30))
    s = 1.0 / (1.0 + np.exp(-(1.5 * factors[:, 0] - 2.0 + 0.5 * rng.normal(size=2_000))))
    y = 1.0 / (1.0 + np.exp(-(factors[:, :2].sum(axis=1) - 1.0 + 0.5 * rng.normal(size=2_000))))
    return x, y, s, True


def work(cell: Cell, epochs: int) -> dict[str, Any]:
    """Train the limits of a cell and judge them on held-out rows."""
    torch.set_num_threads(1)
    x, y, s, regression = load(cell.dataset, cell.split)
    order = np.random.default_rng(cell.split).permutation(len(y))
    test, train = order[: len(y) // 4], order[len(y) // 4 :]
    candidate = CANDIDATES[cell.candidate]
    kind = FRHSICRegressor if regression else FRHSICClassifier
    penalty = candidate.make(classes=not regression)
    model = kind(penalty=penalty, epochs=epochs, random_state=cell.split, training=Training())
    start = time.perf_counter()
    path = fit_path(
        model,
        x[train],
        y[train],
        limits=[{"gap": limit} for limit in LIMITS],
        sensitive_features=ranks(s[train]) if candidate.ranked else s[train],
    )
    seconds = time.perf_counter() - start
    points = []
    for limit, one in zip((None, *LIMITS), path, strict=True):
        output = one.predict(x[test]) if regression else one.decision_function(x[test])
        score = score_of(output, regression=regression)
        if regression:
            perf = loss = float(np.mean((output - y[test]) ** 2))
        else:
            truth = y[test] == one.classes_[1]
            perf = float(np.mean((output > 0) == truth))
            loss = float(np.mean(np.logaddexp(0.0, np.where(truth, -output, output))))
        found = gaps(score, s[test], chance=True)
        reached = [part.to_dict() for part in one.reached_]
        points.append({"limit": limit, "perf": perf, "loss": loss, **found, "reached": reached})
    return {**vars(cell), "seconds": round(seconds, 1), "points": points}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=DATASETS, metavar="DATASET")
    parser.add_argument("--candidates", nargs="*", default=list(CANDIDATES), metavar="NAME")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fresh", action="store_true")


def run(arguments: argparse.Namespace) -> None:
    """Train what is not there yet, and print the table."""
    runs = Runs(NAME, fresh=arguments.fresh, limits=LIMITS, epochs=arguments.epochs, seed=0)
    cells = [
        Cell(dataset, candidate, split)
        for split in range(arguments.splits)
        for dataset in arguments.datasets
        for candidate in arguments.candidates
        if runs.missing(dataset=dataset, candidate=candidate, split=split)
    ]
    for found in spread(
        cells, partial(work, epochs=arguments.epochs), cost=lambda _: 1.0, workers=arguments.workers
    ):
        runs.add(**found)
    runs.write()
    print(table())
    write_section("evidence/training.md", "penalties", table(), NAME)


def table() -> str:
    """Return the loss and the performance at a gap of each limit, means over splits.

    Where the gap on held-out rows is that limit, between the models of a candidate.
    """
    found = json.loads((RESULTS / NAME).read_text())["runs"]
    rows = []
    for candidate in CANDIDATES:
        cells = []
        for dataset in DATASETS:
            own = [run for run in found if (run["dataset"], run["candidate"]) == (dataset, candidate)]
            if any(run["dataset"] == dataset for run in found):
                cells += [_cell(own, limit) for limit in SHOWN]
        if any(cells):
            rows.append([candidate, *cells])
    there = [name for name in DATASETS if any(run["dataset"] == name for run in found)]
    header = ["penalty", *(f"{name}, {limit:g}" for name in there for limit in SHOWN)]
    return markdown(header, rows)


def _cell(runs: list[dict[str, Any]], gap: float) -> str:
    """Return the mean loss and performance at a gap; one number where they are the same."""
    if not runs:
        return ""
    pair = [np.mean([interpolate(run["points"], name, gap) for run in runs]) for name in ("loss", "perf")]
    if np.isnan(pair[0]):
        return "–"
    return f"{pair[0]:.4f}" if pair[0] == pair[1] else f"{pair[0]:.4f}, {pair[1]:.3f}"


def interpolate(points: list[dict[str, Any]], name: str, gap: float) -> float:
    """Return loss or performance between the held-out points on both sides of a gap; NaN below all."""
    ordered = sorted(points, key=lambda point: float(point["gap"]))
    x, y = ([point[key] for point in ordered] for key in ("gap", name))
    return float(np.interp(gap, x, y, left=np.nan))
