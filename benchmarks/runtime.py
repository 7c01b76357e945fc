"""Time of an epoch on the paper's runtime task, over that of training without a penalty."""

import argparse
import statistics
from typing import Any

import numpy as np
import torch

from benchmarks._record import provenance, write
from frhsic import HSIC, FRHSICClassifier, Penalty, Training
from frhsic.kernels import Gaussian

SEED = 0
METHODS: dict[str, dict[str, Any]] = {
    "Unfair": {"lam": 0.0},
    # sigma_Z by the median in epoch 0, the warm-up, and then held: as published.
    "FRHSIC": {"lam": 1.0, "penalty": Penalty(HSIC()), "training": Training(every=20, scaling="minmax")},
    "scale-free, unbiased": {
        "lam": 1.0,
        "penalty": Penalty(HSIC(Gaussian("scale-free"), estimator="unbiased")),
    },
    "default penalty": {"lam": 1.0},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=31, help="interleaved repeats")
    parser.add_argument("--sizes", type=int, nargs="*", default=[20_000])
    parser.add_argument("--threads", type=int, default=1)


def task(n: int) -> tuple[Any, Any, Any]:
    """Return the paper's task: S uniform, X = (S + noise, noise), y drawn from the first feature."""
    rng = np.random.default_rng(SEED)
    s = rng.uniform(size=n)
    x = np.column_stack([s + 0.3 * rng.standard_normal(n), rng.standard_normal(n)])
    return x, (rng.uniform(size=n) < 1 / (1 + np.exp(-x[:, 0]))).astype(int), s


def run(arguments: argparse.Namespace) -> None:
    """Time five epochs after a warm-up epoch for each method in turn; print medians of ratios by round."""
    torch.set_num_threads(arguments.threads)
    result = {}
    for n in arguments.sizes:
        x, y, s = task(n)
        seconds: dict[str, list[float]] = {name: [] for name in METHODS}
        for number in range(arguments.rounds):
            # Forwards and backwards in turn: the machine drifts within a round, too.
            for name in list(METHODS)[:: 1 if number % 2 == 0 else -1]:
                model = FRHSICClassifier(epochs=6, random_state=SEED, **METHODS[name])
                model.fit(x, y, sensitive_features=s)
                seconds[name].append(statistics.median(record["seconds"] for record in model.history_[1:]))
        ratios = {
            name: sorted(a / b for a, b in zip(values, seconds["Unfair"], strict=True))
            for name, values in seconds.items()
        }
        result[f"n = {n}"] = {
            "seconds": {name: round(statistics.median(values), 4) for name, values in seconds.items()},
            "over Unfair": {name: round(statistics.median(values), 2) for name, values in ratios.items()},
            "quartiles": {
                name: [round(q, 2) for q in statistics.quantiles(values)[::2]]
                for name, values in ratios.items()
            },
        }
        print(n, result[f"n = {n}"])
    print(write("runtime.json", {**provenance(seed=SEED, threads=arguments.threads), "epoch": result}))
