"""Adult exactly as published: Unfair and FRHSIC at lambda = 50, five splits of 200 epochs (7 minutes)."""

import argparse
import statistics
import time

from benchmarks._protocol import SEEDS, frhsic_published, published_gdp, split_of
from benchmarks._record import Runs

# Accuracy and GDP (grid, logits) as published, with their standard deviations over the five splits.
PUBLISHED = {0.0: ((0.8492, 0.0021), (0.7488, 0.0427)), 50.0: ((0.8454, 0.0038), (0.2318, 0.0288))}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing and print the table beside the published one."""
    runs = Runs("adult.json", fresh=arguments.fresh, seeds=SEEDS)
    for repeat, seed in enumerate(SEEDS):
        split = None
        for lam in PUBLISHED:
            if not runs.missing(lam=lam, seed=seed, epochs=arguments.epochs):
                continue
            split = split or split_of("adult", repeat)
            start = time.perf_counter()
            model = frhsic_published(lam, seed, arguments.epochs)
            model.fit(split.x, split.y, sensitive_features=split.s)
            runs.add(
                lam=lam,
                seed=seed,
                epochs=arguments.epochs,
                accuracy=model.score(split.x_test, split.y_test),
                gdp=published_gdp(model.decision_function(split.x_test), split.s_test),
                seconds=round(time.perf_counter() - start, 1),
            )
            print(runs.runs[-1])
    summary = {}
    for lam, published in PUBLISHED.items():
        chosen = [r for r in runs.runs if r["lam"] == lam and r["epochs"] == arguments.epochs]
        row = {}
        for name, (value, sd) in zip(("accuracy", "gdp"), published, strict=True):
            values = [r[name] for r in chosen]
            row[name] = {
                "mean": round(statistics.mean(values), 4),
                "sd": round(statistics.stdev(values), 4) if len(values) > 1 else None,
                "published": value,
                "published_sd": sd,
            }
        summary[f"lam = {lam:g}"] = row
        print(f"lam = {lam:g}", row)
    print(runs.write(summary=summary))
