"""Finding, downloading, checking and keeping files, against a real HTTP server."""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from frhsic.datasets import _fetch
from frhsic.datasets._fetch import File

CONTENT = b"x,y\n" + b"1,2\n" * 5000
HTML = b"<!DOCTYPE html><html><body>Service unavailable</body></html>"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def make_file(*urls, packed=None):
    copies = {"small.csv": sha256(CONTENT)}
    if packed is not None:
        copies["small.csv.gz"] = sha256(packed)
    return File(copies, urls)


def make_zip(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_csv", ".csv"), content)
    return buffer.getvalue()


def test_a_right_download_is_returned_and_kept(server, tmp_path):
    file = make_file(server.add("/small.csv", CONTENT))
    assert _fetch.read_file(file, data_home=tmp_path / "new" / "folder", cache=True) == CONTENT
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["small.csv"]


def test_the_second_call_does_not_ask_the_server(server, tmp_path):
    file = make_file(server.add("/small.csv", CONTENT))
    for _ in range(2):
        _fetch.read_file(file, data_home=tmp_path, cache=True)
    assert server.requests["/small.csv"] == 1


def test_cache_false_leaves_nothing_behind(server, tmp_path):
    file = make_file(server.add("/small.csv", CONTENT))
    for _ in range(2):
        assert _fetch.read_file(file, data_home=tmp_path, cache=False) == CONTENT
    assert list(tmp_path.iterdir()) == []
    assert server.requests["/small.csv"] == 2


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (CONTENT[:-1], "must have the sha256"),
        (CONTENT.replace(b"1", b"7", 1), "must have the sha256"),
        (HTML, "a web page of"),
        (b"", "0 bytes"),
    ],
    ids=["truncated", "changed byte", "error page", "empty"],
)
def test_a_wrong_download_is_refused_and_not_kept(server, tmp_path, body, says):
    file = make_file(server.add("/small.csv", body))
    with pytest.raises(ValueError, match=says):
        _fetch.read_file(file, data_home=tmp_path, cache=True)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_breaks_off_is_refused(server, tmp_path):
    url = server.add("/small.csv", CONTENT)
    handler = server.httpd.RequestHandlerClass

    def half(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:1000])

    handler.do_GET = half
    with pytest.raises(FileNotFoundError, match="failed with"):
        _fetch.read_file(make_file(url), data_home=tmp_path, cache=True)
    assert list(tmp_path.iterdir()) == []


def test_the_second_source_serves_when_the_first_fails(server, tmp_path):
    good = server.add("/small.zip", make_zip(small_csv=CONTENT))
    for first in (server.add("/gone", b"", status=404), server.add("/page", HTML)):
        content = _fetch.read_file(make_file(first, good), data_home=tmp_path, cache=False)
        assert content == CONTENT


def test_a_zip_with_a_changed_member_is_refused(server, tmp_path):
    url = server.add("/small.zip", make_zip(small_csv=CONTENT + b"3,4\n"))
    with pytest.raises(ValueError, match=r"'small\.csv' must have the sha256"):
        _fetch.read_file(make_file(url), data_home=tmp_path, cache=True)


def test_without_file_and_source_the_message_says_what_to_do(server, tmp_path):
    url = server.add("/small.csv", b"", status=503)
    with pytest.raises(FileNotFoundError) as caught:
        _fetch.read_file(make_file(url, packed=b"p"), data_home=tmp_path, cache=True)
    message = str(caught.value)
    for part in ("small.csv or small.csv.gz", str(tmp_path), url, "503", "data_home=", "FRHSIC_DATA_HOME"):
        assert part in message
    with pytest.raises(FileNotFoundError, match="there is no download of this file"):
        _fetch.read_file(make_file(), data_home=tmp_path, cache=True)


def test_an_unreachable_server_is_reported_as_such(tmp_path):
    # Port 9 (discard) of the own machine is closed: refused at once, no internet needed.
    with pytest.raises(FileNotFoundError, match="failed with ConnectionError"):
        _fetch.read_file(make_file("http://127.0.0.1:9/small.csv"), data_home=tmp_path, cache=True)


@pytest.mark.parametrize("place", [0, 3, 4, 9, 40, -1])
def test_a_changed_byte_in_a_local_file_is_refused(tmp_path, place):
    packed = gzip.compress(CONTENT, mtime=0)
    file = make_file(packed=packed)
    for name, content in (("small.csv", CONTENT), ("small.csv.gz", packed)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(content)
        assert _fetch.find_file(file, folder) == CONTENT
        changed = bytearray(content)
        changed[place] ^= 1
        (folder / name).write_bytes(bytes(changed))
        with pytest.raises(ValueError, match="must have the sha256"):
            _fetch.find_file(file, folder)


def test_an_error_page_saved_as_data_is_refused(tmp_path):
    (tmp_path / "small.csv").write_bytes(HTML)
    with pytest.raises(ValueError, match="a web page of 60 bytes"):
        _fetch.read_file(make_file(), data_home=tmp_path, cache=True)


def test_the_argument_goes_before_the_environment_and_that_before_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FRHSIC_DATA_HOME", str(tmp_path / "environment"))
    assert _fetch.data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert _fetch.data_folder(None) == tmp_path / "environment"
    monkeypatch.delenv("FRHSIC_DATA_HOME")
    assert _fetch.data_folder(None).name == "frhsic"


def test_a_read_only_folder_is_only_read(tmp_path):
    (tmp_path / "small.csv").write_bytes(CONTENT)
    tmp_path.chmod(0o555)
    before = tmp_path.stat().st_mtime_ns
    try:
        assert _fetch.read_file(make_file(), data_home=tmp_path, cache=True) == CONTENT
    finally:
        tmp_path.chmod(0o755)
    assert tmp_path.stat().st_mtime_ns == before
    assert os.listdir(tmp_path) == ["small.csv"]


def test_a_folder_that_cannot_be_written_still_gives_the_data(server, tmp_path):
    (tmp_path / "occupied").write_bytes(b"")  # a file where the folder should be
    file = make_file(server.add("/small.csv", CONTENT))
    with pytest.warns(UserWarning, match="'data_home' must be writable"):
        assert _fetch.read_file(file, data_home=tmp_path / "occupied", cache=True) == CONTENT


def test_two_processes_at_once_do_not_corrupt_the_cache(server, tmp_path):
    url = server.add("/small.csv", CONTENT)
    server.barrier = threading.Barrier(2)  # neither gets an answer before both have asked
    # The module is loaded from its file: importing the whole package would load torch twice.
    program = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("fetch", {_fetch.__file__!r})
fetch = sys.modules["fetch"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fetch)
file = fetch.File({{"small.csv": {sha256(CONTENT)!r}}}, ({url!r},))
assert len(fetch.read_file(file, data_home={str(tmp_path)!r}, cache=True)) == {len(CONTENT)}
"""
    workers = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    assert server.requests["/small.csv"] == 2
    assert os.listdir(tmp_path) == ["small.csv"]
    assert (tmp_path / "small.csv").read_bytes() == CONTENT


def test_whoever_reads_while_a_file_is_replaced_sees_the_old_one_in_whole(tmp_path):
    path = tmp_path / "small.csv"
    path.write_bytes(CONTENT)
    with open(path, "rb", buffering=0) as reader:
        start = reader.read(100)
        _fetch._keep(path, CONTENT[::-1])
        assert start + reader.read() == CONTENT
    assert path.read_bytes() == CONTENT[::-1]
    assert os.listdir(tmp_path) == ["small.csv"]


def test_a_disk_that_fills_up_leaves_no_half_file(tmp_path):
    # A process that may write files of 1,000 bytes at most.
    program = f"""
import importlib.util, pathlib, resource, signal, sys, warnings
spec = importlib.util.spec_from_file_location("fetch", {_fetch.__file__!r})
fetch = sys.modules["fetch"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fetch)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    fetch._keep(pathlib.Path({str(tmp_path)!r}) / "small.csv", bytes(5000))
assert "must be writable" in str(caught[0].message)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert os.listdir(tmp_path) == []


def test_a_converted_download_is_kept_and_guarded(server, tmp_path):
    url = server.add("/raw.zip", make_zip(a__raw_csv=CONTENT))

    def convert(content, where):
        return _fetch.zip_member(content, lambda name: name == "raw.csv", where)[:100]

    def read(folder=tmp_path):
        return _fetch.read_converted("small.csv.gz", "raw.zip", url, convert, data_home=folder, cache=True)

    assert read() == read() == CONTENT[:100]
    assert server.requests["/raw.zip"] == 1
    assert os.listdir(tmp_path) == ["small.csv.gz"]
    kept = bytearray((tmp_path / "small.csv.gz").read_bytes())
    kept[-5] ^= 1
    (tmp_path / "small.csv.gz").write_bytes(bytes(kept))
    with pytest.raises(ValueError, match="must be a whole gzip file"):
        read()
    # A copy of the official file, brought by hand, serves like a download.
    by_hand = tmp_path / "by hand"
    by_hand.mkdir()
    (by_hand / "raw.zip").write_bytes(server.pages["/raw.zip"][1])
    assert read(by_hand) == CONTENT[:100]
    assert server.requests["/raw.zip"] == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (HTML, "must be a whole zip archive. Got a web page"),
        (make_zip(a__raw_csv=CONTENT)[:-30], "must be a whole zip archive"),
        (make_zip(other_csv=CONTENT), "must hold the data file once. Got 0"),
    ],
    ids=["error page", "truncated", "other archive"],
)
def test_what_is_not_the_official_zip_is_refused(server, tmp_path, body, says):
    url = server.add("/raw.zip", body)

    def convert(content, where):
        return _fetch.zip_member(content, lambda name: name == "raw.csv", where)

    with pytest.raises(ValueError, match=says):
        _fetch.read_converted("small.csv.gz", "raw.zip", url, convert, data_home=tmp_path, cache=True)
    assert list(tmp_path.iterdir()) == []


def test_the_package_does_not_import_frame_libraries_by_itself():
    # scikit-learn imports pandas where it is installed, so ask the source of our own files.
    heavy = ("pandas", "polars", "pyarrow", "matplotlib")
    for path in Path(_fetch.__file__).parent.glob("*.py"):
        for line in path.read_text().splitlines():
            words = line.split()
            assert not (words[:1] in (["import"], ["from"]) and words[1].split(".")[0] in heavy), (path, line)
