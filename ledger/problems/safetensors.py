"""Reads one tensor of a safetensors file, with bounded size. Reads a file; needs no package of that name.

Source: the format as huggingface/safetensors describes it: eight bytes of length, a JSON header, raw tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path as FilePath

from ledger.canonical import parse_json
from ledger.errors import InputError

MAX_HEADER_BYTES = 4 * 1024 * 1024
_DTYPES = {
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2), "I64": ("int64", 8),
    "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1), "BOOL": ("bool", 1),
    "F8_E4M3": ("float8_e4m3fn", 1), "F8_E5M2": ("float8_e5m2", 1),
}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """Hold a tensor as it is stored: dtype by torch's name, dims, raw little-endian bytes."""

    dtype: str
    dims: tuple[int, ...]
    data: bytes


def read_tensor(path: FilePath, key: str, *, most: int) -> StoredTensor:
    """Return a tensor of a file. most: bytes it may have. Raises: InputError."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > MAX_HEADER_BYTES:
                raise InputError(f"{path}: header has {length} bytes; expected at most {MAX_HEADER_BYTES}")
            header = parse_json(stream.read(length), what=str(path))
            dtype, width, dims, start, end = _entry(header, key, path)
            if end - start > most or end - start != math.prod(dims) * width:
                raise InputError(
                    f"{path}: {key[:80]} has {end - start} bytes; expected {math.prod(dims) * width}, at most {most}"
                )
            stream.seek(8 + length + start)
            data = stream.read(end - start)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a safetensors file") from error
    if len(data) != end - start:
        raise InputError(f"{path}: {key[:80]} ends after {len(data)} bytes; expected {end - start}")
    return StoredTensor(dtype, dims, data)


def _entry(header: object, key: str, path: FilePath) -> tuple[str, int, tuple[int, ...], int, int]:
    one = header.get(key) if isinstance(header, dict) else None
    kind = _DTYPES.get(str(one.get("dtype"))) if isinstance(one, dict) else None
    dims, offsets = (one.get("shape"), one.get("data_offsets")) if isinstance(one, dict) else (None, None)
    if kind is None or not _sizes(dims) or not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:  # type: ignore[arg-type, index]
        raise InputError(f"{path}: tensor {key[:80]!r} is missing or of another form; expected a safetensors entry")
    return (*kind, tuple(dims), offsets[0], offsets[1])  # type: ignore[arg-type, index]


def _sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 2**53 for one in value) and len(value) <= 16
