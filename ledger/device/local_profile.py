"""Finds the hardware profile of the machine that this runs on. Imports torch, only when called."""

from __future__ import annotations

from pathlib import Path as FilePath

from ledger.device.facts import cuda_facts
from ledger.errors import MachineError
from ledger.record_files import hardware_names, load_hardware
from ledger.records import Hardware


def profile_of_this_machine(root: FilePath | None, name: str | None = None) -> Hardware:
    """Return the profile called `name`, or else the one that names this GPU, or without a GPU the calibrated CPU.

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
