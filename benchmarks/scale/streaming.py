"""One pass over a Parquet dataset of 10^7 rows that is never in memory: peak memory, speed, what is learned.

Eight columns, age and a label that depends on one column and, by a U-shape, on age. Files are sorted by age.
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks._processes import peak_memory
from benchmarks._record import provenance, write
from benchmarks._simulate import rng
from frhsic import GDP, FRHSICClassifier
from frhsic.sources import open_source, shuffle, write_table

ROWS, FILES, TEST = 10**7, 20, 100_000
X = [f"x{j}" for j in range(8)]
LAMS, BATCH = (0.0, 10.0), 1_024
MOST_MEMORY = 1_500.0  # MB, what the issue asks for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path, help="where the files are kept; a temporary one by default")


def drawn(n: int, number: int) -> pa.Table:
    """Return rows, sorted by age."""
    g = rng("streaming", number)
    age = np.sort(g.uniform(18.0, 90.0, n))
    x = g.standard_normal((n, len(X)))
    x[:, 1] += 2.0 * ((age - 54.0) / 36.0) ** 2
    label = g.uniform(size=n) < 1.0 / (1.0 + np.exp(0.7 - x[:, 0] - x[:, 1]))
    columns = {name: x[:, j] for j, name in enumerate(X)}
    return pa.table(columns | {"age": age, "label": label.astype(np.int8)})


def one_pass(folder: Path, rows: int, lam: float) -> dict[str, Any]:
    """Train on every row once, in this process, and judge on rows that were not there."""
    torch.set_num_threads(1)
    before = peak_memory(os.getpid())
    source = open_source(str(folder / "*.parquet"))
    model = FRHSICClassifier(lam=lam, batch_size=BATCH, random_state=0)
    clock, cpu = time.perf_counter(), time.process_time()
    for batch in shuffle(source, random_state=0):
        model.partial_fit(
            batch.select(X), batch["label"], classes=[0, 1], sensitive_features=batch.select(["age"])
        )
    seconds, busy = time.perf_counter() - clock, time.process_time() - cpu
    peak = peak_memory(os.getpid())
    (test,) = drawn(TEST, FILES).to_batches()
    score, age = model.predict_proba(test.select(X))[:, 1], np.array(test["age"])
    return {
        "lam": lam,
        "rows": rows,
        "calls": model.n_iter_,
        "MB before": round(before),
        "MB at most": round(peak),
        "within": peak <= MOST_MEMORY,
        "seconds": round(seconds, 1),
        "rows per CPU second": round(rows / busy),
        "accuracy": round(float(np.mean((score > 0.5) == test["label"].to_numpy())), 4),
        "gdp": round(GDP(0.1)(torch.from_numpy(score), torch.from_numpy(age)).item(), 4),
    }


def run(arguments: argparse.Namespace) -> None:
    """Write the files that are missing, and train on them in a process for each strength."""
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = (arguments.folder or Path(temporary)) / f"streaming-{arguments.rows}"
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(FILES):
            path = folder / f"{number:02}.parquet"
            if not path.exists():
                write_table(drawn(arguments.rows // FILES, number), path)
        result = []
        for lam in LAMS:
            # A new process: memory of the one before would count.
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                result.append(pool.submit(one_pass, folder, arguments.rows, lam).result())
            print(result[-1], flush=True)
    if arguments.rows >= ROWS:
        print(write("streaming.json", {**provenance(batch=BATCH), "result": result}))
