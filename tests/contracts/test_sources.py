"""Tables from files: what a file is, what is read of it, and what is refused with one sentence."""

import gzip
import os

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest

from frhsic._files import replacing
from frhsic.sources import column_names, drop_missing, open_source, read_table, write_table

TABLE = pa.table({"score": [0.25, 0.5, 0.75], "age": [31, 45, 62], "job": ["chef", None, "nurse"]})


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow", "feather"])
def test_what_is_written_is_read_back(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    write_table(TABLE, path)
    assert read_table(path).to_pydict() == TABLE.to_pydict()
    assert column_names(path) == TABLE.column_names
    assert read_table(path, columns=["age", "score"]).column_names == ["age", "score"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_the_name_of_a_file_and_gzip_do_not_matter(tmp_path, suffix):
    write_table(TABLE, tmp_path / f"t.{suffix}")
    content = (tmp_path / f"t.{suffix}").read_bytes()
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed").write_bytes(gzip.compress(content))
    for name in ("plain", "packed"):
        assert read_table(tmp_path / name, columns=["job"]).to_pydict() == {"job": ["chef", None, "nurse"]}
        assert column_names(tmp_path / name) == TABLE.column_names


def test_an_arrow_stream_is_read(tmp_path):
    with pa.OSFile(str(tmp_path / "s"), "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    assert read_table(tmp_path / "s", columns=["age"]).to_pydict() == {"age": [31, 45, 62]}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, delimiter):
    lines = [delimiter.join(row) for row in (["score", "age"], ["0.5", "31"], ["0.75", "40"])]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert read_table(tmp_path / "t.csv").to_pydict() == {"score": [0.5, 0.75], "age": [31, 40]}


def test_a_decimal_comma_beside_semicolons_is_a_number(tmp_path):
    (tmp_path / "t.csv").write_text("score;age\n0,5;31\n1,25;40\n")
    assert read_table(tmp_path / "t.csv")["score"].to_pylist() == [0.5, 1.25]
    # A point beside it: then the comma is no decimal sign.
    (tmp_path / "t.csv").write_text("score;pair\n0.5;3,1\n1.25;4,0\n")
    assert read_table(tmp_path / "t.csv")["pair"].to_pylist() == ["3,1", "4,0"]


def test_quoted_delimiters_and_line_breaks_are_no_borders(tmp_path):
    (tmp_path / "t.csv").write_text('score,"a;b\nc"\n0.5,"x, y"\n0.6,"p; q\nr"\n')
    assert read_table(tmp_path / "t.csv").to_pydict() == {"score": [0.5, 0.6], "a;b\nc": ["x, y", "p; q\nr"]}


@pytest.mark.parametrize("encoding", ["utf8", "utf-8-sig", "utf16"])
def test_unicode_of_every_usual_kind_is_read(tmp_path, encoding):
    (tmp_path / "t.csv").write_bytes("größe,name\n1,José\n".encode(encoding))
    assert read_table(tmp_path / "t.csv").to_pydict() == {"größe": [1], "name": ["José"]}


def test_empty_cells_are_missing_and_quoted_ones_are_text(tmp_path):
    (tmp_path / "t.csv").write_text('age,country\n31,"NA"\n,\nNA,x\n')
    assert read_table(tmp_path / "t.csv").to_pydict() == {
        "age": [31, None, None],
        "country": ["NA", None, "x"],
    }


REFUSED = {
    "empty": (b"", "empty file"),
    "names only": (b"score,age\n", "0 rows"),
    "garbage": (bytes(range(256)) * 4, "other binary data"),
    "spreadsheet": (b"PK\x03\x04" + b"x" * 100, "zip archive or spreadsheet"),
    "latin": ("name,age\nJosé,3\n".encode("latin1"), "UTF-8"),
    "torn parquet": (b"PAR1" + b"x" * 100, "whole CSV, Parquet or Arrow"),
    "torn arrow": (b"ARROW1\0\0" + b"x" * 100, "whole CSV, Parquet or Arrow"),
    "torn stream": (b"\xff\xff\xff\xff\x10\0\0\0" + b"x" * 100, "whole CSV, Parquet or Arrow"),
    "torn gzip": (gzip.compress(b"score,age\n" + os.urandom(5000))[:200], "gzip"),
    "ragged": (b"score,age\n0.5,31\n0.6\n", "1 fields under 2 column names"),
    "same name twice": (b"score,score\n0.5,31\n", "'score' twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_table_is_refused_with_the_cure(tmp_path, case):
    content, words = REFUSED[case]
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=words) as refused:
        read_table(tmp_path / "t.csv")
    text = str(refused.value)
    assert text.startswith("'path' must ")
    assert "\n" not in text
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_a_parquet_without_rows_is_refused(tmp_path):
    write_table(TABLE.slice(0, 0), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="Got 0 rows under 3 column names"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(("asked", "meant"), [("Age", "age"), ("scroe", "score"), (" job ", "job")])
def test_a_column_that_is_not_there_is_told_with_the_closest(tmp_path, asked, meant):
    write_table(TABLE, tmp_path / "t.csv")
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'"):
        read_table(tmp_path / "t.csv", columns=[asked])


def test_refusals_do_not_quote_the_data(tmp_path):
    (tmp_path / "t.csv").write_text("name,age\nAda Lovelace,36,London\n")
    with pytest.raises(ValueError, match="fields under") as refused:
        read_table(tmp_path / "t.csv")
    assert "Lovelace" not in str(refused.value)


def test_directories_and_devices_are_refused(tmp_path):
    for path in (tmp_path, "/dev/null"):
        with pytest.raises(ValueError, match="must be a regular file"):
            read_table(path)
        with pytest.raises(ValueError, match="must be a regular file"), replacing(path):
            pass
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "nowhere.csv")


def test_only_the_columns_asked_for_are_held(tmp_path):
    n = 200_000
    write_table({f"c{j}": np.random.default_rng(j).normal(size=n) for j in range(20)}, tmp_path / "t.parquet")
    before = pa.total_allocated_bytes()
    table = read_table(tmp_path / "t.parquet", columns=["c3"])
    assert pa.total_allocated_bytes() - before < 20 * 8 * n / 4  # all of them would be 20 * 8 * n
    assert table.num_rows == n


def test_rows_with_gaps_are_dropped_by_null_and_nan_in_the_columns_asked_for():
    table = pa.table({"a": [1.0, float("nan"), 3.0], "b": ["x", "y", None]})
    assert drop_missing(table).to_pydict() == {"a": [1.0], "b": ["x"]}
    assert drop_missing(table, ["a"])["b"].to_pylist() == ["x", None]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"old")

    def fail():
        with replacing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert os.listdir(tmp_path) == ["t.txt"]
    assert path.read_bytes() == b"old"


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.parquet"):
        write_table(TABLE, tmp_path / "t.xlsx")
    assert os.listdir(tmp_path) == []


def _mutations(content, count, start=4):
    """Copies of a file with one bit, one byte or a run of bytes changed."""
    g = np.random.default_rng(22)
    for j in range(count):
        damaged, place = bytearray(content), int(g.integers(start, len(content)))
        width = (1, 1, 8)[j % 3]
        if j % 3 == 0:
            damaged[place] ^= 1 << int(g.integers(8))
        else:
            damaged[place : place + width] = g.bytes(len(damaged[place : place + width]))
        yield bytes(damaged)


def test_75_damaged_parquet_files_are_refused_or_read_as_the_same_table(tmp_path):
    g, path = np.random.default_rng(0), tmp_path / "t.parquet"
    jobs = np.array(["chef", "nurse", "cook"])[g.integers(0, 3, 300)]
    table = pa.table({"score": g.normal(size=300), "age": g.integers(18, 90, 300), "job": jobs})
    write_table(table, path)
    refused = []
    for damaged in _mutations(path.read_bytes(), 75):
        path.write_bytes(damaged)
        for read in (read_table, lambda path: pa.Table.from_batches(list(open_source(path)))):
            try:
                assert read(path).equals(table)
            except ValueError as error:
                refused.append(str(error))
    assert len(refused) > 100  # of 150; the others changed bytes that nobody reads
    assert all(" must be a whole CSV, Parquet or Arrow file. Got: " in text for text in refused)


def test_a_parquet_footer_that_lost_rows_or_renamed_a_column_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(pa.table({"score": np.arange(300.0), "age": np.arange(300)}), path)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    # 300 rows as thrift writes them: last of all in the row group
    rows = content.rindex(b"\xd8\x04")
    for place, new in ((content.index(b"score", footer), b"scorf"), (rows, b"\xd8\x00")):
        path.write_bytes(content[:place] + new + content[place + len(new) :])
        with pytest.raises(ValueError, match="Got: a Parquet footer that contradicts itself"):
            read_table(path)


def test_a_dataset_of_parquet_files_is_compared_with_its_checksums(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"score": np.random.default_rng(0).normal(size=200)})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pyarrow.parquet.write_table(table, path, **options)
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        list(open_source(pyarrow.dataset.dataset(path)))


def test_an_arrow_file_with_impossible_offsets_is_refused(tmp_path):
    path = tmp_path / "t.arrow"
    jobs = [f"job {j}" for j in range(1000)]
    pyarrow.feather.write_feather(pa.table({"job": jobs}), path, compression="uncompressed")
    content = bytearray(path.read_bytes())
    offset = content.index(np.array([0, 5, 10], dtype=np.int32).tobytes())
    content[offset + 43] ^= 0x40  # its text would begin a gigabyte further on
    path.write_bytes(content)
    for read in (read_table, lambda path: list(open_source(path))):
        with pytest.raises(ValueError, match="must be a whole CSV, Parquet or Arrow file"):
            read(path)
