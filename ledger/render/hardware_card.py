"""Renders one hardware profile as a card of one screen, and as JSON. Writes to the console given.

Ridge points and totals are computed from the profile. What the profile does not say is left out; a path that the chip
lacks is named as lacking, never shown as zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.analysis.formatting import PATH_NAMES, duration, harmless, si
from ledger.records import CeilingKind, Ceilings, Hardware, Path, Quantity, is_gpu
from ledger.render.kernel_card import kernel_document, render_kernel, render_kernels
from ledger.roofline import base_float, base_units, ridge_point, roof_of, seconds

__all__ = ["document", "kernel_document", "render", "render_kernel", "render_kernels", "render_list"]

_KINDS: tuple[CeilingKind, ...] = get_args(CeilingKind)
_WIDE = 96
_HEADLINE: Path = "fp16_tensor"
_KIND_NAMES: dict[CeilingKind, str] = {"datasheet": "datasheet", "burst": "burst", "sustained": "sustained"}


def kinds_of(hardware: Hardware) -> tuple[CeilingKind, ...]:
    """Return the sets of ceilings that a profile has, the datasheet's first."""
    return tuple(kind for kind in _KINDS if kind in hardware.ceilings)


def lacking(hardware: Hardware) -> tuple[Path, ...]:
    """Return the paths that the datasheet names and the chip does not have; none without a datasheet."""
    sheet = hardware.ceilings.get("datasheet")
    return () if sheet is None else tuple(path for path in PATH_NAMES if sheet.peaks.get(path) is None)


def smem_bytes_per_s(hardware: Hardware, ceilings: Ceilings) -> float | None:
    """Return shared-memory bandwidth of the whole chip; one a clock and SM is taken at the highest clock."""
    given = ceilings.smem_bandwidth
    if given is None:
        return None
    if given.unit == "B/clk/SM":
        clock = hardware.limits.max_clock_mhz
        return None if clock is None else given.value * hardware.limits.sms * clock * 1e6
    return base_float(given)


# JSON


def document(hardware: Hardware) -> dict[str, Any]:
    """Return the profile with what is computed from it, as one JSON value."""
    return {
        "profile": hardware.model_dump(mode="json", by_alias=True),
        "ridge_flop_per_byte": {
            kind: {path: ridge_point(roof_of(hardware, path, kind)) for path in _paths(hardware.ceilings[kind])}
            for kind in kinds_of(hardware)
        },
        "lacking": list(lacking(hardware)),
        "smem_bytes_per_s": {kind: smem_bytes_per_s(hardware, hardware.ceilings[kind]) for kind in kinds_of(hardware)},
    }


def _paths(ceilings: Ceilings) -> list[Path]:
    return [path for path in PATH_NAMES if ceilings.peaks.get(path) is not None]


# Terminal


def render(hardware: Hardware, console: Console) -> None:
    """Print the card."""
    console.print(Text(harmless(hardware.title), style="bold"), Text(harmless(_identity(hardware)), style="dim"))
    console.print(Text(_limits(hardware)))
    console.print()
    console.print(_peaks(hardware, wide=console.width >= _WIDE))
    if missing := lacking(hardware):
        words = ", ".join(_path_text(hardware, path) for path in missing)
        console.print(Text(f"no number for {words}", style="dim"))
    console.print(Text("ridge in FLOP/byte of DRAM traffic: peak ÷ DRAM bandwidth", style="dim"))
    console.print()
    console.print(_pyramid(hardware))
    if hardware.tensor_instructions:
        _listing("Tensor-core instructions", hardware.tensor_instructions, console)
    if hardware.notes:
        _listing("Worth knowing", hardware.notes, console)
    _listing("Sources", tuple(dict.fromkeys(re.split(r"; | \(", source)[0] for source in sources(hardware))), console)


def _identity(hardware: Hardware) -> str:
    return f"{hardware.name} · {hardware.vendor} {hardware.architecture} · {hardware.target}"


def _limits(hardware: Hardware) -> str:
    limits = hardware.limits
    units = "SMs" if hardware.target.startswith("sm_") else "CUs" if hardware.target.startswith("gfx") else "cores"
    parts = [f"{limits.sms} {units}"]
    parts += [f"{limits.warps_per_sm} warps and {limits.blocks_per_sm} blocks an SM"] if limits.warps_per_sm else []
    parts += [f"{limits.registers_per_thread} registers a thread"] if limits.registers_per_thread else []
    parts += [f"up to {limits.max_clock_mhz:g} MHz"]
    parts += [f"{limits.tdp_w:g} W"] if limits.tdp_w else []
    return " · ".join(parts)


def _path_text(hardware: Hardware, path: Path) -> str:
    words = PATH_NAMES[path]
    scalar = hardware.target.startswith("sm_") and not path.endswith("_tensor")
    return words.replace(" cores", " CUDA cores") if scalar else words


def _peaks(hardware: Hardware, *, wide: bool) -> Table:
    """Return the peaks by path; what a peak is rated at is shown only on wide terminals."""
    kinds = kinds_of(hardware)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Dense peaks, TFLOP/s", no_wrap=True)
    rated = ("FLOP/clk/SM", "rated at") if "datasheet" in kinds and wide else ()
    for heading in (*rated, *(word for kind in kinds for word in (_KIND_NAMES[kind], "ridge"))):
        table.add_column(heading, justify="right", no_wrap=True)
    for path in PATH_NAMES:
        if any(hardware.ceilings[kind].peaks.get(path) for kind in kinds):
            style = "bold" if path == _HEADLINE else ""
            words = (_short(hardware, path), *(_rated(hardware, path) if rated else ()), *_peak(hardware, path, kinds))
            table.add_row(*(Text(word) for word in words), style=style)
    return table


def _short(hardware: Hardware, path: Path) -> str:
    words = _path_text(hardware, path).removesuffix(" cores")
    return f"{words} (TOP/s)" if path == "int8_tensor" else words


def _rated(hardware: Hardware, path: Path) -> Iterator[str]:
    peak = hardware.ceilings["datasheet"].peaks.get(path)
    yield "" if peak is None or peak.flop_per_clk_per_sm is None else str(peak.flop_per_clk_per_sm)
    yield "" if peak is None or peak.clock_mhz is None else f"{peak.clock_mhz:g} MHz"


def _peak(hardware: Hardware, path: Path, kinds: Sequence[CeilingKind]) -> Iterator[str]:
    for kind in kinds:
        if hardware.ceilings[kind].peaks.get(path) is None:
            yield from ("", "")
            continue
        roof = roof_of(hardware, path, kind)
        ridge = ridge_point(roof)
        yield f"{roof.peak_flop_per_s / 1e12:,.5g}"
        yield f"{ridge:.{0 if ridge >= 10 else 1}f}"


def _pyramid(hardware: Hardware) -> Table:
    """Return the memory levels, the fastest first, each with its size and bandwidths."""
    memory, kinds, sms = hardware.memory, kinds_of(hardware), hardware.limits.sms
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Bandwidth pyramid")
    table.add_column("size")
    for kind in kinds:
        table.add_column(_KIND_NAMES[kind], justify="right")
    sets = [hardware.ceilings[kind] for kind in kinds]
    if memory.registers_per_sm is not None:
        count = base_units(memory.registers_per_sm)
        table.add_row("   ▄  registers", f"{count // 1024} Ki × 32 bit an SM, {si(4 * count * sms, 'B')} in all")
    if memory.smem_per_sm is not None:
        size = f"{_size(memory.smem_per_sm)} an SM, {si(base_units(memory.smem_per_sm) * sms, 'B')} in all"
        if memory.smem_per_block is not None:
            size += f"; {_size(memory.smem_per_block)} a block"
        table.add_row("  ▄█▄ SMEM", size, *(_rate(smem_bytes_per_s(hardware, s)) for s in sets))
    if memory.l2_capacity is not None:
        # A CPU's profile keeps its last cache there, whatever its level.
        level = "L2" if is_gpu(hardware.target) else "last cache"
        table.add_row(f" ▄███▄ {level}", _size(memory.l2_capacity), *(_rate(_bandwidth(s.l2_bandwidth)) for s in sets))
    if memory.l3_capacity is not None:
        table.add_row(" ▄███▄ L3", _size(memory.l3_capacity), *(_rate(_bandwidth(s.l3_bandwidth)) for s in sets))
    name = harmless(memory.technology.split(",")[0])
    table.add_row(f"▄█████▄ {name}", _size(memory.dram_capacity), *(_rate(_bandwidth(s.dram_bandwidth)) for s in sets))
    nodes = [s.launch_graph_node for s in sets]
    if any(nodes):
        times = ["" if node is None else duration(round(seconds(node) * 1e12)) for node in nodes]
        table.add_row("", "an empty launch, as a graph node", *times)
    return table


def _bandwidth(quantity: Quantity | None) -> float | None:
    return None if quantity is None else base_float(quantity)


def _rate(bytes_per_s: float | None) -> str:
    return "–" if bytes_per_s is None else si(bytes_per_s, "B/s")


def _size(quantity: Quantity) -> str:
    return f"{quantity.value:g} {harmless(quantity.unit)}"


def sources(hardware: Hardware) -> tuple[str, ...]:
    """Return where the numbers of a profile come from, each source once."""
    memory = hardware.memory
    sizes = (memory.dram_capacity, memory.l3_capacity, memory.l2_capacity, memory.smem_per_sm)
    found = [quantity.source for quantity in sizes if quantity is not None]
    for kind in kinds_of(hardware):
        ceilings = hardware.ceilings[kind]
        found += [peak.source for peak in ceilings.peaks.values() if peak is not None]
        found += [ceilings.dram_bandwidth.source]
    return tuple(dict.fromkeys(found))


def _listing(title: str, words: Sequence[str], console: Console) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    grid = Table.grid(padding=(0, 1))
    for line in words:
        grid.add_row("·", Text(harmless(line)))
    console.print(grid)


def render_list(profiles: Sequence[Hardware], console: Console) -> None:
    """Print the profiles, one a line: name, title, target, memory bandwidth and which ceilings it has."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "title", "target", "DRAM", "ceilings"):
        table.add_column(heading)
    for profile in profiles:
        kinds = kinds_of(profile)
        bandwidth = si(base_units(profile.ceilings[kinds[0]].dram_bandwidth), "B/s")
        words = (profile.name, profile.title, profile.target, bandwidth, ", ".join(_KIND_NAMES[kind] for kind in kinds))
        table.add_row(*(Text(harmless(word)) for word in words))
    console.print(table)
