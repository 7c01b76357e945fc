"""Adult trained by one process and by two (torchrun, gloo): the same frontier points within seed noise.

Both minimise the cross-entropy plus lam times the default penalty, by features, over all rows of a global
batch of about 256; of two processes one has three fifths of the rows, and each mixes its own. The estimator,
with exact kernels, stands beside them.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from scipy import stats
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel

from benchmarks._protocol import SEEDS, split_of
from benchmarks._record import RESULTS, Runs
from frhsic import GDP, HSIC, FRHSICClassifier, Penalty, Training
from frhsic.collectives import all_mean
from frhsic.engine import GlobalBatch, make_net
from frhsic.kernels import Gaussian, Linear
from frhsic.sketching import FeatureHSIC

LAMS, EPOCHS, BATCH, RATE = (0.0, 1.0, 10.0), 30, 256, 1e-3
WAYS = ("estimator", "1 process", "2 processes")
METRICS = ("accuracy", "gdp", "hsic")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--lams", type=float, nargs="+", default=LAMS)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")
    parser.add_argument("--quick", action="store_true", help="results in a temporary file")


def judged(score: torch.Tensor, y: torch.Tensor, s: torch.Tensor) -> dict[str, float]:
    """Return accuracy of a score, and its dependence on age, on test rows."""
    measure = HSIC(Gaussian("scale-free"), estimator="unbiased", normalized=True)
    return {
        "accuracy": float(((score > 0.5) == (y == 1)).double().mean()),
        "gdp": GDP(0.1)(score, s).item(),
        "hsic": measure(score, s).item(),
    }


def trained(repeat: int, lam: float, epochs: int) -> dict[str, float] | None:
    """Train as one of the processes that there are, and return what the first of them finds."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    split = split_of("adult", repeat)
    g = torch.Generator().manual_seed(SEEDS[repeat])
    net = make_net(split.x.shape[1], 1, generator=g)
    model = DistributedDataParallel(net)
    n = len(split.x)
    cut = n if world == 1 else 3 * n // 5
    own = torch.randperm(n, generator=g).tensor_split([cut])[rank]
    x, y, s = (torch.from_numpy(part)[own].float() for part in (split.x, split.y, split.s))
    penalty = GlobalBatch(
        Penalty(FeatureHSIC(Linear()), on="prediction")
        + Penalty(FeatureHSIC(Gaussian("scale-free"), estimator="unbiased"))
    )
    with torch.no_grad():
        z, prediction = net(x)
        penalty = penalty.calibrate(z, prediction, s)
    adam = torch.optim.Adam(net.parameters(), lr=RATE)
    draws = torch.Generator().manual_seed(1_000 * SEEDS[repeat] + rank)
    start = time.perf_counter()
    for _ in range(epochs):
        # As many steps for each process, whatever its number of rows.
        for mine in torch.randperm(len(own), generator=draws).tensor_split(math.ceil(n / BATCH)):
            z, prediction = model(x[mine])
            loss = all_mean(
                binary_cross_entropy_with_logits(prediction.squeeze(-1), y[mine], reduction="none")
            )
            if lam > 0:
                loss = loss + lam * penalty(z, prediction, s[mine])
            adam.zero_grad()
            loss.backward()
            adam.step()
    seconds = time.perf_counter() - start
    dist.destroy_process_group()
    if rank > 0:
        return None
    with torch.no_grad():
        score = net(torch.from_numpy(split.x_test).float())[1][:, 0].sigmoid().double()
    found = judged(score, torch.from_numpy(split.y_test), torch.from_numpy(split.s_test))
    return found | {"seconds": round(seconds, 1)}


def launched(processes: int, repeat: int, lam: float, epochs: int) -> dict[str, float]:
    """Start so many processes and return what they find."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc_per_node", str(processes), "-m", "benchmarks.scale.distributed"]
        command += [str(repeat), str(lam), str(epochs), str(path)]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        found: dict[str, float] = json.loads(path.read_text())
    return found


def estimated(repeat: int, lam: float, epochs: int) -> dict[str, float]:
    """Train the estimator, with exact kernels."""
    torch.set_num_threads(1)
    split = split_of("adult", repeat)
    model = FRHSICClassifier(
        lam=lam,
        epochs=epochs,
        batch_size=BATCH,
        learning_rate=RATE,
        random_state=SEEDS[repeat],
        training=Training(scaling="none"),
    )
    start = time.perf_counter()
    model.fit(split.x, split.y, sensitive_features=split.s)
    seconds = time.perf_counter() - start
    score = torch.from_numpy(model.predict_proba(split.x_test)[:, 1])
    found = judged(score, torch.from_numpy(split.y_test), torch.from_numpy(split.s_test))
    return found | {"seconds": round(seconds, 1)}


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, and print each point and the difference of two processes from one."""
    name = "distributed-quick.json" if arguments.quick else "distributed.json"
    runs = Runs(name, fresh=arguments.fresh or arguments.quick, epochs=arguments.epochs, batch=BATCH)
    for repeat in range(arguments.seeds):
        for lam in arguments.lams:
            for way in WAYS:
                key = {"way": way, "lam": lam, "repeat": repeat, "epochs": arguments.epochs}
                if not runs.missing(**key):
                    continue
                if way == "estimator":
                    found = estimated(repeat, lam, arguments.epochs)
                else:
                    found = launched(int(way[0]), repeat, lam, arguments.epochs)
                runs.add(**key, **found)
                print(runs.runs[-1], flush=True)
    summary = summarised(runs.runs, arguments)
    for row in summary:
        print(row)
    print(runs.write(summary=summary))
    if arguments.quick:
        (RESULTS / name).unlink()


def summarised(runs: list[dict[str, Any]], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return means over the splits, and the paired difference with its 95 % interval."""
    rows = []
    for lam in arguments.lams:
        for metric in METRICS:
            by_way = {
                way: [
                    r[metric]
                    for repeat in range(arguments.seeds)
                    for r in runs
                    if (r["way"], r["lam"], r["repeat"], r["epochs"]) == (way, lam, repeat, arguments.epochs)
                ]
                for way in WAYS
            }
            row: dict[str, Any] = {"lam": lam, "metric": metric}
            row |= {way: round(statistics.mean(values), 4) for way, values in by_way.items()}
            k = arguments.seeds
            if k > 1:
                one, two = by_way["1 process"], by_way["2 processes"]
                apart = [b - a for a, b in zip(one, two, strict=True)]
                reach = stats.t.ppf(0.975, k - 1) * statistics.stdev(apart) / math.sqrt(k)
                row["sd over splits"] = round(statistics.stdev(one), 4)
                row["two minus one"] = round(statistics.mean(apart), 4)
                row["give or take"] = round(float(reach), 4)
                row["within noise"] = bool(abs(statistics.mean(apart)) <= reach)
            rows.append(row)
    return rows


if __name__ == "__main__":
    result = trained(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    if result is not None:
        Path(sys.argv[4]).write_text(json.dumps(result))
