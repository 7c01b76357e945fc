"""Errors of HSIC and EIPM against their population values, by sample size, with slopes and a figure."""

import argparse
import json
import math
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import quad
from torch import Tensor

from benchmarks._record import RESULTS, provenance, write
from frhsic import EIPM, HSIC
from frhsic.kernels import Gaussian

Array = NDArray[np.float64]

SIZES = (50, 100, 200, 500, 1_000, 2_000)
SEED = 20_261_115


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--fresh", action="store_true", help="forget the results made before")


def population_hsic(rho: float, a: float = 1.0, b: float = 1.0) -> float:
    """Return HSIC of unit-variance Gaussians with correlation rho, Gaussian kernels of bandwidths a and b."""
    D = (a * a + 2.0) * (b * b + 2.0)
    return a * b * ((D - 4.0 * rho**2) ** -0.5 + D**-0.5 - 2.0 * (D - rho**2) ** -0.5)


def population_eipm(rho: float, a: float = 1.0, width: float = 0.0) -> float:
    """Return E_S MMD(P(Z | S), P(Z)) for the same pair by quadrature.

    With ``width`` the conditional law is averaged over S near s with a Gaussian of that width, weighted by
    the density of S: the limit of the estimator with a fixed smoothing bandwidth. It is normal with mean
    rho s / (1 + width^2) and variance 1 - rho^2 / (1 + width^2).
    """
    shrink = 1.0 / (1.0 + width * width)
    variance = 1.0 - rho * rho * shrink

    def mean_kernel(gap: float, spread: float) -> float:
        return a / math.sqrt(a * a + spread) * math.exp(-gap * gap / (2.0 * (a * a + spread)))

    def mmd(s: float) -> float:
        mean = rho * s * shrink
        squared = (
            mean_kernel(0.0, 2.0 * variance) + mean_kernel(0.0, 2.0) - 2.0 * mean_kernel(mean, 1.0 + variance)
        )
        return math.sqrt(max(squared, 0.0))

    def weighted(s: float) -> float:
        return mmd(s) * math.exp(-s * s / 2.0) / math.sqrt(2.0 * math.pi)

    return 2.0 * float(quad(weighted, 0.0, 12.0, limit=400, epsabs=1e-13)[0])


def sample(n: int, rho: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return Z and S of the paper's convergence task."""
    rng = np.random.default_rng([SEED, n, seed])
    z, noise = rng.standard_normal((2, n))
    return torch.tensor(z), torch.tensor(rho * z + math.sqrt(1.0 - rho * rho) * noise)


def estimators(n: int) -> dict[str, HSIC | EIPM]:
    """Return the estimators; EIPM smooths S with bandwidth 1 as published, or 1.06 n^(-1/5)."""
    return {
        "HSIC": HSIC(Gaussian(1.0), Gaussian(1.0)),
        "HSIC unbiased": HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased"),
        "EIPM fixed": EIPM(Gaussian(1.0), 1.0, range_s=1.0),
        "EIPM shrinking": EIPM(Gaussian(1.0), 1.06 * n**-0.2, range_s=1.0),
    }


def population(name: str, rho: float) -> float:
    """Return the population value that an estimator is compared with."""
    return population_hsic(rho) if name.startswith("HSIC") else population_eipm(rho)


def slope(sizes: Array, errors: Array) -> tuple[float, float, float]:
    """Return the log-log slope of the mean error with a 95 % interval from resampling replications.

    errors has a row for each size and a column for each replication.
    """
    rng = np.random.default_rng(SEED)

    def fit(values: Array) -> float:
        return float(np.polyfit(np.log(sizes), np.log(values.mean(axis=1)), 1)[0])

    draws = []
    for _ in range(1_000):
        picked = rng.integers(errors.shape[1], size=errors.shape)
        draws.append(fit(np.take_along_axis(errors, picked, axis=1)))
    low, high = np.quantile(draws, [0.025, 0.975])
    return fit(errors), float(low), float(high)


def compute(replications: int) -> dict[str, Any]:
    """Return all errors and slopes."""
    torch.set_num_threads(1)
    sizes = np.array(SIZES, dtype=float)
    results = []
    for rho in (0.5, 0.0):
        errors: dict[str, list[list[float]]] = {name: [] for name in estimators(2)}
        for n in SIZES:
            start = time.perf_counter()
            row: dict[str, list[float]] = {name: [] for name in errors}
            for seed in range(replications):
                z, s = sample(n, rho, seed)
                for name, measure in estimators(n).items():
                    row[name].append(measure(z, s).item() - population(name, rho))
            for name, column in row.items():
                errors[name].append(column)
            print(f"rho = {rho}, n = {n}: {time.perf_counter() - start:.0f} s", flush=True)
        for name, values in errors.items():
            table = np.array(values)
            fitted = slope(sizes, np.abs(table))
            later = slope(sizes[-3:], np.abs(table[-3:]))
            results.append(
                {
                    "rho": rho,
                    "estimator": name,
                    "population": population(name, rho),
                    "n": list(SIZES),
                    "mean_absolute_error": np.abs(table).mean(axis=1).tolist(),
                    "mean_error": table.mean(axis=1).tolist(),
                    "standard_error_of_mean": (table.std(axis=1, ddof=1) / math.sqrt(replications)).tolist(),
                    "slope": fitted[0],
                    "slope_95": fitted[1:],
                    "slope_last_three": later[0],
                    "slope_last_three_95": later[1:],
                }
            )
    limit = population_eipm(0.5, width=1.0)
    return {**provenance(seed=SEED, replications=replications), "eipm_limit_fixed": limit, "results": results}


def run(arguments: argparse.Namespace) -> None:
    """Compute unless that was done, write benchmarks/results/convergence.json and print the slopes."""
    path = RESULTS / "convergence.json"
    if arguments.fresh or not path.exists():
        write(path.name, compute(arguments.replications))
    result = json.loads(path.read_text())
    for row in result["results"]:
        low, high = row["slope_95"]
        print(
            f"rho = {row['rho']}: {row['estimator']:15s} slope {row['slope']:+.3f} [{low:+.3f}, {high:+.3f}]"
        )
