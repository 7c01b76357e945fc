"""Time of an epoch by the dimension of S, 1 to 5, on 2,000 rows of Adult: FRHSIC and FREM.

S is what the text names: age, capital gain, capital loss, hours per week and a Gaussian column (the published
script indexes an array without age and takes fnlwgt, capital loss, hours and a column of zeros and ones). The
bandwidths are fixed, lambda is 10, the features are all but age, as published. Dimensions and methods take
turns within a round, and ratios are taken within rounds: run it on an idle machine.
"""

import argparse
import json
import os
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks._protocol import PUBLISHED, SEEDS, Array, published
from benchmarks._record import RESULTS, Runs
from benchmarks.speed.runtime import LoopedEIPM, WrittenHSIC, gaussian
from frhsic import HSIC, FRHSICClassifier, Penalty, Sensitive
from frhsic.datasets import fetch_adult, make_preprocessor
from frhsic.dependence import EIPM, Dependence
from frhsic.kernels import Gaussian

ROWS = 2_000
COLUMNS = ("age", "capital-gain", "capital-loss", "hours-per-week")  # and a synthetic one
DIMENSIONS = (1, 2, 3, 4, 5)
ANCHORS = 32


class LoopedAnchors(Dependence):
    """FREM with a python loop over 32 random rows of the batch as anchors, as the published script has it."""

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:  # noqa: ARG002
        n = len(z)
        K, near = gaussian(z, 1.0), gaussian(s.values, 0.5)
        near = near - torch.diag(near.diagonal())
        near = near / near.sum(dim=1, keepdim=True)
        even = z.new_full((n,), 1.0 / n)
        whole, total = even @ K @ even, z.new_zeros(())
        for anchor in torch.randperm(n)[:ANCHORS]:
            v = near[anchor]
            squared = v @ K @ v - 2.0 * (v @ K @ even) + whole
            total = total + squared.clamp_min(1e-10).sqrt()
        return total / min(n, ANCHORS)


@dataclass(frozen=True)
class Timed:
    """What is timed, the FRHSIC that it is compared with, and the published timing that it is."""

    measure: Dependence | None
    against: str = "FRHSIC"
    published: str | None = None


METHODS = {
    "Unfair": Timed(None),
    "FRHSIC": Timed(HSIC(Gaussian(1.0), Gaussian(1.0))),
    "FREM, 32 anchors": Timed(EIPM(Gaussian(1.0), 0.5, anchors=ANCHORS, range_s=1.0)),
    "FREM": Timed(EIPM(Gaussian(1.0), 0.5, range_s=1.0)),
    "FRHSIC, as written": Timed(WrittenHSIC(), "FRHSIC, as written", "FRHSIC"),
    "FREM, loop over 32 anchors": Timed(LoopedAnchors(), "FRHSIC, as written", "FREM"),
    "FREM, loop": Timed(LoopedEIPM(), "FRHSIC, as written"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=7, help="interleaved repeats")
    parser.add_argument("--epochs", type=int, default=5, help="after one for warming up")
    parser.add_argument("--fresh", action="store_true", help="forget the rounds made before")


def task() -> tuple[Array, Any, Array]:
    """Return x, y and the five columns of S, all in [0, 1]."""
    bunch = fetch_adult(missing="category")
    rng = np.random.RandomState(SEEDS[0])
    rows = rng.choice(len(bunch.target), ROWS, replace=False)
    x = make_preprocessor(bunch).fit_transform(bunch.data.iloc[rows])
    named = bunch.data.assign(age=bunch.sensitive_features["age"]).iloc[rows]
    s = np.column_stack([named[list(COLUMNS)].to_numpy(np.float64), rng.normal(size=ROWS)])
    low, high = s.min(axis=0), s.max(axis=0)
    return x, np.asarray(bunch.target)[rows], (s - low) / (high - low)


def run(arguments: argparse.Namespace) -> None:
    """Time the rounds that are missing and print medians and ratios."""
    torch.set_num_threads(1)
    x, y, s = task()
    runs = Runs("highdim.json", fresh=arguments.fresh, seed=SEEDS[0], threads=1, rows=ROWS)
    for number in range(arguments.rounds):
        key = {"round": number, "epochs": arguments.epochs}
        if not runs.missing(**key):
            continue
        load = round(os.getloadavg()[0], 1)  # above one, others were at work
        seconds: dict[str, dict[int, float]] = {name: {} for name in METHODS}
        cells = [(name, dimension) for dimension in DIMENSIONS for name in METHODS]
        # Forwards and backwards in turn: the machine drifts within a round, too.
        for name, dimension in cells[:: 1 if number % 2 == 0 else -1]:
            measure = METHODS[name].measure
            model = FRHSICClassifier(
                lam=0.0 if measure is None else 10.0,
                penalty=None if measure is None else Penalty(measure),
                epochs=arguments.epochs + 1,
                random_state=SEEDS[0],
                training=PUBLISHED,
            )
            model.fit(x, y, sensitive_features=s[:, :dimension])
            times = [record["seconds"] for record in model.history_[1:]]
            seconds[name][dimension] = float(f"{statistics.median(times):.4g}")
        by_dimension = {name: [found[d] for d in DIMENSIONS] for name, found in seconds.items()}
        runs.add(**key, load=load, seconds=by_dimension)
        print(f"round {number}, load {load}", flush=True)
    print(runs.write(dimensions=DIMENSIONS, published=published("highdim")))
    for row in summary(arguments.epochs):
        quartiles = "" if row["quartiles"] is None else f" {row['quartiles']}"
        parts = [f"d = {row['dimension']} {row['method']:27s} {row['seconds']:.4f} s"]
        parts += [f"{row['over_unfair']:.2f} x Unfair", f"{row['over_first']:.2f} x d = 1"]
        parts += [f"{row['over_frhsic']:.2f}{quartiles} x {row['against']}"]
        if "seconds_published" in row:
            parts += [f"published {row['seconds_published']:.3f} s, {row['over_frhsic_published']:.2f} x"]
        print("; ".join(parts))


def summary(epochs: int = 5) -> list[dict[str, Any]]:
    """Return median seconds of an epoch and medians of ratios within rounds, by dimension and method.

    ``over_frhsic`` (with its ``quartiles``) is over ``against``: FRHSIC as it is here, for loops FRHSIC as
    the script writes it. ``over_first`` is over the same method at dimension 1. The published timings are one
    run of 30 epochs each.
    """
    result = json.loads((RESULTS / "highdim.json").read_text())
    rounds = [one["seconds"] for one in result["runs"] if one["epochs"] == epochs]
    theirs: dict[tuple[int, str | None], float] = {
        (int(row["dim_S"]), row["method"]): float(row["time_per_epoch_s"]) for row in result["published"]
    }
    table: list[dict[str, Any]] = []
    for place, dimension in enumerate(result["dimensions"] if rounds else ()):
        for name, timed in METHODS.items():
            times = [one[name][place] for one in rounds]
            over = _ratios(times, rounds, timed.against, place)
            row: dict[str, Any] = {
                "dimension": dimension,
                "method": name,
                "rounds": len(rounds),
                "seconds": float(f"{statistics.median(times):.3g}"),
                "over_unfair": round(statistics.median(_ratios(times, rounds, "Unfair", place)), 2),
                "over_first": round(statistics.median(_ratios(times, rounds, name, 0)), 2),
                "against": timed.against,
                "over_frhsic": round(statistics.median(over), 2),
                "quartiles": None,
            }
            if len(over) > 1:
                row["quartiles"] = [round(q, 2) for q in statistics.quantiles(over, method="inclusive")[::2]]
            own = theirs.get((dimension, timed.published))
            if own is not None:
                row["seconds_published"] = round(own, 4)
                row["over_frhsic_published"] = round(own / theirs[dimension, "FRHSIC"], 2)
            table.append(row)
    return table


def _ratios(times: list[float], rounds: list[dict[str, list[float]]], other: str, place: int) -> list[float]:
    return [time / one[other][place] for time, one in zip(times, rounds, strict=True)]
