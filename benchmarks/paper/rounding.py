"""FREM on COMPAS by the published formula in single and in double precision (half an hour)."""

import argparse
import statistics
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks._protocol import SEEDS, published, published_gdp, split_of
from benchmarks._record import Runs
from benchmarks.paper._methods import AsWritten


class PairByPair(AsWritten):
    """The same with differences of rows in the place of a product, which does not cancel."""

    def _squared(self, z: Tensor) -> Tensor:
        return (z[:, None] - z[None]).square().sum(dim=2)


LAMS = (50.0, 100.0)
PRECISIONS = {
    "single": (torch.float32, AsWritten()),
    "single, distances pair by pair": (torch.float32, PairByPair()),
    "double": (torch.float64, AsWritten()),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, and print means beside the published ones."""
    torch.set_num_threads(1)
    runs = Runs("rounding.json", fresh=arguments.fresh, seeds=SEEDS)
    for repeat in range(arguments.splits):
        for lam in LAMS:
            for precision in PRECISIONS:
                key = {"precision": precision, "lam": lam, "repeat": repeat, "epochs": arguments.epochs}
                if runs.missing(**key):
                    runs.add(**key, **trained(lam, repeat, precision, arguments.epochs))
                    print(runs.runs[-1], flush=True)
    rows = summary(runs.runs)
    for row in rows:
        print(row)
    print(runs.write(summary=rows))


def trained(lam: float, repeat: int, precision: str, epochs: int) -> dict[str, float]:
    """Train as the published script does, and return accuracy and GDP on the held-out rows."""
    data = split_of("compas", repeat)
    torch.manual_seed(SEEDS[repeat])
    dtype, penalty = PRECISIONS[precision]
    x, y, s, x_test = (torch.as_tensor(part, dtype=dtype) for part in (data.x, data.y, data.s, data.x_test))
    encoder = nn.Sequential(nn.Linear(x.shape[1], 50), nn.SELU(), nn.Linear(50, 50)).to(dtype)
    head = nn.Linear(50, 1).to(dtype)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(256):
            z = encoder(x[rows])
            loss = nn.functional.binary_cross_entropy_with_logits(head(z).squeeze(1), y[rows])
            objective = loss + lam * penalty(z, s[rows])
            optimizer.zero_grad()
            objective.backward()
            optimizer.step()
    with torch.no_grad():
        logits = head(encoder(x_test)).squeeze(1).double().numpy()
    return {
        "accuracy": float(np.mean((logits > 0) == data.y_test)),
        "gdp": published_gdp(logits, data.s_test),
    }


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means over splits by precision and lambda, beside the published ones."""
    theirs = {
        float(row["lam"]): row
        for row in published("results_by_lambda")
        if (row["dataset"], row["method"]) == ("compas", "FREM")
    }
    rows = []
    for lam in LAMS:
        for precision in PRECISIONS:
            found = [one for one in runs if (one["lam"], one["precision"]) == (lam, precision)]
            row = {"lam": lam, "precision": precision, "splits": len(found)}
            for name in ("accuracy", "gdp"):
                values = [one[name] for one in found]
                row |= {name: statistics.mean(values), f"{name}_sd": statistics.pstdev(values)}
            if lam in theirs:
                row |= {"accuracy_published": float(theirs[lam]["perf_mean"])}
                row |= {"gdp_published": float(theirs[lam]["gdp_mean"])}
            rows.append(row)
    return rows
