"""Renders how a kernel compiles, one column for each architecture, and as JSON. Writes to the console given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.analysis.formatting import PATH_NAMES, harmless, shape_text
from ledger.measure.inspection import Inspection

_TWO_COLUMNS = 120
_LIMIT_NAMES = {"registers": "registers", "smem": "shared memory", "warps": "warps", "blocks": "blocks"}


def document(found: Inspection) -> dict[str, Any]:
    """Return an inspection as one JSON value."""
    made, fits = found.instructions, found.occupancy
    return {
        "kernel": found.kernel,
        "shape": found.shape,
        "dtype": found.dtype,
        "target": found.target,
        "hardware": found.hardware,
        "triton": found.triton,
        "compiler": found.compiler,
        "config": found.config,
        "path": made.path,
        "named_path": found.named_path,
        "agrees": found.agrees,
        "instruction": made.family,
        "example": made.example,
        "registers": found.registers,
        "spill_store_bytes": made.spill_store_bytes,
        "spill_load_bytes": made.spill_load_bytes,
        "stack_bytes": found.stack_bytes,
        "shared_bytes": found.shared_bytes,
        "warps": found.warps,
        "occupancy": {
            "percent": fits.percent,
            "blocks_per_sm": fits.blocks,
            "limiter": fits.limiter,
            "limits_blocks": dict(fits.limits),
        },
        "grid": None if found.grid is None else list(found.grid),
        "waves": found.waves,
        "loads": [asdict(load) for load in made.loads],
        "widest_load_bytes": made.widest_load_bytes,
        "tma": made.tma,
        "instructions": {"ptx": made.ptx, "sass": made.sass} if found.amd is None else {"amdgcn": made.sass},
        "hints": found.hints,
        **({} if found.amd is None else {"amd": asdict(found.amd)}),
    }


def render(found: Sequence[Inspection], console: Console) -> None:
    """Print inspections of one kernel beside each other."""
    first = found[0]
    title = f"{first.kernel} {shape_text(first.shape)} {first.dtype}"
    console.print(Text(title, style="bold"), Text(f"compiled ahead of time by {first.compiler}", style="dim"))
    beside = 2 if console.width >= _TWO_COLUMNS else 1
    for start in range(0, len(found), beside):
        console.print(_table(found[start : start + beside]))
        console.print()
    console.print(Text("occupancy leaves out clusters; a spill is counted once a pass over the code", style="dim"))


def _table(found: Sequence[Inspection]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for one in found:
        table.add_column(one.target, overflow="fold", ratio=1)
    columns = [_column(one) for one in found]
    for label in columns[0]:
        table.add_row(Text(label), *(Text(harmless(column[label])) for column in columns))
    return table


def _column(found: Inspection) -> dict[str, str]:
    made, fits = found.instructions, found.occupancy
    limits = ", ".join(f"{_LIMIT_NAMES[name]} {count}" for name, count in fits.limits.items())
    return {
        "multiplies with": made.family,
        "as in": made.example or "–",
        "roof path": _path_text(found),
        "kernel file names": PATH_NAMES[found.named_path] + ("" if found.agrees else "  ← differs"),
        "registers a thread": _register_text(found),
        "spills": _spill_text(found),
        "stack": f"{found.stack_bytes} B",
        "shared memory a block": f"{found.shared_bytes} B",
        "warps a block": str(found.warps),
        "blocks an SM": f"{fits.blocks}, limited by {_LIMIT_NAMES[fits.limiter]}",
        "room for blocks": limits,
        "occupancy": f"{fits.percent:.0f}%",
        "grid": _grid_text(found),
        "global loads": _load_text(found),
        "instructions": ", ".join(f"{name} {count}" for name, count in made.sass.items()),
        "configuration": ", ".join(f"{key}={value}" for key, value in found.config.items()),
        "hints": "as the launcher passes them" if found.hints == "launch" else "assumed: pointers of 16 bytes",
    }


def _path_text(found: Inspection) -> str:
    path = found.instructions.path
    return "none" if path is None else PATH_NAMES[path]


def _register_text(found: Inspection) -> str:
    amd = found.amd
    if amd is None:
        return str(found.registers)
    vector = found.registers - amd.accumulation_registers
    return f"{vector} VGPR, {amd.accumulation_registers} AGPR, {amd.scalar_registers} SGPR"


def _spill_text(found: Inspection) -> str:
    made, amd = found.instructions, found.amd
    moved = f"{made.spill_store_bytes} B stored, {made.spill_load_bytes} B loaded"
    if amd is None:
        return moved if made.spill_store_bytes + made.spill_load_bytes else "none"
    spilled = f"{amd.vector_spills} VGPR, {amd.scalar_spills} SGPR (SGPR into lanes of VGPR)"
    return f"{spilled}, {moved}" if amd.vector_spills + amd.scalar_spills else "none"


def _grid_text(found: Inspection) -> str:
    if found.grid is None:
        return "–"
    words = " × ".join(str(size) for size in found.grid)
    return words if found.waves is None else f"{words}, {found.waves:.2f} waves"


def _load_text(found: Inspection) -> str:
    words = [
        f"{load.kind} {load.count}" if load.bytes is None else f"{load.kind} of {load.bytes} B {load.count}"
        for load in found.instructions.loads
    ]
    return ", ".join(words) or "none"
