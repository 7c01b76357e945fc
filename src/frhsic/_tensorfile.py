"""One file of named tensors and one JSON document, for saved models and training checkpoints.

It is a plain safetensors file whose metadata has the single entry ``{"frhsic": "<JSON text>"}``. Files come
from outside, so reading runs nothing that they hold and believes nothing that they say: the header is checked
here, every byte accounted for, before the safetensors library sees it. The document holds a SHA-256 of the
whole file under ``"sha256"``, which ``write`` adds and ``read`` compares: a changed file is refused. This
guards against damage, not against somebody who changes the file and its digest.

Memory: no more than 8 bytes are read before the length of the header is known to be sane, no more than the
header before every tensor is known to lie within the file. So reading takes at most twice the size of the
file and once its largest tensor, and what the JSON becomes as Python objects: up to thirty times a header of
at most 4 MiB. The size of a sparse file is the one that it claims.

Privacy: a message names counts, sizes and types, and at most 40 characters of a name.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from frhsic._files import NO_DIGEST, is_sealed, replacing, seal

__all__ = ["VERSION", "TensorFileError", "read", "write"]

VERSION = 3  # 2: budgets, 3: a digest

_MAX_HEADER = 4 * 2**20
_MAX_TENSORS = 10_000
_MAX_NDIM = 16
_MAX_DEPTH = 32
# Enough for the 128-bit state of a random generator; int() takes quadratic time in the digits.
_MAX_DIGITS = 40
# The other sizes of an empty tensor: nothing in the file bounds them, yet x.sum(0) would allocate them.
_MAX_BESIDE_ZERO = 2**20
# As in a state dict, words joined by single dots: no separator, no "..", nothing invisible.
_NAME = re.compile(r"(?=.{1,200}\Z)[A-Za-z0-9_:-]+(?:\.[A-Za-z0-9_:-]+)*")
_DTYPES = {
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_CURES = {
    "path": "The file is damaged or frhsic did not write it: save or copy it again.",
    "tensors": "Save fewer or plainer ones, or a shorter document.",
    "document": "Use dicts with string keys, lists, strings, finite numbers, booleans and None.",
}


class TensorFileError(ValueError):
    """A file that is refused, or contents that could not be read back."""


def write(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], document: Mapping[str, object]
) -> None:
    """Replace the file at ``path`` in one step: whoever reads it finds the old one or the new one, whole.

    Equal input gives equal bytes. As with ``open``, links are followed, a file that exists keeps its
    permissions and a new one gets those of the umask. A killed process may leave ``.frhsic-*.tmp`` there.

    Parameters
    ----------
    path : str or path
        A regular file, or nothing yet, in a directory that exists.
    tensors : mapping of str to Tensor
        Dense, of dtype float32, float64, int64, uint8 or bool; tensors that share memory are written apart.
    document : mapping
        JSON, with ``"format"`` (the kind) and ``"version"`` (``VERSION``), without ``"sha256"``. Tuples come
        back as lists and numbers that are keys as strings.

    Raises
    ------
    TensorFileError
        If ``read`` would refuse the file. Nothing is written then.
    OSError
        If the disk refuses. The old file stays.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write(f"{folder}/m", {"w": torch.ones(2)}, {"format": "frhsic-model", "version": 3})
    ...     read(f"{folder}/m", kind="frhsic-model")
    ({'w': tensor([1., 1.])}, {'format': 'frhsic-model', 'version': 3})
    """
    for name, x in tensors.items():
        _check_name(name, "tensors")
        dense = isinstance(x, Tensor) and x.layout == torch.strided and not x.is_meta
        if not dense or x.dtype not in _DTYPES.values():
            got = f"{x.dtype}, {x.layout} on {x.device}" if isinstance(x, Tensor) else type(x).__name__
            must, cure = "be dense and float32, float64, int64, uint8 or bool", "Convert them first."
            raise _refusal(must, got, "tensors", cure)
    try:
        text = json.dumps(
            {"sha256": NO_DIGEST, **document}, sort_keys=True, allow_nan=False, ensure_ascii=False
        )
        raw = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal("be JSON", f"a {type(error).__name__} from writing it so", "document") from None
    _check_document(_decode(raw, "document"), None, "document")
    # Clones, since the library refuses tensors that share memory (tied weights).
    packed = {
        name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in tensors.items()
    }
    data = safetensors.torch.save(dict(sorted(packed.items())), {"frhsic": text})
    n = _header_length(data[:8], len(data), "tensors")
    _check_header(data[8 : 8 + n], len(data) - 8 - n, None, "tensors")
    if "sha256" in document or data[8 : 8 + n].count(rb"\"sha256\": ") != 1:
        raise _refusal("have no key 'sha256', in which the file keeps its digest", "one", "document")
    _replace(os.path.realpath(path), seal(data))


def read(
    path: str | os.PathLike[str], *, kind: str, finite: bool = True
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and document of a file that ``write`` wrote, bit for bit, or a refusal.

    Parameters
    ----------
    path : str or path
        A regular file; links are followed.
    kind : str
        What the document's ``"format"`` must be.
    finite : bool, default=True
        Refuse NaN and infinity in the tensors. False is for checkpoints, whose state may hold an infinite
        best loss; a model with such weights is broken.

    Returns
    -------
    tensors : dict of str to Tensor
        By sorted names, on the CPU; each owns its memory and may be written to.
    document : dict
        Plain JSON. Beyond ``"format"`` and ``"version"`` its contents are the caller's to check.

    Raises
    ------
    TensorFileError
        Whatever is wrong with the file, a missing one included.
    """
    data, document = _load(os.fspath(path), kind)
    if document.pop("sha256", None) is None or not is_sealed(data):
        raise _refusal("have the SHA-256 with which it was written", "another: its bytes have changed")
    try:
        with torch.device("cpu"):  # whatever the default device
            loaded = safetensors.torch.load(data)
    except SafetensorError:
        raise _refusal("be a safetensors file", "a header that the safetensors library refuses") from None
    del data
    tensors = {}
    for name in sorted(loaded):
        x = loaded.pop(name)
        # torch assumes that the byte of a boolean is 0 or 1 and does as it likes with others.
        if x.dtype == torch.bool and x.numel() and x.view(torch.uint8).max() > 1:
            raise _refusal("hold 0 or 1 for each boolean", f"another byte in '{name[:40]}'")
        # Extremes propagate NaN and, unlike isfinite, need no memory.
        if finite and x.is_floating_point() and x.numel() and not all(map(math.isfinite, torch.aminmax(x))):
            got, cure = f"NaN or infinity in '{name[:40]}'", "Save a model whose training converged."
            raise _refusal("hold finite numbers", got, cure=cure)
        # A clone has torch's own alignment, on which the last bits of sums and products may depend.
        tensors[name] = x.clone()
    return tensors, document


def _load(path: str, kind: str) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a file whose header is valid, and its document."""
    try:
        # Before opening, which alone may do something to a device, and after, when it may be another file.
        # From there on one descriptor, and no mmap: it dies of SIGBUS if somebody shortens the file.
        _check_regular(os.stat(path))
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            _check_regular(status)
            start = file.read(8)
            n = _header_length(start, status.st_size)
            n_rest = status.st_size - 8 - n
            header = file.read(n)
            document = _check_header(header, n_rest, kind)
            data = b"".join((start, header, file.read(n_rest)))
    except TensorFileError:
        raise
    except (OSError, ValueError) as error:
        got = error.strerror if isinstance(error, OSError) else "a path that no file can have"
        raise _refusal("be a readable file", f"'{got}'", cure="Check the path and its permissions.") from None
    if len(data) != status.st_size:
        raise _refusal("stay as it is while it is read", "fewer bytes than its size", cure="Read it again.")
    return data, document


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a pipe would wait for its writer. Windows has neither the flag nor such pipes.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _replace(path: str, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        _check_regular(os.stat(path))
    with replacing(path) as file:
        file.write(data)


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _refusal("be a regular file", "a directory, pipe or device", cure="Pass the path of a file.")


def _header_length(start: bytes, size: int, argument: str = "path") -> int:
    n, most = int.from_bytes(start, "little"), min(_MAX_HEADER, size - 8)
    if len(start) < 8 or n > most:
        raise _refusal(f"have a header of at most {max(most, 0)} bytes", f"{n} in a file of {size}", argument)
    return n


def _check_header(header: bytes, n_data: int, kind: str | None, argument: str = "path") -> dict[str, Any]:
    """Return the document if the header accounts for each of ``n_data`` bytes once; None is any kind."""
    entries = _decode(header, argument)
    match entries:
        case {"__metadata__": {"frhsic": str(text), **others}} if not others:
            del entries["__metadata__"]
        case _:
            raise _refusal("have a header with 'frhsic' as its only metadata", "another", argument)
    # First of all, since a newer version may have other tensors.
    document = _check_document(_decode(text.encode(), argument), kind, argument)
    if len(entries) > _MAX_TENSORS:
        raise _refusal(f"hold at most {_MAX_TENSORS} tensors", f"{len(entries)}", argument)
    spans = sorted(_span(name, entry, argument) for name, entry in entries.items())
    if [0, *(end for _, end in spans)] != [*(begin for begin, _ in spans), n_data]:
        got = f"overlaps, holes or an end other than {n_data} bytes"
        raise _refusal("hold its tensors one after the other", got, argument)
    return document


def _span(name: str, entry: object, argument: str) -> tuple[int, int]:
    """Return where the data of a tensor begins and ends."""
    _check_name(name, argument)
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [begin, end], **others} if (
            not others
            and dtype in _DTYPES
            and len(shape) <= _MAX_NDIM
            and all(type(k) is int and k >= 0 for k in (*shape, begin, end))  # true is an int by isinstance
            and end - begin == math.prod(shape) * _DTYPES[dtype].itemsize
            and (0 not in shape or math.prod(filter(None, shape)) <= _MAX_BESIDE_ZERO)
        ):
            return begin, end
    must = (
        f"hold {', '.join(_DTYPES)} tensors of at most {_MAX_NDIM} dimensions and as many bytes as they need"
    )
    raise _refusal(must, f"another header for '{name[:40]}'", argument)


def _check_name(name: object, argument: str) -> None:
    if not isinstance(name, str) or name == "__metadata__" or not _NAME.fullmatch(name):
        got = ascii(name[:40]) if isinstance(name, str) else type(name).__name__
        cure = "Use at most 200 letters, digits, '_', ':', '-' and single dots between them."
        raise _refusal("name tensors like a state dict", got, argument, cure)


def _check_document(document: Any, kind: str | None, argument: str) -> dict[str, Any]:
    match document:
        case {"format": str(found), "version": int(version)} if not isinstance(version, bool):
            pass
        case _:
            raise _refusal("hold a 'format' (text) and a 'version' (integer)", "none or others", argument)
    if kind not in (None, found):
        raise _refusal(f"hold '{kind}'", ascii(found[:40]), argument, f"Pass a file of the kind '{kind}'.")
    if version != VERSION:
        cure = "A newer frhsic reads newer versions."
        if 1 <= version < VERSION:
            cure = "An older frhsic wrote it: load it with that one, or fit and save again."
        raise _refusal(f"have version {VERSION}", f"{version}", argument, cure)
    return document


def _decode(raw: bytes, argument: str) -> Any:
    """Return what JSON of the plainest sort says."""
    try:
        text = raw.decode()
        # The parser recurses in C and would crash under a raised recursion limit: count the brackets first.
        # Without escapes, every second piece between quotes lies outside of strings.
        outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
        steps = (1 if bracket in "[{" else -1 for bracket in outside if bracket in "[]{}")
        if max(itertools.accumulate(steps), default=0) > _MAX_DEPTH:
            raise ValueError
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_integer)
        # Finds NaN, infinity (1e999 too) and lone surrogates, wherever they are.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        rules = f"UTF-8, finite, integers of at most {_MAX_DIGITS} digits, no key twice, {_MAX_DEPTH} levels"
        raise _refusal(f"hold plain JSON ({rules})", "something else", argument) from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError
    return int(digits)


def _refusal(must: str, got: str, argument: str = "path", cure: str | None = None) -> TensorFileError:
    return TensorFileError(f"'{argument}' must {must}. Got {got}. {cure or _CURES[argument]}")
