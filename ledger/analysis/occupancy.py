"""Computes how many blocks of a kernel fit on one SM and what limits them. Pure.

Source: CUDA Occupancy Calculator and CUDA C++ Programming Guide, table of technical specifications per compute
capability: registers are allotted a warp in units of 256 and to warps in fours, shared memory in units of 256 bytes
(capability 7.x) or 128, and from 8.0 on the system keeps 1 KiB of it a block. Leaves out clusters and barriers.
For AMD's gfx942, where a warp is a wave of 64 threads and an SM a compute unit of 4 SIMDs: LLVM, AMDGPUBaseInfo.cpp,
namespace IsaInfo (512 vector registers a lane in units of 8, at most 8 waves a SIMD, 16 workgroups of several waves).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ledger.errors import InputError
from ledger.records import Hardware, Quantity
from ledger.roofline import base_units

Limiter = Literal["registers", "smem", "warps", "blocks"]

WARP_THREADS = 32
_REGISTER_UNIT = 256
_WARP_UNIT = 4
_SIMDS, _SIMD_WAVES, _WORKGROUPS = 4, 8, 16
_LANE_REGISTERS, _LANE_REGISTER_UNIT = 512, 8


@dataclass(frozen=True)
class Occupancy:
    """Hold how many blocks each resource of an SM has room for; the smallest is the limiter."""

    limits: dict[Limiter, int]
    warps_per_block: int
    warps_per_sm: int

    @property
    def limiter(self) -> Limiter:
        """Return the resource that runs out first."""
        return min(self.limits, key=lambda name: self.limits[name])

    @property
    def blocks(self) -> int:
        """Return the blocks resident on one SM."""
        return self.limits[self.limiter]

    @property
    def percent(self) -> float:
        """Return resident warps in percent of what the SM can hold."""
        return 100 * self.blocks * self.warps_per_block / self.warps_per_sm


def occupancy(hardware: Hardware, *, registers: int, shared_bytes: int, warps: int) -> Occupancy:
    """Return the occupancy of a kernel. Units: registers a thread, bytes of shared memory and warps a block.

    Raises: InputError for a profile without an SM's limits.
    """
    limits, memory = hardware.limits, hardware.memory
    if hardware.target == "gfx942":
        return _compute_unit(_whole(memory.smem_per_sm, hardware), registers, shared_bytes, warps)
    if limits.warps_per_sm is None or limits.blocks_per_sm is None or not hardware.target.startswith("sm_"):
        raise InputError(f"profile {hardware.name} ({hardware.target}) names no limits of an SM; expected a CUDA GPU")
    old = hardware.target.startswith("sm_7")
    unit, reserved = (256, 0) if old else (128, 1024)
    registers_a_warp = _rounded(max(registers, 1) * WARP_THREADS, _REGISTER_UNIT)
    resident_warps = _whole(memory.registers_per_sm, hardware) // registers_a_warp // _WARP_UNIT * _WARP_UNIT
    shared = _rounded(shared_bytes + reserved, unit)
    return Occupancy(
        limits={
            "registers": resident_warps // warps,
            "smem": _whole(memory.smem_per_sm, hardware) // shared if shared else limits.blocks_per_sm,
            "warps": limits.warps_per_sm // warps,
            "blocks": limits.blocks_per_sm,
        },
        warps_per_block=warps,
        warps_per_sm=limits.warps_per_sm,
    )


def _compute_unit(lds_bytes: int, registers: int, shared_bytes: int, waves: int) -> Occupancy:
    """Return the occupancy of a compute unit, whose workgroups spread their waves over its SIMDs."""
    most = _SIMDS * _SIMD_WAVES
    resident = min(_SIMD_WAVES, _LANE_REGISTERS // _rounded(max(registers, 1), _LANE_REGISTER_UNIT))
    return Occupancy(
        limits={
            "registers": _SIMDS * resident // waves,
            "smem": lds_bytes // shared_bytes if shared_bytes else most,
            "warps": most // waves,
            "blocks": most if waves == 1 else _WORKGROUPS,
        },
        warps_per_block=waves,
        warps_per_sm=most,
    )


def _rounded(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _whole(quantity: Quantity | None, hardware: Hardware) -> int:
    if quantity is None:
        raise InputError(f"profile {hardware.name} lacks registers or shared memory of an SM; expected both")
    return base_units(quantity)
