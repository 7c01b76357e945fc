"""Adult: {biased, unbiased} x {held, scale-free, whitened} at lambda = 500, and the default penalty."""

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from benchmarks._protocol import SEEDS, Split, published_gdp, split_of
from benchmarks._record import Runs
from frhsic import GDP, HSIC, FRHSICClassifier, Penalty, Training
from frhsic.kernels import Gaussian

LAM = 500.0
DEFAULT_LAMS = (1.0, 10.0, 100.0)  # of the estimators' default penalty
# Held: sigma_Z fixed for 20 epochs, as published. The others are taken out of Z inside the graph.
SCALES = {
    "held": (Gaussian("median"), 20),
    "scale-free": (Gaussian("scale-free"), None),
    "whitened": (Gaussian("scale-free", whiten=True), None),
}
COLUMNS = (
    "accuracy", "gdp_probabilities", "gdp_published", "spread", "first_direction", "hsic", "hsic_whitened",
    "r2_linear", "r2_boosted",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def judge(model: FRHSICClassifier, split: Split) -> dict[str, float]:
    """Return performance, dependence and what two regressions recover of S from Z, on the test rows."""
    z, z_test = model.transform(split.x), model.transform(split.x_test)
    probability = model.predict_proba(split.x_test)[:, 1]
    s_test = torch.from_numpy(split.s_test)
    variances = np.linalg.eigvalsh(np.cov(z_test.T))
    # At unit size: boosting bins and least squares must not fail because Z is small.
    centre, size = z.mean(axis=0), max(float(z.std()), 1e-300)
    z, z_unit = (z - centre) / size, (z_test - centre) / size
    rows = torch.from_numpy(z_unit[:2000])
    plain = HSIC(estimator="unbiased", normalized=True)
    white = HSIC(Gaussian("scale-free", whiten=True), estimator="unbiased", normalized=True)
    return {
        "accuracy": model.score(split.x_test, split.y_test),
        "gdp_probabilities": GDP(0.1)(torch.from_numpy(probability), s_test).item(),
        "gdp_published": published_gdp(model.decision_function(split.x_test), split.s_test),
        "spread": float(np.sqrt(variances.sum())),
        "first_direction": float(variances[-1] / variances.sum()),
        "hsic": plain(rows, s_test[:2000]).item(),
        "hsic_whitened": white(rows, s_test[:2000]).item(),
        "r2_linear": LinearRegression().fit(z, split.s).score(z_unit, split.s_test),
        "r2_boosted": HistGradientBoostingRegressor(random_state=0)
        .fit(z, split.s)
        .score(z_unit, split.s_test),
    }


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing and print the table."""
    runs = Runs("collapse.json", fresh=arguments.fresh, seeds=SEEDS[: arguments.splits], lam=LAM)
    cells: list[tuple[str, str]] = [("none", "")]
    cells += [(estimator, scale) for scale in SCALES for estimator in ("biased", "unbiased")]
    cells += [("default", f"lam = {lam:g}") for lam in DEFAULT_LAMS]
    for repeat, seed in enumerate(SEEDS[: arguments.splits]):
        split = None
        for estimator, scale in cells:
            key: dict[str, Any] = {
                "estimator": estimator, "scale": scale, "seed": seed, "epochs": arguments.epochs
            }  # fmt: skip
            if not runs.missing(**key):
                continue
            split = split or split_of("adult", repeat)
            kernel, every = SCALES.get(scale, (None, None))
            measure = HSIC(kernel, estimator="unbiased" if estimator == "unbiased" else "biased")
            lam = LAM if scale in SCALES else float(scale.rpartition(" ")[2] or 0)
            start = time.perf_counter()
            model = FRHSICClassifier(
                lam=lam,
                penalty=None if estimator == "default" else Penalty(measure),
                epochs=arguments.epochs,
                random_state=seed,
                training=Training(every=every, scaling="minmax"),
            ).fit(split.x, split.y, sensitive_features=split.s)
            seconds = round(time.perf_counter() - start, 1)
            runs.add(**key, **judge(model, split), seconds=seconds)
            print(runs.runs[-1])
    table = {}
    for estimator, scale in cells:
        chosen = [r for r in runs.runs if (r["estimator"], r["scale"]) == (estimator, scale)]
        chosen = [r for r in chosen if r["epochs"] == arguments.epochs]
        table[f"{estimator} {scale}".strip()] = {
            name: float(f"{statistics.mean(r[name] for r in chosen):.3g}") for name in COLUMNS
        }
    print(f"{'':20s}", "  ".join(f"{name:>17s}" for name in COLUMNS))
    for title, row in table.items():
        print(f"{title:20s}", "  ".join(f"{row[name]:17.3g}" for name in COLUMNS))
    print(runs.write(table=table))
