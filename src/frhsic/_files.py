"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

if sys.platform != "win32":
    import fcntl

PathLike: TypeAlias = str | os.PathLike[str]
_TEMPORARY = re.compile(r"\.frhsic-[0-9a-f]{16}\.tmp")
_OLD = 3_600.0  # seconds
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file beside ``path`` that takes its place when the block ends, and vanishes if it fails.

    Until then only its owner can read it, and it is locked. A killed process leaves it behind: the next one
    that writes to the folder removes what is older than an hour and no longer locked. A full disk is an
    OSError with the name of ``path``, which is then as it was.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacing(f"{folder}/a.txt") as file:
    ...         _ = file.write(b"whole or not at all")
    ...     os.listdir(folder)
    ['a.txt']
    """
    target = os.path.realpath(path)
    mode = None
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(target)
        check_regular(status)  # os.replace would put a file in the place of /dev/null
        mode = stat.S_IMODE(status.st_mode) & 0o777
    folder = os.path.dirname(target)
    _remove_left(folder)
    # Not tempfile: the umask can only be asked by changing it for all threads, or by making a file.
    temporary = os.path.join(folder, f".frhsic-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            made = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            os.chmod(temporary, 0o600)
            _lock(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, made if mode is None else mode)
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and (error.errno in _FULL or error.filename == temporary):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


@functools.cache  # once in a process
def _remove_left(folder: str) -> None:
    """Remove files that killed processes left in a folder."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD:
                        with open(entry.path, "rb") as file:
                            if _lock(file.fileno()):
                                os.unlink(entry.path)


def _lock(descriptor: int) -> bool:
    """Lock a file until it is closed; return whether that was possible."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has it, or the file system has no locks
        return False
    return True


def check_regular(status: os.stat_result) -> None:
    """Raise ValueError unless it is a file that can be read or replaced."""
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe or device"
        raise ValueError(f"'path' must be a regular file. Got {what}. Pass the path of a file.")
