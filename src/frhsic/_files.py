"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

PathLike: TypeAlias = str | os.PathLike[str]


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file beside ``path`` that takes its place when the block ends, and vanishes if it fails.

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
    # Not tempfile: its files are 0600, and the umask can only be asked by changing it for all threads.
    temporary = os.path.join(os.path.dirname(target), f".frhsic-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            if mode is not None:
                os.chmod(temporary, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def check_regular(status: os.stat_result) -> None:
    """Raise ValueError unless it is a file that can be read or replaced."""
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe or device"
        raise ValueError(f"'path' must be a regular file. Got {what}. Pass the path of a file.")
