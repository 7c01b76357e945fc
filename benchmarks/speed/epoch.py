"""Time of an epoch of the representation's training, over one without a penalty at its batch size."""

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks._protocol import SEEDS, Split, split_of
from benchmarks._record import provenance, write
from benchmarks.paper._matched import WIDTHS
from benchmarks.paper.representation import STRENGTHS, Setting, ours

EPOCHS = 10


def seconds(data: Split, width: int, *, penalised: bool) -> float:
    """Return the processor time of an epoch."""
    options: dict[str, Any] = {"rows": len(data.y), "regression": data.regression, "seed": SEEDS[0]}
    model = ours(width, Setting(STRENGTHS[1]), **options).set_params(epochs=EPOCHS)
    if not penalised:
        plain = replace(model.training, noise=0.0, rebuild=0.0, penalty_every=1)
        model.set_params(lam=0.0, training=plain)
    start = time.process_time()
    model.fit(data.x, data.y, sensitive_features=data.s)
    return (time.process_time() - start) / EPOCHS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--repeats", type=int, default=7)


def run(arguments: argparse.Namespace) -> None:
    """Time both in turn, and print the medians of their ratios."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    data = split_of("adult", 0)
    found = {}
    for width in WIDTHS:
        pairs = [
            [seconds(data, width, penalised=penalised) for penalised in (True, False)]
            for _ in range(arguments.repeats)
        ]
        ratios = [with_penalty / without for with_penalty, without in pairs]
        found[str(width)] = {"ratio": statistics.median(ratios), "ratios": ratios, "seconds": pairs}
        print(f"width {width}: {statistics.median(ratios):.2f} times one without a penalty")
    write("epoch.json", {**provenance(seeds=SEEDS[:1], threads_each=1), "epochs": EPOCHS, "widths": found})
