"""Speed and accuracy of the foundation, as ratios measured side by side in one run."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._record import provenance, write
from frhsic import EIPM, GDP, HSIC
from frhsic.kernels import Gaussian

Call = Callable[[], object]

SEED = 0
BATCH, WIDTH = 256, 50
SIGMA_S = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--repeats", type=int, default=300, help="interleaved repeats of the short timings")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved repeats of the long timings")
    parser.add_argument("--only", nargs="*", default=None, help="names of the measurements to run")


def medians(calls: dict[str, Call], repeats: int, warm_up: int = 20) -> dict[str, float]:
    """Return the median seconds of each call, the calls taking turns."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(min(warm_up, repeats)):
            call()
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def drawn(*shape: int, seed: int = SEED, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def uniform(n: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return uniform numbers."""
    return torch.rand(n, generator=torch.Generator().manual_seed(SEED + 1), dtype=dtype)


def published_hsic(z: Tensor, s: Tensor, sigma_z: float, sigma_s: float) -> Tensor:
    """Return n^-2 tr(HKH HLH) with every matrix written out, as in the published formula."""
    n = len(z)
    column = s.unsqueeze(1)
    K = torch.exp(-(torch.cdist(z, z) ** 2) / (2 * sigma_z**2))
    L = torch.exp(-(torch.cdist(column, column) ** 2) / (2 * sigma_s**2))
    H = torch.eye(n) - torch.ones(n, n) / n
    return ((H @ K @ H) * (H @ L @ H)).sum() / n**2


def plain_hsic(z: Tensor, s: Tensor, sigma_z: float, sigma_s: float) -> Tensor:
    """Return the same with centring by means and the gradient left to autograd."""
    square = (z * z).sum(dim=1)
    K = torch.exp((2 * z @ z.T - square[:, None] - square) / (2 * sigma_z**2))
    L = torch.exp(-((s[:, None] - s) ** 2) / (2 * sigma_s**2))
    L = L - L.mean(dim=0) - L.mean(dim=1, keepdim=True) + L.mean()
    return (K * L).mean()


def training_step(penalty: Callable[[Tensor, Tensor], Tensor] | None, scale: float) -> Call:
    """Return one step of the paper's network (107-50-50-1, SELU, Adam, batch 256)."""
    x, y, s = drawn(BATCH, 107), (uniform(BATCH) > 0.5).float(), uniform(BATCH)
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        encoder = nn.Sequential(nn.Linear(107, WIDTH), nn.SELU(), nn.Linear(WIDTH, WIDTH))
        head = nn.Linear(WIDTH, 1)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()])
    loss_of = nn.BCEWithLogitsLoss()

    def step() -> None:
        z = encoder(x)
        loss = loss_of(head(z).squeeze(-1), y)
        if penalty is not None:
            loss = loss + penalty(z if scale == 1.0 else z * scale, s)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def measure_step(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time of a training step with HSIC over the same step without; at most 1.7."""
    sigma = median_distance(drawn(BATCH, WIDTH) * 0.4)
    hsic = HSIC(Gaussian(sigma), Gaussian(SIGMA_S))
    result = {}
    for scale in (1.0, 10.0):
        seconds = medians(
            {
                "none": training_step(None, scale),
                "hsic": training_step(hsic, scale),
                "plain": training_step(lambda z, s: plain_hsic(z, s, sigma, SIGMA_S), scale),
                "published": training_step(lambda z, s: published_hsic(z, s, sigma, SIGMA_S), scale),
            },
            arguments.repeats,
        )
        result[f"z times {scale:g}"] = {
            "milliseconds": {name: round(1e3 * value, 4) for name, value in seconds.items()},
            "over no penalty": {
                name: round(seconds[name] / seconds["none"], 2) for name in ("hsic", "plain", "published")
            },
        }
    return result


def median_distance(x: Tensor) -> float:
    """Return the median pairwise distance."""
    return float(torch.pdist(x).median())


def measure_penalty(arguments: argparse.Namespace) -> dict[str, Any]:
    """HSIC with its gradient, S side included, over two bare products and one exponential; at most 2.5."""
    s = uniform(BATCH)
    z1 = drawn(BATCH, WIDTH)
    sigma = median_distance(z1)
    hsic = HSIC(Gaussian(sigma), Gaussian(SIGMA_S))
    sensible = -(torch.cdist(z1, z1) ** 2) / (2 * sigma**2)
    result = {}
    for scale in (1.0, 10.0):
        z = (z1 * scale).requires_grad_()
        bare_z = z.detach()

        def bare(bare_z: Tensor = bare_z) -> Tensor:
            _ = bare_z @ bare_z.T
            return torch.exp(sensible) @ bare_z

        def penalty(z: Tensor = z) -> object:
            return torch.autograd.grad(hsic(z, s), z)

        seconds = medians({"bare": bare, "penalty": penalty}, arguments.repeats)
        result[f"z times {scale:g}"] = {
            "milliseconds": {name: round(1e3 * value, 4) for name, value in seconds.items()},
            "over bare": round(seconds["penalty"] / seconds["bare"], 2),
        }
    return result


def measure_eipm(arguments: argparse.Namespace) -> dict[str, Any]:
    """EIPM with all 256 anchors, and its gradient, over a loop on anchors; at least 5 times faster."""
    z, s = drawn(BATCH, WIDTH).requires_grad_(), uniform(BATCH)
    measure = EIPM(Gaussian(median_distance(z.detach())), 0.5, range_s=1.0)

    def loop() -> object:
        K = measure.kernel_z.gram(z, z)
        V = torch.exp(-((s[:, None] - s) ** 2) / (2 * 0.5**2))
        total = z.new_zeros(())
        for i in range(BATCH):
            v = V[i].clone()
            v[i] = 0.0
            e = v / v.sum() - 1.0 / BATCH
            total = total + (e @ K @ e).clamp_min(1e-10).sqrt() / BATCH
        return torch.autograd.grad(total, z)

    def products() -> object:
        return torch.autograd.grad(measure(z, s), z)

    seconds = medians({"loop": loop, "products": products}, max(arguments.rounds, arguments.repeats // 10))
    return {
        "milliseconds": {name: round(1e3 * value, 3) for name, value in seconds.items()},
        "times faster": round(seconds["loop"] / seconds["products"], 1),
    }


def measure_permuted(arguments: argparse.Namespace) -> dict[str, Any]:
    """999 permutations of HSIC at n = 2,000; at most 5 seconds."""
    n = 2_000
    permutations = torch.stack(
        [torch.randperm(n, generator=torch.Generator().manual_seed(SEED + b)) for b in range(999)]
    )
    s = uniform(n, torch.float64)
    calls: dict[str, Call] = {}
    for d in (1, WIDTH):
        z = drawn(n, d, dtype=torch.float64)
        for estimator in ("biased", "unbiased"):
            measure = HSIC(estimator=estimator).calibrate(z, s)
            calls[f"d = {d}, {estimator}"] = partial(measure.permuted, z, s, permutations)
    seconds = medians(calls, min(3, arguments.rounds), warm_up=0)
    return {"seconds": {name: round(value, 2) for name, value in seconds.items()}}


_EXACT = """
import json, sys, time
import torch
from frhsic import HSIC
from frhsic import kernels
n, d, dtype, what = int(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
z, s = torch.randn(n, d, generator=g, dtype=dtype), torch.rand(n, generator=g, dtype=dtype)
measure = HSIC(kernels.Gaussian((2.0 * d) ** 0.5), getattr(kernels, sys.argv[5])(0.3))
block = 512
a, c = z / (2.0 * d) ** 0.5, (s / 0.3).unsqueeze(1)
a, c = 0.1 * a, 0.1 * c
def bare():
    for i in range(0, n, block):
        for j in range(i, n, block):
            (a[i:i + block] @ a[j:j + block].T).exp_()
            (c[i:i + block] @ c[j:j + block].T).exp_()
start = time.perf_counter()
value = bare() if what == "bare" else measure(z, s).item()
seconds = time.perf_counter() - start
# Not getrusage: its maximum is inherited from the process that started this one.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"seconds": seconds, "gigabytes": peak * 1024 / 1e9}))
"""


def measure_exact(arguments: argparse.Namespace) -> dict[str, Any]:
    """Exact HSIC at n = 50,000, d = 50 over a bare loop of the same tiles; at most 1.5, under 1.5 GB."""
    n, d = 50_000, 50
    result: dict[str, Any] = {"n": n, "d": d, "threads": 1}
    # The Laplace kernel on S has full rank: it shows the route without a thin factor.
    for dtype, kernel_s in (("float64", "Gaussian"), ("float32", "Gaussian"), ("float64", "Laplace")):
        runs: dict[str, list[dict[str, float]]] = {"bare": [], "hsic": []}
        for _ in range(min(3, arguments.rounds)):
            for what, done in runs.items():
                command = [sys.executable, "-c", _EXACT, str(n), str(d), dtype, what, kernel_s]
                output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                done.append(json.loads(output))
        seconds = {what: statistics.median(run["seconds"] for run in done) for what, done in runs.items()}
        result[f"{dtype}, {kernel_s} on S"] = {
            "seconds": {what: round(value, 2) for what, value in seconds.items()},
            "over bare": round(seconds["hsic"] / seconds["bare"], 2),
            "peak gigabytes": round(max(run["gigabytes"] for run in runs["hsic"]), 2),
        }
    return result


def measure_gdp(arguments: argparse.Namespace) -> dict[str, Any]:
    """GDP at n = 1,000,000; under 2 seconds, and within 1e-4 of the exact sum."""
    n = 1_000_000
    s = drawn(n, seed=2, dtype=torch.float64)
    f = torch.sigmoid(s.square() - 1.0 + 0.3 * drawn(n, seed=3, dtype=torch.float64))
    ages = (40 + 15 * s).round().clamp(17, 90)
    calls: dict[str, Call] = {
        "continuous": lambda: GDP(0.1)(f, s),
        "integer": lambda: GDP(0.1)(f, ages),
        "grid": lambda: GDP(0.1, weighting="grid")(f, s),
    }
    seconds = medians(calls, arguments.rounds, warm_up=1)
    rows = slice(0, 20_000)
    exact = exact_gdp(f[rows], s[rows], 0.1 * float(s[rows].max() - s[rows].min()))
    return {
        "n": n,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "error against the exact sum at n = 20,000": abs(GDP(0.1)(f[rows], s[rows]).item() - exact),
    }


def exact_gdp(f: Tensor, s: Tensor, bandwidth: float) -> float:
    """Return GDP from the sum over all pairs."""
    overall, total = float(f.mean()), 0.0
    for part in s.split(1_000):
        V = torch.exp(-((part[:, None] - s) ** 2) / (2 * bandwidth**2))
        total += float(((V @ f) / V.sum(dim=1) - overall).abs().sum())
    return total / len(s)


def measure_import(arguments: argparse.Namespace) -> dict[str, Any]:
    """``import frhsic`` over ``import torch, sklearn, pandas``; at most 1.3."""

    def importing(what: str) -> Call:
        return lambda: subprocess.run([sys.executable, "-c", f"import {what}"], check=True, env=os.environ)

    calls = {"frhsic": importing("frhsic"), "torch, sklearn, pandas": importing("torch, sklearn, pandas")}
    seconds = medians(calls, max(5, arguments.rounds), warm_up=1)
    return {
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "ratio": round(seconds["frhsic"] / seconds["torch, sklearn, pandas"], 2),
    }


def measure_float32(arguments: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001
    """Relative error of float32 HSIC at n = 20,000 against float64 on the same numbers; under 1e-4."""
    n, d = 20_000, WIDTH
    s = drawn(n, seed=4)
    z = drawn(n, d, seed=5)
    z[:, 0] = 0.5 * s + math.sqrt(0.75) * z[:, 0]
    measure = HSIC(Gaussian(math.sqrt(2.0 * d)), Gaussian(1.0))
    errors = {}
    for shift in (0.0, 1e4):
        moved = z + shift
        exact = measure(moved.double(), s.double()).item()
        errors[f"z + {shift:g}"] = abs(measure(moved, s).item() / exact - 1.0)
    return {"n": n, "d": d, "relative error": errors}


MEASUREMENTS = {
    "step": measure_step,
    "penalty": measure_penalty,
    "eipm": measure_eipm,
    "permuted": measure_permuted,
    "exact": measure_exact,
    "gdp": measure_gdp,
    "import": measure_import,
    "float32": measure_float32,
}


def run(arguments: argparse.Namespace) -> None:
    """Run the measurements, print them and write benchmarks/results/micro.json."""
    torch.set_num_threads(1)
    chosen = arguments.only or list(MEASUREMENTS)
    results: dict[str, Any] = {}
    for name in chosen:
        measure = MEASUREMENTS[name]
        print(f"{name}: {(measure.__doc__ or '').strip()}", flush=True)
        results[name] = {"what": (measure.__doc__ or "").strip(), **measure(arguments)}
        print(f"  {results[name]}", flush=True)
    if arguments.only is None:
        path = write("micro.json", {**provenance(seed=SEED, threads=1), "results": results})
        print(f"written to {path.name}")
