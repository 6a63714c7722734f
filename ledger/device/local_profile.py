"""Finds hardware profiles: of this machine, or of an architecture. Imports torch, only when called."""

from __future__ import annotations

from pathlib import Path as FilePath

from ledger.device.facts import cpu_facts, cuda_facts, profile_matches
from ledger.errors import InputError, MachineError, UnknownName
from ledger.record_files import hardware_names, load_hardware
from ledger.records import Hardware, is_gpu


def profile_of_this_machine(root: FilePath | None, name: str | None = None) -> Hardware:
    """Return the profile called `name`, else the one of this GPU, else (without a GPU) the calibrated CPU.

    A profile is of a GPU whose name and compiler target it has.

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
        if profile_matches(profile, facts):
            return profile
    raise MachineError(f"no profile names the device {facts.name!r}; expected one, or name the nearest: --hw NAME")


def profile_of_comparison(base: FilePath, root: FilePath | None, name: str | None = None) -> Hardware:
    """Return the profile as base has it, or where base has none of this machine, as the work tree `root` has it.

    So head does not choose the device that it is judged on. Raises: as `profile_of_this_machine`.
    """
    try:
        found = profile_of_this_machine(base, name)
    except (MachineError, UnknownName):
        return profile_of_this_machine(root, name)
    if name is not None or is_gpu(found.target) or profile_matches(found, cpu_facts()):
        return found
    return profile_of_this_machine(root)


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
