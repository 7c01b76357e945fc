"""Named tensors and one JSON document as a file or as bytes: saved models, checkpoints and sketches.

The form is a plain safetensors file whose metadata has the single entry ``{"frhsic": "<JSON text>"}``. It
comes from outside, so reading runs nothing that it holds: the header is checked here, every byte accounted
for, before the safetensors library sees it. The document holds a SHA-256 of the whole under ``"sha256"``,
which guards against damage, not against somebody who changes the contents and the digest.

Memory: no more than 8 bytes of a file are read before the length of the header is checked, no more than the
header before every tensor is known to lie within the file. So reading takes at most twice the size of the
file and once its largest tensor, and up to thirty times a header of at most 4 MiB for the JSON. The size of a
sparse file is the one that it claims. Messages hold at most 40 characters of a name.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from typing import Any, TypeAlias

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._files import replacing

__all__ = ["VERSION", "TensorFileError", "pack", "read", "unpack", "write"]

Kind: TypeAlias = str | tuple[str, ...]
VERSION = 4  # of models and checkpoints. 2: budgets, 3: a digest, 4: limits
_STILL_READ = 3  # the oldest of them that is read

_MAX_HEADER = 4 * 2**20
_MAX_TENSORS = 10_000
# As many as torch computes with.
_MAX_NDIM = 64
# The kernel of many columns is a product of products.
_MAX_DEPTH = 256
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
_FIXES = {
    "path": "The file is damaged or frhsic did not write it: save or copy it again.",
    "data": "Make the sketch again, or copy its bytes again.",
    "tensors": "Save fewer or plainer ones, or a shorter document.",
    "document": "Use dicts with string keys, lists, strings, finite numbers, booleans and None.",
}
# In the JSON document, whose quotes are escaped in the header around it.
_NO_DIGEST = "0" * 64
_DIGEST = re.compile(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"')


class TensorFileError(ArgumentError):
    """A file or bytes that cannot be read, or contents that could not be read back."""

    def __init__(self, argument: str, must: str, got: object, fix: str | None = None) -> None:
        super().__init__(argument, must, got, fix or _FIXES[argument])


def write(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], document: Mapping[str, object]
) -> None:
    """Replace the file at ``path`` in one step: a reader finds the old one or the new one, whole.

    As with ``open``, links are followed, a file that exists keeps its permissions and a new one gets those of
    the umask. A killed process may leave ``.frhsic-*.tmp`` beside it, for an hour. TensorFileError if
    ``read`` would not read the file, and OSError if the disk fails: the old file stays.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write(f"{folder}/m", {"w": torch.ones(2)}, {"format": "frhsic-model", "version": 4})
    ...     read(f"{folder}/m", kind="frhsic-model")
    ({'w': tensor([1., 1.])}, {'format': 'frhsic-model', 'version': 4})
    """
    data = pack(tensors, document)
    with contextlib.suppress(FileNotFoundError):
        _check_regular(os.stat(os.path.realpath(path)))
    with replacing(path) as file:
        file.write(data)


def pack(tensors: Mapping[str, Tensor], document: Mapping[str, object], *, version: int = VERSION) -> bytes:
    """Return tensors and a document as bytes. Equal input gives equal bytes.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        Dense, of dtype float32, float64, int64, uint8 or bool; tensors that share memory are written apart.
    document : mapping
        JSON, with ``"format"`` (the kind) and ``"version"``, without ``"sha256"``. Tuples come back as lists
        and numbers that are keys as strings.
    version : int, default=VERSION
        What ``"version"`` must be.
    """
    for name, x in tensors.items():
        _check_name(name, "tensors")
        dense = isinstance(x, Tensor) and x.layout == torch.strided and not x.is_meta
        if not dense or x.dtype not in _DTYPES.values():
            got = f"{x.dtype}, {x.layout} on {x.device}" if isinstance(x, Tensor) else type(x).__name__
            must = "be dense and float32, float64, int64, uint8 or bool"
            raise TensorFileError("tensors", must, got, "Convert them first.")
    whole = {"sha256": _NO_DIGEST, **document}
    try:
        text = json.dumps(whole, sort_keys=True, allow_nan=False, ensure_ascii=False)
        raw = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        got = f"a {type(error).__name__} from writing it so"
        raise TensorFileError("document", "be JSON", got) from None
    _check_document(_decode(raw, "document"), None, version, "document")
    # Clones, since the library does not take tensors that share memory (tied weights).
    plain = torch.contiguous_format
    packed = {name: tensors[name].detach().cpu().clone(memory_format=plain) for name in sorted(tensors)}
    data = safetensors.torch.save(packed, {"frhsic": text})
    n = _header_length(data[:8], len(data), "tensors")
    _check_header(data[8 : 8 + n], len(data) - 8 - n, None, version, "tensors")
    if "sha256" in document or data[8 : 8 + n].count(rb"\"sha256\": ") != 1:
        raise TensorFileError("document", "have no key 'sha256', in which the file keeps its digest", "one")
    return _seal(data)


def read(
    path: str | os.PathLike[str], *, kind: Kind, finite: bool = True
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the document of a file that ``write`` wrote, bit for bit.

    Tensors are on the CPU by sorted names, and own their memory. Of the document, ``"format"``, which must be
    ``kind`` (or one of several), and ``"version"`` are checked; the rest is the caller's to check.
    ``finite=False`` is for checkpoints, whose state may hold an infinite best loss; a model with such weights
    is broken.
    TensorFileError is whatever is wrong with the file, a missing one included.
    """
    data, document = _load(os.fspath(path), kind)
    return _read_tensors(data, document, finite, "path"), document


def unpack(
    data: bytes, *, kind: str, version: int = VERSION, finite: bool = True
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the document of bytes that ``pack`` returned, with the checks of ``read``."""
    n = _header_length(data[:8], len(data), "data")
    document = _check_header(data[8 : 8 + n], len(data) - 8 - n, kind, version, "data")
    return _read_tensors(data, document, finite, "data"), document


def _load(path: str, kind: Kind) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a file whose header is valid, and its document."""
    try:
        # Before opening, which alone may do something to a device, and after, when it may be another file.
        # From there on one descriptor, and no mmap: it dies of SIGBUS if somebody shortens the file.
        _check_regular(os.stat(path))
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            _check_regular(status)
            start = file.read(8)
            n = _header_length(start, status.st_size, "path")
            n_rest = status.st_size - 8 - n
            header = file.read(n)
            document = _check_header(header, n_rest, kind, VERSION, "path")
            data = b"".join((start, header, file.read(n_rest)))
    except TensorFileError:
        raise
    except (OSError, ValueError) as error:
        got = error.strerror if isinstance(error, OSError) else "a path that no file can have"
        fix = "Check the path and its permissions."
        raise TensorFileError("path", "be a readable file", f"'{got}'", fix) from None
    if len(data) != status.st_size:
        got = "fewer bytes than its size"
        raise TensorFileError("path", "stay as it is while it is read", got, "Read it again.")
    return data, document


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        got, fix = "a directory, pipe or device", "Pass the path of a file."
        raise TensorFileError("path", "be a regular file", got, fix)


def _open_without_waiting(path: str, flags: int) -> int:
    # Opening a pipe would wait for its writer. Windows has neither the flag nor such pipes.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _read_tensors(data: bytes, document: dict[str, Any], finite: bool, argument: str) -> dict[str, Tensor]:
    """Return the tensors of bytes whose header is valid, and take the digest out of the document."""
    if document.pop("sha256", None) is None or not _is_sealed(data):
        got = "another: its bytes have changed"
        raise TensorFileError(argument, "have the SHA-256 with which it was written", got)
    try:
        with torch.device("cpu"):  # whatever the default device
            loaded = safetensors.torch.load(data)
    except SafetensorError:
        got = "a header that the safetensors library does not accept"
        raise TensorFileError(argument, "be a safetensors file", got) from None
    tensors = {}
    for name in sorted(loaded):
        x = loaded.pop(name)
        # torch assumes that the byte of a boolean is 0 or 1 and does as it likes with others.
        if x.dtype == torch.bool and x.numel() and x.view(torch.uint8).max() > 1:
            raise TensorFileError(argument, "hold 0 or 1 for each boolean", f"another byte in '{name[:40]}'")
        # Extremes propagate NaN and, unlike isfinite, need no memory.
        if finite and x.is_floating_point() and x.numel() and not all(map(math.isfinite, torch.aminmax(x))):
            fix = "Save a model whose training converged." if argument == "path" else None
            raise TensorFileError(argument, "hold finite numbers", f"NaN or infinity in '{name[:40]}'", fix)
        # A clone has torch's own alignment, on which the last bits of sums and products may depend.
        tensors[name] = x.clone()
    return tensors


def _header_length(start: bytes, size: int, argument: str) -> int:
    n, most = int.from_bytes(start, "little"), min(_MAX_HEADER, size - 8)
    if len(start) < 8 or n > most:
        must = f"have a header of at most {max(most, 0)} bytes"
        raise TensorFileError(argument, must, f"{n} in a file of {size}")
    return n


def _check_header(
    header: bytes, n_data: int, kind: Kind | None, version: int, argument: str
) -> dict[str, Any]:
    """Return the document if the header accounts for each of ``n_data`` bytes once; None is any kind."""
    entries = _decode(header, argument)
    match entries:
        case {"__metadata__": {"frhsic": str(text), **others}} if not others:
            del entries["__metadata__"]
        case _:
            raise TensorFileError(argument, "have a header with 'frhsic' as its only metadata", "another")
    # First of all, since a newer version may have other tensors.
    document = _check_document(_decode(text.encode(), argument), kind, version, argument)
    if len(entries) > _MAX_TENSORS:
        raise TensorFileError(argument, f"hold at most {_MAX_TENSORS} tensors", len(entries))
    spans = sorted(_span(name, entry, argument) for name, entry in entries.items())
    if [0, *(end for _, end in spans)] != [*(begin for begin, _ in spans), n_data]:
        got = f"overlaps, holes or an end other than {n_data} bytes"
        raise TensorFileError(argument, "hold its tensors one after the other", got)
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
    limits = f"tensors of at most {_MAX_NDIM} dimensions and as many bytes as they need"
    got = f"another header for '{name[:40]}'"
    raise TensorFileError(argument, f"hold {', '.join(_DTYPES)} {limits}", got)


def _check_name(name: object, argument: str) -> None:
    if not isinstance(name, str) or name == "__metadata__" or not _NAME.fullmatch(name):
        got = ascii(name[:40]) if isinstance(name, str) else type(name).__name__
        fix = "Use at most 200 letters, digits, '_', ':', '-' and single dots between them."
        raise TensorFileError(argument, "name tensors like a state dict", got, fix)


def _check_document(document: Any, kind: Kind | None, version: int, argument: str) -> dict[str, Any]:
    match document:
        case {"format": str(found), "version": int(written)} if not isinstance(written, bool):
            pass
        case _:
            must = "hold a 'format' (text) and a 'version' (integer)"
            raise TensorFileError(argument, must, "none or others")
    kinds = (kind,) if isinstance(kind, str) else kind
    if kinds is not None and found not in kinds:
        fix = f"Pass {'bytes' if argument == 'data' else 'a file'} of the kind '{kinds[0]}'."
        raise TensorFileError(argument, f"hold '{kinds[0]}'", ascii(found[:40]), fix)
    oldest = _STILL_READ if version == VERSION and argument == "path" else version
    if not oldest <= written <= version:
        fix = "A newer frhsic reads newer versions."
        if 1 <= written < version:
            again = "make it again" if argument == "data" else "fit and save again"
            fix = f"An older frhsic wrote it: load it with that one, or {again}."
        raise TensorFileError(argument, f"have version {version}", written, fix)
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
        raise TensorFileError(argument, f"hold plain JSON ({rules})", "something else") from None
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


def _seal(data: bytes) -> bytes:
    """Put the SHA-256 into the document, whose "sha256" is ``_NO_DIGEST`` until then."""
    start, end, digest = _digest(data)
    return b"".join((data[:start], digest, data[end:]))


def _is_sealed(data: bytes) -> bool:
    """Return whether bytes have the digest that ``_seal`` gave them: False if anything was changed."""
    try:
        start, end, digest = _digest(data)
    except ValueError:
        return False
    return data[start:end] == digest


def _digest(data: bytes) -> tuple[int, int, bytes]:
    """Return where the digest stands, and that of all bytes with ``_NO_DIGEST`` in its place.

    Raises ValueError unless there is one digest.
    """
    (found,) = _DIGEST.finditer(data, 8, 8 + int.from_bytes(data[:8], "little"))
    start, end = found.span(1)
    total = hashlib.sha256(memoryview(data)[:start])
    total.update(_NO_DIGEST.encode())
    total.update(memoryview(data)[end:])
    return start, end, total.hexdigest().encode()
