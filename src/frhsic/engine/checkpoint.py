"""Checkpoints: all that changes during training, in one file, from which the same call goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from frhsic import _tensorfile as tensorfile
from frhsic._checks import ArgumentError

KIND: Final = "frhsic-checkpoint"
_REMOVE = "Remove it to begin anew."


@dataclass(frozen=True)
class Checkpoint:
    """The file of one run, and what makes the run that one.

    Parameters
    ----------
    path : Path
    fingerprint : dict
        Plain values. Reading a file with another fingerprint raises ValueError.
    """

    path: Path
    fingerprint: Mapping[str, Any]

    def write(self, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> None:
        """Replace the file in one step."""
        head = {
            "format": KIND,
            "version": tensorfile.VERSION,
            "fingerprint": dict(self.fingerprint),
            "names": sorted(tensors),
        }
        tensorfile.write(self.path, tensors, {**document, **head})

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what was written by the same run, None if nothing was."""
        if not self.path.exists():
            return None
        try:
            tensors, document = tensorfile.read(self.path, kind=KIND, finite=False)
        except tensorfile.TensorFileError as error:
            fix = f"{error.fix} {_REMOVE}"
            raise tensorfile.TensorFileError("checkpoint", error.must, error.got, fix) from None
        found = document.get("fingerprint")
        if not isinstance(found, dict) or document.get("names") != sorted(tensors):
            must = "hold what a run wrote into it"
            raise tensorfile.TensorFileError("checkpoint", must, "another file", _REMOVE)
        differs = [name for name, value in self.fingerprint.items() if found.get(name) != value]
        if differs:
            raise ArgumentError(
                "checkpoint",
                "be of the same call",
                f"a file of one that differs in {differs}",
                "Repeat that call (with an integer random_state) to go on, or remove the file to begin anew.",
            )
        return tensors, document

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self.path.unlink(missing_ok=True)


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a checksum of shapes and values.

    Examples
    --------
    >>> import torch
    >>> digest([torch.zeros(2)]) == digest([torch.zeros(3)])
    False
    """
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
