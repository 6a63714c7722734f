"""Reads compiled code: which instructions multiply, and how data is loaded. Pure: text in, counts out.

PTX names the operand types of a matrix instruction and the width of a load; the disassembly (SASS) is what runs and
shows spills. The path is that of the matrix instruction where there is one, else of the scalar multiply-adds, else of
additions and products.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from ledger.records import Dtype, Path

Family = Literal["tcgen05", "wgmma", "mma.sync", "MFMA", "scalar FMA", "scalar add or multiply", "none"]

# PTX, most modern first: a kernel that has a newer family's instruction does its products there.
_MATRIX: tuple[tuple[Family, str], ...] = (
    ("tcgen05", r"tcgen05\.mma\.[\w.:]+"),
    ("wgmma", r"wgmma\.mma_async\.[\w.:]+"),
    ("mma.sync", r"(?:wmma\.mma|\bmma)\.sync\.[\w.:]+"),
)
_SCALAR = re.compile(r"\bfma\.rn(?:\.ftz)?(?:\.sat)?\.(?P<type>f16x2|f16|bf16x2|bf16|f32x2|f32|f64)\b")
# Only where there is no multiply-add: indices and addresses are integers, so these are a kernel's own arithmetic.
_SIMPLE = re.compile(
    r"\b(?P<name>(?:add|sub|mul)(?:\.rn)?(?:\.ftz)?(?:\.sat)?)\.(?P<type>f16x2|f16|bf16x2|bf16|f32x2|f32|f64)\b"
)
_SCALAR_PATH: dict[str, Path] = {"f16": "fp16", "f16x2": "fp16", "f32": "fp32", "f32x2": "fp32", "f64": "fp64"}
# The multiplicands' types, in the order in which they are looked for in an instruction's name.
_OPERANDS: tuple[tuple[str, Path], ...] = (
    (r"e4m3|e5m2|kind::f8f6f4", "fp8_tensor"),
    (r"\.[su]8\b|kind::i8", "int8_tensor"),
    (r"\.f64\b", "fp64_tensor"),
    (r"\.bf16\b", "bf16_tensor"),
    (r"tf32", "tf32_tensor"),
    (r"\.f16\b", "fp16_tensor"),
)
_LOADS = {
    "bulk tensor (TMA)": re.compile(r"cp\.async\.bulk\.tensor\.[\w.:]*shared::\w+\.global"),
    "bulk copy": re.compile(r"cp\.async\.bulk\.shared::\w+\.global"),
    "cp.async": re.compile(r"cp\.async\.c[ag]\.shared\.global[^;]*?\],\s*(?P<bytes>0x[0-9a-f]+|\d+)\b"),
    "ld.global": re.compile(r"\bld\.global[\w.:]*?(?:\.v(?P<lanes>[248]))?\.[busf](?P<bits>8|16|32|64|128)\b"),
}
_OPCODE = re.compile(r"\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)")
_SASS_OF_INTEREST = (
    "UTCHMMA", "UTCQMMA", "UTCIMMA", "HGMMA", "QGMMA", "IGMMA", "HMMA", "IMMA", "QMMA", "DMMA", "FFMA", "FFMA2",
    "HFMA2", "DFMA", "UTMALDG", "UTMASTG", "UBLKCP", "LDGSTS", "LDG", "STG", "LDSM", "LDS", "STS", "LDL", "STL", "BAR",
)  # fmt: skip


@dataclass(frozen=True)
class LoadInstructions:
    """Hold the loads of global memory of one kind. Units: bytes a thread; None where hardware chooses (TMA)."""

    kind: str
    bytes: int | None
    count: int


@dataclass(frozen=True)
class Instructions:
    """Hold what the compiler made: the family that multiplies, its roof path, and how data is loaded.

    example: a matrix or multiply-add instruction as it stands in the PTX. ptx, sass: counts by mnemonic.
    """

    family: Family
    path: Path | None
    example: str | None
    loads: tuple[LoadInstructions, ...]
    ptx: dict[str, int]
    sass: dict[str, int]
    spill_store_bytes: int
    spill_load_bytes: int

    @property
    def tma(self) -> bool:
        """Tell whether the tensor memory accelerator loads."""
        return any(load.kind == "bulk tensor (TMA)" for load in self.loads)

    @property
    def widest_load_bytes(self) -> int | None:
        """Return the widest load of one thread, None where all loads are TMA's."""
        return max((load.bytes for load in self.loads if load.bytes is not None), default=None)


def read(ptx: str, sass: str, dtype: Dtype) -> Instructions:
    """Return what a kernel's PTX and disassembly hold; dtype decides where an instruction's name leaves it open."""
    family, path, found = _path(ptx, dtype)
    opcodes = Counter(match["opcode"] for match in _OPCODE.finditer(sass))
    counts = {
        name: count
        for name in _SASS_OF_INTEREST
        if (count := sum(n for opcode, n in opcodes.items() if opcode.partition(".")[0] == name))
    }
    return Instructions(
        family=family,
        path=path,
        example=next(iter(found), None),
        loads=_loads(ptx),
        ptx=dict(found.most_common()),
        sass=counts,
        spill_store_bytes=_spilled("STL", opcodes),
        spill_load_bytes=_spilled("LDL", opcodes),
    )


def _path(ptx: str, dtype: Dtype) -> tuple[Family, Path | None, Counter[str]]:
    for family, pattern in _MATRIX:
        found = Counter(re.findall(pattern, ptx))
        if found:
            return family, _operands(next(iter(found)), dtype), found
    scalar = Counter(match["type"] for match in _SCALAR.finditer(ptx))
    if scalar:
        most, _ = scalar.most_common(1)[0]
        return "scalar FMA", _SCALAR_PATH.get(most), Counter({f"fma.rn.{name}": n for name, n in scalar.items()})
    simple = Counter((match["name"], match["type"]) for match in _SIMPLE.finditer(ptx))
    if not simple:
        return "none", None, Counter()
    (_, most), _ = simple.most_common(1)[0]
    counted = Counter({f"{name}.{kind}": count for (name, kind), count in simple.items()})
    return "scalar add or multiply", _SCALAR_PATH.get(most), counted


def _operands(instruction: str, dtype: Dtype) -> Path | None:
    # tcgen05's kind::f16 covers both two-byte types; the descriptor, not the name, tells which.
    if "kind::f16" in instruction:
        return "bf16_tensor" if dtype == "bf16" else "fp16_tensor"
    return next((path for pattern, path in _OPERANDS if re.search(pattern, instruction)), None)


def _loads(ptx: str) -> tuple[LoadInstructions, ...]:
    found: Counter[tuple[str, int | None]] = Counter()
    for kind, pattern in _LOADS.items():
        for match in pattern.finditer(ptx):
            found[kind, _width(match.groupdict())] += 1
    return tuple(LoadInstructions(kind, width, count) for (kind, width), count in found.items())


def _width(groups: dict[str, str | None]) -> int | None:
    if (size := groups.get("bytes")) is not None:
        return int(size, 0)
    if (bits := groups.get("bits")) is not None:
        return int(groups.get("lanes") or 1) * int(bits) // 8
    return None


def _spilled(name: str, opcodes: Counter[str]) -> int:
    """Return the bytes that one pass over a kernel's local-memory instructions moves."""
    total = 0
    for opcode, count in opcodes.items():
        base, *modifiers = opcode.split(".")
        if base == name:
            bits = next((int(m.lstrip("US")) for m in modifiers if m.lstrip("US") in ("8", "16", "64", "128")), 32)
            total += count * bits // 8
    return total
