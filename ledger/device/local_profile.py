"""Finds hardware profiles: of this machine, or of an architecture. Imports torch, only when called."""

from __future__ import annotations

from pathlib import Path as FilePath

from ledger.device.facts import cuda_facts
from ledger.errors import InputError, MachineError
from ledger.record_files import hardware_names, load_hardware
from ledger.records import Hardware, is_gpu


def profile_of_this_machine(root: FilePath | None, name: str | None = None) -> Hardware:
    """Return the profile called `name`, else the one that names this GPU, else (without a GPU) the calibrated CPU.

    Raises: MachineError when no profile names the GPU; UnknownName; MachineError without torch.
    """
    if name is not None:
        return load_hardware(name, root)
    try:
        facts = cuda_facts()
    except MachineError:
        return load_hardware("cpu", root)
    for candidate in hardware_names(root):
        profile = load_hardware(candidate, root)
        if facts.name in profile.device_names:
            return profile
    raise MachineError(f"no profile names the device {facts.name!r}; expected one, or name the nearest: --hw NAME")


def profile_of_architecture(root: FilePath | None, name: str) -> Hardware:
    """Return the profile called `name`, or else the first profile of the architecture `name`, such as sm_90.

    Raises: InputError.
    """
    names = hardware_names(root)
    if name in names:
        return load_hardware(name, root)
    by_target: dict[str, Hardware] = {}
    for profile in (load_hardware(one, root) for one in names):
        by_target.setdefault(profile.target, profile)
    if name not in by_target:
        known = ", ".join(sorted(target for target in by_target if is_gpu(target)))
        raise InputError(f"--arch: {name!r} is not known; expected one of: {known}, or the name of a profile")
    return by_target[name]
