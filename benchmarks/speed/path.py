"""Nine strengths in one stacked pass, over nine separate trainings, for every method (5 minutes)."""

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch

import frhsic.baselines
from benchmarks._record import provenance, write
from benchmarks.paper.budgets import LAMS
from frhsic import FRHSICClassifier
from frhsic.baselines import Method
from frhsic.estimators import fit_path
from frhsic.penalty import budget_penalty

SEED = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=5, help="interleaved repeats")
    parser.add_argument("--rows", type=int, default=2_560)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)


def task(n: int) -> tuple[Any, Any, Any]:
    """Return a table as wide as Adult as published, 107 columns."""
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((n, 107))
    s = x[:, 0] + rng.standard_normal(n)
    return x, (rng.uniform(size=n) < 1 / (1 + np.exp(-x[:, 0] - x[:, 1]))).astype(int), s


def run(arguments: argparse.Namespace) -> None:
    """Time both ways in turn and print the medians of their ratios."""
    torch.set_num_threads(arguments.threads)
    x, y, s = task(arguments.rows)
    models = {
        "default penalty": FRHSICClassifier(epochs=arguments.epochs, random_state=SEED),
        "default of a budget, as a penalty": FRHSICClassifier(
            penalty=budget_penalty(classes=True), epochs=arguments.epochs, random_state=SEED
        ),
    }
    for name in frhsic.baselines.__all__:
        method = getattr(frhsic.baselines, name)
        if isinstance(method, Method) and method.penalty is not None:
            models[method.name] = method.classifier(epochs=arguments.epochs, random_state=SEED)
    ratios: dict[str, list[float]] = {name: [] for name in models}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(arguments.rounds + 1):
        for name, model in models.items():
            start = time.perf_counter()
            fit_path(model, x, y, lams=LAMS, sensitive_features=s)
            middle = time.perf_counter()
            for lam in LAMS:
                model.set_params(lam=lam, budget=None).fit(x, y, sensitive_features=s)
            end = time.perf_counter()
            if number > 0:  # the first round warms up
                ratios[name].append((middle - start) / (end - middle))
                seconds[name].append(middle - start)
    result = {
        name: {
            "stacked over separate": round(statistics.median(values), 3),
            "range": [round(min(values), 3), round(max(values), 3)],
            "seconds stacked": round(statistics.median(seconds[name]), 2),
        }
        for name, values in ratios.items()
    }
    for name, row in result.items():
        print(f"{name:40s} {row}")
    print(write("path.json", {**provenance(threads=arguments.threads), "strengths": LAMS, "result": result}))
