"""Digests the machine code of a case, compiled ahead of time. Needs triton, or a CUDA C++ compiler; no GPU.

A cubin also holds names of files and lines, which a comment moves: only the sections that the device reads count.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from ledger.errors import InputError
from ledger.kernel import AheadCuda, Kernel
from ledger.measure.compilation import compile_ahead, launched_with
from ledger.records import CaseV2, Digest

_READ_BY_THE_DEVICE = (".text.", ".nv.constant", ".nv.global", ".nv.shared", ".nv.info.")
_NO_BITS = 8


def machine_code(kernel: Kernel, case: CaseV2, target: str, known: dict[str, Digest]) -> Digest | None:
    """Return the digest of the code that a case runs on a target; None where the kernel does not say how to compile.

    known: digests by what was compiled, which this call adds to: many cases have one code.
    Raises: InputError, MachineError for what cannot be compiled.
    """
    if kernel.ahead is None:
        return None
    ahead = kernel.ahead(case.config, case.shape, case.dtype, target)
    if isinstance(ahead, AheadCuda):
        key = f"cuda {hash(ahead.source)}"
        if key not in known:
            known[key] = code_digest(ahead.source.cubin(target))
        return known[key]
    launched = launched_with(kernel, ahead, case.config, shape=case.shape, dtype=case.dtype)
    hints = None if launched is None else (sorted(launched.multiples), sorted(launched.ones))
    parts = (sorted(ahead.signature.items()), sorted(ahead.constants.items(), key=str), sorted(ahead.options.items()))
    key = repr((getattr(ahead.function, "__name__", ""), *parts, hints))
    if key not in known:
        known[key] = code_digest(compile_ahead(ahead, target, launched).asm["cubin"])
    return known[key]


def code_digest(cubin: bytes) -> Digest:
    """Return the digest of what the device reads of a cubin. Raises: InputError for one that is no ELF file."""
    digest = hashlib.sha256()
    for name, data in sorted(_sections(cubin)):
        if name.startswith(_READ_BY_THE_DEVICE):
            digest.update(f"{name} {len(data)}\0".encode() + data)
    return digest.hexdigest()


def _sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each section. Source: System V ABI, ELF-64 object file format."""
    if cubin[:5] != b"\x7fELF\x02":
        raise InputError("cubin: is no 64-bit ELF file; expected compiled code")
    try:
        (start,) = struct.unpack_from("<Q", cubin, 0x28)
        size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
        rows = [struct.unpack_from("<IIQQQQ", cubin, start + size * index) for index in range(count)]
        table = cubin[rows[names][4] :]
        for name, kind, _flags, _address, offset, length in rows:
            text = table[name : table.index(b"\0", name)].decode("ascii", "replace")
            yield text, b"" if kind == _NO_BITS else cubin[offset : offset + length]
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise InputError(f"cubin: its sections cannot be read ({error}); expected compiled code") from error
