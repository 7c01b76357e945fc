"""A table of PostgreSQL audited and sketched over ADBC: rows per second, memory, and what Parquet gives.

Scores, ages and labels are written as Parquet and copied to a server that is started here, by a user without
rights, on a socket in a temporary folder. Both are then sketched by a process of their own, and the table is
audited by the command line: a tenth of it, and all of it.
"""

import argparse
import contextlib
import glob
import json
import multiprocessing
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks._record import provenance, write
from benchmarks._simulate import rng
from frhsic.sketching import HSICSketch
from frhsic.sources import open_source, open_sql

ROWS, SAMPLE, CHUNK = 5_000_000, 5_000, 100_000
VARIABLE = "FRHSIC_BENCHMARK_DATABASE"
QUERY = "select id, score, age, label from scores"
SOURCES = ("postgresql", "parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rows", type=int, default=ROWS)


@contextlib.contextmanager
def server(password: str) -> Iterator[str]:
    """Start PostgreSQL with a user 'auditor'; yield the folder of its socket, which is its host.

    FileNotFoundError where no server is installed.
    """
    # Debian does not put it on the path.
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    initdb = found[-1] if found else shutil.which("initdb")
    if initdb is None:
        raise FileNotFoundError("No PostgreSQL server is installed (on Debian: apt-get install postgresql).")
    binaries = os.path.dirname(initdb)
    root = os.geteuid() == 0  # it refuses to run as root
    somebody: dict[str, Any] = (
        {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []} if root else {}
    )
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        if root:
            shutil.chown(folder, "nobody")

        def call(program: str, *options: str) -> None:
            done = subprocess.run(
                [f"{binaries}/{program}", "-D", "data", *options],
                cwd=folder,
                capture_output=True,
                env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
                check=False,
                **somebody,
            )
            if done.returncode:
                raise RuntimeError(done.stderr.decode())

        with open(f"{folder}/password", "w") as file:
            file.write(password)
        os.chmod(f"{folder}/password", 0o644)
        call("initdb", "-A", "scram-sha-256", "-U", "auditor", "--pwfile=password", "--no-sync", "-E", "UTF8")
        flags = f"-k {folder} -c listen_addresses= -c fsync=off -c max_connections=6 "
        flags += "-c superuser_reserved_connections=0"
        call("pg_ctl", "-w", "-l", "log", "-o", flags, "start")
        try:
            yield folder
        finally:
            call("pg_ctl", "-m", "immediate", "stop")


def fill(path: str, rows: int) -> None:
    """Write scores that rise with age and label, some rows at a time, and copy them to the server."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]

    kinds = {"id": pa.int64(), "score": pa.float64(), "age": pa.int32(), "label": pa.int32()}
    with pq.ParquetWriter(path, pa.schema(kinds), write_page_checksum=True) as writer:
        for first in range(0, rows, CHUNK):
            g, n = rng("postgres", first), min(CHUNK, rows - first)
            age, label = g.integers(18, 91, n), g.integers(0, 2, n)
            score = 0.5 + 0.003 * (age - 54) + 0.2 * (label - 0.5) + 0.15 * g.standard_normal(n)
            columns = {"id": range(first, first + n), "score": score, "age": age, "label": label}
            writer.write_table(pa.table(columns, schema=pa.schema(kinds)))
    source = open_source(path)
    with dbapi.connect(os.environ[VARIABLE]) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("scores", pa.RecordBatchReader.from_batches(source.schema, source))
        connection.commit()


def peak() -> float:
    """Return the most megabytes so far. Not ru_maxrss, which begins with those of the parent."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def one_pass(kind: str, path: str, rows: int) -> dict[str, Any]:
    """Sketch all rows, with the labels apart, in this process."""
    torch.set_num_threads(1)
    columns = ["id", "score", "age", "label"]
    first = next(iter(open_source(path, columns=columns, batch_rows=SAMPLE)))
    sketch = HSICSketch.like(first.select(["score"]), first.select(["age"]))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins here
    before, seen, early = peak(), 0, 0.0
    clock, cpu = time.perf_counter(), time.process_time()
    source = open_sql(VARIABLE, QUERY) if kind == "postgresql" else open_source(path, columns=columns)
    for batch in source:
        sketch.update(
            batch.select(["score"]), batch.select(["age"]), given=batch["label"], ids=batch["id"].to_numpy()
        )
        seen += batch.num_rows
        if not early and seen >= rows // 10:
            early = peak()
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    return {
        "source": kind,
        "rows": sketch.n_rows,
        "seconds": clock,
        "cpu_seconds": cpu,
        "rows_per_second": seen / clock,
        "rows_per_cpu_second": seen / cpu,
        "megabytes_before": before,
        "more_after_a_tenth": early - before,
        "more_after_all": peak() - before,
        "hsic": sketch.value(),
        "hsic_normalized": sketch.value(normalized=True),
        "hsic_at_labels": [sketch.at(level).value() for level in sketch.labels],
        "bytes": len(sketch.to_bytes()),
    }


_AUDIT = """
import sys
from benchmarks.scale.postgres import peak
from frhsic.cli import run
code = run(sys.argv[1:])
print(f"peak {peak()}")
sys.exit(code)
"""


def audited(rows: int, place: str, password: str) -> dict[str, Any]:
    """Audit the first rows of the table by the command line, in a process of its own."""
    query = f"select id, score, age, label from scores where id < {rows}"
    options = ["--score", "score", "--sensitive", "age", "--label", "label", "--held-out"]
    options += ["--json", f"{place}/audit.json", "--report", f"{place}/audit.html"]
    command = [sys.executable, "-c", _AUDIT, "audit", VARIABLE, "--query", query, *options]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    written = [done.stdout, done.stderr]
    for name in ("audit.json", "audit.html"):
        with open(f"{place}/{name}") as file:
            written.append(file.read())
    found = json.loads(written[2])
    (one,) = found["attributes"]
    return {
        "rows": found["n"],
        "seconds": seconds,
        "megabytes": float(done.stdout.splitlines()[-1].removeprefix("peak ")),
        "gdp": one["measures"]["gdp"]["estimate"],
        "hsic_normalized": one["measures"]["normalized_hsic"]["estimate"],
        "password_in_what_was_written": any(password in text for text in written),
    }


def run(arguments: argparse.Namespace) -> None:
    """Fill, sketch both, audit, print, write benchmarks/results/postgres.json."""
    password = secrets.token_urlsafe()
    with server(password) as folder, tempfile.TemporaryDirectory() as place:
        os.environ[VARIABLE] = f"postgresql://auditor:{password}@/postgres?host={folder}"
        os.environ["OMP_NUM_THREADS"] = "1"  # read by the workers when they load their libraries
        path = f"{place}/scores.parquet"
        start = time.perf_counter()
        fill(path, arguments.rows)
        print(f"{arguments.rows:,} rows filled in {time.perf_counter() - start:.0f} s", flush=True)
        passes = []
        for kind in SOURCES:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                passes.append(pool.apply(one_pass, (kind, path, arguments.rows)))
            one = passes[-1]
            print(
                f"{kind}: {one['rows_per_second'] / 1e6:.2f} million rows/s, of CPU time "
                f"{one['rows_per_cpu_second'] / 1e6:.2f}; {one['more_after_a_tenth']:.0f} MB more after a "
                f"tenth of the rows, {one['more_after_all']:.0f} after all; HSIC {one['hsic']:.6g}",
                flush=True,
            )
        audits = [audited(rows, place, password) for rows in (arguments.rows // 10, arguments.rows)]
        for one in audits:
            print(
                f"audit of {one['rows']:,} rows: {one['seconds']:.1f} s, {one['megabytes']:.0f} MB",
                flush=True,
            )
    here, there = passes
    apart = max(abs(here[name] / there[name] - 1.0) for name in ("hsic", "hsic_normalized"))
    result = provenance(
        seed="rng('postgres', first row)", passes=passes, audits=audits, largest_relative_difference=apart
    )
    print(f"largest relative difference {apart:.1e}; written to {write('postgres.json', result).name}")
