"""What one would try first, on Adult as published: five splits of 200 epochs."""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.preprocessing import MinMaxScaler

from benchmarks._protocol import SEEDS, Array, Split, published_gdp, split_of
from benchmarks._record import Runs
from frhsic.baselines import UNFAIR, Residualizer, adversarial_fairness, correlation_remover


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


# Each as the logits of the test rows.


def residualized(split: Split, seed: int, epochs: int) -> Array:
    """Return logits of Unfair on residuals that need no S."""
    rest = Residualizer().fit(split.x, sensitive_features=split.s)
    model = UNFAIR.classifier(epochs=epochs, random_state=seed).fit(rest.transform(split.x), split.y)
    return model.decision_function(rest.transform(split.x_test))


def correlation_removed(split: Split, seed: int, epochs: int) -> Array:
    """Return logits of Unfair on what fairlearn's CorrelationRemover leaves, given the S of the test rows."""
    rest = correlation_remover([0])
    x = rest.fit_transform(np.column_stack([split.s, split.x]))
    model = UNFAIR.classifier(epochs=epochs, random_state=seed).fit(x, split.y)
    return model.decision_function(rest.transform(np.column_stack([split.s_test, split.x_test])))


def adversarial(split: Split, seed: int, epochs: int) -> Array:  # noqa: ARG001  (fairlearn has one seed)
    """Return logits of fairlearn's adversarial classifier."""
    scale = MinMaxScaler().fit(split.x)
    model = adversarial_fairness(epochs=epochs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(scale.transform(split.x), split.y, sensitive_features=split.s)
    # It has no predict_proba.
    p = model.backendEngine_.evaluate(scale.transform(split.x_test))[:, 0].astype(np.float64)
    p = p.clip(1e-12, 1.0 - 1e-12)
    return np.log(p) - np.log1p(-p)


FIRST: dict[str, Callable[[Split, int, int], Array]] = {
    "Residualizer": residualized,
    "CorrelationRemover": correlation_removed,
    "AdversarialFairness": adversarial,
}
MEASURES = ("accuracy", "gdp")


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing and print the table."""
    runs = Runs("baselines.json", fresh=arguments.fresh, seeds=SEEDS)
    for name, logits_of in FIRST.items():
        for repeat, seed in enumerate(SEEDS[: arguments.splits]):
            same = {"method": name, "seed": seed, "epochs": arguments.epochs}
            if not runs.missing(**same):
                continue
            split = split_of("adult", repeat)
            start = time.perf_counter()
            logits = logits_of(split, seed, arguments.epochs)
            seconds = round(time.perf_counter() - start, 1)
            accuracy = float(np.mean((logits > 0) == (split.y_test == 1)))
            runs.add(**same, accuracy=accuracy, gdp=published_gdp(logits, split.s_test), seconds=seconds)
            runs.write(table=table(runs.runs, arguments.epochs))
            print(runs.runs[-1], flush=True)
    rows = table(runs.runs, arguments.epochs)
    for row in rows:
        means = (f"{name} {row[name]['mean']:.4f} +/- {row[name]['sd']:.4f}" for name in MEASURES)
        print(f"{row['method']:19s} {row['splits']} splits", *means, sep="  ")
    print(runs.write(table=rows))


def table(runs: list[dict[str, Any]], epochs: int) -> list[dict[str, Any]]:
    """Return mean and deviation over splits of each."""
    rows = []
    for name in FIRST:
        chosen = [run for run in runs if (run["method"], run["epochs"]) == (name, epochs)]
        if not chosen:
            continue
        row: dict[str, Any] = {"method": name, "epochs": epochs, "splits": len(chosen)}
        for measure in MEASURES:
            values = [run[measure] for run in chosen]
            # The published deviations are those of a population, too.
            row[measure] = {
                "mean": round(statistics.mean(values), 4),
                "sd": round(statistics.pstdev(values), 4),
            }
        rows.append(row)
    return rows
