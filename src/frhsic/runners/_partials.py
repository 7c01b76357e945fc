"""Sketches of units on a disk, with which an interrupted run continues.

A file is named by all that determines its content, and begins with a checksum of that name and the content:
one that is damaged, renamed or of another file, version or specification is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from frhsic._files import replacing
from frhsic.runners._work import Job, Unit
from frhsic.sketching import HSICSketch

_MARK = b"frhsic-partial 1\n"
_DIGEST = 32


class Partials:
    """A folder with sketches of units."""

    def __init__(self, folder: str | os.PathLike[str], job: Job, like: HSICSketch) -> None:
        self._folder = Path(folder)
        # For this user alone, since the files hold rows.
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._like = like
        source = job.source
        self._common = {
            "spec": like.spec,
            "columns": asdict(job.columns),
            "types": [str(field.type) for field in source.schema],
            "batch_rows": source.batch_rows,
            "allow_missing": source.allow_missing,
            "missing_values": list(source.missing_values),
            "versions": [version("frhsic"), torch.__version__],
        }

    def load(self, unit: Unit) -> HSICSketch | None:
        """Return the sketch of a unit, or None if there is no valid file."""
        key = self._key(unit)
        with contextlib.suppress(FileNotFoundError, ValueError):
            content = self._path(key).read_bytes()
            data = content[len(_MARK) + _DIGEST :]
            if content == _MARK + _checksum(key, data) + data:
                return HSICSketch.from_bytes(data, like=self._like)
        return None

    def save(self, unit: Unit, data: bytes) -> None:
        key = self._key(unit)
        with replacing(self._path(key)) as file:
            file.write(_MARK + _checksum(key, data))
            file.write(data)

    def _key(self, unit: Unit) -> bytes:
        pieces = [[piece.name, piece.fingerprint, piece.rows, piece.first_row] for piece in unit]
        text = json.dumps({**self._common, "pieces": pieces}, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest()

    def _path(self, key: bytes) -> Path:
        return self._folder / f"{key.hex()}.partial"


def _checksum(key: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=_DIGEST).digest()
