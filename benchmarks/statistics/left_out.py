"""The bound on what the cells of a table leave out of HSIC, beside the difference from the rows.

``random``: 1,000 tables of 20 to 10^6 rows, with heavy tails, ties and heaps. ``gold``: the gold cases of one
score and one column of numbers.
"""

import argparse
from typing import Any

import numpy as np
import torch
from scipy import special

from benchmarks._record import Runs
from benchmarks._simulate import SEED, Array, rng
from benchmarks.gold import CASES
from frhsic.data import to_sensitive
from frhsic.dependence import HSIC
from frhsic.kernels import Gaussian
from frhsic.table import Bandwidths, ScoreTable, hsic, left_out

PARTS = ("random", "gold")
CHUNK = 50
# Of fifty tables, so many have rows between these numbers.
TABLES = 1_000
SIZES = ((20, 600, 5), (600, 4_000, 39), (4_000, 100_000, 5), (100_000, 1_000_000, 1))
GOLD = ("few values", "ranges", "numeric outcome", "binary outcome", "weights", "groups", "60 rows",
        "600,000 rows", "Adult", "rare and heavy")  # fmt: skip
FORMS = {"biased": (False, False), "normalised": (True, True)}


def draw(index: int) -> tuple[str, Array, Array, Array | None]:
    """Return the law of a random table, its scores, S and weights."""
    g = rng("left out", index)
    counts = np.cumsum([count for _, _, count in SIZES])
    least, most, _ = SIZES[int(np.searchsorted(counts, index % counts[-1], side="right"))]
    n = int(np.exp(g.uniform(np.log(least), np.log(most))))
    x = g.normal(size=n)
    slope = g.choice([0.0, 0.1, 0.3, 1.0])
    latent = slope * x + g.normal(size=n)
    columns = {
        "normal": x,
        "uniform": special.ndtr(x),
        "log-normal(2)": np.exp(2.0 * x),
        "Cauchy": np.tan(np.pi * (special.ndtr(x) - 0.5)),
        "heaps": np.where(g.random(n) < 0.5, np.round(x, 1), x),
        "ties": np.round(40.0 * x),
    }
    scores = {"probability": special.expit(latent), "normal": latent, "log-normal(2)": np.exp(2.0 * latent)}
    s, z = g.choice(list(columns)), g.choice(list(scores), p=(0.6, 0.2, 0.2))
    w = np.exp(0.5 * g.normal(size=n)) if g.random() < 0.25 else None
    return f"{s}, {z}", scores[z], np.asarray(columns[s], dtype=float), w


def measure(z: Array, s: Array, w: Array | None) -> dict[str, Any]:
    """Return for each form the value of the table, the difference of the rows and the bounds on it."""
    law = ScoreTable.from_rows(z, s, sample_weight=w).law()
    bandwidths = Bandwidths.of(law)
    value, found = hsic(law, bandwidths), {}
    tensors = torch.as_tensor(z)[:, None], to_sensitive(s), None if w is None else torch.as_tensor(w)
    for name, (unbiased, normalized) in FORMS.items():
        if unbiased and w is not None:
            continue  # rows have no unbiased form with weights
        rows = HSIC(
            Gaussian(bandwidths.z),
            Gaussian(bandwidths.s[0]),
            normalized=normalized,
            estimator="unbiased" if unbiased else "biased",
        )
        with torch.no_grad():
            of_rows = float(rows(*tensors))
        of_table = value.of(unbiased=unbiased, normalized=normalized)
        low, high = left_out(law, bandwidths, unbiased=unbiased, normalized=normalized)
        found[name] = {"table": of_table, "rows": of_rows, "low": low, "high": high}
    return {"rows": len(z), "shape": list(law.shares.shape), "forms": found}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS, help="only some of the parts")
    parser.add_argument("--fresh", action="store_true", help="forget the numbers made before")


def run(arguments: argparse.Namespace) -> None:
    """Measure the tables that are missing, and print a summary."""
    torch.set_num_threads(1)
    runs = Runs("left_out.json", fresh=arguments.fresh, seed=SEED)
    for first in range(0, TABLES, CHUNK) if "random" in arguments.parts else ():
        if runs.missing(part="random", first=first):
            tables = []
            for index in range(first, first + CHUNK):
                law, z, s, w = draw(index)
                tables.append({"law": law, "weights": w is not None, **measure(z, s, w)})
            runs.add(part="random", first=first, tables=tables)
            print(f"tables {first} to {first + CHUNK - 1}", flush=True)
    for name in GOLD if "gold" in arguments.parts else ():
        if runs.missing(part="gold", case=name):
            data = CASES[name](rng("gold", name))
            (s,) = data["sensitive_features"].values()
            z, s = np.asarray(data["scores"], dtype=float), np.asarray(s, dtype=float)
            runs.add(part="gold", case=name, **measure(z, s, data.get("sample_weight")))
    tables = [table for run in runs.runs if run["part"] == "random" for table in run["tables"]]
    summary = [summarize(tables, least, most) for least, most in [(20, 10**6), *(size[:2] for size in SIZES)]]
    gold = {run["case"]: shares(run) for run in runs.runs if run["part"] == "gold"}
    for line in summary:
        print(line)
    for name, share in gold.items():
        print(f"{name}: " + ", ".join(f"{form} {value:.2g} of the value" for form, value in share.items()))
    print(runs.write(summary=summary, gold=gold))


def shares(run: dict[str, Any]) -> dict[str, float]:
    """Return the largest difference as a share of the value of the table."""
    forms = run["forms"].items()
    return {name: max(-form["low"], form["high"]) / abs(form["table"]) for name, form in forms}


def summarize(tables: list[dict[str, Any]], least: int, most: int) -> dict[str, Any]:
    """Return how many bounds hold, and how large they are beside the difference."""
    forms: dict[str, Any] = {}
    for name in FORMS:
        some = [
            table["forms"][name]
            for table in tables
            if least <= table["rows"] <= most and name in table["forms"]
        ]
        holds, ratios, zero = 0, [], 0
        for form in some:
            difference = form["rows"] - form["table"]
            size = max(-form["low"], form["high"])
            rounding = 1e-10 * abs(form["rows"]) + 1e-13  # of sums over the rows
            holds += form["low"] - rounding <= difference <= form["high"] + rounding
            zero += size == 0.0
            if size > 0.0 and abs(difference) > rounding:
                ratios.append(size / abs(difference))
        forms[name] = {"tables": len(some), "hold": int(holds), "nothing left out": int(zero)}
        if ratios:
            forms[name]["ratio"] = {f"{q}": float(f"{np.quantile(ratios, q):.4g}") for q in (0.1, 0.5, 0.9)}
    return {"rows": [least, most], **forms}
