"""Reads AMD GCN assembly as LLVM prints it for a compute unit of CDNA: what multiplies, loads, registers, spills. Pure.

Source: LLVM's User Guide for AMDGPU (kernel descriptor and code object metadata); AMD Instinct MI300 (CDNA3) ISA.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from ledger.analysis.isa import Family, Instructions, LoadInstructions
from ledger.errors import MachineError
from ledger.records import Path

WAVE_THREADS = 64
TARGETS = ("gfx942",)
"""Targets that kernels are compiled for: those with waves of 64 threads."""

_OPCODE = re.compile(r"^\s+(?P<opcode>(?:v|s|ds|global|buffer|flat|scratch)_\w+)\b", re.MULTILINE)
_MATRIX = re.compile(r"v_(?:mfma|smfmac)_(?P<sum>f64|f32|i32)_\d+x\d+x\d+(?:_\d+b)?_?(?P<type>\w+)")
_OPERANDS: tuple[tuple[str, Path], ...] = (
    ("bf16", "bf16_tensor"),
    ("f16", "fp16_tensor"),
    ("xf32", "tf32_tensor"),
    ("f64", "fp64_tensor"),
    ("fp8", "fp8_tensor"),
    ("bf8", "fp8_tensor"),
    ("i8", "int8_tensor"),
    # Matrix cores multiply fp32 at the rate of the vector units: one roof.
    ("f32", "fp32"),
)
_FMA = re.compile(r"v_(?:pk_)?(?:fma|fmac|fmaak|fmamk|mad|mac|dot2c?)_(?:legacy_)?(?P<type>f64|f32|f16|bf16)")
_SIMPLE = re.compile(r"v_(?:pk_)?(?:add|sub|subrev|mul)_(?P<type>f64|f32|f16|bf16)")
_SCALAR_PATH: dict[str, Path] = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}
_LOAD = re.compile(
    r"(?P<kind>global|buffer|flat)_load_(?:(?P<lds>lds_)?)(?P<size>dwordx[234]|dword|u?short|u?byte|sbyte)"
)
_SIZES = {
    "dwordx4": 16,
    "dwordx3": 12,
    "dwordx2": 8,
    "dword": 4,
    "ushort": 2,
    "short": 2,
    "ubyte": 1,
    "sbyte": 1,
    "byte": 1,
}
_COUNTED = (
    r"v_s?mfma\w+", r"v_smfmac\w+", r"v_(?:pk_)?fma\w*", r"v_dot\w+", r"global_load_\w+", r"global_store_\w+",
    r"buffer_load_\w+", r"buffer_store_\w+", r"ds_read\w+", r"ds_write\w+", r"scratch_load_\w+", r"scratch_store_\w+",
    r"s_barrier",
)  # fmt: skip


def is_amd(target: str) -> bool:
    """Tell whether a compiler target is AMD's."""
    return target.startswith("gfx")


@dataclass(frozen=True)
class Resources:
    """Hold what the code object says of one kernel. Units: registers a thread, bytes of scratch a thread.

    registers: vector registers, with the accumulation registers. vector_spills, scalar_spills: registers spilled.
    """

    registers: int
    accumulation_registers: int
    scalar_registers: int
    vector_spills: int
    scalar_spills: int
    stack_bytes: int


def resources(assembly: str) -> Resources:
    """Return the resources that the code object's metadata lists. Raises: MachineError where one is missing."""

    def value(key: str) -> int:
        found = re.search(rf"^\s*(?:- )?\.{key}:\s+(\d+)\s*$", assembly, re.MULTILINE)
        if found is None:
            raise MachineError(f"the assembly names no .{key}; expected the metadata of one kernel, as LLVM prints it")
        return int(found[1])

    return Resources(
        registers=value("vgpr_count"),
        accumulation_registers=value("agpr_count"),
        scalar_registers=value("sgpr_count"),
        vector_spills=value("vgpr_spill_count"),
        scalar_spills=value("sgpr_spill_count"),
        stack_bytes=value("private_segment_fixed_size"),
    )


def read(assembly: str) -> Instructions:
    """Return what a kernel's assembly holds; spills are bytes of scratch that one pass over the code moves."""
    opcodes = Counter(match["opcode"] for match in _OPCODE.finditer(assembly))
    family, path, found = _path(opcodes)
    counted = re.compile("|".join(_COUNTED))
    return Instructions(
        family=family,
        path=path,
        example=next(iter(found), None),
        loads=_loads(opcodes),
        ptx=dict(found.most_common()),
        sass={name: count for name, count in opcodes.most_common() if counted.fullmatch(name)},
        spill_store_bytes=_scratch(opcodes, "scratch_store_"),
        spill_load_bytes=_scratch(opcodes, "scratch_load_"),
    )


def _path(opcodes: Counter[str]) -> tuple[Family, Path | None, Counter[str]]:
    matrix = Counter({name: count for name, count in opcodes.items() if _MATRIX.match(name)})
    if matrix:
        return "MFMA", _matrix_path(matrix.most_common(1)[0][0]), matrix
    families: tuple[tuple[Family, re.Pattern[str]], ...] = (("scalar FMA", _FMA), ("scalar add or multiply", _SIMPLE))
    for family, pattern in families:
        scalar = Counter({name: count for name, count in opcodes.items() if pattern.match(name)})
        if scalar:
            types: Counter[str] = Counter()
            for name, count in scalar.items():
                types[str(pattern.match(name)["type"])] += count  # type: ignore[index]
            return family, _SCALAR_PATH.get(types.most_common(1)[0][0]), scalar
    return "none", None, Counter()


def _matrix_path(name: str) -> Path | None:
    operands = _MATRIX.match(name)
    assert operands is not None
    return next((path for prefix, path in _OPERANDS if operands["type"].startswith(prefix)), None)


def _loads(opcodes: Counter[str]) -> tuple[LoadInstructions, ...]:
    found: Counter[tuple[str, int]] = Counter()
    for name, count in opcodes.items():
        if match := _LOAD.match(name):
            found[f"{match['kind']}_load{'_lds' if match['lds'] else ''}", _SIZES[match["size"]]] += count
    return tuple(LoadInstructions(kind, width, count) for (kind, width), count in found.items())


def _scratch(opcodes: Counter[str], prefix: str) -> int:
    sizes = ((name.removeprefix(prefix), count) for name, count in opcodes.items() if name.startswith(prefix))
    return sum(_SIZES.get(size, 4) * count for size, count in sizes)
