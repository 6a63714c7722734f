"""Writes what `ledger calibrate` measured: the current profile and a dated copy, never over a shipped one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path as FilePath

from ledger.device.gpu_selection import select_device
from ledger.device.local_profile import profile_of_this_machine
from ledger.errors import EvidenceRefused, LedgerError
from ledger.record_files import hardware_yaml, read_hardware, write_atomically
from ledger.records import Hardware


@dataclass(frozen=True)
class Written:
    """Hold the files that a calibration wrote, and what its profile says against itself."""

    paths: tuple[FilePath, ...]
    warnings: tuple[str, ...]


def write_calibration(
    root: FilePath,
    *,
    device: str,
    quick: bool,
    hw: str | None,
    waiting: Callable[[str], Sequence[str]],
    on_progress: Callable[[str], None],
) -> Written:
    """Measure this machine's ceilings and return the files written: the current profile, then its dated copy.

    device: cpu, cuda or cuda:N. waiting: (profile) -> the open cells of it, which must not become stale.
    Raises: InputError for an unknown device; MachineError for one that is not here, or when no shipped profile fits;
    EvidenceRefused where cells wait for the profile that would be replaced.
    """
    select_device(device)
    if device == "cpu":
        from ledger.calibrate.hardware_profile import calibrate_cpu

        _refuse_to_strand("cpu", waiting("cpu"))
        profile = calibrate_cpu(quick=quick, on_progress=on_progress, earlier=_earlier(root))
        return _write(root / "hardware", profile, tuple(filter(_is_warning, profile.notes)))
    shipped = profile_of_this_machine(root, hw)
    _refuse_to_strand(shipped.name, waiting(shipped.name))
    from ledger.calibrate.hardware_profile import calibrate_cuda

    measured = calibrate_cuda(shipped, quick=quick, on_progress=on_progress)
    return _write(root / "hardware" / "measured", measured, tuple(filter(_is_warning, measured.notes)))


def _is_warning(note: str) -> bool:
    return note.startswith(("noisy: ", "busy: ", "low: ", "distrusted: "))


def _earlier(root: FilePath) -> Hardware | None:
    """Return the CPU profile that a calibration replaces, None where there is none that can be read."""
    try:
        return read_hardware(root / "hardware" / "cpu.yaml")
    except LedgerError:
        return None


def _write(folder: FilePath, profile: Hardware, warnings: tuple[str, ...] = ()) -> Written:
    data = hardware_yaml(profile)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    current, dated = folder / f"{profile.name}.yaml", folder / "dated" / f"{profile.name}-{stamp}.yaml"
    write_atomically(dated, data)
    write_atomically(current, data)
    return Written((current, dated), warnings)


def _refuse_to_strand(name: str, waiting: Sequence[str]) -> None:
    if waiting:
        raise EvidenceRefused(
            f"profile {name} is named by {len(waiting)} open forecasts ({waiting[0]}, …), which would become stale; "
            "expected none: verify or void them first, or use --force"
        )
