"""Files that appear whole or not at all: rights while they are written, and what a killed process leaves."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time

import pytest

from frhsic._files import _lock, replacing
from frhsic.cli._errors import describe

fcntl = pytest.importorskip("fcntl")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("before", [None, 0o640])
def test_a_file_is_private_and_locked_until_it_is_whole(before, tmp_path):
    target, plain = tmp_path / "a.json", tmp_path / "plain"
    plain.touch()
    if before is not None:
        target.touch()
        target.chmod(before)
    with replacing(target) as file:
        file.write(b"secret")
        (left,) = tmp_path.glob(".frhsic-*.tmp")
        assert mode(left) == 0o600
        with left.open("rb") as other:
            assert not _lock(other.fileno())
    assert mode(target) == (mode(plain) if before is None else before)
    assert names(tmp_path) == ["a.json", "plain"]


def run(code, folder):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=folder, capture_output=True, text=True, check=False
    )


KILLED = """
    import os, signal
    from frhsic._files import replacing
    with replacing("a.json") as file:
        file.write(b"the whole record")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_an_hour_later(tmp_path):
    assert run(KILLED, tmp_path).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.read_bytes() == b"the whole record"
    assert mode(left) == 0o600
    locked, fresh = tmp_path / f".frhsic-{'0' * 16}.tmp", tmp_path / f".frhsic-{'1' * 16}.tmp"
    others = [tmp_path / name for name in (".frhsic-notes.tmp", f"frhsic-{'0' * 16}.tmp", "b.tmp")]
    for path in (locked, fresh, *others):
        path.write_bytes(b"kept")
    link = tmp_path / f".frhsic-{'2' * 16}.tmp"
    link.symlink_to(others[0])
    old = time.time() - 3_700
    for path in (left, locked, *others):
        os.utime(path, (old, old))
    with locked.open("rb") as held:
        assert _lock(held.fileno())
        with replacing(tmp_path / "a.json") as file:
            file.write(b"{}")
    assert names(tmp_path) == sorted(
        path.name for path in (locked, fresh, link, *others, tmp_path / "a.json")
    )


FULL = """
    import resource, signal
    from frhsic._files import replacing
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with replacing("whole.json") as file:
        file.write(b"{}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
    try:
        with replacing("a.json") as file:
            file.write(bytes(10_000))
    except OSError as error:
        print(error.filename)
"""


def test_a_full_disk_is_an_error_with_the_name_of_the_file_which_stays_as_it_was(tmp_path):
    (tmp_path / "a.json").write_bytes(b"before")
    done = run(FULL, tmp_path)
    assert (done.stdout, done.stderr) == ("a.json\n", "")
    assert names(tmp_path) == ["a.json", "whole.json"]
    assert (tmp_path / "a.json").read_bytes() == b"before"


@pytest.mark.parametrize("name", ["a.json", None])
def test_after_an_error_of_the_system_nobody_claims_that_nothing_was_written(name):
    error = OSError(28, "No space left on device", name)
    said = describe(error)
    assert said.startswith(f"The system refused{' ' + repr(name) if name else ''}: No space left on device.")
    assert said.endswith("other files of this command may have been written.")
    assert "Nothing was written" not in said


def test_a_folder_without_the_right_to_write_is_named_by_its_file(tmp_path):
    with pytest.raises(OSError, match="No such file") as refused, replacing(tmp_path / "none" / "a.json"):
        pass
    assert refused.value.filename == str(tmp_path / "none" / "a.json")
