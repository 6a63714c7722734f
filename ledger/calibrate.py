"""Measures a device's ceilings and writes them into a profile: burst on a CPU, burst and sustained on a GPU.

Every number carries the condition it was read under. A ceiling far from the data sheet is not hidden: above 105% the
calibration distrusts itself, under 50% it names what usually causes that. Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from ledger.device import cpu_facts, max_clock_mhz
from ledger.records import DeviceFacts, Hardware, Limits, Memory, Quantity

OnStep = Callable[[str], None]


def manifest(facts: DeviceFacts) -> tuple[str, ...]:
    """Return what a reader needs to repeat a calibration, one line each."""
    versions = ", ".join(f"{name} {version}" for name, version in facts.software.items())
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    return (f"calibrated {when} on {facts.name} ({facts.target}), driver {facts.driver}", f"with {versions}")


def calibrate_cpu(quick: bool = False, on_progress: OnStep = lambda _step: None) -> Hardware:
    """Return this CPU's profile, all of it measured, with all processors that this process may use.

    Raises: MachineError without torch.
    """
    from ledger.ceilings_cpu import measure_ceilings

    facts = cpu_facts()
    ceilings = measure_ceilings(facts, quick=quick, on_step=on_progress)
    return Hardware(
        schema="ledger/hardware/1",
        name="cpu",
        title=f"{facts.name}, {facts.sms} processors",
        vendor=facts.name.split()[0],
        architecture=facts.target,
        target=facts.target,
        device_names=(facts.name,),
        limits=Limits(
            sms=facts.sms,
            warps_per_sm=None,
            blocks_per_sm=None,
            registers_per_thread=None,
            max_clock_mhz=max_clock_mhz(),
            tdp_w=None,
        ),
        memory=Memory(
            technology="DRAM",
            dram_capacity=_capacity(facts.memory_bytes, 2**30, "GiB", "all memory that the kernel counts"),
            l2_capacity=None
            if facts.l2_bytes is None
            else _capacity(facts.l2_bytes, 2**20, "MiB", "all last-level caches together"),
            smem_per_sm=None,
            smem_per_block=None,
            registers_per_sm=None,
        ),
        ceilings={"burst": ceilings},
        notes=manifest(facts),
    )


def _capacity(size: int, unit_bytes: int, unit: str, condition: str) -> Quantity:
    return Quantity(
        value=round(size / unit_bytes, 3),
        unit=unit,
        kind="measured",
        condition=condition,
        source="the kernel's own count",
    )
