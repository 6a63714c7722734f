"""Writes what `ledger calibrate` measured: the current profile and a dated copy, never over a shipped one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path as FilePath

from ledger.device.local_profile import profile_of_this_machine
from ledger.errors import EvidenceRefused, InputError, StateError
from ledger.record_files import hardware_yaml, write_atomically
from ledger.records import Hardware


def write_calibration(
    root: FilePath,
    *,
    device: str,
    quick: bool,
    hw: str | None,
    force: bool,
    on_progress: Callable[[str], None],
) -> list[FilePath]:
    """Measure this machine's ceilings and return the files written: the current profile, then its dated copy.

    Raises: InputError for an unknown device; MachineError when no shipped profile fits; EvidenceRefused when open
    seals name the profile that would be replaced, unless forced.
    """
    if device not in ("cpu", "cuda"):
        raise InputError(f"--device: got {device!r}; expected cpu or cuda")
    if device == "cpu":
        from ledger.calibrate.hardware_profile import calibrate_cpu

        _refuse_to_strand(root, "cpu", force)
        return _write(root / "hardware", calibrate_cpu(quick=quick, on_progress=on_progress))
    shipped = profile_of_this_machine(root, hw)
    _refuse_to_strand(root, shipped.name, force)
    from ledger.calibrate.hardware_profile import calibrate_cuda

    measured = calibrate_cuda(shipped, quick=quick, on_progress=on_progress)
    return _write(root / "hardware" / "measured", measured)


def _write(folder: FilePath, profile: Hardware) -> list[FilePath]:
    data = hardware_yaml(profile)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    current, dated = folder / f"{profile.name}.yaml", folder / "dated" / f"{profile.name}-{stamp}.yaml"
    write_atomically(dated, data)
    write_atomically(current, data)
    return [current, dated]


def _refuse_to_strand(root: FilePath, name: str, force: bool) -> None:
    from ledger.evidence.judge import judge
    from ledger.git.commit import Repository
    from ledger.git.history import read_history
    from ledger.git.reader import Reader, quiet_environment

    repository = Repository(root)
    if force or repository.head() is None:
        return
    reader = Reader(repository.git_dir, quiet_environment())
    try:
        history = read_history(reader)
    except StateError:
        return
    with reader.blobs() as blobs:
        book = judge(history, blobs.read)
    waiting = [c.short_name for c in book.cells if c.state == "open" and c.forecast.case.hardware == name]
    if waiting:
        raise EvidenceRefused(
            f"profile {name} is named by {len(waiting)} open forecasts ({waiting[0]}, …), which would become stale; "
            "expected none: verify or void them first, or use --force"
        )
