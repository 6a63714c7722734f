"""Measures a device's ceilings and writes them into a profile: burst on a CPU, burst and sustained on a GPU.

Every number has the condition under which it was measured. A ceiling far from the datasheet is reported: above 105% of
it as distrusted, under 50% with the usual causes. Imports torch, only when called.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from ledger.analysis.cpu_noise import calibration_notes, lower_than_before
from ledger.device.facts import cpu_facts, cuda_facts, max_clock_mhz, require_profile
from ledger.records import Calibration, Ceilings, DeviceFacts, Hardware, Limits, Memory, Quantity
from ledger.records.base import MOST_LINE
from ledger.roofline import base_units

OnStep = Callable[[str], None]

_DISTRUST = 1.05
_SUSPECT = 0.50
_CLOCK_ERROR = 1.01
_CULPRITS = (
    "a clock limited by power, heat or an administrator; another process on the device; a partition (MIG); a library "
    "without this path; the sparse figure used as the dense one"
)


def manifest(facts: DeviceFacts) -> tuple[str, ...]:
    """Return the device of a calibration, and the versions of all platform packages in lines that a profile takes."""
    versions = ", ".join(f"{name} {version}" for name, version in facts.software.items())
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    where = f"calibrated {when} on {facts.name} ({facts.target}), driver {facts.driver}"
    return (where, *textwrap.wrap(f"with {versions}", MOST_LINE))


def calibrate_cpu(
    quick: bool = False, on_progress: OnStep = lambda _step: None, earlier: Hardware | None = None
) -> Hardware:
    """Return this CPU's profile, all of it measured, with all processors that this process may use.

    Its notes say how noisy the machine was. earlier: the profile before, which they compare with.
    Raises: MachineError without torch.
    """
    from ledger.calibrate.ceilings_cpu import measure_ceilings

    facts = cpu_facts()
    found = measure_ceilings(facts, quick=quick, on_step=on_progress)
    profile = _cpu_profile(facts, found.burst, found.calibration)
    lower = () if earlier is None else lower_than_before(earlier, profile)
    return profile.model_copy(update={"notes": (*profile.notes, *calibration_notes(profile), *lower)})


def _cpu_profile(facts: DeviceFacts, ceilings: Ceilings, calibration: Calibration) -> Hardware:
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
        calibration=calibration,
    )


def calibrate_cuda(hardware: Hardware, quick: bool = False, on_progress: OnStep = lambda _step: None) -> Hardware:
    """Return a shipped profile with measured ceilings added: burst, and sustained unless quick.

    Raises: MachineError when the profile is not this device's.
    """
    from ledger.calibrate.ceilings_cuda import measure_ceilings

    facts = cuda_facts()
    require_profile(hardware, facts)
    found, lines = measure_ceilings(hardware, facts, quick=quick, on_step=on_progress)
    notes = (*manifest(facts), *lines, *doubts(hardware, found["burst"]))
    profile = hardware.model_copy(update={"ceilings": {**hardware.ceilings, **found}, "notes": notes})
    return Hardware.model_validate(profile.model_dump(by_alias=True))


def doubts(hardware: Hardware, measured: Ceilings) -> tuple[str, ...]:
    """Return the ceilings of a calibration that contradict the datasheet, one line each."""
    if "datasheet" not in hardware.ceilings:
        return ()
    sheet = hardware.ceilings["datasheet"]
    pairs = [(path, peak, sheet.peaks.get(path)) for path, peak in measured.peaks.items()]
    pairs.append(("dram_bandwidth", measured.dram_bandwidth, sheet.dram_bandwidth))  # type: ignore[arg-type]
    lines = list(impossible_clocks(hardware, measured))
    for name, got, expected in pairs:
        if got is None or expected is None:
            continue
        share = base_units(got) / base_units(expected)
        finding = f"{name} is {100 * share:.0f}% of the datasheet ({got.value:g} of {expected.value:g} {expected.unit})"
        if share > _DISTRUST:
            lines.append(f"distrusted: {finding}: the timer, the work or the profile is wrong")
        elif share < _SUSPECT:
            lines.append(f"low: {finding}; likely: {_CULPRITS}")
    return tuple(lines)


def impossible_clocks(hardware: Hardware, measured: Ceilings) -> Iterator[str]:
    """Yield the peaks that all SMs together cannot reach at the clock recorded with them."""
    sheet = hardware.ceilings["datasheet"].peaks
    for path, got in measured.peaks.items():
        rated = sheet.get(path)
        if got is None or got.clock_mhz is None or rated is None or rated.flop_per_clk_per_sm is None:
            continue
        limit = rated.flop_per_clk_per_sm * hardware.limits.sms * got.clock_mhz / 1e6
        if got.value > _CLOCK_ERROR * limit:
            yield (
                f"distrusted: {path} is {got.value:g} {got.unit} at {got.clock_mhz:g} MHz, where {hardware.limits.sms} "
                f"SMs reach {limit:.4g}: the timer or the clock is wrong"
            )


def _capacity(size: int, unit_bytes: int, unit: str, condition: str) -> Quantity:
    return Quantity(
        value=round(size / unit_bytes, 3),
        unit=unit,
        kind="measured",
        condition=condition,
        source="the kernel's own count",
    )
