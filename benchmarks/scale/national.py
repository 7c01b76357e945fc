"""1.5 million people of the census: an audit of a model's scores, beside what other packages can do there."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._protocol import CACHE
from benchmarks._record import Runs
from frhsic import FRHSICClassifier
from frhsic.datasets import fetch_acs_income, make_preprocessor
from frhsic.sources import write_table

TRAINED, EPOCHS = 20_000, 30
REPEATS = 3
# Other packages are asked for twice as many rows until one asking takes longer, or more memory, than this.
MOST_SECONDS, MOST_GIGABYTES = 60.0, 8.0
FIRST = 1_000
SEED = 20_261_115

_CHILD = """
import json, resource, sys, time
what, path, n, most = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
start = time.perf_counter()
if what == "frhsic audit":
    from frhsic.cli import run
    columns = ["--score", "score", "--sensitive", "age", "--label", "rich", "--held-out"]
    code = run(["audit", path, *columns, "--json", path + ".json"])
    found = json.load(open(path + ".json"))
    one = found["attributes"][0]
    names = ("gdp", "normalized_hsic")
    value = {"n": found["n"], **{name: one["measures"][name]["estimate"] for name in names}}
else:
    resource.setrlimit(resource.RLIMIT_AS, (int(most * 1e9), int(most * 1e9)))
    import numpy as np, pyarrow.parquet
    table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
    rows = np.random.default_rng(0).permutation(table.num_rows)[:n]
    score, age, rich = (table[name].to_numpy()[rows] for name in ("score", "age", "rich"))
    z, s = score.astype(float), age.astype(float)
    if what == "fairlearn MetricFrame":
        from fairlearn.metrics import MetricFrame, selection_rate
        chosen = (z > 0.5).astype(int)
        frame = MetricFrame(metrics=selection_rate, y_true=rich, y_pred=chosen, sensitive_features=age)
        value = {"groups": len(frame.by_group), "largest difference": float(frame.difference())}
    elif what == "dcor":
        import dcor
        value = {"distance correlation": float(dcor.distance_correlation(z, s))}
    elif what == "hyppo Hsic":
        from hyppo.independence import Hsic
        value = {"HSIC": float(Hsic().statistic(z[:, None], s[:, None]))}
    else:
        from hyppo.independence import Dcorr
        value = {"p": float(Dcorr().test(z[:, None], s[:, None], auto=True)[1])}
seconds = time.perf_counter() - start
status = open("/proc/self/status").read().splitlines()
peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024 / 1e9
print("\\n" + json.dumps({"seconds": seconds, "gigabytes": peak, **value}))
"""
PEERS = ("fairlearn MetricFrame", "dcor", "hyppo Hsic", "hyppo Dcorr test")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


def scored() -> Path:
    """Return a file with the scores of a model of 20,000 people for 1,507,193."""
    path = CACHE / "national.parquet"
    if path.exists():
        return path
    people = fetch_acs_income("US", coarse=True)
    age = people.sensitive_features["AGEP"].to_numpy()
    few = np.random.default_rng(SEED).permutation(len(age))[:TRAINED]
    scaled = make_preprocessor(people).fit(people.data.iloc[few])
    target = np.asarray(people.target)
    model = FRHSICClassifier(lam=0.0, epochs=EPOCHS, random_state=0)
    model.fit(scaled.transform(people.data.iloc[few]), target[few], sensitive_features=age[few])
    parts = [slice(start, start + 100_000) for start in range(0, len(age), 100_000)]
    score = np.concatenate(
        [model.predict_proba(scaled.transform(people.data.iloc[part]))[:, 1] for part in parts]
    )
    CACHE.mkdir(exist_ok=True)
    write_table({"age": age, "score": score.astype(np.float32), "rich": target}, path)
    return path


def asked(what: str, path: Path, n: int) -> dict[str, Any]:
    """Ask in a process of its own and of one thread; say how it ended."""
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, what, str(path), str(n), str(MOST_GIGABYTES)]
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "NUMBA", "OPENBLAS", "MKL")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **threads}, timeout=10 * MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"ended": f"after {10 * MOST_SECONDS:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"ended": lines[-1][:120] if lines else f"exit {done.returncode}"}
    return {"ended": "well", **json.loads(done.stdout.splitlines()[-1])}


def run(arguments: argparse.Namespace) -> None:
    """Audit, ask the others for as many rows as they can hold, write benchmarks/results/national.json."""
    runs = Runs("national.json", fresh=arguments.fresh, seed=SEED)
    path = scored()
    for repeat in range(arguments.repeats):
        key: dict[str, Any] = {"what": "frhsic audit", "rows": 1_507_193, "repeat": repeat}
        if runs.missing(**key):
            runs.add(**key, **asked("frhsic audit", path, 0))
            print(runs.runs[-1], flush=True)
    for what in PEERS:
        n = FIRST
        while n:
            key = {"what": what, "rows": min(n, 1_507_193), "repeat": 0}
            if runs.missing(**key):
                runs.add(**key, **asked(what, path, n))
                print(runs.runs[-1], flush=True)
            (last,) = (one for one in runs.runs if all(one.get(k) == v for k, v in key.items()))
            enough = last["ended"] != "well" or last["seconds"] > MOST_SECONDS or n >= 1_507_193
            n = 0 if enough else 2 * n
    print(runs.write(largest=largest(runs.runs)))


def largest(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each package the most rows that it took, and what ended the next asking."""
    found = []
    for what in ("frhsic audit", *PEERS):
        mine = sorted((one for one in runs if one["what"] == what), key=lambda one: one["rows"])
        well = [one for one in mine if one["ended"] == "well"]
        ended = [one["ended"] for one in mine if one["ended"] != "well"]
        if well:
            same = [one for one in well if one["rows"] == well[-1]["rows"]]
            middle = sorted(same, key=lambda one: one["seconds"])[len(same) // 2]
            found.append({**middle, "then": ended[0] if ended else ""})
    return found
