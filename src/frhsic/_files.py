"""Files that appear whole or not at all, and the digest by which a changed file is told."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

PathLike: TypeAlias = str | os.PathLike[str]

# In the JSON document of a safetensors file, whose quotes are escaped in the header around it.
NO_DIGEST = "0" * 64
_DIGEST = re.compile(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"')


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
    """Refuse what is no file that could be read or replaced."""
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe or device"
        raise ValueError(f"'path' must be a regular file. Got {what}. Pass the path of a file.")


def seal(data: bytes) -> bytes:
    """Put the SHA-256 of a safetensors file into its document, whose "sha256" is ``NO_DIGEST`` until then.

    The digest is that of all bytes with ``NO_DIGEST`` in its place: header, document and tensors.
    """
    start, end, _ = _find_digest(data)
    return b"".join((data[:start], hashlib.sha256(data).hexdigest().encode(), data[end:]))


def is_sealed(data: bytes) -> bool:
    """Return whether a file has the digest that ``seal`` gave it: False if anything in it was changed."""
    try:
        start, end, found = _find_digest(data)
    except ValueError:
        return False
    whole = memoryview(data)
    total = hashlib.sha256(whole[:start])
    total.update(NO_DIGEST.encode())
    total.update(whole[end:])
    return total.hexdigest().encode() == found


def _find_digest(data: bytes) -> tuple[int, int, bytes]:
    found = list(_DIGEST.finditer(data, 8, 8 + int.from_bytes(data[:8], "little")))
    if len(found) != 1:
        raise ValueError("'data' must hold one digest in its document.")
    return *found[0].span(1), found[0][1]
