"""Tables of any size as record batches: what is found, what is read of it, and errors that name the file."""

import gzip
import os
import pickle
import re
import subprocess
import sys
import textwrap
from decimal import Decimal

import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFile

from frhsic.data import to_matrix, to_sensitive
from frhsic.sources import drop_missing, open_source, redact_url, write_table

N = 1_000
TABLE = pa.table(
    {
        "score": np.linspace(0.0, 1.0, N),
        "age": np.arange(N) % 73 + 18,
        "job": np.array(["chef", "nurse"])[np.arange(N) % 2],
    }
)


def rows(source):
    return pa.Table.from_batches(list(source), source.schema)


def write(table, path, suffix):
    """Write in any of the forms that a source knows."""
    if suffix == "stream":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=300)
    elif suffix.endswith(".gz"):
        write(table, f"{path}.{suffix[:-3]}", suffix[:-3])
        with open(f"{path}.{suffix[:-3]}", "rb") as file:
            content = gzip.compress(file.read())
        os.remove(f"{path}.{suffix[:-3]}")
        with open(path, "wb") as file:
            file.write(content)
    else:
        write_table(table, f"{path}.{suffix}")
        os.rename(f"{path}.{suffix}", path)


def parts(folder, count, table=TABLE):
    """Cut a table into Parquet files."""
    size = -(-table.num_rows // count)
    for j in range(count):
        pq.write_table(
            table.slice(j * size, size), folder / f"part-{j:02d}.parquet", write_page_checksum=True
        )
    return table


# ---- what can be opened ------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "stream", "csv.gz", "stream.gz"])
def test_a_file_of_every_form_gives_its_columns_in_batches(tmp_path, suffix):
    write(TABLE, tmp_path / "table", suffix)
    source = open_source(tmp_path / "table", columns=["job", "score"], batch_rows=128)
    batches = list(source)
    assert pa.Table.from_batches(batches).equals(TABLE.select(["job", "score"]))
    assert source.columns == ("job", "score")
    assert max(batch.num_rows for batch in batches) <= 128
    assert all(batch.schema.equals(source.schema) for batch in batches)
    assert rows(source).num_rows == N  # a second pass


IN_MEMORY = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.combine_chunks().to_batches()[0],
    "list of batches": lambda: TABLE.to_batches(max_chunksize=300),
    "reader": lambda: TABLE.to_reader(max_chunksize=300),
    "iterator": lambda: iter(TABLE.to_batches(max_chunksize=300)),
    "dataset": lambda: pyarrow.dataset.dataset(TABLE),
    "polars lazy frame": lambda: pl.from_arrow(TABLE).lazy(),
    "polars frame": lambda: pl.from_arrow(TABLE),
    "pandas frame": TABLE.to_pandas,
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_anything_that_gives_record_batches_is_a_source(kind):
    source = open_source(IN_MEMORY[kind](), columns=["age", "score"], batch_rows=128)
    batches = list(source)
    assert max(batch.num_rows for batch in batches) <= 128
    assert pa.Table.from_batches(batches).equals(TABLE.select(["age", "score"]))
    assert len(source.pieces) == 1


def test_a_pattern_a_folder_and_a_list_are_the_same_files_sorted_by_name(tmp_path):
    parts(tmp_path, 5)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-00.parquet.crc").write_bytes(b"x")
    files = [str(tmp_path / f"part-{j:02d}.parquet") for j in range(5)]
    for where in (
        f"{tmp_path}/*.parquet",
        f"{tmp_path}/*-0[0-4]*",
        tmp_path,
        files[::-1],
        [tmp_path / "*0[01]*", *files[2:]],
    ):
        source = open_source(where)
        assert [piece.name for piece in source.pieces] == files
        assert rows(source).equals(TABLE)
    assert repr(source) == "Source(5 files, 1,000 rows, columns 'score', 'age', 'job')"


def test_a_column_in_the_names_of_folders_is_named_as_such(tmp_path):
    for region in ("north", "south"):
        (tmp_path / f"region={region}").mkdir()
        pq.write_table(pa.table({"score": [0.1, 0.2]}), tmp_path / f"region={region}" / "1.parquet")
    with pytest.raises(ValueError, match="part of the names of folders, which are not read"):
        open_source(tmp_path, columns=["score", "region"])


def test_folders_within_folders_are_read_through_links_and_without_end(tmp_path):
    (tmp_path / "data" / "2024").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    write_table(TABLE.slice(0, 10), tmp_path / "data" / "2024" / "a.parquet")
    write_table(TABLE.slice(10, 5), tmp_path / "elsewhere" / "b.parquet")
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "2025")
    os.symlink(tmp_path / "data", tmp_path / "data" / "2024" / "up")
    assert rows(open_source(tmp_path / "data")).equals(TABLE.slice(0, 15))


def test_a_name_with_signs_of_a_pattern_is_a_name_if_there_is_such_a_file(tmp_path):
    write_table(TABLE, tmp_path / "scores[1].parquet")
    assert open_source(tmp_path / "scores[1].parquet").rows == N


@pytest.fixture
def store():
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield memory
    memory.store.clear()


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "stream", "csv.gz"])
def test_an_object_store_is_read_as_a_folder_is(tmp_path, store, suffix):
    for j in range(3):
        write(TABLE.slice(j * 400, 400), tmp_path / "part", suffix)
        store.pipe(f"/bank/part-{j}", (tmp_path / "part").read_bytes())
    store.pipe("/bank/_SUCCESS", b"")
    for where in ("memory://bank/part-*", "memory://bank", [f"memory://bank/part-{j}" for j in (2, 0, 1)]):
        source = open_source(where, columns=["age", "job"])
        assert [piece.name for piece in source.pieces] == [f"memory:///bank/part-{j}" for j in range(3)] or (
            isinstance(where, list)
        )
        assert rows(source).equals(TABLE.select(["age", "job"]))


def test_an_object_store_tells_of_what_changed_and_what_is_gone(tmp_path, store):
    parts(tmp_path, 3)
    for path in tmp_path.iterdir():
        store.pipe(f"/bank/{path.name}", path.read_bytes())
    source = open_source("memory://bank/*.parquet")
    store.pipe("/bank/part-01.parquet", (tmp_path / "part-00.parquet").read_bytes())
    store.rm("/bank/part-02.parquet")
    assert sum(batch.num_rows for batch in source.batches(source.pieces[0])) == 334
    with pytest.raises(ValueError, match=r"'memory:///bank/part-01.parquet' must stay as it was"):
        list(source.batches(source.pieces[1]))
    with pytest.raises(FileNotFoundError, match=r"part-02\.parquet"):
        list(source.batches(source.pieces[2]))
    with pytest.raises(FileNotFoundError, match=r"none for 'memory://bank/\*\.csv'"):
        open_source("memory://bank/*.csv")


def test_a_store_of_s3_is_read_over_the_network(tmp_path, monkeypatch):
    boto3, server = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    service = server.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    service.start()
    try:
        host, port = service.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        client = boto3.client("s3")
        client.create_bucket(Bucket="bank")
        parts(tmp_path, 4)
        for path in tmp_path.iterdir():
            client.upload_file(str(path), "bank", f"scores/{path.name}")
        source = open_source("s3://bank/scores/*.parquet", columns=["age"])
        assert rows(source).equals(TABLE.select(["age"]))
        client.upload_file(str(tmp_path / "part-00.parquet"), "bank", "scores/part-02.parquet")
        client.delete_object(Bucket="bank", Key="scores/part-03.parquet")
        with pytest.raises(ValueError, match=r"'s3://bank/scores/part-02.parquet' must stay as it was"):
            list(source.batches(source.pieces[2]))
        with pytest.raises(FileNotFoundError, match=r"scores/part-03\.parquet"):
            list(source.batches(source.pieces[3]))
    finally:
        service.stop()


# ---- pieces ------------------------------------------------------------------------------------------------


def test_a_large_file_is_cut_between_row_groups_and_nothing_is_lost(tmp_path):
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=150)
    source = open_source(tmp_path / "t.parquet", piece_rows=300)
    assert [(piece.name[-5:], piece.rows, piece.first_row) for piece in source.pieces] == [
        ("[0:2]", 300, 0),
        ("[2:4]", 300, 300),
        ("[4:6]", 300, 600),
        ("[6:7]", 100, 900),
    ]
    assert rows(source).equals(TABLE)
    third = pa.Table.from_batches(source.batches(source.pieces[2]))
    assert third.equals(TABLE.slice(600, 300))
    assert repr(source).startswith("Source(1 file in 4 pieces, 1,000 rows")
    assert len(open_source(tmp_path / "t.parquet").pieces) == 1


def test_pieces_and_their_fingerprints_are_the_same_in_the_next_run(tmp_path):
    parts(tmp_path, 3)
    first, second = open_source(tmp_path), open_source(tmp_path)
    assert first.pieces == second.pieces
    path = tmp_path / "part-01.parquet"
    content = bytearray(path.read_bytes())
    content[60] ^= 1  # as many bytes as before
    path.write_bytes(content)
    os.utime(path, ns=(0, os.stat(path).st_mtime_ns + 1))
    changed = [a.name for a, b in zip(first.pieces, open_source(tmp_path).pieces, strict=True) if a != b]
    assert changed == [str(path)]


def run(code, *arguments):
    """Run Python in a process of its own."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_another_process_reads_a_piece(tmp_path):
    (tmp_path / "data").mkdir()
    parts(tmp_path / "data", 4)
    source = open_source(tmp_path / "data", columns=["age"])
    sent = pickle.dumps((source, source.pieces[2])).hex()
    code = """
        import pickle, sys
        source, piece = pickle.loads(bytes.fromhex(sys.argv[1]))
        print(sum(sum(batch.column("age").to_pylist()) for batch in source.batches(piece)))
    """
    assert int(run(code, sent)) == sum(TABLE["age"].slice(500, 250).to_pylist())


def test_a_stream_stays_in_its_process_and_is_read_once():
    with pytest.raises(TypeError, match="must consist of files"):
        pickle.dumps(open_source(TABLE))
    for where in (TABLE.to_reader(), iter(TABLE.to_batches())):
        source = open_source(where)
        assert rows(source).num_rows == N
        with pytest.raises(ValueError, match="read before"):
            list(source)


# ---- memory and bytes --------------------------------------------------------------------------------------


def bytes_read():
    with open("/proc/self/io") as file:
        return int(next(line for line in file if line.startswith("rchar")).split()[1])


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="the system does not count bytes")
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "stream"])
def test_columns_that_are_not_asked_for_are_not_read(tmp_path, suffix):
    table = pa.table({f"c{j}": np.random.default_rng(j).normal(size=50_000) for j in range(20)})
    if suffix == "arrow":
        pyarrow.feather.write_feather(table, tmp_path / "t", compression="uncompressed")
    else:
        write(table, tmp_path / "t", suffix)
    size = os.path.getsize(tmp_path / "t")
    source = open_source(tmp_path / "t", columns=["c7"])
    before = bytes_read()
    assert sum(batch.num_rows for batch in source) == 50_000
    # One column of twenty; a stream can only be read through.
    assert bytes_read() - before < (1.2 if suffix == "stream" else 0.15) * size
    assert pa.Table.from_batches(list(source)).nbytes < 0.06 * table.nbytes


def test_a_store_is_asked_once_for_each_row_group_and_for_no_more_than_its_columns(
    tmp_path, store, monkeypatch
):
    table = pa.table({f"c{j}": np.random.default_rng(j).normal(size=20_000) for j in range(20)})
    pq.write_table(table, tmp_path / "t", row_group_size=5_000)
    store.pipe("/t", (tmp_path / "t").read_bytes())
    source = open_source("memory://t", columns=["c7", "c8", "c9"])
    asked = []
    read = MemoryFile.read
    monkeypatch.setattr(MemoryFile, "read", lambda file, count: asked.append(count) or read(file, count))
    assert rows(source).equals(table.select(["c7", "c8", "c9"]))
    assert len(asked) <= 4 + 2  # and the footer
    assert sum(asked) < 0.25 * os.path.getsize(tmp_path / "t")
    monkeypatch.setattr("frhsic.sources._batches._REQUEST", 1_000)
    assert rows(source).equals(table.select(["c7", "c8", "c9"]))  # through a window


PEAK = """
    import sys
    import pyarrow, pyarrow.parquet, pyarrow.compute
    from frhsic.sources import open_source
    def peak():  # not ru_maxrss, which begins with that of the parent
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) // 1024
    source = open_source(sys.argv[1])
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins here
    before = peak()
    count = sum(batch.num_rows for batch in source)
    print(count, peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="the system does not tell the peak")
def test_one_huge_row_group_is_not_held_at_once(tmp_path):
    n, rng = 2_000_000, np.random.default_rng(0)
    table = pa.table({f"z{j}": rng.normal(size=n) for j in range(4)} | {"age": rng.integers(18, 90, n)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=n)
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 1
    count, megabytes = map(int, run(PEAK, tmp_path / "t.parquet").split())
    assert count == n
    assert megabytes < 64  # 67 in the file, 80 in memory; 40 measured


def test_what_nobody_reads_to_its_end_lets_the_process_end(tmp_path):
    table = pa.table({"age": np.arange(300_000), "name": ["somebody"] * 300_000})
    for suffix in ("csv", "csv.gz", "parquet", "arrow", "stream"):
        write(table, tmp_path / suffix, suffix)
    code = """
        import pathlib, sys
        import fsspec
        from frhsic.sources import open_source
        for path in pathlib.Path(sys.argv[1]).iterdir():
            fsspec.filesystem("memory").pipe(f"/{path.name}", path.read_bytes())
            for where in (path, f"memory://{path.name}"):
                for batch in open_source(where, batch_rows=1000):
                    break
                print(batch.num_rows > 0)
    """
    assert run(code, tmp_path) == "True\n" * 10


# ---- errors that name the file -----------------------------------------------------------------------------


def test_a_torn_file_is_named_before_a_row_is_read(tmp_path):
    parts(tmp_path, 5)
    path = tmp_path / "part-03.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(
        ValueError, match=r"part-03\.parquet' must be a whole CSV, Parquet or Arrow file"
    ) as refused:
        open_source(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("suffix", ["csv.gz", "arrow", "stream"])
def test_a_file_that_ends_early_is_named(tmp_path, suffix):
    write(pa.table({"score": np.random.default_rng(0).normal(size=300_000)}), tmp_path / "t", suffix)
    content = (tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(content[: len(content) * 3 // 4])
    with pytest.raises(ValueError, match=r"/t' must be a whole CSV, Parquet or Arrow file"):
        list(open_source(tmp_path / "t"))


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_a_damaged_page_is_named_when_it_is_read(tmp_path, compression):
    parts(tmp_path, 5)
    path = tmp_path / "part-03.parquet"
    table = pa.table({"score": np.random.default_rng(0).normal(size=200)})
    # Without a checksum nothing would tell that a bit of a number is another.
    for number, options in enumerate(({}, {"write_page_checksum": True})):
        pq.write_table(table, path, compression=compression, use_dictionary=False, **options)
        chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
        content = bytearray(path.read_bytes())
        content[chunk.data_page_offset + chunk.total_compressed_size - 5] ^= 1
        path.write_bytes(content)
        source = open_source(tmp_path, columns=["score"])
        if number == 0:
            assert rows(source).num_rows == N
        else:
            with pytest.raises(ValueError, match=r"part-03\.parquet' must be a whole CSV, Parquet or"):
                list(source)


def test_a_flipped_bit_in_the_pages_gives_the_same_numbers_or_an_error_that_names_the_file(tmp_path):
    g, path = np.random.default_rng(0), tmp_path / "t.parquet"
    table = TABLE.select(["score", "age"])
    write_table(table, path)
    content = path.read_bytes()
    end = (
        len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    )  # what tells of the pages is not checked
    found = []
    for place in g.integers(4, end, 200):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(g.integers(8))
        path.write_bytes(damaged)
        try:
            got = rows(open_source(path))
        except ValueError as error:
            found.append(str(error))
        else:
            assert got.equals(table)
    assert len(found) > 100
    for text in found:
        assert text.startswith(f"'{path}' must be a whole CSV, Parquet or Arrow file. Got: ")


def test_what_is_wrong_with_a_file_is_told_in_whole_words(tmp_path):
    write_table(TABLE, tmp_path / "t.parquet")
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[start : start + 8] = b"\xff" * 8
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"Got: Couldn't deserialize thrift"):
        open_source(tmp_path / "t.parquet")


def test_pages_that_we_write_have_a_checksum(tmp_path):
    write_table({"score": np.random.default_rng(0).normal(size=1000)}, tmp_path / "t.parquet")
    chunk = pq.ParquetFile(tmp_path / "t.parquet").metadata.row_group(0).column(0)
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    content[chunk.dictionary_page_offset + chunk.total_compressed_size - 5] ^= 1
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a whole .* Got: .*CRC"):
        list(open_source(tmp_path / "t.parquet"))


def test_a_missing_column_in_file_37_of_50_is_an_error_at_the_start(tmp_path):
    parts(tmp_path, 50)
    path = tmp_path / "part-37.parquet"
    pq.write_table(pq.read_table(path).rename_columns(["score", "Age", "job"]), path)
    with pytest.raises(
        ValueError, match=r"of '.*part-37\.parquet'. Got 'age', which is none. Did you mean 'Age'"
    ):
        open_source(tmp_path, columns=["score", "age"])
    assert open_source(tmp_path, columns=["score"]).rows == N  # nobody asked for the other


def test_one_more_column_in_a_file_is_an_error_only_if_all_are_wanted(tmp_path):
    parts(tmp_path, 3)
    path = tmp_path / "part-01.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column("extra", table["age"]), path)
    with pytest.raises(ValueError, match=r"part-01\.parquet' must have the columns of .*Got also 'extra'"):
        open_source(tmp_path)
    assert open_source(tmp_path, columns=["age"]).rows == N


def test_another_type_in_one_file_is_an_error_that_names_both_types(tmp_path):
    parts(tmp_path, 5)
    path = tmp_path / "part-02.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(1, "age", table["age"].cast(pa.string())), path)
    words = r"part-02\.parquet' must have the types .* Got string in column 'age', which was int64"
    with pytest.raises(ValueError, match=words):
        open_source(tmp_path)


def test_numbers_of_other_sizes_become_those_that_hold_all(tmp_path):
    for name, kind in (("a", pa.int8()), ("b", pa.int64()), ("c", pa.float32()), ("d", pa.uint16())):
        pq.write_table(pa.table({"age": pa.array([31, 45], kind)}), tmp_path / name)
    source = open_source([tmp_path / name for name in "abcd"])
    assert source.schema.field("age").type == pa.float64()
    assert rows(source)["age"].to_pylist() == [31.0, 45.0] * 4


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_text_and_categories_of_text_are_the_same_labels(tmp_path, suffix):
    text = pa.array(["x", "y"])
    codes = [pa.dictionary(kind, pa.string()) for kind in (pa.int8(), pa.int16())]
    for j, kind in enumerate([pa.string(), *codes, pa.large_string()]):
        write(pa.table({"zone": text.cast(kind)}), tmp_path / str(j), suffix)
    assert rows(open_source(tmp_path))["zone"].to_pylist() == ["x", "y"] * 4


def test_what_is_gone_or_changed_between_opening_and_reading_is_named(tmp_path):
    parts(tmp_path, 4)
    source = open_source(tmp_path)
    (tmp_path / "part-01.parquet").unlink()
    write_table(TABLE, tmp_path / "part-02.parquet")
    assert sum(batch.num_rows for batch in source.batches(source.pieces[0])) == 250
    with pytest.raises(FileNotFoundError, match=r"part-01\.parquet"):
        list(source.batches(source.pieces[1]))
    with pytest.raises(ValueError, match=r"part-02\.parquet' must stay as it was"):
        list(source.batches(source.pieces[2]))
    reading = open_source(tmp_path / "part-03.parquet", batch_rows=100).batches
    batches = reading(source.pieces[3])
    next(batches)
    os.utime(tmp_path / "part-03.parquet", (0, 0))  # somebody writes while it is read
    with pytest.raises(ValueError, match=r"part-03\.parquet' must stay as it was"):
        list(batches)
    batches = open_source(tmp_path / "part-00.parquet", batch_rows=100).batches(source.pieces[0])
    next(batches)
    (tmp_path / "part-00.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"part-00\.parquet"):
        list(batches)


def test_nothing_found_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="an empty folder for"):
        open_source(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none for '.*\*\.parquet'"):
        open_source(tmp_path / "*.parquet")
    with pytest.raises(FileNotFoundError, match=r"none for '.*nowhere'"):
        open_source([tmp_path / "nowhere"])
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"folder' must be a regular file. Got a directory"):
        open_source(tmp_path / "*")
    for j in range(2):
        write_table(TABLE.slice(0, 0), tmp_path / f"{j}.parquet")
    with pytest.raises(ValueError, match=r"must hold rows\. Got 0 rows, in 2 files"):
        open_source(tmp_path / "*.parquet")
    write_table(TABLE, tmp_path / "2.parquet")
    assert rows(open_source(tmp_path / "*.parquet")).equals(TABLE)  # an engine may write empty parts


def test_a_file_that_would_count_twice_is_refused(tmp_path):
    parts(tmp_path, 2)
    with pytest.raises(ValueError, match="must name each file once"):
        open_source([tmp_path / "part-00.parquet", tmp_path / "*.parquet"])
    os.symlink(tmp_path / "part-00.parquet", tmp_path / "same.parquet")
    with pytest.raises(ValueError, match="must name each file once"):
        open_source(tmp_path)


REFUSED = {
    "no path": (42, {}, TypeError, "'where' must be paths"),
    "nothing": ([], {}, TypeError, "'where' must be paths"),
    "iterator of something": (iter([1, 2]), {}, TypeError, "iterator of pyarrow record batches"),
    "empty iterator": (iter([]), {}, TypeError, "Got none"),
    "column": (TABLE, {"columns": ["Age"]}, ValueError, "columns of 'where'. Got 'Age'.*Did you mean 'age'"),
    "one column": (TABLE, {"columns": "age"}, ValueError, "'columns' must be a list"),
    "no column": (TABLE, {"columns": []}, ValueError, "'columns' must be a list"),
    "same name": (
        pa.table([TABLE["age"]] * 2, ["age", "age"]),
        {"columns": ["age"]},
        ValueError,
        "names of columns must be distinct.*Got 'age' twice",
    ),
    "no rows": (TABLE, {"batch_rows": 0}, ValueError, "'batch_rows' must be a positive"),
    "no rows of a piece": (TABLE, {"piece_rows": 1.5}, ValueError, "'piece_rows' must be a positive"),
    "store": ("nosuch://bank/x", {}, ValueError, "'nosuch://bank/x' must be readable"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_source_is_refused(case):
    where, options, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        open_source(where, **options)


def test_a_parquet_in_gzip_is_refused_since_it_would_be_held_whole(tmp_path):
    write(TABLE, tmp_path / "t", "parquet.gz")
    with pytest.raises(ValueError, match=r"gzip\. Unpack it"):
        open_source(tmp_path / "t")


def test_what_a_url_hides_is_never_shown():
    url = "https://auditor:hunter2@127.0.0.1:1/scores.parquet?X-Amz-Signature=hunter2"
    assert redact_url(url).startswith("https://127.0.0.1:1/scores.parquet?")
    with pytest.raises((OSError, ImportError)) as refused:
        open_source(url)
    assert "hunter2" not in str(refused.value)
    assert "127.0.0.1" in str(refused.value)


# ---- values ------------------------------------------------------------------------------------------------

NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(9, 3), pa.decimal256(40, 3), pa.bool_()),
]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_every_number_goes_from_a_file_to_tensors(tmp_path, kind):
    values = [True, False, True] if kind == pa.bool_() else [3, 1, 2]
    scalars = [Decimal(value) for value in values] if pa.types.is_decimal(kind) else values
    array = pa.array(np.array(values, np.float16)) if kind == pa.float16() else pa.array(scalars, kind)
    pq.write_table(pa.table({"x": array}), tmp_path / "t")
    (batch,) = open_source(tmp_path / "t")
    assert to_matrix(batch)[:, 0].tolist() == [float(value) for value in values]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_labels_go_from_a_file_to_tensors(tmp_path, kind):
    table = pa.table({"job": TABLE["job"].combine_chunks().cast(kind)})
    for suffix in ("parquet", "arrow"):
        write(table, tmp_path / suffix, suffix)
        first, *_ = open_source(tmp_path / suffix, batch_rows=100)
        assert to_sensitive(first).categories == (("chef", "nurse"),)


def test_dates_of_a_file_are_no_numbers(tmp_path):
    write_table({"born": pa.array([0, 7000, 12000], pa.date32())}, tmp_path / "t.parquet")
    (batch,) = open_source(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"in column 'born'.* Convert them to a number"):
        to_sensitive(batch)


@pytest.mark.parametrize("gap", [None, float("nan")])
def test_a_gap_is_an_error_with_file_column_and_count_so_far(tmp_path, gap):
    ages = np.arange(N, dtype=float).tolist()
    ages[300] = ages[310] = gap
    table = pa.table({"score": TABLE["score"], "age": ages})
    parts(tmp_path, 2, table)
    words = (
        r"part-00\.parquet' must have no missing values in column 'age'. Got 2 .* first 400 rows, .* row 300"
    )
    with pytest.raises(ValueError, match=words):
        list(open_source(tmp_path, batch_rows=100))
    assert open_source(tmp_path, columns=["score"], batch_rows=100).rows == N
    kept = [drop_missing(batch) for batch in open_source(tmp_path, allow_missing=True)]
    assert sum(batch.num_rows for batch in kept) == N - 2
    pq.write_table(table, tmp_path / "part-00.parquet", row_group_size=100)
    (tmp_path / "part-01.parquet").unlink()
    with pytest.raises(ValueError, match="first 400 rows, the first in row 300"):
        list(open_source(tmp_path, piece_rows=100, batch_rows=100))


def test_a_gap_in_a_stream_is_an_error_too():
    with pytest.raises(ValueError, match=r"'stream' must have no missing values in column 'age'\. Got 1"):
        list(open_source(pa.table({"age": [31, None]})))


LATER = {
    "other column": pa.RecordBatch.from_pydict({"Age": [31.0]}),
    "text": pa.RecordBatch.from_pydict({"age": ["Ada Lovelace"]}),
    "too large": pa.RecordBatch.from_pydict({"age": [2**53 + 1]}),
}


@pytest.mark.parametrize("case", LATER)
def test_a_later_batch_that_does_not_fit_is_an_error_that_quotes_no_data(case):
    first = pa.RecordBatch.from_pydict({"age": [0.5]})
    with pytest.raises(ValueError, match=r"'stream' must have column 'age' as double in all") as refused:
        list(open_source(iter([first, LATER[case]])))
    assert not {"Ada", "900"} & set(re.findall(r"Ada|900", str(refused.value)))


def test_infinite_numbers_are_no_gaps():
    values = [np.inf, -np.inf, 1.0]  # their sum is NaN
    assert rows(open_source(pa.table({"x": values})))["x"].to_pylist() == values


def test_types_of_a_csv_are_those_of_its_first_rows_or_an_error_that_quotes_no_data(tmp_path):
    first = "age,score\n" + "31,0.5\n" * 700_000  # more than is looked at
    (tmp_path / "t.csv").write_text(first + "Ada Lovelace,0.5\n")
    with pytest.raises(ValueError, match=r"t\.csv' must be .* an entry that is no int64") as refused:
        list(open_source(tmp_path / "t.csv"))
    assert "Ada" not in str(refused.value)


def test_whole_numbers_in_one_csv_and_others_in_the_next_are_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("age;job\n31;chef\n")
    (tmp_path / "b.csv").write_bytes("job;age\nnurse;31,5\n".encode("utf16"))
    assert rows(open_source(tmp_path)).to_pydict() == {"age": [31.0, 31.5], "job": ["chef", "nurse"]}


def test_text_that_is_not_utf8_matters_only_in_columns_that_are_asked_for(tmp_path):
    (tmp_path / "t.csv").write_bytes("name,age\nJosé,31\n".encode("latin1"))
    assert rows(open_source(tmp_path / "t.csv", columns=["age"]))["age"].to_pylist() == [31]
    with pytest.raises(ValueError, match=r"t\.csv' must be a CSV in UTF-8"):
        open_source(tmp_path / "t.csv")


def test_pandas_categories_stay_categories():
    frame = pd.DataFrame({"zone": pd.Categorical([3, 1, 3])})
    (batch,) = open_source(frame)
    assert to_sensitive(batch).kinds == ("categorical",)
