"""What becomes of a sketch when workers, nodes, files or the driver fail: a table of faults.

Forty files. After each fault the result must be, bit by bit, that of one undisturbed process, or the error
must name the file; once the file is mended, a second run goes on from the partial results of the first.
"""

import argparse
import contextlib
import functools
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._processes import descendants, title
from benchmarks._record import provenance, write
from frhsic.kernels import Gaussian
from frhsic.runners import Engine, Local, Pool, Ray, RunProgress, sketch_source
from frhsic.sketching import HSICSketch
from frhsic.sources import open_source, write_table

FILES, ROWS, PATIENCE = 40, 250_000, 600.0
IDENTICAL, NAMED = "identical", "error names the file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of each of the 40 files")
    parser.add_argument("--only", nargs="*", default=None, help="beginnings of the faults to try")


@dataclass(frozen=True)
class Case:
    """Files to sketch, and the undisturbed result."""

    folder: Path
    suffix: str
    truth: bytes

    @property
    def files(self) -> list[Path]:
        """The files, in order."""
        return sorted((self.folder / "files").glob(f"*.{self.suffix}"))

    @property
    def partials(self) -> Path:
        """Where partial results are kept."""
        return self.folder / "partials"

    def identical(self, result: HSICSketch) -> None:
        """Insist on the undisturbed result."""
        if result.to_bytes() != self.truth:
            raise AssertionError("the result differs from the undisturbed one")


def made(folder: Path, rows: int, suffix: str = "parquet") -> Case:
    """Write the files and sketch them in one process."""
    (folder / "files").mkdir(parents=True)
    g = np.random.default_rng(0)
    for number in range(FILES):
        age = np.clip(np.round(42.0 + 14.0 * g.standard_normal(rows)), 17.0, 90.0)
        columns = {f"z{j}": (g.standard_normal(rows) + (age - 42.0) ** 2 / 400.0) for j in range(2)}
        # Written once here and read by every run: never touched between two of them.
        write_table(
            {**{k: v.astype(np.float32) for k, v in columns.items()}, "age": age.astype(np.int8)},
            folder / "files" / f"part-{number + 1:02}.{suffix}",
        )
    case = Case(folder, suffix, b"")
    return Case(folder, suffix, sketched(case).to_bytes())


def sketched(
    case: Case,
    engine: Engine = Local(),  # noqa: B008
    *,
    partials: Path | None = None,
    progress: Callable[[RunProgress], None] | None = None,
    files: Sequence[Path] | None = None,
) -> HSICSketch:
    """Sketch all files."""
    source = open_source(list(files or case.files), batch_rows=16_384)
    empty = HSICSketch(Gaussian(1.5), Gaussian(15.0), n_features=(64, 32))
    z = ["z0", "z1"]
    return sketch_source(source, empty, z=z, s="age", engine=engine, partials=partials, progress=progress)


class Once:
    """A progress callback that tries to do something from the first finished piece on, until it is done."""

    def __init__(self, act: Callable[[], bool]) -> None:
        self._act = act
        self._rows = 0
        self.acted = False
        self.lost = 0  # rows that are to be read again
        self.last: RunProgress | None = None

    def __call__(self, progress: RunProgress) -> None:
        """Look at the progress."""
        self.lost += max(0, self._rows - progress.rows)
        self._rows, self.last = progress.rows, progress
        if not self.acted and progress.pieces > progress.found:
            self.acted = self._act()

    def insist(self) -> None:
        """Fail if nothing was done, because then nothing was tested."""
        if not self.acted:
            raise AssertionError("the run was over before the fault")


def pool_worker(case: Case) -> str:
    """Kill -9 of all pool workers at once."""

    def kill() -> bool:
        workers = multiprocessing.active_children()
        for one in workers:
            one.kill()
        return bool(workers)

    once = Once(kill)
    case.identical(sketched(case, Pool(2), progress=once))
    once.insist()
    return f"{once.lost:,} rows read again"


def ray_worker(case: Case) -> str:
    """Kill -9 of a Ray worker with a task."""
    _cluster()

    def kill() -> bool:
        busy = _busy(os.getpid())
        for pid in busy:
            os.kill(pid, signal.SIGKILL)
        return bool(busy)

    once = Once(kill)
    case.identical(sketched(case, Ray(), progress=once))
    once.insist()
    return "its task was done again"


def ray_node(case: Case) -> str:
    """Loss of one of two Ray nodes with a task."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    cluster = _cluster()
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    ray.get(ray.remote(_warm).options(scheduling_strategy=there).remote())
    (raylet,) = (one.process.pid for one in node.all_processes["raylet"])

    def lose() -> bool:
        busy = bool(_busy(raylet))
        if busy:
            cluster.remove_node(node, allow_graceful=False)
        return busy

    once = Once(lose)
    case.identical(sketched(case, Ray(), progress=once))
    once.insist()
    return "its task was done by the other node"


def _warm() -> None:
    """Load what a task needs, so that it begins at once."""
    import frhsic.runners  # noqa: F401


def _busy(pid: int) -> list[int]:
    """Return the Ray workers below a process that have a task."""
    return [one for one in descendants(pid) if title(one).startswith("ray::sketch_unit")]


@functools.cache
def _cluster() -> Any:
    """Start a Ray node of one core, and connect to it."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    return cluster


def release() -> None:
    """End Ray, if it was begun."""
    if _cluster.cache_info().currsize:
        import ray

        ray.shutdown()
        _cluster().shutdown()
        _cluster.cache_clear()


def driver(case: Case) -> str:
    """Kill -9 of the driver of a pool, and another run."""
    command = [sys.executable, "-m", "benchmarks.scale.faults", str(case.folder), case.suffix]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, cwd=root)
    _until(lambda: len(list(case.partials.glob("*.partial"))) >= 2 or process.poll() is not None)
    orphans = descendants(process.pid)
    process.kill()
    if process.wait() != -signal.SIGKILL:
        raise AssertionError(f"the driver ended by itself, with {process.returncode}")
    _until(lambda: not any("spawn_main" in title(pid) for pid in orphans))
    return f"workers ended by themselves; {_resumed(case)}"


def truncated(case: Case) -> str:
    """Half of a file gone."""
    file = case.files[20]
    with _kept(file):
        os.truncate(file, file.stat().st_size // 2)
        _refused(lambda: sketched(case), file)
    case.identical(sketched(case))
    return "before the first row is read"


def corrupted(case: Case) -> str:
    """Bytes of a data page overwritten."""
    file = case.files[20]
    with _kept(file):
        with file.open("r+b") as content:
            content.seek(file.stat().st_size // 2)
            content.write(b"\xa5" * 64)
        _refused(lambda: sketched(case, Pool(1), partials=case.partials), file)
    return _resumed(case)


def column(case: Case) -> str:
    """Column missing in file 37."""
    file = case.files[36]
    with _kept(file):
        write_table({"z0": [0.5], "age": [40]}, file)
        _refused(lambda: sketched(case), file, "z1")
    case.identical(sketched(case))
    return "before the first row is read"


def deleted(case: Case) -> str:
    """File deleted while others are read."""
    file = case.files[-1]
    with _kept(file):
        once = Once(_doing(file.unlink))
        _refused(lambda: sketched(case, partials=case.partials, progress=once), file)
        once.insist()
    return _resumed(case)


def changed(case: Case) -> str:
    """File rewritten while others are read."""
    file = case.files[-1]
    with _kept(file):
        once = Once(_doing(lambda: write_table({"z0": [0.5], "z1": [0.5], "age": [40]}, file)))
        _refused(lambda: sketched(case, partials=case.partials, progress=once), file, "changed")
        once.insist()
    return _resumed(case)


def partials(case: Case) -> str:
    """Partial results damaged, torn or interchanged."""
    case.identical(sketched(case, partials=case.partials))
    flipped, torn, one, two, *_ = sorted(case.partials.glob("*.partial"))
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    os.truncate(torn, torn.stat().st_size - 8)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return _resumed(case, lost=4)


def order(case: Case) -> str:
    """Files in another order."""
    case.identical(sketched(case, files=case.files[::-1]))
    return "read in the order of names"


FAULTS: dict[str, tuple[Callable[[Case], str], str]] = {
    "pool worker": (pool_worker, IDENTICAL),
    "ray worker": (ray_worker, IDENTICAL),
    "ray node": (ray_node, IDENTICAL),
    "driver": (driver, IDENTICAL),
    "truncated file": (truncated, NAMED),
    "corrupted file": (corrupted, NAMED),
    "missing column": (column, NAMED),
    "deleted file": (deleted, NAMED),
    "changed file": (changed, NAMED),
    "damaged partials": (partials, IDENTICAL),
    "order of files": (order, IDENTICAL),
}


@contextlib.contextmanager
def _kept(file: Path) -> Iterator[None]:
    """Put a file back as it was, its time of change included."""
    copy = file.with_suffix(".kept")
    shutil.copy2(file, copy)
    try:
        yield
    finally:
        shutil.move(copy, file)


def _doing(act: Callable[[], None]) -> Callable[[], bool]:
    """Return an act that always succeeds."""

    def done() -> bool:
        act()
        return True

    return done


def _refused(act: Callable[[], object], file: Path, *words: str) -> None:
    """Insist on an error that names the file."""
    try:
        act()
    except (OSError, ValueError) as error:
        if not all(word in str(error) for word in (file.name, *words)):
            raise AssertionError(f"the error does not say what is wrong: {error}") from error
        return
    raise AssertionError("no error")


def _resumed(case: Case, lost: int | None = None) -> str:
    """Insist on the undisturbed result from what is there and what is missing; say how much was there."""
    once = Once(lambda: True)
    case.identical(sketched(case, partials=case.partials, progress=once))
    assert once.last is not None
    found, whole = once.last.found, once.last.all_pieces
    units = len(list(case.partials.glob("*.partial")))
    if not 0 < found < whole or (lost is not None and (whole - found) * units != lost * whole):
        raise AssertionError(f"{found} of {whole} pieces were found")
    return f"{found} of {whole} files not read again"


def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise AssertionError("it took too long")
        time.sleep(0.002)


def tried(name: str, case: Case) -> dict[str, Any]:
    """Return what became of a fault."""
    act, expected = FAULTS[name]
    shutil.rmtree(case.partials, ignore_errors=True)
    start = time.perf_counter()
    try:
        detail, result = act(case), expected
    except AssertionError as error:
        detail, result = str(error), "FAILED"
    return {
        "fault": (act.__doc__ or "").rstrip("."),
        "result": result,
        "detail": detail,
        "seconds": round(time.perf_counter() - start, 1),
    }


def run(arguments: argparse.Namespace) -> None:
    """Try every fault, print the table and write benchmarks/results/faults.json."""
    names = [n for n in FAULTS if arguments.only is None or n.startswith(tuple(arguments.only))]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        case = made(Path(folder) / "case", arguments.rows)
        print("| fault | result | detail | seconds |\n| --- | --- | --- | --- |", flush=True)
        for name in names:
            rows.append(tried(name, case))
            print(f"| {' | '.join(map(str, rows[-1].values()))} |", flush=True)
    release()
    if arguments.only is None:
        path = write("faults.json", {**provenance(files=FILES, rows=arguments.rows), "faults": rows})
        print(f"written to {path.name}")


if __name__ == "__main__":  # the driver that is to be killed
    _case = Case(Path(sys.argv[1]), sys.argv[2], b"")
    sketched(_case, Pool(2), partials=_case.partials)
