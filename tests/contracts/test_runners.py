"""One sketch of many files: the same whoever computes it and whatever fails, or an error names the file."""

import importlib.util
import itertools
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from benchmarks.scale import faults
from frhsic.kernels import Delta, Gaussian, OnColumns
from frhsic.runners import Local, Pool, Ray, _engines, _run, sketch_source
from frhsic.runners._run import _join_pieces, _Tree
from frhsic.runners._work import Job
from frhsic.sketching import HSICSketch
from frhsic.sources import Piece, open_source, write_table

N, FILES = 6_000, 6
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="faults are made by what Linux offers")


def table(seed=0, n=N):
    g = np.random.default_rng(seed)
    age = g.integers(18, 90, n)
    return pa.table(
        {
            "score": (g.standard_normal(n) + (age - 54) ** 2 / 500).astype(np.float32),
            "other": g.standard_normal(n),
            "age": age.astype(np.int8),
            "income": g.lognormal(size=n),
            "job": np.array(["chef", "nurse"])[g.integers(0, 2, n)],
            "weight": g.random(n) * (g.random(n) > 0.2),
            "label": g.integers(0, 2, n),
            "customer": g.permutation(n) * 1_000,
        }
    )


def cut(whole, folder, files=FILES, row_group_size=None):
    """Write a table as Parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-whole.num_rows // files)
    for j in range(files):
        path = folder / f"{j}.parquet"
        part = whole.slice(j * size, size)
        if row_group_size is None:
            write_table(part, path)
        else:
            pa.parquet.write_table(part, path, row_group_size=row_group_size)
    return str(folder / "*.parquet")


def empty(**more):
    return HSICSketch(Gaussian(1.0), Gaussian(15.0), n_features=(32, 16), **more)


def loop(source, sketch, z, s, weights=None, given=None):
    """Add batch after batch."""
    for batch in source:
        sketch.update(
            batch.select(z),
            batch.select(s),
            None if weights is None else batch.select([weights]),
            given=None if given is None else batch.select([given]),
        )
    return sketch


@pytest.fixture
def units(monkeypatch):
    """Make every file a unit, however small."""
    monkeypatch.setattr(_run, "_ROWS", 1)


# Faults: the same functions as those of ``python -m benchmarks faults``, on small files.


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    made = {}

    def case(suffix, rows):
        if (suffix, rows) not in made:
            made[suffix, rows] = faults.made(tmp_path_factory.mktemp(suffix) / "case", rows, suffix)
        return made[suffix, rows]

    yield case
    faults.release()


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=needs_ray if name.startswith("ray") else ()) for name in faults.FAULTS]
)
def test_after_a_fault_the_result_is_the_same_or_an_error_names_the_file(fault, cases, monkeypatch):
    if fault == "driver":
        # Small files are units of their own where their rows are not known beforehand, in that process too.
        case = cases("arrow", 10_000)
    else:
        monkeypatch.setattr(_run, "_ROWS", 1)
        # The fault must come before all is done.
        case = cases("parquet", 20_000 if fault.startswith("ray") else 2_000)
        case = replace(case, truth=faults.sketched(case).to_bytes())
    outcome = faults.tried(fault, case)
    assert outcome["result"] == faults.FAULTS[fault][1], outcome["detail"]


class Deadly(Job):
    def work(self, unit):
        os.kill(os.getpid(), signal.SIGKILL)
        yield 0, b""


def test_a_file_over_which_workers_die_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(_engines, "DEATHS", 1)
    source = open_source(cut(table(), tmp_path))
    job = Deadly(replace(source, pieces=()), empty().to_bytes(), None)
    with pytest.raises(RuntimeError, match=r"0\.parquet' and 5 more must be .* Got 1 workers .* by signal 9"):
        list(Pool(1).run(job, [(0, source.pieces)]))


class Unborn:
    def __reduce__(self):
        return sys.exit, (7,)


def test_workers_that_cannot_start_are_not_started_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(_engines, "DEATHS", 1)
    with pytest.raises(RuntimeError, match=r"ended before they began, the last with exit code 7.*__main__"):
        list(Pool(1).run(Unborn(), [(0, (Piece("a"),))]))


def test_an_error_of_the_data_names_file_and_rows(tmp_path):
    whole = table()
    score = whole["score"].to_numpy().copy()
    score[4_321] = np.inf
    where = cut(whole.set_column(0, "score", pa.array(score)), tmp_path)
    with pytest.raises(ValueError, match=r"'z' must be finite.*\(In '.*4\.parquet', rows 300 to 399\.\)"):
        sketch_source(open_source(where, batch_rows=100), empty(), z="score", s="age")


# What is computed


MIXED = OnColumns(Gaussian(15.0), [0]) * OnColumns(Delta(), [1])


@pytest.mark.parametrize(
    ("z", "s", "kernel_s", "weights", "given"),
    [
        (["score"], ["age"], Gaussian(15.0), None, None),
        (["score"], ["age"], Gaussian(15.0), "weight", "job"),
        (["score", "other"], ["income"], Gaussian(1.0), "weight", None),
        (["score", "other"], ["income"], Gaussian(1.0), None, "label"),
        (["score", "label"], ["age", "job"], MIXED, None, "job"),
        (["score", "label"], ["age", "job"], MIXED, "weight", "label"),
    ],
)
def test_it_is_the_sketch_of_a_plain_loop(tmp_path, units, z, s, kernel_s, weights, given):
    source = open_source(cut(table(), tmp_path), batch_rows=500)
    start = HSICSketch(Gaussian(1.0), kernel_s, n_features=(32, 16), dtype="float64")
    found = sketch_source(source, start, z=z, s=s, weights=weights, given=given)
    assert start.n_rows == 0
    wanted = loop(source, HSICSketch.from_bytes(start.to_bytes()), z, s, weights, given)
    assert (found.n_rows, found.labels) == (wanted.n_rows, wanted.labels)
    for label in found.labels or [None]:
        one, two = (x if label is None else x.at(label) for x in (found, wanted))
        assert one.value() == pytest.approx(two.value(), rel=1e-9)


def test_weights_may_be_zero_in_a_whole_batch(tmp_path):
    whole = table()
    weight = whole["weight"].to_numpy().copy()
    weight[: N // 2] = 0.0
    whole = whole.set_column(5, "weight", pa.array(weight))
    source = open_source(cut(whole, tmp_path), batch_rows=500)
    found = sketch_source(source, empty(), z="score", s="age", weights="weight")
    assert found.n_rows == np.count_nonzero(weight)


def test_rows_with_gaps_are_left_out_where_gaps_are_allowed(tmp_path):
    whole = table()
    age = pa.array(whole["age"].to_numpy(), mask=np.arange(N) % 3 == 0)
    where = cut(whole.set_column(2, "age", age), tmp_path)
    found = sketch_source(open_source(where, allow_missing=True), empty(), z="score", s="age")
    assert found.n_rows == N - N // 3
    with pytest.raises(ValueError, match=r"'.*0\.parquet' must have no missing values in column 'age'"):
        sketch_source(open_source(where), empty(), z="score", s="age")
    # Gaps in other columns are nobody's business: these are not read.
    assert sketch_source(open_source(where), empty(), z="score", s="income").n_rows == N


def test_the_order_of_files_hardly_matters_and_rows_may_be_shuffled(tmp_path, units):
    whole = table()
    shuffled = whole.take(np.random.default_rng(1).permutation(N))
    for s, start in (("age", empty()), ("income", HSICSketch(Gaussian(1.0), Gaussian(1.0)))):
        source, other = (
            open_source(cut(one, tmp_path / name), batch_rows=700)
            for name, one in (("a", whole), ("b", shuffled))
        )
        value, turned, mixed = (
            sketch_source(one, start, z=["score", "other"], s=s).value()
            for one in (source, replace(source, pieces=source.pieces[::-1]), other)
        )
        assert turned == pytest.approx(value, rel=1e-9)
        assert mixed == pytest.approx(value, rel=1e-6)


def test_groups_and_stored_rows_are_drawn_by_file_and_row_however_files_are_cut(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the draw is that of the names of the files: the same in each run
    where = cut(table(n=12_000), Path("rows"), row_group_size=250)
    one, two = (
        sketch_source(open_source(where, piece_rows=rows, batch_rows=batch), empty(), z="score", s="age")
        for rows, batch in ((500, 200), (10_000, 10_000))
    )
    assert len(one.stored.z) == 5_000
    assert torch.equal(one.stored.z, two.stored.z)
    rows = torch.tensor([12_000 - one.without(group).n_rows for group in range(20)])
    assert rows.tolist() == [12_000 - two.without(group).n_rows for group in range(20)]
    # 600 on average with a standard deviation of 24: files do not share their ids.
    assert 500 < int(rows.min()) <= int(rows.max()) < 700


def test_a_column_of_groups_keeps_the_rows_of_a_unit_together(tmp_path):
    whole = table(n=6_000)
    source = open_source(cut(whole, tmp_path))
    found = sketch_source(source, empty(), z="score", s="age", ids="customer", groups="job")
    assert found.grouped
    jobs = whole.column("job").to_pylist()
    rows = [6_000 - found.without(group).n_rows for group in range(20) if found.group_shares[group] > 0]
    assert len(rows) <= len(set(jobs))  # a job is in one group, so most groups are empty
    assert sum(rows) == 6_000


def test_a_column_of_ids_draws_the_same_rows_in_any_order(tmp_path):
    whole = table(n=12_000)
    shuffled = whole.take(np.random.default_rng(1).permutation(12_000))
    one, two, other = (
        sketch_source(open_source(cut(part, tmp_path / name)), empty(), z="score", s="age", ids=ids)
        for name, part, ids in (("a", whole, "customer"), ("b", shuffled, "customer"), ("b", shuffled, None))
    )
    assert torch.equal(one.stored.z, two.stored.z)
    assert not torch.equal(two.stored.z, other.stored.z)


def test_sketches_are_added_up_in_the_same_pairs_whichever_comes_first():
    parts = [empty().update(*np.random.default_rng(j).random((2, 50))) for j in range(5)]
    totals = set()
    for order in list(itertools.permutations(range(5)))[::7]:
        tree = _Tree(5)
        for place in order:
            assert tree.total is None
            tree.put(place, parts[place])
        totals.add(tree.total.to_bytes())
    assert totals == {(((parts[0] + parts[1]) + (parts[2] + parts[3])) + parts[4]).to_bytes()}


@pytest.mark.parametrize("rows", [[10] * 7, [2_000_000] * 5_000, [None] * 3_000, [0, 5, None, 3_000_000]])
def test_units_hold_every_piece_once_and_are_not_too_many(rows):
    pieces = [Piece(str(j), rows=n) for j, n in enumerate(rows)]
    units = _join_pieces(pieces)
    assert list(itertools.chain(*units)) == pieces
    assert all(units)
    assert len(units) <= 1_024


# Partials


def test_partials_are_of_the_same_files_columns_and_specification_only(tmp_path, units):
    where = cut(table(), tmp_path / "data")

    def found(start, source, z="score", s="age", **more):
        seen = []
        sketch_source(source, start, z=z, s=s, partials=tmp_path / "kept", progress=seen.append, **more)
        return seen[-1].found

    source = open_source(where)
    assert found(empty(), source) == 0
    assert found(empty(), source) == FILES
    assert found(empty(random_state=1), source) == 0
    assert found(empty(), source, s="income") == 0
    assert found(empty(), source, weights="weight") == 0
    assert found(empty(), source, ids="customer") == 0
    assert found(empty(), open_source(where, batch_rows=100)) == 0
    write_table(table(7, N // FILES), tmp_path / "data" / "3.parquet")
    assert found(empty(), open_source(where)) == FILES - 1


def test_partials_are_nobody_elses(tmp_path, units):
    sketch_source(
        open_source(cut(table(), tmp_path / "data")), empty(), z="score", s="age", partials=tmp_path / "k"
    )
    assert (tmp_path / "k").stat().st_mode & 0o077 == 0


# Progress


def test_progress_counts_rows_and_pieces_to_the_end(tmp_path, units):
    source = open_source(cut(table(), tmp_path), batch_rows=250)
    seen = []
    sketch_source(source, empty(), z="score", s="age", progress=seen.append)
    rows = [one.rows for one in seen]
    assert rows[0] == 0
    assert rows == sorted(rows)
    assert {250, 500} < set(rows)
    last = seen[-1]
    assert (last.rows, last.all_rows, last.pieces, last.all_pieces) == (N, N, FILES, FILES)
    assert str(last).startswith("6,000 of 6,000 rows, 6 of 6 pieces, ")


def test_what_progress_raises_ends_the_run(tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    threads = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        sketch_source(open_source(cut(table(), tmp_path)), empty(), z="score", s="age", progress=stop)
    assert torch.get_num_threads() == threads


# Streams, refusals


def test_a_stream_is_sketched_here_and_nowhere_else(tmp_path):
    source = open_source(table(), batch_rows=500)
    assert sketch_source(source, empty(), z="score", s="age").n_rows == N
    with pytest.raises(TypeError, match="'source' must consist of files"):
        sketch_source(source, empty(), z="score", s="age", engine=Pool(1))
    with pytest.raises(ValueError, match="'partials' must be None for a stream"):
        sketch_source(source, empty(), z="score", s="age", partials=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"z": "salary"}, "'z' must name columns of the source.*Got 'salary'"),
        ({"s": []}, "'s' must name columns.*Got none"),
        ({"z": ["score", "score"]}, "'z' must name columns.*twice"),
        ({"weights": "w"}, "'weights' must name columns.*Got 'w'"),
        ({"given": "y"}, "'given' must name columns.*Got 'y'"),
        ({"ids": "id"}, "'ids' must name columns.*Got 'id'"),
        ({"groups": "id"}, "'groups' must name columns.*Got 'id'"),
        ({"groups": "score"}, "'groups' must be 6000 integers or strings"),
        ({"ids": "score"}, r"'ids' must be 6000 integers.*\(In 'stream', rows 0 to 5999\.\)"),
        ({"engine": "pool"}, "'engine' must be Local"),
        ({"sketch": empty().update([1.0, 2.0], [3.0, 4.0])}, "'sketch' must be empty. Got one of 2 rows"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    arguments = {"sketch": empty(), "z": "score", "s": "age", "engine": Local(), **change}
    sketch = arguments.pop("sketch")
    with pytest.raises((TypeError, ValueError), match=message):
        sketch_source(open_source(table()), sketch, **arguments)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_are_a_number(workers):
    with pytest.raises(ValueError, match="'workers' must be a positive whole number"):
        Pool(workers)


@needs_ray
def test_a_cluster_that_is_not_there_is_an_error_at_once(tmp_path):
    faults.release()
    source = open_source(cut(table(), tmp_path))
    with pytest.raises(
        ConnectionError, match=r"'address' must lead to a Ray cluster .* Got '127\.0\.0\.1:1': "
    ):
        sketch_source(source, empty(), z="score", s="age", engine=Ray("127.0.0.1:1"))


def test_ray_is_not_imported_until_it_is_used():
    code = "import sys, frhsic.runners; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
